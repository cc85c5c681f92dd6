//! Starts worker processes, all from one thread that lives as long as the supervisor.
//!
//! Before: `agent` has binary, key and start number. After: a process that `agent` watches by pidfd.
//! One thread, because the kernel's parent-death signal follows the thread that spawned, and because no descriptor of one
//! worker may be open while another is made.

use crate::dir::{Dir, SlotRecord};
use crate::kernel;
use crate::process::{Process, boot_id};
use crate::slot::Job;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Environment a worker gets, where the supervisor has it; nothing else.
pub const ENVIRONMENT: [&str; 3] = ["PATH", "LANG", "RUST_BACKTRACE"];
/// A binary still open for writing in a child between fork and exec cannot be run for that moment; so many tries ...
const BUSY_TRIES: u32 = 100;
/// ... this far apart.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Launches that may wait for the thread. More than slots make no sense on one machine.
const ORDERS_MAX: usize = 1024;

/// What to start.
#[derive(Debug)]
pub(crate) struct Order {
    /// Slot.
    pub port: u16,
    /// What.
    pub job: Job,
    /// Start number, written to disk before the process is made.
    pub start: u64,
    /// Key the worker finds on its descriptor.
    pub key: [u8; 32],
    /// Goes to disk, with the process filled in once it is known.
    pub record: SlotRecord,
}

/// A process just made.
#[derive(Debug)]
pub(crate) struct Launched {
    /// Held by pidfd.
    pub process: Process,
    /// To reap it and learn its exit code.
    pub child: Child,
    /// Length of its log before it wrote the first byte.
    pub log_bytes: u64,
}

type Task = (Order, oneshot::Sender<io::Result<Launched>>);

/// The thread.
#[derive(Debug)]
pub(crate) struct Launcher {
    orders: blocking::SyncSender<Task>,
}

impl Launcher {
    /// Starts the thread; it ends when the launcher is dropped, and with it, where `workers_end` is set, every worker it made.
    pub(crate) fn start(dir: Arc<Dir>, workers_end: bool) -> io::Result<(Self, JoinHandle<()>)> {
        let (orders, taken) = blocking::sync_channel::<Task>(ORDERS_MAX);
        let thread = std::thread::Builder::new().name("launcher".into()).spawn(move || {
            while let Ok((order, answer)) = taken.recv() {
                let made = launch(&dir, order, workers_end);
                if let Err(Ok(orphan)) = answer.send(made) {
                    // The supervisor is ending: the process stays for the next one to adopt, as written to disk.
                    drop(orphan);
                }
            }
        })?;
        Ok((Launcher { orders }, thread))
    }

    /// Starts a process. Errors are the environment's: no process, no file, no space.
    pub(crate) async fn launch(&self, order: Order) -> io::Result<Launched> {
        let (answer, made) = oneshot::channel();
        self.orders.try_send((order, answer)).map_err(|_| io::Error::other("too many launches wait"))?;
        made.await.unwrap_or_else(|_| Err(io::Error::other("the launcher thread has ended")))
    }
}

fn launch(dir: &Dir, order: Order, workers_end: bool) -> io::Result<Launched> {
    let Order { port, job, start, key, mut record } = order;
    // First the number, then the process: a number that was used is never used again, whenever the supervisor dies.
    dir.write_slot(port, &record)?;
    let (cwd, log) = dir.prepare_worker(port, &job)?;
    let log_bytes = log.metadata()?.len();
    let (key_read, key_write) = io::pipe()?;
    // 32 bytes always fit in an empty pipe; the write end closes here, so the worker reads the key and then the end.
    (&key_write).write_all(&key)?;
    drop(key_write);

    let mut command = Command::new(dir.blob(&job.binary));
    command.arg("worker").arg("--socket").arg(dir.socket(port)).args(["--topology", job.topology.as_str()]);
    command.args(["--port", &port.to_string(), "--placement", &format!("{:016x}", job.placement)]);
    command.args(["--start", &start.to_string(), "--key-fd", &kernel::KEY_FD.to_string()]);
    command.env_clear().envs(ENVIRONMENT.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))));
    command.current_dir(cwd).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    kernel::prepare(&mut command, kernel::reserve(&key_read)?, workers_end);
    drop(key_read);

    let mut tries = 0;
    let mut child = loop {
        match command.spawn() {
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES => {
                tries += 1;
                std::thread::sleep(BUSY_PAUSE);
            }
            other => break other?,
        }
    };
    let process = match Process::of_child(&child) {
        Ok(process) => process,
        Err(e) => {
            // A worker that cannot be watched must not run: the slot would start another beside it.
            let _ = child.kill();
            let _ = child.wait();
            return Err(e);
        }
    };
    record.pid = process.pid;
    record.ticks = process.ticks;
    record.boot = boot_id();
    // A disk that refuses now costs nothing but the note: the next supervisor finds the process by its command line.
    if let Err(e) = dir.write_slot(port, &record) {
        tracing::warn!(port, "noting down the process of a slot: {e}");
    }
    Ok(Launched { process, child, log_bytes })
}

/// Checks that a binary is what its name says. Cost: reads all of it. Errors are one line for people.
pub(crate) fn verify(path: &Path, sha256: &str) -> Result<(), String> {
    let mut file = File::open(path).map_err(|e| format!("binary {sha256}: {e}"))?;
    let mut hash = Sha256::new();
    let mut piece = vec![0; 256 << 10];
    loop {
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(n) => hash.update(&piece[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(format!("binary {sha256}: {e}")),
        }
    }
    let found = hex::encode(hash.finalize());
    if found == sha256 { Ok(()) } else { Err(format!("binary {sha256} on disk has the hash {found}; it is removed and fetched again")) }
}
