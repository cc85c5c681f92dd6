//! Three workers of four loops each, whose loops share one link per other worker, stepped by hand on one thread in an order chosen by seed: what
//! is emitted arrives once, in order per path, trees complete, and when a link is cut, trees that had nothing to do with it do not fail.
//!
//! As `many_loops.rs`, but for the links.

#![allow(missing_docs, reason = "tuples of a test")]

use saetta::prelude::*;
use saetta_engine::{Command, Engine, EnginePlan, Links, Options, PlannedExecutor, Program, RemoteExecutor, Share, TreeFail, worker_bit};
use saetta_model::config::{Config, Owner, Source};
use saetta_model::parallelism::Layout;
use saetta_transport::{Choice, Connection, Peer, Road};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const WORKERS: usize = 3;
const LOOPS: usize = 4;
/// Executors of each component: one on each loop there is.
const WIDE: usize = WORKERS * LOOPS;
/// Tuples of each spout.
const N: u64 = 300;
const RING_BYTES: u32 = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(60);

#[tuple]
pub struct Item {
    pub from: u32,
    pub n: u64,
    pub ballast: Vec<u8>,
}

/// What all components see.
#[derive(Default)]
struct World {
    /// Tuples that each spout task may emit.
    gate: AtomicU64,
    /// Of every so many tuples, one is larger than a ring of a lane, and goes over a link in pieces.
    large_every: u64,
    tracked: bool,
    /// By task of the spout: what came to the last bolt, in its order.
    seen: Mutex<BTreeMap<u32, Vec<u64>>>,
    /// By task of the spout: tasks that handled something of it.
    paths: Mutex<BTreeMap<u32, BTreeSet<u32>>>,
    acked: Mutex<BTreeSet<(u32, u64)>>,
    failed: Mutex<BTreeMap<(u32, u64), String>>,
}

struct Feed(u64, u32, Arc<World>);
impl Emits<Item> for Feed {}
impl Spout for Feed {
    const TRACKED: bool = true;
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        if self.0 == N {
            return Ok(Done);
        }
        if self.0 >= self.2.gate.load(Ordering::Relaxed) {
            return Ok(Idle);
        }
        self.1 = cx.task();
        let ballast = vec![7; if self.0 % self.2.large_every == 5 { 40_000 } else { 48 }];
        let item = Item { from: self.1, n: self.0, ballast };
        if self.2.tracked {
            cx.emit_tracked(self.0, &item)
        } else {
            cx.emit(&item)
        }
        self.0 += 1;
        Ok(Busy)
    }
    fn ack(&mut self, id: u64) {
        assert!(self.2.acked.lock().unwrap().insert((self.1, id)), "{id} of task {} is acked twice", self.1);
    }
    fn fail(&mut self, id: u64, why: &TreeFail) {
        assert!(self.2.failed.lock().unwrap().insert((self.1, id), why.to_string()).is_none(), "{id} of task {} fails twice", self.1);
    }
}

struct Pass(Arc<World>);
impl Bolt for Pass {}
impl Emits<Item> for Pass {}
impl Handle<Item> for Pass {
    fn on(&mut self, t: &ArchivedItem, cx: &mut Cx<'_, Self>) -> Outcome {
        self.0.paths.lock().unwrap().entry(t.from()).or_default().insert(cx.task());
        cx.emit(&Item { from: t.from(), n: t.n(), ballast: t.ballast().to_vec() });
        Ok(())
    }
}

struct Last(Arc<World>);
impl Bolt for Last {}
impl Handle<Item> for Last {
    fn on(&mut self, t: &ArchivedItem, cx: &mut Cx<'_, Self>) -> Outcome {
        self.0.paths.lock().unwrap().entry(t.from()).or_default().insert(cx.task());
        self.0.seen.lock().unwrap().entry(t.from()).or_default().push(t.n());
        Ok(())
    }
}

/// One path for each spout task, so what it emits comes in order.
fn topology(world: &Arc<World>) -> Program {
    let (feed, pass, last) = (world.clone(), world.clone(), world.clone());
    let mut t = Topology::new();
    let items = t.spout("feed", move || Feed(0, 0, feed.clone())).executors(WIDE as u32).stream::<Item>();
    let passed = t.bolt("pass", move || Pass(pass.clone())).input(&items, by!(Item.from)).executors(WIDE as u32).stream::<Item>();
    let _ = t.bolt("seen", move || Last(last.clone())).input(&passed, by!(Item.from)).executors(WIDE as u32);
    t.build().unwrap()
}

