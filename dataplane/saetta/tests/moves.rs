//! Executors change place between three workers while tuples flow. Their loops are stepped by hand in an order chosen by seed, over connections
//! simulated with delays chosen by seed, on a clock moved by hand. Nothing is lost, each (emitter
//! task, target task) keeps its order, no task is in two places, and every tree ends.
//!
//! feed (2 tasks, tracked) -> pass (3, by key) -> seen (2, shuffled). `feed` and the acker are on worker 0; the others are anywhere.

#![allow(missing_docs, reason = "tuples of a test")]

use saetta::prelude::*;
use saetta_engine::{Clock, Command, Engine, EnginePlan, Links, Options, PlannedExecutor, Program, RemoteExecutor, Share, worker_bit};
use saetta_model::config::{Config, Owner, Source};
use saetta_model::parallelism::{ExecutorId, Layout};
use saetta_transport::sim::{self, Faults};
use saetta_transport::{Choice, Connection, Peer, Road};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const WORKERS: usize = 3;
const FEEDS: u32 = 2;
const PASSES: u32 = 3;
const SEENS: u32 = 2;
/// Longest time for one run, by the machine's clock.
const PATIENCE: Duration = Duration::from_secs(120);
/// The clock moves by this much with every turn of a loop.
const STEP: Duration = Duration::from_micros(20);
/// How long bytes are on their way, by one of these for each direction of each connection.
const DELAYS_NS: [u64; 4] = [0, 30_000, 1_000_000, 4_000_000];

#[tuple]
pub struct Item {
    pub key: u32,
    pub from: u32,
    pub n: u64,
    /// Makes the smallest windows small.
    pub ballast: [u8; 32],
}

#[tuple]
pub struct Passed {
    pub pass: u32,
    pub seq: u64,
    pub from: u32,
    pub n: u64,
}

#[derive(Default)]
struct Data {
    /// Numbers each feed task may emit.
    end: u64,
    next: BTreeMap<u32, u64>,
    /// (feed task, pass task): what came, in its order, whichever instance it came to.
    passed: BTreeMap<(u32, u32), Vec<u64>>,
    /// (pass task, seen task): the order numbers of what came.
    seen: BTreeMap<(u32, u32), Vec<u64>>,
    /// (feed task, number): how often it came to the end.
    arrived: BTreeMap<(u32, u64), u32>,
    seq: BTreeMap<u32, u64>,
    /// Nothing will be added to `end`.
    over: bool,
    /// Tasks that are open.
    open: BTreeSet<u32>,
    /// A worker was lost: its instances close nothing, and it comes back without knowing what was on its way.
    lossy: bool,
    acked: BTreeSet<u64>,
    failed: BTreeMap<u64, TreeFail>,
}

#[derive(Clone, Default)]
struct World(Arc<Mutex<Data>>);

impl World {
    fn with<R>(&self, f: impl FnOnce(&mut Data) -> R) -> R {
        f(&mut self.0.lock().unwrap())
    }
    fn opened(&self, task: u32) {
        assert!(self.with(|d| d.open.insert(task) || d.lossy), "task {task} is in two places");
    }
    fn closed(&self, task: u32) {
        assert!(self.with(|d| d.open.remove(&task) || d.lossy), "task {task} is closed twice");
    }
}

struct Feed(World, u32);
impl Emits<Item> for Feed {}
impl Spout for Feed {
    const TRACKED: bool = true;
    fn open(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        self.1 = cx.task();
        self.0.opened(self.1);
        Ok(())
    }
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        let from = cx.task();
        let next = self.0.with(|d| {
            let next = d.next.entry(from).or_insert(0);
            let n = *next;
            *next += u64::from(n < d.end);
            (n < d.end).then_some(n)
        });
        let Some(n) = next else { return Ok(if self.0.with(|d| d.over) { Done } else { Idle }) };
        cx.emit_tracked(u64::from(from) << 32 | n, &Item { key: (n % 11) as u32, from, n, ballast: [1; 32] });
        Ok(Busy)
    }
    fn ack(&mut self, id: u64) {
        assert!(self.0.with(|d| d.acked.insert(id)), "{id:x} is acked twice");
    }
    fn fail(&mut self, id: u64, why: &TreeFail) {
        assert!(self.0.with(|d| d.failed.insert(id, why.clone())).is_none(), "{id:x} fails twice");
    }
    fn close(&mut self) {
        self.0.closed(self.1);
    }
}

