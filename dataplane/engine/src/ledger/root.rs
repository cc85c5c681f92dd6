//! The name of a tree: who owns it, in which slot, for the how-manyeth time.
//!
//! Before: `slots.rs` makes it. After: it travels in frames and ack messages as a u64 and finds its entry without a search.

/// Bits of the owner's task id, the high ones.
pub(crate) const OWNER_BITS: u32 = 20;
/// Bits of the slot.
pub(crate) const SLOT_BITS: u32 = 20;
/// Bits of the generation, the low ones.
pub(crate) const GENERATION_BITS: u32 = 24;
/// Slots one owner can have, and with it trees pending at once.
pub(crate) const SLOTS_MAX: u32 = 1 << SLOT_BITS;
/// A generation is `n & GENERATION_MASK`: after the last one comes 0.
pub(crate) const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;

const _: () = assert!(OWNER_BITS + SLOT_BITS + GENERATION_BITS == 64);

/// One tree. Never 0, because task ids start at 1. Two trees of one slot carry the same root only 2^24 openings of that slot apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Root(u64);

impl Root {
    /// Owner 1 ..= 2^20 - 1; slot and generation below their bounds. The caller keeps to them: `Slots` checks its owner once.
    #[inline(always)]
    pub(crate) fn new(owner: u32, slot: u32, generation: u32) -> Root {
        debug_assert!(owner != 0 && owner >> OWNER_BITS == 0);
        debug_assert!(slot < SLOTS_MAX);
        debug_assert!(generation <= GENERATION_MASK);
        Root((owner as u64) << (SLOT_BITS + GENERATION_BITS) | (slot as u64) << GENERATION_BITS | generation as u64)
    }

    /// What a frame carried. `None`: no owner, so no tree.
    #[inline(always)]
    pub(crate) fn from_bits(bits: u64) -> Option<Root> {
        (bits >> (SLOT_BITS + GENERATION_BITS) != 0).then_some(Root(bits))
    }

    /// What a frame carries.
    #[inline(always)]
    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    /// Task id of the owner.
    #[inline(always)]
    pub(crate) fn owner(self) -> u32 {
        (self.0 >> (SLOT_BITS + GENERATION_BITS)) as u32
    }

    /// Below [`SLOTS_MAX`].
    #[inline(always)]
    pub(crate) fn slot(self) -> u32 {
        (self.0 >> GENERATION_BITS) as u32 & (SLOTS_MAX - 1)
    }

    /// At most [`GENERATION_MASK`].
    #[inline(always)]
    pub(crate) fn generation(self) -> u32 {
        self.0 as u32 & GENERATION_MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_gives_back_its_parts() {
        for (owner, slot, generation) in [(1, 0, 0), (1, SLOTS_MAX - 1, GENERATION_MASK), ((1 << 20) - 1, 5, 7), (3, SLOTS_MAX - 1, 0)] {
            let root = Root::new(owner, slot, generation);
            assert_eq!((root.owner(), root.slot(), root.generation()), (owner, slot, generation));
            assert_eq!(Root::from_bits(root.to_bits()), Some(root));
        }
    }

    #[test]
    fn bits_without_an_owner_are_no_root() {
        assert_eq!(Root::from_bits(0), None);
        assert_eq!(Root::from_bits((1 << (SLOT_BITS + GENERATION_BITS)) - 1), None);
    }
}
