//! Both sides of the C table, and a reader that trusts nothing.

use proptest::prelude::*;
use saetta_sdk::call::{Instance, PlanArrays, RoundArgs, Services};
use saetta_sdk::snapshot::Writer;
use saetta_sdk::{CreateCx, ExecId, Outcome, Plan, PluginError, Round, Scheduler, SlotId, Snapshot, SnapshotError, TopoId, Verdict, abi};
use std::sync::{Arc, Mutex};

/// Does what its round's seed says.
struct Moody;

impl Scheduler for Moody {
    fn create(cx: &CreateCx<'_>) -> Result<Self, PluginError> {
        match cx.config {
            "panic" => panic!("in create"),
            "refuse" => Err(PluginError { code: abi::E_CONFIG, text: format!("{} does not like it", cx.name) }),
            _ => Ok(Moody),
        }
    }
    fn schedule(&mut self, round: &Round<'_>, plan: &mut Plan<'_>) -> Result<Verdict, PluginError> {
        match round.seed {
            0 => panic!("seed zero"),
            1 => Err(PluginError::internal("é".repeat(1000))),
            2 => {
                plan.place(ExecId(0), SlotId(9));
                Ok(Verdict::Done)
            }
            3 => {
                round.warn("line\none");
                assert_eq!(plan.slot_of(ExecId(0)), None);
                plan.place(ExecId(0), SlotId(0));
                plan.place(ExecId(1), SlotId(1));
                plan.free(ExecId(1));
                plan.outcome(TopoId(0), Outcome::Partial);
                Ok(Verdict::Done)
            }
            _ => Ok(Verdict::NoChange),
        }
    }
}

mod exported {
    use super::Moody;
    saetta_sdk::export_scheduler!(Moody, id = "moody");
}

/// One node with two slots, one topology with two executors.
fn small(noise: usize) -> Vec<u8> {
    let mut w = Writer::with_row_noise(noise);
    let name = w.text("n");
    w.row(&abi::Meta { wall_ms: 7, reason: abi::REASON_SUBMIT, ..Default::default() });
    w.row(&abi::Rack { id: name, first_host: 0, n_hosts: 1 });
    w.row(&abi::HostRow { name, rack: 0, first_node: 0, n_nodes: 1, flags: 0 });
    w.row(&abi::NodeRow { id: name, host: 0, first_slot: 0, n_slots: 2, flags: 0, uptime_s: 0 });
    for port in [1, 2] {
        w.row(&abi::SlotRow { node: 0, port, topology: abi::NONE, flags: abi::SLOT_ASSIGNABLE, n_cores: 1, share: 1 });
    }
    w.row(&abi::TopologyRow {
        id: name,
        name,
        owner: name,
        launch_ms: 1,
        workers_wanted: 2,
        priority: 0,
        first_comp: 0,
        n_comps: 1,
        first_exec: 0,
        n_execs: 2,
        flags: abi::TOPO_SCHEDULE,
        user: abi::NONE,
        ..Default::default()
    });
    w.row(&abi::ComponentRow { name, topology: 0, kind: abi::KIND_SPOUT, first_exec: 0, n_execs: 2, ..Default::default() });
    w.row(&abi::EdgeRow { from: 0, to: 0, stream: name, grouping: abi::GROUP_ALL, reserved: 0 });
    for task in [1, 2] {
        w.row(&abi::ExecutorRow {
            topology: 0,
            component: 0,
            first_task: task,
            last_task: task,
            slot: abi::NONE,
            last_slot: abi::NONE,
            core: abi::NONE,
            ..Default::default()
        });
    }
    w.finish(1)
}

fn open(config: &str) -> Result<Instance, PluginError> {
    Instance::builtin(exported::BUILTIN, config, Services::new(|_, _| {}))
}

fn run(instance: &mut Instance, seed: u64) -> Result<(bool, Vec<u32>, Vec<u32>), PluginError> {
    let (mut slots, mut outcome) = (vec![abi::NONE; 2], vec![abi::OUT_KEEP; 1]);
    let args = RoundArgs { reason: 0, round_id: 1, seed, max_moves: abi::NONE, flags: 0, budget_ns: 1 << 40 };
    let changed = instance.schedule(args, &small(0), PlanArrays { slot_of_exec: &mut slots, outcome: &mut outcome, core_of_exec: None })?;
    Ok((changed, slots, outcome))
}

