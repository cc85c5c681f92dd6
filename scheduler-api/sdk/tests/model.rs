//! The accounting against the host's arithmetic: after any steps it says what `usage` says of the same placement, and back again.

use proptest::prelude::*;
use saetta_sdk::model::Model;
use saetta_sdk::snapshot::Snapshot;
use saetta_sdk::testing::{Cluster, Component, Topology};
use saetta_sdk::{ExecId, NodeId, SlotId, usage};

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

#[test]
#[should_panic(expected = "holds topology")]
fn a_slot_of_another_topology_takes_nobody() {
    let mut at = vec![None; 12];
    at[0] = Some(0);
    let bytes = cluster(&at).pack();
    Model::new(&Snapshot::new(&bytes).unwrap()).place(ExecId(6), SlotId(0));
}
