//! One `Link`, both its directions: the script is the peer, the wire between and the loop that stages frames, in any order.
//!
//! Before: any bytes. After: `Link`. A segment of the script is a correct peer's next one unless it asks for a deviation (any field, any part of the
//! body, before or after the checksum is made); what was sent can be flipped, cut, repeated and swapped on the way, and comes in any pieces.
//!
//! What must hold, after each step:
//! - `receive` takes a segment exactly when a second reading of wire.rs's drawing takes it, and any reason it gives for an end is true
//! - frames are delivered whole, below the limit, and as the body has them; while only a correct peer and the wire had a hand in it, they are
//!   the beginning of what that peer sent
//! - both pools hold exactly what frames on their way hold, and nothing in the end
//! - what is formed is a correct segment with the next frames staged; what is unconfirmed is named exactly

use super::Reached;
use super::input::Input;
use saetta_transport::link::{Link, Lost, Medium, PiecePool, Received, State};
use saetta_transport::wire::{self, FRAME_BYTES_MAX};
use std::collections::BTreeMap;

/// See [`super::Target`].
pub const MARKS: &[&str] = &[
    "no segment",
    "size of a segment",
    "checksum",
    "repeat",
    "gap",
    "malformed: credits",
    "malformed: frames",
    "malformed: piece",
    "malformed: after or in the goodbye",
    "malformed: between pieces",
    "count",
    "silent",
    "waits for the pool",
    "delivered frames of a segment",
    "delivered a frame of pieces",
    "delivered a frame larger than a segment",
    "credits received",
    "goodbye received",
    "segment formed",
    "piece formed",
    "goodbye formed",
    "credits formed",
    "sent and confirmed",
    "unconfirmed frames named",
    "head of an unconfirmed large frame named",
    "no room",
    "finished",
    "shared memory",
    "damaged on the way",
    "other peers hold the pool",
];

/// Steps of one execution.
const STEPS_MAX: usize = 48;
/// Receive rings of either side.
const RINGS: [usize; 2] = [16 << 10, 32 << 10];
const HEADER: usize = 32;
/// Flips in one execution: CRC32C sees any three in a segment of these sizes.
const FLIPS_MAX: u32 = 3;

/// One execution.
pub fn run(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let mut world = World::new(input.u8());
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    world.end();
    world.reached
}

struct World {
    link: Link,
    send_pool: PiecePool,
    receive_pool: PiecePool,
    /// Another link of the same carrier, with a frame in pieces, and what it holds of the receive pool.
    neighbour: Option<(Link, usize)>,
    now_ns: u64,
    granted_many: bool,
    peer: Peer,
    read: Reader,
    own: Sender,
    /// Sent by the peer and not yet read by the carrier.
    way: Vec<u8>,
    /// Read and not yet released.
    ring: Vec<u8>,
    ring_bytes: usize,
    reached: Reached,
}

