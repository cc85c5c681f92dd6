//! Takes every floor and prints it beside the one on record: `cargo run --release -p saetta-floors --example floors [-- floors --smoke]`.

use std::process::ExitCode;

use saetta_floors as floors;
use saetta_harness::suite::{Figures, Suite, SuiteRun};
use saetta_harness::{Better, Latency, Result, RowSpec};

fn percentiles(latency: &Latency) -> Figures {
    Figures::from([("p50_ns", latency.p50_ns() as f64), ("p99_ns", latency.p99_ns() as f64)])
}

fn declare(run: &mut SuiteRun<'_>) -> Result<()> {
    run.case("ring throughput", |o| Ok(Figures::from([("millions", floors::ring_throughput(o.cores, o.size(20_000_000, 200_000))?)])));
    run.case("ring round trip", |o| Ok(percentiles(&floors::ring_round_trip(o.cores, o.size(1_000_000, 10_000))?)));
    run.case("flag ring round trip", |o| Ok(percentiles(&floors::flag_ring_round_trip(o.cores, o.size(1_000_000, 10_000))?)));
    run.case("cache line round trip", |o| Ok(percentiles(&floors::cache_line_round_trip(o.cores, o.size(1_000_000, 10_000))?)));
    run.row(RowSpec::new("ring, 64 B, batch 64, capacity 1024", "M items/s", Better::Higher, "ring throughput", "millions"));
    for (name, figure) in [("p50", "p50_ns"), ("p99", "p99_ns")] {
        run.row(RowSpec::new(&format!("ring round trip {name}"), "ns", Better::Lower, "ring round trip", figure));
        run.row(RowSpec::new(&format!("flag ring round trip {name}"), "ns", Better::Lower, "flag ring round trip", figure));
        run.row(RowSpec::new(&format!("cache line round trip {name}"), "ns", Better::Lower, "cache line round trip", figure));
    }
    Ok(())
}

fn main() -> ExitCode {
    saetta_harness::main(&[Suite { name: "floors", about: "the raw figures everything else is divided by", declare }])
}
