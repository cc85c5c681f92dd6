//! From a program and a plan to core loops, and from loops to pinned threads.

use crate::ack::{Acks, Road, Tracker};
use crate::ack_plan::AckPlan;
use crate::affinity::pin;
use crate::component::Component;
use crate::core_loop::{Command, CoreLoop, LaneFrom, Seen};
use crate::credit::{CreditIn, CreditOut, SharedLimit};
use crate::drain::DrainWatch;
use crate::emit::{Output, Route};
use crate::executor::{Executor, Making};
use crate::grouping::Subscription;
use crate::io::{Dest, Inbox, Io, NOWHERE, places};
use crate::lane::{LaneIn, LaneOut, lane};
use crate::ledger::{Edges, Ledger, Slots};
use crate::limits::{COMMANDS_MAX, CONTROL_RING_BYTES, CONTROL_STAGING_BYTES_MAX, LOOPS_MAX, OWED_BYTES_MAX};
use crate::links::Links;
use crate::metrics::{EdgeCount, EdgeDesc, ExecutorDesc, LoopReader, MetricsSnapshot, edge_counts, loop_metrics, metrics_bytes};
use crate::out::{Out, Pace};
use crate::plan::{EnginePlan, LoopAt, PanicPolicy, PlanError};
use crate::program::{Check, Program};
use crate::queue::FrameQueue;
use crate::remote::Remote;
use crate::shift::{Arrival, Moved, Shift, TreesAt};
use crate::stats::{CarrierInUse, ErrorReport, ExecutorStats, LoopStats, Shared};
use crate::trees::trees_at;
use crate::wait::Idle;
use crossbeam_queue::ArrayQueue;
use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use rustix::thread::gettid;
use saetta_model::name::Name;
use saetta_model::parallelism::ExecutorId;
use saetta_model::topology::ComponentKind;
use saetta_ring::Sleeper;
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

/// Core loops, not yet running.
pub struct Engine {
    /// One per entry of the plan's `cores`.
    pub loops: Vec<CoreLoop>,
    /// What they share.
    pub shared: Arc<Shared>,
    /// Readers of what each loop counts and times, in the loops' order.
    pub readers: Vec<LoopReader>,
    /// When its cycles may end. Loops on threads have it looked at by [`Running::end_cycles`].
    pub drain: DrainWatch,
    mover: Mover,
    handles: Vec<LoopHandle>,
    memory: Vec<(&'static str, u64)>,
    /// Loops open a carrier when they start.
    linked: bool,
}

/// How others reach a loop.
#[derive(Clone)]
pub struct LoopHandle {
    commands: Arc<ArrayQueue<Command>>,
    sleeper: Arc<Sleeper>,
}

impl LoopHandle {
    /// Asks a loop; waits while its mailbox is full, for a loop that takes commands every turn.
    pub fn send(&self, command: Command) {
        let mut command = command;
        while let Err(back) = self.commands.push(command) {
            command = back;
            self.sleeper.wake();
            std::thread::yield_now();
        }
        self.sleeper.notify();
    }

    /// Asks a loop, or gives the command back when its mailbox is full: for a caller that must not wait for a stuck loop.
    pub fn try_send(&self, command: Command) -> Result<(), Command> {
        self.commands.push(command)?;
        self.sleeper.notify();
        Ok(())
    }

    /// The event that wakes the loop, for a worker that shares memory with it. Errors: no descriptor left.
    pub fn waker(&self) -> std::io::Result<OwnedFd> {
        self.sleeper.as_fd().try_clone_to_owned()
    }
}

/// An engine whose loops run on their threads.
pub struct Running {
    /// What the loops share.
    pub shared: Arc<Shared>,
    /// One per loop.
    pub handles: Vec<LoopHandle>,
    /// As `handles`: what each loop counts and times. Ask one and collect its answer some 10 ms later.
    pub readers: Vec<LoopReader>,
    threads: Vec<JoinHandle<Result<Seen, String>>>,
    mover: Mover,
    drain: DrainWatch,
    started: Instant,
}

impl Running {
    /// Asks every loop.
    pub fn send_all(&self, command: impl Fn() -> Command) {
        self.handles.iter().for_each(|h| h.send(command()));
    }

    /// Takes on a plan made from a newer assignment (`Options::version` says which): executors that are new in it come, others go, while tuples
    /// flow. The loops must be the same. Fails, with nothing changed, when the plan does not fit this engine.
    ///
    /// Settled when `LoopStats::moves` of all loops are 0, after a message timeout at the latest.
    pub fn adopt(&mut self, program: &Program, plan: &EnginePlan) -> Result<(), PlanError> {
        self.mover.adopt(program, plan, &self.shared, &self.handles)?;
        if !plan.remotes.is_empty() {
            // Whether a topology that has executors elsewhere is drained cannot be said here.
            self.drain = DrainWatch::never();
        }
        Ok(())
    }

    /// Ends cycles in which nothing goes on any more. To be called now and then; cheap.
    pub fn end_cycles(&mut self) {
        if let Some(components) = self.drain.look(&self.shared, self.started.elapsed().as_nanos() as u64) {
            self.send_all(|| Command::Drained(components.clone()));
        }
    }

    /// True when every loop's thread has ended: [`Running::stop`] will not wait.
    pub fn over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Stops every loop and joins. Returns latencies of sampled tuples, spout emit to last bolt, nanoseconds.
    pub fn stop(self) -> Result<Histogram<u64>, ErrorReport> {
        self.stop_with_metrics().map(|(latency_ns, _)| latency_ns)
    }

