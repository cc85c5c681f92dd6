//! Some loops of as many workers, by the rules of `moves.rs` alone: frames are numbers, links are queues, and what happens next is chosen by
//! the test. Executor 1 is emitted to by every loop and emits to executor 2 for each frame; both change place again and again.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

const LOOPS: usize = 4;
const X: Who = 1;
const Y: Who = 2;
const TIMEOUT_NS: u64 = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Data {
    /// To whom, from whom, and its number among those.
    Frame(Who, u32, u64),
    Mark(Marker, Who, Version),
}

struct Node {
    index: usize,
    moves: Moves,
    version: usize,
    runs: BTreeSet<Who>,
    /// Where frames for X and Y go.
    leads: BTreeMap<Who, Option<Lane>>,
    held: Vec<(Who, u32, u64)>,
    /// By lane: what came and is not handled.
    inbox: Vec<VecDeque<(Who, u32, u64)>>,
    received: BTreeMap<(Lane, Who), u64>,
    handled: BTreeMap<(Lane, Who), u64>,
    emitted: u64,
}

/// The loop that `lane` of the loop `of` leads to.
fn other(of: usize, lane: Lane) -> usize {
    let lane = lane as usize;
    if lane == 0 { of } else { lane - usize::from(lane <= of) }
}

fn lane(of: usize, to: usize) -> Lane {
    (if of == to { 0 } else { to + usize::from(to < of) }) as Lane
}

impl Here for Node {
    fn runs(&self, who: Who) -> bool {
        self.runs.contains(&who)
    }
    fn is_quiet(&self, who: Who) -> bool {
        self.is_empty(who)
    }
    fn is_empty(&self, who: Who) -> bool {
        let held = who == X && self.held.iter().any(|(to, from, _)| (*to, *from) == (Y, X));
        !held && !self.inbox.iter().flatten().any(|(to, ..)| *to == who)
    }
    fn leads_to(&self, who: Who) -> Option<Lane> {
        self.leads[&who]
    }
    fn lanes(&self) -> BTreeSet<Lane> {
        (0..LOOPS as Lane).collect()
    }
    fn is_linked(&self, _: Lane) -> bool {
        true
    }
    fn is_named(&self, _: Lane) -> bool {
        true
    }
    fn has_no_tree(&self, _: Who) -> bool {
        true
    }
    fn is_holding(&self, who: Who) -> bool {
        self.held.iter().any(|(to, ..)| *to == who)
    }
    fn handled(&self, lane: Lane, who: Who) -> Option<u64> {
        self.runs(who).then(|| self.handled.get(&(lane, who)).copied().unwrap_or(0))
    }
}

struct World {
    nodes: Vec<Node>,
    /// By (from, to).
    data: BTreeMap<(usize, usize), VecDeque<Data>>,
    words: BTreeMap<(usize, usize), VecDeque<Said>>,
    /// By version: loop of X and of Y.
    assignments: Vec<[usize; 2]>,
    /// (to, from): the last number handled.
    last: BTreeMap<(Who, u32), u64>,
    seq: u64,
    arrived: u64,
    now_ns: u64,
}

impl World {
    fn new() -> Self {
        let node = |index| Node {
            index,
            moves: Moves::new(1, TIMEOUT_NS),
            version: 1,
            runs: [(X, 0), (Y, 1)].into_iter().filter(|(_, at)| *at == index).map(|(who, _)| who).collect(),
            leads: [(X, Some(lane(index, 0))), (Y, Some(lane(index, 1)))].into(),
            held: Vec::new(),
            inbox: vec![VecDeque::new(); LOOPS],
            received: BTreeMap::new(),
            handled: BTreeMap::new(),
            emitted: 0,
        };
        World {
            nodes: (0..LOOPS).map(node).collect(),
            data: BTreeMap::new(),
            words: BTreeMap::new(),
            assignments: vec![[0, 1]],
            last: BTreeMap::new(),
            seq: 0,
            arrived: 0,
            now_ns: 0,
        }
    }

    fn send(&mut self, at: usize, to: Who, from: u32, n: u64) {
        match self.nodes[at].leads[&to] {
            None => self.nodes[at].held.push((to, from, n)),
            Some(OWN) => self.arrive(at, OWN, Data::Frame(to, from, n)),
            Some(lane) => self.data.entry((at, other(at, lane))).or_default().push_back(Data::Frame(to, from, n)),
        }
    }

