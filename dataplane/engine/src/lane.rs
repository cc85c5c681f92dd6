//! A lane between two core loops of a worker: staging in private memory, a byte ring, and the peer's sleep word.
//!
//! Frames are copied out in bulk at a watermark and at the end of an executor's turn; the head moves once per batch. Writing frames one by
//! one into the shared ring halves the rate. No flush timer: what is staged goes out at the latest when the turn ends.

use crate::handle::{HANDLE_FRAME_BYTES, take, to_handle};
use crate::limits::{HANDLE_RING_PART, STAGING_BYTES_KEPT};
use saetta_ring::{Consumer, Producer, Sleeper, ring};
use saetta_tuple::frame::{Frame, HANDLE};
use std::sync::Arc;

/// Writing end, owned by the source loop. Frames are staged in private memory (`io.rs`) and come here in bulk.
pub(crate) struct LaneOut {
    /// Larger frames cross by handle.
    pub(crate) frame_max: usize,
    producer: Producer,
    /// The reading loop's.
    peer: Arc<Sleeper>,
}

/// Reading end, owned by the destination loop.
pub(crate) struct LaneIn {
    consumer: Consumer,
    /// The writing loop's: woken when room or credit came free.
    peer: Arc<Sleeper>,
}

/// A lane with a ring of `ring_bytes`. `reader` and `writer` are the sleep words of the two loops.
pub(crate) fn lane(ring_bytes: usize, reader: Arc<Sleeper>, writer: Arc<Sleeper>) -> std::io::Result<(LaneOut, LaneIn)> {
    let (producer, consumer) = ring(ring_bytes)?;
    Ok((LaneOut { frame_max: ring_bytes / HANDLE_RING_PART, producer, peer: reader }, LaneIn { consumer, peer: writer }))
}

impl LaneOut {
    /// Moves whole frames into the ring and wakes its reader; false = no room, and nothing moved: with hysteresis by size, what is staged goes
    /// whole or not at all.
    #[inline]
    pub(crate) fn push(&mut self, frames: &[u8]) -> bool {
        if !self.producer.push(frames) {
            return false;
        }
        self.peer.notify();
        true
    }

    /// Keeps what the next push writes in this core's cache.
    pub(crate) fn warm(&mut self) {
        self.producer.warm();
    }

    /// Bytes pushed and not yet read at the other end.
    pub(crate) fn unread_bytes(&mut self) -> usize {
        self.producer.unread()
    }
}

/// Puts a handle in place of the frame that was written at the end of `staged`, from `start` on.
#[cold]
pub(crate) fn replace_by_handle(staged: &mut Vec<u8>, start: usize) {
    let handle = to_handle(&staged[start..]);
    staged.truncate(start);
    staged.extend_from_slice(&handle);
    // One huge frame must not leave its size behind for ever.
    staged.shrink_to(STAGING_BYTES_KEPT);
}

/// Bytes of whole frames at the front of `window`: at least one, then up to `max`.
pub(crate) fn whole_frames(window: &[u8], max: usize) -> usize {
    if window.len() <= max {
        return window.len();
    }
    let mut at = 0;
    while let Some(frame) = Frame::first(&window[at..]) {
        if at > 0 && at + frame.bytes.len() > max {
            break;
        }
        at += frame.bytes.len();
    }
    at
}

/// Frees what the handles among these frames own: frames that will never be read.
pub(crate) fn drop_handles(frames: &[u8]) {
    let mut run = frames;
    while let Some(frame) = Frame::first(run) {
        drop(unhandle(&frame));
        run = &run[frame.bytes.len()..];
    }
}

impl LaneIn {
    /// Everything readable.
    #[inline(always)]
    pub(crate) fn readable(&mut self) -> &[u8] {
        self.consumer.readable()
    }

    /// For the last look before sleeping.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.consumer.is_empty()
    }

    /// Gives `n` read bytes back and wakes a writer that waits for room.
    #[inline]
    pub(crate) fn release(&mut self, n: usize) {
        self.consumer.release(n);
        self.peer.notify();
    }

    /// Tells the writer that credit came free.
    #[inline]
    pub(crate) fn notify_writer(&self) {
        self.peer.notify();
    }
}

/// The frame that a handle frame at the front of a readable run stands for; its box is the caller's now, so the handle frame must be
/// released before the lane is read again.
pub(crate) fn unhandle(frame: &Frame<'_>) -> Option<Box<[u8]>> {
    (frame.header.flags & HANDLE != 0).then(|| take(frame.bytes))
}

impl Drop for LaneIn {
    fn drop(&mut self) {
        // Frames that were never read may own memory.
        self.consumer.is_empty();
        drop_handles(self.consumer.readable());
    }
}

const _: () = assert!(HANDLE_FRAME_BYTES <= 4096 / HANDLE_RING_PART, "a handle fits the smallest ring");
