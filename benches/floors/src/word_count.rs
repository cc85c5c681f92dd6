//! Word count by hand on two cores, with nothing around it: what `examples/wordcount` is held against.
//!
//! Before: `wordcount` has a text in memory, words between single blanks or line feeds. After: exact counts, and the rate at which they came.
//! `pipe` splits and hashes on one core and counts on the other; `keyed` does all on both, each with half of the text, and passes on the words
//! that the other one counts. Words are copied into flat batches, which travel by pointer and come back: faster than slices into the text.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hashbrown::HashTable;
use rtrb::{Consumer, Producer, RingBuffer};
use rustc_hash::FxHasher;
use saetta_harness::Result;

use crate::bench::on_two_cores;

/// Words of a batch: more or fewer are slower.
const BATCH_WORDS: usize = 256;
/// Room for their letters before a batch has to grow.
const BATCH_BYTES: usize = BATCH_WORDS * 16;
/// Batches on their way from one core to the other; as many come back empty.
const BATCHES: usize = 16;
/// Different words a table has room for before it grows.
const WORDS: usize = 1 << 16;
/// The bit of a hash that says which core counts a word. The table takes its bucket from lower bits and its tag from higher ones.
const OWNER_BIT: u32 = 1 << 22;

/// How often each word stands in a text.
pub type Counts = BTreeMap<String, u64>;

/// Words one behind the other, and of each its hash and length.
#[derive(Default)]
struct Batch {
    heads: Vec<(u32, u32)>,
    letters: Vec<u8>,
    /// Nothing comes behind it.
    last: bool,
}

impl Batch {
    fn new() -> Box<Self> {
        Box::new(Batch { heads: Vec::with_capacity(BATCH_WORDS), letters: Vec::with_capacity(BATCH_BYTES), last: false })
    }

    #[inline(always)]
    fn push(&mut self, hash: u32, word: &[u8]) {
        self.heads.push((hash, word.len() as u32));
        self.letters.extend_from_slice(word);
    }

    fn is_full(&self) -> bool {
        self.heads.len() == BATCH_WORDS
    }
}

struct Entry {
    hash: u32,
    n: u64,
    word: Box<[u8]>,
}

/// Counts by hash and word.
struct Table(HashTable<Entry>);

/// 32 bits for all 64: bucket and tag of the table come from both ends.
#[inline(always)]
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

impl Table {
    fn new() -> Self {
        Table(HashTable::with_capacity(WORDS))
    }

    #[inline(always)]
    fn count(&mut self, hash: u32, word: &[u8]) {
        match self.0.find_mut(spread(hash), |entry| entry.hash == hash && *entry.word == *word) {
            Some(entry) => entry.n += 1,
            None => drop(self.0.insert_unique(spread(hash), Entry { hash, n: 1, word: word.into() }, |entry| spread(entry.hash))),
        }
    }

    fn count_batch(&mut self, batch: &Batch) {
        let mut at = 0;
        for &(hash, len) in &batch.heads {
            let end = at + len as usize;
            self.count(hash, &batch.letters[at..end]);
            at = end;
        }
    }

    fn into_counts(self, counts: &mut Counts) {
        for entry in self.0 {
            *counts.entry(String::from_utf8_lossy(&entry.word).into_owned()).or_default() += entry.n;
        }
    }
}

/// Calls `word(hash, word)` for each word.
#[inline(always)]
fn split(text: &[u8], mut word: impl FnMut(u32, &[u8])) {
    let mut start = 0;
    for end in memchr::memchr2_iter(b' ', b'\n', text).chain([text.len()]) {
        if start < end {
            let mut hasher = FxHasher::default();
            hasher.write(&text[start..end]);
            word(hasher.finish() as u32, &text[start..end]);
        }
        start = end + 1;
    }
}

/// Full batches one way, empty ones back: the end that fills.
struct Outbound {
    full: Producer<Box<Batch>>,
    empty: Consumer<Box<Batch>>,
    batch: Box<Batch>,
}

/// The end that counts.
struct Inbound {
    full: Consumer<Box<Batch>>,
    empty: Producer<Box<Batch>>,
}

fn lane() -> (Outbound, Inbound) {
    let (full, taken) = RingBuffer::new(BATCHES);
    let (mut back, empty) = RingBuffer::new(BATCHES + 1);
    for _ in 0..BATCHES {
        back.push(Batch::new()).unwrap_or_else(|_| unreachable!("it has room for one more"));
    }
    (Outbound { full, empty, batch: Batch::new() }, Inbound { full: taken, empty: back })
}

impl Outbound {
    /// Sends the batch and takes an empty one; calls `meanwhile` as long as there is none.
    #[inline]
    fn send(&mut self, stop: &AtomicBool, mut meanwhile: impl FnMut()) {
        while !stop.load(Ordering::Relaxed) {
            if let Ok(next) = self.empty.pop() {
                // One batch is here, one in hand: never more than the ring has room for.
                let full = std::mem::replace(&mut self.batch, next);
                self.full.push(full).unwrap_or_else(|_| unreachable!("as many slots as batches"));
                return;
            }
            meanwhile();
        }
    }

