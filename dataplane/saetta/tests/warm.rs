//! Warm calls go the way of tuples, and nothing comes of them.

use saetta::prelude::*;
use saetta::{RunOptions, Topology};
use saetta_model::config::{Config, Source};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A number.
#[tuple]
pub struct Number {
    /// The number.
    n: u64,
}

/// Tuples of the run; a warm one has another number.
const N: u64 = 100;
const WARM: u64 = u64::MAX;
/// Warm tuples that are waited for before the first real one.
const WARMED: u64 = 5;

#[derive(Default)]
struct Seen {
    /// Warm tuples that came to the bolt that asks for them.
    warm: AtomicU64,
    acked: AtomicU64,
    /// What came to the last bolt, and to the one beside.
    last: Mutex<Vec<u64>>,
    beside: Mutex<Vec<u64>>,
}

struct Feed<const TRACKS: bool>(u64, Arc<Seen>);
impl<const TRACKS: bool> Emits<Number> for Feed<TRACKS> {}
impl<const TRACKS: bool> Spout for Feed<TRACKS> {
    const TRACKED: bool = true;
    const WARM: bool = true;
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        let n = if cx.is_warming() { WARM } else { self.0 };
        if !cx.is_warming() {
            if self.1.warm.load(Ordering::SeqCst) < WARMED {
                return Ok(Idle);
            }
            if self.0 == N {
                return Ok(Done);
            }
            self.0 += 1;
        }
        if TRACKS {
            cx.emit_tracked(n, &Number { n });
        } else {
            cx.emit(&Number { n });
        }
        Ok(Busy)
    }
    fn ack(&mut self, id: u64) {
        assert!(id < N, "a warm call opens no tree");
        self.1.acked.fetch_add(1, Ordering::SeqCst);
    }
}

/// Asks for warm tuples, and passes everything on.
struct Relay(Arc<Seen>);
impl Emits<Number> for Relay {}
impl Bolt for Relay {
    const WARM: bool = true;
}
impl Handle<Number> for Relay {
    fn on(&mut self, tuple: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        assert_eq!(cx.is_warming(), tuple.n() == WARM);
        if cx.is_warming() {
            self.0.warm.fetch_add(1, Ordering::SeqCst);
            assert!(cx.defer().is_err(), "there is no input to defer");
        }
        cx.emit(&Number { n: tuple.n() });
        cx.emit_while(|_| false);
        Ok(())
    }
}

/// Does not ask for them.
struct Plain(Arc<Seen>, fn(&Seen) -> &Mutex<Vec<u64>>);
impl Bolt for Plain {}
impl Handle<Number> for Plain {
    fn on(&mut self, tuple: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        assert!(!cx.is_warming());
        (self.1)(&self.0).lock().unwrap().push(tuple.n());
        Ok(())
    }
}

fn go<const TRACKS: bool>() {
    for far in [0, 1] {
        let seen = Arc::new(Seen::default());
        let mut t = Topology::new();
        let of = |seen: &Arc<Seen>| seen.clone();
        let (feed, relay, last, beside) = (of(&seen), of(&seen), of(&seen), of(&seen));
        let numbers = t.spout("feed", move || Feed::<TRACKS>(0, feed.clone())).core(0).stream::<Number>();
        let passed = t.bolt("relay", move || Relay(relay.clone())).core(far).input(&numbers, by!(Number.n)).stream::<Number>();
        let _ = t.bolt("last", move || Plain(last.clone(), |seen| &seen.last)).executors(2).core(0).input(&passed, by!(Number.n));
        // Two receivers of one stream: a warm call does not go there, a tuple does.
        let _ = t.bolt("beside", move || Plain(beside.clone(), |seen| &seen.beside)).core(far).input(&passed, All);
        let _ = t.config("worker.wait", "spin");
        let program = t.build().unwrap();
        let config = Config::topology(&program.config, Source::Code).unwrap();
        let summary =
            saetta::run(&program, &config, &RunOptions { quiet: true, cores: (0..=far).collect(), ..RunOptions::default() }).unwrap();

        assert!(seen.warm.load(Ordering::SeqCst) >= WARMED);
        for tuples in [&seen.last, &seen.beside] {
            let mut tuples = std::mem::take(&mut *tuples.lock().unwrap());
            tuples.sort_unstable();
            assert!(tuples.into_iter().eq(0..N), "each tuple once, and nothing else");
        }
        for (component, executed, emitted) in [("feed", N, N), ("relay", N, N), ("last", N, 0), ("beside", N, 0)] {
            let c = &summary.components[component];
            assert_eq!((c.executed, c.emitted, c.failed), (executed, emitted, 0), "{component}");
        }
        assert_eq!(summary.trees.acked, if TRACKS { N } else { 0 });
        assert_eq!(seen.acked.load(Ordering::SeqCst), summary.trees.acked);
    }
}

#[test]
fn nothing_comes_of_warm_calls() {
    go::<false>();
}

#[test]
fn warm_calls_open_no_trees() {
    go::<true>();
}
