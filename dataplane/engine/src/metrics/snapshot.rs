//! The reader's side: asks each loop, pours what it gets into sums since the start, and answers in quantiles.

use super::buckets::empty_histogram;
use super::record::LoopMetrics;
use super::set::{EdgeDesc, ExecutorDesc, Set, Times};
use hdrhistogram::Histogram;
use saetta_model::name::Name;
use saetta_model::parallelism::ExecutorId;
use saetta_ring::ReaderEpoch;
use std::sync::Arc;

/// Reads one loop. What a snapshot shows is as old as the last [`LoopReader::collect`].
pub struct LoopReader {
    sets: Arc<[Set; 2]>,
    epoch: ReaderEpoch,
    own: LoopSnapshot,
    executors: Vec<ExecutorSnapshot>,
}

/// One loop since its first turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoopSnapshot {
    /// Busy, idle and back-pressured.
    pub times: Times,
    /// Time from its first turn to the last answer. Measured apart from `times`.
    pub wall_ns: u64,
}

/// One executor since its start.
#[derive(Debug, Clone)]
pub struct ExecutorSnapshot {
    /// Which.
    pub id: ExecutorId,
    /// Its component.
    pub component: Name,
    /// Busy, idle and back-pressured.
    pub times: Times,
    /// Input edges, ascending by the stream's number in frames.
    pub edges: Vec<EdgeSnapshot>,
    /// Sampled tuples, nanoseconds in user code. Empty for spouts.
    pub execute_ns: Histogram<u64>,
    /// Spouts: tracked tuples, emit to complete.
    pub complete_ns: Option<Histogram<u64>>,
    /// Last bolts: sampled tuples, spout's emit to here.
    pub end_to_end_ns: Option<Histogram<u64>>,
    /// Frame bytes that waited for it, mean over the looks of the housekeeping.
    pub queue_bytes_mean: u64,
    /// The most of them.
    pub queue_bytes_max: u64,
    /// One in how many tuples is timed at the moment.
    pub one_in: u64,
    queue_looks: u64,
    queue_bytes_sum: u128,
}

/// One input edge since the start.
#[derive(Debug, Clone)]
pub struct EdgeSnapshot {
    /// Upstream component.
    pub component: Name,
    /// Its stream.
    pub stream: Name,
    /// Frames handled, all of them.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sampled tuples, nanoseconds from the emit before this hop to their turn here.
    pub queue_wait_ns: Histogram<u64>,
}

/// All executors of a worker since the start, ascending, and its loops.
#[derive(Debug, Clone, Default)]
pub struct MetricsSnapshot {
    /// By loop.
    pub loops: Vec<LoopSnapshot>,
    /// Ascending by id.
    pub executors: Vec<ExecutorSnapshot>,
}

/// A component's executors together.
#[derive(Debug, Clone)]
pub struct ComponentSnapshot {
    /// Which.
    pub component: Name,
    /// Of all its executors: sums to their number times the time passed.
    pub times: Times,
    /// Its edges together.
    pub queue_wait: Quantiles,
    /// And each: an edge of all executors.
    pub edges: Vec<EdgeQuantiles>,
    /// See [`ExecutorSnapshot::execute_ns`].
    pub execute: Quantiles,
    /// See [`ExecutorSnapshot::complete_ns`].
    pub complete: Quantiles,
    /// One in how many tuples is timed at its busiest executor.
    pub one_in: u64,
}

/// What came over one subscription to the executors of a worker since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeCount {
    /// Emitting component.
    pub from: Name,
    /// Subscribing component.
    pub to: Name,
    /// Stream.
    pub stream: Name,
    /// Frames handled.
    pub tuples: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One input edge of a component's executors together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeQuantiles {
    /// Upstream component.
    pub component: Name,
    /// Its stream.
    pub stream: Name,
    /// Frames handled, all of them.
    pub frames: u64,
    /// See [`EdgeSnapshot::queue_wait_ns`].
    pub queue_wait: Quantiles,
}

