//! What a topology asks for of its workers and nodes (the host's rule V07), by groups of executors.
//!
//! Before: a topology's row, and its executors as groups. After: `layout.rs` asks before an executor joins others. What breaks a rule
//! already may stay, and gets nobody new. Not here: who goes where.

use crate::traffic::Traffic;
use saetta_sdk::{Snapshot, TopoId, abi};
use std::cmp::Reverse;

/// The rules of one topology that has any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limits {
    /// One executor in a worker; ackers go along.
    one_exec: bool,
    /// One component in a worker; ackers go along.
    one_comp: bool,
    /// By group.
    groups: Vec<Group>,
    /// On so many nodes at least it has room.
    pub(crate) nodes_min: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    comp: usize,
    /// It counts for `one_exec` and `one_comp`.
    counts: bool,
    /// Groups that may not share a worker with it.
    apart: Vec<usize>,
    /// Most executors of its component on a node.
    on_node_max: u32,
}

impl Limits {
    /// `None` = it asks for nothing.
    pub(crate) fn new(snapshot: &Snapshot<'_>, topology: TopoId, traffic: &Traffic) -> Option<Self> {
        let row = snapshot.topologies().at(topology);
        let comps: Vec<_> = snapshot.components_of(&row).collect();
        let group = |comp: &usize| {
            let (id, c) = comps[*comp];
            let others: Vec<_> = snapshot.incompatible_with(id).map(|other| (other.0 - row.first_comp) as usize).collect();
            Group {
                comp: *comp,
                counts: matches!(c.kind, abi::KIND_SPOUT | abi::KIND_BOLT),
                apart: (0..traffic.comp.len()).filter(|g| others.contains(&traffic.comp[*g])).collect(),
                on_node_max: if c.max_colocation == 0 { u32::MAX } else { c.max_colocation },
            }
        };
        let asks = |flag| row.flags & flag != 0;
        let limits = Limits {
            one_exec: asks(abi::TOPO_ONE_EXEC_PER_WORKER),
            one_comp: asks(abi::TOPO_ONE_COMP_PER_WORKER),
            groups: traffic.comp.iter().map(group).collect(),
            nodes_min: comps
                .iter()
                .map(|(_, c)| c.n_execs.checked_div(c.max_colocation).map_or(0, |_| c.n_execs.div_ceil(c.max_colocation)) as usize)
                .max()
                .unwrap_or(0),
        };
        let is_free = |g: &Group| g.apart.is_empty() && g.on_node_max == u32::MAX;
        (limits.one_exec || limits.one_comp || !limits.groups.iter().all(is_free)).then_some(limits)
    }

    /// True when a worker may hold so many executors of each group.
    pub(crate) fn allow_worker(&self, n: impl Fn(usize) -> u32) -> bool {
        let here: Vec<(usize, &Group)> = self.groups.iter().enumerate().filter(|(g, _)| n(*g) > 0).collect();
        let mut own = here.iter().filter(|(_, group)| group.counts);
        let n_own: u32 = own.clone().map(|(g, _)| n(*g)).sum();
        let comp = own.next().map(|(_, group)| group.comp);
        (!self.one_exec || n_own <= 1)
            && (!self.one_comp || own.all(|(_, group)| Some(group.comp) == comp))
            && here.iter().all(|(_, group)| group.apart.iter().all(|g| n(*g) == 0))
    }

    /// True when a node may hold so many executors of each group, as far as this group's component goes.
    pub(crate) fn allow_node(&self, group: usize, n: impl Fn(usize) -> u32) -> bool {
        let Group { comp, on_node_max, .. } = self.groups[group];
        on_node_max == u32::MAX || (0..self.groups.len()).filter(|g| self.groups[*g].comp == comp).map(n).sum::<u32>() <= on_node_max
    }

    /// How hard it is to find a place for a group: such ones are placed first.
    pub(crate) fn rank(&self, group: usize) -> (usize, Reverse<u32>) {
        let group = &self.groups[group];
        (group.apart.len() + usize::from(group.counts), Reverse(group.on_node_max))
    }

    /// `abi::WHY_*` of an executor of a group that none of the topology's workers may take.
    pub(crate) fn why_none(&self, group: usize) -> u32 {
        match &self.groups[group] {
            g if g.on_node_max < u32::MAX => abi::WHY_COLOCATION,
            g if !g.apart.is_empty() => abi::WHY_INCOMPATIBLE,
            _ => abi::WHY_NO_SLOT,
        }
    }
}
