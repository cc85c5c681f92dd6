//! The conformance suite is believed because it has been seen to fail: each broken plugin of `plugins/` is caught by the check its head
//! names, and the plugins of the C and C++ templates, and the shipped even, pass all of it.

mod common;

use common::{World, shipped_dir};
use saetta_sched_host::conformance::{CHECKS, Check, Options, Report, Status, selected, validate};
use saetta_sched_host::facts::facts;
use saetta_sched_host::{How, Scheduler};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The folder of this crate.
fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn options() -> Options {
    Options::new(env!("CARGO_BIN_EXE_saetta-sched-host").into())
}

fn compile(compiler: &str, source: &Path, dir: &Path, more: &[&str]) -> PathBuf {
    let out = dir.join(format!("libsaetta_{}.so", source.file_stem().unwrap().to_str().unwrap()));
    let mut command = Command::new(compiler);
    if source.extension().is_some_and(|e| e == "rs") {
        command.args(["--edition", "2024", "--crate-type", "cdylib", "-o"]);
    } else {
        let standard = if compiler == "g++" { "-std=c++17" } else { "-std=gnu11" };
        command.args([standard, "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden", "-I"]);
        command.arg(here().join("../include"));
        command.arg(format!("-Wl,--version-script={}", here().join("../templates/exports.map").display())).arg("-o");
    }
    let result = command.arg(&out).arg(source).args(more).output().unwrap_or_else(|e| panic!("{compiler}: {e}"));
    assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
    out
}

/// Builds a file of `plugins/`.
fn broken(file: &str, dir: &Path, more: &[&str]) -> PathBuf {
    let source = here().join("tests/plugins").join(file);
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let compiler = match source.extension().and_then(|e| e.to_str()) {
        Some("c") => "gcc",
        Some("cpp") => "g++",
        _ => rustc.as_str(),
    };
    compile(compiler, &source, dir, more)
}

fn run(file: &Path, checks: &[&'static Check], options: &Options) -> Vec<Report> {
    validate(file, checks, options, |_| {})
}

/// The file is caught by this check, with this status and reason.
fn caught_with(file: &str, check: &str, status: Status, why: &str, more: &[&str], options: &Options) {
    let dir = tempfile::tempdir().unwrap();
    let plugin = broken(file, dir.path(), more);
    let head = std::fs::read_to_string(here().join("tests/plugins").join(file)).unwrap();
    assert!(head.lines().next().unwrap().contains(&format!("Caught by {check}.")), "the head of {file} names the check");
    let reports = run(&plugin, &selected(check), options);
    let [report] = &reports[..] else { panic!("{check} is one check") };
    assert!(report.status == status && report.reason.contains(why), "{file}: {report:?}");
    assert!(!report.reason.contains('\n'));
}

fn caught(file: &str, check: &str, status: Status, why: &str) {
    caught_with(file, check, status, why, &[], &options());
}

fn passes(file: &Path) {
    let all: Vec<&Check> = CHECKS.iter().collect();
    let reports = run(file, &all, &options());
    assert_eq!(reports.len(), CHECKS.len());
    for report in reports {
        assert!(!report.status.is_bad(), "{}: {report:?}", file.display());
        assert!(report.status != Status::Skipped, "{}: {report:?}", file.display());
    }
}

/// Nimbus's own way: a topology without a place, the plugin in its helper, the validated plan.
fn places_a_topology(dir: &Path) {
    let mut world = World::new(&[("s1", &[6700, 6701]), ("s2", &[6700])]);
    world.topology("t", 2, &[("spout", 2, None), ("bolt", 4, None)]);
    let scheduler = Scheduler::new(common::options("scheduler", dir));
    let plan = world.round(1, |input| scheduler.round(input)).topologies.remove(0).1;
    assert_eq!((&plan.how, plan.unplaced), (&How::Plugin("scheduler".into()), 0));
    world.apply(0, &plan);
    let again = world.round(2, |input| scheduler.round(input)).topologies.remove(0).1;
    assert_eq!((&again.how, &again.slots), (&How::Plugin("scheduler".into()), &plan.slots));
}

#[test]
fn the_plugin_of_the_c_template_passes_and_places_a_topology() {
    let dir = tempfile::tempdir().unwrap();
    passes(&compile("gcc", &here().join("../templates/c/scheduler.c"), dir.path(), &[]));
    places_a_topology(dir.path());
}

#[test]
fn the_plugin_of_the_cpp_template_passes_and_places_a_topology() {
    let dir = tempfile::tempdir().unwrap();
    let more = ["-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL", "-fno-gnu-unique"];
    passes(&compile("g++", &here().join("../templates/cpp/scheduler.cpp"), dir.path(), &more));
    places_a_topology(dir.path());
}

#[test]
fn the_shipped_even_passes() {
    passes(&shipped_dir().join("libsaetta_even.so"));
}

/// Built once against version 1.0 from the source beside it, and never again: what it was built with must be loaded for ever.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_plugin_that_was_built_against_1_0_is_loaded_and_passes() {
    use sha2::Digest;
    let kept = here().join("tests/fixtures/v1.0/libsaetta_fixture_1_0.so");
    let bytes = std::fs::read(&kept).unwrap();
    assert!(bytes.len() <= 100 << 10);
    let digest = "15e704a0d747c0f68edf5f2f377ddbbf98364e07ee026ba79506d0d73467ef5e";
    assert_eq!(hex::encode(sha2::Sha256::digest(&bytes)), digest, "the fixture is the one that was built against 1.0");
    // The checkout may be writable for others; a plugin may not.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("libsaetta_fixture_1_0.so");
    std::fs::write(&file, bytes).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o500)).unwrap();
    passes(&file);
}

