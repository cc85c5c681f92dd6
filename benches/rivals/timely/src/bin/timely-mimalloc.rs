//! timely with mimalloc, as its fastest users run it.
#![forbid(unsafe_code)]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    rivals_adapter::main(rivals_timely::run)
}
