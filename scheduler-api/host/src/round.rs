//! One scheduling round from the model to the model: the plugin first, then "keep what runs, even for the rest".
//!
//! Before: nimbus has the live cluster and the topologies with what of them is alive. After: a slot for every executor that
//! could get one, and in words how that came about. Blocking: at most the deadline for the plugin and the same for the fallback, and
//! again as much where their processes have to be started; shorter deadlines than 5 s hold for the plugin's round only.

use crate::SchedulerOptions;
use crate::pack::{Clock, Packed, Places, pack};
use crate::process::{Answer, Failure, Helper, START_DEADLINE_MIN, Spawner, What};
use crate::validate::validate;
use saetta_model::assignment::Assignment;
use saetta_model::beat::EdgeRate;
use saetta_model::cluster::{SlotId, Supervisors};
use saetta_model::name::Name;
use saetta_model::parallelism::{ExecutorId, Layout};
use saetta_model::record::TopologyRecord;
use saetta_sdk::abi;
use saetta_sdk::call::RoundArgs;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Why there is a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The safety net.
    Periodic,
    /// A topology was submitted.
    Submit,
    /// A rebalance was asked for.
    Rebalance,
    /// A node was lost.
    NodeLost,
    /// A node came.
    NodeBack,
    /// A topology was killed.
    Kill,
}

impl Reason {
    /// Its number in the ABI.
    pub fn code(self) -> u32 {
        match self {
            Reason::Periodic => abi::REASON_PERIODIC,
            Reason::Submit => abi::REASON_SUBMIT,
            Reason::Rebalance => abi::REASON_REBALANCE,
            Reason::NodeLost => abi::REASON_NODE_LOST,
            Reason::NodeBack => abi::REASON_NODE_BACK,
            Reason::Kill => abi::REASON_KILL,
        }
    }
}

/// One topology in a round.
#[derive(Debug, Clone, Copy)]
pub struct RoundTopology<'a> {
    /// What was submitted.
    pub record: &'a TopologyRecord,
    /// Its executors.
    pub layout: &'a Layout,
    /// Workers it asks for.
    pub workers_wanted: u32,
    /// Only what is alive and should be kept where possible. Its `hosts` name the addresses of nodes that report no more.
    pub current: &'a Assignment,
    /// What was measured on its subscriptions; empty = nothing.
    pub rates: &'a [EdgeRate],
}

/// A round: everything a decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct RoundInput<'a> {
    /// Why now.
    pub reason: Reason,
    /// The machines.
    pub supervisors: &'a Supervisors,
    /// The topologies, in any order.
    pub topologies: &'a [RoundTopology<'a>],
    /// The only randomness a scheduler may use.
    pub seed: u64,
    /// Rises with each round.
    pub round_id: u64,
}

/// How a topology came to its slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// By the plugin of this name.
    Plugin(String),
    /// The plugin failed or its plan was refused: what ran stays, the built-in even placed the rest.
    Fallback {
        /// What went wrong, one line.
        why: String,
    },
    /// The plugin failed or its plan was refused, and everything stays as it is: nothing was unplaced, or the fallback failed too.
    Kept {
        /// What went wrong, one line.
        why: String,
    },
}

/// Result for one topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyPlan {
    /// Slot of each executor that has one.
    pub slots: BTreeMap<ExecutorId, SlotId>,
    /// Cores, by the operating system's number, of executors that a scheduler put on one. The others are for the worker's own planner.
    pub cores: BTreeMap<ExecutorId, u32>,
    /// How it came about.
    pub how: How,
    /// Executors without a slot.
    pub unplaced: u32,
}

/// Result of a round, in the order of the input. By topology id (`TopologyRecord::id`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundOutcome {
    /// One entry for each topology of the input.
    pub topologies: Vec<(Name, TopologyPlan)>,
}

/// Runs rounds. Keeps the helper processes between them; dropping it ends them.
pub struct Scheduler {
    options: SchedulerOptions,
    started: Instant,
    helpers: Mutex<Helpers>,
}

struct Helpers {
    spawner: Spawner,
    /// `None` = not started yet, or ended after a failure.
    plugin: Option<Helper>,
    /// The linked-in even, in a process of its own.
    fallback: Option<Helper>,
}

impl Scheduler {
    /// Starts nothing yet: the first round does, and says what is missing.
    pub fn new(options: SchedulerOptions) -> Self {
        Scheduler {
            options,
            started: Instant::now(),
            helpers: Mutex::new(Helpers { spawner: Spawner::start(), plugin: None, fallback: None }),
        }
    }

    /// The options it was made with.
    pub fn options(&self) -> &SchedulerOptions {
        &self.options
    }

    /// Runs one round. Never fails: what goes wrong is in [`How`]. Blocks; the head of this file says how long.
    pub fn round(&self, input: &RoundInput<'_>) -> RoundOutcome {
        if input.topologies.is_empty() {
            return RoundOutcome { topologies: Vec::new() };
        }
        let mut helpers = self.helpers.lock().unwrap_or_else(PoisonError::into_inner);
        let clock = Clock {
            wall_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64),
            monotonic_ns: self.started.elapsed().as_nanos() as u64,
        };
        let facts = &self.options.facts;
        let mut places: Vec<Placing> = input.topologies.iter().map(Placing::alive).collect();
        let n = places.len();

        let packed = pack(input, &slots_of(&places), &vec![true; n], facts, clock);
        let plugin = &self.options.plugin;
        let refused = match self.ask(&mut helpers, true, input, &packed, abi::NONE) {
            Ok(answer) => {
                accept(&packed, &answer, &mut places, false).map(|r| r.map(|rule| format!("plan of plugin {plugin} refused: {rule}")))
            }
            Err(failure) => Verdicts(vec![Some(format!("plugin {plugin}: {failure}")); n]),
        };
        for why in refused.0.iter().flatten() {
            tracing::warn!(plugin, round_id = input.round_id, why, "scheduler plugin failed for a topology");
        }

