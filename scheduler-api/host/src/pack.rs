//! The model as a snapshot: what a scheduler sees of cluster and topologies.
//!
//! Before: [`RoundInput`]. After: one block of bytes in the ABI's canonical orders, and the way back from its
//! indices to slots and executors. Pure; O(n log n) in slots and executors.

use crate::round::RoundInput;
use saetta_model::cluster::{SlotId, SlotInfo};
use saetta_model::name::Name;
use saetta_model::parallelism::ExecutorId;
use saetta_model::topology::{ComponentKind, Grouping};
use saetta_sdk::abi;
use saetta_sdk::snapshot::Writer;
use std::collections::BTreeMap;
use std::ops::Range;

/// Where each executor of a topology is.
pub type Places = BTreeMap<ExecutorId, SlotId>;

/// A snapshot with the way back.
#[derive(Debug, Clone)]
pub struct Packed {
    /// The block.
    pub bytes: Vec<u8>,
    /// Slot table.
    pub slots: Vec<PackedSlot>,
    /// Executor table: ids, by topology, ascending.
    pub executors: Vec<ExecutorId>,
    /// The plan as it goes out: current slot of each executor or `abi::NONE`.
    pub slot_of_exec: Vec<u32>,
    /// Topology table.
    pub topologies: Vec<PackedTopology>,
}

/// One row of the slot table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedSlot {
    /// Which.
    pub id: SlotId,
    /// New executors may be placed here.
    pub assignable: bool,
}

/// One row of the topology table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedTopology {
    /// Place in `RoundInput::topologies`.
    pub input_index: usize,
    /// Its rows of the executor table.
    pub executors: Range<usize>,
    /// Workers it asks for.
    pub workers_wanted: u32,
    /// True when the round asks for a decision on it.
    pub schedule: bool,
}

/// A node as the snapshot has it.
struct Node<'a> {
    rack: &'a str,
    host: &'a str,
    id: &'a Name,
    /// False when it is only known from an assignment.
    alive: bool,
    /// By port; `None` = not reported by its supervisor.
    slots: BTreeMap<u16, Option<&'a SlotInfo>>,
}

/// Packs a round. `places` has one entry for each topology of `input`: where its executors are now (those that do not exist
/// any more are left out). `schedule` says which of them the round asks a decision on.
pub fn pack(input: &RoundInput<'_>, places: &[Places], schedule: &[bool], wall_ms: i64) -> Packed {
    assert!(places.len() == input.topologies.len() && schedule.len() == places.len(), "one entry per topology");
    let mut w = Writer::default();
    w.row(&abi::Meta { wall_ms, reason: input.reason.code(), ..Default::default() });

    // Nodes: those that report, then those that only an assignment knows.
    let mut nodes: BTreeMap<&Name, Node<'_>> = BTreeMap::new();
    for s in input.supervisors.values() {
        let slots = s.slots.iter().map(|slot| (slot.port, Some(slot))).collect();
        nodes.insert(&s.id, Node { rack: &s.rack, host: &s.host, id: &s.id, alive: true, slots });
    }
    for (topology, places) in input.topologies.iter().zip(places) {
        for slot in places.values() {
            let host = topology.current.hosts.get(&slot.node).map_or("", String::as_str);
            let gone = || Node { rack: "", host, id: &slot.node, alive: false, slots: BTreeMap::new() };
            nodes.entry(&slot.node).or_insert_with(gone).slots.entry(slot.port).or_insert(None);
        }
    }
    let mut nodes: Vec<Node<'_>> = nodes.into_values().collect();
    nodes.sort_by_key(|n| (n.rack, n.host, n.id));

    // Topologies by launch, id; who is in which slot.
    let mut order: Vec<usize> = (0..input.topologies.len()).collect();
    order.sort_by_key(|i| (input.topologies[*i].record.submitted_ms, &input.topologies[*i].record.id));
    let mut holder: BTreeMap<&SlotId, u32> = BTreeMap::new();
    for (row, i) in order.iter().enumerate() {
        for slot in input.topologies[*i].layout.executors().filter_map(|(_, id)| places[*i].get(&id)) {
            holder.entry(slot).or_insert(row as u32);
        }
    }

    let slots = pack_machines(&mut w, &nodes, &holder);
    let slot_index: BTreeMap<&SlotId, u32> = slots.iter().enumerate().map(|(i, s)| (&s.id, i as u32)).collect();

    let mut executors = Vec::new();
    let mut slot_of_exec = Vec::new();
    let mut topologies = Vec::new();
    let mut first_comp = 0;
    for (row, input_index) in order.into_iter().enumerate() {
        let topology = &input.topologies[input_index];
        let (record, layout) = (topology.record, topology.layout);
        let started: BTreeMap<ExecutorId, u64> =
            topology.current.workers.iter().flat_map(|p| p.executors.iter().map(|e| (e.id, e.started_ms))).collect();
        let first_exec = executors.len();
        let n_comps = layout.components.len() as u32;
        for (c, component) in layout.components.iter().enumerate() {
            let kind = match component.kind {
                ComponentKind::Spout => abi::KIND_SPOUT,
                ComponentKind::Bolt => abi::KIND_BOLT,
                ComponentKind::Acker => abi::KIND_ACKER,
            };
            let name = w.text(component.id.as_str());
            w.row(&abi::ComponentRow {
                name,
                topology: row as u32,
                kind,
                first_exec: executors.len() as u32,
                n_execs: component.executors.len() as u32,
                ..Default::default()
            });
            for id in &component.executors {
                let slot = places[input_index].get(id).map_or(abi::NONE, |slot| slot_index[slot]);
                w.row(&abi::ExecutorRow {
                    topology: row as u32,
                    component: first_comp + c as u32,
                    first_task: id.first,
                    last_task: id.last,
                    slot,
                    last_slot: abi::NONE,
                    core: abi::NONE,
                    reserved: 0,
                    started_ms: started.get(id).filter(|_| slot != abi::NONE).map_or(0, |ms| *ms as i64),
                });
                executors.push(*id);
                slot_of_exec.push(slot);
            }
        }
        // Components are sorted by id, and so are the edges: from, to, stream.
        let comp = |id: &Name| layout.components.iter().position(|c| c.id == *id).map(|c| first_comp + c as u32);
        let mut edges: Vec<(u32, u32, &Name, &Grouping)> = Vec::new();
        for to in &record.spec.components {
            for input in &to.inputs {
                if let (Some(from), Some(to)) = (comp(&input.from), comp(&to.id)) {
                    edges.push((from, to, &input.stream, &input.grouping));
                }
            }
        }
        edges.sort_by_key(|e| (e.0, e.1, e.2));
        for (from, to, stream, grouping) in edges {
            let stream = w.text(stream.as_str());
            w.row(&abi::EdgeRow { from, to, stream, grouping: grouping_code(grouping), reserved: 0 });
        }
        let (id, name, owner) = (w.text(record.id.as_str()), w.text(record.name.as_str()), w.text(&record.owner));
        w.row(&abi::TopologyRow {
            id,
            name,
            owner,
            launch_ms: record.submitted_ms as i64,
            workers_wanted: topology.workers_wanted,
            priority: record.priority,
            first_comp,
            n_comps,
            first_exec: first_exec as u32,
            n_execs: (executors.len() - first_exec) as u32,
            flags: if schedule[input_index] { abi::TOPO_SCHEDULE } else { 0 },
            user: abi::NONE,
            ..Default::default()
        });
        topologies.push(PackedTopology {
            input_index,
            executors: first_exec..executors.len(),
            workers_wanted: topology.workers_wanted,
            schedule: schedule[input_index],
        });
        first_comp += n_comps;
    }
    Packed { bytes: w.finish(input.round_id), slots, executors, slot_of_exec, topologies }
}

