//! What the workers of `transport` run: a tuple that goes to another worker and back, or a stream of them one way.
//!
//! Before: `transport` starts workers of this program. After: the component at the end has written what it measured into the run's folder,
//! whole: latencies as `NANOSECONDS COUNT` lines, a rate as one number.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use saetta::prelude::*;
use saetta_harness::Latency;

use crate::hop::WARM_UP_HOPS;
use crate::hostile;
use crate::transport_peers;
use crate::workers::is_worker;

/// Archive of a small tuple: 100 bytes beside the number's 8.
pub(crate) const FILL_BYTES: usize = 92;
/// Bytes of a large tuple beside the 16 of number and pointer: 4 KiB in all.
pub(crate) const DATA_BYTES: usize = 4080;
/// One cache line.
const LINE_BYTES: usize = 64;
/// Bytes of small tuples between two looks at the clock; large ones are looked at 16 times as often.
const LOOK_EVERY: u64 = 4096;

/// The file that is there from when the measured time began.
pub(crate) const BEGAN: &str = "began";
/// The file with what was measured.
pub(crate) const FIGURES: &str = "figures";

/// 100 bytes.
#[tuple]
pub struct Hundred {
    /// Place in the stream, or the clock's reading before the emit.
    pub number: u64,
    /// Nothing.
    pub fill: [u8; FILL_BYTES],
}

/// 4 KiB.
#[tuple]
pub struct Page {
    /// Place in the stream.
    pub number: u64,
    /// [`DATA_BYTES`] of them.
    pub data: Vec<u8>,
}

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Load {
    /// One small tuple there and back, one in flight.
    Ping,
    /// Small tuples one way.
    Small,
    /// Large ones.
    Large,
    /// As `Ping`, to seven peers in turn, beside an eighth that stops at times
    SevenPing,
    /// As `Small`, to the seven
    SevenSmall,
    /// As `Small`, while strangers knock at one worker's port, or somewhere else
    Hostile,
}

/// Arguments of the topology.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// The run's folder
    #[arg(long)]
    pub(crate) out: PathBuf,
    /// What runs
    #[arg(long, value_enum)]
    pub(crate) load: Load,
    /// Round trips that are measured
    #[arg(long, default_value_t = 0)]
    pub(crate) rounds: u64,
    /// Milliseconds before a stream is measured
    #[arg(long, default_value_t = 0)]
    pub(crate) warm_up_ms: u64,
    /// Milliseconds in which it is; with seven peers or strangers, of one window
    #[arg(long, default_value_t = 0)]
    pub(crate) measured_ms: u64,
    /// Windows, with seven peers or strangers
    #[arg(long, default_value_t = 0)]
    pub(crate) windows: u64,
}

impl Args {
    /// For the description, which is the same for all runs of a load.
    pub(crate) fn describing(load: Load) -> Self {
        Args { out: PathBuf::new(), load, rounds: 0, warm_up_ms: 0, measured_ms: 0, windows: 0 }
    }
}

impl Load {
    /// As an argument.
    pub(crate) fn word(self) -> String {
        clap::ValueEnum::to_possible_value(&self).map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Puts a file there as a whole.
pub(crate) fn leave(dir: &Path, name: &str, text: &str) -> Outcome {
    let (path, part) = (dir.join(name), dir.join(format!("{name}.part")));
    let written = std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, &path));
    written.map_err(|e| Fail::Fatal(format!("writing {}: {e}", path.display())))
}

/// Tuples that came back: written by the last bolt, read by the spout, both on one loop.
pub(crate) type Back = Arc<CachePadded<AtomicU64>>;

struct Ping {
    all: u64,
    sent: u64,
    back: Back,
    clock: quanta::Clock,
}

impl Emits<Hundred> for Ping {}

impl Spout for Ping {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        if self.back.load(Ordering::Relaxed) != self.sent || self.sent == self.all {
            return Ok(Idle);
        }
        self.sent += 1;
        cx.emit(&Hundred { number: self.clock.raw(), fill: [7; FILL_BYTES] });
        Ok(Busy)
    }
}

/// Sends back what it got.
pub(crate) struct Echo;

impl Bolt for Echo {}
impl Emits<Hundred> for Echo {}

impl Handle<Hundred> for Echo {
    #[inline]
    fn on(&mut self, tuple: &ArchivedHundred, cx: &mut Cx<'_, Self>) -> Outcome {
        cx.emit(&Hundred { number: tuple.number(), fill: *tuple.fill() });
        Ok(())
    }
}

struct Pong {
    rounds: u64,
    out: PathBuf,
    back: Back,
    n: u64,
    latency: Latency,
    clock: quanta::Clock,
}

impl Bolt for Pong {}

impl Handle<Hundred> for Pong {
    #[inline]
    fn on(&mut self, tuple: &ArchivedHundred, _: &mut Cx<'_, Self>) -> Outcome {
        let ns = self.clock.delta_as_nanos(tuple.number(), self.clock.raw());
        std::hint::black_box(tuple.fill());
        self.n += 1;
        if self.n > WARM_UP_HOPS {
            self.latency.record_ns(ns);
        }
        self.back.store(self.n, Ordering::Relaxed);
        if self.n == WARM_UP_HOPS + self.rounds { leave(&self.out, FIGURES, &to_text(&self.latency)) } else { Ok(()) }
    }
}

/// `NANOSECONDS COUNT` lines.
pub(crate) fn to_text(latency: &Latency) -> String {
    latency.histogram().iter_recorded().map(|step| format!("{} {}\n", step.value_iterated_to(), step.count_at_value())).collect()
}

