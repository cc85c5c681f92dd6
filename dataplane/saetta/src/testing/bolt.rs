//! One bolt in a topology of three: a feeder, the bolt, and a capture, on one loop under a manual clock.
//!
//! ```text
//!   feeder --16 streams--> bolt --16 streams--> captured
//! ```
//! Which types the streams carry is settled as the test goes: `send` takes the next free input for a new type, an emit the next free output.
//! From `send` to `drain` a tuple goes the way it goes in production: encoded, framed, routed, handled in place, encoded again.

use super::capture::Captured;
use super::feeder::{Fate, Feed};
use super::owned::{Owned, access};
use super::rig::{Rig, TURNS_MAX};
use crate::component::{Bolt, BoltTask, Complete, Cx, Emits, Handle, Outcome};
use crate::dynamic::HandleDyn;
use saetta_engine::{Component, ComponentFactory, Cx as RawCx, Fail, Program, ProgramComponent, Reason, TreeFail, Unclaimed};
use saetta_model::config::{Config, Owner, Source};
use saetta_model::name::Name;
use saetta_model::topology::{ComponentKind, Grouping, InputSpec, StreamSpec};
use saetta_tuple::{Dyn, Emit, StreamType, Tuple};
use std::any::{TypeId, type_name};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Most types a test may send, and most a bolt may emit.
pub const STREAMS_MAX: usize = 16;
/// How often threads of a bolt are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Ids of the three components: `bolt` is what reports name.
const BOLT: &str = "bolt";
const CAPTURED: &str = "captured";
const FEEDER: &str = "feeder";

/// What became of a tuple that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// The bolt handled it.
    Acked,
    /// The bolt failed it.
    Failed(Fail),
    /// Neither yet: it is deferred, or the bolt pauses after panics that came one upon the other.
    Pending,
}

/// A bolt under test: no threads, a clock that moves when told to, and every call returns when there is nothing left to do.
///
/// ```
/// use saetta::prelude::*;
/// use saetta::testing::{Sent, TestBolt};
///
/// #[tuple]
/// #[derive(Debug, Clone, PartialEq)]
/// pub struct Quote { pub symbol: String, pub price: f64 }
///
/// #[tuple]
/// pub struct Halt { pub symbol: String }
///
/// #[derive(Default)]
/// struct Gate { halted: std::collections::HashSet<String> }
/// impl Bolt for Gate {}
/// impl Emits<Quote> for Gate {}
/// impl Handle<Halt> for Gate {
///     fn on(&mut self, halt: &ArchivedHalt, _: &mut Cx<'_, Self>) -> Outcome {
///         self.halted.insert(halt.symbol().into());
///         Ok(())
///     }
/// }
/// impl Handle<Quote> for Gate {
///     fn on(&mut self, quote: &ArchivedQuote, cx: &mut Cx<'_, Self>) -> Outcome {
///         if self.halted.contains(quote.symbol()) {
///             return Err("halted".into());
///         }
///         cx.emit(&QuoteRef { symbol: quote.symbol(), price: quote.price() });
///         Ok(())
///     }
/// }
///
/// let quote = Quote { symbol: "A".into(), price: 1.0 };
/// let mut t = TestBolt::new(Gate::default());
/// assert_eq!(t.send(&quote), Sent::Acked);
/// t.send(&HaltRef { symbol: "A" });
/// assert_eq!(t.send(&quote), Sent::Failed(Fail::Drop("halted".into())));
/// assert_eq!(t.drain::<Quote>(), [quote]);
/// assert_eq!(t.failed(), [Fail::Drop("halted".into())]);
/// ```
pub struct TestBolt<B: Bolt> {
    probe: Arc<Probe<B>>,
    config: Config,
    feed: Feed,
    captured: Captured,
    /// Types sent so far, by input.
    inputs: Vec<TypeId>,
    /// Made at the first use.
    rig: Option<Rig>,
}

