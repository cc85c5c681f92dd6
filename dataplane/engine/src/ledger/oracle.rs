//! Random trees over a bad network, the real slots and ledger against a naive oracle: 500,000 trees with the ordinary tests, 10 million with
//! `cargo test --release -p saetta-engine --lib ledger::oracle -- --ignored`.
//!
//! One owner with 16 slots, whose generations wrap after a few trees, opens trees; tuples fan out over some levels, are anchored to up to 4
//! trees, are handled, failed or lost; each control message may be lost, repeated, and overtakes others; incarnations are lost, and their bits
//! are shared. After every message the ledger's answer is that of a model which keeps the very sets of edges, by map, and knows trees by a
//! number that never wraps. Beside that the truth is kept, which no message carries: who handled what. It shows that
//! no tree completes while a tuple of it is unhandled, failed or lost; that none ends twice; that every tree ends.

use super::root::Root;
use super::{Edges, Ledger, Slots, Step};
use std::collections::{HashMap, HashSet};

const SLOTS: u32 = 16;
/// Trees of one episode: each slot wraps its generation.
const TREES: usize = 500;
/// Openings of a slot before its generation wraps.
const BEFORE_WRAP: u32 = 8;
const T: u64 = 1_000_000_000;
const LEVELS: u32 = 4;
const INCARNATIONS: usize = 6;
/// Fewer than incarnations: some share one.
const BITS: usize = 4;
/// Messages and tuples under way, at most: then nothing is emitted until some have arrived.
const UNDER_WAY_MAX: usize = 256;

/// How bad the network is: one in so many.
struct Weather {
    message_lost: usize,
    message_twice: usize,
    tuple_lost: usize,
    tuple_fails: usize,
    incarnation_lost: usize,
    /// Messages arrive in order, but for one in so many.
    overtakes: usize,
    /// Steps in one timeout, about; an episode has some 10,000.
    steps_in_timeout: u64,
}

const NEVER: usize = usize::MAX;
const FAIR: Weather = Weather {
    message_lost: NEVER,
    message_twice: NEVER,
    tuple_lost: NEVER,
    tuple_fails: NEVER,
    incarnation_lost: NEVER,
    overtakes: 1,
    steps_in_timeout: 100_000,
};
const WEATHERS: [Weather; 5] = [
    FAIR,
    Weather { tuple_fails: 20, ..FAIR },
    Weather {
        message_lost: 50,
        message_twice: 20,
        tuple_lost: 50,
        tuple_fails: 20,
        incarnation_lost: 8_000,
        steps_in_timeout: 800,
        ..FAIR
    },
    Weather { message_lost: 1_000, message_twice: 3, tuple_lost: 20, tuple_fails: 1_000, overtakes: 2, steps_in_timeout: 800, ..FAIR },
    Weather { tuple_fails: 100, incarnation_lost: 2_000, overtakes: 8, steps_in_timeout: 800, ..FAIR },
];

#[derive(Clone)]
enum Message {
    Init(Root, Vec<u64>, u64),
    Ack(Root, Vec<u64>, u64),
    Fail(Root),
}

/// A tuple under way to `to`, with an edge for each tree it is anchored to.
#[derive(Clone)]
struct Tuple {
    anchors: Vec<(Root, u64)>,
    to: usize,
    level: u32,
}

/// What really happened to a tree.
#[derive(Default)]
struct Truth {
    /// Its tuples that were not handled yet, or were lost.
    unhandled: usize,
    failed: bool,
    /// Where its tuples went.
    incarnations: HashSet<usize>,
}

/// The model's tree.
#[derive(Default)]
struct Entry {
    /// Edges seen an odd number of times.
    edges: HashSet<u64>,
    mask: u64,
    init: bool,
    ended: bool,
}

/// The model of a ledger. Trees are known by root and, to tell old from new, by the number of their opening.
#[derive(Default)]
struct Model {
    /// Number of the opening of every root there was.
    numbers: HashMap<Root, u64>,
    /// The newest tree of each slot of which something was seen.
    entries: HashMap<u32, (u64, Root, Entry)>,
    lost: HashMap<usize, u64>,
    failed_by_loss: u64,
    over_failed: u64,
    stale: u64,
}

fn xor(edges: &[u64]) -> u64 {
    edges.iter().fold(0, |a, b| a ^ b)
}

impl Model {
    fn entry(&mut self, root: Root) -> Option<&mut Entry> {
        let number = self.numbers[&root];
        let (newest, of, entry) = self.entries.entry(root.slot()).or_insert_with(|| (number, root, Entry::default()));
        if number > *newest {
            (*newest, *of, *entry) = (number, root, Entry::default());
        }
        (number == *newest).then_some(entry)
    }

