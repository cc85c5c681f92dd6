//! What `benches/rivals/workloads.toml` says: sizes, workloads, rivals with the settings that are swept, and what is to be reached.
//!
//! Before: the file, as it was when this was built. After: `mod` declares a case for each workload and rival. Pure.

use std::collections::BTreeMap;
use std::path::Path;

use saetta_harness::Result;
use serde::Deserialize;
use serde_json::{Value, json};

const TEXT: &str = include_str!("../../../rivals/workloads.toml");

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Definition {
    pub(super) run: Sizes,
    pub(super) smoke: Sizes,
    #[serde(rename = "workload")]
    pub(super) workloads: Vec<Workload>,
    #[serde(rename = "rival")]
    pub(super) rivals: Vec<Rival>,
    #[serde(rename = "target")]
    pub(super) targets: Vec<Target>,
}

/// How much and how long.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sizes {
    pub(super) text_bytes: usize,
    pub(super) warm_up_jvm_ms: u64,
    pub(super) warm_up_native_ms: u64,
    pub(super) warm_up_point_ms: u64,
    pub(super) window_ms: u64,
    pub(super) windows_max: u32,
    /// Of a JVM, as -Xmx takes it.
    pub(super) heap: String,
}

/// What goes through.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Workload {
    pub(super) name: String,
    pub(super) shape: String,
    #[serde(default)]
    pub(super) acked: bool,
    #[serde(default)]
    pub(super) rate_per_sec: u64,
    /// Worker processes.
    #[serde(default = "one")]
    pub(super) processes: u32,
    /// Also in a smoke run.
    #[serde(default)]
    pub(super) smoke: bool,
}

/// Who is compared.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rival {
    pub(super) name: String,
    pub(super) program: Program,
    /// The version that is pinned.
    #[serde(default)]
    pub(super) version: String,
    /// What it has for acks; without it, nothing, and it runs no acked workload.
    pub(super) acked: Option<String>,
    /// Of the workloads it runs.
    #[serde(default = "one")]
    pub(super) processes: u32,
    /// What else a reader has to know.
    pub(super) note: Option<String>,
    #[serde(default, rename = "grid")]
    pub(super) grids: Vec<Grid>,
}

fn one() -> u32 {
    1
}

/// Where its adapter is, below `benches/rivals`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Program {
    /// A package of the workspace there, and one of its programs.
    Cargo { package: String, bin: String },
    /// A module of the Maven project there, and its main class.
    Maven { module: String, class: String },
}

/// Settings that are swept for some workloads.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grid {
    shapes: Vec<String>,
    acked: bool,
    settings: BTreeMap<String, Vec<Value>>,
}

/// One combination.
pub(super) type Settings = BTreeMap<String, Value>;

/// What a comparison is to reach: ours over the rival's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Target {
    workloads: Vec<String>,
    rival: String,
    /// At least.
    pub(super) rate: Option<f64>,
    /// At most.
    pub(super) latency: Option<f64>,
    /// Processor time of a tuple: at most.
    pub(super) cpu: Option<f64>,
}

impl Definition {
    /// The one this was built with.
    pub(super) fn read() -> Result<Self> {
        Ok(toml::from_str(TEXT)?)
    }

    /// What is to be reached, if anything is.
    pub(super) fn target(&self, workload: &str, rival: &str) -> Option<&Target> {
        self.targets.iter().find(|target| target.rival == rival && target.workloads.iter().any(|name| name == workload))
    }
}

impl Workload {
    /// Whether it is told by tuples a second; else by a latency.
    pub(super) fn is_rate(&self) -> bool {
        !matches!(self.shape.as_str(), "hop" | "chain")
    }

    /// As an adapter takes it.
    pub(super) fn json(&self, text: &Path, warm_up_ms: u64, window_ms: u64, cores: (usize, usize), settings: &Settings) -> Value {
        json!({
            "shape": self.shape, "acked": self.acked, "rate_per_sec": self.rate_per_sec, "text": text,
            "warm_up_ms": warm_up_ms, "window_ms": window_ms, "cores": [cores.0, cores.1], "settings": settings,
        })
    }
}

impl Rival {
    /// Whether it has what a workload asks for.
    pub(super) fn runs(&self, workload: &Workload) -> bool {
        self.processes == workload.processes && (!workload.acked || self.acked.is_some())
    }

    /// All combinations of settings for a workload, in the order of the file's values; one without settings where no grid is for it.
    pub(super) fn points(&self, workload: &Workload) -> Vec<Settings> {
        let mut points = vec![Settings::new()];
        let of = |grid: &&Grid| grid.acked == workload.acked && grid.shapes.contains(&workload.shape);
        for (name, values) in self.grids.iter().find(of).into_iter().flat_map(|grid| &grid.settings) {
            let with = |point: &Settings, value: &Value| {
                let mut point = point.clone();
                point.insert(name.clone(), value.clone());
                point
            };
            points = points.iter().flat_map(|point| values.iter().map(move |value| with(point, value))).collect();
        }
        points
    }
}

/// A combination as words: `batch 100, wait spin`.
pub(super) fn words(settings: &Settings) -> String {
    let word = |(name, value): (&String, &Value)| format!("{name} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    settings.iter().map(word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_names_a_workload_and_a_rival_that_are_there() {
        let all = Definition::read().expect("the file is read");
        for target in &all.targets {
            assert!(all.rivals.iter().any(|rival| rival.name == target.rival), "{target:?}");
            for name in &target.workloads {
                let workload = all.workloads.iter().find(|workload| workload.name == *name);
                let is_of_a_rate = target.rate.or(target.cpu).is_some();
                assert!(is_of_a_rate != target.latency.is_some(), "{target:?}");
                assert_eq!(workload.map(Workload::is_rate), Some(is_of_a_rate), "{target:?}");
            }
        }
    }

    #[test]
    fn every_rival_has_its_version_where_it_is_pinned_and_a_workload_in_a_smoke_run() {
        let pinned = include_str!("../../../rivals/Cargo.toml").to_owned()
            + include_str!("../../../rivals/storm/pom.xml")
            + include_str!("../../../rivals/flink/pom.xml");
        let all = Definition::read().expect("the file is read");
        for rival in &all.rivals {
            assert!(pinned.contains(&format!("={}\"", rival.version)) || pinned.contains(&format!(">{}<", rival.version)), "{rival:?}");
        }
        assert!(all.workloads.iter().any(|workload| workload.smoke && !workload.acked));
    }

    #[test]
    fn a_grid_is_every_combination_and_none_is_one_point() {
        let all = Definition::read().expect("the file is read");
        let of = |rival: &str, workload: &str| {
            let workload = all.workloads.iter().find(|w| w.name == workload).expect("a workload");
            all.rivals.iter().find(|r| r.name == rival).expect("a rival").points(workload)
        };
        let points = of("storm", "null");
        assert_eq!(points.len(), 3 * 2 * 2 * 2);
        assert_eq!(words(&points[0]), "ackers 0, batch 1, parallel 1, pending 0, wait progressive, workers 1");
        let mut different = points.clone();
        different.dedup();
        assert_eq!(points, different);
        assert_eq!(of("timely", "null"), [Settings::new()]);
    }
}