/// Handles a run of frames of one stream and notes why the bolt failed them.
type RunFn<B> = fn(&mut B, u16, &[u8], &mut RawCx<'_>, &Probe<B>);

fn run<B: Handle<S>, S: Owned>(bolt: &mut B, stream: u16, window: &[u8], raw: &mut RawCx<'_>, probe: &Probe<B>) {
    let cx = Cx::<B>::wrap(raw);
    while let Some(frame) = cx.0.next_frame(stream, window) {
        if let Err(why) = probe.note(bolt.on(access::<S::Tuple>(frame.archive()), cx)) {
            cx.0.fail(why);
        }
    }
}

/// As `run`, for a bolt that reads streams dynamically.
fn run_dyn<B: HandleDyn, S: StreamType>(bolt: &mut B, stream: u16, window: &[u8], raw: &mut RawCx<'_>, probe: &Probe<B>) {
    let cx = Cx::<B>::wrap(raw);
    while let Some(frame) = cx.0.next_frame(stream, window) {
        let tuple = Dyn::new(frame.archive(), <S::Tuple as Tuple>::schema()).expect("encoded in this process for this type");
        if let Err(why) = probe.note(bolt.on_dyn(tuple, cx)) {
            cx.0.fail(why);
        }
    }
}

/// Names the input by which a bolt reads stream `S` dynamically.
struct Dynamic<S>(PhantomData<fn(S)>);

#[derive(Default)]
struct Log {
    /// In the bolt's own words: a spout is told a text only.
    fails: Vec<Fail>,
    /// The text of the newest panic.
    panic: Option<String>,
    /// It panicked, and there is no other.
    gone: bool,
}

/// The bolt, and what happened to it. One task, so one instance at a time.
struct Probe<B> {
    make: Box<dyn Fn() -> Option<B> + Send + Sync>,
    bolt: Mutex<Option<BoltTask<B>>>,
    /// By input.
    handlers: [OnceLock<RunFn<B>>; STREAMS_MAX],
    log: Mutex<Log>,
}

impl<B> Probe<B> {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bolt(&self) -> MutexGuard<'_, Option<BoltTask<B>>> {
        self.bolt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, outcome: Outcome) -> Outcome {
        if let Err(why) = &outcome {
            self.log().fails.push(why.clone());
        }
        outcome
    }
}

/// The bolt as the engine sees it.
pub(crate) struct Probed<B>(Arc<Probe<B>>);

impl<B: Bolt> Probed<B> {
    fn call<R>(&self, body: impl FnOnce(&mut BoltTask<B>) -> R, gone: R) -> R {
        let mut bolt = self.0.bolt();
        let Some(task) = &mut *bolt else { return gone };
        catch_unwind(AssertUnwindSafe(|| body(task))).unwrap_or_else(|payload| {
            let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned()).or_else(|| payload.downcast_ref::<String>().cloned());
            self.0.log().panic = Some(text.unwrap_or_else(|| "with a value that is no text".into()));
            resume_unwind(payload)
        })
    }

    /// As the engine would call a bolt that is no test's.
    pub(crate) fn on_complete<V>(&self, value: V, cx: &mut RawCx<'_>) -> Outcome
    where
        B: Complete<V>,
    {
        self.call(|task| self.0.note(task.bolt.on_complete(value, Cx::wrap(cx))), Ok(()))
    }
}

impl<B: Bolt> Component for Probed<B> {
    fn open(&mut self, cx: &mut RawCx<'_>) -> Outcome {
        self.call(|task| task.open(cx), Ok(()))
    }
    fn handle(&mut self, stream: u16, window: &[u8], cx: &mut RawCx<'_>) {
        // The bolt's own outputs have the lower numbers: streams are numbered by the id of their component.
        let input = stream as usize - STREAMS_MAX;
        let run = *self.0.handlers[input].get().expect("set before anything was sent");
        self.call(|task| run(&mut task.bolt, stream, window, cx, &self.0), ());
    }
    fn tick(&mut self, cx: &mut RawCx<'_>) -> Outcome {
        self.call(|task| task.tick(cx), Ok(()))
    }
    fn finish(&mut self, cx: &mut RawCx<'_>) -> Outcome {
        self.call(|task| task.finish(cx), Ok(()))
    }
    fn close(&mut self) {
        self.call(BoltTask::close, ());
    }
}

impl<B: Bolt> TestBolt<B> {
    /// Of a bolt as it is. It cannot be made anew, so a panic in it ends the test.
    pub fn new(bolt: B) -> Self {
        let bolt = Mutex::new(Some(bolt));
        Self::of(Box::new(move || bolt.lock().unwrap_or_else(PoisonError::into_inner).take()))
    }

    /// Of a bolt made by `make`, as in `t.bolt("id", make)`: a panic fails its tuple, and the task begins anew.
    pub fn with(make: impl Fn() -> B + Send + Sync + 'static) -> Self {
        Self::of(Box::new(move || Some(make())))
    }

    fn of(make: Box<dyn Fn() -> Option<B> + Send + Sync>) -> Self {
        let handlers = [const { OnceLock::new() }; STREAMS_MAX];
        TestBolt {
            probe: Arc::new(Probe { make, bolt: Mutex::new(None), handlers, log: Mutex::default() }),
            config: Config::new(Owner::Topology),
            feed: Feed::default(),
            captured: Captured::default(),
            inputs: Vec::new(),
            rig: None,
        }
    }

