//! What was decided: which executor runs where, by version. Written by the leader, read by supervisors and workers.

use crate::cluster::SlotId;
use crate::name::Name;
use crate::parallelism::ExecutorId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The assignment record of one topology (`assignments/<id>`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// Rises by one with each write. 0 = nothing was ever assigned.
    pub version: u64,
    /// SHA-256 of the topology's binary, hex.
    pub binary: String,
    /// Address of each node named below.
    pub hosts: BTreeMap<Name, String>,
    /// Workers: one entry per used slot.
    pub workers: Vec<Placement>,
}

/// One worker: a slot, its identity, and what it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// Where.
    pub slot: SlotId,
    /// Identity of this placement: random, new whenever a worker is placed in a slot it was not in before.
    pub id: u64,
    /// Place of the worker in the incarnation mask, fixed for the placement's life.
    pub index: u32,
    /// Cores granted, ascending; loop i of the worker runs on `cores[i]`.
    pub cores: Vec<u32>,
    /// Slots sharing a core with this one; 1 = alone.
    pub share: u32,
    /// Executors, ascending by first task.
    pub executors: Vec<ExecutorPlace>,
}

/// One executor in a worker.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ExecutorPlace {
    /// Which.
    pub id: ExecutorId,
    /// The core it runs on; one of the placement's cores.
    pub core: u32,
    /// When it was first placed here, milliseconds since 1970 (display only).
    pub started_ms: u64,
    /// True where the scheduler chose the core.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub planned: bool,
}

/// One executor whose slot differs between two assignments.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// Which.
    pub executor: ExecutorId,
    /// `None` = it was not placed.
    pub from: Option<SlotId>,
    /// `None` = it is no longer placed.
    pub to: Option<SlotId>,
}

impl Assignment {
    /// Slot of each placed executor.
    pub fn slots(&self) -> BTreeMap<ExecutorId, SlotId> {
        self.workers.iter().flat_map(|w| w.executors.iter().map(|e| (e.id, w.slot.clone()))).collect()
    }

    /// The placement in a slot.
    pub fn at(&self, slot: &SlotId) -> Option<&Placement> {
        self.workers.iter().find(|w| w.slot == *slot)
    }

    /// The placements on a node.
    pub fn on<'a>(&'a self, node: &'a Name) -> impl Iterator<Item = &'a Placement> + 'a {
        self.workers.iter().filter(move |w| w.slot.node == *node)
    }

    /// What moves from `self` to `next`, ascending by executor.
    pub fn diff(&self, next: &Assignment) -> Vec<Move> {
        let (old, new) = (self.slots(), next.slots());
        old.keys()
            .chain(new.keys())
            .copied()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .filter(|e| old.get(e) != new.get(e))
            .map(|e| Move { executor: e, from: old.get(&e).cloned(), to: new.get(&e).cloned() })
            .collect()
    }

    /// True when both say the same about executors and slots; version and start times do not count.
    pub fn same_places(&self, other: &Assignment) -> bool {
        self.binary == other.binary && self.diff(other).is_empty()
    }
}
