//! Clusters written down in a test, and rounds on them through the C table: what the tests of schedulers stand on.
//!
//! ```
//! use saetta_sdk::testing::{Cluster, Component, Topology};
//! # use saetta_sdk::{CreateCx, Outcome, Plan, PluginError, Round, Scheduler, SlotId, TopoId, Verdict};
//! # struct AllInOne;
//! # impl Scheduler for AllInOne {
//! #     fn create(_: &CreateCx<'_>) -> Result<Self, PluginError> { Ok(AllInOne) }
//! #     fn schedule(&mut self, round: &Round<'_>, plan: &mut Plan<'_>) -> Result<Verdict, PluginError> {
//! #         for (id, _) in round.snapshot.executors().with_ids() { plan.place(id, SlotId(0)); }
//! #         plan.outcome(TopoId(0), Outcome::Scheduled);
//! #         Ok(Verdict::Done)
//! #     }
//! # }
//! # saetta_sdk::export_scheduler!(AllInOne, id = "all-in-one");
//! # fn main() {
//! // Two nodes "n1" and "n2" with two slots, 4 cores and 4 GiB each; one topology.
//! let cluster = Cluster::new().nodes(2, |n| n.slots(2).cpu(400).memory_mb(4096)).topology(
//!     Topology::new("words")
//!         .workers(2)
//!         .with(Component::spout("lines", 1).cpu(50).memory_mb(128, 0))
//!         .with(Component::bolt("split", 2).cpu(10).reads("lines")),
//! );
//! let done = cluster.run(BUILTIN);
//! assert_eq!(done.workers("words"), [("n1:6700".to_owned(), vec!["lines", "split", "split"])]);
//! // The same cluster once that plan is in force: a second round must move nothing.
//! assert_eq!(cluster.after(&done).run(BUILTIN).moved, 0);
//! # }
//! ```

mod random;
pub mod recorded;
pub mod shapes;

use crate::call::{Builtin, Instance, PlanArrays, Reason, RoundArgs, Services};
use crate::snapshot::{Rate, Snapshot, Writer};
use crate::{PluginError, usage};
use saetta_abi as abi;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

const MB: f64 = 1024.0 * 1024.0;

/// Thousandths of what is stated, and bytes for megabytes. Requests are rounded up, as the host does.
fn fixed(amount: impl Into<f64>, per: f64) -> i64 {
    // Noise of binary fractions is none: 0.1 % is 100 thousandths.
    ((amount.into() * per * 1e3).round() / 1e3).ceil() as i64
}

/// A whole cluster. Add in any order: packing sorts.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    nodes: Vec<Node>,
    topologies: Vec<Topology>,
    users: BTreeMap<String, User>,
    min_worker_cpu: i64,
    wall_ms: i64,
    row_noise: usize,
    stats: bool,
}

/// A supervisor.
#[derive(Debug, Clone)]
pub struct Node {
    id: String,
    host: String,
    rack: String,
    ports: Vec<u32>,
    lost_ports: Vec<u32>,
    /// By number.
    cores: Vec<TestCore>,
    total: BTreeMap<String, i64>,
    flags: u32,
    uptime_s: u64,
}

#[derive(Debug, Clone, Copy)]
struct TestCore {
    l3: u32,
    numa: u32,
    sibling: Option<u32>,
    isolated: bool,
}

/// A topology.
#[derive(Debug, Clone)]
pub struct Topology {
    name: String,
    owner: String,
    row: abi::TopologyRow,
    strategy: String,
    components: Vec<Component>,
    blocks: BTreeMap<String, (i64, i64, i64)>,
    favored: Vec<String>,
    unfavored: Vec<String>,
}

/// A component.
#[derive(Debug, Clone)]
pub struct Component {
    name: String,
    kind: u32,
    request: BTreeMap<String, i64>,
    on_heap: i64,
    off_heap: i64,
    max_colocation: u32,
    flags: u32,
    reads: Vec<Reads>,
    incompatible: Vec<String>,
    shared: Vec<String>,
    executors: Vec<Executor>,
}

#[derive(Debug, Clone)]
struct Reads {
    from: String,
    stream: String,
    grouping: u32,
    rate: Option<Rate>,
}

#[derive(Debug, Clone, Default)]
struct Executor {
    n_tasks: u32,
    /// Node and port.
    at: Option<(String, u32)>,
    last: Option<(String, u32)>,
    /// Number of the core on its node.
    core: Option<u32>,
}

#[derive(Debug, Clone, Default)]
struct User {
    guarantee: BTreeMap<String, i64>,
    max_isolated_nodes: u32,
}