    /// What came over each subscription since the start, as the loops told when this was called last; asks them again.
    pub fn edge_counts(&mut self) -> Vec<EdgeCount> {
        for (reader, stats) in self.readers.iter_mut().zip(&self.shared.loops) {
            if let Some((before, now_ns, next)) = stats.metrics.pop() {
                let old = std::mem::replace(reader, LoopReader::none());
                *reader = old.follow(before, now_ns, next);
            }
            reader.collect();
            reader.ask();
        }
        edge_counts(&self.readers)
    }

    /// As [`Running::stop`], with all that the loops have counted and timed.
    pub fn stop_with_metrics(self) -> Result<(Histogram<u64>, MetricsSnapshot), ErrorReport> {
        self.send_all(|| Command::Stop);
        let (mut all, mut readers) = (crate::metrics::empty_histogram(), Vec::new());
        for (thread, reader) in self.threads.into_iter().zip(self.readers) {
            match thread.join() {
                Ok(Ok(seen)) => {
                    all.add(seen.latency_ns).expect("same bounds");
                    let reader = match self.shared.loops[readers.len()].metrics.pop() {
                        Some((before, now_ns, next)) => reader.follow(before, now_ns, next),
                        None => reader,
                    };
                    readers.push(reader.finish(seen.metrics, seen.ended_ns));
                }
                Ok(Err(text)) => return Err(ErrorReport { component: Name::system("__system"), text }),
                Err(_) => {
                    return Err(ErrorReport { component: Name::system("__system"), text: "a core loop panicked: a bug in Saetta".into() });
                }
            }
        }
        match self.shared.fatal.get() {
            Some(report) => Err(report.clone()),
            None => Ok((all, MetricsSnapshot::of(&readers))),
        }
    }
}

/// A loop that panics ends the engine: the others would wait for it for ever. One that has ended says so.
struct EndAll(Arc<Shared>, usize);

impl Drop for EndAll {
    fn drop(&mut self) {
        self.0.loops[self.1].thread.store(0, Ordering::Relaxed);
        if std::thread::panicking() {
            self.0.fail(ErrorReport { component: Name::system("__system"), text: "a core loop panicked: a bug in Saetta".into() });
        }
    }
}

/// An acker's executor: the loop itself does its work, so nothing is ever called.
struct Acker;
impl Component for Acker {}

/// Streams of a topology in their order on the wire: components sorted by id, each one's outputs as declared.
struct Streams(BTreeMap<(Name, Name), u16>);

impl Engine {
    /// Builds every loop of the plan. `linked`: the worker may have peers, so each loop opens a carrier. Errors name what does not fit.
    pub fn build(program: &Program, plan: &EnginePlan, linked: bool) -> Result<Engine, PlanError> {
        let n_loops = plan.cores.len();
        if n_loops == 0 || n_loops > LOOPS_MAX {
            return Err(PlanError(format!(
                "{n_loops} core loops; a worker has 1 to {LOOPS_MAX}: use worker.mode = shared, more workers, or fewer executors that block"
            )));
        }
        Builder::new(program, plan)?.build(linked)
    }

    /// Bytes this engine may take, by kind: the sum is checked against `worker.memory.mb`.
    pub fn memory(&self) -> &[(&'static str, u64)] {
        &self.memory
    }

    /// As [`Running::adopt`], for loops stepped by hand.
    pub fn adopt(&mut self, program: &Program, plan: &EnginePlan) -> Result<(), PlanError> {
        self.mover.adopt(program, plan, &self.shared, &self.handles)?;
        if !plan.remotes.is_empty() {
            self.drain = DrainWatch::never();
        }
        Ok(())
    }

    /// Handles of the loops.
    pub fn handles(&self) -> &[LoopHandle] {
        &self.handles
    }

    /// Starts one pinned thread per loop. Fails, with nothing left running, when a thread cannot be pinned.
    pub fn start(self) -> Result<Running, PlanError> {
        let (ready, pinned) = std::sync::mpsc::channel::<Result<(), String>>();
        let (n, linked, shared) = (self.loops.len(), self.linked, self.shared.clone());
        let go = Arc::new(AtomicBool::new(false));
        let abandon = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = self
            .loops
            .into_iter()
            .map(|core_loop| {
                let (ready, go, abandon, shared) = (ready.clone(), go.clone(), abandon.clone(), shared.clone());
                let name = format!("loop-{}", core_loop.index);
                std::thread::Builder::new()
                    .name(name)
                    .spawn(move || {
                        // Relaxed: whoever asks the kernel about the thread may as well ask before it is known.
                        core_loop.stats.thread.store(gettid().as_raw_nonzero().get() as u32, Ordering::Relaxed);
                        let pinned = if core_loop.options.pinned { pin(core_loop.core) } else { Ok(()) };
                        let opened =
                            pinned.and_then(|()| if linked { open_links(core_loop.options.carrier, &shared) } else { Ok(Links::none()) });
                        let mut links = match opened {
                            Ok(links) => {
                                let _ = ready.send(Ok(()));
                                links
                            }
                            Err(text) => {
                                let _ = ready.send(Err(text.clone()));
                                return Err(text);
                            }
                        };
                        while !go.load(std::sync::atomic::Ordering::Acquire) {
                            if abandon.load(std::sync::atomic::Ordering::Acquire) {
                                return Err("another loop could not start".into());
                            }
                            std::thread::park_timeout(std::time::Duration::from_millis(1));
                        }
                        let _end_all = EndAll(core_loop.shared().clone(), core_loop.index);
                        Ok(core_loop.run(&mut links))
                    })
                    .map_err(|e| PlanError(format!("cannot start a thread for a core loop: {e}")))
            })
            .collect::<Result<_, _>>()?;
        for _ in 0..n {
            if let Ok(Err(text)) = pinned.recv() {
                abandon.store(true, std::sync::atomic::Ordering::Release);
                return Err(PlanError(text));
            }
        }
        go.store(true, std::sync::atomic::Ordering::Release);
        threads.iter().for_each(|t| t.thread().unpark());
        let Engine { shared, drain, handles, readers, mover, .. } = self;
        Ok(Running { shared, handles, readers, threads, mover, drain, started: Instant::now() })
    }
}

/// What an executor is made of, before user code is called to make it.
pub(crate) struct Parts {
    pub(crate) making: Making,
    pub(crate) out: Out,
    /// Of its tasks that open trees.
    pub(crate) trackers: Vec<(u32, Tracker)>,
}

/// Which executors the loops were told to run, and how they are told of others.
struct Mover {
    version: u64,
    cores: Vec<u32>,
    executors: BTreeMap<ExecutorId, usize>,
}

impl Mover {
    fn new(plan: &EnginePlan) -> Self {
        let executors = plan.executors.iter().map(|e| (e.id, e.on_loop)).collect();
        Mover { version: plan.options.version, cores: plan.cores.clone(), executors }
    }

