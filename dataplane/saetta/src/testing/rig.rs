//! A program on stepped loops under a manual clock: one seed, one run.
//!
//! Before: `bolt.rs` or `topology.rs` has a program. After: its loops have taken turns in the order of the seed until nothing was left to do.
//! Time stands still while there is work, and moves only when it is told to, in steps of [`STEP`].

use crate::stepped::Stepped;
use saetta_engine::{Clock, CoreLoop, Program};
use saetta_model::config::Config;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How far the clock moves at once. Whatever is due within a step is done at its end.
pub(crate) const STEP: Duration = Duration::from_millis(1);
/// Turns of all loops together without an end, after which a run is taken for endless.
pub(crate) const TURNS_MAX: u64 = 2_000_000;
/// The least silence that is taken for endless; twice the message timeout if that is longer, since trees may wait for it.
const SILENCE_MIN: Duration = Duration::from_secs(60);
/// Most turns one loop takes in a row: so many that lanes and windows fill up on one side.
const BURST_MAX: u64 = 7;
/// Bursts between two looks whether anything is left to do, per loop.
const BURSTS: u64 = 4;
/// Sweeps over all loops without work that mean idle: the first gives credit back, which the second may use.
const SWEEPS: usize = 2;

/// See the head of this file.
pub(crate) struct Rig {
    stepped: Stepped,
    clock: Clock,
    seed: u64,
    random: u64,
    turns_max: u64,
    /// How long nothing may come due before a run is taken for endless.
    silence_max: Duration,
    /// What components reported, one line each.
    pub(crate) errors: Vec<String>,
}

/// splitmix64.
fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rig {
    /// Builds the engine. The seed chooses the loop of each executor too.
    pub(crate) fn new(program: &Program, config: &Config, n_loops: usize, seed: u64, turns_max: u64) -> crate::Result<Self> {
        let clock = Clock::manual();
        let place = |component: &str, executor: usize| {
            let mut state = component.bytes().fold(seed ^ executor as u64, |state, byte| mix(&mut (state ^ u64::from(byte))));
            mix(&mut state) as usize
        };
        let stepped = Stepped::seeded(program, config, n_loops, &place, clock.clone(), seed)?;
        let timeout = config.duration("topology.message.timeout.secs").unwrap_or_default();
        let silence_max = (2 * timeout).max(SILENCE_MIN);
        Ok(Rig { stepped, clock, seed, random: seed, turns_max, silence_max, errors: Vec::new() })
    }

    /// Lets loops take turns until none finds anything to do. The error says who ended the run, or that it does not end.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        let mut turns = 0;
        loop {
            let work = self.bursts(&mut turns);
            self.look()?;
            if work == 0 && (0..SWEEPS).all(|_| self.sweep() == 0) {
                self.stepped.publish();
                return self.look();
            }
            if turns > self.turns_max {
                return Err(format!(
                    "seed {}: still busy after {turns} turns of the loops; a spout that always has something to emit keeps it so: mock it, let it end, or raise `turns_max`",
                    self.seed
                ));
            }
        }
    }

    /// Moves the clock, step by step, and does what comes due at each.
    pub(crate) fn advance(&mut self, by: Duration) -> Result<(), String> {
        let mut left = by;
        self.settle()?;
        while !left.is_zero() {
            let step = left.min(STEP);
            left -= step;
            self.step(step)?;
        }
        Ok(())
    }

    /// Lets time pass whenever there is nothing to do, until every task has ended; then closes them.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        self.settle()?;
        let (mut steps, mut silent) = (0, Duration::ZERO);
        while !self.stepped.ended() {
            self.stepped.end_cycles();
            silent = if self.step(STEP)? { Duration::ZERO } else { silent + STEP };
            steps += 1;
            if silent > self.silence_max || steps > self.turns_max {
                let (open, in_flight) = (self.not_ended().join(", "), self.in_flight());
                return Err(format!(
                    "seed {}: no end after {steps} ms of virtual time, the last {} ms of them without anything to do; not ended: {open}; trees in flight: {in_flight}; a spout that never says Done has to be mocked, and an anchor that is kept for ever keeps its bolt",
                    self.seed,
                    silent.as_millis()
                ));
            }
        }
        self.stepped.close();
        Ok(())
    }

    /// Moves the clock once. True = something came due.
    fn step(&mut self, by: Duration) -> Result<bool, String> {
        self.clock.advance(by);
        let due = self.sweep() > 0;
        if due {
            self.settle()?
        } else {
            self.look()?
        }
        Ok(due)
    }

    fn not_ended(&self) -> Vec<String> {
        let executors = self.stepped.shared().executors();
        let open = executors.iter().filter(|e| !e.component.is_system() && !e.ended.load(Ordering::Relaxed));
        open.map(|e| format!("`{}`", e.component)).collect()
    }

    /// Trees that are open, of all spouts.
    pub(crate) fn in_flight(&self) -> u64 {
        self.stepped.shared().loops.iter().map(|l| l.pending_trees.load(Ordering::Relaxed)).sum()
    }

    /// Nanoseconds of the virtual clock.
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// What components did, by id.
    pub(crate) fn components(&self) -> BTreeMap<String, crate::run::ComponentSummary> {
        crate::run::components(self.stepped.shared())
    }

    /// First task of a component.
    pub(crate) fn task(&self, component: &str) -> u32 {
        let executors = self.stepped.shared().executors();
        executors.iter().find(|e| e.component.as_str() == component).expect("part of the program").id.first
    }

    /// The loops, to look at.
    pub(crate) fn loops(&self) -> impl Iterator<Item = &CoreLoop> {
        (0..self.stepped.n_loops()).map(|l| self.stepped.core_loop(l))
    }

    fn bursts(&mut self, turns: &mut u64) -> usize {
        let n_loops = self.stepped.n_loops();
        let mut work = 0;
        for _ in 0..BURSTS * n_loops as u64 {
            let draw = mix(&mut self.random);
            let core_loop = (draw >> 32) as usize % n_loops;
            for _ in 0..=draw % BURST_MAX {
                work += self.stepped.step(core_loop);
                *turns += 1;
            }
        }
        work
    }

    /// One turn of each loop, the seed choosing who is first.
    fn sweep(&mut self) -> usize {
        let n_loops = self.stepped.n_loops();
        let first = mix(&mut self.random) as usize % n_loops;
        (0..n_loops).map(|l| self.stepped.step((first + l) % n_loops)).sum()
    }

    /// Collects reports; the error is why the engine cannot go on.
    fn look(&mut self) -> Result<(), String> {
        let shared = self.stepped.shared();
        while let Some(report) = shared.reports.pop() {
            self.errors.push(format!("{}: {}", report.component, report.text));
        }
        match shared.fatal.get() {
            Some(report) => Err(format!("seed {}: component `{}` ended the run: {}", self.seed, report.component, report.text)),
            None => Ok(()),
        }
    }
}
