//! The arithmetic of the model over all small cases: tasks to executors, cores to slots, executors to cores, moves.

use proptest::prelude::*;
use saetta_model::assignment::{Assignment, ExecutorPlace, Move, Placement};
use saetta_model::cluster::{SlotId, divide_cores};
use saetta_model::config::{Config, Owner, Source};
use saetta_model::cores::{Hints, Reason, plan};
use saetta_model::name::Name;
use saetta_model::parallelism::{ExecutorId, Layout, split_tasks};
use saetta_model::topology::{ComponentKind, ComponentSpec, Format, Grouping, InputSpec, Resources, StreamSpec, TopologySpec};
use std::collections::{BTreeMap, BTreeSet};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A chain: component i reads from i - 1. (executors, tasks beyond executors, cpu in whole cores)
fn chain(components: &[(u32, u32, i64)]) -> TopologySpec {
    let one = |(i, (executors, more, cpu)): (usize, &(u32, u32, i64))| ComponentSpec {
        id: name(&format!("c{i:02}")),
        kind: if i == 0 { ComponentKind::Spout } else { ComponentKind::Bolt },
        executors: *executors,
        tasks: Some(executors + more),
        resources: Resources { cpu_milli_pct: cpu * 100_000, ..Resources::default() },
        outputs: if i + 1 == components.len() { vec![] } else { vec![StreamSpec { name: name("default"), schema: 1, fields: vec![] }] },
        inputs: (i > 0)
            .then(|| InputSpec { from: name(&format!("c{:02}", i - 1)), stream: name("default"), grouping: Grouping::Shuffle })
            .into_iter()
            .collect(),
        config: BTreeMap::new(),
        tracked: false,
    };
    let format = Format { archive: "rkyv 0.8".into(), endian: "little".into(), unaligned: true, pointer_bits: 32 };
    TopologySpec { saetta: "0.1.0".into(), format, components: components.iter().enumerate().map(one).collect() }
}

fn config(workers: u32, ackers: Option<u32>, cap: Option<u32>) -> Config {
    let mut config = Config::new(Owner::Topology);
    let mut set = |key: &str, value: u32| config.set(key, &value.to_string(), Source::Set).unwrap();
    set("topology.workers", workers);
    ackers.into_iter().for_each(|n| set("topology.acker.executors", n));
    cap.into_iter().for_each(|n| set("topology.max.task.parallelism", n));
    config
}

fn components() -> impl Strategy<Value = Vec<(u32, u32, i64)>> {
    prop::collection::vec((1u32..9, 0u32..9, 0i64..3), 1..6)
}

fn places() -> impl Strategy<Value = BTreeMap<u32, u16>> {
    prop::collection::btree_map(1u32..12, 1u16..4, 0..12)
}

