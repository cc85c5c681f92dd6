//! From an assignment to what one worker runs and whom it is linked with. Pure: no clock, no I/O.
//!
//! Before: record, assignment and this worker's placement id. After: `saetta_engine::EnginePlan`, and `peers.rs` has the links.
//! Loop i of a worker runs on the i-th of its placement's cores, on both sides of every link.

use saetta_engine::{EnginePlan, Options, PlannedExecutor, RemoteExecutor};
use saetta_model::Config;
use saetta_model::assignment::{Assignment, ExecutorPlace, Placement};
use saetta_model::config::Source;
use saetta_model::parallelism::{ExecutorId, Layout};
use saetta_model::topology::TopologySpec;
use saetta_transport::TargetKey;
use std::collections::{BTreeMap, BTreeSet};

/// The topology's configuration: what its code set, and the record's on top.
pub(crate) fn config(code: &BTreeMap<String, String>, record: &BTreeMap<String, String>) -> Result<Config, String> {
    let code = Config::topology(code, Source::Code).map_err(|e| e.to_string())?;
    let record = Config::topology(record, Source::Set).map_err(|e| e.to_string())?;
    Ok(code.overlaid(&record))
}

/// The placement with this id.
pub(crate) fn placement(assignment: &Assignment, id: u64) -> Option<&Placement> {
    assignment.workers.iter().find(|w| w.id == id)
}

fn loop_of(placement: &Placement, executor: &ExecutorPlace) -> Result<u32, String> {
    let at = placement.cores.iter().position(|c| *c == executor.core);
    at.map(|i| i as u32).ok_or_else(|| {
        format!(
            "the assignment puts executor {} of worker {}:{} on core {}, and that worker has cores {:?}",
            executor.id, placement.slot.node, placement.slot.port, executor.core, placement.cores
        )
    })
}

/// Everything the engine is built from. Errors: the assignment names executors or cores that do not exist.
pub(crate) fn plan(layout: Layout, options: Options, assignment: &Assignment, own: &Placement) -> Result<EnginePlan, String> {
    let known: BTreeSet<ExecutorId> = layout.executors().map(|(_, id)| id).collect();
    if let Some(stranger) = own.executors.iter().find(|e| !known.contains(&e.id)) {
        return Err(format!("the assignment places executor {}, which this topology does not have", stranger.id));
    }
    let executors: Result<Vec<_>, String> =
        own.executors.iter().map(|e| Ok(PlannedExecutor { id: e.id, on_loop: loop_of(own, e)? as usize })).collect();
    let remotes = remotes(assignment, own)?;
    Ok(EnginePlan { layout, cores: own.cores.clone(), executors: executors?, remotes, options })
}

/// Executors that other workers hold.
pub(crate) fn remotes(assignment: &Assignment, own: &Placement) -> Result<Vec<RemoteExecutor>, String> {
    let others = assignment.workers.iter().filter(|w| w.id != own.id);
    others
        .flat_map(|w| w.executors.iter().map(move |e| Ok(RemoteExecutor { id: e.id, placement: w.id, on_loop: loop_of(w, e)? })))
        .collect()
}

/// One link for each of our loops and each loop of another worker between which tuples may flow, either way.
pub(crate) fn links(spec: &TopologySpec, layout: &Layout, assignment: &Assignment, own: &Placement) -> Result<BTreeSet<TargetKey>, String> {
    let component: BTreeMap<ExecutorId, &str> = layout.executors().map(|(c, id)| (id, layout.components[c].id.as_str())).collect();
    let edges: BTreeSet<(&str, &str)> =
        spec.components.iter().flat_map(|c| c.inputs.iter().map(|i| (i.from.as_str(), c.id.as_str()))).collect();
    let mut links = BTreeSet::new();
    for worker in assignment.workers.iter().filter(|w| w.id != own.id) {
        for theirs in &worker.executors {
            for ours in &own.executors {
                let (Some(a), Some(b)) = (component.get(&ours.id), component.get(&theirs.id)) else { continue };
                if edges.contains(&(a, b)) || edges.contains(&(b, a)) {
                    let (local_loop, remote_loop) = (loop_of(own, ours)?, loop_of(worker, theirs)?);
                    links.insert(TargetKey { placement: worker.id, local_loop, remote_loop });
                }
            }
        }
    }
    Ok(links)
}

/// Why a running worker cannot take on `new` in place of `old`; `None` = it can.
pub(crate) fn needs_restart(old: &Placement, new: &Placement) -> Option<String> {
    let places = |p: &Placement| p.executors.iter().map(|e| (e.id, e.core)).collect::<BTreeSet<_>>();
    if old.cores != new.cores {
        return Some(format!("its cores were {:?} and are now {:?}", old.cores, new.cores));
    }
    if old.index != new.index || old.slot != new.slot {
        return Some("its slot or index changed".into());
    }
    let (before, after) = (places(old), places(new));
    if before == after {
        return None;
    }
    let list = |set: Vec<&(ExecutorId, u32)>| set.iter().map(|(id, core)| format!("{id} on core {core}")).collect::<Vec<_>>().join(", ");
    Some(format!(
        "executors that go: {}; that come: {}",
        list(before.difference(&after).collect()),
        list(after.difference(&before).collect())
    ))
}
