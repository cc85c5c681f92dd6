//! Small clusters with one right answer each.

mod common;

use saetta_latency_aware::BUILTIN;
use saetta_sdk::abi;
use saetta_sdk::call::{Instance, PlanArrays, RoundArgs, Services};
use saetta_sdk::testing::{Cluster, Component, Done, Node, Topology};

/// Bytes per second of an edge that matters, and of one that hardly does.
const MUCH: u64 = 10_000_000;
const LITTLE: u64 = 10_000;

fn settle(cluster: &Cluster) -> Done {
    let done = cluster.run(BUILTIN);
    let again = cluster.after(&done).run(BUILTIN);
    assert_eq!((again.moved, again.changed), (0, false), "the second round has nothing to do");
    done
}

/// A chain of bolts behind a spout `a`, one executor each, with what was measured on the way from each to the next.
fn chain(workers: u32, measured: &[u64]) -> Topology {
    let mut t = Topology::new("t").workers(workers).with(Component::spout("a", 1));
    for (i, bytes) in measured.iter().enumerate() {
        let name = |i: usize| ["a", "b", "c", "d", "e", "f", "g", "h"][i];
        t = t.with(Component::bolt(name(i + 1), 1).reads(name(i)).measured(bytes / 100, *bytes));
    }
    t
}

#[test]
fn those_that_talk_much_share_a_worker() {
    let c = Cluster::new().nodes(2, |n| n.slots(1)).with_stats();
    assert_eq!(settle(&c.clone().topology(chain(2, &[MUCH, LITTLE, MUCH]))).groups("t"), [["a", "b"], ["c", "d"]]);
    assert_eq!(settle(&c.topology(chain(2, &[LITTLE, MUCH, LITTLE]))).groups("t"), [["a", "d"], ["b", "c"]]);
}

#[test]
fn without_measurements_groupings_and_parallelism_decide() {
    // Every executor of b gets all, those of c share them.
    let t = Topology::new("t")
        .workers(2)
        .with(Component::spout("a", 1))
        .with(Component::bolt("b", 2).reads_by("a", "default", abi::GROUP_ALL))
        .with(Component::bolt("c", 2).reads("a"));
    let done = settle(&Cluster::new().nodes(2, |n| n.slots(1)).topology(t));
    assert_eq!(done.groups("t"), [vec!["a", "b", "b"], vec!["c", "c"]]);
    // A global grouping goes to the first executor only: that one stands with its reader's source, the others do not matter.
    let t = Topology::new("t").workers(2).with(Component::spout("a", 1)).with(Component::bolt("b", 3).reads_by(
        "a",
        "default",
        abi::GROUP_GLOBAL,
    ));
    let done = settle(&Cluster::new().nodes(2, |n| n.slots(1)).topology(t));
    assert_eq!(done.slot("t", "a", 0), done.slot("t", "b", 0));
}

#[test]
fn workers_go_to_one_node_then_one_rack() {
    let rack = |rack: &'static str| move |n: Node| n.slots(2).rack(rack);
    let c = Cluster::new().nodes(1, rack("r1")).nodes(2, rack("r2")).nodes(1, rack("r3"));
    let done = settle(&c.clone().topology(chain(2, &[MUCH, MUCH, MUCH])));
    assert_eq!(done.nodes("t").len(), 1, "{:?}", done.workers("t"));
    let done = settle(&c.topology(chain(4, &[MUCH, MUCH, MUCH])));
    assert_eq!(done.nodes("t").into_iter().collect::<Vec<_>>(), ["n2", "n3"], "the rack that has two nodes");
}

#[test]
fn workers_of_one_node_go_to_slots_of_one_cache() {
    // Slots 6700 and 6701 have the first cache, the others the second. One of the first is taken.
    let c = Cluster::new().nodes(1, |n| n.slots(4).cores(8, 4));
    let other = Topology::new("other").with(Component::spout("x", 1).all_at("n1", 6700)).launched_ms(-1);
    let done = settle(&c.topology(other).topology(chain(2, &[MUCH])));
    let slots: Vec<String> = done.workers("t").into_iter().map(|w| w.0).collect();
    assert_eq!(slots, ["n1:6702", "n1:6703"]);
}

#[test]
fn a_worker_with_more_cores_has_room_for_more() {
    let c = Cluster::new().node(Node::new("n1").slots(1).cores(6, 6)).node(Node::new("n2").slots(1).cores(2, 2)).with_stats();
    let done = settle(&c.topology(chain(2, &[MUCH, MUCH, LITTLE, MUCH, MUCH, MUCH, MUCH])));
    assert_eq!(done.groups("t"), [vec!["a", "b", "c"], vec!["d", "e", "f", "g", "h"]]);
    assert_eq!(done.slot("t", "h", 0).as_deref(), Some("n1:6700"));
}

