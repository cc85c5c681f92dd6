//! Trees of tracked tuples on one loop: who asks for them, whose ledger is where, and the control road between loops.
//!
//! Before: `emit.rs` anchors frames and acks inputs. After: `ledger/` has XORed them, and the owner's executor is told `acked` or `failed`.
//!
//! Each task that opens trees has a tracker on its own loop: its slots, and what its component is to be told. Its ledger is held by an acker
//! executor: on the tracker's own loop it is used directly, elsewhere init and acks travel as control frames, batched, and the outcome comes
//! back the same way. Control frames have rings of their own and are consumed before anything else, so they wait for nothing.

use crate::cycle::{Hop, Probe, RING_MAX};
use crate::lane::{LaneIn, LaneOut, whole_frames};
use crate::ledger::{Edges, Ledger, Root, Slots, Step};
use crate::limits::{CONTROL_STAGING_BYTES_MAX, CONTROL_WATERMARK_BYTES, EXPIRE_SLOTS_MAX, FAIL_TEXT_BYTES_MAX, PROBES_MAX};
use crate::moves::{Lane, MOVE_BYTES, Said, WORDS_MAX};
use crate::relay::ENVELOPE;
use saetta_ring::prefetch;
use saetta_tuple::frame::{BLOCK_BYTES, CONTROL, Frame, HEADER_BYTES, Header, frame_bytes};
use std::fmt;

mod lost;
#[cfg(test)]
mod oracle;
mod remote;

/// Why a tree failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// A bolt failed its input, or panicked; the text names the component.
    Bolt,
    /// Not complete within `topology.message.timeout.secs`.
    Timeout,
    /// A worker that had a part of it is gone.
    WorkerLost,
    /// A link ended with a part of it on the way.
    LinkLost,
    /// A deferred input was dropped.
    Dropped,
    /// The topology was stopped.
    Shutdown,
    /// It waited in a cycle of executors that had no room left.
    Cycle,
    /// A frame of it could not be delivered.
    Discarded,
}

impl Reason {
    const ALL: [Reason; 8] = [
        Reason::Bolt,
        Reason::Timeout,
        Reason::WorkerLost,
        Reason::LinkLost,
        Reason::Dropped,
        Reason::Shutdown,
        Reason::Cycle,
        Reason::Discarded,
    ];

    /// As a peer sent it.
    fn of(number: u64) -> Self {
        usize::try_from(number).ok().and_then(|n| Self::ALL.get(n).copied()).unwrap_or(Reason::Discarded)
    }

    /// In a few words.
    pub fn text(self) -> &'static str {
        match self {
            Reason::Bolt => "failed by a bolt",
            Reason::Timeout => "timeout",
            Reason::WorkerLost => "worker lost",
            Reason::LinkLost => "link lost",
            Reason::Dropped => "dropped",
            Reason::Shutdown => "shutdown",
            Reason::Cycle => "cycle",
            Reason::Discarded => "discarded",
        }
    }
}

/// What a spout is told of a tree that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeFail {
    /// Why.
    pub reason: Reason,
    /// Component and its words for a bolt's failure; may be empty.
    pub text: String,
}

impl fmt::Display for TreeFail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.text())?;
        if self.text.is_empty() { Ok(()) } else { write!(f, ": {}", self.text) }
    }
}

/// Where something of the control road is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Road {
    /// Nowhere (yet): what would go there is counted as lost, and times out.
    None,
    /// On this loop: index of the ledger, or of the tracker.
    Here(u16),
    /// On another loop of this worker, by lane.
    Lane(u16),
    /// On a loop of another worker.
    Remote(u16),
}

/// Kinds of control frames, in the header's `stream`.
mod kind {
    /// (root, xor) blocks behind one mask.
    pub(super) const ACKS: u16 = 0;
    /// As `ACKS`, from the owner: what a tree began with.
    pub(super) const INITS: u16 = 1;
    /// root, reason, text: for the ledger.
    pub(super) const FAIL: u16 = 2;
    /// Roots that are complete: for the owner.
    pub(super) const COMPLETE: u16 = 3;
    /// As `FAIL`, for the owner.
    pub(super) const FAILED: u16 = 4;
    /// root: the owner is to measure its timeout from now.
    pub(super) const RESET: u16 = 5;
    /// An executor, then (executor, block) of each hop: see `cycle.rs`.
    pub(super) const PROBE: u16 = 6;
    /// Roots that fail, for the ledger, without a text; the reason stands where `ACKS` has the mask.
    pub(super) const FAILS: u16 = 7;
    /// As `FAILS`, for the owner.
    pub(super) const FAILEDS: u16 = 8;
    /// A word about an executor that changes place: see `moves.rs`.
    pub(super) const MOVE: u16 = 9;
}

