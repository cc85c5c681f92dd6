//! What `list` and `status` show: record, assignment and beats put together. Pure.
//!
//! Names and units here are the API: snake_case, numbers with their unit in the key, what is not known is absent.

use crate::core::{Cluster, Explanation, beat_of};
use crate::round::{layout_of, plan_cores};
use saetta_model::parallelism::{ExecutorId, Layout};
use saetta_model::{Assignment, Name, TopologyRecord, TopologyState};
use saetta_sched_host::How;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// One topology in a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) id: Name,
    pub(crate) name: Name,
    pub(crate) state: &'static str,
    /// Until a killed one is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deadline_ms: Option<u64>,
    pub(crate) finished: bool,
    pub(crate) owner: String,
    pub(crate) priority: i32,
    pub(crate) submitted_ms: u64,
    pub(crate) workers_wanted: u32,
    pub(crate) workers_assigned: u32,
    pub(crate) workers_running: u32,
    pub(crate) executors_total: u32,
    pub(crate) executors_unplaced: u32,
    pub(crate) tasks_total: u32,
    pub(crate) assignment_version: u64,
}

/// One topology in full.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Full {
    #[serde(flatten)]
    pub(crate) summary: Summary,
    pub(crate) binary: String,
    pub(crate) args: Vec<String>,
    pub(crate) config: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scheduled: Option<Scheduled>,
    pub(crate) notes: Vec<String>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) executors: Vec<Executor>,
}

/// How it came to its places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Scheduled {
    /// `plugin`, `fallback` or `kept`.
    pub(crate) by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plugin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Worker {
    pub(crate) node: Name,
    pub(crate) host: String,
    pub(crate) port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pid: Option<u32>,
    /// The supervisor's word; `assigned` before it said anything; `away` while the node has no supervisor, and what
    /// stands beside it is the last that is known.
    pub(crate) state: String,
    /// Placement id, 16 hex digits (it does not fit into a JSON number).
    pub(crate) placement: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<u64>,
    pub(crate) cores: Vec<u32>,
    pub(crate) share: u32,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
    /// What carries its links.
    pub(crate) carrier: String,
    pub(crate) ended: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Executor {
    pub(crate) component: Name,
    pub(crate) first_task: u32,
    pub(crate) last_task: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) port: Option<u16>,
    /// As the worker read it back from the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) core: Option<u32>,
    /// As the assignment says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) core_assigned: Option<u32>,
    /// Why that one. Absent where the planner would choose another today.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) core_why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) started_ms: Option<u64>,
    pub(crate) executed: u64,
    pub(crate) emitted: u64,
    pub(crate) transferred: u64,
    pub(crate) failed: u64,
    pub(crate) busy_per_mille: u32,
    pub(crate) ended: bool,
}

pub(crate) fn summary(cluster: &Cluster, record: &TopologyRecord) -> Summary {
    let assignment = cluster.assignments.get(&record.id);
    let layout = layout_of(record).ok();
    let executors = layout.as_ref().map_or(0, |l| l.n_executors());
    let placed: usize = assignment.map_or(0, |a| a.workers.iter().map(|w| w.executors.len()).sum());
    let running =
        |a: &Assignment| a.workers.iter().filter(|p| beat_of(cluster, &record.id, p).is_some_and(|b| b.state == "running")).count();
    Summary {
        id: record.id.clone(),
        name: record.name.clone(),
        state: record.state.word(),
        deadline_ms: match record.state {
            TopologyState::Killed { deadline_ms } => Some(deadline_ms),
            _ => None,
        },
        finished: record.finished,
        owner: record.owner.clone(),
        priority: record.priority,
        submitted_ms: record.submitted_ms,
        workers_wanted: layout.as_ref().map_or(0, |l| l.workers_wanted),
        workers_assigned: assignment.map_or(0, |a| a.workers.len() as u32),
        workers_running: assignment.map_or(0, running) as u32,
        executors_total: executors,
        executors_unplaced: executors.saturating_sub(placed as u32),
        tasks_total: layout.as_ref().map_or(0, |l| l.n_tasks()),
        assignment_version: assignment.map_or(0, |a| a.version),
    }
}

