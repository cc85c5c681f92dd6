//! The test kit itself: that it shows what the engine does, says what is wrong with a test, and repeats a seed exactly.

#![allow(missing_docs, reason = "tuples of a test")]

use saetta::prelude::*;
use saetta::testing::{CaptureBolt, FeederSpout, LocalCluster, Sent, TestBolt, TestRun, TestTopology, seeds};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Long enough for anything that happens at all.
const LIMIT: Duration = Duration::from_secs(30);

#[tuple]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number {
    pub n: u64,
}

#[tuple]
#[derive(Debug, Clone, PartialEq)]
pub struct Text {
    pub text: String,
    pub parts: Vec<String>,
    pub maybe: Option<(u32, f64)>,
}

stream!(pub Odd: Number);

fn numbers(range: std::ops::Range<u64>) -> Vec<Number> {
    range.map(|n| Number { n }).collect()
}

/// What a panic said.
fn panic_of(body: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(body)).expect_err("must panic");
    payload.downcast_ref::<String>().cloned().or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).into())).expect("a text")
}

/// Even numbers on their stream, odd ones on `Odd`; 13 fails, 99 panics, 100 ends the run.
#[derive(Default)]
struct Sort {
    seen: u64,
}
impl Bolt for Sort {
    fn finish(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        cx.emit(&TextRef { text: "seen", parts: vec![self.seen.to_string()], maybe: Some((7, 0.5)) });
        Ok(())
    }
}
impl Emits<Number> for Sort {}
impl Emits<Odd> for Sort {}
impl Emits<Text> for Sort {}
impl Handle<Number> for Sort {
    fn on(&mut self, t: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        self.seen += 1;
        match t.n() {
            13 => return Err(Fail::Retry("unlucky".into())),
            99 => panic!("ninety-nine is too much"),
            100 => return Err(Fail::Fatal("a hundred is the end".into())),
            n if n % 2 == 1 => cx.emit_on::<Odd, _>(&Number { n }),
            n => cx.emit(&Number { n }),
        }
        Ok(())
    }
}
impl Handle<Odd> for Sort {
    fn on(&mut self, t: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        cx.emit_from((0..t.n()).map(|n| Number { n }));
        Ok(())
    }
}
impl Handle<Text> for Sort {
    fn on(&mut self, t: &ArchivedText, cx: &mut Cx<'_, Self>) -> Outcome {
        cx.emit(&TextRef { text: t.text(), parts: vec![cx.now_ns().to_string()], maybe: None });
        Ok(())
    }
}

#[test]
fn a_bolt_is_sent_tuples_of_all_its_streams_and_what_it_emits_is_kept_by_stream() {
    let mut t = TestBolt::new(Sort::default());
    assert_eq!(t.drain::<Number>(), []);
    for number in numbers(0..5) {
        assert_eq!(t.send(&number), Sent::Acked);
    }
    assert_eq!(t.drain::<Odd>(), [Number { n: 1 }, Number { n: 3 }]);
    assert_eq!(t.send_on::<Odd, _>(&Number { n: 2 }), Sent::Acked);
    t.send(&TextRef { text: "é", parts: Vec::new(), maybe: None });
    assert_eq!(t.drain::<Number>(), [0, 2, 4, 0, 1].map(|n| Number { n }));
    assert_eq!(t.drain::<Number>(), [], "drained once");
    assert_eq!(t.drain::<Text>()[0].text, "é");
    assert_eq!((t.acked(), t.failed()), (7, vec![]));
    assert_eq!(t.inspect(|sort| sort.seen), 5);
}

#[test]
fn a_failed_tuple_is_told_with_its_fail() {
    let mut t = TestBolt::new(Sort::default());
    assert_eq!(t.send(&Number { n: 13 }), Sent::Failed(Fail::Retry("unlucky".into())));
    assert_eq!(t.send(&Number { n: 14 }), Sent::Acked);
    assert_eq!((t.acked(), t.failed()), (1, vec![Fail::Retry("unlucky".into())]));
}