/// The latencies of such a text.
///
/// # Errors
/// It is another text.
pub(crate) fn from_text(text: &str) -> saetta_harness::Result<Latency> {
    let mut latency = Latency::new();
    for line in text.lines() {
        let (ns, n) = line.split_once(' ').ok_or("a line of one word")?;
        let ns = ns.parse()?;
        for _ in 0..n.parse::<u64>()? {
            latency.record_ns(ns);
        }
    }
    Ok(latency)
}

/// Emits without end.
struct Endless {
    next: u64,
    data: Vec<u8>,
}

impl Emits<Hundred> for Endless {}
impl Emits<Page> for Endless {}

impl Spout for Endless {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        let number = self.next;
        self.next += 1;
        if self.data.is_empty() {
            cx.emit(&Hundred { number, fill: [7; FILL_BYTES] });
        } else {
            cx.emit(&PageRef { number, data: &self.data });
        }
        Ok(Busy)
    }
}

/// Reads tuples in order, and measures their rate when the warm-up is over.
struct Meter {
    out: PathBuf,
    warm_up: Duration,
    measured: Duration,
    next: u64,
    look: u64,
    look_every: u64,
    sum: u64,
    start: Option<Instant>,
    /// When and after how many tuples the measured time began.
    began: Option<(Instant, u64)>,
    over: bool,
}

impl Meter {
    fn new(args: &Args) -> Self {
        let [warm_up, measured] = [args.warm_up_ms, args.measured_ms].map(Duration::from_millis);
        let look_every = if args.load == Load::Large { LOOK_EVERY / 16 } else { LOOK_EVERY };
        let out = args.out.clone();
        Meter { out, warm_up, measured, next: 0, look: 1, look_every, sum: 0, start: None, began: None, over: false }
    }

    #[inline]
    fn see(&mut self, number: u64) -> Outcome {
        if number != self.next {
            return Err(Fail::Fatal(format!("tuple {number} where {} was due", self.next)));
        }
        self.next += 1;
        if self.next == self.look {
            return self.look();
        }
        Ok(())
    }

    #[cold]
    fn look(&mut self) -> Outcome {
        std::hint::black_box(self.sum);
        self.look += self.look_every;
        let start = *self.start.get_or_insert_with(Instant::now);
        match self.began {
            None if start.elapsed() >= self.warm_up => {
                leave(&self.out, BEGAN, "")?;
                self.began = Some((Instant::now(), self.next));
            }
            Some((began, before)) if !self.over && began.elapsed() >= self.measured => {
                let rate = (self.next - before) as f64 / began.elapsed().as_secs_f64();
                self.over = true;
                leave(&self.out, FIGURES, &rate.to_string())?;
            }
            _ => {}
        }
        Ok(())
    }
}

impl Bolt for Meter {}

impl Handle<Hundred> for Meter {
    #[inline]
    fn on(&mut self, tuple: &ArchivedHundred, _: &mut Cx<'_, Self>) -> Outcome {
        // The first byte and the last: the floor reads the same.
        self.sum += u64::from(tuple.fill()[FILL_BYTES - 1]);
        self.see(tuple.number())
    }
}

impl Handle<Page> for Meter {
    #[inline]
    fn on(&mut self, tuple: &ArchivedPage, _: &mut Cx<'_, Self>) -> Outcome {
        self.sum = tuple.data().iter().step_by(LINE_BYTES).fold(self.sum, |sum, byte| sum + u64::from(*byte));
        self.see(tuple.number())
    }
}

/// The topology of `args`: spouts `ping` or `endless`, bolts `echo` and `pong` or `meter`.
///
/// # Errors
/// Never.
pub(crate) fn topology(t: &mut Topology, args: Args) -> saetta::Result<()> {
    match args.load {
        Load::Ping => {
            let (back, clock, all) = (Back::default(), quanta::Clock::new(), WARM_UP_HOPS + args.rounds);
            let (spout_back, spout_clock) = (back.clone(), clock.clone());
            let ping = move || Ping { all, sent: 0, back: spout_back.clone(), clock: spout_clock.clone() };
            let pong = move || {
                let (out, back, clock) = (args.out.clone(), back.clone(), clock.clone());
                Pong { rounds: args.rounds, out, back, n: 0, latency: Latency::new(), clock }
            };
            let there = t.spout("ping", ping).stream::<Hundred>();
            let here = t.bolt("echo", || Echo).input(&there, Shuffle).stream::<Hundred>();
            let _ = t.bolt("pong", pong).input(&here, Shuffle);
        }
        Load::Small => {
            let stream = t.spout("endless", || Endless { next: 0, data: Vec::new() }).stream::<Hundred>();
            let _ = t.bolt("meter", move || Meter::new(&args)).input(&stream, Shuffle);
        }
        Load::SevenPing | Load::SevenSmall => transport_peers::wire(t, args),
        Load::Hostile => hostile::wire(t, args),
        Load::Large => {
            let stream = t.spout("endless", || Endless { next: 0, data: vec![7; DATA_BYTES] }).stream::<Page>();
            let _ = t.bolt("meter", move || Meter::new(&args)).input(&stream, Shuffle);
        }
    }
    Ok(())
}

saetta::main!(topology);

/// `main` of a worker; `None` in any other process.
pub(crate) fn worker() -> Option<std::process::ExitCode> {
    is_worker().then(main)
}
