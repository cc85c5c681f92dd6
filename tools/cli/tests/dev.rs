//! `saetta dev`: a whole cluster in one command, asked and ended from outside.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

struct Dev {
    child: Child,
    seeds: String,
    dir: tempfile::TempDir,
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Dev {
    /// Starts one on a free port and waits until it says where it is.
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_saetta"))
            .args(["dev", "-q", "--set", "nimbus.bind=127.0.0.1:0", "--dir"])
            .arg(dir.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let seeds = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|l| Some(l.trim().strip_prefix("nimbus")?.trim().strip_prefix("http://")?.to_owned()))
            .expect("dev says where nimbus is");
        // Read on, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Dev { child, seeds, dir }
    }

    fn saetta(&self, args: &[&str]) -> (i32, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_saetta"))
            .args(args)
            .args(["--set", &format!("nimbus.seeds={}", self.seeds)])
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

#[test]
fn dev_answers_and_ctrl_c_ends_it_with_0() {
    let mut dev = Dev::start();
    let (code, stdout, stderr) = dev.saetta(&["list"]);
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    assert!(stderr.contains("no topologies"));
    let (code, stdout, _) = dev.saetta(&["list", "-o", "json"]);
    let list: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &list["api_version"], &list["kind"]), (0, &"v1".into(), &"TopologyList".into()));
    assert_eq!(list["items"], serde_json::json!([]));

    let (code, _, stderr) = dev.saetta(&["status", "wc"]);
    assert!(code == 3 && stderr.contains("there is no topology `wc`"), "{code} {stderr}");
    let (code, _, stderr) = dev.saetta(&["kill", "-i", "wc", "other"]);
    assert!(code == 3 && stderr.matches("there is no topology").count() == 2, "{code} {stderr}");

    let pid = rustix::process::Pid::from_child(&dev.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let began = Instant::now();
    let status = loop {
        match dev.child.try_wait().unwrap() {
            Some(status) => break status,
            None => assert!(began.elapsed() < PATIENCE, "ctrl-C ends it"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_second_dev_in_the_same_directory_is_refused() {
    let dev = Dev::start();
    let dir = dev.dir.path().display().to_string();
    let (code, stdout, stderr) = dev.saetta(&["dev", "-q", "--set", "nimbus.bind=127.0.0.1:0", "--dir", &dir]);
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(stderr.contains("another nimbus uses this directory"), "{stderr}");
    assert_eq!(dev.saetta(&["list"]).0, 0, "the first goes on");
}
