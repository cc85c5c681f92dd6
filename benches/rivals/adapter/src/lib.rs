//! What every adapter in Rust shares: the workload it is given, where tuples and latencies are counted, and the conversation with the harness.
//!
//! Before: the harness started an adapter, held to two cores, with a workload as JSON in its only argument. After: the adapter runs that workload
//! without end; when it is warm it prints `{"ready": true}`, and for each line on its standard input measures one window and prints one line of JSON
//! (`tuples`, `wall_ns`, `cpu_ns`, `histogram`). At the end of its input it exits. The adapters on the JVM speak the same.
//! All stamps are of CLOCK_MONOTONIC, as Java's `System.nanoTime` is: 23 ns a reading, the same for everybody.
#![forbid(unsafe_code)]

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};
use rustix::thread::CpuSet;
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;

/// Any error; its text goes to standard error and the adapter ends with 1.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The text of a small tuple.
pub const TEXT: &str = "twenty bytes of text";
/// Tuples a source has under way at most where their fate is tracked.
pub const PENDING: u64 = 1024;
/// Between two looks at whether anything has arrived.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Threads that may count.
const COUNTERS: usize = 16;
/// Longest latency that is told from others.
const LATENCY_NS_MAX: u64 = 100_000_000_000;

/// What goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// [`TEXT`] from a source to a sink on the other core.
    Null,
    /// The same with a stage between them that passes on a new tuple.
    Identity,
    /// Lines, split into words, counted by word on both cores.
    Words,
    /// A stamp from a source to a sink on the other core.
    Hop,
    /// The same with a stage between them that passes on a new tuple.
    Chain,
}

/// One workload, as the harness gives it.
#[derive(Debug, Clone, Deserialize)]
pub struct Workload {
    /// What goes through.
    pub shape: Shape,
    /// Whether the source is told what became of each tuple, or the nearest the system has to that.
    pub acked: bool,
    /// Of [`Shape::Hop`] and [`Shape::Chain`]: stamps a second, each that of the time it was due. 0 = one in flight, the next as soon as it has
    /// arrived.
    pub rate_per_sec: u64,
    /// The text of [`Shape::Words`].
    pub text: PathBuf,
    /// Before the first window.
    pub warm_up_ms: u64,
    /// One window.
    pub window_ms: u64,
    /// The two cores.
    pub cores: [usize; 2],
}

impl Workload {
    /// The one in the first argument.
    ///
    /// # Errors
    /// It is not there, or not one.
    pub fn of_arguments() -> Result<Self> {
        let text = std::env::args().nth(1).ok_or("name a workload, as JSON, as the only argument")?;
        Ok(serde_json::from_str(&text)?)
    }

    /// The lines of the text; part `i` of `n`, dealt in turn.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn lines(&self, i: usize, n: usize) -> Result<Vec<String>> {
        let text = std::fs::read_to_string(&self.text)?;
        Ok(text.lines().skip(i).step_by(n).map(str::to_owned).collect())
    }
}

/// Puts the calling thread on one core.
///
/// # Errors
/// The kernel does not let it.
pub fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Nanoseconds of CLOCK_MONOTONIC.
#[inline]
#[must_use]
pub fn now_ns() -> u64 {
    ns(ClockId::Monotonic)
}

fn ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A count with one writer.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counter(AtomicU64);

static TUPLES: [Counter; COUNTERS] = [const { Counter(AtomicU64::new(0)) }; COUNTERS];
static TAKEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MINE: &'static Counter = &TUPLES[TAKEN.fetch_add(1, Ordering::Relaxed)];
}

impl Counter {
    /// The calling thread's.
    ///
    /// # Panics
    /// In the seventeenth thread.
    #[must_use]
    pub fn mine() -> &'static Self {
        MINE.with(|counter| *counter)
    }

    /// Counts `n` more. The caller is the thread it is of.
    #[inline]
    pub fn add(&self, n: u64) {
        // One writer; the reader only wants a number that is near.
        self.0.store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }
}

