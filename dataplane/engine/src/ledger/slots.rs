//! The owner's half: slots it gives to trees, the message id of each, and when each has waited too long.
//!
//! Before: a spout emits a tracked tuple (or a bolt opens a join). After: [`Slots::close`] gives the message id back for `ack` or `fail`.
//! What was acked is not known here; that is `acker.rs`.
//!
//! Slots are taken from the front of one free list and put back at its end, so ordinary traffic walks the table in order and a slow tree
//! holds its slot, not the line. A deadline costs one counter: time is cut into buckets, a slot notes the bucket it was opened in, and each
//! bucket counts its open slots. When a bucket is over and its count is not 0, the table is walked, a piece per call, until it is.

use super::edges::Edges;
use super::root::{GENERATION_MASK, Owner, Root, SLOTS_MAX};

/// Slots the table begins with and grows by: 16 KiB.
const GROW_SLOTS: u32 = 1024;
/// Counts of open slots, by bucket modulo this. Two buckets that share one cost a walk too many, nothing else.
const BUCKETS: usize = 1024;
/// A timeout fires at most this late, or a 64th of the timeout if that is more.
const LATE_NS_MIN: u64 = 10_000_000;
/// See [`LATE_NS_MIN`].
const LATE_PART: u64 = 64;
/// No slot: the end of the free list.
const NONE: u32 = u32::MAX;
/// Beside the generation: the slot holds a tree.
const OPEN: u32 = 1 << 31;

const _: () = assert!(GENERATION_MASK & OPEN == 0);
const _: () = assert!(SLOTS_MAX < NONE);
// A bucket is over an eighth of the lateness, that is T/512: the open ones of one timeout do not share counts.
const _: () = assert!(8 * LATE_PART as usize + 2 <= BUCKETS);

/// 16 bytes: four slots in a cache line.
#[derive(Clone, Copy)]
struct Slot {
    /// Open: the message id. Free: the next free slot, or [`NONE`].
    id: u64,
    /// Generation of the last tree opened here, with [`OPEN`] while it is.
    state: u32,
    /// Open: the bucket its deadline is counted from, modulo 2^32.
    bucket: u32,
}

/// One per spout task, or bolt task that opens joins.
pub(crate) struct Slots {
    owner: Owner,
    /// Most slots there will be, at least 1.
    slots_max: u32,
    /// Every slot is open, or on the free list once.
    slots: Vec<Slot>,
    /// Next to open; [`NONE`] when all are open.
    free_first: u32,
    /// Last closed; means nothing when `free_first` is [`NONE`].
    free_last: u32,
    /// Open slots.
    pending: u32,
    timeout_ns: u64,
    /// A bucket is `1 << bucket_shift` ns wide.
    bucket_shift: u32,
    /// Open slots whose bucket is the index, modulo [`BUCKETS`].
    counts: Box<[u32; BUCKETS]>,
    /// Buckets below have been walked, or are being walked.
    bucket_next: u64,
    /// Slots the walk under way has still to look at; 0 when there is none.
    walk_left: usize,
    /// Buckets the walk looks for: from the first to the last one.
    walk_buckets: (u64, u64),
    /// Where the walk goes on. Trees that were opened in order time out in order, so the next walk begins where the last one ended.
    walk_at: usize,
    /// First generations of slots to come.
    generations: Edges,
}

impl Slots {
    /// `owner` is a task id, 1 ..= 2^20 - 1; `slots_max` at most [`SLOTS_MAX`] and not 0; `timeout_ns` not 0. The seed decides at which
    /// generation each slot begins, so a root of an earlier instance of this owner is not taken for one of this.
    pub(crate) fn new(owner: u32, slots_max: u32, timeout_ns: u64, seed: u64) -> Slots {
        assert!((1..=SLOTS_MAX).contains(&slots_max), "{slots_max} slots");
        assert!(timeout_ns > 0, "trees that are never open");
        let mut slots = Slots {
            owner: Owner::new(owner).expect("task ids are 1 ..= 2^20 - 1"),
            slots_max,
            slots: Vec::new(),
            free_first: NONE,
            free_last: NONE,
            pending: 0,
            timeout_ns,
            bucket_shift: (late_ns(timeout_ns) / 4).ilog2(),
            counts: Box::new([0; BUCKETS]),
            bucket_next: 0,
            walk_left: 0,
            walk_buckets: (0, 0),
            walk_at: 0,
            generations: Edges::new(seed),
        };
        slots.grow();
        slots
    }

