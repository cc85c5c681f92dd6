//! One adapter process: started on two cores, warmed up by itself, then measured in windows until one is in class CCX and undisturbed.
//!
//! Before: a command and a workload as JSON. After: the figures of one window with the class it was taken in; the process has ended. The
//! conversation is told in `benches/rivals/adapter/src/lib.rs`.

use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use rustix::thread::{CpuSet, sched_setaffinity};
use saetta_harness::hiccup::HiccupMeter;
use saetta_harness::host::class_now;
use saetta_harness::noise::{CpuReading, NOISE_MAX};
use saetta_harness::suite::{Figures, Measured};
use saetta_harness::{HostClass, Latency, Result};
use serde::Deserialize;
use serde_json::Value;

/// What starting and stopping may take beyond what the workload says.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a process may take to end.
const END_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks at whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Lines of standard error that are kept.
const LAST_LINES: usize = 5;

/// What it takes to run an adapter.
pub(super) struct Order<'a> {
    pub(super) command: Command,
    pub(super) workload: &'a Value,
    /// Whether the figures are percentiles.
    pub(super) latency: bool,
    pub(super) cores: (usize, usize),
    /// For its standard error.
    pub(super) dir: &'a Path,
    pub(super) windows_max: u32,
}

/// An adapter's answer.
#[derive(Debug, Deserialize)]
struct Window {
    tuples: u64,
    wall_ns: u64,
    cpu_ns: u64,
    histogram: String,
}

/// A running adapter. Dropping it ends it.
struct Adapter {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<std::io::Result<String>>,
}

