//! What a core loop and its carrier say to each other; the same for every carrier.
//!
//! Before: `saetta-engine`'s loop stages frames and grants credit. After: `carriers` move bytes, `link.rs` says what they mean.

use std::fmt;

/// Most links one carrier holds: `transport.links.max` of a worker bounds their sum, so none can exceed it.
pub const LINKS_MAX: usize = 256;
/// Most connections one carrier holds: two for each link.
pub const SLOTS_MAX: usize = 2 * LINKS_MAX;
/// Bytes that outgoing frames larger than a segment may hold per carrier; the same again for incoming ones. Taken only while such
/// frames are on their way. Full: the sender's `stage` says no, the receiver reads that link on when another's frame is complete.
pub const PIECE_POOL_BYTES: usize = 16 << 20;
const _: () = assert!(PIECE_POOL_BYTES >= 2 * crate::wire::FRAME_BYTES_MAX, "one stalled frame does not stop all others");
const _: () = assert!(SLOTS_MAX <= u16::MAX as usize);

/// A connection of one carrier: place and generation, so that an old id never names a newer link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(u32);

impl LinkId {
    pub(crate) fn new(place: usize, generation: u16) -> Self {
        LinkId((generation as u32) << 16 | place as u32)
    }

    pub(crate) fn from_bits(bits: u32) -> Self {
        LinkId(bits)
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// Place in the carrier, dense from 0 and below [`SLOTS_MAX`]: an index for tables kept per link. Used again after the link's end.
    pub fn place(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    pub(crate) fn generation(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

impl fmt::Debug for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {}.{}", self.place(), self.generation())
    }
}

/// What a connection is for. Two loops have one of each: consumers of control never wait for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Road {
    /// Tuples.
    Data,
    /// Acks, failures, probes, credit.
    Control,
}

/// Who is at the other end of a link, as proven in the handshake, and the sizes named there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Placement id of the peer's worker.
    pub placement: u64,
    /// Its start number.
    pub start: u64,
    /// Its index in the assignment.
    pub index: u32,
    /// Our core loop.
    pub local_loop: u32,
    /// The peer's core loop.
    pub remote_loop: u32,
    /// What the connection is for.
    pub road: Road,
    /// Our receive ring, as told to the peer.
    pub local_ring_bytes: u32,
    /// The peer's receive ring.
    pub remote_ring_bytes: u32,
}

/// How a link ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Both sides said goodbye.
    Goodbye,
    /// Anything else; one line for the log.
    Lost {
        /// What happened.
        reason: String,
    },
}

/// What is known at a link's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkEnd {
    /// Orderly or not.
    pub how: Ending,
    /// Frame bytes staged and never handed to the system: surely not received.
    pub unsent_bytes: u64,
    /// Frame bytes handed over that the peer has not counted: received or not, nobody knows, and they are never sent again.
    pub unconfirmed_bytes: u64,
}

/// What a loop does with what comes in. Called from the carrier's `poll` only. An implementation catches panics of user code itself: one
/// that unwinds through `poll` loses the completions of that poll, and with them the carrier's links.
pub trait Inbound {
    /// Whole frames back to back, in order, each within the size limit; in the link's own receive memory, which is used again after
    /// the call. Consumed entirely. Their contents are not checked.
    fn frames(&mut self, link: crate::LinkId, frames: &[u8]);
    /// The peer grants one of its executors (first task id) this cumulative limit of bytes.
    fn credit(&mut self, link: crate::LinkId, executor: u32, limit: u64);
    /// Frames that were staged and that the peer had not counted when the link ended without goodbyes, in runs of whole ones; of a frame in pieces
    /// header and blocks only, as a frame without the rest. They may or may not have arrived, and are never sent again. Just before `ended`.
    fn lost(&mut self, link: crate::LinkId, frames: &[u8]);
    /// The link is over; exactly once per link, and the last call for it.
    fn ended(&mut self, link: crate::LinkId, end: LinkEnd);
}

/// What a carrier did since it began. Counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Links taken.
    pub links_added: u64,
    /// Links ended by both goodbyes.
    pub links_goodbye: u64,
    /// Links ended otherwise.
    pub links_lost: u64,
    /// Segments formed.
    pub segments_out: u64,
    /// Segments received and found good.
    pub segments_in: u64,
    /// Frame bytes formed into segments.
    pub frame_bytes_out: u64,
    /// Frame bytes handed to the loop.
    pub frame_bytes_in: u64,
    /// Frames sent in pieces.
    pub large_out: u64,
    /// Frames received in pieces.
    pub large_in: u64,
    /// Received bytes that were copied before they were handed over: those of frames in pieces.
    pub bytes_copied: u64,
    /// Times a link waited because the pool for frames in pieces was taken.
    pub pool_waits: u64,
    /// Send operations completed.
    pub sends: u64,
    /// Of them, those that wrote less than asked.
    pub sends_short: u64,
    /// Receive operations completed.
    pub recvs: u64,
    /// Send or receive operations the system asked to repeat.
    pub retries: u64,
    /// System calls: `io_uring_enter`, or those of epoll.
    pub calls: u64,
    /// Links ended because of a wrong checksum.
    pub crc_errors: u64,
    /// Links ended because of any other wrong byte.
    pub protocol_errors: u64,
}
