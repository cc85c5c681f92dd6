//! The cases of Storm's MultitenantSchedulerTest, and those that every scheduler has to pass; as tables of clusters and expectations.
//!
//! Where we differ from Storm it says so beside the case.

use saetta_multitenant::BUILTIN;
use saetta_sdk::abi;
use saetta_sdk::testing::{Cluster, Component, Done, Node, Topology};

/// A topology of one component.
fn topology(name: &str, workers: u32, n_execs: u32) -> Topology {
    Topology::new(name).workers(workers).with(Component::spout("c", n_execs))
}

/// The same, with its first executor running on a node.
fn running(name: &str, workers: u32, n_execs: u32, node: &str) -> Topology {
    Topology::new(name).workers(workers).with(Component::spout("c", n_execs).at(0, node, 6700))
}

fn machines(t: Topology, n: u32) -> Topology {
    t.row(|r| r.isolate_machines = n)
}

fn four_nodes() -> Cluster {
    Cluster::new().nodes(4, |n| n.slots(4))
}

/// What the executors of a topology are told. `names` are all topologies of the cluster, sorted.
fn status(done: &Done, names: &[&str], name: &str) -> String {
    let n_execs = |t: &str| done.workers(t).iter().map(|w| w.1.len()).sum::<usize>() + done.unplaced(t);
    let first: usize = names.iter().take_while(|n| **n != name).map(|n| n_execs(n)).sum();
    let texts: Vec<&str> = done.reasons.iter().filter(|r| r.exec as usize == first).map(|r| r.text.as_str()).collect();
    assert_eq!(texts.len(), 1, "{name} is told once");
    texts[0].to_owned()
}

fn run(cluster: &Cluster, pools: &str) -> Done {
    let config = format!("{{\"pools\": {{{pools}}}}}");
    let ask = cluster.ask().config(&config).with_reasons().may_preempt();
    let done = ask.run(BUILTIN).unwrap();
    let again = cluster.after(&done).ask().config(&config).with_reasons().may_preempt().run(BUILTIN).unwrap();
    assert_eq!((again.moved, again.changed), (0, false), "the second round has nothing to do");
    assert_eq!(ask.run(BUILTIN).unwrap(), done, "the same again");
    done
}

/// Name, slots used, nodes used, executors without a slot, what it is told.
type Expected = (&'static str, usize, usize, usize, &'static str);

fn check(case: &str, cluster: &Cluster, pools: &str, expected: &[Expected]) -> Done {
    let done = run(cluster, pools);
    let names: Vec<&str> = expected.iter().map(|e| e.0).collect();
    for (name, slots, nodes, unplaced, text) in expected {
        let got = (done.workers(name).len(), done.nodes(name).len(), done.unplaced(name), status(&done, &names, name));
        assert_eq!(got, (*slots, *nodes, *unplaced, (*text).to_owned()), "{case}: {name}");
    }
    done
}

#[test]
fn the_default_pool() {
    let full = "Fully Scheduled";
    check("testNode, testFreePool: five slots are two nodes", &four_nodes().topology(topology("a", 5, 5)), "", &[("a", 5, 2, 0, full)]);
    check("DefaultPoolSimple", &four_nodes().topology(topology("a", 2, 5)), "", &[("a", 2, 1, 0, full)]);
    check("DefaultPoolSimple, one runs", &four_nodes().topology(running("a", 2, 5, "n3")), "", &[("a", 2, 1, 0, full)]);
    let capped = "Fully Scheduled (requested 5 slots, but could only use 3)";
    check("DefaultPoolBigRequest", &four_nodes().topology(topology("a", 5, 3)), "", &[("a", 3, 1, 0, capped)]);
    let one = Cluster::new().nodes(1, |n| n.slots(4));
    let fewer = "Running with fewer slots than requested (4/5)";
    check("DefaultPoolBigRequest2", &one.topology(topology("a", 5, 5)), "", &[("a", 4, 1, 0, fewer)]);
    // It steals exactly one node from the free pool.
    let complex = four_nodes().topology(running("a", 2, 5, "n1")).topology(topology("b", 4, 5));
    let done = check("DefaultPoolComplex", &complex, "", &[("a", 2, 1, 0, full), ("b", 4, 2, 0, full)]);
    assert!(done.nodes("a").is_subset(&done.nodes("b")));
    let none = "Not fully scheduled (No free slots in default pool) 3 executors not scheduled";
    let crowded = Cluster::new().nodes(1, |n| n.slots(1)).topology(running("a", 1, 1, "n1")).topology(topology("b", 1, 3));
    check("no slot at all", &crowded, "", &[("a", 1, 1, 0, full), ("b", 0, 0, 3, none)]);
}