impl Node {
    /// A node on a host of its own, without slots and resources.
    pub fn new(id: &str) -> Self {
        let host = format!("host-{id}");
        let (ports, lost_ports, cores, total) = (Vec::new(), Vec::new(), Vec::new(), BTreeMap::new());
        Node { id: id.into(), host, rack: String::new(), ports, lost_ports, cores, total, flags: 0, uptime_s: 3600 }
    }
    /// Ports 6700 and up.
    pub fn slots(self, n: u32) -> Self {
        self.ports((0..n).map(|i| 6700 + i))
    }
    /// These ports.
    pub fn ports(mut self, ports: impl IntoIterator<Item = u32>) -> Self {
        self.ports = ports.into_iter().collect();
        self
    }
    /// One of its ports is no longer reported.
    pub fn lost_port(mut self, port: u32) -> Self {
        self.lost_ports.push(port);
        self
    }
    /// Its host.
    pub fn host(mut self, host: &str) -> Self {
        self.host = host.into();
        self
    }
    /// Its rack.
    pub fn rack(mut self, rack: &str) -> Self {
        self.rack = rack.into();
        self
    }
    /// CPU, percent of a core.
    pub fn cpu(self, percent: impl Into<f64>) -> Self {
        self.amount("cpu", fixed(percent, 1000.0))
    }
    /// Memory.
    pub fn memory_mb(self, mb: impl Into<f64>) -> Self {
        self.amount("memory", fixed(mb, MB))
    }
    /// Another resource, in units.
    pub fn resource(self, kind: &str, units: impl Into<f64>) -> Self {
        self.amount(kind, fixed(units, 1000.0))
    }
    fn amount(mut self, kind: &str, amount: i64) -> Self {
        self.total.insert(kind.into(), amount);
        self
    }
    /// `n` cores, `per_l3` of them to a last-level cache, a NUMA node for each two of those; given to its slots as supervisors do.
    pub fn cores(mut self, n: u32, per_l3: u32) -> Self {
        let core = |i| TestCore { l3: i / per_l3, numa: i / per_l3 / 2, sibling: None, isolated: false };
        self.cores = (0..n).map(core).collect();
        self
    }
    /// Two of its cores are threads of one physical core.
    pub fn siblings(mut self, a: u32, b: u32) -> Self {
        self.cores[a as usize].sibling = Some(b);
        self.cores[b as usize].sibling = Some(a);
        self
    }
    /// A core is isolated from the kernel's own work.
    pub fn isolated(mut self, core: u32) -> Self {
        self.cores[core as usize].isolated = true;
        self
    }
    /// `abi::NODE_*` bits, besides those it has.
    pub fn flags(mut self, flags: u32) -> Self {
        self.flags |= flags;
        self
    }
    /// Since its supervisor started.
    pub fn uptime_s(mut self, seconds: u64) -> Self {
        self.uptime_s = seconds;
        self
    }
}

impl Topology {
    /// One worker, no component; id and name are the same.
    pub fn new(name: &str) -> Self {
        let row = abi::TopologyRow { workers_wanted: 1, flags: abi::TOPO_SCHEDULE, ..Default::default() };
        let (components, blocks) = (Vec::new(), BTreeMap::new());
        let (favored, unfavored) = (Vec::new(), Vec::new());
        Topology { name: name.into(), owner: String::new(), row, strategy: String::new(), components, blocks, favored, unfavored }
    }
    /// Workers asked for.
    pub fn workers(self, n: u32) -> Self {
        self.row(|r| r.workers_wanted = n)
    }
    /// Smaller is served first.
    pub fn priority(self, priority: i32) -> Self {
        self.row(|r| r.priority = priority)
    }
    /// Who submitted it.
    pub fn owner(mut self, user: &str) -> Self {
        self.owner = user.into();
        self
    }
    /// When it was submitted.
    pub fn launched_ms(self, ms: i64) -> Self {
        self.row(|r| r.launch_ms = ms)
    }
    /// Anything else of its row, as `|r| r.isolate_machines = 2`.
    pub fn row(mut self, change: impl FnOnce(&mut abi::TopologyRow)) -> Self {
        change(&mut self.row);
        self
    }
    /// Most on-heap memory of one worker.
    pub fn worker_heap_mb(self, mb: impl Into<f64>) -> Self {
        let bytes = fixed(mb, MB);
        self.row(|r| r.max_worker_heap = bytes)
    }
    /// `abi::TOPO_*` bits, besides those it has.
    pub fn flags(self, flags: u32) -> Self {
        self.row(|r| r.flags |= flags)
    }
    /// The round does not ask for it: its rows only say which slots are used.
    pub fn not_asked(self) -> Self {
        self.row(|r| r.flags &= !abi::TOPO_SCHEDULE)
    }
    /// The strategy it asks for.
    pub fn strategy(mut self, name: &str) -> Self {
        self.strategy = name.into();
        self
    }
    /// Hosts it would rather have, best first.
    pub fn favors(mut self, hosts: &[&str]) -> Self {
        self.favored = hosts.iter().map(|h| (*h).into()).collect();
        self
    }
    /// Hosts it would rather not have.
    pub fn avoids(mut self, hosts: &[&str]) -> Self {
        self.unfavored = hosts.iter().map(|h| (*h).into()).collect();
        self
    }
    /// A block of shared memory: per worker on heap and off heap, per node off heap.
    pub fn shared_mb(mut self, name: &str, on_heap: impl Into<f64>, worker: impl Into<f64>, node: impl Into<f64>) -> Self {
        self.blocks.insert(name.into(), (fixed(on_heap, MB), fixed(worker, MB), fixed(node, MB)));
        self
    }
    /// Another component.
    pub fn with(mut self, component: Component) -> Self {
        self.components.push(component);
        self
    }
}

