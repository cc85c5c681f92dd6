//! Hands of the end-to-end tests: real processes of the release build, a real ZooKeeper, and looks at them from outside.
//!
//! Before: `cargo build --release --workspace`. After: a [`Cluster`] or a [`Dev`], each in a directory and on ports of its own, and nothing of it
//! left when it is dropped, in a panic too.
//! Not here: anything of ours in this process but the probe, which talks to a worker as the leader does. Waits are bounded and on conditions.
#![forbid(unsafe_code)]

mod binaries;
mod cluster;
mod daemon;
mod dev;
mod look;
mod plugins;
mod pulse;
mod text;
mod wait;
mod znodes;

pub use binaries::binary;
pub use cluster::{Cluster, free_ports};
pub use daemon::{Daemon, Ran};
pub use dev::Dev;
pub use look::{Worker, alive, as_u64, cores, executed_by_node, loop_cores, workers, workers_under};
pub use plugins::{broken_plugin, plugin_of_the_template};
pub use pulse::{Pulse, STALL_MAX};
pub use text::{counted_in, independent_counts, sample};
pub use wait::{alone, until};
pub use znodes::{Znode, znodes};
