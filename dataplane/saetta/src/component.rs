//! Spouts, bolts, and what they may do while they are called.

use saetta_engine::Cx as RawCx;
pub use saetta_engine::Progress;
use saetta_engine::{Asked, Component, Fail, RawAnchor, TreeFail};
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
    /// True for a spout that emits with message ids ([`Cx::emit_tracked`]) and is told what became of each.
    const TRACKED: bool = false;

    /// True for a spout that keeps its way warm: on a loop that spins (`worker.wait = spin`) and has no work, `next` is called with
    /// [`Cx::is_warming`]. It must emit what it would emit, by the same code, and change nothing of itself. What it emits goes the same way
    /// and nothing comes of it: bolts without `WARM` never see it, no tree begins, nothing is counted.
    const WARM: bool = false;

    /// Before the first `next`: open files and sockets here, since `describe` makes no instance. `Fail::Fatal` ends the run.
    fn open(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        let _ = cx;
        Ok(())
    }
    /// Emits something, or says that there is nothing. Never blocks: it shares its thread with other executors.
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail>;
    /// The tree of this message is complete: every tuple of it was handled.
    fn ack(&mut self, id: u64) {
        let _ = id;
    }
    /// The tree of this message failed, once and for good; to send it again is up to the spout. After `Done` it is asked again.
    fn fail(&mut self, id: u64, why: &TreeFail) {
        let _ = (id, why);
    }
    /// The topology is active: `next` will be asked.
    fn activate(&mut self) {}
    /// It is no longer: `next` is not asked until it is again.
    fn deactivate(&mut self) {}
    /// After `Done` and the end of the last tree; may emit.
    fn finish(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        let _ = cx;
        Ok(())
    }
    /// The worker ends in order.
    fn close(&mut self) {}
}

/// A handler of tuples. Which streams it reads is said by [`Handle`], which it emits by [`Emits`].
pub trait Bolt: Send + Sized + 'static {
    /// True for a bolt whose handlers are called with the tuples of warm calls ([`Spout::WARM`], [`Cx::is_warming`]): they must change
    /// nothing. What they emit is warm as well.
    const WARM: bool = false;

    /// True for a bolt that anchors an emit to more than four trees ([`Cx::emit_with`]): the emit then opens a tree of its own, and the joined
    /// ones wait for it. Each task keeps slots for as many as its part of `worker.pending.max`.
    const JOINS: bool = false;

    /// Before the first tuple.
    fn open(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        let _ = cx;
        Ok(())
    }
    /// A tick: comes as often as `.tick_ms(n)` or `topology.tick.tuple.freq.secs` says; may emit.
    fn tick(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        let _ = cx;
        Ok(())
    }
    /// After the last tuple of every upstream task; may emit.
    fn finish(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        let _ = cx;
        Ok(())
    }
    /// The worker ends in order.
    fn close(&mut self) {}
}

