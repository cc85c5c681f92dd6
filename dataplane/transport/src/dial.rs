//! Reaching the peers a worker should be linked to: many at once, with back-off and jitter, never more than twenty attempts a second.
//!
//! Before: the worker says which targets it wants (level-triggered: the whole set, as often as it likes). After: a connected socket
//! goes to its core loop. A refused or unreachable target is tried for ever; its reason is told once per change.
//! A target of this host is tried over its Unix socket first (`memory.rs`); where that fails, the same attempt goes on over TCP.

use crate::carrier::{Peer, Road};
use crate::connection::Connection;
use crate::connector::{ConnectorEvent, WAIT_MAX, nonce, tune};
use crate::handshake::{Claim, DialerHandshake, HandshakeError, Identity, Key, ProbeReply, Role, Step, Verdict};
use crate::line::{Line, LineError};
use crate::memory::{self, Offer, Wakers};
use crate::tls::{Tls, TlsSetup};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Attempts of one worker in any second.
pub(crate) const ATTEMPTS_PER_SECOND_MAX: usize = 20;
/// How long a connection may take to be made, and then its handshake.
pub(crate) const STAGE_TIME_MAX: Duration = Duration::from_secs(3);
/// First pause after a failure; doubles with each.
const BACK_OFF_FIRST: Duration = Duration::from_millis(50);
/// Longest pause.
const BACK_OFF_MAX: Duration = Duration::from_secs(2);
/// A connection that lived so long starts the back-off anew.
const STABLE: Duration = Duration::from_secs(5);

/// Which connection: two per pair of core loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetKey {
    /// Placement id of the worker to reach.
    pub placement: u64,
    /// Our core loop.
    pub local_loop: u32,
    /// Its core loop.
    pub remote_loop: u32,
    /// What it is for.
    pub road: Road,
}

/// A link the worker wants, and where its peer lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Which.
    pub key: TargetKey,
    /// Address of the peer's worker.
    pub addr: SocketAddr,
    /// True = as far as the assignment knows it lives on our host: memory is tried first.
    pub same_host: bool,
}

/// Pause after the n-th failure in a row (from 0): doubling, bounded, and spread over its upper half by `random`.
pub(crate) fn back_off(failures: u32, random: u64) -> Duration {
    let full = BACK_OFF_FIRST.saturating_mul(1 << failures.min(16)).min(BACK_OFF_MAX);
    full / 2 + (full / 2).mul_f64((random >> 11) as f64 / (1u64 << 53) as f64)
}

/// Lets at most [`ATTEMPTS_PER_SECOND_MAX`] attempts begin in any second.
#[derive(Default)]
pub(crate) struct Pace {
    begun: VecDeque<Instant>,
}

impl Pace {
    /// When the next attempt may begin.
    pub(crate) fn next(&self, now: Instant) -> Instant {
        if self.begun.len() < ATTEMPTS_PER_SECOND_MAX { now } else { (self.begun[0] + Duration::from_secs(1)).max(now) }
    }

    pub(crate) fn begin(&mut self, now: Instant) {
        if self.begun.len() == ATTEMPTS_PER_SECOND_MAX {
            self.begun.pop_front();
        }
        self.begun.push_back(now);
    }
}

enum State {
    /// Not connected; tried again at `Wanted::due`.
    Resting,
    Dialling(Box<Dialling>),
    /// Handed out.
    Connected(Instant),
}

struct Dialling {
    line: Line,
    /// What is done over a Unix socket when the verdict is there. `None` = over TCP.
    offer: Option<Offer>,
    /// False until the connection stands.
    connected: bool,
    deadline: Instant,
    handshake: DialerHandshake,
    output: Vec<u8>,
    verdict: Option<Verdict>,
    /// The other side has said why it does not want us: another way is of no use.
    refused: bool,
}

