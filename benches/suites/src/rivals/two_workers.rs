//! Ours in two worker processes, as supervisors start them: one hop, and the words of `examples/wordcount`.
//!
//! Before: a workload of two processes. After: tuples a second as the last bolt's worker counts them, and processor time of both workers as the
//! kernel counts it. Loops spin, one on each core; workers of one host share memory, as they do by default.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use saetta_harness::Result;
use saetta_harness::suite::{Figures, Options};
use saetta_model::topology::TopologySpec;
use serde::Deserialize;

use super::definition::Sizes;
use crate::transport::{self, Carrier};
use crate::transport_topology::Load;
use crate::wordcount;
use crate::workers::{Place, Run, Workers};

/// What a topology's binary says of itself.
#[derive(Deserialize)]
struct Described {
    spec: TopologySpec,
    config: BTreeMap<String, String>,
}

/// Tuples of 100 bytes, from a spout in one worker to a bolt in the other.
pub(super) fn hop(o: &Options) -> Result<Figures> {
    transport::stream(o, Carrier::Memory, None, Load::Small, |_| Ok(Figures::new()))
}

/// Words of the text, over and over: read and split in one worker, counted in the other.
pub(super) fn words(o: &Options, sizes: &Sizes, text: &Path) -> Result<Figures> {
    let binary = wordcount::built()?;
    let args = vec!["--repeat".to_owned(), text.display().to_string()];
    let output = Command::new(&binary).arg("describe").args(&args).output()?;
    let described: Described = serde_json::from_slice(&output.stdout)?;
    let config = [("topology.workers", "2"), ("topology.acker.executors", "0")];
    let config = config.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let run = Run { binary: Some(binary), spec: described.spec, code: described.config, args, config };
    let place = |core, components| Place { core, components, wait: "spin", end: None };
    let mut workers = Workers::start(run, &[place(o.cores.0, &["read", "split"]), place(o.cores.1, &["count"])])?;
    let end = Instant::now() + Duration::from_millis(sizes.warm_up_native_ms);
    while workers.executed(1)?.1 == 0 || Instant::now() < end {}
    let ((start, before), cpu) = (workers.executed(1)?, workers.cpu()?);
    let end = start + Duration::from_millis(sizes.window_ms);
    loop {
        let (at, counted) = workers.executed(1)?;
        if at >= end && counted > before {
            let cpu_ns = (workers.cpu()? - cpu).as_nanos() as f64;
            let words = (counted - before) as f64;
            workers.stop()?;
            return Ok(Figures::from([("millions", words / (at - start).as_secs_f64() / 1e6), ("cpu_ns", cpu_ns / words)]));
        }
    }
}
