//! Core loops of two workers, stepped by hand on one thread, joined by real links over loopback TCP.
//!
//! One topology: spout `a` -> bolt `b` with two tasks, shuffled. Tasks: a 1, b 2 and 3. Worker 10 holds `a`, worker 20 holds `b`.

// `#[tuple]` names the crate users depend on, which stands on this one.
extern crate self as saetta;

use saetta_engine::{
    Asked, Command, Component, Cx, Engine, EnginePlan, HowEnded, Links, Options, PlannedExecutor, Program, ProgramComponent, Progress,
    RemoteExecutor,
};
use saetta_model::config::{Config, Owner, Source};
use saetta_model::parallelism::{ExecutorId, Layout};
use saetta_model::topology::{ComponentKind, ComponentSpec, Format, Grouping, InputSpec, Resources, StreamSpec, TopologySpec};
use saetta_model::{Name, topology::FieldSpec};
use saetta_transport::{Choice, Connection, Peer, Road};
use saetta_tuple::tuple;
use std::any::TypeId;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(20);

#[doc(hidden)]
pub mod __rt {
    pub use saetta_tuple::rt::*;
}

/// What travels.
#[tuple]
pub struct Item {
    /// Makes a tuple large.
    payload: Vec<u8>,
}

struct Emitter {
    left: u64,
    /// How many may go now.
    gate: Arc<AtomicU64>,
    payload: Vec<u8>,
}

impl Component for Emitter {
    fn ask(&mut self, calls: u32, cx: &mut Cx<'_>) -> Asked {
        cx.ask(calls, |cx| {
            if self.left == 0 {
                return Ok(Progress::Done);
            }
            if self.gate.load(Ordering::Relaxed) == 0 {
                return Ok(Progress::Idle);
            }
            self.gate.fetch_sub(1, Ordering::Relaxed);
            self.left -= 1;
            cx.emit(0, &Item { payload: self.payload.clone() });
            Ok(Progress::Busy)
        })
    }
}

struct Receiver(Arc<AtomicU64>);

