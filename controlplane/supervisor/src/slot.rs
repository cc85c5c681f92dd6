//! One slot: the only place that decides what its worker does next.
//!
//! Before: `wanted` says what the assignment puts here; `agent` brings what happened to the process, the download, the
//! socket. After: `agent` carries out the actions.
//! Pure: no clock, no file, no process. Time is milliseconds of the supervisor's monotonic clock.
//!
//! ```text
//! empty -> fetching -> starting -> running -> stopping -> empty
//!             ^           |  ^        |           |
//!             |           v  |        v           |
//!             |          resting <- (it ended) <--+   back-off, then starting again
//!             +--- the binary on disk is not what it should be
//! ```

use saetta_model::Name;
use std::collections::BTreeMap;

/// First pause after a worker ended unasked; doubles with each failure in a row.
pub(crate) const BACKOFF_FIRST_MS: u64 = 100;
/// Longest pause.
pub(crate) const BACKOFF_MAX_MS: u64 = 10_000;
/// A worker that ran this long is not part of a crash loop: its end counts as the first failure.
pub(crate) const STABLE_MS: u64 = 10_000;
/// So many failures in a row are reported as `failed`; the slot goes on trying every [`BACKOFF_MAX_MS`].
pub(crate) const FAILURES_REPORTED: u32 = 5;
/// From `Stop` to SIGTERM, and from SIGTERM to SIGKILL.
pub(crate) const STOP_STEP_MS: u64 = 3_000;
/// How many placements of a slot keep their start number. More than can be in flight between two readings of the store.
pub(crate) const STARTS_KEPT: usize = 16;

/// What runs in a slot. Two equal jobs are the same worker; anything else means stop one, start the other.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Job {
    /// Topology id.
    pub topology: Name,
    /// SHA-256 of its binary, 64 hex digits.
    pub binary: String,
    /// Placement id.
    pub placement: u64,
}

/// Limits of one slot, fixed for its life.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// From the start of the process to its first heartbeat.
    pub grace_ms: u64,
    /// Longest silence of a running worker.
    pub heartbeat_ms: u64,
}

/// How far a stop has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Told over the socket.
    Asked,
    /// SIGTERM sent.
    Terminated,
    /// SIGKILL sent.
    Killed,
}

/// Where a slot is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing is wanted here and nothing runs.
    Empty,
    /// Binary and key are brought here. `retry_ms` is set between two tries.
    Fetching {
        /// For what.
        job: Job,
        /// Failed tries in a row.
        tries: u32,
        /// When the next try begins; `None` while one is under way.
        retry_ms: Option<u64>,
    },
    /// No process: waits out the back-off.
    Resting {
        /// What will be started.
        job: Job,
        /// When.
        until_ms: u64,
    },
    /// Launched, no heartbeat yet. `pid` is `None` until the launcher has answered.
    Starting {
        /// What.
        job: Job,
        /// Its start number.
        start: u64,
        /// Process id.
        pid: Option<u32>,
        /// When the grace ends; counts once there is a process.
        deadline_ms: u64,
    },
    /// Beating.
    Running {
        /// What.
        job: Job,
        /// Its start number.
        start: u64,
        /// Process id.
        pid: u32,
        /// When its first heartbeat came.
        since_ms: u64,
        /// When it has been silent for too long.
        deadline_ms: u64,
    },
    /// On its way out. `failed` says why when nobody asked for the stop.
    Stopping {
        /// What.
        job: Job,
        /// Its start number.
        start: u64,
        /// Process id; `None` while the launcher has not answered.
        pid: Option<u32>,
        /// How far.
        phase: Phase,
        /// When the next step is due.
        deadline_ms: u64,
        /// Set when the worker is stopped for something it did.
        failed: Option<String>,
    },
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// What the assignment wants here. Level-triggered: repeats are harmless.
    Want(Option<Job>),
    /// Binary and key of this job are here.
    Fetched(Job),
    /// They are not.
    FetchFailed(Job, String),
    /// The process with this start number runs.
    Launched {
        /// Start number.
        start: u64,
        /// Process id.
        pid: u32,
    },
    /// It could not be started.
    LaunchFailed {
        /// Start number.
        start: u64,
        /// One line.
        why: String,
    },
    /// The binary on disk is not what its name says, or is gone; nothing was started.
    BinaryBad {
        /// Start number.
        start: u64,
        /// One line.
        why: String,
    },
    /// A worker of ours that this supervisor did not know of said hello.
    Found {
        /// Its placement.
        placement: u64,
        /// Its start number.
        start: u64,
        /// Process id.
        pid: u32,
    },
    /// A heartbeat of the worker with this start number.
    Beat {
        /// Start number.
        start: u64,
    },
    /// The process has ended.
    Exited {
        /// Process id.
        pid: u32,
        /// One line: exit code or signal.
        why: String,
    },
    /// Time has passed.
    Tick,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Bring binary and key; answer `Fetched` or `FetchFailed`.
    Fetch(Job),
    /// Write the start number to disk, then start the process; answer `Launched`, `LaunchFailed` or `BinaryBad`.
    Launch(Job, u64),
    /// Say `Stop` on the socket.
    TellStop,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
    /// Nothing of this job runs here any more: remove its worker directory.
    Clean(Job),
}

