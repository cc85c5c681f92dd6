//! What there is: racks, hosts, nodes with their resources, slots and cores.
//!
//! Nodes that report, and those that only an assignment knows: a lost supervisor's workers may live on, or what is to be placed anew was there.

use super::{Clock, Kinds, PackedSlot, Places};
use crate::round::RoundInput;
use saetta_model::cluster::{CoreInfo, SlotId, SlotInfo, SupervisorInfo};
use saetta_model::name::Name;
use saetta_sdk::abi;
use saetta_sdk::snapshot::Writer;
use std::collections::BTreeMap;

/// The way back from rows, and to them.
pub(super) struct Machines<'a> {
    /// Slot table.
    pub(super) slots: Vec<PackedSlot>,
    /// Core table: numbers the operating system gives them.
    pub(super) cores: Vec<u32>,
    hosts: BTreeMap<&'a str, u32>,
    slot_rows: BTreeMap<SlotId, u32>,
    core_rows: BTreeMap<(&'a Name, u32), u32>,
}

/// A node as the snapshot has it.
struct Node<'a> {
    rack: &'a str,
    host: &'a str,
    id: &'a Name,
    /// `None` = it is only known from an assignment.
    info: Option<&'a SupervisorInfo>,
    /// By port; `None` = not reported by its supervisor.
    slots: BTreeMap<u16, Option<&'a SlotInfo>>,
}

