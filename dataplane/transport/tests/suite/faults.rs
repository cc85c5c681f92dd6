//! The rows of the fault matrix as far as a joined pair of any kind meets them.

use crate::common::{each, frame};
use crate::harness::*;
use saetta_transport::*;

on_all! {
    f40_half_open,
    f41_one_way_cut,
    f42_partial_partition,
    f44_a_peer_that_is_heard_now_and_then_is_not_lost,
    f46_a_slow_reader_stops_its_writer_in_bounded_memory,
    f47_a_peer_gone_in_mid_frame_delivers_no_part_of_it,
    f50_a_stopped_peer_costs_nobody_else_anything,
    f50_control_does_not_wait_for_data,
    f64_places_are_used_again_a_thousand_times,
    f65_frames_of_any_content_are_handed_over_as_they_are,
}

/// Both live, and nothing passes: each does all but speak.
fn f40_half_open(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.send(a, 5, 100);
    w.send(b, 5, 100);
    w.settle(a, b);
    for at in [a, b] {
        assert!(w.offer(at, 100));
    }
    let start_ns = w.now_ns;
    while !(w.has_ended(a) && w.has_ended(b)) {
        w.now_ns += 10 * MS;
        w.poll(0);
        w.poll(1);
        assert!(w.now_ns - start_ns < 5 * SECOND);
    }
    assert!(w.now_ns - start_ns <= 4 * SECOND + 100 * MS, "within the bound of silence");
    for (from, to) in [(a, b), (b, a)] {
        // Who ended first closed the connection; the other saw either.
        assert!([How::Silent, How::Gone].contains(&w.told(from).how()));
        assert_eq!(w.told(from).lost, w.sent(from)[5..]);
        w.account(from, to);
    }
    assert!(w.told(a).how() == How::Silent || w.told(b).how() == How::Silent);
}

/// b speaks and a does not; what a hears is what its carrier had asked for before.
fn f41_one_way_cut(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.send(a, 5, 100);
    w.settle(a, b);
    assert!(w.offer(a, 100));
    let start_ns = w.now_ns;
    while !(w.has_ended(a) && w.has_ended(b)) {
        w.now_ns += 10 * MS;
        w.poll(0);
        w.turn_only(&[1]);
        assert!(w.now_ns - start_ns < 5 * SECOND);
    }
    assert_eq!(w.told(b).how(), How::Silent, "who hears nothing ends it");
    assert!([How::Silent, How::Gone].contains(&w.told(a).how()), "and the other learns of it, or has not heard it either");
    assert_eq!(w.told(a).lost, w.sent(a)[5..]);
    w.account(a, b);
    w.account(b, a);
}

/// Of three, two do not hear each other; the third hears both.
fn f42_partial_partition(kind: Kind) {
    let mut w = World::new(kind, 4);
    // Sides 0 and 2 are loops of one worker: one for the link that is dead, one for the link to the third worker.
    let (ab, ba) = w.join(0, 1);
    let (ac, ca) = w.join(2, 3);
    w.send(ab, 3, 10);
    w.settle(ab, ba);
    let start_ns = w.now_ns;
    while !(w.has_ended(ab) && w.has_ended(ba)) {
        w.now_ns += 10 * MS;
        w.poll(0);
        w.poll(1);
        assert!(w.offer(ac, 20), "who hears each other goes on");
        w.turn_only(&[2, 3]);
        assert!(w.now_ns - start_ns < 5 * SECOND);
    }
    w.settle(ac, ca);
    assert!(w.told(ca).frames.len() > 300 && !w.has_ended(ac));
    // The two meet again when they can.
    let (ab, ba) = w.join(0, 1);
    w.send(ab, 3, 10);
    w.settle(ab, ba);
}

fn f44_a_peer_that_is_heard_now_and_then_is_not_lost(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    let mut random = Random(7);
    for _ in 0..60 {
        w.offer(a, 300);
        w.offer(b, 300);
        // One of them, for up to 1.9 s.
        let side = random.below(2) as usize;
        w.pass_only(&[side], random.below(1900) * MS);
        w.turn();
        w.turn();
    }
    w.settle(a, b);
    assert_eq!([w.counters(0).links_lost, w.counters(1).links_lost], [0, 0]);
}

