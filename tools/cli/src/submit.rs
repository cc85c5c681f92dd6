//! `saetta submit`: from a binary on this machine to a topology in the cluster.
//!
//! Before: a file that `saetta::main!` made. After: nimbus has the binary and the record. Everything that can be known here is
//! checked here, before anything is sent: the file, the description, the configuration, the arithmetic.

use crate::args::{Format, Submit};
use crate::client::Client;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{Output, data, items, text};
use crate::settings::Settings;
use saetta_model::config::{Config, Source};
use saetta_model::parallelism::Layout;
use saetta_model::{Name, TopologySpec};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio_util::io::ReaderStream;

/// Longest time a binary may take to describe itself: it does no I/O.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest description.
const DESCRIPTION_BYTES_MAX: u64 = 64 << 20;
/// Between two looks at a topology that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Size of the pieces of an upload.
const PIECE_BYTES: usize = 256 << 10;

/// What `describe` prints.
#[derive(Debug, Deserialize)]
struct Description {
    spec: TopologySpec,
    #[serde(default)]
    config: BTreeMap<String, String>,
}

pub(crate) async fn run(args: &Submit, settings: &Settings, out: Output) -> Outcome {
    let file = check_file(&args.file)?;
    let name = topology_name(args)?;
    let client = Client::new(settings)?;
    let description = describe(&file, &args.args).await?;
    let config = settle(&description, &settings.topology)?;

    let (sha256, bytes) = hash(&file)?;
    upload(&client, &file, &sha256, bytes, out).await?;
    let request = json!({
        "name": name,
        "spec": description.spec,
        "args": args.args,
        "config": config.pairs(),
        "binary": sha256,
        "owner": std::env::var("USER").unwrap_or_default(),
        "priority": args.priority,
        // The same in every repetition of this request, so that nimbus makes one topology of all of them.
        "request": format!("{:016x}{:016x}", random(), random()),
    });
    let submitted = client.post("/api/v1/topologies", &request).await?;
    for note in items(&submitted, "notes") {
        out.note(&format!("note: {}", note.as_str().unwrap_or_default()));
    }
    let id = text(&submitted, "id");
    let last = match args.wait {
        Some(secs) => Some(wait_until_running(&client, &id, Duration::from_secs(secs), out).await?),
        None => None,
    };
    match out.format {
        Format::Json => Output::document(last.as_ref().unwrap_or(&submitted)),
        Format::Ndjson => data(&last.as_ref().unwrap_or(&submitted).to_string()),
        Format::Name => data(name.as_str()),
        Format::Table | Format::Wide => data(&match &last {
            Some(status) => format!("{name} runs as {id}: {} executors in {} workers", text(status, "executors"), text(status, "workers")),
            None => format!("submitted {name} as {id}"),
        }),
    }
    Ok(())
}

fn random() -> u64 {
    getrandom::u64().expect("the kernel gives random numbers")
}

fn topology_name(args: &Submit) -> Outcome<Name> {
    let given = args.name.clone().unwrap_or_else(|| args.file.file_stem().unwrap_or_default().to_string_lossy().into_owned());
    Name::new(&given).map_err(|e| {
        let failure = Failure::new(Exit::Invalid, e.to_string());
        if args.name.is_some() { failure } else { failure.hint("give it a name with --name") }
    })
}

