//! What a tree costs, in ns: `cargo test --release -p saetta-engine --lib ledger::figures -- --ignored --nocapture --test-threads 1`.
//!
//! The shapes of `benches/floors`, "Ack XOR tracking": one tree is open + init + an intermediate ack + the completing ack + close, in rows of
//! 64 trees that are opened while the 64 oldest, in a slightly mixed order, are acked.

use super::{AckBatch, Edges, Ledger, Root, Slots, Step};
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

const ROW: usize = 64;
const T: u64 = 30_000_000_000;

/// The shortest of some rounds of `round`, which does `n` things: the others were disturbed.
fn best_ns(n: u64, mut round: impl FnMut()) -> f64 {
    (0..7)
        .map(|_| {
            let begin = Instant::now();
            round();
            begin.elapsed().as_nanos() as f64 / n as f64
        })
        .fold(f64::MAX, f64::min)
}

fn trees(pending: usize, intermediate: bool, fused: bool, expire: bool) -> f64 {
    let mut slots = Slots::new(1, (pending + ROW) as u32, T, 1);
    let mut ledger = Ledger::new(1);
    let mut edges = Edges::new(1);
    let mut mix = Edges::new(2);
    let mut open: VecDeque<[(Root, u64); ROW]> = VecDeque::new();
    let none = [(Root::new(1, 0, 0), 0); ROW];
    let (mut id, mut now) = (0, 0);
    let rows = 20_000;
    best_ns((rows * ROW) as u64, || {
        for _ in 0..rows {
            let mut row = none;
            for tree in &mut row {
                let edge = edges.edge();
                let root = slots.open(id, now).expect("room");
                if fused {
                    ledger.init(root, edge, 1);
                }
                (id, now, *tree) = (id + 1, now + 30, (root, edge));
            }
            if !fused {
                for (root, edge) in row {
                    ledger.init(root, edge, 1);
                }
            }
            open.push_back(row);
            if expire {
                assert_eq!(slots.expire(now, 100, |_, _| ()), 0);
            }
            if open.len() * ROW > pending {
                let mut row = open.pop_front().expect("more than none");
                let turn = mix.bits() as usize % ROW;
                row.rotate_left(turn);
                row.swap(turn, ROW / 2);
                if intermediate {
                    for (root, edge) in &mut row {
                        let next = edges.edge();
                        assert_eq!(ledger.ack(*root, *edge ^ next, 1), Step::Open);
                        *edge = next;
                    }
                }
                for (root, edge) in row {
                    if ledger.ack(root, edge, 0) == Step::Complete {
                        black_box(slots.close(root));
                    }
                }
            }
        }
    })
}

#[test]
#[ignore = "a measurement"]
fn ns_of_a_tree() {
    let mut edges = Edges::new(1);
    println!(
        "edge                                   {:5.2}",
        best_ns(10_000_000, || (0..10_000_000).for_each(|_| _ = black_box(edges.edge())))
    );
    for pending in [1_000, 100_000, 1_000_000] {
        println!("{pending:>8} pending, 1 ack              {:5.2}", trees(pending, false, true, false));
        println!("{pending:>8} pending, 2 acks             {:5.2}", trees(pending, true, true, false));
        println!("{pending:>8} pending, 2 acks, expire     {:5.2}", trees(pending, true, true, true));
        println!("{pending:>8} pending, 2 acks, late init  {:5.2}", trees(pending, true, false, false));
    }
    for spread in [1, 4, 16] {
        let mut batch = AckBatch::new(64);
        let ns = best_ns(10_000_000, || {
            for i in 0..10_000_000u32 {
                if !batch.push(Root::new(1, i / 4 * 4 + i % spread, 1), i as u64, 1) {
                    black_box(batch.entries());
                    batch.clear();
                }
            }
        });
        println!("batch push, roots interleaved by {spread:2}    {ns:5.2}");
    }
    let mut full = Slots::new(1, 1 << 20, T, 1);
    (0..1 << 20).for_each(|id| assert!(full.open(id, id / 4).is_some()));
    let old = full.open(0, 0);
    assert_eq!(old, None);
    let begin = Instant::now();
    let n = full.expire(2 * T, usize::MAX, |_, _| ());
    println!("expire, ns a tree of {n}           {:5.2}", begin.elapsed().as_nanos() as f64 / n as f64);
}
