//! One slot: a worker process and the supervisor's end of its socket.
//!
//! Before: [`Scene`] has record and assignment. After: the worker beats, and its log says what it noticed and when.

use super::{FAIL_TIME_MAX, PATIENCE};
use saetta_model::Name;
use saetta_model::assignment::{Assignment, ExecutorPlace, Placement};
use saetta_model::beat::ExecutorBeat;
use saetta_model::cluster::SlotId;
use saetta_model::local::{FromWorker, ToWorker, VERSION_MAX, decode, encode};
use saetta_model::parallelism::ExecutorId;
use saetta_model::record::{TopologyRecord, TopologyState};
use saetta_model::topology::TopologySpec;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const TOPOLOGY: &str = "ledger-1-1";
pub(crate) const KEY: [u8; 32] = [0x5A; 32];

/// What is asked of `examples/ledger.rs`.
pub(crate) struct Load {
    /// Spout tasks.
    pub(crate) spouts: u32,
    /// Of each spout task.
    pub(crate) per_second: u64,
    /// Padding of every 16th tuple.
    pub(crate) large_bytes: usize,
}

/// A topology, who runs it where, and a directory for its books.
pub(crate) struct Scene {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) record: TopologyRecord,
    pub(crate) assignment: Assignment,
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples/ledger");
    assert!(path.exists(), "{}: missing; `cargo test` builds it", path.display());
    path
}

/// A worker with these tasks on one loop.
pub(crate) fn placement(node: &str, id: u64, index: u32, port: u16, tasks: &[u32]) -> Placement {
    let cores = saetta_engine::allowed_cores();
    let core = cores[index as usize % cores.len()];
    let executors = tasks
        .iter()
        .map(|&task| ExecutorPlace { id: ExecutorId { first: task, last: task }, core, started_ms: 0, planned: false })
        .collect();
    Placement { slot: SlotId { node: name(node), port }, id, index, cores: vec![core], share: 2, executors }
}

impl Scene {
    /// `hosts` is where each worker is reached, in the order of `workers`.
    pub(crate) fn new(load: &Load, config: &[(&str, &str)], hosts: &[&str], workers: Vec<Placement>) -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let described = Command::new(binary()).args(["describe", &load.spouts.to_string()]).output().unwrap();
        let spec: TopologySpec = serde_json::from_slice(&described.stdout).unwrap();
        let (workers_wanted, n_ackers) = (workers.len().to_string(), "2");
        let all =
            [("topology.workers", workers_wanted.as_str()), ("topology.acker.executors", n_ackers), ("topology.max.spout.pending", "2000")];
        let record = TopologyRecord {
            id: name(TOPOLOGY),
            name: name("ledger"),
            digest: spec.digest(),
            spec,
            binary: String::new(),
            args: vec![
                dir.path().display().to_string(),
                load.spouts.to_string(),
                load.per_second.to_string(),
                load.large_bytes.to_string(),
            ],
            config: all.iter().chain(config).map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            owner: String::new(),
            priority: 0,
            submitted_ms: 0,
            state: TopologyState::Active,
            request: String::new(),
            finished: false,
        };
        let hosts = workers.iter().zip(hosts).map(|(w, host)| (w.slot.node.clone(), host.to_string())).collect();
        Scene { dir, record, assignment: Assignment { version: 1, binary: String::new(), hosts, workers } }
    }
}

pub(crate) struct Seat {
    pub(crate) place: Placement,
    pub(crate) child: Child,
    log: PathBuf,
    listener: UnixListener,
    stream: Option<(UnixStream, Vec<u8>)>,
    boot: ToWorker,
    pub(crate) drained: bool,
    pub(crate) executors: Vec<ExecutorBeat>,
}

