//! Which types may be fields, and how borrowed text is archived like owned text.

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
}

macro_rules! named {
    ($($ty:ty),*) => {$( impl WireType for $ty { fn type_text() -> String { stringify!($ty).to_owned() } } )*};
}
named!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64, bool, char, String);

impl<T: WireType> WireType for Vec<T> {
    fn type_text() -> String {
        format!("Vec<{}>", T::type_text())
    }
}
impl<T: WireType> WireType for Option<T> {
    fn type_text() -> String {
        format!("Option<{}>", T::type_text())
    }
}
impl<T: WireType, const N: usize> WireType for [T; N] {
    fn type_text() -> String {
        format!("[{};{N}]", T::type_text())
    }
}
impl<A: WireType, B: WireType> WireType for (A, B) {
    fn type_text() -> String {
        format!("({},{})", A::type_text(), B::type_text())
    }
}

/// Archives `&str` exactly like `String`, so that a bolt emits text it only borrows.
pub struct AsStr;

impl ArchiveWith<&str> for AsStr {
    type Archived = ArchivedString;
    type Resolver = StringResolver;
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
    fn serialize_with(field: &&str, serializer: &mut S) -> Result<StringResolver, S::Error> {
        ArchivedString::serialize_from_str(field, serializer)
    }
}

/// Archives `&[u8]` exactly like `Vec<u8>`.
pub struct AsBytes;

impl ArchiveWith<&[u8]> for AsBytes {
    type Archived = ArchivedVec<u8>;
    type Resolver = VecResolver;
    fn resolve_with(field: &&[u8], resolver: VecResolver, out: Place<ArchivedVec<u8>>) {
        ArchivedVec::<u8>::resolve_from_slice(field, resolver, out);
    }
}

impl<S> SerializeWith<&[u8], S> for AsBytes
where
    S: Fallible + Writer + rkyv::ser::Allocator + ?Sized,
{
    fn serialize_with(field: &&[u8], serializer: &mut S) -> Result<VecResolver, S::Error> {
        ArchivedVec::<u8>::serialize_from_slice(field, serializer)
    }
}
