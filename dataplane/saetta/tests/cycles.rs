//! Cycles that fill up: what waits in them fails, so that the rest goes on; it is counted and reported with the ring. Nothing else fails.
//!
//! Loops are stepped over a clock moved by hand.

mod flow;

use flow::{Feed, Number, Rig, Seen, Told, With, assert_acked, assert_seen, next, sink, smallest};
use saetta::prelude::*;
use saetta_engine::Program;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Turns after which a test counts as stuck.
const TURNS_MAX: u64 = 1_000_000;
/// Time passes faster when no loop finds work.
const IDLE_STEP: Duration = Duration::from_millis(100);

/// A number is an id and how often it is still to be doubled.
const LEVELS: u64 = 16;

/// Emits two of each number with one level less, until there is none.
fn double(seen: &Seen, pulled: bool) -> impl Fn() -> With + Send + Sync + 'static {
    let seen = seen.clone();
    move || {
        let seen = seen.clone();
        With::new(move |n, cx| {
            seen.lock().unwrap().push(n / LEVELS);
            let times = if n % LEVELS > 0 { 2 } else { 0 };
            if pulled {
                cx.emit_from((0..times).map(move |_| Number::of(n - 1)));
            } else {
                (0..times).for_each(|_| cx.emit(&Number::of(n - 1)));
            }
            Ok(())
        })
    }
}

/// Emits `LEVELS * id + levels` for each id below `end`.
struct Start {
    feed: Feed,
    levels: u64,
}
impl Emits<Number> for Start {}
impl Spout for Start {
    const TRACKED: bool = true;
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        let id = self.feed.next;
        if id == self.feed.end {
            return Ok(Done);
        }
        let tuple = Number::of(LEVELS * id + self.levels);
        if self.feed.tracked {
            cx.emit_tracked(id, &tuple)
        } else {
            cx.emit(&tuple)
        }
        self.feed.next += 1;
        Ok(Busy)
    }
    fn ack(&mut self, id: u64) {
        self.feed.ack(id);
    }
    fn fail(&mut self, id: u64, why: &TreeFail) {
        self.feed.fail(id, why);
    }
}

/// One round of all loops; time passes when none found work.
fn round(rig: &mut Rig) {
    let work: usize = (0..rig.stepped.n_loops()).map(|l| rig.step(l)).sum();
    if work == 0 {
        rig.clock.advance(IDLE_STEP);
    }
}

fn given_up(rig: &Rig) -> u64 {
    rig.stepped.shared().loops.iter().map(|l| l.given_up.load(Ordering::Relaxed)).sum()
}

/// Runs until spout `start` has ended and nothing waits.
fn run_dry(rig: &mut Rig) {
    let start_ended = |rig: &Rig| {
        let executors = rig.stepped.shared().executors();
        executors.iter().filter(|e| e.component.as_str() == "start").all(|e| e.ended.load(Ordering::Relaxed))
    };
    for turns in 0.. {
        if start_ended(rig) && rig.waiting() == 0 {
            return;
        }
        round(rig);
        assert!(turns < TURNS_MAX, "{} bytes still wait", rig.waiting());
    }
}

/// What a run of `ids` trees that double `levels` times must have come to: every id told once, acked only when each of its tuples was
/// handled, failed only by the cycle.
fn assert_told(told: &Mutex<Told>, seen: &Seen, ids: u64, levels: u64, ring: &[&str]) {
    let told = told.lock().unwrap();
    let mut handled: BTreeMap<u64, u64> = BTreeMap::new();
    seen.lock().unwrap().iter().for_each(|id| *handled.entry(*id).or_default() += 1);
    let mut all: Vec<u64> = told.acked.iter().copied().chain(told.failed.iter().map(|(id, _)| *id)).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..ids), "each told once");
    for id in &told.acked {
        assert_eq!(handled[id], (2 << levels) - 1, "tuples of {id}");
    }
    assert!(!told.failed.is_empty());
    for (id, why) in &told.failed {
        assert!(why.reason == Reason::Cycle && ring.contains(&why.text.as_str()), "{id}: {why}");
    }
}

const IDS: u64 = 40;
const DOUBLINGS: u64 = 7;

fn two_component_cycle(tracked: bool, pulled: bool, told: &Arc<Mutex<Told>>, seen: &Seen, free: &Seen) -> Program {
    let mut t = Topology::new();
    let feed = Feed::of(IDS, tracked, told);
    let numbers = t.spout("start", move || Start { feed: feed(), levels: DOUBLINGS }).stream::<Number>();
    let ups = t.later::<Number>("up");
    let mut down = t.bolt("down", double(seen, pulled)).input(&numbers, Shuffle).input(&ups, Shuffle);
    let downs = down.stream::<Number>();
    let mut up = t.bolt("up", double(seen, pulled)).input(&downs, Shuffle);
    let _: flow::Numbers = up.stream();
    let rest = t.spout("free", Feed::of(2_000, false, &Arc::default())).stream::<Number>();
    let _ = t.bolt("free-sink", sink(free)).input(&rest, Shuffle);
    t.build().unwrap()
}

