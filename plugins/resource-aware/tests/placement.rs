//! Placement of one topology through the C table: Storm's cases by setup and expected workers. Executors of one component are alike, so
//! workers are compared as sets of components.

use saetta_resource_aware::BUILTIN;
use saetta_sdk::abi;
use saetta_sdk::testing::{Cluster, Component, Topology};

/// Spout x1 -> bolt-1 x2 -> bolt-2 x2 -> bolt-3 x2, by shuffle, all with the same request.
fn chain(cpu: f64, on_heap: f64, off_heap: f64, change: impl Fn(Component) -> Component) -> Topology {
    let each = |c: Component| change(c.cpu(cpu).memory_mb(on_heap, off_heap));
    Topology::new("t")
        .owner("u")
        .with(each(Component::spout("spout", 1)))
        .with(each(Component::bolt("bolt-1", 2).reads("spout")))
        .with(each(Component::bolt("bolt-2", 2).reads("bolt-1")))
        .with(each(Component::bolt("bolt-3", 2).reads("bolt-2")))
}

fn four(cpu: f64, memory: f64) -> Cluster {
    Cluster::new().nodes(4, |n| n.slots(4).cpu(cpu).memory_mb(memory))
}

/// b1, b2, b3, s, a: the components' short names, a worker each.
fn short(groups: Vec<Vec<&str>>) -> Vec<String> {
    let letter = |c: &str| match c {
        "spout" => "s".to_owned(),
        "__acker" => "a".to_owned(),
        other => other.replace("bolt-", ""),
    };
    let mut workers: Vec<String> = groups.iter().map(|g| g.iter().map(|c| letter(c)).collect::<Vec<_>>().join(" ")).collect();
    workers.sort();
    workers
}

#[test]
fn workers_hold_what_talks_to_each_other_and_their_ackers() {
    // Ackers, expected workers. Ackers per worker follow from their number: two workers are expected.
    for (ackers, expected) in
        [(0, vec!["1 2 2 3", "1 3 s"]), (2, vec!["a 1 2 3", "a 1 2 3", "s"]), (4, vec!["1 3 s", "a a 1 2", "a a 2 3"])]
    {
        let topology = chain(50.0, 450.0, 0.0, |c| c).worker_heap_mb(2000.0);
        let topology = if ackers > 0 { topology.with(Component::ackers(ackers).cpu(50).memory_mb(250, 0)) } else { topology };
        let cluster = four(200.0, 2000.0).topology(topology);
        // Storm's order alone; of several, another may cost less distance.
        let done = cluster.ask().config(r#"{"compare_orders": false}"#).run(BUILTIN).expect("a round");
        assert_eq!(short(done.groups("t")), expected, "{ackers} ackers");
        assert_eq!(done.outcome("t"), abi::OUT_SCHEDULED);
        assert_eq!(cluster.after(&done).run(BUILTIN).moved, 0, "{ackers} ackers, second round");
    }
}

#[test]
fn shared_memory_counts_once_in_each_worker_and_on_each_node() {
    // Flags, workers, nodes.
    for (flags, workers, nodes) in [(0, 1, 1), (abi::TOPO_ONE_EXEC_PER_WORKER, 8, 2), (abi::TOPO_ONE_COMP_PER_WORKER, 4, 1)] {
        let shares = |c: Component, block: &str| c.cpu(10).memory_mb(10, 10).shares(block);
        let topology = Topology::new("t")
            .owner("u")
            .flags(flags)
            .worker_heap_mb(2000.0)
            .shared_mb("worker", 0.0, 600.0, 0.0)
            .shared_mb("node", 0.0, 0.0, 700.0)
            .shared_mb("heap", 400.0, 0.0, 0.0)
            .with(Component::spout("spout", 2).cpu(10).memory_mb(10, 10))
            .with(shares(Component::bolt("bolt-1", 2).reads("spout"), "worker"))
            .with(shares(Component::bolt("bolt-2", 2).reads("bolt-1"), "node"))
            .with(shares(Component::bolt("bolt-3", 2).reads("bolt-2"), "heap"));
        let done = four(500.0, 2000.0).topology(topology).run(BUILTIN);
        assert_eq!((done.workers("t").len(), done.nodes("t").len(), done.unplaced("t")), (workers, nodes, 0), "flags {flags}");
    }
}

#[test]
fn what_fits_nowhere_is_never_called_scheduled() {
    // One executor of 80 % where each node has 50 %: Storm calls it a success.
    let spout = |n| Topology::new("t").owner("u").with(Component::spout("spout", n).cpu(80).memory_mb(10, 0));
    let small = Cluster::new().nodes(2, |n| n.slots(2).cpu(50).memory_mb(1000));
    let done = small.clone().topology(spout(1)).run(BUILTIN);
    assert_eq!((done.outcome("t"), done.unplaced("t")), (abi::OUT_UNSCHEDULABLE, 1));
    // Round robin, and only the last does not fit: the same hole.
    let done = Cluster::new().nodes(2, |n| n.slots(2).cpu(100).memory_mb(1000)).topology(spout(3).strategy("round-robin")).run(BUILTIN);
    assert_eq!((done.outcome("t"), done.unplaced("t")), (abi::OUT_UNSCHEDULABLE, 3));
}

#[test]
fn round_robin_spreads_even_one_component() {
    let topology = Topology::new("t").owner("u").strategy("round-robin").with(Component::spout("spout", 4).cpu(10).memory_mb(10, 0));
    assert_eq!(four(100.0, 1000.0).topology(topology).run(BUILTIN).nodes("t").len(), 4);
}

#[test]
fn a_lower_priority_is_evicted_only_where_the_round_allows_it() {
    let one =
        |name, priority| Topology::new(name).owner("u").priority(priority).with(Component::spout("spout", 1).cpu(80).memory_mb(10, 0));
    let cluster = Cluster::new().nodes(1, |n| n.slots(2).cpu(100).memory_mb(1000)).topology(one("low", 20));
    let cluster = cluster.after(&cluster.run(BUILTIN)).topology(one("high", 10));
    let kept = cluster.run(BUILTIN);
    assert_eq!((kept.moved, kept.outcome("high")), (0, abi::OUT_UNSCHEDULABLE));
    let evicted = cluster.ask().may_preempt().run(BUILTIN).expect("a round");
    assert_eq!((evicted.moved, evicted.outcome("high"), evicted.outcome("low")), (1, abi::OUT_SCHEDULED, abi::OUT_UNSCHEDULABLE));
}

#[test]
fn a_greedy_start_that_fails_is_taken_back() {
    // Two nodes of one slot: one of "a" in each, and "b" beside none of them would need a third. With one "a" they fit only apart.
    let topology = Topology::new("t")
        .owner("u")
        .strategy("constraint")
        .with(Component::spout("a", 1).cpu(10).memory_mb(10, 0).incompatible_with("b"))
        .with(Component::bolt("b", 1).cpu(60).memory_mb(10, 0).reads("a"));
    let cluster = Cluster::new()
        .node(saetta_sdk::testing::Node::new("n1").slots(1).cpu(100).memory_mb(100))
        .node(saetta_sdk::testing::Node::new("n2").slots(1).cpu(20).memory_mb(100));
    let done = cluster.topology(topology).run(BUILTIN);
    assert_eq!(done.outcome("t"), abi::OUT_SCHEDULED);
    assert_eq!(done.slot("t", "b", 0).as_deref(), Some("n1:6700"));
}