#[test]
fn the_clock_of_a_bolt_moves_only_when_it_is_told_to() {
    let mut t = TestBolt::new(Sort::default());
    let text = Text { text: String::new(), parts: Vec::new(), maybe: None };
    let at = |t: &mut TestBolt<Sort>| -> u64 {
        t.send(&text);
        t.drain::<Text>()[0].parts[0].parse().unwrap()
    };
    let (first, second) = (at(&mut t), at(&mut t));
    assert_eq!(first, second);
    t.advance(Duration::from_micros(250_500));
    assert_eq!(at(&mut t), first + 250_500_000);
    assert_eq!(t.now_ns(), first + 250_500_000);
}

#[test]
fn finish_is_called_once_everything_was_handled_and_nothing_can_be_sent_after() {
    let mut t = TestBolt::new(Sort::default());
    t.send(&Number { n: 2 });
    t.finish();
    assert_eq!(t.drain::<Text>(), [Text { text: "seen".into(), parts: vec!["1".into()], maybe: Some((7, 0.5)) }]);
    assert!(panic_of(|| drop(t.send(&Number { n: 2 }))).contains("was ended"));
}

#[test]
fn a_panic_ends_the_test_of_a_bolt_that_cannot_be_made_anew() {
    let text = panic_of(|| drop(TestBolt::new(Sort::default()).send(&Number { n: 99 })));
    assert!(text.contains("Sort` panicked: ninety-nine is too much") && text.contains("TestBolt::with"), "{text}");
}

#[test]
fn a_panic_fails_its_tuple_and_the_bolt_that_can_be_made_anew_goes_on() {
    let mut t = TestBolt::with(Sort::default);
    t.send(&Number { n: 2 });
    assert_eq!(t.send(&Number { n: 99 }), Sent::Failed(Fail::Drop("panic: ninety-nine is too much".into())));
    assert_eq!(t.send(&Number { n: 4 }), Sent::Acked);
    assert_eq!(t.inspect(|sort| sort.seen), 1, "a new instance");
    assert_eq!(t.drain::<Number>(), [Number { n: 2 }, Number { n: 4 }]);
}

#[test]
fn a_bolt_that_ends_the_run_ends_its_test_with_its_text() {
    let text = panic_of(|| drop(TestBolt::new(Sort::default()).send(&Number { n: 100 })));
    assert!(text.contains("component `bolt` ended the run: a hundred is the end"), "{text}");
}

#[test]
fn a_configuration_key_that_is_none_is_refused() {
    let text = panic_of(|| drop(TestBolt::new(Sort::default()).config("topology.worker", 2)));
    assert!(text.contains("topology.workers"), "{text}");
}

/// Keeps anchors for the test, ticks, and takes back what it handed out.
struct Later {
    anchors: Arc<Mutex<Vec<Anchor<Later>>>>,
    ticks: u64,
    closed: bool,
}
impl Bolt for Later {
    fn tick(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        self.ticks += 1;
        cx.emit(&Number { n: self.ticks });
        Ok(())
    }
    fn close(&mut self) {
        self.closed = true;
    }
}
impl Emits<Number> for Later {}
impl Emits<Odd> for Later {}
impl Handle<Number> for Later {
    fn on(&mut self, _: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        self.anchors.lock().unwrap().push(cx.defer()?);
        Ok(())
    }
}
impl Handle<Odd> for Later {
    fn on(&mut self, t: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        let (anchor, n) = (cx.defer()?, t.n());
        std::thread::spawn(move || anchor.complete(n * 2));
        Ok(())
    }
}
impl Complete<u64> for Later {
    fn on_complete(&mut self, value: u64, cx: &mut Cx<'_, Self>) -> Outcome {
        if value == 26 {
            return Err(Fail::Retry("twice unlucky".into()));
        }
        cx.emit_on::<Odd, _>(&Number { n: value });
        Ok(())
    }
}

type Anchors = Arc<Mutex<Vec<Anchor<Later>>>>;

fn later() -> (TestBolt<Later>, Anchors) {
    let anchors = Anchors::default();
    (TestBolt::new(Later { anchors: anchors.clone(), ticks: 0, closed: false }), anchors)
}

