//! The cluster while a scenario goes on: machines that are there, topologies that run, and where their executors are.
//!
//! Before: a checked [`Scenario`]. After: a snapshot for a round, and the world once its plan is in force. Pure; O(nodes + executors) a step.
//! Executors die with their machine at once; nothing here is only known from an assignment.

use crate::scenario::{Component, Grouping, Kind, Scenario, Step, Supervisors, Topology};
use saetta_model::parallelism::split_tasks;
use saetta_sdk::abi;
use saetta_sdk::snapshot::Snapshot;
use saetta_sdk::testing as sdk;
use std::collections::{BTreeMap, BTreeSet};

/// A slot by machine and port.
pub type Slot = (String, u32);

/// A world.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// What can be submitted, in the file's order.
    known: Vec<Topology>,
    min_worker_cpu_percent: f64,
    nodes: BTreeMap<String, Supervisors>,
    lost: BTreeMap<String, Supervisors>,
    /// Nodes a health stage marked.
    closed: BTreeSet<String>,
    /// In the order they were submitted, which is the order of the snapshot's rows.
    running: Vec<Running>,
    n_submitted: i64,
}

/// A topology that runs.
#[derive(Debug, Clone)]
struct Running {
    spec: Topology,
    submitted: i64,
    /// By component, `__acker` too: the order of the snapshot's rows.
    executors: BTreeMap<String, Vec<Executor>>,
}

/// An executor, by its tasks counted within its component.
#[derive(Debug, Clone)]
struct Executor {
    first: u32,
    last: u32,
    at: Option<Slot>,
}

const ACKER: &str = "__acker";
/// What an acker asks for where nothing is stated: the built-in values of `topology.acker.*`.
const ACKER_CPU_PERCENT: f64 = 10.0;
const ACKER_ON_HEAP_MB: f64 = 128.0;

impl World {
    /// The machines of a scenario. Nothing runs yet.
    pub fn new(scenario: &Scenario) -> Self {
        let mut world =
            World { known: scenario.topologies.clone(), min_worker_cpu_percent: scenario.min_worker_cpu_percent, ..World::default() };
        scenario.supervisors.iter().for_each(|group| world.add(group));
        world
    }

    /// A scenario's machines with all its topologies submitted and nothing placed.
    pub fn all(scenario: &Scenario) -> Self {
        let mut world = World::new(scenario);
        scenario.topologies.iter().for_each(|t| world.submit(t));
        world
    }

