//! From a program and a plan to core loops, and from loops to pinned threads.

use crate::affinity::pin;
use crate::component::{Component, Fail, Progress};
use crate::core_loop::{Command, CoreLoop, LaneFrom, Links};
use crate::credit::{CreditIn, CreditOut, SharedLimit};
use crate::emit::{Cx, Fixed, Out, Output, Pace, Sampler};
use crate::executor::Executor;
use crate::grouping::Subscription;
use crate::io::{Dest, Inbox, Io, Via};
use crate::lane::{LaneIn, LaneOut, lane};
use crate::limits::{COMMANDS_MAX, LOOPS_MAX};
use crate::plan::{EnginePlan, LoopAt, PlanError};
use crate::program::{Check, ComponentFactory, Program};
use crate::queue::FrameQueue;
use crate::remote::Remote;
use crate::stats::{ErrorReport, ExecutorStats, LoopStats, Shared};
use crate::wait::Idle;
use crossbeam_queue::ArrayQueue;
use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use saetta_model::name::Name;
use saetta_model::parallelism::ExecutorId;
use saetta_model::topology::ComponentKind;
use saetta_ring::Sleeper;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;

/// Core loops, not yet running.
pub struct Engine {
    /// One per core of the plan.
    pub loops: Vec<CoreLoop>,
    /// What they share.
    pub shared: Arc<Shared>,
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
}

/// An engine whose loops run on their threads.
pub struct Running {
    /// What the loops share.
    pub shared: Arc<Shared>,
    /// One per loop.
    pub handles: Vec<LoopHandle>,
    threads: Vec<JoinHandle<Result<Histogram<u64>, String>>>,
}

impl Running {
    /// Asks every loop.
    pub fn send_all(&self, command: impl Fn() -> Command) {
        self.handles.iter().for_each(|h| h.send(command()));
    }

    /// True when every loop's thread has ended: [`Running::stop`] will not wait.
    pub fn over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Stops every loop and joins. Returns latencies of sampled tuples, spout emit to last bolt, nanoseconds.
    pub fn stop(self) -> Result<Histogram<u64>, ErrorReport> {
        self.send_all(|| Command::Stop);
        let mut all = Io::new_latency();
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(part)) => all.add(part).expect("same bounds"),
                Ok(Err(text)) => return Err(ErrorReport { component: Name::system("__system"), text }),
                Err(_) => {
                    return Err(ErrorReport { component: Name::system("__system"), text: "a core loop panicked: a bug in Saetta".into() });
                }
            }
        }
        match self.shared.fatal.get() {
            Some(report) => Err(report.clone()),
            None => Ok(all),
        }
    }
}

/// A loop that panics ends the engine: the others would wait for it for ever.
struct EndAll(Arc<Shared>);

impl Drop for EndAll {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(ErrorReport { component: Name::system("__system"), text: "a core loop panicked: a bug in Saetta".into() });
        }
    }
}

/// An acker of this version: placed, and nothing to do.
struct NoAcker;
impl Component for NoAcker {
    fn open(&mut self, _: &mut Cx<'_>) -> Result<(), Fail> {
        Ok(())
    }
    fn next(&mut self, _: &mut Cx<'_>) -> Result<Progress, Fail> {
        Ok(Progress::Idle)
    }
    fn handle(&mut self, _: u16, _: &[u8], _: &mut Cx<'_>) {}
    fn finish(&mut self, _: &mut Cx<'_>) -> Result<(), Fail> {
        Ok(())
    }
}

/// Streams of a topology in their order on the wire: components sorted by id, each one's outputs as declared.
struct Streams(BTreeMap<(Name, Name), u16>);

impl Engine {
    /// Builds every loop of the plan. `linked`: the worker may have peers, so each loop opens a carrier. Errors name what does not fit.
    pub fn build(program: &Program, plan: &EnginePlan, linked: bool) -> Result<Engine, PlanError> {
        let n_loops = plan.cores.len();
        if n_loops == 0 || n_loops > LOOPS_MAX {
            return Err(PlanError(format!("{n_loops} core loops; a worker has 1 to {LOOPS_MAX}")));
        }
        Builder::new(program, plan)?.build(linked)
    }