#[test]
fn a_deferred_tuple_is_pending_until_its_anchor_ends_it() {
    let (mut t, anchors) = later();
    let take = || anchors.lock().unwrap().remove(0);
    for n in 0..4 {
        assert_eq!(t.send(&Number { n }), Sent::Pending);
    }
    assert_eq!((t.in_flight(), t.acked()), (4, 0));
    take().ack();
    take().fail("in the end");
    drop(take());
    t.advance(Duration::ZERO);
    assert_eq!((t.in_flight(), t.acked()), (1, 1));
    assert_eq!(t.failed(), [Fail::Drop("in the end".into()), Fail::Drop("dropped".into())]);
    take().complete(7);
    assert!(t.wait(LIMIT));
    assert_eq!((t.drain::<Odd>(), t.acked()), (vec![Number { n: 7 }], 2));
    assert_eq!(t.failed_trees()[1].reason, Reason::Dropped);
}

#[test]
fn results_of_a_bolt_s_own_threads_are_waited_for() {
    let (mut t, _anchors) = later();
    for n in 1..10 {
        t.send_on::<Odd, _>(&Number { n });
    }
    assert!(t.wait(LIMIT));
    assert_eq!(sorted(t.drain::<Odd>()), (1..10).map(|n| Number { n: n * 2 }).collect::<Vec<_>>());
    t.send_on::<Odd, _>(&Number { n: 13 });
    assert!(t.wait(LIMIT));
    assert_eq!(t.failed(), [Fail::Retry("twice unlucky".into())], "with its kind, though the thread is another's");
}

#[test]
fn a_tuple_that_stays_in_flight_fails_at_its_timeout_of_the_virtual_clock_and_no_earlier() {
    let (t, _anchors) = later();
    let mut t = t.config("topology.message.timeout.secs", 5);
    t.send(&Number { n: 1 });
    t.advance(Duration::from_millis(4_990));
    assert_eq!((t.in_flight(), t.failed()), (1, vec![]));
    t.advance(Duration::from_millis(2_600));
    assert_eq!((t.in_flight(), t.failed()), (0, vec![Fail::Drop("timeout".into())]));
}

#[test]
fn ticks_come_at_their_times_of_the_virtual_clock() {
    let (t, _anchors) = later();
    let mut t = t.tick_ms(100);
    t.advance(Duration::from_millis(99));
    assert_eq!(t.drain::<Number>(), []);
    t.advance(Duration::from_millis(151));
    assert_eq!(t.drain::<Number>(), numbers(1..3));
    t.advance(Duration::from_secs(1));
    assert_eq!(t.drain::<Number>(), numbers(3..13));
    assert_eq!(t.inspect(|later| later.ticks), 12);
}

#[test]
fn finish_waits_for_what_is_in_flight_and_closes_the_bolt() {
    let (mut t, anchors) = later();
    t.send(&Number { n: 1 });
    let anchor = anchors.lock().unwrap().remove(0);
    t.send(&Number { n: 2 });
    drop(anchor);
    let text = panic_of(|| t.finish());
    assert!(text.contains("not ended: `bolt`, `captured`") && text.contains("an anchor that is kept for ever"), "{text}");
    anchors.lock().unwrap().remove(0).ack();
    t.finish();
    // The kept one had its timeout meanwhile.
    assert_eq!(t.failed(), [Fail::Drop("dropped".into()), Fail::Drop("timeout".into())]);
    assert!(t.inspect(|later| later.closed));
}

#[test]
fn panics_one_upon_the_other_pause_the_bolt_and_the_clock_brings_it_back() {
    let mut t = TestBolt::with(Sort::default);
    for _ in 0..2 {
        assert!(matches!(t.send(&Number { n: 99 }), Sent::Failed(_)));
    }
    assert_eq!(t.send(&Number { n: 2 }), Sent::Pending);
    t.advance(Duration::from_secs(10));
    assert_eq!((t.acked(), t.in_flight()), (1, 0));
}

#[test]
fn a_policy_that_skips_keeps_the_only_instance() {
    let mut t = TestBolt::new(Sort::default()).config("executor.panic.policy", "skip");
    t.send(&Number { n: 2 });
    assert_eq!(t.send(&Number { n: 99 }), Sent::Failed(Fail::Drop("panic: ninety-nine is too much".into())));
    assert_eq!(t.inspect(|sort| sort.seen), 2);
}

