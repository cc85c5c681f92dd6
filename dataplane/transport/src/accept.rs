//! Strangers at the door: takes connections, lets in who proves the key and is admitted, and stays small whoever knocks.
//!
//! Before: `connector.rs` polled the descriptors. After: an admitted socket goes to its core loop; a probe is answered here.
//! Before a connection is proven it costs one descriptor and under a KiB, for at most [`UNPROVEN_TIME_MAX`]; there are at most
//! [`UNPROVEN_MAX`] of them, [`UNPROVEN_PER_ADDRESS_MAX`] from one address. Whoever is over is closed at once. A worker of this host may
//! come over the Unix socket of `memory.rs` instead: the same handshake, the same bounds, and all of them count as one address.
//! With TLS a TCP connection costs [`TLS_UNPROVEN_MEMORY_MAX`](crate::TLS_UNPROVEN_MEMORY_MAX) at most, may send
//! [`TLS_HANDSHAKE_BYTES_MAX`](crate::TLS_HANDSHAKE_BYTES_MAX), and takes a signature and a key agreement of this thread, 0.1 ms.

use crate::carrier::Peer;
use crate::connection::Connection;
use crate::connector::{nonce, tune};
use crate::handshake::{AcceptorHandshake, Admission, Claim, HandshakeError, Identity, Key, Outcome, Refusal, Step};
use crate::line::{Line, LineError};
use crate::memory::{self, Wakers};
use crate::peer_user;
use crate::tls::{TlsError, TlsSetup};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, acceptfrom_with, bind, getsockname, listen, socket_with, sockopt};
use saetta_ring::shared::SharedPair;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Connections that are not yet admitted.
pub(crate) const UNPROVEN_MAX: usize = 256;
/// Of them, from one address.
pub(crate) const UNPROVEN_PER_ADDRESS_MAX: usize = 64;
/// How long a connection may take to be admitted.
pub(crate) const UNPROVEN_TIME_MAX: Duration = Duration::from_secs(2);
/// Connections taken from the queue per turn; the rest wait for the next.
const ACCEPTS_PER_TURN: usize = 128;
/// How long the door stays shut when the system has no descriptor or memory left.
const MUTE: Duration = Duration::from_millis(100);
const BACKLOG: i32 = 1024;
const _: () = assert!(UNPROVEN_PER_ADDRESS_MAX < UNPROVEN_MAX, "one address cannot take every place");

/// An admitted link. Give the connection to the carrier of loop `peer.local_loop`.
#[derive(Debug)]
pub struct Accepted {
    /// Handshake done.
    pub connection: Connection,
    /// Proven and admitted.
    pub peer: Peer,
}

/// What came to the door. Counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AcceptorCounters {
    /// Connections taken.
    pub accepted: u64,
    /// Links admitted.
    pub admitted: u64,
    /// Probes answered.
    pub probes: u64,
    /// Proven, and refused for what they claimed.
    pub refused: u64,
    /// Did not speak our protocol or version.
    pub foreign: u64,
    /// Spoke TLS where it is not spoken, or did not where it is: `transport.tls` differs, a stranger, or a probe, which finds out that way.
    pub tls_differs: u64,
    /// Did not hold the key, or replayed.
    pub unproven: u64,
    /// Proven, but malformed.
    pub malformed: u64,
    /// Did not finish in time.
    pub expired: u64,
    /// Left, or failed, in the middle.
    pub gone: u64,
    /// Closed at once because too many were waiting.
    pub over_cap: u64,
    /// Closed at once because no descriptor was left.
    pub no_descriptor: u64,
    /// Closed at once because they came over the Unix socket as another user.
    pub other_user: u64,
}

struct Unproven {
    line: Line,
    /// `None` = over the Unix socket.
    address: Option<IpAddr>,
    deadline: Instant,
    handshake: AcceptorHandshake,
    output: Vec<u8>,
    outcome: Option<Outcome>,
    /// What an admitted link over the Unix socket has handed over.
    handed: Option<(SharedPair, OwnedFd)>,
}

/// See the head of this file.
pub(crate) struct Acceptor {
    listener: OwnedFd,
    address: SocketAddr,
    /// The Unix socket. `None` = workers of this host come over TCP as all others.
    local: Option<OwnedFd>,
    pub(crate) wakers: Wakers,
    /// `None` = TCP connections are plain.
    tls: Option<TlsSetup>,
    /// Given up for a moment when no descriptor is left, so that a connection can be taken and closed.
    reserve: Option<OwnedFd>,
    unproven: Vec<Unproven>,
    muted_until: Option<Instant>,
    pub(crate) counters: AcceptorCounters,
}

