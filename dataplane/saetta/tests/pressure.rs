//! Back-pressure: whoever cannot go on waits, in bounded memory; whoever can goes on; nothing is lost or doubled.
//!
//! Loops are stepped over a clock moved by hand. A slow bolt is one whose loop has a turn now and then; one that is stuck in user code is one
//! whose loop has none. Un-acked and acked.

mod flow;

use flow::{Feed, Number, Rig, Seen, Told, With, assert_acked, assert_seen, sink, smallest};
use saetta::prelude::*;
use saetta_engine::Program;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Duty cycles after which a test counts as stuck.
const TURNS_MAX: u64 = 1_000_000;

type Ids = Arc<Mutex<Told>>;

/// What every test looks at: what was seen at the end of a path, and what its spout was told.
#[derive(Default)]
struct Path {
    seen: Seen,
    told: Ids,
}

impl Path {
    fn assert_whole(&self, n: u64, tracked: bool) {
        assert_seen(&self.seen, n, 1);
        assert_acked(&self.told, if tracked { n } else { 0 });
    }
}

fn both(test: impl Fn(bool)) {
    test(false);
    test(true);
}

/// `<name>` -> `<name>-sink`.
fn add_path(t: &mut Topology, name: &str, n: u64, tracked: bool, path: &Path) {
    let numbers = t.spout(name, Feed::of(n, tracked, &path.told)).stream::<Number>();
    let _ = t.bolt(&format!("{name}-sink"), sink(&path.seen)).input(&numbers, Shuffle);
}

#[test]
fn a_slow_bolt_slows_its_spout_and_nothing_is_lost() {
    const N: u64 = 3_000;
    both(|tracked| {
        let path = Path::default();
        let mut t = Topology::new();
        add_path(&mut t, "a", N, tracked, &path);
        let mut rig = Rig::new(&t.build().unwrap(), &smallest(&[]), 2, &|id, _| usize::from(id == "a-sink"));
        while !rig.stepped.ended() {
            for turn in 0..100 {
                rig.step(0);
                if turn == 0 {
                    rig.step(1);
                }
            }
        }
        path.assert_whole(N, tracked);
        rig.assert_bounded();
    });
}

/// Turns over which rates are compared.
const TURNS: u64 = 2_000;
/// Of its rate alone, what a path must keep that has nothing to do with what is blocked.
const KEPT: f64 = 0.9;
/// More than can be handled in `TURNS`.
const PLENTY: u64 = 10_000_000;

/// Tuples that path `free` handles in `TURNS` turns of all loops but those that are stuck.
fn rate(program: &Program, config: &saetta::Config, n_loops: usize, place: &dyn Fn(&str, usize) -> usize, stuck: Option<usize>) -> u64 {
    let mut rig = Rig::new(program, config, n_loops, place);
    for _ in 0..TURNS {
        rig.turn((0..n_loops).filter(|l| Some(*l) != stuck));
    }
    rig.assert_bounded();
    rig.executed("free-sink")
}

#[test]
fn a_bolt_stuck_in_user_code_holds_up_its_own_path_only() {
    both(|tracked| {
        let program = |stuck: u64| {
            let mut t = Topology::new();
            add_path(&mut t, "free", PLENTY, tracked, &Path::default());
            add_path(&mut t, "held", stuck, tracked, &Path::default());
            t.build().unwrap()
        };
        // Both spouts share loop 0; so do their lanes' watermarks and turns.
        let place = |id: &str, _: usize| match id {
            "free-sink" | "__acker" => 1,
            "held-sink" => 2,
            _ => 0,
        };
        let config = smallest(&[("topology.max.spout.pending", "256")]);
        let alone = rate(&program(0), &config, 3, &place, Some(2));
        let beside = rate(&program(PLENTY), &config, 3, &place, Some(2));
        assert!(alone > TURNS && beside as f64 >= KEPT * alone as f64, "tracked {tracked}: {beside} of {alone}");
    });
}