    fn adopt(&mut self, program: &Program, plan: &EnginePlan, shared: &Shared, loops: &[LoopHandle]) -> Result<(), PlanError> {
        let version = plan.options.version;
        if version <= self.version {
            return Err(PlanError(format!("assignment {version} is not newer than {}, which is in force", self.version)));
        }
        if plan.cores != self.cores {
            return Err(PlanError(format!("core loops on cores {:?} cannot become {:?} while they run", self.cores, plan.cores)));
        }
        let builder = Builder::new(program, plan)?;
        let windows = builder.windows();
        builder.memory_fits(&builder.memory(&windows, loops.len(), true))?;
        let places: Arc<[Option<LoopAt>]> = builder.executors.iter().map(|(_, id)| plan.loop_of(*id)).collect();
        let trees: Arc<[TreesAt]> = builder.trees_at();
        let mut moved: Vec<Moved> =
            (0..loops.len()).map(|_| Moved { version, places: places.clone(), trees: trees.clone(), arrivals: Vec::new() }).collect();
        let mut stats = Vec::new();
        for (ordinal, (component, id)) in builder.executors.iter().enumerate() {
            let Some(LoopAt::Here(l)) = places[ordinal] else { continue };
            if self.executors.get(id) == Some(&l) {
                continue;
            }
            let of_it = builder.executor_stats(*component, *id, l);
            let parts = builder.parts(*component, *id, l, of_it.clone())?;
            let desc = builder.desc(*component, *id);
            moved[l].arrivals.push(Arrival { ordinal, windows: windows[ordinal], parts, desc });
            stats.push((l, of_it));
        }
        stats.into_iter().for_each(|(l, of_it)| shared.loops[l].add(of_it));
        shared.loops.iter().for_each(|l| l.version_told.store(version, Ordering::Relaxed));
        loops.iter().zip(moved).for_each(|(handle, moved)| handle.send(Command::Move(Box::new(moved))));
        *self = Mover::new(plan);
        Ok(())
    }
}

struct Builder<'a> {
    program: &'a Program,
    plan: &'a EnginePlan,
    streams: Streams,
    /// All executors of the topology with their component's place in the layout.
    executors: Vec<(usize, ExecutorId)>,
    n_tasks: u32,
    ack_plan: Arc<AckPlan>,
}

impl<'a> Builder<'a> {
    fn new(program: &'a Program, plan: &'a EnginePlan) -> Result<Self, PlanError> {
        let mut streams = BTreeMap::new();
        for component in &program.spec.components {
            for output in &component.outputs {
                let number = u16::try_from(streams.len()).map_err(|_| PlanError("more than 65,536 streams".into()))?;
                streams.insert((component.id.clone(), output.name.clone()), number);
            }
        }
        let executors = plan.layout.executors().collect();
        let ack_plan = Arc::new(AckPlan::new(&program.spec, &plan.layout));
        Ok(Builder { program, plan, streams: Streams(streams), executors, n_tasks: plan.layout.n_tasks(), ack_plan })
    }