#[test]
fn a_cycle_that_multiplies_over_two_loops_is_relieved_and_reported_and_the_rest_goes_on() {
    for (tracked, pulled) in [(false, false), (true, false), (false, true), (true, true)] {
        let told = Arc::default();
        let [seen, free] = [Seen::default(), Seen::default()];
        let program = two_component_cycle(tracked, pulled, &told, &seen, &free);
        let place = |id: &str, _: usize| usize::from(matches!(id, "up" | "free-sink"));
        let config = smallest(&[("topology.message.timeout.secs", "86400")]);
        let mut rig = Rig::new(&program, &config, 2, &place);
        while free.lock().unwrap().len() < 2_000 {
            rig.turn(0..2);
        }
        assert_eq!(given_up(&rig), 0, "the rest went on before anything failed");
        run_dry(&mut rig);
        assert_seen(&free, 2_000, 1);
        assert!(given_up(&rig) > 0);
        let errors = rig.errors();
        assert!(errors.iter().any(|e| e.starts_with("up: the cycle up -> down -> up is full: ")), "{errors:?}");
        if tracked {
            assert_told(&told, &seen, IDS, DOUBLINGS, &["up -> down -> up"]);
        }
        rig.assert_bounded();
    }
}

#[test]
fn a_self_loop_that_multiplies_is_relieved_on_one_loop_and_on_several() {
    for executors in [1, 2] {
        let told = Arc::default();
        let seen = Seen::default();
        let mut t = Topology::new();
        let feed = Feed::of(IDS, true, &told);
        let numbers = t.spout("start", move || Start { feed: feed(), levels: DOUBLINGS }).stream::<Number>();
        let selfs = t.later::<Number>("self");
        let mut again = t.bolt("self", double(&seen, false)).executors(executors).input(&numbers, Shuffle).input(&selfs, Shuffle);
        let _: flow::Numbers = again.stream();
        let config = smallest(&[("topology.message.timeout.secs", "86400")]);
        let mut rig = Rig::new(&t.build().unwrap(), &config, 2, &|id, i| if id == "self" { i } else { 1 });
        run_dry(&mut rig);
        assert!(given_up(&rig) > 0);
        assert_told(&told, &seen, IDS, DOUBLINGS, &["self -> self", "self -> self -> self"]);
        rig.assert_bounded();
    }
}

/// S@0 -> X@1 -> Y@0 -> Z@1 -> last@2, where X and Y emit four per input.
fn chain(n: u64, told: &Arc<Mutex<Told>>, seen: &Seen) -> Program {
    let mut t = Topology::new();
    let four = || {
        With::new(|n, cx| {
            (0..4).for_each(|i| cx.emit(&Number::of(n * 4 + i)));
            Ok(())
        })
    };
    let s = t.spout("s", Feed::of(n, true, told)).stream::<Number>();
    let x = t.bolt("x", four).input(&s, Shuffle).stream::<Number>();
    let y = t.bolt("y", four).input(&x, Shuffle).stream::<Number>();
    let _ = t.bolt("z", sink(seen)).input(&y, Shuffle);
    t.build().unwrap()
}

#[test]
fn a_chain_that_is_blocked_for_long_is_left_alone() {
    const N: u64 = 100;
    let (told, seen) = (Arc::default(), Seen::default());
    let program = chain(N, &told, &seen);
    let place = |id: &str, _: usize| match id {
        "z" => 2,
        "x" => 1,
        _ => 0,
    };
    let config = smallest(&[("topology.message.timeout.secs", "86400")]);
    let mut rig = Rig::new(&program, &config, 3, &place);
    // The last bolt is stuck for a minute.
    for _ in 0..10_000 {
        rig.turn(0..2);
        rig.clock.advance(Duration::from_millis(6));
    }
    assert!(rig.waiting() > 4096, "the chain is full");
    rig.run_to_end(TURNS_MAX);
    assert_eq!((given_up(&rig), rig.errors()), (0, vec![]));
    assert_seen(&seen, N * 16, 1);
    assert_acked(&told, N);
}

