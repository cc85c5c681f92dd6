//! Checks of plans: by the rules, and by what a scheduler owes its cluster.

use super::clusters;
use super::rules::{Rule, broken, found};
use super::{Fine, Verdict};
use crate::helper::check::{Bench, ask, fine, plain, plan_for};
use crate::inspect::CLAIM_RESOURCES;
use saetta_sdk::abi;
use saetta_sdk::call::{Instance, RoundArgs};
use saetta_sdk::snapshot::Snapshot;
use saetta_sdk::testing::Cluster;

/// Random clusters of one check.
const RANDOM: u64 = 300;

pub(super) fn survives(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    for (_, cluster) in clusters::all() {
        let _ = ask(&mut instance, plain(), &cluster.pack());
    }
    Ok(Fine::Success)
}

pub(super) fn answers(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    plan_for(&mut instance, "the first round", &clusters::roomy())?;
    plan_for(&mut instance, "the second round", &clusters::roomy())?;
    Ok(Fine::Success)
}

/// A round on every cluster, by one rule or by all.
fn on_all(bench: &mut Bench, rule: Option<Rule>, named: &[(&str, Cluster)], max_moves: u32) -> Verdict {
    let mut instance = bench.start()?;
    for (name, cluster) in named {
        let bytes = cluster.pack();
        let answer = ask(&mut instance, RoundArgs { max_moves, ..plain() }, &bytes).map_err(|e| format!("{name}: it answered {e}"))?;
        if let Some((_, text)) = found(&bench.manifest, &bytes, &answer, max_moves).iter().find(|(r, _)| rule.is_none_or(|rule| rule == *r))
        {
            return Err(format!("{name}: {text}"));
        }
    }
    Ok(Fine::Success)
}

pub(super) fn no_unknown_slot(bench: &mut Bench) -> Verdict {
    on_all(bench, Some(Rule::UnknownSlot), &clusters::all(), abi::NONE)
}

pub(super) fn no_double_slot(bench: &mut Bench) -> Verdict {
    on_all(bench, Some(Rule::DoubleSlot), &clusters::all(), abi::NONE)
}

pub(super) fn only_assignable(bench: &mut Bench) -> Verdict {
    on_all(bench, Some(Rule::Assignable), &clusters::all(), abi::NONE)
}

pub(super) fn only_what_was_asked(bench: &mut Bench) -> Verdict {
    on_all(bench, Some(Rule::Asked), &clusters::all(), abi::NONE)
}

pub(super) fn workers_wanted(bench: &mut Bench) -> Verdict {
    if bench.manifest.has_claim(CLAIM_RESOURCES) {
        return Ok(Fine::Skipped(format!("its manifest claims {CLAIM_RESOURCES}: it chooses the number of workers itself")));
    }
    on_all(bench, Some(Rule::Workers), &clusters::all(), abi::NONE)
}

pub(super) fn frees_nobody(bench: &mut Bench) -> Verdict {
    on_all(bench, Some(Rule::Freed), &clusters::all(), abi::NONE)
}

pub(super) fn outcome_matches(bench: &mut Bench) -> Verdict {
    on_all(bench, Some(Rule::Outcome), &clusters::all(), abi::NONE)
}

pub(super) fn respects_max_moves(bench: &mut Bench) -> Verdict {
    on_all(bench, Some(Rule::Moves), &clusters::all(), 0)
}

pub(super) fn random_clusters(bench: &mut Bench) -> Verdict {
    let named: Vec<(String, Cluster)> = (0..RANDOM).map(|seed| (format!("random cluster {seed}"), clusters::random(seed))).collect();
    let named: Vec<(&str, Cluster)> = named.iter().map(|(name, c)| (name.as_str(), c.clone())).collect();
    on_all(bench, None, &named, abi::NONE)
}

/// A stage that judges nodes leaves placing to the scheduler behind it.
fn places(instance: &Instance) -> Result<(), Fine> {
    match instance.has_extension(abi::EXT_NODE_HEALTH) {
        true => Err(Fine::Skipped(format!("it has {}: it judges nodes, and another scheduler places", abi::EXT_NODE_HEALTH))),
        false => Ok(()),
    }
}

