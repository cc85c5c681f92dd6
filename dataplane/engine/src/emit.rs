//! What a component emits becomes a frame: routed, stamped, and put into a lane or the executor's outbox.
//!
//! Before: user code in `handle`, `next` or `finish`. After: `io.rs`. With one subscription the archive is written straight into the lane's
//! private staging; only a tuple with several receivers is written aside and copied.

use crate::component::Fail;
use crate::grouping::{Chosen, Subscription};
use crate::io::{Io, Via};
use crate::limits::PULL_ITEMS_MAX;
use crate::queue::FrameQueue;
use saetta_ring::prefetch;
use saetta_tuple::Emit;
use saetta_tuple::frame::{END, Frame, HANDLE, Header};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Bytes ahead of the frame being handled that are fetched.
const PREFETCH_BYTES: usize = 256;

/// One output stream of one task.
pub(crate) struct Output {
    /// Index in the topology.
    pub(crate) stream: u16,
    pub(crate) tag: std::any::TypeId,
    pub(crate) subscriptions: Vec<Subscription>,
    /// The only lane (and, in this loop, executor) behind all targets of the only subscription, if it is so.
    pub(crate) single: Option<Via>,
    /// The only task of the only subscription, in this worker: nothing to choose and nothing to look up.
    pub(crate) fixed: Option<Fixed>,
}

/// A route known when the engine was built. Executors of this worker never change place.
#[derive(Clone, Copy)]
pub(crate) struct Fixed {
    pub(crate) target: u32,
    pub(crate) credit: u32,
    pub(crate) via: Via,
}