/// What one task that opens trees keeps.
pub(crate) struct Tracker {
    pub(crate) slots: Slots,
    /// Message ids of complete trees, not yet told to the component.
    pub(crate) acked: Vec<u64>,
    /// As `acked`, of failed ones.
    pub(crate) failed: Vec<(u64, TreeFail)>,
    /// Most open trees: `topology.max.spout.pending`, or as many as there are slots; 0 for a spout while nothing is known of whoever holds the
    /// ledger.
    pub(crate) pending_max: u32,
    pending_limit: u32,
    is_spout: bool,
    heard: bool,
    held_back: bool,
    /// Sampled trees: when they were emitted.
    births: Vec<(Root, u64)>,
    /// Bit `slot mod 64` of each of them: other trees need not be looked for.
    births_seen: u64,
    /// Emit to complete of sampled trees, nanoseconds, not yet recorded.
    pub(crate) complete_ns: Vec<u64>,
    ledger: Road,
}

/// Sampled trees that may be open at once; beyond it they are not sampled.
const BIRTHS_MAX: usize = 64;

impl Tracker {
    pub(crate) fn new(slots: Slots, pending_max: u32, ledger: Road) -> Self {
        Tracker {
            slots,
            acked: Vec::new(),
            failed: Vec::new(),
            pending_max,
            pending_limit: pending_max,
            is_spout: false,
            heard: true,
            held_back: false,
            births: Vec::new(),
            births_seen: 0,
            complete_ns: Vec::new(),
            ledger,
        }
    }

    /// Whether it may wait until it can open trees: a spout is not asked meanwhile.
    pub(crate) fn of_spout(self, is_spout: bool) -> Self {
        Tracker { is_spout, ..self }
    }

    /// Where its ledger is. In another worker it is not heard of yet.
    pub(crate) fn set_ledger(&mut self, ledger: Road) {
        self.ledger = ledger;
        self.ledger_is_heard(!matches!(ledger, Road::Remote(_)));
    }

    /// Whoever holds the ledger knows this worker, or does not. Before that, acks of a tree might come to it earlier than that this is another
    /// incarnation, and would be taken for the earlier one's.
    fn ledger_is_heard(&mut self, heard: bool) {
        self.heard = heard;
        self.limit_pending();
    }

    /// True when no further tree may be opened now.
    #[inline]
    pub(crate) fn full(&self) -> bool {
        self.slots.pending() >= self.pending_max
    }

    /// True when nothing is open and everything was told.
    pub(crate) fn quiet(&self) -> bool {
        self.slots.pending() == 0 && self.told()
    }

    /// True when the component has heard of everything that ended.
    #[inline]
    pub(crate) fn told(&self) -> bool {
        self.acked.is_empty() && self.failed.is_empty()
    }

    #[inline(always)]
    fn complete(&mut self, root: Root, now_ns: u64) {
        if let Some(id) = self.slots.close(root) {
            self.acked.push(id);
            if self.births_seen >> (root.slot() % 64) & 1 == 1 {
                self.end_sample(root, now_ns);
            }
        }
    }

    #[cold]
    fn end_sample(&mut self, root: Root, now_ns: u64) {
        if let Some(at) = self.births.iter().position(|(r, _)| *r == root) {
            let (_, birth) = self.births.swap_remove(at);
            if self.complete_ns.len() < BIRTHS_MAX {
                self.complete_ns.push(now_ns.saturating_sub(birth));
            }
        }
        self.births_seen = self.births.iter().fold(0, |seen, (root, _)| seen | 1 << (root.slot() % 64));
    }

    /// A spout task whose trees change place opens none until that is settled.
    pub(crate) fn hold_back(&mut self, on: bool) {
        self.held_back = on;
        self.limit_pending();
    }

    fn limit_pending(&mut self) {
        let may_open = !self.is_spout || (self.heard && !self.held_back);
        self.pending_max = if may_open { self.pending_limit } else { 0 };
    }

    /// Fails all that is open: nobody knows any more what became of it.
    fn fail_all(&mut self, reason: Reason) {
        let Tracker { slots, failed, .. } = self;
        slots.drain_open(|_, id| failed.push((id, TreeFail { reason, text: String::new() })));
        self.births.clear();
        self.births_seen = 0;
    }

    #[cold]
    fn fail(&mut self, root: Root, why: TreeFail) {
        if let Some(id) = self.slots.close(root) {
            self.births.retain(|(r, _)| *r != root);
            self.failed.push((id, why));
        }
    }

    /// Fails what has waited too long. Cheap when nothing has.
    #[inline]
    pub(crate) fn expire(&mut self, now_ns: u64) -> usize {
        let Tracker { slots, failed, births, .. } = self;
        slots.expire(now_ns, EXPIRE_SLOTS_MAX, |root, id| {
            births.retain(|(r, _)| *r != root);
            failed.push((id, TreeFail { reason: Reason::Timeout, text: String::new() }));
        })
    }
}

