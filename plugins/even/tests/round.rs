//! Even through the C table, on clusters written down as lists.

use proptest::prelude::*;
use saetta_sdk::abi;
use saetta_sdk::call::{Instance, PlanArrays, RoundArgs, Services};
use saetta_sdk::snapshot::Writer;

/// Nodes with their ports, and topologies.
#[derive(Debug, Clone)]
struct Cluster {
    nodes: Vec<(&'static str, Vec<u32>)>,
    /// Nodes whose supervisor is gone.
    gone: Vec<&'static str>,
    topologies: Vec<Topology>,
}

#[derive(Debug, Clone)]
struct Topology {
    workers: u32,
    priority: i32,
    /// False: its rows only say which slots are used.
    asked: bool,
    /// First and last task of each executor, and the slot it runs in (index over all nodes' ports).
    executors: Vec<(u32, u32, Option<u32>)>,
}

/// `n` executors of one task each, `at` says where the first ones run.
fn topology(workers: u32, n: u32, at: &[u32]) -> Topology {
    let executors = (0..n).map(|i| (i + 1, i + 1, at.get(i as usize).copied())).collect();
    Topology { workers, priority: 0, asked: true, executors }
}

fn cluster(nodes: &[(&'static str, &[u32])], topologies: &[Topology]) -> Cluster {
    Cluster { nodes: nodes.iter().map(|(id, ports)| (*id, ports.to_vec())).collect(), gone: vec![], topologies: topologies.to_vec() }
}

impl Cluster {
    fn pack(&self, row_noise: usize) -> Vec<u8> {
        let mut w = Writer::with_row_noise(row_noise);
        let empty = w.text("");
        let n_nodes = self.nodes.len() as u32;
        w.row(&abi::Rack { id: empty, first_host: 0, n_hosts: 1 });
        w.row(&abi::HostRow { name: empty, rack: 0, first_node: 0, n_nodes, flags: 0 });
        let holder = |slot: u32| {
            let held = self.topologies.iter().position(|t| t.executors.iter().any(|e| e.2 == Some(slot)));
            held.map_or(abi::NONE, |t| t as u32)
        };
        let mut slot = 0;
        for (i, (id, ports)) in self.nodes.iter().enumerate() {
            let gone = self.gone.contains(id);
            let id = w.text(id);
            let flags = if gone { abi::NODE_GONE } else { 0 };
            w.row(&abi::NodeRow { id, host: 0, first_slot: slot, n_slots: ports.len() as u32, flags, uptime_s: 0 });
            for port in ports {
                let flags = if gone { abi::SLOT_PORT_NOT_REPORTED } else { abi::SLOT_ASSIGNABLE };
                w.row(&abi::SlotRow { node: i as u32, port: *port, topology: holder(slot), flags, n_cores: 1, share: 1 });
                slot += 1;
            }
        }
        let mut first_exec = 0;
        for (i, t) in self.topologies.iter().enumerate() {
            let i = i as u32;
            let n_execs = t.executors.len() as u32;
            w.row(&abi::ComponentRow { name: empty, topology: i, kind: abi::KIND_BOLT, first_exec, n_execs, ..Default::default() });
            for (first_task, last_task, slot) in &t.executors {
                let slot = slot.unwrap_or(abi::NONE);
                w.row(&abi::ExecutorRow {
                    topology: i,
                    component: i,
                    first_task: *first_task,
                    last_task: *last_task,
                    slot,
                    last_slot: abi::NONE,
                    core: abi::NONE,
                    reserved: 0,
                    started_ms: 0,
                });
            }
            w.row(&abi::TopologyRow {
                id: empty,
                name: empty,
                owner: empty,
                launch_ms: 0,
                workers_wanted: t.workers,
                priority: t.priority,
                first_comp: i,
                n_comps: 1,
                first_exec,
                n_execs,
                flags: if t.asked { abi::TOPO_SCHEDULE } else { 0 },
                user: abi::NONE,
                ..Default::default()
            });
            first_exec += n_execs;
        }
        w.finish(1)
    }

    /// Runs a round; slots and outcomes by topology, and whether even says that it changed something.
    fn run(&self, max_moves: u32, row_noise: usize) -> (Vec<Vec<Option<u32>>>, Vec<u32>, bool) {
        let mut even = Instance::builtin(saetta_even::BUILTIN, "{}", Services::new(|_, _| {})).unwrap();
        let before: Vec<u32> = self.topologies.iter().flat_map(|t| t.executors.iter().map(|e| e.2.unwrap_or(abi::NONE))).collect();
        let (mut slots, mut outcome) = (before, vec![abi::OUT_KEEP; self.topologies.len()]);
        let args = RoundArgs { reason: abi::REASON_PERIODIC, round_id: 1, seed: 0, max_moves, flags: 0, budget_ns: 1 << 40 };
        let changed = even
            .schedule(args, &self.pack(row_noise), PlanArrays { slot_of_exec: &mut slots, outcome: &mut outcome, core_of_exec: None })
            .unwrap();
        let mut slots = slots.into_iter().map(|s| Some(s).filter(|s| *s != abi::NONE));
        let by_topology = self.topologies.iter().map(|t| slots.by_ref().take(t.executors.len()).collect()).collect();
        (by_topology, outcome, changed)
    }

    /// A round without a limit; then the result is the current state, and a second round must move nothing.
    fn settle(&self) -> Vec<Vec<Option<u32>>> {
        let (slots, _, _) = self.run(abi::NONE, 0);
        let mut next = self.clone();
        for (t, slots) in next.topologies.iter_mut().zip(&slots) {
            t.executors.iter_mut().zip(slots).for_each(|(e, slot)| e.2 = *slot);
        }
        let (again, _, changed) = next.run(abi::NONE, 0);
        assert_eq!((&again, changed), (&slots, false), "the second round has nothing to do");
        slots
    }
}

fn placed(slots: &[u32]) -> Vec<Option<u32>> {
    slots.iter().map(|s| Some(*s)).collect()
}

#[test]
fn the_worked_example_of_the_semantics() {
    let tasks = [(1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (7, 8), (9, 9), (10, 10), (11, 11), (12, 12), (13, 13), (14, 14)];
    let executors = tasks.iter().map(|(first, last)| (*first, *last, None)).collect();
    let example = Topology { workers: 2, priority: 0, asked: true, executors };
    let c = cluster(&[("s1", &[6700]), ("s2", &[6700])], &[example]);
    // worker 1 = [1][3][5,6][9][11][13], worker 2 = [2][4][7,8][10][12][14]
    assert_eq!(c.settle(), [placed(&[0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1])]);
}

#[test]
fn longer_rows_of_a_newer_host_change_nothing() {
    let c = cluster(&[("a", &[1, 2]), ("b", &[1, 2, 3])], &[topology(3, 7, &[0, 0, 0]), topology(2, 4, &[])]);
    let plain = c.run(abi::NONE, 0);
    assert_eq!(c.run(abi::NONE, 8), plain);
    assert_eq!(c.run(abi::NONE, 24), plain);
}

#[test]
fn four_supervisors_two_topologies_and_the_second_gets_the_eight_slots_left() {
    // Storm's testAssignment: 4 supervisors with 3 slots; 4 workers, then 20 asked.
    let ports: &[u32] = &[1, 2, 3];
    let c = cluster(&[("a", ports), ("b", ports), ("c", ports), ("d", ports)], &[topology(4, 4, &[]), topology(20, 24, &[])]);
    let slots = c.settle();
    let used = |t: usize| slots[t].iter().flatten().collect::<std::collections::BTreeSet<_>>();
    assert_eq!((used(0).len(), used(1).len()), (4, 8));
    assert!(used(0).is_disjoint(&used(1)));
}

#[test]
fn a_smaller_priority_is_served_first() {
    let late = Topology { priority: -1, ..topology(1, 1, &[]) };
    let c = cluster(&[("a", &[1])], &[topology(1, 1, &[]), late]);
    let (slots, outcome, _) = c.run(abi::NONE, 0);
    assert_eq!(slots, [vec![None], placed(&[0])]);
    assert_eq!(outcome, [abi::OUT_UNSCHEDULABLE, abi::OUT_SCHEDULED]);
}

#[test]
fn a_worker_too_many_is_given_up_and_another_topology_takes_its_slot_in_the_same_round() {
    let c = cluster(&[("a", &[1, 2, 3])], &[topology(2, 4, &[]), topology(1, 4, &[0, 0, 1, 2])]);
    assert_eq!(c.settle(), [placed(&[1, 2, 1, 2]), placed(&[0, 0, 0, 0])]);
}

#[test]
fn a_dead_slot_moves_its_executors_only() {
    // Slot 1 died: executors 2 and 4 run nowhere, slot 2 is free.
    let mut t = topology(2, 4, &[0]);
    t.executors[2].2 = Some(0);
    assert_eq!(cluster(&[("a", &[1]), ("b", &[1]), ("c", &[1])], &[t]).settle(), [placed(&[0, 1, 0, 1])]);
}

#[test]
fn with_no_move_allowed_what_runs_stays_and_the_rest_is_placed() {
    // Both in slot 0; two workers wanted. Free to move, one leaves; with no move allowed, the new third goes to the new slot.
    let c = cluster(&[("a", &[1, 2])], &[topology(2, 3, &[0, 0])]);
    assert_eq!(c.run(0, 0).0, [placed(&[0, 0, 1])]);
    let spread = cluster(&[("a", &[1, 2])], &[topology(2, 2, &[0, 0])]);
    assert_eq!(spread.run(0, 0), (vec![placed(&[0, 0])], vec![abi::OUT_SCHEDULED], false));
    assert_eq!(spread.run(1, 0).0, [placed(&[0, 1])]);
    // A worker too many, and no move allowed: it stays.
    let many = cluster(&[("a", &[1, 2])], &[topology(1, 2, &[0, 1])]);
    assert_eq!(many.run(0, 0).0, [placed(&[0, 1])]);
}

#[test]
fn a_topology_that_is_not_asked_for_keeps_everything() {
    let frozen = Topology { asked: false, ..topology(2, 3, &[0, 0]) };
    let (slots, outcome, changed) = cluster(&[("a", &[1, 2])], &[frozen]).run(abi::NONE, 0);
    assert_eq!(slots, [vec![Some(0), Some(0), None]]);
    assert_eq!((outcome, changed), (vec![abi::OUT_KEEP], false));
}

#[test]
fn a_worker_whose_supervisor_is_gone_keeps_what_it_has_and_gets_nothing_new() {
    // Slot 0 is on the lost node and its worker answers. Two workers wanted: it is one of them.
    let mut c = cluster(&[("a", &[1]), ("b", &[1, 2])], &[topology(2, 6, &[0, 0])]);
    c.gone = vec!["a"];
    assert_eq!(c.settle(), [placed(&[0, 0, 1, 1, 1, 1])]);
    // One worker wanted: the new ones wait, since a second worker is one too many.
    c.topologies = vec![topology(1, 3, &[0, 0])];
    let (slots, outcome, _) = c.run(abi::NONE, 0);
    assert_eq!((slots, outcome), (vec![vec![Some(0), Some(0), None]], vec![abi::OUT_PARTIAL]));
}

#[test]
fn the_slot_order_does_not_depend_on_how_hosts_are_sorted() {
    // Node rows come by host, then id: here z before a. Ties still go by node id.
    let c = cluster(&[("z", &[1]), ("a", &[1])], &[topology(1, 1, &[])]);
    assert_eq!(c.run(abi::NONE, 0).0, [placed(&[1])]);
}

/// Clusters of two nodes and three topologies in any state a scheduler may meet: uneven, too many workers, half placed.
fn any_cluster() -> impl Strategy<Value = Cluster> {
    let slots_of = (1u32..4, 1u32..4);
    let t = (1u32..5, -1i32..2, prop::collection::vec(0usize..4, 1..9));
    (slots_of, prop::collection::vec(t, 3), prop::collection::vec(0usize..4, 6)).prop_map(|((n_a, n_b), topologies, owners)| {
        let owners = &owners[..(n_a + n_b) as usize];
        let topologies = topologies.into_iter().enumerate().map(|(i, (workers, priority, places))| {
            let own: Vec<u32> = (0..owners.len()).filter(|s| owners[*s] == i).map(|s| s as u32).collect();
            let place = |(e, p): (usize, usize)| (e as u32 + 1, e as u32 + 1, own.get(p).copied());
            Topology { workers, priority, asked: true, executors: places.into_iter().enumerate().map(place).collect() }
        });
        Cluster { nodes: vec![("a", (1..=n_a).collect()), ("b", (1..=n_b).collect())], gone: vec![], topologies: topologies.collect() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_state_settles_in_one_round_balanced_and_without_sharing(c in any_cluster()) {
        let slots = c.settle();
        let n_slots: usize = c.nodes.iter().map(|(_, ports)| ports.len()).sum();
        let mut holder = vec![None; n_slots];
        for (t, slots) in slots.iter().enumerate() {
            let mut fill = std::collections::BTreeMap::new();
            for slot in slots.iter().flatten() {
                *fill.entry(*slot).or_insert(0) += 1;
                let held = holder[*slot as usize].get_or_insert(t);
                prop_assert_eq!(*held, t, "a slot belongs to one topology");
            }
            prop_assert!(fill.len() <= c.topologies[t].workers as usize);
            let (low, high) = (fill.values().min(), fill.values().max());
            prop_assert!(low.zip(high).is_none_or(|(low, high)| high - low <= 1), "{:?}", fill);
            let placed: usize = fill.values().sum();
            prop_assert!(placed == 0 || placed == slots.len(), "all executors or none");
        }
        // Nobody waits beside a free slot.
        let free = holder.iter().any(Option::is_none);
        for (t, slots) in c.topologies.iter().zip(&slots) {
            let used: std::collections::BTreeSet<u32> = slots.iter().flatten().copied().collect();
            prop_assert!(!free || used.len() == (t.workers as usize).min(slots.len()), "free slots, and {} of {} workers", used.len(), t.workers);
        }
    }

    #[test]
    fn with_no_move_allowed_any_state_keeps_what_runs(c in any_cluster()) {
        let (slots, _, _) = c.run(0, 0);
        for (t, slots) in c.topologies.iter().zip(&slots) {
            for (e, slot) in t.executors.iter().zip(slots) {
                prop_assert!(e.2.is_none() || e.2 == *slot);
            }
        }
    }
}