/// An iterator a component left to be pulled: true = used up.
type Pull = Box<dyn FnMut(&mut Cx<'_>) -> bool + Send>;

/// Which spout emits are stamped: one in `mask + 1`.
#[derive(Default)]
pub(crate) struct Sampler {
    mask: u64,
    count: u64,
}

impl Sampler {
    #[inline(always)]
    fn take(&mut self) -> bool {
        self.count += 1;
        self.count & self.mask == 0
    }

    /// Keeps near `per_sec` samples a second at `rate_per_sec`.
    pub(crate) fn adapt(&mut self, rate_per_sec: u64, per_sec: u64) {
        self.mask = (rate_per_sec / per_sec).max(1).next_power_of_two() - 1;
    }
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

/// The outgoing half of an executor.
pub(crate) struct Out {
    /// Per task of the executor, per declared stream.
    pub(crate) outputs: Vec<Vec<Output>>,
    /// Frames refused, in order. Not empty: the executor takes no input.
    pub(crate) outbox: FrameQueue,
    pub(crate) outbox_bytes: usize,
    /// Iterators not yet used up, with the task and birth stamp they emit for.
    pub(crate) pulls: VecDeque<(usize, Option<u64>, Pull)>,
    /// Per task: its END was sent.
    pub(crate) ends_sent: Vec<bool>,
    pub(crate) sampler: Sampler,
    /// Spouts under `bench`: when the next call is due.
    pub(crate) pace: Option<Pace>,
    pub(crate) is_spout: bool,
    /// No output has a subscriber: a last bolt, where the latency of a tuple ends.
    pub(crate) is_sink: bool,
    pub(crate) first_task: u32,
    pub(crate) executed: u64,
    pub(crate) emitted: u64,
    pub(crate) transferred: u64,
    pub(crate) failed: u64,
}

impl Out {
    /// True while the executor must not take input.
    #[inline(always)]
    pub(crate) fn blocked(&self) -> bool {
        self.outbox_bytes != 0 || !self.pulls.is_empty()
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
                let n = frame.bytes.len();
                sent += n;
                taken.consume(n);
            }
            self.outbox.put(taken);
            if stopped || self.outbox.is_empty() {
                break;
            }
        }
        self.outbox_bytes -= sent;
        io.shared.outbox_bytes.fetch_sub(sent as u64, Ordering::Relaxed);
        sent
    }

    /// Keeps a refused frame. False = a bound is reached and the frame is not kept; `why` names the key.
    #[cold]
    fn keep(&mut self, io: &mut Io, frame: &[u8], bounded: bool) -> Result<(), Fail> {
        if bounded && self.outbox_bytes + frame.len() > io.executor_outbox_bytes {
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
        self.outbox.push(frame);
        self.outbox_bytes += frame.len();
        Ok(())
    }

    /// A frame was written at the end of the buffer of `via`, from `start` on: it goes if there is credit, else it is taken back and kept.
    #[inline(always)]
    fn settle_written(&mut self, io: &mut Io, via: Via, credit: u32, start: usize) -> Result<(), Fail> {
        let n = io.buffer(via).1.len() - start;
        let credit = &mut io.credits[credit as usize];
        if credit.admits(n) {
            credit.spend(n);
            self.transferred += 1;
            io.written(via, start, n);
            return Ok(());
        }
        self.take_back(io, via, start)
    }

    #[cold]
    fn take_back(&mut self, io: &mut Io, via: Via, start: usize) -> Result<(), Fail> {
        let mut frame = std::mem::take(&mut io.scratch);
        frame.clear();
        let buffer = io.buffer(via).1;
        frame.extend_from_slice(&buffer[start..]);
        buffer.truncate(start);
        let kept = self.keep(io, &frame, true);
        io.scratch = frame;
        self.transferred += u64::from(kept.is_ok());
        kept
    }

    /// Sends one frame or keeps it.
    #[inline]
    fn send(&mut self, io: &mut Io, target: u32, frame: &[u8], bounded: bool) -> Result<(), Fail> {
        if self.outbox_bytes == 0 && io.try_send(target, frame) {
            self.transferred += 1;
            return Ok(());
        }
        self.keep(io, frame, bounded)?;
        self.transferred += 1;
        Ok(())
    }

    /// Tells every task downstream that `source` has ended, behind its frames.
    pub(crate) fn send_end(&mut self, io: &mut Io, source: u32) {
        self.ends_sent[(source - self.first_task) as usize] = true;
        self.send_end_to(io, source, |_| true);
    }

    /// Tells tasks whose credit has just opened what was told before: the link it went over may have taken it along, or the task is new.
    #[cold]
    pub(crate) fn send_ends_again(&mut self, io: &mut Io, to: impl Fn(u32) -> bool) {
        for index in 0..self.ends_sent.len() {
            if self.ends_sent[index] {
                self.send_end_to(io, self.first_task + index as u32, &to);
            }
        }
    }

    fn send_end_to(&mut self, io: &mut Io, source: u32, to: impl Fn(u32) -> bool) {
        let index = (source - self.first_task) as usize;
        let mut targets: Vec<u32> =
            self.outputs[index].iter().flat_map(|o| o.subscriptions.iter().flat_map(|s| s.targets.iter().copied())).collect();
        targets.retain(|t| to(*t));
        targets.sort_unstable();
        targets.dedup();
        for target in targets {
            let frame = Header { len: 0, stream: 0, flags: END, target, source }.encode();
            // One small frame per target, so not bounded: an end must not be lost.
            self.send(io, target, &frame, false).expect("unbounded");
        }
    }
}

/// What a call of user code may do. Lives for one call.
pub struct Cx<'a> {
    pub(crate) io: &'a mut Io,
    pub(crate) out: &'a mut Out,
    /// Place of the running task in its executor.
    pub(crate) index: usize,
    /// Bytes of the window handled.
    pub(crate) at: usize,
    /// Frames it may still handle.
    pub(crate) left: u32,
    pub(crate) birth_ns: Option<u64>,
    pub(crate) failure: Option<Fail>,
    /// First failure of this call, for the report.
    pub(crate) reported: Option<Fail>,
}

impl<'a> Cx<'a> {
    pub(crate) fn new(io: &'a mut Io, out: &'a mut Out, index: usize, left: u32) -> Self {
        Cx { io, out, index, at: 0, left, birth_ns: None, failure: None, reported: None }
    }

