//! How many links there may be, of which sizes, and what an id means after its link.

use crate::harness::*;
use saetta_transport::*;

on_all! {
    five_hundred_and_twelve_connections_work_and_one_more_is_refused,
    ring_sizes_the_handshake_never_gives_are_refused,
    an_old_id_names_nothing,
    links_are_listed_until_their_end,
    frames_in_pieces_share_a_pool_and_those_without_room_wait,
}

fn five_hundred_and_twelve_connections_work_and_one_more_is_refused(kind: Kind) {
    // Each link of sockets takes descriptors of both sides in this one process.
    rustix::process::setrlimit(rustix::process::Resource::Nofile, {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        rustix::process::Rlimit { current: limit.maximum, ..limit }
    })
    .unwrap();
    let mut w = World::new(kind, 2);
    let links: Vec<_> = (0..SLOTS_MAX).map(|_| w.join(0, 1)).collect();
    let refused = w.join_with(0, 1, [RING, RING]).unwrap_err();
    assert_eq!(refused.to_string(), "this core loop holds its 512 connections already");
    for round in 1..=3 {
        for &(a, b) in &links {
            assert!(w.offer(a, 50) && w.offer(b, 50));
        }
        w.until("all frames are there", |w| links.iter().all(|l| w.told(l.0).frames.len() == round && w.told(l.1).frames.len() == round));
    }
    for &(a, b) in &links {
        assert!(w.told(b).frames == w.sent(a) && w.told(a).frames == w.sent(b));
        w.of(a).say_goodbye(a.link);
    }
    w.until("all are told", |w| links.iter().all(|l| w.has_ended(l.0) && w.has_ended(l.1)));
    assert!(links.iter().all(|l| w.told(l.0).how() == How::Goodbye && w.told(l.1).how() == How::Goodbye));
    assert_eq!([w.counters(0).links_goodbye, w.counters(1).links_goodbye], [SLOTS_MAX as u64; 2]);
    w.until("every place is free again", |w| w.carrier(0).idle() && w.carrier(1).idle());
    let (a, b) = w.join(0, 1);
    w.send(a, 5, 5);
    w.settle(a, b);
}

fn ring_sizes_the_handshake_never_gives_are_refused(kind: Kind) {
    let mut w = World::new(kind, 2);
    for wrong in [0, 77, 8 << 10, (16 << 10) + 1, 8 << 20] {
        for (local, remote) in [(wrong, RING), (RING, wrong)] {
            let [connection, _] = w.connections([0, 1], [RING, RING]);
            let now_ns = w.now_ns;
            let error = w.carrier(0).add(connection, peer(local, remote), now_ns).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        }
    }
    assert_eq!((w.counters(0).links_added, w.carrier(0).links().count()), (0, 0));
}

fn an_old_id_names_nothing(kind: Kind) {
    let mut w = World::new(kind, 2);
    let mut old: Vec<At> = vec![];
    for round in 0..50 {
        let (a, b) = w.join(0, 1);
        assert_eq!(a.link.place(), 0, "the one place is used again");
        assert!(!old.contains(&a));
        for &before in &old {
            assert!(!w.offer(before, 10) && w.of(before).room(before.link) == 0 && w.of(before).peer(before.link).is_none());
            w.of(before).grant(before.link, 1, 1);
            w.of(before).close(before.link);
            assert!(w.of(before).drained(before.link) && w.of(before).positions(before.link).is_none());
        }
        w.send(a, 3, round);
        w.settle(a, b);
        assert!(w.told(b).credits.is_empty());
        w.of(a).close(a.link);
        w.both_end(a, b);
        w.until("the place is free", |w| w.of(a).idle() && w.of(b).idle());
        w.account(a, b);
        old.push(a);
    }
}

fn links_are_listed_until_their_end(kind: Kind) {
    let mut w = World::new(kind, 2);
    let links: Vec<_> = (0..5).map(|_| w.join(0, 1)).collect();
    let listed = |w: &mut World| w.carrier(0).links().map(|(l, p)| (l, p.placement)).collect::<Vec<_>>();
    assert_eq!(listed(&mut w), links.iter().map(|l| (l.0.link, 2)).collect::<Vec<_>>());
    assert_eq!(w.carrier(0).peer(links[2].0.link), Some(&peer(RING, RING)));
    w.of(links[2].0).close(links[2].0.link);
    assert_eq!(w.carrier(0).links().count(), 4, "from `close` on");
    w.of(links[4].1).say_goodbye(links[4].1.link);
    w.both_end(links[4].0, links[4].1);
    assert_eq!(listed(&mut w), [0, 1, 3].map(|i: usize| (links[i].0.link, 2)));
}

/// 16 MiB: three of the largest frames fit, five want to go.
fn frames_in_pieces_share_a_pool_and_those_without_room_wait(kind: Kind) {
    let mut w = World::new(kind, 2);
    let links: Vec<_> = (0..5).map(|_| w.join(0, 1)).collect();
    let payload_bytes = wire::FRAME_PAYLOAD_BYTES_MAX;
    let taken: Vec<bool> = links.iter().map(|l| w.offer(l.0, payload_bytes)).collect();
    assert_eq!(taken, [true, true, true, false, false]);
    // Small ones go past those that wait.
    assert!(w.offer(links[3].0, 10));
    w.until("the small one is there", |w| w.told(links[3].1).frames.len() == 1);
    // One that ends gives its share back at both sides.
    w.of(links[0].0).close(links[0].0.link);
    w.until("there is room for another", |w| w.offer(links[4].0, payload_bytes));
    w.both_end(links[0].0, links[0].1);
    w.account(links[0].0, links[0].1);
    w.send(links[3].0, 1, payload_bytes);
    for &(a, b) in &links[1..] {
        w.settle(a, b);
    }
}
