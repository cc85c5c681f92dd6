//! What the cluster remembers of a topology (`topologies/<id>`), and its lifecycle as a pure step.

use crate::name::Name;
use crate::topology::TopologySpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The stored record of a submitted topology.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopologyRecord {
    /// `<name>-<n>-<seconds>`: unique for ever, also when a name is used again.
    pub id: Name,
    /// As the operator calls it.
    pub name: Name,
    /// What runs.
    pub spec: TopologySpec,
    /// `spec.digest()`, compared by workers.
    pub digest: String,
    /// SHA-256 of the binary, hex.
    pub binary: String,
    /// Arguments for the topology function, exactly as given after `--`.
    pub args: Vec<String>,
    /// Topology configuration as given (key -> text); defaults are not stored.
    pub config: BTreeMap<String, String>,
    /// Who submitted it.
    #[serde(default)]
    pub owner: String,
    /// Smaller runs first when machines are short.
    #[serde(default)]
    pub priority: i32,
    /// When it was submitted, milliseconds since 1970.
    pub submitted_ms: u64,
    /// Lifecycle.
    pub state: TopologyState,
    /// Idempotence: a submit repeated with the same request id answers the same record.
    #[serde(default)]
    pub request: String,
    /// True once every spout is done and everything drained.
    #[serde(default)]
    pub finished: bool,
}

/// Lifecycle. Deadlines are absolute (milliseconds since 1970), so that a new leader continues the wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum TopologyState {
    /// Spouts emit.
    Active,
    /// Spouts are off.
    Inactive,
    /// Spouts are off until the deadline, then it is removed.
    Killed {
        /// When it is removed.
        deadline_ms: u64,
    },
}

impl TopologyState {
    /// True where spouts emit.
    pub fn spouts_on(&self) -> bool {
        matches!(self, TopologyState::Active)
    }
    /// One word for people.
    pub fn word(&self) -> &'static str {
        match self {
            TopologyState::Active => "active",
            TopologyState::Inactive => "inactive",
            TopologyState::Killed { .. } => "killed",
        }
    }
    /// `kill` with a wait, at `now_ms`. Kill again sets a new deadline.
    pub fn kill(&self, now_ms: u64, wait_ms: u64) -> TopologyState {
        TopologyState::Killed { deadline_ms: now_ms.saturating_add(wait_ms) }
    }
}
