//! Clusters in any state, with rates: what holds whatever they are.

mod common;

use common::{Edge, crossing};
use proptest::prelude::*;
use saetta_latency_aware::BUILTIN;
use saetta_sdk::abi;
use saetta_sdk::testing::shapes::even;
use saetta_sdk::testing::{Cluster, Component, Done, Node, Topology};
use std::collections::BTreeMap;

/// Slots, host, rack, cores.
type MadeNode = (u32, usize, usize, u32);

#[derive(Debug, Clone)]
struct Made {
    workers: u32,
    priority: i32,
    asked: bool,
    /// Executors of each component.
    n_execs: Vec<usize>,
    /// From (an earlier component), grouping, measured bytes, of each component but the first.
    reads: Vec<(usize, usize, u64)>,
    /// Node of each executor; beyond the nodes: none.
    at: Vec<usize>,
}

const GROUPINGS: [u32; 4] = [abi::GROUP_SHUFFLE, abi::GROUP_FIELDS, abi::GROUP_ALL, abi::GROUP_GLOBAL];

impl Made {
    fn name(c: usize) -> String {
        format!("c{c}")
    }
    fn edges(&self, measured: bool) -> Vec<Edge> {
        let guess = |from: usize, to: usize, grouping: u32| {
            let n = if grouping == abi::GROUP_ALL { self.n_execs[from] * self.n_execs[to] } else { self.n_execs[from] };
            n as f64 * 1000.0
        };
        let edge = |(i, (from, grouping, bytes)): (usize, &(usize, usize, u64))| {
            let (from, to, grouping) = (from % (i + 1), i + 1, GROUPINGS[*grouping]);
            (from, to, grouping, if measured { *bytes as f64 } else { guess(from, to, grouping) })
        };
        self.reads.iter().enumerate().map(edge).collect()
    }
    /// Port i belongs to topology i, so that no slot is claimed twice.
    fn topology(&self, t: usize, nodes: &[MadeNode], node: &dyn Fn(usize) -> String, warm: bool) -> Topology {
        let mut made = Topology::new(&format!("t{t}")).workers(self.workers).priority(self.priority);
        let edges = self.edges(true);
        let mut places = self.at.iter().cycle();
        for (c, n) in self.n_execs.iter().enumerate() {
            let mut comp = if c == 0 { Component::spout("c0", *n as u32) } else { Component::bolt(&Self::name(c), *n as u32) };
            for (from, _, grouping, bytes) in edges.iter().filter(|e| e.1 == c) {
                comp = comp.reads_by(&Self::name(*from), "default", *grouping).measured(*bytes as u64 / 100, *bytes as u64);
            }
            for (e, at) in (0..*n).zip(&mut places) {
                if warm && nodes.get(*at).is_some_and(|n| n.0 > t as u32) {
                    comp = comp.at(e, &node(*at), 6700 + t as u32);
                }
            }
            made = made.with(comp);
        }
        if self.asked { made } else { made.not_asked() }
    }
}

fn cluster(prefix: &str, nodes: &[MadeNode], topologies: &[Made], stats: bool, warm: bool) -> Cluster {
    let name = |i: usize| format!("{prefix}{i}");
    let mut c = Cluster::new();
    for (i, (slots, host, rack, cores)) in nodes.iter().enumerate() {
        let host = format!("{prefix}-r{rack}-h{host}");
        c = c.node(Node::new(&name(i)).slots(*slots).host(&host).rack(&format!("r{rack}")).cores(*cores, 2));
    }
    for (t, made) in topologies.iter().enumerate() {
        c = c.topology(made.topology(t, nodes, &name, warm));
    }
    if stats { c.with_stats() } else { c }
}

fn any_topology() -> impl Strategy<Value = Made> {
    let n_execs = prop::collection::vec(1usize..4, 2..5);
    let reads = prop::collection::vec((0usize..4, 0usize..4, prop_oneof![1 => Just(0u64), 3 => 1u64..1_000_000]), 4);
    (1u32..5, -1i32..2, prop::bool::weighted(0.9), n_execs, reads, prop::collection::vec(0usize..7, 12)).prop_map(
        |(workers, priority, asked, n_execs, mut reads, at)| {
            reads.truncate(n_execs.len() - 1);
            Made { workers, priority, asked, n_execs, reads, at }
        },
    )
}

