//! Door and dialler of a worker in one: one place to wait, on the watchdog's thread.
//!
//! Before: the worker knows its key, who it is, and which peers it wants. After: sockets whose handshake is done, for the core loops.
//! Blocks only in `poll`. Not here: which claims are admitted (the caller's `decide`), and anything after the handshake.

use crate::accept::{Accepted, Acceptor, AcceptorCounters};
use crate::carrier::Peer;
use crate::connection::Connection;
use crate::dial::{Dialer, Target, TargetKey};
use crate::handshake::{Admission, Claim, Identity, Key, Refusal};
use crate::memory::{self, Wakers};
use crate::tls::TlsSetup;
use crate::wire;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// First TCP keep-alive probe after so long without traffic, and the pause between probes.
const KEEPALIVE: Duration = Duration::from_secs(1);
/// Unanswered probes that end a connection.
const KEEPALIVE_PROBES: u32 = 3;
/// Unacknowledged data that old ends a connection; the same bound as a link's silence.
const UNACKNOWLEDGED_MS_MAX: u32 = 4000;
/// Longest single wait, whatever the caller asks.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);

/// What a connector needs to know.
#[derive(Debug, Clone)]
pub struct ConnectorOptions {
    /// Where links and probes arrive. Beyond loopback only with a key that authenticates. Port 0 = any.
    pub bind: SocketAddr,
    /// Of the topology.
    pub key: Key,
    /// Who this worker is.
    pub identity: Identity,
    /// `transport.memory`: workers of this host share memory, once [`Connector::set_wakers`] has said how to wake our loops.
    pub memory: bool,
    /// `transport.tls`: every TCP connection is under TLS, in both directions; who does not speak it is refused. Memory is not on any wire.
    pub tls: bool,
}

/// What a turn brought.
#[derive(Debug)]
pub enum ConnectorEvent {
    /// A peer came in and was admitted. It may replace an older link of the same two loops that this side has not yet seen end.
    Accepted(Accepted),
    /// A target was reached. It is not dialled again until [`Connector::again`].
    Connected {
        /// Which.
        target: TargetKey,
        /// Handshake done.
        connection: Connection,
        /// Who answered.
        peer: Peer,
    },
    /// A target could not be reached, for a reason not told before; it is tried on.
    Unreachable {
        /// Which.
        target: TargetKey,
        /// Where.
        addr: SocketAddr,
        /// One line for the log.
        reason: String,
    },
    /// A target of this host was reached over TCP, because it shares no memory, for a reason not told before.
    WithoutMemory {
        /// Which.
        target: TargetKey,
        /// One line for the log.
        reason: String,
    },
}

/// See the head of this file.
pub struct Connector {
    key: Key,
    identity: Identity,
    memory: bool,
    without_memory: Option<String>,
    acceptor: Acceptor,
    dialer: Dialer,
}

