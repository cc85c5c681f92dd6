//! Which trees fail when a worker or a link is lost, and which do not.

// `#[tuple]` names the crate users depend on, which stands on this one.
extern crate self as saetta;

mod net;

use net::{Cluster, part};
use saetta_engine::Reason;
use std::time::Duration;

#[doc(hidden)]
pub mod __rt {
    pub use saetta_tuple::rt::*;
}

/// So long that no tree times out.
const LONG: Duration = Duration::from_secs(10_000);
/// Turns within which a loss that is known has failed its trees: far less than two seconds.
const SOON: u32 = 200;

/// Says that worker 1 is lost, and that exactly these trees fail for it.
fn lose_1(all: &mut Cluster, expected: std::ops::Range<u64>) {
    all.declare_lost(1, 1);
    all.turns(SOON);
    assert_eq!(all.world.failed(Reason::WorkerLost), expected.clone().collect::<Vec<_>>());
    assert_eq!(all.world.failed.lock().unwrap().len(), expected.count(), "for another reason");
}

#[test]
fn a_lost_worker_fails_what_was_in_it_and_nothing_else() {
    let parts = vec![part("a", &[0], &[], &[]), part("b", &[1], &["a"], &[])];
    let mut all = Cluster::new(parts, &[0], 3, LONG);
    all.join_all();
    all.emit(10);
    all.until("the first are acked", |all| all.world.acked() == 10);
    all.world.keep("b");
    all.emit(10);
    all.until("b keeps the others", |all| all.world.seen("b") == 20);
    all.declare_lost(2, 1);
    all.turns(SOON);
    assert_eq!(all.world.ended(), 10, "that was another worker's loss");
    lose_1(&mut all, 10..20);
}

#[test]
fn an_input_whose_first_frame_left_its_worker_says_so_although_its_last_one_stayed() {
    // x hands on to y elsewhere, then to z beside it: z's frame may not take x's ack over.
    let parts = vec![part("a", &[0], &[], &[]), part("x", &[0], &["a"], &[]), part("y", &[1], &["x"], &[]), part("z", &[0], &[], &["x"])];
    let mut all = Cluster::new(parts, &[0], 2, LONG);
    all.join_all();
    // So many that few of them are sampled: a sampled frame takes nothing over.
    all.emit(50_000);
    all.until("all are acked", |all| all.world.acked() == 50_000);
    all.world.keep("y");
    all.emit(1000);
    all.until("all are where they are to be", |all| all.world.seen("y") == 51_000 && all.world.seen("z") == 51_000);
    lose_1(&mut all, 50_000..51_000);
}

#[test]
fn what_waited_in_an_outbox_is_known_to_be_where_it_went() {
    // The spout's own frames: there is no link when they are emitted.
    let parts = vec![part("a", &[0], &[], &[]), part("b", &[1], &["a"], &[])];
    let mut all = Cluster::new(parts, &[0], 2, LONG);
    all.world.keep("b");
    all.emit(10);
    all.turns(SOON);
    all.join_all();
    all.until("b keeps them", |all| all.world.seen("b") == 10);
    lose_1(&mut all, 0..10);
    // A bolt's.
    let parts = vec![part("a", &[0], &[], &[]), part("x", &[0], &["a"], &[]), part("y", &[1], &["x"], &[])];
    let mut all = Cluster::new(parts, &[0], 2, LONG);
    all.world.keep("y");
    all.emit(10);
    all.turns(SOON);
    all.join_all();
    all.until("y keeps them", |all| all.world.seen("y") == 10);
    lose_1(&mut all, 0..10);
}

#[test]
fn what_a_deferred_input_emitted_into_an_outbox_is_known_to_be_where_it_went() {
    let parts = vec![part("a", &[0], &[], &[]), part("x", &[0], &["a"], &[]), part("y", &[1], &["x"], &[])];
    let mut all = Cluster::new(parts, &[0], 2, LONG);
    all.world.keep("x");
    all.world.keep("y");
    all.emit(1);
    all.until("x has it, and what it emitted waits", |all| all.world.seen("x") == 1);
    all.join_all();
    all.until("y keeps it", |all| all.world.seen("y") == 1);
    all.world.release("x");
    all.turns(SOON);
    assert_eq!(all.world.ended(), 0);
    lose_1(&mut all, 0..1);
}