impl Component {
    fn new(name: &str, kind: u32, n_executors: u32) -> Self {
        Component {
            name: name.into(),
            kind,
            request: BTreeMap::new(),
            on_heap: 0,
            off_heap: 0,
            max_colocation: 0,
            flags: 0,
            reads: Vec::new(),
            incompatible: Vec::new(),
            shared: Vec::new(),
            executors: vec![Executor { n_tasks: 1, ..Executor::default() }; n_executors as usize],
        }
    }
    /// A spout with executors of one task each.
    pub fn spout(name: &str, n_executors: u32) -> Self {
        Self::new(name, abi::KIND_SPOUT, n_executors)
    }
    /// A bolt with executors of one task each.
    pub fn bolt(name: &str, n_executors: u32) -> Self {
        Self::new(name, abi::KIND_BOLT, n_executors)
    }
    /// Saetta's acker.
    pub fn ackers(n_executors: u32) -> Self {
        Self::new("__acker", abi::KIND_ACKER, n_executors)
    }
    /// So many tasks over its executors, larger ones first.
    pub fn tasks(mut self, n: u32) -> Self {
        let n_execs = self.executors.len() as u32;
        for (i, e) in self.executors.iter_mut().enumerate() {
            e.n_tasks = n / n_execs + u32::from((i as u32) < n % n_execs);
        }
        self
    }
    /// What an executor asks for: CPU, percent of a core.
    pub fn cpu(self, percent: impl Into<f64>) -> Self {
        self.amount("cpu", fixed(percent, 1000.0))
    }
    /// Memory, on heap and off heap.
    pub fn memory_mb(mut self, on_heap: impl Into<f64>, off_heap: impl Into<f64>) -> Self {
        (self.on_heap, self.off_heap) = (fixed(on_heap, MB), fixed(off_heap, MB));
        let both = self.on_heap + self.off_heap;
        self.amount("memory", both)
    }
    /// Another resource, in units.
    pub fn resource(self, kind: &str, units: impl Into<f64>) -> Self {
        self.amount(kind, fixed(units, 1000.0))
    }
    fn amount(mut self, kind: &str, amount: i64) -> Self {
        self.request.insert(kind.into(), amount);
        self
    }
    /// Reads the default stream of another component by shuffle.
    pub fn reads(self, from: &str) -> Self {
        self.reads_by(from, "default", abi::GROUP_SHUFFLE)
    }
    /// Reads a stream by a grouping, `abi::GROUP_*`.
    pub fn reads_by(mut self, from: &str, stream: &str, grouping: u32) -> Self {
        self.reads.push(Reads { from: from.into(), stream: stream.into(), grouping, rate: None });
        self
    }
    /// What was measured on the subscription stated last.
    pub fn measured(mut self, tuples_per_s: u64, bytes_per_s: u64) -> Self {
        let last = self.reads.last_mut().expect("after a subscription");
        last.rate = Some(Rate { tuples_per_s, bytes_per_s });
        self
    }
    /// May not share a worker with another component; one of the two says it.
    pub fn incompatible_with(mut self, other: &str) -> Self {
        self.incompatible.push(other.into());
        self
    }
    /// Most executors on one node.
    pub fn max_colocation(mut self, n: u32) -> Self {
        self.max_colocation = n;
        self
    }
    /// Spread over nodes.
    pub fn spread(mut self) -> Self {
        self.flags |= abi::COMP_SPREAD;
        self
    }
    /// Uses a block of shared memory of its topology.
    pub fn shares(mut self, block: &str) -> Self {
        self.shared.push(block.into());
        self
    }
    /// Executor `index` runs there.
    pub fn at(mut self, index: usize, node: &str, port: u32) -> Self {
        self.executors[index].at = Some((node.into(), port));
        self
    }
    /// All its executors run there.
    pub fn all_at(mut self, node: &str, port: u32) -> Self {
        self.executors.iter_mut().for_each(|e| e.at = Some((node.into(), port)));
        self
    }
    /// Executor `index` ran there and died.
    pub fn died_at(mut self, index: usize, node: &str, port: u32) -> Self {
        (self.executors[index].at, self.executors[index].last) = (None, Some((node.into(), port)));
        self
    }
    /// Executor `index`, which is placed, runs on this core of its node.
    pub fn on_core(mut self, index: usize, core: u32) -> Self {
        self.executors[index].core = Some(core);
        self
    }
}