/// Racks, hosts, nodes and slots; `nodes` are sorted by rack, host, id.
fn pack_machines(w: &mut Writer, nodes: &[Node<'_>], holder: &BTreeMap<&SlotId, u32>) -> Vec<PackedSlot> {
    let mut slots: Vec<PackedSlot> = Vec::new();
    let (mut n_racks, mut n_hosts, mut n_nodes) = (0, 0, 0);
    for rack in nodes.chunk_by(|a, b| a.rack == b.rack) {
        let hosts: Vec<&[Node<'_>]> = rack.chunk_by(|a, b| a.host == b.host).collect();
        let id = w.text(rack[0].rack);
        w.row(&abi::Rack { id, first_host: n_hosts, n_hosts: hosts.len() as u32 });
        for host in hosts {
            let name = w.text(host[0].host);
            w.row(&abi::HostRow { name, rack: n_racks, first_node: n_nodes, n_nodes: host.len() as u32, flags: 0 });
            for node in host {
                let id = w.text(node.id.as_str());
                let flags = if node.alive { 0 } else { abi::NODE_GONE };
                let (first_slot, n_slots) = (slots.len() as u32, node.slots.len() as u32);
                w.row(&abi::NodeRow { id, host: n_hosts, first_slot, n_slots, flags, uptime_s: 0 });
                for (port, info) in &node.slots {
                    let id = SlotId { node: node.id.clone(), port: *port };
                    let used = holder.get(&id).copied();
                    let flag = |on: bool, bit: u32| if on { bit } else { 0 };
                    w.row(&abi::SlotRow {
                        node: n_nodes,
                        port: u32::from(*port),
                        topology: used.unwrap_or(abi::NONE),
                        flags: flag(info.is_some(), abi::SLOT_ASSIGNABLE)
                            | flag(used.is_some(), abi::SLOT_USED)
                            | flag(info.is_none(), abi::SLOT_PORT_NOT_REPORTED),
                        n_cores: info.map_or(0, |i| i.cores.len() as u32),
                        share: info.map_or(0, |i| i.share),
                    });
                    slots.push(PackedSlot { id, assignable: info.is_some() });
                }
                n_nodes += 1;
            }
            n_hosts += 1;
        }
        n_racks += 1;
    }
    slots
}

fn grouping_code(grouping: &Grouping) -> u32 {
    match grouping {
        Grouping::Shuffle => abi::GROUP_SHUFFLE,
        Grouping::LocalOrShuffle => abi::GROUP_LOCAL_OR_SHUFFLE,
        Grouping::LoadAware => abi::GROUP_LOAD_AWARE,
        Grouping::Fields(_) => abi::GROUP_FIELDS,
        Grouping::PartialKey(_) => abi::GROUP_PARTIAL_KEY,
        Grouping::All => abi::GROUP_ALL,
        Grouping::Global => abi::GROUP_GLOBAL,
        Grouping::None => abi::GROUP_NONE,
        Grouping::Direct => abi::GROUP_DIRECT,
        Grouping::Custom(_) => abi::GROUP_CUSTOM,
    }
}
