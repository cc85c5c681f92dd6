//! Whoever knocks at a worker's port: with nothing, with rubbish, or with the topology's key.
//!
//! Before: a worker listens. After: each deed here has ended as it should, or has panicked with what it saw.

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use saetta_transport::handshake::{DialerHandshake, HandshakeError, Step, Verdict};
use saetta_transport::wire::{self, Header, Kind};
use saetta_transport::{Claim, Identity, Key, RING_BYTES_DEFAULT, Road, Role};
use saetta_tuple::frame::{CONTROL, HEADER_BYTES as FRAME_HEADER_BYTES, Header as FrameHeader, frame_bytes};
use sha2::{Digest as _, Sha256};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

pub(crate) const HTTP: &[u8] = b"GET / HTTP/1.1\r\nHost: worker\r\nAccept: */*\r\n\r\n";
/// All a worker says to somebody who proves nothing: its hello with a proof.
const HELLO_BYTES: usize = 72;
const SEGMENT_MAX: u32 = (wire::segment_bytes_max(RING_BYTES_DEFAULT) - wire::HEADER_BYTES) as u32;
/// Of a segment's body.
pub(crate) const LENGTHS: [u32; 4] = [0, SEGMENT_MAX, SEGMENT_MAX + 8, u32::MAX];
/// Strangers come from so many addresses: one of them has room for 64 at a time, all together for 256.
const ADDRESSES: usize = 16;
/// Between two bytes of a slow client.
const PACE: Duration = Duration::from_millis(100);

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The same each time.
pub(crate) fn random(bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ bytes as u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// As a browser would begin: record, client hello, TLS 1.2, no session.
pub(crate) fn tls_hello() -> Vec<u8> {
    let mut hello = vec![22, 3, 1, 0, 47, 1, 0, 0, 43, 3, 3];
    hello.extend(random(32));
    hello.extend([0, 0, 4, 0x13, 1, 0x13, 2, 1, 0]);
    hello
}

pub(crate) fn right_magic_then_garbage() -> Vec<u8> {
    [b"SAET\x02\0\0\0", &random(1000)[..]].concat()
}

/// A first segment whose header names this length; as much of a body of zeros as fits a small one.
pub(crate) fn segment(length: u32) -> Vec<u8> {
    let mut bytes = sealed(Kind::Data, 0, 0, 0, &vec![0; (length as usize).min(SEGMENT_MAX as usize)]);
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn sealed(kind: Kind, sequence: u64, received: u64, credits: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = [&[0; wire::HEADER_BYTES], body].concat();
    Header { kind, body_bytes: 0, sequence, received, credits, crc: 0 }.seal(&mut bytes, true);
    bytes
}

fn frame(stream: u16, flags: u16, target: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = FrameHeader { len: body.len() as u32, stream, flags, target, source: 5 }.encode().to_vec();
    bytes.extend_from_slice(body);
    bytes.resize(frame_bytes(body.len()), 0);
    bytes
}

/// What a peer may say after its handshake that ends its link, whichever road it says it on.
pub(crate) fn after_the_handshake() -> Vec<(&'static str, Vec<u8>)> {
    let tuple = frame(0, 0, 6, &[0xEE; 64]);
    let mut torn = tuple.clone();
    torn[..4].copy_from_slice(&200_u32.to_le_bytes());
    let mut huge = tuple.clone();
    huge[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut damaged = sealed(Kind::Data, 0, 0, 0, &tuple);
    damaged[40] ^= 1;
    let empty = |sequence| sealed(Kind::Data, sequence, 0, 0, &[]);
    let mut all = vec![
        ("random bytes", random(4096)),
        ("nothing, then random bytes", [empty(0), random(4096)].concat()),
        ("the largest segment, of zeros", segment(SEGMENT_MAX)),
        ("a segment larger than that", segment(SEGMENT_MAX + 8)),
        ("a segment of 4 GiB", segment(u32::MAX)),
        ("a segment of three bytes", segment(3)),
        ("a wrong checksum", damaged),
        ("a gap", [empty(0), empty(2)].concat()),
        ("a repeat", [empty(0), empty(0)].concat()),
        ("a count of what was never sent", sealed(Kind::Data, 0, 1 << 40, 0, &[])),
        ("more credits than its body holds", sealed(Kind::Data, 0, 0, 9, &[0; 16])),
        ("a frame behind its goodbye", [sealed(Kind::Goodbye, 0, 0, 0, &[]), sealed(Kind::Data, 1, 0, 0, &tuple)].concat()),
        ("a frame that ends behind its segment", sealed(Kind::Data, 0, 0, 0, &torn)),
        ("a piece of a frame of 4 GiB", sealed(Kind::Piece, 0, 0, 0, &huge)),
        ("an empty piece", sealed(Kind::Piece, 0, 0, 0, &[])),
        ("a tuple that is none", sealed(Kind::Data, 0, 0, 0, &tuple)),
        ("a tuple of no stream", sealed(Kind::Data, 0, 0, 0, &frame(999, 0, 6, &[0xEE; 64]))),
        ("a tuple with flags of no tuple", sealed(Kind::Data, 0, 0, 0, &frame(0, 0xFF80, 6, &[0xEE; 64]))),
    ];
    // A bit of each byte of a header changed on the way; where that makes it longer, there is as much.
    all.extend((0..wire::HEADER_BYTES).map(|at| {
        let mut flipped = empty(0);
        flipped[at] ^= 0x80;
        ("a flipped bit", [flipped, vec![0; SEGMENT_MAX as usize]].concat())
    }));
    all
}

fn connect_from(number: usize, to: SocketAddr) -> TcpStream {
    let SocketAddr::V4(to) = to else { panic!("workers of a test are at 127.0.0.1") };
    let from = std::net::SocketAddrV4::new(Ipv4Addr::new(127, 0, 1, 1 + (number % ADDRESSES) as u8), 0);
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &from).unwrap();
    connect(&socket, &to).unwrap();
    socket.into()
}

/// Reads until the other side hangs up; how many bytes it said. Panics where it does not by `deadline`.
fn shown_out(stream: &mut TcpStream, what: &str, deadline: Instant) -> usize {
    let (mut buffer, mut said) = ([0; 4096], 0);
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left)).unwrap();
        match stream.read(&mut buffer) {
            Ok(0) => return said,
            Ok(n) => said += n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                assert!(Instant::now() < deadline, "{what}: the door is still open");
            }
            Err(_) => return said,
        }
    }
}

