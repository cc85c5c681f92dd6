//! The language of Saetta: what shall run, where it may run, what was decided.
//!
//! Pure: no clock, no socket, no file, no ZooKeeper. Everything here is a value, an arithmetic rule over values,
//! or the text form of a value. Both walks start here: `topology` is what a user wrote, `assignment` is what a
//! scheduler answered, `local` is what a supervisor and its worker tell each other.
#![forbid(unsafe_code)]

pub mod assignment;
pub mod beat;
pub mod cluster;
pub mod config;
pub mod cores;
pub mod demand;
pub mod local;
pub mod loops;
pub mod name;
pub mod parallelism;
pub mod record;
pub mod topology;

pub use assignment::{Assignment, Placement};
pub use cluster::SupervisorInfo;
pub use config::Config;
pub use name::Name;
pub use record::{TopologyRecord, TopologyState};
pub use topology::TopologySpec;
