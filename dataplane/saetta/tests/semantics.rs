//! What user code may rely on in one worker: streams, groupings, instances per task, ends, panics, large tuples, keys.

#![allow(missing_docs, reason = "tuples of a test")]

use proptest::prelude::*;
use saetta::prelude::*;
use saetta::{Emit, KeyField, RunOptions, StreamType, Tuple, run};
use saetta_model::config::{Config, Owner};
use saetta_tuple::rkyv::rancor::Failure;
use saetta_tuple::{Encoder, KeyBytes, check};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

#[tuple]
#[derive(Debug, Clone, PartialEq)]
pub struct Quote {
    pub symbol: String,
    pub price: f64,
    pub size: u32,
    pub venue: Option<String>,
    pub raw: Vec<u8>,
    pub inner: Inner,
    pub flag: bool,
}

#[tuple]
#[derive(Debug, Clone, PartialEq)]
pub struct Inner {
    pub a: i64,
    pub b: Vec<String>,
}

stream!(pub Late: Quote);

#[tuple]
pub struct Number {
    pub n: u64,
}

fn quote(symbol: &str, size: u32) -> Quote {
    Quote { symbol: symbol.into(), price: 1.5, size, venue: None, raw: vec![1, 2], inner: Inner { a: -3, b: vec!["x".into()] }, flag: true }
}

/// Runs a topology on every core there is and gives the summary.
fn finish(t: Topology) -> Summary {
    let program = t.build().unwrap();
    run(&program, &Config::new(Owner::Topology), &RunOptions { quiet: true, ..RunOptions::default() }).unwrap()
}

struct Numbers(std::ops::Range<u64>);
impl Emits<Number> for Numbers {}
impl Spout for Numbers {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        match self.0.next() {
            Some(n) => cx.emit(&Number { n }),
            None => return Ok(Done),
        }
        Ok(Busy)
    }
}

/// Remembers what each task saw.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<u32, Vec<u64>>>>);
struct Recorder(Seen);
impl Bolt for Recorder {}
impl Handle<Number> for Recorder {
    fn on(&mut self, t: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        self.0.0.lock().unwrap().entry(cx.task()).or_default().push(t.n());
        Ok(())
    }
}

#[test]
fn groupings_spread_as_they_say() {
    const N: u64 = 3000;
    let (shuffled, keyed, all, global) = (Seen::default(), Seen::default(), Seen::default(), Seen::default());
    let mut t = Topology::new();
    let numbers = t.spout("numbers", || Numbers(0..N)).stream::<Number>();
    let _ = t
        .bolt("shuffle", {
            let s = shuffled.clone();
            move || Recorder(s.clone())
        })
        .input(&numbers, Shuffle)
        .executors(2)
        .tasks(3);
    let _ = t
        .bolt("keyed", {
            let s = keyed.clone();
            move || Recorder(s.clone())
        })
        .input(&numbers, by!(Number.n))
        .executors(3);
    let _ = t
        .bolt("all", {
            let s = all.clone();
            move || Recorder(s.clone())
        })
        .input(&numbers, All)
        .executors(2);
    let _ = t
        .bolt("global", {
            let s = global.clone();
            move || Recorder(s.clone())
        })
        .input(&numbers, Global)
        .executors(2);
    finish(t);

    let shuffled = shuffled.0.lock().unwrap();
    assert_eq!(shuffled.values().map(Vec::len).collect::<Vec<_>>(), [1000, 1000, 1000]);
    let keyed = keyed.0.lock().unwrap();
    assert_eq!(keyed.len(), 3);
    assert_eq!(keyed.values().flatten().collect::<BTreeSet<_>>().len() as u64, N);
    for tasks in [&shuffled, &keyed] {
        assert!(tasks.values().all(|seen| seen.is_sorted()), "order holds per emitter and target");
    }
    assert!(all.0.lock().unwrap().values().all(|seen| seen.iter().copied().eq(0..N)));
    assert_eq!(all.0.lock().unwrap().len(), 2);
    assert_eq!(global.0.lock().unwrap().len(), 1);
}

