//! From an archive back to the struct: tests compare tuples as users write them.

use crate::component::Archived;
use saetta_engine::Cx as RawCx;
use saetta_tuple::rkyv::api::access_with_context;
use saetta_tuple::rkyv::rancor::{Failure, Fallible, Strategy};
use saetta_tuple::rkyv::validation::{Validator, archive::ArchiveValidator};
use saetta_tuple::rkyv::{Archive, Deserialize, Place, Serialize};
use saetta_tuple::{DEPTH_MAX, Emit, EncodeStrategy, Encoder, StreamType, Tuple};
use std::cell::RefCell;
use std::num::NonZeroUsize;

/// A stream whose tuples can be made from their archives. Every `#[tuple]` and every `stream!` is one.
pub trait Owned: StreamType {
    /// The tuple in `archive`. Panics when it holds none.
    #[doc(hidden)]
    fn owned(archive: &[u8]) -> Self::Tuple;
    /// Emits the tuple in `archive` on the `output`-th stream, tracked.
    #[doc(hidden)]
    fn emit(archive: &[u8], output: usize, id: u64, cx: &mut RawCx<'_>);
}

impl<S: StreamType> Owned for S
where
    S::Tuple: for<'a> Serialize<EncodeStrategy<'a>>,
    Archived<S>: Deserialize<S::Tuple, Strategy<(), Failure>>,
{
    fn owned(archive: &[u8]) -> S::Tuple {
        access::<S::Tuple>(archive).deserialize(Strategy::wrap(&mut ())).expect("nothing of a tuple is shared, so nothing can fail")
    }
    fn emit(archive: &[u8], output: usize, id: u64, cx: &mut RawCx<'_>) {
        cx.emit_tracked(Some(output), id, &Value(Self::owned(archive)));
    }
}

/// A tuple as something to emit: that every tuple can be emitted as itself is so, but cannot be said of one that is only known as `T`.
struct Value<T>(T);

impl<T: Archive> Archive for Value<T> {
    type Archived = T::Archived;
    type Resolver = T::Resolver;
    fn resolve(&self, resolver: T::Resolver, out: Place<T::Archived>) {
        self.0.resolve(resolver, out);
    }
}
impl<S: Fallible + ?Sized, T: Serialize<S>> Serialize<S> for Value<T> {
    fn serialize(&self, serializer: &mut S) -> Result<T::Resolver, S::Error> {
        self.0.serialize(serializer)
    }
}
impl<T: Tuple + for<'a> Serialize<EncodeStrategy<'a>>> Emit for Value<T> {
    type Tuple = T;
}

/// The archive in `bytes`, checked. Panics when there is none.
pub(crate) fn access<T: Tuple>(bytes: &[u8]) -> &T::Archived {
    let mut validator = Validator::new(ArchiveValidator::with_max_depth(bytes, NonZeroUsize::new(DEPTH_MAX)), ());
    access_with_context::<T::Archived, _, Failure>(bytes, &mut validator).expect("encoded in this process for this type")
}

/// The archive of a tuple. Panics when it is too long to be one.
#[track_caller]
pub(crate) fn archive<E: Emit>(value: &E) -> Vec<u8> {
    thread_local! {
        /// Its scratch memory is large beside a tuple.
        static ENCODER: RefCell<Encoder> = RefCell::default();
    }
    let mut bytes = Vec::new();
    match ENCODER.with_borrow_mut(|encoder| encoder.append(value, &mut bytes)) {
        Ok(()) => bytes,
        Err(why) => panic!("cannot send this to a component: {why}"),
    }
}
