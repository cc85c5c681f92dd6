//! Clusters the checks run on: a few by hand, and as many at random as wanted.

use saetta_sdk::abi::{self, Row};
use saetta_sdk::snapshot::Snapshot;
use saetta_sdk::testing::{Cluster, Component, Node, Topology};
use std::collections::BTreeSet;

/// A topology of a spout and two bolts.
fn chain(name: &str, workers: u32, n: u32) -> Topology {
    Topology::new(name)
        .workers(workers)
        .with(Component::spout("lines", n).cpu(10).memory_mb(16, 0))
        .with(Component::bolt("split", n).cpu(10).memory_mb(16, 0).reads("lines"))
        .with(Component::bolt("words", n).cpu(10).memory_mb(16, 0).reads_by("split", "default", abi::GROUP_FIELDS))
}

/// Machines with room for all that is asked for here.
fn machines(n: usize) -> Cluster {
    Cluster::new().nodes(n, |node| node.slots(4).cpu(1600).memory_mb(16384).cores(8, 4))
}

/// One topology on machines with more than enough room.
pub(super) fn roomy() -> Cluster {
    machines(3).topology(chain("a", 2, 2))
}

/// Two topologies that have no place, one that runs and one nobody asks about.
pub(super) fn busy() -> Cluster {
    let at = |c: Component, node: &str, port: u32| c.cpu(10).memory_mb(16, 0).all_at(node, port);
    let running =
        Topology::new("running").with(at(Component::spout("s", 2), "n1", 6700)).with(at(Component::bolt("b", 2).reads("s"), "n1", 6700));
    let other = Topology::new("other").not_asked().with(at(Component::spout("s", 2), "n2", 6701));
    machines(4).topology(running).topology(other).topology(chain("new", 3, 3)).topology(chain("newer", 2, 2))
}

/// A topology that runs on a node which is gone, and on one that is blacklisted.
pub(super) fn partly_closed() -> Cluster {
    let gone = Component::spout("s", 2).cpu(10).memory_mb(16, 0).all_at("gone", 6700);
    machines(2)
        .node(Node::new("gone").slots(2).flags(abi::NODE_GONE))
        .node(Node::new("black").slots(4).cpu(1600).memory_mb(16384).flags(abi::NODE_BLACKLISTED))
        .topology(Topology::new("old").workers(2).with(gone).with(Component::bolt("b", 3).cpu(10).memory_mb(16, 0).reads("s")))
        .topology(chain("new", 6, 4))
}

/// More is asked for than there are slots.
pub(super) fn tight() -> Cluster {
    Cluster::new()
        .nodes(1, |n| n.slots(2).cpu(800).memory_mb(8192))
        .topology(chain("a", 2, 1))
        .topology(chain("b", 2, 1))
        .topology(chain("c", 1, 1))
}

/// A rebalance is asked for by a topology whose executors all sit in one worker.
pub(super) fn to_rebalance() -> Cluster {
    let s = Component::spout("s", 4).cpu(10).memory_mb(16, 0).all_at("n1", 6700);
    let b = Component::bolt("b", 4).cpu(10).memory_mb(16, 0).reads("s").all_at("n1", 6700);
    machines(3).topology(Topology::new("a").workers(3).flags(abi::TOPO_SCHEDULE | abi::TOPO_REBALANCE).with(s).with(b))
}

/// By name.
pub(super) fn all() -> Vec<(&'static str, Cluster)> {
    vec![("roomy", roomy()), ("busy", busy()), ("partly closed", partly_closed()), ("tight", tight()), ("to rebalance", to_rebalance())]
}

/// Nodes, and topologies that want so many workers, each a chain of three components of so many executors.
pub(super) fn sized(n_nodes: usize, n_topologies: usize, workers: u32, n: u32) -> Cluster {
    (0..n_topologies).fold(machines(n_nodes), |cluster, t| cluster.topology(chain(&format!("t{t:03}"), workers, n)))
}

/// Many nodes, many executors.
pub(super) fn large() -> Cluster {
    sized(200, 20, 10, 67)
}

/// A packed snapshot with a feature that no plugin of this version knows: it must be refused.
pub(super) fn refused() -> Vec<u8> {
    let mut bytes = roomy().pack();
    let header = abi::Header::read(&bytes[..abi::Header::SIZE]);
    abi::Header { features_incompat: 1 << 63, ..header }.write(&mut bytes);
    bytes
}