/// The control lane to another loop.
pub(crate) struct ControlOut {
    lane: LaneOut,
    batch: Batch,
    /// Bytes staged at which they are moved on next.
    flush_at: usize,
}

/// Bytes of acks fetched before the first of them is looked at.
const PREFETCH_BYTES: usize = 2048;
/// Fewer acks than this leave at the end of their turn: somebody may be waiting for each.
const FEW_ACKS: u32 = 8;
/// More of them wait for each other, but for so many turns and nanoseconds at most.
const HELD_TURNS_MAX: u32 = 16;
const HELD_NS_MAX: u64 = 2_000;

/// A block frame is closed at this size: the smallest ring takes several.
const FRAME_BYTES_MAX: usize = 1024;

/// Control frames being written for one place.
#[derive(Default)]
struct Batch {
    frames: Vec<u8>,
    /// The block frame that is still open: where it begins, its kind and its mask.
    open: Option<(usize, u16, u64)>,
    /// Root of its last block.
    last: u64,
}

impl Batch {
    /// Adds (root, xor) under `mask`; merged with the block before it if that is of the same root.
    #[inline]
    fn add(&mut self, of: u16, root: Root, xor: u64, mask: u64) {
        match self.open {
            Some((start, kind, open_mask)) if kind == of && open_mask == mask && self.frames.len() - start < FRAME_BYTES_MAX => {
                if self.last == root.to_bits() {
                    let at = self.frames.len() - 8;
                    let (_, tail) = self.frames.split_at_mut(at);
                    let word: &mut [u8; 8] = tail.try_into().expect("eight bytes");
                    *word = (u64::from_le_bytes(*word) ^ xor).to_le_bytes();
                    return;
                }
            }
            _ => {
                self.close();
                self.open = Some((self.begin(of, 0), of, mask));
                self.frames.extend_from_slice(&u128::from(mask).to_le_bytes());
            }
        }
        let block = u128::from(root.to_bits()) | u128::from(xor) << 64;
        self.frames.extend_from_slice(&block.to_le_bytes());
        self.last = root.to_bits();
    }

    /// Closes the open block frame.
    fn close(&mut self) {
        if let Some((start, ..)) = self.open.take() {
            let len = (self.frames.len() - start - HEADER_BYTES) as u32;
            self.frames[start..start + 4].copy_from_slice(&len.to_le_bytes());
        }
    }

    /// Begins a frame of `len` bytes behind its header. Returns where.
    fn begin(&mut self, of: u16, len: usize) -> usize {
        let start = self.frames.len();
        self.frames.extend_from_slice(&Header { len: len as u32, stream: of, flags: CONTROL, target: 0, source: 0 }.encode());
        start
    }

    fn probe(&mut self, probe: &Probe) {
        self.close();
        let len = 4 + 8 * probe.path.len();
        let start = self.begin(kind::PROBE, len);
        self.frames.extend_from_slice(&probe.to.to_le_bytes());
        for hop in &probe.path {
            self.frames.extend_from_slice(&hop.executor.to_le_bytes());
            self.frames.extend_from_slice(&hop.block.to_le_bytes());
        }
        self.frames.resize(start + frame_bytes(len), 0);
    }

    fn word(&mut self, said: &Said) {
        self.close();
        self.begin(kind::MOVE, MOVE_BYTES);
        self.frames.extend_from_slice(&said.encode());
    }

    /// A frame of one root with a text.
    fn say(&mut self, of: u16, root: Root, reason: u8, text: &str) {
        self.close();
        let text = &text.as_bytes()[..text.floor_char_boundary(FAIL_TEXT_BYTES_MAX)];
        let len = 9 + text.len();
        let start = self.begin(of, len);
        self.frames.extend_from_slice(&root.to_bits().to_le_bytes());
        self.frames.push(reason);
        self.frames.extend_from_slice(text);
        self.frames.resize(start + frame_bytes(len), 0);
    }
}

/// The two words of a block.
#[inline(always)]
fn words(block: &[u8; BLOCK_BYTES]) -> (u64, u64) {
    let (root, xor) = block.split_first_chunk::<8>().expect("sixteen bytes");
    (u64::from_le_bytes(*root), u64::from_le_bytes(*xor.first_chunk().expect("sixteen bytes")))
}

/// False where the owner of a tree is here and does not have it.
#[cold]
fn is_open(trackers: &[Tracker], owner_at: &[Road], root: Root) -> bool {
    match owner_at.get(root.owner() as usize) {
        Some(Road::Here(tracker)) => trackers[*tracker as usize].slots.is_open(root),
        _ => true,
    }
}

