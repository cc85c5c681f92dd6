//! Appends a value as a frame to a buffer of private memory: header, blocks, archive, padding.
//!
//! Before: `saetta-engine`'s `emit` has a lane's staging buffer. After: the frame lies at its end.
//! NEED: rkyv's own way resolves the root in a temporary and copies it; the copy reads with wide loads what was just written with narrow
//! stores, and the emitting core waits for each of them. Resolving where the archive will lie took 64-byte tuples from spout to bolt on
//! another core from 21.6 to 25.6 M/s, and raw stores behind one look at the room from 25.6 to 33.1 (`cargo xtask bench pipeline`).
//! A frame that finds too little room is given up where it stands and begun anew with more: nothing is visible before its length is set.

use crate::frame::{BLOCK_BYTES, Block, HEADER_BYTES, Header, frame_bytes};
use crate::tuple::Emit;
use rkyv::Place;
use rkyv::rancor::{Failure, Source, Strategy, fail};
use rkyv::ser::allocator::SubAllocator;
use rkyv::ser::{Positional, Serializer, Writer};
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Why a value could not be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a tuple of more than {limit_bytes} bytes; split it, or send a reference to where it lies")]
pub struct EncodeError {
    /// The limit it would pass.
    pub limit_bytes: usize,
}

/// Scratch memory an encoder begins with: enough for vectors of a few thousand strings. Flat tuples use none.
const SCRATCH_BYTES: usize = 64 << 10;
/// Scratch memory it grows to at most. A tuple that needs more is refused as too long.
const SCRATCH_BYTES_MAX: usize = 32 << 20;
/// Room a frame needs behind its archive: padding, written as one word.
const PADDING_BYTES: usize = 8;
/// Room a buffer is given at least when a frame finds too little.
const ROOM_BYTES_MIN: usize = 4096;

/// Appends frames and archives to buffers. One per core loop.
pub struct Encoder {
    /// For what vectors of vectors remember while they are written.
    scratch: Vec<MaybeUninit<u8>>,
}

impl Default for Encoder {
    fn default() -> Self {
        Encoder { scratch: vec![MaybeUninit::uninit(); SCRATCH_BYTES] }
    }
}

/// What a frame that was given up lacked.
#[derive(Clone, Copy)]
enum Lack {
    Room,
    Scratch,
}

impl Encoder {
    /// Appends the archive of `value`; on error `out` is as before. No allocation once `out` has the room.
    pub fn append<E: Emit>(&mut self, value: &E, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.append_as::<E, false>(Header { len: 0, stream: 0, flags: 0, target: 0, source: 0 }, &[], value, out).map(|_| ())
    }

    /// Appends one whole frame: `header` (its `len` is set here, its flags announce `blocks`), the blocks, the archive, padding. Returns where
    /// the archive begins in `out` (it ends where the header's `len` says); on error `out` is as before. No allocation once `out` has the room.
    #[inline(always)]
    pub fn append_frame<E: Emit>(&mut self, header: Header, blocks: &[Block], value: &E, out: &mut Vec<u8>) -> Result<usize, EncodeError> {
        self.append_as::<E, true>(header, blocks, value, out)
    }

    #[inline(always)]
    fn append_as<E: Emit, const FRAME: bool>(
        &mut self,
        header: Header,
        blocks: &[Block],
        value: &E,
        out: &mut Vec<u8>,
    ) -> Result<usize, EncodeError> {
        loop {
            match self.try_append::<E, FRAME>(header, blocks, value, out) {
                Ok(archive) => return Ok(archive),
                Err(lack) => self.make_up(lack, out)?,
            }
        }
    }