    /// Sets a configuration key. Before the first tuple.
    #[must_use]
    #[track_caller]
    pub fn config(mut self, key: &str, value: impl ToString) -> Self {
        if let Err(why) = self.config.set(key, &value.to_string(), Source::Code) {
            panic!("TestBolt: {why}");
        }
        self
    }

    /// How often the bolt ticks, in milliseconds, as in `t.bolt(..).tick_ms(n)`. Before the first tuple.
    #[must_use]
    #[track_caller]
    pub fn tick_ms(self, ms: u64) -> Self {
        self.config("topology.tick.tuple.freq.secs", ms as f64 / 1e3)
    }

    /// Sends a tuple on the stream of its name and returns what became of it.
    #[track_caller]
    pub fn send<E>(&mut self, tuple: &E) -> Sent
    where
        E: Emit,
        E::Tuple: Owned,
        B: Handle<E::Tuple>,
    {
        self.send_on::<E::Tuple, E>(tuple)
    }

    /// Sends a tuple on a stream declared with `stream!`: `t.send_on::<Late, _>(&quote)`.
    #[track_caller]
    pub fn send_on<S, E>(&mut self, tuple: &E) -> Sent
    where
        S: Owned,
        E: Emit<Tuple = S::Tuple>,
        B: Handle<S>,
    {
        self.send_by::<S, E>(TypeId::of::<S>(), run::<B, S>, tuple)
    }

    /// Sends a tuple to a bolt that reads its stream by `.input_dyn`.
    #[track_caller]
    pub fn send_dyn<E>(&mut self, tuple: &E) -> Sent
    where
        E: Emit,
        E::Tuple: Owned,
        B: HandleDyn,
    {
        self.send_by::<E::Tuple, E>(TypeId::of::<Dynamic<E::Tuple>>(), run_dyn::<B, E::Tuple>, tuple)
    }

    #[track_caller]
    fn send_by<S: Owned, E: Emit<Tuple = S::Tuple>>(&mut self, tag: TypeId, run: RunFn<B>, tuple: &E) -> Sent {
        let input = self.input(tag, run);
        let id = self.feed.push::<S, E>(input, tuple);
        self.settle(Rig::settle);
        match self.feed.fate(id) {
            Fate::Acked => Sent::Acked,
            Fate::Open => Sent::Pending,
            Fate::Failed(_) => Sent::Failed(self.failed().swap_remove(self.feed.nth_failed(id))),
        }
    }

    /// Moves the clock and does what comes due on the way.
    #[track_caller]
    pub fn advance(&mut self, by: Duration) {
        self.settle(|rig| rig.advance(by));
    }

    /// What the bolt emitted on stream `T` since the last call, oldest first.
    #[track_caller]
    pub fn drain<T: Owned>(&mut self) -> Vec<T::Tuple>
    where
        B: Emits<T>,
    {
        let outputs = self.outputs();
        // Streams are numbered as components are, by id: the bolt's come first.
        match outputs.iter().position(|tag| *tag == TypeId::of::<T>()) {
            Some(output) => self.captured.take::<T>(|stream| stream == output as u16),
            None => {
                let room = outputs.is_empty() || outputs.contains(&TypeId::of::<Unclaimed>());
                assert!(room, "TestBolt: the bolt emitted on more than {STREAMS_MAX} different streams, and not all were kept");
                Vec::new()
            }
        }
    }

    /// How many tuples were acked so far.
    pub fn acked(&self) -> u64 {
        self.feed.tracker().acked()
    }

