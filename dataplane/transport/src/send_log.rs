//! What a link has sent or is about to send, from the first byte staged until the peer counts it: segments in a row of chunks used again.
//!
//! Before: `link.rs` stages frames. After: the same bytes are the segment a carrier writes, and, should the link end, the frames that were lost.
//! Frames come by copy, behind others in a chunk, or with the memory they were emitted into, which then is a chunk. Nothing is done per frame;
//! what is confirmed goes by whole segments, newest memory first.
//!
//! ```text
//!  chunk 7                            chunk 8           chunk 9, taken over
//!  | segment | segment | segment |    | segment |       | in flight: its header lies elsewhere |
//!    `kept`, oldest first: until the peer's count passes its end
//! ```

use crate::wire::{self, CREDIT_BYTES, CREDITS_MAX, HEADER_BYTES};
use std::collections::VecDeque;
use std::ops::Range;

/// Largest segments one link keeps memory for before the peer must have counted some. It reports at one and a half, so the sender is not idle
/// while a report is on its way, also where half of each chunk is wasted.
pub(crate) const SEGMENTS_MAX: usize = 4;
/// Part of their memory that frames must fill to come with it: what is kept is memory, not bytes. And little memory is soon copied, while little
/// or nothing could be added to it.
const FULL_ENOUGH: (usize, usize) = (3, 4);

/// A segment that was formed.
struct Kept {
    chunk: u64,
    /// Where its frames begin.
    start: usize,
    frame_bytes: usize,
    /// Part of a frame: what is lost with it is named elsewhere.
    piece: bool,
    /// Position of this direction after its frames.
    end: u64,
}

/// See the head of this file.
pub(crate) struct SendLog {
    /// Oldest first, none larger than the largest segment; never reallocated. The last one is filled.
    chunks: VecDeque<Vec<u8>>,
    /// Number of the first.
    first: u64,
    /// Memory of all chunks.
    capacity: usize,
    /// Used again, last in first out: its memory is still in the cache. As large as a largest segment, and as taken over.
    free: [Vec<Vec<u8>>; 2],
    segment_bytes_max: usize,
    /// Where the segment being filled begins in its chunk.
    at: usize,
    /// Room for its header before its frames; 0 where these were taken over.
    head: usize,
    filled: usize,
    kept: VecDeque<Kept>,
}

impl SendLog {
    pub(crate) fn new(segment_bytes_max: usize) -> Self {
        SendLog {
            chunks: VecDeque::new(),
            first: 0,
            capacity: 0,
            free: [Vec::new(), Vec::new()],
            segment_bytes_max,
            at: 0,
            head: HEADER_BYTES,
            filled: 0,
            kept: VecDeque::new(),
        }
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
        if self.filled == 0 && self.may_advance(self.segment_bytes_max) { self.segment_room() } else { self.rest() }
    }

    /// Frame bytes that can be added to the chunk being filled.
    #[inline]
    fn rest(&self) -> usize {
        let Some(chunk) = self.chunks.back() else { return 0 };
        // The header's room is taken with the first frame.
        let head = if self.filled == 0 { HEADER_BYTES } else { 0 };
        self.limit(chunk).saturating_sub(chunk.len() + head)
    }

    /// Bytes of the chunk being filled at most.
    #[inline]
    fn limit(&self, chunk: &Vec<u8>) -> usize {
        let headless = self.filled > 0 && self.head == 0;
        chunk.capacity().min(self.segment_bytes_max - if headless { HEADER_BYTES } else { 0 })
    }

    fn may_advance(&self, bytes: usize) -> bool {
        self.capacity + bytes <= self.bytes_max()
    }

