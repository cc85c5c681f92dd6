//! Resource-aware: every executor gets the CPU, memory and other resources it asks for, packed by what talks to what.
//!
//! Before: a host packed the cluster and called through the C ABI. After: the plan has a slot for each executor of each topology that fits as a
//! whole; the others keep what they had. Topologies come in the order of [`order`]; one that does not fit may evict those after it that have
//! a lower priority, if the round allows it. What runs is never moved to make things better, only evicted; a rebalance asks for it.
//! Pure: no clock, no randomness, no state between rounds.
#![forbid(unsafe_code)]

mod config;
pub mod executors;
pub mod nodes;
pub mod order;
pub mod search;

use config::{Config, Strategy};
use executors::By;
use nodes::Places;
use saetta_sdk::model::Model;
use saetta_sdk::{CreateCx, ExecId, Explanation, NodeId, Outcome, Plan, PluginError, Round, Scheduler, Snapshot, TopoId, Verdict, abi};
use search::{Failure, How, Search};

/// Placements tried for one topology at most, where it says nothing itself: so many, but always enough to place each executor twice.
const STATES_MAX: u64 = 10_000;
/// Steps back without constraints: then another arrangement rarely helps, and a topology that waits for room is tried in every round.
const BACK_MAX: u64 = 200;
/// A topology states a time; a plugin has no clock. Trying a placement takes a microsecond and more, so this is the lesser of the two, and
/// the same everywhere. The round's own deadline holds besides.
const STATES_PER_MS: u64 = 1000;

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
        let snapshot = &round.snapshot;
        let order = order::order(snapshot, self.config.fairness);
        let mut work = Pass {
            round,
            config: &self.config,
            model: Model::new(snapshot),
            places: Places::new(snapshot),
            moves_left: round.max_moves.map_or(u64::MAX, u64::from),
        };
        let mut outcomes = Vec::with_capacity(order.len());
        for i in 0..order.len() {
            if round.should_stop() {
                break;
            }
            outcomes.push((order[i], work.topology(&order, i)));
        }
        let mut changed = false;
        for (exec, row) in snapshot.executors().with_ids() {
            let now = work.model.slot_of(exec);
            if now != saetta_sdk::SlotId::some(row.slot) {
                changed = true;
                match now {
                    Some(slot) => plan.place(exec, slot),
                    None => plan.free(exec),
                }
            }
        }
        for (topology, outcome) in outcomes {
            plan.outcome(topology, outcome);
        }
        Ok(if changed { Verdict::Done } else { Verdict::NoChange })
    }
}

/// One round.
struct Pass<'a, 'r> {
    round: &'a Round<'r>,
    config: &'a Config,
    model: Model,
    places: Places,
    /// Running executors that may still be moved or freed.
    moves_left: u64,
}

impl Pass<'_, '_> {
    /// Places what waits of the `at`th topology.
    fn topology(&mut self, order: &[TopoId], at: usize) -> Outcome {
        let snapshot = &self.round.snapshot;
        let topology = order[at];
        let row = snapshot.topologies().at(topology);
        let begin = self.model.checkpoint();
        if row.flags & abi::TOPO_REBALANCE != 0 {
            self.free(topology);
        }
        if snapshot.executors_of(&row).all(|(e, _)| self.model.slot_of(e).is_some()) {
            return Outcome::Scheduled;
        }
        let strategy = match self.config.strategy(snapshot.text(row.strategy)) {
            Ok(strategy) => strategy,
            Err(text) => return self.refuse(topology, &text),
        };
        if !snapshot.components_of(&row).any(|(_, c)| c.kind == abi::KIND_SPOUT) {
            return self.refuse(topology, "it has no spout");
        }
        let outcome = |model: &Model| {
            let n = snapshot.executors_of(&row).filter(|(e, _)| model.slot_of(*e).is_some()).count();
            if n == 0 { Outcome::Unschedulable } else { Outcome::Partial }
        };
        let (mut n_freed, mut failure) = (0, Failure::NoRoom(ExecId(row.first_exec)));
        for _ in 0..self.config.attempts {
            if self.covers(topology) {
                match self.try_strategy(topology, &row, strategy) {
                    Ok(()) => {
                        self.moves_left -= n_freed;
                        return Outcome::Scheduled;
                    }
                    Err(other) => failure = other,
                }
                if !matches!(failure, Failure::NoRoom(_)) {
                    break;
                }
            }
            let Some(n) = self.evict(order, at, row.priority, self.moves_left - n_freed) else { break };
            n_freed += n;
        }
        self.model.rollback(begin);
        self.explain(topology, failure);
        match failure {
            Failure::Stopped => Outcome::Waiting,
            _ => outcome(&self.model),
        }
    }