impl Cluster {
    /// Nothing yet.
    pub fn new() -> Self {
        Cluster::default()
    }
    /// `n` nodes more, the first of a new cluster named `n1` (`n01` from 10 on, so that they sort).
    pub fn nodes(mut self, n: usize, make: impl Fn(Node) -> Node) -> Self {
        let first = self.nodes.len() + 1;
        let width = (first + n - 1).to_string().len();
        self.nodes.extend((first..first + n).map(|i| make(Node::new(&format!("n{i:0width$}")))));
        self
    }
    /// One node more.
    pub fn node(mut self, node: Node) -> Self {
        self.nodes.push(node);
        self
    }
    /// Takes a node away: its executors have died and nothing knows it any more.
    pub fn without_node(mut self, id: &str) -> Self {
        self.nodes.retain(|n| n.id != id);
        for e in self.topologies.iter_mut().flat_map(|t| &mut t.components).flat_map(|c| &mut c.executors) {
            if e.at.as_ref().is_some_and(|at| at.0 == id) {
                (e.at, e.core) = (None, None);
            }
        }
        self
    }
    /// One topology more.
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topologies.push(topology);
        self
    }
    /// Takes a topology away.
    pub fn without_topology(mut self, name: &str) -> Self {
        self.topologies.retain(|t| t.name != name);
        self
    }
    /// A user's guarantee, CPU in percent of a core and memory.
    pub fn user(mut self, name: &str, cpu_percent: impl Into<f64>, memory_mb: impl Into<f64>) -> Self {
        let guarantee = &mut self.users.entry(name.into()).or_default().guarantee;
        guarantee.insert("cpu".into(), fixed(cpu_percent, 1000.0));
        guarantee.insert("memory".into(), fixed(memory_mb, MB));
        self
    }
    /// Nodes a user may have for itself.
    pub fn isolated_nodes(mut self, user: &str, n: u32) -> Self {
        self.users.entry(user.into()).or_default().max_isolated_nodes = n;
        self
    }
    /// Least CPU a worker counts as taking, percent of a core.
    pub fn min_worker_cpu(mut self, percent: impl Into<f64>) -> Self {
        self.min_worker_cpu = fixed(percent, 1000.0);
        self
    }
    /// The wall clock.
    pub fn at_ms(mut self, wall_ms: i64) -> Self {
        self.wall_ms = wall_ms;
        self
    }
    /// Rows are so many bytes longer, as a newer host's (a multiple of 8): a plugin that indexes rows as an array breaks.
    pub fn row_noise(mut self, bytes: usize) -> Self {
        self.row_noise = bytes;
        self
    }
    /// The host has `saetta.stats/1`, and measured rates are in the snapshot.
    pub fn with_stats(mut self) -> Self {
        self.stats = true;
        self
    }

    /// The block a host would hand over. Panics for a cluster that names what it does not have.
    pub fn pack(&self) -> Vec<u8> {
        self.index().1
    }

    /// A round without limits, with an instance of its own. Panics when the scheduler fails.
    pub fn run(&self, builtin: Builtin) -> Done {
        self.ask().run(builtin).unwrap_or_else(|e| panic!("{e}"))
    }
    /// A round to be described further.
    pub fn ask(&self) -> Ask<'_> {
        Ask { cluster: self, config: "{}".into(), max_moves: abi::NONE, reason: abi::REASON_PERIODIC, flags: 0, seed: 0, takes_cores: true }
    }
    /// The cluster once this plan is in force.
    pub fn after(&self, done: &Done) -> Cluster {
        let mut next = self.clone();
        for t in &mut next.topologies {
            for c in &mut t.components {
                for (i, e) in c.executors.iter_mut().enumerate() {
                    let place = &done.places[&(t.name.clone(), c.name.clone(), i)];
                    if e.at.is_some() && place.at != e.at {
                        e.last = None;
                    }
                    (e.at, e.core) = (place.at.clone(), place.core);
                }
            }
        }
        next
    }

    /// The cluster once these slots are in force: one for each executor row of [`Cluster::pack`], or `abi::NONE`. Panics for a slot that is
    /// not there.
    pub fn with_slots(&self, slot_of_exec: &[u32]) -> Cluster {
        let (index, _) = self.index();
        let mut next = self.clone();
        for ((topology, component, i), slot) in index.executors.iter().zip(slot_of_exec) {
            let at = (*slot != abi::NONE).then(|| index.slots[*slot as usize].clone());
            let of = next
                .topologies
                .iter_mut()
                .find(|t| t.name == *topology)
                .and_then(|t| t.components.iter_mut().find(|c| c.name == *component));
            let executor = &mut of.expect("packed from this cluster").executors[*i];
            if executor.at != at {
                (executor.at, executor.core, executor.last) = (at, None, None);
            }
        }
        next
    }

    /// The way back from rows, and the block.
    fn index(&self) -> (Index, Vec<u8>) {
        let mut w = Writer::with_row_noise(self.row_noise);
        let mut index = Index::default();
        w.row(&abi::Meta { wall_ms: self.wall_ms, min_worker_cpu: self.min_worker_cpu, monitor_period_ms: 10_000, ..Default::default() });
        let kinds = self.pack_kinds(&mut w);
        let amounts = |of: &BTreeMap<String, i64>| kinds.iter().map(|k| of.get(k).copied().unwrap_or(0)).collect::<Vec<i64>>();

        let mut topologies: Vec<&Topology> = self.topologies.iter().collect();
        topologies.sort_by_key(|t| (t.row.launch_ms, &t.name));
        let mut users = self.users.clone();
        for t in topologies.iter().filter(|t| !t.owner.is_empty()) {
            users.entry(t.owner.clone()).or_default();
        }
        for (name, user) in &users {
            let name = w.text(name);
            w.row(&abi::UserRow { name, max_isolated_nodes: user.max_isolated_nodes, reserved: 0 });
            w.amounts(abi::TABLE_USER_GUARANTEE, &amounts(&user.guarantee));
        }
        self.pack_machines(&mut w, &topologies, &amounts, &mut index);
        let (mut first_comp, mut first_exec) = (0, 0);
        for (row, t) in topologies.iter().enumerate() {
            let user = users.keys().position(|u| *u == t.owner).map_or(abi::NONE, |u| u as u32);
            self.pack_topology(&mut w, t, row as u32, user, (&mut first_comp, &mut first_exec), &amounts, &mut index);
        }
        index.topologies = topologies.iter().map(|t| t.name.clone()).collect();
        (index, usage::finish_with_available(w, 1))
    }

    fn pack_kinds(&self, w: &mut Writer) -> Vec<String> {
        let asked = self.topologies.iter().flat_map(|t| &t.components).flat_map(|c| c.request.keys());
        let named: BTreeSet<&String> = self.nodes.iter().flat_map(|n| n.total.keys()).chain(asked).collect();
        let others = named.into_iter().filter(|k| *k != "cpu" && *k != "memory").cloned();
        let kinds: Vec<String> = ["cpu".to_owned(), "memory".to_owned()].into_iter().chain(others).collect();
        for kind in &kinds {
            let name = w.text(kind);
            w.row(&abi::KindRow { name });
        }
        kinds
    }

    fn pack_machines(
        &self,
        w: &mut Writer,
        topologies: &[&Topology],
        amounts: &dyn Fn(&BTreeMap<String, i64>) -> Vec<i64>,
        index: &mut Index,
    ) {
        let mut held: BTreeMap<(&str, u32), usize> = BTreeMap::new();
        for (row, t) in topologies.iter().enumerate() {
            for (node, port) in t.components.iter().flat_map(|c| &c.executors).filter_map(|e| e.at.as_ref()) {
                held.entry((node, *port)).or_insert(row);
            }
        }
        let holder = |at: (&str, u32)| held.get(&at).copied();
        let mut nodes: Vec<&Node> = self.nodes.iter().collect();
        nodes.sort_by_key(|n| (&n.rack, &n.host, &n.id));
        for rack in nodes.chunk_by(|a, b| a.rack == b.rack) {
            let hosts: Vec<&[&Node]> = rack.chunk_by(|a, b| a.host == b.host).collect();
            let id = w.text(&rack[0].rack);
            let rack_row = w.row(&abi::Rack { id, first_host: index.hosts.len() as u32, n_hosts: hosts.len() as u32 });
            for host in hosts {
                let name = w.text(&host[0].host);
                let (first_node, n_nodes) = (index.nodes.len() as u32, host.len() as u32);
                w.row(&abi::HostRow { name, rack: rack_row, first_node, n_nodes, flags: 0 });
                for node in host {
                    self.pack_node(w, node, index, &holder);
                    w.amounts(abi::TABLE_NODE_TOTAL, &amounts(&node.total));
                }
                index.hosts.push(host[0].host.clone());
            }
        }
    }

    fn pack_node(&self, w: &mut Writer, node: &Node, index: &mut Index, holder: &dyn Fn((&str, u32)) -> Option<usize>) {
        let (row, first_slot, first_core) = (index.nodes.len() as u32, index.slots.len() as u32, index.cores.len() as u32);
        let (id, n_slots) = (w.text(&node.id), node.ports.len() as u32);
        w.row(&abi::NodeRow { id, host: index.hosts.len() as u32, first_slot, n_slots, flags: node.flags, uptime_s: node.uptime_s });
        for (i, c) in node.cores.iter().enumerate() {
            w.row(&abi::CoreRow {
                node: row,
                os_id: i as u32,
                l3: c.l3,
                numa: c.numa,
                sibling: c.sibling.map_or(abi::NONE, |s| first_core + s),
                flags: if c.isolated { abi::CORE_ISOLATED } else { 0 },
            });
            index.cores.push(i as u32);
        }
        let closed = node.flags & (abi::NODE_GONE | abi::NODE_BLACKLISTED | abi::NODE_RESERVED) != 0;
        let mut ports = node.ports.clone();
        ports.sort_unstable();
        let given = divide(ports.len(), node.cores.len());
        for (port, (cores, share)) in ports.into_iter().zip(given) {
            let held = holder((&node.id, port));
            let flag = |on: bool, bit: u32| if on { bit } else { 0 };
            let is_reported = node.flags & abi::NODE_GONE == 0 && !node.lost_ports.contains(&port);
            let slot = w.row(&abi::SlotRow {
                node: row,
                port,
                topology: held.map_or(abi::NONE, |t| t as u32),
                flags: flag(!closed && is_reported, abi::SLOT_ASSIGNABLE)
                    | flag(held.is_some(), abi::SLOT_USED)
                    | flag(!is_reported, abi::SLOT_PORT_NOT_REPORTED),
                n_cores: (cores.len() as u32).max(1),
                share,
            });
            for core in cores {
                w.row(&abi::SlotCoreRow { slot, core: first_core + core as u32 });
            }
            index.rows_of_slots.insert((node.id.clone(), port), slot);
            index.slots.push((node.id.clone(), port));
        }
        index.nodes.push((node.id.clone(), first_core));
    }

    #[expect(clippy::too_many_arguments, reason = "one step of `index`")]
    fn pack_topology(
        &self,
        w: &mut Writer,
        t: &Topology,
        row: u32,
        user: u32,
        (first_comp, first_exec): (&mut u32, &mut u32),
        amounts: &dyn Fn(&BTreeMap<String, i64>) -> Vec<i64>,
        index: &mut Index,
    ) {
        let mut components: Vec<&Component> = t.components.iter().collect();
        components.sort_by_key(|c| &c.name);
        let base = *first_comp;
        let comp = |name: &str| {
            let at = components.iter().position(|c| c.name == name);
            base + at.unwrap_or_else(|| panic!("topology {} has no component {name}", t.name)) as u32
        };
        let n_execs = components.iter().map(|c| c.executors.len() as u32).sum();
        let (id, owner, strategy) = (w.text(&t.name), w.text(&t.owner), w.text(&t.strategy));
        let used: BTreeSet<_> = components.iter().flat_map(|c| &c.executors).filter_map(|e| e.at.as_ref()).collect();
        let unplaced = components.iter().flat_map(|c| &c.executors).any(|e| e.at.is_none());
        let needs = unplaced || used.len() < t.row.workers_wanted as usize;
        w.row(&abi::TopologyRow {
            id,
            name: id,
            owner,
            user,
            strategy,
            first_comp: base,
            n_comps: components.len() as u32,
            first_exec: *first_exec,
            n_execs,
            flags: t.row.flags | if needs { abi::TOPO_NEEDS_SCHEDULING } else { 0 },
            ..t.row
        });
        let first_block = index.n_blocks;
        for (name, (on_heap, off_heap_worker, off_heap_node)) in &t.blocks {
            let name = w.text(name);
            w.row(&abi::SharedMemRow {
                name,
                topology: row,
                reserved: 0,
                on_heap: *on_heap,
                off_heap_worker: *off_heap_worker,
                off_heap_node: *off_heap_node,
            });
            index.n_blocks += 1;
        }
        let host = |name: &String| index.hosts.iter().position(|h| h == name).unwrap_or_else(|| panic!("there is no host {name}")) as u32;
        t.favored.iter().for_each(|h| {
            w.row(&abi::FavoredRow { topology: row, host: host(h) });
        });
        t.unfavored.iter().for_each(|h| {
            w.row(&abi::UnfavoredRow { topology: row, host: host(h) });
        });
        let mut edges: Vec<(u32, u32, &Reads)> = Vec::new();
        let mut apart: BTreeSet<(u32, u32)> = BTreeSet::new();
        let mut task = 1;
        for c in &components {
            let id = comp(&c.name);
            let (name, n_execs) = (w.text(&c.name), c.executors.len() as u32);
            w.row(&abi::ComponentRow {
                name,
                topology: row,
                kind: c.kind,
                first_exec: *first_exec,
                n_execs,
                on_heap: c.on_heap,
                off_heap: c.off_heap,
                max_colocation: c.max_colocation,
                flags: c.flags,
            });
            w.amounts(abi::TABLE_COMP_REQUEST, &amounts(&c.request));
            edges.extend(c.reads.iter().map(|r| (comp(&r.from), id, r)));
            apart.extend(c.incompatible.iter().map(|o| comp(o)).flat_map(|o| [(id, o), (o, id)]));
            let mut shared: Vec<u32> = c
                .shared
                .iter()
                .map(|s| {
                    first_block + t.blocks.keys().position(|b| b == s).unwrap_or_else(|| panic!("there is no shared block {s}")) as u32
                })
                .collect();
            shared.sort_unstable();
            shared.into_iter().for_each(|block| {
                w.row(&abi::CompSharedRow { component: id, block });
            });
            for (i, e) in c.executors.iter().enumerate() {
                let slot =
                    |at: &(String, u32)| *index.rows_of_slots.get(at).unwrap_or_else(|| panic!("there is no slot {}:{}", at.0, at.1));
                let on_node = |core: u32| {
                    let node = &e.at.as_ref().expect("only what is placed has a core").0;
                    index.nodes.iter().find(|n| n.0 == *node).expect("its slot was found").1 + core
                };
                w.row(&abi::ExecutorRow {
                    topology: row,
                    component: id,
                    first_task: task,
                    last_task: task + e.n_tasks - 1,
                    slot: e.at.as_ref().map_or(abi::NONE, slot),
                    last_slot: e.last.as_ref().filter(|at| index.rows_of_slots.contains_key(*at)).map_or(abi::NONE, slot),
                    started_ms: if e.at.is_some() { 1 } else { 0 },
                    core: e.core.map_or(abi::NONE, on_node),
                    reserved: 0,
                });
                task += e.n_tasks;
                index.executors.push((t.name.clone(), c.name.clone(), i));
            }
            *first_exec += n_execs;
        }
        edges.sort_by_key(|(from, to, r)| (*from, *to, &r.stream));
        for (from, to, r) in edges {
            let stream = w.text(&r.stream);
            let edge = w.row(&abi::EdgeRow { from, to, stream, grouping: r.grouping, reserved: 0 });
            if let Some(Rate { tuples_per_s, bytes_per_s }) = r.rate.filter(|_| self.stats) {
                w.row(&abi::StatEdgeRow { edge, reserved: 0, tuples_per_s, bytes_per_s });
            }
        }
        for (component, other) in apart {
            w.row(&abi::IncompatibleRow { component, other });
        }
        *first_comp += components.len() as u32;
    }
}

