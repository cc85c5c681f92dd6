//! A whole topology on loops of one thread: some spouts replaced, everything that is emitted captured.
//!
//! Before: a topology function. After: its components have run to the end, or as far as the test let them, and what they emitted can be
//! looked at by component and stream.

use super::capture::Captured;
use super::feeder::{AckTracker, Feed};
use super::owned::Owned;
use super::rig::{Rig, TURNS_MAX};
use crate::run::ComponentSummary;
use crate::topology::Topology;
use saetta_engine::{Program, ProgramComponent, TreeFail};
use saetta_model::config::{Config, Source};
use saetta_model::name::nearest;
use saetta_model::topology::{ComponentKind, ComponentSpec, Grouping, InputSpec};
use saetta_tuple::{Emit, StreamType};
use std::any::{TypeId, type_name};
use std::collections::BTreeMap;
use std::time::Duration;

/// Id of the bolt that captures: behind all ids of people, so that their tasks keep their numbers.
const CAPTURED: &str = "zzzz-captured";

/// A topology under test, before it runs.
///
/// ```
/// use saetta::prelude::*;
/// use saetta::testing::{TestTopology, seeds};
///
/// #[tuple]
/// #[derive(Debug, Clone, PartialEq)]
/// pub struct Word { pub word: String }
///
/// struct Words;   // reads from somewhere a test cannot
/// impl Emits<Word> for Words {}
/// impl Spout for Words {
///     fn next(&mut self, _: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> { Ok(Idle) }
/// }
///
/// struct Shout;
/// impl Bolt for Shout {}
/// impl Emits<Word> for Shout {}
/// impl Handle<Word> for Shout {
///     fn on(&mut self, word: &ArchivedWord, cx: &mut Cx<'_, Self>) -> Outcome {
///         cx.emit(&Word { word: word.word().to_uppercase() });
///         Ok(())
///     }
/// }
///
/// fn topology(t: &mut Topology) -> Result<()> {
///     let words = t.spout("words", || Words).stream::<Word>();
///     t.bolt("shout", || Shout).input(&words, Shuffle).executors(2).stream::<Word>();
///     Ok(())
/// }
///
/// let word = |text: &str| Word { word: text.into() };
/// seeds(0..20, |seed| {
///     let run = TestTopology::new(topology).mock("words", vec![word("a"), word("b")]).seed(seed).run_to_end();
///     let mut shouted = run.output::<Word>("shout");
///     shouted.sort_by(|a, b| a.word.cmp(&b.word));   // two tasks: their order is the seed's
///     assert_eq!(shouted, [word("A"), word("B")]);
/// });
/// ```
pub struct TestTopology {
    program: Program,
    config: Config,
    feeds: BTreeMap<String, Feed>,
    seed: u64,
    n_loops: usize,
    turns_max: u64,
}

impl From<Topology> for TestTopology {
    #[track_caller]
    fn from(topology: Topology) -> Self {
        let program = topology.build().unwrap_or_else(|why| panic!("the topology is invalid: {why}"));
        let config = Config::topology(&program.config, Source::Code).unwrap_or_else(|why| panic!("the topology is invalid: {why}"));
        TestTopology { program, config, feeds: BTreeMap::new(), seed: 0, n_loops: 2, turns_max: TURNS_MAX }
    }
}

impl TestTopology {
    /// Of what a topology function wires. One with arguments is called in a closure: `TestTopology::new(|t| topology(t, args))`.
    #[track_caller]
    pub fn new(topology: impl FnOnce(&mut Topology) -> crate::Result<()>) -> Self {
        let mut t = Topology::new();
        if let Err(why) = topology(&mut t) {
            panic!("the topology function failed: {why}");
        }
        t.into()
    }

    /// Replaces a spout: the topology gets these tuples, tracked, on the stream of their name, and then nothing. With several calls a spout emits them
    /// all, in the order of the calls. Its tasks share the tuples.
    #[must_use]
    #[track_caller]
    pub fn mock<E>(self, spout: &str, tuples: impl IntoIterator<Item = E>) -> Self
    where
        E: Emit,
        E::Tuple: Owned,
    {
        self.mock_on::<E::Tuple, E>(spout, tuples)
    }

