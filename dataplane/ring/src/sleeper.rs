//! How a core loop sleeps without losing a wake-up, and how a producer wakes it only when it sleeps.
//!
//! One word per loop, in memory all its producers see.
//! Consumer: set the word, barrier, poll every source once more, wait. Producer: publish, barrier, read the word, once a batch.
//! The two barriers order "word set" against "bytes published": at least one side sees the other. A producer passes here once a batch, a
//! consumer only when it has run out of work, so the consumer pays for both ([`Barrier::ByConsumer`]): before its last look it has the kernel
//! put a full fence into every running thread of the process (`membarrier`, private expedited), and the producer's barrier binds only the
//! compiler. Why that is enough: the kernel's fence falls somewhere into the producer's program. Before its read of the word: then the
//! word was set before the fence and the read sees it. After that read: then what it published stands before the fence, and the look that
//! follows `membarrier` sees it. A thread that does not run at that moment has passed a full fence in the scheduler.
//! Where the kernel refuses (seccomp, no such call), both sides pay a fence ([`Barrier::ByBoth`]); read once, when the sleeper is made.
//! `membarrier` private reaches one process: where the producer is another process (`shared.rs`) both sides pay.
//! Loom model: `tests` below (two producers, one sleeper) of `ByBoth`, in SeqCst fences, which are what loom models. It cannot run a fence in
//! another thread, so `ByConsumer` stands on the argument above and on tests with real threads.

use crate::sync::{AtomicU32, Ordering, fence};
use crossbeam_utils::CachePadded;
use std::sync::atomic::compiler_fence;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// Who executes the fences between "published" and "asleep".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// The consumer, for all threads of this process. Whoever sleeps must issue it between [`SleepWord::about_to_sleep`] and its last look.
    ByConsumer,
    /// Each side its own.
    ByBoth,
}

/// Consumer: the bare word says asleep from here on, for producers that fence as well.
#[inline]
pub(crate) fn fall_asleep(state: &AtomicU32) {
    // Relaxed: ordered by the fence below against the polls that follow.
    state.store(ASLEEP, Ordering::Relaxed);
    // Pairs with the producer's barrier between "published" and `take_duty`. With `ByConsumer` it serves the compiler and the caller's
    // `membarrier` the processors.
    fence(Ordering::SeqCst);
}

/// Consumer: the bare word says awake.
#[inline]
pub(crate) fn wake_up(state: &AtomicU32) {
    state.store(AWAKE, Ordering::Relaxed);
}

/// Producer, after its barrier: true = asleep, and this caller is the one to wake. Of several producers one takes the duty.
#[inline]
pub(crate) fn take_duty(state: &AtomicU32) -> bool {
    state.load(Ordering::Relaxed) == ASLEEP && state.swap(AWAKE, Ordering::Relaxed) == ASLEEP
}

/// The word itself, without the means of waking.
pub struct SleepWord(CachePadded<Word>);

/// One line: the producer that reads the word has the flag with it.
struct Word {
    state: AtomicU32,
    barrier: Barrier,
}

impl SleepWord {
    /// Awake.
    pub fn new(barrier: Barrier) -> Self {
        SleepWord(CachePadded::new(Word { state: AtomicU32::new(AWAKE), barrier }))
    }

    /// As given to `new`.
    pub fn barrier(&self) -> Barrier {
        self.0.barrier
    }

    /// Consumer: from here on producers will wake. Poll every source once more before waiting.
    #[inline]
    pub fn about_to_sleep(&self) {
        fall_asleep(&self.0.state);
    }

    /// Consumer: awake again, for whatever reason.
    #[inline]
    pub fn awake(&self) {
        wake_up(&self.0.state);
    }

    /// Producer, after publishing: true = the consumer sleeps and this caller is the one to wake it.
    #[inline]
    pub fn must_wake(&self) -> bool {
        // Pairs with the barrier in `fall_asleep`. A fence would wait here until what was published has left the store buffer.
        match self.0.barrier {
            Barrier::ByConsumer => compiler_fence(Ordering::SeqCst),
            Barrier::ByBoth => fence(Ordering::SeqCst),
        }
        take_duty(&self.0.state)
    }
}

