//! The core planner: every executor once, by hand respected, the same in every process, no cut better than the one taken.

use proptest::prelude::*;
use saetta_model::config::{Config, Owner, Source};
use saetta_model::cores::{Hints, Placed, Reason, plan};
use saetta_model::loops::{LoopRule, Mode};
use saetta_model::name::Name;
use saetta_model::parallelism::{ExecutorId, Layout};
use saetta_model::topology::{ComponentKind, ComponentSpec, Format, Grouping, InputSpec, Resources, StreamSpec, TopologySpec};
use std::collections::{BTreeMap, BTreeSet};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Components by (id, executors, what it reads from); one that reads nothing is a spout.
fn topology(components: &[(&str, u32, &[&str])]) -> TopologySpec {
    let stream = StreamSpec { name: name("out"), schema: 1, fields: vec![] };
    let input = |from: &&str| InputSpec { from: name(from), stream: name("out"), grouping: Grouping::Shuffle };
    let mut components: Vec<ComponentSpec> = components
        .iter()
        .map(|(id, executors, inputs)| ComponentSpec {
            id: name(id),
            kind: if inputs.is_empty() { ComponentKind::Spout } else { ComponentKind::Bolt },
            executors: *executors,
            tasks: None,
            resources: Resources::default(),
            outputs: vec![stream.clone()],
            inputs: inputs.iter().map(input).collect(),
            config: BTreeMap::new(),
            tracked: false,
        })
        .collect();
    components.sort_by(|a, b| a.id.cmp(&b.id));
    let format = Format { archive: "rkyv 0.8".into(), endian: "little".into(), unaligned: true, pointer_bits: 32 };
    TopologySpec { saetta: "0.1.0".into(), format, components }
}

fn layout(spec: &TopologySpec, ackers: u32) -> Layout {
    let mut config = Config::new(Owner::Topology);
    config.set("topology.acker.executors", &ackers.to_string(), Source::Set).unwrap();
    Layout::new(spec, &config).unwrap()
}

fn all(layout: &Layout) -> Vec<ExecutorId> {
    layout.executors().map(|(_, e)| e).collect()
}

/// `component core reason`, one line each.
fn told(spec: &TopologySpec, ackers: u32, cores: &[u32], hints: &Hints<'_>) -> Vec<String> {
    let layout = layout(spec, ackers);
    let placed = plan(spec, &layout, &all(&layout), cores, hints);
    let of = |p: &Placed| layout.component_of(p.id.first).unwrap().id.clone();
    placed.iter().map(|p| format!("{} {} {}", of(p), p.core, p.reason)).collect()
}

#[test]
fn serialisations_are_balanced_not_hops() {
    let spec = topology(&[("const", 1, &[]), ("ident", 1, &["const"]), ("null", 1, &["ident"])]);
    assert_eq!(
        told(&spec, 1, &[4, 7], &Hints::NONE),
        [
            "__acker 4 beside spout `const`, which it serves",
            "const 4 load even: this core has 40 % of it",
            "ident 7 load even: this core has 60 % of it",
            "null 7 beside its neighbour `ident`",
        ]
    );
}

#[test]
fn what_was_measured_counts_more_than_what_is_usual() {
    let spec = topology(&[("a", 1, &[]), ("b", 1, &["a"]), ("c", 1, &["b"]), ("d", 1, &["c"])]);
    let busy = |id: &str| Some(if id == "d" { 0.9 } else { 0.2 });
    let told = told(&spec, 0, &[0, 1], &Hints { busy: &busy, ..Hints::NONE });
    assert_eq!(told.iter().map(|t| &t[..3]).collect::<Vec<_>>(), ["a 0", "b 0", "c 0", "d 1"]);
    assert_eq!(told[3], "d 1 load even: this core has 60 % of it");
}

