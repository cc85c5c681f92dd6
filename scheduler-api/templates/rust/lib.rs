//! @NAME@: a scheduler plugin of Saetta.
//!
//! Before: nimbus packed the cluster. After: the plan says where each executor runs.
//! The rule to begin with: what runs stays; each topology takes free slots up to the workers it wants; an executor without a slot
//! goes to the worker of its topology that holds fewest. Change `choose_worker` and `claim_workers` to yours.
#![forbid(unsafe_code)]

use saetta_sdk::{CreateCx, ExecId, Outcome, Plan, PluginError, Round, Scheduler, SlotId, TopoId, Verdict, abi};

struct Mine;

saetta_sdk::export_scheduler!(Mine, id = "@NAME@");

/// What `schedule` remembers of a slot.
struct Worker {
    /// The topology that has the slot by the plan so far.
    topology: Option<TopoId>,
    /// Executors of it there, by the plan so far.
    n_execs: u32,
    /// Whether something new may be placed there.
    assignable: bool,
}

impl Scheduler for Mine {
    fn create(_: &CreateCx<'_>) -> Result<Self, PluginError> {
        Ok(Mine)
    }

    fn schedule(&mut self, round: &Round<'_>, plan: &mut Plan<'_>) -> Result<Verdict, PluginError> {
        let snapshot = &round.snapshot;
        let mut workers: Vec<Worker> = snapshot
            .slots()
            .iter()
            .map(|slot| Worker {
                topology: TopoId::some(slot.topology),
                n_execs: 0,
                assignable: slot.flags & abi::SLOT_ASSIGNABLE != 0,
            })
            .collect();
        for (t, topology) in snapshot.topologies().with_ids() {
            if round.should_stop() {
                break;
            }
            if topology.flags & abi::TOPO_SCHEDULE != 0 {
                let execs: Vec<ExecId> = snapshot.executors_of(&topology).map(|(e, _)| e).collect();
                place(plan, &mut workers, t, topology.workers_wanted, &execs);
            }
        }
        Ok(Verdict::Done)
    }
}

fn place(plan: &mut Plan<'_>, workers: &mut [Worker], t: TopoId, wanted: u32, execs: &[ExecId]) {
    let mut unplaced = Vec::new();
    for e in execs {
        match plan.slot_of(*e) {
            Some(slot) => workers[slot.index()].n_execs += 1,
            None => unplaced.push(*e),
        }
    }
    if unplaced.is_empty() {
        return;
    }
    claim_workers(workers, t, wanted, unplaced.len());
    let mut n_left = unplaced.len();
    for e in unplaced {
        let Some(s) = choose_worker(workers, t) else { break };
        plan.place(e, SlotId(s as u32));
        workers[s].n_execs += 1;
        n_left -= 1;
    }
    plan.outcome(
        t,
        match n_left {
            0 => Outcome::Scheduled,
            n if n == execs.len() => Outcome::Unschedulable,
            _ => Outcome::Partial,
        },
    );
}

/// Gives a topology free slots until it has the workers it wants, at most `n_new` more.
fn claim_workers(workers: &mut [Worker], t: TopoId, wanted: u32, n_new: usize) {
    let n_workers = workers.iter().filter(|w| w.topology == Some(t)).count();
    let n = n_new.min((wanted as usize).saturating_sub(n_workers));
    workers.iter_mut().filter(|w| w.topology.is_none() && w.assignable).take(n).for_each(|w| w.topology = Some(t));
}

/// The topology's worker that holds fewest executors.
fn choose_worker(workers: &[Worker], t: TopoId) -> Option<usize> {
    (0..workers.len()).filter(|s| workers[*s].topology == Some(t) && workers[*s].assignable).min_by_key(|s| workers[*s].n_execs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use saetta_sdk::testing::{Cluster, Component, Topology};

    #[test]
    fn three_executors_are_spread_over_two_workers_and_stay_there() {
        let topology = Topology::new("words").workers(2).with(Component::spout("lines", 3));
        let cluster = Cluster::new().nodes(1, |n| n.slots(2)).topology(topology);
        let done = cluster.run(BUILTIN);
        assert_eq!(done.outcome("words"), abi::OUT_SCHEDULED);
        assert_eq!(done.groups("words"), [vec!["lines"], vec!["lines", "lines"]]);
        assert_eq!(cluster.after(&done).run(BUILTIN).moved, 0);
    }
}
