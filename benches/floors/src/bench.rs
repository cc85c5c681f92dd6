//! The floors as samples: each function takes one sample on two pinned cores and returns it.
//!
//! Before: a suite calls one as a case. After: `saetta_harness` puts it beside ours.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use saetta_harness::pin::{PinError, pin_to_core};
use saetta_harness::{Latency, Result};

use crate::flag_ring;
use crate::one_to_one::{self, Item};

/// Items per publish: line transfer saturates at 16 to 64.
pub const RING_BATCH: usize = 64;
/// Items a ring holds.
pub const RING_CAPACITY: usize = 1024;
/// Items a ring holds whose slots stay in the first-level cache: a third to a half faster for one item at a time.
pub const SMALL_RING_CAPACITY: usize = 64;
/// Rounds before the first stamp: caches, branch predictors and the pages of the histogram are warm.
const WARM_UP_ROUNDS: u64 = 10_000;

const _: () = assert!(RING_BATCH * 2 <= RING_CAPACITY, "a batch must never fill a ring");

/// Runs `near` on the first core and `far` on the second, both pinned before either starts. `stop` is set when one of them could not be pinned.
pub(crate) fn on_two_cores<T: Send, U: Send>(
    cores: (usize, usize),
    near: impl FnOnce(&AtomicBool) -> T + Send,
    far: impl FnOnce(&AtomicBool) -> U + Send,
) -> Result<(T, U)> {
    let stop = AtomicBool::new(false);
    let ready = AtomicU64::new(0);
    // Both arrive before either leaves, so that neither runs ahead of the other's pinning.
    let enter = |core: usize| -> std::result::Result<(), PinError> {
        let pinned = pin_to_core(core);
        if pinned.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        ready.fetch_add(1, Ordering::AcqRel);
        while ready.load(Ordering::Acquire) < 2 {
            std::thread::yield_now();
        }
        pinned
    };
    std::thread::scope(|scope| {
        let far = scope.spawn(|| enter(cores.1).map(|()| far(&stop)));
        let near = scope.spawn(|| enter(cores.0).map(|()| near(&stop)));
        let (far, near) = (far.join().expect("far side"), near.join().expect("near side"));
        let (far, near) = (far?, near?);
        Ok((near, far))
    })
}

/// One-to-one ring, 64-byte items, batches of [`RING_BATCH`], capacity [`RING_CAPACITY`]: million items a second.
///
/// # Errors
/// When a core cannot be had.
pub fn ring_throughput(cores: (usize, usize), items: u64) -> Result<f64> {
    let (mut producer, mut consumer) = one_to_one::ring::<Item>(RING_CAPACITY);
    let (took, ()) = on_two_cores(
        cores,
        move |stop| {
            let start = Instant::now();
            let mut put = 0;
            while put < items && !stop.load(Ordering::Relaxed) {
                let n =
                    producer.push_batch(RING_BATCH.min(usize::try_from(items - put).unwrap_or(RING_BATCH)), |i| Item([put + i as u64; 8]));
                put += n as u64;
                if n == 0 {
                    std::hint::spin_loop();
                }
            }
            // The rate is counted to the last item taken: wait until the ring is empty again.
            while !stop.load(Ordering::Relaxed) && !producer.is_empty() {
                std::hint::spin_loop();
            }
            start.elapsed()
        },
        move |stop| {
            let (mut taken, mut sum) = (0, 0u64);
            while taken < items && !stop.load(Ordering::Relaxed) {
                let n = consumer.pop_batch(RING_BATCH, |item| sum = item.0.iter().fold(sum, |sum, word| sum.wrapping_add(*word)));
                taken += n as u64;
                if n == 0 {
                    std::hint::spin_loop();
                }
            }
            // Every word of every item was read, and nobody may leave that out.
            std::hint::black_box(sum);
        },
    )?;
    Ok(items as f64 / took.as_secs_f64() / 1e6)
}