/// A bolt takes back the results of work it handed to other threads with [`Cx::defer`].
pub trait Complete<V>: Bolt {
    /// On the bolt's own thread; may emit. `Ok` acks the deferred input, `Err` fails it.
    fn on_complete(&mut self, value: V, cx: &mut Cx<'_, Self>) -> Outcome;
}

/// A deferred input: neither acked nor failed until someone says so, from any thread. Dropped, it fails with reason "dropped".
#[must_use = "an anchor that is dropped fails its input"]
pub struct Anchor<B> {
    pub(crate) raw: RawAnchor,
    of: PhantomData<fn(B)>,
}

impl<B: Bolt> Anchor<B> {
    /// The input is handled.
    pub fn ack(self) {
        self.raw.ack();
    }
    /// The input failed.
    pub fn fail(self, why: impl Into<Fail>) {
        self.raw.fail(why.into());
    }
    /// Hands a result to the bolt, on its own thread: see [`Complete`].
    pub fn complete<V: Send + 'static>(self, value: V)
    where
        B: Complete<V>,
    {
        self.raw.complete(Box::new(move |component, cx| {
            let component: &mut dyn std::any::Any = component;
            if let Some(task) = component.downcast_mut::<BoltTask<B>>() {
                return task.bolt.on_complete(value, Cx::wrap(cx));
            }
            match component.downcast_mut::<crate::testing::Probed<B>>() {
                Some(probed) => probed.on_complete(value, cx),
                None => Err("a completion for a bolt of another type; a bug in Saetta".into()),
            }
        }));
    }
    /// The timeout of the input's trees begins anew.
    pub fn reset_timeout(&self) {
        self.raw.reset_timeout();
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
    /// True in a call that only keeps the caches warm: see [`Spout::WARM`]. Never without `WARM`.
    #[inline(always)]
    pub fn is_warming(&self) -> bool {
        self.0.is_warming()
    }

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
        if let Some(output) = self.output::<S>() {
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
        if let Some(output) = self.output::<E::Tuple>() {
            self.0.emit_from(output, items.into_iter());
        }
    }

    /// True while what was emitted waits for room, or one more tuple would: time to leave the rest to [`Cx::emit_while`].
    #[inline(always)]
    pub fn waits(&self) -> bool {
        self.0.waits()
    }

    /// Calls `next` for as long as it says true and there is room, now and as room comes: the way to emit many borrowed values, at the pace
    /// of the receivers and without an allocation each. Otherwise as [`Cx::emit_from`].
    pub fn emit_while(&mut self, next: impl FnMut(&mut Cx<'_, C>) -> bool + Send + 'static)
    where
        C: 'static,
    {
        let mut next = next;
        self.0.emit_while(move |cx| next(Cx::wrap(cx)));
    }

    /// Emits a tuple that belongs to no tree, whatever the input does.
    pub fn emit_untracked<E: Emit>(&mut self, value: &E)
    where
        C: Emits<E::Tuple>,
    {
        if let Some(output) = self.output::<E::Tuple>() {
            self.0.untracked(|cx| cx.emit(output, value));
        }
    }

    /// The timeout of the input's trees begins anew.
    pub fn reset_timeout(&mut self) {
        self.0.reset_timeout();
    }

    /// Where stream `S` goes out. In a test of a bolt alone it is made when it is first used.
    #[inline(always)]
    fn output<S: StreamType>(&mut self) -> Option<usize> {
        let tag = TypeId::of::<S>();
        self.0.output(tag).or_else(|| self.0.claim(tag))
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

impl<S: Spout> Cx<'_, S> {
    /// Emits with a message id, on the stream named like the tuple. When every tuple that comes of it was handled, the spout is told
    /// `ack(id)`, else `fail(id, ..)`. With `topology.acker.executors = 0` it is acked at once.
    #[inline]
    pub fn emit_tracked<E: Emit>(&mut self, id: u64, value: &E)
    where
        S: Emits<E::Tuple>,
    {
        self.emit_tracked_on::<E::Tuple, E>(id, value);
    }

    /// As [`Cx::emit_tracked`], on a stream declared with `stream!`.
    #[inline]
    pub fn emit_tracked_on<T, E>(&mut self, id: u64, value: &E)
    where
        T: StreamType,
        E: Emit<Tuple = T::Tuple>,
        S: Emits<T>,
    {
        const { assert!(S::TRACKED, "this spout calls emit_tracked; fix: add `const TRACKED: bool = true;` to its `impl Spout`") };
        let output = self.output::<T>();
        self.0.emit_tracked(output, id, value);
    }
}

impl<B: Bolt> Cx<'_, B> {
    /// Defers the input being handled: `Ok` no longer acks it, the anchor does. An input is deferred once.
    ///
    /// # Errors
    /// When it is deferred already, or no input is being handled.
    pub fn defer(&mut self) -> std::result::Result<Anchor<B>, Fail> {
        let raw = self.0.defer().ok_or_else(|| Fail::Drop("defer: no input that is not deferred already".into()))?;
        Ok(Anchor { raw, of: PhantomData })
    }

    /// Emits a tuple anchored to deferred inputs: it is part of the trees of all of them.
    ///
    /// # Errors
    /// When one has ended, or they belong to more than four trees and the bolt has no `JOINS`.
    pub fn emit_with<E: Emit>(&mut self, anchors: &[&Anchor<B>], value: &E) -> Outcome
    where
        B: Emits<E::Tuple>,
    {
        let Some(output) = self.output::<E::Tuple>() else { return Ok(()) };
        let raw: Vec<&RawAnchor> = anchors.iter().map(|a| &a.raw).collect();
        self.0.anchored_to(&raw, |cx| cx.emit(output, value))
    }
}

/// A spout as the engine sees it.
pub(crate) struct SpoutTask<S>(pub(crate) S);

impl<S: Spout> Component for SpoutTask<S> {
    fn open(&mut self, cx: &mut RawCx<'_>) -> Outcome {
        self.0.open(Cx::wrap(cx))
    }
    fn ask(&mut self, calls: u32, cx: &mut RawCx<'_>) -> Asked {
        cx.ask(calls, |cx| self.0.next(Cx::wrap(cx)))
    }
    fn warms(&self) -> bool {
        S::WARM
    }
    fn acked(&mut self, ids: &[u64]) {
        ids.iter().for_each(|id| self.0.ack(*id));
    }
    fn failed(&mut self, id: u64, why: &TreeFail) {
        self.0.fail(id, why);
    }
    fn set_active(&mut self, active: bool) {
        if active { self.0.activate() } else { self.0.deactivate() }
    }
    fn finish(&mut self, cx: &mut RawCx<'_>) -> Outcome {
        self.0.finish(Cx::wrap(cx))
    }
    fn close(&mut self) {
        self.0.close();
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
    fn warms(&self) -> bool {
        B::WARM
    }
    fn open(&mut self, cx: &mut RawCx<'_>) -> Outcome {
        self.bolt.open(Cx::wrap(cx))
    }
    fn tick(&mut self, cx: &mut RawCx<'_>) -> Outcome {
        self.bolt.tick(Cx::wrap(cx))
    }
    fn close(&mut self) {
        self.bolt.close();
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
