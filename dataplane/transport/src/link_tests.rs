//! Both ends of a link on one thread, with the test as the wire between them.

use super::*;
use proptest::prelude::*;

const RING: usize = 16 << 10;
const SECOND: u64 = 1_000_000_000;

/// One end: the link, what its peer's bytes became, and the pools.
struct End {
    link: Link,
    inbox: Vec<u8>,
    frames: Vec<u8>,
    credits: Vec<(u32, u64)>,
    lost: Option<Lost>,
    send_pool: PiecePool,
    receive_pool: PiecePool,
}

impl End {
    fn new() -> Self {
        let pool = || PiecePool::new(FRAME_BYTES_MAX);
        End {
            link: Link::new(RING, RING, Medium::Wire, 0),
            inbox: vec![],
            frames: vec![],
            credits: vec![],
            lost: None,
            send_pool: pool(),
            receive_pool: pool(),
        }
    }

    fn stage(&mut self, frame: &[u8]) -> bool {
        self.link.stage(frame, &mut self.send_pool) == frame.len()
    }

    /// The next segment, wholly written; empty when there is none.
    fn segment(&mut self, now_ns: u64) -> Vec<u8> {
        if !self.link.form(now_ns, &mut self.send_pool) {
            return vec![];
        }
        let bytes = self.link.flight().concat();
        self.link.written(bytes.len());
        bytes
    }

    /// Takes bytes off the wire.
    fn feed(&mut self, bytes: &[u8], now_ns: u64) {
        self.link.heard(now_ns);
        self.inbox.extend_from_slice(bytes);
        loop {
            match self.link.receive(&self.inbox, now_ns, &mut self.receive_pool) {
                Received::More | Received::Wait => return,
                Received::Lost(lost) => {
                    self.lost = Some(lost);
                    return;
                }
                Received::Segment { bytes, credits, frames } => {
                    self.credits.extend(wire::credits(credits));
                    self.frames.extend_from_slice(frames);
                    self.inbox.drain(..bytes);
                }
            }
        }
    }
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let mut f = (payload.len() as u32).to_le_bytes().to_vec();
    f.resize(wire::FRAME_HEADER_BYTES, 0xAB);
    f.extend_from_slice(payload);
    f.resize(wire::frame_bytes(payload.len() as u32), 0);
    f
}

/// Everything that waits goes from one end to the other, until nothing more does.
fn exchange(a: &mut End, b: &mut End, now_ns: u64) {
    loop {
        let (to_b, to_a) = (a.segment(now_ns), b.segment(now_ns));
        if to_b.is_empty() && to_a.is_empty() {
            return;
        }
        b.feed(&to_b, now_ns);
        a.feed(&to_a, now_ns);
    }
}

/// A stream with everything in it: data, credits, pieces, goodbye.
fn script() -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut a = End::new();
    let (small, large) = (frame(b"hello"), frame(&[0x5A; 20_000]));
    let mut segments = vec![];
    assert!(a.stage(&small) && a.stage(&small));
    a.link.grant(4, 400);
    segments.push(a.segment(0));
    assert!(a.stage(&large));
    assert!(!a.stage(&small), "a frame in pieces goes alone");
    for _ in 0..20_016 / 4000 {
        segments.push(a.segment(0));
    }
    assert!(a.stage(&small));
    a.link.say_goodbye();
    segments.push(a.segment(0));
    segments.push(a.segment(0));
    assert_eq!(a.segment(0), []);
    (segments, [&small[..], &small, &large, &small].concat())
}

#[test]
fn cut_at_every_byte_the_stream_means_the_same() {
    let (segments, want) = script();
    let stream = segments.concat();
    for cut in 0..=stream.len() {
        let mut b = End::new();
        b.feed(&stream[..cut], 0);
        b.feed(&stream[cut..], 0);
        assert_eq!(b.lost, None, "cut at {cut}");
        assert!(b.frames == want, "cut at {cut}");
        assert_eq!(b.credits, [(4, 400)], "cut at {cut}");
        assert!(b.link.end_of_stream(), "cut at {cut}");
    }
    let mut b = End::new();
    stream.iter().for_each(|byte| b.feed(&[*byte], 0));
    assert!(b.frames == want && b.lost.is_none());
    assert_eq!(b.receive_pool.used_bytes(), 0);
}

