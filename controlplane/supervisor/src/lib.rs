//! The supervisor: one per machine, keeps the workers of its slots as the assignment wants them.
//!
//! Before: nimbus wrote an assignment to the store. After: a worker process has the topology's binary, its key, its cores and a local
//! socket, and `dataplane/worker` takes over.
//!
//! | module | does |
//! |---|---|
//! | `slot` | decides what one slot does next (pure) |
//! | `wanted` | from a reading of the store to one job per slot (pure) |
//! | `report` | when the cluster is told (pure) |
//! | `agent` | the loop: events in, actions out |
//! | `cluster` | the store's side |
//! | `localizer` | binaries and keys from nimbus |
//! | `launch`, `kernel` | a process from a binary; `kernel` is the crate's one room with unsafe code |
//! | `process` | a process by pidfd and start time |
//! | `socket` | the local socket |
//! | `dir`, `logs` | the directory and what is bounded in it |
//! | `machine` | cores, memory, platform |
//!
//! Invariants: a worker is never stopped because the store, nimbus or a supervisor is away. A start number is on disk before it is
//! used. A slot has at most one process. Not here: tuples, scheduling, the worker's own life.

mod agent;
mod cluster;
mod cores;
mod dir;
mod error;
#[expect(unsafe_code, reason = "between fork and exec, and a pidfd in the reactor: there is no safe way")]
mod kernel;
mod launch;
mod localizer;
mod logs;
mod machine;
mod process;
mod report;
mod slot;
mod socket;
mod wanted;

pub use error::SupervisorError;
pub use launch::ENVIRONMENT;
pub use machine::{Offered, allowed_cores, platform};

use agent::{Agent, Inlets, Message, Outlets};
use saetta_model::cluster::divide_cores;
use saetta_model::{Config, Name, SupervisorInfo};
use saetta_store::Store;
use slot::Times;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

/// Messages that may wait for the loop; whoever sends more waits.
const MESSAGES_MAX: usize = 256;
/// Readings that may wait: one is being taken, the next is newer than any other.
const READINGS_MAX: usize = 1;
/// Errors of workers that may wait for the store.
const ERRORS_MAX: usize = 256;
/// How long a lock that is held is tried again, and how often.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Longest wait for all workers to end: ask, SIGTERM, SIGKILL, and time for the kernel to clear up.
pub const END_WORKERS_MAX: Duration = Duration::from_millis(3 * slot::STOP_STEP_MS + 3_000);

/// How a supervisor runs.
#[derive(Debug, Clone)]
pub struct SupervisorOptions {
    /// `supervisor.dir`; made where missing.
    pub dir: PathBuf,
    /// `supervisor.id`; `None` = made at first start and kept in the directory.
    pub id: Option<Name>,
    /// `supervisor.host`: address other workers reach this machine's workers at.
    pub host: String,
    /// `supervisor.rack`; empty = not stated.
    pub rack: String,
    /// `supervisor.slots.ports`; not empty.
    pub ports: Vec<u16>,
    /// `supervisor.cores`; `None` = those this process may run on.
    pub cores: Option<Vec<u32>>,
    /// What it offers to executors.
    pub offered: Offered,
    /// `nimbus.seeds`: `host:port` each; not empty.
    pub seeds: Vec<String>,
    /// `cluster.secret.file`, read at each fetch.
    pub secret_file: PathBuf,
    /// `worker.launch.grace.secs`.
    pub launch_grace: Duration,
    /// `worker.heartbeat.timeout.secs`.
    pub heartbeat_timeout: Duration,
    /// `worker.log.bytes.max`.
    pub log_bytes_max: u64,
    /// Workers end when this supervisor does, in whatever way it ends: for `saetta dev`. False in a cluster: workers outlive it.
    pub workers_end_with_supervisor: bool,
}

