//! How a loop that found no work waits. It sees only how much was done.

use crate::limits::{SPIN_NS, YIELDS};
use crate::plan::WaitMode;

/// What to do before the next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Look again at once.
    Spin,
    /// Let another thread of this core run.
    Yield,
    /// Sleep until woken or a deadline.
    Park,
}

/// State of one loop's waiting.
pub(crate) struct Idle {
    mode: WaitMode,
    /// False where loops share a core: spinning there costs two time slices a round trip.
    alone: bool,
    /// When work was last done.
    last_work_ns: u64,
    yields: u32,
}

impl Idle {
    pub(crate) fn new(mode: WaitMode, alone: bool) -> Self {
        Idle { mode, alone, last_work_ns: 0, yields: 0 }
    }

    /// After a turn that did `work`.
    #[inline]
    pub(crate) fn after(&mut self, work: usize, now_ns: u64) -> Pause {
        if work > 0 {
            self.last_work_ns = now_ns;
            self.yields = 0;
            return Pause::Spin;
        }
        match self.mode {
            WaitMode::Spin => Pause::Spin,
            WaitMode::Yield => Pause::Yield,
            WaitMode::Park => Pause::Park,
            WaitMode::Hybrid if self.alone && now_ns.saturating_sub(self.last_work_ns) < SPIN_NS => Pause::Spin,
            WaitMode::Hybrid if !self.alone && self.yields < YIELDS => {
                self.yields += 1;
                Pause::Yield
            }
            WaitMode::Hybrid => Pause::Park,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hybrid_spins_for_a_bounded_time_and_parks() {
        let mut idle = Idle::new(WaitMode::Hybrid, true);
        assert_eq!(idle.after(1, 1_000_000), Pause::Spin);
        assert_eq!(idle.after(0, 1_000_000 + SPIN_NS - 1), Pause::Spin);
        assert_eq!(idle.after(0, 1_000_000 + SPIN_NS), Pause::Park);
    }

    #[test]
    fn hybrid_on_a_shared_core_never_spins_without_work() {
        let mut idle = Idle::new(WaitMode::Hybrid, false);
        idle.after(1, 5);
        for _ in 0..YIELDS {
            assert_eq!(idle.after(0, 5), Pause::Yield);
        }
        assert_eq!(idle.after(0, 5), Pause::Park);
    }
}
