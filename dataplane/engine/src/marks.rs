//! What an input hands on to everything emitted from it: its sample stamps and its anchors.
//!
//! Before: a frame's blocks. After: the blocks of emitted frames, and for each anchor the XOR that its ack carries.

use crate::ledger::{Edges, Root};
use saetta_tuple::frame::{ANCHORS_MASK, ANCHORS_MAX, ANCHORS_SHIFT, BLOCKS_MAX, Block, Frame, SAMPLE};

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
}

/// Edges of one frame, by anchor.
pub(crate) type FrameEdges = [u64; ANCHORS_MAX];

impl Marks {
    pub(crate) const NONE: Marks = Marks { flags: 0, mask: 0, roots: [0; ANCHORS_MAX], xors: [0; ANCHORS_MAX], birth_ns: 0, sent_ns: 0 };

    /// Those of a frame that has one anchor and nothing else.
    #[inline(always)]
    pub(crate) fn read_only(&mut self, frame: &Frame<'_>) {
        self.flags = ONE_ANCHOR;
        self.mask = 0;
        [self.roots[0], self.xors[0]] = frame.block(0);
    }

    /// Adds the edge of a frame whose only anchor is ours, neither having anything else. False = it is not so.
    #[inline(always)]
    pub(crate) fn take_in(&mut self, frame: &Frame<'_>) -> bool {
        if self.flags != ONE_ANCHOR || frame.header.flags != ONE_ANCHOR {
            return false;
        }
        let [root, edge] = frame.block(0);
        if root != self.roots[0] {
            return false;
        }
        self.xors[0] ^= edge;
        true
    }

    /// Those of a frame.
    pub(crate) fn read(&mut self, frame: &Frame<'_>) {
        self.flags = frame.header.flags & (SAMPLE | ANCHORS_MASK);
        self.mask = 0;
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
        std::mem::replace(self, Marks::NONE)
    }

    /// Marks for a part of the input that is settled by itself: each tree is complete when both are.
    #[cold]
    pub(crate) fn split(&mut self, edges: &mut Edges) -> Marks {
        let part = Marks { xors: self.new_edges(edges), mask: 0, ..*self };
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
