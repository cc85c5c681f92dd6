//! What wants to run: one topology with its components, executors, subscriptions and wishes.

use super::machines::Machines;
use super::{Kinds, Packed, PackedTopology, Places};
use crate::round::RoundTopology;
use saetta_model::beat::EdgeRate;
use saetta_model::config::{Config, Owner, Source};
use saetta_model::demand::{Demand, demands};
use saetta_model::name::Name;
use saetta_model::parallelism::ExecutorId;
use saetta_model::topology::{ComponentKind, Grouping, SharedMemory};
use saetta_sdk::abi;
use saetta_sdk::snapshot::Writer;
use std::collections::{BTreeMap, BTreeSet};

/// A topology about to be packed.
pub(super) struct Work<'a> {
    topology: RoundTopology<'a>,
    input_index: usize,
    places: &'a Places,
    schedule: bool,
    config: Config,
    /// By the layout's components.
    demands: Vec<Demand>,
}

impl<'a> Work<'a> {
    pub(super) fn new(topology: &RoundTopology<'a>, input_index: usize, places: &'a Places, schedule: bool) -> Self {
        // Checked at submit; a setting that does not pass any more counts as not set.
        let config = Config::topology(&topology.record.config, Source::Code).unwrap_or_else(|_| Config::new(Owner::Topology));
        let demands = demands(&topology.record.spec, topology.layout, &config);
        Work { topology: *topology, input_index, places, schedule, config, demands }
    }

