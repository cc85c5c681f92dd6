//! The pools and what each does for its topologies: Storm's multitenant scheduler, section by section.
//!
//! Before: a board. After: executors placed, and a status for each topology that was asked about. Nodes without a worker are *free*. Each
//! configured user has an *isolated* pool: its topologies have their nodes to themselves, up to its number of nodes. All else is the
//! *default* pool. An isolated pool takes nodes from the free and the default one, the default pool from the free one.
//!
//! Where a topology has stood still for one pass, the round is over: pools are made anew from what a pass left, [`PASSES_MAX`] times at
//! most. So a second round finds nothing to do.

use crate::board::Board;
use crate::fill::{Order, fill, give_up, spread_out, thin_out, top_up};
use saetta_sdk::{NodeId, TopoId, abi};
use std::collections::{BTreeMap, BTreeSet};

/// Passes over all topologies in one round. The second finds nothing but where a topology changed its pool.
const PASSES_MAX: usize = 4;

/// What a plan may do to executors that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Freedom {
    /// Pools take nodes on which something runs.
    pub(crate) take: bool,
    /// Running executors of a topology move for its own sake.
    pub(crate) shift: bool,
}

/// How a topology fares: one line for people, and the `abi::WHY_*` of its executors without a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) text: String,
    pub(crate) why: u32,
}

fn status(why: u32, text: String) -> Status {
    Status { text, why }
}

/// A topology in an isolated pool.
struct Member {
    topology: TopoId,
    nodes: BTreeSet<NodeId>,
    /// Machines it wants; 0 = it does not say.
    machines: usize,
}

/// One user's nodes.
struct Isolated {
    nodes_max: usize,
    members: Vec<Member>,
}

/// All pools of one pass.
struct Pools<'b, 'a> {
    board: &'b mut Board<'a>,
    free: BTreeSet<NodeId>,
    default: BTreeSet<NodeId>,
    freedom: Freedom,
    status: BTreeMap<TopoId, Status>,
}

/// Schedules all topologies of a round.
///
/// Once `should_stop` says so, the rest stays as it is.
pub(crate) fn run(
    board: &mut Board<'_>,
    nodes_max: &BTreeMap<String, u64>,
    freedom: Freedom,
    should_stop: &dyn Fn() -> bool,
) -> BTreeMap<TopoId, Status> {
    let mut said = BTreeMap::new();
    for _ in 0..PASSES_MAX {
        let before = board.places().to_vec();
        said = pass(board, nodes_max, freedom, should_stop);
        if should_stop() || board.places() == before {
            break;
        }
    }
    said
}

fn pass(
    board: &mut Board<'_>,
    nodes_max: &BTreeMap<String, u64>,
    freedom: Freedom,
    should_stop: &dyn Fn() -> bool,
) -> BTreeMap<TopoId, Status> {
    let mut order: Vec<(i32, TopoId)> = board.snapshot.topologies().with_ids().map(|(id, t)| (t.priority, id)).collect();
    order.sort_unstable();
    let mut isolated: BTreeMap<&str, Isolated> = BTreeMap::new();
    let mut others: Vec<TopoId> = Vec::new();
    for (_, topology) in order {
        let row = board.row(topology);
        let owner = board.snapshot.text(row.owner);
        let nodes = board.nodes_of(topology);
        match nodes_max.get_key_value(owner).filter(|(_, max)| **max > 0) {
            Some((user, max)) if nodes.iter().all(|n| board.on(*n).len() <= 1) => {
                let pool = isolated.entry(user).or_insert_with(|| Isolated { nodes_max: *max as usize, members: Vec::new() });
                let machines = row.isolate_machines.min(row.n_execs).min(row.workers_wanted) as usize;
                pool.members.push(Member { topology, nodes, machines });
            }
            _ => others.push(topology),
        }
    }
    let free = board.nodes().filter(|n| board.is_alive(*n) && board.n_used(*n) == 0).collect();
    let default = others.iter().flat_map(|t| board.nodes_of(*t)).collect();
    let mut pools = Pools { board, free, default, freedom, status: BTreeMap::new() };
    for pool in isolated.values_mut() {
        // Those that want machines first: they take them from the user's other topologies, which then see what is left.
        pool.members.sort_by_key(|m| m.machines == 0);
        for i in 0..pool.members.len() {
            if !should_stop() {
                pools.schedule_isolated(pool, i);
            }
        }
    }
    for topology in others {
        if !should_stop() {
            pools.schedule_default(topology);
        }
    }
    pools.status
}

