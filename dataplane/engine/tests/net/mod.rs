//! Workers of one topology, one core loop each, stepped by hand on one thread under a clock moved by hand, joined by links that can be cut.
//!
//! Before: a test says which components there are and where. After: it knows which tuple was handled where, and which tree ended how.
#![allow(dead_code, reason = "each test file uses a part of it")]

use saetta_engine::{
    Asked, Clock, Command, Component, Cx, Engine, EnginePlan, Links, LoopStats, Options, PlannedExecutor, Program, ProgramComponent,
    Progress, RawAnchor, Reason, RemoteExecutor, TreeFail, worker_bit,
};
use saetta_model::Name;
use saetta_model::config::{Config, Owner, Source};
use saetta_model::parallelism::Layout;
use saetta_model::topology::{ComponentKind, ComponentSpec, FieldSpec, Format, Grouping, InputSpec, Resources, StreamSpec, TopologySpec};
use saetta_transport::sim::{self, Faults, Wires};
use saetta_transport::{Choice, Connection, Peer, Road};
use saetta_tuple::rkyv::rancor::Failure;
use saetta_tuple::{rkyv, tuple};
use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longest wait for anything, by the machine's clock.
const PATIENCE: Duration = Duration::from_secs(30);
/// The clock moves by this much each time all loops have had a turn.
pub(crate) const STEP: Duration = Duration::from_micros(200);

/// What travels on a component's first stream.
#[tuple]
pub struct Item {
    /// Message id of its tree.
    id: u64,
    /// Makes it large.
    payload: Vec<u8>,
}

/// On its second one.
#[tuple]
pub struct Late {
    /// As `Item`'s.
    id: u64,
}

/// A component: where its executors are, by worker, and what it reads.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) id: &'static str,
    pub(crate) workers: Vec<usize>,
    /// Components whose first stream it reads.
    pub(crate) items: Vec<&'static str>,
    /// Components whose second stream it reads.
    pub(crate) lates: Vec<&'static str>,
}

pub(crate) fn part(id: &'static str, workers: &[usize], items: &[&'static str], lates: &[&'static str]) -> Part {
    Part { id, workers: workers.to_vec(), items: items.to_vec(), lates: lates.to_vec() }
}