impl Seat {
    /// Starts the worker of this placement. `prefix` comes before its program.
    pub(crate) fn start(scene: &Scene, id: u64, start: u64, prefix: &[String]) -> Seat {
        let place = scene.assignment.workers.iter().find(|w| w.id == id).unwrap().clone();
        let path = scene.dir.path().join(format!("{id}.sock"));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let log = scene.dir.path().join(format!("{id}.log"));
        let out = std::fs::File::options().append(true).create(true).open(&log).unwrap();
        let program = binary().display().to_string();
        let words: Vec<&str> = prefix.iter().map(String::as_str).chain([program.as_str()]).collect();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .args(["worker", "--socket", path.to_str().unwrap(), "--topology", TOPOLOGY, "--port", &place.slot.port.to_string()])
            .args(["--placement", &format!("{id:016x}"), "--start", &start.to_string(), "--key-fd", "0"])
            .stdin(Stdio::piped())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&KEY).unwrap();
        let (record, assignment) = (Box::new(scene.record.clone()), Box::new(scene.assignment.clone()));
        let boot = ToWorker::Boot { version: VERSION_MAX, record, assignment };
        Seat { place, child, log, listener, stream: None, boot, drained: false, executors: vec![] }
    }

    pub(crate) fn say(&mut self, message: &ToWorker) {
        let (stream, _) = self.stream.as_mut().expect("connected");
        stream.write_all(&encode(message)).unwrap();
    }

    /// Takes what is there, waiting for a moment.
    fn pump(&mut self) {
        if self.stream.is_none() {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
                    self.stream = Some((stream, vec![]));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        let Some((stream, bytes)) = &mut self.stream else { return };
        let mut buffer = [0; 64 << 10];
        match stream.read(&mut buffer) {
            Ok(0) => self.stream = None,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => self.stream = None,
        }
        while let Some((stream, bytes)) = &mut self.stream
            && let Some((message, n)) = decode::<FromWorker>(bytes).unwrap()
        {
            bytes.drain(..n);
            match message {
                FromWorker::Hello { .. } => stream.write_all(&encode(&self.boot)).unwrap(),
                FromWorker::Beat { drained, executors, .. } => (self.drained, self.executors) = (drained, executors),
                // It is in the log too, with its time.
                FromWorker::Error { .. } => {}
            }
        }
    }

    pub(crate) fn executed(&self, task: u32) -> u64 {
        self.executors.iter().find(|e| e.id.first == task).map_or(0, |e| e.executed)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// How long its loop stood still in all, as on a machine that gave its core to others: what is measured in time is late by as much.
    pub(crate) fn stood_still(&self) -> Duration {
        let log = self.log();
        let seconds = log.lines().filter_map(|line| line.split_once("goes on after ")?.1.split_once(" s:")?.0.parse::<f64>().ok());
        Duration::from_secs_f64(seconds.sum())
    }

    /// When (milliseconds since 1970) a line of the log with this text was written, in order.
    pub(crate) fn log_times(&self, text: &str) -> Vec<u64> {
        self.log().lines().filter(|line| line.contains(text)).map(line_ms).collect()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Of `2026-11-30T12:00:00.000Z ..`: of today, or of yesterday where that lies ahead.
fn line_ms(line: &str) -> u64 {
    let part =
        |range: std::ops::Range<usize>| line.get(range).and_then(|n| n.parse::<u64>().ok()).unwrap_or_else(|| panic!("no time: {line}"));
    let of_day = ((part(11..13) * 60 + part(14..16)) * 60 + part(17..19)) * 1000 + part(20..23);
    let now = super::unix_ms();
    let day = 86_400_000;
    let today = now / day * day + of_day;
    if today > now + 1000 { today - day } else { today }
}

/// Serves all seats until `done`, and fails with their logs when that takes too long or a worker ends.
pub(crate) fn wait(seats: &mut [&mut Seat], what: &str, mut done: impl FnMut(&mut [&mut Seat]) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done(seats) {
        seats.iter_mut().for_each(|s| s.pump());
        let ended = seats.iter_mut().find_map(|s| s.child.try_wait().unwrap());
        if Instant::now() > deadline || ended.is_some() {
            let logs: String = seats.iter().map(|s| format!("\n--- {}\n{}\n{:?}", s.place.slot.node, s.log(), s.executors)).collect();
            panic!("{what}: not within {PATIENCE:?}, or a worker has ended ({ended:?}){logs}");
        }
    }
}

/// Waits until each of these tasks has executed `more` than it has now.
pub(crate) fn rise(seats: &mut [&mut Seat], more: u64, what: &str) {
    let all = |s: &Seat| s.place.executors.iter().map(|e| (e.id.first, s.executed(e.id.first))).collect::<Vec<_>>();
    let before: Vec<_> = seats.iter().map(|s| all(s)).collect();
    // Ackers execute nothing.
    let risen = |s: &Seat, before: &[(u32, u64)]| before.iter().all(|(task, n)| *task <= 2 || s.executed(*task) >= n + more);
    wait(seats, what, |seats| seats.iter().zip(&before).all(|(s, before)| risen(s, before)));
}

/// Spouts off, until nothing waits any more and `ended` says that no tree is open; not much longer than a loss may take to be told.
pub(crate) fn drain(scene: &mut Scene, seats: &mut [&mut Seat], ended: impl Fn(&Scene) -> bool) {
    scene.record.state = TopologyState::Inactive;
    let (record, assignment) = (Box::new(scene.record.clone()), Box::new(scene.assignment.clone()));
    seats.iter_mut().for_each(|s| s.drained = false);
    seats.iter_mut().for_each(|s| s.say(&ToWorker::Update { record: record.clone(), assignment: assignment.clone() }));
    wait(seats, "nothing waits once the spouts are off", |seats| seats.iter().all(|s| s.drained));
    let deadline = Instant::now() + 2 * FAIL_TIME_MAX;
    wait(seats, "", |_| ended(scene) || Instant::now() > deadline);
}