    /// Bytes this engine may take, by kind: the sum is checked against `worker.memory.mb`.
    pub fn memory(&self) -> &[(&'static str, u64)] {
        &self.memory
    }

    /// Handles of the loops.
    pub fn handles(&self) -> &[LoopHandle] {
        &self.handles
    }

    /// Starts one pinned thread per loop. Fails, with nothing left running, when a thread cannot be pinned.
    pub fn start(self) -> Result<Running, PlanError> {
        let (ready, pinned) = std::sync::mpsc::channel::<Result<(), String>>();
        let (n, linked) = (self.loops.len(), self.linked);
        let go = Arc::new(AtomicBool::new(false));
        let abandon = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = self
            .loops
            .into_iter()
            .map(|core_loop| {
                let (ready, go, abandon) = (ready.clone(), go.clone(), abandon.clone());
                let name = format!("loop-{}", core_loop.index);
                std::thread::Builder::new()
                    .name(name)
                    .spawn(move || {
                        let pinned = if core_loop.options.pinned { pin(core_loop.core) } else { Ok(()) };
                        let opened =
                            pinned.and_then(|()| if linked { Links::open().map_err(|e| e.to_string()) } else { Ok(Links::none()) });
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
                        let _end_all = EndAll(core_loop.shared().clone());
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
        Ok(Running { shared: self.shared, handles: self.handles, threads })
    }
}

struct Builder<'a> {
    program: &'a Program,
    plan: &'a EnginePlan,
    streams: Streams,
    /// All executors of the topology with their component's place in the layout.
    executors: Vec<(usize, ExecutorId)>,
    n_tasks: u32,
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
        Ok(Builder { program, plan, streams: Streams(streams), executors, n_tasks: plan.layout.n_tasks() })
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
        // Limits between loops, by (from loop, executor's place in the layout).
        let windows: Vec<u64> =
            self.executors.iter().map(|(c, _)| plan.window_bytes(&self.program.spec, plan.layout.components[*c].id.as_str())).collect();
        let limits: Vec<Vec<SharedLimit>> =
            (0..n_loops).map(|_| windows.iter().map(|w| Arc::new(CachePadded::new(AtomicU64::new(*w)))).collect()).collect();

        let memory = self.memory(&windows, n_loops, linked);
        let sum: u64 = memory.iter().map(|(_, bytes)| bytes).sum();
        if sum > options.memory_bytes {
            let parts = memory.iter().map(|(kind, bytes)| format!("{kind} {} MiB", bytes >> 20)).collect::<Vec<_>>().join(", ");
            return Err(PlanError(format!(
                "this worker may need {} MiB ({parts}) and worker.memory.mb = {} allows less; raise it, or lower executor.inbox.bytes, worker.outbox.bytes or the parallelism",
                sum.div_ceil(1 << 20),
                options.memory_bytes >> 20
            )));
        }

        let mut loops = Vec::with_capacity(n_loops);
        for l in 0..n_loops {
            let lane_numbers: Vec<usize> = (0..n_loops).filter(|to| *to != l).collect();
            let mut remotes: Vec<Remote> = Vec::new();
            let dests = self.dests(l, &lane_numbers, &mut remotes);
            let credits = self
                .executors
                .iter()
                .enumerate()
                .map(|(ordinal, (_, id))| match dests[id.first as usize].via {
                    Via::Local(_) => CreditOut::local(windows[ordinal]),
                    Via::Lane(_) => CreditOut::shared(windows[ordinal], limits[l][ordinal].clone()),
                    Via::Remote(_) | Via::Nowhere => CreditOut::remote(),
                })
                .collect();
            let local: Vec<(usize, usize, ExecutorId)> = self
                .executors
                .iter()
                .enumerate()
                .filter(|(_, (_, id))| plan.loop_of(*id) == Some(LoopAt::Here(l)))
                .map(|(ordinal, (c, id))| (ordinal, *c, *id))
                .collect();
            let n_in = lane_numbers.len() + 1 + remotes.len();
            let inboxes =
                local.iter().map(|_| Inbox { lanes: (0..n_in).map(|_| FrameQueue::default()).collect(), pending: false }).collect();
            let mut local_of_task = vec![u16::MAX; self.n_tasks as usize + 1];
            let mut executors = Vec::new();
            for (place, (_, component, id)) in local.iter().enumerate() {
                id.tasks().for_each(|t| local_of_task[t as usize] = place as u16);
                executors.push(self.executor(*component, *id, &dests, &stats[l])?);
            }
            let lanes_in = lane_numbers
                .iter()
                .map(|from| LaneFrom {
                    lane: ins[l][*from].take().expect("one lane per pair"),
                    limits: local.iter().map(|(ordinal, ..)| Some(limits[*from][*ordinal].clone())).collect(),
                })
                .collect();
            loops.push(CoreLoop {
                index: l,
                core: plan.cores[l],
                executors,
                lanes_in,
                credit_in: local.iter().map(|(ordinal, ..)| (0..n_in).map(|_| CreditIn::new(windows[*ordinal])).collect()).collect(),
                windows: local.iter().map(|(ordinal, ..)| windows[*ordinal]).collect(),
                local_of_task,
                ordinals: local.iter().map(|(ordinal, ..)| *ordinal as u32).collect(),
                checks: checks.clone(),
                remote_of_link: Vec::new(),
                commands: commands[l].clone(),
                sleeper: sleepers[l].clone(),
                stats: stats[l].clone(),
                idle: Idle::new(options.wait, options.alone),
                spouts_on: false,
                stopping: false,
                received_bytes: 0,
                discarded: 0,
                housekeeping_ns: 0,
                idle_turns: 0,
                credit_owed: false,
                options: options.clone(),
                layout_executors: self.executors.iter().map(|(_, id)| *id).collect(),
                io: Io {
                    inboxes,
                    lanes: lane_numbers.iter().map(|to| outs[l][*to].take().expect("one lane per pair")).collect(),
                    remotes,
                    dests,
                    credits,
                    encoder: saetta_tuple::Encoder::default(),
                    scratch: Vec::new(),
                    clock: options.clock.clone(),
                    latency_ns: Io::new_latency(),
                    shared: shared.clone(),
                    executor_outbox_bytes: options.executor_outbox_bytes,
                    worker_outbox_bytes: options.worker_outbox_bytes,
                    sent_bytes: 0,
                },
            });
        }
        Ok(Engine { loops, shared, handles, memory, linked })
    }

    fn memory(&self, windows: &[u64], n_loops: usize, links: bool) -> Vec<(&'static str, u64)> {
        let options = &self.plan.options;
        let here = |id: &ExecutorId| self.plan.executors.iter().any(|e| e.id == *id);
        let inboxes: u64 =
            self.executors.iter().zip(windows).filter(|((_, id), _)| here(id)).map(|(_, w)| (*w).max(options.inbox_bytes)).sum();
        let pairs = (n_loops * (n_loops - 1)) as u64;
        let mut all = vec![
            ("lanes", pairs * options.ring_bytes as u64 * 3 / 2),
            ("inboxes", inboxes),
            ("outboxes", options.worker_outbox_bytes),
            ("histograms", n_loops as u64 * (Io::new_latency().distinct_values() as u64 * 8)),
        ];
        if links {
            let mut loops: Vec<(u64, u32)> = self.plan.remotes.iter().map(|r| (r.placement, r.on_loop)).collect();
            loops.sort_unstable();
            loops.dedup();
            all.push((
                "links",
                n_loops as u64
                    * loops.len() as u64
                    * saetta_transport::link_memory_bytes(saetta_transport::RING_BYTES_DEFAULT, saetta_transport::RING_BYTES_DEFAULT)
                        as u64,
            ));
        }
        all
    }

    fn loop_stats(&self, l: usize) -> LoopStats {
        let executors = self
            .executors
            .iter()
            .filter(|(_, id)| self.plan.loop_of(*id) == Some(LoopAt::Here(l)))
            .map(|(c, id)| {
                Arc::new(ExecutorStats {
                    id: *id,
                    component: self.plan.layout.components[*c].id.clone(),
                    core: self.plan.cores[l],
                    executed: AtomicU64::new(0),
                    emitted: AtomicU64::new(0),
                    transferred: AtomicU64::new(0),
                    failed: AtomicU64::new(0),
                    ended: AtomicBool::new(false),
                })
            })
            .collect();
        LoopStats {
            turns: CachePadded::new(AtomicU64::new(0)),
            waiting_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            discarded: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            executors,
        }
    }

    fn dests(&self, l: usize, lane_numbers: &[usize], remotes: &mut Vec<Remote>) -> Vec<Dest> {
        let mut dests = vec![Dest { via: Via::Nowhere, credit: 0 }; self.n_tasks as usize + 1];
        let mut place = 0;
        for (ordinal, (_, id)) in self.executors.iter().enumerate() {
            let via = match self.plan.loop_of(*id) {
                None => Via::Nowhere,
                Some(LoopAt::Here(at)) if at == l => {
                    place += 1;
                    Via::Local(place - 1)
                }
                Some(LoopAt::Here(at)) => {
                    Via::Lane(lane_numbers.iter().position(|n| *n == at).expect("every other loop has a lane") as u16)
                }
                Some(LoopAt::There(placement, on_loop)) => {
                    let known = remotes.iter().position(|r| r.placement == placement && r.on_loop == on_loop);
                    let number = known.unwrap_or_else(|| {
                        remotes.push(Remote::new(placement, on_loop));
                        remotes.len() - 1
                    });
                    Via::Remote(number as u16)
                }
            };
            id.tasks().for_each(|t| dests[t as usize] = Dest { via, credit: ordinal as u32 });
        }
        dests
    }

    fn executor(&self, component: usize, id: ExecutorId, dests: &[Dest], stats: &LoopStats) -> Result<Executor, PlanError> {
        let layout = &self.plan.layout.components[component];
        let stats = stats.executors.iter().find(|e| e.id == id).expect("made from the same plan").clone();
        let out = |outputs: Vec<Vec<Output>>, is_spout, is_sink| Out {
            ends_sent: vec![false; outputs.len()],
            outputs,
            outbox: FrameQueue::default(),
            outbox_bytes: 0,
            pulls: Default::default(),
            sampler: Sampler::default(),
            is_spout,
            is_sink,
            first_task: id.first,
            pace: self.plan.options.spout_rate_per_sec.map(Pace::new),
            executed: 0,
            emitted: 0,
            transferred: 0,
            failed: 0,
        };
        let panics_max = self.plan.options.panics_max;
        if layout.kind == ComponentKind::Acker {
            let factory: ComponentFactory = Arc::new(|| Box::new(NoAcker));
            let outputs = id.tasks().map(|_| Vec::new()).collect();
            return Ok(Executor::new(id, layout.id.clone(), out(outputs, false, false), factory, 0, true, panics_max, stats));
        }
        let at = self.program.spec.components.iter().position(|c| c.id == layout.id).expect("the layout comes from this description");
        let spec = &self.program.spec.components[at];
        let outputs = id.tasks().map(|task| self.outputs(at, task, dests)).collect::<Result<Vec<_>, _>>()?;
        let is_sink = outputs.iter().flatten().all(|o: &Output| o.subscriptions.is_empty());
        let mut upstream: Vec<&Name> = spec.inputs.iter().map(|i| &i.from).filter(|from| **from != spec.id).collect();
        upstream.sort();
        upstream.dedup();
        let upstream_tasks = upstream.iter().filter_map(|id| self.plan.layout.component(id.as_str())).map(|c| c.n_tasks as usize).sum();
        let is_spout = layout.kind == ComponentKind::Spout;
        Ok(Executor::new(
            id,
            layout.id.clone(),
            out(outputs, is_spout, is_sink),
            self.program.components[at].factory.clone(),
            upstream_tasks,
            false,
            panics_max,
            stats,
        ))
    }

    fn outputs(&self, at: usize, task: u32, dests: &[Dest]) -> Result<Vec<Output>, PlanError> {
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
                        let key = self.program.components[to].keys[number].clone();
                        let subscription = Subscription::new(&input.grouping, key, targets, task);
                        subscriptions.push(subscription.ok_or_else(|| {
                            PlanError(format!(
                                "bolt `{}` groups stream `{}` by {:?}, which this version does not run; use shuffle, fields, all or global",
                                receiver.id, output.name, input.grouping
                            ))
                        })?);
                    }
                }
                let single = match &subscriptions[..] {
                    [only] => {
                        let first = dests[only.targets[0] as usize].via;
                        only.targets
                            .iter()
                            .all(|t| dests[*t as usize].via == first)
                            .then_some(first)
                            .filter(|via| *via != Via::Nowhere && !matches!(via, Via::Remote(_)))
                    }
                    _ => None,
                };
                let fixed = match (&subscriptions[..], single) {
                    ([only], Some(via)) if only.targets.len() == 1 => {
                        let target = only.targets[0];
                        Some(Fixed { target, credit: dests[target as usize].credit, via })
                    }
                    _ => None,
                };
                Ok(Output { stream: self.streams.0[&(spec.id.clone(), output.name.clone())], tag: *tag, subscriptions, single, fixed })
            })
            .collect()
    }
}

fn environment(e: std::io::Error) -> PlanError {
    PlanError(format!("the system refused memory or descriptors for a lane: {e}; see `ulimit -n` and free memory"))
}
