//! What a handshake leaves: a way for bytes between two loops, proven on both sides.
//!
//! Before: `connector.rs` on the watchdog's thread. After: the carrier of the loop it is for.

use crate::memory::SharedMemory;
use crate::sim;
use crate::tls::Tls;
use std::os::fd::OwnedFd;

/// See the head of this file.
pub enum Connection {
    /// A stream socket; nothing behind the handshake was read.
    Socket(OwnedFd),
    /// A stream socket under TLS. What came behind the handshake may be in `tls` already: read it before the first receive, and write what is in
    /// its `outgoing`.
    Secured {
        /// Carries ciphertext only.
        socket: OwnedFd,
        /// Opened: its buffers are a link's and do not move any more.
        tls: Box<Tls>,
    },
    /// Memory that a worker of this host shares.
    Memory(Box<SharedMemory>),
    /// One end of a connection in memory, for tests and the simulator.
    Simulated(sim::End),
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind())
    }
}

impl Connection {
    /// For logs and status: "tcp", "tls", "memory", "simulated".
    pub fn kind(&self) -> &'static str {
        match self {
            Connection::Socket(_) => "tcp",
            Connection::Secured { .. } => "tls",
            Connection::Memory(_) => "memory",
            Connection::Simulated(_) => "simulated",
        }
    }
}

impl From<OwnedFd> for Connection {
    fn from(socket: OwnedFd) -> Self {
        Connection::Socket(socket)
    }
}
