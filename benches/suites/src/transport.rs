//! `transport`: a tuple's way to another worker and back, and streams of them, by each carrier, beside the raw carrier between two processes.
//!
//! Before: two real workers on two cores, one loop each, acking off; a spout in one, a bolt in the other. After: round trips as the first worker
//! stamps them, rates as the second counts them, in order and without a gap; processor time and system calls of both, as the kernel counts them.

use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use saetta::Topology;
use saetta_floors as floors;
use saetta_floors::on_record;
use saetta_harness::suite::{Figures, Options, SuiteRun};
use saetta_harness::{Better, Latency, Result, RowSpec};
use saetta_model::config::find;

use crate::transport_peers::stop_the_eighth;
use crate::transport_topology::{Args, BEGAN, FIGURES, Load, from_text, topology};
use crate::veth::Veth;
use crate::workers::{Place, Run, Workers};

/// What carries a link.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Carrier {
    Memory,
    Uring,
    Epoll,
}

impl Carrier {
    /// As the record's configuration says it.
    fn config(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let [carrier, memory] = match self {
            Carrier::Memory => ["auto", "true"],
            Carrier::Uring => ["io_uring", "false"],
            Carrier::Epoll => ["epoll", "false"],
        };
        [("transport.carrier", carrier), ("transport.memory", memory)].into_iter().filter(|(key, _)| find(key).is_some())
    }

    /// Fails unless it is what the workers use. Shared memory is beside whatever carries their sockets.
    fn check(self, workers: &Workers) -> Result<()> {
        let wanted = match self {
            Carrier::Memory => return Ok(()),
            Carrier::Uring => "io_uring",
            Carrier::Epoll => "epoll",
        };
        match workers.carriers().find(|in_use| *in_use != wanted) {
            Some(other) => Err(format!("a worker's links go by {other:?}, not by {wanted}").into()),
            None => Ok(()),
        }
    }

    /// Whether this version can be told to use it.
    fn is_known(self) -> bool {
        match self {
            Carrier::Memory => find("transport.memory").is_some(),
            Carrier::Uring => true,
            Carrier::Epoll => find("transport.carrier").is_some(),
        }
    }
}

/// Workers of `load`, running: the spout (and for a round trip the last bolt) in the first, what is in the second on the other core.
pub(crate) fn start(o: &Options, carrier: Carrier, wire: Option<&Veth>, load: Load, times: &[(&str, u64)]) -> Result<Workers> {
    let mut t = Topology::new();
    topology(&mut t, Args::describing(load))?;
    let program = t.build()?;
    let mut config = vec![("topology.workers", "2"), ("topology.acker.executors", "0")];
    config.extend(carrier.config());
    let times = times.iter().flat_map(|(option, n)| [format!("--{option}"), n.to_string()]);
    let run = Run {
        binary: None,
        spec: program.spec,
        code: program.config,
        args: ["--load".to_owned(), load.word()].into_iter().chain(times).collect(),
        config: config.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
    };
    let (near, far) = o.cores;
    let place = |at, components, wait| {
        let core = if at == 0 { near } else { far };
        Place { core, components, wait, end: wire.map(|wire| wire.end(at)) }
    };
    let places: &[Place] = match load {
        Load::Ping => &[place(0, &["ping", "pong"], "spin"), place(1, &["echo"], "spin")],
        Load::Small | Load::Large => &[place(0, &["endless"], "spin"), place(1, &["meter"], "spin")],
        Load::Hostile => &[place(0, &["counted"], "spin"), place(1, &["taker"], "spin")],
        Load::SevenPing => &[place(0, &["pacer", "ping", "pong"], "spin"), place(1, &["seven"], "hybrid"), place(1, &["eighth"], "hybrid")],
        Load::SevenSmall => &[place(0, &["counted", "pacer"], "spin"), place(1, &["seven"], "hybrid"), place(1, &["eighth"], "hybrid")],
    };
    Workers::start(run, places)
}

