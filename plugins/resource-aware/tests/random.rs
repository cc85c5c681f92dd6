//! Random clusters: a plan keeps to what nodes have, is the same again, and a second round moves nothing.

use proptest::prelude::*;
use saetta_resource_aware::BUILTIN;
use saetta_sdk::snapshot::Snapshot;
use saetta_sdk::testing::{Cluster, Component, Node, Topology};
use saetta_sdk::{NodeId, abi, usage};

fn node(i: usize, (rack, slots, cpu, mb): (u32, u32, u32, u32)) -> Node {
    Node::new(&format!("n{i:02}")).rack(&format!("r{rack}")).slots(slots).cpu(cpu * 50).memory_mb(mb * 256)
}

#[derive(Debug, Clone)]
struct Shape {
    comps: Vec<(u32, u32, u32, usize)>,
    priority: i32,
    flags: u32,
    ackers: u32,
    block: u32,
    most: u32,
}

fn topology(i: usize, s: &Shape) -> Topology {
    let t = Topology::new(&format!("t{i}")).owner(if i.is_multiple_of(2) { "u" } else { "v" }).priority(s.priority).flags(s.flags);
    let t = t.worker_heap_mb(1024).launched_ms(i as i64).shared_mb("b", s.block, s.block, s.block);
    let t = s.comps.iter().enumerate().fold(t, |t, (c, (n, cpu, mb, from))| {
        let name = format!("c{c}");
        let comp = if c == 0 { Component::spout(&name, *n) } else { Component::bolt(&name, *n).reads(&format!("c{}", from % c)) };
        let comp = comp.cpu(cpu * 10).memory_mb(mb * 64, 0).max_colocation(if c == 1 { s.most } else { 0 });
        t.with(if c < 2 && s.block > 0 { comp.shares("b") } else { comp })
    });
    if s.ackers > 0 { t.with(Component::ackers(s.ackers).cpu(10).memory_mb(64, 0)) } else { t }
}

fn shapes() -> impl Strategy<Value = Shape> {
    let comps = prop::collection::vec((1u32..6, 0u32..12, 0u32..8, 0usize..8), 1..5);
    let flags =
        prop::sample::select(vec![0, 0, abi::TOPO_ONE_EXEC_PER_WORKER, abi::TOPO_ONE_COMP_PER_WORKER, abi::TOPO_ORDER_BY_PROXIMITY]);
    (comps, 0i32..4, flags, 0u32..4, prop::sample::select(vec![0u32, 0, 100]), 0u32..3)
        .prop_map(|(comps, priority, flags, ackers, block, most)| Shape { comps, priority, flags, ackers, block, most })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn a_plan_fits_is_the_same_again_and_moves_nothing_later(
        nodes in prop::collection::vec((0u32..3, 1u32..5, 1u32..9, 1u32..12), 1..8),
        shapes in prop::collection::vec(shapes(), 1..5),
        least in prop::sample::select(vec![0u32, 0, 25]),
    ) {
        let cluster = nodes.iter().enumerate().fold(Cluster::new(), |c, (i, n)| c.node(node(i, *n))).min_worker_cpu(least);
        let half = shapes.len() / 2;
        let add = |c: Cluster, range: std::ops::Range<usize>| range.fold(c, |c, i| c.topology(topology(i, &shapes[i])));
        let cluster = add(cluster, 0..half);
        let cluster = add(cluster.after(&cluster.run(BUILTIN)), half..shapes.len());
        let run = |c: &Cluster| c.ask().may_preempt().run(BUILTIN).expect("a round");
        let done = run(&cluster);
        prop_assert_eq!(&run(&cluster), &done);
        let next = cluster.after(&done);
        let bytes = next.pack();
        let snapshot = Snapshot::new(&bytes).expect("packed");
        for (n, taken) in usage::taken(&snapshot).into_iter().enumerate() {
            let total = snapshot.node_total(NodeId(n as u32));
            prop_assert!(taken.iter().zip(total.iter()).all(|(taken, total)| *taken <= total), "node {} takes {:?}", n, taken);
        }
        for i in 0..shapes.len() {
            let name = format!("t{i}");
            prop_assert_eq!(done.outcome(&name) == abi::OUT_SCHEDULED, done.unplaced(&name) == 0, "{}", name);
        }
        prop_assert_eq!(run(&next).moved, 0);
    }
}
