//! Sixteen loops of one worker, and eight workers of two loops each, stepped by hand on one thread in an order chosen by seed: what is
//! emitted arrives once, in order per path, and all ends.
//!
//! The workers are whole engines in this process, each pair of their loops joined by a real link over loopback, as a handshake would
//! have left it.

#![allow(missing_docs, reason = "tuples of a test")]

use saetta::Stepped;
use saetta::prelude::*;
use saetta_engine::{Command, Engine, EnginePlan, Links, Options, PlannedExecutor, Program, RemoteExecutor};
use saetta_model::config::{Config, Owner, Source};
use saetta_model::parallelism::Layout;
use saetta_transport::{Choice, Connection, Peer, Road};
use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Executors of each component.
const WIDE: u32 = 16;
/// Tuples of each spout.
const N: u64 = 200;
/// Longest time for a run over links.
const PATIENCE: Duration = Duration::from_secs(60);

#[tuple]
pub struct Item {
    pub from: u32,
    pub n: u64,
    /// Makes the smallest windows small.
    pub ballast: [u8; 48],
}

struct Feed(u64);
impl Emits<Item> for Feed {}
impl Spout for Feed {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        if self.0 == N {
            return Ok(Done);
        }
        let from = cx.task();
        cx.emit(&Item { from, n: self.0, ballast: [1; 48] });
        self.0 += 1;
        Ok(Busy)
    }
}

struct Pass;
impl Bolt for Pass {}
impl Emits<Item> for Pass {}
impl Handle<Item> for Pass {
    fn on(&mut self, t: &ArchivedItem, cx: &mut Cx<'_, Self>) -> Outcome {
        cx.emit(&Item { from: t.from(), n: t.n(), ballast: [2; 48] });
        Ok(())
    }
}

/// By task of the spout: what came, in its order.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<u32, Vec<u64>>>>);
impl Bolt for Seen {}
impl Handle<Item> for Seen {
    fn on(&mut self, t: &ArchivedItem, _: &mut Cx<'_, Self>) -> Outcome {
        self.0.lock().unwrap().entry(t.from()).or_default().push(t.n());
        Ok(())
    }
}

impl Seen {
    /// Every number of every spout came once. `by!(from)` before each bolt makes one path per spout, so they came in order.
    fn check(&self) {
        let seen = self.0.lock().unwrap();
        assert_eq!(seen.len() as u32, WIDE);
        for (from, numbers) in seen.iter() {
            assert!(numbers.iter().copied().eq(0..N), "of task {from}: {numbers:?}");
        }
    }
}

fn topology(seen: &Seen) -> Program {
    let mut t = Topology::new();
    let items = t.spout("feed", || Feed(0)).executors(WIDE).stream::<Item>();
    let passed = t.bolt("pass", || Pass).input(&items, by!(Item.from)).executors(WIDE).stream::<Item>();
    let last = seen.clone();
    let _ = t.bolt("seen", move || last.clone()).input(&passed, by!(Item.from)).executors(WIDE);
    t.build().unwrap()
}

