//! Where the host has put our two cores right now: same L3, different L3, or two threads of one core.
//!
//! Before: `suite` is about to take a sample, or has just taken one. After: the sample carries the class.
//!
//! On a virtual machine the host moves virtual cores every few seconds to minutes, and the same binary then shows 125 or 30 M items/s.
//! A bare cache line bounced between the two cores tells the classes apart in half a millisecond.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::pin::{PinError, pin_to_core};

/// Rounds of one probe. Enough that a preempted round does not move the median.
pub const PROBE_ROUNDS: u64 = 3000;
/// Median round trips below this are two threads of one core.
pub const SMT_RTT_NS_MAX: u64 = 50;
/// Median round trips up to this are one L3 (60-150 seen); beyond are two (330-350 seen).
pub const CCX_RTT_NS_MAX: u64 = 200;
/// How long a suite waits, in all its samples together, for the class its verdicts are given in.
pub const CCX_WAIT_MAX: Duration = Duration::from_secs(600);
/// Pause between two probes while waiting: the host does not move cores faster than this.
const PROBE_PAUSE: Duration = Duration::from_millis(200);

const _: () = assert!(SMT_RTT_NS_MAX < CCX_RTT_NS_MAX, "classes are ordered by round trip");

/// How near two cores are to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostClass {
    /// Two threads of one core.
    Smt,
    /// Two cores on one L3. The only class in which a target that depends on the class is judged.
    Ccx,
    /// Two cores on different L3s: every hop costs 3.5 to 4.5 times as much.
    CrossCcx,
    /// The class changed while measuring, or samples of several classes were put together.
    Mixed,
    /// The figure does not depend on where the cores are, e.g. the time of a restart.
    Any,
}

impl HostClass {
    /// The class of a median round trip of a bare cache line.
    #[must_use]
    pub fn of_round_trip_ns(p50_ns: u64) -> Self {
        if p50_ns < SMT_RTT_NS_MAX {
            HostClass::Smt
        } else if p50_ns <= CCX_RTT_NS_MAX {
            HostClass::Ccx
        } else {
            HostClass::CrossCcx
        }
    }

    /// The name in tables and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            HostClass::Smt => "SMT",
            HostClass::Ccx => "CCX",
            HostClass::CrossCcx => "xCCX",
            HostClass::Mixed => "mixed",
            HostClass::Any => "any",
        }
    }
}

impl fmt::Display for HostClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[repr(align(128))]
struct Line(AtomicU64);

/// Median round trip in ns of one cache line each way between two pinned threads. About 0.5 ms on a quiet machine, more when others run;
/// both threads spin, the caller sleeps.
///
/// # Errors
/// When one of the cores cannot be had.
pub fn probe_round_trip_ns(cores: (usize, usize)) -> Result<u64, PinError> {
    let (ping, pong) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let given_up = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            pin_to_core(cores.1).inspect_err(|_| given_up.store(true, Ordering::Release))?;
            for round in 1..=PROBE_ROUNDS {
                // Acquire: pairs with the Release of the other side's store of the same round.
                while ping.0.load(Ordering::Acquire) < round {
                    if given_up.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    std::hint::spin_loop();
                }
                pong.0.store(round, Ordering::Release);
            }
            Ok(())
        });
        let caller = scope.spawn(|| {
            pin_to_core(cores.0).inspect_err(|_| given_up.store(true, Ordering::Release))?;
            let clock = quanta::Clock::new();
            let mut rounds_ns = Vec::with_capacity(PROBE_ROUNDS as usize);
            for round in 1..=PROBE_ROUNDS {
                let start = clock.raw();
                ping.0.store(round, Ordering::Release);
                while pong.0.load(Ordering::Acquire) < round {
                    if given_up.load(Ordering::Relaxed) {
                        return Ok(0);
                    }
                    std::hint::spin_loop();
                }
                rounds_ns.push(clock.delta_as_nanos(start, clock.raw()));
            }
            rounds_ns.sort_unstable();
            Ok(rounds_ns[rounds_ns.len() / 2])
        });
        let (echoed, round_trip) = (echo.join().expect("probe thread"), caller.join().expect("probe thread"));
        echoed.and(round_trip)
    })
}

/// The class of the two cores now.
///
/// # Errors
/// As [`probe_round_trip_ns`].
pub fn class_now(cores: (usize, usize)) -> Result<HostClass, PinError> {
    Ok(HostClass::of_round_trip_ns(probe_round_trip_ns(cores)?))
}

/// Probes until the class is CCX or `deadline` has passed, and returns the last class seen.
///
/// # Errors
/// As [`probe_round_trip_ns`].
pub fn wait_for_ccx(cores: (usize, usize), deadline: Instant) -> Result<HostClass, PinError> {
    loop {
        let class = class_now(cores)?;
        if class == HostClass::Ccx || Instant::now() >= deadline {
            return Ok(class);
        }
        std::thread::sleep(PROBE_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classes_seen_on_real_hosts_fall_apart() {
        assert_eq!(HostClass::of_round_trip_ns(40), HostClass::Smt);
        assert_eq!(HostClass::of_round_trip_ns(60), HostClass::Ccx);
        assert_eq!(HostClass::of_round_trip_ns(150), HostClass::Ccx);
        assert_eq!(HostClass::of_round_trip_ns(330), HostClass::CrossCcx);
    }

    #[test]
    fn a_probe_on_a_core_that_does_not_exist_ends_with_an_error_on_both_sides() {
        let first = crate::pin::cores_of_this_thread()[0];
        assert!(probe_round_trip_ns((first, 1000)).is_err());
        assert!(probe_round_trip_ns((1000, first)).is_err());
    }
}
