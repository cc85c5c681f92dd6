//! One link, without its socket: what to write next, what received bytes mean, when the peer counts as lost.
//!
//! Before: a carrier has bytes from a socket, or a loop has frames to send. After: frames and credits go to the loop, segments to
//! the carrier. No I/O, no clock of its own: time is an argument in nanoseconds. Layout in `wire.rs`.
//!
//! ```text
//!  Open --goodbye said or received--> Draining --both said, all counts in--> Closed(goodbye)
//!    \___ gap, repeat, bad CRC, oversize, silence, end of stream without goodbye ___> Closed(lost)
//! ```
//!
//! Each frame is delivered at most once and in order. A segment whose sending was cut short is never sent again: what the peer
//! has not counted is reported when the link ends, so that its trees fail at once.

use crate::send_log::{self, SendLog};
use crate::wire::{self, CREDIT_BYTES, CREDITS_MAX, FRAME_BYTES_MAX, FRAMELESS_BYTES_MAX, HEADER_BYTES, Header, Kind};
use std::collections::VecDeque;
use std::ops::Range;

/// A link that sent nothing for so long sends an empty segment.
pub const KEEPALIVE_NS: u64 = 1_000_000_000;
/// A peer not heard for longer is lost. Counts only while this side listens, see [`Link::pardon`].
pub const SILENT_NS_MAX: u64 = 4_000_000_000;
/// Received bytes are reported to the peer no later than this.
pub const REPORT_NS: u64 = 50_000_000;
const _: () = assert!(3 * KEEPALIVE_NS < SILENT_NS_MAX, "three proofs of life fit into the silence that ends a link");
const _: () = assert!(REPORT_NS < KEEPALIVE_NS);

/// Bytes that frames in pieces may hold at one time, over all links of a carrier and per direction.
#[derive(Debug)]
pub struct PiecePool {
    used_bytes: usize,
    max_bytes: usize,
}

impl PiecePool {
    /// A pool of `max_bytes`, at least one largest frame.
    pub fn new(max_bytes: usize) -> Self {
        assert!(max_bytes >= FRAME_BYTES_MAX, "the pool holds at least one frame, else none would ever arrive");
        PiecePool { used_bytes: 0, max_bytes }
    }

    /// Bytes taken now.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    fn fits(&self, bytes: usize) -> bool {
        bytes <= self.max_bytes - self.used_bytes
    }

    fn take(&mut self, bytes: usize) {
        self.used_bytes += bytes;
        assert!(self.used_bytes <= self.max_bytes, "asked before taking");
    }

    fn give(&mut self, bytes: usize) {
        self.used_bytes -= bytes;
    }
}

/// Where a link stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Frames go both ways.
    Open,
    /// One side has said goodbye, or is about to; what is staged still goes.
    Draining,
    /// Over. Nothing is read or written any more.
    Closed,
}

/// Why a link ended without the goodbyes of both sides.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Peer: foreign bytes.
    #[error("the peer sent bytes that are no segment")]
    NoSegment,
    /// Peer: a segment that does not fit half of our ring, or is no multiple of 8.
    #[error("the peer sent a segment of {bytes} bytes, 32 to {max} are allowed")]
    SegmentBytes {
        /// Header and body.
        bytes: u64,
        /// Half of our receive ring.
        max: usize,
    },
    /// Environment: flipped bytes.
    #[error("segment {sequence} has a wrong checksum: bytes were changed on the way")]
    Crc {
        /// As its header says.
        sequence: u64,
    },
    /// Peer or environment: a segment came twice.
    #[error("segment {got} came again, {want} was due")]
    Repeat {
        /// Due.
        want: u64,
        /// Came.
        got: u64,
    },
    /// Peer or environment: a segment is missing.
    #[error("segment {want} is missing, {got} came")]
    Gap {
        /// Due.
        want: u64,
        /// Came.
        got: u64,
    },
    /// Peer: a body that is not what its kind says.
    #[error("segment {sequence} is malformed: {what}")]
    Malformed {
        /// Which.
        sequence: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Peer: counts more or less than can be.
    #[error("the peer counts {received} frame bytes received; {confirmed} to {sent} are possible")]
    Count {
        /// Its count.
        received: u64,
        /// Its count before.
        confirmed: u64,
        /// What we sent.
        sent: u64,
    },
    /// Peer or environment: nothing heard.
    #[error("the peer was silent for {} ms", silent_ns / 1_000_000)]
    Silent {
        /// For how long.
        silent_ns: u64,
    },
    /// Peer: its process ended or dropped the socket.
    #[error("the peer closed the connection without a goodbye")]
    EndOfStream,
    /// Peer: as above, after its goodbye and before it had counted what it was sent.
    #[error("the peer closed the connection after its goodbye, with {bytes} frame bytes not counted")]
    Uncounted {
        /// Staged and not counted.
        bytes: u64,
    },
    /// Environment.
    #[error("{what}: {error}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The system's text.
        error: String,
    },
    /// Caller.
    #[error("closed here")]
    ClosedHere,
}

