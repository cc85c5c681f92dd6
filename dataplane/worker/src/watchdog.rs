//! The one thread of a worker that is no core loop: one wait for links, supervisor, signals and loops; then what each of them asks for.
//!
//! Before: `boot.rs` has record and assignment. After: core loops get sockets, routes and "spouts on"; the supervisor gets beats.
//! A loop that is stuck in user code stops none of this.

use crate::boot::Signals;
use crate::busy::Busy;
use crate::loop_watch::LoopWatch;
use crate::peers::{Gone, Peers};
use crate::rate::Rate;
use crate::rates::Rates;
use crate::supervisor::{Event, Supervisor};
use crate::{WorkerArgs, WorkerError, log, place};
use saetta_engine::{
    Command, Engine, EnginePlan, ErrorReport, ExecutorStats, HowEnded, LoopStats, Options, Program, Running, Share, Shared,
};
use saetta_model::Name;
use saetta_model::assignment::{Assignment, Placement};
use saetta_model::beat::ExecutorBeat;
use saetta_model::local::{BEAT_EVERY, FromWorker, ToWorker};
use saetta_model::loops::LoopRule;
use saetta_model::parallelism::{ExecutorId, Layout};
use saetta_model::record::TopologyRecord;
use saetta_transport::{
    Accepted, Admission, Connection, Connector, ConnectorEvent, ConnectorOptions, Identity, Key, Peer, RING_BYTES_DEFAULT, Refusal, Road,
    Role, Target, TargetKey,
};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest wait between two looks at counters; what wakes the watchdog earlier is a descriptor.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Shortest time between two beats, whatever changes.
const BEAT_GAP_MIN: Duration = Duration::from_millis(50);
/// Targets are set again so often, in case a host's address changed or could not be found.
const TARGETS_EVERY: Duration = Duration::from_secs(10);
/// When told to stop: how long what waits may take to drain. With the goodbyes, less than the six seconds after which a supervisor kills.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(3);
/// After that: how long peers may take to answer a goodbye, and the last messages to reach the supervisor.
const GOODBYE_TIME_MAX: Duration = Duration::from_secs(2);
/// Counters of waiting bytes are published at least this often by a busy loop (100 times a second); two looks this far apart are two states.
const SETTLE: Duration = Duration::from_millis(25);
/// Reports that pass at once, and the time for each after that.
const REPORT_BURST: u32 = 32;
const REPORT_EVERY: Duration = Duration::from_millis(200);

/// Why the watchdog's loop ends.
enum End {
    /// Told so; the text is for the log.
    Stop(String),
    /// SIGTERM. A second one cuts the draining short.
    Terminated,
    Restart(String),
    Refused(String),
    /// A loop ended the engine: `Shared::fatal` says why, or it panicked.
    Fatal,
}

/// See the head of this file.
pub(crate) struct Watchdog {
    id: u64,
    topology: Name,
    layout: Layout,
    rule: LoopRule,
    own: Placement,
    host: String,
    record: TopologyRecord,
    assignment: Assignment,
    program: Program,
    /// As the plan of the running engine has them.
    options: Options,
    /// Loops open a carrier when they start.
    linked: bool,
    /// Links of the assignment in force, and when those of the one before are given up: what changes place is settled by then.
    settle: Option<(Instant, BTreeSet<TargetKey>)>,
    /// The newest assignment does not name this worker: it ends when it has handed over what it has, or then.
    parting: Option<Instant>,
    peers: Peers,
    /// Links that loops share.
    shares: Vec<Share>,
    links_max: u32,
    /// `worker.moves`.
    moves: bool,
    connector: Connector,
    supervisor: Supervisor,
    signals: Signals,
    running: Running,
    executors: Vec<Arc<ExecutorStats>>,
    busy: Busy,
    rates: Rates,
    loops: LoopWatch,
    reports: Rate,
    /// Spouts as last commanded.
    spouts_on: bool,
    /// Told to stop: spouts stay off, whatever the record says.
    stopping: bool,
    beaten: Option<(Instant, (u64, bool, bool))>,
    targets_due: Instant,
}

