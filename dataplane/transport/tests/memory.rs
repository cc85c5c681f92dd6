//! Workers of one host meet over memory, and where they cannot, over TCP.

mod common;
use common::*;
use saetta_transport::*;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// Placement 2's Unix socket.
fn name(identity: &Identity) -> UnixAddr {
    UnixAddr::from_abstract_name(format!("saetta/{}/{:016x}", identity.topology, identity.placement)).unwrap()
}

/// Two identities of one new topology.
fn two() -> (Identity, Identity) {
    let one = lonely(identity(1));
    (one.clone(), Identity { topology: one.topology, ..identity(2) })
}

/// Both ends of the first link: what was dialled, what was accepted, and what else the dialler was told.
fn meet(a: &mut Connector, b: &mut Connector) -> ((Connection, Peer), (Connection, Peer), Vec<String>) {
    let dialled = |e: &[ConnectorEvent]| e.iter().any(|e| matches!(e, ConnectorEvent::Connected { .. }));
    let mut events = turn_until(&mut [a, b], |e| dialled(&e[0]) && !e[1].is_empty());
    let (mut end, mut told) = (None, vec![]);
    for event in events.remove(0) {
        match event {
            ConnectorEvent::Connected { connection, peer, .. } => end = Some((connection, peer)),
            ConnectorEvent::WithoutMemory { reason, .. } | ConnectorEvent::Unreachable { reason, .. } => told.push(reason),
            other => panic!("{other:?}"),
        }
    }
    let ConnectorEvent::Accepted(Accepted { connection, peer }) = events.remove(0).remove(0) else { panic!("the door accepts") };
    (end.unwrap(), (connection, peer), told)
}

fn ended(socket: impl AsFd) -> bool {
    matches!(rustix::net::recv(&socket, &mut [0; 1], rustix::net::RecvFlags::empty()), Ok((_, 0)))
}

#[test]
fn two_workers_of_one_host_meet_over_memory() {
    let (mut one, two) = two();
    one.ring_bytes = 1 << 16;
    let (mut a, mut b) = (sharing(key(1), one), sharing(key(1), two));
    assert_eq!((a.without_memory(), b.without_memory()), (None, None));
    a.set_targets(&[neighbour(2, b.local_addr())]);
    let ((a_end, at_a), (b_end, at_b), told) = meet(&mut a, &mut b);
    assert!(told.is_empty(), "{told:?}");
    assert_eq!((at_a.placement, at_a.remote_ring_bytes, at_b.placement, at_b.remote_ring_bytes), (2, 1 << 18, 1, 1 << 16));
    assert_eq!((b.counters().accepted, b.counters().admitted), (1, 1), "nobody came over TCP");
    let (mut a_end, mut b_end) = (memory(a_end), memory(b_end));
    for (from, to) in [(0, 1), (1, 0)] {
        let ends = [&mut a_end, &mut b_end];
        assert_eq!(ends[from].pair.out.capacity(), 1 << 18);
        assert_eq!(ends[from].pair.out.write_some(b"over memory"), Ok(11));
        assert_eq!(ends[to].pair.inn.readable(), Ok(&b"over memory"[..]));
    }
    assert!(!ended(&b_end.socket));
    drop(a_end);
    assert!(ended(&b_end.socket), "the end of one is seen by the other");
}

#[test]
fn each_side_can_wake_the_other_ones_loop() {
    let (one, two) = two();
    let (mut a, mut b) = (sharing(key(1), one), sharing(key(1), two));
    let (at_a, at_b) = (waker(), waker());
    a.set_wakers(vec![at_a.try_clone().unwrap()]);
    b.set_wakers(vec![at_b.try_clone().unwrap()]);
    a.set_targets(&[neighbour(2, b.local_addr())]);
    let ((a_end, _), (b_end, _), _) = meet(&mut a, &mut b);
    for (end, theirs) in [(memory(a_end), at_b), (memory(b_end), at_a)] {
        rustix::io::write(&end.peer_waker, &1u64.to_ne_bytes()).unwrap();
        assert_eq!(rustix::io::read(&theirs, &mut [0; 8]), Ok(8));
    }
}

#[test]
fn a_worker_that_is_not_said_to_be_of_this_host_is_reached_over_tcp() {
    let (one, two) = two();
    let (mut a, mut b) = (sharing(key(1), one), sharing(key(1), two));
    a.set_targets(&[target(2, b.local_addr())]);
    let ((a_end, _), (b_end, _), told) = meet(&mut a, &mut b);
    assert!(told.is_empty(), "{told:?}");
    plain(a_end);
    plain(b_end);
}

