//! Random clusters, and what must hold of every scheduler on each: its plans are valid, it answers alike when asked alike, a round in which
//! nothing changed moves nothing, nothing new goes to a node that is closed, no more moves than may.
//!
//! Before: a seed. After: [`check`] says in one line what does not hold, and the seed says it again.

use crate::compare::{args, taken};
use crate::scenario::{Component, Grouping, Input, Kind, Scenario, Step, Supervisors, Topology};
use crate::seat::Seat;
use crate::world::World;
use saetta_sdk::abi;
use saetta_sdk::snapshot::Snapshot;
use std::collections::BTreeMap;

/// Numbers from a seed (splitmix64): the same on every machine.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }
    /// A number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// From `low` to `high`, both included.
    pub fn from(&mut self, low: u32, high: u32) -> u32 {
        low + (self.roll() % u64::from(high - low + 1)) as u32
    }
    /// True once in `n`.
    pub fn once_in(&mut self, n: u32) -> bool {
        self.from(1, n) == 1
    }
    /// One of several.
    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.roll() as usize % all.len()]
    }
}

/// A small random cluster with one to five topologies and up to eight steps.
pub fn scenario(seed: u64) -> Scenario {
    let mut dice = Dice::new(seed);
    let supervisors: Vec<Supervisors> = (0..dice.from(1, 3)).map(|rack| group(&mut dice, rack)).collect();
    let topologies: Vec<Topology> = (0..dice.from(1, 5)).map(|i| topology(&mut dice, i)).collect();
    let mut steps = Vec::new();
    for t in &topologies {
        steps.push(Step::Submit { topology: Some(t.id.clone()) });
        if dice.once_in(3) {
            steps.push(Step::AddRack(group(&mut dice, 9)));
        }
        if t.workers > 1 && dice.once_in(3) {
            steps.push(Step::Rebalance { topology: t.id.clone(), workers: Some(dice.from(1, 6)), executors: BTreeMap::new() });
        }
    }
    if topologies.len() > 1 && dice.once_in(2) {
        steps.push(Step::Kill { topology: dice.of(&topologies).id.clone() });
    }
    let max_moves = dice.once_in(3).then(|| dice.from(0, 4));
    Scenario {
        source: format!("seed {seed}"),
        max_moves,
        min_worker_cpu_percent: 0.0,
        plugins: Default::default(),
        supervisors,
        topologies,
        steps,
    }
}

fn group(dice: &mut Dice, rack: u32) -> Supervisors {
    let cores = if dice.once_in(2) { dice.from(1, 8) } else { 0 };
    Supervisors {
        name: None,
        count: dice.from(1, 4),
        rack: if dice.once_in(4) { String::new() } else { format!("r{rack}") },
        slots: dice.from(1, 5),
        cpu_percent: f64::from(dice.from(1, 8) * 100),
        memory_mb: f64::from(dice.from(1, 8) * 1024),
        resources: if dice.once_in(4) { BTreeMap::from([("gpu".to_owned(), 2.0)]) } else { BTreeMap::new() },
        cores,
        cores_per_l3: if cores > 0 { dice.from(0, cores) } else { 0 },
    }
}

fn topology(dice: &mut Dice, i: u32) -> Topology {
    let n = dice.from(1, 4);
    let components = (0..n).map(|c| component(dice, c)).collect();
    Topology {
        id: format!("t{i}"),
        workers: dice.from(1, 6),
        ackers: if dice.once_in(3) { None } else { Some(dice.from(0, 3)) },
        priority: dice.from(0, 2) as i32,
        owner: (*dice.of(&["", "ann", "bob"])).to_owned(),
        isolate_machines: if dice.once_in(6) { dice.from(1, 2) } else { 0 },
        max_heap_mb: *dice.of(&[0.0, 0.0, 768.0]),
        default_cpu_percent: f64::from(dice.from(0, 3) * 10),
        default_onheap_mb: f64::from(dice.from(0, 2) * 128),
        components,
        ..Topology::default()
    }
}

fn component(dice: &mut Dice, c: u32) -> Component {
    const GROUPINGS: [Grouping; 7] =
        [Grouping::Shuffle, Grouping::Fields, Grouping::All, Grouping::Global, Grouping::Direct, Grouping::LocalOrShuffle, Grouping::None];
    let measured = dice.once_in(3);
    let input = |dice: &mut Dice| Input {
        from: format!("c{}", dice.from(0, c - 1)),
        stream: "default".to_owned(),
        grouping: *dice.of(&GROUPINGS),
        fields: Vec::new(),
        tuples_per_s: measured.then(|| u64::from(dice.from(0, 100_000))),
        bytes_per_s: measured.then(|| u64::from(dice.from(0, 10_000_000))),
    };
    let inputs = if c == 0 { Vec::new() } else { vec![input(dice)] };
    let tasks = dice.from(1, 10);
    Component {
        id: format!("c{c}"),
        kind: if c == 0 { Kind::Spout } else { Kind::Bolt },
        executors: Some(dice.from(1, tasks)),
        tasks: Some(tasks),
        cpu_percent: dice.once_in(2).then(|| f64::from(dice.from(0, 150))),
        onheap_mb: dice.once_in(2).then(|| f64::from(dice.from(0, 1024))),
        offheap_mb: dice.once_in(4).then(|| f64::from(dice.from(0, 256))),
        resources: if dice.once_in(10) { BTreeMap::from([("gpu".to_owned(), 1.0)]) } else { BTreeMap::new() },
        inputs,
    }
}