/// A worker's port.
#[derive(Clone, Copy)]
pub(crate) struct Door(pub(crate) SocketAddr);

impl Door {
    /// So many connections at once, each of which says this.
    pub(crate) fn says_and_is_shown_out(self, n: usize, bytes: &[u8], within: Duration) {
        let mut all: Vec<TcpStream> = (0..n).map(|i| connect_from(i, self.0)).collect();
        for stream in &mut all {
            stream.set_write_timeout(Some(within)).unwrap();
            // It may hang up before all is said.
            let _ = stream.write_all(bytes);
        }
        let deadline = Instant::now() + within;
        for stream in &mut all {
            let said = shown_out(stream, "nothing proven", deadline);
            assert!(said <= HELLO_BYTES, "{said} bytes said to a stranger");
        }
    }

    /// Clients that begin as they should, a byte at a time.
    pub(crate) fn slow_clients(self, n: usize, within: Duration) {
        more_descriptors();
        let hello = [b"SAET\x02\0\0\0", &random(32)[..]].concat();
        let mut all: Vec<TcpStream> = (0..n).map(|i| connect_from(i, self.0)).collect();
        let deadline = Instant::now() + within;
        for byte in hello.iter().cycle() {
            all.retain_mut(|stream| {
                stream.set_nonblocking(true).unwrap();
                let hung_up = !matches!(stream.read(&mut [0; 128]), Err(e) if e.kind() == ErrorKind::WouldBlock);
                !hung_up && stream.write_all(&[*byte]).is_ok()
            });
            if all.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{} slow clients are still here", all.len());
            std::thread::sleep(PACE);
        }
    }

    /// Clients that say nothing; all there at once as far as the door lets them.
    pub(crate) fn silent_clients(self, n: usize, within: Duration) {
        more_descriptors();
        let mut all: Vec<TcpStream> = (0..n).map(|i| connect_from(i, self.0)).collect();
        let deadline = Instant::now() + within;
        for stream in &mut all {
            assert_eq!(shown_out(stream, "nothing proven", deadline), 0);
        }
    }

    /// Says again what somebody who was let in said.
    pub(crate) fn replay(self, recorded: &[Vec<u8>], within: Duration) {
        for i in 0..20 {
            let mut stream = connect_from(i, self.0);
            stream.set_read_timeout(Some(within)).unwrap();
            stream.write_all(&recorded[0]).unwrap();
            let mut answer = [0; HELLO_BYTES];
            stream.read_exact(&mut answer).unwrap();
            stream.write_all(&recorded[1]).unwrap();
            assert_eq!(shown_out(&mut stream, "a replay", Instant::now() + within), 0, "a recorded claim was answered");
        }
    }
}

/// As many as this process may have.
fn more_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

/// Somebody with the topology's key.
pub(crate) struct Stranger {
    door: SocketAddr,
    key: Key,
    topology: String,
    format: [u8; 32],
}

/// Both roads of a link.
pub(crate) struct Links {
    data: TcpStream,
    control: TcpStream,
}