    /// Id of the running task.
    pub fn task(&self) -> u32 {
        self.out.first_task + self.index as u32
    }

    /// Nanoseconds of this process's monotonic clock. 10 ns.
    pub fn now_ns(&self) -> u64 {
        self.io.now_ns()
    }

    /// Place of the output stream that this Rust type names; `None` where the wiring never declared it, so nobody can read it.
    #[inline]
    pub fn output(&self, tag: std::any::TypeId) -> Option<usize> {
        match &self.out.outputs[self.index][..] {
            [first, ..] if first.tag == tag => Some(0),
            all => all.iter().position(|o| o.tag == tag),
        }
    }

    /// Fails the input being handled.
    pub fn fail(&mut self, why: Fail) {
        self.failure.get_or_insert(why);
    }

    /// The next frame of `window` for the running task and `stream`, or `None`: the window is used up, the next frame is another's, a
    /// budget is reached, or an output is blocked. Ends the frame before.
    #[inline(always)]
    pub fn next_frame<'w>(&mut self, stream: u16, window: &'w [u8]) -> Option<Frame<'w>> {
        self.settle();
        if self.left == 0 || self.out.blocked() {
            return None;
        }
        let frame = Frame::first(&window[self.at..])?;
        if frame.header.target != self.task() || frame.header.stream != stream || frame.header.flags & (END | HANDLE) != 0 {
            return None;
        }
        prefetch(window, self.at + PREFETCH_BYTES);
        self.at += frame.bytes.len();
        self.left -= 1;
        self.out.executed += 1;
        self.birth_ns = frame.birth_ns();
        Some(frame)
    }

    /// Ends the frame handled last: its failure, its latency.
    #[inline(always)]
    pub(crate) fn settle(&mut self) {
        if self.failure.is_some() {
            self.settle_failure();
        }
        if let Some(birth) = self.birth_ns.take()
            && self.out.is_sink
            && !self.out.is_spout
        {
            let latency = self.io.now_ns().saturating_sub(birth);
            self.io.latency_ns.saturating_record(latency);
        }
    }

    #[cold]
    fn settle_failure(&mut self) {
        self.out.failed += 1;
        let why = self.failure.take();
        self.reported = self.reported.take().or(why);
    }

    /// Emits on the component's `output`-th stream. What cannot go now waits in the outbox; a value that is too large or a full outbox fails
    /// the input.
    #[inline]
    pub fn emit<E: Emit>(&mut self, output: usize, value: &E) {
        self.out.emitted += 1;
        // A paced spout is stamped with the time it was meant to emit, whenever that is now.
        let birth = match self.birth_ns {
            None if self.out.is_spout && self.out.sampler.take() => Some(self.io.now_ns()),
            birth => birth,
        };
        let source = self.task();
        let (io, out) = (&mut *self.io, &mut *self.out);
        let declared = &out.outputs[self.index][output];
        let result = match declared.fixed {
            Some(fixed) if out.outbox_bytes == 0 && io.has_room(fixed.via) => {
                let header = Header { len: 0, stream: declared.stream, flags: 0, target: fixed.target, source };
                let (encoder, buffer) = io.buffer(fixed.via);
                let start = buffer.len();
                match encoder.append_frame(header, birth, value, buffer) {
                    Ok(_) => out.settle_written(io, fixed.via, fixed.credit, start),
                    Err(e) => Err(Fail::Drop(e.to_string())),
                }
            }
            _ => Self::emit_chosen(io, out, self.index, output, source, birth, value),
        };
        if let Err(why) = result {
            self.fail(why);
        }
    }

    /// As `emit`, where a target has to be chosen: with one subscription the frame is written straight to where it goes, if that is known or
    /// the same for all targets.
    fn emit_chosen<E: Emit>(
        io: &mut Io,
        out: &mut Out,
        index: usize,
        output: usize,
        source: u32,
        birth: Option<u64>,
        value: &E,
    ) -> Result<(), Fail> {
        let Output { stream, subscriptions, single, .. } = &mut out.outputs[index][output];
        let only = match &mut subscriptions[..] {
            [] => return Ok(()),
            [only] if out.outbox_bytes == 0 => only,
            _ => return Self::emit_aside(io, out, index, output, source, birth, value, None),
        };
        let early = if only.reads_archive() { None } else { Some(only.choose(&[])) };
        let via = match early {
            Some(Chosen::One(task)) => Some(io.dests[task as usize].via),
            Some(Chosen::All) => None,
            None => *single,
        };
        let Some(via) = via.filter(|via| io.has_room(*via)) else {
            return Self::emit_aside(io, out, index, output, source, birth, value, early);
        };
        let header = Header { len: 0, stream: *stream, flags: 0, target: 0, source };
        let (encoder, buffer) = io.buffer(via);
        let start = buffer.len();
        let archive = encoder.append_frame(header, birth, value, buffer).map_err(|e| Fail::Drop(e.to_string()))?;
        let chosen = early.unwrap_or_else(|| only.choose(&buffer[archive]));
        let Chosen::One(target) = chosen else { unreachable!("a keyed choice is one task") };
        buffer[start + 8..start + 12].copy_from_slice(&target.to_le_bytes());
        let credit = io.dests[target as usize].credit;
        out.settle_written(io, via, credit, start)
    }

    /// The general way: write the frame aside, copy it to each receiver. `early` = a choice already made for the only subscription.
    #[expect(clippy::too_many_arguments, reason = "a cold continuation of `emit` with its locals")]
    fn emit_aside<E: Emit>(
        io: &mut Io,
        out: &mut Out,
        index: usize,
        output: usize,
        source: u32,
        birth: Option<u64>,
        value: &E,
        mut early: Option<Chosen>,
    ) -> Result<(), Fail> {
        let mut frame = std::mem::take(&mut io.scratch);
        frame.clear();
        let header = Header { len: 0, stream: out.outputs[index][output].stream, flags: 0, target: 0, source };
        let mut result = io.encoder.append_frame(header, birth, value, &mut frame).map_err(|e| Fail::Drop(e.to_string()));
        if let Ok(archive) = result.clone() {
            let mut subscriptions = std::mem::take(&mut out.outputs[index][output].subscriptions);
            for subscription in &mut subscriptions {
                let chosen = early.take().unwrap_or_else(|| subscription.choose(&frame[archive.clone()]));
                let targets = match &chosen {
                    Chosen::One(task) => std::slice::from_ref(task),
                    Chosen::All => &subscription.targets[..],
                };
                for target in targets {
                    frame[8..12].copy_from_slice(&target.to_le_bytes());
                    if let Err(why) = out.send(io, *target, &frame, true) {
                        result = Err(why);
                    }
                }
            }
            out.outputs[index][output].subscriptions = subscriptions;
        }
        io.scratch = frame;
        result.map(|_| ())
    }

    /// Emits what `items` gives, at the pace of the receivers: as much as finds room now, the rest as the outbox drains. Until it is used up
    /// the executor takes no input. Items keep their order; call it last, since a later `emit` of the same call may overtake the rest.
    /// Allocates once if not everything could go at once.
    pub fn emit_from<E, I>(&mut self, output: usize, items: I)
    where
        E: Emit,
        I: Iterator<Item = E> + Send + 'static,
    {
        let mut items = items;
        let mut pull = move |cx: &mut Cx<'_>| {
            for _ in 0..PULL_ITEMS_MAX {
                if cx.out.outbox_bytes != 0 {
                    return false;
                }
                match items.next() {
                    Some(value) => cx.emit(output, &value),
                    None => return true,
                }
            }
            false
        };
        if !self.out.pulls.is_empty() || !pull(self) {
            self.out.pulls.push_back((self.index, self.birth_ns, Box::new(pull)));
        }
    }
}