/// See the head of this file.
pub(crate) struct Acks {
    /// Of the tasks on this loop that open trees.
    pub(crate) trackers: Vec<Tracker>,
    /// Held on this loop.
    pub(crate) ledgers: Vec<Ledger>,
    /// By owner task: where its ledger is.
    pub(crate) ledger_of: Vec<Road>,
    /// By owner task: where it is itself.
    pub(crate) owner_at: Vec<Road>,
    /// To the other loops, by lane.
    pub(crate) lanes: Vec<ControlOut>,
    /// From the other loops.
    pub(crate) lanes_in: Vec<LaneIn>,
    /// To the loops of other workers, by remote.
    remotes: Vec<remote::RemoteOut>,
    pub(crate) edges: Edges,
    /// False with `topology.acker.executors = 0`: tracked emits are acked at once.
    pub(crate) on: bool,
    /// Acks and failures that had nowhere to go.
    pub(crate) lost: u64,
    /// Trees whose task began anew.
    pub(crate) dropped: u64,
    /// Control frames for places that are another's now: see `ack/remote.rs`.
    orphans: Vec<u8>,
    /// Acks applied or sent, for the acker's counter.
    pub(crate) applied: u64,
    /// Control bytes are staged,
    staged: bool,
    /// envelopes among them since they were last moved on.
    passed: bool,
    /// Acks staged since the last flush, for how many turns they were held back, and since when.
    added: u32,
    held_turns: u32,
    held_ns: u64,
    /// See [`Self::congested`].
    congested: bool,
    /// Probes that came, for executors of this loop.
    pub(crate) probes: Vec<Probe>,
    /// Envelopes that came: see `relay.rs`.
    pub(crate) envelopes: Vec<u8>,
    /// Whose bits fail the trees they come with.
    gone: lost::Gone,
    /// Words about moves that came, with the lane of who said each.
    pub(crate) said: Vec<(Lane, Said)>,
    /// The lane whose control frames are being taken.
    pub(crate) from: Lane,
}

impl Acks {
    #[expect(clippy::too_many_arguments, reason = "built in one place")]
    pub(crate) fn new(
        trackers: Vec<Tracker>,
        ledgers: Vec<Ledger>,
        ledger_of: Vec<Road>,
        owner_at: Vec<Road>,
        lanes: Vec<LaneOut>,
        lanes_in: Vec<LaneIn>,
        edges: Edges,
        on: bool,
        timeout_ns: u64,
    ) -> Self {
        let lanes = lanes.into_iter().map(|lane| ControlOut { lane, batch: Batch::default(), flush_at: CONTROL_WATERMARK_BYTES }).collect();
        let (remotes, lost, dropped, applied, staged) = (Vec::new(), 0, 0, 0, false);
        Acks {
            trackers,
            ledgers,
            ledger_of,
            owner_at,
            lanes,
            lanes_in,
            remotes,
            edges,
            on,
            lost,
            dropped,
            orphans: Vec::new(),
            applied,
            staged,
            passed: false,
            added: 0,
            held_turns: 0,
            held_ns: 0,
            congested: false,
            probes: Vec::new(),
            envelopes: Vec::new(),
            gone: lost::Gone::new(timeout_ns),
            said: Vec::new(),
            from: 0,
        }
    }

    /// A tracked emit begins: its root, or `None` when the tracker is full.
    #[inline]
    pub(crate) fn open(&mut self, tracker: u16, id: u64, now_ns: u64) -> Option<Root> {
        let tracker = &mut self.trackers[tracker as usize];
        if tracker.full() { None } else { tracker.slots.open(id, now_ns) }
    }

    /// A tree of one frame begins, which goes to a place of the worker that `bit` stands for: its root, the frame's edge, and whether the
    /// tracker may open no further one. `None` = no slot is free.
    #[inline(always)]
    pub(crate) fn begin_only(&mut self, tracker: u16, id: u64, bit: u64, now_ns: u64) -> Option<(Root, u64, bool)> {
        let t = &mut self.trackers[tracker as usize];
        let root = t.slots.open(id, now_ns)?;
        let full = t.full();
        let edge = self.edges.edge();
        match t.ledger {
            // Nobody can have acked it yet.
            Road::Here(ledger) if self.ledgers[ledger as usize].init(root, edge, bit) == Step::Open => {}
            _ => self.init(tracker, root, edge, bit, now_ns),
        }
        Some((root, edge, full))
    }

    /// A tracked emit is over: its frames carry edges that XOR to `xor`.
    #[inline]
    pub(crate) fn init(&mut self, tracker: u16, root: Root, xor: u64, mask: u64, now_ns: u64) {
        let t = &mut self.trackers[tracker as usize];
        if xor == 0 {
            // Nobody subscribes: the tuple counts as processed.
            t.complete(root, now_ns);
            return;
        }
        match t.ledger {
            Road::Here(ledger) => {
                let step = self.ledgers[ledger as usize].init(root, xor, mask);
                if step != Step::Open {
                    self.step(step, root, mask, now_ns);
                }
            }
            road => self.send(road, kind::INITS, root, xor, mask),
        }
    }