impl Watchdog {
    /// Builds and starts the engine, and opens the door. `None` = the assignment does not name this worker any more.
    pub(crate) fn start(
        args: &WorkerArgs,
        key: Key,
        program: Program,
        record: TopologyRecord,
        assignment: Assignment,
        supervisor: Supervisor,
        signals: Signals,
    ) -> Result<Option<Self>, WorkerError> {
        let topology = Name::new(&args.topology).map_err(|e| WorkerError::Arguments(e.to_string()))?;
        if record.id != topology {
            return Err(WorkerError::Topology(format!("the supervisor sent the record of {} to a worker of {topology}", record.id)));
        }
        let digest = program.spec.digest();
        if digest != record.digest {
            return Err(WorkerError::Digest { own: digest, record: record.digest });
        }
        let Some(own) = place::placement(&assignment, args.placement).cloned() else {
            let text = format!("assignment {} does not name placement {:016x}; nothing to do", assignment.version, args.placement);
            log::info(&topology, &text);
            return Ok(None);
        };
        let config = place::config(&program.config, &record.config).map_err(WorkerError::Topology)?;
        let layout = Layout::new(&program.spec, &config).map_err(|e| WorkerError::Topology(e.to_string()))?;
        let mut options = Options::from_config(&config)?;
        options.alone = own.share <= 1;
        options.worker_bit = saetta_engine::worker_bit(own.index, args.start);
        let memory_max = options.memory_bytes;
        let rule = LoopRule::new(&program.spec, &layout, &config);
        options.version = assignment.version;
        let plan = place::plan(layout.clone(), options.clone(), &rule, &assignment, &own).map_err(WorkerError::Topology)?;
        let links_max = options.links_max as u32;
        let moves = config.text("worker.moves") == Some("true");
        let linking = place::linking(&program.spec, &layout, &rule, &assignment, &own, links_max).map_err(WorkerError::Topology)?;

        let host = assignment.hosts.get(&own.slot.node).cloned().unwrap_or_default();
        let bind = address(&host, args.port).map_err(|e| WorkerError::Topology(format!("own address {host:?}: {e}")))?;
        let identity = Identity {
            topology: topology.as_str().to_owned(),
            placement: args.placement,
            start: args.start,
            index: own.index,
            format: format(&digest),
            ring_bytes: RING_BYTES_DEFAULT as u32,
        };
        // The door before the loops: a slot whose port is taken is told before user code runs.
        let (memory, tls) = (plan.options.share_memory, plan.options.tls);
        let mut connector = Connector::new(ConnectorOptions { bind, key, identity, memory, tls }).map_err(WorkerError::Listen)?;
        if let Some(why) = connector.without_memory() {
            log::info(&topology, why);
        }
        let linked = layout.workers_wanted > 1 || assignment.workers.len() > 1;
        let engine = Engine::build(&program, &plan, linked)?;
        log::info(&topology, &describe(args, &assignment, &own, &layout, &plan, engine.memory(), memory_max));
        let running = engine.start()?;
        let wakers: std::io::Result<Vec<_>> = running.handles.iter().map(|handle| handle.waker()).collect();
        connector.set_wakers(wakers.map_err(WorkerError::Listen)?);
        if !linking.shares.is_empty() {
            log::info(&topology, &sharing(&linking.shares, links_max));
            running.send_all(|| Command::Shares(linking.shares.clone()));
        }
        if let Some(carrier) = running.shared.carrier.get() {
            log::info(&topology, &format!("links over sockets go by {carrier}"));
        }
        let now = Instant::now();
        Ok(Some(Watchdog {
            id: args.placement,
            topology,
            program,
            options,
            linked,
            settle: None,
            parting: None,
            peers: Peers::new(&assignment, &own, &rule, linking.links),
            shares: linking.shares,
            links_max,
            moves,
            layout,
            rule,
            own,
            host,
            record,
            assignment,
            connector,
            supervisor,
            signals,
            rates: Rates::new(now),
            busy: Busy::new(running.shared.executors().len(), now),
            executors: running.shared.executors(),
            loops: LoopWatch::new(&running, plan.options.blocking_loops, now),
            running,
            reports: Rate::new(REPORT_BURST, REPORT_EVERY, now),
            spouts_on: false,
            stopping: false,
            beaten: None,
            targets_due: now,
        }))
    }

