//! Executors that were just placed change places where that brings what exchanges much nearer together.
//!
//! Before: all of a round is placed but its ackers. After: the same workers, some executors exchanged between them; nothing that ran before has
//! moved. Executors of one component in one worker are alike, so pairs of such groups are looked at, and not more of them than the round allows.

use crate::attract::Weights;
use crate::nodes::Places;
use saetta_sdk::model::Model;
use saetta_sdk::{ExecId, SlotId, Snapshot, abi, locality};

/// One topology's executors by where they are.
pub(crate) struct Improve<'a> {
    model: &'a mut Model,
    places: &'a Places,
    weights: &'a Weights,
    row: abi::TopologyRow,
    /// Executors of a component on a node and in a rack: component by component.
    on_node: Vec<u32>,
    in_rack: Vec<u32>,
}

impl<'a> Improve<'a> {
    /// O(components x nodes).
    pub(crate) fn new(model: &'a mut Model, places: &'a Places, weights: &'a Weights, row: abi::TopologyRow) -> Self {
        let n_comps = row.n_comps as usize;
        let (on_node, in_rack) = (vec![0; n_comps * places.n_nodes()], vec![0; n_comps * places.n_racks]);
        let mut improve = Improve { model, places, weights, row, on_node, in_rack };
        for exec in (row.first_exec..row.first_exec + row.n_execs).map(ExecId) {
            if let Some(slot) = improve.model.slot_of(exec) {
                improve.count(improve.comp(exec), slot, 1);
            }
        }
        improve
    }

    /// Looks at `left` pairs at most.
    pub(crate) fn run(mut self, snapshot: &Snapshot<'_>, left: &mut u64) {
        let mut groups: Vec<(SlotId, usize, ExecId)> = (snapshot.executors_of(&self.row))
            .filter(|(_, e)| e.slot == abi::NONE)
            .filter_map(|(exec, _)| self.model.slot_of(exec).map(|slot| (slot, self.comp(exec), exec)))
            .filter(|(_, comp, _)| !self.weights.near(*comp).is_empty())
            .collect();
        groups.sort_unstable_by_key(|(slot, comp, exec)| (*slot, *comp, *exec));
        groups.dedup_by_key(|(slot, comp, _)| (*slot, *comp));
        for a in 0..groups.len() {
            for b in a + 1..groups.len() {
                let ((at, comp, exec), (other_at, other_comp, other)) = (groups[a], groups[b]);
                if at == other_at || comp == other_comp {
                    continue;
                }
                if *left == 0 {
                    return;
                }
                *left -= 1;
                if self.gain((comp, at), (other_comp, other_at)) > 1e-6 && self.exchange((exec, at), (other, other_at)) {
                    (groups[a].0, groups[b].0) = (other_at, at);
                }
            }
        }
    }

    fn comp(&self, exec: ExecId) -> usize {
        (self.model.comp_of(exec).0 - self.row.first_comp) as usize
    }

    fn count(&mut self, comp: usize, slot: SlotId, by: i32) {
        let node = self.model.node_of(slot);
        for n in [
            &mut self.on_node[comp * self.places.n_nodes() + node.index()],
            &mut self.in_rack[comp * self.places.n_racks + self.places.rack_of(node)],
        ] {
            *n = n.saturating_add_signed(by);
        }
    }

    /// How near one more of a component would be to what it exchanges with; `without` = one of a component in that worker is thought away.
    fn nearness(&self, comp: usize, slot: SlotId, without: Option<(usize, SlotId)>) -> f64 {
        let node = self.model.node_of(slot);
        let rack = self.places.rack_of(node);
        let near = self.weights.near(comp).iter().map(|(other, weight)| {
            let in_worker = self.model.comps_in(slot).find(|(c, _)| c.0 - self.row.first_comp == *other as u32).map_or(0, |(_, n)| n);
            let mut saved = f64::from(in_worker) * locality::SAME_NODE
                + f64::from(self.on_node[other * self.places.n_nodes() + node.index()]) * (locality::SAME_RACK - locality::SAME_NODE)
                + f64::from(self.in_rack[other * self.places.n_racks + rack]) * (locality::FAR - locality::SAME_RACK);
            if let Some((gone, at)) = without
                && gone == *other
            {
                let at_node = self.model.node_of(at);
                saved -= if at == slot {
                    locality::FAR
                } else if at_node == node {
                    locality::FAR - locality::SAME_NODE
                } else if self.places.rack_of(at_node) == rack {
                    locality::FAR - locality::SAME_RACK
                } else {
                    0.0
                };
            }
            saved * weight
        });
        near.sum()
    }

    /// What is saved by exchanging one of each.
    fn gain(&self, a: (usize, SlotId), b: (usize, SlotId)) -> f64 {
        // What the two of them exchange is as far apart afterwards as before: each is thought away for the other. So is each for its own
        // component, where that exchanges with itself.
        let before = self.nearness(a.0, a.1, Some(b)) + self.nearness(b.0, b.1, Some(a));
        let after = self.nearness(a.0, b.1, Some(b)) + self.nearness(b.0, a.1, Some(a));
        after - before
    }

    /// Exchanges two executors if both fit.
    fn exchange(&mut self, (a, at_a): (ExecId, SlotId), (b, at_b): (ExecId, SlotId)) -> bool {
        let begin = self.model.checkpoint();
        self.model.free(a);
        self.model.free(b);
        for (exec, slot) in [(a, at_b), (b, at_a)] {
            if !self.model.would_fit(exec, slot) {
                self.model.rollback(begin);
                return false;
            }
            self.model.place(exec, slot);
        }
        for (exec, from, to) in [(a, at_a, at_b), (b, at_b, at_a)] {
            let comp = self.comp(exec);
            self.count(comp, from, -1);
            self.count(comp, to, 1);
        }
        true
    }
}
