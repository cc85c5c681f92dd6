//! `any`: what a saturated loop does besides moving tuples: allocations, told by this program's allocator, and system calls, counted by strace
//! in a process of its own. Both between a warm-up and an end that all loops pass while they are busy.
//!
//! Before: the shapes of `pipeline` and `ack`, three executors on two cores. After: allocations in ten million tuples; calls a second of the loop
//! that makes most. strace stops a thread at its system calls only: a loop that makes none runs as fast as without it.

use std::alloc::System;
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use saetta_harness::suite::{Figures, Options, SuiteRun};
use saetta_harness::{Better, Result, RowSpec};
use tracking_allocator::{AllocationGroupId, AllocationRegistry, AllocationTracker, Allocator};

use crate::parts::Numbers;
use crate::topologies::{Shape, rate};

/// The allocator of the suites: the system's, which tells [`OnLoops`] of every allocation once it is asked to.
#[global_allocator]
static ALLOCATOR: Allocator<System> = Allocator::system();

/// Allocations made by core loops between the marks. Other threads of the process may allocate as they like.
static ON_LOOPS: AtomicU64 = AtomicU64::new(0);
/// Where the first few were made.
static WHERE: Mutex<Vec<Backtrace>> = Mutex::new(Vec::new());
/// How many.
const WHERE_MAX: u64 = 4;

thread_local! {
    /// True on a core loop between its marks.
    static IS_BUSY_LOOP: Cell<bool> = const { Cell::new(false) };
}

/// Counts. Called on the thread that allocates, not for what it allocates itself.
struct OnLoops;

impl AllocationTracker for OnLoops {
    fn allocated(&self, _: usize, _: usize, _: usize, _: AllocationGroupId) {
        if IS_BUSY_LOOP.get() && ON_LOOPS.fetch_add(1, Ordering::Relaxed) < WHERE_MAX {
            WHERE.lock().expect("no panic here").push(Backtrace::force_capture());
        }
    }

    fn deallocated(&self, _: usize, _: usize, _: usize, _: AllocationGroupId, _: AllocationGroupId) {}
}

/// Tells a process that it is the one to be watched: `SHAPE FIRST_CORE SECOND_CORE TUPLES`.
const WATCHED: &str = "SAETTA_SUITES_WATCHED";

/// `tuples` measured ones behind as many that warm up and before some that keep all loops busy until the last measured one has arrived.
fn saturated(tuples: u64, warm_up: u64) -> Numbers {
    Numbers { from: warm_up, to: warm_up + tuples, end: tuples + 2 * warm_up, on_mark: None }
}

/// Allocations of core loops while `tuples` tuples go through.
fn allocated(o: &Options, shape: Shape, tuples: u64, warm_up: u64) -> Result<Figures> {
    let numbers = saturated(tuples, warm_up);
    let marks = Arc::new(AtomicU64::new(0));
    let (passed, to) = (marks.clone(), numbers.to);
    let on_mark = move |number| {
        IS_BUSY_LOOP.set(number != to);
        passed.fetch_add(1, Ordering::Relaxed);
    };
    ON_LOOPS.store(0, Ordering::Relaxed);
    rate(shape, o.cores, &Numbers { on_mark: Some(Arc::new(on_mark)), ..numbers })?;
    for place in WHERE.lock().expect("no panic here").drain(..) {
        eprintln!("        a busy loop allocated:\n{}", ours(&place.to_string()));
    }
    match marks.load(Ordering::Relaxed) {
        4 => Ok(Figures::from([("n", ON_LOOPS.load(Ordering::Relaxed) as f64)])),
        n => Err(format!("two loops passed {n} marks, not four").into()),
    }
}

/// The lines of a backtrace that name a file of ours.
fn ours(trace: &str) -> String {
    let of_file = |line: &&str| line.trim_start().starts_with("at ") && ["dataplane/", "benches/"].iter().any(|dir| line.contains(dir));
    trace.lines().filter(of_file).map(|line| format!("          {}\n", line.trim())).collect()
}

/// `main` of the watched process; `None` in any other.
pub(crate) fn watched() -> Option<ExitCode> {
    let order = std::env::var(WATCHED).ok()?;
    Some(match watch_me(&order) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {WATCHED}={order}: {error}");
            ExitCode::FAILURE
        }
    })
}

fn watch_me(order: &str) -> Result<()> {
    let words: Vec<&str> = order.split(' ').collect();
    let [shape, near, far, tuples] = words[..] else { return Err("four words".into()) };
    let shape = if shape == "acked" { Shape::AckedIdentity } else { Shape::Identity };
    let (tuples, cores) = (tuples.parse()?, (near.parse()?, far.parse()?));
    // A call that nobody makes otherwise, and that always goes to the kernel: the mark in the trace.
    let on_mark = |_| _ = rustix::process::getpgid(None);
    let numbers = Numbers { on_mark: Some(Arc::new(on_mark)), ..saturated(tuples, tuples / 4) };
    rate(shape, cores, &numbers)?;
    Ok(())
}

