//! Where executors are while a plan is being made, and what that costs: topologies with their traffic, slots with their holders.
//!
//! Before: a round's snapshot. After: `pass.rs` has changed a copy, and `lib.rs` writes it into the plan. Not here: decisions.

use crate::machines::{Distances, Machines};
use crate::traffic::{Traffic, traffic};
use saetta_sdk::{ExecId, NodeId, Round, SlotId, TopoId, abi};
use std::collections::BTreeMap;

/// A topology that the round asks about.
pub(crate) struct Topo {
    pub(crate) id: TopoId,
    pub(crate) row: abi::TopologyRow,
    pub(crate) traffic: Traffic,
}

/// What does not change in a round.
pub(crate) struct World {
    pub(crate) machines: Machines,
    /// Small priority first, then oldest.
    pub(crate) topologies: Vec<Topo>,
    pub(crate) max_moves: Option<u32>,
    /// Slot of each executor when the round began.
    pub(crate) before: Vec<Option<SlotId>>,
}

/// A placement.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct State {
    /// Slot of each executor.
    pub(crate) at: Vec<Option<SlotId>>,
    /// Topology in each slot.
    pub(crate) holder: Vec<Option<TopoId>>,
}

/// A topology's executors by where they are; numbers count from its first.
pub(crate) struct Share {
    /// In slots that may take more, in slot order.
    pub(crate) own: Vec<(SlotId, Vec<usize>)>,
    /// In slots that keep what they hold and take nothing new.
    pub(crate) pinned: Vec<(SlotId, Vec<usize>)>,
    pub(crate) unplaced: Vec<usize>,
}

impl World {
    /// Reads a round.
    pub(crate) fn new(round: &Round<'_>, distances: Distances) -> Self {
        let snapshot = &round.snapshot;
        let asked = snapshot.topologies().with_ids().filter(|(_, row)| row.flags & abi::TOPO_SCHEDULE != 0);
        let mut topologies: Vec<Topo> = asked.map(|(id, row)| Topo { id, row, traffic: traffic(snapshot, id) }).collect();
        topologies.sort_by_key(|t| (t.row.priority, t.id));
        let before = snapshot.executors().iter().map(|e| SlotId::some(e.slot)).collect();
        World { machines: Machines::new(snapshot, distances), topologies, max_moves: round.max_moves, before }
    }
    /// The placement a round begins with.
    pub(crate) fn start(&self, round: &Round<'_>) -> State {
        State { at: self.before.clone(), holder: round.snapshot.slots().iter().map(|s| TopoId::some(s.topology)).collect() }
    }

    /// Running executors that are somewhere else, or nowhere.
    pub(crate) fn n_moved(&self, state: &State) -> u32 {
        self.before.iter().zip(&state.at).filter(|(before, now)| before.is_some() && before != now).count() as u32
    }
    /// True when so much may move.
    pub(crate) fn may(&self, state: &State) -> bool {
        self.max_moves.is_none_or(|max| self.n_moved(state) <= max)
    }
    /// Executors without a slot, of all that the round asks about.
    pub(crate) fn n_unplaced(&self, state: &State) -> usize {
        self.topologies.iter().map(|t| self.share(t, state).unplaced.len()).sum()
    }

    pub(crate) fn share(&self, topo: &Topo, state: &State) -> Share {
        let mut workers: BTreeMap<(u32, SlotId), Vec<usize>> = BTreeMap::new();
        let mut unplaced = Vec::new();
        for i in 0..topo.row.n_execs as usize {
            match state.at[topo.exec(i).index()] {
                Some(slot) => workers.entry((self.machines.seat(slot).rank, slot)).or_default().push(i),
                None => unplaced.push(i),
            }
        }
        let is_own = |slot: SlotId| self.machines.seat(slot).open && state.holder[slot.index()] == Some(topo.id);
        let (own, pinned) = workers.into_iter().map(|((_, slot), execs)| (slot, execs)).partition(|(slot, _)| is_own(*slot));
        Share { own, pinned, unplaced }
    }
    /// Slots that nobody holds, in the order of the table.
    pub(crate) fn free(&self, state: &State) -> Vec<SlotId> {
        let seats = self.machines.seats.iter().zip(&state.holder).enumerate();
        seats.filter(|(_, (seat, holder))| seat.open && holder.is_none()).map(|(i, _)| SlotId(i as u32)).collect()
    }

