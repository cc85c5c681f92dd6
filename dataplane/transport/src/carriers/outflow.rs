//! What goes out on the links of a carrier, whatever they go through.
//!
//! Before: `mod.rs` flushes a link that has something. After: its segment is written, in part or as a whole, or is the kernel's to write.

use super::slot::{Pipe, Slot};
use super::{Carrier, Sockets, io_lost, list};
use std::io;
use std::os::fd::AsFd;

impl Carrier {
    /// Writes what there is to write, and wakes a peer that sleeps behind shared memory. True = as [`Self::write`].
    pub(super) fn write_out(&mut self, place: usize) -> bool {
        let again = self.write(place);
        if let Some(Slot { pipe: Pipe::Memory(memory), .. }) = self.slots[place].as_deref_mut() {
            self.counters.calls += memory.wake_peer();
        }
        again
    }

    /// Writes the rest of the segment in flight, or forms and writes the next. True = it is to be asked again with the next flush: nothing will
    /// say when there is room.
    fn write(&mut self, place: usize) -> bool {
        let now_ns = self.now_ns;
        loop {
            let slot = self.slots[place].as_deref_mut().expect("live");
            if slot.held.sending || slot.send_failed.is_some() {
                return false;
            }
            let outgoing = slot.tls.as_ref().map_or(0, |tls| tls.outgoing().len());
            if !slot.link.in_flight() && (outgoing == 0 || slot.link.has_work()) {
                let before = slot.link.sent_bytes();
                if slot.link.form(now_ns, &mut self.send_pool) {
                    self.counters.segments_out += 1;
                    self.counters.frame_bytes_out += slot.link.sent_bytes() - before;
                } else if outgoing == 0 {
                    return false;
                }
            }
            if let Some(tls) = &mut slot.tls
                && slot.link.in_flight()
            {
                let [head, rest] = slot.link.flight();
                let sealed = tls.seal(if head.is_empty() { rest } else { head });
                slot.link.written(sealed);
                if sealed > 0 {
                    continue;
                }
            }
            let flight = match &slot.tls {
                Some(tls) => [&[], tls.outgoing()],
                None => slot.link.flight(),
            };
            let [head, rest] = flight;
            let first = if head.is_empty() { rest } else { head };
            let (asked, result, told) = match (&mut slot.pipe, &mut self.sockets, &slot.socket) {
                (Pipe::Stream(_), Sockets::Uring(uring), Some(socket)) => {
                    uring.send(slot.id, socket.as_fd(), flight, &mut slot.held);
                    return false;
                }
                (Pipe::Stream(_), Sockets::Epoll(epoll), Some(socket)) => {
                    (head.len() + rest.len(), epoll.send(socket.as_fd(), flight), true)
                }
                (Pipe::Memory(memory), ..) => (first.len(), memory.write(first), false),
                (Pipe::Simulated(end, _), ..) => (first.len(), end.write(first, now_ns), false),
                (Pipe::Stream(_), _, None) => unreachable!("a stream has its socket"),
            };
            self.counters.sends += 1;
            let all = matches!(result, Ok(n) if n == asked);
            let failed = result.is_err();
            self.written(place, result);
            if !all {
                return !told && !failed;
            }
            if self.slots[place].as_ref().is_none_or(|s| s.closing) {
                return false;
            }
        }
    }

    /// So much of the segment in flight was written, or nothing can be written any more.
    pub(super) fn written(&mut self, place: usize, result: io::Result<usize>) {
        let slot = self.slots[place].as_deref_mut().expect("live");
        match result {
            Ok(n) => {
                match &mut slot.tls {
                    Some(tls) => tls.written(n),
                    None => slot.link.written(n),
                }
                self.counters.sends_short += u64::from(slot.link.in_flight());
            }
            // The peer may be gone in good order: its goodbye can still lie in the socket, and reading comes to it.
            Err(e) => {
                slot.send_failed = Some(io_lost("send", &e));
                return;
            }
        }
        let sealed = slot.tls.as_ref().is_some_and(|tls| !tls.outgoing().is_empty());
        if ((slot.link.in_flight() || sealed) && matches!(self.sockets, Sockets::Uring(_)))
            || slot.link.has_work()
            || slot.link.timer_due(self.now_ns)
        {
            list(&mut self.ready, slot);
        }
        if slot.finished() {
            self.end(place, None);
        }
    }
}