#[test]
fn a_bolt_that_comes_back_to_its_senses_has_lost_nothing() {
    const N: u64 = 3_000;
    both(|tracked| {
        let path = Path::default();
        let mut t = Topology::new();
        add_path(&mut t, "a", N, tracked, &path);
        let mut rig = Rig::new(&t.build().unwrap(), &smallest(&[]), 2, &|id, _| usize::from(id == "a-sink"));
        for round in 0..20 {
            (0..1_000).for_each(|_| rig.turn([0]));
            (0..20).for_each(|_| rig.turn([1]));
            assert!(rig.executed("a") < N || round > 1, "the spout waits");
        }
        rig.run_to_end(TURNS_MAX);
        path.assert_whole(N, tracked);
        rig.assert_bounded();
    });
}

/// A hub whose stream is read by a fast and by a slow bolt; beside it `free`, over the same loops and lanes as the fast one.
fn fan_out(n: u64, n_free: u64, tracked: bool, hub: &Path, slow: &Seen, free: &Path) -> Program {
    let mut t = Topology::new();
    let numbers = t.spout("hub", Feed::of(n, tracked, &hub.told)).stream::<Number>();
    let _ = t.bolt("fast", sink(&hub.seen)).input(&numbers, Shuffle);
    let _ = t.bolt("slow", sink(slow)).input(&numbers, Shuffle);
    add_path(&mut t, "free", n_free, tracked, free);
    t.build().unwrap()
}

fn fan_out_place(id: &str, _: usize) -> usize {
    match id {
        "hub" | "free" => 0,
        "slow" => 2,
        _ => 1,
    }
}

#[test]
fn a_fan_out_with_one_slow_target_goes_at_its_pace_and_others_at_theirs() {
    const N: u64 = 2_000;
    both(|tracked| {
        let [hub, free] = [Path::default(), Path::default()];
        let slow = Seen::default();
        let program = fan_out(N, N, tracked, &hub, &slow, &free);
        let mut rig = Rig::new(&program, &smallest(&[]), 3, &fan_out_place);
        while !rig.stepped.ended() {
            for turn in 0..50 {
                rig.turn((0..3).filter(|l| *l < 2 || turn == 0));
            }
        }
        hub.assert_whole(N, tracked);
        assert_seen(&slow, N, 1);
        free.assert_whole(N, tracked);
        rig.assert_bounded();

        let program = |n| fan_out(n, PLENTY, tracked, &Path::default(), &Seen::default(), &Path::default());
        let config = smallest(&[("topology.max.spout.pending", "256")]);
        let alone = rate(&program(0), &config, 3, &fan_out_place, Some(2));
        let beside = rate(&program(PLENTY), &config, 3, &fan_out_place, Some(2));
        assert!(alone > TURNS && beside as f64 >= KEPT * alone as f64, "tracked {tracked}: {beside} of {alone}");
    });
}

#[test]
fn an_executor_blocked_by_its_outputs_leaves_its_loop_to_the_others() {
    both(|tracked| {
        let program = |n: u64| {
            let mut t = Topology::new();
            add_path(&mut t, "free", PLENTY, tracked, &Path::default());
            let numbers = t.spout("a", Feed::of(n, tracked, &Ids::default())).stream::<Number>();
            let eight = || {
                With::new(|n, cx| {
                    (0..8).for_each(|i| cx.emit(&Number::of(n * 8 + i)));
                    Ok(())
                })
            };
            let many = t.bolt("many", eight).input(&numbers, Shuffle).stream::<Number>();
            let _ = t.bolt("stuck", sink(&Seen::default())).input(&many, Shuffle);
            t.build().unwrap()
        };
        // `many` runs on the loop of `free-sink`.
        let place = |id: &str, _: usize| match id {
            "free" | "a" => 0,
            "stuck" => 2,
            _ => 1,
        };
        let config = smallest(&[("topology.max.spout.pending", "256")]);
        let alone = rate(&program(0), &config, 3, &place, Some(2));
        let beside = rate(&program(PLENTY), &config, 3, &place, Some(2));
        assert!(alone > TURNS && beside as f64 >= KEPT * alone as f64, "tracked {tracked}: {beside} of {alone}");
    });
}