    /// Why tuples failed so far, in the order they did: as the bolt said it, or in the engine's words (a panic, a timeout, an anchor that was
    /// dropped).
    pub fn failed(&self) -> Vec<Fail> {
        let mut own = self.probe.log().fails.clone();
        let as_said = |why: TreeFail| match why.reason {
            Reason::Bolt => {
                let text = why.text.strip_prefix(BOLT).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&why.text).to_owned();
                match own.iter().position(|said| said.to_string() == text) {
                    Some(at) => own.remove(at),
                    None => Fail::Drop(text),
                }
            }
            reason => Fail::Drop(reason.text().to_owned()),
        };
        self.feed.whys().into_iter().map(as_said).collect()
    }

    /// What a spout would be told of them.
    pub fn failed_trees(&self) -> Vec<TreeFail> {
        self.feed.whys()
    }

    /// Tuples that are neither acked nor failed.
    pub fn in_flight(&self) -> u64 {
        self.feed.tracker().in_flight()
    }

    /// Waits, in real time and at most `limit`, for tuples the bolt has handed to threads of its own. True = none is in flight any more.
    #[track_caller]
    pub fn wait(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let over = Instant::now() >= deadline;
            self.settle(Rig::settle);
            if over || self.in_flight() == 0 {
                return self.in_flight() == 0;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Nothing more is sent: once everything was handled, the bolt's `finish` is called, whose emits [`TestBolt::drain`] gives, then its
    /// `close`. Time passes as far as it must. Panics when a tuple stays in flight for ever.
    #[track_caller]
    pub fn finish(&mut self) {
        self.feed.end();
        self.settle(Rig::finish);
    }

    /// Looks into the bolt.
    #[track_caller]
    pub fn inspect<R>(&mut self, look: impl FnOnce(&B) -> R) -> R {
        self.settle(Rig::settle);
        let bolt = self.probe.bolt();
        look(&bolt.as_ref().expect("a settled bolt is there").bolt)
    }

    /// Nanoseconds of the virtual clock, as the bolt reads them by `cx.now_ns()`.
    #[track_caller]
    pub fn now_ns(&mut self) -> u64 {
        self.rig().now_ns()
    }

    /// Number of the input that `tag` names; a new one gets the next that is free.
    #[track_caller]
    fn input(&mut self, tag: TypeId, run: RunFn<B>) -> usize {
        self.inputs.iter().position(|known| *known == tag).unwrap_or_else(|| {
            let input = self.inputs.len();
            assert!(input < STREAMS_MAX, "TestBolt: more than {STREAMS_MAX} different streams were sent; test the bolt in parts");
            self.inputs.push(tag);
            self.probe.handlers[input].set(run).expect("a new place");
            input
        })
    }

    /// Types of the bolt's outputs, by number.
    fn outputs(&self) -> Vec<TypeId> {
        let Some(rig) = &self.rig else { return Vec::new() };
        rig.loops().map(|l| l.output_tags(rig.task(BOLT))).find(|tags| !tags.is_empty()).unwrap_or_default()
    }

    #[track_caller]
    fn settle(&mut self, go: impl FnOnce(&mut Rig) -> Result<(), String>) {
        let result = go(self.rig());
        let log = self.probe.log();
        if log.gone {
            let text = log.panic.clone().unwrap_or_default();
            drop(log);
            panic!("bolt `{}` panicked: {text}; to see how it goes on after that, use `TestBolt::with(make)`", type_name::<B>());
        }
        drop(log);
        if let Err(why) = result.and_then(|()| self.feed.check()) {
            panic!("TestBolt: {why}");
        }
    }

    #[track_caller]
    fn rig(&mut self) -> &mut Rig {
        if self.rig.is_none() {
            let program = self.program();
            self.rig = Some(Rig::new(&program, &self.config, 1, 0, TURNS_MAX).unwrap_or_else(|why| panic!("TestBolt: {why}")));
        }
        self.rig.as_mut().expect("just made")
    }

    fn program(&self) -> Program {
        let probe = self.probe.clone();
        let factory: ComponentFactory = Arc::new(move || {
            let task = (probe.make)().map(|bolt| BoltTask { bolt, handlers: Arc::from([]) });
            probe.log().gone = task.is_none();
            *probe.bolt() = task;
            Box::new(Probed(probe.clone()))
        });
        let component = |id, kind, reads: Option<&str>, emits: bool, factory| {
            let streams = || (0..STREAMS_MAX).map(|n| Name::new(&format!("s{n:02}")).expect("valid"));
            let input = |from: &str| {
                let from = Name::new(from).expect("valid");
                streams().map(move |stream| InputSpec { from: from.clone(), stream, grouping: Grouping::Global }).collect()
            };
            let outputs =
                if emits { streams().map(|name| StreamSpec { name, schema: 0, fields: Vec::new() }).collect() } else { Vec::new() };
            let inputs: Vec<InputSpec> = reads.map(input).unwrap_or_default();
            let code = ProgramComponent {
                dead_letters: None,
                factory,
                tags: vec![TypeId::of::<Unclaimed>(); outputs.len()],
                checks: vec![|_| false; outputs.len()],
                choosers: vec![None; inputs.len()],
            };
            (super::component(id, kind, outputs, inputs), code)
        };
        let mut bolt = component(BOLT, ComponentKind::Bolt, Some(FEEDER), true, factory);
        bolt.0.tracked = B::JOINS;
        let parts = [
            bolt,
            component(CAPTURED, ComponentKind::Bolt, Some(BOLT), false, self.captured.factory()),
            component(FEEDER, ComponentKind::Spout, None, true, self.feed.factory()),
        ];
        let (components, code) = parts.into_iter().unzip();
        Program { spec: super::describe(components), config: BTreeMap::new(), components: code }
    }
}
