//! From hints to tasks, executors and workers: semantics section 2, exactly.
//!
//! Before: a checked [`TopologySpec`] and its configuration. After: [`Layout`], which every process derives alike:
//! nimbus to schedule, a worker to build its engine, `status` to print.

use crate::config::Config;
use crate::name::Name;
use crate::topology::{ACKER, ComponentKind, SpecError, TASKS_MAX, TopologySpec};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Executors of one component hold consecutive tasks: `[first, last]`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ExecutorId {
    /// First task, counted from 1 over the topology.
    pub first: u32,
    /// Last task.
    pub last: u32,
}

impl ExecutorId {
    /// Tasks of this executor.
    pub fn tasks(self) -> std::ops::RangeInclusive<u32> {
        self.first..=self.last
    }
    /// How many.
    pub fn n_tasks(self) -> u32 {
        self.last - self.first + 1
    }
}

impl fmt::Display for ExecutorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "[{}]", self.first) } else { write!(f, "[{}-{}]", self.first, self.last) }
    }
}

/// One component with its numbers settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentLayout {
    /// Component id; the acker's is `__acker`.
    pub id: Name,
    /// Spout, bolt or acker.
    pub kind: ComponentKind,
    /// First task id.
    pub first_task: u32,
    /// Tasks, fixed for the topology's life.
    pub n_tasks: u32,
    /// Executors, ascending by first task.
    pub executors: Vec<ExecutorId>,
}

/// The arithmetic of one topology. Components sorted by id (byte order, so `__acker` comes before letters and after digits).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Components, sorted by id.
    pub components: Vec<ComponentLayout>,
    /// `topology.workers`.
    pub workers_wanted: u32,
    /// Things the operator should know: caps that took effect.
    pub notes: Vec<String>,
}

impl Layout {
    /// Settles tasks, executors and ackers. `config` is the topology's, merged.
    pub fn new(spec: &TopologySpec, config: &Config) -> Result<Self, SpecError> {
        spec.check()?;
        let cap = config.u32("topology.max.task.parallelism");
        let workers_wanted = config.u32("topology.workers").expect("topology.workers has a default");
        let ackers = config.u32("topology.acker.executors").unwrap_or(workers_wanted);

        let mut notes = Vec::new();
        let mut wanted: Vec<(Name, ComponentKind, u32, u32)> = Vec::new();
        for c in &spec.components {
            let own_tasks = c.tasks.or(config.u32("topology.tasks"));
            let (hint, tasks) = (c.executors, own_tasks.unwrap_or(c.executors));
            let capped = |n: u32| cap.map_or(n, |m| n.min(m));
            if capped(tasks) < tasks || capped(hint) < hint {
                notes.push(format!(
                    "component `{}`: {tasks} tasks and {hint} executors capped at topology.max.task.parallelism = {}",
                    c.id,
                    cap.unwrap_or(0)
                ));
            }
            let (tasks, executors) = (capped(tasks), capped(hint));
            if executors > tasks {
                return Err(SpecError(format!(
                    "component `{}` asks for {executors} executors but has {tasks} tasks; an executor needs at least one task: raise its tasks to {executors} or lower its executors to {tasks}",
                    c.id
                )));
            }
            wanted.push((c.id.clone(), c.kind, tasks, executors));
        }
        if ackers > 0 {
            wanted.push((Name::system(ACKER), ComponentKind::Acker, ackers, ackers));
        }
        wanted.sort_by(|a, b| a.0.cmp(&b.0));

        let total: u64 = wanted.iter().map(|w| u64::from(w.2)).sum();
        if total > u64::from(TASKS_MAX) {
            return Err(SpecError(format!("{total} tasks, at most {TASKS_MAX} are allowed")));
        }
        let mut next_task = 1;
        let components = wanted
            .into_iter()
            .map(|(id, kind, n_tasks, n_executors)| {
                let first_task = next_task;
                next_task += n_tasks;
                ComponentLayout { id, kind, first_task, n_tasks, executors: split_tasks(first_task, n_tasks, n_executors) }
            })
            .collect();
        Ok(Layout { components, workers_wanted, notes })
    }

    /// All executors with the index of their component, ascending by first task.
    pub fn executors(&self) -> impl Iterator<Item = (usize, ExecutorId)> + '_ {
        self.components.iter().enumerate().flat_map(|(i, c)| c.executors.iter().map(move |e| (i, *e)))
    }

    /// How many executors, ackers included.
    pub fn n_executors(&self) -> u32 {
        self.components.iter().map(|c| c.executors.len() as u32).sum()
    }

    /// How many tasks, ackers included.
    pub fn n_tasks(&self) -> u32 {
        self.components.iter().map(|c| c.n_tasks).sum()
    }

    /// The component that holds a task.
    pub fn component_of(&self, task: u32) -> Option<&ComponentLayout> {
        self.components.iter().find(|c| task >= c.first_task && task < c.first_task + c.n_tasks)
    }

    /// The component with this id.
    pub fn component(&self, id: &str) -> Option<&ComponentLayout> {
        self.components.iter().find(|c| c.id.as_str() == id)
    }

    /// The limits `nimbus.slots.perTopology` and `nimbus.executors.perTopology`, checked at submit and at rebalance.
    pub fn check_limits(&self, slots_max: Option<u32>, executors_max: Option<u32>) -> Result<(), SpecError> {
        if let Some(max) = slots_max.filter(|max| self.workers_wanted > *max) {
            return Err(SpecError(format!(
                "it asks for {} workers, and nimbus.slots.perTopology allows {max}; lower topology.workers or have the limit raised",
                self.workers_wanted
            )));
        }
        if let Some(max) = executors_max.filter(|max| self.n_executors() > *max) {
            return Err(SpecError(format!(
                "it asks for {} executors (ackers included), and nimbus.executors.perTopology allows {max}; lower the parallelism or have the limit raised",
                self.n_executors()
            )));
        }
        Ok(())
    }
}

/// T tasks in n executors: base = T div n, r = T mod n; the first r executors have base + 1 tasks, contiguous, ascending.
pub fn split_tasks(first_task: u32, n_tasks: u32, n_executors: u32) -> Vec<ExecutorId> {
    assert!(n_executors >= 1 && n_executors <= n_tasks, "an executor needs at least one task");
    let (base, extra) = (n_tasks / n_executors, n_tasks % n_executors);
    let mut first = first_task;
    (0..n_executors)
        .map(|i| {
            let n = base + u32::from(i < extra);
            let id = ExecutorId { first, last: first + n - 1 };
            first += n;
            id
        })
        .collect()
}
