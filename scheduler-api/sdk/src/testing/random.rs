//! Clusters in any state a scheduler may meet, and what every plan on them must keep.
//!
//! Before: a seed. After: nothing, or a panic that names the seed and the rule. For tests of schedulers: a thousand seeds take a second.

use super::{Cluster, Component, Done, Node, Topology};
use crate::call::Builtin;
use saetta_abi as abi;
use std::collections::{BTreeMap, BTreeSet};

/// Numbers from a seed: splitmix64.
struct Dice(u64);

impl Dice {
    /// Below `n`.
    fn roll(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
    fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}

impl Cluster {
    /// A small cluster in any state: nodes that are gone, blacklisted, greylisted or reserved, topologies that are not asked for, too many
    /// workers, uneven ones, executors without a slot. Topologies are named `t1` and up, nodes `n1` and up, two of them on a host at times.
    pub fn random(seed: u64) -> Cluster {
        let mut dice = Dice(seed);
        let mut cluster = Cluster::new();
        let mut slots: Vec<(String, u32)> = Vec::new();
        for n in 1..=1 + dice.roll(6) {
            let id = format!("n{n}");
            let flags = match dice.roll(16) {
                0 => abi::NODE_GONE,
                1 => abi::NODE_BLACKLISTED,
                2 | 3 => abi::NODE_GREYLISTED,
                4 => abi::NODE_RESERVED,
                _ => 0,
            };
            let mut node =
                Node::new(&id).slots(dice.roll(5) as u32).flags(flags).uptime_s(dice.roll(20)).rack(&format!("r{}", dice.roll(2)));
            node = node.cpu(400).memory_mb(4096);
            if n % 2 == 0 && dice.chance(30) {
                // On the host, and so in the rack, of the one before.
                let before = cluster.nodes.last().expect("n1");
                node = node.host(&before.host.clone()).rack(&before.rack.clone());
            }
            slots.extend(node.ports.iter().map(|p| (id.clone(), *p)));
            cluster = cluster.node(node);
        }
        for t in 1..=dice.roll(5) {
            let mut topology = Topology::new(&format!("t{t}"))
                .workers(dice.roll(7) as u32)
                .priority(dice.roll(3) as i32 - 1)
                .launched_ms(dice.roll(3) as i64);
            if dice.chance(10) {
                topology = topology.not_asked();
            }
            if dice.chance(20) {
                let machines = 1 + dice.roll(3) as u32;
                topology = topology.row(|r| r.isolate_machines = machines);
            }
            let own: Vec<(String, u32)> = (0..dice.roll(5)).filter_map(|_| pick(&mut dice, &mut slots)).collect();
            for c in 0..=dice.roll(3) {
                let n_execs = dice.roll(7) as usize;
                let mut component = Component::bolt(&format!("c{c}"), n_execs as u32).cpu(1).memory_mb(1, 0);
                for i in 0..n_execs {
                    if !own.is_empty() && dice.chance(85) {
                        let (node, port) = &own[dice.roll(own.len() as u64) as usize];
                        component = component.at(i, node, *port);
                    }
                }
                topology = topology.with(component);
            }
            cluster = cluster.topology(topology);
        }
        cluster
    }

    /// The same with every name behind a prefix: an order-preserving renaming.
    pub fn prefixed(&self, prefix: &str) -> Cluster {
        let longer = |name: &mut String| name.insert_str(0, prefix);
        let mut next = self.clone();
        for node in &mut next.nodes {
            longer(&mut node.id);
            longer(&mut node.host);
            longer(&mut node.rack);
        }
        for topology in &mut next.topologies {
            longer(&mut topology.name);
            topology.favored.iter_mut().chain(&mut topology.unfavored).for_each(longer);
            for component in &mut topology.components {
                longer(&mut component.name);
                component.reads.iter_mut().for_each(|r| longer(&mut r.from));
                component.incompatible.iter_mut().for_each(longer);
                for e in &mut component.executors {
                    e.at.iter_mut().chain(&mut e.last).for_each(|at| longer(&mut at.0));
                }
            }
        }
        next
    }

