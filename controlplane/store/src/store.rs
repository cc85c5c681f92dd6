//! The typed store: what can be asked of cluster state.

use crate::error::StoreError;
use crate::paths::Family;
use crate::tree::{Connection, Leadership};
use async_trait::async_trait;
use saetta_model::beat::SupervisorBeat;
use saetta_model::{Assignment, Name, SupervisorInfo, TopologyRecord};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::watch;

/// Errors kept per component; older ones are dropped.
pub const ERRORS_KEPT_MAX: usize = 10;

/// Version of a node, for compare-and-set. Rises with each write; meaningless across nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub(crate) i32);

/// A value with the version it was read at.
#[derive(Debug, Clone, PartialEq)]
pub struct Versioned<T> {
    /// The value.
    pub value: T,
    /// Hand it back when writing.
    pub version: Version,
}

/// A node that holds no readable value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corrupt {
    /// Node.
    pub path: String,
    /// What is wrong with it.
    pub why: String,
}

/// All values of a family. One unreadable node does not hide the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing<T> {
    /// Readable ones by name.
    pub items: BTreeMap<Name, Versioned<T>>,
    /// Unreadable ones by the last part of their path.
    pub corrupt: BTreeMap<String, Corrupt>,
}

/// A nimbus, in `nimbuses/<id>` and in its place in `leader/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NimbusInfo {
    /// Stable over restarts.
    pub id: Name,
    /// Address of its REST interface, `host:port`.
    pub address: String,
}

/// Which nimbuses hold a binary.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobHolders {
    /// Length of the binary.
    pub bytes: u64,
    /// Ids of nimbuses with a verified copy on disk.
    pub nimbuses: BTreeSet<Name>,
}

/// The scheduler plugin that an operator chose while the cluster ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerChoice {
    /// As operators call it.
    pub plugin: String,
    /// SHA-256 of its file, hex; empty = the one each nimbus finds by its own configuration.
    pub sha256: String,
    /// Length of its file.
    pub bytes: u64,
    /// When it was chosen, milliseconds since 1970.
    pub at_ms: u64,
}

/// What scheduler plugins want to find again under another leader: by the id of the plugin, hex digits.
pub type SchedulerMemory = BTreeMap<String, String>;

/// One error of one component, as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorEntry {
    /// When, milliseconds since 1970.
    pub at_ms: u64,
    /// Supervisor it happened on.
    pub node: Name,
    /// Port of the worker.
    pub port: u16,
    /// One line.
    pub text: String,
}

