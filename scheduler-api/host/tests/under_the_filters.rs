//! What plugins in Rust, C and C++ do during a round, under the filters of a real helper: panics and exceptions become errors, threads start
//! where the manifest says so and nowhere else, and no process gets away. The shipped plugins run there in `every_plugin.rs`.

mod common;

use common::*;
use saetta_sched_host::policy::Mode;
use saetta_sched_host::{How, Policy, Scheduler, SchedulerOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How the only topology of a small world came to its slots.
fn how(options: SchedulerOptions) -> How {
    let mut world = World::new(&[("s1", &[6700, 6701])]);
    world.topology("t", 1, &[("spout", 3, None)]);
    let scheduler = Scheduler::new(options);
    world.round(1, |input| scheduler.round(input)).topologies.remove(0).1.how
}

fn why(options: SchedulerOptions) -> String {
    match how(options) {
        How::Fallback { why } => why,
        other => panic!("{other:?}"),
    }
}

/// `examples/odd.rs` as a plugin: `cargo test` builds it, but not for a test of this file alone.
fn rust_plugin(dir: &Path) {
    let built: PathBuf = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples/libodd.so");
    let copied = std::fs::copy(&built, dir.join("libsaetta_odd.so"));
    copied.unwrap_or_else(|e| panic!("{}: {e}; `cargo build --package saetta-sched-host --example odd` makes it", built.display()));
}

#[test]
fn a_plugin_in_rust_panics_maps_and_starts_threads_there() {
    let dir = tempfile::tempdir().unwrap();
    rust_plugin(dir.path());
    let policy = |config: &str| Policy { config: config.into(), ..Policy::default() };
    let odd = |config: &str| SchedulerOptions { policy: policy(config), ..options("odd", dir.path()) };
    assert_eq!(how(odd("{}")), How::Plugin("odd".into()), "a map with a random seed");
    assert_eq!(how(odd(r#"{"do": "threads"}"#)), How::Plugin("odd".into()));
    let told = why(odd(r#"{"do": "panic"}"#));
    assert!(told.contains("E_PANIC") && told.contains("round 1 is odd"), "{told}");
    // The standard library says it on stderr and aborts.
    let told = why(odd(r#"{"do": "deep"}"#));
    assert!(told.contains("SIGABRT") || told.contains("SIGSEGV"), "{told}");
}

/// Starts a thread and waits for it.
const THREAD: &str = r#"
#include <pthread.h>
static void *work(void *arg) { return arg; }
"#;
const START: &str = r#"
    pthread_t thread;
    int code = pthread_create(&thread, 0, work, 0);
    if (code) return say(err, SAETTA_E_INTERNAL, strerror(code));
    pthread_join(thread, 0);
    return SAETTA_OK_NO_CHANGE;"#;

#[test]
fn threads_are_for_plugins_that_say_so_in_their_manifest() {
    let dir = tempfile::tempdir().unwrap();
    c_plugin(dir.path(), "silent", THREAD, START);
    assert!(why(options("silent", dir.path())).contains("Operation not permitted"));
    c_plugin_with(dir.path(), "open", r#","flags":["threads"]"#, THREAD, START);
    assert_eq!(how(options("open", dir.path())), How::Plugin("open".into()));
}

#[test]
fn no_process_is_started_not_even_by_a_constructor_or_by_who_may_start_threads() {
    let globals = r#"
        #include <sched.h>
        #include <signal.h>
        #include <sys/syscall.h>
        static int made_early = 0;
        __attribute__((constructor)) static void early(void) {
            pid_t pid = fork();
            if (pid == 0) _exit(0);
            made_early = pid > 0;
        }"#;
    let body = r#"
        if (made_early) return say(err, SAETTA_E_INTERNAL, "a constructor forked");
        if (fork() >= 0 || errno != EPERM) return say(err, SAETTA_E_INTERNAL, "forked");
        if (syscall(SYS_clone3, 0, 0) >= 0 || errno != ENOSYS) return say(err, SAETTA_E_INTERNAL, "clone3");
        return SAETTA_OK_NO_CHANGE;"#;
    let dir = tempfile::tempdir().unwrap();
    c_plugin_with(dir.path(), "spawner", r#","flags":["threads"]"#, globals, body);
    assert_eq!(how(options("spawner", dir.path())), How::Plugin("spawner".into()));
}

#[test]
fn an_exception_that_the_cpp_wrapper_catches_is_an_error_with_its_text() {
    let dir = tempfile::tempdir().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut build = Command::new("g++");
    build.args(["-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-static-libstdc++", "-static-libgcc", "-I"]);
    build.arg(here.join("../include")).arg(here.join("tests/plugins/caught.cpp")).arg("-o").arg(dir.path().join("libsaetta_caught.so"));
    assert!(build.status().unwrap().success());
    assert!(why(options("caught", dir.path())).contains("E_INTERNAL: no rack is near"));
    let policy = Policy { mode: Mode::InProcess, ..Policy::default() };
    assert!(why(SchedulerOptions { policy, ..options("caught", dir.path()) }).contains("E_INTERNAL: no rack is near"));
}
