//! Which core loops stand still. A loop turns at least ten times a second, also while it sleeps, so one whose counter does not move is held
//! up in user code. Pure: counters and time come from the watchdog.

use std::time::{Duration, Instant};

/// A loop that stands still so long is reported.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(1);
/// A watchdog that did not look for so long was itself stopped, and judges nobody by that time.
const OWN_GAP_MAX: Duration = Duration::from_millis(500);

/// What changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// This loop stands still.
    Stuck(usize),
    /// This loop, reported before, goes on; it stood still for so long.
    GoesOn(usize, Duration),
}

struct Seen {
    turns: u64,
    since: Instant,
    told: bool,
}

/// See the head of this file.
pub(crate) struct Stuck {
    loops: Vec<Seen>,
    last_look: Instant,
}

impl Stuck {
    pub(crate) fn new(n_loops: usize, now: Instant) -> Self {
        Stuck { loops: (0..n_loops).map(|_| Seen { turns: 0, since: now, told: false }).collect(), last_look: now }
    }

    /// Looks at all counters, often enough that gaps between looks stay below half a second.
    pub(crate) fn look(&mut self, now: Instant, turns: impl Iterator<Item = u64>) -> Vec<Change> {
        let paused = now.saturating_duration_since(self.last_look) > OWN_GAP_MAX;
        self.last_look = now;
        let mut changes = Vec::new();
        for (i, (seen, turns)) in self.loops.iter_mut().zip(turns).enumerate() {
            let still = now.saturating_duration_since(seen.since);
            if turns != seen.turns {
                if seen.told {
                    changes.push(Change::GoesOn(i, still));
                }
                *seen = Seen { turns, since: now, told: false };
            } else if paused && !seen.told {
                seen.since = now;
            } else if still >= STUCK_AFTER && !seen.told {
                seen.told = true;
                changes.push(Change::Stuck(i));
            }
        }
        changes
    }

    /// True while this loop is reported as standing still.
    pub(crate) fn is_stuck(&self, on_loop: usize) -> bool {
        self.loops.get(on_loop).is_some_and(|s| s.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_loop_that_stands_still_for_a_second_is_told_once_and_again_when_it_goes_on() {
        let start = Instant::now();
        let mut stuck = Stuck::new(2, start);
        assert_eq!(stuck.look(start + ms(100), [7, 7].into_iter()), []);
        for at in (200..1100).step_by(100) {
            assert_eq!(stuck.look(start + ms(at), [7, at].into_iter()), [], "at {at} ms");
        }
        assert_eq!(stuck.look(start + ms(1100), [7, 1100].into_iter()), [Change::Stuck(0)]);
        assert!(stuck.is_stuck(0) && !stuck.is_stuck(1));
        assert_eq!(stuck.look(start + ms(1200), [7, 1200].into_iter()), []);
        assert_eq!(stuck.look(start + ms(1300), [8, 1300].into_iter()), [Change::GoesOn(0, ms(1200))]);
        assert!(!stuck.is_stuck(0));
    }

    #[test]
    fn a_watchdog_that_was_stopped_itself_judges_nobody_by_that_time() {
        let start = Instant::now();
        let mut stuck = Stuck::new(1, start);
        stuck.look(start + ms(100), [7].into_iter());
        assert_eq!(stuck.look(start + ms(60_100), [7].into_iter()), []);
        assert_eq!(stuck.look(start + ms(60_200), [7].into_iter()), []);
    }
}
