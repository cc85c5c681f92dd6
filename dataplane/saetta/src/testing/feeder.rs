//! A spout that emits what a test hands it, tracked, and remembers what became of each tuple.
//!
//! Before: a test has tuples. After: they were emitted one by one, in the order they were handed in, and each was acked, failed, or is still
//! in flight.

use super::owned::{Owned, archive};
use crate::topology::{Stream, Topology};
use saetta_engine::{Asked, Component, ComponentFactory, Cx as RawCx, Progress, TreeFail};
use saetta_tuple::Emit;
use std::any::TypeId;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Emits the tuple of an archive on the `output`-th stream with a message id.
type EmitFn = fn(&[u8], usize, u64, &mut RawCx<'_>);

/// What became of a tuple.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Not emitted yet, or its tree is open.
    Open,
    Acked,
    Failed(TreeFail),
}

/// One tuple that was handed in. Its message id is its place.
struct Fed {
    /// Names its stream's Rust type.
    tag: TypeId,
    output: usize,
    archive: Arc<[u8]>,
    emit: EmitFn,
    fate: Fate,
}

#[derive(Default)]
struct State {
    fed: Vec<Fed>,
    /// Of them emitted.
    emitted: usize,
    /// Ids in the order their trees completed.
    acked: Vec<u64>,
    /// Ids in the order their trees failed.
    failed: Vec<u64>,
    /// Nothing will be handed in any more.
    over: bool,
    /// A message that was told a second end.
    bug: Option<String>,
}

/// What a feeder and its spout tasks share. Keeps all that is handed in: as much as the test hands in.
#[derive(Clone, Default)]
pub(crate) struct Feed(Arc<Mutex<State>>);

impl Feed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands in one tuple for the `output`-th stream. Returns its id.
    #[track_caller]
    pub(crate) fn push<S: Owned, E: Emit<Tuple = S::Tuple>>(&self, output: usize, tuple: &E) -> u64 {
        let archive = archive(tuple).into();
        let mut state = self.state();
        assert!(!state.over, "this feed was ended; nothing can be sent after that");
        state.fed.push(Fed { tag: TypeId::of::<S>(), output, archive, emit: S::emit, fate: Fate::Open });
        state.fed.len() as u64 - 1
    }

    /// Its spout says Done once everything was emitted.
    pub(crate) fn end(&self) {
        self.state().over = true;
    }

    /// What became of a tuple.
    pub(crate) fn fate(&self, id: u64) -> Fate {
        self.state().fed[id as usize].fate.clone()
    }

    /// Those of stream `S` that were acked, in the order they were.
    pub(crate) fn acked<S: Owned>(&self) -> Vec<S::Tuple> {
        let state = self.state();
        let all = state.acked.iter().map(|id| &state.fed[*id as usize]);
        all.filter(|fed| fed.tag == TypeId::of::<S>()).map(|fed| S::owned(&fed.archive)).collect()
    }

    /// Those of stream `S` that failed, in the order they did, and why.
    pub(crate) fn failed<S: Owned>(&self) -> Vec<(S::Tuple, TreeFail)> {
        let state = self.state();
        let all = state.failed.iter().map(|id| &state.fed[*id as usize]).filter(|fed| fed.tag == TypeId::of::<S>());
        all.map(|fed| (S::owned(&fed.archive), fed.why())).collect()
    }

    /// Why tuples failed, in the order they did.
    pub(crate) fn whys(&self) -> Vec<TreeFail> {
        let state = self.state();
        state.failed.iter().map(|id| state.fed[*id as usize].why()).collect()
    }

    /// The how manyth to fail a failed tuple was.
    pub(crate) fn nth_failed(&self, id: u64) -> usize {
        self.state().failed.iter().position(|failed| *failed == id).expect("it failed")
    }

    /// Counts of its tuples.
    pub(crate) fn tracker(&self) -> AckTracker {
        AckTracker { feed: self.clone() }
    }

    /// Makes the spout's tasks: all take from this one feed.
    pub(crate) fn factory(&self) -> ComponentFactory {
        let feed = self.clone();
        Arc::new(move || Box::new(feed.clone()))
    }

    fn next(&self, cx: &mut RawCx<'_>) -> Progress {
        let (archive, output, id, emit) = {
            let mut state = self.state();
            let id = state.emitted;
            let Some(fed) = state.fed.get(id) else { return if state.over { Progress::Done } else { Progress::Idle } };
            let next = (fed.archive.clone(), fed.output, id as u64, fed.emit);
            state.emitted += 1;
            next
        };
        emit(&archive, output, id, cx);
        Progress::Busy
    }

    /// A tree has ended.
    fn settle(&self, id: u64, fate: Fate) {
        let mut state = self.state();
        match &mut state.fed[id as usize].fate {
            open @ Fate::Open => {
                let acked = fate == Fate::Acked;
                *open = fate;
                if acked { state.acked.push(id) } else { state.failed.push(id) }
            }
            // Told by `check`: a panic here would only begin the spout anew.
            ended => state.bug = Some(format!("message {id} was told {fate:?} after {ended:?}; a bug in Saetta")),
        }
    }

    /// Each tree ends once: the error is one that did not.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.state().bug.clone().map_or(Ok(()), Err)
    }
}