    /// As [`TestTopology::mock`], on a stream declared with `stream!`: `t.mock_on::<Late, _>("feed", vec![..])`.
    #[must_use]
    #[track_caller]
    pub fn mock_on<S, E>(mut self, spout: &str, tuples: impl IntoIterator<Item = E>) -> Self
    where
        S: Owned,
        E: Emit<Tuple = S::Tuple>,
    {
        let at = find(&self.program, spout, ComponentKind::Spout);
        let output = output_of::<S>(&self.program, at);
        let feed = self.feeds.entry(spout.to_owned()).or_default();
        self.program.components[at].factory = feed.factory();
        self.program.spec.components[at].tracked = true;
        for tuple in tuples {
            feed.push::<S, E>(output, &tuple);
        }
        self
    }

    /// Chooses on which loop each executor runs, and in which order loops take turns. Default 0.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// How many loops, as many as a worker has cores. Default 2.
    #[must_use]
    #[track_caller]
    pub fn loops(mut self, n: usize) -> Self {
        assert!((1..=saetta_engine::LOOPS_MAX).contains(&n), "{n} loops; a worker has 1 to {}", saetta_engine::LOOPS_MAX);
        self.n_loops = n;
        self
    }

    /// Sets a configuration key, as `--set` does.
    #[must_use]
    #[track_caller]
    pub fn config(mut self, key: &str, value: impl ToString) -> Self {
        if let Err(why) = self.config.set(key, &value.to_string(), Source::Set) {
            panic!("TestTopology: {why}");
        }
        self
    }

    /// Turns of the loops without an end after which a call gives up. Default two million.
    #[must_use]
    pub fn turns_max(mut self, n: u64) -> Self {
        self.turns_max = n;
        self
    }

    /// Builds the engine. Nothing has run yet.
    #[track_caller]
    pub fn start(mut self) -> TestRun {
        let captured = Captured::default();
        let inputs: Vec<InputSpec> = self
            .program
            .spec
            .components
            .iter()
            .flat_map(|c| c.outputs.iter().map(move |o| (c, o)))
            .filter(|(c, o)| !read_directly(&self.program, c.id.as_str(), o.name.as_str()))
            .map(|(c, o)| InputSpec { from: c.id.clone(), stream: o.name.clone(), grouping: Grouping::Global })
            .collect();
        if !inputs.is_empty() {
            let code = ProgramComponent {
                dead_letters: None,
                factory: captured.factory(),
                tags: Vec::new(),
                checks: Vec::new(),
                choosers: vec![None; inputs.len()],
            };
            let spec = super::component(CAPTURED, ComponentKind::Bolt, Vec::new(), inputs);
            let at = self.program.spec.components.partition_point(|c| c.id < spec.id);
            self.program.spec.components.insert(at, spec);
            self.program.components.insert(at, code);
        }
        let rig = Rig::new(&self.program, &self.config, self.n_loops, self.seed, self.turns_max);
        let rig = rig.unwrap_or_else(|why| panic!("TestTopology: {why}"));
        TestRun { program: self.program, feeds: self.feeds, captured, rig }
    }

    /// Runs until every task has ended: mocked spouts emit everything, others until they say Done, and bolts finish. Time passes whenever
    /// there is nothing to do. Panics when a component ends the run, or when it does not end.
    #[track_caller]
    pub fn run_to_end(self) -> TestRun {
        let mut run = self.start();
        run.run_to_end();
        run
    }

    /// As [`TestTopology::run_to_end`]; the error is who ended the run and why.
    #[track_caller]
    pub fn try_run_to_end(self) -> Result<TestRun, String> {
        let mut run = self.start();
        run.try_run_to_end().map(|()| run)
    }
}

/// A topology under test that was started, and what it has emitted so far.
pub struct TestRun {
    program: Program,
    feeds: BTreeMap<String, Feed>,
    captured: Captured,
    rig: Rig,
}

