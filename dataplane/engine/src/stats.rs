//! What a loop tells others: counters it owns alone and others read, relaxed, without a lock.

use crossbeam_queue::ArrayQueue;
use crossbeam_utils::CachePadded;
use saetta_model::name::Name;
use saetta_model::parallelism::ExecutorId;
use saetta_ring::Sleeper;
use saetta_transport::Road;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

use crate::limits::{LINK_ENDS_MAX, REPORTS_MAX};
use crate::metrics::{LoopMetrics, LoopReader};

/// Counters of one executor since its worker started. Written by its loop, about once a turn.
#[derive(Debug)]
pub struct ExecutorStats {
    /// Which.
    pub id: ExecutorId,
    /// Its component.
    pub component: Name,
    /// Core its loop was given. A pinned loop has read it back from the kernel before it runs; see [`crate::pin`].
    pub core: u32,
    /// Tuples handled (bolt), or `next` calls that emitted (spout).
    pub executed: AtomicU64,
    /// Tuples emitted, once per emit.
    pub emitted: AtomicU64,
    /// Frames sent, once per copy.
    pub transferred: AtomicU64,
    /// Inputs that failed.
    pub failed: AtomicU64,
    /// Spouts: trees told complete.
    pub trees_acked: AtomicU64,
    /// Spouts: trees told failed.
    pub trees_failed: AtomicU64,
    /// Nanoseconds in which it ran.
    pub busy_ns: AtomicU64,
    /// Task whose code is being called; 0 = none. Read when its loop stands still, to name who holds it up.
    pub in_task: AtomicU32,
    /// Every task has ended.
    pub ended: AtomicBool,
    /// It went to another loop: nothing is written here any more.
    pub gone: AtomicBool,
}

/// What one loop tells.
pub struct LoopStats {
    /// Turns of the duty cycle: a loop whose turns stand still while it has work is stuck in user code.
    pub turns: CachePadded<AtomicU64>,
    /// Frame bytes waiting in inboxes, outboxes, lanes and links of this loop.
    pub waiting_bytes: AtomicU64,
    /// Frame bytes taken from other loops and workers and put into lanes to them: equal sums everywhere, twice, mean drained.
    pub sent_bytes: AtomicU64,
    /// See `sent_bytes`.
    pub received_bytes: AtomicU64,
    /// Bytes of tuples, acks and credit between other loops and another worker that the loop passed on: they share a link that it holds.
    pub relayed_bytes: AtomicU64,
    /// So many acks wait for a shared link of this loop that other loops keep theirs.
    pub relay_full: AtomicBool,
    /// Trees open of the spout tasks of this loop.
    pub pending_trees: AtomicU64,
    /// Frames that could not be delivered: their lane's link ended, or their task is not here.
    pub discarded: AtomicU64,
    /// Frames, and inputs that were still emitting, that failed so that a full cycle of executors goes on.
    pub given_up: AtomicU64,
    /// Trees dropped because their spout task began anew after a panic.
    pub trees_dropped: AtomicU64,
    /// Acks and failures of trees that had nowhere to go: such trees time out.
    pub acks_lost: AtomicU64,
    /// Trees that failed when a worker, or the connection its acks came by, was lost: those that had been in it, and some of them were safe.
    pub trees_lost: AtomicU64,
    /// As `trees_lost`, for up to a message timeout after it, because something came of them that named the lost worker.
    pub trees_lost_later: AtomicU64,
    /// System calls made for links.
    pub link_calls: AtomicU64,
    /// Frame bytes that came over links.
    pub link_bytes_in: AtomicU64,
    /// Of them, those that were copied between receiving and executing: of frames in pieces, and of those whose executor was held up.
    pub link_bytes_copied: AtomicU64,
    /// Every task of the loop has ended and nothing waits.
    pub ended: AtomicBool,
    /// The kernel's id of the loop's thread; 0 before it runs and after.
    pub thread: AtomicU32,
    /// Moves of executors that this loop has a part in and that are not settled.
    pub moves: AtomicU64,
    /// The assignment the loop was told of last, and the one it has in force.
    pub version_told: AtomicU64,
    /// See `version_told`.
    pub version: AtomicU64,
    /// Frames, and inputs not yet ended, that failed because their executor had to go while they were under way.
    pub moves_lost: AtomicU64,
    /// Executors whose place was taken on, or was released, after a message timeout instead of a word from their old place.
    pub moves_late: AtomicU64,
    /// The other side of the loop's metrics since its executors changed last, and what ends the one before.
    pub metrics: ArrayQueue<(LoopMetrics, u64, LoopReader)>,
    executors: RwLock<Vec<Arc<ExecutorStats>>>,
}

impl fmt::Debug for LoopStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopStats").field("turns", &self.turns).field("executors", &self.executors()).finish_non_exhaustive()
    }
}

impl LoopStats {
    pub(crate) fn new(executors: Vec<Arc<ExecutorStats>>) -> Self {
        LoopStats {
            turns: CachePadded::new(AtomicU64::new(0)),
            waiting_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            discarded: AtomicU64::new(0),
            relayed_bytes: AtomicU64::new(0),
            relay_full: AtomicBool::new(false),
            pending_trees: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            trees_dropped: AtomicU64::new(0),
            acks_lost: AtomicU64::new(0),
            trees_lost: AtomicU64::new(0),
            trees_lost_later: AtomicU64::new(0),
            link_calls: AtomicU64::new(0),
            link_bytes_in: AtomicU64::new(0),
            link_bytes_copied: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            thread: AtomicU32::new(0),
            moves: AtomicU64::new(0),
            version_told: AtomicU64::new(0),
            version: AtomicU64::new(0),
            moves_lost: AtomicU64::new(0),
            moves_late: AtomicU64::new(0),
            metrics: ArrayQueue::new(1),
            executors: RwLock::new(executors),
        }
    }

