//! What topologies of the suites are put together from: two tuples, spouts that count upwards, a bolt that passes on, one that checks and ends.
//!
//! Before: a suite names a shape. After: the last bolt has seen every number once and in order, the spout was told of every tree it opened.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use saetta::TreeFail;
use saetta::prelude::*;

use crate::topologies::{FILL_BYTES, TEXT};

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

/// What is called at the beginning and at the end of what is measured, on the loop that is there; the figure is a `number`.
pub(crate) type OnMark = Arc<dyn Fn(u64) + Send + Sync>;

/// The numbers of a run: those before `from` warm up, those up to `to` are measured, those up to `end` keep the loops busy until the last
/// measured one has arrived.
#[derive(Clone)]
pub(crate) struct Numbers {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) end: u64,
    pub(crate) on_mark: Option<OnMark>,
}

impl Numbers {
    /// `n` measured, and a tenth of it before.
    pub(crate) fn of(n: u64) -> Self {
        let from = n / 10;
        Numbers { from, to: from + n, end: from + n, on_mark: None }
    }

    /// The first place not before `number` where something is to be done.
    fn stop_from(&self, number: u64) -> u64 {
        [self.from, self.to].into_iter().filter(|mark| *mark >= number).min().unwrap_or(self.end).min(self.end)
    }

    fn mark(&self, number: u64) {
        if let Some(on_mark) = self.on_mark.as_ref().filter(|_| [self.from, self.to].contains(&number)) {
            on_mark(number);
        }
    }
}

/// Emits the numbers from 0 to the end, each in a tuple of stream `S`.
pub(crate) struct Source<S> {
    next: u64,
    /// Where the next mark or the end is: one comparison a tuple.
    stop: u64,
    numbers: Numbers,
    of: PhantomData<fn(S)>,
}

impl<S: 'static> Source<S> {
    pub(crate) fn of(numbers: &Numbers) -> impl Fn() -> Self + Send + Sync + 'static {
        let numbers = numbers.clone();
        move || Source { next: 0, stop: numbers.stop_from(0), numbers: numbers.clone(), of: PhantomData }
    }

    #[inline(always)]
    fn number(&mut self) -> Option<u64> {
        let number = self.next;
        if number == self.stop && self.is_over(number) {
            return None;
        }
        self.next += 1;
        Some(number)
    }

    #[cold]
    fn is_over(&mut self, number: u64) -> bool {
        self.numbers.mark(number);
        self.stop = self.numbers.stop_from(number + 1);
        number == self.numbers.end
    }
}

impl Emits<Wide> for Source<Wide> {}
impl Emits<Small> for Source<Small> {}

impl Spout for Source<Wide> {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        let Some(number) = self.number() else { return Ok(Done) };
        cx.emit(&Wide { number, fill: [7; FILL_BYTES] });
        Ok(Busy)
    }
}

impl Spout for Source<Small> {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        let Some(number) = self.number() else { return Ok(Done) };
        cx.emit(&SmallRef { number, text: TEXT });
        Ok(Busy)
    }
}

/// What a tracked spout was told, without keeping the ids: how many, their sum, the sum of their squares, each modulo 2^64.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    n: u64,
    sum: u64,
    squares: u64,
    pub(crate) failed: u64,
}

impl Told {
    #[inline]
    pub(crate) fn ack(&mut self, id: u64) {
        self.n += 1;
        self.sum = self.sum.wrapping_add(id);
        self.squares = self.squares.wrapping_add(id.wrapping_mul(id));
    }

    /// Fails unless every id below `end` was acked once and none failed.
    pub(crate) fn check(&self, end: u64) -> saetta_harness::Result<()> {
        let n = u128::from(end);
        let (sum, squares) = (n * n.saturating_sub(1) / 2, n.saturating_sub(1) * n * (2 * n).saturating_sub(1) / 6);
        let all = Told { n: end, sum: sum as u64, squares: squares as u64, failed: 0 };
        if *self == all { Ok(()) } else { Err(format!("of {end} trees the spout was told {self:?}, not {all:?}").into()) }
    }
}

/// Where a tracked spout leaves what it was told.
pub(crate) type Tally = Arc<Mutex<Told>>;

/// As [`Source`] of [`Small`], every tuple the root of a tree.
pub(crate) struct Tracked {
    source: Source<Small>,
    told: Told,
    tally: Tally,
}

impl Tracked {
    pub(crate) fn of(numbers: &Numbers, tally: &Tally) -> impl Fn() -> Self + Send + Sync + 'static {
        let (source, tally) = (Source::of(numbers), tally.clone());
        move || Tracked { source: source(), told: Told::default(), tally: tally.clone() }
    }
}

impl Emits<Small> for Tracked {}

impl Spout for Tracked {
    const TRACKED: bool = true;

    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        let Some(number) = self.source.number() else { return Ok(Done) };
        cx.emit_tracked(number, &SmallRef { number, text: TEXT });
        Ok(Busy)
    }

    #[inline]
    fn ack(&mut self, id: u64) {
        self.told.ack(id);
    }

    fn fail(&mut self, _: u64, _: &TreeFail) {
        self.told.failed += 1;
    }

    fn finish(&mut self, _: &mut Cx<'_, Self>) -> Outcome {
        *self.tally.lock().map_err(|_| "another task panicked")? = self.told;
        Ok(())
    }
}

/// Emits a new tuple like the one it got.
pub(crate) struct Identity;

impl Bolt for Identity {}
impl Emits<Small> for Identity {}

impl Handle<Small> for Identity {
    fn on(&mut self, tuple: &ArchivedSmall, cx: &mut Cx<'_, Self>) -> Outcome {
        cx.emit(&SmallRef { number: tuple.number(), text: tuple.text() });
        Ok(())
    }
}

/// What a [`Null`] leaves when the last measured tuple has come.
pub(crate) type Took = Arc<Mutex<Option<Duration>>>;

/// Reads every tuple and does nothing with it. Fails one that is out of its place in the stream.
pub(crate) struct Null {
    numbers: Numbers,
    next: u64,
    /// Where the next mark is.
    stop: u64,
    sum: u64,
    start: Option<Instant>,
    took: Took,
}

impl Null {
    pub(crate) fn of(numbers: &Numbers, took: &Took) -> impl Fn() -> Self + Send + Sync + 'static {
        let (numbers, took) = (numbers.clone(), took.clone());
        move || Null { numbers: numbers.clone(), next: 0, stop: numbers.stop_from(1), sum: 0, start: None, took: took.clone() }
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
        if self.next == self.stop {
            self.stamp()?;
        }
        Ok(())
    }

    #[cold]
    fn stamp(&mut self) -> Outcome {
        self.numbers.mark(self.next);
        self.stop = self.numbers.stop_from(self.next + 1);
        match self.start {
            _ if self.next != self.numbers.from && self.next != self.numbers.to => {}
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