struct Pass(World, u32);
impl Bolt for Pass {
    fn open(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        self.1 = cx.task();
        self.0.opened(self.1);
        Ok(())
    }
    fn close(&mut self) {
        self.0.closed(self.1);
    }
}
impl Emits<Passed> for Pass {}
impl Handle<Item> for Pass {
    fn on(&mut self, t: &ArchivedItem, cx: &mut Cx<'_, Self>) -> Outcome {
        let pass = cx.task();
        let seq = self.0.with(|d| {
            d.passed.entry((t.from(), pass)).or_default().push(t.n());
            let seq = d.seq.entry(pass).or_insert(0);
            *seq += 1;
            *seq
        });
        cx.emit(&Passed { pass, seq, from: t.from(), n: t.n() });
        Ok(())
    }
}

struct Seen(World, u32);
impl Bolt for Seen {
    fn open(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        self.1 = cx.task();
        self.0.opened(self.1);
        Ok(())
    }
    fn close(&mut self) {
        self.0.closed(self.1);
    }
}
impl Handle<Passed> for Seen {
    fn on(&mut self, t: &ArchivedPassed, cx: &mut Cx<'_, Self>) -> Outcome {
        let task = cx.task();
        self.0.with(|d| {
            d.seen.entry((t.pass(), task)).or_default().push(t.seq());
            *d.arrived.entry((t.from(), t.n())).or_insert(0) += 1;
        });
        Ok(())
    }
}

fn topology(world: &World) -> Program {
    let (a, b, c) = (world.clone(), world.clone(), world.clone());
    let mut t = Topology::new();
    let items = t.spout("feed", move || Feed(a.clone(), 0)).executors(FEEDS).stream::<Item>();
    let passed = t.bolt("pass", move || Pass(b.clone(), 0)).input(&items, by!(Item.key)).executors(PASSES).stream::<Passed>();
    let _ = t.bolt("seen", move || Seen(c.clone(), 0)).input(&passed, Shuffle).executors(SEENS);
    t.build().unwrap()
}

