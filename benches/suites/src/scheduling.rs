//! `scheduling`: rounds of the schedulers on recorded clusters, one thread, through the C table; and what the placement costs in distance.
//!
//! Before: the recorded clusters lie beside the repository, in `../shared/data/scheduling`, or where `SAETTA_RECORDED` says; a smoke run makes a
//! small one itself. After: every round was checked: all placed, nothing moved where nothing had changed. Storm's placement is the floor
//! of resource-aware's. The other schedulers are timed by `saetta scheduler bench --cluster`, which anybody can repeat.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use saetta_harness::suite::{Figures, SuiteRun};
use saetta_harness::{Better, Result, RowSpec};
use saetta_resource_aware::BUILTIN as RESOURCE_AWARE;
use saetta_scheduling::{again, cold, each_again, storm};
use saetta_sdk::snapshot::Snapshot;
use saetta_sdk::testing::recorded::Recorded;
use serde_json::{Value, json};

use crate::release;

/// File, what it is called, and the targets in milliseconds: a cold round, the median topology placed again, the slowest.
pub(crate) const CLUSTERS: [(&str, &str, [f64; 3]); 2] =
    [("largeCluster01.json", "1312 nodes", [100.0, 5.0, 20.0]), ("largeCluster03.json", "80 nodes", [20.0, 5.0, 20.0])];
/// Locality cost over Storm's.
const COST: f64 = 0.95;
/// Any round of even, milliseconds.
const EVEN_MS: f64 = 20.0;
/// What the way to the helper and back may take, milliseconds.
const HELPER_MS: f64 = 3.0;
/// Every scheduler that is shipped.
const SCHEDULERS: [&str; 6] = ["even", "round-robin", "isolation", "multitenant", "resource-aware", "latency-aware"];

/// The recorded cluster of this file; in a smoke run a small one, so that it asks for nothing beside the repository.
pub(crate) fn path_of(file: &str, smoke: Option<&Path>) -> Result<PathBuf> {
    let Some(dir) = smoke else {
        let dir = std::env::var_os("SAETTA_RECORDED").map_or_else(|| PathBuf::from("../shared/data/scheduling"), PathBuf::from);
        let path = dir.join(file);
        return match path.is_file() {
            true => Ok(path),
            false => Err(format!("{} is no file; say with SAETTA_RECORDED where recorded clusters are", path.display()).into()),
        };
    };
    let component = |id: &str, kind: &str, tasks: u32, from: Option<&str>| {
        let inputs: Vec<Value> = from.iter().map(|f| json!({"from": f, "stream": "default", "grouping": "shuffle"})).collect();
        json!({"id": id, "kind": kind, "executors": tasks, "tasks": tasks, "cpu_percent": 20.0, "onheap_mb": 128.0, "inputs": inputs})
    };
    let components = [component("a", "spout", 2, None), component("b", "bolt", 4, Some("a")), component("c", "bolt", 2, Some("b"))];
    let topology = |n: u32| json!({"id": format!("t{n}"), "workers": 2, "ackers": 2, "max_heap_mb": 768.0, "components": components});
    let cluster = json!({
        "supervisors": [{"rack": "r", "count": 8, "slots": 4, "cpu_percent": 400.0, "memory_mb": 8192.0}],
        "topologies": (0..6).map(topology).collect::<Vec<_>>(),
    });
    let path = dir.join(file);
    std::fs::write(&path, cluster.to_string())?;
    Ok(path)
}

/// `saetta scheduler bench` on a cluster's file: figures of each of these schedulers.
fn bench(file: &Path, schedulers: &[&str], in_process: bool) -> Result<Vec<Value>> {
    let program = saetta_e2e::binary("saetta");
    let mut command = Command::new(&program);
    command.args(["scheduler", "bench", "-o", "ndjson", "--cluster"]).arg(file);
    command.args(in_process.then_some("--in-process"));
    for scheduler in schedulers {
        command.args(["--plugin", scheduler]);
    }
    let done = command.output()?;
    if !done.status.success() {
        return Err(format!("saetta scheduler bench: {}", String::from_utf8_lossy(&done.stderr)).into());
    }
    Ok(String::from_utf8(done.stdout)?.lines().map(serde_json::from_str).collect::<std::result::Result<_, _>>()?)
}

fn number(rung: &Value, key: &str) -> Result<f64> {
    rung[key].as_f64().ok_or_else(|| format!("saetta scheduler bench says no {key}").into())
}