impl TestRun {
    /// Sends one more tuple by a mocked spout, on the stream of its name. It is emitted by the next call that runs something.
    #[track_caller]
    pub fn feed<E>(&mut self, spout: &str, tuple: &E)
    where
        E: Emit,
        E::Tuple: Owned,
    {
        self.feed_on::<E::Tuple, E>(spout, tuple);
    }

    /// As [`TestRun::feed`], on a stream declared with `stream!`.
    #[track_caller]
    pub fn feed_on<S, E>(&mut self, spout: &str, tuple: &E)
    where
        S: Owned,
        E: Emit<Tuple = S::Tuple>,
    {
        let output = output_of::<S>(&self.program, find(&self.program, spout, ComponentKind::Spout));
        self.mocked(spout).push::<S, E>(output, tuple);
    }

    /// Lets the loops take turns until there is nothing left to do. Time stands still. Panics when a component ends the run, or when there is
    /// always something to do.
    #[track_caller]
    pub fn run_until_idle(&mut self) {
        self.rig.settle().and_then(|()| self.check()).unwrap_or_else(|why| panic!("TestTopology: {why}"));
    }

    /// Moves the clock and does what comes due on the way, a millisecond at a time.
    #[track_caller]
    pub fn advance(&mut self, by: Duration) {
        self.rig.advance(by).and_then(|()| self.check()).unwrap_or_else(|why| panic!("TestTopology: {why}"));
    }

    /// See [`TestTopology::run_to_end`].
    #[track_caller]
    pub fn run_to_end(&mut self) {
        self.try_run_to_end().unwrap_or_else(|why| panic!("TestTopology: {why}"));
    }

    /// See [`TestTopology::try_run_to_end`].
    pub fn try_run_to_end(&mut self) -> Result<(), String> {
        self.feeds.values().for_each(Feed::end);
        self.rig.finish().and_then(|()| self.check())
    }

    fn check(&self) -> Result<(), String> {
        self.feeds.values().try_for_each(Feed::check)
    }

    /// What a component has emitted on stream `S` so far, unless that is read by direct grouping. One task's tuples are in its order; where several tasks emit, their order is the
    /// seed's. Panics when there is no such component or stream.
    #[track_caller]
    pub fn output<S: Owned>(&self, component: &str) -> Vec<S::Tuple> {
        let stream = self.stream_of::<S>(component);
        self.captured.tuples::<S>(|s| s == stream)
    }

    /// As [`TestRun::output`], and forgets it: what came since the last call.
    #[track_caller]
    pub fn drain<S: Owned>(&mut self, component: &str) -> Vec<S::Tuple> {
        let stream = self.stream_of::<S>(component);
        self.captured.take::<S>(|s| s == stream)
    }

    /// Tuples of a mocked spout's stream `S` whose trees are complete, in the order they were.
    #[track_caller]
    pub fn acked<S: Owned>(&self, spout: &str) -> Vec<S::Tuple> {
        output_of::<S>(&self.program, find(&self.program, spout, ComponentKind::Spout));
        self.mocked(spout).acked::<S>()
    }

    /// Tuples of a mocked spout's stream `S` whose trees failed, in the order they did, and why.
    #[track_caller]
    pub fn failed<S: Owned>(&self, spout: &str) -> Vec<(S::Tuple, TreeFail)> {
        output_of::<S>(&self.program, find(&self.program, spout, ComponentKind::Spout));
        self.mocked(spout).failed::<S>()
    }

    /// Counts of a mocked spout's tuples.
    #[track_caller]
    pub fn tracker(&self, spout: &str) -> AckTracker {
        find(&self.program, spout, ComponentKind::Spout);
        self.mocked(spout).tracker()
    }

    /// Trees that are open, of all spouts.
    pub fn in_flight(&self) -> u64 {
        self.rig.in_flight()
    }

    /// What a component did so far: tuples handled, emitted, failed.
    #[track_caller]
    pub fn summary(&self, component: &str) -> ComponentSummary {
        find_any(&self.program, component);
        self.rig.components().remove(component).unwrap_or_default()
    }