/// Stamps that have arrived, for a source that has one in flight: written by the sink, read by the source.
pub static ARRIVED: Counter = Counter(AtomicU64::new(0));
static LATENCY: LazyLock<Mutex<Histogram<u64>>> = LazyLock::new(|| Mutex::new(empty()));

fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("constant bounds are valid")
}

/// The sink has got a stamp: records its age, then lets the source go on.
#[inline]
pub fn arrived(stamp_ns: u64) {
    let age_ns = now_ns().saturating_sub(stamp_ns);
    LATENCY.lock().expect("no panic while locked").saturating_record(age_ns.max(1));
    Counter::mine().add(1);
    // Release: pairs with the Acquire in `Stamps::due`.
    ARRIVED.0.store(ARRIVED.0.load(Ordering::Relaxed) + 1, Ordering::Release);
}

/// When a source sends its next stamp.
#[derive(Debug)]
pub struct Stamps {
    sent: u64,
    period_ns: u64,
    due_ns: u64,
}

impl Stamps {
    /// Those of a workload.
    #[must_use]
    pub fn of(workload: &Workload) -> Self {
        let period_ns = 1_000_000_000u64.checked_div(workload.rate_per_sec).unwrap_or(0);
        Self { sent: 0, period_ns, due_ns: now_ns() }
    }

    /// The stamp to send now, if one is due.
    #[inline]
    pub fn due(&mut self) -> Option<u64> {
        if self.period_ns == 0 {
            // Acquire: pairs with the Release in `arrived`.
            if ARRIVED.0.load(Ordering::Acquire) != self.sent {
                return None;
            }
            self.sent += 1;
            return Some(now_ns());
        }
        if now_ns() < self.due_ns {
            return None;
        }
        let due_ns = self.due_ns;
        self.due_ns += self.period_ns;
        Some(due_ns)
    }

    /// Waits for the next one, spinning.
    pub fn wait(&mut self) -> u64 {
        loop {
            if let Some(stamp) = self.due() {
                return stamp;
            }
            std::hint::spin_loop();
        }
    }
}

fn tuples() -> u64 {
    TUPLES.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
}

fn say(answer: &serde_json::Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}")?;
    Ok(out.flush()?)
}

/// Talks with the harness while other threads run the workload, then ends the process.
///
/// # Errors
/// The harness went away in the middle of a word.
pub fn serve(workload: &Workload) -> Result<()> {
    // From the first tuple on: what it takes to start and to read a text is not warm-up.
    while tuples() == 0 {
        std::thread::sleep(LOOK_EVERY);
    }
    std::thread::sleep(Duration::from_millis(workload.warm_up_ms));
    say(&serde_json::json!({ "ready": true }))?;
    for line in std::io::stdin().lock().lines() {
        line?;
        LATENCY.lock().expect("no panic while locked").clear();
        let start = (tuples(), now_ns(), ns(ClockId::ProcessCPUTime));
        std::thread::sleep(Duration::from_millis(workload.window_ms));
        let end = (tuples(), now_ns(), ns(ClockId::ProcessCPUTime));
        let latency = LATENCY.lock().expect("no panic while locked").clone();
        let mut encoded = Vec::new();
        V2Serializer::new().serialize(&latency, &mut encoded)?;
        say(&serde_json::json!({
            "tuples": end.0 - start.0, "wall_ns": end.1 - start.1, "cpu_ns": end.2 - start.2, "histogram": hex::encode(encoded),
        }))?;
    }
    std::process::exit(0)
}

/// The `main` of an adapter: `run` starts the threads of the workload, and does not come back or comes back at once.
#[must_use]
pub fn main(run: fn(&Workload) -> Result<()>) -> std::process::ExitCode {
    let served = Workload::of_arguments().and_then(|workload| {
        let of = workload.clone();
        std::thread::spawn(move || {
            if let Err(error) = run(&of) {
                eprintln!("error: {:?}: {error}", of.shape);
                std::process::exit(1);
            }
        });
        serve(&workload)
    });
    if let Err(error) = served {
        eprintln!("error: {error}");
    }
    std::process::ExitCode::FAILURE
}
