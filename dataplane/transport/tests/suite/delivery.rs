//! What two joined carriers are for: every frame once, in order, in place; credit; counts on which both agree.

use crate::common::{PATIENCE, each, frame, now_ns, took};
use crate::harness::*;
use saetta_transport::*;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

on_all! {
    frames_arrive_once_in_order_and_both_ways,
    frames_of_every_size_arrive,
    frames_that_come_with_their_memory_are_as_any_others,
    a_frame_beyond_a_segment_arrives_whole,
    the_largest_frame_arrives_and_small_ones_behind_it,
    nothing_that_fits_a_segment_is_copied,
    frames_staged_in_one_turn_share_a_segment,
    small_segments_wait_for_more_but_not_long,
    a_run_is_taken_as_far_as_whole_frames_fit,
    credit_goes_without_frames_and_the_newest_limit_wins,
    credit_goes_behind_frames,
    a_thousand_executors_get_their_credit,
    both_sides_count_the_same,
    rings_of_different_sizes_agree,
    sixteen_links_keep_their_frames_apart,
    an_idle_pair_says_nothing,
    a_frame_and_its_answer_a_thousand_times,
    two_threads_stream_both_ways_and_say_goodbye,
}

fn frames_arrive_once_in_order_and_both_ways(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    for i in 0..2000 {
        w.send(a, 1, i % 97);
        w.send(b, 1, i % 89);
    }
    w.settle(a, b);
    assert!(w.told(a).credits.is_empty() && w.told(b).end.is_none());
}

fn frames_of_every_size_arrive(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    let edge = SEGMENT_ROOM - wire::FRAME_HEADER_BYTES;
    for payload_bytes in (0..300).chain(edge - 20..edge + 20).chain([2 * edge, 3 * edge + 1, 50_000]) {
        w.send(a, 1, payload_bytes);
    }
    w.settle(a, b);
    // Those of 8,144 bytes and less are whole segments; padding to 8 counts.
    let in_pieces = w.sent(a).iter().filter(|f| f.len() > SEGMENT_ROOM).count() as u64;
    assert_eq!((w.counters(0).large_out, w.counters(1).large_in), (in_pieces, in_pieces));
}

fn frames_that_come_with_their_memory_are_as_any_others(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    for round in 0..50 {
        // 6,208 of 8,192 bytes are enough; then some that lie behind them, and some in a segment of their own.
        w.until("memory goes along", |w| w.offer_with_memory(a, 97, 48, 8192));
        w.of(a).grant(a.link, 7, round + 1);
        w.send(a, round as usize % 4, 100);
        w.send(b, 1, 10);
        if round % 3 == 0 {
            w.arrive(a, b);
        }
    }
    w.settle(a, b);
    assert_eq!(w.told(b).credits.last(), Some(&(7, 50)));
    // What is not counted when the peer goes is named frame by frame.
    w.until("memory goes along", |w| w.offer_with_memory(a, 97, 48, 8192));
    w.flush(0);
    w.until("memory goes along", |w| w.offer_with_memory(a, 97, 48, 8192));
    w.kill(1);
    w.until("the end is told", |w| w.has_ended(a));
    w.account(a, b);
}

fn a_frame_beyond_a_segment_arrives_whole(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.send(a, 1, 10);
    w.arrive(a, b);
    assert!(w.offer(a, 100_000));
    assert!(!w.offer(a, 10), "it goes alone");
    assert_eq!(w.of(a).room(a.link), 0);
    w.arrive(a, b);
    w.send(a, 1, 10);
    w.settle(a, b);
    let bytes = w.sent(a)[1].len() as u64;
    assert_eq!((w.counters(0).large_out, w.counters(1).large_in, w.counters(1).bytes_copied), (1, 1, bytes));
}

fn the_largest_frame_arrives_and_small_ones_behind_it(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    let payload_bytes = wire::FRAME_PAYLOAD_BYTES_MAX + wire::FRAME_BLOCK_BYTES_MAX;
    assert!(w.offer(a, payload_bytes));
    assert_eq!(w.sent(a)[0].len(), FRAME_BYTES_MAX);
    w.send(a, 10, 3);
    w.send(b, 10, 3);
    w.settle(a, b);
    assert_eq!(w.counters(0).frame_bytes_out, (FRAME_BYTES_MAX + 10 * 24) as u64);
}