#[test]
fn where_the_unix_socket_is_absent_the_same_attempt_goes_on_over_tcp_and_says_why() {
    let (one, two) = two();
    let (mut a, mut b) = (sharing(key(1), one), connector_with(key(1), two));
    a.set_targets(&[neighbour(2, b.local_addr())]);
    for round in 0..2 {
        let ((a_end, _), (b_end, _), told) = meet(&mut a, &mut b);
        plain(a_end);
        plain(b_end);
        let expected: &[&str] = if round == 0 { &["connect: Connection refused (os error 111)"] } else { &[] };
        assert_eq!(told, expected, "told once");
        a.again(target(2, b.local_addr()).key);
    }
}

#[test]
fn with_memory_off_a_worker_neither_offers_nor_uses_it() {
    let (one, two) = two();
    let door = name(&two);
    let (mut a, mut b) = (connector_with(key(1), one), connector_with(key(1), two));
    a.set_wakers(vec![waker()]);
    b.set_wakers(vec![waker()]);
    assert!(UnixStream::connect_addr(&door).is_err());
    // Someone else's; it would be noticed.
    let listener = UnixListener::bind_addr(&door).unwrap();
    listener.set_nonblocking(true).unwrap();
    a.set_targets(&[neighbour(2, b.local_addr())]);
    let ((a_end, _), _, told) = meet(&mut a, &mut b);
    plain(a_end);
    assert!(told.is_empty() && listener.accept().is_err());
}

#[test]
fn a_door_that_opens_between_the_two_tries_is_found_over_memory() {
    let (one, two) = two();
    let mut a = sharing(key(1), one);
    // A TCP door that answers while the Unix socket is not there yet.
    let early = TcpListener::bind("127.0.0.1:0").unwrap();
    a.set_targets(&[neighbour(2, early.local_addr().unwrap())]);
    let mut events = vec![];
    a.turn(Duration::ZERO, &[], &mut admit, &mut events);
    assert!(events.is_empty(), "it is dialling: {events:?}");
    let mut b = sharing(key(1), two);
    let ((a_end, _), (b_end, _), told) = meet(&mut a, &mut b);
    memory(a_end);
    memory(b_end);
    assert!(told.is_empty(), "{told:?}");
}

#[test]
fn a_wrong_key_is_refused_over_memory_and_over_tcp() {
    let (one, two) = two();
    let (mut stranger, mut door) = (sharing(key(9), one), sharing(key(1), two));
    stranger.set_targets(&[neighbour(2, door.local_addr())]);
    let (mut events, mut out, start) = (vec![], vec![], Instant::now());
    // Each attempt comes twice and hangs up, since the door could not prove the key either.
    while door.counters().gone < 4 {
        assert!(start.elapsed() < PATIENCE, "{:?}", door.counters());
        stranger.turn(Duration::from_millis(1), &[], &mut admit, &mut events);
        door.turn(Duration::from_millis(1), &[], &mut admit, &mut out);
    }
    assert!(matches!(&events[..], [ConnectorEvent::Unreachable { reason, .. }] if reason.ends_with("does not hold the topology's key")));
    assert!(out.is_empty() && door.counters().admitted == 0);
}

#[test]
fn who_is_refused_over_memory_does_not_knock_again_over_tcp() {
    let (one, two) = two();
    let (mut a, mut b) = (sharing(key(1), one), sharing(key(1), two));
    a.set_targets(&[neighbour(2, b.local_addr())]);
    let (mut events, mut out, start) = (vec![], vec![], Instant::now());
    let mut decide = |_: &Claim| Err(Refusal("not now".into()));
    while b.counters().refused < 3 {
        assert!(start.elapsed() < PATIENCE);
        a.turn(Duration::from_millis(1), &[], &mut admit, &mut events);
        b.turn(Duration::from_millis(1), &[], &mut decide, &mut out);
    }
    assert!(matches!(&events[..], [ConnectorEvent::Unreachable { reason, .. }] if reason == "refused: not now"), "{events:?}");
    assert_eq!(b.counters().accepted, 3);
}

#[test]
fn a_loop_that_nobody_could_wake_is_linked_over_tcp() {
    let (one, two) = two();
    let (mut a, mut b) = (sharing(key(1), one), sharing(key(1), two));
    b.set_wakers(vec![]);
    a.set_targets(&[neighbour(2, b.local_addr())]);
    let ((a_end, _), (b_end, _), told) = meet(&mut a, &mut b);
    plain(a_end);
    plain(b_end);
    assert_eq!(told, ["the other side hung up"]);
}

#[test]
fn a_name_that_is_taken_costs_memory_and_not_the_door() {
    let (one, two) = two();
    let squatter = UnixListener::bind_addr(&name(&two)).unwrap();
    let (mut a, mut b) = (sharing(key(1), one), sharing(key(1), two));
    let text = b.without_memory().unwrap();
    assert_eq!(text, "no Unix socket for workers of this host, they come over TCP: Address already in use (os error 98)");
    // It takes the connection and hangs up.
    a.set_targets(&[neighbour(2, b.local_addr())]);
    std::thread::scope(|s| {
        s.spawn(|| drop(squatter.accept()));
        let ((a_end, _), (b_end, _), told) = meet(&mut a, &mut b);
        plain(a_end);
        plain(b_end);
        assert_eq!(told.len(), 1, "{told:?}");
    });
}

