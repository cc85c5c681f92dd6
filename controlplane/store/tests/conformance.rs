//! One suite of cases, run on the store in memory and on a real ZooKeeper server: what holds on one holds on the other.

use saetta_model::beat::SupervisorBeat;
use saetta_model::cluster::{Platform, divide_cores};
use saetta_model::topology::{ComponentKind, ComponentSpec, Format, Resources};
use saetta_model::{Assignment, Name, SupervisorInfo, TopologyRecord, TopologySpec, TopologyState};
use saetta_store::testing::{Cable, ZooKeeper};
use saetta_store::{ERRORS_KEPT_MAX, ErrorEntry, Family, MemoryCluster, MemoryStore, NimbusInfo, SchedulerMemory, Store, StoreError};
use saetta_store::{ZkOptions, ZkStore};
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// No condition of these tests takes this long on a working store, however busy the machine.
const PATIENCE: Duration = Duration::from_secs(60);
const SESSION: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_in_memory_conforms() {
    conforms(&Rig::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_over_zookeeper_conforms() {
    let dir = tempfile::tempdir().unwrap();
    let server = ZooKeeper::start(dir.path(), 1).unwrap_or_else(|why| panic!("{why}"));
    conforms(&Rig::Zk(Arc::new(server))).await;
}

/// The suite. Each case gets an empty cluster.
async fn conforms(rig: &Rig) {
    records_are_made_read_listed_and_removed(rig.empty()).await;
    a_version_that_is_not_the_newest_is_a_conflict(rig.empty()).await;
    an_assignment_needs_its_record(rig.empty()).await;
    a_supervisor_is_there_while_its_session_is(rig.empty()).await;
    a_lost_session_brings_the_supervisor_back_by_itself(rig.empty()).await;
    a_new_session_replaces_what_a_former_one_left(rig.empty()).await;
    a_change_fires_the_signal_and_many_changes_may_be_one(rig.empty()).await;
    one_leads_and_the_next_takes_over_on_release(rig.empty()).await;
    the_next_takes_over_when_the_session_is_lost_and_the_stale_one_cannot_write(rig.empty()).await;
    a_dead_contender_can_be_taken_out_of_the_line(rig.empty()).await;
    the_last_errors_stay_and_go_with_their_topology(rig.empty()).await;
    binaries_know_their_holders(rig.empty()).await;
    what_schedulers_remember_is_there_for_the_next_leader(rig.empty()).await;
    one_unreadable_node_does_not_hide_the_others(rig.empty()).await;
    a_value_above_the_limit_is_refused(rig.empty()).await;
    a_closed_store_says_so(rig.empty()).await;
}

async fn records_are_made_read_listed_and_removed(cluster: Cluster) {
    let s = cluster.open().await;
    let lead = s.campaign(&nimbus("n1")).await.unwrap();
    assert!(s.topologies().await.unwrap().items.is_empty());
    assert!(s.topology(&name("wc-1-1")).await.unwrap_err().is_not_found());

    let made = s.create_topology(&lead, &record("wc-1-1")).await.unwrap();
    assert!(s.create_topology(&lead, &record("wc-1-1")).await.unwrap_err().is_conflict());
    s.create_topology(&lead, &record("ex-2-1")).await.unwrap();

    let read = s.topology(&name("wc-1-1")).await.unwrap();
    assert_eq!((&read.value, read.version), (&record("wc-1-1"), made));
    let listed: Vec<String> = s.topologies().await.unwrap().items.into_keys().map(String::from).collect();
    assert_eq!(listed, ["ex-2-1", "wc-1-1"]);

    s.delete_topology(&lead, &name("wc-1-1")).await.unwrap();
    s.delete_topology(&lead, &name("wc-1-1")).await.unwrap();
    assert!(s.topology(&name("wc-1-1")).await.unwrap_err().is_not_found());

    s.put_beat(&name("s1"), &SupervisorBeat { at_ms: 1, workers: vec![] }).await.unwrap();
    s.put_beat(&name("s1"), &SupervisorBeat { at_ms: 2, workers: vec![] }).await.unwrap();
    assert_eq!(s.beats().await.unwrap().items[&name("s1")].value.at_ms, 2);
    s.delete_beat(&name("s1")).await.unwrap();
    s.delete_beat(&name("s1")).await.unwrap();
    assert!(s.beats().await.unwrap().items.is_empty());
}

async fn a_version_that_is_not_the_newest_is_a_conflict(cluster: Cluster) {
    let s = cluster.open().await;
    let lead = s.campaign(&nimbus("n1")).await.unwrap();
    let mut r = record("wc-1-1");
    let first = s.create_topology(&lead, &r).await.unwrap();
    r.state = TopologyState::Killed { deadline_ms: 5 };
    let second = s.update_topology(&lead, &r, first).await.unwrap();
    r.finished = true;
    assert!(s.update_topology(&lead, &r, first).await.unwrap_err().is_conflict());
    let read = s.topology(&r.id).await.unwrap();
    assert_eq!(read.version, second);
    assert!(!read.value.finished);
    s.update_topology(&lead, &r, read.version).await.unwrap();

    let first = s.put_assignment(&lead, &r.id, &assignment(1), None).await.unwrap();
    assert!(s.put_assignment(&lead, &r.id, &assignment(2), None).await.unwrap_err().is_conflict());
    s.put_assignment(&lead, &r.id, &assignment(2), Some(first)).await.unwrap();
    assert!(s.put_assignment(&lead, &r.id, &assignment(3), Some(first)).await.unwrap_err().is_conflict());
    assert_eq!(s.assignment(&r.id).await.unwrap().value, assignment(2));
}

async fn an_assignment_needs_its_record(cluster: Cluster) {
    let s = cluster.open().await;
    let lead = s.campaign(&nimbus("n1")).await.unwrap();
    assert!(s.put_assignment(&lead, &name("wc-1-1"), &assignment(1), None).await.unwrap_err().is_not_found());
    s.create_topology(&lead, &record("wc-1-1")).await.unwrap();
    s.put_assignment(&lead, &name("wc-1-1"), &assignment(1), None).await.unwrap();
    // Removing the record removes all of the topology in one step.
    s.delete_topology(&lead, &name("wc-1-1")).await.unwrap();
    assert!(s.assignment(&name("wc-1-1")).await.unwrap_err().is_not_found());
    assert!(s.assignments().await.unwrap().items.is_empty());
}

async fn a_supervisor_is_there_while_its_session_is(cluster: Cluster) {
    let (mine, other) = (cluster.open().await, cluster.open().await);
    mine.keep_supervisor(&supervisor("s1", 1)).await.unwrap();
    mine.keep_nimbus(&nimbus("n1")).await.unwrap();
    assert_eq!(other.supervisors().await.unwrap().items[&name("s1")].value, supervisor("s1", 1));
    mine.keep_supervisor(&supervisor("s1", 2)).await.unwrap();
    assert_eq!(other.supervisors().await.unwrap().items[&name("s1")].value.incarnation, 2);
    mine.withdraw_supervisor(&name("s1")).await.unwrap();
    mine.withdraw_supervisor(&name("s1")).await.unwrap();
    assert!(other.supervisors().await.unwrap().items.is_empty());

    mine.keep_supervisor(&supervisor("s1", 3)).await.unwrap();
    mine.close().await;
    until("the closed session's nodes are gone", async || {
        other.supervisors().await.unwrap().items.is_empty() && other.nimbuses().await.unwrap().items.is_empty()
    })
    .await;
}

async fn a_lost_session_brings_the_supervisor_back_by_itself(cluster: Cluster) {
    let (mine, other) = (cluster.open().await, cluster.open().await);
    mine.keep_supervisor(&supervisor("s1", 1)).await.unwrap();
    let mut seen = other.watch(Family::Supervisors);
    for _ in 0..2 {
        seen.borrow_and_update();
        mine.expire().await;
        until("the supervisor is back", async || {
            let alive = mine.supervisors().await.is_ok_and(|l| l.items.contains_key(&name("s1")));
            alive && seen.has_changed().unwrap()
        })
        .await;
    }
    // And the store is usable again.
    mine.put_beat(&name("s1"), &SupervisorBeat::default()).await.unwrap();
}

async fn a_new_session_replaces_what_a_former_one_left(cluster: Cluster) {
    // The former process is gone and its session not yet: its node must not stop the new process, nor vanish with the old session.
    let old = cluster.open().await;
    old.keep_supervisor(&supervisor("s1", 1)).await.unwrap();
    let new = cluster.open().await;
    new.keep_supervisor(&supervisor("s1", 2)).await.unwrap();
    assert_eq!(new.supervisors().await.unwrap().items[&name("s1")].value.incarnation, 2);
    old.close().await;
    assert_eq!(new.supervisors().await.unwrap().items[&name("s1")].value.incarnation, 2);
}

async fn a_change_fires_the_signal_and_many_changes_may_be_one(cluster: Cluster) {
    let (writer, reader) = (cluster.open().await, cluster.open().await);
    let mut beats = reader.watch(Family::Beats);
    // Whatever fired while the watch was armed.
    writer.put_beat(&name("s1"), &SupervisorBeat::default()).await.unwrap();
    within("the signal of a new node", beats.changed()).await.unwrap();
    until("the reader sees it", async || reader.beats().await.unwrap().items.contains_key(&name("s1"))).await;

    beats.borrow_and_update();
    for at_ms in 1..=50 {
        writer.put_beat(&name("s1"), &SupervisorBeat { at_ms, workers: vec![] }).await.unwrap();
    }
    // Nobody read for 50 changes: one wake, and what is read then is the newest.
    let mut wakes = 0;
    until("the newest value", async || {
        within("the signal of a change", beats.changed()).await.unwrap();
        wakes += 1;
        reader.beats().await.unwrap().items[&name("s1")].value.at_ms == 50
    })
    .await;
    assert!(wakes <= 50, "{wakes} wakes for 50 changes");

    beats.borrow_and_update();
    writer.delete_beat(&name("s1")).await.unwrap();
    within("the signal of a removal", beats.changed()).await.unwrap();
}

async fn one_leads_and_the_next_takes_over_on_release(cluster: Cluster) {
    let (a, b) = (cluster.open().await, cluster.open().await);
    assert_eq!(a.leader().await.unwrap(), None);
    let lead_a = a.campaign(&nimbus("na")).await.unwrap();
    assert!(lead_a.is_held());
    let waiting = {
        let b = b.clone();
        tokio::spawn(async move { b.campaign(&nimbus("nb")).await })
    };
    until("the second one stands in line", async || a.leader_line_len().await == 2).await;
    assert!(!waiting.is_finished(), "two may not lead");
    assert_eq!(b.leader().await.unwrap(), Some(nimbus("na")));
    drop(lead_a);
    let lead_b = within("the second one leads", waiting).await.unwrap().unwrap();
    until("everybody sees the new leader", async || a.leader().await.unwrap() == Some(nimbus("nb"))).await;
    b.create_topology(&lead_b, &record("wc-1-1")).await.unwrap();
}

async fn the_next_takes_over_when_the_session_is_lost_and_the_stale_one_cannot_write(cluster: Cluster) {
    let (a, b) = (cluster.open().await, cluster.open().await);
    let lead_a = a.campaign(&nimbus("na")).await.unwrap();
    let version = a.create_topology(&lead_a, &record("wc-1-1")).await.unwrap();
    let waiting = {
        let b = b.clone();
        tokio::spawn(async move { b.campaign(&nimbus("nb")).await })
    };
    until("the second one stands in line", async || a.leader_line_len().await == 2).await;
    a.expire().await;
    let lead_b = within("the second one leads", waiting).await.unwrap().unwrap();
    within("the first one notices", lead_a.lost()).await;
    until("the first one's store is back", async || a.topologies().await.is_ok()).await;

    // Its connection is fine again and it still holds what looked like leadership: nothing of it may get through.
    let mut changed = record("wc-1-1");
    changed.finished = true;
    assert!(a.update_topology(&lead_a, &changed, version).await.unwrap_err().is_fenced());
    assert!(a.delete_topology(&lead_a, &name("wc-1-1")).await.unwrap_err().is_fenced());
    assert!(a.create_topology(&lead_a, &record("ex-1-1")).await.unwrap_err().is_fenced());
    assert!(a.put_assignment(&lead_a, &name("wc-1-1"), &assignment(1), None).await.unwrap_err().is_fenced());
    assert!(a.put_scheduler_memory(&lead_a, &SchedulerMemory::new()).await.unwrap_err().is_fenced());
    assert_eq!(b.topologies().await.unwrap().items.len(), 1);
    b.update_topology(&lead_b, &changed, version).await.unwrap();
}

async fn a_dead_contender_can_be_taken_out_of_the_line(cluster: Cluster) {
    // The former process of nimbus `na` was killed; its session lives on for a while, and with it its place.
    let (dead, new) = (cluster.open().await, cluster.open().await);
    let lead_dead = dead.campaign(&nimbus("na")).await.unwrap();
    new.bury_contender(&name("nb")).await.unwrap();
    assert_eq!(new.leader().await.unwrap(), Some(nimbus("na")), "only places of that id");
    new.bury_contender(&name("na")).await.unwrap();
    let lead = within("the new process leads", new.campaign(&nimbus("na"))).await.unwrap();
    within("were the other one alive, it would notice", lead_dead.lost()).await;
    assert!(dead.create_topology(&lead_dead, &record("wc-1-1")).await.unwrap_err().is_fenced());
    new.create_topology(&lead, &record("wc-1-1")).await.unwrap();
}

async fn the_last_errors_stay_and_go_with_their_topology(cluster: Cluster) {
    let s = cluster.open().await;
    let lead = s.campaign(&nimbus("n1")).await.unwrap();
    let (wc, split) = (name("wc-1-1"), name("split"));
    let entry = |at_ms| ErrorEntry { at_ms, node: name("s1"), port: 6700, text: format!("no {at_ms}") };
    assert!(s.report_error(&wc, &split, entry(0)).await.unwrap_err().is_not_found());
    s.create_topology(&lead, &record("wc-1-1")).await.unwrap();
    for at_ms in 1..=ERRORS_KEPT_MAX as u64 + 5 {
        s.report_error(&wc, &split, entry(at_ms)).await.unwrap();
    }
    s.report_error(&wc, &Name::system("__system"), entry(1)).await.unwrap();
    let errors = s.errors(&wc).await.unwrap();
    let kept: Vec<u64> = errors[&split].iter().map(|e| e.at_ms).collect();
    assert_eq!(kept, (6..=15).collect::<Vec<u64>>());
    assert_eq!(errors.len(), 2);
    s.delete_topology(&lead, &wc).await.unwrap();
    assert!(s.errors(&wc).await.unwrap().is_empty());
    assert!(s.report_error(&wc, &split, entry(0)).await.unwrap_err().is_not_found());
}

async fn binaries_know_their_holders(cluster: Cluster) {
    let s = cluster.open().await;
    let lead = s.campaign(&nimbus("n1")).await.unwrap();
    let sha = "ab".repeat(32);
    assert!(s.blob(&sha).await.unwrap_err().is_not_found());
    s.add_blob_holder(&lead, &sha, 7, &name("n1")).await.unwrap();
    s.add_blob_holder(&lead, &sha, 7, &name("n1")).await.unwrap();
    s.add_blob_holder(&lead, &sha, 7, &name("n2")).await.unwrap();
    assert_eq!(s.blob(&sha).await.unwrap().nimbuses, [name("n1"), name("n2")].into());
    assert_eq!(s.blobs().await.unwrap()[&sha].bytes, 7);
    s.delete_blob(&lead, &sha).await.unwrap();
    s.delete_blob(&lead, &sha).await.unwrap();
    assert!(s.blobs().await.unwrap().is_empty());
    for bad in ["", "../../leader", &"AB".repeat(32), &"a".repeat(63)] {
        assert!(matches!(s.blob(bad).await, Err(StoreError::Refused { .. })), "{bad}");
    }
}

async fn what_schedulers_remember_is_there_for_the_next_leader(cluster: Cluster) {
    let s = cluster.open().await;
    let lead = s.campaign(&nimbus("n1")).await.unwrap();
    assert!(s.scheduler_memory().await.unwrap().is_empty());
    let memory = |text: &str| SchedulerMemory::from([("blacklist".to_owned(), text.to_owned())]);
    s.put_scheduler_memory(&lead, &memory("00")).await.unwrap();
    s.put_scheduler_memory(&lead, &memory("0011")).await.unwrap();
    assert_eq!(s.scheduler_memory().await.unwrap(), memory("0011"));
    assert_eq!(s.scheduler().await.unwrap(), None, "it stands beside the chosen plugin");
    let before = lead.number();
    drop(lead);
    let (other, id) = (cluster.open().await, nimbus("n2"));
    let next = within("the next one leads", other.campaign(&id)).await.unwrap();
    assert_eq!(other.scheduler_memory().await.unwrap(), memory("0011"));
    assert!(next.number() > before, "{} after {before}", next.number());
    other.put_scheduler_memory(&next, &memory("22")).await.unwrap();
}

async fn one_unreadable_node_does_not_hide_the_others(cluster: Cluster) {
    let s = cluster.open().await;
    let lead = s.campaign(&nimbus("n1")).await.unwrap();
    s.create_topology(&lead, &record("wc-1-1")).await.unwrap();
    cluster.plant("topologies/newer-1-1", b"\x02{}").await;
    cluster.plant("topologies/shell-1-1", b"hello").await;
    cluster.plant("topologies/torn-1-1", b"\x01{\"id\":").await;
    cluster.plant("topologies/empty-1-1", b"").await;
    let listed = s.topologies().await.unwrap();
    assert_eq!(listed.items.len(), 1);
    let why: BTreeMap<&str, &str> = listed.corrupt.iter().map(|(id, c)| (id.as_str(), c.why.as_str())).collect();
    assert_eq!(why.len(), 4);
    assert!(why["newer-1-1"].contains("newer Saetta (value version 2, this one reads up to 1)"), "{}", why["newer-1-1"]);
    assert!(why["shell-1-1"].contains("version byte"), "{}", why["shell-1-1"]);
    assert!(why["torn-1-1"].contains("not a value of version 1"), "{}", why["torn-1-1"]);
    assert!(
        matches!(s.topology(&name("newer-1-1")).await, Err(StoreError::Corrupt { path, .. }) if path.ends_with("/topologies/newer-1-1"))
    );
    // It can still be removed.
    s.delete_topology(&lead, &name("newer-1-1")).await.unwrap();
    assert_eq!(s.topologies().await.unwrap().corrupt.len(), 3);
}

async fn a_value_above_the_limit_is_refused(cluster: Cluster) {
    let s = cluster.open().await;
    let lead = s.campaign(&nimbus("n1")).await.unwrap();
    let mut big = record("wc-1-1");
    big.args = vec!["x".repeat(saetta_store::VALUE_BYTES_MAX)];
    let e = s.create_topology(&lead, &big).await.unwrap_err();
    assert!(matches!(&e, StoreError::Refused { why, .. } if why.contains("at most 1000000")), "{e}");
    big.args = vec!["x".repeat(saetta_store::VALUE_BYTES_MAX - 2000)];
    s.create_topology(&lead, &big).await.unwrap();
    assert_eq!(s.topology(&big.id).await.unwrap().value, big);
}

async fn a_closed_store_says_so(cluster: Cluster) {
    let s = cluster.open().await;
    let lead = s.campaign(&nimbus("n1")).await.unwrap();
    s.close().await;
    within("leading ends", lead.lost()).await;
    assert!(s.topologies().await.unwrap_err().is_unavailable());
    assert!(s.campaign(&nimbus("n1")).await.unwrap_err().is_unavailable());
    let other = cluster.open().await;
    until("the place in the line is free", async || other.leader().await.unwrap().is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper_may_stop_and_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = ZooKeeper::start(dir.path(), 1).unwrap_or_else(|why| panic!("{why}"));
    let cluster = Cluster::Zk { server: None, servers: server.servers(), root: "/saetta".into() };
    let s = cluster.open().await;
    let lead = s.campaign(&nimbus("n1")).await.unwrap();
    s.create_topology(&lead, &record("wc-1-1")).await.unwrap();
    s.keep_supervisor(&supervisor("s1", 1)).await.unwrap();
    let mut supervisors = s.watch(Family::Supervisors);

    server.stop();
    let mut connection = s.connection();
    within("the loss is seen", connection.wait_for(|c| !c.up)).await.unwrap();
    within("leading ends before the session can", lead.lost()).await;
    answers_within_5_s(s.topologies(), |r| r.as_ref().is_err_and(|e| e.is_unavailable())).await;
    answers_within_5_s(s.put_beat(&name("s1"), &SupervisorBeat::default()), |r| r.as_ref().is_err_and(|e| e.is_unavailable())).await;
    answers_within_5_s(s.delete_topology(&lead, &name("wc-1-1")), |r| r.as_ref().is_err_and(|e| e.is_fenced() || e.is_unavailable())).await;
    // Longer than the session may live on the client's side, so that a new one has to be made.
    within("the client gives its session up", async {
        let lost_for = SESSION * 2;
        while s.connection().borrow().since.elapsed() < lost_for {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    supervisors.borrow_and_update();
    server.restart().unwrap();
    within("the connection is back", connection.wait_for(|c| c.up)).await.unwrap();
    within("the signal says: read again", supervisors.changed()).await.unwrap();
    until("record and supervisor are there", async || {
        s.topologies().await.is_ok_and(|l| l.items.contains_key(&name("wc-1-1")))
            && s.supervisors().await.is_ok_and(|l| l.items.contains_key(&name("s1")))
    })
    .await;
    // It stays: the old session's end must not take it away.
    drop(lead);
    let lead = within("leads again", s.campaign(&nimbus("n1"))).await.unwrap();
    s.delete_topology(&lead, &name("wc-1-1")).await.unwrap();
    assert!(s.supervisors().await.unwrap().items.contains_key(&name("s1")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_zookeeper_holds_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    let server = ZooKeeper::start(dir.path(), 1).unwrap_or_else(|why| panic!("{why}"));
    let cluster = Cluster::Zk { server: None, servers: server.servers(), root: "/saetta".into() };
    let s = cluster.open().await;
    server.pause();
    // A request on its way while the process is being stopped may still be answered.
    until("a read fails", async || {
        let mut failed = false;
        answers_within_5_s(s.topologies(), |r| {
            failed = r.as_ref().is_err_and(|e| e.is_unavailable());
            failed || r.is_ok()
        })
        .await;
        failed
    })
    .await;
    answers_within_5_s(s.put_beat(&name("s1"), &SupervisorBeat::default()), |r| r.as_ref().is_err_and(|e| e.is_unavailable())).await;
    server.resume();
    until("it answers again", async || s.topologies().await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_lose_one_and_nobody_notices() {
    let dir = tempfile::tempdir().unwrap();
    let mut servers = ZooKeeper::start(dir.path(), 3).unwrap_or_else(|why| panic!("{why}"));
    let cluster = Cluster::Zk { server: None, servers: servers.servers(), root: "/saetta".into() };
    let s = cluster.open().await;
    s.keep_supervisor(&supervisor("s1", 1)).await.unwrap();
    for i in 0..3 {
        servers.stop_one(i);
        until("a majority serves", async || s.supervisors().await.is_ok_and(|l| l.items.contains_key(&name("s1")))).await;
        servers.restart().unwrap();
    }
}

#[tokio::test]
async fn options_that_cannot_work_are_refused_at_once() {
    let options = |servers: &str, root: &str| ZkOptions { servers: servers.into(), root: root.into(), session_timeout: SESSION };
    for (servers, root) in [
        ("", "/saetta"),
        ("localhost", "/saetta"),
        ("a:0", "/saetta"),
        ("a:2181/x", "/saetta"),
        ("a:2181,", "/saetta"),
        ("a:2181", "saetta"),
    ] {
        let e = ZkStore::open(options(servers, root)).unwrap_err();
        assert!(matches!(e, StoreError::Refused { .. }), "{servers} {root}: {e}");
    }
}

// ---- the rig ----

enum Rig {
    Memory,
    Zk(Arc<ZooKeeper>),
}

enum Cluster {
    Memory(Arc<MemoryCluster>),
    /// With a server, sessions get a cable of their own that can be cut.
    Zk {
        server: Option<Arc<ZooKeeper>>,
        servers: String,
        root: String,
    },
}

#[derive(Clone)]
enum Session {
    Memory(Arc<MemoryStore>),
    Zk(Arc<ZkStore>, Option<Arc<(Cable, Arc<ZooKeeper>)>>),
}

impl Rig {
    fn empty(&self) -> Cluster {
        static ROOTS: AtomicU32 = AtomicU32::new(0);
        match self {
            Rig::Memory => Cluster::Memory(MemoryCluster::new()),
            Rig::Zk(server) => {
                let root = format!("/saetta/case-{}", ROOTS.fetch_add(1, Ordering::Relaxed));
                Cluster::Zk { server: Some(server.clone()), servers: server.servers(), root }
            }
        }
    }
}

impl Cluster {
    async fn open(&self) -> Session {
        match self {
            Cluster::Memory(cluster) => Session::Memory(Arc::new(MemoryStore::open(cluster))),
            Cluster::Zk { server, servers, root } => {
                let port = servers.rsplit(':').next().unwrap().parse().unwrap();
                let cable = server.as_ref().map(|server| Arc::new((Cable::to(port).unwrap(), server.clone())));
                let servers = cable.as_ref().map_or(servers.clone(), |cable| format!("127.0.0.1:{}", cable.0.port()));
                let options = ZkOptions { servers, root: root.clone(), session_timeout: SESSION };
                let store = ZkStore::open(options).unwrap();
                within("a session", store.connection().wait_for(|c| c.up)).await.unwrap();
                Session::Zk(Arc::new(store), cable)
            }
        }
    }

    /// Writes raw bytes, as an operator with a shell would.
    async fn plant(&self, below_root: &str, bytes: &[u8]) {
        match self {
            Cluster::Memory(cluster) => cluster.plant(&format!("/saetta/{below_root}"), bytes),
            Cluster::Zk { servers, root, .. } => {
                let client = zookeeper_client::Client::connect(servers).await.unwrap();
                let options = zookeeper_client::CreateMode::Persistent.with_acls(zookeeper_client::Acls::anyone_all());
                client.create(&format!("{root}/{below_root}"), bytes, &options).await.unwrap();
            }
        }
    }
}

impl Session {
    async fn expire(&self) {
        match self {
            Session::Memory(store) => store.expire_session(),
            Session::Zk(store, cable) => {
                let (cable, server) = &**cable.as_ref().expect("a case that loses sessions runs on one server");
                let session = store.session_id().unwrap();
                assert!(server.has_ephemerals(session), "else there is nothing to wait for");
                cable.cut();
                until("the server ends the session", async || !server.has_ephemerals(session)).await;
                cable.mend();
            }
        }
    }

    async fn leader_line_len(&self) -> usize {
        use saetta_store::Tree;
        match self {
            Session::Memory(s) => s.children(&s.paths().dir(Family::Leader)).await.unwrap().len(),
            Session::Zk(s, _) => s.children(&s.paths().dir(Family::Leader)).await.unwrap().len(),
        }
    }
}

impl Deref for Session {
    type Target = dyn Store;
    fn deref(&self) -> &dyn Store {
        match self {
            Session::Memory(store) => &**store,
            Session::Zk(store, _) => &**store,
        }
    }
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    within(what, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// The promise is 5 s; the rest is the machine's own delay.
async fn answers_within_5_s<T: std::fmt::Debug>(work: impl Future<Output = T>, expected: impl FnOnce(&T) -> bool) {
    let began = Instant::now();
    let answer = work.await;
    assert!(began.elapsed() < Duration::from_secs(10), "took {:?}", began.elapsed());
    assert!(expected(&answer), "{answer:?} after {:?}", began.elapsed());
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn nimbus(id: &str) -> NimbusInfo {
    NimbusInfo { id: name(id), address: "127.0.0.1:6627".into() }
}

fn supervisor(id: &str, incarnation: u64) -> SupervisorInfo {
    SupervisorInfo {
        id: name(id),
        host: "127.0.0.1".into(),
        rack: String::new(),
        slots: divide_cores(&[6700, 6701], &[0, 1]),
        resources: Resources::default(),
        platform: Platform { machine: "x86_64".into(), glibc: Some((2, 36)) },
        incarnation,
        started_ms: 0,
        cores: Vec::new(),
    }
}

fn record(id: &str) -> TopologyRecord {
    let spout = ComponentSpec {
        id: name("words"),
        kind: ComponentKind::Spout,
        executors: 1,
        tasks: None,
        resources: Resources::default(),
        outputs: vec![],
        inputs: vec![],
        config: BTreeMap::new(),
        tracked: false,
    };
    let format = Format { archive: "rkyv 0.8".into(), endian: "little".into(), unaligned: true, pointer_bits: 32 };
    let spec = TopologySpec { saetta: "0.1.0".into(), format, components: vec![spout] };
    TopologyRecord {
        id: name(id),
        name: name(id.split('-').next().unwrap()),
        digest: spec.digest(),
        spec,
        binary: "cd".repeat(32),
        args: vec!["a b".into(), String::new()],
        config: BTreeMap::from([("topology.workers".into(), "2".into())]),
        owner: "ada".into(),
        priority: 0,
        submitted_ms: 1_700_000_000_000,
        state: TopologyState::Active,
        request: "r1".into(),
        finished: false,
    }
}

fn assignment(version: u64) -> Assignment {
    Assignment { version, binary: "cd".repeat(32), hosts: BTreeMap::from([(name("s1"), "127.0.0.1".into())]), workers: vec![] }
}
