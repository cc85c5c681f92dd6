//! Where each executor of a worker runs, and with which bounds: what an engine is built from.

use crate::clock::Clock;
use crate::limits::WINDOW_BYTES_MIN;
use saetta_model::Config;
use saetta_model::parallelism::{ExecutorId, Layout};
use saetta_model::topology::TopologySpec;
use std::collections::BTreeSet;

/// How a loop waits when it finds no work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitMode {
    /// Never sleeps.
    Spin,
    /// Spins for a bounded time where it is alone on its core, then parks.
    Hybrid,
    /// Yields the core.
    Yield,
    /// Parks at once.
    Park,
}

/// What a panic in user code leads to, after its tuple has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PanicPolicy {
    /// The task begins anew from its factory, with a pause that grows.
    Restart,
    /// The task goes on as it is.
    Skip,
    /// The worker stops.
    Crash,
    /// The tuple goes to the component's dead-letter stream and counts as handled; the task begins anew.
    DeadLetter,
}

/// Bounds, from configuration.
#[derive(Debug, Clone)]
pub struct Options {
    /// `lane.ring.bytes`.
    pub ring_bytes: usize,
    /// `executor.inbox.bytes`.
    pub inbox_bytes: u64,
    /// Bytes on their way to an executor over all links, undelivered: more than an inbox, since a link has a way to go.
    pub inbox_link_bytes: u64,
    /// `executor.outbox.bytes`.
    pub executor_outbox_bytes: usize,
    /// `worker.outbox.bytes`.
    pub worker_outbox_bytes: u64,
    /// `worker.memory.mb`, in bytes.
    pub memory_bytes: u64,
    /// `transport.memory`.
    pub share_memory: bool,
    /// `transport.links.max`.
    pub links_max: usize,
    /// Connections to workers of other hosts are under TLS.
    pub tls: bool,
    /// `worker.wait`.
    pub wait: WaitMode,
    /// `worker.crash.window.max`.
    pub panics_max: u32,
    /// `topology.message.timeout.secs`.
    pub message_timeout_ns: u64,
    /// `topology.max.spout.pending`, of each spout task.
    pub spout_pending_max: Option<u32>,
    /// `worker.pending.max`, shared by the worker's spout tasks.
    pub pending_max: u32,
    /// `executor.panic.policy` of components that do not say otherwise.
    pub panic_policy: PanicPolicy,
    /// `topology.tick.tuple.freq.secs` of components that do not say otherwise.
    pub tick_ns: Option<u64>,
    /// What carries links to other workers.
    pub carrier: saetta_transport::Choice,
    /// Of the assignment the plan was made from; 0 where there is none.
    pub version: u64,
    /// This worker's bit in the masks of acks: [`crate::worker_bit`] of its incarnation.
    pub worker_bit: u64,
    /// What random numbers begin with.
    pub seed: u64,
    /// True where no other worker shares the cores.
    pub alone: bool,
    /// Loops of components that block: they wait by parking, and the loops of their core count as if they were not there.
    pub blocking_loops: Vec<usize>,
    /// False for loops stepped by hand.
    pub pinned: bool,
    /// `bench`: `next` calls a second of each spout executor, open loop. `None` = as fast as there is room.
    pub spout_rate_per_sec: Option<u64>,
    /// What time it is for its loops: the machine's clock, or one moved by hand for loops stepped by hand.
    pub clock: Clock,
}

impl Options {
    /// From a topology's merged configuration. Errors name the key.
    pub fn from_config(config: &Config) -> Result<Self, PlanError> {
        let bytes = |key| config.bytes(key).expect("has a built-in value");
        let ring_bytes = bytes("lane.ring.bytes");
        if !ring_bytes.is_power_of_two() {
            return Err(PlanError(format!("lane.ring.bytes = {ring_bytes} is not a power of two; use {}", ring_bytes.next_power_of_two())));
        }
        Ok(Options {
            ring_bytes: ring_bytes as usize,
            inbox_bytes: bytes("executor.inbox.bytes"),
            inbox_link_bytes: bytes("executor.inbox.link.bytes"),
            executor_outbox_bytes: bytes("executor.outbox.bytes") as usize,
            worker_outbox_bytes: bytes("worker.outbox.bytes"),
            memory_bytes: u64::from(config.u32("worker.memory.mb").expect("has a built-in value")) << 20,
            links_max: config.u32("transport.links.max").expect("has a built-in value") as usize,
            tls: config.text("transport.tls").expect("has a built-in value") == "true",
            share_memory: config.text("transport.memory").expect("has a built-in value") == "true",
            wait: match config.text("worker.wait").expect("has a built-in value") {
                "spin" => WaitMode::Spin,
                "yield" => WaitMode::Yield,
                "park" => WaitMode::Park,
                _ => WaitMode::Hybrid,
            },
            panics_max: config.u32("worker.crash.window.max").expect("has a built-in value"),
            message_timeout_ns: config.duration("topology.message.timeout.secs").expect("has a built-in value").as_nanos() as u64,
            spout_pending_max: config.u32("topology.max.spout.pending"),
            pending_max: config.u32("worker.pending.max").expect("has a built-in value"),
            panic_policy: panic_policy(config.text("executor.panic.policy").expect("has a built-in value")),
            tick_ns: config.duration("topology.tick.tuple.freq.secs").map(|every| every.as_nanos() as u64),
            carrier: config.text("transport.carrier").expect("has a built-in value").parse().map_err(PlanError)?,
            version: 0,
            worker_bit: 1,
            seed: random_seed(),
            alone: true,
            blocking_loops: Vec::new(),
            pinned: true,
            spout_rate_per_sec: None,
            clock: Clock::real(),
        })
    }
}