    /// What components reported so far, one line each: failed inputs (at most one a second of each executor, virtual time) and panics.
    pub fn errors(&self) -> &[String] {
        &self.rig.errors
    }

    /// Nanoseconds of the virtual clock, as components read them by `cx.now_ns()`.
    pub fn now_ns(&self) -> u64 {
        self.rig.now_ns()
    }

    #[track_caller]
    fn mocked(&self, spout: &str) -> &Feed {
        self.feeds.get(spout).unwrap_or_else(|| {
            panic!("spout `{spout}` is not mocked, so it emits what it wants; mock it with `.mock(\"{spout}\", vec![..])`")
        })
    }

    #[track_caller]
    fn stream_of<S: StreamType>(&self, component: &str) -> u16 {
        let at = find_any(&self.program, component);
        assert!(
            !read_directly(&self.program, component, S::NAME),
            "stream `{}` of `{component}` is read by direct grouping, so nobody else may read it; look at what its readers emit",
            S::NAME
        );
        let before: usize = self.program.spec.components[..at].iter().map(|c| c.outputs.len()).sum();
        (before + output_of::<S>(&self.program, at)) as u16
    }
}

/// True for a stream whose emitter names the task, which nobody else may read.
fn read_directly(program: &Program, component: &str, stream: &str) -> bool {
    let direct = |i: &InputSpec| i.from.as_str() == component && i.stream.as_str() == stream && i.grouping == Grouping::Direct;
    program.spec.components.iter().any(|c| c.inputs.iter().any(direct))
}

/// Place of a component of any kind.
#[track_caller]
fn find_any(program: &Program, id: &str) -> usize {
    program.spec.components.iter().position(|c| c.id.as_str() == id).unwrap_or_else(|| unknown(program, "component", id, |_| true))
}

/// Place of a component of this kind.
#[track_caller]
fn find(program: &Program, id: &str, kind: ComponentKind) -> usize {
    let is = |c: &ComponentSpec| c.kind == kind;
    let found = program.spec.components.iter().position(|c| c.id.as_str() == id);
    match found {
        Some(at) if is(&program.spec.components[at]) => at,
        Some(_) => panic!("`{id}` is a bolt, and only spouts are replaced; {}", there_are(program, "spout", is)),
        None => unknown(program, "spout", id, is),
    }
}

#[track_caller]
fn unknown(program: &Program, what: &str, id: &str, is: impl Fn(&ComponentSpec) -> bool) -> ! {
    let near = nearest(id, program.spec.components.iter().filter(|c| is(c)).map(|c| c.id.as_str()));
    let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    panic!("there is no {what} `{id}`{near} {}", there_are(program, what, is));
}

fn there_are(program: &Program, what: &str, is: impl Fn(&ComponentSpec) -> bool) -> String {
    let ids = program.spec.components.iter().filter(|c| is(c) && c.id.as_str() != CAPTURED).map(|c| format!("`{}`", c.id));
    format!("({what}s: {})", ids.collect::<Vec<_>>().join(", "))
}

/// Place of stream `S` among a component's outputs.
#[track_caller]
fn output_of<S: StreamType>(program: &Program, at: usize) -> usize {
    program.components[at].tags.iter().position(|tag| *tag == TypeId::of::<S>()).unwrap_or_else(|| {
        let spec = &program.spec.components[at];
        let has = match &spec.outputs[..] {
            [] => "it declares no stream; a stream is declared by `.stream::<..>()` where the topology is wired".to_owned(),
            outputs => format!("its streams: {}", outputs.iter().map(|o| format!("`{}`", o.name)).collect::<Vec<_>>().join(", ")),
        };
        let same_name = spec.outputs.iter().any(|o| o.name.as_str() == S::NAME);
        let hint = if same_name { format!(", of another type than `{}`", type_name::<S>()) } else { String::new() };
        panic!("component `{}` emits no stream `{}`; {has}{hint}", spec.id, S::NAME)
    })
}
