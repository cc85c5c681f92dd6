//! The frame: one tuple with its header, as it lies in lanes, inboxes, outboxes and segments.
//!
//! ```text
//!  0        4       6      8         12        16                 16 + len
//!  | len u32 | stream | flags | target u32 | source u32 | blocks .. archive | 0 to 7 bytes of padding
//! ```
//! All little-endian. `len` counts blocks and archive exactly (rkyv finds the root from the end); a frame takes
//! `frame_bytes(len)`, a multiple of 8. `stream` is the index of (component, stream) in the topology's sorted list.
//! Blocks of 16 bytes in this order, each present when flagged: sample (nanoseconds of the spout's emit and of this hop's, sampled tuples
//! only), then up to four anchors (root, edge).
//! A frame whose `HANDLE` flag is set lies in process memory: its 16 payload bytes are address and length.
//! A frame whose `CONTROL` flag is set is no tuple: acks and the like, for the loop itself; its `stream` says what.

/// Bytes of a header.
pub const HEADER_BYTES: usize = 16;
/// A sample block follows the header.
pub const SAMPLE: u16 = 1;
/// The payload is a handle to process memory; never on a wire.
pub const HANDLE: u16 = 2;
/// No tuple: the source task has ended, and nothing of it follows on this lane.
pub const END: u16 = 4;
/// No tuple: a message of the control road.
pub const CONTROL: u16 = 8;
/// No tuple: a mark of the data road, behind what was sent before it. Its `stream` says what it marks.
pub const MARKER: u16 = END | CONTROL;
/// Where the number of anchor blocks stands in the flags.
pub const ANCHORS_SHIFT: u32 = 4;
/// Anchors one frame carries at most.
pub const ANCHORS_MAX: usize = 4;
/// The bits of the number of anchor blocks.
pub const ANCHORS_MASK: u16 = 7 << ANCHORS_SHIFT;
/// A tuple that keeps the way of others warm: nothing comes of it. Within one process only.
pub const WARM: u16 = 1 << 7;
/// The flags a peer may set.
pub const WIRE_FLAGS: u16 = SAMPLE | END | CONTROL | ANCHORS_MASK;
/// Bytes of one block.
pub const BLOCK_BYTES: usize = 16;
/// A block as two words.
pub type Block = [u64; 2];
/// Blocks one frame carries at most.
pub const BLOCKS_MAX: usize = 1 + ANCHORS_MAX;

/// Blocks that these flags announce.
#[inline(always)]
pub const fn blocks_of(flags: u16) -> usize {
    (flags & SAMPLE) as usize + ((flags & ANCHORS_MASK) >> ANCHORS_SHIFT) as usize
}

/// Total bytes of a frame whose payload has `len` bytes.
#[inline(always)]
pub const fn frame_bytes(len: usize) -> usize {
    (HEADER_BYTES + len + 7) & !7
}

/// A header, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of blocks and archive.
    pub len: u32,
    /// Index of the stream in the topology.
    pub stream: u16,
    /// `SAMPLE`, `HANDLE`, `END`, `CONTROL`, number of anchors.
    pub flags: u16,
    /// Receiving task.
    pub target: u32,
    /// Emitting task.
    pub source: u32,
}

impl Header {
    /// As bytes.
    #[inline(always)]
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let low = u64::from(self.len) | u64::from(self.stream) << 32 | u64::from(self.flags) << 48;
        let high = u64::from(self.target) | u64::from(self.source) << 32;
        (u128::from(low) | u128::from(high) << 64).to_le_bytes()
    }

    /// From the first bytes of a frame; `None` when fewer than a header's.
    #[inline(always)]
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let raw = u128::from_le_bytes(*bytes.first_chunk::<HEADER_BYTES>()?);
        Some(Header {
            len: raw as u32,
            stream: (raw >> 32) as u16,
            flags: (raw >> 48) as u16,
            target: (raw >> 64) as u32,
            source: (raw >> 96) as u32,
        })
    }

    /// Total bytes of the frame.
    #[inline(always)]
    pub fn frame_bytes(self) -> usize {
        frame_bytes(self.len as usize)
    }
}

