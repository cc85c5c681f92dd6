//! What the author of a scheduler imports: a safe view of the cluster, a safe view of the plan, one trait, one macro.
//!
//! Before: a host calls the exported function of `saetta_abi`. After: [`Scheduler::schedule`] has filled the plan.
//! Every shipped scheduler is written against this, and the helper calls the one linked into it through the same
//! table of functions as a loaded one ([`call`]). No clock, no file, no thread, no randomness but the round's seed.
//!
//! ```
//! use saetta_sdk::{CreateCx, Outcome, Plan, PluginError, Round, Scheduler, Verdict};
//!
//! struct Nothing;
//! impl Scheduler for Nothing {
//!     fn create(_: &CreateCx<'_>) -> Result<Self, PluginError> {
//!         Ok(Nothing)
//!     }
//!     fn schedule(&mut self, _: &Round<'_>, _: &mut Plan<'_>) -> Result<Verdict, PluginError> {
//!         Ok(Verdict::NoChange) // the plan holds the current placement: writing nothing keeps it
//!     }
//! }
//! saetta_sdk::export_scheduler!(Nothing, id = "nothing");
//! ```

#[expect(unsafe_code, reason = "calls a scheduler through the C table of functions")]
pub mod call;
pub mod config;
pub mod deal;
#[doc(hidden)]
#[expect(unsafe_code, reason = "the plugin's side of the C table: raw pointers from the host become checked references")]
pub mod entry;
pub mod extension;
pub mod locality;
pub mod model;
#[doc(hidden)]
pub mod note;
pub mod snapshot;
pub mod testing;
pub mod usage;
mod writer;

pub use extension::{Configured, Explanation, Extension, Fitness, Health, Memory, NodeHealth};
pub use saetta_abi as abi;
/// JSON, for what a scheduler keeps in its memory and its configuration.
pub use serde_json as json;
pub use snapshot::{
    Amounts, BlockId, CompId, CoreId, EdgeId, ExecId, HostId, KindId, NodeId, RackId, Rate, Rows, SlotId, Snapshot, SnapshotError, TopoId,
    UserId,
};

use std::fmt;

/// A scheduler. One instance per helper process, called on one thread.
pub trait Scheduler: Sized + Send + 'static {
    /// What it has beyond a scheduler, as `&[Extension::memory::<Self>()]`.
    const EXTENSIONS: &'static [Extension] = &[];
    /// Makes an instance from its configuration.
    fn create(cx: &CreateCx<'_>) -> Result<Self, PluginError>;
    /// Decides. The plan arrives filled with the current placement; what is not written stays.
    /// On `Err` (or a panic) the plan is discarded and the host falls back.
    fn schedule(&mut self, round: &Round<'_>, plan: &mut Plan<'_>) -> Result<Verdict, PluginError>;
}

/// What an instance is made from.
#[derive(Debug, Clone, Copy)]
pub struct CreateCx<'a> {
    /// Name of the instance.
    pub name: &'a str,
    /// Configuration as JSON text; `{}` when there is none.
    pub config: &'a str,
}

/// Result of a round that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The plan was written.
    Done,
    /// The plan was left as it came.
    NoChange,
}

/// Why a call failed: a code of the ABI and one line for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginError {
    /// `abi::E_*`, negative.
    pub code: i32,
    /// What is wrong and what to do.
    pub text: String,
}

impl PluginError {
    /// A bug of the plugin, or an outcome it has no better code for.
    pub fn internal(text: impl Into<String>) -> Self {
        PluginError { code: abi::E_INTERNAL, text: text.into() }
    }
}

impl From<SnapshotError> for PluginError {
    fn from(e: SnapshotError) -> Self {
        let code = if matches!(e, SnapshotError::Unsupported(_)) { abi::E_UNSUPPORTED } else { abi::E_BAD_SNAPSHOT };
        PluginError { code, text: e.to_string() }
    }
}

