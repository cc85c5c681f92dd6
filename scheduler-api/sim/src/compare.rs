//! A scenario played with one scheduler: a round after each step, validated, put in force, measured.
//!
//! Before: a [`Scenario`] and a [`Seat`]. After: a [`Report`]; reports of several schedulers on one scenario are comparable line by line.
//! What is refused or fails changes nothing: what runs stays, and the next step goes on from there.

use crate::measure::{Figures, figures};
use crate::scenario::Scenario;
use crate::seat::Seat;
use crate::world::World;
use saetta_sched_host::Answer;
use saetta_sched_host::ask::judge;
use saetta_sdk::abi;
use saetta_sdk::call::RoundArgs;
use saetta_sdk::snapshot::Snapshot;
use serde::Serialize;
use std::time::Instant;

/// Time a scheduler is told it has for a round. What stops one that takes longer is the helper's deadline.
pub const BUDGET_NS: u64 = 5_000_000_000;

/// What one scheduler did with a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// As it was asked for.
    pub plugin: String,
    /// One for each step.
    pub rounds: Vec<Round>,
    /// Running executors that were moved, over all rounds.
    pub moves: usize,
    /// Parts of plans that were refused, over all rounds.
    pub refused: usize,
    /// Rounds without an answer.
    pub failed: usize,
    /// The median round (the shorter of the two in the middle), milliseconds.
    pub p50_ms: f64,
    /// The longest round, milliseconds.
    pub max_ms: f64,
}

/// One round.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Round {
    /// What happened before it.
    pub step: String,
    /// What the scheduler took, milliseconds.
    pub ms: f64,
    /// The placement that is in force after it.
    pub figures: Figures,
    /// Topologies whose part of the plan was refused, with the rule.
    pub refused: Vec<String>,
    /// Why there is no plan at all.
    pub failed: Option<String>,
}

impl Report {
    /// The placement after the last round.
    pub fn last(&self) -> Figures {
        self.rounds.last().map(|r| r.figures.clone()).unwrap_or_default()
    }
}

/// Arguments of a round. `n` counts rounds from 1.
pub fn args(n: u64, reason: u32, seed: u64, max_moves: u32) -> RoundArgs {
    RoundArgs { reason, round_id: n, seed, max_moves, flags: 0, budget_ns: BUDGET_NS }
}

/// What is in force after an answer, and what is refused of it, as `topology: rule`. `keeps_resources` is the seat's.
pub fn taken(bytes: &[u8], answer: &Answer, keeps_resources: bool) -> (Vec<u32>, Vec<String>) {
    let snapshot = Snapshot::new(bytes).expect("the caller made it");
    let mut after: Vec<u32> = snapshot.executors().iter().map(|e| e.slot).collect();
    let mut refused = Vec::new();
    for (t, verdict) in snapshot.topologies().iter().zip(judge(bytes, answer, keeps_resources)) {
        let rows = t.first_exec as usize..(t.first_exec + t.n_execs) as usize;
        match verdict {
            Ok(()) => after[rows.clone()].copy_from_slice(&answer.slot_of_exec[rows]),
            Err(rule) => refused.push(format!("{}: {rule}", snapshot.text(t.id))),
        }
    }
    (after, refused)
}

/// Plays a scenario.
pub fn play(scenario: &Scenario, plugin: &str, seat: &mut Seat, seed: u64) -> Report {
    let mut world = World::new(scenario);
    let mut rounds = Vec::with_capacity(scenario.steps.len());
    let max_moves = scenario.max_moves.unwrap_or(abi::NONE);
    // What cannot be loaded says so in its first round.
    let _ = seat.load();
    for (n, step) in scenario.steps.iter().enumerate() {
        let reason = world.step(step);
        let round = one_round(&mut world, seat, args(n as u64 + 1, reason, seed, max_moves), step.text());
        rounds.push(round);
    }
    let mut ms: Vec<f64> = rounds.iter().map(|r| r.ms).collect();
    ms.sort_by(f64::total_cmp);
    Report {
        plugin: plugin.to_owned(),
        moves: rounds.iter().map(|r| r.figures.moves).sum(),
        refused: rounds.iter().map(|r| r.refused.len()).sum(),
        failed: rounds.iter().filter(|r| r.failed.is_some()).count(),
        p50_ms: ms.get(ms.len().saturating_sub(1) / 2).copied().unwrap_or(0.0),
        max_ms: ms.last().copied().unwrap_or(0.0),
        rounds,
    }
}

/// One round on a world; its plan is in force afterwards.
pub fn one_round(world: &mut World, seat: &mut Seat, args: RoundArgs, step: String) -> Round {
    let bytes = world.pack();
    let snapshot = Snapshot::new(&bytes).expect("packed in canonical order");
    let began = Instant::now();
    let answer = seat.round(&bytes, args);
    let ms = began.elapsed().as_secs_f64() * 1e3;
    let (after, refused, failed) = match answer {
        Ok(answer) => {
            let (after, refused) = taken(&bytes, &answer, seat.keeps_resources());
            (after, refused, None)
        }
        Err(why) => (snapshot.executors().iter().map(|e| e.slot).collect(), Vec::new(), Some(why)),
    };
    let figures = figures(&snapshot, &after);
    world.apply(&snapshot, &after);
    Round { step, ms, figures, refused, failed }
}
