//! Who talks to whom, and how much: executors of one topology as groups of equals, with bytes per second between any two of them.
//!
//! Before: a round's snapshot. After: `layout.rs` places groups by these weights. A group is a component; where somebody reads it by a global
//! grouping, its first executor is a group of its own. An edge's bytes are spread evenly over its pairs of executors. Edges that were
//! measured count as measured; others by what Storm's cost counts (a copy for each emitter, with `all` and `direct` one for each pair), at
//! the scale of the measured ones. Ackers, whom nobody subscribes, get a small part of what spouts emit, so that they stand near them.

use saetta_sdk::{CompId, ExecId, NodeId, Snapshot, TopoId, abi};
use std::collections::BTreeMap;

/// Bytes per second of an edge beyond which it counts no more.
const RATE_MAX: i128 = 1 << 40;
/// A pair's weight is in thousandths of bytes per second.
const MILLI: i128 = 1000;
/// Bytes per second of one emitter where nothing was measured.
const GUESS: i128 = 1000;
/// A spout's acker gets one part in so many of what one emitter is guessed to emit.
const ACK_PART: i128 = 8;

/// Weights between groups, symmetric: of one executor of each, both directions together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Matrix {
    n: usize,
    weights: Vec<i128>,
}

impl Matrix {
    /// Without any traffic.
    pub(crate) fn new(n: usize) -> Self {
        Matrix { n, weights: vec![0; n * n] }
    }
    /// Groups.
    pub(crate) fn n_groups(&self) -> usize {
        self.n
    }
    /// Between two executors of these groups.
    pub(crate) fn get(&self, a: usize, b: usize) -> i128 {
        self.weights[a * self.n + b]
    }
    /// Adds to it. Within a group, a pair talks both ways, so it counts twice.
    pub(crate) fn add(&mut self, a: usize, b: usize, weight: i128) {
        self.weights[a * self.n + b] += weight;
        self.weights[b * self.n + a] += weight;
    }
}

/// The traffic of one topology.
#[derive(Debug, Clone)]
pub(crate) struct Traffic {
    /// Group of each executor, from the topology's first.
    pub(crate) group: Vec<usize>,
    /// What is subscribed: what crosses a node is counted with this.
    pub(crate) bytes: Matrix,
    /// The same and the acks.
    pub(crate) weights: Matrix,
    /// True for groups of ackers.
    pub(crate) is_acker: Vec<bool>,
    /// Component of each group, from the topology's first.
    pub(crate) comp: Vec<usize>,
}

struct Edge {
    from: CompId,
    to: CompId,
    is_global: bool,
    guess: i128,
    measured: Option<i128>,
}

/// Reads the traffic of a topology.
pub(crate) fn traffic(snapshot: &Snapshot<'_>, topology: TopoId) -> Traffic {
    let row = snapshot.topologies().at(topology);
    let n_execs = |c: CompId| i128::from(snapshot.components().at(c).n_execs);
    let mut edges: Vec<Edge> = Vec::new();
    for (from, _) in snapshot.components_of(&row) {
        for (id, e) in snapshot.edges_from(from) {
            let to = CompId(e.to);
            let pairs = n_execs(from) * n_execs(to);
            let guess = if matches!(e.grouping, abi::GROUP_ALL | abi::GROUP_DIRECT) { pairs } else { n_execs(from) };
            let measured = snapshot.rate(id).map(|r| i128::from(r.bytes_per_s).min(RATE_MAX));
            if pairs > 0 {
                edges.push(Edge { from, to, is_global: e.grouping == abi::GROUP_GLOBAL, guess, measured });
            }
        }
    }

    // Groups: a component, or its first executor and the others.
    let mut groups: BTreeMap<CompId, Vec<(usize, i128)>> = BTreeMap::new();
    let mut group = vec![0; row.n_execs as usize];
    let (mut is_acker, mut comp) = (Vec::new(), Vec::new());
    for (id, c) in snapshot.components_of(&row) {
        let has_head = c.n_execs > 1 && edges.iter().any(|e| e.is_global && e.to == id);
        let sizes = if has_head { vec![1, i128::from(c.n_execs) - 1] } else { vec![i128::from(c.n_execs)] };
        let first = is_acker.len();
        for (i, (ExecId(exec), _)) in snapshot.executors_in(&c).enumerate() {
            group[(exec - row.first_exec) as usize] = first + usize::from(has_head && i > 0);
        }
        is_acker.extend(sizes.iter().map(|_| c.kind == abi::KIND_ACKER));
        comp.extend(sizes.iter().map(|_| (id.0 - row.first_comp) as usize));
        groups.insert(id, sizes.into_iter().enumerate().map(|(i, n)| (first + i, n)).collect());
    }

    // Where some edges were measured, the others are guessed at their scale.
    let known: Vec<(i128, i128)> = edges.iter().filter_map(|e| Some((e.guess, e.measured?))).collect();
    let (guessed, measured): (i128, i128) = (known.iter().map(|k| k.0).sum(), known.iter().map(|k| k.1).sum());
    let per_emitter = if guessed > 0 { measured / guessed } else { GUESS };
    let mut bytes = Matrix::new(is_acker.len());
    for e in &edges {
        let rate = e.measured.unwrap_or(e.guess * per_emitter) * MILLI;
        let targets = if e.is_global { &groups[&e.to][..1] } else { &groups[&e.to][..] };
        let n_targets: i128 = targets.iter().map(|t| t.1).sum();
        let weight = rate / (n_execs(e.from) * n_targets);
        for (from, _) in &groups[&e.from] {
            targets.iter().for_each(|(to, _)| bytes.add(*from, *to, weight));
        }
    }

    let mut weights = bytes.clone();
    let of_kind = |kind: u32| snapshot.components_of(&row).filter(move |(_, c)| c.kind == kind && c.n_execs > 0);
    for (acker, a) in of_kind(abi::KIND_ACKER).filter(|(id, _)| edges.iter().all(|e| e.to != *id)) {
        for (spout, _) in of_kind(abi::KIND_SPOUT) {
            let weight = (per_emitter * MILLI / ACK_PART / i128::from(a.n_execs)).max(1);
            for (from, _) in &groups[&spout] {
                groups[&acker].iter().for_each(|(to, _)| weights.add(*from, *to, weight));
            }
        }
    }
    Traffic { group, bytes, weights, is_acker, comp }
}

impl Traffic {
    /// Thousandths of bytes per second between executors on different nodes, by executors of each group on each node.
    pub(crate) fn crossing(&self, on: &BTreeMap<NodeId, Vec<u32>>) -> i128 {
        if on.len() < 2 {
            return 0;
        }
        let pairs = |n: &[u32]| -> i128 {
            let held: Vec<(usize, i128)> = n.iter().enumerate().filter(|(_, n)| **n > 0).map(|(g, n)| (g, i128::from(*n))).collect();
            held.iter().map(|(g, n)| held.iter().map(|(h, m)| self.bytes.get(*g, *h) * n * m).sum::<i128>()).sum()
        };
        let all: Vec<u32> = (0..self.comp.len()).map(|g| on.values().map(|n| n[g]).sum()).collect();
        (pairs(&all) - on.values().map(|n| pairs(n)).sum::<i128>()) / 2
    }
}
