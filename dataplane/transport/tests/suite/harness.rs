//! Carriers of one kind on one thread, joined, with a clock that the case moves and an oracle that knows every frame staged.
//!
//! Before: a case says what happens. After: what each side was told, and [`World::account`], which knows what it should have been.
//! Nothing here waits by sleeping: a condition is turned for until it holds, time passes when the case says so.

use crate::common::{PATIENCE, each, frame, identity, linked_under};
use saetta_ring::{Sleeper, shared};
use saetta_transport::sim::{self, Faults, Wires};
use saetta_transport::*;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1000 * MS;
/// How far time passes between two turns of [`World::pass`].
const STEP_NS: u64 = 10 * MS;
/// Receive ring of most cases, the smallest there is.
pub const RING: u32 = 16 << 10;
/// Frame bytes of the largest segment towards such a ring.
pub const SEGMENT_ROOM: usize = RING as usize / 2 - wire::HEADER_BYTES;

/// Set in the child whose io_uring is refused: there `Auto` must give epoll, and all cases hold all the same.
pub static REFUSED: AtomicBool = AtomicBool::new(false);

/// What carries a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Uring,
    Epoll,
    Memory,
    Simulated,
    /// TLS over what `Uring` is.
    Tls,
    /// TLS over epoll.
    TlsEpoll,
}

impl Kind {
    pub fn carrier(self) -> Carrier {
        let refused = REFUSED.load(Ordering::Relaxed);
        let choice = match self {
            Kind::Epoll | Kind::TlsEpoll => Choice::Epoll,
            Kind::Uring | Kind::Tls if !refused => Choice::Uring,
            _ => Choice::Auto,
        };
        let carrier = Carrier::open(choice).unwrap();
        assert_eq!(carrier.kind(), if refused || choice == Choice::Epoll { "epoll" } else { "io_uring" });
        carrier
    }
}

/// Two ends of a TCP connection on loopback.
pub fn tcp() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let b = listener.accept().unwrap().0;
    for s in [&a, &b] {
        s.set_nodelay(true).unwrap();
    }
    [a, b]
}

fn socket(stream: TcpStream) -> Connection {
    Connection::Socket(stream.into())
}

/// Both ends of a link, between loops with these events.
fn connections(kind: Kind, wakes: [&Sleeper; 2], rings: [u32; 2]) -> [Connection; 2] {
    match kind {
        Kind::Uring | Kind::Epoll => tcp().map(socket),
        Kind::Tls | Kind::TlsEpoll => {
            let [one, two] = [0, 1].map(|i| Identity { ring_bytes: rings[i], ..identity(i as u64 + 1) });
            let ((a, _), (b, _)) = linked_under(one, two, true);
            [a, b]
        }
        Kind::Simulated => {
            let (a, b, _) = sim::pair(Faults::default(), Faults::default());
            [Connection::Simulated(a), Connection::Simulated(b)]
        }
        Kind::Memory => {
            let capacity = rings[0].max(rings[1]) as usize;
            let (file, ours) = shared::create(capacity).unwrap();
            let theirs = shared::open(file, capacity).unwrap();
            let (a, b) = UnixStream::pair().unwrap();
            let end = |pair, socket: UnixStream, wake: &Sleeper| {
                socket.set_nonblocking(true).unwrap();
                let peer_waker = rustix::io::dup(wake.as_fd()).unwrap();
                Connection::Memory(Box::new(SharedMemory { pair, socket: socket.into(), peer_waker }))
            };
            [end(ours, a, wakes[1]), end(theirs, b, wakes[0])]
        }
    }
}

/// One end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    pub side: usize,
    pub link: LinkId,
}

/// How a link ended, without the words of the system that carried it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    Goodbye,
    /// The peer's end is closed, however the system says so.
    Gone,
    ClosedHere,
    Silent,
    Crc,
    /// The peer's bytes are wrong; in these words.
    Wrong(String),
}

/// What was told of a link.
#[derive(Debug, Default)]
pub struct Told {
    pub frames: Vec<Vec<u8>>,
    pub credits: Vec<(u32, u64)>,
    pub lost: Vec<Vec<u8>>,
    pub end: Option<LinkEnd>,
}

