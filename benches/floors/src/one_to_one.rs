//! One-to-one ring with cached indices: each side keeps the last index it saw of the other and reads the shared one only when that is
//! not enough. Publishes once per batch.
//!
//! Before: `bench` moves items over it. It is the denominator of every hop and every rate between two cores, and with both ends on one thread
//! of the hop inside a core. Slots hold plain data from the start on, so that they may be filled in place.
//!
//! ```text
//! head (consumer writes)   tail (producer writes)        slots: capacity is a power of two, index & mask
//!  [ line 0 ]               [ line 1 ]                    [0][1]..[mask]     head <= tail <= head + capacity
//! ```

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the ring carries: one cache line, like a small tuple with its header.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
pub struct Item(pub [u64; 8]);

/// The same line as bytes: what an archive is written into.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub struct Bytes(pub [u8; 64]);

impl Default for Bytes {
    fn default() -> Self {
        Bytes([0; 64])
    }
}

const _: () = assert!(size_of::<Item>() == 64 && size_of::<Bytes>() == 64, "the floor is stated for 64 bytes");

/// Two lines: neighbouring lines are prefetched in pairs.
#[repr(align(128))]
struct Padded(AtomicUsize);

struct Shared<T> {
    /// Items taken. Written by the consumer only; never above `tail`.
    head: Padded,
    /// Items put. Written by the producer only; never above `head + slots.len()`.
    tail: Padded,
    slots: Box<[UnsafeCell<T>]>,
    mask: usize,
}

// SAFETY: a slot is touched by one side at a time: the producer between `head + len` and its next `tail`, the consumer between `head` and
// `tail`; the indices are handed over by Release stores and Acquire loads, and there is one handle per side, neither of which is `Clone`.
unsafe impl<T: Copy + Send> Sync for Shared<T> {}
// SAFETY: it owns its slots, and `T` is plain data.
unsafe impl<T: Copy + Send> Send for Shared<T> {}

/// The writing end. One per ring.
pub struct Producer<T = Item> {
    shared: Arc<Shared<T>>,
    tail: usize,
    /// Last `head` seen; the true one is at least this.
    head_seen: usize,
}

/// The reading end. One per ring.
pub struct Consumer<T = Item> {
    shared: Arc<Shared<T>>,
    head: usize,
    /// Last `tail` seen; the true one is at least this.
    tail_seen: usize,
}

/// A ring of `capacity` items.
///
/// # Panics
/// When `capacity` is not a power of two.
#[must_use]
pub fn ring<T: Copy + Default + Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    assert!(capacity.is_power_of_two(), "capacity {capacity} is not a power of two");
    let slots = (0..capacity).map(|_| UnsafeCell::new(T::default())).collect();
    let index = || Padded(AtomicUsize::new(0));
    let shared = Arc::new(Shared { head: index(), tail: index(), slots, mask: capacity - 1 });
    (Producer { shared: Arc::clone(&shared), tail: 0, head_seen: 0 }, Consumer { shared, head: 0, tail_seen: 0 })
}

impl<T: Copy + Send> Producer<T> {
    /// Puts up to `n` items, made by `make(i)`, and publishes them once. Returns how many: 0 when the ring is full.
    #[inline]
    pub fn push_batch(&mut self, n: usize, mut make: impl FnMut(usize) -> T) -> usize {
        self.fill_batch(n, |i, slot| *slot = make(i))
    }

    /// The same, each item made in its slot by `fill(i, slot)`; the slot still holds what lay there before.
    #[inline]
    pub fn fill_batch(&mut self, n: usize, mut fill: impl FnMut(usize, &mut T)) -> usize {
        let capacity = self.shared.mask + 1;
        let mut free = capacity - (self.tail - self.head_seen);
        if free < n {
            // Acquire: pairs with the consumer's Release of `head`; its reads of the slots we are about to write are over.
            self.head_seen = self.shared.head.0.load(Ordering::Acquire);
            free = capacity - (self.tail - self.head_seen);
        }
        let n = n.min(free);
        for i in 0..n {
            let index = (self.tail + i) & self.shared.mask;
            // NEED: with a bounds check and a copy out of an atomic slot the rate is about half; see `cargo run --example floors`.
            // SAFETY: `index <= mask` and `slots.len() == mask + 1`, both fixed in `ring`; the slot is ours until the store of `tail`
            // below, because `tail + i < head_seen + capacity` and the consumer reads nothing at or above `tail`.
            fill(i, unsafe { &mut *self.shared.slots.get_unchecked(index).get() });
        }
        if n > 0 {
            self.tail += n;
            // Release: pairs with the Acquire in `pop_batch`; makes the slots up to `tail` visible.
            self.shared.tail.0.store(self.tail, Ordering::Release);
        }
        n
    }

    /// Whether everything put has been taken. Reads the consumer's line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // Acquire: pairs with the consumer's Release of `head`.
        self.shared.head.0.load(Ordering::Acquire) == self.tail
    }
}

impl<T: Copy + Send> Consumer<T> {
    /// Shows up to `n` items, in place and in order, and frees them once. Returns how many: 0 when the ring is empty.
    #[inline]
    pub fn pop_batch(&mut self, n: usize, mut take: impl FnMut(&T)) -> usize {
        if self.tail_seen - self.head < n {
            // Acquire: pairs with the producer's Release of `tail`.
            self.tail_seen = self.shared.tail.0.load(Ordering::Acquire);
        }
        let n = n.min(self.tail_seen - self.head);
        for i in 0..n {
            let index = (self.head + i) & self.shared.mask;
            // NEED: as in `push_batch`.
            // SAFETY: `index <= mask` as there; the slot was written before the `tail` that we read with Acquire, since
            // `head + i < tail_seen`, and the producer writes it again only after the store of `head` below.
            take(unsafe { &*self.shared.slots.get_unchecked(index).get() });
        }
        if n > 0 {
            self.head += n;
            // Release: pairs with the Acquire in `push_batch`; our reads of these slots are over.
            self.shared.head.0.store(self.head, Ordering::Release);
        }
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_takes_nothing_and_an_empty_one_gives_nothing() {
        let (mut producer, mut consumer) = ring::<Item>(4);
        assert_eq!(consumer.pop_batch(4, |_| panic!("nothing was put")), 0);
        assert_eq!(producer.push_batch(6, |i| Item([i as u64; 8])), 4);
        assert_eq!(producer.push_batch(1, |_| panic!("no room to make anything")), 0);
        let mut seen = Vec::new();
        assert_eq!(consumer.pop_batch(3, |item| seen.push(item.0[7])), 3);
        assert_eq!(producer.push_batch(6, |i| Item([10 + i as u64; 8])), 3);
        assert_eq!(consumer.pop_batch(9, |item| seen.push(item.0[0])), 4);
        assert_eq!(seen, [0, 1, 2, 3, 10, 11, 12]);
    }

    #[test]
    fn two_threads_see_every_item_once_and_in_order_over_many_wraps() {
        const N: u64 = if cfg!(miri) { 200 } else { 20_000 };
        let (mut producer, mut consumer) = ring::<Item>(8);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut next = 0;
                while next < N {
                    let n = producer.push_batch(3.min((N - next) as usize), |i| Item([next + i as u64; 8]));
                    next += n as u64;
                    if n == 0 {
                        std::thread::yield_now();
                    }
                }
            });
            let mut next = 0;
            while next < N {
                let n = consumer.pop_batch(5, |item| {
                    assert_eq!(item.0, [next; 8]);
                    next += 1;
                });
                if n == 0 {
                    std::thread::yield_now();
                }
            }
        });
    }
}
