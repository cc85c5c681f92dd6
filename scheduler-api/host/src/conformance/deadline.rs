//! Checks of time: it ends, it looks at `should_stop`, what it leaves then is a plan, and larger clusters do not blow it up.

use super::clusters;
use super::rules::valid;
use super::{Fine, Verdict};
use crate::helper::check::{Bench, ask, plain};
use saetta_sdk::abi;
use saetta_sdk::call::{Instance, RoundArgs};
use std::time::{Duration, Instant};

/// Time to return after `should_stop` says so.
const STOP_MAX: Duration = Duration::from_secs(1);
/// Four times the cluster may take so many times the time: twice what a quadratic algorithm does.
const GROWTH_MAX: f64 = 32.0;
/// A round shorter than this grows as it likes.
const GROWTH_FROM: Duration = Duration::from_millis(20);

pub(super) fn ends(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    let _ = ask(&mut instance, plain(), &clusters::busy().pack());
    Ok(Fine::Success)
}

/// A round whose time is over when it begins.
fn stopped() -> RoundArgs {
    RoundArgs { budget_ns: 0, ..plain() }
}

pub(super) fn should_stop(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    let bytes = clusters::large().pack();
    let started = Instant::now();
    let _ = ask(&mut instance, stopped(), &bytes);
    let took = started.elapsed();
    if took > STOP_MAX {
        return Ok(Fine::Warning(format!("it returned after {} ms; look at should_stop in the outer loop", took.as_millis())));
    }
    Ok(Fine::Success)
}

pub(super) fn partial_result(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    let large = clusters::large();
    for (name, cluster) in clusters::all().iter().chain([&("many nodes", large)]) {
        let bytes = cluster.pack();
        // A code is an answer; a plan that is not valid is none.
        if let Ok(answer) = ask(&mut instance, stopped(), &bytes) {
            valid(&bench.manifest, &bytes, &answer, abi::NONE)
                .map_err(|e| format!("{name}: told to stop, it leaves a plan that is not valid: {e}"))?;
        }
    }
    Ok(Fine::Success)
}

/// The shortest of three rounds.
fn time(instance: &mut Instance, n_nodes: usize, n_topologies: usize) -> Result<Duration, String> {
    let bytes = clusters::sized(n_nodes, n_topologies, 10, 33).pack();
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let started = Instant::now();
        ask(instance, plain(), &bytes).map_err(|e| format!("on {n_nodes} nodes it answered {e}"))?;
        best = best.min(started.elapsed());
    }
    Ok(best)
}

pub(super) fn monotone_cpu(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    let (small, large) = (time(&mut instance, 25, 5)?, time(&mut instance, 100, 20)?);
    let growth = large.as_secs_f64() / small.as_secs_f64().max(1e-6);
    if large > GROWTH_FROM && growth > GROWTH_MAX {
        let (small, large) = (small.as_secs_f64() * 1e3, large.as_secs_f64() * 1e3);
        return Ok(Fine::Warning(format!(
            "25 nodes and 500 executors take {small:.1} ms, four times as much {large:.1} ms, {growth:.0} times as long"
        )));
    }
    Ok(Fine::Success)
}