    /// Opens a tree for the message `id`. `None`: all slots are open. Allocates only while the table grows.
    #[inline(always)]
    pub(crate) fn open(&mut self, id: u64, now_ns: u64) -> Option<Root> {
        if self.free_first == NONE && !self.grow() {
            return None;
        }
        let bucket = (now_ns >> self.bucket_shift) as u32;
        let index = self.free_first;
        let slot = &mut self.slots[index as usize];
        self.free_first = slot.id as u32;
        let generation = (slot.state + 1) & GENERATION_MASK;
        *slot = Slot { id, state: generation | OPEN, bucket };
        self.counts[bucket as usize % BUCKETS] += 1;
        self.pending += 1;
        Some(Root::new(self.owner, index, generation))
    }

    /// Closes a tree and gives its message id. `None`: it is not open, or not any more.
    #[inline(always)]
    pub(crate) fn close(&mut self, root: Root) -> Option<u64> {
        let slot = self.open_slot(root)?;
        let (id, bucket) = (slot.id, slot.bucket);
        self.free(root, bucket);
        Some(id)
    }

    /// True until it is closed.
    pub(crate) fn is_open(&self, root: Root) -> bool {
        let slot = self.slots.get(root.slot() as usize);
        slot.is_some_and(|slot| slot.state == root.generation() | OPEN) && root.is_of(self.owner)
    }

    /// The tree's timeout begins now. False: it is not open any more.
    pub(crate) fn reset_timeout(&mut self, root: Root, now_ns: u64) -> bool {
        let bucket = (now_ns >> self.bucket_shift) as u32;
        let Some(slot) = self.open_slot(root) else {
            return false;
        };
        let before = std::mem::replace(&mut slot.bucket, bucket);
        self.counts[before as usize % BUCKETS] -= 1;
        self.counts[bucket as usize % BUCKETS] += 1;
        true
    }

    /// Closes trees whose timeout has passed and gives each to `f`; returns how many. Looks at `slots_max` slots at most, and at none while
    /// nothing is due. Called every period with [`Self::expire_slots`] of it, each tree of timeout T fires in [T, T + max(10 ms, T/64)].
    pub(crate) fn expire(&mut self, now_ns: u64, slots_max: usize, mut f: impl FnMut(Root, u64)) -> usize {
        let (mut looks, mut closed) = (slots_max, 0);
        // A walk that ends early leaves looks to the next one.
        while looks > 0 && (self.walk_left > 0 || self.walk_begins(now_ns)) {
            closed += self.walk(&mut looks, &mut f);
        }
        closed
    }

    /// When [`Self::expire`] has something to do next; 0 while it has not done with what was due. `None`: nothing is open. For a loop that is
    /// about to park: it looks at each bucket, so it is not for every turn.
    pub(crate) fn expire_next_ns(&self) -> Option<u64> {
        if self.pending == 0 {
            return None;
        }
        if self.walk_left > 0 {
            return Some(0);
        }
        let mut buckets = self.bucket_next..self.bucket_next + BUCKETS as u64;
        let bucket = buckets.find(|bucket| self.counts[*bucket as usize % BUCKETS] > 0).expect("what is open is counted");
        Some(((bucket + 1) << self.bucket_shift) + self.timeout_ns)
    }

    /// Slots to look at per call of [`Self::expire`] when it is called every `period_ns`, at most every 3 ms.
    pub(crate) fn expire_slots(&self, period_ns: u64) -> usize {
        // A bucket takes a quarter of the lateness; a walk that has just begun and the one after it share the rest.
        let calls = (late_ns(self.timeout_ns) * 3 / 8 / period_ns.max(1)).max(1);
        self.slots.len().div_ceil(usize::try_from(calls).unwrap_or(usize::MAX))
    }

    /// Trees open now.
    pub(crate) fn pending(&self) -> u32 {
        self.pending
    }

