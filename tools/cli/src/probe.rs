//! The leader's probe: asks a worker itself whether it lives, when its supervisor is gone.
//!
//! Nimbus holds the key and asks; the handshake is the transport's, with role `probe`. This is where the two meet, because
//! nimbus knows no data plane.

use saetta_model::Name;
use saetta_nimbus::WorkerProbe;
use saetta_transport::{Key, probe};
use std::time::Duration;

/// Longest wait for one worker; below nimbus's own limit.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Probes over TCP.
#[derive(Debug)]
pub(crate) struct Probe;

#[async_trait::async_trait]
impl WorkerProbe for Probe {
    async fn alive(&self, addr: &str, topology: &Name, key: &[u8; 32], placement: u64) -> bool {
        let Some(key) = Key::new(*key) else { return false };
        let Ok(mut found) = tokio::net::lookup_host(addr).await else { return false };
        let Some(addr) = found.next() else { return false };
        let topology = topology.to_string();
        let asked = tokio::task::spawn_blocking(move || probe(addr, &key, &topology, TIMEOUT)).await;
        matches!(asked, Ok(Ok(reply)) if reply.placement == placement)
    }
}
