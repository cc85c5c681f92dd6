//! What a topology asks of the machines: the code's word where there is one, the configuration's elsewhere. Pure.
//!
//! Before: a record with its spec and configuration, and a layout that has the ackers too. After: a scheduler's tables
//! (`host/src/pack.rs`). A worker's own core planner does not look here: what is not stated is not known to it.

use crate::config::Config;
use crate::parallelism::Layout;
use crate::topology::{ComponentKind, ComponentSpec, SharedMemory, TopologySpec, request_milli};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes in a MiB.
const MIB: f64 = 1024.0 * 1024.0;

/// What one executor of a component asks for, and where it may be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// CPU in thousandths of a percent of one core.
    pub cpu_milli_pct: i64,
    /// Bytes that count against the worker's heap.
    pub on_heap_bytes: i64,
    /// Other bytes.
    pub off_heap_bytes: i64,
    /// Other resources in thousandths.
    pub generic_milli: BTreeMap<String, i64>,
    /// Memory its executors share.
    pub shared: Vec<SharedMemory>,
    /// Components it may not share a worker with: those that exist, both directions.
    pub incompatible: BTreeSet<String>,
    /// Most executors on one node; 0 = no limit.
    pub max_colocation: u32,
    /// Over as many nodes as there are.
    pub spread: bool,
}

/// One for each component of the layout, in its order. `config` is the topology's.
pub fn demands(spec: &TopologySpec, layout: &Layout, config: &Config) -> Vec<Demand> {
    let known: BTreeMap<&str, usize> = layout.components.iter().enumerate().map(|(i, c)| (c.id.as_str(), i)).collect();
    let spread = config.words("topology.spread.components");
    let mut all: Vec<Demand> = Vec::with_capacity(layout.components.len());
    for c in &layout.components {
        let mut demand = match spec.component(c.id.as_str()) {
            Some(component) => of_component(component, config),
            None if c.kind == ComponentKind::Acker => of_acker(config),
            None => Demand::default(),
        };
        demand.spread = spread.contains(&c.id.as_str());
        demand.incompatible.retain(|other| known.contains_key(other.as_str()) && other != c.id.as_str());
        all.push(demand);
    }
    for (i, c) in layout.components.iter().enumerate() {
        for other in all[i].incompatible.clone() {
            all[known[other.as_str()]].incompatible.insert(c.id.as_str().to_owned());
        }
    }
    all
}

fn bytes(mb: Option<f64>) -> i64 {
    mb.map_or(0, |mb| (mb * MIB).ceil() as i64)
}

fn of_acker(config: &Config) -> Demand {
    Demand {
        cpu_milli_pct: config.number("topology.acker.cpu.pcore.percent").map_or(0, request_milli),
        on_heap_bytes: bytes(config.number("topology.acker.resources.onheap.memory.mb")),
        off_heap_bytes: bytes(config.number("topology.acker.resources.offheap.memory.mb")),
        ..Demand::default()
    }
}

fn of_component(component: &ComponentSpec, config: &Config) -> Demand {
    // A component's settings were checked when its topology was; one that does not pass any more counts as not set.
    let own =
        Config::topology(&component.config, crate::config::Source::Code).unwrap_or_else(|_| Config::new(crate::config::Owner::Topology));
    let config = config.overlaid(&own);
    let r = &component.resources;
    let (on_heap_bytes, off_heap_bytes) = match r.memory_bytes {
        0 => (
            bytes(config.number("topology.component.resources.onheap.memory.mb")),
            bytes(config.number("topology.component.resources.offheap.memory.mb")),
        ),
        all => (all - r.off_heap_bytes, r.off_heap_bytes),
    };
    let mut generic_milli: BTreeMap<String, i64> =
        config.named_numbers("topology.component.resources").into_iter().map(|(kind, n)| (kind, request_milli(n))).collect();
    generic_milli.extend(r.generic_milli.clone());
    Demand {
        cpu_milli_pct: match r.cpu_milli_pct {
            0 => config.number("topology.component.cpu.pcore.percent").map_or(0, request_milli),
            stated => stated,
        },
        on_heap_bytes,
        off_heap_bytes,
        generic_milli,
        shared: r.shared.clone(),
        incompatible: config.words("topology.component.incompatible").into_iter().map(str::to_owned).collect(),
        max_colocation: config.u32("topology.component.max.colocation").unwrap_or(0),
        spread: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Owner, Source};

    fn config(pairs: &[&str]) -> Config {
        let mut config = Config::new(Owner::Topology);
        pairs.iter().for_each(|p| config.set_pair(p).unwrap());
        config
    }

    fn bolt() -> ComponentSpec {
        serde_json::from_str(r#"{"id": "b", "kind": "bolt", "executors": 1}"#).unwrap()
    }

    #[test]
    fn the_codes_word_wins_over_the_components_setting_and_that_over_the_topologys() {
        let topology = config(&["topology.component.cpu.pcore.percent=20", "topology.component.resources=gpu=1,fpga=0.0004"]);
        let mut b = bolt();
        assert_eq!(of_component(&b, &topology).cpu_milli_pct, 20_000);
        assert_eq!(of_component(&b, &config(&[])).on_heap_bytes, 128 << 20, "built-in");
        b.config.insert("topology.component.cpu.pcore.percent".into(), "12.3".into());
        assert_eq!(of_component(&b, &topology).cpu_milli_pct, 12_300, "and no noise of binary fractions");
        b.resources.cpu_milli_pct = 1;
        (b.resources.memory_bytes, b.resources.off_heap_bytes) = (100, 30);
        b.resources.generic_milli.insert("gpu".into(), 2000);
        let d = of_component(&b, &topology);
        assert_eq!((d.cpu_milli_pct, d.on_heap_bytes, d.off_heap_bytes), (1, 70, 30));
        assert_eq!(d.generic_milli, BTreeMap::from([("fpga".to_owned(), 1), ("gpu".to_owned(), 2000)]), "requests are rounded up");
    }

    #[test]
    fn incompatible_components_are_so_in_both_directions_and_unknown_ones_are_left_out() {
        let spec: TopologySpec = serde_json::from_str(
            r#"{"saetta": "1", "format": {"archive": "a", "endian": "little", "unaligned": true, "pointer_bits": 32}, "components": [
                {"id": "a", "kind": "spout", "executors": 1}, {"id": "b", "kind": "spout", "executors": 1, "config": {
                    "topology.component.incompatible": "a, b, gone", "topology.component.max.colocation": "2"}}]}"#,
        )
        .unwrap();
        let config = Config::topology(&BTreeMap::from([("topology.spread.components".into(), "a".into())]), Source::Set).unwrap();
        let layout = Layout::new(&spec, &config).unwrap();
        let all: BTreeMap<&str, Demand> = layout.components.iter().map(|c| c.id.as_str()).zip(demands(&spec, &layout, &config)).collect();
        assert_eq!((all["a"].incompatible.first().unwrap().as_str(), all["b"].incompatible.len()), ("b", 1));
        assert_eq!((all["a"].spread, all["b"].spread, all["b"].max_colocation), (true, false, 2));
        assert_eq!(all[crate::topology::ACKER].cpu_milli_pct, 10_000);
    }
}