/// What is shown of a histogram. Nanoseconds; all zero when nothing was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quantiles {
    /// Times recorded.
    pub n: u64,
    /// Half are at most this.
    pub p50_ns: u64,
    /// 99 % are at most this.
    pub p99_ns: u64,
    /// 99.9 % are at most this.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl From<&Histogram<u64>> for Quantiles {
    fn from(h: &Histogram<u64>) -> Self {
        if h.is_empty() {
            return Quantiles::default();
        }
        let at = |q| h.value_at_quantile(q);
        Quantiles { n: h.len(), p50_ns: at(0.5), p99_ns: at(0.99), p999_ns: at(0.999), max_ns: h.max() }
    }
}

impl LoopReader {
    pub(super) fn new(executors: Arc<[ExecutorDesc]>, sets: Arc<[Set; 2]>, epoch: ReaderEpoch) -> Self {
        LoopReader { sets, epoch, own: LoopSnapshot::default(), executors: executors.iter().map(ExecutorSnapshot::new).collect() }
    }

    /// Of a loop without executors, that never answers.
    pub(crate) fn none() -> Self {
        super::loop_metrics(Vec::new(), 0).1
    }

    /// Asks the loop for what it has counted; it answers at its next housekeeping. Does nothing while an earlier ask is open.
    pub fn ask(&mut self) {
        self.epoch.ask();
    }

    /// Takes the answer to the last [`Self::ask`]; false = none yet. Costs about 10 us per histogram.
    pub fn collect(&mut self) -> bool {
        let Some(set) = self.epoch.collect() else { return false };
        self.drain(set);
        true
    }

    /// The loop is over at `now_ns`: takes all that is left. Nothing it has counted is lost.
    pub fn finish(mut self, mut ended: LoopMetrics, now_ns: u64) -> Self {
        assert!(ended.is_of(&self.sets), "the other side of this one");
        let last = ended.close(now_ns);
        self.drain(last ^ 1);
        self.drain(last);
        self
    }

    /// The executors of the loop are others now, and `next` reads them: takes all that was counted before along. `before` is the loop's side of
    /// this one, or of one that was never read and is lost.
    pub fn follow(mut self, before: LoopMetrics, now_ns: u64, mut next: LoopReader) -> LoopReader {
        if before.is_of(&self.sets) {
            self = self.finish(before, now_ns);
        }
        next.own = self.own;
        for old in self.executors {
            match next.executors.iter().position(|e| e.id == old.id) {
                Some(place) => next.executors[place] = old,
                // Those that are gone stand behind those that are counted.
                None => next.executors.push(old),
            }
        }
        next
    }

    fn drain(&mut self, set: usize) {
        let set = &self.sets[set];
        self.own.times.add(set.times.take());
        self.own.wall_ns += set.wall_ns.take();
        for (sum, more) in self.executors.iter_mut().zip(&set.executors) {
            sum.times.add(more.times.take());
            for (sum, more) in sum.edges.iter_mut().zip(&more.edges) {
                sum.frames += more.frames.take();
                sum.bytes += more.bytes.take();
                more.queue_wait_ns.drain_into(&mut sum.queue_wait_ns);
            }
            more.execute_ns.drain_into(&mut sum.execute_ns);
            for (sum, more) in [(&mut sum.complete_ns, &more.complete_ns), (&mut sum.end_to_end_ns, &more.end_to_end_ns)] {
                if let (Some(sum), Some(more)) = (sum, more) {
                    more.drain_into(sum);
                }
            }
            sum.queue_looks += more.queue_looks.take();
            sum.queue_bytes_sum += u128::from(more.queue_bytes.take());
            sum.queue_bytes_mean = (sum.queue_bytes_sum / u128::from(sum.queue_looks.max(1))) as u64;
            sum.queue_bytes_max = sum.queue_bytes_max.max(more.queue_bytes_max.take());
            if let told @ 1.. = more.one_in.take() {
                sum.one_in = told;
            }
        }
    }
}

