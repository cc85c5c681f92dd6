//! The reference model on Storm's own cases of its placement strategies, and ours beside it: by setup and expected workers. Executors of one
//! component are alike, so workers are compared as sets of components: 1, 2, 3 bolts, s the spout, a an acker.

use saetta_resource_aware::BUILTIN;
use saetta_scheduling::storm;
use saetta_sdk::snapshot::Snapshot;
use saetta_sdk::testing::{Cluster, Component, Topology};
use saetta_sdk::{ExecId, abi, locality};
use std::collections::BTreeMap;

/// Spout x1 -> bolt-1 x2 -> bolt-2 x2 -> bolt-3 x2, by shuffle.
fn chain(cpu: f64, on_heap: f64, off_heap: f64, gpus: [u32; 2]) -> Topology {
    let each = |c: Component| c.cpu(cpu).memory_mb(on_heap, off_heap);
    let gpu = |c: Component, n: u32| if n > 0 { c.resource("gpu", n) } else { c };
    Topology::new("t")
        .owner("u")
        .with(each(Component::spout("spout", 1)))
        .with(each(Component::bolt("bolt-1", 2).reads("spout")))
        .with(gpu(each(Component::bolt("bolt-2", 2).reads("bolt-1")), gpus[0]))
        .with(gpu(each(Component::bolt("bolt-3", 2).reads("bolt-2")), gpus[1]))
}

fn ackers(t: Topology, n: u32, mb: u32) -> Topology {
    if n == 0 { t } else { t.with(Component::ackers(n).cpu(50).memory_mb(mb, 0)) }
}

fn four(cpu: u32, gpus: u32) -> Cluster {
    Cluster::new().nodes(4, move |n| {
        let n = n.slots(4).cpu(cpu).memory_mb(2000);
        if gpus > 0 { n.resource("gpu", gpus) } else { n }
    })
}

/// Workers of a placement, as sets of letters.
fn workers(snapshot: &Snapshot<'_>, slots: &[u32]) -> Vec<String> {
    let mut by: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (e, slot) in slots.iter().enumerate() {
        let name = snapshot.text(snapshot.components().at(saetta_sdk::CompId(snapshot.executors().at(ExecId(e as u32)).component)).name);
        let letter = name.replace("bolt-", "").replace("spout", "s").replace("__acker", "a");
        by.entry(*slot).or_default().push(letter);
    }
    let mut all: Vec<String> = by
        .into_values()
        .map(|mut w| {
            w.sort();
            w.join(" ")
        })
        .collect();
    all.sort();
    all
}

fn place(cluster: &Cluster, config: Option<&str>) -> (Vec<String>, f64) {
    let bytes = cluster.pack();
    let snapshot = Snapshot::new(&bytes).expect("packed in canonical order");
    let slots = match config {
        None => storm::place(&snapshot),
        Some(config) => {
            let mut slots = vec![abi::NONE; snapshot.executors().len()];
            saetta_scheduling::round(BUILTIN, config, &bytes, &mut slots, snapshot.topologies().len()).expect("a round");
            slots
        }
    };
    (workers(&snapshot, &slots), locality::cost(&snapshot, &slots))
}

/// Name, cluster, Storm's workers, and ours in Storm's order where they differ.
type Case = (&'static str, Cluster, Vec<&'static str>, Option<Vec<&'static str>>);

#[test]
fn storms_cases_have_storms_workers() {
    let heap = |t: Topology| t.worker_heap_mb(2000);
    let shared = |flags: u32| {
        let each = |c: Component| c.cpu(10).memory_mb(10, 10);
        let t = Topology::new("t").owner("u").flags(flags).worker_heap_mb(2000);
        t.shared_mb("w", 0, 600, 0)
            .shared_mb("n", 0, 0, 700)
            .shared_mb("h", 400, 0, 0)
            .with(each(Component::spout("spout", 2)))
            .with(each(Component::bolt("bolt-1", 2).reads("spout").shares("w")))
            .with(each(Component::bolt("bolt-2", 2).reads("bolt-1").shares("n")))
            .with(each(Component::bolt("bolt-3", 2).reads("bolt-2").shares("h")))
    };
    let plain = |n| four(200, 0).topology(heap(ackers(chain(50.0, 450.0, 0.0, [0, 0]), n, 250)));
    let generic = |n| four(200, 2).topology(heap(ackers(chain(50.0, 500.0, 0.0, [1, 2]), n, 250)));
    let near = |gpus| {
        let t = chain(50.0, 250.0, 250.0, gpus).worker_heap_mb(2000).flags(abi::TOPO_ORDER_BY_PROXIMITY);
        t.with(Component::ackers(1).cpu(10).memory_mb(128, 0))
    };
    let cases: [Case; 11] = [
        ("ackers 2", plain(2), vec!["a 1 2 3", "a 1 2 3", "s"], None),
        ("ackers 0", plain(0), vec!["1 2 2 3", "1 3 s"], None),
        ("ackers 4", plain(4), vec!["1 3 s", "a a 1 2", "a a 2 3"], None),
        ("generic, ackers 2", generic(2), vec!["3", "1 2 2 a", "1 3 a s"], None),
        ("generic, ackers 0", generic(0), vec!["3", "1 1 2 2", "3 s"], None),
        // Storm's workers come from its inverted rule: nodes are sorted anew only when the component stays the same. We always sort.
        ("generic, ackers 4", generic(4), vec!["3", "a a 1 2", "a a 1 3", "2 s"], Some(vec!["a a 1 2", "a a 1 3", "2", "3 s"])),
        ("proximity", four(200, 0).topology(near([0, 0])), vec!["s 2 1 a", "3 2 3 1"], None),
        ("proximity, generic", four(200, 2).topology(near([1, 2])), vec!["s 1 2 a", "3 1", "2", "3"], None),
        ("shared memory", four(500, 0).topology(shared(0)), vec!["1 1 2 2 3 3 s s"], None),
        (
            "shared memory, one executor in a worker",
            four(500, 0).topology(shared(abi::TOPO_ONE_EXEC_PER_WORKER)),
            vec!["1", "1", "2", "2", "3", "3", "s", "s"],
            None,
        ),
        (
            "shared memory, one component in a worker",
            four(500, 0).topology(shared(abi::TOPO_ONE_COMP_PER_WORKER)),
            vec!["1 1", "2 2", "3 3", "s s"],
            None,
        ),
    ];
    for (name, cluster, expected, ours) in cases {
        let sort = |groups: Vec<&str>| {
            let letters = |g: &str| {
                let mut letters: Vec<&str> = g.split(' ').collect();
                letters.sort_unstable();
                letters.join(" ")
            };
            let mut groups: Vec<String> = groups.into_iter().map(letters).collect();
            groups.sort();
            groups
        };
        let expected = sort(expected);
        let (reference, cost) = place(&cluster, None);
        assert_eq!(reference, expected, "{name}: the reference");
        // Ours in Storm's order, where it sorts the nodes anew for each executor.
        let (same, _) = place(&cluster, Some(r#"{"compare_orders": false}"#));
        assert_eq!(same, ours.map_or(expected, sort), "{name}: ours in Storm's order");
        let (_, best) = place(&cluster, Some("{}"));
        assert!(best <= cost, "{name}: ours costs {best}, Storm's {cost}");
    }
}
