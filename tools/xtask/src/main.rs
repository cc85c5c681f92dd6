//! The project's own commands: `cargo xtask ci | tidy | bench | fuzz | zookeeper | cluster`.
//!
//! Before: a person, or `.ci/run`. After: cargo, java and our binaries, as processes.
//! Absences: no crate of ours and no runtime, so that it is built in seconds on a bare machine.
#![forbid(unsafe_code)]

mod bench;
mod ci;
mod cluster;
mod fuzz;
mod needs;
mod process;
mod tidy;
mod zookeeper;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks of the Saetta workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything a change has to pass, with the time of each step and one line of sum at the end
    Ci {
        /// Install what the machine lacks without asking (also with CI=true in the environment)
        #[arg(long)]
        yes: bool,
        /// Only this step, e.g. `--only loom`; may be given several times
        #[arg(long)]
        only: Vec<String>,
    },
    /// Checks of what no compiler sees: directions, rooms, maps, reasons
    Tidy,
    /// Runs one suite of figures beside its floors; writes target/bench/SUITE.json and .md
    Bench {
        /// Which suite; none lists them
        suite: Option<String>,
        /// Tiny sizes, seconds, no verdicts
        #[arg(long)]
        smoke: bool,
        /// Only rows with this in their name
        #[arg(long)]
        only: Option<String>,
    },
    /// Long fuzzing of what a peer's bytes reach; ends at the first finding and shows the script that makes it
    Fuzz {
        /// `handshake` or `frames`
        harness: String,
        /// How many
        #[arg(long, default_value_t = 10_000_000)]
        executions: u64,
        /// Another seed, other mutations
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// By libFuzzer, guided by coverage; takes a nightly toolchain and a C++ compiler
        #[arg(long)]
        guided: bool,
    },
    /// A real ZooKeeper on this machine, under target/zookeeper
    Zookeeper {
        #[command(subcommand)]
        action: ZookeeperAction,
    },
    /// A development cluster on this machine: ZooKeeper, nimbus, two supervisors, under target/cluster
    Cluster {
        #[command(subcommand)]
        action: ClusterAction,
    },
}

#[derive(Subcommand)]
enum ZookeeperAction {
    /// Starts the nodes and waits until each serves
    Start {
        /// 1, 3 or 5
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=5))]
        nodes: u16,
        /// Client port of the first node; the others follow
        #[arg(long, default_value_t = zookeeper::CLIENT_PORT)]
        port: u16,
    },
    /// Stops every node started here; their data stays
    Stop,
}

#[derive(Subcommand)]
enum ClusterAction {
    /// Starts what is not running yet and prints the addresses
    Start,
    /// Stops supervisors, nimbus and ZooKeeper, in this order
    Stop,
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Ci { yes, only } => ci::run(yes, &only),
        Task::Tidy => tidy::run(),
        Task::Bench { suite, smoke, only } => bench::run(suite.as_deref(), smoke, only.as_deref()),
        Task::Fuzz { harness, executions, seed, guided: false } => fuzz::run(&harness, executions, seed),
        Task::Fuzz { harness, executions, seed, guided: true } => fuzz::run_guided(&harness, executions, seed),
        Task::Zookeeper { action: ZookeeperAction::Start { nodes, port } } => zookeeper::start_here(nodes, port),
        Task::Zookeeper { action: ZookeeperAction::Stop } => zookeeper::stop_here(),
        Task::Cluster { action: ClusterAction::Start } => cluster::start(),
        Task::Cluster { action: ClusterAction::Stop } => cluster::stop(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
