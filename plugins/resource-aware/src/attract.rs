//! Another order of placing: fill a node with what exchanges most with what is there, then the next node.
//!
//! Before: `search` has opened a topology. After: all its executors are placed, or the model is as it was; `lib` keeps the arrangement whose
//! distance costs least. Storm's order counts every connection the same; where one component tells all of another (all, direct) a pair of
//! executors is worth a hundred of a shuffle. A pair's weight is that of [`saetta_sdk::locality`]. Ackers go into the workers afterwards, where
//! there is room: bound at once, a small acker can keep a large executor off a node. No step back: this is one more attempt.

use crate::executors::Work;
use crate::search::{Failure, Search};
use saetta_sdk::{CompId, ExecId, NodeId, SlotId, Snapshot, abi, locality};
use std::collections::VecDeque;

/// Between two questions whether to stop, in executors.
const ASK_EVERY: usize = 64;

/// Components that exchange something, and how much each pair of their executors does.
#[derive(Debug, Clone, Default)]
pub struct Weights {
    /// By component of the topology: the others (itself too), and the weight of a pair.
    of: Vec<Vec<(usize, f64)>>,
    /// By component: what one executor takes, as a share of the open nodes' mean, at least a little.
    size: Vec<f64>,
}

impl Weights {
    /// O(edges + nodes).
    pub fn new(snapshot: &Snapshot<'_>, row: &abi::TopologyRow, open: impl Iterator<Item = NodeId>) -> Self {
        let n_comps = row.n_comps as usize;
        let mut of: Vec<Vec<(usize, f64)>> = vec![Vec::new(); n_comps];
        let mut add = |a: usize, b: usize, weight: f64| match of[a].iter_mut().find(|(c, _)| *c == b) {
            Some((_, w)) => *w += weight,
            None => of[a].push((b, weight)),
        };
        for (id, _) in snapshot.components_of(row) {
            for (_, edge) in snapshot.edges_from(id) {
                let (from, to) = ((id.0 - row.first_comp) as usize, (edge.to - row.first_comp) as usize);
                let n = snapshot.components().get(edge.to as usize).n_execs.max(1);
                // Of a global grouping one target in n counts.
                let weight = locality::pair_weight(edge.grouping, n).unwrap_or(1.0 / f64::from(n));
                add(from, to, weight);
                add(to, from, weight);
            }
        }
        let mut mean = vec![0.0; snapshot.kinds().len()];
        let mut n_open = 0.0;
        for node in open {
            mean.iter_mut().zip(snapshot.node_total(node).iter()).for_each(|(m, total)| *m += total as f64);
            n_open += 1.0;
        }
        let size = snapshot.components_of(row).map(|(id, _)| {
            let shares = snapshot.request(id).iter().zip(&mean).filter(|(_, m)| **m > 0.0).map(|(r, m)| r as f64 * n_open / m);
            shares.fold(1e-4, f64::max)
        });
        let size = size.collect();
        Weights { of, size }
    }

    /// What one executor of a component takes, as a share of a node.
    pub fn size_of(&self, comp: u32) -> f64 {
        self.size[comp as usize]
    }
    /// What a component exchanges with: components of the topology, and the weight of a pair.
    pub(crate) fn near(&self, comp: usize) -> &[(usize, f64)] {
        &self.of[comp]
    }
    /// Nothing that is said costs distance.
    pub fn is_nothing(&self) -> bool {
        self.of.iter().all(Vec::is_empty)
    }
}

/// By what the next executor is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prefer {
    /// How much more what is in the last worker counts than what is elsewhere on the node.
    pub worker: f64,
    /// How much the room counts that an executor takes: 0 = not at all, 1 = what it exchanges is divided by it.
    pub size: f64,
}

/// Orders to compare with Storm's. More of them (a worker counted four times, half the room) brought a thousandth.
pub const ORDERS: [Prefer; 2] = [Prefer { worker: 1.0, size: 0.0 }, Prefer { worker: 1.0, size: 1.0 }];

