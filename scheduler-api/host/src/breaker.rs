//! Whether a plugin is asked at all: after too many failed rounds it is quarantined, tried again in the shadow, and taken back.
//!
//! Before: `round` is about to ask, or has an answer or a failure. After: run it, try it without using its plan, or leave it alone.
//! Pure: time arrives as milliseconds of any monotonic clock. Also here: [`Poison`], which keeps a round that crashed a plugin from it.

use std::collections::{BTreeMap, VecDeque};

/// Failed rounds in a row that open the breaker.
pub const FAILURES_IN_A_ROW: usize = 3;
/// Failed rounds among the last [`ROUNDS_LOOKED_AT`] that open it.
pub const FAILURES_MANY: usize = 5;
/// See [`FAILURES_MANY`].
pub const ROUNDS_LOOKED_AT: usize = 10;
/// Waits before the trials after it opened; the last one repeats.
pub const PROBE_AFTER_MS: [u64; 5] = [30_000, 60_000, 120_000, 300_000, 600_000];
/// Good trials that close it.
pub const GOOD_PROBES: u32 = 2;
const _: () = assert!(FAILURES_IN_A_ROW <= FAILURES_MANY && FAILURES_MANY <= ROUNDS_LOOKED_AT);

/// What to do with a plugin in this round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Ask it and use its plan.
    Run,
    /// Ask it, and use the fallback's plan whatever it says.
    Probe,
    /// Do not ask it.
    Wait {
        /// Until the next trial.
        ms: u64,
    },
}

/// State of one plugin. Begins closed.
#[derive(Debug, Clone, Default)]
pub struct Breaker {
    /// The last rounds, newest last; true = failed.
    rounds: VecDeque<bool>,
    open: Option<Open>,
}

#[derive(Debug, Clone)]
struct Open {
    why: String,
    /// Index into `PROBE_AFTER_MS` of the wait that runs.
    step: usize,
    probe_at_ms: u64,
    good: u32,
}

impl Breaker {
    /// What to do now.
    pub fn gate(&self, now_ms: u64) -> Gate {
        match &self.open {
            None => Gate::Run,
            Some(open) if now_ms >= open.probe_at_ms => Gate::Probe,
            Some(open) => Gate::Wait { ms: open.probe_at_ms - now_ms },
        }
    }

    /// Why it is open; `None` = closed.
    pub fn why_open(&self) -> Option<&str> {
        self.open.as_ref().map(|open| open.why.as_str())
    }

    /// A round it was asked in went well.
    pub fn succeeded(&mut self, now_ms: u64) {
        match &mut self.open {
            None => self.remember(false),
            Some(open) => {
                open.good += 1;
                // The proof is wanted soon, however long the wait for this one was.
                open.probe_at_ms = now_ms + PROBE_AFTER_MS[0];
                if open.good >= GOOD_PROBES {
                    self.reset();
                }
            }
        }
    }

    /// A round it was asked in failed. True = that opened it.
    pub fn failed(&mut self, now_ms: u64, why: &str) -> bool {
        if let Some(open) = &mut self.open {
            open.step = (open.step + 1).min(PROBE_AFTER_MS.len() - 1);
            open.good = 0;
            open.probe_at_ms = now_ms + PROBE_AFTER_MS[open.step];
            why.clone_into(&mut open.why);
            return false;
        }
        self.remember(true);
        let in_a_row = self.rounds.iter().rev().take_while(|failed| **failed).count();
        let many = self.rounds.iter().filter(|failed| **failed).count();
        if in_a_row < FAILURES_IN_A_ROW && many < FAILURES_MANY {
            return false;
        }
        self.open = Some(Open { why: why.to_owned(), step: 0, probe_at_ms: now_ms + PROBE_AFTER_MS[0], good: 0 });
        true
    }

    /// An operator, or enough good trials, take it back.
    pub fn reset(&mut self) {
        *self = Breaker::default();
    }

    fn remember(&mut self, failed: bool) {
        self.rounds.push_back(failed);
        if self.rounds.len() > ROUNDS_LOOKED_AT {
            self.rounds.pop_front();
        }
    }
}

/// Times a cluster as it is may crash the same plugin; then it is not given to it again.
pub const CRASHES_PER_SNAPSHOT: u32 = 2;
/// Snapshots remembered; the oldest is forgotten first.
const SNAPSHOTS_MAX: usize = 16;

