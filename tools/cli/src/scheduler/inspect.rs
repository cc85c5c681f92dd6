//! `saetta scheduler inspect`: what a plugin's file says of itself. Nothing of it is loaded or run.

use crate::args::Format;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{Output, data};
use saetta_sched_host::facts::{Facts, facts};
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The plugin: a .so
    file: PathBuf,
}

pub(super) fn run(args: &Args, out: Output) -> Outcome {
    let found = facts(&args.file).map_err(|e| Failure::new(Exit::Invalid, e.to_string()))?;
    match out.format {
        Format::Json => Output::document(&document(&args.file.display().to_string(), &found)),
        Format::Ndjson => data(&document(&args.file.display().to_string(), &found).to_string()),
        _ => data(&text(&found)),
    }
    // What can be told is told first; then whether a host of this version would load it.
    found.manifest.map(|_| ()).map_err(|e| Failure::new(Exit::Invalid, format!("this version does not load it: {e}")))
}

fn glibc(facts: &Facts) -> Option<String> {
    facts.glibc.map(|(major, minor)| format!("{major}.{minor}"))
}

fn document(file: &str, facts: &Facts) -> Value {
    let manifest = facts.manifest.as_ref().ok().map(|m| {
        json!({
            "id": m.id, "version": m.version,
            "abi": {"major": m.abi.major, "minor": m.abi.minor, "min_host_minor": m.abi.min_host_minor},
            "needs": m.needs, "wants": m.wants, "claims": m.claims, "flags": m.flags,
        })
    });
    json!({
        "api_version": "v1",
        "kind": "SchedulerFile",
        "file": file,
        "bytes": facts.bytes,
        "manifest": manifest,
        "refused": facts.manifest.as_ref().err().map(ToString::to_string),
        "exports": facts.exports,
        "needed": facts.needed,
        "glibc": glibc(facts),
        "text_relocations": facts.text_relocations,
        "executable_stack": facts.executable_stack,
    })
}

fn text(facts: &Facts) -> String {
    let mut lines = Vec::new();
    let mut line = |key: &str, value: String| lines.push(format!("{key:<10} {value}"));
    let list = |items: &[String]| if items.is_empty() { "-".to_owned() } else { items.join(", ") };
    if let Ok(m) = &facts.manifest {
        line("id", m.id.clone());
        line("version", m.version.clone());
        line("abi", format!("{}.{}, needs a host of {}.{} or later", m.abi.major, m.abi.minor, m.abi.major, m.abi.min_host_minor));
        line("needs", list(&m.needs));
        line("wants", list(&m.wants));
        line("claims", list(&m.claims));
        line("flags", list(&m.flags));
    }
    line("exports", list(&facts.exports));
    line("libraries", list(&facts.needed));
    line("glibc", glibc(facts).unwrap_or_else(|| "-".to_owned()));
    line("bytes", facts.bytes.to_string());
    lines.join("\n")
}
