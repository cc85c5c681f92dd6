//! A scheduler that does what its configuration says, for `tests/under_the_filters.rs`: what a plugin in Rust may do during a round.

use saetta_sdk::{CreateCx, Plan, PluginError, Round, Scheduler, Verdict};
use std::collections::HashMap;

struct Odd {
    config: String,
}

saetta_sdk::export_scheduler!(Odd, id = "odd", flags = ["threads"]);

impl Scheduler for Odd {
    fn create(cx: &CreateCx<'_>) -> Result<Self, PluginError> {
        Ok(Odd { config: cx.config.to_owned() })
    }

    fn schedule(&mut self, round: &Round<'_>, _: &mut Plan<'_>) -> Result<Verdict, PluginError> {
        if self.config.contains("panic") {
            panic!("round {} is odd", round.round_id);
        }
        if self.config.contains("threads") {
            let sums: Vec<_> =
                (0..4u64).map(|t| std::thread::Builder::new().spawn(move || (0..1000).map(|i| i * t).sum::<u64>())).collect();
            for sum in sums {
                sum.map_err(|e| PluginError::internal(format!("no thread: {e}")))?.join().expect("a sum");
            }
        }
        if self.config.contains("deep") {
            return Err(PluginError::internal(format!("the stack has room for {}", deep(1, round.round_id))));
        }
        // Seeded by the kernel, large enough to be given back to it.
        let map: HashMap<u64, [u64; 16]> = (0..100_000).map(|i| (i, [i; 16])).collect();
        let started = std::time::Instant::now();
        assert!(map.len() == 100_000 && started.elapsed().as_secs() < 60);
        Ok(Verdict::NoChange)
    }
}

/// Goes on until the stack ends.
fn deep(depth: u64, seed: u64) -> u64 {
    let frame = std::hint::black_box([depth; 512]);
    if seed == u64::MAX { frame[0] } else { deep(depth + 1, seed) + frame[511] }
}
