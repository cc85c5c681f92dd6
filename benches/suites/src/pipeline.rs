//! `pipeline`: tuples a second from a spout to a bolt that only reads, over a core boundary, beside a bare ring (64 B, batch 64, capacity 1024).
//!
//! Before: a spout that always has something. After: the last bolt has seen every number once and in order; the rate is taken there, between
//! the end of the warm-up and the last tuple.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use saetta::prelude::*;
use saetta_floors as floors;
use saetta_floors::on_record;
use saetta_harness::suite::{Figures, SuiteRun};
use saetta_harness::{Better, RowSpec};

use crate::topologies::{FILL_BYTES, TEXT, core, run};

/// 64 bytes: a number, and as much as fills a cache line.
#[tuple]
pub struct Wide {
    /// Place in the stream.
    pub number: u64,
    /// Nothing.
    pub fill: [u8; FILL_BYTES],
}

/// A small tuple with text.
#[tuple]
pub struct Small {
    /// Place in the stream.
    pub number: u64,
    /// [`TEXT`].
    pub text: String,
}

/// Emits the numbers from 0 to `end`, each in a tuple of stream `S`.
struct Numbers<S> {
    next: u64,
    end: u64,
    of: std::marker::PhantomData<fn(S)>,
}

impl<S> Numbers<S> {
    fn up_to(end: u64) -> impl Fn() -> Self + Send + Sync + 'static
    where
        S: 'static,
    {
        move || Numbers { next: 0, end, of: std::marker::PhantomData }
    }

    fn number(&mut self) -> Option<u64> {
        let number = self.next;
        self.next += 1;
        (number < self.end).then_some(number)
    }
}

impl Emits<Wide> for Numbers<Wide> {}
impl Emits<Small> for Numbers<Small> {}

impl Spout for Numbers<Wide> {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        let Some(number) = self.number() else { return Ok(Done) };
        cx.emit(&Wide { number, fill: [7; FILL_BYTES] });
        Ok(Busy)
    }
}

impl Spout for Numbers<Small> {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        let Some(number) = self.number() else { return Ok(Done) };
        cx.emit(&SmallRef { number, text: TEXT });
        Ok(Busy)
    }
}

/// Emits a new tuple like the one it got.
struct Identity;

impl Bolt for Identity {}
impl Emits<Small> for Identity {}

impl Handle<Small> for Identity {
    fn on(&mut self, tuple: &ArchivedSmall, cx: &mut Cx<'_, Self>) -> Outcome {
        cx.emit(&SmallRef { number: tuple.number(), text: tuple.text() });
        Ok(())
    }
}

/// What a [`Null`] leaves when it ends.
type Took = Arc<Mutex<Option<Duration>>>;

/// Reads every tuple and does nothing with it. Fails one that is out of its place in the stream.
struct Null {
    warm_up: u64,
    end: u64,
    next: u64,
    sum: u64,
    start: Option<Instant>,
    took: Took,
}

impl Null {
    fn of(warm_up: u64, end: u64, took: Took) -> impl Fn() -> Self + Send + Sync + 'static {
        move || Null { warm_up, end, next: 0, sum: 0, start: None, took: took.clone() }
    }

    #[inline(always)]
    fn see(&mut self, number: u64, bytes: &[u8]) -> Outcome {
        if number != self.next {
            return Err(Fail::Fatal(format!("tuple {number} where {} was due", self.next)));
        }
        self.next += 1;
        // Every byte is read, as the floor reads every word.
        self.sum =
            bytes.chunks(8).fold(self.sum, |sum, word| word.first_chunk().map_or(sum, |word| sum.wrapping_add(u64::from_le_bytes(*word))));
        if self.next == self.warm_up || self.next == self.end {
            self.stamp()?;
        }
        Ok(())
    }

    #[cold]
    fn stamp(&mut self) -> Outcome {
        match self.start {
            None => self.start = Some(Instant::now()),
            Some(start) => *self.took.lock().map_err(|_| "another bolt panicked")? = Some(start.elapsed()),
        }
        std::hint::black_box(self.sum);
        Ok(())
    }
}

