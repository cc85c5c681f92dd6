//! The command line against a live cluster: what it refuses, with which code and words, and what runs with less than was asked for.

use saetta_e2e::{Dev, Ran, alone, as_u64, binary, counted_in, free_ports, independent_counts, sample, until, workers};
use std::path::Path;
use std::time::Duration;

/// Longest wait for something that needs seconds on a quiet machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Exit codes, as `saetta help exit-codes` lists them.
const NOT_FOUND: i32 = 3;
const CONFLICT: i32 = 4;
const INVALID: i32 = 8;

fn submit(dev: &Dev, file: &Path, options: &[&str], args: &[&str]) -> Ran {
    dev.saetta(&[&["submit", file.to_str().unwrap()], options, &["--"], args].concat())
}

/// Panics unless it was refused with this code, nothing on stdout, and a text that holds all of these.
#[track_caller]
fn refused(ran: Ran, code: i32, words: &[&str]) {
    let ran = ran.ends_with(code);
    assert_eq!(ran.stdout, "", "errors are no data");
    for word in words {
        assert!(ran.stderr.contains(word), "{word:?} is not in {:?}", ran.stderr);
    }
    // Beside it only what the topology's own binary said.
    assert!(ran.stderr.lines().any(|l| l.starts_with("error: ")) && !ran.stderr.contains("panicked"), "{:?}", ran.stderr);
}

#[test]
fn what_cannot_be_is_refused_with_its_code_and_its_reason() {
    let _alone = alone();
    let dev = Dev::start(&["nimbus.slots.perTopology=2", "nimbus.executors.perTopology=9"]);
    let (wordcount, file) = (binary("wordcount"), sample());
    let file = file.to_str().unwrap();
    submit(&dev, &wordcount, &["--name", "wc", "--wait"], &[file]).ends_with(0);

    refused(submit(&dev, &wordcount, &["--name", "wc"], &[file]), CONFLICT, &["wc"]);
    refused(dev.saetta(&["status", "wcc"]), NOT_FOUND, &["there is no topology `wcc`", "did you mean `wc`?"]);
    refused(dev.saetta(&["kill", "cw"]), NOT_FOUND, &["there is no topology `cw`"]);

    let set = |pair: &'static str| submit(&dev, &wordcount, &["--name", "other", "--set", pair], &[file]);
    refused(set("topology.worker=2"), INVALID, &["topology.worker", "topology.workers"]);
    refused(set("topology.workers=two"), INVALID, &["topology.workers", "two"]);
    refused(set("nimbus.dir=/x"), INVALID, &["nimbus.dir"]);
    refused(set("topology.workers=3"), INVALID, &["3 workers", "nimbus.slots.perTopology", "2"]);
    let many = submit(&dev, &wordcount, &["--name", "other"], &["--counters", "12", file]);
    refused(many, INVALID, &["nimbus.executors.perTopology", "9"]);

    let script = dev.dir().join("script");
    std::fs::write(&script, "#!/bin/sh\necho no topology\n").unwrap();
    refused(submit(&dev, &script, &["--name", "other"], &[]), INVALID, &["is a script", "ELF"]);
    let text = dev.dir().join("text");
    std::fs::write(&text, "words\n").unwrap();
    refused(submit(&dev, &text, &["--name", "other"], &[]), INVALID, &["no ELF header"]);
    // An executable that is no topology.
    refused(submit(&dev, &binary("saetta-sched-host"), &["--name", "other"], &[]), INVALID, &["describe"]);
    refused(submit(&dev, &dev.dir().join("missing"), &["--name", "other"], &[]), INVALID, &["missing"]);

    // Only the one that was in order is there, and it is as it was.
    let list = dev.saetta(&["list", "-o", "json"]).ends_with(0).json();
    let names: Vec<_> = list["items"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["wc"]);
    assert_eq!(dev.saetta(&["list", "-o", "name"]).ends_with(0).stdout, "wc\n");
    dev.saetta(&["kill", "wc", "-w", "0", "--wait"]).ends_with(0);
    refused(dev.saetta(&["status", "wc"]), NOT_FOUND, &["there is no topology `wc`"]);
}

#[test]
fn more_workers_than_slots_run_in_fewer_processes() {
    let _alone = alone();
    let ports = free_ports(2);
    let dev = Dev::start(&[&format!("supervisor.slots.ports={},{}", ports[0], ports[1])]);
    let (out, file) = (dev.dir().join("out"), sample());
    let args = ["--counters", "3", "--splitters", "3", "--out", out.to_str().unwrap(), file.to_str().unwrap()];
    let ran = submit(&dev, &binary("wordcount"), &["--name", "wide", "--set", "topology.workers=5", "--wait"], &args).ends_with(0);
    assert!(ran.stdout.contains("wide"), "{ran:?}");
    let status = until("it finishes", PATIENCE, || {
        let status = dev.status("wide");
        if status["finished"] == true { Ok(status) } else { Err(status.to_string()) }
    });
    assert_eq!((as_u64(&status, "workers_wanted"), as_u64(&status, "workers_running"), as_u64(&status, "executors_unplaced")), (5, 2, 0));
    assert_eq!(workers(&status).len(), 2);
    assert_eq!(counted_in(&out).0, independent_counts(&file), "and it counts as exactly");
}

#[test]
fn a_broken_scheduler_plugin_leaves_nimbus_alive_and_the_fallback_places() {
    let _alone = alone();
    let plugins = tempfile::tempdir().unwrap();
    std::fs::write(plugins.path().join("libsaetta_broken.so"), "this is no shared object").unwrap();
    let dir = format!("scheduler.plugin.dir={}", plugins.path().display());
    let mut dev = Dev::start(&["scheduler.plugin=broken", &dir]);
    let (out, file) = (dev.dir().join("out"), sample());
    let args = ["--out", out.to_str().unwrap(), file.to_str().unwrap()];
    submit(&dev, &binary("wordcount"), &["--name", "wc", "--set", "topology.workers=2", "--wait"], &args).ends_with(0);
    let status = until("it finishes", PATIENCE, || {
        dev.daemon.must_run();
        let status = dev.status("wc");
        if status["finished"] == true { Ok(status) } else { Err(status.to_string()) }
    });
    assert_eq!(workers(&status).len(), 2);
    assert_eq!(counted_in(&out).0, independent_counts(&file));
    assert_eq!(status["scheduled"]["by"], "fallback", "{status}");
    let why = status["scheduled"]["why"].as_str().unwrap();
    assert!(why.contains("broken") && why.contains("libsaetta_broken.so"), "it names the plugin: {why}");
    let table = dev.saetta(&["status", "wc"]).ends_with(0).stdout;
    assert!(table.contains("placed by fallback") && table.contains("broken"), "{table}");
}
