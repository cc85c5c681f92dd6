//! The core of each executor in one worker: those that talk most near each other, none beside another on one physical core while a whole
//! one is free, isolated cores first.
//!
//! Before: the worker's slot and its executors are decided. After: a core for each. What has a core there keeps it while that is not much
//! dearer than a fresh start. Ackers take no room: they go to the cores of the worker's spouts. Not here: what the worker does when the plan
//! names no core.

use crate::layout::{Layout, Places};
use crate::machines::Machines;
use crate::traffic::Traffic;
use saetta_sdk::{CoreId, NodeId, Snapshot, abi};
use std::collections::BTreeMap;

/// An executor of the worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    pub(crate) group: usize,
    /// A spout: ackers go to its core.
    pub(crate) is_spout: bool,
    /// Core it has in this worker.
    pub(crate) core: Option<CoreId>,
}

/// The cores to use for `n` executors, in order of preference: no second thread of a physical core before all the first ones, isolated ones
/// first, those of the largest cache first.
pub(crate) fn preferred(snapshot: &Snapshot<'_>, mut cores: Vec<CoreId>, n: usize) -> Vec<CoreId> {
    let row = |c: CoreId| snapshot.cores().at(c);
    let is_shared = |c: CoreId| row(c).flags & abi::CORE_ISOLATED == 0;
    cores.sort_by_key(|c| (is_shared(*c), *c));
    let mut by_l3: BTreeMap<u32, usize> = BTreeMap::new();
    let seconds: Vec<CoreId> =
        cores.iter().enumerate().filter(|(i, c)| cores[..*i].iter().any(|first| row(**c).sibling == first.0)).map(|(_, c)| *c).collect();
    for core in cores.iter().filter(|c| !seconds.contains(c)) {
        *by_l3.entry(row(*core).l3).or_default() += 1;
    }
    let size = |c: CoreId| by_l3.get(&row(c).l3).copied().unwrap_or(0);
    cores.sort_by_key(|c| (seconds.contains(c), is_shared(*c), std::cmp::Reverse(size(*c)), row(*c).l3, *c));
    cores.truncate(n);
    cores
}

/// A core for each member, in their order.
pub(crate) fn assign(
    snapshot: &Snapshot<'_>,
    machines: &Machines,
    traffic: &Traffic,
    cores: Vec<CoreId>,
    members: &[Member],
    gain_pct: i128,
) -> Vec<CoreId> {
    let busy: Vec<&Member> = members.iter().filter(|m| !traffic.is_acker[m.group]).collect();
    let n_used = if busy.is_empty() { members.len() } else { busy.len() };
    let cores = preferred(snapshot, cores, n_used);
    let n_cores = cores.len();
    let distance = cores.iter().flat_map(|a| cores.iter().map(|b| machines.between_cores(snapshot, *a, *b))).collect();
    let places = Places { distance, node: cores.iter().map(|c| NodeId(snapshot.cores().at(*c).node)).collect(), n_open: n_cores };
    let room = vec![busy.len().div_ceil(n_cores) as u32; n_cores];
    let place = |m: &Member| m.core.and_then(|core| cores.iter().position(|c| *c == core));

    let never = || false;
    let start = |keep: bool, in_bunches: bool| {
        let mut layout = Layout::new(&traffic.weights, &places, None, room.clone());
        let mut todo = vec![0; traffic.weights.n_groups()];
        for m in &busy {
            match place(m).filter(|_| keep) {
                Some(p) => layout.add(m.group, p, 1),
                None => todo[m.group] += 1,
            }
        }
        layout.fix_all();
        if in_bunches {
            layout.bunches(todo)
        } else {
            layout.greedy(todo)
        }
        layout.repair();
        layout.improve(&never);
        layout
    };
    let (kept, one_by_one, in_bunches) = (start(true, false), start(false, false), start(false, true));
    let fresh = if in_bunches.cost() < one_by_one.cost() { in_bunches } else { one_by_one };
    // Where nothing has a core yet there is nothing to keep.
    let kept = if busy.iter().any(|m| place(m).is_some()) { kept } else { fresh.clone() };
    let layout = if fresh.cost() * 100 < kept.cost() * (100 - gain_pct) { fresh } else { kept };

    // Who of a group: those that are there already, then in order.
    let mut left: Vec<Vec<u32>> = (0..layout.n_groups()).map(|g| (0..n_cores).map(|p| layout.count(g, p)).collect()).collect();
    let mut at: Vec<Option<usize>> = vec![None; members.len()];
    for stays in [true, false] {
        for (i, m) in members.iter().enumerate().filter(|(_, m)| !traffic.is_acker[m.group]) {
            let seats = &mut left[m.group];
            let to = if stays { place(m).filter(|p| seats[*p] > 0) } else { seats.iter().position(|n| *n > 0) };
            if let Some(p) = to.filter(|_| at[i].is_none()) {
                seats[p] -= 1;
                at[i] = Some(p);
            }
        }
    }
    let spouts: Vec<usize> = members.iter().zip(&at).filter(|(m, _)| m.is_spout).filter_map(|(_, p)| *p).collect();
    let mut n_ackers = 0;
    let seat = |p: Option<usize>| {
        p.unwrap_or_else(|| {
            n_ackers += 1;
            if spouts.is_empty() { (n_ackers - 1) % n_cores } else { spouts[(n_ackers - 1) % spouts.len()] }
        })
    };
    at.into_iter().map(seat).map(|p| cores[p]).collect()
}
