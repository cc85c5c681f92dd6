//! The name of a tree: who owns it, in which slot, for the how-manyeth time.
//!
//! Before: `slots.rs` makes it. After: it travels in frames and ack messages as a u64 and finds its entry without a search.

use std::num::NonZeroU64;

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

/// Where the owner begins.
const OWNER_SHIFT: u32 = SLOT_BITS + GENERATION_BITS;

const _: () = assert!(OWNER_BITS + SLOT_BITS + GENERATION_BITS == 64);

/// One tree. Never 0, because task ids start at 1. Two trees of one slot carry the same root only 2^24 openings of that slot apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Root(NonZeroU64);

/// A task id where a root has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner(NonZeroU64);

impl Owner {
    /// `None`: 0, or 2^20 and up, which no task of a topology is.
    pub(crate) fn new(task: u32) -> Option<Owner> {
        let fits = task >> OWNER_BITS == 0;
        NonZeroU64::new((task as u64) << OWNER_SHIFT).filter(|_| fits).map(Owner)
    }
}

impl Root {
    /// Slot and generation below their bounds; the caller keeps to them.
    #[inline(always)]
    pub(crate) fn new(owner: Owner, slot: u32, generation: u32) -> Root {
        debug_assert!(slot < SLOTS_MAX);
        debug_assert!(generation <= GENERATION_MASK);
        Root(owner.0 | (slot as u64) << GENERATION_BITS | generation as u64)
    }

    /// What a frame carried. `None`: no owner, so no tree.
    #[inline(always)]
    pub(crate) fn from_bits(bits: u64) -> Option<Root> {
        NonZeroU64::new(bits).filter(|bits| bits.get() >> OWNER_SHIFT != 0).map(Root)
    }

    /// What a frame carries.
    #[inline(always)]
    pub(crate) fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// Task id of the owner.
    #[inline(always)]
    pub(crate) fn owner(self) -> u32 {
        (self.0.get() >> OWNER_SHIFT) as u32
    }

    /// True when `owner` opened it.
    #[inline(always)]
    pub(crate) fn is_of(self, owner: Owner) -> bool {
        self.0.get() >> OWNER_SHIFT == owner.0.get() >> OWNER_SHIFT
    }

    /// Below [`SLOTS_MAX`].
    #[inline(always)]
    pub(crate) fn slot(self) -> u32 {
        (self.0.get() >> GENERATION_BITS) as u32 & (SLOTS_MAX - 1)
    }

    /// At most [`GENERATION_MASK`].
    #[inline(always)]
    pub(crate) fn generation(self) -> u32 {
        self.0.get() as u32 & GENERATION_MASK
    }
}

#[cfg(test)]
impl Root {
    /// Of a task.
    pub(super) fn of(task: u32, slot: u32, generation: u32) -> Root {
        Root::new(Owner::new(task).expect("a task"), slot, generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_gives_back_its_parts() {
        for (owner, slot, generation) in [(1, 0, 0), (1, SLOTS_MAX - 1, GENERATION_MASK), ((1 << 20) - 1, 5, 7), (3, SLOTS_MAX - 1, 0)] {
            let root = Root::of(owner, slot, generation);
            assert_eq!((root.owner(), root.slot(), root.generation()), (owner, slot, generation));
            assert_eq!(Root::from_bits(root.to_bits()), Some(root));
        }
    }

    #[test]
    fn a_root_or_none_takes_one_word() {
        assert_eq!(size_of::<Option<Root>>(), 8);
    }

    #[test]
    fn tasks_that_have_no_place_in_a_root_own_none() {
        assert_eq!(Owner::new(0), None);
        assert_eq!(Owner::new(1 << OWNER_BITS), None);
        assert_eq!(Owner::new(u32::MAX), None);
        assert!(Owner::new((1 << OWNER_BITS) - 1).is_some());
    }

    #[test]
    fn bits_without_an_owner_are_no_root() {
        assert_eq!(Root::from_bits(0), None);
        assert_eq!(Root::from_bits((1 << OWNER_SHIFT) - 1), None);
    }
}
