//! The untyped tree of nodes both carriers offer. `typed.rs` stands on it; nothing else needs it.

use crate::error::StoreError;
use crate::paths::{Family, Paths};
use async_trait::async_trait;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// A node as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Rises by one with each write of this node.
    pub version: i32,
}

/// One write of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Makes a node; its parent exists.
    Create {
        /// Path.
        path: String,
        /// Value.
        bytes: Vec<u8>,
    },
    /// Replaces a value; `version` `None` = whatever it was.
    Set {
        /// Path.
        path: String,
        /// Value.
        bytes: Vec<u8>,
        /// Version it must have.
        version: Option<i32>,
    },
    /// Removes a node without children.
    Delete {
        /// Path.
        path: String,
    },
    /// Only asks that a node exists.
    Check {
        /// Path.
        path: String,
    },
}

impl Write {
    /// The node it is about.
    pub fn path(&self) -> &str {
        match self {
            Write::Create { path, .. } | Write::Set { path, .. } | Write::Delete { path } | Write::Check { path } => path,
        }
    }
}

/// Whether there is a session with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// True while requests reach the store.
    pub up: bool,
    /// When that became so (monotonic).
    pub since: Instant,
}

/// Proof of leading: every leader write carries it. Dropping it stands down; so does losing the session for two thirds of its timeout.
#[derive(Debug)]
pub struct Leadership {
    pub(crate) lost: watch::Receiver<bool>,
    pub(crate) grant: Grant,
}

/// What the carrier keeps in it.
#[derive(Debug)]
pub(crate) enum Grant {
    Zk(zookeeper_client::OwnedLockClient),
    Memory(crate::memory::MemoryLock),
}

impl Leadership {
    /// True until the loss is noticed. The store itself decides at each write; this only saves a useless one.
    pub fn is_held(&self) -> bool {
        !*self.lost.borrow()
    }

    /// Rises with each change of the leader: the number of its place in the line.
    pub fn number(&self) -> u64 {
        let path = match &self.grant {
            Grant::Zk(lock) => lock.lock_path(),
            Grant::Memory(lock) => lock.path(),
        };
        crate::typed::sequence_of(path)
    }

    /// Waits until the lock is lost or about to be.
    pub async fn lost(&self) {
        let mut lost = self.lost.clone();
        // An error means that the carrier ended: lost as well.
        let _ = lost.wait_for(|lost| *lost).await;
    }
}

/// What a carrier does. Errors as in [`crate::Store`]; no call but `lock` takes longer than 5 s.
#[async_trait]
pub trait Tree: Send + Sync + 'static {
    /// The layout.
    fn paths(&self) -> &Paths;
    /// Change signal of a family.
    fn signal(&self, family: Family) -> watch::Receiver<u64>;
    /// Session state.
    fn connection(&self) -> watch::Receiver<Connection>;
    /// Session timeout.
    fn session_timeout(&self) -> Duration;
    /// One node.
    async fn read(&self, path: &str) -> Result<Option<Node>, StoreError>;
    /// Names of the children of a node; a node that does not exist has none.
    async fn children(&self, path: &str) -> Result<Vec<String>, StoreError>;
    /// The children with their values; those that vanish meanwhile are left out.
    async fn read_children(&self, path: &str) -> Result<Vec<(String, Node)>, StoreError>;
    /// All writes or none. With a fence, only while its lock is held.
    async fn commit(&self, fence: Option<&Leadership>, writes: Vec<Write>) -> Result<(), StoreError>;
    /// Makes an ephemeral node and keeps it there over lost sessions.
    async fn keep(&self, path: String, bytes: Vec<u8>) -> Result<(), StoreError>;
    /// Removes a kept node.
    async fn unkeep(&self, path: &str) -> Result<(), StoreError>;
    /// Waits for the leader's lock; `bytes` is the value of this contender's place.
    async fn lock(&self, bytes: Vec<u8>) -> Result<Leadership, StoreError>;
    /// Ends the session.
    async fn close(&self);
}

/// Part of the session timeout a leader may be without connection before it stops leading by itself: it must have stopped
/// before the server lets another one lead.
const LEASE_NUM: u32 = 2;
const LEASE_DEN: u32 = 3;

/// Returns once the connection has been down for two thirds of `session_timeout`, or the carrier has ended.
pub(crate) async fn lease_over(mut connection: watch::Receiver<Connection>, session_timeout: Duration) {
    let grace = session_timeout * LEASE_NUM / LEASE_DEN;
    loop {
        let now = *connection.borrow_and_update();
        if now.up {
            if connection.changed().await.is_err() {
                return;
            }
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep_until(now.since + grace) => return,
            ended = connection.changed() => if ended.is_err() { return },
        }
    }
}

/// One change signal per family.
#[derive(Debug)]
pub(crate) struct Signals([watch::Sender<u64>; Family::ALL.len()]);

impl Signals {
    pub(crate) fn new() -> Self {
        Signals(std::array::from_fn(|_| watch::Sender::new(0)))
    }

    pub(crate) fn of(&self, family: Family) -> &watch::Sender<u64> {
        &self.0[family as usize]
    }

    pub(crate) fn fire(&self, family: Family) {
        self.of(family).send_modify(|n| *n += 1);
    }

    pub(crate) fn fire_all(&self) {
        Family::ALL.into_iter().for_each(|f| self.fire(f));
    }
}

/// Every signal rises at least this often, so that a lost watch costs time and not truth.
pub(crate) const SAFETY_SIGNAL_EVERY: Duration = Duration::from_secs(10);