/// Changes the rows of a packed snapshot's table.
pub(super) fn with_rows<R: Row>(bytes: &mut [u8], change: impl Fn(&mut R)) {
    let header = abi::Header::read(&bytes[..abi::Header::SIZE]);
    let entries = bytes[header.dir_off as usize..].chunks_exact(abi::DirEntry::SIZE).take(header.n_tables as usize);
    let Some(entry) = entries.map(abi::DirEntry::read).find(|e| e.table_id == R::TABLE) else { return };
    for row in bytes[entry.off as usize..].chunks_exact_mut(entry.stride as usize).take(entry.count as usize) {
        let mut changed = R::read(row);
        change(&mut changed);
        changed.write(row);
    }
}

/// A packed snapshot with other names of racks, hosts, nodes, topologies and components, which sort as before.
pub(super) fn renamed(bytes: &[u8]) -> Vec<u8> {
    let snapshot = Snapshot::new(bytes).expect("made by `pack`");
    let names = snapshot.racks().iter().map(|r| r.id).chain(snapshot.hosts().iter().map(|h| h.name));
    let names = names.chain(snapshot.nodes().iter().map(|n| n.id)).chain(snapshot.topologies().iter().flat_map(|t| [t.id, t.name]));
    let names: BTreeSet<(u32, u32)> = names.chain(snapshot.components().iter().map(|c| c.name)).map(|name| (name.off, name.len)).collect();
    let header = abi::Header::read(&bytes[..abi::Header::SIZE]);
    let entries = bytes[header.dir_off as usize..].chunks_exact(abi::DirEntry::SIZE).take(header.n_tables as usize);
    let strings = entries.map(abi::DirEntry::read).find(|e| e.table_id == abi::TABLE_STRINGS).expect("names are in it").off as usize;
    let mut out = bytes.to_vec();
    for (off, len) in names {
        // The next letter for each: ASCII stays ASCII, since the clusters here have no letter above z.
        out[strings + off as usize..][..len as usize].iter_mut().for_each(|byte| *byte += 1);
    }
    out
}

/// A source of numbers that gives the same ones for the same seed.
pub(super) struct Numbers(u64);

impl Numbers {
    /// By a seed.
    pub(super) fn new(seed: u64) -> Self {
        Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// From 0 to `n - 1`.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % n
    }
}

/// A cluster of up to 6 nodes and 4 topologies, parts of which may run.
pub(super) fn random(seed: u64) -> Cluster {
    let mut r = Numbers::new(seed);
    let n_nodes = r.below(6) + 1;
    let mut cluster = Cluster::new();
    let mut slots: Vec<(String, u32)> = Vec::new();
    for n in 0..n_nodes {
        let (id, n_slots) = (format!("n{n}"), r.below(5) as u32);
        let flags = match r.below(8) {
            0 => abi::NODE_GONE,
            1 => abi::NODE_BLACKLISTED,
            _ => 0,
        };
        let rack = format!("r{}", r.below(2));
        let node =
            Node::new(&id).slots(n_slots).rack(&rack).cpu(r.below(800) as f64).memory_mb(r.below(8192) as f64).cores(r.below(5) as u32, 2);
        cluster = cluster.node(node.flags(flags));
        slots.extend((0..n_slots).map(|s| (id.clone(), 6700 + s)));
    }
    for t in 0..r.below(5) {
        // Slots nobody has yet, a few of which this topology runs in.
        let n_own = r.below(3).min(slots.len() as u64) as usize;
        let own: Vec<(String, u32)> = (0..n_own).map(|_| slots.swap_remove(r.below(slots.len() as u64) as usize)).collect();
        let mut topology =
            Topology::new(&format!("t{t}")).workers(r.below(4) as u32 + 1).priority(r.below(3) as i32).launched_ms(r.below(3) as i64);
        if r.below(6) == 0 {
            topology = topology.not_asked();
        }
        for c in 0..r.below(4) {
            let n = r.below(5) as u32 + 1;
            let mut component = if c == 0 { Component::spout("c0", n) } else { Component::bolt(&format!("c{c}"), n).reads("c0") };
            component = component.cpu(r.below(60) as f64).memory_mb(r.below(256) as f64, 0);
            for e in 0..n as usize {
                if !own.is_empty() && r.below(3) != 0 {
                    let (node, port) = &own[r.below(own.len() as u64) as usize];
                    component = component.at(e, node, *port);
                }
            }
            topology = topology.with(component);
        }
        cluster = cluster.topology(topology);
    }
    cluster
}
