//! What was bad when, and who is blacklisted until when. Pure: sightings and the wall clock in, a list out.
//!
//! Before: each round says which nodes report, with which ports. After: [`Window::is_blacklisted`]. Time is a number of periods that only
//! rises: a clock that jumps back counts as one period, and without a clock (0) every call is one.

use saetta_sdk::json::{Value, from_slice, json};
use saetta_sdk::{PluginError, abi};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The rule.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Length of a period.
    pub period_ms: i64,
    /// Periods it looks back.
    pub window: u64,
    /// Bad periods among them until a node is blacklisted.
    pub count: u64,
    /// Periods it stays so.
    pub resume: u64,
}

/// A node that reports.
#[derive(Debug, Clone)]
pub struct Sighting<'a> {
    /// Its id.
    pub node: &'a str,
    /// Its ports.
    pub ports: BTreeSet<u32>,
}

/// Ports that were missed, by node; a node without ports may be there with none.
type Bad = BTreeMap<String, BTreeSet<u32>>;

/// The memory of the stage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window {
    /// Periods so far.
    tick: u64,
    /// Wall clock when this period began; 0 = none.
    tick_ms: i64,
    /// Nodes seen, with the ports they have.
    known: BTreeMap<String, BTreeSet<u32>>,
    /// By period, oldest first; the last one is `tick`, periods without a round are left out.
    bad: VecDeque<(u64, Bad)>,
    /// Until when.
    blacklisted: BTreeMap<String, u64>,
}

/// Of the saved form.
const VERSION: u64 = 1;

impl Window {
    /// A round's nodes. Within one period what was bad stays so.
    pub fn observe(&mut self, options: &Options, wall_ms: i64, seen: &[Sighting<'_>]) {
        self.advance(options, wall_ms);
        self.blacklisted.retain(|_, until| *until > self.tick);

        let seen: BTreeMap<&str, &BTreeSet<u32>> = seen.iter().map(|s| (s.node, &s.ports)).collect();
        let mut bad = Bad::new();
        for (node, had) in &mut self.known {
            match seen.get(node.as_str()) {
                None => {
                    bad.insert(node.clone(), had.clone());
                }
                Some(ports) => {
                    let missing: BTreeSet<u32> = had.difference(ports).copied().collect();
                    if !missing.is_empty() {
                        bad.insert(node.clone(), missing);
                    }
                    had.extend(ports.iter());
                }
            }
        }
        for (node, ports) in seen {
            if !self.known.contains_key(node) {
                self.known.insert(node.to_owned(), ports.clone());
            }
        }
        match self.bad.back_mut() {
            Some((tick, before)) if *tick == self.tick => {
                bad.into_iter().for_each(|(node, ports)| before.entry(node).or_default().extend(ports))
            }
            _ => self.bad.push_back((self.tick, bad)),
        }

        let mut counts: BTreeMap<&String, u64> = BTreeMap::new();
        self.bad.iter().flat_map(|(_, bad)| bad.keys()).for_each(|node| *counts.entry(node).or_default() += 1);
        for (node, count) in counts {
            if count >= options.count && !self.blacklisted.contains_key(node) {
                self.blacklisted.insert(node.clone(), self.tick + options.resume);
            }
        }
        self.forget(options);
    }

    fn advance(&mut self, options: &Options, wall_ms: i64) {
        let elapsed_ms = wall_ms.saturating_sub(self.tick_ms);
        let is_same = self.tick_ms > 0 && wall_ms > 0 && (0..options.period_ms / 2).contains(&elapsed_ms);
        if self.bad.is_empty() || !is_same {
            let periods = if self.tick_ms > 0 && wall_ms > 0 { (elapsed_ms + options.period_ms / 2) / options.period_ms } else { 1 };
            self.tick += periods.max(1) as u64;
            self.tick_ms = wall_ms;
        }
        // The window ends with this period.
        while self.bad.front().is_some_and(|(tick, _)| tick + options.window <= self.tick) {
            self.bad.pop_front();
        }
    }

    /// What was bad in every period of the window was taken away: it is no longer missed.
    fn forget(&mut self, options: &Options) {
        if self.tick < options.window {
            // The window is not full: before it there may have been better periods, as the first one in which a node was seen and lost.
            return;
        }
        let bad = &self.bad;
        let always = |node: &String, port: u32| bad.iter().all(|(_, bad)| bad.get(node).is_some_and(|ports| ports.contains(&port)));
        self.known.retain(|node, ports| {
            let was_there = bad.iter().any(|(_, bad)| !bad.contains_key(node));
            if was_there {
                return true;
            }
            let had = ports.len();
            ports.retain(|port| !always(node, *port));
            // It is there with the ports that are left; without any it is not.
            had > 0 && !ports.is_empty()
        });
    }

    /// True for a node that gets nothing new.
    pub fn is_blacklisted(&self, node: &str) -> bool {
        self.blacklisted.contains_key(node)
    }

    /// A node is needed: off the list, until the next round finds it there again.
    pub fn let_go(&mut self, node: &str) {
        self.blacklisted.remove(node);
    }

    /// Nodes it knows, with their ports.
    pub fn known(&self) -> &BTreeMap<String, BTreeSet<u32>> {
        &self.known
    }

    /// As JSON. Where all is too long for a saved state, known nodes are left out, and the new leader learns them again.
    pub fn save(&self) -> Vec<u8> {
        let text = |known: &BTreeMap<String, BTreeSet<u32>>| {
            json!({
                "version": VERSION, "tick": self.tick, "tick_ms": self.tick_ms, "known": known, "bad": self.bad, "blacklisted": self.blacklisted,
            })
            .to_string()
            .into_bytes()
        };
        let all = text(&self.known);
        if all.len() as u64 <= abi::STATE_BYTES_MAX { all } else { text(&BTreeMap::new()) }
    }

    /// Back from [`Window::save`].
    pub fn restore(bytes: &[u8]) -> Result<Self, PluginError> {
        let wrong = |what: &str| PluginError { code: abi::E_CONFIG, text: format!("the saved state {what}; starting with an empty one") };
        let state: Value = from_slice(bytes).map_err(|e| wrong(&format!("is no JSON: {e}")))?;
        if state["version"] != VERSION {
            return Err(wrong("is of another version"));
        }
        let read = || -> Option<Window> {
            Some(Window {
                tick: state["tick"].as_u64()?,
                tick_ms: state["tick_ms"].as_i64()?,
                known: nodes(&state["known"])?,
                bad: (state["bad"].as_array()?.iter()).map(|b| Some((b[0].as_u64()?, nodes(&b[1])?))).collect::<Option<_>>()?,
                blacklisted: (state["blacklisted"].as_object()?.iter())
                    .map(|(n, u)| Some((n.clone(), u.as_u64()?)))
                    .collect::<Option<_>>()?,
            })
        };
        read().ok_or_else(|| wrong("lacks a field"))
    }
}

fn nodes(value: &Value) -> Option<Bad> {
    let ports = |v: &Value| v.as_array()?.iter().map(|p| u32::try_from(p.as_u64()?).ok()).collect::<Option<BTreeSet<u32>>>();
    value.as_object()?.iter().map(|(node, v)| Some((node.clone(), ports(v)?))).collect()
}
