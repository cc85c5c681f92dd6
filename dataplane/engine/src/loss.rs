//! What is lost with a worker or a link, and which trees fail for it.
//!
//! Before: `links.rs` has seen a link end, or the watchdog knows that an incarnation of a worker is gone. After: `ack.rs` has failed the trees.

use crate::ack::{Acks, Reason, Road};
use crate::core_loop::CoreLoop;
use crate::ledger::Root;
use crate::links::Links;
use saetta_tuple::frame::{ANCHORS_MAX, ANCHORS_SHIFT, BLOCK_BYTES, CONTROL, END, HEADER_BYTES, Header, SAMPLE};

/// Bit of one incarnation of a worker in the masks of inits and acks: its index in the assignment and its start number. Two incarnations may
/// share one: then more trees fail than must.
pub fn worker_bit(index: u32, start: u64) -> u64 {
    1 << (u64::from(index).wrapping_add(start.wrapping_mul(32)) % 64)
}

/// Frames that a link had, or was to have, and that its other end may not have: their trees fail, those of no tree are counted only. Whole
/// frames back to back; of one that was sent in pieces header and blocks are enough, where it is the last of them or its length says so.
/// Returns how many tuples were lost.
#[cold]
pub(crate) fn lose_frames(acks: &mut Acks, frames: &[u8], now_ns: u64) -> u64 {
    let (mut run, mut lost, mut last) = (frames, 0, None);
    while let Some(header) = Header::decode(run) {
        // An end is told again on the next link; control frames have a road and a way to be lost of their own.
        if header.flags & (END | CONTROL) == 0 {
            lost += 1;
            for root in anchors(header, run) {
                // A line of words: one tree, and it fails once.
                if last.replace(root) != Some(root) {
                    acks.fail(root, Reason::LinkLost, "", now_ns);
                }
            }
        }
        run = run.get(header.frame_bytes()..).unwrap_or_default();
    }
    lost
}

/// The trees of the frame that `bytes` begin with.
fn anchors(header: Header, bytes: &[u8]) -> impl Iterator<Item = Root> + '_ {
    let first = HEADER_BYTES + (header.flags & SAMPLE) as usize * BLOCK_BYTES;
    let n = ((header.flags >> ANCHORS_SHIFT) as usize & 7).min(ANCHORS_MAX);
    let blocks = bytes.get(first..).unwrap_or_default().as_chunks::<BLOCK_BYTES>().0;
    blocks.iter().take(n).filter_map(|block| Root::from_bits(u64::from_le_bytes(*block.first_chunk().expect("sixteen bytes"))))
}

impl CoreLoop {
    /// An incarnation of another worker is gone for good: its trees fail, and the links of it and of those before it are closed.
    #[cold]
    pub(crate) fn lose_worker(&mut self, links: &mut Links, placement: u64, start: u64, index: u32) {
        let now_ns = self.io.turn_ns;
        self.io.acks.lose(worker_bit(index, start), now_ns);
        self.forget_trunk(links, placement, start);
        for number in 0..self.io.remotes.len() {
            let remote = &self.io.remotes[number];
            if remote.placement != placement || remote.start.is_none_or(|last| last > start) {
                continue;
            }
            self.lose_incarnation(links, number);
        }
    }