struct Wanted {
    target: Target,
    state: State,
    due: Instant,
    failures: u32,
    /// Last reason told.
    told: Option<String>,
    /// Why this attempt has left memory for TCP.
    without_memory: Option<String>,
    /// Of those, the last one told.
    told_without: Option<String>,
    /// Nobody was at the Unix socket; whoever answers over TCP bound that one first, so it may be there by then.
    once_more: bool,
}

/// See the head of this file.
pub(crate) struct Dialer {
    wanted: Vec<Wanted>,
    pace: Pace,
    random: u64,
    pub(crate) wakers: Wakers,
    /// `None` = TCP connections are plain.
    tls: Option<TlsSetup>,
}

impl Dialer {
    pub(crate) fn new(random: u64, tls: Option<TlsSetup>) -> Self {
        Dialer { wanted: Vec::new(), pace: Pace::default(), random, wakers: Wakers::default(), tls }
    }

    /// Makes `targets` the whole set: new ones are dialled, missing ones dropped, the others go on as they are.
    pub(crate) fn set_targets(&mut self, targets: &[Target], now: Instant) {
        self.wanted.retain(|w| targets.contains(&w.target));
        for &target in targets {
            if !self.wanted.iter().any(|w| w.target == target) {
                self.wanted.push(Wanted {
                    target,
                    state: State::Resting,
                    due: now,
                    failures: 0,
                    told: None,
                    without_memory: None,
                    told_without: None,
                    once_more: false,
                });
            }
        }
    }

    /// The link to a target has ended: it is dialled again, with back-off when it had not lived long.
    pub(crate) fn again(&mut self, key: TargetKey, now: Instant) {
        let random = self.next_random();
        if let Some(w) = self.wanted.iter_mut().find(|w| w.target.key == key)
            && let State::Connected(since) = w.state
        {
            w.failures = if now.saturating_duration_since(since) >= STABLE { 0 } else { w.failures };
            w.rest(now, random);
        }
    }

    /// Descriptors to poll, in the order [`Dialer::turn`] expects; true = for writing.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        self.wanted.iter().filter_map(|w| match &w.state {
            State::Dialling(d) => Some((d.line.socket.as_fd(), !d.connected || d.line.wants_write(&d.output))),
            _ => None,
        })
    }

    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let next = self.pace.next(now);
        let deadline = |w: &Wanted| match &w.state {
            State::Resting => Some(w.due.max(next)),
            State::Dialling(d) => Some(d.deadline),
            State::Connected(_) => None,
        };
        self.wanted.iter().filter_map(deadline).min()
    }

    /// Handles what `poll` said, then begins the attempts that are due.
    pub(crate) fn turn(
        &mut self,
        ready: &mut dyn Iterator<Item = bool>,
        now: Instant,
        key: &Key,
        own: &Identity,
        out: &mut Vec<ConnectorEvent>,
    ) {
        let mut random = self.random;
        for w in &mut self.wanted {
            let State::Dialling(dialling) = &mut w.state else { continue };
            let ready = ready.next() == Some(true);
            if ready
                && !dialling.connected
                && std::mem::take(&mut w.once_more)
                && let Ok(by_memory) = Dialling::by_memory(&w.target, now, key, own, &self.wakers)
            {
                **dialling = by_memory;
                continue;
            }
            let stage = if dialling.connected { "handshake" } else { "connect" };
            let result = match ready {
                true => dialling.advance(now),
                false if dialling.deadline <= now => Err(format!("{stage}: no answer within {} s", STAGE_TIME_MAX.as_secs())),
                false => Ok(false),
            };
            match result {
                Ok(false) => {}
                Ok(true) => {
                    let State::Dialling(dialling) = std::mem::replace(&mut w.state, State::Connected(now)) else { unreachable!() };
                    w.told = None;
                    let verdict = dialling.verdict.expect("`advance` said so");
                    let peer = Peer {
                        placement: verdict.placement,
                        start: verdict.start,
                        index: verdict.index,
                        local_loop: w.target.key.local_loop,
                        remote_loop: w.target.key.remote_loop,
                        local_ring_bytes: own.ring_bytes,
                        remote_ring_bytes: verdict.ring_bytes,
                        road: w.target.key.road,
                    };
                    let connection = match dialling.offer {
                        None => dialling.line.into_connection(),
                        Some(offer) => offer.into_connection(dialling.line.socket),
                    };
                    w.tell_without(&connection, out);
                    out.push(ConnectorEvent::Connected { target: w.target.key, connection, peer });
                }
                Err(reason) if dialling.offer.is_some() && !dialling.refused => {
                    w.without_memory = Some(reason);
                    match Dialling::by_tcp(&w.target, now, key, self.tls.as_ref(), own) {
                        Ok(by_tcp) => **dialling = by_tcp,
                        Err(reason) => w.failed(reason, now, step(&mut random), out),
                    }
                }
                Err(reason) => w.failed(reason, now, step(&mut random), out),
            }
        }
        // Those who have waited longest first.
        let mut due: Vec<usize> =
            (0..self.wanted.len()).filter(|&i| matches!(self.wanted[i].state, State::Resting) && self.wanted[i].due <= now).collect();
        due.sort_by_key(|&i| self.wanted[i].due);
        for i in due {
            if self.pace.next(now) > now {
                break;
            }
            self.pace.begin(now);
            let w = &mut self.wanted[i];
            match w.begin(now, key, self.tls.as_ref(), own, &self.wakers) {
                Ok(dialling) => w.state = State::Dialling(Box::new(dialling)),
                Err(reason) => w.failed(reason, now, step(&mut random), out),
            }
        }
        self.random = random;
    }

    fn next_random(&mut self) -> u64 {
        step(&mut self.random)
    }
}

