//! From what the store says to what each slot of this node shall run.
//!
//! Before: assignments and records as read. After: one job per slot, for `slot` to step towards.
//! Pure.

use crate::dir::Known;
use crate::slot::Job;
use saetta_model::{Assignment, Name, TopologyRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One reading of the store, as far as it concerns this node.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct View {
    /// What each slot shall run; a slot not named here shall be empty.
    pub jobs: BTreeMap<u16, Job>,
    /// Record and assignment of every topology named in `jobs`.
    pub topologies: BTreeMap<Name, Arc<Known>>,
    /// Topologies about which nothing is known, because a node of theirs is unreadable: slots that run them keep them.
    pub unreadable: BTreeSet<Name>,
    /// What an operator should see; one line each.
    pub problems: Vec<String>,
}

/// Picks what concerns `node`. `current` says what each slot runs now: it decides when two topologies claim one slot.
pub(crate) fn view(
    node: &Name,
    ports: &BTreeSet<u16>,
    assignments: BTreeMap<Name, Assignment>,
    mut records: BTreeMap<Name, TopologyRecord>,
    unreadable: BTreeSet<Name>,
    current: &BTreeMap<u16, Name>,
) -> View {
    let mut view = View { unreadable, ..View::default() };
    for (id, assignment) in assignments {
        if view.unreadable.contains(&id) || assignment.on(node).next().is_none() {
            continue;
        }
        let Some(record) = records.remove(&id) else {
            // A killed topology loses its assignment before its record, so this is a reading in between; the next one settles it.
            view.problems.push(format!("topology {id} has an assignment and no record"));
            continue;
        };
        if !is_sha256(&assignment.binary) {
            view.problems.push(format!("topology {id}: its binary {:?} is not the SHA-256 of anything", assignment.binary));
            continue;
        }
        for placement in assignment.on(node) {
            let port = placement.slot.port;
            if !ports.contains(&port) {
                view.problems.push(format!("topology {id} is assigned to port {port}, which is not in supervisor.slots.ports"));
                continue;
            }
            let job = Job { topology: id.clone(), binary: assignment.binary.clone(), placement: placement.id };
            match view.jobs.get(&port) {
                Some(other) => {
                    view.problems.push(format!("topologies {} and {id} are both assigned to port {port}", other.topology));
                    if current.get(&port) == Some(&id) {
                        view.jobs.insert(port, job);
                    }
                }
                None => drop(view.jobs.insert(port, job)),
            }
        }
        view.topologies.insert(id, Arc::new(Known { record, assignment }));
    }
    view
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use saetta_model::cluster::SlotId;
    use saetta_model::record::TopologyState;
    use saetta_model::topology::{Format, TopologySpec};
    use saetta_model::{Placement, assignment::ExecutorPlace, parallelism::ExecutorId};

    pub(crate) fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn record(id: &str) -> TopologyRecord {
        let format = Format { archive: "rkyv 0.8".into(), endian: "little".into(), unaligned: true, pointer_bits: 32 };
        TopologyRecord {
            id: name(id),
            name: name(id),
            spec: TopologySpec { saetta: "0.1.0".into(), format, components: vec![] },
            digest: String::new(),
            binary: "a".repeat(64),
            args: vec![],
            config: BTreeMap::new(),
            owner: String::new(),
            priority: 0,
            submitted_ms: 0,
            state: TopologyState::Active,
            request: String::new(),
            finished: false,
        }
    }

    fn assignment(places: &[(&str, u16, u64)]) -> Assignment {
        let workers = places
            .iter()
            .map(|(node, port, id)| Placement {
                slot: SlotId { node: name(node), port: *port },
                id: *id,
                index: 0,
                cores: vec![0],
                share: 1,
                executors: vec![ExecutorPlace { id: ExecutorId { first: 1, last: 1 }, core: 0, started_ms: 0, planned: false }],
            })
            .collect();
        Assignment { version: 1, binary: "a".repeat(64), hosts: BTreeMap::new(), workers }
    }

    fn look(assignments: &[(&str, Assignment)], records: &[&str], current: &[(u16, &str)]) -> View {
        view(
            &name("n1"),
            &BTreeSet::from([6700, 6701]),
            assignments.iter().map(|(id, a)| (name(id), a.clone())).collect(),
            records.iter().map(|id| (name(id), record(id))).collect(),
            BTreeSet::new(),
            &current.iter().map(|(port, id)| (*port, name(id))).collect(),
        )
    }

    #[test]
    fn only_placements_of_this_node_become_jobs() {
        let v =
            look(&[("wc", assignment(&[("n1", 6701, 7), ("n2", 6700, 8)])), ("far", assignment(&[("n2", 6701, 9)]))], &["wc", "far"], &[]);
        assert_eq!(v.jobs.keys().copied().collect::<Vec<_>>(), [6701]);
        assert_eq!(v.jobs[&6701].placement, 7);
        assert_eq!(v.topologies.len(), 1);
        assert!(v.problems.is_empty());
    }

    #[test]
    fn two_claims_on_a_slot_leave_it_with_the_one_that_runs() {
        let both = [("a", assignment(&[("n1", 6700, 1)])), ("b", assignment(&[("n1", 6700, 2)]))];
        assert_eq!(look(&both, &["a", "b"], &[]).jobs[&6700].topology, name("a"));
        let v = look(&both, &["a", "b"], &[(6700, "b")]);
        assert_eq!(v.jobs[&6700].topology, name("b"));
        assert_eq!(v.problems, ["topologies a and b are both assigned to port 6700"]);
    }

    #[test]
    fn what_cannot_be_run_is_a_problem_and_no_job() {
        let mut bad = assignment(&[("n1", 6700, 1)]);
        bad.binary = "../../etc/passwd".into();
        let v = look(&[("bad", bad), ("lost", assignment(&[("n1", 6701, 2)])), ("odd", assignment(&[("n1", 9, 3)]))], &["bad", "odd"], &[]);
        assert!(v.jobs.is_empty());
        assert_eq!(v.problems.len(), 3, "{:?}", v.problems);
    }
}