impl Fed {
    fn why(&self) -> TreeFail {
        match &self.fate {
            Fate::Failed(why) => why.clone(),
            other => unreachable!("listed as failed: {other:?}"),
        }
    }
}

impl Component for Feed {
    fn ask(&mut self, calls: u32, cx: &mut RawCx<'_>) -> Asked {
        cx.ask(calls, |cx| Ok(self.next(cx)))
    }
    fn acked(&mut self, ids: &[u64]) {
        ids.iter().for_each(|id| self.settle(*id, Fate::Acked));
    }
    fn failed(&mut self, id: u64, why: &TreeFail) {
        self.settle(id, Fate::Failed(why.clone()));
    }
}

/// How many tuples of a feeder are where. Clones count the same.
#[derive(Clone)]
pub struct AckTracker {
    feed: Feed,
}

impl AckTracker {
    /// Emitted so far.
    pub fn emitted(&self) -> u64 {
        self.feed.state().emitted as u64
    }
    /// Of them complete.
    pub fn acked(&self) -> u64 {
        self.feed.state().acked.len() as u64
    }
    /// Of them failed.
    pub fn failed(&self) -> u64 {
        self.feed.state().failed.len() as u64
    }
    /// Of them neither.
    pub fn in_flight(&self) -> u64 {
        let state = self.feed.state();
        (state.emitted - state.acked.len() - state.failed.len()) as u64
    }
}

/// A spout that emits what it is sent, tracked: for a topology that runs on threads, in [`run`](crate::run) or a
/// [`LocalCluster`](super::LocalCluster), and for any other whose input a test decides on the way.
///
/// ```
/// # use saetta::prelude::*;
/// # use saetta::testing::{CaptureBolt, FeederSpout, LocalCluster};
/// # use std::time::Duration;
/// # #[tuple]
/// # #[derive(Debug, Clone, PartialEq)]
/// # pub struct Word { pub word: String }
/// let (feed, seen) = (FeederSpout::<Word>::new(), CaptureBolt::<Word>::new());
/// let mut t = Topology::new();
/// let words = feed.spout(&mut t, "words");
/// seen.bolt(&mut t, "seen", &words);
///
/// let cluster = LocalCluster::start();
/// let running = cluster.submit("words", t)?;
/// feed.send(&WordRef { word: "one" });
/// running.wait_until(Duration::from_secs(10), |_| feed.tracker().acked() == 1)?;
/// assert_eq!(seen.tuples(), [Word { word: "one".into() }]);
/// # Ok::<(), saetta::Error>(())
/// ```
pub struct FeederSpout<S> {
    feed: Feed,
    of: PhantomData<fn(S)>,
}

impl<S> Clone for FeederSpout<S> {
    fn clone(&self) -> Self {
        FeederSpout { feed: self.feed.clone(), of: PhantomData }
    }
}

impl<S: Owned> Default for FeederSpout<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Owned> FeederSpout<S> {
    /// With nothing to emit yet. Clones are one feed.
    pub fn new() -> Self {
        FeederSpout { feed: Feed::default(), of: PhantomData }
    }

    /// Adds it to a topology, with one task. Add it once.
    pub fn spout(&self, t: &mut Topology, id: &str) -> Stream<S> {
        t.raw_spout(id, self.feed.factory())
    }

    /// Sends a tuple into the topology. Panics when the feed was ended, or the tuple is longer than one may be.
    #[track_caller]
    pub fn send<E: Emit<Tuple = S::Tuple>>(&self, tuple: &E) {
        self.feed.push::<S, E>(0, tuple);
    }

    /// Nothing will come any more: the spout ends once everything was emitted.
    pub fn end(&self) {
        self.feed.end();
    }

    /// Tuples whose trees are complete, in the order they were.
    pub fn acked(&self) -> Vec<S::Tuple> {
        self.feed.acked::<S>()
    }

    /// Tuples whose trees failed, in the order they did, and why.
    pub fn failed(&self) -> Vec<(S::Tuple, TreeFail)> {
        self.feed.failed::<S>()
    }

    /// How many are where.
    pub fn tracker(&self) -> AckTracker {
        self.feed.tracker()
    }
}
