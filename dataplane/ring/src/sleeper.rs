//! How a core loop sleeps without losing a wake-up, and how a producer wakes it only when it sleeps.
//!
//! One word per loop, in memory all its producers see.
//! Consumer: set the word, fence, poll every source once more, wait. Producer: publish, fence, read the word, once a batch.
//! The two fences order "word set" against "bytes published": at least one side sees the other. Fences rather than SeqCst
//! accesses, since those are what loom models.
//! Loom model: `tests` below (two producers, one sleeper).

use crate::sync::{AtomicU32, Ordering, fence};
use crossbeam_utils::CachePadded;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// The word itself, without the means of waking.
pub struct SleepWord(CachePadded<AtomicU32>);

impl Default for SleepWord {
    fn default() -> Self {
        SleepWord(CachePadded::new(AtomicU32::new(AWAKE)))
    }
}

impl SleepWord {
    /// Consumer: from here on producers will wake. Poll every source once more before waiting.
    #[inline]
    pub fn about_to_sleep(&self) {
        // Relaxed: ordered by the fence below against the polls that follow.
        self.0.store(ASLEEP, Ordering::Relaxed);
        // Pairs with the fence in `must_wake`.
        fence(Ordering::SeqCst);
    }

    /// Consumer: awake again, for whatever reason.
    #[inline]
    pub fn awake(&self) {
        self.0.store(AWAKE, Ordering::Relaxed);
    }

    /// Producer, after publishing: true = the consumer sleeps and this caller is the one to wake it.
    #[inline]
    pub fn must_wake(&self) -> bool {
        // Pairs with the fence in `about_to_sleep`.
        fence(Ordering::SeqCst);
        // One of several producers takes the duty; the others need not wake as well.
        self.0.load(Ordering::Relaxed) == ASLEEP && self.0.swap(AWAKE, Ordering::Relaxed) == ASLEEP
    }
}

#[cfg(not(loom))]
pub use with_event::Sleeper;

#[cfg(not(loom))]
mod with_event {
    use super::SleepWord;
    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::time::Duration;

    /// The word and an eventfd: what producers of a loop hold an `Arc` of.
    pub struct Sleeper {
        word: SleepWord,
        event: OwnedFd,
    }

    impl Sleeper {
        /// Errors: no descriptor left.
        pub fn new() -> std::io::Result<Self> {
            Ok(Sleeper { word: SleepWord::default(), event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
        }

        /// Producer: call after publishing, once per batch. Costs a fence and a load; 9 us when the consumer sleeps.
        #[inline]
        pub fn notify(&self) {
            if self.word.must_wake() {
                self.wake();
            }
        }

        /// Wakes whoever waits on the event, asleep or about to.
        #[cold]
        pub fn wake(&self) {
            // A full counter (EAGAIN) means that a wake-up is already pending, which is all that is wanted.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }

        /// Consumer: see [`SleepWord::about_to_sleep`].
        #[inline]
        pub fn about_to_sleep(&self) {
            self.word.about_to_sleep();
        }

        /// Consumer: awake again; takes pending wake-ups off the event.
        pub fn awake(&self) {
            self.word.awake();
            let mut count = [0u8; 8];
            // EAGAIN: nothing was pending.
            let _ = rustix::io::read(&self.event, &mut count);
        }

        /// Consumer: waits for a wake-up or until `timeout` is over. Call between `about_to_sleep` and `awake`.
        pub fn wait(&self, timeout: Duration) {
            let timeout = timeout.try_into().expect("a wait is bounded by seconds");
            // EINTR and readiness alike: the caller polls its sources anyway.
            let _ = poll(&mut [PollFd::new(&self.event, PollFlags::IN)], Some(&timeout));
        }
    }

    impl AsFd for Sleeper {
        /// The event, for a loop that waits in one place for this and for its links.
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.event.as_fd()
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::sync::Arc;
        use std::sync::atomic::{AtomicU64, Ordering};

        #[test]
        fn no_wake_up_is_lost_in_many_rounds() {
            const ROUNDS: u64 = 20_000;
            let sleeper = Arc::new(Sleeper::new().unwrap());
            let published = Arc::new(AtomicU64::new(0));
            let consumed = Arc::new(AtomicU64::new(0));
            let (s, p, c) = (sleeper.clone(), published.clone(), consumed.clone());
            let consumer = std::thread::spawn(move || {
                while c.load(Ordering::Relaxed) < ROUNDS {
                    let seen = p.load(Ordering::Acquire);
                    if seen > c.load(Ordering::Relaxed) {
                        c.store(seen, Ordering::Release);
                        continue;
                    }
                    s.about_to_sleep();
                    if p.load(Ordering::Acquire) == c.load(Ordering::Relaxed) {
                        // A lost wake-up would sit here for the full time and fail the bound below.
                        s.wait(Duration::from_secs(30));
                    }
                    s.awake();
                }
            });
            let start = std::time::Instant::now();
            for round in 1..=ROUNDS {
                published.store(round, Ordering::Release);
                sleeper.notify();
                while consumed.load(Ordering::Acquire) < round {
                    std::thread::yield_now();
                    assert!(start.elapsed() < Duration::from_secs(25), "round {round}: the wake-up was lost");
                }
            }
            consumer.join().unwrap();
        }
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::Arc;
    use loom::sync::{Condvar, Mutex};

    /// An eventfd: a flag that stays set until a waiter takes it.
    #[derive(Default)]
    struct Event(Mutex<bool>, Condvar);

    impl Event {
        fn notify(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }
        fn wait(&self) {
            let mut set = self.0.lock().unwrap();
            while !*set {
                set = self.1.wait(set).unwrap();
            }
            *set = false;
        }
    }

    /// Two producers publish and notify once each; the consumer sleeps between. In no interleaving does it sleep for ever.
    #[test]
    fn two_producers_and_one_sleeper_never_lose_a_wake_up() {
        // Three preemptions reach every race of three threads that the protocol is about; unbounded takes hours.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let word = Arc::new(SleepWord::default());
            let event = Arc::new(Event::default());
            let published = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
            let producers: Vec<_> = (0..2)
                .map(|i| {
                    let (word, event, published) = (word.clone(), event.clone(), published.clone());
                    loom::thread::spawn(move || {
                        published[i].store(1, Ordering::Release);
                        if word.must_wake() {
                            event.notify();
                        }
                    })
                })
                .collect();
            let all = || published.iter().all(|p| p.load(Ordering::Acquire) == 1);
            while !all() {
                word.about_to_sleep();
                if !all() {
                    event.wait();
                }
                word.awake();
            }
            for p in producers {
                p.join().unwrap();
            }
        });
    }
}
