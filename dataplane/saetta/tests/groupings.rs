//! Groupings as a topology writes them: what arrives where, and what a wrong choice is answered with.

#![allow(missing_docs, reason = "tuples of a test")]

use saetta::prelude::*;
use saetta::{RunOptions, run};
use saetta_model::config::{Config, Owner};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

#[tuple]
pub struct Number {
    pub n: u64,
    pub word: String,
}

const N: u64 = 3000;

struct Numbers(std::ops::Range<u64>);
impl Emits<Number> for Numbers {}
impl Spout for Numbers {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        match self.0.next() {
            Some(n) => cx.emit(&NumberRef { n, word: if n % 2 == 0 { "even" } else { "odd" } }),
            None => return Ok(Done),
        }
        Ok(Busy)
    }
}

/// Remembers what each task saw.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<u32, Vec<u64>>>>);
impl Seen {
    fn lens(&self) -> Vec<usize> {
        self.0.lock().unwrap().values().map(Vec::len).collect()
    }
    fn all(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.0.lock().unwrap().values().flatten().copied().collect();
        all.sort_unstable();
        all
    }
}
#[derive(Clone, Default)]
struct Recorder(Seen);
impl Bolt for Recorder {}
impl Handle<Number> for Recorder {
    fn on(&mut self, t: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        self.0.0.lock().unwrap().entry(cx.task()).or_default().push(t.n());
        Ok(())
    }
}

fn finish(t: Topology) -> Summary {
    let program = t.build().unwrap();
    run(&program, &Config::new(Owner::Topology), &RunOptions { quiet: true, ..RunOptions::default() }).unwrap()
}

/// One spout, one bolt of four tasks on two executors.
fn one_edge(grouping: impl saetta::GroupingFor<Number>) -> (Seen, Summary) {
    let recorder = Recorder::default();
    let mut t = Topology::new();
    let numbers = t.spout("numbers", || Numbers(0..N)).stream::<Number>();
    let r = recorder.clone();
    let _ = t.bolt("to", move || r.clone()).input(&numbers, grouping).executors(2).tasks(4);
    let summary = finish(t);
    (recorder.0, summary)
}

#[test]
fn every_tuple_arrives_once_by_each_grouping_that_chooses_one() {
    let whole: Vec<u64> = (0..N).collect();
    for seen in [one_edge(Shuffle).0, one_edge(LocalOrShuffle).0] {
        assert_eq!(seen.lens(), [750; 4]);
        assert_eq!(seen.all(), whole);
    }
    assert_eq!(one_edge(LoadAware).0.all(), whole);
    let many_keys = one_edge(partial!(Number.n)).0;
    assert!(many_keys.lens().iter().all(|n| n.abs_diff(750) < 25), "{:?}", many_keys.lens());
    assert_eq!(many_keys.all(), whole);
    let two_keys = one_edge(partial!(Number.word)).0;
    assert!((2..=4).contains(&two_keys.lens().len()) && *two_keys.lens().iter().max().unwrap() <= 1500, "{:?}", two_keys.lens());
    assert_eq!(two_keys.all(), whole);
}

/// To the tasks whose number, from zero, divides n; as many as there are.
#[derive(Default)]
struct Divisors(Vec<u32>);
impl CustomGrouping<Number> for Divisors {
    fn prepare(&mut self, targets: &[u32]) {
        self.0 = targets.to_vec();
    }
    fn choose(&mut self, t: &ArchivedNumber, tasks: &mut Vec<u32>) {
        match t.n() {
            1000 => panic!("a thousand is too much"),
            2000 => tasks.extend([self.0[0], 77]),
            n => tasks.extend(self.0.iter().zip(0..).filter(|(_, i)| n % (i + 2) == 0).map(|(t, _)| *t)),
        }
    }
}

struct Passes;
impl Emits<Number> for Passes {}
impl Bolt for Passes {}
impl Handle<Number> for Passes {
    fn on(&mut self, t: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        cx.emit(&NumberRef { n: t.n(), word: t.word() });
        Ok(())
    }
}

#[test]
fn a_custom_grouping_chooses_none_some_or_all_and_its_faults_are_its_emitters() {
    let recorder = Recorder::default();
    let mut t = Topology::new();
    let numbers = t.spout("numbers", || Numbers(0..N)).stream::<Number>();
    let passed = t.bolt("passes", || Passes).input(&numbers, Shuffle).stream::<Number>();
    let r = recorder.clone();
    let _ = t.bolt("to", move || r.clone()).input(&passed, Custom(Divisors::default)).executors(2).tasks(4);
    let summary = finish(t);
    let seen = recorder.0;
    let count = |d: u64| (0..N).filter(|n| n % d == 0 && ![1000, 2000].contains(n)).count();
    assert_eq!(seen.lens(), [count(2), count(3), count(4), count(5)]);
    assert_eq!(summary.components["passes"].failed, 2);
    one_of(&summary, ["a thousand is too much", "task 77 for bolt `to`"]);
}

/// Errors of one component are told at a bounded rate: one of two that came at once is enough.
fn one_of(summary: &Summary, texts: [&str; 2]) {
    assert!(summary.errors.iter().any(|e| texts.iter().any(|t| e.contains(t))), "{:?}", summary.errors);
}

