//! What an input hands on to everything emitted from it: its sample stamps and its anchors.
//!
//! Before: a frame's blocks. After: the blocks of emitted frames, and for each anchor the XOR that its ack carries.

use crate::io::NOWHERE;
use crate::ledger::{Edges, Root};
use saetta_tuple::frame::{ANCHORS_MASK, ANCHORS_MAX, ANCHORS_SHIFT, BLOCK_BYTES, BLOCKS_MAX, Block, Frame, HEADER_BYTES, Header, SAMPLE};

/// The flags of one anchor and nothing else: what nearly every frame of a tracked topology has.
pub(crate) const ONE_ANCHOR: u16 = 1 << ANCHORS_SHIFT;

/// The marks of the input being handled, or of the tree a spout begins. Without any, `flags` is 0.
#[derive(Clone, Copy)]
pub(crate) struct Marks {
    /// As in the header of frames emitted now.
    pub(crate) flags: u16,
    /// Workers that frames emitted from it went to.
    mask: u64,
    /// By anchor.
    roots: [u64; ANCHORS_MAX],
    /// By anchor: the input's edge and all edges emitted from it.
    xors: [u64; ANCHORS_MAX],
    birth_ns: u64,
    sent_ns: u64,
    heir: Heir,
}

/// The frame emitted last, if it has one anchor and may still lie where it was written: see [`Marks::bequeath`].
#[derive(Clone, Copy)]
struct Heir {
    /// The place in whose staging it lies, or `NOWHERE`.
    at: u16,
    /// Where its edge stands there, and where the staging ended behind it.
    edge_at: u32,
    end: u32,
}

impl Heir {
    const NONE: Heir = Heir { at: NOWHERE, edge_at: 0, end: 0 };
}

/// Edges of one frame, by anchor.
pub(crate) type FrameEdges = [u64; ANCHORS_MAX];

impl Marks {
    pub(crate) const NONE: Marks =
        Marks { flags: 0, mask: 0, roots: [0; ANCHORS_MAX], xors: [0; ANCHORS_MAX], birth_ns: 0, sent_ns: 0, heir: Heir::NONE };

    /// Those of a frame that has one anchor and nothing else.
    #[inline(always)]
    pub(crate) fn read_only(&mut self, frame: &Frame<'_>) {
        self.flags = ONE_ANCHOR;
        self.mask = 0;
        self.heir = Heir::NONE;
        [self.roots[0], self.xors[0]] = frame.block(0);
    }

    /// True when the frame that `window` begins with has one anchor and nothing else, and it is our only one.
    #[inline(always)]
    pub(crate) fn are_of(&self, window: &[u8]) -> bool {
        let root = window.get(HEADER_BYTES..).and_then(|blocks| blocks.first_chunk());
        root.is_some_and(|root| u64::from_le_bytes(*root) == self.roots[0]) && Header::decode(window).is_some_and(|h| h.flags == ONE_ANCHOR)
    }

    /// Adds the edge of a frame that they are of.
    #[inline(always)]
    pub(crate) fn take_in(&mut self, frame: &Frame<'_>) {
        self.xors[0] ^= frame.block(0)[1];
    }

    /// Those of a frame.
    pub(crate) fn read(&mut self, frame: &Frame<'_>) {
        self.flags = frame.header.flags & (SAMPLE | ANCHORS_MASK);
        self.mask = 0;
        self.heir = Heir::NONE;
        let first = (self.flags & SAMPLE) as usize;
        if first == 1 {
            [self.birth_ns, self.sent_ns] = frame.block(0);
        }
        for n in 0..self.anchors() {
            [self.roots[n], self.xors[n]] = frame.block(first + n);
        }
    }

    #[inline(always)]
    fn anchors(&self) -> usize {
        (self.flags >> ANCHORS_SHIFT) as usize & 7
    }

    #[inline(always)]
    pub(crate) fn is_sampled(&self) -> bool {
        self.flags & SAMPLE != 0
    }

    #[inline(always)]
    pub(crate) fn is_anchored(&self) -> bool {
        self.flags & ANCHORS_MASK != 0
    }

    /// The block of a single anchor, with the edge of the frame being written.
    #[inline(always)]
    pub(crate) fn only_block(&self, edge: u64) -> Block {
        [self.roots[0], edge]
    }

    /// All blocks as they stand before the archive, with the edges of the frame being written, and how many they are.
    pub(crate) fn blocks(&self, edges: &FrameEdges) -> ([Block; BLOCKS_MAX], usize) {
        let mut blocks = [[0; 2]; BLOCKS_MAX];
        let first = (self.flags & SAMPLE) as usize;
        blocks[0] = [self.birth_ns, self.sent_ns];
        for n in 0..self.anchors() {
            blocks[first + n] = [self.roots[n], edges[n]];
        }
        (blocks, first + self.anchors())
    }