    /// Thousandths of bytes per second between executors on different nodes, of one topology.
    pub(crate) fn crossing_of(&self, topo: &Topo, state: &State) -> i128 {
        let bytes = &topo.traffic.bytes;
        let mut on: BTreeMap<NodeId, Vec<i128>> = BTreeMap::new();
        let mut all = vec![0; bytes.n_groups()];
        for (slot, counts) in self.counts(topo, state) {
            let here = on.entry(self.machines.seat(slot).node).or_insert_with(|| vec![0; counts.len()]);
            for (g, n) in counts.into_iter().enumerate() {
                here[g] += n;
                all[g] += n;
            }
        }
        let pairs = |n: &[i128]| -> i128 { (0..n.len()).map(|g| (0..n.len()).map(|h| bytes.get(g, h) * n[g] * n[h]).sum::<i128>()).sum() };
        (pairs(&all) - on.values().map(|n| pairs(n)).sum::<i128>()) / 2
    }
    /// Executors of each group, by slot.
    pub(crate) fn counts(&self, topo: &Topo, state: &State) -> BTreeMap<SlotId, Vec<i128>> {
        let mut counts: BTreeMap<SlotId, Vec<i128>> = BTreeMap::new();
        for (i, group) in topo.traffic.group.iter().enumerate() {
            if let Some(slot) = state.at[topo.exec(i).index()] {
                counts.entry(slot).or_insert_with(|| vec![0; topo.traffic.bytes.n_groups()])[*group] += 1;
            }
        }
        counts
    }
    /// What an executor of a group in a slot exchanges with its worker, the rest of its node, and other nodes; and what that costs. All in
    /// thousandths of bytes per second.
    pub(crate) fn exchanged(&self, topo: &Topo, counts: &BTreeMap<SlotId, Vec<i128>>, group: usize, slot: SlotId) -> ([i128; 3], i128) {
        let (mut parts, mut cost) = ([0; 3], 0);
        for (other, n) in counts {
            let is_near = self.machines.seat(*other).node == self.machines.seat(slot).node;
            let part = if *other == slot {
                0
            } else if is_near {
                1
            } else {
                2
            };
            let bytes: i128 = n.iter().enumerate().map(|(h, n)| topo.traffic.bytes.get(group, h) * n).sum();
            // It does not talk to itself.
            parts[part] += if *other == slot { bytes - topo.traffic.bytes.get(group, group) } else { bytes };
            cost += bytes * self.machines.between(slot, *other);
        }
        (parts, cost)
    }
    /// What crosses nodes of all topologies that the round asks about.
    pub(crate) fn crossing(&self, state: &State) -> i128 {
        self.topologies.iter().map(|t| self.crossing_of(t, state)).sum()
    }
}

impl Topo {
    /// Its `i`-th executor.
    pub(crate) fn exec(&self, i: usize) -> ExecId {
        ExecId(self.row.first_exec + i as u32)
    }
    /// Workers it may have besides those that are pinned; what runs elsewhere keeps one.
    pub(crate) fn workers(&self, share: &Share) -> usize {
        (self.row.workers_wanted as usize).saturating_sub(share.pinned.len()).max(share.own.len().min(1))
    }
}

impl State {
    /// States where the executors of a topology are, but for those in pinned slots.
    pub(crate) fn settle(&mut self, topo: &Topo, share: &Share, places: impl IntoIterator<Item = (ExecId, SlotId)>) {
        for (slot, execs) in &share.own {
            self.holder[slot.index()] = None;
            execs.iter().for_each(|i| self.at[topo.exec(*i).index()] = None);
        }
        for (exec, slot) in places {
            self.at[exec.index()] = Some(slot);
            self.holder[slot.index()] = Some(topo.id);
        }
    }
}
