//! The control road under weather: workers that are lost and come back, links that are cut, against somebody who saw everything.
//!
//! Each worker is an `Acks` and nothing else: its bolts are played here, with tuples that wait for a link, inputs that are done later, and
//! links that lose what is under way and leave both ends to find out when they do. Three things are held against the truth: a tree that is
//! acked was handled wherever it went; a tree ends, without a timeout, once the weather is over; and one that fails had something to do
//! with what was lost.

use super::{Acks, BLOCK_BYTES, Frame, HEADER_BYTES, Reason, Road, Tracker, kind};
use crate::ledger::{Edges, Ledger, Root, Slots};
use crate::loss::worker_bit;
use std::collections::{BTreeMap, HashMap, VecDeque};

const WORKERS: usize = 3;
/// A step is a nanosecond.
const TIMEOUT: u64 = 3_000;
/// Longest time that an end goes unnoticed, a link or a worker is down, an input is not done.
const SHORT: u64 = 60;
/// Steps of weather, and those within which all has ended when it is over.
const STORM: u64 = 4_000;
const QUIET: u64 = 1_000;
/// Turns of `forget_lost`, in steps.
const HOUSEKEEPING: u64 = 10;

#[derive(Clone)]
struct Tuple {
    root: Root,
    edge: u64,
    tree: usize,
    level: u32,
}

/// An input, or a spout's emit, that is not yet settled.
struct Work {
    root: Root,
    tree: usize,
    /// A tree begins.
    first: bool,
    xor: u64,
    mask: u64,
    /// Tuples emitted from it that have not entered a link, and where they go.
    waiting: Vec<(usize, Tuple)>,
    /// Not settled before.
    due: u64,
}

/// One way of a link, as its sender sees it.
struct Way {
    /// The incarnation at its other end.
    bit: u64,
    /// None = open. Else it is cut, and the sender notices then.
    notices: Option<u64>,
    data: VecDeque<Tuple>,
    control: VecDeque<Vec<u8>>,
    /// Arrived, and not known to have.
    unconfirmed: (Vec<Tuple>, Vec<Vec<u8>>),
}

struct Worker {
    acks: Acks,
    inputs: VecDeque<Tuple>,
    works: Vec<Work>,
    next_id: u64,
    /// By other worker: the highest start seen.
    seen: [u64; WORKERS],
}

struct Tree {
    /// Worker and start.
    owner: (usize, u64),
    id: u64,
    begun: u64,
    /// Tuples not handled, or lost.
    unhandled: usize,
    failed_by_bolt: bool,
    /// A tuple or a message of it was on a link that was cut, or its ledger behind one.
    was_cut: bool,
    /// Incarnations its tuples were sent to.
    bits: u64,
    ended: bool,
}

/// How a bit stands with one worker's ledgers.
#[derive(Default, Clone, Copy)]
struct Bad {
    cut: bool,
    until: u64,
    was_until: u64,
}

struct Weather {
    draw: Edges,
    now: u64,
    /// By owner's worker: who holds the ledger.
    holder: [usize; WORKERS],
    workers: Vec<Option<Worker>>,
    starts: [u64; WORKERS],
    starts_at: [u64; WORKERS],
    /// By (from, to); none = closed.
    ways: BTreeMap<(usize, usize), Way>,
    joins_at: BTreeMap<(usize, usize), u64>,
    /// By worker and bit.
    bad: HashMap<(usize, u64), Bad>,
    trees: Vec<Tree>,
    by_root: HashMap<u64, usize>,
    acked: usize,
    failed: usize,
}

fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..WORKERS).flat_map(|one| (one + 1..WORKERS).map(move |two| (one, two)))
}

/// Number of the remote that stands for `other` at `me`.
fn remote(me: usize, other: usize) -> usize {
    other - usize::from(other > me)
}

