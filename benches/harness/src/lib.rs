//! How a figure of Saetta is measured: pinned, interleaved with its floor, in a known host class, as medians.
//!
//! Before: a suite in `benches/suites` names its cases. After: a table for people, `target/bench/SUITE.json` for programs, and every latency as
//! a histogram that HdrHistogram's own tools read.
//!
//! The rules, and where each is kept:
//! - a ratio stands on a floor measured in the same run, cases interleaved A B A B, medians of at least five: [`suite`];
//! - the host places virtual cores as it likes, and everything across cores changes 4x with it, so each sample is bracketed by a
//!   probe of a bare cache line and only samples of one class are put together: [`host`];
//! - a run whose floor is over 20 % worse than the one on record for that class is void: [`row`];
//! - what others do on the machine while we measure is read, and a disturbed sample is taken again: [`noise`];
//! - a thread is on the core it says, or the run ends: [`pin`];
//! - an open loop counts from the time a thing was meant to begin, and the machine's own hiccups stand beside it: [`hiccup`].
//!
//! At most two threads spin at any time. Nothing here is on the path of a tuple.
//!
//! A suite declares cases (ours, and its floor as another) and rows over them; `main` does the rest:
//!
//! ```no_run
//! use saetta_harness::suite::{Figures, Suite, SuiteRun};
//! use saetta_harness::{Better, HostClass, Result, RowSpec};
//!
//! fn declare(run: &mut SuiteRun<'_>) -> Result<()> {
//!     run.case("ours", |o| Ok(Figures::from([("p50_ns", o.size(176, 17) as f64)]))); // measure here, pinned to o.cores
//!     run.case("floor", |_| Ok(Figures::from([("p50_ns", 160.0)])));
//!     let on_record = |class| (class == HostClass::Ccx).then_some(160.0);
//!     // One way over half a round trip, to be at most 2.2 times it; void when the floor is over a fifth worse than on record.
//!     run.row(RowSpec::new("hop, p50", "ns", Better::Lower, "ours", "p50_ns").over("floor", "p50_ns", 0.5).on_record(on_record).target(2.2));
//!     Ok(())
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     saetta_harness::main(&[Suite { name: "hop", about: "one tuple from core to core", declare }])
//! }
//! ```
#![forbid(unsafe_code)]

pub mod hdr;
pub mod hdr_files;
pub mod hiccup;
pub mod host;
pub mod noise;
pub mod pin;
pub mod row;
pub mod suite;
pub mod zipf;

pub use hdr::Latency;
pub use host::HostClass;
pub use pin::pin_to_core;
pub use row::{Better, Row};
pub use suite::{Error, Figures, Finished, Measured, Notes, Options, Result, RowSpec, Suite, SuiteRun, main};
