//! Which executor of a worker runs on which core, and why: the worker's own planner, as a pure function.
//!
//! Before: a placement's executors and the cores of its slot. After: `assignment::ExecutorPlace::core`, or the loops of a
//! local run; `loops.rs` says which loop of a core an executor is on. What is balanced is the work of serialising, not the number of
//! executors: a hop inside a core costs about what serialising costs, so const | identity + null beats const + identity | null by
//! 43 to 30 M tuples/s. Neighbours in the topology share a core where that allows it.

mod cut;

use crate::name::Name;
use crate::parallelism::{ComponentLayout, ExecutorId, Layout};
use crate::topology::{ComponentKind, ComponentSpec, TopologySpec};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Why an executor is where it is; prints as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// `executor.core` of its component.
    ByHand,
    /// The scheduler's plan says so.
    ByScheduler,
    /// The worker has one core.
    OnlyCore,
    /// Its component has as many executors here as there are cores, or more: they are dealt over all of them.
    Dealt {
        /// Executors of the component here.
        executors: usize,
        /// Cores of the worker.
        cores: usize,
    },
    /// Beside a component it reads from, or that reads from it.
    Beside(Name),
    /// Begins the work of its core, cut so that the load is even.
    Even {
        /// The core's part of the worker's load.
        percent: u32,
    },
    /// An acker, on the core of a spout.
    Serves(Name),
    /// An acker in a worker without a spout.
    NoSpout,
    /// Its component blocks, so it has a thread of its own; dealt over the cores, the least loaded first.
    Blocks,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::ByHand => write!(f, "by hand: executor.core"),
            Reason::ByScheduler => write!(f, "by the scheduler"),
            Reason::OnlyCore => write!(f, "the worker has one core"),
            Reason::Dealt { executors, cores } => write!(f, "dealt over all cores: {executors} executors, {cores} cores"),
            Reason::Beside(neighbour) => write!(f, "beside its neighbour `{neighbour}`"),
            Reason::Even { percent } => write!(f, "load even: this core has {percent} % of it"),
            Reason::Serves(spout) => write!(f, "beside spout `{spout}`, which it serves"),
            Reason::NoSpout => write!(f, "serves spouts of other workers"),
            Reason::Blocks => write!(f, "blocks: a thread of its own"),
        }
    }
}

/// One executor with its core and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Which.
    pub id: ExecutorId,
    /// One of the cores given.
    pub core: u32,
    /// Why there.
    pub reason: Reason,
}

/// What the planner is told about components, by id.
#[derive(Clone, Copy)]
pub struct Hints<'a> {
    /// The core of its executors, by hand; must be one of the worker's cores.
    pub by_hand: &'a dyn Fn(&str) -> Option<u32>,
    /// The core of an executor by the scheduler's plan; must be one of the worker's cores.
    pub planned: &'a dyn Fn(ExecutorId) -> Option<u32>,
    /// Measured: the part of one core that one of its executors is busy, 0 to 1. `None` = not measured.
    pub busy: &'a dyn Fn(&str) -> Option<f64>,
    /// True for a component whose calls block: its executors have threads of their own, which take no part in the balance.
    pub blocks: &'a dyn Fn(&str) -> bool,
}

impl Hints<'_> {
    /// Nothing by hand, nothing measured, nothing blocks.
    pub const NONE: Hints<'static> = Hints { by_hand: &|_| None, planned: &|_| None, busy: &|_| None, blocks: &|_| false };
}

/// Load of an executor that serialises what it emits, in thousandths of a core, where nothing is stated or measured.
const EMITS_MILLI: u64 = 1000;
/// Load of one whose streams nobody reads: handling costs about half of serialising.
const SINK_PART: u64 = 2;

