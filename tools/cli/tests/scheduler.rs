//! `saetta scheduler`: projects are made, files are told of, and what is wrong says what to do. Verdicts of the suite itself are tests of
//! the host's crate.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn saetta(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_saetta")).arg("scheduler").args(args).current_dir(dir).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// Runs `make` in a project; a warning is an error.
fn make(dir: &Path, goal: &str) -> String {
    let flags = ["CFLAGS=-O1 -Werror", "CXXFLAGS=-O1 -Werror"];
    let out = Command::new("make").arg("-C").arg(dir).args(flags).arg(goal).env_remove("MAKEFLAGS").output().unwrap();
    assert!(out.status.success(), "{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn project_in(lang: &str, note: &str) {
    let tmp = tempfile::tempdir().unwrap();
    let (code, _, stderr) = saetta(tmp.path(), &["new", "--lang", lang, "near_racks"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("saetta scheduler validate ./libsaetta_near_racks.so"), "{stderr}");
    let dir = tmp.path().join("near_racks");
    assert!(make(&dir, "test").contains("\nok\n"), "its own test");
    make(&dir, "all");
    let file = dir.join("libsaetta_near_racks.so");
    let (code, stdout, stderr) = saetta(&dir, &["inspect", "--json", file.to_str().unwrap()]);
    assert_eq!(code, 0, "{stderr}");
    let facts: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(facts["manifest"]["id"], "near_racks");
    assert_eq!(facts["exports"], serde_json::json!(["saetta_scheduler_v1"]));
    assert!(!stdout.contains("libstdc++"), "the C++ runtime is linked in: {stdout}");
    // The build leaves no placeholder behind.
    let readme = std::fs::read_to_string(dir.join("README.md")).unwrap();
    assert!(readme.contains("near_racks") && !readme.contains('@'), "{readme}");
    let (_, stdout, _) = saetta(&dir, &["inspect", file.to_str().unwrap()]);
    assert!(stdout.contains("1.0, needs a host of 1.0") && stdout.contains(note), "{stdout}");
}

#[test]
fn a_project_in_c_builds_passes_its_test_and_is_told_of() {
    project_in("c", "libc.so.6");
}

#[test]
fn a_project_in_cpp_builds_passes_its_test_and_is_told_of() {
    project_in("cpp", "libc.so.6");
}

#[test]
fn a_project_in_rust_names_the_sdk_and_forbids_unsafe() {
    let tmp = tempfile::tempdir().unwrap();
    let (code, _, stderr) = saetta(tmp.path(), &["new", "--lang", "rust", "near_racks"]);
    assert_eq!(code, 0, "{stderr}");
    let read = |file: &str| std::fs::read_to_string(tmp.path().join("near_racks").join(file)).unwrap();
    let manifest = read("Cargo.toml");
    let sdk = manifest.split("path = \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(Path::new(sdk).join("src/lib.rs").is_file(), "{manifest}");
    assert!(manifest.contains("name = \"saetta_near_racks\"") && !manifest.contains('@'), "{manifest}");
    assert!(read("src/lib.rs").contains("#![forbid(unsafe_code)]"));
}

#[test]
fn names_and_folders_that_cannot_be_are_refused() {
    let tmp = tempfile::tempdir().unwrap();
    for name in ["", "Near", "near-racks", "9lives", "a/b", "..", &"x".repeat(65)] {
        let (code, _, stderr) = saetta(tmp.path(), &["new", "--lang", "c", "--", name]);
        assert!(code == 2 && stderr.contains("is no name for a scheduler"), "{name}: {code} {stderr}");
    }
    std::fs::create_dir(tmp.path().join("taken")).unwrap();
    let (code, _, stderr) = saetta(tmp.path(), &["new", "--lang", "c", "taken"]);
    assert!(code == 4 && stderr.contains("taken is there already"), "{code} {stderr}");
    let (code, _, stderr) = saetta(tmp.path(), &["new", "--lang", "rust", "--sdk", "/nowhere", "x"]);
    assert!(code == 3 && stderr.contains("--sdk DIR"), "{code} {stderr}");
    assert!(!tmp.path().join("x").exists(), "nothing is made where something is missing");
}

#[test]
fn what_is_no_plugin_is_told_as_far_as_it_can_be() {
    let tmp = tempfile::tempdir().unwrap();
    let text = tmp.path().join("text.so");
    std::fs::write(&text, "hello").unwrap();
    let (code, stdout, stderr) = saetta(tmp.path(), &["inspect", text.to_str().unwrap()]);
    assert!(code == 8 && stdout.is_empty() && stderr.contains("not a 64-bit little-endian ELF file"), "{code} {stderr}");
    let (code, stdout, stderr) = saetta(tmp.path(), &["inspect", "/bin/true"]);
    assert!(code == 8 && stdout.contains("libc.so.6") && stderr.contains("this version does not load it"), "{code} {stdout} {stderr}");
}

#[test]
fn the_checks_are_listed_and_wrong_patterns_are_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let (code, stdout, _) = saetta(tmp.path(), &["list-tests"]);
    assert_eq!(code, 0);
    for check in saetta_sched_host::conformance::CHECKS {
        assert!(stdout.contains(check.id) && stdout.contains(check.about), "{} is missing", check.id);
    }
    let (code, _, stderr) = saetta(tmp.path(), &["validate", "x.so", "--only", "nothing"]);
    assert!(code == 2 && stderr.contains("list-tests"), "{code} {stderr}");
    let (code, _, stderr) = saetta(tmp.path(), &["validate", "x.so", "--helper", "/nowhere/helper"]);
    assert!(code == 1 && stderr.contains("/nowhere/helper"), "{code} {stderr}");
}

/// Builds the helper beside the command, as the ordinary build of the workspace does, and returns the folder of both.
fn with_helper() -> PathBuf {
    with(&["saetta-sched-host"])
}

/// The same with these packages.
fn with(packages: &[&str]) -> PathBuf {
    let bin = Path::new(env!("CARGO_BIN_EXE_saetta")).parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet"]).args(packages.iter().flat_map(|package| ["-p", package]));
    if bin.file_name().is_some_and(|profile| profile == "release") {
        build.arg("--release");
    }
    let status = build.env("CARGO_TARGET_DIR", bin.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
    assert!(status.success(), "{packages:?} do not build");
    bin.to_path_buf()
}

#[test]
fn the_commands_of_the_page_work() {
    let page = include_str!("../../../docs/write-a-scheduler.md");
    let boxes: Vec<&str> = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(boxes.len(), 6, "the page has six boxes of commands");
    let bin = with_helper();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let tmp = tempfile::tempdir().unwrap();
    let script = format!("set -ex\n{}", boxes.concat());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(tmp.path()).env("PATH", path);
    // As a shell of its own: what cargo sets for this test is not the author's.
    shell.env_remove("MAKEFLAGS").env_remove("CARGO_TARGET_DIR").env_remove("CARGO_MANIFEST_DIR").env_remove("RUSTFLAGS");
    let out = shell.output().unwrap();
    assert!(out.status.success(), "{}\n{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("failed   outcome-matches-plan"), "{said}");
}

#[test]
fn a_verdict_is_for_people_for_programs_and_for_the_shell() {
    let bin = with_helper();
    let tmp = tempfile::tempdir().unwrap();
    assert_eq!(saetta(tmp.path(), &["new", "--lang", "c", "mine"]).0, 0);
    let dir = tmp.path().join("mine");
    make(&dir, "all");
    let helper = bin.join("saetta-sched-host");
    let validate = |more: &[&str]| {
        let args = [
            &["validate", "./libsaetta_mine.so", "--helper", helper.to_str().unwrap(), "--only", "stride,manifest,needed-libraries"],
            more,
        ]
        .concat();
        saetta(&dir, &args)
    };
    let (code, stdout, stderr) = validate(&[]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("success  stride") && stderr.contains("3 checks: 3 success"), "{stdout}{stderr}");
    let (code, stdout, _) = validate(&["--json", "--exclude", "manifest"]);
    let value: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &value["passed"], value["items"].as_array().unwrap().len()), (0, &true.into(), 2));
    assert_eq!(value["items"][1]["reproduce"], "saetta scheduler validate ./libsaetta_mine.so --only stride");
    let source = std::fs::read_to_string(dir.join("scheduler.c")).unwrap();
    std::fs::write(dir.join("scheduler.c"), source.replace("SAETTA_MANIFEST(\"{", "SAETTA_MANIFEST(\"")).unwrap();
    make(&dir, "all");
    let (code, stdout, stderr) = validate(&[]);
    assert_eq!(code, 8, "{stdout}{stderr}");
    assert!(
        stdout.contains("failed   manifest") && stdout.contains("again: saetta scheduler validate ./libsaetta_mine.so --only manifest"),
        "{stdout}"
    );
    assert!(stdout.contains("skipped  stride") && stderr.contains("1 of 3 checks"), "{stdout}{stderr}");
}

#[test]
fn every_shipped_plugin_passes() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
    let names: Vec<String> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.len() >= 7, "{names:?}");
    let packages: Vec<String> = names.iter().map(|name| format!("saetta-{name}")).collect();
    let bin = with(&packages.iter().map(String::as_str).chain(["saetta-sched-host"]).collect::<Vec<_>>());
    for name in names {
        let file = format!("libsaetta_{}.so", name.replace('-', "_"));
        let (code, stdout, stderr) = saetta(&bin, &["validate", &file, "--jobs", "2"]);
        assert_eq!(code, 0, "{name}: {stdout}{stderr}");
    }
}

