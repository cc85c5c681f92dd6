//! Clusters recorded in JSON, as a scale for schedulers: supervisors by count, topologies with their components' resources and edges.
//!
//! Before: a file's text. After: [`Recorded::pack`] makes a snapshot for any placement. Written for size: 30,000 executors take milliseconds
//! where [`Cluster`](super::Cluster) would look everything up by name. `executors` null = `tasks`, and never more than `tasks`; ackers as
//! the file says, with Storm's defaults where it says nothing. One host for each supervisor.

use crate::locality;
use crate::snapshot::{Snapshot, Writer};
use crate::usage;
use saetta_abi as abi;
use serde_json::Value;

const MB: f64 = 1024.0 * 1024.0;
/// What an executor asks for where nothing is said: CPU in percent of a core, memory in MB.
const CPU_PERCENT: f64 = 10.0;
const ON_HEAP_MB: f64 = 128.0;

/// A recorded cluster, in canonical order.
#[derive(Debug, Clone)]
pub struct Recorded {
    nodes: Vec<RecordedNode>,
    topologies: Vec<RecordedTopology>,
    kinds: Vec<String>,
    n_execs: usize,
    n_slots: usize,
}

#[derive(Debug, Clone)]
struct RecordedNode {
    id: String,
    rack: String,
    n_slots: u32,
    total: Vec<i64>,
}

#[derive(Debug, Clone)]
struct RecordedTopology {
    id: String,
    row: abi::TopologyRow,
    strategy: String,
    components: Vec<RecordedComponent>,
}

#[derive(Debug, Clone)]
struct RecordedComponent {
    id: String,
    kind: u32,
    n_tasks: u32,
    n_execs: u32,
    on_heap: i64,
    off_heap: i64,
    cpu: i64,
    /// From, stream, grouping.
    inputs: Vec<(String, String, u32)>,
}

fn grouping(name: &str) -> u32 {
    match name {
        "shuffle" => abi::GROUP_SHUFFLE,
        "local_or_shuffle" => abi::GROUP_LOCAL_OR_SHUFFLE,
        "fields" => abi::GROUP_FIELDS,
        "all" => abi::GROUP_ALL,
        "global" => abi::GROUP_GLOBAL,
        "direct" => abi::GROUP_DIRECT,
        "none" => abi::GROUP_NONE,
        _ => abi::GROUP_CUSTOM,
    }
}

fn number(of: &Value, key: &str, default: f64) -> f64 {
    match &of[key] {
        Value::String(text) => text.parse().unwrap_or(default),
        other => other.as_f64().unwrap_or(default),
    }
}

fn text(of: &Value, key: &str) -> String {
    of[key].as_str().unwrap_or_default().to_owned()
}

impl Recorded {
    /// Reads a file's text.
    pub fn parse(json: &str) -> Result<Self, String> {
        let file: Value = serde_json::from_str(json).map_err(|e| format!("the recorded cluster is no JSON: {e}"))?;
        let list = |key: &str| file[key].as_array().ok_or_else(|| format!("the recorded cluster has no list \"{key}\""));
        let mut nodes = Vec::new();
        for (i, s) in list("supervisors")?.iter().enumerate() {
            let total = vec![(number(s, "cpu_percent", 0.0) * 1000.0) as i64, (number(s, "memory_mb", 0.0) * MB) as i64];
            for j in 0..number(s, "count", 1.0) as u32 {
                let id = format!("supervisor-{i:03}-{j:04}");
                nodes.push(RecordedNode { id, rack: text(s, "rack"), n_slots: number(s, "slots", 4.0) as u32, total: total.clone() });
            }
        }
        nodes.sort_by(|a, b| (&a.rack, &a.id).cmp(&(&b.rack, &b.id)));
        let mut topologies = list("topologies")?.iter().enumerate().map(|(i, t)| topology(i, t)).collect::<Result<Vec<_>, _>>()?;
        topologies.sort_by(|a, b| (a.row.launch_ms, &a.id).cmp(&(b.row.launch_ms, &b.id)));
        let n_execs = topologies.iter().flat_map(|t| &t.components).map(|c| c.n_execs as usize).sum();
        let n_slots = nodes.iter().map(|n| n.n_slots as usize).sum();
        Ok(Recorded { nodes, topologies, kinds: vec!["cpu".into(), "memory".into()], n_execs, n_slots })
    }

