//! What topologies ask for of their workers and nodes: kept, and nobody is placed where it would break.

use proptest::prelude::*;
use saetta_latency_aware::BUILTIN;
use saetta_sdk::testing::shapes::nodes;
use saetta_sdk::testing::{Cluster, Component, Done, Node, Topology};
use saetta_sdk::{CreateCx, Plan, PluginError, Round, Scheduler, Verdict, abi};
use std::collections::{BTreeMap, BTreeSet};

/// One case: a cluster, the workers of `t` and how many executors have none, with the reason.
struct Case {
    name: &'static str,
    cluster: Cluster,
    groups: &'static [&'static [&'static str]],
    left: usize,
    why: u32,
}

/// A spout `a` and a bolt `b` that reads it.
fn pair(workers: u32, n_a: u32, b: Component) -> Topology {
    Topology::new("t").workers(workers).with(Component::spout("a", n_a)).with(b.reads("a"))
}

fn b(n: u32) -> Component {
    Component::bolt("b", n)
}

const PLACED: u32 = abi::WHY_AFFINITY;

#[test]
fn the_table() {
    let apart = |workers| pair(workers, 1, b(1).incompatible_with("a"));
    let together = pair(2, 1, b(1).incompatible_with("a").at(0, "s0", 0)).with(Component::bolt("c", 1));
    let cases = [
        Case {
            name: "incompatible components, however much they talk",
            cluster: nodes(1, 3).topology(apart(2)),
            groups: &[&["a"], &["b"]],
            left: 0,
            why: PLACED,
        },
        Case {
            name: "incompatible components and one worker",
            cluster: nodes(1, 3).topology(apart(1)),
            groups: &[&["a"]],
            left: 1,
            why: abi::WHY_INCOMPATIBLE,
        },
        Case {
            name: "one of many is incompatible with the others: room is no limit",
            cluster: nodes(2, 2).topology(pair(2, 1, b(5).incompatible_with("a"))),
            groups: &[&["a"], &["b", "b", "b", "b", "b"]],
            left: 0,
            why: PLACED,
        },
        Case {
            name: "one executor in a worker, and ackers go along",
            cluster: nodes(2, 4).topology(pair(4, 2, b(2)).with(Component::ackers(1)).flags(abi::TOPO_ONE_EXEC_PER_WORKER)),
            groups: &[&["__acker", "a"], &["a"], &["b"], &["b"]],
            left: 0,
            why: PLACED,
        },
        Case {
            name: "one executor in a worker, and fewer workers than executors",
            cluster: nodes(2, 4).topology(pair(3, 2, b(2)).flags(abi::TOPO_ONE_EXEC_PER_WORKER)),
            groups: &[&["a"], &["a"], &["b"]],
            left: 1,
            why: abi::WHY_NO_SLOT,
        },
        Case {
            name: "one component in a worker",
            cluster: nodes(2, 4).topology(pair(3, 1, b(5)).flags(abi::TOPO_ONE_COMP_PER_WORKER)),
            groups: &[&["a"], &["b", "b"], &["b", "b", "b"]],
            left: 0,
            why: PLACED,
        },
        Case {
            name: "at most one of a component on a node: as many nodes as it takes",
            cluster: nodes(4, 4).topology(pair(3, 1, b(3).max_colocation(1))),
            groups: &[&["a", "b"], &["b"], &["b"]],
            left: 0,
            why: PLACED,
        },
        Case {
            name: "at most one of a component on a node, and a node too few",
            cluster: nodes(2, 4).topology(pair(3, 1, b(3).max_colocation(1))),
            groups: &[&["a"], &["b"], &["b"]],
            left: 1,
            why: abi::WHY_COLOCATION,
        },
        Case {
            name: "a node has room for the one that died, and not for its component",
            cluster: nodes(2, 2).topology(pair(2, 1, b(2).max_colocation(1).at(0, "s0", 0)).with(Component::ackers(1))),
            groups: &[&["__acker", "b"], &["a", "b"]],
            left: 0,
            why: PLACED,
        },
        Case {
            name: "what waits joins nobody it may not share a worker with",
            cluster: nodes(1, 3).topology(together),
            groups: &[&["a"], &["b", "c"]],
            left: 0,
            why: PLACED,
        },
    ];
    for case in cases {
        let done = case.cluster.check(BUILTIN, "{}");
        assert_eq!(
            (done.groups("t"), done.unplaced("t"), done.moved),
            (case.groups.iter().map(|g| g.to_vec()).collect(), case.left, 0),
            "{}",
            case.name
        );
        let reasons = case.cluster.ask().with_reasons().run(BUILTIN).unwrap().reasons;
        let none = reasons.iter().find(|r| r.slot == abi::NONE).map_or(PLACED, |r| r.code);
        assert_eq!(none, case.why, "{}", case.name);
    }
}

#[test]
fn what_breaks_a_limit_already_stays_and_gets_nobody_new() {
    let t = Topology::new("t").workers(2).with(Component::spout("a", 1).at(0, "s0", 0));
    let t = t.with(b(1).reads("a").incompatible_with("a").at(0, "s0", 0)).with(Component::bolt("c", 1).reads("b"));
    let done = nodes(1, 2).topology(t).check(BUILTIN, "{}");
    assert_eq!((done.groups("t"), done.moved), (vec![vec!["a", "b"], vec!["c"]], 0));
}

#[test]
fn what_runs_moves_where_somebody_waits_for_it() {
    // Both workers run, each with one that `c` may not join; with the two together there is room.
    let t = Topology::new("t").workers(2).with(Component::spout("a", 1).at(0, "s0", 0)).with(b(1).at(0, "s0", 1));
    let t = t.with(Component::bolt("c", 1).incompatible_with("a").incompatible_with("b"));
    let cluster = nodes(1, 2).topology(t);
    let done = cluster.check(BUILTIN, "{}");
    assert_eq!((done.groups("t"), done.moved), (vec![vec!["a", "b"], vec!["c"]], 1));
    let still = cluster.ask().max_moves(0).run(BUILTIN).unwrap();
    assert_eq!((still.unplaced("t"), still.moved, still.outcome("t")), (1, 0, abi::OUT_PARTIAL));
}

/// Executors, most on a node (0 = any), node of each executor (beyond the nodes: none).
type MadeComp = (usize, u32, Vec<usize>);

#[derive(Debug, Clone)]
struct Made {
    workers: u32,
    flags: u32,
    comps: Vec<MadeComp>,
    /// Pairs of components.
    apart: Vec<(usize, usize)>,
}

impl Made {
    fn topology(&self, t: usize, slots: &[u32]) -> Topology {
        let mut made = Topology::new(&format!("t{t}")).workers(self.workers).flags(self.flags);
        for (c, (n, max, at)) in self.comps.iter().enumerate() {
            let mut comp = Component::bolt(&format!("c{c}"), *n as u32).max_colocation(*max);
            if c > 0 {
                comp = comp.reads("c0");
            }
            for (_, other) in self.apart.iter().filter(|(a, other)| *a == c && *other < c) {
                comp = comp.incompatible_with(&format!("c{other}"));
            }
            // Port t is its own, so that no slot is claimed twice.
            for (e, node) in at.iter().enumerate().filter(|(e, node)| e < n && slots.get(**node).is_some_and(|s| *s > t as u32)) {
                comp = comp.at(e, &format!("s{node}"), t as u32);
            }
            made = made.with(comp);
        }
        made
    }
}

fn any() -> impl Strategy<Value = (Vec<u32>, Vec<Made>)> {
    let comp = (1usize..4, prop_oneof![2 => Just(0u32), 1 => 1u32..3], prop::collection::vec(0usize..8, 3));
    let flags = prop_oneof![3 => Just(0u32), 1 => Just(abi::TOPO_ONE_EXEC_PER_WORKER), 1 => Just(abi::TOPO_ONE_COMP_PER_WORKER)];
    let apart = prop::collection::vec((0usize..4, 0usize..4), 0..3);
    let made = (1u32..7, flags, prop::collection::vec(comp, 1..4), apart);
    let made = made.prop_map(|(workers, flags, comps, apart)| Made { workers, flags, comps, apart });
    (prop::collection::vec(1u32..5, 2..5), prop::collection::vec(made, 1..4))
}

/// The host's rule V07: workers that get somebody new, and nodes that get more of a component than they had.
fn broken(before: &Done, after: &Done, t: usize, made: &Made) -> Option<String> {
    let name = format!("t{t}");
    let slots = |done: &Done| -> BTreeMap<(usize, usize), Option<String>> {
        let all = made.comps.iter().enumerate().flat_map(|(c, (n, ..))| (0..*n).map(move |e| (c, e)));
        all.map(|(c, e)| ((c, e), done.slot(&name, &format!("c{c}"), e))).collect()
    };
    let (was, is) = (slots(before), slots(after));
    let mut workers: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
    is.iter().filter_map(|(id, slot)| Some((id, slot.as_deref()?))).for_each(|(id, slot)| workers.entry(slot).or_default().push(*id));
    for (slot, execs) in workers.iter().filter(|(_, execs)| execs.iter().any(|id| was[id] != is[id])) {
        let comps: BTreeSet<usize> = execs.iter().map(|(c, _)| *c).collect();
        let is_apart = |(c, other): &(usize, usize)| other < c && comps.contains(c) && comps.contains(other);
        let too_many = (made.flags & abi::TOPO_ONE_EXEC_PER_WORKER != 0 && execs.len() > 1)
            || (made.flags & abi::TOPO_ONE_COMP_PER_WORKER != 0 && comps.len() > 1);
        if too_many || made.apart.iter().any(is_apart) {
            return Some(format!("{name} has {execs:?} in {slot}"));
        }
    }
    let on = |slots: &BTreeMap<(usize, usize), Option<String>>| {
        let mut on: BTreeMap<(usize, String), u32> = BTreeMap::new();
        for ((c, _), slot) in slots {
            slot.iter().for_each(|s| *on.entry((*c, s.split(':').next().expect("node:port").to_owned())).or_default() += 1);
        }
        on
    };
    let had = on(&was);
    let is_over = |(at, n): &(&(usize, String), &u32)| {
        let max = made.comps[at.0].1;
        max > 0 && **n > max && **n > had.get(*at).copied().unwrap_or(0)
    };
    on(&is).iter().find(is_over).map(|(at, n)| format!("{name}: {n} of c{} on {}", at.0, at.1))
}

/// Says where everybody is.
struct Nothing;

impl Scheduler for Nothing {
    fn create(_: &CreateCx<'_>) -> Result<Self, PluginError> {
        Ok(Nothing)
    }
    fn schedule(&mut self, _: &Round<'_>, _: &mut Plan<'_>) -> Result<Verdict, PluginError> {
        Ok(Verdict::NoChange)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn limits_hold_in_any_state((slots, topologies) in any(), max_moves in prop_oneof![2 => Just(u32::MAX), 1 => 0u32..3]) {
        let ports = slots.iter().enumerate().fold(Cluster::new(), |c, (i, n)| c.node(Node::new(&format!("s{i}")).ports(0..*n)));
        let cluster = topologies.iter().enumerate().fold(ports, |c, (t, made)| c.topology(made.topology(t, &slots)));
        let before = cluster.run(saetta_sdk::entry::builtin::<Nothing>("nothing"));
        let done = cluster.ask().max_moves(max_moves).run(BUILTIN).unwrap();
        for (t, made) in topologies.iter().enumerate() {
            prop_assert_eq!(broken(&before, &done, t, made), None);
        }
        if max_moves == u32::MAX {
            let again = cluster.after(&done).run(BUILTIN);
            prop_assert_eq!((again.moved, again.changed), (0, false), "the second round has nothing to do");
        }
    }
}
