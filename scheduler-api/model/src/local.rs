//! What a supervisor and its worker tell each other over the local Unix socket.
//!
//! A message is a u32 length (little-endian, at most [`MESSAGE_BYTES_MAX`]) and JSON. The worker connects and speaks
//! first: `Hello` names the range of versions it understands; the supervisor answers `Boot` in the highest common version
//! or `Refused`. After that both sides send what they have, unasked. The socket may end at any time (the supervisor was
//! restarted): the worker goes on and connects again to the same path, saying `Hello` with what it is.
//! The topology key is not here: it comes on an inherited descriptor and stays in memory.

use crate::assignment::Assignment;
use crate::beat::{EdgeRate, ExecutorBeat};
use crate::name::Name;
use crate::record::TopologyRecord;
use serde::{Deserialize, Serialize};

/// Oldest version of these messages this build understands.
pub const VERSION_MIN: u32 = 1;
/// Newest.
pub const VERSION_MAX: u32 = 1;
/// Longest message in bytes; a longer one ends the connection.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// The worker sends a beat at least this often.
pub const BEAT_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// Worker to supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "t")]
pub enum FromWorker {
    /// First message on every connection.
    Hello {
        /// Oldest and newest version understood.
        versions: (u32, u32),
        /// Topology id; as given in argv.
        topology: Name,
        /// Port of the slot; as given in argv.
        port: u16,
        /// Placement id it was started for.
        placement: u64,
        /// Start number it was started with.
        start: u64,
        /// Own process id.
        pid: u32,
        /// Assignment version in force; 0 before the first `Boot`.
        version: u64,
    },
    /// Proof of life from the watchdog thread, with counters.
    Beat {
        /// Assignment version in force.
        version: u64,
        /// True when every task here has ended.
        ended: bool,
        /// True when no frame is waiting anywhere in this worker.
        drained: bool,
        /// What carries its links and why, in one line; empty = it has none.
        #[serde(default)]
        carrier: String,
        /// Counters.
        executors: Vec<ExecutorBeat>,
        /// What comes over each subscription.
        #[serde(default)]
        edges: Vec<EdgeRate>,
    },
    /// Something an operator should see: a panic, a stuck loop, a refused peer.
    Error {
        /// Component or `__system`.
        component: Name,
        /// One line.
        text: String,
    },
}

/// Supervisor to worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "t")]
pub enum ToWorker {
    /// Answer to `Hello`: everything a worker needs to start, or to go on.
    Boot {
        /// Version in force on this connection.
        version: u32,
        /// The topology.
        record: Box<TopologyRecord>,
        /// The newest assignment.
        assignment: Box<Assignment>,
    },
    /// A newer assignment or lifecycle state. Level-triggered: the newest wins, repeats are harmless.
    Update {
        /// The topology, with its state.
        record: Box<TopologyRecord>,
        /// The newest assignment.
        assignment: Box<Assignment>,
    },
    /// Turn spouts off, drain, say goodbye to peers, exit 0. SIGKILL follows after the grace.
    Stop,
    /// The worker is not one this supervisor wants: exit.
    Refused {
        /// One line for the log.
        why: String,
    },
}

/// Encodes one message with its length.
pub fn encode<M: Serialize>(message: &M) -> Vec<u8> {
    let body = serde_json::to_vec(message).expect("messages are always JSON");
    assert!(body.len() <= MESSAGE_BYTES_MAX, "a message is bounded by what it is made of");
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&body);
    bytes
}

/// What is wrong with received bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("local socket: {0}")]
pub struct DecodeError(pub String);

/// Takes one message off the front of `bytes`; `Ok(None)` = not all here yet. Returns the message and its length in bytes.
pub fn decode<M: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<Option<(M, usize)>, DecodeError> {
    let Some(head) = bytes.first_chunk::<4>() else { return Ok(None) };
    let len = u32::from_le_bytes(*head) as usize;
    if len > MESSAGE_BYTES_MAX {
        return Err(DecodeError(format!("message of {len} bytes, at most {MESSAGE_BYTES_MAX} are allowed")));
    }
    let Some(body) = bytes.get(4..4 + len) else { return Ok(None) };
    let message = serde_json::from_slice(body).map_err(|e| DecodeError(e.to_string()))?;
    Ok(Some((message, 4 + len)))
}