/// Emits n to the subscriber's task n mod 4; every hundredth to a task that does not subscribe.
#[derive(Default)]
struct Router(Vec<u32>);
impl Emits<Number> for Router {}
impl Bolt for Router {
    fn open(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        self.0 = cx.tasks("to").to_vec();
        assert!(cx.tasks("router").is_empty());
        Ok(())
    }
}
impl Handle<Number> for Router {
    fn on(&mut self, t: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        let tuple = NumberRef { n: t.n(), word: t.word() };
        match t.n() {
            7 => cx.emit(&tuple),
            n if n % 100 == 0 => cx.emit_direct(cx.task(), &tuple)?,
            n => cx.emit_direct(self.0[n as usize % 4], &tuple)?,
        }
        Ok(())
    }
}

#[test]
fn an_emitter_names_the_task_and_a_task_that_does_not_subscribe_is_its_error() {
    let recorder = Recorder::default();
    let mut t = Topology::new();
    let numbers = t.spout("numbers", || Numbers(0..N)).stream::<Number>();
    let routed = t.bolt("router", Router::default).input(&numbers, Shuffle).stream::<Number>();
    let r = recorder.clone();
    let _ = t.bolt("to", move || r.clone()).input(&routed, Direct).executors(2).tasks(4);
    let summary = finish(t);
    let seen = recorder.0.0.lock().unwrap();
    let first = *seen.keys().next().unwrap();
    assert_eq!(seen.len(), 4);
    for (task, numbers) in seen.iter() {
        assert!(numbers.iter().all(|n| n % 4 == u64::from(task - first)) && numbers.is_sorted());
    }
    let want: BTreeSet<u64> = (0..N).filter(|n| n % 100 != 0 && *n != 7).collect();
    assert_eq!(seen.values().flatten().copied().collect::<BTreeSet<_>>(), want);
    assert_eq!(summary.components["router"].failed, 31);
    one_of(&summary, ["name the task with `emit_direct`", "does not read this stream by direct grouping; tasks that do: `to`"]);
}

/// Emits n to task n mod 4 with n as its id; a stranger's id begins no tree.
#[derive(Default)]
struct DirectFeed {
    n: u64,
    acked: Arc<Mutex<BTreeSet<u64>>>,
}
impl Emits<Number> for DirectFeed {}
impl Spout for DirectFeed {
    const TRACKED: bool = true;
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        self.n += 1;
        if self.n > N {
            return Ok(Done);
        }
        let task = cx.tasks("to")[self.n as usize % 4];
        let tuple = NumberRef { n: self.n, word: "x" };
        if self.n.is_multiple_of(1000) {
            assert!(cx.emit_direct_tracked(self.n, cx.task(), &tuple).is_err());
        } else {
            cx.emit_direct_tracked(self.n, task, &tuple)?;
        }
        Ok(Busy)
    }
    fn ack(&mut self, id: u64) {
        self.acked.lock().unwrap().insert(id);
    }
}

#[test]
fn a_tuple_emitted_to_one_task_is_a_tree_of_its_own() {
    let (recorder, acked) = (Recorder::default(), Arc::new(Mutex::new(BTreeSet::new())));
    let mut t = Topology::new();
    let a = acked.clone();
    let numbers = t.spout("numbers", move || DirectFeed { n: 0, acked: a.clone() }).stream::<Number>();
    let r = recorder.clone();
    let _ = t.bolt("to", move || r.clone()).input(&numbers, Direct).executors(2).tasks(4);
    finish(t);
    let want: Vec<u64> = (1..=N).filter(|n| n % 1000 != 0).collect();
    assert_eq!(recorder.0.all(), want);
    assert!(acked.lock().unwrap().iter().copied().eq(want));
}

#[test]
fn a_stream_is_not_read_by_direct_and_by_another_grouping() {
    let mut t = Topology::new();
    let numbers = t.spout("numbers", || Numbers(0..N)).stream::<Number>();
    let _ = t.bolt("a", Recorder::default).input(&numbers, Direct);
    let _ = t.bolt("b", Recorder::default).input(&numbers, Shuffle);
    let Err(text) = t.build() else { panic!("must be refused") };
    assert!(text.contains("bolt `a` reads stream `Number` of `numbers` by direct grouping and bolt `b` by another"), "{text}");
}

#[test]
fn a_description_names_the_grouping_of_each_input() {
    let mut t = Topology::new();
    let numbers = t.spout("numbers", || Numbers(0..N)).stream::<Number>();
    let named = |t: Topology, id: &str| serde_json::to_string(&t.build().unwrap().spec.component(id).unwrap().inputs[0].grouping).unwrap();
    let _ = t.bolt("x", Recorder::default).input(&numbers, Custom(Divisors::default));
    assert_eq!(named(t, "x"), r#"{"custom":"Divisors"}"#);
    for (text, grouping) in [
        (r#""local_or_shuffle""#, saetta::GroupingFor::<Number>::grouping(LocalOrShuffle).0),
        (r#""load_aware""#, saetta::GroupingFor::<Number>::grouping(LoadAware).0),
        (r#""direct""#, saetta::GroupingFor::<Number>::grouping(Direct).0),
        (r#"{"partial_key":["word","n"]}"#, saetta::GroupingFor::<Number>::grouping(partial!(Number.word, Number.n)).0),
    ] {
        assert_eq!(serde_json::to_string(&grouping).unwrap(), text);
    }
}