impl Wanted {
    /// Begins an attempt: by memory where that may be, else over TCP.
    fn begin(&mut self, now: Instant, key: &Key, tls: Option<&TlsSetup>, own: &Identity, wakers: &Wakers) -> Result<Dialling, String> {
        (self.without_memory, self.once_more) = (None, false);
        if self.target.same_host && !wakers.is_empty() {
            match Dialling::by_memory(&self.target, now, key, own, wakers) {
                Ok(by_memory) => return Ok(by_memory),
                Err(reason) => (self.without_memory, self.once_more) = (Some(reason), true),
            }
        }
        Dialling::by_tcp(&self.target, now, key, tls, own)
    }

    /// Says once per change why a link that might be memory is TCP.
    fn tell_without(&mut self, connection: &Connection, out: &mut Vec<ConnectorEvent>) {
        let reason = self.without_memory.take().filter(|_| matches!(connection, Connection::Socket(_) | Connection::Secured { .. }));
        if let Some(reason) = &reason
            && self.told_without.as_ref() != Some(reason)
        {
            out.push(ConnectorEvent::WithoutMemory { target: self.target.key, reason: reason.clone() });
        }
        self.told_without = reason;
    }

    fn rest(&mut self, now: Instant, random: u64) {
        self.due = now + back_off(self.failures, random);
        self.failures = self.failures.saturating_add(1);
        self.state = State::Resting;
    }

    fn failed(&mut self, reason: String, now: Instant, random: u64, out: &mut Vec<ConnectorEvent>) {
        self.rest(now, random);
        if self.told.as_ref() != Some(&reason) {
            out.push(ConnectorEvent::Unreachable { target: self.target.key, addr: self.target.addr, reason: reason.clone() });
            self.told = Some(reason);
        }
    }
}

impl Dialling {
    /// Over the Unix socket of a worker of this host. Errors: nobody there.
    fn by_memory(target: &Target, now: Instant, key: &Key, own: &Identity, wakers: &Wakers) -> Result<Self, String> {
        let offer = Offer::new(wakers, target.key.local_loop, own.ring_bytes).ok_or("our loop has no event to wake it by")?;
        let socket = memory::connect_to(&own.topology, target.key.placement).map_err(|e| format!("connect: {e}"))?;
        Self::over(Line::new(socket, None), Some(offer), target, now, key, own)
    }

