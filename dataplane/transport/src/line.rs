//! A socket on which two strangers talk: plain, or under TLS, which is set up on the way. The handshake does not see the difference.
//!
//! Before: `accept.rs` / `dial.rs` have a fresh connection. After: [`Line::into_connection`].

use crate::connection::Connection;
use crate::tls::{Tls, TlsError};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::OwnedFd;

/// Why a line ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    /// The other side is gone; the end of the stream too, since a handshake has its own end.
    #[error(transparent)]
    Gone(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl From<Errno> for LineError {
    fn from(e: Errno) -> Self {
        LineError::Gone(e.into())
    }
}

/// See the head of this file.
pub(crate) struct Line {
    pub(crate) socket: OwnedFd,
    tls: Option<Box<Tls>>,
}

impl Line {
    pub(crate) fn new(socket: OwnedFd, tls: Option<Tls>) -> Self {
        Line { socket, tls: tls.map(Box::new) }
    }

    /// For the proofs. `None` = without TLS, or not established yet.
    pub(crate) fn binding(&self) -> Option<[u8; 32]> {
        self.tls.as_ref().and_then(|tls| tls.binding())
    }

    /// True = the socket is to be polled for writing, with `output` waiting; else for reading.
    pub(crate) fn wants_write(&self, output: &[u8]) -> bool {
        match &self.tls {
            None => !output.is_empty(),
            Some(tls) => !tls.outgoing().is_empty() || (tls.binding().is_some() && !output.is_empty()),
        }
    }

    /// Writes what the socket takes. True = all that can be said now; what waits for TLS stays in `output`.
    pub(crate) fn write_some(&mut self, output: &mut Vec<u8>) -> Result<bool, LineError> {
        let Some(tls) = &mut self.tls else { return write_some(&self.socket, output) };
        loop {
            let n = tls.seal(output);
            output.drain(..n);
            if tls.outgoing().is_empty() {
                return Ok(true);
            }
            match send(&self.socket, tls.outgoing(), SendFlags::NOSIGNAL) {
                Ok(n) => tls.written(n),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(e) => return Err(gone(tls, e.into())),
            }
        }
    }

    /// Reads what is there. `None` = nothing yet; `Some(0)` = nothing, but now there is something to write.
    pub(crate) fn read_some(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, LineError> {
        let Some(tls) = &mut self.tls else { return read_some(&self.socket, buffer) };
        loop {
            let n = tls.read(buffer)?;
            if n > 0 {
                return Ok(Some(n));
            }
            if tls.closed() {
                return Err(hung_up());
            }
            let begun = tls.binding().is_none();
            let received = match recv(&self.socket, &mut *tls.cipher_room(), RecvFlags::empty()) {
                Ok((_, 0)) => return Err(gone(tls, io::ErrorKind::UnexpectedEof.into())),
                Ok((_, n)) => tls.received(n),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(e) => return Err(gone(tls, e.into())),
            };
            if let Err(e) = received {
                // The alert, for a peer that wants to know; once, since nobody waits for it.
                let _ = send(&self.socket, tls.outgoing(), SendFlags::NOSIGNAL);
                return Err(e.into());
            }
            if !tls.outgoing().is_empty() || (begun && tls.binding().is_some()) {
                return Ok(Some(0));
            }
        }
    }

    /// The peer is admitted.
    pub(crate) fn into_connection(self) -> Connection {
        match self.tls {
            None => Connection::Socket(self.socket),
            Some(mut tls) => {
                tls.open();
                Connection::Secured { socket: self.socket, tls }
            }
        }
    }
}

fn hung_up() -> LineError {
    LineError::Gone(io::Error::new(io::ErrorKind::UnexpectedEof, "the other side hung up"))
}

/// A door without TLS hangs up at the first bytes that are TLS; that is worth other words.
fn gone(tls: &Tls, e: io::Error) -> LineError {
    match e.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe if tls.is_unanswered() => {
            TlsError::HungUp.into()
        }
        io::ErrorKind::UnexpectedEof => hung_up(),
        _ => e.into(),
    }
}

fn write_some(socket: &OwnedFd, output: &mut Vec<u8>) -> Result<bool, LineError> {
    while !output.is_empty() {
        match send(socket, output, SendFlags::NOSIGNAL) {
            Ok(n) => drop(output.drain(..n)),
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(true)
}

fn read_some(socket: &OwnedFd, buffer: &mut [u8]) -> Result<Option<usize>, LineError> {
    loop {
        match recv(socket, &mut *buffer, RecvFlags::empty()) {
            Ok((_, 0)) => return Err(hung_up()),
            Ok((_, n)) => return Ok(Some(n)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
