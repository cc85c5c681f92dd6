//! Emitting to a task by name: for streams that are read by [`Direct`](crate::Direct) grouping.
//!
//! Before: a component knows, or asks, which tasks a subscriber has. After: `saetta-engine`'s `direct.rs`.

use crate::component::{Cx, Emits, Outcome, Spout};
use saetta_engine::Fail;
use saetta_tuple::{Emit, StreamType};
use std::any::TypeId;

impl<C> Cx<'_, C> {
    /// Emits to one task of a component that reads the tuple's stream by [`Direct`](crate::Direct) grouping; see [`Cx::tasks`]. An error when
    /// that task does not, and then nothing was sent: return it to fail the input.
    pub fn emit_direct<E: Emit>(&mut self, task: u32, value: &E) -> Outcome
    where
        C: Emits<E::Tuple>,
    {
        self.emit_direct_on::<E::Tuple, E>(task, value)
    }

    /// As [`Cx::emit_direct`], on a stream declared with `stream!`.
    pub fn emit_direct_on<S, E>(&mut self, task: u32, value: &E) -> Outcome
    where
        S: StreamType,
        E: Emit<Tuple = S::Tuple>,
        C: Emits<S>,
    {
        match self.0.output(TypeId::of::<S>()) {
            Some(output) => self.0.emit_direct(output, task, value),
            None => Err(Fail::Drop(format!("task {task} cannot be emitted to: nobody reads stream `{}`", S::NAME))),
        }
    }

    /// As [`Cx::emit_direct`] from a spout, with a message id: the spout is told of the tree's end by `ack` or `fail`. An error began no tree.
    pub fn emit_direct_tracked<E: Emit>(&mut self, id: u64, task: u32, value: &E) -> Outcome
    where
        C: Spout + Emits<E::Tuple>,
    {
        const { assert!(C::TRACKED, "this spout calls emit_direct_tracked; fix: add `const TRACKED: bool = true;` to its `impl Spout`") };
        match self.0.output(TypeId::of::<E::Tuple>()) {
            Some(output) => self.0.emit_direct_tracked(output, id, task, value),
            None => Err(Fail::Drop(format!("task {task} cannot be emitted to: nobody reads stream `{}`", E::Tuple::NAME))),
        }
    }

    /// Tasks of a component that reads from this one, ascending; empty when none of that id does.
    pub fn tasks(&self, subscriber: &str) -> &[u32] {
        self.0.tasks(subscriber)
    }
}