    /// Frees all executors of a topology.
    fn free(&mut self, topology: TopoId) -> u64 {
        let row = self.round.snapshot.topologies().at(topology);
        let mut n = 0;
        for (exec, e) in self.round.snapshot.executors_of(&row) {
            // What was placed in this very round moves nothing.
            n += u64::from(self.model.slot_of(exec).is_some() && e.slot != abi::NONE);
            self.model.free(exec);
        }
        n
    }

    /// Evicts from the end of the order until what is asked for could be there, at least one topology. Returns the running executors freed;
    /// `None` = there is no one left to evict.
    fn evict(&mut self, order: &[TopoId], at: usize, priority: i32, moves_left: u64) -> Option<u64> {
        if !self.round.may_preempt {
            return None;
        }
        let snapshot = &self.round.snapshot;
        let (mut n_freed, mut any) = (0, false);
        for victim in order[at + 1..].iter().rev() {
            let row = snapshot.topologies().at(*victim);
            let placed = snapshot.executors_of(&row).filter(|(e, _)| self.model.slot_of(*e).is_some()).count() as u64;
            // Equal priorities do not evict each other: the ABI allows it for a lower one only, whoever is above its guarantee.
            if placed == 0 || row.priority <= priority || n_freed + placed > moves_left {
                continue;
            }
            n_freed += self.free(*victim);
            any = true;
            if self.covers(order[at]) {
                break;
            }
        }
        any.then_some(n_freed)
    }

    /// The open nodes together have what the topology's waiting executors ask for.
    fn covers(&self, topology: TopoId) -> bool {
        let snapshot = &self.round.snapshot;
        let row = snapshot.topologies().at(topology);
        let mut needs = vec![0i64; self.model.n_kinds()];
        for (_, e) in snapshot.executors_of(&row).filter(|(e, _)| self.model.slot_of(*e).is_none()) {
            let request = self.model.request(saetta_sdk::CompId(e.component));
            needs.iter_mut().zip(request).for_each(|(n, r)| *n = n.saturating_add(*r));
        }
        let nodes = (0..self.model.n_nodes() as u32).map(NodeId).filter(|n| self.places.is_open(*n));
        for node in nodes {
            needs.iter_mut().zip(self.model.avail(node)).for_each(|(n, a)| *n = n.saturating_sub((*a).max(0)));
        }
        needs.iter().all(|n| *n <= 0)
    }

