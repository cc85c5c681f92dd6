//! Plugins that do everything wrong: each costs one round, is named, and what runs stays.
//!
//! They are C files against `include/saetta_sched.h` (so a plugin in C is shown too), and one Rust file whose panic
//! crosses the C boundary. Compiled here with the linker driver that Rust itself needs.

mod common;

use common::*;
use saetta_sched_host::{How, Scheduler, SchedulerOptions, TopologyPlan};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Runs a round of two topologies with this plugin: `old` runs in s1:6700, `new` has no place. Both must come out right
/// whatever the plugin does; returns both plans.
fn round_of(options: SchedulerOptions) -> (TopologyPlan, TopologyPlan) {
    let mut world = World::new(&[("s1", &[6700, 6701]), ("s2", &[6700])]);
    world.topology("old", 1, &[("spout", 2, None)]).topology("new", 2, &[("spout", 3, None)]);
    let seed = Scheduler::new(self::options("even", &shipped_dir()));
    let placed = world.round(1, |input| seed.round(input));
    world.apply(0, &placed.topologies[0].1);

    let scheduler = Scheduler::new(options);
    let mut outcome = world.round(2, |input| scheduler.round(input)).topologies;
    let (new, old) = (outcome.pop().unwrap().1, outcome.pop().unwrap().1);
    assert_eq!(old.slots, placed.topologies[0].1.slots, "what runs stays");
    assert_eq!((old.unplaced, new.unplaced), (0, 0), "what is new is placed");
    (old, new)
}

/// A plugin that fails as a whole: `old` is kept, `new` is placed by the fallback, both say why.
fn fails(options: SchedulerOptions, why_holds: &[&str]) {
    let (old, new) = round_of(options);
    let (How::Kept { why }, How::Fallback { why: new_why }) = (&old.how, &new.how) else { panic!("{:?} {:?}", old.how, new.how) };
    assert_eq!(why, new_why);
    for part in why_holds {
        assert!(why.contains(part), "{why:?} does not say {part:?}");
    }
}

fn fails_with(name: &str, globals: &str, body: &str, why_holds: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    c_plugin(dir.path(), name, globals, body);
    fails(options(name, dir.path()), why_holds);
}

#[test]
fn a_crash_is_contained() {
    fails_with("segv", "", "*(volatile int *)8 = 1; return 0;", &["plugin segv", "SIGSEGV"]);
}

#[test]
fn a_write_into_the_snapshot_is_a_crash() {
    fails_with("scribble", "", "*(volatile uint8_t *)round->snap = 1; return 0;", &["SIGSEGV"]);
}

#[test]
fn an_exit_is_contained() {
    fails_with("exit", "", "exit(0);", &["exit code 0 before it answered"]);
}

#[test]
fn an_abort_is_contained_under_the_filter() {
    fails_with("abort", "", "abort();", &["SIGABRT"]);
}

#[test]
fn an_endless_loop_ends_at_the_deadline() {
    let dir = tempfile::tempdir().unwrap();
    c_plugin(dir.path(), "forever", "static volatile int x;", "for (;;) x++;");
    let deadline = Duration::from_millis(400);
    let started = Instant::now();
    fails(SchedulerOptions { deadline, ..options("forever", dir.path()) }, &["took longer than 0.4 s"]);
    assert!(started.elapsed() >= deadline);
}

#[test]
fn talking_without_end_ends_at_the_deadline_too() {
    // Forges log messages on the channel, faster than they are read.
    let dir = tempfile::tempdir().unwrap();
    c_plugin(dir.path(), "chatter", "static char message[576] = {4};", "for (;;) send(0, message, sizeof message, 0);");
    let deadline = Duration::from_millis(400);
    fails(SchedulerOptions { deadline, ..options("chatter", dir.path()) }, &["took longer than 0.4 s"]);
}

/// Counts what is logged on this thread.
#[derive(Default)]
struct Counter(std::sync::atomic::AtomicUsize);

