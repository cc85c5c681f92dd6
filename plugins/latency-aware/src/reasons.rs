//! Why executors are where they are, for those who ask: with whom each exchanges its bytes, and what that costs.
//!
//! Before: the placement of a round. After: one reason for each executor.

use crate::machines::Machines;
use crate::pass::Topo;
use saetta_sdk::deal::{Board, Share};
use saetta_sdk::{Explanation, Round, SlotId, abi};
use std::collections::BTreeMap;

/// What an executor's score is made of: bytes per second with whom.
const PARTS: [&str; 3] = ["same worker", "same node", "other nodes"];

/// Executors of each group, by slot.
type Counts = BTreeMap<SlotId, Vec<i128>>;

pub(crate) fn explain(round: &Round<'_>, machines: &Machines, topo: &Topo, board: &Board<'_>, share: &Share) {
    let n_groups = topo.traffic.comp.len();
    let mut counts = Counts::new();
    for (exec, _) in round.snapshot.executors_of(&share.row) {
        if let Some(slot) = board.slot_of(exec) {
            counts.entry(slot).or_insert_with(|| vec![0; n_groups])[topo.group(share, exec)] += 1;
        }
    }
    for (exec, e) in round.snapshot.executors_of(&share.row) {
        let (group, now) = (topo.group(share, exec), board.slot_of(exec));
        let code = match board.why(share, exec, &e) {
            abi::WHY_BEST_SCORE => abi::WHY_AFFINITY,
            abi::WHY_NO_SLOT if !counts.is_empty() => topo.limits.as_ref().map_or(abi::WHY_NO_SLOT, |l| l.why_none(group)),
            code => code,
        };
        let plain = Explanation::new(exec, now, code);
        match now {
            None => round.explain(&plain),
            Some(slot) => {
                let (bytes, cost) = exchanged(machines, topo, &counts, group, slot);
                let parts: Vec<(&str, i64)> = PARTS.into_iter().zip(bytes.map(narrow)).collect();
                round.explain(&Explanation { score: narrow(-cost), parts: &parts, ..plain });
            }
        }
    }
}

fn narrow(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX })
}

/// What an executor of a group in a slot exchanges with its worker, the rest of its node, and other nodes; and what that costs. All in
/// thousandths of bytes per second.
fn exchanged(machines: &Machines, topo: &Topo, counts: &Counts, group: usize, slot: SlotId) -> ([i128; 3], i128) {
    let (mut parts, mut cost) = ([0; 3], 0);
    for (other, n) in counts {
        let is_near = machines.seat(*other).node == machines.seat(slot).node;
        let bytes: i128 = n.iter().enumerate().map(|(h, n)| topo.traffic.bytes.get(group, h) * n).sum();
        // It does not talk to itself.
        let own = if *other == slot { topo.traffic.bytes.get(group, group) } else { 0 };
        parts[if *other == slot { 0 } else { 2 - usize::from(is_near) }] += bytes - own;
        cost += bytes * machines.between(slot, *other);
    }
    (parts, cost)
}
