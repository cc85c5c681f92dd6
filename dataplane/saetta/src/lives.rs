//! The lives of a topology binary: `describe`, `plan`, `run`, `bench`, `worker`. All build the same graph from the same function.

use crate::bench::HiccupMeter;
use crate::core_plan::CorePlan;
use crate::run::{RunOptions, run};
use crate::topology::{AtEnd, Topology};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use saetta_engine::Program;
use saetta_model::config::{Config, Source};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Exit codes, as in `saetta help exit-codes`.
const FAILED: u8 = 1;
const INVALID: u8 = 8;
/// A worker that wants to be started again with its newest assignment.
const RESTART: u8 = 75;

#[derive(Parser)]
#[command(version, about = "A Saetta topology")]
struct Cli<A: Args> {
    #[command(subcommand)]
    life: Life<A>,
}

#[derive(Subcommand)]
enum Life<A: Args> {
    /// Run the whole topology in this process, without a cluster
    Run {
        /// Set a configuration key: KEY=VALUE (may be repeated)
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// No progress on standard error
        #[arg(long, short)]
        quiet: bool,
        /// Print on standard error which executor is on which core, and why
        #[arg(long)]
        plan: bool,
        #[command(flatten)]
        args: A,
    },
    /// Run it under an open-loop rate and print rate, percentiles and hiccups
    Bench {
        /// `next` calls a second of each spout executor
        #[arg(long, value_name = "PER_SEC", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
        rate_per_sec: u64,
        /// Seconds until the spouts end
        #[arg(long, value_name = "SECS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
        seconds: u64,
        /// Set a configuration key: KEY=VALUE (may be repeated)
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
        #[command(flatten)]
        args: A,
    },
    /// Print the topology as JSON; starts nothing, opens nothing
    Describe {
        #[command(flatten)]
        args: A,
    },
    /// Print which executor `run` would put on which core of this machine, and why; starts nothing
    Plan {
        /// Set a configuration key: KEY=VALUE (may be repeated)
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
        #[command(flatten)]
        args: A,
    },
    /// What a supervisor starts; not for people
    Worker(WorkerCli),
}

#[derive(Args)]
struct WorkerCli {
    /// The supervisor's local socket
    #[arg(long)]
    socket: std::path::PathBuf,
    /// Topology id
    #[arg(long)]
    topology: String,
    /// Port of the slot
    #[arg(long)]
    port: u16,
    /// Placement id, hexadecimal
    #[arg(long, value_parser = |text: &str| u64::from_str_radix(text, 16))]
    placement: u64,
    /// Start number
    #[arg(long)]
    start: u64,
    /// Inherited descriptor the topology key is read from
    #[arg(long)]
    key_fd: i32,
}

/// The arguments of a topology alone: how `describe` and a worker read what stands after `--` in `submit`.
#[derive(Parser)]
struct Alone<A: Args> {
    #[command(flatten)]
    args: A,
}

/// What `saetta::main!` expands to.
pub fn main<A: Args>(name: &'static str, topology: fn(&mut Topology, A) -> crate::Result<()>) -> ExitCode {
    let matches = Cli::<A>::command().name(name).bin_name(name).get_matches();
    let cli = Cli::<A>::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    let result = match cli.life {
        Life::Describe { args } => built(topology, args).and_then(|(program, _)| describe(&program)),
        Life::Plan { set, args } => built(topology, args).and_then(|(program, _)| plan_life(&program, &set)),
        Life::Run { set, quiet, plan, args } => {
            let options = RunOptions { quiet, plan, ..RunOptions::default() };
            built(topology, args).and_then(|(program, end)| run_life(&program, end, &set, &options))
        }
        Life::Bench { rate_per_sec, seconds, set, args } => {
            built(topology, args).and_then(|(program, _)| bench_life(&program, &set, rate_per_sec, seconds))
        }
        Life::Worker(cli) => worker_life(topology, cli),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Exit { code, text }) => {
            let _ = writeln!(std::io::stderr(), "{name}: {text}");
            ExitCode::from(code)
        }
    }
}

