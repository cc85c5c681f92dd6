//! The credit rule: S@0 -> X@1 -> Y@0 -> Z@1 with X emitting 8 per input and the smallest lanes makes progress whatever the interleaving.
//!
//! ```text
//!   loop 0:  S ----.      .--> Y ----.
//!   loop 1:         '--> X --'        '--> Z
//! ```
//! Stopping a whole lane for one full executor deadlocks this chain; credit per destination executor does not.
//! Each seed chooses its own order of duty cycles; the sink's multiset must equal what was emitted, in order per path.

#![allow(missing_docs, reason = "tuples of a test")]

use saetta::Stepped;
use saetta::prelude::*;
use saetta_model::config::{Config, Owner, Source};
use std::sync::{Arc, Mutex};

/// Inputs of the spout per seed: enough that X's output passes the smallest window several times.
const INPUTS: u64 = 40;
/// What X emits per input.
const FAN_OUT: u64 = 8;
/// Seeds of the ordinary test run.
const SEEDS: u64 = 10_000;
/// Duty cycles after which a seed counts as stuck. A run needs a few hundred.
const CYCLES_MAX: u64 = 100_000;

#[tuple]
pub struct Number {
    pub n: u64,
    /// Makes windows of 4 KiB small.
    pub ballast: [u8; 48],
}

struct Source_ {
    next: u64,
    inputs: u64,
}
impl Emits<Number> for Source_ {}
impl Spout for Source_ {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        if self.next == self.inputs {
            return Ok(Done);
        }
        cx.emit(&Number { n: self.next, ballast: [7; 48] });
        self.next += 1;
        Ok(Busy)
    }
}

struct Multiply {
    by: u64,
    pulled: bool,
}
impl Bolt for Multiply {}
impl Emits<Number> for Multiply {}
impl Handle<Number> for Multiply {
    fn on(&mut self, t: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        let (n, by) = (t.n(), self.by);
        if self.pulled {
            cx.emit_from((0..by).map(move |i| Number { n: n * by + i, ballast: [8; 48] }));
        } else {
            (0..by).for_each(|i| cx.emit(&Number { n: n * by + i, ballast: [8; 48] }));
        }
        Ok(())
    }
}

struct Pass;
impl Bolt for Pass {}
impl Emits<Number> for Pass {}
impl Handle<Number> for Pass {
    fn on(&mut self, t: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        cx.emit(&Number { n: t.n(), ballast: [9; 48] });
        Ok(())
    }
}

struct Sink(Arc<Mutex<Vec<u64>>>);
impl Bolt for Sink {}
impl Handle<Number> for Sink {
    fn on(&mut self, t: &ArchivedNumber, _: &mut Cx<'_, Self>) -> Outcome {
        self.0.lock().unwrap().push(t.n());
        Ok(())
    }
}

fn chain(inputs: u64, by: u64, pulled: bool, seen: Arc<Mutex<Vec<u64>>>) -> Topology {
    let mut t = Topology::new();
    let s = t.spout("s", move || Source_ { next: 0, inputs }).stream::<Number>();
    let x = t.bolt("x", move || Multiply { by, pulled }).input(&s, Shuffle).stream::<Number>();
    let y = t.bolt("y", || Pass).input(&x, Shuffle).stream::<Number>();
    let _ = t.bolt("z", move || Sink(seen.clone())).input(&y, Shuffle);
    t
}

fn smallest_lanes() -> Config {
    let mut config = Config::new(Owner::Topology);
    config.set("lane.ring.bytes", "4096", Source::Set).unwrap();
    config.set("executor.inbox.bytes", "4096", Source::Set).unwrap();
    config
}

