//! Nimbus: takes submissions, keeps the lifecycle of topologies, has executors placed, writes assignments, answers REST.
//!
//! Walk of a submission: [`rest`] (request) -> [`submit`] (checks, binary, key, record) -> `leader` (reads the cluster, carries
//! decisions out) -> [`core`] (decides, pure) -> [`round`] (asks the scheduler, checks, builds the assignment) -> store.
//! One nimbus leads, the others wait in the store's line and answer with the leader's address.
//!
//! Not here: tuples, workers' processes, any other way to place an executor than `saetta_sched_host`.
#![forbid(unsafe_code)]

mod blob_io;
pub mod core;
mod elf;
mod home;
mod leader;
mod options;
mod plugins;
pub mod rest;
mod rest_scheduler;
pub mod round;
mod status;
pub mod submit;

pub use elf::{ElfError, Facts as ElfFacts};
pub use home::{BLOB_BYTES_MAX, BLOB_IDLE_MAX};
pub use leader::{Nimbus, NimbusHandle};
pub use options::{NimbusError, NimbusOptions, WorkerProbe};
