//! Who comes over the Unix socket with the key, and then hands over what was not agreed, is hung up on, and no descriptor of its stays open.
//! One test only: it counts the descriptors of its process.

mod common;
use common::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use saetta_transport::handshake::{DialerHandshake, Step};
use saetta_transport::*;
use std::io::{IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn send(stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
    sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
}

struct Door {
    connector: Connector,
    name: SocketAddr,
    topology: String,
    events: Vec<ConnectorEvent>,
}

impl Door {
    fn turn_until(&mut self, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < PATIENCE, "{:?}", self.connector.counters());
            self.connector.turn(Duration::from_millis(1), &[], &mut admit, &mut self.events);
        }
    }

    /// Turns until it hangs up on `stream`.
    fn hangs_up(&mut self, mut stream: UnixStream) {
        stream.set_nonblocking(true).unwrap();
        let mut buffer = [0; 1024];
        self.turn_until(|| {
            loop {
                match stream.read(&mut buffer) {
                    Ok(0) => return true,
                    Ok(_) => {}
                    Err(e) => return e.kind() != std::io::ErrorKind::WouldBlock,
                }
            }
        });
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect_addr(&self.name).unwrap()
    }

    /// A proven and admitted client, whose memory is waited for.
    fn proven(&mut self) -> UnixStream {
        let mut stream = self.connect();
        let from = Identity { topology: self.topology.clone(), ..identity(1) };
        let claim = Claim { role: Role::Link, from, from_loop: 0, to_loop: 0, road: Road::Data, to_placement: 2 };
        let mut handshake = DialerHandshake::new(key(1), &claim, [5; 32]);
        stream.set_nonblocking(true).unwrap();
        self.turn_until(|| {
            stream.write_all(&handshake.take_output()).unwrap();
            let mut buffer = [0; 512];
            let want = handshake.wants();
            match stream.read(&mut buffer[..want]) {
                Ok(n) => matches!(handshake.input(&buffer[..n]).unwrap(), Step::Done(_)),
                Err(_) => false,
            }
        });
        stream
    }
}

/// Memory as `saetta_ring::shared` makes it, if nothing is taken away.
fn memfd(bytes: usize, seals: SealFlags) -> OwnedFd {
    let file = memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes as u64).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

#[test]
fn what_was_not_agreed_is_closed_and_its_sender_hung_up_on() {
    let own = lonely(identity(2));
    let topology = own.topology.clone();
    let name = SocketAddr::from_abstract_name(format!("saetta/{topology}/{:016x}", 2)).unwrap();
    let mut door = Door { connector: sharing(key(1), own), name, topology, events: vec![] };

    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let bytes = rustix::param::page_size() + 2 * RING_BYTES_DEFAULT;
    let (good, event) = (memfd(bytes, all), waker());
    let unsealed = memfd(bytes, SealFlags::empty());
    let shrinks = memfd(bytes, SealFlags::GROW | SealFlags::SEAL);
    let (small, large) = (memfd(bytes - 4096, all), memfd(bytes + 4096, all));
    let unwritable = memfd(bytes, all | SealFlags::WRITE);
    let blocking = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let (pipe, _pipe) = rustix::pipe::pipe().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let (m, w) = (good.as_fd(), event.as_fd());
    let cases: Vec<(&str, &[u8], Vec<BorrowedFd<'_>>)> = vec![
        ("no descriptors", b"M", vec![]),
        ("one", b"M", vec![m]),
        ("three", b"M", vec![m, w, w]),
        ("four", b"M", vec![m, w, w, w]),
        ("five", b"M", vec![m, w, w, w, w]),
        ("eight", b"M", vec![m, w, w, w, w, m, m, m]),
        ("the wrong way round", b"M", vec![w, m]),
        ("another message", b"W", vec![m, w]),
        ("garbage", b"GET / HTTP/1.1\r\n\r\n", vec![]),
        ("unsealed", b"M", vec![unsealed.as_fd(), w]),
        ("may shrink", b"M", vec![shrinks.as_fd(), w]),
        ("too small", b"M", vec![small.as_fd(), w]),
        ("too large", b"M", vec![large.as_fd(), w]),
        ("cannot be written", b"M", vec![unwritable.as_fd(), w]),
        ("no memory", b"M", vec![null.as_fd(), w]),
        ("an event that blocks", b"M", vec![m, blocking.as_fd()]),
        ("a pipe for an event", b"M", vec![m, pipe.as_fd()]),
        ("memory for an event", b"M", vec![m, m]),
    ];

    let before = descriptors();
    for (what, message, fds) in &cases {
        let stream = door.proven();
        send(&stream, message, fds);
        door.hangs_up(stream);
        assert_eq!(descriptors(), before, "{what}");
        assert!(door.events.is_empty(), "{what}");
    }
    let counters = door.connector.counters();
    // What cannot be mapped is the system's refusal, not a wrong form.
    assert_eq!((counters.malformed, counters.gone, counters.admitted), (cases.len() as u64 - 1, 1, 0));

    // Before the key is proven, descriptors are not even received.
    let stream = door.connect();
    send(&stream, &[b'M'; 40], &[m, w, w, w, w]);
    door.hangs_up(stream);
    let stream = door.connect();
    send(&stream, b"SAET", &[m, w]);
    door.turn_until(|| descriptors() == before + 2);
    drop(stream);
    door.turn_until(|| descriptors() == before);
    // Hangs up instead of handing over, with and without the message on its way.
    let stream = door.proven();
    drop(stream);
    door.turn_until(|| descriptors() == before);
    let stream = door.proven();
    send(&stream, b"M", &[unsealed.as_fd(), w]);
    drop(stream);
    door.turn_until(|| descriptors() == before);
    assert!(door.events.is_empty());

    // Says nothing: its time is over like everybody's.
    let stream = door.proven();
    let start = Instant::now();
    door.hangs_up(stream);
    assert!(start.elapsed() > Duration::from_secs(1), "it had its time");
    assert_eq!((door.connector.counters().expired, descriptors()), (1, before));

    // And who hands over what was agreed gets in.
    let stream = door.proven();
    send(&stream, b"M", &[m, w]);
    let mut events = std::mem::take(&mut door.events);
    let start = Instant::now();
    while events.is_empty() {
        assert!(start.elapsed() < PATIENCE, "{:?}", door.connector.counters());
        door.connector.turn(Duration::from_millis(1), &[], &mut admit, &mut events);
    }
    let ConnectorEvent::Accepted(accepted) = events.remove(0) else { panic!("{events:?}") };
    memory(accepted.connection);
}