        // Keep what runs; even places what has no slot, and moves nothing.
        let lacking: Vec<bool> = (0..n).map(|i| refused.0[i].is_some() && unplaced(&input.topologies[i], &places[i].slots) > 0).collect();
        let mut fallback = vec![None; n];
        if lacking.contains(&true) {
            let packed = pack(input, &slots_of(&places), &lacking, facts, clock);
            fallback = match self.ask(&mut helpers, false, input, &packed, 0) {
                Ok(answer) => accept(&packed, &answer, &mut places, true).0,
                Err(failure) => {
                    tracing::error!(round_id = input.round_id, %failure, "the built-in scheduler failed; nothing new is placed");
                    vec![Some(failure.to_string()); n]
                }
            };
        }

        let topologies = input.topologies.iter().zip(places).enumerate().map(|(i, (topology, Placing { slots, cores }))| {
            let how = match (&refused.0[i], &fallback[i]) {
                (None, _) => How::Plugin(plugin.clone()),
                (Some(why), None) if lacking[i] => How::Fallback { why: why.clone() },
                (Some(why), None) => How::Kept { why: why.clone() },
                (Some(why), Some(failure)) => How::Kept { why: format!("{why}; fallback: {failure}") },
            };
            (topology.record.id.clone(), TopologyPlan { unplaced: unplaced(topology, &slots), slots, cores, how })
        });
        RoundOutcome { topologies: topologies.collect() }
    }

    /// Runs the round in the plugin's helper, or in the fallback's. A helper that failed is ended and started anew next time.
    fn ask(&self, helpers: &mut Helpers, plugin: bool, input: &RoundInput<'_>, packed: &Packed, max_moves: u32) -> Result<Answer, Failure> {
        let Helpers { spawner, plugin: plugin_helper, fallback } = helpers;
        let deadline = self.options.deadline;
        let (place, what, allowed) = if plugin {
            (plugin_helper, What::Plugin { name: self.options.plugin.clone(), path: self.options.plugin_path() }, deadline)
        } else {
            (fallback, What::BuiltinEven, deadline.max(START_DEADLINE_MIN))
        };
        let mut helper = match place.take() {
            Some(helper) if helper.is_alive() => helper,
            _ => Helper::start(spawner, &self.options, &what)?,
        };
        let budget_ns = allowed.as_nanos().min(u128::from(u64::MAX)) as u64;
        let args = RoundArgs { reason: input.reason.code(), round_id: input.round_id, seed: input.seed, max_moves, flags: 0, budget_ns };
        let answer = helper.round(packed, args, allowed)?;
        *place = Some(helper);
        Ok(answer)
    }
}

/// Per topology of the input: `None` = accepted, else why not.
struct Verdicts(Vec<Option<String>>);

impl Verdicts {
    fn map(self, f: impl Fn(Option<String>) -> Option<String>) -> Self {
        Verdicts(self.0.into_iter().map(f).collect())
    }
}

/// Validates an answer and moves what is accepted into `places`. With `cores_stay`, who stays in its slot stays on the core it was put on.
fn accept(packed: &Packed, answer: &Answer, places: &mut [Placing], cores_stay: bool) -> Verdicts {
    let mut refused = vec![None; places.len()];
    for (row, (topology, verdict)) in packed.topologies.iter().zip(validate(packed, answer)).enumerate() {
        match verdict {
            Ok(()) if answer.outcome[row] == abi::OUT_KEEP => {}
            Ok(()) => {
                let placed = || topology.executors.clone().filter(|e| answer.slot_of_exec[*e] != abi::NONE);
                let slot = |e: usize| (packed.executors[e], packed.slots[answer.slot_of_exec[e] as usize].id.clone());
                let core = |e: usize| Some((packed.executors[e], *packed.cores.get(answer.core_of_exec[e] as usize)?));
                let next = Placing { slots: placed().map(slot).collect(), cores: placed().filter_map(core).collect() };
                let before = std::mem::replace(&mut places[topology.input_index], next);
                if cores_stay {
                    let Placing { slots, cores } = &mut places[topology.input_index];
                    cores.extend(before.cores.into_iter().filter(|(id, _)| slots.get(id) == before.slots.get(id)));
                }
            }
            Err(rule) => refused[topology.input_index] = Some(rule),
        }
    }
    Verdicts(refused)
}

/// Where the executors of a topology are, as far as it is decided.
struct Placing {
    slots: Places,
    /// Of those that a scheduler put on a core.
    cores: BTreeMap<ExecutorId, u32>,
}

impl Placing {
    /// As it runs now.
    fn alive(topology: &RoundTopology<'_>) -> Self {
        let mut current = topology.current.slots();
        let slots: Places = topology.layout.executors().filter_map(|(_, id)| current.remove(&id).map(|slot| (id, slot))).collect();
        let planned = topology.current.workers.iter().flat_map(|w| &w.executors).filter(|e| e.planned && slots.contains_key(&e.id));
        Placing { cores: planned.map(|e| (e.id, e.core)).collect(), slots }
    }
}

fn slots_of(places: &[Placing]) -> Vec<Places> {
    places.iter().map(|p| p.slots.clone()).collect()
}

fn unplaced(topology: &RoundTopology<'_>, places: &Places) -> u32 {
    topology.layout.n_executors() - places.len() as u32
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Scheduler>() // nimbus keeps one for all its rounds
};
