//! The plugin's own configuration, and the strategies a topology may name.

use crate::nodes::Key;
use crate::order::Fairness;
use saetta_sdk::json::{self, Value};
use saetta_sdk::{PluginError, abi};

/// Attempts for one topology, evictions between them.
const ATTEMPTS: u64 = 5;
/// More would be a mistake.
const ATTEMPTS_MAX: u64 = 100;

/// How a topology is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    Default,
    Generic,
    DefaultOld,
    GenericOld,
    RoundRobin,
    Constraint,
}

impl Strategy {
    pub(crate) fn key(self) -> Key {
        match self {
            Strategy::DefaultOld => Key::Old,
            Strategy::GenericOld => Key::Generic,
            _ => Key::Common,
        }
    }
    /// Storm's class names with any package, and short ones.
    fn named(name: &str) -> Option<Self> {
        Some(match name.rsplit('.').next().unwrap_or(name) {
            "" | "default" | "DefaultResourceAwareStrategy" => Strategy::Default,
            "generic" | "GenericResourceAwareStrategy" => Strategy::Generic,
            "default-old" | "DefaultResourceAwareStrategyOld" => Strategy::DefaultOld,
            "generic-old" | "GenericResourceAwareStrategyOld" => Strategy::GenericOld,
            "round-robin" | "RoundRobinResourceAwareStrategy" => Strategy::RoundRobin,
            "constraint" | "ConstraintSolverStrategy" => Strategy::Constraint,
            _ => return None,
        })
    }
}

/// What the operator says.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) attempts: u64,
    pub(crate) fairness: Fairness,
    /// Of several orders of executors the one whose placement costs least distance; else Storm's alone.
    pub(crate) compare_orders: bool,
    /// Strategies that topologies may ask for; empty = all.
    allowed: Vec<Strategy>,
}

impl Config {
    pub(crate) fn parse(text: &str) -> Result<Self, PluginError> {
        let bad = |text| PluginError { code: abi::E_CONFIG, text };
        let mut config = Config { attempts: ATTEMPTS, fairness: Fairness::Standard, compare_orders: true, allowed: Vec::new() };
        let given: Value = json::from_str(if text.trim().is_empty() { "{}" } else { text })
            .map_err(|e| bad(format!("the configuration is no JSON: {e}")))?;
        let given = given.as_object().ok_or_else(|| bad("the configuration is no object; write {\"key\": value}".into()))?;
        for (key, value) in given {
            match (key.as_str(), value) {
                ("attempts", v) => {
                    let n = v.as_u64().filter(|n| (1..=ATTEMPTS_MAX).contains(n));
                    config.attempts = n.ok_or_else(|| bad(format!("attempts is {v}; it must be 1 to {ATTEMPTS_MAX}")))?;
                }
                ("fairness", v) => {
                    config.fairness = match v.as_str() {
                        Some("standard") => Fairness::Standard,
                        Some("generic") => Fairness::Generic,
                        Some("fifo") => Fairness::Fifo,
                        _ => return Err(bad(format!("fairness is {v}; it must be \"standard\", \"generic\" or \"fifo\""))),
                    }
                }
                ("compare_orders", Value::Bool(on)) => config.compare_orders = *on,
                ("strategies", Value::Array(names)) => {
                    for name in names {
                        let known = name.as_str().and_then(Strategy::named);
                        config.allowed.push(known.ok_or_else(|| bad(format!("strategies has {name}, which is none; {KNOWN}")))?);
                    }
                }
                (key, v) => {
                    return Err(bad(format!(
                        "{key} = {v} is not known; there are attempts, fairness, compare_orders (true or false) and strategies (a list)"
                    )));
                }
            }
        }
        Ok(config)
    }

    /// The strategy a topology asks for; what is wrong with it, if anything.
    pub(crate) fn strategy(&self, name: &str) -> Result<Strategy, String> {
        match Strategy::named(name) {
            Some(s) if self.allowed.is_empty() || self.allowed.contains(&s) => Ok(s),
            Some(_) => {
                Err(format!("its strategy {name} is not allowed here; ask for another, or allow it with the plugin's key strategies"))
            }
            None => Err(format!("its strategy {name} is none; {KNOWN}")),
        }
    }
}

const KNOWN: &str = "there are default, generic, default-old, generic-old, round-robin and constraint";