/// The absolute path of a file that can be a topology's binary.
fn check_file(path: &Path) -> Outcome<PathBuf> {
    let shown = path.display();
    let refuse = |what: String| Failure::new(Exit::Invalid, what);
    let io =
        |e: std::io::Error| refuse(format!("{shown}: {e}")).hint("give the path of a topology's binary, as `target/release/wordcount`");
    let about = path.metadata().map_err(io)?;
    if about.is_dir() {
        return Err(refuse(format!("{shown} is a directory")).hint("give the path of the topology's binary in it"));
    }
    if !about.is_file() {
        return Err(refuse(format!("{shown} is not a file")));
    }
    let mode = about.permissions().mode();
    if mode & 0o6000 != 0 {
        return Err(refuse(format!("{shown} is setuid or setgid")).hint(format!("chmod ug-s {shown}")));
    }
    let mut head = Vec::new();
    std::fs::File::open(path).and_then(|f| f.take(4).read_to_end(&mut head)).map_err(io)?;
    if head.starts_with(b"#!") {
        return Err(refuse(format!("{shown} is a script")).hint("a topology is one ELF executable: a Rust program with `saetta::main!`"));
    }
    if head != b"\x7fELF" {
        return Err(refuse(format!("{shown} is not an executable (no ELF header)"))
            .hint("a topology is one ELF executable: a Rust program with `saetta::main!`"));
    }
    if mode & 0o111 == 0 {
        return Err(refuse(format!("{shown} is not executable")).hint(format!("chmod +x {shown}")));
    }
    path.canonicalize().map_err(io)
}

/// Runs `FILE describe ARGS...`. Its stderr is the user's; a failure has said there what is wrong.
async fn describe(file: &Path, args: &[String]) -> Outcome<Description> {
    let shown = file.display();
    let failed = |what: String| Failure::new(Exit::Invalid, what);
    let mut child = tokio::process::Command::new(file)
        .arg("describe")
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| failed(format!("running {shown} describe")).why(e))?;
    let mut printed = Vec::new();
    let stdout = child.stdout.take().expect("piped");
    let talk = async {
        stdout.take(DESCRIPTION_BYTES_MAX + 1).read_to_end(&mut printed).await?;
        // Reads no further than the limit, so a binary that prints for ever must not be waited for.
        if printed.len() as u64 > DESCRIPTION_BYTES_MAX {
            return Ok(None);
        }
        child.wait().await.map(Some)
    };
    let status = tokio::time::timeout(DESCRIBE_TIMEOUT, talk)
        .await
        .map_err(|_| failed(format!("{shown} describe took longer than {} s", DESCRIBE_TIMEOUT.as_secs())))?
        .map_err(|e| failed(format!("running {shown} describe")).why(e))?
        .ok_or_else(|| failed(format!("{shown} describe printed more than {DESCRIPTION_BYTES_MAX} bytes")))?;
    if !status.success() {
        return Err(failed(format!("{shown} describe failed ({status}); the binary says why above")));
    }
    let hint = "is it a topology? its main must be `saetta::main!`, and nothing else may print to stdout";
    serde_json::from_slice(&printed).map_err(|e| failed(format!("{shown} describe printed no topology")).why(e).hint(hint))
}

/// The topology's configuration (code < file < environment < --set), with everything checked that needs no cluster.
fn settle(description: &Description, given: &Config) -> Outcome<Config> {
    let invalid = |e: &dyn std::fmt::Display| Failure::new(Exit::Invalid, e.to_string());
    let code = Config::topology(&description.config, Source::Code).map_err(|e| invalid(&e))?;
    let config = code.overlaid(given);
    Layout::new(&description.spec, &config).map_err(|e| invalid(&e))?;
    Ok(config)
}

fn hash(file: &Path) -> Outcome<(String, u64)> {
    let io = |e: std::io::Error| Failure::new(Exit::Failed, format!("reading {}", file.display())).why(e);
    let mut from = std::fs::File::open(file).map_err(io)?;
    let (mut hash, mut bytes, mut piece) = (Sha256::new(), 0, vec![0; PIECE_BYTES]);
    loop {
        let n = from.read(&mut piece).map_err(io)?;
        if n == 0 {
            return Ok((hex::encode(hash.finalize()), bytes));
        }
        hash.update(&piece[..n]);
        bytes += n as u64;
    }
}

/// A file that counts how far it was read.
struct Counted {
    file: tokio::fs::File,
    read: Arc<AtomicU64>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let polled = std::pin::Pin::new(&mut self.file).poll_read(cx, buf);
        // Relaxed: a figure on a screen.
        self.read.fetch_add((buf.filled().len() - before) as u64, Ordering::Relaxed);
        polled
    }
}

