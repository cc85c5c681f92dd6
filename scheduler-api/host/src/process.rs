//! Nimbus's end of the channel: starts a helper process, sends it rounds, waits with a deadline, ends it.
//!
//! Before: `round` has a packed snapshot. After: a private copy of what the plugin wrote, or a [`Failure`] in one line.
//! A helper is persistent; whoever gets a `Failure` drops it, which kills and reaps it.

use crate::SchedulerOptions;
use crate::wire::{Kind, LOG_LINES_MAX, MESSAGE_BYTES, Message, REASONS_MAX, REMEMBERS, SAVED};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, sendmsg, socketpair,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use saetta_sdk::abi;
use saetta_sdk::call::{Reason, RoundArgs};
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What a helper runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A plugin's file.
    Plugin {
        /// As in `scheduler.plugin`.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// Even, linked into the helper.
    BuiltinEven,
}

/// Why a round has no answer. One line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The helper could not be started or spoken to: the environment must be mended.
    #[error("helper {path}: {what}", path = path.display())]
    Helper {
        /// Its executable.
        path: PathBuf,
        /// What was tried and what happened.
        what: String,
    },
    /// The plugin's file was not loaded: missing, not ours, or its constructor refused.
    #[error("not loaded: {0}")]
    Load(String),
    /// The plugin answered an error code.
    #[error("answered {name}: {text}", name = saetta_sdk::code_name(*code))]
    Code {
        /// `abi::E_*`.
        code: i32,
        /// Its reason.
        text: String,
    },
    /// The helper's process ended.
    #[error("its process {0}")]
    Died(String),
    /// It took too long and was killed.
    #[error("took longer than {} s (scheduler.deadline.secs), killed", .0.as_secs_f64())]
    Deadline(Duration),
    /// It broke the protocol of the channel.
    #[error("its process sent bytes that are no message")]
    Nonsense,
    /// It was not asked: see `breaker`.
    #[error("{0}")]
    NotAsked(String),
}

impl Failure {
    /// What the plugin did to its process; the same cluster may do it again.
    pub(crate) fn is_crash(&self) -> bool {
        matches!(self, Failure::Died(_) | Failure::Deadline(_) | Failure::Nonsense)
    }
}

/// One round as it goes to a plugin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    /// The snapshot.
    pub(crate) bytes: &'a [u8],
    /// Current slot of each executor.
    pub(crate) before: &'a [u32],
    pub(crate) n_topologies: usize,
    pub(crate) args: RoundArgs,
}

impl Question<'_> {
    /// The answer as it goes out: slots, outcomes, cores.
    pub(crate) fn prefilled(&self) -> Vec<u32> {
        let mut words = self.before.to_vec();
        words.extend(std::iter::repeat_n(abi::OUT_KEEP, self.n_topologies));
        words.extend(std::iter::repeat_n(abi::NONE, self.before.len()));
        words
    }
}

/// Starts processes from one thread that lives as long as the scheduler. A helper asks the kernel to be killed when its parent
/// *thread* ends, and rounds run on threads that come and go.
pub(crate) struct Spawner {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// A command to start, and where the answer goes.
type Job = (Command, mpsc::Sender<io::Result<Child>>);

impl Spawner {
    pub(crate) fn start() -> Self {
        let (jobs, todo) = mpsc::channel::<Job>();
        let thread = std::thread::Builder::new().name("sched-spawner".into()).spawn(move || {
            for (mut command, answer) in todo {
                let child = command.spawn();
                drop(command); // its end of the channel is the helper's alone from here
                let _ = answer.send(child);
            }
        });
        Spawner { jobs: Some(jobs), thread: thread.ok() }
    }

