//! What the floors between processes carry: the bytes of one of our frames, a header of 16 and a payload, rounded up to 8.
//!
//! Before: a sender has a payload. After: the receiver has read its length, its number, and what it was asked to read of the rest.

use saetta_harness::Result;

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 16;
/// Payload of a small message.
pub(crate) const SMALL: usize = 100;
/// Payload of a large one.
pub(crate) const LARGE: usize = 4096;
/// One cache line.
const LINE_BYTES: usize = 64;

/// What a message with so much payload takes.
pub(crate) const fn message_bytes(payload: usize) -> usize {
    (HEADER_BYTES + payload + 7) & !7
}

/// Writes header and number into the message's place; and `payload` between them, if there is one to write.
#[inline]
pub(crate) fn write<const PAYLOAD: usize>(place: &mut [u8], number: u64, payload: Option<&[u8; PAYLOAD]>) {
    let place = &mut place[..message_bytes(PAYLOAD)];
    let header = PAYLOAD as u128 | 7 << 32 | 1 << 64 | 2 << 96;
    place[..HEADER_BYTES].copy_from_slice(&header.to_le_bytes());
    if let Some(payload) = payload {
        place[HEADER_BYTES..HEADER_BYTES + PAYLOAD].copy_from_slice(payload);
    }
    place[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&number.to_le_bytes());
}

/// Reads messages one behind the other.
pub(crate) struct Reader {
    /// Number that is due.
    pub(crate) next: u64,
    /// Whether one byte of each line is read, not only the first and the last.
    pub(crate) lines: bool,
    pub(crate) sum: u64,
}

impl Reader {
    pub(crate) fn new(lines: bool) -> Self {
        Reader { next: 0, lines, sum: 0 }
    }

    /// Reads all whole messages at the front of `bytes`, and returns how long they are.
    ///
    /// # Errors
    /// A message that is not the next one.
    #[inline]
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut at = 0;
        while let Some(header) = bytes[at..].first_chunk::<HEADER_BYTES>() {
            let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
            let Some(message) = bytes.get(at..at + message_bytes(len)) else { break };
            let payload = &message[HEADER_BYTES..HEADER_BYTES + len];
            let number = payload.first_chunk().map(|number| u64::from_le_bytes(*number));
            if number != Some(self.next) {
                return Err(format!("message {number:?} where {} was due", self.next).into());
            }
            self.next += 1;
            self.sum += u64::from(payload[len - 1]);
            if self.lines {
                self.sum = payload.iter().step_by(LINE_BYTES).fold(self.sum, |sum, byte| sum + u64::from(*byte));
            }
            at += message.len();
        }
        // What was read counts, and nobody may leave that out.
        std::hint::black_box(self.sum);
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_messages_are_read_in_order_and_a_piece_is_left() {
        let mut bytes = vec![0; 3 * message_bytes(SMALL)];
        for (number, place) in bytes.chunks_mut(message_bytes(SMALL)).enumerate() {
            write(place, number as u64, Some(&[7; SMALL]));
        }
        assert_eq!(message_bytes(SMALL), 120);
        let mut reader = Reader::new(true);
        assert_eq!(reader.read(&bytes[..300]).expect("in order"), 240);
        assert_eq!(reader.read(&bytes[240..]).expect("in order"), 120);
        assert_eq!((reader.next, reader.sum > 0), (3, true));
        assert!(reader.read(&bytes).is_err(), "number 0 again");
    }
}