#[test]
fn a_cut_stream_delivers_no_part_of_a_frame_and_says_what_is_unconfirmed() {
    let mut a = End::new();
    let mut b = End::new();
    let f = frame(&[1; 100]);
    assert!(a.stage(&f) && a.stage(&f));
    let first = a.segment(0);
    assert!(a.stage(&f));
    let second = a.segment(0);
    assert!(a.stage(&f));
    b.feed(&first, 0);
    b.feed(&second[..second.len() - 1], 0);
    assert_eq!(b.frames.len(), 2 * f.len());
    assert!(!b.link.end_of_stream(), "the end of the stream now means lost");
    // What b counts reaches a, and the rest is named.
    a.feed(&b.segment(SECOND), SECOND);
    let (unsent, unconfirmed) = a.link.close(&mut a.send_pool, &mut a.receive_pool);
    assert_eq!((unsent, unconfirmed), (f.len() as u64, f.len() as u64));
    assert_eq!(a.link.state(), State::Closed);
    assert!(!a.stage(&f) && !a.link.form(SECOND, &mut a.send_pool));
}

#[test]
fn a_repeated_segment_ends_the_link() {
    let (segments, _) = script();
    let mut b = End::new();
    b.feed(&segments[0], 0);
    let seen = b.frames.clone();
    b.feed(&segments[0], 0);
    assert_eq!(b.lost, Some(Lost::Repeat { want: 1, got: 0 }));
    assert_eq!(b.frames, seen, "not delivered twice");
    b.lost = None;
    b.feed(&segments[1], 0);
    assert_eq!((b.lost, b.frames), (None, seen), "nothing is read after the end");
}

#[test]
fn a_missing_or_reordered_segment_ends_the_link() {
    let (segments, _) = script();
    let mut b = End::new();
    b.feed(&segments[1], 0);
    assert_eq!(b.lost, Some(Lost::Gap { want: 0, got: 1 }));
    assert_eq!(b.frames, []);
    assert_eq!(b.receive_pool.used_bytes(), 0);
}

#[test]
fn any_flipped_bit_ends_the_link_and_delivers_nothing() {
    let mut a = End::new();
    a.link.grant(1, 2);
    assert!(a.stage(&frame(b"some bytes")));
    let good = a.segment(0);
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let mut b = End::new();
        b.feed(&bad, 0);
        // A longer body is only known to be wrong when more has come.
        b.feed(&[0; RING], 0);
        assert!(b.lost.is_some(), "bit {bit}");
        assert!(b.frames.is_empty() && b.credits.is_empty(), "bit {bit}");
    }
}

#[test]
fn lengths_out_of_bounds_end_the_link_by_the_header_alone() {
    for (body, end) in
        [(RING / 2 - HEADER_BYTES, false), (RING / 2 - HEADER_BYTES + 8, true), (3, true), (1 << 31, true), (u32::MAX as usize, true)]
    {
        let mut header = vec![0; HEADER_BYTES];
        Header { kind: Kind::Data, body_bytes: 0, sequence: 0, received: 0, credits: 0, crc: 0 }.seal(&mut header, true);
        header[4..8].copy_from_slice(&(body as u32).to_le_bytes());
        let mut b = End::new();
        b.feed(&header, 0);
        assert_eq!(matches!(b.lost, Some(Lost::SegmentBytes { .. })), end, "body of {body}");
    }
    let mut b = End::new();
    b.feed(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 0);
    assert_eq!(b.lost, Some(Lost::NoSegment));
}

/// A well-summed segment of any content.
fn sealed(kind: Kind, sequence: u64, received: u64, credits: u16, body: &[u8]) -> Vec<u8> {
    let mut segment = vec![0; HEADER_BYTES];
    segment.extend_from_slice(body);
    Header { kind, body_bytes: 0, sequence, received, credits, crc: 0 }.seal(&mut segment, true);
    segment
}

