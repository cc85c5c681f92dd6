//! The accounting against the host's arithmetic: after any steps it says what `usage` says of the same placement, and back again.

use proptest::prelude::*;
use saetta_sdk::model::{Misfit, Model};
use saetta_sdk::snapshot::Snapshot;
use saetta_sdk::testing::{Cluster, Component, Node, Topology};
use saetta_sdk::{ExecId, NodeId, SlotId, abi, usage};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Two topologies with blocks of every sort, on three nodes of two slots; where each of their executors is.
fn cluster(at: &[Option<u32>]) -> Cluster {
    let placed = |c: Component, at: &[Option<u32>]| {
        at.iter().enumerate().filter_map(|(i, s)| s.map(|s| (i, s))).fold(c, |c, (i, s)| c.at(i, &format!("n{}", s / 2 + 1), 6700 + s % 2))
    };
    let one = |name: &str, at: &[Option<u32>]| {
        Topology::new(name)
            .owner("u")
            .shared_mb("heap", 10, 0, 0)
            .shared_mb("both", 0, 20, 40)
            .with(placed(Component::spout("a", 3).cpu(10).memory_mb(5, 1).shares("heap").shares("both"), &at[..3]))
            .with(placed(Component::bolt("b", 3).cpu(25).memory_mb(7, 0).shares("both").resource("gpu", 1), &at[3..6]))
    };
    Cluster::new()
        .min_worker_cpu(30)
        .nodes(3, |n| n.slots(2).cpu(500).memory_mb(5000).resource("gpu", 8))
        .topology(one("t1", &at[..6]))
        .topology(one("t2", &at[6..]))
}

fn left(model: &Model) -> Vec<Vec<i64>> {
    (0..model.n_nodes() as u32).map(|n| model.avail(NodeId(n)).to_vec()).collect()
}

proptest! {
    #[test]
    fn any_steps_leave_the_sums_of_the_placement_they_lead_to(steps in prop::collection::vec((0u32..12, 0u32..7), 1..60)) {
        let nothing = vec![None; 12];
        let empty = cluster(&nothing).pack();
        let mut model = Model::new(&Snapshot::new(&empty).unwrap());
        let (mut at, middle) = (nothing.clone(), steps.len() / 2);
        let mut mark = (model.checkpoint(), at.clone());
        for (i, (exec, slot)) in steps.into_iter().enumerate() {
            if i == middle {
                mark = (model.checkpoint(), at.clone());
            }
            model.free(ExecId(exec));
            at[exec as usize] = None;
            let is_taken = at.iter().enumerate().any(|(e, a)| *a == Some(slot) && (e < 6) != (exec < 6));
            if slot < 6 && !is_taken {
                model.place(ExecId(exec), SlotId(slot));
                at[exec as usize] = Some(slot);
            }
        }
        let bytes = cluster(&at).pack();
        let snapshot = Snapshot::new(&bytes).unwrap();
        prop_assert_eq!(left(&model), usage::available(&snapshot));
        prop_assert_eq!(left(&Model::new(&snapshot)), left(&model));
        model.rollback(mark.0);
        prop_assert_eq!(left(&model), usage::available(&Snapshot::new(&cluster(&mark.1).pack()).unwrap()));
        for (e, slot) in mark.1.iter().enumerate() {
            prop_assert_eq!(model.slot_of(ExecId(e as u32)).map(|s| s.0), *slot);
        }
    }
}

/// Storm changes an index before it looks, and its sums are wrong ever after.
#[test]
fn assign_failure_leaves_no_trace() {
    let mut at = vec![None; 12];
    (at[0], at[3]) = (Some(0), Some(0));
    let bytes = cluster(&at).pack();
    let mut model = Model::new(&Snapshot::new(&bytes).unwrap());
    let seen = |model: &Model| {
        let slots = (0..6).map(|s| (model.holder(SlotId(s)), model.taken(SlotId(s)), model.heap_of(SlotId(s)))).collect::<Vec<_>>();
        (left(model), slots, (0..12).map(|e| model.slot_of(ExecId(e))).collect::<Vec<_>>())
    };
    let (before, mark) = (seen(&model), model.checkpoint());
    for (exec, slot, part) in [(6, 0, "holds topology 0"), (0, 1, "is in slot 0 already")] {
        let failed = catch_unwind(AssertUnwindSafe(|| model.place(ExecId(exec), SlotId(slot)))).unwrap_err();
        assert!(failed.downcast_ref::<String>().unwrap().contains(part), "{failed:?}");
        assert_eq!((seen(&model), model.since(mark).count()), (before.clone(), 0), "{part}");
    }
}

