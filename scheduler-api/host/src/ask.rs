//! A snapshot put to a scheduler in a helper process, outside of nimbus: for simulations, replays and checks of plugins.
//!
//! Before: a tool has a snapshot. After: what the scheduler wrote, and what the validator says of it. Not here: fallback and model (`round`).

use crate::SchedulerOptions;
use crate::inspect::inspect;
use crate::pack::{Packed, PackedSlot, PackedTopology};
use crate::process::{Answer, Failure, Helper, Spawner, What};
use crate::validate::validate;
use saetta_model::cluster::SlotId;
use saetta_model::name::Name;
use saetta_model::parallelism::ExecutorId;
use saetta_sdk::abi;
use saetta_sdk::call::RoundArgs;
use saetta_sdk::snapshot::{SlotId as SlotRowId, Snapshot};

/// A plugin that claims this keeps to what nodes have, and chooses the number of workers itself.
pub const CLAIM_RESOURCES: &str = "saetta.resources/1";

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
        let claims = match &what {
            What::Plugin { path, .. } => inspect(path).map(|manifest| manifest.claims).unwrap_or_default(),
            What::BuiltinEven => Vec::new(),
        };
        let keeps_resources = claims.iter().any(|c| c == CLAIM_RESOURCES);
        Desk { options, what, keeps_resources, helper: None, spawner: Spawner::start() }
    }

    /// Its manifest claims [`CLAIM_RESOURCES`].
    pub fn keeps_resources(&self) -> bool {
        self.keeps_resources
    }

    /// Starts the helper if none runs, and loads the scheduler.
    pub fn load(&mut self) -> Result<(), Failure> {
        if self.helper.as_ref().is_none_or(|h| !h.is_alive()) {
            self.helper = Some(Helper::start(&self.spawner, &self.options, &self.what)?);
        }
        Ok(())
    }

    /// Runs a round; blocks for at most the deadline, and as long again where the helper has to be started. Panics for bytes that are no snapshot.
    pub fn round(&mut self, snapshot: &[u8], args: RoundArgs) -> Result<Answer, Failure> {
        self.load()?;
        let mut helper = self.helper.take().expect("loaded above");
        let answer = helper.round(&packed(snapshot), args, self.options.deadline)?;
        self.helper = Some(helper);
        Ok(answer)
    }
}

/// The validator's verdict on an answer, one for each topology of the snapshot. Who keeps resources may use more slots than workers are wanted
/// (V08). Panics for bytes that are no snapshot.
pub fn judge(snapshot: &[u8], answer: &Answer, keeps_resources: bool) -> Vec<Result<(), String>> {
    let mut packed = packed(snapshot);
    packed.topologies.iter_mut().filter(|_| keeps_resources).for_each(|t| t.workers_wanted = u32::MAX);
    validate(&packed, answer)
}

/// A snapshot with its way back.
fn packed(bytes: &[u8]) -> Packed {
    let snapshot = Snapshot::new(bytes).expect("the caller made it");
    let name = |text| Name::try_from(snapshot.text(text).to_owned()).unwrap_or_else(|_| Name::system("__unnamed"));
    let slot = |(id, s): (SlotRowId, abi::SlotRow)| PackedSlot {
        id: SlotId { node: name(snapshot.nodes().get(s.node as usize).id), port: s.port as u16 },
        assignable: s.flags & abi::SLOT_ASSIGNABLE != 0,
        cores: snapshot.cores_of(id).map(|c| c.0).collect(),
    };
    let topology = |(input_index, t): (usize, abi::TopologyRow)| PackedTopology {
        input_index,
        executors: t.first_exec as usize..(t.first_exec + t.n_execs) as usize,
        workers_wanted: t.workers_wanted,
        schedule: t.flags & abi::TOPO_SCHEDULE != 0,
    };
    Packed {
        bytes: bytes.to_vec(),
        slots: snapshot.slots().with_ids().map(slot).collect(),
        cores: snapshot.cores().iter().map(|c| c.os_id).collect(),
        executors: snapshot.executors().iter().map(|e| ExecutorId { first: e.first_task, last: e.last_task }).collect(),
        slot_of_exec: snapshot.executors().iter().map(|e| e.slot).collect(),
        topologies: snapshot.topologies().iter().enumerate().map(topology).collect(),
    }
}
