//! Accounting over a snapshot: what is free, what fits, place and free, back to a checkpoint. What a resource-aware scheduler stands on.
//!
//! Before: a [`Snapshot`]. After: the scheduler writes where executors are now ([`Model::slot_of`]) into the plan. The arithmetic is that of
//! [`crate::usage`], the host's own, kept up to date with each step: a worker takes the sum of its executors, each shared block once, and at
//! least the cluster's least CPU; a node is also charged each block's per-node part once for each topology. Not here: which slot is better.
//! Flat vectors and one log of steps; no hashing. A step costs O(kinds + components of the worker); with shared memory per node, also the
//! node's slots.

use crate::snapshot::{BlockId, CompId, ExecId, KindId, NodeId, SlotId, Snapshot, TopoId};
use saetta_abi as abi;
use std::ops::Range;

/// Why an executor does not fit into a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misfit {
    /// The slot takes nothing new.
    Closed,
    /// Another topology's worker is there.
    Taken,
    /// The topology wants one executor in each worker.
    OneExecutor,
    /// The topology wants one component in each worker, and another one is there.
    OneComponent,
    /// A component that may not share a worker with it is there.
    Incompatible(CompId),
    /// As many executors of its component are on the node as may be.
    Colocation,
    /// On-heap memory of the worker.
    Heap,
    /// CPU of the node.
    Cpu,
    /// Memory of the node.
    Memory,
    /// Another kind, of the node.
    Generic(KindId),
}

impl Misfit {
    /// The reason as the ABI numbers it, and its argument.
    pub fn why(self) -> (u32, Option<u32>) {
        match self {
            Misfit::Closed => (abi::WHY_BLACKLISTED, None),
            Misfit::Taken | Misfit::OneExecutor | Misfit::OneComponent => (abi::WHY_NO_SLOT, None),
            Misfit::Incompatible(c) => (abi::WHY_INCOMPATIBLE, Some(c.0)),
            Misfit::Colocation => (abi::WHY_COLOCATION, None),
            Misfit::Heap => (abi::WHY_NO_HEAP, None),
            Misfit::Cpu => (abi::WHY_NO_CPU, None),
            Misfit::Memory => (abi::WHY_NO_MEMORY, None),
            Misfit::Generic(k) => (abi::WHY_NO_GENERIC, Some(k.0)),
        }
    }
}

/// Executors of a component that may be on one node; 0 = any number. One to be spread without a number of its own: one.
pub fn max_colocation(comp: &abi::ComponentRow) -> u32 {
    if comp.flags & abi::COMP_SPREAD != 0 { comp.max_colocation.max(1) } else { comp.max_colocation }
}

/// A point to go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint(usize);

/// A worker's rules and a component's share in them.
#[derive(Debug, Clone, Default)]
struct Comp {
    topology: u32,
    on_heap: i64,
    /// 0 = no limit.
    max_colocation: u32,
    /// In `Model::comp_blocks`.
    blocks: Range<u32>,
    /// In `Model::incompatible`.
    apart: Range<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    /// On heap, once in each worker.
    on_heap: i64,
    /// On and off heap, once in each worker.
    worker: i64,
    node: i64,
}

/// One worker. All zero and empty when nothing is there.
#[derive(Debug, Clone, Default)]
struct Worker {
    cpu: i64,
    /// Shared blocks included.
    on_heap: i64,
    n_execs: u32,
    /// Component and how many of it, in order of arrival; a count is never 0.
    comps: Vec<(u32, u32)>,
}

/// The accounting. See the module.
#[derive(Debug, Clone)]
pub struct Model {
    n_kinds: usize,
    min_cpu: i64,
    /// `n_kinds` for each component.
    request: Vec<i64>,
    comps: Vec<Comp>,
    comp_blocks: Vec<u32>,
    incompatible: Vec<u32>,
    blocks: Vec<Block>,
    /// Flags and the limit of on-heap memory (`i64::MAX` = none).
    topologies: Vec<(u32, i64)>,
    comp_of: Vec<u32>,
    /// First slot of each node, and the end.
    first_slot: Vec<u32>,
    node_of: Vec<u32>,
    /// May take something new.
    open: Vec<bool>,
    /// `n_kinds` for each node. Negative where more is placed than there is.
    avail: Vec<i64>,
    slot_of: Vec<u32>,
    /// Topology in the slot, or `NONE`: also of a worker none of whose executors are known.
    holder: Vec<u32>,
    workers: Vec<Worker>,
    /// Executor, slot, and whether it was placed there (else it was freed).
    log: Vec<(u32, u32, bool)>,
}

