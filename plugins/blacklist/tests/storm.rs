//! Storm's cases for its blacklist, with its numbers (a period of 10 s, tolerance 200 s and twice, resume 300 s), and those it lacks.

use saetta_blacklist::{BUILTIN, Window};
use saetta_sdk::abi;
use saetta_sdk::testing::shapes::even;
use saetta_sdk::testing::{Cluster, Component, Node, Rig, Topology};
use std::collections::BTreeMap;

const STORM: &str = r#"{"tolerance_secs": 200, "tolerance_count": 2, "resume_secs": 300}"#;

/// A supervisor's ports; `None` = it does not report.
type Ports = Option<Vec<u32>>;

/// Nodes sup-0, sup-1, .. on host-0, host-1, ..
fn cluster(nodes: &[Ports]) -> Cluster {
    let reports = nodes.iter().enumerate().filter_map(|(i, ports)| Some((i, ports.clone()?)));
    reports.fold(Cluster::new(), |c, (i, ports)| c.node(Node::new(&format!("sup-{i}")).host(&format!("host-{i}")).ports(ports)))
}

fn all(n: usize) -> Vec<Ports> {
    vec![Some(vec![0, 1, 2, 3]); n]
}

/// Without the ports a fault names; a fault without ports is a supervisor that does not report.
fn faulty(n: usize, faults: &[(usize, &[u32])]) -> Vec<Ports> {
    let mut nodes = all(n);
    for (node, missing) in faults {
        nodes[*node] = (!missing.is_empty()).then(|| (0..4).filter(|p| !missing.contains(p)).collect());
    }
    nodes
}

/// `n` topologies that want five workers.
fn with_topologies(mut cluster: Cluster, n: usize) -> Cluster {
    for t in 0..n {
        cluster = cluster.topology(Topology::new(&format!("topo-{t}")).workers(5).with(Component::bolt("bolt", 20)));
    }
    cluster
}

fn rig(config: &str) -> Rig {
    Cluster::new().ask().config(config).instance(BUILTIN).unwrap()
}

/// Nodes by mark after a round: `-` not there, `B`, `G`, `.` none.
fn judge(rig: &mut Rig, cluster: &Cluster, n: usize) -> String {
    let judged = cluster.ask().judged_by(rig).unwrap();
    let marks = marks(&judged);
    (0..n).map(|i| marks.get(&format!("sup-{i}")).copied().unwrap_or('-')).collect()
}

fn marks(cluster: &Cluster) -> BTreeMap<String, char> {
    let block = cluster.pack();
    let snapshot = saetta_sdk::Snapshot::new(&block).unwrap();
    let mark = |flags: u32| match flags {
        f if f & abi::NODE_BLACKLISTED != 0 => 'B',
        f if f & abi::NODE_GREYLISTED != 0 => 'G',
        _ => '.',
    };
    snapshot.nodes().iter().map(|n| (snapshot.text(n.id).to_owned(), mark(n.flags))).collect()
}

#[test]
fn faults_until_a_node_is_listed() {
    let missing: &[(usize, &[u32])] = &[(0, &[])];
    let port: &[(usize, &[u32])] = &[(0, &[0])];
    let none: &[(usize, &[u32])] = &[];
    let no_ports = r#"{"tolerance_secs": 200, "tolerance_count": 2, "resume_secs": 300, "ports": false}"#;
    // Faults by round, and the marks of the last one.
    type Faults<'a> = &'a [&'a [(usize, &'a [u32])]];
    let cases: [(&str, &str, Faults<'_>, &str); 8] = [
        ("TestBadSupervisor", STORM, &[none, missing, missing, none], "B.."),
        ("missing once", STORM, &[none, missing, none, none], "..."),
        ("TestBadSlot", STORM, &[none, port, port, none], "B.."),
        ("TestBadSlot, where ports do not count", no_ports, &[none, port, port, none], "..."),
        ("TestBadSupervisor, where ports do not count", no_ports, &[none, missing, missing, none], "B.."),
        ("a supervisor and a port are two", STORM, &[none, port, missing, none], "B.."),
        ("it is marked while a port is missing", STORM, &[none, port, port], "B.."),
        ("not known before, so not missed", STORM, &[missing, missing, missing, none], "..."),
    ];
    for (name, config, faults, expected) in cases {
        let mut rig = rig(config);
        let mut last = String::new();
        for round in faults {
            last = judge(&mut rig, &cluster(&faulty(3, round)), 3);
        }
        assert_eq!(last, expected, "{name}");
    }
}

#[test]
fn test_resume_blacklist() {
    let mut rig = rig(STORM);
    for faults in [&[][..], &[(0, &[][..])], &[(0, &[])]] {
        judge(&mut rig, &cluster(&faulty(3, faults)), 3);
    }
    let whole = cluster(&all(3));
    assert_eq!(judge(&mut rig, &whole, 3), "B..");
    for round in 0..300 / 10 - 2 {
        assert_eq!(judge(&mut rig, &whole, 3), "B..", "round {round} after");
    }
    assert_eq!(judge(&mut rig, &whole, 3), "...");
}

