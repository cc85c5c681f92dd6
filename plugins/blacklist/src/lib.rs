//! Blacklist: a stage before the scheduler. A node that was missing, or missed ports, too often gets nothing new for a while.
//!
//! Before: a round. After: its nodes are marked ([`NodeHealth`]), and the scheduler that follows keeps what runs there and places nothing
//! new. Time is counted in periods: rounds that come closer than half of one are one. A node is bad in a period when it was known and is not
//! there, or, with `ports`, when a port it had is not. Bad `tolerance_count` times within `tolerance_secs`, and it is blacklisted for
//! `resume_secs`, and so is its whole host. When free slots are fewer than workers are missing - or, with `resources`, when what
//! executors without a slot ask for is more than the nodes have left - whole hosts are let go, by name, until it suffices; with `greylist`
//! they are used last. What is bad throughout `tolerance_secs` is forgotten, since it was taken away. All of that is in [`Window`], and a new
//! leader goes on with it ([`Memory`]).
//!
//! Where Storm differs: it counts rounds, so that a burst of submissions shortens every period; it forgets all when the leader changes; a
//! topology with fewer executors than workers counts as short of slots for ever.
//!
//! Pure: the round's wall clock is the only time. O(nodes + slots + executors) per round, and nodes x tolerance_secs / period_secs of
//! memory at worst. Not a scheduler: as one it places nothing.
#![forbid(unsafe_code)]

mod window;

pub use window::{Options, Sighting, Window};

use saetta_sdk::config::{Config, Told};
use saetta_sdk::{
    Amounts, CompId, Configured, CreateCx, Extension, Fitness, Health, HostId, Memory, NodeHealth, NodeId, Plan, PluginError, Round,
    Scheduler, Snapshot, Verdict, abi,
};
use std::collections::BTreeSet;

/// The stage.
pub struct Blacklist {
    options: Options,
    /// Missing ports count.
    ports: bool,
    /// Missing resources let hosts go.
    resources: bool,
    /// Hosts that were let go are used last.
    greylist: bool,
    window: Window,
    told: Told,
}

saetta_sdk::export_scheduler!(Blacklist, id = "blacklist", claims = ["storm.blacklist/1"]);

const DAY_S: u64 = 86_400;

impl Blacklist {
    fn read(config: &str) -> Result<Self, PluginError> {
        let mut config = Config::parse(config)?;
        let period_s = config.number("period_secs", 10, 1..=DAY_S, "a node is judged once in such a period")?;
        let tolerance_s = config.number("tolerance_secs", 300, 1..=DAY_S, "how far back it looks")?;
        let count = config.number("tolerance_count", 3, 1..=DAY_S, "bad periods until a node is blacklisted")?;
        let resume_s = config.number("resume_secs", 1800, 1..=30 * DAY_S, "how long it stays so")?;
        let ports = config.flag("ports", true, "a missing port counts as a missing node")?;
        let resources = config.flag("resources", false, "let hosts go also when CPU, memory or another resource is short")?;
        let greylist = config.flag("greylist", true, "hosts that were let go are used last")?;
        let told = config.finish()?;
        let window = (tolerance_s / period_s).max(1);
        if count > window {
            return Err(PluginError {
                code: abi::E_CONFIG,
                text: format!("tolerance_count is {count}, and tolerance_secs has {window} periods; make one larger or the other smaller"),
            });
        }
        let options = Options { period_ms: (period_s * 1000) as i64, window, count, resume: (resume_s / period_s).max(1) };
        Ok(Blacklist { options, ports, resources, greylist, window: Window::default(), told })
    }
}

impl Scheduler for Blacklist {
    const EXTENSIONS: &'static [Extension] = &[Extension::node_health::<Self>(), Extension::memory::<Self>(), Extension::config::<Self>()];

    fn create(cx: &CreateCx<'_>) -> Result<Self, PluginError> {
        Self::read(cx.config)
    }

    fn schedule(&mut self, round: &Round<'_>, _: &mut Plan<'_>) -> Result<Verdict, PluginError> {
        round.warn("blacklist marks nodes and places nothing: make it a stage before a scheduler");
        Ok(Verdict::NoChange)
    }
}

