//! The ledger in a running engine, on threads: bolts that fail, panic, drop anchors and keep them past the timeout. Every tracked tuple is
//! acked or failed exactly once, and none is acked that the sink has not seen.
//!
//! The long run: `cargo test --release -p saetta --test ledger_run -- --ignored --nocapture`.

mod flow;

use flow::next;
use saetta::prelude::*;
use saetta::{Config, ConfigSource, RunOptions};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// An id and which of its copies this is.
#[tuple]
pub struct Item {
    id: u64,
    copy: u64,
}

/// Copies the middle bolt makes of each tuple.
const COPIES: u64 = 2;
/// Of a million inputs of a bolt, how many fail, and are dropped.
const FAILS: u64 = 1_000;
const DROPS: u64 = 1_000;
/// Inputs deferred and acked from another place later, and those kept past the timeout, all in all at most.
const LATER: u64 = 5_000;
const KEPT_MAX: u64 = 200;
/// Panics of one executor. Counted over a minute against `worker.crash.window.max`.
const PANICS_MAX: u64 = 100;
const TIMEOUT: Duration = Duration::from_secs(2);

const ACKED: u8 = 1;
const FAILED: u8 = 2;
/// The sink saw copy i: this, shifted by i.
const SEEN: u8 = 4;

/// What became of each id.
struct Book {
    states: Vec<AtomicU8>,
    told_twice: AtomicU64,
    reasons: Mutex<BTreeMap<String, u64>>,
    panics: AtomicU64,
    kept: AtomicU64,
}

