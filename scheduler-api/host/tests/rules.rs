//! The rules that depend on what topologies ask for: resources, heaps, constraints, moves, preemption. One plan each, at the bound and
//! over it.

use saetta_sched_host::Answer;
use saetta_sched_host::validate::{Rules, charged, lint::lint, validate};
use saetta_sdk::abi;
use saetta_sdk::snapshot::Snapshot;
use saetta_sdk::testing::{Cluster, Component, Node, Topology};
use saetta_sdk::usage::taken;

const NONE: u32 = abi::NONE;
const RESOURCES: Rules = Rules { resources: true, constraints: true, max_moves: NONE, may_preempt: false };

/// The rule each topology's part breaks; 0 = none. Slots by the executor's row.
fn broken(cluster: &Cluster, rules: &Rules, slots: &[u32]) -> Vec<u32> {
    let bytes = cluster.pack();
    let snapshot = Snapshot::new(&bytes).unwrap();
    let outcome = vec![abi::OUT_PARTIAL; snapshot.topologies().len()];
    let answer = Answer { slot_of_exec: slots.to_vec(), outcome, core_of_exec: vec![] };
    validate(&snapshot, &answer, rules).into_iter().map(|v| v.map_or_else(|why| why.rule, |()| 0)).collect()
}

fn topology(name: &str, workers: u32) -> Topology {
    Topology::new(name).workers(workers)
}

#[test]
fn a_node_holds_what_is_asked_of_it_and_not_more() {
    let with = |memory: u32| {
        let spout = Component::spout("s", 2).memory_mb(memory, 0).cpu(10);
        Cluster::new().nodes(2, |n| n.slots(2).cpu(100).memory_mb(1000)).topology(topology("t", 1).with(spout))
    };
    assert_eq!(broken(&with(500), &RESOURCES, &[0, 1]), [0]);
    assert_eq!(broken(&with(501), &RESOURCES, &[0, 1]), [5]);
    assert_eq!(broken(&with(501), &RESOURCES, &[0, 2]), [0], "on two nodes it fits, and the number of workers is the scheduler's");
    assert_eq!(broken(&with(501), &Rules::default(), &[0, 0]), [0], "who does not claim to count is not held to it");
}

#[test]
fn of_two_topologies_that_do_not_fit_together_the_one_served_last_is_refused() {
    let of = |name: &str, priority| topology(name, 1).priority(priority).with(Component::spout("s", 1).memory_mb(600, 0).cpu(10));
    let cluster = |a, b| Cluster::new().node(Node::new("n").slots(2).cpu(100).memory_mb(1000)).topology(of("a", a)).topology(of("b", b));
    assert_eq!(broken(&cluster(0, 0), &RESOURCES, &[0, 1]), [0, 5]);
    assert_eq!(broken(&cluster(9, 0), &RESOURCES, &[0, 1]), [5, 0]);
}

#[test]
fn a_node_that_holds_too_much_already_keeps_it_and_takes_nothing_more() {
    let old = topology("old", 1).launched_ms(1).with(Component::spout("s", 1).memory_mb(1200, 0).cpu(10).all_at("n", 6700));
    let new = topology("new", 1).launched_ms(2).with(Component::spout("s", 1).memory_mb(1, 0).cpu(10));
    let cluster = Cluster::new().node(Node::new("n").ports([6700, 6701]).cpu(100).memory_mb(1000)).topology(old).topology(new);
    assert_eq!(broken(&cluster, &RESOURCES, &[0, NONE]), [0, 0]);
    assert_eq!(broken(&cluster, &RESOURCES, &[0, 1]), [0, 5]);
}

