//! From executors to slots of given nodes: the round-robin filler, and what comes after it so that one round is enough.
//!
//! Before: `pools.rs` has chosen nodes and the number of slots. After: the board has the executors placed. Not here: which nodes.

use crate::board::Board;
use saetta_sdk::{CompId, ExecId, NodeId, SlotId, TopoId, abi};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// In which order nodes give their slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Fewest slots used, then most free: workers spread.
    Spread,
    /// The first node until it is full.
    Pack,
}

/// The next slot, and its node.
fn next_slot(board: &Board<'_>, nodes: &BTreeSet<NodeId>, order: Order) -> Option<(NodeId, SlotId)> {
    let free = nodes.iter().map(|n| (*n, board.free_on(*n).count())).filter(|(_, free)| *free > 0);
    let key = |(node, free): &(NodeId, usize)| match order {
        Order::Spread => (board.n_used(*node), Reverse(*free), board.is_grey(*node), *node),
        Order::Pack => (0, Reverse(0), board.is_grey(*node), *node),
    };
    free.min_by_key(key).and_then(|(node, _)| Some((node, board.free_on(node).next()?)))
}

/// Storm's filler: executors without a slot are dealt into `n_slots` sets, one per new slot; those of a component that is to be spread go
/// one to each node, and the last set takes what is left of them.
pub(crate) fn fill(board: &mut Board<'_>, topology: TopoId, n_slots: usize, nodes: &BTreeSet<NodeId>, order: Order) {
    let unplaced = board.unplaced(topology);
    let n_slots = n_slots.min(unplaced.len());
    if n_slots == 0 {
        return;
    }
    let comp = |board: &Board<'_>, exec: ExecId| CompId(board.snapshot.executors().at(exec).component);
    let mut sets: Vec<Vec<ExecId>> = vec![Vec::new(); n_slots];
    let mut held: BTreeMap<CompId, VecDeque<ExecId>> = BTreeMap::new();
    let mut dealt = 0;
    for exec in unplaced {
        let component = comp(board, exec);
        if board.snapshot.components().at(component).flags & abi::COMP_SPREAD != 0 {
            held.entry(component).or_default().push_back(exec);
        } else {
            sets[dealt % n_slots].push(exec);
            dealt += 1;
        }
    }
    let mut comps_on: BTreeSet<(NodeId, CompId)> = BTreeSet::new();
    for (slot, execs) in board.workers(topology) {
        comps_on.extend(execs.into_iter().map(|e| (board.node_of(slot), comp(board, e))));
    }
    for (i, mut set) in sets.into_iter().enumerate() {
        let Some((node, slot)) = next_slot(board, nodes, order) else { return };
        for (component, execs) in &mut held {
            if i + 1 == n_slots {
                set.extend(execs.drain(..));
            } else if !execs.is_empty() && comps_on.insert((node, *component)) {
                set.extend(execs.pop_front());
            }
        }
        set.into_iter().for_each(|exec| board.place(exec, slot));
    }
}

/// Executors that are still without a slot go into workers the topology has, the emptiest first. Storm leaves them waiting for ever when
/// all wanted workers run.
pub(crate) fn top_up(board: &mut Board<'_>, topology: TopoId) {
    let mut fill: BTreeSet<(usize, SlotId)> = board.open_workers(topology).into_iter().map(|(slot, e)| (e.len(), slot)).collect();
    for exec in board.unplaced(topology) {
        let Some((n, slot)) = fill.pop_first() else { return };
        board.place(exec, slot);
        fill.insert((n + 1, slot));
    }
}

/// Starts up to `n_slots` more workers with executors from the fullest ones. Storm deals the whole topology anew for this; here only
/// those move that fill the new workers.
pub(crate) fn thin_out(board: &mut Board<'_>, topology: TopoId, n_slots: usize, nodes: &BTreeSet<NodeId>, order: Order) {
    let mut own = board.open_workers(topology);
    let share = (own.values().map(Vec::len).sum::<usize>() / (own.len() + n_slots).max(1)).max(1);
    for _ in 0..n_slots {
        let Some((_, slot)) = next_slot(board, nodes, order) else { return };
        let mut taken = Vec::new();
        while taken.len() < share {
            let Some((_, execs)) = own.iter_mut().max_by_key(|(slot, execs)| (execs.len(), Reverse(**slot))) else { break };
            if execs.len() <= share {
                break;
            }
            taken.extend(execs.pop());
        }
        if taken.is_empty() {
            return;
        }
        taken.iter().for_each(|exec| board.place(*exec, slot));
    }
}

/// Moves whole workers to nodes of the set on which nothing is yet, from those that hold most of them.
pub(crate) fn spread_out(board: &mut Board<'_>, topology: TopoId, nodes: &BTreeSet<NodeId>) {
    for node in nodes {
        let Some(to) = board.free_on(*node).next().filter(|_| board.n_used(*node) == 0) else { continue };
        let mut on: BTreeMap<NodeId, Vec<SlotId>> = BTreeMap::new();
        board.open_workers(topology).into_keys().for_each(|slot| on.entry(board.node_of(slot)).or_default().push(slot));
        let fullest = on.values().filter(|slots| slots.len() > 1).max_by_key(|slots| (slots.len(), Reverse(slots[0])));
        let Some(from) = fullest.and_then(|slots| slots.last()) else { return };
        board.open_workers(topology)[from].iter().for_each(|exec| board.place(*exec, to));
    }
}

/// Takes the workers that hold fewest off their slots until `n_slots` are left, if they may be.
pub(crate) fn give_up(board: &mut Board<'_>, topology: TopoId, n_slots: usize) {
    let n_used = board.workers(topology).len();
    let mut own: Vec<(usize, Reverse<SlotId>)> =
        board.open_workers(topology).into_iter().map(|(slot, e)| (e.len(), Reverse(slot))).collect();
    own.sort_unstable();
    // One is kept for the executors of the others.
    let n_given = n_used.saturating_sub(n_slots).min(own.len().saturating_sub(1));
    own.into_iter().take(n_given).for_each(|(_, Reverse(slot))| board.free(slot));
}