/// Cluster state. Reads and writes answer within 5 s: with the value, or with an error that says who must act.
///
/// While the store is away every call answers [`StoreError::Unavailable`]; the implementation reconnects by itself, makes
/// kept ephemeral nodes again and fires every signal, so that readers read again. A write that ended *unavailable* may have
/// happened. Writes that take a [`Leadership`] fail with [`StoreError::Fenced`] once its lock is gone, even where this process has not
/// noticed yet.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// A signal that rises whenever something in `family` may have changed. It only means "read again": several changes may
    /// be one signal, and every 10 s it rises without a change. Never closes before [`Store::close`].
    fn watch(&self, family: Family) -> watch::Receiver<u64>;

    /// Whether there is a session, and since when. Changes wake the receiver.
    fn connection(&self) -> watch::Receiver<Connection>;

    /// Session timeout: as agreed with the server where connected, else as configured.
    fn session_timeout(&self) -> Duration;

    /// All topology records.
    async fn topologies(&self) -> Result<Listing<TopologyRecord>, StoreError>;
    /// One topology record.
    async fn topology(&self, id: &Name) -> Result<Versioned<TopologyRecord>, StoreError>;
    /// Makes a record (and the place of its errors). `Conflict` when the id exists.
    async fn create_topology(&self, lead: &Leadership, record: &TopologyRecord) -> Result<Version, StoreError>;
    /// Replaces a record read at `expected`.
    async fn update_topology(&self, lead: &Leadership, record: &TopologyRecord, expected: Version) -> Result<Version, StoreError>;
    /// Removes a record with its errors and, where one is left, its assignment. Removing what is not there is fine.
    async fn delete_topology(&self, lead: &Leadership, id: &Name) -> Result<(), StoreError>;

    /// All assignments by topology id.
    async fn assignments(&self) -> Result<Listing<Assignment>, StoreError>;
    /// One assignment.
    async fn assignment(&self, topology: &Name) -> Result<Versioned<Assignment>, StoreError>;
    /// Writes an assignment; `expected` = `None` means there is none yet. Fails (`NotFound`) when the topology has no record.
    async fn put_assignment(
        &self,
        lead: &Leadership,
        topology: &Name,
        assignment: &Assignment,
        expected: Option<Version>,
    ) -> Result<Version, StoreError>;
    /// Removes an assignment. Removing what is not there is fine.
    async fn delete_assignment(&self, lead: &Leadership, topology: &Name) -> Result<(), StoreError>;

    /// All supervisors that are here now.
    async fn supervisors(&self) -> Result<Listing<SupervisorInfo>, StoreError>;
    /// Says that a supervisor is here, and keeps saying so until [`Store::withdraw_supervisor`] or [`Store::close`]: the node is made
    /// again after each lost session, in place of what a former session left. `Unavailable` = noted, and done as soon as the store is back.
    /// Call again to change the value.
    async fn keep_supervisor(&self, info: &SupervisorInfo) -> Result<(), StoreError>;
    /// Takes it back. Withdrawing what is not there is fine.
    async fn withdraw_supervisor(&self, id: &Name) -> Result<(), StoreError>;

    /// All beats by supervisor id.
    async fn beats(&self) -> Result<Listing<SupervisorBeat>, StoreError>;
    /// Writes the beat of a supervisor; the newest wins.
    async fn put_beat(&self, supervisor: &Name, beat: &SupervisorBeat) -> Result<(), StoreError>;
    /// Removes the beat of a supervisor that will not come back.
    async fn delete_beat(&self, supervisor: &Name) -> Result<(), StoreError>;

    /// Errors of a topology by component, oldest first.
    async fn errors(&self, topology: &Name) -> Result<BTreeMap<Name, Vec<ErrorEntry>>, StoreError>;
    /// Adds an error; the last [`ERRORS_KEPT_MAX`] stay. `NotFound` when the topology is gone. Limit the rate before calling.
    async fn report_error(&self, topology: &Name, component: &Name, entry: ErrorEntry) -> Result<(), StoreError>;

    /// All nimbuses that are here now.
    async fn nimbuses(&self) -> Result<Listing<NimbusInfo>, StoreError>;
    /// Says that a nimbus is here; kept like [`Store::keep_supervisor`].
    async fn keep_nimbus(&self, info: &NimbusInfo) -> Result<(), StoreError>;

    /// Which nimbuses hold a binary; `NotFound` when none ever did. `sha256` is 64 lower-case hex digits, else `Refused`.
    async fn blob(&self, sha256: &str) -> Result<BlobHolders, StoreError>;
    /// Every known binary.
    async fn blobs(&self) -> Result<BTreeMap<String, BlobHolders>, StoreError>;
    /// Adds one nimbus to the holders of a binary.
    async fn add_blob_holder(&self, lead: &Leadership, sha256: &str, bytes: u64, nimbus: &Name) -> Result<(), StoreError>;
    /// Forgets a binary. Forgetting what is not there is fine.
    async fn delete_blob(&self, lead: &Leadership, sha256: &str) -> Result<(), StoreError>;

    /// The chosen scheduler plugin; `None` = each nimbus goes by its configuration.
    async fn scheduler(&self) -> Result<Option<SchedulerChoice>, StoreError>;
    /// Chooses one; the newest wins.
    async fn put_scheduler(&self, lead: &Leadership, choice: &SchedulerChoice) -> Result<(), StoreError>;

    /// What scheduler plugins saved; empty = nothing yet.
    async fn scheduler_memory(&self) -> Result<SchedulerMemory, StoreError>;
    /// Replaces it.
    async fn put_scheduler_memory(&self, lead: &Leadership, memory: &SchedulerMemory) -> Result<(), StoreError>;

    /// Who leads now, if anybody.
    async fn leader(&self) -> Result<Option<NimbusInfo>, StoreError>;
    /// Stands for election and waits, through any loss of the store, until it leads. Dropping the future stands down.
    async fn campaign(&self, info: &NimbusInfo) -> Result<Leadership, StoreError>;

    /// Takes a dead process with this id out of the line, which would else stand there until its session times out. Only for a caller
    /// that knows it to be dead, as a nimbus does that holds the lock of its directory; were it alive, it would lose its leadership.
    async fn bury_contender(&self, id: &Name) -> Result<(), StoreError>;

    /// Ends the session: kept nodes and locks of this handle go at once. Every later call answers `Unavailable`.
    async fn close(&self);
}
