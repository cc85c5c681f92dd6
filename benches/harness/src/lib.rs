//! How a figure of Saetta is measured: pinned, interleaved with its floor, in a known host class, as medians.
//!
//! Before: a suite in `benches/suites` names its cases. After: a table for people and `target/bench/SUITE.json` for programs.
//!
//! The rules, and where each is kept:
//! - a ratio stands on a floor measured in the same run, cases interleaved A B A B, medians of at least five: [`suite`];
//! - the host places virtual cores as it likes, and everything across cores changes 4x with it, so each sample is bracketed by a
//!   probe of a bare cache line and only samples of one class are put together: [`host`];
//! - a run whose floor is over 20 % worse than the one on record for that class is void: [`row`];
//! - what others do on the machine while we measure is read, and a disturbed sample is taken again: [`noise`];
//! - a thread is on the core it says, or the run ends: [`pin`].
//!
//! At most two threads spin at any time. Nothing here is on the path of a tuple.
#![forbid(unsafe_code)]

pub mod hdr;
pub mod hiccup;
pub mod host;
pub mod noise;
pub mod pin;
pub mod row;
pub mod suite;

pub use hdr::Latency;
pub use host::HostClass;
pub use pin::pin_to_core;
pub use row::{Better, Row};
pub use suite::{Error, Figures, Options, Result, RowSpec, Suite, SuiteRun, main};
