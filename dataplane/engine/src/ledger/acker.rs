//! The acker's half: what has been XORed to each tree of one owner, and whether it is complete.
//!
//! Before: the owner's init and the acks and fails of whoever handled a tuple of the tree, in any order. After: [`Step::Complete`] or
//! [`Step::Failed`], told once, which the owner answers with `Slots::close`. The owner's own loop calls this directly; an acker on another
//! loop holds one per owner and calls it for each message.
//!
//! What is assumed of the links: they may lose messages, repeat and reorder them. A lost or repeated ack leaves a tree open until its owner's
//! timeout. A repeated init would pay what is owed (XOR is its own inverse), so the second one changes nothing.
//!
//! Generations. A slot is used again and again; its entry is of the newest tree seen. Up to half the circle ahead is newer, close behind is
//! older and stale. Far behind is of another life of the owner, which began at random generations: its init is believed, since only the
//! owner sends those, anything else is stale. So what an earlier life left under way costs at most the tree it replaces, never the slot; and
//! not that where the owner is at hand to be asked.

use super::root::{GENERATION_MASK, Owner, Root, SLOTS_MAX};

/// Openings of one slot by which a message may be late: more than links reorder, and 1 in 4,096 of two random generations.
const BEHIND_MAX: u32 = 1 << 12;
/// Openings of one slot of which the ledger may have seen nothing, as when they reached nobody.
const AHEAD_MAX: u32 = 1 << 23;
/// Entries the table grows by at least: 24 KiB.
const GROW_ENTRIES: usize = 1024;

/// Beside the generation: the tree can still end. An entry that has none of the three was never used.
const OPEN: u32 = 1 << 24;
/// Its init was seen. Only together with [`OPEN`].
const INIT: u32 = 1 << 25;
/// It is complete, failed, or forgotten.
const ENDED: u32 = 1 << 26;

const _: () = assert!(AHEAD_MAX + BEHIND_MAX < GENERATION_MASK);
const _: () = assert!(GENERATION_MASK & (OPEN | INIT | ENDED) == 0);

/// What a message did to its tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// It goes on.
    Open,
    /// All that was owed is paid: ack its message. Told once, and nothing else after.
    Complete,
    /// It can not complete any more: fail its message. Told once, and nothing else after. Where an init or ack gives it, an incarnation was
    /// lost.
    Failed,
    /// The message is of a tree that has ended, or of nobody's: counted, and nothing changed.
    Stale,
}

/// 24 bytes.
#[derive(Clone, Copy, Default)]
struct Entry {
    /// Edges emitted and not acked, once all messages are in.
    xor: u64,
    /// Incarnations they were sent to.
    mask: u64,
    /// Generation, with [`OPEN`], [`INIT`], [`ENDED`].
    state: u32,
}

/// How a generation stands to that of the entry.
#[derive(PartialEq, Eq)]
enum Age {
    Unused,
    Same,
    Newer,
    Older,
    /// Far behind: of another life of the owner.
    Far,
}

/// The trees of one owner.
pub(crate) struct Ledger {
    owner: Owner,
    /// By slot; as many as were seen, at most [`SLOTS_MAX`].
    entries: Vec<Entry>,
    /// Incarnations lost and not yet forgotten. An open entry has none of them.
    lost: u64,
    /// Until when, by bit; means nothing for a bit that is not in `lost`.
    lost_until_ns: [u64; 64],
    /// See [`Self::failed_by_loss`].
    failed_by_loss: u64,
    /// See [`Self::over_failed`].
    over_failed: u64,
    /// See [`Self::stale`].
    stale: u64,
}

impl Ledger {
    /// Of the task `owner`, without a tree. Make a new one when the owner begins anew.
    pub(crate) fn new(owner: u32) -> Ledger {
        let owner = Owner::new(owner).expect("task ids are 1 ..= 2^20 - 1");
        Ledger { owner, entries: Vec::new(), lost: 0, lost_until_ns: [0; 64], failed_by_loss: 0, over_failed: 0, stale: 0 }
    }

