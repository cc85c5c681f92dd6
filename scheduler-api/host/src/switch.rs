//! What operators ask of a running scheduler: use another plugin, forget its failures, why an executor is where it is.
//!
//! Before: nimbus' REST. After: the next round. A plugin is inspected, loaded, tried on the last round and put to the checks of the
//! conformance suite that are about harm before it may take over; what fails there changes nothing.

use crate::SchedulerOptions;
use crate::breaker::Gate;
use crate::compare::{Comparison, compare};
use crate::conformance;
use crate::library::find;
use crate::process::{Question, START_DEADLINE_MIN, Spawner};
use crate::round::{How, Scheduler, view};
use crate::seat::{Memory, Seat};
use crate::status::Status;
use crate::why::{Decided, Tally, word};
use saetta_model::cluster::SlotId;
use saetta_sdk::abi;
use saetta_sdk::call::{Reason, RoundArgs};
use saetta_sdk::snapshot::Snapshot;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

/// What a plugin must not do to a cluster or to its own process: conformance checks it has to pass before it takes over. How well it places is
/// the operator's business, and its author's.
const HARM: &str = "manifest,makes-an-instance,fpu-mode-unchanged,process-unchanged,no-threads,no-open-files,no-output,\
    ends-before-deadline,snapshot-not-written,survives-a-round,answers-without-error,no-leak,no-snapshot-kept,stride,no-unknown-slot,\
    no-double-slot,only-assignable-slots,only-what-was-asked,outcome-matches-plan";

/// A plugin that was tried and may take over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trial {
    /// As operators call it.
    pub plugin: String,
    /// Of its content, 64 hex digits.
    pub sha256: String,
    /// By its manifest.
    pub id: String,
    /// By its manifest.
    pub version: String,
    /// What it would have done in the last round; absent where there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<Comparison>,
    /// What to load: the copy where copies are kept.
    #[serde(skip)]
    pub path: PathBuf,
}

/// Why an executor is where it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Why {
    /// The round this is about.
    pub round: u64,
    /// When it was, milliseconds since 1970.
    pub at_ms: u64,
    /// Where it is; `None` = nowhere.
    #[serde(skip)]
    pub slot: Option<SlotId>,
    /// Who put its topology there.
    #[serde(skip)]
    pub how: How,
    /// Why there, and what else was looked at; the plugin's own where it gives reasons.
    pub reasons: Vec<Given>,
    /// The nodes in one line.
    pub summary: String,
    /// The nodes by what is in the way.
    pub nodes: Vec<Counted>,
    /// Why the plugin's own reasons are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Nodes with the same thing in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// `abi::WHY_*`, or 0 = it would do.
    pub code: u32,
    /// The same as a word.
    pub word: &'static str,
    /// How many.
    pub n: u32,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Given {
    /// `abi::WHY_*`.
    pub code: u32,
    /// The same as a word.
    pub word: &'static str,
    /// Which node it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Which port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// What the code says it is: a topology, a kind, a component, a rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arg: Option<String>,
    /// Larger is better, in thousandths.
    pub score: i64,
    /// What the score is made of.
    pub parts: BTreeMap<String, i64>,
    /// The plugin's words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// Why there is no answer to "why".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoAnswer {
    /// No round has run yet.
    NoRound,
    /// The last round did not know that executor.
    Unknown,
}

impl Scheduler {
    /// How scheduling is. Does not wait for a round.
    pub fn status(&self) -> Status {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        status.shadow = self.shadow.as_ref().map(|s| s.report());
        status
    }

    /// Takes, inspects and loads a plugin (NAME, or a file of `scheduler.plugin.dir`), gives it the last round, and checks that it does no
    /// harm. The error says what it failed at. Blocking: loading, a round, and some twenty short processes.
    pub fn try_out(&self, text: &str) -> Result<Trial, String> {
        let (name, path) = find(&self.options.dir, text).map_err(|e| e.to_string())?;
        self.try_file(&name, path)
    }

