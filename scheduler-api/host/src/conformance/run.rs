//! Runs checks, each in a process of its own, and says what became of them.
//!
//! Before: `saetta scheduler validate`, or a test. After: a [`Report`] per check, in order. Blocking; `jobs` processes at a time, each ended at its
//! timeout. Call it on a thread that outlives the call: a helper dies with the thread that started it.

use super::{Body, CHECKS, Check, ENDS, Fine, NO_OUTPUT, Needs, Verdict};
use crate::facts::facts;
use crate::helper::check::{FAILED, FLAG, SKIPPED, SUCCESS, WARNING};
use crate::wire::{Kind, MESSAGE_BYTES, Message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Output of a process that is kept; the rest is read and dropped.
const OUTPUT_BYTES_MAX: u64 = 4096;
/// Time a process has to end once it has said its result.
const END_MAX: Duration = Duration::from_secs(5);

/// How checks are run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The helper's executable.
    pub helper: PathBuf,
    /// Address space of each process, as `scheduler.memory.mb`.
    pub memory_bytes: u64,
    /// Time for one round, as `scheduler.deadline.secs`.
    pub deadline: Duration,
    /// Time for one check.
    pub timeout: Duration,
    /// Checks that run at once, at least 1. With more than there are cores, times are longer than they would be.
    pub jobs: usize,
}

impl Options {
    /// The limits nimbus has where nothing is configured.
    pub fn new(helper: PathBuf) -> Self {
        Options { helper, memory_bytes: 512 << 20, deadline: Duration::from_secs(5), timeout: Duration::from_secs(45), jobs: 1 }
    }
}

/// What became of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// As it should be.
    Success,
    /// The plugin is not as it should be.
    Failed,
    /// Its process died.
    Crashed,
    /// It works, and the author should know.
    Warning,
    /// Not run: it does not apply, or a check before it says why it cannot.
    Skipped,
}

impl Status {
    /// As it stands in reports.
    pub fn name(self) -> &'static str {
        match self {
            Status::Success => "success",
            Status::Failed => "failed",
            Status::Crashed => "crashed",
            Status::Warning => "warning",
            Status::Skipped => "skipped",
        }
    }
    /// True when the plugin must be mended.
    pub fn is_bad(self) -> bool {
        matches!(self, Status::Failed | Status::Crashed)
    }
}

/// One check and what became of it.
#[derive(Debug)]
pub struct Report {
    /// The check.
    pub check: &'static Check,
    /// What became of it.
    pub status: Status,
    /// One line; empty = nothing to say.
    pub reason: String,
    /// How long it took.
    pub took: Duration,
}

/// The checks that one of the comma-separated patterns names: by id or group, `*` stands for any text.
pub fn selected(patterns: &str) -> Vec<&'static Check> {
    let patterns: Vec<&str> = patterns.split(',').map(str::trim).filter(|p| !p.is_empty()).collect();
    CHECKS.iter().filter(|c| patterns.iter().any(|p| matches(p, c.id) || matches(p, c.group))).collect()
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text
            .strip_prefix(start)
            .is_some_and(|text| (0..=text.len()).filter(|i| text.is_char_boundary(*i)).any(|i| matches(rest, &text[i..]))),
    }
}

/// Runs checks on a plugin's file; `each` sees every report as soon as those before it are there.
pub fn validate(file: &Path, checks: &[&'static Check], options: &Options, mut each: impl FnMut(&Report)) -> Vec<Report> {
    let mut closed: Option<(Needs, &'static str)> = None;
    let mut reports: Vec<Report> = Vec::new();
    // A gate runs alone: what becomes of it decides about those behind it.
    for together in checks.chunk_by(|a, b| a.gate.is_none() && b.gate.is_none()) {
        let run = |check: &'static Check| {
            let started = Instant::now();
            let (status, reason) = match closed {
                Some((from, by)) if check.needs >= from => (Status::Skipped, format!("{by} did not succeed")),
                _ => one(file, check, options),
            };
            Report { check, status, reason, took: started.elapsed() }
        };
        let (next, first) = (AtomicUsize::new(0), reports.len());
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            for _ in 0..options.jobs.clamp(1, together.len()) {
                let (sender, next, run) = (sender.clone(), &next, &run);
                scope.spawn(move || {
                    loop {
                        // Relaxed: a number that is handed out once.
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(check) = together.get(at) else { break };
                        // The receiver lives until all senders are gone.
                        let _ = sender.send((at, run(check)));
                    }
                });
            }
            drop(sender);
            let mut early = BTreeMap::new();
            for (at, report) in receiver {
                early.insert(first + at, report);
                while let Some(report) = early.remove(&reports.len()) {
                    each(&report);
                    reports.push(report);
                }
            }
        });
        if let Some(Report { check: Check { gate: Some(gate), id, .. }, status, .. }) = reports.last()
            && status.is_bad()
        {
            closed = Some(closed.filter(|(from, _)| from <= gate).unwrap_or((*gate, id)));
        }
    }
    reports
}

fn one(file: &Path, check: &Check, options: &Options) -> (Status, String) {
    match check.body {
        Body::File(f) => match facts(file) {
            Ok(facts) => status_of(f(&facts)),
            Err(e) => (Status::Failed, e.to_string()),
        },
        Body::Process(_) => match process(file, check, options) {
            Ok(found) => found,
            Err(e) => (Status::Failed, format!("the helper {} could not be run: {e}", options.helper.display())),
        },
    }
}

