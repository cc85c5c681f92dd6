//! Two workers on two hosts, and what their network does to them: the faults of reliability.md, each on io_uring and on epoll.
//!
//! Whatever happens: every tree is acked, or fails with a reason within two seconds of the loss being known; what was acked was seen; nothing is
//! seen twice, or in pieces; and once the network is well the flow goes on. Without root, `ip` and `nft` a test says so and does nothing, except
//! where `CI` is `true`: there that is a failure.

mod lab;
mod live;

use lab::{ADDRESSES, Lab};
use live::seat::{Load, drain, placement, rise};
use live::{Scene, Seat, books, unix_ms, wait};
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

/// A reset, or a closed socket, is known at once. The rest is this machine's to be busy with other tests.
const AT_ONCE: Duration = Duration::from_millis(1000);
/// A silent peer is given up after four seconds.
const SILENT: Duration = Duration::from_millis(4000 + 1500);
/// Each task sees so many more before it counts as flowing.
const FLOW: u64 = 500;
const LOAD: Load = Load { spouts: 2, per_second: 4000, large_bytes: 40_000 };
/// Where packets are lost: TCP waits a fifth of a second and more for each that was the last of its burst.
const LIGHT: Load = Load { spouts: 2, per_second: 500, large_bytes: 2_000 };
/// Trees that stay open so long wait for somebody who hangs.
const STAY: Duration = Duration::from_millis(200);
const LOST: &str = "lost (loop";
/// The peer's new connection may be there before the end of the old one was seen.
const LINKED: &str = "linked with";
const GONE: &str = "is gone: trees";

/// A network and the two workers, tuples flowing.
struct Pair {
    // Workers go before their network.
    a: Seat,
    b: Seat,
    lab: Lab,
    scene: Scene,
    killed: Vec<u32>,
}

/// `None` = there is no lab here, and that is all right.
fn pair(carrier: &str, load: Load) -> Option<Pair> {
    if let Some(why) = lab::missing() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "no network lab: {why}");
        eprintln!("NOT RUN, no network lab here: {why}");
        return None;
    }
    let lab = Lab::new();
    // ackers 1-2, numbers 3-4, relay 5-6, sink 7-8: odd ones on `a`, even ones on `b`.
    let workers = vec![placement("a", 10, 0, 6700, &[1, 3, 5, 7]), placement("b", 20, 1, 6700, &[2, 4, 6, 8])];
    let scene = Scene::new(&load, &[("transport.carrier", carrier), ("transport.memory", "false")], &ADDRESSES, workers);
    let (a, b) = (Seat::start(&scene, 10, 1, &lab.on(0)), Seat::start(&scene, 20, 1, &lab.on(1)));
    let mut pair = Pair { a, b, lab, scene, killed: vec![] };
    pair.flows("tuples flow");
    Some(pair)
}

impl Pair {
    fn flows(&mut self, what: &str) {
        rise(&mut [&mut self.a, &mut self.b], FLOW, what);
    }

    /// Stops `b`, until what is under way waits for it.
    fn b_hangs(&mut self) {
        kill_process(Pid::from_child(&self.b.child), Signal::STOP).unwrap();
        let open = || books::open_trees(self.scene.dir.path(), &[self.b.child.id()]);
        let (mut before, mut since) = (open(), Instant::now());
        wait(&mut [&mut self.a], "trees of the other one stay open", |_| {
            let now = open();
            if now != before || now.is_empty() {
                (before, since) = (now, Instant::now());
            }
            since.elapsed() > STAY
        });
    }

    /// Waits until both workers know that their link is lost; how long that took each, from `since` on.
    fn both_know(&mut self, since_ms: u64) -> [Duration; 2] {
        let known = |s: &Seat| [LOST, LINKED].iter().filter_map(|text| s.log_times(text).into_iter().find(|at| *at >= since_ms)).min();
        wait(&mut [&mut self.a, &mut self.b], "both know of the loss", |s| s.iter().all(|s| known(s).is_some()));
        [&self.a, &self.b].map(|s| Duration::from_millis(known(s).unwrap() - since_ms))
    }

    fn in_time<const N: usize>(&self, took: [Duration; N], bound: Duration) {
        let late = self.a.stood_still() + self.b.stood_still();
        assert!(took.iter().all(|t| *t <= bound + late), "{took:?}, {late:?} of it stood still\n{}\n{}", self.a.log(), self.b.log());
    }