struct Exit {
    code: u8,
    text: String,
}

fn exit(code: u8) -> impl Fn(String) -> Exit {
    move |text| Exit { code, text }
}

fn built<A: Args>(topology: fn(&mut Topology, A) -> crate::Result<()>, args: A) -> Result<(Program, Option<AtEnd>), Exit> {
    let mut t = Topology::new();
    topology(&mut t, args).map_err(|e| Exit { code: INVALID, text: e.to_string() })?;
    let end = t.at_end.take();
    Ok((t.build().map_err(exit(INVALID))?, end))
}

/// Prints, and takes a closed pipe for "enough".
fn print(text: &str) -> Result<(), Exit> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Exit { code: FAILED, text: format!("cannot write to standard output: {e}") })
        }
        _ => Ok(()),
    }
}

fn describe(program: &Program) -> Result<(), Exit> {
    print(&serde_json::to_string_pretty(&serde_json::json!({ "spec": program.spec, "config": program.config })).expect("always JSON"))
}

fn configured(program: &Program, set: &[String]) -> Result<Config, Exit> {
    let mut config = Config::topology(&program.config, Source::Code).map_err(|e| Exit { code: INVALID, text: e.to_string() })?;
    for pair in set {
        config.set_pair(pair).map_err(|e| Exit { code: INVALID, text: e.to_string() })?;
    }
    Ok(config)
}

fn plan_life(program: &Program, set: &[String]) -> Result<(), Exit> {
    let config = configured(program, set)?;
    let plan = CorePlan::new(program, &config, &RunOptions::default()).map_err(|e| exit(FAILED)(e.to_string()))?;
    print(&plan.to_string())
}

fn run_life(program: &Program, end: Option<AtEnd>, set: &[String], options: &RunOptions) -> Result<(), Exit> {
    let config = configured(program, set)?;
    let summary = run(program, &config, options).map_err(|e| exit(FAILED)(e.to_string()))?;
    match end {
        Some(end) => end(&summary).map_err(|e| exit(FAILED)(e.to_string())),
        None => print(&summary.to_string()),
    }
}

fn bench_life(program: &Program, set: &[String], rate_per_sec: u64, seconds: u64) -> Result<(), Exit> {
    let config = configured(program, set)?;
    let meter = HiccupMeter::start();
    let options = RunOptions {
        quiet: true,
        rate_per_sec: Some(rate_per_sec),
        stop_after: Some(Duration::from_secs(seconds)),
        ..RunOptions::default()
    };
    let summary = run(program, &config, &options).map_err(|e| exit(FAILED)(e.to_string()))?;
    let hiccups = meter.stop();
    let at = |q| hiccups.value_at_quantile(q) as f64 / 1e3;
    print(&summary.to_string())?;
    print(&format!(
        "hiccups of this machine meanwhile: p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us, max {:.1} us",
        at(0.5),
        at(0.99),
        at(0.999),
        hiccups.max() as f64 / 1e3
    ))
}

fn worker_life<A: Args>(topology: fn(&mut Topology, A) -> crate::Result<()>, cli: WorkerCli) -> Result<(), Exit> {
    let args = saetta_worker::WorkerArgs {
        socket: cli.socket,
        topology: cli.topology,
        port: cli.port,
        placement: cli.placement,
        start: cli.start,
        key_fd: cli.key_fd,
    };
    let build = |texts: &[String]| {
        let alone =
            Alone::<A>::try_parse_from(std::iter::once("worker".to_owned()).chain(texts.iter().cloned())).map_err(|e| e.to_string())?;
        built(topology, alone.args).map(|(program, _)| program).map_err(|e| e.text)
    };
    saetta_worker::run(args, &build)
        .map_err(|e| Exit { code: if matches!(e, saetta_worker::WorkerError::Restart(_)) { RESTART } else { FAILED }, text: e.to_string() })
}
