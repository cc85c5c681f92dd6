//! The supervisor with real processes: `examples/fake_worker.rs` as the topology's binary, a store in memory, and an HTTP
//! server in place of nimbus's `/internal` paths.

use axum::Router;
use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use saetta_model::cluster::SlotId;
use saetta_model::local::{FromWorker, ToWorker, decode, encode};
use saetta_model::record::TopologyState;
use saetta_model::topology::{Format, TopologySpec};
use saetta_model::{Assignment, Name, Placement, TopologyRecord};
use saetta_store::{Leadership, MemoryCluster, MemoryStore, NimbusInfo, Store};
use saetta_supervisor::{Offered, Supervisor, SupervisorHandle, SupervisorOptions};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

const PORT: u16 = 6700;
const KEY: [u8; 32] = [0xA5; 32];
/// Longest wait for anything; a test that waits so long fails.
const PATIENCE: Duration = Duration::from_secs(30);

static BINARY: LazyLock<(Vec<u8>, String)> = LazyLock::new(|| {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples/fake_worker");
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}; `cargo test` builds it", path.display()));
    let hash = hex::encode(Sha256::digest(&bytes));
    (bytes, hash)
});

/// Nimbus as far as a supervisor's downloads see it.
struct Nimbus {
    seed: String,
    web: Arc<Web>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Web {
    blobs_sent: AtomicU32,
    send_garbage: AtomicBool,
}

impl Nimbus {
    async fn start() -> Self {
        let web = Arc::new(Web::default());
        let routes = Router::new()
            .route("/internal/v1/blobs/{sha}", get(send_blob))
            .route("/internal/v1/topologies/{id}/key", get(send_key))
            .with_state(Arc::clone(&web));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let seed = listener.local_addr().unwrap().to_string();
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Nimbus { seed, web, task }
    }
}

fn allowed(headers: &HeaderMap) -> bool {
    headers.get("authorization").is_some_and(|v| v == "Bearer the secret")
}

async fn send_blob(State(web): State<Arc<Web>>, UrlPath(sha): UrlPath<String>, headers: HeaderMap) -> (StatusCode, Vec<u8>) {
    if !allowed(&headers) {
        return (StatusCode::UNAUTHORIZED, b"no".to_vec());
    }
    if sha != BINARY.1 {
        return (StatusCode::NOT_FOUND, b"no such blob".to_vec());
    }
    web.blobs_sent.fetch_add(1, Ordering::SeqCst);
    let garbage = web.send_garbage.load(Ordering::SeqCst);
    (StatusCode::OK, if garbage { b"not a binary".to_vec() } else { BINARY.0.clone() })
}

async fn send_key(headers: HeaderMap) -> (StatusCode, String) {
    if allowed(&headers) { (StatusCode::OK, hex::encode(KEY)) } else { (StatusCode::UNAUTHORIZED, String::new()) }
}

struct Bench {
    tmp: tempfile::TempDir,
    nimbus: Nimbus,
    cluster: Arc<MemoryCluster>,
    /// The leader's session.
    leader: Arc<MemoryStore>,
    lead: Leadership,
}

impl Bench {
    async fn new() -> Self {
        let tmp = tempfile::tempdir().unwrap();
        let secret = tmp.path().join("secret");
        std::fs::write(&secret, "the secret\n").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let cluster = MemoryCluster::new();
        let leader = Arc::new(MemoryStore::open(&cluster));
        let info = NimbusInfo { id: name("nimbus"), address: "127.0.0.1:1".into() };
        let lead = leader.campaign(&info).await.unwrap();
        Bench { nimbus: Nimbus::start().await, tmp, cluster, leader, lead }
    }

    fn options(&self) -> SupervisorOptions {
        SupervisorOptions {
            dir: self.tmp.path().join("s"),
            id: Some(name("n1")),
            host: "127.0.0.1".into(),
            rack: String::new(),
            ports: vec![PORT],
            cores: None,
            offered: Offered::default(),
            seeds: vec![self.nimbus.seed.clone()],
            secret_file: self.tmp.path().join("secret"),
            launch_grace: Duration::from_secs(20),
            heartbeat_timeout: Duration::from_secs(10),
            log_bytes_max: 1 << 20,
            workers_end_with_supervisor: false,
        }
    }

    async fn supervisor(&self) -> (SupervisorHandle, Arc<MemoryStore>) {
        self.supervisor_with(|_| {}).await
    }

