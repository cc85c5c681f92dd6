//! Core loops: executors placed on pinned threads, frames moved between them, nothing else.
//!
//! The walk of a tuple, file by file: `emit.rs` (a component emits) -> `grouping.rs` (which tasks) -> `io.rs` (which lane, and is there
//! credit) -> `lane.rs` (bytes cross) -> `core_loop.rs` (the receiving loop finds the executor) -> `executor.rs` (it handles).
//!
//! Not here: an async runtime, ZooKeeper, disk, locks, log lines, user types (a component is a trait object that is handed runs of
//! frames). Per tuple no allocation and no system call.

mod ack;
mod ack_plan;
mod affinity;
mod clock;
mod component;
mod context;
mod core_loop;
mod credit;
mod cycle;
mod defer;
mod direct;
mod drain;
mod emit;
mod engine;
mod executor;
mod grouping;
#[expect(unsafe_code, reason = "a frame over a quarter of its ring crosses as a pointer to its bytes")]
mod handle;
mod hold;
mod io;
mod join;
mod lane;
#[allow(dead_code, unused_imports, reason = "what the loss of a worker will ask for")]
mod ledger;
mod limits;
mod links;
mod loss;
mod marks;
pub mod metrics;
mod moves;
mod out;
mod outside;
mod plan;
mod probe;
mod program;
mod queue;
mod receive;
mod relay;
mod relief;
mod remote;
mod route;
mod shift;
mod stats;
mod trees;
mod wait;
mod warm;

pub use ack::{Reason, TreeFail};
pub use ack_plan::AckPlan;
pub use affinity::{allowed_cores, pin};
pub use clock::Clock;
pub use component::{Asked, Component, Fail, Progress};
pub use context::Cx;
pub use core_loop::{Command, CoreLoop};
pub use defer::{OnComplete, RawAnchor};
pub use drain::DrainWatch;
pub use engine::{Engine, LoopHandle, Running};
pub use grouping::{CustomChoice, CustomFactory};
pub use limits::*;
pub use links::Links;
pub use loss::worker_bit;
pub use plan::{EnginePlan, Options, PanicPolicy, PlanError, PlannedExecutor, RemoteExecutor, WaitMode};
pub use probe::Unclaimed;
pub use program::{Chooser, ComponentFactory, DeadInput, DeadLetterFn, KeyFn, Program, ProgramComponent};
pub use relay::Share;
pub use shift::Moved;
pub use stats::{CarrierInUse, ErrorReport, ExecutorStats, HowEnded, LinkEnded, LoopStats, Shared};
