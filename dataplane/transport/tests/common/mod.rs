//! What the tests over real sockets share: workers by number, a clock, frames whose content tells who sent them.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use saetta_transport::*;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Nothing in these tests takes longer on a healthy machine; a hang becomes a failure.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn key(n: u8) -> Key {
    Key::new([n; 32]).unwrap()
}

pub fn identity(placement: u64) -> Identity {
    let (index, ring_bytes) = (placement as u32, RING_BYTES_DEFAULT as u32);
    Identity { topology: "wc-1".into(), placement, start: 1, index, format: [7; 32], ring_bytes }
}

pub fn connector(placement: u64) -> Connector {
    connector_with(key(1), identity(placement))
}

pub fn connector_with(key: Key, identity: Identity) -> Connector {
    connector_under(key, identity, false)
}

/// With or without TLS.
pub fn connector_under(key: Key, identity: Identity, tls: bool) -> Connector {
    let bind = "127.0.0.1:0".parse().unwrap();
    Connector::new(ConnectorOptions { bind, key, identity, memory: false, tls }).unwrap()
}

pub fn target(placement: u64, addr: SocketAddr) -> Target {
    Target { key: TargetKey { placement, local_loop: 0, remote_loop: 0, road: Road::Data }, addr, same_host: false }
}

/// The event of a loop, as its sleeper has it.
pub fn waker() -> std::os::fd::OwnedFd {
    use rustix::event::{EventfdFlags, eventfd};
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// Of a topology that no other test has, in this process or another: the names of Unix sockets are the host's.
pub fn lonely(identity: Identity) -> Identity {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Identity { topology: format!("wc-{}-{n}", std::process::id()), ..identity }
}

/// A connector that shares memory, with one loop.
pub fn sharing(key: Key, identity: Identity) -> Connector {
    let bind = "127.0.0.1:0".parse().unwrap();
    let mut connector = Connector::new(ConnectorOptions { bind, key, identity, memory: true, tls: false }).unwrap();
    connector.set_wakers(vec![waker()]);
    connector
}

/// A target that is said to be on this host.
pub fn neighbour(placement: u64, addr: SocketAddr) -> Target {
    Target { same_host: true, ..target(placement, addr) }
}

pub fn memory(connection: Connection) -> SharedMemory {
    match connection {
        Connection::Memory(memory) => *memory,
        other => panic!("{other:?}"),
    }
}

pub fn admit(claim: &Claim) -> Result<Admission, Refusal> {
    match claim.role {
        Role::Link => Ok(Admission::Link),
        Role::Probe => Ok(Admission::Probe { executed: 11, emitted: 22 }),
    }
}

/// Turns all connectors until `done` says so; everything that happened is in the vector of its connector.
pub fn turn_until(connectors: &mut [&mut Connector], mut done: impl FnMut(&[Vec<ConnectorEvent>]) -> bool) -> Vec<Vec<ConnectorEvent>> {
    let mut events: Vec<Vec<ConnectorEvent>> = connectors.iter().map(|_| Vec::new()).collect();
    let start = Instant::now();
    while !done(&events) {
        assert!(start.elapsed() < PATIENCE, "nothing more happens; so far: {events:?}");
        for (connector, out) in connectors.iter_mut().zip(&mut events) {
            connector.turn(Duration::from_millis(1), &[], &mut admit, out);
        }
    }
    events
}

/// A linked pair of sockets through two real connectors: (of worker 1, of worker 2).
pub fn linked() -> ((Connection, Peer), (Connection, Peer)) {
    linked_with(identity(1), identity(2))
}

pub fn linked_with(one: Identity, two: Identity) -> ((Connection, Peer), (Connection, Peer)) {
    linked_under(one, two, false)
}

/// With or without TLS.
pub fn linked_under(one: Identity, two: Identity, tls: bool) -> ((Connection, Peer), (Connection, Peer)) {
    let placement = two.placement;
    let (mut a, mut b) = (connector_under(key(1), one, tls), connector_under(key(1), two, tls));
    a.set_targets(&[target(placement, b.local_addr())]);
    let mut events = turn_until(&mut [&mut a, &mut b], |e| !e[0].is_empty() && !e[1].is_empty());
    match (events[0].remove(0), events[1].remove(0)) {
        (ConnectorEvent::Connected { connection, peer, .. }, ConnectorEvent::Accepted(accepted)) => {
            ((connection, peer), (accepted.connection, accepted.peer))
        }
        other => panic!("{other:?}"),
    }
}

/// The socket of a TCP connection.
pub fn plain(connection: Connection) -> std::os::fd::OwnedFd {
    match connection {
        Connection::Socket(socket) => socket,
        other => panic!("{other:?}"),
    }
}

/// Nanoseconds since the first call in this process.
pub fn now_ns() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Frame number `n` of a side, of `payload_bytes`: its content follows from both.
pub fn frame(into: &mut Vec<u8>, side: u8, n: u64, payload_bytes: usize) {
    into.clear();
    into.extend_from_slice(&(payload_bytes as u32).to_le_bytes());
    into.extend_from_slice(&[side, 0, 0, 0]);
    into.extend_from_slice(&n.to_le_bytes());
    let mut state = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(side);
    while into.len() < 16 + payload_bytes {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        into.extend_from_slice(&state.to_le_bytes());
    }
    into.truncate(16 + payload_bytes);
    into.resize(frame_bytes(payload_bytes as u32), 0);
}

/// Splits whole frames.
pub fn each(mut frames: &[u8], mut f: impl FnMut(&[u8])) {
    while !frames.is_empty() {
        let n = frame_bytes(u32::from_le_bytes(frames[..4].try_into().unwrap()));
        f(&frames[..n]);
        frames = &frames[n..];
    }
}

/// Remembers everything.
#[derive(Default)]
pub struct Record {
    pub frames: Vec<Vec<u8>>,
    pub credits: Vec<(u32, u64)>,
    pub ends: Vec<(LinkId, LinkEnd)>,
}

impl Inbound for Record {
    fn frames(&mut self, _: LinkId, frames: &[u8]) {
        each(frames, |f| self.frames.push(f.to_vec()));
    }
    fn credit(&mut self, _: LinkId, executor: u32, limit: u64) {
        self.credits.push((executor, limit));
    }
    fn lost(&mut self, _: LinkId, _: &[u8]) {}
    fn ended(&mut self, link: LinkId, end: LinkEnd) {
        self.ends.push((link, end));
    }
}

/// Stages one frame: taken whole, or not at all.
pub fn took(carrier: &mut Carrier, link: LinkId, frame: &[u8]) -> bool {
    carrier.stage(link, frame) == frame.len()
}