/// In Storm, which kinds a request array knows depends on when it was made.
#[test]
fn resource_kind_order_says_nothing() {
    let placed = |gpu: &str, fpga: &str| {
        let of = |name: &str, kind: &str| Component::bolt(name, 3).cpu(1).resource(kind, 1);
        let node = |n: Node| n.slots(1).cpu(100).resource(gpu, 1).resource(fpga, 2);
        let bytes = Cluster::new().nodes(2, node).topology(Topology::new("t").with(of("g", gpu)).with(of("f", fpga))).pack();
        let s = Snapshot::new(&bytes).unwrap();
        let mut model = Model::new(&s);
        let mut steps = Vec::new();
        for (exec, slot) in (0..6).flat_map(|e| [(ExecId(e), SlotId(0)), (ExecId(e), SlotId(1))]) {
            let fit = model.fit(model.comp_of(exec), slot).map_err(|e| match e {
                Misfit::Generic(k) => {
                    if s.text(s.kinds().at(k).name) == gpu {
                        "gpu"
                    } else {
                        "fpga"
                    }
                }
                other => panic!("{other:?}"),
            });
            if fit.is_ok() && model.slot_of(exec).is_none() {
                model.place(exec, slot);
            }
            steps.push(fit);
        }
        steps
    };
    assert_eq!(placed("a", "z"), placed("z", "a"));
    assert!(placed("a", "z").contains(&Err("gpu")) && placed("a", "z").contains(&Err("fpga")));
}

#[test]
fn test_cluster() {
    let bolt =
        |n: u32, at: &[(&str, u32)]| at.iter().enumerate().fold(Component::bolt("bolt", n), |c, (i, (node, port))| c.at(i, node, *port));
    let cluster = Cluster::new()
        .node(Node::new("sup1").ports([1, 3, 5, 7, 9]))
        .node(Node::new("sup2").ports([2, 4, 6, 8, 10]))
        .topology(Topology::new("topology1").workers(2).with(bolt(3, &[("sup1", 1), ("sup2", 2)])))
        .topology(Topology::new("topology2").workers(2).with(bolt(2, &[("sup1", 3), ("sup2", 4)])))
        .topology(Topology::new("topology3").workers(2).with(bolt(1, &[("sup1", 5)])));
    let bytes = cluster.pack();
    let s = Snapshot::new(&bytes).unwrap();
    let needs: Vec<bool> = s.topologies().iter().map(|t| t.flags & abi::TOPO_NEEDS_SCHEDULING != 0).collect();
    assert_eq!(needs, [true, false, true], "one waits, one is whole, one has a worker too few");

    let mut model = Model::new(&s);
    let ports = |model: &Model, node: u32, free: bool| -> Vec<u32> {
        model.slots(NodeId(node)).filter(|slot| model.is_free(*slot) == free).map(|slot| s.slots().at(slot).port).collect()
    };
    let all = |model: &Model| [(0, false), (1, false), (0, true), (1, true)].map(|(node, free)| ports(model, node, free));
    let before = all(&model);
    assert_eq!(before, [vec![1, 3, 5], vec![2, 4], vec![7, 9], vec![6, 8, 10]]);
    // What may not be assigned is in `assign_failure_leaves_no_trace`. Free and unassign restore.
    let (waits, slot) = (ExecId(2), SlotId(3));
    assert!(model.would_fit(waits, slot) && !model.would_fit(waits, SlotId(1)), "port 3 is topology2's");
    model.place(waits, slot);
    assert_eq!((ports(&model, 0, true), model.holder(slot).map(|t| t.0)), (vec![9], Some(0)));
    model.free(waits);
    assert_eq!((all(&model), model.slot_of(waits)), (before, None));
}