#[test]
fn a_segment_that_lies_ends_the_link() {
    let piece = |total: u32| [&total.to_le_bytes()[..], &[0; 60]].concat();
    let first = sealed(Kind::Piece, 0, 0, 0, &piece(100));
    let cases: [(&str, Vec<Vec<u8>>); 12] = [
        ("more credits than body", vec![sealed(Kind::Data, 0, 0, 2, &[0; 16])]),
        ("half a frame", vec![sealed(Kind::Data, 0, 0, 0, &frame(b"x")[..16])]),
        ("not even a length", vec![sealed(Kind::Data, 0, 0, 0, &u64::MAX.to_le_bytes())]),
        ("a count of what was never sent", vec![sealed(Kind::Data, 0, 8, 0, &[])]),
        ("frames after goodbye", vec![sealed(Kind::Goodbye, 0, 0, 0, &[]), sealed(Kind::Data, 1, 0, 0, &frame(b"x"))]),
        ("goodbye with frames", vec![sealed(Kind::Goodbye, 0, 0, 0, &frame(b"x"))]),
        ("second goodbye", vec![sealed(Kind::Goodbye, 0, 0, 0, &[]), sealed(Kind::Goodbye, 1, 0, 0, &[])]),
        ("frames between pieces", vec![first.clone(), sealed(Kind::Data, 1, 0, 0, &frame(b"x"))]),
        ("goodbye between pieces", vec![first.clone(), sealed(Kind::Goodbye, 1, 0, 0, &[])]),
        ("a piece too long", vec![first.clone(), sealed(Kind::Piece, 1, 0, 0, &[0; 64])]),
        ("a frame over the limit", vec![sealed(Kind::Piece, 0, 0, 0, &piece(u32::MAX))]),
        ("a small frame as piece", vec![sealed(Kind::Piece, 0, 0, 0, &piece(40))]),
    ];
    for (name, segments) in cases {
        let mut b = End::new();
        b.feed(&segments.concat(), 0);
        assert!(matches!(b.lost, Some(Lost::Malformed { .. } | Lost::Count { .. })), "{name}: {:?}", b.lost);
        assert!(b.frames.is_empty(), "{name}");
    }
    // Credits and counts may still come between pieces.
    let mut b = End::new();
    b.feed(&[first, sealed(Kind::Data, 1, 0, 1, &[7; 16]), sealed(Kind::Piece, 2, 0, 0, &[0; 56])].concat(), 0);
    assert_eq!((b.lost, b.frames.len(), b.credits.len()), (None, 120, 1));
}

#[test]
fn the_largest_frame_goes_in_pieces_and_the_pool_is_given_back() {
    let (mut a, mut b) = (End::new(), End::new());
    let largest = frame(&vec![7; wire::FRAME_PAYLOAD_BYTES_MAX]);
    assert!(a.stage(&largest));
    assert_eq!(a.send_pool.used_bytes(), largest.len());
    exchange(&mut a, &mut b, 0);
    assert!(b.frames == largest && b.lost.is_none());
    // The peer's count is due as soon as half a ring was received, so all but the last bytes are confirmed without any timer.
    assert!(a.link.confirmed_bytes() > (largest.len() - RING) as u64);
    exchange(&mut a, &mut b, REPORT_NS);
    assert!(a.link.drained());
    assert_eq!((a.send_pool.used_bytes(), b.receive_pool.used_bytes()), (0, 0));
}

#[test]
fn a_second_large_frame_waits_for_the_pool_and_then_arrives() {
    let mut b = End::new();
    b.receive_pool.take(FRAME_BYTES_MAX);
    let mut a = End::new();
    let large = frame(&[3; 30_000]);
    assert!(a.stage(&large));
    while !a.link.drained() {
        let segment = a.segment(0);
        if segment.is_empty() {
            break;
        }
        b.feed(&segment, 0);
    }
    assert!(b.frames.is_empty() && b.lost.is_none());
    b.receive_pool.give(FRAME_BYTES_MAX);
    b.feed(&[], 0);
    assert!(b.frames == large && b.lost.is_none());
    // The sender's own pool: refused, nothing taken, and accepted later.
    a.send_pool.take(FRAME_BYTES_MAX);
    assert!(!a.stage(&large));
    assert!(a.stage(&frame(b"small")));
    a.send_pool.give(FRAME_BYTES_MAX);
}

