//! Resource-aware: every executor gets the CPU, memory and other resources it asks for, packed by what talks to what.
//!
//! Before: a host packed the cluster and called through the C ABI. After: the plan has a slot for each executor of each topology that fits as a
//! whole; the others keep what they had. Topologies come in the order of [`order`]; one that does not fit may evict those after it that have
//! a lower priority, if the round allows it. What runs is never moved to make things better, only evicted; a rebalance asks for it.
//! Pure: no clock, no randomness, no state between rounds.
#![forbid(unsafe_code)]

pub mod attract;
mod config;
pub mod executors;
mod improve;
pub mod nodes;
pub mod order;
mod pass;
mod placing;
mod reasons;
pub mod search;

use config::Config;
use saetta_sdk::{CreateCx, Plan, PluginError, Round, Scheduler, SlotId, Verdict};

/// The scheduler. It keeps nothing between rounds.
pub struct ResourceAware {
    config: Config,
}

saetta_sdk::export_scheduler!(ResourceAware, id = "resource-aware", claims = ["saetta.resources/1"]);

impl Scheduler for ResourceAware {
    fn create(cx: &CreateCx<'_>) -> Result<Self, PluginError> {
        Ok(ResourceAware { config: Config::parse(cx.config)? })
    }

    fn schedule(&mut self, round: &Round<'_>, plan: &mut Plan<'_>) -> Result<Verdict, PluginError> {
        let placed = pass::place(round, &self.config);
        let mut verdict = Verdict::NoChange;
        for ((exec, row), now) in round.snapshot.executors().with_ids().zip(placed.slots) {
            if now != SlotId::some(row.slot) {
                verdict = Verdict::Done;
                match now {
                    Some(slot) => plan.place(exec, slot),
                    None => plan.free(exec),
                }
            }
        }
        for (topology, outcome) in placed.outcomes {
            plan.outcome(topology, outcome);
        }
        placed.said.iter().for_each(|said| said.tell(round));
        Ok(verdict)
    }
}