    /// Remembers a sampled tree's birth.
    #[cold]
    pub(crate) fn sample(&mut self, tracker: u16, root: Root, birth_ns: u64) {
        let tracker = &mut self.trackers[tracker as usize];
        if tracker.births.len() < BIRTHS_MAX {
            tracker.births.push((root, birth_ns));
            tracker.births_seen |= 1 << (root.slot() % 64);
        }
    }

    /// An input is handled: its edge and those emitted from it.
    #[inline]
    pub(crate) fn ack(&mut self, root: Root, xor: u64, mask: u64, now_ns: u64) {
        self.applied += 1;
        match self.ledger_of.get(root.owner() as usize).copied().unwrap_or(Road::None) {
            Road::Here(ledger) => {
                let Acks { ledgers, trackers, owner_at, .. } = self;
                let step = ledgers[ledger as usize].ack_if(root, xor, mask, || is_open(trackers, owner_at, root));
                if step != Step::Open {
                    self.step(step, root, mask, now_ns);
                }
            }
            road => self.send(road, kind::ACKS, root, xor, mask),
        }
    }

    /// An input failed.
    #[cold]
    pub(crate) fn fail(&mut self, root: Root, reason: Reason, text: &str, now_ns: u64) {
        match self.ledger_of.get(root.owner() as usize).copied().unwrap_or(Road::None) {
            Road::Here(ledger) => {
                let Acks { ledgers, trackers, owner_at, .. } = self;
                let step = ledgers[ledger as usize].fail_if(root, || is_open(trackers, owner_at, root));
                if step == Step::Failed {
                    self.tell_failed(root, reason, text, now_ns);
                }
            }
            road => self.say(road, kind::FAIL, kind::FAILS, root, reason, text),
        }
    }

    /// The owner itself fails a tree it has opened: it is told at once, the ledger as well, for what is under way.
    #[cold]
    pub(crate) fn fail_own(&mut self, tracker: u16, root: Root, why: TreeFail, now_ns: u64) {
        self.trackers[tracker as usize].fail(root, why);
        self.fail(root, Reason::Bolt, "", now_ns);
    }

    /// The timeout of a tree begins anew.
    #[cold]
    pub(crate) fn reset_timeout(&mut self, root: Root, now_ns: u64) {
        match self.owner_at.get(root.owner() as usize).copied().unwrap_or(Road::None) {
            Road::Here(tracker) => drop(self.trackers[tracker as usize].slots.reset_timeout(root, now_ns)),
            road => self.say_all(road, kind::RESET, root, 0, ""),
        }
    }

    /// What a ledger said to an init or an ack with this mask.
    #[inline]
    fn step(&mut self, step: Step, root: Root, mask: u64, now_ns: u64) {
        match step {
            Step::Complete => match self.owner_at[root.owner() as usize] {
                Road::Here(tracker) => self.trackers[tracker as usize].complete(root, now_ns),
                road => self.send(road, kind::COMPLETE, root, 0, 0),
            },
            Step::Failed => self.tell_failed(root, self.gone.reason(mask), "", now_ns),
            Step::Open | Step::Stale => {}
        }
    }

    #[cold]
    fn tell_failed(&mut self, root: Root, reason: Reason, text: &str, _now_ns: u64) {
        match self.owner_at.get(root.owner() as usize).copied().unwrap_or(Road::None) {
            Road::Here(tracker) => self.trackers[tracker as usize].fail(root, TreeFail { reason, text: text.to_owned() }),
            road => self.say(road, kind::FAILED, kind::FAILEDS, root, reason, text),
        }
    }

    #[inline]
    fn send(&mut self, road: Road, of: u16, root: Root, xor: u64, mask: u64) {
        self.staged = true;
        self.added += 1;
        match road {
            Road::Lane(lane) => {
                let out = &mut self.lanes[lane as usize];
                out.batch.add(of, root, xor, mask);
                if out.batch.frames.len() >= out.flush_at {
                    out.flush();
                    self.congested |= out.batch.frames.len() >= CONTROL_STAGING_BYTES_MAX;
                }
            }
            Road::Remote(remote) => {
                if self.remote(remote).add(of, root, xor, mask) {
                    self.remote_full(remote);
                }
            }
            Road::Here(_) | Road::None => self.lost += 1,
        }
    }

    /// A root that failed: as a block of kind `plain` if there is no text.
    #[cold]
    fn say(&mut self, road: Road, of: u16, plain: u16, root: Root, reason: Reason, text: &str) {
        match text {
            "" => self.send(road, plain, root, 0, reason as u64),
            _ => self.say_all(road, of, root, reason as u8, text),
        }
    }

