//! The slots of a round while a plan is being made: which are free, who is where, and the deal over them.
//!
//! Before: a round's snapshot. After: [`Board::commit`] has written the plan. What `even` does is [`Board::give_up`], then [`Board::deal`]
//! for each topology; other schedulers first take nodes out with [`Board::reserve`] and deal topologies of their own choice. A topology that
//! the round does not ask about, and a slot that takes nothing new, are never touched. O(slots log slots + executors) to make; a deal
//! is O(its executors log executors + nodes).

use super::{Own, deal, interleave};
use crate::{ExecId, NodeId, Outcome, Round, SlotId, Snapshot, TopoId};
use saetta_abi as abi;
use std::cmp::Reverse;

/// Most passes over a round.
const PASSES_MAX: usize = 8;

/// Slots, executors and topologies of a round, as the plan so far has them.
#[derive(Clone)]
pub struct Board<'a> {
    pub(super) snapshot: Snapshot<'a>,
    nodes: Vec<Seat>,
    /// Rows of `nodes` by node id: an order that does not depend on how hosts are named.
    by_id: Vec<NodeId>,
    slots: Vec<Place>,
    /// Slot of each executor.
    pub(super) at: Vec<Option<SlotId>>,
    /// The same when this pass began.
    began: Vec<Option<SlotId>>,
    pub(super) shares: Vec<Share>,
    /// By topology: its place in `shares`.
    share_of: Vec<Option<usize>>,
    moves_left: Option<u32>,
}

/// A node.
#[derive(Debug, Clone)]
struct Seat {
    /// Place in the order of node ids.
    rank: u32,
    /// Executors may be placed on it, as far as the node goes.
    open: bool,
    /// Used last.
    grey: bool,
    n_slots: u32,
    uptime_s: u64,
    /// Slots that are open and held by nobody, ports ascending.
    free: Vec<SlotId>,
}

/// A slot.
#[derive(Debug, Clone, Copy)]
struct Place {
    node: NodeId,
    port: u32,
    /// Executors may be placed here.
    open: bool,
    /// Topology whose worker is here.
    holder: Option<TopoId>,
}

/// A topology that the round asks about: what it has.
#[derive(Debug, Clone)]
pub struct Share {
    /// Which.
    pub topology: TopoId,
    /// Its row.
    pub row: abi::TopologyRow,
    /// Its executors by slot they run in, slots in slot order. Only slots that may take more.
    pub own: Vec<Own>,
    /// Executors that have no slot, by first task.
    pub unplaced: Vec<ExecId>,
    /// Slots that keep what they hold and take nothing new: their supervisor is gone or not to be used, their workers answer.
    pub n_pinned: u32,
    /// Executors that are not in a pinned slot.
    pub n_execs: u32,
    pub(super) outcome: Outcome,
    /// `WHY_*` of an executor without a slot.
    pub(super) why_none: u32,
}

impl Share {
    /// Slots it may use besides the pinned ones. Where those alone are as many as it wants, what runs elsewhere still keeps one slot.
    pub fn workers(&self) -> usize {
        (self.row.workers_wanted.saturating_sub(self.n_pinned) as usize).max(self.own.len().min(1))
    }
}

impl<'a> Board<'a> {
    /// The state a round begins with.
    pub fn new(round: &Round<'a>) -> Self {
        let snapshot = round.snapshot;
        let mut by_id: Vec<(&str, NodeId)> = snapshot.nodes().with_ids().map(|(id, n)| (snapshot.text(n.id), id)).collect();
        by_id.sort_unstable();
        let by_id: Vec<NodeId> = by_id.into_iter().map(|(_, id)| id).collect();
        let mut nodes: Vec<Seat> = snapshot
            .nodes()
            .iter()
            .map(|n| Seat {
                rank: 0,
                open: false,
                grey: n.flags & abi::NODE_GREYLISTED != 0,
                n_slots: n.n_slots,
                uptime_s: n.uptime_s,
                free: Vec::new(),
            })
            .collect();
        for (rank, id) in by_id.iter().enumerate() {
            nodes[id.index()].rank = rank as u32;
        }
        let slots = (snapshot.slots().iter())
            .map(|row| Place { node: NodeId(row.node), port: row.port, open: false, holder: TopoId::some(row.topology) })
            .collect();
        let at = snapshot.executors().iter().map(|e| SlotId::some(e.slot)).collect();
        let mut board = Board {
            snapshot,
            nodes,
            by_id,
            slots,
            at,
            began: Vec::new(),
            shares: Vec::new(),
            share_of: Vec::new(),
            moves_left: round.max_moves,
        };
        board.begin();
        board
    }