impl Connector {
    /// Binds and listens. Errors: the address is taken or not ours; `PermissionDenied` when it is not loopback and the key does not
    /// authenticate; `InvalidInput` when the identity's ring size is none.
    pub fn new(options: ConnectorOptions) -> io::Result<Self> {
        let ConnectorOptions { bind, key, identity, memory, tls } = options;
        if !wire::ring_bytes_valid(identity.ring_bytes as usize) {
            let text = format!("a receive ring of {} bytes: a power of two from 16 KiB to 4 MiB is allowed", identity.ring_bytes);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let seed = nonce().ok_or_else(|| io::Error::other("the system gives no random bytes"))?;
        let seed = u64::from_le_bytes(seed[..8].try_into().expect("eight bytes"));
        let tls = tls.then(TlsSetup::new).transpose().map_err(io::Error::other)?;
        // Before the TCP door: who finds that one open finds this one too, if it is of this host.
        let local = memory.then(|| memory::listen_as(&identity.topology, identity.placement)).transpose();
        let without_memory = local.as_ref().err().map(|e| format!("no Unix socket for workers of this host, they come over TCP: {e}"));
        let acceptor = Acceptor::new(bind, &key, local.ok().flatten(), tls.clone())?;
        Ok(Connector { acceptor, dialer: Dialer::new(seed, tls), key, identity, memory, without_memory })
    }

    /// One line for the log, when workers of this host cannot reach us by memory although they should. We may reach them.
    pub fn without_memory(&self) -> Option<&str> {
        self.without_memory.as_deref()
    }

    /// The event of each core loop, by its number (a duplicate of its sleeper's): what a worker of this host writes to when a link's sleep word
    /// says so. Say it before the first turn; without it, or with `memory` off, all links are TCP.
    pub fn set_wakers(&mut self, wakers: Vec<OwnedFd>) {
        let wakers = if self.memory { Wakers::from(wakers) } else { Wakers::default() };
        self.acceptor.wakers = wakers.clone();
        self.dialer.wakers = wakers;
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.acceptor.address()
    }

    /// Makes `targets` the whole set of links wanted from this side. Level-triggered: repeating it changes nothing. A target that is
    /// left out is no longer dialled; a link it already gave stays.
    pub fn set_targets(&mut self, targets: &[Target]) {
        self.dialer.set_targets(targets, Instant::now());
    }

    /// The link to a target has ended: dial it again if it is still wanted.
    pub fn again(&mut self, key: TargetKey) {
        self.dialer.again(key, Instant::now());
    }

    /// What came to the door so far.
    pub fn counters(&self) -> AcceptorCounters {
        self.acceptor.counters
    }

    /// Waits for anything, one of `extra` becoming readable included, for `timeout` at most; handles it; adds what it brought to `out`.
    /// `decide` is asked about each claim that is proven, names this topology and, for a link, this placement and format: it refuses
    /// placements the newest assignment does not name, start numbers below the highest seen, loops that do not exist; it admits a
    /// link with [`Admission::Link`] and a probe with [`Admission::Probe`].
    pub fn turn(
        &mut self,
        timeout: Duration,
        extra: &[BorrowedFd<'_>],
        decide: &mut dyn FnMut(&Claim) -> Result<Admission, Refusal>,
        out: &mut Vec<ConnectorEvent>,
    ) {
        let now = Instant::now();
        let deadline = self.acceptor.deadline().into_iter().chain(self.dialer.deadline(now)).min();
        let own = deadline.map_or(WAIT_MAX, |at| at.saturating_duration_since(now));
        let timeout = timeout.min(own).min(WAIT_MAX);
        let mut fds: Vec<PollFd<'_>> = self
            .acceptor
            .descriptors()
            .chain(self.dialer.descriptors())
            .chain(extra.iter().map(|fd| (*fd, false)))
            .map(|(fd, write)| PollFd::from_borrowed_fd(fd, if write { PollFlags::OUT } else { PollFlags::IN }))
            .collect();
        let spec = timeout.try_into().expect("a wait is bounded by a minute");
        // EINTR and the like: nothing is ready, and the caller turns again.
        let polled = poll(&mut fds, Some(&spec));
        let ready: Vec<bool> = fds.iter().map(|fd| polled.is_ok() && !fd.revents().is_empty()).collect();
        drop(fds);
        let now = Instant::now();
        let mut ready = ready.into_iter();
        let mut accepted = |a| out.push(ConnectorEvent::Accepted(a));
        self.acceptor.turn(&mut ready, now, &self.key, &self.identity, decide, &mut accepted);
        self.dialer.turn(&mut ready, now, &self.key, &self.identity, out);
    }
}

/// Options of a link's socket.
pub(crate) fn tune(socket: &OwnedFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(socket, UNACKNOWLEDGED_MS_MAX)?;
    Ok(())
}

/// Fresh random bytes; `None` when the system has none.
pub(crate) fn nonce() -> Option<[u8; 32]> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).ok().map(|()| nonce)
}
