//! `saetta nimbus`, `supervisor` and `dev`: the daemons, and a whole cluster in one process.
//!
//! `dev` is nimbus and supervisor over a store in memory; workers are real processes that end with it, in whatever way it ends.

use crate::args::{Dev, Global};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::say;
use crate::probe::Probe;
use crate::settings::Settings;
use saetta_model::Config;
use saetta_model::config::Source;
use saetta_nimbus::{Nimbus, NimbusError, NimbusOptions};
use saetta_store::{MemoryCluster, MemoryStore, Store, ZkOptions, ZkStore};
use saetta_supervisor::{Supervisor, SupervisorError, SupervisorOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Sends the daemon's log to stderr. `RUST_LOG` wins over `-q` and `-v`.
pub(crate) fn log(global: &Global) {
    let level = match (global.quiet, global.verbose) {
        (true, _) => "warn",
        (false, 0) => "info",
        (false, 1) => "debug",
        (false, _) => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}

fn failed(what: &str, exit: Exit, e: impl std::fmt::Display) -> Failure {
    Failure::new(exit, format!("{what} cannot start")).why(e)
}

fn nimbus_failed(e: NimbusError) -> Failure {
    let exit = if matches!(e, NimbusError::Bind { .. }) { Exit::Invalid } else { Exit::Failed };
    failed("nimbus", exit, e)
}

fn supervisor_failed(e: SupervisorError) -> Failure {
    let exit = if matches!(e, SupervisorError::Options(_)) { Exit::Invalid } else { Exit::Failed };
    failed("supervisor", exit, e)
}

fn zookeeper(config: &Config) -> Outcome<Arc<dyn Store>> {
    let store = ZkStore::open(ZkOptions {
        servers: config.text("zookeeper.servers").unwrap_or_default().to_owned(),
        root: config.text("zookeeper.root").unwrap_or_default().to_owned(),
        session_timeout: config.duration("zookeeper.session.timeout.secs").expect("has a default"),
    });
    Ok(Arc::new(store.map_err(|e| Failure::new(Exit::Invalid, e.to_string()))?))
}

pub(crate) async fn nimbus(settings: &Settings) -> Outcome {
    let store = zookeeper(&settings.daemon)?;
    let options = NimbusOptions::from_config(&settings.daemon, Some(Arc::new(Probe))).map_err(nimbus_failed)?;
    let mut stop = Stop::new()?;
    let nimbus = Nimbus::start(options, Arc::clone(&store)).await.map_err(nimbus_failed)?;
    tracing::info!("nimbus listens on {}", nimbus.addr());
    stop.asked().await;
    nimbus.stop().await;
    store.close().await;
    Ok(())
}

pub(crate) async fn supervisor(settings: &Settings) -> Outcome {
    let store = zookeeper(&settings.daemon)?;
    let options = SupervisorOptions::from_config(&settings.daemon).map_err(supervisor_failed)?;
    let mut stop = Stop::new()?;
    let supervisor = Supervisor::start(options, store).await.map_err(supervisor_failed)?;
    stop.asked().await;
    // Its workers live on, so the session is left to time out: a successor that starts in that time is not missed.
    supervisor.stop().await;
    Ok(())
}

pub(crate) async fn dev(args: &Dev, settings: &Settings) -> Outcome {
    let config = &settings.daemon;
    let mut stop = Stop::new()?;
    let mut options = NimbusOptions::from_config(config, None).map_err(nimbus_failed)?;
    if config.source("nimbus.dir") == Source::BuiltIn {
        options.dir = args.dir.join("nimbus");
    }
    if config.source("nimbus.bind") == Source::BuiltIn && !is_free(&options.bind) {
        options.bind = format!("{}:0", Ipv4Addr::LOCALHOST);
    }
    let secret_file = options.secret_file.clone().unwrap_or_else(|| options.dir.join("cluster.secret"));

    let cluster = MemoryCluster::new();
    let nimbus = Nimbus::start(options, Arc::new(MemoryStore::open(&cluster))).await.map_err(nimbus_failed)?;
    let address = nimbus.addr().to_string();

    let mut options = SupervisorOptions::from_config(config).map_err(supervisor_failed)?;
    if config.source("supervisor.dir") == Source::BuiltIn {
        options.dir = args.dir.join("supervisor");
    }
    if config.source("supervisor.slots.ports") == Source::BuiltIn {
        options.ports = free_ports(&options.ports)?;
    }
    options.seeds = vec![address.clone()];
    options.secret_file = secret_file;
    options.workers_end_with_supervisor = true;
    let (dir, ports) = (options.dir.clone(), options.ports.clone());
    let supervisor = match Supervisor::start(options, Arc::new(MemoryStore::open(&cluster))).await {
        Ok(supervisor) => supervisor,
        Err(e) => {
            nimbus.stop().await;
            return Err(supervisor_failed(e).hint("another directory: `saetta dev --dir DIR`"));
        }
    };

    let seeds = if config.text("nimbus.seeds") == Some(&address) { String::new() } else { format!(" --set nimbus.seeds={address}") };
    say(&format!(
        "saetta dev: a cluster in this process\n  nimbus      http://{address}\n  supervisor  {} with slots {}\n  logs        {}\n  submit      saetta submit FILE{seeds}\n  look        saetta list{seeds}\nCtrl-C ends it, and every worker.",
        supervisor.info().id,
        ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", "),
        dir.join("logs").display(),
    ));
    stop.asked().await;
    say("ending workers");
    supervisor.stop().await;
    nimbus.stop().await;
    Ok(())
}

fn is_free(address: &str) -> bool {
    TcpListener::bind(address).is_ok()
}

/// These ports where all of them are free, else as many others.
fn free_ports(wanted: &[u16]) -> Outcome<Vec<u16>> {
    if wanted.iter().all(|port| is_free(&format!("{}:{port}", Ipv4Addr::LOCALHOST))) {
        return Ok(wanted.to_vec());
    }
    // Held together, so that no two are the same.
    let held: Result<Vec<TcpListener>, _> = wanted.iter().map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect();
    let held = held.map_err(|e| failed("supervisor", Exit::Failed, e))?;
    let mut ports: Vec<u16> = held.iter().filter_map(|l| l.local_addr().ok()).map(|a| a.port()).collect();
    ports.sort_unstable();
    Ok(ports)
}

/// SIGTERM and SIGINT, caught from the beginning, so that a daemon told to stop while it starts also stops in order.
struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> Outcome<Self> {
        let catch = |kind| signal(kind).map_err(|e| Failure::new(Exit::Failed, "catching signals").why(e));
        Ok(Stop { terminate: catch(SignalKind::terminate())?, interrupt: catch(SignalKind::interrupt())? })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
