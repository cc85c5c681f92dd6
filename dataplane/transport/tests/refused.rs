//! A kernel or container that refuses io_uring is told in one clear line, not by a panic.
//! Each case runs in a process of its own, under a seccomp filter.

use saetta_transport::UringCarrier;
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
    println!("LINE {}", UringCarrier::new().err().unwrap());
}

fn line(errno: u32) -> String {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--include-ignored", "--nocapture"])
        .env("REFUSE_ERRNO", errno.to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{text}{}", String::from_utf8_lossy(&child.stderr));
    text.lines().find_map(|l| l.strip_prefix("LINE ")).expect("the child prints it").to_owned()
}

#[test]
fn each_refusal_names_the_call_the_error_the_likely_cause_and_the_remedy() {
    for (errno, name) in [(1, "EPERM"), (38, "ENOSYS"), (12, "ENOMEM")] {
        let line = line(errno);
        assert!(line.starts_with(&format!("transport: io_uring unavailable (io_uring_setup: {name}; ")), "{line}");
        assert!(line.contains("a seccomp filter is active"), "{line}");
        assert!(line.contains("this version has no other carrier between workers"), "{line}");
        assert!(line.ends_with("allow io_uring, or run the topology with topology.workers=1"), "{line}");
    }
}
