//! `saetta list`, `status` and `kill`: what the cluster holds, and taking it away.

use crate::args::{Format, Kill, Status};
use crate::client::Client;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{Column, Output, data, items, say, text};
use serde_json::{Value, json};
use std::io::{BufRead, IsTerminal, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Between two looks at a topology that is going away.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) async fn list(client: &Client, out: Output) -> Outcome {
    let list = client.get("/api/v1/topologies").await?;
    let topologies = items(&list, "items");
    if topologies.is_empty() && matches!(out.format, Format::Table | Format::Wide) {
        out.note("no topologies; submit one with `saetta submit FILE`");
        return Ok(());
    }
    let columns = [
        Column { head: "NAME", wide: false, text: |t| text(t, "name") },
        Column { head: "STATE", wide: false, text: state },
        Column { head: "WORKERS", wide: false, text: |t| format!("{}/{}", text(t, "workers_running"), text(t, "workers_wanted")) },
        Column { head: "EXECUTORS", wide: false, text: |t| text(t, "executors_total") },
        Column { head: "TASKS", wide: false, text: |t| text(t, "tasks") },
        Column { head: "AGE", wide: false, text: |t| age(t.get("submitted_ms").and_then(Value::as_u64), now_ms()) },
        Column { head: "OWNER", wide: true, text: |t| text(t, "owner") },
        Column { head: "PRIORITY", wide: true, text: |t| text(t, "priority") },
        Column { head: "UNPLACED", wide: true, text: |t| text(t, "executors_unplaced") },
        Column { head: "ID", wide: true, text: |t| text(t, "id") },
    ];
    out.list("TopologyList", topologies, &columns);
    Ok(())
}

pub(crate) async fn status(client: &Client, args: &Status, out: Output) -> Outcome {
    let id = text(&client.find(&args.name).await?, "id");
    let status = client.get(&format!("/api/v1/topologies/{id}")).await?;
    match out.format {
        Format::Json => Output::document(&status),
        Format::Ndjson => data(&status.to_string()),
        Format::Name => data(&text(&status, "name")),
        Format::Table | Format::Wide => data(&describe(&status, out)),
    }
    Ok(())
}

/// A topology for people: what it is, its workers, its executors.
fn describe(status: &Value, out: Output) -> String {
    let mut lines = vec![format!("{}  {}  {}", text(status, "name"), text(status, "id"), state(status))];
    if let Some(how) = status.get("scheduled") {
        let why = text(how, "why");
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        lines.push(format!("placed by {} {}{why}", text(how, "by"), text(how, "plugin")).trim_end().to_owned());
    }
    lines.extend(items(status, "notes").iter().map(|n| format!("note: {}", n.as_str().unwrap_or_default())));
    let workers = [
        Column { head: "NODE", wide: false, text: |w| text(w, "node") },
        Column { head: "PORT", wide: false, text: |w| text(w, "port") },
        Column { head: "STATE", wide: false, text: |w| text(w, "state") },
        Column { head: "PID", wide: false, text: |w| text(w, "pid") },
        Column { head: "START", wide: false, text: |w| text(w, "start") },
        Column { head: "CORES", wide: false, text: |w| numbers(w.get("cores")) },
        Column { head: "HOST", wide: true, text: |w| text(w, "host") },
        Column { head: "SHARE", wide: true, text: |w| text(w, "share") },
        Column { head: "LINKS", wide: true, text: |w| text(w, "carrier") },
        Column { head: "PLACEMENT", wide: true, text: |w| text(w, "placement") },
        Column { head: "NOTE", wide: false, text: |w| text(w, "note") },
    ];
    lines.push(format!("\nworkers:\n{}", out.table(items(status, "workers"), &workers)));
    let executors = [
        Column { head: "COMPONENT", wide: false, text: |e| text(e, "component") },
        Column { head: "TASKS", wide: false, text: tasks },
        Column { head: "NODE", wide: false, text: |e| text(e, "node") },
        Column { head: "PORT", wide: false, text: |e| text(e, "port") },
        Column { head: "CORE", wide: false, text: |e| text(e, if e.get("core").is_some() { "core" } else { "core_assigned" }) },
        Column { head: "WHY", wide: true, text: |e| text(e, "core_why") },
        Column { head: "EXECUTED", wide: false, text: |e| text(e, "executed") },
        Column { head: "EMITTED", wide: false, text: |e| text(e, "emitted") },
        Column { head: "TRANSFERRED", wide: true, text: |e| text(e, "transferred") },
        Column { head: "FAILED", wide: false, text: |e| text(e, "failed") },
        Column { head: "BUSY", wide: false, text: busy },
        Column { head: "ENDED", wide: true, text: |e| text(e, "ended") },
    ];
    lines.push(format!("\nexecutors:\n{}", out.table(items(status, "executors"), &executors)));
    // Newest last, as in a log.
    for (component, errors) in status.get("errors").and_then(Value::as_object).into_iter().flatten() {
        lines.push(format!("\nerrors of {component}:"));
        let errors = errors.as_array().map_or(&[][..], Vec::as_slice);
        lines.extend(errors.iter().map(|e| {
            let ago = age(e.get("at_ms").and_then(Value::as_u64), now_ms());
            format!(" {ago} ago  {}:{}  {}", text(e, "node"), text(e, "port"), text(e, "text"))
        }));
    }
    lines.join("\n")
}