/// Binds `address` with SO_REUSEADDR and listens.
pub(crate) fn listen_on(address: SocketAddr, key: &Key) -> io::Result<OwnedFd> {
    if !address.ip().is_loopback() && !key.authenticates() {
        let text = format!("bind {address}: an address beyond loopback needs authentication; configure a topology key or bind 127.0.0.1");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let listener = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    let named = |e: Errno| io::Error::new(io::Error::from(e).kind(), format!("bind {address}: {}", io::Error::from(e)));
    bind(&listener, &address).map_err(named)?;
    listen(&listener, BACKLOG).map_err(named)?;
    Ok(listener)
}

impl Acceptor {
    pub(crate) fn new(address: SocketAddr, key: &Key, local: Option<OwnedFd>, tls: Option<TlsSetup>) -> io::Result<Self> {
        let listener = listen_on(address, key)?;
        let address = getsockname(&listener)?.try_into()?;
        let mut acceptor = Acceptor {
            listener,
            address,
            local,
            wakers: Wakers::default(),
            tls,
            reserve: None,
            unproven: Vec::new(),
            muted_until: None,
            counters: AcceptorCounters::default(),
        };
        acceptor.refill_reserve();
        Ok(acceptor)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Descriptors to poll: the listeners (unless muted), then the unproven in order; true = for writing.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        let listeners = [Some(&self.listener), self.local.as_ref()].into_iter().flatten().filter(|_| self.muted_until.is_none());
        listeners.map(|l| (l.as_fd(), false)).chain(self.unproven.iter().map(|u| (u.line.socket.as_fd(), u.line.wants_write(&u.output))))
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        // Ascending: everyone has the same time.
        self.unproven.first().map(|u| u.deadline).into_iter().chain(self.muted_until).min()
    }

    /// Handles what `poll` said about [`Acceptor::descriptors`], in that order.
    pub(crate) fn turn(
        &mut self,
        ready: &mut dyn Iterator<Item = bool>,
        now: Instant,
        key: &Key,
        own: &Identity,
        decide: &mut dyn FnMut(&Claim) -> Result<Admission, Refusal>,
        out: &mut dyn FnMut(Accepted),
    ) {
        let open = self.muted_until.is_none();
        let knock = open && ready.next() == Some(true);
        let knock_local = open && self.local.is_some() && ready.next() == Some(true);
        if self.muted_until.is_some_and(|until| until <= now) {
            self.muted_until = None;
        }
        let (counters, wakers) = (&mut self.counters, &self.wakers);
        let flags: Vec<bool> = self.unproven.iter().map(|_| ready.next() == Some(true)).collect();
        let mut flags = flags.into_iter();
        let kept = std::mem::take(&mut self.unproven).into_iter().filter_map(|mut u| {
            let ready = flags.next() == Some(true);
            if u.deadline <= now {
                counters.expired += 1;
                return None;
            }
            if !ready {
                return Some(u);
            }
            match u.advance(own, decide) {
                Ok(false) => Some(u),
                Ok(true) => {
                    u.finish(own, wakers, counters, out);
                    None
                }
                Err(gone) => {
                    match gone {
                        Some(HandshakeError::Secured | HandshakeError::Tls(TlsError::Plain)) => counters.tls_differs += 1,
                        Some(HandshakeError::Foreign | HandshakeError::Version(_) | HandshakeError::Tls(_)) => counters.foreign += 1,
                        Some(HandshakeError::Proof) => counters.unproven += 1,
                        Some(_) => counters.malformed += 1,
                        None => counters.gone += 1,
                    }
                    None
                }
            }
        });
        self.unproven = kept.collect();
        if knock {
            self.accept(false, now, key);
        }
        if knock_local {
            self.accept(true, now, key);
        }
    }

    fn listener(&self, local: bool) -> &OwnedFd {
        self.local.as_ref().filter(|_| local).unwrap_or(&self.listener)
    }

    fn accept(&mut self, local: bool, now: Instant, key: &Key) {
        for _ in 0..ACCEPTS_PER_TURN {
            let (socket, from) = match acceptfrom_with(self.listener(local), SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(accepted) => accepted,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::MFILE | Errno::NFILE) if self.reserve.is_some() => {
                    // Take the caller with the reserved descriptor and hang up: else it waits in the queue for ever. The system says
                    // "no descriptor" before it looks at the queue, so this is also how an empty queue is noticed.
                    self.reserve = None;
                    let hung_up = acceptfrom_with(self.listener(local), SocketFlags::CLOEXEC).is_ok();
                    self.refill_reserve();
                    if !hung_up {
                        return;
                    }
                    self.counters.no_descriptor += 1;
                    continue;
                }
                // No memory, or descriptors so short that not even the reserve came back.
                Err(_) => {
                    self.refill_reserve();
                    self.muted_until = Some(now + MUTE);
                    return;
                }
            };
            self.counters.accepted += 1;
            if local && !peer_user::is_own(&socket) {
                self.counters.other_user += 1;
                continue;
            }
            let address = from.and_then(|a| SocketAddr::try_from(a).ok()).map(|a| a.ip());
            if address.is_some() == local {
                continue;
            }
            let same = self.unproven.iter().filter(|u| u.address == address).count();
            let Some(nonce) = nonce().filter(|_| self.unproven.len() < UNPROVEN_MAX && same < UNPROVEN_PER_ADDRESS_MAX) else {
                self.counters.over_cap += 1;
                continue;
            };
            let Ok(session) = self.tls.as_ref().filter(|_| !local).map(TlsSetup::accept).transpose() else {
                self.counters.over_cap += 1;
                continue;
            };
            let line = Line::new(socket, session);
            let handshake = AcceptorHandshake::new(key.clone(), nonce);
            let deadline = now + UNPROVEN_TIME_MAX;
            self.unproven.push(Unproven { line, address, deadline, handshake, output: Vec::new(), outcome: None, handed: None });
        }
    }

    fn refill_reserve(&mut self) {
        if self.reserve.is_none() {
            self.reserve = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).ok();
        }
    }
}