    /// All executors, ackers included.
    pub fn n_execs(&self) -> usize {
        self.n_execs
    }
    /// All slots.
    pub fn n_slots(&self) -> usize {
        self.n_slots
    }
    /// Supervisors.
    pub fn n_nodes(&self) -> usize {
        self.nodes.len()
    }
    /// Topologies.
    pub fn n_topologies(&self) -> usize {
        self.topologies.len()
    }
    /// Name of a topology.
    pub fn topology(&self, row: usize) -> &str {
        &self.topologies[row].id
    }
    /// Lets every topology ask for this strategy.
    pub fn with_strategy(mut self, name: &str) -> Self {
        self.topologies.iter_mut().for_each(|t| t.strategy = name.into());
        self
    }
    /// Executors of a topology, as rows of the table.
    pub fn execs_of(&self, row: usize) -> std::ops::Range<usize> {
        let n = |t: &RecordedTopology| t.components.iter().map(|c| c.n_execs as usize).sum::<usize>();
        let first = self.topologies[..row].iter().map(n).sum();
        first..first + n(&self.topologies[row])
    }
    /// A placement with nothing placed.
    pub fn nothing_placed(&self) -> Vec<u32> {
        vec![abi::NONE; self.n_execs]
    }
    /// Locality cost of a placement, over all topologies.
    pub fn cost(&self, slot_of_exec: &[u32]) -> f64 {
        let bytes = self.pack(slot_of_exec);
        locality::cost(&Snapshot::new(&bytes).expect("packed in canonical order"), slot_of_exec)
    }

    /// The snapshot with this placement in force: a slot, or [`abi::NONE`], for each executor.
    pub fn pack(&self, slot_of_exec: &[u32]) -> Vec<u8> {
        assert_eq!(slot_of_exec.len(), self.n_execs, "one slot for each executor");
        let mut w = Writer::default();
        w.row(&abi::Meta { monitor_period_ms: 10_000, ..Default::default() });
        for kind in &self.kinds {
            let name = w.text(kind);
            w.row(&abi::KindRow { name });
        }
        let user = w.text("recorded");
        w.row(&abi::UserRow { name: user, max_isolated_nodes: 0, reserved: 0 });
        w.amounts(abi::TABLE_USER_GUARANTEE, &[0, 0]);

        let mut holder = vec![abi::NONE; self.n_slots];
        for t in 0..self.topologies.len() {
            for slot in &slot_of_exec[self.execs_of(t)] {
                if *slot != abi::NONE {
                    holder[*slot as usize] = t as u32;
                }
            }
        }
        self.pack_nodes(&mut w, &holder);
        let mut at = (0, 0);
        for (row, t) in self.topologies.iter().enumerate() {
            pack_topology(&mut w, t, row as u32, &mut at, slot_of_exec);
        }
        usage::finish_with_available(w, 1)
    }

    fn pack_nodes(&self, w: &mut Writer, holder: &[u32]) {
        let (mut node, mut slot) = (0, 0);
        for rack in self.nodes.chunk_by(|a, b| a.rack == b.rack) {
            let id = w.text(&rack[0].rack);
            let rack_row = w.row(&abi::Rack { id, first_host: node, n_hosts: rack.len() as u32 });
            for n in rack {
                let id = w.text(&n.id);
                w.row(&abi::HostRow { name: id, rack: rack_row, first_node: node, n_nodes: 1, flags: 0 });
                w.row(&abi::NodeRow { id, host: node, first_slot: slot, n_slots: n.n_slots, flags: 0, uptime_s: 3600 });
                w.amounts(abi::TABLE_NODE_TOTAL, &n.total);
                for port in 0..n.n_slots {
                    let topology = holder[slot as usize];
                    let flags = abi::SLOT_ASSIGNABLE | if topology == abi::NONE { 0 } else { abi::SLOT_USED };
                    w.row(&abi::SlotRow { node, port: 6700 + port, topology, flags, n_cores: 1, share: 1 });
                    slot += 1;
                }
                node += 1;
            }
        }
    }
}

