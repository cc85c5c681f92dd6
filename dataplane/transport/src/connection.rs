//! What a handshake leaves: a way for bytes between two loops, proven on both sides.
//!
//! Before: `connector.rs` on the watchdog's thread. After: the carrier of the loop it is for.

use crate::memory::SharedMemory;
use crate::sim;
use std::os::fd::OwnedFd;

/// See the head of this file.
pub enum Connection {
    /// A stream socket; nothing behind the handshake was read.
    Socket(OwnedFd),
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
    /// For logs and status: "tcp", "memory", "simulated".
    pub fn kind(&self) -> &'static str {
        match self {
            Connection::Socket(_) => "tcp",
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
