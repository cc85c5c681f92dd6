//! Checks of what a plugin calls of its host: from which thread, until when, and whether it looks before it calls.

use super::clusters;
use super::rules::valid;
use super::{Fine, Verdict};
use crate::helper::check::{Bench, ask, fine, plain, plan_for};
use saetta_sdk::abi;
use saetta_sdk::call::{Instance, Services};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a destroyed instance is listened to.
const LISTEN: Duration = Duration::from_millis(200);

pub(super) fn same_thread(bench: &mut Bench) -> Verdict {
    let here = std::thread::current().id();
    let elsewhere = Arc::new(AtomicU32::new(0));
    let count = elsewhere.clone();
    let mut instance = bench.instance_of(move || {
        // Relaxed: a number that is read when the calls are over.
        count.fetch_add(u32::from(std::thread::current().id() != here), Ordering::Relaxed);
    })?;
    for (_, cluster) in clusters::all() {
        let _ = ask(&mut instance, plain(), &cluster.pack());
    }
    drop(instance);
    match elsewhere.load(Ordering::Relaxed) {
        0 => Ok(Fine::Success),
        n => Err(format!("{n} calls of the host came from another thread than the one it was called on")),
    }
}

pub(super) fn none_after_destroy(bench: &mut Bench) -> Verdict {
    let calls = Arc::new(AtomicU32::new(0));
    let count = calls.clone();
    let mut instance = bench.instance_of(move || {
        count.fetch_add(1, Ordering::Relaxed);
    })?;
    let _ = ask(&mut instance, plain(), &clusters::roomy().pack());
    drop(instance);
    let (before, until) = (calls.load(Ordering::Relaxed), Instant::now() + LISTEN);
    while Instant::now() < until {
        let after = calls.load(Ordering::Relaxed);
        if after != before {
            return Err("it calls the host after destroy has returned; destroy must end what still runs".to_owned());
        }
        std::hint::spin_loop();
    }
    Ok(Fine::Success)
}

pub(super) fn without_extensions(bench: &mut Bench) -> Verdict {
    if !bench.manifest.needs.is_empty() {
        return Ok(Fine::Skipped(format!("its manifest needs {}", bench.manifest.needs.join(", "))));
    }
    let mut bare = Instance::builtin(bench.plugin, "{}", Services::new(|_, _| {}))
        .map_err(|e| format!("of a host without extensions it makes no instance: {e}"))?;
    fine(|| {
        for (name, cluster) in clusters::all() {
            let bytes = cluster.pack();
            let answer = plan_for(&mut bare, &format!("{name}, of a host without extensions"), &cluster)?;
            valid(&bench.manifest, &bytes, &answer, abi::NONE).map_err(|e| format!("{name}, of a host without extensions: {e}"))?;
        }
        Ok(())
    })
}
