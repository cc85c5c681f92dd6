//! `saetta scheduler why`: where an executor is, who put it there, and what speaks against the other nodes.
//!
//! Before: nimbus has run a round. After: its answer for people, or as it came.

use crate::args::Format;
use crate::client::Client;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{Column, Output, data, items, text};
use serde_json::Value;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name, id, or the beginning of one
    topology: String,
    /// A task of it as `status` shows, 3 or [3-4]; or component[i], counted from 0
    executor: String,
}

pub(crate) async fn run(args: &Args, client: &Client, out: Output) -> Outcome {
    let id = text(&client.find(&args.topology).await?, "id");
    let status = client.get(&format!("/api/v1/topologies/{id}")).await?;
    let task = first_task(items(&status, "executors"), &args.executor)?;
    let why = client.get(&format!("/api/v1/topologies/{id}/executors/{task}/why")).await?;
    match out.format {
        Format::Json => Output::document(&why),
        Format::Ndjson => data(&why.to_string()),
        Format::Name => data(&place(&why)),
        Format::Table | Format::Wide => data(&describe(&why, out)),
    }
    Ok(())
}

/// First task of the executor that is meant.
fn first_task(executors: &[Value], wanted: &str) -> Outcome<u64> {
    let number = |e: &Value, key: &str| e.get(key).and_then(Value::as_u64).unwrap_or(0);
    let inner = wanted.strip_prefix('[').and_then(|w| w.strip_suffix(']')).unwrap_or(wanted);
    let task = inner.split('-').next().unwrap_or(inner).parse::<u64>();
    let found = if let Ok(task) = task {
        executors.iter().find(|e| (number(e, "first_task")..=number(e, "last_task")).contains(&task))
    } else {
        let (component, index) = match wanted.strip_suffix(']').and_then(|w| w.split_once('[')) {
            Some((component, index)) => (component, index.parse::<usize>().ok()),
            None => (wanted, Some(0)),
        };
        let mut of: Vec<&Value> = executors.iter().filter(|e| text(e, "component") == component).collect();
        of.sort_by_key(|e| number(e, "first_task"));
        index.and_then(|i| of.get(i).copied())
    };
    found.map(|e| number(e, "first_task")).ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("there is no executor `{wanted}`")).hint("`saetta status NAME` lists them with their tasks")
    })
}

fn place(why: &Value) -> String {
    if why.get("node").is_some() { format!("{}:{}", text(why, "node"), text(why, "port")) } else { "no slot".to_owned() }
}

fn describe(why: &Value, out: Output) -> String {
    let (first, last) = (text(why, "first_task"), text(why, "last_task"));
    let tasks = if first == last { format!("[{first}]") } else { format!("[{first}-{last}]") };
    let mut lines = vec![format!("{} {} {tasks}: {}", text(why, "topology"), text(why, "component"), place(why))];
    if let Some(how) = why.get("scheduled").filter(|h| h.is_object()) {
        let reason = text(how, "why");
        let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
        lines.push(format!("placed by {} {}", text(how, "by"), text(how, "plugin")).trim_end().to_owned() + &reason);
    }
    lines.extend(Some(text(why, "summary")).filter(|s| !s.is_empty()));
    lines.extend(Some(text(why, "note")).filter(|s| !s.is_empty()).map(|n| format!("note: {n}")));
    let columns = [
        Column { head: "REASON", wide: false, text: |r| text(r, "word") },
        Column { head: "SLOT", wide: false, text: |r| if r.get("node").is_some() { place(r) } else { String::new() } },
        Column { head: "SCORE", wide: false, text: |r| text(r, "score") },
        Column { head: "PARTS", wide: false, text: parts },
        Column { head: "ABOUT", wide: false, text: |r| text(r, "arg") },
        Column { head: "TEXT", wide: false, text: |r| text(r, "text") },
    ];
    let reasons = items(why, "reasons");
    if !reasons.is_empty() {
        lines.push(format!("\n{}", out.table(reasons, &columns)));
    }
    let nodes = items(why, "nodes");
    if !nodes.is_empty() {
        let columns = [
            Column { head: "NODES", wide: false, text: |n| text(n, "n") },
            Column { head: "BECAUSE", wide: false, text: |n| text(n, "word") },
        ];
        lines.push(format!("\n{}", out.table(nodes, &columns)));
    }
    lines.join("\n")
}

fn parts(reason: &Value) -> String {
    let all = reason.get("parts").and_then(Value::as_object);
    all.map(|p| p.iter().map(|(name, n)| format!("{name}={n}")).collect::<Vec<_>>().join(" ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_executor_is_meant_by_a_task_or_by_its_place_in_a_component() {
        let executor = |component: &str, first: u32, last: u32| json!({"component": component, "first_task": first, "last_task": last});
        let all = [executor("b", 3, 4), executor("b", 5, 5), executor("a", 1, 2)];
        for (wanted, first) in [("3", 3), ("4", 3), ("[3-4]", 3), ("[5]", 5), ("b", 3), ("b[1]", 5), ("a[0]", 1)] {
            assert_eq!(first_task(&all, wanted).unwrap(), first, "{wanted}");
        }
        for wanted in ["6", "0", "c", "b[2]", "b[x]", "", "[]"] {
            assert!(first_task(&all, wanted).is_err_and(|e| e.exit == Exit::NotFound), "{wanted}");
        }
    }

    #[test]
    fn what_nimbus_tells_is_told() {
        let why = json!({
            "topology": "wc-1-2", "component": "count", "first_task": 3, "last_task": 3, "node": "n1", "port": 6700,
            "scheduled": {"by": "plugin", "plugin": "even", "why": "because"},
            "reasons": [{"code": 1, "word": "placed-best-score", "node": "n1", "port": 6700, "score": 1234, "parts": {"cpu": 100, "rack": 3}, "text": "near"}],
            "summary": "40 nodes: 22 not enough memory", "nodes": [{"code": 22, "word": "no-memory", "n": 22}], "note": "asked now",
        });
        let out = Output::new(&crate::args::Global {
            config: None,
            set: Vec::new(),
            output: Format::Table,
            json: false,
            quiet: false,
            verbose: 0,
            color: crate::args::Color::Never,
        });
        let said = describe(&why, out);
        for part in [
            "wc-1-2 count [3]: n1:6700\nplaced by plugin even: because\n40 nodes: 22 not enough memory\nnote: asked now\n",
            "placed-best-score",
            "n1:6700",
            "cpu=100 rack=3",
            "22     no-memory",
        ] {
            assert!(said.contains(part), "{part:?} is not in\n{said}");
        }
        assert!(describe(&json!({"topology": "t", "component": "c", "first_task": 1, "last_task": 2}), out).ends_with("[1-2]: no slot"));
    }
}
