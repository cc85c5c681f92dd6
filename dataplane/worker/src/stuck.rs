//! Which core loops stand still, and whose doing it is. A loop turns at least ten times a second, also while it sleeps, so one whose counter
//! does not move is held up in user code - or wants to run and is not given its core, which the kernel counts. Pure: counters and time
//! come from the watchdog.

use std::time::{Duration, Instant};

/// A loop that is seen to stand still so long is reported: with a look every tenth of a second, within a second of its last turn.
pub(crate) const STUCK_AFTER: Duration = Duration::from_millis(800);
/// A watchdog that did not look for so long was itself stopped, and judges nobody by that time.
const OWN_GAP_MAX: Duration = Duration::from_millis(500);

/// What changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// This loop stands still in user code.
    Stuck(usize),
    /// This loop stands still since others have its core: for so long of the last so long.
    Starved(usize, Duration, Duration),
    /// This loop, reported before, goes on; it stood still for so long.
    GoesOn(usize, Duration),
}

impl Change {
    /// Which loop.
    pub(crate) fn of(&self) -> usize {
        let (Change::Stuck(l) | Change::Starved(l, ..) | Change::GoesOn(l, _)) = self;
        *l
    }
}

/// What the kernel says of a loop's thread, since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    /// Time on its core.
    pub(crate) on_core: Duration,
    /// Time it was ready to run without its core; a wait that lasts is counted only when it is over.
    pub(crate) delayed: Duration,
    /// It runs, or waits for its core.
    pub(crate) ready: bool,
}

impl Clock {
    /// How long it has waited for its core since `before`, which was up to `still` ago.
    fn waited(&self, before: Clock, still: Duration) -> Duration {
        let counted = self.delayed.saturating_sub(before.delayed);
        if !self.ready {
            return counted;
        }
        counted.max(still.saturating_sub(self.on_core.saturating_sub(before.on_core)))
    }
}

struct Seen {
    turns: u64,
    since: Instant,
    /// Its clock when it was first seen to stand still.
    clock: Option<Clock>,
    told: bool,
    stuck: bool,
}

impl Seen {
    fn new(now: Instant) -> Self {
        Seen { turns: 0, since: now, clock: None, told: false, stuck: false }
    }
}

/// See the head of this file.
pub(crate) struct Stuck {
    loops: Vec<Seen>,
    last_look: Instant,
}

impl Stuck {
    pub(crate) fn new(n_loops: usize, now: Instant) -> Self {
        let loops = (0..n_loops).map(|_| Seen::new(now)).collect();
        Stuck { loops, last_look: now }
    }