impl Isolated {
    fn n_nodes(&self) -> usize {
        self.members.iter().map(|m| m.nodes.len()).sum()
    }
}

impl Pools<'_, '_> {
    /// Nodes of the default pool that may be taken, those with the fewest workers first.
    fn takeable(&self) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = self.default.iter().copied().filter(|n| self.freedom.take && self.board.may_be_freed(*n)).collect();
        nodes.sort_by_key(|n| (self.board.n_used(*n), self.board.is_grey(*n), *n));
        nodes
    }
    /// Free nodes, greylisted ones last.
    fn free_nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = self.free.iter().copied().collect();
        nodes.sort_by_key(|n| (self.board.is_grey(*n), *n));
        nodes
    }
    /// The first nodes of the free and then of the default pool that give so many slots together; all, if they do not.
    fn nodes_by_slots(&self, n_slots: usize, with_default: bool) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        let mut found = 0;
        let from_default = if with_default { self.takeable() } else { Vec::new() };
        for node in self.free_nodes().into_iter().chain(from_default) {
            if found >= n_slots {
                break;
            }
            found += self.board.n_open(node);
            nodes.push(node);
        }
        nodes
    }
    /// A node leaves its pool, empty.
    fn take(&mut self, node: NodeId) -> NodeId {
        if !self.free.remove(&node) {
            self.default.remove(&node);
            self.board.free_node(node);
        }
        node
    }
    /// Executors into slots: new workers first, then what waits into those that run, then more workers from the fullest.
    fn place(&mut self, topology: TopoId, n_slots: usize, nodes: &BTreeSet<NodeId>, order: Order) {
        let n_before = self.board.workers(topology).len();
        fill(self.board, topology, n_slots, nodes, order);
        top_up(self.board, topology);
        let n_more = n_slots.saturating_sub(self.board.workers(topology).len() - n_before);
        if n_more > 0 && self.freedom.shift {
            thin_out(self.board, topology, n_more, nodes, order);
        }
    }
    /// Workers a topology should have.
    fn n_wanted(&self, row: &abi::TopologyRow) -> usize {
        row.workers_wanted.min(row.n_execs) as usize
    }

    fn schedule_isolated(&mut self, pool: &mut Isolated, i: usize) {
        let Member { topology, machines, .. } = pool.members[i];
        if !self.board.is_asked(topology) {
            return;
        }
        let row = self.board.row(topology);
        if self.freedom.shift {
            give_up(self.board, topology, row.workers_wanted as usize);
        }
        let wants = !self.board.unplaced(topology).is_empty() || self.board.workers(topology).len() < self.n_wanted(&row);
        let said = if wants || (machines > 0 && pool.members[i].nodes.len() < machines) {
            let n_slots = if machines > 0 { self.nodes_to_itself(pool, i, &row) } else { self.nodes_in_pool(pool, i, &row) };
            match n_slots {
                Ok(n_slots) => {
                    let nodes = pool.members[i].nodes.clone();
                    self.place(topology, n_slots, &nodes, Order::Spread);
                    if self.freedom.shift && machines > 0 {
                        spread_out(self.board, topology, &nodes);
                    }
                    None
                }
                Err(said) => {
                    top_up(self.board, topology);
                    Some(said)
                }
            }
        } else {
            None
        };
        let n_used = self.board.workers(topology).len();
        let nodes = self.board.nodes_of(topology);
        let said = said.unwrap_or_else(|| {
            let n_slots: usize = nodes.iter().map(|n| self.board.n_open(*n)).sum();
            match () {
                () if !self.board.unplaced(topology).is_empty() => {
                    let text = "Node has partially crashed, if this situation persists rebalance the topology.";
                    status(abi::WHY_NO_SLOT, text.into())
                }
                () if n_used < self.n_wanted(&row) => {
                    let (wanted, n_nodes) = (row.workers_wanted, nodes.len());
                    let slots = format!("{n_used}/{wanted} on {n_nodes} node(s) with {n_slots} total slots");
                    status(abi::WHY_NO_SLOT, format!("Running with fewer slots than requested {slots}"))
                }
                () => status(abi::WHY_NO_SLOT, format!("Scheduled Isolated on {} Nodes", nodes.len())),
            }
        });
        self.status.insert(topology, said);
        pool.members[i].nodes = nodes;
    }

    fn too_many(pool: &Isolated, more: usize) -> Status {
        let text = format!("Max Nodes({}) for this user would be exceeded. {more} more nodes needed to run topology.", pool.nodes_max);
        status(abi::WHY_ISOLATION_QUOTA, text)
    }

    /// Nodes for a topology that says how many machines it wants. How many slots it may use more.
    fn nodes_to_itself(&mut self, pool: &mut Isolated, i: usize, row: &abi::TopologyRow) -> Result<usize, Status> {
        let (topology, machines) = (pool.members[i].topology, pool.members[i].machines);
        let from_us: Vec<(usize, NodeId)> = pool
            .members
            .iter()
            .enumerate()
            .filter(|(_, m)| m.machines == 0 && self.freedom.take)
            .flat_map(|(at, m)| m.nodes.iter().map(move |n| (at, *n)))
            .filter(|(_, n)| self.board.may_be_freed(*n))
            .collect();
        let others: Vec<NodeId> = self.free_nodes().into_iter().chain(self.takeable()).collect();
        let needed = machines.saturating_sub(pool.members[i].nodes.len());
        let left = pool.nodes_max.saturating_sub(pool.n_nodes());
        if needed.saturating_sub(from_us.len()) > left {
            return Err(Self::too_many(pool, needed - from_us.len() - left));
        }
        let n_others = left.min(others.len()).min(needed);
        if needed - n_others > from_us.len() {
            return Err(status(abi::WHY_NO_SLOT, "Not Enough Nodes Available to Schedule Topology".into()));
        }
        for node in others.into_iter().take(n_others) {
            let node = self.take(node);
            pool.members[i].nodes.insert(node);
        }
        for (from, node) in from_us.into_iter().take(needed - n_others) {
            self.board.free_node(node);
            pool.members[from].nodes.remove(&node);
            pool.members[i].nodes.insert(node);
        }
        let used = self.board.workers(topology).len();
        Ok(self.n_wanted(row).saturating_sub(used).min(self.board.n_free(&pool.members[i].nodes)))
    }

    /// Nodes for a topology of the pool that does not say. How many slots it may use more.
    fn nodes_in_pool(&mut self, pool: &mut Isolated, i: usize, row: &abi::TopologyRow) -> Result<usize, Status> {
        let used = self.board.workers(pool.members[i].topology).len();
        let free = self.board.n_free(&pool.members[i].nodes);
        let wanted = self.n_wanted(row).saturating_sub(used);
        let more = self.nodes_by_slots(wanted.saturating_sub(free), true);
        let n_slots = wanted.min(free + more.iter().map(|n| self.board.n_open(*n)).sum::<usize>());
        if n_slots == 0 && used == 0 {
            return Err(status(abi::WHY_NO_SLOT, "Not Enough Slots Available to Schedule Topology".into()));
        }
        let left = pool.nodes_max.saturating_sub(pool.n_nodes());
        if more.len() > left {
            return Err(Self::too_many(pool, more.len() - left));
        }
        for node in more {
            let node = self.take(node);
            pool.members[i].nodes.insert(node);
        }
        Ok(n_slots)
    }

    fn schedule_default(&mut self, topology: TopoId) {
        if !self.board.is_asked(topology) {
            return;
        }
        let row = self.board.row(topology);
        if self.freedom.shift {
            give_up(self.board, topology, row.workers_wanted as usize);
        }
        let wanted = self.n_wanted(&row).saturating_sub(self.board.workers(topology).len());
        let free = self.board.n_free(&self.default);
        for node in self.nodes_by_slots(wanted.saturating_sub(free), false) {
            let node = self.take(node);
            self.default.insert(node);
        }
        let n_slots = wanted.min(self.board.n_free(&self.default));
        let nodes = self.default.clone();
        self.place(topology, n_slots, &nodes, Order::Pack);
        let (used, asked, left) = (self.board.workers(topology).len(), row.workers_wanted as usize, self.board.unplaced(topology).len());
        let text = match () {
            () if left > 0 => format!("Not fully scheduled (No free slots in default pool) {left} executors not scheduled"),
            () if used < self.n_wanted(&row) => format!("Running with fewer slots than requested ({used}/{asked})"),
            () if used < asked => format!("Fully Scheduled (requested {asked} slots, but could only use {used})"),
            () => "Fully Scheduled".to_owned(),
        };
        self.status.insert(topology, status(abi::WHY_NO_SLOT, text));
    }
}