fn status_of(verdict: Verdict) -> (Status, String) {
    match verdict {
        Ok(Fine::Success) => (Status::Success, String::new()),
        Ok(Fine::Warning(text)) => (Status::Warning, text),
        Ok(Fine::Skipped(text)) => (Status::Skipped, text),
        Err(text) => (Status::Failed, text),
    }
}

/// Ends with its owner.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn process(file: &Path, check: &Check, options: &Options) -> std::io::Result<(Status, String)> {
    let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let (mut output, their_output) = std::io::pipe()?;
    let mut command = Command::new(&options.helper);
    command.env_clear().current_dir("/").stdin(Stdio::from(theirs)).stdout(their_output.try_clone()?).stderr(their_output);
    command.args([FLAG, check.id, &std::process::id().to_string(), &options.memory_bytes.to_string()]).arg(std::path::absolute(file)?);
    let mut child = Process(command.spawn()?);
    drop(command); // its ends of socket and pipe are the child's alone from here
    let reader = std::thread::spawn(move || {
        let mut kept = Vec::new();
        let _ = (&mut output).take(OUTPUT_BYTES_MAX).read_to_end(&mut kept);
        let _ = std::io::copy(&mut output, &mut std::io::sink());
        String::from_utf8_lossy(&kept).chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>()
    });

    let allowed = if check.id == ENDS { options.deadline } else { options.timeout };
    let said = hear(&socket, Instant::now() + allowed);
    let status = match &said {
        Heard::TooLate => None,
        _ => end(&mut child.0, Instant::now() + END_MAX),
    };
    drop(child);
    let output = reader.join().unwrap_or_default();

    let spoke = if output.trim().is_empty() { String::new() } else { format!("; it wrote: {}", output.trim()) };
    Ok(match (said, status) {
        (Heard::TooLate, _) => (Status::Failed, format!("it did not end within {} s and was killed", allowed.as_secs_f64())),
        (Heard::Nonsense, _) => (Status::Failed, "it writes to descriptor 0, which is the host's channel".to_owned()),
        (_, None) => (Status::Failed, format!("it did not let its process end within {} s", END_MAX.as_secs())),
        // That it died is said by the check that is about that.
        (Heard::Nothing, Some(status)) if check.id == ENDS => (Status::Success, format!("it ended, by dying: {}", text_of(status))),
        (Heard::Nothing, Some(status)) => (Status::Crashed, format!("its process {}{spoke}", text_of(status))),
        (Heard::Result(_), Some(status)) if !status.success() => {
            (Status::Crashed, format!("at its end, its process {}{spoke}", text_of(status)))
        }
        (Heard::Result(_), _) if check.id == NO_OUTPUT && !output.is_empty() => {
            (Status::Failed, format!("it writes to stdout or stderr; use the host's log{spoke}"))
        }
        (Heard::Result(m), _) => match m.code {
            SUCCESS => (Status::Success, m.text),
            WARNING => (Status::Warning, m.text),
            SKIPPED => (Status::Skipped, m.text),
            FAILED => (Status::Failed, m.text),
            _ => (Status::Failed, "the helper is of another build".to_owned()),
        },
    })
}

enum Heard {
    Result(Message),
    /// The channel closed without a word.
    Nothing,
    Nonsense,
    TooLate,
}

/// The result, whatever else is said on the way.
fn hear(socket: &std::os::fd::OwnedFd, deadline: Instant) -> Heard {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Heard::TooLate;
        }
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        let wait = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        if !matches!(poll(&mut fds, Some(&wait)), Ok(n) if n > 0) {
            continue;
        }
        let mut buf = [0; MESSAGE_BYTES + 1];
        match recv(socket, &mut buf, RecvFlags::DONTWAIT) {
            Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET) => return Heard::Nothing,
            Ok((_, n)) => match Message::decode(buf.get(..n).unwrap_or_default()) {
                Some(m) if m.kind == Kind::Result => return Heard::Result(m),
                Some(_) => {}
                None => return Heard::Nonsense,
            },
            Err(_) => {}
        }
    }
}

/// How it ended; `None` = it did not.
fn end(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    let pid = rustix::process::Pid::from_raw(child.id() as i32)?;
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut fds, Some(&Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() })) {
            Ok(0) => return None,
            Ok(_) => return child.wait().ok(),
            Err(_) if left.is_zero() => return None,
            Err(_) => {}
        }
    }
}

fn text_of(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(libc::SIGSEGV), _) => "was killed by SIGSEGV: it touched memory that is not its own".to_owned(),
        (Some(libc::SIGABRT), _) => "was killed by SIGABRT: abort, or a panic or an exception that left it".to_owned(),
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, Some(code)) => format!("ended with exit code {code} in the middle of a call"),
        (None, None) => format!("ended ({status})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_checks_by_id_and_by_group() {
        let ids = |patterns: &str| selected(patterns).iter().map(|c| c.id).collect::<Vec<_>>();
        assert_eq!(ids("stride"), ["stride"]);
        assert_eq!(ids("entry-*, stride"), ["entry-old-host", "entry-new-host", "stride"]);
        assert_eq!(ids("*max*"), ["max-size", "respects-max-moves"]);
        assert_eq!(ids("*").len(), CHECKS.len());
        assert_eq!(ids("deadline").len(), 4);
        assert!(ids("nothing,").is_empty());
    }
}