impl Unproven {
    /// Goes on as far as the socket lets it. True = over, with an outcome. `Err(None)` = the other side is gone.
    fn advance(
        &mut self,
        own: &Identity,
        decide: &mut dyn FnMut(&Claim) -> Result<Admission, Refusal>,
    ) -> Result<bool, Option<HandshakeError>> {
        loop {
            let ended = |e| match e {
                LineError::Gone(_) => None,
                LineError::Tls(e) => Some(HandshakeError::Tls(e)),
            };
            if !self.line.write_some(&mut self.output).map_err(ended)? {
                return Ok(false);
            }
            if let Some(outcome) = &self.outcome {
                return if self.hands_over() {
                    self.take(memory::ring_bytes(own.ring_bytes, outcome.claim.from.ring_bytes))
                } else {
                    Ok(true)
                };
            }
            let mut buffer = [0; crate::handshake::HANDSHAKE_BYTES_MAX];
            let want = self.handshake.wants();
            let Some(n) = self.line.read_some(&mut buffer[..want]).map_err(ended)? else { return Ok(false) };
            self.handshake.bind(self.line.binding());
            if let Step::Done(outcome) = self.handshake.input(&buffer[..n], own, decide).map_err(Some)? {
                self.outcome = Some(outcome);
            }
            self.output.append(&mut self.handshake.take_output());
        }
    }

    /// An admitted link over the Unix socket: memory is to come.
    fn hands_over(&self) -> bool {
        self.address.is_none() && self.outcome.as_ref().is_some_and(|o| matches!(o.decision, Ok(Admission::Link)))
    }

    /// Memory of `ring_bytes` each way, once it is there.
    fn take(&mut self, ring_bytes: usize) -> Result<bool, Option<HandshakeError>> {
        self.handed = memory::take_offer(&self.line.socket, ring_bytes).map_err(|e| match e.kind() {
            io::ErrorKind::InvalidData => Some(HandshakeError::Malformed("the memory it hands over")),
            _ => None,
        })?;
        Ok(self.handed.is_some())
    }

    fn finish(self, own: &Identity, wakers: &Wakers, counters: &mut AcceptorCounters, out: &mut dyn FnMut(Accepted)) {
        let Outcome { claim, decision } = self.outcome.expect("`advance` said so");
        let connection = |line: Line, handed| match handed {
            None => tune(&line.socket).map(|()| line.into_connection()),
            Some((pair, peer_waker)) => {
                let waker = wakers.get(claim.to_loop as usize).ok_or(io::ErrorKind::Unsupported)?;
                memory::answer(line.socket, pair, peer_waker, waker)
            }
        };
        match decision {
            Err(_) => counters.refused += 1,
            Ok(Admission::Probe { .. }) => counters.probes += 1,
            Ok(Admission::Link) => {
                let Ok(connection) = connection(self.line, self.handed) else {
                    counters.gone += 1;
                    return;
                };
                counters.admitted += 1;
                let peer = Peer {
                    placement: claim.from.placement,
                    start: claim.from.start,
                    index: claim.from.index,
                    local_loop: claim.to_loop,
                    remote_loop: claim.from_loop,
                    local_ring_bytes: own.ring_bytes,
                    remote_ring_bytes: claim.from.ring_bytes,
                    road: claim.road,
                };
                out(Accepted { connection, peer });
            }
        }
    }
}
