//! Where executors go: Storm's cases for its placement strategies, racks, hosts, shared memory and generic resources, and what Storm lacks.
//!
//! Executors of one component are alike, so workers are compared as sets of components. The order of racks by capacity is also in
//! `benches/scheduling/tests/reference.rs`, beside Storm's. Not here: a topography plugin that fails, which a snapshot cannot show.

mod table;

use saetta_resource_aware::BUILTIN;
use saetta_sdk::abi;
use saetta_sdk::testing::{Cluster, Component, Node, Topology};
use table::*;

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

/// Four spouts, one executor in a worker, that share a block: MB on heap, off heap of the worker, of the node.
fn shared(name: &str, (on_heap, worker, node): (u32, u32, u32)) -> Topology {
    let spout = |i| Component::spout(&format!("s{i}"), 1).cpu(10).memory_mb(10, 0).shares("b");
    let t = Topology::new(name).owner("u").flags(abi::TOPO_ONE_EXEC_PER_WORKER).worker_heap_mb(2000).shared_mb("b", on_heap, worker, node);
    (1..5).fold(t, |t, i| t.with(spout(i)))
}

/// `n` executors of a spout, one component each of which wants a GPU.
fn gpu(name: &str, n: u32) -> Topology {
    Topology::new(name).owner("u").priority(29).with(Component::spout("spout", n).cpu(10).memory_mb(10, 0).resource("gpu", 1))
}

fn racks(change: impl Fn(usize, Node) -> Node) -> Cluster {
    (0..6).fold(Cluster::new(), |cluster, r| {
        (0..10).fold(cluster, |cluster, n| {
            let node = Node::new(&format!("r{r}-n{n}")).rack(&format!("r{r}")).slots(4).cpu(400).memory_mb(4000);
            cluster.node(change(r, node))
        })
    })
}

