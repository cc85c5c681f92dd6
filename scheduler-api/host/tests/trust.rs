//! Trust in a plugin over many rounds: quarantine, trials, taking over, shadows, records, reasons. Real helpers, plugins in C.

mod common;

use common::*;
use saetta_model::cluster::SlotId;
use saetta_sched_host::breaker::FAILURES_IN_A_ROW;
use saetta_sched_host::policy::Resources;
use saetta_sched_host::process::What;
use saetta_sched_host::record::{Record, Recorder};
use saetta_sched_host::switch::NoAnswer;
use saetta_sched_host::{How, Memory, Policy, Scheduler, SchedulerOptions};
use saetta_sdk::abi;

/// Puts everything into slot 0, if it is asked for.
const ALL_IN_ONE: &str = "for (uint32_t e = 0; e < plan->n_execs; e++) plan->slot_of_exec[e] = 0;
    for (uint32_t t = 0; t < plan->n_topologies; t++) plan->outcome[t] = SAETTA_OUT_SCHEDULED; return 0;";

fn small_world() -> World {
    let mut world = World::new(&[("s1", &[6700, 6701])]);
    world.topology("t", 1, &[("spout", 3, None)]);
    world
}

fn with_policy(options: SchedulerOptions, policy: Policy) -> SchedulerOptions {
    SchedulerOptions { policy, ..options }
}

fn how(world: &World, scheduler: &Scheduler, round: u64) -> How {
    world.round(round, |input| scheduler.round(input)).topologies.remove(0).1.how
}

fn why(how: &How) -> &str {
    match how {
        How::Fallback { why } | How::Kept { why } => why,
        How::Plugin(name) => panic!("placed by {name}"),
    }
}