    /// True when [`Self::open`] gives `None`.
    pub(crate) fn is_full(&self) -> bool {
        self.pending == self.slots_max
    }

    /// Bytes this takes once all slots have been used at the same time; the table commits them as it grows.
    pub(crate) fn memory_bytes_max(&self) -> usize {
        // The vector doubles.
        (self.slots_max.next_power_of_two().max(GROW_SLOTS) as usize) * size_of::<Slot>() + size_of_val(&*self.counts) + size_of::<Slots>()
    }

    /// The owner begins anew: everything open is closed and given to `f`.
    pub(crate) fn drain_open(&mut self, mut f: impl FnMut(Root, u64)) {
        for index in 0..self.slots.len() {
            let slot = self.slots[index];
            if slot.state & OPEN != 0 {
                let root = Root::new(self.owner, index as u32, slot.state & GENERATION_MASK);
                self.free(root, slot.bucket);
                f(root, slot.id);
            }
        }
        assert!(self.pending == 0);
    }

    #[inline(always)]
    fn open_slot(&mut self, root: Root) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(root.slot() as usize)?;
        (slot.state == root.generation() | OPEN && root.is_of(self.owner)).then_some(slot)
    }

    /// Closes an open tree, of that bucket, and puts its slot at the end of the free list.
    #[inline(always)]
    fn free(&mut self, root: Root, bucket: u32) {
        let slot = &mut self.slots[root.slot() as usize];
        slot.id = NONE as u64;
        slot.state = root.generation();
        self.append(root.slot());
        self.counts[bucket as usize % BUCKETS] -= 1;
        self.pending -= 1;
    }

    #[inline(always)]
    fn append(&mut self, index: u32) {
        if self.free_first == NONE {
            self.free_first = index;
        } else {
            self.slots[self.free_last as usize].id = index as u64;
        }
        self.free_last = index;
    }

    /// Adds free slots; false when the table has all it may have. By pieces, so no emit waits for a large one; the vector doubles.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        let from = self.slots.len() as u32;
        let to = self.slots_max.min(from + GROW_SLOTS);
        for index in from..to {
            let state = self.generations.bits() as u32 & GENERATION_MASK;
            self.slots.push(Slot { id: NONE as u64, state, bucket: 0 });
            self.append(index);
        }
        // A walk under way goes past the new slots to the old ones beyond.
        if self.walk_left > 0 {
            self.walk_left += (to - from) as usize;
        }
        from < to
    }

    /// True when buckets are over whose count is not 0.
    #[inline]
    fn walk_begins(&mut self, now_ns: u64) -> bool {
        // A bucket is over when what was opened in its last instant has waited for the timeout.
        let over = now_ns.saturating_sub(self.timeout_ns) >> self.bucket_shift;
        if over <= self.bucket_next {
            return false;
        }
        let first = std::mem::replace(&mut self.bucket_next, over);
        self.walk_buckets = (first, over - 1);
        if self.walk_due() > 0 {
            self.walk_left = self.slots.len();
        }
        self.walk_left > 0
    }

    /// Open slots the walk is after: at least those.
    fn walk_due(&self) -> u32 {
        let (first, last) = self.walk_buckets;
        let n = (last - first + 1).min(BUCKETS as u64);
        (0..n).map(|i| self.counts[(first + i) as usize % BUCKETS]).sum()
    }

    #[cold]
    #[inline(never)]
    fn walk(&mut self, looks: &mut usize, f: &mut impl FnMut(Root, u64)) -> usize {
        // Trees were closed since the last call, so it is counted anew.
        let mut due = self.walk_due();
        let last = self.walk_buckets.1 as u32;
        let mut closed = 0;
        while *looks > 0 && self.walk_left > 0 && due > 0 {
            if self.walk_at >= self.slots.len() {
                self.walk_at = 0;
            }
            let index = self.walk_at;
            let slot = self.slots[index];
            // Modulo 2^32: of two buckets less than 2^31 apart the earlier one. Two slots a timeout apart are 2^10 apart.
            if slot.state & OPEN != 0 && last.wrapping_sub(slot.bucket) as i32 >= 0 {
                let root = Root::new(self.owner, index as u32, slot.state & GENERATION_MASK);
                self.free(root, slot.bucket);
                f(root, slot.id);
                closed += 1;
                due -= 1;
            }
            self.walk_at += 1;
            self.walk_left -= 1;
            *looks -= 1;
        }
        if due == 0 {
            self.walk_left = 0;
        }
        closed
    }
}

