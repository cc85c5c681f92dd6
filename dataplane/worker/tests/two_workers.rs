//! Workers as real processes: `examples/counting.rs` as the topology's binary, and a supervisor of a few lines for each.
//!
//! Two workers of one topology, each with every component; half of all tuples cross between them, over io_uring.

use rustix::process::{Pid, Signal, kill_process};
use saetta_model::Name;
use saetta_model::assignment::{Assignment, ExecutorPlace, Placement};
use saetta_model::beat::{EdgeRate, ExecutorBeat};
use saetta_model::cluster::SlotId;
use saetta_model::local::{FromWorker, ToWorker, VERSION_MAX, decode, encode};
use saetta_model::parallelism::ExecutorId;
use saetta_model::record::{TopologyRecord, TopologyState};
use saetta_model::topology::TopologySpec;
use saetta_transport::{Key, probe};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Of this process alone: workers of one host find each other by topology and placement.
static TOPOLOGY: LazyLock<String> = LazyLock::new(|| format!("counting-1-{}", std::process::id()));
const KEY: [u8; 32] = [0x5A; 32];
/// Longest wait for anything while nothing is executed; a test that waits so long fails.
const PATIENCE: Duration = Duration::from_secs(40);
/// Longest wait on a machine so busy that tuples flow, but slowly.
const PATIENCE_MAX: Duration = Duration::from_secs(160);

static BINARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples/counting");
    assert!(path.exists(), "{}: missing; `cargo test` builds it", path.display());
    path
});

static SPEC: LazyLock<TopologySpec> = LazyLock::new(|| describe("plain"));

fn describe(word: &str) -> TopologySpec {
    let out = Command::new(&*BINARY).args(["describe", word]).output().unwrap();
    serde_json::from_slice(&out.stdout).unwrap()
}

/// One test at a time: each runs four pinned loops, and a loop that is starved for four seconds loses its links.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|failed| failed.into_inner())
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Slots are `a` and `b` with placement ids 10 and 20.
fn record(out: &Path, end: u64, word: &str) -> TopologyRecord {
    TopologyRecord {
        id: name(&TOPOLOGY),
        name: name("counting"),
        spec: SPEC.clone(),
        digest: SPEC.digest(),
        binary: String::new(),
        args: vec![out.display().to_string(), end.to_string(), word.into()],
        config: [("topology.workers", "2"), ("topology.acker.executors", "0"), ("executor.inbox.bytes", "64KiB")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        owner: String::new(),
        priority: 0,
        submitted_ms: 0,
        state: TopologyState::Active,
        request: String::new(),
        finished: false,
    }
}

/// A port that is free now; the worker binds it with SO_REUSEADDR a moment later.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn placement<const N: usize>(node: &str, id: u64, index: u32, port: u16, tasks: [u32; N]) -> Placement {
    // Count and numbers on one loop, middle on the other, where there are two cores: each hop crosses loops and workers.
    let cores: Vec<u32> = saetta_engine::allowed_cores().into_iter().take(2).collect();
    let place = |(i, task): (usize, u32)| {
        let core = cores[i % 2 % cores.len()];
        ExecutorPlace { id: ExecutorId { first: task, last: task }, core, started_ms: 0, planned: false }
    };
    let executors = tasks.into_iter().enumerate().map(place).collect();
    Placement { slot: SlotId { node: name(node), port }, id, index, cores: cores.clone(), share: 2, executors }
}

/// count 1-2, middle 3-4, numbers 5-6: odd ones on `a`, even ones on `b`.
fn two_workers() -> Assignment {
    let hosts = [(name("a"), "127.0.0.1".to_owned()), (name("b"), "127.0.0.1".to_owned())].into();
    let workers = vec![placement("a", 10, 0, free_port(), [1, 3, 5]), placement("b", 20, 1, free_port(), [2, 4, 6])];
    Assignment { version: 1, binary: String::new(), hosts, workers }
}

/// One slot: a worker process and the supervisor's end of its socket.
struct Seat {
    place: Placement,
    start: u64,
    path: PathBuf,
    log: PathBuf,
    listener: Option<UnixListener>,
    stream: Option<(UnixStream, Vec<u8>)>,
    child: Child,
    /// Answer to a hello, and the newest update.
    boot: ToWorker,
    /// Pid and assignment version of each hello.
    hellos: Vec<(u32, u64)>,
    beats: u64,
    /// Of the last beat.
    edges: Vec<EdgeRate>,
    beat: Option<(u64, bool, bool, Vec<ExecutorBeat>)>,
    errors: Vec<(String, String)>,
}

