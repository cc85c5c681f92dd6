//! Nimbus's half of scheduling: pack the cluster, ask a plugin in a helper process, validate its answer, fall back.
//!
//! Before: `controlplane/nimbus` has topologies without a place, or a safety-net round. After: [`RoundOutcome`], from which
//! nimbus makes assignments. The walk inside: [`pack`] -> [`process`] (this side of the channel) | [`helper`] (that side) ->
//! `plugins/*` through the C ABI -> [`validate`] -> [`Scheduler::round`] puts the parts together.
//! The host trusts no plugin: one that is missing, panics, crashes, loops, leaks or answers nonsense costs one round.

pub mod ask;
pub mod conformance;
pub mod facts;
pub mod helper;
pub mod inspect;
pub mod options;
pub mod pack;
pub mod process;
pub mod round;
pub mod validate;
mod wire;

pub use options::{Facts, SchedulerOptions};
pub use process::Answer;
pub use round::{How, Reason, RoundInput, RoundOutcome, RoundTopology, Scheduler, TopologyPlan};