#[test]
fn places_and_kinds() {
    let cases = [
        case(
            "four executors that want a GPU each, on nodes of one",
            Cluster::new().nodes(4, |n| n.slots(4).cpu(400).memory_mb(2000).resource("gpu", 1)).topology(gpu("t", 4)),
            vec![],
            &[Runs("t"), Uses("t", 4, 4)],
        ),
        case(
            "GPUs by eviction, and who needs none stays",
            Cluster::new()
                .nodes(4, |n| n.slots(4).cpu(400).memory_mb(2000).resource("gpu", 1))
                .topology(gpu("gpu1", 3))
                .topology(spouts("none", 1, 10.0, 10.0)),
            vec![gpu("gpu2", 3).priority(10)],
            &[Runs("gpu2"), Runs("none"), Out("gpu1"), Moved(3)],
        ),
        case(
            "who needs no GPU stays off the rack that has them",
            racks(|r, n| if r == 1 { n.resource("gpu", 4).cpu(800) } else { n }).topology(spouts("t", 8, 10.0, 10.0)),
            vec![],
            &[Runs("t"), On("t", "r0")],
        ),
        case(
            "who needs one goes there",
            racks(|r, n| if r == 3 { n.resource("gpu", 4) } else { n }).topology(gpu("t", 8)),
            vec![],
            &[Runs("t"), On("t", "r3")],
        ),
        case(
            "the emptiest rack first",
            racks(|r, n| if r == 2 { n.cpu(800).memory_mb(8000) } else { n }).topology(spouts("t", 8, 10.0, 10.0)),
            vec![],
            &[Runs("t"), On("t", "r2")],
        ),
        case(
            "favoured hosts first",
            racks(|_, n| n).topology(spouts("t", 2, 10.0, 10.0).favors(&["host-r4-n7"])),
            vec![],
            &[Runs("t"), On("t", "r4-n7")],
        ),
        case(
            "unfavoured hosts last",
            Cluster::new()
                .node(Node::new("big").slots(4).cpu(800).memory_mb(8000))
                .node(Node::new("small").slots(4).cpu(100).memory_mb(1000))
                .topology(spouts("t", 2, 10.0, 10.0).avoids(&["host-big"])),
            vec![],
            &[Runs("t"), On("t", "small")],
        ),
        case(
            "greylisted nodes last, blacklisted never",
            Cluster::new()
                .node(Node::new("a").slots(4).cpu(800).memory_mb(8000).flags(abi::NODE_BLACKLISTED))
                .node(Node::new("b").slots(4).cpu(400).memory_mb(4000).flags(abi::NODE_GREYLISTED))
                .node(Node::new("c").slots(4).cpu(100).memory_mb(1000))
                .topology(spouts("t", 2, 10.0, 10.0)),
            vec![],
            &[Runs("t"), On("t", "c")],
        ),
        case(
            "one rack as long as it suffices",
            racks(|_, n| n).topology(spouts("t", 40, 100.0, 10.0)),
            vec![],
            &[Runs("t"), On("t", "r0")],
        ),
        case(
            "a rack with own executors is preferred",
            racks(|_, n| n.cpu(100))
                .topology(Topology::new("t").owner("u").with(Component::spout("spout", 2).cpu(10).memory_mb(10, 0).at(0, "r5-n3", 6700))),
            vec![],
            &[Runs("t"), On("t", "r5-n3"), Moved(0)],
        ),
        case(
            "round robin keeps to so many machines of its own",
            nodes(6, 4, 400.0, 4000.0)
                .topology(spouts("t", 10, 10.0, 10.0).strategy("round-robin").row(|r| r.isolate_machines = 5))
                .topology(spouts("u", 1, 10.0, 10.0).strategy("round-robin").row(|r| r.isolate_machines = 1).launched_ms(5)),
            vec![],
            &[Runs("t"), Uses("t", 5, 5), Runs("u"), Uses("u", 1, 1)],
        ),
        case(
            "a node's shared memory is free again when its topology is gone",
            nodes(1, 2, 100.0, 1000.0).topology(
                Topology::new("old")
                    .owner("u")
                    .priority(29)
                    .shared_mb("b", 0, 0, 900)
                    .with(Component::spout("s", 1).cpu(10).memory_mb(10, 0).shares("b")),
            ),
            vec![
                Topology::new("new")
                    .owner("u")
                    .priority(1)
                    .shared_mb("b", 0, 0, 900)
                    .with(Component::spout("s", 1).cpu(10).memory_mb(90, 0).shares("b")),
            ],
            &[Runs("new"), Out("old"), Moved(1)],
        ),
        case(
            "four spouts with shared memory, one executor in a worker: a block on the node",
            nodes(4, 4, 500.0, 1000.0).topology(shared("t", (0, 0, 600))),
            vec![],
            &[Runs("t"), Uses("t", 4, 1)],
        ),
        case(
            "four spouts with shared memory, one executor in a worker: a block off the heap of each worker",
            nodes(4, 4, 500.0, 1000.0).topology(shared("t", (0, 400, 0))),
            vec![],
            &[Runs("t"), Uses("t", 4, 2)],
        ),
        case(
            "four spouts with shared memory, one executor in a worker: a block on the heap of each worker",
            nodes(4, 4, 500.0, 1000.0).topology(shared("t", (450, 0, 0))),
            vec![],
            &[Runs("t"), Uses("t", 4, 2)],
        ),
        case(
            "generic shared memory: a GPU each puts two spouts on two nodes, and each block counts once where it is",
            Cluster::new().nodes(4, |n| n.slots(4).cpu(500).memory_mb(2000).resource("gpu", 1)).topology(
                gpu("t", 2)
                    .worker_heap_mb(2000)
                    .shared_mb("b", 0, 0, 700)
                    .with(Component::bolt("bolt", 4).cpu(10).memory_mb(10, 0).shares("b").reads("spout")),
            ),
            vec![],
            &[Runs("t"), Uses("t", 2, 2)],
        ),
        case(
            "negative resources: the second, of a higher priority, runs, and no node has less than nothing",
            nodes(1, 4, 500.0, 2000.0).topology(spouts("first", 4, 100.0, 100.0)),
            vec![of("u", 10, spouts("second", 3, 100.0, 100.0))],
            &[Runs("second"), Out("first"), Takes(300, 300)],
        ),
        case(
            "ackers that go with no worker find a place of their own",
            nodes(4, 4, 100.0, 1000.0).topology(spouts("t", 1, 100.0, 100.0).with(Component::ackers(2).cpu(50).memory_mb(100, 0))),
            vec![],
            &[Runs("t"), Uses("t", 2, 2)],
        ),
        case(
            "more than a rack holds: two racks",
            racks(|_, n| n.cpu(100)).topology(spouts("t", 12, 100.0, 10.0)),
            vec![],
            &[Runs("t"), Racks("t", 2)],
        ),
        case(
            "half of it runs in a rack: the rest goes there",
            racks(|_, n| n).topology(
                Topology::new("t")
                    .owner("u")
                    .with(Component::spout("spout", 8).cpu(300).memory_mb(10, 0).at(0, "r3-n1", 6700).at(1, "r3-n2", 6700)),
            ),
            vec![],
            &[Runs("t"), On("t", "r3"), Moved(0)],
        ),
        case(
            "several supervisors on a host stay next to each other",
            (0..4)
                .fold(Cluster::new(), |c, i| {
                    let host = if i % 2 == 0 { "host-x" } else { "host-y" };
                    c.node(Node::new(&format!("{}-{i}", &host[5..])).host(host).slots(2).cpu(100).memory_mb(1000))
                })
                .topology(spouts("t", 2, 100.0, 10.0)),
            vec![],
            &[Runs("t"), Racks("t", 1)],
        ),
        case(
            "a host that names no rack is in the default one",
            Cluster::new()
                .node(Node::new("a").rack("r1").slots(1).cpu(100).memory_mb(1000))
                .node(Node::new("b").slots(1).cpu(100).memory_mb(1000))
                .topology(spouts("t", 2, 100.0, 10.0)),
            vec![],
            &[Runs("t"), Uses("t", 2, 2)],
        ),
        case(
            "zero workers are asked for: resources say how many",
            nodes(2, 2, 100.0, 1000.0).topology(spouts("t", 4, 50.0, 10.0).workers(0)),
            vec![],
            &[Runs("t"), Uses("t", 2, 2)],
        ),
        case(
            "more workers are asked for than there are executors",
            nodes(2, 8, 100.0, 1000.0).topology(spouts("t", 2, 50.0, 10.0).workers(9)),
            vec![],
            &[Runs("t")],
        ),
        case(
            "round robin on more machines of its own than there are executors",
            nodes(6, 2, 100.0, 1000.0).topology(spouts("t", 2, 50.0, 10.0).strategy("round-robin").row(|r| r.isolate_machines = 5)),
            vec![],
            &[Runs("t"), Uses("t", 2, 2)],
        ),
    ];
    cases.iter().for_each(run);
}

