//! Which slots a topology's workers go to: near those it has and each other.
//!
//! Before: a board with its free slots. After: slots, none of them taken yet. Free slots with equal seats are looked at as one, so that it
//! costs O(nodes x slots chosen) and not O(free slots x slots chosen). Not here: who goes into which.

use crate::machines::{Machines, Seat};
use saetta_sdk::deal::Board;
use saetta_sdk::{NodeId, SlotId};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Bins a choice is begun with, where that is not too much work.
const STARTS_MAX: usize = 16;
/// Distances looked at for all beginnings together; one is made in any case.
const LOOKS_MAX: usize = 1 << 18;

/// What is wanted.
pub(crate) struct Wanted<'w> {
    /// Slots it has: those chosen are near them.
    pub(crate) anchors: &'w [SlotId],
    /// Slots that may be chosen besides the free ones.
    pub(crate) also: &'w [SlotId],
    /// So many slots.
    pub(crate) n: usize,
    /// On so many nodes at least, those of `anchors` counted, as far as there are such.
    pub(crate) nodes_min: usize,
}

/// Free slots with equal seats, in slot order.
struct Bin<'b> {
    seat: &'b Seat,
    is_grey: bool,
    slots: Cow<'b, [SlotId]>,
    /// Slots of all bins of its node.
    n_on_node: usize,
}

/// `n` slots. Where there are no anchors, a few beginnings are tried and the nearest together taken: a node with room for all
/// first, the smallest such.
pub(crate) fn choose(machines: &Machines, board: &Board<'_>, wanted: &Wanted<'_>) -> Vec<SlotId> {
    let bins = if wanted.n > 0 { bins(machines, board, wanted.also) } else { Vec::new() };
    if bins.is_empty() {
        return Vec::new();
    }
    let grow = |first: Option<usize>| grow(machines, board, &bins, wanted, first);
    if !wanted.anchors.is_empty() {
        return grow(None).chosen;
    }
    let mut firsts: Vec<usize> = (0..bins.len()).collect();
    firsts.sort_by_cached_key(|b| {
        let bin = &bins[*b];
        let fit = if bin.n_on_node >= wanted.n { (0, bin.n_on_node) } else { (1, usize::MAX - bin.n_on_node) };
        (bin.is_grey, fit, Reverse(bin.seat.power), board.key(bin.slots[0]))
    });
    firsts.truncate((LOOKS_MAX / (bins.len() * wanted.n)).clamp(1, STARTS_MAX));
    let grown = firsts.into_iter().map(|first| grow(Some(first)));
    grown.min_by_key(|g| (g.n_grey, g.apart)).map(|g| g.chosen).unwrap_or_default()
}

fn bins<'b>(machines: &'b Machines, board: &'b Board<'_>, also: &[SlotId]) -> Vec<Bin<'b>> {
    let mut also_on: BTreeMap<NodeId, Vec<SlotId>> = BTreeMap::new();
    also.iter().for_each(|slot| also_on.entry(board.node_of(*slot)).or_default().push(*slot));
    let mut bins: Vec<Bin<'b>> = Vec::new();
    for (node, _) in board.snapshot().nodes().with_ids() {
        let (free, first, is_grey) = (board.free_on(node), bins.len(), board.is_grey(node));
        match also_on.remove(&node) {
            None if free.is_empty() => {}
            None if machines.is_alike(node) => {
                bins.push(Bin { seat: machines.seat(free[0]), is_grey, slots: Cow::Borrowed(free), n_on_node: free.len() });
            }
            also => {
                let mut slots = also.unwrap_or_default();
                slots.extend(free);
                slots.sort_unstable_by_key(|slot| board.key(*slot));
                let n_on_node = slots.len();
                for slot in slots {
                    let seat = machines.seat(slot);
                    match bins[first..].iter_mut().find(|b| b.seat == seat) {
                        Some(bin) => bin.slots.to_mut().push(slot),
                        None => bins.push(Bin { seat, is_grey, slots: Cow::Owned(vec![slot]), n_on_node }),
                    }
                }
            }
        }
    }
    bins
}

#[derive(Default)]
struct Grown {
    chosen: Vec<SlotId>,
    /// Of each from all that were chosen before it.
    apart: i128,
    n_grey: usize,
}

/// What is left of a bin.
struct Left {
    /// From all there are.
    apart: i128,
    /// Slots taken.
    n: usize,
    /// Place in slot order of the next.
    key: (u32, u32),
}

/// One after the other the slot nearest to all there are, the first one of the bin `first`.
fn grow(machines: &Machines, board: &Board<'_>, bins: &[Bin<'_>], wanted: &Wanted<'_>, first: Option<usize>) -> Grown {
    let to_anchors = |bin: &Bin<'_>| wanted.anchors.iter().map(|a| machines.apart(machines.seat(*a), bin.seat)).sum();
    let mut left: Vec<Left> = bins.iter().map(|b| Left { apart: to_anchors(b), n: 0, key: board.key(b.slots[0]) }).collect();
    let mut nodes: BTreeSet<NodeId> = wanted.anchors.iter().map(|a| board.node_of(*a)).collect();
    let mut grown = Grown::default();
    while grown.chosen.len() < wanted.n {
        let must_spread = wanted.nodes_min.saturating_sub(nodes.len()) >= wanted.n - grown.chosen.len();
        let is_old = |bin: &Bin<'_>| must_spread && nodes.contains(&bin.seat.node);
        let has_some = |b: &usize| left[*b].n < bins[*b].slots.len();
        let rank = |b: &usize| (is_old(&bins[*b]), bins[*b].is_grey, left[*b].apart, Reverse(bins[*b].seat.power), left[*b].key);
        let nearest = || (0..bins.len()).filter(has_some).min_by_key(rank);
        let Some(best) = first.filter(|_| grown.chosen.is_empty()).or_else(nearest) else { break };
        let bin = &bins[best];
        grown.chosen.push(bin.slots[left[best].n]);
        grown.apart += left[best].apart;
        grown.n_grey += usize::from(bin.is_grey);
        nodes.insert(bin.seat.node);
        left[best].n += 1;
        if let Some(next) = bin.slots.get(left[best].n) {
            left[best].key = board.key(*next);
        }
        left.iter_mut().zip(bins).for_each(|(left, other)| left.apart += machines.apart(bin.seat, other.seat));
    }
    grown
}
