//! `ack`: what tracking costs: tuples a second with a tree each beside those without, what one tree takes from emit to ack, and whether one tree
//! that stays open for long is in the way of the others.
//!
//! Before: the same shapes as in `pipeline`, with message ids. After: the spout was told of every tree exactly once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use saetta::prelude::*;
use saetta::{Anchor, TreeFail};
use saetta_floors as floors;
use saetta_floors::on_record;
use saetta_harness::suite::{Figures, Options, SuiteRun};
use saetta_harness::{Better, Latency, RowSpec};

use crate::hop::WARM_UP_HOPS;
use crate::parts::{ArchivedSmall, ArchivedWide, Numbers, Small, SmallRef, Tally, Told, Wide};
use crate::topologies::{FILL_BYTES, PENDING, Shape, TEXT, check, core, rate, run, run_waiting};

/// One tree at a time: stamps before the emit and when it is told.
struct One {
    trees: u64,
    emitted: u64,
    told: Told,
    sent: u64,
    latency: Latency,
    clock: quanta::Clock,
    result: Arc<Mutex<Option<(Latency, Told)>>>,
}

impl Emits<Wide> for One {}

impl Spout for One {
    const TRACKED: bool = true;

    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        if self.sent != 0 {
            return Ok(Idle);
        }
        if self.emitted == self.trees {
            return Ok(Done);
        }
        let (number, sent) = (self.emitted, self.clock.raw());
        self.emitted += 1;
        self.sent = sent;
        cx.emit_tracked(number, &Wide { number, fill: [7; FILL_BYTES] });
        Ok(Busy)
    }

    fn ack(&mut self, id: u64) {
        let ns = self.clock.delta_as_nanos(self.sent, self.clock.raw());
        self.told.ack(id);
        self.sent = 0;
        if id >= WARM_UP_HOPS {
            self.latency.record_ns(ns);
        }
    }

    fn fail(&mut self, _: u64, _: &TreeFail) {
        self.told.failed += 1;
        self.sent = 0;
    }

    fn finish(&mut self, _: &mut Cx<'_, Self>) -> Outcome {
        *self.result.lock().map_err(|_| "another task panicked")? = Some((std::mem::take(&mut self.latency), self.told));
        Ok(())
    }
}

/// Takes a tuple and is done.
struct Taker;

impl Bolt for Taker {}

impl Handle<Wide> for Taker {
    fn on(&mut self, tuple: &ArchivedWide, _: &mut Cx<'_, Self>) -> Outcome {
        std::hint::black_box((tuple.number(), tuple.fill()));
        Ok(())
    }
}

/// Emit to ack, `trees` times, the bolt on the other core.
fn emit_to_ack(cores: (usize, usize), trees: u64) -> saetta_harness::Result<Latency> {
    let all = trees + WARM_UP_HOPS;
    let result = Arc::new(Mutex::new(None));
    let (clock, out) = (quanta::Clock::new(), result.clone());
    let spout = move || {
        let (latency, clock, result) = (Latency::new(), clock.clone(), out.clone());
        One { trees: all, emitted: 0, told: Told::default(), sent: 0, latency, clock, result }
    };
    let mut t = Topology::new();
    let stream = t.spout("one", spout).core(core(cores.0)).stream::<Wide>();
    let _ = t.bolt("taker", || Taker).core(core(cores.1)).input(&stream, Shuffle);
    run(t, &[cores.0, cores.1], &[("one", cores.0), ("taker", cores.1)], all)?;
    let (latency, told): (Latency, Told) = result.lock().map_err(|_| "the spout panicked")?.take().ok_or("the spout never finished")?;
    told.check(all)?;
    Ok(latency)
}

/// Tuples go on for this long at least, and at least so many.
#[derive(Clone, Copy)]
struct Long {
    time: Duration,
    tuples: u64,
}

/// How many tuples there are: settled by the spout before it emits the last one, read by the bolt.
type End = Arc<CachePadded<AtomicU64>>;

/// Emits tracked tuples for long.
struct Endless {
    long: Long,
    next: u64,
    start: Option<Instant>,
    end: End,
    told: Told,
    tally: Tally,
}

/// Tuples between two looks at the clock.
const LOOK_EVERY: u64 = 1024;

impl Emits<Small> for Endless {}

impl Spout for Endless {
    const TRACKED: bool = true;

    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        let number = self.next;
        if number.is_multiple_of(LOOK_EVERY) {
            if self.end.load(Ordering::Relaxed) == number {
                return Ok(Done);
            }
            let start = *self.start.get_or_insert_with(Instant::now);
            if number >= self.long.tuples && start.elapsed() >= self.long.time {
                // One round more, whose last tuple is the last. Release: pairs with the bolt's Acquire of a tuple emitted after it.
                self.end.store(number + LOOK_EVERY, Ordering::Release);
            }
        }
        self.next += 1;
        cx.emit_tracked(number, &SmallRef { number, text: TEXT });
        Ok(Busy)
    }

    #[inline]
    fn ack(&mut self, id: u64) {
        self.told.ack(id);
    }

    fn fail(&mut self, _: u64, _: &TreeFail) {
        self.told.failed += 1;
    }

    fn finish(&mut self, _: &mut Cx<'_, Self>) -> Outcome {
        *self.tally.lock().map_err(|_| "another task panicked")? = self.told;
        Ok(())
    }
}

