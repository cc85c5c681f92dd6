//! Places the executors of one topology: the first slot that fits, node by node, back one step where nothing does.
//!
//! Before: `executors` ordered them, `nodes` the nodes. After: the model has all of them, or is as it was. A worker opened on the way takes the
//! ackers that go with it. Storm calls a run whose last executor found no slot a success when it was the only one; here what found no slot
//! is a failure, always.

use crate::executors::Work;
use crate::nodes::{Key, Nodes, Places};
use saetta_sdk::model::{Checkpoint, Misfit, Model};
use saetta_sdk::{CompId, ExecId, KindId, NodeId, SlotId, Snapshot, TopoId, abi};
use std::collections::VecDeque;

/// Between two questions whether to stop, in placements tried.
const ASK_EVERY: u64 = 64;

/// Why a topology was not placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// This executor found no slot, in any arrangement that was tried.
    NoRoom(ExecId),
    /// So many placements were tried, and no more may be.
    States(u64),
    /// The round is over.
    Stopped,
}

/// How one topology is placed.
#[derive(Debug, Clone, Copy)]
pub struct How {
    /// By what nodes are sorted.
    pub key: Key,
    /// Placements tried at most.
    pub max_states: u64,
    /// Steps back at most.
    pub max_back: u64,
    /// Ackers that go with a new worker.
    pub ackers_per_worker: u32,
}

/// One executor placed, with the ackers its new worker took along.
struct Step {
    mark: Checkpoint,
    slot: SlotId,
    exec: ExecId,
    is_acker: bool,
    /// Slots that were tried for it before.
    tried: Vec<u32>,
}

/// One topology while it is being placed.
pub struct Search<'a> {
    model: &'a mut Model,
    places: &'a Places,
    row: abi::TopologyRow,
    topology: TopoId,
    /// An order of the nodes for each set of kinds that components ask for.
    orders: Vec<(Vec<bool>, Nodes)>,
    /// Which of them, by component of the topology.
    order_of: Vec<usize>,
    /// By component and rack: no node there takes it. Holds until something is freed.
    full: Vec<bool>,
    /// What is full stays full while more is placed.
    is_monotone: bool,
    /// Slots with a worker of this topology that runs: it stays as it is.
    runs: Vec<SlotId>,
    ackers: VecDeque<ExecId>,
    how: How,
}

impl<'a> Search<'a> {
    /// Opens the search. O(nodes + slots of the nodes).
    pub fn new(snapshot: &Snapshot<'_>, model: &'a mut Model, places: &'a Places, topology: TopoId, how: How) -> Self {
        let row = snapshot.topologies().at(topology);
        let mut orders: Vec<(Vec<bool>, Nodes)> = Vec::new();
        let order_of = snapshot
            .components_of(&row)
            .map(|(id, _)| {
                // CPU and memory count for every node.
                let asked: Vec<bool> = model.request(id).iter().enumerate().map(|(k, r)| k < 2 || *r > 0).collect();
                orders.iter().position(|(of, _)| *of == asked).unwrap_or_else(|| {
                    orders.push((asked.clone(), Nodes::new(snapshot, places, model, topology, how.key, asked)));
                    orders.len() - 1
                })
            })
            .collect();
        let as_it_runs = |(e, row): (ExecId, abi::ExecutorRow)| model.slot_of(e).filter(|s| s.0 == row.slot);
        let mut runs: Vec<SlotId> = snapshot.executors_of(&row).filter_map(as_it_runs).collect();
        runs.sort_unstable();
        runs.dedup();
        let full = vec![false; row.n_comps as usize * places.n_racks];
        let is_monotone = model.is_monotone(topology);
        Search { model, places, row, topology, orders, order_of, full, is_monotone, runs, ackers: VecDeque::new(), how }
    }

    /// Places all of `work`. On failure the model is as it was.
    pub fn place_all(&mut self, work: Work, should_stop: &dyn Fn() -> bool) -> Result<(), Failure> {
        let Work { executors, ackers, .. } = work;
        self.ackers = ackers;
        let begin = self.model.checkpoint();
        let mut steps: Vec<Step> = Vec::with_capacity(executors.len());
        let (mut states, mut n_back) = (0u64, 0u64);
        let mut misfit: Option<ExecId> = None;
        let mut tried: Vec<u32> = Vec::new();
        let end = loop {
            // Each step places one executor of the list; behind its end, one acker that no worker took along.
            let at = steps.len();
            let is_acker = at >= executors.len();
            let exec = match executors.get(at).copied().or_else(|| self.ackers.pop_front()) {
                Some(exec) => exec,
                None => break Ok(()),
            };
            states += 1;
            if states > self.how.max_states {
                break Err(Failure::States(states - 1));
            }
            if states.is_multiple_of(ASK_EVERY) && should_stop() {
                break Err(Failure::Stopped);
            }
            if let Some(slot) = self.find(self.model.comp_of(exec), &tried) {
                let mark = self.model.checkpoint();
                self.put(exec, slot, is_acker);
                steps.push(Step { mark, slot, exec, is_acker, tried: std::mem::take(&mut tried) });
                continue;
            }
            if is_acker {
                self.ackers.push_front(exec);
            }
            misfit.get_or_insert(exec);
            n_back += 1;
            match steps.pop() {
                Some(step) if n_back <= self.how.max_back => {
                    tried = step.tried;
                    tried.push(step.slot.0);
                    self.undo(step.mark, step.exec, step.is_acker);
                }
                _ => break Err(Failure::NoRoom(misfit.unwrap_or(exec))),
            }
        };
        if end.is_err() {
            self.model.rollback(begin);
        }
        end
    }