    fn apply(&mut self, message: &Message) -> Step {
        let (root, message_edges, mask, init) = match message {
            Message::Init(root, edges, mask) => (*root, edges.as_slice(), *mask, true),
            Message::Ack(root, edges, mask) => (*root, edges.as_slice(), *mask, false),
            Message::Fail(root) => (*root, [].as_slice(), 0, false),
        };
        // What had such a bit before was failed when its incarnation was lost.
        let lost = self.lost.keys().any(|bit| mask >> bit & 1 != 0);
        let Some(entry) = self.entry(root).filter(|entry| !entry.ended) else {
            self.stale += 1;
            return Step::Stale;
        };
        if let Message::Fail(_) = message {
            entry.ended = true;
            return Step::Failed;
        }
        if init && entry.init {
            return Step::Open;
        }
        entry.init |= init;
        for edge in message_edges {
            if !entry.edges.remove(edge) {
                entry.edges.insert(*edge);
            }
        }
        entry.mask |= mask;
        if lost {
            entry.ended = true;
            self.over_failed += 1;
            return Step::Failed;
        }
        if entry.init && entry.edges.is_empty() {
            entry.ended = true;
            return Step::Complete;
        }
        Step::Open
    }

    fn forget(&mut self, root: Root) {
        if let Some(entry) = self.entry(root) {
            entry.ended = true;
        }
    }

    fn lose(&mut self, bit: usize, until_ns: u64) -> HashSet<Root> {
        let until = self.lost.entry(bit).or_insert(0);
        *until = until_ns.max(*until);
        let mut failed = HashSet::new();
        for (_, root, entry) in self.entries.values_mut() {
            if !entry.ended && entry.mask >> bit & 1 != 0 {
                entry.ended = true;
                failed.insert(*root);
            }
        }
        self.failed_by_loss += failed.len() as u64;
        failed
    }

    fn tick(&mut self, now_ns: u64) {
        self.lost.retain(|_, until| *until > now_ns);
    }
}

/// What became of trees.
#[derive(Default, Debug)]
struct Ends {
    opened: u64,
    complete: u64,
    failed: u64,
    timed_out: u64,
    dropped: u64,
    failed_by_loss: u64,
    over_failed: u64,
    stale: u64,
    /// Failed for an incarnation none of their tuples went to.
    failed_for_nothing: u64,
}

struct Episode<'a> {
    random: Edges,
    edges: Edges,
    weather: &'a Weather,
    slots: Slots,
    ledger: Ledger,
    model: Model,
    truth: HashMap<Root, Truth>,
    /// Open at the owner: message id and when it was opened.
    open: HashMap<Root, (u64, u64)>,
    messages: Vec<Message>,
    tuples: Vec<Tuple>,
    /// Incarnations lost and until when their bits are.
    gone: HashMap<usize, u64>,
    /// Those that were lost at some time.
    once_gone: HashSet<usize>,
    now_ns: u64,
    ends: &'a mut Ends,
}

