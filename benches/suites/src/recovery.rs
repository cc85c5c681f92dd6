//! `recovery`: a worker killed with -9 in a cluster of one machine, until its process is back and until tuples reach it again.
//!
//! Before: `saetta dev`, a word count in two workers, both counting. After: two times, from the kill on, as the worker's own port tells them.
//! The worker without the reader is the one that is killed, so counting again needs a new link too. Each sample has a cluster of its own: a second
//! crash would wait for its back-off.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::release;
use saetta_e2e::{Dev, binary, workers};
use saetta_harness::suite::{Figures, SuiteRun};
use saetta_harness::{Better, Result, RowSpec};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two questions: what a time is exact to.
const ASK_EVERY: Duration = Duration::from_millis(1);
/// Lines a second: far below what two workers can do, so that a backlog does not look like a slow start.
const RATE: &str = "10000";

/// Asks until `find` finds something; `why` is what is missing.
fn poll<T>(why: &str, mut find: impl FnMut() -> Option<T>) -> Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = find() {
            return Ok(found);
        }
        if Instant::now() > end {
            return Err(format!("{why}: not within {} s", PATIENCE.as_secs()).into());
        }
        std::thread::sleep(ASK_EVERY);
    }
}

/// One kill: milliseconds until the process answers, and until its count rises.
fn kill_one() -> Result<Figures> {
    let dev = Dev::start(&[]);
    let wordcount: PathBuf = binary("wordcount");
    let wordcount = wordcount.to_str().ok_or("the path of the build is not UTF-8")?;
    let begin = ["submit", wordcount, "--name", "endless", "--set", "topology.workers=2", "--wait", "-o", "json", "--"];
    let submitted = dev.saetta(&[&begin[..], &["--repeat", "--rate", RATE, &licence()?]].concat()).ends_with(0).json();
    let id = submitted["id"].as_str().ok_or("no id in the answer")?.to_owned();
    let status = dev.status("endless");
    let executors = status["executors"].as_array().ok_or("no executors in the status")?;
    let reader = executors.iter().find(|e| e["component"] == "read").ok_or("no reader in the status")?["port"].clone();
    let victim = workers(&status).into_iter().find(|w| reader != w.port).ok_or("both executors are in one worker")?;
    poll("it counts before the kill", || dev.ask(&id, victim.port).ok().filter(|r| r.executed > 0))?;

    let pid = victim.pid.to_string();
    let began = Instant::now();
    if !Command::new("kill").args(["-9", &pid]).status()?.success() {
        return Err(format!("worker {pid} has ended before it was killed").into());
    }
    let back = poll("it answers again", || dev.ask(&id, victim.port).ok().filter(|r| r.start > victim.start))?;
    let back_ms = began.elapsed().as_secs_f64() * 1e3;
    poll("it counts again", || dev.ask(&id, victim.port).ok().filter(|r| r.start == back.start && r.executed > 0))?;
    let counting_ms = began.elapsed().as_secs_f64() * 1e3;
    Ok(Figures::from([("back_ms", back_ms), ("counting_ms", counting_ms)]))
}

/// The text that is counted, over and over.
fn licence() -> Result<String> {
    Ok(std::path::absolute("LICENSE")?.display().to_string())
}

pub(crate) fn declare(run: &mut SuiteRun<'_>) -> Result<()> {
    release::build()?;
    run.case_of_any_class("kill -9", |_| kill_one());
    let row = |name: &str, figure| RowSpec::new(name, "ms", Better::Lower, "kill -9", figure);
    run.row(row("worker killed: process back", "back_ms"));
    run.row(row("worker killed: counting again", "counting_ms"));
    Ok(())
}