/// What the bytes at the front of a receive ring are.
#[derive(Debug)]
pub enum Received<'a> {
    /// No whole segment yet.
    More,
    /// A whole, checked segment; release `bytes` after handling it.
    Segment {
        /// Of the ring.
        bytes: usize,
        /// Credit entries, see [`wire::credits`].
        credits: &'a [u8],
        /// Whole frames back to back; empty when the segment brought none.
        frames: &'a [u8],
    },
    /// A frame in pieces begins and the pool is taken by others: ask again later, reading nothing meanwhile.
    Wait,
    /// The link is over.
    Lost(Lost),
}

/// A frame on its way in pieces.
struct Large {
    bytes: Vec<u8>,
    /// Sender: bytes already cut off. Receiver: size of the whole frame.
    mark: usize,
}

/// Where the segment lies that a carrier writes.
#[derive(Clone, Copy)]
enum Flight {
    /// With frames: this chunk of the log.
    Log(u64),
    /// Without: `Link::spare`.
    Spare,
}

/// A frame in pieces that the peer does not count yet.
struct LargeHead {
    /// Position after it.
    end: u64,
    /// Header and blocks, as a frame without the rest.
    head: Vec<u8>,
}

/// What lies between the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Segments carry a checksum.
    Wire,
    /// Memory both map: what is written is what is read.
    Memory,
}

/// See the head of this file.
pub struct Link {
    state: State,
    summed: bool,

    /// Segments with frames, and the one being filled.
    log: SendLog,
    /// The segment without frames that was formed last.
    spare: Box<[u8]>,
    flight: Flight,
    /// What of the segment in flight is not yet written; its memory is not touched while this is not empty.
    flying: Range<usize>,
    /// Header of the segment in flight, where it does not lie before its frames.
    head: Box<[u8; HEADER_BYTES]>,
    /// What of it is not yet written; it goes first.
    flying_head: Range<usize>,
    /// Frame that fits no segment; set only while nothing else is staged behind it.
    large: Option<Large>,
    /// Those not counted yet, the one above included.
    large_heads: VecDeque<LargeHead>,
    /// Newest limit per executor not yet sent, ascending; as many as the peer has executors at most.
    grants: Vec<(u32, u64)>,
    /// `say_goodbye` was called, or the peer said it.
    goodbye_due: bool,
    goodbye_sent: bool,
    sequence_next: u64,
    /// Frame bytes taken by `stage`.
    staged_bytes: u64,
    /// Frame bytes handed to the carrier. At most `staged_bytes`.
    sent_bytes: u64,
    /// Frame bytes the peer counts. At most `sent_bytes`.
    confirmed_bytes: u64,
    last_sent_ns: u64,

    /// Half of our ring.
    segment_in_max: usize,
    sequence_due: u64,
    goodbye_received: bool,
    /// Frame bytes taken from the peer, those of unfinished pieces included.
    received_bytes: u64,
    /// What the peer was told of it.
    reported_bytes: u64,
    /// When the oldest unreported byte came.
    unreported_since_ns: u64,
    /// Pieces of the frame that is arriving.
    assembly: Option<Large>,
    /// The frame lent out by the last `receive`, until the next.
    assembled: Vec<u8>,
    last_heard_ns: u64,
}

