//! Storm's cases for its even and default schedulers, and those it lacks, as tables. Where we differ, the case says how and why.

use saetta_even::BUILTIN;
use saetta_sdk::abi;
use saetta_sdk::testing::shapes::{nodes, topology, workers_on};
use saetta_sdk::testing::{Cluster, Component, Done, Node, Topology};

/// Of a node.
type WorkersOn<'a> = &'a [(&'a str, usize)];
/// Of topologies, on s0, s1, ..
type Workers<'a> = &'a [(&'a str, &'a [usize])];

fn executors_of_workers(done: &Done, topology: &str) -> Vec<usize> {
    let mut fill: Vec<usize> = done.workers(topology).iter().map(|(_, comps)| comps.len()).collect();
    fill.sort_unstable_by(|a, b| b.cmp(a));
    fill
}

/// One case: a cluster, and for each topology how many executors its workers hold, fullest first.
struct Case {
    name: &'static str,
    cluster: Cluster,
    workers: &'static [(&'static str, &'static [usize])],
    moved: usize,
}

fn check(case: Case) {
    let done = case.cluster.check(BUILTIN, "{}");
    for (topology, fill) in case.workers {
        assert_eq!(executors_of_workers(&done, topology), *fill, "{}", case.name);
    }
    assert_eq!(done.moved, case.moved, "{}", case.name);
}

#[test]
fn the_cases_of_storms_nimbus_tests() {
    let zero = Topology::new("t").workers(2).with(Component::spout("none", 0)).with(Component::bolt("some", 3));
    let cases = [
        Case {
            name: "testAssignment: the second topology gets the eight slots left",
            cluster: nodes(4, 3).topology(topology("a", 4, 4, &[]).launched_ms(1)).topology(topology("b", 20, 24, &[]).launched_ms(2)),
            workers: &[("a", &[1, 1, 1, 1]), ("b", &[3, 3, 3, 3, 3, 3, 3, 3])],
            moved: 0,
        },
        Case {
            name: "testZeroExecutorOrTaskCount: a component without executors is legal",
            cluster: nodes(2, 2).topology(zero),
            workers: &[("t", &[2, 1])],
            moved: 0,
        },
        Case {
            name: "testOverParallelism: 42 executors over 7 workers",
            cluster: nodes(2, 5).topology(topology("t", 7, 42, &[])),
            workers: &[("t", &[6, 6, 6, 6, 6, 6, 6])],
            moved: 0,
        },
        Case {
            name: "testReassignment: a supervisor vanished, its worker still answers: it stays",
            cluster: nodes(1, 2).node(Node::new("gone").ports([0]).flags(abi::NODE_GONE)).topology(topology(
                "t",
                2,
                2,
                &[("gone", 0), ("s0", 0)],
            )),
            workers: &[("t", &[1, 1])],
            moved: 0,
        },
        // Executors whose heartbeat is too old come without a slot; the others of their worker stay.
        Case {
            name: "testReassignment: two executors died, and only they move",
            cluster: nodes(2, 2).topology(
                Topology::new("t")
                    .workers(2)
                    .with(Component::bolt("bolt", 4).died_at(0, "s0", 0).died_at(1, "s1", 0).at(2, "s0", 1).at(3, "s1", 1)),
            ),
            workers: &[("t", &[2, 2])],
            moved: 0,
        },
        Case {
            name: "testReassignmentToConstrainedCluster: one slot is left and holds everything",
            cluster: nodes(1, 1).topology(topology("t", 2, 6, &[])),
            workers: &[("t", &[6])],
            moved: 0,
        },
        Case {
            name: "testReassignSqueezedTopology: one slot for four workers",
            cluster: nodes(1, 1).topology(topology("t", 4, 9, &[])),
            workers: &[("t", &[9])],
            moved: 0,
        },
        Case {
            name: "testReassignSqueezedTopology: three slots for four workers",
            cluster: nodes(3, 1).topology(topology("t", 4, 9, &[])),
            workers: &[("t", &[3, 3, 3])],
            moved: 0,
        },
        // Storm frees the two workers whose quota is used up, six executors; two are enough.
        Case {
            name: "testReassignSqueezedTopology: the fourth slot comes, and one worker keeps its three",
            cluster: nodes(4, 1).topology(topology("t", 4, 9, &[("s0", 0), ("s1", 0), ("s2", 0)])),
            workers: &[("t", &[3, 2, 2, 2])],
            moved: 2,
        },
        // Storm deals a topology that is rebalanced anew, over three nodes. We move only executors whose slot must change: shares are even.
        Case {
            name: "testRebalance: three even workers on one node stay there",
            cluster: nodes(3, 3).topology(topology("t", 3, 3, &[("s0", 0), ("s0", 1), ("s0", 2)]).flags(abi::TOPO_REBALANCE)),
            workers: &[("t", &[1, 1, 1])],
            moved: 0,
        },
        Case {
            name: "testRebalanceChangeParallelism: three workers become six",
            cluster: nodes(3, 3).topology(topology("t", 6, 6, &[("s0", 0), ("s1", 0), ("s2", 0)])),
            workers: &[("t", &[1, 1, 1, 1, 1, 1])],
            moved: 3,
        },
        Case {
            name: "testRebalanceChangeParallelism: .. and then one executor, two ..",
            cluster: nodes(3, 3).topology(topology("t", 6, 1, &[("s0", 0)])),
            workers: &[("t", &[1])],
            moved: 0,
        },
        Case {
            name: "testRebalanceChangeParallelism: .. and then eight on four workers",
            cluster: nodes(3, 3).topology(topology("t", 4, 8, &[])),
            workers: &[("t", &[2, 2, 2, 2])],
            moved: 0,
        },
        // Three topologies of three workers on nine slots; the first wants six now and gets none of the others'.
        Case {
            name: "testRebalanceConstrainedCluster: a full cluster",
            cluster: nodes(3, 3)
                .topology(topology("a", 6, 6, &[("s0", 0), ("s1", 0), ("s2", 0)]).flags(abi::TOPO_REBALANCE))
                .topology(topology("b", 3, 3, &[("s0", 1), ("s1", 1), ("s2", 1)]).flags(abi::TOPO_REBALANCE))
                .topology(topology("c", 3, 3, &[("s0", 2), ("s1", 2), ("s2", 2)]).flags(abi::TOPO_REBALANCE)),
            workers: &[("a", &[2, 2, 2]), ("b", &[1, 1, 1]), ("c", &[1, 1, 1])],
            moved: 0,
        },
    ];
    cases.into_iter().for_each(check);
}

#[test]
fn the_cases_storm_lacks() {
    let dead = topology("t", 2, 3, &[("s0", 0), ("s0", 1), ("s1", 0)]);
    let cases = [
        // Alive slots above the number wanted and one executor without a slot: Storm throws. We give the emptiest up.
        Case {
            name: "even-more-workers-than-wanted",
            cluster: nodes(2, 3).topology(
                Topology::new("t").workers(2).with(Component::bolt("bolt", 5).at(0, "s0", 0).at(1, "s0", 0).at(2, "s0", 1).at(3, "s1", 0)),
            ),
            workers: &[("t", &[3, 2])],
            moved: 1,
        },
        Case { name: "three workers, two wanted", cluster: nodes(2, 3).topology(dead), workers: &[("t", &[2, 1])], moved: 1 },
        Case { name: "zero-workers", cluster: nodes(2, 3).topology(topology("t", 0, 2, &[])), workers: &[("t", &[])], moved: 0 },
        // Not stopped for it: one worker stays.
        Case {
            name: "zero-workers, running",
            cluster: nodes(2, 3).topology(topology("t", 0, 2, &[("s0", 0)])),
            workers: &[("t", &[2])],
            moved: 0,
        },
        Case {
            name: "more-workers-than-executors",
            cluster: nodes(3, 3).topology(topology("t", 7, 2, &[])),
            workers: &[("t", &[1, 1])],
            moved: 0,
        },
        // Machines are for other schedulers: it says nothing here.
        Case {
            name: "machines-greater-than-workers",
            cluster: nodes(3, 3).topology(topology("t", 2, 4, &[]).row(|r| r.isolate_machines = 3)),
            workers: &[("t", &[2, 2])],
            moved: 0,
        },
        Case { name: "no slot at all", cluster: nodes(2, 0).topology(topology("t", 1, 2, &[])), workers: &[("t", &[])], moved: 0 },
        Case { name: "no node at all", cluster: nodes(0, 0).topology(topology("t", 1, 2, &[])), workers: &[("t", &[])], moved: 0 },
        Case { name: "no topology", cluster: nodes(2, 2), workers: &[], moved: 0 },
    ];
    cases.into_iter().for_each(check);
}

/// One case of marks: the first node has them, and workers by node.
#[test]
fn marked_nodes_keep_what_runs_and_get_nothing_new_or_are_used_last() {
    let three = |flags| Cluster::new().node(Node::new("s0").ports(0..3).flags(flags)).node(Node::new("s1").ports(0..2));
    let cases: [(&str, Cluster, WorkersOn<'_>); 7] = [
        ("blacklisted", three(abi::NODE_BLACKLISTED).topology(topology("t", 3, 6, &[])), &[("s1", 2)]),
        ("reserved", three(abi::NODE_RESERVED).topology(topology("t", 3, 6, &[])), &[("s1", 2)]),
        ("gone", three(abi::NODE_GONE).topology(topology("t", 3, 6, &[])), &[("s1", 2)]),
        ("greylisted: the last worker only", three(abi::NODE_GREYLISTED).topology(topology("t", 3, 6, &[])), &[("s0", 1), ("s1", 2)]),
        ("greylisted: not needed", three(abi::NODE_GREYLISTED).topology(topology("t", 2, 6, &[])), &[("s1", 2)]),
        ("greylisted: what runs there stays", three(abi::NODE_GREYLISTED).topology(topology("t", 1, 2, &[("s0", 1)])), &[("s0", 1)]),
        (
            "blacklisted: what runs there stays",
            three(abi::NODE_BLACKLISTED).topology(topology("t", 2, 2, &[("s0", 1), ("s1", 0)])),
            &[("s0", 1), ("s1", 1)],
        ),
    ];
    let lost = nodes(1, 1).node(Node::new("s1").ports(0..2).lost_port(0)).topology(topology("t", 2, 4, &[("s1", 0)]));
    let lost = ("a port that is not reported keeps its worker, which is one of those wanted", lost, &[("s1", 1)][..]);
    for (name, cluster, expected) in cases.into_iter().chain([lost]) {
        let done = cluster.check(BUILTIN, "{}");
        let expected = expected.iter().map(|(n, w)| ((*n).to_owned(), *w)).collect();
        assert_eq!(done.workers_by_node("t"), expected, "{name}");
    }
}

/// Storm's TestEvenSchedulerIdleSupervisor: what runs, the configuration, and workers by node afterwards.
#[test]
fn idle_nodes_get_workers_only_where_that_is_asked_for() {
    const ON: &str = r#"{"redistribute_idle": true}"#;
    const ONE: &str = r#"{"redistribute_idle": true, "redistribute_idle_workers_max": 1}"#;
    let two_one = || topology("t", 3, 6, &[("s0", 0), ("s0", 1), ("s1", 0)]);
    let four_four = || topology("t", 8, 8, &[("s0", 0), ("s0", 1), ("s0", 2), ("s0", 3), ("s1", 0), ("s1", 1), ("s1", 2), ("s1", 3)]);
    let up = |s| nodes(2, 4).node(Node::new("s2").ports(0..4).uptime_s(s)).topology(two_one());
    let marked = |flags| nodes(2, 4).node(Node::new("s2").ports(0..4).flags(flags)).topology(two_one());
    let half = |name, first| topology(name, 4, 4, &[("s0", first), ("s0", first + 1), ("s1", first), ("s1", first + 1)]);
    let cases: [(&str, &str, Cluster, Workers<'_>); 20] = [
        ("off by default", "{}", nodes(3, 4).topology(two_one()), &[("t", &[2, 1, 0])]),
        ("2/1/0", ON, nodes(3, 4).topology(two_one()), &[("t", &[1, 1, 1])]),
        ("none is idle", ON, nodes(2, 4).topology(two_one()), &[("t", &[2, 1])]),
        ("at most one", ONE, nodes(3, 4).topology(four_four()), &[("t", &[3, 4, 1])]),
        ("fewer workers than nodes", ON, nodes(3, 4).topology(topology("t", 2, 2, &[("s0", 0), ("s1", 0)])), &[("t", &[1, 1, 0])]),
        (
            "both workers on one of three nodes",
            ON,
            nodes(3, 4).topology(topology("t", 2, 2, &[("s0", 0), ("s0", 1)])),
            &[("t", &[2, 0, 0])],
        ),
        ("a single worker", ON, nodes(3, 4).topology(topology("t", 1, 1, &[("s0", 0)])), &[("t", &[1, 0, 0])]),
        // Each turn takes from the fullest, ties by id.
        ("4/4/0", ON, nodes(3, 4).topology(four_four()), &[("t", &[3, 3, 2])]),
        (
            "two topologies, one each",
            ON,
            nodes(3, 4).topology(half("a", 0)).topology(half("b", 2)),
            &[("a", &[1, 2, 1]), ("b", &[1, 2, 1])],
        ),
        ("up 8 s", ON, up(8), &[("t", &[2, 1, 0])]),
        ("up 9 s", ON, up(9), &[("t", &[1, 1, 1])]),
        ("up 10 s", ON, up(10), &[("t", &[1, 1, 1])]),
        ("a tie gives from the lower id", ONE, nodes(3, 4).topology(half("t", 0)), &[("t", &[1, 2, 1])]),
        // Storm fills one idle node and then the other: 2/2/4/0.
        ("two are idle: four workers, two for each", ON, nodes(4, 4).topology(four_four()), &[("t", &[2, 2, 2, 2])]),
        (
            "two of six, cut to one",
            ONE,
            nodes(3, 4).topology(topology("t", 6, 6, &[("s0", 0), ("s0", 1), ("s0", 2), ("s1", 0), ("s1", 1), ("s1", 2)])),
            &[("t", &[2, 3, 1])],
        ),
        ("blacklisted is not idle", ON, marked(abi::NODE_BLACKLISTED), &[("t", &[2, 1, 0])]),
        ("reserved is not idle", ON, marked(abi::NODE_RESERVED), &[("t", &[2, 1, 0])]),
        ("one that is not asked for stays", ON, nodes(3, 4).topology(two_one().not_asked()), &[("t", &[2, 1, 0])]),
        (
            "a given subset is honoured",
            ON,
            nodes(3, 4).topology(topology("out", 2, 2, &[("s0", 2), ("s0", 3)]).not_asked()).topology(topology(
                "in",
                3,
                3,
                &[("s1", 0), ("s1", 1), ("s1", 2)],
            )),
            &[("out", &[2, 0, 0]), ("in", &[0, 2, 1])],
        ),
        // Through Storm's default scheduler it once moved two.
        (
            "the limit holds for the round",
            ONE,
            nodes(4, 4).topology(topology("t", 8, 4, &[("s0", 0), ("s0", 1), ("s1", 0), ("s1", 1)])),
            &[("t", &[1, 2, 1, 0])],
        ),
    ];
    for (name, config, cluster, expected) in cases {
        let done = cluster.ask().config(config).run(BUILTIN).unwrap();
        for (topology, workers) in expected {
            assert_eq!(workers_on(&done, topology, workers.len()), *workers, "{name}, {topology}");
        }
        if config != ONE {
            cluster.check(BUILTIN, config);
        }
    }
}

#[test]
fn a_thousand_clusters_in_any_state() {
    for seed in 0..1000 {
        let checked = std::panic::catch_unwind(|| {
            Cluster::random(seed).check(BUILTIN, "{}");
        });
        assert!(checked.is_ok(), "seed {seed}");
    }
}

#[test]
fn reasons_say_what_stays_and_what_is_new() {
    let c = nodes(1, 1).topology(topology("t", 1, 2, &[("s0", 0)])).topology(topology("u", 1, 1, &[]).launched_ms(1));
    let done = c.ask().with_reasons().run(BUILTIN).unwrap();
    assert_eq!(done.reasons.iter().map(|r| r.code).collect::<Vec<_>>(), [abi::WHY_KEPT, abi::WHY_KEPT, abi::WHY_NO_SLOT]);
}

#[test]
fn its_configuration_explains_itself() {
    let mut rig = nodes(1, 1).ask().config(r#"{"redistribute_idle": true}"#).instance(BUILTIN).unwrap();
    let (schema, effective) = rig.instance.config().expect("it tells").unwrap();
    assert!(schema.contains("redistribute_idle_uptime_secs"), "{schema}");
    assert_eq!(effective, r#"{"redistribute_idle":true,"redistribute_idle_uptime_secs":9,"redistribute_idle_workers_max":0}"#);
    let e = nodes(1, 1).ask().config(r#"{"idle": true}"#).run(BUILTIN).unwrap_err();
    assert!(e.code == abi::E_CONFIG && e.text.contains("it takes redistribute_idle"), "{e}");
}