impl Seat {
    fn start(dir: &Path, record: &TopologyRecord, assignment: &Assignment, id: u64, start: u64) -> Self {
        let place = assignment.workers.iter().find(|w| w.id == id).unwrap().clone();
        let path = dir.join(format!("{id}.sock"));
        let _ = std::fs::remove_file(&path);
        let listener = listen(&path);
        let log = dir.join(format!("{id}.log"));
        let out = std::fs::File::options().append(true).create(true).open(&log).unwrap();
        let mut child = Command::new(&*BINARY)
            .arg("worker")
            .args(["--socket", path.to_str().unwrap(), "--topology", &TOPOLOGY, "--port", &place.slot.port.to_string()])
            .args(["--placement", &format!("{id:016x}"), "--start", &start.to_string(), "--key-fd", "0"])
            .stdin(Stdio::piped())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&KEY).unwrap();
        let boot = ToWorker::Boot { version: VERSION_MAX, record: Box::new(record.clone()), assignment: Box::new(assignment.clone()) };
        Seat {
            place,
            start,
            path,
            log,
            listener: Some(listener),
            stream: None,
            child,
            boot,
            hellos: vec![],
            beats: 0,
            beat: None,
            edges: vec![],
            errors: vec![],
        }
    }

    /// The same slot, the same placement, one start later.
    fn again(&mut self, dir: &Path, record: &TopologyRecord, assignment: &Assignment) {
        let next = Seat::start(dir, record, assignment, self.place.id, self.start + 1);
        *self = next;
    }

    fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.place.slot.port).into()
    }

    fn say(&mut self, message: &ToWorker) {
        let (stream, _) = self.stream.as_mut().expect("connected");
        stream.write_all(&encode(message)).unwrap();
    }

    fn update(&mut self, record: &TopologyRecord, assignment: &Assignment) {
        self.say(&ToWorker::Update { record: Box::new(record.clone()), assignment: Box::new(assignment.clone()) });
    }

    /// Takes what is there, waiting for a moment.
    fn pump(&mut self) {
        if self.stream.is_none() {
            match self.listener.as_ref().map(UnixListener::accept) {
                Some(Ok((stream, _))) => {
                    stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
                    self.stream = Some((stream, vec![]));
                }
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        let Some((stream, bytes)) = &mut self.stream else { return };
        let mut buffer = [0; 64 << 10];
        match stream.read(&mut buffer) {
            Ok(0) => self.stream = None,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => self.stream = None,
        }
        while let Some((stream, bytes)) = &mut self.stream
            && let Some((message, n)) = decode::<FromWorker>(bytes).unwrap()
        {
            bytes.drain(..n);
            match message {
                FromWorker::Hello { topology, port, placement, start, pid, version, .. } => {
                    let own = (TOPOLOGY.as_str(), self.place.slot.port, self.place.id, self.start);
                    assert_eq!((topology.as_str(), port, placement, start), own);
                    self.hellos.push((pid, version));
                    stream.write_all(&encode(&self.boot)).unwrap();
                }
                FromWorker::Beat { version, ended, drained, executors, edges, .. } => {
                    self.beats += 1;
                    self.edges = edges;
                    self.beat = Some((version, ended, drained, executors));
                }
                FromWorker::Error { component, text } => self.errors.push((component.as_str().to_owned(), text)),
            }
        }
    }

    fn executed(&self, task: u32) -> u64 {
        let executors = self.beat.as_ref().map(|b| &b.3[..]).unwrap_or_default();
        executors.iter().find(|e| e.id.first == task).map_or(0, |e| e.executed)
    }

    fn ended(&self) -> bool {
        self.beat.as_ref().is_some_and(|b| b.1 && b.2)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    fn exit(&mut self) -> ExitStatus {
        let mut status = None;
        wait(&mut [self], "the worker ends", |s| {
            status = s[0].child.try_wait().unwrap();
            status.is_some()
        });
        // What it said last.
        self.pump();
        status.unwrap()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(path: &Path) -> UnixListener {
    let listener = UnixListener::bind(path).unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

/// Serves all seats until `done`, and fails with their logs when that takes too long.
fn wait(seats: &mut [&mut Seat], what: &str, mut done: impl FnMut(&mut [&mut Seat]) -> bool) {
    let (began, mut moved, mut executed) = (Instant::now(), Instant::now(), 0);
    while !done(seats) {
        seats.iter_mut().for_each(|s| s.pump());
        let now: u64 = seats.iter().filter_map(|s| s.beat.as_ref()).flat_map(|b| &b.3).map(|e| e.executed).sum();
        if now != executed {
            (moved, executed) = (Instant::now(), now);
        }
        if moved.elapsed() > PATIENCE || began.elapsed() > PATIENCE_MAX {
            let logs: String = seats.iter().map(|s| format!("\n--- {}\n{}\nlast beat {:?}", s.place.slot.node, s.log(), s.beat)).collect();
            panic!("not within {PATIENCE:?}: {what}{logs}");
        }
    }
}

/// Waits until each of these tasks has executed more than it has now.
fn rises(seats: &mut [&mut Seat], what: &str) {
    let before: Vec<u64> = seats.iter().map(|s| s.beat.as_ref().map_or(0, |b| b.3.iter().map(|e| e.executed).sum())).collect();
    wait(seats, what, |seats| {
        seats.iter().zip(&before).all(|(s, before)| s.beat.as_ref().is_some_and(|b| b.3.iter().map(|e| e.executed).sum::<u64>() > *before))
    });
}

#[test]
fn every_tuple_crosses_once_and_in_order_and_ends_cross_behind_them() {
    let _alone = alone();
    // On a machine so busy that a loop gets no core for four seconds its links are lost, and said to be, with what was on them.
    assert!((0..5).any(|_| all_arrives("linked", &[], 100_000)), "five times a link was lost; is this machine overloaded?");
}

#[test]
fn by_every_carrier_every_tuple_crosses_once() {
    let _alone = alone();
    let tcp = ("transport.memory", "false");
    let ways: [(&str, &[(&str, &str)]); 4] = [
        ("links over sockets go by io_uring", &[("transport.carrier", "io_uring"), tcp]),
        ("links over sockets go by epoll", &[("transport.carrier", "epoll"), tcp]),
        ("dialled, memory", &[("transport.memory", "true")]),
        ("dialled, tls", &[("transport.tls", "true"), tcp]),
    ];
    for (says, config) in ways {
        assert!((0..5).any(|_| all_arrives(says, config, 20_000)), "{config:?}: five times a link was lost; is this machine overloaded?");
    }
}

#[test]
fn with_a_loop_per_executor_every_tuple_crosses_as_well() {
    let _alone = alone();
    assert!(
        (0..5).any(|_| all_arrives("linked", &[("worker.mode", "dedicated")], 20_000)),
        "five times a link was lost; is this machine overloaded?"
    );
}

#[test]
fn over_a_link_that_all_loops_share_every_tuple_crosses_once_and_in_order() {
    let _alone = alone();
    let config = [("worker.mode", "dedicated"), ("transport.links.max", "1")];
    assert!((0..5).any(|_| all_arrives("1 links are shared", &config, 20_000)), "five times a link was lost; is this machine overloaded?");
}

/// One run of a finite topology, so many tuples of each spout; the first worker's log has `says`. False = a link was lost, so counts are not exact.
fn all_arrives(says: &str, config: &[(&str, &str)], each: u64) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let (mut record, assignment) = (record(dir.path(), each, "plain"), two_workers());
    record.config.extend(config.iter().map(|(k, v)| ((*k).into(), (*v).into())));
    let mut a = Seat::start(dir.path(), &record, &assignment, 10, 1);
    let mut b = Seat::start(dir.path(), &record, &assignment, 20, 1);
    wait(&mut [&mut a, &mut b], "both workers have ended and drained", |s| s.iter().all(|s| s.ended()));
    if [&a, &b].iter().any(|s| s.errors.iter().any(|(_, t)| t.contains("the peer was silent"))) {
        return false;
    }
    assert!(a.log().contains(says), "{says}: {}", a.log());
    let mut all = (0, 0);
    for task in [1, 2] {
        let text = std::fs::read_to_string(dir.path().join(format!("count-{task}"))).unwrap();
        let n: Vec<u64> = text.split(' ').map(|n| n.parse().unwrap()).collect();
        let [tuples, sum, disorder, sources] = n[..] else { panic!("{text}") };
        assert_eq!((disorder, sources), (0, 2), "count task {task}: {text}");
        all = (all.0 + tuples, all.1 + sum);
    }
    assert_eq!(all, (2 * each, each * (each - 1)), "tuples and the sum of their values");
    for seat in [&a, &b] {
        let (version, _, _, executors) = seat.beat.as_ref().unwrap();
        assert_eq!(*version, 1);
        assert!(executors.iter().all(|e| e.failed == 0 && e.ended), "{executors:?}");
        let cores: Vec<u32> = executors.iter().map(|e| e.core).collect();
        let wanted: Vec<u32> = seat.place.executors.iter().map(|e| e.core).collect();
        assert_eq!(cores, wanted, "cores as read back");
        assert!(seat.log().contains("memory"), "{}", seat.log());
        assert_eq!(seat.log().contains("loop 2 on core"), config.contains(&("worker.mode", "dedicated")), "{}", seat.log());
    }
    // A last word from the supervisor: both say goodbye and end well.
    a.say(&ToWorker::Stop);
    b.say(&ToWorker::Stop);
    for seat in [&mut a, &mut b] {
        assert_eq!(seat.exit().code(), Some(0), "{}", seat.log());
        // That a loop stood still may be told on a machine as busy as that.
        assert!(seat.errors.iter().all(|(_, t)| t.contains("stands still")), "{:?}\n{}", seat.errors, seat.log());
    }
    true
}

#[test]
fn a_killed_worker_comes_back_and_the_other_never_stops() {
    comes_back(&[]);
}

#[test]
fn a_killed_worker_comes_back_over_a_link_that_all_loops_share() {
    comes_back(&[("worker.mode", "dedicated"), ("transport.links.max", "1")]);
}

fn comes_back(config: &[(&str, &str)]) {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (mut record, assignment) = (record(dir.path(), 0, "plain"), two_workers());
    record.config.extend(config.iter().map(|(k, v)| ((*k).into(), (*v).into())));
    let mut a = Seat::start(dir.path(), &record, &assignment, 10, 1);
    let mut b = Seat::start(dir.path(), &record, &assignment, 20, 1);
    wait(&mut [&mut a, &mut b], "tuples flow", |s| s[0].executed(1) > 1000 && s[1].executed(2) > 1000);
    let pid = a.child.id();
    // Both ways: first the one that accepts, then the one that dials.
    for round in 0..2 {
        let (dead, other) = if round == 0 { (&mut b, &mut a) } else { (&mut a, &mut b) };
        let survivor = other.child.id();
        dead.child.kill().unwrap();
        dead.child.wait().unwrap();
        wait(&mut [other], "the survivor notices", |s| s[0].errors.iter().any(|(c, t)| c == "__system" && t.contains("lost")));
        other.errors.clear();
        dead.again(dir.path(), &record, &assignment);
        // Count task of each reads from both middle tasks, so all four links are up again when both rise for long.
        wait(&mut [other, dead], "the new worker executes", |s| s[1].place.executors.iter().all(|e| s[1].executed(e.id.first) > 1000));
        let dead_count = dead.place.executors[0].id.first;
        let before = (other.executed(other.place.executors[0].id.first), dead.executed(dead_count));
        wait(&mut [other, dead], "tuples flow again", |s| {
            s[0].executed(s[0].place.executors[0].id.first) > before.0 + 10_000 && s[1].executed(dead_count) > before.1 + 10_000
        });
        assert_eq!(other.child.id(), survivor);
        assert!(other.child.try_wait().unwrap().is_none());
        assert_eq!(other.hellos.len(), 1, "nobody else was started over");
    }
    assert_ne!(a.child.id(), pid);
}

#[test]
fn a_supervisor_that_goes_away_is_found_again_and_nothing_stops_meanwhile() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (record, assignment) = (record(dir.path(), 0, "plain"), two_workers());
    let mut a = Seat::start(dir.path(), &record, &assignment, 10, 1);
    let mut b = Seat::start(dir.path(), &record, &assignment, 20, 1);
    wait(&mut [&mut a, &mut b], "tuples flow", |s| s[0].executed(1) > 1000 && s[1].executed(2) > 1000);

    let key = Key::new(KEY).unwrap();
    a.stream = None;
    a.listener = None;
    std::fs::remove_file(&a.path).unwrap();
    let mut last = 0;
    // Without a supervisor, the leader's probe still shows progress.
    for _ in 0..3 {
        let mut reply = probe(a.addr(), &key, &TOPOLOGY, Duration::from_secs(5)).unwrap();
        wait(&mut [&mut b], "the probe's counts rise", |_| {
            reply = probe(a.addr(), &key, &TOPOLOGY, Duration::from_secs(5)).unwrap();
            reply.executed > last && reply.emitted > last
        });
        assert_eq!((reply.placement, reply.start), (10, 1));
        last = reply.executed.max(reply.emitted);
    }
    let wrong = probe(a.addr(), &Key::new([1; 32]).unwrap(), &TOPOLOGY, Duration::from_secs(5));
    assert!(wrong.is_err(), "a probe without the topology's key");

    a.listener = Some(listen(&a.path));
    a.beat = None;
    wait(&mut [&mut a, &mut b], "it says hello again and beats", |s| s[0].hellos.len() == 2 && s[0].beat.is_some());
    assert_eq!(a.hellos[1], (a.child.id(), 1), "the same process, with the version it has in force");
    assert_eq!(b.hellos.len(), 1);
    rises(&mut [&mut a, &mut b], "tuples flow");
}

#[test]
fn sigterm_ends_a_worker_in_order() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (record, assignment) = (record(dir.path(), 0, "plain"), two_workers());
    let mut a = Seat::start(dir.path(), &record, &assignment, 10, 1);
    let mut b = Seat::start(dir.path(), &record, &assignment, 20, 1);
    wait(&mut [&mut a, &mut b], "tuples flow", |s| s[0].executed(1) > 1000 && s[1].executed(2) > 1000);
    kill_process(Pid::from_child(&b.child), Signal::TERM).unwrap();
    assert_eq!(b.exit().code(), Some(0), "{}", b.log());
    wait(&mut [&mut a], "the peer hears a goodbye", |s| s[0].log().contains("said goodbye"));
    assert!(!a.errors.iter().any(|(_, t)| t.contains("lost")), "a goodbye is no loss: {:?}", a.errors);
    kill_process(Pid::from_child(&a.child), Signal::TERM).unwrap();
    assert_eq!(a.exit().code(), Some(0), "{}", a.log());
}

#[test]
fn a_peer_that_does_not_answer_holds_up_no_stop() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (record, assignment) = (record(dir.path(), 0, "plain"), two_workers());
    let mut a = Seat::start(dir.path(), &record, &assignment, 10, 1);
    let mut b = Seat::start(dir.path(), &record, &assignment, 20, 1);
    wait(&mut [&mut a, &mut b], "tuples flow", |s| s[0].executed(1) > 1000 && s[1].executed(2) > 1000);
    kill_process(Pid::from_child(&a.child), Signal::STOP).unwrap();
    b.say(&ToWorker::Stop);
    wait(&mut [&mut b], "it stops", |s| s[0].log().contains("stopping"));
    // It would wait for what is under way to drain; this cuts that short, sooner than the silent link is given up.
    kill_process(Pid::from_child(&b.child), Signal::TERM).unwrap();
    assert_eq!(b.exit().code(), Some(0), "{}", b.log());
    assert!(b.log().contains("stopped"), "{}", b.log());
}

#[test]
fn spouts_follow_the_record() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (mut record, assignment) = (record(dir.path(), 0, "plain"), two_workers());
    let mut a = Seat::start(dir.path(), &record, &assignment, 10, 1);
    let mut b = Seat::start(dir.path(), &record, &assignment, 20, 1);
    wait(&mut [&mut a, &mut b], "tuples flow", |s| s[0].executed(1) > 1000 && s[1].executed(2) > 1000);
    wait(&mut [&mut a, &mut b], "beats tell what comes over the subscription", |s| {
        let told = |e: &EdgeRate| e.tuples_per_s > 0 && e.bytes_per_s > e.tuples_per_s;
        s.iter().all(|s| !s.edges.is_empty() && s.edges.iter().all(told))
    });
    record.state = TopologyState::Inactive;
    a.update(&record, &assignment);
    b.update(&record, &assignment);
    // Off and drained: what was emitted has all arrived.
    wait(&mut [&mut a, &mut b], "everything has arrived", |s| {
        let sum = |tasks: [u32; 2], count: fn(&ExecutorBeat) -> u64| -> u64 {
            let beats = s.iter().filter_map(|s| s.beat.as_ref()).flat_map(|b| &b.3);
            beats.filter(|e| tasks.contains(&e.id.first)).map(count).sum()
        };
        let (emitted, counted) = (sum([5, 6], |e| e.emitted), sum([1, 2], |e| e.executed));
        // A starved machine loses a link and what was on it, and says so.
        let lost = s.iter().any(|s| s.errors.iter().any(|(_, t)| t.contains("the peer was silent")));
        s.iter().all(|s| s.beat.as_ref().is_some_and(|b| b.2)) && (emitted == counted || lost) && emitted > 0
    });
    let (before, beats) = ((a.executed(1), b.executed(2)), (a.beats, b.beats));
    wait(&mut [&mut a, &mut b], "two more beats each", |s| s[0].beats > beats.0 + 1 && s[1].beats > beats.1 + 1);
    assert_eq!((a.executed(1), b.executed(2)), before, "nothing moves while it is inactive");
    record.state = TopologyState::Active;
    a.update(&record, &assignment);
    b.update(&record, &assignment);
    rises(&mut [&mut a, &mut b], "tuples flow again");
}