#[cfg(not(loom))]
pub use with_event::Sleeper;

#[cfg(not(loom))]
mod with_event {
    use super::{Barrier, SleepWord};
    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
    use rustix::thread::{MembarrierCommand, membarrier};
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::time::Duration;

    /// The word and an eventfd: what producers of a loop hold an `Arc` of.
    pub struct Sleeper {
        word: SleepWord,
        event: OwnedFd,
    }

    impl Sleeper {
        /// Producers pay no fence where the kernel lets the consumer pay for both. Errors: no descriptor left.
        pub fn new() -> std::io::Result<Self> {
            // Registers this process; again is no error, and costs a system call.
            let refused = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_err();
            Self::with(if refused { Barrier::ByBoth } else { Barrier::ByConsumer })
        }

        /// As [`Self::new`] does where the kernel refuses `membarrier`: a fence on either side.
        pub fn with_fences() -> std::io::Result<Self> {
            Self::with(Barrier::ByBoth)
        }

        fn with(barrier: Barrier) -> std::io::Result<Self> {
            Ok(Sleeper { word: SleepWord::new(barrier), event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
        }

        /// Who executes the fences.
        pub fn barrier(&self) -> Barrier {
            self.word.barrier()
        }

        /// Producer: call after publishing, once per batch. Costs a load, and a fence where `membarrier` is refused; 9 us when the consumer
        /// sleeps.
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

        /// Consumer: see [`SleepWord::about_to_sleep`]. Costs a system call that interrupts the cores on which this process runs.
        pub fn about_to_sleep(&self) {
            self.word.about_to_sleep();
            if self.word.barrier() == Barrier::ByConsumer && membarrier(MembarrierCommand::PrivateExpedited).is_err() {
                // The kernel had no memory for its list of cores, or a filter forbids by now what it allowed: no sleep without a barrier.
                self.wake();
            }
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
        use crossbeam_utils::CachePadded;
        use std::sync::Arc;
        use std::sync::atomic::{AtomicU64, Ordering};
        use std::time::Instant;

        /// Rounds of every producer.
        const ROUNDS: u64 = 5_000;
        /// A lost wake-up would sit in `wait` longer than a round may take.
        const TOO_LONG: Duration = Duration::from_secs(25);
        const WAIT: Duration = Duration::from_secs(30);
        /// Looks at `consumed` before a producer yields: it publishes the moment the consumer is on its way to sleep.
        const LOOKS: u32 = 200;
        /// In each round every producer publishes an item, and goes on when all are consumed, so that no later item wakes for one that was
        /// lost. The consumer sleeps whenever nothing is there.
        fn many_rounds(sleeper: Sleeper, producers: usize) {
            let sleeper = Arc::new(sleeper);
            let counters = || -> Arc<Vec<CachePadded<AtomicU64>>> { Arc::new((0..producers).map(|_| Default::default()).collect()) };
            let (published, consumed) = (counters(), counters());
            let threads: Vec<_> = (0..producers)
                .map(|i| {
                    let (sleeper, published, consumed) = (sleeper.clone(), published.clone(), consumed.clone());
                    std::thread::spawn(move || {
                        for round in 1..=ROUNDS {
                            // Release: pairs with the consumer's Acquire. What is published.
                            published[i].store(round, Ordering::Release);
                            sleeper.notify();
                            let (mut looks, mut since) = (0, None);
                            while consumed.iter().any(|c| c.load(Ordering::Acquire) < round) {
                                looks += 1;
                                if looks % LOOKS == 0 {
                                    std::thread::yield_now();
                                    let since = since.get_or_insert_with(Instant::now);
                                    assert!(since.elapsed() < TOO_LONG, "producer {i}, round {round}: the wake-up was lost");
                                }
                                std::hint::spin_loop();
                            }
                        }
                    })
                })
                .collect();
            let take = || {
                let mut some = false;
                for (published, consumed) in published.iter().zip(consumed.iter()) {
                    let seen = published.load(Ordering::Acquire);
                    some |= seen > consumed.load(Ordering::Relaxed);
                    consumed.store(seen, Ordering::Release);
                }
                some
            };
            while consumed.iter().any(|c| c.load(Ordering::Relaxed) < ROUNDS) && !threads.iter().all(|t| t.is_finished()) {
                if take() {
                    continue;
                }
                sleeper.about_to_sleep();
                if !take() && consumed.iter().any(|c| c.load(Ordering::Relaxed) < ROUNDS) {
                    sleeper.wait(WAIT);
                }
                sleeper.awake();
            }
            for thread in threads {
                thread.join().unwrap();
            }
        }

        /// The moment the two sides cross, again and again, without the waiting: either the consumer's last look sees what was published, or
        /// the producer finds it asleep. Without `membarrier` neither does, in up to 50 of the rounds when each has a core to itself.
        fn crossings(sleeper: Sleeper) {
            const ROUNDS: u64 = 50_000;
            let sleeper = Arc::new(sleeper);
            let words = || Arc::new(CachePadded::new(AtomicU64::new(0)));
            let (go, payload, published, woke) = (words(), words(), words(), words());
            let producer = {
                let (sleeper, go, payload) = (sleeper.clone(), go.clone(), payload.clone());
                let (published, woke) = (published.clone(), woke.clone());
                std::thread::spawn(move || {
                    for round in 1..=ROUNDS {
                        until(&go, |go| go >= round);
                        // The other core holds this line, so what is published waits behind it for some hundred cycles.
                        payload.store(round, Ordering::Relaxed);
                        published.store(round, Ordering::Release);
                        let taken = sleeper.word.must_wake();
                        woke.store(round << 1 | u64::from(taken), Ordering::Release);
                    }
                })
            };
            let mut lost = 0;
            for round in 1..=ROUNDS {
                payload.store(0, Ordering::Relaxed);
                go.store(round, Ordering::Release);
                // Moves the two sides against each other: they are a few dozen to a few hundred cycles apart.
                for _ in 0..round % 64 {
                    std::hint::spin_loop();
                }
                sleeper.about_to_sleep();
                let seen = published.load(Ordering::Acquire) == round;
                let taken = until(&woke, |woke| woke >> 1 == round) & 1 == 1;
                lost += u64::from(!seen && !taken);
                sleeper.awake();
            }
            producer.join().unwrap();
            assert_eq!(lost, 0, "wake-ups lost in {ROUNDS} rounds");
        }

        fn until(word: &AtomicU64, holds: impl Fn(u64) -> bool) -> u64 {
            for look in 1u32.. {
                let value = word.load(Ordering::Acquire);
                if holds(value) {
                    return value;
                }
                if look % LOOKS == 0 {
                    std::thread::yield_now();
                }
                std::hint::spin_loop();
            }
            unreachable!("a peer of this test is gone")
        }

        #[test]
        fn one_of_the_two_sides_always_sees_the_other() {
            crossings(Sleeper::new().unwrap());
            crossings(Sleeper::with_fences().unwrap());
        }

        #[test]
        fn one_producer_never_leaves_its_sleeper_asleep() {
            many_rounds(Sleeper::new().unwrap(), 1);
        }

        #[test]
        fn two_producers_never_leave_one_sleeper_asleep() {
            many_rounds(Sleeper::new().unwrap(), 2);
        }

        #[test]
        fn nor_do_they_where_the_kernel_refuses_a_barrier_for_all() {
            let sleeper = Sleeper::with_fences().unwrap();
            assert_eq!(sleeper.barrier(), Barrier::ByBoth);
            many_rounds(sleeper, 2);
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
            let word = Arc::new(SleepWord::new(Barrier::ByBoth));
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
