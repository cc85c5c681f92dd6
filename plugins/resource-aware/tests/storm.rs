//! Storm's cases for its resource-aware scheduler (users, priorities, eviction, strategies, constraints) as a table: a cluster, a round, what must
//! hold. Each is also run a second time with its plan in force: nothing may move.
//!
//! Where we differ from Storm it stands beside the case.

use saetta_resource_aware::BUILTIN;
use saetta_sdk::abi;
use saetta_sdk::testing::{Cluster, Component, Done, Node, Topology};

/// What must hold of a topology.
#[derive(Debug, Clone, Copy)]
enum Holds {
    /// All executors placed.
    Runs(&'static str),
    /// None placed, and said so.
    Out(&'static str),
    /// Workers and nodes it uses.
    Uses(&'static str, usize, usize),
    /// The nodes it uses, all of which begin so.
    On(&'static str, &'static str),
    /// Running executors that moved or were evicted.
    Moved(usize),
}
use Holds::*;

struct Case {
    name: &'static str,
    cluster: Cluster,
    /// Put into the cluster after a first round has placed all of the above.
    then: Vec<Topology>,
    config: &'static str,
    holds: Vec<Holds>,
}

fn case(name: &'static str, cluster: Cluster, then: Vec<Topology>, holds: &[Holds]) -> Case {
    Case { name, cluster, then, config: "{}", holds: holds.to_vec() }
}

fn with(name: &'static str, config: &'static str, cluster: Cluster, then: Vec<Topology>, holds: &[Holds]) -> Case {
    Case { config, ..case(name, cluster, then, holds) }
}

fn check(case: &Case, done: &Done) {
    for holds in &case.holds {
        let name = case.name;
        match *holds {
            Runs(t) => assert_eq!((done.outcome(t), done.unplaced(t)), (abi::OUT_SCHEDULED, 0), "{name}: {t}"),
            Out(t) => assert_eq!((done.outcome(t), done.workers(t).len()), (abi::OUT_UNSCHEDULABLE, 0), "{name}: {t}"),
            Uses(t, workers, nodes) => assert_eq!((done.workers(t).len(), done.nodes(t).len()), (workers, nodes), "{name}: {t}"),
            On(t, begin) => assert!(done.nodes(t).iter().all(|n| n.starts_with(begin)), "{name}: {t} is on {:?}", done.nodes(t)),
            Moved(n) => assert_eq!(done.moved, n, "{name}: moved"),
        }
    }
}

fn run(case: &Case) {
    let mut cluster = case.cluster.clone();
    if !case.then.is_empty() {
        let before = cluster.ask().config(case.config).run(BUILTIN).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        cluster = case.then.iter().cloned().fold(cluster.after(&before), Cluster::topology);
    }
    let ask =
        |cluster: &Cluster| cluster.ask().config(case.config).may_preempt().run(BUILTIN).unwrap_or_else(|e| panic!("{}: {e}", case.name));
    let done = ask(&cluster);
    check(case, &done);
    assert_eq!(ask(&cluster.after(&done)).moved, 0, "{}: a second round without change", case.name);
}

/// `n` executors of one spout.
fn spouts(name: &str, n: u32, cpu: f64, mb: f64) -> Topology {
    Topology::new(name).owner("u").priority(29).worker_heap_mb(768).with(Component::spout("spout", n).cpu(cpu).memory_mb(mb, 0))
}

fn of(user: &str, priority: i32, t: Topology) -> Topology {
    t.owner(user).priority(priority)
}

fn nodes(n: usize, slots: u32, cpu: f64, mb: f64) -> Cluster {
    Cluster::new().nodes(n, |node| node.slots(slots).cpu(cpu).memory_mb(mb))
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
            &[Runs("other")],
        ),
        case(
            "a class name of Storm's, with its old package",
            nodes(1, 1, 100.0, 100.0).topology(
                spouts("t", 1, 10.0, 10.0).strategy("backtype.storm.scheduler.resource.strategies.scheduling.DefaultResourceAwareStrategy"),
            ),
            vec![],
            &[Runs("t")],
        ),
    ];
    cases.iter().for_each(run);
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
    ];
    cases.iter().for_each(run);
}

