//! The io_uring carrier over real loopback TCP: everything arrives once, in order, and every end is known.

mod common;
use common::*;
use saetta_transport::*;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// One carrier with one link, on the test's own thread.
struct Side {
    carrier: Carrier,
    link: LinkId,
    seen: Record,
}

impl Side {
    fn new((connection, peer): (Connection, Peer)) -> Self {
        let mut carrier = Carrier::open(Choice::Uring).unwrap();
        let link = carrier.add(connection, peer, now_ns()).unwrap();
        Side { carrier, link, seen: Record::default() }
    }

    fn turn(&mut self) {
        self.carrier.poll(now_ns(), &mut self.seen);
        self.carrier.flush(now_ns(), false);
    }
}

fn pair() -> (Side, Side) {
    let (a, b) = linked();
    (Side::new(a), Side::new(b))
}

fn until(sides: &mut [&mut Side], mut done: impl FnMut(&[&mut Side]) -> bool) {
    let start = Instant::now();
    while !done(sides) {
        assert!(start.elapsed() < PATIENCE, "nothing more happens");
        sides.iter_mut().for_each(|s| s.turn());
    }
}

/// What one thread of the long test saw.
struct Checker {
    side: u8,
    next: u64,
    buffer: Vec<u8>,
    ends: Vec<LinkEnd>,
    credits: u64,
}

fn payload_bytes(n: u64) -> usize {
    if n % 250_000 == 249_999 { 3 << 20 } else { (n % 97) as usize }
}

impl Inbound for Checker {
    fn frames(&mut self, _: LinkId, frames: &[u8]) {
        each(frames, |f| {
            frame(&mut self.buffer, self.side, self.next, payload_bytes(self.next));
            assert!(f == self.buffer, "frame {} is another or changed", self.next);
            self.next += 1;
        });
    }
    fn credit(&mut self, _: LinkId, executor: u32, limit: u64) {
        assert_eq!(executor, 5);
        assert!(limit > self.credits, "credits of an executor only rise");
        self.credits = limit;
    }
    fn lost(&mut self, _: LinkId, _: &[u8]) {}
    fn ended(&mut self, _: LinkId, end: LinkEnd) {
        self.ends.push(end);
    }
}

#[test]
fn a_million_frames_each_way_arrive_once_and_in_order_and_goodbye_ends_it() {
    const FRAMES: u64 = 1_000_000;
    let (a, b) = linked();
    let threads = [(1u8, a), (2u8, b)].map(|(me, (connection, peer))| {
        std::thread::spawn(move || {
            let mut carrier = Carrier::open(Choice::Uring).unwrap();
            let sleeper = saetta_ring::Sleeper::new().unwrap();
            let link = carrier.add(connection, peer, now_ns()).unwrap();
            let mut seen = Checker { side: 3 - me, next: 0, buffer: Vec::new(), ends: Vec::new(), credits: 0 };
            let (mut sent, mut staged, mut buffer) = (0, false, Vec::new());
            let (mut granted, mut bye) = (0, false);
            let start = Instant::now();
            while seen.ends.is_empty() {
                assert!(start.elapsed() < 3 * PATIENCE, "side {me}: sent {sent}, seen {}, {:?}", seen.next, carrier.counters());
                let mut done = carrier.poll(now_ns(), &mut seen);
                while sent < FRAMES {
                    if !staged {
                        frame(&mut buffer, me, sent, payload_bytes(sent));
                    }
                    staged = !took(&mut carrier, link, &buffer);
                    if staged {
                        break;
                    }
                    sent += 1;
                    done += 1;
                }
                if seen.next > granted {
                    granted = seen.next;
                    carrier.grant(link, 5, granted);
                }
                if sent == FRAMES && seen.next == FRAMES && carrier.drained(link) && !bye {
                    bye = true;
                    carrier.say_goodbye(link);
                }
                done += carrier.flush(now_ns(), false);
                if done == 0 {
                    carrier.wait(sleeper.as_fd(), Duration::from_millis(100));
                }
            }
            let end = LinkEnd { how: Ending::Goodbye, unsent_bytes: 0, unconfirmed_bytes: 0 };
            assert_eq!(seen.ends, [end]);
            assert_eq!(seen.next, FRAMES);
            assert!(seen.credits > 0);
            let counters = carrier.counters();
            assert_eq!((counters.large_in, counters.large_out), (4, 4));
            assert_eq!((counters.links_goodbye, counters.links_lost), (1, 0));
            assert!(counters.calls < FRAMES / 16, "frames share system calls: {counters:?}");
            counters
        })
    });
    for t in threads {
        println!("{:?}", t.join().unwrap());
    }
}

