//! `saetta scheduler bench`: how the time of a round grows with the cluster, or what it is on one of a file.

use super::seats::Plugins;
use super::simulate::{decimal, read};
use crate::args::{Format, Global};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{Column, Output, data, text};
use saetta_sched_sim::ladder::{RUNGS, Rung, climb, time};
use serde_json::Value;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    plugins: Plugins,
    /// Sizes of the clusters, machines
    #[arg(long, value_name = "N,N..", value_delimiter = ',', default_values_t = RUNGS, value_parser = clap::value_parser!(u32).range(1..=NODES_MAX))]
    nodes: Vec<u32>,
    /// Times rounds on the machines and topologies of this file instead, and places each topology again
    #[arg(long, value_name = "SCENARIO|CLUSTER.json", conflicts_with = "nodes")]
    cluster: Option<PathBuf>,
    /// Loads plugins into this process: without the way to a helper and back, and without its protection
    #[arg(long)]
    in_process: bool,
}

/// Largest cluster that is timed; 20 machines have 300 executors.
const NODES_MAX: i64 = 10_000;

pub(crate) fn run(args: &Args, global: &Global, out: Output) -> Outcome {
    let cluster = args.cluster.as_deref().map(read).transpose()?;
    let mut rungs: Vec<Value> = Vec::new();
    let mut done = |rung: Rung| -> Outcome {
        if let Some(why) = rung.failed {
            return Err(Failure::new(Exit::Failed, format!("plugin {} on {} nodes", rung.plugin, rung.nodes)).why(why));
        }
        let rung = serde_json::to_value(rung).expect("figures are always JSON");
        // A long run tells what it has.
        if out.format == Format::Ndjson {
            data(&rung.to_string());
        }
        rungs.push(rung);
        Ok(())
    };
    for (name, mut seat) in args.plugins.seats(global, args.in_process, cluster.as_ref())? {
        match &cluster {
            Some(cluster) => done(time(&name, &mut seat, cluster, usize::MAX))?,
            None => args.nodes.iter().try_for_each(|nodes| done(climb(&name, &mut seat, *nodes)))?,
        }
    }
    let columns = [
        Column { head: "PLUGIN", wide: false, text: |r| text(r, "plugin") },
        Column { head: "NODES", wide: false, text: |r| text(r, "nodes") },
        Column { head: "EXECUTORS", wide: false, text: |r| text(r, "executors") },
        Column { head: "SCHEDULED", wide: false, text: |r| text(r, "scheduled") },
        Column { head: "ALL MS", wide: false, text: |r| decimal(&text(r, "cold_ms"), 2) },
        Column { head: "AGAIN MS", wide: false, text: |r| decimal(&text(r, "again_ms"), 2) },
        Column { head: "AGAIN MOVES", wide: false, text: |r| text(r, "again_moves") },
        Column { head: "ONE P50 MS", wide: false, text: |r| decimal(&text(r, "one_p50_ms"), 2) },
        Column { head: "ONE MAX MS", wide: false, text: |r| decimal(&text(r, "one_max_ms"), 2) },
    ];
    if out.format != Format::Ndjson {
        out.list("SchedulerBench", &rungs, &columns);
    }
    Ok(())
}
