//! Groupings that look at no field: round robin, and the less filled of two.

use super::Targets;

/// The next of a splitmix64 sequence.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Round robin over a list shuffled per emitter task, so that emitters do not march in step.
pub(super) struct RoundRobin {
    order: Vec<u32>,
    next: usize,
}

impl RoundRobin {
    pub(super) fn new(targets: &[u32], emitter: u32) -> Self {
        RoundRobin { order: shuffled(targets, emitter), next: 0 }
    }

    /// The next target that is up; the next one, and its frames wait, when none is.
    #[inline]
    pub(super) fn next(&mut self, outside: &impl Targets) -> u32 {
        let task = self.step();
        if outside.is_up(task) { task } else { self.next_up(task, outside) }
    }

    #[inline]
    fn step(&mut self) -> u32 {
        let task = self.order[self.next];
        self.next += 1;
        if self.next == self.order.len() {
            self.next = 0;
        }
        task
    }

    #[cold]
    fn next_up(&mut self, first: u32, outside: &impl Targets) -> u32 {
        for _ in 1..self.order.len() {
            let task = self.step();
            if outside.is_up(task) {
                return task;
            }
        }
        // Once around: the next turn begins behind `first`.
        self.step();
        first
    }
}

/// Fisher-Yates, seeded by the emitter: the same list on every run of the same layout.
pub(super) fn shuffled(targets: &[u32], emitter: u32) -> Vec<u32> {
    let mut order = targets.to_vec();
    let mut state = u64::from(emitter);
    for i in (1..order.len()).rev() {
        order.swap(i, (random(&mut state) % (i as u64 + 1)) as usize);
    }
    order
}

/// Power of two choices: of two different targets drawn at random, the less filled.
pub(super) struct LoadAware {
    state: u64,
}

impl LoadAware {
    pub(super) fn new(emitter: u32) -> Self {
        LoadAware { state: u64::from(emitter) }
    }

    #[inline]
    pub(super) fn next(&mut self, targets: &[u32], outside: &impl Targets) -> u32 {
        let drawn = random(&mut self.state);
        let n = targets.len() as u64;
        // High and low half of one draw, scaled: no division. The second is one of the others.
        let first = (((drawn >> 32) * n) >> 32) as usize;
        let second = (first + 1 + (((drawn & 0xffff_ffff) * (n - 1)) >> 32) as usize) % targets.len();
        let (a, b) = (targets[first], targets[second]);
        match (outside.is_up(a), outside.is_up(b)) {
            (true, true) if outside.fill_bytes(b) < outside.fill_bytes(a) => b,
            (true, _) => a,
            (false, true) => b,
            // Both down: the first one up behind them, at random enough since they were drawn; `a`, whose frames wait, when none is.
            (false, false) => (1..targets.len()).map(|i| targets[(first + i) % targets.len()]).find(|t| outside.is_up(*t)).unwrap_or(a),
        }
    }
}