    fn arrive(&mut self, at: usize, lane: Lane, data: Data) {
        let node = &mut self.nodes[at];
        match data {
            Data::Frame(to, from, n) => {
                assert!(node.runs.contains(&to), "a frame for {to} where it is not");
                node.inbox[lane as usize].push_back((to, from, n));
                *node.received.entry((lane, to)).or_insert(0) += 1;
            }
            Data::Mark(marker, who, version) => self.mark(at, lane, marker, who, version),
        }
    }

    fn mark(&mut self, at: usize, lane: Lane, marker: Marker, who: Who, version: Version) {
        let node = &mut self.nodes[at];
        let received: Vec<_> = node.runs.iter().map(|w| (*w, node.received.get(&(lane, *w)).copied().unwrap_or(0))).collect();
        node.moves.marked(lane, marker, who, version, received.into_iter());
    }

    /// One frame of a lane is handled.
    fn handle(&mut self, at: usize, lane: Lane) {
        let node = &mut self.nodes[at];
        let Some((to, from, n)) = node.inbox[lane as usize].pop_front() else { return };
        *node.handled.entry((lane, to)).or_insert(0) += 1;
        let last = self.last.insert((to, from), n);
        assert!(last.is_none_or(|last| last < n), "{to} got {n} of {from} after {last:?}");
        if to == X {
            self.seq += 1;
            let seq = self.seq;
            self.send(at, Y, X, seq);
        } else {
            self.arrived += 1;
        }
    }

    /// Every loop emits to X, each with an order of its own.
    fn emit(&mut self, at: usize) {
        self.nodes[at].emitted += 1;
        let n = self.nodes[at].emitted;
        self.send(at, X, 100 + at as u32, n);
    }

    /// The loop learns of the next assignment it does not know, or of the newest.
    fn adopt(&mut self, at: usize, newest: bool) {
        let before = self.nodes[at].version;
        let version = if newest { self.assignments.len() } else { (before + 1).min(self.assignments.len()) };
        if version == before {
            return;
        }
        let (old, new, now_ns) = (self.assignments[before - 1], self.assignments[version - 1], self.now_ns);
        let node = &mut self.nodes[at];
        node.version = version;
        node.moves.begin(version as u64, &(0..LOOPS as Lane).collect(), now_ns);
        let mut asks = Vec::new();
        for (who, old, new) in [(X, old[0], new[0]), (Y, old[1], new[1])].into_iter().filter(|(_, old, new)| old != new) {
            node.leads.insert(who, None);
            if old == at {
                asks.extend(node.moves.leave(who, 1..LOOPS as Lane, now_ns));
            }
            node.moves.hold(who, Some(lane(at, old)), Some(lane(at, new)), now_ns);
            if new == at {
                node.moves.come(who, Some(lane(at, old)), (0..LOOPS as Lane).collect(), now_ns);
            }
        }
        asks.into_iter().for_each(|ask| self.act(at, ask));
    }

    fn say(&mut self, at: usize, to: Lane, said: Said) {
        if to == OWN {
            self.hear(at, OWN, said);
        } else {
            self.words.entry((at, other(at, to))).or_default().push_back(said);
        }
    }

    fn hear(&mut self, at: usize, lane: Lane, said: Said) {
        let mut moves = std::mem::replace(&mut self.nodes[at].moves, Moves::new(0, 0));
        let action = moves.hear(lane, said, &self.nodes[at]);
        self.nodes[at].moves = moves;
        action.into_iter().for_each(|action| self.act(at, action));
    }

    fn act(&mut self, at: usize, action: Action) {
        match action {
            Action::Say(to, said) => self.say(at, to, said),
            Action::SayReady(to, who, version) => {
                assert!(self.nodes[at].runs(who));
                self.say(at, to, Said { word: Word::IsReady, who, version, limit: 1 });
            }
            Action::Mark(OWN, marker, who, version) => self.mark(at, OWN, marker, who, version),
            Action::Mark(to, marker, who, version) => {
                self.data.entry((at, other(at, to))).or_default().push_back(Data::Mark(marker, who, version));
            }
            Action::Wake { who, late, .. } => {
                assert!(!late && self.nodes.iter().all(|n| !n.runs(who)), "{who} is in two places");
                self.nodes[at].runs.insert(who);
            }
            Action::TakeOff { who, late } => {
                assert!(!late && self.nodes[at].is_empty(who));
                assert!(self.nodes[at].runs.remove(&who));
            }
            Action::Release { who, late, .. } => {
                assert!(!late);
                let to = self.assignments[self.nodes[at].version - 1][who as usize - 1];
                self.nodes[at].leads.insert(who, Some(lane(at, to)));
                let held = std::mem::take(&mut self.nodes[at].held);
                for (to, from, n) in held {
                    self.send(at, to, from, n);
                }
            }
            Action::HoldAgain { who, at: to } => {
                let now_ns = self.now_ns;
                self.nodes[at].leads.insert(who, None);
                self.nodes[at].moves.hold(who, None, Some(to), now_ns);
            }
            Action::Forget { .. } | Action::Open { .. } | Action::Turn { .. } | Action::CloseTrees { .. } | Action::OpenTrees { .. } => {}
        }
    }