#[test]
fn chains_stay_together_where_two_branches_leave_a_spout() {
    let spec = topology(&[("s", 1, &[]), ("l1", 1, &["s"]), ("r1", 1, &["s"]), ("l2", 1, &["l1"]), ("r2", 1, &["r1"])]);
    let told = told(&spec, 0, &[0, 1], &Hints { busy: &|_| Some(0.2), ..Hints::NONE });
    let core = |id: &str| told.iter().find(|t| t.starts_with(id)).unwrap().split(' ').nth(1).unwrap().to_owned();
    assert_eq!((core("l1"), core("r1")), (core("l2"), core("r2")));
    assert_eq!(core("s"), core("l1"));
    assert_ne!(core("s"), core("r1"));
}

#[test]
fn who_reads_from_a_component_put_by_hand_sits_beside_it_where_the_load_allows() {
    let spec = topology(&[("a", 1, &[]), ("b", 1, &["a"]), ("c", 1, &["b"])]);
    let by_hand = |id: &str| (id == "a").then_some(1);
    assert_eq!(
        told(&spec, 0, &[0, 1], &Hints { by_hand: &by_hand, ..Hints::NONE }),
        ["a 1 by hand: executor.core", "b 0 load even: this core has 60 % of it", "c 0 beside its neighbour `b`"]
    );
    let by_hand = |id: &str| (id == "c").then_some(0);
    assert_eq!(
        told(&spec, 0, &[0, 1], &Hints { by_hand: &by_hand, ..Hints::NONE }),
        ["a 1 load even: this core has 40 % of it", "b 0 beside its neighbour `c`", "c 0 by hand: executor.core"]
    );
}

#[test]
fn ackers_sit_with_the_spouts_that_track_and_are_dealt_over_their_cores() {
    let mut spec = topology(&[("s", 3, &[]), ("t", 1, &[]), ("b", 1, &["s", "t"])]);
    let told = |spec: &TopologySpec, ackers| {
        // Only the layout refuses tracked spouts where there is no acking.
        let plain = TopologySpec {
            components: spec.components.iter().map(|c| ComponentSpec { tracked: false, ..c.clone() }).collect(),
            ..spec.clone()
        };
        let layout = layout(&plain, ackers);
        let placed = plan(spec, &layout, &all(&layout), &[0, 1, 2], &Hints::NONE);
        let on = |id: &str| -> Vec<u32> {
            let executors = &layout.component(id).unwrap().executors;
            placed.iter().filter(|p| executors.contains(&p.id)).map(|p| p.core).collect()
        };
        (on("__acker"), on("t"))
    };
    assert_eq!(told(&spec, 2).0, [0, 1]);
    assert_eq!(told(&spec, 4).0, [0, 1, 2, 0]);
    spec.components.iter_mut().for_each(|c| c.tracked = c.id.as_str() == "t");
    let (ackers, t) = told(&spec, 2);
    assert_eq!(ackers, [t[0], t[0]]);
}

#[test]
fn components_that_block_are_dealt_over_the_cores_and_leave_the_balance_alone() {
    let spec = topology(&[("a", 1, &[]), ("b", 1, &["a"]), ("db", 3, &["b"])]);
    assert_eq!(
        told(&spec, 0, &[0, 1], &Hints { blocks: &|id| id == "db", ..Hints::NONE }),
        [
            "a 0 load even: this core has 50 % of it",
            "b 1 load even: this core has 50 % of it",
            "db 0 blocks: a thread of its own",
            "db 1 blocks: a thread of its own",
            "db 0 blocks: a thread of its own",
        ]
    );
}

