//! Types over the tree: which node holds what, which writes are one transaction, which need the leader's lock.

use crate::error::StoreError;
use crate::paths::{Family, is_sha256};
use crate::store::{BlobHolders, Corrupt, ERRORS_KEPT_MAX, ErrorEntry, Listing, NimbusInfo, SchedulerChoice, SchedulerMemory, Store};
use crate::store::{Version, Versioned};
use crate::tree::{Connection, Leadership, Node, Tree, Write};
use crate::value::{decode, encode};
use async_trait::async_trait;
use saetta_model::beat::SupervisorBeat;
use saetta_model::{Assignment, Name, SupervisorInfo, TopologyRecord};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;

/// How often a read-change-write is tried again when others write the same node.
const CAS_TRIES_MAX: usize = 16;

#[async_trait]
impl<T: Tree> Store for T {
    fn watch(&self, family: Family) -> watch::Receiver<u64> {
        self.signal(family)
    }

    fn connection(&self) -> watch::Receiver<Connection> {
        Tree::connection(self)
    }

    fn session_timeout(&self) -> Duration {
        Tree::session_timeout(self)
    }

    async fn topologies(&self) -> Result<Listing<TopologyRecord>, StoreError> {
        list(self, Family::Topologies).await
    }

    async fn topology(&self, id: &Name) -> Result<Versioned<TopologyRecord>, StoreError> {
        get(self, self.paths().node(Family::Topologies, id)).await
    }

    async fn create_topology(&self, lead: &Leadership, record: &TopologyRecord) -> Result<Version, StoreError> {
        let path = self.paths().node(Family::Topologies, &record.id);
        let bytes = encode(&path, record)?;
        let errors = self.paths().errors_of(&record.id);
        self.commit(Some(lead), vec![Write::Create { path, bytes }, Write::Create { path: errors, bytes: Vec::new() }]).await?;
        Ok(Version(0))
    }

    async fn update_topology(&self, lead: &Leadership, record: &TopologyRecord, expected: Version) -> Result<Version, StoreError> {
        put(self, Some(lead), self.paths().node(Family::Topologies, &record.id), record, Some(expected), None).await
    }

    async fn delete_topology(&self, lead: &Leadership, id: &Name) -> Result<(), StoreError> {
        let (record, errors, assignment) =
            (self.paths().node(Family::Topologies, id), self.paths().errors_of(id), self.paths().node(Family::Assignments, id));
        // A supervisor may add an error between the list and the transaction; then the transaction fails as a whole.
        for _ in 0..CAS_TRIES_MAX {
            let mut writes = Vec::new();
            if self.read(&assignment).await?.is_some() {
                writes.push(Write::Delete { path: assignment.clone() });
            }
            for component in self.children(&errors).await? {
                writes.push(Write::Delete { path: format!("{errors}/{component}") });
            }
            if self.read(&errors).await?.is_some() {
                writes.push(Write::Delete { path: errors.clone() });
            }
            if self.read(&record).await?.is_some() {
                writes.push(Write::Delete { path: record.clone() });
            }
            if writes.is_empty() {
                return Ok(());
            }
            match self.commit(Some(lead), writes).await {
                Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => continue,
                other => return other,
            }
        }
        Err(too_busy(record))
    }

    async fn assignments(&self) -> Result<Listing<Assignment>, StoreError> {
        list(self, Family::Assignments).await
    }

    async fn assignment(&self, topology: &Name) -> Result<Versioned<Assignment>, StoreError> {
        get(self, self.paths().node(Family::Assignments, topology)).await
    }

    async fn put_assignment(
        &self,
        lead: &Leadership,
        topology: &Name,
        assignment: &Assignment,
        expected: Option<Version>,
    ) -> Result<Version, StoreError> {
        let path = self.paths().node(Family::Assignments, topology);
        let record = Write::Check { path: self.paths().node(Family::Topologies, topology) };
        put(self, Some(lead), path, assignment, expected, Some(record)).await
    }

    async fn delete_assignment(&self, lead: &Leadership, topology: &Name) -> Result<(), StoreError> {
        delete(self, Some(lead), self.paths().node(Family::Assignments, topology)).await
    }

    async fn supervisors(&self) -> Result<Listing<SupervisorInfo>, StoreError> {
        list(self, Family::Supervisors).await
    }

    async fn keep_supervisor(&self, info: &SupervisorInfo) -> Result<(), StoreError> {
        let path = self.paths().node(Family::Supervisors, &info.id);
        let bytes = encode(&path, info)?;
        self.keep(path, bytes).await
    }

    async fn withdraw_supervisor(&self, id: &Name) -> Result<(), StoreError> {
        self.unkeep(&self.paths().node(Family::Supervisors, id)).await
    }

    async fn beats(&self) -> Result<Listing<SupervisorBeat>, StoreError> {
        list(self, Family::Beats).await
    }