/// What a run of control frames names.
fn roots(run: &[u8]) -> Vec<u64> {
    let (mut run, mut found) = (run, Vec::new());
    while let Some(frame) = Frame::first(run) {
        run = &run[frame.bytes.len()..];
        let body = &frame.bytes[HEADER_BYTES..HEADER_BYTES + frame.header.len as usize];
        let word = |bytes: &[u8]| u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"));
        match frame.header.stream {
            kind::FAIL | kind::FAILED => found.push(word(body)),
            _ => found.extend(body.as_chunks::<BLOCK_BYTES>().0.iter().skip(1).map(|block| word(block))),
        }
    }
    found
}

impl Weather {
    fn new(seed: u64) -> Self {
        let mut draw = Edges::new(seed);
        // Sometimes a ledger is not with its owner.
        let holder = if draw.bits().is_multiple_of(2) { [0, 1, 2] } else { [0, 1, 0] };
        let mut all = Weather {
            draw,
            now: 1,
            holder,
            workers: (0..WORKERS).map(|_| None).collect(),
            starts: [0; WORKERS],
            starts_at: [0; WORKERS],
            ways: BTreeMap::new(),
            joins_at: pairs().map(|pair| (pair, 0)).collect(),
            bad: HashMap::new(),
            trees: Vec::new(),
            by_root: HashMap::new(),
            acked: 0,
            failed: 0,
        };
        (0..WORKERS).for_each(|worker| all.start(worker));
        all
    }

    fn below(&mut self, n: u64) -> u64 {
        self.draw.bits() % n
    }

    fn bit(&self, worker: usize) -> u64 {
        worker_bit(worker as u32, self.starts[worker])
    }

    fn start(&mut self, me: usize) {
        self.starts[me] += 1;
        let at = |worker: usize| if worker == me { Road::Here(0) } else { Road::Remote(remote(me, worker) as u16) };
        let (mut ledgers, mut ledger_of, mut owner_at) = (Vec::new(), vec![Road::None], vec![Road::None]);
        for owner in 0..WORKERS {
            owner_at.push(at(owner));
            ledger_of.push(if self.holder[owner] == me {
                ledgers.push(Ledger::new(owner as u32 + 1));
                Road::Here(ledgers.len() as u16 - 1)
            } else {
                at(self.holder[owner])
            });
        }
        let slots = Slots::new(me as u32 + 1, 1024, 1 << 60, self.draw.bits());
        let mut tracker = Tracker::new(slots, 1024, Road::None).of_spout(true);
        tracker.set_ledger(ledger_of[me + 1]);
        let edges = Edges::new(self.draw.bits());
        let acks = Acks::new(vec![tracker], ledgers, ledger_of, owner_at, vec![], vec![], edges, true, TIMEOUT);
        self.workers[me] = Some(Worker { acks, inputs: VecDeque::new(), works: Vec::new(), next_id: 0, seen: [0; WORKERS] });
        self.bad.retain(|(worker, _), _| *worker != me);
    }

    /// Both see who is at the other end, and declare lost whoever was there before.
    fn join(&mut self, one: usize, two: usize) {
        for (me, other) in [(one, two), (two, one)] {
            let (start, bit, now) = (self.starts[other], self.bit(other), self.now);
            let worker = self.workers[me].as_mut().expect("both live");
            let before = std::mem::replace(&mut worker.seen[other], start);
            for gone in before.max(start.saturating_sub(2)).max(1)..start {
                if before == 0 {
                    break;
                }
                let gone_bit = worker_bit(other as u32, gone);
                worker.acks.lose(gone_bit, now);
                worker.acks.lose_ledgers(Road::Remote(remote(me, other) as u16), Reason::WorkerLost);
                worker.acks.lose_owners(Road::Remote(remote(me, other) as u16));
                let bad = self.bad.entry((me, gone_bit)).or_default();
                *bad = Bad { cut: false, until: now + TIMEOUT, was_until: now };
                if self.holder[me] == other {
                    let owner = (me, self.starts[me]);
                    self.trees.iter_mut().filter(|tree| tree.owner == owner && !tree.ended).for_each(|tree| tree.was_cut = true);
                }
            }
            worker.acks.open_remote(remote(me, other), bit);
            if let Some(bad) = self.bad.get_mut(&(me, bit)).filter(|bad| bad.cut) {
                (bad.cut, bad.was_until) = (false, now);
            }
            let way = Way { bit, notices: None, data: VecDeque::new(), control: VecDeque::new(), unconfirmed: Default::default() };
            self.ways.insert((me, other), way);
        }
        // Each gets credit from the other, which knows by then who it is.
        for (me, other) in [(one, two), (two, one)] {
            self.workers[me].as_mut().expect("both live").acks.hear_remote(remote(me, other));
        }
        self.joins_at.remove(&(one, two));
    }

