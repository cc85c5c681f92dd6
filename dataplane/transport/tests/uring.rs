//! The io_uring carrier over real loopback TCP: everything arrives once, in order, and every end is known.

mod common;
use common::*;
use saetta_transport::*;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// One carrier with one link, on the test's own thread.
struct Side {
    carrier: UringCarrier,
    link: LinkId,
    seen: Record,
}

impl Side {
    fn new((socket, peer): (std::os::fd::OwnedFd, Peer)) -> Self {
        let mut carrier = UringCarrier::new().unwrap();
        let link = carrier.add(socket, peer, now_ns()).unwrap();
        Side { carrier, link, seen: Record::default() }
    }

    fn turn(&mut self) {
        self.carrier.poll(now_ns(), &mut self.seen);
        self.carrier.flush(now_ns());
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
    fn ended(&mut self, _: LinkId, end: LinkEnd) {
        self.ends.push(end);
    }
}

#[test]
fn a_million_frames_each_way_arrive_once_and_in_order_and_goodbye_ends_it() {
    const FRAMES: u64 = 1_000_000;
    let (a, b) = linked();
    let threads = [(1u8, a), (2u8, b)].map(|(me, (socket, peer))| {
        std::thread::spawn(move || {
            let mut carrier = UringCarrier::new().unwrap();
            let sleeper = saetta_ring::Sleeper::new().unwrap();
            let link = carrier.add(socket, peer, now_ns()).unwrap();
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
                    staged = !carrier.stage(link, &buffer);
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
                done += carrier.flush(now_ns());
                if done == 0 {
                    carrier.wait(sleeper.as_fd(), Duration::from_millis(100));
                }
            }
            let end = LinkEnd { how: Ending::Goodbye, unsent_bytes: 0, unconfirmed_bytes: 0 };
            assert_eq!(seen.ends, [end]);
            assert_eq!(seen.next, FRAMES);
            assert!(seen.credits > 0);
            let counters = *carrier.counters();
            assert_eq!((counters.large_in, counters.large_out), (4, 4));
            assert_eq!((counters.links_goodbye, counters.links_lost), (1, 0));
            assert!(counters.enters < FRAMES / 16, "frames share system calls: {counters:?}");
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
    assert!(a.carrier.stage(a.link, &buffer));
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
    let enters = a.carrier.counters().enters;
    for _ in 0..1000 {
        assert_eq!(a.carrier.poll(now, &mut a.seen), 0);
        assert_eq!(a.carrier.flush(now), 0);
    }
    assert_eq!(a.carrier.counters().enters, enters);
}

#[test]
fn a_dropped_peer_is_known_at_once_with_what_it_may_have_missed() {
    let (mut a, b) = pair();
    let mut buffer = Vec::new();
    frame(&mut buffer, 1, 0, 100);
    drop(b);
    let start = Instant::now();
    assert!(a.carrier.stage(a.link, &buffer), "the end is not known yet");
    a.carrier.flush(now_ns());
    until(&mut [&mut a], |s| !s[0].seen.ends.is_empty());
    assert!(start.elapsed() < Duration::from_secs(1), "at once, not by the silence of 4 s");
    let (link, end) = &a.seen.ends[0];
    assert_eq!(*link, a.link);
    assert!(matches!(&end.how, Ending::Lost { .. }), "{end:?}");
    assert_eq!((end.unsent_bytes, end.unconfirmed_bytes), (0, buffer.len() as u64));
    assert!(!a.carrier.stage(a.link, &buffer) && a.carrier.room(a.link) == 0 && a.carrier.peer(a.link).is_none());
    // Its place is used again under another id.
    until(&mut [&mut a], |s| s[0].carrier.idle());
    let ((socket, peer), _other) = linked();
    let next = a.carrier.add(socket, peer, now_ns()).unwrap();
    assert_eq!(next.place(), a.link.place());
    assert_ne!(next, a.link);
    assert!(!a.carrier.stage(a.link, &buffer), "the old id names nothing");
}
