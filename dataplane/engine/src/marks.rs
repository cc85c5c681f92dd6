//! What an input hands on to everything emitted from it: its sample stamps and its anchors.
//!
//! Before: a frame's blocks. After: the blocks of emitted frames, and for each anchor the XOR that its ack carries.

use crate::ledger::{Edges, Root};
use saetta_tuple::frame::{ANCHORS_MASK, ANCHORS_MAX, ANCHORS_SHIFT, BLOCKS_MAX, Block, Frame, SAMPLE};

/// The marks of the input being handled, or of the tree a spout begins. Without any, `flags` is 0.
#[derive(Clone, Copy)]
pub(crate) struct Marks {
    /// As in the header of frames emitted now.
    pub(crate) flags: u16,
    /// The sample block if `flags` say so, then the anchors: root, and the edge of the frame being written.
    blocks: [Block; BLOCKS_MAX],
    /// By anchor: the input's edge and all edges emitted from it.
    xors: [u64; ANCHORS_MAX],
    /// Workers that frames emitted from it went to.
    mask: u64,
}

/// Edges of one frame, by anchor.
pub(crate) type FrameEdges = [u64; ANCHORS_MAX];

impl Marks {
    pub(crate) const NONE: Marks = Marks { flags: 0, blocks: [[0; 2]; BLOCKS_MAX], xors: [0; ANCHORS_MAX], mask: 0 };

    /// Those of a frame.
    #[inline]
    pub(crate) fn read(&mut self, frame: &Frame<'_>) {
        let flags = frame.header.flags;
        self.flags = flags & (SAMPLE | ANCHORS_MASK);
        self.mask = 0;
        let first = (flags & SAMPLE) as usize;
        if first == 1 {
            self.blocks[0] = frame.block(0);
        }
        for n in 0..self.anchors() {
            let [root, edge] = frame.block(first + n);
            self.blocks[first + n] = [root, 0];
            self.xors[n] = edge;
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

    /// All blocks, as they stand before the archive.
    #[inline(always)]
    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks[..saetta_tuple::frame::blocks_of(self.flags)]
    }

    /// The anchor blocks alone.
    pub(crate) fn anchor_blocks(&self) -> &[Block] {
        &self.blocks()[(self.flags & SAMPLE) as usize..]
    }

    /// A fresh edge for each anchor, for the next frame. They count once the frame went: [`Self::sent`].
    #[inline(always)]
    pub(crate) fn new_edges(&mut self, edges: &mut Edges) -> FrameEdges {
        let first = (self.flags & SAMPLE) as usize;
        let mut new = [0; ANCHORS_MAX];
        for (n, new) in new.iter_mut().enumerate().take(self.anchors()) {
            *new = edges.edge();
            self.blocks[first + n][1] = *new;
        }
        new
    }

    /// A frame with these edges went to a place of the worker that `bit` stands for.
    #[inline(always)]
    pub(crate) fn sent(&mut self, edges: FrameEdges, bit: u64) {
        for (xor, edge) in self.xors.iter_mut().zip(edges) {
            *xor ^= edge;
        }
        self.mask |= bit;
    }

    /// A spout's tree begins.
    #[inline(always)]
    pub(crate) fn begin_tree(&mut self, root: Root) {
        let first = (self.flags & SAMPLE) as usize;
        self.flags = self.flags & SAMPLE | 1 << ANCHORS_SHIFT;
        self.blocks[first] = [root.to_bits(), 0];
        self.xors = [0; ANCHORS_MAX];
        self.mask = 0;
    }

    /// The tree's edges and the workers they went to; the sample stays.
    #[inline(always)]
    pub(crate) fn end_tree(&mut self) -> (u64, u64) {
        self.flags &= SAMPLE;
        (self.xors[0], self.mask)
    }

    /// (root, xor) of each anchor.
    #[inline(always)]
    pub(crate) fn each(&self) -> impl Iterator<Item = (Root, u64)> + '_ {
        let first = (self.flags & SAMPLE) as usize;
        (0..self.anchors()).filter_map(move |n| Some((Root::from_bits(self.blocks[first + n][0])?, self.xors[n])))
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
        self.is_sampled().then_some(self.blocks[0][0])
    }

    /// From now on sampled, born at `birth_ns`.
    pub(crate) fn sample(&mut self, birth_ns: u64) {
        if !self.is_sampled() {
            self.blocks.copy_within(0..ANCHORS_MAX, 1);
            self.flags |= SAMPLE;
        }
        self.blocks[0] = [birth_ns, birth_ns];
    }

    /// No longer sampled.
    pub(crate) fn unsample(&mut self) {
        if self.is_sampled() {
            self.blocks.copy_within(1.., 0);
            self.flags &= !SAMPLE;
        }
    }

    /// When the frame being written leaves.
    pub(crate) fn stamp_sent(&mut self, now_ns: u64) {
        self.blocks[0][1] = now_ns;
    }

    /// Takes the marks away: whoever holds them settles them.
    #[inline]
    pub(crate) fn leave(&mut self) -> Marks {
        std::mem::replace(self, Marks::NONE)
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
            let first = (self.flags & SAMPLE) as usize;
            self.blocks[first + n] = [root.to_bits(), 0];
            self.xors[n] = 0;
            self.flags += 1 << ANCHORS_SHIFT;
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
