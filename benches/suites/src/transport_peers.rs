//! Seven peers played by one process, and an eighth that is stopped for a while, again and again: what the seven notice.
//!
//! Before: `transport_topology` wires this load, `transport` has started three workers. The seven are loops of one worker, a link each; the eighth
//! takes 4 KiB tuples, few enough that it costs the seven nothing while it runs and enough that its link is full soon after it stops.
//! After: round trips to the seven, or tuples to them a second, in windows in which the eighth ran and in windows in which it did not.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use saetta::prelude::*;
use saetta_harness::suite::Figures;
use saetta_harness::{Latency, Result};

use crate::transport_topology::{
    ArchivedHundred, ArchivedPage, Args, BEGAN, Back, DATA_BYTES, Echo, FIGURES, FILL_BYTES, Hundred, Load, Page,
};
use crate::transport_topology::{PageRef, leave};
use crate::workers::Workers;

/// How many there are.
const SEVEN: u32 = 7;
/// From the first tuple to the first window: links and caches are warm.
const WARM_UP_NS: u64 = 500_000_000;
/// Part of a window after which it counts: the eighth has been stopped, or has caught up.
const SETTLED: f64 = 0.2;
/// Between two tuples for the eighth.
const PACE_NS: u64 = 10_000_000;
/// Tuples of a stream between two looks at the clock.
const LOOK_EVERY: u64 = 64;

/// The clock that all processes of this machine share.
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Which window it is: the eighth runs in even ones and is stopped in odd ones; strangers knock elsewhere, then here.
pub(crate) struct Windows {
    out: PathBuf,
    /// Begin of the first; 0 before the first tuple.
    start_ns: u64,
    length_ns: u64,
    n: u64,
    over: bool,
}

/// What a look at the clock says.
enum Look {
    /// Not counted.
    Between,
    /// Counted: 0 for running, 1 for stopped.
    In(usize),
    /// The windows are over, for the first time.
    Over,
}

impl Windows {
    pub(crate) fn new(args: &Args) -> Self {
        Windows { out: args.out.clone(), start_ns: 0, length_ns: args.measured_ms * 1_000_000, n: args.windows, over: false }
    }

    #[inline]
    fn look(&mut self, now_ns: u64) -> std::result::Result<Look, Fail> {
        if self.start_ns == 0 {
            self.start_ns = now_ns + WARM_UP_NS;
            leave(&self.out, BEGAN, &self.start_ns.to_string())?;
        }
        if now_ns < self.start_ns || self.over {
            return Ok(Look::Between);
        }
        let (window, within) = ((now_ns - self.start_ns) / self.length_ns, (now_ns - self.start_ns) % self.length_ns);
        if window >= self.n {
            self.over = true;
            return Ok(Look::Over);
        }
        Ok(if (within as f64) < self.length_ns as f64 * SETTLED { Look::Between } else { Look::In((window % 2) as usize) })
    }
}

/// One tuple in flight, to the seven in turn.
struct Ping {
    sent: u64,
    back: Back,
}

impl Emits<Hundred> for Ping {}

impl Spout for Ping {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        if self.back.load(Ordering::Relaxed) != self.sent {
            return Ok(Idle);
        }
        self.sent += 1;
        cx.emit(&Hundred { number: now_ns(), fill: [7; FILL_BYTES] });
        Ok(Busy)
    }
}

struct Pong {
    windows: Windows,
    back: Back,
    n: u64,
    /// Running, stopped.
    latency: [Latency; 2],
}

impl Bolt for Pong {}

impl Handle<Hundred> for Pong {
    fn on(&mut self, tuple: &ArchivedHundred, _: &mut Cx<'_, Self>) -> Outcome {
        let now_ns = now_ns();
        match self.windows.look(now_ns)? {
            Look::Between => {}
            Look::In(which) => self.latency[which].record_ns(now_ns - tuple.number()),
            Look::Over => {
                let [running, stopped] = self.latency.each_ref().map(Latency::p50_ns);
                leave(&self.windows.out, FIGURES, &format!("{running} {stopped}"))?;
            }
        }
        self.n += 1;
        self.back.store(self.n, Ordering::Relaxed);
        Ok(())
    }
}

/// Emits without end, and counts what is taken.
pub(crate) struct Counted {
    windows: Windows,
    next: u64,
    /// In even windows, in odd ones.
    looks: [u64; 2],
}

impl Counted {
    pub(crate) fn new(args: &Args) -> Self {
        Counted { windows: Windows::new(args), next: 0, looks: [0; 2] }
    }
}