/// How late a timeout may fire.
fn late_ns(timeout_ns: u64) -> u64 {
    LATE_NS_MIN.max(timeout_ns / LATE_PART)
}

#[cfg(test)]
impl Slots {
    /// Every slot begins `before` openings ahead of the wrap of its generation.
    pub(super) fn near_wrap(owner: u32, slots_max: u32, timeout_ns: u64, before: u32) -> Slots {
        assert!(slots_max <= GROW_SLOTS);
        let mut slots = Slots::new(owner, slots_max, timeout_ns, 0);
        for slot in &mut slots.slots {
            slot.state = GENERATION_MASK - before;
        }
        slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, VecDeque};

    const T: u64 = 30_000_000_000;
    const MS: u64 = 1_000_000;

    fn all(slots: &mut Slots, now_ns: u64) -> Vec<u64> {
        let mut ids = Vec::new();
        slots.expire(now_ns, usize::MAX, |_, id| ids.push(id));
        ids
    }

    #[test]
    fn a_slot_takes_a_quarter_of_a_cache_line() {
        assert_eq!(size_of::<Slot>(), 16);
    }

    #[test]
    fn a_closed_tree_gives_its_id_once() {
        let mut slots = Slots::new(3, 10, T, 1);
        let root = slots.open(77, 0).expect("room");
        assert!(slots.is_open(root));
        assert_eq!((root.owner(), slots.pending()), (3, 1));
        assert_eq!(slots.close(root), Some(77));
        assert_eq!(slots.close(root), None);
        assert!(!slots.is_open(root));
        assert_eq!(slots.pending(), 0);
    }

    #[test]
    fn a_root_of_another_owner_or_slot_is_not_open() {
        let mut slots = Slots::new(3, 10, T, 1);
        let root = slots.open(77, 0).expect("room");
        for other in [
            Root::of(4, root.slot(), root.generation()),
            Root::of(3, root.slot() + 1, root.generation()),
            Root::of(3, SLOTS_MAX - 1, root.generation()),
            Root::of(3, root.slot(), root.generation() ^ 1),
        ] {
            assert!(!slots.is_open(other));
            assert_eq!(slots.close(other), None);
            assert!(!slots.reset_timeout(other, 1));
        }
        assert_eq!(slots.close(root), Some(77));
    }

