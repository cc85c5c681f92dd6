//! The validator against plans nobody should write.

mod common;

use common::*;
use proptest::prelude::*;
use saetta_sched_host::pack::{Clock, Packed, Places, pack};
use saetta_sched_host::validate::{Refusal, Rules};
use saetta_sched_host::{Answer, Facts};
use saetta_sdk::abi;
use saetta_sdk::snapshot::Snapshot;
use std::collections::BTreeMap;

// The slot table: a node without a known address sorts first.
const GONE: u32 = 0;
const A1: u32 = 1;
const B1: u32 = 3;
const B2: u32 = 4;

/// Three topologies on four slots; the first runs in both of node a (its two workers), the second nowhere.
/// The node "gone" is known from the third one's assignment only: one of its executors runs there.
fn packed() -> Packed {
    let mut world = World::new(&[("a", &[1, 2]), ("b", &[1, 2])]);
    for (id, workers) in [("t0", 2), ("t1", 1), ("t2", 2)] {
        world.topology(id, workers, &[("spout", 3, None)]);
    }
    let slot = |node: &str, port| saetta_model::cluster::SlotId { node: name(node), port };
    world.round(1, |input| {
        let ids: Vec<_> = input.topologies[0].layout.executors().map(|(_, e)| e).collect();
        let t0: Places = ids.iter().enumerate().map(|(i, e)| (*e, slot("a", 1 + (i % 2) as u16))).collect();
        let t2: Places = [(input.topologies[2].layout.executors().next().unwrap().1, slot("gone", 9))].into();
        pack(input, &[t0, Places::new(), t2], &[true, true, true], &Facts::default(), Clock::default())
    })
}

/// Verdicts as they are told.
fn validate(packed: &Packed, answer: &Answer) -> Vec<Result<(), String>> {
    let snapshot = Snapshot::new(&packed.bytes).unwrap();
    let verdicts = saetta_sched_host::validate::validate(&snapshot, answer, &Rules::default());
    verdicts.into_iter().map(|v| v.map_err(|why: Refusal| why.to_string())).collect()
}

/// An answer that says nothing of cores.
fn check_slots(packed: &Packed, slots: &[u32], outcome: &[u32]) -> Vec<Result<(), String>> {
    let core_of_exec = vec![abi::NONE; slots.len()];
    validate(packed, &Answer { slot_of_exec: slots.to_vec(), outcome: outcome.to_vec(), core_of_exec })
}

