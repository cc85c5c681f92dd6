//! Finding the workspace, running commands, and processes that outlive us: their pid files and their end.
//!
//! Before: every task. After: the operating system. A process is only ended when its command line is the one we started.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Between two looks at a condition.
const POLL: Duration = Duration::from_millis(50);

/// The folder of the workspace's Cargo.toml.
pub(crate) fn root() -> PathBuf {
    // Cargo sets it for `cargo run`, and it is two folders above this crate when the binary is started by hand.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.ancestors().nth(2).map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// `cargo ARGS..` in the workspace root, with the cargo that started us.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    // Set by the `cargo run` around us; a nested cargo must not take them for its own.
    for name in ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
        command.env_remove(name);
    }
    command
}

/// Runs to the end; an exit code other than 0 is an error that names the command.
pub(crate) fn must(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {}", line_of(command)))?;
    if !status.success() {
        bail!("{}: {status}", line_of(command));
    }
    Ok(())
}

/// Its standard output as text; an exit code other than 0 is an error with what it wrote to standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let out = command.stdin(Stdio::null()).output().with_context(|| format!("starting {}", line_of(command)))?;
    if !out.status.success() {
        bail!("{}: {}\n{}", line_of(command), out.status, String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The command as one would type it.
pub(crate) fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Polls until `done` answers something; `None` when `limit` has passed.
pub(crate) fn wait_for<T>(limit: Duration, mut done: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = done() {
            return Some(value);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(POLL);
    }
}

/// Whether somebody listens on a loopback port.
pub(crate) fn port_is_open(port: u16) -> bool {
    TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), Duration::from_millis(500)).is_ok()
}

/// A process that outlives us: started with its output in a file, known by a pid file.
pub(crate) struct Daemon {
    /// `NAME.pid`, `NAME.log` in here.
    pub(crate) dir: PathBuf,
    pub(crate) name: String,
    /// A part of its command line that no other process has: what makes a pid its own and not a stranger's that took the number over.
    pub(crate) mark: String,
}

impl Daemon {
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join(format!("{}.log", self.name))
    }

    fn pid_file(&self) -> PathBuf {
        self.dir.join(format!("{}.pid", self.name))
    }

    /// Its pid, when it runs.
    pub(crate) fn running(&self) -> Option<u32> {
        let pid: u32 = fs::read_to_string(self.pid_file()).ok()?.trim().parse().ok()?;
        let command_line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        String::from_utf8_lossy(&command_line).replace('\0', " ").contains(&self.mark).then_some(pid)
    }

    /// Starts it away from the terminal: Ctrl-C in this shell does not reach it.
    pub(crate) fn start(&self, command: &mut Command) -> Result<Child> {
        use std::os::unix::process::CommandExt;
        fs::create_dir_all(&self.dir).with_context(|| format!("making {}", self.dir.display()))?;
        let log =
            fs::File::options().create(true).append(true).open(self.log()).with_context(|| format!("opening {}", self.log().display()))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn().with_context(|| format!("starting {}", line_of(command)))?;
        fs::write(self.pid_file(), format!("{}\n", child.id()))?;
        Ok(child)
    }

    /// Asks it to end, insists after `limit`, and waits until it is gone. `false` when it did not run.
    pub(crate) fn stop(&self, limit: Duration) -> Result<bool> {
        let Some(pid) = self.running() else {
            let _ = fs::remove_file(self.pid_file());
            return Ok(false);
        };
        for signal in ["-TERM", "-KILL"] {
            // It may be gone by now; what counts is whether it is, below.
            let _ = Command::new("kill").args([signal, &pid.to_string()]).stderr(Stdio::null()).status();
            if wait_for(limit, || self.running().is_none().then_some(())).is_some() {
                fs::remove_file(self.pid_file())?;
                return Ok(true);
            }
        }
        bail!("stopping {} (pid {pid}): it is still there after SIGKILL; look at its state in /proc/{pid}/status", self.name)
    }

    /// The last lines of its log, for an error message.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon(name: &str, mark: &str) -> Daemon {
        let dir = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        Daemon { dir, name: name.to_owned(), mark: mark.to_owned() }
    }

    #[test]
    fn a_daemon_is_found_by_its_pid_and_gone_after_stop() {
        let sleeper = daemon("sleeper", "sleep 612345");
        let mut child = sleeper.start(Command::new("sleep").arg("612345")).expect("started");
        let found = wait_for(Duration::from_secs(10), || sleeper.running());
        assert_eq!(found, Some(child.id()));
        // We are its parent: it stays a zombie, without a command line, until it is waited for.
        assert!(sleeper.stop(Duration::from_secs(10)).expect("stopped"));
        assert!(!child.wait().expect("ended").success());
        assert!(!sleeper.stop(Duration::from_secs(1)).expect("nothing to stop"));
        fs::remove_dir_all(&sleeper.dir).expect("removed");
    }

    #[test]
    fn a_stranger_with_our_pid_is_left_alone() {
        let stranger = daemon("stranger", "a mark this test does not have in its command line");
        fs::create_dir_all(&stranger.dir).expect("made");
        fs::write(stranger.pid_file(), std::process::id().to_string()).expect("written");
        assert_eq!(stranger.running(), None);
        assert!(!stranger.stop(Duration::from_secs(1)).expect("left alone"));
        fs::remove_dir_all(&stranger.dir).expect("removed");
    }
}
