//! Which executor of a worker runs on which core: the worker's own planner, as a pure function.
//!
//! Before: a placement's executors and the cores of its slot. After: `assignment::ExecutorPlace::core`, or the loops of a
//! local run. Neighbours in the topology share a core where the load allows: one hop across cores instead of three is
//! 44 against 28 M tuples/s, and a hop inside a core is free of atomics.

use crate::parallelism::{ExecutorId, Layout};
use crate::topology::{ComponentKind, TopologySpec};

/// Why an executor is where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// `executor.core` of its component.
    ByHand,
    /// The planner: neighbours together, load even.
    Planned,
}

/// One executor with its core and the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Which.
    pub id: ExecutorId,
    /// One of the cores given.
    pub core: u32,
    /// Why there.
    pub reason: Reason,
}

/// Weight of a component that states no cpu and emits nothing.
const SINK_WEIGHT: f64 = 0.5;

/// Places `executors` (ascending) on `cores` (ascending, not empty).
///
/// A component with as many executors here as there are cores, or more, is dealt over all cores. The rest stand in
/// topological order, weighted by what they ask for (cpu request, else 1, else half for one that emits nothing: serialising is
/// what costs), and are cut into
/// consecutive runs of even weight, one per core. `by_hand` names the core for a component id; it must be one of `cores`.
pub fn plan(
    spec: &TopologySpec,
    layout: &Layout,
    executors: &[ExecutorId],
    cores: &[u32],
    by_hand: &dyn Fn(&str) -> Option<u32>,
) -> Vec<Placed> {
    assert!(!cores.is_empty(), "a worker has at least one core");
    let n_cores = cores.len();
    let mine = |c: &crate::parallelism::ComponentLayout| -> Vec<ExecutorId> {
        c.executors.iter().copied().filter(|e| executors.binary_search(e).is_ok()).collect()
    };

    let mut placed: Vec<Placed> = Vec::with_capacity(executors.len());
    let mut line: Vec<(ExecutorId, f64)> = Vec::new();
    for component in spec.topological() {
        let Some(l) = layout.component(component.id.as_str()) else { continue };
        let here = mine(l);
        if let Some(core) = by_hand(component.id.as_str()) {
            assert!(cores.contains(&core), "core {core} by hand is not one of the worker's cores");
            placed.extend(here.iter().map(|id| Placed { id: *id, core, reason: Reason::ByHand }));
        } else if here.len() >= n_cores && n_cores > 1 {
            placed.extend(here.iter().enumerate().map(|(i, id)| Placed { id: *id, core: cores[i % n_cores], reason: Reason::Planned }));
        } else {
            let weight = match component.resources.cpu_milli_pct {
                0 if component.outputs.is_empty() => SINK_WEIGHT,
                0 => 1.0,
                stated => stated as f64 / 100_000.0,
            };
            line.extend(here.iter().map(|id| (*id, weight)));
        }
    }
    // Cut the line where the running weight passes the next even share.
    let total: f64 = line.iter().map(|(_, w)| w).sum();
    let mut before = 0.0;
    for (id, weight) in &line {
        let middle = before + weight / 2.0;
        let at = if total > 0.0 { ((middle / total) * n_cores as f64) as usize } else { 0 };
        placed.push(Placed { id: *id, core: cores[at.min(n_cores - 1)], reason: Reason::Planned });
        before += weight;
    }
    // Ackers sit with the spouts of this worker: the first core.
    for l in layout.components.iter().filter(|c| c.kind == ComponentKind::Acker) {
        placed.extend(mine(l).iter().enumerate().map(|(i, id)| Placed { id: *id, core: cores[i % n_cores], reason: Reason::Planned }));
    }
    placed.sort_by_key(|p| p.id);
    assert_eq!(placed.len(), executors.len(), "every executor is placed exactly once");
    placed
}
