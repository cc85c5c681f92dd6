//! What depends on the other topologies: V03, V04, V05, V09, and V10 where slots may be taken away. To a fixed point: a refused topology
//! stays where it is, which may take a slot or memory from one that was accepted before.

use super::demand::charges;
use super::{Refusal, Rules, View};
use crate::process::Answer;
use saetta_sdk::abi;
use saetta_sdk::snapshot::NodeId;
use std::collections::{BTreeMap, BTreeSet};

pub(super) type Verdicts = Vec<Result<(), Refusal>>;

pub(super) fn settle(view: &View<'_>, answer: &Answer, rules: &Rules, mut verdicts: Verdicts) -> Verdicts {
    moves(view, answer, rules, &mut verdicts);
    let n = verdicts.len();
    let slots = &answer.slot_of_exec;
    let used_before: Vec<BTreeSet<u32>> = (0..n).map(|t| view.used(t, None)).collect();
    // A plan that was refused may name slots that do not exist; nobody looks at it any more.
    let of = |t: usize, ok: bool| if ok { view.used(t, Some(slots)) } else { BTreeSet::new() };
    let used_after: Vec<BTreeSet<u32>> = (0..n).map(|t| of(t, verdicts[t].is_ok())).collect();
    let nodes = rules.resources.then(|| Nodes::new(view, slots, &verdicts));
    loop {
        let mut refused = holders(view, &used_before, &used_after, &mut verdicts);
        refused |= rules.may_preempt && preemption(view, slots, &mut verdicts);
        if !refused {
            refused = nodes.as_ref().is_some_and(|nodes| nodes.check(view, &mut verdicts));
        }
        if !refused {
            return verdicts;
        }
    }
}

/// V09: topologies in order, until the moves are spent.
fn moves(view: &View<'_>, answer: &Answer, rules: &Rules, verdicts: &mut Verdicts) {
    if rules.max_moves == abi::NONE {
        return;
    }
    let mut left = rules.max_moves as usize;
    for (t, verdict) in verdicts.iter_mut().enumerate() {
        if verdict.is_err() || view.topologies[t].flags & abi::TOPO_REBALANCE != 0 {
            continue;
        }
        let moved = view.execs_of(t).filter(|e| view.is_moved(*e, answer.slot_of_exec[*e])).count();
        if moved <= left {
            left -= moved;
        } else {
            let why = format!("{moved} of its running executors would move, and {left} of {} moves are left", rules.max_moves);
            *verdict = Err(Refusal::new(9, why));
        }
    }
}

/// V03 and V04: no slot has two users. True = somebody was refused.
fn holders(view: &View<'_>, before: &[BTreeSet<u32>], after: &[BTreeSet<u32>], verdicts: &mut Verdicts) -> bool {
    let mut users: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (t, verdict) in verdicts.iter().enumerate() {
        for slot in if verdict.is_ok() { &after[t] } else { &before[t] } {
            users.entry(*slot).or_default().push(t);
        }
    }
    let mut refused = false;
    for (slot, users) in users.iter().filter(|(_, users)| users.len() > 1) {
        for t in users {
            let newcomer = !before[*t].contains(slot);
            if newcomer && verdicts[*t].is_ok() {
                let held = users.iter().any(|u| before[*u].contains(slot));
                let (rule, why) =
                    if held { (4, "it takes a slot its holder keeps") } else { (3, "it shares a slot with another topology") };
                verdicts[*t] = Err(Refusal::new(rule, format!("{why}, {}", view.slot(*slot))));
                refused = true;
            }
        }
    }
    refused
}

/// V10: running executors lose their slots only where a topology of a better priority gains one. True = somebody was refused.
fn preemption(view: &View<'_>, slots: &[u32], verdicts: &mut Verdicts) -> bool {
    let gains = |t: usize| view.execs_of(t).any(|e| slots[e] != abi::NONE && view.before(e) == abi::NONE);
    let loses = |t: usize| view.execs_of(t).any(|e| slots[e] == abi::NONE && view.is_moved(e, slots[e]));
    let best = (0..verdicts.len()).filter(|t| verdicts[*t].is_ok() && gains(*t)).map(|t| view.topologies[t].priority).min();
    let mut refused = false;
    for (t, verdict) in verdicts.iter_mut().enumerate() {
        let row = &view.topologies[t];
        let justified = best.is_some_and(|best| best < row.priority) || row.flags & abi::TOPO_REBALANCE != 0;
        if verdict.is_ok() && !justified && loses(t) {
            let why =
                format!("its running executors would lose their slots, and no topology of a better priority than {} gains", row.priority);
            *verdict = Err(Refusal::new(10, why));
            refused = true;
        }
    }
    refused
}

/// V05: what each topology takes on each node, before and by the plan.
struct Nodes {
    before: Vec<BTreeMap<u32, Vec<i64>>>,
    after: Vec<BTreeMap<u32, Vec<i64>>>,
}

impl Nodes {
    fn new(view: &View<'_>, slots: &[u32], verdicts: &Verdicts) -> Self {
        let as_it_is: Vec<u32> = view.execs.iter().map(|e| e.slot).collect();
        let before: Vec<_> = (0..verdicts.len()).map(|t| charges(view, t, &as_it_is)).collect();
        let after = verdicts.iter().enumerate().map(|(t, v)| if v.is_ok() { charges(view, t, slots) } else { before[t].clone() }).collect();
        Nodes { before, after }
    }

    /// Refuses the last topology, by priority and row, that adds to a node which then holds too much. True = one was refused.
    fn check(&self, view: &View<'_>, verdicts: &mut Verdicts) -> bool {
        let n_kinds = view.snapshot.kinds().len();
        for node in 0..view.snapshot.nodes().len() as u32 {
            let total: Vec<i64> = view.snapshot.node_total(NodeId(node)).iter().collect();
            for kind in 0..n_kinds {
                let of = |sums: &BTreeMap<u32, Vec<i64>>| sums.get(&node).map_or(0, |sums| sums[kind]);
                let by = |t: usize| of(if verdicts[t].is_ok() { &self.after[t] } else { &self.before[t] });
                let taken = (0..verdicts.len()).map(by).fold(0, i64::saturating_add);
                if taken <= total[kind] {
                    continue;
                }
                let adds = |t: &usize| verdicts[*t].is_ok() && of(&self.after[*t]) > of(&self.before[*t]);
                let Some(last) = (0..verdicts.len()).filter(adds).max_by_key(|t| (view.topologies[*t].priority, *t)) else { continue };
                let (node, kind_name) = (view.node(node), view.kind(kind));
                let why = format!("node {node} would have to give {taken} of {kind_name}, and has {}", total[kind]);
                verdicts[last] = Err(Refusal::new(5, why));
                return true;
            }
        }
        false
    }
}
