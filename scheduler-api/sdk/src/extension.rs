//! What a scheduler may have or use beyond scheduling: reasons, a memory, a judgement of nodes, a configuration that explains itself.
//!
//! A scheduler implements one of the traits and names it in [`Scheduler::EXTENSIONS`]; the host finds it by its id and calls it through
//! the C table. The other way round, what the host may have is in [`Round`]: [`Round::explain`] and measured rates.

use crate::{ExecId, NodeId, PluginError, Round, Scheduler, SlotId, Verdict, entry};
use saetta_abi as abi;
use std::ffi::c_void;

/// One extension of a scheduler.
#[derive(Debug, Clone, Copy)]
pub struct Extension(Table);

#[derive(Debug, Clone, Copy)]
enum Table {
    State(&'static abi::StateV1),
    NodeHealth(&'static abi::NodeHealthV1),
    Config(&'static abi::ConfigV1),
}

/// A scheduler whose memory outlives its instance: a new leader's instance goes on where the old one was.
pub trait Memory: Scheduler {
    /// At most 1 MiB; called after a round.
    fn save(&self) -> Vec<u8>;
    /// Called right after create, also with what an older version wrote. After an `Err` it goes on as a new one.
    fn restore(&mut self, bytes: &[u8]) -> Result<(), PluginError>;
}

/// A stage that says which nodes are not to be used, before the round's scheduler sees them.
pub trait NodeHealth: Scheduler {
    /// Arrives with the marks of the snapshot; what is not written stays.
    fn judge(&mut self, round: &Round<'_>, health: &mut Health<'_>) -> Result<Verdict, PluginError>;
}

/// A scheduler that tells how it may be configured and how it is.
pub trait Configured: Scheduler {
    /// JSON schema of its configuration.
    fn schema() -> String;
    /// The configuration in force as JSON, defaults filled in.
    fn effective(&self) -> String;
}

impl Extension {
    /// `saetta.state/1`.
    pub const fn memory<S: Memory>() -> Self {
        Extension(Table::State(
            const {
                &abi::StateV1 {
                    struct_size: size_of::<abi::StateV1>() as u32,
                    reserved: 0,
                    save: Some(entry::save::<S>),
                    restore: Some(entry::restore::<S>),
                }
            },
        ))
    }
    /// `saetta.node_health/1`.
    pub const fn node_health<S: NodeHealth>() -> Self {
        Extension(Table::NodeHealth(
            const { &abi::NodeHealthV1 { struct_size: size_of::<abi::NodeHealthV1>() as u32, reserved: 0, health: Some(entry::health::<S>) } },
        ))
    }
    /// `saetta.config/1`.
    pub const fn config<S: Configured>() -> Self {
        Extension(Table::Config(
            const {
                &abi::ConfigV1 {
                    struct_size: size_of::<abi::ConfigV1>() as u32,
                    reserved: 0,
                    schema: Some(entry::schema::<S>),
                    effective: Some(entry::effective::<S>),
                }
            },
        ))
    }
    pub(crate) fn id(&self) -> &'static str {
        match self.0 {
            Table::State(_) => abi::EXT_STATE,
            Table::NodeHealth(_) => abi::EXT_NODE_HEALTH,
            Table::Config(_) => abi::EXT_CONFIG,
        }
    }
    pub(crate) fn table(&self) -> *const c_void {
        match self.0 {
            Table::State(t) => (&raw const *t).cast(),
            Table::NodeHealth(t) => (&raw const *t).cast(),
            Table::Config(t) => (&raw const *t).cast(),
        }
    }
}

/// Why an executor is in a slot, or in none. Several about one executor: the choice, and what else was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation<'a> {
    /// Who.
    pub exec: ExecId,
    /// `None` = about no slot.
    pub slot: Option<SlotId>,
    /// `abi::WHY_*`.
    pub code: u32,
    /// What the code says it is: a topology, a kind, a component.
    pub arg: Option<u32>,
    /// Larger is better, in thousandths.
    pub score: i64,
    /// What the score is made of; the first eight are taken.
    pub parts: &'a [(&'a str, i64)],
    /// One line; the first 256 bytes are taken.
    pub text: &'a str,
}

impl<'a> Explanation<'a> {
    /// A reason with nothing more to it.
    pub fn new(exec: ExecId, slot: Option<SlotId>, code: u32) -> Self {
        Explanation { exec, slot, code, arg: None, score: 0, parts: &[], text: "" }
    }
}

/// What a node is fit for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fitness {
    /// Used as any other.
    Good,
    /// Used last.
    Greylisted,
    /// Gets nothing new; what runs there may stay.
    Blacklisted,
}

/// The answer of [`NodeHealth::judge`].
pub struct Health<'a> {
    pub(crate) flags: &'a mut [u32],
}

impl Health<'_> {
    /// By the answer so far.
    pub fn of(&self, node: NodeId) -> Fitness {
        match self.flags[node.index()] {
            f if f & abi::NODE_BLACKLISTED != 0 => Fitness::Blacklisted,
            f if f & abi::NODE_GREYLISTED != 0 => Fitness::Greylisted,
            _ => Fitness::Good,
        }
    }
    /// Says what a node is fit for.
    pub fn mark(&mut self, node: NodeId, fitness: Fitness) {
        let flags = &mut self.flags[node.index()];
        *flags &= !(abi::NODE_BLACKLISTED | abi::NODE_GREYLISTED);
        *flags |= match fitness {
            Fitness::Good => 0,
            Fitness::Greylisted => abi::NODE_GREYLISTED,
            Fitness::Blacklisted => abi::NODE_BLACKLISTED,
        };
    }
}
