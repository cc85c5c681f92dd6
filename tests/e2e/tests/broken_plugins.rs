//! Scheduler plugins that break, in a running cluster: an operator who asks for one is told why not, and one that came in by the
//! configuration costs nobody anything.

use saetta_e2e::{Cluster, Worker, alive, alone, binary, broken_plugin, sample, until};
use serde_json::Value;
use std::time::Duration;

/// Longest wait for something that needs seconds on a quiet machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What becomes of a topology that is submitted while the plugin is in use.
enum Then {
    /// The fallback places it, and the status says this.
    Fallback(&'static str),
    /// The same, in the round that places something: the next one has nothing to complain of, and the status says what was last.
    FallbackOnce(&'static str),
    /// The plugin places it: what it does wrong stays in its helper.
    Plugin,
}
use Then::{Fallback, FallbackOnce, Plugin};

/// File, what `saetta scheduler use` says, and what happens where it is configured.
const BROKEN: [(&str, &str, Then); 15] = [
    ("segv.c", "SIGSEGV", Fallback("SIGSEGV")),
    ("abort.c", "SIGABRT", Fallback("SIGABRT")),
    ("exit.c", "exit code 0", Fallback("exit code 0")),
    ("panic.rs", "SIGABRT", Fallback("SIGABRT")),
    ("throw.cpp", "SIGABRT", Fallback("SIGABRT")),
    ("loop.c", "took longer than 1 s", Fallback("took longer than 1 s")),
    ("writes_snapshot.c", "SIGSEGV", Fallback("SIGSEGV")),
    ("double_slot.c", "check no-double-slot", FallbackOnce("V04")),
    ("unknown_slot.c", "V01", Fallback("V01")),
    ("garbage_manifest.c", "manifest", Fallback("manifest")),
    ("stdout.c", "check no-output", Plugin),
    ("leak.c", "check no-leak", Plugin),
    ("thread_leak.c", "check no-threads", Plugin),
    ("naive_stride.c", "check stride", Plugin),
    ("fast_math.c", "check fpu-mode-unchanged", Plugin),
];

/// The assignment as it stands in ZooKeeper.
fn assignment(cluster: &Cluster, id: &str) -> String {
    let path = format!("/saetta/assignments/{id}");
    cluster.znodes().into_iter().find(|z| z.path == path).expect("it has an assignment").value
}

/// Submits a small count, waits until its worker runs, and returns its status.
fn submit(cluster: &Cluster, name: &str, more: &[&str]) -> (String, Value) {
    let (wordcount, file) = (binary("wordcount"), sample());
    let begin = ["submit", wordcount.to_str().unwrap(), "--name", name, "--wait", "-o", "json"];
    let args = [&begin[..], more, &["--", "--repeat", "--rate", "1000", file.to_str().unwrap()]].concat();
    let submitted = cluster.saetta(&args).ends_with(0).json();
    (submitted["id"].as_str().expect("an id").to_owned(), cluster.status(name))
}

fn scheduler(cluster: &Cluster) -> Value {
    cluster.saetta(&["scheduler", "status", "-o", "json"]).ends_with(0).json()
}

#[test]
fn no_broken_plugin_hurts_a_running_cluster_whichever_way_it_comes_in() {
    let _alone = alone();
    let plugins = tempfile::tempdir().unwrap();
    std::fs::copy(binary("libsaetta_even.so"), plugins.path().join("libsaetta_even.so")).unwrap();
    let dir = format!("scheduler.plugin.dir={}", plugins.path().display());
    let settings = |plugin: &str| [dir.clone(), "scheduler.deadline.secs=1".to_owned(), format!("scheduler.plugin={plugin}")];
    let even = settings("even");
    let mut cluster = Cluster::start(&even.each_ref().map(String::as_str));
    let (id, _) = submit(&cluster, "old", &["--set", "topology.workers=2"]);
    let before: Vec<Worker> = cluster.running("old", 2);
    let assigned = assignment(&cluster, &id);
    let pulse = cluster.pulse(&id, &before);
    let names: Vec<String> = BROKEN.iter().map(|(file, ..)| broken_plugin(file, plugins.path())).collect();

    for (name, (_, why, _)) in names.iter().zip(&BROKEN) {
        let ran = cluster.saetta(&["scheduler", "use", name]).ends_with(8);
        assert!(ran.stderr.contains(why), "{name}: {ran:?}");
    }
    let status = scheduler(&cluster);
    assert_eq!((&status["plugin"], &status["state"]), (&"even".into(), &"in use".into()), "{status}");

    for (name, (_, _, then)) in names.iter().zip(&BROKEN) {
        cluster.nimbus_again(&settings(name).each_ref().map(String::as_str));
        let nimbus = cluster.nimbus.pid();
        let (_, placed) = submit(&cluster, name, &[]);
        let (how, by) = (&placed["scheduled"], placed["scheduled"]["by"].as_str());
        assert_eq!((&placed["executors_unplaced"], &placed["workers_running"]), (&0.into(), &1.into()), "{name}: {placed}");
        let status = scheduler(&cluster);
        assert_eq!((&status["plugin"], &status["mode"]), (&name.as_str().into(), &"isolated".into()), "{status}");
        match then {
            Fallback(why) => {
                let told = how["why"].as_str().unwrap_or_default();
                assert!(by == Some("fallback") && told.contains(why) && told.contains(&format!("plugin {name}")), "{name}: {how}");
                assert!(status["last_failure"]["what"].as_str().is_some_and(|what| what.contains(why)), "{name}: {status}");
                let words = cluster.saetta(&["scheduler", "status"]).ends_with(0).stdout;
                assert!(words.contains(why), "{name}: {words}");
            }
            FallbackOnce(why) => {
                assert!(status["last_failure"]["what"].as_str().is_some_and(|what| what.contains(why)), "{name}: {status}");
            }
            Plugin => {
                assert_eq!((by, &how["plugin"]), (Some("plugin"), &name.as_str().into()), "{name}: {placed}");
                assert_eq!(status.get("last_failure"), None, "{name}: {status}");
            }
        }
        cluster.saetta(&["kill", name, "-w", "0", "--wait"]).ends_with(0);
        cluster.must_run();
        assert_eq!(cluster.nimbus.pid(), nimbus);
        assert_eq!(assignment(&cluster, &id), assigned, "{name}: the running topology stays where it is");
    }
    assert!(!cluster.nimbus.printed().contains("\nround "), "what a plugin prints is nowhere");

    // The running topology noticed nothing: the same processes, and they counted all the time.
    pulse.passes(1);
    pulse.end();
    assert_eq!(cluster.running("old", 2), before);
    assert!(before.iter().all(|w| alive(w.pid)));

    // A sound plugin is taken by the nimbus that runs a broken one, and places from then on.
    cluster.saetta(&["scheduler", "use", "even"]).ends_with(0);
    let (_, placed) = submit(&cluster, "new", &[]);
    assert_eq!(placed["scheduled"]["plugin"], "even", "{placed}");
    cluster.saetta(&["kill", "new", "-w", "0", "--wait"]).ends_with(0);
    cluster.saetta(&["kill", "old", "-w", "0", "--wait"]).ends_with(0);
    until("no worker is left", PATIENCE, || if cluster.workers().is_empty() { Ok(()) } else { Err(format!("{:?}", cluster.workers())) });
}