impl World {
    fn new(setup: u8) -> Self {
        let (local, remote) = (RINGS[usize::from(setup & 1)], RINGS[usize::from(setup >> 1 & 1)]);
        let summed = setup & 4 == 0;
        let mut reached = Reached::default();
        if !summed {
            reached.mark(27);
        }
        World {
            link: Link::new(local, remote, if summed { Medium::Wire } else { Medium::Memory }, 0),
            send_pool: PiecePool::new(FRAME_BYTES_MAX),
            receive_pool: PiecePool::new(FRAME_BYTES_MAX),
            neighbour: None,
            now_ns: 0,
            granted_many: false,
            peer: Peer { honest: true, ..Peer::default() },
            read: Reader { segment_max: local / 2, summed, ..Reader::default() },
            own: Sender { segment_max: remote / 2, summed, ..Sender::default() },
            way: Vec::new(),
            ring: Vec::new(),
            ring_bytes: local,
            reached,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() % 20 {
            0..=3 => self.peer_sends(input),
            4 => self.peer_sends_raw(input),
            5 => self.way_damages(input),
            6..=8 => {
                let n = usize::from(input.u8());
                // 0 = all, small ones byte by byte, large ones by a good part of a segment.
                self.feed(if n == 0 {
                    usize::MAX
                } else if n < 128 {
                    n
                } else {
                    (n - 127) * 128
                });
            }
            9..=11 => self.stage(input),
            12 => self.grant(input),
            13 => self.form(),
            14 => {
                self.form();
                self.written(usize::MAX);
            }
            15 => self.written(usize::from(input.u16())),
            16 => self.time_passes(input),
            17 => {
                self.link.say_goodbye();
                self.own.goodbye_due = true;
            }
            18 => self.neighbour(input),
            _ => {
                if input.u8() == 0xC1 {
                    self.close();
                } else {
                    self.look();
                }
            }
        }
        self.check();
    }

    // ---- the peer and the way from it

    fn peer_sends(&mut self, input: &mut Input<'_>) {
        let shape = input.u8();
        let (confirmed, sent) = (self.read.confirmed, self.own.sent);
        let received = [confirmed, sent, confirmed + (sent - confirmed) / 2, self.own.written_end][usize::from(shape & 3)];
        let segment = self.peer.segment(shape >> 2, received.max(confirmed), self.read.summed, input);
        self.way.extend_from_slice(&segment);
        self.peer.last = segment;
    }

    fn peer_sends_raw(&mut self, input: &mut Input<'_>) {
        let n = usize::from(input.u8());
        self.way.extend_from_slice(input.take(n));
        self.peer.honest = false;
    }

    fn way_damages(&mut self, input: &mut Input<'_>) {
        let (what, at) = (input.u8(), usize::from(input.u16()));
        if what & 3 == 3 {
            // The last segment again.
            self.way.extend_from_slice(&self.peer.last);
            return self.reached.mark(28);
        }
        if self.way.is_empty() {
            return;
        }
        let at = at % self.way.len();
        match what & 3 {
            0 if self.peer.flips < FLIPS_MAX => {
                self.way[at] ^= 1 << (what >> 2 & 7);
                self.peer.flips += 1;
                // Nothing protects what no wire carries.
                self.peer.honest &= self.read.summed;
            }
            0 => return,
            1 => {
                self.way.truncate(at);
                self.peer.honest &= self.read.summed;
            }
            _ => {
                // The last segment before all others.
                let n = self.peer.last.len().min(self.way.len());
                self.way.rotate_right(n);
                self.peer.honest &= self.read.summed;
            }
        }
        self.reached.mark(28);
    }

    /// The carrier reads up to `n` bytes, as many as the ring takes, and hands on what they complete.
    fn feed(&mut self, n: usize) {
        let n = n.min(self.way.len()).min(self.ring_bytes - self.ring.len());
        self.ring.extend_from_slice(&self.way[..n]);
        self.way.drain(..n);
        self.link.heard(self.now_ns);
        self.read.heard_ns = self.now_ns;
        let mut released = 0;
        loop {
            self.read.lent = 0;
            let ring = &self.ring[released..];
            let free = FRAME_BYTES_MAX - self.neighbour_bytes() - self.read.assembling();
            let open = self.link.state() != State::Closed;
            let verdict = if open { self.read.judge(ring, self.own.sent, free) } else { Verdict::More };
            match (verdict, self.link.receive(ring, self.now_ns, &mut self.receive_pool)) {
                (Verdict::More, Received::More) => {
                    assert!(!open || self.ring.len() - released < self.ring_bytes / 2, "a ring this full holds a whole segment");
                    break;
                }
                (Verdict::Wait, Received::Wait) => {
                    self.reached.mark(12);
                    break;
                }
                (Verdict::Wrong(wrong), Received::Lost(lost)) => {
                    self.reached.mark(wrong.holds(&lost));
                    assert_eq!(self.link.state(), State::Closed);
                    break;
                }
                (Verdict::Segment(segment), Received::Segment { bytes, credits, frames }) => {
                    assert_eq!(bytes, segment.bytes);
                    assert_eq!(credits, segment.credits);
                    let said: Vec<_> = wire::credits(credits).collect();
                    let meant = segment.credits.chunks(16).map(|c| (u32_at(c, 0), u64_at(c, 8)));
                    assert!(said.iter().copied().eq(meant));
                    if !credits.is_empty() {
                        self.reached.mark(16);
                    }
                    let from = self.read.delivered;
                    let done = self.read.take(&segment, &mut self.reached);
                    match done {
                        Some(whole) => assert!(frames == whole, "the frame its pieces make"),
                        None if segment.kind == 2 => assert!(frames.is_empty()),
                        None => assert_eq!(frames, segment.frames),
                    }
                    check_whole(frames);
                    self.read.delivered += frames.len();
                    if self.peer.honest {
                        assert!(self.peer.said[from..].starts_with(frames), "only what a correct peer sent, in its order");
                    }
                    released += bytes;
                }
                (verdict, answer) => panic!("{verdict:?} was answered {answer:?}"),
            }
        }
        self.ring.drain(..released);
        self.own.confirmed(self.read.confirmed, &mut self.reached);
        assert_eq!(self.link.confirmed_bytes(), self.read.confirmed);
        if self.read.goodbye {
            assert!(self.link.state() != State::Open);
            self.own.goodbye_due = true;
        }
    }

    // ---- this side

    fn stage(&mut self, input: &mut Input<'_>) {
        let n = input.u8();
        let mut run = Vec::new();
        let mut ends = Vec::new();
        for _ in 0..=n & 7 {
            let len = usize::from(input.u8());
            // Mostly small; some fill segments; with the highest bit of `n`, larger than those.
            let len = if len < 192 { len } else { (len - 191) * 128 };
            self.own.push_frame(&mut run, if n & 128 == 0 { len } else { len * 4 + 8192 });
            ends.push(run.len());
            if n & 128 != 0 {
                break;
            }
        }
        let room = self.link.room();
        let with_memory = n & 64 != 0;
        let taken = if with_memory {
            let mut memory = run.clone();
            let taken = self.link.hand_over(&mut memory, &mut self.send_pool);
            assert!(memory == run[taken..], "what is not taken is left");
            taken
        } else {
            self.link.stage(&run, &mut self.send_pool)
        };
        let fits = ends.iter().rev().find(|end| **end <= room).copied().unwrap_or(0);
        let alone = self.link.state() == State::Open && self.own.large_left == 0 && self.own.filled == 0;
        if fits == 0 && alone && ends[0] > self.own.segment_max - HEADER {
            assert_eq!(taken, ends[0], "a frame larger than a segment is taken alone; the pool is its own");
            let mut head = run[..272].to_vec();
            head[..4].copy_from_slice(&256u32.to_le_bytes());
            (self.own.large_left, self.own.large_size) = (taken, taken);
            self.own.heads.push((self.own.staged.len() + taken, head));
        } else {
            // Memory that is full needs no room but its own.
            let came_along = with_memory && taken == run.len() && alone && taken <= self.own.segment_max - HEADER;
            assert!(taken == fits || came_along, "as many whole frames as there is room: {taken}, {fits}");
            self.own.filled += taken;
            if taken == 0 {
                self.reached.mark(25);
            }
        }
        self.own.staged.extend_from_slice(&run[..taken]);
        assert_eq!(self.link.staged_bytes(), self.own.staged.len() as u64);
    }

    fn grant(&mut self, input: &mut Input<'_>) {
        let (executor, limit) = (input.u8(), input.u64());
        // One, or (once) more than a segment takes.
        let many = executor == 255 && !std::mem::replace(&mut self.granted_many, true);
        for executor in u32::from(executor)..=u32::from(executor) + if many { 256 } else { 0 } {
            self.link.grant(executor, limit);
            if self.link.state() != State::Closed {
                self.own.grants.insert(executor, limit);
            }
        }
    }

    fn form(&mut self) {
        let due = self.link.has_work() || self.link.timer_due(self.now_ns);
        let may = !self.link.in_flight() && self.link.state() != State::Closed;
        let formed = self.link.form(self.now_ns, &mut self.send_pool);
        assert_eq!(formed, may && due);
        if formed {
            self.own.flight = self.link.flight().concat();
            self.own.check_segment(self.read.received, &mut self.reached);
            assert_eq!(self.link.sent_bytes(), self.own.sent);
        }
    }

    /// The carrier has written up to `n` bytes.
    fn written(&mut self, n: usize) {
        let n = n.min(self.own.flight.len());
        self.link.written(n);
        self.own.flight.drain(..n);
        assert_eq!(self.link.in_flight(), !self.own.flight.is_empty());
        if self.own.flight.is_empty() {
            self.own.written_end = self.own.sent;
        }
    }

    fn time_passes(&mut self, input: &mut Input<'_>) {
        let what = input.u8();
        let ns = u64::from(what >> 2) * 100_000_000;
        self.now_ns += ns;
        match what & 3 {
            0 => {
                self.link.pardon(ns);
                self.read.heard_ns += ns;
            }
            1 => {
                self.link.heard(self.now_ns);
                self.read.heard_ns = self.now_ns;
            }
            _ => {}
        }
        let silent_ns = self.now_ns - self.read.heard_ns.min(self.now_ns);
        let overdue = self.link.overdue(self.now_ns);
        assert_eq!(overdue, (silent_ns > 4_000_000_000).then_some(Lost::Silent { silent_ns }));
        if overdue.is_some() {
            self.reached.mark(11);
            assert!(self.link.deadline_ns() <= self.now_ns);
        }
    }

    /// A neighbour on the same pools begins a frame in pieces, or ends.
    fn neighbour(&mut self, input: &mut Input<'_>) {
        if let Some((mut link, _)) = self.neighbour.take() {
            link.close(&mut self.send_pool, &mut self.receive_pool);
            return;
        }
        let free = FRAME_BYTES_MAX - self.receive_pool.used_bytes();
        let size = align8(16 + (input.u32() as usize % FRAME_BYTES_MAX)).clamp(32, FRAME_BYTES_MAX);
        if size > free {
            return;
        }
        let mut segment = vec![0; HEADER + 16];
        segment[HEADER..HEADER + 4].copy_from_slice(&((size - 16) as u32).to_le_bytes());
        seal(&mut segment, 2, 0, 0, 0, true);
        let mut link = Link::new(RINGS[0], RINGS[0], Medium::Wire, self.now_ns);
        assert!(matches!(link.receive(&segment, self.now_ns, &mut self.receive_pool), Received::Segment { .. }));
        self.neighbour = Some((link, size));
        self.reached.mark(29);
    }

    fn neighbour_bytes(&self) -> usize {
        self.neighbour.as_ref().map_or(0, |n| n.1)
    }

    /// What a loop asks a link about.
    fn look(&mut self) {
        let mut named = Vec::new();
        self.link.each_unconfirmed(&mut |frames| {
            check_whole(frames);
            named.extend_from_slice(frames);
        });
        assert!(named == self.own.unconfirmed(&mut self.reached), "the frames that the peer does not count");
        let confirmed_all = self.read.confirmed == self.own.staged.len() as u64;
        assert_eq!(self.link.drained(), confirmed_all && self.own.flight.is_empty());
        assert_eq!(self.link.end_of_stream(), self.read.goodbye && confirmed_all, "an orderly end: it said goodbye and counts all");
        if self.link.finished() {
            assert!(self.read.goodbye && self.own.goodbye_sent && confirmed_all);
            self.reached.mark(26);
        }
    }

    /// After every step.
    fn check(&mut self) {
        assert!(self.link.flight().concat() == self.own.flight, "what is being written is not touched");
        assert_eq!(self.send_pool.used_bytes(), self.own.large_pool());
        assert_eq!(self.receive_pool.used_bytes(), self.neighbour_bytes() + self.read.assembling() + self.read.lent);
    }

    fn close(&mut self) {
        let (staged, sent) = (self.own.staged.len() as u64, self.own.sent);
        assert_eq!(self.link.close(&mut self.send_pool, &mut self.receive_pool), (staged - sent, sent - self.read.confirmed));
        (self.own.large_closed, self.read.lent, self.read.assembly) = (true, 0, None);
        self.own.grants.clear();
        assert_eq!(self.link.state(), State::Closed);
    }

    fn end(&mut self) {
        // As often as a ring's worth is on its way, and no oftener where the link waits or is over.
        for _ in 0..=self.way.len() / self.ring_bytes {
            self.feed(usize::MAX);
        }
        self.check();
        self.look();
        self.close();
        self.check();
        self.look();
        if let Some((mut link, _)) = self.neighbour.take() {
            link.close(&mut self.send_pool, &mut self.receive_pool);
        }
        assert_eq!((self.send_pool.used_bytes(), self.receive_pool.used_bytes()), (0, 0), "nothing is left in the pools");
    }
}

/// A peer that does as wire.rs says, as long as the script lets it.
#[derive(Default)]
struct Peer {
    sequence: u64,
    /// Frame bytes it meant to send, whole frames.
    said: Vec<u8>,
    /// Of the last frame of `said`, still to be sent in pieces.
    left: usize,
    /// Of that frame.
    size: usize,
    goodbye: bool,
    last: Vec<u8>,
    flips: u32,
    /// Nothing but this peer and a lossy wire made the bytes so far.
    honest: bool,
}

impl Peer {
    fn segment(&mut self, shape: u8, received: u64, summed: bool, input: &mut Input<'_>) -> Vec<u8> {
        let mut segment = vec![0; HEADER];
        let mut kind = 1;
        match shape & 3 {
            // Frames, as far as the goodbye and a frame in pieces let it.
            0 | 1 if self.left == 0 && !self.goodbye => {
                let n = input.u8();
                let from = self.said.len();
                for _ in 0..n & 7 {
                    let len = input.u8();
                    push_frame(&mut self.said, usize::from(len) * if n & 128 == 0 { 1 } else { 8 }, len);
                }
                // One segment takes 8 KiB; credits need some of it.
                let most = from + first_frames(&self.said[from..], 8192 - HEADER - 64);
                self.said.truncate(most);
                segment.extend_from_slice(&self.said[from..]);
            }
            2 if !self.goodbye => {
                kind = 2;
                let n = usize::from(input.u16());
                if self.left == 0 {
                    let from = self.said.len();
                    push_frame(&mut self.said, if n & 3 == 0 { 8192 + n / 4 } else { 9 + n % 600 }, n as u8);
                    (self.left, self.size) = (self.said.len() - from, self.said.len() - from);
                }
                // A first piece is not the whole frame; any is a multiple of 8.
                let most = (if self.left == self.size { self.left - 8 } else { self.left }).min(8192 - HEADER - 64);
                let n = (n & !7).clamp(8, most);
                let at = self.said.len() - self.left;
                segment.extend_from_slice(&self.said[at..at + n]);
                self.left -= n;
            }
            3 if self.left == 0 && !self.goodbye && shape & 4 != 0 => {
                kind = 3;
                self.goodbye = true;
            }
            _ => {}
        }
        let credits = [0, 0, 1, 3][usize::from(shape >> 3 & 3)];
        for n in 0..credits {
            segment.extend_from_slice(&[n; 4]);
            segment.extend_from_slice(&[0; 4]);
            segment.extend_from_slice(&[n ^ 0x5A; 8]);
        }
        seal(&mut segment, kind, self.sequence, received, u16::from(credits), summed);
        self.sequence = self.sequence.wrapping_add(1);
        if shape & 32 != 0 {
            self.deviate(&mut segment, summed, input);
        }
        segment
    }

