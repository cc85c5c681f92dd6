//! What operators are told of a round: what could not be used of the plugin's answer, and of each topology what is in the way or odd.
//!
//! Before: `round` has asked, checked and put the parts together. After: lines for the status. Pure.

use crate::pack::Packed;
use crate::process::{Answer, Failure};
use crate::round::view;
use crate::validate::lint::{Flaps, lint};
use crate::validate::{Refusal, Rules};
use crate::why::Decided;
use saetta_sdk::abi;
use saetta_sdk::snapshot::Snapshot;
use std::collections::BTreeSet;

/// What came of asking the plugin.
pub(crate) struct Asked {
    /// Its plan may be used.
    pub(crate) answer: Result<Answer, Failure>,
    pub(crate) verdicts: Vec<Result<(), Refusal>>,
    pub(crate) rules: Rules,
    pub(crate) took_us: u64,
}

impl Asked {
    /// What an operator is told of it; `None` = it was not asked, or all of its plan was valid.
    pub(crate) fn failure(&self, snapshot: &Snapshot<'_>) -> Option<String> {
        match &self.answer {
            Err(Failure::NotAsked(_)) => None,
            Err(failure) => Some(failure.to_string()),
            Ok(_) => {
                let mut refused = self.verdicts.iter().enumerate().filter_map(|(t, v)| Some((t, v.as_ref().err()?)));
                let (t, why) = refused.next()?;
                let topology = snapshot.text(snapshot.topologies().get(t).id);
                let more = match refused.count() {
                    0 => String::new(),
                    n => format!("; and so for {n} more"),
                };
                Some(format!("its plan for {topology} was refused: {why}{more}"))
            }
        }
    }
}

/// What there is to say of each topology, by its row.
pub(crate) fn notes(flaps: &mut Flaps, packed: &Packed, after: &[u32], asked: &Asked, health: Option<&str>) -> Vec<Vec<String>> {
    let snapshot = view(packed);
    let n = packed.topologies.len();
    let resources = asked.rules.resources;
    let mut notes = vec![Vec::new(); n];
    if asked.answer.is_ok() {
        let odd = lint(&snapshot, after, &asked.rules);
        for (t, odd) in odd.into_iter().enumerate().filter(|(t, _)| asked.verdicts.get(*t).is_some_and(Result::is_ok)) {
            notes[t].extend(odd);
        }
    }
    if after.contains(&abi::NONE) {
        let decided = Decided::new(&snapshot, after, resources);
        for (t, notes) in notes.iter_mut().enumerate() {
            notes.extend(decided.lines(t));
        }
    }
    let topologies: Vec<abi::TopologyRow> = snapshot.topologies().iter().collect();
    let id = |t: usize| snapshot.text(topologies[t].id);
    let moved = |e: usize| {
        let before = packed.slot_of_exec[e];
        before != abi::NONE && before != after[e] && packed.slots[before as usize].assignable
    };
    let movers = packed.topologies.iter().enumerate().flat_map(|(t, row)| row.executors.clone().map(move |e| (t, e)));
    let moved: BTreeSet<(String, u32)> =
        movers.filter(|(_, e)| moved(*e)).map(|(t, e)| (id(t).to_owned(), packed.executors[e].first)).collect();
    let flapping = flaps.round(moved);
    for (t, notes) in notes.iter_mut().enumerate() {
        if let Some(n) = flapping.get(id(t)) {
            notes.push(format!("V12: {n} executors moved in three of the last five rounds"));
        }
        notes.extend(health.map(str::to_owned));
    }
    notes
}