    /// The worker that was last at a loop elsewhere is gone for good.
    pub(crate) fn lose_incarnation(&mut self, links: &mut Links, number: usize) {
        self.close_remote(links, number, true);
        self.io.acks.lose_ledgers(Road::Remote(number as u16), Reason::WorkerLost);
        self.io.acks.lose_owners(Road::Remote(number as u16));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ack::Tracker;
    use crate::ledger::{Edges, Ledger, Slots};
    use saetta_tuple::frame::frame_bytes;

    /// Task 1 opens trees here, and their ledger is here.
    fn acks() -> Acks {
        let (slots, here) = (Slots::new(1, 64, 1_000_000_000, 1), Road::Here(0));
        let trackers = vec![Tracker::new(slots, 64, here)];
        Acks::new(trackers, vec![Ledger::new(1)], vec![Road::None, here], vec![Road::None, here], vec![], vec![], Edges::new(1), true, 1)
    }

    /// A frame of these trees with an archive of so many bytes.
    fn frame(flags: u16, roots: &[Root], archive: usize) -> Vec<u8> {
        let blocks = usize::from(flags & SAMPLE) + roots.len();
        let flags = flags | (roots.len() as u16) << ANCHORS_SHIFT;
        let len = blocks * BLOCK_BYTES + archive;
        let mut bytes = Header { len: len as u32, stream: 0, flags, target: 9, source: 1 }.encode().to_vec();
        bytes.resize(HEADER_BYTES + usize::from(flags & SAMPLE) * BLOCK_BYTES, 0xEE);
        for root in roots {
            bytes.extend_from_slice(&root.to_bits().to_le_bytes());
            bytes.extend_from_slice(&7_u64.to_le_bytes());
        }
        bytes.resize(frame_bytes(len), 0xEE);
        bytes
    }

    fn failed(acks: &mut Acks) -> Vec<u64> {
        let mut ids = Vec::new();
        for (id, why) in acks.trackers[0].failed.drain(..) {
            assert_eq!(why.reason, Reason::LinkLost);
            ids.push(id);
        }
        ids
    }

    #[test]
    fn frames_that_a_link_lost_fail_exactly_their_trees() {
        let mut acks = acks();
        let roots: Vec<Root> = (0..8).map(|id| acks.open(0, id, 0).unwrap()).collect();
        roots.iter().for_each(|root| acks.init(0, *root, 7, 0, 0));
        let run = [
            frame(0, &[], 100),
            frame(0, &roots[..1], 3),
            frame(0, &roots[..1], 3),
            frame(SAMPLE, &roots[2..3], 8),
            frame(END, &[], 0),
            frame(CONTROL, &[], 40),
            frame(SAMPLE, &roots[4..8], 1000),
        ];
        assert_eq!(lose_frames(&mut acks, &run.concat(), 0), 5, "of tuples; ends and control frames are none");
        assert_eq!(failed(&mut acks), [0, 2, 4, 5, 6, 7]);
        assert_eq!(acks.pending(), 2);
        assert_eq!(lose_frames(&mut acks, &run.concat(), 0), 5);
        assert_eq!(failed(&mut acks).len(), 0, "each once");
    }

    #[test]
    fn of_a_frame_sent_in_pieces_header_and_blocks_are_enough() {
        let mut acks = acks();
        let roots: Vec<Root> = (0..3).map(|id| acks.open(0, id, 0).unwrap()).collect();
        roots.iter().for_each(|root| acks.init(0, *root, 7, 0, 0));
        let whole = frame(0, &roots[..1], 10);
        let cut = &frame(SAMPLE, &roots[1..2], 1 << 20)[..HEADER_BYTES + 2 * BLOCK_BYTES];
        assert_eq!(lose_frames(&mut acks, &[&whole[..], cut].concat(), 0), 2);
        assert_eq!(failed(&mut acks), [0, 1]);
        // Torn anywhere, it is counted and what is there is read; nothing panics.
        let torn = frame(SAMPLE, &roots[2..3], 8);
        for n in 0..torn.len() {
            assert_eq!(lose_frames(&mut acks, &torn[..n], 0), u64::from(n >= HEADER_BYTES));
        }
        assert_eq!(failed(&mut acks), [2]);
    }

    #[test]
    fn a_worker_that_starts_again_has_another_bit_and_so_have_31_others() {
        let all: std::collections::HashSet<u64> = (0..32).flat_map(|index| [worker_bit(index, 6), worker_bit(index, 7)]).collect();
        assert_eq!(all.len(), 64);
        assert!(all.iter().all(|bit| bit.count_ones() == 1));
        assert_eq!(worker_bit(u32::MAX, u64::MAX), 1 << ((63 + 32) % 64));
    }
}
