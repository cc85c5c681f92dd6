//! Every shipped plugin on 1,000 random clusters, as the `.so` it is shipped as, in the helper it runs in. What must hold stands in
//! `saetta_sched_sim::random`. A seed that fails is printed; `SAETTA_SEED=n` plays it alone, `SAETTA_PLUGIN=name` one plugin.

mod common;

use saetta_sched_host::ask::Desk;
use saetta_sched_host::process::What;
use saetta_sched_sim::random::{Seen, check};
use saetta_sched_sim::seat::Seat;
use std::path::Path;

/// Clusters for each plugin.
const SEEDS: u64 = 1_000;
/// One of the two instances is new after so many, so that what an instance remembers cannot make answers.
const FRESH_EVERY: u64 = 50;
/// Stages before a scheduler: as schedulers they place nothing.
const STAGES: [&str; 1] = ["blacklist"];

/// By the folder of their crate.
fn shipped() -> Vec<String> {
    let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
    let mut names: Vec<String> = std::fs::read_dir(plugins)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().join("Cargo.toml").is_file())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn seat(plugin: &str) -> Seat {
    let dir = common::shipped_dir();
    let path = dir.join(format!("libsaetta_{}.so", plugin.replace('-', "_")));
    assert!(path.is_file(), "no {}: make saetta-{plugin} a dev-dependency of saetta-sched-host, then cargo builds it here", path.display());
    Seat::Apart(Box::new(Desk::new(common::options(plugin, &dir), What::Plugin { name: plugin.to_owned(), path })))
}

#[test]
fn every_plugin_keeps_its_promises_on_a_thousand_random_clusters() {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().unwrap());
    let seeds = number("SAETTA_SEED").map_or(0..SEEDS, |seed| seed..seed + 1);
    let only = std::env::var("SAETTA_PLUGIN").ok();
    let mut failures = Vec::new();
    for plugin in shipped().iter().filter(|p| only.as_ref().is_none_or(|o| o == *p)) {
        let (mut one, mut two) = (seat(plugin), seat(plugin));
        let mut sum = Seen::default();
        let mut failed = 0;
        for seed in seeds.clone() {
            if seed % FRESH_EVERY == 0 {
                two = seat(plugin);
            }
            match check(seed, &mut one, &mut two) {
                Ok(seen) => sum.add(seen),
                Err(what) if failed < 3 => {
                    failed += 1;
                    failures.push(format!("{plugin}: {what}"));
                }
                Err(_) => failed += 1,
            }
        }
        println!("{plugin}: seeds {seeds:?}, {sum:?}, {failed} failed");
        let is_one = seeds.end - seeds.start < SEEDS;
        if !is_one && !STAGES.contains(&plugin.as_str()) && failed == 0 {
            assert!(sum.placed > 10_000 && sum.unplaced > 1_000, "{plugin}: the clusters ask too little of it: {sum:?}");
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
