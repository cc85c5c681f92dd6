//! TCP over loopback by non-blocking `send` and `recv`, spinning: what no link that epoll carries can go below.
//!
//! Before: `two_processes` hands one end over. After: a round trip of one message.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use saetta_harness::{Latency, Result};

use crate::message::{self, Reader, SMALL, message_bytes};
use crate::two_processes::{Patience, between, tcp_pair};

/// Rounds before the first stamp.
const WARM_UP_ROUNDS: u64 = 10_000;
const BYTES: usize = message_bytes(SMALL);

/// Receives one message. False at the peer's end.
fn receive(socket: &OwnedFd, message: &mut [u8; BYTES], patience: &mut Patience<'_>) -> Result<bool> {
    let mut have = 0;
    while have < BYTES {
        match recv(socket, &mut message[have..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Ok(false),
            Ok((n, _)) => have += n,
            Err(Errno::AGAIN | Errno::INTR) => patience.wait()?,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(true)
}

/// Sends one message: with one in flight there is room for it.
fn answer(socket: &OwnedFd, message: &[u8; BYTES]) -> Result<()> {
    match send(socket, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)? {
        BYTES => Ok(()),
        n => Err(format!("{n} of {BYTES} bytes sent").into()),
    }
}

/// Round trip of one 100-byte message, one in flight, both sides spinning.
///
/// # Errors
/// When a core or the other process cannot be had.
pub fn spin_round_trip(cores: (usize, usize), rounds: u64) -> Result<Latency> {
    let ((here, there), all) = (tcp_pair()?, rounds + WARM_UP_ROUNDS);
    let near = move |patience: &mut Patience<'_>| {
        let (clock, mut latency, mut reader) = (quanta::Clock::new(), Latency::new(), Reader::new(false));
        let (mut out, mut into) = ([0; BYTES], [0; BYTES]);
        for round in 0..all {
            let start = clock.raw();
            message::write(&mut out, round, Some(&[7; SMALL]));
            answer(&here, &out)?;
            if !receive(&here, &mut into, patience)? {
                return Err("the far side has closed the connection".into());
            }
            reader.read(&into)?;
            let ns = clock.delta_as_nanos(start, clock.raw());
            if round >= WARM_UP_ROUNDS {
                latency.record_ns(ns);
            }
        }
        Ok(latency)
    };
    Ok(between(cores, "spin-ping", there, &[all], near)?.0)
}

pub(crate) fn far_ping(socket: OwnedFd, numbers: &[u64]) -> Result<Vec<f64>> {
    let all = *numbers.first().ok_or("how many rounds?")?;
    let (mut reader, mut patience, mut message) = (Reader::new(false), Patience::endless(), [0; BYTES]);
    while reader.next < all && receive(&socket, &mut message, &mut patience)? {
        reader.read(&message)?;
        answer(&socket, &message)?;
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use saetta_harness::pin::two_cores;

    #[test]
    fn every_round_is_stamped_once() {
        let Ok(cores) = two_cores() else { return eprintln!("one core only: no two-core floor to take") };
        assert_eq!(spin_round_trip(cores, 200).expect("two cores").count(), 200);
        assert!(spin_round_trip((cores.0, 1000), 200).is_err(), "a core that is not there");
    }
}
