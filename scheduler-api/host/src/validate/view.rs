//! The rows of a snapshot that rules look at again and again, read once.

use saetta_model::parallelism::ExecutorId;
use saetta_sdk::abi;
use saetta_sdk::snapshot::{NodeId, Snapshot};
use std::collections::BTreeSet;
use std::ops::Range;

pub(crate) struct View<'a> {
    pub(crate) snapshot: Snapshot<'a>,
    pub(crate) execs: Vec<abi::ExecutorRow>,
    pub(crate) slots: Vec<abi::SlotRow>,
    pub(crate) topologies: Vec<abi::TopologyRow>,
    pub(crate) components: Vec<abi::ComponentRow>,
    /// Why nothing new may be placed in a slot; `None` = it may.
    pub(crate) shut: Vec<Option<&'static str>>,
    /// What is in the slot runs: its node reports, and the port too.
    pub(crate) alive: Vec<bool>,
}

impl<'a> View<'a> {
    pub(crate) fn new(snapshot: &Snapshot<'a>) -> Self {
        let nodes: Vec<abi::NodeRow> = snapshot.nodes().iter().collect();
        let hosts: Vec<abi::HostRow> = snapshot.hosts().iter().collect();
        let slots: Vec<abi::SlotRow> = snapshot.slots().iter().collect();
        let shut = |slot: &abi::SlotRow| {
            let node = &nodes[slot.node as usize];
            let is = |flag: u32| node.flags & flag != 0;
            if is(abi::NODE_GONE) {
                Some("whose supervisor is gone")
            } else if is(abi::NODE_BLACKLISTED) || hosts[node.host as usize].flags & abi::HOST_BLACKLISTED != 0 {
                Some("whose node is blacklisted")
            } else if is(abi::NODE_RESERVED) {
                Some("whose node is kept for another scheduler")
            } else if slot.flags & abi::SLOT_ASSIGNABLE == 0 {
                Some("which its supervisor does not offer")
            } else {
                None
            }
        };
        let reported = |slot: &abi::SlotRow| slot.flags & abi::SLOT_PORT_NOT_REPORTED == 0;
        View {
            shut: slots.iter().map(shut).collect(),
            alive: slots.iter().map(|s| reported(s) && nodes[s.node as usize].flags & abi::NODE_GONE == 0).collect(),
            execs: snapshot.executors().iter().collect(),
            topologies: snapshot.topologies().iter().collect(),
            components: snapshot.components().iter().collect(),
            slots,
            snapshot: *snapshot,
        }
    }

    /// Rows of a topology's executors.
    pub(crate) fn execs_of(&self, t: usize) -> Range<usize> {
        let t = &self.topologies[t];
        t.first_exec as usize..(t.first_exec + t.n_execs) as usize
    }

    /// Where an executor is before the round.
    pub(crate) fn before(&self, e: usize) -> u32 {
        self.execs[e].slot
    }

    /// An executor that runs and would be somewhere else, or nowhere.
    pub(crate) fn is_moved(&self, e: usize, after: u32) -> bool {
        let before = self.before(e);
        before != abi::NONE && self.alive[before as usize] && after != before
    }

    /// Slots a topology uses: by the plan, or as it is.
    pub(crate) fn used(&self, t: usize, slot_of_exec: Option<&[u32]>) -> BTreeSet<u32> {
        let at = |e: usize| slot_of_exec.map_or_else(|| self.before(e), |slots| slots[e]);
        self.execs_of(t).map(at).filter(|s| *s != abi::NONE).collect()
    }

    /// An executor for people.
    pub(crate) fn exec(&self, e: usize) -> ExecutorId {
        ExecutorId { first: self.execs[e].first_task, last: self.execs[e].last_task }
    }

    pub(crate) fn component(&self, c: u32) -> &'a str {
        self.snapshot.text(self.components[c as usize].name)
    }

    pub(crate) fn node(&self, node: u32) -> &'a str {
        self.snapshot.text(self.snapshot.nodes().at(NodeId(node)).id)
    }

    /// `node:port`.
    pub(crate) fn slot(&self, slot: u32) -> String {
        self.slots.get(slot as usize).map_or_else(|| format!("slot {slot}"), |s| format!("{}:{}", self.node(s.node), s.port))
    }

    /// What a resource kind is called.
    pub(crate) fn kind(&self, kind: usize) -> &'a str {
        self.snapshot.text(self.snapshot.kinds().get(kind).name)
    }

    /// The chosen slots of a topology with the executors in each, by slot.
    pub(crate) fn workers(&self, t: usize, slot_of_exec: &[u32]) -> Vec<(u32, Vec<usize>)> {
        let mut placed: Vec<(u32, usize)> = self.execs_of(t).map(|e| (slot_of_exec[e], e)).filter(|(slot, _)| *slot != abi::NONE).collect();
        placed.sort_unstable();
        placed.chunk_by(|a, b| a.0 == b.0).map(|worker| (worker[0].0, worker.iter().map(|(_, e)| *e).collect())).collect()
    }
}
