//! A scheduler to be asked: linked into this program or loaded into it, or a plugin in the host's helper process.
//!
//! Before: a snapshot. After: the plan it wrote, not validated, or in one line why there is none.

use saetta_sched_host::Answer;
use saetta_sched_host::ask::Desk;
use saetta_sched_host::inspect::CLAIM_RESOURCES;
use saetta_sched_host::library;
use saetta_sdk::abi;
use saetta_sdk::call::{Builtin, Instance, PlanArrays, RoundArgs, Services};
use saetta_sdk::snapshot::Snapshot;
use std::path::Path;

/// Seconds over which the rates of a scenario are said to be averaged.
const STATS_WINDOW_S: u32 = 60;

/// A scheduler.
pub enum Seat {
    /// In this process: what a round takes is the scheduler alone. Whether it keeps to what nodes have is its manifest's word.
    Here(Instance, bool),
    /// In a helper: what a round takes has the way there and back in it.
    Apart(Box<Desk>),
}

impl Seat {
    /// An instance of a linked-in scheduler.
    pub fn linked(builtin: Builtin) -> Result<Self, String> {
        Seat::here(builtin, "{}", false)
    }

    /// An instance of a plugin with this configuration, loaded into this process for good: what breaks in it breaks this program.
    pub fn in_process(path: &Path, config: &str) -> Result<Self, String> {
        let (plugin, manifest) = library::open(path).map_err(|e| e.to_string())?;
        Seat::here(plugin, config, manifest.has_claim(CLAIM_RESOURCES))
    }

    fn here(builtin: Builtin, config: &str, keeps_resources: bool) -> Result<Self, String> {
        let mut services = Services::new(|_, _| {});
        services.stats_window_s = Some(STATS_WINDOW_S);
        Instance::builtin(builtin, config, services).map(|i| Seat::Here(i, keeps_resources)).map_err(|e| e.to_string())
    }

    /// It keeps to what nodes have, and chooses the number of workers itself.
    pub fn keeps_resources(&self) -> bool {
        match self {
            Seat::Here(_, keeps) => *keeps,
            Seat::Apart(desk) => desk.keeps_resources(),
        }
    }

    /// Whatever has to be done before the first round, so that no round's time has it in it.
    pub fn load(&mut self) -> Result<(), String> {
        match self {
            Seat::Here(..) => Ok(()),
            Seat::Apart(desk) => desk.load().map_err(|e| e.to_string()),
        }
    }

    /// A round. Panics for bytes that are no snapshot.
    pub fn round(&mut self, bytes: &[u8], args: RoundArgs) -> Result<Answer, String> {
        let instance = match self {
            Seat::Here(instance, _) => instance,
            Seat::Apart(desk) => return desk.round(bytes, args).map_err(|e| e.to_string()),
        };
        let snapshot = Snapshot::new(bytes).expect("the caller made it");
        let mut slot_of_exec: Vec<u32> = snapshot.executors().iter().map(|e| e.slot).collect();
        let mut outcome = vec![abi::OUT_KEEP; snapshot.topologies().len()];
        let mut core_of_exec = vec![abi::NONE; slot_of_exec.len()];
        let plan = PlanArrays { slot_of_exec: &mut slot_of_exec, outcome: &mut outcome, core_of_exec: Some(&mut core_of_exec) };
        instance.schedule(args, bytes, plan).map_err(|e| e.to_string())?;
        Ok(Answer { slot_of_exec, outcome, core_of_exec })
    }
}
