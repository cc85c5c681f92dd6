//! One scheduling round from the model to the model: the plugin first, then "keep what runs, even for the rest".
//!
//! Before: nimbus has the live cluster and the topologies with what of them is alive. After: a slot for every executor that
//! could get one, and in words how that came about. Blocking: at most the deadline for the plugin and the same for the fallback, and
//! again as much where their processes have to be started; shorter deadlines than 5 s hold for the plugin's round only.

use crate::SchedulerOptions;
use crate::accept::{Placing, accept, slots_of};
use crate::block::mark_nodes;
use crate::breaker::Gate;
use crate::notes::{Asked, notes};
use crate::pack::{Clock, Packed, Places, pack};
use crate::process::{Failure, Question, START_DEADLINE_MIN, Spawner};
use crate::record::{Record, Recorder, head_of};
use crate::seat::Seat;
use crate::shadow::Shadow;
use crate::status::Status;
use crate::validate::lint::Flaps;
use crate::validate::{Rules, validate};
use saetta_model::assignment::Assignment;
use saetta_model::beat::EdgeRate;
use saetta_model::cluster::{SlotId, Supervisors};
use saetta_model::name::Name;
use saetta_model::parallelism::{ExecutorId, Layout};
use saetta_model::record::TopologyRecord;
use saetta_sdk::abi;
use saetta_sdk::call::RoundArgs;
use saetta_sdk::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
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
    /// Of executors that have none now: the slot they were in before it was lost, where that is known.
    pub former: &'a Places,
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
    /// Rises with each change of the leader; 0 = not stated.
    pub leader_term: u64,
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
    /// The scheduler chose the number of workers itself, so it may be more than the topology asked for.
    pub any_workers: bool,
    /// What an operator should know: why executors have no slot, and what is odd about the plan.
    pub notes: Vec<String>,
}

/// Result of a round, in the order of the input. By topology id (`TopologyRecord::id`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundOutcome {
    /// One entry for each topology of the input.
    pub topologies: Vec<(Name, TopologyPlan)>,
}

/// Runs rounds. Keeps the helper processes between them; dropping it ends them.
pub struct Scheduler {
    pub(crate) options: SchedulerOptions,
    started: Instant,
    /// Held during a round.
    state: Mutex<State>,
    pub(crate) shadow: Option<Shadow>,
    /// As of the last round; never held for long.
    pub(crate) status: Mutex<Status>,
}

/// What rounds leave behind.
pub(crate) struct State {
    pub(crate) spawner: Spawner,
    pub(crate) plugin: Seat,
    /// The linked-in even.
    fallback: Seat,
    /// Judges nodes before the others see them.
    pub(crate) health: Option<Seat>,
    flaps: Flaps,
    /// The last round.
    pub(crate) last: Option<Last>,
}

/// A decided round.
pub(crate) struct Last {
    pub(crate) at_ms: u64,
    pub(crate) packed: Packed,
    /// As the plugin was asked.
    pub(crate) args: RoundArgs,
    /// Slot of each executor after it.
    pub(crate) after: Vec<u32>,
    /// How each topology came to that, by its row.
    pub(crate) how: Vec<How>,
    pub(crate) rules: Rules,
}

impl Scheduler {
    /// Starts nothing yet: the first round does, and says what is missing.
    pub fn new(options: SchedulerOptions) -> Self {
        let seat = |name: &String, config: &str| Seat::plugin(name, options.dir.join(crate::options::plugin_file(name)), config);
        let policy = &options.policy;
        let state = State {
            spawner: Spawner::start(),
            plugin: seat(&options.plugin, &policy.config),
            fallback: Seat::builtin(),
            health: policy.node_health.as_ref().map(|name| seat(name, &policy.node_health_config)),
            flaps: Flaps::default(),
            last: None,
        };
        let shadow = policy.shadow.as_ref().map(|name| Shadow::new(seat(name, &policy.shadow_config)));
        Scheduler { status: Mutex::new(Status::new(&options)), state: Mutex::new(state), shadow, started: Instant::now(), options }
    }

