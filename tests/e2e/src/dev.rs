//! `saetta dev`: a whole cluster in one process, its workers beside it.

use crate::binaries::binary;
use crate::daemon::{Daemon, Ran, print_logs};
use crate::look::{end_workers_under, workers_under};
use crate::pulse::{ask, key};
use crate::wait::until;
use saetta_transport::ProbeReply;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

const START_MAX: Duration = Duration::from_secs(30);

/// See the head of this file.
#[derive(Debug)]
pub struct Dev {
    /// The process.
    pub daemon: Daemon,
    seeds: String,
    dir: tempfile::TempDir,
}

impl Dev {
    /// Starts one with further settings, and waits until it says where it is.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_under(None, settings)
    }

    /// As [`Dev::start`], by way of a program that is given the command line to run.
    pub fn start_under(wrapper: Option<&Path>, settings: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("saetta-").tempdir().expect("a directory");
        let saetta = binary("saetta").into_os_string();
        let mut args = vec!["dev".into(), "--dir".into(), dir.path().join("dev").into_os_string()];
        args.extend(["--set".into(), "nimbus.bind=127.0.0.1:0".into()]);
        args.extend(settings.iter().flat_map(|s| ["--set".into(), s.into()]));
        let program = match wrapper {
            Some(wrapper) => {
                args.insert(0, saetta);
                wrapper.to_owned()
            }
            None => PathBuf::from(saetta),
        };
        // Nobody listens there: whoever would use ZooKeeper fails.
        let env = [("SAETTA__ZOOKEEPER__SERVERS", "127.0.0.1:1"), ("PATH", "/nowhere")];
        let daemon = Daemon::start(&program, args, &env, &dir.path().join("dev.log"));
        let mut dev = Dev { daemon, seeds: String::new(), dir };
        dev.seeds = until("dev says where nimbus is", START_MAX, || {
            dev.daemon.must_run();
            let printed = dev.daemon.printed();
            let found = printed.lines().find_map(|l| Some(l.trim().strip_prefix("nimbus")?.trim().strip_prefix("http://")?.to_owned()));
            // The last line: everything stands.
            if printed.contains("Ctrl-C ends it") { found.ok_or(printed) } else { Err(printed) }
        });
        dev
    }

    /// Its directory, absolute.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs `saetta` against it. What follows `--` is the topology's.
    pub fn saetta(&self, args: &[&str]) -> Ran {
        let seeds = format!("nimbus.seeds={}", self.seeds);
        Ran::saetta(args[..1].iter().chain(&["--set", &seeds]).chain(&args[1..]))
    }

    /// `status -o json`.
    pub fn status(&self, name: &str) -> serde_json::Value {
        self.saetta(&["status", name, "-o", "json"]).ends_with(0).json()
    }

    /// Asks a worker itself, with the topology's key from nimbus's own directory.
    pub fn ask(&self, id: &str, port: u16) -> Result<ProbeReply, String> {
        ask(port, id, key(&self.dir.path().join("dev/nimbus"), id)).map_err(|e| e.to_string())
    }

    /// Its worker processes.
    pub fn workers(&self) -> BTreeSet<u32> {
        workers_under(self.dir.path())
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        if std::thread::panicking() {
            print_logs(self.dir.path());
        }
        self.daemon.kill_9();
        end_workers_under(self.dir.path());
    }
}
