//! Rounds on recorded clusters, through the C table as a host calls: how long they take, and what the placement is worth.
//!
//! Before: a file of recorded topologies ([`Recorded`]). After: figures for `cargo xtask bench scheduling`, which checks on the way that all is
//! placed, that a second round moves nothing, and that a topology that is taken away and placed again is placed. [`storm`] is what the locality of a
//! placement is compared with.
#![forbid(unsafe_code)]

pub mod storm;

use saetta_sdk::abi;
use saetta_sdk::call::{Builtin, Instance, PlanArrays, RoundArgs, Services};
use saetta_sdk::testing::recorded::Recorded;
use std::time::Instant;

/// A round of a plugin: where executors are, and how long it took.
pub fn round(builtin: Builtin, config: &str, snapshot: &[u8], slot_of_exec: &mut [u32], n_topologies: usize) -> Result<f64, String> {
    let mut instance = Instance::builtin(builtin, config, Services::new(|_, _| ())).map_err(|e| e.to_string())?;
    let mut outcome = vec![abi::OUT_KEEP; n_topologies];
    let args = RoundArgs { reason: abi::REASON_PERIODIC, round_id: 1, seed: 0, max_moves: abi::NONE, flags: 0, budget_ns: 1 << 40 };
    let begin = Instant::now();
    instance.schedule(args, snapshot, PlanArrays { slot_of_exec, outcome: &mut outcome, core_of_exec: None }).map_err(|e| e.to_string())?;
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}

/// A round on an empty cluster: milliseconds, and the placement.
pub fn cold(builtin: Builtin, config: &str, cluster: &Recorded) -> Result<(f64, Vec<u32>), String> {
    let mut placed = cluster.nothing_placed();
    let ms = round(builtin, config, &cluster.pack(&placed), &mut placed, cluster.n_topologies())?;
    let left = placed.iter().filter(|s| **s == abi::NONE).count();
    if left > 0 { Err(format!("{left} of {} executors were not placed", placed.len())) } else { Ok((ms, placed)) }
}

/// A round when nothing has changed: milliseconds, and moves.
pub fn again(builtin: Builtin, config: &str, cluster: &Recorded, placed: &[u32]) -> Result<(f64, usize), String> {
    let mut next = placed.to_vec();
    let ms = round(builtin, config, &cluster.pack(placed), &mut next, cluster.n_topologies())?;
    Ok((ms, placed.iter().zip(&next).filter(|(a, b)| a != b).count()))
}

/// One topology after the other taken away and placed again: milliseconds of each.
pub fn each_again(builtin: Builtin, config: &str, cluster: &Recorded, placed: &[u32]) -> Result<Vec<f64>, String> {
    let one = |t: usize| {
        let mut next = placed.to_vec();
        next[cluster.execs_of(t)].fill(abi::NONE);
        let ms = round(builtin, config, &cluster.pack(&next.clone()), &mut next, cluster.n_topologies())?;
        let left = next.iter().filter(|s| **s == abi::NONE).count();
        if left > 0 { Err(format!("{}: {left} executors were not placed again", cluster.topology(t))) } else { Ok(ms) }
    };
    (0..cluster.n_topologies()).map(one).collect()
}