#[test]
fn a_long_line_is_cut_between_groups_and_a_cycle_is_entered_somewhere() {
    let ids: Vec<String> = (0..2000).map(|i| format!("c{i:04}")).collect();
    let from: Vec<Vec<&str>> = (0..ids.len()).map(|i| if i == 0 { vec![] } else { vec![ids[i - 1].as_str()] }).collect();
    let chain: Vec<(&str, u32, &[&str])> = ids.iter().zip(&from).map(|(id, from)| (id.as_str(), 1, from.as_slice())).collect();
    let spec = topology(&chain);
    let layout_ = layout(&spec, 0);
    let placed = plan(&spec, &layout_, &all(&layout_), &[0, 1, 2, 3], &Hints::NONE);
    for core in 0..4 {
        let n = placed.iter().filter(|p| p.core == core).count();
        assert!((480..=520).contains(&n), "{n} on core {core}");
    }
    let cycle = topology(&[("s", 1, &[]), ("a", 1, &["s", "b"]), ("b", 1, &["a"])]);
    assert_eq!(told(&cycle, 0, &[0], &Hints::NONE).len(), 3);
}

/// Up to five components; each reads from some before it.
fn components() -> impl Strategy<Value = Vec<(u32, Vec<bool>)>> {
    prop::collection::vec((1u32..5, prop::collection::vec(any::<bool>(), 5)), 1..6)
}

