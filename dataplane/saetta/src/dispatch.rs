//! From frames to typed calls: where the bytes of a stream become `&Archived<S>`.
//!
//! NEED: a checked access costs 6 to 10 ns a tuple where the unchecked one costs 2; bytes were checked when they entered the process.
//! Why every archive here is valid for its type: a frame of stream number n was either encoded in this process by `Cx::emit` on the output
//! whose `TypeId` is that stream's type (`topology.rs` numbers streams and outputs from one list), or came from another process and passed
//! the check of stream n, made from the same list, before it was queued.

use crate::component::{Cx, Handle};
use crate::grouping::CustomGrouping;
use saetta_engine::{Chooser, CustomChoice, CustomFactory, Cx as RawCx};
use saetta_tuple::{Fields, KeyBytes, StreamType, Tuple, view};
use std::marker::PhantomData;
use std::sync::Arc;

impl<C> Cx<'_, C> {
    /// The typed face of an engine context.
    #[inline(always)]
    pub(crate) fn wrap<'m, 'a>(raw: &'m mut RawCx<'a>) -> &'m mut Cx<'a, C> {
        // SAFETY: `Cx` is `repr(transparent)` over `RawCx` and a zero-sized marker, so both have one layout; lifetimes are unchanged.
        unsafe { &mut *std::ptr::from_mut(raw).cast::<Cx<'a, C>>() }
    }
}

/// Handles frames of stream `S` from the front of `window`.
pub(crate) fn run<B: Handle<S>, S: StreamType>(bolt: &mut B, stream: u16, window: &[u8], raw: &mut RawCx<'_>) {
    let cx = Cx::<B>::wrap(raw);
    while let Some(frame) = cx.0.next_frame(stream, window) {
        // SAFETY: a frame of stream `S` as argued at the head of this file; `topology.rs` puts this function at `S`'s number only.
        let tuple = unsafe { view::<S::Tuple>(frame.archive()) };
        if let Err(why) = bolt.on(tuple, cx) {
            cx.0.fail(why);
        }
    }
}

/// The key of a fields grouping: from an archive, or from the fields themselves.
pub(crate) fn key_of<T: Tuple>(fields: Fields<T>) -> Chooser {
    let schema = T::schema();
    let places =
        fields.names.iter().filter_map(|name| schema.fields.iter().position(|f| f.name == *name)).map(|place| place as u16).collect();
    let from_archive = Arc::new(move |archive: &[u8], out: &mut KeyBytes| {
        // SAFETY: the engine calls this with the archive it has just encoded for the stream this grouping was wired to, whose tuple is `T`.
        let tuple = unsafe { view::<T>(archive) };
        (fields.key)(tuple, out);
    });
    Chooser::Key(from_archive, places)
}

/// A custom grouping of stream `S` as the engine asks it.
struct Typed<S, G>(G, PhantomData<fn(S)>);

impl<S: StreamType, G: CustomGrouping<S>> CustomChoice for Typed<S, G> {
    fn prepare(&mut self, targets: &[u32]) {
        self.0.prepare(targets);
    }
    fn choose(&mut self, archive: &[u8], tasks: &mut Vec<u32>) {
        // SAFETY: as in `key_of`: an archive just encoded for the stream this grouping was wired to, which is `S`.
        let tuple = unsafe { view::<S::Tuple>(archive) };
        self.0.choose(tuple, tasks);
    }
}

/// The code of a custom grouping.
pub(crate) fn custom_of<S: StreamType, G: CustomGrouping<S>>(make: impl Fn() -> G + Send + Sync + 'static) -> CustomFactory {
    Arc::new(move || Box::new(Typed::<S, G>(make(), PhantomData)))
}