#[test]
fn test_list_sixty_three_rounds_of_faults() {
    let faults = |round: usize| -> Vec<(usize, &[u32])> {
        match round {
            1 | 20 => vec![(0, &[0, 1])],
            2 => vec![(0, &[])],
            21 | 31 => vec![(1, &[1])],
            30 => vec![(0, &[1])],
            _ => vec![],
        }
    };
    let expected = |round: usize| match round {
        0..=1 => "...",
        2 => "-..",
        3..=30 => "B..",
        31..=60 => "BB.",
        61 => "B..",
        _ => "...",
    };
    let mut rig = rig(STORM);
    for round in 0..63 {
        assert_eq!(judge(&mut rig, &cluster(&faulty(3, &faults(round))), 3), expected(round), "round {round}");
    }
}

#[test]
fn test_release_blacklist_hosts_are_let_go_by_name_until_there_are_slots_enough() {
    let mut rig = rig(STORM);
    for faults in [&[][..], &[(0, &[][..]), (1, &[])], &[(0, &[]), (1, &[])]] {
        judge(&mut rig, &cluster(&faulty(3, faults)), 3);
    }
    // Four slots are left. One topology needs five, so one host comes back; four need twenty, and both do.
    for (topologies, expected) in [(0, "BB."), (1, "GB."), (4, "GG."), (1, "GB."), (0, "BB.")] {
        assert_eq!(judge(&mut rig, &with_topologies(cluster(&all(3)), topologies), 3), expected, "{topologies} topologies");
    }
}

#[test]
fn more_workers_wanted_than_executors_is_no_shortage() {
    // Storm counts the workers that can never be there, and lets the host go in every round.
    let mut rig = rig(STORM);
    for faults in [&[][..], &[(0, &[][..])], &[(0, &[])]] {
        judge(&mut rig, &cluster(&faulty(2, faults)), 2);
    }
    let few = cluster(&all(2)).topology(Topology::new("t").workers(50).with(Component::bolt("bolt", 4)));
    assert_eq!(judge(&mut rig, &few, 2), "B.");
}

#[test]
fn test_greylist_a_host_that_was_let_go_is_used_last() {
    let three = |n| (0..n).map(|_| Some(vec![0, 1, 2])).collect::<Vec<Ports>>();
    for (greylist, on_first) in [(true, 1), (false, 2)] {
        let mut rig = rig(&STORM.replace('}', &format!(", \"greylist\": {greylist}}}")));
        let gone = [None, Some(vec![0, 1, 2])];
        for nodes in [&three(2)[..], &gone, &gone] {
            judge(&mut rig, &cluster(nodes), 2);
        }
        let four = cluster(&three(2)).topology(Topology::new("t").workers(4).with(Component::bolt("bolt", 8)));
        let judged = four.ask().judged_by(&mut rig).unwrap();
        let done = judged.run(even());
        assert_eq!(done.workers_by_node("t").get("sup-0"), Some(&on_first), "greylist {greylist}");
        assert_eq!(done.unplaced("t"), 0);
    }
}

#[test]
fn with_resources_what_does_not_fit_lets_a_host_go() {
    // testBlacklistResumeWhenAckersWontFit: slots are enough, CPU is not when the ackers are counted; one host of two is enough.
    let nodes = |missing: bool| {
        let node = |i: usize| Node::new(&format!("sup-{i}")).host(&format!("host-{i}")).ports(0..4).cpu(100).memory_mb(1024);
        (0..3).filter(|i| !missing || *i == 2).fold(Cluster::new(), |c, i| c.node(node(i)))
    };
    let with = |ackers: u32| Topology::new("t").workers(1).with(Component::bolt("bolt", 2).cpu(50)).with(Component::ackers(ackers).cpu(10));
    for (resources, ackers, expected) in [(false, 1, "BB."), (true, 0, "BB."), (true, 1, "GB.")] {
        let mut rig = rig(&STORM.replace('}', &format!(", \"resources\": {resources}}}")));
        for missing in [false, true, true] {
            judge(&mut rig, &nodes(missing), 3);
        }
        assert_eq!(judge(&mut rig, &nodes(false).topology(with(ackers)), 3), expected, "resources {resources}, {ackers} ackers");
    }
}

fn known(rig: &mut Rig) -> Window {
    Window::restore(&rig.instance.save().expect("it has a memory").unwrap()).unwrap()
}

#[test]
fn remove_long_time_disappear_from_cache() {
    let mut rig = rig(STORM);
    judge(&mut rig, &cluster(&all(3)), 3);
    for round in 0..20 {
        assert!(known(&mut rig).known().contains_key("sup-0"), "round {round}");
        judge(&mut rig, &cluster(&faulty(3, &[(0, &[])])), 3);
    }
    assert_eq!(known(&mut rig).known().keys().collect::<Vec<_>>(), ["sup-1", "sup-2"]);
    // It comes back, and loses a port for good: the rest of its ports is known.
    judge(&mut rig, &cluster(&all(3)), 3);
    for _ in 0..20 {
        judge(&mut rig, &cluster(&faulty(3, &[(0, &[0])])), 3);
    }
    assert_eq!(known(&mut rig).known()["sup-0"], [1, 2, 3].into());
}

