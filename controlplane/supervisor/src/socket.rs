//! The local socket of each slot: bytes to messages and back.
//!
//! Before: a worker connects to the path it was given. After: `agent` knows who it is and has a way to talk to it.
//! What is sent is level-triggered: the newest update replaces one not yet written, so nothing queues for a worker that
//! does not read.

use saetta_model::local::{FromWorker, MESSAGE_BYTES_MAX, ToWorker, decode, encode};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tracing::{debug, warn};

/// A connection that has not said hello for this long is closed.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections of one slot at a time: the worker's, a successor's, and some that are closing.
pub(crate) const CONNECTIONS_MAX: usize = 8;

/// What is to be written to a worker. Everything here is the newest of its kind.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outbox {
    /// `Boot`, once.
    pub boot: Option<Arc<[u8]>>,
    /// The newest `Update`, with a number that rises.
    pub update: Option<(u64, Arc<[u8]>)>,
    /// `Stop`.
    pub stop: bool,
    /// `Refused`; the connection closes after it.
    pub refused: Option<String>,
}

/// A worker's connection. Closes when dropped.
#[derive(Debug)]
pub(crate) struct Conn {
    /// Tells connections of one slot apart.
    pub id: u64,
    /// What is to be written.
    pub outbox: watch::Sender<Outbox>,
}

/// What comes out of a slot's socket.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A worker said hello on a new connection.
    Hello {
        /// Its first message, always `FromWorker::Hello`.
        hello: FromWorker,
        /// Process id, as the kernel knows it.
        pid: u32,
        /// How to answer.
        conn: Conn,
    },
    /// Any later message.
    Said {
        /// Which connection.
        conn: u64,
        /// What.
        message: FromWorker,
    },
    /// The connection has ended.
    Closed {
        /// Which.
        conn: u64,
    },
}

/// Binds a slot's socket in place of whatever a former supervisor left, for this user only.
pub(crate) fn bind(path: &Path) -> std::io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Accepts for ever; what workers say goes to `heard`, which pushes back on them when it is full.
pub(crate) async fn serve(port: u16, listener: UnixListener, heard: mpsc::Sender<(u16, Heard)>) {
    let slots = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = Arc::clone(&slots).acquire_owned().await.expect("never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let heard = heard.clone();
                tokio::spawn(async move {
                    talk(port, stream, heard).await;
                    drop(permit);
                });
            }
            Err(e) => {
                warn!(port, "accepting on the local socket: {e}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn talk(port: u16, stream: UnixStream, heard: mpsc::Sender<(u16, Heard)>) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let Ok(peer) = stream.peer_cred() else { return };
    if peer.uid() != rustix::process::getuid().as_raw() {
        return warn!(port, "a process of user {} at the local socket was turned away", peer.uid());
    }
    let pid = peer.pid().and_then(|p| u32::try_from(p).ok()).unwrap_or(0);
    let (read, write) = stream.into_split();
    let mut reader = Reader { read, buffer: Vec::new() };
    let hello = match tokio::time::timeout(HELLO_TIMEOUT, reader.next()).await {
        Ok(Ok(Some(hello @ FromWorker::Hello { .. }))) => hello,
        Ok(Ok(None)) => return,
        Ok(Ok(Some(_))) => return warn!(port, "process {pid} at the local socket did not begin with hello"),
        Ok(Err(e)) => return warn!(port, "process {pid} at the local socket: {e}"),
        Err(_) => return debug!(port, "process {pid} at the local socket said nothing"),
    };
    // Relaxed: only uniqueness matters.
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let (outbox, to_write) = watch::channel(Outbox::default());
    if heard.send((port, Heard::Hello { hello, pid, conn: Conn { id, outbox } })).await.is_err() {
        return;
    }
    // Reading ends when the worker closes; writing ends when the agent lets go of the connection. Either ends both.
    tokio::select! {
        () = write_all(port, write, to_write) => {}
        () = read_all(port, id, &mut reader, &heard) => {}
    }
    let _ = heard.send((port, Heard::Closed { conn: id })).await;
}

async fn read_all(port: u16, conn: u64, reader: &mut Reader, heard: &mpsc::Sender<(u16, Heard)>) {
    loop {
        match reader.next().await {
            Ok(Some(message)) => {
                if heard.send((port, Heard::Said { conn, message })).await.is_err() {
                    return;
                }
            }
            Ok(None) => return,
            Err(e) => return warn!(port, "a worker at the local socket: {e}"),
        }
    }
}

async fn write_all(port: u16, mut write: OwnedWriteHalf, mut outbox: watch::Receiver<Outbox>) {
    let (mut booted, mut updated, mut stopped) = (false, 0, false);
    loop {
        let now = outbox.borrow_and_update().clone();
        let mut bytes: Vec<Arc<[u8]>> = Vec::new();
        if !booted && let Some(boot) = now.boot {
            booted = true;
            bytes.push(boot);
        }
        if let Some((n, update)) = now.update.filter(|(n, _)| *n > updated) {
            updated = n;
            bytes.push(update);
        }
        if now.stop && !stopped {
            stopped = true;
            bytes.push(encode(&ToWorker::Stop).into());
        }
        let last = now.refused.is_some();
        if let Some(why) = now.refused {
            bytes.push(encode(&ToWorker::Refused { why }).into());
        }
        for piece in bytes {
            if let Err(e) = write.write_all(&piece).await {
                return debug!(port, "writing to a worker: {e}");
            }
        }
        if last || outbox.changed().await.is_err() {
            return;
        }
    }
}

struct Reader {
    read: OwnedReadHalf,
    buffer: Vec<u8>,
}

impl Reader {
    /// The next message; `None` = the worker closed. At most one message beyond the limit is ever held.
    async fn next(&mut self) -> std::io::Result<Option<FromWorker>> {
        loop {
            match decode::<FromWorker>(&self.buffer) {
                Err(e) => return Err(std::io::Error::other(e)),
                Ok(Some((message, bytes))) => {
                    self.buffer.drain(..bytes);
                    return Ok(Some(message));
                }
                Ok(None) => debug_assert!(self.buffer.len() <= MESSAGE_BYTES_MAX + 4, "decode refuses longer messages"),
            }
            self.buffer.reserve(16 << 10);
            if self.read.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}
