//! `saetta scheduler validate` and `list-tests`: the conformance suite of `scheduler-api/host`, told to people and programs.

use crate::args::Format;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{Column, Output, data, text};
use saetta_sched_host::SchedulerOptions;
use saetta_sched_host::conformance::{CHECKS, Check, Options, Report, Status, selected, validate};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The plugin: a .so
    file: PathBuf,
    /// Only checks whose id or group is one of these; comma-separated, * stands for any text
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Not these
    #[arg(long, value_name = "PATTERN")]
    exclude: Option<String>,
    /// Time for one check
    #[arg(long, value_name = "SECS", default_value_t = 45, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Checks that run at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    jobs: u64,
    /// The helper process; default: saetta-sched-host beside this command
    #[arg(long, value_name = "FILE")]
    helper: Option<PathBuf>,
}

pub(super) fn run(args: &Args, out: Output) -> Outcome {
    let mut checks: Vec<&'static Check> = args.only.as_deref().map_or_else(|| CHECKS.iter().collect(), selected);
    if let Some(exclude) = &args.exclude {
        let not = selected(exclude);
        checks.retain(|c| not.iter().all(|n| n.id != c.id));
    }
    if checks.is_empty() {
        return Err(Failure::new(Exit::Usage, "no check is left to be run").hint("`saetta scheduler list-tests` lists them"));
    }
    let helper = match &args.helper {
        Some(helper) => helper.clone(),
        None => SchedulerOptions::beside_exe().map_err(|e| Failure::new(Exit::Failed, "looking for the helper").why(e))?.helper,
    };
    if !helper.is_file() {
        return Err(Failure::new(Exit::Failed, format!("there is no helper {}", helper.display())).hint("--helper FILE names it"));
    }
    let options = Options { timeout: Duration::from_secs(args.timeout), jobs: args.jobs as usize, ..Options::new(helper) };
    let file = args.file.display().to_string();
    let live = matches!(out.format, Format::Table | Format::Wide);
    let reports = validate(&args.file, &checks, &options, |report| match out.format {
        Format::Ndjson => data(&item(&file, report).to_string()),
        _ if live => data(&line(&file, report, out.format == Format::Wide || report.status != Status::Success)),
        _ => {}
    });
    let count = |status: Status| reports.iter().filter(|r| r.status == status).count();
    let bad = reports.iter().filter(|r| r.status.is_bad()).count();
    let all = [Status::Success, Status::Failed, Status::Crashed, Status::Warning, Status::Skipped];
    if out.format == Format::Json {
        let items: Vec<Value> = reports.iter().map(|r| item(&file, r)).collect();
        let counts: serde_json::Map<String, Value> = all.iter().map(|s| (s.name().to_owned(), count(*s).into())).collect();
        Output::document(
            &json!({"api_version": "v1", "kind": "SchedulerValidation", "file": file, "passed": bad == 0, "counts": counts, "items": items}),
        );
    }
    if out.format == Format::Name {
        reports.iter().filter(|r| r.status.is_bad()).for_each(|r| data(r.check.id));
    }
    let counts: Vec<String> = all.iter().filter(|s| count(**s) > 0).map(|s| format!("{} {}", count(*s), s.name())).collect();
    out.note(&format!("{} checks: {}", reports.len(), counts.join(", ")));
    match bad {
        0 => Ok(()),
        n => Err(Failure::new(Exit::Invalid, format!("{file} did not pass {n} of {} checks", reports.len()))),
    }
}

fn reproduce(file: &str, report: &Report) -> String {
    format!("saetta scheduler validate {file} --only {}", report.check.id)
}

fn line(file: &str, report: &Report, whole: bool) -> String {
    let mut line = format!("{:<8} {:<30}", report.status.name(), report.check.id);
    if whole && !report.reason.is_empty() {
        line.push_str(&format!(" {}", report.reason));
    }
    let mut line = line.trim_end().to_owned();
    if report.status.is_bad() {
        line.push_str(&format!("\n         again: {}", reproduce(file, report)));
    }
    line
}

fn item(file: &str, report: &Report) -> Value {
    json!({
        "name": report.check.id,
        "group": report.check.group,
        "status": report.status.name(),
        "reason": report.reason,
        "ms": report.took.as_millis() as u64,
        "reproduce": reproduce(file, report),
    })
}

pub(super) fn list(out: Output) {
    let items: Vec<Value> = CHECKS.iter().map(|c| json!({"name": c.id, "group": c.group, "about": c.about})).collect();
    let columns = [
        Column { head: "CHECK", wide: false, text: |i| text(i, "name") },
        Column { head: "GROUP", wide: false, text: |i| text(i, "group") },
        Column { head: "ASKS THAT", wide: false, text: |i| text(i, "about") },
    ];
    out.list("SchedulerCheck", &items, &columns);
}