    /// Until told to stop.
    pub(crate) fn run(mut self) -> Result<(), WorkerError> {
        // Spouts need not wait for peers: what is for a peer without a link stays with its emitter, and dead peers hold up nobody else.
        self.activate();
        let end = loop {
            if let Some(end) = self.turn(LOOK_EVERY) {
                break end;
            }
        };
        let (text, error) = match end {
            End::Fatal => return self.fail(),
            End::Stop(why) => (why, None),
            End::Terminated => ("SIGTERM".to_owned(), None),
            End::Restart(why) => (why.clone(), Some(WorkerError::Restart(why))),
            End::Refused(why) => (why.clone(), Some(WorkerError::Refused(why))),
        };
        log::info(&self.topology, &format!("stopping: {text}"));
        self.stop()?;
        error.map_or(Ok(()), Err)
    }

    /// One round: everything that is due, then one wait.
    fn turn(&mut self, wait_max: Duration) -> Option<End> {
        let now = Instant::now();
        if now >= self.targets_due {
            self.set_targets(now);
        }
        self.read_link_ends();
        self.pass_reports();
        self.watch_loops(now);
        self.running.end_cycles();
        let end = self.settle(now).or(self.hear_supervisor(now));
        self.beat(now);
        if end.is_some() {
            return end;
        }
        if self.signals.terminated() {
            return Some(End::Terminated);
        }
        if self.running.shared.fatal.get().is_some() || self.running.over() {
            return Some(End::Fatal);
        }
        self.wait(wait_max);
        None
    }

    fn wait(&mut self, wait_max: Duration) {
        let Watchdog { running, connector, peers, supervisor, signals, executors, loops, .. } = self;
        let shared = running.shared.clone();
        let mut decide = |claim: &saetta_transport::Claim| match claim.role {
            Role::Probe => {
                let sum = |count: fn(&ExecutorStats) -> u64| executors.iter().map(|e| count(e)).sum();
                let executed = sum(|e| e.executed.load(Ordering::Relaxed));
                Ok(Admission::Probe { executed, emitted: sum(|e| e.emitted.load(Ordering::Relaxed)) })
            }
            Role::Link if loops.is_stuck(claim.to_loop as usize) => Err(Refusal("that loop is held up in user code".into())),
            Role::Link => peers.admit(claim).map(|()| Admission::Link),
        };
        let mut events = Vec::new();
        shared.watchdog.about_to_sleep();
        let nothing = shared.link_ends.is_empty() && shared.fatal.get().is_none();
        let timeout = if nothing { wait_max } else { Duration::ZERO };
        let fds: Vec<_> = [shared.watchdog.as_fd(), signals.as_fd()].into_iter().chain(supervisor.fd()).collect();
        connector.turn(timeout, &fds, &mut decide, &mut events);
        drop(fds);
        shared.watchdog.awake();
        // Ends first: an end that is read after a new link was handed out would have that one dialled again.
        self.read_link_ends();
        self.tell_gone();
        for event in events {
            match event {
                ConnectorEvent::Accepted(Accepted { connection, peer }) => self.give(connection, peer, None),
                ConnectorEvent::Connected { target, connection, peer } => {
                    if self.peers.note_start(peer.placement, peer.start) {
                        self.give(connection, peer, Some(target));
                    } else {
                        self.connector.again(target);
                    }
                }
                ConnectorEvent::Unreachable { target, addr, reason } => {
                    let name = self.peers.name(target.placement);
                    log::info(&self.topology, &format!("no link yet with {name} at {addr}: {reason}"));
                }
                ConnectorEvent::WithoutMemory { target, reason } => {
                    let name = self.peers.name(target.placement);
                    log::info(&self.topology, &format!("{name} is of this host but shares no memory: {reason}; the link is TCP"));
                }
            }
        }
    }

