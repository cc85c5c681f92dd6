//! What the cluster is told about this node's workers, and how often.
//!
//! Before: `agent` has a new picture of its slots. After: one value in `beats/<supervisor>`.
//! Pure. A beat goes out at once (but not more than one a second) when anything but counters changed; counters alone go along
//! every ten seconds. `status` therefore shows counters that are up to ten seconds old: the architecture allows one write
//! per ten seconds and supervisor while nothing changes, and a faster rhythm would make the store carry counters.
//! While a killed topology drains here, every second: a kill's wait ends early on two beats in a row that call it drained.

use saetta_model::beat::SupervisorBeat;

/// Shortest time between two writes.
pub(crate) const CHANGE_EVERY_MS: u64 = 1_000;
/// Time between two writes when only counters changed.
pub(crate) const COUNTERS_EVERY_MS: u64 = 10_000;

/// What `agent` hands over.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Picture {
    /// All workers.
    pub(crate) beat: SupervisorBeat,
    /// True while one of them belongs to a killed topology.
    pub(crate) draining: bool,
}

/// Decides when a beat is written.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// What was last written, without counters.
    shape: Option<SupervisorBeat>,
    /// When.
    written_ms: u64,
}

impl Pace {
    /// When `picture` should be written.
    pub(crate) fn due_ms(&self, picture: &Picture) -> u64 {
        match &self.shape {
            None => 0,
            Some(shape) if *shape == shape_of(&picture.beat) && !picture.draining => self.written_ms + COUNTERS_EVERY_MS,
            Some(_) => self.written_ms + CHANGE_EVERY_MS,
        }
    }

    /// `beat` was written.
    pub(crate) fn written(&mut self, beat: &SupervisorBeat, now_ms: u64) {
        self.shape = Some(shape_of(beat));
        self.written_ms = now_ms;
    }

    /// The store lost what was written, or may have.
    pub(crate) fn forget(&mut self) {
        self.shape = None;
    }
}

fn shape_of(beat: &SupervisorBeat) -> SupervisorBeat {
    let mut shape = beat.clone();
    shape.at_ms = 0;
    shape.workers.iter_mut().for_each(|w| w.edges.clear());
    for e in shape.workers.iter_mut().flat_map(|w| &mut w.executors) {
        (e.executed, e.emitted, e.transferred, e.failed, e.busy_per_mille) = (0, 0, 0, 0, 0);
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;
    use saetta_model::beat::{ExecutorBeat, WorkerBeat};
    use saetta_model::parallelism::ExecutorId;

    fn picture(executed: u64, state: &str, ended: bool) -> Picture {
        let id = ExecutorId { first: 1, last: 1 };
        let busy_per_mille = executed as u32 % 1001;
        let executor = ExecutorBeat { id, core: 0, executed, emitted: executed, transferred: executed, failed: 0, busy_per_mille, ended };
        let beat = SupervisorBeat {
            at_ms: executed,
            workers: vec![WorkerBeat {
                topology: "wc".into(),
                port: 6700,
                placement: 1,
                start: 1,
                pid: 9,
                state: state.into(),
                note: String::new(),
                version: 1,
                executors: vec![executor],
                ended: false,
                drained: false,
                carrier: String::new(),
                edges: Vec::new(),
            }],
        };
        Picture { beat, draining: false }
    }

    #[test]
    fn counters_alone_go_out_every_ten_seconds_anything_else_within_one() {
        let mut pace = Pace::default();
        assert_eq!(pace.due_ms(&picture(1, "running", false)), 0, "the first at once");
        pace.written(&picture(1, "running", false).beat, 5_000);
        assert_eq!(pace.due_ms(&picture(900, "running", false)), 15_000);
        assert_eq!(pace.due_ms(&picture(900, "stopping", false)), 6_000);
        assert_eq!(pace.due_ms(&picture(900, "running", true)), 6_000, "an executor that ended is no counter");
        let draining = Picture { draining: true, ..picture(1, "running", false) };
        assert_eq!(pace.due_ms(&draining), 6_000, "a kill may be waiting for it");
        pace.forget();
        assert_eq!(pace.due_ms(&picture(1, "running", false)), 0);
    }
}