impl tracing::Subscriber for Counter {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// Lines logged during a round of this plugin.
fn lines_logged(options: SchedulerOptions) -> usize {
    let mut world = World::new(&[("s1", &[6700])]);
    world.topology("t", 1, &[("spout", 1, None)]);
    let scheduler = Scheduler::new(options);
    let counter = std::sync::Arc::new(Counter::default());
    tracing::subscriber::with_default(counter.clone(), || world.round(1, |input| scheduler.round(input)));
    counter.0.load(std::sync::atomic::Ordering::Relaxed)
}

#[test]
fn a_flood_of_log_lines_is_cut_whichever_way_it_comes() {
    let dir = tempfile::tempdir().unwrap();
    let say = "the_host->log(the_host->ctx, SAETTA_LOG_ERROR, \"t\", 1, \"again\", 5);";
    c_plugin(dir.path(), "talker", "", &format!("for (int i = 0; i < 5000; i++) {say} return 1;"));
    let through_the_table = lines_logged(options("talker", dir.path()));
    c_plugin(
        dir.path(),
        "forger",
        "static char message[576] = {4};",
        "for (int i = 0; i < 5000; i++) send(0, message, sizeof message, 0); return 1;",
    );
    let past_the_table = lines_logged(options("forger", dir.path()));
    for lines in [through_the_table, past_the_table] {
        assert!((200..=205).contains(&lines), "200 and a few words about the rest: {through_the_table}, {past_the_table}");
    }
}

#[test]
fn a_helper_that_is_stopped_ends_at_the_deadline() {
    let dir = tempfile::tempdir().unwrap();
    // To its own thread: signals to other processes are not its to send.
    let globals = "#include <signal.h>\n#include <sys/syscall.h>";
    c_plugin(dir.path(), "stopped", globals, "syscall(SYS_tgkill, getpid(), getpid(), SIGSTOP); return 1;");
    let deadline = Duration::from_millis(400);
    fails(SchedulerOptions { deadline, ..options("stopped", dir.path()) }, &["took longer than 0.4 s"]);
}

#[test]
fn a_plan_that_is_changed_after_the_answer_was_said_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // Says RESULT by itself, then scribbles for ever where the answer lies.
    let body = "static char message[576] = {3};
        for (uint32_t e = 0; e < plan->n_execs; e++) plan->slot_of_exec[e] = e < 2 ? plan->slot_of_exec[0] : 1;
        plan->outcome[1] = SAETTA_OUT_SCHEDULED;
        memcpy(message + 8, &round->round_id, 8);
        send(0, message, sizeof message, 0);
        for (uint32_t i = 0;; i++) ((volatile uint32_t *)plan->slot_of_exec)[i % plan->n_execs] = i;";
    c_plugin(dir.path(), "scribbler", "", body);
    // Whatever was read: it was validated as it was read, so what runs stays and what is new has a slot that exists.
    for _ in 0..20 {
        round_of(options("scribbler", dir.path()));
    }
}

#[test]
fn what_it_says_it_saved_is_believed_only_where_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    // A RESULT that claims 4 GiB of saved bytes, from a plugin that has no memory.
    let body = "static char message[576] = {3};
        memcpy(message + 8, &round->round_id, 8); message[36] = 1; message[60] = 1;
        send(0, message, sizeof message, 0); for (;;);";
    c_plugin(dir.path(), "boaster", "", body);
    fails(options("boaster", dir.path()), &["sent bytes that are no message"]);
}

