//! The rows that are about bytes on their way: what spoils them, and what a peer says that is none. Not on memory: nothing lies between.

use crate::harness::*;
use saetta_transport::sim::Faults;
use saetta_transport::wire::{HEADER_BYTES, Header, Kind as Segment};

on_bytes! {
    f40_nothing_passes_either_way,
    f41_nothing_passes_one_way,
    f44_late_and_in_crumbs,
    f45_two_hundred_milliseconds_each_way,
    f46_a_narrow_way,
    f47_reset_or_cut_at_every_byte,
    f48_any_flipped_byte,
    f49_repeated_missing_and_reordered_segments,
    f50_a_peer_that_reads_nothing,
    f60_foreign_bytes_behind_the_handshake,
    f61_a_right_beginning_then_garbage,
    f62_lengths_at_and_beyond_the_bounds,
    f63_one_byte_a_second,
    f65_segments_that_lie,
    f66_a_replayed_stream,
    a_peer_by_hand_that_says_goodbye_gets_an_answer,
}

fn f40_nothing_passes_either_way(kind: Kind) {
    let (mut w, a, b, wires) = World::wired(kind, Faults::default(), Faults::default());
    w.send(a, 5, 100);
    w.send(b, 5, 100);
    w.settle(a, b);
    wires.change(|there| there.black_hole_at = Some(0), |back| back.black_hole_at = Some(0));
    let start_ns = w.now_ns;
    w.send(a, 3, 100);
    w.send(b, 4, 100);
    while !(w.has_ended(a) && w.has_ended(b)) {
        assert!(w.now_ns - start_ns < 5 * SECOND);
        w.pass(10 * MS);
    }
    assert!(w.now_ns - start_ns <= 4 * SECOND + 100 * MS);
    assert_eq!([w.told(a).how(), w.told(b).how()], [How::Silent, How::Silent]);
    assert_eq!((&w.told(a).lost[..], &w.told(b).lost[..]), (&w.sent(a)[5..], &w.sent(b)[5..]));
    w.account(a, b);
    w.account(b, a);
}

fn f41_nothing_passes_one_way(kind: Kind) {
    let (mut w, a, b, wires) = World::wired(kind, Faults::default(), Faults::default());
    w.send(a, 5, 100);
    w.settle(a, b);
    wires.change(|there| there.black_hole_at = Some(0), |_| {});
    let start_ns = w.now_ns;
    w.send(a, 3, 100);
    w.send(b, 4, 100);
    while !(w.has_ended(a) && w.has_ended(b)) {
        assert!(w.now_ns - start_ns < 5 * SECOND);
        w.pass(10 * MS);
    }
    assert!(w.now_ns - start_ns <= 4 * SECOND + 200 * MS);
    assert_eq!([w.told(a).how(), w.told(b).how()], [How::Gone, How::Silent], "both end, and who hears does not wait longer");
    assert_eq!(w.told(a).frames.len(), 4, "what passed has arrived");
    w.account(a, b);
    w.account(b, a);
}

/// A stream that repairs losses is one that stands now and then.
fn f44_late_and_in_crumbs(kind: Kind) {
    let crumbs = Faults { arrive_bytes_max: 700, ..Default::default() };
    let (mut w, a, b, wires) = World::wired(kind, crumbs.clone(), crumbs);
    let mut random = Random(11);
    for _ in 0..300 {
        // One in ten comes only when it is sent again.
        let mut late = || if random.below(10) == 0 { (200 + random.below(800)) * MS } else { random.below(3) * MS };
        let (there_ns, back_ns) = (late(), late());
        wires.change(|there| there.delay_ns = there_ns, |back| back.delay_ns = back_ns);
        w.offer(a, 250);
        w.offer(b, 250);
        w.pass(20 * MS);
    }
    w.pass(3 * SECOND);
    w.settle(a, b);
    assert_eq!([w.counters(0).links_lost, w.counters(1).links_lost], [0, 0], "no false death");
}

fn f45_two_hundred_milliseconds_each_way(kind: Kind) {
    let late = Faults { delay_ns: 200 * MS, ..Default::default() };
    let (mut w, a, b, _) = World::wired(kind, late.clone(), late);
    let start_ns = w.now_ns;
    while w.now_ns - start_ns < 20 * SECOND {
        while w.offer(a, 1000) {}
        w.pass(10 * MS);
    }
    // Answer by answer it would be 50 segments of 8 KiB; the window is four.
    let arrived: usize = w.told(b).frames.iter().map(Vec::len).sum();
    assert!(arrived > 2 * 50 * SEGMENT_ROOM, "{arrived}");
    w.pass(SECOND);
    w.settle(a, b);
    assert_eq!([w.counters(0).links_lost, w.counters(1).links_lost], [0, 0]);
}

