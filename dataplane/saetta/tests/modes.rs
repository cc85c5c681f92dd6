//! Which thread runs an executor changes nothing about what arrives: modes of a worker, ways to wait, components that block, and one
//! that is stuck.

#![allow(missing_docs, reason = "tuples of a test")]

use saetta::prelude::*;
use saetta::{RunOptions, run};
use saetta_model::config::{Config, Owner, Source};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[tuple]
pub struct Number {
    pub n: u64,
}

/// What to emit; and how many trees were complete.
struct Numbers(std::ops::Range<u64>, Arc<AtomicU64>);
impl Emits<Number> for Numbers {}
impl Spout for Numbers {
    const TRACKED: bool = true;
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        match self.0.next() {
            Some(n) => cx.emit_tracked(n, &Number { n }),
            None => return Ok(Done),
        }
        Ok(Busy)
    }
    fn ack(&mut self, _: u64) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
    fn fail(&mut self, id: u64, why: &TreeFail) {
        panic!("tree {id} failed: {why:?}");
    }
}

struct Pass;
impl Bolt for Pass {}
impl Emits<Number> for Pass {}
impl Handle<Number> for Pass {
    fn on(&mut self, t: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        cx.emit(&Number { n: t.n() });
        Ok(())
    }
}

/// How many, and their sum.
#[derive(Clone, Default)]
struct Tally(Arc<(AtomicU64, AtomicU64)>);
impl Bolt for Tally {}
impl Handle<Number> for Tally {
    fn on(&mut self, t: &ArchivedNumber, _: &mut Cx<'_, Self>) -> Outcome {
        self.0.0.fetch_add(1, Ordering::Relaxed);
        self.0.1.fetch_add(t.n(), Ordering::Relaxed);
        Ok(())
    }
}

fn config(pairs: &[(&str, &str)]) -> Config {
    let mut config = Config::new(Owner::Topology);
    pairs.iter().for_each(|(k, v)| config.set(k, v, Source::Set).unwrap());
    config
}

fn quiet() -> RunOptions {
    RunOptions { quiet: true, ..RunOptions::default() }
}

#[test]
fn in_every_mode_and_however_a_loop_waits_the_same_tuples_arrive() {
    const N: u64 = 2_000;
    for mode in ["shared", "dedicated"] {
        for wait in ["spin", "hybrid", "yield", "park"] {
            let (tally, acked) = (Tally::default(), Arc::new(AtomicU64::new(0)));
            let mut t = Topology::new();
            let complete = acked.clone();
            let numbers = t.spout("numbers", move || Numbers(0..N, complete.clone())).executors(2).stream::<Number>();
            let passed = t.bolt("pass", || Pass).input(&numbers, Shuffle).executors(3).stream::<Number>();
            let last = tally.clone();
            let _ = t.bolt("tally", move || last.clone()).input(&passed, by!(Number.n)).executors(2);
            let config = config(&[("worker.mode", mode), ("worker.wait", wait), ("topology.acker.executors", "2")]);
            let summary = run(&t.build().unwrap(), &config, &quiet()).unwrap();
            let (n, sum) = (tally.0.0.load(Ordering::Relaxed), tally.0.1.load(Ordering::Relaxed));
            assert_eq!((n, sum), (2 * N, N * (N - 1)), "{mode} {wait}");
            assert_eq!(summary.components["pass"].executed, 2 * N, "{mode} {wait}");
            assert_eq!(acked.load(Ordering::Relaxed), 2 * N, "{mode} {wait}");
            assert_eq!((summary.discarded, summary.errors.len()), (0, 0), "{mode} {wait}");
        }
    }
}

#[test]
fn more_executors_than_loops_allowed_are_refused_in_dedicated_mode_with_the_way_out() {
    let mut t = Topology::new();
    let numbers = t.spout("numbers", || Numbers(0..1, Arc::default())).stream::<Number>();
    let _ = t.bolt("tally", Tally::default).input(&numbers, Shuffle).executors(64);
    let error = run(&t.build().unwrap(), &config(&[("worker.mode", "dedicated")]), &quiet()).unwrap_err();
    assert!(error.to_string().contains("66 core loops") && error.to_string().contains("worker.mode = shared"), "{error}");
}

/// Holds its first tuple until others have counted theirs, and for `STALL` at least: as user code does that is stuck and comes back.
struct Held {
    others: Tally,
    wanted: u64,
}
/// Longer than a stuck loop may go unreported, with room for a busy machine.
const STALL: Duration = Duration::from_millis(2_500);
const PATIENCE: Duration = Duration::from_secs(60);
impl Bolt for Held {}
impl Handle<Number> for Held {
    fn on(&mut self, _: &ArchivedNumber, _: &mut Cx<'_, Self>) -> Outcome {
        let start = Instant::now();
        loop {
            let others = self.others.0.0.load(Ordering::Relaxed);
            if others == self.wanted && start.elapsed() >= STALL {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("others did not go on: {others} of {}", self.wanted).into());
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

/// One chain whose bolt is stuck, and one that goes on, on one core.
fn stuck_beside_working(config: &Config, blocking: bool) -> Summary {
    const N: u64 = 50_000;
    let others = Tally::default();
    let mut t = Topology::new();
    let one = t.spout("one", || Numbers(0..1, Arc::default())).stream::<Number>();
    let many = t.spout("many", || Numbers(0..N, Arc::default())).stream::<Number>();
    let (held, counted) = (others.clone(), others.clone());
    let stuck = t.bolt("stuck", move || Held { others: held.clone(), wanted: N }).input(&one, Shuffle);
    let _ = if blocking { stuck.blocking() } else { stuck };
    let _ = t.bolt("working", move || counted.clone()).input(&many, Shuffle);
    let core = saetta_engine::allowed_cores()[0];
    let summary = run(&t.build().unwrap(), config, &RunOptions { cores: vec![core], ..quiet() }).unwrap();
    assert_eq!(others.0.0.load(Ordering::Relaxed), N);
    assert_eq!((summary.components["stuck"].executed, summary.components["stuck"].failed), (1, 0), "{:?}", summary.errors);
    summary
}

#[test]
fn a_stuck_bolt_is_told_by_name_and_executors_on_other_loops_go_on() {
    let summary = stuck_beside_working(&config(&[("worker.mode", "dedicated")]), false);
    assert_eq!(summary.errors.len(), 1, "{:?}", summary.errors);
    assert!(
        summary.errors[0].starts_with("stuck: ") && summary.errors[0].contains("held up in user code of stuck["),
        "{:?}",
        summary.errors
    );
}

#[test]
fn a_bolt_declared_to_block_holds_up_nobody_on_its_core() {
    let summary = stuck_beside_working(&config(&[]), true);
    assert!(summary.errors.is_empty(), "it may stand still, and nothing is told: {:?}", summary.errors);
}
