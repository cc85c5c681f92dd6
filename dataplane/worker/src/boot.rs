//! Before anything runs: the topology key, SIGTERM as a descriptor, and the supervisor's `Boot`.

use crate::WorkerError;
use crate::supervisor::{Event, Supervisor};
use rustix::event::{PollFd, PollFlags, poll};
use saetta_model::assignment::Assignment;
use saetta_model::local::ToWorker;
use saetta_model::record::TopologyRecord;
use saetta_transport::Key;
use signal_hook::consts::SIGTERM;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a worker looks for its supervisor at start.
const BOOT_TIME_MAX: Duration = Duration::from_secs(30);
/// Longest wait between two looks at what is due.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Reads the key to its end. The descriptor stays open and drained: closing a number is not possible in safe code, and nothing is left in it.
pub(crate) fn read_key(fd: i32) -> Result<Key, WorkerError> {
    let wrong = |why: String| WorkerError::Arguments(format!("--key-fd {fd}: {why}; a supervisor hands the topology key there"));
    let file = File::open(format!("/proc/self/fd/{fd}")).map_err(|e| wrong(e.to_string()))?;
    let mut bytes = Vec::with_capacity(64);
    // One byte more than a key tells a longer one.
    file.take(33).read_to_end(&mut bytes).map_err(|e| wrong(e.to_string()))?;
    let key: [u8; 32] = bytes.as_slice().try_into().map_err(|_| wrong(format!("{} bytes instead of 32", bytes.len())))?;
    Key::new(key).ok_or_else(|| wrong("32 zero bytes are no key".into()))
}

/// SIGTERM, as bytes in a socket.
pub(crate) struct Signals(UnixStream);

impl Signals {
    pub(crate) fn new() -> Result<Self, WorkerError> {
        let set_up = || {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(SIGTERM, theirs)?;
            Ok(Signals(ours))
        };
        set_up().map_err(|e: std::io::Error| WorkerError::Arguments(format!("SIGTERM cannot be caught: {e}")))
    }

    /// True when SIGTERM came since the last look.
    pub(crate) fn terminated(&self) -> bool {
        let mut bytes = [0; 64];
        matches!((&self.0).read(&mut bytes), Ok(n) if n > 0)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Says hello until the supervisor answers. `None` = told to stop before anything ran.
pub(crate) fn boot(supervisor: &mut Supervisor, signals: &Signals) -> Result<Option<(TopologyRecord, Assignment)>, WorkerError> {
    let deadline = Instant::now() + BOOT_TIME_MAX;
    let mut events = Vec::new();
    loop {
        let now = Instant::now();
        supervisor.turn(now, 0, &mut events);
        for event in events.drain(..) {
            match event {
                Event::Said(ToWorker::Boot { record, assignment, .. } | ToWorker::Update { record, assignment }) => {
                    return Ok(Some((*record, *assignment)));
                }
                Event::Said(ToWorker::Stop) => return Ok(None),
                Event::Said(ToWorker::Refused { why }) => return Err(WorkerError::Refused(why)),
                Event::Away(_) => {}
            }
        }
        if signals.terminated() {
            return Ok(None);
        }
        if now >= deadline {
            return Err(WorkerError::NoSupervisor { socket: supervisor.path().display().to_string(), why: supervisor.why().to_owned() });
        }
        let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
        fds.extend(supervisor.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let timeout = LOOK_EVERY.try_into().expect("a tenth of a second");
        // EINTR and readiness alike: everything is looked at again.
        let _ = poll(&mut fds, Some(&timeout));
    }
}
