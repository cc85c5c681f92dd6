//! The traits behind `#[tuple]`, and the encoder that appends an archive to a buffer.

use crate::key::KeyBytes;
use crate::schema::Schema;
use crate::wire::WireType;
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor::{Failure, Source, Strategy, fail};
use rkyv::ser::allocator::{Arena, ArenaHandle};
use rkyv::ser::{Positional, Serializer, Writer};
use rkyv::validation::Validator;
use rkyv::validation::archive::ArchiveValidator;
use rkyv::{Archive, Portable, SerializeUnsized};
use std::fmt;

/// What an encoder serialises with: a bounded writer, an arena for nested vectors, no sharing (so no Rc or Arc).
pub type EncodeStrategy<'a> = Strategy<Serializer<Appender<'a>, ArenaHandle<'a>, ()>, Failure>;
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
    /// Fields, types, id.
    fn schema() -> Schema;
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
pub trait Emit: for<'a> SerializeUnsized<EncodeStrategy<'a>> {
    /// The tuple whose archive it makes.
    type Tuple: Tuple;
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
    #[inline]
    pub fn append<E: Emit>(&mut self, value: &E, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        let writer = Appender { end_max: start + crate::TUPLE_BYTES_MAX - crate::frame::BIRTH_BYTES, out };
        let mut serializer = Serializer::new(writer, self.arena.acquire(), ());
        match rkyv::api::serialize_using::<_, Failure>(value, &mut serializer) {
            Ok(_) => Ok(()),
            Err(Failure) => {
                let Appender { out, .. } = serializer.into_writer();
                out.truncate(start);
                Err(EncodeError { limit_bytes: crate::TUPLE_BYTES_MAX })
            }
        }
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
    #[inline]
    fn pos(&self) -> usize {
        self.out.len()
    }
}

impl<E: Source> Writer<E> for Appender<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<(), E> {
        if self.out.len() + bytes.len() > self.end_max {
            fail!(TooLong);
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }
}
