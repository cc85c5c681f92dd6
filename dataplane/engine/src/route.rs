//! Where executors of other workers are: the places of a loop's staging that stand for them.
//!
//! Before: the watchdog has a newer assignment. After: emitters choose among what is there now.

use crate::core_loop::CoreLoop;
use crate::credit::CreditIn;
use crate::io::{Dest, NOWHERE, Via};
use crate::links::Links;
use crate::plan::{LoopAt, RemoteExecutor};
use crate::remote::Remote;
use crate::trees::trees_at;
use saetta_model::parallelism::ExecutorId;

impl CoreLoop {
    /// Executors elsewhere changed place. Frames not yet in a lane go to the new place.
    pub(crate) fn route(&mut self, links: &mut Links, remotes: &[RemoteExecutor]) {
        let n_executors = self.layout_executors.len();
        for ordinal in 0..n_executors {
            let id = self.layout_executors[ordinal];
            let old = self.io.dests[id.first as usize].at;
            if matches!(self.io.via(old), Via::Local(_) | Via::Lane(_)) {
                continue;
            }
            self.shift.places[ordinal] = remotes.iter().find(|r| r.id == id).map(|r| LoopAt::There(r.placement, r.on_loop));
            let number = remotes.iter().find(|r| r.id == id).map(|r| self.remote_number(r.placement, r.on_loop));
            let at = number.map_or(NOWHERE, |number| self.io.remote_place(number) as u16);
            if old != at {
                for task in id.tasks() {
                    self.io.dests[task as usize] = Dest { at, credit: ordinal as u32 };
                }
                self.io.credits[ordinal].void();
                let early = number.and_then(|number| self.io.remotes[number].early.remove(&id.first));
                if let Some(limit) = early {
                    self.open_credit(ordinal, limit);
                }
            }
        }
        self.route_acks();
        self.executors.iter_mut().for_each(|e| e.out.assignment_changed(&self.io));
        // Lanes whose worker is no longer named close their links.
        for number in 0..self.io.remotes.len() {
            let named =
                remotes.iter().any(|r| r.placement == self.io.remotes[number].placement && r.on_loop == self.io.remotes[number].on_loop);
            if !named && !self.io.remotes[number].is_apart() {
                self.close_remote(links, number, false);
            }
        }
    }

    /// Acks follow owners and ledgers to where they are now. A ledger that is somewhere else knows nothing of the trees begun before: those
    /// of tasks here fail.
    fn route_acks(&mut self) {
        let place = |id: ExecutorId| self.layout_executors.binary_search(&id).ok().and_then(|ordinal| self.shift.places[ordinal]);
        self.shift.trees = trees_at(&self.ack_plan, place).into();
        self.trees_changed();
    }

    /// Number of a remote loop, made when it is new.
    pub(crate) fn remote_number(&mut self, placement: u64, on_loop: u32) -> usize {
        if let Some(number) = self.io.remotes.iter().position(|r| r.placement == placement && r.on_loop == on_loop) {
            self.join_trunk(number);
            return number;
        }
        // One whose worker is gone leaves its place; what still waits in an inbox by that lane counts as held when the next link begins.
        let unused = |number: &usize| {
            let place = self.io.remote_place(*number);
            self.io.remotes[*number].is_apart()
                && self.io.staging[place].frames.is_empty()
                && !self.io.dests.iter().any(|d| d.at as usize == place)
                && !self.lane_is_used(*number)
        };
        if let Some(number) = (0..self.io.remotes.len()).find(unused) {
            self.io.remotes[number] = Remote::new(placement, on_loop);
            self.io.acks.leave_remote(number);
            self.join_trunk(number);
            return number;
        }
        self.io.add_remote(Remote::new(placement, on_loop));
        for place in 0..self.executors.len() {
            self.io.inboxes[place].lanes.push(crate::queue::FrameQueue::with_window(self.windows[place]));
            self.credit_in[place].push(CreditIn::new(self.windows[place]));
        }
        let number = self.io.remotes.len() - 1;
        self.join_trunk(number);
        number
    }
}
