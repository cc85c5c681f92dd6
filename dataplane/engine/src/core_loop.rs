//! A core loop: one thread, one core, all executors placed on it, run to completion one duty cycle at a time.
//!
//! Order of a cycle: commands; links and lanes, frames handled where they lie; inboxes; outboxes, iterators, spouts; flush; credit;
//! housekeeping by deadline. It returns how much was done, and the idle strategy sees only that.
//! Loops know nothing of threads: `engine.rs` runs one per thread, tests step them by hand.

use crate::ack_plan::AckPlan;
use crate::credit::{CreditIn, SharedLimit, grant};
use crate::executor::Executor;
use crate::io::Io;
use crate::lane::{LaneIn, LaneOut, whole_frames};
use crate::limits::{PARK_BUSY_NS_MAX, PARK_NS_MAX};
use crate::links::{Behind, Links};
use crate::metrics::LoopMetrics;
use crate::plan::Options;
use crate::program::Check;
use crate::receive::Receiver;
use crate::remote::Remote;
use crate::shift::Shift;
use crate::stats::{LoopStats, Shared};
use crate::wait::{Idle, Pause};
use crate::warm::WARM_EVERY_NS;
use crossbeam_queue::ArrayQueue;
use hdrhistogram::Histogram;
use saetta_ring::Sleeper;
use saetta_transport::{Connection, Peer, Road};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of one lane handled before they are given back and the next lane is looked at.
const LANE_BYTES_MAX: usize = 16 << 10;
/// Housekeeping: counters of waiting bytes, sampler.
const HOUSEKEEPING_NS: u64 = 10_000_000;
/// Housekeeping also in the first turn without work, and once in so many that follow.
const IDLE_TURNS: u64 = 64;
/// No executor of this loop.
pub(crate) const NOT_HERE: u16 = u16::MAX;

/// What others ask of a loop.
pub enum Command {
    /// Spouts on or off.
    Activate(bool),
    /// Spouts end as if they had said Done.
    EndSpouts,
    /// Nothing goes on any more in the cycles of these components, nor can anything come into them: they end. See [`crate::DrainWatch`].
    Drained(Arc<[saetta_model::name::Name]>),
    /// A link whose handshake is done.
    AddLink {
        /// One of its two connections.
        connection: Connection,
        /// Who is at its other end.
        peer: Peer,
    },
    /// The route table of executors elsewhere, at once: what is under way to an old place is not waited for.
    Routes(Vec<crate::plan::RemoteExecutor>),
    /// Links that the loops of this worker share with those of another, in place of links of their own. Comes before any of them, and before
    /// routes to workers that they are new to.
    Shares(Vec<crate::relay::Share>),
    /// An incarnation of another worker is gone for good: a later start of its placement was seen, or the newest assignment names the
    /// placement no more. Its trees fail; links of it or an earlier one are closed. Comes before any link of a later one.
    Lost {
        /// Placement id.
        placement: u64,
        /// Start number.
        start: u64,
        /// Index in the assignment.
        index: u32,
    },
    /// A newer assignment: executors come and go while tuples flow. See [`crate::Running::adopt`].
    Move(Box<crate::shift::Moved>),
    /// Say goodbye to peers, flush, end the loop.
    Stop,
}

/// What a loop that is over has seen.
pub struct Seen {
    /// Sampled tuples that ended on it, spout emit to last bolt, nanoseconds.
    pub latency_ns: Histogram<u64>,
    /// For the reader of this loop.
    pub metrics: LoopMetrics,
    /// When it ended, on the engine's clock.
    pub ended_ns: u64,
}

/// A lane from another loop of this worker.
pub(crate) struct LaneFrom {
    pub(crate) lane: LaneIn,
    /// Limits the other loop reads, by local executor.
    pub(crate) limits: Vec<Option<SharedLimit>>,
}