/// A round of the scheduler in a helper, recorded as nimbus records it.
fn recorded(bin: &Path, dir: &Path) -> PathBuf {
    use saetta_sched_host::record::{Head, Record, Recorder};
    use saetta_sched_host::{SchedulerOptions, ask::Desk, library::take, process::What};
    let cluster = "[[supervisors]]\nname = \"n\"\ncount = 2\nslots = 2\n[[topologies]]\nid = \"words\"\nworkers = 3\nackers = 0\n\
        [[topologies.components]]\nid = \"lines\"\nkind = \"spout\"\nexecutors = 4\n[[topologies.components]]\nid = \"count\"\nkind = \"bolt\"\n\
        executors = 5\ninputs = [{ from = \"lines\" }]\n";
    let scenario = saetta_sched_sim::scenario::Scenario::parse("test", cluster).unwrap();
    let snapshot = saetta_sched_sim::world::World::all(&scenario).pack();
    let args = saetta_sched_sim::compare::args(7, 0, 3, u32::MAX);
    let path = bin.join("libsaetta_even.so");
    let options = SchedulerOptions { helper: bin.join("saetta-sched-host"), ..SchedulerOptions::beside_exe().unwrap() };
    let mut desk = Desk::new(options, What::Plugin { name: "even".into(), path: path.clone() });
    let answer = desk.round(&snapshot, args).unwrap();
    let head = Head {
        round_id: args.round_id,
        seed: args.seed,
        max_moves: args.max_moves,
        budget_ns: args.budget_ns,
        plugin: "even".into(),
        sha256: take(&path, None).unwrap().sha256,
        id: "even 1".into(),
        config: "{}".into(),
        ..Head::default()
    };
    let record = Record { head, snapshot, answer: Some(answer) };
    Recorder::new(dir.to_path_buf(), 1 << 20).keep(&record).unwrap();
    dir.join(record.file_name())
}