    fn by_tcp(target: &Target, now: Instant, key: &Key, tls: Option<&TlsSetup>, own: &Identity) -> Result<Self, String> {
        allowed(target.addr, key).map_err(|e| e.to_string())?;
        let family = if target.addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let text = |e: Errno| format!("connect: {}", io::Error::from(e));
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None).map_err(text)?;
        match connect(&socket, &target.addr) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(e) => return Err(text(e)),
        }
        let session = tls.map(TlsSetup::dial).transpose().map_err(|e| e.to_string())?;
        Self::over(Line::new(socket, session), None, target, now, key, own)
    }

    fn over(line: Line, offer: Option<Offer>, target: &Target, now: Instant, key: &Key, own: &Identity) -> Result<Self, String> {
        let claim = Claim {
            role: Role::Link,
            from: own.clone(),
            from_loop: target.key.local_loop,
            to_loop: target.key.remote_loop,
            road: target.key.road,
            to_placement: target.key.placement,
        };
        let nonce = nonce().ok_or("the system gives no random bytes")?;
        let mut handshake = DialerHandshake::new(key.clone(), &claim, nonce);
        let output = handshake.take_output();
        let (connected, deadline) = (offer.is_some(), now + STAGE_TIME_MAX);
        Ok(Dialling { line, offer, connected, deadline, handshake, output, verdict: None, refused: false })
    }

    /// Goes on as far as the socket lets it. True = linked.
    fn advance(&mut self, now: Instant) -> Result<bool, String> {
        if !self.connected {
            sockopt::socket_error(&self.line.socket).and_then(|e| e).map_err(|e| format!("connect: {}", io::Error::from(e)))?;
            tune(&self.line.socket).map_err(|e| format!("connect: {e}"))?;
            self.connected = true;
            self.deadline = now + STAGE_TIME_MAX;
        }
        loop {
            let talking = |e: LineError| format!("handshake: {e}");
            if !self.line.write_some(&mut self.output).map_err(talking)? {
                return Ok(false);
            }
            if let Some(verdict) = &self.verdict {
                let Some(offer) = &mut self.offer else { return Ok(true) };
                return offer.advance(&self.line.socket, verdict.ring_bytes).map_err(|e| e.to_string());
            }
            let mut buffer = [0; 512];
            let want = self.handshake.wants().min(buffer.len());
            let Some(n) = self.line.read_some(&mut buffer[..want]).map_err(talking)? else { return Ok(false) };
            self.handshake.bind(self.line.binding());
            match self.handshake.input(&buffer[..n]) {
                Ok(Step::Read(_)) => {}
                Ok(Step::Done(verdict)) => self.verdict = Some(verdict),
                Err(HandshakeError::Refused(why)) => {
                    self.refused = true;
                    return Err(format!("refused: {why}"));
                }
                Err(e) => return Err(format!("handshake: {e}")),
            }
            self.output.append(&mut self.handshake.take_output());
        }
    }
}

/// Asks the worker at `addr` whether it lives and how far it is; under TLS if its door wants that, which who asks need not know. Blocks, for
/// `timeout` at most. Errors: nobody there, another topology's key, refused, too slow.
pub fn probe(addr: SocketAddr, key: &Key, topology: &str, timeout: Duration) -> io::Result<ProbeReply> {
    allowed(addr, key)?;
    let end = Instant::now() + timeout;
    let named = |e: HandshakeError| io::Error::other(format!("probe {addr}: {e}"));
    let mut asked = ask(addr, key, topology, end, None)?;
    if asked == Err(HandshakeError::Secured) {
        let session = TlsSetup::new().and_then(|setup| setup.dial()).map_err(|e| named(e.into()))?;
        asked = ask(addr, key, topology, end, Some(session))?;
    }
    let Verdict { placement, start, executed, emitted, .. } = asked.map_err(named)?;
    Ok(ProbeReply { topology: topology.to_owned(), placement, start, executed, emitted })
}