/// See the head of this file.
pub struct CoreLoop {
    pub(crate) index: usize,
    pub(crate) core: u32,
    pub(crate) executors: Vec<Executor>,
    pub(crate) io: Io,
    pub(crate) lanes_in: Vec<LaneFrom>,
    /// By local executor, by lane (0 = this loop, then `lanes_in`, then `io.remotes`).
    pub(crate) credit_in: Vec<Vec<CreditIn>>,
    /// Windows on links, by local executor: for those that begin later.
    pub(crate) windows: Vec<u64>,
    /// Place of the local executor that holds a task, by task id; `NOT_HERE` otherwise.
    pub(crate) local_of_task: Vec<u16>,
    /// Place in the layout of each local executor.
    pub(crate) ordinals: Vec<u32>,
    /// Checks of archives from other processes, by stream.
    pub(crate) checks: Arc<[Check]>,
    /// What is behind a connection, by its place in the carrier.
    pub(crate) behind: Vec<Option<Behind>>,
    pub(crate) commands: Arc<ArrayQueue<Command>>,
    pub(crate) sleeper: Arc<Sleeper>,
    pub(crate) stats: Arc<LoopStats>,
    pub(crate) idle: Idle,
    pub(crate) spouts_on: bool,
    pub(crate) stopping: bool,
    pub(crate) received_bytes: u64,
    pub(crate) discarded: u64,
    pub(crate) housekeeping_ns: u64,
    /// Until then rings are looked for every turn: one was relieved.
    pub(crate) rings_until_ns: u64,
    /// Turns since work was last found.
    pub(crate) idle_turns: u64,
    /// When spouts are called to keep the caches warm next.
    pub(crate) warm_ns: u64,
    pub(crate) credit_owed: bool,
    pub(crate) options: Options,
    pub(crate) layout_executors: Vec<saetta_model::parallelism::ExecutorId>,
    /// The component of each.
    pub(crate) components: Arc<[saetta_model::name::Name]>,
    /// Who holds the ledgers.
    pub(crate) ack_plan: Arc<AckPlan>,
    /// Executors that come and go.
    pub(crate) shift: Shift,
}