#[test]
fn another_peer_and_other_executors_are_taken_on_and_other_cores_need_a_new_start() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (record, mut assignment) = (record(dir.path(), 0, "plain"), two_workers());
    let mut a = Seat::start(dir.path(), &record, &assignment, 10, 1);
    let mut b = Seat::start(dir.path(), &record, &assignment, 20, 1);
    wait(&mut [&mut a, &mut b], "tuples flow", |s| s[0].executed(1) > 1000 && s[1].executed(2) > 1000);

    // b's executors move to another slot, c, with a placement of its own. c knows it before a does.
    assignment.version = 2;
    assignment.hosts.insert(name("c"), "127.0.0.1".into());
    assignment.workers[1] = placement("c", 30, 2, free_port(), [2, 4, 6]);
    let mut c = Seat::start(dir.path(), &record, &assignment, 30, 1);
    b.update(&record, &assignment);
    assert_eq!(b.exit().code(), Some(0), "it is not named any more: {}", b.log());
    wait(&mut [&mut a, &mut c], "c runs", |s| s[1].beat.is_some());
    a.update(&record, &assignment);
    wait(&mut [&mut a, &mut c], "tuples flow between a and c", |s| {
        s[0].beat.as_ref().is_some_and(|b| b.0 == 2) && s[1].place.executors.iter().all(|e| s[1].executed(e.id.first) > 1000)
    });
    let before = a.executed(1);
    wait(&mut [&mut a, &mut c], "and back", |s| s[0].executed(1) > before + 10_000);
    assert_eq!(a.hellos.len(), 1, "a went on as the same process");

    // a's own executors change places with c's, and both go on as they are.
    assignment.version = 3;
    let moved = assignment.workers[1].executors.clone();
    assignment.workers[1].executors = std::mem::replace(&mut assignment.workers[0].executors, moved);
    a.update(&record, &assignment);
    c.update(&record, &assignment);
    wait(&mut [&mut a, &mut c], "tuples flow where they are now", |s| s[0].executed(2) > 10_000 && s[1].executed(1) > 10_000);
    assert!(a.log().contains("executors that go: [1]"), "{}", a.log());
    assert_eq!((a.hellos.len(), c.hellos.len()), (1, 1), "nobody was started over");

    // Other cores are another matter.
    assignment.version = 4;
    assignment.workers[0].cores.truncate(1);
    let core = assignment.workers[0].cores[0];
    assignment.workers[0].executors.iter_mut().for_each(|e| e.core = core);
    assignment.workers[0].cores.push(core + 1000);
    a.update(&record, &assignment);
    assert_eq!(a.exit().code(), Some(75), "{}", a.log());
}

