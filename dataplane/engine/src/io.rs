//! The outgoing half of a core loop: where a task is, what is staged for it, whether there is credit, and the frame goes.
//!
//! Before: `emit.rs` has a frame for a task. After: it lies in a local inbox, a lane's ring, or a remote loop's staging; or it is
//! refused and stays in the emitter's outbox.

use crate::ack::Acks;
use crate::clock::Clock;
use crate::credit::CreditOut;
use crate::lane::{LaneOut, drop_handles, replace_by_handle};
use crate::limits::{REMOTE_STAGING_BYTES_KEPT, REMOTE_STAGING_BYTES_MAX, WATERMARK_BYTES};
use crate::metrics::LoopMetrics;
use crate::moves::{Lane, Marker, Version, Who};
use crate::queue::FrameQueue;
use crate::relay::Relay;
use crate::remote::Remote;
use crate::stats::Shared;
use hdrhistogram::Histogram;
use saetta_tuple::Encoder;
use std::sync::Arc;

/// The place of tasks that are placed nowhere (yet): frames wait.
pub(crate) const NOWHERE: u16 = 0;

/// Private memory in which frames for one place are written. Every place of a loop has one, in this order: nowhere, the executors of this
/// loop, its lanes to the other loops of the worker, the loops of other workers.
pub(crate) struct Staging {
    /// Whole frames.
    pub(crate) frames: Vec<u8>,
    /// At this many bytes nothing more is written; 0 = closed.
    pub(crate) room: usize,
    /// At this many bytes they are moved on.
    watermark: usize,
    /// A larger frame crosses by handle.
    frame_max: usize,
    /// Bit of the worker that runs the place, for the masks of acks; 0 while a place elsewhere is closed. See [`crate::worker_bit`].
    pub(crate) worker_bit: u64,
}

impl Staging {
    fn new(room: usize, watermark: usize, worker_bit: u64) -> Self {
        Staging { frames: Vec::new(), room, watermark, frame_max: usize::MAX, worker_bit }
    }
}

/// What stands behind a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    Nowhere,
    /// An executor of this loop.
    Local(usize),
    /// Another loop of this worker, by lane.
    Lane(usize),
    /// A loop of another worker.
    Remote(usize),
}

/// Where a task is, and whose credit it uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dest {
    /// Place in `staging`.
    pub(crate) at: u16,
    /// Index of its executor in `credits`.
    pub(crate) credit: u32,
}

/// Frames for one executor of this loop that it could not take at once, per lane they came by.
pub(crate) struct Inbox {
    /// 0 = this loop itself, whose newest frames are still in the staging; then the other loops, then remote ones.
    pub(crate) lanes: Vec<FrameQueue>,
    /// True when some lane besides the first may hold frames.
    pub(crate) pending: bool,
}

/// See the head of this file.
pub(crate) struct Io {
    pub(crate) staging: Vec<Staging>,
    /// Place of the first lane.
    pub(crate) first_lane: usize,
    pub(crate) inboxes: Vec<Inbox>,
    pub(crate) lanes: Vec<LaneOut>,
    pub(crate) remotes: Vec<Remote>,
    /// Links that loops share.
    pub(crate) relay: Relay,
    /// By task id.
    pub(crate) dests: Vec<Dest>,
    /// By executor, in the layout's order.
    pub(crate) credits: Vec<CreditOut>,
    pub(crate) encoder: Encoder,
    pub(crate) scratch: Vec<u8>,
    /// Tasks of the choice being sent; reused.
    pub(crate) chosen: Vec<u32>,
    pub(crate) clock: Clock,
    /// When the running turn began, nanoseconds.
    pub(crate) turn_ns: u64,
    /// When time was last measured.
    pub(crate) lap_ns: u64,
    /// Trees: whose ledgers are where, and what waits to be told to them.
    pub(crate) acks: Acks,
    /// Spout emit to last bolt, nanoseconds, sampled tuples.
    pub(crate) latency_ns: Histogram<u64>,
    /// What is counted and timed per executor.
    pub(crate) metrics: LoopMetrics,
    pub(crate) shared: Arc<Shared>,
    /// The loop's own.
    pub(crate) sleeper: Arc<saetta_ring::Sleeper>,
    pub(crate) executor_outbox_bytes: usize,
    pub(crate) worker_outbox_bytes: u64,
    /// Frame bytes put into lanes that leave this loop.
    pub(crate) sent_bytes: u64,
    /// Bytes from links that were copied into an inbox: their executor was held up.
    pub(crate) copied_bytes: u64,
    /// In this turn something stopped only because its turn was over: there is more to send at once.
    pub(crate) more: bool,
    /// Executors that change place, by their index in `credits`: frames for them are held. They are placed nowhere meanwhile.
    pub(crate) held: Vec<u32>,
    /// Markers that came: by which lane, and what had come by it for each executor of this loop.
    pub(crate) markers: Vec<CameMarker>,
}

/// A marker that came by a lane, and how many bytes had come by it for each executor of the loop.
pub(crate) struct CameMarker {
    pub(crate) lane: Lane,
    pub(crate) marker: Marker,
    pub(crate) who: Who,
    pub(crate) version: Version,
    pub(crate) received: Vec<(Who, u64)>,
}

