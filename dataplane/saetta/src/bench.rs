//! `bench`: this topology in this process under an open-loop rate, beside a hiccup meter.
//!
//! Each spout executor is asked at start + i / rate, however late the calls before it were, and a tuple is stamped with the time it was meant
//! to be emitted: a stall shows in every tuple it delayed. The meter sleeps a millisecond over and over and records how much later it wakes:
//! what the machine adds by itself.

use hdrhistogram::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What the meter sleeps between two looks.
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
        let thread = std::thread::spawn(move || {
            let mut hiccups = Histogram::new_with_bounds(1, 10_000_000_000, 2).expect("bounds are constants");
            while !told.load(Ordering::Relaxed) {
                let before = Instant::now();
                std::thread::sleep(PERIOD);
                hiccups.saturating_record(before.elapsed().saturating_sub(PERIOD).as_nanos() as u64);
            }
            hiccups
        });
        HiccupMeter { stop, thread }
    }

    /// Nanoseconds by which sleeps were late, the timer's own slack included.
    pub(crate) fn stop(self) -> Histogram<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the meter does not panic")
    }
}