    /// The owner emitted the tree's first tuples: `xor` of their edges, `mask` of the incarnations they were sent to. Edges XORed to 0, as of
    /// an emit that reached nobody, complete it. A second init of a root changes nothing. One that is [`Step::Stale`] may as well be told to
    /// the owner as failed: it has closed the tree, or would wait for its timeout.
    #[inline(always)]
    pub(crate) fn init(&mut self, root: Root, xor: u64, mask: u64) -> Step {
        let generation = root.generation();
        let Some(entry) = self.entries.get_mut(root.slot() as usize) else {
            return self.init_seldom(root, xor, mask);
        };
        // The ordinary case: anything but the same generation and those close behind. An unused entry may fall on either side.
        let ahead = generation.wrapping_sub(entry.state) & GENERATION_MASK;
        if ahead.wrapping_sub(1) >= GENERATION_MASK - BEHIND_MAX || !root.is_of(self.owner) || mask & self.lost != 0 {
            return self.init_seldom(root, xor, mask);
        }
        if xor == 0 {
            entry.state = generation | ENDED;
            return Step::Complete;
        }
        *entry = Entry { xor, mask, state: generation | OPEN | INIT };
        Step::Open
    }

    /// A tuple of the tree was handled: `xor` of its edge and those emitted from it, `mask` of the incarnations these were sent to. May come
    /// before the init; `is_open` is asked then: an owner that is at hand knows its own trees, and what an earlier life of it left under way
    /// replaces none of them.
    #[inline(always)]
    pub(crate) fn ack_if(&mut self, root: Root, xor: u64, mask: u64, is_open: impl FnOnce() -> bool) -> Step {
        let generation = root.generation();
        let Some(entry) = self.entries.get_mut(root.slot() as usize) else {
            return self.ack_seldom(root, xor, mask, is_open);
        };
        // The ordinary case: the init was here before.
        if entry.state != generation | OPEN | INIT || !root.is_of(self.owner) || mask & self.lost != 0 {
            return self.ack_seldom(root, xor, mask, is_open);
        }
        entry.xor ^= xor;
        entry.mask |= mask;
        if entry.xor != 0 {
            return Step::Open;
        }
        entry.state = generation | ENDED;
        Step::Complete
    }

    /// A tuple of the tree failed. May come before the init; see [`Self::ack_if`].
    pub(crate) fn fail_if(&mut self, root: Root, is_open: impl FnOnce() -> bool) -> Step {
        if !self.admit(root, is_open) {
            return self.count_stale();
        }
        self.end(root);
        Step::Failed
    }

    /// The owner closed the tree by itself: whatever else arrives of it is stale.
    pub(crate) fn forget(&mut self, root: Root) {
        if self.admit(root, || true) {
            self.end(root);
        }
    }

    /// The incarnations `bits` are lost: every open tree that touched one is failed and given to `f`. Until `until_ns` so is, by
    /// [`Step::Failed`], whatever arrives with such a bit. Walks the whole table.
    pub(crate) fn lose(&mut self, bits: u64, until_ns: u64, mut f: impl FnMut(Root)) {
        for bit in (0..64).filter(|bit| bits >> bit & 1 != 0) {
            let known = self.lost >> bit & 1 != 0;
            let until = &mut self.lost_until_ns[bit];
            *until = if known { until_ns.max(*until) } else { until_ns };
        }
        self.lost |= bits;
        for (slot, entry) in self.entries.iter_mut().enumerate() {
            if entry.state & OPEN != 0 && entry.mask & bits != 0 {
                let generation = entry.state & GENERATION_MASK;
                entry.state = generation | ENDED;
                self.failed_by_loss += 1;
                f(Root::new(self.owner, slot as u32, generation));
            }
        }
    }

    /// The owner is another one from now on: the generations of the one before say nothing about its own. Nobody hears of what is open.
    pub(crate) fn begin_anew(&mut self) {
        self.entries.clear();
    }