/// Bytes one link takes at most: its receive ring, what it keeps until the peer counts it, and a segment without frames.
pub const fn link_memory_bytes(local_ring_bytes: usize, remote_ring_bytes: usize) -> usize {
    local_ring_bytes + send_log::SEGMENTS_MAX * wire::segment_bytes_max(remote_ring_bytes) + FRAMELESS_BYTES_MAX
}

impl Link {
    /// A link right after its handshake. The ring sizes are those named there.
    pub fn new(local_ring_bytes: usize, remote_ring_bytes: usize, medium: Medium, now_ns: u64) -> Self {
        assert!(wire::ring_bytes_valid(local_ring_bytes) && wire::ring_bytes_valid(remote_ring_bytes), "the handshake checks both");
        Link {
            state: State::Open,
            summed: medium == Medium::Wire,
            log: SendLog::new(wire::segment_bytes_max(remote_ring_bytes)),
            spare: vec![0; FRAMELESS_BYTES_MAX].into_boxed_slice(),
            flight: Flight::Spare,
            flying: 0..0,
            head: Box::new([0; HEADER_BYTES]),
            flying_head: 0..0,
            large: None,
            large_heads: VecDeque::new(),
            grants: Vec::new(),
            goodbye_due: false,
            goodbye_sent: false,
            sequence_next: 0,
            staged_bytes: 0,
            sent_bytes: 0,
            confirmed_bytes: 0,
            last_sent_ns: now_ns,
            segment_in_max: wire::segment_bytes_max(local_ring_bytes),
            sequence_due: 0,
            goodbye_received: false,
            received_bytes: 0,
            reported_bytes: 0,
            unreported_since_ns: now_ns,
            assembly: None,
            assembled: Vec::new(),
            last_heard_ns: now_ns,
        }
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        self.state
    }

    // ---- towards the peer

    /// Frame bytes that may still be staged. With nothing staged since the last segment, one frame of any size may be.
    #[inline]
    pub fn room(&self) -> usize {
        if self.state != State::Open || self.large.is_some() { 0 } else { self.log.room() }
    }

    /// Takes whole frames from the front of `frames`, and says how many bytes of them; those that found no room (or no pool for a frame in
    /// pieces) are asked again after the next completion. One copy; allocates only for a frame larger than a segment.
    #[inline]
    pub fn stage(&mut self, frames: &[u8], pool: &mut PiecePool) -> usize {
        debug_assert!(wire::are_frames(frames), "whole frames");
        let room = self.room();
        let n = if frames.len() <= room { frames.len() } else { fitting(frames, room) };
        if n > 0 {
            self.log.add(&frames[..n]);
        } else if !frames.is_empty() {
            return self.stage_large(frames, pool);
        }
        self.staged_bytes += n as u64;
        n
    }

    /// As [`Link::stage`], of frames that are emitted into memory of their own: much of it goes with them as it is, and other memory is left in
    /// its place. What is left in `frames` found no room.
    #[inline]
    pub fn hand_over(&mut self, frames: &mut Vec<u8>, pool: &mut PiecePool) -> usize {
        debug_assert!(wire::are_frames(frames), "whole frames");
        let n = frames.len();
        if self.state == State::Open && self.large.is_none() && self.log.take_over(frames) {
            self.staged_bytes += n as u64;
            return n;
        }
        let n = self.stage(frames, pool);
        if n == frames.len() {
            frames.clear();
        } else {
            frames.drain(..n);
        }
        n
    }

    #[cold]
    fn stage_large(&mut self, frames: &[u8], pool: &mut PiecePool) -> usize {
        let size = frames.first_chunk::<4>().map_or(0, |first| wire::frame_bytes(u32::from_le_bytes(*first)));
        let alone = self.state == State::Open && self.large.is_none() && self.log.filled() == 0;
        if size <= self.log.segment_room() || !alone {
            return 0;
        }
        assert!(size <= FRAME_BYTES_MAX, "a frame of {size} bytes: the emitter is told the limit of {FRAME_BYTES_MAX}");
        if !pool.fits(size) {
            return 0;
        }
        pool.take(size);
        self.large = Some(Large { bytes: frames[..size].to_vec(), mark: 0 });
        self.staged_bytes += size as u64;
        let mut head = frames[..wire::FRAME_HEADER_BYTES + wire::FRAME_BLOCK_BYTES_MAX].to_vec();
        head[..4].copy_from_slice(&(wire::FRAME_BLOCK_BYTES_MAX as u32).to_le_bytes());
        self.large_heads.push_back(LargeHead { end: self.staged_bytes, head });
        size
    }