    /// Looks at all counters, often enough that gaps between looks stay below half a second; `None` = this loop does not run. `clock` is
    /// asked only about loops that stand still.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        turns: impl Iterator<Item = Option<u64>>,
        mut clock: impl FnMut(usize) -> Clock,
    ) -> Vec<Change> {
        let paused = now.saturating_duration_since(self.last_look) > OWN_GAP_MAX;
        self.last_look = now;
        let mut changes = Vec::new();
        for (i, (seen, turns)) in self.loops.iter_mut().zip(turns).enumerate() {
            let still = now.saturating_duration_since(seen.since);
            let Some(turns) = turns else {
                *seen = Seen::new(now);
                continue;
            };
            if turns != seen.turns {
                if seen.told {
                    changes.push(Change::GoesOn(i, still));
                }
                *seen = Seen { turns, ..Seen::new(now) };
                continue;
            }
            let before = *seen.clock.get_or_insert_with(|| clock(i));
            if paused && !seen.told {
                seen.since = now;
                seen.clock = None;
            } else if still >= STUCK_AFTER && !seen.stuck {
                let waited = clock(i).waited(before, still);
                if waited * 2 < still {
                    seen.stuck = true;
                    changes.push(Change::Stuck(i));
                } else if !seen.told {
                    changes.push(Change::Starved(i, waited, still));
                }
                seen.told = true;
            }
        }
        changes
    }

    /// True while this loop is reported as held up in user code.
    pub(crate) fn is_stuck(&self, on_loop: usize) -> bool {
        self.loops.get(on_loop).is_some_and(|s| s.stuck)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Of a thread that sleeps now and has waited for its core so long.
    fn delayed(n: u64) -> Clock {
        Clock { delayed: ms(n), ..Clock::default() }
    }

    #[test]
    fn a_loop_that_stands_still_is_told_once_within_a_second_and_again_when_it_goes_on() {
        let start = Instant::now();
        let mut stuck = Stuck::new(2, start);
        assert_eq!(stuck.look(start + ms(100), [Some(7), Some(7)].into_iter(), |_| delayed(0)), []);
        for at in (200..900).step_by(100) {
            assert_eq!(stuck.look(start + ms(at), [Some(7), Some(at)].into_iter(), |_| delayed(0)), [], "at {at} ms");
        }
        assert_eq!(stuck.look(start + ms(900), [Some(7), Some(900)].into_iter(), |_| delayed(0)), [Change::Stuck(0)]);
        assert!(stuck.is_stuck(0) && !stuck.is_stuck(1));
        assert_eq!(stuck.look(start + ms(1200), [Some(7), Some(1200)].into_iter(), |_| delayed(0)), []);
        assert_eq!(stuck.look(start + ms(1300), [Some(8), Some(1300)].into_iter(), |_| delayed(0)), [Change::GoesOn(0, ms(1200))]);
        assert!(!stuck.is_stuck(0));
    }

    #[test]
    fn a_watchdog_that_was_stopped_itself_judges_nobody_by_that_time() {
        let start = Instant::now();
        let mut stuck = Stuck::new(1, start);
        stuck.look(start + ms(100), [Some(7)].into_iter(), |_| delayed(0));
        assert_eq!(stuck.look(start + ms(60_100), [Some(7)].into_iter(), |_| delayed(0)), []);
        assert_eq!(stuck.look(start + ms(60_200), [Some(7)].into_iter(), |_| delayed(0)), []);
    }

    #[test]
    fn a_loop_that_is_not_given_its_core_is_not_blamed_on_user_code() {
        let start = Instant::now();
        let mut stuck = Stuck::new(1, start);
        for at in (100..800).step_by(100) {
            assert_eq!(stuck.look(start + ms(at), [Some(0)].into_iter(), |_| delayed(at)), []);
        }
        assert_eq!(stuck.look(start + ms(800), [Some(0)].into_iter(), |_| delayed(800)), [Change::Starved(0, ms(700), ms(800))]);
        assert!(!stuck.is_stuck(0));
        assert_eq!(stuck.look(start + ms(900), [Some(0)].into_iter(), |_| delayed(900)), [], "told once");
        for at in (1000..2200).step_by(100) {
            stuck.look(start + ms(at), [Some(0)].into_iter(), |_| delayed(900));
        }
        assert!(stuck.is_stuck(0), "it has had its core for more than half of the time");
        assert_eq!(stuck.look(start + ms(2300), [Some(9)].into_iter(), |_| delayed(1100)), [Change::GoesOn(0, ms(2300))]);
    }

    #[test]
    fn a_loop_that_has_ended_does_not_stand_still() {
        let start = Instant::now();
        let mut stuck = Stuck::new(1, start);
        stuck.look(start + ms(100), [Some(7)].into_iter(), |_| delayed(0));
        for at in (200..2000).step_by(100) {
            assert_eq!(stuck.look(start + ms(at), [None].into_iter(), |_| delayed(0)), []);
        }
    }

    #[test]
    fn a_wait_for_the_core_that_lasts_is_seen_before_the_kernel_counts_it() {
        let start = Instant::now();
        let look = |on_core: fn(u64) -> u64| {
            let mut stuck = Stuck::new(1, start);
            let clock = |at| Clock { on_core: ms(on_core(at)), ready: true, ..Clock::default() };
            (100..=900).step_by(100).flat_map(|at| stuck.look(start + ms(at), [Some(0)].into_iter(), |_| clock(at))).next()
        };
        assert_eq!(look(|_| 5), Some(Change::Starved(0, ms(800), ms(800))), "ready all the time, never on its core");
        assert_eq!(look(|at| at), Some(Change::Stuck(0)), "it has its core and does not turn");
    }
}
