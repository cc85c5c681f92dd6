//! The bytes of a link after its handshake, drawn. A stream of segments; a segment is what one write carries.
//!
//! Before: `link.rs` has frames, credits and counts to send. After: `link.rs` of the peer reads the same segment.
//! Pure layout: no state, no I/O. All integers little-endian, everything a multiple of 8 bytes.
//!
//! ```text
//! segment = header, frames, credits
//!
//!  0      2      3      4             8                    16                    24      26      28          32
//!  +------+------+------+-------------+---------------------+---------------------+-------+-------+-----------+
//!  | 5AE7 | ver  | kind | body bytes  | sequence            | received            |credits| 0     | CRC32C    |
//!  +------+------+------+-------------+---------------------+---------------------+-------+-------+-----------+
//!  | data: whole frames back to back | piece: part of one frame | goodbye: nothing                             |
//!  +-----------------------------------------------------------------------------------------------------------+
//!  | credit: executor u32, 0 u32, limit u64 |  ... `credits` times                                             |
//!  +-----------------------------------------------------------------------------------------------------------+
//!
//! body bytes   all that follows the header
//! sequence     from 0, one more with each segment of this direction
//! received     frame bytes taken from the peer so far: what the peer sent beyond it is lost when the link ends
//! CRC32C       over bytes 0..28 and the body; 0 and not looked at where no wire lies between the two sides (shared memory)
//!
//! frame = length u32 (payload and blocks), 12 more header bytes, that many bytes, zeros up to a multiple of 8
//! ```
//!
//! A frame that fits no segment travels as `piece` segments and nothing else until its last byte, save segments without frames.

use std::fmt;

/// First two bytes of every segment.
pub const MAGIC: u16 = 0x5AE7;
/// Version of this layout; the handshake has its own.
pub const VERSION: u8 = 2;
/// Bytes of a segment's header.
pub const HEADER_BYTES: usize = 32;
/// Bytes of one credit entry.
pub const CREDIT_BYTES: usize = 16;
/// Most credit entries in one segment; more go with the next one.
pub const CREDITS_MAX: usize = 256;
/// Largest segment without frames.
pub const FRAMELESS_BYTES_MAX: usize = HEADER_BYTES + CREDIT_BYTES * CREDITS_MAX;

/// Bytes of a frame's own header.
pub const FRAME_HEADER_BYTES: usize = 16;
/// Largest payload of a frame.
pub const FRAME_PAYLOAD_BYTES_MAX: usize = 4 << 20;
/// Most bytes of anchor, birth and sample blocks before the payload.
pub const FRAME_BLOCK_BYTES_MAX: usize = 256;
/// Largest whole frame.
pub const FRAME_BYTES_MAX: usize = align8(FRAME_HEADER_BYTES + FRAME_BLOCK_BYTES_MAX + FRAME_PAYLOAD_BYTES_MAX);

/// Receive ring of a link unless the caller says otherwise.
pub const RING_BYTES_DEFAULT: usize = 256 << 10;
/// Smallest receive ring either side may name.
pub const RING_BYTES_MIN: usize = 16 << 10;
/// Largest.
pub const RING_BYTES_MAX: usize = 4 << 20;

const _: () = assert!(FRAMELESS_BYTES_MAX <= RING_BYTES_MIN / 2, "the smallest ring takes the most credits in one segment");
const _: () = assert!(RING_BYTES_MAX <= u32::MAX as usize, "ring sizes travel as u32, segment bodies too");
const _: () = assert!((HEADER_BYTES | CREDIT_BYTES | FRAME_HEADER_BYTES).is_multiple_of(8), "frames begin at multiples of 8");
const _: () = assert!(CREDITS_MAX <= u16::MAX as usize);

/// The next multiple of 8.
pub const fn align8(n: usize) -> usize {
    (n + 7) & !7
}

/// Bytes of a whole frame, from the first u32 of it. Not checked against [`FRAME_BYTES_MAX`].
#[inline]
pub const fn frame_bytes(first_u32: u32) -> usize {
    align8(FRAME_HEADER_BYTES + first_u32 as usize)
}

/// Largest segment, header included, towards a peer with this receive ring: half of it, so that one can be handled while the
/// next arrives.
pub const fn segment_bytes_max(ring_bytes: usize) -> usize {
    ring_bytes / 2
}

/// True when `bytes` may be the size of a receive ring.
pub const fn ring_bytes_valid(bytes: usize) -> bool {
    bytes.is_power_of_two() && bytes >= RING_BYTES_MIN && bytes <= RING_BYTES_MAX
}

/// What a segment carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Whole frames, or none: then it brings credit, a received count or only proof of life.
    Data,
    /// Part of one frame.
    Piece,
    /// No frame follows from this side. Its absence before the stream's end means the peer was lost.
    Goodbye,
}

/// A header whose magic, version and kind were checked; its CRC was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What it carries.
    pub kind: Kind,
    /// All that follows the header.
    pub body_bytes: u32,
    /// Place in this direction's stream.
    pub sequence: u64,
    /// Frame bytes its sender has taken from us.
    pub received: u64,
    /// Credit entries at the end of the body.
    pub credits: u16,
    /// As read.
    pub crc: u32,
}

