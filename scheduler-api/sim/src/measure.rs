//! A placement in numbers: how far tuples travel, how evenly workers are filled, what moves.
//!
//! Before: a snapshot and the slot of each executor after a round, validated. After: [`Figures`]. Pure.

use saetta_sdk::snapshot::Snapshot;
use saetta_sdk::{abi, locality};
use serde::Serialize;
use std::collections::BTreeMap;

/// A placement in numbers.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Executors there are.
    pub executors: usize,
    /// Those with a slot.
    pub scheduled: usize,
    /// Topologies of which every executor has a slot.
    pub topologies_whole: usize,
    /// Running executors that are somewhere else now, or nowhere.
    pub moves: usize,
    /// Workers.
    pub workers: usize,
    /// Machines with a worker.
    pub nodes: usize,
    /// Executors in a topology's fullest worker over the mean of its workers, the mean over topologies; 1 = even, 0 = nothing is placed.
    pub balance: f64,
    /// How far tuples travel: `saetta_sdk::locality`. An executor without a slot is far from all.
    pub locality_cost: f64,
}

/// Measures `after` against the snapshot it is the answer to.
pub fn figures(snapshot: &Snapshot<'_>, after: &[u32]) -> Figures {
    let before = snapshot.executors().iter().map(|e| e.slot);
    let moves = before.zip(after).filter(|(b, a)| *b != abi::NONE && b != *a).count();
    let (mut balance, mut n_balanced, mut whole) = (0.0, 0, 0);
    let mut used = std::collections::BTreeSet::new();
    for t in snapshot.topologies().iter() {
        let slots = &after[t.first_exec as usize..(t.first_exec + t.n_execs) as usize];
        let mut sizes: BTreeMap<u32, usize> = BTreeMap::new();
        slots.iter().filter(|s| **s != abi::NONE).for_each(|s| *sizes.entry(*s).or_default() += 1);
        let placed: usize = sizes.values().sum();
        whole += usize::from(placed == slots.len());
        if let Some(most) = sizes.values().max() {
            balance += (most * sizes.len()) as f64 / placed as f64;
            n_balanced += 1;
        }
        used.extend(sizes.into_keys());
    }
    let nodes: std::collections::BTreeSet<u32> = used.iter().map(|s| snapshot.slots().get(*s as usize).node).collect();
    Figures {
        executors: after.len(),
        scheduled: after.iter().filter(|s| **s != abi::NONE).count(),
        topologies_whole: whole,
        moves,
        workers: used.len(),
        nodes: nodes.len(),
        balance: if n_balanced == 0 { 0.0 } else { balance / f64::from(n_balanced) },
        locality_cost: locality::cost(snapshot, after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use saetta_sdk::testing::{Cluster, Component, Topology};

    #[test]
    fn balance_is_the_fullest_worker_over_the_mean() {
        let topology = Topology::new("x").workers(2).with(Component::spout("s", 4));
        let bytes = Cluster::new().nodes(1, |n| n.slots(2)).topology(topology).pack();
        let snapshot = Snapshot::new(&bytes).unwrap();
        assert_eq!(figures(&snapshot, &[0, 0, 1, 1]).balance, 1.0);
        assert_eq!(figures(&snapshot, &[0, 0, 0, 1]).balance, 1.5);
        let none = figures(&snapshot, &[abi::NONE; 4]);
        assert_eq!((none.balance, none.scheduled, none.topologies_whole), (0.0, 0, 0));
    }
}