fn state(topology: &Value) -> String {
    let word = text(topology, "state");
    match topology.get("deadline_ms").and_then(Value::as_u64) {
        Some(deadline) => format!("{word} (gone in {} s)", deadline.saturating_sub(now_ms()).div_ceil(1_000)),
        None if topology.get("finished") == Some(&Value::Bool(true)) => format!("{word}, finished"),
        None => word,
    }
}

/// Part of its time, in percent, since the beat before the last.
fn busy(executor: &Value) -> String {
    let per_mille = executor.get("busy_per_mille").and_then(Value::as_u64);
    per_mille.map_or_else(|| "-".to_owned(), |n| format!("{}.{} %", n / 10, n % 10))
}

fn tasks(executor: &Value) -> String {
    let (first, last) = (text(executor, "first_task"), text(executor, "last_task"));
    if first == last { format!("[{first}]") } else { format!("[{first}-{last}]") }
}

fn numbers(list: Option<&Value>) -> String {
    let all = list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    all.iter().map(Value::to_string).collect::<Vec<_>>().join(",")
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// How long ago, in the largest unit that is not zero.
fn age(since_ms: Option<u64>, now_ms: u64) -> String {
    let Some(secs) = since_ms.map(|s| now_ms.saturating_sub(s) / 1_000) else { return String::new() };
    match secs {
        0..120 => format!("{secs}s"),
        120..7_200 => format!("{}m", secs / 60),
        7_200..172_800 => format!("{}h", secs / 3_600),
        _ => format!("{}d", secs / 86_400),
    }
}

pub(crate) async fn kill(client: &Client, args: &Kill, out: Output) -> Outcome {
    for (i, name) in args.names.iter().enumerate() {
        if args.names[..i].contains(name) {
            return Err(Failure::new(Exit::Usage, format!("`{name}` is named twice")));
        }
    }
    let mut first_failure = None;
    let mut killed = Vec::new();
    for name in &args.names {
        match kill_one(client, name, args, out).await {
            Ok(answer) => killed.push(answer),
            Err(failure) if args.ignore_errors => {
                if args.names.len() > 1 {
                    say(&failure.to_string());
                }
                first_failure.get_or_insert(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    if out.format == Format::Json {
        Output::document(&json!({"api_version": "v1", "kind": "TopologyList", "items": killed}));
    }
    match first_failure {
        Some(failure) if args.names.len() > 1 => Err(Failure::new(failure.exit, "not every topology was killed")),
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

async fn kill_one(client: &Client, name: &str, args: &Kill, out: Output) -> Outcome<Value> {
    let topology = client.find(name).await?;
    let (name, id) = (text(&topology, "name"), text(&topology, "id"));
    if !args.yes && std::io::stdin().is_terminal() && std::io::stderr().is_terminal() && !confirmed(&name) {
        return Err(Failure::new(Exit::Failed, format!("{name} was not killed")));
    }
    let answer = client.post(&format!("/api/v1/topologies/{id}/kill"), &json!({"wait_secs": args.wait_secs})).await?;
    if let Some(secs) = args.wait {
        wait_until_gone(client, &name, &id, Duration::from_secs(secs)).await?;
    }
    match out.format {
        Format::Json => {}
        Format::Ndjson => data(&answer.to_string()),
        Format::Name => data(&name),
        Format::Table | Format::Wide if args.wait.is_some() => data(&format!("{name} is gone")),
        Format::Table | Format::Wide => data(&format!("{name}: {}", state(&answer))),
    }
    Ok(answer)
}

fn confirmed(name: &str) -> bool {
    let _ = write!(std::io::stderr(), "kill {name}? [y/N] ");
    let mut line = String::new();
    let _ = std::io::stdin().lock().read_line(&mut line);
    matches!(line.trim(), "y" | "Y" | "yes")
}

/// Its record is the last thing to go, after its workers.
async fn wait_until_gone(client: &Client, name: &str, id: &str, within: Duration) -> Outcome {
    let began = Instant::now();
    loop {
        let status = match client.get(&format!("/api/v1/topologies/{id}")).await {
            Err(gone) if gone.exit == Exit::NotFound => return Ok(()),
            other => other?,
        };
        if began.elapsed() >= within {
            let left = items(&status, "workers").len();
            return Err(Failure::new(Exit::TimedOut, format!("{name} is not gone after {} s; it goes on ending", within.as_secs()))
                .why(format!("{}, {left} workers left", state(&status)))
                .hint("wait longer with --wait=SECS, or shorten the drain with -w SECS"));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_tasks_read_as_people_write_them() {
        assert_eq!((age(Some(0), 61_000), age(Some(0), 600_000), age(Some(0), 90_000_000)), ("61s".into(), "10m".into(), "25h".into()));
        assert_eq!(age(None, 1), "");
        assert_eq!(tasks(&json!({"first_task": 3, "last_task": 3})), "[3]");
        assert_eq!(tasks(&json!({"first_task": 3, "last_task": 5})), "[3-5]");
        assert_eq!(numbers(Some(&json!([0, 2]))), "0,2");
    }
}
