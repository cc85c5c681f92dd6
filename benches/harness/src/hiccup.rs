//! Measures what the machine does to a thread that only wants to wake every millisecond.
//!
//! Before: an open-loop case starts its load. After: its histogram stands beside the case's, so that a tail made by the machine is not
//! taken for one made by us. It sleeps, it does not spin, so the rule of two spinning threads holds beside two loops.
//! The `bench` life of a topology has a meter of its own in `dataplane/saetta/src/bench.rs`, which counts in the same way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::hdr::Latency;
use crate::pin::{PinError, pin_to_core};

/// The period; a hiccup is how much later than this the thread runs.
pub const PERIOD: Duration = Duration::from_millis(1);

/// A running meter. Dropping it stops it; [`HiccupMeter::stop`] also gives what it saw.
#[derive(Debug)]
pub struct HiccupMeter {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Latency, PinError>>>,
}

impl HiccupMeter {
    /// Starts the thread, on `core` if one is named, else wherever the kernel puts it.
    #[must_use]
    pub fn start(core: Option<usize>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let mut due = Instant::now() + PERIOD;
        let thread = std::thread::spawn(move || {
            if let Some(core) = core {
                pin_to_core(core)?;
            }
            let mut late = Latency::new();
            loop {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                let now = Instant::now();
                // A stall of n periods is n hiccups, each shorter than the one before: nobody who wanted to run is left out.
                while due <= now {
                    late.record_ns(u64::try_from((now - due).as_nanos()).unwrap_or(u64::MAX));
                    due += PERIOD;
                }
                if seen.load(Ordering::Relaxed) {
                    return Ok(late);
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }

    /// Stops within one period and returns by how much each wake was late.
    ///
    /// # Errors
    /// When the core named at start could not be had.
    ///
    /// # Panics
    /// When the meter's thread panicked.
    pub fn stop(mut self) -> Result<Latency, PinError> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("stopped once").join().expect("hiccup thread")
    }
}

impl Drop for HiccupMeter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_period_that_passed_is_counted() {
        let start = Instant::now();
        let meter = HiccupMeter::start(None);
        while start.elapsed() < Duration::from_millis(50) {
            std::thread::yield_now();
        }
        let late = meter.stop().expect("no core was asked for");
        let passed = start.elapsed().as_millis() as u64;
        assert!((49..=passed + 1).contains(&late.count()), "{} wakes in {passed} ms", late.count());
    }
}
