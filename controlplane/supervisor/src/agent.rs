//! The supervisor's one loop: owns every slot, brings it events, carries out its actions.
//!
//! Before: a reading of the store, a message of a worker, the end of a process, the passing of time. After: `localizer` fetches,
//! `launch` starts, `socket` tells workers, `cluster` tells the store. Nothing here decides; `slot` and `wanted` do.

use crate::cluster::{Reading, WorkerError, unix_ms};
use crate::dir::{Dir, Known, Read, SlotRecord};
use crate::launch::{Launched, Launcher, Order, verify};
use crate::localizer::Localizer;
use crate::logs::last_line;
use crate::process::{FoundWorker, Process, boot_id, find_workers};
use crate::report::Picture;
use crate::slot::{Action, Event, Job, Slot, Times};
use crate::socket::{Conn, Heard};
use crate::wanted::view;
use rustix::process::Signal;
use saetta_model::beat::{EdgeRate, ExecutorBeat, SupervisorBeat, WorkerBeat};
use saetta_model::local::{FromWorker, ToWorker, VERSION_MAX, VERSION_MIN, encode};
use saetta_model::{Name, TopologyRecord, TopologyState};
use saetta_store::ErrorEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{error, info, warn};

/// Errors of one component are passed on at most this often; the others are counted in the next.
const ERROR_EVERY: Duration = Duration::from_secs(1);
/// Components whose errors are told apart. More share the pace of the rest.
const ERROR_SOURCES_MAX: usize = 4096;
/// Longest error text passed on.
const ERROR_CHARS_MAX: usize = 2_000;
/// The loop turns at least this often ...
const TURN_EVERY: Duration = Duration::from_secs(1);
/// ... and when it turns so much later than it meant to, the process, its disk or its machine stood still.
const LATE_MAX: Duration = Duration::from_millis(250);
/// How often garbage is looked for at most, beside each time a slot is cleaned.
const GARBAGE_EVERY: Duration = Duration::from_secs(10);

/// What tasks of this supervisor tell its loop.
#[derive(Debug)]
pub(crate) enum Message {
    /// What became of a fetch or a launch that failed.
    Slot(u16, Event),
    /// A process was made.
    Launched { port: u16, start: u64, launched: Launched },
    /// A process has ended.
    Exited { port: u16, pid: u32, why: String },
    /// Stop every worker and take no more; answered once none is left.
    EndWorkers(oneshot::Sender<()>),
}

/// A slot with what its state machine does not hold: handles.
struct Seat {
    slot: Slot,
    process: Option<Arc<Process>>,
    conn: Option<Conn>,
    /// What its worker last said of itself; `None` before its first beat.
    beat: Option<LastBeat>,
}

struct LastBeat {
    version: u64,
    ended: bool,
    drained: bool,
    carrier: String,
    edges: Vec<EdgeRate>,
    executors: Vec<ExecutorBeat>,
}

pub(crate) struct Agent {
    node: Name,
    /// Ports of `supervisor.slots.ports`. `seats` may hold more: those with a worker of a former configuration.
    ports: BTreeSet<u16>,
    seats: BTreeMap<u16, Seat>,
    topologies: BTreeMap<Name, Arc<Known>>,
    dir: Arc<Dir>,
    localizer: Arc<Localizer>,
    launcher: Arc<Launcher>,
    to_self: mpsc::Sender<Message>,
    beats: watch::Sender<Picture>,
    errors: mpsc::Sender<WorkerError>,
    error_paces: BTreeMap<(Name, Name), (Instant, u32)>,
    /// Problems already reported; each is said once, when it appears.
    problems: BTreeSet<String>,
    updates: u64,
    began: Instant,
    /// Time in which this loop did not turn; see `now_ms`.
    stood_still: Duration,
    garbage_looked: Option<Instant>,
    /// Fetches, launches, ends waited for. They end with the agent, so that nothing of it holds the directory after it.
    work: JoinSet<()>,
    /// Set once every worker shall end.
    ending: Option<oneshot::Sender<()>>,
}

/// The way into the loop.
pub(crate) struct Inlets {
    pub(crate) readings: mpsc::Receiver<Reading>,
    pub(crate) heard: mpsc::Receiver<(u16, Heard)>,
    pub(crate) messages: mpsc::Receiver<Message>,
}

