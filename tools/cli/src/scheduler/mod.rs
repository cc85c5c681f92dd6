//! `saetta scheduler`: tools for who writes a scheduler plugin, or chooses one.
//!
//! Before: an author with an idea or a `.so`, an operator with a cluster. After: a project, figures, a verdict, a reason. Of a cluster only `choose` asks.

mod bench;
mod choose;
mod inspect;
mod new;
mod replay;
mod seats;
mod simulate;
mod validate;

use crate::args::Global;
use crate::exit::Outcome;
use crate::output::Output;
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
    /// Ask a recorded round again: the same plan, or another plugin's beside it
    Replay(replay::Args),
    /// Let a running cluster use another plugin; it is tried first
    Use(choose::Use),
    /// Show which plugin a running cluster uses, and how it does
    Status,
    /// Take a quarantined plugin back at once
    Reset,
    /// List the recorded rounds of a running cluster, or fetch one
    Rounds(choose::Rounds),
    /// Tell why an executor is where it is, or nowhere
    Why(choose::Why),
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
        Scheduler::Replay(args) => replay::run(args, global, out),
        Scheduler::Use(args) => choose::choose(args, global, out).await,
        Scheduler::Status => choose::status(global, out).await,
        Scheduler::Reset => choose::reset(global, out).await,
        Scheduler::Rounds(args) => choose::rounds(args, global, out).await,
        Scheduler::Why(args) => choose::why(args, global, out).await,
    }
}