/// splitmix64: the interleaving of a seed.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn run_seed(seed: u64, pulled: bool) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let program = chain(INPUTS, FAN_OUT, pulled, seen.clone()).build().unwrap();
    let place = |id: &str, _: usize| usize::from(matches!(id, "x" | "z"));
    let mut stepped = Stepped::new(&program, &smallest_lanes(), 2, &place).unwrap();
    let mut random = seed;
    let mut cycles = 0;
    while !stepped.ended() {
        // Runs of one loop, so that lanes and windows fill up on one side.
        let draw = next(&mut random);
        for _ in 0..=(draw >> 8) % 7 {
            stepped.step((draw & 1) as usize);
            cycles += 1;
        }
        assert!(
            cycles < CYCLES_MAX,
            "seed {seed}: stuck after {cycles} duty cycles, {} of {} arrived",
            seen.lock().unwrap().len(),
            INPUTS * FAN_OUT
        );
    }
    assert!(stepped.shared().fatal.get().is_none());
    let seen = seen.lock().unwrap();
    assert!(seen.iter().copied().eq(0..INPUTS * FAN_OUT), "seed {seed}: lost, doubled or out of order: {} arrived", seen.len());
}

#[test]
fn a_zig_zag_chain_makes_progress_in_every_interleaving() {
    (0..SEEDS).for_each(|seed| run_seed(seed, seed % 2 == 1));
}

/// A bolt that ends while the lane is full leaves its last frames, or its END, staged, and nobody has anything more to do on its loop.
#[test]
fn what_is_staged_when_its_emitter_ends_goes_when_the_lane_has_room() {
    for inputs in 1..100 {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut t = Topology::new();
        let s = t.spout("s", move || Source_ { next: 0, inputs }).stream::<Number>();
        let x = t.bolt("x", || Multiply { by: 3, pulled: false }).input(&s, Shuffle).stream::<Number>();
        let sink = seen.clone();
        let _ = t.bolt("z", move || Sink(sink.clone())).input(&x, Shuffle);
        let mut config = smallest_lanes();
        config.set("executor.inbox.bytes", "1MiB", Source::Set).unwrap();
        let mut stepped = Stepped::new(&t.build().unwrap(), &config, 2, &|id, _| usize::from(id != "x")).unwrap();
        let mut cycles = 0;
        while !stepped.ended() {
            for core_loop in [1, 0] {
                (0..5).for_each(|_| _ = stepped.step(core_loop));
            }
            cycles += 10;
            let arrived = seen.lock().unwrap().len();
            assert!(cycles < CYCLES_MAX, "{inputs} inputs, {arrived} of {} arrived, and nothing moves any more", inputs * 3);
        }
    }
}

#[test]
fn one_input_that_emits_a_million_runs_in_bounded_memory() {
    const ITEMS: u64 = 1_000_000;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let program = chain(1, ITEMS, true, seen.clone()).build().unwrap();
    let mut config = smallest_lanes();
    config.set("executor.outbox.bytes", "8KiB", Source::Set).unwrap();
    let mut stepped = Stepped::new(&program, &config, 2, &|id, _| usize::from(matches!(id, "x" | "z"))).unwrap();
    let mut waiting_max = 0;
    while !stepped.ended() {
        for l in 0..2 {
            stepped.step(l);
        }
        let waiting: u64 = stepped.shared().loops.iter().map(|l| l.waiting_bytes.load(std::sync::atomic::Ordering::Relaxed)).sum();
        waiting_max = waiting_max.max(waiting);
    }
    assert_eq!(seen.lock().unwrap().len() as u64, ITEMS);
    // Two rings with staging, three inboxes, one frame in an outbox.
    assert!(waiting_max < 64 << 10, "{waiting_max} bytes waited at once");
}

#[test]
fn a_call_that_emits_past_its_outbox_fails_and_names_the_key() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let program = chain(1, 10_000, false, seen.clone()).build().unwrap();
    let mut config = smallest_lanes();
    config.set("executor.outbox.bytes", "8KiB", Source::Set).unwrap();
    let mut stepped = Stepped::new(&program, &config, 2, &|id, _| usize::from(matches!(id, "x" | "z"))).unwrap();
    while !stepped.ended() {
        (0..2).for_each(|l| {
            stepped.step(l);
        });
    }
    let report = stepped.shared().reports.pop().expect("the failure is reported");
    assert_eq!(report.component.as_str(), "x");
    assert!(report.text.contains("executor.outbox.bytes") && report.text.contains("emit_from"), "{}", report.text);
    let failed: u64 = stepped.shared().executors().iter().map(|e| e.failed.load(std::sync::atomic::Ordering::Relaxed)).sum();
    assert_eq!(failed, 1);
}