impl SupervisorOptions {
    /// From a daemon's configuration. Errors name the key.
    pub fn from_config(config: &Config) -> Result<Self, SupervisorError> {
        let text = |key: &str| config.text(key).unwrap_or_default().to_owned();
        let secs = |key: &str| config.duration(key).expect("has a default");
        let id = match config.text("supervisor.id") {
            Some(id) => Some(Name::new(id).map_err(|e| SupervisorError::Options(format!("supervisor.id: {e}")))?),
            None => None,
        };
        let seeds: Vec<String> = text("nimbus.seeds").split(',').map(|s| s.trim().to_owned()).filter(|s| !s.is_empty()).collect();
        if seeds.is_empty() {
            return Err(SupervisorError::Options("nimbus.seeds names no address; write host:port, several by comma".into()));
        }
        let host = text("supervisor.host");
        let is_address = |host: &str| host.parse::<IpAddr>().is_ok_and(|ip| !ip.is_unspecified() && !ip.is_multicast());
        let is_name = |host: &str| host.parse::<IpAddr>().is_err() && host.split('.').all(is_label);
        if !is_address(&host) && !is_name(&host) {
            return Err(SupervisorError::Options(format!(
                "supervisor.host = {host:?}: other machines reach this one's workers there; write its address or its host name"
            )));
        }
        let secret_file = match config.text("cluster.secret.file") {
            Some(path) => PathBuf::from(path),
            None => PathBuf::from(text("nimbus.dir")).join("cluster.secret"),
        };
        Ok(SupervisorOptions {
            dir: PathBuf::from(text("supervisor.dir")),
            id,
            host,
            rack: text("supervisor.rack"),
            ports: config.numbers("supervisor.slots.ports").expect("has a default").into_iter().map(|p| p as u16).collect(),
            cores: config.numbers("supervisor.cores"),
            offered: Offered {
                cpu_pct: config.number("supervisor.cpu.capacity"),
                memory_mb: config.number("supervisor.memory.capacity.mb"),
                others: config.named_numbers("supervisor.resources"),
            },
            seeds,
            secret_file,
            launch_grace: secs("worker.launch.grace.secs"),
            heartbeat_timeout: secs("worker.heartbeat.timeout.secs"),
            log_bytes_max: config.bytes("worker.log.bytes.max").expect("has a default"),
            workers_end_with_supervisor: false,
        })
    }
}