    /// Runs passes until one changes nothing, so that the next round has nothing left to do: what moved may have made room for what came before
    /// it. Nearly always the second pass changes nothing. One pass where moves are limited, since the limit is the round's.
    pub fn settled(round: &Round<'a>, mut pass: impl FnMut(Self) -> Self) -> Self {
        let mut board = pass(Board::new(round));
        for _ in 1..PASSES_MAX {
            if round.max_moves.is_some() || board.began == board.at || round.should_stop() {
                break;
            }
            board = pass(board.again(round));
        }
        board
    }

    /// The state the next round would begin with, were this plan in force: reservations are gone, and what was placed runs.
    fn again(mut self, round: &Round<'a>) -> Self {
        self.moves_left = round.max_moves;
        self.begin();
        self
    }

    /// What is open and free by the snapshot's flags, and what each topology has by now.
    fn begin(&mut self) {
        let closed = abi::NODE_GONE | abi::NODE_BLACKLISTED | abi::NODE_RESERVED;
        for (id, n) in self.snapshot.nodes().with_ids() {
            let host = self.snapshot.hosts().get(n.host as usize);
            let seat = &mut self.nodes[id.index()];
            seat.open = n.flags & closed == 0 && host.flags & abi::HOST_BLACKLISTED == 0;
            seat.free.clear();
            for (slot, row) in self.snapshot.slots_of(&n) {
                let place = &mut self.slots[slot.index()];
                place.open = seat.open && row.flags & abi::SLOT_ASSIGNABLE != 0;
                if place.open && place.holder.is_none() {
                    seat.free.push(slot);
                }
            }
        }
        self.began.clone_from(&self.at);
        let asked = self.snapshot.topologies().with_ids().filter(|(_, row)| row.flags & abi::TOPO_SCHEDULE != 0);
        let mut shares: Vec<Share> = asked.map(|(topology, row)| self.share(topology, row)).collect();
        // Small priority first, then the table's order: oldest first.
        shares.sort_by_key(|s| (s.row.priority, s.topology));
        self.share_of = vec![None; self.snapshot.topologies().len()];
        shares.iter().enumerate().for_each(|(i, s)| self.share_of[s.topology.index()] = Some(i));
        self.shares = shares;
    }

    fn share(&self, topology: TopoId, row: abi::TopologyRow) -> Share {
        let mut share = Share {
            topology,
            row,
            own: Vec::new(),
            unplaced: Vec::new(),
            n_pinned: 0,
            n_execs: 0,
            outcome: Outcome::Keep,
            why_none: abi::WHY_NO_SLOT,
        };
        let (mut placed, mut pinned) = (Vec::new(), Vec::new());
        for (exec, _) in self.snapshot.executors_of(&row) {
            match self.at[exec.index()] {
                None => share.unplaced.push(exec),
                Some(slot) if self.slots[slot.index()].open => placed.push((self.key(slot), slot, exec)),
                Some(slot) => {
                    pinned.push(slot);
                    continue;
                }
            }
            share.n_execs += 1;
        }
        pinned.sort_unstable();
        pinned.dedup();
        share.n_pinned = pinned.len() as u32;
        share.own = self.by_slot(placed);
        share
    }

    /// Executors with the key of their slot, slot by slot. Executor rows are in task order within a topology, and so they stay in a slot.
    fn by_slot(&self, mut placed: Vec<((u32, u32), SlotId, ExecId)>) -> Vec<Own> {
        placed.sort_unstable();
        let own = |group: &[((u32, u32), SlotId, ExecId)]| Own { slot: group[0].1, executors: group.iter().map(|p| p.2).collect() };
        placed.chunk_by(|a, b| a.1 == b.1).map(own).collect()
    }