#[test]
fn what_the_peer_does_not_count_is_named_frame_by_frame_and_nothing_else() {
    let mut a = End::new();
    let mut b = End::new();
    let named = |link: &Link| {
        let mut all = Vec::new();
        link.each_unconfirmed(&mut |frames| all.extend_from_slice(frames));
        all
    };
    let frames: Vec<Vec<u8>> = (0..5).map(|i| frame(&[i; 100])).collect();
    for f in &frames[..3] {
        assert!(a.stage(f));
        let s = a.segment(0);
        b.feed(&s, 0);
    }
    assert!(a.stage(&frames[3]));
    a.segment(0);
    assert!(a.stage(&frames[4]));
    assert!(named(&a.link) == frames.concat(), "nothing was counted");
    a.feed(&b.segment(SECOND), SECOND);
    assert!(named(&a.link) == frames[3..].concat(), "sent and lost on the way; staged and never sent");
    a.link.close(&mut a.send_pool, &mut a.receive_pool);
    assert!(named(&a.link) == frames[3..].concat(), "also after the end");
}

#[test]
fn of_a_frame_in_pieces_header_and_blocks_are_named_until_its_last_piece_is_counted() {
    let (mut a, mut b) = (End::new(), End::new());
    let large = frame(&[7; 20_000]);
    assert!(a.stage(&large));
    let head = {
        let mut head = large[..wire::FRAME_HEADER_BYTES + wire::FRAME_BLOCK_BYTES_MAX].to_vec();
        head[..4].copy_from_slice(&(wire::FRAME_BLOCK_BYTES_MAX as u32).to_le_bytes());
        head
    };
    let mut now_ns = 0;
    loop {
        let mut named = Vec::new();
        a.link.each_unconfirmed(&mut |frames| named.extend_from_slice(frames));
        if a.link.confirmed_bytes() == large.len() as u64 {
            assert!(named.is_empty());
            return;
        }
        assert!(named == head && wire::are_frames(&named));
        now_ns += REPORT_NS;
        let s = a.segment(now_ns);
        b.feed(&s, now_ns);
        a.feed(&b.segment(now_ns + REPORT_NS), now_ns);
    }
}

#[test]
fn a_peer_that_counts_nothing_stops_the_sender_and_still_gets_credit_reports_and_proofs_of_life() {
    let (mut a, mut b) = (End::new(), End::new());
    let f = frame(&[1; 1000]);
    let mut staged = 0;
    while a.stage(&f) || !a.segment(0).is_empty() {
        staged += 1;
    }
    assert!(staged > 10 && a.link.room() == 0);
    assert!(b.stage(&f));
    let s = b.segment(0);
    a.feed(&s, 0);
    for (now_ns, why) in [(REPORT_NS, "a report"), (SECOND + REPORT_NS, "a proof of life")] {
        assert!(!a.segment(now_ns).is_empty(), "{why}");
    }
    a.link.grant(3, 30);
    assert!(!a.segment(2 * SECOND).is_empty(), "credit");
}

#[test]
fn room_is_exact_and_a_frame_is_staged_whole_or_not_at_all() {
    let mut a = End::new();
    let f = frame(&[0; 900]);
    let mut n = 0;
    while a.link.room() >= f.len() {
        assert!(a.stage(&f));
        n += 1;
    }
    assert!(!a.stage(&f));
    assert!(a.stage(&frame(&[])), "what fits is still taken");
    assert_eq!(a.link.staged_bytes(), (n * f.len() + 16) as u64);
    let segment = a.segment(0);
    assert!(segment.len() <= RING / 2);
    // While one is in flight the next fills; while it is not wholly written none is formed.
    assert!(a.stage(&f));
    assert!(a.link.form(0, &mut a.send_pool));
    let bytes = a.link.flight().concat();
    a.link.written(10);
    assert!(a.stage(&f) && !a.link.form(0, &mut a.send_pool));
    assert_eq!(a.link.flight().concat(), bytes[10..], "a short write goes on where it stopped");
}

