//! The way to a worker of the same host: a Unix socket beside the TCP door, over which memory and wake-up events change hands.
//!
//! Before: `dial.rs` / `accept.rs` run over it the handshake that they run over TCP. After: the carrier moves bytes through the memory
//! ([`SharedMemory`]), and the socket stays open for one purpose: it ends when the peer does.
//!
//! ```text
//!  dialer                                                      acceptor
//!    handshake, as over TCP                         <-->
//!    'M' with the memory and its loop's event         ->
//!                                <-  'W' with its loop's event
//! ```
//! The socket's name is abstract: it belongs to the network namespace, so who cannot be found here is reached by TCP, and nothing is left
//! behind by a kill. Anyone may take such a name; so both sides first look whether the other is our own user's, and then ask for the key.
//! Beyond the proof the peer is believed to mean well, not to be right: what it hands over is checked before it is used, and what is
//! wrong, or too much, is closed again.
//! Not here: which way is tried when (`dial.rs`), the rings (`saetta_ring::shared`).

use crate::connection::Connection;
use crate::peer_user;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, recvmsg, sendmsg, socket_with,
};
use saetta_ring::shared::{self, SharedPair};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The whole message that hands memory and event over.
const OFFER: u8 = b'M';
/// The whole message that answers with an event.
const ANSWER: u8 = b'W';
/// Descriptors there is room for at once; the kernel closes those beyond. More than any message has, so that too many are seen.
const DESCRIPTORS_MAX: usize = 4;
/// Bytes of an abstract name, at most.
const NAME_BYTES_MAX: usize = 107;
const BACKLOG: i32 = 1024;

/// The event of each core loop of this worker, by its number; empty = no memory.
pub(crate) type Wakers = Arc<[OwnedFd]>;

/// A link's memory, and what belongs to it.
pub struct SharedMemory {
    /// A ring each way, each as large as the larger of the two receive rings named in the handshake.
    pub pair: SharedPair,
    /// Nothing is said on it any more. It becomes readable when the peer's process has ended or has dropped the link: see then what is
    /// still in the ring. Close it to end the link.
    pub socket: OwnedFd,
    /// An eventfd, non-blocking: write 1 when `pair.sleep.peer_sleeps()`.
    pub peer_waker: OwnedFd,
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// Bytes of each way between two workers whose receive rings have these sizes.
pub(crate) fn ring_bytes(one: u32, other: u32) -> usize {
    one.max(other) as usize
}

/// Name of a worker's Unix socket: `saetta/TOPOLOGY/PLACEMENT`, or a digest for the topology where that is too long.
fn name(topology: &str, placement: u64) -> SocketAddrUnix {
    let mut name = format!("saetta/{topology}/{placement:016x}");
    if name.len() > NAME_BYTES_MAX {
        let digest: [u8; 32] = Sha256::digest(topology).into();
        let digest = u128::from_be_bytes(digest[..16].try_into().expect("sixteen bytes"));
        name = format!("saetta/#{digest:032x}/{placement:016x}");
    }
    SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("at most 107 bytes")
}

fn socket() -> Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
}