fn placement(worker: usize) -> u64 {
    100 + worker as u64
}

/// The loop of a worker that holds its link with another.
fn owner(worker: usize, other: usize) -> usize {
    (worker + 2 * other) % LOOPS
}

struct Worker {
    engine: Engine,
    links: Vec<Links>,
}

struct Cluster {
    world: Arc<World>,
    workers: Vec<Worker>,
    wires: BTreeMap<(usize, usize), Vec<OwnedFd>>,
    order: u64,
    /// Worker of each task.
    worker_of: BTreeMap<u32, usize>,
}

impl Cluster {
    /// Executor i of a component is on loop i div 3 of worker i mod 3. Acker executors: one per worker, or none.
    fn new(world: World, ackers: usize, seed: u64) -> Self {
        let mut config = Config::new(Owner::Topology);
        let ackers = ackers.to_string();
        for (key, value) in [("topology.acker.executors", ackers.as_str()), ("executor.inbox.bytes", "4KiB"), ("lane.ring.bytes", "4KiB")] {
            config.set(key, value, Source::Set).unwrap();
        }
        let world = Arc::new(world);
        let program = topology(&world);
        let layout = Layout::new(&program.spec, &config).unwrap();
        let each = layout.components.iter().flat_map(|c| c.executors.iter().enumerate());
        let places: Vec<_> = each.map(|(i, id)| (*id, i % WORKERS, i / WORKERS % LOOPS)).collect();
        let plan = |worker: usize| EnginePlan {
            layout: layout.clone(),
            cores: (0..LOOPS as u32).collect(),
            executors: places.iter().filter(|p| p.1 == worker).map(|(id, _, l)| PlannedExecutor { id: *id, on_loop: *l }).collect(),
            remotes: places
                .iter()
                .filter(|p| p.1 != worker)
                .map(|(id, w, l)| RemoteExecutor { id: *id, placement: placement(*w), on_loop: *l as u32 })
                .collect(),
            options: Options { pinned: false, worker_bit: worker_bit(worker as u32, 1), ..Options::from_config(&config).unwrap() },
        };
        let worker = |w: usize| Worker {
            engine: Engine::build(&program, &plan(w), true).unwrap(),
            links: (0..LOOPS).map(|_| Links::open(Choice::Auto).unwrap()).collect(),
        };
        let worker_of = places.iter().flat_map(|(id, w, _)| id.tasks().map(move |task| (task, *w))).collect();
        let mut cluster = Cluster { world, workers: (0..WORKERS).map(worker).collect(), wires: BTreeMap::new(), order: seed, worker_of };
        cluster.share();
        cluster.say(|| Command::Activate(true));
        cluster
    }

    fn say(&self, command: impl Fn() -> Command) {
        self.workers.iter().flat_map(|w| w.engine.handles()).for_each(|handle| handle.send(command()));
    }

    /// From now on links are shared.
    fn share(&mut self) {
        for own in 0..WORKERS {
            let share = |other: usize| Share {
                placement: placement(other),
                local_loop: owner(own, other) as u32,
                remote_loop: owner(other, own) as u32,
            };
            let shares: Vec<Share> = (0..WORKERS).filter(|other| *other != own).map(share).collect();
            self.workers[own].engine.handles().iter().for_each(|handle| handle.send(Command::Shares(shares.clone())));
        }
        (0..WORKERS).for_each(|a| (a + 1..WORKERS).for_each(|b| self.join(a, b)));
    }

    /// The link of two workers.
    fn join(&mut self, a: usize, b: usize) {
        self.join_loops((a, owner(a, b)), (b, owner(b, a)));
    }

    fn join_loops(&mut self, (a, loop_a): (usize, usize), (b, loop_b): (usize, usize)) {
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut wires = Vec::new();
        for road in [Road::Control, Road::Data] {
            let dialled = TcpStream::connect(door.local_addr().unwrap()).unwrap();
            let (accepted, _) = door.accept().unwrap();
            wires.push(dialled.try_clone().unwrap().into());
            for ((to, local_loop), (other, remote_loop), socket) in
                [((a, loop_a), (b, loop_b), dialled), ((b, loop_b), (a, loop_a), accepted)]
            {
                let peer = Peer {
                    placement: placement(other),
                    start: 1,
                    index: other as u32,
                    local_loop: local_loop as u32,
                    remote_loop: remote_loop as u32,
                    local_ring_bytes: RING_BYTES,
                    remote_ring_bytes: RING_BYTES,
                    road,
                };
                let connection = Connection::Socket(OwnedFd::from(socket));
                self.workers[to].engine.handles()[local_loop].send(Command::AddLink { connection, peer });
            }
        }
        self.wires.insert((a, b), wires);
    }

