//! What a call of user code may do, and how its inputs are settled.
//!
//! Before: `executor.rs` calls a component with a window of frames. After: each frame was acked, failed, deferred, or left to be pulled.

use crate::ack::Reason;
use crate::component::{Asked, Fail, Progress};
use crate::defer::RawAnchor;
use crate::io::{Io, NOWHERE, Via};
use crate::ledger::Root;
use crate::marks::{Marks, ONE_ANCHOR};
use crate::out::Out;
use crate::program::DeadInput;
use crate::warm::Counts;
use saetta_ring::prefetch;
use saetta_tuple::frame::{CONTROL, END, Frame, HANDLE, Header, WARM};

/// Bytes ahead of the frame being handled that are fetched.
const PREFETCH_BYTES: usize = 512;

/// What a call of user code may do. Lives for one call.
pub struct Cx<'a> {
    pub(crate) io: &'a mut Io,
    pub(crate) out: &'a mut Out,
    /// Place of the running task in its executor.
    pub(crate) index: usize,
    /// Its id.
    pub(crate) task: u32,
    /// Its first stream in `out.outputs`.
    pub(crate) first_output: usize,
    /// The frames it may handle.
    window: &'a [u8],
    /// Bytes of the window handled.
    pub(crate) at: usize,
    /// Frames handled, and how many may be.
    pub(crate) handled: u32,
    pub(crate) handled_max: u32,
    /// Those of the input being handled.
    pub(crate) marks: Marks,
    /// Pulls that the input left, each with a part of its trees.
    pub(crate) left_pulls: usize,
    /// The input is deferred: the place of its marks.
    pub(crate) deferred: Option<u32>,
    /// The flag that all frames emitted now have: WARM or none.
    pub(crate) kind: u16,
    /// See `warm.rs`.
    pub(crate) counts: Counts,
    /// When the handling of a timed input began; 0 = it is not timed.
    pub(crate) began_ns: u64,
    /// Of a timed input: its stream, and when it was emitted, if by a clock of this worker.
    waited: Option<(u16, u64)>,
    pub(crate) failure: Option<Fail>,
    /// First failure of this call, for the report.
    pub(crate) reported: Option<Fail>,
}

impl<'a> Cx<'a> {
    #[inline]
    pub(crate) fn new(io: &'a mut Io, out: &'a mut Out, index: usize, window: &'a [u8], handled_max: u32) -> Self {
        Cx {
            task: out.first_task + index as u32,
            first_output: index * out.outputs_per_task,
            io,
            out,
            index,
            window,
            at: 0,
            handled: 0,
            handled_max,
            marks: Marks::NONE,
            left_pulls: 0,
            deferred: None,
            kind: 0,
            counts: Counts::default(),
            began_ns: 0,
            waited: None,
            failure: None,
            reported: None,
        }
    }

    /// Id of the running task.
    pub fn task(&self) -> u32 {
        self.task
    }

    /// Nanoseconds of this process's monotonic clock. 10 ns.
    pub fn now_ns(&self) -> u64 {
        self.io.now_ns()
    }

    /// True while what was emitted waits for room, or one more frame would.
    #[inline(always)]
    pub fn waits(&self) -> bool {
        self.out.attention && self.out.waits()
    }

    /// Fails the input being handled.
    #[cold]
    pub fn fail(&mut self, why: Fail) {
        self.failure.get_or_insert(why);
        self.out.attention = true;
    }

    /// The timeout of the input's trees begins anew.
    #[cold]
    pub fn reset_timeout(&mut self) {
        let now_ns = self.io.now_ns();
        self.marks.each().for_each(|(root, _)| self.io.acks.reset_timeout(root, now_ns));
    }

    /// An anchor was dropped: its trees fail.
    #[cold]
    pub(crate) fn drop_trees(&mut self) {
        self.out.failed += 1;
        let now_ns = self.io.turn_ns;
        let text = self.out.component.to_string();
        self.marks.each().for_each(|(root, _)| self.io.acks.fail(root, Reason::Dropped, &text, now_ns));
        self.marks = Marks::NONE;
    }

