//! Epoch swap: who of two sides may touch which of two sets when. Knows no memory.
//!
//! One thread counts all the time, another reads now and then, neither waits for the other. Of two sets each is one side's at any moment:
//! the reader asks for the next epoch, the writer enters it when it comes by ([`WriterEpoch::turn`]) and from then on fills the other set,
//! so that the one it has left is the reader's, who empties it before it asks again. Two words with one writer each; every call is a load
//! and at most a store, on both sides.
//! Loom model: `tests` below (exclusive, nothing lost, at any moment of either side).

use crate::sync::{Arc, AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

struct Shared {
    /// Epoch the reader wants. Written only by it; at most one ahead of `entered`.
    asked: CachePadded<AtomicU64>,
    /// Epoch the writer is in. Written only by it.
    entered: CachePadded<AtomicU64>,
}

/// The side that fills sets.
pub struct WriterEpoch {
    shared: Arc<Shared>,
    /// Equals `shared.entered`.
    epoch: u64,
}

/// The side that empties them.
pub struct ReaderEpoch {
    shared: Arc<Shared>,
    /// Equals `shared.asked`.
    epoch: u64,
    /// The set of the epoch before is ours to empty, or was emptied and not asked away.
    ours: bool,
}

/// Two sides. Both sets are empty, set 0 is the writer's.
pub fn epochs() -> (WriterEpoch, ReaderEpoch) {
    let shared = Arc::new(Shared { asked: CachePadded::new(AtomicU64::new(0)), entered: CachePadded::new(AtomicU64::new(0)) });
    (WriterEpoch { shared: shared.clone(), epoch: 0 }, ReaderEpoch { shared, epoch: 0, ours: true })
}

impl WriterEpoch {
    /// Which set to fill, 0 or 1. Changes only in [`Self::turn`].
    #[inline]
    pub fn set(&self) -> usize {
        self.epoch as usize & 1
    }

    /// If the reader has asked: `before` puts the last into the set that is left, then the other one is ours. False = nobody has asked.
    #[inline]
    pub fn turn(&mut self, before: impl FnOnce()) -> bool {
        // Acquire: pairs with the Release in `ReaderEpoch::ask`; the set we are about to fill has been emptied.
        let asked = self.shared.asked.load(Ordering::Acquire);
        if asked == self.epoch {
            return false;
        }
        before();
        self.epoch = asked;
        // Release: pairs with the Acquire in `ReaderEpoch::collect`; all that was put into the set is visible.
        self.shared.entered.store(asked, Ordering::Release);
        true
    }
}

impl ReaderEpoch {
    /// Asks for what is being counted. Does nothing while an earlier ask is open, or its set was not collected.
    pub fn ask(&mut self) {
        if self.ours {
            self.ours = false;
            self.epoch += 1;
            // Release: pairs with the Acquire in `WriterEpoch::turn`; we are done with the set that we offer.
            self.shared.asked.store(self.epoch, Ordering::Release);
        }
    }

    /// The set to read and to empty before the next [`Self::ask`], once per ask. `None` = the writer has not come by.
    pub fn collect(&mut self) -> Option<usize> {
        // Acquire: pairs with the Release in `WriterEpoch::turn`.
        if self.ours || self.shared.entered.load(Ordering::Acquire) != self.epoch {
            return None;
        }
        self.ours = true;
        Some((self.epoch as usize & 1) ^ 1)
    }
}

#[cfg(all(test, not(loom)))]
mod plain_tests {
    use super::*;

    #[test]
    fn sets_change_hands_only_when_asked_and_only_once() {
        let (mut writer, mut reader) = epochs();
        assert!(!writer.turn(|| unreachable!()));
        assert_eq!(reader.collect(), None);
        reader.ask();
        reader.ask();
        assert_eq!(reader.collect(), None, "the writer has not come by");
        assert_eq!(writer.set(), 0);
        assert!(writer.turn(|| ()));
        assert!(!writer.turn(|| unreachable!()), "one ask, one turn");
        assert_eq!(writer.set(), 1);
        assert_eq!(reader.collect(), Some(0));
        assert_eq!(reader.collect(), None);
        reader.ask();
        assert!(writer.turn(|| ()));
        assert_eq!((writer.set(), reader.collect()), (0, Some(1)));
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell;

    /// Loom checks that never two threads are at one set, and that what one wrote the other sees.
    struct Sets([UnsafeCell<u32>; 2]);

    impl Sets {
        #[expect(unsafe_code, reason = "loom's cell checks the access itself")]
        fn add(&self, set: usize) {
            // SAFETY: `set` is the writer's epoch's; loom fails the model if the reader is at it.
            self.0[set].with_mut(|p| unsafe { *p += 1 });
        }
        #[expect(unsafe_code, reason = "loom's cell checks the access itself")]
        fn take(&self, set: usize) -> u32 {
            // SAFETY: `set` was collected, or the writer's thread is over; loom fails the model otherwise.
            self.0[set].with_mut(|p| unsafe { std::mem::take(&mut *p) })
        }
    }

    /// The writer counts and comes by, the reader asks and collects, three times each: each count is seen once, in every interleaving.
    #[test]
    fn a_swap_at_any_moment_loses_nothing() {
        loom::model(|| {
            const ROUNDS: u32 = 3;
            let sets = Arc::new(Sets([UnsafeCell::new(0), UnsafeCell::new(0)]));
            let (mut writer, mut reader) = epochs();
            let theirs = sets.clone();
            let thread = loom::thread::spawn(move || {
                let mut closed = 0;
                for _ in 0..ROUNDS {
                    theirs.add(writer.set());
                    let left = writer.set();
                    closed += u32::from(writer.turn(|| theirs.add(left)));
                }
                closed
            });
            let mut sum = 0;
            for _ in 0..ROUNDS {
                reader.ask();
                sum += reader.collect().map_or(0, |set| sets.take(set));
            }
            let closed = thread.join().unwrap();
            assert_eq!(sum + sets.take(0) + sets.take(1), ROUNDS + closed);
        });
    }
}
