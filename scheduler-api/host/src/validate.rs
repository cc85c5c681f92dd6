//! The plan as facts: every value a plugin wrote is hostile until it passed here.
//!
//! Before: a private copy of the plugin's answer. After: for each topology, accepted or the rule it breaks. One bad
//! topology does not discard the rest. Pure; O(executors + slots) per pass, and a pass rejects at least one topology.
//! Rules as numbered in the ABI's study: V01 values exist, V02 slots are assignable (what stays may stay), V03 one topology
//! per slot, V04 a slot taken from another was really given up, V08 no more slots than workers wanted (what was used before
//! may stay used), V11 the outcome matches the facts, V13 a core is one of the slot's.

use crate::pack::Packed;
use crate::process::Answer;
use saetta_sdk::abi;
use std::collections::{BTreeMap, BTreeSet};

/// Checks an answer: one verdict per row of `packed.topologies`, `Err` says the rule and the numbers.
pub fn validate(packed: &Packed, answer: &Answer) -> Vec<Result<(), String>> {
    let Answer { slot_of_exec, outcome, core_of_exec } = answer;
    let n = packed.topologies.len();
    if slot_of_exec.len() != packed.executors.len() || core_of_exec.len() != slot_of_exec.len() || outcome.len() != n {
        let why = format!(
            "V01: the plan has {} executors and {} topologies, the round {} and {n}",
            slot_of_exec.len(),
            outcome.len(),
            packed.executors.len()
        );
        return vec![Err(why); n];
    }
    let mut verdicts: Vec<Result<(), String>> = (0..n).map(|t| check_alone(packed, answer, outcome[t], t)).collect();

    // V03 and V04 to a fixed point: a rejected topology stays where it is, which may take a slot from one accepted before.
    let used = |t: usize, accepted: bool| -> BTreeSet<u32> {
        let from = if accepted { slot_of_exec } else { &packed.slot_of_exec };
        packed.topologies[t].executors.clone().map(|e| from[e]).filter(|s| *s != abi::NONE).collect()
    };
    loop {
        let mut users: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (t, verdict) in verdicts.iter().enumerate() {
            for slot in used(t, verdict.is_ok()) {
                users.entry(slot).or_default().push(t);
            }
        }
        let mut rejected = false;
        for (slot, users) in users.iter().filter(|(_, users)| users.len() > 1) {
            for t in users {
                let newcomer = !used(*t, false).contains(slot);
                if newcomer && verdicts[*t].is_ok() {
                    let held = users.iter().any(|u| used(*u, false).contains(slot));
                    let why = if held { "V04: it takes a slot its holder keeps" } else { "V03: it shares a slot with another topology" };
                    verdicts[*t] = Err(format!("{why}, {}", slot_text(packed, *slot)));
                    rejected = true;
                }
            }
        }
        if !rejected {
            return verdicts;
        }
    }
}

/// What can be said of one topology without the others.
fn check_alone(packed: &Packed, answer: &Answer, outcome: u32, t: usize) -> Result<(), String> {
    let topology = &packed.topologies[t];
    let (mut used, mut used_before) = (BTreeSet::new(), BTreeSet::new());
    let (mut changed, mut unplaced) = (0, 0);
    for e in topology.executors.clone() {
        let (slot, before, core) = (answer.slot_of_exec[e], packed.slot_of_exec[e], answer.core_of_exec[e]);
        used_before.extend(Some(before).filter(|s| *s != abi::NONE));
        changed += u32::from(slot != before);
        if slot == abi::NONE {
            unplaced += 1;
            continue;
        }
        let Some(row) = packed.slots.get(slot as usize) else {
            return Err(format!("V01: executor {} is in slot {slot}, and there are {}", packed.executors[e], packed.slots.len()));
        };
        if !row.assignable && slot != before {
            return Err(format!("V02: executor {} is put into {}, whose supervisor is gone", packed.executors[e], slot_text(packed, slot)));
        }
        if core != abi::NONE && outcome != abi::OUT_KEEP && !row.cores.contains(&core) {
            return Err(format!(
                "V13: executor {} is put on core row {core}, which {} does not have",
                packed.executors[e],
                slot_text(packed, slot)
            ));
        }
        used.insert(slot);
    }
    if changed > 0 && !topology.schedule {
        return Err("V10: it was not asked for, and its executors were moved".to_owned());
    }
    if changed > 0 && outcome == abi::OUT_KEEP {
        return Err(format!("V11: {changed} of its executors were moved, and its outcome says that nothing was decided"));
    }
    if unplaced > 0 && outcome == abi::OUT_SCHEDULED {
        return Err(format!("V11: its outcome says scheduled, and {unplaced} of its executors have no slot"));
    }
    if used.len() > topology.workers_wanted as usize && used.len() > used_before.len() {
        return Err(format!("V08: it uses {} slots, and {} workers are wanted", used.len(), topology.workers_wanted));
    }
    Ok(())
}

fn slot_text(packed: &Packed, slot: u32) -> String {
    packed.slots.get(slot as usize).map_or_else(|| format!("slot {slot}"), |s| format!("{}:{}", s.id.node, s.id.port))
}