fn f46_a_narrow_way(kind: Kind) {
    let narrow = Faults { buffer_bytes: 500, arrive_bytes_max: 100, ..Default::default() };
    let (mut w, a, b, _) = World::wired(kind, narrow.clone(), narrow);
    let window = saetta_transport::link_memory_bytes(RING as usize, RING as usize) as u64;
    for i in 0..500 {
        w.offer(a, 500 + i);
        w.offer(b, 300);
        w.turn();
        let (staged, counted) = w.of(a).positions(a.link).unwrap();
        assert!(staged - counted <= window);
    }
    assert!(w.sent(a).len() < 300, "who emits is held back");
    w.settle(a, b);
}

fn f47_reset_or_cut_at_every_byte(kind: Kind) {
    let mut w = World::new(kind, 2);
    // Two segments of 272 bytes.
    for at in 0..544 {
        let there = match at % 2 {
            0 => Faults { reset_at: Some(at), ..Default::default() },
            _ => Faults { cut_at: Some(at), ..Default::default() },
        };
        let (a, b, _) = w.wire(0, 1, there, Faults::default());
        for _ in 0..2 {
            // The second two may come too late.
            w.offer(a, 104);
            w.offer(a, 104);
            w.turn();
            w.turn();
        }
        w.both_end(a, b);
        assert_eq!([w.told(a).how(), w.told(b).how()], [How::Gone, How::Gone], "at {at}");
        assert_eq!(w.told(b).frames.len(), if at < 272 { 0 } else { 2 }, "at {at}: whole segments, no part of one");
        w.account(a, b);
    }
    assert_eq!((w.counters(1).crc_errors, w.counters(1).protocol_errors), (0, 0), "it is not the peer's fault");
}

fn f48_any_flipped_byte(kind: Kind) {
    let mut w = World::new(kind, 2);
    let mut errors = 0;
    for at in 0..HEADER_BYTES as u64 + 2 * 32 {
        let (a, b, _) = w.wire(0, 1, Faults { flip_at: Some(at), ..Default::default() }, Faults::default());
        assert!(w.offer(a, 16) && w.offer(a, 16));
        // A length that grew is known to be wrong when so much has come.
        w.until("it is noticed", |w| {
            w.offer(a, 16);
            w.has_ended(b)
        });
        errors += 1;
        assert!(matches!(w.told(b).how(), How::Crc | How::Wrong(_)), "at {at}: {:?}", w.told(b).how());
        assert!(w.told(b).frames.is_empty(), "at {at}: nothing of it is handed over");
        assert_eq!(w.counters(1).crc_errors + w.counters(1).protocol_errors, errors, "at {at}");
        w.until("the sender learns of it", |w| w.has_ended(a));
        assert_eq!(w.told(a).how(), How::Gone);
        assert_eq!(w.told(a).lost, w.sent(a));
        w.account(a, b);
    }
    assert!(w.counters(1).crc_errors > 64, "all of the frames, and most of the header");
}

/// What these bytes do to a link: how it ends, and the frames that came before.
fn end_of(kind: Kind, bytes: &[u8]) -> (World, At, How) {
    let (mut w, at, mut hand) = World::by_hand(kind);
    hand.write(bytes);
    w.until("it ends", |w| w.has_ended(at));
    let how = w.told(at).how();
    // The connection is closed as soon as nothing of it is held by the kernel.
    w.until("it is closed", |_| hand.read(&mut vec![]));
    assert_eq!(w.counters(0).links_lost, 1);
    (w, at, how)
}

fn f49_repeated_missing_and_reordered_segments(kind: Kind) {
    let frames = some_frames(20, 300);
    let s = segments(&frames, false);
    let wrong = |text: &str| How::Wrong(text.to_owned());
    let cases = [
        (vec![&s[0], &s[1], &s[1]], 2, wrong("segment 1 came again, 2 was due")),
        (vec![&s[0], &s[2]], 1, wrong("segment 1 is missing, 2 came")),
        (vec![&s[1], &s[0]], 0, wrong("segment 0 is missing, 1 came")),
        (vec![&s[0], &s[1], &s[2], &s[0]], 3, wrong("segment 0 came again, 3 was due")),
    ];
    for (stream, n, how) in cases {
        let (w, at, got) = end_of(kind, &stream.into_iter().flatten().copied().collect::<Vec<_>>());
        assert_eq!(got, how);
        assert!(w.told(at).frames == frames[..n], "what came before, once");
        assert_eq!((w.counters(0).protocol_errors, w.counters(0).crc_errors), (1, 0));
    }
}

