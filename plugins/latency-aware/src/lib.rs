//! Latency-aware: executors that talk much stand near each other - on one core's cache before one NUMA node before one host before one rack.
//!
//! Before: the host packed the cluster and called through the C ABI. After: a slot for each executor, and a core where the host knows cores.
//! The cost of a placement is the sum over all pairs of executors of bytes per second times distance; bytes are measured
//! (`saetta.stats/1`) or guessed from groupings and parallelism (`traffic.rs`), distances are configured (`machines.rs`). It is kept low
//! subject to workers wanted, free slots and room by cores (`pass.rs`): a greedy start, heaviest edges first, and a local improvement that
//! is bounded and looks at the deadline (`layout.rs`). What runs moves only for a gain above a threshold, or where `even` too would move it
//! and less would cross nodes: so never more crosses nodes than with `even`. Cores come last (`cores.rs`).
//! A pass is repeated until it changes nothing, so that a second round finds nothing to do.
//! Pure: no clock, no randomness, no state between rounds. Groups are components: O(groups^2 x workers^2) a sweep, at most 4 million
//! steps a search, O(free slots x workers) to choose slots. Not here: resources and constraints.
#![forbid(unsafe_code)]

mod cores;
mod layout;
mod machines;
mod pass;
mod state;
mod traffic;

use cores::Member;
use machines::Distances;
use pass::Pass;
use saetta_sdk::config::{Config, Told};
use saetta_sdk::{
    Configured, CoreId, CreateCx, Explanation, Extension, Outcome, Plan, PluginError, Round, Scheduler, SlotId, Verdict, abi,
};
use state::{State, Topo, World};
use std::collections::BTreeMap;

/// Passes in one round; almost always the second changes nothing.
const PASSES_MAX: usize = 8;
/// Largest distance.
const DISTANCE_MAX: u64 = 1_000_000;

/// What an executor's score is made of: bytes per second with whom.
const PARTS: [&str; 3] = ["same worker", "same node", "other nodes"];

fn narrow(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX })
}

/// The scheduler. It keeps nothing between rounds.
pub struct LatencyAware {
    gain_pct: i128,
    distances: Distances,
    told: Told,
}

saetta_sdk::export_scheduler!(
    LatencyAware,
    id = "latency-aware",
    claims = ["saetta.traffic/1"],
    wants = ["saetta.stats/1", "saetta.explain/1"]
);

impl LatencyAware {
    fn read(config: &str) -> Result<Self, PluginError> {
        let mut config = Config::parse(config)?;
        let gain = config.number("gain_pct", 10, 0..=100, "least gain for which running executors move, percent of the cost")?;
        let mut at_least = 0;
        let mut distance = |key: &str, default: u64, what: &str| {
            let value = config.number(key, default, 0..=DISTANCE_MAX, what)?;
            if value < at_least {
                let text = format!("{key} is {value}; it must be at least the distance before it, {at_least}");
                return Err(PluginError { code: abi::E_CONFIG, text });
            }
            at_least = value;
            Ok(i128::from(value))
        };
        let distances = Distances {
            l3: distance("distance_l3", 1, "between cores of one last-level cache")?,
            numa: distance("distance_numa", 2, "between caches of one NUMA node")?,
            host: distance("distance_host", 4, "between NUMA nodes of one host")?,
            rack: distance("distance_rack", 20, "between hosts of one rack")?,
            far: distance("distance_far", 40, "between racks")?,
        };
        Ok(LatencyAware { gain_pct: i128::from(gain), distances, told: config.finish()? })
    }

