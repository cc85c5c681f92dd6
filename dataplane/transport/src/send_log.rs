//! What a link has sent or is about to send, from the first byte staged until the peer counts it: segments in a row of chunks used again.
//!
//! Before: `link.rs` stages frames. After: the same bytes are the segment a carrier writes, and, should the link end, the frames that were lost.
//! Nothing is done per frame but one copy, tracked or not; what is confirmed goes by whole segments, newest memory first.
//!
//! ```text
//!  chunk 7                            chunk 8
//!  | segment | segment | segment |    | segment | in flight | being filled ...        |
//!    `kept`, oldest first: until the peer's count passes its end             `at` `filled`
//! ```

use crate::wire::{self, CREDIT_BYTES, CREDITS_MAX, HEADER_BYTES};
use std::collections::VecDeque;
use std::ops::Range;

/// Chunks one link fills before the peer must have counted some: with reports at every chunk's worth, the sender is never idle while one is
/// on its way.
pub(crate) const CHUNKS_MAX: usize = 4;

/// A segment that was formed.
struct Kept {
    chunk: u64,
    start: usize,
    frame_bytes: usize,
    /// Part of a frame: what is lost with it is named elsewhere.
    piece: bool,
    /// Position of this direction after its frames.
    end: u64,
}

/// See the head of this file.
pub(crate) struct SendLog {
    /// Oldest first, each as long as the largest segment; never reallocated. The last one is filled.
    chunks: VecDeque<Box<[u8]>>,
    /// Number of the first.
    first: u64,
    /// Used again, last in first out: its memory is still in the cache.
    free: Vec<Box<[u8]>>,
    segment_bytes_max: usize,
    /// Where the header of the segment being filled goes.
    at: usize,
    filled: usize,
    kept: VecDeque<Kept>,
}

impl SendLog {
    pub(crate) fn new(segment_bytes_max: usize) -> Self {
        SendLog { chunks: VecDeque::new(), first: 0, free: Vec::new(), segment_bytes_max, at: 0, filled: 0, kept: VecDeque::new() }
    }

    /// Frame bytes in the segment being filled.
    #[inline]
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    /// Frame bytes the largest segment holds.
    #[inline]
    pub(crate) fn segment_room(&self) -> usize {
        self.segment_bytes_max - HEADER_BYTES
    }

    /// Frame bytes that can be added now.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        if self.filled == 0 && self.may_advance() { self.segment_room() } else { self.rest() }
    }

    /// Frame bytes that can be added to the chunk being filled.
    #[inline]
    fn rest(&self) -> usize {
        let used = if self.chunks.is_empty() { self.segment_bytes_max } else { self.at + HEADER_BYTES + self.filled };
        self.segment_bytes_max.saturating_sub(used)
    }

    fn may_advance(&self) -> bool {
        self.chunks.len() < CHUNKS_MAX
    }

    /// Copies `bytes`, at most [`SendLog::room`], behind what is being filled.
    #[inline]
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        if bytes.len() > self.rest() {
            self.advance();
        }
        let at = self.at + HEADER_BYTES + self.filled;
        self.chunks.back_mut().expect("advanced")[at..at + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }

    #[cold]
    fn advance(&mut self) {
        assert!(self.filled == 0 && self.may_advance(), "no more than `room`");
        let chunk = self.free.pop().unwrap_or_else(|| vec![0; self.segment_bytes_max].into_boxed_slice());
        self.chunks.push_back(chunk);
        self.at = 0;
    }

    /// Ends the segment being filled: writes `credits` behind its frames, as many as fit, and says where the segment lies, its header still to be
    /// written. `end` = position after its frames.
    pub(crate) fn close_segment(&mut self, credits: &mut Vec<(u32, u64)>, piece: bool, end: u64) -> Formed {
        let chunk = self.chunks.back_mut().expect("something is filled");
        let mut to = self.at + HEADER_BYTES + self.filled;
        let n_credits = credits.len().min(CREDITS_MAX).min((self.segment_bytes_max - to) / CREDIT_BYTES);
        for (executor, limit) in credits.drain(..n_credits) {
            wire::write_credit(&mut chunk[to..to + CREDIT_BYTES], executor, limit);
            to += CREDIT_BYTES;
        }
        let number = self.first + self.chunks.len() as u64 - 1;
        self.kept.push_back(Kept { chunk: number, start: self.at, frame_bytes: self.filled, piece, end });
        let formed = Formed { chunk: number, range: self.at..to, credits: n_credits as u16 };
        (self.at, self.filled) = (to, 0);
        formed
    }

    /// Memory of a chunk that still holds a segment.
    #[inline]
    pub(crate) fn chunk(&self, number: u64) -> &[u8] {
        &self.chunks[(number - self.first) as usize]
    }

    pub(crate) fn chunk_mut(&mut self, number: u64) -> &mut [u8] {
        &mut self.chunks[(number - self.first) as usize]
    }

    /// The peer counts `position`. `writing` = the newest segment is still being written.
    pub(crate) fn confirm(&mut self, position: u64, writing: bool) {
        while self.kept.front().is_some_and(|k| k.end <= position) && !(writing && self.kept.len() == 1) {
            self.kept.pop_front();
        }
        let last = self.first + (self.chunks.len() as u64).saturating_sub(1);
        let needed = self.kept.front().map_or(last, |k| k.chunk);
        while self.first < needed {
            self.free.extend(self.chunks.pop_front());
            self.first += 1;
        }
        if self.kept.is_empty() && self.filled == 0 {
            self.at = 0;
        }
    }

    /// Whole frames that were staged and that the peer did not count up to `position`, a run per call.
    pub(crate) fn each_unconfirmed(&self, position: u64, frames: &mut dyn FnMut(&[u8])) {
        for kept in self.kept.iter().filter(|k| k.end > position && !k.piece) {
            let from = kept.start + HEADER_BYTES;
            frames(&self.chunk(kept.chunk)[from..from + kept.frame_bytes]);
        }
        if let (Some(chunk), true) = (self.chunks.back(), self.filled > 0) {
            let from = self.at + HEADER_BYTES;
            frames(&chunk[from..from + self.filled]);
        }
    }
}

