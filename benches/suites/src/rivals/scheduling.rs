//! Storm's resource-aware scheduler, its own classes called, beside ours: a cold round on the clusters of the suite `scheduling`.
//!
//! Before: a recorded cluster's file. After: milliseconds of the round alone, and how many executors it placed. Storm's runs in a JVM that has
//! warmed up by the same round; ours is warm after the first. What placements are worth is told by the suite `scheduling`.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use saetta_harness::suite::{Figures, Measured, SuiteRun};
use saetta_harness::{Better, HostClass, Result, RowSpec};
use saetta_resource_aware::BUILTIN as RESOURCE_AWARE;
use saetta_scheduling::cold;
use saetta_sdk::testing::recorded::Recorded;
use serde_json::json;

use super::Common;
use super::process::{self, Order};
use super::programs::Built;
use crate::scheduling::{CLUSTERS, path_of};

/// Longest round that is waited for: Storm's own bound is a minute for each topology.
const ROUND_MS_MAX: u64 = 900_000;

/// Cases and rows; nothing but a note where the recorded clusters are not.
pub(super) fn declare(run: &mut SuiteRun<'_>, common: &Rc<Common>, storm: &Built) -> Result<()> {
    for (file, name, _) in CLUSTERS {
        let small = run.options().smoke.then(|| common.dir.path());
        let path = match path_of(file, small) {
            Ok(path) => path,
            Err(error) => {
                common.notes.add(format!("scheduling, {name}: skipped: {error}"));
                continue;
            }
        };
        let cluster = Arc::new(Recorded::parse(&std::fs::read_to_string(&path)?)?);
        let (ours, theirs) = (format!("scheduling, {name}: saetta"), format!("scheduling, {name}: storm"));
        run.case_of_own_class(&ours, move |_| {
            cold(RESOURCE_AWARE, "{}", &cluster)?;
            let (ms, placed) = cold(RESOURCE_AWARE, "{}", &cluster)?;
            Ok(Some((HostClass::Any, Measured { figures: figures(ms, placed.len() as f64), ..Measured::default() })))
        });
        let (shared, storm) = (Rc::clone(common), storm.clone());
        run.case_of_own_class(&theirs, move |o| match storms(&shared, &storm, &path, o.cores) {
            Err(error) if !o.smoke => {
                shared.notes.add(format!("scheduling, {name}: storm: no sample: {error}"));
                Ok(None)
            }
            sample => Ok(Some((HostClass::Any, sample?))),
        });
        for case in [&ours, &theirs] {
            run.row(RowSpec::new(&format!("{case}, cold round"), "ms", Better::Lower, case, "ms"));
            run.row(RowSpec::new(&format!("{case}, placed"), "executors", Better::Higher, case, "placed"));
        }
        run.row(RowSpec::new(&format!("{ours} over storm, cold round"), "ms", Better::Lower, &ours, "ms").over(&theirs, "ms", 1.0));
    }
    Ok(())
}

fn figures(ms: f64, placed: f64) -> Figures {
    Figures::from([("ms", ms), ("placed", placed)])
}

fn storms(common: &Common, storm: &Built, cluster: &Path, cores: (usize, usize)) -> Result<Measured> {
    let dir = tempfile::tempdir()?;
    let warm_up_ms = common.sizes.warm_up_jvm_ms;
    let workload = json!({ "shape": "schedule", "text": cluster, "warm_up_ms": warm_up_ms, "window_ms": ROUND_MS_MAX, "settings": {} });
    let command = storm.with_class("saetta.rivals.Scheduling").command(&common.sizes.heap, dir.path());
    let order = Order { command, workload: &workload, latency: false, cores, dir: dir.path(), windows_max: 1 };
    let (_, measured) = process::measure(order)?;
    // A window is one round, its tuples are executors.
    let (placed, per_sec) = (measured.figures["tuples"], measured.figures["per_sec"]);
    Ok(Measured { figures: figures(placed / per_sec * 1e3, placed), ..Measured::default() })
}