    #[cold]
    fn say_all(&mut self, road: Road, of: u16, root: Root, reason: u8, text: &str) {
        self.staged = true;
        match road {
            Road::Lane(lane) => {
                let batch = &mut self.lanes[lane as usize].batch;
                // An owner that hears nothing for long hears of all its trees, but not every word: they may be a million.
                let text = if batch.frames.len() < CONTROL_STAGING_BYTES_MAX { text } else { "" };
                batch.say(of, root, reason, text);
            }
            Road::Remote(remote) => {
                if self.remote(remote).say(of, root, reason, text) {
                    self.remote_full(remote);
                }
            }
            Road::Here(_) | Road::None => self.lost += 1,
        }
    }

    /// Sends a probe for an executor that is elsewhere. What finds no road is left out: it is sent again.
    #[cold]
    pub(crate) fn send_probe(&mut self, road: Road, probe: &Probe) {
        self.staged = true;
        match road {
            Road::Lane(lane) => self.lanes[lane as usize].batch.probe(probe),
            Road::Remote(remote) => self.remote(remote).batch.probe(probe),
            Road::Here(_) | Road::None => {}
        }
    }

    /// Says something about an executor that changes place.
    #[cold]
    pub(crate) fn send_word(&mut self, road: Road, said: &Said) {
        self.staged = true;
        match road {
            Road::Lane(lane) => self.lanes[lane as usize].batch.word(said),
            Road::Remote(remote) => self.remote(remote).batch.word(said),
            Road::Here(_) | Road::None => {}
        }
    }

    #[cold]
    fn take_probe(&mut self, body: &[u8]) {
        let Some((to, hops)) = body.split_first_chunk::<4>() else {
            self.lost += 1;
            return;
        };
        let word = |bytes: &[u8]| u32::from_le_bytes(*bytes.first_chunk().expect("eight bytes"));
        let hops = hops.as_chunks::<8>().0;
        if self.probes.len() < PROBES_MAX && hops.len() <= RING_MAX {
            let path = hops.iter().map(|hop| Hop { executor: word(hop), block: word(&hop[4..]) }).collect();
            self.probes.push(Probe { to: u32::from_le_bytes(*to), path });
        }
    }

    /// True while so many acks wait for another loop that its emitters must not take input.
    #[inline(always)]
    pub(crate) fn congested(&self) -> bool {
        self.congested
    }

    /// Moves on what is staged for the other loops: a few acks at once, many together, since each move costs the reader a line or two. At
    /// the end of every turn. Returns bytes moved, or 1 while something waits for company.
    #[inline]
    pub(crate) fn flush(&mut self, now_ns: u64) -> usize {
        if !self.staged {
            return 0;
        }
        if self.held_turns == 0 {
            self.held_ns = now_ns;
        }
        let waited = self.held_turns >= HELD_TURNS_MAX || now_ns.saturating_sub(self.held_ns) >= HELD_NS_MAX;
        if self.added >= FEW_ACKS && !waited {
            self.held_turns += 1;
            return 1;
        }
        (self.added, self.held_turns) = (0, 0);
        self.flush_staged()
    }

    /// Puts an envelope behind what is staged for another loop of this worker: see `relay.rs`.
    pub(crate) fn pass_on(&mut self, lane: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let batch = &mut self.lanes[lane].batch;
        batch.close();
        write(&mut batch.frames);
        (self.staged, self.passed) = (true, true);
    }

    /// Bytes staged for another loop of this worker.
    pub(crate) fn passed_bytes(&self, lane: usize) -> usize {
        self.lanes[lane].batch.frames.len()
    }

    /// Moves on what [`Self::pass_on`] staged, at once. Returns bytes moved.
    pub(crate) fn flush_passed(&mut self) -> usize {
        if std::mem::take(&mut self.passed) { self.flush_staged() } else { 0 }
    }

    fn flush_staged(&mut self) -> usize {
        let moved = self.lanes.iter_mut().map(ControlOut::flush).sum();
        let full = |batch: &Batch| batch.frames.len() >= CONTROL_STAGING_BYTES_MAX;
        self.congested = self.lanes.iter().any(|out| full(&out.batch)) || self.remotes.iter().any(|out| out.waits() && full(&out.batch));
        self.staged = self.lanes.iter().any(|out| !out.batch.frames.is_empty()) || self.remotes.iter().any(|out| out.waits());
        moved
    }

    /// Takes what other loops sent. Returns bytes taken.
    #[inline]
    pub(crate) fn receive(&mut self, now_ns: u64) -> usize {
        let mut taken = 0;
        for lane in 0..self.lanes_in.len() {
            let mut from = std::mem::take(&mut self.lanes_in);
            let frames = from[lane].readable();
            let n = frames.len();
            if n > 0 {
                // All lines at once, not one after the other: they lie with the other core.
                (0..n.min(PREFETCH_BYTES)).step_by(64).for_each(|at| prefetch(frames, at));
                self.from = lane as Lane + 1;
                self.take(frames, now_ns);
                from[lane].release(n);
                taken += n;
            }
            self.lanes_in = from;
        }
        taken
    }

