//! Who is served, and who makes room: Storm's cases for users, priorities and eviction, and what a worker and a node may hold.
//!
//! Where we differ from Storm it stands beside the case. Not here: user pools in files and in the scheduler's configuration (a snapshot carries
//! guarantees), class loading, and the sums of `TestUser`, which are the model's.

mod table;

use saetta_resource_aware::BUILTIN;
use saetta_sdk::abi;
use saetta_sdk::testing::{Cluster, Component, Node, Topology};
use table::*;

/// A large node and a small one.
fn unlike() -> Cluster {
    let node = |name, cpu, mb| Node::new(name).slots(4).cpu(cpu).memory_mb(mb);
    Cluster::new().node(node("n1", 800, 4096)).node(node("n2", 200, 1024))
}

#[test]
fn users_priorities_and_eviction() {
    let cases = [
        case(
            "one slot holds two executors",
            nodes(1, 1, 400.0, 2000.0).topology(spouts("t", 2, 10.0, 128.0)),
            vec![],
            &[Runs("t"), Uses("t", 1, 1)],
        ),
        case(
            "resource limitation: 250 % and 1200 MB twice, beside 100 % and 600 MB, need two nodes",
            nodes(2, 2, 400.0, 2000.0).topology(
                Topology::new("t")
                    .owner("u")
                    .worker_heap_mb(2000)
                    .with(Component::spout("s", 2).cpu(250).memory_mb(1000, 200))
                    .with(Component::bolt("b", 1).cpu(100).memory_mb(500, 100).reads("s")),
            ),
            vec![],
            &[Runs("t"), Uses("t", 2, 2)],
        ),
        case(
            "the heap of a worker: four executors at the limit, four workers",
            nodes(2, 4, 400.0, 2000.0).topology(spouts("t", 4, 10.0, 400.0).worker_heap_mb(400)),
            vec![],
            &[Runs("t"), Uses("t", 4, 1)],
        ),
        case(
            "the heap of a worker: five do not fit, and none is placed",
            nodes(2, 2, 400.0, 2000.0).topology(spouts("t", 5, 10.0, 400.0).worker_heap_mb(400)),
            vec![],
            &[Out("t")],
        ),
        case(
            "unlike nodes filled to the brim: 40 executors of 25 % and 128 MB",
            Cluster::new()
                .node(Node::new("n1").slots(4).cpu(800).memory_mb(4096))
                .node(Node::new("n2").slots(4).cpu(200).memory_mb(1024))
                .topology(spouts("t", 40, 25.0, 128.0).worker_heap_mb(4096)),
            vec![],
            &[Runs("t"), Uses("t", 2, 2)],
        ),
        case(
            "a new topology moves nobody",
            nodes(2, 2, 100.0, 1000.0).topology(spouts("a", 2, 40.0, 100.0)),
            vec![spouts("b", 2, 40.0, 100.0)],
            &[Runs("a"), Runs("b"), Moved(0)],
        ),
        case(
            "a big one that fails does not block the next",
            nodes(1, 4, 100.0, 1000.0).topology(spouts("big", 1, 101.0, 10.0).priority(1)).topology(spouts("small", 1, 50.0, 10.0)),
            vec![],
            &[Out("big"), Runs("small")],
        ),
        case(
            "least CPU of a worker: ten of 10 % share one of 50 %",
            nodes(1, 4, 100.0, 1280.0).min_worker_cpu(50).topology(spouts("t", 10, 10.0, 10.0)),
            vec![],
            &[Runs("t"), Uses("t", 1, 1)],
        ),
        case(
            "least CPU of a worker: two of 40 % leave no third",
            nodes(1, 4, 100.0, 1000.0)
                .min_worker_cpu(40)
                .topology(spouts("a", 1, 10.0, 10.0).launched_ms(1))
                .topology(spouts("b", 1, 10.0, 10.0).launched_ms(2))
                .topology(spouts("c", 1, 10.0, 10.0).launched_ms(3)),
            vec![],
            &[Runs("a"), Runs("b"), Out("c")],
        ),
        case(
            "least CPU of a worker: two workers would be needed",
            nodes(1, 4, 100.0, 1000.0).min_worker_cpu(60).topology(spouts("t", 2, 10.0, 500.0).worker_heap_mb(500)),
            vec![],
            &[Out("t")],
        ),
        case(
            "a cycle ends",
            nodes(4, 4, 400.0, 4000.0).topology(
                Topology::new("t")
                    .owner("u")
                    .worker_heap_mb(2000)
                    .flags(abi::TOPO_ORDER_BY_PROXIMITY)
                    .with(Component::spout("s1", 5).cpu(10).memory_mb(10, 0))
                    .with(Component::spout("s2", 5).cpu(10).memory_mb(10, 0))
                    .with(Component::bolt("b1", 8).cpu(10).memory_mb(10, 0).reads("s1").reads("s2").reads("b2"))
                    .with(Component::bolt("b2", 7).cpu(10).memory_mb(10, 0).reads("b1")),
            ),
            vec![],
            &[Runs("t")],
        ),
        case(
            "a user without a guarantee comes after one with",
            nodes(1, 4, 200.0, 2000.0)
                .user("jerry", 200, 2000)
                .topology(of("bobby", 10, spouts("a", 1, 100.0, 100.0)))
                .topology(of("jerry", 20, spouts("b", 1, 100.0, 100.0)))
                .topology(of("jerry", 20, spouts("c", 1, 100.0, 100.0))),
            vec![],
            &[Out("a"), Runs("b"), Runs("c")],
        ),
        // Storm skips a topology without an owner.
        case(
            "nobody's topology is served too",
            nodes(1, 1, 100.0, 100.0).topology(spouts("t", 1, 10.0, 10.0).owner("")),
            vec![],
            &[Runs("t")],
        ),
        case(
            "eviction: the last of the lowest priority goes",
            nodes(2, 2, 100.0, 1000.0).topology(spouts("low", 1, 100.0, 10.0)).topology(of("u", 20, spouts("mid", 1, 100.0, 10.0))),
            vec![of("v", 10, spouts("new", 1, 100.0, 10.0))],
            &[Runs("new"), Runs("mid"), Out("low"), Moved(1)],
        ),
        case(
            "eviction of two",
            nodes(2, 2, 100.0, 1000.0).user("v", 200, 2000).topology(spouts("low", 1, 100.0, 10.0)).topology(of(
                "u",
                20,
                spouts("mid", 1, 100.0, 10.0),
            )),
            vec![of("v", 10, spouts("new", 2, 100.0, 10.0))],
            &[Runs("new"), Out("mid"), Out("low"), Moved(2)],
        ),
        case(
            "eviction of the user's own",
            nodes(1, 2, 100.0, 1000.0).topology(of("jerry", 29, spouts("old", 1, 80.0, 10.0))),
            vec![of("jerry", 10, spouts("new", 1, 80.0, 10.0))],
            &[Runs("new"), Out("old"), Moved(1)],
        ),
        // Storm evicts an equal of a user above its guarantee; the ABI allows it for a lower priority only.
        case(
            "equals do not evict each other",
            nodes(1, 2, 100.0, 1000.0).topology(spouts("old", 1, 80.0, 10.0)),
            vec![spouts("new", 1, 80.0, 10.0)],
            &[Runs("old"), Out("new"), Moved(0)],
        ),
        case(
            "eviction in vain is taken back",
            nodes(1, 2, 100.0, 1000.0).topology(spouts("old", 1, 80.0, 10.0)),
            vec![of("u", 10, spouts("new", 1, 120.0, 10.0))],
            &[Runs("old"), Out("new"), Moved(0)],
        ),
        with(
            "fifo evicts the youngest of the lowest",
            r#"{"fairness": "fifo"}"#,
            nodes(2, 2, 100.0, 1000.0)
                .topology(of("bobby", 29, spouts("older", 1, 100.0, 10.0)).launched_ms(1))
                .topology(of("derek", 29, spouts("younger", 1, 100.0, 10.0)).launched_ms(2)),
            vec![of("jerry", 0, spouts("new", 1, 100.0, 10.0)).launched_ms(0)],
            &[Runs("new"), Runs("older"), Out("younger"), Moved(1)],
        ),
        with(
            "a strategy that is not allowed",
            r#"{"strategies": ["default"]}"#,
            nodes(1, 1, 100.0, 100.0)
                .topology(spouts("other", 1, 10.0, 10.0))
                .topology(spouts("t", 1, 10.0, 10.0).strategy("constraint").launched_ms(9)),
            vec![],
            &[Runs("other"), Invalid("t")],
        ),
        case(
            "a class name of Storm's, with its old package",
            nodes(1, 1, 100.0, 100.0).topology(
                spouts("t", 1, 10.0, 10.0).strategy("backtype.storm.scheduler.resource.strategies.scheduling.DefaultResourceAwareStrategy"),
            ),
            vec![],
            &[Runs("t")],
        ),
        case(
            "testTopologyWithMultipleSpouts: seven and two executors, a worker each",
            nodes(2, 4, 400.0, 2000.0)
                .topology(
                    spouts("a", 2, 10.0, 10.0)
                        .with(Component::spout("s2", 2).cpu(10).memory_mb(10, 0))
                        .with(Component::bolt("b", 3).cpu(10).memory_mb(10, 0).reads("spout").reads("s2")),
                )
                .topology(spouts("b", 2, 10.0, 10.0)),
            vec![],
            &[Uses("a", 1, 1), Uses("b", 1, 1), Runs("a"), Runs("b")],
        ),
        case(
            "testTopologySetCpuAndMemLoad: what is placed is what is taken",
            nodes(1, 2, 400.0, 2000.0).topology(spouts("t", 2, 20.0, 200.0)),
            vec![],
            &[Runs("t"), Takes(40, 400)],
        ),
        losing(
            "testScheduleResilience, a supervisor is lost: what it ran goes elsewhere, the rest stays",
            &["n1"],
            Cluster::new()
                .node(Node::new("n1").slots(2).cpu(100).memory_mb(1000))
                .node(Node::new("n2").slots(2).cpu(100).memory_mb(1000))
                .node(Node::new("n3").slots(2).cpu(100).memory_mb(1000))
                .topology(spouts("t", 4, 50.0, 100.0)),
            &[Runs("t"), Moved(0), Uses("t", 2, 2)],
        ),
        case(
            "testScheduleResilience, part of it runs: that part stays",
            nodes(2, 2, 100.0, 1000.0)
                .topology(Topology::new("t").owner("u").with(Component::spout("spout", 2).cpu(50).memory_mb(100, 0).at(0, "n2", 6701))),
            vec![],
            &[Runs("t"), Moved(0)],
        ),
        case(
            "testHeterogeneousCluster: three that fit exactly",
            unlike()
                .topology(spouts("a", 4, 50.0, 1024.0).worker_heap_mb(4096))
                .topology(spouts("b", 1, 600.0, 0.0).launched_ms(1))
                .topology(spouts("c", 2, 100.0, 512.0).worker_heap_mb(4096).launched_ms(2)),
            vec![],
            &[Run(3)],
        ),
        case(
            "testHeterogeneousCluster: of three exactly two fit",
            unlike()
                .topology(spouts("a", 4, 50.0, 1024.0).worker_heap_mb(4096))
                .topology(spouts("b", 1, 600.0, 0.0).launched_ms(1))
                .topology(spouts("d", 3, 100.0, 512.0).worker_heap_mb(4096).launched_ms(2)),
            vec![],
            &[Run(2)],
        ),
        case(
            "testMultipleUsers: fifteen topologies of three users",
            (0..15).fold(nodes(8, 4, 400.0, 4000.0).user("u0", 400, 2000).user("u1", 400, 2000), |cluster, i| {
                cluster.topology(of(&format!("u{}", i % 3), 10 + i, spouts(&format!("t{i:02}"), 2, 50.0, 200.0)))
            }),
            vec![],
            &[Run(15)],
        ),
        case(
            "testHandlingClusterSubscription: more is asked for than there is, and the lower priority stays out",
            nodes(1, 4, 200.0, 1000.0).topology(of("u", 20, spouts("low", 1, 150.0, 100.0))).topology(of(
                "u",
                10,
                spouts("high", 1, 150.0, 100.0),
            )),
            vec![],
            &[Runs("high"), Out("low")],
        ),
        losing(
            "testFaultTolerance: one of six supervisors is lost, and only the lowest is out",
            &["n1"],
            (1..7).fold(Cluster::new(), |c, i| {
                c.node(Node::new(&format!("n{i}")).slots(2).cpu(100).memory_mb(1000)).topology(of(
                    "u",
                    i,
                    spouts(&format!("t{i}"), 1, 80.0, 10.0),
                ))
            }),
            &[Run(5), Out("t6")],
        ),
        case(
            "testMinCpuMaxMultipleSupervisors: nine of ten run",
            (0..10).fold(nodes(3, 10, 300.0, 3000.0).min_worker_cpu(100), |c, i| {
                c.topology(spouts(&format!("t{i}"), 1, 10.0, 10.0).launched_ms(i64::from(i)))
            }),
            vec![],
            &[Run(9), Out("t9")],
        ),
        case(
            "testStrategyTakingTooLong: one whose search has no end leaves the others placed",
            nodes(3, 2, 100.0, 1000.0)
                .topology(
                    Topology::new("long")
                        .owner("u")
                        .priority(1)
                        .strategy("constraint")
                        .row(|r| r.max_states = 1 << 40)
                        // Each fits alone, all nine never do, and no sum says so.
                        .with(Component::spout("a", 9).cpu(30).memory_mb(10, 0).max_colocation(3))
                        .with(Component::bolt("b", 1).cpu(25).memory_mb(10, 0).reads("a")),
                )
                .topology(of("u", 20, spouts("other", 1, 5.0, 10.0))),
            vec![],
            &[Out("long"), Runs("other")],
        ),
        case(
            "testDefaultEvictionStrategy, order: lowest first, one after the other",
            nodes(3, 2, 100.0, 1000.0)
                .user("d", 300, 3000)
                .topology(of("a", 27, spouts("topo-2", 1, 100.0, 10.0)))
                .topology(of("b", 28, spouts("topo-4", 1, 100.0, 10.0)))
                .topology(of("c", 29, spouts("topo-3", 1, 100.0, 10.0))),
            vec![of("d", 10, spouts("new", 2, 100.0, 10.0))],
            &[Runs("new"), Runs("topo-2"), Out("topo-3"), Out("topo-4"), Moved(2)],
        ),
        case(
            "one that is asked to be placed anew and may never be: it stays where it is",
            nodes(2, 2, 100.0, 1000.0).topology(
                Topology::new("t")
                    .owner("u")
                    .strategy("nonsense")
                    .flags(abi::TOPO_SCHEDULE | abi::TOPO_REBALANCE)
                    .with(Component::spout("spout", 2).cpu(50).memory_mb(100, 0).at(0, "n2", 6700).at(1, "n2", 6700)),
            ),
            vec![],
            &[Invalid("t"), Moved(0), Uses("t", 1, 1)],
        ),
    ];
    cases.iter().for_each(run);
}

#[test]
fn a_rebalance_places_anew_and_is_no_move_of_the_rounds() {
    // Two halves on two nodes where one node would do.
    let topology = |flags| {
        let spout = Component::spout("spout", 2).cpu(10).memory_mb(10, 0).at(0, "a", 6700).at(1, "b", 6700);
        Topology::new("t")
            .owner("u")
            .flags(flags)
            .with(spout)
            .with(Component::bolt("bolt", 1).cpu(10).memory_mb(10, 0).reads("spout").at(0, "a", 6700))
    };
    let node = |name| Node::new(name).slots(2).cpu(100).memory_mb(100);
    let cluster = |flags| Cluster::new().node(node("a")).node(node("b")).topology(topology(flags));
    let left = cluster(abi::TOPO_SCHEDULE).run(BUILTIN);
    assert_eq!((left.moved, left.workers("t").len()), (0, 2), "nobody asked");
    let anew = cluster(abi::TOPO_SCHEDULE | abi::TOPO_REBALANCE).ask().max_moves(0).run(BUILTIN).expect("a round");
    assert_eq!((anew.outcome("t"), anew.workers("t").len(), anew.unplaced("t")), (abi::OUT_SCHEDULED, 1, 0));
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
