//! Configuration: every key there is, what it means, and where a value came from.
//!
//! Keys keep Storm's name where the meaning is the same. An unknown key is an error with the nearest known key and the
//! place it stands; nothing is silently ignored. Precedence: built-in < file < environment < `--set`; a component's
//! setting wins over its topology's. Pure: the caller reads files and environment, this module reads text.

use crate::name::nearest;
use std::collections::BTreeMap;
use std::fmt;

/// Who may set a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Only a topology's configuration.
    Topology,
    /// A topology's, or one component's.
    Component,
    /// Only a daemon's: refused in a topology's configuration.
    Daemon,
}

/// What a value looks like. Every kind has a bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Whole number in `min..=max`.
    Count(u32, u32),
    /// Bytes, with optional `KiB`, `MiB`, `GiB`; in `min..=max`.
    Bytes(u64, u64),
    /// Seconds, fractions allowed; in `min..=max`.
    Secs(f64, f64),
    /// Numbers and ranges, as `6700-6703` or `0,2,4-6`.
    Numbers(u32, u32),
    /// A number, fractions allowed; in `min..=max`.
    Number(f64, f64),
    /// `NAME=NUMBER` by comma, numbers in `0..=max`.
    Pairs(f64),
    /// Any text, at most so many bytes.
    Text(usize),
    /// One of these words.
    Word(&'static [&'static str]),
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Full name.
    pub name: &'static str,
    /// Who may set it.
    pub scope: Scope,
    /// Form of the value.
    pub kind: Kind,
    /// Built-in value; empty = not set.
    pub default: &'static str,
    /// One sentence with the unit and what happens at the bound.
    pub doc: &'static str,
}

const fn key(name: &'static str, scope: Scope, kind: Kind, default: &'static str, doc: &'static str) -> Key {
    Key { name, scope, kind, default, doc }
}

