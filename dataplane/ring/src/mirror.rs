//! Memory in which byte `i` and byte `i + capacity` are the same byte: a memory file mapped twice, back to back.
//!
//! A ring over it lends any run of up to `capacity` bytes as one slice: no pad frame, no split frame, no copy at the wrap.
//! The same object serves as the receive ring of a link.

#[cfg(not(miri))]
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
#[cfg(not(miri))]
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
#[cfg(not(miri))]
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

/// A doubly mapped buffer. Dropping it unmaps both.
pub struct Mirror {
    /// Start of `2 * capacity` mapped bytes.
    base: NonNull<u8>,
    /// Power of two, multiple of the page size.
    capacity: usize,
}

// SAFETY: the mapping belongs to no thread; who may touch which bytes is the business of the owner (ring, link).
unsafe impl Send for Mirror {}
// SAFETY: as above; `&Mirror` gives out only a raw pointer and the capacity.
unsafe impl Sync for Mirror {}

impl Mirror {
    /// Maps `capacity` bytes twice, zeroed. Errors: no memory, no memory file; `InvalidInput` when `capacity` is not a power of
    /// two of at least one page.
    pub fn new(capacity: usize) -> std::io::Result<Self> {
        valid(capacity)?;
        Ok(Mirror { base: map(capacity)?, capacity })
    }

    /// Maps `capacity` bytes of `file` twice, from `offset` on, which is a multiple of the page size. The file has all these bytes and
    /// keeps them. Errors as [`Self::new`].
    #[cfg(not(miri))]
    pub(crate) fn of_file(file: BorrowedFd<'_>, offset: u64, capacity: usize) -> std::io::Result<Self> {
        valid(capacity)?;
        Ok(Mirror { base: map_file(file, offset, capacity)?, capacity })
    }

    /// Bytes of one half.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Pointer to the byte at unmasked index `at`; `capacity` bytes from it on are mapped.
    #[inline]
    pub fn at(&self, at: u64) -> *mut u8 {
        // SAFETY: the masked index is below `capacity`, and `2 * capacity` bytes are mapped from `base`.
        unsafe { self.base.as_ptr().add(at as usize & (self.capacity - 1)) }
    }

    /// Copies `bytes` to unmasked index `at`.
    ///
    /// # Safety
    /// These bytes of the buffer are the caller's to write, and `bytes` is no part of them. At most `capacity` bytes.
    #[inline]
    pub(crate) unsafe fn write(&self, at: u64, bytes: &[u8]) {
        // SAFETY: `at()` has `capacity` mapped bytes behind it; the rest is the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(at), bytes.len()) };
        #[cfg(miri)]
        for (i, &byte) in bytes.iter().enumerate() {
            // SAFETY: the twin of a byte is the same byte, so it is the caller's as well.
            unsafe { *self.base.as_ptr().add(((at as usize & (self.capacity - 1)) + i + self.capacity) % (2 * self.capacity)) = byte };
        }
    }

    /// `len` bytes from unmasked index `at`, for an owner that holds the whole buffer.
    pub fn slice(&self, at: u64, len: usize) -> &[u8] {
        assert!(len <= self.capacity, "a slice of a ring is at most the ring");
        // SAFETY: `at()` has `capacity` mapped, initialised (zeroed or written) bytes behind it, and `len` is at most that. Shared
        // access is the caller's by `&self`; whoever writes through `at()` (the ring's producer, the kernel on behalf of a
        // link) writes only outside the range it lent out.
        unsafe { std::slice::from_raw_parts(self.at(at), len) }
    }

    /// As [`Self::slice`], to be written. Under Miri, where the halves are two memories, only what does not wrap is written to be read again.
    pub fn slice_mut(&mut self, at: u64, len: usize) -> &mut [u8] {
        assert!(len <= self.capacity, "a slice of a ring is at most the ring");
        // SAFETY: as in `slice`; `&mut self` makes this the only access through the object, and the bytes behind the wrap are not part of the
        // slice a second time, since it is no longer than the capacity.
        unsafe { std::slice::from_raw_parts_mut(self.at(at), len) }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped; slices borrow `self`, so none outlives it.
        unsafe { unmap(self.base, self.capacity) };
    }
}

/// Refuses sizes that cannot be masked or mapped.
pub(crate) fn valid(capacity: usize) -> std::io::Result<()> {
    if !capacity.is_power_of_two() || capacity < rustix::param::page_size() {
        let text = format!("a ring of {capacity} bytes: use a power of two of at least {}", rustix::param::page_size());
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, text));
    }
    Ok(())
}

/// Two mappings of `capacity` zeroed bytes, one behind the other.
#[cfg(not(miri))]
fn map(capacity: usize) -> std::io::Result<NonNull<u8>> {
    let file = memfd_create(c"saetta-ring", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, capacity as u64)?;
    map_file(file.as_fd(), 0, capacity)
}

/// Two mappings of the same `capacity` bytes of `file`, one behind the other.
#[cfg(not(miri))]
fn map_file(file: BorrowedFd<'_>, offset: u64, capacity: usize) -> std::io::Result<NonNull<u8>> {
    let rw = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh anonymous reservation at an address of the kernel's choice aliases nothing.
    let base = unsafe { mmap_anonymous(std::ptr::null_mut(), 2 * capacity, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)? };
    for half in 0..2 {
        // SAFETY: the target range lies inside the reservation made above, which nothing else uses, so FIXED replaces only it.
        let mapped = unsafe {
            mmap(base.byte_add(half * capacity), capacity, rw, MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE, file, offset)
        };
        if let Err(e) = mapped {
            // SAFETY: exactly the reservation made above; no pointer into it was given out.
            unsafe { munmap(base, 2 * capacity).ok() };
            return Err(e.into());
        }
    }
    Ok(NonNull::new(base.cast()).expect("mmap never returns null"))
}

/// # Safety
/// `base` came from [`map`] of `capacity`, and nothing points into it any more.
#[cfg(not(miri))]
unsafe fn unmap(base: NonNull<u8>, capacity: usize) {
    // SAFETY: the caller's promise.
    unsafe { munmap(base.as_ptr().cast(), 2 * capacity).ok() };
}

/// Miri maps no files. Under it the two halves are two memories, and [`Mirror::write`] writes each byte to both: what is read, by whom and
/// when is the same, so that Miri sees the ring's races and bounds as they are.
#[cfg(miri)]
fn map(capacity: usize) -> std::io::Result<NonNull<u8>> {
    // SAFETY: the size is not zero.
    Ok(NonNull::new(unsafe { std::alloc::alloc_zeroed(layout(capacity)) }).expect("memory"))
}

/// # Safety
/// `base` came from [`map`] of `capacity`, and nothing points into it any more.
#[cfg(miri)]
unsafe fn unmap(base: NonNull<u8>, capacity: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::alloc::dealloc(base.as_ptr(), layout(capacity)) };
}

#[cfg(miri)]
fn layout(capacity: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(2 * capacity, 4096).expect("a page is an alignment")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_halves_are_one_memory() {
        let mirror = Mirror::new(4096).unwrap();
        // SAFETY: this test owns the buffer.
        unsafe { mirror.write(4090, b"0123456789") };
        assert_eq!(mirror.slice(4090, 10), b"0123456789");
        assert_eq!(mirror.slice(4096, 4), b"6789");
        assert_eq!(mirror.slice(0, 4), b"6789");
    }

    #[test]
    fn odd_sizes_are_refused() {
        for bad in [0, 1, 2048, 5000, 12288] {
            assert!(Mirror::new(bad).is_err(), "{bad}");
        }
    }
}
