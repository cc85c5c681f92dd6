//! The scheduler plugin of the cluster: chosen by an operator, remembered in the store, its file on every nimbus.
//!
//! Before: `saetta scheduler use`, or the store says that another one was chosen. After: the scheduler's next round is the new plugin's.
//! What plugins want to find again goes the same way: into the store after a round, out of it before a leader's first one. Every nimbus fetches the file as soon as it is chosen, so that a new leader has it also where the old one is gone for good.

use crate::leader::{Shared, Term, wall_ms};
use crate::rest::ApiError;
use axum::http::StatusCode;
use saetta_sched_host::library::{copy_path, put};
use saetta_sched_host::switch::Trial;
use saetta_sched_host::{Reason, Scheduler};
use saetta_store::{Family, SchedulerChoice};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{info, warn};

/// Longest time for a plugin's file to come from another nimbus.
const FETCH_MAX: Duration = Duration::from_secs(30);
/// Largest plugin that is fetched; the same bound as for one that is loaded.
const FETCH_BYTES_MAX: u64 = saetta_sched_host::inspect::FILE_BYTES_MAX;

/// Most bytes that plugins find again under another leader, all together; as hex digits they fit into one value of the store.
const MEMORY_BYTES_MAX: usize = 400 << 10;
const _: () = assert!(2 * MEMORY_BYTES_MAX < saetta_store::VALUE_BYTES_MAX);

/// The scheduler, or why there is none to speak of.
pub(crate) fn scheduler(shared: &Shared) -> Result<Arc<Scheduler>, ApiError> {
    let none = || ApiError::new(StatusCode::NOT_IMPLEMENTED, "this nimbus was started without scheduler plugins".into());
    shared.scheduler.clone().ok_or_else(none)
}

/// Tries a plugin, remembers it in the store, uses it. A failure on the way changes nothing.
pub(crate) async fn use_plugin(shared: &Arc<Shared>, term: &Arc<Term>, text: String) -> Result<Trial, ApiError> {
    let scheduler = scheduler(shared)?;
    let trying = {
        let scheduler = scheduler.clone();
        tokio::task::spawn_blocking(move || scheduler.try_out(&text))
    };
    let trial = trying.await.map_err(|e| ApiError::internal(e.to_string()))?.map_err(ApiError::invalid)?;
    let bytes = std::fs::metadata(&trial.path).map_err(|e| ApiError::internal(format!("{}: {e}", trial.path.display())))?.len();
    let choice = SchedulerChoice { plugin: trial.plugin.clone(), sha256: trial.sha256.clone(), bytes, at_ms: wall_ms() };
    let mut chosen = shared.chosen.lock().await;
    {
        // A sweep between the two writes would forget the blob.
        let _one_at_a_time = shared.changing.lock().await;
        shared.store.put_scheduler(&term.lead, &choice).await?;
        shared.store.add_blob_holder(&term.lead, &choice.sha256, bytes, shared.home.id()).await?;
    }
    switch(&scheduler, &choice, trial.path.clone()).await;
    *chosen = Some(choice);
    drop(chosen);
    term.poke(Reason::Periodic);
    Ok(trial)
}

/// Follows the store's choice until nimbus stops.
pub(crate) async fn follow(shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    let mut signal = shared.store.watch(Family::Scheduler);
    loop {
        tokio::select! {
            _ = stopped.wait_for(|s| *s) => return,
            () = apply(&shared) => {}
        }
        tokio::select! {
            _ = stopped.wait_for(|s| *s) => return,
            changed = signal.changed() => if changed.is_err() { return },
        }
    }
}

/// Uses what the store says, if it is another one than is used. A file that cannot be had is told and asked for again at the next signal;
/// until then the plugin stays that was there.
pub(crate) async fn apply(shared: &Arc<Shared>) {
    let Ok(scheduler) = scheduler(shared) else { return };
    let choice = match shared.store.scheduler().await {
        Ok(Some(choice)) if saetta_store::paths::is_sha256(&choice.sha256) => choice,
        Ok(_) => return,
        Err(e) => return warn!(error = %e, "which scheduler plugin was chosen cannot be read now"),
    };
    let mut chosen = shared.chosen.lock().await;
    if chosen.as_ref() == Some(&choice) {
        return;
    }
    match have(shared, &choice.sha256).await {
        Ok(path) => {
            switch(&scheduler, &choice, path).await;
            *chosen = Some(choice);
        }
        Err(why) => {
            warn!(plugin = choice.plugin, why, "the chosen scheduler plugin is not here and cannot be fetched; the former one stays")
        }
    }
}

