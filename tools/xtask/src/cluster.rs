//! A development cluster in one command: ZooKeeper, nimbus, two supervisors, each on a core of its own, under target/cluster.
//!
//! Before: `cargo xtask cluster`. After: `saetta` commands without options find nimbus at its default address. All on loopback.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::{Daemon, cargo, must, port_is_open, target, wait_for};
use crate::zookeeper;

/// Beside ZooKeeper's default port: a node of `cargo xtask zookeeper` may run at the same time.
const ZOOKEEPER_PORT: u16 = 2191;
/// Nimbus's own default, so that `saetta list` needs no options.
const NIMBUS_PORT: u16 = 6627;
/// Slots of the two supervisors.
const SLOT_PORTS: [&str; 2] = ["6700-6703", "6710-6713"];
const READY_WITHIN: Duration = Duration::from_secs(60);
const STOP_WITHIN: Duration = Duration::from_secs(15);

fn dir() -> PathBuf {
    target().join("cluster")
}

fn zookeeper_dir() -> PathBuf {
    dir().join("zookeeper")
}

/// A daemon of ours; its folder stands in its command line, which tells it from every other.
fn daemon(name: &str) -> Daemon {
    let dir = dir().join(name);
    Daemon { mark: format!(".dir={}", dir.display()), name: name.to_owned(), dir }
}

/// The daemons in the order they start.
fn names() -> [&'static str; 3] {
    ["nimbus", "supervisor-1", "supervisor-2"]
}

/// The settings of one daemon, as `key=value`.
fn settings(name: &str, dir: &Path, servers: &str, cores: &[u32]) -> Vec<String> {
    let own = dir.join(name).display().to_string();
    let mut settings = vec![format!("zookeeper.servers={servers}")];
    match name.strip_prefix("supervisor-").and_then(|number| number.parse::<usize>().ok()) {
        None => settings.extend([format!("nimbus.dir={own}"), format!("nimbus.bind=127.0.0.1:{NIMBUS_PORT}")]),
        Some(number) => settings.extend([
            format!("supervisor.dir={own}"),
            format!("supervisor.id={name}"),
            "supervisor.host=127.0.0.1".to_owned(),
            format!("supervisor.slots.ports={}", SLOT_PORTS[number - 1]),
            format!("supervisor.cores={}", cores[(number - 1) % cores.len()]),
            format!("nimbus.seeds=127.0.0.1:{NIMBUS_PORT}"),
            // Made by nimbus at its first start.
            format!("cluster.secret.file={}", dir.join("nimbus").join("cluster.secret").display()),
        ]),
    }
    settings
}

/// `cargo xtask cluster start`.
pub(crate) fn start() -> Result<()> {
    // Binaries of the topologies' examples too, and the scheduler plugins beside the executable.
    must(&mut cargo(&["build", "--release", "--workspace"]))?;
    let saetta = target().join("release").join("saetta");
    let servers = zookeeper::start(&zookeeper_dir(), 1, ZOOKEEPER_PORT)?;
    let cores = allowed_cores()?;
    for name in names() {
        let daemon = daemon(name);
        let mut pid = daemon.running();
        if pid.is_none() {
            if name == "nimbus" && port_is_open(NIMBUS_PORT) {
                bail!("nimbus: port {NIMBUS_PORT} is taken by another process; stop it (a `saetta dev`?) and start again");
            }
            let role = name.split('-').next().unwrap_or(name);
            let mut command = Command::new(&saetta);
            command.arg(role);
            for setting in settings(name, &dir(), &servers, &cores) {
                command.args(["--set", &setting]);
            }
            let mut child = daemon.start(&mut command)?;
            pid = Some(child.id());
            let ready = || if name == "nimbus" { answers_ok(NIMBUS_PORT, "/readyz") } else { daemon.running().is_some() };
            // An early end is an answer too.
            let state = wait_for(READY_WITHIN, || match child.try_wait() {
                Ok(Some(status)) => Some(Err(status)),
                _ => ready().then_some(Ok(())),
            });
            match state {
                Some(Ok(())) => {}
                Some(Err(status)) => bail!("{name}: {status}; the end of {}:\n{}", daemon.log().display(), daemon.log_tail()),
                None => bail!("{name}: not ready after {READY_WITHIN:?}; the end of {}:\n{}", daemon.log().display(), daemon.log_tail()),
            }
        }
        println!("{name}: pid {}, log {}", pid.unwrap_or(0), daemon.log().display());
    }
    println!("\nREST http://127.0.0.1:{NIMBUS_PORT}   zookeeper {servers}   saetta {}", saetta.display());
    println!("stop with: cargo xtask cluster stop");
    Ok(())
}

