//! What the placed executors of a snapshot take on each node: the host's arithmetic, and the one that a scheduler's own must agree with.
//!
//! A worker takes the sum of its executors' requests, each shared block of its components once, and at least the cluster's least CPU of a
//! worker. A node is also charged each block's per-node part once. Pure; O(executors log executors).

use crate::snapshot::{CompId, KindId, NodeId, SlotId, Snapshot};
use saetta_abi as abi;
use std::collections::BTreeSet;

/// Amounts taken, node by node, one for each kind. Saturates instead of overflowing.
pub fn taken(snapshot: &Snapshot<'_>) -> Vec<Vec<i64>> {
    let n_kinds = snapshot.kinds().len();
    let mut taken = vec![vec![0i64; n_kinds]; snapshot.nodes().len()];
    if n_kinds == 0 {
        return taken;
    }
    let node_of: Vec<u32> = snapshot.slots().iter().map(|s| s.node).collect();
    let requests: Vec<Vec<i64>> = (0..snapshot.components().len()).map(|c| snapshot.request(CompId(c as u32)).iter().collect()).collect();
    let mut worker_cpu = vec![None; node_of.len()];
    let mut comps_in = BTreeSet::new();
    for e in snapshot.executors().iter() {
        let Some(slot) = SlotId::some(e.slot) else { continue };
        let request = &requests[e.component as usize];
        for (sum, amount) in taken[node_of[slot.index()] as usize].iter_mut().zip(request) {
            *sum = sum.saturating_add(*amount);
        }
        let cpu: &mut Option<i64> = &mut worker_cpu[slot.index()];
        *cpu = Some(cpu.unwrap_or(0).saturating_add(request[KindId::CPU.index()]));
        comps_in.insert((slot, e.component));
    }
    let least = snapshot.meta().map_or(0, |m| m.min_worker_cpu);
    for (node, cpu) in node_of.iter().zip(worker_cpu) {
        let missing = cpu.map_or(0, |cpu| (least - cpu).max(0));
        let sum = &mut taken[*node as usize][KindId::CPU.index()];
        *sum = sum.saturating_add(missing);
    }
    let (mut in_workers, mut on_nodes) = (BTreeSet::new(), BTreeSet::new());
    for (slot, component) in comps_in {
        for (id, block) in snapshot.blocks_of(CompId(component)) {
            let node = node_of[slot.index()];
            let worker = if in_workers.insert((slot, id)) { block.on_heap.saturating_add(block.off_heap_worker) } else { 0 };
            let once = if on_nodes.insert((node, id)) { block.off_heap_node } else { 0 };
            let sum = &mut taken[node as usize][KindId::MEMORY.index()];
            *sum = sum.saturating_add(worker).saturating_add(once);
        }
    }
    taken
}

/// Rows of `abi::TABLE_NODE_AVAIL`: what is left, never negative.
pub fn available(snapshot: &Snapshot<'_>) -> Vec<Vec<i64>> {
    let left = |(node, taken): (usize, Vec<i64>)| {
        let total = snapshot.node_total(NodeId(node as u32));
        total.iter().zip(taken).map(|(total, taken)| total.saturating_sub(taken).max(0)).collect()
    };
    taken(snapshot).into_iter().enumerate().map(left).collect()
}

/// Adds `abi::TABLE_NODE_AVAIL` to a snapshot that has everything else, and ends it.
pub fn finish_with_available(mut writer: crate::snapshot::Writer, round_id: u64) -> Vec<u8> {
    let without = writer.clone().finish(round_id);
    let snapshot = Snapshot::new(&without).expect("a writer that keeps the canonical order makes a snapshot");
    available(&snapshot).iter().for_each(|row| {
        writer.amounts(abi::TABLE_NODE_AVAIL, row);
    });
    writer.finish(round_id)
}
