//! `saetta scheduler simulate` and `bench` as a shell sees them. The linked-in scheduler is asked: no helper has to lie beside the binary.

use serde_json::Value;
use std::process::Command;

const SCENARIO: &str = r#"
[[supervisors]]
name = "n"
count = 2
slots = 2

[[topologies]]
id = "words"
workers = 2
ackers = 0
[[topologies.components]]
id = "lines"
kind = "spout"
executors = 4

[[steps]]
do = "submit"
topology = "words"
[[steps]]
do = "node-lost"
node = "n-0000"
"#;

fn saetta(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_saetta")).args(args).env_clear().output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn scenario(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

#[test]
fn schedulers_are_compared_line_by_line() {
    let (_dir, file) = scenario(SCENARIO);
    let (code, stdout, stderr) =
        saetta(&["scheduler", "simulate", &file, "--plugin", "builtin:even", "--plugin", "builtin:even", "--rounds"]);
    assert_eq!(code, 0, "{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(lines[0].contains("PLUGIN") && lines[0].contains("SCHEDULED") && lines[0].contains("LOCALITY COST"), "{stdout}");
    assert!(lines[1].contains("builtin:even") && lines[1].contains("4/4") && lines[2].contains("builtin:even"), "{stdout}");
    assert_eq!(lines.iter().filter(|l| l.contains("node-lost n-0000")).count(), 2, "{stdout}");
}

#[test]
fn json_has_every_round() {
    let (_dir, file) = scenario(SCENARIO);
    let (code, stdout, stderr) = saetta(&["scheduler", "simulate", &file, "--plugin", "builtin:even", "--json"]);
    assert_eq!(code, 0, "{stderr}");
    let value: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&value["kind"], &value["items"][0]["plugin"]), (&Value::from("SchedulerComparison"), &Value::from("builtin:even")));
    let rounds = value["items"][0]["rounds"].as_array().unwrap();
    let steps: Vec<&str> = rounds.iter().map(|r| r["step"].as_str().unwrap()).collect();
    assert_eq!(steps, ["submit words", "node-lost n-0000"]);
    assert_eq!(rounds[1]["figures"]["scheduled"], 4);
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_what_to_do() {
    let (_dir, bad) = scenario("[[supervisors]]\nslots = 2\nslot = 1\n");
    let (_dir2, good) = scenario(SCENARIO);
    for (args, code, says) in [
        (vec!["simulate", &bad], 8, vec!["s.toml:3:1: unknown field `slot`"]),
        (vec!["simulate", "/nowhere.toml"], 8, vec!["scenario /nowhere.toml", "check the path"]),
        (vec!["simulate", &good, "--plugin", "builtin:odd"], 3, vec!["no linked-in scheduler `odd`", "try: "]),
        (vec!["simulate", &good, "--plugin", "/nowhere/libx.so"], 3, vec!["there is no plugin `/nowhere/libx.so`", "check the path"]),
        (
            vec!["simulate", &good, "--plugin", "x", "--set", "scheduler.plugin.dir=/nowhere"],
            3,
            vec!["/nowhere/libsaetta_x.so is no file", "try: "],
        ),
        (vec!["bench", "--nodes", "0"], 2, vec!["--nodes"]),
        (vec!["bench", "--nodes", "5", "--cluster", &good], 2, vec!["--cluster", "--nodes"]),
        (vec!["bench", "--cluster", &bad], 8, vec!["s.toml:3:1: unknown field `slot`"]),
    ] {
        let args: Vec<&str> = ["scheduler"].into_iter().chain(args).collect();
        let (got, stdout, stderr) = saetta(&args);
        assert_eq!((got, stdout.as_str()), (code, ""), "{args:?}: {stderr}");
        assert!(says.iter().all(|s| stderr.contains(s)) && !stderr.contains("panicked"), "{args:?}: {stderr}");
    }
}

#[test]
fn rounds_are_timed_on_ever_larger_clusters() {
    let (code, stdout, stderr) = saetta(&["scheduler", "bench", "--plugin", "builtin:even", "--nodes", "5,10", "--json"]);
    assert_eq!(code, 0, "{stderr}");
    let value: Value = serde_json::from_str(&stdout).unwrap();
    let sizes: Vec<(u64, u64)> =
        value["items"].as_array().unwrap().iter().map(|r| (r["nodes"].as_u64().unwrap(), r["scheduled"].as_u64().unwrap())).collect();
    assert_eq!(sizes, [(5, 40), (10, 120)]);
}

#[test]
fn rounds_are_timed_on_the_cluster_of_a_file() {
    let (_dir, file) = scenario(SCENARIO);
    let (code, stdout, stderr) = saetta(&["scheduler", "bench", "--plugin", "builtin:even", "--cluster", &file, "--json"]);
    assert_eq!(code, 0, "{stderr}");
    let value: Value = serde_json::from_str(&stdout).unwrap();
    let rung = &value["items"][0];
    let said = ["nodes", "topologies", "executors", "scheduled", "again_moves"].map(|key| rung[key].as_u64().unwrap());
    assert_eq!(said, [2, 1, 4, 4, 0]);
}

#[test]
fn a_scenario_configures_plugins_and_a_wrong_key_is_told_with_the_configuration() {
    let (_dir, file) = scenario(&format!("plugins.even.redistribute_idle = true\n{SCENARIO}"));
    let (code, _, stderr) = saetta(&["scheduler", "simulate", &file, "--plugin", "builtin:even"]);
    assert!(code == 0 && stderr.contains("configures the plugin even, which is not played"), "{code} {stderr}");
}