#[test]
fn pairs_go_to_cores_of_one_cache() {
    // a to b and c to d talk; one worker of eight cores, four to a cache.
    let t = Topology::new("t")
        .with(Component::spout("a", 2))
        .with(Component::bolt("b", 2).reads("a").measured(1, MUCH))
        .with(Component::bolt("c", 2).reads("b").measured(1, LITTLE))
        .with(Component::bolt("d", 2).reads("c").measured(1, MUCH));
    let done = settle(&Cluster::new().nodes(1, |n| n.slots(1).cores(8, 4)).with_stats().topology(t));
    let cache = |c: &str, i: usize| done.core("t", c, i).expect("a core") / 4;
    assert_eq!([cache("a", 0), cache("a", 1), cache("b", 0)], [cache("b", 1); 3], "{done:?}");
    assert_eq!([cache("c", 0), cache("c", 1), cache("d", 0)], [cache("d", 1); 3]);
    assert_ne!(cache("a", 0), cache("c", 0));
    let mut used: Vec<Option<u32>> = ["a", "b", "c", "d"].iter().flat_map(|c| [done.core("t", c, 0), done.core("t", c, 1)]).collect();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len(), 8, "a core each");
}

#[test]
fn more_executors_than_cores_share_them_in_pairs_that_talk() {
    let done = settle(&Cluster::new().nodes(1, |n| n.slots(1).cores(2, 2)).with_stats().topology(chain(1, &[MUCH, LITTLE, MUCH])));
    let core = |c: &str| done.core("t", c, 0);
    assert_eq!((core("a"), core("c")), (core("b"), core("d")));
    assert_ne!(core("a"), core("c"));
}

#[test]
fn no_executor_stands_on_the_other_thread_of_a_core_while_a_whole_one_is_free() {
    let node = |n: Node| n.slots(1).cores(6, 6).siblings(0, 1).siblings(2, 3).siblings(4, 5);
    let cores = |n: usize| {
        let done = settle(&Cluster::new().nodes(1, node).topology(chain(1, &[MUCH; 5][..n - 1])));
        let mut cores: Vec<u32> = ["a", "b", "c", "d"].iter().take(n).map(|c| done.core("t", c, 0).expect("a core")).collect();
        cores.sort_unstable();
        cores
    };
    assert_eq!(cores(2), [0, 2]);
    assert_eq!(cores(3), [0, 2, 4]);
    assert_eq!(cores(4), [0, 1, 2, 4]);
}

#[test]
fn isolated_cores_are_used_first_and_the_larger_cache_of_those_that_are_not() {
    let node = |n: Node| n.slots(1).cores(6, 4).isolated(3).isolated(5);
    let done = settle(&Cluster::new().nodes(1, node).topology(chain(1, &[MUCH])));
    let mut cores = [done.core("t", "a", 0), done.core("t", "b", 0)];
    cores.sort_unstable();
    assert_eq!(cores, [Some(3), Some(5)]);
    let done = settle(&Cluster::new().nodes(1, |n| n.slots(1).cores(6, 4)).topology(chain(1, &[MUCH, MUCH, MUCH])));
    assert!(["a", "b", "c", "d"].iter().all(|c| done.core("t", c, 0) < Some(4)));
}

#[test]
fn ackers_go_to_the_cores_of_spouts_and_one_to_each_worker() {
    let t = |workers, n_ackers| {
        let t = Topology::new("t").workers(workers).with(Component::spout("a", 2));
        t.with(Component::bolt("b", 2).reads("a")).with(Component::ackers(n_ackers))
    };
    let one = settle(&Cluster::new().nodes(1, |n| n.slots(1).cores(4, 4)).topology(t(1, 2)));
    assert_eq!((one.core("t", "__acker", 0), one.core("t", "__acker", 1)), (one.core("t", "a", 0), one.core("t", "a", 1)));
    let two = settle(&Cluster::new().nodes(2, |n| n.slots(1)).topology(t(2, 2)));
    assert_eq!(two.groups("t"), [["__acker", "a", "b"], ["__acker", "a", "b"]]);
}

