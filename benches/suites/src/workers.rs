//! Real workers for a suite: this program started again as the topology's binary, and a supervisor of a few lines for each.
//!
//! Before: a suite has a program and says which component is on which core of which worker. After: workers run, pinned; what their components
//! write into the run's folder is there to be read. All on this machine, each on a port of its own of 127.0.0.1, or at the two
//! ends of a virtual wire.
//! Absences: nimbus, ZooKeeper, restarts. A worker that ends by itself ends the sample.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use saetta::Config;
use saetta_harness::Result;
use saetta_model::Name;
use saetta_model::assignment::{Assignment, ExecutorPlace, Placement};
use saetta_model::beat::ExecutorBeat;
use saetta_model::cluster::SlotId;
use saetta_model::config::Source as From;
use saetta_model::local::{FromWorker, ToWorker, VERSION_MAX, decode, encode};
use saetta_model::parallelism::Layout;
use saetta_model::record::{TopologyRecord, TopologyState};
use saetta_model::topology::TopologySpec;

use crate::veth::End;

/// Tells a process that it is a worker.
const WORKER: &str = "SAETTA_SUITES_WORKER";
const TOPOLOGY: &str = "bench-1-1";
const KEY: [u8; 32] = [0x5A; 32];
/// Longest wait for anything beyond what a sample takes by itself.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks: rare, since there is no core left for it.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a worker may take to end in order.
const STOP_TIME: Duration = Duration::from_secs(5);

/// Whether this process was started as a worker.
pub(crate) fn is_worker() -> bool {
    std::env::var_os(WORKER).is_some()
}

/// What runs: the description and the arguments of its program, and the configuration of its record.
pub(crate) struct Run {
    /// The topology's binary; without one, this program.
    pub(crate) binary: Option<PathBuf>,
    pub(crate) spec: TopologySpec,
    pub(crate) code: BTreeMap<String, String>,
    pub(crate) args: Vec<String>,
    pub(crate) config: BTreeMap<String, String>,
}

/// One worker: the core its executors are on, and their components, each of which is here whole.
pub(crate) struct Place {
    pub(crate) core: usize,
    pub(crate) components: &'static [&'static str],
    /// `worker.wait` of this one.
    pub(crate) wait: &'static str,
    /// Where it listens, if not at loopback.
    pub(crate) end: Option<End>,
}

/// One worker process and the supervisor's end of its socket.
struct Seat {
    child: Child,
    port: u16,
    log: PathBuf,
    listener: UnixListener,
    stream: Option<(UnixStream, Vec<u8>)>,
    boot: Vec<u8>,
    /// Newest counters.
    beat: Vec<ExecutorBeat>,
    /// How many there were before.
    beats: u64,
    /// What its links over sockets go by, as it says.
    carrier: String,
    errors: Vec<String>,
}

/// The workers of one run. Dropping them ends them.
pub(crate) struct Workers {
    seats: Vec<Seat>,
    dir: tempfile::TempDir,
}

fn name(text: &str) -> Result<Name> {
    Ok(Name::new(text)?)
}