    /// A fresh edge for each anchor, for the next frame. They count once the frame went: [`Self::sent`].
    pub(crate) fn new_edges(&mut self, edges: &mut Edges) -> FrameEdges {
        let mut new = [0; ANCHORS_MAX];
        new[..self.anchors()].fill_with(|| edges.edge());
        new
    }

    /// A frame with these edges went to a place of the worker that `bit` stands for.
    pub(crate) fn sent(&mut self, edges: FrameEdges, bit: u64) {
        for (xor, edge) in self.xors.iter_mut().zip(edges) {
            *xor ^= edge;
        }
        self.mask |= bit;
        self.heir = Heir::NONE;
    }

    /// A frame that was told to [`Self::sent_only`] lies in the staging of place `at`, its blocks from `blocks_at` on, and nothing behind it.
    #[inline(always)]
    pub(crate) fn lies_at(&mut self, at: u16, blocks_at: usize, end: usize) {
        self.heir = Heir { at, edge_at: (blocks_at + BLOCK_BYTES / 2) as u32, end: end as u32 };
    }

    /// An input whose frames all stay in this worker need not be acked: the last of them takes over what its ack would say, the XOR of its edge
    /// and of those of the others, so that their acks together are its own. True = done, and the input is settled. Its tree cannot complete
    /// any earlier: until the last frame is acked, the ledger misses what only that frame knows. `staging` gives the bytes staged for a place
    /// of this worker, and the worker's bit; it has not been moved on if it ends where it did. An ack that names any other worker is
    /// sent: the ledger must know where the tree has been, and that this worker has it is known, since somebody sent the input here.
    #[inline(always)]
    pub(crate) fn bequeath<'s>(&mut self, staging: impl FnOnce(u16) -> Option<(&'s mut [u8], u64)>) -> bool {
        let Heir { at, edge_at, end } = self.heir;
        if at == NOWHERE {
            return false;
        }
        let Some((frames, bit)) = staging(at) else { return false };
        if frames.len() != end as usize || self.mask & !bit != 0 {
            return false;
        }
        let Some(edge) = frames[edge_at as usize..].first_chunk_mut() else { return false };
        // Its own edge is in `xors` as well.
        *edge = (u64::from_le_bytes(*edge) ^ self.xors[0]).to_le_bytes();
        true
    }

    /// As [`Self::sent`], with a single anchor.
    #[inline(always)]
    pub(crate) fn sent_only(&mut self, edge: u64, bit: u64) {
        self.xors[0] ^= edge;
        self.mask |= bit;
    }

    /// A spout's tree begins.
    #[inline(always)]
    pub(crate) fn begin_tree(&mut self, root: Root) {
        self.flags = self.flags & SAMPLE | ONE_ANCHOR;
        self.roots[0] = root.to_bits();
        self.xors[0] = 0;
        self.mask = 0;
        self.heir = Heir::NONE;
    }

    /// The tree's edges and the workers they went to; the sample stays.
    #[inline(always)]
    pub(crate) fn end_tree(&mut self) -> (u64, u64) {
        self.flags &= SAMPLE;
        (self.xors[0], self.mask)
    }

    /// (root, xor) of the first anchor, of one that is anchored.
    #[inline(always)]
    pub(crate) fn first(&self) -> Option<(Root, u64)> {
        Some((Root::from_bits(self.roots[0])?, self.xors[0]))
    }

    /// (root, xor) of each anchor.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Root, u64)> + '_ {
        (0..self.anchors()).filter_map(move |n| Some((Root::from_bits(self.roots[n])?, self.xors[n])))
    }

    #[inline(always)]
    pub(crate) fn mask(&self) -> u64 {
        self.mask
    }

    /// Frames of it that waited went to these workers.
    pub(crate) fn add_mask(&mut self, bits: u64) {
        self.mask |= bits;
    }

    /// Nanoseconds of the spout's emit, if sampled.
    pub(crate) fn birth_ns(&self) -> Option<u64> {
        self.is_sampled().then_some(self.birth_ns)
    }

    /// Nanoseconds of the emit before this hop, if sampled.
    pub(crate) fn sent_ns(&self) -> Option<u64> {
        self.is_sampled().then_some(self.sent_ns)
    }

    /// From now on sampled, born at `birth_ns`.
    pub(crate) fn sample(&mut self, birth_ns: u64) {
        self.flags |= SAMPLE;
        (self.birth_ns, self.sent_ns) = (birth_ns, birth_ns);
    }

    /// No longer sampled.
    pub(crate) fn unsample(&mut self) {
        self.flags &= !SAMPLE;
    }

    /// When the frame being written leaves.
    pub(crate) fn stamp_sent(&mut self, now_ns: u64) {
        self.sent_ns = now_ns;
    }

    /// Takes the marks away: whoever holds them settles them.
    pub(crate) fn leave(&mut self) -> Marks {
        // What is emitted meanwhile, in the name of others, may lie where the heir lay.
        Marks { heir: Heir::NONE, ..std::mem::replace(self, Marks::NONE) }
    }

    /// Marks for a part of the input that is settled by itself: each tree is complete when both are.
    #[cold]
    pub(crate) fn split(&mut self, edges: &mut Edges) -> Marks {
        let part = Marks { xors: self.new_edges(edges), mask: 0, heir: Heir::NONE, ..*self };
        self.sent(part.xors, 0);
        part
    }

    /// Joins the anchors of `other`: each root once, edges of both kept apart by whoever holds them. False = more than four.
    pub(crate) fn join(&mut self, other: &Marks) -> bool {
        for (root, _) in other.each() {
            if self.each().any(|(mine, _)| mine == root) {
                continue;
            }
            let n = self.anchors();
            if n == ANCHORS_MAX {
                return false;
            }
            self.roots[n] = root.to_bits();
            self.xors[n] = 0;
            self.flags += ONE_ANCHOR;
        }
        true
    }

    /// XORs into the anchor of `root`, if there is one; true = there was.
    pub(crate) fn add_edges(&mut self, root: Root, xor: u64, mask: u64) -> bool {
        let at = self.each().position(|(mine, _)| mine == root);
        if let Some(at) = at {
            self.xors[at] ^= xor;
            self.mask |= mask;
        }
        at.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: u64 = 1 << 3;
    const ELSEWHERE: u64 = 1 << 4;
    const PLACE: u16 = 1;
    const OWN_EDGE: u64 = 0x0F;

    /// Marks of an input with one anchor.
    fn input() -> Marks {
        let mut marks = Marks::NONE;
        marks.begin_tree(Root::from_bits(1 << 44 | 7).unwrap());
        marks.sent_only(OWN_EDGE, 0);
        marks
    }

    /// Emits a frame with that edge to a place of this worker: its block ends what is staged.
    fn emit_here(marks: &mut Marks, staged: &mut Vec<u8>, edge: u64) {
        let start = staged.len();
        staged.extend_from_slice(&[0; HEADER_BYTES + BLOCK_BYTES / 2]);
        staged.extend_from_slice(&edge.to_le_bytes());
        marks.sent_only(edge, HERE);
        marks.lies_at(PLACE, start + HEADER_BYTES, staged.len());
    }

    fn bequeath(marks: &mut Marks, staged: &mut [u8]) -> bool {
        marks.bequeath(|at| (at == PLACE).then_some((staged, HERE)))
    }

    #[test]
    fn the_last_frame_takes_over_the_ack_of_an_input_that_stays_in_its_worker() {
        let (mut marks, mut staged) = (input(), Vec::new());
        emit_here(&mut marks, &mut staged, 0x30);
        emit_here(&mut marks, &mut staged, 0x50);
        assert!(bequeath(&mut marks, &mut staged));
        let edge = u64::from_le_bytes(*staged.last_chunk().unwrap());
        assert_eq!(edge, OWN_EDGE ^ 0x30, "what the ledger is owed besides the first frame's edge");
    }

    #[test]
    fn an_ack_that_names_another_worker_is_not_taken_over() {
        let (mut marks, mut staged) = (input(), Vec::new());
        marks.sent_only(0x30, ELSEWHERE);
        emit_here(&mut marks, &mut staged, 0x50);
        let before = staged.clone();
        assert!(!bequeath(&mut marks, &mut staged), "an earlier frame left the worker");
        assert_eq!(staged, before);
        // Nor is one whose frame left by the general way, or went to where a deferred input's did.
        let (mut marks, mut staged) = (input(), Vec::new());
        marks.sent([0x30, 0, 0, 0], ELSEWHERE);
        emit_here(&mut marks, &mut staged, 0x50);
        assert!(!bequeath(&mut marks, &mut staged));
        let (mut marks, mut staged) = (input(), Vec::new());
        emit_here(&mut marks, &mut staged, 0x50);
        marks.add_mask(ELSEWHERE);
        assert!(!bequeath(&mut marks, &mut staged));
    }

    #[test]
    fn a_last_frame_that_left_the_worker_takes_nothing_over() {
        let (mut marks, mut staged) = (input(), Vec::new());
        emit_here(&mut marks, &mut staged, 0x50);
        marks.sent_only(0x30, ELSEWHERE);
        marks.lies_at(PLACE + 1, HEADER_BYTES, HEADER_BYTES + BLOCK_BYTES);
        assert!(!bequeath(&mut marks, &mut staged));
    }
}
