//! Who holds the ledgers of the tasks that open trees, and between which loops acks travel. Pure.
//!
//! Before: the description and where executors are. After: each loop's roads for acks, and the links that must exist for them.

use saetta_model::parallelism::{ExecutorId, Layout};
use saetta_model::topology::{ComponentKind, TopologySpec};
use std::collections::BTreeSet;

/// Of one topology. Says nothing where nothing is tracked, or without ackers.
#[derive(Debug, Clone)]
pub struct AckPlan {
    ackers: Vec<ExecutorId>,
    /// Executors whose tasks open trees, whether these are spouts, and those that may handle a tuple of them.
    owners: Vec<(ExecutorId, bool, Vec<ExecutorId>)>,
}

impl AckPlan {
    /// From a description and its layout.
    pub fn new(spec: &TopologySpec, layout: &Layout) -> Self {
        let ackers: Vec<ExecutorId> =
            layout.components.iter().filter(|c| c.kind == ComponentKind::Acker).flat_map(|c| c.executors.iter().copied()).collect();
        let of = |id: &str| layout.component(id).map(|c| c.executors.clone()).unwrap_or_default();
        let mut owners = Vec::new();
        for component in spec.components.iter().filter(|c| c.tracked && !ackers.is_empty()) {
            let mut downstream = BTreeSet::new();
            let mut next = vec![&component.id];
            while let Some(from) = next.pop() {
                let readers = spec.components.iter().filter(|c| c.inputs.iter().any(|i| i.from == *from)).map(|c| &c.id);
                next.extend(readers.filter(|id| downstream.insert(*id)));
            }
            let handlers: Vec<ExecutorId> = downstream.iter().flat_map(|id| of(id.as_str())).collect();
            let is_spout = component.kind == ComponentKind::Spout;
            owners.extend(of(component.id.as_str()).into_iter().map(|id| (id, is_spout, handlers.clone())));
        }
        AckPlan { ackers, owners }
    }

    /// Executors whose tasks open trees, and whether these are spouts.
    pub(crate) fn owners(&self) -> impl Iterator<Item = (ExecutorId, bool)> + '_ {
        self.owners.iter().map(|(id, is_spout, _)| (*id, *is_spout))
    }

    /// The loop whose acker holds the ledger of an owner task on `owner_loop`: in its own worker if there is one, there on the same loop if
    /// there is one; else the acker at the owner's number modulo their number. `None` without ackers, or while that one is placed nowhere.
    pub(crate) fn ledger_at<L: Copy + PartialEq>(
        &self,
        owner: u32,
        owner_loop: L,
        loop_of: impl Fn(ExecutorId) -> Option<L>,
        same_worker: impl Fn(L, L) -> bool,
    ) -> Option<L> {
        let near: Vec<L> = self.ackers.iter().filter_map(|id| loop_of(*id)).filter(|at| same_worker(*at, owner_loop)).collect();
        if near.contains(&owner_loop) {
            return Some(owner_loop);
        }
        let pick = |of: usize| owner as usize % of;
        if !near.is_empty() {
            return Some(near[pick(near.len())]);
        }
        self.ackers.get(pick(self.ackers.len().max(1))).and_then(|id| loop_of(*id))
    }

    /// Pairs of loops between which something of a tree may have to travel besides its tuples: between those who handle a tuple of it, its
    /// owner, and whoever holds its ledger. Each pair once, in either order.
    pub fn pairs<L: Copy + Ord>(&self, loop_of: impl Fn(ExecutorId) -> Option<L>, same_worker: impl Fn(L, L) -> bool) -> BTreeSet<(L, L)> {
        let mut pairs = BTreeSet::new();
        for (owner, _, handlers) in &self.owners {
            let Some(owner_loop) = loop_of(*owner) else { continue };
            let mut ends: BTreeSet<L> = owner.tasks().filter_map(|t| self.ledger_at(t, owner_loop, &loop_of, &same_worker)).collect();
            ends.insert(owner_loop);
            let others: BTreeSet<L> = handlers.iter().filter_map(|id| loop_of(*id)).chain([owner_loop]).collect();
            pairs.extend(ends.iter().flat_map(|end| others.iter().map(|other| (*end.min(other), *end.max(other)))));
        }
        pairs.retain(|(one, two)| one != two);
        pairs
    }
}
