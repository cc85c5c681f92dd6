//! From an assignment to what one worker runs and whom it is linked with. Pure: no clock, no I/O.
//!
//! Before: record, assignment and this worker's placement id. After: `saetta_engine::EnginePlan`, and `peers.rs` has the links.
//! Loops are numbered by `saetta_model::loops`, on both sides of every link alike.

use saetta_engine::{AckPlan, EnginePlan, Options, PlannedExecutor, RemoteExecutor, Share};
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

/// With whom a worker is linked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Linking {
    /// Connections, two for each link.
    pub(crate) links: BTreeSet<TargetKey>,
    /// The links that all loops of the two workers share; none, or all of them.
    pub(crate) shares: Vec<Share>,
}

/// A loop of a worker, by placement id.
type LoopOf = (u64, u32);

/// One link for each of our loops and each loop of another worker that exchange something; or, where some worker of the assignment would have
/// more than `links_max` of these, one for each other worker that this one exchanges something with. Every worker decides alike from the
/// assignment, and so both ends of a link do.
pub(crate) fn linking(
    spec: &TopologySpec,
    layout: &Layout,
    rule: &LoopRule,
    assignment: &Assignment,
    own: &Placement,
    links_max: u32,
) -> Result<Linking, String> {
    let all: Vec<(&Placement, Loops)> = assignment.workers.iter().map(|w| Ok((w, loops(rule, w)?))).collect::<Result<_, String>>()?;
    let n_loops: usize = all.iter().map(|(_, loops)| loops.cores.len()).sum();
    // Mostly it need not be counted: there could not be so many.
    let may_exceed = all.iter().any(|(_, loops)| loops.cores.len() * (n_loops - loops.cores.len()) > links_max as usize);
    let of: Option<&Placement> = (!may_exceed).then_some(own);
    let pairs = loop_pairs(spec, layout, &all, of);
    let mut needed: BTreeMap<u64, u32> = BTreeMap::new();
    pairs.iter().flat_map(|(one, two)| [one.0, two.0]).for_each(|worker| *needed.entry(worker).or_insert(0) += 1);
    let shared = may_exceed && needed.values().any(|n| *n > links_max);
    let ours = |(one, two): &(LoopOf, LoopOf)| match own.id {
        id if one.0 == id => Some((one.1, *two)),
        id if two.0 == id => Some((two.1, *one)),
        _ => None,
    };
    let mut linking = Linking::default();
    for (local_loop, (placement, remote_loop)) in pairs.iter().filter_map(ours) {
        let share = match all.iter().find(|(w, _)| w.id == placement) {
            Some((other, loops)) if shared => {
                let own_loops = all.iter().find(|(w, _)| w.id == own.id).map(|(_, loops)| owner(loops, other.index));
                Some(Share { placement, local_loop: own_loops.unwrap_or(local_loop), remote_loop: owner(loops, own.index) })
            }
            _ => None,
        };
        let (local_loop, remote_loop) = share.map_or((local_loop, remote_loop), |s| (s.local_loop, s.remote_loop));
        let roads = [Road::Data, Road::Control].map(|road| TargetKey { placement, local_loop, remote_loop, road });
        if linking.links.insert(roads[0]) {
            linking.shares.extend(share);
        }
        linking.links.insert(roads[1]);
    }
    Ok(linking)
}

/// The loop of a worker that holds the link it shares with the worker of this index: they take turns, those that user code blocks excepted
/// while there are others. Executors that come and go change nothing in it.
fn owner(loops: &Loops, index: u32) -> u32 {
    let all: Vec<usize> = (0..loops.cores.len()).collect();
    let free: Vec<usize> = all.iter().copied().filter(|l| !loops.blocking.contains(l)).collect();
    let from = if free.is_empty() { all } else { free };
    from.get(index as usize % from.len().max(1)).map_or(0, |l| *l as u32)
}

/// Loops of different workers between which tuples may flow, either way, or acks of tracked ones: these go from everyone who handles a tuple of
/// a tree to whoever holds its ledger. `of`: only those of this worker. Each pair once.
fn loop_pairs(spec: &TopologySpec, layout: &Layout, all: &[(&Placement, Loops)], of: Option<&Placement>) -> BTreeSet<(LoopOf, LoopOf)> {
    let component: BTreeMap<ExecutorId, usize> = layout.executors().map(|(c, id)| (id, c)).collect();
    let number = |id: &str| layout.components.iter().position(|c| c.id.as_str() == id);
    let mut partners: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (to, input) in spec.components.iter().flat_map(|c| c.inputs.iter().map(move |input| (c, input))) {
        if let (Some(from), Some(to)) = (number(input.from.as_str()), number(to.id.as_str())) {
            partners.entry(from).or_default().insert(to);
            partners.entry(to).or_default().insert(from);
        }
    }
    // By loop, ascending: the components on it, and those they exchange tuples with.
    let mut on: BTreeMap<LoopOf, (BTreeSet<usize>, BTreeSet<usize>)> = BTreeMap::new();
    let mut at: BTreeMap<ExecutorId, LoopOf> = BTreeMap::new();
    for (worker, loops) in all {
        for (id, on_loop) in &loops.of {
            at.insert(*id, (worker.id, *on_loop as u32));
            let Some(of) = component.get(id) else { continue };
            let (own, other) = on.entry((worker.id, *on_loop as u32)).or_default();
            if own.insert(*of) {
                other.extend(partners.get(of).into_iter().flatten());
            }
        }
    }
    let is_asked = |one: &LoopOf, two: &LoopOf| one.0 != two.0 && of.is_none_or(|of| one.0 == of.id || two.0 == of.id);
    let mut pairs = BTreeSet::new();
    for (one, (_, wanted)) in on.iter().filter(|(one, _)| of.is_none_or(|of| one.0 == of.id)) {
        for (two, (held, _)) in on.iter().filter(|(two, _)| is_asked(one, two)) {
            if !wanted.is_disjoint(held) {
                pairs.insert((*one.min(two), *one.max(two)));
            }
        }
    }
    let acks = AckPlan::new(spec, layout).pairs(|id| at.get(&id).copied(), |one, two| one.0 == two.0);
    pairs.extend(acks.into_iter().filter(|(one, two)| is_asked(one, two)));
    pairs
}

/// As [`linking`], with a link for every two loops.
#[cfg(test)]
pub(crate) fn links(
    spec: &TopologySpec,
    layout: &Layout,
    rule: &LoopRule,
    assignment: &Assignment,
    own: &Placement,
) -> Result<BTreeSet<TargetKey>, String> {
    linking(spec, layout, rule, assignment, own, u32::MAX).map(|linking| linking.links)
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

/// Where the executors of a worker are.
pub(crate) fn executors(placement: &Placement) -> BTreeSet<(ExecutorId, u32)> {
    placement.executors.iter().map(|e| (e.id, e.core)).collect()
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
