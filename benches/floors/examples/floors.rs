//! Takes every floor and prints it beside the one on record: `cargo run --release -p saetta-floors --example floors [-- floors --smoke]`.

use std::process::ExitCode;

use saetta_floors as floors;
use saetta_harness::suite::{Figures, Suite, SuiteRun};
use saetta_harness::{Better, Latency, Result, RowSpec};

fn percentiles(latency: &Latency) -> Figures {
    Figures::from([("p50_ns", latency.p50_ns() as f64), ("p99_ns", latency.p99_ns() as f64)])
}

fn declare(run: &mut SuiteRun<'_>) -> Result<()> {
    run.case("throughput", |o| Ok(Figures::from([("millions", floors::ring_throughput(o.cores, o.size(20_000_000, 200_000))?)])));
    run.case("ring", |o| Ok(percentiles(&floors::ring_round_trip(o.cores, o.size(1_000_000, 10_000), floors::RING_CAPACITY)?)));
    run.case("small ring", |o| Ok(percentiles(&floors::ring_round_trip(o.cores, o.size(1_000_000, 10_000), floors::SMALL_RING_CAPACITY)?)));
    run.case("flag ring", |o| Ok(percentiles(&floors::flag_ring_round_trip(o.cores, o.size(1_000_000, 10_000))?)));
    run.case("line", |o| Ok(percentiles(&floors::cache_line_round_trip(o.cores, o.size(1_000_000, 10_000))?)));
    run.row(RowSpec::new("ring, 64 B, batch 64, capacity 1024", "M items/s", Better::Higher, "throughput", "millions"));
    let round_trips = [
        ("ring round trip", "ring"),
        ("ring round trip, 64 slots", "small ring"),
        ("flag ring round trip", "flag ring"),
        ("cache line round trip", "line"),
    ];
    for (name, case) in round_trips {
        run.row(RowSpec::new(&format!("{name}, p50"), "ns", Better::Lower, case, "p50_ns"));
        run.row(RowSpec::new(&format!("{name}, p99"), "ns", Better::Lower, case, "p99_ns"));
    }
    Ok(())
}

fn main() -> ExitCode {
    saetta_harness::main(&[Suite { name: "floors", about: "the raw figures everything else is divided by", declare }])
}
