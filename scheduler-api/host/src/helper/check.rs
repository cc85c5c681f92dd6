//! One check of the conformance suite in the process it may take down.
//!
//! Before: `conformance::run` started the helper with `--check`. After: one RESULT with what the check found, or the process has died and
//! its parent says how. Limits and filters are those of a helper that runs rounds, in the same order.

use super::{filters, limits, load, say, sys};
use crate::conformance::{self, Body, Fine, Verdict};
use crate::inspect::{Manifest, inspect};
use crate::wire::{Kind, Message};
use saetta_sdk::PluginError;
use saetta_sdk::abi;
use saetta_sdk::call::{Builtin, Instance, PlanArrays, RoundArgs, Services};
use saetta_sdk::snapshot::Snapshot;
use saetta_sdk::testing::Cluster;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How often a process may look at its own state; each look uses up a file that was opened before the filters.
const LOOKS: usize = 8;

/// Codes of a check's RESULT.
pub(crate) const SUCCESS: i32 = 0;
pub(crate) const WARNING: i32 = 1;
pub(crate) const SKIPPED: i32 = 2;
pub(crate) const FAILED: i32 = -1;

/// First argument of a helper that runs a check; then follow the check's id, the parent's process id, the limit of memory, the file.
pub(crate) const FLAG: &str = "--check";