#[test]
fn the_validators_sums_are_the_sdks() {
    let a = topology("a", 2)
        .shared_mb("block", 100, 50, 25)
        .with(Component::spout("s", 3).memory_mb(10, 5).cpu(20).shares("block").at(0, "n1", 6700).at(1, "n1", 6701).at(2, "n2", 6700))
        .with(Component::bolt("b", 1).reads("s").memory_mb(7, 0).cpu(1).resource("gpu", 2).shares("block").at(0, "n1", 6700));
    let b = topology("b", 1).with(Component::spout("s", 2).memory_mb(3, 1).cpu(30).all_at("n2", 6701));
    let node = |id: &str| Node::new(id).ports([6700, 6701]).cpu(400).memory_mb(4000).resource("gpu", 4);
    let cluster = Cluster::new().node(node("n1")).node(node("n2")).min_worker_cpu(50).topology(a).topology(b);
    let bytes = cluster.pack();
    let snapshot = Snapshot::new(&bytes).unwrap();
    let slots: Vec<u32> = snapshot.executors().iter().map(|e| e.slot).collect();
    let mut sums = vec![vec![0i64; snapshot.kinds().len()]; snapshot.nodes().len()];
    for t in 0..snapshot.topologies().len() {
        for (node, amounts) in charged(&snapshot, t, &slots) {
            sums[node as usize].iter_mut().zip(amounts).for_each(|(sum, amount)| *sum += amount);
        }
    }
    assert_eq!(sums, taken(&snapshot));
}

#[test]
fn a_workers_heap_has_an_end_and_a_shared_block_counts_once() {
    let with = |limit: u32| {
        let spout = Component::spout("s", 2).memory_mb(100, 900).cpu(1).shares("block");
        let t = topology("t", 2).worker_heap_mb(limit).shared_mb("block", 50, 0, 0).with(spout);
        Cluster::new().node(Node::new("n").slots(2).cpu(100).memory_mb(9000)).topology(t)
    };
    assert_eq!(broken(&with(250), &RESOURCES, &[0, 0]), [0]);
    assert_eq!(broken(&with(249), &RESOURCES, &[0, 0]), [6]);
    assert_eq!(broken(&with(249), &RESOURCES, &[0, 1]), [0]);
}

#[test]
fn constraints_hold_where_a_topology_asks_and_the_scheduler_knows_them() {
    let two = |t: Topology, bolt: Component| {
        let t = t.with(Component::spout("s", 2)).with(bolt.reads("s")).with(Component::ackers(1));
        Cluster::new().nodes(2, |n| n.slots(2)).topology(t)
    };
    // Rows: by component name: __acker, b, s, s. The ackers are with everybody.
    let rows = two(topology("t", 4), Component::bolt("b", 1)).pack();
    let names: Vec<String> = {
        let snapshot = Snapshot::new(&rows).unwrap();
        snapshot.components().iter().map(|c| snapshot.text(c.name).to_owned()).collect()
    };
    assert_eq!(&names[1..], ["b", "s"], "{names:?}");
    let rules = Rules { constraints: true, ..Rules::default() };
    let foes = two(topology("t", 4), Component::bolt("b", 1).incompatible_with("s"));
    assert_eq!(broken(&foes, &rules, &[0, 0, 0, 1]), [7]);
    assert_eq!(broken(&foes, &rules, &[0, 0, 1, 1]), [0]);
    assert_eq!(broken(&foes, &Rules::default(), &[0, 0, 0, 1]), [0], "who knows no constraints is not held to them, and it is told");
    let bytes = foes.pack();
    assert!(
        lint(&Snapshot::new(&bytes).unwrap(), &[0, 0, 0, 1], &Rules::default())[0].iter().any(|odd| odd.starts_with("V07: `b` and `s`"))
    );
    let one_exec = two(topology("t", 4).flags(abi::TOPO_SCHEDULE | abi::TOPO_ONE_EXEC_PER_WORKER), Component::bolt("b", 1));
    assert_eq!(broken(&one_exec, &rules, &[0, 0, 1, 2]), [0], "an acker counts as nobody");
    assert_eq!(broken(&one_exec, &rules, &[0, 0, 1, 1]), [7]);
    let one_comp = two(topology("t", 4).flags(abi::TOPO_SCHEDULE | abi::TOPO_ONE_COMP_PER_WORKER), Component::bolt("b", 1));
    assert_eq!(broken(&one_comp, &rules, &[0, 0, 1, 1]), [0]);
    assert_eq!(broken(&one_comp, &rules, &[0, 0, 0, 1]), [7]);
    let apart = Cluster::new().nodes(2, |n| n.slots(2)).topology(topology("t", 4).with(Component::spout("s", 2).max_colocation(1)));
    assert_eq!(broken(&apart, &rules, &[0, 1]), [7], "two slots of one node");
    assert_eq!(broken(&apart, &rules, &[0, 2]), [0]);
}

