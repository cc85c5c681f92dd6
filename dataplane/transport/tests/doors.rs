//! The connector over real loopback TCP: who gets in, who does not, and what a crowd at the door costs.

mod common;
use common::*;
use saetta_transport::handshake::DialerHandshake;
use saetta_transport::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

fn reasons(events: &[ConnectorEvent]) -> Vec<&str> {
    events.iter().filter_map(|e| if let ConnectorEvent::Unreachable { reason, .. } = e { Some(reason.as_str()) } else { None }).collect()
}

#[test]
fn a_dialled_pair_agrees_on_who_and_where_and_passes_bytes() {
    let mut one = identity(1);
    one.ring_bytes = 1 << 16;
    let ((a, at_a), (b, at_b)) = linked_with(one, identity(2));
    let ring = RING_BYTES_DEFAULT as u32;
    let small = 1 << 16;
    let peer = |placement, local_ring_bytes, remote_ring_bytes| Peer {
        placement,
        start: 1,
        index: placement as u32,
        local_loop: 0,
        remote_loop: 0,
        local_ring_bytes,
        remote_ring_bytes,
        road: Road::Data,
    };
    assert_eq!((at_a, at_b), (peer(2, small, ring), peer(1, ring, small)));
    let stream = |c| match c {
        Connection::Socket(socket) => TcpStream::from(socket),
        other => panic!("{other:?}"),
    };
    let (mut a, mut b) = (stream(a), stream(b));
    assert!(a.nodelay().unwrap() && b.nodelay().unwrap());
    b.set_nonblocking(false).unwrap();
    a.write_all(b"first byte after the handshake").unwrap();
    let mut got = [0; 30];
    b.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"first byte after the handshake");
}

#[test]
fn a_wrong_key_is_refused_on_both_sides_and_told_once_however_often_it_is_tried() {
    let mut door = connector(2);
    let mut stranger = connector_with(key(9), identity(1));
    stranger.set_targets(&[target(2, door.local_addr())]);
    let (mut events, mut out, start) = (vec![], vec![], Instant::now());
    // The stranger hangs up, since the door could not prove the key either.
    while door.counters().gone < 4 {
        assert!(start.elapsed() < PATIENCE);
        stranger.turn(Duration::from_millis(1), &[], &mut admit, &mut events);
        door.turn(Duration::from_millis(1), &[], &mut admit, &mut out);
    }
    assert_eq!(reasons(&events), ["handshake: the other side does not hold the topology's key"]);
    assert!(out.is_empty() && door.counters().admitted == 0);
}

#[test]
fn a_worker_of_another_topology_is_refused_with_a_text() {
    let mut door = connector(2);
    let mut other = identity(1);
    other.topology = "wc-2".into();
    let mut other = connector_with(key(1), other);
    other.set_targets(&[target(2, door.local_addr())]);
    let events = turn_until(&mut [&mut other, &mut door], |e| !e[0].is_empty());
    assert_eq!(reasons(&events[0]), ["refused: this is a worker of topology wc-1, not of wc-2"]);
    assert_eq!((door.counters().refused, door.counters().admitted), (1, 0));
}

#[test]
fn a_refused_placement_is_tried_on_until_the_acceptor_knows_it() {
    let mut door = connector(2);
    let mut dialer = connector(1);
    dialer.set_targets(&[target(2, door.local_addr())]);
    let (mut events, mut out, mut asked, start) = (vec![], vec![], 0, Instant::now());
    while out.is_empty() || events.len() < 3 {
        assert!(start.elapsed() < PATIENCE, "{events:?}");
        let mut decide = |claim: &Claim| {
            assert_eq!((claim.from.placement, claim.from.start, claim.to_placement), (1, 1, 2));
            asked += 1;
            match asked {
                1 | 2 => Err(Refusal("placement is not in assignment 4".into())),
                3 => Err(Refusal("start 1 is below 2".into())),
                _ => Ok(Admission::Link),
            }
        };
        door.turn(Duration::from_millis(1), &[], &mut decide, &mut out);
        dialer.turn(Duration::from_millis(1), &[], &mut admit, &mut events);
    }
    assert_eq!(reasons(&events), ["refused: placement is not in assignment 4", "refused: start 1 is below 2"], "each once");
    assert!(matches!(events[2], ConnectorEvent::Connected { .. }));
    assert_eq!(door.counters().refused, 3);
}