/// `cargo xtask cluster stop`. Workers outlive their supervisor by design, so they are found by their folder.
pub(crate) fn stop() -> Result<()> {
    let mut stopped = 0;
    for name in names().iter().rev() {
        stopped += u32::from(daemon(name).stop(STOP_WITHIN)?);
    }
    let workers = workers_in(&dir());
    for pid in &workers {
        // May end by itself meanwhile.
        let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    }
    stopped += u32::from(zookeeper::stop(&zookeeper_dir())?);
    println!("stopped {stopped} daemons and {} workers; state stays in {}", workers.len(), dir().display());
    Ok(())
}

/// Workers whose working folder lies below `dir`. A shell that stands there is no worker.
fn workers_in(dir: &Path) -> Vec<u32> {
    let Ok(dir) = dir.canonicalize() else { return Vec::new() };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_worker = |pid: &u32| {
        let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let has = |word: &[u8]| command_line.split(|&byte| byte == 0).any(|argument| argument == word);
        has(b"worker") && has(b"--socket")
    };
    pids.filter(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(&dir))).filter(is_worker).collect()
}

/// Whether `GET path` answers 200.
fn answers_ok(port: u16, path: &str) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// The cores this process may use.
fn allowed_cores() -> Result<Vec<u32>> {
    let status = fs::read_to_string("/proc/self/status").context("reading the allowed cores")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).context("the kernel names no allowed cores")?;
    let cores = cores_in(list.trim());
    if cores.is_empty() {
        bail!("reading the allowed cores: {list:?} names none");
    }
    Ok(cores)
}

/// `0-2,5` as numbers.
fn cores_in(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn two_supervisors_share_no_port_no_folder_and_no_core_where_there_are_two() {
        let of = |name: &str| settings(name, Path::new("/c"), "127.0.0.1:2191", &[0, 1]);
        let (first, second) = (of("supervisor-1"), of("supervisor-2"));
        for key in ["supervisor.dir=", "supervisor.id=", "supervisor.slots.ports=", "supervisor.cores="] {
            let value = |settings: &[String]| settings.iter().find(|setting| setting.starts_with(key)).cloned().expect(key);
            assert_ne!(value(&first), value(&second));
        }
        assert!(second.contains(&"cluster.secret.file=/c/nimbus/cluster.secret".to_owned()), "{second:?}");
        assert!(of("nimbus").contains(&"nimbus.dir=/c/nimbus".to_owned()));
        assert_eq!(
            settings("supervisor-2", Path::new("/c"), "z", &[3]).iter().filter(|setting| *setting == "supervisor.cores=3").count(),
            1
        );
    }

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(cores_in("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(cores_in(""), Vec::<u32>::new());
    }

    #[test]
    fn a_worker_is_found_by_its_folder_and_a_shell_that_stands_there_is_left_alone() {
        let dir = std::env::temp_dir().join(format!("xtask-cluster-{}", std::process::id()));
        let below = dir.join("workers/6700");
        fs::create_dir_all(&below).expect("made");
        let mut started = ["worker", "watcher"].map(|role| {
            let script = ["-c", "read line", role, "--socket", "s"];
            Command::new("sh").args(script).current_dir(&below).stdin(Stdio::piped()).spawn().expect("started")
        });
        assert_eq!(workers_in(&dir), [started[0].id()]);
        for child in &mut started {
            drop(child.stdin.take());
            child.wait().expect("ended");
        }
        fs::remove_dir_all(&dir).expect("removed");
    }
}
