//! What a run tells about itself: busy, idle and back-pressured time, counts per edge, waiting and execute times; also while it runs.

#![allow(missing_docs, reason = "tuples of a test")]

use saetta::prelude::*;
use saetta::{RunOptions, run};
use saetta_engine::metrics::{MetricsSnapshot, Times};
use saetta_engine::{Command, Engine, EnginePlan, Options, PlannedExecutor};
use saetta_model::config::{Config, Owner};
use saetta_model::parallelism::Layout;
use std::time::{Duration, Instant};

#[tuple]
pub struct Number {
    pub n: u64,
}
stream!(pub Odd: Number);

struct Numbers(std::ops::Range<u64>);
impl Emits<Number> for Numbers {}
impl Emits<Odd> for Numbers {}
impl Spout for Numbers {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        let Some(n) = self.0.next() else { return Ok(Done) };
        if n % 3 == 0 {
            cx.emit_on::<Odd, _>(&Number { n });
        } else {
            cx.emit(&Number { n });
        }
        Ok(Busy)
    }
}

/// Hands numbers on, and works `spins` for each.
struct Work(u32);
impl Emits<Number> for Work {}
impl Bolt for Work {}
impl Work {
    fn work(&self) {
        (0..self.0).for_each(|_| std::hint::spin_loop());
    }
}
impl Handle<Number> for Work {
    fn on(&mut self, t: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        self.work();
        cx.emit(&Number { n: t.n() });
        Ok(())
    }
}
impl Handle<Odd> for Work {
    fn on(&mut self, t: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        self.work();
        cx.emit(&Number { n: t.n() });
        Ok(())
    }
}

struct Last;
impl Bolt for Last {}
impl Handle<Number> for Last {
    fn on(&mut self, _: &ArchivedNumber, _: &mut Cx<'_, Self>) -> Outcome {
        Ok(())
    }
}

fn chain(n: u64, spins: u32) -> Topology {
    let mut t = Topology::new();
    let mut numbers = t.spout("numbers", move || Numbers(0..n));
    let (plain, odd) = (numbers.stream::<Number>(), numbers.stream::<Odd>());
    let work = t.bolt("work", move || Work(spins)).input(&plain, Shuffle).input(&odd, Shuffle).executors(2).stream::<Number>();
    let _ = t.bolt("last", || Last).input(&work, Shuffle);
    t
}

fn started(n: u64, spins: u32, n_loops: usize) -> saetta_engine::Running {
    let program = chain(n, spins).build().unwrap();
    let config = Config::new(Owner::Topology);
    let layout = Layout::new(&program.spec, &config).unwrap();
    let executors = layout.executors().enumerate().map(|(i, (_, id))| PlannedExecutor { id, on_loop: i % n_loops }).collect();
    let options = Options { pinned: false, ..Options::from_config(&config).unwrap() };
    let plan = EnginePlan { layout, cores: (0..n_loops as u32).collect(), executors, remotes: Vec::new(), options };
    let running = Engine::build(&program, &plan, false).unwrap().start().unwrap();
    running.send_all(|| Command::Activate(true));
    running
}

/// In a real run of two loops each loop and each executor is somewhere all the time, and nowhere twice.
#[test]
fn busy_idle_and_blocked_are_the_time_that_passed() {
    let start = Instant::now();
    let running = started(200_000, 20, 2);
    let shared = running.shared.clone();
    while !shared.ended() {
        std::thread::yield_now();
        assert!(start.elapsed() < Duration::from_secs(60), "it does not end");
    }
    let (_, metrics) = running.stop_with_metrics().unwrap();
    let passed_ns = start.elapsed().as_nanos() as u64;
    assert_eq!(metrics.loops.len(), 2);
    let near = |times: Times, wall_ns: u64| (0.98..=1.02).contains(&(times.sum_ns() as f64 / wall_ns as f64));
    for of in &metrics.loops {
        assert!(near(of.times, of.wall_ns), "{of:?}");
        assert!(of.wall_ns > 0 && of.wall_ns <= passed_ns, "{of:?} of {passed_ns}");
        assert!(of.times.busy_ns > 0, "{of:?}");
    }
    for e in metrics.executors.iter().filter(|e| !e.component.is_system()) {
        let on = shared.loops.iter().position(|l| l.executors().iter().any(|s| s.id == e.id)).unwrap();
        assert!(near(e.times, metrics.loops[on].wall_ns), "{} {:?} of {:?}", e.component, e.times, metrics.loops[on]);
        assert!(e.times.busy_ns > 0, "{} was never busy", e.component);
        assert!(e.times.busy_ns <= metrics.loops[on].times.busy_ns, "an executor runs only while its loop does");
    }
}

