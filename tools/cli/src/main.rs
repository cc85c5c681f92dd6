//! `saetta`: the command of operators.
//!
//! Before: a shell. After: nimbus over REST, or a daemon in this process. Data goes to stdout, everything else to stderr; what went
//! wrong is three lines and an exit code (`exit`), never a backtrace.
#![forbid(unsafe_code)]

mod args;
mod client;
mod daemon;
mod exit;
mod files;
mod look;
mod output;
mod probe;
mod scheduler;
mod settings;
mod submit;

use args::{Cli, Command, Former};
use client::Client;
use exit::{Exit, Failure, Outcome};
use output::{Output, data, say};
use saetta_model::name::nearest;
use serde_json::json;
use settings::{Reader, load};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::read();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            say(&format!("error: starting the runtime: {e}"));
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(run(&cli));
    // Threads that wait in the kernel for something that no longer matters do not hold up the end.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&failure.to_string());
            ExitCode::from(failure.exit as u8)
        }
    }
}

async fn run(cli: &Cli) -> Outcome {
    let out = Output::new(&cli.global);
    let client = || Client::new(&load(&cli.global, Reader::Daemon)?);
    match &cli.command {
        Command::Nimbus => {
            let settings = load(&cli.global, Reader::Daemon)?;
            daemon::log(&cli.global);
            daemon::nimbus(&settings).await
        }
        Command::Supervisor => {
            let settings = load(&cli.global, Reader::Daemon)?;
            daemon::log(&cli.global);
            daemon::supervisor(&settings).await
        }
        Command::Dev(args) => {
            let settings = load(&cli.global, Reader::Daemon)?;
            daemon::log(&cli.global);
            daemon::dev(args, &settings).await
        }
        Command::Submit(args) => submit::run(args, &load(&cli.global, Reader::Submit)?, out).await,
        Command::List => look::list(&client()?, out).await,
        Command::Status(args) => look::status(&client()?, args, out).await,
        Command::Kill(args) => look::kill(&client()?, args, out).await,
        Command::Scheduler(command) => scheduler::run(command, &cli.global, out).await,
        Command::Version => {
            version(out);
            Ok(())
        }
        Command::Help { topic } => help(topic.as_deref()),
        Command::Jar(Former { rest }) => {
            let file = rest.first().map_or("FILE".into(), |f| f.to_string_lossy());
            former("jar", &format!("`saetta submit {file}`: a topology is one executable, and its arguments follow `--`"))
        }
        Command::Shell(_) => former("shell", "`saetta submit FILE`: a topology brings everything with it"),
        Command::Repl(_) => former("repl", "`FILE run ARGS...`: every topology runs in one process without a cluster"),
        Command::Classpath(_) => former("classpath", "nothing: a topology is one executable without a class path"),
    }
}

fn former(verb: &str, instead: &str) -> Outcome {
    Err(Failure::new(Exit::Usage, format!("`{verb}` is a verb of Storm that Saetta does not have")).hint(instead))
}

fn version(out: Output) {
    let version = env!("CARGO_PKG_VERSION");
    let glibc = saetta_supervisor::platform().glibc.map(|(major, minor)| format!("{major}.{minor}"));
    let value = json!({
        "api_version": "v1",
        "kind": "Version",
        "version": version,
        "machine": std::env::consts::ARCH,
        "glibc": glibc,
        "local_protocol_min": saetta_model::local::VERSION_MIN,
        "local_protocol_max": saetta_model::local::VERSION_MAX,
    });
    match out.format {
        args::Format::Json => Output::document(&value),
        args::Format::Ndjson => data(&value.to_string()),
        _ => data(&format!("saetta {version}")),
    }
}

fn help(topic: Option<&str>) -> Outcome {
    let mut command = Cli::whole();
    match topic {
        None => data(&command.render_long_help().to_string()),
        Some("exit-codes") => data(exit::TABLE.trim_end()),
        Some("config") => data(settings::describe_keys().trim_end()),
        Some(topic) => {
            command.build();
            let known: Vec<String> = command.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name().to_owned()).collect();
            let Some(sub) = command.find_subcommand_mut(topic) else {
                let topics = known.iter().map(String::as_str).chain(["config", "exit-codes"]);
                let failure = Failure::new(Exit::Usage, format!("there is no help about `{topic}`"));
                return Err(match nearest(topic, topics) {
                    Some(near) => failure.hint(format!("`saetta help {near}`")),
                    None => failure.hint("`saetta help` lists the commands"),
                });
            };
            data(&sub.render_long_help().to_string());
        }
    }
    Ok(())
}