impl NodeHealth for Blacklist {
    fn judge(&mut self, round: &Round<'_>, health: &mut Health<'_>) -> Result<Verdict, PluginError> {
        let snapshot = round.snapshot;
        let mut window = self.window.clone();
        window.observe(&self.options, snapshot.meta().map_or(0, |m| m.wall_ms), &sightings(&snapshot, self.ports));

        // Hosts with a blacklisted node, by name; then those that are needed all the same.
        let is_listed = |node: &abi::NodeRow| window.is_blacklisted(snapshot.text(node.id));
        let listed: BTreeSet<HostId> = snapshot.nodes().iter().filter(|n| is_listed(n)).map(|n| HostId(n.host)).collect();
        let mut by_name: Vec<(&str, HostId)> = listed.iter().map(|h| (snapshot.text(snapshot.hosts().at(*h).name), *h)).collect();
        by_name.sort_unstable();
        let mut short = if listed.is_empty() { Short::default() } else { self.shortage(&snapshot, &listed) };
        let mut let_go = BTreeSet::new();
        for (_, host) in by_name {
            let nodes: Vec<NodeId> = snapshot.nodes_of(&snapshot.hosts().at(host)).map(|(id, _)| id).collect();
            if short.is_any() && short.take(&snapshot, &nodes, self.resources) {
                let_go.insert(host);
            }
        }
        for (id, node) in snapshot.nodes().with_ids().filter(|(_, n)| listed.contains(&HostId(n.host))) {
            if !let_go.contains(&HostId(node.host)) {
                health.mark(id, Fitness::Blacklisted);
                continue;
            }
            window.let_go(snapshot.text(node.id));
            if self.greylist && health.of(id) == Fitness::Good {
                health.mark(id, Fitness::Greylisted);
            }
        }
        // A round that commits nothing leaves no trace.
        if round.reason != abi::REASON_DRY_RUN && round.reason != abi::REASON_SHADOW {
            self.window = window;
        }
        Ok(if listed.is_empty() { Verdict::NoChange } else { Verdict::Done })
    }
}

impl Memory for Blacklist {
    fn save(&self) -> Vec<u8> {
        self.window.save()
    }
    fn restore(&mut self, bytes: &[u8]) -> Result<(), PluginError> {
        self.window = Window::restore(bytes)?;
        Ok(())
    }
}

impl Configured for Blacklist {
    fn schema() -> String {
        Self::read("{}").map(|blacklist| blacklist.told.schema).unwrap_or_default()
    }
    fn effective(&self) -> String {
        self.told.effective.clone()
    }
}

/// Nodes whose supervisor reports, with the ports it reports; without `ports` none are told.
fn sightings<'a>(snapshot: &Snapshot<'a>, ports: bool) -> Vec<Sighting<'a>> {
    let reports = snapshot.nodes().iter().filter(|n| n.flags & abi::NODE_GONE == 0);
    let seen = reports.map(|node| {
        let slots = snapshot.slots_of(&node).filter(|(_, slot)| ports && slot.flags & abi::SLOT_PORT_NOT_REPORTED == 0);
        Sighting { node: snapshot.text(node.id), ports: slots.map(|(_, slot)| slot.port).collect() }
    });
    seen.collect()
}

/// What is missing while some hosts are not to be used; negative = enough.
#[derive(Debug, Default)]
struct Short {
    slots: i64,
    /// One for each kind of resource.
    amounts: Vec<i64>,
}

impl Short {
    fn is_any(&self) -> bool {
        self.slots > 0 || self.amounts.iter().any(|a| *a > 0)
    }
    /// Less what these nodes have left; false when that helps nothing.
    fn take(&mut self, snapshot: &Snapshot<'_>, nodes: &[NodeId], resources: bool) -> bool {
        let slots: i64 = nodes.iter().map(|n| free_slots(snapshot, *n)).sum();
        self.slots -= slots;
        if resources && slots > 0 {
            nodes.iter().for_each(|n| subtract(&mut self.amounts, snapshot.node_avail(*n)));
        }
        slots > 0
    }
}

impl Blacklist {
    fn shortage(&self, snapshot: &Snapshot<'_>, listed: &BTreeSet<HostId>) -> Short {
        let mut short = Short { slots: 0, amounts: vec![0; if self.resources { snapshot.kinds().len() } else { 0 }] };
        for topology in snapshot.topologies().iter().filter(|t| t.flags & abi::TOPO_SCHEDULE != 0) {
            let mut used = BTreeSet::new();
            for (_, e) in snapshot.executors_of(&topology) {
                if e.slot != abi::NONE {
                    used.insert(e.slot);
                } else if self.resources {
                    let asked = snapshot.request(CompId(e.component));
                    short.amounts.iter_mut().zip(asked.iter()).for_each(|(sum, amount)| *sum = sum.saturating_add(amount));
                }
            }
            let wanted = topology.workers_wanted.min(topology.n_execs) as i64;
            short.slots += (wanted - used.len() as i64).max(0);
        }
        let usable = snapshot.nodes().with_ids().filter(|(_, n)| !listed.contains(&HostId(n.host)));
        for (id, _) in usable {
            short.slots -= free_slots(snapshot, id);
            if self.resources && free_slots(snapshot, id) > 0 {
                subtract(&mut short.amounts, snapshot.node_avail(id));
            }
        }
        short
    }
}

fn subtract(from: &mut [i64], amounts: Amounts<'_>) {
    from.iter_mut().zip(amounts.iter()).for_each(|(left, amount)| *left = left.saturating_sub(amount));
}

/// Slots of a node that a new worker could have.
fn free_slots(snapshot: &Snapshot<'_>, node: NodeId) -> i64 {
    let row = snapshot.nodes().at(node);
    let free = |slot: &abi::SlotRow| slot.flags & abi::SLOT_ASSIGNABLE != 0 && slot.topology == abi::NONE;
    snapshot.slots_of(&row).filter(|(_, slot)| free(slot)).count() as i64
}
