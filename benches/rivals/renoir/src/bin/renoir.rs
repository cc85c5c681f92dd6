//! renoir with the allocator every program gets.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    rivals_adapter::main(rivals_renoir::run)
}
