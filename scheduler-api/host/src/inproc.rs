//! A plugin in nimbus' own process, where an operator chose so: its instance lives on one thread of its own, from create to destroy.
//!
//! Before: `seat` has a question. After: the answer, or a failure. What a helper process contains is not contained here: a crash of
//! the plugin is a crash of nimbus. A thread cannot be killed, so one that does not answer in time is left behind, and from then on
//! this process runs no plugin in itself.

use crate::helper::load::load;
use crate::process::{Answer, Failure, Question};
use crate::wire::{LOG_LINES_MAX, REASONS_MAX};
use saetta_model::beat::RATE_WINDOW_S;
use saetta_sdk::abi;
use saetta_sdk::call::{Instance, PlanArrays, Reason, RoundArgs, Services};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Stack of the instance's thread, as the ABI promises it.
const STACK_BYTES: usize = 8 << 20;

/// A plugin's thread did not come back: no other one is started.
static STUCK: AtomicBool = AtomicBool::new(false);

/// What the thread is asked.
enum Job {
    Round { bytes: Vec<u8>, words: Vec<u32>, n_execs: usize, n_topologies: usize, args: RoundArgs },
    Judge { bytes: Vec<u8>, flags: Vec<u32>, args: RoundArgs },
}

/// What it wrote.
#[derive(Default)]
struct Written {
    words: Vec<u32>,
    /// What the instance wants to find again, where the question lasts and it has something.
    saved: Option<Vec<u8>>,
}

type Done = Result<Written, Failure>;

/// An instance on its thread.
pub(crate) struct InProcess {
    jobs: mpsc::Sender<Job>,
    done: mpsc::Receiver<Done>,
    reasons: Arc<Mutex<Vec<Reason>>>,
    saved: Option<Vec<u8>>,
}

impl InProcess {
    /// Loads the plugin and makes its instance; at most `allowed`. The file has passed `inspect`. `saved` = what an instance before it saved.
    pub(crate) fn start(name: &str, path: &Path, config: &str, saved: Option<&[u8]>, allowed: Duration) -> Result<Self, Failure> {
        // Relaxed: only says whether to go on.
        if STUCK.load(Ordering::Relaxed) {
            return Err(Failure::Load("a plugin did not come back in this process, so it runs no other one; restart nimbus".into()));
        }
        let (jobs, todo) = mpsc::channel();
        let (answer, done) = mpsc::channel();
        let reasons = Arc::new(Mutex::new(Vec::new()));
        let services = services(reasons.clone());
        let (name, path, config, saved) = (name.to_owned(), path.to_owned(), config.to_owned(), saved.map(<[u8]>::to_vec));
        let thread = std::thread::Builder::new().name("sched-plugin".into()).stack_size(STACK_BYTES);
        let run = move || match load(&path, &name, &config, services) {
            Ok(Ok(mut instance)) => {
                if let Some(Err(e)) = saved.map(|saved| instance.restore(&saved)) {
                    tracing::warn!(plugin = name, error = %e, "what a scheduler plugin saved before is not taken; it starts with nothing");
                }
                let _ = answer.send(Ok(Written::default()));
                serve(instance, &todo, &answer);
            }
            Ok(Err(e)) => drop(answer.send(Err(Failure::Load(format!("its constructor failed: {e}"))))),
            Err(e) => drop(answer.send(Err(Failure::Load(format!("{}: {e}", path.display()))))),
        };
        thread.spawn(run).map_err(|e| Failure::Load(format!("no thread for it: {e}")))?;
        let plugin = InProcess { jobs, done, reasons, saved: None };
        plugin.wait(allowed)?;
        Ok(plugin)
    }

