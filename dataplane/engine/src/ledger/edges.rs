//! Edge ids: one random number per anchored emit.
//!
//! Before: an emit is anchored. After: the edge is in the frame and in the ack of the tuple it was emitted from. The generator is not linear
//! over XOR (an xorshift is: edges of one such generator cancel), so a set of edges is 0 by chance alone, 1 in 2^64.

/// The weight splitmix64 steps by: odd, so every state comes once in 2^64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// splitmix64, one per task. The seed is the caller's, from the system's randomness: two tasks must not share it.
#[derive(Clone, Debug)]
pub(crate) struct Edges {
    state: u64,
}

impl Edges {
    /// Any seed will do.
    pub(crate) fn new(seed: u64) -> Edges {
        Edges { state: seed }
    }

    /// The next edge, never 0. About 1 ns.
    #[inline(always)]
    pub(crate) fn edge(&mut self) -> u64 {
        // splitmix64 is a permutation of its counter: exactly one state gives 0, and the next one does not.
        let edge = self.bits();
        if edge != 0 { edge } else { self.bits() }
    }

    /// 64 random bits, 0 among them.
    #[inline(always)]
    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

/// The random numbers of our tests.
#[cfg(test)]
impl Edges {
    /// Below `n`, which is small.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// True once in `n`.
    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_those_of_splitmix64() {
        // The published first outputs for seed 1234567.
        let mut edges = Edges::new(1234567);
        assert_eq!([edges.edge(), edges.edge(), edges.edge()], [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn the_one_state_that_gives_zero_is_passed_over() {
        let mut edges = Edges::new(0u64.wrapping_sub(STEP));
        assert_eq!(edges.clone().bits(), 0);
        assert_ne!(edges.edge(), 0);
    }

    #[test]
    fn few_edges_never_cancel() {
        // Up to 4 of the first 64 edges: 2^64 apart by chance, but a linear generator would show some.
        let mut edges = Edges::new(7);
        let all: Vec<u64> = (0..64).map(|_| edges.edge()).collect();
        let pairs: Vec<(usize, usize, u64)> =
            (0..64).flat_map(|a| (0..a).map(move |b| (a, b))).map(|(a, b)| (a, b, all[a] ^ all[b])).collect();
        let distinct: std::collections::HashSet<u64> = pairs.iter().map(|p| p.2).chain(all.iter().copied()).chain([0]).collect();
        assert_eq!(distinct.len(), pairs.len() + all.len() + 1);
    }
}