pub(crate) fn full(cluster: &Cluster, record: &TopologyRecord, explanation: Option<&Explanation>) -> Full {
    let assignment = cluster.assignments.get(&record.id);
    let layout = layout_of(record);
    let mut notes = explanation.map(|e| e.notes.clone()).unwrap_or_default();
    match &layout {
        Ok(layout) => notes.extend(layout.notes.iter().cloned()),
        Err(why) => notes.push(format!("the record cannot be laid out: {why}")),
    }
    if cluster.unreadable.contains(&record.id) {
        notes.push("its assignment in the store cannot be read; nothing is decided for it".into());
    }
    let workers = assignment.into_iter().flat_map(|a| &a.workers).map(|p| {
        let beat = beat_of(cluster, &record.id, p);
        let away = !cluster.supervisors.contains_key(&p.slot.node);
        Worker {
            node: p.slot.node.clone(),
            host: assignment.and_then(|a| a.hosts.get(&p.slot.node)).cloned().unwrap_or_default(),
            port: p.slot.port,
            pid: beat.map(|b| b.pid).filter(|pid| *pid != 0),
            state: if away { "away".into() } else { beat.map_or_else(|| "assigned".into(), |b| b.state.clone()) },
            placement: format!("{:016x}", p.id),
            start: beat.map(|b| b.start),
            cores: p.cores.clone(),
            share: p.share,
            note: beat.map(|b| b.note.clone()).unwrap_or_default(),
            carrier: beat.map(|b| b.carrier.clone()).unwrap_or_default(),
            ended: beat.is_some_and(|b| b.ended),
        }
    });
    let whys = layout.as_ref().map(|l| core_whys(record, l, assignment)).unwrap_or_default();
    let executors = layout.iter().flat_map(|l| &l.components).flat_map(|c| c.executors.iter().map(move |e| (c, *e)));
    Full {
        summary: summary(cluster, record),
        binary: record.binary.clone(),
        args: record.args.clone(),
        config: record.config.clone(),
        scheduled: explanation.and_then(|e| e.how.as_ref()).map(scheduled),
        notes,
        workers: workers.collect(),
        executors: executors.map(|(component, id)| executor(cluster, record, component.id.clone(), id, whys.get(&id))).collect(),
    }
}

/// Reasons for cores. They are not stored: the planner, asked again, gives the same answer.
fn core_whys(record: &TopologyRecord, layout: &Layout, assignment: Option<&Assignment>) -> BTreeMap<ExecutorId, String> {
    let known: BTreeSet<ExecutorId> = layout.executors().map(|(_, id)| id).collect();
    let mut whys = BTreeMap::new();
    for worker in assignment.into_iter().flat_map(|a| &a.workers).filter(|w| !w.cores.is_empty()) {
        let assigned: BTreeMap<ExecutorId, u32> =
            worker.executors.iter().filter(|e| known.contains(&e.id)).map(|e| (e.id, e.core)).collect();
        let executors: Vec<ExecutorId> = assigned.keys().copied().collect();
        let planned = |e: ExecutorId| worker.executors.iter().find(|p| p.id == e && p.planned).map(|p| p.core);
        let placed = plan_cores(record, layout, &executors, &worker.cores, &planned);
        whys.extend(placed.into_iter().filter(|p| assigned[&p.id] == p.core).map(|p| (p.id, p.reason.to_string())));
    }
    whys
}

/// The core of an executor by the assignment, and why that one.
pub(crate) fn core_of(cluster: &Cluster, record: &TopologyRecord, layout: &Layout, id: ExecutorId) -> Option<(u32, Option<String>)> {
    let assignment = cluster.assignments.get(&record.id)?;
    let placed = assignment.workers.iter().flat_map(|w| &w.executors).find(|e| e.id == id)?;
    Some((placed.core, core_whys(record, layout, Some(assignment)).remove(&id)))
}

fn executor(cluster: &Cluster, record: &TopologyRecord, component: Name, id: ExecutorId, core_why: Option<&String>) -> Executor {
    let assignment = cluster.assignments.get(&record.id);
    let placed = assignment.into_iter().flat_map(|a| &a.workers).find_map(|p| p.executors.iter().find(|e| e.id == id).map(|e| (p, e)));
    let beat = placed.and_then(|(p, _)| beat_of(cluster, &record.id, p)).and_then(|b| b.executors.iter().find(|e| e.id == id));
    Executor {
        component,
        first_task: id.first,
        last_task: id.last,
        node: placed.map(|(p, _)| p.slot.node.clone()),
        port: placed.map(|(p, _)| p.slot.port),
        core: beat.map(|b| b.core),
        core_assigned: placed.map(|(_, e)| e.core),
        core_why: core_why.cloned(),
        started_ms: placed.map(|(_, e)| e.started_ms),
        executed: beat.map_or(0, |b| b.executed),
        emitted: beat.map_or(0, |b| b.emitted),
        transferred: beat.map_or(0, |b| b.transferred),
        failed: beat.map_or(0, |b| b.failed),
        busy_per_mille: beat.map_or(0, |b| b.busy_per_mille),
        ended: beat.is_some_and(|b| b.ended),
    }
}

pub(crate) fn scheduled(how: &How) -> Scheduled {
    match how {
        How::Plugin(name) => Scheduled { by: "plugin", plugin: Some(name.clone()), why: None },
        How::Fallback { why } => Scheduled { by: "fallback", plugin: None, why: Some(why.clone()) },
        How::Kept { why } => Scheduled { by: "kept", plugin: None, why: Some(why.clone()) },
    }
}
