//! What an executor has for executors that change place: their frames, and the acks of the inputs those came from.
//!
//! Before: `out.rs` has a frame for an executor that is placed nowhere while it moves. After: it has its new place, and the frames wait in the
//! outbox like any other. Bounded by `executor.outbox.bytes`, which `out.rs` looks at; the marks count as well.

use crate::marks::Marks;
use crate::out::Begun;
use crate::queue::FrameQueue;

/// See the head of this file. One per executor; empty but while executors move.
#[derive(Default)]
pub(crate) struct Holds {
    /// By the executor they are for, as its index in `io.credits`.
    frames: Vec<(u32, FrameQueue)>,
    /// Inputs that are handled, and of whose frames some are here, or were when an executor began to move.
    acks: Vec<Marks>,
    /// Trees that began with frames that are here.
    begun: Vec<Begun>,
    /// Workers that other frames of those inputs went to.
    mask: u64,
    /// A frame was put here since this was last asked.
    touched: bool,
}

impl Holds {
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Bytes kept here.
    pub(crate) fn bytes(&self) -> usize {
        self.frames.iter().map(|(_, frames)| frames.bytes()).sum::<usize>()
            + self.acks.len() * size_of::<Marks>()
            + self.begun.len() * size_of::<Begun>()
    }

    /// Bytes of frames for executors that `counts`.
    pub(crate) fn is_empty_of(&self, counts: impl Fn(u32) -> bool) -> bool {
        !self.frames.iter().any(|(credit, _)| counts(*credit))
    }

    /// Keeps a frame.
    pub(crate) fn push(&mut self, credit: u32, frame: &[u8]) {
        self.touched = true;
        match self.frames.iter_mut().find(|(of, _)| *of == credit) {
            Some((_, frames)) => frames.push(frame),
            None => {
                let mut frames = FrameQueue::default();
                frames.push(frame);
                self.frames.push((credit, frames));
            }
        }
    }

    /// True when a frame of the input being settled was put here.
    pub(crate) fn take_touched(&mut self) -> bool {
        std::mem::take(&mut self.touched)
    }

    /// Keeps the ack of an input.
    pub(crate) fn add_ack(&mut self, marks: Marks) {
        self.acks.push(marks);
    }

    /// Keeps what a tree began with, for its ledger.
    pub(crate) fn add_begun(&mut self, begun: Begun) {
        self.begun.push(begun);
    }

    /// As `add_ack`, of inputs whose other frames went to the workers of `mask`.
    pub(crate) fn add_acks(&mut self, acks: &mut Vec<Marks>, begun: &mut Vec<Begun>, mask: u64) {
        self.acks.append(acks);
        self.begun.append(begun);
        self.mask |= mask;
    }

    /// For whom something is kept.
    pub(crate) fn credits(&self) -> Vec<u32> {
        self.frames.iter().map(|(credit, _)| *credit).collect()
    }

    /// Takes what is kept for an executor.
    pub(crate) fn take(&mut self, credit: u32) -> Option<FrameQueue> {
        let at = self.frames.iter().position(|(of, _)| *of == credit)?;
        Some(self.frames.swap_remove(at).1)
    }

    /// When nothing is held any more: acks wait for the outbox alone. Returns the workers that frames of them went to.
    pub(crate) fn release_acks(&mut self, to: &mut Vec<Marks>, begun: &mut Vec<Begun>) -> Option<u64> {
        self.frames.is_empty().then(|| {
            to.append(&mut self.acks);
            begun.append(&mut self.begun);
            std::mem::take(&mut self.mask)
        })
    }

    /// Frames that left an outbox went to these workers, of inputs whose acks may be here.
    pub(crate) fn add_mask(&mut self, bits: u64) {
        if !self.acks.is_empty() || !self.begun.is_empty() {
            self.mask |= bits;
        }
    }
}