    /// The options it was made with.
    pub fn options(&self) -> &SchedulerOptions {
        &self.options
    }

    /// Waits for a round that runs.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds on the breaker's clock.
    pub(crate) fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Runs one round. Never fails: what goes wrong is in [`How`]. Blocks; the head of this file says how long.
    pub fn round(&self, input: &RoundInput<'_>) -> RoundOutcome {
        if input.topologies.is_empty() {
            return RoundOutcome { topologies: Vec::new() };
        }
        let mut state = self.state();
        let clock = Clock {
            wall_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64),
            monotonic_ns: self.started.elapsed().as_nanos() as u64,
        };
        let facts = &self.options.facts;
        let mut places: Vec<Placing> = input.topologies.iter().map(Placing::alive).collect();
        let n = places.len();
        let mut packed = pack(input, &slots_of(&places), &vec![true; n], facts, clock);
        let health = self.judge(&mut state, input, &mut packed);

        let name = state.plugin.name.clone();
        let args = self.args(input, self.options.policy.max_moves);
        let gate = state.plugin.breaker.gate(self.now_ms());
        let asked = self.ask_plugin(&mut state, gate, args, &packed);
        let refused = match (&asked.answer, gate) {
            (Ok(answer), Gate::Run) => {
                let refused = accept(&packed, answer, asked.verdicts.clone(), &mut places, false);
                refused.into_iter().map(|r| r.map(|rule| format!("plan of plugin {name} refused: {rule}"))).collect()
            }
            (Ok(_), _) => vec![Some(format!("plugin {name}: quarantined; this trial went well, and its plan was not used")); n],
            (Err(failure), _) => vec![Some(format!("plugin {name}: {failure}")); n],
        };
        for why in refused.iter().flatten().collect::<BTreeSet<_>>() {
            tracing::warn!(plugin = name, round_id = input.round_id, why, "scheduler plugin failed for a topology");
        }

        // Keep what runs; even places what has no slot, and moves nothing.
        let lacking: Vec<bool> = (0..n).map(|i| refused[i].is_some() && places[i].unplaced(&input.topologies[i]) > 0).collect();
        let fallback =
            if lacking.contains(&true) { self.fall_back(&mut state, input, &lacking, &mut places, clock) } else { vec![None; n] };

