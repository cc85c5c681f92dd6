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
pub mod nodes;
pub mod order;
pub mod search;

use attract::{ORDERS, Weights};
use config::{Config, Strategy};
use executors::By;
use nodes::Places;
use saetta_sdk::model::Model;
use saetta_sdk::{
    CreateCx, ExecId, Explanation, NodeId, Outcome, Plan, PluginError, Round, Scheduler, SlotId, Snapshot, TopoId, Verdict, abi, locality,
};
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
        let mut pass = Pass {
            round,
            config: &self.config,
            model: Model::new(snapshot),
            places: Places::new(snapshot),
            moves_left: 0,
            manner: Manner::Storm,
            said: Vec::new(),
        };
        let begin = pass.model.checkpoint();
        let manners: &[Manner] = if self.config.compare_orders { &Manner::ALL } else { &[Manner::Storm] };
        let mut best: Option<Placed> = None;
        for manner in manners {
            pass.model.rollback(begin);
            let next = pass.run(&order, *manner);
            let is_done = next.n_out == 0 || round.should_stop();
            if best.as_ref().is_none_or(|b| next.n_out < b.n_out) {
                best = Some(next);
            }
            if is_done {
                break;
            }
        }
        let best = best.expect("there is at least one manner");
        let mut changed = false;
        for ((exec, row), now) in snapshot.executors().with_ids().zip(best.slots) {
            if now != SlotId::some(row.slot) {
                changed = true;
                match now {
                    Some(slot) => plan.place(exec, slot),
                    None => plan.free(exec),
                }
            }
        }
        for (topology, outcome) in best.outcomes {
            plan.outcome(topology, outcome);
        }
        best.said.iter().for_each(|said| said.tell(round));
        Ok(if changed { Verdict::Done } else { Verdict::NoChange })
    }
}

/// How a whole round is placed. Where one leaves topologies out, the next is tried, and the one that leaves fewest out counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Several orders compared, ackers after the rest.
    AckersLast,
    /// Several orders compared, ackers bound when a worker is opened.
    AckersBound,
    /// Storm's order alone.
    Storm,
}

impl Manner {
    const ALL: [Manner; 3] = [Manner::AckersLast, Manner::AckersBound, Manner::Storm];
}

/// What one manner gave.
struct Placed {
    slots: Vec<Option<SlotId>>,
    outcomes: Vec<(TopoId, Outcome)>,
    /// Topologies not placed as a whole.
    n_out: usize,
    said: Vec<Said>,
}

/// Something to tell once it is known which manner counts.
enum Said {
    Warn(String),
    /// Executors without a slot, the code with its argument, and why.
    Left(Vec<ExecId>, (u32, Option<u32>), String),
}

impl Said {
    fn tell(&self, round: &Round<'_>) {
        match self {
            Said::Warn(text) => round.warn(text),
            Said::Left(execs, (code, arg), text) => {
                execs.iter().for_each(|exec| round.explain(&Explanation { arg: *arg, text, ..Explanation::new(*exec, None, *code) }));
            }
        }
    }
}

/// A way to place a topology.
struct Arrangement {
    places: Vec<(ExecId, SlotId)>,
    /// As [`locality`] has it.
    cost: f64,
}

/// One round.
struct Pass<'a, 'r> {
    round: &'a Round<'r>,
    config: &'a Config,
    model: Model,
    places: Places,
    /// Running executors that may still be moved or freed.
    moves_left: u64,
    manner: Manner,
    said: Vec<Said>,
}

impl Pass<'_, '_> {
    /// Places what waits of all topologies.
    fn run(&mut self, order: &[TopoId], manner: Manner) -> Placed {
        self.manner = manner;
        self.moves_left = self.round.max_moves.map_or(u64::MAX, u64::from);
        self.said.clear();
        let mut outcomes = Vec::with_capacity(order.len());
        for i in 0..order.len() {
            if self.round.should_stop() {
                break;
            }
            outcomes.push((order[i], self.topology(order, i)));
        }
        let n_execs = self.round.snapshot.executors().len() as u32;
        Placed {
            slots: (0..n_execs).map(|e| self.model.slot_of(ExecId(e))).collect(),
            n_out: order.len() - outcomes.iter().filter(|(_, o)| matches!(o, Outcome::Scheduled | Outcome::Invalid)).count(),
            outcomes,
            said: std::mem::take(&mut self.said),
        }
    }

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
        needs.iter().all(|n| *n <= 0) && self.is_feasible(&row)
    }

    /// No component has more executors than may be on all open nodes together.
    fn is_feasible(&self, row: &abi::TopologyRow) -> bool {
        let n_open = (0..self.places.n_nodes() as u32).filter(|n| self.places.is_open(NodeId(*n))).count() as u64;
        let fits = |c: &abi::ComponentRow| c.max_colocation == 0 || u64::from(c.n_execs) <= n_open * u64::from(c.max_colocation);
        self.round.snapshot.components_of(row).all(|(_, c)| fits(&c))
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
            let text = format!("topology {} has a cycle: nearness in the graph orders only what is before it", snapshot.text(row.id));
            self.said.push(Said::Warn(text));
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
        let weights = Weights::new(snapshot, row, (0..self.places.n_nodes() as u32).map(NodeId).filter(|n| self.places.is_open(*n)));
        let begin = search.model().checkpoint();
        let first = search.place_all(work.clone(), &should_stop);
        if self.manner == Manner::Storm || weights.is_nothing() || matches!(first, Err(Failure::Stopped | Failure::States(_))) {
            return first;
        }
        let mut best = first.map(|()| self.arrangement(topology));
        let bind = self.manner == Manner::AckersBound;
        for prefer in ORDERS {
            if best.as_ref().is_ok_and(|b| b.cost == 0.0) {
                break;
            }
            self.model.rollback(begin);
            let mut search = Search::new(snapshot, &mut self.model, &self.places, topology, how);
            if search.place_by_attraction(work.clone(), &weights, prefer, bind, &should_stop).is_ok() {
                let other = self.arrangement(topology);
                if best.as_ref().map_or(true, |b| other.cost < b.cost) {
                    best = Ok(other);
                }
            }
        }
        self.model.rollback(begin);
        best.map(|b| {
            b.places.into_iter().for_each(|(exec, slot)| {
                if self.model.slot_of(exec).is_none() {
                    self.model.place(exec, slot)
                }
            })
        })
    }

    /// Where a topology's executors are now, and what that costs.
    fn arrangement(&self, topology: TopoId) -> Arrangement {
        let snapshot = &self.round.snapshot;
        let row = snapshot.topologies().at(topology);
        let places = (row.first_exec..row.first_exec + row.n_execs).map(ExecId);
        Arrangement {
            places: places.filter_map(|e| self.model.slot_of(e).map(|s| (e, s))).collect(),
            cost: locality::cost_by(snapshot, topology, &|e| self.model.slot_of(e)),
        }
    }

    fn refuse(&mut self, topology: TopoId, text: &str) -> Outcome {
        let row = self.round.snapshot.topologies().at(topology);
        self.said.push(Said::Warn(format!("topology {} cannot be placed: {text}", self.round.snapshot.text(row.id))));
        Outcome::Invalid
    }

    fn explain(&mut self, topology: TopoId, failure: Failure) {
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
        let left = self.round.snapshot.executors_of(&row).map(|(e, _)| e).filter(|e| self.model.slot_of(*e).is_none()).collect();
        self.said.push(Said::Left(left, (code, arg), text));
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
