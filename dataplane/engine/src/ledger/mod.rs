//! The ledger of XOR acking, pure: who is owed what, decided from messages, with time and seeds as arguments.
//!
//! The walk of a tree, file by file: `slots.rs` (its owner opens it under a [`Root`], `root.rs`) -> `edges.rs` (every emit gets an edge) ->
//! `../ack.rs` (acks of one root that wait together become one) -> `acker.rs` (init and acks are XORed; zero is complete) -> `slots.rs`
//! (the owner closes it and has its message id back, or its timeout does).
//!
//! Before: the loop that emitted a tracked tuple, or handled one. After: the spout's `ack` and `fail`. Not here: messages, lanes, clocks,
//! the spout.

mod acker;
mod edges;
#[cfg(test)]
mod figures;
#[cfg(test)]
mod oracle;
mod root;
mod slots;

pub(crate) use acker::{Ledger, Step};
pub(crate) use edges::Edges;
pub(crate) use root::{Root, SLOTS_MAX};
pub(crate) use slots::Slots;
