//! Frames too large for a ring: the bytes stay on the heap and their address crosses.
//!
//! NEED: a 1 MiB line cannot lie in a 64 KiB ring, and within a process there is no reason to cut it.
//! A handle frame is an ordinary header (with `HANDLE`) and 16 bytes: address and length of a boxed slice holding the whole frame.
//! Each handle is turned back into its box exactly once: by the loop that reads the lane, or by the lane's end when it is dropped.

use saetta_tuple::frame::{HANDLE, HEADER_BYTES, Header};

/// Bytes of a handle frame.
pub(crate) const HANDLE_FRAME_BYTES: usize = HEADER_BYTES + 16;

/// Moves a whole frame to the heap and gives the frame that stands for it.
pub(crate) fn to_handle(frame: &[u8]) -> [u8; HANDLE_FRAME_BYTES] {
    let header = Header::decode(frame).expect("a whole frame");
    let boxed: Box<[u8]> = frame.into();
    let len = boxed.len() as u64;
    let address = Box::into_raw(boxed).cast::<u8>() as u64;
    let mut bytes = [0; HANDLE_FRAME_BYTES];
    bytes[..HEADER_BYTES].copy_from_slice(&Header { len: 16, flags: header.flags | HANDLE, ..header }.encode());
    bytes[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&address.to_ne_bytes());
    bytes[HEADER_BYTES + 8..].copy_from_slice(&len.to_ne_bytes());
    bytes
}

/// The frame behind a handle frame read from a lane of this process.
///
/// # Safety
/// `frame` was made by [`to_handle`] in this process and has not been given to this function before. (Frames from other processes never
/// carry `HANDLE`: `frame::check_run` refuses it at the boundary.)
pub(crate) unsafe fn from_handle(frame: &[u8]) -> Box<[u8]> {
    let word = |at: usize| u64::from_ne_bytes(frame[at..at + 8].try_into().expect("8 bytes"));
    let (address, len) = (word(HEADER_BYTES), word(HEADER_BYTES + 8));
    // SAFETY: address and length are those of a `Box<[u8]>` that `to_handle` released, and by the caller's promise it is taken once.
    unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(address as *mut u8, len as usize)) }
}

/// As [`from_handle`], for the reading end of a lane, which sees each frame once.
pub(crate) fn take(frame: &[u8]) -> Box<[u8]> {
    // SAFETY: called by `lane.rs` only: on a frame it reads from an in-process ring, once, before releasing it; only `lane.rs` writes
    // handle frames into such rings.
    unsafe { from_handle(frame) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_survives_the_way_through_its_handle() {
        let mut frame = Header { len: 100, stream: 3, flags: 0, target: 9, source: 8 }.encode().to_vec();
        frame.resize(saetta_tuple::frame::frame_bytes(100), 7);
        let handle = to_handle(&frame);
        assert_eq!(Header::decode(&handle).unwrap().target, 9);
        assert_eq!(&*take(&handle), &frame[..]);
    }
}