#[test]
fn a_peer_that_comes_up_later_or_comes_back_is_reached() {
    // A port nobody listens on, for now; at an address of its own, so that no other test is given it.
    let bind = "127.0.0.5:0".parse().unwrap();
    let addr =
        Connector::new(ConnectorOptions { bind, key: key(1), identity: identity(2), memory: false, tls: false }).unwrap().local_addr();
    let mut dialer = connector(1);
    let wanted = target(2, addr);
    dialer.set_targets(&[wanted]);
    let mut events = vec![];
    let start = Instant::now();
    while events.is_empty() {
        assert!(start.elapsed() < PATIENCE);
        dialer.turn(Duration::from_millis(10), &[], &mut admit, &mut events);
    }
    assert_eq!(reasons(&events), ["connect: Connection refused (os error 111)"]);
    let options = ConnectorOptions { bind: addr, key: key(1), identity: identity(2), memory: false, tls: false };
    let mut door = Connector::new(options.clone()).unwrap();
    let mut events = turn_until(&mut [&mut dialer, &mut door], |e| !e[0].is_empty() && !e[1].is_empty());
    assert!(matches!(events[0][0], ConnectorEvent::Connected { .. }));
    // While it is connected nothing is dialled, however often the same set is given.
    dialer.set_targets(&[wanted]);
    let mut more = vec![];
    dialer.turn(Duration::ZERO, &[], &mut admit, &mut more);
    door.turn(Duration::from_millis(50), &[], &mut admit, &mut more);
    assert!(more.is_empty() && door.counters().accepted == 1);
    // The peer dies with its link and another takes the port at once (SO_REUSEADDR).
    events.clear();
    drop(door);
    let mut door = Connector::new(options).unwrap();
    dialer.again(wanted.key);
    let events = turn_until(&mut [&mut dialer, &mut door], |e| !e[0].is_empty() && !e[1].is_empty());
    assert!(matches!(events[0][0], ConnectorEvent::Connected { .. }), "{events:?}");
    // No longer wanted: no longer dialled.
    dialer.set_targets(&[]);
    dialer.again(wanted.key);
    dialer.turn(Duration::ZERO, &[], &mut admit, &mut more);
    assert!(more.is_empty());
}

#[test]
fn thirty_targets_are_reached_at_the_allowed_pace_and_a_dead_one_delays_none() {
    let mut door = connector(2);
    let mut dialer = connector(1);
    let mut targets: Vec<_> = (0..30u32)
        .map(|i| Target {
            key: TargetKey { placement: 2, local_loop: i % 5, remote_loop: i / 5, road: Road::Data },
            addr: door.local_addr(),
            same_host: false,
        })
        .collect();
    targets.insert(0, target(3, "127.0.0.6:1".parse().unwrap()));
    dialer.set_targets(&targets);
    let start = Instant::now();
    let connected = |e: &[ConnectorEvent]| e.iter().filter(|e| matches!(e, ConnectorEvent::Connected { .. })).count();
    let events = turn_until(&mut [&mut dialer, &mut door], |e| connected(&e[0]) == 30);
    assert!(start.elapsed() >= Duration::from_secs(1), "thirty attempts take more than a second at twenty a second");
    assert_eq!(reasons(&events[0]), ["connect: Connection refused (os error 111)"]);
}

