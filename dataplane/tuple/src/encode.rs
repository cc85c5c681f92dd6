//! Appends the archive of a value to a buffer of private memory.
//!
//! Before: `saetta-engine`'s `emit` has a lane's staging buffer. After: the archive lies at its end, header and padding are the frame's business.
//! NEED: rkyv's own way resolves the root in a temporary and copies it; the copy reads with wide loads what was just written with narrow
//! stores, and the emitting core waits for each of them. Resolving where the archive will lie took 64-byte tuples from spout to bolt on
//! another core from 21.6 to 25.6 M/s (`cargo xtask bench pipeline`).

use crate::tuple::Emit;
use rkyv::rancor::{Failure, Source, Strategy, fail};
use rkyv::ser::allocator::Arena;
use rkyv::ser::{Positional, Serializer, Writer};
use rkyv::{Archive, Place};
use std::fmt;

/// Why a value could not be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a tuple of more than {limit_bytes} bytes; split it, or send a reference to where it lies")]
pub struct EncodeError {
    /// The limit it would pass.
    pub limit_bytes: usize,
}

/// Appends archives to buffers. One per core loop.
#[derive(Default)]
pub struct Encoder {
    arena: Arena,
}

impl Encoder {
    /// Appends the archive of `value`; on error `out` is as before. No allocation once `out` has the room.
    #[inline(always)]
    pub fn append<E: Emit>(&mut self, value: &E, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        let end_max = start + crate::TUPLE_BYTES_MAX - crate::frame::BIRTH_BYTES;
        let mut serializer = Serializer::new(Appender { end_max, out }, self.arena.acquire(), ());
        let resolver = value.serialize(Strategy::<_, Failure>::wrap(&mut serializer));
        let out = serializer.into_writer().out;
        let root = const { size_of::<E::Archived>() };
        match resolver {
            Ok(resolver) if out.len() + root <= end_max => {
                resolve_at_end(value, resolver, out);
                Ok(())
            }
            _ => {
                out.truncate(start);
                Err(EncodeError { limit_bytes: crate::TUPLE_BYTES_MAX })
            }
        }
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
            fail!(TooLong);
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }
}
