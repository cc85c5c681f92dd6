//! The command line.

use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Saetta: a distributed real-time stream processor.
#[derive(Debug, Parser)]
#[command(
    name = "saetta",
    version,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "`saetta help config` lists the configuration keys, `saetta help exit-codes` the exit codes."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// The whole command line. `--set` is each level's own: of a global option clap keeps the values of one level and drops the others'.
    pub(crate) fn whole() -> clap::Command {
        let mut command = Cli::command();
        let set = command.get_arguments().find(|a| a.get_id() == SET).expect("an option of every command").clone();
        set_below(&mut command, &set);
        command
    }

    /// Reads the process's arguments; ends the process where they are wrong or ask for help.
    pub(crate) fn read() -> Self {
        let matches = Cli::whole().get_matches();
        let mut cli = Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
        // What stands after the command wins over what stands before it.
        let mut level = matches.subcommand();
        while let Some((_, below)) = level {
            cli.global.set.extend(below.get_many::<String>(SET).into_iter().flatten().cloned());
            level = below.subcommand();
        }
        cli
    }
}

/// Gives every command below one the argument.
fn set_below(command: &mut clap::Command, set: &clap::Arg) {
    for below in command.get_subcommands_mut() {
        *below = std::mem::take(below).arg(set.clone());
        set_below(below, set);
    }
}

/// Id of `--set`.
const SET: &str = "set";

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Set one key; may be repeated. Wins over file and environment (SAETTA__NIMBUS__SEEDS=..)
    #[arg(id = SET, long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Format::Table, global = true)]
    pub(crate) output: Format,
    /// Same as -o json
    #[arg(long, global = true, conflicts_with = "output")]
    pub(crate) json: bool,
    /// Only data and errors; daemons log warnings only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// More; twice for everything
    #[arg(short, long, action = ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
    /// Colours: auto means only on a terminal, and not where NO_COLOR is set
    #[arg(long, value_enum, default_value_t = Color::Auto, global = true)]
    pub(crate) color: Color,
}

/// Forms of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns for people
    Table,
    /// More columns
    Wide,
    /// One JSON document
    Json,
    /// One JSON object per line
    Ndjson,
    /// Names only
    Name,
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a nimbus: takes submissions, places executors, serves REST
    Nimbus,
    /// Run the supervisor of this machine: starts and guards workers
    Supervisor,
    /// Run a whole cluster in one command, without ZooKeeper; ends with ctrl-C
    Dev(Dev),
    /// Submit a topology: the binary that `saetta::main!` made
    Submit(Submit),
    /// List topologies
    List,
    /// Show one topology: workers, executors, where they run
    Status(Status),
    /// Kill topologies: spouts off, drain, remove
    Kill(Kill),
    /// Write, prove and compare scheduler plugins
    #[command(subcommand)]
    Scheduler(crate::scheduler::Scheduler),
    /// Print the version
    Version,
    /// Print help: for a command, or about `config` or `exit-codes`
    Help {
        /// A command, `config` or `exit-codes`
        topic: Option<String>,
    },
    #[command(hide = true)]
    Jar(Former),
    #[command(hide = true)]
    Shell(Former),
    #[command(hide = true)]
    Repl(Former),
    #[command(hide = true)]
    Classpath(Former),
}

/// Whatever followed a verb that Storm has and Saetta has not.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Former {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub(crate) rest: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// Where everything of this cluster is kept
    #[arg(long, value_name = "DIR", default_value = "saetta-local/dev")]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Submit {
    /// The topology's binary
    pub(crate) file: PathBuf,
    /// Name of the topology; default: the file's name
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Smaller runs first when machines are short
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,
    /// Wait until all executors run; SECS (default 60) at most
    #[arg(long, value_name = "SECS", num_args = 0..=1, require_equals = true, default_missing_value = "60", value_parser = secs)]
    pub(crate) wait: Option<u64>,
    /// Arguments of the topology
    #[arg(last = true)]
    pub(crate) args: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Name, id, or the beginning of one
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct Kill {
    /// Names, ids, or the beginnings of some
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    /// Seconds between spouts off and removal; default: the topology's message timeout. Ends early once drained
    #[arg(short = 'w', value_name = "SECS", value_parser = secs)]
    pub(crate) wait_secs: Option<u64>,
    /// Wait until everything is gone; SECS (default 120) at most
    #[arg(long, value_name = "SECS", num_args = 0..=1, require_equals = true, default_missing_value = "120", value_parser = secs)]
    pub(crate) wait: Option<u64>,
    /// Go on with the next name after an error
    #[arg(short = 'i', long)]
    pub(crate) ignore_errors: bool,
    /// Do not ask; without a terminal nothing is asked anyway
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Longest wait that can be asked for: a day.
const WAIT_SECS_MAX: u64 = 86_400;

fn secs(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix('s').unwrap_or(text);
    match number.parse::<u64>() {
        Ok(n) if n <= WAIT_SECS_MAX => Ok(n),
        _ => Err(format!("not a whole number of seconds from 0 to {WAIT_SECS_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
