//! Brings a topology's binary and key to this node.
//!
//! Before: a slot wants to start a job. After: `launch` finds the binary by its hash and the key beside it.
//! What is here already is not asked for again, so a worker restarts while nimbus is away. Slots that want the same
//! binary share one download and one file.

use crate::dir::{Dir, sync_dir};
use crate::slot::Job;
use saetta_model::Name;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tracing::info;

/// Largest binary taken from nimbus; a longer answer ends the download.
pub(crate) const BINARY_BYTES_MAX: u64 = 4 << 30;
/// Longest wait for a nimbus to accept a connection, and for the next piece of an answer.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest silence in the middle of an answer.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest secret file read.
const SECRET_BYTES_MAX: u64 = 4096;
/// Longest refusal of nimbus that is repeated to people.
const REFUSAL_CHARS_MAX: usize = 200;

/// The way to nimbus, and who is on it.
#[derive(Debug)]
pub(crate) struct Localizer {
    dir: Arc<Dir>,
    http: reqwest::Client,
    seeds: Vec<String>,
    secret_file: PathBuf,
    /// One lock per binary and topology being brought; entries go when the last holder does.
    flights: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Localizer {
    /// Nothing is contacted yet.
    pub(crate) fn new(dir: Arc<Dir>, seeds: Vec<String>, secret_file: PathBuf) -> Result<Self, reqwest::Error> {
        // No proxy: the cluster talks to itself, whatever the operator's shell says.
        let http = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).read_timeout(READ_TIMEOUT).no_proxy().build()?;
        Ok(Localizer { dir, http, seeds, secret_file, flights: Mutex::default() })
    }

    /// Brings binary and key of a job. Errors are one line for people.
    pub(crate) async fn bring(&self, job: &Job) -> Result<(), String> {
        {
            let flight = self.flight(&job.binary);
            let _one_at_a_time = flight.lock().await;
            if !self.dir.blob(&job.binary).exists() {
                self.bring_binary(&job.binary).await?;
            }
        }
        let flight = self.flight(job.topology.as_str());
        let _one_at_a_time = flight.lock().await;
        if self.dir.read_key(&job.topology).is_none() {
            self.bring_key(&job.topology).await?;
        }
        Ok(())
    }

    fn flight(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut flights = self.flights.lock().expect("nobody panics while holding it");
        flights.retain(|_, flight| Arc::strong_count(flight) > 1);
        Arc::clone(flights.entry(name.to_owned()).or_default())
    }

    async fn bring_binary(&self, sha256: &str) -> Result<(), String> {
        let mut answer = self.get(&format!("/internal/v1/blobs/{sha256}")).await?;
        let path = self.dir.blob_part(sha256);
        let disk = |e: std::io::Error| format!("writing {}: {e}", path.display());
        let mut file = tokio::fs::File::create(&path).await.map_err(disk)?;
        let mut hash = Sha256::new();
        let mut bytes = 0u64;
        while let Some(piece) = answer.chunk().await.map_err(|e| format!("the download of binary {sha256} broke off: {}", innermost(&e)))? {
            bytes += piece.len() as u64;
            if bytes > BINARY_BYTES_MAX {
                return Err(format!("binary {sha256} is longer than {BINARY_BYTES_MAX} bytes"));
            }
            hash.update(&piece);
            file.write_all(&piece).await.map_err(disk)?;
        }
        file.flush().await.map_err(disk)?;
        let found = hex::encode(hash.finalize());
        if found != sha256 {
            let _ = tokio::fs::remove_file(&path).await;
            return Err(format!("nimbus sent {bytes} bytes with the hash {found} for binary {sha256}; they were thrown away"));
        }
        file.set_permissions(Permissions::from_mode(0o500)).await.map_err(disk)?;
        file.sync_all().await.map_err(disk)?;
        drop(file.into_std().await);
        tokio::fs::rename(&path, self.dir.blob(sha256)).await.map_err(disk)?;
        sync_dir(&self.dir.blobs()).map_err(disk)?;
        info!(bytes, "fetched binary {sha256}");
        Ok(())
    }

    async fn bring_key(&self, topology: &Name) -> Result<(), String> {
        let text = self.get(&format!("/internal/v1/topologies/{topology}/key")).await?;
        let text = text.text().await.map_err(|e| format!("reading the key of {topology}: {}", innermost(&e)))?;
        let key = hex::decode(text.trim()).ok().and_then(|k| <[u8; 32]>::try_from(k).ok());
        // The text itself is never shown: it may be most of a key.
        let key = key.ok_or_else(|| format!("nimbus sent no key of 32 bytes for {topology}"))?;
        self.dir.write_key(topology, &key).map_err(|e| format!("keeping the key of {topology}: {e}"))
    }

    /// Asks each seed in turn until one answers.
    async fn get(&self, path: &str) -> Result<reqwest::Response, String> {
        let secret = read_secret(&self.secret_file)?;
        let mut tried = Vec::new();
        for seed in &self.seeds {
            match self.http.get(format!("http://{seed}{path}")).bearer_auth(&secret).send().await {
                Ok(answer) if answer.status().is_success() => return Ok(answer),
                Ok(answer) => {
                    let status = answer.status();
                    let text: String = answer.text().await.unwrap_or_default().chars().take(REFUSAL_CHARS_MAX).collect();
                    tried.push(format!("{seed} ({status}: {})", text.trim()));
                }
                Err(e) => tried.push(format!("{seed} ({})", innermost(&e))),
            }
        }
        Err(format!("no nimbus gave {path}: tried {}", tried.join(", ")))
    }
}

/// The cluster's secret, refused where others could read it.
fn read_secret(path: &Path) -> Result<String, String> {
    let at = path.display();
    let about = path.metadata().map_err(|e| format!("the cluster's secret {at}: {e}; cluster.secret.file names it"))?;
    if about.mode() & 0o077 != 0 {
        return Err(format!("the cluster's secret {at} has mode {:04o}, want 0600", about.mode() & 0o7777));
    }
    if about.len() > SECRET_BYTES_MAX {
        return Err(format!("the cluster's secret {at} has {} bytes, at most {SECRET_BYTES_MAX} are read", about.len()));
    }
    let text = std::fs::read_to_string(path).map_err(|e| format!("the cluster's secret {at}: {e}"))?;
    Ok(text.trim().to_owned())
}

/// The innermost reason: `connection refused` rather than `error sending request for url (...)`.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
}