/// Which cores each slot gets, and how many slots share them: runs of cores, or core i mod n where there are fewer cores than slots.
fn divide(n_slots: usize, n_cores: usize) -> Vec<(Vec<usize>, u32)> {
    let mut at = 0;
    (0..n_slots)
        .map(|i| match n_cores {
            0 => (Vec::new(), 1),
            n if n < n_slots => (vec![i % n], (0..n_slots).filter(|j| j % n == i % n).count() as u32),
            n => {
                let mine = n / n_slots + usize::from(i < n % n_slots);
                at += mine;
                ((at - mine..at).collect(), 1)
            }
        })
        .collect()
}

/// What rows stand for.
#[derive(Debug, Default)]
struct Index {
    hosts: Vec<String>,
    /// Id, first core.
    nodes: Vec<(String, u32)>,
    slots: Vec<(String, u32)>,
    rows_of_slots: BTreeMap<(String, u32), u32>,
    /// Number on its node.
    cores: Vec<u32>,
    topologies: Vec<String>,
    n_blocks: u32,
    /// Topology, component, index in the component.
    executors: Vec<(String, String, usize)>,
}

/// A round to be run.
#[derive(Debug, Clone)]
pub struct Ask<'a> {
    cluster: &'a Cluster,
    config: String,
    max_moves: u32,
    reason: u32,
    flags: u32,
    seed: u64,
    takes_cores: bool,
}