/// One item there and back over two rings, one in flight, both sides spinning: `put` and `take` of the near side, `echo` of the far one.
fn round_trips(
    cores: (usize, usize),
    rounds: u64,
    mut put: impl FnMut(u64) + Send,
    mut take: impl FnMut() -> bool + Send,
    mut echo: impl FnMut() -> bool + Send,
) -> Result<Latency> {
    let all = rounds + WARM_UP_ROUNDS;
    let (latency, ()) = on_two_cores(
        cores,
        move |stop| {
            let clock = quanta::Clock::new();
            let mut latency = Latency::new();
            for round in 0..all {
                let start = clock.raw();
                put(round);
                while !take() {
                    if stop.load(Ordering::Relaxed) {
                        return latency;
                    }
                    std::hint::spin_loop();
                }
                let ns = clock.delta_as_nanos(start, clock.raw());
                if round >= WARM_UP_ROUNDS {
                    latency.record_ns(ns);
                }
            }
            latency
        },
        move |stop| {
            let mut echoed = 0;
            while echoed < all && !stop.load(Ordering::Relaxed) {
                if echo() {
                    echoed += 1;
                } else {
                    std::hint::spin_loop();
                }
            }
        },
    )?;
    Ok(latency)
}

/// Round trip of one 64-byte item over two one-to-one rings with cached indices that hold `capacity` items each ([`RING_CAPACITY`] is the
/// denominator of hops; [`SMALL_RING_CAPACITY`] shows what a ring inside the first-level cache would give).
///
/// # Errors
/// When a core cannot be had.
pub fn ring_round_trip(cores: (usize, usize), rounds: u64, capacity: usize) -> Result<Latency> {
    let (mut ping, mut far_ping) = one_to_one::ring::<Item>(capacity);
    let (mut far_pong, mut pong) = one_to_one::ring::<Item>(capacity);
    round_trips(
        cores,
        rounds,
        move |round| {
            ping.push_batch(1, |_| Item([round; 8]));
        },
        move || pong.pop_batch(1, |item| _ = std::hint::black_box(item.0.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word)))) == 1,
        // Slot to slot; the answer leaves before the question's slot is given back.
        move || far_ping.pop_batch(1, |item| _ = far_pong.push_batch(1, |_| *item)) == 1,
    )
}

/// Round trip of one 56-byte item over two rings whose slots hold payload and flag in one line.
///
/// # Errors
/// When a core cannot be had.
pub fn flag_ring_round_trip(cores: (usize, usize), rounds: u64) -> Result<Latency> {
    let (mut ping, mut far_ping) = flag_ring::ring(SMALL_RING_CAPACITY);
    let (mut far_pong, mut pong) = flag_ring::ring(SMALL_RING_CAPACITY);
    round_trips(
        cores,
        rounds,
        move |round| _ = ping.try_push([round; 7]),
        move || pong.try_pop().map(std::hint::black_box).is_some(),
        move || far_ping.try_pop().is_some_and(|item| far_pong.try_push(item)),
    )
}

/// Round trip of a bare cache line each way: what no queue can go below.
///
/// # Errors
/// When a core cannot be had.
pub fn cache_line_round_trip(cores: (usize, usize), rounds: u64) -> Result<Latency> {
    #[repr(align(128))]
    struct Line(AtomicU64);
    let (ping, pong) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let (ping, pong) = (&ping.0, &pong.0);
    // Each side owns its counter: on one line of this stack they would bounce too, at 50 ns a round. Release and Acquire pair as in a queue:
    // what was written before the line is visible behind it.
    let (mut awaited, mut next) = (1, 1);
    round_trips(
        cores,
        rounds,
        move |round| ping.store(round + 1, Ordering::Release),
        move || {
            let here = pong.load(Ordering::Acquire) == awaited;
            awaited += u64::from(here);
            here
        },
        move || {
            let here = ping.load(Ordering::Acquire) == next;
            if here {
                pong.store(next, Ordering::Release);
                next += 1;
            }
            here
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use saetta_harness::pin::two_cores;

    #[test]
    fn every_floor_gives_a_sample_of_the_size_asked_for() {
        let Ok(cores) = two_cores() else { return eprintln!("one core only: no two-core floor to take") };
        assert!(ring_throughput(cores, 100_000).expect("two cores") > 0.0);
        assert_eq!(ring_round_trip(cores, 1000, RING_CAPACITY).expect("two cores").count(), 1000);
        for sample in [flag_ring_round_trip, cache_line_round_trip] {
            assert_eq!(sample(cores, 1000).expect("two cores").count(), 1000);
        }
    }

    #[test]
    fn a_core_that_is_not_there_ends_both_sides() {
        assert!(ring_throughput((0, 1000), 1_000).is_err());
        assert!(ring_round_trip((1000, 0), 1_000, RING_CAPACITY).is_err());
    }
}