    pub(crate) fn round(&mut self, question: &Question<'_>, allowed: Duration) -> Result<Answer, Failure> {
        let (n_execs, n_topologies) = (question.before.len(), question.n_topologies);
        let bytes = question.bytes.to_vec();
        let words = self.ask(Job::Round { bytes, words: question.prefilled(), n_execs, n_topologies, args: question.args }, allowed)?;
        Ok(Answer::split(&words, n_execs, n_topologies))
    }

    pub(crate) fn judge(&mut self, question: &Question<'_>, flags_of_node: &[u32], allowed: Duration) -> Result<Vec<u32>, Failure> {
        self.ask(Job::Judge { bytes: question.bytes.to_vec(), flags: flags_of_node.to_vec(), args: question.args }, allowed)
    }

    pub(crate) fn take_reasons(&mut self) -> Vec<Reason> {
        std::mem::take(&mut self.reasons.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// See `process::Helper`.
    pub(crate) fn take_saved(&mut self) -> Option<Vec<u8>> {
        self.saved.take()
    }

    fn ask(&mut self, job: Job, allowed: Duration) -> Result<Vec<u32>, Failure> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.jobs.send(job).map_err(|_| Failure::Died("its thread has ended".into()))?;
        let written = self.wait(allowed)?;
        self.saved = written.saved;
        Ok(written.words)
    }

    fn wait(&self, allowed: Duration) -> Done {
        match self.done.recv_timeout(allowed) {
            Ok(done) => done,
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(Failure::Died("its thread has ended".into())),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                // Relaxed: only says whether to go on.
                STUCK.store(true, Ordering::Relaxed);
                tracing::error!("a scheduler plugin in this process did not come back; its thread is left behind, restart nimbus");
                Err(Failure::Deadline(allowed))
            }
        }
    }
}

/// Runs on the instance's thread until the other end goes away.
fn serve(mut instance: Instance, todo: &mpsc::Receiver<Job>, answer: &mpsc::Sender<Done>) {
    while let Ok(job) = todo.recv() {
        let failed = |e: saetta_sdk::PluginError| Failure::Code { code: e.code, text: e.text };
        let (Job::Round { args, .. } | Job::Judge { args, .. }) = &job;
        let lasts = !matches!(args.reason, abi::REASON_DRY_RUN | abi::REASON_SHADOW);
        let words = match job {
            Job::Round { bytes, mut words, n_execs, n_topologies, args } => {
                let (slot_of_exec, rest) = words.split_at_mut(n_execs);
                let (outcome, core_of_exec) = rest.split_at_mut(n_topologies);
                let plan = PlanArrays { slot_of_exec, outcome, core_of_exec: Some(core_of_exec) };
                instance.schedule(args, &bytes, plan).map(|_| words).map_err(failed)
            }
            Job::Judge { bytes, mut flags, args } => match instance.judge(args, &bytes, &mut flags) {
                Some(judged) => judged.map(|_| flags).map_err(failed),
                None => Err(Failure::Code { code: abi::E_UNSUPPORTED, text: "it judges no nodes".into() }),
            },
        };
        let saved = if lasts && words.is_ok() { instance.save().and_then(Result::ok) } else { None };
        if answer.send(words.map(|words| Written { words, saved })).is_err() {
            return;
        }
    }
}

fn services(reasons: Arc<Mutex<Vec<Reason>>>) -> Services {
    let lines = AtomicU32::new(0);
    let log = move |level: i32, text: &str| {
        // Relaxed: a count. For the life of the instance, not of a round: who talks this much is not worth a counter that is set back.
        if lines.fetch_add(1, Ordering::Relaxed) < 100 * LOG_LINES_MAX {
            crate::process::log_line(level, text);
        }
    };
    let explain = move |reason: &Reason| {
        let mut reasons = reasons.lock().unwrap_or_else(PoisonError::into_inner);
        if reasons.len() < REASONS_MAX as usize {
            reasons.push(reason.clone());
        }
    };
    Services { explain: Some(Box::new(explain)), stats_window_s: Some(RATE_WINDOW_S), ..Services::new(log) }
}