    fn send_last(&mut self, stop: &AtomicBool, meanwhile: impl FnMut()) {
        self.batch.last = true;
        self.send(stop, meanwhile);
    }
}

impl Inbound {
    /// Counts one batch, if one has come. True when it was the last.
    #[inline]
    fn take(&mut self, table: &mut Table) -> bool {
        let Ok(mut batch) = self.full.pop() else {
            std::hint::spin_loop();
            return false;
        };
        table.count_batch(&batch);
        let last = batch.last;
        batch.heads.clear();
        batch.letters.clear();
        // Nobody takes it when the other side has ended.
        let _ = self.empty.push(batch);
        last
    }
}

/// When a side began and ended.
type Span = (Instant, Instant);

/// Million words a second between the first start and the last end, and all counts.
fn result(spans: [Span; 2], tables: impl IntoIterator<Item = Table>) -> (f64, Counts) {
    let mut counts = Counts::new();
    tables.into_iter().for_each(|table| table.into_counts(&mut counts));
    let (start, end) = (spans[0].0.min(spans[1].0), spans[0].1.max(spans[1].1));
    (counts.values().sum::<u64>() as f64 / (end - start).as_secs_f64() / 1e6, counts)
}

/// The first core splits and hashes, the second counts.
///
/// # Errors
/// When a core cannot be had.
pub fn word_count_pipe(cores: (usize, usize), text: &[u8]) -> Result<(f64, Counts)> {
    let (mut outbound, mut inbound) = lane();
    let mut table = Table::new();
    let (near, (far, table)) = on_two_cores(
        cores,
        move |stop| {
            let start = Instant::now();
            split(text, |hash, word| {
                outbound.batch.push(hash, word);
                if outbound.batch.is_full() {
                    outbound.send(stop, std::hint::spin_loop);
                }
            });
            outbound.send_last(stop, std::hint::spin_loop);
            (start, Instant::now())
        },
        move |stop| {
            let start = Instant::now();
            while !inbound.take(&mut table) && !stop.load(Ordering::Relaxed) {}
            ((start, Instant::now()), table)
        },
    )?;
    Ok(result([near, far], [table]))
}

/// Both cores split one half each, count the words whose hash is theirs, and pass on the others.
///
/// # Errors
/// When a core cannot be had.
pub fn word_count_keyed(cores: (usize, usize), text: &[u8]) -> Result<(f64, Counts)> {
    let middle = text.len() / 2;
    let middle = text[middle..].iter().position(|&byte| byte == b'\n').map_or(text.len(), |at| middle + at + 1);
    let ((near_out, far_in), (far_out, near_in)) = (lane(), lane());
    let ((near, near_table), (far, far_table)) = on_two_cores(
        cores,
        move |stop| half(&text[..middle], 0, near_out, near_in, stop),
        move |stop| half(&text[middle..], OWNER_BIT, far_out, far_in, stop),
    )?;
    Ok(result([near, far], [near_table, far_table]))
}

fn half(text: &[u8], ours: u32, mut outbound: Outbound, mut inbound: Inbound, stop: &AtomicBool) -> (Span, Table) {
    let start = Instant::now();
    let mut table = Table::new();
    let mut over = false;
    split(text, |hash, word| {
        if hash & OWNER_BIT == ours {
            return table.count(hash, word);
        }
        outbound.batch.push(hash, word);
        if outbound.batch.is_full() {
            // As many as we send come in: taken here, they never pile up.
            outbound.send(stop, || over |= inbound.take(&mut table));
            over |= inbound.take(&mut table);
        }
    });
    outbound.send_last(stop, || over |= inbound.take(&mut table));
    while !over && !stop.load(Ordering::Relaxed) {
        over = inbound.take(&mut table);
    }
    ((start, Instant::now()), table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use saetta_harness::pin::two_cores;

    #[test]
    fn both_ways_count_every_word_once() {
        let Ok(cores) = two_cores() else { return eprintln!("one core only: no two-core floor to take") };
        let word = |i: u64| format!("w{}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54);
        let text: String = (0..60_000).map(|i| word(i) + if i % 10 == 9 { "\n" } else { " " }).collect();
        let mut counts = Counts::new();
        text.split_whitespace().for_each(|word| *counts.entry(word.to_owned()).or_default() += 1);
        assert_eq!(word_count_pipe(cores, text.as_bytes()).expect("two cores").1, counts);
        assert_eq!(word_count_keyed(cores, text.as_bytes()).expect("two cores").1, counts);
    }

    #[test]
    fn no_line_feed_at_the_end_and_no_text_at_all_are_counted_too() {
        let Ok(cores) = two_cores() else { return eprintln!("one core only: no two-core floor to take") };
        for text in ["", "a", "a b\nb"] {
            let mut counts = Counts::new();
            text.split_whitespace().for_each(|word| *counts.entry(word.to_owned()).or_default() += 1);
            assert_eq!(word_count_pipe(cores, text.as_bytes()).expect("two cores").1, counts);
            assert_eq!(word_count_keyed(cores, text.as_bytes()).expect("two cores").1, counts);
        }
        assert!(word_count_pipe((cores.0, 1000), b"a b").is_err());
        assert!(word_count_keyed((1000, cores.1), b"a b").is_err());
    }
}
