//! Trees: complete ones are acked, others fail with their reason, each exactly once.

use saetta::prelude::*;
use saetta::{RunOptions, Topology};
use saetta_model::config::{Config, Source};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A number.
#[tuple]
pub struct Number {
    /// The number.
    n: u64,
}

#[derive(Default)]
struct Told {
    acked: Vec<u64>,
    failed: Vec<(u64, TreeFail)>,
}
type Ledger = Arc<Mutex<Told>>;

/// What is still owed to the tree of each number.
type Owed = Arc<Vec<AtomicU32>>;

/// Emits the numbers below `end`, each with itself as message id. One may be acked only when nothing is owed to its tree, where that is known.
struct Feed {
    next: u64,
    end: u64,
    told: Ledger,
    owed: Owed,
}

impl Feed {
    fn of(end: u64, told: &Ledger) -> impl Fn() -> Self + Send + Sync + use<> {
        Feed::owing(end, told, &Owed::default())
    }

    fn owing(end: u64, told: &Ledger, owed: &Owed) -> impl Fn() -> Self + Send + Sync + use<> {
        let (told, owed) = (told.clone(), owed.clone());
        move || Feed { next: 0, end, told: told.clone(), owed: owed.clone() }
    }
}

impl Emits<Number> for Feed {}
impl Spout for Feed {
    const TRACKED: bool = true;
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        if self.next == self.end {
            return Ok(Done);
        }
        cx.emit_tracked(self.next, &Number { n: self.next });
        self.next += 1;
        Ok(Busy)
    }
    fn ack(&mut self, id: u64) {
        if let Some(owed) = self.owed.get(id as usize) {
            assert_eq!(owed.load(Ordering::SeqCst), 0, "{id} was acked before all of it was handled");
        }
        self.told.lock().unwrap().acked.push(id);
    }
    fn fail(&mut self, id: u64, why: &TreeFail) {
        self.told.lock().unwrap().failed.push((id, why.clone()));
    }
}

/// Emits each number `copies` times; fails multiples of `fails`.
struct Fan {
    copies: u64,
    fails: u64,
}
impl Bolt for Fan {}
impl Emits<Number> for Fan {}
impl Handle<Number> for Fan {
    fn on(&mut self, tuple: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        for _ in 0..self.copies {
            cx.emit(&Number { n: tuple.n() });
        }
        if self.fails > 0 && tuple.n().is_multiple_of(self.fails) { Err(format!("{} is one of them", tuple.n()).into()) } else { Ok(()) }
    }
}

