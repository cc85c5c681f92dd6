//! Nimbus's half of scheduling: pack the cluster, ask a plugin in a helper process, validate its answer, fall back.
//!
//! Before: `controlplane/nimbus` has topologies without a place, or a safety-net round. After: [`RoundOutcome`], from which
//! nimbus makes assignments. The walk inside: [`pack`] -> `seat` (is it asked at all: [`breaker`]) -> [`process`] or `inproc` (this side
//! of the channel) | [`helper`] (that side) -> `plugins/*` through the C ABI -> [`validate`] -> [`Scheduler::round`] puts the parts
//! together -> [`record`], `shadow`, [`why`]. What operators ask for is in [`switch`]; what authors do, in [`facts`] and [`conformance`].
//! The host trusts no plugin: one that is missing, panics, crashes, loops, leaks or answers nonsense costs one round.

mod accept;
pub mod ask;
mod block;
pub mod breaker;
pub mod compare;
pub mod conformance;
pub mod facts;
pub mod helper;
mod inproc;
pub mod inspect;
pub mod library;
mod notes;
pub mod options;
pub mod pack;
pub mod policy;
pub mod process;
pub mod record;
pub mod round;
mod seat;
pub mod shadow;
pub mod status;
pub mod switch;
pub mod validate;
pub mod why;
mod wire;

pub use options::{Facts, SchedulerOptions};
pub use policy::Policy;
pub use process::Answer;
pub use round::{How, Reason, RoundInput, RoundOutcome, RoundTopology, Scheduler, TopologyPlan};
pub use seat::Memory;