#[test]
fn a_plugin_that_fails_again_and_again_is_quarantined_until_it_is_reset() {
    let dir = tempfile::tempdir().unwrap();
    c_plugin(dir.path(), "sorry", "", r#"return say(err, SAETTA_E_INTERNAL, "no luck");"#);
    let world = small_world();
    let scheduler = Scheduler::new(options("sorry", dir.path()));
    for round in 0..FAILURES_IN_A_ROW as u64 {
        assert!(why(&how(&world, &scheduler, round)).contains("no luck"));
    }
    assert_eq!(scheduler.status().state, "quarantined");
    let told = how(&world, &scheduler, 9);
    assert!(why(&told).contains("quarantined") && why(&told).contains("no luck") && why(&told).contains("tried again in 30 s"), "{told:?}");
    // It would be well now; it is not asked until somebody says so.
    c_plugin(dir.path(), "sorry", "", ALL_IN_ONE);
    assert!(why(&how(&world, &scheduler, 10)).contains("quarantined"));
    scheduler.reset();
    assert_eq!(how(&world, &scheduler, 11), How::Plugin("sorry".into()));
    assert_eq!(scheduler.status().state, "in use");
}

#[test]
fn a_cluster_that_crashed_it_twice_is_not_given_to_it_again_and_another_one_is() {
    let dir = tempfile::tempdir().unwrap();
    // Crashes where there are fewer than nine executors.
    c_plugin(dir.path(), "picky", "", "if (plan->n_execs < 9) *(volatile int *)8 = 1; return 1;");
    let mut world = small_world();
    let scheduler = Scheduler::new(options("picky", dir.path()));
    for round in 0..2 {
        assert!(why(&how(&world, &scheduler, round)).contains("SIGSEGV"));
    }
    for round in 2..9 {
        assert!(why(&how(&world, &scheduler, round)).contains("has crashed it twice"), "and that opens no breaker");
    }
    world.topology("u", 1, &[("spout", 5, None)]);
    assert_eq!(how(&world, &scheduler, 9), How::Plugin("picky".into()));
}

#[test]
fn another_plugin_takes_over_after_a_trial_and_one_that_fails_its_trial_does_not() {
    let dir = tempfile::tempdir().unwrap();
    c_template(dir.path(), "first");
    c_template(dir.path(), "second");
    c_plugin(dir.path(), "all_in_one", "", ALL_IN_ONE);
    c_plugin(dir.path(), "segv", "", "*(volatile int *)8 = 1; return 0;");
    c_plugin(dir.path(), "garbage", "", "plan->slot_of_exec[0] = 77; plan->outcome[0] = SAETTA_OUT_PARTIAL; return 0;");
    std::fs::write(dir.path().join("libsaetta_text.so"), "no library").unwrap();
    let copies = dir.path().join("copies");
    let policy = Policy { copies: Some(copies.clone()), ..Policy::default() };
    let scheduler = Scheduler::new(with_policy(options("first", dir.path()), policy));
    assert_eq!(scheduler.try_out("second").unwrap().trial, None, "before the first round there is nothing to try it on");
    let world = small_world();
    assert_eq!(how(&world, &scheduler, 1), How::Plugin("first".into()));
    // The last round would have come out well with the last one: it is the checks that show what it does to others.
    for (bad, because) in [
        ("segv", "SIGSEGV"),
        ("garbage", "V01"),
        ("text", "ELF"),
        ("nowhere", "No such file"),
        ("/etc/passwd", "plugin.dir"),
        ("all_in_one", "check no-double-slot"),
    ] {
        let why = scheduler.try_out(bad).unwrap_err();
        assert!(why.contains(because), "{why}");
    }
    let trial = scheduler.try_out("libsaetta_second.so").unwrap();
    let compared = trial.trial.clone().unwrap();
    assert_eq!((compared.live.placed, compared.other.placed, compared.differing), (4, 4, 0), "three spouts and an acker");
    assert!(trial.path.starts_with(&copies) && trial.path.to_string_lossy().contains(&trial.sha256));
    // The file may go: what runs is the copy.
    std::fs::remove_file(dir.path().join("libsaetta_second.so")).unwrap();
    scheduler.switch(&trial.plugin, trial.path);
    assert_eq!(how(&world, &scheduler, 2), How::Plugin("second".into()));
    assert_eq!(scheduler.status().sha256, Some(trial.sha256));
}

#[test]
fn a_shadow_is_compared_and_changes_nothing_whatever_it_does() {
    let dir = tempfile::tempdir().unwrap();
    c_plugin(dir.path(), "live", "", ALL_IN_ONE);
    c_plugin(dir.path(), "other", "", &ALL_IN_ONE.replace("slot_of_exec[e] = 0", "slot_of_exec[e] = 1"));
    c_plugin(dir.path(), "segv", "", "*(volatile int *)8 = 1; return 0;");
    let world = small_world();
    for (shadow, fine) in [("other", true), ("segv", false)] {
        let policy = Policy { shadow: Some(shadow.into()), ..Policy::default() };
        let scheduler = Scheduler::new(with_policy(options("live", dir.path()), policy));
        let plan = world.round(1, |input| scheduler.round(input)).topologies.remove(0).1;
        assert_eq!((plan.how, plan.unplaced), (How::Plugin("live".into()), 0));
        assert!(plan.slots.values().all(|slot| slot.port == 6700));
        let report = wait_for("the shadow", || scheduler.status().shadow.filter(|s| s.rounds == 1));
        assert_eq!(report.failure.is_none(), fine, "{report:?}");
        assert_eq!(report.comparison.map(|c| (c.differing, c.other.moves)), fine.then_some((4, 0)));
    }
}

#[test]
fn a_round_is_recorded_and_replays_bit_for_bit() {
    let dir = tempfile::tempdir().unwrap();
    // An answer that depends on seed and round.
    let body = "for (uint32_t e = 0; e < plan->n_execs; e++) plan->slot_of_exec[e] = (round->seed + round->round_id) % 2;
        for (uint32_t t = 0; t < plan->n_topologies; t++) plan->outcome[t] = SAETTA_OUT_SCHEDULED; return 0;";
    c_plugin(dir.path(), "dice", "", body);
    let policy = Policy { rounds: Some(dir.path().join("rounds")), ..Policy::default() };
    let options = with_policy(options("dice", dir.path()), policy);
    let world = small_world();
    let scheduler = Scheduler::new(options.clone());
    for round in 1..=3 {
        how(&world, &scheduler, round);
    }
    let recorder = Recorder::new(dir.path().join("rounds"), 1 << 20);
    let kept = recorder.list().unwrap();
    assert_eq!(kept.iter().map(|e| e.round).collect::<Vec<_>>(), [1, 2, 3]);
    let mut answers = Vec::new();
    for entry in kept {
        let record = Record::read(&recorder.path(&entry.file).unwrap()).unwrap();
        assert_eq!((record.head.plugin.as_str(), record.head.verdicts.as_slice()), ("dice", [String::new()].as_slice()));
        let what = What::Plugin { name: "dice".into(), path: options.plugin_path() };
        let again = record.replay(&options, &what).unwrap();
        assert_eq!(Some(&again), record.answer.as_ref());
        answers.push(again);
    }
    assert_ne!(answers[0], answers[1]);
}

#[test]
fn why_an_executor_is_where_it_is_is_told_by_the_plugin_or_else_by_the_host() {
    let dir = tempfile::tempdir().unwrap();
    c_plugin(dir.path(), "silent", "", ALL_IN_ONE);
    let mut world = small_world();
    let scheduler = Scheduler::new(options("silent", dir.path()));
    assert_eq!(scheduler.why("t", 1).unwrap_err(), NoAnswer::NoRound);
    how(&world, &scheduler, 1);
    let first = world.topologies[0].1.executors().next().unwrap().1.first;
    let told = scheduler.why("t", first).unwrap();
    assert_eq!((told.slot.map(|s| s.port), told.reasons[0].word), (Some(6700), "placed-best-score"));
    assert!(told.note.unwrap().contains("gives no reasons"));
    assert_eq!(scheduler.why("t", 99).unwrap_err(), NoAnswer::Unknown);

    // Even has no slot for the second one: the host counts why.
    world.topology("u", 2, &[("spout", 1, None)]);
    world.topology("v", 2, &[("spout", 1, None)]);
    world.supervisors.get_mut("s1").unwrap().slots.truncate(1);
    let even = Scheduler::new(options("even", &shipped_dir()));
    let outcome = world.round(1, |input| even.round(input));
    let (id, plan) = outcome.topologies.iter().find(|(_, p)| p.unplaced > 0).expect("one slot is too few for three");
    assert!(plan.notes.iter().any(|n| n.contains("`spout`") && n.ends_with("1 node: 1 no free slot")), "{:?}", plan.notes);
    let (_, layout, _) = world.topologies.iter().find(|(record, ..)| record.id == *id).unwrap();
    let told = even.why(id.as_str(), layout.executors().next().unwrap().1.first).unwrap();
    assert_eq!((told.reasons[0].code, told.summary.as_str()), (abi::WHY_NO_SLOT, "1 node: 1 no free slot"));
}

/// Blacklists the first node.
const JUDGE: &str = "static int32_t judge(void *i, const saetta_round *r, saetta_health *h, saetta_err *e) {
        (void)i; (void)r; (void)e; h->flags_of_node[0] |= SAETTA_NODE_BLACKLISTED; return 0; }
    static const saetta_node_health_v1 health = {.struct_size = sizeof health, .health = judge};
    #define GET_EXTENSION get
    static const void *get(const char *id, uint64_t len) {
        return len == sizeof SAETTA_EXT_NODE_HEALTH - 1 && !memcmp(id, SAETTA_EXT_NODE_HEALTH, len) ? &health : 0; }";

