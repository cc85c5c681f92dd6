//! `run`: the whole topology in this process, no cluster.
//!
//! Before: `lives.rs` has a program and options. After: the engine has ended, and the summary is printed or handed to the topology.

use crate::core_plan::CorePlan;
use saetta_engine::metrics::{EdgeQuantiles, MetricsSnapshot, Quantiles};
use saetta_engine::{Command, Engine, ErrorReport, ExecutorStats, LoopStats, Program, Running, Shared};
use saetta_model::config::Config;
use saetta_model::parallelism::Layout;
use saetta_model::topology::ComponentKind;
use saetta_worker::LoopWatch;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How `run` behaves.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// No progress on standard error.
    pub quiet: bool,
    /// Print on standard error which executor is on which core, and why; at the end as well, where the load that was measured asks for other
    /// cores.
    pub plan: bool,
    /// Load of components as measured by a run before, [`ComponentSummary::busy`]: what the planner balances. Empty = not measured.
    pub busy: BTreeMap<String, f64>,
    /// Cores to use; empty = those this process may run on.
    pub cores: Vec<u32>,
    /// Open-loop rate of each spout executor, `next` calls a second.
    pub rate_per_sec: Option<u64>,
    /// End the spouts after this time.
    pub stop_after: Option<Duration>,
}

/// Percentiles of sampled tuples, nanoseconds. All zero without samples.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Latency {
    /// How many tuples were sampled.
    pub samples: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p99_9_ns: u64,
    /// Largest.
    pub max_ns: u64,
}

impl From<Quantiles> for Latency {
    fn from(q: Quantiles) -> Self {
        Latency { samples: q.n, p50_ns: q.p50_ns, p99_ns: q.p99_ns, p99_9_ns: q.p999_ns, max_ns: q.max_ns }
    }
}

/// One stream into a component.
#[derive(Debug, Clone, Serialize)]
pub struct EdgeSummary {
    /// Upstream component.
    pub from: String,
    /// Its stream.
    pub stream: String,
    /// Tuples handled, all of them.
    pub tuples: u64,
    /// From the emit before this hop to the handler, sampled tuples.
    pub queue_wait: Latency,
}

/// What one component did.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ComponentSummary {
    /// Executors.
    pub executors: u32,
    /// Cores they ran on.
    pub cores: Vec<u32>,
    /// Tuples handled, or `next` calls that emitted.
    pub executed: u64,
    /// Tuples emitted.
    pub emitted: u64,
    /// Frames sent.
    pub transferred: u64,
    /// Inputs that failed.
    pub failed: u64,
    /// Part of the time in which its executors ran, on average, 0 to 1.
    pub busy: f64,
    /// Part of the time in which their output was refused.
    pub blocked: f64,
    /// From the emit before a hop to its handler here, sampled tuples of all its streams. Nothing for spouts.
    pub queue_wait: Latency,
    /// In its handler, sampled tuples. Nothing for spouts.
    pub execute: Latency,
    /// Spouts: from the emit of a tracked tuple to the end of its tree, sampled tuples.
    pub complete: Latency,
    /// One in how many tuples was timed at the end.
    pub timed_one_in: u64,
    /// By stream.
    pub inputs: Vec<EdgeSummary>,
}

impl From<EdgeQuantiles> for EdgeSummary {
    fn from(e: EdgeQuantiles) -> Self {
        EdgeSummary { from: e.component.to_string(), stream: e.stream.to_string(), tuples: e.frames, queue_wait: e.queue_wait.into() }
    }
}

/// What became of tracked tuples.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Trees {
    /// Complete, and told to their spouts.
    pub acked: u64,
    /// Failed, and told to their spouts.
    pub failed: u64,
    /// Dropped because their spout task began anew after a panic.
    pub dropped: u64,
    /// Acks and failures that had nowhere to go. Zero in one process.
    pub acks_lost: u64,
}

/// What a whole run did.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// From the first spout call to the end of the last executor, seconds.
    pub elapsed_sec: f64,
    /// Tuples handled by last bolts.
    pub tuples: u64,
    /// Of them per second.
    pub rate_per_sec: f64,
    /// Spout emit to last bolt.
    pub latency: Latency,
    /// By component id.
    pub components: BTreeMap<String, ComponentSummary>,
    /// Frames that could not be delivered. Zero in one process.
    pub discarded: u64,
    /// Frames, and inputs that were still emitting, that failed so that a full cycle of executors went on.
    pub given_up: u64,
    /// What became of tracked tuples.
    pub trees: Trees,
    /// What went wrong on the way, one line each; at most the newest 1,024.
    pub errors: Vec<String>,
    /// All that was counted and timed, by executor and input edge.
    #[serde(skip)]
    pub metrics: MetricsSnapshot,
    /// Bytes the engine may take, by kind.
    #[serde(skip)]
    pub memory: Vec<(&'static str, u64)>,
    /// The histogram itself.
    #[serde(skip)]
    pub histogram_ns: hdrhistogram::Histogram<u64>,
}

