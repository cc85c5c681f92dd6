//! Latency-aware: executors that talk much stand near each other - on one core's cache before one NUMA node before one host before one rack.
//!
//! Before: the host packed the cluster and called through the C ABI. After: a slot for each executor, and a core where the host knows cores.
//! The cost of a placement is the sum over all pairs of executors of bytes per second times distance; bytes are measured
//! (`saetta.stats/1`) or guessed from groupings and parallelism (`traffic.rs`), distances are configured (`machines.rs`). It is kept low
//! subject to workers wanted, free slots (`choose.rs`), what the topology asks for of its workers and nodes (`limits.rs`), and room by cores
//! (`pass.rs`): a greedy start, heaviest edges first (`start.rs`), and a local improvement that is bounded and looks at the deadline
//! (`layout.rs`). What runs moves only for a gain above a threshold, for one that waits and fits nowhere else, or where `even` too would
//! move it and less would cross nodes: so never more crosses nodes than with `even`, which keeps no limits. Cores come last (`cores.rs`).
//! The state is the SDK's board; a pass is repeated until it changes nothing, so that a second round finds nothing to do.
//! Pure: no clock, no randomness, no state between rounds. Groups are components: O(executors x workers) a sweep, at most 2^18
//! steps a search, O(nodes x workers) to choose slots. Not here: resources.
#![forbid(unsafe_code)]

mod choose;
mod cores;
mod layout;
mod limits;
mod machines;
mod pass;
mod reasons;
mod start;
mod traffic;

use cores::Member;
use machines::{Distances, Machines};
use pass::{Pass, Topo};
use saetta_sdk::config::{Config, Told};
use saetta_sdk::deal::{Board, Share};
use saetta_sdk::{Configured, CoreId, CreateCx, ExecId, Extension, Plan, PluginError, Round, Scheduler, Verdict, abi};

/// Largest distance.
const DISTANCE_MAX: u64 = 1_000_000;

/// The scheduler. It keeps nothing between rounds.
pub struct LatencyAware {
    gain_pct: i128,
    distances: Distances,
    told: Told,
}

saetta_sdk::export_scheduler!(
    LatencyAware,
    id = "latency-aware",
    claims = ["saetta.traffic/1", "saetta.constraints/1"],
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

    /// True = an executor gets another core than it has.
    fn write_cores(&self, machines: &Machines, topo: &Topo, board: &Board<'_>, share: &Share, plan: &mut Plan<'_>) -> bool {
        let snapshot = board.snapshot();
        let mut changed = false;
        for own in &share.own {
            let cores: Vec<CoreId> = snapshot.cores_of(own.slot).collect();
            if cores.is_empty() {
                continue;
            }
            let member = |exec: &ExecId| {
                let e = snapshot.executors().at(*exec);
                let core = CoreId::some(e.core).filter(|_| e.slot == own.slot.0);
                let is_spout = snapshot.components().get(e.component as usize).kind == abi::KIND_SPOUT;
                Member { group: topo.group(share, *exec), is_spout, core }
            };
            let members: Vec<Member> = own.executors.iter().map(member).collect();
            let at = cores::assign(&snapshot, machines, &topo.traffic, cores, &members, self.gain_pct);
            for ((exec, m), core) in own.executors.iter().zip(&members).zip(at) {
                changed |= m.core != Some(core);
                plan.core(*exec, core);
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
        let machines = Machines::new(&round.snapshot, self.distances);
        let topologies: Vec<Topo> = Board::new(round).shares().iter().map(|share| Topo::new(&round.snapshot, share)).collect();
        let should_stop = || round.should_stop();
        let pass = Pass { machines: &machines, topologies: &topologies, gain_pct: self.gain_pct, should_stop: &should_stop };
        let board = Board::settled(round, |board| pass.run(board));
        let mut changed = board.write(plan);
        for (topo, share) in topologies.iter().zip(board.shares()) {
            if plan.takes_cores() {
                changed |= self.write_cores(&machines, topo, &board, share, plan);
            }
            if round.wants_reasons() {
                reasons::explain(round, &machines, topo, &board, share);
            }
        }
        Ok(if changed { Verdict::Done } else { Verdict::NoChange })
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