/// Handles a number in the way its closure says.
struct Last(Handler);
type Handler = Box<dyn FnMut(u64, &mut Cx<'_, Last>) -> Outcome + Send>;
impl Last {
    fn new(handle: impl FnMut(u64, &mut Cx<'_, Last>) -> Outcome + Send + 'static) -> Self {
        Last(Box::new(handle))
    }
}
impl Bolt for Last {}
impl Handle<Number> for Last {
    fn on(&mut self, tuple: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        (self.0)(tuple.n(), cx)
    }
}

fn go(mut t: Topology, settings: &[(&str, &str)]) -> saetta::Summary {
    settings.iter().for_each(|(k, v)| {
        let _ = t.config(k, v);
    });
    let program = t.build().unwrap();
    let config = Config::topology(&program.config, Source::Code).unwrap();
    saetta::run(&program, &config, &RunOptions { quiet: true, ..RunOptions::default() }).unwrap()
}

/// Every id below `n` is told once: acked or failed.
fn once_each(told: &Ledger, n: u64) {
    let told = told.lock().unwrap();
    let mut all: Vec<u64> = told.acked.iter().copied().chain(told.failed.iter().map(|(id, _)| *id)).collect();
    all.sort_unstable();
    assert_eq!(all.len() as u64, n, "told as often as emitted");
    assert!(all.into_iter().eq(0..n), "each id once");
}

#[test]
fn complete_trees_are_acked_and_failed_ones_fail_with_the_component_and_its_words() {
    for ackers in ["1", "2"] {
        let told = Ledger::default();
        let mut t = Topology::new();
        let numbers = t.spout("feed", Feed::of(20_000, &told)).stream::<Number>();
        let copies = t.bolt("fan", || Fan { copies: 3, fails: 1000 }).input(&numbers, Shuffle).stream::<Number>();
        let _ = t.bolt("last", || Last::new(|_, _| Ok(()))).executors(2).input(&copies, by!(Number.n));
        let summary = go(t, &[("topology.acker.executors", ackers)]);
        once_each(&told, 20_000);
        let told = told.lock().unwrap();
        assert_eq!(told.failed.len(), 20);
        for (id, why) in &told.failed {
            assert_eq!((id % 1000, why.reason), (0, Reason::Bolt));
            assert_eq!(why.text, format!("fan: {id} is one of them"));
        }
        assert_eq!(summary.components["feed"].failed, 0);
        assert_eq!(summary.trees, saetta::Trees { acked: 19_980, failed: 20, dropped: 0, acks_lost: 0 });
    }
}

/// Passes a number on in as many ways as an input may end after it emitted one tuple or more.
struct Relay {
    owed: Owed,
    late: std::sync::mpsc::Sender<(u64, Anchor<Relay>)>,
}
impl Bolt for Relay {}
impl Emits<Number> for Relay {}
impl Handle<Number> for Relay {
    fn on(&mut self, tuple: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        let n = tuple.n();
        let owe = |tuples| self.owed[n as usize].store(tuples, Ordering::SeqCst);
        match n % 6 {
            0 => {
                owe(2);
                cx.emit(&Number { n });
                cx.emit(&Number { n });
            }
            1 => {
                owe(2);
                cx.emit(&Number { n });
                let anchor = cx.defer()?;
                self.late.send((n, anchor)).map_err(|e| e.to_string())?;
            }
            2 => {
                owe(1);
                cx.emit(&Number { n });
                cx.emit_untracked(&Number { n: u64::MAX });
            }
            3 => {
                owe(301);
                cx.emit(&Number { n });
                let mut left = 300;
                cx.emit_while(move |cx| {
                    cx.emit(&Number { n });
                    left -= 1;
                    left > 0
                });
            }
            4 => {
                owe(1);
                cx.emit_untracked(&Number { n: u64::MAX });
                cx.emit(&Number { n });
            }
            _ => {
                owe(1);
                cx.emit(&Number { n });
            }
        }
        Ok(())
    }
}

#[test]
fn no_tree_is_acked_before_all_of_it_is_handled_however_its_inputs_end() {
    const N: u64 = 6_000;
    for (core, inbox) in [(0, "64KiB"), (1, "64KiB"), (1, "4KiB")] {
        let (told, owed): (Ledger, Owed) = (Ledger::default(), Arc::new((0..N).map(|_| AtomicU32::new(u32::MAX)).collect()));
        let (late, anchors) = std::sync::mpsc::channel::<(u64, Anchor<Relay>)>();
        let pay = |owed: &Owed, n: u64| {
            if n != u64::MAX {
                owed[n as usize].fetch_sub(1, Ordering::SeqCst);
            }
        };
        let mut t = Topology::new();
        let numbers = t.spout("feed", Feed::owing(N, &told, &owed)).core(0).stream::<Number>();
        let relay = |owed: &Owed| {
            let (owed, late) = (owed.clone(), late.clone());
            move || Relay { owed: owed.clone(), late: late.clone() }
        };
        let passed = t.bolt("relay", relay(&owed)).core(core).input(&numbers, Shuffle).stream::<Number>();
        let last = {
            let owed = owed.clone();
            move || {
                let owed = owed.clone();
                Last::new(move |n, _| {
                    pay(&owed, n);
                    Ok(())
                })
            }
        };
        let _ = t.bolt("last", last).core(0).input(&passed, Shuffle);
        drop(late);
        let release = {
            let owed = owed.clone();
            std::thread::spawn(move || {
                for (n, anchor) in anchors {
                    // What was emitted from it is handled by now, as a rule: only the anchor keeps its tree open.
                    while owed[n as usize].load(Ordering::SeqCst) > 1 {
                        std::thread::yield_now();
                    }
                    pay(&owed, n);
                    anchor.ack();
                }
            })
        };
        let summary = go(t, &[("executor.inbox.bytes", inbox)]);
        release.join().unwrap();
        once_each(&told, N);
        assert_eq!(summary.trees.acked, N, "{:?}", told.lock().unwrap().failed.first());
    }
}

/// Joins ten numbers into one tuple, and ends them at once: each waits for it.
struct Gather {
    owed: Owed,
    held: Vec<Anchor<Gather>>,
}
impl Bolt for Gather {
    const JOINS: bool = true;
}
impl Emits<Number> for Gather {}
impl Handle<Number> for Gather {
    fn on(&mut self, tuple: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        self.owed[tuple.n() as usize].store(1, Ordering::SeqCst);
        self.held.push(cx.defer()?);
        if self.held.len() == 10 {
            cx.emit_with(&self.held.iter().collect::<Vec<_>>(), &Number { n: tuple.n() / 10 })?;
            self.held.drain(..).for_each(Anchor::ack);
        }
        Ok(())
    }
}

#[test]
fn a_join_of_more_trees_than_a_frame_has_room_for_stands_for_all_of_them() {
    const N: u64 = 5_000;
    for (core, ackers) in [(0, "1"), (1, "2"), (1, "0")] {
        let (told, owed): (Ledger, Owed) = (Ledger::default(), Arc::new((0..N).map(|_| AtomicU32::new(u32::MAX)).collect()));
        let mut t = Topology::new();
        let strict = ackers != "0";
        // Without ackers nothing is waited for.
        let known = if strict { owed.clone() } else { Owed::default() };
        let numbers = t.spout("feed", Feed::owing(N, &told, &known)).core(0).stream::<Number>();
        let of_gather = owed.clone();
        let gather = move || Gather { owed: of_gather.clone(), held: Vec::new() };
        let joined = t.bolt("gather", gather).core(core).input(&numbers, Shuffle).stream::<Number>();
        let last = move || {
            let owed = owed.clone();
            Last::new(move |group, _| {
                (group * 10..group * 10 + 10).for_each(|n| owed[n as usize].store(0, Ordering::SeqCst));
                if group % 5 == 0 { Err("not this group".into()) } else { Ok(()) }
            })
        };
        let _ = t.bolt("last", last).core(0).input(&joined, Shuffle);
        let summary = go(t, &[("topology.acker.executors", ackers)]);
        once_each(&told, N);
        let told = told.lock().unwrap();
        assert_eq!(told.failed.len() as u64, if strict { N / 5 } else { 0 });
        for (id, why) in &told.failed {
            assert_eq!((id / 10 % 5, why.reason, why.text.as_str()), (0, Reason::Bolt, "last: not this group"));
        }
        assert_eq!(summary.trees.acked, told.acked.len() as u64, "trees of joins are not the spout's");
    }
}

#[test]
fn a_join_wider_than_four_without_the_word_for_it_is_an_error_that_says_it() {
    let told = Ledger::default();
    let mut t = Topology::new();
    let numbers = t.spout("feed", Feed::of(5, &told)).stream::<Number>();
    struct Five(Vec<Anchor<Five>>);
    impl Bolt for Five {}
    impl Emits<Number> for Five {}
    impl Handle<Number> for Five {
        fn on(&mut self, tuple: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
            self.0.push(cx.defer()?);
            if self.0.len() < 5 {
                return Ok(());
            }
            let joined = cx.emit_with(&self.0.iter().collect::<Vec<_>>(), &Number { n: tuple.n() });
            let why = joined.expect_err("five trees").to_string();
            assert!(why.contains("const JOINS: bool = true"), "{why}");
            self.0.drain(..).for_each(Anchor::ack);
            Ok(())
        }
    }
    let five = t.bolt("five", || Five(Vec::new())).input(&numbers, Shuffle).stream::<Number>();
    let _ = t.bolt("last", || Last::new(|_, _| Ok(()))).input(&five, Shuffle);
    go(t, &[]);
    assert_eq!(told.lock().unwrap().acked.len(), 5);
}

#[test]
fn a_dropped_anchor_fails_its_tree_and_one_acked_from_another_thread_completes_it() {
    let told = Ledger::default();
    let mut t = Topology::new();
    let numbers = t.spout("feed", Feed::of(300, &told)).stream::<Number>();
    let last = || {
        Last::new(|n, cx| {
            let anchor = cx.defer()?;
            match n % 3 {
                0 => drop(anchor),
                1 => drop(std::thread::spawn(move || anchor.ack())),
                _ => anchor.fail("not today"),
            }
            Ok(())
        })
    };
    let _ = t.bolt("last", last).input(&numbers, Shuffle);
    go(t, &[]);
    once_each(&told, 300);
    let told = told.lock().unwrap();
    assert!(told.acked.iter().all(|id| id % 3 == 1));
    for (id, why) in &told.failed {
        let expected = if id % 3 == 0 { (Reason::Dropped, "last") } else { (Reason::Bolt, "last: not today") };
        assert_eq!((why.reason, why.text.as_str()), expected);
    }
}

#[test]
fn what_is_not_handled_in_time_times_out() {
    let told = Ledger::default();
    let mut t = Topology::new();
    let numbers = t.spout("feed", Feed::of(50, &told)).stream::<Number>();
    // Kept anchors: handled by nobody until the topology ends.
    let kept = Arc::new(Mutex::new(Vec::new()));
    let last = move || {
        let kept = kept.clone();
        Last::new(move |n, cx| {
            if n % 2 == 0 {
                let anchor = cx.defer()?;
                kept.lock().unwrap().push(Box::new(anchor) as Box<dyn std::any::Any + Send>);
                if n == 48 {
                    let all = std::mem::take(&mut *kept.lock().unwrap());
                    drop(std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(300));
                        drop(all);
                    }));
                }
            }
            Ok(())
        })
    };
    let _ = t.bolt("last", last).input(&numbers, Shuffle);
    go(t, &[("topology.message.timeout.secs", "0.05")]);
    once_each(&told, 50);
    let told = told.lock().unwrap();
    assert!(told.failed.iter().all(|(id, why)| id % 2 == 0 && why.reason == Reason::Timeout), "{:?}", told.failed);
    assert_eq!(told.acked.len(), 25);
}