/// Reads any stream.
struct Any;
impl Bolt for Any {}
impl Emits<Text> for Any {}
impl HandleDyn for Any {
    fn on_dyn(&mut self, t: Dyn<'_>, cx: &mut Cx<'_, Self>) -> Outcome {
        let text = format!("{:?}", t.get("n"));
        cx.emit(&TextRef { text: &text, parts: Vec::new(), maybe: None });
        if t.get("n").is_some() { Ok(()) } else { Err("no n".into()) }
    }
}

#[test]
fn a_bolt_that_reads_any_stream_is_sent_any() {
    let mut t = TestBolt::new(Any);
    assert_eq!(t.send_dyn(&Number { n: 7 }), Sent::Acked);
    assert!(t.drain::<Text>()[0].text.contains('7'));
    assert_eq!(t.send_dyn(&TextRef { text: "", parts: Vec::new(), maybe: None }), Sent::Failed(Fail::Drop("no n".into())));
}

/// Emits each number to the task it names, counted from the first.
struct Named;
impl Bolt for Named {}
impl Emits<Number> for Named {}
impl Handle<Number> for Named {
    fn on(&mut self, t: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        let task = cx.tasks("echo")[t.n() as usize % 2];
        cx.emit_direct(task, &Number { n: t.n() })
    }
}

#[test]
fn a_stream_read_by_direct_grouping_works_and_is_looked_at_by_what_its_readers_emit() {
    let wire = |t: &mut Topology| {
        let fed = t.spout("fed", || Outside).stream::<Number>();
        let named = t.bolt("named", || Named).input(&fed, Shuffle).stream::<Number>();
        t.bolt("echo", || Add(0)).input(&named, Direct).executors(2).stream::<Number>();
        Ok(())
    };
    let run = TestTopology::new(wire).mock("fed", numbers(0..10)).run_to_end();
    assert_eq!(sorted(run.output::<Number>("echo")), numbers(0..10));
    let text = panic_of(|| drop(run.output::<Number>("named")));
    assert!(text.contains("`Number` of `named` is read by direct grouping"), "{text}");
}

/// What no test can have: it never ends and never emits the same.
struct Outside;
impl Emits<Number> for Outside {}
impl Emits<Odd> for Outside {}
impl Spout for Outside {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        cx.emit(&Number { n: 1 });
        Ok(Busy)
    }
}

struct Add(u64);
impl Bolt for Add {}
impl Emits<Number> for Add {}
impl Handle<Number> for Add {
    fn on(&mut self, t: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        match t.n() {
            1313 => Err("unlucky".into()),
            1414 => Err(Fail::Fatal("the end".into())),
            n => {
                cx.emit(&Number { n: n + self.0 });
                Ok(())
            }
        }
    }
}
impl Handle<Odd> for Add {
    fn on(&mut self, t: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        cx.emit(&Number { n: t.n() * 1000 });
        Ok(())
    }
}

fn wire(t: &mut Topology) -> Result<()> {
    let mut feed = t.spout("feed", || Outside);
    let (all, odd) = (feed.stream::<Number>(), feed.stream::<Odd>());
    let left = t.bolt("left", || Add(1)).input(&all, by!(Number.n)).executors(3).stream::<Number>();
    let right = t.bolt("right", || Add(2)).input(&all, Shuffle).input(&odd, Shuffle).executors(2).stream::<Number>();
    t.bolt("join", || Add(0)).input(&left, Shuffle).input(&right, Shuffle).stream::<Number>();
    Ok(())
}

fn sorted(mut all: Vec<Number>) -> Vec<Number> {
    all.sort();
    all
}

#[test]
fn a_mocked_topology_gives_what_each_component_emitted() {
    let run = TestTopology::new(wire).mock("feed", numbers(0..50)).mock_on::<Odd, _>("feed", numbers(1..3)).run_to_end();
    assert_eq!(run.output::<Number>("feed"), numbers(0..50), "a spout's tuples keep their order");
    assert_eq!(run.output::<Odd>("feed"), numbers(1..3));
    assert_eq!(sorted(run.output::<Number>("left")), numbers(1..51));
    let mut right = numbers(2..52);
    right.extend([1000, 2000].map(|n| Number { n }));
    assert_eq!(sorted(run.output::<Number>("right")), right);
    right.extend(numbers(1..51));
    assert_eq!(sorted(run.output::<Number>("join")), sorted(right));
    assert_eq!((sorted(run.acked::<Number>("feed")), run.acked::<Odd>("feed").len()), (numbers(0..50), 2));
    assert_eq!((run.failed::<Number>("feed").len(), run.in_flight(), run.tracker("feed").acked()), (0, 0, 52));
    assert_eq!((run.summary("join").executed, run.summary("left").executors), (102, 3));
    assert!(run.errors().is_empty());
}

