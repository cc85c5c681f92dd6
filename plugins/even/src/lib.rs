//! Even: the baseline scheduler. Every worker of a topology holds the same number of executors, give or take one, and
//! as few running executors move as that allows.
//!
//! Before: `scheduler-api/host` packed the cluster and called through the C ABI. After: the plan holds one slot per
//! executor. The rule is section 2 of the semantics: S = min(workers, free + own alive slots); each of the S slots holds
//! floor(E/S) or ceil(E/S); of all such deals the one that moves fewest; new slots in interleaved order; the rest sorted by
//! first task, each to the slot with fewest.
//! Pure: no clock, no randomness, no state between rounds. O(executors log executors + slots).
#![forbid(unsafe_code)]

pub mod deal;

use deal::{Own, deal, interleave};
use saetta_sdk::{CreateCx, ExecId, Outcome, Plan, PluginError, Round, Scheduler, SlotId, Snapshot, TopoId, Verdict, abi};
use std::collections::{BTreeMap, BTreeSet};

/// The scheduler. It keeps nothing between rounds.
pub struct Even;

saetta_sdk::export_scheduler!(Even, id = "even");

/// A slot in an order that does not depend on how hosts are named: node id, then port.
type SlotKey<'a> = (&'a str, u32);

/// What one topology has and may have.
struct Work<'a> {
    topology: TopoId,
    row: abi::TopologyRow,
    /// Executors by slot they run in, slots in slot order. Only slots that may take more.
    own: BTreeMap<SlotKey<'a>, (SlotId, Vec<ExecId>)>,
    /// Slots that keep what they hold and take nothing new: their supervisor is gone, their workers answer.
    n_pinned: u32,
    /// Executors dealt: all that are not in a pinned slot.
    dealt: u32,
    /// Executors that run nowhere, by first task.
    unplaced: Vec<ExecId>,
}

impl Scheduler for Even {
    fn create(_: &CreateCx<'_>) -> Result<Self, PluginError> {
        Ok(Even)
    }

    fn schedule(&mut self, round: &Round<'_>, plan: &mut Plan<'_>) -> Result<Verdict, PluginError> {
        let snapshot = &round.snapshot;
        let mut moves_left = round.max_moves;
        let mut work: Vec<Work<'_>> = Vec::new();
        let mut free: BTreeSet<(SlotKey<'_>, SlotId)> = BTreeSet::new();
        for (i, slot) in snapshot.slots().iter().enumerate() {
            if slot.flags & abi::SLOT_ASSIGNABLE != 0 && slot.topology == abi::NONE {
                free.insert((key(snapshot, SlotId(i as u32)), SlotId(i as u32)));
            }
        }
        for (i, row) in snapshot.topologies().iter().enumerate() {
            if row.flags & abi::TOPO_SCHEDULE != 0 {
                work.push(gather(snapshot, TopoId(i as u32), row));
            }
        }
        // Small priority first, then the table's order: oldest first.
        work.sort_by_key(|w| (w.row.priority, w.topology));

        // A slot that a topology gives up because it has more than it wants is free for every topology of this round, so
        // that the next round has nothing left to do.
        if moves_left.is_none() {
            for w in &mut work {
                for (key, slot) in w.give_up() {
                    free.insert((key, slot));
                }
            }
        }

        let mut changed = false;
        for w in &work {
            let new = interleave(free.iter().map(|((node, port), slot)| (*node, *port, *slot)));
            let own: Vec<Own> = w.own.values().map(|(slot, executors)| Own { slot: *slot, executors: executors.clone() }).collect();
            let workers = w.workers();
            let mut next = deal(&own, &w.unplaced, &new, workers, false);
            if moves_left.is_some_and(|left| next.n_moves > left) {
                next = deal(&own, &w.unplaced, &new, workers, true);
            }
            moves_left = moves_left.map(|left| left.saturating_sub(next.n_moves));
            for (exec, slot) in &next.places {
                changed |= plan.slot_of(*exec) != Some(*slot);
                plan.place(*exec, *slot);
                free.remove(&(key(snapshot, *slot), *slot));
            }
            let outcome = match next.places.len() as u32 {
                n if n == w.dealt => Outcome::Scheduled,
                0 if w.n_pinned == 0 => Outcome::Unschedulable,
                _ => Outcome::Partial,
            };
            plan.outcome(w.topology, outcome);
        }
        Ok(if changed { Verdict::Done } else { Verdict::NoChange })
    }
}

fn key<'a>(snapshot: &Snapshot<'a>, slot: SlotId) -> SlotKey<'a> {
    let row = snapshot.slots().get(slot.index());
    (snapshot.text(snapshot.nodes().get(row.node as usize).id), row.port)
}

fn gather<'a>(snapshot: &Snapshot<'a>, topology: TopoId, row: abi::TopologyRow) -> Work<'a> {
    let mut work = Work { topology, row, own: BTreeMap::new(), n_pinned: 0, dealt: 0, unplaced: Vec::new() };
    let mut pinned = BTreeSet::new();
    for (exec, e) in snapshot.executors_of(&row) {
        if e.slot == abi::NONE {
            work.unplaced.push(exec);
        } else if snapshot.slots().get(e.slot as usize).flags & abi::SLOT_ASSIGNABLE == 0 {
            pinned.insert(e.slot);
            continue;
        } else {
            let slot = SlotId(e.slot);
            work.own.entry(key(snapshot, slot)).or_insert_with(|| (slot, Vec::new())).1.push(exec);
        }
        work.dealt += 1;
    }
    work.n_pinned = pinned.len() as u32;
    work
}

impl<'a> Work<'a> {
    /// Slots it may use besides the pinned ones. Where those alone are as many as it wants, what runs elsewhere still keeps one slot.
    fn workers(&self) -> usize {
        (self.row.workers_wanted.saturating_sub(self.n_pinned) as usize).max(self.own.len().min(1))
    }

    /// Own slots beyond what the topology may have: those that hold fewest. Their executors become unplaced.
    fn give_up(&mut self) -> Vec<(SlotKey<'a>, SlotId)> {
        let n_keep = self.workers();
        let mut by_fill: Vec<(usize, SlotKey<'a>)> = self.own.iter().map(|(key, (_, e))| (e.len(), *key)).collect();
        by_fill.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut given = Vec::new();
        for (_, key) in by_fill.into_iter().skip(n_keep) {
            let (slot, executors) = self.own.remove(&key).expect("listed above");
            self.unplaced.extend(executors);
            given.push((key, slot));
        }
        // Executor rows are in task order within a topology.
        self.unplaced.sort_unstable();
        given
    }
}
