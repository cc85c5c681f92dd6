//! Who is where while a plan is being made, and nothing of pools: slots, their holders, executors.
//!
//! Before: a round's snapshot. After: `pools.rs` has moved executors about, and [`Board::commit`] writes the plan. A topology that the round
//! does not ask about is never touched, and a slot that is not open never gets more.

use saetta_sdk::{ExecId, NodeId, Outcome, Plan, SlotId, Snapshot, TopoId, abi};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Slots, executors and topologies of a round, as the plan so far has them.
#[derive(Clone)]
pub(crate) struct Board<'a> {
    pub(crate) snapshot: Snapshot<'a>,
    /// Slot of each executor.
    at: Vec<Option<SlotId>>,
    /// Topology in each slot.
    holder: Vec<Option<TopoId>>,
    /// Executors may be placed here.
    open: Vec<bool>,
    node_of: Vec<NodeId>,
    /// Rows of the slot table, by node.
    slots_on: Vec<Range<u32>>,
}

impl<'a> Board<'a> {
    /// The state a round begins with. With `mend`, executors in a slot that another topology holds have none.
    pub(crate) fn new(snapshot: Snapshot<'a>, mend: bool) -> Self {
        let closed = abi::NODE_GONE | abi::NODE_BLACKLISTED | abi::NODE_RESERVED;
        let is_closed =
            |n: &abi::NodeRow| n.flags & closed != 0 || snapshot.hosts().get(n.host as usize).flags & abi::HOST_BLACKLISTED != 0;
        let node_closed: Vec<bool> = snapshot.nodes().iter().map(|n| is_closed(&n)).collect();
        let mut board = Board {
            snapshot,
            at: snapshot.executors().iter().map(|e| SlotId::some(e.slot)).collect(),
            holder: snapshot.slots().iter().map(|s| TopoId::some(s.topology)).collect(),
            open: snapshot.slots().iter().map(|s| s.flags & abi::SLOT_ASSIGNABLE != 0 && !node_closed[s.node as usize]).collect(),
            node_of: snapshot.slots().iter().map(|s| NodeId(s.node)).collect(),
            slots_on: snapshot.nodes().iter().map(|n| n.first_slot..n.first_slot + n.n_slots).collect(),
        };
        for (exec, e) in snapshot.executors().with_ids() {
            let held = SlotId::some(e.slot).and_then(|s| board.holder[s.index()]);
            if mend && held.is_some_and(|t| t.0 != e.topology) && board.is_asked(TopoId(e.topology)) {
                board.at[exec.index()] = None;
            }
        }
        board
    }