impl Workers {
    /// Starts one worker per place, in their order.
    ///
    /// # Errors
    /// A component without a place, a program that cannot be started.
    pub(crate) fn start(run: Run, places: &[Place]) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let config = Config::topology(&run.code, From::Code)?.overlaid(&Config::topology(&run.config, From::Set)?);
        let layout = Layout::new(&run.spec, &config)?;
        let mut assignment = Assignment { version: 1, binary: String::new(), hosts: BTreeMap::new(), workers: Vec::new() };
        for (index, place) in (0u32..).zip(places) {
            let node = name(&format!("n{index}"))?;
            let core = u32::try_from(place.core)?;
            let mut executors = Vec::new();
            for id in place.components {
                let component = layout.component(id).ok_or_else(|| format!("no component {id:?}"))?;
                executors.extend(component.executors.iter().map(|id| ExecutorPlace { id: *id, core, started_ms: 0, planned: false }));
            }
            executors.sort_by_key(|e| e.id.first);
            // Free now; the worker binds it with SO_REUSEADDR a moment later.
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let address = place.end.as_ref().map_or("127.0.0.1", |end| end.address);
            assignment.hosts.insert(node.clone(), address.to_owned());
            let (slot, id) = (SlotId { node, port }, (u64::from(std::process::id()) << 16) + u64::from(index) + 1);
            assignment.workers.push(Placement { slot, id, index, cores: vec![core], share: 1, executors });
        }
        let binary = run.binary.map_or_else(std::env::current_exe, Ok)?;
        let record = TopologyRecord {
            id: name(TOPOLOGY)?,
            name: name("bench")?,
            digest: run.spec.digest(),
            spec: run.spec,
            binary: String::new(),
            args: [vec!["--out".to_owned(), dir.path().display().to_string()], run.args].concat(),
            config: run.config,
            owner: String::new(),
            priority: 0,
            submitted_ms: 0,
            state: TopologyState::Active,
            request: String::new(),
            finished: false,
        };
        let mut workers = Workers { seats: Vec::new(), dir };
        for (place, placement) in places.iter().zip(&assignment.workers) {
            let mut record = Box::new(record.clone());
            record.config.insert("worker.wait".to_owned(), place.wait.to_owned());
            let boot = encode(&ToWorker::Boot { version: VERSION_MAX, record, assignment: Box::new(assignment.clone()) });
            workers.seats.push(Seat::start(&binary, workers.dir.path(), placement, boot, place.end.as_ref())?);
        }
        Ok(workers)
    }

    /// Serves the workers until `found` finds something in the run's folder; `what` is awaited.
    ///
    /// # Errors
    /// What `found` answers; a worker that has ended, or said that something is wrong; nothing after too long. With the workers' logs.
    pub(crate) fn until<T>(&mut self, what: &str, mut found: impl FnMut(&Path) -> Result<Option<T>>) -> Result<T> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = found(self.dir.path())? {
                return Ok(found);
            }
            for at in 0..self.seats.len() {
                self.seats[at].serve()?;
                if let Some(status) = self.seats[at].child.try_wait()? {
                    return Err(self.told(&format!("{what}: worker {at} ended with {status}")));
                }
                if !self.seats[at].errors.is_empty() {
                    return Err(self.told(&format!("{what}: worker {at} says {:?}", self.seats[at].errors)));
                }
            }
            if Instant::now() > end {
                return Err(self.told(&format!("{what}: not within {} s", PATIENCE.as_secs())));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits for the next counters of the worker at `at`: when they came, and how many tuples it had executed.
    ///
    /// # Errors
    /// As [`Workers::until`].
    pub(crate) fn executed(&mut self, at: usize) -> Result<(Instant, u64)> {
        let (before, end) = (self.seats[at].beats, Instant::now() + PATIENCE);
        while Instant::now() < end {
            for seat in &mut self.seats {
                seat.serve()?;
            }
            let seat = &self.seats[at];
            if seat.beats > before {
                return Ok((Instant::now(), seat.beat.iter().map(|executor| executor.executed).sum()));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(self.told(&format!("worker {at} tells no counters")))
    }

    /// Waits until file `name` is in the run's folder, and reads it.
    ///
    /// # Errors
    /// As [`Workers::until`].
    pub(crate) fn file(&mut self, name: &str) -> Result<String> {
        self.until(name, |dir| match std::fs::read_to_string(dir.join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e.into()),
        })
    }

    fn told(&self, what: &str) -> saetta_harness::Error {
        let mut text = what.to_owned();
        for (at, seat) in self.seats.iter().enumerate() {
            let log = std::fs::read_to_string(&seat.log).unwrap_or_default();
            let counts = seat.beat.iter().map(|e| format!("{}: {} executed, {} emitted; ", e.id, e.executed, e.emitted));
            text += &format!("\n--- worker {at}: {}\n{log}", counts.collect::<String>());
        }
        text.into()
    }

    /// Process ids, in the order of the places.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.seats.iter().map(|seat| seat.child.id()).collect()
    }

    /// Where they listen, in the order of the places, if at loopback.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.seats.iter().map(|seat| seat.port).collect()
    }

    /// Processor time of all workers so far.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let mut sum = 0;
        for pid in self.pids() {
            for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
                let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
                sum += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
            }
        }
        Ok(Duration::from_nanos(sum))
    }

    /// What the workers' links over sockets go by, in the order of the places.
    pub(crate) fn carriers(&self) -> impl Iterator<Item = &str> {
        self.seats.iter().map(|seat| seat.carrier.as_str())
    }

    /// Ends all of them in order, and returns their logs.
    ///
    /// # Errors
    /// One that does not end, or not well.
    pub(crate) fn stop(mut self) -> Result<Vec<String>> {
        for seat in &mut self.seats {
            if let Some((stream, _)) = &mut seat.stream {
                stream.write_all(&encode(&ToWorker::Stop))?;
            }
        }
        let end = Instant::now() + STOP_TIME;
        while Instant::now() < end {
            let mut over = true;
            for seat in &mut self.seats {
                // What it says at its end; a connection it has closed by then is no error.
                let _ = seat.serve();
                over &= seat.child.try_wait()?.is_some();
            }
            if over {
                return Ok(self.seats.iter().map(|seat| std::fs::read_to_string(&seat.log).unwrap_or_default()).collect());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(self.told("told to stop, and still there"))
    }
}

impl Seat {
    fn start(program: &Path, dir: &Path, place: &Placement, boot: Vec<u8>, end: Option<&End>) -> Result<Self> {
        let id = place.id;
        let path = dir.join(format!("{id}.sock"));
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        let log = dir.join(format!("{id}.log"));
        let out = std::fs::File::create(&log)?;
        let mut command = match end {
            None => Command::new(program),
            Some(end) => {
                // Becomes the program.
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &end.namespace]).arg(program);
                command
            }
        };
        let mut child = command
            .env(WORKER, "1")
            .args(["worker", "--topology", TOPOLOGY, "--start", "1", "--key-fd", "0", "--socket"])
            .arg(path)
            .args(["--port", &place.slot.port.to_string(), "--placement", &format!("{id:016x}")])
            .stdin(Stdio::piped())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()?;
        child.stdin.take().ok_or("no pipe for the key")?.write_all(&KEY)?;
        let port = place.slot.port;
        Ok(Seat { child, port, log, listener, stream: None, boot, beat: Vec::new(), beats: 0, carrier: String::new(), errors: Vec::new() })
    }

    /// Takes what the worker has said, and answers its hello. Never waits.
    fn serve(&mut self) -> Result<()> {
        if self.stream.is_none() {
            match self.listener.accept() {
                Ok((stream, _)) => self.stream = Some((stream, Vec::new())),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
        let Some((stream, bytes)) = &mut self.stream else { return Ok(()) };
        stream.set_nonblocking(true)?;
        let mut buffer = [0; 16 << 10];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => bytes.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e.into()),
            }
        }
        stream.set_nonblocking(false)?;
        while let Some((message, n)) = decode::<FromWorker>(bytes)? {
            bytes.drain(..n);
            match message {
                FromWorker::Hello { .. } => stream.write_all(&self.boot)?,
                FromWorker::Beat { executors, carrier, .. } => {
                    self.beats += 1;
                    (self.beat, self.carrier) = (executors, carrier);
                }
                // A host that takes a core away for a second looks like user code that holds up its loop: noise, which the sample shows anyway.
                FromWorker::Error { text, .. } if text.contains("stands still") => {}
                FromWorker::Error { component, text } => self.errors.push(format!("{component}: {text}")),
            }
        }
        Ok(())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // A stopped process is killed as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