    #[inline(always)]
    fn try_append<E: Emit, const FRAME: bool>(
        &mut self,
        mut header: Header,
        blocks: &[Block],
        value: &E,
        out: &mut Vec<u8>,
    ) -> Result<usize, Lack> {
        const { assert!(align_of::<E::Archived>() == 1, "archives are unaligned, so that they may lie anywhere") };
        let root_bytes = const { size_of::<E::Archived>() };
        let start = out.len();
        let head = if FRAME { HEADER_BYTES + blocks.len() * BLOCK_BYTES } else { 0 };
        // Blocks and archive together are what the limit counts.
        let room = (out.capacity() - start).min(HEADER_BYTES + crate::TUPLE_BYTES_MAX + PADDING_BYTES);
        if room < head + root_bytes + PADDING_BYTES {
            return Err(Lack::Room);
        }
        // SAFETY: `out` owns `room` bytes behind `start`; every write below is held against `end`, which leaves out the padding's bytes. What is
        // written is covered by the length only at the end, and then every byte of it was written: head, archive, padding, without a gap.
        // The root is zeroed before it is resolved, so its padding never shows stale memory. `Place` gets the position of the very bytes it
        // points to, counted from the archive's start as the serializer's positions are, and nothing else refers to them.
        unsafe {
            let frame = out.as_mut_ptr().add(start);
            let archive = frame.add(head);
            let end = frame.add(room - PADDING_BYTES);
            if FRAME {
                for (n, block) in blocks.iter().enumerate() {
                    let at = frame.add(HEADER_BYTES + n * BLOCK_BYTES);
                    at.cast::<[u8; 8]>().write(block[0].to_le_bytes());
                    at.add(8).cast::<[u8; 8]>().write(block[1].to_le_bytes());
                }
            }
            let appender = Appender { start: archive, at: archive, end, lacks_room: false, of: PhantomData };
            let mut serializer = Serializer::new(appender, SubAllocator::new(&mut self.scratch), ());
            let resolver = value.serialize(Strategy::<_, Failure>::wrap(&mut serializer));
            let Appender { at, lacks_room, .. } = serializer.into_writer();
            let Ok(resolver) = resolver else { return Err(if lacks_room { Lack::Room } else { Lack::Scratch }) };
            if (end.addr() - at.addr()) < root_bytes {
                return Err(Lack::Room);
            }
            let root = at.cast::<E::Archived>();
            root.write_bytes(0, 1);
            value.resolve(resolver, Place::new_unchecked(at.addr() - archive.addr(), root));
            let archive_end = at.add(root_bytes);
            if FRAME {
                let len = archive_end.addr() - frame.addr() - HEADER_BYTES;
                archive_end.cast::<[u8; PADDING_BYTES]>().write([0; PADDING_BYTES]);
                header.len = len as u32;
                frame.cast::<[u8; HEADER_BYTES]>().write(header.encode());
                out.set_len(start + frame_bytes(len));
            } else {
                out.set_len(start + (archive_end.addr() - frame.addr()));
            }
        }
        Ok(start + head)
    }

    /// Gives what was lacking, or says that the tuple is too long.
    #[cold]
    #[inline(never)]
    fn make_up(&mut self, lack: Lack, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let too_long = Err(EncodeError { limit_bytes: crate::TUPLE_BYTES_MAX });
        match lack {
            Lack::Room => {
                let room = out.capacity() - out.len();
                if room >= HEADER_BYTES + crate::TUPLE_BYTES_MAX + PADDING_BYTES {
                    return too_long;
                }
                out.reserve((room * 2).max(ROOM_BYTES_MIN));
            }
            Lack::Scratch => {
                if self.scratch.len() >= SCRATCH_BYTES_MAX {
                    return too_long;
                }
                let more = self.scratch.len() * 8;
                self.scratch.resize(more.min(SCRATCH_BYTES_MAX), MaybeUninit::uninit());
            }
        }
        Ok(())
    }
}

/// A writer behind a buffer's end that refuses to pass its room. Made by [`Encoder`] only, which owns the room it writes to.
pub struct Appender<'a> {
    start: *mut u8,
    at: *mut u8,
    end: *mut u8,
    /// A write found too little room.
    lacks_room: bool,
    of: PhantomData<&'a mut [u8]>,
}

#[derive(Debug)]
struct NoRoom;
impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no room for the tuple")
    }
}
impl std::error::Error for NoRoom {}

impl Positional for Appender<'_> {
    #[inline(always)]
    fn pos(&self) -> usize {
        self.at.addr() - self.start.addr()
    }
}

impl<E: Source> Writer<E> for Appender<'_> {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) -> Result<(), E> {
        if self.end.addr() - self.at.addr() < bytes.len() {
            self.lacks_room = true;
            fail!(NoRoom);
        }
        // SAFETY: `at` to `end` is the encoder's own room behind a buffer's length, at least `bytes.len()` long, and no slice refers to it.
        unsafe {
            copy(bytes, self.at);
            self.at = self.at.add(bytes.len());
        }
        Ok(())
    }
}

/// Copies `bytes` to `to`; short ones, which words and symbols are, without a call.
///
/// # Safety
/// `to` is valid for `bytes.len()` bytes and lies outside of them.
#[inline(always)]
unsafe fn copy(bytes: &[u8], to: *mut u8) {
    let (from, n) = (bytes.as_ptr(), bytes.len());
    /// Two words of `N` bytes, which overlap unless the text has `2 * N`.
    #[inline(always)]
    unsafe fn ends<const N: usize>(from: *const u8, to: *mut u8, n: usize) {
        // SAFETY: the caller has `N <= n <= 2 * N` bytes at both; both words are read before one is written.
        unsafe {
            let (head, tail) = (from.cast::<[u8; N]>().read(), from.add(n - N).cast::<[u8; N]>().read());
            to.cast::<[u8; N]>().write(head);
            to.add(n - N).cast::<[u8; N]>().write(tail);
        }
    }
    // SAFETY: each branch touches only the `n` bytes at `from` and `to`, which the caller vouches for.
    unsafe {
        match n {
            16..=32 => ends::<16>(from, to, n),
            8..16 => ends::<8>(from, to, n),
            4..8 => ends::<4>(from, to, n),
            2..4 => ends::<2>(from, to, n),
            1 => to.write(from.read()),
            0 => {}
            _ => std::ptr::copy_nonoverlapping(from, to, n),
        }
    }
}
