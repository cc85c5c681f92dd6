//! A cluster as an operator runs it: ZooKeeper, nimbus, two supervisors, all processes of their own, on loopback.

use crate::binaries::binary;
use crate::daemon::{Daemon, Ran, print_logs};
use crate::look::{Worker, cores, end_workers_under, workers, workers_under};
use crate::pulse::{Pulse, ask, key};
use crate::wait::until;
use crate::znodes::{Znode, znodes};
use saetta_store::testing::ZooKeeper;
use saetta_transport::ProbeReply;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Slots of each supervisor.
const SLOTS: usize = 2;
/// Longest wait for a daemon to be of use, on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);
/// Lowest port taken for a slot. The kernel gives ports above its range's begin to whoever dials, which would take the port of a
/// worker that is being started again.
const PORT_MIN: u16 = 15_000;

/// See the head of this file.
#[derive(Debug)]
pub struct Cluster {
    /// The store.
    pub zookeeper: ZooKeeper,
    /// The first nimbus, and the only one until [`Cluster::another_nimbus`].
    pub nimbus: Daemon,
    /// `supervisor-1` on the first core, `supervisor-2` on the second.
    pub supervisors: [Daemon; 2],
    /// Settings that each nimbus needs.
    nimbus_settings: Vec<String>,
    /// Of nimbuses, running or not.
    seeds: [String; 2],
    dir: tempfile::TempDir,
}

impl Cluster {
    /// Starts all of it, with further settings for nimbus, and waits until both supervisors are known.
    pub fn start(more: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("saetta-").tempdir().expect("a directory");
        let zookeeper = ZooKeeper::start(&dir.path().join("zookeeper"), 1).unwrap_or_else(|why| panic!("{why}"));
        let ports = free_ports(2 + 2 * SLOTS);
        let seeds = [0, 1].map(|i| format!("127.0.0.1:{}", ports[i]));
        let store = format!("zookeeper.servers={}", zookeeper.servers());
        let home = dir.path().join("nimbus");

        let nimbus_settings = vec![store.clone(), format!("nimbus.dir={}", home.display()), format!("nimbus.bind={}", seeds[0])];
        let settings = nimbus_settings.iter().cloned().chain(more.iter().map(|s| (*s).to_owned()));
        let nimbus = daemon("nimbus", "nimbus", settings, dir.path());
        let supervisor = |i: usize| {
            let name = format!("supervisor-{}", i + 1);
            let slots = ports[2 + i * SLOTS..][..SLOTS].iter().map(u16::to_string).collect::<Vec<_>>().join(",");
            let settings = [
                store.clone(),
                format!("supervisor.dir={}", dir.path().join(&name).display()),
                format!("supervisor.id={name}"),
                format!("supervisor.slots.ports={slots}"),
                format!("supervisor.cores={}", cores()[i]),
                format!("nimbus.seeds={}", seeds.join(",")),
                format!("cluster.secret.file={}", home.join("cluster.secret").display()),
            ];
            daemon("supervisor", &name, settings.into_iter(), dir.path())
        };
        // Nimbus makes the secret that supervisors read at their start.
        let nimbus = std::cell::RefCell::new(nimbus);
        until("nimbus makes the cluster's secret", READY_MAX, || {
            nimbus.borrow_mut().must_run();
            if home.join("cluster.secret").is_file() { Ok(()) } else { Err(nimbus.borrow().printed()) }
        });
        let supervisors = [supervisor(0), supervisor(1)];
        let mut cluster = Cluster { zookeeper, nimbus: nimbus.into_inner(), supervisors, nimbus_settings, seeds, dir };
        until("both supervisors are known and nimbus leads", READY_MAX, || {
            cluster.must_run();
            let known: BTreeSet<String> =
                cluster.znodes().into_iter().filter_map(|z| Some(z.path.strip_prefix("/saetta/supervisors/")?.to_owned())).collect();
            let list = cluster.saetta(&["list"]);
            if known.len() == 2 && list.code == 0 { Ok(()) } else { Err(format!("known: {known:?}; list: {list:?}")) }
        });
        cluster
    }

    /// Kills the first nimbus with 9, starts it again with other settings, and waits until it leads.
    pub fn nimbus_again(&mut self, more: &[&str]) {
        self.nimbus.kill_9();
        let settings = self.nimbus_settings.iter().cloned().chain(more.iter().map(|s| (*s).to_owned()));
        self.nimbus = daemon("nimbus", "nimbus", settings, self.dir.path());
        self.is_led();
    }

