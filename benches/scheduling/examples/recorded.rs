//! All figures of one recorded cluster, without the rest of the suites: `cargo run --release -p saetta-scheduling --example recorded -- FILE`.

use saetta_resource_aware::BUILTIN;
use saetta_scheduling::{again, cold, each_again, storm};
use saetta_sdk::snapshot::Snapshot;
use saetta_sdk::testing::recorded::Recorded;
use saetta_sdk::{TopoId, abi, locality};

fn main() -> Result<(), String> {
    let path = std::env::args().nth(1).ok_or("name a file of a recorded cluster")?;
    let config = std::env::args().nth(2).unwrap_or_else(|| "{}".into());
    let cluster = Recorded::parse(&std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?)?;
    println!(
        "{} executors, {} nodes, {} slots, {} topologies",
        cluster.n_execs(),
        cluster.n_nodes(),
        cluster.n_slots(),
        cluster.n_topologies()
    );
    for _ in 0..3 {
        let (ms, placed) = cold(BUILTIN, &config, &cluster)?;
        println!("cold {ms:.1} ms, cost {:.0}", cluster.cost(&placed));
    }
    let (_, placed) = cold(BUILTIN, &config, &cluster)?;
    let bytes = cluster.pack(&cluster.nothing_placed());
    let snapshot = Snapshot::new(&bytes).map_err(|e| e.to_string())?;
    let reference = storm::place(&snapshot);
    let left = reference.iter().filter(|s| **s == abi::NONE).count();
    let (ours, theirs) = (cluster.cost(&placed), cluster.cost(&reference));
    println!("Storm's: {left} not placed, cost {theirs:.0}; ours over it {:.3}", ours / theirs);
    for t in 0..cluster.n_topologies() {
        let cost = |p: &[u32]| locality::cost_of(&snapshot, TopoId(t as u32), p);
        let workers = |p: &[u32]| p[cluster.execs_of(t)].iter().collect::<std::collections::BTreeSet<_>>().len();
        let (ours, theirs) = (cost(&placed), cost(&reference));
        let (w, v) = (workers(&placed), workers(&reference));
        println!("{} {} executors: {ours:.0} in {w} workers, Storm's {theirs:.0} in {v}", cluster.topology(t), cluster.execs_of(t).len());
    }
    let (ms, moves) = again(BUILTIN, &config, &cluster, &placed)?;
    println!("again {ms:.1} ms, {moves} moves");
    let mut each = each_again(BUILTIN, &config, &cluster, &placed)?;
    each.sort_by(f64::total_cmp);
    println!("one again: median {:.2} ms, largest {:.2} ms", each[each.len() / 2], each[each.len() - 1]);
    Ok(())
}