    /// True while a frame in pieces waits to be cut.
    #[inline]
    pub(crate) fn large_staged(&self) -> bool {
        self.large.is_some()
    }

    /// Frame bytes in the segment being filled.
    #[inline]
    pub(crate) fn filled_bytes(&self) -> usize {
        self.log.filled()
    }

    /// Credit for one of our executors: the newest limit wins and goes with the next segment, with or without frames.
    pub fn grant(&mut self, executor: u32, limit: u64) {
        match self.grants.binary_search_by_key(&executor, |g| g.0) {
            Ok(i) => self.grants[i].1 = limit,
            Err(i) => self.grants.insert(i, (executor, limit)),
        }
    }

    /// No frame will be staged any more; what is staged still goes, then the goodbye. The peer answers with its own.
    pub fn say_goodbye(&mut self) {
        self.goodbye_due = true;
        if self.state == State::Open {
            self.state = State::Draining;
        }
    }

    /// True while the carrier holds a segment that is not wholly written.
    #[inline]
    pub fn in_flight(&self) -> bool {
        !self.flying.is_empty()
    }

    /// The unwritten rest of the segment in flight: its header, where that lies apart, and all else. Its memory stays where it is until
    /// [`Link::written`] has counted all of it.
    #[inline]
    pub fn flight(&self) -> [&[u8]; 2] {
        let rest = match self.flight {
            Flight::Log(chunk) => &self.log.chunk(chunk)[self.flying.clone()],
            Flight::Spare => &self.spare[self.flying.clone()],
        };
        [&self.head[self.flying_head.clone()], rest]
    }

    /// The carrier has written `bytes` of [`Link::flight`].
    pub fn written(&mut self, bytes: usize) {
        assert!(bytes <= self.flying_head.len() + self.flying.len(), "no more than was asked for");
        let of_head = bytes.min(self.flying_head.len());
        self.flying_head.start += of_head;
        self.flying.start += bytes - of_head;
        if self.flying.is_empty() {
            (self.flight, self.flying) = (Flight::Spare, 0..0);
        }
    }

    /// Forms the next segment, if none is in flight and there is a reason to send one. True = [`Link::flight`] has it.
    pub fn form(&mut self, now_ns: u64, pool: &mut PiecePool) -> bool {
        if self.in_flight() || self.state == State::Closed {
            return false;
        }
        let kind = if self.log.filled() > 0 {
            Kind::Data
        } else if self.large.is_some() && self.log.room() > 0 {
            self.cut_piece(pool);
            Kind::Piece
        } else if self.goodbye_may_go() {
            self.goodbye_sent = true;
            Kind::Goodbye
        } else if !self.grants.is_empty() || self.report_due(now_ns) || now_ns.saturating_sub(self.last_sent_ns) >= KEEPALIVE_NS {
            Kind::Data
        } else {
            return false;
        };
        self.sent_bytes += self.log.filled() as u64;
        let mut header = Header { kind, body_bytes: 0, sequence: self.sequence_next, received: self.received_bytes, credits: 0, crc: 0 };
        if self.log.filled() > 0 {
            let formed = self.log.close_segment(&mut self.grants, kind == Kind::Piece, self.sent_bytes);
            header.credits = formed.credits;
            let segment = &mut self.log.chunk_mut(formed.chunk)[formed.range.clone()];
            if formed.headless {
                header.seal_apart(&mut self.head, segment, self.summed);
                self.flying_head = 0..HEADER_BYTES;
            } else {
                header.seal(segment, self.summed);
            }
            (self.flight, self.flying) = (Flight::Log(formed.chunk), formed.range);
        } else {
            let n = self.grants.len().min(CREDITS_MAX);
            for (to, (executor, limit)) in self.spare[HEADER_BYTES..].chunks_exact_mut(CREDIT_BYTES).zip(self.grants.drain(..n)) {
                wire::write_credit(to, executor, limit);
            }
            header.credits = n as u16;
            let range = 0..HEADER_BYTES + n * CREDIT_BYTES;
            header.seal(&mut self.spare[range.clone()], self.summed);
            (self.flight, self.flying) = (Flight::Spare, range);
        }
        self.sequence_next += 1;
        self.reported_bytes = self.received_bytes;
        self.last_sent_ns = now_ns;
        true
    }