    async fn supervisor_with(&self, change: impl FnOnce(&mut SupervisorOptions)) -> (SupervisorHandle, Arc<MemoryStore>) {
        let mut options = self.options();
        change(&mut options);
        let store = Arc::new(MemoryStore::open(&self.cluster));
        let handle = Supervisor::start(options, Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
        (handle, store)
    }

    async fn submit(&self, id: &str, mode: &str) {
        self.leader.create_topology(&self.lead, &record(id, mode)).await.unwrap();
    }

    /// Assigns the slot of this node, or takes it away with `None`.
    async fn assign(&self, id: &str, placement: Option<u64>) {
        let before = self.leader.assignment(&name(id)).await.ok();
        let workers = placement.map(|p| Placement {
            slot: SlotId { node: name("n1"), port: PORT },
            id: p,
            index: 0,
            cores: vec![0],
            share: 1,
            executors: vec![],
        });
        let assignment = Assignment {
            version: before.as_ref().map_or(0, |b| b.value.version) + 1,
            binary: BINARY.1.clone(),
            hosts: BTreeMap::new(),
            workers: workers.into_iter().collect(),
        };
        self.leader.put_assignment(&self.lead, &name(id), &assignment, before.map(|b| b.version)).await.unwrap();
    }

    /// Waits for a worker in this state; returns its start number and pid.
    async fn worker(&self, what: &str, is: impl Fn(&saetta_model::beat::WorkerBeat) -> bool) -> (u64, u32) {
        let began = Instant::now();
        loop {
            let beats = self.leader.beats().await.unwrap();
            let workers = beats.items.get(&name("n1")).map(|b| b.value.workers.clone()).unwrap_or_default();
            if let Some(w) = workers.iter().find(|w| is(w)) {
                return (w.start, w.pid);
            }
            assert!(began.elapsed() < PATIENCE, "no worker {what}; there is {workers:?}; log:\n{}", self.logs());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn running(&self) -> (u64, u32) {
        self.worker("running", |w| w.state == "running").await
    }

    fn logs(&self) -> String {
        let mut all = String::new();
        for topology in std::fs::read_dir(self.dir().join("logs")).into_iter().flatten().flatten() {
            all += &std::fs::read_to_string(topology.path().join("6700.log")).unwrap_or_default();
        }
        all
    }

    async fn log_holds(&self, text: &str) {
        until(&format!("{text:?} in the log"), || self.logs().contains(text)).await;
    }

    fn dir(&self) -> PathBuf {
        self.tmp.path().join("s")
    }

    /// Takes the work away and waits until nothing is left, so that no test leaves a process.
    async fn clear(&self, id: &str) {
        self.assign(id, None).await;
        until("no worker directory", || entries(&self.dir().join("workers")).is_empty()).await;
    }
}

fn record(id: &str, mode: &str) -> TopologyRecord {
    let format = Format { archive: "rkyv 0.8".into(), endian: "little".into(), unaligned: true, pointer_bits: 32 };
    let spec = TopologySpec { saetta: "0.1.0".into(), format, components: vec![] };
    TopologyRecord {
        id: name(id),
        name: name(id),
        digest: spec.digest(),
        spec,
        binary: BINARY.1.clone(),
        args: vec![mode.into()],
        config: BTreeMap::new(),
        owner: String::new(),
        priority: 0,
        submitted_ms: 0,
        state: TopologyState::Active,
        request: String::new(),
        finished: false,
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn entries(dir: &Path) -> Vec<String> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect()
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < PATIENCE, "waited in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.rsplit_once(')').unwrap().1.starts_with(" Z"))
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

fn mode_of(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

/// The walk of one placement: fetched, started as the contract says, updated, reported, stopped, cleaned up.
#[tokio::test(flavor = "multi_thread")]
async fn a_placement_becomes_a_worker_and_its_withdrawal_leaves_only_the_log() {
    let bench = Bench::new().await;
    let (supervisor, _store) = bench.supervisor().await;
    assert_eq!(supervisor.info().slots.len(), 1);
    assert!(!supervisor.info().slots[0].cores.is_empty());
    bench.submit("wc-1-1", "beat").await;
    bench.assign("wc-1-1", Some(7)).await;
    let (start, pid) = bench.running().await;
    assert_eq!(start, 1);

    let log = bench.logs();
    let facts = log.lines().next().unwrap().to_owned();
    assert!(facts.contains(&format!("start=1 pid={pid} sid={pid} ")), "a session of its own: {facts}");
    assert!(facts.contains(&format!("key={}", hex::encode(KEY))), "the key on descriptor 3: {facts}");
    let environment = facts.split(" env=").nth(1).unwrap().split(' ').next().unwrap();
    assert!(environment.split(',').all(|v| saetta_supervisor::ENVIRONMENT.contains(&v)), "{facts}");
    assert!(facts.contains("cwd=") && facts.contains("/workers/wc-1-1/6700-0000000000000007"), "{facts}");
    // 0 to 3, the socket not yet, and the directory being listed.
    assert!(facts.ends_with("fds=5"), "no descriptor of the supervisor leaks into a worker: {facts}");
    assert_eq!(mode_of(&bench.dir().join("blobs").join(&BINARY.1)), 0o500);
    assert_eq!(mode_of(&bench.dir().join("keys/wc-1-1")), 0o600);
    assert_eq!(mode_of(&bench.dir().join("run/6700.sock")), 0o600);

    bench.assign("wc-1-1", Some(7)).await;
    bench.log_holds("update version=2 state=active").await;
    let began = Instant::now();
    while bench.leader.errors(&name("wc-1-1")).await.unwrap().is_empty() {
        assert!(began.elapsed() < PATIENCE, "the worker's error reaches operators");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(bench.running().await, (1, pid), "a new version of the assignment restarts nothing");

    bench.clear("wc-1-1").await;
    until("the process to end", || !alive(pid)).await;
    bench.log_holds("stop").await;
    until("the blob to be collected", || entries(&bench.dir().join("blobs")).is_empty()).await;
    assert!(entries(&bench.dir().join("keys")).is_empty());
    supervisor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_keeps_crashing_gets_a_higher_number_each_time_and_is_reported() {
    let bench = Bench::new().await;
    let (supervisor, _store) = bench.supervisor().await;
    bench.submit("wc-1-1", "crash").await;
    bench.assign("wc-1-1", Some(7)).await;
    let (start, _) = bench.worker("failed", |w| w.state == "failed" && w.note == "exit code 3; its last words: boot version=1").await;
    assert!(start >= 5, "five failures in a row: {start}");
    let starts: Vec<String> = bench.logs().lines().filter_map(|l| l.strip_prefix("start=")?.split(' ').next().map(str::to_owned)).collect();
    assert_eq!(&starts[..5], ["1", "2", "3", "4", "5"]);
    assert_eq!(bench.nimbus.web.blobs_sent.load(Ordering::SeqCst), 1, "one download serves all starts");
    bench.clear("wc-1-1").await;
    supervisor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_falls_silent_is_killed_and_started_again() {
    let bench = Bench::new().await;
    let (supervisor, _store) = bench.supervisor_with(|o| o.heartbeat_timeout = Duration::from_millis(500)).await;
    bench.submit("wc-1-1", "hang").await;
    bench.assign("wc-1-1", Some(7)).await;
    let (start, first) = bench.running().await;
    let (_, second) = bench.worker("started again", |w| w.start > start && w.pid != 0).await;
    assert!(second != first && !alive(first));
    bench.worker("with the reason", |w| w.note.contains("no heartbeat for 0.5 s")).await;
    bench.clear("wc-1-1").await;
    supervisor.stop().await;
}

/// SIGSTOP for longer than the heartbeat timeout, and then SIGCONT: it was the supervisor that was silent.
#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_stood_still_kills_nobody_for_it() {
    let mut role = Role::start("1.5");
    let pid = role.worker;
    let child = rustix::process::Pid::from_child(&role.child);
    rustix::process::kill_process(child, rustix::process::Signal::STOP).unwrap();
    // Not a wait for something: this is the length of the stop, more than two heartbeat timeouts. Each is long enough for a
    // worker that shares its core with the other tests.
    tokio::time::sleep(Duration::from_secs(4)).await;
    rustix::process::kill_process(child, rustix::process::Signal::CONT).unwrap();
    let beats = role.beats_after(6);
    assert!(beats.iter().all(|b| *b == format!("running pid={pid}")), "{beats:?}");
    role.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_never_beats_is_killed_when_its_grace_ends() {
    let bench = Bench::new().await;
    let (supervisor, _store) = bench.supervisor_with(|o| o.launch_grace = Duration::from_millis(600)).await;
    bench.submit("wc-1-1", "mute").await;
    bench.assign("wc-1-1", Some(7)).await;
    bench.worker("with the reason", |w| w.note.contains("no heartbeat within 0.6 s of its start")).await;
    bench.clear("wc-1-1").await;
    supervisor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_supervisor_adopts_its_worker_and_then_guards_it() {
    let bench = Bench::new().await;
    let (supervisor, store) = bench.supervisor().await;
    bench.submit("wc-1-1", "beat").await;
    bench.assign("wc-1-1", Some(7)).await;
    let (_, pid) = bench.running().await;
    supervisor.stop().await;
    drop(store);
    assert!(alive(pid), "a stopped supervisor leaves its workers");
    // Its own beat is gone, so what is seen below is the successor's.
    bench.leader.delete_beat(&name("n1")).await.unwrap();

    let (supervisor, store) = bench.supervisor().await;
    assert_eq!(bench.running().await, (1, pid), "same process, same start number");
    bench.assign("wc-1-1", Some(7)).await;
    // With its boot, where it connects again only now; else as an update.
    bench.log_holds("version=2").await;
    supervisor.stop().await;
    drop(store);

    // The same without any note on disk: the process tells what it is.
    std::fs::remove_file(bench.dir().join("slots/6700.json")).unwrap();
    bench.leader.delete_beat(&name("n1")).await.unwrap();
    let (supervisor, store) = bench.supervisor().await;
    assert_eq!(bench.running().await, (1, pid));

    // The same with its topology's record damaged: it comes again until the store has told what it is.
    supervisor.stop().await;
    drop(store);
    std::fs::write(bench.dir().join("topologies/wc-1-1.json"), "").unwrap();
    bench.leader.delete_beat(&name("n1")).await.unwrap();
    let (supervisor, _store) = bench.supervisor().await;
    assert_eq!(bench.running().await, (1, pid), "a worker is not ended for what its supervisor has lost");

    kill(pid);
    let (start, second) = bench.worker("started again", |w| w.state == "running" && w.pid != pid).await;
    assert_eq!(start, 2, "the number goes on from where the adopted worker was");
    bench.clear("wc-1-1").await;
    assert!(!alive(second));
    supervisor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_assignment_withdrawn_while_no_supervisor_looked_ends_the_worker() {
    let bench = Bench::new().await;
    let (supervisor, store) = bench.supervisor().await;
    bench.submit("wc-1-1", "deaf").await;
    bench.assign("wc-1-1", Some(7)).await;
    let (_, pid) = bench.running().await;
    supervisor.stop().await;
    drop(store);
    bench.assign("wc-1-1", None).await;
    let (supervisor, _store) = bench.supervisor().await;
    // It does not listen to `Stop`, so this also shows that SIGTERM follows.
    until("the process to end", || !alive(pid)).await;
    until("no worker directory", || entries(&bench.dir().join("workers")).is_empty()).await;
    supervisor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_store_and_nimbus_away_workers_stay_and_are_restarted_from_disk() {
    let bench = Bench::new().await;
    let (supervisor, store) = bench.supervisor().await;
    bench.submit("wc-1-1", "beat").await;
    bench.assign("wc-1-1", Some(7)).await;
    let (_, pid) = bench.running().await;
    bench.nimbus.task.abort();
    store.set_away(true);
    kill(pid);
    bench.log_holds("start=2 ").await;
    until("the second to boot", || bench.logs().matches("boot version=1").count() == 2).await;
    supervisor.stop().await;
    drop(store);

    // Even a supervisor that never saw either of them looks after what runs.
    let store = Arc::new(MemoryStore::open(&bench.cluster));
    store.set_away(true);
    let supervisor = Supervisor::start(bench.options(), Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
    let second = bench.logs().lines().find_map(|l| l.strip_prefix("start=2 pid=")?.split(' ').next()?.parse().ok()).unwrap();
    kill(second);
    bench.log_holds("start=3 ").await;
    store.set_away(false);
    bench.worker("reported as the third", |w| w.state == "running" && w.start == 3).await;
    bench.clear("wc-1-1").await;
    supervisor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binary_that_changed_on_disk_is_not_started_but_fetched_again() {
    let bench = Bench::new().await;
    let (supervisor, _store) = bench.supervisor().await;
    bench.submit("wc-1-1", "beat").await;
    bench.assign("wc-1-1", Some(7)).await;
    let (_, pid) = bench.running().await;
    let blob = bench.dir().join("blobs").join(&BINARY.1);
    // In place of the file, not into it: the running one is busy.
    let evil = bench.tmp.path().join("evil");
    std::fs::write(&evil, "#!/bin/sh\necho start=999\n").unwrap();
    std::fs::set_permissions(&evil, std::fs::Permissions::from_mode(0o500)).unwrap();
    std::fs::rename(&evil, &blob).unwrap();
    kill(pid);
    let (start, _) = bench.worker("started again", |w| w.state == "running" && w.pid != pid).await;
    assert_eq!(start, 3, "number 2 was used up by the start that was refused");
    assert_eq!(bench.nimbus.web.blobs_sent.load(Ordering::SeqCst), 2);
    assert!(!bench.logs().contains("start=999"));
    bench.clear("wc-1-1").await;
    supervisor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_with_another_hash_are_thrown_away() {
    let bench = Bench::new().await;
    bench.nimbus.web.send_garbage.store(true, Ordering::SeqCst);
    let (supervisor, _store) = bench.supervisor().await;
    bench.submit("wc-1-1", "beat").await;
    bench.assign("wc-1-1", Some(7)).await;
    bench.worker("refused", |w| w.state == "fetching" && w.note.contains("thrown away")).await;
    assert!(!bench.dir().join("blobs").join(&BINARY.1).exists());
    bench.nimbus.web.send_garbage.store(false, Ordering::SeqCst);
    assert_eq!(bench.running().await.0, 1);
    bench.clear("wc-1-1").await;
    supervisor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_others_can_read_is_not_used() {
    let bench = Bench::new().await;
    std::fs::set_permissions(bench.tmp.path().join("secret"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let (supervisor, _store) = bench.supervisor().await;
    bench.submit("wc-1-1", "beat").await;
    bench.assign("wc-1-1", Some(7)).await;
    bench.worker("refused", |w| w.note.contains("mode 0644, want 0600")).await;
    assert_eq!(bench.nimbus.web.blobs_sent.load(Ordering::SeqCst), 0);
    supervisor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_placement_in_the_slot_is_another_worker() {
    let bench = Bench::new().await;
    let (supervisor, _store) = bench.supervisor().await;
    bench.submit("wc-1-1", "beat").await;
    bench.assign("wc-1-1", Some(7)).await;
    let (_, pid) = bench.running().await;
    bench.assign("wc-1-1", Some(8)).await;
    let (start, second) = bench.worker("of placement 8", |w| w.state == "running" && w.placement == 8).await;
    assert_eq!(start, 1, "numbers count per placement");
    assert!(second != pid && !alive(pid));
    assert_eq!(entries(&bench.dir().join("workers/wc-1-1")), ["6700-0000000000000008"]);
    bench.clear("wc-1-1").await;
    supervisor.stop().await;
}

/// What the supervisor answers to one first message at its socket; `None` = it hung up.
fn knock(socket: &Path, bytes: &[u8]) -> Option<ToWorker> {
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let (mut got, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        if let Some((answer, _)) = decode::<ToWorker>(&got).unwrap() {
            return Some(answer);
        }
        match stream.read(&mut piece) {
            Ok(0) => return None,
            Ok(n) => got.extend_from_slice(&piece[..n]),
            Err(e) => panic!("neither an answer nor an end: {e}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_at_the_local_socket_are_turned_away_and_change_nothing() {
    let bench = Bench::new().await;
    let (supervisor, _store) = bench.supervisor().await;
    bench.submit("wc-1-1", "beat").await;
    bench.assign("wc-1-1", Some(7)).await;
    let (_, pid) = bench.running().await;
    let socket = bench.dir().join("run/6700.sock");
    let hello = |versions, topology: &str, placement, start, pid| {
        encode(&FromWorker::Hello { versions, topology: name(topology), port: PORT, placement, start, pid, version: 0 })
    };
    let me = std::process::id();
    let answers = tokio::task::spawn_blocking(move || {
        [
            // The running worker's own identity, from another process.
            knock(&socket, &hello((1, 1), "wc-1-1", 7, 1, me)),
            knock(&socket, &hello((1, 1), "wc-1-1", 7, 1, pid)),
            knock(&socket, &hello((1, 1), "wc-1-1", 7, 2, me)),
            knock(&socket, &hello((1, 1), "other", 7, 1, me)),
            knock(&socket, &hello((9, 12), "wc-1-1", 7, 1, me)),
            knock(&socket, &encode(&FromWorker::Error { component: name("x"), text: String::new() })),
            knock(&socket, &u32::MAX.to_le_bytes()),
            knock(&socket, b"\x04\0\0\0null"),
        ]
    });
    let said: Vec<String> = answers
        .await
        .unwrap()
        .into_iter()
        .map(|a| match a {
            Some(ToWorker::Refused { why }) => why,
            Some(other) => panic!("a stranger was answered {other:?}"),
            None => "hung up".into(),
        })
        .collect();
    let not_this = |start: u64| format!("placement 0000000000000007 with start number {start} is not what this slot runs now");
    assert_eq!(said[0], not_this(1));
    assert_eq!(said[1], format!("it says it is process {pid} and is {me}"));
    assert_eq!(said[2], not_this(2));
    assert_eq!(said[3], "its topology is not wanted in this slot");
    assert_eq!(said[4], "it speaks versions 9 to 12 of the local protocol and this supervisor 1 to 1");
    assert_eq!(said[5..], ["hung up", "hung up", "hung up"]);
    // The worker's own connection was not touched: an update still reaches it.
    bench.assign("wc-1-1", Some(7)).await;
    bench.log_holds("update version=2").await;
    assert_eq!(bench.running().await, (1, pid));
    bench.clear("wc-1-1").await;
    supervisor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_end_with_a_supervisor_that_was_told_so() {
    let bench = Bench::new().await;
    let (supervisor, _store) = bench.supervisor_with(|o| o.workers_end_with_supervisor = true).await;
    bench.submit("wc-1-1", "beat").await;
    bench.assign("wc-1-1", Some(7)).await;
    let (_, pid) = bench.running().await;
    supervisor.stop().await;
    assert!(!alive(pid));
    assert!(entries(&bench.dir().join("workers")).is_empty());
}

/// Name of the variable that makes `role_of_a_supervisor` play its role: the heartbeat timeout in seconds.
const ROLE: &str = "SAETTA_TEST_ROLE_SUPERVISOR";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a role in other tests, run by them in a process of its own"]
async fn role_of_a_supervisor() {
    let Ok(timeout) = std::env::var(ROLE) else { return };
    let timeout = Duration::from_secs_f64(timeout.parse().unwrap());
    let bench = Bench::new().await;
    let change = |o: &mut SupervisorOptions| {
        o.workers_end_with_supervisor = true;
        o.heartbeat_timeout = timeout;
    };
    let (_supervisor, _store) = bench.supervisor_with(change).await;
    bench.submit("wc-1-1", "beat").await;
    bench.assign("wc-1-1", Some(7)).await;
    println!("role worker={} dir={}", bench.running().await.1, bench.tmp.path().display());
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let beats = bench.leader.beats().await.unwrap();
        let worker = &beats.items[&name("n1")].value.workers[0];
        println!("role {} pid={}", worker.state, worker.pid);
    }
}

/// A supervisor in a process of its own, with one worker that ends with it.
struct Role {
    child: std::process::Child,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
    worker: u32,
    dir: PathBuf,
}

impl Role {
    fn start(heartbeat_timeout_secs: &str) -> Self {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["role_of_a_supervisor", "--exact", "--ignored", "--nocapture"])
            .env(ROLE, heartbeat_timeout_secs)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        let said = lines.by_ref().map_while(Result::ok).find_map(|l| Some(l.split_once("role worker=")?.1.to_owned()));
        let said = said.expect("the role says what it started");
        let (worker, dir) = said.split_once(" dir=").unwrap();
        Role { worker: worker.parse().unwrap(), dir: PathBuf::from(dir), child, lines }
    }

    /// What the store says of the worker, so many times from now on.
    fn beats_after(&mut self, n: usize) -> Vec<String> {
        self.lines.by_ref().map_while(Result::ok).filter_map(|l| Some(l.strip_prefix("role ")?.to_owned())).take(n).collect()
    }

    /// Kills the supervisor and waits until the kernel has ended its worker.
    async fn end(mut self) {
        assert!(alive(self.worker));
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        until("the kernel to end the worker", || !alive(self.worker)).await;
        std::fs::remove_dir_all(self.dir).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_end_even_with_a_supervisor_that_was_killed() {
    Role::start("10").end().await;
}
