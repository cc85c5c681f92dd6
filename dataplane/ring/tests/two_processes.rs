//! A shared ring between two processes: this test binary starts itself again and hands the memory over a Unix socket.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use saetta_ring::shared::{SharedPair, create, open};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Which part the child plays; absent = this is the parent.
const PART: &str = "SHARED_RING_PART";
const CAPACITY: usize = 16 << 10;
/// Longer than any of this takes on a healthy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A lost wake-up would sit here for so long.
const WAIT: Duration = Duration::from_secs(20);
/// Bytes sent through the ring: it wraps a few hundred times.
const TOTAL: u64 = 4 << 20;
/// Sleep and wake, each way.
const ROUNDS: u64 = 5_000;

/// One side: rings, whom to wake, by whom to be woken.
struct End {
    pair: SharedPair,
    peer: OwnedFd,
    own: OwnedFd,
}

impl End {
    /// Writes all of it, and wakes the other side if it sleeps.
    fn send(&mut self, bytes: &[u8]) {
        assert_eq!(self.pair.out.write_some(bytes), Ok(bytes.len()));
        if self.pair.sleep.peer_sleeps() {
            rustix::io::write(&self.peer, &1u64.to_ne_bytes()).unwrap();
        }
    }

    /// Eight bytes, slept for if they are not there. Panics when nobody wakes us.
    fn receive(&mut self) -> u64 {
        let start = Instant::now();
        loop {
            let seen = self.pair.inn.readable().unwrap();
            if let Some(value) = seen.get(..8) {
                let value = u64::from_le_bytes(value.try_into().unwrap());
                self.pair.inn.release(8);
                return value;
            }
            self.pair.sleep.about_to_sleep();
            if self.pair.inn.is_empty().unwrap() {
                let timeout = WAIT.try_into().unwrap();
                poll(&mut [PollFd::new(&self.own, PollFlags::IN)], Some(&timeout)).unwrap();
                assert!(start.elapsed() < WAIT, "the wake-up was lost");
            }
            self.pair.sleep.awake();
            let _ = rustix::io::read(&self.own, &mut [0; 8]);
        }
    }
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// Starts the child, hands it memory and both events.
fn start(part: &str) -> (End, Child) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--include-ignored", "--nocapture"])
        .env(PART, part)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (file, pair) = create(CAPACITY).unwrap();
    let (peer, own) = (event(), event());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [file.as_fd(), peer.as_fd(), own.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(&ours, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL).unwrap();
    (End { pair, peer, own }, child)
}

fn receive_end(socket: BorrowedFd<'_>) -> End {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let fds: Vec<OwnedFd> = control
        .drain()
        .flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
            _ => vec![],
        })
        .collect();
    let [file, own, peer] = fds.try_into().unwrap();
    End { pair: open(file, CAPACITY).unwrap(), peer, own }
}

/// Waits for the child's end, and for it to be a good one.
fn finish(mut child: Child) {
    let start = Instant::now();
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return assert!(status.success(), "the child: {status}"),
            None if start.elapsed() > PATIENCE => {
                child.kill().unwrap();
                panic!("the child does not end");
            }
            None => std::thread::yield_now(),
        }
    }
}

#[test]
#[ignore = "started by the tests below in a process of its own"]
fn child() {
    let Ok(part) = std::env::var(PART) else { return };
    let mut end = receive_end(std::io::stdin().as_fd());
    match part.as_str() {
        "read" => {
            read_all(&mut end);
            end.send(&TOTAL.to_le_bytes());
        }
        "echo" => {
            for _ in 0..ROUNDS {
                let value = end.receive();
                end.send(&value.to_le_bytes());
            }
        }
        // The parent reads; this ends by its kill.
        "die" => {
            let start = Instant::now();
            while start.elapsed() < PATIENCE {
                end.pair.out.write_some(&[7; 1000]).unwrap();
            }
        }
        other => panic!("{other}"),
    }
}

/// Byte number `i`.
fn byte(i: u64) -> u8 {
    (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

fn read_all(end: &mut End) {
    let (mut at, mut release, start) = (0, 1, Instant::now());
    while at < TOTAL {
        assert!(start.elapsed() < PATIENCE, "{at} bytes came");
        let seen = end.pair.inn.readable().unwrap();
        // In portions of every size, so that head and tail meet everywhere.
        release = release * 7 % 4093;
        let n = seen.len().min(release);
        for (i, &seen) in seen[..n].iter().enumerate() {
            assert_eq!(seen, byte(at + i as u64), "byte {}", at + i as u64);
        }
        end.pair.inn.release(n);
        at += n as u64;
        if n == 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn bytes_cross_two_processes_whole_and_in_order() {
    let (mut end, child) = start("read");
    let (mut at, mut portion, start) = (0, 1, Instant::now());
    let mut bytes = Vec::new();
    while at < TOTAL {
        assert!(start.elapsed() < PATIENCE, "{at} bytes went");
        portion = portion * 5 % 9973;
        bytes.clear();
        bytes.extend((at..TOTAL.min(at + portion)).map(byte));
        let n = end.pair.out.write_some(&bytes).unwrap();
        at += n as u64;
        if n == 0 {
            std::thread::yield_now();
        }
    }
    assert_eq!(end.receive(), TOTAL, "the child has seen all of it");
    assert_eq!(end.pair.out.unread(), Ok(0));
    finish(child);
}

#[test]
fn two_processes_that_sleep_and_wake_each_other_lose_no_wake_up() {
    let (mut end, child) = start("echo");
    for round in 0..ROUNDS {
        // Moves the two sides against each other: the write falls before, into and after the other one's going to sleep.
        for _ in 0..(round % 256) * 8 {
            std::hint::spin_loop();
        }
        end.send(&round.to_le_bytes());
        assert_eq!(end.receive(), round);
    }
    finish(child);
}

#[test]
fn a_process_killed_while_it_writes_leaves_whole_bytes_and_no_error() {
    for round in 0..20 {
        let (mut end, mut child) = start("die");
        let (mut seen, start) = (0, Instant::now());
        while seen < 100_000 + round * 10_000 {
            assert!(start.elapsed() < PATIENCE, "{seen} bytes came");
            let n = end.pair.inn.readable().unwrap().len();
            seen += n;
            end.pair.inn.release(n);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let left = end.pair.inn.readable().unwrap();
        assert!(left.iter().all(|&byte| byte == 7));
        let left = left.len();
        end.pair.inn.release(left);
        assert_eq!(end.pair.inn.is_empty(), Ok(true));
    }
}