    #[test]
    fn slots_are_reused_in_the_order_they_were_closed() {
        let mut slots = Slots::new(1, 4, T, 1);
        let roots: Vec<Root> = (0..4).map(|id| slots.open(id, 0).expect("room")).collect();
        assert_eq!(roots.iter().map(|r| r.slot()).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(slots.is_full());
        assert_eq!(slots.open(9, 0), None);
        for i in [2, 0, 3] {
            assert_eq!(slots.close(roots[i]), Some(i as u64));
        }
        let again: Vec<u32> = (0..3).map(|id| slots.open(id, 0).expect("room").slot()).collect();
        assert_eq!(again, [2, 0, 3]);
        assert_eq!(slots.open(9, 0), None);
    }

    #[test]
    fn a_slow_tree_holds_one_slot_and_not_the_line() {
        let mut slots = Slots::new(1, 4, T, 1);
        let slow = slots.open(0, 0).expect("room");
        for id in 1..100 {
            let root = slots.open(id, 0).expect("three slots go round");
            assert_eq!(slots.close(root), Some(id));
        }
        assert_eq!(slots.close(slow), Some(0));
    }

    #[test]
    fn a_generation_wraps_to_zero() {
        let mut slots = Slots::near_wrap(1, 1, T, 1);
        let generations: Vec<u32> = (0..3)
            .map(|id| {
                let root = slots.open(id, 0).expect("room");
                assert_eq!(slots.close(root), Some(id));
                root.generation()
            })
            .collect();
        assert_eq!(generations, [GENERATION_MASK, 0, 1]);
    }

    #[test]
    fn instances_begin_at_different_generations() {
        let first = |seed| Slots::new(1, 1, T, seed).open(0, 0).expect("room").generation();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn the_table_grows_by_pieces_to_its_bound() {
        let mut slots = Slots::new(1, 2_500, T, 1);
        assert_eq!(slots.slots.len(), 1024);
        for id in 0..2_500 {
            assert_eq!(slots.open(id, 0).expect("room").slot() as u64, id);
        }
        assert_eq!((slots.slots.len(), slots.open(0, 0)), (2_500, None));
        let bytes = slots.slots.capacity() * size_of::<Slot>();
        assert!(bytes <= slots.memory_bytes_max(), "{bytes}");
    }

    #[test]
    fn a_tree_fires_after_its_timeout_and_not_before() {
        let start = 1 << 60; // a clock that has run for long
        let mut slots = Slots::new(1, 10, T, 1);
        assert!(all(&mut slots, start).is_empty());
        let root = slots.open(5, start + 3).expect("room");
        assert!(all(&mut slots, start + 2 + T).is_empty());
        assert!(slots.is_open(root));
        assert_eq!(all(&mut slots, start + 3 + T + T / 64), [5]);
        assert!(!slots.is_open(root));
        assert!(all(&mut slots, start + 3 * T).is_empty());
    }

    #[test]
    fn a_timeout_that_is_reset_begins_anew() {
        let mut slots = Slots::new(1, 10, T, 1);
        let root = slots.open(5, 0).expect("room");
        assert!(slots.reset_timeout(root, T - 1));
        assert!(all(&mut slots, 2 * T - 2).is_empty());
        assert_eq!(all(&mut slots, 2 * T + T / 64), [5]);
        assert!(!slots.reset_timeout(root, 2 * T));
    }

    #[test]
    fn a_call_looks_at_no_more_slots_than_it_may() {
        let mut slots = Slots::new(1, 1024, T, 1);
        (0..1024).for_each(|id| assert!(slots.open(id, 0).is_some()));
        let calls: Vec<usize> = (0..4).map(|_| slots.expire(2 * T, 300, |_, _| ())).collect();
        assert_eq!(calls, [300, 300, 300, 124]);
        assert_eq!(slots.pending(), 0);
    }

    #[test]
    fn a_loop_that_sleeps_until_the_next_deadline_meets_it() {
        let start = 1 << 60;
        let mut slots = Slots::new(1, 1024, T, 1);
        assert_eq!(slots.expire_next_ns(), None);
        assert!(all(&mut slots, start).is_empty());
        (0..3).for_each(|id| assert!(slots.open(id, start + 7 + id).is_some()));
        let root = slots.open(3, start + T / 2).expect("room");
        let next = slots.expire_next_ns().expect("four are open");
        assert!((start + 9 + T..=start + 7 + T + T / 64).contains(&next), "{next}");
        assert!(all(&mut slots, next - 1).is_empty());
        assert_eq!(slots.expire(next, 1, |_, _| ()), 1);
        assert_eq!(slots.expire_next_ns(), Some(0), "two are left");
        assert_eq!(slots.expire(next, 9, |_, _| ()), 2);
        let next = slots.expire_next_ns().expect("one is open");
        assert!((start + T / 2 + T..=start + T / 2 + T + T / 64).contains(&next), "{next}");
        assert_eq!(slots.close(root), Some(3));
        assert_eq!(slots.expire_next_ns(), None);
    }

    #[test]
    fn a_table_that_grows_under_a_walk_is_walked_to_its_end() {
        let mut slots = Slots::new(1, 2_048, T, 1);
        (0..500).for_each(|id| assert!(slots.open(id, 0).is_some()));
        assert_eq!(all(&mut slots, 2 * T).len(), 500);
        // The next walk begins in the middle, goes to the end and has the first 500 before it.
        (0..1024).for_each(|id| assert!(slots.open(id, 2 * T).is_some()));
        assert_eq!(slots.expire(4 * T, 300, |_, _| ()), 300);
        (0..301).for_each(|id| assert!(slots.open(id, 4 * T).is_some()));
        assert_eq!(slots.slots.len(), 2_048);
        assert_eq!(all(&mut slots, 4 * T).len(), 724);
        assert_eq!(slots.pending(), 301);
    }

    #[test]
    fn nothing_is_looked_at_while_nothing_is_due() {
        let mut slots = Slots::new(1, 1024, T, 1);
        assert!(slots.open(1, 0).is_some());
        assert_eq!(slots.expire(T / 2, 1, |_, _| ()), 0);
        assert_eq!((slots.walk_left, slots.walk_at), (0, 0));
    }

    #[test]
    fn a_loop_that_stood_still_for_long_still_closes_what_is_due() {
        let mut slots = Slots::new(1, 10, T, 1);
        let old = slots.open(1, 0).expect("room");
        // So long that the new bucket counts where the old one does.
        let later = (BUCKETS as u64) << slots.bucket_shift;
        let new = slots.open(2, later).expect("room");
        assert_eq!(all(&mut slots, later), [1]);
        assert!(!slots.is_open(old) && slots.is_open(new));
        assert_eq!(all(&mut slots, later + 2 * T), [2]);
    }

    #[test]
    fn an_owner_that_begins_anew_drops_all_that_is_open() {
        let mut slots = Slots::new(1, 10, T, 1);
        let roots: Vec<Root> = (0..5).map(|id| slots.open(id, 0).expect("room")).collect();
        assert_eq!(slots.close(roots[1]), Some(1));
        let mut dropped = Vec::new();
        slots.drain_open(|root, id| dropped.push((root, id)));
        assert_eq!(dropped, [0, 2, 3, 4].map(|i| (roots[i], i as u64)));
        assert_eq!(slots.pending(), 0);
        assert!(all(&mut slots, 9 * T).is_empty());
        assert!((0..10).all(|id| slots.open(id, 0).is_some()));
    }

    /// Random opens, closes and resets over some timeouts, against a map: every tree fires within its bounds, none twice, none is lost.
    #[test]
    fn every_tree_fires_within_its_bounds() {
        for (seed, timeout_ns) in [(1, 5 * MS), (2, 100 * MS), (3, 640 * MS), (4, 2_000 * MS), (5, T)] {
            let mut random = Edges::new(seed);
            let late = late_ns(timeout_ns);
            let period = 2 * MS;
            let mut slots = Slots::new(1, 3_000, timeout_ns, seed);
            let mut now = random.bits() >> 4;
            let mut open: HashMap<u64, (Root, u64)> = HashMap::new();
            let mut order = VecDeque::new();
            let (mut id, mut fired) = (0, 0);
            // Of trees opened in a step some are closed at once and the others never: about 2,000 are open at a time.
            let step = (timeout_ns / 2_000).max(1);
            let end = now + 4 * timeout_ns;
            let mut call = now;
            while now < end {
                now += random.bits() % (2 * step);
                while call <= now {
                    slots.expire(call, slots.expire_slots(period), |root, id| {
                        let (was, at) = open.remove(&id).expect("each fires once, and only while open");
                        assert_eq!(was, root);
                        assert!(call >= at + timeout_ns, "{id} fired early");
                        assert!(call <= at + timeout_ns + late, "{id} fired {} ns late of {late}", call - at - timeout_ns);
                        fired += 1;
                    });
                    call += period / 2 + random.bits() % (period / 2);
                }
                id += 1;
                if let Some(root) = slots.open(id, now) {
                    open.insert(id, (root, now));
                    order.push_back(id);
                }
                let other = order[(random.bits() % order.len() as u64) as usize];
                if let Some((root, at)) = open.get_mut(&other) {
                    if random.one_in(4) {
                        assert!(slots.reset_timeout(*root, now));
                        *at = now;
                    } else if random.one_in(4) {
                        assert_eq!(slots.close(*root), Some(other));
                        open.remove(&other);
                    }
                }
                if order.len() > 2_000 {
                    order.pop_front();
                }
                assert_eq!(slots.pending() as usize, open.len());
                if id % 64 == 0 {
                    assert_eq!(slots.counts.iter().sum::<u32>(), slots.pending());
                }
            }
            assert!(fired > 500, "{fired} of {id}");
            slots.expire(now + 3 * timeout_ns, usize::MAX, |_, id| assert!(open.remove(&id).is_some()));
            assert_eq!((slots.pending(), open.len()), (0, 0));
        }
    }
}