/// Sums of what all instances of the count tasks saw: tuples, values, out of order.
fn counted(dir: &Path) -> (u64, u64, u64) {
    let files = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path());
    let counts =
        files.filter(|p| p.file_name().is_some_and(|n| n.to_str().is_some_and(|n| n.starts_with("count-") || n.starts_with("part-"))));
    counts.fold((0, 0, 0), |sum, path| {
        let text = std::fs::read_to_string(path).unwrap();
        let n: Vec<u64> = text.split(' ').map(|n| n.parse().unwrap()).collect();
        (sum.0 + n[0], sum.1 + n[1], sum.2 + n[2])
    })
}

#[test]
fn a_task_that_has_ended_and_moves_ends_anew_and_nothing_it_counted_is_lost() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (record, mut assignment) = (record(dir.path(), 1000, "plain"), two_workers());
    let mut a = Seat::start(dir.path(), &record, &assignment, 10, 1);
    let mut b = Seat::start(dir.path(), &record, &assignment, 20, 1);
    wait(&mut [&mut a, &mut b], "both workers have ended and drained", |s| s.iter().all(|s| s.ended()));
    // The counts change places, and nothing else.
    assignment.version += 1;
    let [one, two] = &mut assignment.workers[..] else { panic!("two") };
    std::mem::swap(&mut one.executors[0], &mut two.executors[0]);
    [&mut a, &mut b].into_iter().for_each(|seat| seat.update(&record, &assignment));
    wait(&mut [&mut a, &mut b], "they have ended where they are now", |s| {
        let has = |s: &Seat, task| s.beat.as_ref().is_some_and(|b| b.3.iter().any(|e| e.id.first == task && e.ended));
        s.iter().all(|s| s.ended()) && has(s[0], 2) && has(s[1], 1)
    });
    assert_eq!(counted(dir.path()), (2000, 999_000, 0), "what both instances of each task saw");
    let files = std::fs::read_dir(dir.path()).unwrap().filter(|f| f.as_ref().unwrap().file_name().to_str().unwrap().starts_with("part-"));
    assert_eq!(files.count(), 2, "the second instances have ended as well");
}