#[test]
fn credits_without_data_go_at_once_the_newest_wins_and_many_are_spread() {
    let (mut a, mut b) = (End::new(), End::new());
    let n = CREDITS_MAX as u32 + 10;
    for executor in (0..n).rev() {
        a.link.grant(executor, 1);
        a.link.grant(executor, u64::from(executor) + 2);
    }
    exchange(&mut a, &mut b, 0);
    assert_eq!(b.credits, (0..n).map(|e| (e, u64::from(e) + 2)).collect::<Vec<_>>());
    assert!(!a.link.has_work());
}

#[test]
fn goodbye_from_one_side_takes_along_what_both_have_staged() {
    let (mut a, mut b) = (End::new(), End::new());
    let f = frame(b"last words");
    assert!(a.stage(&f) && b.stage(&f));
    a.link.say_goodbye();
    assert!(!a.stage(&f), "nothing is staged after the goodbye");
    exchange(&mut a, &mut b, 0);
    for end in [&mut a, &mut b] {
        assert_eq!((end.frames.as_slice(), end.lost.as_ref()), (&f[..], None));
        assert!(end.link.finished() && end.link.drained());
        assert_eq!(end.link.close(&mut end.send_pool, &mut end.receive_pool), (0, 0));
    }
}

#[test]
fn goodbyes_that_cross_on_the_way_end_both_sides_with_all_frames() {
    let (mut a, mut b) = (End::new(), End::new());
    let f = frame(b"x");
    assert!(a.stage(&f) && b.stage(&f));
    a.link.say_goodbye();
    b.link.say_goodbye();
    b.link.grant(1, 1);
    exchange(&mut a, &mut b, 0);
    assert!(a.link.finished() && b.link.finished());
    assert_eq!((&a.frames, &b.frames, &a.lost, &b.lost), (&f, &f, &None, &None));
}

#[test]
fn an_idle_link_proves_that_it_lives_and_a_silent_one_is_lost_after_four_seconds() {
    let (mut a, mut b) = (End::new(), End::new());
    assert_eq!(a.segment(SECOND - 1), []);
    assert_eq!(a.link.deadline_ns(), SECOND);
    let ping = a.segment(SECOND);
    assert_eq!(ping.len(), HEADER_BYTES, "an empty segment");
    assert_eq!(a.link.deadline_ns(), 2 * SECOND);
    b.feed(&ping, SECOND);
    assert_eq!(b.link.overdue(5 * SECOND), None);
    assert_eq!(b.link.overdue(5 * SECOND + 1), Some(Lost::Silent { silent_ns: 4 * SECOND + 1 }));
    // Half a segment is a proof of life as well: a slow network is not a dead peer.
    b.feed(&a.segment(2 * SECOND)[..5], 5 * SECOND);
    assert_eq!(b.link.overdue(9 * SECOND), None);
    // Time in which this side did not listen is not the peer's silence.
    b.link.pardon(10 * SECOND);
    assert_eq!(b.link.overdue(19 * SECOND), None);
    assert!(b.link.overdue(19 * SECOND + 1).is_some());
}