    /// The script's say in any field and any part of the body; checksummed as it then is, or not.
    fn deviate(&mut self, segment: &mut Vec<u8>, summed: bool, input: &mut Input<'_>) {
        self.honest = false;
        let what = input.u8();
        if what & 1 != 0 {
            let n = u64_at(segment, 8).wrapping_add_signed(i64::from(input.u8() as i8));
            segment[8..16].copy_from_slice(&n.to_le_bytes());
            // And goes on from there, sometimes.
            if n & 1 == 0 {
                self.sequence = n.wrapping_add(1);
            }
        }
        if what & 2 != 0 {
            let n = u64_at(segment, 16).wrapping_add_signed(i64::from(input.u16() as i16));
            segment[16..24].copy_from_slice(&n.to_le_bytes());
        }
        if what & 4 != 0 {
            segment[24..26].copy_from_slice(&u16::from(input.u8()).to_le_bytes());
        }
        if what & 8 != 0 {
            let n = usize::from(input.u8());
            let body = input.take(n);
            segment.extend_from_slice(body);
            segment.resize(align8(segment.len()), 0);
            let n = (segment.len() - HEADER) as u32;
            segment[4..8].copy_from_slice(&n.to_le_bytes());
        }
        if what & 16 != 0 && segment.len() > HEADER {
            let at = HEADER + usize::from(input.u16()) % (segment.len() - HEADER);
            let bytes = input.take((segment.len() - at).min(4));
            segment[at..at + bytes.len()].copy_from_slice(bytes);
        }
        if what & 32 != 0 {
            segment[3] = input.u8() & 3;
        }
        if what & 64 != 0 {
            let at = usize::from(input.u8()) % HEADER;
            let bytes = input.take((HEADER - at).min(4));
            segment[at..at + bytes.len()].copy_from_slice(bytes);
        }
        if what & 128 == 0 && summed {
            let crc = crc(segment);
            segment[28..32].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

/// A second reading of wire.rs's drawing: what of a stream a link takes.
#[derive(Default)]
struct Reader {
    segment_max: usize,
    summed: bool,
    due: u64,
    confirmed: u64,
    /// Frame bytes taken.
    received: u64,
    delivered: usize,
    goodbye: bool,
    /// Bytes of the frame in pieces so far, and its size.
    assembly: Option<(Vec<u8>, usize)>,
    /// Bytes of the pool under the frame that was delivered last.
    lent: usize,
    heard_ns: u64,
}

#[derive(Debug)]
enum Verdict<'a> {
    More,
    Wait,
    Segment(Segment<'a>),
    Wrong(Wrong),
}

#[derive(Debug)]
struct Segment<'a> {
    bytes: usize,
    kind: u8,
    received: u64,
    frames: &'a [u8],
    credits: &'a [u8],
}

/// All that is wrong with a segment.
#[derive(Debug, Default)]
struct Wrong {
    foreign: bool,
    /// Header and body, if that is not allowed.
    size: Option<u64>,
    crc: bool,
    /// Due and got.
    sequence: Option<(u64, u64)>,
    /// Its count and what it may be.
    count: Option<(u64, u64, u64)>,
    /// Mark of the first rule its body breaks.
    body: Option<u32>,
}

impl Wrong {
    /// Whether the reason the link gave is one of those; its mark.
    fn holds(&self, lost: &Lost) -> u32 {
        let (holds, mark) = match lost {
            Lost::NoSegment => (self.foreign, 0),
            Lost::SegmentBytes { bytes, .. } => (self.size == Some(*bytes), 1),
            Lost::Crc { .. } => (self.crc, 2),
            Lost::Repeat { want, got } => (self.sequence == Some((*want, *got)) && got < want, 3),
            Lost::Gap { want, got } => (self.sequence == Some((*want, *got)) && got > want, 4),
            Lost::Count { received, confirmed, sent } => (self.count == Some((*received, *confirmed, *sent)), 10),
            Lost::Malformed { .. } => (self.body.is_some(), self.body.unwrap_or(0)),
            _ => (false, 0),
        };
        assert!(holds, "{lost:?} is not what is wrong: {self:?}");
        mark
    }
}

impl Reader {
    fn assembling(&self) -> usize {
        self.assembly.as_ref().map_or(0, |a| a.1)
    }

    fn judge<'a>(&self, ring: &'a [u8], sent: u64, pool_free: usize) -> Verdict<'a> {
        if ring.len() < HEADER {
            return Verdict::More;
        }
        let (kind, body, credits) = (ring[3], u32_at(ring, 4) as usize, usize::from(ring[24]) + 256 * usize::from(ring[25]));
        if ring[..3] != [0xE7, 0x5A, 2] || !(1..=3).contains(&kind) || ring[26..28] != [0, 0] {
            return Verdict::Wrong(Wrong { foreign: true, ..Wrong::default() });
        }
        let bytes = HEADER + body;
        if bytes > self.segment_max || !bytes.is_multiple_of(8) {
            return Verdict::Wrong(Wrong { size: Some(bytes as u64), ..Wrong::default() });
        }
        if ring.len() < bytes {
            return Verdict::More;
        }
        if credits * 16 > body {
            return Verdict::Wrong(Wrong { body: Some(5), ..Wrong::default() });
        }
        let (frames, credits) = ring[HEADER..bytes].split_at(body - credits * 16);
        if kind == 2 && self.assembly.is_none() && frames.len() >= 4 {
            let size = align8(16 + u32_at(frames, 0) as usize);
            if size <= FRAME_BYTES_MAX && size > pool_free {
                return Verdict::Wait;
            }
        }
        let (sequence, received) = (u64_at(ring, 8), u64_at(ring, 16));
        let wrong = Wrong {
            crc: self.summed && crc(&ring[..bytes]) != u32_at(ring, 28),
            sequence: (sequence != self.due).then_some((self.due, sequence)),
            count: (!(self.confirmed..=sent).contains(&received)).then_some((received, self.confirmed, sent)),
            body: self.body_wrong(kind, frames),
            ..Wrong::default()
        };
        if wrong.crc || wrong.sequence.is_some() || wrong.count.is_some() || wrong.body.is_some() {
            return Verdict::Wrong(wrong);
        }
        Verdict::Segment(Segment { bytes, kind, received, frames, credits })
    }