    /// The link loses what is on it. Each end notices when it does.
    fn cut(&mut self, one: usize, two: usize) {
        for (me, other) in [(one, two), (two, one)] {
            let after = self.below(SHORT);
            let Some(way) = self.ways.get_mut(&(me, other)).filter(|way| way.notices.is_none()) else { continue };
            way.notices = Some(self.now + after);
            way.unconfirmed.0.extend(way.data.drain(..));
            way.unconfirmed.1.extend(way.control.drain(..));
        }
        let after = self.below(2 * SHORT);
        self.joins_at.insert((one.min(two), one.max(two)), self.now + after);
    }

    fn notice(&mut self, me: usize, other: usize) {
        let Some(way) = self.ways.remove(&(me, other)) else { return };
        let now = self.now;
        let (data, control) = way.unconfirmed;
        let named = control.iter().flat_map(|run| roots(run)).filter_map(|root| self.by_root.get(&root).copied());
        for tree in data.iter().map(|tuple| tuple.tree).chain(named) {
            self.trees[tree].was_cut = true;
        }
        let bad = self.bad.entry((me, way.bit)).or_default();
        bad.cut = true;
        let Some(worker) = &mut self.workers[me] else { return };
        if self.holder[me] == other {
            let owner = (me, self.starts[me]);
            self.trees.iter_mut().filter(|tree| tree.owner == owner && !tree.ended).for_each(|tree| tree.was_cut = true);
        }
        control.iter().for_each(|run| worker.acks.unconfirmed(remote(me, other), run));
        data.iter().for_each(|tuple| worker.acks.fail(tuple.root, Reason::LinkLost, "", now));
        worker.acks.close_remote(remote(me, other), false, now);
    }

    fn kill(&mut self, me: usize) {
        self.workers[me] = None;
        for other in (0..WORKERS).filter(|other| *other != me) {
            self.cut(me, other);
            self.ways.remove(&(me, other));
        }
        self.starts_at[me] = self.now + self.below(3 * SHORT);
        let owner = (me, self.starts[me]);
        self.trees.iter_mut().filter(|tree| tree.owner == owner).for_each(|tree| tree.ended = true);
    }

    fn open_tree(&mut self, me: usize) {
        let (now, id) = (self.now, self.trees.len() as u64);
        let worker = self.workers[me].as_mut().expect("alive");
        let Some(root) = worker.acks.open(0, worker.next_id, now) else { return };
        let tree = Tree {
            owner: (me, self.starts[me]),
            id: worker.next_id,
            begun: now,
            unhandled: 0,
            failed_by_bolt: false,
            was_cut: false,
            bits: 0,
            ended: false,
        };
        worker.next_id += 1;
        self.trees.push(tree);
        self.by_root.insert(root.to_bits(), id as usize);
        let n = 1 + self.below(2);
        self.emit(me, Work { root, tree: id as usize, first: true, xor: 0, mask: 0, waiting: vec![], due: 0 }, n, 0);
    }

    /// So many tuples are emitted in the name of `work`, each to anybody.
    fn emit(&mut self, me: usize, mut work: Work, n: u64, level: u32) {
        for _ in 0..n {
            let to = self.below(WORKERS as u64) as usize;
            let edge = self.draw.edge();
            self.trees[work.tree].unhandled += 1;
            work.xor ^= edge;
            work.waiting.push((to, Tuple { root: work.root, edge, tree: work.tree, level }));
        }
        self.workers[me].as_mut().expect("alive").works.push(work);
    }

