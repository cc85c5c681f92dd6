//! What time alone does to a link: proofs of life, silence, reports, and how long a loop may wait.

use crate::common::{PATIENCE, Record, now_ns, took};
use crate::harness::*;
use saetta_transport::*;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

on_all! {
    an_idle_pair_lives_for_ever_on_one_proof_a_second,
    a_peer_that_does_nothing_is_lost_after_four_seconds,
    a_side_that_was_stopped_blames_nobody,
    received_bytes_are_reported_within_fifty_milliseconds,
    half_a_ring_is_reported_at_once,
    a_wait_ends_by_its_event,
    a_wait_ends_by_its_time,
    a_wait_ends_by_a_links_own_deadline,
    a_wait_with_something_staged_sends_it_first,
}

on! { [uring Uring, epoll Epoll, memory Memory] a_wait_ends_by_what_the_peer_sends }

fn an_idle_pair_lives_for_ever_on_one_proof_a_second(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.pass(600 * SECOND);
    assert!(!w.has_ended(a) && !w.has_ended(b));
    for side in [0, 1] {
        let counters = w.counters(side);
        assert!((590..=600).contains(&counters.segments_out), "{counters:?}");
        assert_eq!(counters.frame_bytes_out, 0);
    }
    w.send(a, 10, 10);
    w.settle(a, b);
}

fn a_peer_that_does_nothing_is_lost_after_four_seconds(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.send(a, 5, 100);
    w.settle(a, b);
    for _ in 0..3 {
        assert!(w.offer(a, 100));
    }
    let start_ns = w.now_ns;
    let sent = w.counters(0).segments_out;
    while !w.has_ended(a) {
        assert!(w.now_ns - start_ns < 5 * SECOND);
        w.pass_only(&[0], 10 * MS);
    }
    let silent_ns = w.now_ns - start_ns;
    // It was last heard within the 100 ms that `settle` let pass.
    assert!((3 * SECOND + 800 * MS..4 * SECOND + 100 * MS).contains(&silent_ns), "{silent_ns}");
    assert_eq!(w.told(a).how(), How::Silent);
    assert_eq!(w.told(a).lost, w.sent(a)[5..]);
    assert!((4..=5).contains(&(w.counters(0).segments_out - sent)), "the frames, and proofs of its own life meanwhile");
    w.until("the peer sees it when it goes on", |w| w.has_ended(b));
    assert_eq!(w.told(b).how(), How::Gone);
    assert_eq!(w.told(b).frames, w.sent(a), "what it had been sent before is there all the same");
    w.account(a, b);
}

fn a_side_that_was_stopped_blames_nobody(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.send(a, 5, 100);
    w.settle(a, b);
    w.now_ns += 60 * SECOND;
    w.turn();
    assert!(!w.has_ended(a) && !w.has_ended(b), "a minute in which neither listened");
    w.send(a, 5, 100);
    w.send(b, 5, 100);
    w.settle(a, b);
}

fn received_bytes_are_reported_within_fifty_milliseconds(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.send(a, 1, 100);
    w.arrive(a, b);
    w.turn();
    assert!(!w.of(a).drained(a.link), "no segment of its own for a hundred bytes");
    w.pass(40 * MS);
    assert!(!w.of(a).drained(a.link));
    w.pass(20 * MS);
    w.until("the count is there", |w| w.of(a).drained(a.link));
    assert_eq!((w.counters(1).segments_out, w.counters(0).segments_in), (1, 1));
}

fn half_a_ring_is_reported_at_once(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    // More than the window, with the clock standing: without reports it would stop for ever.
    w.send(a, 1000, 1000);
    w.arrive(a, b);
    let reports = w.counters(1).segments_out;
    assert!(reports >= 1_000_000 / (2 * RING as u64) && reports <= 2 * 1_000_000 / SEGMENT_ROOM as u64, "{reports}");
}

fn a_wait_ends_by_its_event(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.settle(a, b);
    let sleeper = saetta_ring::Sleeper::new().unwrap();
    let start = Instant::now();
    std::thread::scope(|s| {
        s.spawn(|| sleeper.wake());
        w.carrier(0).wait(sleeper.as_fd(), Duration::from_secs(50));
    });
    w.turn();
    sleeper.awake();
    // Once more, before it is waited for.
    sleeper.wake();
    w.carrier(0).wait(sleeper.as_fd(), Duration::from_secs(50));
    assert!(start.elapsed() < Duration::from_millis(900), "woken: a link's own deadline is a second");
}

