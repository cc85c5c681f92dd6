//! Typed cluster state: what nimbus and supervisors remember, over ZooKeeper or in memory.
//!
//! Before: nimbus decided something, or a supervisor saw something. After: the other one is told "read again" and reads.
//! One trait, [`Store`], over one tree of nodes ([`Tree`]) with two carriers: [`ZkStore`] and [`MemoryStore`]. Everything typed
//! (paths, value format, fencing rules) is written once above the tree, so both carriers hold the same bytes and the
//! conformance suite (`tests/conformance.rs`) runs the same cases on both.
//!
//! Not here: decisions, retries of writes, anything per tuple. A write that fails as *unavailable* may have happened;
//! the caller reads again, and versions make that safe.
#![forbid(unsafe_code)]

mod error;
mod memory;
pub mod paths;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod tree;
mod typed;
mod value;
mod zk;

pub use error::StoreError;
pub use memory::{MemoryCluster, MemoryStore};
pub use paths::{Family, Paths};
pub use store::{
    BlobHolders, Corrupt, ERRORS_KEPT_MAX, ErrorEntry, Listing, NimbusInfo, SchedulerChoice, SchedulerMemory, Store, Version, Versioned,
};
pub use tree::{Connection, Leadership, Node, Tree, Write};
pub use value::{VALUE_BYTES_MAX, decode, encode};
pub use zk::{ZkOptions, ZkStore};
