//! The rows that end at the door: who is let in, who is not, and what knocking costs. Over TCP; `tests/doors.rs` has the rest of the door.

use crate::common::*;
use crate::harness::Random;
use saetta_transport::handshake::{DialerHandshake, HANDSHAKE_BYTES_MAX, Step};
use saetta_transport::*;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

fn reasons(events: &[ConnectorEvent]) -> Vec<&str> {
    events.iter().filter_map(|e| if let ConnectorEvent::Unreachable { reason, .. } = e { Some(reason.as_str()) } else { None }).collect()
}

fn connected(events: &[ConnectorEvent]) -> usize {
    events.iter().filter(|e| matches!(e, ConnectorEvent::Connected { .. })).count()
}

/// True when the other side has closed; reads away what it said before.
fn closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut buffer = [0; 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(e) => return e.kind() != ErrorKind::WouldBlock,
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

fn claim(from: Identity) -> Claim {
    Claim { role: Role::Link, from, from_loop: 0, to_loop: 0, road: Road::Data, to_placement: 2 }
}

/// A dialler by hand: its connection, what it sent, and whether it was admitted.
fn dial(door: &mut Connector, claim: &Claim) -> (TcpStream, Vec<u8>, bool) {
    let mut handshake = DialerHandshake::new(key(1), claim, [5; 32]);
    let mut stream = TcpStream::connect(door.local_addr()).unwrap();
    stream.set_nonblocking(true).unwrap();
    let (mut sent, mut out, start) = (vec![], vec![], Instant::now());
    loop {
        let bytes = handshake.take_output();
        stream.write_all(&bytes).unwrap();
        sent.extend_from_slice(&bytes);
        door.turn(Duration::from_millis(1), &[], &mut admit, &mut out);
        let mut buffer = [0; 512];
        let want = handshake.wants();
        match stream.read(&mut buffer[..want]) {
            Ok(0) => return (stream, sent, false),
            Ok(n) => match handshake.input(&buffer[..n]) {
                Ok(Step::Read(_)) => {}
                result => return (stream, sent, result.is_ok()),
            },
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return (stream, sent, false),
        }
        assert!(start.elapsed() < PATIENCE);
    }
}

/// What a stranger says; it is hung up on.
fn say(door: &mut Connector, bytes: &[u8]) {
    let mut stream = TcpStream::connect(door.local_addr()).unwrap();
    let _ = stream.write_all(bytes);
    let out = turn_door(door, |_| closed(&mut stream));
    assert!(out.is_empty(), "{bytes:?}");
}

#[test]
fn f42_who_cannot_be_reached_is_tried_on_and_told_once() {
    let hangs_up = TcpListener::bind("127.0.0.1:0").unwrap();
    hangs_up.set_nonblocking(true).unwrap();
    let mut door = connector(2);
    let mut dialer = connector(1);
    dialer.set_targets(&[target(3, hangs_up.local_addr().unwrap()), target(2, door.local_addr())]);
    let (mut tries, mut events, mut out, start) = (0, vec![], vec![], Instant::now());
    while tries < 5 {
        assert!(start.elapsed() < PATIENCE);
        tries += usize::from(hangs_up.accept().is_ok());
        dialer.turn(Duration::from_millis(1), &[], &mut admit, &mut events);
        door.turn(Duration::from_millis(1), &[], &mut admit, &mut out);
    }
    assert!(start.elapsed() >= Duration::from_millis(25 + 50 + 100 + 200), "with pauses that grow");
    assert_eq!((reasons(&events).len(), connected(&events)), (1, 1), "{events:?}");
}

#[test]
fn f43_who_was_replaced_is_shut_out() {
    let mut door = connector(2);
    let (mut old, mut new) = (connector(1), connector_with(key(1), Identity { start: 2, ..identity(1) }));
    // As the worker decides: no start below the highest seen.
    let mut highest = 0;
    let mut decide = |claim: &Claim| {
        if claim.from.start < highest {
            return Err(Refusal(format!("start {} is below {highest}", claim.from.start)));
        }
        highest = claim.from.start;
        Ok(Admission::Link)
    };
    let (mut events, mut out, start) = ([vec![], vec![]], vec![], Instant::now());
    new.set_targets(&[target(2, door.local_addr())]);
    while events[1].is_empty() {
        assert!(start.elapsed() < PATIENCE);
        new.turn(Duration::from_millis(1), &[], &mut admit, &mut events[1]);
        door.turn(Duration::from_millis(1), &[], &mut decide, &mut out);
    }
    old.set_targets(&[target(2, door.local_addr())]);
    while events[0].is_empty() {
        assert!(start.elapsed() < PATIENCE);
        old.turn(Duration::from_millis(1), &[], &mut admit, &mut events[0]);
        door.turn(Duration::from_millis(1), &[], &mut decide, &mut out);
    }
    assert_eq!((connected(&events[1]), reasons(&events[0])), (1, vec!["refused: start 1 is below 2"]));
    assert_eq!((door.counters().admitted, door.counters().refused), (1, 1));
}

#[test]
fn f51_two_workers_that_swapped_ports_take_no_tuple_of_each_other() {
    let (mut two, mut three) = (connector(2), connector(3));
    let mut dialer = connector(1);
    // As an assignment said that was true a moment ago.
    dialer.set_targets(&[target(2, three.local_addr()), target(3, two.local_addr())]);
    let events = turn_until(&mut [&mut dialer, &mut two, &mut three], |e| reasons(&e[0]).len() == 2);
    let mut told = reasons(&events[0]);
    told.sort_unstable();
    assert_eq!(
        told,
        [
            "refused: this is placement 0000000000000002, not 0000000000000003",
            "refused: this is placement 0000000000000003, not 0000000000000002"
        ]
    );
    assert_eq!((connected(&events[0]), two.counters().admitted, three.counters().admitted), (0, 0, 0));
    // And as the next one says.
    dialer.set_targets(&[target(2, two.local_addr()), target(3, three.local_addr())]);
    let events = turn_until(&mut [&mut dialer, &mut two, &mut three], |e| connected(&e[0]) == 2);
    assert!(reasons(&events[0]).is_empty());
}

#[test]
fn f52_a_name_that_leads_to_nobody_costs_three_seconds_and_no_other_peer_anything() {
    // Whoever lives at the wrong address takes the connection and says nothing.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut door, mut dialer) = (connector(2), connector(1));
    let start = Instant::now();
    dialer.set_targets(&[target(3, mute.local_addr().unwrap()), target(2, door.local_addr())]);
    let events = turn_until(&mut [&mut dialer, &mut door], |e| connected(&e[0]) == 1);
    assert!(reasons(&events[0]).is_empty() && start.elapsed() < Duration::from_secs(3));
    let events = turn_until(&mut [&mut dialer, &mut door], |e| !e[0].is_empty());
    assert_eq!(reasons(&events[0]), ["handshake: no answer within 3 s"]);
    assert!(start.elapsed() >= Duration::from_secs(3));
}

#[test]
fn f53_a_taken_port_is_named_and_one_that_was_left_is_taken_at_once() {
    let mut door = connector(2);
    let bind = door.local_addr();
    let options = ConnectorOptions { bind, key: key(1), identity: identity(3), memory: false, tls: false };
    let error = Connector::new(options.clone()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().starts_with(&format!("bind {bind}: ")), "{error}");
    // Connections of the last one linger; the port does not.
    let (link, ..) = dial(&mut door, &claim(identity(1)));
    drop(door);
    assert_eq!(Connector::new(options).unwrap().local_addr(), bind);
    drop(link);
}

#[test]
fn f60_foreign_traffic_is_known_by_its_first_bytes() {
    let mut door = connector(2);
    let mut random = Random(1);
    let noise: Vec<u8> = (0..1 << 20).map(|_| random.below(256) as u8).collect();
    let strangers: [&[u8]; 5] = [
        &noise,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        &[0; 64],
    ];
    for bytes in strangers {
        say(&mut door, bytes);
    }
    let counters = door.counters();
    assert_eq!((counters.foreign, counters.tls_differs, counters.expired), (4, 1, 0), "at once, not by the deadline");
    assert!(dial(&mut door, &claim(identity(1))).2, "and who belongs here comes in");
}

#[test]
fn f61_right_magic_then_garbage_proves_nothing() {
    let mut door = connector(2);
    let mut random = Random(2);
    for _ in 0..20 {
        let garbage: Vec<u8> = (0..2 * HANDSHAKE_BYTES_MAX).map(|_| random.below(256) as u8).collect();
        say(&mut door, &[&b"SAET\x02\0\0\0"[..], &garbage].concat());
    }
    for other_version in [0u16, 1, 3, u16::MAX] {
        say(&mut door, &[b"SAET", &other_version.to_le_bytes()[..], &[0; 100]].concat());
    }
    assert_eq!((door.counters().unproven, door.counters().foreign, door.counters().admitted), (20, 4, 0));
}

/// A client that comes from another loopback address.
fn connect_from(from: [u8; 4], to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddr::from((from, 0))).unwrap();
    connect(&socket, &to).unwrap();
    TcpStream::from(socket)
}

