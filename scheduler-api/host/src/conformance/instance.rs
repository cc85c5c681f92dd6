//! Checks of a life from create to destroy.

use super::clusters;
use super::{Fine, Verdict};
use crate::helper::check::{Bench, ask, ask_and_forbid, fine, plain, plan_for};
use saetta_sdk::call::{Instance, NO_REASON, RoundArgs, Services};

/// Rounds before memory is looked at first: allocators and caches have settled.
const ROUNDS_BEFORE: u64 = 50;
/// Rounds between two looks.
const ROUNDS: u64 = 300;
/// Growth over `ROUNDS` that is no leak.
const GROWTH_BYTES_MAX: u64 = 2 << 20;

pub(super) fn create_destroy(bench: &mut Bench) -> Verdict {
    for _ in 0..10 {
        drop(bench.instance()?);
    }
    let before = bench.look();
    for _ in 0..100 {
        drop(bench.instance()?);
    }
    let (Some(before), Some(after)) = (before, bench.look()) else { return Ok(Fine::Skipped("this system does not tell".to_owned())) };
    if after.threads > before.threads {
        return Err(format!("100 instances left {} threads behind", after.threads - before.threads));
    }
    match after.memory_bytes.saturating_sub(before.memory_bytes) {
        grown if grown > GROWTH_BYTES_MAX => Err(format!("100 instances left {} KiB behind", grown >> 10)),
        _ => Ok(Fine::Success),
    }
}

pub(super) fn odd_config(bench: &mut Bench) -> Verdict {
    let long = format!("{{\"x\":\"{}\"}}", "y".repeat(100_000));
    for config in ["", "[", "null", "{\"no.such.key\":1}", "{\"x\":1e999}", "\u{0}", &long] {
        let shown: String = config.chars().take(20).collect();
        match Instance::builtin(bench.plugin, config, Services::new(|_, _| {})) {
            Ok(instance) => drop(instance),
            Err(e) if e.text == NO_REASON => {
                return Err(format!("it refuses the configuration {shown:?} without a word; say what is wrong with it"));
            }
            Err(_) => {}
        }
    }
    Ok(Fine::Success)
}

pub(super) fn no_leak(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    let snapshot = clusters::busy().pack();
    let mut rounds = |n: u64| {
        (0..n)
            .try_for_each(|i| ask(&mut instance, RoundArgs { round_id: i, ..plain() }, &snapshot).map(drop))
            .map_err(|e| format!("it answered {e}"))
    };
    rounds(ROUNDS_BEFORE)?;
    let before = bench.look();
    rounds(ROUNDS)?;
    let (Some(before), Some(after)) = (before, bench.look()) else { return Ok(Fine::Skipped("this system does not tell".to_owned())) };
    match after.memory_bytes.saturating_sub(before.memory_bytes) {
        grown if grown > GROWTH_BYTES_MAX => Err(format!("memory grew by {} KiB in {ROUNDS} rounds", grown >> 10)),
        _ => Ok(Fine::Success),
    }
}

pub(super) fn no_snapshot_kept(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    fine(|| {
        let before = plan_for(&mut instance, "the first round", &clusters::roomy())?;
        for cluster in [clusters::busy(), clusters::roomy(), clusters::busy()] {
            ask_and_forbid(&mut instance, plain(), &cluster.pack()).map_err(|e| format!("it answered {e}"))?;
        }
        let after = plan_for(&mut instance, "the last round", &clusters::roomy())?;
        if before != after { Err("the same snapshot gives another plan after others were seen".to_owned()) } else { Ok(()) }
    })
}