#[test]
fn an_executor_without_a_slot_is_told_what_is_in_the_way_node_by_node() {
    let dir = tempfile::tempdir().unwrap();
    c_plugin(dir.path(), "silent", "", "return 1;");
    c_plugin(dir.path(), "judge", JUDGE, "return 1;");
    // s1 is blacklisted, s2 full, the others too small.
    let mut world = World::new(&[("s1", &[1]), ("s2", &[1]), ("s3", &[1]), ("s4", &[1]), ("s5", &[1])]);
    for (id, memory_mb) in [("s1", 4096), ("s2", 4096), ("s3", 8), ("s4", 8), ("s5", 8)] {
        let resources = &mut world.supervisors.get_mut(id).unwrap().resources;
        (resources.cpu_milli_pct, resources.memory_bytes) = (400_000, memory_mb << 20);
    }
    world.topology("old", 1, &[("spout", 1, None)]).topology("new", 1, &[("spout", 1, None)]);
    let first_of = |world: &World, t: usize| world.topologies[t].1.component("spout").unwrap().executors[0].first;
    let on_s2 = world.topologies[0].1.executors().map(|(_, id)| (id, SlotId { node: name("s2"), port: 1 })).collect();
    world.topologies[0].2 = assignment(&on_s2);
    let policy = Policy { node_health: Some("judge".into()), resources: Resources::Enforced, ..Policy::default() };
    let scheduler = Scheduler::new(with_policy(options("silent", dir.path()), policy));
    world.round(1, |input| scheduler.round(input));

    let told = scheduler.why("new", first_of(&world, 1)).unwrap();
    assert_eq!(told.summary, "5 nodes: 3 not enough memory, 1 no free slot, 1 blacklisted");
    let counted: Vec<_> = told.nodes.iter().map(|n| (n.word, n.n)).collect();
    assert_eq!(counted, [("no-memory", 3), ("no-slot", 1), ("blacklisted", 1)]);
    assert_eq!((told.slot, told.reasons[0].code, told.how), (None, abi::WHY_NO_MEMORY, How::Plugin("silent".into())));

    let told = scheduler.why("old", first_of(&world, 0)).unwrap();
    assert_eq!((told.reasons[0].word, told.reasons[0].node.as_deref(), told.reasons[0].port), ("kept", Some("s2"), Some(1)));
}

