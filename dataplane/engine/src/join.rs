//! Joins of more trees than a frame has room for: the emit opens a tree of its own, and that tree stands for all of them.
//!
//! Before: `context.rs` has an emit anchored to more than four trees. After: each of them waits for one edge more, which is acked when the
//! join's own tree is complete; when that fails, they all fail. Bounded by the task's slots: each join takes one until it is over.

use crate::ack::{Acks, TreeFail};
use crate::ledger::Root;
use std::collections::BTreeMap;

/// The open joins of one executor.
#[derive(Default)]
pub(crate) struct Joins {
    next: u64,
    /// By message id of the join's tree: the task that opened it, and the joined trees, each with the edge it waits for.
    open: BTreeMap<u64, (usize, Vec<(Root, u64)>)>,
}

impl Joins {
    /// A join of these trees, by the `index`-th task. Returns the message id of its own tree.
    pub(crate) fn open(&mut self, index: usize, joined: Vec<(Root, u64)>) -> u64 {
        self.next += 1;
        self.open.insert(self.next, (index, joined));
        self.next
    }

    /// Its tree is complete: the trees it stands for wait for it no longer.
    pub(crate) fn complete(&mut self, id: u64, acks: &mut Acks, now_ns: u64) {
        for (root, edge) in self.take(id) {
            acks.ack(root, edge, 0, now_ns);
        }
    }

    /// Its tree failed, and so do those it stands for, for the same reason.
    pub(crate) fn fail(&mut self, id: u64, why: &TreeFail, acks: &mut Acks, now_ns: u64) {
        for (root, _) in self.take(id) {
            acks.fail(root, why.reason, &why.text, now_ns);
        }
    }

    fn take(&mut self, id: u64) -> Vec<(Root, u64)> {
        self.open.remove(&id).map(|(_, joined)| joined).unwrap_or_default()
    }

    /// The task began anew: nobody will hear of its joins. Gives the trees they stood for, which fail.
    pub(crate) fn give_up(&mut self, index: usize) -> Vec<Root> {
        let of_task = self.open.extract_if(.., |_, (task, _)| *task == index);
        of_task.flat_map(|(_, (_, joined))| joined).map(|(root, _)| root).collect()
    }
}
