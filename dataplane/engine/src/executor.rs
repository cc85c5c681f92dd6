//! An executor: the tasks of one component that live on one loop, driven with runs of frames.
//!
//! Before: `core_loop.rs` has a window whose next frame is for one of its tasks. After: user code has handled it, or it stays.
//! A panic in user code fails the tuple; then the policy says whether the task begins anew from its factory, goes on, or ends the worker.

use crate::ack::Reason;
use crate::component::{Asked, Component, Fail};
use crate::context::Cx;
use crate::cycle::Watch;
use crate::defer::End;
use crate::io::Io;
use crate::limits::{PANIC_PAUSE_NS, RUN_FRAMES_MAX, RUN_NS, SAMPLES_PER_SEC, SPOUT_CALLS_MAX};
use crate::marks::Marks;
use crate::out::{LeftPull, Out};
use crate::plan::PanicPolicy;
use crate::program::ComponentFactory;
use crate::stats::{ErrorReport, ExecutorStats};
use saetta_model::name::Name;
use saetta_model::parallelism::ExecutorId;
use saetta_tuple::frame::{CONTROL, END, Frame, Header, WARM};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Panics are counted over this time.
const PANIC_WINDOW_NS: u64 = 60_000_000_000;
/// A spout that was asked, had nothing, and took no longer was not busy: polling is not work.
const IDLE_ASK_NS: u64 = 1_000;
/// Reports of failed inputs, at most one in this time per executor; all are counted.
const REPORT_EVERY_NS: u64 = 1_000_000_000;

struct TaskSlot {
    component: Box<dyn Component>,
    opened: bool,
    /// It was told that it is active.
    active: bool,
    /// Upstream tasks that have ended.
    ends: BTreeSet<u32>,
    /// A spout said Done.
    done: bool,
    /// `finish` ran and END was sent.
    finished: bool,
}

/// What an executor is made of, besides what it sends.
pub(crate) struct Making {
    pub(crate) id: ExecutorId,
    pub(crate) factory: ComponentFactory,
    /// Tasks whose END each task waits for: all tasks of all components it reads from, those of its cycle excepted.
    pub(crate) upstream_tasks: usize,
    /// Tasks, by component, that are in a cycle with this one, itself included; they end when everything is drained.
    pub(crate) cycle: Vec<RangeInclusive<u32>>,
    /// An acker: the loop itself does its work.
    pub(crate) acker: bool,
    pub(crate) panics_max: u32,
    pub(crate) panic_policy: PanicPolicy,
    pub(crate) tick_ns: Option<u64>,
    pub(crate) stats: Arc<ExecutorStats>,
}

/// See the head of this file.
pub(crate) struct Executor {
    pub(crate) id: ExecutorId,
    pub(crate) out: Out,
    making: Making,
    tasks: Vec<TaskSlot>,
    /// Every task was opened since it was made, and told whether it is active.
    settled: bool,
    /// In a cycle: nothing goes on any more.
    drained: bool,
    /// It changes place: its tasks are asked nothing and do not end here.
    leaving: bool,
    panics: Vec<u64>,
    /// After a panic: takes nothing until then.
    paused_until_ns: u64,
    pause_ns: u64,
    next_tick_ns: u64,
    last_report_ns: u64,
    emitted_at_adapt: u64,
    adapted_ns: u64,
    /// Whom it waits for, and since when.
    pub(crate) watch: Watch,
    /// Calls or frames of one run, so that it takes about `RUN_NS`.
    calls_max: u32,
    frames_max: u32,
}

impl Executor {
    pub(crate) fn new(making: Making, mut out: Out) -> Self {
        let task = |_| TaskSlot {
            component: (making.factory)(),
            opened: false,
            active: false,
            ends: BTreeSet::new(),
            done: false,
            finished: making.acker,
        };
        let tasks: Vec<TaskSlot> = making.id.tasks().map(task).collect();
        out.warms = tasks.iter().any(|t| t.component.warms());
        Executor {
            id: making.id,
            out,
            tasks,
            making,
            settled: false,
            drained: false,
            leaving: false,
            panics: Vec::new(),
            paused_until_ns: 0,
            pause_ns: 0,
            next_tick_ns: 0,
            last_report_ns: 0,
            emitted_at_adapt: 0,
            adapted_ns: 0,
            watch: Watch::default(),
            calls_max: SPOUT_CALLS_MAX,
            frames_max: RUN_FRAMES_MAX,
        }
    }