    fn build(self, linked: bool) -> Result<Engine, PlanError> {
        let (plan, options) = (self.plan, &self.plan.options);
        let n_loops = plan.cores.len();
        let sleepers: Vec<Arc<Sleeper>> =
            (0..n_loops).map(|_| Sleeper::new().map(Arc::new)).collect::<Result<_, _>>().map_err(environment)?;
        let commands: Vec<Arc<ArrayQueue<Command>>> = (0..n_loops).map(|_| Arc::new(ArrayQueue::new(COMMANDS_MAX))).collect();
        let handles = sleepers.iter().zip(&commands).map(|(s, c)| LoopHandle { commands: c.clone(), sleeper: s.clone() }).collect();

        let stats: Vec<Arc<LoopStats>> = (0..n_loops).map(|l| Arc::new(self.loop_stats(l))).collect();
        let shared = Arc::new(Shared::new(stats.clone()).map_err(environment)?);
        let checks: Arc<[Check]> = self.program.components.iter().flat_map(|c| c.checks.iter().copied()).collect();

        // Lanes between loops: (from, to).
        let mut outs: Vec<Vec<Option<LaneOut>>> = (0..n_loops).map(|_| (0..n_loops).map(|_| None).collect()).collect();
        let mut ins: Vec<Vec<Option<LaneIn>>> = (0..n_loops).map(|_| (0..n_loops).map(|_| None).collect()).collect();
        for from in 0..n_loops {
            for to in (0..n_loops).filter(|to| *to != from) {
                let (o, i) = lane(options.ring_bytes, sleepers[to].clone(), sleepers[from].clone()).map_err(environment)?;
                outs[from][to] = Some(o);
                ins[to][from] = Some(i);
            }
        }
        let mut control_outs: Vec<Vec<Option<LaneOut>>> = (0..n_loops).map(|_| (0..n_loops).map(|_| None).collect()).collect();
        let mut control_ins: Vec<Vec<Option<LaneIn>>> = (0..n_loops).map(|_| (0..n_loops).map(|_| None).collect()).collect();
        for from in 0..n_loops {
            for to in (0..n_loops).filter(|to| *to != from) {
                let (o, i) = lane(CONTROL_RING_BYTES, sleepers[to].clone(), sleepers[from].clone()).map_err(environment)?;
                control_outs[from][to] = Some(o);
                control_ins[to][from] = Some(i);
            }
        }
        // Limits between loops, by (from loop, executor's place in the layout).
        let windows = self.windows();
        let limits: Vec<Vec<SharedLimit>> =
            (0..n_loops).map(|_| windows.iter().map(|(w, _)| Arc::new(CachePadded::new(AtomicU64::new(*w)))).collect()).collect();

        let limits: Arc<[Vec<SharedLimit>]> = limits.into();
        let memory = self.memory(&windows, n_loops, linked);
        self.memory_fits(&memory)?;

        let components: Arc<[Name]> = self.executors.iter().map(|(c, _)| plan.layout.components[*c].id.clone()).collect();
        let (mut loops, mut readers) = (Vec::with_capacity(n_loops), Vec::with_capacity(n_loops));
        for l in 0..n_loops {
            let lane_numbers: Vec<usize> = (0..n_loops).filter(|to| *to != l).collect();
            let local: Vec<(usize, usize, ExecutorId)> = self
                .executors
                .iter()
                .enumerate()
                .filter(|(_, (_, id))| plan.loop_of(*id) == Some(LoopAt::Here(l)))
                .map(|(ordinal, (c, id))| (ordinal, *c, *id))
                .collect();
            let mut remotes: Vec<Remote> = Vec::new();
            let dests = self.dests(l, local.len(), &lane_numbers, &mut remotes);
            let (first_lane, first_remote) = (1 + local.len(), 1 + local.len() + lane_numbers.len());
            let credits = self
                .executors
                .iter()
                .enumerate()
                .map(|(ordinal, (_, id))| match dests[id.first as usize].at as usize {
                    0 => CreditOut::remote(),
                    at if at < first_lane => CreditOut::local(windows[ordinal].0),
                    at if at < first_remote => CreditOut::shared(windows[ordinal].0, limits[l][ordinal].clone()),
                    _ => CreditOut::remote(),
                })
                .collect();
            let n_in = lane_numbers.len() + 1 + remotes.len();
            let window = |ordinal: usize, lane: usize| if lane <= lane_numbers.len() { windows[ordinal].0 } else { windows[ordinal].1 };
            let inboxes = local
                .iter()
                .map(|(ordinal, ..)| Inbox {
                    lanes: (0..n_in).map(|lane| FrameQueue::with_window(window(*ordinal, lane))).collect(),
                    pending: false,
                })
                .collect();
            let mut local_of_task = vec![u16::MAX; self.n_tasks as usize + 1];
            let mut executors = Vec::new();
            let mut trackers = Vec::new();
            for (place, (_, component, id)) in local.iter().enumerate() {
                id.tasks().for_each(|t| local_of_task[t as usize] = place as u16);
                let of_it = stats[l].executors().into_iter().find(|e| e.id == *id).expect("made from the same plan");
                let Parts { making, mut out, trackers: own } = self.parts(*component, *id, l, of_it)?;
                out.trackers = (trackers.len() as u16..).take(own.len()).collect();
                trackers.extend(own);
                out.place = place;
                executors.push(Executor::new(making, out));
            }
            let descs: Vec<ExecutorDesc> = local.iter().map(|(_, component, id)| self.desc(*component, *id)).collect();
            let (metrics, reader) = loop_metrics(descs.clone(), self.streams.0.len());
            readers.push(reader);
            let tracker_of = trackers.iter().enumerate().map(|(at, (task, _))| (*task, at as u16)).collect();
            let acks = self.acks(l, &lane_numbers, &remotes, trackers, &mut control_outs[l], &mut control_ins[l]);
            let mut staging = places(local.len(), lane_numbers.len(), options.ring_bytes, options.worker_bit);
            for (place, (ordinal, ..)) in local.iter().enumerate() {
                staging[1 + place].frames.reserve(crate::queue::reserved_bytes(windows[*ordinal].0));
            }
            staging.extend(remotes.iter().map(|_| crate::io::closed()));
            let (wait, sharing) = plan.waiting(l);
            let lanes_in = lane_numbers
                .iter()
                .map(|from| LaneFrom {
                    lane: ins[l][*from].take().expect("one lane per pair"),
                    limits: local.iter().map(|(ordinal, ..)| Some(limits[*from][*ordinal].clone())).collect(),
                })
                .collect();
            let places = self.executors.iter().map(|(_, id)| plan.loop_of(*id)).collect();
            let (timeout_ns, n_streams) = (options.message_timeout_ns, self.streams.0.len());
            let mut shift = Shift::new(options.version, timeout_ns, places, self.trees_at(), limits.clone(), descs, n_streams);
            shift.tracker_of = tracker_of;
            let ledgers = acks.ledger_of.iter().enumerate();
            shift.ledger_of =
                ledgers.filter_map(|(task, at)| if let Road::Here(at) = at { Some((task as u32, *at)) } else { None }).collect();
            loops.push(CoreLoop {
                shift,
                index: l,
                core: plan.cores[l],
                executors,
                lanes_in,
                credit_in: local
                    .iter()
                    .map(|(ordinal, ..)| (0..n_in).map(|lane| CreditIn::new(window(*ordinal, lane))).collect())
                    .collect(),
                windows: local.iter().map(|(ordinal, ..)| windows[*ordinal].1).collect(),
                local_of_task,
                ordinals: local.iter().map(|(ordinal, ..)| *ordinal as u32).collect(),
                checks: checks.clone(),
                behind: Vec::new(),
                commands: commands[l].clone(),
                sleeper: sleepers[l].clone(),
                stats: stats[l].clone(),
                idle: Idle::new(wait, sharing),
                spouts_on: false,
                stopping: false,
                received_bytes: 0,
                discarded: 0,
                housekeeping_ns: 0,
                rings_until_ns: 0,
                idle_turns: 0,
                warm_ns: 0,
                credit_owed: false,
                options: options.clone(),
                layout_executors: self.executors.iter().map(|(_, id)| *id).collect(),
                components: components.clone(),
                ack_plan: self.ack_plan.clone(),
                io: Io {
                    staging,
                    first_lane,
                    turn_ns: 0,
                    lap_ns: 0,
                    acks,
                    sleeper: sleepers[l].clone(),
                    inboxes,
                    lanes: lane_numbers.iter().map(|to| outs[l][*to].take().expect("one lane per pair")).collect(),
                    remotes,
                    relay: crate::relay::Relay::new(l, lane_numbers.len()),
                    dests,
                    credits,
                    encoder: saetta_tuple::Encoder::default(),
                    scratch: Vec::new(),
                    chosen: Vec::new(),
                    clock: options.clock.clone(),
                    latency_ns: crate::metrics::empty_histogram(),
                    metrics,
                    shared: shared.clone(),
                    executor_outbox_bytes: options.executor_outbox_bytes,
                    worker_outbox_bytes: options.worker_outbox_bytes,
                    sent_bytes: 0,
                    copied_bytes: 0,
                    more: false,
                    held: Vec::new(),
                    markers: Vec::new(),
                },
            });
        }
        for CoreLoop { executors, io, .. } in &mut loops {
            executors.iter_mut().for_each(|e| e.out.assignment_changed(io));
        }
        let drain = if plan.remotes.is_empty() { DrainWatch::new(self.program) } else { DrainWatch::never() };
        Ok(Engine { loops, shared, drain, readers, mover: Mover::new(plan), handles, memory, linked })
    }