    fn step(&mut self, at: usize) {
        loop {
            let mut moves = std::mem::replace(&mut self.nodes[at].moves, Moves::new(0, 0));
            let actions = moves.step(self.now_ns, &self.nodes[at]);
            self.nodes[at].moves = moves;
            if actions.is_empty() {
                return;
            }
            actions.into_iter().for_each(|action| self.act(at, action));
        }
    }

    /// What the number says happens.
    fn happens(&mut self, choice: u32) {
        let (a, b) = ((choice >> 8) as usize % LOOPS, (choice >> 16) as usize % LOOPS);
        match choice % 16 {
            0..=3 => self.emit(a),
            4..=6 => {
                if let Some(data) = self.data.get_mut(&(a, b)).and_then(VecDeque::pop_front) {
                    self.arrive(b, lane(b, a), data);
                }
            }
            7..=9 => {
                if let Some(said) = self.words.get_mut(&(a, b)).and_then(VecDeque::pop_front) {
                    self.hear(b, lane(b, a), said);
                }
            }
            10 | 11 => self.handle(a, b as Lane),
            12 | 13 => self.step(a),
            14 => self.adopt(a, b == 0),
            _ if self.assignments.len() < 8 => self.assignments.push([a, b]),
            _ => {}
        }
    }

    fn settled(&self) -> bool {
        let idle = |n: &Node| n.moves.is_idle() && n.version == self.assignments.len() && n.inbox.iter().all(VecDeque::is_empty);
        let quiet = self.data.values().all(VecDeque::is_empty) && self.words.values().all(VecDeque::is_empty);
        quiet && self.nodes.iter().all(idle)
    }

    /// Everything goes on until nothing is left to be done.
    fn run_out(&mut self) {
        for _ in 0..500 {
            if self.settled() {
                return;
            }
            for at in 0..LOOPS {
                self.adopt(at, false);
                for from in 0..LOOPS {
                    while let Some(data) = self.data.get_mut(&(from, at)).and_then(VecDeque::pop_front) {
                        self.arrive(at, lane(at, from), data);
                    }
                    while let Some(said) = self.words.get_mut(&(from, at)).and_then(VecDeque::pop_front) {
                        self.hear(at, lane(at, from), said);
                    }
                    while !self.nodes[at].inbox[from].is_empty() {
                        self.handle(at, from as Lane);
                    }
                }
                self.step(at);
            }
        }
        panic!("never settled: {:?}", self.nodes.iter().map(|n| (n.index, &n.moves)).collect::<Vec<_>>());
    }

    /// All has arrived, and both are where the newest assignment has them.
    fn check(&self) {
        let emitted: u64 = self.nodes.iter().map(|n| n.emitted).sum();
        assert_eq!((self.seq, self.arrived), (emitted, emitted));
        for (who, at) in [X, Y].into_iter().zip(self.assignments.last().unwrap()) {
            let places: Vec<usize> = self.nodes.iter().filter(|n| n.runs(who)).map(|n| n.index).collect();
            assert_eq!(places, [*at], "where {who} is");
        }
    }
}

#[test]
fn a_move_takes_frames_along_in_order() {
    let mut world = World::new();
    (0..LOOPS).for_each(|at| world.emit(at));
    world.assignments.push([2, 3]);
    // The new place learns of it first and the old one last: it waits.
    for at in [2, 3, 1, 0] {
        world.adopt(at, true);
        world.step(at);
        world.emit(at);
        assert!(world.nodes[0].runs(X) && !world.nodes[2].runs(X));
    }
    world.run_out();
    world.check();
    assert_eq!(world.arrived, 8);
}