#[test]
fn a_plan_and_a_log_line_cross_the_table() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let lines = lines.clone();
        Services::new(move |level, text: &str| lines.lock().unwrap().push((level, text.to_owned())))
    };
    let mut instance = Instance::builtin(exported::BUILTIN, "{}", sink).unwrap();
    assert_eq!(run(&mut instance, 3), Ok((true, vec![0, abi::NONE], vec![abi::OUT_PARTIAL])));
    assert_eq!(run(&mut instance, 4), Ok((false, vec![abi::NONE; 2], vec![abi::OUT_KEEP])));
    assert_eq!(*lines.lock().unwrap(), [(abi::LOG_WARN, "line one".to_owned())]);
}

#[test]
fn a_panic_becomes_an_error_and_poisons_the_instance() {
    let mut instance = open("{}").unwrap();
    let error = run(&mut instance, 0).unwrap_err();
    assert_eq!((error.code, error.text.as_str()), (abi::E_PANIC, "panicked: seed zero"));
    let error = run(&mut instance, 4).unwrap_err();
    assert_eq!(error.code, abi::E_PANIC, "its state may be half changed");
    assert!(error.text.contains("poisoned"), "{error}");
    assert!(run(&mut open("{}").unwrap(), 4).is_ok(), "a new instance is well");
}

#[test]
fn a_slot_outside_the_snapshot_is_a_panic_of_the_plugin_not_a_write() {
    let error = run(&mut open("{}").unwrap(), 2).unwrap_err();
    assert!(error.code == abi::E_PANIC && error.text.contains("slot 9"), "{error}");
}

#[test]
fn errors_carry_code_and_text_cut_at_a_character() {
    let error = run(&mut open("{}").unwrap(), 1).unwrap_err();
    assert_eq!((error.code, error.text), (abi::E_INTERNAL, "é".repeat(saetta_sdk::call::ERR_TEXT_BYTES_MAX / 2)));
    let error = open("refuse").err().unwrap();
    assert_eq!((error.code, error.text.as_str()), (abi::E_CONFIG, "moody does not like it"));
    assert_eq!(open("panic").err().unwrap().code, abi::E_PANIC);
}

#[test]
fn rows_are_found_by_stride_and_a_shorter_row_reads_as_zero_beyond_its_end() {
    for noise in [0, 8, 24] {
        let bytes = small(noise);
        let s = Snapshot::new(&bytes).unwrap();
        assert_eq!((s.slots().len(), s.slots().get(1).port, s.executors().get(1).last_task), (2, 2, 2));
        assert_eq!((s.meta().unwrap().wall_ms, s.text(s.topologies().get(0).name)), (7, "n"));
    }
    let row = abi::SlotRow { node: 1, port: 2, topology: 3, flags: 4, n_cores: 5, share: 6 };
    let mut bytes = [0; 24];
    abi::Row::write(&row, &mut bytes);
    let short = <abi::SlotRow as abi::Row>::read(&bytes[..16]);
    assert_eq!((short.flags, short.n_cores, short.share), (4, 0, 0), "an older host");
}

#[test]
fn an_unknown_incompatible_feature_is_refused_and_a_compatible_one_is_not() {
    let mut bytes = small(0);
    bytes[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(Snapshot::new(&bytes).is_ok(), "features_compat");
    bytes[40..48].copy_from_slice(&4u64.to_le_bytes());
    assert_eq!(Snapshot::new(&bytes).err(), Some(SnapshotError::Unsupported(4)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_the_reader_panic(flips in prop::collection::vec((0usize..4096, any::<u8>()), 0..6), cut in 0usize..4096) {
        let mut bytes = small(0);
        for (at, value) in flips {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        if cut < bytes.len() / 8 {
            bytes.truncate(cut);
        }
        if let Ok(s) = Snapshot::new(&bytes) {
            // Every index a scheduler would follow is good once the check has passed.
            for t in s.topologies().iter() {
                prop_assert!(s.executors_of(&t).all(|(_, e)| e.slot == abi::NONE || (e.slot as usize) < s.slots().len()));
                let _ = s.text(t.name);
            }
            for slot in s.slots().iter() {
                let _ = s.hosts().get(s.nodes().get(slot.node as usize).host as usize);
            }
        }
    }
}