/// One whole frame, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// Its header.
    pub header: Header,
    /// Header, blocks, archive and padding.
    pub bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Takes the first frame of a run of whole frames; `None` at the end. Panics on a torn run: runs are made of whole frames by
    /// whoever wrote them (a lane, a link that checked them), so that would be a bug here.
    #[inline(always)]
    pub fn first(run: &'a [u8]) -> Option<Frame<'a>> {
        let header = Header::decode(run)?;
        Some(Frame { header, bytes: &run[..header.frame_bytes()] })
    }

    /// Block number `n`, of those the flags announce.
    #[inline(always)]
    pub fn block(&self, n: usize) -> Block {
        let words = &self.bytes[HEADER_BYTES + n * BLOCK_BYTES..][..BLOCK_BYTES];
        let (root, edge) = words.split_first_chunk::<8>().expect("announced by the flags");
        [u64::from_le_bytes(*root), u64::from_le_bytes(*edge.first_chunk().expect("sixteen bytes"))]
    }

    /// The archive.
    #[inline(always)]
    pub fn archive(&self) -> &'a [u8] {
        &self.bytes[HEADER_BYTES + blocks_of(self.header.flags) * BLOCK_BYTES..HEADER_BYTES + self.header.len as usize]
    }
}

/// Checks bytes from a peer as a run of whole frames with sane headers. Does not look into archives. Errors name the rule.
pub fn check_run(mut run: &[u8]) -> Result<(), &'static str> {
    while !run.is_empty() {
        let header = Header::decode(run).ok_or("a frame header is cut")?;
        if header.len as usize > crate::TUPLE_BYTES_MAX {
            return Err("a frame is longer than 4 MiB");
        }
        if header.flags & !WIRE_FLAGS != 0 {
            return Err("a frame carries an unknown flag");
        }
        if header.flags & ANCHORS_MASK > (ANCHORS_MAX as u16) << ANCHORS_SHIFT {
            return Err("a frame has more than four anchors");
        }
        if (header.len as usize) < blocks_of(header.flags) * BLOCK_BYTES {
            return Err("a frame is shorter than its blocks");
        }
        run = run.get(header.frame_bytes()..).ok_or("a frame is cut")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_sixteen_bytes_and_reads_back() {
        let header = Header { len: 0x0102_0304, stream: 0x1122, flags: SAMPLE, target: 7, source: u32::MAX };
        let bytes = header.encode();
        assert_eq!(bytes[..8], [4, 3, 2, 1, 0x22, 0x11, 1, 0]);
        assert_eq!(Header::decode(&bytes), Some(header));
        assert_eq!(Header::decode(&bytes[..15]), None);
    }

    #[test]
    fn frames_take_multiples_of_eight() {
        assert_eq!([0, 1, 8, 9].map(frame_bytes), [16, 24, 24, 32]);
    }

    #[test]
    fn a_run_from_a_peer_is_checked_header_by_header() {
        let frame = |len: u32, flags| {
            let mut bytes = Header { len, stream: 0, flags, target: 1, source: 1 }.encode().to_vec();
            bytes.resize(frame_bytes(len as usize), 0);
            bytes
        };
        let good = [frame(3, 0), frame(16, SAMPLE), frame(0, 0)].concat();
        assert_eq!(check_run(&good), Ok(()));
        for cut in 1..good.len() {
            let whole = [24, 56].contains(&cut);
            assert_eq!(check_run(&good[..cut]).is_ok(), whole, "cut at {cut}");
        }
        assert!(check_run(&frame(16, HANDLE)).is_err(), "a handle from outside would be an address of the peer's choice");
        assert!(check_run(&frame(15, SAMPLE)).is_err());
        assert!(check_run(&frame(31, 2 << ANCHORS_SHIFT)).is_err() && check_run(&frame(32, 2 << ANCHORS_SHIFT)).is_ok());
        assert!(check_run(&frame(200, 5 << ANCHORS_SHIFT)).is_err());
        assert!(check_run(&Header { len: u32::MAX, stream: 0, flags: 0, target: 0, source: 0 }.encode()).is_err());
    }
}