#[test]
fn executors_keep_their_cores_when_another_joins() {
    let c = Cluster::new().nodes(1, |n| n.slots(1).cores(4, 4)).topology(chain(1, &[MUCH, MUCH]));
    let done = settle(&c);
    let grown = c.after(&done).without_topology("t");
    // The same topology with a fourth bolt, placed as before.
    let on = |t: Component, name: &str| t.all_at("n1", 6700).on_core(0, done.core("t", name, 0).expect("a core"));
    let t = Topology::new("t")
        .with(on(Component::spout("a", 1), "a"))
        .with(on(Component::bolt("b", 1).reads("a"), "b"))
        .with(on(Component::bolt("c", 1).reads("b"), "c"))
        .with(Component::bolt("d", 1).reads("c"));
    let next = settle(&grown.topology(t));
    for name in ["a", "b", "c"] {
        assert_eq!(next.core("t", name, 0), done.core("t", name, 0));
    }
}

/// Two workers on two nodes; `a` and `c` in the first, `b` and `d` in the second.
fn crossed(first: u64, second: u64, third: u64) -> Cluster {
    let t = Topology::new("t")
        .workers(2)
        .with(Component::spout("a", 1).at(0, "n1", 6700))
        .with(Component::bolt("b", 1).reads("a").measured(1, first).at(0, "n2", 6700))
        .with(Component::bolt("c", 1).reads("b").measured(1, second).at(0, "n1", 6700))
        .with(Component::bolt("d", 1).reads("c").measured(1, third).at(0, "n2", 6700));
    Cluster::new().nodes(2, |n| n.slots(1)).with_stats().topology(t)
}

#[test]
fn what_runs_moves_only_for_a_gain_above_the_threshold() {
    // All three cross. With b and c changed, only the second does.
    let gain = crossed(MUCH, LITTLE, MUCH);
    assert_eq!((settle(&gain).moved, settle(&gain).groups("t")), (2, vec![vec!["a", "b"], vec!["c", "d"]]));
    let middle = crossed(LITTLE, 100 * MUCH, LITTLE);
    assert_eq!(settle(&middle).moved, 2, "b and c together");
    let calm = Cluster::new().nodes(2, |n| n.slots(1)).with_stats();
    let t = Topology::new("t")
        .workers(2)
        .with(Component::spout("a", 2).at(0, "n1", 6700).at(1, "n2", 6700))
        .with(Component::bolt("b", 2).reads("a").measured(1, MUCH).at(0, "n1", 6700).at(1, "n2", 6700));
    let still = settle(&calm.topology(t));
    assert_eq!((still.moved, still.outcome("t")), (0, abi::OUT_SCHEDULED));
    // Half of what crosses can be saved: the first and the third edge are alike, and the second is nothing.
    let t = Topology::new("t")
        .workers(2)
        .with(Component::spout("a", 1).at(0, "n1", 6700))
        .with(Component::bolt("b", 3).reads("a").measured(1, MUCH).at(0, "n2", 6700).at(1, "n2", 6700).at(2, "n3", 6700));
    let some = Cluster::new().nodes(2, |n| n.slots(1)).node(Node::new("n3").slots(1).flags(abi::NODE_GONE)).with_stats();
    let t = t.workers(3);
    // b 0 beside a saves one part of three; the third is pinned.
    let some = some.topology(t);
    let with = |pct: u32| some.ask().config(&format!("{{\"gain_pct\": {pct}}}")).run(BUILTIN).unwrap().moved;
    assert_eq!((with(30), with(36)), (1, 0));
}

#[test]
fn limits_of_moves_are_kept() {
    let gain = crossed(MUCH, LITTLE, MUCH);
    let with = |n: u32| gain.ask().max_moves(n).run(BUILTIN).unwrap().moved;
    assert_eq!((with(0), with(1), with(2)), (0, 0, 2));
    // A third worker is wanted and there is a slot: it takes a move.
    let wider = gain.clone().nodes(1, |n| n.slots(1));
    let t = Topology::new("u").workers(2).with(Component::spout("x", 3).all_at("n3", 6700));
    let wider = wider.nodes(1, |n| n.slots(1)).topology(t);
    assert_eq!(wider.ask().max_moves(0).run(BUILTIN).unwrap().moved, 0);
    assert_eq!(wider.run(BUILTIN).workers("u").len(), 2);
    // What waits is placed all the same.
    let t = Topology::new("t").workers(1).with(Component::spout("x", 3).at(0, "n1", 6700));
    let done = Cluster::new().nodes(1, |n| n.slots(1)).topology(t).ask().max_moves(0).run(BUILTIN).unwrap();
    assert_eq!((done.unplaced("t"), done.moved), (0, 0));
}