/// A set of numbers below its length; counts those that came twice.
#[derive(Clone)]
struct Bits {
    words: Arc<Vec<AtomicU64>>,
    twice: Arc<AtomicU64>,
}

impl Bits {
    fn new(n: u64) -> Self {
        Bits { words: Arc::new((0..n.div_ceil(64)).map(|_| AtomicU64::new(0)).collect()), twice: Arc::default() }
    }
    fn add(&self, n: u64) {
        let before = self.words[(n / 64) as usize].fetch_or(1 << (n % 64), Ordering::Relaxed);
        self.twice.fetch_add(before >> (n % 64) & 1, Ordering::Relaxed);
    }
    fn len(&self) -> u64 {
        self.words.iter().map(|w| u64::from(w.load(Ordering::Relaxed).count_ones())).sum()
    }
}

/// A spout of one tuple, a bolt that emits `n` of it as there is room, a bolt that passes them on and one that takes them, over two loops.
fn one_to_many(n: u64, by_iterator: bool, tracked: bool, told: &Ids, seen: &Bits) -> Program {
    let mut t = Topology::new();
    let one = t.spout("one", Feed::of(1, tracked, told)).stream::<Number>();
    let multiply = move || {
        With::new(move |_, cx| {
            if by_iterator {
                cx.emit_from((0..n).map(Number::of));
            } else {
                let mut at = 0;
                cx.emit_while(move |cx| {
                    if at < n {
                        cx.emit(&Number::of(at));
                        at += 1;
                    }
                    at < n
                });
            }
            Ok(())
        })
    };
    let many = t.bolt("multiply", multiply).input(&one, Shuffle).stream::<Number>();
    let pass = || {
        With::new(|n, cx| {
            cx.emit(&Number::of(n));
            Ok(())
        })
    };
    let passed = t.bolt("pass", pass).input(&many, Shuffle).stream::<Number>();
    let seen = seen.clone();
    let last = move || {
        let seen = seen.clone();
        With::new(move |n, _| {
            seen.add(n);
            Ok(())
        })
    };
    let _ = t.bolt("last", last).input(&passed, Shuffle);
    t.build().unwrap()
}

fn one_input_emits(n: u64, by_iterator: bool, tracked: bool) {
    let (told, seen) = (Ids::default(), Bits::new(n));
    let program = one_to_many(n, by_iterator, tracked, &told, &seen);
    let place = |id: &str, _: usize| usize::from(matches!(id, "multiply" | "last"));
    let config = smallest(&[("topology.message.timeout.secs", "86400")]);
    let mut rig = Rig::new(&program, &config, 2, &place);
    rig.run_to_end(n);
    assert_eq!((seen.len(), seen.twice.load(Ordering::Relaxed)), (n, 0));
    assert_acked(&told, u64::from(tracked));
    rig.assert_bounded();
    // Two rings with staging, three inboxes, one frame in an outbox.
    assert!(rig.waiting_max < 64 << 10, "{} bytes waited", rig.waiting_max);
}

#[test]
fn one_input_that_emits_very_many_runs_in_bounded_memory() {
    both(|tracked| [false, true].into_iter().for_each(|by_iterator| one_input_emits(200_000, by_iterator, tracked)));
}

#[test]
#[ignore = "ten million tuples, four times: run in release"]
fn one_input_that_emits_ten_million_runs_in_bounded_memory() {
    both(|tracked| [false, true].into_iter().for_each(|by_iterator| one_input_emits(10_000_000, by_iterator, tracked)));
}