#[test]
fn reasons_without_end_and_of_any_length_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    // Through the table with lengths that lie within its own memory, and forged on the channel.
    let body = format!(
        "static char text[1 << 20]; static char message[576] = {{5}}; memset(text, 'x', sizeof text); memset(message + 64, '\\x1f', 512);
        message[57] = 2;
        if (round->flags & SAETTA_ROUND_EXPLAIN) {{
            const saetta_explain_v1 *explain = the_host->get_extension(the_host->ctx, SAETTA_EXT_EXPLAIN, sizeof SAETTA_EXT_EXPLAIN - 1);
            saetta_score_part part = {{text, sizeof text, 1}};
            saetta_explanation e = {{.struct_size = sizeof e, .exec = 0, .slot = 77777, .code = 4711, .arg = 88888, .n_parts = 1,
                .parts = &part, .text = text, .text_len = sizeof text}};
            explain->explain(the_host->ctx, &e);
            for (int i = 0; i < 70000; i++) send(0, message, sizeof message, 0);
        }}
        {}",
        "for (uint32_t e = 0; e < plan->n_execs; e++) plan->slot_of_exec[e] = 0; plan->outcome[0] = SAETTA_OUT_SCHEDULED; return 0;"
    );
    c_plugin(dir.path(), "writer", "", &body);
    let mut world = World::new(&[("s1", &[6700])]);
    world.topology("t", 1, &[("spout", 1, None)]);
    let scheduler = Scheduler::new(options("writer", dir.path()));
    world.round(1, |input| scheduler.round(input));
    let first = world.topologies[0].1.executors().next().unwrap().1.first;
    let why = scheduler.why("t", first).unwrap();
    let told = &why.reasons[0];
    assert_eq!((told.text.len(), told.word, told.node.as_deref(), told.arg.as_deref()), (256, "other", None, Some("88888")));
    assert!(why.reasons.len() <= 65_536, "{}", why.reasons.len());
}

#[test]
fn a_plugin_whose_file_is_replaced_while_it_runs_goes_on_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let all_in = |slot: u32| {
        format!(
            "for (uint32_t e = 0; e < plan->n_execs; e++) plan->slot_of_exec[e] = {slot};
            plan->outcome[0] = SAETTA_OUT_SCHEDULED; return 0;"
        )
    };
    c_plugin(dir.path(), "built", "", &all_in(0));
    let mut options = options("built", dir.path());
    options.policy.copies = Some(dir.path().join("copies"));
    let mut world = World::new(&[("s1", &[6700, 6701])]);
    world.topology("t", 1, &[("spout", 1, None)]);
    let scheduler = Scheduler::new(options.clone());
    let ports = |scheduler: &Scheduler, round: u64| {
        let plan = world.round(round, |input| scheduler.round(input)).topologies.remove(0).1;
        assert_eq!(plan.how, How::Plugin("built".into()));
        plan.slots.values().map(|slot| slot.port).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(ports(&scheduler, 1), [6700].into());
    // In place, as a linker may: whoever had this file mapped would die of SIGBUS.
    std::fs::write(options.plugin_path(), "half a file").unwrap();
    assert_eq!(ports(&scheduler, 2), [6700].into());
    c_plugin(dir.path(), "built", "", &all_in(1));
    assert_eq!(ports(&scheduler, 3), [6700].into());
    assert_eq!(ports(&Scheduler::new(options), 1), [6701].into());
}

#[test]
fn a_round_that_cannot_be_recorded_is_decided_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options("even", &shipped_dir());
    // A directory cannot be made below a file; so it fails as it does on a full disk.
    std::fs::write(dir.path().join("full"), "").unwrap();
    options.policy.rounds = Some(dir.path().join("full/rounds"));
    let (old, new) = round_of(options);
    assert_eq!((old.how, new.how), (How::Plugin("even".into()), How::Plugin("even".into())));
}

#[test]
fn bytes_that_are_no_message_end_the_helper() {
    fails_with("babble", "", "send(0, \"hello\", 5, 0); for (;;);", &["sent bytes that are no message"]);
}

#[test]
fn eating_memory_is_contained() {
    let body = "for (;;) { char *p = malloc(1 << 20); if (!p) abort(); memset(p, 1, 1 << 20); }";
    let dir = tempfile::tempdir().unwrap();
    c_plugin(dir.path(), "glutton", "", body);
    fails(SchedulerOptions { memory_bytes: 128 << 20, ..options("glutton", dir.path()) }, &["SIGABRT"]);
}

