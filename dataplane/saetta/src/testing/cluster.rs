//! Several topologies in this process, each on real loops on real threads: a cluster for tests that need no machines.
//!
//! Before: topologies. After: each runs until it ends by itself, is killed, or the cluster is dropped. No loop is pinned and none spins:
//! tests share their cores with each other.

use crate::core_plan::CorePlan;
use crate::run::{ComponentSummary, components};
use crate::topology::Topology;
use saetta_engine::{Command, Engine, ErrorReport, Running, Shared, WaitMode};
use saetta_model::config::{Config, Source};
use saetta_model::name::nearest;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a condition is looked at. Bounded waiting only: nothing is taken to have happened because this time has passed.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long spouts and bolts of a killed topology get to finish.
const FINISH_MAX: Duration = Duration::from_secs(30);
/// Newest reports kept per topology.
const ERRORS_MAX: usize = 1024;

/// Topologies that run in this process. See [`FeederSpout`](super::FeederSpout) for an example. Dropped, it stops them all.
#[derive(Default)]
pub struct LocalCluster {
    topologies: Mutex<BTreeMap<String, LocalTopology>>,
}

/// One topology of a [`LocalCluster`]. Clones are one topology.
#[derive(Clone)]
pub struct LocalTopology(Arc<Inner>);

struct Inner {
    name: String,
    shared: Arc<Shared>,
    /// Gone once it was stopped.
    running: Mutex<Option<Running>>,
    errors: Mutex<Vec<String>>,
}

/// What a topology did so far.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// By component id.
    pub components: BTreeMap<String, ComponentSummary>,
    /// What components reported, one line each; the newest 1,024.
    pub errors: Vec<String>,
}

impl Metrics {
    /// One component's; zeros when there is none of this id.
    pub fn component(&self, id: &str) -> ComponentSummary {
        self.components.get(id).cloned().unwrap_or_default()
    }
}

impl LocalCluster {
    /// With no topology yet.
    pub fn start() -> Self {
        Self::default()
    }

    /// Starts a topology under a name that no other topology here has.
    pub fn submit(&self, name: &str, topology: Topology) -> crate::Result<LocalTopology> {
        self.submit_with(name, topology, &[])
    }

    /// As [`LocalCluster::submit`] with configuration: pairs like `("topology.max.spout.pending", "10")`, which win over the topology's own.
    pub fn submit_with(&self, name: &str, topology: Topology, config: &[(&str, &str)]) -> crate::Result<LocalTopology> {
        let mut all = self.all();
        if all.contains_key(name) {
            return Err(format!("topology `{name}` runs already; kill it first, or take another name").into());
        }
        let program = topology.build()?;
        let mut settled = Config::topology(&program.config, Source::Code)?;
        for (key, value) in config {
            settled.set(key, value, Source::Set)?;
        }
        let mut plan = CorePlan::new(&program, &settled, &Default::default())?.engine;
        plan.options.pinned = false;
        plan.options.alone = false;
        plan.options.wait = WaitMode::Park;
        let running = Engine::build(&program, &plan, false)?.start()?;
        running.send_all(|| Command::Activate(true));
        let shared = running.shared.clone();
        let inner = Inner { name: name.to_owned(), shared, running: Mutex::new(Some(running)), errors: Mutex::default() };
        let topology = LocalTopology(Arc::new(inner));
        all.insert(name.to_owned(), topology.clone());
        Ok(topology)
    }

    /// A running topology by its name. The error names those there are.
    pub fn topology(&self, name: &str) -> crate::Result<LocalTopology> {
        let all = self.all();
        all.get(name).cloned().ok_or_else(|| {
            let near = nearest(name, all.keys().map(String::as_str)).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let names = all.keys().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
            format!("no topology `{name}` runs here{near} (topologies: {names})").into()
        })
    }

    /// Ends a topology: its spouts stop, what was emitted is handled, bolts finish. Returns what it did. The error is why it could not end
    /// well; it is gone in any case.
    pub fn kill(&self, name: &str) -> crate::Result<Metrics> {
        let topology = self.topology(name)?;
        self.all().remove(name);
        topology.end()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, LocalTopology>> {
        self.topologies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        for topology in self.all().values() {
            let _ = topology.stop();
        }
    }
}

impl LocalTopology {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its counters and reports.
    pub fn metrics(&self) -> Metrics {
        let mut errors = self.0.errors.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(report) = self.0.shared.reports.pop() {
            if errors.len() == ERRORS_MAX {
                errors.remove(0);
            }
            errors.push(format!("{}: {}", report.component, report.text));
        }
        Metrics { components: components(&self.0.shared), errors: errors.clone() }
    }

    /// Waits until `condition` holds and returns the counters it held for. The error is that it did not within `limit`, with the counters, or
    /// that a component ended the topology.
    pub fn wait_until(&self, limit: Duration, condition: impl Fn(&Metrics) -> bool) -> crate::Result<Metrics> {
        let deadline = Instant::now() + limit;
        loop {
            let over = Instant::now() >= deadline;
            if let Some(running) = &mut *self.0.running.lock().unwrap_or_else(PoisonError::into_inner) {
                running.end_cycles();
            }
            let metrics = self.metrics();
            if condition(&metrics) {
                return Ok(metrics);
            }
            if let Some(ErrorReport { component, text }) = self.0.shared.fatal.get() {
                return Err(format!("topology `{}`: component `{component}` ended it: {text}", self.0.name).into());
            }
            if over {
                return Err(format!("topology `{}`: not so within {limit:?}; it has {metrics:?}", self.0.name).into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// True once every task has ended.
    pub fn ended(&self) -> bool {
        self.0.shared.ended()
    }

    /// Spouts are asked for tuples again.
    pub fn activate(&self) {
        self.send(|| Command::Activate(true));
    }

    /// Spouts are not asked for tuples any more; bolts go on. Returns when no loop asks; the error is that one is stuck in a component.
    pub fn deactivate(&self) -> crate::Result<()> {
        let turns = || self.0.shared.loops.iter().map(|l| l.turns.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let before = turns();
        self.send(|| Command::Activate(false));
        // The turn under way may be an old one; the one after it begins with commands. A loop that was asked takes both before it parks.
        let obeyed =
            |_: &Metrics| self.0.shared.fatal.get().is_some() || turns().iter().zip(&before).all(|(now, before)| *now >= before + 2);
        self.wait_until(FINISH_MAX, obeyed).map(drop)
    }

    fn send(&self, command: impl Fn() -> Command) {
        if let Some(running) = &*self.0.running.lock().unwrap_or_else(PoisonError::into_inner) {
            running.send_all(command);
        }
    }

    fn end(&self) -> crate::Result<Metrics> {
        self.send(|| Command::EndSpouts);
        let finished = self.wait_until(FINISH_MAX, |_| self.ended());
        self.stop()?;
        finished.map_err(|why| format!("it was killed and did not finish by itself: {why}").into())
    }

    fn stop(&self) -> crate::Result<()> {
        let running = self.0.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        match running.map(Running::stop) {
            Some(Err(ErrorReport { component, text })) => {
                Err(format!("topology `{}`: component `{component}` ended it: {text}", self.0.name).into())
            }
            _ => Ok(()),
        }
    }
}