/// `down` passes n on as n - 1 to `up`, which passes it back, until it is 0; both tell `seen`.
fn there_and_back(starts: u64, tracked: bool, told: &Ids, seen: &Seen) -> Program {
    let mut t = Topology::new();
    let numbers = t.spout("start", Feed::of(starts, tracked, told)).stream::<Number>();
    let ups = t.later::<Number>("up");
    let mut down = t.bolt("down", count_down(seen)).input(&numbers, Shuffle).input(&ups, Shuffle);
    let downs = down.stream::<Number>();
    let mut up = t.bolt("up", count_down(seen)).input(&downs, Shuffle);
    let _: flow::Numbers = up.stream();
    t.build().unwrap()
}

fn count_down(seen: &Seen) -> impl Fn() -> With + Send + Sync + 'static {
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
}

/// Each number below `n` counted down to 0: how often each was seen.
fn assert_counted_down(seen: &Seen, n: u64) {
    let mut times = vec![0; n as usize];
    seen.lock().unwrap().iter().for_each(|s| times[*s as usize] += 1);
    assert!(times.iter().zip(0..n).all(|(times, s)| *times == n - s), "{times:?}");
}

#[test]
fn tuples_go_round_a_cycle_of_two_loops_until_they_leave_it() {
    const N: u64 = 60;
    both(|tracked| {
        let (told, seen) = (Ids::default(), Seen::default());
        let program = there_and_back(N, tracked, &told, &seen);
        let mut rig = Rig::new(&program, &smallest(&[]), 2, &|id, _| usize::from(id == "up"));
        rig.run_to_end(TURNS_MAX);
        assert_counted_down(&seen, N);
        assert_acked(&told, if tracked { N } else { 0 });
        rig.assert_bounded();
    });
}

#[test]
fn tuples_go_round_a_self_loop_until_they_leave_it() {
    const N: u64 = 60;
    for (tracked, executors) in [(false, 1), (true, 1), (false, 2), (true, 3)] {
        let (told, seen) = (Ids::default(), Seen::default());
        let mut t = Topology::new();
        let numbers = t.spout("start", Feed::of(N, tracked, &told)).stream::<Number>();
        let selfs = t.later::<Number>("self");
        let mut again = t.bolt("self", count_down(&seen)).executors(executors).input(&numbers, Shuffle).input(&selfs, Shuffle);
        let _: flow::Numbers = again.stream();
        let mut rig = Rig::new(&t.build().unwrap(), &smallest(&[]), 2, &|id, i| if id == "self" { i } else { 1 });
        rig.run_to_end(TURNS_MAX);
        assert_counted_down(&seen, N);
        assert_acked(&told, if tracked { N } else { 0 });
        rig.assert_bounded();
    }
}

#[test]
fn acks_that_cannot_leave_stop_their_emitters_in_bounded_memory_and_none_is_lost() {
    const N: u64 = 20_000;
    // The acker's loop stands still; the spout's does; both do.
    for still in [vec![2], vec![0], vec![0, 2]] {
        let path = Path::default();
        let mut t = Topology::new();
        add_path(&mut t, "a", N, true, &path);
        let place = |id: &str, _: usize| match id {
            "a" => 0,
            "a-sink" => 1,
            _ => 2,
        };
        let config = smallest(&[("topology.message.timeout.secs", "86400"), ("topology.max.spout.pending", "100000")]);
        let mut rig = Rig::new(&t.build().unwrap(), &config, 3, &place);
        // Something is under way.
        (0..20).for_each(|_| rig.turn(0..3));
        let mut handled = 0;
        for _ in 0..5_000 {
            rig.turn((0..3).filter(|l| !still.contains(l)));
            handled = rig.executed("a-sink");
        }
        (0..10).for_each(|_| rig.turn((0..3).filter(|l| !still.contains(l))));
        assert_eq!(rig.executed("a-sink"), handled, "{still:?}: it has come to rest");
        assert!(handled < N && path.told.lock().unwrap().acked.len() < N as usize, "{still:?}: {handled}");
        rig.run_to_end(TURNS_MAX);
        path.assert_whole(N, true);
        rig.assert_bounded();
    }
}