fn f46_a_slow_reader_stops_its_writer_in_bounded_memory(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    let mut refusals = 0;
    while refusals < 200 {
        refusals = if w.offer(a, 1000) { 0 } else { refusals + 1 };
        w.turn_only(&[0]);
    }
    let window = link_memory_bytes(RING as usize, RING as usize) as u64;
    assert!(w.sent_bytes(a) < window, "{} bytes staged, {window} is what a link takes", w.sent_bytes(a));
    let staged = w.sent(a).len();
    // It reads one turn in ten.
    for turn in 0..1000 {
        w.offer(a, 1000);
        w.now_ns += MS;
        w.turn_only(if turn % 10 == 0 { &[0, 1] } else { &[0] });
        let (staged_bytes, counted) = w.of(a).positions(a.link).unwrap();
        assert!(staged_bytes - counted <= window);
    }
    assert!(w.sent(a).len() > staged);
    w.settle(a, b);
}

fn f47_a_peer_gone_in_mid_frame_delivers_no_part_of_it(kind: Kind) {
    for turns in 0..12 {
        let mut w = World::new(kind, 2);
        let (a, b) = w.join(0, 1);
        w.send(a, 2, 100);
        w.arrive(a, b);
        assert!(w.offer(a, 100_000));
        for _ in 0..turns {
            w.turn();
        }
        w.kill(0);
        w.until("it is told", |w| w.has_ended(b));
        assert_eq!(w.told(b).how(), How::Gone);
        let n = w.told(b).frames.len();
        assert!(w.told(b).frames == w.sent(a)[..n] && n >= 2, "after {turns} turns: whole ones only");
        // And at once they are joined again.
        let mut again = World::new(kind, 2);
        let (a, b) = again.join(0, 1);
        again.send(a, 2, 100);
        again.settle(a, b);
    }
}

fn f50_a_stopped_peer_costs_nobody_else_anything(kind: Kind) {
    let mut w = World::new(kind, 9);
    let links: Vec<_> = (1..9).map(|peer| w.join(0, peer)).collect();
    let (stopped, its) = links[7];
    let seven: Vec<usize> = (0..8).collect();
    // Its link takes what a window holds and then no more, while the others take all.
    for round in 0..300 {
        w.offer(stopped, 1000);
        for &(a, _) in &links[..7] {
            assert!(w.offer(a, 100), "round {round}");
        }
        w.until_only(&seven, "the seven have it", |w| links[..7].iter().all(|l| w.told(l.1).frames.len() == round + 1));
    }
    assert!(w.sent(stopped).len() < 100 && !w.has_ended(stopped));
    assert!(w.told(its).frames.is_empty());
    let segments = w.counters(0).segments_out;
    assert!(segments <= 7 * 300 + w.sent(stopped).len() as u64, "a segment a round and link, {segments}");
    // It goes on, and all is there.
    w.settle(stopped, its);
}

fn f50_control_does_not_wait_for_data(kind: Kind) {
    let mut w = World::new(kind, 2);
    let (data, data_there) = w.join(0, 1);
    let (control, control_there) = w.join(0, 1);
    // Frames in pieces fill the data road, and what waits behind them waits.
    for round in 1..=20 {
        while w.offer(data, 200_000) {}
        assert!(w.offer(control, 64));
        w.of(control).grant(control.link, 1, round);
        w.turn();
        w.turn();
        w.turn();
        assert_eq!(w.told(control_there).frames.len() as u64, round, "within three turns, whatever lies on the other road");
        assert_eq!(w.told(control_there).credits.len() as u64, round);
    }
    w.settle(control, control_there);
    w.settle(data, data_there);
}

fn f64_places_are_used_again_a_thousand_times(kind: Kind) {
    let mut w = World::new(kind, 2);
    for round in 0..1000 {
        let (a, b) = w.join(0, 1);
        assert!(a.link.place() < 8 && b.link.place() < 8, "ends are told and reaped as they come");
        assert!(w.offer(a, 10));
        if round % 3 == 0 {
            w.turn();
        }
        w.of(a).close(a.link);
        w.both_end(a, b);
        w.account(a, b);
    }
    assert_eq!([w.counters(0).links_added, w.counters(1).links_lost], [1000, 1000]);
}

/// What is in a frame is the engine's to judge; here only lengths count.
fn f65_frames_of_any_content_are_handed_over_as_they_are(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    let mut random = Random(3);
    let mut staged = vec![];
    for _ in 0..500 {
        let payload_bytes = random.below(1000) as usize;
        let mut f = Vec::new();
        frame(&mut f, 0, 0, payload_bytes);
        // All but the length, what pads the end included.
        f[4..].fill_with(|| random.below(256) as u8);
        w.until("room", |w| w.of(a).stage(a.link, &f) == f.len());
        staged.extend_from_slice(&f);
    }
    let mut n = 0;
    each(&staged, |_| n += 1);
    w.until("all are there", |w| w.told(b).frames.len() == n);
    assert!(w.told(b).frames.concat() == staged);
}
