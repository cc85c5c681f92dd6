//! The plan as facts: every value a plugin wrote is hostile until it passed here.
//!
//! Before: a private copy of the plugin's answer. After: for each topology, accepted or the rule it breaks. One bad
//! topology does not discard the rest. Pure; reads only the snapshot, so a plan can be judged again from a recorded round.
//! The walk: [`view`] reads the rows once -> [`alone`] says what can be said of one topology -> [`together`] what cannot ->
//! [`lint`] only tells. Rules as numbered in the ABI's study:
//!
//! | rule | what | applies |
//! |---|---|---|
//! | V01 | the values exist | always |
//! | V02 | slots are open to new executors; what stays may stay | always |
//! | V03, V04 | one topology in a slot, also when another was to leave it | always |
//! | V05, V06 | nodes and workers hold what is asked of them | `Rules::resources` |
//! | V07 | constraints | where a topology asks for them, `Rules::constraints`; else told |
//! | V08 | no more slots than workers wanted | unless `Rules::resources` |
//! | V09 | no more running executors move than may | `Rules::max_moves` |
//! | V10 | who was not asked about stays; nobody loses its slots | `Rules::may_preempt` lifts the second |
//! | V11 | the outcome matches the facts | always |
//! | V12 | [`lint`] | told, not refused |
//! | V13 | a core is one of its slot's | always |

mod alone;
mod demand;
pub mod lint;
mod together;
mod view;

use crate::process::Answer;
use saetta_sdk::abi;
use saetta_sdk::snapshot::Snapshot;
use std::fmt;

pub use demand::charged;
pub(crate) use view::View;

/// What a plan is held to beyond what always holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The scheduler says that it keeps to what nodes have: V05 and V06 apply, and it chooses the number of workers itself (V08 does not).
    pub resources: bool,
    /// The scheduler says that it keeps what topologies ask for of their workers and nodes: V07 applies.
    pub constraints: bool,
    /// Running executors that may move; `abi::NONE` = no limit.
    pub max_moves: u32,
    /// Executors of a topology may lose their slots to one of a better priority.
    pub may_preempt: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Rules { resources: false, constraints: false, max_moves: abi::NONE, may_preempt: false }
    }
}

/// A topology's part of a plan that is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Number of the rule: 4 for V04.
    pub rule: u32,
    /// What is wrong, with the numbers.
    pub text: String,
}

impl Refusal {
    fn new(rule: u32, text: impl Into<String>) -> Self {
        Refusal { rule, text: text.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "V{:02}: {}", self.rule, self.text)
    }
}

/// Checks an answer: one verdict per row of the topology table. O((executors + slots) log executors) per pass, and a pass refuses at
/// least one topology. Panics only for a snapshot that is none, which is the host's bug.
pub fn validate(snapshot: &Snapshot<'_>, answer: &Answer, rules: &Rules) -> Vec<Result<(), Refusal>> {
    let view = View::new(snapshot);
    let (n_execs, n) = (view.execs.len(), view.topologies.len());
    let cores_fit = answer.core_of_exec.is_empty() || answer.core_of_exec.len() == n_execs;
    if answer.slot_of_exec.len() != n_execs || answer.outcome.len() != n || !cores_fit {
        let why = format!(
            "the plan has {} executors, {} cores and {} topologies, the round {n_execs} executors and {n} topologies",
            answer.slot_of_exec.len(),
            answer.core_of_exec.len(),
            answer.outcome.len(),
        );
        return vec![Err(Refusal::new(1, why)); n];
    }
    let verdicts = (0..n).map(|t| alone::check(&view, answer, rules, t)).collect();
    together::settle(&view, answer, rules, verdicts)
}