#[test]
fn files_sockets_and_processes_are_refused_with_an_error_the_plugin_can_report() {
    let body = r#"
        if (open("/etc/hostname", O_RDONLY) >= 0 || errno != EPERM) return say(err, SAETTA_E_INTERNAL, "opened a file");
        if (socket(AF_INET, SOCK_STREAM, 0) >= 0 || errno != EPERM) return say(err, SAETTA_E_INTERNAL, "made a socket");
        if (fork() >= 0 || errno != EPERM) return say(err, SAETTA_E_INTERNAL, "forked");
        return say(err, SAETTA_E_CONFIG, "everything was refused");"#;
    fails_with("curious", "", body, &["E_CONFIG", "everything was refused"]);
}

#[test]
fn a_helper_has_a_session_limits_no_environment_and_no_descriptors_of_nimbus() {
    // Looked at in the constructor: later, the second filter refuses the calls that look.
    let globals = r#"
        #include <sys/resource.h>
        #include <stdio.h>
        extern char **environ;
        static char found[200];
        __attribute__((constructor)) static void look(void) {
            struct rlimit as, core, size;
            getrlimit(RLIMIT_AS, &as); getrlimit(RLIMIT_CORE, &core); getrlimit(RLIMIT_FSIZE, &size);
            int fds = 0;
            for (int fd = 3; fd < 64; fd++) fds += fcntl(fd, F_GETFD) >= 0;
            snprintf(found, sizeof found, "session %d, memory %lu, core %lu, file %lu, descriptors %d, environment %d",
                getsid(0) == getpid(), as.rlim_max, core.rlim_max, size.rlim_max, fds, environ && environ[0]);
        }"#;
    let leaked = rustix::fs::memfd_create("leaked", rustix::fs::MemfdFlags::empty()).unwrap();
    let expected = format!("session 1, memory {}, core 0, file 0, descriptors 0, environment 0", 512 << 20);
    fails_with("look", globals, "return say(err, SAETTA_E_INTERNAL, found);", &[&expected]);
    drop(leaked);
}

