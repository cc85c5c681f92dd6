//! The model as a snapshot: what a scheduler sees of cluster and topologies.
//!
//! Before: [`RoundInput`]. After: one block of bytes in the ABI's canonical orders, and the way back from its
//! indices to slots, cores and executors. Pure; O(n log n) in slots and executors. `machines` packs what there is, `work` what wants to run.

mod machines;
mod work;

use crate::options::Facts;
use crate::round::RoundInput;
use machines::Machines;
use saetta_model::cluster::SlotId;
use saetta_model::parallelism::ExecutorId;
use saetta_sdk::snapshot::Writer;
use saetta_sdk::{abi, usage};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use work::Work;

/// Where each executor of a topology is.
pub type Places = BTreeMap<ExecutorId, SlotId>;

/// A snapshot with the way back.
#[derive(Debug, Clone)]
pub struct Packed {
    /// The block.
    pub bytes: Vec<u8>,
    /// Slot table.
    pub slots: Vec<PackedSlot>,
    /// Core table: numbers the operating system gives them.
    pub cores: Vec<u32>,
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
    /// Rows of the cores a worker here gets.
    pub cores: Vec<u32>,
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

/// Time at which a round is packed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    /// Milliseconds since 1970.
    pub wall_ms: i64,
    /// Monotonic nanoseconds of the leader.
    pub monotonic_ns: u64,
}

/// Packs a round. `places` has one entry for each topology of `input`: where its executors are now (those that do not exist
/// any more are left out). `schedule` says which of them the round asks a decision on.
pub fn pack(input: &RoundInput<'_>, places: &[Places], schedule: &[bool], facts: &Facts, clock: Clock) -> Packed {
    assert!(places.len() == input.topologies.len() && schedule.len() == places.len(), "one entry per topology");
    let mut w = Writer::default();
    w.row(&abi::Meta {
        wall_ms: clock.wall_ms,
        monotonic_ns: clock.monotonic_ns,
        leader_term: input.leader_term,
        reason: input.reason.code(),
        min_worker_cpu: facts.min_worker_cpu_milli_pct,
        monitor_period_ms: facts.monitor_period_ms,
        ..Default::default()
    });

    // Topologies by launch, id; who is in which slot.
    let mut order: Vec<usize> = (0..input.topologies.len()).collect();
    order.sort_by_key(|i| (input.topologies[*i].record.submitted_ms, &input.topologies[*i].record.id));
    let work: Vec<Work<'_>> = order.iter().map(|i| Work::new(&input.topologies[*i], *i, &places[*i], schedule[*i])).collect();
    let mut holder: BTreeMap<&SlotId, u32> = BTreeMap::new();
    for (row, i) in order.iter().enumerate() {
        for slot in input.topologies[*i].layout.executors().filter_map(|(_, id)| places[*i].get(&id)) {
            holder.entry(slot).or_insert(row as u32);
        }
    }

    let offered = input.supervisors.values().flat_map(|s| s.resources.generic_milli.keys());
    let asked = work.iter().flat_map(Work::generic_kinds);
    let sure = facts.guarantees.values().flat_map(|of| of.keys()).filter(|k| !matches!(k.as_str(), "cpu" | "memory.mb"));
    let others: BTreeSet<&String> = offered.chain(asked).chain(sure).collect();
    let kinds = Kinds { others: others.into_iter().collect() };
    for name in ["cpu", "memory"].into_iter().chain(kinds.others.iter().map(|k| k.as_str())) {
        let name = w.text(name);
        w.row(&abi::KindRow { name });
    }
    let users = pack_users(&mut w, &kinds, facts, &work);
    let machines = Machines::pack(&mut w, input, places, &holder, &kinds, clock);
    let mut packed = Packed {
        bytes: Vec::new(),
        slots: Vec::new(),
        cores: machines.cores.clone(),
        executors: Vec::new(),
        slot_of_exec: Vec::new(),
        topologies: Vec::new(),
    };
    let mut first_comp = 0;
    for (row, work) in work.iter().enumerate() {
        let user = users.get(work.owner()).copied().unwrap_or(abi::NONE);
        first_comp += work.pack(&mut w, row as u32, user, first_comp, &kinds, &machines, &mut packed);
    }
    packed.slots = machines.slots;
    packed.bytes = usage::finish_with_available(w, input.round_id);
    packed
}

/// The resource kinds of a round.
struct Kinds<'a> {
    /// Besides CPU and memory, by name.
    others: Vec<&'a String>,
}

impl Kinds<'_> {
    fn amounts(&self, cpu_milli_pct: i64, memory_bytes: i64, generic_milli: &BTreeMap<String, i64>) -> Vec<i64> {
        let others = self.others.iter().map(|kind| generic_milli.get(*kind).copied().unwrap_or(0));
        [cpu_milli_pct, memory_bytes].into_iter().chain(others).collect()
    }
}

/// Owners and those that the configuration names; their rows by name.
fn pack_users<'a>(w: &mut Writer, kinds: &Kinds<'_>, facts: &'a Facts, work: &[Work<'a>]) -> BTreeMap<&'a str, u32> {
    let owners = work.iter().map(Work::owner).filter(|o| !o.is_empty());
    let named = facts.guarantees.keys().chain(facts.isolated_nodes.keys()).map(String::as_str);
    let names: BTreeSet<&str> = owners.chain(named).collect();
    let none = BTreeMap::new();
    names
        .into_iter()
        .map(|user| {
            let name = w.text(user);
            let row = w.row(&abi::UserRow { name, max_isolated_nodes: facts.isolated_nodes.get(user).copied().unwrap_or(0), reserved: 0 });
            let sure = facts.guarantees.get(user).unwrap_or(&none);
            let of = |kind: &str| sure.get(kind).copied().unwrap_or(0);
            // Guarantees are stated in thousandths; of memory.mb that is a thousandth of a MiB.
            w.amounts(abi::TABLE_USER_GUARANTEE, &kinds.amounts(of("cpu"), of("memory.mb").saturating_mul(1 << 20) / 1000, sure));
            (user, row)
        })
        .collect()
}
