//! Credit: a producer puts a frame into a lane only while the destination executor has room for it.
//!
//! Cumulative bytes on both sides, newest wins. `sent` never passes `limit`, so a frame taken from a lane always finds room and a
//! lane never waits for one executor. (Stopping the lane instead deadlocks an acyclic chain: tried, 20 of 20 seeds.)
//! Exception: a producer with nothing outstanding may send one frame of any size.

use crossbeam_utils::CachePadded;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A limit two loops look at: the consumer raises it, the producer reads it.
pub(crate) type SharedLimit = Arc<CachePadded<AtomicU64>>;

/// The producer's side: one per destination executor.
pub(crate) struct CreditOut {
    /// Bytes put into the lane since it began. `sent - (limit - window)` is at most what is outstanding.
    sent: u64,
    /// Newest limit known. At least `window` once the lane is open.
    limit: u64,
    window: u64,
    /// Closed: nothing may be sent (a link that is down).
    open: bool,
    shared: Option<SharedLimit>,
}

impl CreditOut {
    /// Within one loop: the limit is raised by calling [`Self::raise`].
    pub(crate) fn local(window: u64) -> Self {
        CreditOut { sent: 0, limit: window, window, open: true, shared: None }
    }

    /// Between loops of a worker.
    pub(crate) fn shared(window: u64, limit: SharedLimit) -> Self {
        CreditOut { sent: 0, limit: window, window, open: true, shared: Some(limit) }
    }

    /// To another worker: closed until the first grant arrives.
    pub(crate) fn remote() -> Self {
        CreditOut { sent: 0, limit: 0, window: 0, open: false, shared: None }
    }

    /// True when a frame of `bytes` may go now.
    #[inline(always)]
    pub(crate) fn admits(&mut self, bytes: usize) -> bool {
        if self.sent + bytes as u64 <= self.limit {
            return true;
        }
        self.admits_after_a_look(bytes as u64)
    }

    #[cold]
    fn admits_after_a_look(&mut self, bytes: u64) -> bool {
        if let Some(shared) = &self.shared {
            // Acquire: pairs with the Release in `CreditIn::grant`; the consumer's reads of those bytes are over.
            self.limit = self.limit.max(shared.load(Ordering::Acquire));
        }
        self.open && (self.sent + bytes <= self.limit || self.sent + self.window == self.limit)
    }

    /// Counts a frame that was put into the lane.
    #[inline(always)]
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// How full the destination is: bytes sent and not given back by the newest limit there is, beyond half a window. Up to half a window may
    /// have been handled and not been given back, which says nothing about load; counted, it would make a target in this loop look emptier
    /// than an equal one behind a lane.
    #[inline]
    pub(crate) fn fill_bytes(&self) -> u64 {
        // Acquire: as in `admits_after_a_look`; here only the number matters.
        let limit = self.shared.as_ref().map_or(self.limit, |shared| self.limit.max(shared.load(Ordering::Acquire)));
        (self.sent + self.window / 2).saturating_sub(limit)
    }

    /// True while frames may go as far as the limit.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// A newer limit; the first one opens a remote lane. A lane that opens on what an older link left in the inbox begins with less than
    /// its window and learns the rest as that is handled, so the window is the most that was ever free at once.
    pub(crate) fn raise(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
        self.window = self.window.max(self.limit.saturating_sub(self.sent));
        self.open = true;
    }

    /// A link ended: all its credit is void.
    pub(crate) fn void(&mut self) {
        *self = CreditOut::remote();
    }
}

/// The consumer's side: one per executor and lane.
pub(crate) struct CreditIn {
    /// Bytes handled since the lane began.
    consumed: u64,
    /// Newest limit told. At most `consumed + window`.
    granted: u64,
    window: u64,
    /// Bytes of an ended link that still wait in the inbox: they shrink the window until they are handled.
    held: u64,
}

impl CreditIn {
    pub(crate) fn new(window: u64) -> Self {
        CreditIn { consumed: 0, granted: window, window, held: 0 }
    }

    #[inline(always)]
    pub(crate) fn consume(&mut self, bytes: usize) {
        let old = self.held.min(bytes as u64);
        self.held -= old;
        self.consumed += bytes as u64 - old;
    }

    /// Bytes of an ended link go into the inbox after a new one has begun.
    pub(crate) fn hold(&mut self, bytes: usize) {
        self.held += bytes as u64;
    }