    /// Calls user code on one task; a panic becomes a failure, and what the policy says.
    fn call<R>(
        &mut self,
        io: &mut Io,
        index: usize,
        window: &[u8],
        frames_max: u32,
        body: impl FnOnce(&mut dyn Component, &mut Cx<'_>) -> R,
    ) -> (Option<R>, usize) {
        // Relaxed: read by a watchdog when this loop has stood still for long.
        self.making.stats.in_task.store(self.making.id.first + index as u32, Ordering::Relaxed);
        let slot = &mut self.tasks[index];
        let mut cx = Cx::new(io, &mut self.out, index, window, frames_max);
        let result = catch_unwind(AssertUnwindSafe(|| {
            if !slot.opened {
                slot.opened = true;
                if let Err(why) = slot.component.open(&mut cx) {
                    cx.fail(why);
                }
                cx.end_input();
            }
            body(&mut *slot.component, &mut cx)
        }));
        if let Err(payload) = &result {
            cx.fail(Fail::Drop(format!("panic: {}", panic_text(&**payload))));
        }
        cx.end_input();
        // Settling looks at what it can see; a pause is the executor's.
        cx.out.attention |= cx.io.turn_ns < self.paused_until_ns;
        self.making.stats.in_task.store(0, Ordering::Relaxed);
        cx.out.executed += u64::from(cx.handled);
        let (at, reported) = (cx.at, cx.reported.take());
        if let Some(why) = reported {
            self.report(io, why);
        }
        if result.is_err() {
            self.after_panic(io, index);
        }
        (result.ok(), at)
    }

    #[cold]
    pub(crate) fn report(&mut self, io: &Io, why: Fail) {
        if let Fail::Fatal(text) = &why {
            io.shared.fail(ErrorReport { component: self.out.component.clone(), text: text.clone() });
            return;
        }
        let now = io.now_ns();
        if self.last_report_ns == 0 || now - self.last_report_ns > REPORT_EVERY_NS {
            self.last_report_ns = now;
            io.shared.report(&self.out.component, why.to_string());
        }
    }

    #[cold]
    fn after_panic(&mut self, io: &mut Io, index: usize) {
        let now = io.now_ns();
        self.panics.retain(|at| now - at < PANIC_WINDOW_NS);
        self.panics.push(now);
        let n = self.panics.len() as u32;
        let fatal = match self.making.panic_policy {
            PanicPolicy::Crash => Some("a panic, and executor.panic.policy = crash".to_owned()),
            _ if n > self.making.panics_max => {
                Some(format!("{n} panics within a minute, worker.crash.window.max = {} are allowed", self.making.panics_max))
            }
            _ => None,
        };
        if let Some(text) = fatal {
            io.shared.fail(ErrorReport { component: self.out.component.clone(), text });
        }
        if self.making.panic_policy != PanicPolicy::Skip {
            self.restart(io, index);
            // The first one goes on at once: a single bad tuple costs nobody a pause.
            self.pause_ns = if n <= 1 { 0 } else { (self.pause_ns * 2).clamp(PANIC_PAUSE_NS.0, PANIC_PAUSE_NS.1) };
            self.paused_until_ns = now + self.pause_ns;
            self.out.attention |= self.pause_ns > 0;
        }
    }

    /// The task begins anew. Trees it opened are dropped, and counted; what it deferred has failed.
    fn restart(&mut self, io: &mut Io, index: usize) {
        let slot = &mut self.tasks[index];
        slot.component = (self.making.factory)();
        slot.opened = false;
        slot.active = false;
        self.settled = false;
        if let Some(tracker) = self.out.trackers.get(index) {
            io.acks.drop_trees(*tracker);
        }
        let mut roots = self.out.joins.give_up(index);
        for marks in self.out.deferred.give_up(index) {
            roots.extend(marks.each().map(|(root, _)| root));
        }
        let (now_ns, text) = (io.now_ns(), format!("{}: the task began anew after a panic", self.out.component));
        roots.into_iter().for_each(|root| io.acks.fail(root, Reason::Dropped, &text, now_ns));
    }

    /// Looks again at what keeps the executor from taking input. True = nothing does.
    #[cold]
    fn ready(&mut self, io: &mut Io) -> bool {
        self.out.look_for_room(io);
        let paused = io.turn_ns < self.paused_until_ns;
        self.out.attention = paused || self.out.waits() || self.out.deferred.is_full() || io.acks.congested();
        io.metrics.waits(self.out.place, self.blocked(io), io.lap_ns);
        !self.out.attention
    }

    /// Handles frames from the front of `window` as long as they are for this executor, for about `RUN_NS`, until an output blocks. Returns
    /// the bytes handled.
    #[inline]
    pub(crate) fn drive(&mut self, window: &[u8], io: &mut Io) -> usize {
        let mut at = 0;
        let mut left = self.frames_max;
        while left > 0 && (!self.out.attention || self.ready(io)) {
            let Some(header) = Header::decode(&window[at..]) else { break };
            if header.target < self.id.first || header.target > self.id.last || header.flags & CONTROL != 0 {
                break;
            }
            let index = (header.target - self.id.first) as usize;
            if header.flags & WARM != 0 && !self.out.warms {
                at += header.frame_bytes();
                continue;
            }
            if header.flags & END != 0 {
                if !self.making.cycle.iter().any(|tasks| tasks.contains(&header.source)) {
                    self.tasks[index].ends.insert(header.source);
                }
                at += header.frame_bytes();
                continue;
            }
            if self.making.acker {
                at += header.frame_bytes();
                continue;
            }
            let before = self.out.executed;
            let (_, n) = self.call(io, index, &window[at..], left, |component, cx| component.handle(header.stream, &window[at..], cx));
            if n == 0 {
                // A component that takes nothing although nothing is in its way would spin here for ever.
                break;
            }
            at += n;
            let handled = self.out.executed - before;
            io.metrics.frames(self.out.place, header.stream, handled, n as u64);
            left = left.saturating_sub(handled as u32);
        }
        if at > 0 {
            // What was emitted and acked leaves before the clock is read.
            io.flush_lanes();
            let now_ns = io.turn_ns;
            io.acks.flush(now_ns);
            let took_ns = self.ran(io);
            adapt(&mut self.frames_max, RUN_FRAMES_MAX, left == 0, took_ns);
        }
        at
    }

    /// A run is over: it took the time since the clock was last read, by whatever ran before on this loop. One look at the clock.
    #[inline]
    fn ran(&mut self, io: &mut Io) -> u64 {
        let from_ns = io.lap_ns;
        let took_ns = io.lap_ns();
        io.metrics.ran(self.out.place, from_ns, io.lap_ns, self.blocked(io));
        took_ns
    }

    /// True while its frames or acks cannot leave.
    #[inline]
    fn blocked(&self, io: &Io) -> bool {
        self.out.attention && (self.out.is_refused() || io.acks.congested())
    }

    /// True unless one tuple takes it a whole run.
    #[inline]
    pub(crate) fn is_quick(&self) -> bool {
        self.frames_max > 1
    }

    /// True when [`Self::turn`] may have something to do.
    #[inline]
    pub(crate) fn wants_turn(&self, spouts_on: bool, now_ns: u64) -> bool {
        !self.settled
            || self.out.attention
            || (self.out.is_spout && spouts_on)
            || !self.out.trackers.is_empty()
            || self.out.deferred.has_signal()
            || now_ns >= self.next_tick_ns
    }

    /// One turn of the parts that need no input: outbox, pulls, signals, ticks, spouts. Returns how much was done.
    pub(crate) fn turn(&mut self, spouts_on: bool, warming: bool, io: &mut Io) -> usize {
        let mut work = self.settle_in(spouts_on, io);
        work += self.out.drain(io);
        work += self.pull(io);
        work += self.hear(io);
        work += self.tick(io);
        work += self.tell(io);
        if work > 0 {
            self.ran(io);
        }
        if self.out.is_spout && spouts_on && !self.leaving {
            // By the same way, so that the same stack is touched as well.
            work += self.ask(io, warming && self.may_warm());
        }
        if self.out.attention {
            self.ready(io);
        }
        work
    }

    /// Opens tasks that are new, before their first input, whenever that comes; tells spouts whether the topology is active.
    fn settle_in(&mut self, spouts_on: bool, io: &mut Io) -> usize {
        if self.settled && (!self.out.is_spout || self.tasks.iter().all(|t| t.active == spouts_on)) {
            return 0;
        }
        self.settled = true;
        let mut work = 0;
        for index in 0..self.tasks.len() {
            let tell = self.out.is_spout && self.tasks[index].active != spouts_on;
            if tell || !self.tasks[index].opened {
                work += 1;
                self.tasks[index].active = spouts_on;
                self.call(io, index, &[], 0, |component, _| {
                    if tell {
                        component.set_active(spouts_on);
                    }
                });
            }
        }
        work
    }

    fn pull(&mut self, io: &mut Io) -> usize {
        let mut work = 0;
        while self.out.outbox_bytes == 0 {
            let Some(LeftPull { index, marks, mut pull }) = self.out.pulls.pop_front() else { break };
            self.out.look_for_room(io);
            let before = self.out.emitted;
            let (over, _) = self.call(io, index, &[], 0, |_, cx| {
                cx.marks = marks;
                // One that failed is over: what it would still emit belongs to an input that failed.
                let over = pull(cx) || cx.failure.is_some();
                // Not settled before it is used up.
                let marks = if over { Marks::NONE } else { cx.marks.leave() };
                (over, marks, pull)
            });
            work += (self.out.emitted - before) as usize;
            match over {
                Some((false, marks, pull)) => {
                    self.out.pulls.push_front(LeftPull { index, marks, pull });
                    self.out.attention = true;
                    break;
                }
                Some((true, ..)) | None => work += 1,
            }
        }
        work
    }

    /// What became of deferred inputs.
    #[inline]
    fn hear(&mut self, io: &mut Io) -> usize {
        let mut work = 0;
        while self.out.deferred.has_signal() && !self.out.waits() {
            let Some((index, marks, end)) = self.out.deferred.next() else { break };
            work += 1;
            self.call(io, index, &[], 0, |component, cx| {
                cx.marks = marks;
                let outcome = match end {
                    End::Ack => Ok(()),
                    End::Fail(why) => Err(why),
                    End::Dropped => {
                        cx.drop_trees();
                        Ok(())
                    }
                    End::Complete(then) => then(component, cx),
                    End::ResetTimeout => {
                        cx.reset_timeout();
                        cx.marks = Marks::NONE;
                        Ok(())
                    }
                };
                if let Err(why) = outcome {
                    cx.fail(why);
                }
            });
        }
        work
    }

    #[inline]
    fn tick(&mut self, io: &mut Io) -> usize {
        let Some(every_ns) = self.making.tick_ns else {
            self.next_tick_ns = u64::MAX;
            return 0;
        };
        if io.turn_ns < self.next_tick_ns || self.out.waits() {
            return 0;
        }
        let first = self.next_tick_ns == 0;
        // A tick that was late does not make the next ones come at once.
        self.next_tick_ns = io.turn_ns + every_ns;
        if first {
            return 0;
        }
        for index in 0..self.tasks.len() {
            if self.tasks[index].finished {
                continue;
            }
            self.call(io, index, &[], 0, |component, cx| {
                if let Err(why) = component.tick(cx) {
                    cx.fail(why);
                }
            });
        }
        self.tasks.len()
    }

    /// Tells spouts what became of their trees.
    #[inline]
    fn tell(&mut self, io: &mut Io) -> usize {
        let mut work = 0;
        for index in 0..self.out.trackers.len() {
            let tracker = &mut io.acks.trackers[self.out.trackers[index] as usize];
            work += tracker.expire(io.turn_ns);
            if tracker.told() {
                continue;
            }
            work += self.tell_task(index, io);
        }
        work
    }

    fn tell_task(&mut self, index: usize, io: &mut Io) -> usize {
        let tracker = &mut io.acks.trackers[self.out.trackers[index] as usize];
        tracker.complete_ns.drain(..).for_each(|ns| io.metrics.of(self.out.place).complete(ns));
        let acked = std::mem::take(&mut tracker.acked);
        let failed = std::mem::take(&mut tracker.failed);
        let n = acked.len() + failed.len();
        let slot = &mut self.tasks[index];
        // It may have something to say again.
        slot.done &= failed.is_empty();
        if self.out.is_spout {
            self.out.acked += acked.len() as u64;
            self.out.trees_failed += failed.len() as u64;
        } else {
            let (joins, now_ns) = (&mut self.out.joins, io.turn_ns);
            acked.iter().for_each(|id| joins.complete(*id, &mut io.acks, now_ns));
            failed.iter().for_each(|(id, why)| joins.fail(*id, why, &mut io.acks, now_ns));
        }
        let (acked, _) = self.call(io, index, &[], 0, move |component, _| {
            component.acked(&acked);
            failed.iter().for_each(|(id, why)| component.failed(*id, why));
            acked
        });
        // Its memory is used again.
        if let Some(mut acked) = acked {
            acked.clear();
            let tracker = &mut io.acks.trackers[self.out.trackers[index] as usize];
            if tracker.acked.is_empty() {
                tracker.acked = acked;
            }
        }
        self.out.attention = true;
        n
    }

    /// Asks each spout task for more, in one call of user code, until it has nothing, an output blocks, or its turn is over.
    fn ask(&mut self, io: &mut Io, warming: bool) -> usize {
        let mut work = 0;
        for index in 0..self.tasks.len() {
            if self.tasks[index].done || (self.out.attention && !self.ready(io)) {
                continue;
            }
            if self.out.trackers.get(index).is_some_and(|t| io.acks.trackers[*t as usize].full()) {
                continue;
            }
            let (before, calls) = (self.out.emitted, if warming { 1 } else { self.calls_max });
            let (asked, _) = self.call(io, index, &[], 0, |component, cx| {
                if warming {
                    cx.begin_warm();
                }
                component.ask(calls, cx)
            });
            work += (self.out.emitted - before) as usize;
            if let Some(Asked { busy, done }) = asked {
                if busy > 0 {
                    io.flush_lanes();
                }
                if warming {
                    continue;
                }
                self.tasks[index].done = done;
                work += busy as usize + usize::from(done);
                if busy > 0 {
                    io.more |= busy == calls;
                    let took_ns = self.ran(io);
                    adapt(&mut self.calls_max, SPOUT_CALLS_MAX, busy == calls, took_ns);
                } else if io.now_ns().saturating_sub(io.lap_ns) > IDLE_ASK_NS {
                    self.ran(io);
                }
            }
        }
        work
    }

    /// True when its spout tasks may be asked in a warm call: they want it, and nothing holds them up.
    fn may_warm(&self) -> bool {
        self.out.warms && self.out.is_spout && !self.out.attention && self.settled && self.out.pace.is_none()
    }

    /// Ends tasks that are over, their inbox being empty. Returns how many.
    pub(crate) fn end(&mut self, io: &mut Io) -> usize {
        let mut work = 0;
        for index in 0..self.tasks.len() {
            let slot = &self.tasks[index];
            let over = if self.out.is_spout { slot.done } else { self.has_heard_all(slot) && self.out.deferred.len() == 0 };
            let over = over && self.out.trackers.get(index).is_none_or(|t| io.acks.trackers[*t as usize].quiet());
            if slot.finished || !over || !self.out.is_empty() {
                continue;
            }
            self.call(io, index, &[], 0, |component, cx| {
                if let Err(why) = component.finish(cx) {
                    cx.fail(why);
                }
            });
            self.tasks[index].finished = true;
            // What `finish` left to be pulled goes out before the END.
            while !self.out.pulls.is_empty() && self.out.outbox_bytes == 0 && !self.out.waits_for_room() {
                self.pull(io);
            }
            if self.out.pulls.is_empty() {
                self.out.send_end(io, self.id.first + index as u32);
            } else {
                let end = Box::new(|cx: &mut Cx<'_>| {
                    let task = cx.task();
                    cx.out.send_end(cx.io, task);
                    true
                });
                self.out.leave_pull(index, Marks::NONE, end);
            }
            work += 1;
        }
        if work > 0 {
            self.ran(io);
        }
        work
    }

