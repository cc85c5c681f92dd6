//! Acks that wait together: those of one root become one.
//!
//! Before: a tuple's inputs were acked on a loop that does not hold their ledger. After: the entries leave as one control message. XOR is
//! commutative, so the merged entry does to the ledger what its parts would have done, and waiting is only a reordering.
//! A fail is not merged here: it is sent as it is.

use super::root::Root;

/// Entries a new ack is compared with, the newest ones. A run of tuples of one tree comes in a row or, over a few outputs, interleaved.
const LOOK_BACK: usize = 4;

/// What an ack does to one tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AckEntry {
    /// The tree.
    pub(crate) root: Root,
    /// Input edge and the edges emitted from it.
    pub(crate) xor: u64,
    /// Incarnations those edges were sent to.
    pub(crate) mask: u64,
}

/// Waiting acks, bounded. Allocates when made, never after.
#[derive(Debug)]
pub(crate) struct AckBatch {
    /// At most `entries_max`, which is its capacity.
    entries: Vec<AckEntry>,
    entries_max: usize,
}

impl AckBatch {
    /// Room for `entries_max` trees, at least 1.
    pub(crate) fn new(entries_max: usize) -> AckBatch {
        assert!(entries_max > 0, "a batch without room never leaves");
        AckBatch { entries: Vec::with_capacity(entries_max), entries_max }
    }

    /// Adds an ack. False, and nothing changed, when there is no room: send [`Self::entries`], then [`Self::clear`].
    #[inline]
    #[must_use]
    pub(crate) fn push(&mut self, root: Root, xor: u64, mask: u64) -> bool {
        for entry in self.entries.iter_mut().rev().take(LOOK_BACK) {
            if entry.root == root {
                entry.xor ^= xor;
                entry.mask |= mask;
                return true;
            }
        }
        if self.entries.len() == self.entries_max {
            return false;
        }
        self.entries.push(AckEntry { root, xor, mask });
        true
    }

    /// Oldest first. One whose XOR became 0 must be sent too: its mask counts.
    pub(crate) fn entries(&self) -> &[AckEntry] {
        &self.entries
    }

    /// True when nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// True when the next ack of another tree finds no room.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() == self.entries_max
    }

    /// After they were sent.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Edges, Ledger, Step};
    use super::*;

    fn root(slot: u32) -> Root {
        Root::of(1, slot, 9)
    }

    #[test]
    fn acks_of_one_root_become_one() {
        let mut batch = AckBatch::new(8);
        assert!(batch.is_empty());
        for (slot, xor, mask) in [(1, 5, 1), (2, 6, 2), (1, 9, 4), (2, 6, 0)] {
            assert!(batch.push(root(slot), xor, mask));
        }
        let merged = [AckEntry { root: root(1), xor: 5 ^ 9, mask: 5 }, AckEntry { root: root(2), xor: 0, mask: 2 }];
        assert_eq!(batch.entries(), merged);
        batch.clear();
        assert!(batch.is_empty());
    }

    #[test]
    fn a_full_batch_takes_only_what_it_can_merge() {
        let mut batch = AckBatch::new(2);
        assert!(batch.push(root(1), 1, 0) && batch.push(root(2), 2, 0));
        assert!(batch.is_full());
        assert!(!batch.push(root(3), 3, 0));
        assert!(batch.push(root(1), 4, 0));
        assert_eq!(batch.entries().iter().map(|e| e.xor).collect::<Vec<_>>(), [5, 2]);
    }

    #[test]
    fn a_root_further_back_than_the_look_is_told_twice() {
        let mut batch = AckBatch::new(64);
        for slot in [0, 1, 2, 3, 4, 0] {
            assert!(batch.push(root(slot), 1, 0));
        }
        assert_eq!(batch.entries().len(), 6);
    }

    /// Random acks to few trees, told one by one and merged: every tree ends the same way, or stays open with the same sums.
    #[test]
    fn merged_acks_do_what_single_ones_do() {
        for seed in 0..2_000 {
            let mut random = Edges::new(seed);
            let (mut single, mut merged) = (Ledger::new(1), Ledger::new(1));
            let mut batch = AckBatch::new(1 + (random.bits() % 12) as usize);
            let mut ends = [Vec::new(), Vec::new()];
            let lost = random.bits() & random.bits() & random.bits();
            for ledger in [&mut single, &mut merged] {
                ledger.lose(lost, u64::MAX, |_| ());
            }
            let mut owed: Vec<u64> = (0..8).map(|_| random.edge()).collect();
            let mut tell = |which: usize, root: Root, step: Step| {
                if matches!(step, Step::Complete | Step::Failed) {
                    ends[which].push((root, step));
                }
            };
            for slot in 0..8 {
                tell(0, root(slot), single.init(root(slot), owed[slot as usize], 0));
                tell(1, root(slot), merged.init(root(slot), owed[slot as usize], 0));
            }
            for _ in 0..random.bits() % 64 {
                let slot = (random.bits() % 8) as usize;
                if owed[slot] == 0 {
                    continue;
                }
                // An ack pays what is owed and owes something new, or, at last, nothing.
                let new = if random.one_in(3) { 0 } else { random.edge() };
                let (xor, mask) = (owed[slot] ^ new, 1 << (random.bits() % 64));
                owed[slot] = new;
                let root = root(slot as u32);
                tell(0, root, single.ack(root, xor, mask));
                if !batch.push(root, xor, mask) {
                    batch.entries().iter().for_each(|e| tell(1, e.root, merged.ack(e.root, e.xor, e.mask)));
                    batch.clear();
                    assert!(batch.push(root, xor, mask));
                }
            }
            batch.entries().iter().for_each(|e| tell(1, e.root, merged.ack(e.root, e.xor, e.mask)));
            for row in &mut ends {
                row.sort_by_key(|(root, _)| root.to_bits());
            }
            assert_eq!(ends[0], ends[1], "seed {seed}");
        }
    }
}