impl<'a> Machines<'a> {
    pub(super) fn pack(
        w: &mut Writer,
        input: &RoundInput<'a>,
        places: &'a [Places],
        holder: &BTreeMap<&SlotId, u32>,
        kinds: &Kinds<'_>,
        clock: Clock,
    ) -> Self {
        let nodes = nodes(input, places);
        let mut m = Machines {
            slots: Vec::new(),
            cores: Vec::new(),
            hosts: BTreeMap::new(),
            slot_rows: BTreeMap::new(),
            core_rows: BTreeMap::new(),
        };
        let (mut n_racks, mut n_hosts, mut n_nodes) = (0, 0, 0);
        for rack in nodes.chunk_by(|a, b| a.rack == b.rack) {
            let hosts: Vec<&[Node<'_>]> = rack.chunk_by(|a, b| a.host == b.host).collect();
            let id = w.text(rack[0].rack);
            w.row(&abi::Rack { id, first_host: n_hosts, n_hosts: hosts.len() as u32 });
            for host in hosts {
                let name = w.text(host[0].host);
                w.row(&abi::HostRow { name, rack: n_racks, first_node: n_nodes, n_nodes: host.len() as u32, flags: 0 });
                for node in host {
                    m.pack_node(w, node, n_nodes, n_hosts, holder, kinds, clock);
                    n_nodes += 1;
                }
                m.hosts.insert(host[0].host, n_hosts);
                n_hosts += 1;
            }
            n_racks += 1;
        }
        m
    }

    #[expect(clippy::too_many_arguments, reason = "one step of `pack`")]
    fn pack_node(
        &mut self,
        w: &mut Writer,
        node: &Node<'a>,
        row: u32,
        host: u32,
        holder: &BTreeMap<&SlotId, u32>,
        kinds: &Kinds<'_>,
        clock: Clock,
    ) {
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        let id = w.text(node.id.as_str());
        let (first_slot, n_slots) = (self.slots.len() as u32, node.slots.len() as u32);
        let started_ms = node.info.map_or(0, |i| i.started_ms as i64);
        let uptime_s = if started_ms == 0 { 0 } else { (clock.wall_ms - started_ms).max(0) as u64 / 1000 };
        w.row(&abi::NodeRow { id, host, first_slot, n_slots, flags: flag(node.info.is_none(), abi::NODE_GONE), uptime_s });
        let total = match node.info.map(|i| &i.resources) {
            Some(r) => kinds.amounts(r.cpu_milli_pct, r.memory_bytes, &r.generic_milli),
            None => kinds.amounts(0, 0, &BTreeMap::new()),
        };
        w.amounts(abi::TABLE_NODE_TOTAL, &total);
        self.pack_cores(w, node, row);
        for (port, info) in &node.slots {
            let id = SlotId { node: node.id.clone(), port: *port };
            let used = holder.get(&id).copied();
            let mut cores: Vec<u32> =
                info.iter().flat_map(|i| &i.cores).filter_map(|c| self.core_rows.get(&(node.id, *c)).copied()).collect();
            cores.sort_unstable();
            let slot = w.row(&abi::SlotRow {
                node: row,
                port: u32::from(*port),
                topology: used.unwrap_or(abi::NONE),
                flags: flag(info.is_some(), abi::SLOT_ASSIGNABLE)
                    | flag(used.is_some(), abi::SLOT_USED)
                    | flag(info.is_none(), abi::SLOT_PORT_NOT_REPORTED),
                n_cores: info.map_or(0, |i| i.cores.len() as u32),
                share: info.map_or(0, |i| i.share),
            });
            for core in &cores {
                w.row(&abi::SlotCoreRow { slot, core: *core });
            }
            self.slot_rows.insert(id.clone(), slot);
            self.slots.push(PackedSlot { id, assignable: info.is_some(), cores });
        }
    }

    /// Cores of a node that some slot of it has. A supervisor that does not say how they lie has one cache and no siblings.
    fn pack_cores(&mut self, w: &mut Writer, node: &Node<'a>, row: u32) {
        let told: BTreeMap<u32, &CoreInfo> = node.info.iter().flat_map(|i| &i.cores).map(|c| (c.id, c)).collect();
        let mut ids: Vec<u32> = node.slots.values().flatten().flat_map(|s| s.cores.iter().copied()).collect();
        ids.sort_unstable();
        ids.dedup();
        let first = self.cores.len() as u32;
        let row_of = |id: u32| ids.binary_search(&id).map_or(abi::NONE, |at| first + at as u32);
        for id in &ids {
            let plain = CoreInfo { id: *id, l3: 0, numa: 0, sibling: None, isolated: false };
            let core = told.get(id).copied().unwrap_or(&plain);
            w.row(&abi::CoreRow {
                node: row,
                os_id: *id,
                l3: core.l3,
                numa: core.numa,
                sibling: core.sibling.map_or(abi::NONE, row_of),
                flags: if core.isolated { abi::CORE_ISOLATED } else { 0 },
            });
            self.core_rows.insert((node.id, *id), row_of(*id));
        }
        self.cores.extend(&ids);
    }

    /// Row of a slot that holds an executor or is reported.
    pub(super) fn slot(&self, id: &SlotId) -> u32 {
        self.slot_rows[id]
    }
    /// Row of a core.
    pub(super) fn core(&self, node: &Name, os_id: u32) -> Option<u32> {
        self.core_rows.get(&(node, os_id)).copied()
    }
    /// Row of a host.
    pub(super) fn host(&self, name: &str) -> Option<u32> {
        self.hosts.get(name).copied()
    }
}

/// By rack, host, id.
fn nodes<'a>(input: &RoundInput<'a>, places: &'a [Places]) -> Vec<Node<'a>> {
    let mut nodes: BTreeMap<&Name, Node<'_>> = BTreeMap::new();
    for s in input.supervisors.values() {
        let slots = s.slots.iter().map(|slot| (slot.port, Some(slot))).collect();
        nodes.insert(&s.id, Node { rack: &s.rack, host: &s.host, id: &s.id, info: Some(s), slots });
    }
    for (topology, places) in input.topologies.iter().zip(places) {
        for slot in places.values().chain(topology.former.values()) {
            let host = topology.current.hosts.get(&slot.node).map_or("", String::as_str);
            let gone = || Node { rack: "", host, id: &slot.node, info: None, slots: BTreeMap::new() };
            nodes.entry(&slot.node).or_insert_with(gone).slots.entry(slot.port).or_insert(None);
        }
    }
    let mut nodes: Vec<Node<'_>> = nodes.into_values().collect();
    nodes.sort_by_key(|n| (n.rack, n.host, n.id));
    nodes
}
