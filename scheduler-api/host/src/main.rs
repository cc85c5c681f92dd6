//! The scheduler helper: loads one plugin and runs its rounds, away from nimbus. Started by nimbus only.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    saetta_sched_host::helper::main(std::env::args().skip(1))
}
