//! Every end of a link, told once at both sides, with exactly what was lost.

use crate::harness::*;
use std::time::{Duration, Instant};

on_all! {
    a_goodbye_is_answered_and_takes_everything_along,
    goodbyes_that_cross_end_in_order_over_and_over,
    a_goodbye_waits_for_a_frame_in_pieces,
    a_goodbye_does_not_cut_the_peers_frames,
    a_close_here_is_a_loss_there,
    a_dropped_peer_is_known_at_once,
    a_peer_dropped_with_bytes_unread_is_known_as_well,
    what_the_peer_counts_is_not_lost,
    what_was_never_flushed_is_unsent_and_lost,
    of_a_frame_in_pieces_the_head_is_lost_once,
    a_frame_whose_pieces_are_all_counted_is_not_lost,
    nothing_is_taken_after_the_end,
    closing_twice_is_closing_once,
    a_close_after_a_goodbye_loses_what_was_not_counted,
    a_link_again_after_its_end_is_a_new_one,
    dropping_a_carrier_in_the_middle_of_everything_returns_at_once,
    whatever_ends_a_link_nothing_comes_twice_and_the_loss_is_exact,
}

/// (how, unsent, unconfirmed) at both ends.
fn ends(w: &World, a: At, b: At) -> [(How, u64, u64); 2] {
    [a, b].map(|at| {
        let end = w.told(at).end.as_ref().unwrap();
        (w.told(at).how(), end.unsent_bytes, end.unconfirmed_bytes)
    })
}

const IN_ORDER: (How, u64, u64) = (How::Goodbye, 0, 0);

fn a_goodbye_is_answered_and_takes_everything_along(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    for _ in 0..100 {
        assert!(w.offer(a, 50));
    }
    w.of(a).say_goodbye(a.link);
    assert!(!w.offer(a, 50), "nothing is staged behind it");
    w.both_end(a, b);
    assert_eq!(ends(&w, a, b), [IN_ORDER, IN_ORDER]);
    assert_eq!(w.told(b).frames.len(), 100);
    w.account(a, b);
    w.account(b, a);
    assert_eq!([w.counters(0).links_goodbye, w.counters(1).links_goodbye], [1, 1]);
}

fn goodbyes_that_cross_end_in_order_over_and_over(kind: Kind) {
    let mut w = World::new(kind, 2);
    for round in 1..=100 {
        let (a, b) = w.join(0, 1);
        for at in [a, b] {
            assert!(w.offer(at, round));
            w.of(at).say_goodbye(at.link);
        }
        w.until("both ends are told", |w| {
            // Credit that is granted meanwhile stops nothing.
            for at in [a, b] {
                w.of(at).grant(at.link, 1, round as u64);
            }
            w.has_ended(a) && w.has_ended(b)
        });
        assert_eq!(ends(&w, a, b), [IN_ORDER, IN_ORDER], "round {round}");
        w.account(a, b);
        w.account(b, a);
    }
    assert_eq!([w.counters(0).links_goodbye, w.counters(1).links_lost], [100, 0]);
}

fn a_goodbye_waits_for_a_frame_in_pieces(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    assert!(w.offer(a, 300_000));
    w.of(a).say_goodbye(a.link);
    w.both_end(a, b);
    assert_eq!(ends(&w, a, b), [IN_ORDER, IN_ORDER]);
    w.account(a, b);
}

fn a_goodbye_does_not_cut_the_peers_frames(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    for _ in 0..50 {
        assert!(w.offer(b, 100));
    }
    w.of(a).say_goodbye(a.link);
    w.flush(0);
    w.until_only(&[1], "the goodbye is there", |w| !w.offer(b, 100));
    w.both_end(a, b);
    assert_eq!(ends(&w, a, b), [IN_ORDER, IN_ORDER]);
    assert!(w.told(a).frames.len() >= 50);
    w.account(b, a);
}

