//! Says of an engine's core loops who stands still and whose doing it is: counters and the kernel's clocks go into `stuck.rs`, lines for
//! people come out.
//!
//! Before: loops that run. After: the watchdog of a worker reports, and so does `run` in one process.

use crate::stuck::{Change, Stuck};
use saetta_engine::{LoopStats, Running};
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
        let turns: Vec<u64> = loops.iter().map(|l| l.turns.load(Ordering::Relaxed)).collect();
        let changes = self.stuck.look(now, turns.into_iter(), |l| waited(loops[l].thread.load(Ordering::Relaxed)));
        changes.into_iter().filter(|change| !self.may_block.contains(&change.of())).map(|change| note(loops, change)).collect()
    }

    /// True while this loop is reported as held up in user code.
    pub fn is_stuck(&self, on_loop: usize) -> bool {
        self.stuck.is_stuck(on_loop)
    }
}

fn note(loops: &[std::sync::Arc<LoopStats>], change: Change) -> LoopNote {
    let l = change.of();
    let executors = &loops[l].executors;
    let names = executors.iter().map(|e| format!("{}{}", e.component, e.id)).collect::<Vec<_>>().join(", ");
    match change {
        Change::Stuck(_) => LoopNote {
            // Which of them it is, the loop cannot say while it is held up; the first one stands for all.
            component: Some(executors.first().map_or_else(|| Name::system("__system"), |e| e.component.clone())),
            text: format!("core loop {l} stands still, held up in user code of one of: {names}"),
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

/// How long a thread has been ready to run without its core since it began, as the kernel counts it. Zero where it does not tell. One
/// small read of `/proc`.
fn waited(thread: u32) -> Duration {
    // "time on the core, time ready without it, slices", in nanoseconds.
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap_or_default();
    Duration::from_nanos(text.split(' ').nth(1).and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_how_long_a_thread_waited_for_its_core() {
        let text = std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", std::process::id())).unwrap();
        assert_eq!(text.trim().split(' ').count(), 3, "{text}");
        let (mine, later) = (waited(std::process::id()), waited(std::process::id()));
        assert!(later >= mine);
        assert_eq!(waited(0), Duration::ZERO, "no such thread");
    }
}