/// Where a formed segment lies.
pub(crate) struct Formed {
    pub(crate) chunk: u64,
    pub(crate) range: Range<usize>,
    pub(crate) credits: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: usize = 1024;

    fn log() -> SendLog {
        SendLog::new(SEGMENT)
    }

    fn lost(log: &SendLog, position: u64) -> Vec<u8> {
        let mut all = Vec::new();
        log.each_unconfirmed(position, &mut |frames| all.extend_from_slice(frames));
        all
    }

    #[test]
    fn chunks_are_taken_as_needed_up_to_their_bound_and_given_back_by_counts() {
        let mut log = log();
        let mut end = 0;
        for number in 0..CHUNKS_MAX as u64 {
            assert_eq!(log.room(), SEGMENT - HEADER_BYTES);
            log.add(&[number as u8; 992]);
            end += 992;
            assert_eq!(log.close_segment(&mut vec![], false, end).chunk, number);
        }
        assert_eq!(log.room(), 0);
        log.confirm(992, false);
        assert_eq!(log.room(), SEGMENT - HEADER_BYTES);
        assert_eq!(lost(&log, 992).len(), 3 * 992);
        assert_eq!(lost(&log, 3 * 992), [3; 992]);
    }

    #[test]
    fn small_segments_share_a_chunk_and_confirmed_memory_is_used_again_at_once() {
        let mut log = log();
        for (i, end) in [(1u8, 8u64), (2, 16), (3, 24)] {
            log.add(&[i; 8]);
            let formed = log.close_segment(&mut vec![], false, end);
            assert_eq!(formed.range, (i as usize - 1) * 40..i as usize * 40);
        }
        log.add(&[4; 8]);
        assert_eq!(lost(&log, 8), [[2; 8], [3; 8], [4; 8]].concat());
        log.close_segment(&mut vec![], false, 32);
        log.confirm(32, true);
        log.add(&[5; 8]);
        assert_eq!(log.close_segment(&mut vec![], false, 40).range.start, 160, "the one being written stays");
        log.confirm(40, false);
        log.add(&[6; 8]);
        assert_eq!(log.close_segment(&mut vec![], false, 48).range.start, 0);
    }

    #[test]
    fn credits_follow_the_frames_as_far_as_there_is_room() {
        let mut log = log();
        let mut credits = vec![(1, 10), (2, 20), (3, 30)];
        log.add(&[7; SEGMENT - HEADER_BYTES - 40]);
        let formed = log.close_segment(&mut credits, false, 952);
        assert_eq!((formed.credits, formed.range.end), (2, SEGMENT - 8));
        assert_eq!(credits, [(3, 30)]);
        assert_eq!(wire::credits(&log.chunk(0)[SEGMENT - 40..SEGMENT - 8]).collect::<Vec<_>>(), [(1, 10), (2, 20)]);
    }
}