/// Every key, sorted by name. A key stands here only if something reads it.
pub const KEYS: &[Key] = &[
    key(
        "cluster.secret.file",
        Scope::Daemon,
        Kind::Text(4096),
        "",
        "file (mode 0600) whose content authenticates supervisors to nimbus; default: `cluster.secret` in nimbus.dir, made at first start",
    ),
    key(
        "executor.blocking",
        Scope::Component,
        Kind::Word(&["false", "true"]),
        "false",
        "true for a component whose calls block: each of its executors has a thread of its own, which parks when idle and shares its core",
    ),
    key(
        "executor.core",
        Scope::Component,
        Kind::Count(0, 4095),
        "",
        "core this component's executors run on, chosen by hand; must be one of the worker's cores",
    ),
    key(
        "executor.inbox.bytes",
        Scope::Topology,
        Kind::Bytes(4096, 1 << 30),
        "64KiB",
        "bytes an executor may hold undelivered, divided over the lanes that reach it; full = the emitters keep their frames",
    ),
    key(
        "executor.inbox.link.bytes",
        Scope::Topology,
        Kind::Bytes(4096, 1 << 30),
        "1MiB",
        "bytes on their way to an executor from other workers, divided over the links that reach it; full = the emitters keep their frames",
    ),
    key(
        "executor.outbox.bytes",
        Scope::Topology,
        Kind::Bytes(4096, 1 << 30),
        "16MiB",
        "bytes one call may put into its executor's outbox; beyond it the input fails, naming this key",
    ),
    key(
        "executor.panic.policy",
        Scope::Component,
        Kind::Word(&["restart", "skip", "crash", "dead-letter"]),
        "restart",
        "what a panic in user code leads to after its tuple failed: the task begins anew, goes on as it is, the worker stops, or the tuple goes to the dead-letter stream",
    ),
    key(
        "lane.ring.bytes",
        Scope::Topology,
        Kind::Bytes(4096, 1 << 28),
        "8KiB",
        "ring between two core loops of a worker; a power of two; full = frames wait with their emitter",
    ),
    key(
        "multitenant.scheduler.user.pools",
        Scope::Daemon,
        Kind::Pairs(1e9),
        "",
        "USER=NODES by comma: nodes a user may have for itself, for the multitenant scheduler",
    ),
    key("nimbus.bind", Scope::Daemon, Kind::Text(256), "127.0.0.1:6627", "address the REST interface listens on; loopback only"),
    key("nimbus.dir", Scope::Daemon, Kind::Text(4096), "saetta-local/nimbus", "directory for binaries and keys"),
    key(
        "nimbus.executors.perTopology",
        Scope::Daemon,
        Kind::Count(1, 1 << 20),
        "",
        "most executors (ackers included) a topology may ask for; more is refused at submit and rebalance",
    ),
    key(
        "nimbus.monitor.freq.secs",
        Scope::Daemon,
        Kind::Secs(0.1, 3600.0),
        "10",
        "seconds between safety-net scheduling rounds; events schedule at once",
    ),
    key("nimbus.seeds", Scope::Daemon, Kind::Text(4096), "127.0.0.1:6627", "addresses clients and supervisors try, by comma"),
    key(
        "nimbus.slots.perTopology",
        Scope::Daemon,
        Kind::Count(1, 1 << 16),
        "",
        "most workers a topology may ask for; more is refused at submit and rebalance",
    ),
    key(
        "resource.aware.scheduler.user.pools",
        Scope::Daemon,
        Kind::Pairs(1e9),
        "",
        "USER/KIND=AMOUNT by comma, kinds cpu (percent of a core), memory.mb and others: what users are sure to get from the resource-aware scheduler",
    ),
    key(
        "scheduler.deadline.secs",
        Scope::Daemon,
        Kind::Secs(0.01, 600.0),
        "5",
        "seconds a scheduler may take for one round; then its helper is killed and the fallback places",
    ),
    key(
        "scheduler.max.moves",
        Scope::Daemon,
        Kind::Count(0, 1 << 20),
        "",
        "running executors a round may move; a topology whose part would move more keeps its places; default: no limit",
    ),
    key(
        "scheduler.may.preempt",
        Scope::Daemon,
        Kind::Word(&["false", "true"]),
        "false",
        "true lets a scheduler take the slots of running executors for a topology of a better priority",
    ),
    key(
        "scheduler.memory.mb",
        Scope::Daemon,
        Kind::Count(64, 65536),
        "512",
        "address space of the scheduler helper in MiB; beyond it the helper dies and the fallback places",
    ),
    key(
        "scheduler.mode",
        Scope::Daemon,
        Kind::Word(&["isolated", "in-process"]),
        "isolated",
        "isolated: the plugin runs in a helper process, and what breaks there costs a round; in-process: in nimbus, which dies with it",
    ),
    key(
        "scheduler.node.health",
        Scope::Daemon,
        Kind::Text(256),
        "",
        "scheduler plugin that marks nodes as not to be used before each round, as blacklist: NAME as in scheduler.plugin; default: none",
    ),
    key("scheduler.node.health.config", Scope::Daemon, Kind::Text(65536), "", "configuration of the plugin of scheduler.node.health, JSON"),
    key(
        "scheduler.plugin",
        Scope::Daemon,
        Kind::Text(256),
        "even",
        "scheduler plugin: NAME stands for libsaetta_NAME.so in scheduler.plugin.dir",
    ),
    key(
        "scheduler.plugin.config",
        Scope::Daemon,
        Kind::Text(65536),
        "",
        "configuration of the scheduler plugin, JSON; what it understands is the plugin's",
    ),
    key("scheduler.plugin.dir", Scope::Daemon, Kind::Text(4096), "", "directory of scheduler plugins; default: beside the executable"),
    key(
        "scheduler.resources",
        Scope::Daemon,
        Kind::Word(&["auto", "enforced", "ignored"]),
        "auto",
        "whether plans are held to the CPU, memory and other resources of nodes; auto: where the plugin claims saetta.resources/1",
    ),
    key(
        "scheduler.rounds.bytes",
        Scope::Daemon,
        Kind::Bytes(1 << 20, 1 << 40),
        "64MiB",
        "what the recorded rounds in nimbus.dir may take together; of them the last 64 are kept, to be replayed",
    ),
    key(
        "scheduler.shadow",
        Scope::Daemon,
        Kind::Text(256),
        "",
        "scheduler plugin that gets every round too and whose plan is only compared: NAME as in scheduler.plugin; default: none",
    ),
    key("scheduler.shadow.config", Scope::Daemon, Kind::Text(65536), "", "configuration of the plugin of scheduler.shadow, JSON"),
    key(
        "supervisor.cores",
        Scope::Daemon,
        Kind::Numbers(0, 4095),
        "",
        "cores this supervisor divides over its slots; default: the cores it may run on",
    ),
    key(
        "supervisor.cpu.capacity",
        Scope::Daemon,
        Kind::Number(0.0, 1e6),
        "",
        "CPU this supervisor offers, percent of a core; default: 100 for each core of its slots",
    ),
    key("supervisor.dir", Scope::Daemon, Kind::Text(4096), "saetta-local/supervisor", "directory for worker state, binaries and logs"),
    key("supervisor.host", Scope::Daemon, Kind::Text(256), "127.0.0.1", "address other workers reach this machine's workers at"),
    key("supervisor.id", Scope::Daemon, Kind::Text(128), "", "stable id; default: made at first start and kept in supervisor.dir"),
    key(
        "supervisor.memory.capacity.mb",
        Scope::Daemon,
        Kind::Number(0.0, 1e9),
        "",
        "MiB this supervisor offers to workers; default: the machine's memory",
    ),
    key("supervisor.rack", Scope::Daemon, Kind::Text(128), "", "rack of this machine, for schedulers that look at distance"),
    key(
        "supervisor.resources",
        Scope::Daemon,
        Kind::Pairs(1e9),
        "",
        "KIND=AMOUNT by comma: other resources this supervisor offers, as gpu=2",
    ),
    key("supervisor.slots.ports", Scope::Daemon, Kind::Numbers(1, 65535), "6700-6703", "ports of the slots; one worker per slot"),
    key(
        "topology.acker.cpu.pcore.percent",
        Scope::Topology,
        Kind::Number(0.0, 1e6),
        "10",
        "CPU an acker executor asks schedulers for, percent of a core",
    ),
    key(
        "topology.acker.executors",
        Scope::Topology,
        Kind::Count(0, 1 << 20),
        "",
        "acker executors; 0 = no acking; default: topology.workers",
    ),
    key(
        "topology.acker.resources.offheap.memory.mb",
        Scope::Topology,
        Kind::Number(0.0, 1e9),
        "0",
        "MiB an acker executor asks for beside those that count against topology.worker.max.heap.size.mb",
    ),
    key(
        "topology.acker.resources.onheap.memory.mb",
        Scope::Topology,
        Kind::Number(0.0, 1e9),
        "128",
        "MiB an acker executor asks for that count against topology.worker.max.heap.size.mb",
    ),
    key(
        "topology.component.cpu.pcore.percent",
        Scope::Component,
        Kind::Number(0.0, 1e6),
        "10",
        "CPU an executor asks schedulers for, percent of a core, where its code states none",
    ),
    key(
        "topology.component.incompatible",
        Scope::Component,
        Kind::Text(4096),
        "",
        "components by comma that may not share a worker with this one, for schedulers that look at constraints",
    ),
    key(
        "topology.component.max.colocation",
        Scope::Component,
        Kind::Count(1, 1 << 20),
        "",
        "most executors of the component on one node, for schedulers that look at constraints; default: no limit",
    ),
    key(
        "topology.component.resources",
        Scope::Component,
        Kind::Pairs(1e9),
        "",
        "KIND=AMOUNT by comma: other resources an executor asks for, as gpu=1; what its code states wins, kind by kind",
    ),
    key(
        "topology.component.resources.offheap.memory.mb",
        Scope::Component,
        Kind::Number(0.0, 1e9),
        "0",
        "MiB an executor asks for beside those that count against topology.worker.max.heap.size.mb, where its code states no memory",
    ),
    key(
        "topology.component.resources.onheap.memory.mb",
        Scope::Component,
        Kind::Number(0.0, 1e9),
        "128",
        "MiB an executor asks for that count against topology.worker.max.heap.size.mb, where its code states no memory",
    ),
    key(
        "topology.isolate.machines",
        Scope::Topology,
        Kind::Count(1, 1 << 16),
        "",
        "machines the topology wants for itself, for the multitenant scheduler",
    ),
    key(
        "topology.max.spout.pending",
        Scope::Component,
        Kind::Count(1, 1 << 20),
        "",
        "most trees a spout task has open; at it the task is not asked; default: its part of worker.pending.max",
    ),
    key("topology.max.task.parallelism", Scope::Topology, Kind::Count(1, 1 << 20), "", "cap on tasks and executors of each component"),
    key(
        "topology.message.timeout.secs",
        Scope::Topology,
        Kind::Secs(0.001, 86400.0),
        "30",
        "seconds until an unfinished tree fails; also the default wait of kill",
    ),
    key(
        "topology.ras.acker.executors.per.worker",
        Scope::Topology,
        Kind::Count(0, 1 << 16),
        "1",
        "ackers the resource-aware scheduler puts into each worker it opens, as far as they go",
    ),
    key(
        "topology.ras.constraint.max.state.search",
        Scope::Topology,
        Kind::Count(1, 1 << 30),
        "10000",
        "states the resource-aware scheduler looks at before it gives up on the topology",
    ),
    key(
        "topology.ras.constraint.max.time.secs",
        Scope::Topology,
        Kind::Secs(0.001, 3600.0),
        "60",
        "seconds the resource-aware scheduler looks before it gives up on the topology",
    ),
    key(
        "topology.ras.one.component.per.worker",
        Scope::Topology,
        Kind::Word(&["false", "true"]),
        "false",
        "true: a worker holds executors of one component, with the resource-aware scheduler",
    ),
    key(
        "topology.ras.one.executor.per.worker",
        Scope::Topology,
        Kind::Word(&["false", "true"]),
        "false",
        "true: a worker holds one executor, with the resource-aware scheduler; wins over one component",
    ),
    key(
        "topology.ras.order.executors.by.proximity.needs",
        Scope::Topology,
        Kind::Word(&["false", "true"]),
        "false",
        "true: the resource-aware scheduler places executors in the order of the graph, not by number of connections",
    ),
    key(
        "topology.scheduler.favored.nodes",
        Scope::Topology,
        Kind::Text(65536),
        "",
        "hosts by comma, best first, that the topology would rather have",
    ),
    key(
        "topology.scheduler.strategy",
        Scope::Topology,
        Kind::Text(256),
        "",
        "how the resource-aware scheduler places the topology; default: the scheduler's own choice",
    ),
    key(
        "topology.scheduler.unfavored.nodes",
        Scope::Topology,
        Kind::Text(65536),
        "",
        "hosts by comma that the topology would rather not have",
    ),
    key(
        "topology.spread.components",
        Scope::Topology,
        Kind::Text(65536),
        "",
        "components by comma whose executors go to as many nodes as there are",
    ),
    key(
        "topology.tasks",
        Scope::Component,
        Kind::Count(1, 1 << 20),
        "",
        "tasks of each component that does not set its own; default: as many as executors",
    ),
    key(
        "topology.tick.tuple.freq.secs",
        Scope::Component,
        Kind::Secs(0.001, 86_400.0),
        "",
        "seconds between two ticks of each bolt task; default: none",
    ),
    key(
        "topology.worker.max.heap.size.mb",
        Scope::Topology,
        Kind::Number(0.0, 1e9),
        "768",
        "MiB the on-heap requests of the executors in one worker may add up to, with the resource-aware scheduler; 0 = no limit",
    ),
    key("topology.workers", Scope::Topology, Kind::Count(1, 1 << 16), "1", "worker processes asked for"),
    key(
        "transport.carrier",
        Scope::Topology,
        Kind::Word(&["auto", "io_uring", "epoll"]),
        "auto",
        "what carries links over sockets: io_uring or epoll; auto takes epoll only where io_uring is refused, and says so once",
    ),
    key(
        "transport.links.max",
        Scope::Topology,
        Kind::Count(1, 1 << 16),
        "256",
        "links of one worker, each between one of its loops and one of another worker; above it the loops of each two workers share one",
    ),
    key(
        "transport.memory",
        Scope::Topology,
        Kind::Word(&["true", "false"]),
        "true",
        "whether workers of one host, user and network namespace exchange tuples through memory they share; false = TCP as with all others",
    ),
    key(
        "transport.tls",
        Scope::Topology,
        Kind::Word(&["false", "true"]),
        "false",
        "true puts TCP between workers under TLS 1.3, bound to the topology's key; workers that differ in it refuse each other; shared memory stays",
    ),
    key(
        "worker.crash.window.max",
        Scope::Topology,
        Kind::Count(1, 1000),
        "5",
        "panics of user code within 60 s after which the worker stops",
    ),
    key(
        "worker.heartbeat.timeout.secs",
        Scope::Daemon,
        Kind::Secs(0.5, 600.0),
        "10",
        "seconds without a heartbeat of the worker's watchdog after which the supervisor kills it",
    ),
    key("worker.launch.grace.secs", Scope::Daemon, Kind::Secs(0.5, 600.0), "30", "seconds a started worker has until its first heartbeat"),
    key(
        "worker.log.bytes.max",
        Scope::Daemon,
        Kind::Bytes(64 << 10, 1 << 40),
        "64MiB",
        "size of a worker's log; beyond it the supervisor keeps the newest half",
    ),
    key(
        "worker.memory.mb",
        Scope::Topology,
        Kind::Count(16, 1 << 20),
        "2048",
        "MiB a worker's lanes, inboxes, outboxes and pools may add up to; a larger sum refuses to start",
    ),
    key(
        "worker.min.cpu.pcore.percent",
        Scope::Daemon,
        Kind::Number(0.0, 1e6),
        "0",
        "least CPU a worker counts as taking, percent of a core",
    ),
    key(
        "worker.mode",
        Scope::Topology,
        Kind::Word(&["shared", "dedicated"]),
        "shared",
        "shared: one loop per core runs all its executors; dedicated: one loop per executor (64 in a worker), which share cores",
    ),
    key(
        "worker.moves",
        Scope::Topology,
        Kind::Word(&["true", "false"]),
        "true",
        "executors change place between running workers, losing nothing; false: a worker whose executors are others starts anew",
    ),
    key(
        "worker.outbox.bytes",
        Scope::Topology,
        Kind::Bytes(64 << 10, 1 << 34),
        "256MiB",
        "pool all outboxes of a worker draw on; empty = the input that wanted more fails, naming this key",
    ),
    key(
        "worker.pending.max",
        Scope::Topology,
        Kind::Count(1024, 1 << 26),
        "1048576",
        "open trees of a worker, shared evenly by its spout tasks; a task at its part is not asked; memory is taken as used",
    ),
    key(
        "worker.wait",
        Scope::Topology,
        Kind::Word(&["spin", "hybrid", "yield", "park"]),
        "hybrid",
        "how a core loop waits when it finds no work; where loops share a core, all but park yield it a few times and then park",
    ),
    key("zookeeper.root", Scope::Daemon, Kind::Text(256), "/saetta", "znode under which everything of this cluster lives"),
    key("zookeeper.servers", Scope::Daemon, Kind::Text(4096), "127.0.0.1:2181", "ZooKeeper servers, host:port by comma"),
    key("zookeeper.session.timeout.secs", Scope::Daemon, Kind::Secs(0.5, 600.0), "6", "ZooKeeper session timeout"),
];