impl Drop for Adapter {
    fn drop(&mut self) {
        // The end of its input is the end of the adapter.
        self.stdin = None;
        let end = Instant::now() + END_WITHIN;
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Adapter {
    fn start(mut command: Command, workload: &Value, cores: (usize, usize), errors: File) -> Result<Self> {
        command.arg(workload.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        // A child has the cores of the thread that starts it.
        let mut child = std::thread::scope(|scope| {
            let starter = scope.spawn(move || -> Result<Child> {
                let mut set = CpuSet::new();
                [cores.0, cores.1].into_iter().for_each(|core| set.set(core));
                sched_setaffinity(None, &set)?;
                Ok(command.spawn()?)
            });
            starter.join().map_err(|_| "the starter panicked")?
        })?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().ok_or("no pipe from the adapter")?);
        let (sender, lines) = channel();
        std::thread::spawn(move || BufReader::new(stdout).lines().try_for_each(|line| sender.send(line)));
        Ok(Adapter { child, stdin, lines })
    }

    fn line(&self, within: Duration) -> Result<String> {
        match self.lines.recv_timeout(within) {
            Ok(line) => Ok(line?),
            Err(RecvTimeoutError::Timeout) => Err(format!("nothing from the adapter within {} s", within.as_secs()).into()),
            Err(RecvTimeoutError::Disconnected) => Err("the adapter has ended".into()),
        }
    }

    fn window(&mut self, within: Duration) -> Result<Window> {
        self.stdin.as_mut().ok_or("no pipe to the adapter")?.write_all(b"go\n")?;
        Ok(serde_json::from_str(&self.line(within)?)?)
    }
}

/// Runs an adapter, and takes one sample.
///
/// # Errors
/// It does not start, does not answer, or nothing goes through; with the last it wrote to standard error.
pub(super) fn measure(order: Order<'_>) -> Result<(HostClass, Measured)> {
    let log = order.dir.join("stderr");
    let errors = File::create(&log)?;
    sample(order, errors).map_err(|error| {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        format!("{error}; the last it said: {}", lines[lines.len().saturating_sub(LAST_LINES)..].join(" / ")).into()
    })
}

fn sample(order: Order<'_>, errors: File) -> Result<(HostClass, Measured)> {
    let ms = |name: &str| Duration::from_millis(order.workload[name].as_u64().unwrap_or(0));
    let window = ms("window_ms") + PATIENCE;
    let mut adapter = Adapter::start(order.command, order.workload, order.cores, errors)?;
    adapter.line(ms("warm_up_ms") + window)?;
    for taken in 1.. {
        let before = class_now(order.cores)?;
        let (cpu, meter) = (CpuReading::now(), HiccupMeter::start(None));
        let window = adapter.window(window)?;
        let hiccups = meter.stop()?;
        // The adapter is not waited for yet: the kernel does not count it among ours.
        let of_adapter = Duration::from_nanos(window.cpu_ns);
        let others = cpu.and_then(|start| CpuReading::now()?.others_beside_since(&start, of_adapter)).unwrap_or(0.0);
        let after = class_now(order.cores)?;
        let class = if before == after { before } else { HostClass::Mixed };
        if taken < order.windows_max && (class != HostClass::Ccx || others > NOISE_MAX) {
            eprintln!("        again: class {before}, then {after}; others took {:.0} % of the machine", others * 100.0);
            continue;
        }
        return Ok((class, measured(&window, order.latency, hiccups)?));
    }
    unreachable!("the loop has no end")
}

fn measured(window: &Window, latency: bool, hiccups: Latency) -> Result<Measured> {
    if window.tuples == 0 {
        return Err("no tuple went through".into());
    }
    let tuples = window.tuples as f64;
    let mut measured = if latency { Measured::of(decoded(&window.histogram)?) } else { Measured::default() };
    measured.figures.append(&mut Figures::from([
        ("tuples", tuples),
        ("millions", tuples * 1e3 / window.wall_ns as f64),
        ("per_sec", tuples * 1e9 / window.wall_ns as f64),
        ("cpu_ns", window.cpu_ns as f64 / tuples),
        ("hiccups_p99_ns", hiccups.p99_ns() as f64),
    ]));
    measured.hiccups = latency.then_some(hiccups);
    Ok(measured)
}

/// HdrHistogram's V2 encoding, in hexadecimal digits.
fn decoded(digits: &str) -> Result<Latency> {
    let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut hex::decode(digits)?.as_slice())?;
    if histogram.is_empty() { Err("no latency was recorded".into()) } else { Ok(Latency::of(&histogram)) }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::{Serializer, V2Serializer};

    use super::*;

    fn window(tuples: u64, histogram: &Histogram<u64>) -> Window {
        let mut encoded = Vec::new();
        V2Serializer::new().serialize(histogram, &mut encoded).expect("memory");
        Window { tuples, wall_ns: 2_000_000_000, cpu_ns: 3_000_000_000, histogram: hex::encode(encoded) }
    }

    #[test]
    fn figures_are_those_of_the_window() {
        let mut histogram = Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("constant bounds are valid");
        (1..=1000).for_each(|ns| histogram.record(ns).expect("in bounds"));
        let figures = measured(&window(1_000_000, &histogram), true, Latency::new()).expect("tuples").figures;
        assert_eq!((figures["millions"], figures["per_sec"], figures["cpu_ns"]), (0.5, 500_000.0, 3000.0));
        assert!((figures["p50_ns"] - 500.0).abs() <= 1.0, "{figures:?}");
    }

    #[test]
    fn a_window_in_which_nothing_came_is_an_error() {
        let empty = Histogram::new_with_bounds(1, 1000, 3).expect("constant bounds are valid");
        assert!(measured(&window(0, &empty), false, Latency::new()).is_err());
        assert!(measured(&window(1, &empty), true, Latency::new()).is_err());
    }

    #[test]
    fn an_adapter_that_ends_at_once_is_an_error_with_what_it_said() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such rival >&2; exit 1"]);
        let cores = saetta_harness::pin::cores_of_this_thread();
        let cores = (cores[0], cores[cores.len() - 1]);
        let order = Order { command, workload: &Value::Null, latency: false, cores, dir: dir.path(), windows_max: 1 };
        let error = measure(order).expect_err("it has ended").to_string();
        assert_eq!(error, "the adapter has ended; the last it said: no such rival");
    }
}
