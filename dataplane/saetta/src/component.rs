//! Spouts, bolts, and what they may do while they are called.

use saetta_engine::Cx as RawCx;
pub use saetta_engine::Progress;
use saetta_engine::{Component, Fail};
use saetta_tuple::rkyv::Archive;
use saetta_tuple::{Emit, StreamType};
use std::any::TypeId;
use std::marker::PhantomData;

/// The archived form of a stream's tuple: what a handler reads in place.
pub type Archived<S> = <<S as StreamType>::Tuple as Archive>::Archived;

/// `Ok` = handled, `Err` = the input fails.
pub type Outcome = std::result::Result<(), Fail>;

/// A source of tuples. One instance per task, made by its factory on the worker; all calls come from one thread.
pub trait Spout: Send + Sized + 'static {
    /// True for a spout that emits with message ids. This version has no acking and refuses such a topology at `describe`.
    const TRACKED: bool = false;

    /// Before the first `next`: open files and sockets here, since `describe` makes no instance. `Fail::Fatal` ends the run.
    fn open(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        let _ = cx;
        Ok(())
    }
    /// Emits something, or says that there is nothing. Never blocks: it shares its thread with other executors.
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail>;
    /// After `Done`; may emit.
    fn finish(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        let _ = cx;
        Ok(())
    }
}

/// A handler of tuples. Which streams it reads is said by [`Handle`], which it emits by [`Emits`].
pub trait Bolt: Send + Sized + 'static {
    /// Before the first tuple.
    fn open(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        let _ = cx;
        Ok(())
    }
    /// After the last tuple of every upstream task; may emit.
    fn finish(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        let _ = cx;
        Ok(())
    }
}

/// A bolt reads stream `S`.
#[diagnostic::on_unimplemented(
    message = "bolt `{Self}` does not take tuples of stream `{S}`",
    label = "this stream carries `{S}`",
    note = "fix: write `impl Handle<{S}> for {Self} {{ fn on(&mut self, tuple: &Archived<{S}>, cx: &mut Cx<'_, Self>) -> Outcome {{ .. }} }}`, or wire another stream to it"
)]
pub trait Handle<S: StreamType>: Bolt {
    /// Handles one tuple, read in place. `Ok` acks it, `Err` fails it.
    fn on(&mut self, tuple: &Archived<S>, cx: &mut Cx<'_, Self>) -> Outcome;
}

/// A component may emit on stream `S`.
#[diagnostic::on_unimplemented(
    message = "component `{Self}` does not declare stream `{S}`",
    label = "`{S}` is not one of its streams",
    note = "fix: write `impl Emits<{S}> for {Self} {{}}`"
)]
pub trait Emits<S: StreamType> {}

/// A stream that every component has and nobody names. With one implementation only, the compiler would guess the stream from it and
/// complain about types; with two it looks for the one that was asked, and says what is missing.
#[doc(hidden)]
#[saetta_tuple::tuple]
pub struct NoStream {}

impl<C> Emits<NoStream> for C {}
impl<B: Bolt> Handle<NoStream> for B {
    fn on(&mut self, _: &ArchivedNoStream, _: &mut Cx<'_, Self>) -> Outcome {
        Err("a tuple of no stream".into())
    }
}

/// What a call of `C`'s code may do. Lives for one call.
#[repr(transparent)]
pub struct Cx<'a, C>(pub(crate) RawCx<'a>, pub(crate) PhantomData<fn(C)>);

impl<C> Cx<'_, C> {
    /// Emits on the stream named like the tuple. What finds no room downstream waits with this executor, which takes no input meanwhile; a
    /// value over 4 MiB or an outbox over its bound fails the input.
    #[inline]
    pub fn emit<E: Emit>(&mut self, value: &E)
    where
        C: Emits<E::Tuple>,
    {
        self.emit_on::<E::Tuple, E>(value);
    }

    /// Emits on a stream declared with `stream!`: `cx.emit_on::<Late, _>(&quote)`.
    #[inline]
    pub fn emit_on<S, E>(&mut self, value: &E)
    where
        S: StreamType,
        E: Emit<Tuple = S::Tuple>,
        C: Emits<S>,
    {
        // A stream that the wiring never declared has no reader: the tuple counts as handled.
        if let Some(output) = self.0.output(TypeId::of::<S>()) {
            self.0.emit(output, value);
        }
    }

    /// Emits many tuples at the pace of the receivers: as many as find room now, the rest as room comes. Call it last. The input counts as
    /// handled when the iterator is used up; memory stays bounded however many there are.
    pub fn emit_from<E, I>(&mut self, items: I)
    where
        E: Emit,
        I: IntoIterator<Item = E>,
        I::IntoIter: Send + 'static,
        C: Emits<E::Tuple>,
    {
        if let Some(output) = self.0.output(TypeId::of::<E::Tuple>()) {
            self.0.emit_from(output, items.into_iter());
        }
    }

    /// Id of this task, unique in the topology.
    pub fn task(&self) -> u32 {
        self.0.task()
    }

    /// Nanoseconds of this process's monotonic clock.
    pub fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }
}

/// A spout as the engine sees it.
pub(crate) struct SpoutTask<S>(pub(crate) S);

impl<S: Spout> Component for SpoutTask<S> {
    fn open(&mut self, cx: &mut RawCx<'_>) -> Outcome {
        self.0.open(Cx::wrap(cx))
    }
    fn next(&mut self, cx: &mut RawCx<'_>) -> std::result::Result<Progress, Fail> {
        self.0.next(Cx::wrap(cx))
    }
    fn handle(&mut self, _: u16, _: &[u8], _: &mut RawCx<'_>) {
        unreachable!("a description gives spouts no input");
    }
    fn finish(&mut self, cx: &mut RawCx<'_>) -> Outcome {
        self.0.finish(Cx::wrap(cx))
    }
}

/// Handles a run of frames of one stream.
pub(crate) type RunFn<B> = fn(&mut B, u16, &[u8], &mut RawCx<'_>);

/// A bolt as the engine sees it, with its handler for each stream of the topology.
pub(crate) struct BoltTask<B> {
    pub(crate) bolt: B,
    pub(crate) handlers: std::sync::Arc<[Option<RunFn<B>>]>,
}

impl<B: Bolt> Component for BoltTask<B> {
    fn open(&mut self, cx: &mut RawCx<'_>) -> Outcome {
        self.bolt.open(Cx::wrap(cx))
    }
    fn next(&mut self, _: &mut RawCx<'_>) -> std::result::Result<Progress, Fail> {
        unreachable!("only spouts are asked");
    }
    #[inline]
    fn handle(&mut self, stream: u16, window: &[u8], cx: &mut RawCx<'_>) {
        match self.handlers.get(stream as usize) {
            Some(Some(run)) => run(&mut self.bolt, stream, window, cx),
            // Reachable only for a frame from a peer that names a stream this bolt never subscribed to.
            _ => {
                if cx.next_frame(stream, window).is_some() {
                    cx.fail(Fail::Drop(format!("a tuple of stream {stream}, which this bolt does not read")));
                }
            }
        }
    }
    fn finish(&mut self, cx: &mut RawCx<'_>) -> Outcome {
        self.bolt.finish(Cx::wrap(cx))
    }
}
