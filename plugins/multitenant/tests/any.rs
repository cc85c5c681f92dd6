//! Clusters in any state: what holds whatever the pools are.

use proptest::prelude::*;
use saetta_multitenant::BUILTIN;
use saetta_sdk::abi;
use saetta_sdk::testing::{Cluster, Component, Done, Node, Topology};
use std::collections::BTreeMap;

const CONFIG: &str = r#"{"pools": {"u": 2, "v": 3}}"#;
const OWNERS: [&str; 4] = ["", "u", "v", "w"];
const N_NODES: usize = 6;

/// Workers, machines, owner, priority, asked about, node of each executor (beyond the nodes: none).
type Made = (u32, u32, usize, i32, bool, Vec<usize>);

/// Port i belongs to topology i: no slot is claimed twice.
fn cluster(prefix: &str, slots: &[u32], gone: usize, topologies: &[Made]) -> Cluster {
    let node = |i: usize| format!("{prefix}{i}");
    let mut c = Cluster::new();
    for (i, n) in slots.iter().enumerate() {
        let made = Node::new(&node(i)).slots(*n);
        c = c.node(if i == gone { made.flags(abi::NODE_GONE) } else { made });
    }
    for (t, (workers, machines, owner, priority, asked, at)) in topologies.iter().enumerate() {
        let mut comp = Component::bolt("c", at.len() as u32);
        for (e, n) in at.iter().enumerate().filter(|(_, n)| slots.get(**n).is_some_and(|s| *s > t as u32)) {
            comp = comp.at(e, &node(*n), 6700 + t as u32);
        }
        let made = Topology::new(&format!("t{t}")).workers(*workers).owner(OWNERS[*owner]).priority(*priority).with(comp);
        let made = made.row(|r| r.isolate_machines = *machines);
        c = c.topology(if *asked { made } else { made.not_asked() });
    }
    c
}

fn any() -> impl Strategy<Value = (Vec<u32>, usize, Vec<Made>)> {
    let at = prop::collection::vec(0..N_NODES + 3, 1..8);
    let t = (0u32..6, prop_oneof![2 => Just(0u32), 1 => 1u32..4], 0usize..4, -1i32..2, prop::bool::weighted(0.9), at);
    (prop::collection::vec(1u32..5, N_NODES), 0..N_NODES * 2, prop::collection::vec(t, 1..5))
}

fn check(before: &Cluster, done: &Done, topologies: &[Made]) -> Result<(), TestCaseError> {
    let mut holder: BTreeMap<String, usize> = BTreeMap::new();
    for (t, made) in topologies.iter().enumerate() {
        let name = format!("t{t}");
        for (slot, _) in done.workers(&name) {
            prop_assert_eq!(*holder.entry(slot).or_insert(t), t, "a slot belongs to one topology");
        }
        let (left, n) = (done.unplaced(&name), made.5.len());
        let outcome = match left {
            _ if !made.4 => abi::OUT_KEEP,
            0 => abi::OUT_SCHEDULED,
            left if left == n => abi::OUT_UNSCHEDULABLE,
            _ => abi::OUT_PARTIAL,
        };
        prop_assert_eq!(done.outcome(&name), outcome);
    }
    let again = before.after(done).ask().config(CONFIG).may_preempt().run(BUILTIN).unwrap();
    prop_assert_eq!((again.moved, again.changed), (0, false), "the second round has nothing to do");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_state_settles_in_one_round((slots, gone, topologies) in any()) {
        let c = cluster("n", &slots, gone, &topologies);
        let done = c.ask().config(CONFIG).may_preempt().run(BUILTIN).unwrap();
        check(&c, &done, &topologies)?;
        prop_assert_eq!(&c.clone().row_noise(16).ask().config(CONFIG).may_preempt().run(BUILTIN).unwrap(), &done, "longer rows");
        let renamed = cluster("other", &slots, gone, &topologies).ask().config(CONFIG).may_preempt().run(BUILTIN).unwrap();
        for t in 0..topologies.len() {
            let plain = |d: &Done| d.workers(&format!("t{t}")).into_iter().map(|(s, n)| (s.replace("other", "n"), n.len())).collect::<Vec<_>>();
            prop_assert_eq!(plain(&done), plain(&renamed), "names do not matter");
        }
    }

    #[test]
    fn limits_hold_in_any_state((slots, gone, topologies) in any(), max_moves in 0u32..4) {
        let c = cluster("n", &slots, gone, &topologies);
        let done = c.ask().config(CONFIG).max_moves(max_moves).run(BUILTIN).unwrap();
        prop_assert!(done.moved <= max_moves as usize, "{} moved of {}", done.moved, max_moves);
        let before = |t: &Made, i: usize| t.5.iter().filter(|n| slots.get(**n).is_some_and(|s| *s > i as u32)).count();
        for (i, t) in topologies.iter().enumerate() {
            let placed = t.5.len() - done.unplaced(&format!("t{i}"));
            prop_assert!(placed >= before(t, i), "without preemption nobody loses a slot");
        }
    }
}

#[test]
fn clusters_with_nodes_in_any_state_keep_the_rules_of_the_host() {
    // Their topologies have no owners: all is the default pool.
    for seed in 0..1000 {
        let checked = std::panic::catch_unwind(|| Cluster::random(seed).check(BUILTIN, CONFIG));
        assert!(checked.is_ok(), "seed {seed}");
    }
}
