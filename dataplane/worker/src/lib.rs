//! The seam between a decision and the line a tuple travels: an assignment becomes core loops, links to peers, and spouts that run.
//!
//! Before: a supervisor started the topology's binary in a slot and answers on its Unix socket. After: `saetta-engine` moves tuples.
//! The walk: `boot.rs` (hello, record, same digest?) -> `place.rs` (who runs where, which links; pure) -> `peers.rs` (who is let in and who
//! is dialled; pure) -> `watchdog.rs` (one thread, one wait: links, supervisor, signals; beats out, commands to loops).
//!
//! Not here: ZooKeeper, nimbus, an async runtime, disk, tuples. The supervisor may go away at any time; the worker goes on.
#![forbid(unsafe_code)]

mod boot;
mod busy;
mod log;
mod loop_watch;
mod peers;
mod place;
mod rate;
mod rates;
mod stuck;
mod supervisor;
mod watchdog;

pub use loop_watch::{LoopNote, LoopWatch};

use saetta_engine::{ErrorReport, PlanError, Program};
use saetta_model::Name;
use std::path::PathBuf;

/// What a supervisor says on the command line.
#[derive(Debug, Clone)]
pub struct WorkerArgs {
    /// The supervisor's Unix socket.
    pub socket: PathBuf,
    /// Topology id.
    pub topology: String,
    /// Port of the slot: where peers and the leader's probe reach this worker.
    pub port: u16,
    /// Placement id it is started for.
    pub placement: u64,
    /// How often this placement was started; kept by the supervisor and raised before each start.
    pub start: u64,
    /// Descriptor on which the topology key (32 bytes) can be read.
    pub key_fd: i32,
}

/// Why a worker ended otherwise than it was told. One line each.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Caller: the command line makes no sense.
    #[error("worker: {0}")]
    Arguments(String),
    /// Environment: nobody answers at the socket.
    #[error("worker: no supervisor answers at {socket}: {why}; a worker is started by a supervisor")]
    NoSupervisor {
        /// Where.
        socket: String,
        /// Last failure.
        why: String,
    },
    /// The supervisor does not want this worker.
    #[error("worker: the supervisor refuses this worker: {0}")]
    Refused(String),
    /// Caller: the binary is not the one that was submitted.
    #[error(
        "worker: this binary describes another topology than the one submitted: its digest is {own}, the record says {record}; submit this binary again"
    )]
    Digest {
        /// Of this binary's description.
        own: String,
        /// Of the record.
        record: String,
    },
    /// Caller: the topology function refused its arguments, or the record's configuration or assignment cannot be run.
    #[error("worker: {0}")]
    Topology(String),
    /// The engine cannot be built or started: memory, cores, io_uring.
    #[error("worker: {0}")]
    Engine(#[from] PlanError),
    /// Environment: the slot's port cannot be listened on.
    #[error("worker: cannot listen for links: {0}")]
    Listen(std::io::Error),
    /// The newest assignment gives this worker other executors or cores: it ends, in order, and is to be started again.
    #[error("worker: start me again: {0}")]
    Restart(String),
    /// A component cannot go on.
    #[error("worker: {}: {}", .0.component, .0.text)]
    Fatal(ErrorReport),
    /// Told to stop, and a loop did not end: it is held up in user code.
    #[error("worker: stopped with a core loop still held up in user code: {0}")]
    HeldUp(String),
}

impl WorkerError {
    /// True where the supervisor should start the worker again with the newest assignment (exit code 75 by custom).
    pub fn is_restart(&self) -> bool {
        matches!(self, WorkerError::Restart(_))
    }
}

/// Runs a worker until it is told to stop, by its supervisor, by SIGTERM, or by an assignment that no longer names it. Blocks; the calling
/// thread becomes the watchdog. `build` is the topology function: arguments as given after `--` at submit.
///
/// Errors: see [`WorkerError`]. The supervisor's absence is none, once the worker has started.
pub fn run(args: WorkerArgs, build: &dyn Fn(&[String]) -> Result<Program, String>) -> Result<(), WorkerError> {
    let topology = Name::new(&args.topology).map_err(|e| WorkerError::Arguments(format!("--topology: {e}")))?;
    let key = boot::read_key(args.key_fd)?;
    let signals = boot::Signals::new()?;
    let mut supervisor = supervisor::Supervisor::new(
        args.socket.clone(),
        supervisor::Identity { topology, port: args.port, placement: args.placement, start: args.start },
    );
    let Some((record, assignment)) = boot::boot(&mut supervisor, &signals)? else {
        return Ok(());
    };
    let refused = |why: String| WorkerError::Topology(format!("the topology refuses its arguments: {}", log::one_line(&why)));
    let program = build(&record.args).map_err(refused)?;
    let Some(watchdog) = watchdog::Watchdog::start(&args, key, program, record, assignment, supervisor, signals)? else {
        return Ok(());
    };
    watchdog.run()
}
