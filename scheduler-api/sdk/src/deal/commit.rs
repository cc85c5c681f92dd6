//! From a board to the plan: slots, outcomes, and why each executor is where it is.
//!
//! Before: a [`Board`] on which all is decided. After: the plan is written. A scheduler with more to say than the code of a reason takes
//! [`Board::write`] and says it itself, beginning from [`Board::why`].

use super::{Board, Share};
use crate::{ExecId, Explanation, Plan, Round, SlotId, Verdict};
use saetta_abi as abi;

impl Board<'_> {
    /// Writes the plan, and reasons where they are asked for.
    pub fn commit(&self, round: &Round<'_>, plan: &mut Plan<'_>) -> Verdict {
        for share in self.shares.iter().filter(|_| round.wants_reasons()) {
            for (exec, e) in self.snapshot.executors_of(&share.row) {
                round.explain(&Explanation::new(exec, self.at[exec.index()], self.why(share, exec, &e)));
            }
        }
        if self.write(plan) { Verdict::Done } else { Verdict::NoChange }
    }

    /// Writes the plan without a word. True = it differs from what came.
    pub fn write(&self, plan: &mut Plan<'_>) -> bool {
        let mut changed = false;
        for share in &self.shares {
            for (exec, e) in self.snapshot.executors_of(&share.row) {
                let now = self.at[exec.index()];
                changed |= SlotId::some(e.slot) != now;
                match now {
                    Some(slot) => plan.place(exec, slot),
                    None => plan.free(exec),
                }
            }
            plan.outcome(share.topology, share.outcome);
        }
        changed
    }

    /// Why an executor of a share is where it is, `abi::WHY_*`; `WHY_BEST_SCORE` where the scheduler chose its slot in this round.
    pub fn why(&self, share: &Share, exec: ExecId, row: &abi::ExecutorRow) -> u32 {
        let (before, now) = (SlotId::some(row.slot), self.at[exec.index()]);
        match now {
            None => share.why_none,
            _ if now == before => abi::WHY_KEPT,
            _ if before.is_none() && row.last_slot != abi::NONE => abi::WHY_MOVED_NODE_LOST,
            _ if before.is_some() && share.row.flags & abi::TOPO_REBALANCE != 0 => abi::WHY_MOVED_REBALANCE,
            _ => abi::WHY_BEST_SCORE,
        }
    }
}