/// Streams the file to nimbus; shows how far it is on a terminal.
async fn upload(client: &Client, file: &Path, sha256: &str, bytes: u64, out: Output) -> Outcome {
    let read = Arc::new(AtomicU64::new(0));
    let body = || {
        let file = std::fs::File::open(file).map_err(|e| Failure::new(Exit::Failed, format!("reading {}", file.display())).why(e))?;
        read.store(0, Ordering::Relaxed);
        let counted = Counted { file: tokio::fs::File::from_std(file), read: Arc::clone(&read) };
        Ok(reqwest::Body::wrap_stream(ReaderStream::with_capacity(counted, PIECE_BYTES)))
    };
    let path = format!("/api/v1/blobs/{sha256}");
    let put = client.put(&path, &body, bytes);
    if !std::io::stderr().is_terminal() || out.is_quiet() {
        return put.await.map(drop);
    }
    let show = async {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let at = read.load(Ordering::Relaxed);
            eprint!("\ruploading {:.1} of {:.1} MiB", at as f64 / 1_048_576.0, bytes as f64 / 1_048_576.0);
        }
    };
    let outcome = tokio::select! {
        outcome = put => outcome,
        () = show => unreachable!("shows until the upload ends"),
    };
    eprint!("\r\x1b[K");
    outcome.map(drop)
}

/// Waits until every executor is in a worker that runs.
async fn wait_until_running(client: &Client, id: &str, within: Duration, out: Output) -> Outcome<Value> {
    let began = Instant::now();
    let mut said = String::new();
    loop {
        let status = client.get(&format!("/api/v1/topologies/{id}")).await?;
        let (running, all) = executors_running(&status);
        if all > 0 && running == all {
            return Ok(status);
        }
        let troubles = items(&status, "workers").iter().map(|w| text(w, "note")).filter(|n| !n.is_empty());
        let trouble = troubles.chain(items(&status, "notes").iter().filter_map(|n| n.as_str().map(str::to_owned))).next();
        let now = format!("{running} of {all} executors run{}", trouble.as_ref().map(|t| format!(" ({t})")).unwrap_or_default());
        if began.elapsed() >= within {
            return Err(Failure::new(
                Exit::TimedOut,
                format!("{id} does not run in full after {} s; it stays submitted", within.as_secs()),
            )
            .why(now)
            .hint(format!("look again with `saetta status {id}`")));
        }
        if now != said {
            out.note(&now);
            said = now;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Executors in running workers, and executors.
fn executors_running(status: &Value) -> (usize, usize) {
    let place = |v: &Value| (text(v, "node"), text(v, "port"));
    let running: Vec<_> = items(status, "workers").iter().filter(|w| text(w, "state") == "running").map(place).collect();
    let executors = items(status, "executors");
    (executors.iter().filter(|e| running.contains(&place(e))).count(), executors.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executor_runs_when_its_worker_does() {
        let status = json!({
            "workers": [{"node": "a", "port": 1, "state": "running"}, {"node": "b", "port": 1, "state": "starting"}],
            "executors": [{"node": "a", "port": 1}, {"node": "b", "port": 1}, {}],
        });
        assert_eq!(executors_running(&status), (1, 3));
        assert_eq!(executors_running(&json!({})), (0, 0));
    }

    #[test]
    fn given_settings_win_over_the_code_and_arithmetic_is_checked() {
        let spec = json!({
            "saetta": "0.1.0",
            "format": {"archive": "rkyv 0.8", "endian": "little", "unaligned": true, "pointer_bits": 32},
            "components": [{"id": "s", "kind": "spout", "executors": 2}],
        });
        let description: Description =
            serde_json::from_value(json!({"spec": spec, "config": {"topology.workers": "3", "topology.tasks": "2"}})).unwrap();
        let mut given = Config::new(saetta_model::config::Owner::Topology);
        given.set_pair("topology.workers=2").unwrap();
        assert_eq!(settle(&description, &given).unwrap().u32("topology.workers"), Some(2));
        given.set_pair("topology.tasks=1").unwrap();
        let refused = settle(&description, &given).unwrap_err();
        assert!(refused.exit == Exit::Invalid && refused.to_string().contains("2 executors but has 1 tasks"), "{refused}");
    }
}