    /// Nothing more comes to the task: all upstream tasks have ended; in a cycle, it is drained as well.
    fn has_heard_all(&self, task: &TaskSlot) -> bool {
        let ends = task.ends.len() >= self.making.upstream_tasks;
        if self.making.cycle.is_empty() { ends && self.making.upstream_tasks > 0 } else { ends && self.drained }
    }

    /// Nothing goes on any more in its cycle, and nothing can come into it.
    pub(crate) fn hear_drained(&mut self, components: &[Name]) {
        self.drained |= components.contains(&self.out.component);
    }

    /// When its tasks tick next; `u64::MAX` = never.
    pub(crate) fn next_tick_ns(&self) -> u64 {
        // One that is held up ticks when it no longer is.
        if self.making.tick_ns.is_some() && !self.out.attention { self.next_tick_ns } else { u64::MAX }
    }

    /// True when a task may be ready to end.
    #[inline]
    pub(crate) fn may_end(&self) -> bool {
        !self.leaving && self.tasks.iter().any(|t| !t.finished && (t.done || self.has_heard_all(t)))
    }

    /// It is about to go elsewhere.
    pub(crate) fn leave(&mut self) {
        self.leaving = true;
    }

    /// True when nothing is left to be done for what came: nothing waits to go out, no input's end is open, no tree of its own is. `all`: frames
    /// held for its own cycle are no exception.
    pub(crate) fn is_quiet(&self, io: &Io, all: bool) -> bool {
        let in_cycle = |credit: u32| {
            let of = io.dests.iter().position(|d| d.credit == credit).unwrap_or_default() as u32;
            self.making.cycle.iter().any(|tasks| tasks.contains(&of))
        };
        let out = &self.out;
        let sent = out.outbox_bytes == 0 && out.pulls.is_empty() && out.holds.is_empty_of(|credit| all || !in_cycle(credit));
        sent && out.deferred.len() == 0 && out.trackers.iter().all(|t| io.acks.trackers[*t as usize].quiet())
    }