    /// The mark of the rule that is broken.
    fn body_wrong(&self, kind: u8, frames: &[u8]) -> Option<u32> {
        let silent = frames.is_empty() && kind == 1;
        match (kind, &self.assembly) {
            _ if silent => None,
            _ if self.goodbye => Some(8),
            (3, None) => (!frames.is_empty()).then_some(8),
            (1 | 3, Some(_)) => Some(9),
            (1, None) => (!whole(frames)).then_some(6),
            (_, None) => {
                let size = (frames.len() >= 4).then(|| align8(16 + u32_at(frames, 0) as usize));
                size.is_none_or(|size| size > FRAME_BYTES_MAX || size <= frames.len()).then_some(7)
            }
            (_, Some((begun, size))) => (frames.is_empty() || begun.len() + frames.len() > *size).then_some(7),
        }
    }

    /// Takes a segment; the frame that its piece completes.
    fn take(&mut self, segment: &Segment<'_>, reached: &mut Reached) -> Option<Vec<u8>> {
        self.due += 1;
        self.confirmed = segment.received;
        self.received += segment.frames.len() as u64;
        match segment.kind {
            2 => {
                let (bytes, size) = self.assembly.get_or_insert_with(|| (Vec::new(), align8(16 + u32_at(segment.frames, 0) as usize)));
                bytes.extend_from_slice(segment.frames);
                if bytes.len() < *size {
                    return None;
                }
                self.lent = *size;
                reached.mark(if *size > self.segment_max { 15 } else { 14 });
                return self.assembly.take().map(|a| a.0);
            }
            3 => {
                self.goodbye = true;
                reached.mark(17);
            }
            _ if !segment.frames.is_empty() => reached.mark(13),
            _ => {}
        }
        None
    }
}

/// What this side staged, and what became of it.
#[derive(Default)]
struct Sender {
    segment_max: usize,
    summed: bool,
    /// All frames taken, and those taken but not yet in a segment: `filled` bytes, or a large frame of which `large_left` are not cut off.
    staged: Vec<u8>,
    filled: usize,
    large_left: usize,
    large_size: usize,
    large_closed: bool,
    sent: u64,
    /// Wholly written up to here.
    written_end: u64,
    confirmed: u64,
    sequence: u64,
    flight: Vec<u8>,
    /// Start, end, part of a frame; those not counted.
    segments: Vec<(usize, usize, bool)>,
    /// End, header and blocks; those not counted.
    heads: Vec<(usize, Vec<u8>)>,
    grants: BTreeMap<u32, u64>,
    goodbye_due: bool,
    goodbye_sent: bool,
    n_frames: u8,
}

impl Sender {
    fn push_frame(&mut self, to: &mut Vec<u8>, len: usize) {
        self.n_frames = self.n_frames.wrapping_add(1);
        push_frame(to, len, self.n_frames);
    }

