//! What a tuple is: an rkyv archive in a frame, a schema, and the bytes a fields grouping hashes.
//!
//! Before: a user's struct under `#[tuple]`. After: `saetta-engine` routes frames without ever decoding one.
//! Not here: threads, rings, components. The byte format is fixed by the exact rkyv pin and the features named in the
//! workspace manifest: little-endian, unaligned, 32-bit relative pointers.

mod dynamic;
#[expect(unsafe_code, reason = "resolves an archive where it will lie, without a temporary")]
mod encode;
pub mod frame;
mod key;
mod schema;
mod shape;
mod short;
mod tuple;
#[expect(unsafe_code, reason = "reads an archive in place; rkyv's unchecked access is 2 ns where the checked one is 6 to 10")]
mod view;
mod wire;

pub use dynamic::{Dyn, DynKey, List, Value};
pub use encode::{EncodeError, Encoder};
pub use key::{KeyBytes, KeyField};
pub use rkyv;
pub use saetta_tuple_macro::tuple;
pub use schema::{FieldSchema, Schema};
pub use shape::Shape;
pub use tuple::{Carries, CheckStrategy, Emit, EncodeStrategy, Fields, StreamType, Tuple};
pub use view::{check, view};
pub use wire::{AsBytes, AsStr, WireType};

/// What the macro's output names. Not for people.
#[doc(hidden)]
pub mod rt {
    pub use crate::{AsBytes, AsStr, Carries, Emit, FieldSchema, KeyBytes, KeyField, Schema, Shape, StreamType, Tuple, WireType};
    pub use rkyv;
}

/// How tuples of this build are laid out, for comparison between processes: (archive, endian, unaligned, pointer bits).
pub const FORMAT: (&str, &str, bool, u32) = ("rkyv 0.8", "little", true, 32);

/// Deepest nesting a received archive may have.
pub const DEPTH_MAX: usize = 32;
/// Longest tuple in bytes (blocks and archive). A longer one is an error to its emitter.
pub const TUPLE_BYTES_MAX: usize = 4 << 20;
