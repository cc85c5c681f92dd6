//! What a shell sees of `saetta` where no cluster is needed: exit codes, and that errors say what to do.

use assert_cmd::Command;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Nobody listens here: port 1 of loopback.
const NOBODY: &str = "nimbus.seeds=127.0.0.1:1";

fn saetta(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_saetta"));
    command.args(args).env_clear();
    command
}

/// Runs it; returns exit code, stdout, stderr.
fn run(args: &[&str]) -> (i32, String, String) {
    ran(saetta(args))
}

fn ran(mut command: Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// Fails with this code, prints no data, and says this.
fn refused(args: &[&str], code: i32, says: &[&str]) {
    let (got, stdout, stderr) = run(args);
    assert_eq!(got, code, "{args:?}: {stderr}");
    assert_eq!(stdout, "", "{args:?}");
    for part in says {
        assert!(stderr.contains(part), "{args:?} does not say {part:?}: {stderr}");
    }
    assert!(!stderr.contains("panicked") && !stderr.contains("RUST_BACKTRACE"), "{args:?}: {stderr}");
}

fn file(dir: &Path, name: &str, bytes: &[u8], mode: u32) -> String {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path.display().to_string()
}

#[test]
fn wrong_usage_is_2_and_names_the_nearest() {
    refused(&[], 2, &["Usage: saetta"]);
    refused(&["stauts", "wc"], 2, &["status"]);
    refused(&["list", "--outptu", "json"], 2, &["--output"]);
    refused(&["kill"], 2, &["NAMES"]);
    for wait in ["-5", "1e12", "abc", "90000"] {
        refused(&["kill", "wc", "-w", wait], 2, &[]);
        refused(&["submit", "x", &format!("--wait={wait}")], 2, &["whole number of seconds"]);
    }
    refused(&["kill", "wc", "wc", "--set", NOBODY], 2, &["named twice"]);
    refused(&["list", "-q", "-v"], 2, &["cannot be used with"]);
    refused(&["help", "exit-code"], 2, &["saetta help exit-codes"]);
}

#[test]
fn verbs_of_storm_say_what_to_use_instead() {
    refused(&["jar", "topology.jar", "org.Main", "--x"], 2, &["`jar`", "saetta submit topology.jar"]);
    refused(&["shell", "x.py"], 2, &["saetta submit FILE"]);
    refused(&["repl"], 2, &["FILE run"]);
    refused(&["classpath"], 2, &["without a class path"]);
}

#[test]
fn help_lists_every_exit_code_and_every_key() {
    let (code, stdout, _) = run(&["help", "exit-codes"]);
    assert_eq!(code, 0);
    for n in 0..=8 {
        assert!(stdout.contains(&format!("\n   {n}  ")), "{n} is missing");
    }
    let (code, stdout, _) = run(&["help", "config"]);
    assert_eq!(code, 0);
    for key in saetta_model::config::KEYS {
        assert!(stdout.contains(&format!("\n  {}", key.name)), "{} is missing", key.name);
    }
    assert_eq!(run(&["help"]).0, 0);
    assert!(run(&["help", "kill"]).1.contains("--ignore-errors"));
}

#[test]
fn version_is_for_people_and_for_programs() {
    assert_eq!(run(&["version"]).1, format!("saetta {}\n", env!("CARGO_PKG_VERSION")));
    let (code, stdout, _) = run(&["version", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &value["kind"], &value["version"]), (0, &"Version".into(), &env!("CARGO_PKG_VERSION").into()));
}

#[test]
fn a_cluster_out_of_reach_is_6_and_names_what_was_tried() {
    let says = ["127.0.0.1:1", "refused", "saetta dev"];
    refused(&["list", "--set", NOBODY], 6, &says);
    refused(&["status", "wc", "--set", NOBODY], 6, &says);
    refused(&["kill", "wc", "--set", NOBODY], 6, &says);
    let mut command = saetta(&["list"]);
    command.env("SAETTA__NIMBUS__SEEDS", "127.0.0.1:1,127.0.0.1:2");
    let (code, _, stderr) = ran(command);
    assert!(code == 6 && stderr.contains("127.0.0.1:2"), "{code} {stderr}");
}

#[test]
fn settings_are_refused_with_the_place_they_stand() {
    let tmp = tempfile::tempdir().unwrap();
    let config = |text: &[u8]| file(tmp.path(), "c.toml", text, 0o600);
    let c = config(b"# ours\n[nimbus]\nseeds = '127.0.0.1:1'\nbnid = '127.0.0.1:2'\n");
    refused(&["list", "--config", &c], 8, &["c.toml:4: unknown key `nimbus.bnid`; did you mean `nimbus.bind`?"]);
    let c = config(b"nimbus.dir = \n");
    refused(&["list", "--config", &c], 8, &["c.toml:1: "]);
    let c = config(b"\n\ntopology.workers = 2\n");
    refused(&["list", "--config", &c], 8, &["c.toml:3: ", "give it at submit"]);
    let c = config(b"\xff\xfe");
    refused(&["list", "--config", &c], 8, &["not UTF-8"]);
    let c = config(&vec![b'#'; (1 << 20) + 1]);
    refused(&["list", "--config", &c], 8, &["larger than 1048576 bytes"]);
    refused(&["list", "--config", "/nowhere/c.toml"], 8, &["/nowhere/c.toml", "No such file"]);
    refused(&["list", "--config", &tmp.path().display().to_string()], 8, &["is not a file"]);
    refused(&["list", "--set", "nimbus.seeds"], 8, &["--set", "KEY=VALUE"]);
    refused(&["list", "--set", "nimbus.monitor.freq.secs=NaN"], 8, &["nimbus.monitor.freq.secs"]);
    refused(&["list", "--set", "nimbus.seeds=http://x"], 8, &["HOST:PORT"]);
    let dir = |key: &str| format!("{key}={}", tmp.path().join("d").display());
    refused(&["nimbus", "--set", "nimbus.bind=0.0.0.0:0", "--set", &dir("nimbus.dir")], 8, &["loopback"]);
    let supervisor = |pair: &str, says: &str| refused(&["supervisor", "--set", pair, "--set", &dir("supervisor.dir")], 8, &[says]);
    supervisor("supervisor.cores=4095", "supervisor.cores names core 4095");
    supervisor("supervisor.id=a/b", "supervisor.id");
    supervisor("nimbus.seeds= , ", "nimbus.seeds names no address");
    refused(&["supervisor", "--set", "zookeeper.servers=nonsense"], 8, &["zookeeper.servers"]);
}

#[test]
fn set_wins_over_the_environment_and_that_over_the_file() {
    let tmp = tempfile::tempdir().unwrap();
    let c = file(tmp.path(), "c.toml", b"nimbus.seeds = '127.0.0.1:1'\n", 0o600);
    let mut command = saetta(&["list", "--config", &c]);
    command.env("SAETTA__NIMBUS__SEEDS", "127.0.0.1:2");
    assert!(ran(command).2.contains("127.0.0.1:2"));
    let mut command = saetta(&["list", "--config", &c, "--set", "nimbus.seeds=127.0.0.1:3"]);
    command.env("SAETTA__NIMBUS__SEEDS", "127.0.0.1:2");
    let stderr = ran(command).2;
    assert!(stderr.contains("127.0.0.1:3") && !stderr.contains("127.0.0.1:2"), "{stderr}");
}

#[test]
fn a_variable_that_is_no_text_is_refused_and_not_passed_over() {
    let mut command = saetta(&["list"]);
    command.env("SAETTA__NIMBUS__SEEDS", std::ffi::OsStr::from_bytes(b"127.0.0.1:1\xff"));
    let (code, _, stderr) = ran(command);
    assert_eq!(code, 8, "{stderr}");
    assert!(stderr.contains("SAETTA__NIMBUS__SEEDS: it is not UTF-8"), "{stderr}");
}

#[test]
fn a_set_before_the_command_is_not_lost_beside_one_after_it() {
    refused(&["--set", NOBODY, "list", "--set", "nimbus.dirr=x"], 8, &["did you mean `nimbus.dir`?"]);
    refused(&["--set", "nimbus.dirr=x", "list", "--set", NOBODY], 8, &["did you mean `nimbus.dir`?"]);
    refused(&["--set", "nimbus.seeds=127.0.0.1:2", "list", "--set", NOBODY], 6, &["tried 127.0.0.1:1 "]);
}

#[test]
fn submit_refuses_what_is_no_topology_before_it_asks_anybody() {
    let tmp = tempfile::tempdir().unwrap();
    let submit = |file: &str, says: &[&str]| refused(&["submit", file, "--name", "x", "--set", NOBODY], 8, says);
    submit("/nowhere/wordcount", &["/nowhere/wordcount", "No such file"]);
    submit(&tmp.path().display().to_string(), &["is a directory"]);
    submit(&file(tmp.path(), "script", b"#!/bin/sh\n", 0o755), &["is a script"]);
    submit(&file(tmp.path(), "text", b"hello", 0o755), &["no ELF header"]);
    submit(&file(tmp.path(), "empty", b"", 0o755), &["no ELF header"]);
    let elf = std::fs::read("/bin/true").unwrap();
    submit(&file(tmp.path(), "plain", &elf, 0o644), &["is not executable", "chmod +x"]);
    submit(&file(tmp.path(), "suid", &elf, 0o4755), &["setuid"]);
    submit(&file(tmp.path(), "true", &elf, 0o755), &["printed no topology", "saetta::main!"]);
    // /bin/false stands for a topology that refuses its arguments.
    let no = std::fs::read("/bin/false").unwrap();
    submit(&file(tmp.path(), "false", &no, 0o755), &["describe failed (exit status: 1)"]);
}

#[test]
fn submit_refuses_names_and_keys_that_cannot_be() {
    let tmp = tempfile::tempdir().unwrap();
    let path = file(tmp.path(), "true", &std::fs::read("/bin/true").unwrap(), 0o755);
    for name in ["", "a/b", "__acker", "a..b", &"x".repeat(129), "<img onerror=1>"] {
        refused(&["submit", &path, "--name", name], 8, &["is not a valid name"]);
    }
    refused(&["submit", &path, "--set", "nimbus.dir=/x"], 8, &["`nimbus.dir` belongs to a daemon's configuration"]);
    refused(&["submit", &path, "--set", "topology.worker=2"], 8, &["did you mean `topology.workers`?"]);
    refused(&["submit", &path, "--set", "topology.workers=0"], 8, &["allowed are 1 to"]);
}

#[test]
fn a_closed_pipe_ends_it_without_a_word() {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_saetta"))
        .args(["help", "config"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn arguments_that_are_no_text_are_refused_or_taken_and_never_a_panic() {
    use std::os::unix::ffi::OsStrExt;
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    let mut command = saetta(&["submit"]);
    command.arg(odd);
    let (code, _, stderr) = ran(command);
    assert!(code == 8 && !stderr.contains("panicked"), "{code} {stderr}");
    let mut command = saetta(&["status"]);
    command.arg(odd);
    assert_eq!(ran(command).0, 2);
}