    /// One executor after the other, each on the next node; what finds none is a failure. `nodes` in order.
    pub fn place_in_turn(&mut self, work: Work, nodes: &[NodeId], should_stop: &dyn Fn() -> bool) -> Result<(), Failure> {
        let begin = self.model.checkpoint();
        let mut next = 0;
        for exec in work.executors.into_iter().chain(work.ackers) {
            let comp = self.model.comp_of(exec);
            let turn = (0..nodes.len()).map(|i| (next + i) % nodes.len());
            let found = turn.filter_map(|i| self.slot_on(comp, nodes[i], &[]).map(|slot| (i, slot))).next();
            let failure = if should_stop() { Some(Failure::Stopped) } else { found.is_none().then_some(Failure::NoRoom(exec)) };
            if let (Some((i, slot)), None) = (found, failure) {
                self.model.place(exec, slot);
                next = i + 1;
            } else {
                self.model.rollback(begin);
                return Err(failure.unwrap_or(Failure::NoRoom(exec)));
            }
        }
        Ok(())
    }

    pub(crate) fn model(&mut self) -> &mut Model {
        self.model
    }
    pub(crate) fn row(&self) -> &abi::TopologyRow {
        &self.row
    }
    /// A slot of this node that fits.
    pub(crate) fn slot_of_node(&self, comp: CompId, node: NodeId) -> Option<SlotId> {
        if self.model.may_fit(comp, node) { self.slot_on(comp, node, &[]) } else { None }
    }
    /// Slots of a node with workers of this topology.
    pub(crate) fn slots_on(&self, node: NodeId) -> Vec<SlotId> {
        self.model.slots(node).filter(|s| self.model.holder(*s) == Some(self.topology)).collect()
    }
    /// Components of a worker of this topology, as numbered in it, and how many of each.
    pub(crate) fn comps_in(&self, slot: SlotId) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.model.comps_in(slot).map(|(c, n)| ((c.0 - self.row.first_comp) as usize, n))
    }
    /// Ackers of a topology that is placed but for them. On failure the model is as it was.
    pub(crate) fn place_ackers(&mut self, ackers: VecDeque<ExecId>, should_stop: &dyn Fn() -> bool) -> Result<(), Failure> {
        let begin = self.model.checkpoint();
        self.ackers = ackers;
        self.share_ackers();
        let end = self.place_left_ackers(should_stop);
        if end.is_err() {
            self.model.rollback(begin);
        }
        end
    }
    /// Ackers into the workers that were opened, so many into each as go with it, where they fit.
    fn share_ackers(&mut self) {
        let alone = abi::TOPO_ONE_EXEC_PER_WORKER | abi::TOPO_ONE_COMP_PER_WORKER;
        let Some(acker) = self.ackers.front().filter(|_| self.row.flags & alone == 0).map(|e| self.model.comp_of(*e)) else { return };
        let mut workers: Vec<SlotId> = (self.row.first_exec..self.row.first_exec + self.row.n_execs)
            .filter_map(|e| self.model.slot_of(ExecId(e)))
            .filter(|slot| self.runs.binary_search(slot).is_err())
            .collect();
        workers.sort_unstable();
        workers.dedup();
        for slot in workers {
            let mut n = 0;
            while n < self.how.ackers_per_worker && self.model.fit(acker, slot).is_ok() {
                let Some(next) = self.ackers.pop_front() else { break };
                self.model.place(next, slot);
                n += 1;
            }
            self.touched(self.model.node_of(slot), n as i32);
        }
    }
    /// Ackers that no worker took along, each where it fits first.
    fn place_left_ackers(&mut self, should_stop: &dyn Fn() -> bool) -> Result<(), Failure> {
        while let Some(exec) = self.ackers.pop_front() {
            if should_stop() {
                return Err(Failure::Stopped);
            }
            let slot = self.find(self.model.comp_of(exec), &[]).ok_or(Failure::NoRoom(exec))?;
            self.put(exec, slot, true);
        }
        Ok(())
    }

    /// Nodes that run no other topology, in order; `most` of them at most, 0 = all.
    pub fn nodes_of_its_own(&mut self, most: u32) -> Vec<NodeId> {
        let mut nodes = self.orders.first_mut().map_or_else(Vec::new, |(_, nodes)| nodes.all(self.places));
        let others = |n: &NodeId| self.model.slots(*n).any(|s| self.model.holder(s).is_some_and(|t| t != self.topology));
        nodes.retain(|n| !others(n));
        if most > 0 {
            nodes.truncate(most as usize);
        }
        nodes
    }

    /// The first slot that fits, besides those tried.
    pub(crate) fn find(&mut self, comp: CompId, tried: &[u32]) -> Option<SlotId> {
        let local = (comp.0 - self.row.first_comp) as usize;
        let mut orders = std::mem::take(&mut self.orders);
        let mut full = std::mem::take(&mut self.full);
        let first = local * self.places.n_racks;
        let remember = self.is_monotone && tried.is_empty();
        let mut passed: Vec<usize> = Vec::new();
        let found = orders[self.order_of[local]].1.walk(
            self.places,
            |rack| full[first + rack],
            |node| if self.model.may_fit(comp, node) { self.slot_on(comp, node, tried) } else { None },
            |rack| passed.push(rack),
        );
        if remember {
            passed.into_iter().for_each(|rack| full[first + rack] = true);
        }
        (self.orders, self.full) = (orders, full);
        found
    }

    /// The first slot of a node that fits. Free ones are alike: only the first of them is tried.
    fn slot_on(&self, comp: CompId, node: NodeId, tried: &[u32]) -> Option<SlotId> {
        let mut seen_free = false;
        for slot in self.model.slots(node) {
            let is_free = match self.model.holder(slot) {
                None => true,
                Some(t) if t == self.topology => false,
                Some(_) => continue,
            };
            if is_free && (seen_free || !self.model.is_open(slot)) {
                continue;
            }
            seen_free |= is_free;
            if tried.contains(&slot.0) || (!is_free && self.runs.binary_search(&slot).is_ok()) {
                continue;
            }
            match self.model.fit(comp, slot) {
                Ok(()) => return Some(slot),
                // The node's own: no other slot of it has more of that, but where workers differ (least CPU, shared memory).
                Err(Misfit::Generic(_) | Misfit::Colocation) => return None,
                Err(Misfit::Cpu | Misfit::Memory) if self.is_monotone => return None,
                Err(_) => {}
            }
        }
        None
    }

    pub(crate) fn put(&mut self, exec: ExecId, slot: SlotId, is_acker: bool) {
        let is_new = self.model.holder(slot).is_none();
        let comp = self.model.comp_of(exec);
        self.model.place(exec, slot);
        let mut placed = 1;
        let alone = abi::TOPO_ONE_EXEC_PER_WORKER | abi::TOPO_ONE_COMP_PER_WORKER;
        if is_new && !is_acker && self.row.flags & alone == 0 && !self.ackers.is_empty() {
            let acker = self.model.comp_of(self.ackers[0]);
            let heap = if self.row.max_worker_heap > 0 { self.row.max_worker_heap - self.model.on_heap(comp) } else { i64::MAX };
            let by_heap = heap.checked_div(self.model.on_heap(acker)).unwrap_or(i64::MAX).max(0) as u64;
            for _ in 0..u64::from(self.how.ackers_per_worker).min(by_heap) {
                let Some(next) = self.ackers.front().copied() else { break };
                if self.model.fit(acker, slot).is_err() {
                    break;
                }
                self.model.place(next, slot);
                self.ackers.pop_front();
                placed += 1;
            }
        }
        self.touched(self.model.node_of(slot), placed);
    }

    fn undo(&mut self, mark: Checkpoint, direct: ExecId, is_acker: bool) {
        let undone: Vec<(ExecId, SlotId)> = self.model.since(mark).collect();
        self.model.rollback(mark);
        // Those bound, and an acker that was placed by itself, wait again, in the order they came.
        for (exec, _) in undone.iter().rev() {
            if *exec != direct || is_acker {
                self.ackers.push_front(*exec);
            }
        }
        if let Some((_, slot)) = undone.first() {
            self.touched(self.model.node_of(*slot), -(undone.len() as i32));
        }
        self.full.fill(false);
    }

    fn touched(&mut self, node: NodeId, by: i32) {
        for (_, nodes) in &mut self.orders {
            nodes.touched(self.places, self.model, node, by);
        }
    }
}

/// What keeps an executor out, said of the node where it comes nearest to fitting: the misfit met last in the list below.
pub fn reason(model: &Model, exec: ExecId) -> Misfit {
    let comp = model.comp_of(exec);
    let rank = |m: &Misfit| match m {
        Misfit::Closed => 0,
        Misfit::Taken => 1,
        Misfit::OneExecutor | Misfit::OneComponent => 2,
        Misfit::Cpu => 3,
        Misfit::Memory => 4,
        Misfit::Generic(KindId(_)) => 5,
        Misfit::Heap => 6,
        Misfit::Incompatible(_) => 7,
        Misfit::Colocation => 8,
    };
    let nodes = (0..model.n_nodes() as u32).map(NodeId);
    let misfits = nodes.filter_map(|n| model.slots(n).filter_map(|s| model.fit(comp, s).err()).max_by_key(rank));
    misfits.max_by_key(rank).unwrap_or(Misfit::Taken)
}
