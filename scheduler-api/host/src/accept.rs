//! From a checked answer to places: what is accepted of it, and which executors it says nothing of.

use crate::pack::{Packed, Places};
use crate::process::Answer;
use crate::round::RoundTopology;
use crate::validate::Refusal;
use saetta_model::parallelism::ExecutorId;
use saetta_sdk::abi;
use std::collections::BTreeMap;

/// Where the executors of a topology are, as far as it is decided.
pub(crate) struct Placing {
    pub(crate) slots: Places,
    /// Of those that a scheduler put on a core.
    pub(crate) cores: BTreeMap<ExecutorId, u32>,
}

impl Placing {
    /// As it runs now.
    pub(crate) fn alive(topology: &RoundTopology<'_>) -> Self {
        let mut current = topology.current.slots();
        let slots: Places = topology.layout.executors().filter_map(|(_, id)| current.remove(&id).map(|slot| (id, slot))).collect();
        let planned = topology.current.workers.iter().flat_map(|w| &w.executors).filter(|e| e.planned && slots.contains_key(&e.id));
        Placing { cores: planned.map(|e| (e.id, e.core)).collect(), slots }
    }

    /// Executors without a slot.
    pub(crate) fn unplaced(&self, topology: &RoundTopology<'_>) -> u32 {
        topology.layout.n_executors() - self.slots.len() as u32
    }
}

pub(crate) fn slots_of(places: &[Placing]) -> Vec<Places> {
    places.iter().map(|p| p.slots.clone()).collect()
}

/// Moves what is accepted into `places`. With `cores_stay`, who stays in its slot stays on the core it was put on. Returns by the
/// input's order why a topology's part was refused.
pub(crate) fn accept(
    packed: &Packed,
    answer: &Answer,
    verdicts: Vec<Result<(), Refusal>>,
    places: &mut [Placing],
    cores_stay: bool,
) -> Vec<Option<String>> {
    let mut refused = vec![None; places.len()];
    for (row, (topology, verdict)) in packed.topologies.iter().zip(verdicts).enumerate() {
        match verdict {
            Ok(()) if answer.outcome[row] == abi::OUT_KEEP => {}
            Ok(()) => {
                let placed = || topology.executors.clone().filter(|e| answer.slot_of_exec[*e] != abi::NONE);
                let slot = |e: usize| (packed.executors[e], packed.slots[answer.slot_of_exec[e] as usize].id.clone());
                let core = |e: usize| Some((packed.executors[e], *packed.cores.get(answer.core_of_exec[e] as usize)?));
                let next = Placing { slots: placed().map(slot).collect(), cores: placed().filter_map(core).collect() };
                let before = std::mem::replace(&mut places[topology.input_index], next);
                if cores_stay {
                    let Placing { slots, cores } = &mut places[topology.input_index];
                    cores.extend(before.cores.into_iter().filter(|(id, _)| slots.get(id) == before.slots.get(id)));
                }
            }
            Err(refusal) => refused[topology.input_index] = Some(refusal.to_string()),
        }
    }
    refused
}