/// Runs one check and says what it found.
pub(super) fn main(args: impl Iterator<Item = String>) -> ExitCode {
    let args: Vec<String> = args.collect();
    let [id, parent_pid, memory_bytes, file] = &args[..] else { return ExitCode::from(2) };
    let (Ok(parent_pid), Ok(memory_bytes)) = (parent_pid.parse(), memory_bytes.parse()) else { return ExitCode::from(2) };
    let verdict =
        Bench::new(parent_pid, memory_bytes, Path::new(file)).and_then(|mut bench| match conformance::find(id).map(|c| &c.body) {
            Some(Body::Process(body)) => {
                catch_unwind(AssertUnwindSafe(|| body(&mut bench))).unwrap_or_else(|_| Err("the check itself panicked".to_owned()))
            }
            _ => Err(format!("there is no check {id} that runs a plugin")),
        });
    let (code, text) = match verdict {
        Ok(Fine::Success) => (SUCCESS, String::new()),
        Ok(Fine::Warning(text)) => (WARNING, text),
        Ok(Fine::Skipped(text)) => (SKIPPED, text),
        Err(text) => (FAILED, text),
    };
    match say(&Message::new(Kind::Result, code, &text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Ignored, caught and blocked signals, as the kernel names them.
pub(crate) const SIGNALS: [&str; 3] = ["SigIgn", "SigCgt", "SigBlk"];

/// State of a process that a scheduler has no business changing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) threads: u64,
    /// Address space: what was asked for and not given back, touched or not.
    pub(crate) memory_bytes: u64,
    /// Ignored and caught signals, umask.
    pub(crate) settings: BTreeMap<String, String>,
}

/// A loaded plugin, and what a check may do with it.
pub(crate) struct Bench {
    pub(crate) plugin: Builtin,
    pub(crate) manifest: Manifest,
    /// Before it was loaded.
    pub(crate) before: Option<State>,
    pub(crate) files_before: Vec<String>,
    pub(crate) cwd_before: Option<PathBuf>,
    pub(crate) locale_before: String,
    pub(crate) load_time: Duration,
    looks: Vec<File>,
}

/// What a plugin wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) changed: bool,
    pub(crate) slot_of_exec: Vec<u32>,
    pub(crate) outcome: Vec<u32>,
    pub(crate) core_of_exec: Vec<u32>,
}

/// A round without anything special.
pub(crate) fn plain() -> RoundArgs {
    RoundArgs { reason: abi::REASON_PERIODIC, round_id: 1, seed: 1, max_moves: abi::NONE, flags: 0, budget_ns: 60_000_000_000 }
}

impl Bench {
    /// Takes the limits and loads the plugin; no instance yet.
    fn new(parent_pid: i32, memory_bytes: u64, path: &Path) -> Result<Self, String> {
        sys::close_inherited();
        limits::apply(parent_pid, memory_bytes)?;
        let looks = (0..LOOKS).filter_map(|_| File::open("/proc/self/status").ok()).collect();
        // Where the kernel has no filters, the checks still say what they can.
        let _ = filters::before_load();
        let manifest = inspect(path).map_err(|e| e.to_string())?;
        let mut bench = Bench {
            plugin: saetta_even::BUILTIN,
            manifest,
            before: None,
            files_before: open_files(),
            cwd_before: std::env::current_dir().ok(),
            locale_before: sys::locale(),
            load_time: Duration::ZERO,
            looks,
        };
        bench.before = bench.look();
        let started = Instant::now();
        bench.plugin = load::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
        bench.load_time = started.elapsed();
        Ok(bench)
    }

    /// The process as it is now; `None` = the system does not say, or too many looks.
    pub(crate) fn look(&mut self) -> Option<State> {
        let mut text = String::new();
        self.looks.pop()?.read_to_string(&mut text).ok()?;
        let fields: BTreeMap<&str, &str> = text.lines().filter_map(|l| l.split_once(':')).map(|(k, v)| (k, v.trim())).collect();
        let number = |key: &str| fields.get(key)?.split_whitespace().next()?.parse::<u64>().ok();
        let settings = SIGNALS.iter().chain(&["Umask"]).filter_map(|k| Some((k.to_string(), fields.get(k)?.to_string()))).collect();
        Some(State { threads: number("Threads")?, memory_bytes: number("VmSize")? << 10, settings })
    }

    /// An instance with the configuration `{}`.
    pub(crate) fn instance(&self) -> Result<Instance, String> {
        self.instance_of(|| {})
    }

    /// The same; each log line and each reason it gives is a call of `called`.
    pub(crate) fn instance_of(&self, called: impl Fn() + Clone + Send + Sync + 'static) -> Result<Instance, String> {
        let explained = called.clone();
        let mut services = Services::new(move |_, _| called());
        services.explain = Some(Box::new(move |_| explained()));
        Instance::builtin(self.plugin, "{}", services).map_err(|e| format!("it makes no instance: {e}"))
    }

    /// An instance behind the filter that holds during rounds.
    pub(crate) fn start(&mut self) -> Result<Instance, String> {
        let instance = self.instance()?;
        let _ = filters::after_create(Some(&self.manifest));
        Ok(instance)
    }
}

/// A round on memory that cannot be written to, as the sealed snapshot.
pub(crate) fn ask(instance: &mut Instance, args: RoundArgs, snapshot: &[u8]) -> Result<Answer, PluginError> {
    let frozen = freeze(snapshot)?;
    ask_in_place(instance, args, frozen.bytes())
}

/// The same; afterwards the addresses of the snapshot must not be touched by anybody.
pub(crate) fn ask_and_forbid(instance: &mut Instance, args: RoundArgs, snapshot: &[u8]) -> Result<Answer, PluginError> {
    let frozen = freeze(snapshot)?;
    let answer = ask_in_place(instance, args, frozen.bytes());
    frozen.forbid().map_err(|e| PluginError::internal(format!("protecting memory: {e}")))?;
    answer
}

fn freeze(snapshot: &[u8]) -> Result<sys::ReadMap, PluginError> {
    sys::ReadMap::frozen(snapshot).map_err(|e| PluginError::internal(format!("memory for the snapshot: {e}")))
}

/// A round on the caller's memory.
pub(crate) fn ask_in_place(instance: &mut Instance, args: RoundArgs, snapshot: &[u8]) -> Result<Answer, PluginError> {
    // Of a snapshot that this host itself would refuse there is nothing to fill in.
    let (mut slot_of_exec, n_topologies) = match Snapshot::new(snapshot) {
        Ok(s) => (s.executors().iter().map(|e| e.slot).collect::<Vec<u32>>(), s.topologies().len()),
        Err(_) => (Vec::new(), 0),
    };
    let mut outcome = vec![abi::OUT_KEEP; n_topologies];
    let mut core_of_exec = vec![abi::NONE; slot_of_exec.len()];
    let plan = PlanArrays { slot_of_exec: &mut slot_of_exec, outcome: &mut outcome, core_of_exec: Some(&mut core_of_exec) };
    let changed = instance.schedule(args, snapshot, plan)?;
    Ok(Answer { changed, slot_of_exec, outcome, core_of_exec })
}

/// A plain round on a cluster; an error becomes the reason of a failed check.
pub(crate) fn plan_for(instance: &mut Instance, what: &str, cluster: &Cluster) -> Result<Answer, String> {
    ask(instance, plain(), &cluster.pack()).map_err(|e| format!("{what}: it answered {e}"))
}

/// The locale of this process.
pub(crate) fn locale() -> String {
    sys::locale()
}

/// What the open descriptors point to.
pub(crate) fn open_files() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let names = entries.flatten().filter_map(|e| std::fs::read_link(e.path()).ok());
    // The directory that is being read here.
    let mut names: Vec<String> = names.map(|p| p.display().to_string()).filter(|p| !p.ends_with("/fd")).collect();
    names.sort();
    names
}

/// A check that goes on only while `f` is fine.
pub(crate) fn fine(f: impl FnOnce() -> Result<(), String>) -> Verdict {
    f().map(|()| Fine::Success)
}