impl Model {
    /// Everything as the snapshot has it. O(rows).
    pub fn new(snapshot: &Snapshot<'_>) -> Self {
        let n_kinds = snapshot.kinds().len();
        let n_comps = snapshot.components().len();
        let n_slots = snapshot.slots().len();
        let mut model = Model {
            n_kinds,
            min_cpu: snapshot.meta().map_or(0, |m| m.min_worker_cpu),
            request: Vec::with_capacity(n_comps * n_kinds),
            comps: Vec::with_capacity(n_comps),
            comp_blocks: Vec::new(),
            incompatible: Vec::new(),
            blocks: Vec::new(),
            topologies: Vec::new(),
            comp_of: Vec::with_capacity(snapshot.executors().len()),
            first_slot: Vec::with_capacity(snapshot.nodes().len() + 1),
            node_of: Vec::with_capacity(n_slots),
            open: Vec::with_capacity(n_slots),
            avail: Vec::with_capacity(snapshot.nodes().len() * n_kinds),
            slot_of: vec![abi::NONE; snapshot.executors().len()],
            holder: Vec::with_capacity(n_slots),
            workers: vec![Worker::default(); n_slots],
            log: Vec::new(),
        };
        for b in snapshot.blocks().iter() {
            let worker = b.on_heap.saturating_add(b.off_heap_worker);
            model.blocks.push(Block { on_heap: b.on_heap, worker, node: b.off_heap_node });
        }
        for (id, c) in snapshot.components().with_ids() {
            model.request.extend(snapshot.request(id).iter());
            let (block, apart) = (model.comp_blocks.len() as u32, model.incompatible.len() as u32);
            model.comp_blocks.extend(snapshot.blocks_of(id).map(|(b, _)| b.0));
            model.incompatible.extend(snapshot.incompatible_with(id).map(|c| c.0));
            let blocks = block..model.comp_blocks.len() as u32;
            model.comps.push(Comp {
                topology: c.topology,
                on_heap: c.on_heap,
                max_colocation: max_colocation(&c),
                blocks,
                apart: apart..model.incompatible.len() as u32,
            });
        }
        model.topologies.extend(snapshot.topologies().iter().map(|t| {
            let heap = if t.max_worker_heap > 0 { t.max_worker_heap } else { i64::MAX };
            (t.flags, heap)
        }));
        let hosts: Vec<bool> = snapshot.hosts().iter().map(|h| h.flags & abi::HOST_BLACKLISTED != 0).collect();
        let mut closed = Vec::with_capacity(snapshot.nodes().len());
        for (id, n) in snapshot.nodes().with_ids() {
            model.first_slot.push(n.first_slot);
            closed.push(hosts[n.host as usize] || n.flags & (abi::NODE_GONE | abi::NODE_BLACKLISTED | abi::NODE_RESERVED) != 0);
            model.avail.extend(snapshot.node_total(id).iter());
        }
        model.first_slot.push(n_slots as u32);
        for s in snapshot.slots().iter() {
            model.node_of.push(s.node);
            model.open.push(s.flags & abi::SLOT_ASSIGNABLE != 0 && !closed[s.node as usize]);
            model.holder.push(s.topology);
        }
        for (e, row) in snapshot.executors().iter().enumerate() {
            model.comp_of.push(row.component);
            if row.slot != abi::NONE {
                model.put(e as u32, row.slot);
            }
        }
        model
    }

