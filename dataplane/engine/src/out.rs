//! The outgoing half of an executor: its streams, what was refused, what is left to be pulled, and why it takes no input.
//!
//! Before: `emit.rs` has a frame. After: `io.rs` has taken it, or it waits here.

use crate::component::Fail;
use crate::context::Cx;
use crate::defer::Deferred;
use crate::emit::Output;
use crate::hold::Holds;
use crate::io::{Io, NOWHERE};
use crate::join::Joins;
use crate::ledger::Root;
use crate::marks::Marks;
use crate::metrics::Sampler;
use crate::queue::FrameQueue;
use saetta_model::name::Name;
use saetta_tuple::frame::{END, Frame};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// What a component left to be pulled: true = used up.
pub(crate) type Pull = Box<dyn FnMut(&mut Cx<'_>) -> bool + Send>;

/// A [`Pull`] with the task and the marks it emits for.
pub(crate) struct LeftPull {
    pub(crate) index: usize,
    pub(crate) marks: Marks,
    pub(crate) pull: Pull,
}

/// Open-loop pacing of a spout: call i is due at start + i / rate, however late the calls before it were.
pub(crate) struct Pace {
    interval_ns: f64,
    calls: u64,
    start_ns: Option<u64>,
}

impl Pace {
    pub(crate) fn new(rate_per_sec: u64) -> Self {
        Pace { interval_ns: 1e9 / rate_per_sec.max(1) as f64, calls: 0, start_ns: None }
    }

    /// The due time of the next call, if it has come.
    pub(crate) fn due(&mut self, now_ns: u64) -> Option<u64> {
        let start = *self.start_ns.get_or_insert(now_ns);
        let due = start + (self.calls as f64 * self.interval_ns) as u64;
        (due <= now_ns).then(|| {
            self.calls += 1;
            due
        })
    }
}

/// A tree that its ledger has not been told of.
pub(crate) struct Begun {
    tracker: u16,
    root: Root,
    xor: u64,
    mask: u64,
}

/// See the head of this file.
pub(crate) struct Out {
    pub(crate) component: Name,
    /// `outputs_per_task` of the first task, then of the next.
    pub(crate) outputs: Vec<Output>,
    pub(crate) outputs_per_task: usize,
    /// By task: its tracker on this loop, where it opens trees.
    pub(crate) trackers: Vec<u16>,
    /// Frames refused, in order. Not empty: the executor takes no input.
    pub(crate) outbox: FrameQueue,
    pub(crate) outbox_bytes: usize,
    /// Bytes that ever left the outbox.
    drained_bytes: u64,
    /// Left to be pulled. Not empty: the executor takes no input.
    pub(crate) pulls: VecDeque<LeftPull>,
    /// Inputs that are handled, and whose frames are partly in the outbox: their acks wait for it.
    pub(crate) held: Vec<Marks>,
    /// Trees whose first frames are partly in the outbox: their inits wait for it, so that they name the workers these go to.
    begun: Vec<Begun>,
    /// Inputs whose end comes later, from any thread.
    pub(crate) deferred: Deferred,
    /// Trees of more inputs than a frame has anchors.
    pub(crate) joins: Joins,
    /// Workers that frames from the outbox went to since it was last empty.
    drained_mask: u64,
    /// Frames of inputs whose end comes later may be in the outbox.
    deferred_wait: bool,
    /// Frames for executors that change place: they stop nobody.
    pub(crate) holds: Holds,
    /// A place that has no room for another frame.
    full_at: u16,
    /// Something is to be looked at before the next input: one of the above, a failure, a tracker.
    pub(crate) attention: bool,
    /// Per task: its END was sent.
    pub(crate) ends_sent: Vec<bool>,
    /// Under the dead-letter policy: where inputs go that failed for good.
    pub(crate) dead_letters: Option<(usize, crate::program::DeadLetterFn)>,
    /// The emit that is sampled next; never for bolts, which hand on the marks of their input.
    pub(crate) sample_at: u64,
    pub(crate) sample_every: u64,
    /// Which of the sampled inputs are timed here: a bolt that gets a hundred of each looks at its clock no oftener than others.
    pub(crate) timed: Sampler,
    /// Place of the executor on its loop.
    pub(crate) place: usize,
    /// Spouts under `bench`: when the next call is due.
    pub(crate) pace: Option<Pace>,
    pub(crate) is_spout: bool,
    /// Its component asks for warm calls.
    pub(crate) warms: bool,
    /// No output has a subscriber: a last bolt, where the latency of a tuple ends.
    pub(crate) is_sink: bool,
    pub(crate) first_task: u32,
    pub(crate) executed: u64,
    pub(crate) emitted: u64,
    pub(crate) transferred: u64,
    pub(crate) failed: u64,
    /// Trees whose end the component was told.
    pub(crate) acked: u64,
    pub(crate) trees_failed: u64,
}

impl Out {
    pub(crate) fn new(component: Name, outputs: Vec<Output>, trackers: Vec<u16>, first_task: u32, n_tasks: usize, is_spout: bool) -> Self {
        Out {
            component,
            outputs_per_task: outputs.len() / n_tasks.max(1),
            is_sink: !is_spout && outputs.iter().all(|o| o.subscriptions.is_empty()),
            outputs,
            trackers,
            outbox: FrameQueue::default(),
            outbox_bytes: 0,
            drained_bytes: 0,
            pulls: VecDeque::new(),
            held: Vec::new(),
            begun: Vec::new(),
            deferred: Deferred::default(),
            joins: Joins::default(),
            drained_mask: 0,
            deferred_wait: false,
            holds: Holds::default(),
            full_at: NOWHERE,
            attention: false,
            ends_sent: vec![false; n_tasks],
            dead_letters: None,
            sample_at: if is_spout { 1 } else { u64::MAX },
            sample_every: 1,
            timed: Sampler::default(),
            place: 0,
            pace: None,
            is_spout,
            warms: false,
            first_task,
            executed: 0,
            emitted: 0,
            transferred: 0,
            failed: 0,
            acked: 0,
            trees_failed: 0,
        }
    }

    /// Where executors are has changed, or is now known.
    #[cold]
    pub(crate) fn assignment_changed(&mut self, io: &Io) {
        for (number, output) in self.outputs.iter_mut().enumerate() {
            output.settle_places(io);
            let emitter = self.first_task + (number / self.outputs_per_task) as u32;
            output.subscriptions.iter_mut().for_each(|s| s.assignment_changed(io, emitter));
        }
    }

    /// True while the executor must not take input.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.is_blocked() || !self.pulls.is_empty()
    }

    /// True while nothing more may be emitted.
    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        self.outbox_bytes != 0 || self.full_at != NOWHERE
    }

    /// True while an output is refused: of what `waits` says, all but what the component itself left for later.
    pub(crate) fn is_refused(&self) -> bool {
        self.outbox_bytes != 0 || self.full_at != NOWHERE
    }

    /// True when nothing of it waits to go out.
    pub(crate) fn is_empty(&self) -> bool {
        self.outbox_bytes == 0 && self.pulls.is_empty() && self.holds.is_empty()
    }

    /// The place takes no further frame: the executor waits until it does, so that its next frames need no outbox.
    #[cold]
    pub(crate) fn wait_for_room(&mut self, at: u16) {
        self.full_at = at;
        self.attention = true;
    }

    /// True while it waits for a place to take another frame.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.full_at != NOWHERE
    }

    /// Looks again whether the place that was full has room.
    #[inline]
    pub(crate) fn look_for_room(&mut self, io: &mut Io) {
        if self.full_at != NOWHERE && io.has_room(self.full_at) {
            self.full_at = NOWHERE;
        }
    }

    /// Bytes that wait here, of frames, of what is left to be pulled, and of inputs whose end comes later.
    pub(crate) fn waiting(&self) -> usize {
        self.outbox_bytes + self.holds.bytes() + self.pulls.len() + self.deferred.len()
    }

    /// Keeps what a component left to be pulled.
    pub(crate) fn leave_pull(&mut self, index: usize, marks: Marks, pull: Pull) {
        self.pulls.push_back(LeftPull { index, marks, pull });
        self.attention = true;
    }

    /// Sends what the outbox holds, in order, as far as lanes and credit allow. Returns bytes sent.
    pub(crate) fn drain(&mut self, io: &mut Io) -> usize {
        if self.outbox_bytes == 0 {
            return 0;
        }
        let mut sent = 0;
        loop {
            let mut taken = self.outbox.take();
            let mut stopped = false;
            while let Some(frame) = Frame::first(taken.frames()) {
                if !io.try_send(frame.header.target, frame.bytes) {
                    stopped = true;
                    break;
                }
                self.drained_mask |= io.staging[io.dests[frame.header.target as usize].at as usize].worker_bit;
                let n = frame.bytes.len();
                sent += n;
                taken.consume(n);
            }
            self.outbox.put(taken);
            if stopped || self.outbox.is_empty() {
                break;
            }
        }
        self.left_outbox(io, sent);
        sent
    }

    fn left_outbox(&mut self, io: &mut Io, bytes: usize) {
        self.outbox_bytes -= bytes;
        self.drained_bytes += bytes as u64;
        io.shared.outbox_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        if self.outbox_bytes == 0 {
            self.release_acks(io);
        }
    }

    /// The executor whose credit is at `credit` changes place: what waits for it is held from now on.
    #[cold]
    pub(crate) fn hold_waiting(&mut self, io: &mut Io, credit: u32) {
        let bytes = self.take_from_outbox(
            |frame| io.dests[frame.header.target as usize].credit == credit,
            |holds, frame| {
                holds.push(credit, frame.bytes);
            },
        );
        if bytes > 0 {
            // Whose frames they were is not known any more.
            self.holds.add_acks(&mut self.held, &mut self.begun, self.drained_mask);
            self.holds.take_touched();
            self.outbox_bytes -= bytes;
            if self.outbox_bytes == 0 {
                self.drained_mask = 0;
            }
        }
    }

    /// It has its new place: what is held for it waits like any other frame, behind what waits already. Returns its bytes.
    #[cold]
    pub(crate) fn release_hold(&mut self, io: &mut Io, credit: u32) -> usize {
        let Some(mut frames) = self.holds.take(credit) else { return 0 };
        let bytes = frames.bytes();
        while !frames.is_empty() {
            let mut taken = frames.take();
            self.outbox.push(taken.frames());
            taken.consume(taken.frames().len());
            frames.put(taken);
        }
        self.outbox_bytes += bytes;
        self.attention = true;
        if let Some(mask) = self.holds.release_acks(&mut self.held, &mut self.begun) {
            self.drained_mask |= mask;
        }
        if self.outbox_bytes == 0 {
            self.release_acks(io);
        }
        bytes
    }

    /// The executor goes: whatever still waits in it is given up, and `fail` is told the marks of each frame. Returns how many they were.
    #[cold]
    pub(crate) fn give_up_all(&mut self, io: &mut Io, mut fail: impl FnMut(&mut Io, &Marks)) -> u64 {
        let mut given_up = 0;
        for credit in self.holds.credits() {
            self.release_hold(io, credit);
        }
        let mut all = std::mem::take(&mut self.outbox);
        while !all.is_empty() {
            let mut taken = all.take();
            let mut run = taken.frames();
            while let Some(frame) = Frame::first(run) {
                if frame.header.flags & END == 0 {
                    let mut marks = Marks::NONE;
                    marks.read(&frame);
                    fail(io, &marks);
                    given_up += 1;
                }
                run = &run[frame.bytes.len()..];
            }
            taken.consume(taken.frames().len());
            all.put(taken);
        }
        for pull in std::mem::take(&mut self.pulls) {
            fail(io, &pull.marks);
            given_up += 1;
        }
        self.left_outbox(io, self.outbox_bytes);
        given_up
    }

    /// Takes some frames out of the outbox and hands them over; returns their bytes. The rest keeps its order.
    fn take_from_outbox(&mut self, wanted: impl Fn(&Frame<'_>) -> bool, mut to: impl FnMut(&mut Holds, &Frame<'_>)) -> usize {
        let (mut kept, mut bytes) = (FrameQueue::default(), 0);
        while !self.outbox.is_empty() {
            let mut taken = self.outbox.take();
            let mut run = taken.frames();
            while let Some(frame) = Frame::first(run) {
                if wanted(&frame) {
                    to(&mut self.holds, &frame);
                    bytes += frame.bytes.len();
                } else {
                    kept.push(frame.bytes);
                }
                run = &run[frame.bytes.len()..];
            }
            taken.consume(taken.frames().len());
            self.outbox.put(taken);
        }
        self.outbox = kept;
        bytes
    }

    /// A place of the loop is no longer what it was: the executor waits for nothing there.
    pub(crate) fn forget_room(&mut self) {
        self.full_at = NOWHERE;
    }

    /// What the oldest frame of the outbox lacks the credit of, by its index in `io.credits`, and what stands still while it does.
    pub(crate) fn waits_for_credit(&self, io: &mut Io) -> Option<(u32, [u64; 2])> {
        let frame = Frame::first(self.outbox.peek())?;
        let dest = io.dests[frame.header.target as usize];
        let lacks = !io.credits[dest.credit as usize].admits(frame.bytes.len());
        lacks.then_some((dest.credit, [self.executed, self.drained_bytes]))
    }

    /// Takes from the outbox what waits for the credit at `credit`, ends excepted, and what is left to be pulled of the input it came from:
    /// `fail` is told the marks of each. Returns how many they were.
    #[cold]
    pub(crate) fn give_up(&mut self, io: &mut Io, credit: u32, mut fail: impl FnMut(&mut Io, &Marks)) -> u64 {
        let (mut given_up, mut bytes) = (0, 0);
        let mut kept = FrameQueue::default();
        while !self.outbox.is_empty() {
            let mut taken = self.outbox.take();
            let mut run = taken.frames();
            while let Some(frame) = Frame::first(run) {
                if io.dests[frame.header.target as usize].credit == credit && frame.header.flags & END == 0 {
                    let mut marks = Marks::NONE;
                    marks.read(&frame);
                    fail(io, &marks);
                    given_up += 1;
                    bytes += frame.bytes.len();
                } else {
                    kept.push(frame.bytes);
                }
                run = &run[frame.bytes.len()..];
            }
            taken.consume(taken.frames().len());
            self.outbox.put(taken);
        }
        self.outbox = kept;
        if given_up > 0
            && let Some(pull) = self.pulls.pop_front()
        {
            fail(io, &pull.marks);
            given_up += 1;
        }
        self.left_outbox(io, bytes);
        given_up
    }

    /// The emit of a tree is over: its ledger is told, once every frame of it has entered a lane.
    #[inline]
    pub(crate) fn begin(&mut self, io: &mut Io, tracker: u16, root: Root, xor: u64, mask: u64) {
        if !self.attention || xor == 0 {
            io.acks.init(tracker, root, xor, mask, io.turn_ns);
        } else {
            self.begin_waiting(io, Begun { tracker, root, xor, mask });
        }
    }

    #[inline(never)]
    fn begin_waiting(&mut self, io: &mut Io, begun: Begun) {
        if self.holds.take_touched() {
            self.holds.add_begun(begun);
        } else if self.outbox_bytes == 0 {
            io.acks.init(begun.tracker, begun.root, begun.xor, begun.mask, io.turn_ns);
        } else {
            self.begun.push(begun);
        }
    }

    /// Frames were emitted for deferred inputs: their marks are told where those went that wait now.
    pub(crate) fn emitted_for_deferred(&mut self) {
        self.deferred_wait |= self.outbox_bytes != 0 || !self.holds.is_empty();
    }

    /// Every frame of the held inputs has entered a lane: their acks may leave. What is not handled yet learns where its frames went.
    fn release_acks(&mut self, io: &mut Io) {
        let bits = std::mem::take(&mut self.drained_mask);
        for Begun { tracker, root, xor, mask } in self.begun.drain(..) {
            io.acks.init(tracker, root, xor, mask | bits, io.turn_ns);
        }
        self.pulls.iter_mut().for_each(|pull| pull.marks.add_mask(bits));
        if self.deferred_wait {
            self.deferred_wait = !self.holds.is_empty();
            self.deferred.add_mask(bits);
        }
        self.holds.add_mask(bits);
        for mut marks in self.held.drain(..) {
            marks.add_mask(bits);
            let (mask, now_ns) = (marks.mask(), io.turn_ns);
            marks.each().for_each(|(root, xor)| io.acks.ack(root, xor, mask, now_ns));
        }
    }

    /// Keeps a refused frame. The error says that a bound is reached and the frame is not kept, and names the key.
    #[cold]
    fn keep(&mut self, io: &mut Io, frame: &[u8], bounded: bool) -> Result<(), Fail> {
        let target = Frame::first(frame).expect("a whole frame").header.target;
        let credit = io.dests[target as usize].credit;
        let moves = io.held.contains(&credit);
        if moves && bounded && self.holds.bytes() + frame.len() > io.executor_outbox_bytes {
            return Err(Fail::Drop(format!(
                "executor.outbox.bytes = {} are held for executors that move to another worker; raise the key, or slow the input",
                io.executor_outbox_bytes
            )));
        }
        if bounded && !moves && self.outbox_bytes + frame.len() > io.executor_outbox_bytes {
            return Err(Fail::Drop(format!(
                "one call emitted more than executor.outbox.bytes = {} that found no room downstream; raise the key, or emit with `emit_from`",
                io.executor_outbox_bytes
            )));
        }
        let total = io.shared.outbox_bytes.fetch_add(frame.len() as u64, Ordering::Relaxed) + frame.len() as u64;
        if bounded && total > io.worker_outbox_bytes {
            io.shared.outbox_bytes.fetch_sub(frame.len() as u64, Ordering::Relaxed);
            return Err(Fail::Drop(format!(
                "all outboxes of the worker hold worker.outbox.bytes = {}; raise the key or slow the input",
                io.worker_outbox_bytes
            )));
        }
        self.attention = true;
        if moves {
            self.holds.push(credit, frame);
            return Ok(());
        }
        self.outbox.push(frame);
        self.outbox_bytes += frame.len();
        Ok(())
    }

    /// Takes back the frame that was written at the end of a place's staging and has no credit, and keeps it here.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_back(&mut self, io: &mut Io, at: u16, start: usize) -> Result<(), Fail> {
        let mut frame = std::mem::take(&mut io.scratch);
        frame.clear();
        let staged = &mut io.staging[at as usize].frames;
        frame.extend_from_slice(&staged[start..]);
        staged.truncate(start);
        let kept = self.keep(io, &frame, true);
        io.scratch = frame;
        self.transferred += u64::from(kept.is_ok());
        kept
    }

    /// Sends one frame or keeps it. Returns the bit of the worker it went to; 0 when it is kept.
    #[inline]
    pub(crate) fn send(&mut self, io: &mut Io, target: u32, frame: &[u8], bounded: bool) -> Result<u64, Fail> {
        let bit = if self.outbox_bytes == 0 && io.try_send(target, frame) {
            io.staging[io.dests[target as usize].at as usize].worker_bit
        } else {
            self.keep(io, frame, bounded)?;
            0
        };
        self.transferred += 1;
        Ok(bit)
    }
}
