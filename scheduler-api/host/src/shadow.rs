//! A second plugin that gets the same rounds: its plan is checked, compared with what was decided, shown, and never used.
//!
//! Before: a round is decided. After: a comparison in the status. It runs on a thread of its own and holds up nothing: a round that comes
//! while it still thinks is one it does not get.

use crate::SchedulerOptions;
use crate::breaker::Gate;
use crate::compare::{Comparison, compare};
use crate::process::{Question, Spawner};
use crate::round::{Last, note_failure};
use crate::seat::Seat;
use saetta_sdk::abi;
use saetta_sdk::call::RoundArgs;
use saetta_sdk::snapshot::Snapshot;
use serde::Serialize;
use std::sync::{Arc, Mutex, PoisonError};

/// What a shadow did last.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ShadowReport {
    /// As operators call it.
    pub plugin: String,
    /// Rounds it was asked.
    pub rounds: u64,
    /// Of them, those without a usable answer.
    pub failures: u64,
    /// What went wrong last; absent where its last round went well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The last round it answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<u64>,
    /// Its plan and the one that was used, in that round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
}

pub(crate) struct Shadow {
    /// Held while it thinks.
    seat: Arc<Mutex<(Spawner, Seat)>>,
    report: Arc<Mutex<ShadowReport>>,
}

impl Shadow {
    pub(crate) fn new(seat: Seat) -> Self {
        let report = ShadowReport { plugin: seat.name.clone(), ..ShadowReport::default() };
        Shadow { seat: Arc::new(Mutex::new((Spawner::start(), seat))), report: Arc::new(Mutex::new(report)) }
    }

    pub(crate) fn report(&self) -> ShadowReport {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn reset(&self) {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner).1.reset();
    }

    /// Gives it a decided round, unless it still thinks about another one.
    pub(crate) fn follow(&self, options: &SchedulerOptions, last: &Last, now_ms: u64) {
        if self.seat.try_lock().is_err() {
            return;
        }
        let (seat, report, options) = (self.seat.clone(), self.report.clone(), options.clone());
        let (bytes, before, live) = (last.packed.bytes.clone(), last.packed.slot_of_exec.clone(), last.after.clone());
        let (n_topologies, args) = (last.packed.topologies.len(), RoundArgs { reason: abi::REASON_SHADOW, ..last.args });
        let think = move || {
            let mut guard = seat.lock().unwrap_or_else(PoisonError::into_inner);
            let (spawner, seat) = &mut *guard;
            if matches!(seat.breaker.gate(now_ms), Gate::Wait { .. }) {
                return;
            }
            let asked = seat.ask(spawner, &options, &Question { bytes: &bytes, before: &before, n_topologies, args }, options.deadline);
            let rules = options.policy.rules(seat.loaded.as_ref().map(|l| &l.manifest));
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            report.rounds += 1;
            match asked {
                Ok((answer, _)) => {
                    seat.breaker.succeeded(now_ms);
                    let snapshot = Snapshot::new(&bytes).expect("`pack` keeps the layout rules");
                    report.comparison = Some(compare(&snapshot, &live, &answer, &rules));
                    (report.failure, report.round) = (None, Some(args.round_id));
                }
                Err(failure) => {
                    note_failure(seat, now_ms, &failure);
                    report.failures += 1;
                    report.failure = Some(failure.to_string());
                }
            }
        };
        if let Err(e) = std::thread::Builder::new().name("sched-shadow".into()).spawn(think) {
            tracing::warn!(error = %e, "no thread for the shadow scheduler");
        }
    }
}
