//! `scheduling`: rounds of the schedulers on recorded clusters, one thread, through the C table; and what the placement costs in distance.
//!
//! Before: the recorded clusters lie beside the repository, in `../shared/data/scheduling`, or where `SAETTA_RECORDED` says. After: every round was
//! checked: all placed, nothing moved where nothing had changed. Storm's placement is the floor of ours.

use std::path::PathBuf;
use std::sync::Arc;

use saetta_harness::suite::{Figures, SuiteRun};
use saetta_harness::{Better, Result, RowSpec};
use saetta_resource_aware::BUILTIN as RESOURCE_AWARE;
use saetta_scheduling::{again, cold, each_again, storm};
use saetta_sdk::snapshot::Snapshot;
use saetta_sdk::testing::recorded::Recorded;

/// File, what it is called, and the targets in milliseconds: a cold round, the median topology placed again, the slowest.
const CLUSTERS: [(&str, &str, [f64; 3]); 2] =
    [("largeCluster01.json", "1312 nodes", [100.0, 5.0, 20.0]), ("largeCluster03.json", "80 nodes", [20.0, 5.0, 20.0])];
/// Locality cost over Storm's.
const COST: f64 = 0.95;

fn recorded(file: &str) -> Result<Recorded> {
    let dir = std::env::var_os("SAETTA_RECORDED").map_or_else(|| PathBuf::from("../shared/data/scheduling"), PathBuf::from);
    let path = dir.join(file);
    let text = std::fs::read_to_string(&path)
        .map_err(|e| format!("{}: {e}; say with SAETTA_RECORDED where recorded clusters are", path.display()))?;
    Ok(Recorded::parse(&text)?)
}

pub(crate) fn declare(run: &mut SuiteRun<'_>) -> Result<()> {
    for (file, name, [cold_ms, median_ms, largest_ms]) in CLUSTERS {
        let cluster = Arc::new(recorded(file)?);
        let (ours, reference) = (format!("resource-aware, {name}"), format!("Storm's placement, {name}"));
        let of = cluster.clone();
        run.case_of_any_class(&ours, move |_| {
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
        run.case_of_any_class(&reference, move |_| {
            let bytes = cluster.pack(&cluster.nothing_placed());
            let snapshot = Snapshot::new(&bytes).map_err(|e| e.to_string())?;
            Ok(Figures::from([("cost", cluster.cost(&storm::place(&snapshot)))]))
        });
        let row =
            |what: &str, unit, figure| RowSpec::new(&format!("resource-aware, {name}: {what}"), unit, Better::Lower, ours.clone(), figure);
        run.row(row("cold", "ms", "cold_ms").target(cold_ms));
        run.row(row("one topology again, median", "ms", "median_ms").target(median_ms));
        run.row(row("one topology again, slowest", "ms", "largest_ms").target(largest_ms));
        run.row(row("locality cost over Storm's", "pairs", "cost").over(reference, "cost", 1.0).target(COST));
    }
    Ok(())
}