    /// What the pool holds for the frame being cut: all of it until its last piece is cut off.
    fn large_pool(&self) -> usize {
        if self.large_left > 0 && !self.large_closed { self.large_size } else { 0 }
    }

    /// The segment in flight is the next a correct peer would send.
    fn check_segment(&mut self, received: u64, reached: &mut Reached) {
        let segment = &self.flight;
        assert!(segment.len() >= HEADER && segment.len() <= self.segment_max.max(HEADER + 256 * 16) && segment.len().is_multiple_of(8));
        assert_eq!(segment[..3], [0xE7, 0x5A, 2]);
        assert_eq!(u32_at(segment, 4) as usize, segment.len() - HEADER);
        assert_eq!((u64_at(segment, 8), u64_at(segment, 16), &segment[26..28]), (self.sequence, received, &[0, 0][..]));
        assert_eq!(u32_at(segment, 28), if self.summed { crc(segment) } else { 0 });
        let n_credits = usize::from(segment[24]) + 256 * usize::from(segment[25]);
        let (frames, credits) = segment[HEADER..].split_at(segment.len() - HEADER - n_credits * 16);
        self.sequence += 1;
        let from = self.sent as usize;
        assert!(self.staged[from..].starts_with(frames), "the next bytes staged");
        self.sent += frames.len() as u64;
        match segment[3] {
            1 => {
                assert_eq!(frames.len(), self.filled);
                self.filled = 0;
                reached.mark(18);
            }
            2 => {
                assert!(self.filled == 0 && !frames.is_empty() && frames.len() <= self.large_left);
                self.large_left -= frames.len();
                reached.mark(19);
            }
            3 => {
                assert!(frames.is_empty() && self.goodbye_due && !self.goodbye_sent && self.sent as usize == self.staged.len());
                self.goodbye_sent = true;
                reached.mark(20);
            }
            kind => panic!("kind {kind}"),
        }
        if !frames.is_empty() {
            self.segments.push((from, from + frames.len(), segment[3] == 2));
        }
        for credit in credits.chunks(16) {
            assert_eq!(u32_at(credit, 4), 0);
            assert_eq!(self.grants.remove(&u32_at(credit, 0)), Some(u64_at(credit, 8)), "the newest limit, once");
            reached.mark(21);
        }
    }

