//! What a round has to say of what it left out.
//!
//! Before: a topology was refused or did not fit. After: it is told, once it is known which manner of placing counts. Not here: the decision.

use crate::search::{self, Failure};
use saetta_sdk::model::Model;
use saetta_sdk::{ExecId, Explanation, Round, Snapshot, TopoId, abi};

/// Something to tell.
pub(crate) enum Said {
    Warn(String),
    /// Executors without a slot, the code with its argument, and why.
    Left(Vec<ExecId>, (u32, Option<u32>), String),
}

impl Said {
    pub(crate) fn tell(&self, round: &Round<'_>) {
        match self {
            Said::Warn(text) => round.warn(text),
            Said::Left(execs, (code, arg), text) => {
                execs.iter().for_each(|exec| round.explain(&Explanation { arg: *arg, text, ..Explanation::new(*exec, None, *code) }));
            }
        }
    }

    /// A topology that can never be placed as it is.
    pub(crate) fn refused(snapshot: &Snapshot<'_>, topology: TopoId, text: &str) -> Said {
        Said::Warn(format!("topology {} cannot be placed: {text}", snapshot.text(snapshot.topologies().at(topology).id)))
    }

    /// Why the executors of a topology that are in no slot are in none.
    pub(crate) fn left(snapshot: &Snapshot<'_>, model: &Model, topology: TopoId, failure: Failure) -> Said {
        let (why, text) = match failure {
            Failure::NoRoom(exec) => (
                search::reason(model, exec).why(),
                "no node has room for all that waits; free resources, lower a request, or lower another topology's priority".to_owned(),
            ),
            Failure::States(n) => (
                (abi::WHY_DEADLINE, None),
                format!("{n} placements were tried, as many as it allows; raise topology.ras.constraint.max.state.search"),
            ),
            Failure::Stopped => ((abi::WHY_DEADLINE, None), "the round's time was over; it is tried again".to_owned()),
        };
        let row = snapshot.topologies().at(topology);
        let left = snapshot.executors_of(&row).map(|(e, _)| e).filter(|e| model.slot_of(*e).is_none()).collect();
        Said::Left(left, why, text)
    }
}