/// Where a value came from; later ones win.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The table above.
    BuiltIn,
    /// The topology's own code.
    Code,
    /// A file, with line (counted from 1).
    File(String, usize),
    /// An environment variable.
    Env(String),
    /// `--set`.
    Set,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::BuiltIn => f.write_str("built-in"),
            Source::Code => f.write_str("the topology's code"),
            Source::File(file, line) => write!(f, "{file}:{line}"),
            Source::Env(name) => write!(f, "environment {name}"),
            Source::Set => f.write_str("--set"),
        }
    }
}

/// What is wrong with a setting: where it stands, what, what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct ConfigError {
    /// Where the setting came from.
    pub place: String,
    /// What is wrong and what to do.
    pub what: String,
}

/// Whose configuration this is: decides which keys it may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A topology (also one component's overrides).
    Topology,
    /// A daemon or the command line.
    Daemon,
}

/// Checked settings over the built-in values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    owner: Owner,
    /// Every key here is in `KEYS`, every value passed its kind.
    values: BTreeMap<&'static str, (String, Source)>,
}

/// Looks a key up.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|k| k.name == name)
}

impl Config {
    /// Only built-in values.
    pub fn new(owner: Owner) -> Self {
        Config { owner, values: BTreeMap::new() }
    }

    /// A topology's configuration from stored pairs (a record or a description).
    pub fn topology<'a>(pairs: impl IntoIterator<Item = (&'a String, &'a String)>, source: Source) -> Result<Self, ConfigError> {
        let mut config = Config::new(Owner::Topology);
        for (k, v) in pairs {
            config.set(k, v, source.clone())?;
        }
        Ok(config)
    }

    /// Sets one key. The caller goes through its sources in rising precedence.
    pub fn set(&mut self, name: &str, value: &str, source: Source) -> Result<(), ConfigError> {
        let refuse = |what: String| Err(ConfigError { place: source.to_string(), what });
        let Some(key) = find(name) else {
            let hint = nearest(name, KEYS.iter().map(|k| k.name)).map(|n| format!("; did you mean `{n}`?"));
            return refuse(format!("unknown key `{name}`{}", hint.unwrap_or_else(|| "; `saetta help config` lists the keys".into())));
        };
        match (self.owner, key.scope) {
            (Owner::Topology, Scope::Daemon) => {
                return refuse(format!("`{name}` belongs to a daemon's configuration and cannot be set by a topology"));
            }
            (Owner::Daemon, Scope::Topology | Scope::Component) => {
                return refuse(format!("`{name}` belongs to a topology's configuration; give it at submit with --set"));
            }
            _ => {}
        }
        if let Err(why) = check(key, value.trim()) {
            return refuse(format!("`{name}` = {value:?}: {why}"));
        }
        self.values.insert(key.name, (value.trim().to_owned(), source));
        Ok(())
    }

    /// Sets from `key=value`, as given to `--set`.
    pub fn set_pair(&mut self, pair: &str) -> Result<(), ConfigError> {
        match pair.split_once('=') {
            Some((k, v)) => self.set(k.trim(), v, Source::Set),
            None => Err(ConfigError { place: "--set".into(), what: format!("{pair:?} is not KEY=VALUE") }),
        }
    }

    /// Takes `SAETTA__A__B=v` as `a.b=v`, case-insensitively. Other variables are not looked at.
    pub fn set_env(&mut self, vars: impl IntoIterator<Item = (String, String)>) -> Result<(), ConfigError> {
        for (var, value) in vars {
            let Some(rest) = var.strip_prefix("SAETTA__") else { continue };
            let dotted = rest.replace("__", ".");
            // perTopology is the one camel-case part of a key; match without regard to case.
            let name = KEYS.iter().map(|k| k.name).find(|n| n.eq_ignore_ascii_case(&dotted)).map_or(dotted.to_lowercase(), str::to_owned);
            self.set(&name, &value, Source::Env(var))?;
        }
        Ok(())
    }

    /// The value in force as text; `None` = not set and no built-in value.
    pub fn text(&self, name: &str) -> Option<&str> {
        let key = find(name).unwrap_or_else(|| panic!("`{name}` is not a key: a bug of the caller"));
        match self.values.get(key.name) {
            Some((v, _)) => Some(v),
            None if key.default.is_empty() => None,
            None => Some(key.default),
        }
    }

    /// Where the value in force came from.
    pub fn source(&self, name: &str) -> Source {
        self.values.get(name).map_or(Source::BuiltIn, |(_, s)| s.clone())
    }

    /// A whole number.
    pub fn u32(&self, name: &str) -> Option<u32> {
        self.text(name).map(|t| t.parse().expect("checked when set"))
    }

    /// Bytes.
    pub fn bytes(&self, name: &str) -> Option<u64> {
        self.text(name).map(|t| parse_bytes(t).expect("checked when set"))
    }

    /// A duration.
    pub fn duration(&self, name: &str) -> Option<std::time::Duration> {
        self.text(name).map(|t| std::time::Duration::from_secs_f64(t.parse().expect("checked when set")))
    }

    /// Numbers, in the order written, ranges spread out.
    pub fn numbers(&self, name: &str) -> Option<Vec<u32>> {
        self.text(name).map(|t| parse_numbers(t).expect("checked when set"))
    }

    /// A number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.text(name).map(|t| t.parse().expect("checked when set"))
    }

    /// Numbers by name; none where it is not set.
    pub fn named_numbers(&self, name: &str) -> BTreeMap<String, f64> {
        self.text(name).map(|t| parse_pairs(t).expect("checked when set")).unwrap_or_default()
    }

    /// Words by comma, without blanks around them; none where it is not set.
    pub fn words(&self, name: &str) -> Vec<&str> {
        self.text(name).map(|t| t.split(',').map(str::trim).filter(|w| !w.is_empty()).collect()).unwrap_or_default()
    }

    /// True where a key of the words `true` and `false` says `true`.
    pub fn is_on(&self, name: &str) -> bool {
        self.text(name) == Some("true")
    }

    /// Settings that differ from the built-in ones, as they would be stored.
    pub fn pairs(&self) -> BTreeMap<String, String> {
        self.values.iter().map(|(k, (v, _))| ((*k).to_owned(), v.clone())).collect()
    }

    /// These settings with `over` on top.
    pub fn overlaid(&self, over: &Config) -> Config {
        let mut both = self.clone();
        both.values.extend(over.values.iter().map(|(k, v)| (*k, v.clone())));
        both
    }
}

