//! Which hosts an isolated topology gets, and which of their slots.
//!
//! Before: a board, a topology of it and a number of machines. After: the topology is dealt over slots of its hosts, and these are
//! reserved. Hosts where it is alone are kept, first those that hold as many workers as a host should; then come the largest others, as in
//! Storm: slots, then free slots, then name; hosts that are used last at the end.

use saetta_sdk::deal::{Board, interleave};
use saetta_sdk::{HostId, NodeId, SlotId, TopoId};
use std::cmp::Reverse;

/// What may be done for an isolated topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Others leave hosts it takes.
    Evict,
    /// Only hosts where nobody else is.
    Empty,
    /// The same, and what runs stays where it is.
    Stay,
}

/// A host as one topology sees it.
struct Host<'a> {
    id: HostId,
    name: &'a str,
    /// Slots that executors may be placed in.
    open: Vec<SlotId>,
    n_free: usize,
    /// Those of `open` that are its own.
    n_own: usize,
    /// Its executors in them.
    n_execs: usize,
    /// Shares that others have here, with their slots.
    others: Vec<(usize, SlotId)>,
    /// Somebody is here who cannot be moved.
    is_fixed: bool,
    is_grey: bool,
    /// Slots chosen; grows while hosts are chosen.
    chosen: Vec<SlotId>,
}

/// Keeps hosts where an isolated topology is alone for it, although the round does not ask about it.
pub(crate) fn stand_in(board: &mut Board<'_>, topology: TopoId) {
    let snapshot = board.snapshot();
    for (_, row) in snapshot.hosts().with_ids() {
        let nodes: Vec<NodeId> = snapshot.nodes_of(&row).map(|(id, _)| id).collect();
        let slots = snapshot.nodes_of(&row).flat_map(|(_, node)| snapshot.slots_of(&node));
        let holders: Vec<TopoId> = slots.filter_map(|(slot, _)| board.holder(slot)).collect();
        if !holders.is_empty() && holders.iter().all(|h| *h == topology) {
            nodes.into_iter().for_each(|node| board.reserve(node));
        }
    }
}