    /// Tells every loop which incarnations are gone for good: before it is given a link of a later one.
    fn tell_gone(&mut self) {
        for Gone { placement, start, index } in self.peers.take_gone() {
            self.running.send_all(|| Command::Lost { placement, start, index });
            let name = self.peers.name(placement);
            log::info(&self.topology, &format!("{name} start {start} is gone: trees that were in it fail"));
        }
    }

    /// Hands a link to its loop.
    fn give(&mut self, connection: Connection, peer: Peer, dialled: Option<TargetKey>) {
        let kind = connection.kind();
        self.tell_gone();
        let name = self.peers.name(peer.placement);
        let Some(handle) = self.running.handles.get(peer.local_loop as usize) else {
            unreachable!("`Peers` admits and dials only loops that exist");
        };
        if handle.try_send(Command::AddLink { connection, peer }).is_ok() {
            let who = if dialled.is_some() { "dialled" } else { "accepted" };
            let (ours, theirs) = (peer.local_loop, peer.remote_loop);
            if peer.road == Road::Data {
                let text = format!("linked with {name} start {}: loop {ours} - loop {theirs}, {who}, {kind}", peer.start);
                log::info(&self.topology, &text);
            }
        } else if let Some(key) = dialled {
            // The loop takes no commands; the peer sees the connection end.
            self.connector.again(key);
        }
    }

    fn read_link_ends(&mut self) {
        while let Some(end) = self.running.shared.link_ends.pop() {
            let name = self.peers.name(end.placement);
            let (placement, local_loop, remote_loop, road) = (end.placement, end.local_loop, end.remote_loop, end.road);
            let key = TargetKey { placement, local_loop, remote_loop, road };
            self.connector.again(key);
            let loops = format!("(loop {} - loop {})", end.local_loop, end.remote_loop);
            match end.how {
                HowEnded::Goodbye if road == Road::Data => log::info(&self.topology, &format!("{name} said goodbye {loops}")),
                HowEnded::Goodbye | HowEnded::Closed => {}
                HowEnded::Lost(why) => {
                    // One that was about to part did not do so in order.
                    self.peers.part(|placement| placement == end.placement);
                    self.report(&Name::system("__system"), &format!("link with {name} lost {loops}: {why}"));
                }
            }
        }
    }

    /// Says who is to be dialled. Level-triggered.
    fn set_targets(&mut self, now: Instant) {
        self.targets_due = now + TARGETS_EVERY;
        let mut targets = Vec::new();
        let mut unknown = Vec::new();
        for (key, other) in self.peers.dialled() {
            match address(&other.host, other.port) {
                Ok(addr) => targets.push(Target { key, addr, same_host: other.host == self.host }),
                Err(e) => unknown.push(format!("the address {:?} of {} cannot be found: {e}", other.host, self.peers.name(key.placement))),
            }
        }
        self.connector.set_targets(&targets);
        unknown.sort();
        unknown.dedup();
        for text in unknown {
            self.report(&Name::system("__system"), &text);
        }
    }

    fn pass_reports(&mut self) {
        while let Some(report) = self.running.shared.reports.pop() {
            self.report(&report.component, &report.text);
        }
    }

    /// To the log and to the supervisor, at a bounded rate.
    fn report(&mut self, component: &Name, text: &str) {
        let Some(held_back) = self.reports.pass(Instant::now()) else { return };
        let more = if held_back > 0 { format!(" ({held_back} reports before this one were held back)") } else { String::new() };
        let text = log::one_line(&format!("{text}{more}"));
        log::error(&self.topology, &format!("{component}: {text}"));
        self.supervisor.send(&FromWorker::Error { component: component.clone(), text });
    }