    fn try_strategy(&mut self, topology: TopoId, row: &abi::TopologyRow, strategy: Strategy) -> Result<(), Failure> {
        let snapshot = &self.round.snapshot;
        let is_constrained = strategy == Strategy::Constraint || is_constrained(snapshot, row);
        let by = match () {
            () if is_constrained => By::Severity,
            () if row.flags & abi::TOPO_ORDER_BY_PROXIMITY != 0 => By::Proximity,
            () => By::Connections,
        };
        let model = &self.model;
        let work = executors::sort(snapshot, topology, by, &|e| model.slot_of(e).is_none());
        if work.has_cycle {
            self.round
                .warn(&format!("topology {} has a cycle: nearness in the graph orders only what is before it", snapshot.text(row.id)));
        }
        let n_work = (work.executors.len() + work.ackers.len()) as u64;
        let own_states = if row.max_states > 0 { row.max_states } else { STATES_MAX.max(2 * n_work) };
        let by_time = if row.max_ms > 0 { row.max_ms.saturating_mul(STATES_PER_MS) } else { u64::MAX };
        let how = How {
            key: strategy.key(),
            max_states: own_states.min(by_time),
            max_back: if is_constrained { u64::MAX } else { BACK_MAX },
            ackers_per_worker: ackers_per_worker(snapshot, row),
        };
        let mut search = Search::new(snapshot, &mut self.model, &self.places, topology, how);
        let should_stop = || self.round.should_stop();
        if strategy == Strategy::RoundRobin {
            let mut nodes = search.nodes();
            drop(search);
            let others = |n: &NodeId| self.model.slots(*n).any(|s| self.model.holder(s).is_some_and(|t| t != topology));
            nodes.retain(|n| !others(n));
            if row.isolate_machines > 0 {
                nodes.truncate(row.isolate_machines as usize);
            }
            let mut search = Search::new(snapshot, &mut self.model, &self.places, topology, how);
            return search.place_in_turn(work, &nodes, &should_stop);
        }
        search.place_all(work, &should_stop)
    }

    fn refuse(&self, topology: TopoId, text: &str) -> Outcome {
        let row = self.round.snapshot.topologies().at(topology);
        self.round.warn(&format!("topology {} cannot be placed: {text}", self.round.snapshot.text(row.id)));
        Outcome::Invalid
    }

    fn explain(&self, topology: TopoId, failure: Failure) {
        if !self.round.wants_reasons() {
            return;
        }
        let row = self.round.snapshot.topologies().at(topology);
        let (code, arg, text) = match failure {
            Failure::NoRoom(exec) => {
                let (code, arg) = search::reason(&self.model, exec).why();
                (
                    code,
                    arg,
                    "no node has room for all that waits; free resources, lower a request, or lower another topology's priority".to_owned(),
                )
            }
            Failure::States(n) => (
                abi::WHY_DEADLINE,
                None,
                format!("{n} placements were tried, as many as it allows; raise topology.ras.constraint.max.state.search"),
            ),
            Failure::Stopped => (abi::WHY_DEADLINE, None, "the round's time was over; it is tried again".to_owned()),
        };
        for (exec, _) in self.round.snapshot.executors_of(&row).filter(|(e, _)| self.model.slot_of(*e).is_none()) {
            self.round.explain(&Explanation { arg, text: &text, ..Explanation::new(exec, None, code) });
        }
    }
}

fn is_constrained(snapshot: &Snapshot<'_>, row: &abi::TopologyRow) -> bool {
    let hard = |c: &abi::ComponentRow| c.max_colocation > 0 || c.flags & abi::COMP_SPREAD != 0;
    snapshot.components_of(row).any(|(id, c)| hard(&c) || snapshot.incompatible_with(id).len() > 0)
}

/// Its ackers over the workers its other executors' on-heap memory makes likely, rounded up.
fn ackers_per_worker(snapshot: &Snapshot<'_>, row: &abi::TopologyRow) -> u32 {
    let (mut heap, mut n_ackers) = (0i64, 0);
    for (_, c) in snapshot.components_of(row) {
        match c.kind {
            abi::KIND_ACKER => n_ackers += c.n_execs,
            abi::KIND_SPOUT | abi::KIND_BOLT => heap = heap.saturating_add(c.on_heap.saturating_mul(i64::from(c.n_execs))),
            _ => {}
        }
    }
    let limit = if row.max_worker_heap > 0 { row.max_worker_heap } else { i64::MAX };
    let n_workers = (heap / limit + i64::from(heap % limit > 0)).clamp(1, i64::from(u32::MAX)) as u32;
    n_ackers.div_ceil(n_workers)
}