fn any() -> impl Strategy<Value = (Vec<MadeNode>, Vec<Made>, bool, bool)> {
    let node = (1u32..4, 0usize..2, 0usize..3, 0u32..5);
    (prop::collection::vec(node, 2..6), prop::collection::vec(any_topology(), 1..4), any_bool(), any_bool())
}

fn any_bool() -> impl Strategy<Value = bool> {
    prop::bool::ANY
}

fn total(done: &Done, topologies: &[Made], stats: bool) -> f64 {
    let asked = topologies.iter().enumerate().filter(|(_, t)| t.asked);
    asked.map(|(i, t)| crossing(done, &format!("t{i}"), &t.n_execs, &t.edges(stats))).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// `traffic`, a case that Storm lacks.
    #[test]
    fn never_more_crosses_nodes_than_with_even((nodes, topologies, stats, warm) in any()) {
        let c = cluster("n", &nodes, &topologies, stats, warm);
        let (even, near) = (c.run(even()), c.run(BUILTIN));
        let left = |done: &Done| (0..topologies.len()).map(|t| done.unplaced(&format!("t{t}"))).sum::<usize>();
        prop_assert_eq!(left(&even), left(&near), "as many are placed");
        let (e, n) = (total(&even, &topologies, stats), total(&near, &topologies, stats));
        // Weights of pairs are rounded down to thousandths of a byte.
        prop_assert!(n <= e + 1.0, "{} bytes cross nodes, with even {}", n, e);
    }

    #[test]
    fn any_state_settles_in_one_round((nodes, topologies, stats, warm) in any()) {
        let c = cluster("n", &nodes, &topologies, stats, warm);
        let done = c.run(BUILTIN);
        prop_assert_eq!(&c.clone().row_noise(16).run(BUILTIN), &done, "the same again, with longer rows");
        let again = c.after(&done).run(BUILTIN);
        prop_assert_eq!((again.moved, again.changed), (0, false), "the second round has nothing to do");

        let mut holder: BTreeMap<String, usize> = BTreeMap::new();
        let n_slots: u32 = nodes.iter().map(|n| n.0).sum();
        for (t, made) in topologies.iter().enumerate() {
            let workers = done.workers(&format!("t{t}"));
            for (slot, _) in &workers {
                prop_assert_eq!(*holder.entry(slot.clone()).or_insert(t), t, "a slot belongs to one topology");
            }
            prop_assert!(!made.asked || workers.len() <= made.workers as usize);
        }
        for (t, made) in topologies.iter().enumerate().filter(|(_, t)| t.asked) {
            let (used, n) = (done.workers(&format!("t{t}")).len(), made.n_execs.iter().sum::<usize>());
            let wanted = (made.workers as usize).min(n);
            prop_assert!(used == wanted || holder.len() == n_slots as usize, "free slots, and {} of {} workers", used, wanted);
        }
        let renamed = cluster("other", &nodes, &topologies, stats, warm).run(BUILTIN);
        for t in 0..topologies.len() {
            let plain = |d: &Done| d.workers(&format!("t{t}")).into_iter().map(|(s, c)| (s.replace("other", "n"), c.join(" "))).collect::<Vec<_>>();
            prop_assert_eq!(plain(&done), plain(&renamed), "names do not matter");
        }
    }

    #[test]
    fn limits_of_moves_hold_in_any_state((nodes, topologies, stats, _) in any(), max in 0u32..5) {
        let c = cluster("n", &nodes, &topologies, stats, true);
        let done = c.ask().max_moves(max).run(BUILTIN).unwrap();
        prop_assert!(done.moved <= max as usize, "{} moved of {}", done.moved, max);
    }
}

#[test]
fn clusters_with_nodes_in_any_state_keep_the_rules_of_the_host() {
    for seed in 0..1000 {
        let checked = std::panic::catch_unwind(|| Cluster::random(seed).check(BUILTIN, "{}"));
        assert!(checked.is_ok(), "seed {seed}");
    }
}
