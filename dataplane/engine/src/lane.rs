//! A lane between two core loops of a worker: staging in private memory, a byte ring, and the peer's sleep word.
//!
//! Frames are copied out in bulk at a watermark and at the end of an executor's turn; the head moves once per batch. Writing frames one by
//! one into the shared ring halves the rate. No flush timer: what is staged goes out at the latest when the turn ends.

use crate::handle::{HANDLE_FRAME_BYTES, take, to_handle};
use crate::limits::{HANDLE_RING_PART, WATERMARK_BYTES};
use saetta_ring::{Consumer, Producer, Sleeper, ring};
use saetta_tuple::frame::{Frame, HANDLE};
use std::sync::Arc;

/// Writing end, owned by the source loop.
pub(crate) struct LaneOut {
    /// Whole frames not yet in the ring. At most `staging_max` plus one frame of at most `frame_max`.
    pub(crate) staging: Vec<u8>,
    staging_max: usize,
    /// Larger frames cross by handle.
    frame_max: usize,
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
    let frame_max = ring_bytes / HANDLE_RING_PART;
    let staging_max = ring_bytes / HANDLE_RING_PART;
    let staging = Vec::with_capacity(staging_max + frame_max);
    Ok((LaneOut { staging, staging_max, frame_max, producer, peer: reader }, LaneIn { consumer, peer: writer }))
}

impl LaneOut {
    /// True when one more frame may be staged.
    #[inline(always)]
    pub(crate) fn has_room(&mut self) -> bool {
        self.staging.len() < self.staging_max || self.flush()
    }

    /// A whole frame was written at the end of `staging`, from `start` on. Only after [`Self::has_room`].
    #[inline(always)]
    pub(crate) fn staged(&mut self, start: usize) {
        if self.staging.len() - start > self.frame_max {
            self.replace_by_handle(start);
        }
        if self.staging.len() >= WATERMARK_BYTES {
            self.flush();
        }
    }

    #[cold]
    fn replace_by_handle(&mut self, start: usize) {
        let handle = to_handle(&self.staging[start..]);
        self.staging.truncate(start);
        self.staging.extend_from_slice(&handle);
        // One huge frame must not leave its size behind for ever.
        self.staging.shrink_to(self.staging_max + self.frame_max);
    }

    /// Moves everything staged into the ring and wakes its reader; false = no room, everything stays. With hysteresis by size: what is
    /// staged goes whole or not at all.
    #[inline]
    pub(crate) fn flush(&mut self) -> bool {
        if self.staging.is_empty() {
            return true;
        }
        if !self.producer.push(&self.staging) {
            return false;
        }
        self.staging.clear();
        self.peer.notify();
        true
    }

    /// Bytes not yet read at the other end.
    pub(crate) fn unread_bytes(&mut self) -> usize {
        self.staging.len() + self.producer.unread()
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
        let mut run = self.consumer.readable();
        while let Some(frame) = Frame::first(run) {
            drop(unhandle(&frame));
            run = &run[frame.bytes.len()..];
        }
    }
}

impl Drop for LaneOut {
    fn drop(&mut self) {
        let mut run = &self.staging[..];
        while let Some(frame) = Frame::first(run) {
            drop(unhandle(&frame));
            run = &run[frame.bytes.len()..];
        }
    }
}

const _: () = assert!(HANDLE_FRAME_BYTES <= 4096 / HANDLE_RING_PART, "a handle fits the smallest ring");
