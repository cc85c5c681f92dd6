//! The ring that `shared_memory` measures: bytes in a memory file, mapped twice, with an index of each side on a line of its own.
//!
//! Before: two processes hold the same memory file. After: what one has published the other reads in place.

use std::io::{Error, Result};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Bytes of one ring.
const RING_BYTES: usize = 1 << 20;
/// Bytes in front of it, for the indices.
const INDEX_BYTES: usize = 4096;
/// What one ring takes in the file.
pub(crate) const FILE_BYTES: usize = INDEX_BYTES + RING_BYTES;

const _: () = assert!(RING_BYTES.is_power_of_two() && RING_BYTES.is_multiple_of(4096), "it is mapped twice, and masked");

/// Each on lines of its own: neighbouring lines are prefetched in pairs.
#[repr(C)]
struct Indices {
    /// Bytes taken. Written by the consumer only; never above `tail`.
    head: Line,
    /// Bytes published. Written by the producer only; never above `head + RING_BYTES`.
    tail: Line,
    /// Not 0: the consumer has had enough.
    over: Line,
}

#[repr(C, align(128))]
struct Line(AtomicU64);

const _: () = assert!(size_of::<Indices>() <= INDEX_BYTES, "the indices have a page");

/// One side's mapping.
struct Map {
    base: NonNull<u8>,
}

// SAFETY: the mapping belongs to no thread; which bytes are whose is settled by the indices, and there is one handle per side.
unsafe impl Send for Map {}

impl Map {
    /// Ring number `which` of the file.
    fn new(file: &OwnedFd, which: usize) -> Result<Self> {
        let (rw, offset) = (ProtFlags::READ | ProtFlags::WRITE, (which * FILE_BYTES) as u64);
        let bytes = FILE_BYTES + RING_BYTES;
        // NEED: there is no safe way to map a file.
        // SAFETY: a fresh anonymous reservation at an address of the kernel's choice aliases nothing.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)? };
        let map = Map { base: NonNull::new(base.cast()).ok_or(Error::from_raw_os_error(12))? };
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE;
        // NEED: as above.
        // SAFETY: both ranges lie inside the reservation, which nothing else uses, so FIXED replaces only it.
        unsafe {
            mmap(base, FILE_BYTES, rw, flags, file, offset)?;
            mmap(base.byte_add(FILE_BYTES), RING_BYTES, rw, flags, file, offset + INDEX_BYTES as u64)?;
        }
        Ok(map)
    }

    fn indices(&self) -> &Indices {
        // NEED: the indices lie in mapped memory.
        // SAFETY: a page is mapped there, page-aligned, zeroed or written as atomics; only atomics are in it.
        unsafe { self.base.cast::<Indices>().as_ref() }
    }

    /// Where the byte at an unmasked index lies; `RING_BYTES` from it on are mapped.
    fn at(&self, index: u64) -> *mut u8 {
        // NEED: a bounds check per message is what the floor is to be free of.
        // SAFETY: the masked index is below `RING_BYTES`, and twice that is mapped behind the indices.
        unsafe { self.base.as_ptr().add(INDEX_BYTES + (index as usize & (RING_BYTES - 1))) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // NEED: as the mapping.
        // SAFETY: exactly the reservation of `new`; whatever borrows it borrows the handle that is dropped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), FILE_BYTES + RING_BYTES) };
    }
}

/// The writing end. One per ring, in whichever process.
pub(crate) struct Producer {
    map: Map,
    /// Filled up to here; published up to the shared one.
    tail: u64,
    /// Last `head` seen; the true one is at least this.
    head_seen: u64,
}

impl Producer {
    pub(crate) fn map(file: &OwnedFd, which: usize) -> Result<Self> {
        Ok(Producer { map: Map::new(file, which)?, tail: 0, head_seen: 0 })
    }

    /// Lets `fill` write the next `n` bytes in place, unless there is no room.
    #[inline]
    pub(crate) fn fill(&mut self, n: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if self.tail + n as u64 - self.head_seen > RING_BYTES as u64 {
            // Acquire: pairs with the consumer's Release of `head`; its reads of what we are about to write are over.
            self.head_seen = self.map.indices().head.0.load(Ordering::Acquire);
            if self.tail + n as u64 - self.head_seen > RING_BYTES as u64 {
                return false;
            }
        }
        // NEED: writing in place is what the floor is.
        // SAFETY: `n <= RING_BYTES` by the check above, so the bytes are mapped; they are ours until `tail` is published, because the consumer
        // reads nothing at or above the shared `tail`, and `tail + n <= head + RING_BYTES`. They were zeroed or written before.
        fill(unsafe { std::slice::from_raw_parts_mut(self.map.at(self.tail), n) });
        self.tail += n as u64;
        true
    }

    /// Shows what was filled.
    #[inline]
    pub(crate) fn publish(&mut self) {
        // Release: pairs with the Acquire in `take`; makes the bytes up to `tail` visible.
        self.map.indices().tail.0.store(self.tail, Ordering::Release);
    }

    /// Whether the consumer has had enough.
    pub(crate) fn is_over(&self) -> bool {
        self.map.indices().over.0.load(Ordering::Relaxed) != 0
    }
}

/// The reading end. One per ring, in whichever process.
pub(crate) struct Consumer {
    map: Map,
    head: u64,
}

impl Consumer {
    pub(crate) fn map(file: &OwnedFd, which: usize) -> Result<Self> {
        Ok(Consumer { map: Map::new(file, which)?, head: 0 })
    }

    /// Shows all published bytes to `take`, in place, and frees as many as it says. 0 when there are none.
    #[inline]
    pub(crate) fn take(&mut self, take: impl FnOnce(&[u8]) -> saetta_harness::Result<usize>) -> saetta_harness::Result<usize> {
        // Acquire: pairs with the producer's Release of `tail`.
        let tail = self.map.indices().tail.0.load(Ordering::Acquire);
        let n = (tail - self.head).min(RING_BYTES as u64) as usize;
        if n == 0 {
            return Ok(0);
        }
        // NEED: reading in place is what the floor is.
        // SAFETY: `n <= RING_BYTES`, so the bytes are mapped; they were written before the `tail` read with Acquire, and the producer writes
        // them again only after the store of `head` below.
        let taken = take(unsafe { std::slice::from_raw_parts(self.map.at(self.head), n) })?.min(n);
        self.head += taken as u64;
        // Release: pairs with the Acquire in `fill`; our reads of these bytes are over.
        self.map.indices().head.0.store(self.head, Ordering::Release);
        Ok(taken)
    }

    /// Tells the producer that it may end.
    pub(crate) fn end(&self) {
        self.map.indices().over.0.store(1, Ordering::Relaxed);
    }
}
