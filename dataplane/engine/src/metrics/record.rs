//! The loop's side: which set is filled now, and what each executor is doing since when.
//!
//! Times are kept as lines without gaps: an activity begins where the one before ended, so the three sums are the time that has passed,
//! exactly, and the clock read at the end of one run is the beginning of the next.

use super::set::{Activity, ExecutorDesc, ExecutorMetrics, Set, Times};
use saetta_ring::WriterEpoch;
use std::sync::Arc;

/// No edge of this executor has that stream.
const NO_EDGE: u8 = u8::MAX;

/// What one executor is doing.
struct Line {
    activity: Activity,
    since_ns: u64,
    /// Since the start, up to `since_ns`.
    times: Times,
}

/// What the loop itself does is known when its turn is over.
struct Own {
    since_ns: u64,
    /// Something ran since then.
    busy: bool,
    /// Executors that are blocked.
    n_blocked: usize,
    /// When a set was last left, or the start.
    left_ns: u64,
}

/// See the head of this file. Belongs to one loop; its clock begins with the first turn.
pub struct LoopMetrics {
    sets: Arc<[Set; 2]>,
    epoch: WriterEpoch,
    begun: bool,
    /// Per executor.
    lines: Box<[Line]>,
    own: Own,
    /// Per executor, by stream number: place among its edges.
    edges: Box<[Box<[u8]>]>,
}

impl LoopMetrics {
    pub(super) fn new(executors: &[ExecutorDesc], n_streams: usize, sets: Arc<[Set; 2]>, epoch: WriterEpoch) -> Self {
        let edges_of = |e: &ExecutorDesc| {
            let mut by_stream = vec![NO_EDGE; if e.edges.is_empty() { 0 } else { n_streams }];
            // An executor that reads more than 255 streams: those beyond are counted at none.
            for (place, edge) in e.edges.iter().enumerate().take(NO_EDGE.into()) {
                by_stream[usize::from(edge.number)] = place as u8;
            }
            by_stream.into()
        };
        LoopMetrics {
            lines: executors.iter().map(|_| Line { activity: Activity::Idle, since_ns: 0, times: Times::default() }).collect(),
            own: Own { since_ns: 0, busy: false, n_blocked: 0, left_ns: 0 },
            edges: executors.iter().map(edges_of).collect(),
            begun: false,
            sets,
            epoch,
        }
    }

    /// For a loop whose executors are others from `now_ns` on; `kept`: by their place, the place each had here. This one is closed by its reader.
    pub(crate) fn succeed(
        &self,
        executors: &[ExecutorDesc],
        n_streams: usize,
        kept: &[Option<usize>],
        now_ns: u64,
    ) -> (Self, super::LoopReader) {
        let (mut next, reader) = super::loop_metrics(executors.to_vec(), n_streams);
        next.begin(now_ns);
        for (line, before) in next.lines.iter_mut().zip(kept) {
            if let Some(before) = before.and_then(|place| self.lines.get(place)) {
                (line.activity, line.times) = (before.activity, before.times);
            }
        }
        next.own.n_blocked = next.lines.iter().filter(|line| line.activity == Activity::Blocked).count();
        (next, reader)
    }

