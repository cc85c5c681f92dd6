//! What a supervisor tells the cluster about its workers: one small value per supervisor (`beats/<supervisor>`).

use crate::name::Name;
use crate::parallelism::ExecutorId;
use serde::{Deserialize, Serialize};

/// All workers of one supervisor.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SupervisorBeat {
    /// When it was written, milliseconds since 1970 (display only; liveness is the ephemeral node).
    pub at_ms: u64,
    /// One per slot that is not empty.
    pub workers: Vec<WorkerBeat>,
}

/// One worker as its supervisor sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerBeat {
    /// Topology id.
    pub topology: String,
    /// Port.
    pub port: u16,
    /// Placement id from the assignment.
    pub placement: u64,
    /// How often this placement was started; kept on disk, raised before each start.
    pub start: u64,
    /// Process id; 0 while none runs.
    pub pid: u32,
    /// One word: fetching, starting, running, stopping, failed.
    pub state: String,
    /// Last reason a worker ended or could not start. Empty = none.
    #[serde(default)]
    pub note: String,
    /// Assignment version the worker has in force.
    pub version: u64,
    /// Counters, ascending by executor.
    pub executors: Vec<ExecutorBeat>,
    /// True when all tasks of the worker have ended.
    #[serde(default)]
    pub ended: bool,
    /// The worker's own word (`local::FromWorker::Beat`): no frame waits anywhere in it. A kill's wait ends early on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drained: bool,
    /// The worker's own word: what carries its links, and why it is not io_uring where that was wanted. Empty = it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub carrier: String,
    /// What comes over each subscription to its executors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<EdgeRate>,
}

/// Seconds after which the average of a rate has forgotten two thirds of what was.
pub const RATE_WINDOW_S: u32 = 30;

/// What comes over a subscription per second: in a worker's beat to the executors there, in a scheduling round to all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeRate {
    /// Emitting component.
    pub from: Name,
    /// Subscribing component.
    pub to: Name,
    /// Stream.
    pub stream: Name,
    /// Tuples.
    pub tuples_per_s: u64,
    /// Bytes of their frames.
    pub bytes_per_s: u64,
}

/// Counters of one executor since its worker started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecutorBeat {
    /// Which.
    pub id: ExecutorId,
    /// Core its loop runs on, as read back from the kernel after pinning.
    pub core: u32,
    /// Tuples handled (bolt) or `next` calls that emitted (spout).
    pub executed: u64,
    /// Tuples emitted (counted once per emit).
    pub emitted: u64,
    /// Frames sent (once per copy).
    pub transferred: u64,
    /// Inputs that failed.
    pub failed: u64,
    /// Thousandths of the time since the beat before in which it ran.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub busy_per_mille: u32,
    /// True when every task of it has ended.
    pub ended: bool,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}