#[test]
fn what_was_received_is_reported_within_its_time_also_without_data() {
    let (mut a, mut b) = (End::new(), End::new());
    assert!(a.stage(&frame(b"x")));
    b.feed(&a.segment(0), 7);
    assert_eq!(b.segment(6 + REPORT_NS), []);
    assert_eq!(b.link.deadline_ns(), 7 + REPORT_NS);
    let report = b.segment(7 + REPORT_NS);
    assert_eq!(report.len(), HEADER_BYTES);
    assert!(!a.link.drained());
    a.feed(&report, 8 + REPORT_NS);
    assert!(a.link.drained());
    assert_eq!(b.segment(9 + REPORT_NS), [], "once");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any frames, staged as room allows, written in any cuts, read in any cuts: the same frames, once, in order.
    #[test]
    fn any_cutting_gives_the_same_frames(
        sizes in prop::collection::vec(prop_oneof![8 => 0usize..300, 1 => 3000usize..30_000], 1..60),
        cuts in prop::collection::vec(1usize..9000, 1..40),
        flush_every in 1usize..10,
    ) {
        let (mut a, mut b) = (End::new(), End::new());
        let frames: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(i, &n)| frame(&vec![i as u8; n])).collect();
        let mut cuts = cuts.iter().cycle();
        let mut wire = vec![];
        let mut waiting = frames.iter().peekable();
        let mut turn = 0;
        while waiting.peek().is_some() || a.link.has_work() || a.link.in_flight() || !wire.is_empty() {
            turn += 1;
            if waiting.peek().is_some_and(|f| a.stage(f)) {
                waiting.next();
                if turn % flush_every != 0 { continue; }
            }
            a.link.form(0, &mut a.send_pool);
            let n = a.link.flight().concat().len().min(*cuts.next().unwrap());
            wire.extend_from_slice(&a.link.flight().concat()[..n]);
            a.link.written(n);
            let n = wire.len().min(*cuts.next().unwrap());
            b.feed(&wire[..n], 0);
            wire.drain(..n);
            prop_assert_eq!(&b.lost, &None);
            // Whole segments come back, late ones a report at a time.
            let counts = b.segment(turn as u64 * REPORT_NS / 4);
            a.feed(&counts, 0);
        }
        prop_assert!(b.frames == frames.concat());
        prop_assert_eq!((a.send_pool.used_bytes(), b.receive_pool.used_bytes()), (0, 0));
        prop_assert_eq!(a.link.sent_bytes(), b.frames.len() as u64);
    }

    /// A good stream with something done to it: what is delivered is a prefix of what was sent, and nothing panics.
    #[test]
    fn a_tampered_stream_delivers_a_prefix(
        sizes in prop::collection::vec(prop_oneof![6 => 0usize..300, 1 => 5000usize..20_000], 1..20),
        at in any::<prop::sample::Index>(),
        other in any::<prop::sample::Index>(),
        how in 0..5,
        byte in 1u8..,
    ) {
        // A peer that gets everything as it is and counts it.
        let (mut a, mut peer) = (End::new(), End::new());
        let frames: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(i, &n)| frame(&vec![i as u8; n])).collect();
        let mut segments = vec![];
        let mut now_ns = 0;
        let mut next = |a: &mut End| {
            let s = a.segment(0);
            now_ns += REPORT_NS;
            peer.feed(&s, 0);
            a.feed(&peer.segment(now_ns), 0);
            s
        };
        for f in &frames {
            while !a.stage(f) {
                segments.push(next(&mut a));
            }
        }
        a.link.say_goodbye();
        loop {
            let s = next(&mut a);
            if s.is_empty() { break }
            segments.push(s);
        }
        let (i, j) = (at.index(segments.len()), other.index(segments.len()));
        let untouched = how == 1 && i == j;
        match how {
            0 => drop(segments.remove(i)),
            1 => segments.swap(i, j),
            2 => segments.insert(j, segments[i].clone()),
            3 => { let n = other.index(segments[i].len()); segments[i][n] ^= byte; }
            _ => { let n = other.index(segments[i].len()); segments[i].truncate(n); segments.truncate(i + 1); }
        }
        let mut b = End::new();
        b.feed(&segments.concat(), 0);
        let sent = frames.concat();
        prop_assert!(b.frames.len() <= sent.len() && b.frames == sent[..b.frames.len()]);
        prop_assert_eq!(b.link.end_of_stream() && b.lost.is_none(), untouched, "{:?}", b.lost);
    }

    /// Any bytes at all: an end or a wait, never a panic, never a frame.
    #[test]
    fn foreign_bytes_deliver_nothing(bytes in prop::collection::vec(any::<u8>(), 0..2000), valid_start in any::<bool>()) {
        let mut b = End::new();
        if valid_start {
            b.feed(&[0xE7, 0x5A, wire::VERSION], 0);
        }
        b.feed(&bytes, 0);
        prop_assert!(b.frames.is_empty());
    }
}