    fn handle(&mut self, me: usize) {
        let Some(tuple) = self.workers[me].as_mut().expect("alive").inputs.pop_front() else { return };
        let (now, late) = (self.now, self.below(8) == 0);
        let due = if late { now + self.below(SHORT) } else { now };
        let n = if tuple.level < 3 { self.below(3) } else { 0 };
        let tree = &mut self.trees[tuple.tree];
        tree.unhandled -= 1;
        if self.draw.bits().is_multiple_of(200) {
            tree.failed_by_bolt = true;
            return self.workers[me].as_mut().expect("alive").acks.fail(tuple.root, Reason::Bolt, "no", now);
        }
        let work = Work { root: tuple.root, tree: tuple.tree, first: false, xor: tuple.edge, mask: 0, waiting: vec![], due };
        self.emit(me, work, n, tuple.level + 1);
    }

    /// What waited goes where it can, and what is done is settled.
    fn settle(&mut self, me: usize) {
        let (now, own_bit) = (self.now, self.bit(me));
        let Weather { workers, ways, trees, .. } = self;
        let Worker { acks, inputs, works, .. } = workers[me].as_mut().expect("alive");
        for work in works.iter_mut() {
            work.waiting.retain(|(to, tuple)| {
                let bit = if *to == me {
                    inputs.push_back(tuple.clone());
                    own_bit
                } else {
                    let Some(way) = ways.get_mut(&(me, *to)) else { return true };
                    // A link that is cut takes what it is given until that is noticed.
                    if way.notices.is_some() {
                        way.unconfirmed.0.push(tuple.clone())
                    } else {
                        way.data.push_back(tuple.clone())
                    }
                    way.bit
                };
                work.mask |= bit;
                trees[work.tree].bits |= bit;
                false
            });
        }
        works.retain(|work| {
            if !work.waiting.is_empty() || work.due > now {
                return true;
            }
            match work.first {
                true => acks.init(0, work.root, work.xor, work.mask, now),
                false => acks.ack(work.root, work.xor, work.mask, now),
            }
            false
        });
        for other in (0..WORKERS).filter(|other| *other != me) {
            let Some(way) = ways.get_mut(&(me, other)) else { continue };
            let mut run = Vec::new();
            acks.flush_remote(remote(me, other), |all| {
                run.extend_from_slice(all);
                all.len()
            });
            if !run.is_empty() {
                if way.notices.is_some() { way.unconfirmed.1.push(run) } else { way.control.push_back(run) }
            }
        }
    }

    /// Something arrives, if this end is open.
    fn receive(&mut self, me: usize) {
        let now = self.now;
        for other in (0..WORKERS).filter(|other| *other != me) {
            let (data, control, confirms) = (self.below(3), self.below(2), self.below(3) == 0);
            if self.ways.get(&(me, other)).is_none_or(|back| back.notices.is_some()) {
                continue;
            }
            let Some(way) = self.ways.get_mut(&(other, me)) else { continue };
            let worker = self.workers[me].as_mut().expect("alive");
            for tuple in way.data.drain(..(data as usize).min(way.data.len())) {
                way.unconfirmed.0.push(tuple.clone());
                worker.inputs.push_back(tuple);
            }
            for run in way.control.drain(..(control as usize).min(way.control.len())) {
                worker.acks.take(&run, now);
                way.unconfirmed.1.push(run);
            }
            if confirms {
                way.unconfirmed = Default::default();
            }
        }
    }