#[test]
fn a_cycle_that_goes_on_however_slowly_is_left_alone() {
    const N: u64 = 40;
    for seed in 0..20 {
        let (told, seen) = (Arc::default(), Seen::default());
        let mut t = Topology::new();
        let back = |seen: &Seen| {
            let seen = seen.clone();
            move || {
                let seen = seen.clone();
                With::new(move |n, cx| {
                    seen.lock().unwrap().push(n);
                    if n > 0 {
                        cx.emit(&Number::of(n - 1));
                    }
                    Ok(())
                })
            }
        };
        let numbers = t.spout("start", Feed::of(N, true, &told)).stream::<Number>();
        let ups = t.later::<Number>("up");
        let mut down = t.bolt("down", back(&seen)).input(&numbers, Shuffle).input(&ups, Shuffle);
        let downs = down.stream::<Number>();
        let mut up = t.bolt("up", back(&seen)).input(&downs, Shuffle);
        let _: flow::Numbers = up.stream();
        let config = smallest(&[("topology.message.timeout.secs", "86400")]);
        let mut rig = Rig::new(&t.build().unwrap(), &config, 2, &|id, _| usize::from(id == "up"));
        let mut random = seed;
        while told.lock().unwrap().acked.len() < N as usize {
            let draw = next(&mut random);
            rig.step((draw & 1) as usize);
            rig.clock.advance(Duration::from_millis(draw >> 8 & 511));
        }
        assert_eq!((given_up(&rig), rig.errors()), (0, vec![]), "seed {seed}");
        assert_acked(&told, N);
        assert_eq!(seen.lock().unwrap().len() as u64, N * (N + 1) / 2);
    }
}

/// Passes numbers on, one less, until they are 0; says when it finishes how many it saw.
struct Down {
    seen: u64,
    finished: Arc<Mutex<Vec<u64>>>,
}
impl Bolt for Down {
    fn finish(&mut self, _: &mut Cx<'_, Self>) -> Outcome {
        self.finished.lock().unwrap().push(self.seen);
        Ok(())
    }
}
impl Emits<Number> for Down {}
impl Handle<Number> for Down {
    fn on(&mut self, tuple: &flow::ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        self.seen += 1;
        if tuple.n() > 0 {
            cx.emit(&Number::of(tuple.n() - 1));
        }
        Ok(())
    }
}

#[test]
fn what_has_cycles_ends_when_it_is_drained_and_what_is_behind_them_ends_after_them() {
    const N: u64 = 40;
    let (finished, after) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let down = |finished: &Arc<Mutex<Vec<u64>>>| {
        let finished = finished.clone();
        move || Down { seen: 0, finished: finished.clone() }
    };
    let mut t = Topology::new();
    let numbers = t.spout("start", Feed::of(N, true, &Arc::default())).stream::<Number>();
    let ups = t.later::<Number>("up");
    let mut a = t.bolt("down", down(&finished)).input(&numbers, Shuffle).input(&ups, Shuffle);
    let downs = a.stream::<Number>();
    let mut b = t.bolt("up", down(&finished)).executors(2).input(&downs, by!(Number.n));
    let ups = b.stream::<Number>();
    // A cycle behind the cycle, of one component with several executors.
    let selfs = t.later::<Number>("self");
    let mut c = t.bolt("self", down(&finished)).executors(3).tasks(4).input(&ups, Shuffle).input(&selfs, Shuffle);
    let selfs = c.stream::<Number>();
    let _ = t.bolt("last", down(&after)).input(&selfs, Shuffle);
    let program = t.build().unwrap();
    let config = saetta::Config::topology(&program.config, saetta::ConfigSource::Code).unwrap();
    let summary = saetta::run(&program, &config, &saetta::RunOptions { quiet: true, ..Default::default() }).unwrap();
    assert_eq!(summary.errors, Vec::<String>::new());

    // By number: how often it enters, and then passes, each cycle.
    let first = |n: u64| N - n;
    let emitted_by_up: Vec<u64> = (0..N).map(|n| ups_of(n, N)).collect();
    let passed: Vec<u64> = (0..N).map(|n| (n..N).map(|m| emitted_by_up[m as usize]).sum()).collect();
    let finished = finished.lock().unwrap();
    assert_eq!(finished.len(), 1 + 2 + 4, "each task once");
    assert_eq!(finished.iter().sum::<u64>(), (0..N).map(first).sum::<u64>() + passed.iter().sum::<u64>());
    assert_eq!(*after.lock().unwrap(), [passed[1..].iter().sum::<u64>()], "all that the last cycle emitted came before its end");
}

/// How many times `up` emits `n`, of the numbers below `end` that `down` begins with: `down` gets m, m - 2, .. and `up` the others.
fn ups_of(n: u64, end: u64) -> u64 {
    (n + 1..end).filter(|start| (*start - n).is_multiple_of(2)).count() as u64
}