/// What a [`Holder`] leaves: the rate in million tuples a second, and for how long it held a tree.
type Held = Arc<Mutex<Option<(f64, Duration)>>>;

/// Takes tuples in order; holds the tree of one of the first until the last one is here, if asked to.
struct Holder {
    holds: bool,
    from: u64,
    next: u64,
    end: End,
    start: Option<Instant>,
    held: Option<Anchor<Self>>,
    result: Held,
}

impl Bolt for Holder {}

impl Handle<Small> for Holder {
    #[inline]
    fn on(&mut self, tuple: &ArchivedSmall, cx: &mut Cx<'_, Self>) -> Outcome {
        let number = tuple.number();
        if number != self.next {
            return Err(Fail::Fatal(format!("tuple {number} where {} was due", self.next)));
        }
        self.next += 1;
        std::hint::black_box(tuple.text());
        if number == self.from {
            self.start = Some(Instant::now());
            if self.holds {
                self.held = Some(cx.defer()?);
            }
        }
        // Acquire: pairs with the spout's Release before the tuples that are counted by it.
        if self.next == self.end.load(Ordering::Acquire) {
            let took = self.start.map(|start| start.elapsed()).ok_or("the end before the beginning")?;
            let rate = (self.next - self.from) as f64 / took.as_secs_f64() / 1e6;
            *self.result.lock().map_err(|_| "another task panicked")? = Some((rate, took));
            if let Some(held) = self.held.take() {
                held.ack();
            }
        }
        Ok(())
    }
}

/// Million tracked tuples a second, while one tree stays open or not.
fn long(o: &Options, long: Long, holds: bool) -> saetta_harness::Result<Figures> {
    let (end, tally, result) = (End::default(), Tally::default(), Held::default());
    end.store(u64::MAX, Ordering::Relaxed);
    let (far_end, told, out) = (end.clone(), tally.clone(), result.clone());
    let settled = end.clone();
    let spout = move || Endless { long, next: 0, start: None, end: end.clone(), told: Told::default(), tally: told.clone() };
    let from = long.tuples / 10;
    let holder = move || Holder { holds, from, next: 0, end: far_end.clone(), start: None, held: None, result: out.clone() };
    let mut t = Topology::new();
    let spout = t.spout("endless", spout).core(core(o.cores.0)).config("topology.max.spout.pending", PENDING).stream::<Small>();
    let _ = t.bolt("holder", holder).core(core(o.cores.1)).input(&spout, Shuffle);
    let summary = run_waiting(t, "spin", &[o.cores.0, o.cores.1], saetta::RunOptions::default())?;
    let end = settled.load(Ordering::Relaxed);
    check(&summary, "endless", end, Some(o.cores.0))?;
    check(&summary, "holder", end, Some(o.cores.1))?;
    tally.lock().map_err(|_| "the spout panicked")?.check(end)?;
    let (millions, took) = result.lock().map_err(|_| "the bolt panicked")?.take().ok_or("the last tuple never came")?;
    Ok(Figures::from([("millions", millions), ("seconds", took.as_secs_f64())]))
}

pub(crate) fn declare(run: &mut SuiteRun<'_>) -> saetta_harness::Result<()> {
    let tuples = run.options().size(20_000_000, 100_000);
    let trees = run.options().size(1_000_000, 10_000);
    // A tenth is over before the tree is opened: it is held for ten seconds, among more than 10^8.
    let time = Duration::from_millis(run.options().size(12_000, 20));
    let among = Long { time, tuples: run.options().size(112_000_000, 20_000) };
    let of = move |shape, cores| Ok(Figures::from([("millions", rate(shape, cores, &Numbers::of(tuples))?)]));
    run.case("null, un-acked", move |o| of(Shape::Small, o.cores));
    run.case("null, acked", move |o| of(Shape::AckedSmall, o.cores));
    run.case("identity, un-acked", move |o| of(Shape::Identity, o.cores));
    run.case("identity, acked", move |o| of(Shape::AckedIdentity, o.cores));
    run.latency_case("emit to ack", move |o| emit_to_ack(o.cores, trees));
    run.latency_case("ring", move |o| floors::ring_round_trip(o.cores, trees, floors::RING_CAPACITY));
    run.case("none held", move |o| long(o, among, false));
    run.case("one held", move |o| long(o, among, true));

    let rate = |name: &str, case: &str, floor: &str| {
        RowSpec::new(name, "M tuples/s", Better::Higher, case, "millions").over(floor, "millions", 1.0)
    };
    run.row(rate("spout -> null, acked over un-acked", "null, acked", "null, un-acked").target(0.45));
    run.row(rate("const -> identity -> null, acked over un-acked", "identity, acked", "identity, un-acked").target(0.55));
    // Twice the way of one hop: there and back is a whole round trip.
    let latency = |name: &str, figure| RowSpec::new(name, "ns", Better::Lower, "emit to ack", figure).over("ring", figure, 1.0);
    run.row(latency("emit -> ack, other core, p50", "p50_ns").on_record(on_record::ring_round_trip_p50_ns).target(2.0));
    run.row(latency("emit -> ack, other core, p99", "p99_ns").on_record(on_record::ring_round_trip_p99_ns).target(3.0));
    run.row(rate("one tree held open, over none", "one held", "none held").target(0.98));
    run.row(RowSpec::new("how long it was held", "s", Better::Higher, "one held", "seconds"));
    Ok(())
}