#[test]
fn blacklist_supervisor_with_added_port() {
    let mut rig = rig(STORM);
    let ports = |ports: &[u32]| cluster(&[Some(ports.to_vec()), Some(vec![0, 1, 2, 3])]);
    for (round, expected) in [(&[0, 1][..], ".."), (&[0, 1, 2], ".."), (&[0, 1], ".."), (&[0, 1], "B.")] {
        assert_eq!(judge(&mut rig, &ports(round), 2), expected, "{round:?}");
    }
}

#[test]
fn failover_keeps_blacklist() {
    // A leader that sees a fault, and another that sees one more: twice within the window.
    let mut first = rig(STORM);
    judge(&mut first, &cluster(&all(3)), 3);
    judge(&mut first, &cluster(&faulty(3, &[(0, &[])])), 3);
    let state = first.instance.save().expect("it has a memory").unwrap();

    let mut second = rig(STORM);
    second.instance.restore(&state).unwrap();
    judge(&mut second, &cluster(&faulty(3, &[(0, &[])])), 3);
    assert_eq!(judge(&mut second, &cluster(&all(3)), 3), "B..");

    // And the list itself.
    let mut third = rig(STORM);
    third.instance.restore(&second.instance.save().unwrap().unwrap()).unwrap();
    assert_eq!(judge(&mut third, &cluster(&all(3)), 3), "B..");

    let mut forgetful = rig(STORM);
    assert_eq!(judge(&mut forgetful, &cluster(&all(3)), 3), "...", "what a leader without the state would say");
}

#[test]
fn a_saved_state_that_is_none_is_refused() {
    for bytes in [&b""[..], b"{", b"{}", br#"{"version": 2}"#, br#"{"version": 1, "tick": "x"}"#] {
        let e = rig(STORM).instance.restore(bytes).unwrap_err();
        assert!(e.text.contains("the saved state"), "{e}");
    }
}

#[test]
fn rounds_closer_than_half_a_period_are_one() {
    let mut rig = rig(STORM);
    let bad = |ms: i64| cluster(&faulty(3, &[(0, &[])])).at_ms(1_000_000 + ms);
    judge(&mut rig, &cluster(&all(3)).at_ms(1_000_000), 3);
    // A burst of submissions while it is away: once.
    for ms in [10_000, 10_100, 11_000, 14_900] {
        judge(&mut rig, &bad(ms), 3);
    }
    assert_eq!(judge(&mut rig, &cluster(&all(3)).at_ms(1_014_950), 3), "...");
    // The next period: twice. A clock that jumps back does not take it away.
    judge(&mut rig, &bad(20_000), 3);
    assert_eq!(judge(&mut rig, &cluster(&all(3)).at_ms(1_030_000), 3), "B..");
    assert_eq!(judge(&mut rig, &cluster(&all(3)).at_ms(5), 3), "B..");
    // 300 s after.
    assert_eq!(judge(&mut rig, &cluster(&all(3)).at_ms(400_000), 3), "...");
}

#[test]
fn a_round_that_commits_nothing_leaves_no_trace() {
    let mut rig = rig(STORM);
    judge(&mut rig, &cluster(&all(3)), 3);
    let before = known(&mut rig);
    for reason in [abi::REASON_DRY_RUN, abi::REASON_SHADOW] {
        cluster(&faulty(3, &[(0, &[])])).ask().reason(reason).judged_by(&mut rig).unwrap();
    }
    assert_eq!(known(&mut rig), before);
}

#[test]
fn a_whole_host_is_listed() {
    let host = |with: bool| {
        let c = Cluster::new().node(Node::new("sup-1").host("a").ports(0..2)).node(Node::new("sup-2").host("b").ports(0..2));
        if with { c.node(Node::new("sup-0").host("a").ports(0..2)) } else { c }
    };
    let mut rig = rig(STORM);
    for with in [true, false, false] {
        judge(&mut rig, &host(with), 3);
    }
    assert_eq!(judge(&mut rig, &host(true), 3), "BB.");
}

#[test]
fn a_rule_that_can_never_hold_is_refused() {
    let ask = |config: &str| Cluster::new().ask().config(config).run(BUILTIN).unwrap_err();
    let e = ask(r#"{"tolerance_secs": 20, "tolerance_count": 3}"#);
    assert!(e.code == abi::E_CONFIG && e.text.contains("tolerance_secs has 2 periods"), "{e}");
    assert!(ask(r#"{"tolerance": 20}"#).text.contains("it takes greylist"), "{e}");
}

#[test]
fn as_a_scheduler_it_places_nothing_and_says_so() {
    let done = with_topologies(cluster(&all(1)), 1).run(BUILTIN);
    assert_eq!((done.changed, done.unplaced("topo-0"), done.log.len()), (false, 20, 1));
}