#[test]
fn what_comes_with_the_bit_of_a_lost_worker_fails_for_one_timeout() {
    let parts = vec![part("a", &[0], &[], &[]), part("b", &[1], &["a"], &[])];
    let timeout = Duration::from_millis(500);
    let mut all = Cluster::new(parts, &[0], 2, timeout);
    all.declare_lost(1, 1);
    all.turns(1);
    all.join_all();
    all.emit(5);
    all.until("they went to what looks like the lost one", |all| all.world.ended() == 5);
    assert_eq!(all.world.failed(Reason::WorkerLost), [0, 1, 2, 3, 4]);
    all.turns((timeout.as_micros() / net::STEP.as_micros()) as u32 + SOON);
    all.emit(5);
    all.until("by now that bit is a new worker's", |all| all.world.acked() == 5);
    let later: u64 = all.stats(0).trees_lost_later.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(later, 5, "counted");
}

#[test]
fn a_link_that_is_cut_fails_what_is_behind_it_until_it_is_there_again() {
    let parts = vec![part("a", &[0], &[], &[]), part("b", &[1], &["a"], &[]), part("c", &[2], &["a"], &[])];
    let mut all = Cluster::new(parts, &[0], 3, LONG);
    all.join_all();
    all.world.keep("b");
    all.emit(10);
    all.until("b keeps them all", |all| all.world.seen("b") == 10 && all.world.seen("c") == 10);
    all.cut(0, 2);
    all.turns(SOON);
    assert_eq!(all.world.failed(Reason::LinkLost).len(), 10, "each was in c as well, and nobody knows what became of its acks");
    all.join(0, 2);
    all.emit(10);
    all.until("b keeps the others", |all| all.world.seen("b") == 20);
    all.cut(0, 1);
    all.turns(SOON);
    assert_eq!(all.world.failed(Reason::LinkLost).len(), 20);
    all.world.release("b");
    all.join(0, 1);
    all.emit(10);
    all.until("all is well again", |all| all.world.acked() == 10);
    assert_eq!(all.world.ended(), 30, "nothing else ended, and nothing twice");
}

#[test]
fn what_names_a_worker_fails_while_that_cannot_speak_to_the_ledger_and_only_then() {
    // a on 0 -> b on 1 -> c on 2: b tells 0 that the tree is in 2.
    let parts = vec![part("a", &[0], &[], &[]), part("b", &[1], &["a"], &[]), part("c", &[2], &["b"], &[])];
    let mut all = Cluster::new(parts, &[0], 3, LONG);
    all.join_all();
    all.emit(1);
    all.until("all is well", |all| all.world.acked() == 1);
    all.cut(0, 2);
    all.until("both see it", |all| all.ends(0) > 0 && all.ends(2) > 0);
    all.emit(5);
    all.until("c has them", |all| all.world.seen("c") == 6);
    all.turns(SOON);
    assert_eq!(all.world.failed(Reason::LinkLost), [1, 2, 3, 4, 5]);
    // One whose only word of c comes when it is back: c handled it meanwhile, and its ack was kept.
    all.world.keep("b");
    all.emit(1);
    all.until("c has it, b is not done with it", |all| all.world.seen("c") == 7);
    all.turns(SOON);
    all.join(0, 2);
    all.turns(SOON);
    all.world.release("b");
    all.until("it is complete", |all| all.world.acked() == 2);
}

#[test]
fn acks_follow_spouts_and_ledgers_to_the_worker_that_takes_them_over() {
    // The spout with its ledger; then with the ledger elsewhere, and that one is taken over.
    for (ackers, gone) in [([0], 0), ([2], 2)] {
        let parts = vec![part("a", &[0], &[], &[]), part("b", &[1], &["a"], &[]), part("c", &[1], &["b"], &[])];
        let mut all = Cluster::new(parts, &ackers, 3, LONG);
        all.join_all();
        all.emit(10);
        all.until("all is well", |all| all.world.acked() == 10);
        all.world.keep("c");
        all.emit(10);
        all.until("c keeps them", |all| all.world.seen("c") == 20);
        all.replace(gone);
        all.turns(SOON);
        all.world.release("c");
        all.emit(10);
        all.until("new trees are acked", |all| all.world.acked() == 20);
        let failed = all.world.failed.lock().unwrap().len();
        assert_eq!(
            failed,
            if gone == 0 { 0 } else { 10 },
            "a spout that is gone hears nothing; one whose ledger is gone fails all it had open"
        );
    }
}
