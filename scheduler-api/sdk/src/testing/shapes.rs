//! What tests of several schedulers write down again and again: rows of equal nodes, a topology of one component, and `even` as a yardstick.
//!
//! Before: a test. After: a [`Cluster`] or a scheduler. Nothing here that [`Cluster`] could not say in more words.

use super::{Cluster, Component, Done, Node, Topology};
use crate::call::Builtin;
use crate::deal::Board;
use crate::{CreateCx, Plan, PluginError, Round, Scheduler, Verdict};

/// `n` nodes s0, s1, .. on hosts of their own, with ports 0, 1, ..
pub fn nodes(n: usize, n_ports: u32) -> Cluster {
    (0..n).fold(Cluster::new(), |c, i| c.node(Node::new(&format!("s{i}")).ports(0..n_ports)))
}

/// A topology of one bolt, `bolt`, its executors dealt over slots they run in (node and port); without slots they wait.
pub fn topology(name: &str, workers: u32, n_execs: usize, at: &[(&str, u32)]) -> Topology {
    let mut component = Component::bolt("bolt", n_execs as u32);
    for (i, (node, port)) in (0..n_execs).zip(at.iter().cycle()) {
        component = component.at(i, node, *port);
    }
    Topology::new(name).workers(workers).with(component)
}

/// Workers of a topology on s0, s1, .. of `n` nodes.
pub fn workers_on(done: &Done, topology: &str, n: usize) -> Vec<usize> {
    let by_node = done.workers_by_node(topology);
    (0..n).map(|n| by_node.get(&format!("s{n}")).copied().unwrap_or(0)).collect()
}

struct Even;

impl Scheduler for Even {
    fn create(_: &CreateCx<'_>) -> Result<Self, PluginError> {
        Ok(Even)
    }
    fn schedule(&mut self, round: &Round<'_>, plan: &mut Plan<'_>) -> Result<Verdict, PluginError> {
        let mut board = Board::new(round);
        board.give_up(&[]);
        (0..board.shares().len()).for_each(|share| board.deal(share));
        Ok(board.commit(round, plan))
    }
}

/// What the shipped `even` does without configuration: its own crate cannot be linked in beside another exported scheduler.
pub fn even() -> Builtin {
    crate::entry::builtin::<Even>("even")
}