#[test]
fn what_died_goes_near_what_lives() {
    let t = Topology::new("t")
        .workers(2)
        .with(Component::spout("a", 2).all_at("n2", 6700))
        .with(Component::bolt("b", 2).reads("a").died_at(0, "n9", 6700).died_at(1, "n9", 6700));
    let racks = Cluster::new().node(Node::new("n1").slots(1).rack("r1")).node(Node::new("n2").slots(1).rack("r2"));
    let done = settle(&racks.node(Node::new("n3").slots(1).rack("r2")).topology(t));
    assert!(!done.nodes("t").contains("n1"), "{:?}", done.workers("t"));
}

#[test]
fn numbers_that_do_not_fit_each_other() {
    let one = Cluster::new().nodes(2, |n| n.slots(2));
    let t = |workers: u32, n: u32| Topology::new("t").workers(workers).with(Component::spout("a", n));
    let none = settle(&one.clone().topology(t(0, 2)));
    assert_eq!((none.unplaced("t"), none.outcome("t")), (2, abi::OUT_UNSCHEDULABLE));
    assert_eq!(settle(&one.clone().topology(t(4, 2))).workers("t").len(), 2);
    assert_eq!(settle(&one.clone().topology(t(9, 9))).workers("t").len(), 4);
    assert_eq!(settle(&one.clone().topology(Topology::new("t"))).outcome("t"), abi::OUT_SCHEDULED);
    let shrink = Topology::new("t").workers(1).with(Component::spout("a", 3).all_at("n1", 6700).at(2, "n2", 6700));
    assert_eq!(settle(&one.topology(shrink)).moved, 1);
    assert!(!settle(&Cluster::new()).changed);
}

#[test]
fn a_host_without_cores_or_extensions_gets_slots_all_the_same() {
    let c = Cluster::new().nodes(2, |n| n.slots(1).cores(4, 4)).topology(chain(2, &[MUCH, LITTLE, MUCH]));
    let done = c.ask().without_cores().run(BUILTIN).unwrap();
    assert_eq!((done.unplaced("t"), done.core("t", "a", 0)), (0, None));
    let reasons = c.ask().with_reasons().run(BUILTIN).unwrap().reasons;
    assert!(reasons.len() == 4 && reasons.iter().all(|r| r.code == abi::WHY_AFFINITY), "{reasons:?}");
}

#[test]
fn the_configuration_is_checked() {
    for (config, part) in [
        ("{\"gain_pct\": 101}", "gain_pct is 101; it must be a whole number, 0 to 100"),
        ("{\"distance_rack\": 3}", "distance_rack is 3; it must be at least the distance before it, 4"),
        ("{\"gain\": 1}", "a key \"gain\""),
    ] {
        let e = Cluster::new().ask().config(config).run(BUILTIN).unwrap_err();
        assert_eq!(e.code, abi::E_CONFIG);
        assert!(e.text.contains(part), "{config}: {}", e.text);
    }
}

#[test]
fn reasons_say_with_whom_an_executor_talks() {
    let c = Cluster::new().node(Node::new("n1").slots(2)).node(Node::new("n2").slots(1)).with_stats();
    let reasons = c.topology(chain(3, &[MUCH, LITTLE])).ask().with_reasons().run(BUILTIN).unwrap().reasons;
    let b = &reasons[1];
    let part = |name: &str| b.parts.iter().find(|p| p.0 == name).map(|p| p.1 / 1000);
    let got = (part("same worker"), part("same node"), part("other nodes"));
    assert_eq!(got, (Some(0), Some(MUCH as i64), Some(LITTLE as i64)), "{b:?}");
    // On one host, but no cache known to be shared: 4; in one rack: 20.
    assert_eq!(b.score / 1000, -(4 * MUCH as i64 + 20 * LITTLE as i64));
}

#[test]
fn out_of_time_what_waits_is_still_placed() {
    let c = Cluster::new().nodes(2, |n| n.slots(1).cores(2, 2)).with_stats().topology(chain(2, &[MUCH, LITTLE, MUCH]));
    let mut near = Instance::builtin(BUILTIN, "{}", Services::new(|_, _| {})).unwrap();
    let args = RoundArgs { reason: abi::REASON_SUBMIT, round_id: 1, seed: 0, max_moves: abi::NONE, flags: 0, budget_ns: 0 };
    let (mut slots, mut cores, mut outcome) = ([abi::NONE; 4], [abi::NONE; 4], [abi::OUT_KEEP]);
    let plan = PlanArrays { slot_of_exec: &mut slots, outcome: &mut outcome, core_of_exec: Some(&mut cores) };
    assert!(near.schedule(args, &c.pack(), plan).unwrap());
    assert!(!slots.contains(&abi::NONE) && !cores.contains(&abi::NONE), "{slots:?} {cores:?}");
    assert_eq!(outcome, [abi::OUT_SCHEDULED]);
}