fn all_placed(slots: &[u32]) -> Result<(), String> {
    match slots.iter().filter(|s| **s == abi::NONE).count() {
        0 => Ok(()),
        n => Err(format!("{n} of {} executors have no slot, and there is room", slots.len())),
    }
}

pub(super) fn schedules_what_fits(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    if let Err(skipped) = places(&instance) {
        return Ok(skipped);
    }
    fine(|| {
        all_placed(&plan_for(&mut instance, "roomy", &clusters::roomy())?.slot_of_exec)?;
        all_placed(&plan_for(&mut instance, "busy", &clusters::busy())?.slot_of_exec)
    })
}

pub(super) fn keeps_running(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    let answer = plan_for(&mut instance, "busy", &clusters::busy())?;
    let bytes = clusters::busy().pack();
    let snapshot = Snapshot::new(&bytes).map_err(|e| e.to_string())?;
    let moved =
        snapshot.executors().iter().zip(&answer.slot_of_exec).filter(|(row, slot)| row.slot != abi::NONE && row.slot != **slot).count();
    if moved > 0 { Err(format!("{moved} running executors move because others are new")) } else { Ok(Fine::Success) }
}

pub(super) fn recovers(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    if let Err(skipped) = places(&instance) {
        return Ok(skipped);
    }
    fine(|| {
        let cluster = clusters::roomy();
        let placed = plan_for(&mut instance, "roomy", &cluster)?;
        for node in ["n1", "n2", "n3"] {
            let smaller = cluster.with_slots(&placed.slot_of_exec).without_node(node);
            let again = plan_for(&mut instance, &format!("without {node}"), &smaller)?;
            all_placed(&again.slot_of_exec).map_err(|e| format!("without {node}: {e}"))?;
        }
        Ok(())
    })
}

pub(super) fn idempotent(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    fine(|| {
        let random = (0..60).map(|seed| (format!("random cluster {seed}"), clusters::random(seed)));
        for (name, cluster) in clusters::all().into_iter().map(|(name, c)| (name.to_owned(), c)).chain(random) {
            let first = plan_for(&mut instance, &name, &cluster)?;
            let bytes = cluster.pack();
            let snapshot = Snapshot::new(&bytes).map_err(|e| e.to_string())?;
            if !broken(&snapshot, &first, abi::NONE).is_empty() {
                continue; // other checks say so
            }
            let second = plan_for(&mut instance, &name, &cluster.with_slots(&first.slot_of_exec))?;
            let moved = first.slot_of_exec.iter().zip(&second.slot_of_exec).filter(|(a, b)| a != b).count();
            if moved > 0 {
                return Err(format!("{name}: a second round without a change moves {moved} executors"));
            }
        }
        Ok(())
    })
}

pub(super) fn deterministic(bench: &mut Bench) -> Verdict {
    let mut other = bench.instance()?;
    let mut instance = bench.start()?;
    fine(|| {
        for (name, cluster) in clusters::all() {
            let first = plan_for(&mut instance, name, &cluster)?;
            if first != plan_for(&mut instance, name, &cluster)? {
                return Err(format!("{name}: the same snapshot gives another plan the second time"));
            }
            if first != plan_for(&mut other, name, &cluster)? {
                return Err(format!("{name}: the same snapshot gives another plan in another instance"));
            }
        }
        Ok(())
    })
}

pub(super) fn permuted_names(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    fine(|| {
        for (name, cluster) in clusters::all() {
            let before = plan_for(&mut instance, name, &cluster)?;
            let after = ask(&mut instance, plain(), &clusters::renamed(&cluster.pack()))
                .map_err(|e| format!("{name}: with other names it answers {e}"))?;
            if before != after {
                return Err(format!(
                    "{name}: with other names that sort as before, the plan is another; decide by what things are and their order"
                ));
            }
        }
        Ok(())
    })
}
