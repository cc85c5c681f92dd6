//! The worked example of the semantics, section 2, as far as the model goes: ids, tasks, executors. Which worker holds
//! which is `plugins/even`'s half of the same example.

use saetta_model::config::{Config, Owner, Source};
use saetta_model::name::Name;
use saetta_model::parallelism::Layout;
use saetta_model::topology::{ComponentKind, ComponentSpec, Format, Grouping, InputSpec, Resources, StreamSpec, TopologySpec};
use std::collections::BTreeMap;

fn component(id: &str, executors: u32, tasks: Option<u32>, from: Option<&str>) -> ComponentSpec {
    let name = |text: &str| Name::new(text).unwrap();
    ComponentSpec {
        id: name(id),
        kind: if from.is_some() { ComponentKind::Bolt } else { ComponentKind::Spout },
        executors,
        tasks,
        resources: Resources::default(),
        outputs: vec![StreamSpec { name: name("default"), schema: 1, fields: vec![] }],
        inputs: from.map(|from| InputSpec { from: name(from), stream: name("default"), grouping: Grouping::Shuffle }).into_iter().collect(),
        config: BTreeMap::new(),
        tracked: false,
    }
}

fn spec(components: Vec<ComponentSpec>) -> TopologySpec {
    let format = Format { archive: "rkyv 0.8".into(), endian: "little".into(), unaligned: true, pointer_bits: 32 };
    TopologySpec { saetta: "0.1.0".into(), format, components }
}

fn config(pairs: &[(&str, &str)]) -> Config {
    let mut config = Config::new(Owner::Topology);
    pairs.iter().for_each(|(key, value)| config.set(key, value, Source::Set).unwrap());
    config
}

/// blue hint 2; green hint 2, tasks 4; yellow hint 6.
fn example() -> TopologySpec {
    spec(vec![component("blue", 2, None, None), component("green", 2, Some(4), Some("blue")), component("yellow", 6, None, Some("green"))])
}

fn text(layout: &Layout) -> String {
    let one = |c: &saetta_model::parallelism::ComponentLayout| {
        format!("{} {}+{} {}", c.id, c.first_task, c.n_tasks, c.executors.iter().map(ToString::to_string).collect::<String>())
    };
    layout.components.iter().map(one).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_worked_example() {
    let layout = Layout::new(&example(), &config(&[("topology.workers", "2")])).unwrap();
    let expected = "__acker 1+2 [1][2]\nblue 3+2 [3][4]\ngreen 5+4 [5-6][7-8]\nyellow 9+6 [9][10][11][12][13][14]";
    assert_eq!(text(&layout), expected);
    assert_eq!((layout.n_executors(), layout.n_tasks(), layout.workers_wanted), (12, 14, 2));
    assert_eq!(layout.component_of(6).map(|c| c.id.as_str()), Some("green"));
    assert_eq!(layout.component_of(15), None);
}

#[test]
fn no_ackers_means_no_acker_component_and_tasks_begin_at_one() {
    let layout = Layout::new(&example(), &config(&[("topology.workers", "2"), ("topology.acker.executors", "0")])).unwrap();
    assert_eq!(text(&layout), "blue 1+2 [1][2]\ngreen 3+4 [3-4][5-6]\nyellow 7+6 [7][8][9][10][11][12]");
}

#[test]
fn a_component_whose_id_begins_with_a_digit_comes_before_the_ackers() {
    let layout = Layout::new(&spec(vec![component("1st", 1, None, None)]), &config(&[])).unwrap();
    assert_eq!(text(&layout), "1st 1+1 [1]\n__acker 2+1 [2]");
}

#[test]
fn more_executors_than_tasks_is_refused_naming_component_numbers_and_fix() {
    let wrong = spec(vec![component("blue", 5, Some(3), None)]);
    let error = Layout::new(&wrong, &config(&[])).unwrap_err().to_string();
    for part in ["`blue`", "5 executors", "3 tasks", "raise its tasks to 5"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn the_topology_wide_task_count_yields_to_a_components_own() {
    let layout = Layout::new(&example(), &config(&[("topology.tasks", "6"), ("topology.acker.executors", "0")])).unwrap();
    assert_eq!(text(&layout), "blue 1+6 [1-3][4-6]\ngreen 7+4 [7-8][9-10]\nyellow 11+6 [11][12][13][14][15][16]");
}

#[test]
fn the_cap_applies_to_tasks_and_executors_alike_and_is_noted() {
    let layout = Layout::new(&example(), &config(&[("topology.max.task.parallelism", "3"), ("topology.acker.executors", "0")])).unwrap();
    assert_eq!(text(&layout), "blue 1+2 [1][2]\ngreen 3+3 [3-4][5]\nyellow 6+3 [6][7][8]");
    assert_eq!(layout.notes.len(), 2, "green and yellow: {:?}", layout.notes);
}

#[test]
fn the_limits_name_what_was_asked_the_limit_and_the_key() {
    let layout = Layout::new(&example(), &config(&[("topology.workers", "2")])).unwrap();
    layout.check_limits(Some(2), Some(12)).unwrap();
    layout.check_limits(None, None).unwrap();
    let workers = layout.check_limits(Some(1), None).unwrap_err().to_string();
    assert!(workers.contains("2 workers") && workers.contains("nimbus.slots.perTopology allows 1"), "{workers}");
    let executors = layout.check_limits(None, Some(11)).unwrap_err().to_string();
    assert!(executors.contains("12 executors (ackers included)"), "{executors}");
    assert!(executors.contains("nimbus.executors.perTopology allows 11"), "{executors}");
}
