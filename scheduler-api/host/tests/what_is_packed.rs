//! What a scheduler is told of a model: resources, wishes, cores; and that a core it chose stays with the executor.

mod common;

use common::*;
use saetta_model::beat::EdgeRate;
use saetta_model::cluster::{CoreInfo, SlotId};
use saetta_model::config::{Config, Owner};
use saetta_model::topology::{Resources, SharedMemory};
use saetta_sched_host::pack::{Clock, Packed, Places, pack};
use saetta_sched_host::{Facts, How, RoundInput, Scheduler};
use saetta_sdk::{CompId, CoreId, EdgeId, KindId, NodeId, SlotId as SlotRow, Snapshot, TopoId, UserId, abi};
use std::collections::BTreeMap;

const MB: i64 = 1 << 20;

/// Nodes a (2 slots, 4 cores in two caches) and b (1 slot); spout and bolt of topology t, the spout in a:1 on core 3.
fn world() -> World {
    let mut world = World::new(&[("a", &[1, 2]), ("b", &[1])]);
    let a = world.supervisors.get_mut(&name("a")).unwrap();
    a.resources =
        Resources { cpu_milli_pct: 400_000, memory_bytes: 4096 * MB, generic_milli: [("gpu".into(), 2000)].into(), ..a.resources.clone() };
    a.started_ms = 5000;
    a.cores = (0..4).map(|id| CoreInfo { id, l3: id / 2 * 2, numa: 0, sibling: Some(id ^ 1), isolated: id == 3 }).collect();
    (a.slots[0].cores, a.slots[1].cores) = (vec![2, 3], vec![0]);
    world.topology("t", 2, &[("spout", 1, None), ("bolt", 2, None)]);
    let (record, layout, current) = &mut world.topologies[0];
    let component = |id: &str| record.spec.components.iter().position(|c| c.id.as_str() == id).unwrap();
    let bolt = component("bolt");
    let bolt = &mut record.spec.components[bolt];
    bolt.resources.cpu_milli_pct = 50_000;
    (bolt.resources.memory_bytes, bolt.resources.off_heap_bytes) = (100 * MB, 40 * MB);
    bolt.resources.generic_milli.insert("fpga".into(), 1);
    bolt.resources.shared = vec![SharedMemory { name: "dictionary".into(), off_heap_node_bytes: 7 * MB, ..SharedMemory::default() }];
    bolt.config.insert("topology.component.incompatible".into(), "spout".into());
    for (key, value) in [
        ("topology.isolate.machines", "3"),
        ("topology.ras.one.executor.per.worker", "true"),
        ("topology.scheduler.favored.nodes", "host-b,nowhere,host-a"),
        ("topology.spread.components", "bolt"),
    ] {
        record.config.insert(key.into(), value.into());
    }
    let spout = layout.component("spout").unwrap().executors[0];
    *current = assignment(&[(spout, SlotId { node: name("a"), port: 1 })].into());
    (current.workers[0].executors[0].core, current.workers[0].executors[0].planned) = (3, true);
    world
}

fn facts() -> Facts {
    let mut config = Config::new(Owner::Daemon);
    for pair in [
        "resource.aware.scheduler.user.pools=zoe/cpu=200,zoe/memory.mb=1.5,zoe/gpu=1",
        "multitenant.scheduler.user.pools=me=2",
        "worker.min.cpu.pcore.percent=30",
    ] {
        config.set_pair(pair).unwrap();
    }
    Facts::from_config(&config).unwrap()
}

fn packed(world: &World) -> Packed {
    let rates = [EdgeRate { from: name("spout"), to: name("bolt"), stream: name("default"), tuples_per_s: 10, bytes_per_s: 80 }];
    world.round(1, |input| {
        let mut topologies = input.topologies.to_vec();
        topologies[0].rates = &rates;
        let places: Places = topologies[0].current.slots();
        let clock = Clock { wall_ms: 9000, monotonic_ns: 1 };
        pack(&RoundInput { topologies: &topologies, ..*input }, &[places], &[true], &facts(), clock)
    })
}

#[test]
fn resources_wishes_and_rates_are_in_the_snapshot() {
    let packed = packed(&world());
    let s = Snapshot::new(&packed.bytes).unwrap();
    assert_eq!(s.kinds().iter().map(|k| s.text(k.name)).collect::<Vec<_>>(), ["cpu", "memory", "fpga", "gpu"]);
    assert_eq!(s.users().iter().map(|u| (s.text(u.name), u.max_isolated_nodes)).collect::<Vec<_>>(), [("me", 2), ("zoe", 0)]);
    let zoe = s.guarantee(UserId(1));
    assert_eq!((zoe.cpu(), zoe.memory(), zoe.get(KindId(3))), (200_000, 3 * MB / 2, 1000));

    let topology = s.topologies().at(TopoId(0));
    assert_eq!((topology.user, topology.isolate_machines, topology.max_worker_heap, topology.max_ms), (0, 3, 768 * MB, 60_000));
    assert_eq!(topology.flags, abi::TOPO_SCHEDULE | abi::TOPO_NEEDS_SCHEDULING | abi::TOPO_ONE_EXEC_PER_WORKER);
    assert_eq!(
        s.favored(TopoId(0)).map(|h| s.text(s.hosts().at(h).name)).collect::<Vec<_>>(),
        ["host-b", "host-a"],
        "what is no host is left out"
    );

    let comps: BTreeMap<&str, CompId> = s.components().with_ids().map(|(id, c)| (s.text(c.name), id)).collect();
    let (acker, bolt, spout) = (comps["__acker"], comps["bolt"], comps["spout"]);
    assert_eq!((s.request(acker).cpu(), s.request(spout).memory()), (10_000, 128 * MB), "the configuration's");
    let row = s.components().at(bolt);
    assert_eq!((s.request(bolt).cpu(), s.request(bolt).get(KindId(2))), (50_000, 1), "the code's");
    assert_eq!((row.on_heap, row.off_heap, row.flags), (60 * MB, 40 * MB, abi::COMP_SPREAD));
    assert_eq!(s.incompatible_with(spout).collect::<Vec<_>>(), [bolt]);
    assert_eq!(s.blocks_of(bolt).map(|(_, b)| (s.text(b.name), b.off_heap_node)).collect::<Vec<_>>(), [("dictionary", 7 * MB)]);
    assert_eq!(s.rate(EdgeId(0)).map(|r| (r.tuples_per_s, r.bytes_per_s)), Some((10, 80)));

    let a = s.nodes().at(NodeId(0));
    assert_eq!((s.text(a.id), a.uptime_s), ("a", 4));
    // The spout's 10 % counts as the least a worker takes.
    assert_eq!((s.node_total(NodeId(0)).cpu(), s.node_avail(NodeId(0)).cpu()), (400_000, 370_000));
    assert_eq!((s.node_avail(NodeId(0)).memory(), s.node_avail(NodeId(0)).get(KindId(3))), ((4096 - 128) * MB, 2000));
}