/// The ways out of it.
pub(crate) struct Outlets {
    pub(crate) localizer: Arc<Localizer>,
    pub(crate) launcher: Arc<Launcher>,
    pub(crate) to_self: mpsc::Sender<Message>,
    pub(crate) beats: watch::Sender<Picture>,
    pub(crate) errors: mpsc::Sender<WorkerError>,
}

/// What a worker that belongs here is answered.
enum Answer {
    /// Its record and assignment.
    Boot,
    /// Nothing yet.
    Later(&'static str),
}

impl Agent {
    /// Takes over the slots as the directory and the machine show them: workers that live are adopted.
    pub(crate) fn new(node: Name, ports: &[u16], times: Times, dir: Arc<Dir>, out: Outlets) -> Self {
        let mut agent = Agent {
            node,
            ports: ports.iter().copied().collect(),
            seats: BTreeMap::new(),
            topologies: BTreeMap::new(),
            dir,
            localizer: out.localizer,
            launcher: out.launcher,
            to_self: out.to_self,
            beats: out.beats,
            errors: out.errors,
            error_paces: BTreeMap::new(),
            problems: BTreeSet::new(),
            updates: 0,
            began: Instant::now(),
            stood_still: Duration::ZERO,
            garbage_looked: None,
            work: JoinSet::new(),
            ending: None,
        };
        let mut found: BTreeMap<u16, Vec<FoundWorker>> = BTreeMap::new();
        for worker in find_workers(&agent.dir.run()) {
            found.entry(worker.port).or_default().push(worker);
        }
        let mut all_ports = agent.ports.clone();
        all_ports.extend(found.keys());
        for port in all_ports {
            agent.take_over(port, times, found.remove(&port).unwrap_or_default());
        }
        let keep = agent.seats.iter().filter_map(|(port, s)| Some(agent.dir.worker(*port, s.slot.job()?))).collect();
        agent.dir.sweep_workers(&keep);
        agent
    }

    /// Ports that need a socket.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.seats.keys().copied().collect()
    }

    /// Makes the seat of one port, with the worker that lives there if there is one.
    fn take_over(&mut self, port: u16, times: Times, found: Vec<FoundWorker>) {
        let (record, corrupt) = match self.dir.read_slot(port) {
            Read::Value(record) => (Some(record), false),
            Read::Missing => (None, false),
            Read::Corrupt => (None, true),
        };
        let starts = record.as_ref().map(|r| r.starts.clone()).unwrap_or_default();
        let adopted = record.as_ref().and_then(adoptable).or_else(|| found.iter().find_map(|f| self.adoptable_unrecorded(f, &starts)));
        for stranger in found.iter().filter(|f| adopted.as_ref().is_none_or(|(_, _, p)| p.pid != f.pid)) {
            warn!(port, pid = stranger.pid, "a worker with an old start number is killed: it belongs to nobody");
            if let Some(process) = Process::open(stranger.pid, None) {
                process.signal(Signal::KILL);
            }
        }
        // Nothing is known of the numbers used before: begin above all that can have been.
        let floor = if corrupt { unix_ms() / 1_000 } else { 0 };
        let seat = match adopted {
            Some((job, start, process)) => {
                info!(port, pid = process.pid, start, "adopted the worker of {}", job.topology);
                if let Some(known) = self.dir.read_known(&job.topology) {
                    self.topologies.insert(job.topology.clone(), Arc::new(known));
                }
                let slot = Slot::adopted(times, starts, job, start, process.pid, self.now_ms());
                let process = Arc::new(process);
                self.watch_end(port, Arc::clone(&process), None, None);
                Seat { slot, process: Some(process), conn: None, beat: None }
            }
            None => Seat { slot: Slot::new(times, starts, floor), process: None, conn: None, beat: None },
        };
        self.seats.insert(port, seat);
    }

    /// A worker whose process is not on record (the supervisor died between fork and note, or the note is lost): everything needed is in
    /// its command line, and its binary's name is its hash.
    fn adoptable_unrecorded(&self, found: &FoundWorker, starts: &BTreeMap<u64, u64>) -> Option<(Job, u64, Process)> {
        if starts.get(&found.placement).is_some_and(|highest| *highest != found.start) {
            return None;
        }
        let job = Job { topology: Name::new(&found.topology).ok()?, binary: found.binary.clone(), placement: found.placement };
        Some((job, found.start, Process::open(found.pid, None)?))
    }

