//! The only way across a thread: one-to-one byte rings, the word that lets a loop sleep, and the epochs by which it lends out its counts.
//! The same rings and words join two processes of one host in [`shared`].
//!
//! Before: `saetta-engine`'s lanes have a batch of frames in private memory. After: another core loop reads the same
//! bytes in place. No lock, no allocation after `ring()`, no system call unless a sleeper has to be woken.
//! Not here: frames (the ring knows bytes only), threads, clocks.

mod cursor;
mod epoch;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "maps one memory file twice, so that bytes never wrap; std has no way to map memory")]
mod mirror;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "copies into and lends out memory that two threads share under the cursors' protocol")]
mod ring;
#[cfg(not(any(loom, miri)))]
#[expect(unsafe_code, reason = "maps and writes memory that another process shares under the cursors' protocol")]
pub mod shared;
mod sleeper;
mod sync;

pub use cursor::{ConsumerCursor, InProcess, Indices, ProducerCursor, cursors, plausible};
pub use epoch::{ReaderEpoch, WriterEpoch, epochs};
#[cfg(not(loom))]
pub use mirror::Mirror;
#[cfg(not(loom))]
pub use ring::{Consumer, Producer, prefetch, ring};
#[cfg(not(loom))]
pub use sleeper::Sleeper;
pub use sleeper::{Barrier, SleepWord};
