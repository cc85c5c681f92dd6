//! One link of a carrier: its machine, who is at the other end, and the pipe its bytes go through.
//!
//! Before: `mod.rs` moves the bytes. After: `link.rs` says what they mean.

use super::uring::Parts;
use crate::carrier::{LinkId, Peer};
use crate::link::{Link, Lost};
use crate::memory::SharedMemory;
use crate::sim;
use crate::tls::Tls;
use saetta_ring::Mirror;
use saetta_ring::shared::SharedPair;
use std::io;
use std::os::fd::OwnedFd;

/// Bytes that came and are not handled yet, always one slice.
pub(super) struct Inflow {
    ring: Mirror,
    tail: u64,
    head: u64,
}

impl Inflow {
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        Ok(Inflow { ring: Mirror::new(bytes)?, tail: 0, head: 0 })
    }

    #[inline]
    pub(super) fn window(&self) -> &[u8] {
        self.ring.slice(self.tail, (self.head - self.tail) as usize)
    }

    pub(super) fn release(&mut self, bytes: usize) {
        self.tail += bytes as u64;
        assert!(self.tail <= self.head, "no more than the window");
        if self.tail == self.head {
            // The memory that was used last is the one in the cache.
            (self.tail, self.head) = (0, 0);
        }
    }

    /// Room behind the window. Never none between two segments: a whole one is at most half the ring.
    pub(super) fn free_mut(&mut self) -> &mut [u8] {
        let free = self.ring.capacity() - (self.head - self.tail) as usize;
        self.ring.slice_mut(self.head, free)
    }

    /// So many bytes were written to the room.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.head += bytes as u64;
        assert!(self.head - self.tail <= self.ring.capacity() as u64, "no more than the room");
    }
}

/// What the bytes of a link go through.
pub(super) enum Pipe {
    /// A socket, in `Slot::socket`.
    Stream(Inflow),
    /// Memory another process of this host maps as well; `Slot::socket` only tells when that process is gone.
    Memory(Memory),
    /// An end in this process.
    Simulated(sim::End, Inflow),
}

/// Rings in shared memory, and how to wake their other side.
pub(super) struct Memory {
    pub(super) pair: SharedPair,
    pub(super) peer_waker: OwnedFd,
    /// Bytes of an unfinished segment that were looked at already.
    pub(super) partial: usize,
}

impl Memory {
    pub(super) fn new(memory: SharedMemory) -> (Self, OwnedFd) {
        let SharedMemory { pair, socket, peer_waker } = memory;
        (Memory { pair, peer_waker, partial: 0 }, socket)
    }

    /// What is there beyond what was looked at already: `None` = nothing; whether the ring was full, so that its writer may sleep on that.
    #[inline]
    pub(super) fn news(&mut self) -> io::Result<Option<bool>> {
        // Looks at the writer's index in any case: a window that ends in the middle of a segment would hide what follows.
        self.pair.inn.is_empty().map_err(io::Error::other)?;
        let capacity = self.pair.inn.capacity();
        let there = self.pair.inn.readable().map_err(io::Error::other)?.len();
        Ok((there > self.partial).then_some(there == capacity))
    }

    /// All whole segments were taken: what is left was looked at. Not what came meanwhile, which is news.
    #[inline]
    pub(super) fn looked_through(&mut self) {
        self.partial = self.pair.inn.seen();
    }

    /// Copies in what fits.
    #[inline]
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pair.out.write_some(bytes).map_err(io::Error::other)
    }

    /// Wakes the other side if it sleeps. Returns the system calls made.
    #[inline]
    pub(super) fn wake_peer(&self) -> u64 {
        if !self.pair.sleep.peer_sleeps() {
            return 0;
        }
        // A full counter (EAGAIN) means that a wake-up is already pending; a peer that is gone is known by its socket.
        let _ = rustix::io::write(&self.peer_waker, &1u64.to_ne_bytes());
        1
    }

    /// True when this side may sleep: from here on the other wakes it. `blocked` = something waits for room.
    pub(super) fn may_sleep(&mut self, blocked: bool) -> bool {
        self.pair.sleep.about_to_sleep();
        let nothing_new = matches!(self.news(), Ok(None));
        nothing_new && !(blocked && self.pair.out.free(1).is_ok_and(|n| n > 0))
    }
}