/// The placement that nobody else plays, its start and its index.
const OWN: (u64, u64, u32) = (5, 2, 0);

impl Stranger {
    pub(crate) fn new(door: SocketAddr, key: [u8; 32], topology: &str, digest: &str) -> Stranger {
        let format = Sha256::digest(format!("{digest} {:?}", saetta_tuple::FORMAT)).into();
        Stranger { door, key: Key::new(key).unwrap(), topology: topology.into(), format }
    }

    fn claim(&self, role: Role, road: Road, (placement, start, index): (u64, u64, u32)) -> Claim {
        let ring_bytes = RING_BYTES_DEFAULT as u32;
        let from = Identity { topology: self.topology.clone(), placement, start, index, format: self.format, ring_bytes };
        Claim { role, from, from_loop: 0, to_loop: 0, road, to_placement: 20 }
    }

    /// A whole handshake, with all that was said here.
    fn shake(&self, claim: &Claim) -> Result<(TcpStream, Verdict, Vec<Vec<u8>>), HandshakeError> {
        let nonce = Sha256::digest(format!("{:?}", Instant::now())).into();
        let mut handshake = DialerHandshake::new(self.key.clone(), claim, nonce);
        let mut stream = connect_from(0, self.door);
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut said = Vec::new();
        loop {
            said.push(handshake.take_output());
            stream.write_all(said.last().unwrap()).unwrap();
            let mut message = vec![0; handshake.wants()];
            stream.read_exact(&mut message).unwrap();
            if let Step::Done(verdict) = handshake.input(&message)? {
                return Ok((stream, verdict, said));
            }
        }
    }

    /// What a leader says to a worker, word for word.
    pub(crate) fn recorded_probe(&self) -> Vec<Vec<u8>> {
        let (_, verdict, said) = self.shake(&self.claim(Role::Probe, Road::Data, (0, 0, 0))).unwrap();
        assert_eq!(verdict.placement, 20);
        said
    }

    /// Returns once the worker has both roads and has granted its first credit.
    pub(crate) fn linked_as(&self, placement: u64, start: u64, index: u32) -> Links {
        let link = |road| self.shake(&self.claim(Role::Link, road, (placement, start, index))).unwrap().0;
        let mut links = Links { data: link(Road::Data), control: link(Road::Control) };
        links.control.read_exact(&mut [0; wire::HEADER_BYTES + wire::CREDIT_BYTES]).unwrap();
        links
    }

    fn linked(&self) -> Links {
        self.linked_as(OWN.0, OWN.1, OWN.2)
    }

    /// Proven, and refused for what is claimed.
    pub(crate) fn claims_are_refused(&self) {
        drop(self.linked());
        let own = || self.claim(Role::Link, Road::Data, OWN);
        let mut claims = vec![own(); 8];
        claims[0].from.topology = "another-1-1".into();
        claims[1].from.placement = 99;
        claims[2].from.index = 1;
        claims[3].from_loop = 7;
        claims[4].to_loop = u32::MAX;
        claims[5].to_placement = 10;
        claims[6].from.format = [0; 32];
        claims[7].from.start = 1;
        for claim in claims {
            let refused = self.shake(&claim).map(|(_, verdict, _)| verdict);
            assert!(matches!(refused, Err(HandshakeError::Refused(_))), "{claim:?}: {refused:?}");
        }
    }

    /// Says this on one road of a link of its own; both are closed.
    pub(crate) fn linked_says_and_is_shown_out(&self, road: Road, what: &str, bytes: &[u8], within: Duration) {
        let Links { mut data, mut control } = self.linked();
        let _ = if road == Road::Data { &mut data } else { &mut control }.write_all(bytes);
        let deadline = Instant::now() + within;
        for stream in [&mut data, &mut control] {
            shown_out(stream, what, deadline);
        }
    }

    /// Control frames of every kind there is, and some there are not, with bodies of any bytes and lengths. A link that is closed for one of
    /// them is made anew.
    pub(crate) fn control_frames_of_any_bytes(&self, n: usize, within: Duration) {
        let bytes = random(4 * n + 256);
        let (mut links, mut sequence) = (self.linked(), 0);
        for i in 0..n {
            let body = &bytes[4 * i..][..usize::from(bytes[i]) % 200];
            let frames = frame((i % 12) as u16, CONTROL, u32::from(bytes[i + 1]), body);
            assert!(frames.len() >= FRAME_HEADER_BYTES);
            if links.control.write_all(&sealed(Kind::Data, sequence, 0, 0, &frames)).is_ok() {
                sequence += 1;
            } else {
                (links, sequence) = (self.linked(), 0);
            }
        }
        // The worker has read it all when it has read what it does not bear.
        let _ = links.control.write_all(&random(64));
        shown_out(&mut links.control, "rubbish behind it all", Instant::now() + within);
    }
}