impl Search<'_> {
    /// Places all of `work`, node by node. On failure the model is as it was.
    pub fn place_by_attraction(&mut self, work: Work, weights: &Weights, prefer: Prefer, stop: &dyn Fn() -> bool) -> Result<(), Failure> {
        let begin = self.model().checkpoint();
        let mut end = self.attract(work.executors, weights, prefer, stop);
        if end.is_ok() {
            end = self.place_ackers(work.ackers, stop);
        }
        if end.is_err() {
            self.model().rollback(begin);
        }
        end
    }

    fn attract(&mut self, executors: Vec<ExecId>, weights: &Weights, prefer: Prefer, stop: &dyn Fn() -> bool) -> Result<(), Failure> {
        let first_comp = self.row().first_comp;
        let n_comps = weights.of.len();
        let mut waiting: Vec<VecDeque<ExecId>> = vec![VecDeque::new(); n_comps];
        let mut n_left = executors.len();
        for exec in executors {
            waiting[(self.model().comp_of(exec).0 - first_comp) as usize].push_back(exec);
        }
        // How much one executor of a component exchanges with what is placed: anywhere, on the node being filled, in its last worker.
        let mut anywhere = vec![0.0f64; n_comps];
        for (c, near) in weights.of.iter().enumerate() {
            // To begin with, a little of what it exchanges in all: the heaviest goes first.
            anywhere[c] = near.iter().map(|(other, w)| w * waiting[*other].len() as f64).sum::<f64>() * 1e-6;
        }
        let mut on_node = vec![0.0f64; n_comps];
        let mut in_worker = vec![0.0f64; n_comps];
        let mut is_out = vec![false; n_comps];
        let mut at: Option<(NodeId, SlotId)> = None;
        let scale: Vec<f64> = weights.size.iter().map(|s| s.powf(prefer.size)).collect();
        while n_left > 0 {
            if n_left.is_multiple_of(ASK_EVERY) && stop() {
                return Err(Failure::Stopped);
            }
            let near = at.and_then(|(node, _)| {
                let best = best(&waiting, |c| if is_out[c] { 0.0 } else { (on_node[c] + prefer.worker * in_worker[c]) / scale[c] })?;
                Some((best, node))
            });
            let (c, slot) = match near {
                Some((c, node)) => match self.slot_of_node(CompId(first_comp + c as u32), node) {
                    Some(slot) => (c, slot),
                    None => {
                        is_out[c] = true;
                        continue;
                    }
                },
                None => {
                    let c = best(&waiting, |c| anywhere[c].max(f64::MIN_POSITIVE)).expect("some executor waits");
                    let exec = waiting[c][0];
                    (c, self.find(CompId(first_comp + c as u32), &[]).ok_or(Failure::NoRoom(exec))?)
                }
            };
            let exec = waiting[c].pop_front().expect("chosen among those that wait");
            n_left -= 1;
            self.put(exec, slot, false);
            let node = self.model().node_of(slot);
            if at.is_none_or(|(n, _)| n != node) {
                is_out.fill(false);
                on_node.fill(0.0);
                self.attraction(weights, &self.slots_on(node), &mut on_node);
            } else {
                weights.of[c].iter().for_each(|(other, w)| on_node[*other] += w);
            }
            if at.is_none_or(|(_, s)| s != slot) {
                in_worker.fill(0.0);
                self.attraction(weights, &[slot], &mut in_worker);
            } else {
                weights.of[c].iter().for_each(|(other, w)| in_worker[*other] += w);
            }
            weights.of[c].iter().for_each(|(other, w)| anywhere[*other] += w);
            at = Some((node, slot));
        }
        Ok(())
    }

    /// What the executors of these workers exchange with one more of each component.
    fn attraction(&self, weights: &Weights, slots: &[SlotId], sum: &mut [f64]) {
        for slot in slots {
            for (comp, n) in self.comps_in(*slot) {
                weights.of[comp].iter().for_each(|(other, w)| sum[*other] += w * f64::from(n));
            }
        }
    }
}

/// The component with something waiting that scores most, above 0; ties to the first.
fn best(waiting: &[VecDeque<ExecId>], score: impl Fn(usize) -> f64) -> Option<usize> {
    let mut best: Option<(f64, usize)> = None;
    for (c, _) in waiting.iter().enumerate().filter(|(_, w)| !w.is_empty()) {
        let score = score(c);
        if score > 0.0 && best.is_none_or(|(s, _)| score > s) {
            best = Some((score, c));
        }
    }
    best.map(|(_, c)| c)
}
