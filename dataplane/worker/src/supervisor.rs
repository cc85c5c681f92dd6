//! The line to the supervisor: a Unix socket that may end at any time and is found again, and never blocks its caller.
//!
//! Before: messages of `saetta_model::local`. After: the supervisor's agent. What cannot be sent now waits, up to a bound; beats beyond it
//! are left out, since the next one says more.

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send, socket_with};
use saetta_model::Name;
use saetta_model::local::{FromWorker, ToWorker, VERSION_MAX, VERSION_MIN, decode, encode};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// First pause before the supervisor is looked for again; doubles.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Bytes that wait for a supervisor that does not read. Beyond it nothing is added.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// Who this worker is, as it says in every hello.
pub(crate) struct Identity {
    pub(crate) topology: Name,
    pub(crate) port: u16,
    pub(crate) placement: u64,
    pub(crate) start: u64,
}

/// What a turn brought.
pub(crate) enum Event {
    Said(ToWorker),
    /// The connection ended; it is looked for again. Told once per connection.
    Away(String),
}

struct Connection {
    socket: OwnedFd,
    input: Vec<u8>,
    output: Vec<u8>,
    /// `Boot` was received: beats and errors are welcome.
    booted: bool,
}

/// See the head of this file.
pub(crate) struct Supervisor {
    path: PathBuf,
    identity: Identity,
    connection: Option<Connection>,
    /// When it is looked for again, while there is no connection.
    due: Instant,
    pause: Duration,
    /// Why there is no connection.
    why: String,
}

impl Supervisor {
    pub(crate) fn new(path: PathBuf, identity: Identity) -> Self {
        Supervisor { path, identity, connection: None, due: Instant::now(), pause: PAUSE_FIRST, why: "not tried yet".into() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Why there is no connection.
    pub(crate) fn why(&self) -> &str {
        &self.why
    }

    /// For the caller's wait.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(|c| c.socket.as_fd())
    }

    /// True when it listens.
    pub(crate) fn is_here(&self) -> bool {
        self.connection.as_ref().is_some_and(|c| c.booted)
    }

    /// Connects when that is due, writes what waits, reads what is there. `version` = assignment in force, for the hello.
    pub(crate) fn turn(&mut self, now: Instant, version: u64, out: &mut Vec<Event>) {
        if self.connection.is_none() && now >= self.due {
            match self.dial() {
                Ok(socket) => {
                    let hello = FromWorker::Hello {
                        versions: (VERSION_MIN, VERSION_MAX),
                        topology: self.identity.topology.clone(),
                        port: self.identity.port,
                        placement: self.identity.placement,
                        start: self.identity.start,
                        pid: std::process::id(),
                        version,
                    };
                    self.connection = Some(Connection { socket, input: Vec::new(), output: encode(&hello), booted: false });
                }
                Err(e) => self.rest(now, format!("connect: {}", std::io::Error::from(e))),
            }
        }
        let Some(connection) = &mut self.connection else { return };
        let ended = connection.turn(out).err();
        if connection.booted {
            self.pause = PAUSE_FIRST;
        }
        if let Some(why) = ended {
            self.connection = None;
            self.rest(now, why.clone());
            out.push(Event::Away(why));
        }
    }

    /// Sends, or keeps for the next turn. False = not sent: nobody listens, or too much waits already.
    pub(crate) fn send(&mut self, message: &FromWorker) -> bool {
        match &mut self.connection {
            Some(c) if c.booted && c.output.len() < WAITING_BYTES_MAX => {
                c.output.extend_from_slice(&encode(message));
                // An error is found again, and told, by the next turn.
                let _ = c.write();
                true
            }
            _ => false,
        }
    }

    /// True when nothing waits to be written.
    pub(crate) fn is_flushed(&self) -> bool {
        self.connection.as_ref().is_none_or(|c| c.output.is_empty())
    }

    fn rest(&mut self, now: Instant, why: String) {
        self.why = why;
        self.due = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    fn dial(&self) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // Non-blocking: a supervisor that stands still, its queue full, answers EAGAIN instead of holding up the watchdog.
        connect(&socket, &SocketAddrUnix::new(&self.path)?)?;
        Ok(socket)
    }
}

impl Connection {
    fn turn(&mut self, out: &mut Vec<Event>) -> Result<(), String> {
        let text = |what: &str, e: Errno| format!("{what}: {}", std::io::Error::from(e));
        // What was said before the end is heard before the end is told.
        let written = self.write().map_err(|e| text("write", e));
        let mut buffer = [0; 16 << 10];
        let read = loop {
            match recv(&self.socket, &mut buffer, RecvFlags::empty()) {
                Ok((_, 0)) => break Err("it closed the connection".to_owned()),
                Ok((_, n)) => self.input.extend_from_slice(&buffer[..n]),
                Err(Errno::AGAIN) => break Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => break Err(text("read", e)),
            }
            self.take(out)?;
        };
        read.and(written)
    }

    /// Takes whole messages off the input.
    fn take(&mut self, out: &mut Vec<Event>) -> Result<(), String> {
        let mut at = 0;
        while let Some((message, bytes)) = decode::<ToWorker>(&self.input[at..]).map_err(|e| e.to_string())? {
            at += bytes;
            self.booted |= matches!(message, ToWorker::Boot { .. });
            out.push(Event::Said(message));
        }
        self.input.drain(..at);
        Ok(())
    }

    fn write(&mut self) -> Result<(), Errno> {
        while !self.output.is_empty() {
            match send(&self.socket, &self.output, SendFlags::NOSIGNAL) {
                Ok(n) => drop(self.output.drain(..n)),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
