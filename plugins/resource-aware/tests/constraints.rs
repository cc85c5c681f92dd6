//! Storm's cases for its constraint solver. Both forms of writing constraints are the model crate's; here is what a snapshot says of them.

mod table;

use saetta_resource_aware::BUILTIN;
use saetta_sdk::abi;
use saetta_sdk::testing::{Cluster, Component, Topology};
use table::*;

fn spread(n: u32) -> Topology {
    Topology::new("t").owner("u").worker_heap_mb(2000).with(Component::spout("s", n).cpu(10).memory_mb(10, 0).spread())
}

/// `n` executors, two of which fit on a node by number and not by CPU.
fn heavy(n: u32) -> Topology {
    let t = Topology::new("t").owner("u").strategy("constraint").worker_heap_mb(2000);
    t.with(Component::spout("a", n).cpu(50).memory_mb(10, 0).max_colocation(2))
        .with(Component::bolt("b", 1).cpu(70).memory_mb(10, 0).reads("a"))
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
        case(
            "spread without a number: one on a node",
            nodes(4, 2, 120.0, 1200.0).topology(spread(4)),
            vec![],
            &[Runs("t"), Uses("t", 4, 4)],
        ),
        case(
            "spread without a number: five on four nodes are one too many",
            nodes(4, 2, 120.0, 1200.0).topology(spread(5)),
            vec![],
            &[Out("t")],
        ),
        case(
            "LargeExecutorConstraintCount: twenty times as many",
            nodes(42, 10, 400.0, 4000.0).topology(constrained(40, true, 1)),
            vec![],
            &[Runs("t")],
        ),
        case(
            "ZeroExecutor: a constraint names a component that nobody waits for",
            nodes(2, 2, 120.0, 1200.0).topology(constrained(1, true, 1)),
            vec![],
            &[Runs("t")],
        ),
        case(
            "Timeout: a search that may take no time ends, and says so",
            nodes(4, 2, 120.0, 1200.0).topology(heavy(8).row(|r| (r.max_ms, r.max_states) = (1, 1 << 40))),
            vec![],
            &[Out("t")],
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
