//! How a loop that found no work waits. It sees only how much was done, and when. Pure: time comes from the loop.

use crate::limits::{LONG_GAPS_PER_HALF, SPIN_HALVES_MAX, SPIN_NS, YIELDS};
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
    /// False where loops share a core.
    alone: bool,
    /// When work was last done.
    work_ns: u64,
    /// When it was last seen that there is none; at least `work_ns`.
    idle_ns: u64,
    /// Idle gaps in a row that were longer than spinning may last.
    long_gaps: u32,
    yields: u32,
}

impl Idle {
    /// `sharing`: loops on this core that take part in its work, this one included; those of other workers count as well.
    pub(crate) fn new(mode: WaitMode, sharing: u32) -> Self {
        Idle { mode, alone: sharing <= 1, work_ns: 0, idle_ns: 0, long_gaps: 0, yields: 0 }
    }

    /// After a turn that did `work`.
    #[inline]
    pub(crate) fn after(&mut self, work: usize, now_ns: u64) -> Pause {
        if work > 0 {
            let gap_ns = self.idle_ns.saturating_sub(self.work_ns);
            if gap_ns > 0 {
                self.gap_over(gap_ns);
            }
            self.work_ns = now_ns;
            self.idle_ns = now_ns;
            self.yields = 0;
            return Pause::Spin;
        }
        self.idle_ns = now_ns;
        match self.mode {
            WaitMode::Park => Pause::Park,
            // Whatever the mode: one that spins takes two time slices a round trip from the others, and one that only yields is set back a slice
            // each time, so that when work comes it waits for seconds where others want the core.
            _ if !self.alone && self.yields < YIELDS => {
                self.yields += 1;
                Pause::Yield
            }
            _ if !self.alone => Pause::Park,
            WaitMode::Spin => Pause::Spin,
            WaitMode::Yield => Pause::Yield,
            WaitMode::Hybrid if now_ns.saturating_sub(self.work_ns) < self.spin_ns() => Pause::Spin,
            WaitMode::Hybrid => Pause::Park,
        }
    }

    /// Spins whether or not there is work.
    pub(crate) fn never_sleeps(&self) -> bool {
        self.alone && self.mode == WaitMode::Spin
    }

    /// When it has slept: till now there was no work.
    pub(crate) fn woke(&mut self, now_ns: u64) {
        self.idle_ns = now_ns;
    }

    /// Spinning pays where gaps are shorter than two wake-ups; where they are not it only heats the core, so it lasts half as long after so
    /// many long ones in a row, and one short gap restores it.
    fn gap_over(&mut self, gap_ns: u64) {
        self.long_gaps = if gap_ns <= SPIN_NS { 0 } else { (self.long_gaps + 1).min(SPIN_HALVES_MAX * LONG_GAPS_PER_HALF) };
    }

    fn spin_ns(&self) -> u64 {
        SPIN_NS >> (self.long_gaps / LONG_GAPS_PER_HALF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// How long it spins after work at `now_ns`, in steps of 100 ns, until something else than spinning.
    fn spins_ns(idle: &mut Idle, now_ns: u64) -> u64 {
        idle.after(1, now_ns);
        (0..).map(|i| i * 100).find(|ns| idle.after(0, now_ns + ns) != Pause::Spin).unwrap()
    }

    #[test]
    fn hybrid_spins_for_a_bounded_time_and_parks() {
        let mut idle = Idle::new(WaitMode::Hybrid, 1);
        assert_eq!(idle.after(1, 1_000_000), Pause::Spin);
        assert_eq!(idle.after(0, 1_000_000 + SPIN_NS - 1), Pause::Spin);
        assert_eq!(idle.after(0, 1_000_000 + SPIN_NS), Pause::Park);
    }

    #[test]
    fn hybrid_on_a_shared_core_never_spins_without_work() {
        let mut idle = Idle::new(WaitMode::Hybrid, 2);
        idle.after(1, 5);
        for _ in 0..YIELDS {
            assert_eq!(idle.after(0, 5), Pause::Yield);
        }
        assert_eq!(idle.after(0, 5), Pause::Park);
    }

    #[test]
    fn spin_and_yield_are_for_a_loop_that_is_alone_on_its_core() {
        for (mode, pause) in [(WaitMode::Spin, Pause::Spin), (WaitMode::Yield, Pause::Yield)] {
            assert!((0..100).all(|_| Idle::new(mode, 1).after(0, 5) == pause));
            let mut shared = Idle::new(mode, 2);
            assert!((0..YIELDS).all(|_| shared.after(0, 5) == Pause::Yield));
            assert_eq!(shared.after(0, 5), Pause::Park);
        }
    }

    #[test]
    fn gaps_that_spinning_cannot_bridge_shorten_it_and_a_short_one_restores_it() {
        let mut idle = Idle::new(WaitMode::Hybrid, 1);
        let mut now_ns = 1_000_000;
        let mut lasted = Vec::new();
        for _ in 0..40 {
            lasted.push(spins_ns(&mut idle, now_ns));
            now_ns += 1_000_000;
            idle.woke(now_ns);
        }
        assert_eq!(lasted[1], SPIN_NS, "one long gap changes nothing");
        assert!(lasted.is_sorted_by(|a, b| a >= b));
        assert!(lasted[39] <= (SPIN_NS >> SPIN_HALVES_MAX) + 100, "{lasted:?}");
        // The next work comes 10 us after the last, and the thread slept.
        spins_ns(&mut idle, now_ns);
        idle.woke(now_ns + 10_000);
        assert_eq!(spins_ns(&mut idle, now_ns + 300_000), SPIN_NS, "the time work took is no part of the gap");
    }

    proptest! {
        /// Whatever the times: work means at once again, and the two bounds hold.
        #[test]
        fn waiting_is_bounded_whatever_comes(steps in prop::collection::vec((0usize..2, 0u64..200_000, any::<bool>()), 0..200), sharing in 1u32..3) {
            let mut idle = Idle::new(WaitMode::Hybrid, sharing);
            let (mut now_ns, mut work_ns, mut yields) = (0, 0, 0);
            for (work, pass_ns, slept) in steps {
                now_ns += pass_ns;
                if slept {
                    idle.woke(now_ns);
                }
                let pause = idle.after(work, now_ns);
                if work > 0 {
                    (work_ns, yields) = (now_ns, 0);
                    prop_assert_eq!(pause, Pause::Spin);
                    continue;
                }
                yields += u32::from(pause == Pause::Yield);
                prop_assert!(pause != Pause::Spin || (sharing == 1 && now_ns - work_ns < SPIN_NS));
                prop_assert!(pause != Pause::Park || sharing > 1 || now_ns - work_ns >= SPIN_NS >> SPIN_HALVES_MAX);
                prop_assert!(yields <= YIELDS && (yields == 0 || sharing > 1));
            }
        }
    }
}