/// True for one part of a host name.
fn is_label(label: &str) -> bool {
    !label.is_empty() && !label.starts_with('-') && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

/// Starts supervisors.
#[derive(Debug)]
pub struct Supervisor;

/// A running supervisor. Dropping it stops the supervisor and leaves its workers, like `stop` without
/// `workers_end_with_supervisor`.
#[derive(Debug)]
pub struct SupervisorHandle {
    info: SupervisorInfo,
    messages: mpsc::Sender<Message>,
    workers_end: bool,
    tasks: JoinSet<()>,
    launcher: std::thread::JoinHandle<()>,
}

impl Supervisor {
    /// Takes the directory, adopts the workers that live there, and begins to follow the store. Needs neither the store nor
    /// nimbus to be there: both are waited for, for ever. Call inside a tokio runtime.
    pub async fn start(options: SupervisorOptions, store: Arc<dyn Store>) -> Result<SupervisorHandle, SupervisorError> {
        let mut ports = options.ports.clone();
        ports.sort_unstable();
        let dir = Arc::new(take_dir(&options.dir, &ports).await?);
        let node = dir.id(options.id.as_ref())?;
        let info = describe(&options, &ports, node.clone())?;
        let (launcher, thread) = launch::Launcher::start(Arc::clone(&dir), options.workers_end_with_supervisor)
            .map_err(SupervisorError::io("starting the launcher thread for", &options.dir))?;
        let localizer = localizer::Localizer::new(Arc::clone(&dir), options.seeds.clone(), options.secret_file.clone())
            .map_err(|e| SupervisorError::Options(format!("making an HTTP client: {e}")))?;

        let (take_reading, readings) = mpsc::channel(READINGS_MAX);
        let (hear, heard) = mpsc::channel(MESSAGES_MAX);
        let (to_self, messages) = mpsc::channel(MESSAGES_MAX);
        let (beats, newest_beat) = watch::channel(report::Picture::default());
        let (errors, taken_errors) = mpsc::channel(ERRORS_MAX);
        let times = Times { grace_ms: options.launch_grace.as_millis() as u64, heartbeat_ms: options.heartbeat_timeout.as_millis() as u64 };
        let out = Outlets { localizer: Arc::new(localizer), launcher: Arc::new(launcher), to_self: to_self.clone(), beats, errors };
        let agent = Agent::new(node.clone(), &ports, times, Arc::clone(&dir), out);

        let mut tasks = JoinSet::new();
        for port in agent.ports() {
            let path = dir.socket(port);
            let listener = socket::bind(&path).map_err(SupervisorError::io("binding the local socket", path))?;
            tasks.spawn(socket::serve(port, listener, hear.clone()));
        }
        tasks.spawn(agent.run(Inlets { readings, heard, messages }));
        tasks.spawn(cluster::follow(Arc::clone(&store), take_reading));
        tasks.spawn(cluster::register(Arc::clone(&store), info.clone()));
        tasks.spawn(cluster::beat(Arc::clone(&store), node, newest_beat));
        tasks.spawn(cluster::errors(store, taken_errors));
        tasks.spawn(bound_logs(dir.logs(), options.log_bytes_max));
        info!(slots = ports.len(), "supervisor {} on {}", info.id, info.host);
        Ok(SupervisorHandle { info, messages: to_self, workers_end: options.workers_end_with_supervisor, tasks, launcher: thread })
    }
}

impl SupervisorHandle {
    /// What it says of itself to the cluster.
    pub fn info(&self) -> &SupervisorInfo {
        &self.info
    }

    /// Stops the supervisor. Workers go on, unless they are to end with it: then they are stopped first, and this
    /// returns when none is left, at the latest after [`END_WORKERS_MAX`].
    pub async fn stop(mut self) {
        if self.workers_end {
            let (done, ended) = oneshot::channel();
            let _ = self.messages.send(Message::EndWorkers(done)).await;
            if tokio::time::timeout(END_WORKERS_MAX, ended).await.is_err() {
                warn!("some workers did not end in time; the kernel ends them with this process");
            }
        }
        self.tasks.shutdown().await;
        // The thread ends with its last order. Then nothing holds the directory, and a successor may take it at once.
        let _ = tokio::task::spawn_blocking(move || self.launcher.join()).await;
    }
}

/// Takes the directory. A supervisor that was killed may hold its lock a moment longer than it lived: a worker it was just
/// forking has a copy of the lock's descriptor until it begins its own program.
async fn take_dir(path: &std::path::Path, ports: &[u16]) -> Result<dir::Dir, SupervisorError> {
    let began = std::time::Instant::now();
    loop {
        match dir::Dir::open(path, ports) {
            Err(SupervisorError::Locked(_)) if began.elapsed() < LOCK_PATIENCE => tokio::time::sleep(LOCK_PAUSE).await,
            other => return other,
        }
    }
}

fn describe(options: &SupervisorOptions, ports: &[u16], id: Name) -> Result<SupervisorInfo, SupervisorError> {
    if ports.is_empty() {
        return Err(SupervisorError::Options("supervisor.slots.ports names no port".into()));
    }
    let allowed = allowed_cores();
    let cores = match &options.cores {
        None => allowed,
        Some(cores) => {
            let mut cores = cores.clone();
            cores.sort_unstable();
            if let Some(core) = cores.iter().find(|c| !allowed.contains(c)) {
                return Err(SupervisorError::Options(format!(
                    "supervisor.cores names core {core}, and this process may run on {allowed:?} only"
                )));
            }
            cores
        }
    };
    Ok(SupervisorInfo {
        id,
        host: options.host.clone(),
        rack: options.rack.clone(),
        slots: divide_cores(ports, &cores),
        resources: machine::resources(&cores, &options.offered),
        platform: platform(),
        incarnation: dir::random_u64(),
        started_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64),
        cores: cores::describe(&cores),
    })
}

async fn bound_logs(logs: PathBuf, bytes_max: u64) {
    let mut every = tokio::time::interval(logs::LOOK_EVERY);
    loop {
        every.tick().await;
        let logs = logs.clone();
        let _ = tokio::task::spawn_blocking(move || logs::bound_all(&logs, bytes_max)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use saetta_model::config::Owner;

    #[test]
    fn a_host_is_an_address_or_a_name_that_others_can_use() {
        let options = |host: &str| {
            let mut config = Config::new(Owner::Daemon);
            config.set_pair(&format!("supervisor.host={host}")).unwrap();
            SupervisorOptions::from_config(&config)
        };
        for good in ["127.0.0.1", "10.1.2.3", "::1", "fd00::7", "localhost", "rack-1.node_7.example"] {
            assert_eq!(options(good).unwrap().host, good);
        }
        for bad in ["", "0.0.0.0", "::", "224.0.0.1", "a b", "a..b", "node:6700", "[::1]", "http://node", "-a"] {
            let e = options(bad).unwrap_err().to_string();
            assert!(e.contains("supervisor.host"), "{bad}: {e}");
        }
    }
}
