//! What is counted and timed, per executor and input edge. Filled by the loop, emptied by the reader, never both.
//!
//! Counters are words with one writer at a time; see `buckets.rs` on why they are atomics.

use super::buckets::Buckets;
use saetta_model::name::Name;
use saetta_model::parallelism::ExecutorId;
use std::sync::atomic::{AtomicU64, Ordering};

/// A stream that an executor reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeDesc {
    /// Number of the stream in frame headers.
    pub number: u16,
    /// Upstream component.
    pub component: Name,
    /// Its stream.
    pub stream: Name,
}

/// What there is to count at an executor.
#[derive(Debug, Clone)]
pub struct ExecutorDesc {
    /// Which.
    pub id: ExecutorId,
    /// Its component.
    pub component: Name,
    /// Streams it reads; empty for a spout.
    pub edges: Vec<EdgeDesc>,
    /// It has complete latencies.
    pub is_spout: bool,
    /// Nothing reads it: the latency from emit to last bolt ends here.
    pub is_sink: bool,
}

impl ExecutorDesc {
    pub(super) fn histograms(&self) -> usize {
        1 + self.edges.len() + usize::from(self.is_spout) + usize::from(self.is_sink)
    }
}

/// What an executor, or a loop, is doing. Exactly one of these at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// User code runs, or a spout is asked.
    Busy,
    /// Nothing to do, or others of the loop have their turn.
    Idle,
    /// Its output is refused, so it takes no input. Of a loop: no executor of it ran in a turn, and one is in this.
    Blocked,
}

/// Nanoseconds of each activity. Their sum is the time between the start and the last snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// See [`Activity::Busy`].
    pub busy_ns: u64,
    /// See [`Activity::Idle`].
    pub idle_ns: u64,
    /// See [`Activity::Blocked`].
    pub blocked_ns: u64,
}

impl Times {
    /// All of it.
    pub fn sum_ns(&self) -> u64 {
        self.busy_ns + self.idle_ns + self.blocked_ns
    }

    /// Busy and blocked part of all, 0 to 1; 0 when no time has passed.
    pub fn shares(&self) -> (f64, f64) {
        let all = self.sum_ns().max(1) as f64;
        (self.busy_ns as f64 / all, self.blocked_ns as f64 / all)
    }

    #[inline]
    pub(super) fn add_one(&mut self, activity: Activity, ns: u64) {
        match activity {
            Activity::Busy => self.busy_ns += ns,
            Activity::Idle => self.idle_ns += ns,
            Activity::Blocked => self.blocked_ns += ns,
        }
    }

    pub(super) fn add(&mut self, more: Times) {
        self.busy_ns += more.busy_ns;
        self.idle_ns += more.idle_ns;
        self.blocked_ns += more.blocked_ns;
    }
}

/// A word with one writer at a time.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    #[inline(always)]
    pub(super) fn add(&self, n: u64) {
        // Relaxed, and no read-modify-write: one writer, and the reader comes after the epoch's Release.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn raise(&self, to: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).max(to), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    pub(super) fn take(&self) -> u64 {
        let n = self.0.load(Ordering::Relaxed);
        self.0.store(0, Ordering::Relaxed);
        n
    }
}

#[derive(Default)]
pub(super) struct TimeCounts([Count; 3]);

impl TimeCounts {
    #[inline]
    pub(super) fn add(&self, activity: Activity, ns: u64) {
        self.0[activity as usize].add(ns);
    }

    pub(super) fn take(&self) -> Times {
        let of = |activity: Activity| self.0[activity as usize].take();
        Times { busy_ns: of(Activity::Busy), idle_ns: of(Activity::Idle), blocked_ns: of(Activity::Blocked) }
    }
}

pub(super) struct EdgeMetrics {
    pub(super) frames: Count,
    pub(super) bytes: Count,
    pub(super) queue_wait_ns: Buckets,
}

/// What the loop counts at one executor.
pub struct ExecutorMetrics {
    pub(super) edges: Box<[EdgeMetrics]>,
    pub(super) execute_ns: Buckets,
    pub(super) complete_ns: Option<Buckets>,
    pub(super) end_to_end_ns: Option<Buckets>,
    pub(super) times: TimeCounts,
    pub(super) queue_looks: Count,
    pub(super) queue_bytes: Count,
    pub(super) queue_bytes_max: Count,
    /// Of its sampler, as last told; 0 = not told since the last swap.
    pub(super) one_in: Count,
}

impl ExecutorMetrics {
    fn new(desc: &ExecutorDesc) -> Self {
        ExecutorMetrics {
            edges: desc
                .edges
                .iter()
                .map(|_| EdgeMetrics { frames: Count::default(), bytes: Count::default(), queue_wait_ns: Buckets::new() })
                .collect(),
            execute_ns: Buckets::new(),
            complete_ns: desc.is_spout.then(Buckets::new),
            end_to_end_ns: desc.is_sink.then(Buckets::new),
            times: TimeCounts::default(),
            queue_looks: Count::default(),
            queue_bytes: Count::default(),
            queue_bytes_max: Count::default(),
            one_in: Count::default(),
        }
    }

    /// `n` frames of so many bytes came by this edge and were handled.
    #[inline(always)]
    pub fn frames(&self, edge: usize, n: u64, bytes: u64) {
        self.edges[edge].frames.add(n);
        self.edges[edge].bytes.add(bytes);
    }

    /// A sampled tuple lay this long between the emit before this hop and its turn here.
    #[inline]
    pub fn queue_wait(&self, edge: usize, ns: u64) {
        self.edges[edge].queue_wait_ns.record(ns);
    }

    /// Handling a sampled tuple took this long. Calls of a spout are not timed one by one.
    #[inline]
    pub fn execute(&self, ns: u64) {
        self.execute_ns.record(ns);
    }

    /// A tracked tuple of this spout was complete this long after its emit. Of others than spouts it is not kept.
    #[inline]
    pub fn complete(&self, ns: u64) {
        if let Some(buckets) = &self.complete_ns {
            buckets.record(ns);
        }
    }

    /// A sampled tuple ended here this long after the spout's emit. Of an executor with readers it is not kept.
    #[inline]
    pub fn end_to_end(&self, ns: u64) {
        if let Some(buckets) = &self.end_to_end_ns {
            buckets.record(ns);
        }
    }

    /// Housekeeping: frame bytes that wait for this executor now.
    pub fn queue(&self, bytes: u64) {
        self.queue_looks.add(1);
        self.queue_bytes.add(bytes);
        self.queue_bytes_max.raise(bytes);
    }

    /// Housekeeping: one in how many tuples is timed.
    pub fn one_in(&self, n: u64) {
        self.one_in.set(n);
    }
}

/// What the loop counts, all of it.
pub(super) struct Set {
    pub(super) executors: Box<[ExecutorMetrics]>,
    pub(super) times: TimeCounts,
    /// Time between this set's begin and its end, measured apart from `times`.
    pub(super) wall_ns: Count,
}

impl Set {
    pub(super) fn new(executors: &[ExecutorDesc]) -> Self {
        Set { executors: executors.iter().map(ExecutorMetrics::new).collect(), times: TimeCounts::default(), wall_ns: Count::default() }
    }
}