    /// Machines there are now.
    pub fn n_nodes(&self) -> usize {
        self.nodes.len()
    }
    /// Executors there are now, ackers included.
    pub fn n_executors(&self) -> usize {
        self.executors().count()
    }
    /// Ids of what runs, oldest first.
    pub fn topologies(&self) -> impl Iterator<Item = &str> {
        self.running.iter().map(|r| r.spec.id.as_str())
    }
    /// Names of the machines there are now.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    fn add(&mut self, group: &Supervisors) {
        let taken = self.nodes.keys().chain(self.lost.keys()).cloned().collect();
        self.nodes.extend(group.names(&taken).into_iter().map(|name| (name, group.clone())));
    }

    fn submit(&mut self, topology: &Topology) {
        self.n_submitted += 1;
        let fresh = |(tasks, executors): (u32, u32)| deal(tasks, executors, &[]);
        let mut executors: BTreeMap<String, Vec<Executor>> =
            topology.components.iter().map(|c| (c.id.clone(), fresh(topology.numbers(c)))).collect();
        if topology.n_ackers() > 0 {
            executors.insert(ACKER.into(), fresh((topology.n_ackers(), topology.n_ackers())));
        }
        self.running.push(Running { spec: topology.clone(), submitted: self.n_submitted, executors });
    }

    /// Does what a step says; returns why the round after it is run, `abi::REASON_*`. What a checked scenario cannot ask for does nothing.
    pub fn step(&mut self, step: &Step) -> u32 {
        match step {
            Step::Submit { topology } => {
                let runs: BTreeSet<String> = self.topologies().map(str::to_owned).collect();
                let is_meant = |t: &&Topology| topology.as_ref().is_none_or(|id| *id == t.id) && !runs.contains(&t.id);
                let new: Vec<Topology> = self.known.iter().filter(is_meant).cloned().collect();
                new.iter().for_each(|t| self.submit(t));
                abi::REASON_SUBMIT
            }
            Step::Kill { topology } => {
                self.running.retain(|r| r.spec.id != *topology);
                abi::REASON_KILL
            }
            Step::NodeLost { node } => {
                self.lost.extend(self.nodes.remove_entry(node));
                self.executors_mut().filter(|e| e.at.as_ref().is_some_and(|at| at.0 == *node)).for_each(|e| e.at = None);
                abi::REASON_NODE_LOST
            }
            Step::NodeBack { node } => {
                self.nodes.extend(self.lost.remove_entry(node));
                abi::REASON_NODE_BACK
            }
            Step::AddRack(group) => {
                self.add(group);
                abi::REASON_NODE_BACK
            }
            Step::Rebalance { topology, workers, executors } => {
                for r in self.running.iter_mut().filter(|r| r.spec.id == *topology) {
                    r.rebalance(*workers, executors);
                }
                abi::REASON_REBALANCE
            }
            Step::Drift { topology, from, to, stream, tuples_per_s, bytes_per_s } => {
                let of = self.running.iter_mut().filter(|r| r.spec.id == *topology).flat_map(|r| &mut r.spec.components);
                for input in of.filter(|c| c.id == *to).flat_map(|c| &mut c.inputs).filter(|i| i.from == *from && i.stream == *stream) {
                    (input.tuples_per_s, input.bytes_per_s) = (Some(*tuples_per_s), Some(*bytes_per_s));
                }
                abi::REASON_PERIODIC
            }
            Step::Round => abi::REASON_PERIODIC,
        }
    }

    /// A health stage marks a machine (or takes its mark away): what runs there stays, nothing new may come.
    pub fn close(&mut self, node: &str, closed: bool) {
        if closed {
            self.closed.insert(node.to_owned())
        } else {
            self.closed.remove(node)
        };
    }

    /// All executors lose their slots.
    pub fn clear(&mut self) {
        self.executors_mut().for_each(|e| e.at = None);
    }

    /// A topology's executors lose their slots, as if it were killed and submitted again in its place.
    pub fn clear_topology(&mut self, id: &str) {
        let of = self.running.iter_mut().filter(|r| r.spec.id == id);
        of.flat_map(|r| r.executors.values_mut()).flatten().for_each(|e| e.at = None);
    }

    /// The cluster in the SDK's words.
    pub fn cluster(&self) -> sdk::Cluster {
        let mut cluster = sdk::Cluster::new().min_worker_cpu(self.min_worker_cpu_percent);
        for (name, group) in &self.nodes {
            let mut node = sdk::Node::new(name).slots(group.slots).rack(&group.rack).cpu(group.cpu_percent).memory_mb(group.memory_mb);
            if group.cores > 0 {
                node = node.cores(group.cores, if group.cores_per_l3 == 0 { group.cores } else { group.cores_per_l3 });
            }
            if self.closed.contains(name) {
                node = node.flags(abi::NODE_BLACKLISTED);
            }
            cluster = cluster.node(group.resources.iter().fold(node, |node, (kind, n)| node.resource(kind, *n)));
        }
        let topologies = self.running.iter().map(Running::topology);
        let cluster = topologies.fold(cluster, sdk::Cluster::topology);
        if self.running.iter().any(Running::is_measured) { cluster.with_stats() } else { cluster }
    }

    /// The snapshot of a round.
    pub fn pack(&self) -> Vec<u8> {
        self.cluster().pack()
    }

    /// The plan for a snapshot of this world is in force from now on. Panics for rows that are not the snapshot's: validate before.
    pub fn apply(&mut self, snapshot: &Snapshot<'_>, slot_of_exec: &[u32]) {
        assert_eq!(slot_of_exec.len(), self.n_executors(), "a plan for this world");
        let slots: Vec<Slot> =
            snapshot.slots().iter().map(|s| (snapshot.text(snapshot.nodes().get(s.node as usize).id).to_owned(), s.port)).collect();
        for (e, slot) in self.executors_mut().zip(slot_of_exec) {
            e.at = (*slot != abi::NONE).then(|| slots[*slot as usize].clone());
        }
    }

    /// In the order of the snapshot's rows.
    fn executors(&self) -> impl Iterator<Item = &Executor> {
        self.running.iter().flat_map(|r| r.executors.values()).flatten()
    }
    fn executors_mut(&mut self) -> impl Iterator<Item = &mut Executor> {
        self.running.iter_mut().flat_map(|r| r.executors.values_mut()).flatten()
    }
}

