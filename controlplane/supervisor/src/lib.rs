//! Supervisor.
pub mod slot;