#[test]
fn a_full_default_pool_serves_the_rest_once_a_slot_frees() {
    let c = Cluster::new().nodes(1, |n| n.slots(5)).topology(running("a", 1, 1, "n1")).topology(topology("b", 5, 5));
    let expected = [("a", 1, 1, 0, "Fully Scheduled"), ("b", 4, 1, 0, "Running with fewer slots than requested (4/5)")];
    let done = check("DefaultPoolFull", &c, "", &expected);
    let next = c.after(&done).without_topology("a");
    let then = check("DefaultPoolFull: a slot freed", &next, "", &[("b", 5, 1, 0, "Fully Scheduled")]);
    // Storm deals all five anew; one is enough.
    assert_eq!(then.moved, 1);
}

#[test]
fn isolated_pools() {
    let own = |t: Topology| t.owner("u");
    let on_four = "Scheduled Isolated on 4 Nodes";
    let simple = four_nodes().topology(own(machines(running("a", 4, 4, "n1"), 4)));
    check("IsolatedPoolSimple", &simple, "\"u\": 5", &[("a", 4, 4, 0, on_four)]);
    let big = Cluster::new().nodes(5, |n| n.slots(4)).topology(own(machines(running("a", 10, 4, "n1"), 10)));
    check("IsolatedPoolBigAsk", &big, "\"u\": 5", &[("a", 4, 4, 0, on_four)]);
    let complex = four_nodes().topology(own(running("a", 4, 4, "n1"))).topology(own(machines(topology("b", 4, 4), 2)));
    let both = [("a", 4, 1, 0, "Scheduled Isolated on 1 Nodes"), ("b", 4, 2, 0, "Scheduled Isolated on 2 Nodes")];
    let done = check("IsolatedPoolComplex", &complex, "\"u\": 5", &both);
    assert!(done.nodes("a").is_disjoint(&done.nodes("b")));
    // The one node that is left is not enough for a third, and the isolated one's are never stolen.
    let third = complex.after(&done).topology(own(machines(topology("c", 4, 4), 3)));
    let none = "Not Enough Nodes Available to Schedule Topology";
    check("no node is stolen from an isolated one", &third, "\"u\": 9", &[both[0], both[1], ("c", 0, 0, 4, none)]);
    let mixed = [1, 2, 3, 4].iter().fold(Cluster::new(), |c, n| c.node(Node::new(&format!("n{n}")).slots(*n)));
    let uneven = mixed.topology(own(machines(topology("a", 3, 5), 2)));
    check("DifferentNumberOfSlots", &uneven, "\"u\": 5", &[("a", 3, 2, 0, "Scheduled Isolated on 2 Nodes")]);
}