    fn cut(&mut self, a: usize, b: usize) {
        for wire in self.wires.remove(&(a, b)).expect("joined") {
            rustix::net::connect_unspec(&wire).unwrap();
        }
    }

    /// Loops do not wait for each other in any order: xorshift.
    fn any(&mut self, n: usize) -> usize {
        self.order ^= self.order << 13;
        self.order ^= self.order >> 7;
        self.order ^= self.order << 17;
        (self.order % n as u64) as usize
    }

    fn turn(&mut self, w: usize, l: usize) {
        let worker = &mut self.workers[w];
        worker.engine.loops[l].turn(&mut worker.links[l]);
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            let (w, l) = (self.any(WORKERS), self.any(LOOPS));
            self.turn(w, l);
            assert!(
                start.elapsed() < PATIENCE,
                "not {what}: acked {}, failed {:?}, seen {:?}",
                self.world.acked.lock().unwrap().len(),
                self.world.failed.lock().unwrap(),
                self.world.seen.lock().unwrap().values().map(Vec::len).collect::<Vec<_>>()
            );
        }
    }

    /// Workers that tuples of a spout task are in.
    fn path(&self, from: u32) -> BTreeSet<usize> {
        let paths = self.world.paths.lock().unwrap();
        paths[&from].iter().chain([&from]).map(|task| self.worker_of[task]).collect()
    }

    fn ended(&self) -> bool {
        self.workers.iter().all(|w| w.engine.shared.ended())
    }

    fn links(&self) -> usize {
        self.workers.iter().flat_map(|w| &w.links).filter_map(Links::carrier).map(|c| c.links().count()).sum()
    }

    fn sum(&self, count: impl Fn(&saetta_engine::LoopStats) -> u64) -> u64 {
        self.workers.iter().flat_map(|w| &w.engine.shared.loops).map(|l| count(l)).sum()
    }
}

fn world(large_every: u64, tracked: bool) -> World {
    World { gate: AtomicU64::new(N), large_every, tracked, ..World::default() }
}

#[test]
fn over_shared_links_everything_comes_once_and_in_order() {
    for seed in 1..=5 {
        let mut cluster = Cluster::new(world(50, false), 0, seed);
        cluster.until("ended", Cluster::ended);
        assert_eq!(cluster.links(), WORKERS * (WORKERS - 1) * 2, "two connections for each two workers, at either end");
        let seen = cluster.world.seen.lock().unwrap();
        assert_eq!(seen.len(), WIDE);
        seen.iter().for_each(|(from, numbers)| assert!(numbers.iter().copied().eq(0..N), "of task {from}: {numbers:?}"));
        assert!(cluster.sum(|l| l.relayed_bytes.load(Ordering::Relaxed)) > 0);
        assert_eq!(cluster.sum(|l| l.discarded.load(Ordering::Relaxed)), 0);
    }
}

#[test]
fn over_shared_links_every_tree_completes_wherever_its_ledger_is() {
    // With one acker, owners of two workers have theirs in the third.
    for (ackers, seed) in [(WORKERS, 1), (WORKERS, 2), (1, 3)] {
        let mut cluster = Cluster::new(world(50, true), ackers, seed);
        cluster.until("all acked", |c| c.world.acked.lock().unwrap().len() as u64 == N * WIDE as u64);
        cluster.until("ended", Cluster::ended);
        assert_eq!(*cluster.world.failed.lock().unwrap(), BTreeMap::new());
        let seen = cluster.world.seen.lock().unwrap();
        seen.iter().for_each(|(from, numbers)| assert!(numbers.iter().copied().eq(0..N), "of task {from}: {numbers:?}"));
    }
}