impl ExecutorSnapshot {
    fn new(desc: &ExecutorDesc) -> Self {
        let edge = |e: &EdgeDesc| EdgeSnapshot {
            component: e.component.clone(),
            stream: e.stream.clone(),
            frames: 0,
            bytes: 0,
            queue_wait_ns: empty_histogram(),
        };
        ExecutorSnapshot {
            id: desc.id,
            component: desc.component.clone(),
            times: Times::default(),
            edges: desc.edges.iter().map(edge).collect(),
            execute_ns: empty_histogram(),
            complete_ns: desc.is_spout.then(empty_histogram),
            end_to_end_ns: desc.is_sink.then(empty_histogram),
            queue_bytes_mean: 0,
            queue_bytes_max: 0,
            one_in: 1,
            queue_looks: 0,
            queue_bytes_sum: 0,
        }
    }
}

/// What the readers of a worker's loops have of subscriptions, in no order. Cheap: no histogram is looked at.
pub fn edge_counts<'a>(loops: impl IntoIterator<Item = &'a LoopReader>) -> Vec<EdgeCount> {
    let mut all: Vec<EdgeCount> = Vec::new();
    for e in loops.into_iter().flat_map(|l| &l.executors) {
        for edge in &e.edges {
            let same = |c: &&mut EdgeCount| c.from == edge.component && c.stream == edge.stream && c.to == e.component;
            match all.iter_mut().find(same) {
                Some(sum) => (sum.tuples, sum.bytes) = (sum.tuples + edge.frames, sum.bytes + edge.bytes),
                None => all.push(EdgeCount {
                    from: edge.component.clone(),
                    to: e.component.clone(),
                    stream: edge.stream.clone(),
                    tuples: edge.frames,
                    bytes: edge.bytes,
                }),
            }
        }
    }
    all
}

impl MetricsSnapshot {
    /// Copies what the readers of a worker's loops have. Allocates; for whoever shows it.
    pub fn of<'a>(loops: impl IntoIterator<Item = &'a LoopReader>) -> Self {
        let mut snapshot = MetricsSnapshot::default();
        for reader in loops {
            snapshot.loops.push(reader.own);
            snapshot.executors.extend(reader.executors.iter().cloned());
        }
        snapshot.executors.sort_by_key(|e| e.id);
        snapshot
    }

    /// Every component with an executor here, in the order of their first executors.
    pub fn components(&self) -> Vec<ComponentSnapshot> {
        self.executors.chunk_by(|a, b| a.component == b.component).map(component).collect()
    }

    /// Emit to last bolt, all of them together.
    pub fn end_to_end_ns(&self) -> Histogram<u64> {
        merged(self.executors.iter().filter_map(|e| e.end_to_end_ns.as_ref()))
    }
}

fn component(executors: &[ExecutorSnapshot]) -> ComponentSnapshot {
    let mut times = Times::default();
    executors.iter().for_each(|e| times.add(e.times));
    let quantiles = |h: Histogram<u64>| Quantiles::from(&h);
    let edge = |place: usize, first: &EdgeSnapshot| EdgeQuantiles {
        component: first.component.clone(),
        stream: first.stream.clone(),
        frames: executors.iter().map(|e| e.edges[place].frames).sum(),
        queue_wait: quantiles(merged(executors.iter().map(|e| &e.edges[place].queue_wait_ns))),
    };
    ComponentSnapshot {
        component: executors[0].component.clone(),
        times,
        queue_wait: quantiles(merged(executors.iter().flat_map(|e| e.edges.iter().map(|edge| &edge.queue_wait_ns)))),
        edges: executors[0].edges.iter().enumerate().map(|(place, first)| edge(place, first)).collect(),
        execute: quantiles(merged(executors.iter().map(|e| &e.execute_ns))),
        complete: quantiles(merged(executors.iter().filter_map(|e| e.complete_ns.as_ref()))),
        one_in: executors.iter().map(|e| e.one_in).max().unwrap_or(1),
    }
}

fn merged<'a>(all: impl Iterator<Item = &'a Histogram<u64>>) -> Histogram<u64> {
    let mut sum = empty_histogram();
    all.for_each(|h| sum.add(h).expect("all have the same bounds"));
    sum
}