/// Executors of a component; those that are the same as before stay where they are.
fn deal(n_tasks: u32, n_executors: u32, before: &[Executor]) -> Vec<Executor> {
    let at = |first, last| before.iter().find(|e| (e.first, e.last) == (first, last)).and_then(|e| e.at.clone());
    split_tasks(1, n_tasks, n_executors)
        .into_iter()
        .map(|id| Executor { first: id.first, last: id.last, at: at(id.first, id.last) })
        .collect()
}

impl Running {
    fn rebalance(&mut self, workers: Option<u32>, executors: &BTreeMap<String, u32>) {
        // Ackers are settled when a topology is submitted.
        self.spec.ackers = Some(self.spec.n_ackers());
        self.spec.workers = workers.unwrap_or(self.spec.workers);
        for (component, n) in executors {
            let Some(c) = self.spec.components.iter_mut().find(|c| c.id == *component) else { continue };
            let before = self.executors.get(component).map_or(&[][..], Vec::as_slice);
            let n_tasks = before.last().map_or(1, |e| e.last);
            let after = deal(n_tasks, (*n).clamp(1, n_tasks), before);
            (c.executors, c.tasks) = (Some(after.len() as u32), Some(n_tasks));
            self.executors.insert(component.clone(), after);
        }
    }

    fn is_measured(&self) -> bool {
        self.spec.components.iter().flat_map(|c| &c.inputs).any(|i| i.tuples_per_s.is_some())
    }

    fn topology(&self) -> sdk::Topology {
        let t = &self.spec;
        let mut topology = sdk::Topology::new(&t.id)
            .workers(t.workers)
            .priority(t.priority)
            .owner(&t.owner)
            .strategy(&t.strategy)
            .launched_ms(self.submitted)
            .worker_heap_mb(t.max_heap_mb)
            .row(|r| r.isolate_machines = t.isolate_machines);
        for c in &t.components {
            topology = topology.with(self.component(c));
        }
        if let Some(ackers) = self.executors.get(ACKER) {
            let acker = sdk::Component::ackers(ackers.len() as u32)
                .cpu(t.acker_cpu_percent.unwrap_or(ACKER_CPU_PERCENT))
                .memory_mb(t.acker_onheap_mb.unwrap_or(ACKER_ON_HEAP_MB), 0);
            topology = topology.with(placed(acker, ackers));
        }
        topology
    }

    fn component(&self, c: &Component) -> sdk::Component {
        let (t, executors) = (&self.spec, &self.executors[&c.id]);
        let make = if c.kind == Kind::Spout { sdk::Component::spout } else { sdk::Component::bolt };
        let mut component = make(&c.id, executors.len() as u32)
            .tasks(executors.last().map_or(1, |e| e.last))
            .cpu(c.cpu_percent.unwrap_or(t.default_cpu_percent))
            .memory_mb(c.onheap_mb.unwrap_or(t.default_onheap_mb), c.offheap_mb.unwrap_or(t.default_offheap_mb));
        for (kind, units) in &c.resources {
            component = component.resource(kind, *units);
        }
        for i in &c.inputs {
            component = component.reads_by(&i.from, &i.stream, code(i.grouping));
            if let Some(tuples_per_s) = i.tuples_per_s {
                component = component.measured(tuples_per_s, i.bytes_per_s.unwrap_or(0));
            }
        }
        placed(component, executors)
    }
}

fn placed(component: sdk::Component, executors: &[Executor]) -> sdk::Component {
    executors.iter().enumerate().fold(component, |c, (i, e)| match &e.at {
        Some((node, port)) => c.at(i, node, *port),
        None => c,
    })
}

fn code(grouping: Grouping) -> u32 {
    match grouping {
        Grouping::Shuffle => abi::GROUP_SHUFFLE,
        Grouping::LocalOrShuffle => abi::GROUP_LOCAL_OR_SHUFFLE,
        Grouping::LoadAware => abi::GROUP_LOAD_AWARE,
        Grouping::Fields => abi::GROUP_FIELDS,
        Grouping::PartialKey => abi::GROUP_PARTIAL_KEY,
        Grouping::All => abi::GROUP_ALL,
        Grouping::Global => abi::GROUP_GLOBAL,
        Grouping::None => abi::GROUP_NONE,
        Grouping::Direct => abi::GROUP_DIRECT,
        Grouping::Custom => abi::GROUP_CUSTOM,
    }
}
