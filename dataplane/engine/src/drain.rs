//! How bolts in a cycle end, since each would wait for the other's END: when nothing goes on any more.
//!
//! Before: everything a cycle reads from outside of it has ended. After: its loops hear `Command::Drained`, and its tasks end.
//! Drained = nothing waits anywhere, and as much was received as was sent, seen twice with nothing done between: loops tell at different times,
//! and a frame under way between two of them is in nobody's sum.

use crate::program::Program;
use crate::stats::Shared;
use saetta_model::name::Name;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Between two looks: several times what a loop at work takes to tell its counters.
const LOOK_EVERY_NS: u64 = 50_000_000;

/// Components that read from each other.
struct Cycle {
    members: Vec<Name>,
    /// What they read from besides.
    feeds: Vec<Name>,
}

/// Looks when the cycles of a topology whose executors are all here may end. Without cycles it never looks.
pub struct DrainWatch {
    cycles: Vec<Cycle>,
    next_look_ns: u64,
    /// What was done when it looked last, if nothing waited.
    done: Option<u64>,
}

impl DrainWatch {
    /// For the cycles of this program.
    pub(crate) fn new(program: &Program) -> Self {
        let mut cycles: Vec<Cycle> = Vec::new();
        for component in &program.spec.components {
            let members: Vec<Name> = program.in_cycle_with(&component.id).into_iter().cloned().collect();
            if members.is_empty() || cycles.iter().any(|c| c.members.contains(&component.id)) {
                continue;
            }
            let feeds = members.iter().flat_map(|id| program.reads(id)).filter(|id| !members.contains(id)).cloned().collect();
            cycles.push(Cycle { members, feeds });
        }
        DrainWatch { cycles, next_look_ns: 0, done: None }
    }

    /// For a worker that has peers: whether a topology is drained it cannot say.
    pub(crate) fn never() -> Self {
        DrainWatch { cycles: Vec::new(), next_look_ns: 0, done: None }
    }

    /// Components of cycles that are over, once: for [`crate::Command::Drained`]. Cheap to call often.
    pub fn look(&mut self, shared: &Shared, now_ns: u64) -> Option<Arc<[Name]>> {
        if self.cycles.is_empty() || now_ns < self.next_look_ns {
            return None;
        }
        self.next_look_ns = now_ns + LOOK_EVERY_NS;
        let done = done(shared);
        let before = std::mem::replace(&mut self.done, done);
        if done.is_none() || done != before {
            return None;
        }
        let executors = shared.executors();
        let ended = |id: &Name| executors.iter().filter(|e| e.component == *id).all(|e| e.ended.load(Ordering::Acquire));
        let (over, open) = std::mem::take(&mut self.cycles).into_iter().partition(|c| c.feeds.iter().all(ended));
        self.cycles = open;
        let over: Vec<Cycle> = over;
        (!over.is_empty()).then(|| over.into_iter().flat_map(|c| c.members).collect())
    }
}

/// What was done so far, as a number that only grows; `None` while something waits.
fn done(shared: &Shared) -> Option<u64> {
    let (mut sent, mut received, mut executed, mut waiting) = (0, 0, 0, 0);
    for l in &shared.loops {
        waiting += l.waiting_bytes.load(Ordering::Acquire);
        sent += l.sent_bytes.load(Ordering::Relaxed);
        received += l.received_bytes.load(Ordering::Relaxed);
        executed += l.executors().iter().map(|e| e.executed.load(Ordering::Relaxed)).sum::<u64>();
    }
    (waiting == 0 && sent == received).then_some(sent + executed)
}
