//! `saetta scheduler use | status | reset | rounds | why`: what an operator asks of the scheduler of a running cluster.
//!
//! Before: a plugin that passed `validate`, in `scheduler.plugin.dir` of the leader. After: it is tried on the last round and, if that
//! went well and it passes the checks about harm, the next rounds are its own; every nimbus keeps its file.

use crate::args::{Format, Global};
use crate::client::Client;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{Column, Output, data, items, text};
use crate::settings::{Reader, load};
use serde_json::{Value, json};
use std::time::Duration;

/// Longest wait for a trial: loading, a round within its deadline, and a process for each check.
const TRIAL_MAX: Duration = Duration::from_secs(120);

#[derive(Debug, clap::Args)]
pub(crate) struct Use {
    /// NAME for libsaetta_NAME.so, or a file of the leader's scheduler.plugin.dir
    pub(crate) plugin: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Why {
    /// Name, id, or the beginning of one
    pub(crate) topology: String,
    /// Number of the executor's first task
    pub(crate) executor: u32,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Rounds {
    /// Writes this one, as the list names it, into the current folder: for `saetta scheduler replay`
    pub(crate) file: Option<String>,
}

fn client(global: &Global) -> Outcome<Client> {
    Client::new(&load(global, Reader::Daemon)?)
}

/// JSON where it was asked for, else words.
fn show(out: Output, answer: &Value, words: impl FnOnce(&Value) -> String) {
    match out.format {
        Format::Json => Output::document(answer),
        Format::Ndjson => data(&answer.to_string()),
        _ => data(&words(answer)),
    }
}

pub(crate) async fn choose(args: &Use, global: &Global, out: Output) -> Outcome {
    let answer = client(global)?.post_within("/api/v1/scheduler/use", &json!({ "plugin": args.plugin }), TRIAL_MAX).await?;
    show(out, &answer, |a| {
        let tried = a.get("trial").map(|t| {
            let of = |who: &str, what: &str| t[who][what].as_u64().unwrap_or(0);
            format!(
                "\ntried on the last round: {} placed, {} without a slot, {} moves; the former had {} and {}",
                of("other", "placed"),
                of("other", "unscheduled"),
                of("other", "moves"),
                of("live", "placed"),
                of("live", "unscheduled")
            )
        });
        format!("{} ({} {}) schedules from now on{}", text(a, "plugin"), text(a, "id"), text(a, "version"), tried.unwrap_or_default())
    });
    Ok(())
}

pub(crate) async fn status(global: &Global, out: Output) -> Outcome {
    let answer = client(global)?.get("/api/v1/scheduler").await?;
    show(out, &answer, describe);
    Ok(())
}

pub(crate) async fn reset(global: &Global, out: Output) -> Outcome {
    let answer = client(global)?.post("/api/v1/scheduler/reset", &json!({})).await?;
    show(out, &answer, describe);
    Ok(())
}

fn describe(status: &Value) -> String {
    let mut lines = vec![format!("{} ({}), {}", text(status, "plugin"), text(status, "mode"), text(status, "state"))];
    for (head, key) in [("why", "why"), ("health stage", "node_health")] {
        if let Some(words) = status.get(key).and_then(Value::as_str) {
            lines.push(format!("{head}: {words}"));
        }
    }
    if let Some(failure) = status.get("last_failure") {
        lines.push(format!("last failure: round {}: {}", text(failure, "round"), text(failure, "what")));
    }
    if status.get("round").is_some() {
        lines.push(format!(
            "last round: {} topologies by the plugin, {} by the fallback, {} kept",
            text(status, "by_plugin"),
            text(status, "by_fallback"),
            text(status, "kept")
        ));
    }
    if let Some(shadow) = status.get("shadow") {
        let differing = shadow["comparison"]["differing"]
            .as_u64()
            .map_or_else(|| "nothing compared yet".into(), |n| format!("{n} executors elsewhere"));
        let failure = shadow.get("failure").and_then(Value::as_str).map(|f| format!(", failed: {f}")).unwrap_or_default();
        lines.push(format!("shadow {}: {differing}{failure}", text(shadow, "plugin")));
    }
    lines.join("\n")
}

pub(crate) async fn rounds(args: &Rounds, global: &Global, out: Output) -> Outcome {
    let client = client(global)?;
    let list = client.get("/api/v1/scheduler/rounds").await?;
    if let Some(file) = &args.file {
        return fetch(&client, &list, file, out).await;
    }
    let columns = [
        Column { head: "FILE", wide: false, text: |r| text(r, "file") },
        Column { head: "ROUND", wide: false, text: |r| text(r, "round") },
        Column { head: "BYTES", wide: false, text: |r| text(r, "bytes") },
    ];
    out.list("RoundList", items(&list, "items"), &columns);
    Ok(())
}

/// A recorded round as a file of that name; its path is told.
async fn fetch(client: &Client, list: &Value, file: &str, out: Output) -> Outcome {
    // Only what the list names: an address, and a path, is made of it.
    if !items(list, "items").iter().any(|r| text(r, "file") == file) || file.contains('/') {
        let failure = Failure::new(Exit::NotFound, format!("there is no recorded round `{file}`"));
        return Err(failure.hint("`saetta scheduler rounds` lists them; nimbus keeps the last 64"));
    }
    let bytes = client.bytes(&format!("/api/v1/scheduler/rounds/{file}")).await?;
    let refuse = |e: std::io::Error| Failure::new(Exit::Failed, format!("writing {file}")).why(e);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).open(file).and_then(|mut f| std::io::Write::write_all(&mut f, &bytes)).map_err(refuse)?;
    data(file);
    out.note(&format!("`saetta scheduler replay {file}` asks it again"));
    Ok(())
}

pub(crate) async fn why(args: &Why, global: &Global, out: Output) -> Outcome {
    let client = client(global)?;
    let id = text(&client.find(&args.topology).await?, "id");
    if id.is_empty() {
        return Err(Failure::new(Exit::Failed, "nimbus named no topology"));
    }
    let answer = client.get(&format!("/api/v1/topologies/{id}/executors/{}/why", args.executor)).await?;
    show(out, &answer, |a| {
        let place = a.get("node").map_or_else(|| "in no slot".into(), |_| format!("in {}:{}", text(a, "node"), text(a, "port")));
        let core = a.get("core").map_or_else(String::new, |core| {
            let why = a.get("core_why").and_then(Value::as_str).map(|why| format!(" ({why})")).unwrap_or_default();
            format!(" on core {core}{why}")
        });
        let mut lines = vec![format!("`{}` [{}] of {id} is {place}{core}", text(a, "component"), args.executor)];
        for reason in items(a, "reasons") {
            let node = text(reason, "node");
            let at = if node.is_empty() { String::new() } else { format!(" {node}:{}", text(reason, "port")) };
            lines.push(format!("  {}{at} {}", text(reason, "word"), text(reason, "text")).trim_end().to_owned());
        }
        lines.push(text(a, "summary"));
        lines.extend(a.get("note").and_then(Value::as_str).map(|n| format!("note: {n}")));
        lines.join("\n")
    });
    Ok(())
}