#[test]
fn cores_are_those_that_slots_have_with_how_they_lie() {
    let packed = packed(&world());
    let s = Snapshot::new(&packed.bytes).unwrap();
    // Core 1 of node a is no slot's; node b's supervisor does not say how its core lies.
    let rows: Vec<_> = s.cores().iter().map(|c| (c.node, c.os_id, c.l3, c.sibling, c.flags)).collect();
    assert_eq!(rows, [(0, 0, 0, abi::NONE, 0), (0, 2, 2, 2, 0), (0, 3, 2, 1, abi::CORE_ISOLATED), (1, 0, 0, abi::NONE, 0)]);
    assert_eq!(packed.cores, [0, 2, 3, 0]);
    assert_eq!(s.cores_of(SlotRow(0)).collect::<Vec<_>>(), [CoreId(1), CoreId(2)]);
    let placed = s.executors().iter().find(|e| e.slot == 0).unwrap();
    assert_eq!((placed.core, placed.started_ms), (2, 5));
}

#[test]
fn who_leads_and_where_executors_were_before_their_slot_was_lost_are_in_the_snapshot() {
    let world = world();
    let ids: Vec<_> = world.topologies[0].1.component("bolt").unwrap().executors.clone();
    // One was in a slot that reports, one on a node that does not any more; the spout is where it was.
    let spout = world.topologies[0].1.component("spout").unwrap().executors[0];
    let at = |node: &str, port| SlotId { node: name(node), port };
    let former: Places = [(ids[0], at("b", 1)), (ids[1], at("gone", 7)), (spout, at("b", 1))].into();
    let packed = world.round(1, |input| {
        let mut topologies = input.topologies.to_vec();
        topologies[0].former = &former;
        let places: Places = topologies[0].current.slots();
        let input = RoundInput { topologies: &topologies, leader_term: 7, ..*input };
        pack(&input, &[places], &[true], &facts(), Clock::default())
    });
    let s = Snapshot::new(&packed.bytes).unwrap();
    assert_eq!(s.meta().unwrap().leader_term, 7);
    let last = |id: saetta_model::parallelism::ExecutorId| {
        let row = packed.executors.iter().position(|e| *e == id).unwrap();
        packed.slots.get(s.executors().get(row).last_slot as usize).map(|slot| (slot.id.clone(), slot.assignable))
    };
    assert_eq!(last(ids[0]), Some((at("b", 1), true)));
    assert_eq!(last(ids[1]), Some((at("gone", 7), false)));
    assert_eq!(last(spout), None, "it has a slot");
    assert!(s.nodes().iter().any(|n| s.text(n.id) == "gone" && n.flags & abi::NODE_GONE != 0));
    // What was lost stays lost: the scheduler places them anew, and nothing there.
    let plan = world.round(1, |input| {
        let mut topologies = input.topologies.to_vec();
        topologies[0].former = &former;
        let scheduler = Scheduler::new(options("even", &shipped_dir()));
        scheduler.round(&RoundInput { topologies: &topologies, ..*input }).topologies.remove(0).1
    });
    assert_eq!((plan.unplaced, plan.how), (0, How::Plugin("even".into())));
    assert!(plan.slots.values().all(|slot| slot.node.as_str() != "gone"), "{:?}", plan.slots);
}

#[test]
fn a_core_that_was_planned_stays_while_the_plugin_fails_and_goes_when_a_plugin_says_nothing_of_it() {
    let world = world();
    let empty = tempfile::tempdir().unwrap();
    let spout = world.topologies[0].1.component("spout").unwrap().executors[0];
    let plan = |scheduler: &Scheduler| world.round(1, |input| scheduler.round(input)).topologies.remove(0).1;
    let failed = plan(&Scheduler::new(options("missing", empty.path())));
    assert!(matches!(failed.how, How::Fallback { .. }), "{failed:?}");
    assert_eq!((failed.unplaced, failed.cores), (0, [(spout, 3)].into()));
    let even = plan(&Scheduler::new(options("even", &shipped_dir())));
    assert_eq!((even.how, even.cores), (How::Plugin("even".into()), BTreeMap::new()));
}
