//! How far apart slots and cores are.
//!
//! Before: a round's snapshot and the configured distances. After: a number for each two slots, and for each two cores of a node. Not here:
//! which slots are taken (`choose.rs`).

use saetta_sdk::{CoreId, NodeId, SlotId, Snapshot, abi};
use std::collections::BTreeSet;

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

/// Where a slot is. Slots with equal seats are equally far from everything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) node: NodeId,
    /// Thousandths of a core it has to itself.
    pub(crate) power: u32,
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
    seats: Vec<Seat>,
    /// By node: its slots have equal seats.
    alike: Vec<bool>,
}

impl Machines {
    /// Reads the slots and their cores.
    pub(crate) fn new(snapshot: &Snapshot<'_>, distances: Distances) -> Self {
        let only = |of: BTreeSet<u32>| of.first().copied().filter(|_| of.len() == 1);
        let seat = |(id, slot): (SlotId, abi::SlotRow)| {
            let host = snapshot.nodes().get(slot.node as usize).host;
            let cores: Vec<abi::CoreRow> = snapshot.cores_of(id).map(|c| snapshot.cores().at(c)).collect();
            Seat {
                node: NodeId(slot.node),
                power: slot.n_cores.saturating_mul(1000) / slot.share.max(1),
                host,
                rack: snapshot.hosts().get(host as usize).rack,
                l3: only(cores.iter().map(|c| c.l3).collect()),
                numa: only(cores.iter().map(|c| c.numa).collect()),
            }
        };
        let seats: Vec<Seat> = snapshot.slots().with_ids().map(seat).collect();
        let of_node = |n: abi::NodeRow| &seats[n.first_slot as usize..(n.first_slot + n.n_slots) as usize];
        let alike = snapshot.nodes().iter().map(|n| of_node(n).windows(2).all(|two| two[0] == two[1])).collect();
        Machines { distances, seats, alike }
    }

    /// Where a slot is.
    pub(crate) fn seat(&self, slot: SlotId) -> &Seat {
        &self.seats[slot.index()]
    }
    /// True when all slots of a node have equal seats.
    pub(crate) fn is_alike(&self, node: NodeId) -> bool {
        self.alike[node.index()]
    }

    /// Between workers in two slots.
    pub(crate) fn between(&self, a: SlotId, b: SlotId) -> i128 {
        if a == b { 0 } else { self.apart(self.seat(a), self.seat(b)) }
    }

    /// Between two slots that are not the same.
    pub(crate) fn apart(&self, x: &Seat, y: &Seat) -> i128 {
        let d = &self.distances;
        match () {
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
}