fn topology(index: usize, t: &Value) -> Result<RecordedTopology, String> {
    let id = text(t, "id");
    let listed = t["components"].as_array().ok_or_else(|| format!("topology {id} has no list \"components\""))?;
    let defaults =
        (number(t, "default_cpu_percent", CPU_PERCENT), number(t, "default_onheap_mb", ON_HEAP_MB), number(t, "default_offheap_mb", 0.0));
    let mut components: Vec<RecordedComponent> = listed
        .iter()
        .map(|c| {
            let n_tasks = number(c, "tasks", 1.0).max(1.0) as u32;
            RecordedComponent {
                id: text(c, "id"),
                kind: if c["kind"] == "spout" { abi::KIND_SPOUT } else { abi::KIND_BOLT },
                n_tasks,
                n_execs: (number(c, "executors", f64::from(n_tasks)) as u32).clamp(1, n_tasks),
                on_heap: (number(c, "onheap_mb", defaults.1) * MB).ceil() as i64,
                off_heap: (number(c, "offheap_mb", defaults.2) * MB).ceil() as i64,
                cpu: (number(c, "cpu_percent", defaults.0) * 1000.0).ceil() as i64,
                inputs: c["inputs"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|i| (text(i, "from"), text(i, "stream"), grouping(i["grouping"].as_str().unwrap_or_default())))
                    .collect(),
            }
        })
        .collect();
    let ackers = number(t, "ackers", 1.0) as u32;
    if ackers > 0 {
        components.push(RecordedComponent {
            id: "__acker".into(),
            kind: abi::KIND_ACKER,
            n_tasks: ackers,
            n_execs: ackers,
            on_heap: (number(t, "acker_onheap_mb", ON_HEAP_MB) * MB).ceil() as i64,
            off_heap: 0,
            cpu: (number(t, "acker_cpu_percent", CPU_PERCENT) * 1000.0).ceil() as i64,
            inputs: Vec::new(),
        });
    }
    components.sort_by(|a, b| a.id.cmp(&b.id));
    let row = abi::TopologyRow {
        launch_ms: index as i64,
        workers_wanted: number(t, "workers", 1.0) as u32,
        priority: number(t, "priority", 29.0) as i32,
        max_worker_heap: (number(t, "max_heap_mb", 768.0) * MB) as i64,
        flags: abi::TOPO_SCHEDULE,
        ..Default::default()
    };
    Ok(RecordedTopology { id, row, strategy: text(t, "strategy"), components })
}

fn pack_topology(w: &mut Writer, t: &RecordedTopology, row: u32, (first_comp, first_exec): &mut (u32, u32), slot_of_exec: &[u32]) {
    let (id, owner, strategy) = (w.text(&t.id), w.text("recorded"), w.text(&t.strategy));
    let n_execs: u32 = t.components.iter().map(|c| c.n_execs).sum();
    let unplaced = slot_of_exec[*first_exec as usize..(*first_exec + n_execs) as usize].contains(&abi::NONE);
    let flags = t.row.flags | if unplaced { abi::TOPO_NEEDS_SCHEDULING } else { 0 };
    let n_comps = t.components.len() as u32;
    let (first_comp_row, first_exec_row) = (*first_comp, *first_exec);
    w.row(&abi::TopologyRow {
        id,
        name: id,
        owner,
        strategy,
        first_comp: first_comp_row,
        n_comps,
        first_exec: first_exec_row,
        n_execs,
        flags,
        ..t.row
    });
    let comp = |name: &str| t.components.binary_search_by(|c| c.id.as_str().cmp(name)).ok().map(|i| first_comp_row + i as u32);
    let mut edges: Vec<(u32, u32, &str, u32)> = Vec::new();
    let mut task = 1;
    for (i, c) in t.components.iter().enumerate() {
        let name = w.text(&c.id);
        w.row(&abi::ComponentRow {
            name,
            topology: row,
            kind: c.kind,
            first_exec: *first_exec,
            n_execs: c.n_execs,
            on_heap: c.on_heap,
            off_heap: c.off_heap,
            ..Default::default()
        });
        w.amounts(abi::TABLE_COMP_REQUEST, &[c.cpu, c.on_heap + c.off_heap]);
        edges.extend(
            c.inputs.iter().filter_map(|(from, stream, g)| comp(from).map(|f| (f, first_comp_row + i as u32, stream.as_str(), *g))),
        );
        for e in 0..c.n_execs {
            let n_tasks = c.n_tasks / c.n_execs + u32::from(e < c.n_tasks % c.n_execs);
            let slot = slot_of_exec[*first_exec as usize];
            w.row(&abi::ExecutorRow {
                topology: row,
                component: first_comp_row + i as u32,
                first_task: task,
                last_task: task + n_tasks - 1,
                slot,
                last_slot: abi::NONE,
                started_ms: i64::from(slot != abi::NONE),
                core: abi::NONE,
                reserved: 0,
            });
            task += n_tasks;
            *first_exec += 1;
        }
    }
    edges.sort_by_key(|e| (e.0, e.1, e.2));
    for (from, to, stream, grouping) in edges {
        let stream = w.text(stream);
        w.row(&abi::EdgeRow { from, to, stream, grouping, reserved: 0 });
    }
    *first_comp += n_comps;
}