/// Executors: t0 has 5 (2 ackers, 3 spouts), t1 has 4, t2 has 5.
fn check(change: impl FnOnce(&mut [u32], &mut [u32]), expected: [&str; 3]) {
    let packed = packed();
    let order: Vec<String> = packed.slots.iter().map(|s| format!("{}:{}", s.id.node, s.id.port)).collect();
    assert_eq!(order, ["gone:9", "a:1", "a:2", "b:1", "b:2"]);
    let (mut slots, mut outcome) = (packed.slot_of_exec.clone(), vec![abi::OUT_PARTIAL; 3]);
    change(&mut slots, &mut outcome);
    let verdicts = check_slots(&packed, &slots, &outcome);
    for (verdict, expected) in verdicts.iter().zip(expected) {
        match verdict {
            Ok(()) => assert_eq!(expected, "", "{verdicts:?}"),
            Err(why) => assert!(!expected.is_empty() && why.starts_with(expected), "{verdicts:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn doing_nothing_is_always_accepted() {
    check(|_, _| {}, ["", "", ""]);
    check(|_, outcome| outcome.fill(abi::OUT_KEEP), ["", "", ""]);
}

#[test]
fn a_core_is_one_of_the_slots() {
    let packed = packed();
    // Each node has core 0: row 0 is node a's, row 1 node b's. The first executor runs in a:1.
    let with_core = |core: u32, outcome: u32| {
        let mut core_of_exec = vec![abi::NONE; packed.executors.len()];
        core_of_exec[0] = core;
        let answer = Answer { slot_of_exec: packed.slot_of_exec.clone(), outcome: vec![outcome; 3], core_of_exec };
        validate(&packed, &answer).remove(0)
    };
    assert_eq!(with_core(0, abi::OUT_PARTIAL), Ok(()));
    for core in [1, 2, abi::NONE - 1] {
        assert!(with_core(core, abi::OUT_PARTIAL).unwrap_err().starts_with("V13: "), "{core}");
        assert_eq!(with_core(core, abi::OUT_KEEP), Ok(()), "not read");
    }
}

#[test]
fn a_slot_that_does_not_exist() {
    check(|slots, _| slots[5] = 5, ["", "V01", ""]);
    check(|slots, _| slots[5] = abi::NONE - 1, ["", "V01", ""]);
}

#[test]
fn a_plan_of_another_length() {
    let packed = packed();
    assert!(check_slots(&packed, &[], &[0; 3]).iter().all(|v| v.as_ref().is_err_and(|why| why.starts_with("V01"))));
    assert!(check_slots(&packed, &packed.slot_of_exec, &[]).iter().all(Result::is_err));
}

#[test]
fn a_slot_of_a_lost_node_takes_nothing_new_and_keeps_what_it_has() {
    check(|slots, _| slots[10] = GONE, ["", "", "V02"]);
    check(|slots, _| slots[10] = B1, ["", "", ""]);
}

#[test]
fn a_slot_for_one_topology_only() {
    // Two newcomers meet: neither has a right to it.
    check(|slots, _| (slots[5], slots[10]) = (B1, B1), ["", "V03", "V03"]);
    // The holder keeps it.
    check(|slots, _| slots[5] = A1, ["", "V04", ""]);
}

#[test]
fn a_slot_given_up_may_be_taken_and_a_refused_giver_takes_the_taker_with_it() {
    let swap = |slots: &mut [u32]| {
        for slot in slots[..5].iter_mut().filter(|s| **s == A1) {
            *slot = B1;
        }
        slots[5] = A1;
    };
    check(|slots, _| swap(slots), ["", "", ""]);
    // t0's own part is refused (one executor in slot 77), so it stays where t1 wanted to go; t2 is not touched.
    check(
        |slots, _| {
            swap(slots);
            slots[4] = 77;
        },
        ["V01", "V04", ""],
    );
}

#[test]
fn no_more_slots_than_workers_wanted() {
    check(|slots, _| (slots[5], slots[6]) = (B1, B2), ["", "V08", ""]);
}

#[test]
fn an_outcome_that_does_not_match_the_facts() {
    check(|slots, outcome| (slots[5], outcome[1]) = (B1, abi::OUT_KEEP), ["", "V11", ""]);
    check(|slots, outcome| (slots[5], outcome[1]) = (B1, abi::OUT_SCHEDULED), ["", "V11", ""]);
    check(|slots, outcome| (slots[5], outcome[1]) = (B1, 999), ["", "", ""]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_accepted_is_a_state_the_cluster_can_be_in(
        values in prop::collection::vec(prop_oneof![8 => 0u32..5, 2 => Just(abi::NONE), 1 => any::<u32>()], 14),
        changed in prop::collection::vec(prop::bool::weighted(0.3), 14),
        outcome in prop::collection::vec(0u32..8, 3)
    ) {
        let packed = packed();
        let mut slots = packed.slot_of_exec.clone();
        prop_assert_eq!(slots.len(), 14);
        for (i, value) in values.iter().enumerate().filter(|(i, _)| changed[*i]) {
            slots[i] = *value;
        }
        let verdicts = check_slots(&packed, &slots, &outcome);
        let mut holder: BTreeMap<u32, usize> = BTreeMap::new();
        for (t, topology) in packed.topologies.iter().enumerate() {
            let from = if verdicts[t].is_ok() { &slots } else { &packed.slot_of_exec };
            for slot in topology.executors.clone().map(|e| from[e]).filter(|s| *s != abi::NONE) {
                prop_assert!((slot as usize) < packed.slots.len());
                prop_assert_eq!(*holder.entry(slot).or_insert(t), t, "one topology in a slot");
            }
        }
    }
}