impl Episode<'_> {
    fn run(&mut self) {
        let (failed_before, timed_out_before) = (self.ends.failed, self.ends.timed_out);
        let mut opened = 0;
        while opened < TREES {
            self.now_ns += self.random.bits() % (2 * T / self.weather.steps_in_timeout);
            self.expire();
            match self.random.below(16) {
                0..=3 if self.messages.len() + self.tuples.len() < UNDER_WAY_MAX => opened += usize::from(self.open_tree(opened as u64)),
                0..=8 => self.handle(),
                _ => self.deliver(),
            }
            if self.random.one_in(self.weather.incarnation_lost) {
                self.lose();
            }
            if self.random.one_in(100_000) {
                self.begin_anew();
            }
        }
        // What is under way arrives; what never will has its timeout.
        while !self.tuples.is_empty() || !self.messages.is_empty() {
            self.handle();
            self.deliver();
        }
        let Weather { message_lost, message_twice, tuple_lost, tuple_fails, incarnation_lost, .. } = *self.weather;
        if [message_lost, message_twice, tuple_lost] == [NEVER; 3] {
            // Only a tree that sent to a lost incarnation, and whose ack said so too late, waits for its timeout.
            for root in self.open.keys() {
                let truth = &self.truth[root];
                assert!(truth.unhandled > 0 && truth.incarnations.iter().any(|i| self.once_gone.contains(i)), "{root:?} was forgotten");
            }
            assert!(incarnation_lost != NEVER || self.ends.timed_out == timed_out_before, "a tree of which all arrived timed out");
            assert!(tuple_fails != NEVER || self.ends.failed == failed_before, "a tree that nobody failed has failed");
        }
        self.now_ns += T + T / 64 + (1 << 24);
        self.expire();
        assert!(self.open.is_empty() && self.slots.pending() == 0, "{} trees never end", self.open.len());
        assert_eq!(self.ledger.failed_by_loss(), self.model.failed_by_loss);
        assert_eq!(self.ledger.over_failed(), self.model.over_failed);
        assert_eq!(self.ledger.stale(), self.model.stale);
        self.ends.failed_by_loss += self.ledger.failed_by_loss();
        self.ends.over_failed += self.ledger.over_failed();
        self.ends.stale += self.ledger.stale();
    }

    fn open_tree(&mut self, id: u64) -> bool {
        let Some(root) = self.slots.open(id, self.now_ns) else {
            assert_eq!(self.open.len(), SLOTS as usize);
            return false;
        };
        self.ends.opened += 1;
        assert!(self.model.numbers.insert(root, self.ends.opened).is_none(), "no root comes twice in an episode");
        self.truth.insert(root, Truth::default());
        assert!(self.open.insert(root, (id, self.now_ns)).is_none());
        let fan_out = self.random.below(4);
        let (edges, mask) = self.emit(&[root], fan_out, 0);
        self.send(Message::Init(root, edges.concat(), mask));
        true
    }

    /// Tuples anchored to all `roots`; gives the edges by root, and where they went.
    fn emit(&mut self, roots: &[Root], fan_out: usize, level: u32) -> (Vec<Vec<u64>>, u64) {
        let (mut edges, mut mask) = (vec![Vec::new(); roots.len()], 0);
        for _ in 0..fan_out {
            let to = self.random.below(INCARNATIONS);
            mask |= 1 << (to % BITS);
            let anchors: Vec<(Root, u64)> = roots.iter().map(|root| (*root, self.edges.edge())).collect();
            for (i, (root, edge)) in anchors.iter().enumerate() {
                edges[i].push(*edge);
                let truth = self.truth.get_mut(root).expect("anchored to a tree there was");
                truth.unhandled += 1;
                truth.incarnations.insert(to);
            }
            // What is sent to an incarnation that is gone never arrives. The sender does not know yet, but its mask says where.
            if !self.random.one_in(self.weather.tuple_lost) && !self.gone.contains_key(&to) {
                self.tuples.push(Tuple { anchors, to, level });
            }
        }
        (edges, mask)
    }

    /// Somebody handles up to 4 tuples as one: a join, when it is more than one.
    fn handle(&mut self) {
        if self.tuples.is_empty() {
            return;
        }
        let mut inputs = vec![self.take_tuple()];
        if self.random.one_in(8) {
            while !self.tuples.is_empty() && inputs.len() < 4 {
                let input = self.take_tuple();
                inputs.push(input);
            }
        }
        if self.random.one_in(self.weather.tuple_fails) {
            for (root, _) in inputs.iter().flat_map(|input| input.anchors.clone()) {
                self.truth.get_mut(&root).expect("a tree there was").failed = true;
                self.send(Message::Fail(root));
            }
            return;
        }
        // Each input's trees, once each and at most 4.
        let mut roots: Vec<Root> = Vec::new();
        for (root, _) in inputs.iter().flat_map(|input| &input.anchors) {
            if !roots.contains(root) && roots.len() < 4 {
                roots.push(*root);
            }
        }
        let level = inputs.iter().map(|input| input.level).max().expect("at least one") + 1;
        let fan_out = if level < LEVELS { self.random.below(4).saturating_sub(1) } else { 0 };
        let (mut edges, mask) = self.emit(&roots, fan_out, level);
        for input in &inputs {
            for (root, edge) in &input.anchors {
                self.truth.get_mut(root).expect("a tree there was").unhandled -= 1;
                // The first ack of a root carries what was emitted for it.
                let mut acked = vec![*edge];
                let mut to = 0;
                if let Some(i) = roots.iter().position(|r| r == root) {
                    acked.append(&mut edges[i]);
                    to = mask;
                }
                self.send(Message::Ack(*root, acked, to));
            }
        }
    }

    fn take_tuple(&mut self) -> Tuple {
        let at = self.random.below(self.tuples.len());
        self.tuples.swap_remove(at)
    }

    fn send(&mut self, message: Message) {
        if self.random.one_in(self.weather.message_lost) {
            return;
        }
        while self.random.one_in(self.weather.message_twice) {
            self.messages.push(message.clone());
        }
        self.messages.push(message);
    }

    /// One message arrives.
    fn deliver(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let at = if self.random.one_in(self.weather.overtakes) { self.random.below(self.messages.len()) } else { 0 };
        let message = self.messages.remove(at);
        let (root, step) = match &message {
            Message::Init(root, edges, mask) => (*root, self.ledger.init(*root, xor(edges), *mask)),
            Message::Ack(root, edges, mask) => (*root, self.ledger.ack(*root, xor(edges), *mask)),
            Message::Fail(root) => (*root, self.ledger.fail(*root)),
        };
        assert_eq!(step, self.model.apply(&message));
        match step {
            Step::Complete => {
                let truth = &self.truth[&root];
                assert!(truth.unhandled == 0 && !truth.failed, "{root:?} completes with {} tuples unhandled", truth.unhandled);
                self.close(root);
                self.ends.complete += 1;
            }
            Step::Failed => {
                self.count_failed(root);
                self.close(root);
            }
            Step::Open => assert!(!matches!(message, Message::Fail(_)), "a fail is never without effect"),
            Step::Stale => assert!(!matches!(message, Message::Fail(_)) || !self.open.contains_key(&root), "a fail of an open tree counts"),
        }
    }

    fn count_failed(&mut self, root: Root) {
        self.ends.failed += 1;
        let truth = &self.truth[&root];
        if !truth.failed && !truth.incarnations.iter().any(|i| self.gone.contains_key(i)) {
            self.ends.failed_for_nothing += 1;
        }
    }

    /// The ledger ended it, once, so it is open at the owner.
    fn close(&mut self, root: Root) {
        assert!(self.slots.is_open(root));
        let (id, _) = self.open.remove(&root).expect("told once, and not after its timeout");
        assert_eq!(self.slots.close(root), Some(id));
        assert_eq!(self.slots.close(root), None);
    }

    fn expire(&mut self) {
        self.ledger.tick(self.now_ns);
        self.model.tick(self.now_ns);
        self.gone.retain(|_, until| *until > self.now_ns);
        let mut due = Vec::new();
        self.slots.expire(self.now_ns, SLOTS as usize, |root, id| due.push((root, id)));
        for (root, id) in due {
            let (was, at) = self.open.remove(&root).expect("only what is open times out");
            assert_eq!(was, id);
            assert!(self.now_ns >= at + T);
            self.ledger.forget(root);
            self.model.forget(root);
            self.ends.timed_out += 1;
        }
    }

    /// An incarnation is lost with what is under way to it; then its loss is told.
    fn lose(&mut self) {
        let which = self.random.below(INCARNATIONS);
        let until = self.now_ns + T;
        self.gone.insert(which, until);
        self.once_gone.insert(which);
        self.tuples.retain(|tuple| tuple.to != which);
        let bit = which % BITS;
        let mut failed = HashSet::new();
        self.ledger.lose(1 << bit, until, |root| assert!(failed.insert(root), "told once"));
        assert_eq!(failed, self.model.lose(bit, until));
        for root in failed {
            self.count_failed(root);
            self.close(root);
        }
    }

    /// The owner's task is restarted in place.
    fn begin_anew(&mut self) {
        let mut dropped = Vec::new();
        self.slots.drain_open(|root, id| dropped.push((root, id)));
        assert_eq!(dropped.len(), self.open.len());
        for (root, id) in dropped {
            assert_eq!(self.open.remove(&root).map(|(id, _)| id), Some(id));
            self.ledger.forget(root);
            self.model.forget(root);
            self.ends.dropped += 1;
        }
    }
}