/// A dialler by hand, which remembers what it sent.
fn dial_by_hand(addr: SocketAddr, door: &mut Connector) -> (TcpStream, Vec<u8>) {
    let claim = Claim { role: Role::Link, from: identity(1), from_loop: 0, to_loop: 0, road: Road::Data, to_placement: 2 };
    let mut handshake = DialerHandshake::new(key(1), &claim, [5; 32]);
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_nonblocking(true).unwrap();
    let (mut sent, mut out, start) = (vec![], vec![], Instant::now());
    loop {
        let bytes = handshake.take_output();
        stream.write_all(&bytes).unwrap();
        sent.extend_from_slice(&bytes);
        door.turn(Duration::from_millis(1), &[], &mut admit, &mut out);
        let mut buffer = [0; 512];
        let want = handshake.wants();
        if let Ok(n) = stream.read(&mut buffer[..want])
            && matches!(handshake.input(&buffer[..n]), Ok(handshake::Step::Done(_)))
        {
            return (stream, sent);
        }
        assert!(start.elapsed() < PATIENCE);
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

fn turn_door(door: &mut Connector, mut done: impl FnMut(&Connector) -> bool) -> Vec<ConnectorEvent> {
    let (mut out, start) = (vec![], Instant::now());
    while !done(door) {
        assert!(start.elapsed() < PATIENCE, "{:?}", door.counters());
        door.turn(Duration::from_millis(5), &[], &mut admit, &mut out);
    }
    out
}

#[test]
fn a_replayed_handshake_is_refused() {
    let mut door = connector(2);
    let (_link, recorded) = dial_by_hand(door.local_addr(), &mut door);
    assert_eq!(door.counters().admitted, 1);
    let mut replay = TcpStream::connect(door.local_addr()).unwrap();
    replay.write_all(&recorded).unwrap();
    let out = turn_door(&mut door, |_| closed(&mut replay));
    assert!(out.is_empty());
    assert_eq!((door.counters().unproven, door.counters().admitted), (1, 1));
}

#[test]
fn foreign_traffic_is_hung_up_on_and_harms_nobody() {
    let mut door = connector(2);
    let mut noise = vec![0u8; 4096];
    let mut state = 1u64;
    noise.fill_with(|| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        (state >> 56) as u8
    });
    let long_magic = [&b"SAET\x02\0\0\0"[..], &noise].concat();
    let strangers: [&[u8]; 6] = [
        &noise,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"SAET\xff\xff\0\0",
        &long_magic,
    ];
    for bytes in strangers {
        let mut stream = TcpStream::connect(door.local_addr()).unwrap();
        let _ = stream.write_all(bytes);
        let out = turn_door(&mut door, |_| closed(&mut stream));
        assert!(out.is_empty(), "{bytes:?}");
    }
    assert_eq!((door.counters().foreign, door.counters().tls_differs, door.counters().unproven), (4, 1, 1));
    let (_link, _) = dial_by_hand(door.local_addr(), &mut door);
}

/// A client that comes from another loopback address.
fn connect_from(from: [u8; 4], to: SocketAddr) -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddr::from((from, 0))).unwrap();
    connect(&socket, &to).unwrap();
    socket
}

#[test]
fn a_thousand_slow_clients_take_their_places_only_and_for_two_seconds_only() {
    let mut door = connector(2);
    let to = door.local_addr();
    let start = Instant::now();
    let mut slow = vec![];
    for i in 0..1000 {
        let stream = TcpStream::from(connect_from([127, 0, 0, 2], to));
        let _ = (&stream).write_all(b"S");
        slow.push(stream);
        if i % 50 == 0 {
            turn_door(&mut door, |d| d.counters().accepted >= i);
        }
    }
    turn_door(&mut door, |d| d.counters().accepted == 1000);
    assert_eq!(door.counters().over_cap + door.counters().expired, 1000 - 64, "64 from one address at a time");
    // Others get in meanwhile.
    let (_link, _) = dial_by_hand(to, &mut door);
    turn_door(&mut door, |d| d.counters().over_cap + d.counters().expired == 1000);
    assert!(start.elapsed() >= Duration::from_secs(2), "each had its two seconds");
    slow.iter_mut().for_each(|s| assert!(closed(s)));
}

#[test]
fn one_turn_waits_for_the_callers_descriptors_too() {
    let mut door = connector(2);
    let sleeper = saetta_ring::Sleeper::new().unwrap();
    let start = Instant::now();
    std::thread::scope(|s| {
        s.spawn(|| sleeper.wake());
        door.turn(Duration::from_secs(50), &[sleeper.as_fd()], &mut admit, &mut vec![]);
    });
    assert!(start.elapsed() < Duration::from_secs(40), "woken, not timed out");
}

