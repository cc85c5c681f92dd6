//! Three workers with loops, executors and links as they are, under weather, against somebody who knows where each tuple was.
//!
//! Links are simulated, time is moved by hand, and a seed decides what is cut, who dies and when. What must hold whatever happens: no tree is
//! acked that was not handled by every bolt it had to pass, nothing is handled twice, no tree ends twice; and when the weather is over, every
//! tree whose spout lives has ended soon after, although none can time out.

// `#[tuple]` names the crate users depend on, which stands on this one.
extern crate self as saetta;

mod net;

use net::{Cluster, part};
use proptest::prelude::*;
use saetta_engine::Reason;
use std::time::Duration;

#[doc(hidden)]
pub mod __rt {
    pub use saetta_tuple::rt::*;
}

/// So long that no tree times out.
const LONG: Duration = Duration::from_secs(10_000);
const WORKERS: usize = 3;
/// Turns of weather; turns within which all has ended after it: less than two seconds.
const STORM: u32 = 1500;
const QUIET: u32 = (Duration::from_millis(1900).as_micros() / net::STEP.as_micros()) as u32;

/// Seeds that found something. The first: a spout's acks came to a ledger in another worker earlier than that the spout's worker had been
/// started again. The second: the same by what was left of its earlier life, which is known to cost a tree its timeout.
const FOUND: [u64; 2] = [2594901595773336172, 2636090509991960555];

/// Numbers of a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ z >> 31) % n
    }
}

/// Where components and ackers are: spouts `a` -> `b` -> `c`, and `b` -> `d` by another stream.
fn cluster(draw: &mut Draw) -> (Cluster, Vec<usize>) {
    let at = |draw: &mut Draw| draw.below(WORKERS as u64) as usize;
    let parts = vec![
        part("a", &[0, at(draw)], &[], &[]),
        part("b", &[1, at(draw)], &["a"], &[]),
        part("c", &[2, at(draw)], &["b"], &[]),
        part("d", &[at(draw)], &[], &["b"]),
    ];
    // One in each worker, or one for all.
    let ackers: Vec<usize> = if draw.below(3) == 0 { vec![at(draw)] } else { vec![0, 1, 2] };
    let mut all = Cluster::new(parts, &ackers, WORKERS, LONG);
    all.delay = Some(Duration::from_micros(draw.below(1500)));
    all.world.payload.store([8, 700][draw.below(2) as usize], std::sync::atomic::Ordering::Relaxed);
    (all, ackers)
}

fn check(all: &Cluster) {
    let seen = all.world.seen.lock().unwrap();
    assert!(seen.values().all(|times| *times == 1), "a tuple is handled twice");
    for id in all.world.acked.lock().unwrap().iter() {
        for bolt in ["b", "c", "d"] {
            assert!(seen.contains_key(&(bolt, *id)), "{id} is acked, and {bolt} has not seen it");
        }
    }
}

