//! Groupings that are user code.

use super::{Chosen, Refused};
use std::sync::Arc;

/// What a custom grouping is asked. One instance per emitter task and subscription; the typed layer implements it.
pub trait CustomChoice: Send {
    /// The subscriber's tasks, ascending. Before the first choice.
    fn prepare(&mut self, targets: &[u32]);
    /// Adds the tasks that get a copy of the tuple; `tasks` is empty. A task named twice gets two. May panic: the emitter's input fails.
    fn choose(&mut self, archive: &[u8], tasks: &mut Vec<u32>);
}

/// Makes one instance per emitter task and subscription.
pub type CustomFactory = Arc<dyn Fn() -> Box<dyn CustomChoice> + Send + Sync>;

pub(super) struct Custom {
    code: Box<dyn CustomChoice>,
    /// What it chose last; reused.
    tasks: Vec<u32>,
}

impl Custom {
    pub(super) fn new(make: &CustomFactory, targets: &[u32]) -> Self {
        let mut code = make();
        code.prepare(targets);
        Custom { code, tasks: Vec::with_capacity(targets.len()) }
    }

    pub(super) fn choose(&mut self, archive: &[u8], targets: &[u32]) -> Chosen {
        self.tasks.clear();
        self.code.choose(archive, &mut self.tasks);
        match self.tasks.iter().find(|t| targets.binary_search(t).is_err()) {
            Some(stranger) => Chosen::Refused(Refused::Stranger(*stranger)),
            None => Chosen::Some,
        }
    }

    pub(super) fn tasks(&self) -> &[u32] {
        &self.tasks
    }
}
