//! From a scheduler's plan to an assignment: check it against the live cluster, keep what stays, name what is new. Pure.
//!
//! Before: `saetta_sched_host` answered a slot per executor. After: `core.rs` has the assignment written.

use crate::core::{Round, Wanted};
use saetta_model::assignment::{Assignment, ExecutorPlace, Placement};
use saetta_model::cluster::{SlotId, Supervisors};
use saetta_model::config::{Config, Source};
use saetta_model::cores::{self, Hints, Placed};
use saetta_model::parallelism::{ExecutorId, Layout};
use saetta_model::{Name, TopologyRecord};
use saetta_sched_host::{RoundInput, RoundOutcome, RoundTopology, Scheduler};
use std::collections::{BTreeMap, BTreeSet};

/// Who places executors. Blocking.
pub trait PlacementEngine: Send + Sync + 'static {
    /// Answers a round; what goes wrong is in the outcome.
    fn round(&self, input: &RoundInput<'_>) -> RoundOutcome;
}

impl PlacementEngine for Scheduler {
    fn round(&self, input: &RoundInput<'_>) -> RoundOutcome {
        Scheduler::round(self, input)
    }
}

/// Asks the engine. `seed` is the only randomness a scheduler may use; `leader_term` rises with each change of the leader.
pub fn ask(engine: &dyn PlacementEngine, round: &Round, seed: u64, leader_term: u64) -> RoundOutcome {
    let topologies: Vec<RoundTopology<'_>> = round
        .topologies
        .iter()
        .map(|Wanted { record, layout, current, former, rates }| RoundTopology {
            record,
            layout,
            workers_wanted: layout.workers_wanted,
            current,
            former,
            rates,
        })
        .collect();
    let Round { id: round_id, reason, supervisors, .. } = round;
    engine.round(&RoundInput { reason: *reason, supervisors, topologies: &topologies, seed, round_id: *round_id, leader_term })
}

/// The arithmetic of a stored topology. Fails only where its record was not written by a nimbus that checked it.
pub fn layout_of(record: &TopologyRecord) -> Result<Layout, String> {
    let config = Config::topology(&record.config, Source::Code).map_err(|e| e.to_string())?;
    Layout::new(&record.spec, &config).map_err(|e| e.to_string())
}

/// Checks what the host checked once more, now against the cluster as it is: between a question and its answer a node may go.
pub fn check(
    id: &Name,
    plan: &saetta_sched_host::TopologyPlan,
    layout: &Layout,
    supervisors: &Supervisors,
    kept: &Assignment,
    taken: &BTreeMap<SlotId, Name>,
) -> Result<(), String> {
    let known: BTreeSet<ExecutorId> = layout.executors().map(|(_, e)| e).collect();
    for (executor, slot) in &plan.slots {
        if !known.contains(executor) {
            return Err(format!("it names executor {executor}, which the topology does not have"));
        }
        let live = supervisors.get(&slot.node).is_some_and(|s| s.slots.iter().any(|x| x.port == slot.port));
        if !live && kept.at(slot).is_none() {
            return Err(format!("slot {}:{} is not there any more", slot.node, slot.port));
        }
        if let Some(other) = taken.get(slot).filter(|other| *other != id) {
            return Err(format!("slot {}:{} belongs to {other}", slot.node, slot.port));
        }
    }
    let used: BTreeSet<&SlotId> = plan.slots.values().collect();
    if used.len() > layout.workers_wanted as usize && !plan.any_workers {
        return Err(format!("it uses {} slots and the topology asked for {}", used.len(), layout.workers_wanted));
    }
    Ok(())
}

/// An assignment made from a plan; its version is not set yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Built {
    /// Version 0.
    pub assignment: Assignment,
    /// Wishes that could not be met.
    pub notes: Vec<String>,
}

/// Indices that workers tell apart where they name each other by bits: two starts of each have bits of their own.
const INDICES: u32 = 32;