/// Everything a run shows, in its order: what left, right and join emitted, and what was acked.
fn trace(seed: u64, n_loops: usize) -> [Vec<Number>; 4] {
    let run = TestTopology::new(wire)
        .mock("feed", numbers(0..20))
        .config("lane.ring.bytes", 4096)
        .config("executor.inbox.bytes", 4096)
        .seed(seed)
        .loops(n_loops)
        .run_to_end();
    assert_eq!((run.in_flight(), run.failed::<Number>("feed")), (0, vec![]));
    [run.output::<Number>("left"), run.output::<Number>("right"), run.output::<Number>("join"), run.acked::<Number>("feed")]
}

#[test]
fn a_seed_repeats_exactly_and_seeds_differ() {
    let mut orders = std::collections::BTreeSet::new();
    seeds(0..20, |seed| {
        let first = trace(seed, 3);
        assert_eq!(first, trace(seed, 3));
        orders.insert(first[2].clone());
    });
    assert!(orders.len() > 10, "{} different orders of 20 seeds", orders.len());
}

/// Whatever the interleaving: nothing is lost, nothing doubled, and one task's tuples arrive in its order.
#[test]
fn ten_thousand_seeds_lose_and_double_nothing() {
    seeds(0..10_000, |seed| {
        let [left, right, join, acked] = trace(seed, 1 + (seed % 2) as usize);
        assert_eq!(sorted(left), numbers(1..21));
        assert_eq!(sorted(right), numbers(2..22));
        assert_eq!((join.len(), sorted(acked)), (40, numbers(0..20)));
    });
}

#[test]
fn an_expectation_that_does_not_hold_fails() {
    // The bolt loses what is over its bound; a kit that hid that would show all five.
    let run = TestTopology::new(wire).mock("feed", [Number { n: 1 }, Number { n: 1313 }]).run_to_end();
    assert_eq!(sorted(run.output::<Number>("left")), [Number { n: 2 }]);
    assert_eq!((run.summary("left").failed, run.summary("right").failed), (1, 1));
    assert_eq!(run.acked::<Number>("feed"), [Number { n: 1 }]);
    let failed = run.failed::<Number>("feed");
    assert_eq!(
        (&failed[0].0, failed[0].1.reason, failed.len()),
        (&Number { n: 1313 }, Reason::Bolt, 1),
        "once, though two bolts failed it"
    );
    assert!(["left: unlucky", "right: unlucky"].contains(&failed[0].1.text.as_str()), "{failed:?}");
    panic_of(|| assert_eq!(run.acked::<Number>("feed").len(), 2));
    assert!(run.errors().iter().any(|line| line == "left: unlucky"), "{:?}", run.errors());
    panic_of(|| assert_eq!(run.output::<Number>("left"), numbers(2..4)));
}

#[test]
fn a_component_that_ends_the_run_is_named() {
    let topology = || TestTopology::new(wire).mock("feed", [Number { n: 1414 }]);
    let Err(text) = topology().try_run_to_end() else { panic!("it must not end well") };
    assert!(text.contains("ended the run: the end"), "{text}");
    assert!(panic_of(|| drop(topology().run_to_end())).contains("ended the run: the end"));
}

#[test]
fn a_spout_that_never_ends_is_given_up_with_a_remedy() {
    let text = panic_of(|| drop(TestTopology::new(wire).turns_max(1000).run_to_end()));
    assert!(text.contains("still busy after") && text.contains("mock it"), "{text}");
}

