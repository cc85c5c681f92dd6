//! Which tuples are timed: all of them up to a rate, then one in 2^n. Pure.

use crate::limits::SAMPLES_PER_SEC;

/// Samples between two adaptions after which the sampler thins by itself: a burst is not timed whole because the time before was quiet.
pub const SAMPLER_BURST: u32 = 64;
/// At most one in 2^24 is left.
const MASK_MAX: u32 = (1 << 24) - 1;

/// See the head of this file. Begins with every tuple.
#[derive(Debug, Default, Clone, Copy)]
pub struct Sampler {
    /// One in `mask + 1`, a power of two.
    mask: u32,
    count: u32,
    /// Samples since the last adaption or thinning. At most `SAMPLER_BURST`.
    taken: u32,
    /// `count` at the last adaption.
    adapted_at: u32,
}

impl Sampler {
    /// True = time this one.
    #[inline(always)]
    pub fn take(&mut self) -> bool {
        self.count = self.count.wrapping_add(1);
        self.count & self.mask == 0 && self.taken_one()
    }

    fn taken_one(&mut self) -> bool {
        self.taken += 1;
        if self.taken == SAMPLER_BURST {
            self.taken = 0;
            self.mask = (self.mask << 1 | 1).min(MASK_MAX);
        }
        true
    }

    /// Tuples offered since the last adaption.
    pub fn seen(&self) -> u64 {
        self.count.wrapping_sub(self.adapted_at).into()
    }

    /// One in how many is timed now.
    pub fn one_in(&self) -> u64 {
        u64::from(self.mask) + 1
    }

    /// For the time to come, as in the last `interval_ns`.
    pub fn adapt(&mut self, interval_ns: u64) {
        let tuples = self.seen();
        let per_sec = (u128::from(tuples) * 1_000_000_000 / u128::from(interval_ns.max(1))) as u64;
        let one_in = per_sec.div_ceil(SAMPLES_PER_SEC).max(1).next_power_of_two();
        self.mask = u32::try_from(one_in - 1).map_or(MASK_MAX, |mask| mask.min(MASK_MAX));
        self.taken = 0;
        self.adapted_at = self.count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tuple_is_timed_up_to_a_thousand_a_second_and_then_one_in_a_power_of_two() {
        for (per_sec, one_in) in [(0, 1), (1_000, 1), (1_001, 2), (2_000, 2), (10_000, 16), (500_000, 512)] {
            let mut sampler = Sampler::default();
            (0..per_sec * 2).for_each(|_| _ = sampler.take());
            sampler.adapt(2_000_000_000);
            assert_eq!(sampler.one_in(), one_in, "{per_sec}/s");
            let taken = (0..one_in * 8).filter(|_| sampler.take()).count();
            assert_eq!(taken, 8, "{per_sec}/s");
        }
    }

    #[test]
    fn a_burst_after_a_quiet_time_is_thinned_before_the_next_adaption() {
        let mut sampler = Sampler::default();
        let taken = (0..1_000_000).filter(|_| sampler.take()).count();
        assert!(taken < 64 * 16, "{taken}");
        assert!(sampler.one_in() > 1024);
        sampler.adapt(1_000_000_000);
        sampler.take();
        sampler.adapt(1_000_000_000);
        assert_eq!(sampler.one_in(), 1);
    }
}