impl Told {
    /// How it ended.
    #[track_caller]
    pub fn how(&self) -> How {
        match &self.end.as_ref().expect("it has ended").how {
            Ending::Goodbye => How::Goodbye,
            Ending::Lost { reason } => match reason.as_str() {
                "closed here" => How::ClosedHere,
                r if r.starts_with("the peer was silent for ") => How::Silent,
                r if r.ends_with("has a wrong checksum: bytes were changed on the way") => How::Crc,
                r if r.starts_with("the peer closed the connection ") || r.starts_with("receive: ") || r.starts_with("send: ") => How::Gone,
                r => How::Wrong(r.to_owned()),
            },
        }
    }
}

/// What a loop would be: keeps all, and the order of calls that a loop relies on.
#[derive(Debug, Default)]
pub struct Seen {
    links: BTreeMap<LinkId, Told>,
}

impl Seen {
    fn open(&mut self, link: LinkId) -> &mut Told {
        let told = self.links.entry(link).or_default();
        assert!(told.end.is_none(), "`ended` is the last call for {link:?}");
        told
    }
}

impl Inbound for Seen {
    fn frames(&mut self, link: LinkId, frames: &[u8]) {
        assert!(wire::are_frames(frames) && !frames.is_empty());
        let told = self.open(link);
        assert!(told.lost.is_empty(), "no frame comes after `lost`");
        each(frames, |f| told.frames.push(f.to_vec()));
    }
    fn credit(&mut self, link: LinkId, executor: u32, limit: u64) {
        self.open(link).credits.push((executor, limit));
    }
    fn lost(&mut self, link: LinkId, frames: &[u8]) {
        assert!(wire::are_frames(frames) && !frames.is_empty());
        let told = self.open(link);
        each(frames, |f| told.lost.push(f.to_vec()));
    }
    fn ended(&mut self, link: LinkId, end: LinkEnd) {
        self.open(link).end = Some(end);
    }
}

pub struct Side {
    /// `None` = its process is gone.
    carrier: Option<Carrier>,
    seen: Seen,
    pub wake: Sleeper,
}

/// A connection whose bytes a case handles: sockets with `sim`'s wires between them.
struct Relay {
    streams: [Option<TcpStream>; 2],
    ends: [Option<sim::End>; 2],
    /// Read from the stream, from the end; not taken by the other yet.
    pending: [[Vec<u8>; 2]; 2],
}

impl Relay {
    fn pump(&mut self, now_ns: u64) {
        let mut buffer = vec![0; 64 << 10];
        for i in 0..2 {
            let [up, down] = &mut self.pending[i];
            let mut gone = false;
            let (Some(stream), Some(end)) = (&mut self.streams[i], &mut self.ends[i]) else { continue };
            if up.is_empty() {
                match stream.read(&mut buffer) {
                    Ok(0) => gone = true,
                    Ok(n) => up.extend_from_slice(&buffer[..n]),
                    Err(e) => gone = e.kind() != std::io::ErrorKind::WouldBlock,
                }
            }
            match end.write(up, now_ns) {
                Ok(n) => drop(up.drain(..n)),
                Err(_) => gone = true,
            }
            if down.is_empty() {
                match end.read(&mut buffer, now_ns) {
                    Ok(None) => {}
                    Ok(Some(0)) => gone = true,
                    Ok(Some(n)) => down.extend_from_slice(&buffer[..n]),
                    Err(_) => {
                        rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
                        gone = true;
                    }
                }
            }
            match stream.write(down) {
                Ok(n) => drop(down.drain(..n)),
                Err(e) => gone |= e.kind() != std::io::ErrorKind::WouldBlock,
            }
            if gone {
                (self.streams[i], self.ends[i]) = (None, None);
            }
        }
    }
}

/// The other end of a link, in the case's own hands.
pub enum Hand {
    Stream(TcpStream),
    Wire(sim::End),
}

impl Hand {
    /// Writes all of it, or panics when there is no room.
    pub fn write(&mut self, bytes: &[u8]) {
        match self {
            Hand::Stream(s) => s.write_all(bytes).unwrap(),
            Hand::Wire(end) => assert_eq!(end.write(bytes, 0).unwrap(), bytes.len()),
        }
    }

