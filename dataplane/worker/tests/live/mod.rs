//! Workers as real processes of `examples/ledger.rs`, a supervisor of a few lines for each, and the books they keep.
//!
//! Before: `hostile_port.rs` or `network_faults.rs` says who runs where. After: [`books::audit`] has said what became of every tree.

pub(crate) mod books;
pub(crate) mod seat;

pub(crate) use seat::{Scene, Seat, wait};

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest wait for anything; a test that waits so long fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);
/// A tree that a loss touches fails so long after the loss is known, at most.
pub(crate) const FAIL_TIME_MAX: Duration = Duration::from_secs(2);

pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}
