//! A snapshot put to a scheduler in a helper process, outside of nimbus: for simulations, replays and checks of plugins.
//!
//! Before: a tool has a snapshot. After: what the scheduler wrote, and what the validator says of it. Not here: fallback and model (`round`).

use crate::SchedulerOptions;
use crate::inspect::{CLAIM_RESOURCES, inspect};
use crate::process::{Answer, Failure, Helper, Question, Spawner, What};
use crate::validate::{Rules, validate};
use saetta_sdk::call::RoundArgs;
use saetta_sdk::snapshot::Snapshot;

/// A scheduler in a helper of its own, started by the first round and anew after a failure. Dropping it ends the process.
pub struct Desk {
    options: SchedulerOptions,
    what: What,
    keeps_resources: bool,
    helper: Option<Helper>,
    spawner: Spawner,
}

impl Desk {
    /// Starts nothing yet. Of the options the helper's path and the limits count.
    pub fn new(options: SchedulerOptions, what: What) -> Self {
        let keeps_resources = match &what {
            What::Plugin { path, .. } => inspect(path).is_ok_and(|manifest| manifest.has_claim(CLAIM_RESOURCES)),
            What::BuiltinEven => false,
        };
        Desk { options, what, keeps_resources, helper: None, spawner: Spawner::start() }
    }

    /// Its manifest claims [`CLAIM_RESOURCES`].
    pub fn keeps_resources(&self) -> bool {
        self.keeps_resources
    }

    /// Starts the helper if none runs, and loads the scheduler.
    pub fn load(&mut self) -> Result<(), Failure> {
        if self.helper.as_ref().is_none_or(|h| !h.is_alive()) {
            self.helper = Some(Helper::start(&self.spawner, &self.options, &self.what, None)?);
        }
        Ok(())
    }

    /// Runs a round; blocks for at most the deadline, and as long again where the helper has to be started. Panics for bytes that are no snapshot.
    pub fn round(&mut self, snapshot: &[u8], args: RoundArgs) -> Result<Answer, Failure> {
        self.load()?;
        let mut helper = self.helper.take().expect("loaded above");
        let view = Snapshot::new(snapshot).expect("the caller made it");
        let before: Vec<u32> = view.executors().iter().map(|e| e.slot).collect();
        let question = Question { bytes: snapshot, before: &before, n_topologies: view.topologies().len(), args };
        let answer = helper.round(&question, self.options.deadline)?;
        self.helper = Some(helper);
        Ok(answer)
    }
}

/// The validator's verdict on an answer, one for each topology of the snapshot: slots may be taken for a better priority, and who says that it
/// keeps resources is held to that. Panics for bytes that are no snapshot.
pub fn judge(snapshot: &[u8], answer: &Answer, keeps_resources: bool) -> Vec<Result<(), String>> {
    let snapshot = Snapshot::new(snapshot).expect("the caller made it");
    let rules = Rules { resources: keeps_resources, constraints: keeps_resources, may_preempt: true, ..Rules::default() };
    validate(&snapshot, answer, &rules).into_iter().map(|v| v.map_err(|why| why.to_string())).collect()
}
