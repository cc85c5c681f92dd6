//! How values lie in an archive, as data: what a [`Dyn`](crate::Dyn) reads by, where typed code has the compiler.
//!
//! The layouts are rkyv's under the features that `lib.rs` names: little-endian, no alignment, 32-bit relative pointers. Fields are packed in
//! declaration order, which the offsets in a [`Schema`] (the compiler's own) say again.

use crate::schema::Schema;
use rkyv::option::ArchivedOption;
use rkyv::string::ArchivedString;
use rkyv::vec::ArchivedVec;

/// The layout of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// `u8`.
    U8,
    /// `u16`.
    U16,
    /// `u32`.
    U32,
    /// `u64`.
    U64,
    /// `u128`.
    U128,
    /// `i8`.
    I8,
    /// `i16`.
    I16,
    /// `i32`.
    I32,
    /// `i64`.
    I64,
    /// `i128`.
    I128,
    /// `f32`.
    F32,
    /// `f64`.
    F64,
    /// One byte, 0 or 1.
    Bool,
    /// A scalar value as `u32`.
    Char,
    /// `String`: eight bytes, in which up to eight bytes of text lie; more lies elsewhere, and length and distance are here.
    Text,
    /// `Vec<u8>`: distance and length.
    Bytes,
    /// `Vec<T>`: distance and length.
    List(Box<Shape>),
    /// Tag byte, then the value.
    Option(Box<Shape>),
    /// `[T; N]`: values in line.
    Array(Box<Shape>, usize),
    /// Another `#[tuple]`, in line.
    Tuple(&'static Schema),
    /// Not read dynamically; so many bytes.
    Opaque(usize),
}

/// Bytes of a string's or vector's part in line.
pub(crate) const POINTER_BYTES: usize = 8;
const _: () = assert!(size_of::<ArchivedString>() == POINTER_BYTES && size_of::<ArchivedVec<u8>>() == POINTER_BYTES);
const _: () = assert!(size_of::<ArchivedOption<u8>>() == 2 && align_of::<ArchivedOption<rkyv::rend::unaligned::u64_ule>>() == 1);

impl Shape {
    /// Bytes in line.
    pub fn size(&self) -> usize {
        match self {
            Shape::U8 | Shape::I8 | Shape::Bool => 1,
            Shape::U16 | Shape::I16 => 2,
            Shape::U32 | Shape::I32 | Shape::F32 | Shape::Char => 4,
            Shape::U64 | Shape::I64 | Shape::F64 => 8,
            Shape::U128 | Shape::I128 => 16,
            Shape::Text | Shape::Bytes | Shape::List(_) => POINTER_BYTES,
            Shape::Option(value) => 1 + value.size(),
            Shape::Array(item, n) => item.size().saturating_mul(*n),
            Shape::Tuple(schema) => schema.size,
            Shape::Opaque(bytes) => *bytes,
        }
    }

    /// The type inside that cannot be part of a grouping key, if there is one.
    pub(crate) fn no_key(&self) -> Option<&'static str> {
        match self {
            Shape::F32 | Shape::F64 => Some("a float"),
            Shape::List(_) => Some("a list"),
            Shape::Array(..) => Some("an array"),
            Shape::Opaque(_) => Some("a pair"),
            Shape::Option(value) => value.no_key(),
            Shape::Tuple(schema) => schema.fields.iter().find_map(|f| f.shape.no_key()),
            _ => None,
        }
    }
}
