//! Appends a value as a frame to a buffer of private memory: header, birth stamp, archive, padding.
//!
//! Before: `saetta-engine`'s `emit` has a lane's staging buffer. After: the frame lies at its end.
//! NEED: rkyv's own way resolves the root in a temporary and copies it; the copy reads with wide loads what was just written with narrow
//! stores, and the emitting core waits for each of them. Resolving where the archive will lie took 64-byte tuples from spout to bolt on
//! another core from 21.6 to 25.6 M/s, and one reservation for the whole frame with raw stores from 25.6 to 33.1 (`cargo xtask bench pipeline`).

use crate::frame::{BIRTH, BIRTH_BYTES, HEADER_BYTES, Header, frame_bytes};
use crate::tuple::Emit;
use rkyv::rancor::{Failure, Source, Strategy, fail};
use rkyv::ser::allocator::SubAllocator;
use rkyv::ser::{Positional, Serializer, Writer};
use rkyv::{Archive, Place};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Range;

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
/// Room a frame needs beside its archive: header, birth block, padding.
const AROUND_BYTES: usize = HEADER_BYTES + BIRTH_BYTES + 8;

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

impl Encoder {
    /// Appends the archive of `value`; on error `out` is as before. No allocation once `out` has the room.
    pub fn append<E: Emit>(&mut self, value: &E, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        self.archive(value, out, start)?;
        Ok(())
    }

    /// Appends one whole frame: `header` (its `len` and birth flag are set here), the birth stamp if there is one, the archive, padding.
    /// Returns where the archive lies in `out`; on error `out` is as before. No allocation once `out` has the room.
    #[inline(always)]
    pub fn append_frame<E: Emit>(
        &mut self,
        mut header: Header,
        birth_ns: Option<u64>,
        value: &E,
        out: &mut Vec<u8>,
    ) -> Result<Range<usize>, EncodeError> {
        let start = out.len();
        out.reserve(AROUND_BYTES + const { size_of::<E::Archived>() });
        let mut archive = start + HEADER_BYTES;
        if birth_ns.is_some() {
            archive += BIRTH_BYTES;
            header.flags |= BIRTH;
        }
        // SAFETY: `reserve` made room for header and birth block behind `start`. Both are written, in full, before the length covers them.
        unsafe {
            let at = out.as_mut_ptr().add(start);
            at.cast::<[u8; HEADER_BYTES]>().write(header.encode());
            if let Some(birth_ns) = birth_ns {
                at.add(HEADER_BYTES).cast::<[u8; BIRTH_BYTES]>().write(birth_ns.to_le_bytes());
            }
            out.set_len(archive);
        }
        self.archive(value, out, start)?;
        let end = out.len();
        let len = end - start - HEADER_BYTES;
        out.reserve(8);
        // SAFETY: `reserve` made room for eight bytes behind `end`, they are written before the length covers up to seven of them, and the
        // header's first four bytes, inside the vector, hold its `len`.
        unsafe {
            let at = out.as_mut_ptr();
            at.add(end).cast::<[u8; 8]>().write([0; 8]);
            out.set_len(start + frame_bytes(len));
            at.add(start).cast::<[u8; 4]>().write((len as u32).to_le_bytes());
        }
        Ok(archive..end)
    }

    /// Appends the archive; on error `out` is cut back to `start`.
    #[inline(always)]
    fn archive<E: Emit>(&mut self, value: &E, out: &mut Vec<u8>, start: usize) -> Result<(), EncodeError> {
        let end_max = start + crate::TUPLE_BYTES_MAX;
        let before = out.len();
        loop {
            let appender = Appender { out: &mut *out, end_max, passed: false };
            let mut serializer = Serializer::new(appender, SubAllocator::new(&mut self.scratch), ());
            let resolver = value.serialize(Strategy::<_, Failure>::wrap(&mut serializer));
            let passed = serializer.into_writer().passed;
            match resolver {
                Ok(resolver) if out.len() + const { size_of::<E::Archived>() } <= end_max => {
                    resolve_at_end(value, resolver, out);
                    return Ok(());
                }
                // Not too long, so the scratch was too small: once with more.
                Err(Failure) if !passed && self.scratch.len() < SCRATCH_BYTES_MAX => {
                    out.truncate(before);
                    self.grow();
                }
                _ => {
                    out.truncate(start);
                    return Err(EncodeError { limit_bytes: crate::TUPLE_BYTES_MAX });
                }
            }
        }
    }

    #[cold]
    fn grow(&mut self) {
        let more = self.scratch.len() * 8;
        self.scratch.resize(more.min(SCRATCH_BYTES_MAX), MaybeUninit::uninit());
    }
}

/// Writes the archived form of `value` at the end of `out`.
#[inline(always)]
fn resolve_at_end<E: Emit>(value: &E, resolver: <E as Archive>::Resolver, out: &mut Vec<u8>) {
    const { assert!(align_of::<E::Archived>() == 1, "archives are unaligned, so that they may lie anywhere") };
    let at = out.len();
    let root = const { size_of::<E::Archived>() };
    out.reserve(root);
    let spare = out.spare_capacity_mut().as_mut_ptr().cast::<E::Archived>();
    // SAFETY: `reserve` made room for `root` bytes behind `spare`, and the type has no alignment. They are zeroed first, so padding never
    // shows stale memory and every byte is initialised when the length grows. `Place` gets the position of exactly these bytes in `out`,
    // which is where relative pointers count from, and nothing else refers to them.
    unsafe {
        spare.write_bytes(0, 1);
        value.resolve(resolver, Place::new_unchecked(at, spare));
        out.set_len(at + root);
    }
}

/// A writer at the end of a buffer that refuses to pass its limit.
pub struct Appender<'a> {
    out: &'a mut Vec<u8>,
    end_max: usize,
    /// The limit was met.
    passed: bool,
}

#[derive(Debug)]
struct TooLong;
impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tuple too long")
    }
}
impl std::error::Error for TooLong {}

impl Positional for Appender<'_> {
    #[inline(always)]
    fn pos(&self) -> usize {
        self.out.len()
    }
}

impl<E: Source> Writer<E> for Appender<'_> {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) -> Result<(), E> {
        if self.out.len() + bytes.len() > self.end_max {
            self.passed = true;
            fail!(TooLong);
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }
}
