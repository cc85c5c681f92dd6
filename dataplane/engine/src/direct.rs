//! Emitting to a task by name, and learning which tasks there are.
//!
//! Before: user code has a tuple and the id of a task. After: as any emit; `emit.rs` writes and sends the frame.

use crate::component::Fail;
use crate::context::Cx;
use saetta_tuple::Emit;

impl Cx<'_> {
    /// Tasks of a component that reads from this one, ascending; empty when none of that name does.
    pub fn tasks(&self, subscriber: &str) -> &[u32] {
        let mut all = self.out.outputs[self.first_output..][..self.out.outputs_per_task].iter().flat_map(|o| &o.subscriptions);
        all.find(|s| s.component.as_str() == subscriber).map_or(&[], |s| &s.targets)
    }

    /// Emits on the component's `output`-th stream to `task` alone. An error, and nothing is sent, when the task does not read that stream by a
    /// direct grouping; whether that fails the input is the caller's to say. What cannot go now waits in the outbox, as with any emit.
    pub fn emit_direct<E: Emit>(&mut self, output: usize, task: u32, value: &E) -> Result<(), Fail> {
        self.directly(output, task)?;
        self.emit_to(output, task, value)
    }

    /// As [`Self::emit_direct`] from a spout, with a message id: an error begins no tree; what fails later fails the tree.
    pub fn emit_direct_tracked<E: Emit>(&mut self, output: usize, id: u64, task: u32, value: &E) -> Result<(), Fail> {
        self.directly(output, task)?;
        self.tracked(id, |cx| {
            let kept = cx.emit_to(output, task, value);
            cx.note(kept);
        });
        Ok(())
    }

    fn directly(&self, output: usize, task: u32) -> Result<(), Fail> {
        let mut subscriptions = self.out.outputs[self.first_output + output].subscriptions.iter();
        if subscriptions.any(|s| s.is_direct() && s.subscribes(task)) { Ok(()) } else { Err(self.no_such_reader(output, task)) }
    }

    #[cold]
    fn no_such_reader(&self, output: usize, task: u32) -> Fail {
        let direct = self.out.outputs[self.first_output + output].subscriptions.iter().filter(|s| s.is_direct());
        let readers: Vec<String> =
            direct.map(|s| format!("`{}` {} to {}", s.component, s.targets[0], s.targets[s.targets.len() - 1])).collect();
        Fail::Drop(match &readers[..] {
            [] => format!(
                "task {task} cannot be emitted to: nobody reads this stream by direct grouping; wire one with `.input(&stream, Direct)`"
            ),
            some => format!("task {task} does not read this stream by direct grouping; tasks that do: {}; see `cx.tasks`", some.join(", ")),
        })
    }
}