    fn write(&self, round: &Round<'_>, world: &World, state: &State, plan: &mut Plan<'_>) -> bool {
        let snapshot = &round.snapshot;
        let mut changed = false;
        for topo in &world.topologies {
            let counts = if round.wants_reasons() { world.counts(topo, state) } else { BTreeMap::new() };
            let rebalance = topo.row.flags & abi::TOPO_REBALANCE != 0;
            for (exec, e) in snapshot.executors_of(&topo.row) {
                let (before, now) = (SlotId::some(e.slot), state.at[exec.index()]);
                changed |= before != now;
                match now {
                    Some(slot) => plan.place(exec, slot),
                    None => plan.free(exec),
                }
                let code = match now {
                    None => abi::WHY_NO_SLOT,
                    _ if now == before => abi::WHY_KEPT,
                    _ if before.is_none() && e.last_slot != abi::NONE => abi::WHY_MOVED_NODE_LOST,
                    _ if before.is_some() && rebalance => abi::WHY_MOVED_REBALANCE,
                    _ => abi::WHY_AFFINITY,
                };
                if let Some(slot) = now.filter(|_| round.wants_reasons()) {
                    let group = topo.traffic.group[(exec.0 - topo.row.first_exec) as usize];
                    let (bytes, cost) = world.exchanged(topo, &counts, group, slot);
                    let parts: Vec<(&str, i64)> = PARTS.into_iter().zip(bytes.map(narrow)).collect();
                    round.explain(&Explanation { score: narrow(-cost), parts: &parts, ..Explanation::new(exec, now, code) });
                } else {
                    round.explain(&Explanation::new(exec, now, code));
                }
            }
            plan.outcome(
                topo.id,
                match world.share(topo, state).unplaced.len() as u32 {
                    0 => Outcome::Scheduled,
                    n if n == topo.row.n_execs => Outcome::Unschedulable,
                    _ => Outcome::Partial,
                },
            );
            if plan.takes_cores() {
                changed |= self.write_cores(round, world, topo, state, plan);
            }
        }
        changed
    }

    /// True = an executor gets another core than it has.
    fn write_cores(&self, round: &Round<'_>, world: &World, topo: &Topo, state: &State, plan: &mut Plan<'_>) -> bool {
        let snapshot = &round.snapshot;
        let mut changed = false;
        for (slot, execs) in world.share(topo, state).own {
            let cores: Vec<CoreId> = snapshot.cores_of(slot).collect();
            if cores.is_empty() {
                continue;
            }
            let member = |i: &usize| {
                let e = snapshot.executors().at(topo.exec(*i));
                let core = CoreId::some(e.core).filter(|_| e.slot == slot.0);
                Member { index: *i, is_spout: snapshot.components().get(e.component as usize).kind == abi::KIND_SPOUT, core }
            };
            let members: Vec<Member> = execs.iter().map(member).collect();
            let at = cores::assign(snapshot, &world.machines, &topo.traffic, cores, &members, self.gain_pct);
            for (m, core) in members.iter().zip(at) {
                changed |= m.core != Some(core);
                plan.core(topo.exec(m.index), core);
            }
        }
        changed
    }
}

impl Scheduler for LatencyAware {
    const EXTENSIONS: &'static [Extension] = &[Extension::config::<Self>()];

    fn create(cx: &CreateCx<'_>) -> Result<Self, PluginError> {
        Self::read(cx.config)
    }

    fn schedule(&mut self, round: &Round<'_>, plan: &mut Plan<'_>) -> Result<Verdict, PluginError> {
        let world = World::new(round, self.distances);
        let should_stop = || round.should_stop();
        let pass = Pass { world: &world, gain_pct: self.gain_pct, should_stop: &should_stop };
        let mut state = world.start(round);
        for _ in 0..PASSES_MAX {
            let next = pass.run(&state);
            let is_settled = next == state;
            state = next;
            if is_settled || should_stop() {
                break;
            }
        }
        Ok(if self.write(round, &world, &state, plan) { Verdict::Done } else { Verdict::NoChange })
    }
}

impl Configured for LatencyAware {
    fn schema() -> String {
        Self::read("{}").map(|l| l.told.schema).unwrap_or_default()
    }
    fn effective(&self) -> String {
        self.told.effective.clone()
    }
}