/// A door by hand, which proves the key and admits, and then answers with `message` and descriptors of its own.
fn answer_wrongly(listener: &UnixListener, own: &Identity, message: u8, fds: &[std::os::fd::BorrowedFd<'_>]) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use saetta_transport::handshake::{AcceptorHandshake, Step};
    use std::io::{Read as _, Write as _};
    let (mut stream, _) = listener.accept().unwrap();
    let mut handshake = AcceptorHandshake::new(key(1), [6; 32]);
    loop {
        let mut buffer = [0; 512];
        let want = handshake.wants();
        let n = stream.read(&mut buffer[..want]).unwrap();
        let step = handshake.input(&buffer[..n], own, &mut admit).unwrap();
        stream.write_all(&handshake.take_output()).unwrap();
        if matches!(step, Step::Done(_)) {
            break;
        }
    }
    // Its offer; the descriptors go the way of what nobody takes.
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 1);
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
    sendmsg(&stream, &[std::io::IoSlice::new(&[message])], &mut control, SendFlags::NOSIGNAL).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0, "the dialler hangs up");
}

#[test]
fn a_door_that_answers_with_what_was_not_agreed_is_reached_over_tcp() {
    let (event, pipe) = (waker(), rustix::pipe::pipe().unwrap().0);
    let (w, p) = (event.as_fd(), pipe.as_fd());
    let cases = [(b'W', vec![], "1 descriptors were expected, 0 came"), (b'W', vec![w, w], "1 descriptors were expected, 2 came")];
    let more = [
        (b'W', vec![w; 7], "more descriptors than were agreed, or none left for them"),
        (b'W', vec![p], "a non-blocking event was expected, pipe:"),
        (b'M', vec![w], "another message was expected"),
    ];
    for (message, fds, reason) in cases.into_iter().chain(more) {
        let (one, two) = two();
        let listener = UnixListener::bind_addr(&name(&two)).unwrap();
        let (mut a, mut b) = (sharing(key(1), one), connector_with(key(1), two.clone()));
        a.set_targets(&[neighbour(2, b.local_addr())]);
        std::thread::scope(|s| {
            s.spawn(|| answer_wrongly(&listener, &two, message, &fds));
            let ((a_end, _), (b_end, _), told) = meet(&mut a, &mut b);
            plain(a_end);
            plain(b_end);
            assert!(told.len() == 1 && told[0].contains(reason), "{told:?}");
        });
    }
}

#[test]
fn clients_of_the_unix_socket_take_their_places_only() {
    let (_, two) = two();
    let door_name = name(&two);
    let mut door = sharing(key(1), two);
    let (mut clients, mut out) = (vec![], vec![]);
    for i in 1..=100 {
        clients.push(UnixStream::connect_addr(&door_name).unwrap());
        let start = Instant::now();
        while door.counters().accepted < i {
            assert!(start.elapsed() < PATIENCE);
            door.turn(Duration::from_millis(1), &[], &mut admit, &mut out);
        }
    }
    let counters = door.counters();
    assert_eq!(counters.over_cap + counters.expired, 100 - 64, "64 from one address at a time");
}

/// Runs as another user, started by the test below.
#[test]
#[ignore = "started by `another_user_is_hung_up_on_before_it_says_a_word` as another user"]
fn child_of_another_user() {
    use std::io::Read as _;
    let Ok(name) = std::env::var("UNIX_SOCKET_NAME") else { return };
    let mut stream = UnixStream::connect_addr(&UnixAddr::from_abstract_name(name).unwrap()).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn another_user_is_hung_up_on_before_it_says_a_word() {
    use std::os::unix::process::CommandExt as _;
    if !rustix::process::geteuid().is_root() {
        eprintln!("needs root, to start a process of another user");
        return;
    }
    let (_, two) = two();
    let door_name = String::from_utf8(name(&two).as_abstract_name().unwrap().to_vec()).unwrap();
    let mut door = sharing(key(1), two);
    // Through a descriptor: the other user may not be allowed to look where the binary lies.
    let binary = std::fs::File::open("/proc/self/exe").unwrap();
    let mut child = std::process::Command::new("/proc/self/fd/0")
        .stdin(binary)
        .args(["--exact", "child_of_another_user", "--include-ignored", "--nocapture"])
        .env("UNIX_SOCKET_NAME", door_name)
        .uid(65534)
        .spawn()
        .unwrap();
    let (mut out, start) = (vec![], Instant::now());
    let status = loop {
        door.turn(Duration::from_millis(5), &[], &mut admit, &mut out);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(start.elapsed() < PATIENCE);
    };
    assert!(status.success());
    assert_eq!((door.counters().accepted, door.counters().other_user, door.counters().gone), (1, 1, 0));
}
