//! What round-robin promises, and the cases Storm lacks, as a table.

use saetta_round_robin::BUILTIN;
use saetta_sdk::abi;
use saetta_sdk::testing::shapes::{nodes, topology};
use saetta_sdk::testing::{Cluster, Component, Node, Topology};

fn machines(topology: Topology, n: u32) -> Topology {
    topology.row(|r| r.isolate_machines = n)
}

/// One case: a cluster, and executors by worker on s0, s1, .. afterwards.
struct Case {
    name: &'static str,
    cluster: Cluster,
    executors: &'static [(&'static str, &'static [&'static [usize]])],
    moved: usize,
}

#[test]
fn the_table() {
    let uneven = || Cluster::new().node(Node::new("s0").ports(0..1)).node(Node::new("s1").ports(0..3));
    let cases = [
        Case {
            // Storm's strategy puts all four on the first node.
            name: "rr-same-component-spreads",
            cluster: nodes(4, 2).topology(topology("t", 4, 4, &[])),
            executors: &[("t", &[&[1], &[1], &[1], &[1]])],
            moved: 0,
        },
        // Storm calls it placed when only the last executor has no room. One slot is left, and the worker on the lost node is the one wanted.
        Case {
            name: "rr-last-misfit",
            cluster: Cluster::new()
                .node(Node::new("s0").ports([0]).flags(abi::NODE_GONE))
                .node(Node::new("s1").ports([0]))
                .topology(Topology::new("t").workers(1).with(Component::bolt("bolt", 3).at(0, "s0", 0).at(1, "s0", 0))),
            executors: &[("t", &[&[2], &[]])],
            moved: 0,
        },
        Case {
            name: "nodes hold as many, though one has three workers; even gives each worker two",
            cluster: uneven().topology(topology("t", 4, 8, &[])),
            executors: &[("t", &[&[4], &[2, 1, 1]])],
            moved: 0,
        },
        Case {
            name: "no more workers than wanted: two of three nodes",
            cluster: nodes(3, 2).topology(topology("t", 2, 5, &[])),
            executors: &[("t", &[&[3], &[2], &[]])],
            moved: 0,
        },
        Case { name: "zero-workers", cluster: nodes(2, 2).topology(topology("t", 0, 2, &[])), executors: &[("t", &[&[], &[]])], moved: 0 },
        Case {
            name: "more-workers-than-executors",
            cluster: nodes(2, 2).topology(topology("t", 9, 3, &[])),
            executors: &[("t", &[&[1, 1], &[1]])],
            moved: 0,
        },
        Case {
            name: "machines-greater-than-workers",
            cluster: nodes(3, 2).topology(machines(topology("t", 2, 4, &[]), 5)),
            executors: &[("t", &[&[2], &[2], &[]])],
            moved: 0,
        },
        Case {
            name: "at most as many nodes as it wants machines, and only empty ones",
            cluster: nodes(4, 2).topology(topology("o", 1, 1, &[("s0", 0)])).topology(machines(topology("t", 4, 4, &[]), 2).launched_ms(1)),
            executors: &[("t", &[&[], &[1, 1], &[1, 1], &[]]), ("o", &[&[1], &[], &[], &[]])],
            moved: 0,
        },
        Case {
            // The older topology is served first, and the machine is kept for its owner.
            name: "a machine is kept for the one that has it to itself",
            cluster: nodes(2, 2).topology(topology("o", 3, 3, &[])).topology(machines(topology("t", 1, 1, &[("s0", 1)]), 1).launched_ms(1)),
            executors: &[("t", &[&[1], &[]]), ("o", &[&[], &[2, 1]])],
            moved: 0,
        },
        Case {
            name: "two executors died: they go where fewest are",
            cluster: nodes(2, 2).topology(Topology::new("t").workers(2).with(Component::bolt("b", 4).at(0, "s0", 0).at(1, "s0", 0))),
            executors: &[("t", &[&[2], &[2]])],
            moved: 0,
        },
        Case {
            name: "a node came, and another worker is wanted: half of one node's move",
            cluster: nodes(2, 2).topology(topology("t", 2, 4, &[("s0", 0)])),
            executors: &[("t", &[&[2], &[2]])],
            moved: 2,
        },
        Case {
            name: "even-more-workers-than-wanted",
            cluster: nodes(3, 1).topology(topology("t", 2, 5, &[("s0", 0), ("s1", 0), ("s2", 0)])),
            executors: &[("t", &[&[3], &[2], &[]])],
            moved: 1,
        },
        Case {
            name: "a greylisted node is used last",
            cluster: Cluster::new()
                .node(Node::new("s0").ports(0..3).flags(abi::NODE_GREYLISTED))
                .node(Node::new("s1").ports(0..1))
                .topology(topology("t", 1, 2, &[])),
            executors: &[("t", &[&[], &[2]])],
            moved: 0,
        },
        Case {
            name: "a blacklisted node gets nothing and keeps what it has",
            cluster: Cluster::new()
                .node(Node::new("s0").ports(0..3).flags(abi::NODE_BLACKLISTED))
                .node(Node::new("s1").ports(0..1))
                .topology(topology("t", 2, 2, &[("s0", 0)]).with(Component::bolt("c", 2))),
            executors: &[("t", &[&[2], &[2]])],
            moved: 0,
        },
    ];
    for case in cases {
        let done = case.cluster.check(BUILTIN, "{}");
        for (topology, expected) in case.executors {
            let mut found = vec![Vec::new(); expected.len()];
            for (slot, executors) in done.workers(topology) {
                let node: usize = slot[1..2].parse().expect("s and a digit");
                found[node].push(executors.len());
            }
            found.iter_mut().for_each(|workers: &mut Vec<usize>| workers.sort_unstable_by(|a, b| b.cmp(a)));
            assert_eq!(found, *expected, "{}: {topology}", case.name);
        }
        assert_eq!(done.moved, case.moved, "{}", case.name);
        let is_whole =
            case.executors.iter().all(|(topology, _)| (done.unplaced(topology) == 0) == (done.outcome(topology) == abi::OUT_SCHEDULED));
        assert!(is_whole, "{}: an outcome says what is placed", case.name);
    }
}

#[test]
fn every_node_of_a_topology_holds_as_many_whatever_was_there_before() {
    for seed in 0..1000 {
        let checked = std::panic::catch_unwind(|| Cluster::random(seed).check(BUILTIN, "{}"));
        assert!(checked.is_ok(), "seed {seed}");
    }
}

#[test]
fn it_takes_no_configuration() {
    let e = nodes(1, 1).ask().config(r#"{"weight": 1}"#).run(BUILTIN).unwrap_err();
    assert!(e.code == abi::E_CONFIG && e.text.contains("it takes none"), "{e}");
}