fn spec_of(components: &[(u32, Vec<bool>)]) -> TopologySpec {
    const IDS: [&str; 5] = ["c0", "c1", "c2", "c3", "c4"];
    let inputs: Vec<Vec<&str>> =
        components.iter().enumerate().map(|(i, (_, reads))| (0..i).filter(|from| reads[*from]).map(|from| IDS[from]).collect()).collect();
    topology(&components.iter().zip(&inputs).enumerate().map(|(i, ((n, _), from))| (IDS[i], *n, &from[..])).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_executor_is_placed_once_by_hand_is_respected_and_the_same_question_has_the_same_answer(
        components in components(), n_cores in 1u32..6, ackers in 0u32..4, every in 1usize..3,
        hand in prop::collection::vec(prop::option::of(0u32..6), 5), blocks in prop::collection::vec(any::<bool>(), 5),
        busy in prop::collection::vec(prop::option::of(-1.0f64..2.0), 5)
    ) {
        let spec = spec_of(&components);
        let layout = layout(&spec, ackers);
        let mine: Vec<ExecutorId> = all(&layout).into_iter().step_by(every).collect();
        let cores: Vec<u32> = (10..10 + n_cores).collect();
        let number = |id: &str| id[1..].parse::<usize>().unwrap();
        let by_hand = |id: &str| hand[number(id)].map(|core| 10 + core % n_cores);
        let blocks_ = |id: &str| blocks[number(id)];
        let busy_ = |id: &str| busy[number(id)];
        let hints = Hints { by_hand: &by_hand, busy: &busy_, blocks: &blocks_, ..Hints::NONE };
        let placed = plan(&spec, &layout, &mine, &cores, &hints);
        prop_assert_eq!(placed.iter().map(|p| p.id).collect::<Vec<_>>(), mine.clone());
        prop_assert_eq!(&placed, &plan(&spec, &layout, &mine, &cores, &hints));
        for p in &placed {
            prop_assert!(cores.contains(&p.core) && !p.reason.to_string().contains('\n'));
            let component = &layout.component_of(p.id.first).unwrap().id;
            let hand = if component.is_system() { None } else { by_hand(component.as_str()) };
            prop_assert_eq!(p.reason == Reason::ByHand, hand.is_some());
            prop_assert!(hand.is_none_or(|core| core == p.core));
        }
    }

    #[test]
    fn no_cut_of_a_chain_has_a_fullest_core_much_less_full(busy in prop::collection::vec(1u32..100, 1..8), n_cores in 2usize..5) {
        const IDS: [&str; 8] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];
        let from: Vec<Vec<&str>> = (0..busy.len()).map(|i| if i == 0 { vec![] } else { vec![IDS[i - 1]] }).collect();
        let spec = topology(&from.iter().enumerate().map(|(i, from)| (IDS[i], 1, &from[..])).collect::<Vec<_>>());
        let layout = layout(&spec, 0);
        let cores: Vec<u32> = (0..n_cores as u32).collect();
        let share = |id: &str| Some(f64::from(busy[id[1..].parse::<usize>().unwrap()]) / 1000.0);
        let placed = plan(&spec, &layout, &all(&layout), &cores, &Hints { busy: &share, ..Hints::NONE });
        let fullest = |core_of: &dyn Fn(usize) -> usize| {
            let mut load = vec![0; n_cores];
            busy.iter().enumerate().for_each(|(i, b)| load[core_of(i)] += b);
            load.into_iter().max().unwrap()
        };
        let taken = fullest(&|i| placed[i].core as usize);
        // Every way to cut: the core of each executor, not falling.
        let mut cut = vec![0usize; busy.len()];
        let mut best = u32::MAX;
        loop {
            if cut.is_sorted() {
                best = best.min(fullest(&|i| cut[i]));
            }
            let Some(at) = cut.iter().rposition(|c| *c + 1 < n_cores) else { break };
            cut[at] += 1;
            cut[at + 1..].fill(0);
        }
        prop_assert!(taken <= best + best / 16, "{} against {}", taken, best);
        let used: BTreeSet<u32> = placed.iter().map(|p| p.core).collect();
        prop_assert!(used.len() == n_cores.min(busy.len()) || best == taken, "{:?}", placed);
    }

    #[test]
    fn loops_are_numbered_alike_everywhere_and_who_blocks_or_is_dedicated_has_one_alone(
        components in components(), n_cores in 1u32..4, dedicated: bool, blocks in prop::collection::vec(any::<bool>(), 5)
    ) {
        let mut spec = spec_of(&components);
        for (c, blocks) in spec.components.iter_mut().zip(&blocks).filter(|(_, blocks)| **blocks) {
            c.config.insert("executor.blocking".into(), blocks.to_string());
        }
        let layout = layout(&spec, 1);
        let mut config = Config::new(Owner::Topology);
        config.set("worker.mode", if dedicated { "dedicated" } else { "shared" }, Source::Set).unwrap();
        let rule = LoopRule::new(&spec, &layout, &config);
        prop_assert_eq!(rule.mode == Mode::Dedicated, dedicated);
        let cores: Vec<u32> = (3..3 + n_cores).collect();
        let placed: Vec<(ExecutorId, u32)> = plan(&spec, &layout, &all(&layout), &cores, &Hints::NONE).iter().map(|p| (p.id, p.core)).collect();
        let loops = rule.loops(&cores, placed.iter().copied()).unwrap();
        let reversed = rule.loops(&cores, placed.iter().rev().copied()).unwrap();
        prop_assert_eq!(&loops, &reversed);
        for (id, core) in &placed {
            let at = loops.of[id];
            prop_assert_eq!(loops.cores[at], *core);
            let others = loops.of.values().filter(|l| **l == at).count();
            let own = dedicated || rule.blocking.contains(id);
            prop_assert!(!own || others == 1);
            prop_assert_eq!(loops.blocking.contains(&at), rule.blocking.contains(id));
        }
        prop_assert!(rule.loops(&cores, [(placed[0].0, 99)]).is_err());
    }
}

#[test]
fn the_scheduler_wins_over_the_planner_and_by_hand_over_the_scheduler() {
    let spec = topology(&[("a", 2, &[]), ("b", 1, &["a"])]);
    // Tasks: __acker 1, a 2 and 3, b 4.
    let planned = |e: ExecutorId| [(1, 7), (3, 7), (4, 7)].into_iter().find(|(task, _)| *task == e.first).map(|(_, core)| core);
    let by_hand = |id: &str| (id == "b").then_some(4);
    let told = told(&spec, 1, &[4, 7], &Hints { planned: &planned, by_hand: &by_hand, ..Hints::NONE });
    let by = |i: usize| told[i].split_once(' ').unwrap();
    assert_eq!((by(0), by(2), by(3)), (("__acker", "7 by the scheduler"), ("a", "7 by the scheduler"), ("b", "4 by hand: executor.core")));
    assert!(told[1].starts_with("a ") && !told[1].contains("scheduler"), "{told:?}");
}