    /// Applies a run of control frames from another loop of this worker, but for envelopes.
    pub(crate) fn take(&mut self, frames: &[u8], now_ns: u64) {
        let mut run = frames;
        while let Some(frame) = Frame::first(run) {
            if frame.header.stream == ENVELOPE {
                self.envelopes.extend_from_slice(frame.bytes);
            } else {
                self.apply(&frame, now_ns);
            }
            run = &run[frame.bytes.len()..];
        }
    }

    /// Applies one control frame. What makes no sense is counted as lost: only a broken peer sends it.
    pub(crate) fn apply(&mut self, frame: &Frame<'_>, now_ns: u64) {
        let body = &frame.bytes[HEADER_BYTES..HEADER_BYTES + frame.header.len as usize];
        match frame.header.stream {
            of @ (kind::ACKS | kind::INITS | kind::COMPLETE | kind::FAILS | kind::FAILEDS) => {
                let Some((mask, blocks)) = body.split_first_chunk::<BLOCK_BYTES>() else {
                    self.lost += 1;
                    return;
                };
                let mask = u128::from_le_bytes(*mask) as u64;
                let blocks = if of == kind::ACKS { self.apply_acks(blocks, mask, now_ns) } else { blocks };
                for block in blocks.as_chunks::<BLOCK_BYTES>().0 {
                    let (root, xor) = words(block);
                    match Root::from_bits(root) {
                        Some(root) => self.apply_block(of, root, xor, mask, now_ns),
                        None => self.lost += 1,
                    }
                }
            }
            of @ (kind::FAIL | kind::FAILED | kind::RESET) => {
                let parts =
                    body.split_first_chunk::<8>().and_then(|(root, rest)| Some((Root::from_bits(u64::from_le_bytes(*root))?, rest)));
                let Some((root, [reason, text @ ..])) = parts else {
                    self.lost += 1;
                    return;
                };
                let reason = Reason::of(u64::from(*reason));
                let text = String::from_utf8_lossy(text);
                match of {
                    kind::FAIL => self.fail(root, reason, &text, now_ns),
                    kind::FAILED => self.tell_failed(root, reason, &text, now_ns),
                    _ => self.reset_timeout(root, now_ns),
                }
            }
            kind::PROBE => self.take_probe(body),
            kind::MOVE => match Said::decode(body) {
                // More than come by one link at once: whoever said it waits no longer than its timeout.
                Some(said) if self.said.len() < WORDS_MAX => self.said.push((self.from, said)),
                _ => self.lost += 1,
            },
            _ => self.lost += 1,
        }
    }