fn constrained(n: u32, apart: bool, most: u32) -> Topology {
    let each = |c: Component| c.cpu(10).memory_mb(10, 0);
    let bolt = each(Component::bolt("b", n)).reads("s").max_colocation(most);
    Topology::new("t")
        .owner("u")
        .strategy("ConstraintSolverStrategy")
        .worker_heap_mb(2000)
        .with(each(Component::spout("s", n)))
        .with(if apart { bolt.incompatible_with("s") } else { bolt })
}

#[test]
fn constraints() {
    let cases = [
        case(
            "no constraints: as without",
            nodes(4, 2, 120.0, 1200.0).topology(constrained(2, false, 0)),
            vec![],
            &[Runs("t"), Uses("t", 1, 1)],
        ),
        case("apart in workers", nodes(4, 2, 120.0, 1200.0).topology(constrained(2, true, 0)), vec![], &[Runs("t"), Uses("t", 2, 1)]),
        case("two on a node", nodes(4, 2, 120.0, 1200.0).topology(constrained(6, false, 2)), vec![], &[Runs("t"), Uses("t", 3, 3)]),
        case("too many for the nodes", nodes(2, 2, 120.0, 1200.0).topology(constrained(6, false, 2)), vec![], &[Out("t")]),
        case("36 nodes are too few", nodes(36, 2, 120.0, 1200.0).topology(constrained(37, false, 1)), vec![], &[Out("t")]),
        case("37 are enough", nodes(37, 2, 120.0, 1200.0).topology(constrained(37, false, 1)), vec![], &[Runs("t")]),
        case(
            "too few states allowed",
            nodes(4, 2, 120.0, 1200.0).topology(constrained(8, true, 0).row(|r| r.max_states = 10)),
            vec![],
            &[Out("t")],
        ),
        case(
            "enough states allowed",
            nodes(4, 2, 120.0, 1200.0).topology(constrained(8, true, 0).row(|r| r.max_states = 16)),
            vec![],
            &[Runs("t")],
        ),
        case(
            "default and constraint keep constraints alike",
            nodes(4, 2, 120.0, 1200.0).topology(constrained(2, true, 1).strategy("")),
            vec![],
            &[Runs("t"), Uses("t", 3, 2)],
        ),
    ];
    cases.iter().for_each(run);
    // A worker is lost: what is left of the solution stays, the rest finds a valid place.
    let cluster = nodes(4, 2, 120.0, 1200.0).topology(constrained(4, true, 2));
    let lost = cluster.after(&cluster.run(BUILTIN));
    let node = cluster.run(BUILTIN).nodes("t").into_iter().next().expect("it is somewhere").to_owned();
    let back = lost.without_node(&node).run(BUILTIN);
    assert_eq!((back.outcome("t"), back.moved), (abi::OUT_SCHEDULED, 0));
}

#[test]
fn names_and_the_order_of_kinds_decide_nothing() {
    let cluster = |gpu: &str, prefix: &str| {
        Cluster::new()
            .nodes(4, |n| n.slots(4).cpu(400).memory_mb(2000).resource(gpu, 2))
            .topology(Topology::new(prefix).owner("u").with(Component::spout("spout", 3).cpu(50).memory_mb(100, 0).resource(gpu, 1)))
    };
    let groups = |c: Cluster, t: &str| c.run(BUILTIN).workers(t).into_iter().map(|(s, g)| (s, g.len())).collect::<Vec<_>>();
    assert_eq!(groups(cluster("aaa", "t1"), "t1"), groups(cluster("zzz", "x1"), "x1"));
}