    async fn put_beat(&self, supervisor: &Name, beat: &SupervisorBeat) -> Result<(), StoreError> {
        let path = self.paths().node(Family::Beats, supervisor);
        let bytes = encode(&path, beat)?;
        for _ in 0..CAS_TRIES_MAX {
            match self.commit(None, vec![Write::Set { path: path.clone(), bytes: bytes.clone(), version: None }]).await {
                Err(StoreError::NotFound { .. }) => {}
                other => return other,
            }
            match self.commit(None, vec![Write::Create { path: path.clone(), bytes: bytes.clone() }]).await {
                Err(StoreError::Conflict { .. }) => {}
                other => return other,
            }
        }
        Err(too_busy(path))
    }

    async fn delete_beat(&self, supervisor: &Name) -> Result<(), StoreError> {
        delete(self, None, self.paths().node(Family::Beats, supervisor)).await
    }

    async fn errors(&self, topology: &Name) -> Result<BTreeMap<Name, Vec<ErrorEntry>>, StoreError> {
        let dir = self.paths().errors_of(topology);
        let mut all = BTreeMap::new();
        for (component, node) in self.read_children(&dir).await? {
            let path = format!("{dir}/{component}");
            let Ok(name) = Name::try_from(component) else { continue };
            // Unreadable errors must not hide the others, nor the topology they are about.
            all.insert(name, decode(&path, &node.bytes).unwrap_or_default());
        }
        Ok(all)
    }

    async fn report_error(&self, topology: &Name, component: &Name, entry: ErrorEntry) -> Result<(), StoreError> {
        let path = self.paths().errors(topology, component);
        for _ in 0..CAS_TRIES_MAX {
            let node = self.read(&path).await?;
            // Unreadable errors are worth less than the new one: they are replaced.
            let mut entries: Vec<ErrorEntry> = node.as_ref().and_then(|n| decode(&path, &n.bytes).ok()).unwrap_or_default();
            entries.push(entry.clone());
            let excess = entries.len().saturating_sub(ERRORS_KEPT_MAX);
            entries.drain(..excess);
            let bytes = encode(&path, &entries)?;
            let (write, racing) = match &node {
                Some(n) => (Write::Set { path: path.clone(), bytes, version: Some(n.version) }, false),
                None => (Write::Create { path: path.clone(), bytes }, true),
            };
            match self.commit(None, vec![write]).await {
                Err(StoreError::Conflict { .. }) => continue,
                // Removed between read and write: with the parent gone, the create of the next try says so.
                Err(StoreError::NotFound { .. }) if !racing => continue,
                other => return other,
            }
        }
        Err(too_busy(path))
    }

    async fn nimbuses(&self) -> Result<Listing<NimbusInfo>, StoreError> {
        list(self, Family::Nimbuses).await
    }

    async fn keep_nimbus(&self, info: &NimbusInfo) -> Result<(), StoreError> {
        let path = self.paths().node(Family::Nimbuses, &info.id);
        let bytes = encode(&path, info)?;
        self.keep(path, bytes).await
    }

    async fn blob(&self, sha256: &str) -> Result<BlobHolders, StoreError> {
        let path = blob_path(self, sha256)?;
        Ok(get(self, path).await?.value)
    }

    async fn blobs(&self) -> Result<BTreeMap<String, BlobHolders>, StoreError> {
        let dir = self.paths().dir(Family::Blobs);
        let mut all = BTreeMap::new();
        for (sha256, node) in self.read_children(&dir).await? {
            if is_sha256(&sha256) {
                // An unreadable entry is one without known holders.
                let holders = decode(&format!("{dir}/{sha256}"), &node.bytes).unwrap_or_default();
                all.insert(sha256, holders);
            }
        }
        Ok(all)
    }

    async fn add_blob_holder(&self, lead: &Leadership, sha256: &str, bytes: u64, nimbus: &Name) -> Result<(), StoreError> {
        let path = blob_path(self, sha256)?;
        for _ in 0..CAS_TRIES_MAX {
            let node = self.read(&path).await?;
            let mut holders: BlobHolders = node.as_ref().and_then(|n| decode(&path, &n.bytes).ok()).unwrap_or_default();
            holders.bytes = bytes;
            if !holders.nimbuses.insert(nimbus.clone()) {
                return Ok(());
            }
            match put(self, Some(lead), path.clone(), &holders, node.map(|n| Version(n.version)), None).await {
                Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => continue,
                other => return other.map(drop),
            }
        }
        Err(too_busy(path))
    }

    async fn delete_blob(&self, lead: &Leadership, sha256: &str) -> Result<(), StoreError> {
        let path = blob_path(self, sha256)?;
        delete(self, Some(lead), path).await
    }

    async fn scheduler(&self) -> Result<Option<SchedulerChoice>, StoreError> {
        let path = self.paths().scheduler();
        self.read(&path).await?.map(|node| decode(&path, &node.bytes)).transpose()
    }

    async fn put_scheduler(&self, lead: &Leadership, choice: &SchedulerChoice) -> Result<(), StoreError> {
        replace(self, lead, self.paths().scheduler(), choice).await
    }