#[test]
fn executors_that_move_under_load_lose_nothing_and_keep_their_order() {
    let _alone = alone();
    assert!((0..5).any(|_| moves(400_000, &[])), "five times a link was lost; is this machine overloaded?");
}

#[test]
fn executors_that_move_over_a_link_that_all_loops_share_lose_nothing_and_keep_their_order() {
    let _alone = alone();
    let config = [("worker.mode", "dedicated"), ("transport.links.max", "1")];
    assert!((0..5).any(|_| moves(200_000, &config)), "five times a link was lost; is this machine overloaded?");
}

/// One run of a finite topology whose bolts change places again and again. False = a link was lost, so counts are not exact.
fn moves(each: u64, config: &[(&str, &str)]) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let (mut record, mut assignment) = (record(dir.path(), each, "plain"), two_workers());
    record.config.extend(config.iter().map(|(k, v)| ((*k).into(), (*v).into())));
    let mut a = Seat::start(dir.path(), &record, &assignment, 10, 1);
    let mut b = Seat::start(dir.path(), &record, &assignment, 20, 1);
    wait(&mut [&mut a, &mut b], "tuples flow", |s| s[0].executed(1) > 1000 && s[1].executed(2) > 1000);
    // The middle tasks change places, then the counts, then both; the spouts stay.
    for (round, moving) in [vec![3, 4], vec![1, 2], vec![1, 2, 3, 4], vec![3, 4]].into_iter().enumerate() {
        assignment.version += 1;
        let [one, two] = &mut assignment.workers[..] else { panic!("two") };
        let taken = |w: &mut Placement| {
            let (go, stay) = w.executors.iter().partition(|e| moving.contains(&e.id.first));
            w.executors = stay;
            go
        };
        let (from_one, from_two): (Vec<ExecutorPlace>, Vec<ExecutorPlace>) = (taken(one), taken(two));
        one.executors.extend(from_two);
        two.executors.extend(from_one);
        assignment.workers.iter_mut().for_each(|w| w.executors.sort_by_key(|e| e.id));
        // Now one knows first, now the other.
        let mut both = [&mut a, &mut b];
        both.rotate_left(round % 2);
        both.iter_mut().for_each(|seat| seat.update(&record, &assignment));
        let here = |s: &Seat, w: &Placement| {
            let beat = s.beat.as_ref().map(|b| b.3.iter().map(|e| e.id).collect::<Vec<_>>());
            beat.is_some_and(|ids| ids.len() == w.executors.len() && w.executors.iter().all(|e| ids.contains(&e.id)))
        };
        wait(&mut [&mut a, &mut b], "everybody is where he belongs, and nowhere else", |s| {
            here(s[0], &assignment.workers[0]) && here(s[1], &assignment.workers[1])
        });
    }
    wait(&mut [&mut a, &mut b], "both workers have ended and drained", |s| s.iter().all(|s| s.ended()));
    if [&a, &b].iter().any(|s| s.errors.iter().any(|(_, t)| t.contains("the peer was silent"))) {
        return false;
    }
    assert!(a.errors.is_empty() && b.errors.is_empty(), "{:?} {:?}", a.errors, b.errors);
    let parts = std::fs::read_dir(dir.path()).unwrap().filter(|f| f.as_ref().unwrap().file_name().to_str().unwrap().starts_with("part-"));
    assert!(parts.count() >= 2, "counts moved while tuples flowed");
    assert_eq!(counted(dir.path()), (2 * each, each * (each - 1), 0), "tuples, the sum of their values, and none out of order");
    assert_eq!((a.hellos.len(), b.hellos.len()), (1, 1), "nobody was started over");
    true
}