    fn confirmed(&mut self, position: u64, reached: &mut Reached) {
        if position > self.confirmed {
            reached.mark(22);
        }
        self.confirmed = position;
        self.segments.retain(|s| s.1 as u64 > position);
        self.heads.retain(|h| h.0 as u64 > position);
    }

    /// Frames not counted by the peer, by whole segments; of large ones header and blocks, behind them.
    fn unconfirmed(&self, reached: &mut Reached) -> Vec<u8> {
        let mut all = Vec::new();
        for (start, end, piece) in &self.segments {
            if !piece {
                all.extend_from_slice(&self.staged[*start..*end]);
            }
        }
        all.extend_from_slice(&self.staged[self.staged.len() - self.filled..]);
        if !all.is_empty() {
            reached.mark(23);
        }
        for (_, head) in &self.heads {
            all.extend_from_slice(head);
            reached.mark(24);
        }
        all
    }
}

/// A frame of `len` bytes behind its header, told from others by `fill`.
fn push_frame(to: &mut Vec<u8>, len: usize, fill: u8) {
    let from = to.len();
    to.extend_from_slice(&(len as u32).to_le_bytes());
    to.resize(from + 16 + len, fill);
    to.resize(align8(to.len() - from) + from, 0);
}

/// Bytes of the whole frames at the front that fit into `room`.
fn first_frames(frames: &[u8], room: usize) -> usize {
    let mut at = 0;
    while at < frames.len() {
        let end = at + align8(16 + u32_at(frames, at) as usize);
        if end > room {
            break;
        }
        at = end;
    }
    at
}

/// Whole frames back to back, none over the limit.
fn whole(mut frames: &[u8]) -> bool {
    while !frames.is_empty() {
        if frames.len() < 4 {
            return false;
        }
        let size = align8(16 + u32_at(frames, 0) as usize);
        if size > FRAME_BYTES_MAX || size > frames.len() {
            return false;
        }
        frames = &frames[size..];
    }
    true
}

fn check_whole(frames: &[u8]) {
    assert!(whole(frames), "whole frames within the limit");
}

fn seal(segment: &mut [u8], kind: u8, sequence: u64, received: u64, credits: u16, summed: bool) {
    let body = (segment.len() - HEADER) as u32;
    segment[..4].copy_from_slice(&[0xE7, 0x5A, 2, kind]);
    segment[4..8].copy_from_slice(&body.to_le_bytes());
    segment[8..16].copy_from_slice(&sequence.to_le_bytes());
    segment[16..24].copy_from_slice(&received.to_le_bytes());
    segment[24..26].copy_from_slice(&credits.to_le_bytes());
    segment[26..32].fill(0);
    if summed {
        let crc = crc(segment);
        segment[28..32].copy_from_slice(&crc.to_le_bytes());
    }
}

fn crc(segment: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&segment[..28]), &segment[HEADER..])
}

fn align8(n: usize) -> usize {
    n.next_multiple_of(8)
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().expect("eight bytes"))
}
