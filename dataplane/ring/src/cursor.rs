//! The two indices of a one-to-one ring, and who may touch which bytes when. Knows no memory.
//!
//! ```text
//!            head                 tail                       head + capacity
//!   ..........|===== readable =====|........ writable ........|
//!             consumer owns         producer owns
//! ```
//! Both indices only rise (u64 bytes: 584 years at 1 GB/s) and are masked by the ring. Each side keeps the other's index
//! cached and reads the shared one only when the cached value is not enough.
//! Where the indices live is the business of an [`Indices`]: in this process ([`InProcess`]), or in memory of two processes (`shared.rs`),
//! which also looks at what the other side wrote there before it is believed.
//! Loom model: `tests` below (wrap-around, both sides, data seen whole).

use crate::sync::{Arc, AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// Where the two indices of a ring live.
pub trait Indices {
    /// Bytes released by the consumer. Written only by it.
    fn head(&self) -> &AtomicU64;
    /// Bytes published by the producer. Written only by it.
    fn tail(&self) -> &AtomicU64;
    /// The other side's index was `seen` and now reads `read`: what to go on with, from `seen` to `most`. A sound other side is
    /// [`plausible`].
    fn believe(&self, read: u64, seen: u64, most: u64) -> u64;
}

/// Whether an index may go from `seen` to `read`: never back, never beyond `most` (which is at least `seen`).
#[inline]
pub fn plausible(read: u64, seen: u64, most: u64) -> bool {
    read.wrapping_sub(seen) <= most - seen
}

/// Indices of two threads of one process. Each runs the cursors of this file, so they are believed.
pub struct InProcess {
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
}

impl Indices for Arc<InProcess> {
    #[inline]
    fn head(&self) -> &AtomicU64 {
        &self.head
    }
    #[inline]
    fn tail(&self) -> &AtomicU64 {
        &self.tail
    }
    #[inline]
    fn believe(&self, read: u64, seen: u64, most: u64) -> u64 {
        // Also what the loom model shows: between two sound sides no interleaving makes a plausible index look impossible.
        debug_assert!(plausible(read, seen, most), "an index went from {seen} to {read}, beyond {most}");
        read
    }
}

/// The producer's end.
pub struct ProducerCursor<I = Arc<InProcess>> {
    indices: I,
    capacity: u64,
    /// Equals the shared one.
    tail: u64,
    /// At most the shared one, at least `tail - capacity`.
    head_seen: u64,
}

/// The consumer's end.
pub struct ConsumerCursor<I = Arc<InProcess>> {
    indices: I,
    capacity: u64,
    /// Equals the shared one.
    head: u64,
    /// At most the shared one and `head + capacity`.
    tail_seen: u64,
}

/// Two ends of an empty ring of `capacity` bytes (a power of two), for two threads.
pub fn cursors(capacity: u64) -> (ProducerCursor, ConsumerCursor) {
    let shared = Arc::new(InProcess { head: CachePadded::new(AtomicU64::new(0)), tail: CachePadded::new(AtomicU64::new(0)) });
    (ProducerCursor::new(shared.clone(), capacity), ConsumerCursor::new(shared, capacity))
}

impl<I: Indices> ProducerCursor<I> {
    /// The writing end of an empty ring of `capacity` bytes (a power of two), whose indices are 0.
    pub fn new(indices: I, capacity: u64) -> Self {
        assert!(capacity.is_power_of_two(), "indices are masked");
        ProducerCursor { indices, capacity, tail: 0, head_seen: 0 }
    }

    /// As given to `new`.
    #[inline]
    pub fn indices(&self) -> &I {
        &self.indices
    }

    /// Bytes that may be written at [`Self::tail`], looking at the consumer's index only if fewer than `want` are known free.
    #[inline]
    pub fn free(&mut self, want: u64) -> u64 {
        let known = self.capacity - (self.tail - self.head_seen);
        if known >= want {
            return known;
        }
        self.capacity - self.unread()
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
        self.indices.tail().store(self.tail, Ordering::Release);
    }

    /// Bytes not yet released by the consumer, exact for this moment.
    #[inline]
    pub fn unread(&mut self) -> u64 {
        // Acquire: pairs with the Release in `ConsumerCursor::release`; the consumer is done with the bytes below `head`.
        let read = self.indices.head().load(Ordering::Acquire);
        self.head_seen = self.indices.believe(read, self.head_seen, self.tail);
        self.tail - self.head_seen
    }
}

impl<I: Indices> ConsumerCursor<I> {
    /// The reading end of an empty ring of `capacity` bytes (a power of two), whose indices are 0.
    pub fn new(indices: I, capacity: u64) -> Self {
        assert!(capacity.is_power_of_two(), "indices are masked");
        ConsumerCursor { indices, capacity, head: 0, tail_seen: 0 }
    }

    /// As given to `new`.
    #[inline]
    pub fn indices(&self) -> &I {
        &self.indices
    }

    /// Bytes readable at [`Self::head`]; reads the producer's index only when nothing is known to be there.
    #[inline]
    pub fn available(&mut self) -> u64 {
        if self.tail_seen == self.head {
            return self.refresh();
        }
        self.tail_seen - self.head
    }

    /// Bytes known to be readable, without a look at the producer's index.
    #[inline]
    pub fn known(&self) -> u64 {
        self.tail_seen - self.head
    }

    /// Bytes readable now, reading the producer's index in any case.
    #[inline]
    pub fn refresh(&mut self) -> u64 {
        // Acquire: pairs with the Release in `ProducerCursor::publish`.
        let read = self.indices.tail().load(Ordering::Acquire);
        self.tail_seen = self.indices.believe(read, self.tail_seen, self.head + self.capacity);
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
        self.indices.head().store(self.head, Ordering::Release);
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