fn edge(metrics: &MetricsSnapshot, component: &str, stream: &str) -> u64 {
    let components = metrics.components();
    let found = components.iter().find(|c| c.component.as_str() == component).unwrap();
    found.edges.iter().find(|e| e.stream.as_str() == stream).unwrap().frames
}

#[test]
fn counts_per_edge_are_the_frames_whatever_is_asked_meanwhile() {
    const N: u64 = 300_000;
    let mut running = started(N, 0, 2);
    let (shared, start) = (running.shared.clone(), Instant::now());
    let (mut answers, mut seen) = (0, 0);
    while !shared.ended() {
        for reader in &mut running.readers {
            reader.ask();
            answers += u32::from(reader.collect());
        }
        let now = MetricsSnapshot::of(&running.readers);
        let handled = edge(&now, "last", "Number");
        assert!(handled >= seen, "a count went back");
        seen = handled;
        std::thread::yield_now();
        assert!(start.elapsed() < Duration::from_secs(60), "it does not end");
    }
    let (_, metrics) = running.stop_with_metrics().unwrap();
    assert_eq!(edge(&metrics, "work", "Odd"), N / 3);
    assert_eq!(edge(&metrics, "work", "Number"), N - N / 3);
    assert_eq!(edge(&metrics, "last", "Number"), N);
    for e in &metrics.executors {
        let stats = shared.executors().into_iter().find(|s| s.id == e.id).unwrap();
        let executed = stats.executed.load(std::sync::atomic::Ordering::Relaxed);
        let by_edge: u64 = e.edges.iter().map(|edge| edge.frames).sum();
        assert!(e.edges.is_empty() || by_edge == executed, "{} {}: {by_edge} of {executed} after {answers} answers", e.component, e.id);
    }
    let sampled = metrics.executors.iter().find(|e| e.component.as_str() == "last").unwrap();
    let waits: u64 = sampled.edges.iter().map(|e| e.queue_wait_ns.len()).sum();
    assert!(waits > 0 && waits == sampled.execute_ns.len(), "{waits} waits, {} executions", sampled.execute_ns.len());
    assert!(sampled.end_to_end_ns.as_ref().unwrap().len() >= waits);
}

#[test]
fn a_summary_shows_each_component_s_times_for_people_and_for_programs() {
    let program = chain(50_000, 100).build().unwrap();
    let summary = run(&program, &Config::new(Owner::Topology), &RunOptions { quiet: true, ..RunOptions::default() }).unwrap();
    let work = &summary.components["work"];
    assert!(work.busy > 0.0 && work.busy + work.blocked <= 1.0 + 1e-9, "{work:?}");
    assert!(work.execute.samples > 0 && work.execute.p50_ns > 0 && work.queue_wait.p99_ns >= work.queue_wait.p50_ns, "{work:?}");
    assert_eq!(work.inputs.iter().map(|e| e.tuples).sum::<u64>(), work.executed);
    assert_eq!(summary.components["numbers"].execute.samples, 0, "calls of a spout are not timed");
    let text = summary.to_string();
    assert!(text.contains("wait p99") && text.contains(" %"), "{text}");
    let json = serde_json::to_value(&summary).unwrap();
    assert!(json["components"]["work"]["execute"]["p50_ns"].as_u64().unwrap() > 0, "{json}");
    assert!(json["components"]["work"]["inputs"][0]["queue_wait"]["samples"].is_u64(), "{json}");
}