fn rung_of_even(file: &Path, in_process: bool) -> Result<Value> {
    let rung = bench(file, &["even"], in_process)?.pop().ok_or("saetta scheduler bench says nothing")?;
    if rung["scheduled"] == rung["executors"] {
        Ok(rung)
    } else {
        Err(format!("even placed {} of {} executors", rung["scheduled"], rung["executors"]).into())
    }
}

pub(crate) fn declare(run: &mut SuiteRun<'_>) -> Result<()> {
    release::build()?;
    let small = run.options().smoke.then(tempfile::tempdir).transpose()?.map(Arc::new);
    for (file, name, targets) in CLUSTERS {
        let path = path_of(file, small.as_ref().map(|dir| dir.path()))?;
        resource_aware(run, &path, name, targets)?;
        let (even, every) = (format!("even, {name}"), format!("every scheduler, {name}"));
        // The small cluster's folder lives as long as the cases.
        let (file, folder) = (path.clone(), small.clone());
        run.case(&even, move |_| {
            let _folder = &folder;
            let (here, apart) = (rung_of_even(&file, true)?, rung_of_even(&file, false)?);
            let more_ms = number(&apart, "again_ms")? - number(&here, "again_ms")?;
            let (cold_ms, largest_ms) = (number(&here, "cold_ms")?, number(&here, "one_max_ms")?);
            Ok(Figures::from([("cold_ms", cold_ms), ("largest_ms", largest_ms), ("more_ms", more_ms)]))
        });
        run.case(&every, move |_| {
            let moves = bench(&path, &SCHEDULERS, false)?.iter().map(|r| number(r, "again_moves")).sum::<Result<f64>>()?;
            Ok(Figures::from([("moves", moves)]))
        });
        let row = |what: &str, unit, case: &str, figure| RowSpec::new(&format!("{what}, {name}"), unit, Better::Lower, case, figure);
        run.row(row("even: cold", "ms", &even, "cold_ms").target(EVEN_MS));
        run.row(row("even: one topology again, slowest", "ms", &even, "largest_ms").target(EVEN_MS));
        run.row(row("even: what the way to the helper and back adds to a round", "ms", &even, "more_ms").target(HELPER_MS));
        run.row(row("moves where nothing has changed, every scheduler", "executors", &every, "moves").target(0.0));
    }
    Ok(())
}

fn resource_aware(run: &mut SuiteRun<'_>, path: &Path, name: &str, [cold_ms, median_ms, largest_ms]: [f64; 3]) -> Result<()> {
    let cluster = Arc::new(Recorded::parse(&std::fs::read_to_string(path)?)?);
    let (ours, reference) = (format!("resource-aware, {name}"), format!("Storm's placement, {name}"));
    let of = cluster.clone();
    run.case(&ours, move |_| {
        let (cold_ms, placed) = cold(RESOURCE_AWARE, "{}", &of)?;
        let (_, moves) = again(RESOURCE_AWARE, "{}", &of, &placed)?;
        if moves > 0 {
            return Err(format!("{moves} executors moved in a second round without change").into());
        }
        let mut each = each_again(RESOURCE_AWARE, "{}", &of, &placed)?;
        each.sort_by(f64::total_cmp);
        let (median, largest) = (each[each.len() / 2], each[each.len() - 1]);
        Ok(Figures::from([("cold_ms", cold_ms), ("median_ms", median), ("largest_ms", largest), ("cost", of.cost(&placed))]))
    });
    run.case(&reference, move |_| {
        let bytes = cluster.pack(&cluster.nothing_placed());
        let snapshot = Snapshot::new(&bytes).map_err(|e| e.to_string())?;
        Ok(Figures::from([("cost", cluster.cost(&storm::place(&snapshot)))]))
    });
    let row =
        |what: &str, unit, figure| RowSpec::new(&format!("resource-aware: {what}, {name}"), unit, Better::Lower, ours.clone(), figure);
    run.row(row("cold", "ms", "cold_ms").target(cold_ms));
    run.row(row("one topology again, median", "ms", "median_ms").target(median_ms));
    run.row(row("one topology again, slowest", "ms", "largest_ms").target(largest_ms));
    run.row(row("locality cost over Storm's", "pairs", "cost").over(reference, "cost", 1.0).target(COST));
    Ok(())
}