/// A place that takes nothing (yet).
pub(crate) fn closed() -> Staging {
    Staging::new(0, usize::MAX, 0)
}

/// Places of a loop with `n_local` executors, `lanes` to other loops and nothing remote yet.
pub(crate) fn places(n_local: usize, n_lanes: usize, ring_bytes: usize, worker_bit: u64) -> Vec<Staging> {
    let lane_room = ring_bytes / crate::limits::HANDLE_RING_PART;
    let mut all = vec![closed()];
    all.extend((0..n_local).map(|_| Staging::new(usize::MAX, usize::MAX, worker_bit)));
    all.extend((0..n_lanes).map(|_| Staging {
        frames: Vec::with_capacity(crate::limits::STAGING_BYTES_KEPT),
        frame_max: lane_room,
        ..Staging::new(lane_room, WATERMARK_BYTES, worker_bit)
    }));
    all
}

impl Io {
    /// Nanoseconds of the process's clock.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// A turn of the loop begins: what time it is.
    #[inline]
    pub(crate) fn begin_turn(&mut self) -> u64 {
        self.turn_ns = self.now_ns();
        self.more = false;
        self.lap_ns = self.turn_ns;
        self.metrics.turn_begins(self.turn_ns);
        self.turn_ns
    }

    /// Nanoseconds since this was asked last, or since the turn began.
    #[inline]
    pub(crate) fn lap_ns(&mut self) -> u64 {
        let now_ns = self.now_ns();
        let lap = now_ns.saturating_sub(self.lap_ns);
        self.lap_ns = now_ns;
        lap
    }

    /// True when an executor of this loop has no frame waiting.
    #[inline]
    pub(crate) fn inbox_is_empty(&self, place: usize) -> bool {
        self.staging[1 + place].frames.is_empty() && self.inboxes[place].lanes[0].is_empty() && !self.inboxes[place].pending
    }

    /// Frame bytes that wait on this loop for one of its executors.
    pub(crate) fn queued_bytes(&self, place: usize) -> usize {
        self.staging[1 + place].frames.len() + self.inboxes[place].lanes.iter().map(FrameQueue::bytes).sum::<usize>()
    }

    /// Takes what this loop itself has for one of its executors. Must be put back into lane 0 of its inbox.
    #[inline]
    pub(crate) fn take_own(&mut self, place: usize) -> crate::queue::Taken {
        self.inboxes[place].lanes[0].take_or(&mut self.staging[1 + place].frames)
    }

    pub(crate) fn via(&self, at: u16) -> Via {
        let (at, first_lane) = (at as usize, self.first_lane);
        let first_remote = first_lane + self.lanes.len();
        match at {
            0 => Via::Nowhere,
            _ if at < first_lane => Via::Local(at - 1),
            _ if at < first_remote => Via::Lane(at - first_lane),
            _ => Via::Remote(at - first_remote),
        }
    }

    /// What is staged for a place in this worker, and the worker's bit.
    #[inline(always)]
    pub(crate) fn staged_here(&mut self, at: u16) -> Option<(&mut [u8], u64)> {
        if at as usize >= self.first_lane + self.lanes.len() {
            return None;
        }
        let staging = &mut self.staging[at as usize];
        Some((&mut staging.frames, staging.worker_bit))
    }

    /// Place of a remote loop.
    pub(crate) fn remote_place(&self, remote: usize) -> usize {
        self.first_lane + self.lanes.len() + remote
    }

    /// An executor of this loop gets its place, behind the others of the loop. Places from there on are one higher.
    /// `windows`: on lanes, and on links.
    pub(crate) fn insert_local(&mut self, windows: (u64, u64), worker_bit: u64) {
        let at = self.first_lane;
        let mut staging = Staging::new(usize::MAX, usize::MAX, worker_bit);
        staging.frames.reserve(crate::queue::reserved_bytes(windows.0));
        self.staging.insert(at, staging);
        self.first_lane += 1;
        self.dests.iter_mut().filter(|d| d.at as usize >= at).for_each(|d| d.at += 1);
        let near = (0..1 + self.lanes.len()).map(|_| FrameQueue::with_window(windows.0));
        let lanes = near.chain(self.remotes.iter().map(|_| FrameQueue::with_window(windows.1))).collect();
        self.inboxes.push(Inbox { lanes, pending: false });
    }

    /// The executor at `place` is gone, and nobody is sent to it. Places above are one lower.
    pub(crate) fn remove_local(&mut self, place: usize) {
        self.staging.remove(1 + place);
        self.first_lane -= 1;
        self.inboxes.remove(place);
        for dest in &mut self.dests {
            assert!(dest.at as usize != 1 + place, "nobody is sent to an executor that is gone");
            dest.at -= u16::from(dest.at as usize > 1 + place);
        }
    }

    /// The place of a lane, as inboxes number them.
    pub(crate) fn place_of_lane(&self, lane: Lane) -> usize {
        self.first_lane + lane as usize - 1
    }