fn a_close_here_is_a_loss_there(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.send(a, 10, 100);
    w.settle(a, b);
    w.of(a).close(a.link);
    w.both_end(a, b);
    assert_eq!(ends(&w, a, b), [(How::ClosedHere, 0, 0), (How::Gone, 0, 0)]);
    w.account(a, b);
    w.account(b, a);
    assert_eq!([w.counters(0).links_lost, w.counters(1).links_lost], [1, 1]);
    assert_eq!([w.counters(0).protocol_errors, w.counters(1).protocol_errors], [0, 0]);
}

fn a_dropped_peer_is_known_at_once(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.send(a, 10, 100);
    w.settle(a, b);
    w.kill(1);
    let start = Instant::now();
    assert!(w.offer(a, 100), "the end is not known yet");
    w.until("it is told", |w| w.has_ended(a));
    assert!(start.elapsed() < Duration::from_secs(1), "not by the silence of 4 s");
    assert_eq!(w.told(a).how(), How::Gone);
    assert_eq!(w.told(a).lost, [w.sent(a)[10].clone()]);
    w.account(a, b);
}

fn a_peer_dropped_with_bytes_unread_is_known_as_well(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    for _ in 0..5 {
        assert!(w.offer(a, 1000));
        w.turn_only(&[0]);
    }
    w.kill(1);
    w.until("it is told", |w| w.has_ended(a));
    assert_eq!(w.told(a).how(), How::Gone);
    assert_eq!(w.told(a).lost.len(), 5);
    w.account(a, b);
}

fn what_the_peer_counts_is_not_lost(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.send(a, 20, 100);
    w.settle(a, b);
    for _ in 0..7 {
        assert!(w.offer(a, 100));
    }
    // Received, and not told to the sender when it is gone.
    w.arrive(a, b);
    w.kill(1);
    w.until("it is told", |w| w.has_ended(a));
    let end = w.told(a).end.clone().unwrap();
    assert_eq!((end.unsent_bytes, end.unconfirmed_bytes), (0, 7 * 120));
    assert_eq!(w.told(a).lost, w.sent(a)[20..], "they may have arrived, and nobody knows");
    w.account(a, b);
}

fn what_was_never_flushed_is_unsent_and_lost(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.send(a, 4, 100);
    w.settle(a, b);
    for _ in 0..9 {
        assert!(w.offer(a, 100));
    }
    w.of(a).close(a.link);
    w.both_end(a, b);
    assert_eq!(ends(&w, a, b), [(How::ClosedHere, 9 * 120, 0), (How::Gone, 0, 0)]);
    assert_eq!(w.told(a).lost, w.sent(a)[4..]);
    assert_eq!(w.told(b).frames.len(), 4);
    w.account(a, b);
}

fn of_a_frame_in_pieces_the_head_is_lost_once(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.send(a, 3, 100);
    w.settle(a, b);
    assert!(w.offer(a, 1 << 20));
    for _ in 0..5 {
        w.turn();
    }
    assert_eq!(w.told(b).frames.len(), 3, "a megabyte does not pass in five turns through windows of 32 KiB");
    w.of(a).close(a.link);
    w.both_end(a, b);
    assert_eq!(w.told(a).lost.len(), 1);
    assert_eq!(w.told(b).frames.len(), 3, "no part of it");
    w.account(a, b);
}

fn a_frame_whose_pieces_are_all_counted_is_not_lost(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    assert!(w.offer(a, 100_000));
    w.settle(a, b);
    w.kill(1);
    w.until("it is told", |w| w.has_ended(a));
    assert_eq!((w.told(a).how(), w.told(a).lost.len()), (How::Gone, 0));
    w.account(a, b);
}

fn nothing_is_taken_after_the_end(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.of(a).close(a.link);
    assert!(!w.offer(a, 10) && w.of(a).room(a.link) == 0, "from `close` on");
    w.of(a).grant(a.link, 1, 1);
    w.of(a).say_goodbye(a.link);
    w.both_end(a, b);
    assert!(!w.offer(a, 10) && !w.offer(b, 10));
    w.pass(SECOND);
    assert!(w.told(b).frames.is_empty() && w.told(b).credits.is_empty());
    assert_eq!([w.counters(0).segments_out, w.counters(1).segments_out], [0, 0]);
}

