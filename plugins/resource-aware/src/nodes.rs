//! In which order nodes are tried: favoured hosts, then rack by rack, host by host, node by node, then the unfavoured and the greylisted.
//!
//! Before: `search` opens the order for one topology. After: it walks the nodes, places, and tells ([`Nodes::touched`]). Racks, hosts of a
//! rack and nodes of a host are sorted by one key: executors of the topology there, then the average and the smallest share of what is left
//! among their siblings. A host is sorted when its rack is first reached. After a step only what was touched moves to its new place: shares
//! of the others are those of when they were sorted, so that an executor costs a few comparisons and not a sort of the cluster.

use saetta_sdk::model::Model;
use saetta_sdk::{NodeId, Snapshot, TopoId, abi};
use std::cmp::Ordering;

/// By what nodes of equal count are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Average share, then smallest; kinds that are not asked for count against a node.
    Common,
    /// Average share; kinds that are not asked for count against a node.
    Generic,
    /// Smallest share, then average.
    Old,
}

/// What a rack, host or node is sorted by; more is better.
#[derive(Debug, Clone, Copy, Default)]
struct Rank {
    n_execs: u32,
    first: f64,
    second: f64,
}

impl Rank {
    /// Better first.
    fn compare(&self, other: &Rank) -> Ordering {
        other.n_execs.cmp(&self.n_execs).then(other.first.total_cmp(&self.first)).then(other.second.total_cmp(&self.second))
    }
}

/// A group of siblings: racks of the cluster, hosts of a rack, nodes of a host.
#[derive(Debug, Clone, Default)]
struct Siblings {
    /// Rows, best first. Empty until sorted.
    order: Vec<u32>,
    /// What all of them had left when they were sorted.
    whole: Vec<i64>,
}

impl Siblings {
    fn sort(&mut self, rows: impl Iterator<Item = u32>, avail: &[i64], ranks: &mut [Rank], key: Key, asked: &[bool]) {
        let n_kinds = asked.len();
        self.order = rows.collect();
        self.whole = vec![0; n_kinds];
        for row in &self.order {
            self.whole.iter_mut().zip(&avail[*row as usize * n_kinds..]).for_each(|(w, a)| *w += a.max(&0));
        }
        for row in &self.order {
            set_rank(&mut ranks[*row as usize], &avail[*row as usize * n_kinds..][..n_kinds], &self.whole, key, asked);
        }
        self.order.sort_by(|a, b| ranks[*a as usize].compare(&ranks[*b as usize]).then(a.cmp(b)));
    }
    /// One row's rank has changed: moves it to its place. O(places moved).
    fn settle(&mut self, row: u32, ranks: &[Rank]) {
        let Some(mut at) = self.order.iter().position(|r| *r == row) else { return };
        let before = |a: u32, b: u32| ranks[a as usize].compare(&ranks[b as usize]).then(a.cmp(&b)) == Ordering::Less;
        while at > 0 && before(self.order[at], self.order[at - 1]) {
            self.order.swap(at, at - 1);
            at -= 1;
        }
        while at + 1 < self.order.len() && before(self.order[at + 1], self.order[at]) {
            self.order.swap(at, at + 1);
            at += 1;
        }
    }
}

fn set_rank(rank: &mut Rank, avail: &[i64], whole: &[i64], key: Key, asked: &[bool]) {
    let (mut sum, mut least, mut n) = (0.0, 1.0f64, 0);
    for (k, ((avail, whole), asked)) in avail.iter().zip(whole).zip(asked).enumerate() {
        if *whole <= 0 {
            continue;
        }
        // A rare resource that is not asked for is better left to those who do.
        let sign = if k >= 2 && !asked && key != Key::Old { -1.0 } else { 1.0 };
        let share = sign * (*avail).max(0) as f64 / *whole as f64;
        sum += share;
        least = least.min(share);
        n += 1;
    }
    let (average, least) = if n == 0 { (1.0, 1.0) } else { (sum / f64::from(n), least) };
    (rank.first, rank.second) = match key {
        Key::Common => (average, least),
        Key::Generic => (average, 0.0),
        Key::Old => (least, average),
    };
}

/// Where everything lies; the same for every topology of a round.
#[derive(Debug, Clone)]
pub struct Places {
    /// How many racks.
    pub n_racks: usize,
    rack_of_host: Vec<u32>,
    host_of_node: Vec<u32>,
    /// First host of each rack and the end; first node of each host and the end.
    first_host: Vec<u32>,
    first_node: Vec<u32>,
    flags: Vec<u32>,
    hosts_closed: Vec<bool>,
    /// What all nodes have, kind by kind.
    pub total: Vec<i64>,
}

