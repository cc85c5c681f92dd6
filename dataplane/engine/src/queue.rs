//! A queue of whole frames in private memory: inboxes and outboxes.
//!
//! Two buffers: `front` is read, `back` is written; they change places when the front is used up. Nothing is ever moved, a run of
//! frames is one slice, and after warm-up nothing is allocated. Not bounded here: whoever pushes has checked credit or the pool.

/// Most bytes reserved for a window at once; a larger one grows as it is used.
const RESERVED_BYTES_MAX: u64 = 1 << 20;

/// What is reserved for a window.
pub(crate) fn reserved_bytes(window: u64) -> usize {
    window.min(RESERVED_BYTES_MAX) as usize
}

/// Frames in, frames out, in order.
#[derive(Default)]
pub(crate) struct FrameQueue {
    front: Vec<u8>,
    /// Bytes of `front` already taken.
    at: usize,
    back: Vec<u8>,
}

/// The readable part, taken out so that frames may be pushed while it is read. Must be put back.
pub(crate) struct Taken {
    buffer: Vec<u8>,
    at: usize,
}

impl Taken {
    /// Frames not yet taken.
    #[inline]
    pub(crate) fn frames(&self) -> &[u8] {
        &self.buffer[self.at..]
    }
    /// Marks the first `n` bytes as taken.
    #[inline]
    pub(crate) fn consume(&mut self, n: usize) {
        self.at += n;
        debug_assert!(self.at <= self.buffer.len());
    }
}

impl FrameQueue {
    /// With room for a window on either side, so that a backlog that is larger than all before it allocates nothing. The memory is the
    /// system's until it is written to.
    pub(crate) fn with_window(bytes: u64) -> Self {
        let bytes = reserved_bytes(bytes);
        FrameQueue { front: Vec::with_capacity(bytes), at: 0, back: Vec::with_capacity(bytes) }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.front.len() && self.back.is_empty()
    }

    /// What is read next; more may be behind it.
    pub(crate) fn peek(&self) -> &[u8] {
        if self.at == self.front.len() { &self.back } else { &self.front[self.at..] }
    }

    /// Bytes waiting.
    pub(crate) fn bytes(&self) -> usize {
        self.front.len() - self.at + self.back.len()
    }

    #[inline]
    pub(crate) fn push(&mut self, frames: &[u8]) {
        self.back.extend_from_slice(frames);
    }

    /// As [`Self::take`], of a queue whose newest frames are in `back`, which becomes empty memory.
    #[inline]
    pub(crate) fn take_or(&mut self, back: &mut Vec<u8>) -> Taken {
        if self.at == self.front.len() {
            self.front.clear();
            self.at = 0;
            std::mem::swap(&mut self.front, back);
        }
        Taken { buffer: std::mem::take(&mut self.front), at: std::mem::take(&mut self.at) }
    }

    /// Takes what is readable; empty only when the queue is.
    #[inline]
    pub(crate) fn take(&mut self) -> Taken {
        if self.at == self.front.len() {
            self.front.clear();
            self.at = 0;
            std::mem::swap(&mut self.front, &mut self.back);
        }
        Taken { buffer: std::mem::take(&mut self.front), at: std::mem::take(&mut self.at) }
    }

    /// Puts back what `take` gave, before anything else is taken.
    #[inline]
    pub(crate) fn put(&mut self, taken: Taken) {
        debug_assert!(self.front.is_empty() && self.at == 0, "one reader at a time");
        self.front = taken.buffer;
        self.at = taken.at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_while_frames_are_pushed_during_a_read() {
        let mut q = FrameQueue::default();
        q.push(b"ab");
        let mut t = q.take();
        assert_eq!(t.frames(), b"ab");
        q.push(b"cd");
        t.consume(1);
        q.put(t);
        assert_eq!(q.bytes(), 3);
        let mut t = q.take();
        assert_eq!(t.frames(), b"b");
        t.consume(1);
        q.put(t);
        let t = q.take();
        assert_eq!(t.frames(), b"cd");
        q.put(t);
        assert!(!q.is_empty());
    }
}
