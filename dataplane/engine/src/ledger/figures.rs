//! What a tree costs, in ns: `cargo test --release -p saetta-engine --lib ledger::figures -- --ignored --nocapture`.
//!
//! The shapes of `benches/floors`, "Ack XOR tracking": one tree is open + init + an intermediate ack + the completing ack + close, in rows of
//! 64 trees that are opened while the 64 oldest, in a slightly mixed order, are acked. The floor beside it does the same on a bare ring:
//! slot = count & mask, one u64 each for id, generation and XOR, nothing that can be late, stale, lost or full.

use super::{Edges, Ledger, Root, Slots, Step};
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

const ROW: usize = 64;
/// Trees of one round: shorter than a slice of the scheduler.
const ROUND_ROWS: usize = 200;
const T: u64 = 30_000_000_000;

/// The shortest of many rounds of `n` things each: the others were disturbed.
fn best_ns(n: usize, mut round: impl FnMut()) -> f64 {
    let best = (0..400).map(|_| {
        let begin = Instant::now();
        round();
        begin.elapsed().as_nanos() as f64 / n as f64
    });
    best.fold(f64::MAX, f64::min)
}

/// What is measured: calls of one tree.
trait Table {
    fn open(&mut self, id: u64, now_ns: u64, edge: u64) -> Root;
    fn ack(&mut self, root: Root, xor: u64) -> Option<u64>;
    fn housekeep(&mut self, _now_ns: u64) {}
}

struct Ours {
    slots: Slots,
    ledger: Ledger,
}

impl Table for Ours {
    fn open(&mut self, id: u64, now_ns: u64, edge: u64) -> Root {
        let root = self.slots.open(id, now_ns).expect("room");
        self.ledger.init(root, edge, 1);
        root
    }

    fn ack(&mut self, root: Root, xor: u64) -> Option<u64> {
        (self.ledger.ack(root, xor, 1) == Step::Complete).then(|| self.slots.close(root))?
    }

    fn housekeep(&mut self, now_ns: u64) {
        assert_eq!(self.slots.expire(now_ns, 100, |_, _| ()), 0);
    }
}

struct Floor {
    slots: Vec<[u64; 3]>,
    next: usize,
}

impl Table for Floor {
    fn open(&mut self, id: u64, _: u64, edge: u64) -> Root {
        let index = self.next & (self.slots.len() - 1);
        self.next += 1;
        let generation = self.slots[index][0] + 1;
        self.slots[index] = [generation, id, edge];
        Root::of(1, index as u32, generation as u32)
    }

    fn ack(&mut self, root: Root, xor: u64) -> Option<u64> {
        let slot = &mut self.slots[root.slot() as usize];
        if slot[0] != root.generation() as u64 {
            return None;
        }
        slot[2] ^= xor;
        (slot[2] == 0).then_some(slot[1])
    }
}

fn ns_of(mut table: impl Table, pending: usize, intermediate: bool) -> f64 {
    let (mut edges, mut mix) = (Edges::new(1), Edges::new(2));
    let mut open: VecDeque<[(Root, u64); ROW]> = VecDeque::with_capacity(pending / ROW + 2);
    let (mut id, mut now) = (0, 0);
    let mut rows = |n: usize| {
        for _ in 0..n {
            let mut row = [(Root::of(1, 0, 0), 0); ROW];
            for tree in &mut row {
                let edge = edges.edge();
                *tree = (table.open(id, now, edge), edge);
                (id, now) = (id + 1, now + 30);
            }
            open.push_back(row);
            table.housekeep(now);
            if open.len() * ROW > pending {
                let mut row = open.pop_front().expect("more than none");
                row.swap(mix.below(ROW), ROW / 2);
                row.swap(mix.below(ROW), 0);
                if intermediate {
                    for (root, edge) in &mut row {
                        let next = edges.edge();
                        assert_eq!(table.ack(*root, *edge ^ next), None);
                        *edge = next;
                    }
                }
                for (root, edge) in row {
                    assert!(black_box(table.ack(root, edge)).is_some());
                }
            }
        }
    };
    rows(3 * pending / ROW + 1);
    best_ns(ROUND_ROWS * ROW, || rows(ROUND_ROWS))
}

#[test]
#[ignore = "a measurement"]
fn ns_of_a_tree() {
    let mut edges = Edges::new(1);
    println!("{:5.2} an edge", best_ns(10_000, || (0..10_000).for_each(|_| _ = black_box(edges.edge()))));
    for pending in [ROW, 1_000, 100_000, 1_000_000] {
        for (acks, intermediate) in [(1, false), (2, true)] {
            let floor = Floor { slots: vec![[0; 3]; (pending + ROW).next_power_of_two()], next: 0 };
            let ours = Ours { slots: Slots::new(1, (pending + ROW) as u32, T, 1), ledger: Ledger::new(1) };
            let floor = ns_of(floor, pending, intermediate);
            println!(
                "{:5.2} a tree of {acks} acks and as many edges, {pending} pending; floor {floor:5.2}",
                ns_of(ours, pending, intermediate)
            );
        }
    }
    let mut full = Slots::new(1, 1 << 20, T, 1);
    (0..1 << 20).for_each(|id| assert!(full.open(id, id / 4).is_some()));
    let begin = Instant::now();
    let n = full.expire(2 * T, usize::MAX, |_, _| ());
    println!("{:5.2} a tree that expires, of {n}", begin.elapsed().as_nanos() as f64 / n as f64);
}