/// Places `executors` (ascending) on `cores` (ascending, not empty). The same input gives the same places in every process.
///
/// By hand wins, then the scheduler. A component with as many executors here as there are cores, or more, is dealt over all cores. The rest stand in
/// topological order, chains together, and are cut into consecutive runs, one per core, so that the fullest core is as empty as can be;
/// among such cuts one that leaves no core idle and parts the fewest neighbours. Load of an executor: measured, else its cpu request, else by what it
/// serialises. Ackers sit with the spouts they serve, so that a spout's own loop holds its ledger.
pub fn plan(spec: &TopologySpec, layout: &Layout, executors: &[ExecutorId], cores: &[u32], hints: &Hints<'_>) -> Vec<Placed> {
    assert!(!cores.is_empty(), "a worker has at least one core");
    let mut plan = Plan { spec, hints, cores, load: vec![0; cores.len()], places: BTreeMap::new() };
    let mine =
        |l: &ComponentLayout| -> Vec<ExecutorId> { l.executors.iter().copied().filter(|e| executors.binary_search(e).is_ok()).collect() };
    let order = in_chains(spec);
    let here: BTreeMap<&str, Vec<ExecutorId>> =
        layout.components.iter().map(|l| (l.id.as_str(), mine(l))).filter(|(_, e)| !e.is_empty()).collect();
    let weights = plan.weights(&here);
    let mut line: Vec<Stands<'_>> = Vec::new();
    let mut blocking: Vec<ExecutorId> = Vec::new();
    let at = |core: u32| cores.iter().position(|c| *c == core).unwrap_or_else(|| panic!("core {core} is not one of the worker's"));
    for (id, executors) in &here {
        let by_hand = || spec.component(id).is_some() && (hints.by_hand)(id).is_some();
        for (e, core) in executors.iter().filter_map(|e| Some((*e, (hints.planned)(*e)?))).filter(|_| !by_hand()) {
            plan.put(e, at(core), weights.get(id).copied().unwrap_or(0), Reason::ByScheduler);
        }
    }
    for component in order {
        let id = component.id.as_str();
        let Some(executors) = here.get(id) else { continue };
        let executors: Vec<ExecutorId> = executors.iter().copied().filter(|e| !plan.places.contains_key(e)).collect();
        let by_hand = (hints.by_hand)(id);
        if let Some(core) = by_hand {
            let at = at(core);
            executors.iter().for_each(|e| plan.put(*e, at, weights[id], Reason::ByHand));
        } else if (hints.blocks)(id) {
            blocking.extend(executors);
        } else if cores.len() == 1 {
            executors.iter().for_each(|e| plan.put(*e, 0, weights[id], Reason::OnlyCore));
        } else if executors.len() >= cores.len() {
            let reason = Reason::Dealt { executors: executors.len(), cores: cores.len() };
            executors.iter().enumerate().for_each(|(i, e)| plan.put(*e, i % cores.len(), weights[id], reason.clone()));
        } else {
            line.extend(executors.iter().map(|e| Stands { id: *e, component, weight: weights[id] }));
        }
    }
    plan.cut(&line);
    plan.put_blocking(&blocking);
    plan.put_ackers(layout, &mine);
    let placed: Vec<Placed> = plan.places.into_iter().map(|(id, (at, reason))| Placed { id, core: cores[at], reason }).collect();
    assert_eq!(placed.len(), executors.len(), "every executor is placed exactly once");
    placed
}

/// An executor that stands in the line to be cut.
struct Stands<'a> {
    id: ExecutorId,
    component: &'a ComponentSpec,
    weight: u64,
}

struct Plan<'a> {
    spec: &'a TopologySpec,
    hints: &'a Hints<'a>,
    cores: &'a [u32],
    /// By core, of what is placed so far.
    load: Vec<u64>,
    /// Index of the core.
    places: BTreeMap<ExecutorId, (usize, Reason)>,
}

