//! A kernel or container that refuses io_uring is told in one clear line, not by a panic.
//! Each case runs in a process of its own, under a seccomp filter.

use saetta_transport::{Carrier, Choice};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use std::collections::BTreeMap;

const IO_URING_SETUP: i64 = 425;

fn refuse(errno: u32) {
    let arch: TargetArch = std::env::consts::ARCH.try_into().unwrap();
    let rules = BTreeMap::from([(IO_URING_SETUP, vec![])]);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), arch).unwrap();
    seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

#[test]
#[ignore = "started by the tests below in a process of its own"]
fn child() {
    let Ok(errno) = std::env::var("REFUSE_ERRNO") else { return };
    refuse(errno.parse().unwrap());
    println!("FATAL {}", Carrier::open(Choice::Uring).err().unwrap());
    let carrier = Carrier::open(Choice::Auto).unwrap();
    assert_eq!(carrier.kind(), "epoll");
    println!("EPOLL {}", carrier.refusal().unwrap());
    assert!(Carrier::open(Choice::Epoll).unwrap().refusal().is_none(), "it was not wanted");
}

/// What is said where io_uring is asked for by name, and where it is not.
fn lines(errno: u32) -> (String, String) {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--include-ignored", "--nocapture"])
        .env("REFUSE_ERRNO", errno.to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{text}{}", String::from_utf8_lossy(&child.stderr));
    let line = |word: &str| text.lines().find_map(|l| l.strip_prefix(word)).expect("the child prints it").to_owned();
    (line("FATAL "), line("EPOLL "))
}

#[test]
fn each_refusal_names_the_call_the_error_the_likely_cause_and_the_remedy() {
    for (errno, name) in [(1, "EPERM"), (38, "ENOSYS"), (12, "ENOMEM")] {
        let (fatal, epoll) = lines(errno);
        for line in [&fatal, &epoll] {
            assert!(line.starts_with(&format!("transport: io_uring unavailable (io_uring_setup: {name}; ")), "{line}");
            assert!(line.contains("a seccomp filter is active"), "{line}");
        }
        assert!(fatal.ends_with("allow io_uring, or set transport.carrier=auto"), "{fatal}");
        assert!(epoll.contains("using epoll") && epoll.contains("set transport.carrier=epoll to silence this"), "{epoll}");
    }
}
