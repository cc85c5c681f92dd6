//! How far apart slots and cores are.
//!
//! Before: a round's snapshot and the configured distances. After: a number for each two slots, and for each two cores of a node.

use saetta_sdk::{CoreId, NodeId, SlotId, Snapshot, abi};
use std::collections::{BTreeMap, BTreeSet};

/// Slots a choice of slots is begun with, where that is not too much work.
const STARTS_MAX: usize = 16;
/// Distances looked at for all beginnings together; one is made in any case.
const LOOKS_MAX: usize = 1 << 18;

/// What it costs to be apart, by the nearest thing that is shared. Each is at least the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Distances {
    /// Other cores of one last-level cache.
    pub(crate) l3: i128,
    /// Other caches of one NUMA node.
    pub(crate) numa: i128,
    /// Other NUMA nodes of one host.
    pub(crate) host: i128,
    /// Other hosts of one rack.
    pub(crate) rack: i128,
    /// Other racks.
    pub(crate) far: i128,
}

/// Where a slot is.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    /// Its node.
    pub(crate) node: NodeId,
    /// Executors may be placed there.
    pub(crate) open: bool,
    /// Used last.
    pub(crate) grey: bool,
    /// Thousandths of a core it has to itself.
    pub(crate) power: u32,
    /// Place among slots by node id, then port.
    pub(crate) rank: u32,
    host: u32,
    rack: u32,
    /// The cache its cores share, if they share one; the NUMA node likewise.
    l3: Option<u32>,
    numa: Option<u32>,
}

/// All slots.
pub(crate) struct Machines {
    distances: Distances,
    /// By slot.
    pub(crate) seats: Vec<Seat>,
}

impl Machines {
    /// Reads the slots and their cores.
    pub(crate) fn new(snapshot: &Snapshot<'_>, distances: Distances) -> Self {
        let closed = abi::NODE_GONE | abi::NODE_BLACKLISTED | abi::NODE_RESERVED;
        let only = |of: BTreeSet<u32>| of.first().copied().filter(|_| of.len() == 1);
        let seat = |(id, slot): (SlotId, abi::SlotRow)| {
            let node = snapshot.nodes().get(slot.node as usize);
            let host = snapshot.hosts().get(node.host as usize);
            let cores: Vec<abi::CoreRow> = snapshot.cores_of(id).map(|c| snapshot.cores().at(c)).collect();
            Seat {
                node: NodeId(slot.node),
                open: slot.flags & abi::SLOT_ASSIGNABLE != 0 && node.flags & closed == 0 && host.flags & abi::HOST_BLACKLISTED == 0,
                grey: node.flags & abi::NODE_GREYLISTED != 0,
                power: slot.n_cores.saturating_mul(1000) / slot.share.max(1),
                rank: 0,
                host: node.host,
                rack: host.rack,
                l3: only(cores.iter().map(|c| c.l3).collect()),
                numa: only(cores.iter().map(|c| c.numa).collect()),
            }
        };
        let mut seats: Vec<Seat> = snapshot.slots().with_ids().map(seat).collect();
        let slots = snapshot.slots();
        let mut order: Vec<u32> = (0..seats.len() as u32).collect();
        order.sort_by_key(|s| {
            let row = slots.get(*s as usize);
            (snapshot.text(snapshot.nodes().get(row.node as usize).id), row.port, *s)
        });
        for (rank, slot) in order.into_iter().enumerate() {
            seats[slot as usize].rank = rank as u32;
        }
        Machines { distances, seats }
    }

    /// Where a slot is.
    pub(crate) fn seat(&self, slot: SlotId) -> &Seat {
        &self.seats[slot.index()]
    }

