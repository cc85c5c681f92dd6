//! Storm's cases for its isolation scheduler, and those it lacks, as tables. Where we differ, the case says how and why.

use saetta_isolation::BUILTIN;
use saetta_sdk::abi;
use saetta_sdk::testing::shapes::{nodes, topology, workers_on};
use saetta_sdk::testing::{Cluster, Component, Node, Topology};

type Slots<'a> = &'a [(&'a str, u32)];

#[test]
fn storms_isolated_assignment() {
    let config = r#"{"machines": {"@tester1": 3, "@tester2": 2}}"#;
    let alone = nodes(6, 3).topology(topology("noniso", 4, 8, &[]));
    let done = alone.check(BUILTIN, config);
    assert_eq!(done.nodes("noniso").len(), 4);

    let all = alone
        .after(&done)
        .topology(topology("tester1", 6, 12, &[]).launched_ms(1))
        .topology(topology("tester2", 6, 12, &[]).launched_ms(2));
    // `check` runs the next round too: it is identical.
    let done = all.check(BUILTIN, config);
    let sorted = |topology: &str| {
        let mut workers: Vec<usize> = done.workers_by_node(topology).into_values().collect();
        workers.sort_unstable();
        workers
    };
    assert_eq!((sorted("noniso"), sorted("tester1"), sorted("tester2")), (vec![3], vec![2, 2, 2], vec![3, 3]));
    let nodes: Vec<&str> = ["noniso", "tester1", "tester2"].iter().flat_map(|t| done.nodes(t)).collect();
    assert_eq!(nodes.len(), 6, "no node has two: {nodes:?}");
    assert!(done.groups("tester1").iter().chain(&done.groups("tester2")).all(|worker| worker.len() == 2), "even shares");
}

/// One case: what is there, the configuration, and workers on s0, s1, .. afterwards.
struct Case {
    name: &'static str,
    cluster: Cluster,
    config: &'static str,
    workers: &'static [(&'static str, &'static [usize])],
}

const ONE: &str = r#"{"machines": {"@iso": 1}}"#;
const TWO: &str = r#"{"machines": {"@iso": 2}}"#;
const FIVE: &str = r#"{"machines": {"@iso": 5}}"#;
const IDLE: &str = r#"{"machines": {"@iso": 1}, "redistribute_idle": true}"#;

fn iso(workers: u32, n_execs: usize, at: Slots<'_>) -> Topology {
    topology("iso", workers, n_execs, at).launched_ms(1)
}

#[test]
fn the_table() {
    let cases = [
        // IsolationSchedulerTest: as many slots; two of s1 and s2 are free, one of s0.
        Case {
            name: "host order: free slots, then name",
            cluster: nodes(3, 3).topology(topology("o", 4, 4, &[("s0", 0), ("s0", 1), ("s1", 0), ("s2", 0)])).topology(iso(1, 2, &[])),
            config: ONE,
            workers: &[("iso", &[0, 1, 0]), ("o", &[2, 0, 2])],
        },
        Case {
            name: "host order: more slots first",
            cluster: nodes(2, 2).node(Node::new("s2").ports(0..3)).topology(iso(1, 2, &[])),
            config: ONE,
            workers: &[("iso", &[0, 0, 1])],
        },
        Case {
            name: "host order: what is greylisted is taken last",
            cluster: nodes(2, 2).node(Node::new("s2").ports(0..3).flags(abi::NODE_GREYLISTED)).topology(iso(2, 2, &[])),
            config: TWO,
            workers: &[("iso", &[1, 1, 0])],
        },
        Case {
            name: "a host has two supervisors, and the machine is the host",
            cluster: Cluster::new()
                .node(Node::new("s0").host("a").ports(0..1))
                .node(Node::new("s1").host("a").ports(0..2))
                .node(Node::new("s2").host("b").ports(0..2))
                .topology(topology("o", 2, 2, &[]))
                .topology(iso(2, 2, &[])),
            config: ONE,
            workers: &[("iso", &[1, 1, 0]), ("o", &[0, 0, 2])],
        },
        Case {
            name: "machines-greater-than-workers: a machine for each worker",
            cluster: nodes(5, 2).topology(iso(2, 4, &[])),
            config: FIVE,
            workers: &[("iso", &[1, 1, 0, 0, 0])],
        },
        Case {
            name: "more-workers-than-executors: a machine for each executor",
            cluster: nodes(5, 2).topology(iso(9, 2, &[])),
            config: FIVE,
            workers: &[("iso", &[1, 1, 0, 0, 0])],
        },
        Case { name: "zero-workers", cluster: nodes(2, 2).topology(iso(0, 2, &[])), config: TWO, workers: &[("iso", &[0, 0])] },
        Case { name: "no executors", cluster: nodes(2, 2).topology(iso(2, 0, &[])), config: TWO, workers: &[("iso", &[0, 0])] },
        Case { name: "no node", cluster: nodes(0, 0).topology(iso(2, 2, &[])), config: TWO, workers: &[("iso", &[])] },
        // Storm places nobody where machines are too small; here the machines there are take what they can.
        Case {
            name: "five workers on two machines of two slots",
            cluster: nodes(2, 2).topology(iso(5, 5, &[])),
            config: TWO,
            workers: &[("iso", &[2, 2])],
        },
        // Storm stops everybody. Here `o` is squeezed into one machine, and the other one is taken.
        Case {
            name: "two machines wanted, two there, one needed by others",
            cluster: nodes(2, 2).topology(topology("o", 2, 4, &[("s0", 0), ("s1", 0)])).topology(iso(2, 2, &[])),
            config: TWO,
            workers: &[("iso", &[2, 0]), ("o", &[0, 2])],
        },
        Case {
            name: "the only machine is used: nobody is stopped",
            cluster: nodes(1, 2).topology(topology("o", 1, 2, &[("s0", 0)])).topology(iso(1, 2, &[])),
            config: ONE,
            workers: &[("iso", &[0]), ("o", &[1])],
        },
        Case {
            name: "others that the round does not ask about keep their machine",
            cluster: nodes(2, 2).topology(topology("o", 1, 2, &[("s0", 0)]).not_asked()).topology(iso(2, 2, &[])),
            config: TWO,
            workers: &[("iso", &[0, 2]), ("o", &[1, 0])],
        },
        Case {
            name: "it is not asked for, and its machine is its own all the same",
            cluster: nodes(2, 2).topology(topology("o", 3, 3, &[])).topology(iso(1, 1, &[("s0", 1)]).not_asked()),
            config: ONE,
            workers: &[("iso", &[1, 0]), ("o", &[0, 2])],
        },
        // Storm frees it, since these are not the workers of a fresh deal; shares are even, so it stays.
        Case {
            name: "it runs as it should, in another deal",
            cluster: nodes(3, 2).topology(
                Topology::new("iso").workers(2).with(Component::bolt("a", 2).all_at("s1", 0)).with(Component::bolt("b", 2).all_at("s2", 1)),
            ),
            config: TWO,
            workers: &[("iso", &[0, 1, 1])],
        },
        Case {
            name: "one of its machines was lost: the other one stays, another one comes",
            cluster: nodes(3, 2).topology(Topology::new("iso").workers(2).with(Component::bolt("a", 4).at(0, "s2", 0).at(1, "s2", 0))),
            config: TWO,
            workers: &[("iso", &[1, 0, 1])],
        },
        // TestEvenSchedulerIdleSupervisor, through isolation.
        Case {
            name: "an isolated topology gives nothing to an idle node",
            cluster: nodes(3, 4).topology(iso(1, 1, &[("s0", 0)])).topology(topology("r", 3, 3, &[("s1", 0), ("s1", 1), ("s1", 2)])),
            config: IDLE,
            workers: &[("iso", &[1, 0, 0]), ("r", &[0, 2, 1])],
        },
        Case {
            name: "one that is left out stays",
            cluster: nodes(3, 4).topology(iso(2, 2, &[("s0", 0), ("s0", 1)]).not_asked()).topology(topology(
                "r",
                3,
                3,
                &[("s1", 0), ("s1", 1), ("s1", 2)],
            )),
            config: IDLE,
            workers: &[("iso", &[2, 0, 0]), ("r", &[0, 2, 1])],
        },
        // In Storm it stays down in this round; here it is placed. Either way its machine is not idle for the others.
        Case {
            name: "the machine of one that was down is not idle",
            cluster: nodes(4, 4).topology(iso(1, 1, &[])).topology(topology("r", 4, 4, &[("s0", 0), ("s0", 1), ("s1", 0), ("s1", 1)])),
            config: IDLE,
            workers: &[("iso", &[0, 0, 1, 0]), ("r", &[1, 2, 0, 1])],
        },
        Case {
            name: "nobody is isolated: even",
            cluster: nodes(2, 2).topology(topology("o", 3, 6, &[])),
            config: "{}",
            workers: &[("o", &[2, 1])],
        },
    ];
    for case in cases {
        let done = case.cluster.check(BUILTIN, case.config);
        for (topology, workers) in case.workers {
            assert_eq!(workers_on(&done, topology, workers.len()), *workers, "{}: {topology}", case.name);
        }
    }
}

#[test]
fn isolation_unblacklists() {
    let all = nodes(2, 2).topology(topology("o", 4, 4, &[("s0", 0), ("s1", 0), ("s0", 1), ("s1", 1)])).topology(iso(2, 2, &[]));
    let done = all.check(BUILTIN, ONE);
    assert_eq!((workers_on(&done, "iso", 2), workers_on(&done, "o", 2)), (vec![2, 0], vec![0, 2]));
    // It is killed: the others have its machine in the next round, by the same instance too.
    let mut rig = all.ask().config(&ONE.replace('@', "")).instance(BUILTIN).unwrap();
    let done = all.ask().run_on(&mut rig).unwrap();
    let done = all.after(&done).without_topology("iso").ask().run_on(&mut rig).unwrap();
    assert_eq!(workers_on(&done, "o", 2), [2, 2]);
}

#[test]
fn others_are_freed_only_where_the_round_permits_it_and_their_priority_is_lower() {
    let cluster = |priority| nodes(1, 2).topology(topology("o", 1, 2, &[("s0", 0)]).priority(priority)).topology(iso(1, 2, &[]));
    for (priority, permits, moved) in [(5, true, 2), (5, false, 0), (0, true, 0), (-5, true, 0)] {
        let cluster = cluster(priority);
        let ask = cluster.ask().config(r#"{"machines": {"iso": 1}}"#);
        let done = if permits { ask.may_preempt() } else { ask }.run(BUILTIN).unwrap();
        assert_eq!(done.moved, moved, "priority {priority}, permits {permits}");
        let (unplaced, outcome) = if moved > 0 { ("o", abi::OUT_UNSCHEDULABLE) } else { ("iso", abi::OUT_UNSCHEDULABLE) };
        assert_eq!((done.unplaced(unplaced), done.outcome(unplaced)), (2, outcome));
    }
}

#[test]
fn a_limit_of_moves_is_kept_and_what_can_be_done_without_is_done() {
    // `o` would have to leave s0 or s1: two moves each. s2 is empty.
    let cluster = nodes(3, 2).topology(topology("o", 2, 4, &[("s0", 0), ("s1", 0)])).topology(iso(2, 2, &[]));
    for (max, expected) in [(0, [0, 0, 2]), (1, [0, 0, 2]), (2, [1, 0, 1])] {
        let done = cluster.ask().config(r#"{"machines": {"iso": 2}}"#).max_moves(max).run(BUILTIN).unwrap();
        assert_eq!(workers_on(&done, "iso", 3), expected, "at most {max}");
        assert!(done.moved <= max as usize);
    }
}

#[test]
fn one_that_waits_says_why() {
    let cluster = nodes(0, 0).topology(iso(1, 1, &[]));
    let done = cluster.ask().config(r#"{"machines": {"iso": 1}}"#).with_reasons().run(BUILTIN).unwrap();
    assert_eq!(done.reasons.iter().map(|r| r.code).collect::<Vec<_>>(), [abi::WHY_ISOLATION_QUOTA]);
}

#[test]
fn a_thousand_clusters_in_any_state() {
    let configs = [r#"{"machines": {"@t1": 1, "@t3": 2}}"#, r#"{"machines": {"@t2": 3, "@t4": 1}}"#];
    for (seed, config) in (0..1000).zip(configs.iter().cycle()) {
        let checked = std::panic::catch_unwind(|| Cluster::random(seed).check(BUILTIN, config));
        assert!(checked.is_ok(), "seed {seed} {config}");
    }
}

#[test]
fn a_wrong_configuration_is_refused_with_the_remedy() {
    for (config, part) in [(r#"{"machines": {"iso": 0}}"#, "machines.iso is 0"), (r#"{"machine": 1}"#, "it takes machines")] {
        let e = nodes(1, 1).ask().config(config).run(BUILTIN).unwrap_err();
        assert!(e.code == abi::E_CONFIG && e.text.contains(part), "{e}");
    }
}