#[test]
fn a_helper_whose_parent_is_gone_does_not_start() {
    use std::io::Read;
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut helper = Command::new(env!("CARGO_BIN_EXE_saetta-sched-host"))
        .args(["--parent", "1", "--memory-bytes", "536870912", "--builtin", "even"])
        .stdin(std::process::Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    ours.read_to_end(&mut said).unwrap();
    assert!(String::from_utf8_lossy(&said).contains("its parent is gone"));
    assert!(!helper.wait().unwrap().success());
}

#[test]
fn an_error_code_carries_its_text_without_control_characters() {
    fails_with("sorry", "", r#"return say(err, SAETTA_E_INTERNAL, "no\nluck");"#, &["E_INTERNAL", "no luck"]);
}

#[test]
fn a_code_that_does_not_exist_is_an_error() {
    fails_with("odd", "", "return 17;", &["returned 17"]);
}

#[test]
fn a_rust_panic_that_crosses_the_boundary_is_contained() {
    let dir = tempfile::tempdir().unwrap();
    let source = r#"
#[repr(C)] pub struct Plugin { size: u32, major: u16, minor: u16, flags: u32, reserved: u32, calls: [usize; 4] }
extern "C" fn create(_: usize, instance: *mut usize, _: usize) -> i32 { unsafe { *instance = 1 }; 0 }
extern "C" fn destroy(_: usize) {}
extern "C" fn schedule(_: usize, _: usize, _: usize, _: usize) -> i32 { panic!("not caught") }
#[unsafe(no_mangle)]
extern "C" fn saetta_scheduler_v1(_: usize, out: &mut Plugin) -> i32 {
    out.major = 1;
    out.calls = [create as *const () as usize, destroy as *const () as usize, schedule as *const () as usize, 0];
    0
}
const JSON: &[u8; 75] = b"{\"id\":\"panic\",\"version\":\"1\",\"abi\":{\"major\":1,\"minor\":0,\"min_host_minor\":0}}";
#[repr(C)] struct Note { words: [u32; 3], name: [u8; 12], json: [u8; 75] }
#[used]
#[unsafe(link_section = ".note.saetta.sched")]
static NOTE: Note = Note { words: [12, 75, 1], name: *b"SAETTASCHED\0", json: *JSON };
"#;
    let file = dir.path().join("panic.rs");
    std::fs::write(&file, source).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let out = Command::new(rustc)
        .args(["--edition", "2024", "--crate-type", "cdylib", "-o"])
        .arg(dir.path().join("libsaetta_panic.so"))
        .arg(&file)
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    fails(options("panic", dir.path()), &["plugin panic", "SIGABRT"]);
}

#[test]
fn a_slot_that_does_not_exist_is_refused_for_its_topology_only() {
    let dir = tempfile::tempdir().unwrap();
    let body = "plan->slot_of_exec[plan->n_execs - 1] = 77; plan->outcome[plan->n_topologies - 1] = SAETTA_OUT_SCHEDULED; return 0;";
    c_plugin(dir.path(), "garbage", "", body);
    let (old, new) = round_of(options("garbage", dir.path()));
    assert_eq!(old.how, How::Plugin("garbage".into()));
    let How::Fallback { why } = &new.how else { panic!("{:?}", new.how) };
    assert!(why.contains("V01") && why.contains("slot 77"), "{why}");
}

#[test]
fn a_slot_of_another_topology_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    // The last topology's executors into slot 0, which the first one runs in.
    let body = "for (uint32_t e = 2; e < plan->n_execs; e++) plan->slot_of_exec[e] = plan->slot_of_exec[0];
                plan->outcome[1] = SAETTA_OUT_SCHEDULED; return 0;";
    c_plugin(dir.path(), "squatter", "", body);
    let (old, new) = round_of(options("squatter", dir.path()));
    assert_eq!(old.how, How::Plugin("squatter".into()));
    let How::Fallback { why } = &new.how else { panic!("{:?}", new.how) };
    assert!(why.contains("V04"), "{why}");
}

#[test]
fn a_helper_lives_on_after_a_good_round_and_is_started_anew_after_a_bad_one() {
    let dir = tempfile::tempdir().unwrap();
    // Answers an error in every second call of one process: the process is replaced, so the next first call is good again.
    c_plugin(dir.path(), "moody", "static int calls;", "return ++calls % 2 ? 1 : say(err, SAETTA_E_INTERNAL, \"second call\");");
    let mut world = World::new(&[("s1", &[6700])]);
    world.topology("t", 1, &[("spout", 1, None)]);
    let scheduler = Scheduler::new(options("moody", dir.path()));
    // Each round on a thread of its own that ends: nimbus runs rounds on threads that come and go, and the helper must not go with them.
    let one = |round: u64| world.round(round, |input| scheduler.round(input)).topologies.remove(0).1.how;
    let how = |round: u64| std::thread::scope(|scope| scope.spawn(|| one(round)).join().unwrap());
    assert_eq!(how(1), How::Plugin("moody".into()));
    assert!(matches!(how(2), How::Fallback { why } if why.contains("second call")));
    assert_eq!(how(3), How::Plugin("moody".into()));
}

#[test]
fn a_missing_plugin_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fails(options("nowhere", dir.path()), &["plugin nowhere", "libsaetta_nowhere.so", "scheduler.plugin.dir"]);
}