    fn try_file(&self, name: &str, path: PathBuf) -> Result<Trial, String> {
        let spawner = Spawner::start();
        let mut seat = Seat::plugin(name, path, &self.options.policy.config);
        // Always in a process: what is not yet proven does not come into nimbus.
        let mut options = self.options.clone();
        options.policy.mode = crate::policy::Mode::Isolated;
        seat.load(&spawner, &options).map_err(|e| format!("plugin {name}: {e}"))?;
        let last = {
            let state = self.state();
            state
                .last
                .as_ref()
                .map(|l| (l.packed.bytes.clone(), l.packed.slot_of_exec.clone(), l.packed.topologies.len(), l.args, l.after.clone()))
        };
        let loaded = seat.loaded.clone().expect("it was loaded");
        let mut trial = None;
        if let Some((bytes, before, n_topologies, args, live)) = last {
            let args = RoundArgs { reason: abi::REASON_DRY_RUN, ..args };
            let question = Question { bytes: &bytes, before: &before, n_topologies, args };
            let asked = seat.ask(&spawner, &options, &question, options.deadline);
            let (answer, _) = asked.map_err(|e| format!("plugin {name}, tried on the last round: {e}"))?;
            let rules = options.policy.rules(Some(&loaded.manifest));
            let snapshot = Snapshot::new(&bytes).expect("`pack` keeps the layout rules");
            let compared = compare(&snapshot, &live, &answer, &rules);
            if let Some(refused) = compared.other.refused.first() {
                return Err(format!("plugin {name}, tried on the last round: its plan was refused: {refused}"));
            }
            trial = Some(compared);
        }
        let path = seat.file(&options, &loaded.sha256);
        does_no_harm(&path, &options).map_err(|e| format!("plugin {name}: {e}"))?;
        Ok(Trial { plugin: name.to_owned(), sha256: loaded.sha256, id: loaded.manifest.id, version: loaded.manifest.version, trial, path })
    }

    /// Uses a plugin from the next round on. Waits for a round that runs; the old plugin's process ends.
    pub fn switch(&self, name: &str, path: PathBuf) {
        let mut state = self.state();
        tracing::info!(from = state.plugin.name, to = name, "another scheduler plugin is in use");
        let mut seat = Seat::plugin(name, path, &self.options.policy.config);
        // Another version of the same plugin goes on where the former one was.
        seat.remember(state.plugin.memory());
        state.plugin = seat;
        self.status.lock().unwrap_or_else(PoisonError::into_inner).begun_anew(&state.plugin, self.now_ms());
    }

    /// Takes a quarantined plugin back at once and forgets which snapshots crashed it.
    pub fn reset(&self) {
        let mut state = self.state();
        state.plugin.reset();
        if let Some(shadow) = &self.shadow {
            shadow.reset();
        }
        self.status.lock().unwrap_or_else(PoisonError::into_inner).begun_anew(&state.plugin, self.now_ms());
    }

    /// What plugins want to find again under another leader, by their ids. Waits for a round that runs.
    pub fn memory(&self) -> Memory {
        let state = self.state();
        let seats = [Some(&state.plugin), state.health.as_ref()];
        seats.into_iter().flatten().flat_map(Seat::memory).map(|(id, saved)| (id.clone(), saved.clone())).collect()
    }

    /// Goes on from what plugins saved under another leader. Waits for a round that runs.
    pub fn remember(&self, memory: &Memory) {
        let mut state = self.state();
        state.plugin.remember(memory);
        if let Some(health) = &mut state.health {
            health.remember(memory);
        }
    }