    /// Credit windows on lanes and on links, by executor.
    fn windows(&self) -> Vec<(u64, u64)> {
        let component = |c: usize| self.plan.layout.components[c].id.as_str();
        self.executors.iter().map(|(c, _)| self.plan.window_bytes(&self.program.spec, component(*c))).collect()
    }

    /// Where the trees of each task that opens some are.
    fn trees_at(&self) -> Arc<[TreesAt]> {
        trees_at(&self.ack_plan, |id| self.plan.loop_of(id)).into()
    }

    fn memory_fits(&self, memory: &[(&'static str, u64)]) -> Result<(), PlanError> {
        let sum: u64 = memory.iter().map(|(_, bytes)| bytes).sum();
        if sum > self.plan.options.memory_bytes {
            let parts = memory.iter().map(|(kind, bytes)| format!("{kind} {} MiB", bytes >> 20)).collect::<Vec<_>>().join(", ");
            return Err(PlanError(format!(
                "this worker may need {} MiB ({parts}) and worker.memory.mb = {} allows less; raise it, or lower executor.inbox.bytes, worker.outbox.bytes or the parallelism",
                sum.div_ceil(1 << 20),
                self.plan.options.memory_bytes >> 20
            )));
        }
        Ok(())
    }

    fn memory(&self, windows: &[(u64, u64)], n_loops: usize, links: bool) -> Vec<(&'static str, u64)> {
        let options = &self.plan.options;
        let here = |id: &ExecutorId| self.plan.executors.iter().any(|e| e.id == *id);
        // Twice: a queue is read from one buffer while the other is filled.
        let inboxes: u64 = self
            .executors
            .iter()
            .zip(windows)
            .filter(|((_, id), _)| here(id))
            .map(|(_, (w, link))| 2 * w.max(&options.inbox_bytes) + if links { 2 * link.max(&options.inbox_link_bytes) } else { 0 })
            .sum();
        let pairs = (n_loops * (n_loops - 1)) as u64;
        let descs: Vec<ExecutorDesc> = self.executors.iter().filter(|(_, id)| here(id)).map(|(c, id)| self.desc(*c, *id)).collect();
        let mut all = vec![
            // A ring is mapped twice, and half of one may be staged for it.
            ("lanes", pairs * options.ring_bytes as u64 * 5 / 2),
            ("control", pairs * (2 * CONTROL_RING_BYTES + CONTROL_STAGING_BYTES_MAX) as u64),
            ("inboxes", inboxes),
            ("outboxes", options.worker_outbox_bytes),
            ("trees", self.trees_bytes()),
            ("deferred", descs.len() as u64 * crate::defer::DEFERRED_BYTES_MAX),
            ("histograms", n_loops as u64 * (crate::metrics::empty_histogram().distinct_values() as u64 * 8) + metrics_bytes(&descs)),
        ];
        if links {
            let mut loops: Vec<(u64, u32)> = self.plan.remotes.iter().map(|r| (r.placement, r.on_loop)).collect();
            loops.sort_unstable();
            loops.dedup();
            let ring = saetta_transport::RING_BYTES_DEFAULT;
            let shared = if options.share_memory { 2 * ring } else { 0 };
            let tls = if options.tls { saetta_transport::TLS_MEMORY_MAX } else { 0 };
            let road = saetta_transport::link_memory_bytes(ring, ring) + shared + tls;
            let waiting = CONTROL_STAGING_BYTES_MAX + OWED_BYTES_MAX;
            let pairs = n_loops * loops.len();
            loops.dedup_by_key(|(placement, _)| *placement);
            // Above the most there may be, the loops share one with each worker.
            let connected = pairs.min(options.links_max.max(loops.len()));
            all.push(("links", (connected * 2 * road + pairs * waiting) as u64));
            if pairs > options.links_max {
                // With loops that hold shared links, on the way to those that are to have it: within the windows of where it goes.
                let passed = |((_, id), (_, link)): (&(usize, ExecutorId), &(u64, u64))| {
                    let of_loops = if here(id) { options.inbox_link_bytes } else { link * n_loops as u64 };
                    of_loops.min(options.inbox_link_bytes)
                };
                all.push(("relays", self.executors.iter().zip(windows).map(passed).sum()));
            }
        }
        all
    }

    /// What there is to count at an executor.
    fn desc(&self, component: usize, id: ExecutorId) -> ExecutorDesc {
        let layout = &self.plan.layout.components[component];
        let spec = self.program.spec.components.iter().find(|c| c.id == layout.id);
        let edge = |(from, stream): (&Name, &Name)| EdgeDesc {
            number: self.streams.0[&(from.clone(), stream.clone())],
            component: from.clone(),
            stream: stream.clone(),
        };
        let mut edges: Vec<EdgeDesc> = spec.iter().flat_map(|c| c.inputs.iter().map(|i| edge((&i.from, &i.stream)))).collect();
        // A stream that is read twice, by two groupings, is one edge: a frame does not say by which it came.
        edges.sort_by_key(|e| e.number);
        edges.dedup();
        let is_read = |c: &Name| self.program.spec.components.iter().any(|r| r.inputs.iter().any(|i| i.from == *c));
        ExecutorDesc {
            id,
            component: layout.id.clone(),
            edges,
            is_spout: layout.kind == ComponentKind::Spout,
            is_sink: layout.kind == ComponentKind::Bolt && !is_read(&layout.id),
        }
    }

    /// Of the trees that tasks here may have open, and of those whose ledger is here.
    fn trees_bytes(&self) -> u64 {
        let slots_max = self.slots_max();
        let mut bytes = 0;
        for (component, id) in self.executors.iter().filter(|(component, _)| self.opens_trees(*component)) {
            let Some(at) = self.plan.loop_of(*id) else { continue };
            let layout = &self.plan.layout.components[*component];
            let Some(spec) = self.program.spec.component(layout.id.as_str()) else { continue };
            let pending_max = u64::from(self.plan.options.spout_pending_max_of(&spec.config).unwrap_or(slots_max).min(slots_max));
            for task in id.tasks() {
                let here = matches!(at, LoopAt::Here(_));
                let ledger_here = matches!(self.ledger_at(task, at), Some(LoopAt::Here(_)));
                bytes += pending_max * (u64::from(here) * OWNER_BYTES + u64::from(ledger_here) * LEDGER_BYTES);
            }
        }
        bytes
    }

    fn loop_stats(&self, l: usize) -> LoopStats {
        let executors = self
            .executors
            .iter()
            .filter(|(_, id)| self.plan.loop_of(*id) == Some(LoopAt::Here(l)))
            .map(|(c, id)| self.executor_stats(*c, *id, l))
            .collect();
        LoopStats::new(executors)
    }

    fn executor_stats(&self, component: usize, id: ExecutorId, l: usize) -> Arc<ExecutorStats> {
        Arc::new(ExecutorStats {
            id,
            component: self.plan.layout.components[component].id.clone(),
            core: self.plan.cores[l],
            executed: AtomicU64::new(0),
            emitted: AtomicU64::new(0),
            transferred: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            trees_acked: AtomicU64::new(0),
            trees_failed: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            in_task: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        })
    }

    fn dests(&self, l: usize, n_local: usize, lane_numbers: &[usize], remotes: &mut Vec<Remote>) -> Vec<Dest> {
        let mut dests = vec![Dest { at: NOWHERE, credit: 0 }; self.n_tasks as usize + 1];
        let first_lane = 1 + n_local;
        let mut local = 0;
        for (ordinal, (_, id)) in self.executors.iter().enumerate() {
            let at = match self.plan.loop_of(*id) {
                None => NOWHERE as usize,
                Some(LoopAt::Here(at)) if at == l => {
                    local += 1;
                    local
                }
                Some(LoopAt::Here(at)) => first_lane + lane_number(lane_numbers, at),
                Some(LoopAt::There(placement, on_loop)) => first_lane + lane_numbers.len() + remote_number(remotes, placement, on_loop),
            };
            id.tasks().for_each(|t| dests[t as usize] = Dest { at: at as u16, credit: ordinal as u32 });
        }
        dests
    }

    /// Trees of loop `l`: which ledgers it holds, and where those of all owners are.
    fn acks(
        &self,
        l: usize,
        lane_numbers: &[usize],
        remotes: &[Remote],
        trackers: Vec<(u32, Tracker)>,
        outs: &mut [Option<LaneOut>],
        ins: &mut [Option<LaneIn>],
    ) -> Acks {
        let road = |at: LoopAt| match at {
            LoopAt::Here(at) => Road::Lane(lane_number(lane_numbers, at) as u16),
            LoopAt::There(placement, on_loop) => {
                let number = remotes.iter().position(|r| r.placement == placement && r.on_loop == on_loop);
                number.map_or(Road::None, |n| Road::Remote(n as u16))
            }
        };
        let n = self.n_tasks as usize + 1;
        let (mut ledger_of, mut owner_at, mut ledgers) = (vec![Road::None; n], vec![Road::None; n], Vec::new());
        for (component, id) in &self.executors {
            let Some(owner_loop) = self.plan.loop_of(*id).filter(|_| self.opens_trees(*component)) else { continue };
            for task in id.tasks() {
                owner_at[task as usize] = match trackers.iter().position(|(of, _)| *of == task) {
                    Some(tracker) => Road::Here(tracker as u16),
                    None => road(owner_loop),
                };
                ledger_of[task as usize] = match self.ledger_at(task, owner_loop) {
                    None => Road::None,
                    Some(LoopAt::Here(at)) if at == l => {
                        ledgers.push(Ledger::new(task));
                        Road::Here(ledgers.len() as u16 - 1)
                    }
                    Some(at) => road(at),
                };
            }
        }
        let trackers = trackers
            .into_iter()
            .map(|(task, mut tracker)| {
                tracker.set_ledger(ledger_of[task as usize]);
                tracker
            })
            .collect();
        let lanes = lane_numbers.iter().map(|to| outs[*to].take().expect("one lane per pair")).collect();
        let lanes_in = lane_numbers.iter().map(|from| ins[*from].take().expect("one lane per pair")).collect();
        let on = self.plan.layout.components.iter().any(|c| c.kind == ComponentKind::Acker && !c.executors.is_empty());
        let timeout_ns = self.plan.options.message_timeout_ns;
        Acks::new(trackers, ledgers, ledger_of, owner_at, lanes, lanes_in, Edges::new(self.seed(1 + l as u64)), on, timeout_ns)
    }

    /// The loop that holds the ledger of an owner task on `owner_loop`.
    fn ledger_at(&self, owner: u32, owner_loop: LoopAt) -> Option<LoopAt> {
        self.ack_plan.ledger_at(owner, owner_loop, |id| self.plan.loop_of(id), LoopAt::same_worker)
    }

    /// True for components whose tasks open trees.
    fn opens_trees(&self, component: usize) -> bool {
        let layout = &self.plan.layout.components[component];
        self.program.spec.components.iter().any(|c| c.id == layout.id && c.tracked)
    }

    /// A seed of its own for each use.
    fn seed(&self, n: u64) -> u64 {
        Edges::new(self.plan.options.seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).bits()
    }

    /// What an executor is made of.
    fn parts(&self, component: usize, id: ExecutorId, l: usize, stats: Arc<ExecutorStats>) -> Result<Parts, PlanError> {
        let (layout, options) = (&self.plan.layout.components[component], &self.plan.options);
        let n_tasks = id.tasks().count();
        let acker = layout.kind == ComponentKind::Acker;
        let making = Making {
            id,
            factory: Arc::new(|| Box::new(Acker)),
            upstream_tasks: 0,
            cycle: Vec::new(),
            acker,
            panics_max: options.panics_max,
            panic_policy: options.panic_policy,
            tick_ns: None,
            stats,
        };
        if acker {
            let out = Out::new(layout.id.clone(), Vec::new(), Vec::new(), id.first, n_tasks, false);
            return Ok(Parts { making, out, trackers: Vec::new() });
        }
        let at = self.program.spec.components.iter().position(|c| c.id == layout.id).expect("the layout comes from this description");
        let spec = &self.program.spec.components[at];
        let mut outputs = Vec::new();
        for task in id.tasks() {
            outputs.extend(self.outputs(at, task)?);
        }
        let in_cycle: Vec<&Name> = self.program.in_cycle_with(&spec.id);
        let mut upstream: Vec<&Name> = spec.inputs.iter().map(|i| &i.from).filter(|from| !in_cycle.contains(from)).collect();
        upstream.sort();
        upstream.dedup();
        let upstream_tasks = upstream.iter().filter_map(|id| self.plan.layout.component(id.as_str())).map(|c| c.n_tasks as usize).sum();
        let is_spout = layout.kind == ComponentKind::Spout;
        let mut trackers = Vec::new();
        if spec.tracked {
            let slots_max = self.slots_max();
            let pending_max = options.spout_pending_max_of(&spec.config).filter(|_| is_spout).unwrap_or(slots_max).min(slots_max);
            for task in id.tasks() {
                let seed = self.seed(u64::from(task) << 32 ^ options.version << 8 ^ l as u64);
                let slots = Slots::new(task, slots_max, options.message_timeout_ns, seed);
                trackers.push((task, Tracker::new(slots, pending_max, Road::None).of_spout(is_spout)));
            }
        }
        let mut out = Out::new(layout.id.clone(), outputs, Vec::new(), id.first, n_tasks, is_spout);
        if options.panic_policy_of(&spec.config) == PanicPolicy::DeadLetter {
            out.dead_letters = self.program.components[at].dead_letters;
        }
        out.pace = options.spout_rate_per_sec.filter(|_| is_spout).map(Pace::new);
        let making = Making {
            factory: self.program.components[at].factory.clone(),
            upstream_tasks,
            cycle: in_cycle
                .iter()
                .filter_map(|id| self.plan.layout.component(id.as_str()))
                .map(|c| c.first_task..=c.first_task + c.n_tasks - 1)
                .collect(),
            panic_policy: options.panic_policy_of(&spec.config),
            tick_ns: options.tick_ns_of(&spec.config).filter(|_| !is_spout),
            ..making
        };
        Ok(Parts { making, out, trackers })
    }

    /// Slots of each task here that opens trees: an even part of `worker.pending.max`.
    fn slots_max(&self) -> u32 {
        let owners =
            self.executors.iter().filter(|(c, id)| self.opens_trees(*c) && matches!(self.plan.loop_of(*id), Some(LoopAt::Here(_))));
        let n: usize = owners.map(|(_, id)| id.tasks().count()).sum();
        (self.plan.options.pending_max / n.max(1) as u32).clamp(SLOTS_MIN, crate::ledger::SLOTS_MAX)
    }

    fn outputs(&self, at: usize, task: u32) -> Result<Vec<Output>, PlanError> {
        let spec = &self.program.spec.components[at];
        spec.outputs
            .iter()
            .zip(&self.program.components[at].tags)
            .map(|(output, tag)| {
                let mut subscriptions = Vec::new();
                for (to, receiver) in self.program.spec.components.iter().enumerate() {
                    for (number, input) in receiver.inputs.iter().enumerate().filter(|(_, i)| i.from == spec.id && i.stream == output.name)
                    {
                        let target = self.plan.layout.component(receiver.id.as_str()).expect("same description");
                        let targets = (target.first_task..target.first_task + target.n_tasks).collect();
                        let chooser = self.program.components[to].choosers[number].as_ref();
                        let subscription = Subscription::new(&receiver.id, &input.grouping, chooser, targets, task);
                        subscriptions.push(subscription.ok_or_else(|| {
                            PlanError(format!(
                                "bolt `{}` groups stream `{}` by {:?} and the binary has no code for it: a bug of what described it",
                                receiver.id, output.name, input.grouping
                            ))
                        })?);
                    }
                }
                let stream = self.streams.0[&(spec.id.clone(), output.name.clone())];
                // Known when the loop knows where everybody is.
                Ok(Output { tag: *tag, stream, single: NOWHERE, fixed: Route::NONE, subscriptions })
            })
            .collect()
    }
}

fn lane_number(lane_numbers: &[usize], to: usize) -> usize {
    lane_numbers.iter().position(|n| *n == to).expect("every other loop has a lane")
}

/// The carrier of a loop, on its own thread.
fn open_links(choice: saetta_transport::Choice, shared: &Shared) -> Result<Links, String> {
    let links = Links::open(choice).map_err(|e| e.to_string())?;
    if let Some(carrier) = links.carrier() {
        // The first loop's word counts for all: the kernel answers each of them alike.
        let _ = shared.carrier.set(CarrierInUse { kind: carrier.kind(), refusal: carrier.refusal().map(ToString::to_string) });
    }
    Ok(links)
}

fn remote_number(remotes: &mut Vec<Remote>, placement: u64, on_loop: u32) -> usize {
    let known = remotes.iter().position(|r| r.placement == placement && r.on_loop == on_loop);
    known.unwrap_or_else(|| {
        remotes.push(Remote::new(placement, on_loop));
        remotes.len() - 1
    })
}

/// Bytes of an open tree with its owner: a slot, and the id or the reason its component is to be told.
const OWNER_BYTES: u64 = 16 + 40;
/// Bytes of an open tree with the acker that holds its ledger: an entry, and its end on the way to an owner on another loop.
const LEDGER_BYTES: u64 = 24 + 32;
/// Slots of a task that opens trees, at least.
const SLOTS_MIN: u32 = 1024;

fn environment(e: std::io::Error) -> PlanError {
    PlanError(format!("the system refused memory or descriptors for a lane: {e}; see `ulimit -n` and free memory"))
}
