//! The shipped plugin as a real `.so` in a real helper process.

mod common;

use common::*;
use saetta_sched_host::pack::{Clock, Places, pack};
use saetta_sched_host::{Facts, How, Scheduler, SchedulerOptions};
use saetta_sdk::abi;
use saetta_sdk::call::{Instance, PlanArrays, RoundArgs, Services};
use std::time::Instant;

#[test]
fn helper_and_plugin_are_found_beside_the_executable_also_from_a_test() {
    let found = SchedulerOptions::beside_exe().unwrap();
    assert_eq!(found.helper, std::path::Path::new(env!("CARGO_BIN_EXE_saetta-sched-host")));
    assert!(found.plugin_path().ends_with("libsaetta_even.so") && found.plugin_path().is_file());
}

#[test]
fn the_shipped_even_deals_the_worked_example_and_then_moves_nothing() {
    let mut world = worked_example();
    let scheduler = Scheduler::new(options("even", &shipped_dir()));
    let first = world.round(1, |input| scheduler.round(input));
    let (id, plan) = &first.topologies[0];
    assert_eq!((id.as_str(), &plan.how, plan.unplaced), ("example", &How::Plugin("even".into()), 0));
    let expected = [("s1:6700", "[1][3][5-6][9][11][13]"), ("s2:6700", "[2][4][7-8][10][12][14]")];
    assert_eq!(by_slot(plan), expected.map(|(slot, text)| (slot.to_owned(), text.to_owned())));

    world.apply(0, plan);
    assert_eq!(world.round(2, |input| scheduler.round(input)), first);
}

#[test]
fn the_plugin_in_its_process_answers_as_the_one_linked_in() {
    let mut world = World::new(&[("a", &[1, 2, 3]), ("b", &[1, 2]), ("c", &[1])]);
    world.topology("one", 3, &[("spout", 4, None), ("bolt", 9, Some(20))]);
    world.topology("two", 4, &[("spout", 3, None)]);
    let scheduler = Scheduler::new(options("even", &shipped_dir()));
    let outcome = world.round(1, |input| {
        let places = vec![Places::new(); 2];
        let packed = pack(input, &places, &[true, true], &Facts::default(), Clock::default());
        let (mut slots, mut outcome) = (packed.slot_of_exec.clone(), vec![abi::OUT_KEEP; 2]);
        let mut even = Instance::builtin(saetta_even::BUILTIN, "{}", Services::new(|_, _| {})).unwrap();
        let args = RoundArgs { reason: 0, round_id: 1, seed: 1, max_moves: abi::NONE, flags: 0, budget_ns: 1 << 40 };
        even.schedule(args, &packed.bytes, PlanArrays { slot_of_exec: &mut slots, outcome: &mut outcome, core_of_exec: None }).unwrap();
        let in_process = scheduler.round(input);
        for (t, (_, plan)) in packed.topologies.iter().zip(&in_process.topologies) {
            let linked: Places = t.executors.clone().map(|e| (packed.executors[e], packed.slots[slots[e] as usize].id.clone())).collect();
            assert_eq!(plan.slots, linked);
        }
        in_process
    });
    assert!(outcome.topologies.iter().all(|(_, plan)| plan.how == How::Plugin("even".into()) && plan.unplaced == 0));
}

#[test]
fn a_lost_node_moves_its_executors_and_a_worker_that_still_answers_stays() {
    let mut world = World::new(&[("a", &[1]), ("b", &[1]), ("c", &[1])]);
    world.topology("t", 2, &[("spout", 3, None), ("bolt", 3, None)]);
    let scheduler = Scheduler::new(options("even", &shipped_dir()));
    let first = world.round(1, |input| scheduler.round(input)).topologies.remove(0).1;
    assert_eq!(by_slot(&first).iter().map(|s| s.0.as_str()).collect::<Vec<_>>(), ["a:1", "b:1"]);

    // b's supervisor is gone and nimbus still keeps its worker: nothing changes.
    world.apply(0, &first);
    world.supervisors.remove("b");
    assert_eq!(world.round(2, |input| scheduler.round(input)).topologies[0].1, first);

    // Its worker is lost too: those executors go to c, nothing else moves.
    world.topologies[0].2.workers.retain(|w| w.slot.node.as_str() != "b");
    let second = world.round(3, |input| scheduler.round(input)).topologies.remove(0).1;
    assert_eq!(by_slot(&second)[0], by_slot(&first)[0]);
    assert_eq!(by_slot(&second)[1], ("c:1".to_owned(), by_slot(&first)[1].1.clone()));
}

/// Prints what a round costs; asserts only that it comes out the same every time.
#[test]
fn a_round_over_500_nodes_and_20_000_executors_is_repeatable() {
    let ids: Vec<String> = (0..500).map(|i| format!("n{i:03}")).collect();
    let ports: Vec<u16> = (6700..6708).collect();
    let nodes: Vec<(&str, &[u16])> = ids.iter().map(|id| (id.as_str(), ports.as_slice())).collect();
    let mut world = World::new(&nodes);
    for t in 0..100 {
        world.topology(&format!("t{t:02}"), 20, &[("spout", 60, None), ("bolt", 120, None)]);
    }
    let scheduler = Scheduler::new(options("even", &shipped_dir()));
    let first = world.round(1, |input| scheduler.round(input));
    assert!(first.topologies.iter().all(|(_, plan)| plan.unplaced == 0 && matches!(plan.how, How::Plugin(_))));
    for (i, (_, plan)) in first.topologies.iter().enumerate() {
        world.apply(i, plan);
    }
    let mut took: Vec<_> = (0..10)
        .map(|i| {
            let started = Instant::now();
            let again = world.round(2 + i, |input| scheduler.round(input));
            let took = started.elapsed();
            assert_eq!(again, first);
            took
        })
        .collect();
    took.sort();
    println!("round over 500 nodes x 8 slots, 20,000 executors, this build: median {:?}, worst {:?} of {}", took[5], took[9], took.len());
}