impl Plan<'_> {
    fn put(&mut self, id: ExecutorId, at: usize, weight: u64, reason: Reason) {
        self.load[at] += weight;
        self.places.insert(id, (at, reason));
    }

    /// Thousandths of a core of one executor, by component; of ackers nothing.
    fn weights<'s>(&self, here: &BTreeMap<&'s str, Vec<ExecutorId>>) -> BTreeMap<&'s str, u64> {
        let busy = |id: &str| (self.hints.busy)(id).filter(|b| b.is_finite()).map(|b| (b.clamp(0.0, 1.0) * 1000.0).round() as u64);
        let components = || here.keys().filter_map(|id| Some((*id, self.spec.component(id)?)));
        let measured: Vec<u64> = components().filter_map(|(id, _)| busy(id)).collect();
        // Beside measured components, one that is not counts as one of them.
        let usual = if measured.is_empty() { EMITS_MILLI } else { (measured.iter().sum::<u64>() / measured.len() as u64).max(1) };
        let read: BTreeSet<&Name> = self.spec.components.iter().flat_map(|c| c.inputs.iter().map(|i| &i.from)).collect();
        let unmeasured = |c: &ComponentSpec| match (c.resources.cpu_milli_pct / 100).max(0) as u64 {
            0 if read.contains(&c.id) => usual,
            0 => usual / SINK_PART,
            stated => stated,
        };
        components().map(|(id, c)| (id, busy(id).unwrap_or_else(|| unmeasured(c)))).collect()
    }

    fn cut(&mut self, line: &[Stands<'_>]) {
        // Where neighbours stand that were put by hand.
        let by_hand = |id: &Name| (self.hints.by_hand)(id.as_str()).and_then(|core| self.cores.iter().position(|c| *c == core));
        let neighbours: BTreeMap<&Name, BTreeSet<&Name>> = neighbours(self.spec);
        let none = BTreeSet::new();
        let around = |s: &Stands<'_>| neighbours.get(&s.component.id).unwrap_or(&none).iter().copied();
        let members: Vec<cut::Member> =
            line.iter().map(|s| cut::Member { weight: s.weight, pulls: around(s).filter_map(by_hand).collect() }).collect();
        let mut first: BTreeMap<&Name, (usize, usize)> = BTreeMap::new();
        for (i, s) in line.iter().enumerate() {
            first.entry(&s.component.id).or_insert((i, i)).1 = i;
        }
        let edges: Vec<(usize, usize)> = neighbours
            .iter()
            .flat_map(|(a, around)| around.iter().filter(move |b| a < *b).map(move |b| (*a, *b)))
            .filter_map(|(a, b)| Some((first.get(a)?, first.get(b)?)))
            .map(|(a, b)| (a.0.min(b.0), a.1.max(b.1)))
            .collect();
        let at = cut::cut(&members, &edges, &self.load);
        let all: u64 = self.load.iter().sum::<u64>() + line.iter().map(|s| s.weight).sum::<u64>();
        let mut load = self.load.clone();
        line.iter().zip(&at).for_each(|(s, at)| load[*at] += s.weight);
        let mut begun: Vec<BTreeSet<&Name>> = self.cores.iter().map(|_| BTreeSet::new()).collect();
        for (s, at) in line.iter().zip(at) {
            let beside = around(s).find(|n| begun[at].contains(n) || by_hand(n) == Some(at));
            let percent = (load[at] * 100).checked_div(all).unwrap_or(0) as u32;
            let reason = beside.map_or(Reason::Even { percent }, |n| Reason::Beside(n.clone()));
            begun[at].insert(&s.component.id);
            self.put(s.id, at, s.weight, reason);
        }
    }

    /// Threads that park most of the time: over the cores, the least loaded first.
    fn put_blocking(&mut self, executors: &[ExecutorId]) {
        let mut by_load: Vec<usize> = (0..self.cores.len()).collect();
        by_load.sort_by_key(|at| (self.load[*at], *at));
        executors.iter().enumerate().for_each(|(i, e)| self.put(*e, by_load[i % by_load.len()], 0, Reason::Blocks));
    }

    fn put_ackers(&mut self, layout: &Layout, mine: &dyn Fn(&ComponentLayout) -> Vec<ExecutorId>) {
        let of = |kind| layout.components.iter().filter(move |c| c.kind == kind);
        let tracked = |c: &&ComponentLayout| self.spec.component(c.id.as_str()).is_some_and(|s| s.tracked);
        let serves = |only_tracked: bool| {
            let mut seats: Vec<(usize, Name)> = Vec::new();
            for spout in of(ComponentKind::Spout).filter(|c| !only_tracked || tracked(c)) {
                for at in mine(spout).iter().filter_map(|e| self.places.get(e)).map(|(at, _)| *at) {
                    if seats.iter().all(|(seat, _)| *seat != at) {
                        seats.push((at, spout.id.clone()));
                    }
                }
            }
            seats
        };
        let mut seats = serves(true);
        if seats.is_empty() {
            seats = serves(false);
        }
        let ackers: Vec<ExecutorId> = of(ComponentKind::Acker).flat_map(mine).filter(|e| !self.places.contains_key(e)).collect();
        for (i, acker) in ackers.into_iter().enumerate() {
            let (at, reason) = match seats.get(i % seats.len().max(1)) {
                Some((at, spout)) => (*at, Reason::Serves(spout.clone())),
                None => (i % self.cores.len(), Reason::NoSpout),
            };
            self.put(acker, at, 0, reason);
        }
    }
}

/// Who reads from whom, both ways.
fn neighbours(spec: &TopologySpec) -> BTreeMap<&Name, BTreeSet<&Name>> {
    let mut all: BTreeMap<&Name, BTreeSet<&Name>> = BTreeMap::new();
    for c in &spec.components {
        for from in c.inputs.iter().map(|i| &i.from).filter(|from| **from != c.id) {
            all.entry(from).or_default().insert(&c.id);
            all.entry(&c.id).or_default().insert(from);
        }
    }
    all
}

/// Topological order in which a component follows what it reads from as closely as can be: chains stay together. Ties by id; a cycle is
/// entered at its smallest id.
fn in_chains(spec: &TopologySpec) -> Vec<&ComponentSpec> {
    let place: BTreeMap<&Name, usize> = spec.components.iter().enumerate().map(|(i, c)| (&c.id, i)).collect();
    let inputs: Vec<BTreeSet<usize>> = spec
        .components
        .iter()
        .enumerate()
        .map(|(i, c)| c.inputs.iter().filter_map(|input| place.get(&input.from).copied()).filter(|from| *from != i).collect())
        .collect();
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); inputs.len()];
    inputs.iter().enumerate().for_each(|(i, from)| from.iter().for_each(|f| readers[*f].push(i)));
    let mut missing: Vec<usize> = inputs.iter().map(BTreeSet::len).collect();
    let mut left: BTreeSet<usize> = (0..inputs.len()).collect();
    // (place of the newest input in the order, component), of those whose inputs are all there.
    let mut ready: BTreeSet<(std::cmp::Reverse<usize>, usize)> = BTreeSet::new();
    ready.extend(missing.iter().enumerate().filter(|(_, n)| **n == 0).map(|(i, _)| (std::cmp::Reverse(0), i)));
    let mut order = Vec::with_capacity(inputs.len());
    while let Some(smallest) = left.first().copied() {
        let next = ready.pop_first().map_or(smallest, |(_, i)| i);
        if !left.remove(&next) {
            continue;
        }
        order.push(&spec.components[next]);
        for reader in &readers[next] {
            missing[*reader] -= 1;
            if missing[*reader] == 0 && left.contains(reader) {
                ready.insert((std::cmp::Reverse(order.len()), *reader));
            }
        }
    }
    order
}