/// A slot: limits, desire, history, state.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    times: Times,
    /// What the assignment wants here, as last read. In every state but `Stopping` it equals the state's job once `step` has returned.
    want: Option<Job>,
    /// Highest start number used, by placement. At most [`STARTS_KEPT`]; the current one is always among them.
    starts: BTreeMap<u64, u64>,
    /// A start number lower than this is never used; above zero after a corrupt state file.
    start_floor: u64,
    /// Ends in a row that nobody asked for. Zero after a stop that was asked for.
    failures: u32,
    /// Last reason a worker ended or could not start.
    note: String,
    state: State,
}

impl Slot {
    /// An empty slot that remembers the start numbers used here before.
    pub(crate) fn new(times: Times, starts: BTreeMap<u64, u64>, start_floor: u64) -> Self {
        Slot { times, want: None, starts, start_floor, failures: 0, note: String::new(), state: State::Empty }
    }

    /// A slot whose worker outlived the supervisor. It is wanted until the store says otherwise, and has the launch grace to
    /// connect again.
    pub(crate) fn adopted(times: Times, starts: BTreeMap<u64, u64>, job: Job, start: u64, pid: u32, now_ms: u64) -> Self {
        let mut slot = Slot::new(times, starts, 0);
        let highest = slot.starts.entry(job.placement).or_insert(start);
        *highest = (*highest).max(start);
        slot.want = Some(job.clone());
        let deadline_ms = now_ms + times.grace_ms.max(times.heartbeat_ms);
        slot.state = State::Running { job, start, pid, since_ms: now_ms, deadline_ms };
        slot
    }

    /// Where it is.
    #[cfg(test)]
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// What is here, or on its way in or out.
    pub(crate) fn job(&self) -> Option<&Job> {
        match &self.state {
            State::Empty => None,
            State::Fetching { job, .. }
            | State::Resting { job, .. }
            | State::Starting { job, .. }
            | State::Running { job, .. }
            | State::Stopping { job, .. } => Some(job),
        }
    }

    /// What the assignment wants here.
    pub(crate) fn want(&self) -> Option<&Job> {
        self.want.as_ref()
    }

    /// Process id of what runs here.
    pub(crate) fn pid(&self) -> Option<u32> {
        match self.state {
            State::Starting { pid, .. } | State::Stopping { pid, .. } => pid,
            State::Running { pid, .. } => Some(pid),
            _ => None,
        }
    }

    /// Highest start number of what is here; 0 = never started.
    pub(crate) fn start(&self) -> u64 {
        self.job().and_then(|j| self.starts.get(&j.placement)).copied().unwrap_or(0)
    }

    /// Start numbers to keep on disk.
    pub(crate) fn starts(&self) -> &BTreeMap<u64, u64> {
        &self.starts
    }

    /// Last reason a worker ended or could not start; empty = none.
    pub(crate) fn note(&self) -> &str {
        &self.note
    }

