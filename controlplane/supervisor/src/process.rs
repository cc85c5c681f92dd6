//! A worker process that is or is not our child: seen by pidfd, never confused with another that got its number.
//!
//! Before: `launch` made it, or a former supervisor did. After: `agent` waits for its end and signals it.

use crate::kernel;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

/// Pause between two looks at a process that cannot be watched.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// A process held by its pidfd: signals reach it or nobody.
#[derive(Debug)]
pub(crate) struct Process {
    /// Process id.
    pub pid: u32,
    /// When it began, in clock ticks since boot: with the pid and the boot, its identity.
    pub ticks: u64,
    fd: OwnedFd,
}

/// A worker found in /proc by the socket it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundWorker {
    /// Process id.
    pub pid: u32,
    /// `--topology`.
    pub topology: String,
    /// `--port`.
    pub port: u16,
    /// `--placement`.
    pub placement: u64,
    /// `--start`.
    pub start: u64,
    /// File name of its executable: the SHA-256 of its binary.
    pub binary: String,
}

impl Process {
    /// Takes hold of a live process; `None` when it is gone, a zombie, or (with `ticks`) not the one meant.
    pub(crate) fn open(pid: u32, ticks: Option<u64>) -> Option<Self> {
        let fd = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
        // Read after the pidfd is held: from here on the number cannot pass to another process.
        let now = start_ticks(pid)?;
        ticks.is_none_or(|t| t == now).then_some(Process { pid, ticks: now, fd })
    }

    /// Takes hold of a child just made; it cannot be reaped before `child` is waited for, so the number is its own.
    pub(crate) fn of_child(child: &Child) -> std::io::Result<Self> {
        let pid = Pid::from_child(child);
        let fd = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Process { pid: child.id(), ticks: start_ticks_of_any(child.id()).unwrap_or(0), fd })
    }

    /// Sends a signal; a process that is gone already is fine.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.fd, signal);
    }

    /// Waits for its end and says how it ended, as far as can be known.
    pub(crate) async fn ended(&self, child: Option<Child>) -> String {
        let watched = match self.fd.try_clone() {
            Ok(fd) => kernel::wait_readable(fd).await,
            Err(e) => Err(e),
        };
        if watched.is_err() {
            // No descriptor left to watch it with: look instead, until there is an end to see.
            while start_ticks(self.pid) == Some(self.ticks) {
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        }
        // A process of a former supervisor is not our child: only that it ended can be seen.
        let Some(mut child) = child else { return "ended (started by a former supervisor, so its exit code is not known)".into() };
        match child.wait() {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit code {code}"),
                (None, Some(signal)) => format!("killed by signal {signal}"),
                (None, None) => "ended".into(),
            },
            Err(e) => format!("ended ({e})"),
        }
    }
}

/// Which boot of the machine this is: start times count from it.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|t| t.trim().to_owned()).unwrap_or_default()
}

/// Start time of a live process; `None` when it is gone or a zombie.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    match parse_stat(&stat)? {
        ('Z' | 'X', _) => None,
        (_, ticks) => Some(ticks),
    }
}

fn start_ticks_of_any(pid: u32) -> Option<u64> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?).map(|(_, ticks)| ticks)
}

/// State and start time. The name in field 2 may hold blanks and brackets, so fields count from the last bracket.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let mut after = stat.rsplit_once(')')?.1.split_whitespace();
    let state = after.next()?.chars().next()?;
    // State is field 3, the start time field 22.
    Some((state, after.nth(18)?.parse().ok()?))
}

/// Workers of this user whose socket is in `run`: none can escape, whatever was or was not written to disk.
pub(crate) fn find_workers(run: &Path) -> Vec<FoundWorker> {
    let uid = rustix::process::getuid().as_raw();
    let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
    all.flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            if entry.metadata().ok()?.uid() != uid {
                return None;
            }
            let cmdline = std::fs::read(entry.path().join("cmdline")).ok()?;
            let binary = std::fs::read_link(entry.path().join("exe")).ok()?;
            found(pid, &cmdline, &binary, run)
        })
        .collect()
}

fn found(pid: u32, cmdline: &[u8], exe: &Path, run: &Path) -> Option<FoundWorker> {
    let args: Vec<&str> = cmdline.split(|b| *b == 0).map(|a| std::str::from_utf8(a).unwrap_or_default()).collect();
    if args.get(1) != Some(&"worker") {
        return None;
    }
    let value = |name: &str| args.iter().position(|a| *a == name).and_then(|i| args.get(i + 1)).copied();
    if PathBuf::from(value("--socket")?).parent() != Some(run) {
        return None;
    }
    let name = exe.file_name()?.to_str()?;
    Some(FoundWorker {
        pid,
        topology: value("--topology")?.to_owned(),
        port: value("--port")?.parse().ok()?,
        placement: u64::from_str_radix(value("--placement")?, 16).ok()?,
        start: value("--start")?.parse().ok()?,
        binary: name.strip_suffix(" (deleted)").unwrap_or(name).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_brackets_does_not_shift_the_fields() {
        let stat = "42 (a) S) b) R 1 42 42 0 -1 4194304 90 0 0 0 0 0 0 0 20 0 1 0 123456 2 3";
        assert_eq!(parse_stat(stat), Some(('R', 123_456)));
    }

    #[test]
    fn a_process_is_its_number_and_its_start_time() {
        let me = Process::open(std::process::id(), None).unwrap();
        assert!(Process::open(me.pid, Some(me.ticks)).is_some());
        assert!(Process::open(me.pid, Some(me.ticks + 1)).is_none());
        assert!(Process::open(u32::MAX, None).is_none());
    }

    #[test]
    fn a_command_line_is_a_worker_only_with_all_its_parts_and_our_socket() {
        let line = ["/b/ab", "worker", "--socket", "/s/run/6700.sock", "--topology", "wc-1-2", "--port", "6700"];
        let line = line.join("\0") + "\0--placement\x00" + "00000000000000ff" + "\0--start\x007\0--key-fd\x003\0";
        let line = line.as_bytes();
        let w = found(9, line, Path::new("/b/ab (deleted)"), Path::new("/s/run")).unwrap();
        assert_eq!(w, FoundWorker { pid: 9, topology: "wc-1-2".into(), port: 6700, placement: 255, start: 7, binary: "ab".into() });
        assert_eq!(found(9, line, Path::new("/b/ab"), Path::new("/other/run")), None);
        assert_eq!(found(9, b"sleep\0worker\0", Path::new("/b/ab"), Path::new("/s/run")), None);
    }
}
