//! One histogram type for every latency: nanoseconds, three significant digits, 1 ns to 100 s.
//!
//! Before: a case stamps its rounds. After: the percentiles become figures of a row.

use hdrhistogram::Histogram;

/// Largest latency a histogram holds; longer ones are counted as this. Longer than any wait of a bench.
pub const LATENCY_NS_MAX: u64 = 100_000_000_000;

/// Latencies of one sample, in nanoseconds.
#[derive(Debug, Clone)]
pub struct Latency {
    histogram: Histogram<u64>,
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl Latency {
    /// An empty histogram. Allocates about 200 KiB, once: `record_ns` does not.
    #[must_use]
    pub fn new() -> Self {
        Self { histogram: Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("constant bounds are valid") }
    }

    /// The same latencies as another histogram of nanoseconds, whatever its bounds; its own precision stays as it was.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let mut latency = Self::new();
        for step in histogram.iter_recorded() {
            latency.histogram.saturating_record_n(step.value_iterated_to().max(1), step.count_at_value());
        }
        latency
    }

    /// Counts one latency. 0 counts as 1 ns. About 5 ns.
    #[inline]
    pub fn record_ns(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.max(1));
    }

    /// Adds another sample's latencies.
    ///
    /// # Panics
    /// Never: both have the same bounds.
    pub fn add(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("equal bounds");
    }

    /// How many were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The value below which `percentile` (0..=100) of the latencies lie, in ns. 0 when nothing was recorded.
    #[must_use]
    pub fn percentile_ns(&self, percentile: f64) -> u64 {
        if self.histogram.is_empty() { 0 } else { self.histogram.value_at_percentile(percentile) }
    }

    /// Median in ns.
    #[must_use]
    pub fn p50_ns(&self) -> u64 {
        self.percentile_ns(50.0)
    }

    /// 99th percentile in ns.
    #[must_use]
    pub fn p99_ns(&self) -> u64 {
        self.percentile_ns(99.0)
    }

    /// 99.9th percentile in ns. Shown, never judged: on a shared machine it is the machine's.
    #[must_use]
    pub fn p99_9_ns(&self) -> u64 {
        self.percentile_ns(99.9)
    }

    /// The histogram itself, for writers of `.hgrm` and `.hlog`.
    #[must_use]
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_three_digits() {
        let mut latency = Latency::new();
        (1..=100_000).for_each(|ns| latency.record_ns(ns));
        let within = |got: u64, want: u64| got.abs_diff(want) * 1000 <= want;
        assert!(within(latency.p50_ns(), 50_000), "{}", latency.p50_ns());
        assert!(within(latency.p99_ns(), 99_000), "{}", latency.p99_ns());
        assert_eq!(latency.count(), 100_000);
    }

    #[test]
    fn a_histogram_of_other_bounds_keeps_its_counts() {
        let mut other = Histogram::<u64>::new_with_bounds(1, 1_000_000, 2).expect("constant bounds are valid");
        (0..500).for_each(|ns| other.record(ns).expect("in bounds"));
        let latency = Latency::of(&other);
        assert_eq!((latency.count(), latency.p50_ns().abs_diff(250) <= 2), (500, true), "{}", latency.p50_ns());
    }

    #[test]
    fn an_empty_sample_and_an_endless_wait_are_values_not_panics() {
        let mut latency = Latency::new();
        assert_eq!(latency.p99_ns(), 0);
        latency.record_ns(u64::MAX);
        latency.record_ns(0);
        assert_eq!(latency.count(), 2);
    }
}