    fn watch_loops(&mut self, now: Instant) {
        for note in self.loops.look(&self.running, now) {
            match note.component {
                Some(component) => self.report(&component, &note.text),
                None => log::info(&self.topology, &note.text),
            }
        }
    }

    fn hear_supervisor(&mut self, now: Instant) -> Option<End> {
        let mut events = Vec::new();
        self.supervisor.turn(now, self.assignment.version, &mut events);
        let mut end = None;
        for event in events {
            let next = match event {
                Event::Said(ToWorker::Boot { record, assignment, .. }) => {
                    log::info(&self.topology, "the supervisor is back");
                    self.beaten = None;
                    self.take(*record, *assignment)
                }
                Event::Said(ToWorker::Update { record, assignment }) => self.take(*record, *assignment),
                Event::Said(ToWorker::Stop) => Some(End::Stop("told by the supervisor".into())),
                Event::Said(ToWorker::Refused { why }) => Some(End::Refused(why)),
                Event::Away(why) => {
                    log::info(&self.topology, &format!("no supervisor ({why}); going on without"));
                    None
                }
            };
            end = end.or(next);
        }
        end
    }

    /// A record and an assignment, perhaps newer than ours.
    fn take(&mut self, record: TopologyRecord, assignment: Assignment) -> Option<End> {
        if record.id != self.topology || assignment.version < self.assignment.version {
            return None;
        }
        self.record = record;
        if assignment.version > self.assignment.version {
            match self.adopt(assignment) {
                Ok(None) => {}
                Ok(Some(end)) => return Some(end),
                Err(why) => self.report(&Name::system("__system"), &format!("kept the old assignment: {why}")),
            }
        }
        self.activate();
        None
    }

    /// Executors come and go, routes and links change, and the process stays, where it can.
    fn adopt(&mut self, assignment: Assignment) -> Result<Option<End>, String> {
        let version = assignment.version;
        let Some(own) = place::placement(&assignment, self.id).cloned() else { return Ok(self.begin_to_part(&assignment)) };
        let host = assignment.hosts.get(&own.slot.node).cloned().unwrap_or_default();
        let moved = (host != self.host).then(|| format!("its address was {:?} and is now {host:?}", self.host));
        let unlinked = (!self.linked && assignment.workers.len() > 1).then(|| "it has peers now, and its loops have no carrier".to_owned());
        if let Some(why) = place::needs_restart(&self.rule, &self.own, &own).or(moved).or(unlinked) {
            return Ok(Some(End::Restart(format!("assignment {version}: {why}"))));
        }
        let linking = place::linking(&self.program.spec, &self.layout, &self.rule, &assignment, &own, self.links_max)?;
        let other_shares = linking.shares != self.shares;
        if (other_shares || !self.moves) && place::executors(&self.own) != place::executors(&own) {
            // A link that begins or ceases to be shared is closed, with what is on its way: moves would wait for that.
            return Ok(Some(End::Restart(format!("assignment {version}: other executors"))));
        }
        let mut wanted = place::move_links(&self.rule, &self.assignment, &assignment, self.id)?;
        wanted.extend(self.peers.links().iter().filter(|key| place::placement(&assignment, key.placement).is_some()));
        // Loops that share a link have no other meanwhile: all of them reach all of the peer's by it.
        wanted.retain(|key| !linking.shares.iter().any(|share| share.placement == key.placement));
        wanted.extend(linking.links.iter());
        let options = Options { version, ..self.options.clone() };
        let plan = place::plan(self.layout.clone(), options, &self.rule, &assignment, &own)?;
        self.peers.update(&assignment, &own, wanted);
        if linking.shares != self.shares {
            log::info(&self.topology, &sharing(&linking.shares, self.links_max));
            self.shares = linking.shares;
            self.running.send_all(|| Command::Shares(self.shares.clone()));
        }
        // Before any link of the new peers: commands keep their order.
        if let Err(why) = self.running.adopt(&self.program, &plan) {
            return Ok(Some(End::Restart(format!("assignment {version}: {why}"))));
        }
        self.settle = Some((Instant::now() + self.settle_time(), linking.links));
        self.tell_gone();
        log::info(
            &self.topology,
            &format!("assignment {version} in force, {} links wanted{}", self.peers.n_links(), changes(&self.own, &own)),
        );
        self.own = own;
        self.assignment = assignment;
        self.set_targets(Instant::now());
        Ok(None)
    }

