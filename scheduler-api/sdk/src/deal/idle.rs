//! Idle nodes get workers of topologies that are already placed: Storm's redistribution. Off unless it is asked for.
//!
//! Before: a [`Board`] with what runs. After: whole workers have moved to nodes that ran nothing; their executors stay together. A topology
//! gives at most floor(its workers / usable nodes) for each idle node, one a turn, always from the node where it has most and at
//! least two, highest port first. So a node that is used at all never becomes empty, and the next round moves nothing unless
//! `workers_max` cut this one short. O(topologies x workers moved).

use super::Board;
use crate::config::Config;
use crate::{NodeId, PluginError, SlotId};
use std::cmp::Reverse;

/// Seconds a node must be up before it gets workers: three rounds of a supervisor's monitor, as in Storm.
const UPTIME_S: u64 = 9;

/// How idle nodes are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Idle {
    /// False: they wait for new workers.
    pub on: bool,
    /// Most workers a topology moves in a round; 0 = as many as make it even.
    pub workers_max: u64,
    /// A node must be up so long; one of which that is not known must wait.
    pub uptime_s: u64,
}

impl Idle {
    /// Its keys: `redistribute_idle`, `redistribute_idle_workers_max`, `redistribute_idle_uptime_secs`.
    pub fn read(config: &mut Config) -> Result<Self, PluginError> {
        Ok(Idle {
            on: config.flag("redistribute_idle", false, "move workers to nodes that run nothing")?,
            workers_max: config.number(
                "redistribute_idle_workers_max",
                0,
                0..=10_000,
                "most workers of a topology in a round; 0 = no limit",
            )?,
            uptime_s: config.number("redistribute_idle_uptime_secs", UPTIME_S, 0..=86_400, "only to nodes that are up so long")?,
        })
    }

    /// Moves workers of the board's topologies, those of `but` left out.
    pub fn redistribute(&self, board: &mut Board<'_>, but: &[usize]) {
        if !self.on {
            return;
        }
        let usable = board.usable_nodes();
        let idle: Vec<NodeId> = usable.iter().filter(|(_, up_s, idle)| *idle && *up_s >= self.uptime_s).map(|(id, ..)| *id).collect();
        // One slot of each idle node in turn, so that several fill alike.
        let turns = idle.iter().map(|n| board.free_on(*n).len()).max().unwrap_or(0);
        let mut targets = Vec::new();
        for turn in 0..turns {
            targets.extend(idle.iter().filter_map(|n| board.free_on(*n).get(turn).copied()));
        }
        // Topologies by row: age and id, whatever their priority, since all keep what they have.
        let mut order: Vec<usize> = (0..board.shares().len()).filter(|i| !but.contains(i)).collect();
        order.sort_by_key(|i| board.shares()[*i].topology);
        let budget = |i: usize| {
            let even = (board.shares()[i].own.len() / usable.len().max(1)) * idle.len();
            if self.workers_max > 0 { even.min(self.workers_max as usize) } else { even }
        };
        let mut budgets: Vec<usize> = order.iter().map(|i| budget(*i)).collect();
        let mut targets = targets.into_iter().peekable();
        loop {
            let mut moved = false;
            for (i, budget) in order.iter().zip(&mut budgets) {
                if *budget == 0 {
                    continue;
                }
                let Some(to) = targets.peek().copied() else { return };
                match victim(board, *i) {
                    Some((from, n)) if board.may_move(n) => {
                        board.move_worker(*i, from, to);
                        targets.next();
                        *budget -= 1;
                        moved = true;
                    }
                    _ => *budget = 0,
                }
            }
            if !moved {
                return;
            }
        }
    }
}

/// The worker a topology gives: of the node where it has most and at least two, ties by node id, the highest port. With its executors' number.
fn victim(board: &Board<'_>, share: usize) -> Option<(SlotId, usize)> {
    let own = &board.shares()[share].own;
    // In slot order: by node id, then port.
    let nodes = own.chunk_by(|a, b| board.node_of(a.slot) == board.node_of(b.slot));
    let donor = nodes.filter(|n| n.len() >= 2).min_by_key(|n| Reverse(n.len()))?;
    donor.last().map(|o| (o.slot, o.executors.len()))
}