    /// Copies `bytes`, at most [`SendLog::room`], behind what is being filled.
    #[inline]
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        if bytes.len() > self.rest() {
            self.advance();
        }
        let chunk = self.chunks.back_mut().expect("advanced");
        if self.filled == 0 {
            (self.at, self.head) = (chunk.len(), HEADER_BYTES);
            chunk.extend_from_slice(&[0; HEADER_BYTES]);
        }
        chunk.extend_from_slice(bytes);
        self.filled += bytes.len();
    }

    #[cold]
    fn advance(&mut self) {
        assert!(self.filled == 0 && self.may_advance(self.segment_bytes_max), "no more than `room`");
        let chunk = self.free[0].pop().unwrap_or_else(|| Vec::with_capacity(self.segment_bytes_max));
        self.push(chunk);
    }

    fn push(&mut self, chunk: Vec<u8>) {
        self.capacity += chunk.capacity();
        self.chunks.push_back(chunk);
        // Memory of the other size is not kept beside as much as there may be of this one.
        for size in [0, 1] {
            while self.capacity + self.free_bytes() > self.bytes_max() && self.free[size].pop().is_some() {}
        }
    }

    fn free_bytes(&self) -> usize {
        self.free.iter().flatten().map(Vec::capacity).sum()
    }

    fn bytes_max(&self) -> usize {
        SEGMENTS_MAX * self.segment_bytes_max
    }

    /// Takes `frames` with their memory, and leaves other memory of the size in its place; false = not now, or not worth it.
    #[inline]
    pub(crate) fn take_over(&mut self, frames: &mut Vec<u8>) -> bool {
        let (bytes, capacity) = (frames.len(), frames.capacity());
        let enough = bytes * FULL_ENOUGH.1 >= capacity * FULL_ENOUGH.0 && capacity * 2 >= self.segment_bytes_max;
        if !enough || self.filled > 0 || bytes > self.segment_room() || capacity > self.segment_bytes_max || !self.may_advance(capacity) {
            return false;
        }
        let other = match self.free[1].pop() {
            Some(other) if other.capacity() >= capacity => other,
            _ => Vec::with_capacity(capacity),
        };
        self.push(std::mem::replace(frames, other));
        (self.at, self.head, self.filled) = (0, 0, bytes);
        true
    }

    /// Ends the segment being filled: writes `credits` behind its frames, as many as fit, and says where the segment lies, its header still to be
    /// written. `end` = position after its frames.
    pub(crate) fn close_segment(&mut self, credits: &mut Vec<(u32, u64)>, piece: bool, end: u64) -> Formed {
        let n_credits = credits.len().min(CREDITS_MAX).min(self.rest() / CREDIT_BYTES);
        let chunk = self.chunks.back_mut().expect("something is filled");
        for (executor, limit) in credits.drain(..n_credits) {
            let mut credit = [0; CREDIT_BYTES];
            wire::write_credit(&mut credit, executor, limit);
            chunk.extend_from_slice(&credit);
        }
        let to = chunk.len();
        let number = self.first + self.chunks.len() as u64 - 1;
        self.kept.push_back(Kept { chunk: number, start: self.at + self.head, frame_bytes: self.filled, piece, end });
        let formed = Formed { chunk: number, range: self.at..to, headless: self.head == 0, credits: n_credits as u16 };
        self.filled = 0;
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
            if let Some(chunk) = self.chunks.pop_front() {
                self.release(chunk);
            }
            self.first += 1;
        }
        if self.kept.is_empty() && self.filled == 0 {
            // One of our own stays, to be filled again.
            match self.chunks.back_mut() {
                Some(chunk) if chunk.capacity() == self.segment_bytes_max => chunk.clear(),
                Some(_) => {
                    let chunk = self.chunks.pop_back().expect("there is one");
                    self.release(chunk);
                    self.first += 1;
                }
                None => {}
            }
        }
    }

    fn release(&mut self, mut chunk: Vec<u8>) {
        chunk.clear();
        self.capacity -= chunk.capacity();
        let taken_over = chunk.capacity() != self.segment_bytes_max;
        self.free[usize::from(taken_over)].push(chunk);
    }

    /// Whole frames that were staged and that the peer did not count up to `position`, a run per call.
    pub(crate) fn each_unconfirmed(&self, position: u64, frames: &mut dyn FnMut(&[u8])) {
        for kept in self.kept.iter().filter(|k| k.end > position && !k.piece) {
            frames(&self.chunk(kept.chunk)[kept.start..kept.start + kept.frame_bytes]);
        }
        if let (Some(chunk), true) = (self.chunks.back(), self.filled > 0) {
            let from = self.at + self.head;
            frames(&chunk[from..from + self.filled]);
        }
    }
}

/// Where a formed segment lies.
pub(crate) struct Formed {
    pub(crate) chunk: u64,
    pub(crate) range: Range<usize>,
    /// Its header does not lie before its frames.
    pub(crate) headless: bool,
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
        for number in 0..SEGMENTS_MAX as u64 {
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

    fn taken_over(byte: u8, bytes: usize) -> Vec<u8> {
        let mut frames = Vec::with_capacity(512);
        frames.resize(bytes, byte);
        frames
    }

    #[test]
    fn frames_come_with_their_memory_when_that_is_full_enough() {
        let mut log = log();
        assert!(!log.take_over(&mut taken_over(1, 376)), "not worth it");
        assert!(!log.take_over(&mut taken_over(1, 1000)), "no segment holds it");
        let mut frames = taken_over(1, 384);
        let memory = frames.as_ptr();
        assert!(log.take_over(&mut frames));
        assert_eq!((frames.len(), frames.capacity(), log.filled()), (0, 512, 384));
        assert!(!log.take_over(&mut taken_over(2, 400)), "the segment is begun");
        log.add(&[2; 8]);
        let formed = log.close_segment(&mut vec![(1, 10)], false, 392);
        assert!(formed.headless && formed.credits == 1 && formed.range == (0..408));
        assert_eq!(log.chunk(formed.chunk).as_ptr(), memory);
        assert_eq!(lost(&log, 0), [vec![1; 384], vec![2; 8]].concat());
        // Behind it, in the rest of its memory.
        log.add(&[3; 40]);
        let formed = log.close_segment(&mut vec![], false, 432);
        assert!(!formed.headless && formed.range == (408..480));
        assert_eq!(lost(&log, 392), [3; 40]);
        log.confirm(432, false);
        // Used again.
        frames.resize(400, 4);
        assert!(log.take_over(&mut frames));
        assert_eq!(frames.as_ptr(), memory);
    }

    #[test]
    fn memory_taken_over_counts_as_what_it_is() {
        let mut log = log();
        let (mut end, mut n) = (0, 0);
        let mut frames = taken_over(7, 384);
        while log.take_over(&mut frames) {
            (end, n) = (end + 384, n + 1);
            log.close_segment(&mut vec![], false, end);
            frames.resize(384, 7);
        }
        assert_eq!((n, log.room()), (8, 512 - 384 - HEADER_BYTES));
        // Reports come at one and a half segments: more than that is there to be counted.
        assert!(end as usize > SEGMENT * 3 / 2);
        log.confirm(end, false);
        for _ in 0..SEGMENTS_MAX {
            log.add(&[0; 600]);
            end += 600;
            log.close_segment(&mut vec![], false, end);
        }
        assert_eq!(log.capacity + log.free_bytes(), SEGMENTS_MAX * SEGMENT, "no memory beside it");
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
