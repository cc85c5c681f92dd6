//! A byte ring in memory that two processes share: what no link between workers of one host can go below.
//!
//! Before: `two_processes` hands the memory file over. After: a round trip of one message, or a stream of them published in groups.
//! A ring per direction, mapped twice, so that no message is cut; both sides spin.
//!
//! ```text
//! file:  [ head | tail ][ ring bytes ]   [ head | tail ][ ring bytes ]       head <= tail <= head + ring bytes
//!          near to far                     far to near
//! ```

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use saetta_harness::{Latency, Result};

use crate::message::{self, Reader, SMALL, message_bytes};
use crate::shared_ring::{Consumer, FILE_BYTES, Producer};
use crate::two_processes::{CpuShare, Meter, Patience, Streamed, Window, between};

/// Messages for one publish of a stream.
const GROUP: u32 = 256;
/// Messages between two looks at the clock.
const LOOK_EVERY: u64 = 16 * GROUP as u64;
/// Rounds before the first stamp.
const WARM_UP_ROUNDS: u64 = 10_000;
const BYTES: usize = message_bytes(SMALL);

fn file() -> Result<OwnedFd> {
    let file = memfd_create("saetta-floor", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, 2 * FILE_BYTES as u64)?;
    Ok(file)
}

/// Round trip of one 100-byte message, one in flight, both sides spinning.
///
/// # Errors
/// When a core, the memory or the other process cannot be had.
pub fn shared_memory_round_trip(cores: (usize, usize), rounds: u64) -> Result<Latency> {
    let (file, all) = (file()?, rounds + WARM_UP_ROUNDS);
    let (mut ping, mut pong) = (Producer::map(&file, 0)?, Consumer::map(&file, 1)?);
    let near = move |patience: &mut Patience<'_>| {
        let (clock, mut latency, mut reader) = (quanta::Clock::new(), Latency::new(), Reader::new(false));
        for round in 0..all {
            let start = clock.raw();
            ping.fill(BYTES, |place| message::write(place, round, Some(&[7; SMALL])));
            ping.publish();
            while pong.take(|bytes| reader.read(bytes))? == 0 {
                patience.wait()?;
            }
            let ns = clock.delta_as_nanos(start, clock.raw());
            if round >= WARM_UP_ROUNDS {
                latency.record_ns(ns);
            }
        }
        Ok(latency)
    };
    Ok(between(cores, "shared-ping", file, &[all], near)?.0)
}

pub(crate) fn far_ping(file: OwnedFd, numbers: &[u64]) -> Result<Vec<f64>> {
    let (mut ping, mut pong) = (Consumer::map(&file, 0)?, Producer::map(&file, 1)?);
    let all = *numbers.first().ok_or("how many rounds?")?;
    let (mut reader, mut patience) = (Reader::new(false), Patience::endless());
    while reader.next < all {
        let taken = ping.take(|bytes| {
            let read = reader.read(bytes)?;
            if read > 0 {
                pong.fill(BYTES, |place| place.copy_from_slice(&bytes[..BYTES]));
                pong.publish();
            }
            Ok(read)
        })?;
        if taken == 0 {
            patience.wait()?;
        }
    }
    Ok(Vec::new())
}

/// 100-byte messages one way, published every 256; the receiver parses each.
///
/// # Errors
/// As [`shared_memory_round_trip`].
pub fn shared_memory_stream(cores: (usize, usize), window: Window) -> Result<Streamed> {
    let file = file()?;
    let mut there = Producer::map(&file, 0)?;
    let near = move |patience: &mut Patience<'_>| {
        let (cpu, payload, mut number) = (CpuShare::start(), std::hint::black_box([7; SMALL]), 0);
        while !there.is_over() {
            for _ in 0..GROUP {
                while !there.fill(BYTES, |place| message::write(place, number, Some(&payload))) {
                    if there.is_over() {
                        return Ok(cpu.share());
                    }
                    // Behind the reader with a full ring: what is filled must be seen.
                    there.publish();
                    patience.wait()?;
                }
                number += 1;
            }
            there.publish();
        }
        Ok(cpu.share())
    };
    let (sender, told) = between(cores, "shared-stream", file, &window.numbers(), near)?;
    Streamed::new(sender, &told)
}

pub(crate) fn far_stream(file: OwnedFd, numbers: &[u64]) -> Result<Vec<f64>> {
    let mut here = Consumer::map(&file, 0)?;
    let (mut reader, mut patience, mut look) = (Reader::new(false), Patience::endless(), LOOK_EVERY);
    let mut meter = Meter::start(Window::of(numbers)?);
    loop {
        if here.take(|bytes| reader.read(bytes))? == 0 {
            patience.wait()?;
        } else if reader.next >= look {
            look = reader.next + LOOK_EVERY;
            if let Some(figures) = meter.look(reader.next) {
                here.end();
                return Ok(figures);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use saetta_harness::pin::two_cores;
    use std::time::Duration;

    #[test]
    fn round_trips_and_a_stream_give_samples() {
        let Ok(cores) = two_cores() else { return eprintln!("one core only: no two-core floor to take") };
        assert_eq!(shared_memory_round_trip(cores, 1000).expect("two cores").count(), 1000);
        let window = Window { warm_up: Duration::from_millis(5), measured: Duration::from_millis(20) };
        let streamed = shared_memory_stream(cores, window).expect("two cores");
        assert!(streamed.millions > 0.0 && streamed.cpu_ns > 0.0, "{streamed:?}");
    }
}
