//! A real cluster: counted exactly, then robbed of its parts one by one.

use saetta_e2e::{Cluster, STALL_MAX, Worker, alive, alone, as_u64, binary, cores, counted_in, executed_by_node, independent_counts};
use saetta_e2e::{loop_cores, sample, until, workers};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Longest wait for something that needs seconds on a quiet machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_word_count_on_a_real_cluster_is_exact() {
    let _alone = alone();
    let mut cluster = Cluster::start(&[]);
    let (file, out) = (sample(), cluster.dir().join("out"));
    let wordcount = binary("wordcount");
    let submitted = cluster
        .saetta(&[
            "submit",
            wordcount.to_str().unwrap(),
            "--name",
            "wc",
            "--set",
            "topology.workers=2",
            "--wait",
            "-o",
            "json",
            "--",
            "--counters",
            "2",
            "--splitters",
            "2",
            "--out",
            out.to_str().unwrap(),
            file.to_str().unwrap(),
        ])
        .ends_with(0)
        .json();
    let id = submitted["id"].as_str().expect("an id").to_owned();

    // Finished, with counters as of the end: a beat may be on its way still.
    let expected = independent_counts(&file);
    let words: u64 = expected.values().sum();
    let status = until("the topology finishes and the counters arrive", PATIENCE, || {
        cluster.must_run();
        let status = cluster.status("wc");
        let counted: u64 = executors(&status, "count").iter().map(|e| as_u64(e, "executed")).sum();
        if status["finished"] == true && counted == words { Ok(status) } else { Err(status.to_string()) }
    });

    // The counts.
    let (counts, by_file) = counted_in(&out);
    assert_eq!(counts, expected, "the counts of all tasks together are exact");
    assert_eq!(by_file.len(), 2, "one file a count task: {by_file:?}");
    assert!(by_file.values().all(|n| *n > 0), "both count tasks counted: {by_file:?}");

    // The places: one worker a supervisor, on its core; placed by the plugin.
    let placed = workers(&status);
    let nodes: Vec<&str> = placed.iter().map(|w| w.node.as_str()).collect();
    assert_eq!(nodes, ["supervisor-1", "supervisor-2"], "{status}");
    assert_eq!((&status["scheduled"]["by"], &status["scheduled"]["plugin"]), (&"plugin".into(), &"even".into()), "{status}");
    let all = status["executors"].as_array().unwrap();
    // One reader, two splitters, two counters and an acker a worker.
    assert!(all.len() >= 5, "{status}");
    for worker in &placed {
        assert!(alive(worker.pid), "a finished topology stays up");
        let on = loop_cores(worker.pid);
        let core = cores()[usize::from(worker.node == "supervisor-2")];
        assert_eq!(on, BTreeMap::from([("loop-0".to_owned(), core.to_string())]), "the kernel's word on {worker:?}");
        let here: Vec<_> = all.iter().filter(|e| e["node"] == worker.node.as_str()).collect();
        assert!(!here.is_empty(), "{status}");
        for e in here {
            assert_eq!(as_u64(e, "port"), u64::from(worker.port), "{e}");
            assert_eq!(as_u64(e, "core").to_string(), on["loop-0"], "the core in the status is the one the thread has: {e}");
        }
    }

    // Tuples crossed: words were counted on both workers, and the only reader is on one of them.
    let of_count: BTreeSet<&str> = executors(&status, "count").iter().map(|e| e["node"].as_str().unwrap()).collect();
    assert_eq!(of_count.len(), 2, "the count tasks are on both workers: {status}");
    assert!(executed_by_node(&status).values().all(|n| *n > 0), "{status}");
    assert_eq!(executors(&status, "read").len(), 1);

    // Killed: nothing of it is left but its logs.
    let pids: Vec<u32> = placed.iter().map(|w| w.pid).collect();
    cluster.saetta(&["kill", "wc", "-w", "0", "--wait"]).ends_with(0);
    assert!(pids.iter().all(|pid| !alive(*pid)) && cluster.workers().is_empty(), "no process: {pids:?}");
    assert_eq!(cluster.saetta(&["list", "-o", "json"]).ends_with(0).json()["items"], serde_json::json!([]));
    until("no znode mentions it", PATIENCE, || {
        let left: Vec<_> = cluster.znodes().into_iter().filter(|z| z.path.contains(&id) || z.value.contains(&id)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    for (i, worker) in placed.iter().enumerate() {
        let dir = cluster.supervisor_dir(i);
        until("no worker directory", PATIENCE, || {
            let left: Vec<_> = std::fs::read_dir(dir.join("workers")).unwrap().flatten().map(|e| e.path()).collect();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        });
        let log = dir.join("logs").join(&id).join(format!("{}.log", worker.port));
        assert!(log.metadata().is_ok_and(|m| m.len() > 0), "the log {} stays", log.display());
    }
}

fn executors<'a>(status: &'a serde_json::Value, component: &str) -> Vec<&'a serde_json::Value> {
    status["executors"].as_array().expect("a list").iter().filter(|e| e["component"] == component).collect()
}

/// Submits an endless count to both supervisors, and waits until both workers count. Its id and its workers.
fn endless(cluster: &Cluster) -> (String, Vec<Worker>) {
    let file = sample();
    let wordcount = binary("wordcount");
    let submitted = cluster
        .saetta(&[
            "submit",
            wordcount.to_str().unwrap(),
            "--name",
            "endless",
            "--set",
            "topology.workers=2",
            "--wait",
            "-o",
            "json",
            "--",
            "--repeat",
            "--rate",
            "10000",
            "--counters",
            "2",
            "--splitters",
            "2",
            file.to_str().unwrap(),
        ])
        .ends_with(0)
        .json();
    let id = submitted["id"].as_str().expect("an id").to_owned();
    let workers = cluster.running("endless", 2);
    assert_ne!(workers[0].node, workers[1].node, "one worker on each supervisor");
    for worker in &workers {
        rises(cluster, &id, worker.port);
    }
    (id, workers)
}

/// Waits until the worker's own count rises from where it is.
fn rises(cluster: &Cluster, id: &str, port: u16) {
    let mut from = None;
    until("a worker's own count rises", PATIENCE, || {
        let reply = cluster.ask(id, port)?;
        let (start, executed) = *from.get_or_insert((reply.start, reply.executed));
        if reply.start == start && reply.executed > executed { Ok(()) } else { Err(format!("{executed}, then {reply:?}")) }
    });
}

/// Waits until what both workers count reaches `status` again, by way of supervisors, ZooKeeper and nimbus.
fn status_lives(cluster: &Cluster) {
    let read = || {
        let ran = cluster.saetta(&["status", "endless", "-o", "json"]);
        if ran.code == 0 { Ok(executed_by_node(&ran.json())) } else { Err(format!("{ran:?}")) }
    };
    let before = until("nimbus answers", PATIENCE, read);
    until("the counts in the status rise", PATIENCE, || {
        let now = read()?;
        let risen = now.iter().filter(|(node, n)| before.get(*node).is_some_and(|b| *n > b)).count();
        if risen == 2 { Ok(()) } else { Err(format!("{before:?}, then {now:?}")) }
    });
}

/// The assignment as it stands in ZooKeeper: value and transaction of its last change.
fn assignment(cluster: &Cluster, id: &str) -> (String, i64) {
    let path = format!("/saetta/assignments/{id}");
    let node = cluster.znodes().into_iter().find(|z| z.path == path).expect("it has an assignment");
    (node.value, node.mzxid)
}

/// How long something stays away, in windows of the pulse, each of a second at least.
const AWAY_WINDOWS: u64 = 30;

#[test]
fn an_endless_topology_lives_through_the_loss_of_its_control_plane() {
    let _alone = alone();
    let mut cluster = Cluster::start(&[]);
    let (id, before) = endless(&cluster);
    let assigned = assignment(&cluster, &id);
    let pulse = cluster.pulse(&id, &before);
    pulse.passes(2);
    let stays = |cluster: &Cluster, what: &str| {
        let began = Instant::now();
        status_lives(cluster);
        let now = cluster.running("endless", 2);
        println!("after {what}, the status was up to date in {:.1} s", began.elapsed().as_secs_f64());
        assert_eq!(now, before, "the same workers after {what}");
        assert!(before.iter().all(|w| alive(w.pid)));
        assert_eq!(assignment(cluster, &id), assigned, "the same assignment after {what}");
    };

    cluster.nimbus.kill_9();
    pulse.passes(3);
    cluster.nimbus.again();
    stays(&cluster, "the loss of nimbus");
    pulse.passes(2);

    cluster.supervisors[0].kill_9();
    cluster.supervisors[0].again();
    stays(&cluster, "the restart of a supervisor");
    pulse.passes(2);

    cluster.supervisors[0].kill_9();
    pulse.passes(AWAY_WINDOWS);
    assert_eq!(assignment(&cluster, &id), assigned, "the same assignment while a supervisor is away");
    cluster.supervisors[0].again();
    stays(&cluster, "the long absence of a supervisor");
    pulse.passes(2);

    cluster.zookeeper.pause();
    pulse.passes(AWAY_WINDOWS);
    cluster.zookeeper.resume();
    stays(&cluster, "ZooKeeper stood still");
    pulse.passes(2);

    cluster.zookeeper.stop();
    pulse.passes(AWAY_WINDOWS);
    cluster.zookeeper.restart().unwrap_or_else(|why| panic!("{why}"));
    stays(&cluster, "ZooKeeper was stopped");
    pulse.passes(2);

    cluster.must_run();
    for (port, stall) in pulse.end() {
        println!("worker on port {port}: longest stall {:.2} s", stall.as_secs_f64());
        assert!(stall <= STALL_MAX);
    }
    cluster.saetta(&["kill", "endless", "-w", "0", "--wait"]).ends_with(0);
    assert!(cluster.workers().is_empty());
}

#[test]
fn a_worker_killed_with_9_is_restarted_and_counts_on() {
    let _alone = alone();
    let cluster = Cluster::start(&[]);
    let (id, _) = endless(&cluster);
    // Each in turn: one of them has the reader, so that once tuples arrive at the restarted worker, and once they leave it.
    for victim in 0..2 {
        let before = cluster.running("endless", 2);
        let (killed, other) = (&before[victim], &before[1 - victim]);
        rustix::process::kill_process(rustix::process::Pid::from_raw(killed.pid as i32).unwrap(), rustix::process::Signal::KILL).unwrap();
        let reply = until("it answers with a higher start number", PATIENCE, || {
            let reply = cluster.ask(&id, killed.port)?;
            if reply.start > killed.start { Ok(reply) } else { Err(format!("{reply:?}")) }
        });
        assert_eq!(reply.start, killed.start + 1, "started once");
        // The link is back: tuples go through both.
        rises(&cluster, &id, killed.port);
        rises(&cluster, &id, other.port);
        until("the status shows the new process and the old other one", PATIENCE, || {
            let now = cluster.running("endless", 2);
            let new = now.iter().find(|w| w.port == killed.port).ok_or("gone")?;
            let same = now.iter().find(|w| w.port == other.port);
            assert_eq!(same, Some(other), "the other worker was left alone");
            if new.pid != killed.pid && new.start == reply.start { Ok(()) } else { Err(format!("{new:?}")) }
        });
        assert!(!alive(killed.pid) && cluster.workers().len() == 2);
    }
    cluster.saetta(&["kill", "endless", "-w", "0", "--wait"]).ends_with(0);
    assert!(cluster.workers().is_empty());
}