#[test]
fn a_binary_that_describes_something_else_is_refused() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (mut record, assignment) = (record(dir.path(), 1, "plain"), two_workers());
    record.digest = "00".repeat(32);
    let mut a = Seat::start(dir.path(), &record, &assignment, 10, 1);
    assert_eq!(a.exit().code(), Some(1));
    let log = a.log();
    assert!(log.contains(&record.digest) && log.contains(&SPEC.digest()), "names both: {log}");
    assert_eq!(log.lines().count(), 1, "{log}");
}

#[test]
fn a_port_that_is_taken_is_told_before_anything_runs() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (record, assignment) = (record(dir.path(), 1, "plain"), two_workers());
    let taken = TcpListener::bind(("127.0.0.1", assignment.workers[0].slot.port)).unwrap();
    let mut a = Seat::start(dir.path(), &record, &assignment, 10, 1);
    assert_eq!(a.exit().code(), Some(1));
    let wanted = format!("bind {}", taken.local_addr().unwrap());
    assert!(a.log().contains(&wanted), "{}", a.log());
}

#[test]
fn a_loop_held_up_in_user_code_is_named_while_beats_and_probes_go_on() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (record, assignment) = (record(dir.path(), 0, "stuck"), two_workers());
    let mut a = Seat::start(dir.path(), &record, &assignment, 10, 1);
    let mut b = Seat::start(dir.path(), &record, &assignment, 20, 1);
    wait(&mut [&mut a, &mut b], "the loop is reported", |s| s[0].errors.iter().any(|(_, t)| t.contains("stands still")));
    let (_, text) = a.errors.iter().find(|(_, t)| t.contains("stands still")).unwrap();
    assert!(text.contains("held up in user code of middle[3], task 3"), "{text}");
    probe(a.addr(), &Key::new(KEY).unwrap(), &TOPOLOGY, Duration::from_secs(5)).unwrap();
    wait(&mut [&mut a, &mut b], "it goes on", |s| {
        s[0].log().contains("core loop") && s[0].log().contains("goes on after") && s[0].executed(3) > 1000 && s[1].executed(2) > 1000
    });
    assert!(a.beats >= 2, "it beat all the time");
}