    /// Who submitted it; empty = nobody is known.
    pub(super) fn owner(&self) -> &'a str {
        &self.topology.record.owner
    }

    /// Resource kinds it asks for, besides CPU and memory.
    pub(super) fn generic_kinds(&self) -> impl Iterator<Item = &String> {
        self.demands.iter().flat_map(|d| d.generic_milli.keys())
    }

    /// Packs it; returns how many components it has.
    #[expect(clippy::too_many_arguments, reason = "one step of `pack`")]
    pub(super) fn pack(
        &self,
        w: &mut Writer,
        row: u32,
        user: u32,
        first_comp: u32,
        kinds: &Kinds<'_>,
        machines: &Machines<'_>,
        packed: &mut Packed,
    ) -> u32 {
        let (record, layout) = (self.topology.record, self.topology.layout);
        let first_exec = packed.executors.len();
        let first_block = self.pack_shared(w, row);
        for (c, component) in layout.components.iter().enumerate() {
            let kind = match component.kind {
                ComponentKind::Spout => abi::KIND_SPOUT,
                ComponentKind::Bolt => abi::KIND_BOLT,
                ComponentKind::Acker => abi::KIND_ACKER,
            };
            let (demand, name) = (&self.demands[c], w.text(component.id.as_str()));
            let comp = w.row(&abi::ComponentRow {
                name,
                topology: row,
                kind,
                first_exec: packed.executors.len() as u32,
                n_execs: component.executors.len() as u32,
                on_heap: demand.on_heap_bytes,
                off_heap: demand.off_heap_bytes,
                max_colocation: demand.max_colocation,
                flags: if demand.spread { abi::COMP_SPREAD } else { 0 },
            });
            let memory = demand.on_heap_bytes.saturating_add(demand.off_heap_bytes);
            w.amounts(abi::TABLE_COMP_REQUEST, &kinds.amounts(demand.cpu_milli_pct, memory, &demand.generic_milli));
            for other in &demand.incompatible {
                let at = layout.components.iter().position(|c| c.id.as_str() == other).expect("`demands` keeps those that exist");
                w.row(&abi::IncompatibleRow { component: comp, other: first_comp + at as u32 });
            }
            let mut blocks: Vec<u32> = demand.shared.iter().map(|b| first_block[b.name.as_str()]).collect();
            blocks.sort_unstable();
            blocks.dedup();
            for block in blocks {
                w.row(&abi::CompSharedRow { component: comp, block });
            }
            self.pack_executors(w, row, comp, &component.executors, machines, packed);
        }
        self.pack_edges(w, first_comp);
        self.pack_hosts(w, row, machines);

        let n_execs = (packed.executors.len() - first_exec) as u32;
        let used: BTreeSet<_> = self.places.values().collect();
        let lacking = packed.slot_of_exec[first_exec..].contains(&abi::NONE) || used.len() < self.topology.workers_wanted as usize;
        let on = |key: &str, bit: u32| if self.config.is_on(key) { bit } else { 0 };
        let (id, name, owner) = (w.text(record.id.as_str()), w.text(record.name.as_str()), w.text(&record.owner));
        let strategy = w.text(self.config.text("topology.scheduler.strategy").unwrap_or_default());
        let count = |key: &str| self.config.u32(key).unwrap_or(0);
        w.row(&abi::TopologyRow {
            id,
            name,
            owner,
            launch_ms: record.submitted_ms as i64,
            workers_wanted: self.topology.workers_wanted,
            priority: record.priority,
            first_comp,
            n_comps: layout.components.len() as u32,
            first_exec: first_exec as u32,
            n_execs,
            flags: if self.schedule { abi::TOPO_SCHEDULE } else { 0 }
                | if lacking { abi::TOPO_NEEDS_SCHEDULING } else { 0 }
                | on("topology.ras.one.executor.per.worker", abi::TOPO_ONE_EXEC_PER_WORKER)
                | on("topology.ras.one.component.per.worker", abi::TOPO_ONE_COMP_PER_WORKER)
                | on("topology.ras.order.executors.by.proximity.needs", abi::TOPO_ORDER_BY_PROXIMITY),
            user,
            max_worker_heap: self.config.number("topology.worker.max.heap.size.mb").map_or(0, |mb| (mb * f64::from(1 << 20)) as i64),
            max_states: u64::from(count("topology.ras.constraint.max.state.search")),
            max_ms: self.config.duration("topology.ras.constraint.max.time.secs").map_or(0, |d| d.as_millis() as u64),
            strategy,
            isolate_machines: count("topology.isolate.machines"),
            ackers_per_worker: count("topology.ras.acker.executors.per.worker"),
        });
        packed.topologies.push(PackedTopology {
            input_index: self.input_index,
            executors: first_exec..packed.executors.len(),
            workers_wanted: self.topology.workers_wanted,
            schedule: self.schedule,
        });
        layout.components.len() as u32
    }

    /// Blocks of shared memory; their rows by name.
    fn pack_shared(&self, w: &mut Writer, row: u32) -> BTreeMap<&str, u32> {
        let blocks: BTreeMap<&str, &SharedMemory> = self.demands.iter().flat_map(|d| &d.shared).map(|b| (b.name.as_str(), b)).collect();
        let pack = |(name, block): (&str, &SharedMemory)| {
            let text = w.text(name);
            w.row(&abi::SharedMemRow {
                name: text,
                topology: row,
                reserved: 0,
                on_heap: block.on_heap_bytes,
                off_heap_worker: block.off_heap_worker_bytes,
                off_heap_node: block.off_heap_node_bytes,
            })
        };
        let names: Vec<&str> = blocks.keys().copied().collect();
        names.into_iter().zip(blocks.into_iter().map(pack)).collect()
    }

    fn pack_executors(&self, w: &mut Writer, row: u32, comp: u32, ids: &[ExecutorId], machines: &Machines<'_>, packed: &mut Packed) {
        for id in ids {
            let at = self.places.get(id);
            let now = at.and_then(|slot| self.topology.current.at(slot)?.executors.iter().find(|e| e.id == *id));
            let slot = at.map_or(abi::NONE, |slot| machines.slot(slot));
            w.row(&abi::ExecutorRow {
                topology: row,
                component: comp,
                first_task: id.first,
                last_task: id.last,
                slot,
                last_slot: self.topology.former.get(id).filter(|_| at.is_none()).map_or(abi::NONE, |slot| machines.slot(slot)),
                started_ms: now.map_or(0, |e| e.started_ms as i64),
                core: at.zip(now).and_then(|(slot, e)| machines.core(&slot.node, e.core)).unwrap_or(abi::NONE),
                reserved: 0,
            });
            packed.executors.push(*id);
            packed.slot_of_exec.push(slot);
        }
    }

    /// Components are sorted by id, and so are the edges: from, to, stream.
    fn pack_edges(&self, w: &mut Writer, first_comp: u32) {
        let layout = self.topology.layout;
        let comp = |id: &Name| layout.components.iter().position(|c| c.id == *id).map(|c| first_comp + c as u32);
        let mut edges: Vec<(u32, u32, &Name, &Grouping)> = Vec::new();
        for to in &self.topology.record.spec.components {
            for input in &to.inputs {
                if let (Some(from), Some(to)) = (comp(&input.from), comp(&to.id)) {
                    edges.push((from, to, &input.stream, &input.grouping));
                }
            }
        }
        edges.sort_by_key(|e| (e.0, e.1, e.2));
        for (from, to, stream, grouping) in edges {
            let text = w.text(stream.as_str());
            let edge = w.row(&abi::EdgeRow { from, to, stream: text, grouping: grouping_code(grouping), reserved: 0 });
            let same = |r: &&EdgeRate| comp(&r.from) == Some(from) && comp(&r.to) == Some(to) && r.stream == *stream;
            if let Some(rate) = self.topology.rates.iter().find(same) {
                w.row(&abi::StatEdgeRow { edge, reserved: 0, tuples_per_s: rate.tuples_per_s, bytes_per_s: rate.bytes_per_s });
            }
        }
    }

    /// Hosts it would rather have, and rather not. Names that are no host now are left out.
    fn pack_hosts(&self, w: &mut Writer, row: u32, machines: &Machines<'_>) {
        for host in self.config.words("topology.scheduler.favored.nodes").into_iter().filter_map(|h| machines.host(h)) {
            w.row(&abi::FavoredRow { topology: row, host });
        }
        for host in self.config.words("topology.scheduler.unfavored.nodes").into_iter().filter_map(|h| machines.host(h)) {
            w.row(&abi::UnfavoredRow { topology: row, host });
        }
    }
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