#[test]
fn a_test_that_names_what_is_not_there_is_told_what_is() {
    let run = TestTopology::new(wire).mock("feed", numbers(0..1)).run_to_end();
    let mock = |id: &'static str| panic_of(move || drop(TestTopology::new(wire).mock(id, numbers(0..1))));
    for (text, parts) in [
        (mock("fed"), &["no spout `fed`", "did you mean `feed`", "(spouts: `feed`)"][..]),
        (mock("left"), &["`left` is a bolt", "(spouts: `feed`)"]),
        (
            panic_of(|| drop(TestTopology::new(wire).mock("feed", [TextRef { text: "", parts: Vec::new(), maybe: None }]))),
            &["`feed` emits no stream `Text`", "`Number`", "`Odd`"],
        ),
        (panic_of(|| drop(run.output::<Number>("lift"))), &["no component `lift`", "did you mean `left`", "`right`"]),
        (panic_of(|| drop(run.output::<Odd>("left"))), &["`left` emits no stream `Odd`", "its streams: `Number`"]),
        (panic_of(|| TestTopology::new(wire).start().feed("feed", &Number { n: 1 })), &["`feed` is not mocked", ".mock(\"feed\""]),
        (panic_of(|| drop(TestTopology::new(|_| Err("no file".into())))), &["the topology function failed: no file"]),
        (panic_of(|| drop(TestTopology::new(|_| Ok(())))), &["no spout"]),
        (panic_of(|| drop(TestTopology::new(wire).loops(0))), &["0 loops"]),
        (panic_of(|| drop(TestTopology::new(wire).config("lane.ring.byte", 1))), &["lane.ring.bytes"]),
    ] {
        for part in parts {
            assert!(text.contains(part), "{text:?} lacks {part:?}");
        }
    }
}

/// Emits one number every ten milliseconds.
struct Paced {
    next_ns: u64,
    n: u64,
}
impl Emits<Number> for Paced {}
impl Spout for Paced {
    fn open(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        self.next_ns = cx.now_ns();
        Ok(())
    }
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        if self.n == 10 {
            return Ok(Done);
        }
        if cx.now_ns() < self.next_ns {
            return Ok(Idle);
        }
        cx.emit(&Number { n: self.n });
        self.n += 1;
        self.next_ns += 10_000_000;
        Ok(Busy)
    }
}

#[test]
fn a_running_topology_is_fed_idles_and_follows_the_virtual_clock() {
    let wire = |t: &mut Topology| {
        let paced = t.spout("paced", || Paced { next_ns: 0, n: 0 }).stream::<Number>();
        let fed = t.spout("fed", || Outside).stream::<Number>();
        t.bolt("add", || Add(100)).input(&paced, Shuffle).input(&fed, Shuffle).stream::<Number>();
        Ok(())
    };
    let mut run: TestRun = TestTopology::new(wire).mock("fed", Vec::<Number>::new()).start();
    run.run_until_idle();
    assert_eq!(run.drain::<Number>("add"), [Number { n: 100 }]);
    run.feed("fed", &Number { n: 5 });
    run.advance(Duration::from_millis(20));
    assert_eq!(run.drain::<Number>("paced"), numbers(0..3));
    assert_eq!(sorted(run.drain::<Number>("add")), [101, 102, 105].map(|n| Number { n }));
    let before = run.now_ns();
    run.run_to_end();
    assert_eq!(run.drain::<Number>("paced"), numbers(3..10));
    assert!(run.now_ns() - before < 80_000_000, "time passed only as far as the spout needed");
}

/// Three copies of each number.
struct Copy3;
impl Bolt for Copy3 {}
impl Emits<Number> for Copy3 {}
impl Handle<Number> for Copy3 {
    fn on(&mut self, t: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        (0..3).for_each(|_| cx.emit(&Number { n: t.n() }));
        Ok(())
    }
}

/// Frames a full lane refused stayed with a loop that had nothing else to do, until their trees timed out: 47 of the first 400 seeds.
#[test]
fn what_a_full_lane_refused_goes_when_there_is_room_though_its_loop_has_no_other_work() {
    seeds(0..40, |seed| {
        let wire = |t: &mut Topology| {
            let fed = t.spout("fed", || Outside).stream::<Number>();
            let copies = t.bolt("copy", || Copy3).input(&fed, Shuffle).stream::<Number>();
            t.bolt("last", || Add(0)).input(&copies, by!(Number.n)).executors(2).stream::<Number>();
            Ok(())
        };
        let test = TestTopology::new(wire).seed(seed).loops(2 + (seed % 2) as usize).config("topology.acker.executors", 1 + seed / 2 % 2);
        let mut run = test.mock("fed", numbers(2000..5000)).start();
        run.run_until_idle();
        assert_eq!((run.tracker("fed").acked(), run.output::<Number>("last").len()), (3000, 9000));
    });
}

