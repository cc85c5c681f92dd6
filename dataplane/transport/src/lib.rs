//! Lanes between workers: a TCP link joins two core loops, carries frames one way and credit the other, in both directions.
//!
//! Before: `saetta-engine`'s loop stages frames for a loop of another worker. After: that worker's loop gets them in place.
//! The walk: `dial.rs` / `accept.rs` (one [`Connector`] on the watchdog thread) make a socket and prove it (`handshake.rs`; inside `tls.rs` by
//! config), the loop gives it to its carrier (`carriers`), which moves the bytes that `link.rs` forms and understands; layout in `wire.rs`.
//!
//! Not here: tuples and tasks (a frame is a length and bytes), credit rules (limits are passed on), which peers there should be,
//! threads, an async runtime, ZooKeeper, log lines.

mod accept;
mod carrier;
mod carriers;
mod connection;
mod connector;
mod dial;
pub mod handshake;
mod line;
pub mod link;
mod memory;
#[expect(unsafe_code, reason = "asks the kernel for the user at the other end of a socket, of whom rustix cannot say all there is")]
mod peer_user;
mod refused;
mod send_log;
pub mod sim;
mod tls;
pub mod wire;

pub use accept::{Accepted, AcceptorCounters};
pub use carrier::{Counters, Ending, Inbound, LINKS_MAX, LinkEnd, LinkId, PIECE_POOL_BYTES, Peer, Road, SLOTS_MAX};
pub use carriers::{Carrier, Choice};
pub use connection::Connection;
pub use connector::{Connector, ConnectorEvent, ConnectorOptions};
pub use dial::{Target, TargetKey, probe};
pub use handshake::{Admission, Claim, Identity, Key, ProbeReply, Refusal, Role};
pub use link::{PiecePool, link_memory_bytes};
pub use memory::SharedMemory;
pub use refused::CarrierRefused;
pub use tls::{
    TLS_HANDSHAKE_BYTES_MAX, TLS_INCOMING_BYTES, TLS_MEMORY_MAX, TLS_OUTGOING_BYTES, TLS_UNPROVEN_MEMORY_MAX, Tls, TlsError, TlsSetup,
};
pub use wire::{FRAME_BYTES_MAX, RING_BYTES_DEFAULT, frame_bytes};