impl Emits<Hundred> for Counted {}

impl Spout for Counted {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        let number = self.next;
        self.next += 1;
        if number.is_multiple_of(LOOK_EVERY) {
            match self.windows.look(now_ns())? {
                Look::Between => {}
                Look::In(which) => self.looks[which] += 1,
                Look::Over => {
                    let counted_ns = self.windows.length_ns as f64 * (1.0 - SETTLED) * self.windows.n as f64 / 2.0;
                    let [running, stopped] = self.looks.map(|looks| (looks * LOOK_EVERY) as f64 / counted_ns * 1e3);
                    leave(&self.windows.out, FIGURES, &format!("{running} {stopped}"))?;
                }
            }
        }
        cx.emit(&Hundred { number, fill: [7; FILL_BYTES] });
        Ok(Busy)
    }
}

/// Emits a large tuple now and then.
struct Pacer {
    due_ns: u64,
    data: Vec<u8>,
}

impl Emits<Page> for Pacer {}

impl Spout for Pacer {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        if cx.now_ns() < self.due_ns {
            return Ok(Idle);
        }
        self.due_ns = cx.now_ns() + PACE_NS;
        cx.emit(&PageRef { number: 0, data: &self.data });
        Ok(Busy)
    }
}

/// Takes tuples, and that is all.
pub(crate) struct Taker;

impl Bolt for Taker {}

impl Handle<Hundred> for Taker {
    fn on(&mut self, tuple: &ArchivedHundred, _: &mut Cx<'_, Self>) -> Outcome {
        std::hint::black_box((tuple.number(), tuple.fill()));
        Ok(())
    }
}

impl Handle<Page> for Taker {
    fn on(&mut self, tuple: &ArchivedPage, _: &mut Cx<'_, Self>) -> Outcome {
        std::hint::black_box(tuple.data());
        Ok(())
    }
}

/// Spouts `ping` or `counted`, and `pacer`; bolts `seven` of seven executors with a loop each, `eighth`, and `pong` at the end of a round trip.
pub(crate) fn wire(t: &mut Topology, args: Args) {
    if args.load == Load::SevenPing {
        let back = Back::default();
        let spout_back = back.clone();
        let ping = t.spout("ping", move || Ping { sent: 0, back: spout_back.clone() }).stream::<Hundred>();
        let here = t.bolt("seven", || Echo).executors(SEVEN).blocking().input(&ping, Shuffle).stream::<Hundred>();
        let pong = move || Pong { windows: Windows::new(&args), back: back.clone(), n: 0, latency: [Latency::new(), Latency::new()] };
        let _ = t.bolt("pong", pong).input(&here, Shuffle);
    } else {
        let counted = t.spout("counted", move || Counted::new(&args)).stream::<Hundred>();
        let _ = t.bolt("seven", || Taker).executors(SEVEN).blocking().input(&counted, Shuffle);
    }
    let paced = t.spout("pacer", || Pacer { due_ns: 0, data: vec![7; DATA_BYTES] }).stream::<Page>();
    let _ = t.bolt("eighth", || Taker).blocking().input(&paced, Shuffle);
}

/// Stops the third worker in every second window and lets it go on in the others; what the seven had, running and stopped.
///
/// # Errors
/// As [`Workers::until`].
pub(crate) fn stop_the_eighth(mut workers: Workers, window: Duration) -> Result<Figures> {
    let start_ns: u64 = workers.file(BEGAN)?.parse()?;
    let length_ns = u64::try_from(window.as_nanos())?;
    let eighth = workers.pids().get(2).and_then(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)).ok_or("no eighth")?;
    let mut is_stopped = false;
    let text = workers.until(FIGURES, |dir: &Path| {
        let figures = std::fs::read_to_string(dir.join(FIGURES)).ok();
        let stop = figures.is_none() && now_ns().checked_sub(start_ns).is_some_and(|since| since / length_ns % 2 == 1);
        if stop != is_stopped {
            kill_process(eighth, if stop { Signal::STOP } else { Signal::CONT })?;
            is_stopped = stop;
        }
        Ok(figures)
    })?;
    workers.stop()?;
    let figures = text.split(' ').map(str::parse).collect::<std::result::Result<Vec<f64>, _>>()?;
    let [running, stopped] = figures[..] else { return Err(format!("two figures, not {text:?}").into()) };
    Ok(Figures::from([("running", running), ("stopped", stopped)]))
}