    async fn scheduler_memory(&self) -> Result<SchedulerMemory, StoreError> {
        let path = self.paths().scheduler_memory();
        Ok(self.read(&path).await?.map(|node| decode(&path, &node.bytes)).transpose()?.unwrap_or_default())
    }

    async fn put_scheduler_memory(&self, lead: &Leadership, memory: &SchedulerMemory) -> Result<(), StoreError> {
        replace(self, lead, self.paths().scheduler_memory(), memory).await
    }

    async fn leader(&self) -> Result<Option<NimbusInfo>, StoreError> {
        let dir = self.paths().dir(Family::Leader);
        let places = self.read_children(&dir).await?;
        let first = places.iter().min_by_key(|(name, _)| sequence_of(name));
        first.map(|(name, node)| decode(&format!("{dir}/{name}"), &node.bytes)).transpose()
    }

    async fn campaign(&self, info: &NimbusInfo) -> Result<Leadership, StoreError> {
        let bytes = encode(&self.paths().dir(Family::Leader), info)?;
        self.lock(bytes).await
    }

    async fn bury_contender(&self, id: &Name) -> Result<(), StoreError> {
        let dir = self.paths().dir(Family::Leader);
        for (name, node) in self.read_children(&dir).await? {
            let path = format!("{dir}/{name}");
            if decode::<NimbusInfo>(&path, &node.bytes).is_ok_and(|info| info.id == *id) {
                delete(self, None, path).await?;
            }
        }
        Ok(())
    }

    async fn close(&self) {
        Tree::close(self).await;
    }
}

/// The sequence number ZooKeeper put at the end of a name; what has none comes last.
pub(crate) fn sequence_of(name: &str) -> u64 {
    name.rsplit('-').next().and_then(|s| s.parse().ok()).unwrap_or(u64::MAX)
}

fn too_busy(path: String) -> StoreError {
    StoreError::Conflict { path, why: format!("others wrote it {CAS_TRIES_MAX} times in a row") }
}

fn blob_path(tree: &impl Tree, sha256: &str) -> Result<String, StoreError> {
    if is_sha256(sha256) {
        Ok(tree.paths().blob(sha256))
    } else {
        Err(StoreError::Refused { path: "blobs/".into(), why: format!("{sha256:?} is not a SHA-256 in 64 lower-case hex digits") })
    }
}

fn checked<V: DeserializeOwned>(path: &str, node: &Node) -> Result<Versioned<V>, StoreError> {
    Ok(Versioned { value: decode(path, &node.bytes)?, version: Version(node.version) })
}

async fn get<V: DeserializeOwned>(tree: &impl Tree, path: String) -> Result<Versioned<V>, StoreError> {
    match tree.read(&path).await? {
        Some(node) => checked(&path, &node),
        None => Err(StoreError::NotFound { path }),
    }
}

async fn list<V: DeserializeOwned>(tree: &impl Tree, family: Family) -> Result<Listing<V>, StoreError> {
    let dir = tree.paths().dir(family);
    let mut all = Listing { items: BTreeMap::new(), corrupt: BTreeMap::new() };
    for (name, node) in tree.read_children(&dir).await? {
        let path = format!("{dir}/{name}");
        let read = match Name::try_from(name.clone()) {
            Ok(id) => checked(&path, &node).map(|v| (id, v)).map_err(|e| match e {
                StoreError::Corrupt { why, .. } => why,
                other => other.to_string(),
            }),
            Err(e) => Err(e.to_string()),
        };
        match read {
            Ok((id, value)) => drop(all.items.insert(id, value)),
            Err(why) => drop(all.corrupt.insert(name, Corrupt { path, why })),
        }
    }
    Ok(all)
}

/// Writes a node whoever wrote it before; the newest wins.
async fn replace<V: serde::Serialize + Sync>(tree: &impl Tree, lead: &Leadership, path: String, value: &V) -> Result<(), StoreError> {
    for _ in 0..CAS_TRIES_MAX {
        let version = tree.read(&path).await?.map(|node| Version(node.version));
        match put(tree, Some(lead), path.clone(), value, version, None).await {
            Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => continue,
            other => return other.map(drop),
        }
    }
    Err(too_busy(path))
}

async fn put<V: serde::Serialize>(
    tree: &impl Tree,
    fence: Option<&Leadership>,
    path: String,
    value: &V,
    expected: Option<Version>,
    condition: Option<Write>,
) -> Result<Version, StoreError> {
    let bytes = encode(&path, value)?;
    let (write, version) = match expected {
        Some(Version(v)) => (Write::Set { path, bytes, version: Some(v) }, v + 1),
        None => (Write::Create { path, bytes }, 0),
    };
    tree.commit(fence, condition.into_iter().chain([write]).collect()).await?;
    Ok(Version(version))
}

async fn delete(tree: &impl Tree, fence: Option<&Leadership>, path: String) -> Result<(), StoreError> {
    match tree.commit(fence, vec![Write::Delete { path }]).await {
        Err(StoreError::NotFound { .. }) => Ok(()),
        other => other,
    }
}