    /// Moves the next part of the large frame into the segment being filled, which is empty.
    fn cut_piece(&mut self, pool: &mut PiecePool) {
        let large = self.large.as_mut().expect("asked before");
        let rest = &large.bytes[large.mark..];
        let n = rest.len().min(self.log.room());
        self.log.add(&rest[..n]);
        large.mark += n;
        if large.mark == large.bytes.len() {
            pool.give(large.bytes.len());
            self.large = None;
        }
    }

    fn goodbye_may_go(&self) -> bool {
        self.goodbye_due && !self.goodbye_sent && self.large.is_none()
    }

    /// True when something waits to be formed into a segment, timers apart.
    pub fn has_work(&self) -> bool {
        let frames = self.log.filled() > 0 || (self.large.is_some() && self.log.room() > 0);
        frames || !self.grants.is_empty() || self.goodbye_may_go()
    }

    /// True when every frame staged so far has been written and the peer counts it.
    pub fn drained(&self) -> bool {
        self.confirmed_bytes == self.staged_bytes && !self.in_flight()
    }

    /// Frame bytes ever staged: the position of the next frame in this direction.
    pub fn staged_bytes(&self) -> u64 {
        self.staged_bytes
    }

    /// Frame bytes the peer counts: all frames that end at or before this position are known to have arrived.
    pub fn confirmed_bytes(&self) -> u64 {
        self.confirmed_bytes
    }

    /// Frame bytes handed to the carrier.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    // ---- from the peer

    /// Bytes came, or could not be read for a reason of ours.
    #[inline]
    pub fn heard(&mut self, now_ns: u64) {
        self.last_heard_ns = now_ns;
    }

    /// This side did not listen for `gap_ns`: the peer is not to blame for them.
    pub fn pardon(&mut self, gap_ns: u64) {
        self.last_heard_ns += gap_ns;
    }