/// One attempt of a probe.
fn ask(addr: SocketAddr, key: &Key, topology: &str, end: Instant, session: Option<Tls>) -> io::Result<Result<Verdict, HandshakeError>> {
    let left = || {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::Error::new(io::ErrorKind::TimedOut, format!("probe {addr}: no answer in time"))) } else { Ok(left) }
    };
    let from = Identity { topology: topology.to_owned(), placement: 0, start: 0, index: 0, format: [0; 32], ring_bytes: 0 };
    let claim = Claim { role: Role::Probe, from, from_loop: 0, to_loop: 0, road: Road::Data, to_placement: 0 };
    let nonce = nonce().ok_or_else(|| io::Error::other("the system gives no random bytes"))?;
    let mut handshake = DialerHandshake::new(key.clone(), &claim, nonce);
    let stream = TcpStream::connect_timeout(&addr, left()?)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut line = Line::new(stream.into(), session);
    let mut output = Vec::new();
    let mut buffer = [0; 512];
    loop {
        output.append(&mut handshake.take_output());
        let want = handshake.wants().min(buffer.len());
        let read = match line.write_some(&mut output) {
            Ok(true) => line.read_some(&mut buffer[..want]),
            Ok(false) => Ok(None),
            Err(e) => Err(e),
        };
        match read {
            Ok(Some(n)) => {
                handshake.bind(line.binding());
                match handshake.input(&buffer[..n]) {
                    Ok(Step::Read(_)) => {}
                    Ok(Step::Done(verdict)) => return Ok(Ok(verdict)),
                    Err(e) => return Ok(Err(e)),
                }
            }
            Ok(None) => {
                let flags = if line.wants_write(&output) { PollFlags::OUT } else { PollFlags::IN };
                let wait = left()?.min(WAIT_MAX).try_into().expect("a wait is bounded by a minute");
                match poll(&mut [PollFd::new(&line.socket, flags)], Some(&wait)) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            Err(LineError::Gone(e)) => return Err(io::Error::new(e.kind(), format!("probe {addr}: {e}"))),
            Err(LineError::Tls(e)) => return Ok(Err(e.into())),
        }
    }
}

fn allowed(addr: SocketAddr, key: &Key) -> io::Result<()> {
    if addr.ip().is_loopback() || key.authenticates() {
        return Ok(());
    }
    let text = format!("connect {addr}: an address beyond loopback needs authentication; configure a topology key");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// splitmix64: spreads retries, decides nothing else.
fn step(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_is_bounded_and_spread() {
        for (failures, full_ms) in [(0, 50), (1, 100), (3, 400), (6, 2000), (u32::MAX, 2000)] {
            let full = Duration::from_millis(full_ms);
            let (low, high) = (back_off(failures, 0), back_off(failures, u64::MAX));
            assert_eq!(low, full / 2, "after {failures} failures");
            assert!(high > full * 9 / 10 && high <= full, "after {failures} failures: {high:?}");
        }
    }

    #[test]
    fn no_second_sees_more_than_twenty_attempts() {
        let start = Instant::now();
        let mut pace = Pace::default();
        let (mut now, mut begun) = (start, Vec::new());
        while begun.len() < 200 {
            now = pace.next(now);
            pace.begin(now);
            begun.push(now);
        }
        for (i, &at) in begun.iter().enumerate() {
            let within = begun[i..].iter().take_while(|&&t| t < at + Duration::from_secs(1)).count();
            assert!(within <= ATTEMPTS_PER_SECOND_MAX, "{within} attempts in the second after {i}");
        }
        assert_eq!(begun[199] - start, Duration::from_secs(9), "and it is used in full");
    }
}