    /// What was lost is there again: nothing with `bit` fails for it after `until_ns`; 0 = from now on.
    pub(crate) fn regain(&mut self, bit: u64, until_ns: u64) {
        self.lost_until_ns[bit.trailing_zeros() as usize % 64] = until_ns;
        if until_ns == 0 {
            self.lost &= !bit;
        }
    }

    /// Incarnations lost long enough ago are trusted again: their bits may be those of new ones.
    #[inline]
    pub(crate) fn tick(&mut self, now_ns: u64) {
        if self.lost != 0 {
            self.lost &= (0..64).filter(|&bit| self.lost_until_ns[bit] > now_ns).fold(0, |bits, bit| bits | 1 << bit);
        }
    }

    /// Trees failed by [`Self::lose`]: what they had sent to a lost incarnation may have been handled and acked before.
    pub(crate) fn failed_by_loss(&self) -> u64 {
        self.failed_by_loss
    }

    /// Trees failed because a message came with a bit after its incarnation was lost: it may have been a newer one's, or sent in time.
    pub(crate) fn over_failed(&self) -> u64 {
        self.over_failed
    }

    /// Messages of trees that had ended, or were nobody's.
    pub(crate) fn stale(&self) -> u64 {
        self.stale
    }

    /// Bytes the table takes now; at most 24 Mi.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    #[inline(never)]
    fn init_seldom(&mut self, root: Root, xor: u64, mask: u64) -> Step {
        if !root.is_of(self.owner) {
            return self.count_stale();
        }
        let lost = mask & self.lost != 0;
        let age = self.age(root);
        let entry = &mut self.entries[root.slot() as usize];
        match age {
            Age::Same if entry.state & ENDED != 0 => return self.count_stale(),
            Age::Same if entry.state & INIT != 0 => return Step::Open,
            Age::Same => {}
            Age::Older => return self.count_stale(),
            Age::Unused | Age::Newer | Age::Far => *entry = Entry { state: root.generation() | OPEN, ..Entry::default() },
        }
        entry.state |= INIT;
        self.add(root, xor, mask, lost)
    }

    #[inline(never)]
    fn ack_seldom(&mut self, root: Root, xor: u64, mask: u64, is_open: impl FnOnce() -> bool) -> Step {
        if !self.admit(root, is_open) {
            return self.count_stale();
        }
        self.add(root, xor, mask, mask & self.lost != 0)
    }

    /// To the open entry of `root`.
    fn add(&mut self, root: Root, xor: u64, mask: u64, lost: bool) -> Step {
        let entry = &mut self.entries[root.slot() as usize];
        entry.xor ^= xor;
        entry.mask |= mask;
        if lost {
            self.end(root);
            self.over_failed += 1;
            return Step::Failed;
        }
        if entry.xor == 0 && entry.state & INIT != 0 {
            self.end(root);
            return Step::Complete;
        }
        Step::Open
    }

    /// Makes the entry that of `root`, open, unless the message is stale, or the owner says that there is no such tree.
    fn admit(&mut self, root: Root, is_open: impl FnOnce() -> bool) -> bool {
        if !root.is_of(self.owner) {
            return false;
        }
        let age = self.age(root);
        let entry = &mut self.entries[root.slot() as usize];
        match age {
            Age::Same => entry.state & OPEN != 0,
            Age::Unused | Age::Newer => {
                let opens = is_open();
                if opens {
                    *entry = Entry { state: root.generation() | OPEN, ..Entry::default() };
                }
                opens
            }
            Age::Older | Age::Far => false,
        }
    }

    /// How `root` stands to its entry, which exists afterwards.
    fn age(&mut self, root: Root) -> Age {
        let slot = root.slot() as usize;
        if slot >= self.entries.len() {
            let n = (slot + 1).next_multiple_of(GROW_ENTRIES).min(SLOTS_MAX as usize);
            self.entries.resize(n, Entry::default());
        }
        let state = self.entries[slot].state;
        if state & (OPEN | ENDED) == 0 {
            return Age::Unused;
        }
        match root.generation().wrapping_sub(state) & GENERATION_MASK {
            0 => Age::Same,
            ahead if ahead <= AHEAD_MAX => Age::Newer,
            ahead if ahead > GENERATION_MASK - BEHIND_MAX => Age::Older,
            _ => Age::Far,
        }
    }

