//! xxh3-64 of u32 length + bytes, for texts of at most twelve bytes: what most words, symbols and account numbers are.
//!
//! Before: `key.rs` has a text that is a key by itself. After: the number that `xxhash-rust` gives for the same bytes (a test holds them together).
//! NEED: the key had to be put together in memory to be hashed, and its hash waited for those stores; here it never leaves the registers.
//! The formula is that of the xxHash specification for inputs of 4 to 8 and of 9 to 16 bytes, seed 0.

/// Eight bytes of the specification's secret, XORed with eight others as it says: at 8 and 16, 24 and 32, 40 and 48.
const FLIP_TO_8: u64 = 0x1cad_21f7_2c81_017c ^ 0xdb97_9083_e96d_d4de;
const FLIP_LOW: u64 = 0x1f67_b3b7_a4a4_4072 ^ 0x78e5_c0cc_4ee6_79cb;
const FLIP_HIGH: u64 = 0x2172_ffcc_7dd0_5a82 ^ 0x8e24_43f7_7446_08b8;
const MIX: u64 = 0x9fb2_1c65_1e98_df25;
const AVALANCHE: u64 = 0x1656_6791_9e37_79f9;

/// `None` for a longer text.
#[inline(always)]
pub(crate) fn hash(bytes: &[u8]) -> Option<u64> {
    let n = bytes.len();
    match n {
        0..=4 => {
            let text = match n {
                4 => word4(bytes, 0),
                2..=3 => u64::from(bytes[0]) | u64::from(bytes[n / 2]) << 8 | u64::from(bytes[n - 1]) << (8 * (n - 1)),
                1 => u64::from(bytes[0]),
                _ => 0,
            };
            // Length and text as they would lie in memory; the last four bytes of them, then the first four.
            let whole = n as u64 | text << 32;
            Some(to_8((whole >> (8 * n)) & 0xffff_ffff | (n as u64) << 32, n as u64 + 4))
        }
        5..=12 => {
            let first = n as u64 | word4(bytes, 0) << 32;
            // The last eight bytes: of the text, or of length and text when it has fewer.
            let last = match n {
                8.. => word8(bytes, n - 8),
                _ => word4(bytes, n - 4) << 32 | (first >> (8 * (n - 4))) & 0xffff_ffff,
            };
            Some(to_16(first, last, n as u64 + 4))
        }
        _ => None,
    }
}

#[inline(always)]
fn word4(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes")))
}

#[inline(always)]
fn word8(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("eight bytes"))
}

/// Of 4 to 8 bytes: the first four in the upper half, the last four in the lower.
#[inline(always)]
fn to_8(ends: u64, len: u64) -> u64 {
    let mut h = ends ^ FLIP_TO_8;
    h ^= h.rotate_left(49) ^ h.rotate_left(24);
    h = h.wrapping_mul(MIX);
    h ^= (h >> 35) + len;
    h = h.wrapping_mul(MIX);
    h ^ (h >> 28)
}

/// Of 9 to 16 bytes: the first eight and the last eight.
#[inline(always)]
fn to_16(first: u64, last: u64, len: u64) -> u64 {
    let (low, high) = (first ^ FLIP_LOW, last ^ FLIP_HIGH);
    let product = u128::from(low) * u128::from(high);
    let folded = product as u64 ^ (product >> 64) as u64;
    let mut h = len.wrapping_add(low.swap_bytes()).wrapping_add(high).wrapping_add(folded);
    h ^= h >> 37;
    h = h.wrapping_mul(AVALANCHE);
    h ^ (h >> 32)
}