/// What the components of all workers see and are told.
#[derive(Default)]
pub(crate) struct World {
    /// Trees spouts may still begin.
    pub(crate) gate: AtomicU64,
    pub(crate) begun: AtomicU64,
    /// Trees of spouts that died before they heard of their end.
    pub(crate) orphans: Mutex<BTreeSet<u64>>,
    /// By tree: the worker whose spout began it, and its start number.
    pub(crate) owners: Mutex<BTreeMap<u64, (usize, u64)>>,
    pub(crate) payload: AtomicU64,
    /// How often a tuple of this tree was handled by this component.
    pub(crate) seen: Mutex<BTreeMap<(&'static str, u64), u32>>,
    pub(crate) acked: Mutex<BTreeSet<u64>>,
    pub(crate) failed: Mutex<BTreeMap<u64, TreeFail>>,
    /// Components that defer what comes,
    pub(crate) keep: Mutex<BTreeSet<&'static str>>,
    /// and what they have deferred.
    pub(crate) kept: Mutex<Vec<(&'static str, u64, RawAnchor)>>,
}

impl World {
    pub(crate) fn keep(&self, id: &'static str) {
        self.keep.lock().unwrap().insert(id);
    }
    /// Acks what this component keeps, and it keeps nothing any more.
    pub(crate) fn release(&self, id: &'static str) {
        self.keep.lock().unwrap().remove(id);
        let mut kept = self.kept.lock().unwrap();
        let all = std::mem::take(&mut *kept);
        for (of, tree, anchor) in all {
            if of == id { anchor.ack() } else { kept.push((of, tree, anchor)) }
        }
    }
    pub(crate) fn seen(&self, id: &'static str) -> usize {
        self.seen.lock().unwrap().keys().filter(|(of, _)| *of == id).count()
    }
    pub(crate) fn acked(&self) -> usize {
        self.acked.lock().unwrap().len()
    }
    /// Message ids of trees that failed so.
    pub(crate) fn failed(&self, reason: Reason) -> Vec<u64> {
        self.failed.lock().unwrap().iter().filter(|(_, why)| why.reason == reason).map(|(id, _)| *id).collect()
    }
    pub(crate) fn ended(&self) -> usize {
        self.acked() + self.failed.lock().unwrap().len()
    }
}

struct Spout(Arc<World>, (usize, u64));

impl Component for Spout {
    fn ask(&mut self, calls: u32, cx: &mut Cx<'_>) -> Asked {
        cx.ask(calls, |cx| {
            if self.0.gate.load(Ordering::Relaxed) == 0 {
                return Ok(Progress::Idle);
            }
            self.0.gate.fetch_sub(1, Ordering::Relaxed);
            let id = self.0.begun.fetch_add(1, Ordering::Relaxed);
            self.0.owners.lock().unwrap().insert(id, self.1);
            let payload = vec![7; self.0.payload.load(Ordering::Relaxed) as usize];
            cx.emit_tracked(Some(0), id, &Item { id, payload });
            Ok(Progress::Busy)
        })
    }
    fn acked(&mut self, ids: &[u64]) {
        let mut acked = self.0.acked.lock().unwrap();
        ids.iter().for_each(|id| assert!(acked.insert(*id), "{id} is acked twice"));
    }
    fn failed(&mut self, id: u64, why: &TreeFail) {
        assert!(self.0.failed.lock().unwrap().insert(id, why.clone()).is_none(), "{id} fails twice");
    }
}

/// Hands each tuple on: first on its first stream, then on its second.
struct Bolt {
    id: &'static str,
    world: Arc<World>,
}

impl Component for Bolt {
    fn handle(&mut self, stream: u16, window: &[u8], cx: &mut Cx<'_>) {
        let keep = self.world.keep.lock().unwrap().contains(self.id);
        while let Some(frame) = cx.next_frame(stream, window) {
            // Streams are numbered by component, `Item` before `Late`.
            let (id, payload) = if stream.is_multiple_of(2) {
                let item = rkyv::access::<ArchivedItem, Failure>(frame.archive()).expect("checked at the door");
                (item.id.to_native(), item.payload.to_vec())
            } else {
                (rkyv::access::<ArchivedLate, Failure>(frame.archive()).expect("checked at the door").id.to_native(), vec![])
            };
            *self.world.seen.lock().unwrap().entry((self.id, id)).or_insert(0) += 1;
            cx.emit(0, &Item { id, payload });
            cx.emit(1, &Late { id });
            if keep && let Some(anchor) = cx.defer() {
                self.world.kept.lock().unwrap().push((self.id, id, anchor));
            }
        }
    }
}

/// What a test can cut.
enum Wire {
    Socket(OwnedFd),
    Simulated(Wires),
}

/// One worker.
pub(crate) struct Side {
    pub(crate) engine: Engine,
    pub(crate) links: Links,
}

/// See the head of this file. Placement ids are 10, 20, .. and indices 0, 1, ..
pub(crate) struct Cluster {
    parts: Vec<Part>,
    pub(crate) world: Arc<World>,
    pub(crate) clock: Clock,
    timeout: Duration,
    ackers: Vec<usize>,
    pub(crate) sides: Vec<Option<Side>>,
    pub(crate) starts: Vec<u64>,
    wires: BTreeMap<(usize, usize), Vec<Wire>>,
    /// Links are simulated: bytes take so long, one way.
    pub(crate) delay: Option<Duration>,
    /// Highest start of each that a worker was linked with.
    known: BTreeMap<(usize, usize), u64>,
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn placement(worker: usize) -> u64 {
    10 * (1 + worker as u64)
}

impl Cluster {
    /// Parts sorted by id; those that read nothing are spouts. Acker executors on these workers.
    pub(crate) fn new(parts: Vec<Part>, ackers: &[usize], n_workers: usize, timeout: Duration) -> Self {
        let world = Arc::new(World::default());
        world.payload.store(8, Ordering::Relaxed);
        let mut cluster = Cluster {
            parts,
            world,
            clock: Clock::manual(),
            timeout,
            ackers: ackers.to_vec(),
            sides: (0..n_workers).map(|_| None).collect(),
            starts: vec![0; n_workers],
            wires: BTreeMap::new(),
            delay: None,
            known: BTreeMap::new(),
        };
        (0..n_workers).for_each(|worker| cluster.start(worker));
        cluster
    }

    fn spec(&self) -> TopologySpec {
        let stream =
            |name_of: &str| StreamSpec { name: name(name_of), schema: 1, fields: vec![FieldSpec { name: "id".into(), ty: "u64".into() }] };
        let input = |from: &&str, stream| InputSpec { from: name(from), stream: name(stream), grouping: Grouping::Shuffle };
        let components = self.parts.iter().map(|part| {
            let is_spout = part.items.is_empty() && part.lates.is_empty();
            let inputs = part.items.iter().map(|from| input(from, "Item")).chain(part.lates.iter().map(|from| input(from, "Late")));
            ComponentSpec {
                id: name(part.id),
                kind: if is_spout { ComponentKind::Spout } else { ComponentKind::Bolt },
                executors: part.workers.len() as u32,
                tasks: None,
                resources: Resources::default(),
                outputs: vec![stream("Item"), stream("Late")],
                inputs: inputs.collect(),
                config: Default::default(),
                tracked: is_spout,
            }
        });
        TopologySpec {
            saetta: "0.1.0".into(),
            format: Format { archive: "rkyv 0.8".into(), endian: "little".into(), unaligned: true, pointer_bits: 32 },
            components: components.collect(),
        }
    }

    fn config(&self) -> Config {
        let mut config = Config::new(Owner::Topology);
        config.set("topology.acker.executors", &self.ackers.len().to_string(), Source::Code).unwrap();
        config
    }

    /// Executors of a worker, and those of others.
    fn places(&self, layout: &Layout, worker: usize) -> (Vec<PlannedExecutor>, Vec<RemoteExecutor>) {
        let (mut own, mut remotes) = (Vec::new(), Vec::new());
        for component in &layout.components {
            let workers = match self.parts.iter().find(|part| part.id == component.id.as_str()) {
                Some(part) => &part.workers,
                None => &self.ackers,
            };
            for (id, at) in component.executors.iter().zip(workers) {
                if *at == worker {
                    own.push(PlannedExecutor { id: *id, on_loop: 0 });
                } else {
                    remotes.push(RemoteExecutor { id: *id, placement: placement(*at), on_loop: 0 });
                }
            }
        }
        own.sort_by_key(|e| e.id);
        (own, remotes)
    }

    /// A worker is gone for good, and a new one takes its executors over: the others are told as their watchdogs would. Returns which.
    pub(crate) fn replace(&mut self, gone: usize) -> usize {
        self.kill(gone);
        let new = self.sides.len();
        self.sides.push(None);
        self.starts.push(0);
        let workers = self.parts.iter_mut().flat_map(|part| part.workers.iter_mut()).chain(self.ackers.iter_mut());
        workers.filter(|worker| **worker == gone).for_each(|worker| *worker = new);
        self.start(new);
        let layout = Layout::new(&self.spec(), &self.config()).unwrap();
        (0..new).for_each(|worker| self.say(worker, Command::Routes(self.places(&layout, worker).1)));
        self.declare_lost(gone, self.starts[gone]);
        (0..new).filter(|other| self.sides[*other].is_some()).collect::<Vec<_>>().into_iter().for_each(|other| self.join(other, new));
        new
    }

    /// Starts a worker, one start number higher than before.
    pub(crate) fn start(&mut self, worker: usize) {
        self.starts[worker] += 1;
        let spec = self.spec();
        let config = self.config();
        let layout = Layout::new(&spec, &config).unwrap();
        let (own, remotes) = self.places(&layout, worker);
        let checks: Vec<fn(&[u8]) -> bool> = vec![saetta_tuple::check::<Item>, saetta_tuple::check::<Late>];
        let components = self.parts.iter().map(|part| {
            let (id, world, owner) = (part.id, self.world.clone(), (worker, self.starts[worker]));
            let is_spout = part.items.is_empty() && part.lates.is_empty();
            ProgramComponent {
                dead_letters: None,
                factory: Arc::new(move || {
                    let world = world.clone();
                    if is_spout { Box::new(Spout(world, owner)) } else { Box::new(Bolt { id, world }) }
                }),
                tags: vec![TypeId::of::<Item>(), TypeId::of::<Late>()],
                checks: checks.clone(),
                choosers: vec![None; part.items.len() + part.lates.len()],
            }
        });
        let program = Program { components: components.collect(), config: config.pairs(), spec };
        let options = Options {
            pinned: false,
            inbox_bytes: 1 << 20,
            clock: self.clock.clone(),
            message_timeout_ns: self.timeout.as_nanos() as u64,
            worker_bit: worker_bit(worker as u32, self.starts[worker]),
            ..Options::from_config(&config).unwrap()
        };
        let plan = EnginePlan { layout, cores: vec![0], executors: own, remotes, options };
        let side = Side { engine: Engine::build(&program, &plan, true).unwrap(), links: Links::open(Choice::Auto).unwrap() };
        side.engine.handles()[0].send(Command::Activate(true));
        self.sides[worker] = Some(side);
    }

    pub(crate) fn say(&self, worker: usize, command: Command) {
        if let Some(side) = &self.sides[worker] {
            side.engine.handles()[0].send(command);
        }
    }

    /// Joins two workers by a new link, as a handshake would have.
    pub(crate) fn join(&mut self, one: usize, two: usize) {
        for road in [Road::Data, Road::Control] {
            self.join_road(one, two, road);
        }
    }

    fn join_road(&mut self, one: usize, two: usize, road: Road) {
        let (first, second, wire) = match self.delay {
            Some(delay) => {
                let faults = Faults { delay_ns: delay.as_nanos() as u64, ..Faults::default() };
                let (first, second, wires) = sim::pair(faults.clone(), faults);
                (Connection::Simulated(first), Connection::Simulated(second), Wire::Simulated(wires))
            }
            None => {
                let door = TcpListener::bind("127.0.0.1:0").unwrap();
                let dialled = TcpStream::connect(door.local_addr().unwrap()).unwrap();
                let (accepted, _) = door.accept().unwrap();
                let wire = Wire::Socket(dialled.try_clone().unwrap().into());
                (Connection::Socket(dialled.into()), Connection::Socket(accepted.into()), wire)
            }
        };
        self.wires.entry((one.min(two), one.max(two))).or_default().push(wire);
        for (to, other, connection) in [(one, two, first), (two, one, second)] {
            // As a watchdog that sees a later start.
            let start = self.starts[other];
            let known = self.known.insert((to, other), start).unwrap_or(start);
            for gone in known.max(start.saturating_sub(2))..start {
                self.say(to, Command::Lost { placement: placement(other), start: gone, index: other as u32 });
            }
            let peer = Peer {
                placement: placement(other),
                start,
                index: other as u32,
                local_loop: 0,
                remote_loop: 0,
                road,
                local_ring_bytes: 64 << 10,
                remote_ring_bytes: 64 << 10,
            };
            self.say(to, Command::AddLink { connection, peer });
        }
    }

    pub(crate) fn join_all(&mut self) {
        for one in 0..self.sides.len() {
            (one + 1..self.sides.len()).for_each(|two| self.join(one, two));
        }
    }

    /// Cuts the link of two workers: what they write from now on is lost, and over loopback what is on it as well.
    pub(crate) fn cut(&mut self, one: usize, two: usize) {
        for wire in self.wires.remove(&(one.min(two), one.max(two))).expect("joined") {
            match wire {
                Wire::Socket(fd) => drop(rustix::net::connect_unspec(&fd)),
                Wire::Simulated(wires) => {
                    wires.cut();
                    wires.change(|there| there.black_hole_at = None, |back| back.black_hole_at = None);
                }
            }
        }
    }

    /// From now on a simulated link takes what it is given, and nothing of it arrives.
    pub(crate) fn swallow(&mut self, one: usize, two: usize) {
        for wire in &self.wires[&(one.min(two), one.max(two))] {
            let Wire::Simulated(wires) = wire else { panic!("only a simulated link does that") };
            wires.change(|there| there.black_hole_at = Some(0), |back| back.black_hole_at = Some(0));
        }
    }

    pub(crate) fn is_joined(&self, one: usize, two: usize) -> bool {
        self.wires.contains_key(&(one.min(two), one.max(two)))
    }

    /// A worker dies, and its links with it.
    pub(crate) fn kill(&mut self, worker: usize) {
        let keys: Vec<_> = self.wires.keys().copied().filter(|(one, two)| *one == worker || *two == worker).collect();
        keys.into_iter().for_each(|(one, two)| self.cut(one, two));
        self.sides[worker] = None;
        self.known.retain(|(me, _), _| *me != worker);
        let (acked, failed) = (self.world.acked.lock().unwrap(), self.world.failed.lock().unwrap());
        let owners = self.world.owners.lock().unwrap();
        let open = owners.iter().filter(|(id, owner)| owner.0 == worker && !acked.contains(id) && !failed.contains_key(id));
        self.world.orphans.lock().unwrap().extend(open.map(|(id, _)| *id));
    }

    /// All others hear that this start of the worker is gone for good.
    pub(crate) fn declare_lost(&self, worker: usize, start: u64) {
        for other in (0..self.sides.len()).filter(|other| *other != worker) {
            self.say(other, Command::Lost { placement: placement(worker), start, index: worker as u32 });
        }
    }

    pub(crate) fn turn(&mut self) {
        self.clock.advance(STEP);
        self.sides.iter_mut().flatten().for_each(|side| {
            side.engine.loops[0].turn(&mut side.links);
        });
    }

    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            self.turn();
            if start.elapsed() > PATIENCE {
                let (acked, failed) = (self.world.acked(), self.world.failed.lock().unwrap().clone());
                panic!("not within {PATIENCE:?}: {what}; {acked} acked, failed: {failed:?}");
            }
        }
    }

    /// So many turns of all.
    pub(crate) fn turns(&mut self, n: u32) {
        (0..n).for_each(|_| self.turn());
    }

    /// Begins so many trees.
    pub(crate) fn emit(&self, n: u64) {
        self.world.gate.fetch_add(n, Ordering::Relaxed);
    }

    /// Trees begun.
    pub(crate) fn trees(&self) -> usize {
        self.world.owners.lock().unwrap().len()
    }

    /// Trees whose spout lives and that have not ended.
    pub(crate) fn open(&self) -> Vec<u64> {
        let World { owners, acked, failed, orphans, .. } = &*self.world;
        let (acked, failed, orphans) = (acked.lock().unwrap(), failed.lock().unwrap(), orphans.lock().unwrap());
        let is_open = |id: &&u64| !acked.contains(id) && !failed.contains_key(id) && !orphans.contains(id);
        owners.lock().unwrap().keys().filter(is_open).copied().collect()
    }

    /// What the worker's loop counts.
    pub(crate) fn stats(&self, worker: usize) -> &LoopStats {
        &self.sides[worker].as_ref().expect("alive").engine.shared.loops[0]
    }

    /// Links that the worker has seen end.
    pub(crate) fn ends(&self, worker: usize) -> usize {
        self.sides[worker].as_ref().map_or(0, |side| side.engine.shared.link_ends.len())
    }
}