#[test]
fn a_shared_link_that_is_cut_fails_trees_that_were_on_it_and_no_others_and_the_next_one_goes_on() {
    let mut failed_in_all = 0;
    for seed in 1..=8 {
        let mut cluster = Cluster::new(world(50, true), WORKERS, seed);
        cluster.world.gate.store(N / 3, Ordering::Relaxed);
        cluster.until("under way", |c| c.world.acked.lock().unwrap().len() as u64 > N / 6 * WIDE as u64);
        // Much is written by all loops of one worker that the other does not read.
        cluster.world.gate.store(N / 2, Ordering::Relaxed);
        (0..4 * LOOPS).for_each(|turn| cluster.turn(0, turn % LOOPS));
        cluster.cut(0, 1);
        let ends = |c: &Cluster, w: usize| c.workers[w].engine.shared.link_ends.len() == 2;
        cluster.until("the end is seen", |c| ends(c, 0) && ends(c, 1));
        cluster.join(0, 1);
        // First the loops that hold it, then those that are told: until then a ledger takes the other worker for lost.
        (0..3 * WIDE).for_each(|turn| cluster.turn(turn % WORKERS, turn / WORKERS % LOOPS));
        cluster.world.gate.store(N, Ordering::Relaxed);
        let told = |c: &Cluster| c.world.acked.lock().unwrap().len() + c.world.failed.lock().unwrap().len();
        cluster.until("all told", |c| told(c) as u64 == N * WIDE as u64);
        cluster.until("ended", Cluster::ended);

        let (acked, failed) = (cluster.world.acked.lock().unwrap(), cluster.world.failed.lock().unwrap());
        failed_in_all += failed.len();
        let seen = cluster.world.seen.lock().unwrap();
        for (from, numbers) in seen.iter() {
            assert!(numbers.is_sorted_by(|a, b| a < b), "order of task {from}: {numbers:?}");
        }
        for (from, n) in acked.iter() {
            assert!(seen[from].contains(n), "{n} of task {from} is acked and was not seen");
            assert!(!failed.contains_key(&(*from, *n)));
        }
        // What began after the new link was there is not touched by the end of the old one.
        let late: Vec<_> = failed.iter().filter(|((_, n), _)| *n >= N / 2).collect();
        assert!(late.is_empty(), "{late:?}");
        assert!(failed.values().all(|why| why == "link lost"), "{failed:?}");
        // Trees that were not in both workers had nothing on the link, nor acks of them.
        for (from, n) in failed.keys() {
            let path = cluster.path(*from);
            assert!(path.contains(&0) && path.contains(&1), "{n} of task {from}, whose tuples are in workers {path:?}");
        }
    }
    assert!(failed_in_all > 0, "nothing was on the link when it was cut");
}

#[test]
fn an_assignment_that_shares_links_or_no_longer_does_loses_no_tree_without_a_word() {
    let mut cluster = Cluster::new(world(50, true), WORKERS, 11);
    let told = |c: &Cluster| (c.world.acked.lock().unwrap().len() + c.world.failed.lock().unwrap().len()) as u64;
    cluster.world.gate.store(N / 3, Ordering::Relaxed);
    cluster.until("under way", |c| told(c) > N / 6 * WIDE as u64);
    // Each two loops have a link of their own from now on.
    cluster.say(|| Command::Shares(Vec::new()));
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        (0..LOOPS).for_each(|x| (0..LOOPS).for_each(|y| cluster.join_loops((a, x), (b, y))));
    }
    cluster.until("told of what was shared", |c| told(c) == N / 3 * WIDE as u64);
    let relayed = |c: &mut Cluster| {
        c.workers.iter_mut().flat_map(|w| &mut w.engine.loops).for_each(saetta_engine::CoreLoop::publish);
        c.sum(|l| l.relayed_bytes.load(Ordering::Relaxed))
    };
    let before = relayed(&mut cluster);
    let failed = cluster.world.failed.lock().unwrap().len();
    cluster.world.gate.store(2 * N / 3, Ordering::Relaxed);
    cluster.until("told of what was not", |c| told(c) == 2 * N / 3 * WIDE as u64);
    assert_eq!((relayed(&mut cluster), cluster.world.failed.lock().unwrap().len()), (before, failed));
    cluster.world.gate.store(N, Ordering::Relaxed);
    cluster.share();
    cluster.until("told of all", |c| told(c) == N * WIDE as u64);
    cluster.until("ended", Cluster::ended);
    assert!(relayed(&mut cluster) > before);
    assert_eq!(cluster.links(), WORKERS * (WORKERS - 1) * 2);
}
