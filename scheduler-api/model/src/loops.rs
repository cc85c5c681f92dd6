//! From cores to loops: which loop of a worker an executor runs on. Pure, and the same in every worker, since both ends of a link number
//! the loops of a placement by it.
//!
//! Before: an executor has its core (`cores.rs`, or an assignment). After: an engine's plan, and the links between workers.

use crate::config::Config;
use crate::parallelism::{ExecutorId, Layout};
use crate::topology::{ComponentSpec, TopologySpec};
use std::collections::{BTreeMap, BTreeSet};

/// `worker.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// One loop per core runs all executors placed there.
    #[default]
    Shared,
    /// One loop per executor; loops share cores when they outnumber them.
    Dedicated,
}

/// How a topology's executors are given loops.
#[derive(Debug, Clone, Default)]
pub struct LoopRule {
    /// Which mode.
    pub mode: Mode,
    /// Executors of components that block: each has a loop of its own, in either mode.
    pub blocking: BTreeSet<ExecutorId>,
}

/// The loops of one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loops {
    /// Core of each loop; in mode `dedicated`, and where components block, a core has several.
    pub cores: Vec<u32>,
    /// Loop of each executor.
    pub of: BTreeMap<ExecutorId, usize>,
    /// Loops of components that block: they wait by parking.
    pub blocking: Vec<usize>,
}

/// `executor.blocking` of a component: its own, else the topology's.
pub fn blocks(component: &ComponentSpec, config: &Config) -> bool {
    let own = component.config.get("executor.blocking").map(String::as_str);
    own.or(config.text("executor.blocking")) == Some("true")
}

impl LoopRule {
    /// What the configuration says. Ackers never block.
    pub fn new(spec: &TopologySpec, layout: &Layout, config: &Config) -> Self {
        let mode = match config.text("worker.mode").expect("has a built-in value") {
            "dedicated" => Mode::Dedicated,
            _ => Mode::Shared,
        };
        let blocking = spec.components.iter().filter(|c| blocks(c, config)).filter_map(|c| layout.component(c.id.as_str()));
        LoopRule { mode, blocking: blocking.flat_map(|l| l.executors.iter().copied()).collect() }
    }

    /// The loops of a worker with these cores and executors, each with its core. First one per core (`shared`), then one per executor that
    /// needs its own, ascending. The error is an executor whose core is not the worker's.
    pub fn loops(&self, cores: &[u32], executors: impl IntoIterator<Item = (ExecutorId, u32)>) -> Result<Loops, ExecutorId> {
        let executors: BTreeMap<ExecutorId, u32> = executors.into_iter().collect();
        let shared = self.mode == Mode::Shared;
        let mut loops = Loops { cores: if shared { cores.to_vec() } else { Vec::new() }, of: BTreeMap::new(), blocking: Vec::new() };
        for (id, core) in executors {
            let at = cores.iter().position(|c| *c == core).ok_or(id)?;
            let blocks = self.blocking.contains(&id);
            if shared && !blocks {
                loops.of.insert(id, at);
                continue;
            }
            loops.of.insert(id, loops.cores.len());
            if blocks {
                loops.blocking.push(loops.cores.len());
            }
            loops.cores.push(core);
        }
        Ok(loops)
    }
}
