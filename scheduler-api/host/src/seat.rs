//! One plugin in use: its file, its process or thread, and whether it is asked at all.
//!
//! Before: `round` has a question. After: an answer, copied and not validated, or a failure in one line. Whoever fails is ended and started
//! anew at the next question; how often is the [`Breaker`]'s business, which `round` tells what came of a plan.

use crate::SchedulerOptions;
use crate::block::generation;
use crate::breaker::{Breaker, Poison};
use crate::inproc::InProcess;
use crate::inspect::Manifest;
use crate::library::{copy_path, take};
use crate::policy::Mode;
use crate::process::{Answer, Failure, Helper, Question, START_DEADLINE_MIN, Spawner, What};
use saetta_sdk::call::Reason;
use std::path::PathBuf;
use std::time::Duration;

/// A plugin and where it comes from.
pub(crate) struct Seat {
    /// As operators call it.
    pub(crate) name: String,
    /// `None` = the linked-in even.
    path: Option<PathBuf>,
    runner: Option<Runner>,
    /// Of the file that was loaded last.
    pub(crate) loaded: Option<Loaded>,
    pub(crate) breaker: Breaker,
    poison: Poison,
}

/// What is known of a plugin's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loaded {
    /// Of its content, 64 hex digits.
    pub sha256: String,
    /// What it says of itself.
    pub manifest: Manifest,
}

enum Runner {
    Isolated(Helper),
    InProcess(InProcess),
}

impl Seat {
    pub(crate) fn plugin(name: &str, path: PathBuf) -> Self {
        Seat { name: name.to_owned(), path: Some(path), runner: None, loaded: None, breaker: Breaker::default(), poison: Poison::default() }
    }

    pub(crate) fn builtin() -> Self {
        Seat { path: None, ..Seat::plugin("even", PathBuf::new()) }
    }

    /// What was loaded: the copy where copies are kept.
    pub(crate) fn file(&self, options: &SchedulerOptions, sha256: &str) -> PathBuf {
        let copy = options.policy.copies.as_deref().map(|copies| copy_path(copies, sha256));
        copy.or_else(|| self.path.clone()).unwrap_or_default()
    }

    /// Forgets what it did.
    pub(crate) fn reset(&mut self) {
        (self.breaker, self.poison) = (Breaker::default(), Poison::default());
    }

    /// Asks for a plan; reasons come where the question wants some.
    pub(crate) fn ask(
        &mut self,
        spawner: &Spawner,
        options: &SchedulerOptions,
        question: &Question<'_>,
        allowed: Duration,
    ) -> Result<(Answer, Vec<Reason>), Failure> {
        self.with_runner(spawner, options, question, |runner| match runner {
            Runner::Isolated(helper) => helper.round(question, allowed).map(|answer| (answer, helper.take_reasons())),
            Runner::InProcess(plugin) => plugin.round(question, allowed).map(|answer| (answer, plugin.take_reasons())),
        })
    }

    /// Asks a health stage for the flags of the nodes.
    pub(crate) fn judge(
        &mut self,
        spawner: &Spawner,
        options: &SchedulerOptions,
        question: &Question<'_>,
        flags_of_node: &[u32],
    ) -> Result<Vec<u32>, Failure> {
        self.with_runner(spawner, options, question, |runner| match runner {
            Runner::Isolated(helper) => helper.judge(question, flags_of_node, options.deadline),
            Runner::InProcess(plugin) => plugin.judge(question, flags_of_node, options.deadline),
        })
    }

    /// Loads it without asking anything.
    pub(crate) fn load(&mut self, spawner: &Spawner, options: &SchedulerOptions) -> Result<(), Failure> {
        if self.runner.is_none() {
            self.runner = Some(self.start(spawner, options)?);
        }
        Ok(())
    }

    fn with_runner<T>(
        &mut self,
        spawner: &Spawner,
        options: &SchedulerOptions,
        question: &Question<'_>,
        f: impl FnOnce(&mut Runner) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if !self.poison.is_empty() && self.poison.refuses(&generation(question.bytes)) {
            let why = "the cluster as it is now has crashed it twice; it is asked again when something changes";
            return Err(Failure::NotAsked(why.to_owned()));
        }
        let mut runner = match self.runner.take() {
            Some(Runner::Isolated(helper)) if helper.is_alive() => Runner::Isolated(helper),
            Some(Runner::InProcess(plugin)) => Runner::InProcess(plugin),
            _ => self.start(spawner, options)?,
        };
        let asked = f(&mut runner);
        match &asked {
            // Whoever answered an error is sound in an own thread; a process is cheap to replace.
            Ok(_) => self.runner = Some(runner),
            Err(Failure::Code { .. }) if matches!(runner, Runner::InProcess(_)) => self.runner = Some(runner),
            Err(failure) if failure.is_crash() => self.poison.crashed(generation(question.bytes)),
            Err(_) => {}
        }
        asked
    }

    fn start(&mut self, spawner: &Spawner, options: &SchedulerOptions) -> Result<Runner, Failure> {
        let Some(path) = &self.path else {
            return Ok(Runner::Isolated(Helper::start(spawner, options, &What::BuiltinEven)?));
        };
        let taken = take(path, options.policy.copies.as_deref()).map_err(|e| Failure::Load(e.to_string()))?;
        self.loaded = Some(Loaded { sha256: taken.sha256, manifest: taken.manifest });
        match options.policy.mode {
            Mode::Isolated => {
                let what = What::Plugin { name: self.name.clone(), path: taken.path };
                Ok(Runner::Isolated(Helper::start(spawner, options, &what)?))
            }
            Mode::InProcess => {
                let allowed = options.deadline.max(START_DEADLINE_MIN);
                Ok(Runner::InProcess(InProcess::start(&self.name, &taken.path, &options.policy.config, allowed)?))
            }
        }
    }
}
