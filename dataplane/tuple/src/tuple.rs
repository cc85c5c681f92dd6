//! The traits behind `#[tuple]`.

use crate::encode::Appender;
use crate::key::KeyBytes;
use crate::schema::Schema;
use crate::wire::WireType;
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor::{Failure, Strategy};
use rkyv::ser::Serializer;
use rkyv::ser::allocator::SubAllocator;
use rkyv::validation::Validator;
use rkyv::validation::archive::ArchiveValidator;
use rkyv::{Archive, Portable, Serialize};

/// What an encoder serialises with: a bounded writer, bounded scratch for nested vectors, no sharing (so no Rc or Arc).
pub type EncodeStrategy<'a> = Strategy<Serializer<Appender<'a>, SubAllocator<'a>, ()>, Failure>;
/// What a check validates with: bounds and depth, no sharing.
pub type CheckStrategy<'a> = Strategy<Validator<ArchiveValidator<'a>, ()>, Failure>;

/// A struct under `#[tuple]`. Never written by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tuple",
    label = "put `#[tuple]` on this struct",
    note = "fix: write `#[tuple] pub struct {Self} {{ .. }}`"
)]
pub trait Tuple:
    Archive<Archived: Portable + for<'a> CheckBytes<CheckStrategy<'a>>> + WireType + StreamType<Tuple = Self> + Sized + Send + 'static
{
    /// Fields, types, id. Made once.
    fn schema() -> &'static Schema;
}

/// A stream: a name and the tuple it carries. Every tuple is a stream of its own name; `stream!(Late: Quote)` makes a second one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a stream",
    label = "neither a #[tuple] nor a stream!",
    note = "fix: put `#[tuple]` on the struct, or declare `stream!({Self}: SomeTuple);`"
)]
pub trait StreamType: 'static {
    /// What it carries.
    type Tuple: Tuple;
    /// Name within the emitting component.
    const NAME: &'static str;
}

/// Stream `Self` carries tuples `T`. Written by the macros; it exists so that a grouping by another tuple's fields says what is wrong.
#[diagnostic::on_unimplemented(
    message = "a grouping by fields of `{T}` does not fit stream `{Self}`",
    label = "stream `{Self}` does not carry `{T}`",
    note = "fix: name fields of the tuple that `{Self}` carries, as in `by!({Self}.field)`, or use `Shuffle`, `All` or `Global`"
)]
pub trait Carries<T: Tuple>: StreamType<Tuple = T> {}

/// A value that can be emitted: a tuple, or its borrowed twin.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be emitted",
    label = "not a tuple",
    note = "fix: put `#[tuple]` on the struct, or emit its borrowed twin `{Self}Ref {{ .. }}`"
)]
pub trait Emit: Archive<Archived = <Self::Tuple as Archive>::Archived> + for<'a> Serialize<EncodeStrategy<'a>> {
    /// The tuple whose archive it makes.
    type Tuple: Tuple;

    /// Hash of the canonical bytes of these fields, by their places in the struct, before anything is encoded: the same as from the archive.
    /// `room` is reused from call to call. `None` where it can be had from the archive only; the default. Written by `#[tuple]`.
    #[inline(always)]
    fn key_hash(&self, fields: &[u16], room: &mut KeyBytes) -> Option<u64> {
        let _ = (fields, room);
        None
    }
}

/// Key fields of a tuple, as `by!(Quote.symbol)` makes them.
pub struct Fields<T: Tuple> {
    /// Names, for the description.
    pub names: &'static [&'static str],
    /// Adds their canonical bytes from the archive.
    pub key: fn(&T::Archived, &mut KeyBytes),
}

impl<T: Tuple> Clone for Fields<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Tuple> Copy for Fields<T> {}
