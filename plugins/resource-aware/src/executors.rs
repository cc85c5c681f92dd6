//! In which order the executors of a topology are placed: what talks much to each other comes next to each other.
//!
//! Before: the executors without a slot. After: `search` places them in this order. Ackers come last, unless a new worker takes them along.
//! Executors of one component are alike and come by first task. Pure.

use saetta_sdk::model::max_colocation;
use saetta_sdk::{CompId, ExecId, Snapshot, TopoId, abi};
use std::collections::{BTreeMap, VecDeque};

/// How to order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// By connections between components: one executor of the most connected one, one of each neighbour, and again.
    Connections,
    /// By the graph: after an executor those that it feeds.
    Proximity,
    /// The components with the hardest constraints first.
    Severity,
}

/// What is placed of one topology.
#[derive(Debug, Clone, Default)]
pub struct Work {
    /// In the order of placing.
    pub executors: Vec<ExecId>,
    /// Ackers, which come last.
    pub ackers: VecDeque<ExecId>,
    /// The topology has a cycle: proximity does not cover it all.
    pub has_cycle: bool,
}

/// One component while the order is made.
struct Part {
    id: CompId,
    row: abi::ComponentRow,
    waiting: VecDeque<ExecId>,
    /// Components it feeds or is fed by, in the order of the table.
    near: Vec<usize>,
    /// Components it feeds: (all edges to it are shuffle, component), in the order of the table.
    feeds: Vec<(bool, usize)>,
    n_fed_by: usize,
}

/// Orders the executors for which `waits` holds.
pub fn sort(snapshot: &Snapshot<'_>, topology: TopoId, by: By, waits: &dyn Fn(ExecId) -> bool) -> Work {
    let row = snapshot.topologies().at(topology);
    let mut parts: Vec<Part> = snapshot
        .components_of(&row)
        .map(|(id, row)| {
            let waiting = snapshot.executors_in(&row).map(|(e, _)| e).filter(|e| waits(*e)).collect();
            Part { id, row, waiting, near: Vec::new(), feeds: Vec::new(), n_fed_by: 0 }
        })
        .collect();
    let mut work = Work::default();
    for part in parts.iter_mut().filter(|p| p.row.kind == abi::KIND_ACKER) {
        work.ackers.append(&mut part.waiting);
    }
    connect(snapshot, &row, &mut parts);
    match by {
        By::Connections => connections(&mut parts, &mut work),
        By::Proximity => proximity(&mut parts, &mut work),
        By::Severity => severity(snapshot, &mut parts, &mut work),
    }
    // Saetta's own components, which no stream of the user's reaches.
    for part in &mut parts {
        work.executors.extend(part.waiting.drain(..));
    }
    work
}

fn is_users(row: &abi::ComponentRow) -> bool {
    row.kind == abi::KIND_SPOUT || row.kind == abi::KIND_BOLT
}

fn connect(snapshot: &Snapshot<'_>, row: &abi::TopologyRow, parts: &mut [Part]) {
    for from in 0..parts.len() {
        let mut feeds: BTreeMap<usize, bool> = BTreeMap::new();
        for (_, edge) in snapshot.edges_from(parts[from].id) {
            let to = (edge.to - row.first_comp) as usize;
            if is_users(&parts[from].row) && is_users(&parts[to].row) {
                let shuffled = matches!(edge.grouping, abi::GROUP_SHUFFLE | abi::GROUP_LOCAL_OR_SHUFFLE);
                *feeds.entry(to).or_insert(true) &= shuffled;
            }
        }
        for (to, shuffled) in feeds {
            parts[from].feeds.push((shuffled, to));
            parts[from].near.push(to);
            parts[to].near.push(from);
            parts[to].n_fed_by += 1;
        }
    }
    for part in parts {
        part.near.sort_unstable();
        part.near.dedup();
    }
}