#[test]
fn a_panic_fails_its_tree_with_the_text_and_the_task_begins_anew() {
    let told = Ledger::default();
    let mut t = Topology::new();
    let numbers = t.spout("feed", Feed::of(1000, &told)).stream::<Number>();
    let last = || Last::new(|n, _| if n == 500 { panic!("five hundred") } else { Ok(()) });
    let _ = t.bolt("last", last).input(&numbers, Shuffle);
    go(t, &[]);
    once_each(&told, 1000);
    let told = told.lock().unwrap();
    assert_eq!(told.failed, [(500, TreeFail { reason: Reason::Bolt, text: "last: panic: five hundred".into() })]);
}

#[test]
fn without_ackers_tracked_emits_are_acked_at_once_and_pending_trees_stay_bounded_with_them() {
    for settings in [[("topology.acker.executors", "0")], [("topology.max.spout.pending", "5")]] {
        let told = Ledger::default();
        let mut t = Topology::new();
        let numbers = t.spout("feed", Feed::of(1000, &told)).stream::<Number>();
        let _ = t.bolt("last", || Last::new(|_, _| Ok(()))).input(&numbers, Shuffle);
        go(t, &settings);
        once_each(&told, 1000);
        assert_eq!(told.lock().unwrap().acked.len(), 1000);
    }
}