/// The system call of a mark, as strace names it.
const MARK: &str = "getpgid(";

/// System calls a second of one thread between its two marks, and their names; `None` for a thread without marks.
fn calls_in(trace: &str) -> Option<Result<(f64, Vec<String>)>> {
    let mut marks = Vec::new();
    let mut names = Vec::new();
    for line in trace.lines() {
        // `1700000000.123456 name(..) = 0`; signals and exits have no name there.
        let Some((at, call)) = line.split_once(' ') else { continue };
        let Some((name, _)) = call.split_once('(').filter(|_| !call.starts_with(['-', '+'])) else { continue };
        if call.starts_with(MARK) {
            marks.push(at);
        } else if marks.len() == 1 {
            names.push(name.trim().to_owned());
        }
    }
    let (from, to) = match marks[..] {
        [] => return None,
        [from, to] => (from, to),
        _ => return Some(Err(format!("a loop passed {} marks, not two", marks.len()).into())),
    };
    let secs = || -> Result<f64> { Ok(to.parse::<f64>()? - from.parse::<f64>()?) };
    Some(secs().map(|secs| (names.len() as f64 / secs.max(1e-6), names)))
}

/// System calls a second of the loop that makes most.
fn system_calls(o: &Options, shape: &str, tuples: u64) -> Result<Figures> {
    let dir = tempfile::tempdir()?;
    let output = Command::new("strace")
        .args(["-ff", "-ttt", "-qq", "-o"])
        .arg(dir.path().join("loop"))
        .arg(std::env::current_exe()?)
        .env(WATCHED, format!("{shape} {} {} {tuples}", o.cores.0, o.cores.1))
        .output()
        .map_err(|e| format!("starting strace: {e}; install it (`cargo xtask ci` does)"))?;
    if !output.status.success() {
        return Err(format!("under strace: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    }
    let mut loops = Vec::new();
    for entry in std::fs::read_dir(dir.path())? {
        loops.extend(traced(&entry?.path())?);
    }
    if loops.len() != 2 {
        return Err(format!("{} loops passed the marks, not two", loops.len()).into());
    }
    for (_, names) in loops.iter().filter(|(_, names)| !names.is_empty()) {
        eprintln!("        while saturated, one loop called {}", names.join(" "));
    }
    let most = loops.iter().map(|(calls, _)| *calls).fold(0.0, f64::max);
    Ok(Figures::from([("calls", most)]))
}

fn traced(path: &Path) -> Result<Option<(f64, Vec<String>)>> {
    calls_in(&std::fs::read_to_string(path)?).transpose()
}

pub(crate) fn declare(run: &mut SuiteRun<'_>) -> Result<()> {
    // Refused only when it is there already.
    let _ = AllocationRegistry::set_global_tracker(OnLoops);
    AllocationRegistry::enable_tracking();
    let (tuples, warm_up) = (run.options().size(10_000_000, 100_000), run.options().size(2_000_000, 100_000));
    run.case_of_any_class("allocations", move |o| allocated(o, Shape::Identity, tuples, warm_up));
    run.case_of_any_class("allocations, acked", move |o| allocated(o, Shape::AckedIdentity, tuples, warm_up));
    // About three seconds.
    let tuples = run.options().size(80_000_000, 400_000);
    run.case_of_any_class("calls", move |o| system_calls(o, "un-acked", tuples));
    run.case_of_any_class("calls, acked", move |o| system_calls(o, "acked", tuples));

    let row = |name: &str, unit: &str, case: &str, figure| RowSpec::new(name, unit, Better::Lower, case, figure);
    run.row(row("allocations in 10^7 tuples", "allocations", "allocations", "n").target(0.0));
    run.row(row("allocations in 10^7 acked tuples", "allocations", "allocations, acked", "n").target(0.0));
    run.row(row("system calls of a saturated loop", "calls/s", "calls", "calls").target(10.0));
    run.row(row("system calls of a saturated loop, acked", "calls/s", "calls, acked", "calls").target(10.0));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_between_the_marks_are_counted_and_others_are_not() {
        let trace = "10.000000 mmap(NULL) = 0x1\n10.500000 getpgid(0) = 7\n11.000000 futex(0x1, FUTEX_WAKE) = 1\n11.200000 --- SIGURG {} ---\n\
                     12.000000 sched_yield() = 0\n12.500000 getpgid(0) = 7\n13.000000 exit(0) = ?\n13.100000 +++ exited with 0 +++\n";
        let (rate, names) = calls_in(trace).expect("marks").expect("two of them");
        assert_eq!((rate, names), (1.0, vec!["futex".to_owned(), "sched_yield".to_owned()]));
        assert!(calls_in("10.0 mmap(NULL) = 0x1\n").is_none());
        assert!(calls_in("10.0 getpgid(0) = 7\n").expect("a mark").is_err());
    }
}