    /// Runs until the inlets close, or every worker has ended after `EndWorkers`.
    pub(crate) async fn run(mut self, mut inlets: Inlets) {
        self.publish();
        let mut wake = Instant::now();
        loop {
            let late = wake.elapsed();
            if late > LATE_MAX {
                // A busy machine makes it a little late now and then; only more than that is worth a word.
                if late > TURN_EVERY {
                    warn!("this supervisor stood still for {} ms; that time counts against no worker", late.as_millis());
                }
                self.stood_still += late;
            }
            let next = self.seats.values().filter_map(|s| s.slot.deadline_ms()).min();
            wake = Instant::now() + TURN_EVERY;
            if let Some(next) = next {
                wake = wake.min(self.began + self.stood_still + Duration::from_millis(next));
            }
            tokio::select! {
                // What workers said comes before the time they have left to say it.
                biased;
                reading = inlets.readings.recv() => match reading {
                    Some(reading) => self.take_reading(reading),
                    None => return,
                },
                heard = inlets.heard.recv() => match heard {
                    Some((port, heard)) => self.hear(port, heard),
                    None => return,
                },
                message = inlets.messages.recv() => match message {
                    Some(message) => self.take(message),
                    None => return,
                },
                Some(_) = self.work.join_next() => continue,
                () = tokio::time::sleep_until(wake) => {
                    if wake.elapsed() > LATE_MAX {
                        // Woken late: first the time is put right, above.
                        continue;
                    }
                    for port in self.ports() {
                        self.step(port, Event::Tick);
                    }
                }
            }
            self.publish();
            if let Some(done) = self.ending.take_if(|_| self.seats.values().all(|s| s.slot.job().is_none())) {
                let _ = done.send(());
                return;
            }
        }
    }

