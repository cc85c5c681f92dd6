//! What a loop does with the frames of a lane or a link: each goes to its executor, handled where it lies where that is possible.
//!
//! Before: `core_loop.rs` has a lane's window, or `links.rs` a run of checked frames. After: `executor.rs` has handled them, or they wait in its
//! inbox, where credit keeps room.

use crate::core_loop::NOT_HERE;
use crate::credit::CreditIn;
use crate::executor::{Executor, run_bytes};
use crate::io::{CameMarker, Io};
use crate::lane::unhandle;
use crate::limits::{LINK_RUN_NS, LINK_RUNS_MAX};
use crate::moves::Marker;
use crate::relay::ENVELOPE;
use saetta_tuple::frame::{CONTROL, Frame, HANDLE, MARKER};

/// The parts of a loop that incoming frames need, apart from where the frames lie.
pub(crate) struct Receiver<'a> {
    pub(crate) executors: &'a mut [Executor],
    pub(crate) io: &'a mut Io,
    pub(crate) credit_in: &'a mut [Vec<CreditIn>],
    pub(crate) local_of_task: &'a [u16],
    pub(crate) discarded: &'a mut u64,
    /// The frames came from another worker.
    pub(crate) far: bool,
}

impl Receiver<'_> {
    /// Takes every frame of `window`: handled in place where its executor is free, else copied into its inbox, where credit keeps room.
    pub(crate) fn take(&mut self, window: &[u8], lane: usize) {
        let mut at = 0;
        while let Some(frame) = Frame::first(&window[at..]) {
            let header = frame.header;
            if header.flags & CONTROL != 0 {
                if header.stream == ENVELOPE && header.flags & MARKER == CONTROL && !self.far {
                    self.take_envelope(&frame);
                    at += frame.bytes.len();
                    continue;
                }
                let now_ns = self.io.turn_ns;
                if header.flags & MARKER == MARKER {
                    self.note_marker(&frame, lane);
                } else {
                    self.io.acks.from = lane as u16;
                    self.io.acks.apply(&frame, now_ns);
                }
                at += frame.bytes.len();
                continue;
            }
            let place = self.local_of_task.get(header.target as usize).copied().unwrap_or(NOT_HERE);
            if place == NOT_HERE {
                *self.discarded += 1;
                discard(self.io, &frame);
                at += frame.bytes.len();
                continue;
            }
            let place = place as usize;
            if header.flags & HANDLE != 0 {
                let whole = unhandle(&frame).expect("the flag says so");
                at += frame.bytes.len();
                self.take_run(&whole, lane, place);
                continue;
            }
            at += self.take_run(&window[at..], lane, place);
        }
    }

    /// A marker: what came before it by this lane is handled or in inboxes.
    #[cold]
    fn note_marker(&mut self, frame: &Frame<'_>, lane: usize) {
        let Some((marker, who, version)) = Marker::read(frame) else { return };
        let each = self.executors.iter().enumerate();
        let received =
            each.map(|(place, e)| (e.id.first, self.credit_in[place][lane].received(self.io.inboxes[place].lanes[lane].bytes()))).collect();
        self.io.markers.push(CameMarker { lane: lane as u16, marker, who, version, received });
    }

    /// Takes the frames at the front of `window` that are for the executor at `place`; returns their bytes.
    #[inline]
    fn take_run(&mut self, window: &[u8], lane: usize, place: usize) -> usize {
        let mut handled = 0;
        if self.io.inboxes[place].lanes[lane].is_empty() {
            handled = self.executors[place].drive(window, self.io);
            // A lane's ring keeps what is left; a link's memory is used again, so what is left is copied: not for the sake of a full run, nor of the
            // time that something else on this core took.
            let mut runs = 1;
            while self.far && handled < window.len() && runs < LINK_RUNS_MAX {
                if !self.executors[place].is_quick() && self.io.lap_ns >= self.io.turn_ns + LINK_RUN_NS {
                    break;
                }
                runs += 1;
                let more = self.executors[place].drive(&window[handled..], self.io);
                if more == 0 {
                    break;
                }
                handled += more;
            }
            self.credit_in[place][lane].consume(handled);
        }
        // The next frame is another executor's, a handle, or has to wait.
        let rest = &window[handled..];
        let run = plain_run_bytes(rest, self.executors[place].id);
        if run > 0 {
            let inbox = &mut self.io.inboxes[place];
            inbox.lanes[lane].push(&rest[..run]);
            inbox.pending = true;
            self.io.copied_bytes += if self.far { run as u64 } else { 0 };
        }
        handled + run
    }
}

/// A frame that can be handed to nobody: its trees fail.
#[cold]
pub(crate) fn discard(io: &mut Io, frame: &Frame<'_>) {
    let mut fail = |frame: &Frame<'_>| {
        let mut marks = crate::marks::Marks::NONE;
        marks.read(frame);
        let now_ns = io.turn_ns;
        marks.each().for_each(|(root, _)| io.acks.fail(root, crate::ack::Reason::Discarded, "its task is not here", now_ns));
    };
    match unhandle(frame) {
        Some(whole) => Frame::first(&whole).iter().for_each(fail),
        None => fail(frame),
    }
}

/// As `run_bytes`, up to the first handle frame: handles are resolved by the caller.
fn plain_run_bytes(window: &[u8], id: saetta_model::parallelism::ExecutorId) -> usize {
    let mut at = 0;
    while let Some(frame) = Frame::first(&window[at..]) {
        if frame.header.flags & HANDLE != 0 {
            break;
        }
        let n = run_bytes(&window[at..at + frame.bytes.len()], id);
        if n == 0 {
            break;
        }
        at += n;
    }
    at
}