/// Binds the worker's name and listens. Errors: the name is taken.
pub(crate) fn listen_as(topology: &str, placement: u64) -> Result<OwnedFd> {
    let listener = socket()?;
    bind(&listener, &name(topology, placement))?;
    listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Connects to a worker's name, at once or not at all. Errors: nobody there, too many before us, another user's.
pub(crate) fn connect_to(topology: &str, placement: u64) -> Result<OwnedFd> {
    let socket = socket()?;
    connect(&socket, &name(topology, placement))?;
    if !peer_user::is_own(&socket) {
        return Err(Error::new(ErrorKind::PermissionDenied, "its Unix socket is held by another user"));
    }
    Ok(socket)
}

/// The dialling side, after the verdict.
pub(crate) struct Offer {
    /// Has one for `local_loop`.
    wakers: Wakers,
    local_loop: usize,
    local_ring_bytes: u32,
    /// Made and sent.
    pair: Option<SharedPair>,
    peer_waker: Option<OwnedFd>,
}

impl Offer {
    /// `None` = that loop has no event, so that nobody could wake it.
    pub(crate) fn new(wakers: &Wakers, local_loop: u32, local_ring_bytes: u32) -> Option<Self> {
        let local_loop = local_loop as usize;
        wakers.get(local_loop)?;
        Some(Offer { wakers: wakers.clone(), local_loop, local_ring_bytes, pair: None, peer_waker: None })
    }

    /// Goes on as far as the socket lets it. True = answered.
    pub(crate) fn advance(&mut self, socket: impl AsFd, remote_ring_bytes: u32) -> Result<bool> {
        if self.pair.is_none() {
            let (file, pair) = shared::create(ring_bytes(self.local_ring_bytes, remote_ring_bytes))?;
            say(socket.as_fd(), OFFER, &[file.as_fd(), self.wakers[self.local_loop].as_fd()])?;
            self.pair = Some(pair);
        }
        let Some([waker]) = hear(socket.as_fd(), ANSWER)? else { return Ok(false) };
        self.peer_waker = Some(event(waker)?);
        Ok(true)
    }

    /// After `advance` has said true.
    pub(crate) fn into_connection(self, socket: OwnedFd) -> Connection {
        let (pair, peer_waker) = self.pair.zip(self.peer_waker).expect("`advance` said so");
        Connection::Memory(Box::new(SharedMemory { pair, socket, peer_waker }))
    }
}

/// The accepting side, after the verdict: what the dialer hands over. `None` = not there yet. Errors: `InvalidData` when it is not what was
/// agreed, else the peer is gone.
pub(crate) fn take_offer(socket: impl AsFd, ring_bytes: usize) -> Result<Option<(SharedPair, OwnedFd)>> {
    let Some([file, waker]) = hear(socket.as_fd(), OFFER)? else { return Ok(None) };
    let waker = event(waker)?;
    Ok(Some((shared::open(file, ring_bytes)?, waker)))
}

/// The accepting side, after [`take_offer`].
pub(crate) fn answer(socket: OwnedFd, pair: SharedPair, peer_waker: OwnedFd, own_waker: &OwnedFd) -> Result<Connection> {
    say(socket.as_fd(), ANSWER, &[own_waker.as_fd()])?;
    Ok(Connection::Memory(Box::new(SharedMemory { pair, socket, peer_waker })))
}

/// Sends one byte and descriptors with it. Whatever was sent before has been read, so there is room.
fn say(socket: BorrowedFd<'_>, message: u8, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "no message has more than four");
    loop {
        match sendmsg(socket, &[IoSlice::new(&[message])], &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Receives what [`say`] sends: exactly this byte, with exactly so many descriptors. Others are closed. `None` = nothing there yet.
fn hear<const N: usize>(socket: BorrowedFd<'_>, message: u8) -> Result<Option<[OwnedFd; N]>> {
    const { assert!(N < DESCRIPTORS_MAX, "one too many is seen") };
    let wrong = |what: &str| Err(Error::new(ErrorKind::InvalidData, format!("handing over memory: {what}")));
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    // Closes what is left in it when it is dropped.
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received,
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    };
    if received.bytes == 0 {
        return Err(Error::new(ErrorKind::UnexpectedEof, "the other side hung up"));
    }
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return wrong("more descriptors than were agreed, or none left for them");
    }
    if byte != [message] {
        return wrong("another message was expected");
    }
    match descriptors.try_into() {
        Ok(descriptors) => Ok(Some(descriptors)),
        Err(got) => wrong(&format!("{N} descriptors were expected, {} came", got.len())),
    }
}

/// A peer's event, checked: a write to it neither blocks a core loop nor reaches anything else.
fn event(waker: OwnedFd) -> Result<OwnedFd> {
    let what = std::fs::read_link(format!("/proc/self/fd/{}", waker.as_raw_fd()))?;
    if what.as_os_str() != "anon_inode:[eventfd]" || !rustix::fs::fcntl_getfl(&waker)?.contains(OFlags::NONBLOCK) {
        let text = format!("handing over memory: a non-blocking event was expected, {} came", what.display());
        return Err(Error::new(ErrorKind::InvalidData, text));
    }
    Ok(waker)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    fn sockets() -> (OwnedFd, OwnedFd) {
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None).unwrap()
    }

    fn waker() -> OwnedFd {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
    }

    #[test]
    fn memory_and_events_change_hands() {
        let (a, b) = sockets();
        let (own, wakers) = (waker(), Wakers::from([waker()]));
        let mut offer = Offer::new(&wakers, 0, 1 << 14).unwrap();
        assert!(take_offer(&b, 1 << 16).unwrap().is_none(), "nothing there yet");
        assert!(!offer.advance(&a, 1 << 16).unwrap(), "the larger of the two rings");
        let (pair, peer_waker) = take_offer(&b, 1 << 16).unwrap().unwrap();
        let Connection::Memory(mut two) = answer(b, pair, peer_waker, &own).unwrap() else { unreachable!() };
        assert!(offer.advance(&a, 1 << 16).unwrap());
        let Connection::Memory(mut one) = offer.into_connection(a) else { unreachable!() };
        assert_eq!(one.pair.out.write_some(b"hello"), Ok(5));
        assert_eq!(two.pair.inn.readable(), Ok(&b"hello"[..]));
        let mut count = [0; 8];
        for (theirs, ours) in [(&one.peer_waker, &own), (&two.peer_waker, &wakers[0])] {
            rustix::io::write(theirs, &1u64.to_ne_bytes()).unwrap();
            assert_eq!(rustix::io::read(ours, &mut count), Ok(8), "the event at the other end is that one");
        }
    }

    #[test]
    fn a_loop_without_an_event_offers_nothing() {
        assert!(Offer::new(&Wakers::from([waker()]), 1, 1 << 14).is_none());
    }

    #[test]
    fn an_event_that_could_block_or_is_none_is_refused() {
        let (pipe, _end) = rustix::pipe::pipe().unwrap();
        for wrong in [eventfd(0, EventfdFlags::CLOEXEC).unwrap(), pipe, sockets().0] {
            assert_eq!(event(wrong).unwrap_err().kind(), ErrorKind::InvalidData);
        }
        assert!(event(waker()).is_ok());
    }

    #[test]
    fn every_topology_has_a_name_of_its_own_that_fits() {
        let long = |last: &str| "t".repeat(127) + last;
        let names = [name("wc-1", 2), name("wc-1", 3), name("wc-2", 2), name(&long("a"), 2), name(&long("b"), 2)];
        for (i, one) in names.iter().enumerate() {
            assert!(names[..i].iter().all(|other| other != one), "{one:?}");
        }
        assert_eq!(names[0].abstract_name().unwrap(), b"saetta/wc-1/0000000000000002");
    }
}
