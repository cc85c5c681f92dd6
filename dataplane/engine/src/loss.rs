//! What is lost with a worker or a link, and which trees fail for it.
//!
//! Before: `links.rs` has seen a link end, or the watchdog knows that an incarnation of a worker is gone. After: `ack.rs` has failed the trees.

/// Bit of one incarnation of a worker in the masks of inits and acks: its index in the assignment and its start number. Two incarnations may
/// share one: then more trees fail than must.
pub fn worker_bit(index: u32, start: u64) -> u64 {
    1 << (u64::from(index).wrapping_add(start.wrapping_mul(32)) % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_starts_again_has_another_bit_and_so_have_31_others() {
        let all: std::collections::HashSet<u64> = (0..32).flat_map(|index| [worker_bit(index, 6), worker_bit(index, 7)]).collect();
        assert_eq!(all.len(), 64);
        assert!(all.iter().all(|bit| bit.count_ones() == 1));
        assert_eq!(worker_bit(u32::MAX, u64::MAX), 1 << ((63 + 32) % 64));
    }
}