#[test]
fn an_executor_that_the_fallback_placed_says_so_and_why_and_the_plugin_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    c_plugin(dir.path(), "sorry", "", r#"return say(err, SAETTA_E_INTERNAL, "no luck");"#);
    let world = small_world();
    let scheduler = Scheduler::new(options("sorry", dir.path()));
    how(&world, &scheduler, 1);
    let first = world.topologies[0].1.executors().next().unwrap().1.first;
    for _ in 0..2 * FAILURES_IN_A_ROW {
        let told = scheduler.why("t", first).unwrap();
        let reason = &told.reasons[0];
        assert_eq!((reason.code, reason.node.as_deref(), reason.port), (abi::WHY_FALLBACK, Some("s1"), Some(6700)));
        assert_eq!(told.slot, Some(SlotId { node: name("s1"), port: 6700 }));
        assert!(why(&told.how).contains("no luck") && told.note.unwrap().contains("plugin sorry: answered E_INTERNAL: no luck"));
    }
    assert_eq!(scheduler.status().state, "in use", "questions of operators are no rounds");
}

#[test]
fn reasons_of_a_plugin_come_through_its_helper() {
    let dir = tempfile::tempdir().unwrap();
    let body = format!(
        r#"if (round->flags & SAETTA_ROUND_EXPLAIN) {{
            const saetta_explain_v1 *explain = the_host->get_extension(the_host->ctx, SAETTA_EXT_EXPLAIN, sizeof SAETTA_EXT_EXPLAIN - 1);
            saetta_score_part part = {{"rack", 4, 250}};
            saetta_explanation e = {{.struct_size = sizeof e, .exec = 0, .slot = 0, .code = SAETTA_WHY_AFFINITY, .arg = SAETTA_NONE,
                .n_parts = 1, .score = 250, .parts = &part, .text = "near", .text_len = 4}};
            explain->explain(the_host->ctx, &e);
        }}
        {ALL_IN_ONE}"#
    );
    c_plugin(dir.path(), "talker", "", &body);
    let world = small_world();
    for policy in [Policy::default(), Policy { mode: saetta_sched_host::policy::Mode::InProcess, ..Policy::default() }] {
        let scheduler = Scheduler::new(with_policy(options("talker", dir.path()), policy));
        assert_eq!(how(&world, &scheduler, 1), How::Plugin("talker".into()));
        let first = world.topologies[0].1.executors().next().unwrap().1.first;
        let told = scheduler.why("t", first).unwrap();
        let reason = &told.reasons[0];
        assert_eq!((reason.word, reason.score, reason.text.as_str(), reason.parts["rack"]), ("placed-affinity", 250, "near", 250));
        assert_eq!((reason.node.as_deref(), told.note), (Some("s1"), None));
    }
}

