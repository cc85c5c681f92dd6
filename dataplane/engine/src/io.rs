//! The outgoing half of a core loop: which lane a task is behind, whether there is credit, and the frame goes.
//!
//! Before: `emit.rs` has a frame for a task. After: it lies in a local inbox, a lane's staging, or a remote loop's staging; or it is
//! refused and stays in the emitter's outbox.

use crate::clock::Clock;
use crate::credit::CreditOut;
use crate::lane::LaneOut;
use crate::limits::{LATENCY_NS, REMOTE_STAGING_BYTES_MAX};
use crate::queue::FrameQueue;
use crate::remote::Remote;
use crate::stats::Shared;
use hdrhistogram::Histogram;
use saetta_tuple::Encoder;
use std::sync::Arc;

/// Where a task is, seen from one loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// Placed nowhere (yet): frames wait.
    Nowhere,
    /// An executor of this loop, by its place here.
    Local(u16),
    /// Another loop of this worker, by lane.
    Lane(u16),
    /// A loop of another worker.
    Remote(u16),
}

/// Where a task is, and whose credit it uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dest {
    pub(crate) via: Via,
    /// Index of its executor in `credits`.
    pub(crate) credit: u32,
}

/// Frames for one executor of this loop that it could not take at once, per lane they came by.
pub(crate) struct Inbox {
    /// 0 = this loop itself, then the other loops, then remote ones.
    pub(crate) lanes: Vec<FrameQueue>,
    /// True when some lane may hold frames.
    pub(crate) pending: bool,
}

/// See the head of this file.
pub(crate) struct Io {
    pub(crate) inboxes: Vec<Inbox>,
    pub(crate) lanes: Vec<LaneOut>,
    pub(crate) remotes: Vec<Remote>,
    /// By task id.
    pub(crate) dests: Vec<Dest>,
    /// By executor, in the layout's order.
    pub(crate) credits: Vec<CreditOut>,
    pub(crate) encoder: Encoder,
    pub(crate) scratch: Vec<u8>,
    pub(crate) clock: Clock,
    /// Spout emit to last bolt, nanoseconds, sampled tuples.
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) executor_outbox_bytes: usize,
    pub(crate) worker_outbox_bytes: u64,
    /// Frame bytes put into lanes that leave this loop.
    pub(crate) sent_bytes: u64,
}

impl Io {
    pub(crate) fn new_latency() -> Histogram<u64> {
        let (low, high, digits) = LATENCY_NS;
        let mut h = Histogram::new_with_bounds(low, high, digits).expect("bounds are constants");
        h.auto(false);
        h
    }

    /// Nanoseconds of the loop's clock.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// True when one more frame may be written to this lane's buffer (credit aside).
    #[inline(always)]
    pub(crate) fn has_room(&mut self, via: Via) -> bool {
        match via {
            Via::Local(_) => true,
            Via::Lane(lane) => self.lanes[lane as usize].has_room(),
            Via::Remote(remote) => {
                let remote = &self.remotes[remote as usize];
                remote.link.is_some() && remote.staging.len() < REMOTE_STAGING_BYTES_MAX
            }
            Via::Nowhere => false,
        }
    }

    /// Sends a whole frame, or says no.
    #[inline]
    pub(crate) fn try_send(&mut self, target: u32, frame: &[u8]) -> bool {
        let dest = self.dests[target as usize];
        if !self.has_room(dest.via) || !self.credits[dest.credit as usize].admits(frame.len()) {
            return false;
        }
        self.credits[dest.credit as usize].spend(frame.len());
        let buffer = self.buffer(dest.via).1;
        let start = buffer.len();
        buffer.extend_from_slice(frame);
        self.written(dest.via, start, frame.len());
        true
    }

    /// The encoder, and the buffer at whose end a frame for `via` is written. Call only after [`Self::has_room`].
    #[inline(always)]
    pub(crate) fn buffer(&mut self, via: Via) -> (&mut Encoder, &mut Vec<u8>) {
        let buffer = match via {
            Via::Local(executor) => self.inboxes[executor as usize].lanes[0].tail(),
            Via::Lane(lane) => &mut self.lanes[lane as usize].staging,
            Via::Remote(remote) => &mut self.remotes[remote as usize].staging,
            Via::Nowhere => unreachable!("has no room"),
        };
        (&mut self.encoder, buffer)
    }

    /// A frame of `n` bytes that has its credit was written at the end of the buffer of `via`, from `start` on.
    #[inline(always)]
    pub(crate) fn written(&mut self, via: Via, start: usize, n: usize) {
        match via {
            Via::Local(executor) => self.inboxes[executor as usize].pending = true,
            Via::Lane(lane) => {
                self.sent_bytes += n as u64;
                self.lanes[lane as usize].staged(start);
            }
            Via::Remote(_) | Via::Nowhere => self.sent_bytes += n as u64,
        }
    }
}