    /// Looks at the front of the receive ring. Call again after releasing what a segment took.
    pub fn receive<'a>(&'a mut self, ring: &'a [u8], now_ns: u64, pool: &mut PiecePool) -> Received<'a> {
        if !self.assembled.is_empty() {
            pool.give(self.assembled.len());
            self.assembled = Vec::new();
        }
        if self.state == State::Closed {
            return Received::More;
        }
        let Some(head) = ring.first_chunk::<HEADER_BYTES>() else { return Received::More };
        let Ok(header) = Header::read(head) else { return self.lose(Lost::NoSegment) };
        let bytes = HEADER_BYTES as u64 + u64::from(header.body_bytes);
        if bytes > self.segment_in_max as u64 || !bytes.is_multiple_of(8) {
            return self.lose(Lost::SegmentBytes { bytes, max: self.segment_in_max });
        }
        let bytes = bytes as usize;
        let Some(segment) = ring.get(..bytes) else { return Received::More };
        let body = &segment[HEADER_BYTES..];
        let malformed = |what| Lost::Malformed { sequence: header.sequence, what };
        let Some((frames, credits)) = body.len().checked_sub(usize::from(header.credits) * CREDIT_BYTES).map(|at| body.split_at(at)) else {
            return self.lose(malformed("more credits than its body holds"));
        };
        // Before the checksum, so that a waiting segment is not summed at every turn. A length that was changed on the way only
        // waits for nothing.
        let begins = (header.kind == Kind::Piece && self.assembly.is_none()).then(|| first_piece(frames)).flatten();
        if begins.is_some_and(|size| size <= FRAME_BYTES_MAX && !pool.fits(size)) {
            return Received::Wait;
        }
        if self.summed && wire::segment_crc(segment) != header.crc {
            return self.lose(Lost::Crc { sequence: header.sequence });
        }
        let (got, want) = (header.sequence, self.sequence_due);
        if got != want {
            return self.lose(if got < want { Lost::Repeat { want, got } } else { Lost::Gap { want, got } });
        }
        if header.received < self.confirmed_bytes || header.received > self.sent_bytes {
            let (confirmed, sent) = (self.confirmed_bytes, self.sent_bytes);
            return self.lose(Lost::Count { received: header.received, confirmed, sent });
        }
        let wrong = match header.kind {
            Kind::Data if frames.is_empty() => None,
            _ if self.goodbye_received => Some("frames or a goodbye after the goodbye"),
            Kind::Data if self.assembly.is_some() => Some("frames between the pieces of a frame"),
            Kind::Data if !wire::are_frames(frames) => Some("its body is not whole frames"),
            Kind::Goodbye if !frames.is_empty() => Some("a goodbye with frames"),
            Kind::Goodbye if self.assembly.is_some() => Some("a goodbye between the pieces of a frame"),
            Kind::Piece => self.piece_wrong(frames),
            _ => None,
        };
        if let Some(what) = wrong {
            return self.lose(malformed(what));
        }

        self.sequence_due += 1;
        self.confirm(header.received);
        if !frames.is_empty() && self.received_bytes == self.reported_bytes {
            self.unreported_since_ns = now_ns;
        }
        self.received_bytes += frames.len() as u64;
        match header.kind {
            Kind::Data => Received::Segment { bytes, credits, frames },
            Kind::Goodbye => {
                self.goodbye_received = true;
                // Answered by our own, behind what is staged.
                self.say_goodbye();
                Received::Segment { bytes, credits, frames: &[] }
            }
            Kind::Piece => {
                self.add_piece(frames, pool);
                Received::Segment { bytes, credits, frames: &self.assembled }
            }
        }
    }

    fn confirm(&mut self, received: u64) {
        if received == self.confirmed_bytes {
            return;
        }
        self.confirmed_bytes = received;
        self.log.confirm(received, matches!(self.flight, Flight::Log(_)));
        while self.large_heads.front().is_some_and(|l| l.end <= received) {
            self.large_heads.pop_front();
        }
    }

    /// Frames that were staged and that the peer does not count, in runs of whole ones: what is lost if the link is. Of a frame in pieces only
    /// header and blocks, as a frame without the rest.
    pub fn each_unconfirmed(&self, frames: &mut dyn FnMut(&[u8])) {
        self.log.each_unconfirmed(self.confirmed_bytes, frames);
        self.large_heads.iter().for_each(|l| frames(&l.head));
    }