/// Snapshots, by a hash of what a scheduler looks at, that crashed a plugin.
#[derive(Debug, Clone, Default)]
pub struct Poison {
    /// How often, and how the last time.
    crashes: BTreeMap<[u8; 32], (u32, String)>,
    order: VecDeque<[u8; 32]>,
}

impl Poison {
    /// True where no snapshot crashed it yet: the hash need not be computed.
    pub fn is_empty(&self) -> bool {
        self.crashes.is_empty()
    }

    /// It crashed on this one.
    pub fn crashed(&mut self, snapshot: [u8; 32], why: &str) {
        if !self.crashes.contains_key(&snapshot) {
            self.order.push_back(snapshot);
        }
        let (n, last) = self.crashes.entry(snapshot).or_default();
        *n += 1;
        why.clone_into(last);
        if self.order.len() > SNAPSHOTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.crashes.remove(&oldest);
        }
    }

    /// Not to be given to it again: how it crashed last.
    pub fn refuses(&self, snapshot: &[u8; 32]) -> Option<&str> {
        self.crashes.get(snapshot).filter(|(n, _)| *n >= CRASHES_PER_SNAPSHOT).map(|(_, why)| why.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1000;

    fn opened() -> Breaker {
        let mut breaker = Breaker::default();
        assert!(!breaker.failed(0, "a") && !breaker.failed(0, "b") && breaker.failed(0, "c"));
        breaker
    }

    #[test]
    fn three_failures_in_a_row_open_it_and_two_do_not() {
        let mut breaker = Breaker::default();
        for _ in 0..2 {
            assert!(!breaker.failed(0, "x") && !breaker.failed(0, "x"));
            breaker.succeeded(0);
            assert_eq!(breaker.gate(0), Gate::Run);
        }
        assert_eq!(opened().gate(0), Gate::Wait { ms: 30 * SECOND });
        assert_eq!(opened().why_open(), Some("c"));
    }

    #[test]
    fn five_failures_in_ten_rounds_open_it() {
        let mut breaker = Breaker::default();
        let opened: Vec<bool> = (0..5)
            .map(|_| {
                breaker.succeeded(0);
                breaker.failed(0, "every second")
            })
            .collect();
        assert_eq!(opened, [false, false, false, false, true]);
        // One in three is not enough, for ever.
        let mut breaker = Breaker::default();
        for _ in 0..100 {
            breaker.succeeded(0);
            breaker.succeeded(0);
            assert!(!breaker.failed(0, "now and then"));
        }
    }

    #[test]
    fn it_is_tried_at_growing_distances_and_taken_back_after_two_good_trials() {
        let (mut breaker, mut now) = (opened(), 0);
        for wait in [30, 60, 120, 300, 600, 600] {
            assert_eq!(breaker.gate(now), Gate::Wait { ms: wait * SECOND });
            now += wait * SECOND;
            assert_eq!(breaker.gate(now), Gate::Probe);
            assert!(!breaker.failed(now, "still"));
        }
        now += 600 * SECOND;
        breaker.succeeded(now);
        assert_eq!(breaker.gate(now), Gate::Wait { ms: 30 * SECOND }, "one good trial is not enough");
        now += 30 * SECOND;
        breaker.succeeded(now);
        assert_eq!(breaker.gate(now), Gate::Run);
        assert!(!breaker.failed(now, "x"), "the past is forgotten");
    }

    #[test]
    fn a_failed_trial_between_good_ones_counts_them_anew() {
        let mut breaker = opened();
        breaker.succeeded(0);
        breaker.failed(0, "again");
        breaker.succeeded(0);
        assert_ne!(breaker.gate(0), Gate::Run);
        breaker.reset();
        assert_eq!(breaker.gate(0), Gate::Run);
    }

    #[test]
    fn a_snapshot_that_crashed_it_twice_is_kept_from_it_and_others_are_not() {
        let mut poison = Poison::default();
        assert!(poison.is_empty());
        poison.crashed([1; 32], "first");
        assert_eq!(poison.refuses(&[1; 32]), None);
        poison.crashed([1; 32], "second");
        assert_eq!((poison.refuses(&[1; 32]), poison.refuses(&[2; 32])), (Some("second"), None));
        for i in 0..SNAPSHOTS_MAX as u8 {
            poison.crashed([100 + i; 32], "other");
        }
        assert_eq!(poison.refuses(&[1; 32]), None, "what is remembered is bounded");
    }
}
