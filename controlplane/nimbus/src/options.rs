//! How a nimbus is started, and what can be wrong with that.

use async_trait::async_trait;
use saetta_model::Name;
use saetta_model::config::Config;
use saetta_sched_host::{Facts, Policy, SchedulerOptions};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Asks a worker whether it lives, proving with the topology's key that it may ask.
#[async_trait]
pub trait WorkerProbe: Send + Sync + 'static {
    /// True when the worker at `addr` (`host:port`) proved to be the given placement. Must end within a few seconds; nimbus gives it 5.
    async fn alive(&self, addr: &str, topology: &Name, key: &[u8; 32], placement: u64) -> bool;
}

/// Everything a nimbus is told.
#[derive(Clone)]
pub struct NimbusOptions {
    /// `nimbus.bind`. Only loopback is accepted; port 0 takes a free one.
    pub bind: String,
    /// `nimbus.dir`.
    pub dir: PathBuf,
    /// `cluster.secret.file`; `None` = `cluster.secret` in `dir`.
    pub secret_file: Option<PathBuf>,
    /// `nimbus.slots.perTopology`; `None` = no limit.
    pub slots_per_topology_max: Option<u32>,
    /// `nimbus.executors.perTopology`; `None` = no limit.
    pub executors_per_topology_max: Option<u32>,
    /// `nimbus.monitor.freq.secs`.
    pub monitor_every: Duration,
    /// `scheduler.*`.
    pub scheduler: SchedulerOptions,
    /// Asks workers on a node whose supervisor is gone. `None` = workers are not asked: the absence of a supervisor alone then means
    /// that its workers are lost, and they are placed elsewhere after the grace.
    pub probe: Option<Arc<dyn WorkerProbe>>,
}

impl NimbusOptions {
    /// From a daemon's configuration; the helper and, unless `scheduler.plugin.dir` is set, plugins are found beside the executable.
    pub fn from_config(config: &Config, probe: Option<Arc<dyn WorkerProbe>>) -> Result<Self, NimbusError> {
        let text = |key: &str| config.text(key).unwrap_or_default().to_owned();
        let beside =
            SchedulerOptions::beside_exe().map_err(|e| NimbusError::Io { doing: "finding the executable's directory".into(), error: e })?;
        let scheduler = SchedulerOptions {
            plugin: text("scheduler.plugin"),
            dir: config.text("scheduler.plugin.dir").map_or(beside.dir, PathBuf::from),
            helper: beside.helper,
            deadline: config.duration("scheduler.deadline.secs").unwrap_or(beside.deadline),
            memory_bytes: config.u32("scheduler.memory.mb").map_or(beside.memory_bytes, |mb| u64::from(mb) << 20),
            facts: Facts::from_config(config).map_err(NimbusError::Setting)?,
            policy: Policy::from_config(config),
        };
        Ok(NimbusOptions {
            bind: text("nimbus.bind"),
            dir: PathBuf::from(text("nimbus.dir")),
            secret_file: config.text("cluster.secret.file").map(PathBuf::from),
            slots_per_topology_max: config.u32("nimbus.slots.perTopology"),
            executors_per_topology_max: config.u32("nimbus.executors.perTopology"),
            monitor_every: config.duration("nimbus.monitor.freq.secs").expect("it has a built-in value"),
            scheduler,
            probe,
        })
    }
}

/// Why a nimbus does not start.
#[derive(Debug, thiserror::Error)]
pub enum NimbusError {
    /// The address is not usable.
    #[error("nimbus.bind = {bind:?}: {why}")]
    Bind {
        /// As configured.
        bind: String,
        /// What to do.
        why: String,
    },
    /// A setting says what cannot be.
    #[error("{0}")]
    Setting(String),
    /// A file that has to be private is not, or is not what it should be.
    #[error("{path}: {why}")]
    File {
        /// Which.
        path: String,
        /// What to do.
        why: String,
    },
    /// The environment.
    #[error("{doing}: {error}")]
    Io {
        /// What was being done.
        doing: String,
        /// What the system said.
        error: std::io::Error,
    },
}

/// The loopback address to listen on. Everything else is refused: the REST interface knows no users yet.
pub(crate) fn loopback(bind: &str) -> Result<SocketAddr, NimbusError> {
    let refuse = |why: &str| Err(NimbusError::Bind { bind: bind.into(), why: why.into() });
    let local = bind.strip_prefix("localhost:").map(|port| format!("{}:{port}", Ipv4Addr::LOCALHOST));
    let Ok(addr) = local.as_deref().unwrap_or(bind).parse::<SocketAddr>() else {
        return refuse("it is not ADDRESS:PORT; write as 127.0.0.1:6627");
    };
    let is_loopback = match addr.ip() {
        IpAddr::V4(v4) => v4.is_loopback(),
        IpAddr::V6(v6) => v6.is_loopback(),
    };
    if !is_loopback {
        return refuse(
            "only loopback is allowed (127.0.0.1 or ::1): the REST interface has no authentication of users yet; reach it from elsewhere through a tunnel",
        );
    }
    Ok(addr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_bound() {
        for good in ["127.0.0.1:6627", "127.1.2.3:0", "[::1]:6627", "localhost:6627"] {
            assert!(loopback(good).is_ok(), "{good}");
        }
        for bad in ["0.0.0.0:6627", "192.168.1.2:6627", "[::]:6627", "6627", "example.org:6627", "", "127.0.0.1", "127.0.0.1:65536"] {
            assert!(loopback(bad).is_err(), "{bad}");
        }
        assert!(loopback("0.0.0.0:1").unwrap_err().to_string().contains("only loopback"));
    }

    #[test]
    fn options_come_from_the_configuration() {
        let mut config = Config::new(saetta_model::config::Owner::Daemon);
        for pair in ["nimbus.bind=127.0.0.1:1", "nimbus.slots.perTopology=3", "scheduler.plugin=fancy", "scheduler.memory.mb=64"] {
            config.set_pair(pair).unwrap();
        }
        let options = NimbusOptions::from_config(&config, None).unwrap();
        assert_eq!((options.bind.as_str(), options.slots_per_topology_max), ("127.0.0.1:1", Some(3)));
        assert_eq!((options.scheduler.plugin.as_str(), options.scheduler.memory_bytes), ("fancy", 64 << 20));
        assert_eq!(options.monitor_every, Duration::from_secs(10));
        assert_eq!(options.secret_file, None);
    }
}
