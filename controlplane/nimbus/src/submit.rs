//! Taking a submission: check everything, then make the key, then the record. `Ok` means that the record is stored.
//!
//! Before: `rest.rs` has a request. After: the store holds the record, and `leader.rs` reads it and schedules.
//! A submission that fails leaves nothing: the key is removed, and a binary that no topology uses goes with the next sweep.

use crate::elf::Facts;
use crate::home::is_full;
use crate::leader::{Known, Shared, Term};
use crate::rest::ApiError;
use axum::http::StatusCode;
use saetta_model::cluster::Supervisors;
use saetta_model::config::{Config, Source};
use saetta_model::name::NAME_BYTES_MAX;
use saetta_model::parallelism::Layout;
use saetta_model::{Name, TopologyRecord, TopologySpec, TopologyState};
use saetta_sched_host::Reason;
use saetta_store::StoreError;
use saetta_store::paths::is_sha256;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use tracing::{info, warn};

/// Longest `owner` and `request`, in bytes.
const WORD_BYTES_MAX: usize = 128;
/// Room that `-<n>-<seconds>` takes in an id behind the name.
const ID_SUFFIX_BYTES: usize = 22;

/// Body of `POST /api/v1/topologies`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// Name of the topology.
    pub name: String,
    /// What the binary's `describe` printed.
    pub spec: TopologySpec,
    /// Arguments for the topology function.
    #[serde(default)]
    pub args: Vec<String>,
    /// Topology configuration.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
    /// SHA-256 of the uploaded binary.
    pub binary: String,
    /// Who submits.
    #[serde(default)]
    pub owner: String,
    /// Smaller runs first when machines are short.
    #[serde(default)]
    pub priority: i32,
    /// The same id again means the same submission again.
    #[serde(default)]
    pub request: String,
}

/// Limits of this cluster.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// `nimbus.slots.perTopology`.
    pub slots_max: Option<u32>,
    /// `nimbus.executors.perTopology`.
    pub executors_max: Option<u32>,
}

/// Checks everything about a request that needs no store and no file. Pure. The error is one line for the operator.
pub fn check(request: &SubmitRequest, limits: Limits, supervisors: &Supervisors) -> Result<(Name, Layout), String> {
    let name = Name::new(&request.name).map_err(|e| e.to_string())?;
    if request.name.len() + ID_SUFFIX_BYTES > NAME_BYTES_MAX {
        return Err(format!(
            "name {:?} is too long for a topology: at most {} bytes, as its id is longer",
            request.name,
            NAME_BYTES_MAX - ID_SUFFIX_BYTES
        ));
    }
    for (field, text) in [("owner", &request.owner), ("request", &request.request)] {
        if text.len() > WORD_BYTES_MAX || text.chars().any(char::is_control) {
            return Err(format!("{field} is not usable: at most {WORD_BYTES_MAX} bytes without control characters"));
        }
    }
    if let Some(arg) = request.args.iter().find(|a| a.contains('\0')) {
        return Err(format!("argument {arg:?} holds a NUL byte, which no program can be given"));
    }
    if !is_sha256(&request.binary) {
        return Err(format!("binary = {:?} is not a SHA-256 in 64 lower-case hex digits", request.binary));
    }
    let config = Config::topology(&request.config, Source::Set).map_err(|e| e.to_string())?;
    for component in &request.spec.components {
        let own = Config::topology(&component.config, Source::Code).map_err(|e| format!("component `{}`: {e}", component.id))?;
        let core = own.u32("executor.core").or(config.u32("executor.core"));
        let known = supervisors.values().flat_map(|s| &s.slots).any(|slot| core.is_some_and(|c| slot.cores.contains(&c)));
        if let Some(core) = core.filter(|_| !known && !supervisors.is_empty()) {
            return Err(format!(
                "component `{}`: executor.core = {core} is a core of no slot in this cluster; see `supervisor.cores`",
                component.id
            ));
        }
    }
    let layout = Layout::new(&request.spec, &config).map_err(|e| e.to_string())?;
    layout.check_limits(limits.slots_max, limits.executors_max).map_err(|e| e.to_string())?;
    Ok((name, layout))
}

/// A submission that is stored.
pub(crate) struct Submitted {
    pub(crate) record: TopologyRecord,
    pub(crate) notes: Vec<String>,
    /// False where the same request had been stored before.
    pub(crate) new: bool,
}