    /// What has come, and whether it is the end.
    pub fn read(&mut self, into: &mut Vec<u8>) -> bool {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let result = match self {
                Hand::Stream(s) => s.read(&mut buffer).map(Some),
                Hand::Wire(end) => end.read(&mut buffer, u64::MAX),
            };
            match result {
                Ok(Some(0)) => return true,
                Ok(Some(n)) => into.extend_from_slice(&buffer[..n]),
                Ok(None) => return false,
                Err(e) => return e.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    }
}

/// See the head of this file.
pub struct World {
    pub kind: Kind,
    sides: Vec<Side>,
    pub now_ns: u64,
    sent: BTreeMap<At, Vec<Vec<u8>>>,
    relays: Vec<Relay>,
    /// The frame that found no room last: whose, its number and payload.
    refused: Option<(At, u64, usize, Vec<u8>)>,
}

impl World {
    pub fn new(kind: Kind, n_sides: usize) -> Self {
        let side = |_| Side { carrier: Some(kind.carrier()), seen: Seen::default(), wake: Sleeper::new().unwrap() };
        World { kind, sides: (0..n_sides).map(side).collect(), now_ns: SECOND, sent: BTreeMap::new(), relays: Vec::new(), refused: None }
    }

    /// Two sides and a link between them.
    pub fn pair(kind: Kind) -> (Self, At, At) {
        let mut w = World::new(kind, 2);
        let (a, b) = w.join(0, 1);
        (w, a, b)
    }

    /// Two sides with wires between them that a case can spoil. Not for memory: there are no bytes between two sides of it.
    pub fn wired(kind: Kind, there: Faults, back: Faults) -> (Self, At, At, Wires) {
        let mut w = World::new(kind, 2);
        let (a, b, wires) = w.wire(0, 1, there, back);
        (w, a, b, wires)
    }

    /// A link with such wires. Small buffers in the wires are small ones of the sockets too: their sending ones,
    /// since a small receiving one is a wait for the timers of TCP.
    pub fn wire(&mut self, a: usize, b: usize, there: Faults, back: Faults) -> (At, At, Wires) {
        let small = there.buffer_bytes.max(back.buffer_bytes);
        let (first, second, wires) = sim::pair(there, back);
        let [to_b, to_a] = match self.kind {
            Kind::Memory | Kind::Tls | Kind::TlsEpoll => unreachable!("its bytes are no segments"),
            Kind::Simulated => [Connection::Simulated(first), Connection::Simulated(second)],
            Kind::Uring | Kind::Epoll => {
                let ([a, at_a], [b, at_b]) = (tcp(), tcp());
                for s in [&at_a, &at_b] {
                    s.set_nonblocking(true).unwrap();
                }
                if small > 0 {
                    for s in [&a, &b, &at_a, &at_b] {
                        rustix::net::sockopt::set_socket_send_buffer_size(s, small).unwrap();
                    }
                }
                self.relays.push(Relay {
                    streams: [Some(at_a), Some(at_b)],
                    ends: [Some(first), Some(second)],
                    pending: Default::default(),
                });
                [socket(a), socket(b)]
            }
        };
        (self.add(a, to_b, RING, RING).unwrap(), self.add(b, to_a, RING, RING).unwrap(), wires)
    }

    /// One side, and the other end of its link in hand.
    pub fn by_hand(kind: Kind) -> (Self, At, Hand) {
        let mut w = World::new(kind, 1);
        let (end, hand) = match kind {
            Kind::Memory | Kind::Tls | Kind::TlsEpoll => unreachable!("its bytes are no segments"),
            Kind::Simulated => {
                let (a, b, _) = sim::pair(Faults::default(), Faults::default());
                (Connection::Simulated(a), Hand::Wire(b))
            }
            Kind::Uring | Kind::Epoll => {
                let [a, b] = tcp();
                b.set_nonblocking(true).unwrap();
                (socket(a), Hand::Stream(b))
            }
        };
        let at = w.add(0, end, RING, RING).unwrap();
        (w, at, hand)
    }

    /// Both ends of a link, for two threads with a carrier and an event each.
    pub fn apart(kind: Kind, rings: [u32; 2]) -> ([Connection; 2], [Sleeper; 2]) {
        let sleepers = [(); 2].map(|()| Sleeper::new().unwrap());
        (connections(kind, [&sleepers[0], &sleepers[1]], rings), sleepers)
    }

