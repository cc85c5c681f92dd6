//! Inputs that failed for good, as tuples of their own.
//!
//! Before: a bolt failed an input by `Fail::Drop` or a panic. After: whoever reads the bolt's dead letters has it, with the reason.

use saetta_engine::{Cx, DeadInput};

/// An input that a bolt failed for good.
#[saetta_tuple::tuple]
pub struct DeadLetter {
    /// The bolt that failed it.
    pub component: String,
    /// Its task.
    pub task: u32,
    /// The task that emitted it.
    pub source: u32,
    /// Why it failed.
    pub why: String,
    /// Index of its stream in the topology.
    pub stream: u16,
    /// Its archive, as it came: readable as the tuple of that stream.
    pub archive: Vec<u8>,
}

/// How the engine emits one.
pub(crate) fn emit(cx: &mut Cx<'_>, output: usize, input: DeadInput<'_>) {
    let DeadInput { component, task, source, stream, why, archive } = input;
    cx.emit(output, &DeadLetterRef { component, task, source, why, stream, archive });
}