#[test]
fn moves_are_counted_and_the_topology_that_would_exceed_them_keeps_its_places() {
    let t = |name: &str, port: u32| topology(name, 1).with(Component::spout("s", 2).all_at("n1", port));
    let nodes = || Cluster::new().node(Node::new("n1").ports([1, 2])).node(Node::new("n2").ports([1, 2]));
    let cluster = nodes().topology(t("a", 1)).topology(t("b", 2));
    let moves = |n| Rules { max_moves: n, ..Rules::default() };
    assert_eq!(broken(&cluster, &moves(4), &[2, 2, 3, 3]), [0, 0]);
    assert_eq!(broken(&cluster, &moves(3), &[2, 2, 3, 3]), [0, 9]);
    assert_eq!(broken(&cluster, &moves(1), &[2, 2, 3, 3]), [9, 9]);
    assert_eq!(broken(&cluster, &moves(0), &[0, 0, 1, 1]), [0, 0]);
    // From a node that is gone, nothing that runs is moved.
    let lost =
        Cluster::new().node(Node::new("n1").ports([1, 2]).flags(abi::NODE_GONE)).node(Node::new("n2").ports([1, 2])).topology(t("a", 1));
    assert_eq!(broken(&lost, &moves(0), &[2, 2]), [0]);
}

#[test]
fn nobody_loses_a_slot_but_to_a_better_priority_and_only_where_that_is_allowed() {
    let cluster = |old_priority, new_priority| {
        let old = topology("old", 1).launched_ms(1).priority(old_priority).with(Component::spout("s", 1).all_at("n", 1));
        let new = topology("new", 1).launched_ms(2).priority(new_priority).with(Component::spout("s", 1));
        Cluster::new().node(Node::new("n").ports([1])).topology(old).topology(new)
    };
    let preempt = Rules { may_preempt: true, ..Rules::default() };
    assert_eq!(broken(&cluster(10, 1), &Rules::default(), &[NONE, 0]), [10, 4], "who may not be freed keeps its slot");
    assert_eq!(broken(&cluster(10, 1), &preempt, &[NONE, 0]), [0, 0]);
    assert_eq!(broken(&cluster(1, 1), &preempt, &[NONE, 0]), [10, 4]);
    assert_eq!(broken(&cluster(1, 10), &preempt, &[NONE, 0]), [10, 4]);
    assert_eq!(broken(&cluster(10, 1), &preempt, &[NONE, NONE]), [10, 0], "freed for nobody");
}

#[test]
fn nothing_new_goes_to_blacklisted_or_reserved_nodes_and_what_is_there_stays() {
    for flag in [abi::NODE_BLACKLISTED, abi::NODE_RESERVED] {
        let old = topology("old", 1).launched_ms(1).with(Component::spout("s", 1).all_at("n", 1));
        let new = topology("new", 1).launched_ms(2).with(Component::spout("s", 1));
        let cluster = Cluster::new().node(Node::new("n").ports([1, 2]).flags(flag)).topology(old).topology(new);
        assert_eq!(broken(&cluster, &Rules::default(), &[0, 1]), [0, 2]);
    }
}

#[test]
fn what_is_odd_is_told() {
    let told = |cluster: &Cluster, after: &[u32]| {
        let bytes = cluster.pack();
        lint(&Snapshot::new(&bytes).unwrap(), after, &Rules::default()).remove(0)
    };
    let cluster = Cluster::new().node(Node::new("n").slots(2)).topology(topology("t", 2).with(Component::spout("s", 4)));
    assert_eq!(told(&cluster, &[0, 0, 1, 1]), Vec::<String>::new());
    assert!(told(&cluster, &[0, 0, 0, 1])[0].contains("1 to 3 executors"));
    assert!(told(&cluster, &[0, 0, 0, NONE])[0].contains("1 executors have no slot, while 1 slots are free"));
    let grey = cluster.node(Node::new("a").slots(1).flags(abi::NODE_GREYLISTED));
    assert!(told(&grey, &[0, 0, 1, 1])[0].contains("to be used last"), "slot 0 is node a's");
    assert_eq!(told(&grey, &[2, 2, 1, 1]), Vec::<String>::new());
}