    fn spawn(&self, command: Command) -> io::Result<Child> {
        let (answer, child) = mpsc::channel();
        let gone = || io::Error::other("the spawner thread is gone");
        self.jobs.as_ref().ok_or_else(gone)?.send((command, answer)).map_err(|_| gone())?;
        child.recv().map_err(|_| gone())?
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Time a helper has to start and load, and the fallback for its round, where the configured deadline is shorter: starting a process is not
/// the plugin's doing, and the last resort must not fail because the plugin was given little time.
pub(crate) const START_DEADLINE_MIN: Duration = Duration::from_secs(5);

/// What a plugin wrote, copied, not validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Row of a slot for each executor, or `abi::NONE`.
    pub slot_of_exec: Vec<u32>,
    /// `abi::OUT_*` for each topology.
    pub outcome: Vec<u32>,
    /// Row of a core for each executor, or `abi::NONE` = Saetta chooses.
    pub core_of_exec: Vec<u32>,
}

impl Answer {
    pub(crate) fn split(words: &[u32], n_execs: usize, n_topologies: usize) -> Self {
        let (slot_of_exec, rest) = words.split_at(n_execs);
        let (outcome, core_of_exec) = rest.split_at(n_topologies);
        Answer { slot_of_exec: slot_of_exec.to_vec(), outcome: outcome.to_vec(), core_of_exec: core_of_exec.to_vec() }
    }
}

/// A running helper.
pub(crate) struct Helper {
    path: PathBuf,
    child: Child,
    pidfd: OwnedFd,
    socket: OwnedFd,
    /// At most `REASONS_MAX`, of the current question.
    reasons: Vec<Reason>,
    /// Log lines heard since the current question, or since the start.
    log_lines: u32,
    /// The instance saves what it wants to find again.
    remembers: bool,
    /// After the last question; at most `abi::STATE_BYTES_MAX`.
    saved: Option<Vec<u8>>,
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Helper {
    /// Starts the process and waits until it has an instance of its scheduler; at most the deadline, or `START_DEADLINE_MIN` if that is longer.
    /// `saved` = what an instance of the same plugin wanted to find again.
    pub(crate) fn start(spawner: &Spawner, options: &SchedulerOptions, what: &What, saved: Option<&[u8]>) -> Result<Self, Failure> {
        let path = options.helper.clone();
        let failed = |doing: &str, e: io::Error| Failure::Helper { path: path.clone(), what: format!("{doing}: {e}") };
        let allowed = options.deadline.max(START_DEADLINE_MIN);
        let deadline = Instant::now() + allowed;
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|e| failed("making its channel", e.into()))?;
        let mut command = Command::new(&path);
        // Its stdin is the channel: the one descriptor it inherits, without a window in which another child could inherit it too.
        command.env_clear().current_dir("/").stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        command.arg("--parent").arg(std::process::id().to_string());
        command.arg("--memory-bytes").arg(options.memory_bytes.to_string());
        command.arg("--remember").arg(saved.is_some().to_string());
        match what {
            What::Plugin { name, path } => {
                command.arg("--name").arg(name).arg("--plugin").arg(absolute(path)).arg("--config").arg(&options.policy.config)
            }
            What::BuiltinEven => command.arg("--builtin").arg("even"),
        };
        let child = spawner.spawn(command).map_err(|e| failed("starting it", e))?;
        let pid = Pid::from_raw(child.id() as i32).expect("a child's pid is positive");
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(e) => {
                let mut child = child;
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed("watching it by pidfd", e.into()));
            }
        };
        let mut helper =
            Helper { path: path.clone(), child, pidfd, socket, reasons: Vec::new(), log_lines: 0, remembers: false, saved: None };
        if let Some(saved) = saved {
            let message = Message { snap_len: saved.len() as u64, ..Message::new(Kind::Remember, 0, "") };
            let sent = sealed(saved).and_then(|memory| helper.send(&message, &[memory.as_fd()]));
            sent.map_err(|e| failed("giving it back what it saved", e))?;
        }
        let hello = helper.next(deadline, allowed, Kind::Hello)?;
        helper.remembers = hello.flags & REMEMBERS != 0;
        match hello.code {
            abi::OK => Ok(helper),
            code if code > 0 => {
                tracing::warn!(why = hello.text, "scheduler helper runs with partial containment");
                Ok(helper)
            }
            _ => Err(Failure::Load(hello.text)),
        }
    }

