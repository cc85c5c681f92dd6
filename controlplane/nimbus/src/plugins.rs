//! The scheduler plugin of the cluster: chosen by an operator, remembered in the store, its file on every nimbus.
//!
//! Before: `saetta scheduler use`, or the store says that another one was chosen. After: the scheduler's next round is the new plugin's.
//! Every nimbus fetches the file as soon as it is chosen, so that a new leader has it also where the old one is gone for good.

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