    /// It is here no longer: its components are closed, and what it still has fails. Returns how many frames and inputs that were.
    pub(crate) fn take_off(&mut self, io: &mut Io) -> u64 {
        let (now_ns, mut lost) = (io.turn_ns, 0);
        for index in 0..self.tasks.len() {
            let mut roots = self.out.joins.give_up(index);
            let deferred = self.out.deferred.give_up(index);
            lost += deferred.len() as u64;
            roots.extend(deferred.iter().flat_map(|marks| marks.each().map(|(root, _)| root).collect::<Vec<_>>()));
            roots.into_iter().for_each(|root| io.acks.fail(root, Reason::Dropped, "its executor moved to another worker", now_ns));
        }
        lost += self.out.give_up_all(io, |io, marks| {
            marks.each().for_each(|(root, _)| io.acks.fail(root, Reason::Discarded, "its executor moved to another worker", now_ns));
        });
        for (index, tracker) in std::mem::take(&mut self.out.trackers).into_iter().enumerate() {
            self.fail_trees(index, tracker, io);
        }
        self.close(io);
        self.publish(io);
        lost
    }

    /// Nothing is written to its counters any more.
    pub(crate) fn gone(&self) {
        self.making.stats.ended.store(true, Ordering::Release);
        self.making.stats.gone.store(true, Ordering::Release);
    }