    /// The assignment does not name this worker: its executors go, and it ends when they have.
    fn begin_to_part(&mut self, assignment: &Assignment) -> Option<End> {
        let text = format!("assignment {} does not name this worker any more", assignment.version);
        let nothing = Placement { executors: Vec::new(), ..self.own.clone() };
        let options = Options { version: assignment.version, ..self.options.clone() };
        let plan = place::plan(self.layout.clone(), options, &self.rule, assignment, &nothing);
        let begun = plan.map_err(|e| e.to_string()).and_then(|plan| self.running.adopt(&self.program, &plan).map_err(|e| e.to_string()));
        if self.parting.is_some() || begun.is_err() {
            return Some(End::Stop(text));
        }
        log::info(&self.topology, &format!("{text}: handing over"));
        self.parting = Some(Instant::now() + self.settle_time().min(DRAIN_TIME_MAX));
        None
    }

    /// By then whatever changes place has done so: a little less than the time after which loops say goodbye to those the assignment does not
    /// name, so that nobody dials them again.
    fn settle_time(&self) -> Duration {
        Duration::from_nanos(self.options.message_timeout_ns / 4 * 3)
    }

    /// What an assignment changed is settled, or time is over.
    fn settle(&mut self, now: Instant) -> Option<End> {
        if let Some(deadline) = self.parting
            && (now >= deadline || self.running.shared.settled())
        {
            return Some(End::Stop("no executor is left here".into()));
        }
        if self.settle.as_ref().is_some_and(|(at, _)| now >= *at)
            && let Some((_, links)) = self.settle.take()
        {
            self.peers.set_links(links);
            self.peers.part(|_| true);
            self.tell_gone();
            self.set_targets(now);
        }
        None
    }

    /// Spouts as the record says.
    fn activate(&mut self) {
        let on = self.record.state.spouts_on() && !self.record.finished && !self.stopping;
        if on != self.spouts_on {
            self.spouts_on = on;
            self.running.send_all(|| Command::Activate(on));
            let finished = if self.record.finished { ", finished" } else { "" };
            log::info(&self.topology, &format!("{}{finished}: spouts {}", self.record.state.word(), if on { "on" } else { "off" }));
        }
    }

    fn beat(&mut self, now: Instant) {
        let shared = &self.running.shared;
        // With spouts on, "drained" comes and goes with every tuple; it is news once they are off.
        let drained = shared.drained();
        let state = (self.assignment.version, shared.ended(), drained && !self.spouts_on);
        let due = match &self.beaten {
            None => true,
            Some((at, last)) => {
                let since = now.saturating_duration_since(*at);
                since >= BEAT_EVERY || (*last != state && since >= BEAT_GAP_MIN)
            }
        };
        if !due || !self.supervisor.is_here() {
            return;
        }
        let (version, ended, _) = state;
        let carrier = shared.carrier.get().map_or_else(String::new, ToString::to_string);
        let executors = shared.executors();
        let ran_ns: Vec<u64> = executors.iter().map(|e| e.busy_ns.load(Ordering::Relaxed)).collect();
        if !executors.iter().map(|e| e.id).eq(self.executors.iter().map(|e| e.id)) {
            self.busy = Busy::again(ran_ns.clone(), now);
        }
        self.executors = executors;
        let busy = self.busy.per_mille(ran_ns, now);
        let executors = self.executors.iter().zip(busy).map(|(e, busy)| executor_beat(e, busy)).collect();
        let edges = self.rates.per_second(self.running.edge_counts(), now);
        if self.supervisor.send(&FromWorker::Beat { version, ended, drained, carrier, executors, edges }) {
            self.beaten = Some((now, state));
        }
    }

