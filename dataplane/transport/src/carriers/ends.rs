//! How the links of a carrier end: by goodbyes, by silence, by an error, or with the carrier.
//!
//! Before: `intake.rs`, `outflow.rs` or the sweep has found that a link is over. After: the loop was told, once, of what was lost, and the link's
//! memory is free as soon as the kernel holds none of it.

use super::uring::Uring;
use super::{Carrier, Sockets, list};
use crate::carrier::{Ending, Inbound, LinkEnd};
use crate::link::Lost;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How often links are looked at for silence and reports.
const SWEEP_NS: u64 = 10_000_000;
/// Longest wait for cancelled operations when the carrier is dropped.
const DROP_WAIT: Duration = Duration::from_secs(2);
const DROP_STEP: Duration = Duration::from_millis(10);

impl Carrier {
    pub(super) fn sweep(&mut self) {
        self.sweep_ns = self.now_ns + SWEEP_NS;
        for place in 0..self.slots.len() {
            let Some(slot) = self.slots[place].as_mut().filter(|s| !s.closing) else { continue };
            if let Some(lost) = slot.link.overdue(self.now_ns) {
                self.end(place, Some(lost));
            } else if slot.link.timer_due(self.now_ns) || (slot.link.in_flight() && !slot.held.sending) {
                list(&mut self.ready, slot);
            }
        }
    }

    /// Ends a live link: `None` = in order. Tells it with the current or next `poll`, and frees its memory when the kernel is done.
    pub(super) fn end(&mut self, place: usize, lost: Option<Lost>) {
        let slot = self.slots[place].as_deref_mut().expect("live");
        assert!(!slot.closing, "a link ends once");
        slot.closing = true;
        if slot.waiting {
            slot.waiting = false;
            self.waiting -= 1;
        }
        let (unsent_bytes, unconfirmed_bytes) = slot.link.close(&mut self.send_pool, &mut self.receive_pool);
        match &lost {
            None => self.counters.links_goodbye += 1,
            Some(_) => self.counters.links_lost += 1,
        }
        match &lost {
            Some(Lost::Crc { .. }) => self.counters.crc_errors += 1,
            None | Some(Lost::Silent { .. } | Lost::EndOfStream | Lost::Uncounted { .. } | Lost::Io { .. } | Lost::ClosedHere) => {}
            Some(_) => self.counters.protocol_errors += 1,
        }
        let how = lost.map_or(Ending::Goodbye, |lost| Ending::Lost { reason: lost.to_string() });
        let id = slot.id;
        self.ended.push((id, LinkEnd { how, unsent_bytes, unconfirmed_bytes }));
        self.looked_at.retain(|p| *p != place);
        match (&mut self.sockets, &slot.socket) {
            (Sockets::Uring(uring), Some(socket)) if slot.held.any() => uring.cancel(id, socket.as_fd(), &mut slot.held),
            (Sockets::Epoll(epoll), Some(socket)) => epoll.remove(socket.as_fd()),
            _ => {}
        }
    }

    /// Says which links are over, and what was lost with those that did not end in order.
    pub(super) fn tell_ends(&mut self, inbound: &mut dyn Inbound) -> usize {
        let ended = std::mem::take(&mut self.ended);
        let n = ended.len();
        for (id, end) in ended {
            let slot = self.slots[id.place()].as_mut().expect("kept until it is told");
            if end.how != Ending::Goodbye {
                slot.link.each_unconfirmed(&mut |frames| inbound.lost(id, frames));
            }
            slot.told = true;
            self.reap(id.place());
            inbound.ended(id, end);
        }
        n
    }

    /// Frees an ended link once its end was told and the kernel holds none of its memory.
    pub(super) fn reap(&mut self, place: usize) {
        if self.slots[place].as_ref().is_some_and(|s| s.closing && s.told && !s.held.any()) {
            self.slots[place] = None;
        }
    }
}

impl Drop for Carrier {
    /// Cancels everything and waits for it, since the kernel may write to a link's memory until its completion.
    fn drop(&mut self) {
        for place in 0..self.slots.len() {
            if self.slots[place].as_ref().is_some_and(|s| !s.closing) {
                self.end(place, Some(Lost::ClosedHere));
            }
        }
        let start = Instant::now();
        let Sockets::Uring(uring) = &mut self.sockets else { return };
        while self.slots.iter().flatten().any(|s| s.held.any()) && start.elapsed() < DROP_WAIT {
            uring.wait(None, DROP_STEP);
            uring.collect(&mut self.completions);
            for c in self.completions.drain(..) {
                let slot = self.slots[c.link.place()].as_mut().expect("a slot outlives its last completion");
                Uring::settle(&mut slot.held, c.done);
            }
        }
        // The kernel did not let go in time: leaking the memory is harmless, freeing it is not.
        for slot in self.slots.drain(..).flatten().filter(|s| s.held.any()) {
            std::mem::forget(slot);
        }
    }
}
