//! Where trees are when their spouts, or the ackers that hold them, change place.
//!
//! Before: `shift.rs` has new routes. After: inits, acks and outcomes go to the new places. An acker that moves keeps its ledgers until they are
//! empty: a spout whose ledger moves opens no tree until those that are open have ended, and until all loops send their acks the new way. Trees
//! that are open when a message timeout has passed fail.

use crate::ack::{Road, Tracker};
use crate::ack_plan::AckPlan;
use crate::core_loop::CoreLoop;
use crate::ledger::Ledger;
use crate::moves::{Here as _, Who};
use crate::plan::LoopAt;
use crate::shift::TreesAt;
use saetta_model::parallelism::ExecutorId;

impl CoreLoop {
    /// A task that opens trees comes to this loop.
    pub(crate) fn add_tracker(&mut self, task: u32, tracker: Tracker) -> u16 {
        let all = &mut self.io.acks.trackers;
        let at = *self.shift.tracker_of.entry(task).or_insert(all.len() as u16);
        match all.get_mut(at as usize) {
            // Of an earlier instance, which has gone.
            Some(before) => *before = tracker,
            None => all.push(tracker),
        }
        at
    }

    /// The executor, which is here, opens no tree before all loops know where its trees are. Bolts join trees as before: what is lost of those
    /// fails with them.
    pub(crate) fn close_trees(&mut self, who: Who) {
        let Some(executor) = self.executors.iter().find(|e| e.id.first == who) else { return };
        executor.out.trackers.iter().for_each(|tracker| self.io.acks.trackers[*tracker as usize].hold_back(true));
        let (lanes, now_ns) = (self.lanes(), self.io.turn_ns);
        self.shift.moves.open_trees(who, lanes, now_ns);
    }

    /// They do.
    pub(crate) fn open_trees(&mut self, who: Who) {
        let Some(executor) = self.executors.iter().find(|e| e.id.first == who) else { return };
        executor.out.trackers.iter().for_each(|tracker| self.io.acks.trackers[*tracker as usize].hold_back(false));
    }

    /// A newer assignment: where an executor stays and the ledger of its trees does not, acks go to the old one until the trees that are open
    /// have ended.
    pub(crate) fn turn_trees(&mut self, before: &[TreesAt], now_ns: u64) {
        for now in self.shift.trees.clone().iter() {
            let who = self.layout_executors[self.io.dests[now.task as usize].credit as usize].first;
            let was = before.iter().find(|was| was.task == now.task);
            let (Some(owner), true) = (now.owner, was.is_some_and(|was| was.owner == now.owner && was.ledger != now.ledger)) else {
                continue;
            };
            // One that is still on its way does so when it has arrived.
            if !self.shift.moves.turns(who) || self.shift.moves.is_turning(who) {
                let lane = self.lane_of(owner);
                self.shift.moves.turn(who, lane, now_ns);
            }
        }
    }

    /// An executor is where it was to go. Acks of a spout's trees go there when it says that none is open: it may have been there all the time, by
    /// assignments that it was never told of, and those that are open end where they began.
    pub(crate) fn trees_arrived(&mut self, who: Who) {
        self.shift.renewed.insert(who);
        let owner = self.shift.trees.iter().find(|at| at.is_spout && at.task == who).and_then(|at| at.owner);
        if let Some(owner) = owner {
            let lane = self.lane_of(owner);
            self.shift.moves.turn(who, lane, self.io.turn_ns);
        }
    }

    /// Looks again where the trees of each task are, those excepted whose spout or ledger is on its way.
    pub(crate) fn trees_changed(&mut self) {
        let mut renewed = std::mem::take(&mut self.shift.renewed);
        for at in self.shift.trees.clone().iter() {
            let ordinal = self.io.dests[at.task as usize].credit;
            let who = self.layout_executors[ordinal as usize].first;
            // Held until it is released: `moves` has said so, but others come first.
            if !self.shift.moves.turns(who) && !self.io.held.contains(&ordinal) {
                self.set_trees(*at, renewed.contains(&who));
            }
        }
        renewed.retain(|who| self.shift.moves.turns(*who));
        self.shift.renewed = renewed;
        self.io.acks.send_orphans(self.io.turn_ns);
    }

    /// `anew`: an instance of the owner that has gone was the last to use its ledger.
    fn set_trees(&mut self, TreesAt { task, owner, ledger, .. }: TreesAt, anew: bool) {
        let (owner_at, ledger_of) = (self.ack_road(owner), self.ack_road(ledger));
        if let (None, Some(tracker)) = (owner_at, self.shift.tracker_of.get(&task)) {
            self.io.acks.owner_at[task as usize] = Road::Here(*tracker);
        }
        let here = matches!(self.io.acks.ledger_of[task as usize], Road::Here(_));
        if ledger_of.is_none() && (anew || !here) {
            let all = &mut self.io.acks.ledgers;
            let at = *self.shift.ledger_of.entry(task).or_insert(all.len() as u16);
            match all.get_mut(at as usize) {
                Some(before) => *before = Ledger::new(task),
                None => all.push(Ledger::new(task)),
            }
            self.io.acks.ledger_of[task as usize] = Road::Here(at);
        }
        self.io.acks.set_roads(task, owner_at, ledger_of);
    }

    /// `None` = on this loop.
    fn ack_road(&mut self, at: Option<LoopAt>) -> Option<Road> {
        match at {
            None => Some(Road::None),
            Some(LoopAt::Here(at)) if at == self.index => None,
            // Lanes are to all loops but this one, in their order.
            Some(LoopAt::Here(at)) => Some(Road::Lane((at - usize::from(at > self.index)) as u16)),
            Some(LoopAt::There(placement, on_loop)) => Some(Road::Remote(self.remote_number(placement, on_loop) as u16)),
        }
    }
}

/// Where the trees of each task that opens some are.
pub(crate) fn trees_at(plan: &AckPlan, loop_of: impl Fn(ExecutorId) -> Option<LoopAt>) -> Vec<TreesAt> {
    let of = |(id, is_spout): (ExecutorId, bool)| {
        let owner = loop_of(id);
        let ledger = |task| owner.and_then(|at| plan.ledger_at(task, at, &loop_of, LoopAt::same_worker));
        id.tasks().map(|task| TreesAt { task, is_spout, owner, ledger: ledger(task) }).collect::<Vec<_>>()
    };
    plan.owners().flat_map(of).collect()
}
