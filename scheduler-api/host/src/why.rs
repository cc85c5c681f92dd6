//! Why an executor has no slot, seen from the nodes: `40 nodes: 22 not enough memory, 11 no free slot, 7 would do`. Pure.
//!
//! Before: a round is decided. After: one line for the status, and the numbers behind it. The host's own words: they are there also when
//! the scheduler says nothing, and they say "would do" where the scheduler left a node that fits.

use crate::validate::{View, charged};
use saetta_sdk::abi;
use saetta_sdk::snapshot::{CompId, KindId, NodeId, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Code of a node that would do. 0 is no reason of the ABI.
pub const FITS: u32 = 0;

/// Components of one topology that get a line; the others are counted.
const LINES_MAX: usize = 8;

/// Nodes by what is in the way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// Nodes that report.
    pub nodes: u32,
    /// By `abi::WHY_*` or [`FITS`], most first.
    pub counts: Vec<(u32, u32)>,
    /// Name of the kind that is missing, for `abi::WHY_NO_GENERIC`.
    pub kind: Option<String>,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} node{}", self.nodes, if self.nodes == 1 { "" } else { "s" })?;
        for (i, (code, n)) in self.counts.iter().enumerate() {
            let what = match (*code, &self.kind) {
                (abi::WHY_NO_GENERIC, Some(kind)) => format!("not enough {kind}"),
                (code, _) => in_words(code).to_owned(),
            };
            write!(f, "{} {n} {what}", if i == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

/// The stable word of a reason, for machines.
pub fn word(code: u32) -> &'static str {
    match code {
        FITS => "fits",
        abi::WHY_BEST_SCORE => "placed-best-score",
        abi::WHY_AFFINITY => "placed-affinity",
        abi::WHY_KEPT => "kept",
        abi::WHY_MOVED_REBALANCE => "moved-rebalance",
        abi::WHY_MOVED_NODE_LOST => "moved-node-lost",
        abi::WHY_EVICTED => "evicted",
        abi::WHY_CANDIDATE => "candidate",
        abi::WHY_NO_SLOT => "no-slot",
        abi::WHY_NO_CPU => "no-cpu",
        abi::WHY_NO_MEMORY => "no-memory",
        abi::WHY_NO_HEAP => "no-heap",
        abi::WHY_NO_GENERIC => "no-generic",
        abi::WHY_BLACKLISTED => "blacklisted",
        abi::WHY_INCOMPATIBLE => "constraint-incompatible",
        abi::WHY_COLOCATION => "constraint-colocation",
        abi::WHY_ISOLATION_QUOTA => "isolation-quota",
        abi::WHY_USER_QUOTA => "user-quota",
        abi::WHY_DEADLINE => "deadline",
        abi::WHY_FALLBACK => "fallback",
        abi::WHY_REJECTED => "rejected",
        _ => "other",
    }
}

/// The same for people, of a node.
fn in_words(code: u32) -> &'static str {
    match code {
        FITS => "would do",
        abi::WHY_NO_SLOT => "no free slot",
        abi::WHY_NO_CPU => "not enough CPU",
        abi::WHY_NO_MEMORY => "not enough memory",
        abi::WHY_NO_HEAP => "worker memory limit",
        abi::WHY_NO_GENERIC => "not enough of a resource",
        abi::WHY_BLACKLISTED => "blacklisted",
        abi::WHY_INCOMPATIBLE => "incompatible component",
        abi::WHY_COLOCATION => "co-location limit",
        abi::WHY_ISOLATION_QUOTA => "kept for others",
        code => word(code),
    }
}

/// A decided round, ready to be asked about its executors.
pub struct Decided<'a> {
    view: View<'a>,
    /// Slot of each executor after the round.
    after: &'a [u32],
    resources: bool,
    /// What all topologies take, by node and kind; empty where amounts do not count.
    taken: BTreeMap<u32, Vec<i64>>,
    /// Used slots.
    used: BTreeSet<u32>,
}

impl<'a> Decided<'a> {
    /// `after` has a row of the slot table, or `abi::NONE`, for each executor. `resources` as in `Rules`.
    pub fn new(snapshot: &Snapshot<'a>, after: &'a [u32], resources: bool) -> Self {
        let view = View::new(snapshot);
        let mut taken: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
        for t in (0..view.topologies.len()).filter(|_| resources) {
            for (node, amounts) in charged(snapshot, t, after) {
                let sums = taken.entry(node).or_insert_with(|| vec![0; amounts.len()]);
                sums.iter_mut().zip(amounts).for_each(|(sum, amount)| *sum = sum.saturating_add(amount));
            }
        }
        let used = after.iter().copied().filter(|s| *s != abi::NONE).collect();
        Decided { view, after, resources, taken, used }
    }

