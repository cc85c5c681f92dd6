//! The packed snapshot as bytes: where its tables lie, a hash of what a scheduler looks at, marks written over its nodes.
//!
//! Before: `pack` made the block, or a recorded round holds it. Only blocks that `Snapshot::new` accepted come here.

use saetta_sdk::abi::{self, Field, Row};
use sha2::{Digest, Sha256};

/// First byte, stride and rows of a table; `None` = it has none.
fn table(bytes: &[u8], id: u32) -> Option<(usize, usize, usize)> {
    let header = abi::Header::read(bytes.get(..abi::Header::SIZE)?);
    let stride = header.dir_stride as usize;
    let dir = bytes.get(header.dir_off as usize..)?;
    let entry = dir.chunks_exact(stride.max(1)).take(header.n_tables as usize).map(abi::DirEntry::read).find(|e| e.table_id == id)?;
    Some((entry.off as usize, entry.stride as usize, entry.count as usize))
}

/// Hash of the cluster as it is: without the round's number, its reason and its time, and how long nodes have been up.
pub(crate) fn generation(bytes: &[u8]) -> [u8; 32] {
    let mut masked = bytes.to_vec();
    let round_id = std::mem::offset_of!(abi::Header, round_id);
    if let Some(field) = masked.get_mut(round_id..round_id + 8) {
        field.fill(0);
    }
    if let Some((off, stride, count)) = table(bytes, abi::TABLE_META) {
        masked[off..off + stride * count].fill(0);
    }
    if let Some((off, stride, count)) = table(bytes, abi::TABLE_NODES) {
        let at = off + std::mem::offset_of!(abi::NodeRow, uptime_s);
        (0..count).for_each(|node| masked[at + node * stride..][..8].fill(0));
    }
    Sha256::digest(&masked).into()
}

/// Writes flags over the node table: one for each node. Only the bits of a health stage are taken.
pub(crate) fn mark_nodes(bytes: &mut [u8], flags_of_node: &[u32]) {
    const MARKS: u32 = abi::NODE_BLACKLISTED | abi::NODE_GREYLISTED;
    let Some((off, stride, count)) = table(bytes, abi::TABLE_NODES) else { return };
    let at = std::mem::offset_of!(abi::NodeRow, flags);
    for (node, flags) in (0..count).zip(flags_of_node) {
        let field = &mut bytes[off + node * stride + at..][..4];
        let merged = u32::get(field) & !MARKS | flags & MARKS;
        merged.put(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use saetta_sdk::snapshot::{Snapshot, Writer};

    fn block(round_id: u64, wall_ms: i64, port: u32) -> Vec<u8> {
        let mut w = Writer::default();
        w.row(&abi::Meta { wall_ms, ..Default::default() });
        let id = w.text("n");
        w.row(&abi::Rack { id, first_host: 0, n_hosts: 1 });
        w.row(&abi::HostRow { name: id, n_nodes: 2, ..Default::default() });
        w.row(&abi::NodeRow { id, n_slots: 1, flags: abi::NODE_GONE, uptime_s: wall_ms as u64, ..Default::default() });
        w.row(&abi::NodeRow { id, first_slot: 1, ..Default::default() });
        w.row(&abi::SlotRow { port, topology: abi::NONE, ..Default::default() });
        w.finish(round_id)
    }

    #[test]
    fn the_same_cluster_at_another_time_is_the_same_generation() {
        assert_eq!(generation(&block(1, 5, 6700)), generation(&block(2, 9, 6700)));
        assert_ne!(generation(&block(1, 5, 6700)), generation(&block(1, 5, 6701)));
    }

    #[test]
    fn marks_change_only_what_a_health_stage_may_say() {
        let mut bytes = block(1, 1, 1);
        mark_nodes(&mut bytes, &[abi::NODE_BLACKLISTED, abi::NODE_GREYLISTED | abi::NODE_GONE]);
        let snapshot = Snapshot::new(&bytes).unwrap();
        let flags: Vec<u32> = snapshot.nodes().iter().map(|n| n.flags).collect();
        assert_eq!(flags, [abi::NODE_GONE | abi::NODE_BLACKLISTED, abi::NODE_GREYLISTED]);
        mark_nodes(&mut bytes, &[0, 0]);
        assert_eq!(bytes, block(1, 1, 1));
    }
}
