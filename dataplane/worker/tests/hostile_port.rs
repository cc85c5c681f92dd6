//! Strangers at the port of a worker that is at work, and one who holds the key and means no good.
//!
//! `a` and `b` run all of the topology but one spout task, which belongs to `c`. The test plays `c`: it may be linked with `b`, and no tuple of
//! the others goes by way of it. Whatever comes: no tree fails, none is lost, and the worker's memory and log stay small.

mod live;
mod stranger;

use live::seat::{KEY, Load, TOPOLOGY, drain, placement, rise};
use live::{Scene, Seat, books, unix_ms, wait};
use saetta_transport::Road;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use stranger::{Door, Links, Stranger};

/// What a worker may grow by, whoever knocks.
const GROWTH_BYTES_MAX: u64 = 50 << 20;
/// A connection that proves nothing is over so soon: two seconds are the door's, the rest is this machine's.
const UNPROVEN: Duration = Duration::from_millis(2000 + 1500);
/// Each task sees so many more before it counts as flowing.
const FLOW: u64 = 500;
const LOST: &str = "lost (loop";
const LINKED: &str = "linked with";

/// One at a time: each fills the machine's tables in its own way.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|failed| failed.into_inner())
}

struct Stage {
    a: Seat,
    b: Seat,
    scene: Scene,
}

impl Stage {
    /// Both at work.
    fn new() -> Stage {
        let load = Load { spouts: 3, per_second: 2000, large_bytes: 20_000 };
        // ackers 1-2, numbers 3-5, relay 6-7, sink 8-9.
        let (a, b, c) = (stranger::free_port(), stranger::free_port(), stranger::free_port());
        let workers = vec![placement("c", 5, 0, c, &[5]), placement("a", 10, 1, a, &[1, 3, 6, 8]), placement("b", 20, 2, b, &[2, 4, 7, 9])];
        let scene = Scene::new(&load, &[("transport.memory", "false")], &["127.0.0.1"; 3], workers);
        let (a, b) = (Seat::start(&scene, 10, 1, &[]), Seat::start(&scene, 20, 1, &[]));
        let mut stage = Stage { a, b, scene };
        stage.flows("tuples flow");
        stage
    }

    /// Of `b`.
    fn door(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.b.place.slot.port).into()
    }

    fn stranger(&self) -> Stranger {
        Stranger::new(self.door(), KEY, TOPOLOGY, &self.scene.record.digest)
    }

    fn flows(&mut self, what: &str) {
        rise(&mut [&mut self.a, &mut self.b], FLOW, what);
    }

    /// Does this beside the topology, and looks at `b` meanwhile: its memory stays within bounds.
    fn meanwhile<T: Send + 'static>(&mut self, what: &str, deed: impl FnOnce() -> T + Send + 'static) -> T {
        let before = memory_bytes(&self.b);
        let deed = std::thread::spawn(deed);
        let mut most = before;
        wait(&mut [&mut self.a, &mut self.b], what, |s| {
            most = most.max(memory_bytes(s[1]));
            deed.is_finished()
        });
        println!("{what}: {} KiB more at most", (most - before) >> 10);
        assert!(most - before <= GROWTH_BYTES_MAX, "{what}: {most} bytes, {before} before");
        let did = deed.join().unwrap_or_else(|_| panic!("{what}: see above\n{}", self.b.log()));
        self.flows(what);
        did
    }

    /// Spouts off; every tree has ended.
    fn ends(mut self) -> (books::Audit, Stage) {
        drain(&mut self.scene, &mut [&mut self.a, &mut self.b], |scene| books::open_trees(scene.dir.path(), &[]).is_empty());
        let open = books::open_trees(self.scene.dir.path(), &[]);
        let stories = books::stories(self.scene.dir.path(), &open);
        assert!(open.is_empty(), "trees that neither completed nor failed{stories}\n{}\n{}", self.a.log(), self.b.log());
        (books::audit(self.scene.dir.path(), &[]), self)
    }
}