impl fmt::Display for PluginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, code_name(self.code))
    }
}

impl std::error::Error for PluginError {}

/// The name of a return code, as `E_PANIC`.
pub fn code_name(code: i32) -> String {
    let named = abi::CONSTANTS.iter().find(|c| c.value == i64::from(code) && (c.name.starts_with("E_") || c.name.starts_with("OK")));
    named.map_or_else(|| format!("code {code}"), |c| c.name.to_owned())
}

/// What is asked in one round.
pub struct Round<'a> {
    /// The cluster.
    pub snapshot: Snapshot<'a>,
    /// `abi::REASON_*`.
    pub reason: u32,
    /// Rises with each round.
    pub round_id: u64,
    /// The only permitted randomness.
    pub seed: u64,
    /// Running executors that may move; `None` = no limit.
    pub max_moves: Option<u32>,
    /// Executors of topologies with lower priority may be freed.
    pub may_preempt: bool,
    pub(crate) explain: Option<&'a dyn Fn(&Explanation<'_>)>,
    pub(crate) should_stop: &'a dyn Fn() -> bool,
    pub(crate) log: &'a dyn Fn(i32, &str),
}

impl Round<'_> {
    /// True when the plugin should return its best plan so far. Cheap.
    pub fn should_stop(&self) -> bool {
        (self.should_stop)()
    }
    /// True when somebody waits for reasons: worth the work of computing runners-up.
    pub fn wants_reasons(&self) -> bool {
        self.explain.is_some()
    }
    /// Says why an executor is in a slot or in none. Does nothing unless [`Round::wants_reasons`].
    pub fn explain(&self, explanation: &Explanation<'_>) {
        if let Some(explain) = self.explain {
            explain(explanation);
        }
    }
    /// One line into the leader's log, level info.
    pub fn info(&self, text: &str) {
        (self.log)(abi::LOG_INFO, text);
    }
    /// One line into the leader's log, level warn: someone should act later.
    pub fn warn(&self, text: &str) {
        (self.log)(abi::LOG_WARN, text);
    }
}

/// What became of one topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing decided: its placement must be left as it came.
    Keep,
    /// Every executor has a slot.
    Scheduled,
    /// Some have none.
    Partial,
    /// Nothing can be placed.
    Unschedulable,
    /// It waits for something; ask again.
    Waiting,
    /// This scheduler can never place it.
    Invalid,
}

/// The answer: the host's own arrays, filled with the current placement.
pub struct Plan<'a> {
    slot_of_exec: &'a mut [u32],
    outcome: &'a mut [u32],
    /// Empty where the host takes no cores.
    core_of_exec: &'a mut [u32],
    n_slots: u32,
    n_cores: u32,
}

impl<'a> Plan<'a> {
    /// Where an executor is by the plan so far.
    pub fn slot_of(&self, exec: ExecId) -> Option<SlotId> {
        SlotId::some(self.slot_of_exec[exec.index()])
    }
    /// Places or moves an executor. Panics for a slot that is not in the snapshot.
    pub fn place(&mut self, exec: ExecId, slot: SlotId) {
        assert!(slot.0 < self.n_slots, "slot {} is not in the snapshot, which has {}", slot.0, self.n_slots);
        self.slot_of_exec[exec.index()] = slot.0;
    }
    /// Takes an executor off its slot.
    pub fn free(&mut self, exec: ExecId) {
        self.slot_of_exec[exec.index()] = abi::NONE;
    }
    /// True when the host takes cores; else [`Plan::core`] does nothing.
    pub fn takes_cores(&self) -> bool {
        !self.core_of_exec.is_empty()
    }
    /// Puts an executor on one of its slot's cores; without it Saetta chooses one. It holds for this plan only: a scheduler that wants
    /// an executor to stay on its core says so in each round. Panics for a core that is not in the snapshot.
    pub fn core(&mut self, exec: ExecId, core: CoreId) {
        if self.takes_cores() {
            assert!(core.0 < self.n_cores, "core {} is not in the snapshot, which has {}", core.0, self.n_cores);
            self.core_of_exec[exec.index()] = core.0;
        }
    }
    /// Says what became of a topology.
    pub fn outcome(&mut self, topology: TopoId, outcome: Outcome) {
        self.outcome[topology.index()] = match outcome {
            Outcome::Keep => abi::OUT_KEEP,
            Outcome::Scheduled => abi::OUT_SCHEDULED,
            Outcome::Partial => abi::OUT_PARTIAL,
            Outcome::Unschedulable => abi::OUT_UNSCHEDULABLE,
            Outcome::Waiting => abi::OUT_WAITING,
            Outcome::Invalid => abi::OUT_INVALID_TOPOLOGY,
        };
    }
}

