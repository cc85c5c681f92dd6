//! One small tuple inside one core: archived into a buffer, put into a one-to-one ring whose other end is on the same thread, then read in
//! place by a dyn call. In chunks of 64: archive 64, publish once, read 64. Beside it the same without the buffer: archived in the ring's slot.
//!
//! Before: `hop` asks for nanoseconds a tuple. After: our same-core hop stands over them.
//! The two differ by more than a copy: a line read whole, just after it was written in words, waits for its stores.
//! The tuple is that of the suites, {u64, 20-byte text}, with the same accesses: the number is compared, every byte of the text is read. Texts
//! are different and come from memory, as a user's do: of one that the compiler knows, no more than two stores would be left.

use std::mem::MaybeUninit;
use std::time::Instant;

use rkyv::rancor::Failure;
use rkyv::ser::allocator::SubAllocator;
use rkyv::ser::writer::Buffer;
use rkyv::{Archive, Serialize};
use saetta_harness::{Result, pin_to_core};

use crate::one_to_one::{self, Bytes};
use crate::{RING_BATCH, SMALL_RING_CAPACITY};

/// Text of the tuple: longer than what an archive holds inline.
const TEXT: &str = "twenty bytes of text";
/// Bytes of an archive of [`Small`]: the text, then number and where the text is.
const ARCHIVE_BYTES: usize = TEXT.len() + size_of::<ArchivedSmall>();

/// Different tuples that take turns. All in the first-level cache.
const TUPLES: usize = 64;

const _: () = assert!(TEXT.len() == 20 && ARCHIVE_BYTES <= 64, "an archive fits a slot");
const _: () = assert!(RING_BATCH <= SMALL_RING_CAPACITY, "a chunk fits the ring, and the ring the first-level cache");

/// The small tuple of the suites.
#[derive(Archive, Serialize)]
struct Small {
    number: u64,
    text: String,
}

/// What a bolt would be: called through a table.
trait Take {
    fn take(&mut self, archive: &[u8; 64]);
}

/// Reads everything, and remembers whether each number was the one due.
struct Sum {
    due: u64,
    wrong: u64,
    sum: u64,
}

impl Take for Sum {
    #[inline(never)]
    fn take(&mut self, archive: &[u8; 64]) {
        // Where rkyv lays them: the text first, since what points at it comes last. `an_archive_lies_as_it_is_read` compares with rkyv's own view.
        let (text, rest) = archive.split_at(TEXT.len());
        let number = u64::from_le_bytes(*rest.first_chunk().expect("a constant"));
        self.wrong += u64::from(number != self.due);
        self.due += 1;
        self.sum =
            text.chunks(8).fold(self.sum, |sum, word| word.first_chunk().map_or(sum, |word| sum.wrapping_add(u64::from_le_bytes(*word))));
    }
}

/// Archives `small` at the front of `buffer`.
#[inline(always)]
fn archive(small: &Small, buffer: &mut [u8; 64], scratch: &mut [MaybeUninit<u8>]) {
    let written = rkyv::api::low::to_bytes_in_with_alloc::<_, _, Failure>(small, Buffer::from(buffer), SubAllocator::new(scratch));
    debug_assert_eq!(written.expect("it fits").len(), ARCHIVE_BYTES);
}

/// Nanoseconds a tuple, on one core: archived into a buffer, then put into the ring.
///
/// # Errors
/// When the core cannot be had, or a number came out of its place.
pub fn same_thread_ns(core: usize, tuples: u64) -> Result<f64> {
    std::thread::scope(|scope| scope.spawn(|| on_this_thread::<false>(core, tuples)).join().expect("the floor does not panic"))
}

/// The same, archived in the slot of the ring.
///
/// # Errors
/// As [`same_thread_ns`].
pub fn same_thread_in_place_ns(core: usize, tuples: u64) -> Result<f64> {
    std::thread::scope(|scope| scope.spawn(|| on_this_thread::<true>(core, tuples)).join().expect("the floor does not panic"))
}

fn on_this_thread<const IN_PLACE: bool>(core: usize, tuples: u64) -> Result<f64> {
    pin_to_core(core)?;
    let (mut producer, mut consumer) = one_to_one::ring::<Bytes>(SMALL_RING_CAPACITY);
    let mut scratch = [MaybeUninit::uninit(); 64];
    let text = |i: usize| format!("{}{:02}", &TEXT[..TEXT.len() - 2], i % 100);
    let mut tuples_in_turn: Vec<Small> = (0..TUPLES).map(|i| Small { number: 0, text: text(i) }).collect();
    let mut number = 0;
    let mut sum = Sum { due: 0, wrong: 0, sum: 0 };
    // Behind a black box, or the call is inlined and the archive with it.
    let bolt: &mut dyn Take = std::hint::black_box(&mut sum);
    let mut through = |tuples: u64| {
        let mut left = usize::try_from(tuples).unwrap_or(usize::MAX);
        while left > 0 {
            left -= producer.fill_batch(RING_BATCH.min(left), |i, slot| {
                let small = &mut tuples_in_turn[i % TUPLES];
                small.number = number;
                number += 1;
                if IN_PLACE {
                    archive(small, &mut slot.0, &mut scratch);
                } else {
                    let mut buffer = Bytes::default();
                    archive(small, &mut buffer.0, &mut scratch);
                    *slot = buffer;
                }
            });
            consumer.pop_batch(RING_BATCH, |slot| bolt.take(&slot.0));
        }
    };
    through(tuples / 10);
    let start = Instant::now();
    through(tuples);
    let took = start.elapsed();
    std::hint::black_box(sum.sum);
    if sum.wrong != 0 || sum.due != tuples / 10 + tuples {
        return Err(format!("{} tuples out of place, {} read", sum.wrong, sum.due).into());
    }
    Ok(took.as_nanos() as f64 / tuples as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_lies_as_it_is_read() {
        let mut slot = [0xff; 64];
        archive(&Small { number: 0x0102_0304, text: TEXT.to_owned() }, &mut slot, &mut [MaybeUninit::uninit(); 64]);
        let view = rkyv::access::<ArchivedSmall, rkyv::rancor::Error>(&slot[..ARCHIVE_BYTES]).expect("a valid archive");
        assert_eq!((view.number.to_native(), view.text.as_str()), (0x0102_0304, TEXT));
        assert_eq!(&slot[..TEXT.len()], TEXT.as_bytes());
        let mut sum = Sum { due: 0x0102_0304, wrong: 0, sum: 0 };
        sum.take(&slot);
        assert_eq!(sum.wrong, 0);
    }

    #[test]
    fn every_tuple_comes_out_in_order() {
        let core = saetta_harness::pin::cores_of_this_thread()[0];
        assert!(same_thread_ns(core, 10_000).expect("one core") > 0.0);
        assert!(same_thread_in_place_ns(core, 10_000).expect("one core") > 0.0);
        assert!(same_thread_ns(1000, 10).is_err());
    }
}
