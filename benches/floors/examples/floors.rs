//! Takes every floor and prints it beside the one on record: `cargo run --release -p saetta-floors --example floors [-- floors --smoke]`.

use std::process::ExitCode;
use std::time::Duration;

use saetta_floors::{self as floors, on_record};
use saetta_harness::suite::{Figures, Options, Suite, SuiteRun};
use saetta_harness::zipf::{self, Text};
use saetta_harness::{Better, HostClass, Latency, Result, RowSpec};

/// A floor on record, by class.
type OnRecord = fn(HostClass) -> Option<f64>;

fn percentiles(latency: &Latency) -> Figures {
    Figures::from([("p50_ns", latency.p50_ns() as f64), ("p99_ns", latency.p99_ns() as f64)])
}

fn streamed(streamed: floors::Streamed) -> Figures {
    Figures::from([("millions", streamed.millions), ("cpu_ns", streamed.cpu_ns)])
}

fn window(o: &Options) -> floors::Window {
    let [warm_up, measured] = [o.size(300, 10), o.size(1000, 30)].map(Duration::from_millis);
    floors::Window { warm_up, measured }
}

fn checked((millions, counts): (f64, floors::Counts), text: &Text) -> Result<Figures> {
    if counts != text.counts {
        return Err("the counts are not those of the text".into());
    }
    Ok(Figures::from([("millions", millions)]))
}

fn declare(run: &mut SuiteRun<'_>) -> Result<()> {
    run.case("throughput", |o| Ok(Figures::from([("millions", floors::ring_throughput(o.cores, o.size(20_000_000, 200_000))?)])));
    run.case("ring", |o| Ok(percentiles(&floors::ring_round_trip(o.cores, o.size(1_000_000, 10_000), floors::RING_CAPACITY)?)));
    run.case("small ring", |o| Ok(percentiles(&floors::ring_round_trip(o.cores, o.size(1_000_000, 10_000), floors::SMALL_RING_CAPACITY)?)));
    run.case("flag ring", |o| Ok(percentiles(&floors::flag_ring_round_trip(o.cores, o.size(1_000_000, 10_000))?)));
    run.case("line", |o| Ok(percentiles(&floors::cache_line_round_trip(o.cores, o.size(1_000_000, 10_000))?)));
    run.case("same thread", |o| Ok(Figures::from([("ns", floors::same_thread_ns(o.cores.0, o.size(20_000_000, 100_000))?)])));
    run.case("in place", |o| Ok(Figures::from([("ns", floors::same_thread_in_place_ns(o.cores.0, o.size(20_000_000, 100_000))?)])));
    run.case("wake", |o| Ok(percentiles(&floors::futex_wake(o.cores, o.size(100, 10), Duration::from_millis(o.size(20, 1)))?)));
    run.case("shared ring", |o| Ok(percentiles(&floors::shared_memory_round_trip(o.cores, o.size(1_000_000, 10_000))?)));
    run.case("uring", |o| Ok(percentiles(&floors::uring_round_trip(o.cores, o.size(200_000, 1000))?)));
    run.case("spin", |o| Ok(percentiles(&floors::spin_round_trip(o.cores, o.size(200_000, 1000))?)));
    run.case("shared stream", |o| Ok(streamed(floors::shared_memory_stream(o.cores, window(o))?)));
    run.case("uring stream", |o| Ok(streamed(floors::uring_stream(o.cores, window(o))?)));
    run.case("uring large", |o| Ok(streamed(floors::uring_stream_large(o.cores, window(o), false)?)));
    run.case("uring large, written", |o| Ok(streamed(floors::uring_stream_large(o.cores, window(o), true)?)));
    let text = zipf::text(usize::try_from(run.options().size(100_000_000, 1_000_000))?, 11);
    let (pipe, keyed) = (text.clone(), text);
    run.case("pipe", move |o| checked(floors::word_count_pipe(o.cores, &pipe.bytes)?, &pipe));
    run.case("keyed", move |o| checked(floors::word_count_keyed(o.cores, &keyed.bytes)?, &keyed));

    let rates: [(_, _, _, OnRecord); 7] = [
        ("ring, 64 B, batch 64, capacity 1024", "M items/s", "throughput", on_record::ring_throughput_millions),
        ("100 bytes, shared ring, publish every 256", "M messages/s", "shared stream", on_record::shared_memory_stream_millions),
        ("100 bytes, io_uring TCP, 64 KiB writes", "M messages/s", "uring stream", on_record::uring_stream_millions),
        ("4 KiB, io_uring TCP, 64 KiB writes", "M messages/s", "uring large", |_| None),
        ("the same, payload written and read", "M messages/s", "uring large, written", |_| None),
        ("word count, pipe", "M words/s", "pipe", on_record::word_count_pipe_millions),
        ("word count, keyed", "M words/s", "keyed", on_record::word_count_keyed_millions),
    ];
    for (name, unit, case, record) in rates {
        run.row(RowSpec::new(&beside(name, record), unit, Better::Higher, case, "millions"));
    }
    let round_trips: [(_, _, OnRecord, OnRecord); 8] = [
        ("ring round trip", "ring", on_record::ring_round_trip_p50_ns, on_record::ring_round_trip_p99_ns),
        ("ring round trip, 64 slots", "small ring", |_| None, |_| None),
        ("flag ring round trip", "flag ring", on_record::flag_ring_round_trip_p50_ns, |_| None),
        ("cache line round trip", "line", |_| None, |_| None),
        ("100 bytes, shared ring", "shared ring", on_record::shared_memory_round_trip_p50_ns, on_record::shared_memory_round_trip_p99_ns),
        ("100 bytes, io_uring TCP", "uring", on_record::uring_round_trip_p50_ns, on_record::uring_round_trip_p99_ns),
        ("100 bytes, send/recv TCP, spun", "spin", on_record::spin_round_trip_p50_ns, on_record::spin_round_trip_p99_ns),
        ("wake of a sleeper on the other core", "wake", on_record::futex_wake_p50_ns, |_| None),
    ];
    for (name, case, p50, p99) in round_trips {
        run.row(RowSpec::new(&beside(&format!("{name}, p50"), p50), "ns", Better::Lower, case, "p50_ns"));
        run.row(RowSpec::new(&beside(&format!("{name}, p99"), p99), "ns", Better::Lower, case, "p99_ns"));
    }
    let name = beside("archive and read on the same thread", on_record::same_thread_ns);
    run.row(RowSpec::new(&name, "ns a tuple", Better::Lower, "same thread", "ns"));
    let name = beside("the same, archived in the ring's slot", on_record::same_thread_in_place_ns);
    run.row(RowSpec::new(&name, "ns a tuple", Better::Lower, "in place", "ns"));
    for (name, case) in [("small", "uring stream"), ("4 KiB", "uring large"), ("4 KiB, written and read", "uring large, written")] {
        run.row(RowSpec::new(&format!("processor time, io_uring TCP, {name}"), "ns a message", Better::Lower, case, "cpu_ns"));
    }
    Ok(())
}

/// The name with what is on record for two near cores.
fn beside(name: &str, on_record: OnRecord) -> String {
    on_record(HostClass::Ccx).map_or_else(|| name.to_owned(), |value| format!("{name} (on record {value})"))
}

fn main() -> ExitCode {
    if let Some(code) = floors::far_process() {
        return code;
    }
    saetta_harness::main(&[Suite { name: "floors", about: "the raw figures everything else is divided by", declare }])
}
