//! Equal shares with fewest moves: what `even` is, and what other schedulers deal the rest with.
//!
//! Before: a scheduler has a round. After: a plan. The deal itself - which slots, how many executors in each, who stays - is pure arithmetic
//! over indices and stands here; [`Board`] keeps the slots of a round, [`Idle`] moves workers to nodes that run nothing. Not here: resources.
//!
//! Why this moves fewest. Let f = E div S and r = E mod S. A deal gives r slots f + 1 and the others f. A slot holding c of
//! the topology's executors can keep min(c, f), and one more if c > f and it is one of the r. Both grow with c, so keeping the
//! fullest own slots is never worse than keeping others (exchange two slots: the sum does not fall), and so is giving the
//! places with f + 1 to slots that hold more than f. A new slot keeps nothing, so no own slot is given up for one. The number
//! kept is then the largest possible, whichever executors of an overfull slot leave; `tests/deal.rs` compares with a
//! search over all deals.

mod board;
mod commit;
mod idle;

pub use board::{Board, Share};
pub use idle::Idle;

use crate::{ExecId, SlotId};
use std::cmp::Reverse;

/// An own slot that may take more, with what runs in it by first task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// Where.
    pub slot: SlotId,
    /// Never empty.
    pub executors: Vec<ExecId>,
}

/// A deal for one topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deal {
    /// Slot of every executor that has one, ascending by executor.
    pub places: Vec<(ExecId, SlotId)>,
    /// Executors that ran somewhere else, or run no more.
    pub n_moves: u32,
}

/// Free slots in interleaved order, the first `n_max`: nodes by number of free slots, most first, ties by node order; then one of each node
/// in turn, ports ascending. `free` gives a node's place in the order of nodes and its free slots by port. O(nodes + taken log taken).
pub fn interleave<'s>(free: impl IntoIterator<Item = (u32, &'s [SlotId])>, n_max: usize) -> Vec<SlotId> {
    let mut nodes: Vec<(Reverse<usize>, u32, &[SlotId])> =
        free.into_iter().map(|(rank, slots)| (Reverse(slots.len()), rank, slots)).collect();
    // The first turn takes one slot of each node, so nodes beyond the first `n_max` give none.
    if n_max == 0 {
        return Vec::new();
    }
    if nodes.len() > n_max {
        nodes.select_nth_unstable(n_max - 1);
        nodes.truncate(n_max);
    }
    nodes.sort_unstable();
    let turns = nodes.first().map_or(0, |n| n.2.len());
    (0..turns).flat_map(|i| nodes.iter().filter_map(move |n| n.2.get(i).copied())).take(n_max).collect()
}

/// Deals the executors of `own` (slots in slot order) and `unplaced` (by first task) over at most `workers` slots, new ones
/// from the front of `new`. With `stay`, nothing that runs moves: only `unplaced` is dealt, as evenly as that allows.
pub fn deal(own: &[Own], unplaced: &[ExecId], new: &[SlotId], workers: usize, stay: bool) -> Deal {
    let n_execs = own.iter().map(|o| o.executors.len()).sum::<usize>() + unplaced.len();
    // A topology with fewer executors than workers uses a slot for each executor.
    let n_slots = workers.min(new.len() + own.len()).min(n_execs);
    if n_slots == 0 && !stay {
        return Deal { places: Vec::new(), n_moves: (n_execs - unplaced.len()) as u32 };
    }

    // Which own slots: the fullest, ties by slot order; then in slot order again.
    let mut kept: Vec<usize> = (0..own.len()).collect();
    if !stay {
        kept.sort_by(|a, b| own[*b].executors.len().cmp(&own[*a].executors.len()).then(a.cmp(b)));
        kept.truncate(n_slots);
        kept.sort_unstable();
    }
    let n_new = n_slots.saturating_sub(kept.len());

    // Who stays: at most f in each slot, f + 1 in the first `more` that hold more than f.
    let (floor, mut more) = n_execs.checked_div(n_slots).map_or((0, 0), |f| (f, n_execs % n_slots));
    let mut slots: Vec<(SlotId, usize)> = Vec::with_capacity(n_slots);
    let mut places: Vec<(ExecId, SlotId)> = Vec::with_capacity(n_execs);
    let mut loose: Vec<ExecId> = unplaced.to_vec();
    let mut n_moves = 0;
    for i in &kept {
        let Own { slot, executors } = &own[*i];
        let held = executors.len();
        let stays = match held {
            _ if stay => held,
            held if held > floor && more > 0 => {
                more -= 1;
                floor + 1
            }
            held => held.min(floor),
        };
        for (at, exec) in executors.iter().enumerate() {
            // Those that stay are spread over the slot's executors, so that what leaves is a mix of components too.
            if is_kept(at, stays, held) {
                places.push((*exec, *slot));
            } else {
                loose.push(*exec);
                n_moves += 1;
            }
        }
        slots.push((*slot, stays));
    }
    for (i, o) in own.iter().enumerate() {
        if kept.binary_search(&i).is_err() {
            n_moves += o.executors.len() as u32;
            loose.extend(&o.executors);
        }
    }
    slots.extend(new.iter().take(n_new).map(|slot| (*slot, 0)));

    // The rest by first task, each to the slot with fewest, ties by slot order.
    loose.sort_unstable();
    if !slots.is_empty() {
        for exec in loose {
            let (slot, n) = slots.iter_mut().min_by_key(|(_, n)| *n).expect("not empty");
            *n += 1;
            places.push((exec, *slot));
        }
    }
    places.sort_unstable();
    Deal { places, n_moves }
}

/// True for `stays` of the indices `0..held`, spread evenly, the first among them.
fn is_kept(at: usize, stays: usize, held: usize) -> bool {
    (at * stays) % held < stays
}