/// Resident now.
fn memory_bytes(seat: &Seat) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", seat.child.id())).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn whoever_proves_nothing_costs_the_topology_no_tuple_and_the_worker_no_memory() {
    let _alone = alone();
    let mut stage = Stage::new();
    let (began, lines) = (Instant::now(), stage.b.log().lines().count());
    let door = Door(stage.door());
    stage.meanwhile("random bytes", move || door.says_and_is_shown_out(100, &stranger::random(64 << 10), UNPROVEN));
    stage.meanwhile("HTTP", move || door.says_and_is_shown_out(50, stranger::HTTP, UNPROVEN));
    stage.meanwhile("TLS hello", move || door.says_and_is_shown_out(50, &stranger::tls_hello(), UNPROVEN));
    stage.meanwhile("right magic, then garbage", move || door.says_and_is_shown_out(50, &stranger::right_magic_then_garbage(), UNPROVEN));
    for length in stranger::LENGTHS {
        stage.meanwhile("a segment before any handshake", move || door.says_and_is_shown_out(20, &stranger::segment(length), UNPROVEN));
    }
    stage.meanwhile("1000 clients of one byte", move || door.slow_clients(1000, UNPROVEN));
    stage.meanwhile("5000 connections", move || door.silent_clients(5000, UNPROVEN));
    let recorded = stage.stranger().recorded_probe();
    stage.meanwhile("a recorded handshake", move || door.replay(&recorded, UNPROVEN));
    let (told, seconds) = (stage.b.log().lines().count() - lines, began.elapsed().as_secs() as usize + 1);
    assert!(told <= seconds, "{told} lines within {seconds} s\n{}", stage.b.log());
    let (audit, stage) = stage.ends();
    println!("{audit:?}");
    assert_eq!((audit.acked, audit.seen), (audit.emitted, audit.emitted));
    assert!(stage.a.log_times(LOST).is_empty() && stage.b.log_times(LOST).is_empty(), "{}", stage.b.log());
}

#[test]
fn a_peer_that_holds_the_key_and_sends_rubbish_costs_its_own_link_only() {
    let _alone = alone();
    let mut stage = Stage::new();
    let stranger = stage.stranger();
    stage.meanwhile("claims of somebody else", move || stranger.claims_are_refused());
    for road in [Road::Data, Road::Control] {
        let stranger = stage.stranger();
        stage.meanwhile("rubbish on a link", move || {
            stranger::after_the_handshake()
                .iter()
                .for_each(|(what, bytes)| stranger.linked_says_and_is_shown_out(road, what, bytes, UNPROVEN));
        });
    }
    let stranger = stage.stranger();
    stage.meanwhile("any bytes as acks", move || stranger.control_frames_of_any_bytes(200, UNPROVEN));
    let (audit, stage) = stage.ends();
    println!("{audit:?}");
    assert_eq!((audit.acked, audit.seen), (audit.emitted, audit.emitted), "{}", stage.b.log());
    let others = |seat: &Seat| seat.log().lines().filter(|l| l.contains(LOST) && !l.contains("with c:")).count();
    assert_eq!((others(&stage.a), others(&stage.b)), (0, 0), "{}", stage.b.log());
}

#[test]
fn a_key_holder_that_says_it_is_a_peer_breaks_that_link_and_the_peer_takes_it_back() {
    let _alone = alone();
    let mut stage = Stage::new();
    let at = unix_ms();
    for _ in 0..3 {
        let stranger = stage.stranger();
        stage.meanwhile("somebody else under a peer's name", move || {
            let links = stranger.linked_as(10, 1, 1);
            drop::<Links>(links);
        });
    }
    let known: Vec<u64> = [&stage.a, &stage.b].iter().flat_map(|s| [LOST, LINKED].map(|text| s.log_times(text)).concat()).collect();
    assert!(known.iter().any(|t| *t >= at));
    let (audit, stage) = stage.ends();
    println!("{audit:?}");
    audit.fails_follow(&known, stage.a.stood_still() + stage.b.stood_still());
    assert!(audit.n_failed() > 0, "nothing was under way: this shows nothing");
}