impl Ask<'_> {
    /// The instance's configuration, JSON.
    pub fn config(mut self, json: &str) -> Self {
        self.config = json.into();
        self
    }
    /// Running executors that may move.
    pub fn max_moves(mut self, n: u32) -> Self {
        self.max_moves = n;
        self
    }
    /// `abi::REASON_*`.
    pub fn reason(mut self, reason: u32) -> Self {
        self.reason = reason;
        self
    }
    /// Executors of topologies with lower priority may be freed.
    pub fn may_preempt(mut self) -> Self {
        self.flags |= abi::ROUND_MAY_PREEMPT;
        self
    }
    /// Somebody waits for reasons.
    pub fn with_reasons(mut self) -> Self {
        self.flags |= abi::ROUND_EXPLAIN;
        self
    }
    /// The only permitted randomness.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
    /// The host takes no cores.
    pub fn without_cores(mut self) -> Self {
        self.takes_cores = false;
        self
    }

    fn args(&self) -> RoundArgs {
        RoundArgs { reason: self.reason, round_id: 1, seed: self.seed, max_moves: self.max_moves, flags: self.flags, budget_ns: 1 << 40 }
    }

    /// An instance for [`Ask::run_on`], which goes on from round to round.
    pub fn instance(&self, builtin: Builtin) -> Result<Rig, PluginError> {
        let (reasons, log) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let (to_reasons, to_log) = (reasons.clone(), log.clone());
        let mut services = Services::new(move |level, text| lock(&to_log).push((level, text.to_owned())));
        services.explain = Some(Box::new(move |reason: &Reason| lock(&to_reasons).push(reason.clone())));
        services.stats_window_s = self.cluster.stats.then_some(60);
        Ok(Rig { instance: Instance::builtin(builtin, &self.config, services)?, reasons, log })
    }
    /// Runs the round with an instance of its own.
    pub fn run(&self, builtin: Builtin) -> Result<Done, PluginError> {
        self.run_on(&mut self.instance(builtin)?)
    }
    /// Runs the round with an instance that may have seen others.
    pub fn run_on(&self, rig: &mut Rig) -> Result<Done, PluginError> {
        let (index, bytes) = self.cluster.index();
        let snapshot = Snapshot::new(&bytes).expect("packed in canonical order");
        let before: Vec<u32> = snapshot.executors().iter().map(|e| e.slot).collect();
        let (mut slot_of_exec, mut core_of_exec) = (before.clone(), vec![abi::NONE; before.len()]);
        let mut outcome = vec![abi::OUT_KEEP; index.topologies.len()];
        let plan = PlanArrays {
            slot_of_exec: &mut slot_of_exec,
            outcome: &mut outcome,
            core_of_exec: self.takes_cores.then_some(&mut core_of_exec[..]),
        };
        let changed = rig.instance.schedule(self.args(), &bytes, plan)?;
        let place = |e: usize| {
            let at = index.slots.get(slot_of_exec[e] as usize).cloned();
            let slot = crate::SlotId(slot_of_exec[e]);
            let core = crate::CoreId::some(core_of_exec[e]);
            assert!(slot.0 == abi::NONE || at.is_some(), "executor {e} is in slot {}, which does not exist", slot.0);
            assert!(core.is_none_or(|c| snapshot.cores_of(slot).any(|of| of == c)), "executor {e} is on a core that is not its slot's");
            Place { at, core: core.map(|c| index.cores[c.index()]) }
        };
        Ok(Done {
            changed,
            moved: before.iter().zip(&slot_of_exec).filter(|(b, a)| **b != abi::NONE && b != a).count(),
            places: index.executors.iter().enumerate().map(|(e, id)| (id.clone(), place(e))).collect(),
            outcomes: index.topologies.iter().cloned().zip(outcome).collect(),
            reasons: std::mem::take(&mut lock(&rig.reasons)),
            log: std::mem::take(&mut lock(&rig.log)),
        })
    }
    /// Lets the instance judge the nodes and marks them so. Panics for a scheduler that judges none.
    pub fn judged_by(&self, rig: &mut Rig) -> Result<Cluster, PluginError> {
        let (index, bytes) = self.cluster.index();
        let mut flags: Vec<u32> = Snapshot::new(&bytes).expect("packed in canonical order").nodes().iter().map(|n| n.flags).collect();
        rig.instance.judge(self.args(), &bytes, &mut flags).expect("it judges nodes")?;
        let mut next = self.cluster.clone();
        for ((id, _), flags) in index.nodes.iter().zip(flags) {
            next.nodes.iter_mut().filter(|n| n.id == *id).for_each(|n| n.flags = flags);
        }
        Ok(next)
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An instance with what it said.
pub struct Rig {
    /// For anything else: saving, restoring, asking for its configuration.
    pub instance: Instance,
    reasons: Arc<Mutex<Vec<Reason>>>,
    log: Arc<Mutex<Vec<(i32, String)>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    at: Option<(String, u32)>,
    core: Option<u32>,
}

/// What a round gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The scheduler says that it changed something.
    pub changed: bool,
    /// Running executors that are somewhere else now, or nowhere.
    pub moved: usize,
    /// Reasons it gave, if they were asked for.
    pub reasons: Vec<Reason>,
    /// Log lines with their level.
    pub log: Vec<(i32, String)>,
    places: BTreeMap<(String, String, usize), Place>,
    outcomes: BTreeMap<String, u32>,
}