/// A topology whose bolt never ends what it takes: trees stay open until their timeout.
fn open_ended(t: &mut Topology, anchors: Anchors) -> Result<()> {
    let fed = t.spout("fed", || Outside).stream::<Number>();
    let later = move || Later { anchors: anchors.clone(), ticks: 0, closed: false };
    t.bolt("later", later).input(&fed, Shuffle).executors(2).tick_ms(1_000).stream::<Number>();
    Ok(())
}

#[test]
fn trees_of_a_topology_wait_for_their_timeout_of_the_virtual_clock_and_hold_their_spout_back() {
    let anchors = Anchors::default();
    let wire = |t: &mut Topology| open_ended(t, anchors.clone());
    let test = TestTopology::new(wire).config("topology.message.timeout.secs", 5).config("topology.max.spout.pending", 3);
    let mut run = test.mock("fed", numbers(0..5)).loops(3).start();
    let tracker = run.tracker("fed");
    run.run_until_idle();
    assert_eq!((run.in_flight(), tracker.emitted(), tracker.in_flight(), run.now_ns()), (3, 3, 3, 1_000_000_000));
    run.advance(Duration::from_millis(4_900));
    assert_eq!((run.in_flight(), run.output::<Number>("later").len()), (3, 8), "two tasks, four ticks");
    anchors.lock().unwrap().remove(0).ack();
    run.run_until_idle();
    assert_eq!((tracker.acked(), tracker.emitted(), run.in_flight()), (1, 4, 3));
    run.advance(Duration::from_millis(2_600));
    assert_eq!((tracker.failed(), tracker.emitted(), run.in_flight()), (2, 5, 2));
    assert!(run.failed::<Number>("fed").iter().all(|(_, why)| why.reason == Reason::Timeout));
    anchors.lock().unwrap().drain(..).for_each(Anchor::ack);
    run.run_to_end();
    assert_eq!((tracker.acked(), tracker.failed(), tracker.in_flight(), run.in_flight()), (3, 2, 0, 0));
}

#[test]
fn a_panic_in_a_topology_fails_its_tree_and_the_task_begins_anew() {
    let made = Arc::new(Mutex::new(0));
    let wire = |t: &mut Topology| {
        let fed = t.spout("fed", || Outside).stream::<Number>();
        let made = made.clone();
        let make = move || {
            *made.lock().unwrap() += 1;
            Sort::default()
        };
        t.bolt("sort", make).input(&fed, Shuffle).stream::<Number>();
        Ok(())
    };
    let run = TestTopology::new(wire).mock("fed", numbers(98..100)).mock("fed", numbers(102..103)).run_to_end();
    assert_eq!(run.output::<Number>("sort"), [Number { n: 98 }, Number { n: 102 }]);
    let [(number, why)] = &run.failed::<Number>("fed")[..] else { panic!("one failed") };
    assert_eq!((number.n, why.to_string().as_str()), (99, "failed by a bolt: sort: panic: ninety-nine is too much"));
    assert_eq!((*made.lock().unwrap(), run.errors()), (2, &["sort: panic: ninety-nine is too much".to_owned()][..]));
}

#[test]
fn without_ackers_a_mocked_spout_is_acked_at_once() {
    let test = TestTopology::new(|t| open_ended(t, Anchors::default())).config("topology.acker.executors", 0);
    let mut run = test.mock("fed", numbers(0..5)).start();
    run.run_until_idle();
    assert_eq!((run.acked::<Number>("fed"), run.in_flight()), (numbers(0..5), 0));
}