/// Keeps what a bolt failed for good.
struct Keeper(Arc<Mutex<Vec<(String, u64)>>>);
impl Bolt for Keeper {}
impl Handle<saetta::DeadLetter> for Keeper {
    fn on(&mut self, letter: &saetta::ArchivedDeadLetter, _: &mut Cx<'_, Self>) -> Outcome {
        assert_eq!(letter.component(), "last");
        let n = u64::from_le_bytes(letter.archive().try_into().expect("the archive of a number"));
        self.0.lock().unwrap().push((letter.why().to_owned(), n));
        Ok(())
    }
}

#[test]
fn what_a_bolt_fails_for_good_goes_to_its_dead_letters_and_counts_as_handled() {
    let (told, kept) = (Ledger::default(), Arc::new(Mutex::new(Vec::new())));
    let mut t = Topology::new();
    let numbers = t.spout("feed", Feed::of(300, &told)).stream::<Number>();
    let last = || {
        Last::new(|n, _| match n {
            100 => panic!("one hundred"),
            200 => Err(Fail::Drop("two hundred".into())),
            250 => Err(Fail::Retry("later".into())),
            _ => Ok(()),
        })
    };
    let letters = t.bolt("last", last).input(&numbers, Shuffle).dead_letters();
    let keep = kept.clone();
    let _ = t.bolt("keeper", move || Keeper(keep.clone())).input(&letters, Shuffle);
    go(t, &[]);
    once_each(&told, 300);
    assert_eq!(*kept.lock().unwrap(), [("panic: one hundred".to_owned(), 100), ("two hundred".to_owned(), 200)]);
    let told = told.lock().unwrap();
    assert_eq!(told.failed, [(250, TreeFail { reason: Reason::Bolt, text: "last: later".into() })]);
}

#[test]
fn a_resource_is_made_once_by_whoever_asks_first_and_not_by_a_description() {
    let made = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = made.clone();
    let shared = saetta::Resource::new(move || count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 41);
    let told = Ledger::default();
    let mut t = Topology::new();
    let numbers = t.spout("feed", Feed::of(100, &told)).stream::<Number>();
    let resource = shared.clone();
    let last = move || {
        let resource = resource.clone();
        Last::new(move |_, _| if *resource.get() == 41 { Ok(()) } else { Err("another one".into()) })
    };
    let _ = t.bolt("last", last).executors(3).input(&numbers, Shuffle);
    assert_eq!(made.load(std::sync::atomic::Ordering::SeqCst), 0);
    go(t, &[]);
    assert_eq!(told.lock().unwrap().acked.len(), 100);
    assert_eq!(made.load(std::sync::atomic::Ordering::SeqCst), 1);
}