fn panic_policy(word: &str) -> PanicPolicy {
    match word {
        "skip" => PanicPolicy::Skip,
        "crash" => PanicPolicy::Crash,
        "dead-letter" => PanicPolicy::DeadLetter,
        _ => PanicPolicy::Restart,
    }
}

/// From the system's randomness: no two workers share their edges.
fn random_seed() -> u64 {
    std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), std::process::id())
}

/// What one component's configuration says over the topology's.
impl Options {
    /// How often its tasks tick.
    pub(crate) fn tick_ns_of(&self, config: &ComponentConfig) -> Option<u64> {
        match config.get("topology.tick.tuple.freq.secs") {
            Some(secs) => Some((secs.parse::<f64>().expect("checked when set") * 1e9) as u64),
            None => self.tick_ns,
        }
    }

    /// What its panics lead to.
    pub(crate) fn panic_policy_of(&self, config: &ComponentConfig) -> PanicPolicy {
        config.get("executor.panic.policy").map_or(self.panic_policy, |word| panic_policy(word))
    }

    /// Most trees one of its tasks has open.
    pub(crate) fn spout_pending_max_of(&self, config: &ComponentConfig) -> Option<u32> {
        match config.get("topology.max.spout.pending") {
            Some(n) => Some(n.parse().expect("checked when set")),
            None => self.spout_pending_max,
        }
    }
}

/// Keys a component sets itself.
type ComponentConfig = std::collections::BTreeMap<String, String>;

/// One executor of this worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedExecutor {
    /// Which.
    pub id: ExecutorId,
    /// Index of its loop.
    pub on_loop: usize,
}

/// One executor of another worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteExecutor {
    /// Which.
    pub id: ExecutorId,
    /// Placement id of its worker.
    pub placement: u64,
    /// Loop there.
    pub on_loop: u32,
}

/// Everything an engine is built from, besides the program.
#[derive(Debug, Clone)]
pub struct EnginePlan {
    /// Tasks and executors of the whole topology.
    pub layout: Layout,
    /// Core of each loop; loop i runs on `cores[i]`. 1 to `LOOPS_MAX`. Several loops may have one core.
    pub cores: Vec<u32>,
    /// Executors here, ascending.
    pub executors: Vec<PlannedExecutor>,
    /// Executors elsewhere.
    pub remotes: Vec<RemoteExecutor>,
    /// Bounds.
    pub options: Options,
}

/// Why an engine cannot be built: one line, with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlanError(pub String);

/// A loop somewhere in the topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LoopAt {
    Here(usize),
    There(u64, u32),
}

impl LoopAt {
    /// True when both are of one worker.
    pub(crate) fn same_worker(self, other: LoopAt) -> bool {
        match (self, other) {
            (LoopAt::Here(_), LoopAt::Here(_)) => true,
            (LoopAt::There(one, _), LoopAt::There(two, _)) => one == two,
            _ => false,
        }
    }

    /// Where an executor runs, of these.
    pub(crate) fn find(here: &[PlannedExecutor], remotes: &[RemoteExecutor], id: ExecutorId) -> Option<LoopAt> {
        let at = here.iter().find(|e| e.id == id).map(|e| LoopAt::Here(e.on_loop));
        at.or_else(|| remotes.iter().find(|e| e.id == id).map(|e| LoopAt::There(e.placement, e.on_loop)))
    }
}

impl EnginePlan {
    /// The loop an executor runs on; `None` while it is placed nowhere.
    pub(crate) fn loop_of(&self, id: ExecutorId) -> Option<LoopAt> {
        LoopAt::find(&self.executors, &self.remotes, id)
    }

    /// How a loop waits, and how many loops share its core, itself included; another worker there counts as one.
    pub(crate) fn waiting(&self, on_loop: usize) -> (WaitMode, u32) {
        let options = &self.options;
        if options.blocking_loops.contains(&on_loop) {
            return (WaitMode::Park, 1);
        }
        let here = |l: &usize| self.cores[*l] == self.cores[on_loop] && !options.blocking_loops.contains(l);
        let sharing = (0..self.cores.len()).filter(here).count() as u32;
        (options.wait, sharing + u32::from(!options.alone))
    }

    /// Credit window of one executor on each lane of this worker that reaches it, and on each link: its inbox divided over the loops that hold a
    /// task upstream, and what links may have on their way to it over those of other workers.
    pub(crate) fn window_bytes(&self, spec: &TopologySpec, component: &str) -> (u64, u64) {
        let upstream: BTreeSet<LoopAt> = spec
            .component(component)
            .into_iter()
            .flat_map(|c| c.inputs.iter())
            .filter_map(|i| self.layout.component(i.from.as_str()))
            .flat_map(|c| c.executors.iter())
            .filter_map(|e| self.loop_of(*e))
            .collect();
        let part = |bytes: u64, of: usize| (bytes / of.max(1) as u64).max(WINDOW_BYTES_MIN);
        let far = upstream.iter().filter(|l| matches!(l, LoopAt::There(..))).count();
        (part(self.options.inbox_bytes, upstream.len()), part(self.options.inbox_link_bytes, far))
    }
}
