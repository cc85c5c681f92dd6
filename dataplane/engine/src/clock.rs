//! What time it is: the clock of the machine, or one that a test moves by hand.
//!
//! Everything of an engine that depends on time (stamps, housekeeping, pacing, timeouts, ticks) reads its loop's clock, so loops stepped by
//! hand over a manual clock do the same thing each time. Real sleeps (`wait.rs`) exist only in loops on threads, which have the real one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where a manual clock begins: not at zero, which some of its readers take for "never".
const START_NS: u64 = 1_000_000_000;

/// A monotonic clock. Clones show the same time.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The TSC as nanoseconds; about 10 ns a look.
    Real(quanta::Clock),
    /// Moves by [`Clock::advance`] only.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's.
    pub fn real() -> Self {
        Clock::Real(quanta::Clock::new())
    }

    /// One that stands still until it is advanced.
    pub fn manual() -> Self {
        Clock::Manual(Arc::new(AtomicU64::new(START_NS)))
    }

    /// Nanoseconds since a point in the past that is the same for all clones.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        match self {
            Clock::Real(clock) => clock.delta_as_nanos(0, clock.raw()),
            // Relaxed: a time of day, which orders nothing else.
            Clock::Manual(now_ns) => now_ns.load(Ordering::Relaxed),
        }
    }

    /// Moves a manual clock. Panics on the real one: nobody can.
    pub fn advance(&self, by: Duration) {
        match self {
            Clock::Real(_) => panic!("the machine's clock cannot be advanced; make the engine with `Clock::manual()`"),
            Clock::Manual(now_ns) => {
                now_ns.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_stands_still_until_it_is_advanced_and_its_clones_move_with_it() {
        let clock = Clock::manual();
        let twin = clock.clone();
        assert_eq!(twin.now_ns(), START_NS);
        clock.advance(Duration::from_millis(3));
        assert_eq!(twin.now_ns(), START_NS + 3_000_000);
    }

    #[test]
    fn the_real_clock_never_goes_back() {
        let clock = Clock::real();
        let mut last = clock.now_ns();
        for _ in 0..1000 {
            let now = clock.clone().now_ns();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    #[should_panic(expected = "cannot be advanced")]
    fn the_real_clock_cannot_be_advanced() {
        Clock::real().advance(Duration::from_secs(1));
    }
}
