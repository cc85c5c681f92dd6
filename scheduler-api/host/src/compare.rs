//! Two plans for one cluster side by side: what a shadow would do, or a plugin that is about to take over. Pure.

use crate::process::Answer;
use crate::validate::{Rules, View, validate};
use saetta_sdk::abi;
use saetta_sdk::snapshot::Snapshot;
use serde::Serialize;
use std::collections::BTreeMap;

/// One plan in numbers, counted over what the validator takes of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Figures {
    /// Executors with a slot.
    pub placed: u32,
    /// Executors without.
    pub unscheduled: u32,
    /// Running executors that would be somewhere else, or nowhere.
    pub moves: u32,
    /// Topologies whose part is refused, with the rule.
    pub refused: Vec<String>,
    /// Most executors in a worker, less the least, over all topologies.
    pub imbalance: u32,
    /// Pairs of executors that may exchange tuples and are on different nodes, of a thousand such pairs; 0 where there is none.
    pub remote_per_mille: u32,
}

/// What is taken of a plan: the slots after it, and what is refused with the rule.
pub fn judge(snapshot: &Snapshot<'_>, answer: &Answer, rules: &Rules) -> (Vec<u32>, Vec<String>) {
    let view = View::new(snapshot);
    let mut after: Vec<u32> = view.execs.iter().map(|e| e.slot).collect();
    let mut refused = Vec::new();
    for (t, verdict) in validate(snapshot, answer, rules).into_iter().enumerate() {
        match verdict {
            Ok(()) => view.execs_of(t).for_each(|e| after[e] = answer.slot_of_exec[e]),
            Err(why) => refused.push(format!("{}: {why}", snapshot.text(view.topologies[t].id))),
        }
    }
    (after, refused)
}

/// The figures of a plan by the slots after it.
pub fn figures(snapshot: &Snapshot<'_>, after: &[u32], refused: Vec<String>) -> Figures {
    let view = View::new(snapshot);
    let spread = |t: usize| {
        let workers = view.workers(t, after);
        let sizes = || workers.iter().map(|(_, execs)| execs.len() as u32);
        sizes().max().unwrap_or(0) - sizes().min().unwrap_or(0)
    };
    Figures {
        placed: after.iter().filter(|s| **s != abi::NONE).count() as u32,
        unscheduled: after.iter().filter(|s| **s == abi::NONE).count() as u32,
        moves: (0..after.len()).filter(|e| view.is_moved(*e, after[*e])).count() as u32,
        refused,
        imbalance: (0..view.topologies.len()).map(spread).max().unwrap_or(0),
        remote_per_mille: remote_per_mille(&view, after),
    }
}

/// Two plans for the same cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// What is committed, or would be.
    pub live: Figures,
    /// What the other scheduler would do.
    pub other: Figures,
    /// Executors that would be in different slots.
    pub differing: u32,
}

/// Compares what was decided with another answer. `live` has the slot of each executor after the round.
pub fn compare(snapshot: &Snapshot<'_>, live: &[u32], answer: &Answer, rules: &Rules) -> Comparison {
    let (after, refused) = judge(snapshot, answer, rules);
    let differing = live.iter().zip(&after).filter(|(a, b)| a != b).count() as u32;
    Comparison { live: figures(snapshot, live, Vec::new()), other: figures(snapshot, &after, refused), differing }
}

/// By counting executors of each component on each node, so that the cost is edges x nodes and not pairs.
fn remote_per_mille(view: &View<'_>, after: &[u32]) -> u32 {
    let mut on_node: BTreeMap<u32, BTreeMap<u32, u64>> = BTreeMap::new();
    for (e, row) in view.execs.iter().enumerate().filter(|(e, _)| after[*e] != abi::NONE) {
        *on_node.entry(row.component).or_default().entry(view.slots[after[e] as usize].node).or_default() += 1;
    }
    let (mut pairs, mut near) = (0u64, 0u64);
    for edge in view.snapshot.edges().iter() {
        if let (Some(from), Some(to)) = (on_node.get(&edge.from), on_node.get(&edge.to)) {
            pairs += from.values().sum::<u64>() * to.values().sum::<u64>();
            near += from.iter().map(|(node, n)| n * to.get(node).copied().unwrap_or(0)).sum::<u64>();
        }
    }
    ((pairs - near) * 1000).checked_div(pairs).unwrap_or(0) as u32
}