    /// A second nimbus, in a directory of its own below [`Cluster::dir`], `nimbus-2`.
    pub fn another_nimbus(&self, more: &[&str]) -> Daemon {
        let own = [
            self.nimbus_settings[0].clone(),
            format!("nimbus.dir={}", self.dir.path().join("nimbus-2").display()),
            format!("nimbus.bind={}", self.seeds[1]),
            format!("cluster.secret.file={}", self.dir.path().join("nimbus/cluster.secret").display()),
        ];
        let settings = own.into_iter().chain(more.iter().map(|s| (*s).to_owned()));
        daemon("nimbus", "nimbus-2", settings, self.dir.path())
    }

    /// Waits until a nimbus leads.
    pub fn is_led(&self) {
        until("a nimbus leads", READY_MAX, || {
            let list = self.saetta(&["list"]);
            if list.code == 0 { Ok(()) } else { Err(format!("{list:?}")) }
        });
    }

    /// Panics where a daemon has ended by itself.
    pub fn must_run(&mut self) {
        self.nimbus.must_run();
        self.supervisors.iter_mut().for_each(Daemon::must_run);
    }

    /// Everything of it is below this.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The directory of a supervisor, from 0.
    pub fn supervisor_dir(&self, i: usize) -> PathBuf {
        self.dir.path().join(format!("supervisor-{}", i + 1))
    }

    /// Runs `saetta` against it. What follows `--` is the topology's.
    pub fn saetta(&self, args: &[&str]) -> Ran {
        let seeds = format!("nimbus.seeds={}", self.seeds.join(","));
        Ran::saetta(args[..1].iter().chain(&["--set", &seeds]).chain(&args[1..]))
    }

    /// `status -o json`.
    #[track_caller]
    pub fn status(&self, name: &str) -> Value {
        self.saetta(&["status", name, "-o", "json"]).ends_with(0).json()
    }

    /// Waits until `status` shows all of `n` workers running.
    #[track_caller]
    pub fn running(&self, name: &str, n: usize) -> Vec<Worker> {
        until(&format!("{n} workers of {name} run"), READY_MAX, || {
            let ran = self.saetta(&["status", name, "-o", "json"]);
            if ran.code != 0 {
                return Err(format!("{ran:?}"));
            }
            let found = workers(&ran.json());
            let all = found.len() == n && found.iter().all(|w| w.state == "running" && w.pid != 0);
            if all { Ok(found) } else { Err(ran.stdout) }
        })
    }

    fn key(&self, id: &str) -> [u8; 32] {
        key(&self.dir.path().join("nimbus"), id)
    }

    /// Watches the counts of workers.
    pub fn pulse(&self, id: &str, workers: &[Worker]) -> Pulse {
        Pulse::of(workers, id, self.key(id))
    }

    /// Asks a worker itself.
    pub fn ask(&self, id: &str, port: u16) -> Result<ProbeReply, String> {
        ask(port, id, self.key(id)).map_err(|e| e.to_string())
    }

    /// Everything in ZooKeeper that is ours.
    pub fn znodes(&self) -> Vec<Znode> {
        znodes(&self.zookeeper.servers(), "/saetta")
    }

    /// Worker processes of both supervisors.
    pub fn workers(&self) -> BTreeSet<u32> {
        workers_under(self.dir.path())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            print_logs(self.dir.path());
        }
        self.supervisors.iter_mut().for_each(Daemon::kill_9);
        end_workers_under(self.dir.path());
        self.nimbus.kill_9();
    }
}

fn daemon(role: &str, name: &str, settings: impl Iterator<Item = String>, dir: &Path) -> Daemon {
    let args = [role.to_owned()].into_iter().chain(settings.flat_map(|s| ["--set".to_owned(), s]));
    Daemon::start(&binary("saetta"), args, &[], &dir.join(format!("{name}.log")))
}

/// Ports nobody listens on, below those the kernel gives away.
pub fn free_ports(n: usize) -> Vec<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end = range.split_whitespace().next().and_then(|w| w.parse().ok()).unwrap_or(32_768);
    let span = u32::from(end.max(PORT_MIN + 1000) - PORT_MIN);
    // Runs beside each other begin at different places.
    let from = std::process::id().wrapping_mul(97);
    let held: Vec<TcpListener> = (0..span)
        .map(|i| PORT_MIN + (from.wrapping_add(i) % span) as u16)
        .filter_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok())
        .take(n)
        .collect();
    assert_eq!(held.len(), n, "free ports on loopback");
    held.iter().map(|l| l.local_addr().expect("bound").port()).collect()
}