impl Done {
    /// Slot of an executor as `node:port`.
    pub fn slot(&self, topology: &str, component: &str, index: usize) -> Option<String> {
        let place = &self.places[&(topology.to_owned(), component.to_owned(), index)];
        place.at.as_ref().map(|(node, port)| format!("{node}:{port}"))
    }
    /// Core the plan gives an executor, by its number on the node.
    pub fn core(&self, topology: &str, component: &str, index: usize) -> Option<u32> {
        self.places[&(topology.to_owned(), component.to_owned(), index)].core
    }
    /// `abi::OUT_*`.
    pub fn outcome(&self, topology: &str) -> u32 {
        self.outcomes[topology]
    }
    /// Workers by slot, with the components of their executors, sorted.
    pub fn workers(&self, topology: &str) -> Vec<(String, Vec<&str>)> {
        let mut workers: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for ((of, component, _), place) in &self.places {
            if let Some((node, port)) = place.at.as_ref().filter(|_| of == topology) {
                workers.entry(format!("{node}:{port}")).or_default().push(component);
            }
        }
        workers.into_iter().collect()
    }
    /// The same without the slots and sorted, for comparisons that do not care where: executors of one component are alike.
    pub fn groups(&self, topology: &str) -> Vec<Vec<&str>> {
        let mut groups: Vec<Vec<&str>> = self.workers(topology).into_iter().map(|(_, group)| group).collect();
        groups.sort();
        groups
    }
    /// Nodes a topology uses.
    pub fn nodes(&self, topology: &str) -> BTreeSet<&str> {
        let of = self.places.iter().filter(|((of, ..), _)| of == topology);
        of.filter_map(|(_, place)| place.at.as_ref()).map(|(node, _)| node.as_str()).collect()
    }
    /// Executors without a slot.
    pub fn unplaced(&self, topology: &str) -> usize {
        self.places.iter().filter(|((of, ..), place)| of == topology && place.at.is_none()).count()
    }
}