    /// False once its process has ended.
    pub(crate) fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
    }

    /// Runs a round.
    pub(crate) fn round(&mut self, question: &Question<'_>, allowed: Duration) -> Result<Answer, Failure> {
        let (n_execs, n_topologies) = (question.before.len(), question.n_topologies);
        let prefilled = question.prefilled();
        let message = Message { n_execs: n_execs as u32, n_topologies: n_topologies as u32, ..Message::new(Kind::Round, 0, "") };
        let words = self.exchange(message, question, &prefilled, allowed)?;
        Ok(Answer::split(&words, n_execs, n_topologies))
    }

    /// Lets a health stage judge: flags of the nodes in, flags out.
    pub(crate) fn judge(&mut self, question: &Question<'_>, flags_of_node: &[u32], allowed: Duration) -> Result<Vec<u32>, Failure> {
        let message = Message { n_execs: flags_of_node.len() as u32, ..Message::new(Kind::Judge, 0, "") };
        self.exchange(message, question, flags_of_node, allowed)
    }

    /// Reasons the plugin gave since they were last taken. Empty unless the round asked for them.
    pub(crate) fn take_reasons(&mut self) -> Vec<Reason> {
        std::mem::take(&mut self.reasons)
    }

    /// What the instance wants to find again, if the last question made it save something.
    pub(crate) fn take_saved(&mut self) -> Option<Vec<u8>> {
        self.saved.take()
    }

    fn send(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(fds));
        sendmsg(&self.socket, &[IoSlice::new(&message.encode())], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Sends a question and waits for its result; what the helper wrote over `prefilled`.
    fn exchange(&mut self, message: Message, question: &Question<'_>, prefilled: &[u32], allowed: Duration) -> Result<Vec<u32>, Failure> {
        let deadline = Instant::now() + allowed;
        let path = self.path.clone();
        let failed = |doing: &'static str| move |e: io::Error| Failure::Helper { path: path.clone(), what: format!("{doing}: {e}") };
        let snapshot = sealed(question.bytes).map_err(failed.clone()("writing the snapshot"))?;
        let prefilled: Vec<u8> = prefilled.iter().flat_map(|word| word.to_le_bytes()).collect();
        let room = if self.remembers { abi::STATE_BYTES_MAX } else { 0 };
        let answer = shared(&prefilled, room).map_err(failed.clone()("making room for the answer"))?;
        let args = question.args;
        let message = Message {
            round_id: args.round_id,
            seed: args.seed,
            budget_ns: args.budget_ns,
            snap_len: question.bytes.len() as u64,
            reason: args.reason,
            max_moves: args.max_moves,
            flags: args.flags,
            ..message
        };
        self.reasons.clear();
        (self.log_lines, self.saved) = (0, None);
        if let Err(e) = self.send(&message, &[snapshot.as_fd(), answer.as_fd()]) {
            // A helper that ended between rounds shows here first; its exit says more than EPIPE.
            return Err(self.ended(Instant::now()).unwrap_or_else(|| failed("sending the round")(e)));
        }
        let result = loop {
            let result = self.next(deadline, allowed, Kind::Result)?;
            if result.round_id == args.round_id {
                break result;
            }
        };
        if result.code < 0 {
            return Err(Failure::Code { code: result.code, text: result.text });
        }
        // Copied before anything looks at it: the helper could still write.
        let mut bytes = vec![0; prefilled.len()];
        answer.read_exact_at(&mut bytes, 0).map_err(failed.clone()("reading the answer"))?;
        if result.flags & SAVED != 0 {
            if result.snap_len > room {
                return Err(Failure::Nonsense);
            }
            let mut saved = vec![0; result.snap_len as usize];
            answer.read_exact_at(&mut saved, prefilled.len() as u64).map_err(failed("reading what it saved"))?;
            self.saved = Some(saved);
        }
        Ok(bytes.chunks_exact(4).map(<u32 as abi::Field>::get).collect())
    }

    /// The next message of a kind; log lines on the way are passed on.
    fn next(&mut self, deadline: Instant, allowed: Duration, kind: Kind) -> Result<Message, Failure> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // Not left to poll: a helper that never stops talking would always have something to read.
            if left.is_zero() {
                return Err(Failure::Deadline(allowed));
            }
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.pidfd, PollFlags::IN)];
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(0) => return Err(Failure::Deadline(allowed)),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(Failure::Helper { path: self.path.clone(), what: format!("waiting for it: {e}") }),
            }
            let mut buf = [0; MESSAGE_BYTES + 1];
            match recv(&self.socket, &mut buf, RecvFlags::DONTWAIT) {
                Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET) => {
                    return Err(self.ended(deadline).unwrap_or(Failure::Deadline(allowed)));
                }
                Ok((_, n)) => match Message::decode(buf.get(..n).unwrap_or_default()) {
                    Some(message) if message.kind == kind => return Ok(message),
                    Some(message) if message.kind == Kind::Log => self.log(&message),
                    Some(message) if message.kind == Kind::Reason => {
                        if self.reasons.len() < REASONS_MAX as usize {
                            self.reasons.push(message.to_reason());
                        }
                    }
                    _ => return Err(Failure::Nonsense),
                },
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(e) => return Err(Failure::Helper { path: self.path.clone(), what: format!("reading from it: {e}") }),
            }
        }
    }

    /// Passes a line on. A helper says `LOG_LINES_MAX` of them and one about the rest; who writes more past it to the channel is not listened to.
    fn log(&mut self, message: &Message) {
        self.log_lines = self.log_lines.saturating_add(1);
        if self.log_lines <= LOG_LINES_MAX + 1 {
            log_line(message.code, &message.text);
        } else if self.log_lines == LOG_LINES_MAX + 2 {
            tracing::warn!(
                "a scheduler plugin writes to its helper's channel without end; what it says in this round is not logged any more"
            );
        }
    }

    /// How the process ended; waits for that until `deadline`. `None` = it did not end.
    fn ended(&mut self, deadline: Instant) -> Option<Failure> {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        match poll(&mut fds, Some(&timespec(left))) {
            Ok(n) if n > 0 => self.child.wait().ok().map(|status| Failure::Died(status_text(status))),
            _ => None,
        }
    }
}