fn run(seeds: std::ops::Range<u64>) -> Ends {
    let mut ends = Ends::default();
    for seed in seeds {
        let weather = &WEATHERS[seed as usize % WEATHERS.len()];
        let mut episode = Episode {
            random: Edges::new(seed << 32),
            edges: Edges::new(!seed),
            weather,
            slots: Slots::near_wrap(1, SLOTS, T, BEFORE_WRAP),
            ledger: Ledger::new(1),
            model: Model::default(),
            truth: HashMap::new(),
            open: HashMap::new(),
            messages: Vec::new(),
            tuples: Vec::new(),
            gone: HashMap::new(),
            once_gone: HashSet::new(),
            now_ns: seed,
            ends: &mut ends,
        };
        // The seed of a failure is in its output.
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| episode.run())).is_err();
        assert!(!failed, "with seed {seed}");
    }
    let ended = ends.complete + ends.failed + ends.timed_out + ends.dropped;
    assert_eq!(ended, ends.opened, "every tree ends, once: {ends:?}");
    println!("{ends:?}");
    ends
}

/// Nothing in it is 0, so the test could fail in all the ways it is made for.
fn shows_all(ends: &Ends) {
    for n in [
        ends.complete,
        ends.failed,
        ends.timed_out,
        ends.dropped,
        ends.failed_by_loss,
        ends.over_failed,
        ends.stale,
        ends.failed_for_nothing,
    ] {
        assert!(n > 0, "{ends:?}");
    }
}

#[test]
fn no_tree_completes_early_and_every_tree_ends() {
    shows_all(&run(0..1_000));
}

#[test]
#[ignore = "10 million trees, with --release"]
fn no_tree_of_ten_million_completes_early_and_every_one_ends() {
    shows_all(&run(1_000..21_000));
}
