//! The files that a latency case leaves, read by HdrHistogram's own code for Python.
//!
//! Before: Python 3 with `venv`, and a package index or a copy of it. After: counts and percentiles are the same on both sides.
//! Without them it fails and says what to install: a format that nobody else reads is no format.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use saetta_harness::Latency;
use saetta_harness::hdr_files::{self, Interval};

/// The release that is asked, so that a new one cannot break an old state of ours.
const PACKAGE: &str = "hdrhistogram==0.10.8";

/// Prints one line per interval: tag, start, length, count, p50, p99, max.
const DECODE: &str = r#"
import sys
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
log = HistogramLogReader(sys.argv[1], HdrHistogram(1, 100_000_000_000, 3))
while (h := log.get_next_interval_histogram()) is not None:
    length = (h.get_end_time_stamp() - h.get_start_time_stamp()) / 1000
    print(h.get_tag(), f"{length:.3f}", h.get_total_count(), h.get_value_at_percentile(50), h.get_value_at_percentile(99), h.get_max_value())
"#;

fn must(command: &mut Command, why: &str) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{why}: starting {command:?}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{why}: {command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// Python of an environment of its own under the target folder, with the package in it. Made once.
fn python() -> PathBuf {
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hdrhistogram-venv");
    let python = venv.join("bin/python");
    let there = Command::new(&python).args(["-c", "import hdrh"]).output().is_ok_and(|output| output.status.success());
    if !there {
        let why = "python3 with venv is needed; install python3 and python3-venv";
        must(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv), why);
        let why = "HdrHistogram for Python is needed; let pip reach a package index (PIP_INDEX_URL, PIP_FIND_LINKS)";
        must(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]), why);
    }
    python
}

#[test]
fn the_log_of_a_case_reads_the_same_in_python() {
    let fill = |step: u64| {
        let mut latency = Latency::new();
        (1..=10_000).for_each(|i| latency.record_ns(i * step));
        latency
    };
    let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let interval = |after_ms: u64, tag: &str, step| Interval {
        start: start + Duration::from_millis(after_ms),
        took: Duration::from_millis(1500),
        tag: tag.to_owned(),
        latency: fill(step),
    };
    let intervals = [interval(0, "CCX", 7), interval(2000, "CCX-hiccups", 90_000), interval(4000, "xCCX", 31)];
    let dir = tempfile::tempdir().expect("temporary folder");
    let table = hdr_files::write(dir.path(), "hop", "other core", "CCX", &intervals).expect("written");
    assert_eq!(table, dir.path().join("hop.other-core.hgrm"));

    let read = must(Command::new(python()).args(["-c", DECODE]).arg(dir.path().join("hop.other-core.hlog")), "reading the log");
    let expected: String = intervals
        .iter()
        .map(|i| {
            let (n, p50, p99, max) = (i.latency.count(), i.latency.p50_ns(), i.latency.p99_ns(), i.latency.histogram().max());
            format!("{} 1.500 {n} {p50} {p99} {max}\n", i.tag)
        })
        .collect();
    assert_eq!(read, expected);
}
