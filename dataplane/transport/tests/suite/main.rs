//! One suite for all carriers: io_uring, epoll, shared memory, simulated. A case runs on each and asserts the same outcome.
//!
//! Before: a case in one of the files below. After: `CASE::KIND` passes for each kind it is for. `refused.rs` runs everything once more in a
//! process to which io_uring is refused, `secured.rs` under TLS; `traced.rs` shows by filters which system calls are made. Not here: `link.rs` without a carrier
//! (its own tests), doors (`tests/doors.rs`, `tests/memory.rs`), tuples, trees, processes, networks (`saetta-engine`, `tests/e2e`).
//!
//! Where the rows of the fault matrix are that concern two workers' connections, and the rules for io_uring. *All* = on all four kinds; *bytes* =
//! on all but memory, between whose sides there are no bytes; *door* = the handshake and the connector, over TCP.
//!
//! | row | what | cases |
//! |---|---|---|
//! | F40 | half-open | all, bytes: `f40_` |
//! | F41 | one-way cut | all, bytes: `f41_` |
//! | F42 | partial partition | all: `f42_` (the pair); door: `f42_` (retried for ever); what the leader shows is the worker's |
//! | F43 | cut from the store only | door: `f43_` (the one that took its place shuts it out); stopping itself is the worker's |
//! | F44 | loss on the way | all, bytes: `f44_` (a TCP that repairs is a late one); with real loss: lab |
//! | F45 | delay | bytes: `f45_` |
//! | F46 | narrow way | all, bytes: `f46_` |
//! | F47 | reset in mid-frame | all, bytes: `f47_` |
//! | F48 | flipped bytes | bytes: `f48_` |
//! | F49 | repeated, missing, reordered | bytes: `f49_` |
//! | F50 | peer stops reading | all, bytes: `f50_` |
//! | F51 | ports swapped | door: `f51_` |
//! | F52 | slow or wrong names | door: `f52_` (what is resolved is dialled within 3 s); resolving is the worker's |
//! | F53 | port taken | door: `f53_` |
//! | F60 | random bytes, HTTP, TLS | bytes, door: `f60_` |
//! | F61 | magic, then garbage | bytes, door: `f61_` |
//! | F62 | lengths | bytes: `f62_`; before the proof no length is read |
//! | F63 | one byte at a time | bytes, door: `f63_` |
//! | F64 | thousands of connections | all: `f64_` (places); door: `f64_` |
//! | F65 | proven, and wrong | all: `f65_` (frames of any content); bytes: `f65_`; door: `f65_`; wrong tasks and streams are the engine's |
//! | F66 | replay, reflection, old epoch | bytes, door: `f66_` |
//! | 1-10 | rules of the transport for io_uring | `rules.rs`: `c01_` to `c10_`, on all kinds where they mean something there |

#![allow(unreachable_pub, reason = "one binary, whose modules share")]

// `linked` and others of the common part have their users in the other test binaries.
#[path = "../common/mod.rs"]
mod common;

/// A module per case and a test per kind in it, and the list of all for `refused.rs`.
macro_rules! on {
    ($kinds:tt $($case:ident),* $(,)?) => { $( on!(@case $case $kinds); )* };
    (@case $case:ident [$($test:ident $kind:ident),*]) => {
        mod $case {
            $( #[test]
            fn $test() {
                super::$case(crate::harness::Kind::$kind);
            } )*
        }
    };
}

/// On all four.
macro_rules! on_all {
    ($($case:ident),* $(,)?) => {
        on! { [uring Uring, epoll Epoll, memory Memory, simulated Simulated] $($case),* }
        /// By name.
        pub const ON_ALL: &[crate::harness::Case] = &[$((stringify!($case), $case)),*];
    };
}

/// On those between whose sides bytes lie.
macro_rules! on_bytes {
    ($($case:ident),* $(,)?) => {
        on! { [uring Uring, epoll Epoll, simulated Simulated] $($case),* }
        /// By name.
        pub const ON_BYTES: &[crate::harness::Case] = &[$((stringify!($case), $case)),*];
    };
}

mod bytes;
mod delivery;
mod door;
mod ends;
mod faults;
mod harness;
mod limits;
mod refused;
mod rules;
mod secured;
mod time;
mod traced;
