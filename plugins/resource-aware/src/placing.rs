//! One topology: by the strategy it asks for, in several orders of executors, of which the placement that costs least distance counts.
//!
//! Before: `pass` says whose turn it is. After: the model has all executors of the topology, or is as it was. Orders are made in `executors` and
//! `attract`; the search itself is in `search`.

use crate::attract::{ORDERS, Weights};
use crate::config::Strategy;
use crate::executors::{self, By, Work};
use crate::improve::Improve;
use crate::pass::{Ask, Manner, Pass};
use crate::reasons::Said;
use crate::search::{Failure, How, Search};
use saetta_sdk::model::max_colocation;
use saetta_sdk::{ExecId, SlotId, Snapshot, TopoId, abi, locality};

/// Placements tried for one topology at most, where it says nothing itself: so many, but always enough to place each executor twice.
const STATES_MAX: u64 = 10_000;
/// No topology may have more tried, whatever it says: one whose search has no end leaves the round's time to the others.
const STATES_CLUSTER_MAX: u64 = 100_000;
/// Steps back without constraints: then another arrangement rarely helps, and a topology that waits for room is tried in every round.
const BACK_MAX: u64 = 200;
/// A topology states a time; a plugin has no clock. Trying a placement takes a microsecond and more, so this is the lesser of the two, and
/// the same everywhere. The round's own deadline holds besides.
const STATES_PER_MS: u64 = 1000;

/// A way to place a topology.
struct Arrangement {
    places: Vec<(ExecId, SlotId)>,
    /// As [`locality`] has it.
    cost: f64,
}

impl Pass<'_, '_> {
    /// Places what waits of a topology, in [`Manner::Together`] without its ackers.
    pub(crate) fn place_one(&mut self, ask: &Ask, strategy: Strategy) -> Result<(), Failure> {
        let (snapshot, row, topology) = (&self.round.snapshot, &ask.row, ask.topology);
        let is_constrained = strategy == Strategy::Constraint || is_constrained(snapshot, row);
        let by = match () {
            () if is_constrained => By::Severity,
            () if row.flags & abi::TOPO_ORDER_BY_PROXIMITY != 0 => By::Proximity,
            () => By::Connections,
        };
        let model = &self.model;
        let mut work = executors::sort(snapshot, topology, by, &|e| model.slot_of(e).is_none());
        if work.has_cycle {
            let text = format!("topology {} has a cycle: nearness in the graph orders only what is before it", snapshot.text(row.id));
            self.said.push(Said::Warn(text));
        }
        if self.manner == Manner::Together {
            work.ackers.clear();
        }
        let n_work = (work.executors.len() + work.ackers.len()) as u64;
        let how = how(snapshot, row, strategy, is_constrained, n_work);
        let should_stop = || self.round.should_stop();
        let mut search = Search::new(snapshot, &mut self.model, &self.places, topology, how);
        if strategy == Strategy::RoundRobin {
            let nodes = search.nodes_of_its_own(row.isolate_machines);
            return search.place_in_turn(work, &nodes, &should_stop);
        }
        let weights = Weights::new(snapshot, row, self.places.open_nodes());
        let begin = search.model().checkpoint();
        let first = search.place_all(work.clone(), &should_stop);
        if self.manner == Manner::Storm || weights.is_nothing() || matches!(first, Err(Failure::Stopped | Failure::States(_))) {
            return first;
        }
        let mut best = first.map(|()| self.arrangement(topology));
        for prefer in ORDERS {
            if best.as_ref().is_ok_and(|b| b.cost == 0.0) {
                break;
            }
            self.model.rollback(begin);
            let mut search = Search::new(snapshot, &mut self.model, &self.places, topology, how);
            if search.place_by_attraction(work.clone(), &weights, prefer, &should_stop).is_ok() {
                let other = self.arrangement(topology);
                if best.as_ref().map_or(true, |b| other.cost < b.cost) {
                    best = Ok(other);
                }
            }
        }
        if best.is_err() && !is_constrained {
            // The largest executors first, what is left of the nodes is for the small ones.
            self.model.rollback(begin);
            let mut search = Search::new(snapshot, &mut self.model, &self.places, topology, how);
            let size = |e: &ExecId| weights.size_of(snapshot.executors().at(*e).component - row.first_comp);
            let ackers = std::mem::take(&mut work.ackers);
            work.executors.sort_by(|a, b| size(b).total_cmp(&size(a)));
            if search.place_all(work, &should_stop).and_then(|()| search.place_ackers(ackers, &should_stop)).is_ok() {
                best = Ok(self.arrangement(topology));
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

    /// Exchanges executors of a topology that were placed in this round, looking at `left` pairs at most.
    pub(crate) fn improve(&mut self, ask: &Ask, strategy: Strategy, left: &mut u64) {
        let snapshot = &self.round.snapshot;
        let weights = Weights::new(snapshot, &ask.row, self.places.open_nodes());
        if strategy == Strategy::RoundRobin || weights.is_nothing() || *left == 0 {
            return;
        }
        let (begin, before) = (self.model.checkpoint(), self.arrangement(ask.topology).cost);
        Improve::new(&mut self.model, &self.places, &weights, ask.row).run(snapshot, left);
        if self.arrangement(ask.topology).cost > before {
            self.model.rollback(begin);
        }
    }

    /// Places the ackers of a topology whose other executors are placed. Takes too little time to be stopped.
    pub(crate) fn place_ackers(&mut self, ask: &Ask, strategy: Strategy) -> Result<(), Failure> {
        let snapshot = &self.round.snapshot;
        let model = &self.model;
        let Work { ackers, .. } = executors::sort(snapshot, ask.topology, By::Connections, &|e| model.slot_of(e).is_none());
        if ackers.is_empty() {
            return Ok(());
        }
        let how = how(snapshot, &ask.row, strategy, false, ackers.len() as u64);
        Search::new(snapshot, &mut self.model, &self.places, ask.topology, how).place_ackers(ackers, &|| false)
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
}

fn how(snapshot: &Snapshot<'_>, row: &abi::TopologyRow, strategy: Strategy, is_constrained: bool, n_work: u64) -> How {
    let own_states = if row.max_states > 0 { row.max_states.min(STATES_CLUSTER_MAX.max(2 * n_work)) } else { STATES_MAX.max(2 * n_work) };
    let by_time = if row.max_ms > 0 { row.max_ms.saturating_mul(STATES_PER_MS) } else { u64::MAX };
    How {
        key: strategy.key(),
        max_states: own_states.min(by_time),
        max_back: if is_constrained { u64::MAX } else { BACK_MAX },
        ackers_per_worker: ackers_per_worker(snapshot, row),
    }
}

fn is_constrained(snapshot: &Snapshot<'_>, row: &abi::TopologyRow) -> bool {
    let hard = |c: &abi::ComponentRow| max_colocation(c) > 0;
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
