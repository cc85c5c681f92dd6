//! Memory of a round, a clean table of descriptors, and the locale.

use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};

/// Closes everything but the standard descriptors: what nimbus opened without close-on-exec is not the plugin's business.
pub(super) fn close_inherited() {
    // NEED: the list of descriptors is the kernel's.
    // SAFETY: called first in main, when this process has opened nothing of its own beyond 0, 1 and 2.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
}

/// The sealed snapshot, read-only: a plugin that writes to it crashes.
pub(super) struct ReadMap(Map);

/// The answer's memory.
pub(super) struct WriteMap(Map);

/// A mapping of exactly `len` bytes; `len` 0 has no mapping.
struct Map {
    at: *mut c_void,
    len: usize,
}

impl Map {
    fn new(fd: &OwnedFd, len: usize, prot: ProtFlags) -> Result<Self, Errno> {
        if len == 0 {
            return Ok(Map { at: std::ptr::null_mut(), len });
        }
        // A mapping beyond the end of the file would be a SIGBUS.
        if fstat(fd)?.st_size as u64 != len as u64 {
            return Err(Errno::INVAL);
        }
        // NEED: the plugin reads and writes memory shared with nimbus, without a copy here.
        // SAFETY: a fresh mapping at an address of the kernel's choice; the file has `len` bytes (above) and nimbus sealed its size.
        let at = unsafe { mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, fd.as_fd(), 0)? };
        Ok(Map { at, len })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: mapped in `new` with this length; borrows of it end before.
            let _ = unsafe { munmap(self.at, self.len) };
        }
    }
}

impl ReadMap {
    pub(super) fn new(fd: &OwnedFd, len: usize) -> Result<Self, Errno> {
        Map::new(fd, len, ProtFlags::READ).map(ReadMap)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        if self.0.len == 0 {
            return &[];
        }
        // SAFETY: `len` mapped bytes that live as long as `self`; nimbus sealed the memfd against writing.
        unsafe { std::slice::from_raw_parts(self.0.at.cast(), self.0.len) }
    }
}

impl ReadMap {
    /// The same without a file: a private copy that nobody can write to.
    pub(super) fn frozen(bytes: &[u8]) -> Result<Self, Errno> {
        if bytes.is_empty() {
            return Ok(ReadMap(Map { at: std::ptr::null_mut(), len: 0 }));
        }
        // NEED: memory that answers a write with a crash, as the sealed snapshot does.
        // SAFETY: a fresh private mapping of `len` bytes at an address of the kernel's choice, filled before it becomes read-only.
        unsafe {
            let at = mmap_anonymous(std::ptr::null_mut(), bytes.len(), ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?;
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast(), bytes.len());
            mprotect(at, bytes.len(), MprotectFlags::READ)?;
            Ok(ReadMap(Map { at, len: bytes.len() }))
        }
    }

    /// Gives the memory up and keeps its addresses: whoever still points there crashes.
    pub(super) fn forbid(self) -> Result<(), Errno> {
        if self.0.len > 0 {
            // SAFETY: our mapping; no borrow of it is left, since `self` is taken.
            unsafe { mprotect(self.0.at, self.0.len, MprotectFlags::empty())? };
        }
        std::mem::forget(self);
        Ok(())
    }
}

impl WriteMap {
    /// Room for `n_words` u32.
    pub(super) fn new(fd: &OwnedFd, n_words: usize) -> Result<Self, Errno> {
        Map::new(fd, n_words * 4, ProtFlags::READ | ProtFlags::WRITE).map(WriteMap)
    }

    pub(super) fn words(&mut self) -> &mut [u32] {
        if self.0.len == 0 {
            return &mut [];
        }
        // SAFETY: mapped, page-aligned, `len` bytes that live as long as `self`; nimbus writes before it sends the descriptor and
        // reads after our RESULT, so nobody else touches them now.
        unsafe { std::slice::from_raw_parts_mut(self.0.at.cast(), self.0.len / 4) }
    }
}

/// The locale of this process, all categories.
pub(super) fn locale() -> String {
    // NEED: the C library's state has no other reader.
    // SAFETY: without a locale to set, `setlocale` only tells; the text is copied before anybody could set another.
    let name = unsafe { libc::setlocale(libc::LC_ALL, std::ptr::null()) };
    if name.is_null() {
        return String::new();
    }
    // SAFETY: not null, so it is a C string of the C library.
    unsafe { std::ffi::CStr::from_ptr(name) }.to_string_lossy().into_owned()
}