    /// Applies acks to trees whose ledger and owner are both here, as long as they are the same owner's. Returns the rest.
    #[inline]
    fn apply_acks<'b>(&mut self, blocks: &'b [u8], mask: u64, now_ns: u64) -> &'b [u8] {
        let mut rest = blocks;
        let Some(first) = blocks.first_chunk().and_then(|block| Root::from_bits(words(block).0)) else { return rest };
        let owner = first.owner() as usize;
        let (Some(Road::Here(ledger)), Some(Road::Here(tracker))) = (self.ledger_of.get(owner), self.owner_at.get(owner)) else {
            return rest;
        };
        let (ledger, tracker) = (&mut self.ledgers[*ledger as usize], &mut self.trackers[*tracker as usize]);
        while let Some((block, after)) = rest.split_first_chunk::<BLOCK_BYTES>() {
            let (root, xor) = words(block);
            let Some(root) = Root::from_bits(root).filter(|root| root.owner() as usize == owner) else { break };
            rest = after;
            self.applied += 1;
            match ledger.ack_if(root, xor, mask, || tracker.slots.is_open(root)) {
                Step::Complete => tracker.complete(root, now_ns),
                Step::Failed => tracker.fail(root, TreeFail { reason: self.gone.reason(mask), text: String::new() }),
                Step::Open | Step::Stale => {}
            }
        }
        rest
    }

    #[inline]
    fn apply_block(&mut self, of: u16, root: Root, xor: u64, mask: u64, now_ns: u64) {
        let owner = root.owner() as usize;
        match of {
            kind::COMPLETE => {
                match self.owner_at.get(owner) {
                    Some(Road::Here(tracker)) => self.trackers[*tracker as usize].complete(root, now_ns),
                    _ => self.lost += 1,
                }
                return;
            }
            kind::FAILS => return self.fail(root, Reason::of(mask), "", now_ns),
            kind::FAILEDS => return self.tell_failed(root, Reason::of(mask), "", now_ns),
            _ => {}
        }
        let Some(Road::Here(ledger)) = self.ledger_of.get(owner) else {
            self.lost += 1;
            return;
        };
        let ledger = &mut self.ledgers[*ledger as usize];
        self.applied += 1;
        let step = match of {
            kind::ACKS => ledger.ack_if(root, xor, mask, || is_open(&self.trackers, &self.owner_at, root)),
            _ => ledger.init(root, xor, mask),
        };
        if step != Step::Open {
            self.step(step, root, mask, now_ns);
        }
    }

    /// A task began anew: its trees are dropped, and counted.
    pub(crate) fn drop_trees(&mut self, tracker: u16) {
        let t = &mut self.trackers[tracker as usize];
        let mut dropped = (t.acked.len() + t.failed.len()) as u64;
        t.slots.drain_open(|_, _| dropped += 1);
        t.acked.clear();
        t.failed.clear();
        t.births.clear();
        t.births_seen = 0;
        self.dropped += dropped;
    }

    /// Closes all open trees of a task that goes: the ids of their messages, for it to be told. What it was not told yet is in them.
    #[cold]
    pub(crate) fn fail_open(&mut self, tracker: u16) -> Vec<u64> {
        let t = &mut self.trackers[tracker as usize];
        let mut ids: Vec<u64> = t.failed.drain(..).map(|(id, _)| id).collect();
        t.slots.drain_open(|_, id| ids.push(id));
        t.births.clear();
        t.births_seen = 0;
        ids
    }

    /// Open trees of the tasks of this loop.
    pub(crate) fn pending(&self) -> u64 {
        self.trackers.iter().map(|t| u64::from(t.slots.pending())).sum()
    }

    /// For the last look before sleeping.
    pub(crate) fn has_input(&mut self) -> bool {
        self.lanes_in.iter_mut().any(|l| !l.is_empty())
    }

    /// Control bytes staged or not yet read at the other end.
    pub(crate) fn waiting_bytes(&mut self) -> usize {
        let staged = self.lanes.iter_mut().map(|out| out.batch.frames.len() + out.lane.unread_bytes()).sum::<usize>();
        staged + self.remotes.iter().filter(|out| out.waits()).map(|out| out.batch.frames.len()).sum::<usize>()
    }

    /// True while something is staged that did not find room.
    pub(crate) fn is_staged(&self) -> bool {
        self.staged
    }
}

impl ControlOut {
    /// Moves on as many whole frames as find room. Returns bytes moved.
    fn flush(&mut self) -> usize {
        self.batch.close();
        let staged = &mut self.batch.frames;
        let mut moved = 0;
        while moved < staged.len() {
            let n = whole_frames(&staged[moved..], self.lane.frame_max);
            if !self.lane.push(&staged[moved..moved + n]) {
                break;
            }
            moved += n;
        }
        if moved == staged.len() {
            staged.clear();
        } else {
            staged.drain(..moved);
        }
        self.flush_at = staged.len() + CONTROL_WATERMARK_BYTES;
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// (root, xor) under each mask, whatever the frames they came in.
    fn told(frames: &[u8]) -> BTreeMap<(u64, u64), u64> {
        let mut all = BTreeMap::new();
        let mut run = frames;
        while let Some(frame) = Frame::first(run) {
            run = &run[frame.bytes.len()..];
            assert_eq!((frame.header.flags, frame.header.stream), (CONTROL, kind::ACKS));
            let body = &frame.bytes[HEADER_BYTES..HEADER_BYTES + frame.header.len as usize];
            let word = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap());
            (BLOCK_BYTES..body.len()).step_by(BLOCK_BYTES).for_each(|at| *all.entry((word(at), word(0))).or_insert(0) ^= word(at + 8));
        }
        all
    }

    #[test]
    fn merged_acks_say_what_the_single_ones_did_in_fewer_blocks() {
        let mut draw = Edges::new(7);
        let (mut batch, mut single) = (Batch::default(), BTreeMap::new());
        for _ in 0..10_000 {
            let bits = draw.edge();
            let root = Root::from_bits(1 << 44 | (bits % 3) << 24 | 1).unwrap();
            let (xor, mask) = (draw.edge(), bits >> 40 & 1);
            *single.entry((root.to_bits(), mask)).or_insert(0) ^= xor;
            batch.add(kind::ACKS, root, xor, mask);
        }
        batch.close();
        assert_eq!(told(&batch.frames), single);
        let mut line = Batch::default();
        let root = Root::from_bits(1 << 44 | 1).unwrap();
        (0..10).for_each(|_| line.add(kind::ACKS, root, draw.edge(), 0));
        line.close();
        assert_eq!(line.frames.len(), HEADER_BYTES + 2 * BLOCK_BYTES, "one mask, one block");
    }
}
