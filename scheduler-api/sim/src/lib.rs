//! A cluster in memory: what a scheduler does with it step by step, and what that costs. For comparing schedulers before one is used.
//!
//! Before: a file says which machines there are, what wants to run on them and what happens ([`scenario`]). After: a [`compare::Report`] of
//! figures for each scheduler. The walk inside: [`scenario`] -> [`world`] makes the snapshot -> [`seat`] asks the scheduler, linked in or
//! in the host's helper -> the host's validator -> [`measure`] -> [`compare`] puts rounds together. [`ladder`] makes large clusters,
//! [`random`] small ones for property tests.
//! Not here: nimbus, ZooKeeper, workers, time. The only clock is the one that measures a round.
#![forbid(unsafe_code)]

pub mod compare;
pub mod ladder;
pub mod measure;
pub mod random;
pub mod scenario;
pub mod seat;
pub mod world;