/// One run. Returns how many trees were begun, acked and failed.
fn run(seed: u64) -> (usize, usize, usize) {
    let mut draw = Draw(seed);
    let (mut all, ackers) = cluster(&mut draw);
    all.join_all();
    let pairs = [(0, 1), (0, 2), (1, 2)];
    let (mut joins_at, mut starts_at) = ([None; 3], [None; WORKERS]);
    for turn in 0..STORM {
        if draw.below(3) == 0 {
            all.emit(draw.below(4));
        }
        if draw.below(200) == 0 {
            all.world.keep(["b", "c", "d"][draw.below(3) as usize]);
        }
        if draw.below(50) == 0 {
            all.world.release(["b", "c", "d"][draw.below(3) as usize]);
        }
        if draw.below(150) == 0 {
            let (one, two) = pairs[draw.below(3) as usize];
            if all.is_joined(one, two) {
                all.cut(one, two);
            }
        }
        if draw.below(700) == 0 {
            let worker = draw.below(WORKERS as u64) as usize;
            if all.sides[worker].is_some() {
                all.kill(worker);
                starts_at[worker] = Some(turn + draw.below(100) as u32);
            }
        }
        for (worker, at) in starts_at.iter_mut().enumerate() {
            if at.take_if(|at| *at <= turn).is_some() {
                all.start(worker);
            }
        }
        for ((one, two), at) in pairs.into_iter().zip(&mut joins_at) {
            if all.is_joined(one, two) || all.sides[one].is_none() || all.sides[two].is_none() {
                *at = None;
            } else if at.get_or_insert(turn + draw.below(80) as u32) == &turn {
                // Before either has noticed, or long after.
                all.join(one, two);
            }
        }
        all.turn();
    }
    (0..WORKERS).filter(|worker| all.sides[*worker].is_none()).collect::<Vec<_>>().into_iter().for_each(|worker| all.start(worker));
    pairs
        .into_iter()
        .filter(|(one, two)| !all.is_joined(*one, *two))
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(|(one, two)| all.join(one, two));
    all.world.gate.store(0, std::sync::atomic::Ordering::Relaxed);
    ["b", "c", "d"].into_iter().for_each(|bolt| all.world.release(bolt));
    all.turns(QUIET);
    check(&all);
    let (begun, orphans) = (all.trees(), all.world.orphans.lock().unwrap().len());
    // A ledger that is not with its owner takes what is left of an owner's earlier life for the new one's, if it comes first: that tree is left
    // to its timeout.
    let mut open = all.open();
    let owners = all.world.owners.lock().unwrap();
    let unsure = |id: &u64| ackers.len() == 1 && ackers[0] != owners[id].0 && owners[id].1 > 1;
    open.retain(|id| !unsure(id));
    assert!(open.is_empty(), "{} of {begun} trees are still open: {:?}", open.len(), &open[..open.len().min(5)]);
    let acked = all.world.acked();
    (begun, acked, begun - acked - orphans)
}

#[test]
fn whatever_is_cut_and_whoever_dies_no_tree_is_acked_unseen_and_every_tree_ends() {
    let (mut begun, mut acked, mut failed) = (0, 0, 0);
    for seed in (0..20).chain(FOUND) {
        let (b, a, f) = run(seed);
        (begun, acked, failed) = (begun + b, acked + a, failed + f);
    }
    assert!(acked > begun / 3 && failed > begun / 50, "{begun} begun, {acked} acked, {failed} failed: no weather to speak of");
}

#[test]
#[ignore = "a thousand seeds, with --release"]
fn nor_by_a_thousand_seeds() {
    for seed in 0..1000 {
        run(seed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nor_by_any_other_seed(seed: u64) {
        run(seed);
    }
}

#[test]
fn a_link_between_bolts_fails_exactly_what_was_lost_on_it() {
    // a on 0 -> b on 1 -> c on 2; the ledger is with a, and nothing is cut off from it.
    let parts = vec![part("a", &[0], &[], &[]), part("b", &[1], &["a"], &[]), part("c", &[2], &["b"], &[])];
    let mut all = Cluster::new(parts, &[0], WORKERS, LONG);
    all.delay = Some(Duration::from_micros(500));
    all.join_all();
    all.world.keep("c");
    all.emit(10);
    all.until("c keeps them", |all| all.world.seen("c") == 10);
    // That they have arrived is told with the next credit, or with the next sign of life.
    all.turns(10_000);
    all.swallow(1, 2);
    all.emit(50);
    all.until("b has handled them", |all| all.world.seen("b") == 60);
    all.cut(1, 2);
    all.until("the cut is seen", |all| all.world.ended() == 50);
    assert_eq!(all.world.failed(Reason::LinkLost), (10..60).collect::<Vec<_>>());
    all.join(1, 2);
    all.world.release("c");
    all.until("c's ten are acked", |all| all.world.acked() == 10);
    assert_eq!(all.world.seen("c"), 10);
}