/// Exit code after a second Ctrl-C.
const EXIT_INTERRUPTED: i32 = 130;
/// How often the end is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How often loops are looked at that may be held up in user code.
const WATCH_EVERY: Duration = Duration::from_millis(50);
/// Newest lines kept in `Summary::errors`.
const ERRORS_MAX: usize = 1024;
/// Progress lines on a terminal, and elsewhere.
const PROGRESS_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Runs a program to its end. The error is one line; a component that failed for good, or a plan that does not fit.
pub fn run(program: &Program, config: &Config, options: &RunOptions) -> crate::Result<Summary> {
    let plan = CorePlan::new(program, config, options)?;
    if options.plan {
        eprintln!("{plan}");
    }
    let engine = Engine::build(program, &plan.engine, false)?;
    let memory = engine.memory().to_vec();
    let interrupted = interrupted();
    let mut running = engine.start()?;
    let started = Instant::now();
    running.send_all(|| Command::Activate(true));

    let shared = running.shared.clone();
    let mut progress = Progress::new(options.quiet);
    let mut watch = Watch { loops: LoopWatch::new(&running, plan.engine.options.blocking_loops.clone(), started), next: started };
    let mut errors = Vec::new();
    let mut told_to_end = false;
    while !shared.ended() && shared.fatal.get().is_none() {
        let over = options.stop_after.is_some_and(|after| started.elapsed() >= after);
        if (interrupted.load(Ordering::Relaxed) || over) && !told_to_end {
            told_to_end = true;
            running.send_all(|| Command::EndSpouts);
        }
        running.end_cycles();
        progress.look(&shared, started);
        collect(&shared, &mut errors);
        watch.look(&running, &mut errors);
        std::thread::sleep(LOOK_EVERY);
    }
    let elapsed_sec = started.elapsed().as_secs_f64();
    let stopped = running.stop_with_metrics();
    progress.done();
    collect(&shared, &mut errors);
    let seen = stopped.map_err(|ErrorReport { component, text }| format!("{component}: {text}"))?;
    let summary = summarise(program, &plan.engine.layout, &shared, elapsed_sec, seen, errors, memory);
    if options.plan {
        let busy = summary.components.iter().map(|(id, c)| (id.clone(), c.busy)).collect();
        let measured = CorePlan::new(program, config, &RunOptions { busy, ..options.clone() })?;
        if !measured.same_places(&plan) {
            eprintln!("by the load that was measured:\n{measured}");
        }
    }
    Ok(summary)
}

/// A flag that the first Ctrl-C or SIGTERM sets; the second one ends the process, should the topology not end by itself.
fn interrupted() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // In this order: the first signal finds the flag down.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, EXIT_INTERRUPTED, flag.clone());
        let _ = signal_hook::flag::register(signal, flag.clone());
    }
    flag
}

fn collect(shared: &Shared, errors: &mut Vec<String>) {
    while let Some(report) = shared.reports.pop() {
        tell(errors, format!("{}: {}", report.component, report.text));
    }
}

fn tell(errors: &mut Vec<String>, line: String) {
    eprintln!("{line}");
    if errors.len() == ERRORS_MAX {
        errors.remove(0);
    }
    errors.push(line);
}

/// Looks whether user code holds up a loop. The others go on, so does this thread.
struct Watch {
    loops: LoopWatch,
    next: Instant,
}

impl Watch {
    fn look(&mut self, running: &Running, errors: &mut Vec<String>) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + WATCH_EVERY;
        for note in self.loops.look(running, now) {
            match note.component {
                Some(component) => tell(errors, format!("{component}: {}", note.text)),
                None => eprintln!("{}", note.text),
            }
        }
    }
}

/// What each component did so far.
pub(crate) fn components(shared: &Shared) -> BTreeMap<String, ComponentSummary> {
    let mut components: BTreeMap<String, ComponentSummary> = BTreeMap::new();
    for e in shared.executors().iter().filter(|e| !e.component.is_system()) {
        let c = components.entry(e.component.to_string()).or_default();
        c.executors += 1;
        if !c.cores.contains(&e.core) {
            c.cores.push(e.core);
        }
        c.executed += e.executed.load(Ordering::Relaxed);
        c.emitted += e.emitted.load(Ordering::Relaxed);
        c.transferred += e.transferred.load(Ordering::Relaxed);
        c.failed += e.failed.load(Ordering::Relaxed);
    }
    components
}

