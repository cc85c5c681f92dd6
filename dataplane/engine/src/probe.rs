//! What a test kit needs of an engine: streams whose type is known only when something is emitted on them.
//!
//! A test that hands a bolt tuples one by one does not say beforehand what the bolt will emit. Its kit declares outputs of type
//! [`Unclaimed`]; the first emit of a type that no output has takes one of them, and from then on it is that type's like any other. A program
//! written by a user has no such outputs, so there a claim finds nothing.

use crate::context::Cx;
use crate::core_loop::CoreLoop;
use crate::links::Links;
use std::any::TypeId;

/// Names an output that belongs to no type yet.
pub struct Unclaimed;

impl Cx<'_> {
    /// As [`Cx::output`], after that found nothing: gives `tag` the first output without a type.
    #[cold]
    pub fn claim(&mut self, tag: TypeId) -> Option<usize> {
        let outputs = &mut self.out.outputs[self.first_output..self.first_output + self.out.outputs_per_task];
        let at = outputs.iter().position(|o| o.tag == TypeId::of::<Unclaimed>())?;
        outputs[at].tag = tag;
        Some(at)
    }
}

impl CoreLoop {
    /// Brings the counters that others read up to now. Loops on threads do so about every ten milliseconds, and when they find no work.
    pub fn publish(&mut self) {
        let now_ns = self.io.now_ns();
        self.keep_house(&mut Links::none(), now_ns);
    }

    /// Closes the components, as [`CoreLoop::run`] does when it ends. For loops stepped by hand, after their last turn.
    pub fn close(&mut self) {
        for executor in &mut self.executors {
            executor.close(&mut self.io);
        }
    }

    /// Types of the outputs of a task of this loop, in order; empty when the task is not here.
    pub fn output_tags(&self, task: u32) -> Vec<TypeId> {
        let here = self.executors.iter().find(|e| e.id.tasks().contains(&task));
        here.map(|e| {
            let first = (task - e.id.first) as usize * e.out.outputs_per_task;
            e.out.outputs[first..first + e.out.outputs_per_task].iter().map(|o| o.tag).collect()
        })
        .unwrap_or_default()
    }
}
