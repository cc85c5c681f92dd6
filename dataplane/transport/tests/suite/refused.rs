//! Rule 9: where io_uring is refused, `auto` is epoll, with one line that says why, and every case of this suite holds all the same.

use crate::harness::{Case, Kind, REFUSED};
use crate::{bytes, delivery, ends, faults, limits, rules, time, traced};
use saetta_transport::{Carrier, Choice};
use seccompiler::SeccompAction;
use std::sync::atomic::Ordering;

/// Runs in a process of its own, started by the tests below. The filter is this thread's and its children's.
#[test]
#[ignore = "started by the tests below in a process of its own"]
fn child() {
    let Ok(errno) = std::env::var("REFUSE_IO_URING") else { return };
    traced::filter([(libc::SYS_io_uring_setup, vec![])].into(), SeccompAction::Allow, SeccompAction::Errno(errno.parse().unwrap()));
    assert!(Carrier::open(Choice::Uring).is_err(), "asked for by name it is refused");
    let carrier = Carrier::open(Choice::Auto).unwrap();
    assert_eq!(carrier.kind(), "epoll");
    println!("WHY {}", carrier.refusal().unwrap());
    REFUSED.store(true, Ordering::Relaxed);
    let run = |cases: &[Case], kind: Kind| {
        for (name, case) in cases {
            println!("{name}::{kind:?}");
            case(kind);
        }
        println!("RAN {} {kind:?}", cases.len());
    };
    let all: Vec<Case> = [delivery::ON_ALL, limits::ON_ALL, ends::ON_ALL, time::ON_ALL, faults::ON_ALL, rules::ON_ALL].concat();
    assert!(all.len() >= 40, "{} cases on all kinds", all.len());
    // `Uring` stands for whatever `auto` gives.
    for kind in [Kind::Uring, Kind::Memory, Kind::Simulated] {
        if std::env::var("REFUSED_KIND").is_ok_and(|k| k == format!("{kind:?}")) {
            run(&all, kind);
            if kind != Kind::Memory {
                run(bytes::ON_BYTES, kind);
            }
        }
    }
}

fn all_pass(kind: Kind) {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "refused::child", "--include-ignored", "--nocapture"])
        .env("REFUSE_IO_URING", libc::EPERM.to_string())
        .env("REFUSED_KIND", format!("{kind:?}"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && text.contains("1 passed"), "{}\n{errors}", text.lines().last().unwrap_or_default());
    let why = text.lines().find_map(|l| l.strip_prefix("WHY ")).unwrap();
    assert!(why.starts_with("transport: io_uring unavailable (io_uring_setup: EPERM; ") && why.contains(" - using epoll"), "{why}");
    assert!(text.lines().any(|l| l.starts_with("RAN ")), "{text}");
}

#[test]
fn c09_with_io_uring_refused_all_cases_pass_over_what_auto_gives() {
    all_pass(Kind::Uring);
}

#[test]
fn c09_with_io_uring_refused_all_cases_pass_on_memory() {
    all_pass(Kind::Memory);
}

#[test]
fn c09_with_io_uring_refused_all_cases_pass_on_simulated_links() {
    all_pass(Kind::Simulated);
}