fn config() -> Config {
    let mut config = Config::new(Owner::Topology);
    for (key, value) in [("topology.acker.executors", "0"), ("executor.inbox.bytes", "4KiB"), ("lane.ring.bytes", "4KiB")] {
        config.set(key, value, Source::Set).unwrap();
    }
    config
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

#[test]
fn sixteen_loops_in_any_order_bring_everything_once() {
    for seed in 1..=20 {
        let seen = Seen::default();
        // A component's executors stand three loops further than those it reads from.
        let place = |component: &str, i: usize| i + 3 * ["feed", "pass", "seen"].iter().position(|c| *c == component).unwrap();
        let mut engine = Stepped::new(&topology(&seen), &config(), WIDE as usize, &place).unwrap();
        let mut order = Order(seed);
        for cycle in 0.. {
            if engine.ended() {
                break;
            }
            assert!(cycle < 1_000_000, "seed {seed} is stuck");
            engine.step(order.next(WIDE as usize));
        }
        seen.check();
    }
}

const WORKERS: usize = 8;
const LOOPS: usize = 2;
/// Of a link; small, so that much is under way.
const RING_BYTES: u32 = 64 << 10;

/// A worker and the links of its loops.
struct Worker {
    engine: Engine,
    links: Vec<Links>,
}

fn placement(worker: usize) -> u64 {
    100 + worker as u64
}

/// Executor i of a component is in worker i mod 8, and in loop 0 or 1 of it by turns.
fn workers(program: &Program, config: &Config) -> Vec<Worker> {
    let layout = Layout::new(&program.spec, config).unwrap();
    let places: Vec<_> = layout
        .components
        .iter()
        .flat_map(|c| c.executors.iter().enumerate().map(|(i, id)| (*id, i % WORKERS, i / WORKERS % LOOPS)))
        .collect();
    let own = |worker: usize| {
        let here = places.iter().filter(|(_, w, _)| *w == worker);
        let there = places.iter().filter(|(_, w, _)| *w != worker);
        EnginePlan {
            layout: layout.clone(),
            cores: (0..LOOPS as u32).collect(),
            executors: here.map(|(id, _, l)| PlannedExecutor { id: *id, on_loop: *l }).collect(),
            remotes: there.map(|(id, w, l)| RemoteExecutor { id: *id, placement: placement(*w), on_loop: *l as u32 }).collect(),
            options: Options { pinned: false, ..Options::from_config(config).unwrap() },
        }
    };
    (0..WORKERS)
        .map(|w| Worker {
            engine: Engine::build(program, &own(w), true).unwrap(),
            links: (0..LOOPS).map(|_| Links::open(Choice::Auto).unwrap()).collect(),
        })
        .collect()
}

/// Joins each pair of loops of different workers.
fn join(workers: &[Worker]) {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let pairs = (0..WORKERS).flat_map(|a| (a + 1..WORKERS).map(move |b| (a, b)));
    let loops = pairs.flat_map(|ab| (0..LOOPS).flat_map(move |x| (0..LOOPS).map(move |y| (ab, (x, y)))));
    for (((a, b), (x, y)), road) in loops.flat_map(|pair| [(pair, Road::Data), (pair, Road::Control)]) {
        let dialled = TcpStream::connect(door.local_addr().unwrap()).unwrap();
        let (accepted, _) = door.accept().unwrap();
        for (to, own_loop, other, other_loop, socket) in [(a, x, b, y, dialled), (b, y, a, x, accepted)] {
            let peer = Peer {
                placement: placement(other),
                start: 1,
                index: other as u32,
                local_loop: own_loop as u32,
                remote_loop: other_loop as u32,
                local_ring_bytes: RING_BYTES,
                remote_ring_bytes: RING_BYTES,
                road,
            };
            workers[to].engine.handles()[own_loop].send(Command::AddLink { connection: Connection::Socket(OwnedFd::from(socket)), peer });
        }
    }
}

#[test]
fn eight_workers_of_two_loops_over_real_links_bring_everything_once() {
    let seen = Seen::default();
    let mut workers = workers(&topology(&seen), &config());
    join(&workers);
    for handle in workers.iter().flat_map(|w| w.engine.handles()) {
        handle.send(Command::Activate(true));
    }
    let (mut order, start) = (Order(7), Instant::now());
    while !workers.iter().all(|w| w.engine.shared.ended()) {
        let (w, l) = (order.next(WORKERS), order.next(LOOPS));
        let worker = &mut workers[w];
        worker.engine.loops[l].turn(&mut worker.links[l]);
        assert!(start.elapsed() < PATIENCE, "not ended: {:?}", seen.0.lock().unwrap().values().map(Vec::len).collect::<Vec<_>>());
    }
    seen.check();
}