impl Book {
    fn tell(&self, id: u64, what: u8) {
        let before = self.states[id as usize].fetch_or(what, Ordering::Relaxed);
        if before & (ACKED | FAILED) != 0 {
            self.told_twice.fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct Feed {
    next: u64,
    end: u64,
    book: Arc<Book>,
}
impl Emits<Item> for Feed {}
impl Spout for Feed {
    const TRACKED: bool = true;
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        if self.next >= self.end {
            return Ok(Done);
        }
        cx.emit_tracked(self.next, &Item { id: self.next, copy: 0 });
        self.next += 1;
        Ok(Busy)
    }
    fn ack(&mut self, id: u64) {
        self.book.tell(id, ACKED);
    }
    fn fail(&mut self, id: u64, why: &TreeFail) {
        self.book.tell(id, FAILED);
        let mut reasons = self.book.reasons.lock().unwrap();
        *reasons.entry(format!("{:?}", why.reason)).or_default() += 1;
    }
}

/// Handles its input, or does not.
struct Trouble {
    random: u64,
    book: Arc<Book>,
    copies: u64,
    /// Acked a little later, and dropped after the timeout.
    later: Vec<Anchor<Trouble>>,
    kept: Vec<(Instant, Anchor<Trouble>)>,
}

impl Trouble {
    fn of(book: &Arc<Book>, copies: u64) -> impl Fn() -> Self + Send + Sync + 'static {
        let (book, seeds) = (book.clone(), AtomicU64::new(1));
        move || Trouble {
            random: seeds.fetch_add(1, Ordering::Relaxed) << 8 | copies,
            book: book.clone(),
            copies,
            later: Vec::new(),
            kept: Vec::new(),
        }
    }

    fn end_later(&mut self) {
        self.later.drain(..).for_each(Anchor::ack);
        while self.kept.first().is_some_and(|(since, _)| since.elapsed() > 2 * TIMEOUT) {
            drop(self.kept.remove(0));
        }
    }
}

impl Emits<Item> for Trouble {}
impl Bolt for Trouble {
    fn tick(&mut self, _: &mut Cx<'_, Self>) -> Outcome {
        self.end_later();
        Ok(())
    }
}
impl Handle<Item> for Trouble {
    fn on(&mut self, tuple: &ArchivedItem, cx: &mut Cx<'_, Self>) -> Outcome {
        let draw = next(&mut self.random) % 1_000_000;
        let mut bound = 20;
        if draw < bound && self.book.panics.fetch_add(1, Ordering::Relaxed) < PANICS_MAX {
            // A panic that no hook prints.
            std::panic::resume_unwind(Box::new("now and then"));
        }
        let id = tuple.id();
        if self.copies == 0 {
            self.book.states[id as usize].fetch_or(SEEN << tuple.copy(), Ordering::Relaxed);
        }
        for copy in 0..self.copies {
            cx.emit(&Item { id, copy });
        }
        bound += FAILS;
        if draw < bound {
            return Err("one in a thousand".into());
        }
        bound += DROPS;
        if draw < bound {
            drop(cx.defer()?);
            return Ok(());
        }
        bound += LATER;
        if draw < bound {
            self.later.push(cx.defer()?);
            if self.later.len() == 100 {
                self.end_later();
            }
            return Ok(());
        }
        bound += 100;
        if draw < bound && self.book.kept.fetch_add(1, Ordering::Relaxed) < KEPT_MAX {
            self.kept.push((Instant::now(), cx.defer()?));
        }
        Ok(())
    }
}

fn run(n: u64, ackers: &str) {
    let book = Arc::new(Book {
        states: (0..n).map(|_| AtomicU8::new(0)).collect(),
        told_twice: AtomicU64::new(0),
        reasons: Mutex::default(),
        panics: AtomicU64::new(0),
        kept: AtomicU64::new(0),
    });
    let mut t = Topology::new();
    let fed = book.clone();
    let items = t.spout("feed", move || Feed { next: 0, end: n, book: fed.clone() }).stream::<Item>();
    let copies = t.bolt("copy", Trouble::of(&book, COPIES)).tick_ms(100).input(&items, Shuffle).stream::<Item>();
    let _ = t.bolt("sink", Trouble::of(&book, 0)).executors(2).tick_ms(100).input(&copies, by!(Item.id));
    let timeout = TIMEOUT.as_secs().to_string();
    for (key, value) in [
        ("topology.message.timeout.secs", timeout.as_str()),
        ("topology.acker.executors", ackers),
        ("worker.crash.window.max", "1000"),
        ("executor.panic.policy", "skip"),
    ] {
        let _ = t.config(key, value);
    }
    let program = t.build().unwrap();
    let config = Config::topology(&program.config, ConfigSource::Code).unwrap();
    let started = Instant::now();
    let summary = saetta::run(&program, &config, &RunOptions { quiet: true, ..RunOptions::default() }).unwrap();
    let seconds = started.elapsed().as_secs_f64();

    let (mut acked, mut failed, mut early) = (0, 0, 0);
    for state in &book.states {
        let state = state.load(Ordering::Relaxed);
        let seen = state / SEEN;
        match state & (ACKED | FAILED) {
            ACKED => {
                acked += 1;
                early += u64::from(seen != (1 << COPIES) - 1);
            }
            FAILED => failed += 1,
            _ => {}
        }
    }
    let reasons = book.reasons.lock().unwrap();
    eprintln!("{n} tracked tuples in {seconds:.1} s: {acked} acked, {failed} failed: {reasons:?}");
    assert_eq!((acked + failed, book.told_twice.load(Ordering::Relaxed)), (n, 0), "each told once");
    assert_eq!(early, 0, "acked and unseen");
    let count = |reason: &str| reasons.get(reason).copied().unwrap_or_default();
    assert!(["Bolt", "Dropped", "Timeout"].iter().all(|r| count(r) > 0), "all that was to go wrong did: {reasons:?}");
    assert!(book.panics.load(Ordering::Relaxed) > 0);
    assert_eq!(summary.discarded, 0);
}

#[test]
fn every_tracked_tuple_is_told_once_and_none_is_acked_unseen() {
    run(150_000, "1");
    run(150_000, "2");
}

#[test]
#[ignore = "ten million tuples: run in release"]
fn every_one_of_ten_million_tracked_tuples_is_told_once_and_none_is_acked_unseen() {
    run(10_000_000, "2");
}
