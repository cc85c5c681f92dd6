//! Which types may be fields, and how borrowed text is archived like owned text.

use crate::shape::Shape;
use rkyv::rancor::{Fallible, Source};
use rkyv::ser::Writer;
use rkyv::string::{ArchivedString, StringResolver};
use rkyv::vec::{ArchivedVec, VecResolver};
use rkyv::with::{ArchiveWith, SerializeWith};
use rkyv::{Place, SerializeUnsized};

/// A type that may cross a wire: fixed layout, bounded depth, no sharing and no hash tables.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of a #[tuple]",
    label = "not a wire type",
    note = "fix: use integers, floats, bool, char, String, Vec, Option, arrays, pairs of these, or another #[tuple]; Rc, Arc, maps and sets never go on the wire"
)]
pub trait WireType {
    /// Canonical type text; equal texts mean equal layouts.
    fn type_text() -> String;
    /// How its archive lies in bytes.
    fn shape() -> Shape;
}

macro_rules! named {
    ($($ty:ty => $shape:expr),*) => {$(
        impl WireType for $ty {
            fn type_text() -> String { stringify!($ty).to_owned() }
            fn shape() -> Shape { $shape }
        }
    )*};
}
named!(
    u8 => Shape::U8, u16 => Shape::U16, u32 => Shape::U32, u64 => Shape::U64, u128 => Shape::U128,
    i8 => Shape::I8, i16 => Shape::I16, i32 => Shape::I32, i64 => Shape::I64, i128 => Shape::I128,
    f32 => Shape::F32, f64 => Shape::F64, bool => Shape::Bool, char => Shape::Char, String => Shape::Text
);

impl<T: WireType> WireType for Vec<T> {
    fn type_text() -> String {
        format!("Vec<{}>", T::type_text())
    }
    fn shape() -> Shape {
        match T::shape() {
            Shape::U8 => Shape::Bytes,
            item => Shape::List(Box::new(item)),
        }
    }
}
impl<T: WireType> WireType for Option<T> {
    fn type_text() -> String {
        format!("Option<{}>", T::type_text())
    }
    fn shape() -> Shape {
        Shape::Option(Box::new(T::shape()))
    }
}
impl<T: WireType, const N: usize> WireType for [T; N] {
    fn type_text() -> String {
        format!("[{};{N}]", T::type_text())
    }
    fn shape() -> Shape {
        Shape::Array(Box::new(T::shape()), N)
    }
}
impl<A: WireType, B: WireType> WireType for (A, B) {
    fn type_text() -> String {
        format!("({},{})", A::type_text(), B::type_text())
    }
    fn shape() -> Shape {
        Shape::Opaque(A::shape().size() + B::shape().size())
    }
}

/// Archives `&str` exactly like `String`, so that a bolt emits text it only borrows.
pub struct AsStr;

impl ArchiveWith<&str> for AsStr {
    type Archived = ArchivedString;
    type Resolver = StringResolver;
    #[inline(always)]
    fn resolve_with(field: &&str, resolver: StringResolver, out: Place<ArchivedString>) {
        ArchivedString::resolve_from_str(field, resolver, out);
    }
}

impl<S> SerializeWith<&str, S> for AsStr
where
    S: Fallible + ?Sized,
    S::Error: Source,
    str: SerializeUnsized<S>,
{
    #[inline(always)]
    fn serialize_with(field: &&str, serializer: &mut S) -> Result<StringResolver, S::Error> {
        ArchivedString::serialize_from_str(field, serializer)
    }
}

/// Archives `&[u8]` exactly like `Vec<u8>`.
pub struct AsBytes;

impl ArchiveWith<&[u8]> for AsBytes {
    type Archived = ArchivedVec<u8>;
    type Resolver = VecResolver;
    #[inline(always)]
    fn resolve_with(field: &&[u8], resolver: VecResolver, out: Place<ArchivedVec<u8>>) {
        ArchivedVec::<u8>::resolve_from_slice(field, resolver, out);
    }
}

impl<S> SerializeWith<&[u8], S> for AsBytes
where
    S: Fallible + Writer + rkyv::ser::Allocator + ?Sized,
{
    #[inline(always)]
    fn serialize_with(field: &&[u8], serializer: &mut S) -> Result<VecResolver, S::Error> {
        ArchivedVec::<u8>::serialize_from_slice(field, serializer)
    }
}