fn nothing_that_fits_a_segment_is_copied(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    for payload_bytes in [100, 4096, SEGMENT_ROOM - wire::FRAME_HEADER_BYTES] {
        w.send(a, 50, payload_bytes);
    }
    w.settle(a, b);
    assert_eq!(w.counters(1).bytes_copied, 0);
    assert_eq!(w.counters(1).frame_bytes_in, w.sent_bytes(a));
}

fn frames_staged_in_one_turn_share_a_segment(kind: Kind) {
    let mut w = World::new(kind, 2);
    let (a, b) = w.join_with(0, 1, [RING_BYTES_DEFAULT as u32; 2]).unwrap();
    for turn in 1..=20 {
        for _ in 0..100 {
            assert!(w.offer(a, 30));
        }
        w.arrive(a, b);
        assert_eq!(w.counters(0).segments_out, turn, "a hundred frames, one segment");
    }
}

fn small_segments_wait_for_more_but_not_long(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    assert!(w.offer(a, 30));
    let start_ns = w.now_ns;
    for _ in 0..10 {
        let now_ns = w.now_ns;
        assert_eq!(w.of(a).flush(now_ns, true), 0, "the loop has more to send");
    }
    assert!(w.offer(a, 30));
    w.now_ns = start_ns + 50_000;
    let now_ns = w.now_ns;
    assert_eq!(w.of(a).flush(now_ns, true) as u64, w.sent_bytes(a), "after 40 us it goes, whatever more there is");
    assert_eq!(w.counters(0).segments_out, 1);
    w.arrive(a, b);
}

fn a_run_is_taken_as_far_as_whole_frames_fit(kind: Kind) {
    let (mut w, a, _) = World::pair(kind);
    let run = some_frames(100, 1000).concat();
    let whole = SEGMENT_ROOM / 1016 * 1016;
    assert_eq!(w.of(a).room(a.link), SEGMENT_ROOM);
    assert_eq!(w.of(a).stage(a.link, &run), whole);
    assert_eq!(w.of(a).room(a.link), SEGMENT_ROOM - whole);
    assert_eq!(w.of(a).stage(a.link, &run[whole..]), 0);
    assert_eq!(w.of(a).positions(a.link), Some((whole as u64, 0)));
}

fn credit_goes_without_frames_and_the_newest_limit_wins(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    for (executor, limit) in [(9, 100), (9, 200), (3, 50), (9, 150)] {
        w.of(a).grant(a.link, executor, limit);
    }
    w.until("both limits are there", |w| w.told(b).credits.len() >= 2);
    assert_eq!(w.told(b).credits, [(3, 50), (9, 150)]);
    w.settle(a, b);
    assert_eq!((w.told(b).credits.len(), w.counters(0).segments_out), (2, 1));
}

fn credit_goes_behind_frames(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    for i in 1..=100 {
        w.send(a, 3, 10);
        w.of(a).grant(a.link, 4, 10 * i);
        w.of(b).grant(b.link, 5, 20 * i);
        w.until("the limits are there", |w| {
            w.told(b).credits.last() == Some(&(4, 10 * i)) && w.told(a).credits.last() == Some(&(5, 20 * i))
        });
    }
    w.settle(a, b);
    assert_eq!(w.told(b).credits, (1..=100).map(|i| (4, 10 * i)).collect::<Vec<_>>());
    assert_eq!(w.counters(0).segments_out, 100, "frames and credit share a segment");
}

fn a_thousand_executors_get_their_credit(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.send(a, 1, 10);
    for executor in (0..1000).rev() {
        w.of(a).grant(a.link, executor, u64::from(executor) + 7);
    }
    w.until("all are there", |w| w.told(b).credits.len() == 1000);
    assert_eq!(w.told(b).credits, (0..1000).map(|e| (e, u64::from(e) + 7)).collect::<Vec<_>>());
    w.settle(a, b);
}

fn both_sides_count_the_same(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    for i in 0..300 {
        w.send(a, 1, i * 3);
        w.send(b, 1, 20_000 * usize::from(i % 100 == 0));
    }
    w.settle(a, b);
    for (from, to, at) in [(0, 1, a), (1, 0, b)] {
        let (from, to) = (w.counters(from), w.counters(to));
        assert_eq!((from.segments_out, from.frame_bytes_out, from.large_out), (to.segments_in, to.frame_bytes_in, to.large_in));
        assert_eq!(from.frame_bytes_out, w.sent_bytes(at));
        assert_eq!((from.links_added, from.links_lost, from.crc_errors, from.protocol_errors), (1, 0, 0, 0));
    }
    let all = w.sent_bytes(a);
    assert_eq!(w.of(a).positions(a.link), Some((all, all)));
}