    /// Between workers in two slots.
    pub(crate) fn between(&self, a: SlotId, b: SlotId) -> i128 {
        let (x, y, d) = (self.seat(a), self.seat(b), &self.distances);
        match () {
            () if a == b => 0,
            () if x.rack != y.rack => d.far,
            () if x.host != y.host => d.rack,
            // Nodes of one host number their cores each for itself.
            () if x.node != y.node => d.host,
            () if x.l3.is_some() && x.l3 == y.l3 => d.l3,
            () if x.numa.is_some() && x.numa == y.numa => d.numa,
            () => d.host,
        }
    }

    /// Between two cores of one node.
    pub(crate) fn between_cores(&self, snapshot: &Snapshot<'_>, a: CoreId, b: CoreId) -> i128 {
        let (x, y, d) = (snapshot.cores().at(a), snapshot.cores().at(b), &self.distances);
        match () {
            () if a == b => 0,
            () if x.l3 == y.l3 => d.l3,
            () if x.numa == y.numa => d.numa,
            () => d.host,
        }
    }

    /// All distances between slots, row by row.
    pub(crate) fn matrix(&self, slots: &[SlotId]) -> Vec<i128> {
        slots.iter().flat_map(|a| slots.iter().map(move |b| self.between(*a, *b))).collect()
    }

    /// `n` of the slots in `free`, near those in `own` and each other. Where there is nothing yet, a few beginnings are tried and the
    /// nearest together taken: a node with room for all first, the smallest such.
    pub(crate) fn choose(&self, own: &[SlotId], free: &[SlotId], n: usize) -> Vec<SlotId> {
        if n == 0 || free.is_empty() {
            return Vec::new();
        }
        if !own.is_empty() {
            return self.grow(own, free, n).0;
        }
        // The first slot of each cache, and how many slots are free on its node.
        let mut on_node: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut firsts: BTreeMap<(NodeId, Option<u32>), SlotId> = BTreeMap::new();
        for slot in free {
            let seat = self.seat(*slot);
            *on_node.entry(seat.node).or_default() += 1;
            firsts.entry((seat.node, seat.l3)).or_insert(*slot);
        }
        let mut firsts: Vec<SlotId> = firsts.into_values().collect();
        firsts.sort_by_key(|first| {
            let seat = self.seat(*first);
            let count = on_node[&seat.node];
            let fit = if count >= n { (0, count) } else { (1, usize::MAX - count) };
            (seat.grey, fit, std::cmp::Reverse(seat.power), seat.rank)
        });
        let n_starts = (LOOKS_MAX / (free.len() * n)).clamp(1, STARTS_MAX);
        let starts = firsts.iter().take(n_starts).map(|first| {
            let rest: Vec<SlotId> = free.iter().copied().filter(|s| s != first).collect();
            let (mut chosen, apart) = self.grow(&[*first], &rest, n - 1);
            chosen.insert(0, *first);
            let n_grey = chosen.iter().filter(|s| self.seat(**s).grey).count();
            (n_grey, apart, chosen)
        });
        starts.enumerate().min_by_key(|(i, (n_grey, apart, _))| (*n_grey, *apart, *i)).map(|(_, s)| s.2).unwrap_or_default()
    }

    /// One after the other the free slot nearest to all there are; and how far apart those taken are from all before them.
    fn grow(&self, own: &[SlotId], free: &[SlotId], n: usize) -> (Vec<SlotId>, i128) {
        let mut left: Vec<(i128, SlotId)> = free.iter().map(|f| (own.iter().map(|o| self.between(*o, *f)).sum(), *f)).collect();
        let (mut chosen, mut sum) = (Vec::with_capacity(n), 0);
        while chosen.len() < n {
            let key = |(apart, slot): &(i128, SlotId)| {
                let seat = self.seat(*slot);
                (seat.grey, *apart, std::cmp::Reverse(seat.power), seat.rank)
            };
            let Some(best) = (0..left.len()).min_by_key(|i| key(&left[*i])) else { break };
            let (apart, slot) = left.swap_remove(best);
            sum += apart;
            chosen.push(slot);
            left.iter_mut().for_each(|(apart, other)| *apart += self.between(slot, *other));
        }
        (chosen, sum)
    }
}