    /// Both ends of a link between two sides.
    pub fn connections(&self, sides: [usize; 2], rings: [u32; 2]) -> [Connection; 2] {
        connections(self.kind, sides.map(|s| &self.sides[s].wake), rings)
    }

    fn add(&mut self, side: usize, connection: Connection, local: u32, remote: u32) -> std::io::Result<At> {
        let peer = peer(local, remote);
        let now_ns = self.now_ns;
        let at = At { side, link: self.carrier(side).add(connection, peer, now_ns)? };
        self.sides[side].seen.links.insert(at.link, Told::default());
        self.sent.insert(at, Vec::new());
        Ok(at)
    }

    /// A link between two sides, with rings of the smallest size.
    pub fn join(&mut self, a: usize, b: usize) -> (At, At) {
        self.join_with(a, b, [RING, RING]).unwrap()
    }

    pub fn join_with(&mut self, a: usize, b: usize, rings: [u32; 2]) -> std::io::Result<(At, At)> {
        let [to_b, to_a] = self.connections([a, b], rings);
        let at_a = self.add(a, to_b, rings[0], rings[1])?;
        let at_b = self.add(b, to_a, rings[1], rings[0])?;
        Ok((at_a, at_b))
    }

    #[track_caller]
    pub fn carrier(&mut self, side: usize) -> &mut Carrier {
        self.sides[side].carrier.as_mut().expect("its process lives")
    }

    pub fn of(&mut self, at: At) -> &mut Carrier {
        self.carrier(at.side)
    }

    pub fn counters(&self, side: usize) -> Counters {
        self.sides[side].carrier.as_ref().expect("its process lives").counters()
    }

    #[track_caller]
    pub fn told(&self, at: At) -> &Told {
        &self.sides[at.side].seen.links[&at.link]
    }

    pub fn has_ended(&self, at: At) -> bool {
        self.told(at).end.is_some()
    }

    // ---- turns and time

    pub fn poll(&mut self, side: usize) -> usize {
        let Side { carrier: Some(carrier), seen, .. } = &mut self.sides[side] else { return 0 };
        carrier.poll(self.now_ns, seen)
    }

    pub fn flush(&mut self, side: usize) -> usize {
        let now_ns = self.now_ns;
        self.sides[side].carrier.as_mut().map_or(0, |c| c.flush(now_ns, false))
    }

    /// One turn of these sides, as a loop takes it.
    pub fn turn_only(&mut self, sides: &[usize]) -> usize {
        let mut n = 0;
        for &side in sides {
            n += self.poll(side) + self.flush(side);
        }
        for relay in &mut self.relays {
            relay.pump(self.now_ns);
        }
        self.relays.retain(|r| r.streams.iter().any(Option::is_some));
        n
    }

    pub fn turn(&mut self) -> usize {
        let all: Vec<usize> = (0..self.sides.len()).collect();
        self.turn_only(&all)
    }

    /// Turns all until `done`; time stands.
    #[track_caller]
    pub fn until(&mut self, what: &str, done: impl FnMut(&mut World) -> bool) {
        let all: Vec<usize> = (0..self.sides.len()).collect();
        self.until_only(&all, what, done);
    }

    #[track_caller]
    pub fn until_only(&mut self, sides: &[usize], what: &str, mut done: impl FnMut(&mut World) -> bool) {
        let start = Instant::now();
        while !done(self) {
            if start.elapsed() > PATIENCE {
                let told = |t: &Told| format!("{} frames, {} lost, {:?}", t.frames.len(), t.lost.len(), t.end);
                let links: Vec<_> = self.sides.iter().flat_map(|s| s.seen.links.iter().map(|(l, t)| (*l, told(t)))).collect();
                let counters: Vec<_> = self.sides.iter().flat_map(|s| &s.carrier).map(Carrier::counters).collect();
                panic!("{:?}: never {what}: {links:?} {counters:?}", self.kind);
            }
            self.turn_only(sides);
        }
    }

    /// Time passes, with a turn of all at every 10 ms of it.
    pub fn pass(&mut self, ns: u64) {
        let all: Vec<usize> = (0..self.sides.len()).collect();
        self.pass_only(&all, ns);
    }