#[test]
fn files_that_are_no_plugin_are_refused_before_their_code_runs() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| std::fs::write(dir.path().join(format!("libsaetta_{name}.so")), content).unwrap();
    file("text", b"not a library");
    fails(options("text", dir.path()), &["not a 64-bit little-endian ELF file"]);

    // A library without the symbol, whose constructor would kill the process.
    let source = dir.path().join("trap.c");
    std::fs::write(&source, "__attribute__((constructor)) static void run(void) { __builtin_trap(); }").unwrap();
    let library = dir.path().join("libsaetta_trap.so");
    assert!(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status().unwrap().success());
    fails(options("trap", dir.path()), &["does not export saetta_scheduler_v1"]);

    let even = std::fs::read(shipped_dir().join("libsaetta_even.so")).unwrap();
    let mut foreign = even.clone();
    foreign[18..20].copy_from_slice(&8u16.to_le_bytes()); // e_machine: MIPS
    file("foreign", &foreign);
    fails(options("foreign", dir.path()), &["ELF machine 8"]);

    file("open", &even);
    std::fs::set_permissions(dir.path().join("libsaetta_open.so"), std::fs::Permissions::from_mode(0o666)).unwrap();
    fails(options("open", dir.path()), &["writable for others (mode 666"]);

    std::os::unix::fs::symlink(shipped_dir().join("libsaetta_even.so"), dir.path().join("libsaetta_link.so")).unwrap();
    fails(options("link", dir.path()), &["libsaetta_link.so", "is a symbolic link"]);
}

#[test]
fn a_manifest_of_another_major_version_is_refused_although_the_symbol_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let even = std::fs::read(shipped_dir().join("libsaetta_even.so")).unwrap();
    let text = b"\"major\":1";
    let at = even.windows(text.len()).position(|w| w == text).expect("the manifest is in the file as text");
    let mut next = even.clone();
    next[at + text.len() - 1] = b'2';
    std::fs::write(dir.path().join("libsaetta_next.so"), next).unwrap();
    fails(options("next", dir.path()), &["needs scheduler ABI 2.0"]);
}

#[test]
fn without_a_helper_everything_stays_and_the_file_is_named() {
    let mut world = World::new(&[("s1", &[6700])]);
    world.topology("t", 1, &[("spout", 1, None)]);
    let mut options = options("even", &shipped_dir());
    options.helper = "/nowhere/saetta-sched-host".into();
    let plan = world.round(1, |input| Scheduler::new(options).round(input)).topologies.remove(0).1;
    let How::Kept { why } = &plan.how else { panic!("{:?}", plan.how) };
    assert!(why.contains("/nowhere/saetta-sched-host") && why.contains("fallback"), "{why}");
    assert_eq!(plan.unplaced, 1 + 1, "one spout, one acker");
}

/// State letter and parent of a process; `None` = it is gone.
fn process(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut after_name = stat.rsplit_once(')')?.1.split_whitespace();
    Some((after_name.next()?.chars().next()?, after_name.next()?.parse().ok()?))
}

#[test]
fn a_helper_in_an_endless_loop_dies_with_nimbus() {
    const DIR: &str = "SAETTA_TEST_LOOP_DIR";
    if let Some(dir) = std::env::var_os(DIR) {
        // The process that plays nimbus: it is killed while its plugin loops.
        let mut world = World::new(&[("s1", &[6700])]);
        world.topology("t", 1, &[("spout", 1, None)]);
        let options = SchedulerOptions { deadline: Duration::from_secs(600), ..options("forever", Path::new(&dir)) };
        world.round(1, |input| Scheduler::new(options).round(input));
        unreachable!("the plugin loops");
    }
    let dir = tempfile::tempdir().unwrap();
    c_plugin(dir.path(), "forever", "static volatile int x;", "for (;;) x++;");
    let mut nimbus = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_helper_in_an_endless_loop_dies_with_nimbus"])
        .env(DIR, dir.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let helper = wait_for("the helper", || {
        let pids = std::fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| process(*pid).is_some_and(|(_, parent)| parent == nimbus.id())).find(|pid| {
            let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
            maps.contains("memfd:saetta-plan") // its round has begun
        })
    });
    nimbus.kill().unwrap();
    nimbus.wait().unwrap();
    wait_for("the helper's end", || process(helper).is_none_or(|(state, _)| state == 'Z').then_some(()));
}