        let after = rows_of(&packed, &places);
        let mut notes = notes(&mut state.flaps, &packed, &after, &asked, health.as_deref());
        let row_of: BTreeMap<usize, usize> = packed.topologies.iter().enumerate().map(|(row, t)| (t.input_index, row)).collect();
        let mut topologies = Vec::with_capacity(n);
        let mut hows: Vec<How> = vec![How::Plugin(name.clone()); n];
        for (i, (topology, placing)) in input.topologies.iter().zip(places).enumerate() {
            let how = match (&refused[i], &fallback[i]) {
                (None, _) => How::Plugin(name.clone()),
                (Some(why), None) if lacking[i] => How::Fallback { why: why.clone() },
                (Some(why), None) => How::Kept { why: why.clone() },
                (Some(why), Some(failure)) => How::Kept { why: format!("{why}; fallback: {failure}") },
            };
            hows[row_of[&i]] = how.clone();
            let plan = TopologyPlan {
                unplaced: placing.unplaced(topology),
                any_workers: asked.rules.resources && refused[i].is_none(),
                notes: std::mem::take(&mut notes[row_of[&i]]),
                slots: placing.slots,
                cores: placing.cores,
                how,
            };
            topologies.push((topology.record.id.clone(), plan));
        }
        let last = Last { at_ms: clock.wall_ms.max(0) as u64, packed, args, after, how: hows, rules: asked.rules };
        self.conclude(&mut state, last, asked, health);
        RoundOutcome { topologies }
    }

    fn args(&self, input: &RoundInput<'_>, max_moves: u32) -> RoundArgs {
        let flags = if self.options.policy.may_preempt { abi::ROUND_MAY_PREEMPT } else { 0 };
        let budget_ns = self.options.deadline.as_nanos().min(u128::from(u64::MAX)) as u64;
        RoundArgs { reason: input.reason.code(), round_id: input.round_id, seed: input.seed, max_moves, flags, budget_ns }
    }

    /// The health stage, if there is one: marks nodes in the snapshot. Returns what went wrong; then nothing is marked.
    fn judge(&self, state: &mut State, input: &RoundInput<'_>, packed: &mut Packed) -> Option<String> {
        let State { spawner, health, .. } = state;
        let seat = health.as_mut()?;
        let now_ms = self.now_ms();
        if let Gate::Wait { ms } = seat.breaker.gate(now_ms) {
            return Some(quarantined(seat, ms).to_string());
        }
        let flags: Vec<u32> = view(packed).nodes().iter().map(|n| n.flags).collect();
        let question = Question {
            bytes: &packed.bytes,
            before: &packed.slot_of_exec,
            n_topologies: packed.topologies.len(),
            args: self.args(input, 0),
        };
        match seat.judge(spawner, &self.options, &question, &flags) {
            Ok(flags) => {
                seat.breaker.succeeded(now_ms);
                mark_nodes(&mut packed.bytes, &flags);
                None
            }
            Err(failure) => {
                let why = format!("health stage {}: {failure}", seat.name);
                note_failure(seat, now_ms, &failure);
                tracing::warn!(stage = seat.name, round_id = input.round_id, why, "nodes were not judged in this round");
                Some(why)
            }
        }
    }

    /// Asks the plugin, unless it is quarantined, checks what it says, and tells its breaker.
    fn ask_plugin(&self, state: &mut State, gate: Gate, args: RoundArgs, packed: &Packed) -> Asked {
        let State { spawner, plugin, .. } = state;
        let began = Instant::now();
        let args = if gate == Gate::Probe { RoundArgs { reason: abi::REASON_SHADOW, ..args } } else { args };
        let question = question(packed, args);
        let answer = match gate {
            Gate::Wait { ms } => Err(quarantined(plugin, ms)),
            Gate::Run | Gate::Probe => plugin.ask(spawner, &self.options, &question, self.options.deadline).map(|(answer, _)| answer),
        };
        let took_us = began.elapsed().as_micros() as u64;
        let rules = self.options.policy.rules(plugin.loaded.as_ref().map(|l| &l.manifest));
        let now_ms = self.now_ms();
        let mut verdicts = Vec::new();
        match &answer {
            Ok(answer) => {
                verdicts = validate(&view(packed), answer, &rules);
                match verdicts.iter().map(|v| v.as_ref().err()).collect::<Option<Vec<_>>>() {
                    // Nothing at all could be used of it.
                    Some(all) => {
                        let why = all.first().map(|r| format!("plan refused: {r}")).unwrap_or_default();
                        if plugin.breaker.failed(now_ms, &why) {
                            tell_opened(plugin);
                        }
                    }
                    None => plugin.breaker.succeeded(now_ms),
                }
            }
            Err(failure) => note_failure(plugin, now_ms, failure),
        }
        Asked { answer, verdicts, rules, took_us }
    }

    /// The built-in even for executors without a slot. Per topology what went wrong.
    fn fall_back(
        &self,
        state: &mut State,
        input: &RoundInput<'_>,
        lacking: &[bool],
        places: &mut [Placing],
        clock: Clock,
    ) -> Vec<Option<String>> {
        let State { spawner, fallback, .. } = state;
        let packed = pack(input, &slots_of(places), lacking, &self.options.facts, clock);
        let allowed = self.options.deadline.max(START_DEADLINE_MIN);
        let rules = Rules { max_moves: 0, ..Rules::default() };
        let args = RoundArgs { budget_ns: allowed.as_nanos() as u64, flags: 0, ..self.args(input, 0) };
        match fallback.ask(spawner, &self.options, &question(&packed, args), allowed) {
            Ok((answer, _)) => accept(&packed, &answer, validate(&view(&packed), &answer, &rules), places, true),
            Err(failure) => {
                tracing::error!(round_id = input.round_id, %failure, "the built-in scheduler failed; nothing new is placed");
                vec![Some(failure.to_string()); places.len()]
            }
        }
    }

    /// Recorder, shadow, status.
    fn conclude(&self, state: &mut State, last: Last, asked: Asked, health: Option<String>) {
        let policy = &self.options.policy;
        let loaded = state.plugin.loaded.clone();
        let failure = asked.failure(&view(&last.packed));
        if let Some(dir) = &policy.rounds {
            let mut head = head_of(last.args, &asked.rules);
            head.at_ms = last.at_ms;
            head.plugin.clone_from(&state.plugin.name);
            head.config.clone_from(&policy.config);
            head.took_us = asked.took_us;
            head.failure = asked.answer.as_ref().err().map(ToString::to_string).unwrap_or_default();
            head.verdicts = asked.verdicts.iter().map(|v| v.as_ref().err().map(ToString::to_string).unwrap_or_default()).collect();
            if let Some(loaded) = &loaded {
                head.sha256.clone_from(&loaded.sha256);
                head.id = format!("{} {}", loaded.manifest.id, loaded.manifest.version);
            }
            let record = Record { head, snapshot: last.packed.bytes.clone(), answer: asked.answer.ok() };
            if let Err(e) = Recorder::new(dir.clone(), policy.rounds_bytes_max).keep(&record) {
                tracing::warn!(error = %e, "the round was not recorded");
            }
        }
        if let Some(shadow) = &self.shadow {
            shadow.follow(&self.options, &last, self.now_ms());
        }
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.after_round(&state.plugin, self.now_ms(), &last, asked.took_us, failure, health);
        drop(status);
        state.last = Some(last);
    }
}