#[test]
fn a_recorded_round_is_asked_again_compared_and_damage_is_named() {
    let bin = with(&["saetta-sched-host", "saetta-even", "saetta-round-robin"]);
    let tmp = tempfile::tempdir().unwrap();
    let file = recorded(&bin, tmp.path());
    let replay = |file: &Path, more: &[&str]| saetta(tmp.path(), &[&["replay", file.to_str().unwrap()], more].concat());

    let (code, stdout, stderr) = replay(&file, &[]);
    assert_eq!((code, stdout.trim()), (0, "round 7 by even (even 1): the same, bit for bit"), "{stderr}");

    let (code, stdout, stderr) = replay(&file, &["--plugin", "round-robin"]);
    assert!(code == 0 && stdout.contains("even (recorded)") && stdout.contains("round-robin"), "{code} {stdout}{stderr}");
    let (code, stdout, _) = replay(&file, &["--plugin", "round-robin", "--json"]);
    let whole: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (code, &whole["comparison"]["live"]["placed"], &whole["comparison"]["other"]["placed"]),
        (0, &9.into(), &9.into()),
        "{stdout}"
    );

    // Another plan in the record, with the right hash.
    let mut record = saetta_sched_host::record::Record::read(&file).unwrap();
    let slots = &mut record.answer.as_mut().unwrap().slot_of_exec;
    let other = *slots.iter().find(|slot| **slot != slots[2]).unwrap();
    slots[2] = other;
    let forged = tmp.path().join("forged.round");
    std::fs::write(&forged, record.encode()).unwrap();
    let (code, stdout, stderr) = replay(&forged, &[]);
    assert!(code == 1 && stdout.contains("another plan") && stderr.contains("` in words was in n-"), "{code} {stdout}{stderr}");

    let bytes = std::fs::read(&file).unwrap();
    let damaged = tmp.path().join("damaged.round");
    for (content, why) in [
        (bytes[..bytes.len() - 100].to_vec(), "damaged or cut"),
        (bytes[..20].to_vec(), "does not begin as one"),
        (bytes.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == 300)).collect(), "damaged or cut"),
    ] {
        std::fs::write(&damaged, content).unwrap();
        let (code, stdout, stderr) = replay(&damaged, &[]);
        assert!(code == 8 && stdout.is_empty() && stderr.contains(why) && stderr.contains("damaged.round"), "{code} {stdout}{stderr}");
    }
    let (code, _, stderr) = replay(&tmp.path().join("nowhere.round"), &[]);
    assert!(code == 8 && stderr.contains("saetta scheduler rounds"), "{code} {stderr}");
}