/// One tuple there and back, one in flight.
fn round_trip(o: &Options, carrier: Carrier, rounds: u64) -> Result<Latency> {
    let mut workers = start(o, carrier, None, Load::Ping, &[("rounds", rounds)])?;
    let latency = from_text(&workers.file(FIGURES)?)?;
    carrier.check(&workers)?;
    workers.stop()?;
    Ok(latency)
}

/// A stream one way, in its steady state: `meanwhile` is what is watched while it is measured.
pub(crate) fn stream(
    o: &Options,
    carrier: Carrier,
    wire: Option<&Veth>,
    load: Load,
    meanwhile: impl FnOnce(&mut Workers) -> Result<Figures>,
) -> Result<Figures> {
    let window = window(o);
    let ms = |time: Duration| u64::try_from(time.as_millis());
    let times = [("warm-up-ms", ms(window.warm_up)?), ("measured-ms", ms(window.measured)?)];
    let mut workers = start(o, carrier, wire, load, &times)?;
    workers.file(BEGAN)?;
    let (began, cpu) = (Instant::now(), workers.cpu()?);
    let mut figures = meanwhile(&mut workers)?;
    let a_second: f64 = workers.file(FIGURES)?.parse()?;
    let cpu = (workers.cpu()? - cpu).as_secs_f64() / began.elapsed().as_secs_f64();
    carrier.check(&workers)?;
    let logs = workers.stop()?;
    let copied = logs
        .iter()
        .map(|log| copied(log))
        .sum::<Option<u64>>()
        .ok_or_else(|| format!("a worker does not say what its links copied: {}", logs.concat()))?;
    figures.insert("copied", copied as f64);
    figures.insert("millions", a_second / 1e6);
    figures.insert("cpu_ns", cpu * 1e9 / a_second);
    if let Some(calls) = figures.get("calls_per_sec").copied() {
        figures.insert("calls", calls / a_second);
    }
    Ok(figures)
}

/// Bytes that a worker's links have copied between receiving and executing, as the last line of its log says.
fn copied(log: &str) -> Option<u64> {
    log.lines().find_map(|line| line.strip_suffix(" copied")?.rsplit(' ').next()?.parse().ok())
}

/// What seven peers have while an eighth runs, and while it is stopped.
fn seven(o: &Options, load: Load) -> Result<Figures> {
    let (window, windows) = (Duration::from_millis(o.size(1000, 100)), o.size(10, 4));
    let times = [("measured-ms", u64::try_from(window.as_millis())?), ("windows", windows)];
    stop_the_eighth(start(o, Carrier::Uring, None, load, &times)?, window)
}

/// Of a stream: long enough that a beginning and an end do not show.
fn window(o: &Options) -> floors::Window {
    let [warm_up, measured] = [o.size(500, 50), o.size(2000, 300)].map(Duration::from_millis);
    floors::Window { warm_up, measured }
}

fn streamed(streamed: floors::Streamed) -> Figures {
    Figures::from([("millions", streamed.millions), ("cpu_ns", streamed.cpu_ns)])
}

