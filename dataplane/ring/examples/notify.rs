//! What a notification costs who publishes, with a fence on either side and with the consumer paying for both:
//! `cargo run --release -p saetta-ring --example notify`.
//!
//! Nobody sleeps while producers are measured: it is the price of every batch that finds its reader awake. Then what the sleeper pays.
//! Cases interleaved, medians of seven. Figures and decision: docs/adr/0003.

use saetta_ring::{Barrier, Sleeper, ring};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const ROUNDS: usize = 7;
const NOTIFIES: u64 = 20_000_000;
const SLEEPS: u64 = 200_000;
const RING_BYTES: usize = 64 << 10;
/// One watermark of a lane.
const BATCH_BYTES: usize = 1024;
const BATCHES: u64 = 4_000_000;

type Case = fn(&Arc<Sleeper>) -> f64;

fn ns_each(n: u64, mut each: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..n {
        each();
    }
    start.elapsed().as_nanos() as f64 / n as f64
}

fn notify_alone(sleeper: &Arc<Sleeper>) -> f64 {
    ns_each(NOTIFIES, || black_box(sleeper).notify())
}

/// A store before it, as a publish is: a fence has to wait until that store has left for the cache.
fn publish_to_nobody(sleeper: &Arc<Sleeper>) -> f64 {
    let (mut producer, mut consumer) = ring(RING_BYTES).expect("a ring");
    let batch = [7u8; BATCH_BYTES];
    ns_each(BATCHES, || {
        assert!(producer.push(black_box(&batch)), "the ring is emptied each time");
        sleeper.notify();
        consumer.is_empty();
        consumer.release(BATCH_BYTES);
    })
}

/// Nanoseconds per batch through a ring to another thread that spins.
fn publish_to_a_reader(sleeper: &Arc<Sleeper>) -> f64 {
    let (mut producer, mut consumer) = ring(RING_BYTES).expect("a ring");
    let reader = std::thread::spawn(move || {
        let mut left = BATCHES as usize * BATCH_BYTES;
        while left > 0 {
            let n = consumer.readable().len();
            consumer.release(n);
            left -= n;
            std::hint::spin_loop();
        }
    });
    let batch = [7u8; BATCH_BYTES];
    let took = ns_each(BATCHES, || {
        while !producer.push(&batch) {
            std::hint::spin_loop();
        }
        sleeper.notify();
    });
    reader.join().expect("the reader ends when all has come");
    took
}

fn sleep_alone(sleeper: &Arc<Sleeper>) -> f64 {
    ns_each(SLEEPS, || {
        sleeper.about_to_sleep();
        sleeper.awake();
    })
}

/// With another thread of the process running, which the barrier has to interrupt.
fn sleep_beside_another(sleeper: &Arc<Sleeper>) -> f64 {
    let over = Arc::new(AtomicBool::new(false));
    let seen = over.clone();
    let other = std::thread::spawn(move || {
        while !seen.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    let took = sleep_alone(sleeper);
    over.store(true, Ordering::Relaxed);
    other.join().expect("the other thread ends when told");
    took
}

fn main() {
    let sleepers = [("fence on either side", Sleeper::with_fences()), ("consumer pays for both", Sleeper::new())]
        .map(|(name, sleeper)| (name, Arc::new(sleeper.expect("an eventfd"))));
    if sleepers[1].1.barrier() == Barrier::ByBoth {
        println!("this kernel refuses membarrier: both rows are the same");
    }
    let cases: [(&str, Case); 5] = [
        ("notify", notify_alone),
        ("push 1 KiB + notify, same thread", publish_to_nobody),
        ("push 1 KiB + notify, to a thread", publish_to_a_reader),
        ("about_to_sleep + awake, alone", sleep_alone),
        ("about_to_sleep + awake, beside a thread", sleep_beside_another),
    ];
    println!("{:<42} {:>24} {:>24}", "ns, median of 7", sleepers[0].0, sleepers[1].0);
    for (name, case) in cases {
        let mut took: [Vec<f64>; 2] = Default::default();
        for _ in 0..ROUNDS {
            for (took, (_, sleeper)) in took.iter_mut().zip(&sleepers) {
                took.push(case(sleeper));
            }
        }
        took.iter_mut().for_each(|t| t.sort_by(f64::total_cmp));
        println!("{name:<42} {:>24.1} {:>24.1}", took[0][ROUNDS / 2], took[1][ROUNDS / 2]);
    }
}