    /// Executors of the loop, those about to come included. For whoever watches it: takes a lock that no loop takes.
    pub fn executors(&self) -> Vec<Arc<ExecutorStats>> {
        let all = self.executors.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|e| !e.gone.load(Ordering::Acquire)).cloned().collect()
    }

    /// One more will come. For whoever says so to the loop.
    pub(crate) fn add(&self, executor: Arc<ExecutorStats>) {
        let mut all = self.executors.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|e| !e.gone.load(Ordering::Acquire));
        all.push(executor);
    }
}

/// Something an operator should see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorReport {
    /// Component.
    pub component: Name,
    /// One line.
    pub text: String,
}

/// A link between one of our loops and one of a peer's is over, or could not be taken. Not told when a newer link of the two loops has taken
/// its place, nor for a peer that the routes no longer name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkEnded {
    /// Placement id of the peer's worker.
    pub placement: u64,
    /// Our core loop.
    pub local_loop: u32,
    /// The peer's.
    pub remote_loop: u32,
    /// Which of the two connections.
    pub road: Road,
    /// Orderly or not.
    pub how: HowEnded,
}

/// What carries a worker's links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarrierInUse {
    /// "io_uring" or "epoll".
    pub kind: &'static str,
    /// Why it is not io_uring, where that was wanted; one line.
    pub refusal: Option<String>,
}

impl fmt::Display for CarrierInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind)?;
        self.refusal.iter().try_for_each(|why| write!(f, ": {why}"))
    }
}

/// How a connection of a link ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HowEnded {
    /// Both sides said goodbye.
    Goodbye,
    /// Why, in one line.
    Lost(String),
    /// By this side, because the other connection of the link was lost or a newer one came.
    Closed,
}

/// What all loops of an engine share.
pub struct Shared {
    /// One per loop.
    pub loops: Vec<Arc<LoopStats>>,
    /// Reports for the watchdog; bounded.
    pub reports: ArrayQueue<ErrorReport>,
    /// Reports that found no room.
    pub reports_lost: AtomicU64,
    /// Why the engine cannot go on: the first one counts.
    pub fatal: OnceLock<ErrorReport>,
    /// Links that ended, for whoever dials. Whoever hands out a link reads this first, so an end always finds room.
    pub link_ends: ArrayQueue<LinkEnded>,
    /// Sleep word and event of the watchdog: notified of link ends, of a fatal error, and when a loop has ended.
    pub watchdog: Sleeper,
    /// What carries links of the loops; the first loop that opened its carrier says so. Empty without links.
    pub carrier: OnceLock<CarrierInUse>,
    /// Bytes in all outboxes together.
    pub outbox_bytes: CachePadded<AtomicU64>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("loops", &self.loops).field("fatal", &self.fatal).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(loops: Vec<Arc<LoopStats>>) -> std::io::Result<Self> {
        Ok(Shared {
            carrier: OnceLock::new(),
            link_ends: ArrayQueue::new(LINK_ENDS_MAX * loops.len()),
            watchdog: Sleeper::new()?,
            loops,
            reports: ArrayQueue::new(REPORTS_MAX),
            reports_lost: AtomicU64::new(0),
            fatal: OnceLock::new(),
            outbox_bytes: CachePadded::new(AtomicU64::new(0)),
        })
    }

    /// The engine cannot go on: the first reason counts.
    pub(crate) fn fail(&self, report: ErrorReport) {
        let _ = self.fatal.set(report);
        self.watchdog.notify();
    }

    /// Tells the watchdog of a link's end.
    pub(crate) fn link_ended(&self, end: LinkEnded) {
        if self.link_ends.push(end).is_err() {
            let system = Name::system("__system");
            self.report(&system, "more links ended than there can be: one may stay down; a bug in Saetta".into());
        }
        self.watchdog.notify();
    }

    /// Reports, or counts when nobody reads.
    pub(crate) fn report(&self, component: &Name, text: String) {
        if self.reports.push(ErrorReport { component: component.clone(), text }).is_err() {
            self.reports_lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All executors, ascending.
    pub fn executors(&self) -> Vec<Arc<ExecutorStats>> {
        let mut all: Vec<_> = self.loops.iter().flat_map(|l| l.executors()).collect();
        all.sort_by_key(|e| e.id);
        all
    }

    /// True when every task of every loop has ended.
    pub fn ended(&self) -> bool {
        self.loops.iter().all(|l| l.ended.load(Ordering::Acquire))
    }

    /// True when no executor is on its way to this worker or from it, nor waits for any that is, as far as its loops know.
    pub fn settled(&self) -> bool {
        // Acquire: pairs with the Release in `take_on`, which counts before it says so.
        let settled = |l: &LoopStats| {
            l.version.load(Ordering::Acquire) >= l.version_told.load(Ordering::Relaxed) && l.moves.load(Ordering::Relaxed) == 0
        };
        self.loops.iter().all(|l| settled(l))
    }

    /// True when no frame waits anywhere in this worker.
    pub fn drained(&self) -> bool {
        self.loops.iter().all(|l| l.waiting_bytes.load(Ordering::Acquire) == 0)
    }
}
