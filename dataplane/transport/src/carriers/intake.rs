//! What comes in on the links of a carrier, whatever they go through.
//!
//! Before: `mod.rs` polls. After: `link.rs` has read whole segments, the loop has their frames and credits, and the next receive is due.

use super::slot::{Pipe, Slot};
use super::{Carrier, Sockets, io_lost, list, live_mut};
use crate::carrier::{Inbound, LinkId};
use crate::link::{Lost, Received};
use crate::wire;
use std::io;
use std::os::fd::AsFd;

impl Carrier {
    pub(super) fn poll_uring(&mut self, inbound: &mut dyn Inbound) -> usize {
        // Sessions that may hold plaintext since before they came here.
        for place in std::mem::take(&mut self.readable) {
            self.read_tls(place, inbound);
        }
        let Sockets::Uring(uring) = &mut self.sockets else { return 0 };
        if uring.needs_enter() {
            uring.enter();
        }
        let mut completions = std::mem::take(&mut self.completions);
        uring.collect(&mut completions);
        let n = completions.len();
        for c in completions.drain(..) {
            self.complete(c, inbound);
        }
        self.completions = completions;
        n
    }

    pub(super) fn poll_epoll(&mut self, inbound: &mut dyn Inbound) -> usize {
        let Sockets::Epoll(epoll) = &mut self.sockets else { return 0 };
        let mut edges = std::mem::take(&mut self.edges);
        epoll.look(&mut edges);
        for edge in edges.drain(..) {
            let Some(slot) = live_mut(&mut self.slots, edge.link) else { continue };
            slot.hung_up |= edge.hung_up || (edge.readable && !matches!(slot.pipe, Pipe::Stream(_)));
            if edge.readable && !slot.readable && matches!(slot.pipe, Pipe::Stream(_)) {
                slot.readable = true;
                self.readable.push(edge.link.place());
            }
            if edge.writable && slot.link.in_flight() {
                list(&mut self.ready, slot);
            }
        }
        self.edges = edges;
        let mut n = 0;
        let mut readable = std::mem::take(&mut self.readable);
        readable.retain(|&place| {
            n += self.receive_now(place, inbound);
            self.slots[place].as_ref().is_some_and(|s| s.readable && !s.closing)
        });
        readable.append(&mut self.readable);
        self.readable = readable;
        n
    }

    /// epoll: one receive, as much as there is room for.
    fn receive_now(&mut self, place: usize, inbound: &mut dyn Inbound) -> usize {
        let Sockets::Epoll(epoll) = &mut self.sockets else { return 0 };
        let Some(slot) = self.slots[place].as_deref_mut().filter(|s| !s.closing && !s.waiting) else { return 0 };
        let (Pipe::Stream(inflow), Some(socket)) = (&mut slot.pipe, &slot.socket) else { return 0 };
        let room = match &mut slot.tls {
            Some(tls) => tls.cipher_room(),
            None => inflow.free_mut(),
        };
        let asked = room.len();
        if asked == 0 {
            self.read_tls(place, inbound);
            return 1;
        }
        let result = epoll.receive(socket.as_fd(), room);
        match &result {
            Ok(None) => slot.readable = false,
            // A stream that gave less than was asked for has no more; what comes later makes a new edge. An end that came with the bytes
            // does not: it is seen by reading on.
            Ok(Some(n)) => slot.readable = *n == asked || *n == 0 || slot.hung_up,
            Err(e) if e.kind() == io::ErrorKind::OutOfMemory => {
                self.counters.retries += 1;
                return 0;
            }
            Err(_) => slot.readable = false,
        }
        self.counters.recvs += 1;
        let n = usize::from(!matches!(result, Ok(None)));
        self.received(place, result, inbound);
        n
    }

    /// Shared memory and wires of a test: whatever is there.
    pub(super) fn look(&mut self, place: usize, inbound: &mut dyn Inbound) -> usize {
        let now_ns = self.now_ns;
        let Some(slot) = self.slots[place].as_deref_mut().filter(|s| !s.closing && !s.waiting) else { return 0 };
        let result = match &mut slot.pipe {
            Pipe::Simulated(end, inflow) => end.read(inflow.free_mut(), now_ns),
            Pipe::Memory(memory) => match memory.news() {
                Ok(None) if slot.hung_up => Ok(Some(0)),
                Ok(None) => return 0,
                Ok(Some(full)) => {
                    self.received_memory(place, full, inbound);
                    return 1;
                }
                Err(e) => Err(e),
            },
            Pipe::Stream(_) => return 0,
        };
        let n = usize::from(!matches!(result, Ok(None)));
        self.received(place, result, inbound);
        n
    }

    /// Something new lies in a link's shared ring; `full` = it was full, and its writer may sleep until there is room.
    fn received_memory(&mut self, place: usize, full: bool, inbound: &mut dyn Inbound) {
        let now_ns = self.now_ns;
        self.counters.recvs += 1;
        self.slots[place].as_deref_mut().expect("live").link.heard(now_ns);
        self.take_segments(place, inbound);
        self.looked_through(place, full);
    }

    /// Segments were taken off a link's shared ring, those that are whole.
    fn looked_through(&mut self, place: usize, full: bool) {
        if let Some(Slot { pipe: Pipe::Memory(memory), closing: false, .. }) = self.slots[place].as_deref_mut() {
            memory.looked_through();
            if full {
                self.counters.calls += memory.wake_peer();
            }
        }
    }