    /// Runs the scheduler on it and panics where a plan breaks a rule that the host checks, differs when asked again, with longer rows or with
    /// other names, moves more than may move, or moves something when asked a second time. Names of topologies in `config` stand
    /// behind `@`, which is replaced.
    pub fn check(&self, builtin: Builtin, config: &str) -> Done {
        let plain = config.replace('@', "");
        let done = self.ask().config(&plain).run(builtin).unwrap_or_else(|e| panic!("{e}"));
        self.check_plan(&done);
        assert_eq!(self.ask().config(&plain).run(builtin).as_ref(), Ok(&done), "the same again");
        let noisy = self.clone().row_noise(8);
        assert_eq!(noisy.ask().config(&plain).run(builtin).as_ref(), Ok(&done), "with longer rows");
        let renamed = self.prefixed("x-").ask().config(&config.replace('@', "x-")).run(builtin).unwrap_or_else(|e| panic!("{e}"));
        let strip = |slot: &String| slot.trim_start_matches("x-").to_owned();
        let back: BTreeMap<_, _> =
            renamed.slots().into_iter().map(|((t, c, i), slot)| ((strip(&t), strip(&c), i), slot.as_ref().map(strip))).collect();
        assert_eq!(back, done.slots(), "with other names");

        for max in [0, 2] {
            let few = self.ask().config(&plain).max_moves(max).run(builtin).unwrap_or_else(|e| panic!("{e}"));
            self.check_plan(&few);
            assert!(few.moved <= max as usize, "{} moved, and {max} may", few.moved);
        }

        let again = self.after(&done).ask().config(&plain).run(builtin).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((again.slots(), again.moved, again.changed), (done.slots(), 0, false), "a second round");
        done
    }

    /// The rules of the host that need no resources: V02, V03, V08, V10, V11.
    fn check_plan(&self, done: &Done) {
        let closed = |node: &str| {
            let flags = self.nodes.iter().find(|n| n.id == node).expect("a node of the cluster").flags;
            flags & (abi::NODE_GONE | abi::NODE_BLACKLISTED | abi::NODE_RESERVED) != 0
        };
        let mut holder: BTreeMap<String, &str> = BTreeMap::new();
        for t in &self.topologies {
            let (mut before, mut after, mut changed, mut unplaced) = (BTreeSet::new(), BTreeSet::new(), 0, 0);
            for c in &t.components {
                for (i, e) in c.executors.iter().enumerate() {
                    let was = e.at.as_ref().map(|(node, port)| format!("{node}:{port}"));
                    let is = done.slot(&t.name, &c.name, i);
                    changed += u32::from(was != is);
                    unplaced += u32::from(is.is_none());
                    if let Some(slot) = &is {
                        let node = slot.split(':').next().expect("node:port");
                        assert!(was == is || !closed(node), "V02: {} {} {i} is put into {slot}", t.name, c.name);
                        let other = holder.insert(slot.clone(), &t.name);
                        assert!(other.is_none_or(|other| other == t.name), "V03: {slot} has {} and {other:?}", t.name);
                    }
                    before.extend(was);
                    after.extend(is);
                }
            }
            let (asked, outcome) = (t.row.flags & abi::TOPO_SCHEDULE != 0, done.outcome(&t.name));
            assert!(changed == 0 || asked, "V10: {} was not asked for", t.name);
            assert!(changed == 0 || outcome != abi::OUT_KEEP, "V11: {} changed, and nothing was decided", t.name);
            assert!(unplaced == 0 || outcome != abi::OUT_SCHEDULED, "V11: {} is not whole", t.name);
            assert!(after.len() <= t.row.workers_wanted as usize || after.len() <= before.len(), "V08: {} has {}", t.name, after.len());
        }
    }
}

/// Takes one out.
fn pick(dice: &mut Dice, slots: &mut Vec<(String, u32)>) -> Option<(String, u32)> {
    (!slots.is_empty()).then(|| {
        let at = dice.roll(slots.len() as u64) as usize;
        slots.swap_remove(at)
    })
}

impl Done {
    /// Slot of every executor as `node:port`: by topology, component, index.
    pub fn slots(&self) -> BTreeMap<(String, String, usize), Option<String>> {
        let text = |at: &(String, u32)| format!("{}:{}", at.0, at.1);
        self.places.iter().map(|(id, place)| (id.clone(), place.at.as_ref().map(text))).collect()
    }
    /// Workers of a topology on each node that has any.
    pub fn workers_by_node(&self, topology: &str) -> BTreeMap<String, usize> {
        let mut by_node = BTreeMap::new();
        for (slot, _) in self.workers(topology) {
            let (node, _) = slot.rsplit_once(':').expect("node:port");
            *by_node.entry(node.to_owned()).or_default() += 1;
        }
        by_node
    }
}