    /// The snapshot it was made from.
    pub fn snapshot(&self) -> Snapshot<'a> {
        self.snapshot
    }
    /// Topologies that the round asks about, in the order they are served: small priority first, then oldest.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }
    /// Node of a slot.
    pub fn node_of(&self, slot: SlotId) -> NodeId {
        self.slots[slot.index()].node
    }
    /// True when executors may be placed in a slot that they can have to themselves or already hold.
    pub fn is_open(&self, slot: SlotId) -> bool {
        self.slots[slot.index()].open
    }
    /// Topology whose worker is in a slot.
    pub fn holder(&self, slot: SlotId) -> Option<TopoId> {
        self.slots[slot.index()].holder
    }
    /// Where an executor is by now.
    pub fn slot_of(&self, exec: ExecId) -> Option<SlotId> {
        self.at[exec.index()]
    }
    /// A topology's executors in slots that keep what they hold and take nothing new, by slot in slot order.
    pub fn pinned(&self, share: usize) -> Vec<Own> {
        let share = &self.shares[share];
        if share.n_pinned == 0 {
            return Vec::new();
        }
        let placed = self.snapshot.executors_of(&share.row).filter_map(|(exec, _)| Some((self.at[exec.index()]?, exec)));
        self.by_slot(placed.filter(|(slot, _)| !self.is_open(*slot)).map(|(slot, exec)| (self.key(slot), slot, exec)).collect())
    }
    /// True for a node that is used last.
    pub fn is_grey(&self, node: NodeId) -> bool {
        self.nodes[node.index()].grey
    }
    /// Where a slot stands in slot order: by node id, then port.
    pub fn key(&self, slot: SlotId) -> (u32, u32) {
        let place = self.slots[slot.index()];
        (self.nodes[place.node.index()].rank, place.port)
    }
    /// Place of a topology in [`Board::shares`], if the round asks about it.
    pub fn share_of(&self, topology: TopoId) -> Option<usize> {
        self.share_of[topology.index()]
    }
    /// Executors that ran when the pass began and are somewhere else by now, or nowhere.
    pub fn n_moved(&self) -> u32 {
        self.began.iter().zip(&self.at).filter(|(began, at)| began.is_some() && began != at).count() as u32
    }
    /// Executors of a topology that ran when the pass began and have no slot by now.
    pub fn n_freed(&self, share: usize) -> u32 {
        let executors = self.snapshot.executors_of(&self.shares[share].row);
        executors.filter(|(exec, _)| self.began[exec.index()].is_some() && self.at[exec.index()].is_none()).count() as u32
    }

    /// Free slots in the order new ones are taken, the first `n_max`: interleaved over the nodes, those that are used last at the end.
    pub fn free_slots(&self, n_max: usize) -> Vec<SlotId> {
        let mut free = Vec::new();
        for grey in [false, true] {
            if free.len() < n_max {
                let nodes = self.nodes.iter().filter(|n| n.grey == grey && !n.free.is_empty());
                free.extend(interleave(nodes.map(|n| (n.rank, n.free.as_slice())), n_max - free.len()));
            }
        }
        free
    }

    /// Nothing of the rest of this round is placed on a node.
    pub fn reserve(&mut self, node: NodeId) {
        let seat = &mut self.nodes[node.index()];
        seat.open = false;
        seat.free.clear();
        let row = self.snapshot.nodes().at(node);
        self.snapshot.slots_of(&row).for_each(|(slot, _)| self.slots[slot.index()].open = false);
    }

    /// A share loses a slot of its own: the executors there have none, and the slot is free.
    pub fn evict(&mut self, share: usize, slot: SlotId) {
        let share = &mut self.shares[share];
        let Some(i) = share.own.iter().position(|o| o.slot == slot) else { return };
        let executors = share.own.remove(i).executors;
        executors.iter().for_each(|e| self.at[e.index()] = None);
        share.unplaced.extend(executors);
        share.unplaced.sort_unstable();
        self.hold(slot, None);
    }

    /// Own slots that a topology has beyond those it wants, the ones that hold fewest, become free for every topology of this round, so
    /// that the next round has nothing left to do; shares of `but` are left out. Only where moves have no limit.
    pub fn give_up(&mut self, but: &[usize]) {
        if self.moves_left.is_some() {
            return;
        }
        for i in (0..self.shares.len()).filter(|i| !but.contains(i)) {
            let share = &self.shares[i];
            let n_keep = share.workers();
            if share.own.len() > n_keep {
                let mut by_fill: Vec<(Reverse<usize>, usize)> =
                    share.own.iter().enumerate().map(|(at, o)| (Reverse(o.executors.len()), at)).collect();
                by_fill.sort_unstable();
                let given: Vec<SlotId> = by_fill[n_keep..].iter().map(|(_, at)| share.own[*at].slot).collect();
                given.into_iter().for_each(|slot| self.evict(i, slot));
            }
        }
    }

    /// Gives a topology its even share of its own slots and the free ones, moving fewest; within the round's limit of moves, else nothing
    /// that runs.
    pub fn deal(&mut self, share: usize) {
        let workers = self.shares[share].workers();
        let new = self.free_slots(workers.saturating_sub(self.shares[share].own.len()));
        self.deal_over(share, &new, workers, false);
    }

    /// The same over its own slots and exactly these, which are free; at most `workers` of all. With `stay`, nothing that runs moves.
    pub fn deal_over(&mut self, i: usize, new: &[SlotId], workers: usize, stay: bool) {
        let share = &self.shares[i];
        let mut next = deal(&share.own, &share.unplaced, new, workers, stay);
        if self.moves_left.is_some_and(|left| next.n_moves > left) {
            next = deal(&share.own, &share.unplaced, new, workers, true);
        }
        self.settle(i, next.places);
    }

    /// States all places of a topology that are not pinned: executors that are not named have none. Slots it no longer uses are free.
    pub fn settle(&mut self, i: usize, places: Vec<(ExecId, SlotId)>) {
        let n_moves = self.n_moves(i, &places);
        self.moves_left = self.moves_left.map(|left| left.saturating_sub(n_moves as u32));
        let topology = self.shares[i].topology;
        let share = &mut self.shares[i];
        share.outcome = match places.len() as u32 {
            n if n == share.n_execs => Outcome::Scheduled,
            0 if share.n_pinned == 0 => Outcome::Unschedulable,
            _ => Outcome::Partial,
        };
        let before: Vec<Own> = std::mem::take(&mut share.own);
        for exec in share.unplaced.drain(..).chain(before.iter().flat_map(|o| o.executors.iter().copied())) {
            self.at[exec.index()] = None;
        }
        let mut placed: Vec<((u32, u32), SlotId, ExecId)> = Vec::with_capacity(places.len());
        for (exec, slot) in places {
            self.at[exec.index()] = Some(slot);
            placed.push((self.key(slot), slot, exec));
        }
        let now = self.by_slot(placed);
        for own in &now {
            if self.holder(own.slot) != Some(topology) {
                self.hold(own.slot, Some(topology));
            }
        }
        for own in before {
            if now.binary_search_by_key(&self.key(own.slot), |o| self.key(o.slot)).is_err() {
                self.hold(own.slot, None);
            }
        }
        self.shares[i].own = now;
        let row = self.shares[i].row;
        let loose = self.snapshot.executors_of(&row).map(|(exec, _)| exec).filter(|e| self.at[e.index()].is_none());
        self.shares[i].unplaced = loose.collect();
    }

    /// How many executors of a share's own slots would leave them.
    pub fn n_moves(&self, share: usize, places: &[(ExecId, SlotId)]) -> usize {
        let stay = places.iter().filter(|(exec, slot)| self.at[exec.index()] == Some(*slot)).count();
        self.shares[share].own.iter().map(|o| o.executors.len()).sum::<usize>() - stay
    }

    /// Moves a whole worker of a share to a free slot.
    pub(super) fn move_worker(&mut self, i: usize, from: SlotId, to: SlotId) {
        let topology = self.shares[i].topology;
        let share = &mut self.shares[i];
        let at = share.own.iter().position(|o| o.slot == from).expect("a slot of its own");
        let mut own = share.own.remove(at);
        own.slot = to;
        own.executors.iter().for_each(|e| self.at[e.index()] = Some(to));
        self.moves_left = self.moves_left.map(|left| left.saturating_sub(own.executors.len() as u32));
        let key = self.key(to);
        let at = self.shares[i].own.partition_point(|o| self.key(o.slot) < key);
        self.shares[i].own.insert(at, own);
        self.hold(from, None);
        self.hold(to, Some(topology));
    }

    /// True when so many running executors may still move.
    pub fn may_move(&self, n: usize) -> bool {
        self.moves_left.is_none_or(|left| n <= left as usize)
    }

    /// Nodes that may take executors and have slots, by id: node, since when it is up, true when nobody holds a slot of it.
    pub(super) fn usable_nodes(&self) -> Vec<(NodeId, u64, bool)> {
        let mut is_used = vec![false; self.nodes.len()];
        self.slots.iter().filter(|s| s.holder.is_some()).for_each(|s| is_used[s.node.index()] = true);
        let usable = self.by_id.iter().map(|id| (*id, &self.nodes[id.index()])).filter(|(_, n)| n.open && n.n_slots > 0);
        usable.map(|(id, n)| (id, n.uptime_s, !is_used[id.index()])).collect()
    }

    /// Free slots of a node, ports ascending.
    pub fn free_on(&self, node: NodeId) -> &[SlotId] {
        &self.nodes[node.index()].free
    }

    fn hold(&mut self, slot: SlotId, holder: Option<TopoId>) {
        let place = &mut self.slots[slot.index()];
        place.holder = holder;
        let (open, port) = (place.open, place.port);
        let slots = &self.slots;
        let free = &mut self.nodes[slots[slot.index()].node.index()].free;
        let at = free.partition_point(|s| slots[s.index()].port < port);
        match (holder, free.get(at) == Some(&slot)) {
            (Some(_), true) => drop(free.remove(at)),
            (None, false) if open => free.insert(at, slot),
            _ => {}
        }
    }

    /// Says why executors of a share have no slot, `abi::WHY_*`, where there is more to it than that none was free.
    pub fn why_none(&mut self, share: usize, code: u32) {
        self.shares[share].why_none = code;
    }
}