    /// Milliseconds this supervisor was awake. Had it counted the time it was stopped itself (SIGSTOP, a disk that hangs), every
    /// worker would have been silent for too long when it wakes.
    fn now_ms(&self) -> u64 {
        (self.began.elapsed() - self.stood_still).as_millis() as u64
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Slot(port, event) => self.step(port, event),
            Message::Launched { port, start, launched } => self.launched(port, start, launched),
            Message::Exited { port, pid, why } => self.exited(port, pid, why),
            Message::EndWorkers(done) => {
                self.ending = Some(done);
                for port in self.ports() {
                    self.step(port, Event::Want(None));
                }
            }
        }
    }

    /// A reading of the store: new desires for the slots, news for the workers.
    fn take_reading(&mut self, reading: Reading) {
        if self.ending.is_some() {
            return;
        }
        let current = self.seats.iter().filter_map(|(port, s)| Some((*port, s.slot.want()?.topology.clone()))).collect();
        let Reading { assignments, records, unreadable } = reading;
        let view = view(&self.node, &self.ports, assignments, records, unreadable, &current);
        let problems: BTreeSet<String> = view.problems.iter().cloned().collect();
        for problem in problems.difference(&self.problems) {
            warn!("{problem}");
        }
        self.problems = problems;

        for (id, known) in &view.topologies {
            if self.topologies.get(id).is_some_and(|old| **old == **known) {
                continue;
            }
            if let Err(e) = self.dir.write_known(known) {
                warn!("keeping the record of {id}: {e}; a worker restarted without the store would lack it");
            }
            self.topologies.insert(id.clone(), Arc::clone(known));
            self.tell_workers(id, known);
        }
        for port in self.ports() {
            let seat = &self.seats[&port];
            if seat.slot.want().is_some_and(|job| view.unreadable.contains(&job.topology)) {
                continue;
            }
            let want = view.jobs.get(&port).cloned();
            if seat.slot.want() != want.as_ref() {
                self.step(port, Event::Want(want));
            }
        }
        if self.garbage_looked.is_none_or(|at| at.elapsed() >= GARBAGE_EVERY) {
            self.collect_garbage();
        }
    }

    fn tell_workers(&mut self, topology: &Name, known: &Known) {
        self.updates += 1;
        let update = ToWorker::Update { record: Box::new(known.record.clone()), assignment: Box::new(known.assignment.clone()) };
        let bytes: Arc<[u8]> = encode(&update).into();
        for seat in self.seats.values().filter(|s| s.slot.job().is_some_and(|j| j.topology == *topology)) {
            if let Some(conn) = &seat.conn {
                conn.outbox.send_modify(|o| o.update = Some((self.updates, Arc::clone(&bytes))));
            }
        }
    }

    /// Forgets what no slot refers to any more, in memory and on disk.
    fn collect_garbage(&mut self) {
        self.garbage_looked = Some(Instant::now());
        let jobs: Vec<&Job> = self.seats.values().flat_map(|s| s.slot.job().into_iter().chain(s.slot.want())).collect();
        let topologies: BTreeSet<Name> = jobs.iter().map(|j| j.topology.clone()).collect();
        let binaries: BTreeSet<String> = jobs.iter().map(|j| j.binary.clone()).collect();
        self.topologies.retain(|id, _| topologies.contains(id));
        self.error_paces.retain(|(topology, _), _| topologies.contains(topology));
        self.dir.collect_garbage(&topologies, &binaries);
    }

    /// One event to one slot, and what follows from it.
    fn step(&mut self, port: u16, event: Event) {
        let now_ms = self.now_ms();
        let Some(seat) = self.seats.get_mut(&port) else { return };
        let before = (seat.slot.word(), seat.slot.note().to_owned());
        let job_before = seat.slot.job().cloned();
        let actions = seat.slot.step(event, now_ms);
        let after = (seat.slot.word(), seat.slot.note());
        if before != (after.0, after.1.to_owned()) {
            let topology = seat.slot.job().or(job_before.as_ref()).map_or("", |j| j.topology.as_str());
            let (word, note) = (after.0.unwrap_or("empty"), after.1);
            match word {
                "failed" => error!(port, topology, "slot failed, tried again every 10 s: {note}"),
                _ if note.is_empty() || note == before.1 => info!(port, topology, start = seat.slot.start(), "slot {word}"),
                _ => warn!(port, topology, start = seat.slot.start(), "slot {word}: {note}"),
            }
        }
        for action in actions {
            self.act(port, action);
        }
    }

    fn act(&mut self, port: u16, action: Action) {
        let seat = self.seats.get_mut(&port).expect("actions come from a seat");
        match action {
            Action::Fetch(job) => {
                let (localizer, back) = (Arc::clone(&self.localizer), self.to_self.clone());
                self.work.spawn(async move {
                    let event = match localizer.bring(&job).await {
                        Ok(()) => Event::Fetched(job),
                        Err(why) => Event::FetchFailed(job, why),
                    };
                    let _ = back.send(Message::Slot(port, event)).await;
                });
            }
            Action::Launch(job, start) => {
                seat.beat = None;
                seat.conn = None;
                let record = SlotRecord { job: Some(job.clone()), start, starts: seat.slot.starts().clone(), ..SlotRecord::default() };
                let (dir, launcher, back) = (Arc::clone(&self.dir), Arc::clone(&self.launcher), self.to_self.clone());
                self.work.spawn(async move {
                    let message = match launch(&dir, &launcher, port, job, start, record).await {
                        Ok(launched) => Message::Launched { port, start, launched },
                        Err(event) => Message::Slot(port, event),
                    };
                    let _ = back.send(message).await;
                });
            }
            Action::TellStop => {
                if let Some(conn) = &seat.conn {
                    conn.outbox.send_modify(|o| o.stop = true);
                }
            }
            Action::Terminate => signal(seat, Signal::TERM),
            Action::Kill => signal(seat, Signal::KILL),
            Action::Clean(job) => {
                let record = SlotRecord { starts: seat.slot.starts().clone(), ..SlotRecord::default() };
                if let Err(e) = self.dir.write_slot(port, &record) {
                    warn!(port, "noting down that a slot is empty: {e}");
                }
                self.dir.remove_worker(port, &job);
                self.collect_garbage();
            }
        }
    }

    fn launched(&mut self, port: u16, start: u64, launched: Launched) {
        let process = Arc::new(launched.process);
        let pid = process.pid;
        if let Some(seat) = self.seats.get_mut(&port) {
            seat.process = Some(Arc::clone(&process));
        }
        let log = self.seats.get(&port).and_then(|s| s.slot.job()).map(|j| (self.dir.log(port, &j.topology), launched.log_bytes));
        self.watch_end(port, process, Some(launched.child), log);
        self.step(port, Event::Launched { start, pid });
    }

    /// Waits for the end of a process. `log` = where it writes, and how much was there before it: its last line often says why.
    fn watch_end(&mut self, port: u16, process: Arc<Process>, child: Option<Child>, log: Option<(PathBuf, u64)>) {
        let back = self.to_self.clone();
        self.work.spawn(async move {
            let mut why = process.ended(child).await;
            if let Some(last) = log.and_then(|(path, from)| last_line(&path, from)) {
                why = format!("{why}; its last words: {last}");
            }
            let _ = back.send(Message::Exited { port, pid: process.pid, why }).await;
        });
    }

    fn exited(&mut self, port: u16, pid: u32, why: String) {
        if let Some(seat) = self.seats.get_mut(&port)
            && seat.process.as_ref().is_some_and(|p| p.pid == pid)
        {
            seat.process = None;
            seat.conn = None;
            seat.beat = None;
        }
        self.step(port, Event::Exited { pid, why });
    }

    fn hear(&mut self, port: u16, heard: Heard) {
        match heard {
            Heard::Hello { hello, pid, conn } => {
                match self.hello(port, hello, pid, &conn) {
                    Ok(Answer::Boot) => {}
                    // The connection is let go without a word: a worker takes that for a supervisor that is away, goes on and comes again.
                    Ok(Answer::Later(why)) => return info!(port, pid, "a worker has to come again: {why}"),
                    Err(why) => {
                        warn!(port, pid, "turned a worker away: {why}");
                        // The writer sees the text before it sees that the connection was let go.
                        conn.outbox.send_modify(|o| o.refused = Some(why));
                        return;
                    }
                }
                if let Some(seat) = self.seats.get_mut(&port) {
                    seat.conn = Some(conn);
                }
            }
            Heard::Said { conn, message } => {
                let Some(seat) = self.seats.get_mut(&port) else { return };
                if seat.conn.as_ref().is_none_or(|c| c.id != conn) {
                    return;
                }
                match message {
                    FromWorker::Hello { .. } => {}
                    FromWorker::Beat { version, ended, drained, carrier, executors, edges } => {
                        seat.beat = Some(LastBeat { version, ended, drained, carrier, executors, edges });
                        let start = seat.slot.start();
                        self.step(port, Event::Beat { start });
                    }
                    FromWorker::Error { component, text } => self.pass_error(port, component, text),
                }
            }
            Heard::Closed { conn } => {
                if let Some(seat) = self.seats.get_mut(&port)
                    && seat.conn.as_ref().is_some_and(|c| c.id == conn)
                {
                    seat.conn = None;
                }
            }
        }
    }

    /// Lets a worker in that belongs here: answers `Boot`, or says why not.
    fn hello(&mut self, port: u16, hello: FromWorker, pid: u32, conn: &Conn) -> Result<Answer, String> {
        let FromWorker::Hello { versions, topology, placement, start, pid: claimed, .. } = hello else {
            return Err("its first message was no hello".into());
        };
        let version = versions.1.min(VERSION_MAX);
        if version < versions.0.max(VERSION_MIN) {
            return Err(format!(
                "it speaks versions {} to {} of the local protocol and this supervisor {VERSION_MIN} to {VERSION_MAX}",
                versions.0, versions.1
            ));
        }
        if claimed != pid {
            return Err(format!("it says it is process {claimed} and is {pid}"));
        }
        let seat = self.seats.get(&port).ok_or("there is no such slot")?;
        let job = seat.slot.job().filter(|j| j.topology == topology).ok_or("its topology is not wanted in this slot")?;
        let Some(known) = self.topologies.get(&job.topology).cloned() else {
            // Refused, it would end; it may well be what this slot shall run, once the store can be read.
            return Ok(Answer::Later("the record of its topology is not here yet"));
        };
        if seat.slot.is_lost_child(placement, start) {
            let process = Arc::new(Process::open(pid, None).ok_or("it is gone")?);
            self.seats.get_mut(&port).expect("just seen").process = Some(Arc::clone(&process));
            self.watch_end(port, process, None, None);
            self.step(port, Event::Found { placement, start, pid });
        } else if !seat.slot.is_mine(placement, start) || seat.slot.pid().is_some_and(|p| p != pid) {
            return Err(format!("placement {placement:016x} with start number {start} is not what this slot runs now"));
        }
        let boot = ToWorker::Boot { version, record: Box::new(known.record.clone()), assignment: Box::new(known.assignment.clone()) };
        let stopping = self.seats[&port].slot.word() == Some("stopping");
        conn.outbox.send_modify(|o| {
            o.boot = Some(encode(&boot).into());
            o.stop = stopping;
        });
        Ok(Answer::Boot)
    }

    /// Passes an error of a worker on to operators, at a bounded rate.
    fn pass_error(&mut self, port: u16, component: Name, text: String) {
        let Some(topology) = self.seats[&port].slot.job().map(|j| j.topology.clone()) else { return };
        let text: String = text.chars().take(ERROR_CHARS_MAX).collect();
        warn!(port, topology = topology.as_str(), "{component}: {text}");
        let mut key = (topology, component);
        if self.error_paces.len() >= ERROR_SOURCES_MAX && !self.error_paces.contains_key(&key) {
            key.1 = Name::system("__system");
        }
        let (last, dropped) = self.error_paces.get(&key).copied().map_or((None, 0), |(at, n)| (Some(at), n));
        if let Some(last) = last.filter(|l| l.elapsed() < ERROR_EVERY) {
            self.error_paces.insert(key, (last, dropped + 1));
            return;
        }
        self.error_paces.insert(key.clone(), (Instant::now(), 0));
        let text = if dropped > 0 { format!("{text} (and {dropped} more before it)") } else { text };
        let entry = ErrorEntry { at_ms: unix_ms(), node: self.node.clone(), port, text };
        if self.errors.try_send(WorkerError { topology: key.0, component: key.1, entry }).is_err() {
            warn!(port, "an error was not passed on: the store is behind");
        }
    }

    /// Hands the newest picture of all slots to `cluster`.
    fn publish(&self) {
        let workers = self.seats.iter().filter_map(|(port, seat)| {
            let job = seat.slot.job()?;
            // While spouts emit, a worker is drained now and then by chance; passing that on would be a write each second.
            let spouts_on = self.topologies.get(&job.topology).is_none_or(|k| k.record.state.spouts_on());
            let beat = seat.beat.as_ref();
            Some(WorkerBeat {
                topology: job.topology.to_string(),
                port: *port,
                placement: job.placement,
                start: seat.slot.start(),
                pid: seat.slot.pid().unwrap_or(0),
                state: seat.slot.word()?.to_owned(),
                note: seat.slot.note().to_owned(),
                version: beat.map_or(0, |b| b.version),
                executors: beat.map_or_else(Vec::new, |b| b.executors.clone()),
                ended: beat.is_some_and(|b| b.ended),
                drained: beat.is_some_and(|b| b.drained && !spouts_on),
                carrier: beat.map_or_else(String::new, |b| b.carrier.clone()),
                edges: beat.map_or_else(Vec::new, |b| b.edges.clone()),
            })
        });
        let beat = SupervisorBeat { at_ms: 0, workers: workers.collect() };
        let draining = self.seats.values().filter_map(|s| self.topologies.get(&s.slot.job()?.topology)).any(|k| is_killed(&k.record));
        let picture = Picture { beat, draining };
        self.beats.send_if_modified(|old| {
            let changed = *old != picture;
            if changed {
                *old = picture;
            }
            changed
        });
    }
}