    /// In order: spouts off, what waits drains, goodbyes, join.
    fn stop(mut self) -> Result<(), WorkerError> {
        self.stopping = true;
        self.activate();
        self.drain();
        self.peers.leaving = true;
        self.running.send_all(|| Command::Stop);
        let deadline = Instant::now() + GOODBYE_TIME_MAX;
        while !self.running.over() && Instant::now() < deadline {
            // Whatever it says now, it is being done.
            let _ = self.turn(SETTLE);
        }
        self.part();
        if !self.running.over() {
            let held_up = self.held_up();
            if !held_up.is_empty() {
                return Err(WorkerError::HeldUp(held_up));
            }
            // Its loops wait for a peer that does not answer, and end with the process.
            log::info(&self.topology, "stopped; a peer did not answer the goodbye");
            return Ok(());
        }
        let shared = self.running.shared.clone();
        match self.running.stop() {
            Ok(_) => {
                log::info(&self.topology, &format!("stopped{}", carried(&shared)));
                Ok(())
            }
            Err(report) => Err(fatal(report)),
        }
    }

    /// Waits until nothing waits in any loop, twice, or until time or patience (a SIGTERM, a dead loop) is over.
    fn drain(&mut self) {
        let deadline = Instant::now() + DRAIN_TIME_MAX;
        let turns = |w: &Watchdog| w.running.shared.loops.iter().map(|l| l.turns.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let (mut quiet, mut seen, mut seen_at) = (0, turns(self), Instant::now());
        while quiet < 2 && Instant::now() < deadline {
            if let Some(End::Fatal | End::Terminated) = self.turn(SETTLE) {
                return;
            }
            let now = turns(self);
            if seen_at.elapsed() < SETTLE || now.iter().zip(&seen).any(|(now, before)| now < &(before + 2)) {
                continue;
            }
            quiet = if self.running.shared.drained() && self.running.shared.settled() { quiet + 1 } else { 0 };
            (seen, seen_at) = (now, Instant::now());
        }
    }

    /// The last beat and the last words reach the supervisor, if it listens.
    fn part(&mut self) {
        self.pass_reports();
        self.beaten = None;
        self.beat(Instant::now());
        let deadline = Instant::now() + GOODBYE_TIME_MAX / 4;
        while !self.supervisor.is_flushed() && Instant::now() < deadline {
            self.supervisor.turn(Instant::now(), self.assignment.version, &mut Vec::new());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A component cannot go on, or a loop panicked: the loops end by themselves.
    fn fail(mut self) -> Result<(), WorkerError> {
        if let Some(report) = self.running.shared.fatal.get().cloned() {
            self.report(&report.component, &report.text);
        }
        let deadline = Instant::now() + GOODBYE_TIME_MAX;
        while !self.running.over() && Instant::now() < deadline {
            self.wait(SETTLE);
        }
        self.part();
        if !self.running.over() {
            let why = self.running.shared.fatal.get().cloned();
            return Err(why.map_or_else(|| WorkerError::HeldUp(self.held_up()), fatal));
        }
        match self.running.stop() {
            Err(report) => Err(fatal(report)),
            Ok(_) => Err(WorkerError::HeldUp("the core loops ended by themselves: a bug in Saetta".into())),
        }
    }

    /// Executors of loops that stand still; empty = none does.
    fn held_up(&self) -> String {
        let stuck = (0..self.running.shared.loops.len()).filter(|l| self.loops.is_stuck(*l));
        let all = stuck.flat_map(|l| self.running.shared.loops[l].executors()).map(|e| format!("{}{}", e.component, e.id));
        all.collect::<Vec<_>>().join(", ")
    }
}

/// What came over links and what that took, all loops together; empty without links.
fn carried(shared: &Shared) -> String {
    let sum = |of: fn(&LoopStats) -> &AtomicU64| shared.loops.iter().map(|l| of(l).load(Ordering::Relaxed)).sum::<u64>();
    let (calls, bytes, copied) = (sum(|l| &l.link_calls), sum(|l| &l.link_bytes_in), sum(|l| &l.link_bytes_copied));
    let passed = match sum(|l| &l.relayed_bytes) {
        0 => String::new(),
        passed => format!(", {passed} passed on between loops"),
    };
    let text = |_| format!("; links: {calls} system calls, {bytes} bytes in, {copied} copied{passed}");
    shared.carrier.get().map_or_else(String::new, text)
}

/// Whether links are shared, for people.
fn sharing(shares: &[Share], links_max: u32) -> String {
    if shares.is_empty() {
        return format!("links are between loops: no worker needs more than transport.links.max = {links_max}");
    }
    format!("{} links are shared by all loops: some worker would need more than transport.links.max = {links_max}", shares.len())
}

/// A reason on one line, for the caller's last word.
fn fatal(report: ErrorReport) -> WorkerError {
    WorkerError::Fatal(ErrorReport { text: log::one_line(&report.text), ..report })
}

fn executor_beat(e: &ExecutorStats, busy_per_mille: u32) -> ExecutorBeat {
    ExecutorBeat {
        id: e.id,
        core: e.core,
        executed: e.executed.load(Ordering::Relaxed),
        emitted: e.emitted.load(Ordering::Relaxed),
        transferred: e.transferred.load(Ordering::Relaxed),
        failed: e.failed.load(Ordering::Relaxed),
        busy_per_mille,
        ended: e.ended.load(Ordering::Acquire),
    }
}

/// What both ends of a link must agree on to read each other's frames.
fn format(digest: &str) -> [u8; 32] {
    Sha256::digest(format!("{digest} {:?}", saetta_tuple::FORMAT)).into()
}

/// An address of text costs nothing; a name asks the system's resolver, which may take its time.
fn address(host: &str, port: u16) -> Result<SocketAddr, String> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    let mut found = (host, port).to_socket_addrs().map_err(|e| e.to_string())?;
    found.next().ok_or_else(|| "the name has no address".into())
}

/// For the log: which executors came and went; nothing when none did.
fn changes(old: &Placement, new: &Placement) -> String {
    let places = |p: &Placement| p.executors.iter().map(|e| (e.id, e.core)).collect::<BTreeSet<_>>();
    let (before, after) = (places(old), places(new));
    if before == after {
        return String::new();
    }
    let list = |set: Vec<&(ExecutorId, u32)>| set.iter().map(|(id, core)| format!("{id} on core {core}")).collect::<Vec<_>>().join(", ");
    let (go, come) = (list(before.difference(&after).collect()), list(after.difference(&before).collect()));
    format!("; executors that go: {go}; that come: {come}")
}

/// One line: what runs where, and what memory it may take.
fn describe(
    args: &WorkerArgs,
    assignment: &Assignment,
    own: &Placement,
    layout: &Layout,
    plan: &EnginePlan,
    memory: &[(&'static str, u64)],
    memory_max: u64,
) -> String {
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let loops = plan.cores.iter().enumerate().map(|(i, core)| {
        let here = plan.executors.iter().filter(|e| e.on_loop == i);
        let names = here.map(|e| format!(" {}{}", layout.component_of(e.id.first).map_or("?", |c| c.id.as_str()), e.id));
        format!("loop {i} on core {core}:{}", names.collect::<String>())
    });
    let kinds = memory.iter().map(|(kind, bytes)| format!("{kind} {}", mib(*bytes))).collect::<Vec<_>>().join(", ");
    format!(
        "at {}:{} placement {:016x} start {} assignment {}: {}; memory {} of {}: {kinds}",
        own.slot.node,
        own.slot.port,
        args.placement,
        args.start,
        assignment.version,
        loops.collect::<Vec<_>>().join("; "),
        mib(memory.iter().map(|(_, bytes)| bytes).sum()),
        mib(memory_max),
    )
}