    /// The network is well again: tuples flow, then everything drains, and the books are right.
    fn ends_well(mut self, fault: &str) -> books::Audit {
        self.flows("tuples flow again");
        let killed = &self.killed;
        drain(&mut self.scene, &mut [&mut self.a, &mut self.b], |scene| books::open_trees(scene.dir.path(), killed).is_empty());
        let open = books::open_trees(self.scene.dir.path(), killed);
        let stories = books::stories(self.scene.dir.path(), &open);
        assert!(open.is_empty(), "{fault}: trees that neither completed nor failed{stories}\n{}\n{}", self.a.log(), self.b.log());
        let known: Vec<u64> = [&self.a, &self.b].iter().flat_map(|s| [LOST, LINKED, GONE].map(|text| s.log_times(text)).concat()).collect();
        let audit = books::audit(self.scene.dir.path(), &self.killed);
        audit.fails_follow(&known, self.a.stood_still() + self.b.stood_still());
        println!("{fault}: {audit:?}");
        assert!(audit.acked >= FLOW, "{audit:?}");
        audit
    }
}

/// F01.
fn a_worker_is_killed(carrier: &str) {
    let Some(mut pair) = pair(carrier, LOAD) else { return };
    pair.killed.push(pair.b.child.id());
    pair.b_hangs();
    let at = unix_ms();
    pair.b.child.kill().unwrap();
    pair.b.child.wait().unwrap();
    let known = |s: &Seat| s.log_times(LOST).into_iter().find(|t| *t >= at);
    wait(&mut [&mut pair.a], "the survivor knows", |s| known(s[0]).is_some());
    let took = Duration::from_millis(known(&pair.a).unwrap() - at);
    pair.in_time([took], AT_ONCE);
    pair.b = Seat::start(&pair.scene, 20, 2, &pair.lab.on(1));
    let audit = pair.ends_well(&format!("kill -9, {carrier}, known after {took:?}"));
    assert!(audit.n_failed() > 0, "nothing was under way: this shows nothing");
}

/// F47: frames are many packets long, so the reset comes between two of one.
fn the_link_is_reset_in_mid_frame(carrier: &str) {
    let Some(mut pair) = pair(carrier, LOAD) else { return };
    pair.b_hangs();
    let at = unix_ms();
    pair.lab.reset(0);
    kill_process(Pid::from_child(&pair.b.child), Signal::CONT).unwrap();
    let took = pair.both_know(at);
    pair.in_time(took, AT_ONCE);
    let audit = pair.ends_well(&format!("reset, {carrier}, known after {took:?}"));
    assert!(audit.n_failed() > 0, "nothing was under way: this shows nothing");
}

/// F41.
fn one_way_is_cut(carrier: &str) {
    let Some(mut pair) = pair(carrier, LOAD) else { return };
    let at = unix_ms();
    pair.lab.rule(1, "drop");
    let took = pair.both_know(at);
    pair.lab.heal();
    pair.in_time(took, SILENT);
    let audit = pair.ends_well(&format!("one way cut, {carrier}, known after {took:?}"));
    assert!(audit.n_failed() > 0, "nothing was under way: this shows nothing");
}

/// F40.
fn a_port_of_the_switch_goes_down(carrier: &str) {
    let Some(mut pair) = pair(carrier, LOAD) else { return };
    let at = unix_ms();
    pair.lab.port(1, false);
    let took = pair.both_know(at);
    pair.lab.port(1, true);
    pair.in_time(took, SILENT);
    let audit = pair.ends_well(&format!("port down, {carrier}, known after {took:?}"));
    assert!(audit.n_failed() > 0, "nothing was under way: this shows nothing");
}

/// F44: slower, and that is all.
fn packets_are_lost(carrier: &str, percent: u32) {
    let Some(mut pair) = pair(carrier, LIGHT) else { return };
    pair.lab.lose(percent);
    pair.flows("tuples flow all the same");
    pair.lab.heal();
    let no_loss = [&pair.a, &pair.b].iter().all(|s| s.log_times(LOST).is_empty());
    assert!(no_loss, "a link was given up\n{}\n{}", pair.a.log(), pair.b.log());
    let audit = pair.ends_well(&format!("{percent} % of packets lost, {carrier}"));
    assert_eq!((audit.n_failed(), audit.acked), (0, audit.emitted));
}

macro_rules! on_each_carrier {
    ($($test:ident: $body:expr;)*) => {
        mod io_uring {
            use super::*;
            $(#[test] fn $test() { $body("io_uring") })*
        }
        mod epoll {
            use super::*;
            $(#[test] fn $test() { $body("epoll") })*
        }
    };
}

on_each_carrier! {
    trees_of_a_killed_worker_fail_and_the_flow_goes_on_with_its_next_start: a_worker_is_killed;
    a_link_reset_in_mid_frame_delivers_nothing_of_it_and_comes_back: the_link_is_reset_in_mid_frame;
    a_cut_of_one_way_is_known_on_both_sides: one_way_is_cut;
    a_half_open_link_is_known_on_both_sides: a_port_of_the_switch_goes_down;
    one_packet_in_a_hundred_lost_costs_no_link: |carrier| packets_are_lost(carrier, 1);
    one_packet_in_ten_lost_costs_no_link: |carrier| packets_are_lost(carrier, 10);
}