/// What came of a cluster: enough to see that a test looked at something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Rounds with a plan.
    pub rounds: usize,
    /// Executors placed that had no slot.
    pub placed: usize,
    /// Running executors moved.
    pub moves: usize,
    /// Executors that stayed without a slot.
    pub unplaced: usize,
}

impl Seen {
    /// Counts another cluster in.
    pub fn add(&mut self, other: Seen) {
        self.rounds += other.rounds;
        self.placed += other.placed;
        self.moves += other.moves;
        self.unplaced += other.unplaced;
    }
}

/// Plays the random cluster of a seed with two instances of one scheduler. `Err` says what does not hold, and in which step.
pub fn check(seed: u64, one: &mut Seat, two: &mut Seat) -> Result<Seen, String> {
    let scenario = scenario(seed);
    let mut dice = Dice::new(!seed);
    let mut world = World::new(&scenario);
    let mut seen = Seen::default();
    let mut n = 0;
    let mut steps = scenario.steps.clone();
    // Machines that go and come, and one that is closed: chosen among those there are when it is their turn.
    steps.extend([Step::Round, Step::Round, Step::Round]);
    let n_scripted = scenario.steps.len();
    let mut lost = None;
    for (i, step) in steps.iter().enumerate() {
        let (mut reason, mut text) = (world.step(step), step.text());
        let nodes: Vec<String> = world.nodes().map(str::to_owned).collect();
        match i - i.min(n_scripted) {
            0 if i == n_scripted => {
                let node = dice.of(&nodes).clone();
                world.close(&node, true);
                text = format!("node {node} closed");
            }
            1 if nodes.len() > 1 => {
                let node = dice.of(&nodes).clone();
                text = format!("node-lost {node}");
                reason = world.step(&Step::NodeLost { node: node.clone() });
                lost = Some(node);
            }
            2 => {
                if let Some(node) = lost.take() {
                    text = format!("node-back {node}");
                    reason = world.step(&Step::NodeBack { node });
                }
            }
            _ => {}
        }
        let failed = |what: String| format!("seed {seed}, step {i} ({text}): {what}");
        n += 1;
        let max_moves = scenario.max_moves.unwrap_or(abi::NONE);
        let after = round(&world, (one, two), n, reason, max_moves, &mut seen).map_err(failed)?;
        settle(&mut world, &after);
        n += 1;
        let moves = seen.moves;
        let again = round(&world, (one, two), n, abi::REASON_PERIODIC, max_moves, &mut seen).map_err(failed)?;
        // Where moves are limited, the rest of what the round before wanted may come now.
        if seen.moves != moves && scenario.max_moves.is_none() {
            return Err(failed(format!("{} executors move in a second round without change", seen.moves - moves)));
        }
        settle(&mut world, &again);
    }
    Ok(seen)
}

fn settle(world: &mut World, after: &[u32]) {
    let bytes = world.pack();
    world.apply(&Snapshot::new(&bytes).expect("packed in canonical order"), after);
}

/// A round with all that can be said of it alone.
fn round(world: &World, seats: (&mut Seat, &mut Seat), n: u64, reason: u32, max_moves: u32, seen: &mut Seen) -> Result<Vec<u32>, String> {
    let bytes = world.pack();
    let snapshot = Snapshot::new(&bytes).expect("packed in canonical order");
    let args = args(n, reason, 1, max_moves);
    let answer = seats.0.round(&bytes, args)?;
    if seats.1.round(&bytes, args)? != answer {
        return Err("two instances asked alike answer differently".to_owned());
    }
    let (after, refused) = taken(&bytes, &answer, seats.0.keeps_resources());
    if !refused.is_empty() {
        return Err(refused.join("; "));
    }
    let mut moves = 0;
    for (row, now) in snapshot.executors().iter().zip(&after) {
        let (is_new, was_placed) = (*now != row.slot, row.slot != abi::NONE);
        moves += u32::from(is_new && was_placed);
        seen.placed += usize::from(is_new && !was_placed);
        seen.unplaced += usize::from(*now == abi::NONE);
        if is_new && *now != abi::NONE {
            let node = snapshot.nodes().get(snapshot.slots().get(*now as usize).node as usize);
            if node.flags & abi::NODE_BLACKLISTED != 0 {
                return Err(format!("something new is placed on {}, which is blacklisted", snapshot.text(node.id)));
            }
        }
    }
    if max_moves != abi::NONE && moves > max_moves {
        return Err(format!("{moves} executors move, and {max_moves} may"));
    }
    seen.moves += moves as usize;
    seen.rounds += 1;
    Ok(after)
}