/// System calls a second of these processes, all threads: counted by perf, which stops nobody, or where it may not by strace, which stops
/// threads at their calls.
fn calls_per_sec(pids: &[u32], time: Duration) -> Result<f64> {
    let secs = time.as_secs_f64();
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let counted = Command::new("perf")
        .args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p", &pids.join(","), "--", "sleep", &secs.to_string()])
        .stdout(Stdio::null())
        .output();
    let of_perf = |output: std::process::Output| perf_count(&String::from_utf8_lossy(&output.stderr));
    if let Some(n) = counted.ok().filter(|output| output.status.success()).and_then(of_perf) {
        return Ok(n / secs);
    }
    let attached = pids.iter().flat_map(|pid| ["-p", pid]);
    let output = Command::new("timeout")
        .args(["--signal=INT", &secs.to_string(), "strace", "-f", "-c", "-U", "calls,name"])
        .args(attached)
        .output()
        .map_err(|e| format!("starting strace: {e}; install it (`cargo xtask ci` does)"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    Ok(strace_total(&text).ok_or_else(|| format!("no total of strace: {text}"))? / secs)
}

/// `42,,raw_syscalls:sys_enter,..`; `None` where perf could not count.
fn perf_count(text: &str) -> Option<f64> {
    text.lines().find(|line| line.contains("raw_syscalls:sys_enter"))?.split(',').next()?.trim().parse().ok()
}

/// `42 total`, the last line of the table.
fn strace_total(text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.trim().strip_suffix(" total")?.trim().parse().ok())
}

pub(crate) fn declare(run: &mut SuiteRun<'_>) -> Result<()> {
    let o = run.options();
    let (rounds, shared_rounds) = (o.size(200_000, 1000), o.size(1_000_000, 1000));
    let has = |carrier: Carrier| carrier.is_known();
    let plain = |_: &mut Workers| Ok(Figures::new());

    if has(Carrier::Memory) {
        run.latency_case("memory", move |o| round_trip(o, Carrier::Memory, shared_rounds));
        run.latency_case("memory, raw", move |o| floors::shared_memory_round_trip(o.cores, shared_rounds));
        run.case("memory, stream", move |o| stream(o, Carrier::Memory, None, Load::Small, plain));
        run.case("memory, stream, raw", |o| Ok(streamed(floors::shared_memory_stream(o.cores, window(o))?)));
    }
    run.latency_case("io_uring", move |o| round_trip(o, Carrier::Uring, rounds));
    run.latency_case("io_uring, raw", move |o| floors::uring_round_trip(o.cores, rounds));
    if has(Carrier::Epoll) {
        run.latency_case("epoll", move |o| round_trip(o, Carrier::Epoll, rounds));
        run.latency_case("epoll, raw", move |o| floors::spin_round_trip(o.cores, rounds));
    }
    run.case("io_uring, stream", move |o| stream(o, Carrier::Uring, None, Load::Small, plain));
    run.case("io_uring, stream, raw", |o| Ok(streamed(floors::uring_stream(o.cores, window(o))?)));
    run.case("io_uring, pages", move |o| stream(o, Carrier::Uring, None, Load::Large, plain));
    run.case("io_uring, pages, raw", |o| Ok(streamed(floors::uring_stream_large(o.cores, window(o), false)?)));
    run.case("io_uring, pages, raw, written", |o| Ok(streamed(floors::uring_stream_large(o.cores, window(o), true)?)));
    // perf takes a while to start and to end.
    let counted = |o: &Options| Duration::from_millis(o.size(1000, 100));
    run.case_of_any_class("io_uring, calls", move |o| {
        stream(o, Carrier::Uring, None, Load::Small, |workers| {
            Ok(Figures::from([("calls_per_sec", calls_per_sec(&workers.pids(), counted(o))?)]))
        })
    });
    match Veth::new() {
        Ok(wire) => {
            let wire = Rc::new(wire);
            let small = wire.clone();
            run.case("veth, stream", move |o| stream(o, Carrier::Uring, Some(&small), Load::Small, plain));
            run.case("veth, pages", move |o| stream(o, Carrier::Uring, Some(&wire), Load::Large, plain));
            for (name, case) in [("100 bytes", "veth, stream"), ("4 KiB", "veth, pages")] {
                let (what, unit) = (format!("io_uring TCP, stream, {name}, MTU 1500"), "M tuples/s");
                run.row(RowSpec::new(&what, unit, Better::Higher, case, "millions"));
                run.row(RowSpec::new(&format!("{what}: copied"), "bytes", Better::Lower, case, "copied").target(0.0));
            }
        }
        Err(e) => eprintln!("no rows over a wire of MTU 1500: {e}"),
    }
    // Both windows are in one sample, in turn: whatever the host does, it does to both.
    run.case_of_any_class("seven, round trip", |o| seven(o, Load::SevenPing));
    run.case_of_any_class("seven, stream", |o| seven(o, Load::SevenSmall));

    let us = |name: &str, case: &str, figure, floor: &str| RowSpec::new(name, "ns", Better::Lower, case, figure).over(floor, figure, 1.0);
    let rate = |name: &str, case: &str, floor: &str| {
        RowSpec::new(name, "M tuples/s", Better::Higher, case, "millions").over(floor, "millions", 1.0)
    };
    let (memory, uring, epoll) = ("shared memory, round trip", "io_uring TCP, round trip", "epoll TCP, round trip");
    if has(Carrier::Memory) {
        let (p50, p99) = (on_record::shared_memory_round_trip_p50_ns, on_record::shared_memory_round_trip_p99_ns);
        run.row(us(&format!("{memory}, p50"), "memory", "p50_ns", "memory, raw").on_record(p50).target(3.5));
        run.row(us(&format!("{memory}, p99"), "memory", "p99_ns", "memory, raw").on_record(p99));
    }
    let (p50, p99) = (on_record::uring_round_trip_p50_ns, on_record::uring_round_trip_p99_ns);
    run.row(us(&format!("{uring}, p50"), "io_uring", "p50_ns", "io_uring, raw").on_record(p50).target(1.3));
    run.row(us(&format!("{uring}, p99"), "io_uring", "p99_ns", "io_uring, raw").on_record(p99).target(1.5));
    if has(Carrier::Epoll) {
        let (p50, p99) = (on_record::spin_round_trip_p50_ns, on_record::spin_round_trip_p99_ns);
        run.row(us(&format!("{epoll}, p50"), "epoll", "p50_ns", "epoll, raw").on_record(p50).target(1.4));
        run.row(us(&format!("{epoll}, p99"), "epoll", "p99_ns", "epoll, raw").on_record(p99));
    }
    if has(Carrier::Memory) {
        let row = rate("shared memory, stream, 100 bytes", "memory, stream", "memory, stream, raw");
        run.row(row.on_record(on_record::shared_memory_stream_millions).target(0.35));
    }
    let row = rate("io_uring TCP, stream, 100 bytes", "io_uring, stream", "io_uring, stream, raw");
    run.row(row.on_record(on_record::uring_stream_millions).target(0.5));
    run.row(rate("io_uring TCP, stream, 4 KiB", "io_uring, pages", "io_uring, pages, raw").target(0.75));
    run.row(rate("the same, over raw with the payload written and read", "io_uring, pages", "io_uring, pages, raw, written"));
    let cpu = RowSpec::new("the same, processor time of both ends", "ns a tuple", Better::Lower, "io_uring, pages", "cpu_ns");
    run.row(cpu.over("io_uring, pages, raw, written", "cpu_ns", 1.0).target(1.35));
    let calls = RowSpec::new("io_uring TCP, stream, 100 bytes, system calls", "calls a tuple", Better::Lower, "io_uring, calls", "calls");
    run.row(calls.target(1.0 / 64.0));
    let row = |name: &str, unit: &str, better, case: &str| RowSpec::new(name, unit, better, case, "stopped").over(case, "running", 1.0);
    let (p50, rate) = ("seven peers, an eighth stopped: round trip, p50", "seven peers, an eighth stopped: stream");
    run.row(row(p50, "ns", Better::Lower, "seven, round trip").target(1.1));
    run.row(row(rate, "M tuples/s", Better::Higher, "seven, stream").target(0.95));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tools_tables_are_read() {
        assert_eq!(perf_count("4711,,raw_syscalls:sys_enter,2000000,100.00,,\n"), Some(4711.0));
        assert_eq!(perf_count("<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n"), None);
        assert_eq!(
            strace_total("    calls syscall\n--------- ----\n     4000 io_uring_enter\n--------- ----\n     4711 total\n"),
            Some(4711.0)
        );
        assert_eq!(strace_total("strace: attach: Operation not permitted\n"), None);
    }

    #[test]
    fn what_links_copied_is_read_from_the_last_line_of_a_log() {
        let log =
            "12:00 worker bench-1-1: stopping: told\n12:00 worker bench-1-1: stopped; links: 7 system calls, 4711 bytes in, 42 copied\n";
        assert_eq!(copied(log), Some(42));
        assert_eq!(copied("12:00 worker bench-1-1: stopped\n"), None);
    }
}