fn assignment(places: &BTreeMap<u32, u16>) -> Assignment {
    let mut workers: BTreeMap<u16, Vec<ExecutorPlace>> = BTreeMap::new();
    for (task, port) in places {
        workers.entry(*port).or_default().push(ExecutorPlace {
            id: ExecutorId { first: *task, last: *task },
            core: 0,
            started_ms: 0,
            planned: false,
        });
    }
    let worker = |(port, executors): (u16, Vec<ExecutorPlace>)| Placement {
        slot: SlotId { node: name("n"), port },
        id: 1,
        index: 0,
        cores: vec![0],
        share: 1,
        executors,
    };
    Assignment { workers: workers.into_iter().map(worker).collect(), ..Assignment::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tasks_split_into_contiguous_runs_whose_sizes_differ_by_at_most_one(first in 1u32..1000, n_executors in 1u32..50, more in 0u32..200) {
        let n_tasks = n_executors + more;
        let executors = split_tasks(first, n_tasks, n_executors);
        prop_assert_eq!(executors.len() as u32, n_executors);
        let tasks: Vec<u32> = executors.iter().flat_map(|e| e.tasks()).collect();
        prop_assert_eq!(tasks, (first..first + n_tasks).collect::<Vec<_>>());
        let sizes: Vec<u32> = executors.iter().map(|e| e.n_tasks()).collect();
        prop_assert!(sizes.is_sorted_by(|a, b| a >= b), "the larger ones first: {:?}", sizes);
        prop_assert!(sizes[0] - sizes[sizes.len() - 1] <= 1);
        prop_assert_eq!(sizes.iter().filter(|n| **n > n_tasks / n_executors).count() as u32, n_tasks % n_executors);
    }

    #[test]
    fn a_layout_numbers_all_tasks_from_one_without_a_gap(
        components in components(), workers in 1u32..6, ackers in prop::option::of(0u32..5), cap in prop::option::of(1u32..12)
    ) {
        let layout = Layout::new(&chain(&components), &config(workers, ackers, cap)).unwrap();
        let tasks: Vec<u32> = layout.executors().flat_map(|(_, e)| e.tasks()).collect();
        prop_assert_eq!(&tasks, &(1..=layout.n_tasks()).collect::<Vec<_>>());
        prop_assert_eq!(layout.executors().count() as u32, layout.n_executors());
        prop_assert!(layout.components.is_sorted_by(|a, b| a.id < b.id));
        let limit = |n: u32| cap.map_or(n, |m| n.min(m));
        for (i, (executors, more, _)) in components.iter().enumerate() {
            let c = layout.component(&format!("c{i:02}")).unwrap();
            prop_assert_eq!((c.n_tasks, c.executors.len() as u32), (limit(executors + more), limit(*executors)));
        }
        let n_ackers = ackers.unwrap_or(workers);
        prop_assert_eq!(layout.component("__acker").map_or(0, |c| c.n_tasks), n_ackers);
        let capped = components.iter().filter(|(executors, more, _)| limit(executors + more) < executors + more).count();
        prop_assert_eq!(layout.notes.len(), capped);
        for (i, c) in layout.components.iter().enumerate() {
            prop_assert!(c.executors.iter().flat_map(|e| e.tasks()).all(|t| layout.component_of(t) == Some(&layout.components[i])));
        }
    }

    #[test]
    fn the_limits_refuse_exactly_what_is_above_them(components in components(), workers in 1u32..6, slots in 1u32..6, executors in 1u32..40) {
        let layout = Layout::new(&chain(&components), &config(workers, None, None)).unwrap();
        let refused = layout.check_limits(Some(slots), Some(executors)).is_err();
        prop_assert_eq!(refused, workers > slots || layout.n_executors() > executors);
    }

    #[test]
    fn cores_are_divided_without_loss_and_share_counts_who_sits_on_them(n_slots in 1u16..12, n_cores in 1u32..24) {
        let ports: Vec<u16> = (6700..6700 + n_slots).collect();
        let cores: Vec<u32> = (0..n_cores).map(|c| c * 2).collect();
        let slots = divide_cores(&ports, &cores);
        prop_assert_eq!(slots.iter().map(|s| s.port).collect::<Vec<_>>(), ports);
        prop_assert!(slots.iter().all(|s| !s.cores.is_empty() && s.cores.is_sorted()));
        let granted: Vec<u32> = slots.iter().flat_map(|s| s.cores.iter().copied()).collect();
        prop_assert_eq!(granted.iter().copied().collect::<BTreeSet<_>>(), cores.iter().copied().collect::<BTreeSet<_>>(), "no core is idle");
        for slot in &slots {
            let sharing = slots.iter().filter(|s| s.cores.iter().any(|c| slot.cores.contains(c))).count() as u32;
            prop_assert_eq!(slot.share, sharing);
        }
        let sizes = slots.iter().map(|s| s.cores.len());
        prop_assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
    }

    #[test]
    fn a_diff_applied_to_the_old_places_gives_the_new_ones(old in places(), new in places()) {
        let (before, after) = (assignment(&old), assignment(&new));
        let moves = before.diff(&after);
        prop_assert!(moves.is_sorted_by(|a, b| a.executor < b.executor));
        let mut slots = before.slots();
        for Move { executor, from, to } in moves.clone() {
            prop_assert!(from != to);
            prop_assert_eq!(slots.remove(&executor), from);
            slots.extend(to.map(|to| (executor, to)));
        }
        prop_assert_eq!(slots, after.slots());
        prop_assert_eq!(before.same_places(&after), moves.is_empty());
        prop_assert_eq!(moves.is_empty(), old == new);
    }

    #[test]
    fn every_executor_gets_one_of_the_workers_cores_and_a_wide_component_all_of_them(
        components in components(), n_cores in 1u32..6, every in 1usize..4, ackers in 0u32..3
    ) {
        let spec = chain(&components);
        let layout = Layout::new(&spec, &config(1, Some(ackers), None)).unwrap();
        let mine: Vec<ExecutorId> = layout.executors().map(|(_, e)| e).step_by(every).collect();
        let cores: Vec<u32> = (10..10 + n_cores).collect();
        let placed = plan(&spec, &layout, &mine, &cores, &Hints::NONE);
        prop_assert_eq!(placed.iter().map(|p| p.id).collect::<Vec<_>>(), mine);
        prop_assert!(placed.iter().all(|p| cores.contains(&p.core) && p.reason != Reason::ByHand));
        // A component with as many executors here as cores, or more, is on all of them.
        for c in layout.components.iter().filter(|c| c.kind != ComponentKind::Acker) {
            let on: Vec<u32> = placed.iter().filter(|p| c.executors.contains(&p.id)).map(|p| p.core).collect();
            if on.len() >= cores.len() {
                prop_assert_eq!(on.iter().collect::<BTreeSet<_>>().len(), cores.len());
            }
        }
    }

    #[test]
    fn a_core_chosen_by_hand_wins(components in components(), n_cores in 1u32..6, hand in 0u32..6) {
        let spec = chain(&components);
        let layout = Layout::new(&spec, &config(1, None, None)).unwrap();
        let all: Vec<ExecutorId> = layout.executors().map(|(_, e)| e).collect();
        let cores: Vec<u32> = (0..n_cores).collect();
        let core = hand % n_cores;
        let placed = plan(&spec, &layout, &all, &cores, &Hints { by_hand: &|id| (id == "c00").then_some(core), ..Hints::NONE });
        let spout = layout.component("c00").unwrap();
        for p in placed {
            prop_assert_eq!(p.reason == Reason::ByHand, spout.executors.contains(&p.id));
            prop_assert!(p.reason != Reason::ByHand || p.core == core);
        }
    }
}

#[test]
fn ten_tasks_in_four_executors() {
    let text: String = split_tasks(1, 10, 4).iter().map(ToString::to_string).collect();
    assert_eq!(text, "[1-3][4-6][7-8][9-10]");
}

#[test]
fn neighbours_share_a_core() {
    // A chain of four with equal weights on two cores is cut once, in the middle.
    let spec = chain(&[(1, 0, 1), (1, 0, 1), (1, 0, 1), (1, 0, 1)]);
    let layout = Layout::new(&spec, &config(1, Some(0), None)).unwrap();
    let all: Vec<ExecutorId> = layout.executors().map(|(_, e)| e).collect();
    let cores: Vec<u32> = plan(&spec, &layout, &all, &[4, 7], &Hints::NONE).iter().map(|p| p.core).collect();
    assert_eq!(cores, [4, 4, 7, 7]);
}
