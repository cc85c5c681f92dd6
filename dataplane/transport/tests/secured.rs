//! The connector under TLS, over real loopback TCP: who gets in, who does not, and what each is told.

mod common;
use common::*;
use saetta_transport::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn secured(key: Key, placement: u64) -> Connector {
    connector_under(key, identity(placement), true)
}

fn reasons(events: &[ConnectorEvent]) -> Vec<&str> {
    events.iter().filter_map(|e| if let ConnectorEvent::Unreachable { reason, .. } = e { Some(reason.as_str()) } else { None }).collect()
}

/// One end of a link, moved by hand.
struct End {
    socket: TcpStream,
    tls: Box<Tls>,
}

impl End {
    fn new(connection: Connection) -> Self {
        let Connection::Secured { socket, tls } = connection else { panic!("{connection:?}") };
        End { socket: TcpStream::from(socket), tls }
    }

    fn say(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() || !self.tls.outgoing().is_empty() {
            bytes = &bytes[self.tls.seal(bytes)..];
            let n = self.socket.write(self.tls.outgoing()).unwrap();
            self.tls.written(n);
        }
    }

    fn hear(&mut self, n: usize) -> Vec<u8> {
        let mut heard = vec![0; n];
        let (mut done, start) = (0, Instant::now());
        while done < n {
            assert!(start.elapsed() < PATIENCE);
            done += self.tls.read(&mut heard[done..]).unwrap();
            match self.socket.read(self.tls.cipher_room()) {
                Ok(n) => self.tls.received(n).unwrap(),
                Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
        heard
    }
}

#[test]
fn a_pair_is_linked_under_tls_and_what_passes_cannot_be_read_on_the_way() {
    let (mut a, mut b) = (secured(key(1), 1), secured(key(1), 2));
    a.set_targets(&[target(2, b.local_addr())]);
    let mut events = turn_until(&mut [&mut a, &mut b], |e| !e[0].is_empty() && !e[1].is_empty());
    let (ConnectorEvent::Connected { connection, peer, .. }, ConnectorEvent::Accepted(accepted)) =
        (events[0].remove(0), events[1].remove(0))
    else {
        panic!("{events:?}");
    };
    assert_eq!((peer.placement, accepted.peer.placement, b.counters().admitted), (2, 1, 1));
    let (mut dialled, mut accepted) = (End::new(connection), End::new(accepted.connection));
    assert!(dialled.socket.nodelay().unwrap() && accepted.socket.nodelay().unwrap());
    let words: Vec<u8> = b"words that nobody else reads ".iter().copied().cycle().take(30_000).collect();
    dialled.tls.seal(&words);
    assert!(!dialled.tls.outgoing().windows(8).any(|w| w == &words[..8]));
    dialled.say(b"");
    assert!(accepted.hear(words.len()) == words);
    accepted.say(b"and back");
    assert_eq!(dialled.hear(8), b"and back");
}

#[test]
fn workers_of_one_host_share_memory_under_tls_too_and_without_it_are_under_tls() {
    for (of_b, kind) in [(true, "memory"), (false, "tls")] {
        let bind = "127.0.0.1:0".parse().unwrap();
        let one = lonely(identity(1));
        let two = Identity { topology: one.topology.clone(), ..identity(2) };
        let open = |identity, memory| Connector::new(ConnectorOptions { bind, key: key(1), identity, memory, tls: true }).unwrap();
        let (mut a, mut b) = (open(one, true), open(two, of_b));
        a.set_wakers(vec![waker()]);
        b.set_wakers(vec![waker()]);
        a.set_targets(&[neighbour(2, b.local_addr())]);
        let linked = |e: &[ConnectorEvent]| e.iter().any(|e| matches!(e, ConnectorEvent::Connected { .. } | ConnectorEvent::Accepted(_)));
        let events = turn_until(&mut [&mut a, &mut b], |e| linked(&e[0]) && linked(&e[1]));
        let kinds: Vec<_> = events
            .iter()
            .flatten()
            .filter_map(|e| match e {
                ConnectorEvent::Connected { connection, .. } | ConnectorEvent::Accepted(Accepted { connection, .. }) => {
                    Some(connection.kind())
                }
                _ => None,
            })
            .collect();
        assert_eq!(kinds, [kind; 2]);
    }
}

#[test]
fn a_wrong_key_under_tls_is_told_as_without() {
    let mut door = secured(key(1), 2);
    let mut stranger = secured(key(9), 1);
    stranger.set_targets(&[target(2, door.local_addr())]);
    let events = turn_until(&mut [&mut stranger, &mut door], |e| !e[0].is_empty());
    assert_eq!(reasons(&events[0]), ["handshake: the other side does not hold the topology's key"]);
    assert_eq!(door.counters().admitted, 0);
}

#[test]
fn a_refusal_reaches_the_dialer_under_tls() {
    let mut door = secured(key(1), 2);
    let mut other = identity(1);
    other.topology = "wc-2".into();
    let mut other = connector_under(key(1), other, true);
    other.set_targets(&[target(2, door.local_addr())]);
    let events = turn_until(&mut [&mut other, &mut door], |e| !e[0].is_empty());
    assert_eq!(reasons(&events[0]), ["refused: this is a worker of topology wc-1, not of wc-2"]);
    assert_eq!((door.counters().refused, door.counters().admitted), (1, 0));
}

#[test]
fn who_speaks_tls_and_who_does_not_are_never_linked_and_both_are_told() {
    for (of_door, of_dialer, told) in [
        (true, false, "handshake: the other side speaks TLS and this one does not; set transport.tls alike on both"),
        (false, true, "handshake: the other side hung up at the TLS hello: its transport.tls is false, or its door is full"),
    ] {
        let mut door = connector_under(key(1), identity(2), of_door);
        let mut dialer = connector_under(key(1), identity(1), of_dialer);
        dialer.set_targets(&[target(2, door.local_addr())]);
        let events = turn_until(&mut [&mut dialer, &mut door], |e| !e[0].is_empty());
        assert_eq!(reasons(&events[0]), [told]);
        assert_eq!((door.counters().tls_differs, door.counters().admitted), (1, 0));
    }
}

/// True when the other side has closed; reads away what it said before.
fn closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut buffer = [0; 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(e) => return e.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

fn turn_door(door: &mut Connector, mut done: impl FnMut(&Connector) -> bool) {
    let (mut out, start) = (vec![], Instant::now());
    while !done(door) {
        assert!(start.elapsed() < PATIENCE, "{:?}", door.counters());
        door.turn(Duration::from_millis(5), &[], &mut admit, &mut out);
    }
    assert!(out.is_empty(), "{out:?}");
}

#[test]
fn strangers_at_a_tls_door_are_hung_up_on_and_harm_nobody() {
    let mut door = secured(key(1), 2);
    let hello = TlsSetup::new().unwrap().dial().unwrap().outgoing().to_vec();
    let endless = [&[0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0][..], &[7; 20_000]].concat();
    let strangers: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        &[0; 4096],
        // A true hello, then garbage; a hello that is none; one that never ends; the same hello twice.
        &[&hello[..], &[0xa5; 300]].concat(),
        &[&hello[..50], &[0xff; 300]].concat(),
        &endless,
        &[&hello[..], &hello].concat(),
    ];
    for bytes in strangers {
        let mut stream = TcpStream::connect(door.local_addr()).unwrap();
        let _ = stream.write_all(bytes);
        turn_door(&mut door, |_| closed(&mut stream));
    }
    assert_eq!((door.counters().foreign, door.counters().accepted), (6, 6), "{:?}", door.counters());
    // Half a hello, one byte at a time: two seconds, as without TLS.
    let mut slow = TcpStream::connect(door.local_addr()).unwrap();
    let start = Instant::now();
    for byte in &hello[..hello.len() / 2] {
        let _ = slow.write_all(&[*byte]);
        door.turn(Duration::ZERO, &[], &mut admit, &mut vec![]);
    }
    turn_door(&mut door, |_| closed(&mut slow));
    assert!(start.elapsed() >= Duration::from_secs(2) && door.counters().expired == 1);
    let mut dialer = secured(key(1), 1);
    dialer.set_targets(&[target(2, door.local_addr())]);
    turn_until(&mut [&mut dialer, &mut door], |e| !e[0].is_empty() && !e[1].is_empty());
}

/// Copies ciphertext both ways between the dialer and the door through two sessions of its own: a man in the middle with everything but
/// the key. Returns when either side hangs up.
fn man_in_the_middle(listener: std::net::TcpListener, door: std::net::SocketAddr) -> u64 {
    let setup = TlsSetup::new().unwrap();
    let (to_dialer, to_door) = (listener.accept().unwrap().0, TcpStream::connect(door).unwrap());
    let mut sides = [(to_dialer, setup.accept().unwrap()), (to_door, setup.dial().unwrap())];
    sides.iter().for_each(|(socket, _)| socket.set_nonblocking(true).unwrap());
    let (mut waiting, mut relayed) = ([vec![], vec![]], 0);
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE);
        for i in 0..2 {
            let (socket, tls) = &mut sides[i];
            let sealed = tls.seal(&waiting[i]);
            waiting[i].drain(..sealed);
            while !tls.outgoing().is_empty() {
                let Ok(n) = socket.write(tls.outgoing()) else { return relayed };
                tls.written(n);
            }
            match socket.read(tls.cipher_room()) {
                Ok(0) => return relayed,
                Ok(n) if tls.received(n).is_ok() => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                _ => return relayed,
            }
            let mut buffer = [0; 512];
            let n = tls.read(&mut buffer).unwrap();
            waiting[1 - i].extend_from_slice(&buffer[..n]);
            relayed += n as u64;
        }
    }
}