#[test]
fn names_and_the_order_of_kinds_decide_nothing() {
    let cluster = |[gpu, fpga]: [&str; 2], [prefix, node]: [&str; 2]| {
        let node = |i: u32| Node::new(&format!("{node}{i}")).slots(4).cpu(400).memory_mb(2000).resource(gpu, i % 3).resource(fpga, i % 2);
        let spout = Component::spout("spout", 3).cpu(50).memory_mb(100, 0).resource(gpu, 1);
        let bolt = Component::bolt("bolt", 4).cpu(50).memory_mb(100, 0).reads("spout");
        let t = |i: u32| Topology::new(&format!("{prefix}{i}")).owner("u").with(spout.clone()).with(bolt.clone());
        let done = (1..6).fold(Cluster::new(), |c, i| c.node(node(i))).topology(t(1)).topology(t(2)).run(BUILTIN);
        let at = |t: u32| {
            done.workers(&format!("{prefix}{t}")).into_iter().map(|(slot, g)| (slot[1..].to_owned(), g.join(" "))).collect::<Vec<_>>()
        };
        (at(1), at(2))
    };
    let plain = cluster(["gpu", "fpga"], ["t", "n"]);
    assert_eq!(plain.0.iter().map(|(_, g)| g.split(' ').count()).sum::<usize>(), 7, "all of it is placed");
    assert_eq!(plain, cluster(["a-gpu", "z-fpga"], ["t", "n"]), "kinds in another order");
    assert_eq!(plain, cluster(["gpu", "fpga"], ["x", "m"]), "other names in the same order");
}