impl Bolt for Null {}

impl Handle<Wide> for Null {
    #[inline]
    fn on(&mut self, tuple: &ArchivedWide, _: &mut Cx<'_, Self>) -> Outcome {
        self.see(tuple.number(), tuple.fill())
    }
}

impl Handle<Small> for Null {
    #[inline]
    fn on(&mut self, tuple: &ArchivedSmall, _: &mut Cx<'_, Self>) -> Outcome {
        self.see(tuple.number(), tuple.text().as_bytes())
    }
}

/// A shape of topology. All of them hold a spout `numbers` and a last bolt `null`.
#[derive(Clone, Copy)]
enum Shape {
    /// [`Wide`], spout to null.
    Wide,
    /// [`Small`], spout to null.
    Small,
    /// [`Small`], spout to identity on the other core, to null beside it: the two serialisations on two cores.
    Identity,
}

/// Million tuples a second.
fn rate(shape: Shape, (near, far): (usize, usize), tuples: u64) -> saetta_harness::Result<f64> {
    let warm_up = tuples / 10;
    let end = warm_up + tuples;
    let took = Took::default();
    let null = Null::of(warm_up, end, took.clone());
    let mut t = Topology::new();
    let mut pinned = vec![("numbers", near), ("null", far)];
    match shape {
        Shape::Wide => {
            let numbers = t.spout("numbers", Numbers::up_to(end)).core(core(near)).stream::<Wide>();
            let _ = t.bolt("null", null).core(core(far)).input(&numbers, Shuffle);
        }
        Shape::Small => {
            let numbers = t.spout("numbers", Numbers::up_to(end)).core(core(near)).stream::<Small>();
            let _ = t.bolt("null", null).core(core(far)).input(&numbers, Shuffle);
        }
        Shape::Identity => {
            let numbers = t.spout("numbers", Numbers::up_to(end)).core(core(near)).stream::<Small>();
            let same = t.bolt("identity", || Identity).core(core(far)).input(&numbers, Shuffle).stream::<Small>();
            let _ = t.bolt("null", null).core(core(far)).input(&same, Shuffle);
            pinned.push(("identity", far));
        }
    }
    let cores = if near == far { vec![near] } else { vec![near, far] };
    run(t, &cores, &pinned, end)?;
    let took = took.lock().map_err(|_| "the bolt panicked")?.take().ok_or("the last tuple was never stamped")?;
    Ok(tuples as f64 / took.as_secs_f64() / 1e6)
}

pub(crate) fn declare(run: &mut SuiteRun<'_>) -> saetta_harness::Result<()> {
    let tuples = run.options().size(20_000_000, 100_000);
    let figure = |millions| Ok(Figures::from([("millions", millions)]));
    run.case("64 bytes", move |o| figure(rate(Shape::Wide, o.cores, tuples)?));
    run.case("ring", move |o| figure(floors::ring_throughput(o.cores, tuples)?));
    run.case("small", move |o| figure(rate(Shape::Small, o.cores, tuples)?));
    run.case("identity", move |o| figure(rate(Shape::Identity, o.cores, tuples)?));
    run.case("same core", move |o| figure(rate(Shape::Small, (o.cores.0, o.cores.0), tuples)?));

    let row = |name: &str, case| RowSpec::new(name, "M tuples/s", Better::Higher, case, "millions");
    let over_ring = |name: &str, case| row(name, case).over("ring", "millions", 1.0).on_record(on_record::ring_throughput_millions);
    run.row(over_ring("64-byte tuple, spout to bolt, other core", "64 bytes"));
    run.row(over_ring("{u64, 20-byte text}, spout to bolt, other core", "small"));
    run.row(over_ring("const -> identity -> null, two cores", "identity"));
    run.row(row("{u64, 20-byte text}, spout to bolt, same core", "same core"));
    Ok(())
}