#[test]
fn a_component_that_cannot_go_on_ends_its_worker_with_its_reason() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (record, assignment) = (record(dir.path(), 0, "fatal"), two_workers());
    let mut a = Seat::start(dir.path(), &record, &assignment, 10, 1);
    // The first number's key belongs to b, and its spout waits until b is there.
    let mut b = Seat::start(dir.path(), &record, &assignment, 20, 1);
    wait(&mut [&mut a, &mut b], "it ends", |s| s[0].child.try_wait().unwrap().is_some());
    assert_eq!(a.exit().code(), Some(1), "{}", a.log());
    assert!(b.child.try_wait().unwrap().is_none(), "its peer goes on");
    let wanted = ("middle".to_owned(), "the middle\\nis missing".to_owned());
    assert!(a.errors.contains(&wanted), "one line, for the operator: {:?}", a.errors);
}

/// numbers and the acker on `a`, each on a loop of its own, middle on `b`, count on `c`: from c to a there are acks and no tuples.
fn tracked_chain(out: &Path, end: u64) -> (TopologyRecord, Assignment) {
    let mut record = record(out, end, "tracked");
    record.spec = describe("tracked");
    record.digest = record.spec.digest();
    for (key, value) in [("topology.workers", "3"), ("topology.acker.executors", "1"), ("topology.max.spout.pending", "1000")] {
        record.config.insert(key.into(), value.into());
    }
    let hosts = ["a", "b", "c"].map(|node| (name(node), "127.0.0.1".to_owned())).into();
    let workers =
        vec![placement("a", 10, 0, free_port(), [1, 4]), placement("b", 20, 1, free_port(), [3]), placement("c", 30, 2, free_port(), [2])];
    (record, Assignment { version: 1, binary: String::new(), hosts, workers })
}