impl Places {
    /// O(hosts + nodes).
    pub fn new(snapshot: &Snapshot<'_>) -> Self {
        let racks = snapshot.racks();
        let n_hosts = snapshot.hosts().len() as u32;
        let n_nodes = snapshot.nodes().len() as u32;
        let mut total = vec![0i64; snapshot.kinds().len()];
        for node in 0..n_nodes {
            total.iter_mut().zip(snapshot.node_total(NodeId(node)).iter()).for_each(|(sum, t)| *sum = sum.saturating_add(t));
        }
        Places {
            n_racks: racks.len(),
            rack_of_host: snapshot.hosts().iter().map(|h| h.rack).collect(),
            host_of_node: snapshot.nodes().iter().map(|n| n.host).collect(),
            first_host: racks.iter().map(|r| r.first_host).chain([n_hosts]).collect(),
            first_node: snapshot.hosts().iter().map(|h| h.first_node).chain([n_nodes]).collect(),
            flags: snapshot.nodes().iter().map(|n| n.flags).collect(),
            total,
            hosts_closed: snapshot.hosts().iter().map(|h| h.flags & abi::HOST_BLACKLISTED != 0).collect(),
        }
    }
    /// How many nodes.
    pub fn n_nodes(&self) -> usize {
        self.host_of_node.len()
    }
    /// Nodes that may take something new.
    pub fn open_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.n_nodes() as u32).map(NodeId).filter(|n| self.is_open(*n))
    }
    /// Rack of a node.
    pub fn rack_of(&self, node: NodeId) -> usize {
        self.rack_of_host[self.host_of_node[node.index()] as usize] as usize
    }
    /// May take something new.
    pub fn is_open(&self, node: NodeId) -> bool {
        let closed = abi::NODE_GONE | abi::NODE_BLACKLISTED | abi::NODE_RESERVED;
        self.flags[node.index()] & closed == 0 && !self.hosts_closed[self.host_of_node[node.index()] as usize]
    }
}

/// Which part of the order a node belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Normal,
    Apart,
    Closed,
}

/// The order for one topology, or for those of its components that ask for the same kinds.
#[derive(Debug, Clone)]
pub struct Nodes {
    key: Key,
    /// Kinds that are asked for.
    asked: Vec<bool>,
    class: Vec<Class>,
    /// Nodes of favoured hosts, best first, and those that come last.
    favored: Vec<NodeId>,
    last: Vec<NodeId>,
    avail_of_node: Vec<i64>,
    avail_of_host: Vec<i64>,
    avail_of_rack: Vec<i64>,
    node_ranks: Vec<Rank>,
    host_ranks: Vec<Rank>,
    rack_ranks: Vec<Rank>,
    racks: Siblings,
    hosts: Vec<Siblings>,
    nodes: Vec<Siblings>,
    /// The order of racks may no longer hold behind its first.
    racks_stale: bool,
}

impl Nodes {
    /// Opens the order. O(nodes).
    pub fn new(snapshot: &Snapshot<'_>, places: &Places, model: &Model, topology: TopoId, key: Key, asked: Vec<bool>) -> Self {
        let (n_nodes, n_hosts, n_kinds) = (model.n_nodes(), places.rack_of_host.len(), model.n_kinds());
        let ids = || (0..n_nodes as u32).map(NodeId);
        let grey = |n: &NodeId| places.flags[n.index()] & abi::NODE_GREYLISTED != 0;
        let mut class: Vec<Class> = ids().map(|n| if places.is_open(n) { Class::Normal } else { Class::Closed }).collect();
        let nodes_of = |h: saetta_sdk::HostId| (places.first_node[h.index()]..places.first_node[h.index() + 1]).map(NodeId);
        let mut take = |nodes: &mut dyn Iterator<Item = NodeId>| {
            let mut taken = Vec::new();
            for n in nodes {
                if class[n.index()] == Class::Normal {
                    class[n.index()] = Class::Apart;
                    taken.push(n);
                }
            }
            taken
        };
        let greylisted = take(&mut ids().filter(grey));
        let favored = take(&mut snapshot.favored(topology).flat_map(nodes_of));
        let mut last = take(&mut snapshot.unfavored(topology).flat_map(nodes_of));
        last.extend(greylisted);
        let mut nodes = Nodes {
            key,
            asked,
            class,
            favored,
            last,
            avail_of_node: Vec::with_capacity(n_nodes * n_kinds),
            avail_of_host: vec![0; n_hosts * n_kinds],
            avail_of_rack: vec![0; places.n_racks * n_kinds],
            node_ranks: vec![Rank::default(); n_nodes],
            host_ranks: vec![Rank::default(); n_hosts],
            rack_ranks: vec![Rank::default(); places.n_racks],
            racks: Siblings::default(),
            hosts: vec![Siblings::default(); places.n_racks],
            nodes: vec![Siblings::default(); n_hosts],
            racks_stale: false,
        };
        for n in ids() {
            let (host, rack) = (places.host_of_node[n.index()] as usize, places.rack_of(n));
            nodes.avail_of_node.extend(model.avail(n));
            if nodes.class[n.index()] == Class::Normal {
                for (k, a) in model.avail(n).iter().enumerate() {
                    nodes.avail_of_host[host * n_kinds + k] += a.max(&0);
                    nodes.avail_of_rack[rack * n_kinds + k] += a.max(&0);
                }
            }
        }
        let row = snapshot.topologies().at(topology);
        for slot in (row.first_exec..row.first_exec + row.n_execs).filter_map(|e| model.slot_of(saetta_sdk::ExecId(e))) {
            let node = model.node_of(slot);
            nodes.node_ranks[node.index()].n_execs += 1;
            nodes.host_ranks[places.host_of_node[node.index()] as usize].n_execs += 1;
            nodes.rack_ranks[places.rack_of(node)].n_execs += 1;
        }
        nodes.sort_racks(places);
        nodes
    }