fn question(packed: &Packed, args: RoundArgs) -> Question<'_> {
    Question { bytes: &packed.bytes, before: &packed.slot_of_exec, n_topologies: packed.topologies.len(), args }
}

/// The packed cluster for readers.
pub(crate) fn view(packed: &Packed) -> Snapshot<'_> {
    Snapshot::new(&packed.bytes).expect("`pack` keeps the layout rules")
}

/// Final places as rows of the slot table, in the order of the executors.
fn rows_of(packed: &Packed, places: &[Placing]) -> Vec<u32> {
    let rows: BTreeMap<&SlotId, u32> = packed.slots.iter().enumerate().map(|(row, slot)| (&slot.id, row as u32)).collect();
    let mut after = vec![abi::NONE; packed.executors.len()];
    for topology in &packed.topologies {
        let slots = &places[topology.input_index].slots;
        for e in topology.executors.clone() {
            after[e] = slots.get(&packed.executors[e]).map_or(abi::NONE, |slot| rows[slot]);
        }
    }
    after
}

fn quarantined(seat: &Seat, ms: u64) -> Failure {
    let why = seat.breaker.why_open().unwrap_or_default();
    Failure::NotAsked(format!(
        "quarantined after too many failed rounds, the last one: {why}; it is tried again in {} s",
        ms.div_ceil(1000)
    ))
}

/// Counts a failure that is the plugin's.
pub(crate) fn note_failure(seat: &mut Seat, now_ms: u64, failure: &Failure) {
    let its_own = !matches!(failure, Failure::NotAsked(_) | Failure::Helper { .. });
    if its_own && seat.breaker.failed(now_ms, &failure.to_string()) {
        tell_opened(seat);
    }
}

fn tell_opened(seat: &Seat) {
    let why = seat.breaker.why_open().unwrap_or_default();
    tracing::error!(plugin = seat.name, why, "scheduler plugin quarantined; the built-in even places until it is well again");
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Scheduler>() // nimbus keeps one for all its rounds
};
