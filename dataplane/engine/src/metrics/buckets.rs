//! A histogram that its one writer fills and its reader empties, each while the epoch says it is theirs.
//!
//! Buckets are those of an HDR histogram of two digits from 1 ns to 10 s (see `LATENCY_NS`), so a reader pours them into one without loss. The words
//! are atomics only so that safe code may share them: each access is a plain load or store, ordered by the epoch's words.

use crate::limits::LATENCY_NS;
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicU32, Ordering};

/// Linear steps in the first bucket of two digits; half of that in each further one, every one twice as wide as the one before.
const STEPS: u64 = 256;
const HALF_BITS: u32 = STEPS.ilog2() - 1;
/// Words of one histogram.
pub const BUCKETS: usize = index_of(LATENCY_NS.1) + 1;

const _: () = assert!(LATENCY_NS.2 == 2 && STEPS > 2 * 10u64.pow(LATENCY_NS.2 as u32), "two digits need 200 steps");

/// See the head of this file.
pub struct Buckets(Box<[AtomicU32]>);

const fn index_of(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let wide = ns.ilog2() - HALF_BITS;
    ((wide as usize) << HALF_BITS) + (ns >> wide) as usize
}

/// Lowest value of a bucket.
const fn lowest_of(index: usize) -> u64 {
    if index < STEPS as usize {
        return index as u64;
    }
    let wide = (index >> HALF_BITS) as u32 - 1;
    ((index - ((wide as usize) << HALF_BITS)) as u64) << wide
}

/// An HDR histogram of the same bounds, which never grows.
pub fn empty_histogram() -> Histogram<u64> {
    let (low, high, digits) = LATENCY_NS;
    let mut h = Histogram::new_with_bounds(low, high, digits).expect("bounds are constants");
    h.auto(false);
    h
}

impl Buckets {
    pub(super) fn new() -> Self {
        Buckets((0..BUCKETS).map(|_| AtomicU32::new(0)).collect())
    }

    /// Writer: counts one time. Longer than the longest counts as that.
    #[inline]
    pub fn record(&self, ns: u64) {
        let word = &self.0[index_of(if ns > LATENCY_NS.1 { LATENCY_NS.1 } else { ns })];
        // Relaxed: one writer, and the reader comes after the epoch's Release.
        word.store(word.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    }

    /// Reader: adds all counts to `sum` and leaves none here.
    pub(super) fn drain_into(&self, sum: &mut Histogram<u64>) {
        for (index, word) in self.0.iter().enumerate() {
            let n = word.load(Ordering::Relaxed);
            if n > 0 {
                // Relaxed: the writer comes after the epoch's Release.
                word.store(0, Ordering::Relaxed);
                sum.record_n(lowest_of(index), n.into()).expect("every bucket lies within the histogram's bounds");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_falls_into_the_bucket_that_the_hdr_histogram_has_for_it() {
        let h = empty_histogram();
        let mut value = 0u64;
        while value <= LATENCY_NS.1 {
            for ns in [value, value + 1, (value * 2).saturating_sub(1)] {
                let ns = ns.min(LATENCY_NS.1);
                let lowest = lowest_of(index_of(ns));
                assert_eq!(h.lowest_equivalent(ns), lowest, "{ns}");
                assert_eq!(index_of(lowest), index_of(ns), "{ns}");
            }
            value += 1 + value / 97;
        }
        assert_eq!(BUCKETS, h.distinct_values().min(BUCKETS), "the histogram has a place for each");
    }

    #[test]
    fn what_is_recorded_comes_out_once_and_too_long_counts_as_the_longest() {
        let (buckets, mut sum) = (Buckets::new(), empty_histogram());
        for ns in [0, 1, 255, 256, 1_000_000, 10_000_000_000, u64::MAX] {
            buckets.record(ns);
        }
        buckets.drain_into(&mut sum);
        buckets.drain_into(&mut sum);
        assert_eq!(sum.len(), 7);
        assert_eq!(sum.count_at(10_000_000_000), 2);
        assert_eq!(sum.count_between(0, 255), 3);
    }
}