#[test]
fn a_plugin_in_this_process_answers_as_in_a_helper_and_its_errors_cost_a_round() {
    let world = worked_example();
    let isolated = Scheduler::new(options("even", &shipped_dir()));
    let policy = Policy { mode: saetta_sched_host::policy::Mode::InProcess, ..Policy::default() };
    let in_process = Scheduler::new(with_policy(options("even", &shipped_dir()), policy.clone()));
    let round = |scheduler: &Scheduler| world.round(1, |input| scheduler.round(input));
    assert_eq!(round(&in_process), round(&isolated));
    assert_eq!(in_process.status().mode, "in-process");
    let dir = tempfile::tempdir().unwrap();
    c_plugin(dir.path(), "sorry", "", r#"return say(err, SAETTA_E_INTERNAL, "no luck");"#);
    let scheduler = Scheduler::new(with_policy(options("sorry", dir.path()), policy));
    assert!(why(&how(&world, &scheduler, 1)).contains("no luck"));
    assert!(why(&how(&world, &scheduler, 2)).contains("no luck"));
}

#[test]
fn a_plugins_configuration_reaches_it() {
    let dir = tempfile::tempdir().unwrap();
    c_plugin(dir.path(), "conf", "", "return say(err, SAETTA_E_CONFIG, the_config);");
    let config = r#"{"weight":3}"#.to_owned();
    let scheduler = Scheduler::new(with_policy(options("conf", dir.path()), Policy { config, ..Policy::default() }));
    assert!(why(&how(&small_world(), &scheduler, 1)).contains(r#"{"weight":3}"#));
}

#[test]
fn a_health_stage_that_is_none_costs_nothing_but_a_note() {
    let dir = tempfile::tempdir().unwrap();
    c_plugin(dir.path(), "live", "", ALL_IN_ONE);
    let policy = Policy { node_health: Some("live".into()), ..Policy::default() };
    let scheduler = Scheduler::new(with_policy(options("live", dir.path()), policy));
    let plan = small_world().round(1, |input| scheduler.round(input)).topologies.remove(0).1;
    assert_eq!(plan.how, How::Plugin("live".into()));
    assert!(plan.notes.iter().any(|n| n.contains("health stage live") && n.contains(abi::EXT_NODE_HEALTH)), "{:?}", plan.notes);
}

/// Counts its rounds, and remembers the count. One byte to remember is more than it survives.
const COUNTER: &str = "static int32_t n;
    static int32_t save(void *i, saetta_out *out) {
        (void)i; out->len = sizeof n;
        if (out->cap < sizeof n) return SAETTA_E_NO_MEMORY;
        memcpy(out->buf, &n, sizeof n); return SAETTA_OK; }
    static int32_t restore(void *i, const uint8_t *bytes, uint64_t len, saetta_err *err) {
        (void)i; (void)err;
        if (len == 1) *(volatile int *)8 = 1;
        if (len != sizeof n) return SAETTA_E_INTERNAL;
        memcpy(&n, bytes, sizeof n); return SAETTA_OK; }
    static const saetta_state_v1 state = {.struct_size = sizeof state, .save = save, .restore = restore};
    #define GET_EXTENSION get
    static const void *get(const char *id, uint64_t len) {
        return len == sizeof SAETTA_EXT_STATE - 1 && !memcmp(id, SAETTA_EXT_STATE, len) ? &state : 0; }";

#[test]
fn what_a_plugin_saves_is_what_the_next_leaders_instance_begins_with() {
    let dir = tempfile::tempdir().unwrap();
    c_plugin(dir.path(), "counter", COUNTER, "n++; return 1;");
    let world = small_world();
    let first = world.topologies[0].1.executors().next().unwrap().1.first;
    let saved = |bytes: &[u8]| Memory::from([("counter".to_owned(), bytes.to_vec())]);
    let count = |n: i32| saved(&n.to_le_bytes());
    for mode in [saetta_sched_host::policy::Mode::Isolated, saetta_sched_host::policy::Mode::InProcess] {
        let policy = Policy { mode, ..Policy::default() };
        let scheduler = Scheduler::new(with_policy(options("counter", dir.path()), policy));
        scheduler.remember(&count(40));
        assert_eq!(how(&world, &scheduler, 1), How::Plugin("counter".into()));
        assert_eq!(scheduler.memory(), count(41));
        scheduler.why("t", first).unwrap();
        assert_eq!(scheduler.memory(), count(41), "a question without effect leaves nothing");
    }
    // What is another plugin's, what it does not take, and what kills it: it starts with nothing.
    for odd in [Memory::from([("other".to_owned(), vec![7; 4])]), saved(&[7; 3]), saved(&[7])] {
        let scheduler = Scheduler::new(options("counter", dir.path()));
        scheduler.remember(&odd);
        assert_eq!(how(&world, &scheduler, 1), How::Plugin("counter".into()), "{odd:?}");
        assert_eq!(scheduler.memory(), count(1), "{odd:?}");
    }
}

#[test]
fn an_instance_that_is_started_anew_goes_on_where_the_former_one_was() {
    let dir = tempfile::tempdir().unwrap();
    let body = "if (++n == 3) *(volatile int *)8 = 1; return 1;";
    c_plugin(dir.path(), "counter", COUNTER, body);
    let world = small_world();
    let scheduler = Scheduler::new(options("counter", dir.path()));
    how(&world, &scheduler, 1);
    how(&world, &scheduler, 2);
    assert!(why(&how(&world, &scheduler, 3)).contains("SIGSEGV"));
    assert_eq!(scheduler.memory()["counter"], 2i32.to_le_bytes());
}

#[test]
fn nodes_that_a_health_stage_marks_get_nothing_new() {
    let dir = tempfile::tempdir().unwrap();
    c_plugin(dir.path(), "judge", JUDGE, "return 1;");
    c_plugin(dir.path(), "live", "", ALL_IN_ONE);
    let policy = Policy { node_health: Some("judge".into()), ..Policy::default() };
    let scheduler = Scheduler::new(with_policy(options("live", dir.path()), policy));
    let told = how(&small_world(), &scheduler, 1);
    assert!(why(&told).contains("V02") && why(&told).contains("blacklisted"), "{told:?}");
}