fn f50_a_peer_that_reads_nothing(kind: Kind) {
    let (mut w, a, b, _) = World::wired(kind, Faults { reader_stopped: true, ..Default::default() }, Faults::default());
    let (other, its) = w.join(0, 1);
    let mut refusals = 0;
    while refusals < 100 {
        refusals = if w.offer(a, 1000) { 0 } else { refusals + 1 };
        w.send(other, 1, 100);
        w.turn();
    }
    w.arrive(other, its);
    assert!(w.sent_bytes(a) < saetta_transport::link_memory_bytes(RING as usize, RING as usize) as u64);
    assert!(w.told(b).frames.is_empty() && !w.has_ended(a));
    // It is alive, so its sender waits; it hears nothing, so it ends the link.
    w.pass(3900 * MS);
    assert!(!w.has_ended(a) && !w.has_ended(b));
    w.pass(400 * MS);
    w.both_end(a, b);
    assert_eq!([w.told(a).how(), w.told(b).how()], [How::Gone, How::Silent]);
    assert!(w.told(a).lost == w.sent(a));
    w.account(a, b);
    w.settle(other, its);
}

fn noise(n: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    (0..n).map(|_| random.below(256) as u8).collect()
}

fn f60_foreign_bytes_behind_the_handshake(kind: Kind) {
    let mut strangers: Vec<Vec<u8>> = (0..20).map(|seed| noise(HEADER_BYTES + 50 * seed, seed as u64)).collect();
    strangers.push(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec());
    strangers.push([&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], &noise(100, 1)].concat());
    strangers.push(b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n".to_vec());
    strangers.push(vec![0; HEADER_BYTES]);
    for bytes in strangers {
        let (w, at, how) = end_of(kind, &bytes);
        assert_eq!(how, How::Wrong("the peer sent bytes that are no segment".into()));
        assert!(w.told(at).frames.is_empty());
        assert_eq!(w.counters(0).protocol_errors, 1);
    }
}

fn f61_a_right_beginning_then_garbage(kind: Kind) {
    let good = &segments(&some_frames(3, 100), false)[0];
    for seed in 0..20 {
        // Magic, version and kind; then as much of the header as is right.
        let right = 4 + seed as usize;
        let (w, at, how) = end_of(kind, &[&good[..right], &noise(10_000, seed)].concat());
        assert!(matches!(how, How::Wrong(_) | How::Crc), "{how:?}");
        assert!(w.told(at).frames.is_empty());
        assert_eq!(w.counters(0).protocol_errors + w.counters(0).crc_errors, 1);
    }
}

fn f62_lengths_at_and_beyond_the_bounds(kind: Kind) {
    let most = RING as usize / 2 - HEADER_BYTES;
    let of = |body_bytes: usize| {
        let mut header = sealed(Segment::Data, 0, 0, 0, &[]);
        header[4..8].copy_from_slice(&(body_bytes as u32).to_le_bytes());
        header
    };
    for body_bytes in [1, 7, most + 1, most + 8, 1 << 31, u32::MAX as usize] {
        // By the header alone: nothing is kept for what it announces.
        let (_, _, how) = end_of(kind, &of(body_bytes));
        let text = format!("the peer sent a segment of {} bytes, 32 to {} are allowed", body_bytes as u64 + 32, most + HEADER_BYTES);
        assert_eq!(how, How::Wrong(text));
    }
    // None, and the most there may be.
    let (mut w, at, mut hand) = World::by_hand(kind);
    hand.write(&sealed(Segment::Data, 0, 0, 0, &[]));
    let largest = some_frames(1, most - 16);
    hand.write(&sealed(Segment::Data, 1, 0, 0, &largest[0]));
    w.until("it is there", |w| w.told(at).frames.len() == 1);
    assert!(w.told(at).frames == largest && !w.has_ended(at));
    // Lengths of frames: one that reaches beyond its segment, one beyond all bounds.
    for first in [9u32, 4 << 20, u32::MAX] {
        let mut body = vec![0; 24];
        body[..4].copy_from_slice(&first.to_le_bytes());
        let (w, at, how) = end_of(kind, &sealed(Segment::Data, 0, 0, 0, &body));
        assert_eq!(how, How::Wrong("segment 0 is malformed: its body is not whole frames".into()));
        assert!(w.told(at).frames.is_empty());
    }
}