impl Component for Receiver {
    fn handle(&mut self, stream: u16, window: &[u8], cx: &mut Cx<'_>) {
        while cx.next_frame(stream, window).is_some() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

const A: ExecutorId = ExecutorId { first: 1, last: 1 };
const B2: ExecutorId = ExecutorId { first: 2, last: 2 };
const B3: ExecutorId = ExecutorId { first: 3, last: 3 };
/// Small, so that a link takes at most 32 KiB a turn.
const RING_BYTES: u32 = 64 << 10;
const EMITTER: u64 = 10;
const RECEIVER: u64 = 20;

/// One loop of one worker.
struct Side {
    engine: Engine,
    links: Links,
    placement: u64,
    received: Arc<AtomicU64>,
    /// How many tuples its emitter may send.
    gate: Arc<AtomicU64>,
}

/// A worker with executors of its own, and what it knows of others. The emitter emits `n` tuples of about `bytes` bytes.
fn side(placement: u64, own: &[ExecutorId], remotes: &[RemoteExecutor], n: u64, bytes: usize) -> Side {
    side_by(Grouping::Shuffle, placement, own, remotes, n, bytes)
}

fn side_by(grouping: Grouping, placement: u64, own: &[ExecutorId], remotes: &[RemoteExecutor], n: u64, bytes: usize) -> Side {
    let name = |text: &str| Name::new(text).unwrap();
    let component = |id: &str, kind, executors, outputs, inputs| ComponentSpec {
        id: name(id),
        kind,
        executors,
        tasks: None,
        resources: Resources::default(),
        outputs,
        inputs,
        config: Default::default(),
        tracked: false,
    };
    let stream = StreamSpec { name: name("Item"), schema: 1, fields: vec![FieldSpec { name: "payload".into(), ty: "Vec<u8>".into() }] };
    let input = InputSpec { from: name("a"), stream: name("Item"), grouping };
    let spec = TopologySpec {
        saetta: "0.1.0".into(),
        format: Format { archive: "rkyv 0.8".into(), endian: "little".into(), unaligned: true, pointer_bits: 32 },
        components: vec![
            component("a", ComponentKind::Spout, 1, vec![stream], vec![]),
            component("b", ComponentKind::Bolt, 2, vec![], vec![input]),
        ],
    };
    let received = Arc::new(AtomicU64::new(0));
    let gate = Arc::new(AtomicU64::new(u64::MAX));
    let (payload, count, pass) = (vec![7; bytes], received.clone(), gate.clone());
    let check: fn(&[u8]) -> bool = saetta_tuple::check::<Item>;
    let components = vec![
        ProgramComponent {
            dead_letters: None,
            factory: Arc::new(move || Box::new(Emitter { left: n, gate: pass.clone(), payload: payload.clone() })),
            tags: vec![TypeId::of::<Item>()],
            checks: vec![check],
            choosers: vec![],
        },
        ProgramComponent {
            dead_letters: None,
            factory: Arc::new(move || Box::new(Receiver(count.clone()))),
            tags: vec![],
            checks: vec![],
            choosers: vec![None],
        },
    ];
    let mut config = Config::new(Owner::Topology);
    config.set("topology.acker.executors", "0", Source::Code).unwrap();
    let plan = EnginePlan {
        layout: Layout::new(&spec, &config).unwrap(),
        cores: vec![0],
        executors: own.iter().map(|id| PlannedExecutor { id: *id, on_loop: 0 }).collect(),
        remotes: remotes.to_vec(),
        options: Options { pinned: false, inbox_bytes: 1 << 20, ..Options::from_config(&config).unwrap() },
    };
    let program = Program { spec, config: config.pairs(), components };
    Side { engine: Engine::build(&program, &plan, true).unwrap(), links: Links::open(Choice::Auto).unwrap(), placement, received, gate }
}

fn at(id: ExecutorId, placement: u64) -> RemoteExecutor {
    RemoteExecutor { id, placement, on_loop: 0 }
}

fn emitter(n: u64, bytes: usize) -> Side {
    side(EMITTER, &[A], &[at(B2, RECEIVER), at(B3, RECEIVER)], n, bytes)
}

fn receiver() -> Side {
    side(RECEIVER, &[B2, B3], &[at(A, EMITTER)], 0, 0)
}

impl Side {
    fn turn(&mut self) {
        self.engine.loops[0].turn(&mut self.links);
    }
    fn say(&self, command: Command) {
        self.engine.handles()[0].send(command);
    }
    fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

/// Joins both by a new connection, as a handshake would have.
fn join(one: &Side, two: &Side) {
    for (to, other, road, socket) in [Road::Data, Road::Control].into_iter().flat_map(|road| both(one, two, road)) {
        let peer = Peer {
            placement: other.placement,
            start: 1,
            index: other.placement as u32,
            local_loop: 0,
            remote_loop: 0,
            local_ring_bytes: RING_BYTES,
            remote_ring_bytes: RING_BYTES,
            road,
        };
        to.say(Command::AddLink { connection: Connection::Socket(OwnedFd::from(socket)), peer });
    }
}

fn both<'a>(one: &'a Side, two: &'a Side, road: Road) -> [(&'a Side, &'a Side, Road, TcpStream); 2] {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let dialled = TcpStream::connect(door.local_addr().unwrap()).unwrap();
    let (accepted, _) = door.accept().unwrap();
    [(one, two, road, dialled), (two, one, road, accepted)]
}

fn step(sides: &mut [&mut Side], what: &str, mut done: impl FnMut(&[&mut Side]) -> bool) {
    let start = Instant::now();
    while !done(sides) {
        sides.iter_mut().for_each(|s| s.turn());
        assert!(start.elapsed() < PATIENCE, "{what}");
    }
}

#[test]
fn a_new_worker_at_the_other_end_is_told_the_end_again() {
    let (mut a, mut b) = (emitter(100, 8), receiver());
    join(&a, &b);
    a.say(Command::Activate(true));
    step(&mut [&mut a, &mut b], "all arrives and ends", |s| {
        s[1].received() == 100 && s[1].engine.shared.ended() && s[0].engine.shared.ended()
    });
    drop(b);
    step(&mut [&mut a], "the loss is told", |s| !s[0].engine.shared.link_ends.is_empty());
    let end = a.engine.shared.link_ends.pop().unwrap();
    assert_eq!((end.placement, end.local_loop, end.remote_loop), (RECEIVER, 0, 0));
    assert!(matches!(end.how, HowEnded::Lost(_) | HowEnded::Closed));
    let mut b = receiver();
    join(&a, &b);
    step(&mut [&mut a, &mut b], "the new one ends as well", |s| s[1].engine.shared.ended());
    assert_eq!(b.received(), 0, "nothing is sent again but the end");
}

#[test]
fn what_waits_for_a_peer_without_a_link_goes_when_there_is_one() {
    let (mut a, mut b) = (emitter(5000, 100), receiver());
    a.say(Command::Activate(true));
    for _ in 0..1000 {
        a.turn();
    }
    assert!(!a.engine.shared.drained(), "it stays with its emitter");
    join(&a, &b);
    step(&mut [&mut a, &mut b], "all arrives", |s| s[1].received() == 5000 && s[1].engine.shared.ended());
}

#[test]
fn a_newer_link_of_the_same_loops_takes_over_and_its_elder_s_end_disturbs_nobody() {
    let (mut a, mut b) = (emitter(200_000, 8), receiver());
    join(&a, &b);
    a.say(Command::Activate(true));
    step(&mut [&mut a, &mut b], "tuples flow", |s| s[1].received() > 1000);
    for _ in 0..5 {
        join(&a, &b);
        let before = b.received();
        step(&mut [&mut a, &mut b], "tuples flow over the new link", |s| s[1].received() > before + 5000);
    }
    step(&mut [&mut a, &mut b], "it comes to its end", |s| s[1].engine.shared.ended());
    assert!(a.engine.shared.link_ends.is_empty() && b.engine.shared.link_ends.is_empty(), "nobody is to be dialled again");
    assert!(b.received() <= 200_000, "nothing arrives twice");
}

#[test]
fn a_peer_that_knows_a_newer_assignment_grants_before_the_routes_name_it() {
    // The emitter knows of task 2 alone; task 3 is placed nowhere yet.
    let mut a = side_by(Grouping::All, EMITTER, &[A], &[at(B2, RECEIVER)], 100, 8);
    let mut b = receiver();
    join(&a, &b);
    a.say(Command::Activate(true));
    step(&mut [&mut a, &mut b], "one copy of the first arrives", |s| s[1].received() == 1);
    for _ in 0..1000 {
        a.turn();
        b.turn();
    }
    assert_eq!(b.received(), 1, "the other waits, and what is behind it");
    a.say(Command::Routes(vec![at(B2, RECEIVER), at(B3, RECEIVER)]));
    step(&mut [&mut a, &mut b], "all arrives", |s| s[1].received() == 200 && s[1].engine.shared.ended());
}

#[test]
fn shuffle_steps_over_a_task_whose_worker_is_not_there() {
    for grouping in [Grouping::Shuffle, Grouping::LocalOrShuffle, Grouping::LoadAware] {
        let mut a = side_by(grouping, EMITTER, &[A], &[at(B2, RECEIVER), at(B3, RECEIVER)], 100, 8);
        let mut b = receiver();
        a.gate.store(2, Ordering::Relaxed);
        join(&a, &b);
        a.say(Command::Activate(true));
        step(&mut [&mut a, &mut b], "the link is up", |s| s[1].received() == 2);
        a.say(Command::Routes(vec![at(B2, RECEIVER)]));
        a.gate.store(u64::MAX, Ordering::Relaxed);
        step(&mut [&mut a, &mut b], "all arrives at the task that is there", |s| s[1].received() == 100);
    }
}

#[test]
fn executors_that_move_to_another_worker_take_what_waits_along() {
    let (mut a, mut b) = (emitter(1000, 8), receiver());
    join(&a, &b);
    a.say(Command::Activate(true));
    step(&mut [&mut a, &mut b], "all arrives and ends", |s| s[1].received() == 1000 && s[1].engine.shared.ended());
    const OTHER: u64 = 30;
    let mut c = side(OTHER, &[B2, B3], &[at(A, EMITTER)], 0, 0);
    a.say(Command::Routes(vec![at(B2, OTHER), at(B3, OTHER)]));
    join(&a, &c);
    step(&mut [&mut a, &mut b, &mut c], "the new place hears the end", |s| s[2].engine.shared.ended());
    assert!(a.engine.shared.link_ends.is_empty(), "the old place is not to be dialled again");
    step(&mut [&mut b], "the old place sees its link end", |s| !s[0].engine.shared.link_ends.is_empty());
}

#[test]
fn a_loop_told_to_stop_sends_what_it_has_staged_before_its_goodbye() {
    // 64 tuples are two segments.
    let (mut a, mut b) = (emitter(1000, 900), receiver());
    a.gate.store(2, Ordering::Relaxed);
    join(&a, &b);
    a.say(Command::Activate(true));
    step(&mut [&mut a, &mut b], "the link is open", |s| s[1].received() == 2);
    a.gate.store(64, Ordering::Relaxed);
    // A turn may end before 64 calls: it has a time as well.
    for _ in 0..64 {
        a.turn();
    }
    assert_eq!((a.gate.load(Ordering::Relaxed), b.received()), (0, 2), "emitted, and not yet arrived");
    a.say(Command::Stop);
    step(&mut [&mut a, &mut b], "the goodbyes come", |s| s[1].engine.shared.link_ends.len() == 2);
    assert_eq!(b.received(), 66);
    assert!((0..2).all(|_| b.engine.shared.link_ends.pop().unwrap().how == HowEnded::Goodbye));
}