    /// Trees that are still open when their spout goes fail, and it is told.
    fn fail_trees(&mut self, index: usize, tracker: u16, io: &mut Io) {
        let failed = io.acks.fail_open(tracker);
        self.out.trees_failed += failed.len() as u64;
        if self.out.is_spout && !failed.is_empty() {
            let moved = crate::ack::TreeFail { reason: Reason::Shutdown, text: "its spout moved to another worker".into() };
            self.call(io, index, &[], 0, |component, _| failed.iter().for_each(|id| component.failed(*id, &moved)));
        }
    }

    /// Every spout task is told to end: Ctrl-C in `run`.
    pub(crate) fn stop_asking(&mut self) {
        if self.out.is_spout {
            self.tasks.iter_mut().for_each(|t| t.done = true);
        }
    }

    /// The loop ends: tasks that were opened are closed.
    pub(crate) fn close(&mut self, io: &mut Io) {
        for index in 0..self.tasks.len() {
            if self.tasks[index].opened {
                self.call(io, index, &[], 0, |component, _| component.close());
                self.tasks[index].opened = false;
            }
        }
    }

    /// True when every task has ended and nothing waits to go out.
    pub(crate) fn ended(&self) -> bool {
        self.tasks.iter().all(|t| t.finished) && self.out.is_empty()
    }

