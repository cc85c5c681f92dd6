//! Multitenant: pools of nodes for users. Some users have nodes to themselves, all others share the rest.
//!
//! Before: the host packed the cluster and called through the C ABI. After: a slot for each executor, and each topology's status as Storm
//! words it, in the text of its executors' reasons. The rules are Storm's multitenant scheduler (pools in `pools.rs`, the filler in
//! `fill.rs`) on the state in `board.rs`, in the canonical order of the tables where Storm walks hash maps; among them, `topology.isolate.machines`.
//! Different from Storm: topologies that want machines are served before the others of their user; new workers of a running topology
//! take executors from the fullest instead of dealing all anew; executors without a slot go into workers that run when no more are
//! wanted; a node that runs something is only taken where the limit of moves and the permission to preempt allow the whole plan.
//! Pure: no clock, no randomness, no state between rounds. O(topologies x (nodes + executors)) for each of a few passes.
//! Not here: resources, cores.
#![forbid(unsafe_code)]

mod board;
mod fill;
mod pools;

use board::Board;
use pools::Freedom;
use saetta_sdk::config::{Config, Told};
use saetta_sdk::{Configured, CreateCx, Explanation, Extension, Plan, PluginError, Round, Scheduler, SlotId, Verdict, abi};
use std::collections::BTreeMap;

/// Most nodes of a user in the configuration.
const NODES_MAX: u64 = 1 << 20;
/// What a plan may do to what runs, most first. The last moves nothing.
const FREEDOMS: [Freedom; 3] =
    [Freedom { take: true, shift: true }, Freedom { take: false, shift: true }, Freedom { take: false, shift: false }];

/// The scheduler. It keeps nothing between rounds.
pub struct Multitenant {
    nodes_of_user: BTreeMap<String, u64>,
    told: Told,
}

saetta_sdk::export_scheduler!(Multitenant, id = "multitenant", claims = ["storm.multitenant/1"], wants = ["saetta.explain/1"]);

impl Multitenant {
    fn read(config: &str) -> Result<Self, PluginError> {
        let mut config = Config::parse(config)?;
        let nodes_of_user =
            config.numbers("pools", 0..=NODES_MAX, "nodes a user has to itself, by user; beside what the cluster says of users")?;
        Ok(Multitenant { nodes_of_user, told: config.finish()? })
    }
}

impl Scheduler for Multitenant {
    const EXTENSIONS: &'static [Extension] = &[Extension::config::<Self>()];

    fn create(cx: &CreateCx<'_>) -> Result<Self, PluginError> {
        Self::read(cx.config)
    }

    fn schedule(&mut self, round: &Round<'_>, plan: &mut Plan<'_>) -> Result<Verdict, PluginError> {
        let snapshot = round.snapshot;
        let stated = snapshot.users().iter().map(|u| (snapshot.text(u.name).to_owned(), u64::from(u.max_isolated_nodes)));
        let mut nodes_max: BTreeMap<String, u64> = stated.collect();
        nodes_max.extend(self.nodes_of_user.clone());

        let mut allowed = None;
        for freedom in FREEDOMS {
            let mut board = Board::new(snapshot, freedom.shift);
            let said = pools::run(&mut board, &nodes_max, freedom, &|| round.should_stop());
            let is_allowed = round.max_moves.is_none_or(|max| board.n_moved() <= max) && !board.evicts(round.may_preempt);
            if is_allowed {
                allowed = Some((board, said));
                break;
            }
        }
        let Some((board, said)) = allowed else {
            return Err(PluginError::internal("it moves what runs though it may not; report this as a bug of the plugin"));
        };
        for (topology, status) in &said {
            for (exec, e) in snapshot.executors_of(&board.row(*topology)).filter(|_| round.wants_reasons()) {
                let (before, now) = (SlotId::some(e.slot), board.slot_of(exec));
                let code = match now {
                    None => status.why,
                    _ if now == before => abi::WHY_KEPT,
                    _ if before.is_none() && e.last_slot != abi::NONE => abi::WHY_MOVED_NODE_LOST,
                    _ => abi::WHY_BEST_SCORE,
                };
                round.explain(&Explanation { text: &status.text, ..Explanation::new(exec, now, code) });
            }
        }
        Ok(if board.commit(plan) { Verdict::Done } else { Verdict::NoChange })
    }
}

impl Configured for Multitenant {
    fn schema() -> String {
        Self::read("{}").map(|m| m.told.schema).unwrap_or_default()
    }
    fn effective(&self) -> String {
        self.told.effective.clone()
    }
}
