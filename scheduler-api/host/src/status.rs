//! How scheduling is: which plugin, whether it is asked, what the last round was. For operators; updated after each round.

use crate::SchedulerOptions;
use crate::breaker::Gate;
use crate::policy::Mode;
use crate::round::{How, Last};
use crate::seat::Seat;
use crate::shadow::ShadowReport;
use serde::Serialize;

/// What went wrong with a plugin last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastFailure {
    /// Number of the round.
    pub round: u64,
    /// When it was, milliseconds since 1970.
    pub at_ms: u64,
    /// One line.
    pub what: String,
}

/// As of the last round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// As operators call it.
    pub plugin: String,
    /// `isolated` or `in-process`.
    pub mode: &'static str,
    /// Of the loaded file; absent until one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// By its manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// By its manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `in use`, or `quarantined`: then the built-in even places.
    pub state: &'static str,
    /// Why it is quarantined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Until it is tried again, as of the last round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_trial_ms: Option<u64>,
    /// The last round in which its plan, or a part of it, could not be used; absent where there was none since it was chosen or reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
    /// Number of the last round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<u64>,
    /// When it was, milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
    /// From the question to the plugin's answer, microseconds.
    pub took_us: u64,
    /// Topologies of the last round by who placed them.
    pub by_plugin: u32,
    /// See `by_plugin`.
    pub by_fallback: u32,
    /// Those that stay as they are because the plugin failed.
    pub kept: u32,
    /// What went wrong with the health stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_health: Option<String>,
    /// The shadow, if one is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<ShadowReport>,
}

impl Status {
    pub(crate) fn new(options: &SchedulerOptions) -> Self {
        Status {
            plugin: options.plugin.clone(),
            mode: match options.policy.mode {
                Mode::Isolated => "isolated",
                Mode::InProcess => "in-process",
            },
            sha256: None,
            id: None,
            version: None,
            state: "in use",
            why: None,
            next_trial_ms: None,
            last_failure: None,
            round: None,
            at_ms: None,
            took_us: 0,
            by_plugin: 0,
            by_fallback: 0,
            kept: 0,
            node_health: None,
            shadow: None,
        }
    }

    /// The plugin that is in use.
    fn seated(&mut self, seat: &Seat, now_ms: u64) {
        self.plugin.clone_from(&seat.name);
        self.sha256 = seat.loaded.as_ref().map(|l| l.sha256.clone());
        self.id = seat.loaded.as_ref().map(|l| l.manifest.id.clone());
        self.version = seat.loaded.as_ref().map(|l| l.manifest.version.clone());
        self.why = seat.breaker.why_open().map(str::to_owned);
        self.state = if self.why.is_some() { "quarantined" } else { "in use" };
        self.next_trial_ms = match seat.breaker.gate(now_ms) {
            Gate::Run => None,
            Gate::Probe => Some(0),
            Gate::Wait { ms } => Some(ms),
        };
    }

    /// Another plugin, or the same one with its past forgotten.
    pub(crate) fn begun_anew(&mut self, seat: &Seat, now_ms: u64) {
        self.seated(seat, now_ms);
        self.last_failure = None;
    }

    /// `failure` = the round asked the plugin and could not use all of its answer.
    pub(crate) fn after_round(
        &mut self,
        seat: &Seat,
        now_ms: u64,
        last: &Last,
        took_us: u64,
        failure: Option<String>,
        health: Option<String>,
    ) {
        self.seated(seat, now_ms);
        if let Some(what) = failure {
            self.last_failure = Some(LastFailure { round: last.args.round_id, at_ms: last.at_ms, what });
        }
        (self.round, self.at_ms, self.took_us) = (Some(last.args.round_id), Some(last.at_ms), took_us);
        let count = |f: fn(&How) -> bool| last.how.iter().filter(|how| f(how)).count() as u32;
        self.by_plugin = count(|how| matches!(how, How::Plugin(_)));
        self.by_fallback = count(|how| matches!(how, How::Fallback { .. }));
        self.kept = count(|how| matches!(how, How::Kept { .. }));
        self.node_health = health;
    }
}