#[test]
fn f63_slow_strangers_have_two_seconds_and_their_own_places() {
    let mut door = connector(2);
    let start = Instant::now();
    let mut slow: Vec<_> = (0..60).map(|_| connect_from([127, 0, 0, 2], door.local_addr())).collect();
    let hello = b"SAET\x02\0\0\0";
    let mut said = 0;
    // A byte now and then keeps nobody in.
    while door.counters().expired < 60 {
        assert!(start.elapsed() < PATIENCE);
        if start.elapsed() > Duration::from_millis(200 * said as u64) && said < hello.len() {
            slow.iter_mut().for_each(|s| drop(s.write_all(&hello[said..=said])));
            said += 1;
        }
        turn_door(&mut door, |d| d.counters().accepted == 60);
        door.turn(Duration::from_millis(5), &[], &mut admit, &mut vec![]);
    }
    assert!(start.elapsed() >= Duration::from_secs(2) && start.elapsed() < Duration::from_secs(10));
    assert!(slow.iter_mut().all(closed));
}

#[test]
fn f64_a_crowd_beyond_the_caps_is_hung_up_on_and_others_come_in() {
    let mut door = connector(2);
    let mut crowd = vec![];
    for i in 1..=300 {
        crowd.push(connect_from([127, 0, 0, 2], door.local_addr()));
        if i % 50 == 0 {
            turn_door(&mut door, |d| d.counters().accepted == i);
        }
    }
    let counters = door.counters();
    assert_eq!(counters.over_cap + counters.expired, 300 - 64, "64 places for one address: {counters:?}");
    assert!(dial(&mut door, &claim(identity(1))).2);
}

