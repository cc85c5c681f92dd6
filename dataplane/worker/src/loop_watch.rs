//! Says of an engine's core loops who stands still and whose doing it is: counters and the kernel's clocks go into `stuck.rs`, lines for
//! people come out.
//!
//! Before: loops that run. After: the watchdog of a worker reports, and so does `run` in one process.

use crate::stuck::{Change, Clock, Stuck};
use saetta_engine::{ExecutorStats, LoopStats, Running};
use saetta_model::Name;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What changed about a loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopNote {
    /// A component of the loop, where user code holds it up; `None` = for the log only.
    pub component: Option<Name>,
    /// One line.
    pub text: String,
}

/// See the head of this file.
pub struct LoopWatch {
    stuck: Stuck,
    /// Loops of components that block: they may stand still.
    may_block: Vec<usize>,
}

impl LoopWatch {
    /// For loops that run. `may_block` are loops of components that are declared to block; nothing is told of them.
    pub fn new(running: &Running, may_block: Vec<usize>, now: Instant) -> Self {
        LoopWatch { stuck: Stuck::new(running.handles.len(), now), may_block }
    }

    /// Looks at all loops; to be called at least every half a second. A loop held up in user code is told a second after it last turned.
    pub fn look(&mut self, running: &Running, now: Instant) -> Vec<LoopNote> {
        let loops = &running.shared.loops;
        let turns = loops.iter().map(|l| (l.thread.load(Ordering::Relaxed) != 0).then(|| l.turns.load(Ordering::Relaxed)));
        let changes = self.stuck.look(now, turns, |l| clock(loops[l].thread.load(Ordering::Relaxed)));
        changes.into_iter().filter(|change| !self.may_block.contains(&change.of())).map(|change| note(loops, change)).collect()
    }

    /// True while this loop is reported as held up in user code.
    pub fn is_stuck(&self, on_loop: usize) -> bool {
        self.stuck.is_stuck(on_loop)
    }
}

fn note(loops: &[std::sync::Arc<LoopStats>], change: Change) -> LoopNote {
    let l = change.of();
    let executors = &loops[l].executors();
    let names = executors.iter().map(|e| format!("{}{}", e.component, e.id)).collect::<Vec<_>>().join(", ");
    match change {
        Change::Stuck(_) => match executors.iter().find_map(|e| Some(e).zip(task(e))) {
            Some((e, task)) => LoopNote {
                component: Some(e.component.clone()),
                text: format!("core loop {l} stands still, held up in user code of {}{}, task {task}", e.component, e.id),
            },
            // A component made or dropped after a panic: which one, the loop cannot say; the first one stands for all.
            None => LoopNote {
                component: Some(executors.first().map_or_else(|| Name::system("__system"), |e| e.component.clone())),
                text: format!("core loop {l} stands still, held up in user code of one of: {names}"),
            },
        },
        Change::Starved(_, waited, still) => {
            let (waited, still) = (waited.as_secs_f64(), still.as_secs_f64());
            let core = executors.first().map_or_else(String::new, |e| format!(" {}", e.core));
            let text = format!("core loop {l} ({names}) waited {waited:.1} of {still:.1} s for core{core}: others use it");
            LoopNote { component: None, text }
        }
        Change::GoesOn(_, still) => {
            LoopNote { component: None, text: format!("core loop {l} goes on after {:.1} s: {names}", still.as_secs_f64()) }
        }
    }
}

/// The task whose code is being called.
fn task(of: &ExecutorStats) -> Option<u32> {
    Some(of.in_task.load(Ordering::Relaxed)).filter(|t| *t != 0)
}

/// What the kernel says of a thread; nothing where it does not tell. Two small reads of `/proc`.
fn clock(thread: u32) -> Clock {
    let read = |what: &str| std::fs::read_to_string(format!("/proc/self/task/{thread}/{what}")).unwrap_or_default();
    // "time on the core, time ready without it, slices", in nanoseconds.
    let times = read("schedstat");
    let mut times = times.split(' ').map(|ns| Duration::from_nanos(ns.parse().unwrap_or(0)));
    let (on_core, delayed) = (times.next().unwrap_or_default(), times.next().unwrap_or_default());
    // "id (name) state ..": a name may hold anything.
    let ready = read("stat").rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('R'));
    Clock { on_core, delayed, ready }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_how_long_a_thread_ran_and_waited_for_its_core() {
        let (ended, wait) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            tell.send((id, clock(id))).unwrap();
            wait.recv().unwrap_err();
        });
        let (id, running) = told.recv().unwrap();
        assert!(running.ready, "{running:?}");
        let deadline = Instant::now() + Duration::from_secs(10);
        while clock(id).ready {
            assert!(Instant::now() < deadline, "it waits in vain, and is not seen to");
            std::thread::yield_now();
        }
        assert!(clock(id).on_core > Duration::ZERO);
        drop(ended);
        thread.join().unwrap();
        assert_eq!(clock(0), Clock::default(), "no such thread");
    }
}
