//! Warm calls: while a spinning loop has nothing to do, spouts that ask for it go the way of a tuple now and then, so that it lies in the caches
//! when one comes.
//!
//! Before: `core_loop.rs` found no work for a while. After: frames with the WARM flag went the same way as others, to bolts that ask for
//! them, and nothing came of it: no count, no tree, no sample, nothing in an outbox, nothing to another worker.
//! NEED: after a quiet second the first tuple took 9 us from spout to bolt on loops that spin, most of it cache misses; kept warm each 50 us it
//! takes what any other does (`cargo xtask bench idle`, ADR 0008).

use crate::context::Cx;
use crate::metrics::Sampler;
use crate::out::Out;
use saetta_tuple::frame::WARM;

/// How often a spinning loop without work is warmed.
pub(crate) const WARM_EVERY_NS: u64 = 50_000;

/// What a warm call must leave as it was.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    emitted: u64,
    transferred: u64,
    executed: u64,
    sample_at: u64,
    timed: Sampler,
}

impl Cx<'_> {
    /// True in a warm call: go the way you go with a tuple, and change nothing.
    #[inline(always)]
    pub fn is_warming(&self) -> bool {
        self.kind != 0
    }

    /// What is emitted from here on is WARM, until [`Self::end_warm`].
    pub(crate) fn begin_warm(&mut self) {
        let Out { emitted, transferred, executed, sample_at, timed, .. } = *self.out;
        self.counts = Counts { emitted, transferred, executed, sample_at, timed };
        self.kind = WARM;
    }

    pub(crate) fn end_warm(&mut self) {
        let Counts { emitted, transferred, executed, sample_at, timed } = self.counts;
        (self.out.emitted, self.out.transferred, self.out.executed) = (emitted, transferred, executed);
        (self.out.sample_at, self.out.timed) = (sample_at, timed);
        self.kind = 0;
    }
}
