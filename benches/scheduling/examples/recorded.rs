//! All figures of one recorded cluster, without the rest of the suites: `cargo run --release -p saetta-scheduling --example recorded -- FILE`.

use saetta_resource_aware::BUILTIN;
use saetta_scheduling::{again, cold, each_again};
use saetta_sdk::testing::recorded::Recorded;

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
    let (ms, moves) = again(BUILTIN, &config, &cluster, &placed)?;
    println!("again {ms:.1} ms, {moves} moves");
    let mut each = each_again(BUILTIN, &config, &cluster, &placed)?;
    each.sort_by(f64::total_cmp);
    println!("one again: median {:.2} ms, largest {:.2} ms", each[each.len() / 2], each[each.len() - 1]);
    Ok(())
}