    fn sort_racks(&mut self, places: &Places) {
        self.racks.sort(0..places.n_racks as u32, &self.avail_of_rack, &mut self.rack_ranks, self.key, &self.asked);
        self.racks_stale = false;
    }

    /// What is left of a node has changed, and the topology has `by` executors more (or fewer) there.
    pub fn touched(&mut self, places: &Places, model: &Model, node: NodeId, by: i32) {
        let n_kinds = model.n_kinds();
        let (host, rack) = (places.host_of_node[node.index()] as usize, places.rack_of(node));
        for (k, now) in model.avail(node).iter().enumerate() {
            let was = std::mem::replace(&mut self.avail_of_node[node.index() * n_kinds + k], *now);
            if self.class[node.index()] == Class::Normal {
                self.avail_of_host[host * n_kinds + k] += now.max(&0) - was.max(0);
                self.avail_of_rack[rack * n_kinds + k] += now.max(&0) - was.max(0);
            }
        }
        for rank in [&mut self.node_ranks[node.index()], &mut self.host_ranks[host], &mut self.rack_ranks[rack]] {
            rank.n_execs = rank.n_execs.saturating_add_signed(by);
        }
        let group = &mut self.nodes[host];
        if group.order.len() > 1 {
            let avail = &self.avail_of_node[node.index() * n_kinds..][..n_kinds];
            set_rank(&mut self.node_ranks[node.index()], avail, &group.whole, self.key, &self.asked);
            group.settle(node.0, &self.node_ranks);
        }
        let group = &mut self.hosts[rack];
        if !group.order.is_empty() {
            let avail = &self.avail_of_host[host * n_kinds..][..n_kinds];
            set_rank(&mut self.host_ranks[host], avail, &group.whole, self.key, &self.asked);
            group.settle(host as u32, &self.host_ranks);
        }
        self.racks_stale = true;
    }

    /// Walks nodes in order until `visit` takes one. `skip` says of a rack whether it need not be looked at; `passed`, that nobody took a
    /// node of it.
    pub fn walk<T>(
        &mut self,
        places: &Places,
        mut skip: impl FnMut(usize) -> bool,
        mut visit: impl FnMut(NodeId) -> Option<T>,
        mut passed: impl FnMut(usize),
    ) -> Option<T> {
        if let Some(found) = self.favored.iter().find_map(|n| visit(*n)) {
            return Some(found);
        }
        if self.racks_stale {
            let first = self.racks.order.first().map_or(Rank::default(), |r| self.rack_ranks[*r as usize]);
            // Where the first has most executors it stays the first, whatever is left elsewhere.
            if !self.racks.order.iter().skip(1).all(|r| self.rack_ranks[*r as usize].n_execs < first.n_execs) {
                self.sort_racks(places);
            }
        }
        let mut i = 0;
        while i < self.racks.order.len() {
            if i == 1 && self.racks_stale {
                self.sort_racks(places);
            }
            let rack = self.racks.order[i] as usize;
            i += 1;
            if skip(rack) {
                continue;
            }
            if self.hosts[rack].order.is_empty() {
                let hosts = places.first_host[rack]..places.first_host[rack + 1];
                self.hosts[rack].sort(hosts, &self.avail_of_host, &mut self.host_ranks, self.key, &self.asked);
            }
            for h in 0..self.hosts[rack].order.len() {
                let host = self.hosts[rack].order[h] as usize;
                let nodes = places.first_node[host]..places.first_node[host + 1];
                if nodes.len() == 1 {
                    let node = nodes.start as usize;
                    if self.class[node] == Class::Normal
                        && let Some(found) = visit(NodeId(node as u32))
                    {
                        return Some(found);
                    }
                    continue;
                }
                if self.nodes[host].order.is_empty() {
                    self.nodes[host].sort(nodes, &self.avail_of_node, &mut self.node_ranks, self.key, &self.asked);
                }
                let class = &self.class;
                let normal = self.nodes[host].order.iter().filter(|n| class[**n as usize] == Class::Normal);
                if let Some(found) = normal.copied().find_map(|n| visit(NodeId(n))) {
                    return Some(found);
                }
            }
            passed(rack);
        }
        self.last.iter().find_map(|n| visit(*n))
    }

    /// The whole order.
    pub fn all(&mut self, places: &Places) -> Vec<NodeId> {
        let mut all = Vec::new();
        self.walk(
            places,
            |_| false,
            |n| {
                all.push(n);
                None::<()>
            },
            |_| {},
        );
        all
    }
}
