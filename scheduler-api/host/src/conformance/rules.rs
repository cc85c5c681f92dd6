//! The rules of a plan, on a snapshot alone.
//!
//! Before: a plugin answered. After: the rules it broke, with numbers. Nimbus's own validator (`crate::validate`) works on what nimbus
//! packed; this one says the same of clusters written down for a check, and names the check that is about a rule.

use crate::helper::check::Answer;
use crate::inspect::{CLAIM_RESOURCES, Manifest};
use saetta_sdk::abi;
use saetta_sdk::snapshot::{CoreId, SlotId, Snapshot, TopoId};
use std::collections::{BTreeMap, BTreeSet};

/// A rule, named as the check that is about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    UnknownSlot,
    DoubleSlot,
    Assignable,
    Asked,
    Workers,
    Outcome,
    Moves,
    Freed,
}

/// What is broken of what this plugin says it keeps: with its own number of workers where it claims that. Panics for bytes that are no snapshot.
pub(super) fn found(manifest: &Manifest, bytes: &[u8], answer: &Answer, max_moves: u32) -> Vec<(Rule, String)> {
    let mut found = broken(&Snapshot::new(bytes).expect("the caller made it"), answer, max_moves);
    let own_workers = manifest.has_claim(CLAIM_RESOURCES);
    found.retain(|(rule, _)| *rule != Rule::Workers || !own_workers);
    found
}

/// The first of them.
pub(super) fn valid(manifest: &Manifest, bytes: &[u8], answer: &Answer, max_moves: u32) -> Result<(), String> {
    found(manifest, bytes, answer, max_moves).into_iter().next().map_or(Ok(()), |(_, text)| Err(text))
}

/// What is broken. Empty = a valid plan.
pub(super) fn broken(snapshot: &Snapshot<'_>, answer: &Answer, max_moves: u32) -> Vec<(Rule, String)> {
    let mut found = Vec::new();
    let slots = snapshot.slots();
    let text = |slot: u32| {
        let row = slots.at(SlotId(slot));
        format!("{}:{}", snapshot.text(snapshot.nodes().get(row.node as usize).id), row.port)
    };
    let mut moved = 0;
    let mut holders: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (t, topology) in snapshot.topologies().with_ids() {
        let name = snapshot.text(topology.name).to_owned();
        let (mut changed, mut unplaced, mut known) = (0, 0, true);
        let (mut used, mut used_before) = (BTreeSet::new(), BTreeSet::new());
        for (e, row) in snapshot.executors_of(&topology) {
            let slot = answer.slot_of_exec[e.index()];
            changed += usize::from(slot != row.slot);
            moved += u32::from(row.slot != abi::NONE && slot != row.slot);
            used_before.extend(SlotId::some(row.slot));
            let Some(id) = SlotId::some(slot) else {
                unplaced += 1;
                if row.slot != abi::NONE {
                    found.push((
                        Rule::Freed,
                        format!("executor {} of {name} loses its slot {}, and nothing may be preempted", e.0, text(row.slot)),
                    ));
                }
                continue;
            };
            if id.index() >= slots.len() {
                found.push((Rule::UnknownSlot, format!("executor {} of {name} is in slot {slot}, and there are {}", e.0, slots.len())));
                known = false;
                continue;
            }
            used.insert(id);
            holders.entry(slot).or_default().insert(t.0);
            if slot != row.slot && slots.at(id).flags & abi::SLOT_ASSIGNABLE == 0 {
                found.push((Rule::Assignable, format!("executor {} of {name} is put into {}, which takes nothing new", e.0, text(slot))));
            }
            let core = answer.core_of_exec[e.index()];
            if CoreId::some(core).is_some_and(|c| !snapshot.cores_of(id).any(|of| of == c)) {
                found.push((Rule::UnknownSlot, format!("executor {} of {name} is on core {core}, which is none of {}", e.0, text(slot))));
            }
        }
        if !known {
            continue;
        }
        let outcome = answer.outcome[t.index()];
        let n = topology.n_execs as usize;
        if changed > 0 && topology.flags & abi::TOPO_SCHEDULE == 0 {
            found.push((Rule::Asked, format!("{name} was not asked about, and {changed} of its executors were moved")));
            continue;
        }
        if used.len() > topology.workers_wanted as usize && used.len() > used_before.len() {
            found.push((Rule::Workers, format!("{name} uses {} slots and wants {} workers", used.len(), topology.workers_wanted)));
        }
        let wrong = match outcome {
            abi::OUT_KEEP if changed > 0 => Some(format!("keep, and {changed} executors were moved")),
            abi::OUT_SCHEDULED if unplaced > 0 => Some(format!("scheduled, and {unplaced} of {n} executors have no slot")),
            abi::OUT_PARTIAL if unplaced == 0 => Some("partial, and every executor has a slot".to_owned()),
            abi::OUT_UNSCHEDULABLE if n > 0 && unplaced == 0 => Some("unschedulable, and every executor has a slot".to_owned()),
            abi::OUT_KEEP
            | abi::OUT_SCHEDULED
            | abi::OUT_PARTIAL
            | abi::OUT_UNSCHEDULABLE
            | abi::OUT_WAITING
            | abi::OUT_INVALID_TOPOLOGY => None,
            other => Some(format!("{other}, which is no outcome")),
        };
        found.extend(wrong.map(|wrong| (Rule::Outcome, format!("the outcome of {name} is {wrong}"))));
    }
    for (slot, topologies) in holders.iter().filter(|(_, t)| t.len() > 1) {
        let names: Vec<&str> = topologies.iter().map(|t| snapshot.text(snapshot.topologies().at(TopoId(*t)).name)).collect();
        found.push((Rule::DoubleSlot, format!("{} holds executors of {}", text(*slot), names.join(" and of "))));
    }
    if moved > max_moves {
        found.push((Rule::Moves, format!("{moved} running executors move, and {max_moves} may")));
    }
    found
}
