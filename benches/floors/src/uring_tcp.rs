//! TCP over loopback under io_uring, with the flags of our carrier: what no link that io_uring carries can go below.
//!
//! Before: `two_processes` hands one end over. After: a round trip of one message, or a stream of them in writes of 64 KiB.
//! Both sides spin on the kernel's flag in shared memory.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;

use saetta_harness::{Latency, Result};

use crate::message::{self, LARGE, Reader, SMALL, message_bytes};
use crate::two_processes::{CpuShare, Meter, Patience, Streamed, Window, between, tcp_pair};
use crate::uring_socket::Socket;

/// Rounds before the first stamp.
const WARM_UP_ROUNDS: u64 = 10_000;
const BYTES: usize = message_bytes(SMALL);
/// Bytes of one write: as many whole messages as fit.
const WRITE_BYTES: usize = 64 << 10;
/// Bytes of one receive.
const READ_BYTES: usize = 256 << 10;

const _: () = assert!(message_bytes(LARGE) * 8 < WRITE_BYTES, "a write holds many messages");

/// Receives until a whole message is there. False at the peer's end.
fn one(socket: &mut Socket, patience: &mut Patience<'_>) -> Result<bool> {
    let mut have = 0;
    loop {
        match socket.look()?.received {
            None => patience.wait()?,
            Some(0) => return Ok(false),
            Some(n) if have + n < BYTES => {
                have += n;
                socket.receive(have)?;
                socket.submit()?;
            }
            Some(_) => return Ok(true),
        }
    }
}

/// Round trip of one 100-byte message, one in flight, both sides spinning.
///
/// # Errors
/// When a core, the ring or the other process cannot be had.
pub fn uring_round_trip(cores: (usize, usize), rounds: u64) -> Result<Latency> {
    let ((here, there), all) = (tcp_pair()?, rounds + WARM_UP_ROUNDS);
    let near = move |patience: &mut Patience<'_>| {
        let (clock, mut latency, mut reader) = (quanta::Clock::new(), Latency::new(), Reader::new(false));
        let mut socket = Socket::new(here, BYTES, BYTES)?;
        for round in 0..all {
            let start = clock.raw();
            message::write(socket.out(), round, Some(&[7; SMALL]));
            socket.receive(0)?;
            socket.send(BYTES)?;
            socket.submit()?;
            if !one(&mut socket, patience)? {
                return Err("the far side has closed the connection".into());
            }
            reader.read(socket.came())?;
            let ns = clock.delta_as_nanos(start, clock.raw());
            if round >= WARM_UP_ROUNDS {
                latency.record_ns(ns);
            }
        }
        Ok(latency)
    };
    Ok(between(cores, "uring-ping", there, &[all], near)?.0)
}

pub(crate) fn far_ping(socket: OwnedFd, numbers: &[u64]) -> Result<Vec<f64>> {
    let all = *numbers.first().ok_or("how many rounds?")?;
    let mut socket = Socket::new(socket, BYTES, BYTES)?;
    let (mut reader, mut patience) = (Reader::new(false), Patience::endless());
    socket.receive(0)?;
    socket.submit()?;
    while reader.next < all && one(&mut socket, &mut patience)? {
        let message: [u8; BYTES] = *socket.came().first_chunk().ok_or("a short buffer")?;
        reader.read(&message)?;
        socket.out().copy_from_slice(&message);
        socket.receive(0)?;
        socket.send(BYTES)?;
        socket.submit()?;
    }
    // The last answer goes before the socket does.
    while reader.next == all && !matches!(socket.look()?.received, Some(0)) {
        patience.wait()?;
    }
    Ok(Vec::new())
}

/// 100-byte messages one way in writes of 64 KiB; the receiver parses each.
///
/// # Errors
/// As [`uring_round_trip`].
pub fn uring_stream(cores: (usize, usize), window: Window) -> Result<Streamed> {
    stream::<SMALL>(cores, window, true)
}

/// 4 KiB messages, as [`uring_stream`]. `whole`: the sender writes the payload of each and the receiver reads a byte of each line; else
/// header and number only are written, and read.
///
/// # Errors
/// As [`uring_round_trip`].
pub fn uring_stream_large(cores: (usize, usize), window: Window, whole: bool) -> Result<Streamed> {
    stream::<LARGE>(cores, window, whole)
}

fn stream<const PAYLOAD: usize>(cores: (usize, usize), window: Window, whole: bool) -> Result<Streamed> {
    let (here, there) = tcp_pair()?;
    let near = move |patience: &mut Patience<'_>| {
        let bytes = message_bytes(PAYLOAD);
        let write = WRITE_BYTES / bytes * bytes;
        let mut socket = Socket::new(here, write, 1)?;
        let (cpu, payload, mut number) = (CpuShare::start(), std::hint::black_box([7; PAYLOAD]), 0);
        loop {
            for place in socket.out().chunks_exact_mut(bytes) {
                message::write(place, number, whole.then_some(&payload));
                number += 1;
            }
            socket.send(write)?;
            socket.submit()?;
            loop {
                match socket.look() {
                    Ok(done) if done.sent => break,
                    Ok(_) => patience.wait()?,
                    // The receiver has had enough.
                    Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => return Ok(cpu.share()),
                    Err(e) => return Err(e.into()),
                }
            }
        }
    };
    let [warm_up, measured] = window.numbers();
    let numbers = [warm_up, measured, u64::from(PAYLOAD > SMALL && whole)];
    let (sender, told) = between(cores, "uring-stream", there, &numbers, near)?;
    Streamed::new(sender, &told)
}

pub(crate) fn far_stream(socket: OwnedFd, numbers: &[u64]) -> Result<Vec<f64>> {
    let mut socket = Socket::new(socket, 1, READ_BYTES)?;
    let (mut reader, mut patience) = (Reader::new(numbers.get(2) == Some(&1)), Patience::endless());
    let mut meter = Meter::start(Window::of(numbers)?);
    let (mut have, mut reads) = (0, 0u32);
    loop {
        socket.receive(have)?;
        socket.submit()?;
        have += loop {
            match socket.look()?.received {
                None => patience.wait()?,
                Some(0) => return Err("the sender has closed the connection".into()),
                Some(n) => break n,
            }
        };
        let came = socket.came();
        let read = reader.read(&came[..have])?;
        // A piece of a message goes to the front.
        came.copy_within(read..have, 0);
        have -= read;
        reads += 1;
        if reads.is_multiple_of(16)
            && let Some(figures) = meter.look(reader.next)
        {
            return Ok(figures);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use saetta_harness::pin::two_cores;
    use std::time::Duration;

    #[test]
    fn round_trips_and_streams_give_samples() {
        let Ok(cores) = two_cores() else { return eprintln!("one core only: no two-core floor to take") };
        match uring_round_trip(cores, 200) {
            Ok(latency) => assert_eq!(latency.count(), 200),
            Err(e) if e.to_string().contains("not permitted") => return eprintln!("io_uring is refused here: no floor to take"),
            Err(e) => panic!("{e}"),
        }
        let window = Window { warm_up: Duration::from_millis(5), measured: Duration::from_millis(20) };
        for streamed in [uring_stream(cores, window), uring_stream_large(cores, window, true), uring_stream_large(cores, window, false)] {
            let streamed = streamed.expect("two cores");
            assert!(streamed.millions > 0.0 && streamed.cpu_ns > 0.0, "{streamed:?}");
        }
    }
}
