//! What both tests need: the bytes that cross nodes, counted pair by pair from what was written down.

#![allow(dead_code, reason = "each test takes what it needs")]

use saetta_sdk::abi;
use saetta_sdk::testing::Done;

/// A subscription: from, to, grouping, bytes per second over all its pairs.
pub(crate) type Edge = (usize, usize, u32, f64);

/// Bytes per second between nodes. `n_execs` by component, which is named `c0`, `c1`...
pub(crate) fn crossing(done: &Done, topology: &str, n_execs: &[usize], edges: &[Edge]) -> f64 {
    let node = |c: usize, i: usize| {
        let slot = done.slot(topology, &format!("c{c}"), i)?;
        Some(slot.split(':').next().expect("node:port").to_owned())
    };
    let mut sum = 0.0;
    for (from, to, grouping, bytes) in edges {
        let targets = if *grouping == abi::GROUP_GLOBAL { 1 } else { n_execs[*to] };
        for (i, j) in (0..n_execs[*from]).flat_map(|i| (0..targets).map(move |j| (i, j))) {
            if let (Some(a), Some(b)) = (node(*from, i), node(*to, j))
                && a != b
            {
                sum += bytes / (n_execs[*from] * targets) as f64;
            }
        }
    }
    sum
}
