//! Runs a program from which the kernel takes io_uring away, as container runtimes do: `without-io-uring PROGRAM ARGS...`.
//!
//! `io_uring_setup` answers EPERM to the program and to all it starts.
#![forbid(unsafe_code)]

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Number of `io_uring_setup`: one on all architectures.
const IO_URING_SETUP: i64 = 425;
/// EPERM, what a refused io_uring answers.
const EPERM: u32 = 1;

fn main() {
    let mut args = std::env::args_os().skip(1);
    let program = args.next().expect("usage: without-io-uring PROGRAM ARGS...");
    let architecture = std::env::consts::ARCH.try_into().expect("an architecture that seccomp knows");
    let rules = [(IO_URING_SETUP, Vec::new())].into();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(EPERM), architecture).expect("a filter");
    let filter = BpfProgram::try_from(filter).expect("a filter the kernel can run");
    seccompiler::apply_filter(&filter).expect("the kernel takes the filter");
    let error = Command::new(&program).args(args).exec();
    panic!("starting {}: {error}", program.display());
}
