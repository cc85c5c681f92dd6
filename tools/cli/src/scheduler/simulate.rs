//! `saetta scheduler simulate`: one scenario, several schedulers, one line for each.

use super::seats::{Plugins, named};
use crate::args::{Format, Global};
use crate::exit::{Exit, Failure, Outcome};
use crate::files::text_of;
use crate::output::{Column, Output, data, items, text};
use saetta_sched_sim::compare::{Report, play};
use saetta_sched_sim::scenario::{FILE_BYTES_MAX, Scenario};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What there is and what happens, TOML or JSON; a file of a cluster alone is submitted whole
    #[arg(value_name = "SCENARIO|CLUSTER.json")]
    file: PathBuf,
    #[command(flatten)]
    plugins: Plugins,
    /// The only randomness schedulers get
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Also a table of every round
    #[arg(long)]
    rounds: bool,
}

pub(crate) fn run(args: &Args, global: &Global, out: Output) -> Outcome {
    let scenario = read(&args.file)?;
    let seats = args.plugins.seats(global, false, Some(&scenario))?;
    for name in scenario.plugins.keys().filter(|name| !seats.iter().any(|(word, _)| named(word) == **name)) {
        out.note(&format!("the scenario configures the plugin {name}, which is not played"));
    }
    let reports: Vec<Report> = seats.into_iter().map(|(name, mut seat)| play(&scenario, &name, &mut seat, args.seed)).collect();
    let values: Vec<Value> = reports.iter().map(|r| serde_json::to_value(r).expect("a report is always JSON")).collect();
    if matches!(out.format, Format::Table | Format::Wide) {
        data(&tables(&values, args.rounds, out));
        for r in &reports {
            remarks(r, out);
        }
    } else {
        let whole = json!({"api_version": "v1", "kind": "SchedulerComparison", "scenario": args.file, "seed": args.seed, "items": values});
        match out.format {
            Format::Json => Output::document(&whole),
            Format::Name => values.iter().for_each(|v| data(&text(v, "plugin"))),
            _ => values.iter().for_each(|v| data(&v.to_string())),
        }
    }
    match reports.iter().find(|r| r.failed > 0) {
        Some(r) => Err(Failure::new(Exit::Failed, format!("plugin {} had no plan in {} of {} rounds", r.plugin, r.failed, r.rounds.len()))),
        None => Ok(()),
    }
}

/// Reads a scenario's file; nothing that is no file or too long.
pub(crate) fn read(path: &Path) -> Outcome<Scenario> {
    let text = text_of("scenario", path, FILE_BYTES_MAX, "check the path")?;
    Scenario::parse(&path.display().to_string(), &text).map_err(|e| Failure::new(Exit::Invalid, e.to_string()))
}

/// What went wrong, the first of each kind.
fn remarks(r: &Report, out: Output) {
    let first = |what: &str, of: Option<(&str, &str)>| {
        if let Some((step, why)) = of {
            out.note(&format!("{}: {what} after `{step}`: {why}", r.plugin));
        }
    };
    first("no plan", r.rounds.iter().find_map(|round| Some((round.step.as_str(), round.failed.as_deref()?))));
    first("refused", r.rounds.iter().find_map(|round| Some((round.step.as_str(), round.refused.first()?.as_str()))));
}

fn figure(of: &Value, key: &str) -> String {
    of.get("figures").map(|f| text(f, key)).unwrap_or_default()
}

/// Of the last round.
fn last(report: &Value, key: &str) -> String {
    items(report, "rounds").last().map(|round| figure(round, key)).unwrap_or_default()
}

/// A number with decimals.
pub(super) fn decimal(text: &str, n: usize) -> String {
    text.parse::<f64>().map_or_else(|_| text.to_owned(), |number| format!("{number:.n$}"))
}

fn tables(reports: &[Value], rounds: bool, out: Output) -> String {
    let columns = [
        Column { head: "PLUGIN", wide: false, text: |r| text(r, "plugin") },
        Column { head: "SCHEDULED", wide: false, text: |r| format!("{}/{}", last(r, "scheduled"), last(r, "executors")) },
        Column { head: "MOVES", wide: false, text: |r| text(r, "moves") },
        Column { head: "BALANCE", wide: false, text: |r| decimal(&last(r, "balance"), 2) },
        Column { head: "LOCALITY COST", wide: false, text: |r| decimal(&last(r, "locality_cost"), 1) },
        Column { head: "P50 MS", wide: false, text: |r| decimal(&text(r, "p50_ms"), 2) },
        Column { head: "MAX MS", wide: false, text: |r| decimal(&text(r, "max_ms"), 2) },
        Column { head: "REFUSED", wide: false, text: |r| text(r, "refused") },
        Column { head: "WORKERS", wide: true, text: |r| last(r, "workers") },
        Column { head: "NODES", wide: true, text: |r| last(r, "nodes") },
        Column { head: "WHOLE TOPOLOGIES", wide: true, text: |r| last(r, "topologies_whole") },
        Column { head: "FAILED", wide: true, text: |r| text(r, "failed") },
        Column { head: "ROUNDS", wide: true, text: |r| text(r, "rounds") },
    ];
    let mut all = vec![out.table(reports, &columns)];
    let columns = [
        Column { head: "AFTER", wide: false, text: |r| text(r, "step") },
        Column { head: "SCHEDULED", wide: false, text: |r| format!("{}/{}", figure(r, "scheduled"), figure(r, "executors")) },
        Column { head: "MOVES", wide: false, text: |r| figure(r, "moves") },
        Column { head: "BALANCE", wide: false, text: |r| decimal(&figure(r, "balance"), 2) },
        Column { head: "LOCALITY COST", wide: false, text: |r| decimal(&figure(r, "locality_cost"), 1) },
        Column { head: "MS", wide: false, text: |r| decimal(&text(r, "ms"), 2) },
        Column { head: "REFUSED", wide: false, text: |r| text(r, "refused") },
    ];
    for report in reports.iter().filter(|_| rounds) {
        all.push(format!("\n{}\n{}", text(report, "plugin"), out.table(items(report, "rounds"), &columns)));
    }
    all.join("\n")
}