impl CoreLoop {
    /// One duty cycle. Returns how much was done: 0 = nothing found.
    pub fn turn(&mut self, links: &mut Links) -> usize {
        let now_ns = self.io.begin_turn();
        let mut work = self.obey(links);
        work += self.io.acks.receive(now_ns);
        if !self.io.acks.envelopes.is_empty() {
            self.take_envelopes();
        }
        if !self.io.acks.probes.is_empty() {
            self.pass_probes(now_ns);
        }
        if now_ns < self.rings_until_ns {
            self.look_for_rings(now_ns);
        }
        work += self.receive_links(links, now_ns);
        work += self.receive_lanes();
        work += self.empty_inboxes();
        work += self.move_on(links, now_ns);
        let spouts_on = self.spouts_on && !self.stopping;
        let warming = work == 0 && self.is_to_warm(now_ns);
        for place in 0..self.executors.len() {
            let executor = &mut self.executors[place];
            if executor.wants_turn(spouts_on, now_ns) {
                work += executor.turn(spouts_on, warming, &mut self.io);
                self.io.flush_lanes();
            }
            if self.executors[place].may_end() && self.io.inbox_is_empty(place) {
                work += self.executors[place].end(&mut self.io);
                self.io.flush_lanes();
            }
        }
        // What a full lane refused, whoever staged it and whether or not it has a turn again.
        self.io.flush_lanes();
        work += self.io.acks.flush(now_ns);
        work += self.flush_shared();
        work += self.flush_links(links, now_ns);
        // At the deadline as well: what a blocked executor has handled is not withheld while its loop is busy with others.
        self.give_credit(links, work == 0 || now_ns >= self.housekeeping_ns);
        self.idle_turns = if work == 0 { self.idle_turns + 1 } else { 0 };
        if now_ns >= self.housekeeping_ns || self.idle_turns % IDLE_TURNS == 1 {
            self.keep_house(links, now_ns);
        }
        // Relaxed: a watchdog only compares two readings of it.
        self.stats.turns.store(self.stats.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        work
    }

    fn obey(&mut self, links: &mut Links) -> usize {
        let mut work = 0;
        while let Some(command) = self.commands.pop() {
            work += 1;
            match command {
                Command::Activate(on) => self.spouts_on = on,
                Command::EndSpouts => self.executors.iter_mut().for_each(Executor::stop_asking),
                Command::Drained(components) => self.executors.iter_mut().for_each(|e| e.hear_drained(&components)),
                Command::AddLink { connection, peer } => self.add_link(links, connection, peer),
                Command::Routes(remotes) => self.route(links, &remotes),
                Command::Shares(shares) => self.share(links, &shares),
                Command::Lost { placement, start, index } => self.lose_worker(links, placement, start, index),
                Command::Move(moved) => self.take_on(links, *moved),
                Command::Stop => self.stopping = true,
            }
        }
        work
    }

    fn receive_lanes(&mut self) -> usize {
        let CoreLoop { executors, io, lanes_in, credit_in, local_of_task, discarded, received_bytes, .. } = self;
        let mut work = 0;
        for (number, from) in lanes_in.iter_mut().enumerate() {
            let window = from.lane.readable();
            if window.is_empty() {
                continue;
            }
            let n = whole_frames(window, LANE_BYTES_MAX);
            Receiver { executors, io, credit_in, local_of_task, discarded, far: false }.take(&window[..n], number + 1);
            from.lane.release(n);
            *received_bytes += n as u64;
            work += n;
            io.flush_lanes();
        }
        work
    }

    fn empty_inboxes(&mut self) -> usize {
        let mut work = 0;
        for place in 0..self.executors.len() {
            if self.io.inbox_is_empty(place) {
                continue;
            }
            // This loop's own frames first: they are the newest in the cache.
            let mut taken = self.io.take_own(place);
            if !taken.frames().is_empty() {
                let n = self.executors[place].drive(taken.frames(), &mut self.io);
                taken.consume(n);
                self.credit_in[place][0].consume(n);
                work += n;
            }
            self.io.inboxes[place].lanes[0].put(taken);
            if self.io.inboxes[place].pending {
                work += self.empty_lanes(place);
            }
            self.io.flush_lanes();
        }
        work
    }

    fn empty_lanes(&mut self, place: usize) -> usize {
        let mut work = 0;
        for lane in 1..self.io.inboxes[place].lanes.len() {
            if self.io.inboxes[place].lanes[lane].is_empty() {
                continue;
            }
            let mut taken = self.io.inboxes[place].lanes[lane].take();
            let n = self.executors[place].drive(taken.frames(), &mut self.io);
            taken.consume(n);
            self.io.inboxes[place].lanes[lane].put(taken);
            self.credit_in[place][lane].consume(n);
            work += n;
        }
        self.io.inboxes[place].pending = self.io.inboxes[place].lanes[1..].iter().any(|l| !l.is_empty());
        work
    }

    /// Tells emitters what came free: at half a window, and everything when there was nothing else to do.
    fn give_credit(&mut self, links: &mut Links, idle: bool) {
        let n_lanes = self.lanes_in.len();
        let mut owed = false;
        for place in 0..self.executors.len() {
            if let Some(limit) = self.credit_in[place][0].due(idle) {
                self.io.credits[self.ordinals[place] as usize].raise(limit);
            }
            for number in 0..n_lanes {
                let from = &self.lanes_in[number];
                let Some(shared) = &from.limits[place] else { continue };
                if let Some(limit) = self.credit_in[place][number + 1].due(idle) {
                    grant(shared, limit);
                    from.lane.notify_writer();
                }
            }
            let first_task = self.executors[place].id.first;
            for (number, remote) in self.io.remotes.iter_mut().enumerate().filter(|(_, r)| r.is_open()) {
                let credit = &mut self.credit_in[place][n_lanes + 1 + number];
                // Over a link an idle grant would cost a segment per message; it waits for the housekeeping deadline.
                if let Some(limit) = credit.due(false) {
                    remote.grant(&mut links.0, first_task, limit);
                } else {
                    owed |= credit.owes();
                }
            }
        }
        self.credit_owed = owed;
    }

    #[cold]
    pub(crate) fn keep_house(&mut self, links: &mut Links, now_ns: u64) {
        self.tidy_links(links, now_ns);
        if now_ns >= self.housekeeping_ns {
            // Not oftener: each is a segment, and a system call on either side.
            self.settle_link_credit(links);
            self.housekeeping_ns = now_ns + HOUSEKEEPING_NS;
            for executor in &mut self.executors {
                executor.keep_metrics(&self.io, now_ns);
            }
            self.look_for_rings(now_ns);
            self.io.acks.forget_lost(now_ns);
            self.io.lap_ns();
            self.io.metrics.turn(self.io.lap_ns);
        }
        let mut waiting = self.io.waiting_bytes() + self.io.acks.waiting_bytes();
        for place in 0..self.executors.len() {
            self.executors[place].publish(&self.io);
            waiting += self.executors[place].out.waiting();
            waiting += self.io.inboxes[place].lanes.iter().map(crate::queue::FrameQueue::bytes).sum::<usize>();
        }
        waiting += self.keep_relay(links);
        if let Some(carrier) = &links.0 {
            waiting += self
                .io
                .remotes
                .iter()
                .flat_map(|r| [r.link(Road::Data), r.link(Road::Control)])
                .flatten()
                .filter(|l| !carrier.drained(*l))
                .count();
            let counters = carrier.counters();
            self.stats.link_calls.store(counters.calls, Ordering::Relaxed);
            self.stats.link_bytes_in.store(counters.frame_bytes_in, Ordering::Relaxed);
            self.stats.link_bytes_copied.store(counters.bytes_copied + self.io.copied_bytes, Ordering::Relaxed);
        }
        self.stats.pending_trees.store(self.io.acks.pending(), Ordering::Relaxed);
        self.stats.trees_dropped.store(self.io.acks.dropped, Ordering::Relaxed);
        self.stats.acks_lost.store(self.io.acks.lost, Ordering::Relaxed);
        let (at_once, later) = self.io.acks.failed_by_loss();
        self.stats.trees_lost.store(at_once, Ordering::Relaxed);
        self.stats.trees_lost_later.store(later, Ordering::Relaxed);
        self.stats.discarded.store(self.discarded, Ordering::Relaxed);
        self.stats.sent_bytes.store(self.io.sent_bytes, Ordering::Relaxed);
        self.stats.received_bytes.store(self.received_bytes, Ordering::Relaxed);
        self.stats.waiting_bytes.store(waiting as u64, Ordering::Release);
        let ended = waiting == 0 && !self.shift.moves.is_anybody_coming() && self.executors.iter().all(Executor::ended);
        if self.stats.ended.swap(ended, Ordering::AcqRel) != ended {
            self.io.shared.watchdog.notify();
        }
    }

    /// True when anything waits to be looked at: the last look before sleeping.
    fn has_input(&mut self) -> bool {
        !self.commands.is_empty()
            || self.lanes_in.iter_mut().any(|l| !l.lane.is_empty())
            || self.io.acks.has_input()
            || self.executors.iter().any(|e| e.out.deferred.has_signal())
    }

    /// Runs until told to stop or until something fatal. Returns what it has seen.
    pub fn run(mut self, links: &mut Links) -> Seen {
        loop {
            let work = self.turn(links);
            if self.over(links) {
                for executor in &mut self.executors {
                    executor.close(&mut self.io);
                }
                self.keep_house(links, self.io.now_ns());
                return self.seen();
            }
            match self.idle.after(work, self.io.now_ns()) {
                Pause::Spin => std::hint::spin_loop(),
                Pause::Yield => std::thread::yield_now(),
                Pause::Park => {
                    self.park(links);
                    self.idle.woke(self.io.now_ns());
                }
            }
        }
    }

    /// True once in a while without work, on a loop that spins: see `warm.rs`.
    #[inline]
    fn is_to_warm(&mut self, now_ns: u64) -> bool {
        if self.idle_turns == 0 || now_ns < self.warm_ns || !self.idle.never_sleeps() {
            return false;
        }
        self.warm_ns = now_ns + WARM_EVERY_NS;
        self.io.lanes.iter_mut().for_each(LaneOut::warm);
        true
    }

    /// The loop is over: what it has seen.
    pub fn seen(mut self) -> Seen {
        Seen {
            latency_ns: std::mem::replace(&mut self.io.latency_ns, crate::metrics::empty_histogram()),
            metrics: std::mem::replace(&mut self.io.metrics, LoopMetrics::none()),
            ended_ns: self.io.now_ns(),
        }
    }

    fn over(&mut self, links: &mut Links) -> bool {
        if self.io.shared.fatal.get().is_some() {
            return true;
        }
        self.stopping && links.0.as_ref().is_none_or(|_| self.io.remotes.iter().all(Remote::has_no_roads) && self.io.relay.is_apart())
    }

    fn park(&mut self, links: &mut Links) {
        self.sleeper.about_to_sleep();
        if !self.has_input() {
            let busy = self.credit_owed
                || self.stopping
                || !self.shift.moves.is_idle()
                || self.executors.iter().any(|e| e.out.attention || (self.spouts_on && e.may_ask()))
                || self.io.acks.is_staged()
                || self.io.relay.waiting_bytes() > 0
                || self.io.staging.iter().any(|s| !s.frames.is_empty())
                || (0..self.executors.len()).any(|place| !self.io.inbox_is_empty(place));
            let timeout = Duration::from_nanos(park_ns(busy, self.io.now_ns(), self.next_deadline_ns()));
            match &mut links.0 {
                Some(carrier) => carrier.wait(self.sleeper.as_fd(), timeout),
                None => self.sleeper.wait(timeout),
            }
        }
        self.sleeper.awake();
    }

    /// When a tick or a timeout is due next, nanoseconds of the loop's clock.
    fn next_deadline_ns(&self) -> u64 {
        let ticks = self.executors.iter().map(Executor::next_tick_ns);
        let timeouts = self.io.acks.trackers.iter().filter_map(|t| t.slots.expire_next_ns());
        ticks.chain(timeouts).chain([self.shift.moves.next_deadline_ns()]).min().unwrap_or(u64::MAX)
    }

    /// Latencies of sampled tuples that ended on this loop, spout emit to last bolt, nanoseconds. For loops stepped by hand.
    pub fn latency_ns(&self) -> &Histogram<u64> {
        &self.io.latency_ns
    }

    /// What all loops of the engine share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.io.shared
    }
}

/// How long a loop may sleep: to the next deadline, and never so long that what can only be found by looking is found late.
fn park_ns(busy: bool, now_ns: u64, deadline_ns: u64) -> u64 {
    let longest = if busy { PARK_BUSY_NS_MAX } else { PARK_NS_MAX };
    longest.min(deadline_ns.saturating_sub(now_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_sleeps_no_longer_than_to_its_next_tick_or_timeout() {
        assert_eq!(park_ns(false, 1_000, u64::MAX), PARK_NS_MAX);
        assert_eq!(park_ns(true, 1_000, u64::MAX), PARK_BUSY_NS_MAX);
        assert_eq!(park_ns(false, 1_000, 6_000), 5_000);
        assert_eq!(park_ns(false, 6_000, 1_000), 0);
    }
}