    /// Why an executor is where it is: the plugin is asked the last round again, without effect, and now with its reasons. Blocking.
    pub fn why(&self, topology: &str, first_task: u32) -> Result<Why, NoAnswer> {
        let mut state = self.state();
        let crate::round::State { spawner, plugin, last, .. } = &mut *state;
        let last = last.as_ref().ok_or(NoAnswer::NoRound)?;
        let snapshot = view(&last.packed);
        let decided = Decided::new(&snapshot, &last.after, last.rules.resources);
        let exec = decided.find(topology, first_task).ok_or(NoAnswer::Unknown)?;
        let t = snapshot.executors().get(exec).topology as usize;
        let tally = decided.tally(exec);
        let (mut reasons, mut note) = (Vec::new(), None);
        if let How::Fallback { why } | How::Kept { why } = &last.how[t] {
            note = Some(format!("these reasons are the host's: {why}"));
        } else if plugin.breaker.gate(self.now_ms()) == Gate::Run {
            let args = RoundArgs { reason: abi::REASON_DRY_RUN, flags: last.args.flags | abi::ROUND_EXPLAIN, ..last.args };
            let (before, n_topologies) = (&last.packed.slot_of_exec, last.packed.topologies.len());
            let question = Question { bytes: &last.packed.bytes, before, n_topologies, args };
            match plugin.ask(spawner, &self.options, &question, self.options.deadline) {
                Ok((_, given)) => reasons = given.iter().filter(|r| r.exec as usize == exec).map(|r| shown(&snapshot, r)).collect(),
                Err(failure) => note = Some(format!("plugin {} gave no reasons: {failure}", plugin.name)),
            }
            if reasons.is_empty() && note.is_none() {
                note = Some(format!("plugin {} gives no reasons; these are the host's", plugin.name));
            }
        } else {
            note = Some(format!("plugin {} is quarantined; these reasons are the host's", plugin.name));
        }
        let slot = last.after[exec];
        if reasons.is_empty() {
            reasons.push(shown(&snapshot, &own_reason(&snapshot, exec, slot, &last.how[t], &tally)));
        }
        Ok(Why {
            round: last.args.round_id,
            at_ms: last.at_ms,
            slot: last.packed.slots.get(slot as usize).map(|s| s.id.clone()),
            how: last.how[t].clone(),
            reasons,
            summary: tally.to_string(),
            nodes: tally.counts.iter().map(|(code, n)| Counted { code: *code, word: word(*code), n: *n }).collect(),
            note,
        })
    }
}

/// The conformance checks of [`HARM`]; the error is the first that it does not pass.
fn does_no_harm(file: &Path, options: &SchedulerOptions) -> Result<(), String> {
    let limits = conformance::Options {
        memory_bytes: options.memory_bytes,
        deadline: options.deadline.max(START_DEADLINE_MIN),
        ..conformance::Options::new(options.helper.clone())
    };
    let reports = conformance::validate(file, &conformance::selected(HARM), &limits, |_| {});
    let bad = reports.iter().find(|r| r.status.is_bad());
    bad.map_or(Ok(()), |r| {
        Err(format!("it does not pass the check {}: {}; `saetta scheduler validate` tells all that is wrong with it", r.check.id, r.reason))
    })
}

/// What the host itself can say.
fn own_reason(snapshot: &Snapshot<'_>, exec: usize, slot: u32, how: &How, tally: &Tally) -> Reason {
    let before = snapshot.executors().get(exec).slot;
    let in_the_way = tally.counts.first().map_or(abi::WHY_NO_SLOT, |(code, _)| *code);
    let code = match how {
        _ if slot != abi::NONE && slot == before => abi::WHY_KEPT,
        How::Fallback { .. } if slot != abi::NONE => abi::WHY_FALLBACK,
        _ if slot != abi::NONE && before != abi::NONE => abi::WHY_MOVED_NODE_LOST,
        _ if slot != abi::NONE => abi::WHY_BEST_SCORE,
        How::Kept { why } | How::Fallback { why } if why.contains("refused") => abi::WHY_REJECTED,
        _ => in_the_way,
    };
    Reason { exec: exec as u32, slot, code, arg: abi::NONE, score: 0, parts: Vec::new(), text: String::new() }
}

/// A reason in names. Row numbers are the plugin's and are checked here.
fn shown(snapshot: &Snapshot<'_>, reason: &Reason) -> Given {
    let slot = ((reason.slot as usize) < snapshot.slots().len()).then(|| snapshot.slots().get(reason.slot as usize));
    let node = slot.map(|s| snapshot.text(snapshot.nodes().get(s.node as usize).id).to_owned());
    let at = reason.arg as usize;
    let arg = match reason.code {
        _ if reason.arg == abi::NONE => None,
        abi::WHY_EVICTED if at < snapshot.topologies().len() => Some(snapshot.text(snapshot.topologies().get(at).id).to_owned()),
        abi::WHY_NO_GENERIC if at < snapshot.kinds().len() => Some(snapshot.text(snapshot.kinds().get(at).name).to_owned()),
        abi::WHY_INCOMPATIBLE if at < snapshot.components().len() => Some(snapshot.text(snapshot.components().get(at).name).to_owned()),
        abi::WHY_REJECTED => Some(format!("V{at:02}")),
        _ => Some(at.to_string()),
    };
    Given {
        code: reason.code,
        word: word(reason.code),
        node,
        port: slot.map(|s| s.port),
        arg,
        score: reason.score,
        parts: reason.parts.iter().cloned().collect(),
        text: reason.text.clone(),
    }
}