#[test]
fn segv_is_caught() {
    caught("segv.c", "survives-a-round", Status::Crashed, "SIGSEGV");
}

#[test]
fn abort_is_caught() {
    caught("abort.c", "survives-a-round", Status::Crashed, "SIGABRT");
}

#[test]
fn exit_is_caught() {
    caught("exit.c", "survives-a-round", Status::Crashed, "exit code 0 in the middle of a call");
}

#[test]
fn a_panic_that_leaves_it_is_caught() {
    caught("panic.rs", "survives-a-round", Status::Crashed, "nobody catches this");
}

#[test]
fn an_exception_that_leaves_it_is_caught() {
    caught_with("throw.cpp", "survives-a-round", Status::Crashed, "SIGABRT", &["-static-libstdc++", "-static-libgcc"], &options());
}

#[test]
fn an_exception_under_the_wrapper_is_an_error_code_with_its_text() {
    let more = ["-static-libstdc++", "-static-libgcc"];
    caught_with("caught.cpp", "answers-without-error", Status::Failed, "no rack is near (E_INTERNAL)", &more, &options());
}

#[test]
fn an_endless_loop_is_caught() {
    let options = Options { deadline: Duration::from_millis(400), ..options() };
    caught_with("loop.c", "ends-before-deadline", Status::Failed, "within 0.4 s", &[], &options);
}

#[test]
fn a_leak_is_caught() {
    caught("leak.c", "no-leak", Status::Failed, "memory grew");
}

#[test]
fn a_thread_leak_is_caught() {
    caught_with("thread_leak.c", "no-threads", Status::Failed, "1 threads", &["-pthread"], &options());
}

#[test]
fn writing_to_stdout_is_caught() {
    caught("stdout.c", "no-output", Status::Failed, "round 1");
}

#[test]
fn a_naive_stride_is_caught() {
    caught("naive_stride.c", "stride", Status::Failed, "stride");
}

#[test]
fn fast_math_is_caught() {
    let start_code = Command::new("gcc").arg("-print-file-name=crtfastmath.o").output().unwrap();
    let start_code = String::from_utf8(start_code.stdout).unwrap();
    // Newer compilers link it into programs only; a library that has it is as bad.
    let more = ["-ffast-math", start_code.trim()];
    caught_with("fast_math.c", "fpu-mode-unchanged", Status::Failed, "-ffast-math", &more, &options());
}

#[test]
fn a_slot_for_two_topologies_is_caught() {
    caught("double_slot.c", "no-double-slot", Status::Failed, "holds executors of");
}

#[test]
fn a_slot_that_does_not_exist_is_caught() {
    caught("unknown_slot.c", "no-unknown-slot", Status::Failed, "and there are 12");
}

#[test]
fn a_write_to_the_snapshot_is_caught() {
    caught("writes_snapshot.c", "snapshot-not-written", Status::Failed, "bytes of the snapshot");
}

#[test]
fn a_snapshot_that_is_kept_is_caught() {
    caught("keeps_snapshot.c", "no-snapshot-kept", Status::Crashed, "SIGSEGV");
}

#[test]
fn a_plan_that_never_settles_is_caught() {
    caught("restless.c", "idempotent", Status::Failed, "moves 2 executors");
}

#[test]
fn features_that_nobody_looks_at_are_caught() {
    caught("ignores_features.c", "unknown-incompat-bit", Status::Failed, "E_UNSUPPORTED");
}

#[test]
fn freeing_what_runs_is_caught() {
    caught("frees.c", "frees-nobody", Status::Failed, "loses its slot n1:6700");
}

#[test]
fn a_configuration_refused_without_a_word_is_caught() {
    caught("mute.c", "odd-config", Status::Failed, "without a word");
}

