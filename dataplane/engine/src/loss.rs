//! What is lost with a worker or a link, and which trees fail for it.
//!
//! Before: `links.rs` has seen a link end, or the watchdog knows that an incarnation of a worker is gone. After: `ack.rs` has failed the trees.

use crate::ack::{Reason, Road};
use crate::core_loop::CoreLoop;
use crate::links::Links;
use crate::stats::LinkEnded;

/// Bit of one incarnation of a worker in the masks of inits and acks: its index in the assignment and its start number. Two incarnations may
/// share one: then more trees fail than must.
pub fn worker_bit(index: u32, start: u64) -> u64 {
    1 << (u64::from(index).wrapping_add(start.wrapping_mul(32)) % 64)
}

impl CoreLoop {
    /// An incarnation of another worker is gone for good: its trees fail, and the links of it and of those before it are closed.
    #[cold]
    pub(crate) fn lose_worker(&mut self, links: &mut Links, placement: u64, start: u64, index: u32) {
        let now_ns = self.io.turn_ns;
        self.io.acks.lose(worker_bit(index, start), now_ns);
        for number in 0..self.io.remotes.len() {
            let remote = &self.io.remotes[number];
            if remote.placement != placement || remote.start.is_none_or(|last| last > start) {
                continue;
            }
            if let (Some(link), Some(carrier)) = (remote.link, &mut links.0) {
                carrier.close(link);
                self.io.set_link(number, None);
                self.remote_of_link[link.place()] = None;
                self.lose_link(number);
                self.io.shared.link_ended(LinkEnded {
                    placement,
                    local_loop: self.index as u32,
                    remote_loop: self.io.remotes[number].on_loop,
                    lost: Some("the worker behind it is gone: it was started again, or is not in the assignment".into()),
                });
            }
            self.io.acks.lose_ledgers(Road::Remote(number as u16), Reason::WorkerLost);
        }
    }
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
