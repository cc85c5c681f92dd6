//! One process under test: started, killed, started again; its output in a file; ended when dropped.

use crate::binaries::binary;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longest time one command may take: `kill --wait` waits for two minutes.
const COMMAND_MAX: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(20);
/// Lines of a log shown when a test fails.
const TAIL_LINES: usize = 60;

/// A command without what the caller's environment would set.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("SAETTA__") || text == "RUST_LOG" {
            command.env_remove(&name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// A process that runs until it is ended.
#[derive(Debug)]
pub struct Daemon {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    log: PathBuf,
    child: Option<Child>,
}

impl Daemon {
    /// Starts it; both outputs are added to `log`.
    pub fn start<A: AsRef<OsStr>>(program: &Path, args: impl IntoIterator<Item = A>, env: &[(&str, &str)], log: &Path) -> Self {
        let args = args.into_iter().map(|a| a.as_ref().to_owned()).collect();
        let env = env.iter().map(|(k, v)| (k.into(), v.into())).collect();
        let mut daemon = Daemon { program: program.to_owned(), args, env, log: log.to_owned(), child: None };
        daemon.again();
        daemon
    }

    /// Starts it again as it was.
    pub fn again(&mut self) {
        assert!(self.child.is_none(), "end it first");
        let log = OpenOptions::new().create(true).append(true).open(&self.log).expect("a log");
        let mut command = command(&self.program);
        command.args(&self.args).envs(self.env.iter().map(|(k, v)| (k, v)));
        command.stdout(log.try_clone().expect("a descriptor")).stderr(log);
        self.child = Some(command.spawn().unwrap_or_else(|e| panic!("starting {}: {e}", self.program.display())));
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// `kill -9`, and gone when this returns.
    pub fn kill_9(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// What ctrl-C does; waits for the end.
    pub fn interrupt(&mut self, limit: Duration) -> ExitStatus {
        let child = self.child.as_mut().expect("it runs");
        kill_process(Pid::from_child(child), Signal::INT).expect("it is ours");
        let status = wait(child, limit).unwrap_or_else(|| panic!("SIGINT did not end it within {} s", limit.as_secs()));
        self.child = None;
        status
    }

    /// Panics where it has ended by itself.
    pub fn must_run(&mut self) {
        let ended = self.child.as_mut().expect("it was started").try_wait().expect("ours to wait for");
        assert!(ended.is_none(), "{} {:?} has ended: {ended:?}", self.program.display(), self.args.first());
    }

    /// What it printed.
    pub fn printed(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill_9();
    }
}

fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        match child.try_wait().expect("ours to wait for") {
            Some(status) => return Some(status),
            None if Instant::now() >= end => return None,
            None => std::thread::sleep(POLL),
        }
    }
}

/// What a command did.
#[derive(Debug)]
pub struct Ran {
    /// Exit code.
    pub code: i32,
    /// Data.
    pub stdout: String,
    /// Everything else.
    pub stderr: String,
}

impl Ran {
    /// Runs `saetta` to its end.
    pub fn saetta<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        let (mut out, mut err) = (tempfile::tempfile().expect("a file"), tempfile::tempfile().expect("a file"));
        let mut command = command(&binary("saetta"));
        command.args(args).stdout(out.try_clone().expect("a descriptor")).stderr(err.try_clone().expect("a descriptor"));
        let mut child = command.spawn().expect("saetta starts");
        let status = wait(&mut child, COMMAND_MAX);
        if status.is_none() {
            let _ = (child.kill(), child.wait());
        }
        let (stdout, stderr) = (text(&mut out), text(&mut err));
        let status = status.unwrap_or_else(|| panic!("{command:?} did not end; it printed\n{stdout}{stderr}"));
        Ran { code: status.code().unwrap_or(-1), stdout, stderr }
    }

    /// Panics unless it ended with this code.
    #[track_caller]
    pub fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// Its data as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e} in {:?}; stderr {:?}", self.stdout, self.stderr))
    }
}

fn text(file: &mut File) -> String {
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).expect("UTF-8");
    text
}

/// Prints the ends of all logs below `dir`: for a test that fails.
pub(crate) fn print_logs(dir: &Path) {
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "log") {
                let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned();
                let from = text.lines().count().saturating_sub(TAIL_LINES);
                println!("---- {}\n{}", path.display(), text.lines().skip(from).collect::<Vec<_>>().join("\n"));
            }
        }
    }
}