    /// Where an executor is now.
    pub fn slot_of(&self, exec: ExecId) -> Option<SlotId> {
        SlotId::some(self.slot_of[exec.index()])
    }
    /// Its component.
    pub fn comp_of(&self, exec: ExecId) -> CompId {
        CompId(self.comp_of[exec.index()])
    }
    /// Topology whose worker is in a slot.
    pub fn holder(&self, slot: SlotId) -> Option<TopoId> {
        TopoId::some(self.holder[slot.index()])
    }
    /// Nothing is there, and something may be.
    pub fn is_free(&self, slot: SlotId) -> bool {
        self.holder[slot.index()] == abi::NONE && self.open[slot.index()]
    }
    /// Takes something new.
    pub fn is_open(&self, slot: SlotId) -> bool {
        self.open[slot.index()]
    }
    /// Node of a slot.
    pub fn node_of(&self, slot: SlotId) -> NodeId {
        NodeId(self.node_of[slot.index()])
    }
    /// Slots of a node by port.
    pub fn slots(&self, node: NodeId) -> impl DoubleEndedIterator<Item = SlotId> + ExactSizeIterator + use<> {
        (self.first_slot[node.index()]..self.first_slot[node.index() + 1]).map(SlotId)
    }
    /// How many nodes.
    pub fn n_nodes(&self) -> usize {
        self.first_slot.len() - 1
    }
    /// How many kinds of resources.
    pub fn n_kinds(&self) -> usize {
        self.n_kinds
    }
    /// What is left of a node, kind by kind; negative where more is placed than there is.
    pub fn avail(&self, node: NodeId) -> &[i64] {
        &self.avail[node.index() * self.n_kinds..][..self.n_kinds]
    }
    /// What one executor of a component asks for.
    pub fn request(&self, comp: CompId) -> &[i64] {
        &self.request[comp.index() * self.n_kinds..][..self.n_kinds]
    }
    /// On-heap memory of one executor.
    pub fn on_heap(&self, comp: CompId) -> i64 {
        self.comps[comp.index()].on_heap
    }
    /// Components in a worker, and how many of each.
    pub fn comps_in(&self, slot: SlotId) -> impl ExactSizeIterator<Item = (CompId, u32)> + '_ {
        self.workers[slot.index()].comps.iter().map(|(c, n)| (CompId(*c), *n))
    }
    /// Executors in a worker.
    pub fn n_execs(&self, slot: SlotId) -> u32 {
        self.workers[slot.index()].n_execs
    }
    /// On-heap memory of a worker, shared memory included.
    pub fn heap_of(&self, slot: SlotId) -> i64 {
        self.workers[slot.index()].on_heap
    }
    /// CPU and memory a worker takes: at least the least CPU, shared memory included, without its node's part.
    pub fn taken(&self, slot: SlotId) -> (i64, i64) {
        let w = &self.workers[slot.index()];
        if w.n_execs == 0 {
            return (0, 0);
        }
        let own = w.comps.iter().map(|(c, n)| self.request(CompId(*c)).get(1).map_or(0, |m| m * i64::from(*n))).sum::<i64>();
        let mut blocks: Vec<u32> = w.comps.iter().flat_map(|(c, _)| self.blocks_of(*c)).copied().collect();
        blocks.sort_unstable();
        blocks.dedup();
        (w.cpu.max(self.min_cpu), own + blocks.iter().map(|b| self.blocks[*b as usize].worker).sum::<i64>())
    }
    /// Placing more of one component can make room for another (shared memory, least CPU): what did not fit may fit later.
    pub fn is_monotone(&self, topology: TopoId) -> bool {
        self.min_cpu == 0 && !self.comps.iter().any(|c| c.topology == topology.0 && !c.blocks.is_empty())
    }
    /// The node's sums alone rule it out, whatever its slots hold.
    pub fn may_fit(&self, comp: CompId, node: NodeId) -> bool {
        let (request, avail) = (self.request(comp), self.avail(node));
        // A worker that is there may have CPU left of the least it counts as taking.
        request.iter().zip(avail).enumerate().all(|(k, (r, a))| *r == 0 || *r - if k == 0 { self.min_cpu } else { 0 } <= *a)
    }
    /// Whether an executor of the component may be placed there, as things are now.
    pub fn fit(&self, comp: CompId, slot: SlotId) -> Result<(), Misfit> {
        let (c, at) = (&self.comps[comp.index()], slot.index());
        let (flags, heap) = self.topologies[c.topology as usize];
        let w = &self.workers[at];
        if !self.open[at] {
            return Err(Misfit::Closed);
        }
        if self.holder[at] != c.topology && self.holder[at] != abi::NONE {
            return Err(Misfit::Taken);
        }
        if w.n_execs > 0 {
            if flags & abi::TOPO_ONE_EXEC_PER_WORKER != 0 {
                return Err(Misfit::OneExecutor);
            }
            if flags & abi::TOPO_ONE_COMP_PER_WORKER != 0 && w.comps.iter().any(|(other, _)| *other != comp.0) {
                return Err(Misfit::OneComponent);
            }
            let apart = &self.incompatible[c.apart.start as usize..c.apart.end as usize];
            if let Some((other, _)) = w.comps.iter().find(|(other, _)| apart.contains(other)) {
                return Err(Misfit::Incompatible(CompId(*other)));
            }
        }
        if c.max_colocation > 0 && self.n_on_node(comp, self.node_of(slot)) >= c.max_colocation {
            return Err(Misfit::Colocation);
        }
        let (cpu, memory, on_heap) = self.extra(comp.0, at);
        if w.on_heap.saturating_add(on_heap) > heap {
            return Err(Misfit::Heap);
        }
        for (k, (request, avail)) in self.request(comp).iter().zip(self.avail(self.node_of(slot))).enumerate() {
            let (needs, misfit) = match k {
                0 => (cpu, Misfit::Cpu),
                1 => (memory, Misfit::Memory),
                _ => (*request, Misfit::Generic(KindId(k as u32))),
            };
            if needs > 0 && needs > *avail {
                return Err(misfit);
            }
        }
        Ok(())
    }
    /// [`Model::fit`] for an executor.
    pub fn would_fit(&self, exec: ExecId, slot: SlotId) -> bool {
        self.fit(self.comp_of(exec), slot).is_ok()
    }
    /// Executors of a component on a node. O(slots of the node).
    pub fn n_on_node(&self, comp: CompId, node: NodeId) -> u32 {
        let topology = self.comps[comp.index()].topology;
        let mine = self.slots(node).filter(|s| self.holder[s.index()] == topology);
        mine.flat_map(|s| &self.workers[s.index()].comps).filter(|(c, _)| *c == comp.0).map(|(_, n)| n).sum()
    }

    /// Puts an executor that is nowhere into a slot. Panics when it is somewhere, or when another topology's worker is there: then nothing
    /// has changed. Whether it fits is the caller's to ask.
    pub fn place(&mut self, exec: ExecId, slot: SlotId) {
        let topology = self.comps[self.comp_of[exec.index()] as usize].topology;
        let holder = self.holder[slot.index()];
        assert_eq!(self.slot_of[exec.index()], abi::NONE, "executor {} is in slot {} already", exec.0, self.slot_of[exec.index()]);
        assert!(holder == abi::NONE || holder == topology, "slot {} holds topology {holder}", slot.0);
        self.put(exec.0, slot.0);
        self.log.push((exec.0, slot.0, true));
    }
    /// Takes an executor off its slot, if it is in one.
    pub fn free(&mut self, exec: ExecId) {
        let slot = self.slot_of[exec.index()];
        if slot != abi::NONE {
            self.take(exec.0, slot);
            self.log.push((exec.0, slot, false));
        }
    }
    /// A point to go back to.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint(self.log.len())
    }
    /// Undoes all steps since. O(steps).
    pub fn rollback(&mut self, to: Checkpoint) {
        while self.log.len() > to.0 {
            match self.log.pop() {
                Some((exec, slot, true)) => self.take(exec, slot),
                Some((exec, slot, false)) => self.put(exec, slot),
                None => break,
            }
        }
    }
    /// Executors placed or freed since, in order, with the slot.
    pub fn since(&self, mark: Checkpoint) -> impl DoubleEndedIterator<Item = (ExecId, SlotId)> + '_ {
        self.log[mark.0..].iter().map(|(e, s, _)| (ExecId(*e), SlotId(*s)))
    }

    fn blocks_of(&self, comp: u32) -> &[u32] {
        let range = &self.comps[comp as usize].blocks;
        &self.comp_blocks[range.start as usize..range.end as usize]
    }
    fn has_block(&self, slot: usize, block: u32) -> bool {
        self.workers[slot].comps.iter().any(|(c, _)| self.blocks_of(*c).contains(&block))
    }
    fn node_has_block(&self, slot: usize, block: u32, topology: u32) -> bool {
        self.slots(NodeId(self.node_of[slot])).any(|s| self.holder[s.index()] == topology && self.has_block(s.index(), block))
    }
    /// CPU, memory and on-heap memory that one executor more adds to the worker (and its node).
    fn extra(&self, comp: u32, slot: usize) -> (i64, i64, i64) {
        let (c, w) = (&self.comps[comp as usize], &self.workers[slot]);
        let request = self.request(CompId(comp));
        let (cpu, mut memory) = (request.first().copied().unwrap_or(0), request.get(1).copied().unwrap_or(0));
        let before = if w.n_execs == 0 { 0 } else { w.cpu.max(self.min_cpu) };
        let cpu = w.cpu.saturating_add(cpu).max(self.min_cpu) - before;
        let mut on_heap = c.on_heap;
        for block in self.blocks_of(comp) {
            let (id, block) = (*block, self.blocks[*block as usize]);
            if !self.has_block(slot, id) {
                memory = memory.saturating_add(block.worker);
                on_heap = on_heap.saturating_add(block.on_heap);
                if block.node > 0 && !self.node_has_block(slot, id, c.topology) {
                    memory = memory.saturating_add(block.node);
                }
            }
        }
        (cpu, memory, on_heap)
    }
    fn put(&mut self, exec: u32, slot: u32) {
        let (comp, at) = (self.comp_of[exec as usize], slot as usize);
        let (cpu, memory, on_heap) = self.extra(comp, at);
        self.charge(comp, at, (cpu, memory, on_heap), 1);
        let w = &mut self.workers[at];
        w.n_execs += 1;
        match w.comps.iter_mut().find(|(c, _)| *c == comp) {
            Some((_, n)) => *n += 1,
            None => w.comps.push((comp, 1)),
        }
        self.holder[at] = self.comps[comp as usize].topology;
        self.slot_of[exec as usize] = slot;
    }
    /// The exact opposite: the charge is what adding it to the rest would cost.
    fn take(&mut self, exec: u32, slot: u32) {
        let (comp, at) = (self.comp_of[exec as usize], slot as usize);
        let cpu = self.request(CompId(comp)).first().copied().unwrap_or(0);
        let w = &mut self.workers[at];
        let i = w.comps.iter().position(|(c, _)| *c == comp).expect("an executor's component is in its worker");
        w.comps[i].1 -= 1;
        if w.comps[i].1 == 0 {
            w.comps.remove(i);
        }
        w.n_execs -= 1;
        w.cpu -= cpu;
        let extra = self.extra(comp, at);
        self.workers[at].cpu += cpu;
        self.charge(comp, at, extra, -1);
        if self.workers[at].n_execs == 0 {
            self.holder[at] = abi::NONE;
        }
        self.slot_of[exec as usize] = abi::NONE;
    }
    fn charge(&mut self, comp: u32, slot: usize, (cpu, memory, on_heap): (i64, i64, i64), sign: i64) {
        let (node, n_kinds) = (self.node_of[slot] as usize, self.n_kinds);
        let request = &self.request[comp as usize * n_kinds..][..n_kinds];
        for (k, (avail, request)) in self.avail[node * n_kinds..][..n_kinds].iter_mut().zip(request).enumerate() {
            let amount = match k {
                0 => cpu,
                1 => memory,
                _ => *request,
            };
            *avail -= sign * amount;
        }
        let w = &mut self.workers[slot];
        w.cpu += sign * request.first().copied().unwrap_or(0);
        w.on_heap += sign * on_heap;
    }
    /// Blocks of shared memory a worker holds.
    pub fn blocks_in(&self, slot: SlotId) -> Vec<BlockId> {
        let w = &self.workers[slot.index()];
        let mut blocks: Vec<BlockId> = w.comps.iter().flat_map(|(c, _)| self.blocks_of(*c)).map(|b| BlockId(*b)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }
}
