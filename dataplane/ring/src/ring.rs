//! A one-to-one byte ring: bulk copy in, read in place, the head moved once per batch.
//!
//! Before: `Producer::push` has a batch of whole frames. After: `Consumer::readable` lends them as one slice.
//! Writing frames one by one into shared lines halves the rate (26 against 53-64 M tuples/s), so there is no way to do it.

use crate::cursor::{ConsumerCursor, ProducerCursor, cursors};
use crate::mirror::Mirror;
use std::sync::Arc;

/// Writing end.
pub struct Producer {
    cursor: ProducerCursor,
    memory: Arc<Mirror>,
}

/// Reading end.
pub struct Consumer {
    cursor: ConsumerCursor,
    memory: Arc<Mirror>,
}

/// An empty ring of `capacity` bytes (power of two, at least a page). Errors as [`Mirror::new`].
pub fn ring(capacity: usize) -> std::io::Result<(Producer, Consumer)> {
    let memory = Arc::new(Mirror::new(capacity)?);
    let (p, c) = cursors(capacity as u64);
    Ok((Producer { cursor: p, memory: memory.clone() }, Consumer { cursor: c, memory }))
}

impl Producer {
    /// Bytes of the whole ring.
    pub fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    /// Bytes that can be pushed now. Cheap when at least `want` are known to be free.
    #[inline]
    pub fn free(&mut self, want: usize) -> usize {
        self.cursor.free(want as u64) as usize
    }

    /// Bytes pushed and not yet released.
    pub fn unread(&mut self) -> usize {
        self.cursor.unread() as usize
    }

    /// Copies all of `bytes` in and publishes them at once, or nothing: false = not enough room.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        if self.free(bytes.len()) < bytes.len() {
            return false;
        }
        // SAFETY: `free` says that `bytes.len()` bytes from `tail` on are the producer's until `publish`, and it is at most
        // `capacity`. `bytes` is a live slice; it cannot overlap the ring's writable part, which is lent to nobody.
        unsafe { self.memory.write(self.cursor.tail(), bytes) };
        self.cursor.publish(bytes.len() as u64);
        true
    }
}

impl Producer {
    /// Writes to the lines that come next, if they are free, so that this core owns them when the next batch is pushed. Publishes nothing.
    pub fn warm(&mut self) {
        const NEXT: [u8; 256] = [0; 256];
        if self.free(NEXT.len()) >= NEXT.len() {
            // SAFETY: as in `push`; what is not published nobody reads.
            unsafe { self.memory.write(self.cursor.tail(), &NEXT) };
        }
    }
}

impl Consumer {
    /// Everything readable, as one slice. Empty = nothing there. Stays valid until `release`, which needs the borrow back.
    #[inline]
    pub fn readable(&mut self) -> &[u8] {
        let n = self.cursor.available() as usize;
        // The producer wrote `n` bytes from `head` and published them; it does not touch them before `release` moves `head`,
        // which needs `&mut self` and so ends this borrow.
        self.memory.slice(self.cursor.head(), n)
    }

    /// True when nothing is readable, looking at the producer's index in any case: for the last look before sleeping.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.cursor.refresh() == 0
    }

    /// Gives the first `n` readable bytes back to the producer.
    #[inline]
    pub fn release(&mut self, n: usize) {
        self.cursor.release(n as u64);
    }
}

/// Asks the core to fetch the line at `bytes[at]` for reading; past the end nothing happens. Worth 20 % where the consumer is
/// the limit, because variable-length frames chain its misses.
#[inline(always)]
pub fn prefetch(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if at < bytes.len() {
        // SAFETY: prefetch has no effect on memory or registers; the address lies inside `bytes`.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(bytes.as_ptr().add(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 256 }))]
        /// Random pushes and releases against a queue of bytes: same bytes, same order, same refusals.
        #[test]
        fn behaves_like_a_bounded_queue(ops in prop::collection::vec((any::<bool>(), 1usize..5000), 1..200)) {
            let (mut p, mut c) = ring(4096).unwrap();
            let mut model: VecDeque<u8> = VecDeque::new();
            let mut next = 0u8;
            for (push, n) in ops {
                // Writes where nobody reads, whatever the state.
                p.warm();
                if push {
                    let bytes: Vec<u8> = (0..n).map(|i| next.wrapping_add(i as u8)).collect();
                    let fits = model.len() + n <= 4096;
                    prop_assert_eq!(p.push(&bytes), fits);
                    if fits { model.extend(&bytes); next = next.wrapping_add(n as u8); }
                } else {
                    c.is_empty();
                    let seen = c.readable();
                    prop_assert_eq!(seen.len(), model.len());
                    prop_assert!(seen == model.make_contiguous());
                    let n = n.min(model.len());
                    c.release(n);
                    model.drain(..n);
                }
            }
        }
    }

    #[test]
    fn bytes_cross_threads_whole_and_in_order() {
        const TOTAL: u64 = if cfg!(miri) { 500 } else { 200_000 };
        let (mut p, mut c) = ring(4096).unwrap();
        let writer = std::thread::spawn(move || {
            for i in 0..TOTAL {
                while !p.push(&i.to_le_bytes()) {
                    std::thread::yield_now();
                }
            }
        });
        let mut want = 0;
        while want < TOTAL {
            let seen = c.readable();
            let n = seen.len();
            for value in seen.chunks_exact(8) {
                assert_eq!(u64::from_le_bytes(value.try_into().unwrap()), want);
                want += 1;
            }
            c.release(n);
            if n == 0 {
                std::thread::yield_now();
            }
        }
        writer.join().unwrap();
    }
}
