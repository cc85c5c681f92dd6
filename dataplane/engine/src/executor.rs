//! An executor: the tasks of one component that live on one loop, driven with runs of frames.
//!
//! Before: `core_loop.rs` has a window whose next frame is for one of its tasks. After: user code has handled it, or it stays.
//! A panic in user code fails the tuple, and the task begins anew from its factory; too many in a minute stop the worker.

use crate::component::{Component, Fail, Progress};
use crate::emit::{Cx, Out};
use crate::io::Io;
use crate::limits::{SAMPLES_PER_SEC, SPOUT_CALLS_MAX};
use crate::program::ComponentFactory;
use crate::stats::{ErrorReport, ExecutorStats};
use saetta_model::name::Name;
use saetta_model::parallelism::ExecutorId;
use saetta_tuple::frame::{END, Frame, Header};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Panics are counted over this time.
const PANIC_WINDOW_NS: u64 = 60_000_000_000;
/// Reports of failed inputs, at most one in this time per executor; all are counted.
const REPORT_EVERY_NS: u64 = 1_000_000_000;

struct TaskSlot {
    component: Box<dyn Component>,
    opened: bool,
    /// Upstream tasks that have ended.
    ends: BTreeSet<u32>,
    /// A spout said Done.
    done: bool,
    /// `finish` ran and END was sent.
    finished: bool,
}

/// See the head of this file.
pub(crate) struct Executor {
    pub(crate) id: ExecutorId,
    pub(crate) component: Name,
    pub(crate) out: Out,
    tasks: Vec<TaskSlot>,
    /// Every task was opened since it was made.
    all_open: bool,
    factory: ComponentFactory,
    /// Tasks whose END each task waits for: all tasks of all components it reads from, itself excepted.
    upstream_tasks: usize,
    /// Acker executors: placed, and nothing to do in this version.
    pub(crate) idle: bool,
    panics_max: u32,
    panics: Vec<u64>,
    last_report_ns: u64,
    stats: Arc<ExecutorStats>,
    emitted_at_adapt: u64,
    adapted_ns: u64,
}

impl Executor {
    #[expect(clippy::too_many_arguments, reason = "built in one place")]
    pub(crate) fn new(
        id: ExecutorId,
        component: Name,
        out: Out,
        factory: ComponentFactory,
        upstream_tasks: usize,
        idle: bool,
        panics_max: u32,
        stats: Arc<ExecutorStats>,
    ) -> Self {
        let tasks = id
            .tasks()
            .map(|_| TaskSlot { component: factory(), opened: false, ends: BTreeSet::new(), done: false, finished: idle })
            .collect();
        Executor {
            id,
            component,
            out,
            tasks,
            all_open: false,
            factory,
            upstream_tasks,
            idle,
            panics_max,
            panics: Vec::new(),
            last_report_ns: 0,
            stats,
            emitted_at_adapt: 0,
            adapted_ns: 0,
        }
    }