    /// A new limit when at least `part` of the window came free since the last one: half for the ordinary pace, nothing when idle.
    #[inline]
    pub(crate) fn due(&mut self, idle: bool) -> Option<u64> {
        let free = self.free();
        let step = if idle { 1 } else { self.window / 2 };
        (free >= self.granted + step.max(1)).then(|| {
            self.granted = free;
            free
        })
    }

    /// True when something came free that was not told yet.
    pub(crate) fn owes(&self) -> bool {
        self.free() > self.granted
    }

    #[inline]
    fn free(&self) -> u64 {
        (self.consumed + self.window).saturating_sub(self.held)
    }

    /// Bytes that came by this lane since it began, `queued` of them being in the inbox.
    pub(crate) fn received(&self, queued: usize) -> u64 {
        (self.consumed + queued as u64).saturating_sub(self.held)
    }

    /// Of those, the bytes that are handled.
    pub(crate) fn handled(&self) -> u64 {
        self.consumed
    }

    /// Grants nothing any more: the executor goes.
    pub(crate) fn stop(&mut self) {
        self.granted = u64::MAX / 2;
    }

    /// The first limit of an emitter that begins now, nothing of it being on its way.
    pub(crate) fn begin(&mut self, queued: usize) -> u64 {
        if self.consumed == 0 && self.held == 0 { self.granted } else { self.restart(queued as u64) }
    }

    /// A new link begins; `held` bytes of older ones still wait in the inbox. Returns the first limit, at least 1, so that a lane always opens.
    pub(crate) fn restart(&mut self, held: u64) -> u64 {
        self.consumed = 0;
        self.held = held;
        self.granted = self.free().max(1);
        self.granted
    }
}

/// Raises a limit between two loops of a worker.
#[inline]
pub(crate) fn grant(shared: &SharedLimit, limit: u64) {
    // Release: pairs with the Acquire in `admits_after_a_look`.
    shared.store(limit, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_spent_and_given_back_at_half() {
        let (mut out, mut inn) = (CreditOut::local(100), CreditIn::new(100));
        assert!(out.admits(60));
        out.spend(60);
        assert!(!out.admits(60));
        assert_eq!(out.fill_bytes(), 10, "sixty are out, of which half a window may be handled");
        inn.consume(40);
        assert_eq!(inn.due(false), None);
        assert!(inn.owes());
        inn.consume(20);
        let limit = inn.due(false).unwrap();
        assert_eq!(limit, 160);
        out.raise(limit);
        assert_eq!(out.fill_bytes(), 0);
        assert!(out.admits(100) && !out.admits(101) || out.admits(101), "nothing outstanding: any size");
    }

    #[test]
    fn with_nothing_outstanding_one_frame_of_any_size_may_go() {
        let mut out = CreditOut::local(100);
        assert!(out.admits(5000));
        out.spend(5000);
        assert!(!out.admits(1));
        out.raise(5100);
        assert!(out.admits(9999));
    }

    #[test]
    fn what_an_ended_link_left_shrinks_the_next_window_until_it_is_handled() {
        let mut inn = CreditIn::new(100);
        assert_eq!(inn.restart(30), 70);
        inn.consume(30);
        assert_eq!(inn.due(true), Some(100));
        inn.consume(10);
        assert_eq!(inn.due(true), Some(110));
        assert_eq!(inn.restart(500), 1);
    }

    #[test]
    fn what_comes_late_of_an_ended_link_shrinks_the_window_as_well() {
        let mut inn = CreditIn::new(100);
        assert_eq!(inn.restart(0), 100);
        inn.hold(40);
        inn.consume(40);
        assert_eq!(inn.due(true), None, "the new link has sent nothing");
        inn.consume(10);
        assert_eq!(inn.due(true), Some(110));
    }

    #[test]
    fn a_lane_that_opens_on_a_full_inbox_takes_a_large_frame_once_all_is_handled() {
        let (mut out, mut inn) = (CreditOut::remote(), CreditIn::new(100));
        out.raise(inn.restart(90));
        assert!(out.admits(10));
        out.spend(10);
        inn.consume(90);
        inn.consume(10);
        out.raise(inn.due(true).unwrap());
        assert!(out.admits(5000), "nothing is outstanding, so one frame of any size may go");
        out.spend(5000);
        assert!(!out.admits(1));
    }

    #[test]
    fn a_remote_lane_is_closed_until_its_first_grant_and_after_its_link() {
        let mut out = CreditOut::remote();
        assert!(!out.admits(1));
        out.raise(64);
        assert!(out.admits(64));
        out.void();
        assert!(!out.admits(1));
    }
}