fn fed(t: &mut Topology) -> (FeederSpout<Number>, CaptureBolt<Number>) {
    let (feed, seen) = (FeederSpout::new(), CaptureBolt::new());
    let numbers = feed.spout(t, "feed");
    let added = t.bolt("add", || Add(1)).input(&numbers, Shuffle).stream::<Number>();
    seen.bolt(t, "seen", &added);
    (feed, seen)
}

#[test]
fn several_topologies_run_in_one_local_cluster_and_each_ends_by_itself() {
    let cluster = LocalCluster::start();
    let (mut one, mut two) = (Topology::new(), Topology::new());
    let ((feed, seen), (other_feed, other_seen)) = (fed(&mut one), fed(&mut two));
    let first = cluster.submit("one", one).unwrap();
    let second = cluster.submit_with("two", two, &[("lane.ring.bytes", "4096")]).unwrap();
    for n in 0..100 {
        feed.send(&Number { n });
        other_feed.send(&Number { n: n + 1000 });
    }
    first.wait_until(LIMIT, |m| m.component("seen").executed == 100 && feed.tracker().acked() == 100).unwrap();
    assert_eq!((seen.drain(), feed.acked(), feed.tracker().in_flight()), (numbers(1..101), numbers(0..100), 0));
    second.wait_until(LIMIT, |_| other_seen.len() == 100).unwrap();
    assert_eq!(other_seen.tuples(), numbers(1001..1101));

    // Killed, a topology handles what it was sent; the other goes on.
    other_feed.send(&Number { n: 7 });
    second.wait_until(LIMIT, |_| other_feed.tracker().emitted() == 101).unwrap();
    let metrics = cluster.kill("two").unwrap();
    assert_eq!((metrics.component("seen").executed, metrics.component("add").failed), (101, 0));
    feed.send(&Number { n: 100 });
    feed.end();
    first.wait_until(LIMIT, |_| first.ended()).unwrap();
    assert_eq!(seen.tuples(), [Number { n: 101 }]);
    let Err(text) = cluster.kill("two") else { panic!("killed twice") };
    assert!(text.to_string().contains("no topology `two`") && text.to_string().contains("`one`"), "{text}");
}

#[test]
fn a_local_cluster_says_what_is_wrong() {
    let cluster = LocalCluster::start();
    let mut t = Topology::new();
    let (feed, _seen) = fed(&mut t);
    let one = cluster.submit("one", t).unwrap();
    assert_eq!(one.name(), "one");
    let mut again = Topology::new();
    fed(&mut again);
    let text = cluster.submit("one", again).map(drop).unwrap_err().to_string();
    assert!(text.contains("`one` runs already"), "{text}");
    assert!(cluster.submit("none", Topology::new()).is_err());

    let text = one.wait_until(Duration::ZERO, |m| m.component("add").executed == 1).unwrap_err().to_string();
    assert!(text.contains("not so within 0ns") && text.contains("executed: 0"), "{text}");
    feed.send(&Number { n: 1313 });
    let metrics =
        one.wait_until(LIMIT, |m| m.component("add").failed == 1 && !m.errors.is_empty() && feed.tracker().failed() == 1).unwrap();
    assert_eq!(feed.failed()[0].1.to_string(), "failed by a bolt: add: unlucky");
    assert_eq!(metrics.errors, ["add: unlucky"]);
    feed.send(&Number { n: 1414 });
    let text = one.wait_until(LIMIT, |_| false).unwrap_err().to_string();
    assert!(text.contains("component `add` ended it: the end"), "{text}");
    assert!(cluster.kill("one").unwrap_err().to_string().contains("the end"));
}

#[test]
fn spouts_that_are_off_emit_nothing() {
    let cluster = LocalCluster::start();
    let mut t = Topology::new();
    let (feed, seen) = fed(&mut t);
    let running = cluster.submit("one", t).unwrap();
    feed.send(&Number { n: 1 });
    running.wait_until(LIMIT, |_| seen.len() == 1).unwrap();
    running.deactivate().unwrap();
    feed.send(&Number { n: 2 });
    // Each time, every loop has taken turns in which it would have asked.
    for _ in 0..10 {
        running.deactivate().unwrap();
    }
    assert_eq!((feed.tracker().emitted(), seen.len()), (1, 1));
    running.activate();
    running.wait_until(LIMIT, |_| seen.len() == 2).unwrap();
}