#[test]
fn who_moves_on_before_it_woke_waits_for_all_its_places() {
    let mut world = World::new();
    world.emit(3);
    for places in [[1, 1], [2, 1], [0, 1], [3, 1]] {
        world.assignments.push(places);
        (0..LOOPS).for_each(|at| world.adopt(at, false));
    }
    (1..LOOPS).for_each(|at| world.step(at));
    assert!(world.nodes[0].runs(X), "nobody has heard of anything yet");
    world.run_out();
    world.check();
}

#[test]
fn who_skipped_that_it_went_back_asks_anew() {
    // Executor 2 never left loop 1, as far as that one knows; loop 0 expects it since the fifth, and by the eighth again.
    let mut world = World::new();
    let choices = [
        796547055, 166645135, 1391852847, 3947410031, 2615242878, 3409571695, 3845760, 4253198, 1665420702, 2148362864, 2995905887,
        2564650174, 1770791039, 111, 3034529966, 3897725150, 0, 2728678558,
    ];
    choices.into_iter().for_each(|choice| world.happens(choice));
    world.run_out();
    world.check();
}

#[test]
fn a_place_that_was_ready_by_an_assignment_before_may_be_so_no_more() {
    // It said so, and the executor went on and came back while whoever asked skipped both.
    let mut world = World::new();
    let choices = [
        3165907871, 3537441695, 629151006, 314266782, 2058434718, 0, 705263831, 0, 2334813199, 1277662220, 869388487, 363887, 1407130336,
        4019485742, 1204956556, 9648, 1641006480,
    ];
    choices.into_iter().for_each(|choice| world.happens(choice));
    world.run_out();
    world.check();
}

#[test]
fn a_place_that_says_nothing_is_waited_for_one_timeout() {
    let mut world = World::new();
    world.emit(2);
    world.assignments.push([3, 1]);
    (1..LOOPS).for_each(|at| world.adopt(at, true));
    (0..LOOPS).for_each(|at| world.step(at));
    let late = |node: &mut Node, now_ns| {
        let mut moves = std::mem::replace(&mut node.moves, Moves::new(0, 0));
        let actions = moves.step(now_ns, node);
        node.moves = moves;
        actions
    };
    assert_eq!(late(&mut world.nodes[3], TIMEOUT_NS - 1), []);
    let actions = late(&mut world.nodes[3], TIMEOUT_NS);
    assert!(actions.contains(&Action::Wake { who: X, version: 2, late: true }), "{actions:?}");
    assert!(actions.contains(&Action::Release { who: X, limit: None, late: true }), "{actions:?}");
}

#[test]
fn words_and_markers_survive_their_way_and_others_are_refused() {
    for word in Word::ALL {
        let said = Said { word, who: 7, version: u64::MAX - 1, limit: 1 << 40 };
        assert_eq!(Said::decode(&said.encode()), Some(said));
        assert_eq!(Said::decode(&said.encode()[..MOVE_BYTES - 1]), None);
    }
    assert_eq!(Said::decode(&[0xFF; MOVE_BYTES]), None);
    for marker in [Marker::Epoch, Marker::Emitted] {
        let bytes = marker.frame(9, 1 << 50);
        assert_eq!(saetta_tuple::frame::check_run(&bytes), Ok(()));
        assert_eq!(Marker::read(&Frame::first(&bytes).unwrap()), Some((marker, 9, 1 << 50)));
    }
}

/// Whatever happens in whatever order: nothing is lost, order holds, nobody is in two places, and it comes to an end.
/// Other cases in every run: `MODEL_SEED` says which, `MODEL_CASES` how many.
#[test]
fn moves_settle_whatever_the_order() {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().expect("a number"));
    let seed = number("MODEL_SEED").unwrap_or_else(|| std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0));
    println!("MODEL_SEED={seed}");
    let config = ProptestConfig {
        cases: number("MODEL_CASES").map_or(300, |n| n as u32),
        rng_seed: proptest::test_runner::RngSeed::Fixed(seed),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let cases = prop::collection::vec(any::<u32>(), 0..400);
    let run = |choices: Vec<u32>| {
        let mut world = World::new();
        choices.into_iter().for_each(|choice| world.happens(choice));
        world.run_out();
        world.check();
        Ok(())
    };
    proptest::test_runner::TestRunner::new(config).run(&cases, run).unwrap_or_else(|e| panic!("MODEL_SEED={seed}: {e}"));
}
