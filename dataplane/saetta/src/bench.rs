//! `bench`: this topology in this process under an open-loop rate, beside a hiccup meter.
//!
//! Each spout executor is asked at start + i / rate, however late the calls before it were, and a tuple is stamped with the time it was meant
//! to be emitted: a stall shows in every tuple it delayed. The meter wants to wake every millisecond and records how much later it does: what
//! the machine adds by itself. The meter of `saetta-harness` counts in the same way, so that figures of `bench` and of a suite compare; a user's
//! binary does not link the harness.

use hdrhistogram::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// When the meter wants to wake: a hiccup is how much later than this it does.
const PERIOD: Duration = Duration::from_millis(1);

/// A running hiccup meter.
pub(crate) struct HiccupMeter {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Histogram<u64>>,
}

impl HiccupMeter {
    pub(crate) fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let mut due = Instant::now() + PERIOD;
        let thread = std::thread::spawn(move || {
            let mut hiccups = Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("bounds are constants");
            loop {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                let now = Instant::now();
                // A stall of n periods is n hiccups, each shorter than the one before: nobody who wanted to run is left out.
                while due <= now {
                    hiccups.saturating_record(((now - due).as_nanos() as u64).max(1));
                    due += PERIOD;
                }
                if told.load(Ordering::Relaxed) {
                    return hiccups;
                }
            }
        });
        HiccupMeter { stop, thread }
    }

    /// Nanoseconds by which sleeps were late, the timer's own slack included.
    pub(crate) fn stop(self) -> Histogram<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the meter does not panic")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_period_that_passed_is_counted() {
        let start = Instant::now();
        let meter = HiccupMeter::start();
        while start.elapsed() < Duration::from_millis(50) {
            std::thread::yield_now();
        }
        let late = meter.stop();
        let passed = start.elapsed().as_millis() as u64;
        assert!((49..=passed + 1).contains(&late.len()), "{} wakes in {passed} ms", late.len());
    }
}
