//! Plugins that `saetta scheduler new` makes in C and in C++, in a real cluster: they place a topology, and it counts exactly. A chosen one
//! outlives the leader.

use saetta_e2e::{Cluster, Dev, alone, binary, counted_in, independent_counts, plugin_of_the_template, sample, until};
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

#[test]
fn a_new_leader_goes_on_with_the_chosen_plugin_though_its_own_directory_lacks_it() {
    let _alone = alone();
    let plugins = tempfile::tempdir().unwrap();
    std::fs::copy(binary("libsaetta_even.so"), plugins.path().join("libsaetta_even.so")).unwrap();
    plugin_of_the_template("near", plugins.path());
    let mut cluster = Cluster::start(&[&format!("scheduler.plugin.dir={}", plugins.path().display())]);
    let (wordcount, lines) = (binary("wordcount"), sample());
    let submit = |cluster: &Cluster, name: &str| {
        let begin = ["submit", wordcount.to_str().unwrap(), "--name", name, "--wait", "--"];
        cluster.saetta(&[&begin[..], &["--repeat", "--rate", "1000", lines.to_str().unwrap()]].concat()).ends_with(0);
        cluster.status(name)
    };
    assert_eq!(submit(&cluster, "old")["scheduled"]["plugin"], "even");
    let old = cluster.running("old", 1);
    let chosen = cluster.saetta(&["scheduler", "use", "near", "-o", "json"]).ends_with(0).json();
    let sha256 = chosen["sha256"].as_str().expect("a hash").to_owned();

    let mut second = cluster.another_nimbus(&[]);
    let copy = cluster.dir().join("nimbus-2/plugins").join(format!("{sha256}.so"));
    until("the second nimbus has the plugin's file", PATIENCE, || {
        second.must_run();
        if copy.is_file() { Ok(()) } else { Err(second.printed()) }
    });
    cluster.nimbus.kill_9();
    std::fs::remove_dir_all(plugins.path()).unwrap();

    cluster.is_led();
    let placed = submit(&cluster, "new");
    assert_eq!((&placed["scheduled"]["plugin"], &placed["executors_unplaced"]), (&"near".into(), &0.into()), "{placed}");
    let status = cluster.saetta(&["scheduler", "status", "-o", "json"]).ends_with(0).json();
    assert_eq!((&status["plugin"], &status["sha256"]), (&"near".into(), &sha256.as_str().into()), "{status}");
    assert_eq!(cluster.running("old", 1), old, "what ran runs on");
}
