//! Plugins that `saetta scheduler new` makes in C and in C++, in a real cluster: they place a topology, and it counts exactly.

use saetta_e2e::{Dev, alone, binary, counted_in, independent_counts, sample, until};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Longest wait for something that needs seconds on a quiet machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn done(command: &mut Command) {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
}

fn places_a_topology(lang: &str) {
    let _alone = alone();
    let project = tempfile::tempdir().unwrap();
    done(Command::new(binary("saetta")).args(["scheduler", "new", "--lang", lang, "near", "--dir"]).arg(project.path()));
    let plugins = project.path().join("near");
    done(Command::new("make").arg("-C").arg(&plugins).env_remove("MAKEFLAGS"));

    let mut dev = Dev::start(&["scheduler.plugin=near", &format!("scheduler.plugin.dir={}", plugins.display())]);
    let (wordcount, lines, out) = (binary("wordcount"), sample(), dev.dir().join("counts"));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let begin = ["submit", &text(&wordcount), "--name", "wc", "--set", "topology.workers=2", "--wait", "--"];
    dev.saetta(&[&begin[..], &["--counters", "2", "--splitters", "2", "--out", &text(&out), &text(&lines)]].concat()).ends_with(0);
    let status = until("the topology finishes", PATIENCE, || {
        dev.daemon.must_run();
        let status = dev.status("wc");
        if status["finished"] == true { Ok(status) } else { Err(status.to_string()) }
    });
    assert_eq!((&status["scheduled"]["by"], &status["scheduled"]["plugin"]), (&"plugin".into(), &"near".into()), "{status}");
    assert_eq!(status["executors_unplaced"], 0);
    assert_eq!(counted_in(&out).0, independent_counts(&sample()));
}

#[test]
fn a_plugin_in_c_places_a_real_topology() {
    places_a_topology("c");
}

#[test]
fn a_plugin_in_cpp_places_a_real_topology() {
    places_a_topology("cpp");
}
