//! The pulse of workers: a thread that asks each of them, all the time, whether its executed count rises.
//!
//! Before: a worker's port, and the topology's key from nimbus's directory. After: how many windows each worker passed, its longest stall, or why
//! it failed. Asks the worker itself over its port, so neither nimbus nor supervisor nor ZooKeeper needs to live.

use crate::look::Worker;
use crate::wait::until;
use saetta_transport::{Key, ProbeReply, probe};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time a count may stand still.
pub const STALL_MAX: Duration = Duration::from_secs(5);
/// Shortest window; it ends as soon after this as the count has risen.
const WINDOW_MIN: Duration = Duration::from_secs(1);
/// Between two questions to one worker.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// Longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// See the head of this file. Dropping it ends the threads.
#[derive(Debug)]
pub struct Pulse {
    watched: Vec<Watched>,
    ended: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Watched {
    port: u16,
    seen: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default, Clone)]
struct Seen {
    windows: u64,
    longest_stall: Duration,
    last: Option<(u64, u64)>,
    /// Questions without an answer: seconds since the first question, and why.
    unanswered: Vec<(f64, String)>,
    failed: Option<String>,
}

/// The key of a topology, from the directory of the nimbus that made it.
pub(crate) fn key(nimbus_dir: &Path, id: &str) -> [u8; 32] {
    let path = nimbus_dir.join("keys").join(id);
    let key = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    key.try_into().expect("a key has 32 bytes")
}

/// Asks the worker on `port` once.
pub(crate) fn ask(port: u16, topology: &str, key: [u8; 32]) -> std::io::Result<ProbeReply> {
    let key = Key::new(key).expect("a key is not all zero");
    probe(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), &key, topology, ANSWER_MAX)
}

impl Pulse {
    /// Watches these workers from now on.
    pub fn of(workers: &[Worker], topology: &str, key: [u8; 32]) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let watched = workers
            .iter()
            .map(|w| {
                let (port, topology, seen, ended) = (w.port, topology.to_owned(), Arc::<Mutex<Seen>>::default(), ended.clone());
                let shared = seen.clone();
                let thread = std::thread::spawn(move || feel(port, &topology, key, &shared, &ended));
                Watched { port, seen, thread: Some(thread) }
            })
            .collect();
        Pulse { watched, ended }
    }

    /// Waits until every worker has passed `n` more windows, in each of which its count rose. Panics as soon as one has failed.
    #[track_caller]
    pub fn passes(&self, n: u64) {
        // All targets first: the workers pass their windows beside each other.
        let targets: Vec<u64> = self.watched.iter().map(|w| lock(&w.seen).windows + n).collect();
        for (w, target) in self.watched.iter().zip(targets) {
            until(&format!("worker on port {} passes {n} windows", w.port), (WINDOW_MIN + STALL_MAX) * n as u32, || {
                let seen = lock(&w.seen).clone();
                assert!(seen.failed.is_none(), "worker on port {}: {}", w.port, seen.failed.unwrap_or_default());
                if seen.windows >= target { Ok(()) } else { Err(format!("{} of {target}, {:?}", seen.windows, seen.last)) }
            });
        }
    }

    /// Ends it: the longest stall of each worker by port. What was not answered is printed.
    #[track_caller]
    pub fn end(mut self) -> Vec<(u16, Duration)> {
        self.stop();
        self.watched
            .iter()
            .map(|w| {
                let seen = lock(&w.seen).clone();
                assert!(seen.failed.is_none(), "worker on port {}: {}", w.port, seen.failed.unwrap_or_default());
                for (secs, why) in &seen.unanswered {
                    println!("worker on port {}: no answer {secs:.1} s after the first question: {why}", w.port);
                }
                (w.port, seen.longest_stall)
            })
            .collect()
    }

    fn stop(&mut self) {
        self.ended.store(true, Ordering::Release);
        for w in &mut self.watched {
            if let Some(thread) = w.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().expect("nothing panics while it holds this")
}

fn feel(port: u16, topology: &str, key: [u8; 32], seen: &Mutex<Seen>, ended: &AtomicBool) {
    let (mut rose, mut window, mut rose_in_window) = (Instant::now(), Instant::now(), false);
    let began = Instant::now();
    while !ended.load(Ordering::Acquire) {
        let answer = ask(port, topology, key);
        let now = Instant::now();
        let mut seen = lock(seen);
        let trouble = match answer {
            Ok(reply) => {
                if let Some((start, executed)) = seen.last {
                    if start != reply.start {
                        seen.failed = Some(format!("it was started again: start {start}, now {}", reply.start));
                        return;
                    }
                    if reply.executed > executed {
                        seen.longest_stall = seen.longest_stall.max(now - rose);
                        (rose, rose_in_window) = (now, true);
                    }
                } else {
                    rose = now;
                }
                seen.last = Some((reply.start, reply.executed));
                format!("executed stands at {}", reply.executed)
            }
            Err(e) => {
                seen.unanswered.push(((now - began).as_secs_f64(), e.to_string()));
                e.to_string()
            }
        };
        if now - rose > STALL_MAX {
            seen.failed = Some(format!("no rise in {:.1} s: {trouble}", (now - rose).as_secs_f64()));
            return;
        }
        if rose_in_window && now - window >= WINDOW_MIN {
            seen.windows += 1;
            (window, rose_in_window) = (now, false);
        }
        drop(seen);
        std::thread::sleep(ASK_EVERY);
    }
}
