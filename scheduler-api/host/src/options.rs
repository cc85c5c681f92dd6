//! Where a scheduler comes from and what it may use.

use crate::policy::Policy;
use saetta_model::config::Config;
use saetta_model::topology::{offer_milli, request_milli};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// File name of the helper process.
pub const HELPER_NAME: &str = "saetta-sched-host";

/// Which plugin, where it lies, and the limits it runs under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// `scheduler.plugin`: NAME stands for `libsaetta_NAME.so` in `dir`, with `_` for each `-`.
    pub plugin: String,
    /// `scheduler.plugin.dir`.
    pub dir: PathBuf,
    /// The helper's executable.
    pub helper: PathBuf,
    /// `scheduler.deadline.secs`: time for one round (and for loading); then the helper is killed.
    pub deadline: Duration,
    /// `scheduler.memory.mb` in bytes: address space of the helper.
    pub memory_bytes: u64,
    /// What schedulers are told of the cluster that no supervisor and no topology says.
    pub facts: Facts,
    /// How it runs, what its plans are held to, what goes along.
    pub policy: Policy,
}

/// The cluster's own settings that a scheduler looks at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// `worker.min.cpu.pcore.percent` in thousandths.
    pub min_worker_cpu_milli_pct: i64,
    /// `nimbus.monitor.freq.secs` in milliseconds; 0 = not stated.
    pub monitor_period_ms: u64,
    /// `resource.aware.scheduler.user.pools`: by user and kind, in thousandths.
    pub guarantees: BTreeMap<String, BTreeMap<String, i64>>,
    /// `multitenant.scheduler.user.pools`.
    pub isolated_nodes: BTreeMap<String, u32>,
}

impl Facts {
    /// From a daemon's configuration. The error names the key.
    pub fn from_config(config: &Config) -> Result<Self, String> {
        let mut guarantees: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
        for (name, amount) in config.named_numbers("resource.aware.scheduler.user.pools") {
            let Some((user, kind)) = name.split_once('/') else {
                return Err(format!(
                    "resource.aware.scheduler.user.pools: {name:?} is not USER/KIND, as ann/cpu=200 or ann/memory.mb=4096"
                ));
            };
            guarantees.entry(user.to_owned()).or_default().insert(kind.to_owned(), offer_milli(amount));
        }
        Ok(Facts {
            min_worker_cpu_milli_pct: config.number("worker.min.cpu.pcore.percent").map_or(0, request_milli),
            monitor_period_ms: config.duration("nimbus.monitor.freq.secs").map_or(0, |d| d.as_millis() as u64),
            guarantees,
            isolated_nodes: config
                .named_numbers("multitenant.scheduler.user.pools")
                .into_iter()
                .map(|(user, n)| (user, n as u32))
                .collect(),
        })
    }
}

impl SchedulerOptions {
    /// `even` with the helper and the plugin found beside the running executable, the configuration's built-in limits.
    ///
    /// "Beside" is the executable's directory. In a build tree it is also the directory above (for a test, which runs from
    /// `deps/`) and `deps/` below (where cargo leaves the library of a package that was built as a dependency). What is not found
    /// is named in the executable's directory; the first round then says that it is missing. Fails when the
    /// system does not say where the executable is.
    pub fn beside_exe() -> io::Result<Self> {
        let exe = std::env::current_exe()?;
        let own = exe.parent().unwrap_or(Path::new("/")).to_path_buf();
        let find = |file: &str| {
            let above = own.parent().filter(|_| own.ends_with("deps")).map(Path::to_path_buf);
            [Some(own.clone()), above, Some(own.join("deps"))].into_iter().flatten().find(|dir| dir.join(file).is_file())
        };
        Ok(SchedulerOptions {
            plugin: "even".to_owned(),
            dir: find(&plugin_file("even")).unwrap_or_else(|| own.clone()),
            helper: find(HELPER_NAME).unwrap_or_else(|| own.clone()).join(HELPER_NAME),
            deadline: Duration::from_secs(5),
            memory_bytes: 512 << 20,
            facts: Facts::default(),
            policy: Policy::default(),
        })
    }

    /// The plugin's file.
    pub fn plugin_path(&self) -> PathBuf {
        self.dir.join(plugin_file(&self.plugin))
    }
}

/// Cargo writes the `-` of a crate's name as `_` in the name of its file.
pub(crate) fn plugin_file(name: &str) -> String {
    format!("libsaetta_{}.so", name.replace('-', "_"))
}