    /// A spout that may be asked again, or waits for its trees.
    pub(crate) fn may_ask(&self) -> bool {
        self.out.is_spout && self.tasks.iter().any(|t| !t.done)
    }

    /// Publishes the counters.
    #[inline]
    pub(crate) fn publish(&self, io: &Io) {
        let s = &self.making.stats;
        let executed = if self.making.acker { io.acks.applied } else { self.out.executed };
        s.executed.store(executed, Ordering::Relaxed);
        s.emitted.store(self.out.emitted, Ordering::Relaxed);
        s.transferred.store(self.out.transferred, Ordering::Relaxed);
        s.failed.store(self.out.failed, Ordering::Relaxed);
        s.trees_acked.store(self.out.acked, Ordering::Relaxed);
        s.trees_failed.store(self.out.trees_failed, Ordering::Relaxed);
        s.busy_ns.store(io.metrics.times(self.out.place).busy_ns, Ordering::Relaxed);
        s.ended.store(self.ended() || self.leaving, Ordering::Release);
    }

    /// Housekeeping: samplers follow the rate, and what is seen now and then is seen.
    pub(crate) fn keep_metrics(&mut self, io: &Io, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.adapted_ns);
        let metrics = io.metrics.of(self.out.place);
        metrics.queue(io.queued_bytes(self.out.place) as u64);
        if self.out.is_spout {
            self.adapt_sampler(now_ns);
            metrics.one_in(self.out.sample_every);
        } else {
            self.out.timed.adapt(elapsed_ns);
            self.adapted_ns = now_ns;
            metrics.one_in(self.out.timed.one_in());
        }
    }

    fn adapt_sampler(&mut self, now_ns: u64) {
        let elapsed = now_ns.saturating_sub(self.adapted_ns).max(1);
        let rate = (u128::from(self.out.emitted - self.emitted_at_adapt) * 1_000_000_000 / u128::from(elapsed)) as u64;
        self.out.sample_every = (rate / SAMPLES_PER_SEC).max(1).next_power_of_two();
        self.out.sample_at = self.out.sample_at.min(self.out.emitted + self.out.sample_every);
        self.emitted_at_adapt = self.out.emitted;
        self.adapted_ns = now_ns;
    }
}

/// Halves a budget whose run took too long, doubles one that was used up in time.
#[inline]
fn adapt(budget: &mut u32, max: u32, used_up: bool, took_ns: u64) {
    if took_ns > RUN_NS {
        *budget = (*budget / 2).max(1);
    } else if used_up && *budget < max {
        *budget = (*budget * 2).min(max);
    }
}

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned()).or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "with a value that is no text".into())
}

/// Bytes at the front of `window` that are frames for `id`.
pub(crate) fn run_bytes(window: &[u8], id: ExecutorId) -> usize {
    let mut at = 0;
    while let Some(frame) = Frame::first(&window[at..]) {
        if frame.header.target < id.first || frame.header.target > id.last || frame.header.flags & CONTROL != 0 {
            break;
        }
        at += frame.bytes.len();
    }
    at
}