fn check(key: &Key, value: &str) -> Result<(), String> {
    let between = |lo: &dyn fmt::Display, hi: &dyn fmt::Display| format!("allowed are {lo} to {hi}");
    match key.kind {
        Kind::Count(lo, hi) => match value.parse::<u32>() {
            Ok(n) if (lo..=hi).contains(&n) => Ok(()),
            Ok(_) => Err(between(&lo, &hi)),
            Err(_) => Err(format!("not a whole number; {}", between(&lo, &hi))),
        },
        Kind::Bytes(lo, hi) => match parse_bytes(value) {
            Some(n) if (lo..=hi).contains(&n) => Ok(()),
            Some(_) => Err(between(&lo, &hi) + " bytes"),
            None => Err("not a size; write bytes or a number with KiB, MiB or GiB".into()),
        },
        Kind::Secs(lo, hi) => match value.parse::<f64>() {
            Ok(s) if s.is_finite() && (lo..=hi).contains(&s) => Ok(()),
            Ok(_) => Err(between(&lo, &hi) + " seconds"),
            Err(_) => Err("not a number of seconds".into()),
        },
        Kind::Numbers(lo, hi) => match parse_numbers(value) {
            Some(all) if all.is_empty() => Err("names nothing".into()),
            Some(all) if all.iter().any(|n| !(lo..=hi).contains(n)) => Err(between(&lo, &hi)),
            Some(mut all) => {
                let n = all.len();
                all.sort_unstable();
                all.dedup();
                if all.len() == n { Ok(()) } else { Err("names one twice".into()) }
            }
            None => Err("not a list of numbers; write as 6700-6703 or 0,2,4-6".into()),
        },
        Kind::Number(lo, hi) => match value.parse::<f64>() {
            Ok(n) if n.is_finite() && (lo..=hi).contains(&n) => Ok(()),
            Ok(_) => Err(between(&lo, &hi)),
            Err(_) => Err("not a number".into()),
        },
        Kind::Pairs(hi) => match parse_pairs(value) {
            Some(pairs) if pairs.values().all(|n| (0.0..=hi).contains(n)) => Ok(()),
            Some(_) => Err(between(&0, &hi)),
            None => Err("not a list of NAME=NUMBER by comma, each name once".into()),
        },
        Kind::Text(max) if value.len() > max => Err(format!("longer than {max} bytes")),
        Kind::Text(_) => Ok(()),
        Kind::Word(words) if words.contains(&value) => Ok(()),
        Kind::Word(words) => Err(format!("use one of: {}", words.join(", "))),
    }
}