    pub(crate) fn row(&self, topology: TopoId) -> abi::TopologyRow {
        self.snapshot.topologies().at(topology)
    }
    pub(crate) fn is_asked(&self, topology: TopoId) -> bool {
        self.row(topology).flags & abi::TOPO_SCHEDULE != 0
    }
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.slots_on.len() as u32).map(NodeId)
    }
    /// Slots of a node, ports ascending.
    fn slots(&self, node: NodeId) -> impl Iterator<Item = SlotId> + use<> {
        self.slots_on[node.index()].clone().map(SlotId)
    }
    /// True when executors may be placed on it, as far as there is room.
    pub(crate) fn is_alive(&self, node: NodeId) -> bool {
        self.slots(node).any(|s| self.open[s.index()])
    }
    /// True for a node that is used last.
    pub(crate) fn is_grey(&self, node: NodeId) -> bool {
        self.snapshot.nodes().at(node).flags & abi::NODE_GREYLISTED != 0
    }
    pub(crate) fn node_of(&self, slot: SlotId) -> NodeId {
        self.node_of[slot.index()]
    }
    /// Slots of a node that are open and nobody's, ports ascending.
    pub(crate) fn free_on(&self, node: NodeId) -> impl Iterator<Item = SlotId> {
        self.slots(node).filter(|s| self.open[s.index()] && self.holder[s.index()].is_none())
    }
    pub(crate) fn n_free(&self, nodes: &BTreeSet<NodeId>) -> usize {
        nodes.iter().map(|n| self.free_on(*n).count()).sum()
    }
    /// Slots of a node that are free or may become so.
    pub(crate) fn n_open(&self, node: NodeId) -> usize {
        self.slots(node).filter(|s| self.open[s.index()]).count()
    }
    pub(crate) fn n_used(&self, node: NodeId) -> usize {
        self.slots(node).filter(|s| self.holder[s.index()].is_some()).count()
    }
    /// Topologies with a worker on a node.
    pub(crate) fn on(&self, node: NodeId) -> BTreeSet<TopoId> {
        self.slots(node).filter_map(|s| self.holder[s.index()]).collect()
    }

    /// A topology's executors by the slot they are in.
    pub(crate) fn workers(&self, topology: TopoId) -> BTreeMap<SlotId, Vec<ExecId>> {
        let mut workers: BTreeMap<SlotId, Vec<ExecId>> = BTreeMap::new();
        for (exec, _) in self.snapshot.executors_of(&self.row(topology)) {
            if let Some(slot) = self.at[exec.index()] {
                workers.entry(slot).or_default().push(exec);
            }
        }
        workers
    }
    /// Those that may take more or be moved.
    pub(crate) fn open_workers(&self, topology: TopoId) -> BTreeMap<SlotId, Vec<ExecId>> {
        let mut workers = self.workers(topology);
        workers.retain(|slot, _| self.open[slot.index()] && self.holder[slot.index()] == Some(topology));
        workers
    }
    pub(crate) fn nodes_of(&self, topology: TopoId) -> BTreeSet<NodeId> {
        self.workers(topology).keys().map(|s| self.node_of(*s)).collect()
    }
    /// Executors without a slot, by component and first task.
    pub(crate) fn unplaced(&self, topology: TopoId) -> Vec<ExecId> {
        self.snapshot.executors_of(&self.row(topology)).map(|(exec, _)| exec).filter(|e| self.at[e.index()].is_none()).collect()
    }

    /// Puts an executor into a slot that is free or its topology's.
    pub(crate) fn place(&mut self, exec: ExecId, slot: SlotId) {
        let topology = TopoId(self.snapshot.executors().at(exec).topology);
        let before = self.at[exec.index()].replace(slot);
        self.holder[slot.index()] = Some(topology);
        if let Some(before) = before.filter(|s| *s != slot) {
            self.let_go(topology, before);
        }
    }
    /// Takes a whole worker off its slot.
    pub(crate) fn free(&mut self, slot: SlotId) {
        let Some(topology) = self.holder[slot.index()] else { return };
        for exec in self.workers(topology).remove(&slot).unwrap_or_default() {
            self.at[exec.index()] = None;
        }
        self.let_go(topology, slot);
    }
    /// Takes all workers off a node.
    pub(crate) fn free_node(&mut self, node: NodeId) {
        self.slots(node).for_each(|s| self.free(s));
    }
    /// True when all workers of a node may be taken off it.
    pub(crate) fn may_be_freed(&self, node: NodeId) -> bool {
        self.is_alive(node) && self.slots(node).all(|s| self.holder[s.index()].is_none_or(|t| self.open[s.index()] && self.is_asked(t)))
    }
    fn let_go(&mut self, topology: TopoId, slot: SlotId) {
        if self.holder[slot.index()] == Some(topology) && !self.workers(topology).contains_key(&slot) {
            self.holder[slot.index()] = None;
        }
    }

    /// Running executors that are somewhere else now, or nowhere.
    pub(crate) fn n_moved(&self) -> u32 {
        let rows = self.snapshot.executors();
        rows.iter().zip(&self.at).filter(|(e, now)| e.slot != abi::NONE && SlotId::some(e.slot) != **now).count() as u32
    }
    /// True when running executors have no slot now that no topology of a better priority was placed for.
    pub(crate) fn evicts(&self, may_preempt: bool) -> bool {
        let executors = self.snapshot.executors();
        let rows = || executors.iter().zip(&self.at);
        let priority = |e: &abi::ExecutorRow| self.row(TopoId(e.topology)).priority;
        let best = rows().filter(|(e, now)| e.slot == abi::NONE && now.is_some()).map(|(e, _)| priority(&e)).min();
        rows().any(|(e, now)| {
            let is_freed = e.slot != abi::NONE && now.is_none();
            is_freed && !(may_preempt && best.is_some_and(|best| best < priority(&e)))
        })
    }

    /// Writes the plan. True = it differs from what came.
    pub(crate) fn commit(&self, plan: &mut Plan<'_>) -> bool {
        let mut changed = false;
        for (topology, row) in self.snapshot.topologies().with_ids().filter(|(t, _)| self.is_asked(*t)) {
            for (exec, e) in self.snapshot.executors_of(&row) {
                let now = self.at[exec.index()];
                changed |= now != SlotId::some(e.slot);
                match now {
                    Some(slot) => plan.place(exec, slot),
                    None => plan.free(exec),
                }
            }
            plan.outcome(
                topology,
                match self.unplaced(topology).len() as u32 {
                    0 => Outcome::Scheduled,
                    n if n == row.n_execs => Outcome::Unschedulable,
                    _ => Outcome::Partial,
                },
            );
        }
        changed
    }
    /// Slot of each executor.
    pub(crate) fn places(&self) -> &[Option<SlotId>] {
        &self.at
    }
    /// Where an executor is.
    pub(crate) fn slot_of(&self, exec: ExecId) -> Option<SlotId> {
        self.at[exec.index()]
    }
}
