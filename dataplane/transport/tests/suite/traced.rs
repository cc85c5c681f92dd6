//! Which system calls carriers make, shown by filters that end the process at any other.
//!
//! Each case is a process of its own: the filter is its thread's, and a call that is not allowed is its death by SIGSYS.

use crate::harness::*;
use seccompiler::{BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::Duration;

/// Applies a filter to this thread, for good: `matched` for the calls named, `else_` for the others.
pub fn filter(rules: BTreeMap<i64, Vec<SeccompRule>>, else_: SeccompAction, matched: SeccompAction) {
    let arch: TargetArch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, else_, matched, arch).unwrap();
    seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

/// On anything but standard output and error, where a failing assertion speaks.
fn beyond_stderr() -> Vec<SeccompRule> {
    let above = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Gt, 2).unwrap();
    vec![SeccompRule::new(vec![above]).unwrap()]
}

/// The C library's allocator looks into /proc once, when it first gives memory of a thread back to the system: before the filter, then.
fn allocator_has_asked() {
    drop((0..50).map(|_| vec![1u8; 100_000]).collect::<Vec<_>>());
}

/// Calls that carry bytes of a socket, each forbidden.
fn no_byte_is_carried_by_a_call() {
    allocator_has_asked();
    use libc::{SYS_read, SYS_readv, SYS_recvfrom, SYS_recvmmsg, SYS_recvmsg, SYS_sendfile, SYS_sendmmsg, SYS_sendmsg, SYS_sendto};
    use libc::{SYS_splice, SYS_write, SYS_writev};
    let whatever = [SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_sendmmsg, SYS_recvmmsg, SYS_splice, SYS_sendfile];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = whatever.map(|call| (call, vec![])).into();
    rules.extend([SYS_read, SYS_write, SYS_readv, SYS_writev].map(|call| (call, beyond_stderr())));
    filter(rules, SeccompAction::Allow, SeccompAction::KillProcess);
}

/// Everything is forbidden but what memory and the end of a thread take.
fn no_call_at_all() {
    allocator_has_asked();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = [
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mprotect,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_brk,
        libc::SYS_futex,
        libc::SYS_sigaltstack,
        libc::SYS_rt_sigprocmask,
        libc::SYS_set_robust_list,
        libc::SYS_rseq,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ]
    .map(|call| (call, vec![]))
    .into();
    let spoken = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Le, 2).unwrap();
    rules.insert(libc::SYS_write, vec![SeccompRule::new(vec![spoken]).unwrap()]);
    filter(rules, SeccompAction::KillProcess, SeccompAction::Allow);
}

fn in_a_process(name: &str) -> std::process::Output {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--include-ignored", "--nocapture"])
        .env("TRACED", "1")
        .output()
        .unwrap()
}

fn passes(name: &str) {
    let child = in_a_process(name);
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && text.contains("1 passed"), "{:?} {text}{}", child.status, String::from_utf8_lossy(&child.stderr));
}

fn is_child() -> bool {
    std::env::var("TRACED").is_ok()
}

/// A life of a link: many frames, large ones, credit, answers, waits, silence, goodbyes and closes.
fn everything(w: &mut World, a: At, b: At) {
    w.send(a, 2000, 100);
    w.send(a, 3, 100_000);
    for i in 0..200 {
        w.send(a, 1, i);
        w.of(b).grant(b.link, 1, i as u64);
        w.arrive(a, b);
        w.send(b, 1, i);
        w.arrive(b, a);
    }
    w.settle(a, b);
    w.pass(5 * SECOND);
    w.of(a).say_goodbye(a.link);
    w.both_end(a, b);
    assert_eq!(w.told(b).how(), How::Goodbye);
}

#[test]
#[ignore = "started by `the_io_uring_carrier_makes_no_call_that_sends_or_receives` in a process of its own"]
fn child_io_uring() {
    if !is_child() {
        return;
    }
    let mut w = World::new(Kind::Uring, 2);
    let (a, b) = w.join(0, 1);
    let (c, d) = w.join(0, 1);
    let quiet = saetta_ring::Sleeper::new().unwrap();
    no_byte_is_carried_by_a_call();
    everything(&mut w, a, b);
    w.send(c, 100, 1000);
    w.carrier(0).wait(quiet.as_fd(), Duration::from_millis(5));
    w.settle(c, d);
    w.of(c).close(c.link);
    w.both_end(c, d);
    w.account(c, d);
    assert!(w.counters(0).calls > 0);
}

#[test]
fn the_io_uring_carrier_makes_no_call_that_sends_or_receives() {
    passes("traced::child_io_uring");
}

#[test]
#[ignore = "started by `the_filter_does_see_such_calls` in a process of its own"]
fn child_epoll() {
    if !is_child() {
        return;
    }
    let mut w = World::new(Kind::Epoll, 2);
    let (a, b) = w.join(0, 1);
    no_byte_is_carried_by_a_call();
    w.send(a, 1, 100);
    w.arrive(a, b);
}

/// Else the test above could not fail.
#[test]
fn the_filter_does_see_such_calls() {
    let child = in_a_process("traced::child_epoll");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.status), Some(libc::SIGSYS), "{:?}", child.status);
}

#[test]
#[ignore = "started by `memory_between_loops_that_are_awake_makes_no_call` in a process of its own"]
fn child_memory() {
    if !is_child() {
        return;
    }
    let mut w = World::new(Kind::Memory, 2);
    let (a, b) = w.join(0, 1);
    w.send(a, 10, 100);
    w.settle(a, b);
    no_call_at_all();
    w.send(a, 5000, 100);
    w.send(b, 5000, 100);
    w.send(a, 3, 100_000);
    w.arrive(a, b);
    for i in 0..500 {
        w.send(b, 1, i);
        w.arrive(b, a);
    }
    w.settle(a, b);
    // Ten minutes of nothing but proofs of life.
    w.pass(600 * SECOND);
    assert!(!w.has_ended(a) && !w.has_ended(b));
    // What is let go now is closed by the process.
    std::mem::forget(w);
}

#[test]
fn memory_between_loops_that_are_awake_makes_no_call() {
    passes("traced::child_memory");
}

/// One call wakes a peer that sleeps, and none one that does not.
#[test]
fn memory_wakes_a_peer_that_sleeps_by_one_call() {
    let (mut w, a, b) = World::pair(Kind::Memory);
    w.settle(a, b);
    let before = w.counters(0).calls;
    for _ in 0..100 {
        w.send(a, 1, 100);
        w.arrive(a, b);
    }
    assert_eq!(w.counters(0).calls, before);
    let quiet = saetta_ring::Sleeper::new().unwrap();
    w.carrier(1).wait(quiet.as_fd(), Duration::from_millis(1));
    w.turn_only(&[1]);
    let calls = w.counters(0).calls;
    w.send(a, 1, 100);
    w.arrive(a, b);
    assert_eq!(w.counters(0).calls, calls, "it is awake again");
}