#[test]
fn small_things_cross_and_an_idle_carrier_makes_no_system_call() {
    let (mut a, mut b) = pair();
    let mut buffer = Vec::new();
    frame(&mut buffer, 1, 0, 5);
    assert!(took(&mut a.carrier, a.link, &buffer));
    a.carrier.grant(a.link, 9, 100);
    a.carrier.grant(a.link, 9, 200);
    a.carrier.grant(a.link, 3, 50);
    until(&mut [&mut a, &mut b], |s| s[1].seen.frames.len() == 1 && s[0].carrier.drained(s[0].link));
    assert_eq!(b.seen.frames, [buffer]);
    assert_eq!(b.seen.credits, [(3, 50), (9, 200)], "the newest limit of each executor, once");
    // The receive that is armed after the last completion still has to be submitted.
    until(&mut [&mut a, &mut b], |s| s.iter().all(|s| s.carrier.idle()));
    let now = now_ns();
    a.carrier.poll(now, &mut a.seen);
    let enters = a.carrier.counters().calls;
    for _ in 0..1000 {
        assert_eq!(a.carrier.poll(now, &mut a.seen), 0);
        assert_eq!(a.carrier.flush(now, false), 0);
    }
    assert_eq!(a.carrier.counters().calls, enters);
}

#[test]
fn a_dropped_peer_is_known_at_once_with_what_it_may_have_missed() {
    let (mut a, b) = pair();
    let mut buffer = Vec::new();
    frame(&mut buffer, 1, 0, 100);
    drop(b);
    let start = Instant::now();
    assert!(took(&mut a.carrier, a.link, &buffer), "the end is not known yet");
    a.carrier.flush(now_ns(), false);
    until(&mut [&mut a], |s| !s[0].seen.ends.is_empty());
    assert!(start.elapsed() < Duration::from_secs(1), "at once, not by the silence of 4 s");
    let (link, end) = &a.seen.ends[0];
    assert_eq!(*link, a.link);
    assert!(matches!(&end.how, Ending::Lost { .. }), "{end:?}");
    assert_eq!((end.unsent_bytes, end.unconfirmed_bytes), (0, buffer.len() as u64));
    assert!(!took(&mut a.carrier, a.link, &buffer) && a.carrier.room(a.link) == 0 && a.carrier.peer(a.link).is_none());
    // Its place is used again under another id.
    until(&mut [&mut a], |s| s[0].carrier.idle());
    let ((connection, peer), _other) = linked();
    let next = a.carrier.add(connection, peer, now_ns()).unwrap();
    assert_eq!(next.place(), a.link.place());
    assert_ne!(next, a.link);
    assert!(!took(&mut a.carrier, a.link, &buffer), "the old id names nothing");
}

/// A carrier on one end of a socket and the test by hand on the other: what the carrier's link says and hears is bytes.
fn by_hand() -> (Side, std::os::unix::net::UnixStream) {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let peer = Peer {
        placement: 2,
        start: 1,
        index: 2,
        local_loop: 0,
        remote_loop: 0,
        local_ring_bytes: 16 << 10,
        remote_ring_bytes: 16 << 10,
        road: Road::Data,
    };
    (Side::new((Connection::Socket(ours.into()), peer)), theirs)
}

/// The bytes a link sends for these frames.
fn segments(frames: &[Vec<u8>], goodbye: bool) -> Vec<Vec<u8>> {
    let mut link = link::Link::new(16 << 10, 16 << 10, link::Medium::Wire, 0);
    let mut pool = PiecePool::new(FRAME_BYTES_MAX);
    let mut out = vec![];
    let mut frames = frames.iter().peekable();
    loop {
        while frames.next_if(|f| link.stage(f, &mut pool) == f.len()).is_some() {}
        if frames.peek().is_none() && goodbye {
            link.say_goodbye();
        }
        if !link.form(0, &mut pool) {
            return out;
        }
        out.push(link.flight().to_vec());
        link.written(link.flight().len());
    }
}

fn some_frames(n: u64, payload_bytes: usize) -> Vec<Vec<u8>> {
    (0..n)
        .map(|i| {
            let mut f = vec![];
            frame(&mut f, 1, i, payload_bytes);
            f
        })
        .collect()
}