    /// Those of a loop without executors.
    pub(crate) fn none() -> Self {
        super::loop_metrics(Vec::new(), 0).0
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

    /// `n` frames of this stream, so many bytes, were handled by that executor.
    #[inline(always)]
    pub fn frames(&self, executor: usize, stream: u16, n: u64, bytes: u64) {
        if let Some(edge) = self.edge(executor, stream) {
            self.of(executor).frames(edge, n, bytes);
        }
    }

    /// A turn of the loop begins: what it did until now is known.
    #[inline]
    pub fn turn_begins(&mut self, now_ns: u64) {
        if !self.begun {
            self.begin(now_ns);
        }
        let (activity, ns) = self.own.end(now_ns);
        self.set().times.add(activity, ns);
    }

    #[cold]
    fn begin(&mut self, now_ns: u64) {
        self.begun = true;
        self.lines.iter_mut().for_each(|line| line.since_ns = now_ns);
        (self.own.since_ns, self.own.left_ns) = (now_ns, now_ns);
    }

    /// The executor was busy between these two, and is blocked or idle from the second on.
    #[inline]
    pub fn ran(&mut self, executor: usize, from_ns: u64, to_ns: u64, blocked: bool) {
        self.own.busy = true;
        self.executor_is(executor, Activity::Busy, from_ns);
        self.executor_is(executor, if blocked { Activity::Blocked } else { Activity::Idle }, to_ns);
    }

    /// The executor, which does not run, is blocked or idle from `now_ns` on.
    #[inline]
    pub fn waits(&mut self, executor: usize, blocked: bool, now_ns: u64) {
        let activity = if blocked { Activity::Blocked } else { Activity::Idle };
        if self.lines[executor].activity != activity {
            self.executor_is(executor, activity, now_ns);
        }
    }

    #[inline]
    fn executor_is(&mut self, executor: usize, activity: Activity, now_ns: u64) {
        let line = &mut self.lines[executor];
        let (was, ns) = line.end(now_ns);
        line.activity = activity;
        self.own.n_blocked += usize::from(activity == Activity::Blocked);
        self.own.n_blocked -= usize::from(was == Activity::Blocked);
        self.of(executor).times.add(was, ns);
    }

    /// Since the start, up to the last change.
    pub fn times(&self, executor: usize) -> Times {
        self.lines[executor].times
    }

    /// Housekeeping: if the reader has asked, gives it what was counted up to `now_ns`. A load when it has not.
    pub fn turn(&mut self, now_ns: u64) -> bool {
        if !self.begun {
            self.begin(now_ns);
        }
        let LoopMetrics { sets, epoch, lines, own, .. } = self;
        let left = &sets[epoch.set()];
        epoch.turn(|| close(left, lines, own, now_ns))
    }

    pub(super) fn is_of(&self, sets: &Arc<[Set; 2]>) -> bool {
        Arc::ptr_eq(&self.sets, sets)
    }

    /// The loop is over. Which set it has filled last.
    pub(super) fn close(&mut self, now_ns: u64) -> usize {
        if !self.begun {
            self.begin(now_ns);
        }
        let LoopMetrics { sets, epoch, lines, own, .. } = self;
        close(&sets[epoch.set()], lines, own, now_ns);
        epoch.set()
    }
}

/// Puts what each activity under way has lasted until now into the set that is left.
fn close(left: &Set, lines: &mut [Line], own: &mut Own, now_ns: u64) {
    for (line, executor) in lines.iter_mut().zip(&left.executors) {
        let (activity, ns) = line.end(now_ns);
        executor.times.add(activity, ns);
    }
    let (activity, ns) = own.end(now_ns);
    left.times.add(activity, ns);
    left.wall_ns.add(now_ns.saturating_sub(own.left_ns));
    own.left_ns = own.left_ns.max(now_ns);
}

impl Line {
    /// What it did until now, and for how long.
    #[inline]
    fn end(&mut self, now_ns: u64) -> (Activity, u64) {
        let ns = now_ns.saturating_sub(self.since_ns);
        self.since_ns += ns;
        self.times.add_one(self.activity, ns);
        (self.activity, ns)
    }
}

impl Own {
    /// As [`Line::end`], for the loop.
    #[inline]
    fn end(&mut self, now_ns: u64) -> (Activity, u64) {
        let ns = now_ns.saturating_sub(self.since_ns);
        self.since_ns += ns;
        let activity = match (self.busy, self.n_blocked) {
            (true, _) => Activity::Busy,
            (false, 0) => Activity::Idle,
            (false, _) => Activity::Blocked,
        };
        self.busy = false;
        (activity, ns)
    }
}