/// Writes what plugins want to find again into the store, where it is not what stands there. Failing costs a new leader what is new in it.
pub(crate) async fn keep_memory(shared: Arc<Shared>, term: Arc<Term>) {
    let Some(scheduler) = shared.scheduler.clone() else { return };
    let mut kept = shared.memory.lock().await;
    let Ok(memory) = tokio::task::spawn_blocking(move || scheduler.memory()).await else { return };
    if *kept == memory {
        return;
    }
    let bytes: usize = memory.values().map(Vec::len).sum();
    if bytes > MEMORY_BYTES_MAX {
        warn!(
            bytes,
            max = MEMORY_BYTES_MAX,
            "what scheduler plugins want to find again is too much for the store; a new leader starts with less"
        );
    } else {
        let stored = memory.iter().map(|(id, saved)| (id.clone(), hex::encode(saved))).collect();
        if let Err(e) = shared.store.put_scheduler_memory(&term.lead, &stored).await {
            return warn!(error = %e, "what scheduler plugins want to find again cannot be stored now");
        }
    }
    *kept = memory;
}

/// Goes on from what plugins saved under the leader before.
pub(crate) async fn recall(shared: &Shared) {
    let Some(scheduler) = shared.scheduler.clone() else { return };
    let mut kept = shared.memory.lock().await;
    match shared.store.scheduler_memory().await {
        Ok(stored) => *kept = stored.into_iter().filter_map(|(id, saved)| Some((id, hex::decode(saved).ok()?))).collect(),
        Err(e) => return warn!(error = %e, "what scheduler plugins saved cannot be read; they start with nothing"),
    }
    let memory = kept.clone();
    if let Err(e) = tokio::task::spawn_blocking(move || scheduler.remember(&memory)).await {
        warn!(error = %e, "scheduler plugins were not given what they saved");
    }
}

async fn switch(scheduler: &Arc<Scheduler>, choice: &SchedulerChoice, path: PathBuf) {
    let (scheduler, plugin) = (scheduler.clone(), choice.plugin.clone());
    // It waits for a round that runs.
    if let Err(e) = tokio::task::spawn_blocking(move || scheduler.switch(&plugin, path)).await {
        warn!(error = %e, "the scheduler plugin could not be exchanged");
    }
}

/// The file, fetched from another nimbus where it is not here.
async fn have(shared: &Arc<Shared>, sha256: &str) -> Result<PathBuf, String> {
    let plugins = shared.home.plugins();
    let path = copy_path(&plugins, sha256);
    if path.is_file() {
        return Ok(path);
    }
    let nimbuses = shared.store.nimbuses().await.map_err(|e| e.to_string())?;
    let mut tried = Vec::new();
    for nimbus in nimbuses.items.into_values().map(|n| n.value).filter(|n| n.id != shared.info.id) {
        match fetch(shared, &nimbus.address, sha256).await {
            Ok(bytes) => {
                let (plugins, expected) = (plugins.clone(), sha256.to_owned());
                let kept = tokio::task::spawn_blocking(move || put(&plugins, &expected, &bytes)).await;
                let path = kept.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
                info!(from = %nimbus.id, sha256, "scheduler plugin fetched");
                return Ok(path);
            }
            Err(why) => tried.push(format!("{} ({why})", nimbus.id)),
        }
    }
    Err(if tried.is_empty() { "no other nimbus is there".into() } else { format!("asked {}", tried.join(", ")) })
}

async fn fetch(shared: &Shared, address: &str, sha256: &str) -> Result<Vec<u8>, String> {
    let client = reqwest::Client::builder().no_proxy().timeout(FETCH_MAX).build().map_err(|e| e.to_string())?;
    let request = client.get(format!("http://{address}/internal/v1/blobs/{sha256}")).bearer_auth(shared.home.secret());
    let mut answer = request.send().await.and_then(reqwest::Response::error_for_status).map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|e| e.to_string())? {
        if (bytes.len() + chunk.len()) as u64 > FETCH_BYTES_MAX {
            return Err(format!("it is larger than {FETCH_BYTES_MAX} bytes"));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
