//! What a grouping asks of its loop: where tasks are, whether they are reached, how full they are.
//!
//! Before: `grouping.rs` chooses. After: it knows. Reads routes and credit, changes nothing.

use crate::grouping::Targets;
use crate::io::{Io, Via};

impl Targets for Io {
    #[inline]
    fn is_here(&self, task: u32) -> bool {
        matches!(self.via(self.dests[task as usize].at), Via::Local(_) | Via::Lane(_))
    }

    /// Credit is open exactly while frames can leave: always inside a worker, after the handshake of a link until its end.
    #[inline(always)]
    fn is_up(&self, task: u32) -> bool {
        self.credits[self.dests[task as usize].credit as usize].is_open()
    }

    #[inline]
    fn fill_bytes(&self, task: u32) -> u64 {
        self.credits[self.dests[task as usize].credit as usize].fill_bytes()
    }
}