/// Takes a submission. One at a time: the name is free from the check to the record.
pub(crate) async fn submit(shared: &Arc<Shared>, term: &Term, request: SubmitRequest) -> Result<Submitted, ApiError> {
    let _one_at_a_time = shared.changing.lock().await;
    let known = Known::read(&*shared.store).await?;
    let (name, layout) = check(&request, shared.limits, &known.cluster.supervisors).map_err(ApiError::invalid)?;

    let same = known.cluster.topologies.values().find(|r| !request.request.is_empty() && r.request == request.request);
    if let Some(record) = same {
        if record.name == name && record.binary == request.binary && record.spec == request.spec {
            return Ok(Submitted { record: record.clone(), notes: layout.notes, new: false });
        }
        return Err(ApiError::conflict(format!(
            "request id {:?} was used for topology {} before; use a new one",
            request.request, record.name
        )));
    }
    if let Some(holder) = known.cluster.topologies.values().find(|r| r.name == name) {
        return Err(ApiError::conflict(match holder.state {
            TopologyState::Killed { .. } => {
                format!("topology {name} ({}) is being killed; wait until it is gone, or use another name", holder.id)
            }
            _ => format!("topology {name} exists ({}, {}); kill it first or use another name", holder.id, holder.state.word()),
        }));
    }

    let facts = {
        let (shared, sha256) = (shared.clone(), request.binary.clone());
        let reading = tokio::task::spawn_blocking(move || shared.home.blob_bytes(&sha256).map(|_| shared.home.elf(&sha256)));
        reading.await.map_err(|e| ApiError::internal(e.to_string()))?
    };
    let Some(facts) = facts else {
        return Err(ApiError::invalid(format!(
            "binary {} is not here; upload it first (PUT /api/v1/blobs/{})",
            request.binary, request.binary
        )));
    };
    let facts: Facts = facts.map_err(|e| ApiError::invalid(e.to_string()))?;
    facts.runs_on_all(&known.cluster.supervisors).map_err(|e| ApiError::invalid(e.to_string()))?;
    let mut notes = layout.notes.clone();
    if known.cluster.supervisors.is_empty() {
        notes.push("no supervisor is here yet; it starts when one comes".into());
    }

    let submitted_ms = crate::leader::wall_ms();
    let number = shared.submissions.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let id = Name::new(&format!("{name}-{number}-{}", submitted_ms / 1000)).map_err(|e| ApiError::internal(e.to_string()))?;
    let record = TopologyRecord {
        id: id.clone(),
        name,
        digest: request.spec.digest(),
        spec: request.spec,
        binary: request.binary,
        args: request.args,
        config: request.config,
        owner: request.owner,
        priority: request.priority,
        submitted_ms,
        state: TopologyState::Active,
        request: request.request,
        finished: false,
    };
    if let Err(e) = store(shared, term, &record).await {
        // Not stored, or not known to be: a record that is there after all keeps its key.
        match shared.store.topology(&id).await {
            Ok(_) => {}
            Err(StoreError::NotFound { .. }) => {
                if let Err(e) = shared.home.remove_key(&id) {
                    warn!(topology = %id, error = %e, "the key of a refused submission could not be removed; the next sweep tries again");
                }
                if !known.cluster.topologies.values().any(|r| r.binary == record.binary) {
                    // Best effort: the sweep looks again.
                    let _ = shared.store.delete_blob(&term.lead, &record.binary).await;
                }
                return Err(e);
            }
            Err(_) => {
                return Err(ApiError::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("it is not known whether the topology was stored ({}); submit again with the same request id", e.text),
                ));
            }
        }
    }
    info!(topology = %record.id, binary = %record.binary, %facts, workers = layout.workers_wanted, executors = layout.n_executors(), "submitted");
    term.poke(Reason::Submit);
    Ok(Submitted { record, notes, new: true })
}

async fn store(shared: &Arc<Shared>, term: &Term, record: &TopologyRecord) -> Result<(), ApiError> {
    let bytes = shared.home.blob_bytes(&record.binary).ok_or_else(|| ApiError::invalid("the binary is gone; upload it again".into()))?;
    let made = {
        let (shared, id) = (shared.clone(), record.id.clone());
        tokio::task::spawn_blocking(move || shared.home.make_key(&id)).await.map_err(|e| ApiError::internal(e.to_string()))?
    };
    made.map_err(|e| key_not_written(&e))?;
    shared.store.add_blob_holder(&term.lead, &record.binary, bytes, shared.home.id()).await?;
    shared.store.create_topology(&term.lead, record).await?;
    Ok(())
}

/// As for a binary: that there is no room is for the operator to mend, and no fault of this program.
fn key_not_written(e: &io::Error) -> ApiError {
    if is_full(e) {
        ApiError::new(StatusCode::INSUFFICIENT_STORAGE, format!("nimbus.dir has no room for the topology's key: {e}"))
    } else {
        ApiError::internal(format!("the topology's key could not be written: {e}"))
    }
}

/// Sets the state to killed with a deadline `wait_ms` from now. Returns the record as stored.
pub(crate) async fn kill(shared: &Shared, term: &Term, id: &Name, wait_ms: Option<u64>) -> Result<TopologyRecord, ApiError> {
    let _one_at_a_time = shared.changing.lock().await;
    /// Tries against others that write the same record (only this leader does, so one is almost always enough).
    const TRIES: usize = 4;
    for _ in 0..TRIES {
        let read = shared.store.topology(id).await?;
        let mut record = read.value;
        let config = Config::topology(&record.config, Source::Code).map_err(|e| ApiError::internal(e.to_string()))?;
        let default_ms = config.duration("topology.message.timeout.secs").map_or(0, |d| d.as_millis() as u64);
        record.state = record.state.kill(crate::leader::wall_ms(), wait_ms.unwrap_or(default_ms));
        match shared.store.update_topology(&term.lead, &record, read.version).await {
            Err(e) if e.is_conflict() => continue,
            Err(e) => return Err(e.into()),
            Ok(_) => {
                info!(topology = %id, ?wait_ms, "killed");
                term.poke(Reason::Kill);
                return Ok(record);
            }
        }
    }
    Err(ApiError::conflict(format!("topology {id} is being changed by others; try again")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;

    #[test]
    fn a_key_that_finds_no_room_is_answered_as_a_binary_that_finds_none() {
        let status = |e: io::Error| key_not_written(&e).into_response().status();
        let full = std::fs::write("/dev/full", [0; 32]).unwrap_err();
        assert_eq!(status(full), StatusCode::INSUFFICIENT_STORAGE);
        assert_eq!(status(io::ErrorKind::QuotaExceeded.into()), StatusCode::INSUFFICIENT_STORAGE);
        assert_eq!(status(io::ErrorKind::PermissionDenied.into()), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
