//! Where it may run: what a supervisor says of itself. Written by the supervisor, read by nimbus and schedulers.

use crate::name::Name;
use crate::topology::Resources;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One machine as its supervisor reports it; the ephemeral node `supervisors/<id>` holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SupervisorInfo {
    /// Stable over restarts (kept in the supervisor's directory).
    pub id: Name,
    /// Address its workers are reached at by other workers.
    pub host: String,
    /// Rack, for schedulers that look at distance. Empty = not stated.
    #[serde(default)]
    pub rack: String,
    /// Slots, ports ascending.
    pub slots: Vec<SlotInfo>,
    /// What the machine offers to executors.
    pub resources: Resources,
    /// Facts a binary's ELF header is compared with.
    pub platform: Platform,
    /// Session of this supervisor process: differs after each restart.
    pub incarnation: u64,
    /// When this supervisor process started, milliseconds since 1970; 0 = not stated.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub started_ms: u64,
    /// How the cores of its slots lie to each other, ascending by number; empty = not stated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<CoreInfo>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Where a core lies on its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreInfo {
    /// Number the operating system gives it.
    pub id: u32,
    /// Cores with the same number share their last-level cache.
    pub l3: u32,
    /// NUMA node.
    pub numa: u32,
    /// The other thread of the same physical core, whether or not this supervisor has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sibling: Option<u32>,
    /// True where the kernel schedules nothing of its own choice (`isolcpus`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub isolated: bool,
}

/// One slot: a port a worker can live at, and the cores it would get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotInfo {
    /// TCP port of the worker.
    pub port: u16,
    /// Cores granted to the worker in this slot, ascending. Never empty.
    pub cores: Vec<u32>,
    /// Slots that were granted the same core; 1 = alone. A loop spins only where it is alone.
    pub share: u32,
}

/// What binaries a node can run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// ELF machine as text: `x86_64`, `aarch64`.
    pub machine: String,
    /// glibc version as (major, minor); `None` where there is none.
    pub glibc: Option<(u32, u32)>,
}

/// A slot by supervisor and port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SlotId {
    /// Supervisor id.
    pub node: Name,
    /// Port.
    pub port: u16,
}

/// Everything a scheduling round looks at about machines.
pub type Supervisors = BTreeMap<Name, SupervisorInfo>;

/// Divides a supervisor's cores over its slots. At least as many cores as slots: consecutive runs, the first slots one more.
/// Fewer: slot i gets core i mod n, and `share` says how many slots sit on it.
pub fn divide_cores(ports: &[u16], cores: &[u32]) -> Vec<SlotInfo> {
    assert!(!cores.is_empty(), "a supervisor without a core cannot run workers");
    let (n_slots, n_cores) = (ports.len(), cores.len());
    if n_cores >= n_slots {
        let mut at = 0;
        return ports
            .iter()
            .enumerate()
            .map(|(i, port)| {
                let n = n_cores / n_slots + usize::from(i < n_cores % n_slots);
                at += n;
                SlotInfo { port: *port, cores: cores[at - n..at].to_vec(), share: 1 }
            })
            .collect();
    }
    ports
        .iter()
        .enumerate()
        .map(|(i, port)| {
            let mine = i % n_cores;
            let share = (0..n_slots).filter(|j| j % n_cores == mine).count() as u32;
            SlotInfo { port: *port, cores: vec![cores[mine]], share }
        })
        .collect()
}