/// Exports a [`Scheduler`] as a plugin: the entry function, the guard against panics, the manifest note, and
/// `pub const BUILTIN` for a host that links the plugin in and calls it through the same table.
///
/// The crate's `Cargo.toml` says `crate-type = ["cdylib", "rlib"]`. The crate itself may `#![forbid(unsafe_code)]`.
/// One exported scheduler per crate; a program can link at most one in, since the symbol is the same for all.
///
/// After the id, in this order and each only where there is something to say: `claims = ["storm.even/1"]` (rule books it keeps, which
/// `saetta scheduler validate` then checks), `needs = ["saetta.stats/1"]` (extensions of the host without which it is not loaded),
/// `wants = [..]` (those it makes use of), `flags = ["threads"]`.
#[macro_export]
macro_rules! export_scheduler {
    (
        $ty:ty, id = $id:literal
        $(, claims = [$($claim0:literal $(, $claim:literal)* $(,)?)?])?
        $(, needs = [$($need0:literal $(, $need:literal)* $(,)?)?])?
        $(, wants = [$($want0:literal $(, $want:literal)* $(,)?)?])?
        $(, flags = [$($flag0:literal $(, $flag:literal)* $(,)?)?])?
        $(,)?
    ) => {
        #[cfg(panic = "abort")]
        ::core::compile_error!(
            "a scheduler plugin must be built with panic = \"unwind\": under abort a panic kills the helper instead of failing the round"
        );

        /// This scheduler for a host that links it in.
        pub const BUILTIN: $crate::call::Builtin = $crate::entry::builtin::<$ty>($id);

        const _: () = {
            const MANIFEST: &str = ::core::concat!(
                "{\"id\":\"",
                $id,
                "\",\"version\":\"",
                ::core::env!("CARGO_PKG_VERSION"),
                "\",\"abi\":{\"major\":1,\"minor\":0,\"min_host_minor\":0},\"claims\":[",
                $($("\"", $claim0, "\"" $(, ",\"", $claim, "\"")*,)?)?
                "],\"needs\":[",
                $($("\"", $need0, "\"" $(, ",\"", $need, "\"")*,)?)?
                "],\"wants\":[",
                $($("\"", $want0, "\"" $(, ",\"", $want, "\"")*,)?)?
                "],\"flags\":[",
                $($("\"", $flag0, "\"" $(, ",\"", $flag, "\"")*,)?)?
                "],\"fork_tag\":\"\",\"built\":\"rust\"}"
            );

            #[used]
            #[unsafe(link_section = ".note.saetta.sched")]
            static NOTE: $crate::note::Note<{ $crate::note::padded(MANIFEST.len()) }> = $crate::note::Note::new(MANIFEST);

            #[unsafe(no_mangle)]
            unsafe extern "C" fn saetta_scheduler_v1(host: *const $crate::abi::Host, plugin: *mut $crate::abi::Plugin) -> i32 {
                // SAFETY: the caller is a host that keeps the ABI's contract.
                unsafe { $crate::entry::export::<$ty>(host, plugin) }
            }
        };
    };
}