/// Bytes that no segment begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoHeader;

impl fmt::Display for NoHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes that are no segment")
    }
}

impl Header {
    /// Reads a header.
    pub fn read(b: &[u8; HEADER_BYTES]) -> Result<Header, NoHeader> {
        let kind = match b[3] {
            1 => Kind::Data,
            2 => Kind::Piece,
            3 => Kind::Goodbye,
            _ => return Err(NoHeader),
        };
        if u16_at(b, 0) != MAGIC || b[2] != VERSION || u16_at(b, 26) != 0 {
            return Err(NoHeader);
        }
        Ok(Header {
            kind,
            body_bytes: u32_at(b, 4),
            sequence: u64_at(b, 8),
            received: u64_at(b, 16),
            credits: u16_at(b, 24),
            crc: u32_at(b, 28),
        })
    }

    /// Writes the header at the front of `segment`, whose body is already there, with its CRC if it gets one. `crc` and `body_bytes` of `self` are
    /// not read.
    pub fn seal(&self, segment: &mut [u8], summed: bool) {
        let (header, body) = segment.split_first_chunk_mut().expect("a segment has its header");
        self.seal_apart(header, body, summed);
    }

    /// As [`Header::seal`], of a segment whose body lies elsewhere.
    pub fn seal_apart(&self, segment: &mut [u8; HEADER_BYTES], body: &[u8], summed: bool) {
        let body_bytes = body.len();
        segment[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        segment[2] = VERSION;
        segment[3] = match self.kind {
            Kind::Data => 1,
            Kind::Piece => 2,
            Kind::Goodbye => 3,
        };
        segment[4..8].copy_from_slice(&(body_bytes as u32).to_le_bytes());
        segment[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        segment[16..24].copy_from_slice(&self.received.to_le_bytes());
        segment[24..26].copy_from_slice(&self.credits.to_le_bytes());
        segment[26..28].fill(0);
        let crc = if summed { crc_of(segment, body) } else { 0 };
        segment[28..32].copy_from_slice(&crc.to_le_bytes());
    }
}

/// CRC32C of a whole segment, its own four bytes left out.
pub fn segment_crc(segment: &[u8]) -> u32 {
    let (header, body) = segment.split_first_chunk().expect("a segment has its header");
    crc_of(header, body)
}

fn crc_of(header: &[u8; HEADER_BYTES], body: &[u8]) -> u32 {
    let mut crc = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    crc.update(&header[..28]);
    crc.update(body);
    crc.finalize() as u32
}

/// Writes one credit entry.
pub fn write_credit(to: &mut [u8], executor: u32, limit: u64) {
    to[0..4].copy_from_slice(&executor.to_le_bytes());
    to[4..8].fill(0);
    to[8..16].copy_from_slice(&limit.to_le_bytes());
}

/// Reads credit entries; `bytes` is a multiple of [`CREDIT_BYTES`].
pub fn credits(bytes: &[u8]) -> impl Iterator<Item = (u32, u64)> + '_ {
    bytes.chunks_exact(CREDIT_BYTES).map(|c| (u32_at(c, 0), u64_at(c, 8)))
}

/// True when `bytes` are whole frames back to back, each within the limit. O(frames).
pub fn are_frames(mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let Some(first) = bytes.first_chunk::<4>() else { return false };
        let size = frame_bytes(u32::from_le_bytes(*first));
        if size > FRAME_BYTES_MAX || size > bytes.len() {
            return false;
        }
        bytes = &bytes[size..];
    }
    true
}

fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_header_reads_back_and_its_bytes_are_pinned() {
        let mut segment = vec![0u8; HEADER_BYTES + 8];
        segment[HEADER_BYTES..].copy_from_slice(b"12345678");
        let header = Header { kind: Kind::Piece, body_bytes: 8, sequence: 7, received: 9, credits: 0, crc: 0 };
        header.seal(&mut segment, true);
        let read = Header::read(segment.first_chunk().unwrap()).unwrap();
        assert_eq!(read, Header { crc: segment_crc(&segment), ..header });
        // Golden: the layout is on the wire between builds.
        assert_eq!(segment[..28], *b"\xE7\x5A\x02\x02\x08\0\0\0\x07\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(read.crc, 0xF976_782E, "as an independent CRC32C (Castagnoli) gives for the bytes above and the body");
    }

    #[test]
    fn frames_are_padded_to_eight_and_bounded() {
        assert_eq!([frame_bytes(0), frame_bytes(1), frame_bytes(8), frame_bytes(9)], [16, 24, 24, 32]);
        let mut two = vec![0u8; 16 + 24];
        two[16] = 3;
        assert!(are_frames(&two) && are_frames(&[]));
        two[16] = 9;
        assert!(!are_frames(&two), "a frame that ends behind the segment");
        assert!(!are_frames(&u32::MAX.to_le_bytes().repeat(100)));
        assert!(!are_frames(&two[..18]));
    }

    #[test]
    fn foreign_bytes_are_no_header() {
        for bad in [&[0u8; 32], b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n", &[0xff; 32]] {
            assert_eq!(Header::read(bad), Err(NoHeader));
        }
    }
}