    /// What spouts are told, against the truth.
    fn tell(&mut self, me: usize) {
        let (now, owner, holder) = (self.now, (me, self.starts[me]), self.holder[me]);
        let Some(worker) = &mut self.workers[me] else { return };
        let tracker = &mut worker.acks.trackers[0];
        let ends = tracker.acked.drain(..).map(|id| (id, None)).chain(tracker.failed.drain(..).map(|(id, why)| (id, Some(why.reason))));
        for (id, why) in ends.collect::<Vec<_>>() {
            let tree = self.trees.iter_mut().rev().find(|tree| tree.owner == owner && tree.id == id).expect("begun here");
            assert!(!tree.ended, "a tree ends twice");
            tree.ended = true;
            match why {
                None => {
                    assert!(tree.unhandled == 0 && !tree.failed_by_bolt, "acked, and {} tuples of it were not handled", tree.unhandled);
                    self.acked += 1;
                }
                Some(Reason::Bolt) => assert!(tree.failed_by_bolt),
                Some(why) => {
                    let bits = (0..64).map(|bit| 1 << bit).filter(|bit| tree.bits & bit != 0);
                    let bad = bits.filter_map(|bit| self.bad.get(&(holder, bit)));
                    let touched = bad.map(|bad| if bad.cut { now } else { bad.was_until.max(bad.until.min(now) + HOUSEKEEPING) });
                    let touched = touched.max().unwrap_or(0) >= tree.begun;
                    assert!(tree.was_cut || touched, "{why:?}: nothing was lost that it had to do with");
                    self.failed += 1;
                }
            }
        }
    }

    fn step(&mut self, stormy: bool) {
        self.now += 1;
        let now = self.now;
        for me in 0..WORKERS {
            if self.workers[me].is_none() && now >= self.starts_at[me] && !self.ways.keys().any(|(one, two)| *one == me || *two == me) {
                self.start(me);
            }
        }
        for (one, two) in pairs() {
            for (me, other) in [(one, two), (two, one)] {
                if self.ways.get(&(me, other)).is_some_and(|way| way.notices.is_some_and(|at| at <= now)) {
                    self.notice(me, other);
                }
            }
            let closed = !self.ways.contains_key(&(one, two)) && !self.ways.contains_key(&(two, one));
            let live = self.workers[one].is_some() && self.workers[two].is_some();
            if closed && live && self.joins_at.get(&(one, two)).is_some_and(|at| *at <= now) {
                self.join(one, two);
            }
        }
        if stormy && self.below(150) == 0 {
            let pair = pairs().nth(self.below(3) as usize).expect("of three");
            if self.ways.contains_key(&pair) {
                self.cut(pair.0, pair.1);
            }
        }
        if stormy && self.below(1_500) == 0 {
            let worker = self.below(WORKERS as u64) as usize;
            if self.workers[worker].is_some() {
                self.kill(worker);
            }
        }
        for me in 0..WORKERS {
            if self.workers[me].is_none() {
                continue;
            }
            if stormy && self.below(4) == 0 {
                self.open_tree(me);
            }
            self.receive(me);
            (0..1 + self.below(3)).for_each(|_| self.handle(me));
            self.settle(me);
            if now.is_multiple_of(HOUSEKEEPING) {
                self.workers[me].as_mut().expect("alive").acks.forget_lost(now);
            }
            self.tell(me);
        }
    }
}

#[test]
fn whatever_is_lost_no_tree_is_acked_unseen_and_every_tree_ends() {
    let (mut begun, mut acked, mut failed) = (0, 0, 0);
    for seed in 0..60 {
        let mut all = Weather::new(seed);
        (0..STORM).for_each(|_| all.step(true));
        (0..QUIET).for_each(|_| all.step(false));
        let open: Vec<usize> = (0..all.trees.len()).filter(|tree| !all.trees[*tree].ended).collect();
        assert!(open.is_empty(), "seed {seed}: {} of {} trees are still open, the first begun at {}", open.len(), all.trees.len(), {
            all.trees[open[0]].begun
        });
        (begun, acked, failed) = (begun + all.trees.len(), acked + all.acked, failed + all.failed);
    }
    assert!(acked > begun / 3 && failed > begun / 20, "{begun} begun, {acked} acked, {failed} failed by losses: no weather to speak of");
}
