//! What one topology takes on each node. Only one topology is in a worker, so the amounts of several add up.

use super::View;
use saetta_sdk::abi;
use saetta_sdk::snapshot::{BlockId, CompId, KindId};
use std::collections::{BTreeMap, BTreeSet};

/// Amounts by node, one for each kind, as `saetta_sdk::usage` counts them: requests, the least CPU of a worker, shared memory once.
/// Empty where the host knows nothing of resources. Slots are `abi::NONE` or exist. Saturates.
pub fn charged(snapshot: &saetta_sdk::snapshot::Snapshot<'_>, t: usize, slot_of_exec: &[u32]) -> BTreeMap<u32, Vec<i64>> {
    charges(&View::new(snapshot), t, slot_of_exec)
}

pub(super) fn charges(view: &View<'_>, t: usize, slot_of_exec: &[u32]) -> BTreeMap<u32, Vec<i64>> {
    let n_kinds = view.snapshot.kinds().len();
    let mut by_node: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    if n_kinds == 0 {
        return by_node;
    }
    let least = view.snapshot.meta().map_or(0, |m| m.min_worker_cpu);
    let (cpu, memory) = (KindId::CPU.index(), KindId::MEMORY.index());
    let mut requests: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    let mut on_nodes: BTreeSet<(u32, BlockId)> = BTreeSet::new();
    for (slot, execs) in view.workers(t, slot_of_exec) {
        let node = view.slots[slot as usize].node;
        let mut worker = vec![0i64; n_kinds];
        let mut comps: BTreeSet<u32> = BTreeSet::new();
        for e in execs {
            let component = view.execs[e].component;
            comps.insert(component);
            let request = requests.entry(component).or_insert_with(|| view.snapshot.request(CompId(component)).iter().collect());
            for (sum, amount) in worker.iter_mut().zip(request) {
                *sum = sum.saturating_add(*amount);
            }
        }
        worker[cpu] = worker[cpu].max(least);
        let blocks: BTreeMap<BlockId, abi::SharedMemRow> = comps.iter().flat_map(|c| view.snapshot.blocks_of(CompId(*c))).collect();
        for (id, block) in blocks {
            let once = if on_nodes.insert((node, id)) { block.off_heap_node } else { 0 };
            worker[memory] = worker[memory].saturating_add(block.on_heap).saturating_add(block.off_heap_worker).saturating_add(once);
        }
        let sums = by_node.entry(node).or_insert_with(|| vec![0; n_kinds]);
        for (sum, amount) in sums.iter_mut().zip(worker) {
            *sum = sum.saturating_add(amount);
        }
    }
    by_node
}

/// On-heap memory of one worker: its executors', and each shared block once.
pub(super) fn heap(view: &View<'_>, execs: &[usize]) -> i64 {
    let comps: BTreeSet<u32> = execs.iter().map(|e| view.execs[*e].component).collect();
    let blocks: BTreeMap<BlockId, i64> =
        comps.iter().flat_map(|c| view.snapshot.blocks_of(CompId(*c))).map(|(id, block)| (id, block.on_heap)).collect();
    let own = execs.iter().map(|e| view.components[view.execs[*e].component as usize].on_heap);
    own.chain(blocks.into_values()).fold(0, i64::saturating_add)
}
