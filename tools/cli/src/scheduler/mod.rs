//! `saetta scheduler`: tools for who writes a scheduler plugin, or chooses one.
//!
//! Before: an author with an idea or a `.so`, an operator with a cluster. After: figures, a verdict, a reason. Only `why` asks a cluster.

mod bench;
mod seats;
mod simulate;

use crate::args::Global;
use crate::exit::Outcome;
use crate::output::Output;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Scheduler {
    /// Play a scenario, or a cluster as it is, with each scheduler; compare what they make of it
    Simulate(simulate::Args),
    /// Time rounds on ever larger clusters
    Bench(bench::Args),
}

pub(crate) async fn run(command: &Scheduler, global: &Global, out: Output) -> Outcome {
    match command {
        Scheduler::Simulate(args) => simulate::run(args, global, out),
        Scheduler::Bench(args) => bench::run(args, global, out),
    }
}
