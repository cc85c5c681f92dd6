//! V12: what is allowed and odd. Told beside the topology's status, never a reason to refuse.

use super::{Rules, View, alone};
use saetta_sdk::abi;
use saetta_sdk::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Rounds in which moves are remembered.
const FLAP_ROUNDS: usize = 5;
/// Moved in so many of them: it flaps.
const FLAP_MOVES: usize = 3;

/// Oddities of what was decided, by row of the topology table. `after`: slot of each executor. Who counts amounts may leave slots free; who knows no constraints may break them.
pub fn lint(snapshot: &Snapshot<'_>, after: &[u32], rules: &Rules) -> Vec<Vec<String>> {
    let view = View::new(snapshot);
    let (slots, resources) = (after, rules.resources);
    let used: BTreeSet<u32> = slots.iter().copied().filter(|s| *s != abi::NONE).collect();
    let node_flags: Vec<u32> = snapshot.nodes().iter().map(|n| n.flags).collect();
    let is_grey = |slot: u32| node_flags[view.slots[slot as usize].node as usize] & abi::NODE_GREYLISTED != 0;
    let free: Vec<u32> = (0..view.slots.len() as u32).filter(|s| view.shut[*s as usize].is_none() && !used.contains(s)).collect();
    let free_and_good = free.iter().any(|s| !is_grey(*s));
    let one = |t: usize| {
        let mut odd = Vec::new();
        let workers = view.workers(t, slots);
        let unplaced = view.execs_of(t).filter(|e| slots[*e] == abi::NONE).count();
        let wanted = view.topologies[t].workers_wanted as usize;
        if unplaced > 0 && !resources && !free.is_empty() && workers.len() < wanted {
            odd.push(format!(
                "V12: {unplaced} executors have no slot, while {} slots are free and {} of {wanted} workers are used",
                free.len(),
                workers.len()
            ));
        }
        let sizes = || workers.iter().map(|(_, execs)| execs.len());
        let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
        if !resources && most > least + 1 {
            odd.push(format!("V12: its workers hold {least} to {most} executors"));
        }
        let grey = view.execs_of(t).filter(|e| slots[*e] != abi::NONE && slots[*e] != view.before(*e) && is_grey(slots[*e])).count();
        if grey > 0 && free_and_good {
            odd.push(format!("V12: {grey} executors were put on nodes to be used last, while others have free slots"));
        }
        if !rules.constraints
            && let Err(broken) = alone::constraints(&view, slots, t)
        {
            odd.push(format!("{broken}; who placed it does not look at that; resource-aware and latency-aware do"));
        }
        odd
    };
    (0..view.topologies.len()).map(one).collect()
}

/// Remembers who moved in the last rounds. Bounded: so many rounds, and only executors that moved.
#[derive(Debug, Default)]
pub struct Flaps {
    rounds: VecDeque<BTreeSet<(String, u32)>>,
}

impl Flaps {
    /// Adds a round: running executors that moved, by topology id and first task. Returns how many executors of each topology flap.
    pub fn round(&mut self, moved: BTreeSet<(String, u32)>) -> BTreeMap<String, usize> {
        self.rounds.push_back(moved);
        if self.rounds.len() > FLAP_ROUNDS {
            self.rounds.pop_front();
        }
        let mut counts: BTreeMap<&(String, u32), usize> = BTreeMap::new();
        for who in self.rounds.iter().flatten() {
            *counts.entry(who).or_default() += 1;
        }
        let mut flapping = BTreeMap::new();
        for ((topology, _), _) in counts.into_iter().filter(|(_, n)| *n >= FLAP_MOVES) {
            *flapping.entry(topology.clone()).or_default() += 1;
        }
        flapping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_moves_in_three_of_five_rounds_flaps_until_it_rests() {
        let mut flaps = Flaps::default();
        let moved = || BTreeSet::from([("t".to_owned(), 3)]);
        for expected in [0, 0, 1] {
            assert_eq!(flaps.round(moved()).get("t").copied().unwrap_or(0), expected);
        }
        for expected in [1, 1, 0] {
            assert_eq!(flaps.round(BTreeSet::new()).get("t").copied().unwrap_or(0), expected);
        }
    }
}