impl Pipe {
    /// What came and is not handled yet.
    #[inline]
    pub(super) fn window(&mut self) -> &[u8] {
        match self {
            Pipe::Stream(inflow) | Pipe::Simulated(_, inflow) => inflow.window(),
            // A ring that is not sound ends the link when it is looked at next.
            Pipe::Memory(memory) => memory.pair.inn.readable().unwrap_or_default(),
        }
    }

    pub(super) fn release(&mut self, bytes: usize) {
        match self {
            Pipe::Stream(inflow) | Pipe::Simulated(_, inflow) => inflow.release(bytes),
            Pipe::Memory(memory) => memory.pair.inn.release(bytes),
        }
    }
}

/// Operations of io_uring that name memory or the descriptor of a slot. Set and cleared in `uring.rs` alone.
pub(super) struct Held {
    pub(super) receiving: bool,
    pub(super) sending: bool,
    pub(super) watching: bool,
    pub(super) cancelling: bool,
    /// Where the segment being sent lies, if in two parts.
    pub(super) parts: Box<Parts>,
}

impl Held {
    fn nothing() -> Self {
        Held { receiving: false, sending: false, watching: false, cancelling: false, parts: Parts::none() }
    }

    pub(super) fn any(&self) -> bool {
        self.receiving || self.sending || self.watching || self.cancelling
    }
}

/// See the head of this file.
pub(super) struct Slot {
    pub(super) id: LinkId,
    pub(super) link: Link,
    pub(super) peer: Peer,
    pub(super) pipe: Pipe,
    /// Between link and socket, where the connection is under TLS.
    pub(super) tls: Option<Box<Tls>>,
    pub(super) held: Held,
    /// A send failed. Nothing more is sent; what the peer left for us is read to its end, which then ends the link.
    pub(super) send_failed: Option<Lost>,
    /// epoll: the socket may have more to read than was read.
    pub(super) readable: bool,
    /// The peer's end of the socket is closed. Not noticed by io_uring where the socket carries bytes: there a receive tells.
    pub(super) hung_up: bool,
    /// Listed in `Carrier::ready`.
    pub(super) listed: bool,
    /// The front segment waits for the pool; nothing is read meanwhile.
    pub(super) waiting: bool,
    /// Over; its end is told once, then the slot is freed as soon as the kernel holds nothing of it.
    pub(super) closing: bool,
    pub(super) told: bool,
    /// Dropped last, after the buffers above.
    pub(super) socket: Option<OwnedFd>,
}

impl Slot {
    pub(super) fn new(id: LinkId, link: Link, peer: Peer, pipe: Pipe, socket: Option<OwnedFd>) -> Self {
        Slot {
            id,
            link,
            peer,
            pipe,
            tls: None,
            held: Held::nothing(),
            send_failed: None,
            readable: false,
            hung_up: false,
            listed: false,
            waiting: false,
            closing: false,
            told: false,
            socket,
        }
    }

    /// Nothing more will come or go.
    pub(super) fn finished(&self) -> bool {
        self.link.finished() && self.tls.as_ref().is_none_or(|tls| tls.outgoing().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use saetta_ring::shared;

    fn memory(pair: SharedPair) -> Memory {
        Memory { pair, peer_waker: eventfd(0, EventfdFlags::CLOEXEC).unwrap(), partial: 0 }
    }

    #[test]
    fn what_comes_while_segments_are_taken_is_news_also_when_nothing_follows_it() {
        let (file, pair) = shared::create(1 << 14).unwrap();
        let (mut near, mut far) = (memory(pair), memory(shared::open(file, 1 << 14).unwrap()));
        for (whole, cut, meanwhile) in [(64, 0, 64), (64, 24, 40), (0, 24, 8), (128, 0, 1 << 14), (8, 8, (1 << 14) - 8)] {
            assert_eq!(near.write(&vec![1; whole + cut]).unwrap(), whole + cut);
            assert_eq!(far.news().unwrap(), Some(false));
            assert_eq!(far.pair.inn.readable().unwrap().len(), whole + cut);
            far.pair.inn.release(whole);
            // The last look finds part of a segment, or nothing.
            assert_eq!(far.pair.inn.seen(), cut);
            assert_eq!(near.write(&vec![2; meanwhile]).unwrap(), meanwhile);
            far.looked_through();
            assert_eq!(far.news().unwrap(), Some(cut + meanwhile == 1 << 14), "{whole} {cut} {meanwhile}");
            far.looked_through();
            assert_eq!(far.news().unwrap(), None, "looked at");
            far.pair.inn.release(cut + meanwhile);
            far.looked_through();
        }
    }
}