fn connections(parts: &mut [Part], work: &mut Work) {
    let n = |part: &Part| u64::from(part.row.n_execs);
    let weight = |i: usize| parts[i].near.iter().map(|j| n(&parts[*j]) * n(&parts[i])).sum::<u64>();
    let mut order: Vec<usize> = (0..parts.len()).filter(|i| is_users(&parts[*i].row)).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(weight(*i)), *i));
    for i in order {
        let mut near = parts[i].near.clone();
        near.sort_by_key(|j| (parts[*j].row.n_execs, *j));
        loop {
            let before = work.executors.len();
            work.executors.extend(parts[i].waiting.pop_front());
            for j in &near {
                work.executors.extend(parts[*j].waiting.pop_front());
            }
            if work.executors.len() == before {
                break;
            }
        }
    }
}

fn proximity(parts: &mut [Part], work: &mut Work) {
    // Topological order, ties in the order of the table; what is in a cycle comes after it.
    let mut open: Vec<usize> = parts.iter().map(|p| p.n_fed_by).collect();
    let mut order: Vec<usize> = Vec::new();
    let mut ready: VecDeque<usize> = (0..parts.len()).filter(|i| is_users(&parts[*i].row) && open[*i] == 0).collect();
    while let Some(i) = ready.pop_front() {
        order.push(i);
        for (_, to) in &parts[i].feeds {
            open[*to] -= 1;
            if open[*to] == 0 {
                ready.push_back(*to);
            }
        }
    }
    let in_cycle: Vec<usize> = (0..parts.len()).filter(|i| is_users(&parts[*i].row) && !order.contains(i)).collect();
    work.has_cycle = !in_cycle.is_empty();
    order.extend(in_cycle);
    for part in parts.iter_mut() {
        // What needs its source beside it first, then the rest, both by name.
        part.feeds.sort_unstable();
    }
    for i in order {
        while !parts[i].waiting.is_empty() {
            take(parts, i, &mut work.executors);
        }
    }
}

/// One executor of component `i`, then of what it feeds; each component once on the way, so that a cycle ends. A stack of its own: a deep
/// graph costs no thread's stack.
fn take(parts: &mut [Part], i: usize, out: &mut Vec<ExecId>) {
    /// Component, next of its children, how often that one is still to be taken.
    struct At(usize, usize, usize);
    let mut stack: Vec<At> = Vec::new();
    let mut enter = |parts: &mut [Part], stack: &mut Vec<At>, i: usize| {
        if let Some(exec) = parts[i].waiting.pop_front() {
            out.push(exec);
            stack.push(At(i, 0, usize::MAX));
        }
    };
    enter(parts, &mut stack, i);
    while let Some(At(i, child, left)) = stack.last_mut() {
        let Some((shuffled, to)) = parts[*i].feeds.get(*child).copied() else {
            stack.pop();
            continue;
        };
        if *left == usize::MAX {
            // Its share of the children, itself counted among those still waiting.
            let share = parts[to].waiting.len() / (parts[*i].waiting.len() + 1);
            *left = if shuffled { share.max(1) } else { 1 };
        }
        if *left == 0 {
            (*child, *left) = (*child + 1, usize::MAX);
            continue;
        }
        *left -= 1;
        enter(parts, &mut stack, to);
    }
}

fn severity(snapshot: &Snapshot<'_>, parts: &mut [Part], work: &mut Work) {
    let n_comps = parts.iter().filter(|p| is_users(&p.row)).count() as u32;
    let severity = |p: &Part| {
        let apart = snapshot.incompatible_with(p.id).len() as u32;
        apart + n_comps.checked_div(max_colocation(&p.row)).unwrap_or(0)
    };
    let mut order: Vec<usize> = (0..parts.len()).filter(|i| is_users(&parts[*i].row)).collect();
    // Ties by name descending, as Storm has it.
    order.sort_by_key(|i| std::cmp::Reverse((severity(&parts[*i]), *i)));
    for i in order {
        work.executors.extend(parts[i].waiting.drain(..));
    }
}