    pub fn pass_only(&mut self, sides: &[usize], ns: u64) {
        let end_ns = self.now_ns + ns;
        while self.now_ns < end_ns {
            self.now_ns = (self.now_ns + STEP_NS).min(end_ns);
            self.turn_only(sides);
        }
    }

    /// A process ends, and with it all its links.
    pub fn kill(&mut self, side: usize) {
        self.sides[side].carrier = None;
    }

    // ---- frames

    /// Stages the next frame of an end. False = no room; it was not taken.
    pub fn offer(&mut self, at: At, payload_bytes: usize) -> bool {
        let number = self.sent[&at].len() as u64;
        // Large ones are long in the making; one that is asked for again is made already.
        let f = match self.refused.take() {
            Some((who, n, bytes, f)) if (who, n, bytes) == (at, number, payload_bytes) => f,
            _ => {
                let mut f = Vec::new();
                frame(&mut f, at.side as u8 + 1, number, payload_bytes);
                f
            }
        };
        // Every second one with its memory.
        let taken = match number % 2 {
            0 => self.of(at).stage(at.link, &f),
            _ => self.of(at).hand_over(at.link, &mut f.clone()),
        };
        match taken {
            0 => {
                self.refused = Some((at, number, payload_bytes, f));
                false
            }
            n => {
                assert_eq!(n, f.len(), "a frame is taken whole or not at all");
                self.sent.get_mut(&at).unwrap().push(f);
                true
            }
        }
    }

    /// Stages so many frames, with turns of all where there is no room.
    #[track_caller]
    pub fn send(&mut self, at: At, n: usize, payload_bytes: usize) {
        for _ in 0..n {
            self.until("room", |w| w.offer(at, payload_bytes));
        }
    }

    /// Frames of an end together with the memory they were written into. True = it went along; else as many as fit were copied.
    pub fn offer_with_memory(&mut self, at: At, n: usize, payload_bytes: usize, capacity: usize) -> bool {
        let first = self.sent[&at].len() as u64;
        let frames: Vec<Vec<u8>> = (0..n as u64)
            .map(|i| {
                let mut f = Vec::new();
                frame(&mut f, at.side as u8 + 1, first + i, payload_bytes);
                f
            })
            .collect();
        let mut memory = Vec::with_capacity(capacity);
        frames.iter().for_each(|f| memory.extend_from_slice(f));
        let (was, bytes) = (memory.as_ptr(), memory.len());
        let taken = self.of(at).hand_over(at.link, &mut memory);
        assert_eq!(memory.len(), bytes - taken, "what was not taken is left");
        assert!(memory.capacity() >= capacity, "memory of the size is left");
        self.sent.get_mut(&at).unwrap().extend(frames.into_iter().take(taken * n / bytes));
        taken == bytes && memory.as_ptr() != was
    }

    pub fn sent(&self, at: At) -> &[Vec<u8>] {
        &self.sent[&at]
    }

    pub fn sent_bytes(&self, at: At) -> u64 {
        self.sent[&at].iter().map(|f| f.len() as u64).sum()
    }

    /// Everything staged at one end is at the other, and the same.
    #[track_caller]
    pub fn arrive(&mut self, from: At, to: At) {
        self.until("all frames are there", |w| w.told(to).frames.len() >= w.sent[&from].len());
        assert!(self.told(to).frames == self.sent[&from], "{:?}: other frames, or another order", self.kind);
    }

    /// Both ways; then all is counted, and neither side has anything left to do.
    #[track_caller]
    pub fn settle(&mut self, a: At, b: At) {
        self.arrive(a, b);
        self.arrive(b, a);
        self.pass(100 * MS);
        self.until("all is counted and idle", |w| w.of(a).drained(a.link) && w.of(b).drained(b.link) && w.of(a).idle() && w.of(b).idle());
    }

    /// Until both ends were told their end.
    #[track_caller]
    pub fn both_end(&mut self, a: At, b: At) {
        self.until("both ends are told", |w| w.has_ended(a) && w.has_ended(b));
    }