/// Loops do not wait for each other in any order: xorshift.
struct Order(u64);
impl Order {
    fn next(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// Where each executor is: worker and loop.
type Places = BTreeMap<ExecutorId, (usize, usize)>;

struct Worker {
    engine: Engine,
    links: Vec<Links>,
    version: u64,
    start: u64,
}

struct Cluster {
    world: World,
    program: Program,
    config: Config,
    layout: Layout,
    clock: Clock,
    timeout: Duration,
    loops: usize,
    workers: Vec<Option<Worker>>,
    /// Of workers that died, the last start number.
    starts: Vec<u64>,
    order: Order,
    /// By version from 1 on.
    assignments: Vec<Places>,
    started: Instant,
    seed: u64,
}

fn placement(worker: usize) -> u64 {
    100 + worker as u64
}

impl Cluster {
    fn new(seed: u64, loops: usize, timeout: Duration) -> Self {
        // As much as is ever emitted: what is held finds room.
        Cluster::with_outbox(seed, loops, timeout, "16MiB")
    }

    fn with_outbox(seed: u64, loops: usize, timeout: Duration, outbox: &str) -> Self {
        let world = World::default();
        let program = topology(&world);
        let mut config = Config::new(Owner::Topology);
        let small = ["4KiB", "8KiB", "64KiB"][seed as usize % 3];
        for (key, value) in [
            ("topology.acker.executors", "1"),
            ("executor.inbox.bytes", small),
            ("lane.ring.bytes", "4KiB"),
            ("executor.outbox.bytes", outbox),
        ] {
            config.set(key, value, Source::Set).unwrap();
        }
        let layout = Layout::new(&program.spec, &config).unwrap();
        let mut order = Order(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let places = layout
            .components
            .iter()
            .flat_map(|c| c.executors.iter().map(|id| (*id, c.id.as_str().to_owned())))
            .map(|(id, c)| {
                let anywhere = (order.next(WORKERS), order.next(loops));
                (id, if c == "pass" || c == "seen" { anywhere } else { (0, 0) })
            })
            .collect();
        let mut cluster = Cluster {
            world,
            program,
            config,
            layout,
            clock: Clock::manual(),
            timeout,
            loops,
            workers: Vec::new(),
            starts: vec![0; WORKERS],
            order,
            assignments: vec![places],
            started: Instant::now(),
            seed,
        };
        cluster.workers = (0..WORKERS).map(|w| Some(cluster.start(w, 1))).collect();
        for one in 0..WORKERS {
            (one + 1..WORKERS).for_each(|two| cluster.join(one, two));
        }
        cluster
    }

    fn plan(&self, worker: usize, start: u64, version: u64) -> EnginePlan {
        let places = &self.assignments[version as usize - 1];
        let here = places.iter().filter(|(_, (w, _))| *w == worker);
        let there = places.iter().filter(|(_, (w, _))| *w != worker);
        EnginePlan {
            layout: self.layout.clone(),
            cores: (0..self.loops as u32).collect(),
            executors: here.map(|(id, (_, l))| PlannedExecutor { id: *id, on_loop: *l }).collect(),
            remotes: there.map(|(id, (w, l))| RemoteExecutor { id: *id, placement: placement(*w), on_loop: *l as u32 }).collect(),
            options: Options {
                pinned: false,
                version,
                clock: self.clock.clone(),
                message_timeout_ns: self.timeout.as_nanos() as u64,
                worker_bit: worker_bit(worker as u32, start),
                seed: self.seed ^ u64::from(worker as u32) << 32 ^ start << 48 ^ version << 40,
                ..Options::from_config(&self.config).unwrap()
            },
        }
    }

    fn start(&self, worker: usize, start: u64) -> Worker {
        let version = self.assignments.len() as u64;
        let engine = Engine::build(&self.program, &self.plan(worker, start, version), true).unwrap();
        if self.is_shared() {
            let share = |other: usize| Share {
                placement: placement(other),
                local_loop: self.holder(worker, other) as u32,
                remote_loop: self.holder(other, worker) as u32,
            };
            let shares: Vec<Share> = (0..WORKERS).filter(|other| *other != worker).map(share).collect();
            engine.handles().iter().for_each(|h| h.send(Command::Shares(shares.clone())));
        }
        engine.handles().iter().for_each(|h| h.send(Command::Activate(true)));
        Worker { engine, links: (0..self.loops).map(|_| Links::open(Choice::Epoll).unwrap()).collect(), version, start }
    }

    /// With every other seed, all loops of two workers share one link.
    fn is_shared(&self) -> bool {
        self.seed.is_multiple_of(2)
    }

    /// The loop that holds the link with another worker, where it is shared.
    fn holder(&self, worker: usize, other: usize) -> usize {
        (worker + other) % self.loops
    }

    /// Each pair of loops by two roads, each way of each with a delay of its own.
    fn join(&mut self, one: usize, two: usize) {
        for (x, y) in (0..self.loops).flat_map(|x| (0..self.loops).map(move |y| (x, y))) {
            if self.is_shared() && (x, y) != (self.holder(one, two), self.holder(two, one)) {
                continue;
            }
            for road in [Road::Data, Road::Control] {
                let mut way = || Faults { delay_ns: DELAYS_NS[self.order.next(DELAYS_NS.len())], ..Faults::default() };
                let (first, second, _) = sim::pair(way(), way());
                for (to, own_loop, other, other_loop, end) in [(one, x, two, y, first), (two, y, one, x, second)] {
                    let peer = Peer {
                        placement: placement(other),
                        start: self.workers[other].as_ref().unwrap().start,
                        index: other as u32,
                        local_loop: own_loop as u32,
                        remote_loop: other_loop as u32,
                        road,
                        local_ring_bytes: 64 << 10,
                        remote_ring_bytes: 64 << 10,
                    };
                    let worker = self.workers[to].as_ref().unwrap();
                    worker.engine.handles()[own_loop].send(Command::AddLink { connection: Connection::Simulated(end), peer });
                }
            }
        }
    }

    /// Decides a new assignment: some of these components' executors go somewhere else.
    fn rebalance(&mut self, components: &[&str], workers: usize) {
        let mut places = self.assignments.last().unwrap().clone();
        let all: Vec<ExecutorId> =
            self.layout.components.iter().filter(|c| components.contains(&c.id.as_str())).flat_map(|c| c.executors.clone()).collect();
        for id in all {
            if self.order.next(2) == 0 {
                places.insert(id, (self.order.next(workers), self.order.next(self.loops)));
            }
        }
        self.assignments.push(places);
    }

    /// The worker learns of the newest assignment.
    fn adopt(&mut self, worker: usize) {
        let version = self.assignments.len() as u64;
        let Some(start) = self.workers[worker].as_ref().filter(|w| w.version < version).map(|w| w.start) else { return };
        let plan = self.plan(worker, start, version);
        let to = self.workers[worker].as_mut().unwrap();
        to.engine.adopt(&self.program, &plan).unwrap();
        to.version = version;
    }

    /// A worker dies; the others hear of it, each at a time of its own.
    fn lose(&mut self, worker: usize) {
        let start = self.workers[worker].take().unwrap().start;
        self.starts[worker] = start;
    }

    /// It is started again, and the others know what that says about the one before.
    fn come_back(&mut self, worker: usize) {
        let before = self.starts[worker];
        for other in self.workers.iter().flatten() {
            let lost = || Command::Lost { placement: placement(worker), start: before, index: worker as u32 };
            other.engine.handles().iter().for_each(|h| h.send(lost()));
        }
        self.workers[worker] = Some(self.start(worker, before + 1));
        for other in (0..WORKERS).filter(|other| *other != worker) {
            self.join(worker, other);
        }
    }

    /// One loop of one worker has a turn.
    fn turn(&mut self) {
        self.clock.advance(STEP);
        let (w, l) = (self.order.next(WORKERS), self.order.next(self.loops));
        if let Some(worker) = &mut self.workers[w] {
            worker.engine.loops[l].turn(&mut worker.links[l]);
        }
    }

    fn turns(&mut self, n: usize) {
        (0..n).for_each(|_| self.turn());
    }

    fn emit(&self, n: u64) {
        self.world.with(|d| d.end += n);
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let from = self.clock.now_ns();
        while !done(self) {
            self.turns(50);
            if self.started.elapsed() > PATIENCE || self.clock.now_ns() - from > 6_000_000_000 {
                let counts = self.world.with(|d| (d.end, d.next.clone(), d.arrived.len(), d.acked.len(), d.failed.len()));
                for (w, worker) in self.workers.iter().enumerate() {
                    for l in worker.iter().flat_map(|w| &w.engine.loops) {
                        eprintln!("worker {w} version {}: {}", worker.as_ref().unwrap().version, l.moves());
                    }
                }
                panic!("seed {}: not within {PATIENCE:?}: {what}: {counts:?} {:?}", self.seed, self.counts());
            }
        }
    }

    fn counts(&self) -> Vec<(usize, usize, u64, u64, u64, u64)> {
        let loops = self.workers.iter().enumerate().filter_map(|(w, worker)| Some((w, worker.as_ref()?)));
        loops
            .flat_map(|(w, worker)| {
                worker.engine.shared.loops.iter().enumerate().map(move |(l, s)| {
                    let get = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
                    (w, l, get(&s.moves), get(&s.moves_late), get(&s.moves_lost), get(&s.discarded))
                })
            })
            .collect()
    }

    fn settled(&self) -> bool {
        let newest = self.assignments.len() as u64;
        self.counts().iter().all(|(_, _, moves, ..)| *moves == 0) && self.workers.iter().flatten().all(|w| w.version == newest)
    }

    fn ended(&self) -> bool {
        self.world.with(|d| {
            let emitted: u64 = d.next.values().sum();
            emitted == d.end * u64::from(FEEDS) && d.acked.len() + d.failed.len() == emitted as usize
        })
    }

    /// Nothing was lost, nothing came twice, and order held; nobody waited for a timeout.
    fn check(&self) {
        let seed = self.seed;
        self.check_order();
        self.world.with(|d| {
            assert!(d.failed.is_empty(), "seed {seed}: {:?}", d.failed.iter().take(3).collect::<Vec<_>>());
            assert_eq!(d.arrived.len() as u64, d.end * u64::from(FEEDS), "seed {seed}: all arrived");
            assert!(d.arrived.values().all(|n| *n == 1), "seed {seed}: each once");
        });
        assert!(
            self.counts().iter().all(|(_, _, _, late, lost, discarded)| (*late, *lost, *discarded) == (0, 0, 0)),
            "{:?}",
            self.counts()
        );
    }

    fn check_order(&self) {
        let seed = self.seed;
        self.world.with(|d| {
            for (path, numbers) in d.passed.iter().chain(&d.seen) {
                assert!(numbers.is_sorted_by(|a, b| a < b), "seed {seed}: order of {path:?}: {numbers:?}");
            }
        });
    }
}

/// Rebalances so often, each worker learning of each at a time of its own, or of some of them never.
fn run(seed: u64, loops: usize, components: &[&str], rebalances: usize) {
    let mut all = Cluster::new(seed, loops, Duration::from_secs(30));
    all.emit(200);
    let turns = all.order.next(2000);
    all.turns(turns);
    for round in 1..=rebalances {
        all.rebalance(components, WORKERS);
        all.emit(100);
        let mut left: Vec<usize> = (0..WORKERS).collect();
        while !left.is_empty() {
            let who = left.swap_remove(all.order.next(left.len()));
            if round == rebalances || all.order.next(4) > 0 {
                all.adopt(who);
            }
            let pause = [0, 10, 300, 3000][all.order.next(4)];
            all.turns(pause);
        }
        if all.order.next(2) == 0 {
            (0..WORKERS).for_each(|who| all.adopt(who));
            all.until("moves are settled", Cluster::settled);
        }
    }
    all.emit(200);
    all.until("all trees end", |all| all.ended() && all.settled());
    all.check();
    // Ends reach those that move as well, before, while or after they do.
    all.world.with(|d| d.over = true);
    all.rebalance(components, WORKERS);
    for who in 0..WORKERS {
        let pause = [0, 10, 300, 3000][all.order.next(4)];
        all.turns(pause);
        all.adopt(who);
    }
    all.until("everybody ends", |all| all.settled() && all.workers.iter().flatten().all(|w| w.engine.shared.ended()));
    all.check();
}

#[test]
fn bolts_that_move_lose_nothing_and_keep_their_order() {
    (1..=16).for_each(|seed| run(seed, 1, &["pass", "seen"], 4));
    (100..=110).for_each(|seed| run(seed, 2, &["pass", "seen"], 4));
}

#[test]
fn spouts_that_move_wait_for_their_trees() {
    (200..=210).for_each(|seed| run(seed, 1, &["feed"], 4));
    (300..=310).for_each(|seed| run(seed, 2, &["feed", "pass", "seen"], 4));
}

#[test]
fn ackers_that_move_keep_their_trees_until_these_have_ended() {
    (400..=410).for_each(|seed| run(seed, 1, &["__acker"], 4));
    (500..=506).for_each(|seed| run(seed, 2, &["__acker", "feed", "pass", "seen"], 4));
}

#[test]
fn trees_end_where_they_began_whoever_skipped_an_assignment() {
    // A spout, or its ledger, went and came back, and some loop heard of the last of it alone.
    [10_060, 10_100, 10_118, 10_159, 10_181, 10_197, 10_466].into_iter().for_each(run_all);
}

/// Everything moves.
fn run_all(seed: u64) {
    run(seed, 1 + seed as usize % 2, &["__acker", "feed", "pass", "seen"], 1 + seed as usize % 8);
}

#[test]
fn held_frames_stop_nobody_and_at_the_bound_their_trees_fail() {
    for seed in 700..=703 {
        let mut all = Cluster::with_outbox(seed, 1, Duration::from_secs(30), "64KiB");
        all.emit(100);
        all.until("tuples flow", |all| all.ended());
        // Every pass task goes elsewhere, and nobody but the spouts' worker knows.
        let mut places = all.assignments[0].clone();
        let passes = all.layout.component("pass").unwrap().executors.clone();
        passes.iter().for_each(|id| {
            let (worker, on_loop) = places[id];
            places.insert(*id, ((worker + 1) % WORKERS, on_loop));
        });
        all.assignments.push(places);
        all.adopt(0);
        all.emit(4000);
        all.until("the spouts go on", |all| all.world.with(|d| d.next.values().sum::<u64>() == d.end * u64::from(FEEDS)));
        // What failed is told in the turn after.
        all.turns(1000);
        let failed = all.world.with(|d| {
            assert!(d.failed.values().all(|why| why.text.contains("executor.outbox.bytes = 65536")), "{:?}", d.failed.values().next());
            d.failed.len() as u64
        });
        assert!(failed > 0, "seed {seed}: more than can be held");
        (1..WORKERS).for_each(|who| all.adopt(who));
        all.until("the others arrive", |all| all.ended() && all.settled());
        all.check_order();
        all.world.with(|d| {
            let each = d.arrived.values().all(|n| *n == 1);
            assert!(each && d.arrived.len() as u64 + failed == d.end * u64::from(FEEDS), "seed {seed}: what was held arrives, once");
            assert_eq!(d.failed.len() as u64, failed, "seed {seed}");
        });
        let spouts = all.workers[0].as_ref().unwrap().engine.shared.executors();
        let counted: u64 = spouts.iter().filter(|e| e.component.as_str() == "feed").map(|e| e.failed.load(Ordering::Relaxed)).sum();
        assert_eq!(counted, failed, "seed {seed}: counted");
    }
}

#[test]
#[ignore = "takes minutes"]
fn many_more_seeds() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |n| n.parse().unwrap());
    let (first, n) = (number("SEED", 10_000), number("SEEDS", 200));
    for seed in first..first + n {
        run_all(seed);
        run(seed, 1 + seed as usize % 3, &["pass", "seen"], 4);
        lose(seed);
    }
}

#[test]
fn a_worker_lost_in_the_middle_of_a_move_costs_what_was_in_it_and_nothing_twice() {
    (600..=615).for_each(lose);
}

fn lose(seed: u64) {
    let mut all = Cluster::new(seed, 1 + seed as usize % 2, Duration::from_secs(2));
    all.world.with(|d| d.lossy = true);
    all.emit(300);
    let turns = all.order.next(2000);
    all.turns(turns);
    for _ in 0..3 {
        all.rebalance(&["pass", "seen"], WORKERS);
        all.emit(100);
        let dead = 1 + all.order.next(WORKERS - 1);
        for who in 0..WORKERS {
            all.adopt(who);
            let pause = [0, 10, 300][all.order.next(3)];
            all.turns(pause);
        }
        all.lose(dead);
        let pause = [0, 1000, 5000][all.order.next(3)];
        all.turns(pause);
        all.come_back(dead);
    }
    all.emit(200);
    all.until("all trees end", |all| all.ended() && all.settled());
    all.check_order();
    all.world.with(|d| {
        assert!(d.arrived.values().all(|n| *n == 1), "seed {seed}: each once at most");
        let acked = d.acked.iter().filter(|id| !d.arrived.contains_key(&((**id >> 32) as u32, **id & 0xFFFF_FFFF))).count();
        assert_eq!(acked, 0, "seed {seed}: acked, and not seen");
    });
    // Nothing is left of it all, once the bits of the dead are forgotten.
    for _ in 0..3 {
        all.clock.advance(Duration::from_secs(1));
        all.turns(1000);
    }
    let failed = all.world.with(|d| d.failed.len());
    all.emit(100);
    all.until("all are acked", |all| all.ended());
    assert_eq!(all.world.with(|d| d.failed.len()), failed, "seed {seed}");
}