#[test]
fn a_scenario_configures_its_plugins_and_a_wrong_key_is_told() {
    let bin = with(&["saetta-sched-host", "saetta-isolation"]);
    let play = |config: &str| {
        let tmp = tempfile::tempdir().unwrap();
        let text = format!(
            "[plugins.isolation]\n{config}\n[[supervisors]]\nname = \"n\"\ncount = 3\nslots = 2\n[[topologies]]\nid = \"words\"\nworkers = 2\n\
             ackers = 0\n[[topologies.components]]\nid = \"lines\"\nkind = \"spout\"\nexecutors = 4\n"
        );
        std::fs::write(tmp.path().join("s.toml"), text).unwrap();
        let plugin = bin.join("libsaetta_isolation.so");
        saetta(tmp.path(), &["simulate", "s.toml", "--plugin", plugin.to_str().unwrap(), "--json"])
    };
    let nodes = |stdout: &str| {
        let whole: serde_json::Value = serde_json::from_str(stdout).unwrap();
        whole["items"][0]["rounds"][0]["figures"]["nodes"].as_u64().unwrap()
    };
    let (code, one, stderr) = play("machines = { words = 1 }");
    assert_eq!((code, nodes(&one)), (0, 1), "{one}{stderr}");
    let (code, two, stderr) = play("machines = { words = 2 }");
    assert_eq!((code, nodes(&two)), (0, 2), "{two}{stderr}");
    let (code, _, stderr) = play("machine = { words = 1 }");
    assert!(code == 8 && stderr.contains("its configuration is {\"machine\""), "{code} {stderr}");
}