    /// The oracle, after the end at `from`: what arrived is a beginning of what was staged; what was counted arrived; what was told as lost is
    /// exactly the rest behind the peer's count, and the numbers of the end are its bytes.
    #[track_caller]
    pub fn account(&self, from: At, to: At) {
        let (staged, arrived) = (&self.sent[&from], &self.told(to).frames);
        assert!(arrived.len() <= staged.len() && *arrived == staged[..arrived.len()], "{:?}: what arrives is a beginning", self.kind);
        let told = self.told(from);
        let end = told.end.as_ref().expect("it has ended");
        let all = self.sent_bytes(from);
        let counted = all - end.unsent_bytes - end.unconfirmed_bytes;
        let mut position = 0;
        let mut rest = Vec::new();
        for (i, f) in staged.iter().enumerate() {
            position += f.len() as u64;
            if position <= counted {
                assert!(i < arrived.len(), "{:?}: frame {i} is counted and did not arrive", self.kind);
            } else {
                rest.push(f);
            }
        }
        if end.how == Ending::Goodbye {
            assert!(rest.is_empty() && told.lost.is_empty() && arrived.len() == staged.len(), "{:?}: a goodbye loses nothing", self.kind);
            return;
        }
        // Those in pieces are named behind the others.
        let mut lost = told.lost.clone();
        lost.sort_by_key(|f| number(f));
        assert_eq!(
            lost.iter().map(|f| number(f)).collect::<Vec<_>>(),
            rest.iter().map(|f| number(f)).collect::<Vec<_>>(),
            "{:?}: which are lost",
            self.kind
        );
        for (lost, staged) in lost.iter().zip(rest) {
            assert!(
                lost == staged || (staged.len() > SEGMENT_ROOM && *lost == head(staged)),
                "{:?}: lost frames are those staged",
                self.kind
            );
        }
        let unsent_arrived = arrived.iter().map(|f| f.len() as u64).sum::<u64>().saturating_sub(all - end.unsent_bytes);
        assert_eq!(unsent_arrived, 0, "{:?}: what was never sent did not arrive", self.kind);
    }
}

/// What is kept of a frame in pieces.
fn head(frame: &[u8]) -> Vec<u8> {
    let blocks = wire::FRAME_BLOCK_BYTES_MAX;
    let mut head = frame[..wire::FRAME_HEADER_BYTES + blocks].to_vec();
    head[..4].copy_from_slice(&(blocks as u32).to_le_bytes());
    head
}

/// Its number in the order of staging, as `frame` wrote it.
fn number(frame: &[u8]) -> u64 {
    u64::from_le_bytes(frame[8..16].try_into().unwrap())
}

pub fn peer(local: u32, remote: u32) -> Peer {
    Peer {
        placement: 2,
        start: 1,
        index: 2,
        local_loop: 0,
        remote_loop: 0,
        road: Road::Data,
        local_ring_bytes: local,
        remote_ring_bytes: remote,
    }
}

/// The segments a link sends for these frames, and a goodbye behind them.
pub fn segments(frames: &[Vec<u8>], goodbye: bool) -> Vec<Vec<u8>> {
    let ring = RING as usize;
    let (mut link, mut pool) = (link::Link::new(ring, ring, link::Medium::Wire, 0), PiecePool::new(FRAME_BYTES_MAX));
    let mut out = vec![];
    for f in frames {
        assert_eq!(link.stage(f, &mut pool), f.len(), "a test of more than a window counts by hand");
        while link.form(0, &mut pool) {
            out.push(link.flight().concat());
            link.written(link.flight().concat().len());
        }
    }
    if goodbye {
        link.say_goodbye();
        assert!(link.form(0, &mut pool));
        out.push(link.flight().concat());
    }
    out
}

/// A segment of any content with the right checksum.
pub fn sealed(kind: wire::Kind, sequence: u64, received: u64, credits: u16, body: &[u8]) -> Vec<u8> {
    let mut segment = vec![0; wire::HEADER_BYTES];
    segment.extend_from_slice(body);
    wire::Header { kind, body_bytes: 0, sequence, received, credits, crc: 0 }.seal(&mut segment, true);
    segment
}

pub fn some_frames(n: u64, payload_bytes: usize) -> Vec<Vec<u8>> {
    (0..n)
        .map(|i| {
            let mut f = vec![];
            frame(&mut f, 1, i, payload_bytes);
            f
        })
        .collect()
}

/// Numbers below a bound, the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// A case and its name.
pub type Case = (&'static str, fn(Kind));
