//! Storm's default resource-aware algorithm as a reference model: what the locality of our placement is compared with.
//!
//! Before: a snapshot. After: a slot for each executor it places. Written from the study's prose to be plainly right, not fast: before an executor
//! all racks, hosts and nodes are sorted again, by Storm's own (inverted) rule only when the component is that of the executor before. The sums, the
//! order of executors and that of topologies are the plugin's, which the same cases check. Not here: backtracking, eviction, favoured
//! hosts; what does not fit as a whole is left out. `tests/reference.rs` runs Storm's cases on it.

use saetta_resource_aware::executors::{self, By, Work};
use saetta_resource_aware::order::{self, Fairness};
use saetta_sdk::model::Model;
use saetta_sdk::{CompId, ExecId, NodeId, SlotId, Snapshot, TopoId, abi};

/// A slot, or [`abi::NONE`], for each executor.
pub fn place(snapshot: &Snapshot<'_>) -> Vec<u32> {
    let mut model = Model::new(snapshot);
    for topology in order::order(snapshot, Fairness::Standard) {
        let mark = model.checkpoint();
        if place_one(snapshot, &mut model, topology).is_none() {
            model.rollback(mark);
        }
    }
    (0..snapshot.executors().len()).map(|e| model.slot_of(ExecId(e as u32)).map_or(abi::NONE, |s| s.0)).collect()
}

fn place_one(snapshot: &Snapshot<'_>, model: &mut Model, topology: TopoId) -> Option<()> {
    let row = snapshot.topologies().at(topology);
    let by = if row.flags & abi::TOPO_ORDER_BY_PROXIMITY != 0 { By::Proximity } else { By::Connections };
    let Work { executors, mut ackers, .. } = executors::sort(snapshot, topology, by, &|e| model.slot_of(e).is_none());
    let per_worker = ackers_per_worker(snapshot, &row);
    let free: Vec<bool> = (0..snapshot.slots().len()).map(|s| model.is_free(SlotId(s as u32))).collect();
    let (mut nodes, mut last): (Vec<NodeId>, Option<CompId>) = (Vec::new(), None);
    let mut at = 0;
    loop {
        let Some(exec) = executors.get(at).copied().or_else(|| ackers.pop_front()) else { return Some(()) };
        let is_acker = at >= executors.len();
        at += 1;
        let comp = model.comp_of(exec);
        if nodes.is_empty() || last == Some(comp) {
            nodes = sorted(snapshot, model, topology, comp);
        }
        last = Some(comp);
        let slots = nodes.iter().filter(|n| model.may_fit(comp, **n)).flat_map(|n| model.slots(*n));
        let slot = slots.filter(|s| free[s.index()]).find(|s| model.fit(comp, *s).is_ok())?;
        let is_new = model.is_free(slot);
        model.place(exec, slot);
        let alone = row.flags & (abi::TOPO_ONE_EXEC_PER_WORKER | abi::TOPO_ONE_COMP_PER_WORKER) != 0;
        if is_new && !is_acker && !alone && !ackers.is_empty() {
            let acker = model.comp_of(ackers[0]);
            let by_heap = (row.max_worker_heap - model.on_heap(comp)).checked_div(model.on_heap(acker)).unwrap_or(i64::MAX);
            for _ in 0..i64::from(per_worker).min(by_heap) {
                if model.fit(acker, slot).is_err() {
                    break;
                }
                let Some(next) = ackers.pop_front() else { break };
                model.place(next, slot);
            }
        }
    }
}

fn ackers_per_worker(snapshot: &Snapshot<'_>, row: &abi::TopologyRow) -> u32 {
    let of = |kinds: &[u32]| snapshot.components_of(row).map(|(_, c)| c).filter(|c| kinds.contains(&c.kind)).collect::<Vec<_>>();
    let heap: i64 = of(&[abi::KIND_SPOUT, abi::KIND_BOLT]).iter().map(|c| c.on_heap * i64::from(c.n_execs)).sum();
    let n_ackers: u32 = of(&[abi::KIND_ACKER]).iter().map(|c| c.n_execs).sum();
    n_ackers.div_ceil((heap as f64 / row.max_worker_heap as f64).ceil().max(1.0) as u32)
}

/// All nodes by rack, host and node, each level by the key COMMON.
fn sorted(snapshot: &Snapshot<'_>, model: &Model, topology: TopoId, comp: CompId) -> Vec<NodeId> {
    let asked: Vec<bool> = model.request(comp).iter().map(|r| *r > 0).collect();
    let node = |n: NodeId| {
        let here = model.slots(n).filter(|s| model.holder(*s) == Some(topology)).map(|s| model.n_execs(s)).sum();
        Item { execs: here, avail: model.avail(n).iter().map(|a| (*a).max(0)).collect(), nodes: vec![n] }
    };
    let racks = snapshot.racks().iter().map(|rack| {
        let hosts = snapshot.hosts_of(&rack).map(|(_, host)| {
            let nodes = snapshot.nodes_of(&host).map(|(n, _)| node(n)).collect();
            together(nodes, &asked)
        });
        together(hosts.collect(), &asked)
    });
    together(racks.collect(), &asked).nodes
}

/// A node, or a sorted group of them.
struct Item {
    execs: u32,
    avail: Vec<i64>,
    nodes: Vec<NodeId>,
}

/// Sorts siblings and makes one group of them.
fn together(items: Vec<Item>, asked: &[bool]) -> Item {
    let whole: Vec<i64> = (0..asked.len()).map(|k| items.iter().map(|i| i.avail[k]).sum()).collect();
    let execs = items.iter().map(|i| i.execs).sum();
    let mut ranked: Vec<(f64, f64, Item)> = items
        .into_iter()
        .map(|item| {
            let kinds: Vec<usize> = (0..asked.len()).filter(|k| whole[*k] > 0).collect();
            let share = |k: &usize| {
                let sign = if *k >= 2 && !asked[*k] { -1.0 } else { 1.0 };
                sign * item.avail[*k] as f64 / whole[*k] as f64
            };
            let (average, least) = match kinds.len() {
                0 => (1.0, 1.0),
                n => (kinds.iter().map(share).sum::<f64>() / n as f64, kinds.iter().map(share).fold(1.0, f64::min)),
            };
            (average, least, item)
        })
        .collect();
    // Stable: equal ones stay in the order of the table, which is by id.
    ranked.sort_by(|a, b| b.2.execs.cmp(&a.2.execs).then(b.0.total_cmp(&a.0)).then(b.1.total_cmp(&a.1)));
    Item { execs, avail: whole, nodes: ranked.into_iter().flat_map(|(_, _, i)| i.nodes).collect() }
}