#[test]
fn acks_of_the_last_worker_of_a_chain_reach_the_first() {
    let _alone = alone();
    let all_acked = |_| {
        let dir = tempfile::tempdir().unwrap();
        let (record, assignment) = tracked_chain(dir.path(), 20_000);
        let [mut a, mut b, mut c] = [10, 20, 30].map(|id| Seat::start(dir.path(), &record, &assignment, id, 1));
        wait(&mut [&mut a, &mut b, &mut c], "all three have ended and drained", |s| s.iter().all(|s| s.ended()));
        if [&a, &b, &c].iter().any(|s| s.errors.iter().any(|(_, t)| t.contains("the peer was silent"))) {
            return false;
        }
        assert_eq!(std::fs::read_to_string(dir.path().join("trees")).unwrap(), "20000 0", "acked and failed");
        true
    };
    assert!((0..5).any(all_acked), "five times a link was lost; is this machine overloaded?");
}

#[test]
fn a_killed_worker_fails_the_trees_that_were_in_it_long_before_their_timeout() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (record, assignment) = tracked_chain(dir.path(), 0);
    let [mut a, mut b, mut c] = [10, 20, 30].map(|id| Seat::start(dir.path(), &record, &assignment, id, 1));
    wait(&mut [&mut a, &mut b, &mut c], "tuples flow", |s| s[2].executed(2) > 10_000);
    c.child.kill().unwrap();
    c.child.wait().unwrap();
    let failed = dir.path().join("failed");
    wait(&mut [&mut a, &mut b], "the spout hears of it", |_| std::fs::read_to_string(&failed).is_ok_and(|text| !text.is_empty()));
    let text = std::fs::read_to_string(&failed).unwrap();
    assert!(text.starts_with("link lost") || text.starts_with("worker lost"), "{text}");
    c.again(dir.path(), &record, &assignment);
    wait(&mut [&mut a, &mut b, &mut c], "tuples flow again, and with them acks", |s| s[2].executed(2) > 10_000);
    assert!([&a, &b].iter().all(|s| s.log().contains("start 1 is gone")), "{}", a.log());
    assert_eq!((a.hellos.len(), b.hellos.len()), (1, 1), "nobody else was started over");
}