fn summarise(
    program: &Program,
    layout: &Layout,
    shared: &Shared,
    elapsed_sec: f64,
    (histogram_ns, metrics): (hdrhistogram::Histogram<u64>, MetricsSnapshot),
    errors: Vec<String>,
    memory: Vec<(&'static str, u64)>,
) -> Summary {
    let mut components = components(shared);
    for of in metrics.components() {
        let Some(c) = components.get_mut(of.component.as_str()) else { continue };
        (c.busy, c.blocked) = of.times.shares();
        (c.queue_wait, c.execute, c.complete) = (of.queue_wait.into(), of.execute.into(), of.complete.into());
        c.timed_one_in = of.one_in;
        c.inputs = of.edges.into_iter().map(EdgeSummary::from).collect();
    }
    let read = |id: &str| program.spec.components.iter().any(|c| c.inputs.iter().any(|i| i.from.as_str() == id));
    let last = |id: &str| layout.component(id).is_some_and(|c| c.kind == ComponentKind::Bolt) && !read(id);
    let tuples = components.iter().filter(|(id, _)| last(id)).map(|(_, c)| c.executed).sum();
    let latency = Quantiles::from(&histogram_ns).into();
    let of_loops = |counter: fn(&LoopStats) -> &AtomicU64| shared.loops.iter().map(|l| counter(l).load(Ordering::Relaxed)).sum::<u64>();
    let executors = shared.executors();
    let of_executors = |counter: fn(&ExecutorStats) -> &AtomicU64| executors.iter().map(|e| counter(e).load(Ordering::Relaxed)).sum();
    let trees = Trees {
        acked: of_executors(|e| &e.trees_acked),
        failed: of_executors(|e| &e.trees_failed),
        dropped: of_loops(|l| &l.trees_dropped),
        acks_lost: of_loops(|l| &l.acks_lost),
    };
    Summary {
        elapsed_sec,
        tuples,
        rate_per_sec: tuples as f64 / elapsed_sec.max(1e-9),
        latency,
        components,
        discarded: of_loops(|l| &l.discarded),
        given_up: of_loops(|l| &l.given_up),
        trees,
        errors,
        metrics,
        memory,
        histogram_ns,
    }
}

struct Progress {
    every: Option<Duration>,
    terminal: bool,
    next: Instant,
    shown: bool,
}

impl Progress {
    fn new(quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let every = if terminal { PROGRESS_EVERY.0 } else { PROGRESS_EVERY.1 };
        Progress { every: (!quiet).then_some(every), terminal, next: Instant::now() + every, shown: false }
    }

    fn look(&mut self, shared: &Shared, started: Instant) {
        let Some(every) = self.every.filter(|_| Instant::now() >= self.next) else { return };
        self.next += every;
        let executed: u64 = shared.executors().iter().map(|e| e.executed.load(Ordering::Relaxed)).sum();
        let secs = started.elapsed().as_secs_f64();
        let line = format!("{secs:7.1} s  {executed} handled  {:.0}/s", executed as f64 / secs);
        if self.terminal {
            eprint!("\r\x1b[2K{line}");
            self.shown = true;
        } else {
            eprintln!("{line}");
        }
    }

    fn done(&self) {
        if self.shown {
            eprint!("\r\x1b[2K");
        }
    }
}

/// Nanoseconds for people.
fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<16} {:>9} {:>9} {:>14} {:>14} {:>9}", "component", "executors", "cores", "executed", "emitted", "failed")?;
        for (id, c) in &self.components {
            let cores = c.cores.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            writeln!(f, "{id:<16} {:>9} {cores:>9} {:>14} {:>14} {:>9}", c.executors, c.executed, c.emitted, c.failed)?;
        }
        writeln!(
            f,
            "{:<16} {:>9} {:>9} {:>14} {:>14} {:>14} {:>14}",
            "", "busy", "blocked", "wait p50", "wait p99", "execute p50", "execute p99"
        )?;
        for (id, c) in &self.components {
            let percent = |share: f64| format!("{:.1} %", share * 100.0);
            let of = |l: &Latency, ns: u64| if l.samples == 0 { "-".to_owned() } else { time(ns) };
            let (w, e) = (&c.queue_wait, &c.execute);
            write!(f, "{id:<16} {:>9} {:>9} {:>14} {:>14}", percent(c.busy), percent(c.blocked), of(w, w.p50_ns), of(w, w.p99_ns))?;
            writeln!(f, " {:>14} {:>14}", of(e, e.p50_ns), of(e, e.p99_ns))?;
        }
        for (id, c) in self.components.iter().filter(|(_, c)| c.complete.samples > 0) {
            let l = &c.complete;
            writeln!(f, "{id}: emit to complete: p50 {}, p99 {} ({} sampled)", time(l.p50_ns), time(l.p99_ns), l.samples)?;
        }
        writeln!(f, "{} tuples in {:.3} s, {:.0} tuples/s", self.tuples, self.elapsed_sec, self.rate_per_sec)?;
        let l = &self.latency;
        write!(
            f,
            "spout emit to last bolt: p50 {}, p99 {}, p99.9 {}, max {} ({} sampled)",
            time(l.p50_ns),
            time(l.p99_ns),
            time(l.p99_9_ns),
            time(l.max_ns),
            l.samples
        )
    }
}