fn is_killed(record: &TopologyRecord) -> bool {
    matches!(record.state, TopologyState::Killed { .. })
}

fn signal(seat: &Seat, signal: Signal) {
    if let Some(process) = &seat.process {
        process.signal(signal);
    }
}

/// The worker on record, if it is alive and is the process that was started.
fn adoptable(record: &SlotRecord) -> Option<(Job, u64, Process)> {
    if record.pid == 0 || record.boot != boot_id() {
        return None;
    }
    Some((record.job.clone()?, record.start, Process::open(record.pid, Some(record.ticks))?))
}

/// Verifies the binary, then starts it. An error is the event the slot gets.
async fn launch(dir: &Arc<Dir>, launcher: &Launcher, port: u16, job: Job, start: u64, record: SlotRecord) -> Result<Launched, Event> {
    let blob = dir.blob(&job.binary);
    let binary = job.binary.clone();
    let checked = tokio::task::spawn_blocking(move || {
        verify(&blob, &binary).inspect_err(|_| {
            let _ = std::fs::remove_file(&blob);
        })
    });
    match checked.await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => return Err(Event::BinaryBad { start, why }),
        Err(e) => return Err(Event::LaunchFailed { start, why: e.to_string() }),
    }
    let Some(key) = dir.read_key(&job.topology) else {
        return Err(Event::BinaryBad { start, why: format!("the key of {} is not here", job.topology) });
    };
    let order = Order { port, job, start, key, record };
    launcher.launch(order).await.map_err(|e| Event::LaunchFailed { start, why: format!("starting the worker: {e}") })
}