#[derive(Default)]
struct Router;
impl Bolt for Router {}
impl Emits<Quote> for Router {}
impl Emits<Late> for Router {}
impl Handle<Number> for Router {
    fn on(&mut self, t: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        let q = quote("S", t.n() as u32);
        if t.n().is_multiple_of(3) {
            cx.emit_on::<Late, _>(&q)
        } else {
            cx.emit(&q)
        }
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Both(Arc<(AtomicU32, AtomicU32)>);
impl Bolt for Both {}
impl Handle<Quote> for Both {
    fn on(&mut self, q: &ArchivedQuote, _: &mut Cx<'_, Self>) -> Outcome {
        assert!(!q.size().is_multiple_of(3) && q.symbol() == "S" && q.raw() == [1, 2] && q.flag() && q.inner().a() == -3);
        self.0.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
impl Handle<Late> for Both {
    fn on(&mut self, q: &ArchivedQuote, _: &mut Cx<'_, Self>) -> Outcome {
        assert!(q.size().is_multiple_of(3));
        self.0.1.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn two_streams_of_one_tuple_stay_apart_and_an_unread_stream_counts_as_handled() {
    let both = Both::default();
    let mut t = Topology::new();
    let numbers = t.spout("numbers", || Numbers(0..300)).stream::<Number>();
    let mut router = t.bolt("router", Router::default).input(&numbers, Shuffle);
    let (quotes, late) = (router.stream::<Quote>(), router.stream::<Late>());
    let b = both.clone();
    let _ = t.bolt("both", move || b.clone()).input(&quotes, by!(Quote.symbol, Quote.size)).input(&late, Shuffle);
    let _ = t.bolt("unread", Router::default).input(&numbers, Shuffle);
    let summary = finish(t);
    assert_eq!((both.0.0.load(Ordering::Relaxed), both.0.1.load(Ordering::Relaxed)), (200, 100));
    assert_eq!((summary.components["unread"].executed, summary.components["unread"].failed), (300, 0));
}

struct Fragile {
    seen: Seen,
}
impl Bolt for Fragile {}
impl Handle<Number> for Fragile {
    fn on(&mut self, t: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        match t.n() {
            10 => panic!("ten is too much"),
            20 => Err("twenty is not wanted".into()),
            n => {
                self.seen.0.lock().unwrap().entry(cx.task()).or_default().push(n);
                Ok(())
            }
        }
    }
}

#[test]
fn a_panic_fails_its_tuple_restarts_the_task_and_harms_no_other() {
    let (made, seen) = (Arc::new(AtomicU32::new(0)), Seen::default());
    let mut t = Topology::new();
    let numbers = t.spout("numbers", || Numbers(0..100)).stream::<Number>();
    let (m, s) = (made.clone(), seen.clone());
    let _ = t
        .bolt("fragile", move || {
            m.fetch_add(1, Ordering::Relaxed);
            Fragile { seen: s.clone() }
        })
        .input(&numbers, Shuffle);
    let summary = finish(t);
    assert_eq!(summary.components["fragile"].failed, 2);
    assert_eq!(made.load(Ordering::Relaxed), 2, "one instance and one after the panic");
    assert_eq!(seen.0.lock().unwrap().values().flatten().count(), 98);
    assert!(summary.errors.iter().any(|e| e.contains("ten is too much")), "{:?}", summary.errors);
}

struct Opened(Arc<Mutex<Vec<u32>>>);
impl Bolt for Opened {
    fn open(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        self.0.lock().unwrap().push(cx.task());
        Ok(())
    }
}
impl Handle<Number> for Opened {
    fn on(&mut self, _: &ArchivedNumber, _: &mut Cx<'_, Self>) -> Outcome {
        Ok(())
    }
}

#[test]
fn every_task_is_opened_once_whether_or_not_a_tuple_comes() {
    let opened = Arc::new(Mutex::new(Vec::new()));
    let mut t = Topology::new();
    let numbers = t.spout("numbers", || Numbers(0..1)).stream::<Number>();
    let o = opened.clone();
    let _ = t.bolt("x", move || Opened(o.clone())).input(&numbers, Shuffle).executors(2).tasks(3);
    finish(t);
    let mut tasks = opened.lock().unwrap().clone();
    tasks.sort_unstable();
    assert_eq!(tasks.len(), 3);
    tasks.dedup();
    assert_eq!(tasks.len(), 3);
}

/// Stands still once, for `STALL`, at its tenth call.
struct Stalls(u64);
const STALL: std::time::Duration = std::time::Duration::from_millis(60);
impl Emits<Number> for Stalls {}
impl Spout for Stalls {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        self.0 += 1;
        match self.0 {
            10 => std::thread::sleep(STALL),
            201 => return Ok(Done),
            _ => {}
        }
        cx.emit(&Number { n: self.0 });
        Ok(Busy)
    }
}

#[test]
fn under_a_rate_a_stall_shows_in_every_tuple_it_delayed() {
    let mut t = Topology::new();
    let numbers = t.spout("numbers", || Stalls(0)).stream::<Number>();
    let _ = t.bolt("x", || Recorder(Seen::default())).input(&numbers, Shuffle);
    let options = RunOptions { quiet: true, rate_per_sec: Some(1000), ..RunOptions::default() };
    let summary = run(&t.build().unwrap(), &Config::new(Owner::Topology), &options).unwrap();
    assert_eq!(summary.latency.samples, 200, "every paced tuple is stamped");
    // One call is due each millisecond: of those due during the stall, forty waited for 20 ms or more, however fast the machine.
    let late = summary.histogram_ns.count_between(19_000_000, u64::MAX);
    assert!(late >= 40, "{late} tuples were late by what the stall made them wait");
}

struct AlwaysPanics;
impl Bolt for AlwaysPanics {}
impl Handle<Number> for AlwaysPanics {
    fn on(&mut self, _: &ArchivedNumber, _: &mut Cx<'_, Self>) -> Outcome {
        panic!("never again")
    }
}

#[test]
fn too_many_panics_stop_the_run_with_the_key_named() {
    let mut t = Topology::new();
    let numbers = t.spout("numbers", || Numbers(0..1_000_000)).stream::<Number>();
    let _ = t.bolt("bad", || AlwaysPanics).input(&numbers, Shuffle);
    let program = t.build().unwrap();
    let error = run(&program, &Config::new(Owner::Topology), &RunOptions { quiet: true, ..RunOptions::default() }).unwrap_err();
    assert!(error.to_string().starts_with("bad: ") && error.to_string().contains("worker.crash.window.max"), "{error}");
}

#[derive(Default)]
struct Sum {
    sum: u64,
    n: u64,
}
impl Bolt for Sum {
    fn finish(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        cx.emit(&Number { n: self.sum });
        Ok(())
    }
}
impl Emits<Number> for Sum {}
impl Handle<Number> for Sum {
    fn on(&mut self, t: &ArchivedNumber, _: &mut Cx<'_, Self>) -> Outcome {
        self.sum += t.n();
        self.n += 1;
        Ok(())
    }
}

#[test]
fn finish_runs_upstream_first_and_what_it_emits_arrives() {
    let seen = Seen::default();
    let mut t = Topology::new();
    let numbers = t.spout("numbers", || Numbers(0..1000)).executors(2).stream::<Number>();
    let parts = t.bolt("parts", Sum::default).input(&numbers, Shuffle).executors(3).stream::<Number>();
    let total = t.bolt("total", Sum::default).input(&parts, Global).stream::<Number>();
    let s = seen.clone();
    let _ = t.bolt("seen", move || Recorder(s.clone())).input(&total, Shuffle);
    finish(t);
    assert_eq!(seen.0.lock().unwrap().values().flatten().copied().collect::<Vec<_>>(), [2 * 499_500]);
}

#[tuple]
pub struct Blob {
    pub bytes: Vec<u8>,
}
struct Blobs(Vec<usize>);
impl Emits<Blob> for Blobs {}
impl Spout for Blobs {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        let Some(n) = self.0.pop() else { return Ok(Done) };
        cx.emit(&BlobRef { bytes: &vec![n as u8; n] });
        Ok(Busy)
    }
}
struct Lengths(Seen);
impl Bolt for Lengths {}
impl Handle<Blob> for Lengths {
    fn on(&mut self, t: &ArchivedBlob, cx: &mut Cx<'_, Self>) -> Outcome {
        assert!(t.bytes().iter().all(|b| *b == t.bytes().len() as u8));
        self.0.0.lock().unwrap().entry(cx.task()).or_default().push(t.bytes().len() as u64);
        Ok(())
    }
}

#[test]
fn tuples_of_any_size_cross_loops_in_order_and_one_over_the_limit_fails_with_it_named() {
    let sizes = vec![1, 5 << 20, 100, 3 << 20, 16 << 10, 70_000, 0, 4_000_000, 9];
    let seen = Seen::default();
    let mut t = Topology::new();
    let s = sizes.clone();
    let blobs = t.spout("blobs", move || Blobs(s.clone())).core(0).stream::<Blob>();
    let s = seen.clone();
    let _ = t.bolt("lengths", move || Lengths(s.clone())).input(&blobs, Shuffle).core(1);
    let summary = finish(t);
    let want: Vec<u64> = sizes.iter().rev().filter(|n| **n < 4 << 20).map(|n| *n as u64).collect();
    assert_eq!(seen.0.lock().unwrap().values().next().unwrap(), &want);
    assert_eq!(summary.components["blobs"].failed, 1);
    assert!(summary.errors.iter().any(|e| e.contains("4194") && e.contains("split")), "{:?}", summary.errors);
}

#[test]
fn wiring_faults_are_told_all_at_once() {
    let mut t = Topology::new();
    let numbers = t.spout("a..b", || Numbers(0..1)).executors(0).stream::<Number>();
    let _ = t.bolt("x", || Recorder(Seen::default())).input(&numbers, Shuffle);
    t.config("topology.worker", 3);
    let Err(text) = t.build() else { panic!("must be refused") };
    for part in ["a..b", "0 executors", "topology.workers"] {
        assert!(text.contains(part), "{text}");
    }
}

fn archive<E: Emit>(value: &E) -> Vec<u8> {
    let mut out = Vec::new();
    Encoder::default().append(value, &mut out).unwrap();
    out
}

fn key(field: &dyn KeyField) -> Vec<u8> {
    let mut out = KeyBytes::default();
    field.key(&mut out);
    out.bytes().to_vec()
}

proptest! {
    /// Native, archived and borrowed values are one value: same archive bytes, same key bytes, and a check that passes only whole archives.
    #[test]
    fn an_archive_reads_back_hashes_alike_and_is_checked(symbol in ".{0,40}", price: f64, size: u32, venue in proptest::option::of(".{0,12}"), raw in prop::collection::vec(any::<u8>(), 0..50), a: i64, b in prop::collection::vec(".{0,9}", 0..4), flag: bool) {
        let q = Quote { symbol, price, size, venue, raw, inner: Inner { a, b }, flag };
        let bytes = archive(&q);
        let twin = archive(&QuoteRef { symbol: &q.symbol, price, size, venue: q.venue.clone(), raw: &q.raw, inner: q.inner.clone(), flag });
        prop_assert_eq!(&bytes, &twin);
        prop_assert!(check::<Quote>(&bytes));
        let archived = saetta_tuple::rkyv::access::<ArchivedQuote, Failure>(&bytes).unwrap();
        prop_assert_eq!(archived.symbol(), &q.symbol);
        prop_assert_eq!(archived.price().to_bits(), price.to_bits());
        prop_assert_eq!(key(&archived.symbol), key(&q.symbol));
        prop_assert_eq!(key(&archived.size), key(&q.size));
        prop_assert_eq!(key(&archived.venue), key(&q.venue));
        prop_assert_eq!(key(&archived.raw), key(&q.raw));
        prop_assert_eq!(key(&archived.flag), key(&q.flag));
        prop_assert_eq!(key(&archived.inner.a), key(&q.inner.a));
        // Cut archives either fail the check or are read without harm.
        for cut in 0..bytes.len() {
            check::<Quote>(&bytes[cut..]);
            check::<Quote>(&bytes[..cut]);
        }
    }

    #[test]
    fn mutated_archives_never_pass_the_check_with_a_bad_string(at in 0usize..500, byte: u8) {
        let mut bytes = archive(&quote("a longer symbol than fits inline", 7));
        let at = at % bytes.len();
        bytes[at] = byte;
        if check::<Quote>(&bytes) {
            let q = saetta_tuple::rkyv::access::<ArchivedQuote, Failure>(&bytes).unwrap();
            prop_assert!(std::str::from_utf8(q.symbol().as_bytes()).is_ok());
        }
    }
}

#[test]
fn schema_ids_tell_layouts_apart() {
    assert_eq!(<Late as StreamType>::NAME, "Late");
    assert_eq!(
        Quote::schema().text(),
        "Quote{symbol:String,price:f64,size:u32,venue:Option<String>,raw:Vec<u8>,inner:Inner{a:i64,b:Vec<String>},flag:bool}"
    );
    assert_ne!(Quote::schema().id(), Inner::schema().id());
}
