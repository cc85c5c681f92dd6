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
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A plugin and where it comes from.
pub(crate) struct Seat {
    /// As operators call it.
    pub(crate) name: String,
    /// `None` = the linked-in even.
    path: Option<PathBuf>,
    /// Its configuration, JSON.
    config: String,
    runner: Option<Runner>,
    /// By a plugin's id: what its instances want to find again.
    memory: Memory,
    /// Of the file that was loaded last.
    pub(crate) loaded: Option<Loaded>,
    pub(crate) breaker: Breaker,
    poison: Poison,
}

/// By the id of a plugin's manifest: what its instances saved, at most `abi::STATE_BYTES_MAX` each.
pub type Memory = BTreeMap<String, Vec<u8>>;

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
    pub(crate) fn plugin(name: &str, path: PathBuf, config: &str) -> Self {
        Seat {
            name: name.to_owned(),
            path: Some(path),
            config: config.to_owned(),
            runner: None,
            memory: Memory::new(),
            loaded: None,
            breaker: Breaker::default(),
            poison: Poison::default(),
        }
    }

    pub(crate) fn builtin() -> Self {
        Seat { path: None, ..Seat::plugin("even", PathBuf::new(), "{}") }
    }

    /// What instances of it saved last.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Goes on from there: an instance that knows something else is ended.
    pub(crate) fn remember(&mut self, memory: &Memory) {
        if self.memory != *memory {
            (self.memory, self.runner) = (memory.clone(), None);
        }
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
        if !self.poison.is_empty()
            && let Some(how) = self.poison.refuses(&generation(question.bytes))
        {
            let why = format!("the cluster as it is now has crashed it twice ({how}); it is asked again when something changes");
            return Err(Failure::NotAsked(why));
        }
        let mut runner = match self.runner.take() {
            Some(Runner::Isolated(helper)) if helper.is_alive() => Runner::Isolated(helper),
            Some(Runner::InProcess(plugin)) => Runner::InProcess(plugin),
            _ => self.start(spawner, options)?,
        };
        let asked = f(&mut runner);
        let saved = match &mut runner {
            Runner::Isolated(helper) => helper.take_saved(),
            Runner::InProcess(plugin) => plugin.take_saved(),
        };
        if let (Some(saved), Some(loaded)) = (saved, &self.loaded) {
            self.memory = [(loaded.manifest.id.clone(), saved)].into();
        }
        match &asked {
            // Whoever answered an error is sound in an own thread; a process is cheap to replace.
            Ok(_) => self.runner = Some(runner),
            Err(Failure::Code { .. }) if matches!(runner, Runner::InProcess(_)) => self.runner = Some(runner),
            Err(failure) if failure.is_crash() => self.poison.crashed(generation(question.bytes), &failure.to_string()),
            Err(_) => {}
        }
        asked
    }

    fn start(&mut self, spawner: &Spawner, options: &SchedulerOptions) -> Result<Runner, Failure> {
        let Some(path) = &self.path else {
            return Ok(Runner::Isolated(Helper::start(spawner, options, &What::BuiltinEven, None)?));
        };
        let taken = take(path, options.policy.copies.as_deref()).map_err(|e| Failure::Load(e.to_string()))?;
        let saved = self.memory.get(&taken.manifest.id);
        let started = self.start_with(spawner, options, &taken.path, saved.map(Vec::as_slice));
        let started = match started {
            // What it saved must not keep it from ever starting again.
            Err(failure) if saved.is_some() && failure.is_crash() => {
                tracing::error!(plugin = self.name, %failure, "a scheduler plugin does not survive what it saved before; it starts with nothing");
                self.memory.clear();
                self.start_with(spawner, options, &taken.path, None)
            }
            started => started,
        };
        self.loaded = Some(Loaded { sha256: taken.sha256, manifest: taken.manifest });
        started
    }

    fn start_with(&self, spawner: &Spawner, options: &SchedulerOptions, path: &Path, saved: Option<&[u8]>) -> Result<Runner, Failure> {
        match options.policy.mode {
            Mode::Isolated => {
                let mut options = options.clone();
                options.policy.config.clone_from(&self.config);
                let what = What::Plugin { name: self.name.clone(), path: path.to_path_buf() };
                Ok(Runner::Isolated(Helper::start(spawner, &options, &what, saved)?))
            }
            Mode::InProcess => {
                let allowed = options.deadline.max(START_DEADLINE_MIN);
                Ok(Runner::InProcess(InProcess::start(&self.name, path, &self.config, saved, allowed)?))
            }
        }
    }
}