fn a_wait_ends_by_its_time(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.settle(a, b);
    let sleeper = saetta_ring::Sleeper::new().unwrap();
    let start = Instant::now();
    // What completes meanwhile may end a wait early.
    while start.elapsed() < Duration::from_millis(50) {
        let before = Instant::now();
        w.carrier(0).wait(sleeper.as_fd(), Duration::from_millis(5));
        w.poll(0);
        assert!(before.elapsed() < Duration::from_secs(1));
    }
    let calls = w.counters(0).calls;
    let start = Instant::now();
    w.carrier(0).wait(sleeper.as_fd(), Duration::from_millis(5));
    assert!(start.elapsed() >= Duration::from_millis(5));
    assert!(w.counters(0).calls - calls <= 2, "one call, with the submission of what was due");
}

fn a_wait_ends_by_a_links_own_deadline(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.send(a, 1, 10);
    w.arrive(a, b);
    let sleeper = saetta_ring::Sleeper::new().unwrap();
    // The count of b is due 50 ms after it came, by the clock that b was given; its own proof of life a second later.
    let start = Instant::now();
    while w.counters(1).segments_out < 2 {
        assert!(start.elapsed() < PATIENCE);
        let before = Instant::now();
        w.carrier(1).wait(sleeper.as_fd(), Duration::from_secs(50));
        w.now_ns += before.elapsed().as_nanos() as u64;
        w.turn_only(&[1]);
    }
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(1000) && took < Duration::from_secs(20), "{took:?}");
}

fn a_wait_with_something_staged_sends_it_first(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.settle(a, b);
    let sleeper = saetta_ring::Sleeper::new().unwrap();
    assert!(w.offer(a, 10));
    w.carrier(0).wait(sleeper.as_fd(), Duration::from_millis(1));
    w.until_only(&[1], "it is there", |w| w.told(b).frames.len() == 1);
}

/// Two loops that do nothing but wait for each other: if one waited in vain, each round would take the second after which it looks by itself.
fn a_wait_ends_by_what_the_peer_sends(kind: Kind) {
    const ROUNDS: usize = 50;
    let (connections, sleepers) = World::apart(kind, [RING; 2]);
    let start = Instant::now();
    let threads: Vec<_> = (connections.into_iter().zip(sleepers).zip([true, false]))
        .map(|((connection, sleeper), mut turn)| {
            std::thread::spawn(move || {
                let mut carrier = kind.carrier();
                let link = carrier.add(connection, peer(RING, RING), now_ns()).unwrap();
                let mut seen = Record::default();
                let frame = &some_frames(1, 100)[0];
                let mut sent = 0;
                while seen.frames.len() < ROUNDS || sent < ROUNDS {
                    assert!(start.elapsed() < PATIENCE, "{} rounds", seen.frames.len());
                    if turn {
                        assert!(took(&mut carrier, link, frame));
                        (turn, sent) = (false, sent + 1);
                    }
                    let before = seen.frames.len();
                    if carrier.poll(now_ns(), &mut seen) + carrier.flush(now_ns(), false) == 0 {
                        carrier.wait(sleeper.as_fd(), Duration::from_secs(50));
                        sleeper.awake();
                    }
                    turn |= seen.frames.len() > before;
                }
                carrier.flush(now_ns(), false);
                // The answer to the last frame is on its way: the other one hears it before it hears the end.
                while seen.ends.is_empty() {
                    assert!(start.elapsed() < PATIENCE);
                    carrier.say_goodbye(link);
                    carrier.flush(now_ns(), false);
                    carrier.wait(sleeper.as_fd(), Duration::from_millis(20));
                    carrier.poll(now_ns(), &mut seen);
                    sleeper.awake();
                }
                assert_eq!(seen.ends[0].1.how, Ending::Goodbye);
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert!(start.elapsed() < Duration::from_secs(ROUNDS as u64 / 2), "{:?}", start.elapsed());
}