fn closing_twice_is_closing_once(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    w.of(a).close(a.link);
    w.of(a).close(a.link);
    w.of(b).close(b.link);
    w.both_end(a, b);
    w.of(a).close(a.link);
    w.pass(100 * MS);
    assert_eq!(ends(&w, a, b), [(How::ClosedHere, 0, 0), (How::ClosedHere, 0, 0)]);
    assert_eq!([w.counters(0).links_lost, w.counters(1).links_lost], [1, 1]);
}

fn a_close_after_a_goodbye_loses_what_was_not_counted(kind: Kind) {
    let (mut w, a, b) = World::pair(kind);
    for _ in 0..5 {
        assert!(w.offer(a, 100));
    }
    w.of(a).say_goodbye(a.link);
    w.flush(0);
    w.of(a).close(a.link);
    w.both_end(a, b);
    assert_eq!(w.told(a).how(), How::ClosedHere);
    assert_eq!(w.told(a).lost, w.sent(a));
    w.account(a, b);
    w.account(b, a);
}

fn a_link_again_after_its_end_is_a_new_one(kind: Kind) {
    let mut w = World::new(kind, 2);
    for round in 0..30 {
        let (a, b) = w.join(0, 1);
        w.send(a, 5, 10 + round);
        w.arrive(a, b);
        assert!(w.offer(a, 20_000));
        w.turn();
        let closer = if round % 2 == 0 { a } else { b };
        w.of(closer).close(closer.link);
        w.both_end(a, b);
        // What the last link lost does not come by the next: its first frame is number 0 again.
        w.account(a, b);
        w.account(b, a);
    }
    assert_eq!([w.counters(0).links_lost, w.counters(1).links_lost], [30, 30]);
}

fn dropping_a_carrier_in_the_middle_of_everything_returns_at_once(kind: Kind) {
    let mut w = World::new(kind, 2);
    let links: Vec<_> = (0..8).map(|_| w.join(0, 1)).collect();
    for turn in 0..200 {
        for &(a, b) in &links {
            w.offer(a, 1000 + 20 * turn);
            w.offer(b, 1000);
        }
        w.turn_only(&[0]);
    }
    let start = Instant::now();
    w.kill(0);
    assert!(start.elapsed() < Duration::from_secs(1), "the kernel lets go of what is cancelled");
    w.until("the others know", |w| links.iter().all(|l| w.has_ended(l.1)));
    for &(a, b) in &links {
        assert_eq!(w.told(b).how(), How::Gone);
        w.account(b, a);
    }
}

/// Links that end in every way at any moment.
fn whatever_ends_a_link_nothing_comes_twice_and_the_loss_is_exact(kind: Kind) {
    let mut w = World::new(kind, 2);
    let mut random = Random(42);
    for round in 0..200 {
        let (a, b) = w.join(0, 1);
        let ends = [a, b];
        for turn in 0..random.below(60) {
            for at in ends {
                for _ in 0..random.below(20) {
                    let payload_bytes = if random.below(30) == 0 { 20_000 } else { random.below(200) as usize };
                    if !w.offer(at, payload_bytes) {
                        break;
                    }
                }
                if random.below(3) > 0 {
                    w.poll(at.side);
                }
                if random.below(3) > 0 {
                    w.flush(at.side);
                }
                w.now_ns += random.below(3) * MS;
            }
            if turn == 30 && random.below(2) == 0 {
                let at = ends[random.below(2) as usize];
                w.of(at).say_goodbye(at.link);
            }
        }
        let closer = ends[round % 2];
        w.of(closer).close(closer.link);
        w.both_end(a, b);
        w.account(a, b);
        w.account(b, a);
    }
    for counters in [w.counters(0), w.counters(1)] {
        assert_eq!((counters.crc_errors, counters.protocol_errors), (0, 0));
        assert_eq!(counters.links_goodbye + counters.links_lost, 200);
        assert!(counters.links_goodbye > 0 && counters.links_lost > 100);
    }
}
