//! What a placement costs in distance: the figure by which placements are compared.
//!
//! Before: a [`Snapshot`] and a slot for each executor. After: one number for each topology. A pair of executors costs 0 in one worker, 1 on
//! one node, 2 in one rack, else 4 (an executor without a slot is far from all). An edge of m x n executors counts each pair 1/n where a
//! tuple goes to one of the n (shuffle, fields, partial key, custom, none, ..), 1 for all and direct, and for global only its target, the
//! first. O(edges x workers).

use crate::snapshot::{ExecId, SlotId, Snapshot, TopoId};
use saetta_abi as abi;

/// What a pair costs that is only in the same cluster.
pub const FAR: f64 = 4.0;
/// In the same rack.
pub const SAME_RACK: f64 = 2.0;
/// On the same node.
pub const SAME_NODE: f64 = 1.0;

/// How much one pair of executors counts on an edge to a component of `n_targets` executors; `None` = only the first of them is a target.
pub fn pair_weight(grouping: u32, n_targets: u32) -> Option<f64> {
    match grouping {
        abi::GROUP_ALL | abi::GROUP_DIRECT => Some(1.0),
        abi::GROUP_GLOBAL => None,
        _ => Some(1.0 / f64::from(n_targets.max(1))),
    }
}

/// Executors of one component by worker, node and rack: (place, how many), ascending.
#[derive(Debug, Clone, Default)]
struct Spread {
    n: f64,
    by: [Vec<(u32, f64)>; 3],
}

impl Spread {
    fn of(places: impl Iterator<Item = Option<[u32; 3]>>) -> Self {
        let mut spread = Spread::default();
        for place in places {
            spread.n += 1.0;
            for (by, at) in spread.by.iter_mut().zip(place.into_iter().flatten()) {
                by.push((at, 1.0));
            }
        }
        for by in &mut spread.by {
            by.sort_unstable_by_key(|p| p.0);
            by.dedup_by(|b, a| {
                a.0 == b.0 && {
                    a.1 += b.1;
                    true
                }
            });
        }
        spread
    }
    /// Sum over all pairs.
    fn cost(&self, to: &Spread) -> f64 {
        let mut cost = FAR * self.n * to.n;
        // What being as near as this saves over being one step farther.
        for (i, saved) in [SAME_NODE, SAME_RACK - SAME_NODE, FAR - SAME_RACK].into_iter().enumerate() {
            cost -= saved * common(&self.by[i], &to.by[i]);
        }
        cost
    }
}

/// Pairs in one place: both lists ascend.
fn common(a: &[(u32, f64)], b: &[(u32, f64)]) -> f64 {
    let (mut i, mut j, mut sum) = (0, 0, 0.0);
    while i < a.len() && j < b.len() {
        match a[i].0.cmp(&b[j].0) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                sum += a[i].1 * b[j].1;
                (i, j) = (i + 1, j + 1);
            }
        }
    }
    sum
}

/// What one topology's placement costs. `slot_of` has a slot or [`abi::NONE`] for each executor of the snapshot, as a plan does.
pub fn cost_of(snapshot: &Snapshot<'_>, topology: TopoId, slot_of: &[u32]) -> f64 {
    cost_by(snapshot, topology, &|exec| SlotId::some(slot_of[exec.index()]))
}

/// The same for slots that are elsewhere, as in a [`Model`](crate::model::Model).
pub fn cost_by(snapshot: &Snapshot<'_>, topology: TopoId, slot_of: &dyn Fn(ExecId) -> Option<SlotId>) -> f64 {
    let row = snapshot.topologies().at(topology);
    let place = |exec: ExecId| {
        slot_of(exec).map(|slot| {
            let node = snapshot.slots().at(slot).node;
            let host = snapshot.nodes().get(node as usize).host;
            [slot.0, node, snapshot.hosts().get(host as usize).rack]
        })
    };
    let components: Vec<(u32, Spread)> =
        snapshot.components_of(&row).map(|(_, c)| (c.n_execs, Spread::of(snapshot.executors_in(&c).map(|(e, _)| place(e))))).collect();
    let mut cost = 0.0;
    for (id, c) in snapshot.components_of(&row) {
        for (_, edge) in snapshot.edges_from(id) {
            let to = edge.to - row.first_comp;
            let (from, (n_targets, target)) = (&components[(id.0 - row.first_comp) as usize].1, &components[to as usize]);
            debug_assert_eq!(c.topology, topology.0);
            cost += match pair_weight(edge.grouping, *n_targets) {
                Some(weight) => weight * from.cost(target),
                None => {
                    let to = snapshot.components().get(edge.to as usize);
                    from.cost(&Spread::of(snapshot.executors_in(&to).take(1).map(|(e, _)| place(e))))
                }
            };
        }
    }
    cost
}

/// What all topologies' placements cost.
pub fn cost(snapshot: &Snapshot<'_>, slot_of: &[u32]) -> f64 {
    (0..snapshot.topologies().len()).map(|t| cost_of(snapshot, TopoId(t as u32), slot_of)).sum()
}
