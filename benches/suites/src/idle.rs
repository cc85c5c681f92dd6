//! `idle`: the first tuple after a quiet second, spout to bolt on another core: with loops that went to sleep beside a bare wake of a sleeping
//! thread, with loops that spin beside a hop of a busy stream.
//!
//! Before: nobody has had work for a second. After: every tuple arrived, in order; its latency is from the stamp before the emit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use saetta::RunOptions;
use saetta::prelude::*;
use saetta_floors as floors;
use saetta_floors::on_record;
use saetta_harness::suite::SuiteRun;
use saetta_harness::{Better, Latency, RowSpec};

use crate::hop::{ArchivedStamped, Stamped, hop};
use crate::topologies::{FILL_BYTES, check, core, run_waiting};

/// Tuples the bolt has seen: written by the bolt, read by the spout.
type Seen = Arc<CachePadded<AtomicU64>>;

/// How long a sleeper has slept for the wake on record.
const SOON: Duration = Duration::from_millis(1);

/// Emits one tuple after each quiet time.
struct Rare<const KEPT_WARM: bool> {
    tuples: u64,
    quiet_ns: u64,
    sent: u64,
    seen: Seen,
    due_ns: u64,
    clock: quanta::Clock,
}

impl<const KEPT_WARM: bool> Emits<Stamped> for Rare<KEPT_WARM> {}

impl<const KEPT_WARM: bool> Spout for Rare<KEPT_WARM> {
    const WARM: bool = KEPT_WARM;

    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        if !cx.is_warming() {
            match self.wait(cx.now_ns()) {
                Busy => {}
                other => return Ok(other),
            }
        }
        cx.emit(&Stamped { sent: self.clock.raw(), fill: [7; FILL_BYTES] });
        Ok(Busy)
    }
}

impl<const KEPT_WARM: bool> Rare<KEPT_WARM> {
    /// Busy when it is time for the next tuple, which is then counted.
    fn wait(&mut self, now_ns: u64) -> Progress {
        // Acquire: pairs with the bolt's Release; it has recorded the last one.
        if self.seen.load(Ordering::Acquire) != self.sent || self.due_ns == 0 {
            self.due_ns = now_ns + self.quiet_ns;
            return Idle;
        }
        if self.sent == self.tuples {
            return Done;
        }
        if now_ns < self.due_ns {
            return Idle;
        }
        self.sent += 1;
        self.due_ns = now_ns + self.quiet_ns;
        Busy
    }
}

struct Woken<const KEPT_WARM: bool> {
    seen: Seen,
    n: u64,
    latency: Latency,
    clock: quanta::Clock,
    result: Arc<Mutex<Option<Latency>>>,
}

impl<const KEPT_WARM: bool> Bolt for Woken<KEPT_WARM> {
    const WARM: bool = KEPT_WARM;

    fn finish(&mut self, _: &mut Cx<'_, Self>) -> Outcome {
        *self.result.lock().map_err(|_| "another bolt panicked")? = Some(std::mem::take(&mut self.latency));
        Ok(())
    }
}

impl<const KEPT_WARM: bool> Handle<Stamped> for Woken<KEPT_WARM> {
    fn on(&mut self, tuple: &ArchivedStamped, cx: &mut Cx<'_, Self>) -> Outcome {
        let latency_ns = self.clock.delta_as_nanos(tuple.sent(), self.clock.raw());
        if cx.is_warming() {
            return Ok(());
        }
        self.latency.record_ns(latency_ns);
        self.n += 1;
        self.seen.store(self.n, Ordering::Release);
        Ok(())
    }
}

/// `tuples` tuples, each after `quiet` without any, by loops that wait as `wait` says.
fn first_after<const KEPT_WARM: bool>(cores: (usize, usize), wait: &str, tuples: u64, quiet: Duration) -> saetta_harness::Result<Latency> {
    let quiet_ns = u64::try_from(quiet.as_nanos())?;
    let (seen, clock, result) = (Seen::default(), quanta::Clock::new(), Arc::new(Mutex::new(None)));
    let (near_seen, near_clock, out) = (seen.clone(), clock.clone(), result.clone());
    let rare = move || Rare::<KEPT_WARM> { tuples, quiet_ns, sent: 0, seen: near_seen.clone(), due_ns: 0, clock: near_clock.clone() };
    let woken = move || Woken::<KEPT_WARM> { seen: seen.clone(), n: 0, latency: Latency::new(), clock: clock.clone(), result: out.clone() };
    let mut t = Topology::new();
    let stream = t.spout("rare", rare).core(core(cores.0)).stream::<Stamped>();
    let _ = t.bolt("woken", woken).core(core(cores.1)).input(&stream, Shuffle);
    let summary = run_waiting(t, wait, &[cores.0, cores.1], RunOptions::default())?;
    check(&summary, "rare", tuples, Some(cores.0))?;
    check(&summary, "woken", tuples, Some(cores.1))?;
    let latency: Latency = result.lock().map_err(|_| "the bolt panicked")?.take().ok_or("the bolt never finished")?;
    if latency.count() != tuples {
        return Err(format!("{} tuples recorded of {tuples}", latency.count()).into());
    }
    Ok(latency)
}

pub(crate) fn declare(run: &mut SuiteRun<'_>) -> saetta_harness::Result<()> {
    let tuples = run.options().size(15, 10);
    let quiet = Duration::from_millis(run.options().size(1000, 5));
    let hops = run.options().size(1_000_000, 10_000);
    run.latency_case("hybrid", move |o| first_after::<false>(o.cores, "hybrid", tuples, quiet));
    run.latency_case("wake", move |o| floors::futex_wake(o.cores, tuples, quiet));
    run.latency_case("wake soon", move |o| floors::futex_wake(o.cores, tuples, SOON));
    run.latency_case("spin", move |o| first_after::<false>(o.cores, "spin", tuples, quiet));
    run.latency_case("spin, kept warm", move |o| first_after::<true>(o.cores, "spin", tuples, quiet));
    run.latency_case("hop", move |o| hop(o.cores, hops));

    let row = |name: &str, case: &str, figure| RowSpec::new(name, "ns", Better::Lower, case, figure);
    let p50 = |name: &str, case: &str, floor: &str| row(name, case, "p50_ns").over(floor, "p50_ns", 1.0);
    run.row(p50("first tuple after quiet, hybrid, p50", "hybrid", "wake").target(1.5));
    run.row(p50("first tuple after quiet, spin, p50, over hop", "spin, kept warm", "hop").target(2.0));
    run.row(p50("the same, not kept warm", "spin", "hop"));
    // The wake on record follows a short sleep; a machine that has slept for a second wakes from deeper.
    run.row(p50("a bare wake after 1 ms", "wake soon", "wake soon").on_record(on_record::futex_wake_p50_ns));
    Ok(())
}