    /// Calls user code on one task; a panic becomes a failure and a new instance.
    fn call<R>(
        &mut self,
        io: &mut Io,
        index: usize,
        left: u32,
        body: impl FnOnce(&mut dyn Component, &mut Cx<'_>) -> R,
    ) -> (Option<R>, usize) {
        let slot = &mut self.tasks[index];
        let mut cx = Cx::new(io, &mut self.out, index, left);
        let result = catch_unwind(AssertUnwindSafe(|| {
            if !slot.opened {
                slot.opened = true;
                if let Err(why) = slot.component.open(&mut cx) {
                    cx.fail(why);
                }
            }
            body(&mut *slot.component, &mut cx)
        }));
        let panicked = match &result {
            Ok(_) => None,
            Err(payload) => Some(panic_text(&**payload)),
        };
        if let Some(text) = &panicked {
            cx.fail(Fail::Drop(format!("panic: {text}")));
        }
        cx.settle();
        let (at, reported) = (cx.at, cx.reported.take());
        if let Some(why) = reported {
            self.report(io, why);
        }
        if panicked.is_some() {
            self.restart(io, index);
        }
        (result.ok(), at)
    }

    #[cold]
    fn report(&mut self, io: &Io, why: Fail) {
        if let Fail::Fatal(text) = &why {
            io.shared.fail(ErrorReport { component: self.component.clone(), text: text.clone() });
            return;
        }
        let now = io.now_ns();
        if self.last_report_ns == 0 || now - self.last_report_ns > REPORT_EVERY_NS {
            self.last_report_ns = now;
            io.shared.report(&self.component, why.to_string());
        }
    }

    #[cold]
    fn restart(&mut self, io: &Io, index: usize) {
        let now = io.now_ns();
        self.panics.retain(|at| now - at < PANIC_WINDOW_NS);
        self.panics.push(now);
        if self.panics.len() as u32 > self.panics_max {
            let text = format!("{} panics within a minute, worker.crash.window.max = {} are allowed", self.panics.len(), self.panics_max);
            io.shared.fail(ErrorReport { component: self.component.clone(), text });
        }
        self.tasks[index].component = (self.factory)();
        self.tasks[index].opened = false;
        self.all_open = false;
    }

    /// Handles frames from the front of `window` as long as they are for this executor, at most `frames_max`, until an output blocks. Returns
    /// the bytes handled.
    #[inline]
    pub(crate) fn drive(&mut self, window: &[u8], frames_max: u32, io: &mut Io) -> usize {
        let mut at = 0;
        let executed_before = self.out.executed;
        while !self.out.blocked() {
            let Some(header) = Header::decode(&window[at..]) else { break };
            if header.target < self.id.first || header.target > self.id.last {
                break;
            }
            let done = (self.out.executed - executed_before) as u32;
            if done >= frames_max {
                break;
            }
            let index = (header.target - self.id.first) as usize;
            if header.flags & END != 0 {
                self.tasks[index].ends.insert(header.source);
                at += header.frame_bytes();
                continue;
            }
            if self.idle {
                at += header.frame_bytes();
                continue;
            }
            let (_, n) = self.call(io, index, frames_max - done, |component, cx| component.handle(header.stream, &window[at..], cx));
            if n == 0 {
                // A component that takes nothing although nothing is in its way would spin here for ever.
                break;
            }
            at += n;
        }
        at
    }

    /// One turn of the parts that need no input: outbox, iterators, spouts, ends. Returns how much was done.
    pub(crate) fn turn(&mut self, spouts_on: bool, inbox_empty: bool, io: &mut Io) -> usize {
        let mut work = self.open(io);
        work += self.out.drain(io);
        work += self.pull(io);
        if self.out.is_spout && spouts_on {
            work += self.ask(io);
        }
        if inbox_empty {
            work += self.end(io);
        }
        work
    }

    /// Opens tasks that are new: before their first input, whenever that comes.
    fn open(&mut self, io: &mut Io) -> usize {
        if self.all_open {
            return 0;
        }
        self.all_open = true;
        for index in 0..self.tasks.len() {
            self.call(io, index, 0, |_, _| {});
        }
        self.tasks.len()
    }

    fn pull(&mut self, io: &mut Io) -> usize {
        let mut work = 0;
        while self.out.outbox_bytes == 0 {
            let Some((index, birth, mut pull)) = self.out.pulls.pop_front() else { break };
            let before = self.out.emitted;
            let (used_up, _) = self.call(io, index, 0, |_, cx| {
                cx.birth_ns = birth;
                let used_up = pull(cx);
                cx.birth_ns = None;
                (used_up, pull)
            });
            work += (self.out.emitted - before) as usize;
            match used_up {
                Some((false, pull)) => {
                    self.out.pulls.push_front((index, birth, pull));
                    break;
                }
                Some((true, _)) | None => work += 1,
            }
        }
        work
    }

    /// Asks each spout task for more, in one call of user code, until it has nothing, an output blocks, or its turn is over.
    fn ask(&mut self, io: &mut Io) -> usize {
        let mut work = 0;
        for index in 0..self.tasks.len() {
            if self.out.blocked() || self.tasks[index].done {
                continue;
            }
            let before = self.out.emitted;
            let (asked, _) = self.call(io, index, 0, |component, cx| {
                let mut busy = 0;
                for _ in 0..SPOUT_CALLS_MAX {
                    if let Some(pace) = &mut cx.out.pace {
                        let now_ns = cx.io.now_ns();
                        let Some(due) = pace.due(now_ns) else { break };
                        cx.birth_ns = Some(due);
                    }
                    let emitted = cx.out.emitted;
                    let progress = component.next(cx);
                    cx.out.executed += u64::from(cx.out.emitted > emitted);
                    match progress {
                        Ok(Progress::Done) => return (true, busy),
                        Ok(Progress::Idle) => break,
                        Ok(Progress::Busy) => {}
                        Err(why) => cx.fail(why),
                    }
                    busy += 1;
                    cx.settle();
                    if cx.out.blocked() || matches!(cx.reported, Some(Fail::Fatal(_))) {
                        break;
                    }
                }
                (false, busy)
            });
            work += (self.out.emitted - before) as usize;
            if let Some((done, busy)) = asked {
                self.tasks[index].done = done;
                work += busy + usize::from(done);
            }
        }
        work
    }

    fn end(&mut self, io: &mut Io) -> usize {
        let mut work = 0;
        for index in 0..self.tasks.len() {
            let slot = &self.tasks[index];
            let over = if self.out.is_spout { slot.done } else { self.upstream_tasks > 0 && slot.ends.len() >= self.upstream_tasks };
            if slot.finished || !over || self.out.blocked() {
                continue;
            }
            self.call(io, index, 0, |component, cx| {
                if let Err(why) = component.finish(cx) {
                    cx.fail(why);
                }
            });
            self.tasks[index].finished = true;
            // What `finish` left to be pulled goes out before the END.
            while !self.out.pulls.is_empty() && self.out.outbox_bytes == 0 {
                self.pull(io);
            }
            if self.out.pulls.is_empty() {
                self.out.send_end(io, self.id.first + index as u32);
            } else {
                self.out.pulls.push_back((
                    index,
                    None,
                    Box::new(|cx| {
                        let task = cx.task();
                        cx.out.send_end(cx.io, task);
                        true
                    }),
                ));
            }
            work += 1;
        }
        work
    }

    /// Every spout task is told to end: Ctrl-C in `run`.
    pub(crate) fn stop_asking(&mut self) {
        if self.out.is_spout {
            self.tasks.iter_mut().for_each(|t| t.done = true);
        }
    }

    /// True when every task has ended and nothing waits to go out.
    pub(crate) fn ended(&self) -> bool {
        self.tasks.iter().all(|t| t.finished) && !self.out.blocked()
    }

    /// A spout that may be asked again.
    pub(crate) fn may_ask(&self) -> bool {
        self.out.is_spout && self.tasks.iter().any(|t| !t.done)
    }

    /// Publishes the counters.
    #[inline]
    pub(crate) fn publish(&self) {
        let s = &self.stats;
        s.executed.store(self.out.executed, Ordering::Relaxed);
        s.emitted.store(self.out.emitted, Ordering::Relaxed);
        s.transferred.store(self.out.transferred, Ordering::Relaxed);
        s.failed.store(self.out.failed, Ordering::Relaxed);
        s.ended.store(self.ended(), Ordering::Release);
    }

    /// Housekeeping: the sampler follows the rate.
    pub(crate) fn adapt_sampler(&mut self, now_ns: u64) {
        let elapsed = now_ns.saturating_sub(self.adapted_ns).max(1);
        let rate = (u128::from(self.out.emitted - self.emitted_at_adapt) * 1_000_000_000 / u128::from(elapsed)) as u64;
        self.out.sampler.adapt(rate, SAMPLES_PER_SEC);
        self.emitted_at_adapt = self.out.emitted;
        self.adapted_ns = now_ns;
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
        if frame.header.target < id.first || frame.header.target > id.last {
            break;
        }
        at += frame.bytes.len();
    }
    at
}