fn lost(side: &Side) -> String {
    match &side.seen.ends[..] {
        [(_, LinkEnd { how: Ending::Lost { reason }, .. })] => reason.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn bytes_that_come_one_by_one_are_the_same_frames() {
    use std::io::Write;
    let (mut side, mut hand) = by_hand();
    let frames = [some_frames(3, 20), some_frames(1, 9000)].concat();
    for byte in segments(&frames, false).concat() {
        hand.write_all(&[byte]).unwrap();
        side.turn();
    }
    until(&mut [&mut side], |s| s[0].seen.frames.len() == 4);
    assert_eq!(side.seen.frames, frames);
    assert_eq!(side.carrier.counters().large_in, 1, "9,000 bytes fit no segment of 8 KiB");
}

#[test]
fn a_stream_cut_in_the_middle_of_a_segment_delivers_no_part_of_it() {
    use std::io::Write;
    let (mut side, mut hand) = by_hand();
    let frames = some_frames(40, 300);
    let segments = segments(&frames, false);
    assert!(segments.len() >= 2);
    hand.write_all(&segments[0]).unwrap();
    hand.write_all(&segments[1][..segments[1].len() - 3]).unwrap();
    drop(hand);
    until(&mut [&mut side], |s| !s[0].seen.ends.is_empty());
    assert_eq!(lost(&side), "the peer closed the connection without a goodbye");
    assert!(!side.seen.frames.is_empty() && side.seen.frames.len() < 40);
    assert_eq!(side.seen.frames, frames[..side.seen.frames.len()]);
}

#[test]
fn wrong_bytes_end_the_link_with_their_reason_and_are_counted() {
    use std::io::Write;
    let good = segments(&some_frames(40, 300), false);
    let mut flipped = good[0].clone();
    flipped[100] ^= 1;
    let cases: [(Vec<u8>, &str, u64); 4] = [
        (flipped, "segment 0 has a wrong checksum: bytes were changed on the way", 1),
        ([&good[0][..], &good[0]].concat(), "segment 0 came again, 1 was due", 0),
        (good[1].clone(), "segment 0 is missing, 1 came", 0),
        (vec![b'x'; 64], "the peer sent bytes that are no segment", 0),
    ];
    for (bytes, reason, crc_errors) in cases {
        let (mut side, mut hand) = by_hand();
        hand.write_all(&bytes).unwrap();
        until(&mut [&mut side], |s| !s[0].seen.ends.is_empty() && s[0].carrier.idle());
        assert_eq!(lost(&side), reason);
        let counters = side.carrier.counters();
        assert_eq!((counters.crc_errors, counters.protocol_errors, counters.links_lost), (crc_errors, 1 - crc_errors, 1));
        // The socket is closed once the kernel holds nothing of the link.
        let mut left = vec![];
        std::io::Read::read_to_end(&mut hand, &mut left).unwrap();
    }
}

#[test]
fn a_peer_that_says_goodbye_gets_an_answer() {
    use std::io::Write;
    let (mut side, mut hand) = by_hand();
    let frames = some_frames(2, 10);
    hand.write_all(&segments(&frames, true).concat()).unwrap();
    until(&mut [&mut side], |s| !s[0].seen.ends.is_empty() && s[0].carrier.idle());
    assert_eq!(side.seen.frames, frames);
    let end = LinkEnd { how: Ending::Goodbye, unsent_bytes: 0, unconfirmed_bytes: 0 };
    assert_eq!(side.seen.ends, [(side.link, end)]);
    let mut answer = vec![];
    std::io::Read::read_to_end(&mut hand, &mut answer).unwrap();
    let header = wire::Header::read(answer.first_chunk().unwrap()).unwrap();
    assert_eq!((header.kind, header.received), (wire::Kind::Goodbye, 2 * 32));
}

#[test]
fn a_peer_that_reads_nothing_stops_its_sender_and_nobody_else() {
    let (mut stalled, _hand) = by_hand();
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let peer = *stalled.carrier.peer(stalled.link).unwrap();
    let healthy = stalled.carrier.add(Connection::Socket(ours.into()), peer, now_ns()).unwrap();
    let mut other = Side::new((Connection::Socket(theirs.into()), peer));
    let f = &some_frames(1, 1000)[0];
    // Until the socket's buffer, the segment in flight and the one being filled are full.
    let mut staged = 0u64;
    let mut refusals = 0;
    while refusals < 200 {
        match took(&mut stalled.carrier, stalled.link, f) {
            true => staged += f.len() as u64,
            false => refusals += 1,
        }
        stalled.turn();
    }
    assert!(staged < 4 << 20, "bounded");
    for _ in 0..500 {
        while !took(&mut stalled.carrier, healthy, f) {
            stalled.turn();
            other.turn();
        }
    }
    until(&mut [&mut stalled, &mut other], |s| s[1].seen.frames.len() == 500);
    // Closing it takes its buffers back from the kernel in the middle of a send, and says what was where.
    stalled.carrier.close(stalled.link);
    until(&mut [&mut stalled, &mut other], |s| s[0].seen.ends.len() == 1 && s[0].carrier.links().count() == 1 && s[0].carrier.idle());
    let (_, end) = &stalled.seen.ends[0];
    assert_eq!(end.how, Ending::Lost { reason: "closed here".into() });
    assert_eq!(end.unsent_bytes + end.unconfirmed_bytes, staged);
    assert!(end.unconfirmed_bytes > 0);
}

#[test]
fn dropping_a_carrier_in_the_middle_of_everything_returns_at_once() {
    let (mut side, _hand) = by_hand();
    for _ in 0..1000 {
        took(&mut side.carrier, side.link, &some_frames(1, 1000)[0]);
        side.turn();
    }
    let start = Instant::now();
    drop(side);
    assert!(start.elapsed() < Duration::from_secs(1), "the kernel lets go of what is cancelled");
}

#[test]
fn a_silent_peer_is_lost_after_four_seconds_of_the_given_clock_and_a_stuck_loop_blames_nobody() {
    let (mut side, mut hand) = by_hand();
    let mut now = now_ns();
    let start = now;
    let mut pings = vec![];
    while side.seen.ends.is_empty() {
        now += 100_000_000;
        side.carrier.poll(now, &mut side.seen);
        side.carrier.flush(now, false);
        let _ = std::io::Read::read_to_end(&mut hand, &mut pings);
    }
    assert_eq!(lost(&side), format!("the peer was silent for {} ms", (now - start) / 1_000_000));
    assert!((4_000_000_000..4_300_000_000).contains(&(now - start)));
    assert_eq!(pings.len(), 3 * wire::HEADER_BYTES, "this side proved its life after one, two and three seconds");

    let (mut side, _hand) = by_hand();
    side.carrier.poll(now + 60_000_000_000, &mut side.seen);
    side.carrier.poll(now + 61_000_000_000, &mut side.seen);
    assert!(side.seen.ends.is_empty(), "a minute in which this side did not listen");
}

#[test]
fn one_wait_ends_by_the_event_by_bytes_by_its_time_and_by_a_links_own_deadline() {
    use std::io::Write;
    let (mut side, mut hand) = by_hand();
    let sleeper = saetta_ring::Sleeper::new().unwrap();
    let long = Duration::from_secs(50);
    let start = Instant::now();
    std::thread::scope(|s| {
        s.spawn(|| sleeper.wake());
        side.carrier.wait(sleeper.as_fd(), long);
    });
    side.carrier.poll(now_ns(), &mut side.seen);
    sleeper.awake();
    std::thread::scope(|s| {
        s.spawn(|| hand.write_all(&segments(&some_frames(1, 1), false).concat()).unwrap());
        while side.seen.frames.is_empty() {
            side.carrier.wait(sleeper.as_fd(), long);
            side.carrier.poll(now_ns(), &mut side.seen);
        }
    });
    assert!(start.elapsed() < Duration::from_secs(40), "woken twice, not timed out");
    let start = Instant::now();
    side.carrier.wait(sleeper.as_fd(), Duration::from_millis(5));
    assert!(start.elapsed() >= Duration::from_millis(5));
    // Nothing else happens: the received count is due, then the keep-alive.
    let mut heard = vec![];
    let start = Instant::now();
    while heard.len() < 2 * wire::HEADER_BYTES {
        assert!(start.elapsed() < PATIENCE);
        side.carrier.wait(sleeper.as_fd(), long);
        side.turn();
        let _ = std::io::Read::read_to_end(&mut hand, &mut heard);
    }
    assert!(start.elapsed() < Duration::from_secs(40));
}

#[test]
fn as_many_connections_as_there_may_be_work_at_once_and_one_more_is_refused() {
    let mut sides = [Carrier::open(Choice::Uring).unwrap(), Carrier::open(Choice::Uring).unwrap()];
    let mut seen = [Record::default(), Record::default()];
    let small = 16 << 10;
    let peer = Peer {
        placement: 2,
        start: 1,
        index: 2,
        local_loop: 0,
        remote_loop: 0,
        local_ring_bytes: small,
        remote_ring_bytes: small,
        road: Road::Data,
    };
    let mut links = vec![];
    let add = |sides: &mut [Carrier; 2]| {
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        Ok::<_, std::io::Error>([
            sides[0].add(Connection::Socket(a.into()), peer, now_ns())?,
            sides[1].add(Connection::Socket(b.into()), peer, now_ns())?,
        ])
    };
    for _ in 0..SLOTS_MAX {
        links.push(add(&mut sides).unwrap());
    }
    assert_eq!(add(&mut sides).unwrap_err().to_string(), "this core loop holds its 512 connections already");
    let frames = some_frames(SLOTS_MAX as u64, 50);
    let start = Instant::now();
    for round in 1..=3 {
        for (pair, f) in links.iter().zip(&frames) {
            assert!(took(&mut sides[0], pair[0], f) && took(&mut sides[1], pair[1], f));
        }
        while seen.iter().any(|s| s.frames.len() < round * SLOTS_MAX) {
            assert!(start.elapsed() < PATIENCE);
            for (side, seen) in sides.iter_mut().zip(&mut seen) {
                side.poll(now_ns(), seen);
                side.flush(now_ns(), false);
            }
        }
    }
    assert!(seen.iter().all(|s| s.ends.is_empty()));
    for pair in &links {
        sides[0].say_goodbye(pair[0]);
    }
    while seen.iter().any(|s| s.ends.len() < SLOTS_MAX) {
        assert!(start.elapsed() < PATIENCE);
        for (side, seen) in sides.iter_mut().zip(&mut seen) {
            side.poll(now_ns(), seen);
            side.flush(now_ns(), false);
        }
    }
    assert!(seen.iter().all(|s| s.ends.iter().all(|(_, e)| e.how == Ending::Goodbye)));
    assert!(sides.iter().all(|s| s.counters().links_goodbye == SLOTS_MAX as u64));
}

#[test]
fn ring_sizes_the_handshake_never_gives_are_refused() {
    let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut carrier = Carrier::open(Choice::Uring).unwrap();
    let peer = Peer {
        placement: 2,
        start: 1,
        index: 2,
        local_loop: 0,
        remote_loop: 0,
        local_ring_bytes: 1 << 18,
        remote_ring_bytes: 77,
        road: Road::Data,
    };
    assert!(carrier.add(Connection::Socket(a.into()), peer, 0).is_err());
}

#[test]
fn a_reset_in_the_middle_of_a_segment_is_known_at_once() {
    use std::io::Write;
    let (a, (hand, _)) = linked();
    let mut side = Side::new(a);
    let mut hand = match hand {
        Connection::Socket(hand) => std::net::TcpStream::from(hand),
        other => panic!("{other:?}"),
    };
    let segments = segments(&some_frames(40, 300), false);
    hand.write_all(&segments[0]).unwrap();
    until(&mut [&mut side], |s| !s[0].seen.frames.is_empty());
    let whole = side.seen.frames.len();
    hand.write_all(&segments[1][..50]).unwrap();
    rustix::net::sockopt::set_socket_linger(&hand, Some(Duration::ZERO)).unwrap();
    drop(hand);
    let start = Instant::now();
    until(&mut [&mut side], |s| !s[0].seen.ends.is_empty());
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(lost(&side), "receive: Connection reset by peer (os error 104)");
    assert_eq!(side.seen.frames.len(), whole);
}

#[test]
fn goodbyes_of_both_sides_with_credit_behind_them_end_in_order_over_and_over() {
    let mut sides = [Carrier::open(Choice::Uring).unwrap(), Carrier::open(Choice::Uring).unwrap()];
    let mut seen = [Record::default(), Record::default()];
    let start = Instant::now();
    for round in 1..=200usize {
        let (a, b) = tcp();
        let links = [sides[0].add(a.into(), small_peer(), now_ns()).unwrap(), sides[1].add(b.into(), small_peer(), now_ns()).unwrap()];
        let f = &some_frames(1, round)[0];
        for (side, link) in sides.iter_mut().zip(links) {
            assert!(took(side, link, f));
            side.say_goodbye(link);
        }
        while seen.iter().any(|s| s.ends.len() < round) {
            assert!(start.elapsed() < PATIENCE);
            for ((side, seen), link) in sides.iter_mut().zip(&mut seen).zip(links) {
                side.grant(link, 1, round as u64);
                side.flush(now_ns(), false);
                side.poll(now_ns(), seen);
            }
        }
        for s in &seen {
            let end = LinkEnd { how: Ending::Goodbye, unsent_bytes: 0, unconfirmed_bytes: 0 };
            assert_eq!(s.ends.last().unwrap().1, end, "round {round}");
            assert_eq!(s.frames.len(), round);
        }
    }
}

fn small_peer() -> Peer {
    let small = 16 << 10;
    Peer {
        placement: 2,
        start: 1,
        index: 2,
        local_loop: 0,
        remote_loop: 0,
        local_ring_bytes: small,
        remote_ring_bytes: small,
        road: Road::Data,
    }
}

fn tcp() -> (std::os::fd::OwnedFd, std::os::fd::OwnedFd) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let a = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (a.into(), listener.accept().unwrap().0.into())
}

/// Links that end in every way at any moment: what arrives is a prefix of what was staged, and the numbers at the end bound it.
#[test]
fn whatever_ends_a_link_nothing_comes_twice_and_the_loss_is_bounded_by_what_is_told() {
    let mut sides = [Carrier::open(Choice::Uring).unwrap(), Carrier::open(Choice::Uring).unwrap()];
    let mut state = 42u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    for round in 0..300 {
        let (a, b) = tcp();
        let links = [sides[0].add(a.into(), small_peer(), now_ns()).unwrap(), sides[1].add(b.into(), small_peer(), now_ns()).unwrap()];
        let mut seen = [Record::default(), Record::default()];
        let mut staged: [Vec<Vec<u8>>; 2] = Default::default();
        let turns = random(60);
        for turn in 0..turns {
            for i in 0..2 {
                for _ in 0..random(20) {
                    let mut f = vec![];
                    let payload_bytes = if random(30) == 0 { 20_000 } else { random(200) as usize };
                    frame(&mut f, i as u8, staged[i].len() as u64, payload_bytes);
                    if !took(&mut sides[i], links[i], &f) {
                        break;
                    }
                    staged[i].push(f);
                }
                if random(3) > 0 {
                    sides[i].poll(now_ns(), &mut seen[i]);
                }
                if random(3) > 0 {
                    sides[i].flush(now_ns(), false);
                }
            }
            if turn == 30 && random(2) == 0 {
                let i = random(2) as usize;
                sides[i].say_goodbye(links[i]);
            }
        }
        sides[round % 2].close(links[round % 2]);
        let start = Instant::now();
        while seen.iter().any(|s| s.ends.is_empty()) {
            assert!(start.elapsed() < PATIENCE, "round {round}");
            for (side, seen) in sides.iter_mut().zip(&mut seen) {
                side.poll(now_ns(), seen);
                side.flush(now_ns(), false);
            }
        }
        for (from, to) in [(0, 1), (1, 0)] {
            let arrived = &seen[to].frames;
            assert!(arrived.len() <= staged[from].len() && *arrived == staged[from][..arrived.len()], "round {round}: a prefix");
            let bytes = |frames: &[Vec<u8>]| frames.iter().map(Vec::len).sum::<usize>() as u64;
            let (all, there) = (bytes(&staged[from]), bytes(arrived));
            let [(_, end)] = &seen[from].ends[..] else { panic!("one end") };
            assert!(there <= all - end.unsent_bytes, "round {round}: what was not sent did not arrive");
            // A frame in pieces is counted piece by piece, and handed over when whole.
            let rest = staged[from].get(arrived.len()).map_or(0, |f| f.len() as u64);
            assert!(all - end.unsent_bytes - end.unconfirmed_bytes < there + rest.max(1), "round {round}: what is counted arrived");
        }
    }
    let counters = sides.map(|s| s.counters());
    println!("{counters:?}");
    assert!(counters.iter().all(|c| c.crc_errors + c.protocol_errors == 0 && c.links_goodbye + c.links_lost == 300));
}