#[test]
fn a_topology_that_wants_machines_displaces_the_others_of_its_user() {
    // Two nodes for the user: one free node and the one of "a" go to "b". Our rule beside Storm's: only where preemption is allowed, and
    // "b" has the better priority.
    let b = machines(topology("b", 4, 4), 2).owner("u").priority(-1);
    let c = four_nodes().topology(running("a", 4, 4, "n1").owner("u")).topology(b);
    let max = "Max Nodes(2) for this user would be exceeded. 1 more nodes needed to run topology.";
    check("IsolatedPoolComplex2", &c, "\"u\": 2", &[("a", 0, 0, 4, max), ("b", 4, 2, 0, "Scheduled Isolated on 2 Nodes")]);
    let calm = c.ask().config(r#"{"pools": {"u": 2}}"#).with_reasons().run(BUILTIN).unwrap();
    assert_eq!((calm.moved, calm.workers("a").len(), calm.unplaced("b")), (0, 4, 4), "nothing running is evicted");
    assert_eq!(status(&calm, &["a", "b"], "b"), max);
}

#[test]
fn three_users() {
    let c = Cluster::new()
        .nodes(10, |n| n.slots(4))
        .topology(topology("a", 4, 20).owner("c"))
        .topology(machines(topology("b", 4, 20), 2).owner("a"))
        .topology(machines(topology("d", 10, 20), 5).owner("b"));
    let expected = [
        ("a", 4, 1, 0, "Fully Scheduled"),
        ("b", 4, 2, 0, "Scheduled Isolated on 2 Nodes"),
        ("d", 10, 5, 0, "Scheduled Isolated on 5 Nodes"),
    ];
    check("testMultitenantScheduler: from the configuration", &c, "\"a\": 5, \"b\": 5", &expected);
    check("from the cluster's users", &c.clone().isolated_nodes("a", 5).isolated_nodes("b", 5), "", &expected);
    check("the configuration wins", &c.isolated_nodes("a", 0).isolated_nodes("b", 1), "\"a\": 5, \"b\": 5", &expected);
}

#[test]
fn an_isolated_pool_takes_nodes_of_the_default_pool_and_what_ran_there_finds_another() {
    let c = Cluster::new()
        .nodes(2, |n| n.slots(2))
        .topology(running("a", 1, 1, "n1"))
        .topology(Topology::new("b").with(Component::spout("c", 1).at(0, "n2", 6700)))
        .topology(machines(topology("d", 2, 2), 1).owner("u"));
    let isolated = ("d", 2, 1, 0, "Scheduled Isolated on 1 Nodes");
    let full = "Fully Scheduled";
    let done = check("taken", &c, "\"u\": 1", &[("a", 1, 1, 0, full), ("b", 1, 1, 0, full), isolated]);
    assert_eq!(done.moved, 1);
    assert!(done.nodes("d").is_disjoint(&done.nodes("a")) && done.nodes("a") == done.nodes("b"));
    // With no move allowed it has to wait.
    let config = r#"{"pools": {"u": 1}}"#;
    let calm = c.ask().config(config).with_reasons().max_moves(0).run(BUILTIN).unwrap();
    assert_eq!((calm.moved, calm.unplaced("d")), (0, 2));
    assert_eq!(status(&calm, &["a", "b", "d"], "d"), "Not Enough Nodes Available to Schedule Topology");
    // Nor does it take the node of a topology that the round does not ask about.
    let frozen = Cluster::new().nodes(1, |n| n.slots(2)).topology(running("a", 1, 1, "n1").not_asked());
    let frozen = frozen.topology(machines(topology("d", 2, 2), 1).owner("u"));
    assert_eq!(frozen.ask().config(config).may_preempt().run(BUILTIN).unwrap().unplaced("d"), 2);
}

#[test]
fn bad_starting_states_are_mended() {
    let full = "Fully Scheduled";
    // One slot, claimed by two: the older keeps it.
    let twice = Cluster::new().nodes(1, |n| n.slots(4)).topology(running("a", 2, 2, "n1")).topology(running("b", 3, 3, "n1"));
    let done = check(
        "ForceFreeSlotInBadState, BadStartingState: claimed twice",
        &twice,
        "",
        &[("a", 2, 1, 0, full), ("b", 2, 1, 0, "Running with fewer slots than requested (2/3)")],
    );
    assert_eq!(done.slot("a", "c", 0).as_deref(), Some("n1:6700"));
    // A worker that answers though its supervisor is gone stays, and nothing joins it.
    let dead = Cluster::new()
        .node(Node::new("n1").slots(4).flags(abi::NODE_GONE))
        .node(Node::new("n2").slots(4))
        .topology(running("a", 2, 3, "n1"))
        .topology(running("b", 2, 2, "n2").owner("u"));
    let expected = [("a", 2, 2, 0, full), ("b", 2, 1, 0, "Scheduled Isolated on 1 Nodes")];
    let dead = dead.node(Node::new("n3").slots(2));
    let done = check("SlotOnDeadSupervisor", &dead, "\"u\": 2", &expected);
    assert_eq!((done.workers("a")[0].1.len(), done.moved), (1, 0));
    assert!(done.nodes("a").contains("n3"));
    // A worker in a port that its supervisor does not report stays, and nothing joins it.
    let unknown = Cluster::new().node(Node::new("n1").slots(3).lost_port(6700)).topology(running("a", 2, 3, "n1"));
    let done = check("SlotNotFoundInSupervisor", &unknown, "", &[("a", 2, 1, 0, full)]);
    assert_eq!((done.workers("a")[0].1.len(), done.moved), (1, 0));
}

#[test]
fn numbers_that_do_not_fit_each_other() {
    let one = Cluster::new().nodes(2, |n| n.slots(2));
    let none = run(&one.clone().topology(topology("a", 0, 2)), "");
    assert_eq!((none.unplaced("a"), none.outcome("a")), (2, abi::OUT_UNSCHEDULABLE));
    let none = run(&one.clone().topology(machines(topology("a", 0, 2), 2).owner("u")), "\"u\": 2");
    assert_eq!((none.unplaced("a"), none.outcome("a")), (2, abi::OUT_UNSCHEDULABLE));
    let more = run(&one.clone().topology(topology("a", 4, 2)), "");
    assert_eq!((more.workers("a").len(), more.outcome("a")), (2, abi::OUT_SCHEDULED));
    let machines_more = run(&one.clone().topology(machines(topology("a", 1, 2), 2).owner("u")), "\"u\": 2");
    assert_eq!((machines_more.workers("a").len(), machines_more.nodes("a").len()), (1, 1));
    let empty = run(&one.topology(Topology::new("a")), "");
    assert_eq!(empty.outcome("a"), abi::OUT_SCHEDULED);
    assert!(!run(&Cluster::new(), "").changed);
}

#[test]
fn what_waits_goes_into_workers_that_run_and_workers_too_many_are_given_up() {
    // Storm: "Not fully scheduled", for ever.
    let all_used = Cluster::new().nodes(1, |n| n.slots(2)).topology(running("a", 1, 3, "n1"));
    let done = check("joined", &all_used, "", &[("a", 1, 1, 0, "Fully Scheduled")]);
    assert_eq!(done.moved, 0);
    let two = Topology::new("a").workers(1).with(Component::spout("c", 3).all_at("n1", 6700).at(2, "n1", 6701));
    let shrink = Cluster::new().nodes(1, |n| n.slots(2)).topology(two);
    assert_eq!(check("given up", &shrink, "", &[("a", 1, 1, 0, "Fully Scheduled")]).moved, 1);
    assert_eq!(shrink.ask().max_moves(0).run(BUILTIN).unwrap().moved, 0);
}

#[test]
fn a_component_to_be_spread_goes_one_to_each_node() {
    let t = Topology::new("a").workers(4).owner("u").with(Component::spout("s", 4).spread()).with(Component::bolt("w", 8));
    let done = run(&four_nodes().topology(machines(t, 2)), "\"u\": 2");
    // Two nodes, one each; the last worker takes the two that are left.
    let spread: Vec<usize> = done.workers("a").iter().map(|w| w.1.iter().filter(|c| **c == "s").count()).collect();
    assert_eq!(spread.iter().sum::<usize>(), 4);
    assert_eq!(spread.iter().filter(|n| **n == 0).count(), 1, "{spread:?}");
}

#[test]
fn a_topology_that_has_too_few_machines_spreads_its_workers() {
    let t = Topology::new("a").workers(2).owner("u").with(Component::spout("c", 2).at(0, "n1", 6700).at(1, "n1", 6701));
    let c = four_nodes().topology(machines(t, 2));
    let done = check("spread", &c, "\"u\": 2", &[("a", 2, 2, 0, "Scheduled Isolated on 2 Nodes")]);
    assert_eq!(done.moved, 1);
}

#[test]
fn the_configuration_is_checked() {
    for (config, part) in [
        ("{\"pools\": 1}", "pools is 1"),
        ("{\"pool\": {}}", "a key \"pool\"; it takes pools"),
        ("{\"pools\": {\"a\": -1}}", "pools.a is -1"),
    ] {
        let e = Cluster::new().ask().config(config).run(BUILTIN).unwrap_err();
        assert_eq!(e.code, abi::E_CONFIG);
        assert!(e.text.contains(part), "{config}: {}", e.text);
    }
}
