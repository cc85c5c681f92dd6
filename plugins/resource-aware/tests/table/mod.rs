//! Cases of a resource-aware round as data: a cluster, what happens to it, what must hold after the next round.
//!
//! Each is also run once more with its plan in force: nothing may move then.
#![allow(dead_code, reason = "each of the tests that share this uses some of it")]

use saetta_resource_aware::BUILTIN;
use saetta_sdk::snapshot::Snapshot;
use saetta_sdk::testing::{Cluster, Component, Done, Topology};
use saetta_sdk::{abi, usage};
use std::collections::BTreeSet;

/// What must hold.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Holds {
    /// All executors of the topology are placed.
    Runs(&'static str),
    /// None is placed, and said so.
    Out(&'static str),
    /// Some are placed and some are not, and said so.
    Partly(&'static str),
    /// It can never be placed as it is, and said so; nothing of it is touched.
    Invalid(&'static str),
    /// So many of all topologies run as a whole.
    Run(usize),
    /// Workers and nodes a topology uses.
    Uses(&'static str, usize, usize),
    /// The nodes it uses, all of which begin so.
    On(&'static str, &'static str),
    /// Racks it uses, where a node's name is its rack's, a dash and the rest.
    Racks(&'static str, usize),
    /// CPU in percent of a core and memory in MB that all nodes together give away.
    Takes(i64, i64),
    /// Running executors that moved or were evicted.
    Moved(usize),
}
pub(crate) use Holds::*;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) cluster: Cluster,
    /// Put into the cluster after a first round has placed all of the above.
    pub(crate) then: Vec<Topology>,
    /// Nodes lost after that first round.
    pub(crate) lost: &'static [&'static str],
    pub(crate) config: &'static str,
    pub(crate) holds: Vec<Holds>,
}

pub(crate) fn case(name: &'static str, cluster: Cluster, then: Vec<Topology>, holds: &[Holds]) -> Case {
    Case { name, cluster, then, lost: &[], config: "{}", holds: holds.to_vec() }
}

pub(crate) fn with(name: &'static str, config: &'static str, cluster: Cluster, then: Vec<Topology>, holds: &[Holds]) -> Case {
    Case { config, ..case(name, cluster, then, holds) }
}

pub(crate) fn losing(name: &'static str, lost: &'static [&'static str], cluster: Cluster, holds: &[Holds]) -> Case {
    Case { lost, ..case(name, cluster, vec![], holds) }
}

fn check(case: &Case, done: &Done, topologies: &[String], after: &Cluster) {
    for holds in &case.holds {
        let name = case.name;
        match *holds {
            Runs(t) => assert_eq!((done.outcome(t), done.unplaced(t)), (abi::OUT_SCHEDULED, 0), "{name}: {t}"),
            Out(t) => assert_eq!((done.outcome(t), done.workers(t).len()), (abi::OUT_UNSCHEDULABLE, 0), "{name}: {t}"),
            Partly(t) => {
                assert_eq!(done.outcome(t), abi::OUT_PARTIAL, "{name}: {t}");
                assert!(done.unplaced(t) > 0 && !done.workers(t).is_empty(), "{name}: {t}");
            }
            Invalid(t) => assert_eq!(done.outcome(t), abi::OUT_INVALID_TOPOLOGY, "{name}: {t}"),
            Run(n) => assert_eq!(topologies.iter().filter(|t| done.outcome(t) == abi::OUT_SCHEDULED).count(), n, "{name}: how many run"),
            Uses(t, workers, nodes) => assert_eq!((done.workers(t).len(), done.nodes(t).len()), (workers, nodes), "{name}: {t}"),
            On(t, begin) => assert!(done.nodes(t).iter().all(|n| n.starts_with(begin)), "{name}: {t} is on {:?}", done.nodes(t)),
            Racks(t, n) => {
                let racks: BTreeSet<&str> = done.nodes(t).iter().filter_map(|n| n.split('-').next()).collect();
                assert_eq!(racks.len(), n, "{name}: {t} is in {racks:?}");
            }
            Takes(cpu, mb) => {
                let bytes = after.pack();
                let taken = usage::taken(&Snapshot::new(&bytes).expect("packed"));
                let sum = |kind: usize, unit: i64| taken.iter().map(|t| t[kind]).sum::<i64>() / unit;
                assert_eq!((sum(0, 1000), sum(1, 1 << 20)), (cpu, mb), "{name}: CPU and MB taken");
            }
            Moved(n) => assert_eq!(done.moved, n, "{name}: moved"),
        }
    }
}

pub(crate) fn run(case: &Case) {
    let mut cluster = case.cluster.clone();
    if !case.then.is_empty() || !case.lost.is_empty() {
        let before = cluster.ask().config(case.config).run(BUILTIN).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        cluster = case.then.iter().cloned().fold(cluster.after(&before), Cluster::topology);
        cluster = case.lost.iter().fold(cluster, |cluster, node| cluster.without_node(node));
    }
    let ask =
        |cluster: &Cluster| cluster.ask().config(case.config).may_preempt().run(BUILTIN).unwrap_or_else(|e| panic!("{}: {e}", case.name));
    let done = ask(&cluster);
    let after = cluster.after(&done);
    let bytes = cluster.pack();
    let snapshot = Snapshot::new(&bytes).expect("packed");
    let names: Vec<String> = snapshot.topologies().iter().map(|t| snapshot.text(t.id).to_owned()).collect();
    check(case, &done, &names, &after);
    assert_eq!(ask(&after).moved, 0, "{}: a second round without change", case.name);
}

/// `n` executors of one spout.
pub(crate) fn spouts(name: &str, n: u32, cpu: f64, mb: f64) -> Topology {
    Topology::new(name).owner("u").priority(29).worker_heap_mb(768).with(Component::spout("spout", n).cpu(cpu).memory_mb(mb, 0))
}

pub(crate) fn of(user: &str, priority: i32, t: Topology) -> Topology {
    t.owner(user).priority(priority)
}

pub(crate) fn nodes(n: usize, slots: u32, cpu: f64, mb: f64) -> Cluster {
    Cluster::new().nodes(n, |node| node.slots(slots).cpu(cpu).memory_mb(mb))
}