    fn piece_wrong(&self, piece: &[u8]) -> Option<&'static str> {
        match &self.assembly {
            None => match first_piece(piece) {
                None => Some("an empty piece"),
                Some(size) if size > FRAME_BYTES_MAX => Some("a frame over the limit of 4 MiB"),
                Some(size) if size <= piece.len() => Some("a whole frame sent as a piece"),
                Some(_) => None,
            },
            Some(_) if piece.is_empty() => Some("an empty piece"),
            Some(a) if piece.len() > a.mark - a.bytes.len() => Some("a piece beyond its frame's end"),
            Some(_) => None,
        }
    }

    fn add_piece(&mut self, piece: &[u8], pool: &mut PiecePool) {
        let assembly = self.assembly.get_or_insert_with(|| {
            let size = first_piece(piece).expect("checked by `piece_wrong`");
            pool.take(size);
            Large { bytes: Vec::with_capacity(size), mark: size }
        });
        assembly.bytes.extend_from_slice(piece);
        if assembly.bytes.len() == assembly.mark {
            self.assembled = self.assembly.take().expect("just filled").bytes;
        }
    }

    /// The peer's stream has ended. Returns true when that is the orderly end of the link: it said goodbye and counts all we staged.
    pub fn end_of_stream(&self) -> bool {
        self.goodbye_received && self.confirmed_bytes == self.staged_bytes
    }

    /// The peer's stream has ended, and not in order.
    pub(crate) fn lost_at_end_of_stream(&self) -> Lost {
        match self.goodbye_received {
            true => Lost::Uncounted { bytes: self.staged_bytes - self.confirmed_bytes },
            false => Lost::EndOfStream,
        }
    }

    /// Both sides have said goodbye, all is written and counted: nothing more will come.
    pub fn finished(&self) -> bool {
        self.goodbye_received
            && self.goodbye_sent
            && !self.in_flight()
            && self.confirmed_bytes == self.sent_bytes
            && self.reported_bytes == self.received_bytes
    }

    /// Ends the link here and now and gives back what it holds of the pools. Returns (frame bytes never handed to the carrier, frame
    /// bytes handed over and not counted by the peer). What is in flight, and what
    /// [`Link::each_unconfirmed`] names, stays until dropped.
    pub fn close(&mut self, send_pool: &mut PiecePool, receive_pool: &mut PiecePool) -> (u64, u64) {
        self.state = State::Closed;
        if let Some(large) = self.large.take() {
            send_pool.give(large.bytes.len());
        }
        if let Some(assembly) = self.assembly.take() {
            receive_pool.give(assembly.mark);
        }
        receive_pool.give(self.assembled.len());
        self.assembled = Vec::new();
        self.grants.clear();
        (self.staged_bytes - self.sent_bytes, self.sent_bytes - self.confirmed_bytes)
    }

    // ---- time

    /// The peer has been silent for too long.
    pub fn overdue(&self, now_ns: u64) -> Option<Lost> {
        let silent_ns = now_ns.saturating_sub(self.last_heard_ns);
        (silent_ns > SILENT_NS_MAX).then_some(Lost::Silent { silent_ns })
    }

    /// True when time alone asks for a segment: proof of life, or a received count that waits.
    pub fn timer_due(&self, now_ns: u64) -> bool {
        !self.in_flight() && (self.report_due(now_ns) || now_ns.saturating_sub(self.last_sent_ns) >= KEEPALIVE_NS)
    }

    /// When [`Link::timer_due`] or [`Link::overdue`] may next change.
    pub fn deadline_ns(&self) -> u64 {
        let silent = self.last_heard_ns + SILENT_NS_MAX + 1;
        let alive = if self.in_flight() { u64::MAX } else { self.last_sent_ns + KEEPALIVE_NS };
        let report =
            if self.received_bytes == self.reported_bytes || self.in_flight() { u64::MAX } else { self.unreported_since_ns + REPORT_NS };
        silent.min(alive).min(report)
    }

    fn report_due(&self, now_ns: u64) -> bool {
        let unreported = self.received_bytes - self.reported_bytes;
        unreported > 0
            && (unreported >= self.report_bytes()
                || self.state == State::Draining
                || now_ns.saturating_sub(self.unreported_since_ns) >= REPORT_NS)
    }

    /// Received frame bytes that are reported at once. The peer keeps what four largest segments take, and wastes less than half of it.
    fn report_bytes(&self) -> u64 {
        const { assert!(send_log::SEGMENTS_MAX == 4, "a peer has room for as much again while the report is on its way") }
        (self.segment_in_max + self.segment_in_max / 2) as u64
    }

    fn lose<'a>(&mut self, why: Lost) -> Received<'a> {
        self.state = State::Closed;
        Received::Lost(why)
    }
}

/// Bytes of the whole frames at the front of `frames` that fit into `room`.
fn fitting(frames: &[u8], room: usize) -> usize {
    let mut n = 0;
    while let Some(first) = frames[n..].first_chunk::<4>() {
        let next = n + wire::frame_bytes(u32::from_le_bytes(*first));
        if next > room {
            break;
        }
        n = next;
    }
    n
}

/// Size of the frame that a first piece begins.
fn first_piece(piece: &[u8]) -> Option<usize> {
    piece.first_chunk::<4>().map(|first| wire::frame_bytes(u32::from_le_bytes(*first)))
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