fn parse_bytes(text: &str) -> Option<u64> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let scale: u64 = match unit.trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

fn parse_pairs(text: &str) -> Option<BTreeMap<String, f64>> {
    let mut pairs = BTreeMap::new();
    for pair in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (name, number) = pair.split_once('=')?;
        let number = number.trim().parse().ok().filter(|n: &f64| n.is_finite())?;
        let name = name.trim();
        if name.is_empty() || pairs.insert(name.to_owned(), number).is_some() {
            return None;
        }
    }
    Some(pairs)
}

/// Most numbers a list may spread out to.
const NUMBERS_MAX: usize = 65_536;

fn parse_numbers(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let (lo, hi) = match part.split_once('-') {
            Some((lo, hi)) => (lo.trim().parse::<u32>().ok()?, hi.trim().parse::<u32>().ok()?),
            None => (part.parse::<u32>().ok()?, part.parse::<u32>().ok()?),
        };
        if lo > hi || (hi - lo) as usize > NUMBERS_MAX || all.len() > NUMBERS_MAX {
            return None;
        }
        all.extend(lo..=hi);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_unique_and_their_defaults_pass_their_own_check() {
        for pair in KEYS.windows(2) {
            assert!(pair[0].name < pair[1].name, "{} before {}", pair[0].name, pair[1].name);
        }
        for k in KEYS.iter().filter(|k| !k.default.is_empty()) {
            check(k, k.default).unwrap_or_else(|e| panic!("{}: {e}", k.name));
        }
    }

    #[test]
    fn an_unknown_key_names_the_nearest_and_the_place() {
        let e = Config::new(Owner::Topology).set("topology.worker", "2", Source::File("a.toml".into(), 7)).unwrap_err();
        assert_eq!(e.to_string(), "a.toml:7: unknown key `topology.worker`; did you mean `topology.workers`?");
    }

    #[test]
    fn a_topology_cannot_set_a_daemon_key_nor_a_daemon_a_topology_key() {
        assert!(Config::new(Owner::Topology).set_pair("nimbus.dir=/tmp").is_err());
        assert!(Config::new(Owner::Daemon).set_pair("topology.workers=2").is_err());
    }

    #[test]
    fn values_are_checked_when_set() {
        let mut c = Config::new(Owner::Topology);
        for bad in [
            "topology.workers=0",
            "topology.workers=-1",
            "topology.workers=1e3",
            "topology.message.timeout.secs=NaN",
            "lane.ring.bytes=64KB",
            "worker.wait=sleep",
            "topology.workers",
        ] {
            assert!(c.set_pair(bad).is_err(), "{bad}");
        }
        let mut d = Config::new(Owner::Daemon);
        for bad in [
            "supervisor.slots.ports=0",
            "supervisor.slots.ports=65536",
            "supervisor.slots.ports=6700,6700",
            "supervisor.slots.ports=9-1",
            "supervisor.slots.ports=",
        ] {
            assert!(d.set_pair(bad).is_err(), "{bad}");
        }
        d.set_pair("supervisor.slots.ports=6700,6710-6712").unwrap();
        assert_eq!(d.numbers("supervisor.slots.ports").unwrap(), [6700, 6710, 6711, 6712]);
        c.set_pair("lane.ring.bytes=128KiB").unwrap();
        assert_eq!(c.bytes("lane.ring.bytes"), Some(131_072));
    }

    #[test]
    fn environment_names_map_to_keys() {
        let mut d = Config::new(Owner::Daemon);
        d.set_env([("SAETTA__NIMBUS__SLOTS__PERTOPOLOGY".into(), "3".into()), ("HOME".into(), "/x".into())]).unwrap();
        assert_eq!(d.u32("nimbus.slots.perTopology"), Some(3));
        assert!(d.set_env([("SAETTA__NIMBUS__DIRR".to_string(), "x".to_string())]).is_err());
    }
}