/// Gives a share its machines and reserves them.
pub(crate) fn give_machines(board: &mut Board<'_>, share: usize, machines: usize, way: Way) {
    let stay = way == Way::Stay;
    let state = &board.shares()[share];
    let n_workers = state.workers().min(state.n_execs as usize);
    let machines = machines.min(n_workers);
    let mut hosts = see(board, share);
    // Workers of each machine, larger ones first. Taken from the front.
    let mut amounts: Vec<usize> = (0..machines).map(|m| n_workers / machines + usize::from(m < n_workers % machines)).collect();
    let mut taken: Vec<usize> = Vec::new();

    // Hosts it keeps: where it is alone, fullest first; when nothing moves, all where it is.
    let mut kept: Vec<usize> = (0..hosts.len()).filter(|h| hosts[*h].n_own > 0 && (stay || hosts[*h].is_alone())).collect();
    kept.sort_by_key(|h| (Reverse(hosts[*h].n_execs), hosts[*h].name, hosts[*h].id));
    for exact in [true, false] {
        kept.retain(|h| {
            let own = hosts[*h].n_own;
            let at = if exact { amounts.iter().position(|a| *a == own) } else { (!amounts.is_empty()).then_some(0) };
            at.inspect(|at| {
                let amount = amounts.remove(*at);
                hosts[*h].choose(board, share, if stay { amount.max(own) } else { amount }, stay);
                taken.push(*h);
            });
            at.is_none()
        });
    }
    if stay {
        for h in kept {
            let own = hosts[h].n_own;
            hosts[h].choose(board, share, own, stay);
            taken.push(h);
        }
    }

    // Hosts it gets besides.
    let mut others: Vec<usize> = (0..hosts.len()).filter(|h| !taken.contains(h) && hosts[*h].may_be_taken(way)).collect();
    others.sort_by_key(|h| {
        let host = &hosts[*h];
        (host.is_grey, Reverse(host.open.len()), Reverse(host.n_free + host.n_own), host.name, host.id)
    });
    let mut others = others.into_iter();
    while !amounts.is_empty()
        && let Some(h) = others.next()
    {
        hosts[h].choose(board, share, amounts.remove(0), stay);
        taken.push(h);
    }
    // Machines are short, or too small: the ones there are take more workers, its own slots first.
    let chosen = |hosts: &[Host<'_>]| taken.iter().map(|h| hosts[*h].chosen.len()).sum::<usize>();
    while chosen(&hosts) < n_workers
        && let Some(h) = (taken.iter().filter(|h| hosts[**h].has_room(stay)))
            .min_by_key(|h| (hosts[**h].chosen.len() >= hosts[**h].n_own, hosts[**h].chosen.len()))
    {
        let n = hosts[*h].chosen.len() + 1;
        hosts[*h].choose(board, share, n, stay);
    }

    if taken.is_empty() {
        // No machine at all: what runs stays and takes the rest in; else it waits.
        return board.deal_over(share, &[], 0, true);
    }
    for h in &taken {
        if !stay {
            hosts[*h].others.iter().for_each(|(other, slot)| board.evict(*other, *slot));
        }
    }
    let own: Vec<SlotId> = board.shares()[share].own.iter().map(|o| o.slot).collect();
    let slots: Vec<SlotId> = taken.iter().flat_map(|h| hosts[*h].chosen.iter().copied()).collect();
    if !stay {
        own.iter().filter(|slot| !slots.contains(slot)).for_each(|slot| board.evict(share, *slot));
    }
    let mut new: Vec<SlotId> = slots.iter().filter(|slot| !own.contains(slot)).copied().collect();
    new.sort_by_key(|slot| board.key(*slot));
    let by_node = new.chunk_by(|a, b| board.node_of(*a) == board.node_of(*b)).map(|slots| (board.key(slots[0]).0, slots));
    let new = interleave(by_node, new.len());
    board.deal_over(share, &new, if stay { n_workers.max(own.len()) } else { slots.len() }, stay);
    for h in taken {
        if !stay || hosts[h].is_alone() {
            let row = board.snapshot().hosts().at(hosts[h].id);
            let nodes: Vec<NodeId> = board.snapshot().nodes_of(&row).map(|(id, _)| id).collect();
            nodes.into_iter().for_each(|node| board.reserve(node));
        }
    }
}

/// Hosts with slots that executors may be placed in.
fn see<'a>(board: &Board<'a>, share: usize) -> Vec<Host<'a>> {
    let snapshot = board.snapshot();
    let topology = board.shares()[share].topology;
    let mut hosts = Vec::new();
    for (id, row) in snapshot.hosts().with_ids() {
        let mut host = Host {
            id,
            name: snapshot.text(row.name),
            open: Vec::new(),
            n_free: 0,
            n_own: 0,
            n_execs: 0,
            others: Vec::new(),
            is_fixed: false,
            is_grey: false,
            chosen: Vec::new(),
        };
        for (node, row) in snapshot.nodes_of(&row) {
            host.is_grey |= board.is_grey(node);
            for (slot, _) in snapshot.slots_of(&row) {
                let open = board.is_open(slot);
                if open {
                    host.open.push(slot);
                }
                match board.holder(slot) {
                    None => host.n_free += usize::from(open),
                    Some(holder) if holder == topology => host.n_own += usize::from(open),
                    Some(holder) => match board.share_of(holder) {
                        Some(other) if open => host.others.push((other, slot)),
                        _ => host.is_fixed = true,
                    },
                }
            }
        }
        if !host.open.is_empty() {
            hosts.push(host);
        }
    }
    for own in &board.shares()[share].own {
        let of = snapshot.nodes().at(board.node_of(own.slot)).host;
        hosts.iter_mut().filter(|h| h.id.0 == of).for_each(|h| h.n_execs += own.executors.len());
    }
    hosts
}

impl Host<'_> {
    fn is_alone(&self) -> bool {
        self.others.is_empty() && !self.is_fixed
    }

    fn may_be_taken(&self, way: Way) -> bool {
        !self.is_fixed && (way == Way::Evict || self.others.is_empty())
    }

    /// When nothing moves, what others hold is no room.
    fn has_room(&self, stay: bool) -> bool {
        self.chosen.len() < if stay { self.n_free + self.n_own } else { self.open.len() }
    }

    /// Its best slots, as many as there are: own ones, free ones, those of others unless nothing moves; each in slot order.
    fn choose(&mut self, board: &Board<'_>, share: usize, n: usize, stay: bool) {
        let topology = board.shares()[share].topology;
        let mut slots = self.open.clone();
        slots.sort_by_key(|slot| {
            let rank = match board.holder(*slot) {
                Some(holder) if holder == topology => 0,
                None => 1,
                Some(_) => 2,
            };
            (rank, board.key(*slot))
        });
        slots.truncate(n.min(if stay { self.n_free + self.n_own } else { slots.len() }));
        self.chosen = slots;
    }
}
