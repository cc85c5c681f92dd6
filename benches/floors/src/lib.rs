//! The fastest known raw variant of each figure: what this machine can do when nothing stands between the two cores but the queue.
//!
//! Before: a suite declares a floor as a case beside ours. After: our figure is a ratio to it, of the same run.
//!
//! Floors between workers run in two processes: this program starts itself again, see [`far_process`].
//! Absences: no tuple, no topology, no waiting strategy but spinning. One floor per figure; same bytes, same stamps, same cores as ours.
//! [`on_record`] holds what each floor reached on the machines it was measured on: a run far below it is void.

mod bench;
mod message;
pub mod on_record;
mod same_thread;
mod shared_memory;
mod spin_tcp;
mod two_processes;
mod uring_tcp;
mod wake;
mod word_count;

// Both rings hand a slot from one thread to another through an `UnsafeCell`, as the fastest variant of each does. The checked way (an
// atomic per word) costs about half the rate, and would no longer be the floor.
#[expect(unsafe_code, reason = "a slot is handed to the other thread through an UnsafeCell; see NEED and SAFETY there")]
pub mod flag_ring;
#[expect(unsafe_code, reason = "a slot is handed to the other thread through an UnsafeCell; see NEED and SAFETY there")]
pub mod one_to_one;
#[expect(unsafe_code, reason = "maps memory that two processes share, and lends it out in place; see NEED and SAFETY there")]
mod shared_ring;
#[expect(unsafe_code, reason = "io_uring takes raw pointers; what they name outlives the operation")]
mod uring_socket;

pub use bench::{
    RING_BATCH, RING_CAPACITY, SMALL_RING_CAPACITY, cache_line_round_trip, flag_ring_round_trip, ring_round_trip, ring_throughput,
};
pub use same_thread::{same_thread_in_place_ns, same_thread_ns};
pub use shared_memory::{shared_memory_round_trip, shared_memory_stream};
pub use spin_tcp::spin_round_trip;
pub use two_processes::{Streamed, Window, far_process};
pub use uring_tcp::{uring_round_trip, uring_stream, uring_stream_large};
pub use wake::futex_wake;
pub use word_count::{Counts, word_count_keyed, word_count_pipe};
