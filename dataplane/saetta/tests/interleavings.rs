//! Every tracked tuple is told one end, whatever the interleaving: inputs that fail before, while and after they emit, panics, joins,
//! deferred and dropped inputs, tuples longer than a lane, on one to four loops with up to three ackers.
//!
//! ```text
//!   feed --> fan --> last --> sink      fan is read by sink too, all tasks of it
//! ```
//! A seed chooses sizes, parallelism, bounds and the interleaving. No tree may wait for its timeout: what is left open was lost.

#![allow(missing_docs, reason = "tuples of a test")]

use saetta::prelude::*;
use saetta::testing::{TestTopology, seeds};
use std::time::Duration;

/// Seeds of the ordinary test run.
const SEEDS: u64 = 100;
/// Tuples a seed.
const TUPLES: u64 = 300;
/// Bytes a tuple carries beside its number: from nothing to more than a ring of 4 KiB.
const FILL_BYTES: [usize; 5] = [0, 10, 300, 2_000, 9_000];
/// Far longer than anything takes, far shorter than a timeout: ticks end what is deferred after 5 ms.
const ENOUGH: Duration = Duration::from_secs(2);

#[tuple]
pub struct Number {
    pub n: u64,
    pub fill: Vec<u8>,
}

/// Replaced in every run.
struct Feed;
impl Emits<Number> for Feed {}
impl Spout for Feed {
    fn next(&mut self, _: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        Ok(Done)
    }
}

/// Emits `copies`, and fails in every way there is.
struct Fan {
    copies: u64,
    fill_bytes: usize,
}
impl Bolt for Fan {}
impl Emits<Number> for Fan {}
impl Handle<Number> for Fan {
    fn on(&mut self, tuple: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        let (n, fill_bytes) = (tuple.n(), self.fill_bytes);
        let copies = (0..self.copies).map(move |i| Number { n: n * 8 + i, fill: vec![1; fill_bytes] });
        match n % 97 {
            5 => return Err("before it emits".into()),
            6 => {
                copies.for_each(|copy| cx.emit(&copy));
                return Err("after it emitted".into());
            }
            7 => {
                cx.emit_from(copies);
                return Err("while some are left to be pulled".into());
            }
            8 if n.is_multiple_of(2) => panic!("one of the panics this test wants"),
            9 => {
                cx.emit_untracked(&Number { n, fill: Vec::new() });
                cx.emit(&Number { n, fill: Vec::new() });
            }
            10..50 => cx.emit_from(copies),
            _ => copies.for_each(|copy| cx.emit(&copy)),
        }
        Ok(())
    }
}

/// Defers some until its next tick, drops some, joins some.
#[derive(Default)]
struct Last {
    held: Vec<Anchor<Last>>,
}
impl Bolt for Last {
    fn tick(&mut self, _: &mut Cx<'_, Self>) -> Outcome {
        self.held.drain(..).for_each(Anchor::ack);
        Ok(())
    }
}
impl Emits<Number> for Last {}
impl Handle<Number> for Last {
    fn on(&mut self, tuple: &ArchivedNumber, cx: &mut Cx<'_, Self>) -> Outcome {
        let handed_on = Number { n: tuple.n(), fill: Vec::new() };
        match tuple.n() % 61 {
            1 => self.held.push(cx.defer()?),
            2 => {
                self.held.push(cx.defer()?);
                if let [a, b, ..] = &self.held[..] {
                    cx.emit_with(&[a, b], &handed_on)?;
                }
            }
            3 => drop(cx.defer()?),
            _ => cx.emit(&handed_on),
        }
        Ok(())
    }
}

struct Sink;
impl Bolt for Sink {}
impl Handle<Number> for Sink {
    fn on(&mut self, _: &ArchivedNumber, _: &mut Cx<'_, Self>) -> Outcome {
        Ok(())
    }
}

fn wire(t: &mut Topology, seed: u64) -> Result<()> {
    let (copies, fill_bytes) = (1 + seed % 5, FILL_BYTES[(seed / 7) as usize % FILL_BYTES.len()]);
    let numbers = t.spout("feed", || Feed).executors(1 + (seed % 2) as u32).stream::<Number>();
    let fan = t.bolt("fan", move || Fan { copies, fill_bytes }).input(&numbers, Shuffle).tasks(3);
    let fanned = fan.executors(1 + (seed / 2 % 2) as u32).stream::<Number>();
    let last = t.bolt("last", Last::default).input(&fanned, by!(Number.n)).executors(2).tick_ms(5).stream::<Number>();
    let _ = t.bolt("sink", || Sink).input(&last, Shuffle).input(&fanned, All).executors(1 + (seed % 3) as u32);
    Ok(())
}

#[test]
fn every_tracked_tuple_is_told_one_end_and_none_waits_for_its_timeout() {
    seeds(0..SEEDS, |seed| {
        let mut test = TestTopology::new(|t| wire(t, seed))
            .mock("feed", (0..TUPLES).map(|n| Number { n, fill: Vec::new() }))
            .seed(seed)
            .loops(1 + (seed % 4) as usize)
            .config("topology.acker.executors", 1 + seed / 2 % 3)
            .config("worker.crash.window.max", 1_000);
        if !seed.is_multiple_of(3) {
            test = test.config("lane.ring.bytes", 4096).config("executor.inbox.bytes", 4096);
        }
        if seed.is_multiple_of(5) {
            test = test.config("topology.max.spout.pending", 7);
        }
        let mut run = test.start();
        run.advance(ENOUGH);
        // A second end of a message is a panic of the kit.
        let tracker = run.tracker("feed");
        assert_eq!((tracker.emitted(), tracker.acked() + tracker.failed(), run.in_flight()), (TUPLES, TUPLES, 0));
        assert!(tracker.acked() > TUPLES / 2 && tracker.failed() > 0, "both ends happen");
        run.run_to_end();
    });
}
