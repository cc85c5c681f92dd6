//! Tuples, spouts, bolts and a stepped rig that several test files share.

#![allow(missing_docs, dead_code, unreachable_pub, reason = "parts of tests; not each file uses all")]

use saetta::prelude::*;
use saetta::{Config, ConfigSource, Stepped};
use saetta_engine::{Clock, Program};
use saetta_model::config::Owner;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[tuple]
pub struct Number {
    pub n: u64,
    /// Makes windows of 4 KiB small.
    pub ballast: [u8; 48],
}

impl Number {
    pub fn of(n: u64) -> Self {
        Number { n, ballast: [7; 48] }
    }
}

/// A stream of them.
pub type Numbers = saetta::Stream<Number>;

/// What spouts were told.
#[derive(Default)]
pub struct Told {
    pub acked: Vec<u64>,
    pub failed: Vec<(u64, TreeFail)>,
}

/// What sinks saw, in order of arrival.
pub type Seen = Arc<Mutex<Vec<u64>>>;

/// Emits the numbers below `end`, each with itself as message id when `tracked`.
pub struct Feed {
    pub next: u64,
    pub end: u64,
    pub tracked: bool,
    pub told: Arc<Mutex<Told>>,
}

impl Feed {
    pub fn of(end: u64, tracked: bool, told: &Arc<Mutex<Told>>) -> impl Fn() -> Self + Send + Sync + 'static {
        let told = told.clone();
        move || Feed { next: 0, end, tracked, told: told.clone() }
    }
}

impl Emits<Number> for Feed {}
impl Spout for Feed {
    const TRACKED: bool = true;
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        if self.next == self.end {
            return Ok(Done);
        }
        let tuple = Number::of(self.next);
        if self.tracked {
            cx.emit_tracked(self.next, &tuple)
        } else {
            cx.emit(&tuple)
        }
        self.next += 1;
        Ok(Busy)
    }
    fn ack(&mut self, id: u64) {
        self.told.lock().unwrap().acked.push(id);
    }
    fn fail(&mut self, id: u64, why: &TreeFail) {
        self.told.lock().unwrap().failed.push((id, why.clone()));
    }
}

type Body = Box<dyn FnMut(u64, &mut Cx<'_, With>) -> Outcome + Send>;

/// Handles a number in the way its closure says.
pub struct With(Body);
impl With {
    pub fn new(handle: impl FnMut(u64, &mut Cx<'_, With>) -> Outcome + Send + 'static) -> Self {
        With(Box::new(handle))
    }
}
impl Bolt for With {}
impl Emits<Number> for With {}
impl Handle<Number> for With {
    fn on(&mut self, tuple: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        (self.0)(tuple.n(), cx)
    }
}

/// A bolt that writes down what it sees.
pub fn sink(seen: &Seen) -> impl Fn() -> With + Send + Sync + 'static {
    let seen = seen.clone();
    move || {
        let seen = seen.clone();
        With::new(move |n, _| {
            seen.lock().unwrap().push(n);
            Ok(())
        })
    }
}

/// The smallest rings, inboxes and outboxes there are.
pub fn smallest(more: &[(&str, &str)]) -> Config {
    let mut config = Config::new(Owner::Topology);
    let bounds = [
        ("lane.ring.bytes", "4096"),
        ("executor.inbox.bytes", "4096"),
        ("executor.outbox.bytes", "8KiB"),
        ("worker.outbox.bytes", "64KiB"),
    ];
    bounds.iter().chain(more).for_each(|(key, value)| config.set(key, value, ConfigSource::Set).unwrap());
    config
}

/// splitmix64: the choices of a seed.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Loops stepped over a clock that is moved by hand, and the most bytes that ever waited in them.
pub struct Rig {
    pub stepped: Stepped,
    pub clock: Clock,
    pub waiting_max: u64,
}

impl Rig {
    /// `place` says which loop a component's i-th executor runs on.
    pub fn new(program: &Program, config: &Config, n_loops: usize, place: &dyn Fn(&str, usize) -> usize) -> Self {
        let clock = Clock::manual();
        let stepped = Stepped::seeded(program, config, n_loops, place, clock.clone(), 1).unwrap();
        Rig { stepped, clock, waiting_max: 0 }
    }

    /// One duty cycle of one loop, 10 us, and a look at what waits.
    pub fn step(&mut self, core_loop: usize) -> usize {
        self.clock.advance(Duration::from_micros(10));
        let work = self.stepped.step(core_loop);
        self.stepped.publish();
        self.waiting_max = self.waiting_max.max(self.waiting());
        work
    }

    /// One duty cycle of each of these loops.
    pub fn turn(&mut self, loops: impl IntoIterator<Item = usize>) {
        loops.into_iter().for_each(|l| {
            self.step(l);
        });
    }

    pub fn waiting(&self) -> u64 {
        self.stepped.shared().loops.iter().map(|l| l.waiting_bytes.load(Ordering::Relaxed)).sum()
    }

    /// Steps all loops in turn until `done`; panics with `what` after `turns_max`.
    pub fn until(&mut self, what: &str, turns_max: u64, mut done: impl FnMut(&Self) -> bool) {
        let mut turns = 0;
        while !done(self) {
            for core_loop in 0..self.stepped.n_loops() {
                self.step(core_loop);
            }
            self.stepped.end_cycles();
            turns += 1;
            assert!(turns < turns_max, "{what}: not within {turns} turns, {} bytes wait", self.waiting());
        }
    }

    pub fn run_to_end(&mut self, turns_max: u64) {
        self.until("the end", turns_max, |rig| rig.stepped.ended());
        assert_eq!(self.stepped.shared().fatal.get(), None);
    }

    /// What waits stays within the sum that the engine printed at start.
    pub fn assert_bounded(&self) {
        let bound: u64 = self.stepped.memory().iter().filter(|(kind, _)| *kind != "histograms").map(|(_, bytes)| bytes).sum();
        assert!(self.waiting_max <= bound, "{} bytes waited, bound {bound}", self.waiting_max);
    }

    pub fn executed(&self, component: &str) -> u64 {
        let all = self.stepped.shared().executors();
        all.iter().filter(|e| e.component.as_str() == component).map(|e| e.executed.load(Ordering::Relaxed)).sum()
    }

    pub fn errors(&self) -> Vec<String> {
        std::iter::from_fn(|| self.stepped.shared().reports.pop()).map(|r| format!("{}: {}", r.component, r.text)).collect()
    }
}

/// Every number below `n`, `times` each.
pub fn assert_seen(seen: &Seen, n: u64, times: usize) {
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    assert_eq!(seen.len() as u64, n * times as u64, "lost or doubled");
    assert!(seen.chunks(times).zip(0..n).all(|(some, n)| some.iter().all(|s| *s == n)), "each number {times} times");
}

/// Every id below `n` was told once, and acked.
pub fn assert_acked(told: &Mutex<Told>, n: u64) {
    let told = told.lock().unwrap();
    assert!(told.failed.is_empty(), "{:?}", told.failed.first());
    let mut acked = told.acked.clone();
    acked.sort_unstable();
    assert!(acked.into_iter().eq(0..n), "each id acked once");
}
