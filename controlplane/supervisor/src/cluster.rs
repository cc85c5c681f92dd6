//! Between the store and the agent: readings in; presence, beats and errors out.
//!
//! Before: the store says "read again", or the agent has news. After: `agent` gets a reading; nimbus gets a value.
//! Each of these loops outlives any loss of the store: what cannot be read or written now is tried again, and the workers
//! notice nothing.

use crate::report::{Pace, Picture};
use saetta_model::{Assignment, Name, SupervisorInfo, TopologyRecord};
use saetta_store::{ErrorEntry, Family, Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// Pause after a reading or a write that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// One whole reading of what concerns supervisors.
#[derive(Debug)]
pub(crate) struct Reading {
    /// By topology id.
    pub(crate) assignments: BTreeMap<Name, Assignment>,
    /// By topology id.
    pub(crate) records: BTreeMap<Name, TopologyRecord>,
    /// Topologies with a node that could not be read.
    pub(crate) unreadable: BTreeSet<Name>,
}

/// Reads whenever something may have changed; `take` gets whole readings only.
pub(crate) async fn follow(store: Arc<dyn Store>, take: mpsc::Sender<Reading>) {
    let mut assignments = store.watch(Family::Assignments);
    let mut topologies = store.watch(Family::Topologies);
    let mut away = false;
    loop {
        // Marked as seen before reading: a change while we read means one more reading, never one too few.
        assignments.borrow_and_update();
        topologies.borrow_and_update();
        match read(&*store).await {
            Ok(reading) => {
                if std::mem::take(&mut away) {
                    info!("the store can be read again");
                }
                if take.send(reading).await.is_err() {
                    return;
                }
            }
            Err(e) => {
                if !std::mem::replace(&mut away, true) {
                    warn!("the store cannot be read ({e}); workers go on with what they have");
                }
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            }
        }
        let changed = tokio::select! {
            changed = assignments.changed() => changed,
            changed = topologies.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Assignments first: a topology's record is there as long as its assignment.
async fn read(store: &dyn Store) -> Result<Reading, StoreError> {
    let assignments = store.assignments().await?;
    let records = store.topologies().await?;
    let mut unreadable = BTreeSet::new();
    for (name, corrupt) in assignments.corrupt.iter().chain(&records.corrupt) {
        warn!("{}: {}; slots that run it keep running it", corrupt.path, corrupt.why);
        unreadable.extend(Name::new(name));
    }
    Ok(Reading {
        assignments: assignments.items.into_iter().map(|(id, v)| (id, v.value)).collect(),
        records: records.items.into_iter().map(|(id, v)| (id, v.value)).collect(),
        unreadable,
    })
}

/// Says that this node is here, until the store has taken note; from then on the store keeps saying it.
pub(crate) async fn register(store: Arc<dyn Store>, info: SupervisorInfo) {
    loop {
        match store.keep_supervisor(&info).await {
            Ok(()) => return info!("node {} is registered", info.id),
            Err(StoreError::Unavailable { .. }) => return info!("node {} is registered as soon as the store is back", info.id),
            Err(e) => {
                warn!("registering node {}: {e}", info.id);
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// Writes the newest beat at the pace that `report` sets.
pub(crate) async fn beat(store: Arc<dyn Store>, node: Name, mut newest: watch::Receiver<Picture>) {
    let began = Instant::now();
    let mut pace = Pace::default();
    loop {
        let mut picture = newest.borrow_and_update().clone();
        let due = began + Duration::from_millis(pace.due_ms(&picture));
        tokio::select! {
            changed = newest.changed() => {
                if changed.is_err() {
                    return;
                }
                if Instant::now() < due {
                    continue;
                }
                picture = newest.borrow_and_update().clone();
            }
            () = tokio::time::sleep_until(due) => {}
        }
        picture.beat.at_ms = unix_ms();
        match store.put_beat(&node, &picture.beat).await {
            Ok(()) => pace.written(&picture.beat, began.elapsed().as_millis() as u64),
            Err(e) => {
                debug!("writing the beat: {e}");
                pace.forget();
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// An error of a worker, on its way to operators.
#[derive(Debug)]
pub(crate) struct WorkerError {
    pub(crate) topology: Name,
    pub(crate) component: Name,
    pub(crate) entry: ErrorEntry,
}

/// Writes errors of workers, each once; one that the store does not take is dropped, and is in this daemon's log.
pub(crate) async fn errors(store: Arc<dyn Store>, mut from: mpsc::Receiver<WorkerError>) {
    while let Some(WorkerError { topology, component, entry }) = from.recv().await {
        if let Err(e) = store.report_error(&topology, &component, entry).await {
            debug!("reporting an error of {topology}/{component}: {e}");
        }
    }
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}
