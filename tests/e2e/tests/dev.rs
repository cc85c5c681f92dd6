//! `saetta dev`: a cluster without ZooKeeper, and nothing of it left however it ends.

use saetta_e2e::{Dev, alive, alone, binary, counted_in, independent_counts, sample, until, workers};
use std::path::Path;
use std::time::Duration;

/// Longest wait for something that needs seconds on a quiet machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Submits a word count with two workers and waits until they run.
fn submit(dev: &Dev, name: &str, args: &[&str]) {
    let wordcount = binary("wordcount");
    let file = sample();
    let begin = ["submit", wordcount.to_str().unwrap(), "--name", name, "--set", "topology.workers=2", "--wait", "--"];
    let args = [&begin[..], &["--counters", "2", "--splitters", "2"], args, &[file.to_str().unwrap()]].concat();
    dev.saetta(&args).ends_with(0);
}

/// Nothing under the supervisor's directory for workers.
fn no_worker_directory(dev: &Dev) {
    until("no worker directory", PATIENCE, || {
        let dir = dev.dir().join("dev/supervisor/workers");
        let left: Vec<_> = std::fs::read_dir(&dir).map_err(|e| e.to_string())?.flatten().map(|e| e.path()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

fn no_worker(dev: &Dev) {
    until("no worker process", PATIENCE, || if dev.workers().is_empty() { Ok(()) } else { Err(format!("{:?}", dev.workers())) });
}

#[test]
fn dev_needs_no_zookeeper_and_counts_exactly() {
    let _alone = alone();
    let mut dev = Dev::start(&[]);
    // Tracked as well: a reader ends when every line's tree has, and acks cross between the workers.
    for (name, tracked) in [("wc", &[][..]), ("tracked", &["--acked"])] {
        let out = dev.dir().join(name);
        submit(&dev, name, &[&["--out", out.to_str().unwrap()], tracked].concat());
        let status = until("the topology finishes", PATIENCE, || {
            dev.daemon.must_run();
            let status = dev.status(name);
            if status["finished"] == true { Ok(status) } else { Err(status.to_string()) }
        });
        let (counts, by_file) = counted_in(&out);
        assert_eq!(counts, independent_counts(&sample()));
        assert!(by_file.len() == 2 && by_file.values().all(|n| *n > 0), "both count tasks counted: {by_file:?}");
        let running = workers(&status);
        assert!(running.len() == 2 && running[0].pid != running[1].pid && running.iter().all(|w| alive(w.pid)), "{running:?}");
        assert_eq!(dev.workers().len(), 2, "two real processes");

        dev.saetta(&["kill", name, "-w", "0", "--wait"]).ends_with(0);
        assert!(dev.workers().is_empty() && running.iter().all(|w| !alive(w.pid)), "kill --wait leaves no process");
    }
    no_worker_directory(&dev);
    assert_eq!(dev.saetta(&["list", "-o", "json"]).ends_with(0).json()["items"], serde_json::json!([]));
    assert!(!mentions_zookeeper(&dev.daemon.printed()), "{}", dev.daemon.printed());
}

/// True where a log speaks of a connection to ZooKeeper.
fn mentions_zookeeper(log: &str) -> bool {
    log.to_lowercase().contains("zookeeper")
}

#[test]
fn ctrl_c_ends_dev_and_every_worker() {
    let _alone = alone();
    let mut dev = Dev::start(&[]);
    submit(&dev, "endless", &["--repeat", "--rate", "1000"]);
    let pids = dev.workers();
    assert_eq!(pids.len(), 2);
    let status = dev.daemon.interrupt(PATIENCE);
    assert_eq!(status.code(), Some(0), "ctrl-C is an orderly end");
    assert!(dev.workers().is_empty(), "{:?} are gone when dev is", pids);
}

#[test]
fn workers_end_with_a_dev_that_is_killed_with_9() {
    let _alone = alone();
    let mut dev = Dev::start(&[]);
    submit(&dev, "endless", &["--repeat", "--rate", "1000"]);
    assert_eq!(dev.workers().len(), 2);
    dev.daemon.kill_9();
    no_worker(&dev);
}

#[test]
fn a_worker_without_io_uring_says_so_in_one_line() {
    let _alone = alone();
    let dev = Dev::start_under(Some(Path::new(env!("CARGO_BIN_EXE_without-io-uring"))), &[]);
    // Alone in its process a topology needs no link, and counts without io_uring.
    let (out, wordcount, file) = (dev.dir().join("out"), binary("wordcount"), sample());
    let begin = ["submit", wordcount.to_str().unwrap(), "--name", "one", "--wait", "--", "--out"];
    dev.saetta(&[&begin[..], &[out.to_str().unwrap(), file.to_str().unwrap()]].concat()).ends_with(0);
    until("it finishes", PATIENCE, || if dev.status("one")["finished"] == true { Ok(()) } else { Err(dev.status("one").to_string()) });
    assert_eq!(counted_in(&out).0, independent_counts(&file));
    dev.saetta(&["kill", "one", "-w", "0", "--wait"]).ends_with(0);

    // Two workers are linked, by epoll.
    let out = dev.dir().join("out-two");
    let begin = ["submit", wordcount.to_str().unwrap(), "--name", "two", "--set", "topology.workers=2", "--set", "transport.memory=false"];
    let rest = ["-o", "json", "--", "--out", out.to_str().unwrap(), file.to_str().unwrap()];
    let submitted = dev.saetta(&[&begin[..], &rest].concat()).ends_with(0).json();
    let id = submitted["id"].as_str().unwrap();
    let status = until("the status says what carries its links, and why", PATIENCE, || {
        let status = dev.status("two");
        let says = |w: &serde_json::Value| w["carrier"].as_str().is_some_and(|c| c.starts_with("epoll") && c.contains("io_uring"));
        if status["workers"].as_array().is_some_and(|w| w.len() == 2 && w.iter().all(says)) { Ok(status) } else { Err(status.to_string()) }
    });
    for worker in workers(&status) {
        let path = dev.dir().join("dev/supervisor/logs").join(id).join(format!("{}.log", worker.port));
        let log = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = log.lines().filter(|l| l.contains("io_uring")).collect();
        assert_eq!(lines.len(), 1, "said once: {log}");
        assert!(lines[0].contains("seccomp") && lines[0].contains("transport.carrier"), "it says why and what to do: {}", lines[0]);
    }
    until("it finishes", PATIENCE, || if dev.status("two")["finished"] == true { Ok(()) } else { Err(dev.status("two").to_string()) });
    assert_eq!(counted_in(&out).0, independent_counts(&file));
    dev.saetta(&["kill", "two", "-w", "0", "--wait"]).ends_with(0);
    no_worker(&dev);
}
