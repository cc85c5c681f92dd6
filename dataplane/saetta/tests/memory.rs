//! The memory of a process whose bolt stalls stays within the sum that the engine told at its start, and a tenth.
//!
//! The test starts itself as a child, which runs one topology: a spout that never ends, and a bolt stuck in user code until it is told to go
//! on. The long run: `cargo test --release -p saetta --test memory -- --ignored --nocapture`.

mod flow;

use flow::{Feed, Number, With};
use saetta::prelude::*;
use saetta::{Config, ConfigSource};
use saetta_engine::{Command, Engine, EnginePlan, Options, PlannedExecutor, allowed_cores};
use saetta_model::parallelism::Layout;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Says to a child of this test which run it is; unset elsewhere.
const KIND: &str = "SAETTA_TEST_STALL";
/// Bounds that are small beside what a leak would take.
const BOUNDS: [(&str, &str); 4] =
    [("executor.inbox.bytes", "1MiB"), ("executor.outbox.bytes", "1MiB"), ("worker.outbox.bytes", "4MiB"), ("worker.pending.max", "65536")];

/// Not a test: the child. Says the sum of its engine, then "stalled"; goes on when it is sent a line.
#[test]
#[ignore = "started by the others"]
fn child() {
    let Ok(kind) = std::env::var(KIND) else { return };
    let tracked = kind == "tracked";
    let go_on = Arc::new(AtomicBool::new(false));
    let told = Arc::default();
    let mut t = Topology::new();
    let numbers = t.spout("endless", Feed::of(u64::MAX, tracked, &told)).stream::<Number>();
    // Takes a hundred thousand first, so that whatever warms up has.
    let (wait, mut left) = (go_on.clone(), 100_000_u64);
    let many = move || {
        With::new(move |n, cx| {
            (0..4).for_each(|i| cx.emit(&Number::of(n.wrapping_mul(4) + i)));
            Ok(())
        })
    };
    let multiplied = t.bolt("multiply", many).input(&numbers, Shuffle).stream::<Number>();
    let stuck = move || {
        let wait = wait.clone();
        With::new(move |_, _| {
            left = left.saturating_sub(1);
            if left == 0 && !wait.load(Ordering::Acquire) {
                println!("stalled");
                while !wait.load(Ordering::Acquire) {
                    std::thread::park_timeout(Duration::from_millis(10));
                }
            }
            Ok(())
        })
    };
    let _ = t.bolt("stuck", stuck).input(&multiplied, Shuffle);
    for (key, value) in BOUNDS.iter().chain(&[("topology.message.timeout.secs", "2")]) {
        let _ = t.config(key, value);
    }
    let program = t.build().unwrap();
    let config = Config::topology(&program.config, ConfigSource::Code).unwrap();
    let layout = Layout::new(&program.spec, &config).unwrap();
    let executors = layout
        .components
        .iter()
        .flat_map(|c| c.executors.iter().map(|id| PlannedExecutor { id: *id, on_loop: usize::from(c.id.as_str() == "stuck") }))
        .collect();
    let core = allowed_cores()[0];
    let options = Options { pinned: false, alone: false, ..Options::from_config(&config).unwrap() };
    let plan = EnginePlan { layout, cores: vec![core; 2], executors, remotes: Vec::new(), options };
    let engine = Engine::build(&program, &plan, false).unwrap();
    println!("sum {}", engine.memory().iter().map(|(_, bytes)| bytes).sum::<u64>());
    let running = engine.start().unwrap();
    running.send_all(|| Command::Activate(true));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    go_on.store(true, Ordering::Release);
    running.stop().unwrap();
}

/// A line of /proc/PID/status, in bytes.
fn status_bytes(pid: u32, key: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

struct Running(Child);
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Most resident memory of a child whose bolt stalls `for_long`, all of it counted, and the sum its engine said.
fn stall(kind: &str, for_long: Duration) -> (u64, u64) {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(KIND, kind)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map(Running)
        .unwrap();
    let pid = child.0.id();
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut until = |word: &str| loop {
        let line = lines.next().expect("the child goes on").unwrap();
        // The harness may have begun the line.
        if let Some(at) = line.find(word) {
            return line[at + word.len()..].trim().to_owned();
        }
    };
    let sum: u64 = until("sum ").parse().unwrap();
    until("stalled");
    // Full: everything that can wait does. Then it stays as it is, for as long as is looked.
    let (since, mut last, mut steady) = (Instant::now(), 0, 0);
    while since.elapsed() < for_long || steady < 20 {
        std::thread::park_timeout(Duration::from_millis(20));
        let now = status_bytes(pid, "VmRSS");
        steady = if now <= last { steady + 1 } else { 0 };
        last = last.max(now);
        assert!(since.elapsed() < for_long + Duration::from_secs(60), "{kind}: it grows and grows: {last} bytes");
    }
    let most = status_bytes(pid, "VmHWM");
    child.0.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    (most, sum)
}

fn assert_bounded(kind: &str, for_long: Duration) {
    let (most, sum) = stall(kind, for_long);
    eprintln!("{kind}, stalled for {for_long:?}: {} KiB resident, sum {} KiB", most >> 10, sum >> 10);
    assert!(most <= sum + sum / 10, "{kind}: {most} bytes, the engine said {sum}");
}

#[test]
fn memory_stays_within_the_sum_while_a_bolt_stalls() {
    ["untracked", "tracked"].into_iter().for_each(|kind| assert_bounded(kind, Duration::ZERO));
}

#[test]
#[ignore = "two minutes"]
fn memory_stays_within_the_sum_while_a_bolt_stalls_for_a_minute() {
    ["untracked", "tracked"].into_iter().for_each(|kind| assert_bounded(kind, Duration::from_secs(60)));
}