fn f63_one_byte_a_second(kind: Kind) {
    let (mut w, at, mut hand) = World::by_hand(kind);
    let frames = some_frames(2, 40);
    for byte in segments(&frames, false).concat() {
        assert!(!w.has_ended(at), "it is heard");
        hand.write(&[byte]);
        w.pass(SECOND);
    }
    w.until("both are there", |w| w.told(at).frames.len() == 2);
    assert!(w.told(at).frames == frames);
    // And one that stops in the middle of a segment is silent from then on.
    hand.write(&segments(&frames, false)[0][..50]);
    w.pass(4200 * MS);
    assert_eq!(w.told(at).how(), How::Silent);
    // As fast as they can be sent, the same.
    let (mut w, at, mut hand) = World::by_hand(kind);
    let frames = [some_frames(3, 20), some_frames(1, 9000)].concat();
    for byte in segments(&frames, false).concat() {
        hand.write(&[byte]);
        w.turn();
    }
    w.until("all are there", |w| w.told(at).frames.len() == 4);
    assert!(w.told(at).frames == frames);
    assert_eq!(w.counters(0).large_in, 1);
}

fn f65_segments_that_lie(kind: Kind) {
    let frame = &some_frames(1, 1)[0];
    let piece = |total: u32| [&total.to_le_bytes()[..], &[0; 60]].concat();
    let first = sealed(Segment::Piece, 0, 0, 0, &piece(100));
    let goodbye = |sequence| sealed(Segment::Goodbye, sequence, 0, 0, &[]);
    let cases: [(&str, Vec<Vec<u8>>); 13] = [
        ("segment 0 is malformed: more credits than its body holds", vec![sealed(Segment::Data, 0, 0, 2, &[0; 16])]),
        ("segment 0 is malformed: its body is not whole frames", vec![sealed(Segment::Data, 0, 0, 0, &frame[..16])]),
        ("segment 0 is malformed: its body is not whole frames", vec![sealed(Segment::Data, 0, 0, 0, &u64::MAX.to_le_bytes())]),
        ("the peer counts 8 frame bytes received; 0 to 0 are possible", vec![sealed(Segment::Data, 0, 8, 0, &[])]),
        ("segment 1 is malformed: frames or a goodbye after the goodbye", vec![goodbye(0), sealed(Segment::Data, 1, 0, 0, frame)]),
        ("segment 0 is malformed: a goodbye with frames", vec![sealed(Segment::Goodbye, 0, 0, 0, frame)]),
        ("segment 1 is malformed: frames between the pieces of a frame", vec![first.clone(), sealed(Segment::Data, 1, 0, 0, frame)]),
        ("segment 1 is malformed: a goodbye between the pieces of a frame", vec![first.clone(), goodbye(1)]),
        ("segment 1 is malformed: a piece beyond its frame's end", vec![first.clone(), sealed(Segment::Piece, 1, 0, 0, &[0; 64])]),
        ("segment 1 is malformed: an empty piece", vec![first, sealed(Segment::Piece, 1, 0, 0, &[])]),
        ("segment 0 is malformed: a frame over the limit of 4 MiB", vec![sealed(Segment::Piece, 0, 0, 0, &piece(u32::MAX))]),
        ("segment 0 is malformed: a whole frame sent as a piece", vec![sealed(Segment::Piece, 0, 0, 0, &piece(40))]),
        ("segment 0 is malformed: an empty piece", vec![sealed(Segment::Piece, 0, 0, 0, &[])]),
    ];
    for (text, stream) in cases {
        let (w, at, how) = end_of(kind, &stream.concat());
        assert_eq!(how, How::Wrong(text.to_owned()));
        assert!(w.told(at).frames.is_empty(), "{text}");
        assert_eq!((w.counters(0).protocol_errors, w.counters(0).large_in), (1, 0), "{text}");
    }
}

fn f66_a_replayed_stream(kind: Kind) {
    let frames = some_frames(5, 100);
    let recorded = segments(&frames, false).concat();
    let (w, at, how) = end_of(kind, &[&recorded[..], &recorded].concat());
    assert_eq!(how, How::Wrong("segment 0 came again, 5 was due".into()));
    assert!(w.told(at).frames == frames, "once");
}

fn a_peer_by_hand_that_says_goodbye_gets_an_answer(kind: Kind) {
    let (mut w, at, mut hand) = World::by_hand(kind);
    let frames = some_frames(2, 10);
    hand.write(&segments(&frames, true).concat());
    let mut answer = vec![];
    w.until("it is closed", |_| hand.read(&mut answer));
    w.until("it is told", |w| w.has_ended(at));
    assert_eq!(w.told(at).how(), How::Goodbye);
    assert!(w.told(at).frames == frames);
    let header = Header::read(answer.first_chunk().unwrap()).unwrap();
    assert_eq!((header.kind, header.received, answer.len()), (Segment::Goodbye, 2 * 32, HEADER_BYTES));
}