#[test]
fn f65_proven_and_malformed_is_counted_and_closed() {
    let mut door = connector(2);
    for ring_bytes in [0, 5, 8 << 20, u32::MAX] {
        assert!(!dial(&mut door, &claim(Identity { ring_bytes, ..identity(1) })).2);
    }
    assert_eq!((door.counters().malformed, door.counters().admitted), (4, 0));
    for wrong in [Identity { topology: "wc-2".into(), ..identity(1) }, Identity { format: [8; 32], ..identity(1) }] {
        assert!(!dial(&mut door, &claim(wrong)).2);
    }
    assert_eq!((door.counters().refused, door.counters().admitted), (2, 0));
}

#[test]
fn f66_a_replayed_and_a_reflected_handshake_are_refused() {
    let mut door = connector(2);
    let (_link, recorded, admitted) = dial(&mut door, &claim(identity(1)));
    assert!(admitted);
    say(&mut door, &recorded);
    assert_eq!((door.counters().unproven, door.counters().admitted), (1, 1));
    // Its own proof, sent back to it as ours.
    let mut stream = TcpStream::connect(door.local_addr()).unwrap();
    stream.write_all(&recorded[..40]).unwrap();
    let mut answer = vec![];
    turn_door(&mut door, |_| {
        let mut buffer = [0; 72];
        stream.set_nonblocking(true).unwrap();
        let n = stream.read(&mut buffer).unwrap_or(0);
        answer.extend_from_slice(&buffer[..n]);
        answer.len() == 72
    });
    let of_a_claim = &recorded[40..recorded.len() - 32];
    stream.write_all(&[of_a_claim, &answer[40..]].concat()).unwrap();
    let out = turn_door(&mut door, |_| closed(&mut stream));
    assert!(out.is_empty());
    assert_eq!((door.counters().unproven, door.counters().admitted), (2, 1));
}
