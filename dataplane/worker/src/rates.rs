//! What comes over each subscription per second, as beats tell it: averaged, so that a scheduler does not chase moments.
//!
//! Before: the loops count frames and bytes by input edge. After: `FromWorker::Beat`. Pure.

use saetta_engine::metrics::EdgeCount;
use saetta_model::beat::{EdgeRate, RATE_WINDOW_S};
use saetta_model::name::Name;
use std::collections::BTreeMap;
use std::time::Instant;

/// See the head of this file.
pub(crate) struct Rates {
    since: Instant,
    edges: BTreeMap<(Name, Name, Name), Edge>,
}

/// One subscription: counted by `since`, and per second.
#[derive(Default)]
struct Edge {
    /// Since the first tuple came.
    age_s: f64,
    tuples: u64,
    bytes: u64,
    tuples_per_s: f64,
    bytes_per_s: f64,
}

impl Rates {
    /// Nothing has come yet.
    pub(crate) fn new(now: Instant) -> Self {
        Rates { since: now, edges: BTreeMap::new() }
    }

    /// By component and stream. `counts` is what came since the start. A young subscription's rate is the mean since its first tuple.
    pub(crate) fn per_second(&mut self, counts: Vec<EdgeCount>, now: Instant) -> Vec<EdgeRate> {
        let passed_s = now.saturating_duration_since(self.since).as_secs_f64().max(1e-3);
        self.since = now;
        // Weight of the time passed in an average that forgets with this window.
        let newest = 1.0 - (-passed_s / f64::from(RATE_WINDOW_S)).exp();
        for c in counts {
            let edge = self.edges.entry((c.from, c.to, c.stream)).or_default();
            edge.age_s += if c.tuples > 0 { passed_s } else { 0.0 };
            let part = newest.max((passed_s / edge.age_s.max(passed_s)).min(1.0));
            let toward = |rate: &mut f64, more: u64| *rate += (more as f64 / passed_s - *rate) * part;
            toward(&mut edge.tuples_per_s, c.tuples.saturating_sub(edge.tuples));
            toward(&mut edge.bytes_per_s, c.bytes.saturating_sub(edge.bytes));
            (edge.tuples, edge.bytes) = (c.tuples, c.bytes);
        }
        let rate = |((from, to, stream), e): (&(Name, Name, Name), &Edge)| EdgeRate {
            from: from.clone(),
            to: to.clone(),
            stream: stream.clone(),
            tuples_per_s: e.tuples_per_s.round() as u64,
            bytes_per_s: e.bytes_per_s.round() as u64,
        };
        self.edges.iter().map(rate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_rate_follows_over_the_window_and_is_right_at_once_in_the_beginning() {
        let start = Instant::now();
        let name = |text: &str| Name::new(text).unwrap();
        let count = |tuples: u64| vec![EdgeCount { from: name("a"), to: name("b"), stream: name("s"), tuples, bytes: 8 * tuples }];
        let mut rates = Rates::new(start);
        let mut told = |seconds: u64, tuples: u64| {
            let rate = rates.per_second(count(tuples), start + Duration::from_secs(seconds)).remove(0);
            (rate.tuples_per_s, rate.bytes_per_s)
        };
        assert_eq!(told(5, 0), (0, 0));
        assert_eq!(told(7, 200), (100, 800), "at once, however long nothing came");
        assert_eq!(told(8, 300), (100, 800), "steady");
        assert_eq!(told(98, 9300), (100, 800));
        // Silence: after a window a third is left (1/e), after many nothing.
        assert_eq!(told(98 + u64::from(RATE_WINDOW_S), 9300), (37, 294));
        assert_eq!(told(98 + 20 * u64::from(RATE_WINDOW_S), 9300), (0, 0));
    }
}
