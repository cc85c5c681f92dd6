//! How many reports may pass: a burst, then a steady rate; what does not pass is counted.

use std::time::{Duration, Instant};

/// See the head of this file.
pub(crate) struct Rate {
    burst: u32,
    every: Duration,
    left: u32,
    since: Instant,
    /// Held back since the last that passed.
    held_back: u64,
}

impl Rate {
    /// `burst` at once, then one per `every`.
    pub(crate) fn new(burst: u32, every: Duration, now: Instant) -> Self {
        Rate { burst, every, left: burst, since: now, held_back: 0 }
    }

    /// `Some(n)` = may pass, after `n` that were held back.
    pub(crate) fn pass(&mut self, now: Instant) -> Option<u64> {
        let earned = (now.saturating_duration_since(self.since).as_nanos() / self.every.as_nanos()).min(u128::from(self.burst)) as u32;
        if earned > 0 {
            self.left = (self.left + earned).min(self.burst);
            self.since = now;
        }
        if self.left == 0 {
            self.held_back += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_one_per_period_and_the_rest_is_counted() {
        let start = Instant::now();
        let mut rate = Rate::new(2, Duration::from_secs(1), start);
        assert_eq!([(); 5].map(|()| rate.pass(start)), [Some(0), Some(0), None, None, None]);
        assert_eq!(rate.pass(start + Duration::from_millis(1100)), Some(3));
        assert_eq!(rate.pass(start + Duration::from_millis(1200)), None);
        let later = start + Duration::from_secs(60);
        assert_eq!([(); 3].map(|()| rate.pass(later)), [Some(1), Some(0), None]);
    }
}
