//! Checks of a life from create to destroy.

use super::clusters;
use super::rules::valid;
use super::{Fine, Verdict};
use crate::helper::check::{Bench, ask, ask_and_forbid, fine, plain, plan_for};
use saetta_sdk::abi;
use saetta_sdk::call::{Instance, NO_REASON, RoundArgs, Services};
use serde_json::{Value, json};

/// Rounds before memory is looked at first: allocators and caches have settled.
const ROUNDS_BEFORE: u64 = 50;
/// Rounds between two looks.
const ROUNDS: u64 = 300;
/// Configurations made at random.
const CONFIGS: u64 = 300;
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

/// Configurations of one key that is right but for its value, and of bytes changed at random; the same for the same plugin.
fn odd_configs(effective: &str) -> Vec<String> {
    let odd: [Value; 12] = [
        Value::Null,
        json!(true),
        json!(-1),
        json!(0),
        json!(0.5),
        json!(1e308),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(""),
        json!("\u{0}\u{10ffff}"),
        json!([[[]]]),
        json!({"": {"": -1}}),
    ];
    let known: Value = serde_json::from_str(effective).unwrap_or(Value::Null);
    // One that nobody knows, and those in force.
    let keys: Vec<&str> = std::iter::once("x").chain(known.as_object().into_iter().flat_map(|o| o.keys().map(String::as_str))).collect();
    let mut configs: Vec<String> = keys.iter().flat_map(|key| odd.iter().map(move |value| json!({*key: value}).to_string())).collect();
    let mut numbers = clusters::Numbers::new(1);
    let seeds: Vec<String> = std::iter::once(effective.to_owned()).chain(configs.iter().cloned()).collect();
    for _ in 0..CONFIGS {
        let mut bytes = seeds[numbers.below(seeds.len() as u64) as usize].clone().into_bytes();
        for _ in 0..=numbers.below(3) {
            let at = numbers.below(bytes.len() as u64 + 1) as usize;
            match numbers.below(3) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, b' ' + numbers.below(95) as u8),
                _ => bytes.extend_from_within(at..),
            }
        }
        configs.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    configs
}

pub(super) fn config_fuzz(bench: &mut Bench) -> Verdict {
    let effective = match bench.instance()?.config() {
        Some(Ok((_, effective))) => effective,
        Some(Err(e)) => return Err(format!("asked for its configuration it answers {e}")),
        None => "{}".to_owned(),
    };
    let bytes = clusters::roomy().pack();
    for config in odd_configs(&effective) {
        let shown: String = config.chars().take(60).collect();
        let mut instance = match Instance::builtin(bench.plugin, &config, Services::new(|_, _| {})) {
            Ok(instance) => instance,
            Err(e) if e.text == NO_REASON => {
                return Err(format!("it refuses the configuration {shown:?} without a word; say what is wrong with it"));
            }
            Err(_) => continue,
        };
        let answer = ask(&mut instance, plain(), &bytes).map_err(|e| format!("it takes the configuration {shown:?} and answers {e}"))?;
        valid(&bench.manifest, &bytes, &answer, abi::NONE).map_err(|e| format!("it takes the configuration {shown:?}, and {e}"))?;
    }
    Ok(Fine::Success)
}

pub(super) fn destroy_after_error(bench: &mut Bench) -> Verdict {
    let refused = clusters::refused();
    for _ in 0..3 {
        let mut instance = bench.instance()?;
        for _ in 0..2 {
            let _ = ask(&mut instance, plain(), &refused);
        }
        drop(instance);
    }
    let mut instance = bench.start()?;
    plan_for(&mut instance, "a round after others ended in an error", &clusters::roomy())?;
    Ok(Fine::Success)
}

pub(super) fn poisoned(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    for seed in 0..ROUNDS {
        let Err(first) = ask(&mut instance, plain(), &clusters::random(seed).pack()) else { continue };
        if first.code != abi::E_PANIC {
            continue;
        }
        return match ask(&mut instance, plain(), &clusters::roomy().pack()) {
            Err(e) if e.code == abi::E_PANIC => Ok(Fine::Success),
            _ => Err("after a panic it answers again; its state may be half changed, so every later call must answer E_PANIC".to_owned()),
        };
    }
    Ok(Fine::Success)
}