#[test]
fn the_leaders_probe_is_answered_and_only_with_the_right_key_and_name() {
    let mut door = connector(2);
    let addr = door.local_addr();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut out = vec![];
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                door.turn(Duration::from_millis(5), &[], &mut admit, &mut out);
            }
            assert!(out.is_empty(), "a probe is no link");
        });
        let long = Duration::from_secs(20);
        let good = probe(addr, &key(1), "wc-1", long);
        let wrong_key = probe(addr, &key(3), "wc-1", long);
        let wrong_name = probe(addr, &key(1), "wc-9", long);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(good.unwrap(), ProbeReply { topology: "wc-1".into(), placement: 2, start: 1, executed: 11, emitted: 22 });
        assert!(wrong_key.unwrap_err().to_string().ends_with("the other side does not hold the topology's key"));
        assert!(wrong_name.unwrap_err().to_string().ends_with("refused: this is a worker of topology wc-1, not of wc-9"));
    });
    drop(door);
    assert!(probe(addr, &key(1), "wc-1", Duration::from_secs(5)).is_err(), "nobody there");
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let e = probe(mute.local_addr().unwrap(), &key(1), "wc-1", Duration::from_millis(100)).unwrap_err();
    assert_eq!(e.kind(), std::io::ErrorKind::TimedOut, "{e}");
}

#[test]
fn beyond_loopback_nothing_is_bound_or_dialled_without_a_key() {
    let all: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let open = |key| Connector::new(ConnectorOptions { bind: all, key, identity: identity(1), memory: false, tls: false });
    let e = open(Key::loopback_only()).err().unwrap();
    assert_eq!(e.kind(), std::io::ErrorKind::PermissionDenied);
    let text = "bind 0.0.0.0:0: an address beyond loopback needs authentication; configure a topology key or bind 127.0.0.1";
    assert_eq!(e.to_string(), text);
    assert!(open(key(1)).is_ok());
    let mut keyless = connector_with(Key::loopback_only(), identity(1));
    let beyond = "192.0.2.1:6700".parse().unwrap();
    keyless.set_targets(&[target(2, beyond)]);
    let events = turn_until(&mut [&mut keyless], |e| !e[0].is_empty());
    assert_eq!(reasons(&events[0]), ["connect 192.0.2.1:6700: an address beyond loopback needs authentication; configure a topology key"]);
    assert!(probe(beyond, &Key::loopback_only(), "wc-1", Duration::from_secs(1)).is_err());
}

#[test]
fn a_taken_port_is_named() {
    let door = connector(2);
    let options = ConnectorOptions { bind: door.local_addr(), key: key(1), identity: identity(3), memory: false, tls: false };
    let e = Connector::new(options).err().unwrap();
    assert_eq!(e.kind(), std::io::ErrorKind::AddrInUse);
    assert!(e.to_string().starts_with(&format!("bind {}: ", door.local_addr())), "{e}");
}

/// Runs in a process of its own, started by the test below: it takes every descriptor there is.
#[test]
#[ignore = "started by `without_descriptors_callers_are_hung_up_on_and_the_door_recovers` in a process of its own"]
fn child_without_descriptors() {
    // Asked for by name only: it would starve other tests in this process.
    if std::env::var("TAKE_ALL_DESCRIPTORS").is_err() {
        return;
    }
    let mut door = connector(2);
    let mut clients: Vec<_> = (0..10).map(|_| TcpStream::connect(door.local_addr()).unwrap()).collect();
    let limit = rustix::process::Rlimit { current: Some(64), maximum: Some(64) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let mut hoard = vec![];
    while let Ok(fd) = rustix::io::dup(&clients[0]) {
        hoard.push(fd);
    }
    turn_door(&mut door, |d| d.counters().no_descriptor == 10);
    clients.iter_mut().for_each(|c| assert!(closed(c)));
    hoard.clear();
    let (_link, _) = dial_by_hand(door.local_addr(), &mut door);
}

#[test]
fn without_descriptors_callers_are_hung_up_on_and_the_door_recovers() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_without_descriptors", "--include-ignored", "--nocapture"])
        .env("TAKE_ALL_DESCRIPTORS", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&child.stderr));
}
