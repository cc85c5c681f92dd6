//! `hop`: what one tuple takes from a spout's `next` to a bolt's `on`, one in flight, beside half a round trip over a bare ring.
//!
//! Before: nothing is in the engine. Stamp, emit; the bolt stamps, records, and lets the spout go on by a word beside the engine, so that
//! the way back is not measured. After: p50 and p99 of a million hops.
//! On the same core both are executors of one loop; what a tuple costs there is taken with many of them under way, beside an archive and a ring
//! on one thread. Absences: no waiting but spinning.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crossbeam_utils::CachePadded;
use saetta::prelude::*;
use saetta_floors as floors;
use saetta_floors::on_record;
use saetta_harness::suite::{Figures, SuiteRun};
use saetta_harness::{Better, Latency, RowSpec};

use crate::parts::Numbers;
use crate::topologies::{FILL_BYTES, Shape, core, rate, run};

/// Hops before the first one that counts.
pub(crate) const WARM_UP_HOPS: u64 = 10_000;

/// 64 bytes: the stamp, and as much as fills a cache line.
#[tuple]
pub struct Stamped {
    /// Raw reading of the clock just before the emit.
    pub sent: u64,
    /// Nothing.
    pub fill: [u8; FILL_BYTES],
}

/// Tuples the bolt has seen: written by the bolt, read by the spout.
type Seen = Arc<CachePadded<AtomicU64>>;

struct Ping {
    hops: u64,
    sent: u64,
    seen: Seen,
    clock: quanta::Clock,
}

impl Emits<Stamped> for Ping {}

impl Spout for Ping {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        // Acquire: pairs with the bolt's Release; it has recorded the last hop.
        if self.seen.load(Ordering::Acquire) != self.sent {
            return Ok(Idle);
        }
        if self.sent == self.hops {
            return Ok(Done);
        }
        self.sent += 1;
        cx.emit(&Stamped { sent: self.clock.raw(), fill: [7; FILL_BYTES] });
        Ok(Busy)
    }
}

struct Pong {
    seen: Seen,
    n: u64,
    latency: Latency,
    clock: quanta::Clock,
    result: Arc<Mutex<Option<Latency>>>,
}

impl Bolt for Pong {
    fn finish(&mut self, _: &mut Cx<'_, Self>) -> Outcome {
        *self.result.lock().map_err(|_| "another bolt panicked")? = Some(std::mem::take(&mut self.latency));
        Ok(())
    }
}

impl Handle<Stamped> for Pong {
    fn on(&mut self, tuple: &ArchivedStamped, _: &mut Cx<'_, Self>) -> Outcome {
        let hop_ns = self.clock.delta_as_nanos(tuple.sent(), self.clock.raw());
        std::hint::black_box(tuple.fill());
        self.n += 1;
        if self.n > WARM_UP_HOPS {
            self.latency.record_ns(hop_ns);
        }
        self.seen.store(self.n, Ordering::Release);
        Ok(())
    }
}

/// `hops` hops from the first core to the second, which may be the same.
pub(crate) fn hop((spout_core, bolt_core): (usize, usize), hops: u64) -> saetta_harness::Result<Latency> {
    let all = hops + WARM_UP_HOPS;
    let result = Arc::new(Mutex::new(None));
    let (seen, clock) = (Seen::default(), quanta::Clock::new());
    let mut t = Topology::new();
    let (far_seen, far_clock, out) = (seen.clone(), clock.clone(), result.clone());
    let ping = move || Ping { hops: all, sent: 0, seen: seen.clone(), clock: clock.clone() };
    let pong = move || Pong { seen: far_seen.clone(), n: 0, latency: Latency::new(), clock: far_clock.clone(), result: out.clone() };
    let stamped = t.spout("ping", ping).core(core(spout_core)).stream::<Stamped>();
    let _ = t.bolt("pong", pong).core(core(bolt_core)).input(&stamped, Shuffle);
    let cores = if spout_core == bolt_core { vec![spout_core] } else { vec![spout_core, bolt_core] };
    run(t, &cores, &[("ping", spout_core), ("pong", bolt_core)], all)?;
    let latency: Latency = result.lock().map_err(|_| "the bolt panicked")?.take().ok_or("the bolt never finished")?;
    if latency.count() != hops {
        return Err(format!("{} hops recorded of {hops}", latency.count()).into());
    }
    Ok(latency)
}

pub(crate) fn declare(run: &mut SuiteRun<'_>) -> saetta_harness::Result<()> {
    let hops = run.options().size(1_000_000, 10_000);
    let tuples = run.options().size(20_000_000, 100_000);
    run.latency_case("other core", move |o| hop(o.cores, hops));
    run.latency_case("ring", move |o| floors::ring_round_trip(o.cores, hops, floors::RING_CAPACITY));
    run.latency_case("flag ring", move |o| floors::flag_ring_round_trip(o.cores, hops));
    run.latency_case("same core", move |o| hop((o.cores.0, o.cores.0), hops));
    let ns = |ns| Ok(Figures::from([("ns", ns)]));
    run.case("same core, many", move |o| ns(1e3 / rate(Shape::Small, (o.cores.0, o.cores.0), &Numbers::of(tuples))?));
    run.case("same thread", move |o| ns(floors::same_thread_ns(o.cores.0, tuples)?));
    run.case("same thread, in place", move |o| ns(floors::same_thread_in_place_ns(o.cores.0, tuples)?));

    let row = |name: &str, case: &str, figure| RowSpec::new(name, "ns", Better::Lower, case, figure);
    let other = |name: &str, figure| row(name, "other core", figure).over("ring", figure, 0.5);
    run.row(other("hop, other core, p50", "p50_ns").on_record(on_record::ring_round_trip_p50_ns).target(2.2));
    run.row(other("hop, other core, p99", "p99_ns").on_record(on_record::ring_round_trip_p99_ns).target(3.5));
    // Beside it: the ring whose slots hold payload and flag in one line.
    run.row(
        row("hop, other core, p50, over flag ring", "other core", "p50_ns")
            .over("flag ring", "p50_ns", 0.5)
            .on_record(on_record::flag_ring_round_trip_p50_ns),
    );
    let many = |name: &str| row(name, "same core, many", "ns");
    run.row(many("same core, per tuple").over("same thread", "ns", 1.0).on_record(on_record::same_thread_ns).target(1.4));
    // Beside it: archived where it is read, without a buffer between.
    run.row(
        many("same core, per tuple, over in place").over("same thread, in place", "ns", 1.0).on_record(on_record::same_thread_in_place_ns),
    );
    run.row(row("hop, same core, p50", "same core", "p50_ns"));
    run.row(row("hop, same core, p99", "same core", "p99_ns"));
    Ok(())
}