    /// What is in the way of one executor, node by node.
    pub fn tally(&self, exec: usize) -> Tally {
        let t = self.view.execs[exec].topology as usize;
        let mut workers: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for e in self.view.execs_of(t).filter(|e| self.after[*e] != abi::NONE) {
            workers.entry(self.after[e]).or_default().push(e);
        }
        let more_workers = self.resources || workers.len() < self.view.topologies[t].workers_wanted as usize;
        let (mut counts, mut tally): (BTreeMap<u32, u32>, _) = (BTreeMap::new(), Tally::default());
        for (node, row) in self.view.snapshot.nodes().iter().enumerate() {
            if row.flags & abi::NODE_GONE != 0 {
                continue;
            }
            tally.nodes += 1;
            let (code, kind) = self.in_the_way(exec, node as u32, &row, &workers, more_workers);
            if let Some(kind) = kind {
                tally.kind.get_or_insert_with(|| self.view.kind(kind).to_owned());
            }
            *counts.entry(code).or_default() += 1;
        }
        tally.counts = counts.into_iter().collect();
        tally.counts.sort_by_key(|(code, n)| (std::cmp::Reverse(*n), *code));
        tally
    }

    /// The first thing in the way on one node, and the kind where it is about one.
    fn in_the_way(
        &self,
        exec: usize,
        node: u32,
        row: &abi::NodeRow,
        workers: &BTreeMap<u32, Vec<usize>>,
        more_workers: bool,
    ) -> (u32, Option<usize>) {
        let view = &self.view;
        let host = view.snapshot.hosts().get(row.host as usize);
        if row.flags & abi::NODE_BLACKLISTED != 0 || host.flags & abi::HOST_BLACKLISTED != 0 {
            return (abi::WHY_BLACKLISTED, None);
        }
        if row.flags & abi::NODE_RESERVED != 0 {
            return (abi::WHY_ISOLATION_QUOTA, None);
        }
        let open = |s: &u32| view.shut[*s as usize].is_none();
        let slots = || row.first_slot..row.first_slot + row.n_slots;
        let own: Vec<u32> = slots().filter(open).filter(|s| workers.contains_key(s)).collect();
        let free = more_workers && slots().filter(open).any(|s| !self.used.contains(&s));
        if own.is_empty() && !free {
            return (abi::WHY_NO_SLOT, None);
        }
        let component = view.execs[exec].component;
        if self.resources {
            let total = view.snapshot.node_total(NodeId(node));
            let taken = self.taken.get(&node);
            for (kind, request) in view.snapshot.request(CompId(component)).iter().enumerate() {
                let left = total.get(KindId(kind as u32)).saturating_sub(taken.map_or(0, |sums| sums[kind]));
                if request > left {
                    return match KindId(kind as u32) {
                        KindId::CPU => (abi::WHY_NO_CPU, None),
                        KindId::MEMORY => (abi::WHY_NO_MEMORY, None),
                        _ => (abi::WHY_NO_GENERIC, Some(kind)),
                    };
                }
            }
        }
        let max = view.components[component as usize].max_colocation;
        let on_node = |e: &&usize| view.execs[**e].component == component;
        let here = || workers.iter().filter(|(slot, _)| view.slots[**slot as usize].node == node);
        if max > 0 && here().flat_map(|(_, execs)| execs).filter(on_node).count() as u32 >= max {
            return (abi::WHY_COLOCATION, None);
        }
        let foes: BTreeSet<u32> = view.snapshot.incompatible_with(CompId(component)).map(|c| c.0).collect();
        let peaceful = |slot: &u32| workers[slot].iter().all(|e| !foes.contains(&view.execs[*e].component));
        if !free && !own.iter().any(peaceful) {
            return (abi::WHY_INCOMPATIBLE, None);
        }
        (FITS, None)
    }

    /// One line for each component of a topology that has executors without a slot.
    pub fn lines(&self, t: usize) -> Vec<String> {
        let mut lacking: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for e in self.view.execs_of(t).filter(|e| self.after[*e] == abi::NONE) {
            lacking.entry(self.view.execs[e].component).or_default().push(e);
        }
        let n = lacking.len();
        let line = |(component, execs): (u32, Vec<usize>)| {
            let more = execs.len() - 1;
            let and = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("`{}` {}{and}: {}", self.view.component(component), self.view.exec(execs[0]), self.tally(execs[0]))
        };
        let mut lines: Vec<String> = lacking.into_iter().take(LINES_MAX).map(line).collect();
        if n > LINES_MAX {
            lines.push(format!("and {} more components", n - LINES_MAX));
        }
        lines
    }

    /// Row of an executor by its topology's id and its first task.
    pub fn find(&self, topology: &str, first_task: u32) -> Option<usize> {
        let t = self.view.topologies.iter().position(|t| self.view.snapshot.text(t.id) == topology)?;
        self.view.execs_of(t).find(|e| self.view.execs[*e].first_task == first_task)
    }
}
