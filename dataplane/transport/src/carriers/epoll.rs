//! What a carrier asks of epoll, where io_uring cannot be had: edges of readiness, then non-blocking receives and sends.
//!
//! Before: `mod.rs` has links over sockets. After: it knows which may be read or written. Registered once for both, edge-triggered: a socket is
//! read until it gave less than it was asked for, or to its end once that is known to come, and written until it took less.

use crate::carrier::LinkId;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// Edges taken by one call; the others wait for the next.
const EVENTS_MAX: usize = 256;
/// Data of the event that wakes the loop; no link's bits are so large.
const WAKE: u64 = u64::MAX;

/// What a socket is ready for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub(super) link: LinkId,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// The peer writes no more, or the socket has failed.
    pub(super) hung_up: bool,
}

/// See the head of this file.
pub(super) struct Epoll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    wake: Option<RawFd>,
    /// Links registered.
    links: usize,
    /// System calls made.
    pub(super) calls: u64,
}

impl Epoll {
    /// Errors: no descriptor left.
    pub(super) fn open() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Epoll { epoll, events: Vec::with_capacity(EVENTS_MAX), wake: None, links: 0, calls: 0 })
    }

    pub(super) fn add(&mut self, link: LinkId, fd: BorrowedFd<'_>) -> io::Result<()> {
        use epoll::EventFlags as F;
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(u64::from(link.bits())), F::IN | F::OUT | F::RDHUP | F::ET)?;
        self.links += 1;
        Ok(())
    }

    pub(super) fn remove(&mut self, fd: BorrowedFd<'_>) {
        // One that is closed already is no longer registered.
        let _ = epoll::delete(&self.epoll, fd);
        self.links -= 1;
    }

    /// Edges that came since the last call, in `into`. No call without links.
    pub(super) fn look(&mut self, into: &mut Vec<Edge>) {
        if self.links > 0 {
            self.collect(Duration::ZERO, into);
        }
    }

    fn collect(&mut self, timeout: Duration, into: &mut Vec<Edge>) {
        self.calls += 1;
        let spec = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        self.events.clear();
        // EINTR: nothing came, and the loop looks again.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&spec));
        for event in self.events.iter().filter(|e| e.data.u64() != WAKE) {
            let (flags, data) = (event.flags, event.data.u64());
            let end = epoll::EventFlags::HUP | epoll::EventFlags::ERR | epoll::EventFlags::RDHUP;
            into.push(Edge {
                link: LinkId::from_bits(data as u32),
                readable: flags.intersects(epoll::EventFlags::IN | end),
                writable: flags.intersects(epoll::EventFlags::OUT | end),
                hung_up: flags.intersects(end),
            });
        }
    }

    /// Waits for an edge, for `wake` to become readable, or for `timeout`.
    pub(super) fn wait(&mut self, wake: BorrowedFd<'_>, timeout: Duration, into: &mut Vec<Edge>) {
        if self.wake != Some(wake.as_raw_fd()) {
            // Level-triggered: whoever waits takes it off the event.
            if epoll::add(&self.epoll, wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN).is_ok() {
                self.wake = Some(wake.as_raw_fd());
            }
        }
        self.collect(timeout, into);
    }

    /// Reads what there is room for. `None` = nothing until the next edge; 0 = the end of the stream. An error of kind `OutOfMemory` passes.
    pub(super) fn receive(&mut self, fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<Option<usize>> {
        self.calls += 1;
        match recv(fd, into, RecvFlags::DONTWAIT) {
            Ok((n, _)) => Ok(Some(n)),
            Err(Errno::AGAIN) => Ok(None),
            Err(Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => Err(io::ErrorKind::OutOfMemory.into()),
            Err(e) => Err(e.into()),
        }
    }

    /// Writes what the socket takes. 0 = nothing until the next edge, or until the sweep looks again.
    pub(super) fn send(&mut self, fd: BorrowedFd<'_>, [head, rest]: [&[u8]; 2]) -> io::Result<usize> {
        self.calls += 1;
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = match head {
            [] => send(fd, rest, flags),
            _ => sendmsg(fd, &[IoSlice::new(head), IoSlice::new(rest)], &mut SendAncillaryBuffer::default(), flags),
        };
        match sent {
            Ok(n) => Ok(n),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => Ok(0),
            Err(e) => Err(e.into()),
        }
    }
}
