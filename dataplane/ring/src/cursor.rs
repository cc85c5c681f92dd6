//! The two indices of a one-to-one ring, and who may touch which bytes when. Knows no memory.
//!
//! ```text
//!            head                 tail                       head + capacity
//!   ..........|===== readable =====|........ writable ........|
//!             consumer owns         producer owns
//! ```
//! Both indices only rise (u64 bytes: 584 years at 1 GB/s) and are masked by the ring. Each side keeps the other's index
//! cached and reads the shared one only when the cached value is not enough.
//! Loom model: `tests` below (wrap-around, both sides, data seen whole).

use crate::sync::{Arc, AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

struct Shared {
    /// Bytes released by the consumer. Written only by it.
    head: CachePadded<AtomicU64>,
    /// Bytes published by the producer. Written only by it.
    tail: CachePadded<AtomicU64>,
}

/// The producer's end.
pub struct ProducerCursor {
    shared: Arc<Shared>,
    capacity: u64,
    /// Equals `shared.tail`.
    tail: u64,
    /// At most `shared.head`.
    head_seen: u64,
}

/// The consumer's end.
pub struct ConsumerCursor {
    shared: Arc<Shared>,
    /// Equals `shared.head`.
    head: u64,
    /// At most `shared.tail`.
    tail_seen: u64,
}

/// Two ends of an empty ring of `capacity` bytes (a power of two).
pub fn cursors(capacity: u64) -> (ProducerCursor, ConsumerCursor) {
    assert!(capacity.is_power_of_two(), "indices are masked");
    let shared = Arc::new(Shared { head: CachePadded::new(AtomicU64::new(0)), tail: CachePadded::new(AtomicU64::new(0)) });
    (ProducerCursor { shared: shared.clone(), capacity, tail: 0, head_seen: 0 }, ConsumerCursor { shared, head: 0, tail_seen: 0 })
}

impl ProducerCursor {
    /// Bytes that may be written at [`Self::tail`], looking at the consumer's index only if fewer than `want` are known free.
    #[inline]
    pub fn free(&mut self, want: u64) -> u64 {
        let known = self.capacity - (self.tail - self.head_seen);
        if known >= want {
            return known;
        }
        // Acquire: pairs with the Release in `ConsumerCursor::release`; the consumer is done with the bytes below `head`.
        self.head_seen = self.shared.head.load(Ordering::Acquire);
        self.capacity - (self.tail - self.head_seen)
    }

    /// Where the next byte goes, unmasked.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Makes `n` written bytes visible. `n` is at most what `free` said.
    #[inline]
    pub fn publish(&mut self, n: u64) {
        debug_assert!(n <= self.capacity - (self.tail - self.head_seen), "published more than was free");
        self.tail += n;
        // Release: pairs with the Acquire in `ConsumerCursor::available`; makes the bytes below `tail` visible.
        self.shared.tail.store(self.tail, Ordering::Release);
    }

    /// Bytes not yet released by the consumer, exact for this moment.
    pub fn unread(&mut self) -> u64 {
        self.head_seen = self.shared.head.load(Ordering::Acquire);
        self.tail - self.head_seen
    }
}

impl ConsumerCursor {
    /// Bytes readable at [`Self::head`]; reads the producer's index only when nothing is known to be there.
    #[inline]
    pub fn available(&mut self) -> u64 {
        if self.tail_seen == self.head {
            // Acquire: pairs with the Release in `ProducerCursor::publish`.
            self.tail_seen = self.shared.tail.load(Ordering::Acquire);
        }
        self.tail_seen - self.head
    }

    /// Bytes readable now, reading the producer's index in any case.
    #[inline]
    pub fn refresh(&mut self) -> u64 {
        self.tail_seen = self.shared.tail.load(Ordering::Acquire);
        self.tail_seen - self.head
    }

    /// Where the next byte is, unmasked.
    #[inline]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Gives `n` bytes back. `n` is at most what `available` said.
    #[inline]
    pub fn release(&mut self, n: u64) {
        assert!(n <= self.tail_seen - self.head, "released more than was readable");
        self.head += n;
        // Release: pairs with the Acquire in `ProducerCursor::free`; our reads of these bytes are over.
        self.shared.head.store(self.head, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell;

    /// Four cells, eight bytes through them: every index wraps, and each value arrives once, in order, whole.
    #[test]
    fn values_cross_in_order_over_the_wrap() {
        // Three preemptions reach every race of two threads over three wraps; unbounded takes minutes.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            const CAPACITY: u64 = 2;
            const VALUES: u64 = 4;
            let cells: Arc<Vec<UnsafeCell<u64>>> = Arc::new((0..CAPACITY).map(|_| UnsafeCell::new(u64::MAX)).collect());
            let (mut producer, mut consumer) = cursors(CAPACITY);
            let theirs = cells.clone();
            let thread = loom::thread::spawn(move || {
                for value in 0..VALUES {
                    while producer.free(1) == 0 {
                        loom::thread::yield_now();
                    }
                    #[expect(unsafe_code, reason = "loom's cell checks the access itself")]
                    // SAFETY: `free` said this cell is the producer's until `publish`; loom fails the model otherwise.
                    theirs[(producer.tail() % CAPACITY) as usize].with_mut(|p| unsafe { *p = value });
                    producer.publish(1);
                }
            });
            for value in 0..VALUES {
                while consumer.available() == 0 {
                    loom::thread::yield_now();
                }
                #[expect(unsafe_code, reason = "loom's cell checks the access itself")]
                // SAFETY: `available` said this cell is the consumer's until `release`; loom fails the model otherwise.
                let seen = cells[(consumer.head() % CAPACITY) as usize].with(|p| unsafe { *p });
                assert_eq!(seen, value);
                consumer.release(1);
            }
            thread.join().unwrap();
        });
    }
}
