//! Scenarios played with the baseline scheduler, linked in.

use saetta_sched_sim::compare::play;
use saetta_sched_sim::ladder;
use saetta_sched_sim::random::{self, Seen};
use saetta_sched_sim::scenario::Scenario;
use saetta_sched_sim::seat::Seat;
use saetta_sched_sim::world::World;
use saetta_sdk::snapshot::{CompId, Snapshot};
use saetta_sdk::{CreateCx, Outcome, Plan, PluginError, Round, Scheduler, SlotId, Verdict, abi};

fn even() -> Seat {
    Seat::linked(saetta_even::BUILTIN).unwrap()
}

const STORY: &str = r#"
[[supervisors]]
name = "n"
count = 3
rack = "a"
slots = 2

[[topologies]]
id = "words"
workers = 3
ackers = 0
[[topologies.components]]
id = "lines"
kind = "spout"
executors = 3
[[topologies.components]]
id = "count"
kind = "bolt"
executors = 3
tasks = 6
inputs = [{ from = "lines", grouping = "fields" }]

[[steps]]
do = "submit"
topology = "words"
[[steps]]
do = "round"
[[steps]]
do = "node-lost"
node = "n-0001"
[[steps]]
do = "node-back"
node = "n-0001"
[[steps]]
do = "add-rack"
rack = "b"
count = 2
slots = 1
[[steps]]
do = "rebalance"
topology = "words"
workers = 2
executors = { count = 6 }
[[steps]]
do = "drift"
topology = "words"
from = "lines"
to = "count"
tuples_per_s = 1000
bytes_per_s = 100000
[[steps]]
do = "kill"
topology = "words"
"#;

#[test]
fn a_story_is_played_step_by_step() {
    let scenario = Scenario::parse("story.toml", STORY).unwrap();
    let report = play(&scenario, "even", &mut even(), 1);
    let rows: Vec<(&str, usize, usize, usize)> =
        report.rounds.iter().map(|r| (r.step.as_str(), r.figures.executors, r.figures.scheduled, r.figures.moves)).collect();
    assert_eq!(
        rows,
        [
            ("submit words", 6, 6, 0),
            ("round", 6, 6, 0),
            ("node-lost n-0001", 6, 6, 0),
            ("node-back n-0001", 6, 6, 0),
            ("add-rack b", 6, 6, 0),
            // Three of `count` are new; the worker that is given up has two executors.
            ("rebalance words", 9, 9, report.rounds[5].figures.moves),
            ("drift words", 9, 9, 0),
            ("kill words", 0, 0, 0),
        ]
    );
    assert!((1..=2).contains(&report.rounds[5].figures.moves), "{:?}", report.rounds[5]);
    assert_eq!((report.failed, report.refused), (0, 0), "{report:?}");
    assert_eq!(report.rounds[0].figures.balance, 1.0);
    assert_eq!(report.rounds[5].figures.workers, 2);
}

#[test]
fn a_cluster_without_steps_is_submitted_whole_and_then_nothing_moves() {
    let text = r#"{"source": "x", "supervisors": [{"rack": "r", "count": 2, "slots": 2, "memory_mb": 1000, "cpu_percent": 400}],
        "topologies": [{"id": "t", "workers": 2, "ackers": 1, "components": [
            {"id": "s", "kind": "spout", "executors": null, "tasks": 3},
            {"id": "b", "kind": "bolt", "executors": 9, "tasks": 2, "inputs": [{"from": "s", "stream": "x", "grouping": "custom_serialized"}]}]}]}"#;
    let report = play(&Scenario::parse("c.json", text).unwrap(), "even", &mut even(), 1);
    let [cold, again] = &report.rounds[..] else { panic!("{report:?}") };
    assert_eq!((cold.figures.executors, cold.figures.scheduled, cold.step.as_str()), (6, 6, "submit all"));
    assert_eq!((again.figures.moves, again.figures.scheduled), (0, 6));
}

#[test]
fn even_keeps_its_promises_on_a_hundred_random_clusters() {
    let (mut one, mut two, mut sum) = (even(), even(), Seen::default());
    (0..100).for_each(|seed| sum.add(random::check(seed, &mut one, &mut two).unwrap()));
    assert!(sum.rounds > 500 && sum.placed > 1000 && sum.moves > 10 && sum.unplaced > 10, "{sum:?}");
}

#[test]
fn an_acker_asks_for_little_whatever_components_ask_for() {
    let text = r#"{"supervisors": [{"count": 1, "slots": 1}], "topologies": [{"id": "t", "ackers": 1, "default_cpu_percent": 70.0,
        "default_onheap_mb": 5120, "components": [{"id": "s", "kind": "spout", "tasks": 1}]}]}"#;
    let bytes = World::all(&Scenario::parse("c.json", text).unwrap()).pack();
    let snapshot = Snapshot::new(&bytes).unwrap();
    let asks: Vec<(i64, i64)> = (0..2).map(|c| snapshot.request(CompId(c))).map(|r| (r.cpu(), r.memory() >> 20)).collect();
    assert_eq!(asks, [(10_000, 128), (70_000, 5120)], "the acker's row comes first");
}

/// Does what a scheduler must not: the same question gets another answer, or something moves for nothing.
struct Restless;

impl Scheduler for Restless {
    fn create(_: &CreateCx<'_>) -> Result<Self, PluginError> {
        Ok(Restless)
    }
    fn schedule(&mut self, round: &Round<'_>, plan: &mut Plan<'_>) -> Result<Verdict, PluginError> {
        let slots = round.snapshot.slots();
        let topologies = round.snapshot.topologies();
        for (id, t) in topologies.with_ids() {
            let is_open =
                |(_, s): &(SlotId, abi::SlotRow)| s.flags & abi::SLOT_ASSIGNABLE != 0 && (s.topology == abi::NONE || s.topology == id.0);
            let open: Vec<SlotId> = slots.with_ids().filter(is_open).map(|(slot, _)| slot).collect();
            if let Some(slot) = open.get(round.round_id as usize % open.len().max(1)).filter(|_| topologies.len() == 1) {
                round.snapshot.executors_of(&t).for_each(|(exec, _)| plan.place(exec, *slot));
                plan.outcome(id, Outcome::Scheduled);
            }
        }
        Ok(Verdict::Done)
    }
}

#[test]
fn a_scheduler_that_moves_for_nothing_is_caught() {
    let restless = || Seat::linked(saetta_sdk::entry::builtin::<Restless>("restless")).unwrap();
    let (mut one, mut two) = (restless(), restless());
    let said: Vec<String> = (0..20).filter_map(|seed| random::check(seed, &mut one, &mut two).err()).collect();
    assert!(said.iter().any(|s| s.contains("move in a second round without change") && s.starts_with("seed ")), "{said:?}");
    assert!(said.iter().any(|s| s.contains("may")), "max_moves is looked at: {said:?}");
}

#[test]
fn a_rung_of_the_ladder_is_placed_whole_and_stays() {
    let rung = ladder::climb("even", &mut even(), 30);
    assert_eq!((rung.nodes, rung.topologies, rung.executors, rung.scheduled), (30, 11, 11 * 40, 11 * 40));
    assert_eq!((rung.again_moves, rung.failed.as_deref()), (0, None));
    assert!(rung.one_max_ms >= rung.one_p50_ms && rung.one_p50_ms > 0.0);
}
