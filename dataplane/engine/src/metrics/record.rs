//! The loop's side: which set is filled now, and what each executor is doing since when.
//!
//! Times are kept as a line without gaps: an activity begins where the one before ended, so the three sums are the time that has passed, exactly,
//! and a clock read at the end of one run is the beginning of the next.

use super::set::{Activity, ExecutorDesc, ExecutorMetrics, Set};
use saetta_ring::WriterEpoch;
use std::sync::Arc;

/// No edge of this executor has that stream.
const NO_EDGE: u8 = u8::MAX;

struct Line {
    activity: Activity,
    since_ns: u64,
}

/// See the head of this file. Belongs to one loop.
pub struct LoopMetrics {
    sets: Arc<[Set; 2]>,
    epoch: WriterEpoch,
    /// Per executor.
    lines: Box<[Line]>,
    own: Line,
    /// Per executor, by stream number: place among its edges.
    edges: Box<[Box<[u8]>]>,
}

impl LoopMetrics {
    pub(super) fn new(executors: &[ExecutorDesc], n_streams: usize, sets: Arc<[Set; 2]>, epoch: WriterEpoch, now_ns: u64) -> Self {
        let line = || Line { activity: Activity::Idle, since_ns: now_ns };
        let edges_of = |e: &ExecutorDesc| {
            let mut by_stream = vec![NO_EDGE; if e.edges.is_empty() { 0 } else { n_streams }];
            // An executor reads more than 254 streams: those beyond are not told apart from none, and counted nowhere.
            for (place, edge) in e.edges.iter().enumerate().take(NO_EDGE.into()) {
                by_stream[usize::from(edge.number)] = place as u8;
            }
            by_stream.into()
        };
        LoopMetrics {
            lines: executors.iter().map(|_| line()).collect(),
            own: line(),
            edges: executors.iter().map(edges_of).collect(),
            sets,
            epoch,
        }
    }

    #[inline(always)]
    fn set(&self) -> &Set {
        &self.sets[self.epoch.set()]
    }

    /// What is counted at the executor in this place of the loop.
    #[inline(always)]
    pub fn of(&self, executor: usize) -> &ExecutorMetrics {
        &self.set().executors[executor]
    }

    /// The edge by which frames of this stream come to that executor.
    #[inline(always)]
    pub fn edge(&self, executor: usize, stream: u16) -> Option<usize> {
        self.edges[executor].get(usize::from(stream)).filter(|place| **place != NO_EDGE).map(|place| usize::from(*place))
    }

    /// From `now_ns` on the executor does this. Not earlier than the last time told.
    #[inline]
    pub fn executor_is(&mut self, executor: usize, activity: Activity, now_ns: u64) {
        let line = &mut self.lines[executor];
        let (was, ns) = (line.activity, now_ns.saturating_sub(line.since_ns));
        *line = Line { activity, since_ns: line.since_ns + ns };
        self.of(executor).times.add(was, ns);
    }

    /// From `now_ns` on the loop does this.
    #[inline]
    pub fn loop_is(&mut self, activity: Activity, now_ns: u64) {
        let (was, ns) = (self.own.activity, now_ns.saturating_sub(self.own.since_ns));
        self.own = Line { activity, since_ns: self.own.since_ns + ns };
        self.set().times.add(was, ns);
    }

    /// Housekeeping: if the reader has asked, gives it what was counted up to `now_ns`. A load when it has not.
    pub fn turn(&mut self, now_ns: u64) -> bool {
        let LoopMetrics { sets, epoch, lines, own, .. } = self;
        let left = &sets[epoch.set()];
        epoch.turn(|| close(left, lines, own, now_ns))
    }

    pub(super) fn is_of(&self, sets: &Arc<[Set; 2]>) -> bool {
        Arc::ptr_eq(&self.sets, sets)
    }

    /// The loop is over. Which set it has filled last.
    pub(super) fn close(&mut self, now_ns: u64) -> usize {
        let LoopMetrics { sets, epoch, lines, own, .. } = self;
        close(&sets[epoch.set()], lines, own, now_ns);
        epoch.set()
    }
}

/// Puts what each activity under way has lasted until now into the set that is left.
fn close(left: &Set, lines: &mut [Line], own: &mut Line, now_ns: u64) {
    let upto = |line: &mut Line| {
        let ns = now_ns.saturating_sub(line.since_ns);
        line.since_ns += ns;
        (line.activity, ns)
    };
    for (line, executor) in lines.iter_mut().zip(&left.executors) {
        let (activity, ns) = upto(line);
        executor.times.add(activity, ns);
    }
    let (activity, ns) = upto(own);
    left.times.add(activity, ns);
}
