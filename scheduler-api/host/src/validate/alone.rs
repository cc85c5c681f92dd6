//! What can be said of one topology's part of a plan without the others: V01, V02, V06, V07, V08, V10, V11, V13.

use super::demand::heap;
use super::{Refusal, Rules, View};
use crate::process::Answer;
use saetta_sdk::abi;
use saetta_sdk::snapshot::{CompId, CoreId, SlotId};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(view: &View<'_>, answer: &Answer, rules: &Rules, t: usize) -> Result<(), Refusal> {
    let (topology, slots, outcome) = (&view.topologies[t], &answer.slot_of_exec, answer.outcome[t]);
    let (mut changed, mut unplaced, mut freed) = (0u32, 0u32, None);
    for e in view.execs_of(t) {
        let (slot, before) = (slots[e], view.before(e));
        changed += u32::from(slot != before);
        if slot == abi::NONE {
            unplaced += 1;
            freed = freed.or(view.is_moved(e, slot).then_some(e));
            continue;
        }
        match view.shut.get(slot as usize) {
            None => {
                let why = format!("executor {} is in slot {slot}, and there are {}", view.exec(e), view.slots.len());
                return Err(Refusal::new(1, why));
            }
            Some(Some(why)) if slot != before => {
                return Err(Refusal::new(2, format!("executor {} is put into {}, {why}", view.exec(e), view.slot(slot))));
            }
            _ => {}
        }
    }
    if changed > 0 && topology.flags & abi::TOPO_SCHEDULE == 0 {
        return Err(Refusal::new(10, "it was not asked for, and its executors were moved"));
    }
    if changed > 0 && outcome == abi::OUT_KEEP {
        return Err(Refusal::new(11, format!("{changed} of its executors were moved, and its outcome says that nothing was decided")));
    }
    if unplaced > 0 && outcome == abi::OUT_SCHEDULED {
        return Err(Refusal::new(11, format!("its outcome says scheduled, and {unplaced} of its executors have no slot")));
    }
    let (used, used_before) = (view.used(t, Some(slots)).len(), view.used(t, None).len());
    if !rules.resources && used > topology.workers_wanted as usize && used > used_before {
        return Err(Refusal::new(8, format!("it uses {used} slots, and {} workers are wanted", topology.workers_wanted)));
    }
    if let Some(e) = freed.filter(|_| !rules.may_preempt && topology.flags & abi::TOPO_REBALANCE == 0) {
        let why = format!("executor {} runs and would lose its slot; scheduler.may.preempt = true allows that", view.exec(e));
        return Err(Refusal::new(10, why));
    }
    for (slot, execs) in changed_workers(view, slots, t).filter(|_| rules.resources && topology.max_worker_heap > 0) {
        let heap = heap(view, &execs);
        if heap > topology.max_worker_heap {
            let why = format!("the worker in {} needs {heap} bytes of heap, and {} are allowed", view.slot(slot), topology.max_worker_heap);
            return Err(Refusal::new(6, why));
        }
    }
    if rules.constraints {
        constraints(view, slots, t)?;
    }
    cores(view, answer, t)
}

/// Workers that get something new: what was so before the round is not this plan's doing.
fn changed_workers(view: &View<'_>, slots: &[u32], t: usize) -> impl Iterator<Item = (u32, Vec<usize>)> {
    view.workers(t, slots).into_iter().filter(|(slot, execs)| execs.iter().any(|e| view.before(*e) != *slot))
}

/// V07: what a topology asks for of its workers and nodes.
pub(super) fn constraints(view: &View<'_>, slots: &[u32], t: usize) -> Result<(), Refusal> {
    for (slot, execs) in changed_workers(view, slots, t) {
        worker(view, &view.topologies[t], slot, &execs)?;
    }
    colocation(view, slots, t)
}

fn worker(view: &View<'_>, topology: &abi::TopologyRow, slot: u32, execs: &[usize]) -> Result<(), Refusal> {
    let comps: BTreeSet<u32> = execs.iter().map(|e| view.execs[*e].component).collect();
    for c in &comps {
        if let Some(other) = view.snapshot.incompatible_with(CompId(*c)).find(|other| comps.contains(&other.0)) {
            let (a, b) = (view.component(*c), view.component(other.0));
            return Err(Refusal::new(7, format!("`{a}` and `{b}` may not share a worker, and do in {}", view.slot(slot))));
        }
    }
    // Ackers go with the others and count as nobody.
    let own = |c: &&u32| matches!(view.components[**c as usize].kind, abi::KIND_SPOUT | abi::KIND_BOLT);
    let n_comps = comps.iter().filter(own).count();
    let n_execs = execs.iter().filter(|e| own(&&view.execs[**e].component)).count();
    if topology.flags & abi::TOPO_ONE_EXEC_PER_WORKER != 0 && n_execs > 1 {
        return Err(Refusal::new(7, format!("it asks for one executor in a worker, and {n_execs} are in {}", view.slot(slot))));
    }
    if topology.flags & abi::TOPO_ONE_COMP_PER_WORKER != 0 && n_comps > 1 {
        return Err(Refusal::new(7, format!("it asks for one component in a worker, and {n_comps} are in {}", view.slot(slot))));
    }
    Ok(())
}

/// Most executors of a component on one node.
fn colocation(view: &View<'_>, slots: &[u32], t: usize) -> Result<(), Refusal> {
    let mut counts: BTreeMap<(u32, u32), (u32, u32)> = BTreeMap::new();
    for e in view.execs_of(t) {
        let component = view.execs[e].component;
        if view.components[component as usize].max_colocation == 0 {
            continue;
        }
        let node = |slot: u32| view.slots.get(slot as usize).map(|s| s.node);
        if let Some(node) = node(slots[e]) {
            counts.entry((component, node)).or_default().0 += 1;
        }
        if let Some(node) = node(view.before(e)) {
            counts.entry((component, node)).or_default().1 += 1;
        }
    }
    for ((component, node), (after, before)) in counts {
        let max = view.components[component as usize].max_colocation;
        if after > max && after > before {
            let (component, node) = (view.component(component), view.node(node));
            return Err(Refusal::new(7, format!("{after} executors of `{component}` are on {node}, and at most {max} may be")));
        }
    }
    Ok(())
}

/// A chosen core is one of the cores of the chosen slot.
fn cores(view: &View<'_>, answer: &Answer, t: usize) -> Result<(), Refusal> {
    if answer.core_of_exec.is_empty() || answer.outcome[t] == abi::OUT_KEEP {
        return Ok(());
    }
    for e in view.execs_of(t) {
        let (core, slot) = (answer.core_of_exec[e], answer.slot_of_exec[e]);
        if core == abi::NONE {
            continue;
        }
        if slot == abi::NONE {
            return Err(Refusal::new(13, format!("executor {} has a core and no slot", view.exec(e))));
        }
        if !view.snapshot.cores_of(SlotId(slot)).any(|c| c == CoreId(core)) {
            let why = format!("executor {} is put on core row {core}, which {} does not have", view.exec(e), view.slot(slot));
            return Err(Refusal::new(13, why));
        }
    }
    Ok(())
}
