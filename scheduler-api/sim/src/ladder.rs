//! How long rounds take: on ever larger clusters, or on one of a file.
//!
//! Before: a [`Seat`], and a number of machines or a scenario. After: a [`Rung`]. Of a number of machines three quarters of the slots are asked
//! for, so that nothing is short.

use crate::compare::{Round, args, one_round};
use crate::scenario::{Component, Grouping, Input, Kind, Scenario, Step, Supervisors, Topology};
use crate::seat::Seat;
use crate::world::World;
use saetta_sdk::abi;
use serde::Serialize;
use std::collections::BTreeMap;

/// Machines in the study's ladder.
pub const RUNGS: [u32; 4] = [10, 100, 500, 2_000];
/// Most topologies of a rung of the ladder that are taken away and placed again; of a file's cluster each is.
pub const SAMPLES_MAX: usize = 20;
/// Rounds in which nothing has changed.
pub const AGAIN_ROUNDS: usize = 5;
/// Machines in a rack.
const RACK: u32 = 20;
/// Slots of a machine.
const SLOTS: u32 = 4;
/// Workers of a topology.
const WORKERS: u32 = 8;

/// What one size gave. Times in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rung {
    /// As it was asked for.
    pub plugin: String,
    /// Machines.
    pub nodes: usize,
    /// Topologies.
    pub topologies: usize,
    /// Executors, ackers included.
    pub executors: usize,
    /// Those that got a slot in the first round.
    pub scheduled: usize,
    /// Everything is placed.
    pub cold_ms: f64,
    /// Nothing has changed: median of [`AGAIN_ROUNDS`].
    pub again_ms: f64,
    /// What moves then, over all of them.
    pub again_moves: usize,
    /// One topology is placed, the others run: median.
    pub one_p50_ms: f64,
    /// The longest of those.
    pub one_max_ms: f64,
    /// What was refused or failed, the first of it.
    pub failed: Option<String>,
}

/// The cluster of a rung.
pub fn scenario(nodes: u32) -> Scenario {
    let group = |rack: u32| Supervisors {
        name: None,
        count: RACK.min(nodes - rack * RACK),
        rack: format!("rack-{rack:03}"),
        slots: SLOTS,
        cpu_percent: 800.0,
        memory_mb: 32_768.0,
        resources: BTreeMap::new(),
        cores: 0,
        cores_per_l3: 0,
    };
    let n_topologies = (nodes * SLOTS * 3 / 4 / WORKERS).max(1);
    let supervisors = (0..nodes.div_ceil(RACK)).map(group).collect();
    let topologies = (0..n_topologies).map(topology).collect();
    let steps = vec![Step::Submit { topology: None }, Step::Round];
    Scenario {
        source: format!("{nodes} nodes"),
        max_moves: None,
        min_worker_cpu_percent: 0.0,
        plugins: Default::default(),
        supervisors,
        topologies,
        steps,
    }
}

fn topology(i: u32) -> Topology {
    let component = |id: &str, kind, executors, reads: &[(&str, Grouping)]| Component {
        id: id.to_owned(),
        kind,
        executors: Some(executors),
        tasks: Some(executors),
        inputs: reads
            .iter()
            .map(|(from, grouping)| Input {
                from: (*from).to_owned(),
                stream: "default".to_owned(),
                grouping: *grouping,
                fields: Vec::new(),
                tuples_per_s: None,
                bytes_per_s: None,
            })
            .collect(),
        ..Component::default()
    };
    Topology {
        id: format!("topology-{i:05}"),
        workers: WORKERS,
        ackers: Some(4),
        default_cpu_percent: 20.0,
        default_onheap_mb: 128.0,
        components: vec![
            component("lines", Kind::Spout, 8, &[]),
            component("split", Kind::Bolt, 16, &[("lines", Grouping::Shuffle)]),
            component("count", Kind::Bolt, 12, &[("split", Grouping::Fields)]),
        ],
        ..Topology::default()
    }
}

/// One size with one scheduler.
pub fn climb(plugin: &str, seat: &mut Seat, nodes: u32) -> Rung {
    time(plugin, seat, &scenario(nodes), SAMPLES_MAX)
}

/// A scenario's machines and topologies, whatever its steps, with one scheduler. At most `samples` topologies are taken away and placed again.
pub fn time(plugin: &str, seat: &mut Seat, scenario: &Scenario, samples: usize) -> Rung {
    let mut world = World::all(scenario);
    let _ = seat.load();
    let (mut n, mut failed) = (0, None);
    let mut round = |world: &mut World, reason| {
        n += 1;
        let round = one_round(world, seat, args(n, reason, 1, abi::NONE), String::new());
        let Round { refused, failed: why, .. } = &round;
        failed = failed.take().or_else(|| why.clone()).or_else(|| refused.first().cloned());
        round
    };
    let cold = round(&mut world, abi::REASON_SUBMIT);
    let again: Vec<Round> = (0..AGAIN_ROUNDS).map(|_| round(&mut world, abi::REASON_PERIODIC)).collect();
    let ids: Vec<String> = world.topologies().map(str::to_owned).collect();
    let every = ids.len().div_ceil(samples).max(1);
    let one = ids.iter().step_by(every).map(|id| {
        world.clear_topology(id);
        round(&mut world, abi::REASON_SUBMIT).ms
    });
    let one = sorted(one.collect());
    Rung {
        plugin: plugin.to_owned(),
        nodes: world.n_nodes(),
        topologies: ids.len(),
        executors: cold.figures.executors,
        scheduled: cold.figures.scheduled,
        cold_ms: cold.ms,
        again_ms: middle(&sorted(again.iter().map(|r| r.ms).collect())),
        again_moves: again.iter().map(|r| r.figures.moves).sum(),
        one_p50_ms: middle(&one),
        one_max_ms: one.last().copied().unwrap_or(0.0),
        failed,
    }
}

fn sorted(mut ms: Vec<f64>) -> Vec<f64> {
    ms.sort_by(f64::total_cmp);
    ms
}

/// The shorter of the two in the middle; 0 for none.
fn middle(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}