    /// Defers the input being handled: it is neither acked nor failed when the call returns `Ok`. `None` when it is deferred already, or
    /// when no input is being handled.
    pub fn defer(&mut self) -> Option<RawAnchor> {
        if self.deferred.is_some() || self.is_warming() {
            return None;
        }
        let anchor = self.out.deferred.reserve(self.index, &self.io.sleeper)?;
        self.deferred = Some(anchor.place());
        // So that it is settled, whether it has marks or not.
        self.out.attention = true;
        Some(anchor)
    }

    /// Runs `body` with emits anchored to deferred inputs. More than four trees together, or an anchor that has ended, is an error.
    pub fn anchored_to(&mut self, anchors: &[&RawAnchor], body: impl FnOnce(&mut Self)) -> Result<(), Fail> {
        let mut joined = Marks::NONE;
        for anchor in anchors {
            let marks = self.held_marks(anchor)?;
            if !joined.join(&marks) {
                return self.join(anchors, body);
            }
        }
        let own = self.marks.leave();
        self.marks = joined;
        body(self);
        let joined = std::mem::replace(&mut self.marks, own);
        self.out.emitted_for_deferred();
        for (root, xor) in joined.each() {
            // One of them is told, whichever holds the root first.
            for anchor in anchors {
                if self.marks_of(anchor).is_some_and(|marks| marks.add_edges(root, xor, joined.mask())) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// As [`Self::anchored_to`], of more trees than a frame has anchors.
    #[cold]
    fn join(&mut self, anchors: &[&RawAnchor], body: impl FnOnce(&mut Self)) -> Result<(), Fail> {
        if self.out.trackers.is_empty() {
            return Err(
                "an emit anchored to more than four trees; say so by `const JOINS: bool = true` in its `impl Bolt`, or join four at a time"
                    .into(),
            );
        }
        // All of them are looked at before one is made to wait.
        let all = anchors.iter().map(|anchor| self.held_marks(anchor)).collect::<Result<Vec<Marks>, Fail>>()?;
        let mut joined: Vec<(Root, u64)> = Vec::new();
        for (anchor, marks) in anchors.iter().zip(all) {
            for (root, _) in marks.each() {
                // One of them waits, whichever holds the root first.
                if joined.iter().all(|(known, _)| *known != root) {
                    let edge = self.io.acks.edges.edge();
                    if self.marks_of(anchor).is_some_and(|marks| marks.add_edges(root, edge, 0)) {
                        joined.push((root, edge));
                    }
                }
            }
        }
        let id = self.out.joins.open(self.index, joined);
        let own = self.marks.leave();
        self.tracked(id, body);
        self.marks = own;
        // Complete already, where nobody reads the stream or nothing is acked.
        self.out.attention = true;
        Ok(())
    }

    /// A copy of the marks that an anchor holds, or why it holds none.
    fn held_marks(&mut self, anchor: &RawAnchor) -> Result<Marks, Fail> {
        let marks = self.marks_of(anchor).copied();
        marks.ok_or_else(|| "an emit anchored to an input that has ended, or is another executor's".into())
    }

    /// The marks of a deferred input: those of this call are filed at its end.
    fn marks_of(&mut self, anchor: &RawAnchor) -> Option<&mut Marks> {
        let marks = self.out.deferred.marks(anchor)?;
        Some(if self.deferred == Some(anchor.place()) { &mut self.marks } else { marks })
    }

    /// Runs `body` with emits that belong to no tree.
    pub fn untracked(&mut self, body: impl FnOnce(&mut Self)) {
        let marks = self.marks.leave();
        body(self);
        self.marks = marks;
    }

    /// The next frame of `window` for the running task and `stream`, or `None`: the window is used up, the next frame is
    /// another's, a budget is reached, or the executor must not take input. Ends the frame before.
    #[inline(always)]
    pub fn next_frame<'w>(&mut self, stream: u16, window: &'w [u8]) -> Option<Frame<'w>> {
        // Inputs of one tree that come one after the other are settled together: lines of words, orders of fills.
        let mut same_tree = false;
        if self.marks.flags | self.kind != 0 || self.out.attention {
            same_tree = self.marks.flags == ONE_ANCHOR && !self.out.attention && self.marks.are_of(&window[self.at..]);
            if !same_tree && !self.settle_by_heir() && !self.settle() {
                return None;
            }
        }
        let frame = Frame::first(&window[self.at..])?;
        let header = frame.header;
        if self.handled == self.handled_max || header.target != self.task || header.stream != stream {
            return None;
        }
        match header.flags {
            0 => {}
            ONE_ANCHOR if same_tree => self.marks.take_in(&frame),
            ONE_ANCHOR => self.marks.read_only(&frame),
            _ if !self.begin_marked(&frame) => return None,
            _ => {}
        }
        prefetch(window, self.at + PREFETCH_BYTES);
        self.at += frame.bytes.len();
        self.handled += 1;
        Some(frame)
    }

    /// A frame with flags: false when it is no tuple.
    #[inline(never)]
    fn begin_marked(&mut self, frame: &Frame<'_>) -> bool {
        if frame.header.flags & (END | HANDLE | CONTROL) != 0 {
            return false;
        }
        if frame.header.flags & WARM != 0 {
            if !self.out.warms {
                return false;
            }
            self.begin_warm();
        }
        self.marks.read(frame);
        if self.marks.is_sampled() {
            self.begin_sample(frame.header);
        }
        true
    }

    /// A sampled input begins: how long has it waited since the emit before this hop. Clocks of other workers are not compared.
    #[cold]
    fn begin_sample(&mut self, header: Header) {
        self.began_ns = 0;
        if !self.out.timed.take() {
            return;
        }
        // What is known now is recorded when it is handled: nobody waits for that.
        let from = self.io.dests.get(header.source as usize).map_or(NOWHERE, |dest| dest.at);
        self.waited = match (self.io.via(from), self.marks.sent_ns()) {
            (Via::Local(_) | Via::Lane(_), Some(sent_ns)) => Some((header.stream, sent_ns)),
            _ => None,
        };
        self.began_ns = self.io.now_ns();
    }

    /// As [`Self::settle`], at the end of a call.
    pub(crate) fn end_input(&mut self) {
        if !self.settle_by_heir() {
            self.settle();
        }
    }

    /// Ends the input handled last if the frame it emitted last takes its ack over.
    #[inline(always)]
    fn settle_by_heir(&mut self) -> bool {
        let io = &mut *self.io;
        let settled = self.marks.flags == ONE_ANCHOR && !self.out.attention && self.marks.bequeath(|at| io.staged_here(at));
        if settled {
            self.marks.flags = 0;
        }
        settled
    }

    /// Ends the input handled last: its failure, its acks, its latency. True = the next one may be taken.
    #[inline]
    pub(crate) fn settle(&mut self) -> bool {
        if self.marks.flags != ONE_ANCHOR || self.out.attention {
            return self.settle_all();
        }
        self.marks.flags = 0;
        if let Some((root, xor)) = self.marks.first() {
            self.io.acks.ack(root, xor, self.marks.mask(), self.io.turn_ns);
        }
        self.out.attention = self.io.acks.congested();
        !self.out.attention
    }

    #[inline(never)]
    fn settle_all(&mut self) -> bool {
        if self.is_warming() {
            // It is no input.
            self.handled = self.handled.saturating_sub(1);
            self.end_warm();
            self.marks = Marks::NONE;
            self.began_ns = 0;
        }
        if self.failure.is_some() {
            self.settle_failure();
        }
        if self.marks.is_sampled() {
            self.settle_sample();
        }
        if self.marks.is_anchored() || self.deferred.is_some() {
            self.settle_anchors();
        }
        self.marks.flags = 0;
        self.left_pulls = 0;
        self.out.holds.take_touched();
        if self.out.attention {
            self.out.attention = self.out.waits() || self.io.acks.congested() || self.full();
        }
        !self.out.attention
    }

    /// True when the task must not begin another tree, or defer another input.
    fn full(&self) -> bool {
        self.out.deferred.is_full()
            || self.out.is_spout && self.out.trackers.get(self.index).is_some_and(|t| self.io.acks.trackers[*t as usize].full())
    }

    /// Calls `next` up to `calls` times, until it has nothing, an output blocks, or the task may begin no further tree.
    #[inline(always)]
    pub fn ask(&mut self, calls: u32, mut next: impl FnMut(&mut Self) -> Result<Progress, Fail>) -> Asked {
        let mut asked = Asked { busy: 0, done: false };
        while asked.busy < calls {
            if self.out.pace.is_some() && !self.pace() {
                break;
            }
            let before = self.out.emitted;
            let progress = next(self);
            self.out.executed += u64::from(self.out.emitted > before);
            match progress {
                Ok(Progress::Busy) => {}
                Ok(Progress::Idle) => break,
                Ok(Progress::Done) => {
                    asked.done = true;
                    break;
                }
                Err(why) => self.fail(why),
            }
            asked.busy += 1;
            if (self.marks.flags != 0 || self.out.attention) && !self.settle() {
                break;
            }
        }
        asked
    }

    /// True when a paced spout's next call is due; its tuples carry the time it was meant for.
    #[cold]
    fn pace(&mut self) -> bool {
        let now_ns = self.io.now_ns();
        let due = self.out.pace.as_mut().and_then(|pace| pace.due(now_ns));
        if let Some(due_ns) = due {
            self.marks.sample(due_ns);
        }
        due.is_some()
    }

    #[inline]
    fn settle_anchors(&mut self) {
        if self.deferred.is_some() {
            return self.settle_deferred();
        }
        if self.out.holds.take_touched() {
            self.out.holds.add_ack(self.marks);
            return;
        }
        if self.out.outbox_bytes != 0 {
            self.out.held.push(self.marks);
            return;
        }
        let (mask, now_ns) = (self.marks.mask(), self.io.turn_ns);
        self.marks.each().for_each(|(root, xor)| self.io.acks.ack(root, xor, mask, now_ns));
        if self.io.acks.congested() {
            self.out.attention = true;
        }
    }

    #[cold]
    fn settle_deferred(&mut self) {
        let marks = self.marks.leave();
        if let Some(place) = self.deferred.take() {
            self.out.deferred.fill(place, marks);
            self.out.emitted_for_deferred();
        }
    }

    #[cold]
    fn settle_failure(&mut self) {
        let Some(why) = self.failure.take() else { return };
        self.out.failed += 1;
        self.out.pulls.truncate(self.out.pulls.len().saturating_sub(self.left_pulls));
        if !matches!(why, Fail::Drop(_)) || !self.bury(&why) {
            self.fail_trees(&why);
        }
        self.reported.get_or_insert(why);
    }

    /// Emits the input being handled where dead letters go; it then counts as handled. False = this component has no such place, or it
    /// could not be emitted.
    #[cold]
    fn bury(&mut self, why: &Fail) -> bool {
        let Some((output, emit)) = self.out.dead_letters else { return false };
        let mut run = self.window;
        let mut last = None;
        for _ in 0..self.handled {
            let Some(frame) = Frame::first(run) else { break };
            run = &run[frame.bytes.len()..];
            last = Some(frame);
        }
        let Some(frame) = last else { return false };
        let (component, why) = (self.out.component.clone(), why.to_string());
        let input = DeadInput {
            component: component.as_str(),
            task: self.task,
            source: frame.header.source,
            stream: frame.header.stream,
            why: &why,
            archive: frame.archive(),
        };
        emit(self, output, input);
        self.failure.take().is_none()
    }

    /// Fails the trees of the input being handled.
    #[cold]
    pub(crate) fn fail_trees(&mut self, why: &Fail) {
        if self.marks.is_anchored() {
            let text = format!("{}: {why}", self.out.component);
            let now_ns = self.io.turn_ns;
            self.marks.each().for_each(|(root, _)| self.io.acks.fail(root, Reason::Bolt, &text, now_ns));
            self.marks.end_tree();
        }
    }

    #[cold]
    fn settle_sample(&mut self) {
        let timed = self.began_ns != 0;
        if !self.out.is_sink && !timed {
            return;
        }
        let now_ns = self.io.now_ns();
        if timed {
            self.io.metrics.of(self.out.place).execute(now_ns.saturating_sub(self.began_ns));
            if let Some((stream, sent_ns)) = self.waited.take()
                && let Some(edge) = self.io.metrics.edge(self.out.place, stream)
            {
                self.io.metrics.of(self.out.place).queue_wait(edge, self.began_ns.saturating_sub(sent_ns));
            }
            self.began_ns = 0;
        }
        if let (true, Some(birth_ns)) = (self.out.is_sink, self.marks.birth_ns()) {
            let latency_ns = now_ns.saturating_sub(birth_ns);
            self.io.metrics.of(self.out.place).end_to_end(latency_ns);
            self.io.latency_ns.saturating_record(latency_ns);
        }
    }
}
