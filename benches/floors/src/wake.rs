//! How long a sleeping thread takes to run after it was woken: one futex, the sleeper on the other core, which has nothing else to do.
//!
//! Before: `idle` asks for a histogram. After: the first tuple after a quiet second stands over it.
//! `std::thread::park` is one futex wait here, and `unpark` one futex wake: what a parked core loop cannot go below.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::Thread;
use std::time::Duration;

use saetta_harness::{Latency, Result};

use crate::bench::on_two_cores;

/// `wakes` of them, each after `quiet`. The waker stamps and wakes, the woken thread stamps.
///
/// # Errors
/// When a core cannot be had.
pub fn futex_wake(cores: (usize, usize), wakes: u64, quiet: Duration) -> Result<Latency> {
    let clock = quanta::Clock::new();
    // 0: nothing yet; else the waker's stamp. The sleeper puts 0 back when it has run.
    let stamp = AtomicU64::new(0);
    let (tell, sleeper) = mpsc::channel::<Thread>();
    let (_, latency) = on_two_cores(
        cores,
        {
            let (clock, stamp) = (&clock, &stamp);
            move |_| {
                // From a sleeper that could not be pinned it never comes.
                let Ok(sleeper) = sleeper.recv() else { return };
                for _ in 0..wakes {
                    std::thread::sleep(quiet);
                    // Release: pairs with the sleeper's Acquire.
                    stamp.store(clock.raw().max(1), Ordering::Release);
                    sleeper.unpark();
                    while stamp.load(Ordering::Acquire) != 0 {
                        std::hint::spin_loop();
                    }
                }
            }
        },
        {
            let (clock, stamp) = (&clock, &stamp);
            move |stop| {
                let mut latency = Latency::new();
                let sent = tell.send(std::thread::current()).is_ok() && !stop.load(Ordering::Relaxed);
                while sent && latency.count() < wakes {
                    std::thread::park();
                    // Acquire: pairs with the waker's Release.
                    let sent = stamp.load(Ordering::Acquire);
                    if sent != 0 {
                        latency.record_ns(clock.delta_as_nanos(sent, clock.raw()));
                        stamp.store(0, Ordering::Release);
                    }
                }
                latency
            }
        },
    )?;
    Ok(latency)
}

#[cfg(test)]
mod tests {
    use super::*;
    use saetta_harness::pin::two_cores;

    #[test]
    fn every_wake_is_stamped_once() {
        let Ok(cores) = two_cores() else { return eprintln!("one core only: nobody to wake") };
        assert_eq!(futex_wake(cores, 20, Duration::from_millis(1)).expect("two cores").count(), 20);
        assert!(futex_wake((cores.0, 1000), 1, Duration::ZERO).is_err());
    }
}
