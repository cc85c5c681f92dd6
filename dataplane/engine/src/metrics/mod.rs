//! What a loop counts and times, and how a reader gets it without a lock and without stopping the loop.
//!
//! Before: `core_loop.rs` says what each executor is doing from when on, and dispatch says how long a sampled tuple waited and took. After: a
//! [`MetricsSnapshot`], the sum since the start, which `run` prints and a worker reports. File by file: `buckets.rs` (a histogram two threads
//! may hold), `set.rs` (what is counted per executor and input edge), `record.rs` (the loop's side), `snapshot.rs` (the reader's side),
//! `sampler.rs` (which tuples are timed).
//!
//! Counts are of all tuples, times of sampled ones. There are two sets of everything per loop, and `saetta_ring`'s epochs say whose each is:
//! the loop fills one, and at its housekeeping changes to the other if the reader has asked. Nothing is allocated after the start.

mod buckets;
mod record;
mod sampler;
mod set;
mod snapshot;

pub use buckets::{BUCKETS, Buckets, empty_histogram};
pub use record::LoopMetrics;
pub use sampler::{SAMPLER_BURST, Sampler};
pub use set::{Activity, EdgeDesc, ExecutorDesc, ExecutorMetrics, Times};
pub use snapshot::{
    ComponentSnapshot, EdgeCount, EdgeQuantiles, EdgeSnapshot, ExecutorSnapshot, LoopReader, LoopSnapshot, MetricsSnapshot, Quantiles,
    edge_counts,
};

use saetta_ring::epochs;
use std::sync::Arc;

/// The two sides of the metrics of one loop, with these executors in the loop's order.
pub fn loop_metrics(executors: Vec<ExecutorDesc>, n_streams: usize) -> (LoopMetrics, LoopReader) {
    let executors: Arc<[ExecutorDesc]> = executors.into();
    let sets = Arc::new([(); 2].map(|()| set::Set::new(&executors)));
    let (writer, reader) = epochs();
    (LoopMetrics::new(&executors, n_streams, sets.clone(), writer), LoopReader::new(executors, sets, reader))
}

/// Bytes that the metrics of these executors may take: two sets with the loop, one sum with the reader.
pub fn metrics_bytes<'a>(executors: impl IntoIterator<Item = &'a ExecutorDesc>) -> u64 {
    let each = 2 * size_of::<u32>() + size_of::<u64>();
    executors.into_iter().map(|e| (e.histograms() * BUCKETS * each) as u64).sum()
}

#[cfg(test)]
mod tests;