fn rings_of_different_sizes_agree(kind: Kind) {
    for rings in [[16 << 10, 1 << 20], [1 << 20, 16 << 10], [64 << 10, 64 << 10], [4 << 20, 4 << 20]] {
        let mut w = World::new(kind, 2);
        let (a, b) = w.join_with(0, 1, rings).unwrap();
        assert_eq!(w.of(a).room(a.link), rings[1] as usize / 2 - wire::HEADER_BYTES, "a segment is half of the receiver's ring");
        for i in 0..200 {
            w.send(a, 1, i * 40);
            w.send(b, 1, i * 41);
        }
        w.settle(a, b);
    }
}

fn sixteen_links_keep_their_frames_apart(kind: Kind) {
    let mut w = World::new(kind, 2);
    let links: Vec<_> = (0..16).map(|_| w.join(0, 1)).collect();
    for round in 0..50 {
        for (i, &(a, b)) in links.iter().enumerate() {
            w.send(a, 1, i * 10 + round);
            w.send(b, 1, i * 11 + round);
        }
    }
    for &(a, b) in &links {
        w.settle(a, b);
    }
}

fn an_idle_pair_says_nothing(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.send(a, 10, 100);
    w.settle(a, b);
    w.turn();
    let before = [w.counters(0), w.counters(1)];
    for _ in 0..1000 {
        assert_eq!(w.turn(), 0);
    }
    for (side, before) in before.into_iter().enumerate() {
        let after = w.counters(side);
        assert_eq!(Counters { calls: 0, ..after }, Counters { calls: 0, ..before }, "side {side}");
        // epoll has to ask; nobody else has.
        let calls = after.calls - before.calls;
        let asks = w.carrier(side).kind() == "epoll" && kind != Kind::Simulated;
        assert_eq!(calls, if asks { 1000 } else { 0 }, "side {side}");
    }
}

fn a_frame_and_its_answer_a_thousand_times(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    for i in 1..=1000 {
        w.send(a, 1, 100);
        w.until("it is there", |w| w.told(b).frames.len() == i);
        w.send(b, 1, 100);
        w.until("its answer is there", |w| w.told(a).frames.len() == i);
    }
    assert_eq!((w.counters(0).segments_out, w.counters(1).segments_out), (1000, 1000));
    w.settle(a, b);
}

/// What one thread saw: every frame is the next one.
struct Checker {
    side: u8,
    next: u64,
    buffer: Vec<u8>,
    ends: Vec<LinkEnd>,
    credits: u64,
}

fn payload_bytes(n: u64) -> usize {
    if n % 20_000 == 19_999 { 3 << 20 } else { (n % 97) as usize }
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
    fn lost(&mut self, _: LinkId, _: &[u8]) {
        panic!("nothing is lost");
    }
    fn ended(&mut self, _: LinkId, end: LinkEnd) {
        self.ends.push(end);
    }
}

fn two_threads_stream_both_ways_and_say_goodbye(kind: Kind) {
    const FRAMES: u64 = 60_000;
    let (connections, sleepers) = World::apart(kind, [RING_BYTES_DEFAULT as u32; 2]);
    let threads: Vec<_> = (connections.into_iter().zip(sleepers).zip([1u8, 2]))
        .map(|((connection, sleeper), me)| {
            std::thread::spawn(move || {
                let mut carrier = kind.carrier();
                let ring = RING_BYTES_DEFAULT as u32;
                let link = carrier.add(connection, peer(ring, ring), now_ns()).unwrap();
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
                        // Nothing wakes a loop for a simulated link: it looks again.
                        carrier.wait(sleeper.as_fd(), Duration::from_millis(if kind == Kind::Simulated { 1 } else { 100 }));
                        sleeper.awake();
                    }
                }
                assert_eq!(seen.ends, [LinkEnd { how: Ending::Goodbye, unsent_bytes: 0, unconfirmed_bytes: 0 }]);
                assert_eq!(seen.next, FRAMES);
                assert!(seen.credits > 0);
                let counters = carrier.counters();
                assert_eq!((counters.large_in, counters.large_out), (3, 3));
                assert_eq!((counters.links_goodbye, counters.links_lost), (1, 0));
                assert!(counters.calls < FRAMES / 4, "frames share system calls: {counters:?}");
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}
