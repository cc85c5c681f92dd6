//! Puts the calling thread on one core and asks the kernel whether it is there.
//!
//! Before: a case spawns its threads. After: every figure may say on which cores it was taken.

use std::fmt;

use rustix::thread::{CpuSet, sched_getaffinity};

/// Why a thread is not where it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PinError {
    /// The kernel refused the core: not on this machine, or not allowed to this process.
    Refused {
        /// The core asked for.
        core: usize,
        /// The cores this thread may use.
        allowed: Vec<usize>,
    },
    /// The call said yes and the thread's allowed list says otherwise.
    NotThere {
        /// The core asked for.
        core: usize,
        /// The cores the kernel reports.
        allowed: Vec<usize>,
    },
    /// The machine gives this process fewer cores than the case needs.
    TooFew {
        /// Cores needed.
        needed: usize,
        /// The cores this process may use.
        allowed: Vec<usize>,
    },
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PinError::Refused { core, allowed } => {
                write!(
                    f,
                    "pinning to core {core}: refused, this thread may use {allowed:?}; run without taskset, or give the container the core"
                )
            }
            PinError::NotThere { core, allowed } => {
                write!(
                    f,
                    "pinning to core {core}: the kernel reports {allowed:?}; something else moves this process (a cpuset, another tool)"
                )
            }
            PinError::TooFew { needed, allowed } => {
                write!(
                    f,
                    "this figure needs {needed} cores and this process may use {allowed:?}; run it on a larger machine or lift the cpuset"
                )
            }
        }
    }
}

impl std::error::Error for PinError {}

/// Pins the calling thread to `core` (the kernel's number) and checks the result. A few microseconds.
///
/// # Errors
/// [`PinError::Refused`] or [`PinError::NotThere`]; the thread is then where it was.
pub fn pin_to_core(core: usize) -> Result<(), PinError> {
    if !core_affinity::set_for_current(core_affinity::CoreId { id: core }) {
        return Err(PinError::Refused { core, allowed: cores_of_this_thread() });
    }
    let allowed = cores_of_this_thread();
    if allowed == [core] { Ok(()) } else { Err(PinError::NotThere { core, allowed }) }
}

/// The cores the calling thread may use, ascending, as the kernel says. Empty only when the kernel refuses the question.
#[must_use]
pub fn cores_of_this_thread() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

/// The first two cores this process may use: what every two-thread figure is taken on. Call it before pinning.
///
/// # Errors
/// [`PinError::TooFew`] on a single core.
pub fn two_cores() -> Result<(usize, usize), PinError> {
    let allowed = cores_of_this_thread();
    match allowed[..] {
        [first, second, ..] => Ok((first, second)),
        _ => Err(PinError::TooFew { needed: 2, allowed }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_is_on_its_core_and_nowhere_else() {
        let core = cores_of_this_thread()[0];
        let seen = std::thread::spawn(move || {
            pin_to_core(core).expect("the first allowed core");
            cores_of_this_thread()
        });
        assert_eq!(seen.join().expect("thread"), [core]);
    }

    #[test]
    fn a_core_that_does_not_exist_is_refused_by_name() {
        let answer = std::thread::spawn(|| pin_to_core(1000)).join().expect("thread");
        assert!(matches!(answer, Err(PinError::Refused { core: 1000, .. })), "{answer:?}");
    }
}
