//! Which part of its time each executor ran, from one beat to the next. Pure.

use std::time::Instant;

/// See the head of this file.
pub(crate) struct Busy {
    since: Instant,
    /// Nanoseconds each executor had run by then.
    ran_ns: Vec<u64>,
}

impl Busy {
    /// Of so many executors, which have not run yet.
    pub(crate) fn new(executors: usize, now: Instant) -> Self {
        Busy { since: now, ran_ns: vec![0; executors] }
    }

    /// Of other executors than before, which have run so long.
    pub(crate) fn again(ran_ns: Vec<u64>, now: Instant) -> Self {
        Busy { since: now, ran_ns }
    }

    /// Thousandths of the time since the last call, by executor. `ran_ns`: nanoseconds each has run since its start.
    pub(crate) fn per_mille(&mut self, ran_ns: Vec<u64>, now: Instant) -> Vec<u32> {
        let passed = now.saturating_duration_since(self.since).as_nanos().max(1);
        let share = |(now, before): (&u64, &u64)| (u128::from(now.saturating_sub(*before)) * 1000 / passed).min(1000) as u32;
        let shares = ran_ns.iter().zip(&self.ran_ns).map(share).collect();
        *self = Busy { since: now, ran_ns };
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_share_is_of_the_time_since_the_beat_before() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut busy = Busy::new(2, start);
        assert_eq!(busy.per_mille(vec![0, 5_000_000], at(10)), [0, 500]);
        assert_eq!(busy.per_mille(vec![10_000_000, 5_000_000], at(20)), [1000, 0]);
    }

    #[test]
    fn what_a_loop_publishes_late_is_at_most_all_of_the_time() {
        let start = Instant::now();
        let mut busy = Busy::new(1, start);
        assert_eq!(busy.per_mille(vec![u64::MAX], start), [1000]);
    }
}