#[test]
fn a_man_in_the_middle_with_a_session_to_either_side_gets_nothing_through() {
    let mut door = secured(key(1), 2);
    let mut dialer = secured(key(1), 1);
    let between = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    dialer.set_targets(&[target(2, between.local_addr().unwrap())]);
    let addr = door.local_addr();
    let man = std::thread::spawn(move || man_in_the_middle(between, addr));
    let events = turn_until(&mut [&mut dialer, &mut door], |e| !e[0].is_empty());
    assert_eq!(reasons(&events[0]), ["handshake: the other side does not hold the topology's key"]);
    turn_door(&mut door, |_| man.is_finished());
    assert_eq!(man.join().unwrap(), 40 + 72, "both hellos and the acceptor's proof went through him; no claim was made");
    assert_eq!(door.counters().admitted, 0);
}

#[test]
fn the_leaders_probe_finds_out_that_a_door_wants_tls() {
    let mut door = secured(key(1), 2);
    let addr = door.local_addr();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                door.turn(Duration::from_millis(5), &[], &mut admit, &mut vec![]);
            }
        });
        let long = Duration::from_secs(20);
        let good = probe(addr, &key(1), "wc-1", long);
        let wrong_key = probe(addr, &key(3), "wc-1", long);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(good.unwrap(), ProbeReply { topology: "wc-1".into(), placement: 2, start: 1, executed: 11, emitted: 22 });
        assert!(wrong_key.unwrap_err().to_string().ends_with("the other side does not hold the topology's key"));
    });
    assert_eq!((door.counters().tls_differs, door.counters().probes), (2, 1), "each asked without first");
}
