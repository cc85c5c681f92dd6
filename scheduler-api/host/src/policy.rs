//! What an operator chooses about schedulers beyond which one: how it runs, what its plans are held to, what goes along.

use crate::inspect::{CLAIM_CONSTRAINTS, CLAIM_RESOURCES, Manifest};
use crate::validate::Rules;
use saetta_model::config::Config;
use saetta_sdk::abi;
use std::path::PathBuf;

/// Where a plugin's code runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// In a helper process: what breaks there costs a round.
    #[default]
    Isolated,
    /// In nimbus: a crash of the plugin is a crash of nimbus.
    InProcess,
}

/// Whether plans are held to what nodes have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resources {
    /// Where the plugin claims so.
    #[default]
    Auto,
    /// Always.
    Enforced,
    /// Never.
    Ignored,
}

/// The choices. The default is what is built in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// `scheduler.mode`.
    pub mode: Mode,
    /// `scheduler.plugin.config`: JSON.
    pub config: String,
    /// `scheduler.shadow`: a plugin that is asked too, and whose plan is only compared.
    pub shadow: Option<String>,
    /// `scheduler.shadow.config`: JSON.
    pub shadow_config: String,
    /// `scheduler.node.health`: a plugin that judges nodes before each round.
    pub node_health: Option<String>,
    /// `scheduler.node.health.config`: JSON.
    pub node_health_config: String,
    /// `scheduler.resources`.
    pub resources: Resources,
    /// `scheduler.max.moves`: running executors a round may move; `abi::NONE` = no limit.
    pub max_moves: u32,
    /// `scheduler.may.preempt`.
    pub may_preempt: bool,
    /// Where copies of plugins are kept; `None` = a plugin is loaded from where it lies.
    pub copies: Option<PathBuf>,
    /// Where the last rounds are kept; `None` = nowhere.
    pub rounds: Option<PathBuf>,
    /// `scheduler.rounds.bytes`: what they may take together.
    pub rounds_bytes_max: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            mode: Mode::Isolated,
            config: "{}".into(),
            shadow: None,
            shadow_config: "{}".into(),
            node_health: None,
            node_health_config: "{}".into(),
            resources: Resources::Auto,
            max_moves: abi::NONE,
            may_preempt: false,
            copies: None,
            rounds: None,
            rounds_bytes_max: 64 << 20,
        }
    }
}

impl Policy {
    /// From a daemon's configuration; the directories are the caller's.
    pub fn from_config(config: &Config) -> Self {
        let text = |key: &str| config.text(key).filter(|t| !t.is_empty()).map(str::to_owned);
        let built_in = Policy::default();
        Policy {
            mode: if config.text("scheduler.mode") == Some("in-process") { Mode::InProcess } else { Mode::Isolated },
            config: text("scheduler.plugin.config").unwrap_or(built_in.config),
            shadow: text("scheduler.shadow"),
            shadow_config: text("scheduler.shadow.config").unwrap_or(built_in.shadow_config),
            node_health: text("scheduler.node.health"),
            node_health_config: text("scheduler.node.health.config").unwrap_or(built_in.node_health_config),
            resources: match config.text("scheduler.resources") {
                Some("enforced") => Resources::Enforced,
                Some("ignored") => Resources::Ignored,
                _ => Resources::Auto,
            },
            max_moves: config.u32("scheduler.max.moves").unwrap_or(built_in.max_moves),
            may_preempt: config.text("scheduler.may.preempt") == Some("true"),
            rounds_bytes_max: config.bytes("scheduler.rounds.bytes").unwrap_or(built_in.rounds_bytes_max),
            ..built_in
        }
    }

    /// What plans of a plugin are held to; `None` = its manifest is not known.
    pub(crate) fn rules(&self, manifest: Option<&Manifest>) -> Rules {
        let claims = |claim: &str| manifest.is_some_and(|m| m.has_claim(claim));
        let resources = match self.resources {
            Resources::Auto => claims(CLAIM_RESOURCES),
            Resources::Enforced => true,
            Resources::Ignored => false,
        };
        let constraints = claims(CLAIM_RESOURCES) || claims(CLAIM_CONSTRAINTS);
        Rules { resources, constraints, max_moves: self.max_moves, may_preempt: self.may_preempt }
    }
}
