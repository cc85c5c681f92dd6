//! Round trip and streaming rate of the io_uring carrier over loopback TCP, beside raw non-blocking send/recv of the same run.
//! Prints figures, asserts none. `cargo run --release -p saetta-transport --example pingpong [-- CORE CORE]`

use saetta_transport::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const ROUNDS: usize = 50_000;
const STREAM: Duration = Duration::from_secs(2);
/// 100 bytes of payload.
const FRAME: [u8; 120] = {
    let mut f = [7; 120];
    [f[0], f[1], f[2], f[3]] = 100u32.to_le_bytes();
    f
};

#[derive(Default)]
struct Count {
    bytes: usize,
    ended: bool,
}

impl Inbound for Count {
    fn frames(&mut self, _: LinkId, frames: &[u8]) {
        self.bytes += frames.len();
    }
    fn credit(&mut self, _: LinkId, _: u32, _: u64) {}
    fn ended(&mut self, _: LinkId, _: LinkEnd) {
        self.ended = true;
    }
}

fn now_ns(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    if let Err(e) = rustix::thread::sched_setaffinity(None, &set) {
        println!("core {core}: {e}; this side runs anywhere");
    }
}

/// Two connected sockets, as the connector would give them.
fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (b, _) = listener.accept().unwrap();
    a.set_nodelay(true).unwrap();
    b.set_nodelay(true).unwrap();
    (a, b)
}

fn carrier(socket: TcpStream) -> (UringCarrier, LinkId) {
    let mut carrier = UringCarrier::new().unwrap_or_else(|e| {
        eprintln!("{e}");
        std::process::exit(1)
    });
    let ring = RING_BYTES_DEFAULT as u32;
    let peer = Peer { placement: 0, start: 0, index: 0, local_loop: 0, remote_loop: 0, local_ring_bytes: ring, remote_ring_bytes: ring };
    let link = carrier.add(OwnedFd::from(socket), peer, 0).unwrap();
    (carrier, link)
}

/// Answers each frame with one until the link ends.
fn echo(socket: TcpStream) {
    let start = Instant::now();
    let ((mut carrier, link), mut seen, mut answered) = (carrier(socket), Count::default(), 0);
    while !seen.ended {
        carrier.poll(now_ns(start), &mut seen);
        while answered < seen.bytes && carrier.stage(link, &FRAME) {
            answered += FRAME.len();
        }
        carrier.flush(now_ns(start));
    }
}

/// Takes frames until the link ends.
fn sink(socket: TcpStream) -> (usize, Counters) {
    let start = Instant::now();
    let ((mut carrier, _), mut seen) = (carrier(socket), Count::default());
    while !seen.ended {
        carrier.poll(now_ns(start), &mut seen);
        carrier.flush(now_ns(start));
    }
    (seen.bytes / FRAME.len(), *carrier.counters())
}

fn percentiles(what: &str, mut ns: Vec<u64>) {
    ns.sort_unstable();
    let at = |p: f64| ns[(ns.len() as f64 * p) as usize] as f64 / 1000.0;
    println!("{what:<28} p50 {:7.2} us  p99 {:7.2} us  p99.9 {:7.2} us  ({} round trips)", at(0.5), at(0.99), at(0.999), ns.len());
}

fn raw(cores: (usize, usize)) {
    let (mut a, mut b) = sockets();
    a.set_nonblocking(true).unwrap();
    b.set_nonblocking(true).unwrap();
    let take = |s: &mut TcpStream| {
        let (mut got, mut buffer) = (0, [0; FRAME.len()]);
        while got < FRAME.len() {
            match s.read(&mut buffer[got..]) {
                Ok(0) => return false,
                Ok(n) => got += n,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
        true
    };
    let other = std::thread::spawn(move || {
        pin(cores.1);
        while take(&mut b) {
            b.write_all(&FRAME).unwrap();
        }
    });
    let mut ns = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        a.write_all(&FRAME).unwrap();
        assert!(take(&mut a));
        ns.push(start.elapsed().as_nanos() as u64);
    }
    drop(a);
    other.join().unwrap();
    percentiles("raw send/recv, spinning", ns);
}

fn main() {
    let mut cores = std::env::args().skip(1).map(|a| a.parse().expect("a core number"));
    let cores = (cores.next().unwrap_or(0), cores.next().unwrap_or(1));
    pin(cores.0);
    raw(cores);

    let (a, b) = sockets();
    let other = std::thread::spawn(move || {
        pin(cores.1);
        echo(b);
    });
    let start = Instant::now();
    let ((mut side, link), mut seen, mut ns) = (carrier(a), Count::default(), Vec::with_capacity(ROUNDS));
    for round in 1..=ROUNDS {
        let sent = Instant::now();
        side.stage(link, &FRAME);
        side.flush(now_ns(start));
        while seen.bytes < round * FRAME.len() {
            side.poll(now_ns(start), &mut seen);
        }
        ns.push(sent.elapsed().as_nanos() as u64);
    }
    println!("{:<28} {:.2} a round trip on this side", "system calls", side.counters().enters as f64 / ROUNDS as f64);
    drop(side);
    other.join().unwrap();
    percentiles("io_uring carrier, spinning", ns);
    raw(cores);

    let (a, b) = sockets();
    let other = std::thread::spawn(move || {
        pin(cores.1);
        sink(b)
    });
    let start = Instant::now();
    let ((mut side, link), mut seen) = (carrier(a), Count::default());
    while start.elapsed() < STREAM {
        for _ in 0..2000 {
            if !side.stage(link, &FRAME) {
                break;
            }
        }
        side.poll(now_ns(start), &mut seen);
        side.flush(now_ns(start));
    }
    side.say_goodbye(link);
    while !seen.ended {
        side.flush(now_ns(start));
        side.poll(now_ns(start), &mut seen);
    }
    let seconds = start.elapsed().as_secs_f64();
    let (frames, there) = other.join().unwrap();
    let here = side.counters();
    println!(
        "streaming 100-byte payloads  {:.2} M frames/s, {:.0} MB/s; {:.1} KiB a segment; frames a system call: {:.0} out, {:.0} in",
        frames as f64 / seconds / 1e6,
        (frames * FRAME.len()) as f64 / seconds / 1e6,
        here.frame_bytes_out as f64 / here.segments_out as f64 / 1024.0,
        frames as f64 / here.enters as f64,
        frames as f64 / there.enters as f64,
    );
}
