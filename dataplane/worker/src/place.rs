//! From an assignment to what one worker runs and whom it is linked with. Pure: no clock, no I/O.
//!
//! Before: record, assignment and this worker's placement id. After: `saetta_engine::EnginePlan`, and `peers.rs` has the links.
//! Loops are numbered by `saetta_model::loops`, on both sides of every link alike.

use saetta_engine::{AckPlan, EnginePlan, Options, PlannedExecutor, RemoteExecutor};
use saetta_model::Config;
use saetta_model::assignment::{Assignment, Placement};
use saetta_model::config::Source;
use saetta_model::loops::{LoopRule, Loops};
use saetta_model::parallelism::{ExecutorId, Layout};
use saetta_model::topology::TopologySpec;
use saetta_transport::{Road, TargetKey};
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

/// The loops of a worker.
pub(crate) fn loops(rule: &LoopRule, placement: &Placement) -> Result<Loops, String> {
    let executors = placement.executors.iter().map(|e| (e.id, e.core));
    rule.loops(&placement.cores, executors).map_err(|id| {
        format!(
            "the assignment puts executor {id} of worker {}:{} on a core that is none of its cores {:?}",
            placement.slot.node, placement.slot.port, placement.cores
        )
    })
}

/// Everything the engine is built from. Errors: the assignment names executors or cores that do not exist.
pub(crate) fn plan(
    layout: Layout,
    options: Options,
    rule: &LoopRule,
    assignment: &Assignment,
    own: &Placement,
) -> Result<EnginePlan, String> {
    let known: BTreeSet<ExecutorId> = layout.executors().map(|(_, id)| id).collect();
    if let Some(stranger) = own.executors.iter().find(|e| !known.contains(&e.id)) {
        return Err(format!("the assignment places executor {}, which this topology does not have", stranger.id));
    }
    let loops = loops(rule, own)?;
    let executors = loops.of.iter().map(|(id, on_loop)| PlannedExecutor { id: *id, on_loop: *on_loop }).collect();
    let remotes = remotes(rule, assignment, own)?;
    Ok(EnginePlan { layout, cores: loops.cores, executors, remotes, options: Options { blocking_loops: loops.blocking, ..options } })
}

/// Executors that other workers hold.
pub(crate) fn remotes(rule: &LoopRule, assignment: &Assignment, own: &Placement) -> Result<Vec<RemoteExecutor>, String> {
    let mut all = Vec::new();
    for worker in assignment.workers.iter().filter(|w| w.id != own.id) {
        let loops = loops(rule, worker)?;
        all.extend(loops.of.iter().map(|(id, on_loop)| RemoteExecutor { id: *id, placement: worker.id, on_loop: *on_loop as u32 }));
    }
    Ok(all)
}

/// One link, of two connections, for each of our loops and each loop of another worker between which tuples may flow, either way, or acks of
/// tracked ones: these go from everyone who handles a tuple of a tree to whoever holds its ledger.
pub(crate) fn links(
    spec: &TopologySpec,
    layout: &Layout,
    rule: &LoopRule,
    assignment: &Assignment,
    own: &Placement,
) -> Result<BTreeSet<TargetKey>, String> {
    let component: BTreeMap<ExecutorId, &str> = layout.executors().map(|(c, id)| (id, layout.components[c].id.as_str())).collect();
    let edges: BTreeSet<(&str, &str)> =
        spec.components.iter().flat_map(|c| c.inputs.iter().map(|i| (i.from.as_str(), c.id.as_str()))).collect();
    let roads =
        |placement, local_loop, remote_loop| [Road::Data, Road::Control].map(|road| TargetKey { placement, local_loop, remote_loop, road });
    let mut links = BTreeSet::new();
    let own_loops = loops(rule, own)?;
    let mut all_loops: BTreeMap<ExecutorId, (u64, u32)> = own_loops.of.iter().map(|(id, at)| (*id, (own.id, *at as u32))).collect();
    for worker in assignment.workers.iter().filter(|w| w.id != own.id) {
        for (theirs, remote_loop) in &loops(rule, worker)?.of {
            all_loops.insert(*theirs, (worker.id, *remote_loop as u32));
            for (ours, local_loop) in &own_loops.of {
                let (Some(a), Some(b)) = (component.get(ours), component.get(theirs)) else { continue };
                if edges.contains(&(a, b)) || edges.contains(&(b, a)) {
                    links.extend(roads(worker.id, *local_loop as u32, *remote_loop as u32));
                }
            }
        }
    }
    let pairs = AckPlan::new(spec, layout).pairs(|id| all_loops.get(&id).copied(), |one, two| one.0 == two.0);
    for (one, two) in pairs {
        let ours_first = [(one, two), (two, one)].into_iter().find(|(ours, theirs)| ours.0 == own.id && theirs.0 != own.id);
        links.extend(
            ours_first.into_iter().flat_map(|((_, local_loop), (placement, remote_loop))| roads(placement, local_loop, remote_loop)),
        );
    }
    Ok(links)
}

/// Links that executors which change place need until that is settled: between their old loop and their new one.
pub(crate) fn move_links(rule: &LoopRule, old: &Assignment, new: &Assignment, own: u64) -> Result<BTreeSet<TargetKey>, String> {
    let places = |assignment: &Assignment| -> Result<BTreeMap<ExecutorId, (u64, u32)>, String> {
        let mut all = BTreeMap::new();
        for worker in &assignment.workers {
            all.extend(loops(rule, worker)?.of.into_iter().map(|(id, on_loop)| (id, (worker.id, on_loop as u32))));
        }
        Ok(all)
    };
    let (before, after) = (places(old)?, places(new)?);
    let named = |placement: u64| placement != own && new.workers.iter().any(|w| w.id == placement);
    let mut links = BTreeSet::new();
    for (id, (to, to_loop)) in after {
        let Some((from, from_loop)) = before.get(&id).copied() else { continue };
        let (placement, local_loop, remote_loop) = match own {
            own if own == from && named(to) => (to, from_loop, to_loop),
            own if own == to && named(from) => (from, to_loop, from_loop),
            _ => continue,
        };
        links.extend([Road::Data, Road::Control].map(|road| TargetKey { placement, local_loop, remote_loop, road }));
    }
    Ok(links)
}

/// Why a running worker cannot take on `new` in place of `old`; `None` = it can: executors come and go while it runs.
pub(crate) fn needs_restart(rule: &LoopRule, old: &Placement, new: &Placement) -> Option<String> {
    if old.cores != new.cores {
        return Some(format!("its cores were {:?} and are now {:?}", old.cores, new.cores));
    }
    if old.index != new.index || old.slot != new.slot {
        return Some("its slot or index changed".into());
    }
    // A new placement that makes no sense is not taken on at all.
    let (Ok(before), Ok(after)) = (loops(rule, old), loops(rule, new)) else { return None };
    if (&before.cores, &before.blocking) != (&after.cores, &after.blocking) {
        let (was, is) = (&before.cores, &after.cores);
        return Some(format!("its core loops were on cores {was:?} and are on {is:?} with executors that have loops of their own"));
    }
    None
}
