//! Looks at workers: what `status` says of them, and what the kernel says.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A worker as `status -o json` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Supervisor.
    pub node: String,
    /// Slot.
    pub port: u16,
    /// Process.
    pub pid: u32,
    /// How often its placement was started.
    pub start: u64,
    /// The supervisor's word.
    pub state: String,
}

/// A number that must be there.
#[track_caller]
pub fn as_u64(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no number {key} in {value}"))
}

/// The workers of a status, by node and port; one without a process has pid 0.
pub fn workers(status: &Value) -> Vec<Worker> {
    let all = status["workers"].as_array().map_or(&[][..], Vec::as_slice);
    let mut workers: Vec<Worker> = all
        .iter()
        .map(|w| Worker {
            node: w["node"].as_str().expect("a node").to_owned(),
            port: as_u64(w, "port") as u16,
            pid: w["pid"].as_u64().unwrap_or(0) as u32,
            start: w["start"].as_u64().unwrap_or(0),
            state: w["state"].as_str().expect("a state").to_owned(),
        })
        .collect();
    workers.sort_by(|a, b| (&a.node, a.port).cmp(&(&b.node, b.port)));
    workers
}

/// Tuples executed by executors on each node, as the status says.
pub fn executed_by_node(status: &Value) -> BTreeMap<String, u64> {
    let mut by_node = BTreeMap::new();
    for e in status["executors"].as_array().map_or(&[][..], Vec::as_slice) {
        if let Some(node) = e["node"].as_str() {
            *by_node.entry(node.to_owned()).or_default() += as_u64(e, "executed");
        }
    }
    by_node
}

/// The cores each core loop of a process may run on, as the kernel says: `Cpus_allowed_list` by thread name `loop-N`.
pub fn loop_cores(pid: u32) -> BTreeMap<String, String> {
    let mut cores = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map(|v| v.trim().to_owned()).unwrap_or_default();
        let name = field("Name:");
        if name.starts_with("loop-") {
            assert!(cores.insert(name, field("Cpus_allowed_list:")).is_none(), "two loops of one name in {pid}");
        }
    }
    cores
}

/// True while a process with this id runs; a zombie has ended.
pub fn alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which may hold anything, and its closing parenthesis.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Processes whose local socket is below `dir`: workers of a supervisor that lives there.
pub fn workers_under(dir: &Path) -> BTreeSet<u32> {
    let mark = format!("{}/", dir.display());
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let args: Vec<&[u8]> = line.split(|b| *b == 0).collect();
        args.get(1) == Some(&&b"worker"[..]) && args.iter().any(|a| a.starts_with(mark.as_bytes()))
    })
    .collect()
}

/// Ends what [`workers_under`] finds.
pub(crate) fn end_workers_under(dir: &Path) {
    for pid in workers_under(dir) {
        kill_9(pid);
    }
}

pub(crate) fn kill_9(pid: u32) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Two cores this process may use; the same one twice where there is only one.
pub fn cores() -> [u32; 2] {
    let set = rustix::thread::sched_getaffinity(None).expect("the kernel says which cores");
    let mut all = (0..rustix::thread::CpuSet::MAX_CPU as u32).filter(|c| set.is_set(*c as usize));
    let first = all.next().expect("one at least");
    [first, all.next().unwrap_or(first)]
}