    /// The state in one word, as `status` shows it; `None` for an empty slot.
    pub(crate) fn word(&self) -> Option<&'static str> {
        Some(match &self.state {
            State::Empty => return None,
            State::Fetching { .. } | State::Resting { .. } | State::Starting { .. } if self.failures >= FAILURES_REPORTED => "failed",
            State::Fetching { .. } => "fetching",
            State::Resting { .. } | State::Starting { .. } => "starting",
            State::Running { .. } => "running",
            State::Stopping { .. } => "stopping",
        })
    }

    /// True when a worker that says it has this placement and start number is the one that belongs here.
    pub(crate) fn is_mine(&self, placement: u64, start: u64) -> bool {
        match &self.state {
            State::Starting { job, start: s, .. } | State::Running { job, start: s, .. } | State::Stopping { job, start: s, .. } => {
                job.placement == placement && *s == start
            }
            _ => false,
        }
    }

    /// True when such a worker must be one that a former supervisor started just before it died.
    pub(crate) fn is_lost_child(&self, placement: u64, start: u64) -> bool {
        match &self.state {
            State::Fetching { job, .. } | State::Resting { job, .. } => {
                job.placement == placement && self.starts.get(&placement) == Some(&start)
            }
            _ => false,
        }
    }

    /// When `Tick` is next of use.
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        match &self.state {
            State::Empty => None,
            State::Fetching { retry_ms, .. } => *retry_ms,
            State::Resting { until_ms, .. } => Some(*until_ms),
            State::Starting { pid, deadline_ms, .. } => pid.map(|_| *deadline_ms),
            State::Running { deadline_ms, .. } => Some(*deadline_ms),
            State::Stopping { pid, deadline_ms, .. } => pid.map(|_| *deadline_ms),
        }
    }

    /// Takes one event; the one place where the state changes.
    pub(crate) fn step(&mut self, event: Event, now_ms: u64) -> Vec<Action> {
        if let Event::Want(want) = &event {
            self.want.clone_from(want);
        }
        let mut actions = Vec::new();
        let state = self.state.clone();
        self.state = match state {
            State::Empty => self.settle(&mut actions),
            State::Fetching { job, tries, retry_ms } => self.fetching(job, tries, retry_ms, event, now_ms, &mut actions),
            State::Resting { job, until_ms } => self.resting(job, until_ms, event, now_ms, &mut actions),
            State::Starting { job, start, pid, deadline_ms } => self.starting(job, start, pid, deadline_ms, event, now_ms, &mut actions),
            State::Running { job, start, pid, since_ms, deadline_ms } => {
                self.running(job, start, pid, since_ms, deadline_ms, event, now_ms, &mut actions)
            }
            State::Stopping { job, start, pid, phase, deadline_ms, failed } => {
                self.stopping(job, start, pid, phase, deadline_ms, failed, event, now_ms, &mut actions)
            }
        };
        actions
    }

    /// Nothing runs: begin what is wanted, if anything is.
    fn settle(&mut self, actions: &mut Vec<Action>) -> State {
        self.failures = 0;
        match self.want.clone() {
            None => {
                self.note.clear();
                State::Empty
            }
            Some(job) => {
                self.note.clear();
                actions.push(Action::Fetch(job.clone()));
                State::Fetching { job, tries: 0, retry_ms: None }
            }
        }
    }

    /// Nothing of `job` runs and something else is wanted.
    fn leave(&mut self, job: Job, actions: &mut Vec<Action>) -> State {
        actions.push(Action::Clean(job));
        self.settle(actions)
    }

    fn launch(&mut self, job: Job, now_ms: u64, actions: &mut Vec<Action>) -> State {
        let start = self.starts.get(&job.placement).copied().unwrap_or(0).max(self.start_floor) + 1;
        self.starts.insert(job.placement, start);
        while self.starts.len() > STARTS_KEPT {
            let stale = self.starts.keys().copied().find(|p| *p != job.placement).expect("more than one placement");
            self.starts.remove(&stale);
        }
        actions.push(Action::Launch(job.clone(), start));
        State::Starting { job, start, pid: None, deadline_ms: now_ms + self.times.grace_ms }
    }

    /// A worker ended, or could not start, and nobody asked for it.
    fn fail(&mut self, job: Job, why: String, ran_ms: u64, now_ms: u64) -> State {
        if ran_ms >= STABLE_MS {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        self.note = why;
        State::Resting { job, until_ms: now_ms + backoff_ms(self.failures) }
    }

    fn fetching(&mut self, job: Job, tries: u32, retry_ms: Option<u64>, event: Event, now_ms: u64, actions: &mut Vec<Action>) -> State {
        match event {
            Event::Want(_) if self.want.as_ref() != Some(&job) => self.leave(job, actions),
            Event::Fetched(done) if done == job => {
                if self.failures == 0 {
                    self.note.clear();
                }
                self.launch(job, now_ms, actions)
            }
            Event::FetchFailed(what, why) if what == job && retry_ms.is_none() => {
                self.note = why;
                let tries = tries.saturating_add(1);
                State::Fetching { job, tries, retry_ms: Some(now_ms + backoff_ms(tries)) }
            }
            Event::Tick if retry_ms.is_some_and(|at| at <= now_ms) => {
                actions.push(Action::Fetch(job.clone()));
                State::Fetching { job, tries, retry_ms: None }
            }
            Event::Found { placement, start, pid } if self.is_lost_child(placement, start) => self.found(job, start, pid, now_ms),
            _ => State::Fetching { job, tries, retry_ms },
        }
    }

    fn resting(&mut self, job: Job, until_ms: u64, event: Event, now_ms: u64, actions: &mut Vec<Action>) -> State {
        match event {
            Event::Want(_) if self.want.as_ref() != Some(&job) => self.leave(job, actions),
            Event::Tick if until_ms <= now_ms => self.launch(job, now_ms, actions),
            Event::Found { placement, start, pid } if self.is_lost_child(placement, start) => self.found(job, start, pid, now_ms),
            _ => State::Resting { job, until_ms },
        }
    }

    fn found(&mut self, job: Job, start: u64, pid: u32, now_ms: u64) -> State {
        State::Starting { job, start, pid: Some(pid), deadline_ms: now_ms + self.times.grace_ms }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one state, taken apart by its only caller")]
    fn starting(
        &mut self,
        job: Job,
        start: u64,
        pid: Option<u32>,
        deadline_ms: u64,
        event: Event,
        now_ms: u64,
        actions: &mut Vec<Action>,
    ) -> State {
        match event {
            Event::Want(_) if self.want.as_ref() != Some(&job) => self.ask_to_stop(job, start, pid, now_ms, actions),
            Event::Launched { start: s, pid } if s == start => {
                State::Starting { job, start, pid: Some(pid), deadline_ms: now_ms + self.times.grace_ms }
            }
            Event::LaunchFailed { start: s, why } if s == start => self.fail(job, why, 0, now_ms),
            Event::BinaryBad { start: s, why } if s == start => {
                self.note = why;
                State::Fetching { job, tries: 1, retry_ms: Some(now_ms + backoff_ms(1)) }
            }
            Event::Beat { start: s } if s == start && pid.is_some() => {
                let deadline_ms = now_ms + self.times.heartbeat_ms;
                State::Running { job, start, pid: pid.expect("checked in the guard"), since_ms: now_ms, deadline_ms }
            }
            Event::Exited { pid: p, why } if Some(p) == pid => self.fail(job, why, 0, now_ms),
            Event::Tick if pid.is_some() && deadline_ms <= now_ms => {
                let why = format!("no heartbeat within {} s of its start", self.times.grace_ms as f64 / 1e3);
                self.kill(job, start, pid, why, now_ms, actions)
            }
            _ => State::Starting { job, start, pid, deadline_ms },
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one state, taken apart by its only caller")]
    fn running(
        &mut self,
        job: Job,
        start: u64,
        pid: u32,
        since_ms: u64,
        deadline_ms: u64,
        event: Event,
        now_ms: u64,
        actions: &mut Vec<Action>,
    ) -> State {
        match event {
            Event::Want(_) if self.want.as_ref() != Some(&job) => self.ask_to_stop(job, start, Some(pid), now_ms, actions),
            Event::Exited { pid: p, why } if p == pid => self.fail(job, why, now_ms.saturating_sub(since_ms), now_ms),
            Event::Beat { start: s } if s == start => {
                State::Running { job, start, pid, since_ms, deadline_ms: now_ms + self.times.heartbeat_ms }
            }
            Event::Tick if deadline_ms <= now_ms => {
                if now_ms.saturating_sub(since_ms) >= STABLE_MS + self.times.heartbeat_ms {
                    self.failures = 0;
                }
                let why = format!("no heartbeat for {} s", self.times.heartbeat_ms as f64 / 1e3);
                self.kill(job, start, Some(pid), why, now_ms, actions)
            }
            _ => State::Running { job, start, pid, since_ms, deadline_ms },
        }
    }

    fn ask_to_stop(&mut self, job: Job, start: u64, pid: Option<u32>, now_ms: u64, actions: &mut Vec<Action>) -> State {
        actions.push(Action::TellStop);
        State::Stopping { job, start, pid, phase: Phase::Asked, deadline_ms: now_ms + STOP_STEP_MS, failed: None }
    }

    fn kill(&mut self, job: Job, start: u64, pid: Option<u32>, why: String, now_ms: u64, actions: &mut Vec<Action>) -> State {
        actions.push(Action::Kill);
        State::Stopping { job, start, pid, phase: Phase::Killed, deadline_ms: now_ms + STOP_STEP_MS, failed: Some(why) }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one state, taken apart by its only caller")]
    fn stopping(
        &mut self,
        job: Job,
        start: u64,
        pid: Option<u32>,
        phase: Phase,
        deadline_ms: u64,
        failed: Option<String>,
        event: Event,
        now_ms: u64,
        actions: &mut Vec<Action>,
    ) -> State {
        match event {
            // The process came into being after it was no longer wanted; it has not even connected.
            Event::Launched { start: s, pid } if s == start => {
                actions.push(Action::Terminate);
                let phase = Phase::Terminated;
                State::Stopping { job, start, pid: Some(pid), phase, deadline_ms: now_ms + STOP_STEP_MS, failed }
            }
            Event::LaunchFailed { start: s, why } | Event::BinaryBad { start: s, why } if s == start => {
                self.ended(job, Some(why), now_ms, actions)
            }
            Event::Exited { pid: p, .. } if Some(p) == pid => self.ended(job, failed, now_ms, actions),
            Event::Tick if pid.is_some() && deadline_ms <= now_ms => {
                let phase = match phase {
                    Phase::Asked => Phase::Terminated,
                    Phase::Terminated | Phase::Killed => Phase::Killed,
                };
                actions.push(if phase == Phase::Killed { Action::Kill } else { Action::Terminate });
                State::Stopping { job, start, pid, phase, deadline_ms: now_ms + STOP_STEP_MS, failed }
            }
            _ => State::Stopping { job, start, pid, phase, deadline_ms, failed },
        }
    }

    /// The process of a stopping slot is gone.
    fn ended(&mut self, job: Job, failed: Option<String>, now_ms: u64, actions: &mut Vec<Action>) -> State {
        match failed {
            _ if self.want.as_ref() != Some(&job) => self.leave(job, actions),
            Some(why) => self.fail(job, why, 0, now_ms),
            None => self.launch(job, now_ms, actions),
        }
    }
}

/// Pause after so many failures in a row; 0.1 s doubling to 10 s.
fn backoff_ms(failures: u32) -> u64 {
    let doublings = failures.saturating_sub(1).min(16);
    (BACKOFF_FIRST_MS << doublings).min(BACKOFF_MAX_MS)
}

const _: () = assert!(BACKOFF_FIRST_MS << (FAILURES_REPORTED - 1) <= BACKOFF_MAX_MS, "a slot is reported before it waits longest");

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    const TIMES: Times = Times { grace_ms: 30_000, heartbeat_ms: 10_000 };

    fn job(text: &str) -> Job {
        let (topology, placement) = text.split_once(':').expect("topology:placement");
        Job { topology: Name::new(topology).unwrap(), binary: "b".into(), placement: placement.parse().unwrap() }
    }

    fn event(words: &[&str]) -> Event {
        let n = |i: usize| words[i].trim_start_matches('#').parse::<u64>().unwrap();
        match words[0] {
            "want" if words[1] == "nothing" => Event::Want(None),
            "want" => Event::Want(Some(job(words[1]))),
            "fetched" => Event::Fetched(job(words[1])),
            "fetch-failed" => Event::FetchFailed(job(words[1]), words[2..].join(" ")),
            "launched" => Event::Launched { start: n(1), pid: n(2) as u32 },
            "launch-failed" => Event::LaunchFailed { start: n(1), why: words[2..].join(" ") },
            "binary-bad" => Event::BinaryBad { start: n(1), why: words[2..].join(" ") },
            "found" => Event::Found { placement: n(1), start: n(2), pid: n(3) as u32 },
            "beat" => Event::Beat { start: n(1) },
            "exited" => Event::Exited { pid: n(1) as u32, why: words[2..].join(" ") },
            "tick" => Event::Tick,
            other => panic!("unknown event {other:?}"),
        }
    }

    fn show(slot: &Slot, actions: &[Action]) -> String {
        let mut line = slot.word().unwrap_or("empty").to_owned();
        if let Some(job) = slot.job() {
            write!(line, " {}:{}#{}", job.topology, job.placement, slot.start()).unwrap();
        }
        if let Some(pid) = slot.pid() {
            write!(line, " pid={pid}").unwrap();
        }
        if let Some(at) = slot.deadline_ms() {
            write!(line, " until={at}").unwrap();
        }
        if !slot.note().is_empty() {
            write!(line, " ({})", slot.note()).unwrap();
        }
        let j = |job: &Job| format!("{}:{}", job.topology, job.placement);
        for action in actions {
            let text = match action {
                Action::Fetch(job) => format!("fetch {}", j(job)),
                Action::Launch(job, start) => format!("launch {}#{start}", j(job)),
                Action::TellStop => "tell stop".into(),
                Action::Terminate => "SIGTERM".into(),
                Action::Kill => "SIGKILL".into(),
                Action::Clean(job) => format!("clean {}", j(job)),
            };
            write!(line, " | {text}").unwrap();
        }
        line
    }

    /// A script is `> MS EVENT` lines, each followed by the state and actions it leads to. `SAETTA_BLESS=1` writes them anew.
    fn run(path: &std::path::Path) {
        let text = std::fs::read_to_string(path).unwrap();
        let mut slot = Slot::new(TIMES, BTreeMap::new(), 0);
        let mut got = String::new();
        for line in text.lines() {
            if let Some(command) = line.strip_prefix("> ") {
                let words: Vec<&str> = command.split_whitespace().collect();
                let now: u64 = words[0].parse().unwrap();
                let actions = match words[1] {
                    "adopted" => {
                        let starts = BTreeMap::from([(job(words[2]).placement, words[3].parse().unwrap())]);
                        let (start, pid) = (words[3].parse().unwrap(), words[4].parse().unwrap());
                        slot = Slot::adopted(TIMES, starts, job(words[2]), start, pid, now);
                        Vec::new()
                    }
                    "floor" => {
                        slot = Slot::new(TIMES, BTreeMap::new(), words[2].parse().unwrap());
                        Vec::new()
                    }
                    _ => slot.step(event(&words[1..]), now),
                };
                writeln!(got, "{line}\n{}", show(&slot, &actions)).unwrap();
            } else if line.starts_with('#') || line.is_empty() {
                if line.starts_with('#') && got.lines().last().is_some_and(str::is_empty) {
                    slot = Slot::new(TIMES, BTreeMap::new(), 0);
                }
                writeln!(got, "{line}").unwrap();
            }
        }
        if std::env::var_os("SAETTA_BLESS").is_some() {
            std::fs::write(path, got).unwrap();
        } else {
            assert_eq!(got, text, "{}: the script and what happens differ; SAETTA_BLESS=1 writes what happens", path.display());
        }
    }

    #[test]
    fn scripts() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/slot");
        let mut scripts: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
        scripts.sort();
        assert!(scripts.len() >= 4, "the scripts are in {}", dir.display());
        for script in scripts {
            run(&script);
        }
    }

    /// Any order of events: never two processes, never a start number twice, and what is wanted is reached.
    #[test]
    fn no_order_of_events_starts_two_workers_or_reuses_a_number() {
        use proptest::prelude::*;
        proptest!(ProptestConfig::with_cases(2_000), |(choices in prop::collection::vec((0u8..12, 0u64..4_000), 1..120))| {
            let mut slot = Slot::new(TIMES, BTreeMap::new(), 0);
            let jobs = [job("a:1"), job("a:2"), job("b:3")];
            // What the outside is: a launch under way, a process that lives.
            let (mut launching, mut alive): (Option<u64>, Option<(u64, u32)>) = (None, None);
            let (mut used, mut now, mut next_pid) = (std::collections::BTreeSet::new(), 0u64, 100u32);
            let mut fetching: Option<Job> = None;
            for (choice, pass) in choices {
                now += pass;
                let event = match choice {
                    0..=2 => Event::Want(Some(jobs[choice as usize].clone())),
                    3 => Event::Want(None),
                    4 => match fetching.take() { Some(j) => Event::Fetched(j), None => Event::Tick },
                    5 => match fetching.take() { Some(j) => Event::FetchFailed(j, "no".into()), None => Event::Tick },
                    6 => match launching.take() {
                        Some(start) => { next_pid += 1; alive = Some((start, next_pid)); Event::Launched { start, pid: next_pid } }
                        None => Event::Tick,
                    },
                    7 => match launching.take() { Some(start) => Event::LaunchFailed { start, why: "no".into() }, None => Event::Tick },
                    8 => match launching.take() { Some(start) => Event::BinaryBad { start, why: "no".into() }, None => Event::Tick },
                    9 => match alive { Some((start, _)) => Event::Beat { start }, None => Event::Tick },
                    10 => match alive.take() { Some((_, pid)) => Event::Exited { pid, why: "gone".into() }, None => Event::Tick },
                    _ => Event::Tick,
                };
                for action in slot.step(event, now) {
                    match action {
                        Action::Launch(job, start) => {
                            prop_assert!(launching.is_none() && alive.is_none(), "two workers in one slot");
                            prop_assert!(used.insert((job.placement, start)), "start number used twice");
                            launching = Some(start);
                        }
                        Action::Fetch(job) => fetching = Some(job),
                        Action::Clean(_) => prop_assert!(launching.is_none() && alive.is_none(), "cleaned under a worker"),
                        Action::Kill | Action::Terminate => prop_assert!(alive.is_some(), "a signal with nothing to get it"),
                        Action::TellStop => {}
                    }
                }
                prop_assert_eq!(slot.pid(), alive.map(|(_, pid)| pid));
            }
            // Let the outside behave: what is wanted runs in the end, or nothing does.
            for _ in 0..24 {
                now += 4_000;
                let mut actions = slot.step(Event::Tick, now);
                if let Some(j) = fetching.take() { actions.extend(slot.step(Event::Fetched(j), now)); }
                if let Some((_, pid)) = alive.filter(|_| matches!(slot.state(), State::Stopping { .. })) {
                    alive = None;
                    actions.extend(slot.step(Event::Exited { pid, why: "gone".into() }, now));
                }
                for action in actions {
                    match action { Action::Launch(_, s) => launching = Some(s), Action::Fetch(j) => fetching = Some(j), _ => {} }
                }
                if let Some(start) = launching.take() {
                    next_pid += 1;
                    alive = Some((start, next_pid));
                    slot.step(Event::Launched { start, pid: next_pid }, now);
                    slot.step(Event::Beat { start }, now);
                }
                if let Some((start, _)) = alive { slot.step(Event::Beat { start }, now); }
            }
            match slot.want().cloned() {
                None => prop_assert_eq!(slot.state(), &State::Empty),
                Some(want) => {
                    let runs = matches!(slot.state(), State::Running { job, .. } if *job == want);
                    prop_assert!(runs, "{:?} wants {:?}", slot.state(), want);
                }
            }
        });
    }
}