    /// Bytes were added to a link's inflow, or its stream is over.
    pub(super) fn received(&mut self, place: usize, result: io::Result<Option<usize>>, inbound: &mut dyn Inbound) {
        let now_ns = self.now_ns;
        let slot = self.slots[place].as_deref_mut().expect("live");
        match result {
            Ok(Some(0)) | Err(_) if slot.link.end_of_stream() => self.end(place, None),
            Ok(Some(0)) => {
                let lost = slot.send_failed.take().unwrap_or_else(|| slot.link.lost_at_end_of_stream());
                self.end(place, Some(lost));
            }
            Ok(Some(n)) if slot.tls.is_some() => self.received_sealed(place, n, inbound),
            Ok(Some(n)) => {
                match &mut slot.pipe {
                    Pipe::Stream(inflow) | Pipe::Simulated(_, inflow) => inflow.advance(n),
                    Pipe::Memory(_) => {}
                }
                slot.link.heard(now_ns);
                self.take_segments(place, inbound);
            }
            Ok(None) => {}
            Err(e) => self.end(place, Some(io_lost("receive", &e))),
        }
    }

    /// Ciphertext came.
    fn received_sealed(&mut self, place: usize, bytes: usize, inbound: &mut dyn Inbound) {
        let slot = self.slots[place].as_deref_mut().expect("live");
        let Some(tls) = &mut slot.tls else { return };
        match tls.received(bytes) {
            Ok(()) => self.read_tls(place, inbound),
            Err(e) => self.end(place, Some(Lost::Io { what: "tls", error: e.to_string() })),
        }
    }

    /// Takes segments out of a session's plaintext, as far as there is any, then receives on.
    pub(super) fn read_tls(&mut self, place: usize, inbound: &mut dyn Inbound) {
        let now_ns = self.now_ns;
        loop {
            let Some(slot) = self.slots[place].as_deref_mut().filter(|s| !s.closing && !s.waiting) else { return };
            let (Some(tls), Pipe::Stream(inflow)) = (&mut slot.tls, &mut slot.pipe) else { return };
            match tls.read(inflow.free_mut()) {
                Ok(0) if tls.closed() => return self.received(place, Ok(Some(0)), inbound),
                Ok(0) => break,
                Ok(n) => {
                    inflow.advance(n);
                    self.counters.bytes_copied += n as u64;
                    slot.link.heard(now_ns);
                    self.take_segments(place, inbound);
                }
                Err(e) => return self.end(place, Some(Lost::Io { what: "tls", error: e.to_string() })),
            }
        }
        // A session answers on its own account now and then.
        let slot = self.slots[place].as_deref_mut().expect("live");
        if slot.tls.as_ref().is_some_and(|tls| !tls.outgoing().is_empty()) {
            list(&mut self.ready, slot);
        }
        self.read_on(place);
    }

    /// Handles whole segments at the front of what came, then receives on.
    fn take_segments(&mut self, place: usize, inbound: &mut dyn Inbound) {
        let now_ns = self.now_ns;
        let slot = self.slots[place].as_deref_mut().expect("live");
        let lost = loop {
            match slot.link.receive(slot.pipe.window(), now_ns, &mut self.receive_pool) {
                Received::More => break None,
                Received::Segment { bytes, credits, frames } => {
                    self.counters.segments_in += 1;
                    for (executor, limit) in wire::credits(credits) {
                        inbound.credit(slot.id, executor, limit);
                    }
                    if !frames.is_empty() {
                        self.counters.frame_bytes_in += frames.len() as u64;
                        if frames.len() > bytes {
                            self.counters.large_in += 1;
                            self.counters.bytes_copied += frames.len() as u64;
                        }
                        inbound.frames(slot.id, frames);
                    }
                    slot.pipe.release(bytes);
                }
                Received::Wait => {
                    if !slot.waiting {
                        slot.waiting = true;
                        self.waiting += 1;
                        self.counters.pool_waits += 1;
                    }
                    return;
                }
                Received::Lost(lost) => break Some(lost),
            }
        };
        if lost.is_some() {
            self.end(place, lost);
            return;
        }
        if slot.link.has_work() || slot.link.timer_due(now_ns) {
            list(&mut self.ready, slot);
        }
        if slot.finished() {
            self.end(place, None);
        } else if slot.tls.is_none() {
            self.read_on(place);
        }
    }

    /// Asks again for links whose next frame in pieces found no room in the pool.
    pub(super) fn retry_waiting(&mut self, inbound: &mut dyn Inbound) {
        for place in 0..self.slots.len() {
            let now_ns = self.now_ns;
            if let Some(slot) = self.slots[place].as_mut().filter(|s| s.waiting && !s.closing) {
                slot.waiting = false;
                self.waiting -= 1;
                slot.link.heard(now_ns);
                self.take_segments(place, inbound);
                self.read_tls(place, inbound);
                // What was full may have been so all the while.
                self.looked_through(place, true);
            }
        }
    }

    /// io_uring: the next receive is due. Elsewhere somebody looks anyway.
    pub(super) fn read_on(&mut self, place: usize) {
        let slot = self.slots[place].as_deref().expect("live");
        if matches!((&self.sockets, &slot.pipe), (Sockets::Uring(_), Pipe::Stream(_))) {
            self.to_receive.push(slot.id);
        }
    }

    pub(super) fn receive(&mut self, id: LinkId) {
        let Some(slot) = live_mut(&mut self.slots, id) else { return };
        if let (Sockets::Uring(uring), Pipe::Stream(inflow), Some(socket)) = (&mut self.sockets, &mut slot.pipe, &slot.socket)
            && !slot.held.receiving
        {
            let room = match &mut slot.tls {
                Some(tls) => tls.cipher_room(),
                None => inflow.free_mut(),
            };
            uring.receive(slot.id, socket.as_fd(), room, &mut slot.held);
        }
    }
}