/// A line of a plugin, by its level.
pub(crate) fn log_line(level: i32, text: &str) {
    match level {
        abi::LOG_ERROR | abi::LOG_PLUGIN_BUG | abi::LOG_HOST_BUG => tracing::error!(target: "scheduler", "{text}"),
        abi::LOG_WARN => tracing::warn!(target: "scheduler", "{text}"),
        abi::LOG_INFO => tracing::info!(target: "scheduler", "{text}"),
        abi::LOG_DEBUG => tracing::debug!(target: "scheduler", "{text}"),
        _ => tracing::trace!(target: "scheduler", "{text}"),
    }
}

fn status_text(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}{}", signal_name(signal)),
        (None, Some(code)) => format!("ended with exit code {code} before it answered"),
        (None, None) => format!("ended ({status})"),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGSEGV => " (SIGSEGV: it touched memory that is not its own)",
        libc::SIGABRT => " (SIGABRT: a panic or an assertion left it)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGILL => " (SIGILL)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGKILL => " (SIGKILL)",
        _ => "",
    }
}

fn absolute(path: &std::path::Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

fn timespec(d: Duration) -> Timespec {
    Timespec { tv_sec: d.as_secs().min(i64::MAX as u64) as i64, tv_nsec: d.subsec_nanos().into() }
}

/// A memfd with this content that nobody can change any more.
fn sealed(bytes: &[u8]) -> io::Result<OwnedFd> {
    let fd = memfd_create("saetta-snapshot", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    let fd = OwnedFd::from(file);
    fcntl_add_seals(&fd, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// A memfd with this content and `room` bytes behind it, of fixed size, for the helper to write into.
fn shared(bytes: &[u8], room: u64) -> io::Result<File> {
    let fd = memfd_create("saetta-plan", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, bytes.len() as u64 + room)?;
    let file = File::from(fd);
    file.write_all_at(bytes, 0)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}