#[test]
fn calling_the_host_from_another_thread_is_caught() {
    caught_with("other_thread.c", "same-thread", Status::Failed, "from another thread", &["-pthread"], &options());
}

#[test]
fn calling_the_host_after_the_end_is_caught() {
    caught_with("talks_on.c", "no-host-calls-after-destroy", Status::Failed, "after destroy", &["-pthread"], &options());
}

#[test]
fn an_extension_taken_for_granted_is_caught() {
    caught("needs_explain.c", "host-without-extensions", Status::Crashed, "SIGSEGV");
}

#[test]
fn an_ignored_signal_is_caught() {
    caught("signals.c", "signal-dispositions-unchanged", Status::Failed, "SigIgn");
}

#[test]
fn a_variable_set_in_the_environment_is_caught() {
    caught("environment.c", "locale-cwd-umask-env-unchanged", Status::Failed, "TZ");
}

#[test]
fn a_crash_for_an_odd_configuration_is_caught() {
    caught("fragile_config.c", "config-fuzz", Status::Crashed, "SIGSEGV");
}

#[test]
fn freeing_twice_after_an_error_is_caught() {
    caught("frees_twice.c", "destroy-after-error", Status::Crashed, "SIGABRT");
}

#[test]
fn going_on_after_a_panic_is_caught() {
    caught("panics_on.c", "poison-after-panic", Status::Failed, "E_PANIC");
}

#[test]
fn a_table_of_todays_groupings_is_caught() {
    caught("known_groupings.c", "unknown-enum-values", Status::Crashed, "SIGSEGV");
}

#[test]
fn a_table_of_fixed_size_is_caught() {
    caught("fixed_table.c", "max-size", Status::Failed, "too many executors");
}

#[test]
fn deciding_by_the_letters_of_a_name_is_caught() {
    caught("by_name.c", "permuted-names", Status::Failed, "the plan is another");
}

#[test]
fn dice_are_caught() {
    caught("dice.c", "deterministic", Status::Failed, "in another instance");
}

#[test]
fn half_a_plan_is_caught() {
    caught("leaves_half.c", "partial-result-on-cancel", Status::Failed, "told to stop");
}

#[test]
fn never_looking_at_the_time_is_told() {
    caught("never_asks.c", "polls-should-stop", Status::Warning, "should_stop");
}

#[test]
fn cubic_time_is_told() {
    caught("cubic.c", "monotone-cpu", Status::Warning, "times as long");
}

#[test]
fn a_garbage_manifest_is_caught_before_any_code_runs_and_the_rest_is_skipped() {
    caught("garbage_manifest.c", "manifest", Status::Failed, "manifest that is not understood");
    let dir = tempfile::tempdir().unwrap();
    let plugin = broken("garbage_manifest.c", dir.path(), &[]);
    let reports = run(&plugin, &selected("*"), &options());
    assert!(reports[1..].iter().all(|r| r.status == Status::Skipped && r.reason == "manifest did not succeed"));
}

#[test]
fn after_a_crash_the_checks_that_need_rounds_are_skipped_and_the_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = broken("segv.c", dir.path(), &[]);
    let reports = run(&plugin, &selected("makes-an-instance,ends-before-deadline,survives-a-round,stride,polls-should-stop"), &options());
    let statuses: Vec<(&str, Status)> = reports.iter().map(|r| (r.check.id, r.status)).collect();
    let expected = [
        ("makes-an-instance", Status::Success),
        ("ends-before-deadline", Status::Success),
        ("survives-a-round", Status::Crashed),
        ("stride", Status::Skipped),
        ("polls-should-stop", Status::Skipped),
    ];
    assert_eq!(statuses, expected);
}

#[test]
fn checks_that_run_at_once_report_in_the_same_order() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = broken("segv.c", dir.path(), &[]);
    let with = |jobs: usize| {
        let mut live = Vec::new();
        let reports =
            validate(&plugin, &selected("library,stride,survives-a-round"), &Options { jobs, ..options() }, |r| live.push(r.check.id));
        let all: Vec<(&str, Status)> = reports.iter().map(|r| (r.check.id, r.status)).collect();
        assert_eq!(live, all.iter().map(|(id, _)| *id).collect::<Vec<_>>());
        all
    };
    assert_eq!(with(4), with(1));
}

#[test]
fn facts_are_told_without_running_code() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = broken("segv.c", dir.path(), &[]);
    let facts = facts(&plugin).unwrap();
    assert_eq!(facts.exports, ["saetta_scheduler_v1"]);
    assert!(facts.needed.iter().any(|n| n.starts_with("libc.so")), "{:?}", facts.needed);
    assert!(facts.glibc.is_some_and(|v| v >= (2, 2)));
    assert_eq!(facts.manifest.unwrap().abi.major, 1);
    assert!(!facts.text_relocations && !facts.executable_stack);
}