/// Makes the assignment. A slot that stays keeps its placement id, index and start times; a new one gets a random id and the
/// smallest free index, of those below [`INDICES`] that nobody had in the `previous` one if there is one: by its index a lost worker is known for a while.
#[expect(clippy::too_many_arguments, reason = "called in one place")]
pub fn build(
    record: &TopologyRecord,
    layout: &Layout,
    plan: &saetta_sched_host::TopologyPlan,
    kept: &Assignment,
    previous: Option<&Assignment>,
    supervisors: &Supervisors,
    wall_ms: u64,
    random: &mut dyn FnMut() -> u64,
) -> Built {
    let mut by_slot: BTreeMap<&SlotId, Vec<ExecutorId>> = BTreeMap::new();
    for (executor, slot) in &plan.slots {
        by_slot.entry(slot).or_default().push(*executor);
    }
    let mut indices: BTreeSet<u32> = by_slot.keys().filter_map(|slot| kept.at(slot)).map(|p| p.index).collect();
    let mut assignment = Assignment { version: 0, binary: record.binary.clone(), hosts: BTreeMap::new(), workers: Vec::new() };
    let mut notes = Vec::new();
    for (slot, executors) in by_slot {
        let before = kept.at(slot);
        let offered = supervisors.get(&slot.node).and_then(|s| s.slots.iter().find(|x| x.port == slot.port));
        // On a node that is away, what it offered last is what the worker has.
        let (cores, share) = match (offered, before) {
            (Some(s), _) => (s.cores.clone(), s.share),
            (None, Some(p)) => (p.cores.clone(), p.share),
            (None, None) => unreachable!("`check` lets only live or kept slots through"),
        };
        let host = supervisors.get(&slot.node).map(|s| &s.host).or_else(|| kept.hosts.get(&slot.node));
        assignment.hosts.insert(slot.node.clone(), host.cloned().unwrap_or_default());
        let index = before.map_or_else(
            || {
                let unused =
                    (0..INDICES).find(|i| !indices.contains(i) && previous.is_none_or(|b| b.workers.iter().all(|p| p.index != *i)));
                let free = unused.or_else(|| (0..).find(|i| !indices.contains(i))).expect("there are more numbers than slots");
                indices.insert(free);
                free
            },
            |p| p.index,
        );
        let placed = plan_cores(record, layout, &executors, &cores, &|e| plan.cores.get(&e).copied());
        for component in record.spec.components.iter().map(|c| c.id.as_str()) {
            let here = layout.component(component).is_some_and(|l| l.executors.iter().any(|e| executors.contains(e)));
            if let Some(core) = core_by_hand(record, component).filter(|core| here && !cores.contains(core)) {
                notes.push(format!(
                    "executor.core = {core} of `{component}` is not a core of slot {}:{} (it has {cores:?}); the planner chose there",
                    slot.node, slot.port
                ));
            }
        }
        let started = |id: ExecutorId| before.and_then(|p| p.executors.iter().find(|e| e.id == id)).map_or(wall_ms, |e| e.started_ms);
        let executors = placed
            .iter()
            .map(|p| ExecutorPlace { id: p.id, core: p.core, started_ms: started(p.id), planned: p.reason == cores::Reason::ByScheduler })
            .collect();
        // 0 stands for "no placement" in messages, so no placement has it.
        let id = before.map_or_else(|| random().max(1), |p| p.id);
        assignment.workers.push(Placement { slot: slot.clone(), id, index, cores, share, executors });
    }
    Built { assignment, notes }
}

/// The assignment to write, or `None` when it says what is written already.
pub fn next_version(previous: Option<&Assignment>, mut next: Assignment) -> Option<Assignment> {
    match previous {
        None if next.workers.is_empty() => None,
        None => {
            next.version = 1;
            Some(next)
        }
        Some(previous) => {
            next.version = previous.version;
            (next != *previous).then(|| Assignment { version: previous.version + 1, ..next })
        }
    }
}

/// Cores of one worker's executors (ascending), and why. `status` asks again for the reasons: the same question has the same answer.
/// `planned` is what the scheduler said; a core the worker does not have (any more) counts as none said.
pub fn plan_cores(
    record: &TopologyRecord,
    layout: &Layout,
    executors: &[ExecutorId],
    cores: &[u32],
    planned: &dyn Fn(ExecutorId) -> Option<u32>,
) -> Vec<Placed> {
    let planned = |e: ExecutorId| planned(e).filter(|core| cores.contains(core));
    let by_hand = |component: &str| core_by_hand(record, component).filter(|core| cores.contains(core));
    let blocks = |component: &str| setting(record, component, "executor.blocking") == Some("true");
    cores::plan(&record.spec, layout, executors, cores, &Hints { by_hand: &by_hand, planned: &planned, blocks: &blocks, ..Hints::NONE })
}

/// A key of a component: its own, else the topology's.
fn setting<'r>(record: &'r TopologyRecord, component: &str, key: &str) -> Option<&'r str> {
    let own = record.spec.component(component).and_then(|c| c.config.get(key));
    own.or_else(|| record.config.get(key)).map(String::as_str)
}

/// `executor.core` of a component: its own, else the topology's.
pub fn core_by_hand(record: &TopologyRecord, component: &str) -> Option<u32> {
    setting(record, component, "executor.core")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use saetta_sched_host::{How, TopologyPlan};

    #[test]
    fn a_core_that_the_scheduler_chose_is_in_the_assignment_and_one_the_slot_lost_is_the_planners() {
        let name = |text: &str| Name::new(text).unwrap();
        let record: TopologyRecord = serde_json::from_value(serde_json::json!({
            "id": "t-1-1", "name": "t", "digest": "", "binary": "", "args": [], "config": {"topology.acker.executors": "0"}, "submitted_ms": 1,
            "state": {"is": "active"},
            "spec": {"saetta": "0", "format": {"archive": "", "endian": "little", "unaligned": true, "pointer_bits": 32},
                "components": [{"id": "s", "kind": "spout", "executors": 2}]},
        }))
        .unwrap();
        let supervisors: Supervisors = serde_json::from_value(serde_json::json!({"n": {
            "id": "n", "host": "h", "slots": [{"port": 1, "cores": [4, 5], "share": 1}], "resources": {}, "incarnation": 1,
            "platform": {"machine": "x86_64", "glibc": null},
        }}))
        .unwrap();
        let layout = layout_of(&record).unwrap();
        let slot = SlotId { node: name("n"), port: 1 };
        let executors: Vec<ExecutorId> = layout.executors().map(|(_, e)| e).collect();
        let plan = TopologyPlan {
            slots: executors.iter().map(|e| (*e, slot.clone())).collect(),
            cores: [(executors[0], 5), (executors[1], 9)].into(),
            how: How::Plugin("x".into()),
            unplaced: 0,
            any_workers: false,
            notes: Vec::new(),
        };
        let built = build(&record, &layout, &plan, &Assignment::default(), None, &supervisors, 7, &mut || 1);
        let placed: Vec<_> = built.assignment.workers[0].executors.iter().map(|e| (e.core, e.planned)).collect();
        assert_eq!(placed[0], (5, true));
        assert!(!placed[1].1 && placed[1].0 != 9, "{placed:?}");
    }
}