    /// The lane behind a place: 0 for this loop's own.
    pub(crate) fn lane_at(&self, at: u16) -> Option<Lane> {
        match self.via(at) {
            Via::Nowhere => None,
            Via::Local(_) => Some(0),
            Via::Lane(lane) => Some(1 + lane as Lane),
            Via::Remote(remote) => Some((1 + self.lanes.len() + remote) as Lane),
        }
    }

    /// A new remote loop gets its place, closed until it has a link.
    pub(crate) fn add_remote(&mut self, remote: Remote) {
        self.remotes.push(remote);
        self.staging.push(closed());
    }

    /// Opens a remote loop's place, for the incarnation that `worker_bit` stands for.
    pub(crate) fn open_place(&mut self, remote: usize, worker_bit: u64) {
        let at = self.remote_place(remote);
        self.staging[at].room = REMOTE_STAGING_BYTES_MAX;
        self.staging[at].frames.reserve_exact(REMOTE_STAGING_BYTES_KEPT);
        self.staging[at].worker_bit = worker_bit;
    }

    /// Closes it.
    pub(crate) fn close_place(&mut self, remote: usize) {
        let at = self.remote_place(remote);
        self.staging[at].room = 0;
        self.staging[at].worker_bit = 0;
    }

    /// True when one more frame may be written for this place (credit aside).
    #[inline]
    pub(crate) fn has_room(&mut self, at: u16) -> bool {
        let staging = &self.staging[at as usize];
        staging.frames.len() < staging.room || (staging.room > 0 && self.move_on(at) && self.has_room_now(at))
    }

    #[inline]
    pub(crate) fn has_room_now(&self, at: u16) -> bool {
        let staging = &self.staging[at as usize];
        staging.frames.len() < staging.room
    }

    /// Writes what is staged for a lane into its ring; false = the ring has no room. Other places keep theirs until they are read.
    pub(crate) fn move_on(&mut self, at: u16) -> bool {
        let Some(lane) = (at as usize).checked_sub(self.first_lane).filter(|lane| *lane < self.lanes.len()) else { return true };
        self.push_staged(lane)
    }

    /// As [`Self::move_on`], of a lane that has something staged.
    #[inline]
    fn push_staged(&mut self, lane: usize) -> bool {
        let staged = &mut self.staging[self.first_lane + lane].frames;
        if !self.lanes[lane].push(staged) {
            return false;
        }
        self.sent_bytes += staged.len() as u64;
        staged.clear();
        true
    }

    /// Moves the frame at the end of a place's staging, from `start` on, to the end of another's. Returns where it begins there.
    #[inline]
    pub(crate) fn move_staged(&mut self, from: u16, start: usize, to: u16) -> usize {
        let (low, high) = self.staging.split_at_mut(from.max(to) as usize);
        let (low, high) = (&mut low[from.min(to) as usize].frames, &mut high[0].frames);
        let (from, to) = if from < to { (low, high) } else { (high, low) };
        let at = to.len();
        to.extend_from_slice(&from[start..]);
        from.truncate(start);
        at
    }

    /// A frame that has its credit was written from `start` on, and the watermark may be reached. False = the place has no room for another.
    #[inline(always)]
    pub(crate) fn written(&mut self, at: u16, start: usize) -> bool {
        let staging = &self.staging[at as usize];
        staging.frames.len() < staging.watermark || self.at_watermark(at, start)
    }

    #[inline(never)]
    pub(crate) fn at_watermark(&mut self, at: u16, start: usize) -> bool {
        let staging = &mut self.staging[at as usize];
        if staging.frames.len() - start > staging.frame_max {
            replace_by_handle(&mut staging.frames, start);
        }
        self.move_on(at) || self.has_room_now(at)
    }

    /// Moves on and publishes what there is for every lane: at the end of an executor's turn.
    #[inline]
    pub(crate) fn flush_lanes(&mut self) {
        for lane in 0..self.lanes.len() {
            if !self.staging[self.first_lane + lane].frames.is_empty() {
                self.push_staged(lane);
            }
        }
    }

    /// Sends a whole frame, or says no.
    #[inline]
    pub(crate) fn try_send(&mut self, target: u32, frame: &[u8]) -> bool {
        let dest = self.dests[target as usize];
        if !self.has_room(dest.at) || !self.credits[dest.credit as usize].admits(frame.len()) {
            return false;
        }
        self.credits[dest.credit as usize].spend(frame.len());
        let staged = &mut self.staging[dest.at as usize].frames;
        let start = staged.len();
        staged.extend_from_slice(frame);
        self.written(dest.at, start);
        true
    }

    /// Frame bytes of this loop that wait for a lane or a link, or are not yet read at its other end.
    pub(crate) fn waiting_bytes(&mut self) -> usize {
        self.staging.iter().map(|s| s.frames.len()).sum::<usize>() + self.lanes.iter_mut().map(LaneOut::unread_bytes).sum::<usize>()
    }
}

impl Drop for Io {
    fn drop(&mut self) {
        self.staging.iter().for_each(|s| drop_handles(&s.frames));
    }
}