    fn end(&mut self, root: Root) {
        self.entries[root.slot() as usize].state = root.generation() | ENDED;
    }

    fn count_stale(&mut self) -> Step {
        self.stale += 1;
        Step::Stale
    }
}

/// Where the owner is not at hand.
#[cfg(test)]
impl Ledger {
    pub(super) fn ack(&mut self, root: Root, xor: u64, mask: u64) -> Step {
        self.ack_if(root, xor, mask, || true)
    }
    pub(super) fn fail(&mut self, root: Root) -> Step {
        self.fail_if(root, || true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASKED: u64 = 1 << 7;

    fn root(slot: u32, generation: u32) -> Root {
        Root::of(1, slot, generation & GENERATION_MASK)
    }

    fn lost(ledger: &mut Ledger, bits: u64, until_ns: u64) -> Vec<Root> {
        let mut roots = Vec::new();
        ledger.lose(bits, until_ns, |root| roots.push(root));
        roots
    }

    #[test]
    fn an_entry_takes_three_words() {
        assert_eq!(size_of::<Entry>(), 24);
    }

    #[test]
    fn a_tree_is_complete_when_what_was_emitted_was_acked() {
        let mut ledger = Ledger::new(1);
        let r = root(5, 9);
        assert_eq!(ledger.init(r, 0xa ^ 0xb, 0), Step::Open);
        assert_eq!(ledger.ack(r, 0xa ^ 0xc, 0), Step::Open);
        assert_eq!(ledger.ack(r, 0xb, 0), Step::Open);
        assert_eq!(ledger.ack(r, 0xc, 0), Step::Complete);
        assert_eq!(ledger.ack(r, 0xc, 0), Step::Stale);
        assert_eq!(ledger.init(r, 0xa ^ 0xb, 0), Step::Stale);
        assert_eq!(ledger.fail(r), Step::Stale);
        assert_eq!(ledger.stale(), 3);
    }

    #[test]
    fn a_tree_that_owes_nothing_is_complete_at_its_init() {
        let mut ledger = Ledger::new(1);
        for generation in [8, 9, 10] {
            assert_eq!(ledger.init(root(5, generation), 0, 0), Step::Complete);
            assert_eq!(ledger.init(root(5, generation), 0, 0), Step::Stale);
        }
    }

    #[test]
    fn acks_that_cancel_before_the_init_do_not_complete() {
        let mut ledger = Ledger::new(1);
        assert_eq!(ledger.ack(root(5, 9), 0xa, 0), Step::Open);
        assert_eq!(ledger.ack(root(5, 9), 0xa, 0), Step::Open);
        assert_eq!(ledger.init(root(5, 9), 0xa, 0), Step::Open);
        assert_eq!(ledger.ack(root(5, 9), 0xa, 0), Step::Complete);
    }

    #[test]
    fn a_second_init_changes_nothing() {
        let mut ledger = Ledger::new(1);
        let r = root(5, 9);
        assert_eq!(ledger.init(r, 0xa, 0), Step::Open);
        assert_eq!(ledger.init(r, 0xa, 0), Step::Open);
        assert_eq!(ledger.ack(r, 0xa ^ 0xb, 0), Step::Open);
        assert_eq!(ledger.init(r, 0xa, 0), Step::Open);
        assert_eq!(ledger.ack(r, 0xb, 0), Step::Complete);
    }

    #[test]
    fn a_fail_is_told_once_whenever_it_comes() {
        let mut ledger = Ledger::new(1);
        assert_eq!(ledger.fail(root(5, 9)), Step::Failed);
        assert_eq!(ledger.init(root(5, 9), 0xa, 0), Step::Stale);
        assert_eq!(ledger.fail(root(5, 9)), Step::Stale);
        assert_eq!(ledger.init(root(5, 10), 0xa, 0), Step::Open);
        assert_eq!(ledger.fail(root(5, 10)), Step::Failed);
        assert_eq!(ledger.ack(root(5, 10), 0xa, 0), Step::Stale);
    }

    #[test]
    fn every_order_of_a_trees_messages_ends_it_once_and_the_same_way() {
        // Init, three acks and a fail or not; all orders, each message once or twice.
        type Message = fn(&mut Ledger, Root) -> Step;
        let messages: [Message; 5] = [
            |l, r| l.init(r, 0xa ^ 0xb, 0),
            |l, r| l.ack(r, 0xa ^ 0xc, 0),
            |l, r| l.ack(r, 0xb, 0),
            |l, r| l.ack(r, 0xc, 0),
            |l, r| l.fail(r),
        ];
        fn orders(n: usize, taken: &mut Vec<usize>, f: &mut impl FnMut(&[usize])) {
            if taken.len() == n {
                return f(taken);
            }
            for i in 0..n {
                if !taken.contains(&i) {
                    taken.push(i);
                    orders(n, taken, f);
                    taken.pop();
                }
            }
        }
        for n in [4, 5] {
            orders(n, &mut Vec::new(), &mut |order| {
                let mut ledger = Ledger::new(1);
                let steps: Vec<Step> = order.iter().map(|&i| messages[i](&mut ledger, root(0, 3))).collect();
                let ends = steps.iter().filter(|s| matches!(s, Step::Complete | Step::Failed)).count();
                assert_eq!(ends, 1, "{order:?} {steps:?}");
                // A fail that comes last finds the tree complete; anywhere else it is what ends it.
                let complete = n == 4 || order[4] == 4;
                assert_eq!(steps.contains(&Step::Complete), complete, "{order:?} {steps:?}");
            });
        }
    }

    #[test]
    fn a_newer_tree_replaces_an_older_one_across_the_wrap() {
        let mut ledger = Ledger::new(1);
        let (old, new) = (root(5, GENERATION_MASK), root(5, 0));
        assert_eq!(ledger.init(old, 0xa, 0), Step::Open);
        assert_eq!(ledger.init(new, 0xb, 0), Step::Open);
        assert_eq!(ledger.ack(old, 0xa, 0), Step::Stale);
        assert_eq!(ledger.init(old, 0xa, 0), Step::Stale);
        assert_eq!(ledger.fail(old), Step::Stale);
        ledger.forget(old);
        assert_eq!(ledger.ack(new, 0xb, 0), Step::Complete);
    }

    #[test]
    fn an_ack_of_a_newer_tree_does_not_wait_for_its_init() {
        let mut ledger = Ledger::new(1);
        assert_eq!(ledger.init(root(5, 9), 0xa, 0), Step::Open);
        assert_eq!(ledger.ack(root(5, 10), 0xb, 0), Step::Open);
        assert_eq!(ledger.init(root(5, 9), 0xa, 0), Step::Stale);
        assert_eq!(ledger.init(root(5, 10), 0xb, 0), Step::Complete);
    }

    #[test]
    fn a_forgotten_tree_is_stale_even_if_it_was_never_seen() {
        let mut ledger = Ledger::new(1);
        assert_eq!(ledger.init(root(5, 9), 0xa, 0), Step::Open);
        ledger.forget(root(5, 9));
        assert_eq!(ledger.ack(root(5, 9), 0xa, 0), Step::Stale);
        ledger.forget(root(2_000, 9));
        assert_eq!(ledger.init(root(2_000, 9), 0xa, 0), Step::Stale);
        assert_eq!(ledger.init(root(2_000, 10), 0xa, 0), Step::Open);
    }

    #[test]
    fn an_owner_that_is_another_one_is_not_measured_by_the_one_before() {
        let mut ledger = Ledger::new(1);
        for slot in 0..3 {
            assert_eq!(ledger.init(root(slot, 9), 0xa, 0), Step::Open);
        }
        assert_eq!(ledger.ack(root(0, 9), 0xa, 0), Step::Complete);
        ledger.begin_anew();
        for (slot, generation) in [(0, 9 + AHEAD_MAX + 1), (1, 8), (2, 9)] {
            assert_eq!(ledger.ack(root(slot, generation), 0xb, 0), Step::Open, "before its init");
            assert_eq!(ledger.init(root(slot, generation), 0xb, 0), Step::Complete);
        }
    }

    #[test]
    fn generation_zero_is_a_generation() {
        let mut ledger = Ledger::new(1);
        assert_eq!(ledger.ack(root(5, 0), 0xa, 0), Step::Open);
        assert_eq!(ledger.init(root(5, 0), 0xa, 0), Step::Complete);
        assert_eq!(ledger.init(root(5, 0), 0xa, 0), Step::Stale);
        assert_eq!(ledger.init(root(6, 0), 0xa, 0), Step::Open);
        assert_eq!(ledger.init(root(7, GENERATION_MASK), 0xa, 0), Step::Open);
        assert_eq!(ledger.ack(root(7, GENERATION_MASK), 0xa, 0), Step::Complete);
    }

    #[test]
    fn an_owner_that_begins_anew_far_behind_is_believed_at_its_init() {
        for behind in [BEHIND_MAX + 1, 1 << 20, GENERATION_MASK - AHEAD_MAX] {
            let mut ledger = Ledger::new(1);
            let (old, new) = (root(5, 9), root(5, 9u32.wrapping_sub(behind)));
            assert_eq!(ledger.init(old, 0xa, 0), Step::Open);
            assert_eq!(ledger.ack(new, 0xb, 0), Step::Stale);
            assert_eq!(ledger.fail(new), Step::Stale);
            assert_eq!(ledger.init(new, 0xb, 0), Step::Open);
            assert_eq!(ledger.init(new, 0xb, 0), Step::Open);
            assert_eq!(ledger.ack(new, 0xb, 0), Step::Complete);
        }
    }

    #[test]
    fn what_an_earlier_life_left_under_way_does_not_keep_a_slot() {
        let mut ledger = Ledger::new(1);
        let (new, old) = (root(5, 9), root(5, 9 + (1 << 20)));
        assert_eq!(ledger.init(new, 0xa, 0), Step::Open);
        assert_eq!(ledger.ack(old, 0xb, 0), Step::Open, "it looks newer, and costs the tree it replaces");
        assert_eq!(ledger.ack(new, 0xa, 0), Step::Stale);
        assert_eq!(ledger.init(root(5, 10), 0xa, 0), Step::Open);
        assert_eq!(ledger.ack(root(5, 10), 0xa, 0), Step::Complete);
    }

    #[test]
    fn a_slot_may_be_opened_often_before_its_ledger_hears_of_it_again() {
        for ahead in [BEHIND_MAX + 1, AHEAD_MAX] {
            let mut ledger = Ledger::new(1);
            assert_eq!(ledger.init(root(5, 9), 0xa, 0), Step::Open);
            assert_eq!(ledger.ack(root(5, 9 + ahead), 0xb, 0), Step::Open);
            assert_eq!(ledger.init(root(5, 9 + ahead), 0xb, 0), Step::Complete);
        }
    }

    #[test]
    fn a_message_may_be_late_by_as_many_openings_as_links_reorder() {
        let mut ledger = Ledger::new(1);
        assert_eq!(ledger.init(root(5, 9 + BEHIND_MAX), 0xa, 0), Step::Open);
        assert_eq!(ledger.init(root(5, 9), 0xb, 0), Step::Stale);
        assert_eq!(ledger.ack(root(5, 9 + BEHIND_MAX), 0xa, 0), Step::Complete);
    }

    #[test]
    fn what_is_of_another_owner_is_stale() {
        let mut ledger = Ledger::new(1);
        let other = Root::of(2, 5, 9);
        assert_eq!(ledger.init(root(5, 9), 0xa, 0), Step::Open);
        assert_eq!(ledger.init(Root::of(2, 5, 10), 0xa, 0), Step::Stale);
        assert_eq!(ledger.ack(other, 0xa, 0), Step::Stale);
        assert_eq!(ledger.fail(other), Step::Stale);
        ledger.forget(other);
        assert_eq!(ledger.ack(root(5, 9), 0xa, 0), Step::Complete);
    }

    #[test]
    fn the_last_slot_has_a_place_and_there_are_no_more() {
        let mut ledger = Ledger::new(1);
        assert_eq!(ledger.init(root(SLOTS_MAX - 1, 1), 0xa, 0), Step::Open);
        assert_eq!(ledger.entries.len(), SLOTS_MAX as usize);
        assert!(ledger.memory_bytes() <= 24 << 20);
    }

    #[test]
    fn a_lost_incarnation_fails_the_trees_that_touched_it() {
        let mut ledger = Ledger::new(1);
        assert_eq!(ledger.init(root(0, 1), 0xa, MASKED), Step::Open); // from the owner
        assert_eq!(ledger.init(root(1, 1), 0xa, 1), Step::Open); // another incarnation
        assert_eq!(ledger.init(root(2, 1), 0xa, 1), Step::Open); // from further down
        assert_eq!(ledger.ack(root(2, 1), 0xa ^ 0xb, MASKED), Step::Open);
        assert_eq!(ledger.ack(root(3, 1), 0xa, MASKED), Step::Open); // before its init
        assert_eq!(ledger.init(root(4, 1), 0xa, MASKED), Step::Open); // ended in time
        assert_eq!(ledger.ack(root(4, 1), 0xa, 0), Step::Complete);
        assert_eq!(lost(&mut ledger, MASKED, 100), [root(0, 1), root(2, 1), root(3, 1)]);
        assert_eq!(lost(&mut ledger, MASKED, 100), []);
        for slot in [0, 2, 3, 4] {
            assert_eq!(ledger.ack(root(slot, 1), 0xa, 0), Step::Stale);
        }
        assert_eq!(ledger.ack(root(1, 1), 0xa, 0), Step::Complete);
        assert_eq!((ledger.failed_by_loss(), ledger.over_failed()), (3, 0));
    }

    #[test]
    fn what_arrives_with_a_lost_bit_fails_until_its_time_is_over() {
        let mut ledger = Ledger::new(1);
        assert_eq!(ledger.init(root(1, 1), 0xa, 0), Step::Open);
        assert_eq!(lost(&mut ledger, MASKED | 1, 100), []);
        ledger.tick(99);
        assert_eq!(ledger.init(root(0, 1), 0xa, MASKED), Step::Failed);
        assert_eq!(ledger.init(root(0, 1), 0xa, MASKED), Step::Stale);
        assert_eq!(ledger.ack(root(1, 1), 0xa, 1), Step::Failed, "even by the ack that would complete it");
        assert_eq!(ledger.ack(root(2, 1), 0xa, 1), Step::Failed, "even before its init");
        assert_eq!(ledger.over_failed(), 3);
        // One bit is lost again and for longer; the other is over.
        assert_eq!(lost(&mut ledger, 1, 200), []);
        assert_eq!(lost(&mut ledger, 1, 150), []);
        ledger.tick(100);
        assert_eq!(ledger.init(root(3, 1), 0xa, MASKED), Step::Open);
        ledger.tick(199);
        assert_eq!(ledger.init(root(4, 1), 0xa, 1), Step::Failed);
        ledger.tick(200);
        assert_eq!(ledger.init(root(5, 1), 0xa, 1), Step::Open);
        assert_eq!(ledger.over_failed(), 4);
        // Lost again later: what was said before does not hold.
        assert_eq!(lost(&mut ledger, MASKED, 50), [root(3, 1)]);
        ledger.tick(60);
        assert_eq!(ledger.init(root(6, 1), 0xa, MASKED), Step::Open);
    }
}
