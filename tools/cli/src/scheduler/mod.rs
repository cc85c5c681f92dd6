//! `saetta scheduler`: tools for who writes a scheduler plugin, or chooses one.
//!
//! Before: an author with an idea or a `.so`, an operator with a cluster. After: a project, figures, a verdict, a reason. Only `why` asks a cluster.

mod bench;
mod inspect;
mod new;
mod seats;
mod simulate;
mod validate;
mod why;

use crate::args::Global;
use crate::client::Client;
use crate::exit::Outcome;
use crate::output::Output;
use crate::settings::{Reader, load};
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Scheduler {
    /// Make a project with a build, a test and a scheduler to begin with
    New(new::Args),
    /// Tell what a plugin's file says of itself, without running code of it
    Inspect(inspect::Args),
    /// Run the conformance suite: each check in a process of its own, under nimbus's limits
    Validate(validate::Args),
    /// List the checks of the conformance suite
    ListTests,
    /// Play a scenario, or a cluster as it is, with each scheduler; compare what they make of it
    Simulate(simulate::Args),
    /// Time rounds on ever larger clusters
    Bench(bench::Args),
    /// Tell where an executor is, who put it there, and why not elsewhere
    Why(why::Args),
}

pub(crate) async fn run(command: &Scheduler, global: &Global, out: Output) -> Outcome {
    match command {
        Scheduler::New(args) => new::run(args, out),
        Scheduler::Inspect(args) => inspect::run(args, out),
        Scheduler::Validate(args) => validate::run(args, out),
        Scheduler::ListTests => {
            validate::list(out);
            Ok(())
        }
        Scheduler::Simulate(args) => simulate::run(args, global, out),
        Scheduler::Bench(args) => bench::run(args, global, out),
        Scheduler::Why(args) => why::run(args, &Client::new(&load(global, Reader::Daemon)?)?, out).await,
    }
}
