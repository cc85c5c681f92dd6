//! `pipeline`: tuples a second from a spout to a bolt that only reads, over a core boundary, beside a bare ring (64 B, batch 64, capacity 1024);
//! and what one tuple takes at rates far below that.
//!
//! Before: a spout that always has something, or one at a fixed rate. After: the last bolt has seen every number once and in order; the rate is
//! taken there, between the end of the warm-up and the last tuple.

use std::time::Duration;

use saetta::RunOptions;
use saetta::prelude::*;
use saetta_floors as floors;
use saetta_floors::on_record;
use saetta_harness::suite::{Figures, Options, SuiteRun};
use saetta_harness::{Better, Latency, RowSpec};

use crate::parts::{Null, Numbers, Small, Source, Took};
use crate::topologies::{Shape, check, core, rate, run_waiting};

/// Rates of the open loop, tuples a second.
const RATES: [u64; 4] = [10_000, 100_000, 1_000_000, 4_000_000];

/// A tuple's way from spout to bolt on another core, at a rate: sampled by the engine, from when each was meant to be emitted.
fn paced(o: &Options, rate: u64) -> saetta_harness::Result<Latency> {
    let (numbers, took) = (Numbers { from: 0, to: u64::MAX, end: u64::MAX, on_mark: None }, Took::default());
    let mut t = Topology::new();
    let stream = t.spout("numbers", Source::<Small>::of(&numbers)).core(core(o.cores.0)).stream::<Small>();
    let _ = t.bolt("null", Null::of(&numbers, &took)).core(core(o.cores.1)).input(&stream, Shuffle);
    let stop_after = Some(Duration::from_millis(o.size(2000, 50)));
    let options = RunOptions { rate_per_sec: Some(rate), stop_after, ..RunOptions::default() };
    let summary = run_waiting(t, "spin", &[o.cores.0, o.cores.1], options)?;
    let emitted = summary.components.get("numbers").map_or(0, |numbers| numbers.emitted);
    check(&summary, "null", emitted, Some(o.cores.1))?;
    if summary.histogram_ns.is_empty() {
        return Err(format!("no tuple of {emitted} was sampled").into());
    }
    Ok(Latency::of(&summary.histogram_ns))
}

pub(crate) fn declare(run: &mut SuiteRun<'_>) -> saetta_harness::Result<()> {
    let tuples = run.options().size(20_000_000, 100_000);
    let figure = |millions| Ok(Figures::from([("millions", millions)]));
    let of = move |shape, cores| figure(rate(shape, cores, &Numbers::of(tuples))?);
    run.case("64 bytes", move |o| of(Shape::Wide, o.cores));
    run.case("ring", move |o| figure(floors::ring_throughput(o.cores, tuples)?));
    run.case("small", move |o| of(Shape::Small, o.cores));
    run.case("identity", move |o| of(Shape::Identity, o.cores));
    run.case("same core", move |o| of(Shape::Small, (o.cores.0, o.cores.0)));

    let row = |name: &str, case| RowSpec::new(name, "M tuples/s", Better::Higher, case, "millions");
    let over_ring = |name: &str, case| row(name, case).over("ring", "millions", 1.0).on_record(on_record::ring_throughput_millions);
    run.row(over_ring("64-byte tuple, spout to bolt, other core", "64 bytes").target(0.45));
    run.row(over_ring("{u64, 20-byte text}, spout to bolt, other core", "small").target(0.40));
    run.row(over_ring("const -> identity -> null, two cores", "identity").target(0.30));
    run.row(row("{u64, 20-byte text}, spout to bolt, same core", "same core"));
    run.open_loop("spout to bolt, other core", &RATES, paced);
    Ok(())
}
