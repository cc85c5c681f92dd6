//! What a scenario file says: machines, topologies, and what happens one after the other. TOML and JSON have the same words.
//!
//! Before: a file's text. After: a checked [`Scenario`]; every name a step uses exists when it is used, every number is within its bound.
//! Files of a cluster alone (`supervisors` and `topologies`, as those taken from Storm's tests) are scenarios without steps: all topologies
//! are submitted in one round, and a second round finds nothing to do.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Most machines of a scenario.
pub const NODES_MAX: usize = 20_000;
/// Most slots of one machine.
pub const SLOTS_MAX: u32 = 1_000;
/// Most cores of one machine.
pub const CORES_MAX: u32 = 1_024;
/// Most executors, ackers included, of all topologies.
pub const EXECUTORS_MAX: u64 = 500_000;
/// Most steps.
pub const STEPS_MAX: usize = 10_000;
/// Longest file.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// A whole file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Where it comes from; only for people.
    #[serde(default)]
    pub source: String,
    /// Running executors that may move in one round; absent = no limit.
    pub max_moves: Option<u32>,
    /// Least CPU a worker counts as taking, percent of a core.
    #[serde(default)]
    pub min_worker_cpu_percent: f64,
    /// Configuration of plugins, by the name of each; what is not named here has none, or that of the daemon.
    #[serde(default)]
    pub plugins: BTreeMap<String, serde_json::Map<String, serde_json::Value>>,
    /// Machines there are from the beginning.
    #[serde(default)]
    pub supervisors: Vec<Supervisors>,
    /// What can be submitted.
    #[serde(default)]
    pub topologies: Vec<Topology>,
    /// What happens; a round follows each.
    #[serde(default)]
    pub steps: Vec<Step>,
}

/// Machines that are alike.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Supervisors {
    /// Name of the only one, or what the names of all begin with: `n` gives `n-0`, `n-1`; absent = the rack's, or `node`.
    pub name: Option<String>,
    /// How many.
    #[serde(default = "one")]
    pub count: u32,
    /// Rack; empty = not stated.
    #[serde(default)]
    pub rack: String,
    /// Slots of each.
    pub slots: u32,
    /// CPU of each, percent of a core.
    #[serde(default)]
    pub cpu_percent: f64,
    /// Memory of each.
    #[serde(default)]
    pub memory_mb: f64,
    /// Other resources of each, in units.
    #[serde(default)]
    pub resources: BTreeMap<String, f64>,
    /// Cores of each; 0 = nothing is known of them.
    #[serde(default)]
    pub cores: u32,
    /// Cores that share a last-level cache; 0 = all.
    #[serde(default)]
    pub cores_per_l3: u32,
}

/// A topology.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Unique in the file.
    pub id: String,
    /// Workers wanted.
    #[serde(default = "one")]
    pub workers: u32,
    /// Ackers; absent = one for each worker.
    pub ackers: Option<u32>,
    /// Smaller is served first.
    #[serde(default)]
    pub priority: i32,
    /// Who submits it.
    #[serde(default)]
    pub owner: String,
    /// Strategy it asks for.
    #[serde(default)]
    pub strategy: String,
    /// Machines it wants for itself.
    #[serde(default)]
    pub isolate_machines: u32,
    /// Most on-heap memory of one worker; 0 = no limit.
    #[serde(default)]
    pub max_heap_mb: f64,
    /// Tasks and executors of a component are at most so many.
    pub max_task_parallelism: Option<u32>,
    /// Of components that do not state it, percent of a core.
    #[serde(default)]
    pub default_cpu_percent: f64,
    /// Of components that do not state it.
    #[serde(default)]
    pub default_onheap_mb: f64,
    /// Of components that do not state it.
    #[serde(default)]
    pub default_offheap_mb: f64,
    /// Of one acker; absent = 10.
    pub acker_cpu_percent: Option<f64>,
    /// Of one acker; absent = 128.
    pub acker_onheap_mb: Option<f64>,
    /// Spouts and bolts.
    pub components: Vec<Component>,
}

/// A spout or a bolt.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Component {
    /// Unique in the topology.
    pub id: String,
    /// Which.
    pub kind: Kind,
    /// Executors; absent = as many as tasks. At most as many as tasks.
    pub executors: Option<u32>,
    /// Tasks; absent = as many as executors.
    pub tasks: Option<u32>,
    /// What an executor asks for, percent of a core.
    pub cpu_percent: Option<f64>,
    /// What an executor asks for.
    pub onheap_mb: Option<f64>,
    /// What an executor asks for.
    pub offheap_mb: Option<f64>,
    /// Other resources an executor asks for, in units.
    #[serde(default)]
    pub resources: BTreeMap<String, f64>,
    /// Streams it reads.
    #[serde(default)]
    pub inputs: Vec<Input>,
}

/// Spout or bolt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Reads nothing.
    #[default]
    Spout,
    /// Reads streams.
    Bolt,
}

/// A subscription.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Emitting component.
    pub from: String,
    /// Its stream.
    #[serde(default = "default_stream")]
    pub stream: String,
    /// How its tuples are spread.
    #[serde(default)]
    pub grouping: Grouping,
    /// Fields of a fields grouping; not looked at.
    #[serde(default)]
    pub fields: Vec<String>,
    /// Tuples per second measured over it.
    pub tuples_per_s: Option<u64>,
    /// Bytes per second measured over it.
    pub bytes_per_s: Option<u64>,
}

/// How a stream is spread over executors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "as in the semantics")]
pub enum Grouping {
    #[default]
    Shuffle,
    LocalOrShuffle,
    LoadAware,
    Fields,
    PartialKey,
    All,
    Global,
    None,
    Direct,
    /// `custom_serialized`: a grouping of the topology's own code.
    #[serde(alias = "custom_serialized", alias = "custom_object")]
    Custom,
}

/// What happens before a round.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Step {
    /// Submits a topology; absent = all that do not run.
    Submit {
        /// Id.
        topology: Option<String>,
    },
    /// Kills a topology.
    Kill {
        /// Id.
        topology: String,
    },
    /// A machine is gone, and what ran on it is dead.
    NodeLost {
        /// Name.
        node: String,
    },
    /// A machine that was lost is there again.
    NodeBack {
        /// Name.
        node: String,
    },
    /// More machines.
    AddRack(Supervisors),
    /// Other numbers for a topology that runs.
    Rebalance {
        /// Id.
        topology: String,
        /// Workers from now on.
        workers: Option<u32>,
        /// Executors from now on, by component.
        #[serde(default)]
        executors: BTreeMap<String, u32>,
    },
    /// Other rates are measured on a subscription.
    Drift {
        /// Id.
        topology: String,
        /// Emitting component.
        from: String,
        /// Subscribing component.
        to: String,
        /// Stream.
        #[serde(default = "default_stream")]
        stream: String,
        /// From now on.
        tuples_per_s: u64,
        /// From now on.
        bytes_per_s: u64,
    },
    /// Nothing.
    Round,
}

fn one() -> u32 {
    1
}

fn default_stream() -> String {
    "default".to_owned()
}

/// What is wrong with a file: which, where in it, what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct ScenarioError {
    /// File and line, or file and the entry.
    pub place: String,
    /// What is wrong; then the remedy.
    pub what: String,
}

impl Component {
    /// Tasks and executors, before the topology's cap.
    fn numbers(&self) -> (u32, u32) {
        let tasks = self.tasks.or(self.executors).unwrap_or(1);
        (tasks, self.executors.unwrap_or(tasks).min(tasks))
    }
}

impl Topology {
    /// Tasks and executors of a component.
    pub fn numbers(&self, component: &Component) -> (u32, u32) {
        let (tasks, executors) = component.numbers();
        let cap = self.max_task_parallelism.unwrap_or(u32::MAX);
        (tasks.min(cap), executors.min(cap))
    }
    /// How many ackers.
    pub fn n_ackers(&self) -> u32 {
        self.ackers.unwrap_or(self.workers)
    }
    /// Executors with ackers.
    pub fn n_executors(&self) -> u64 {
        self.components.iter().map(|c| u64::from(self.numbers(c).1)).sum::<u64>() + u64::from(self.n_ackers())
    }
}

impl Supervisors {
    /// Names of the machines, given those that are taken: a second group of the same name goes on counting.
    pub fn names(&self, taken: &BTreeSet<String>) -> Vec<String> {
        let begin = match &self.name {
            Some(name) if self.count == 1 => return vec![name.clone()],
            Some(name) => name.as_str(),
            None if self.rack.is_empty() => "node",
            None => self.rack.as_str(),
        };
        // Wide enough to sort as they count.
        (0u32..).map(|i| format!("{begin}-{i:04}")).filter(|n| !taken.contains(n)).take(self.count as usize).collect()
    }
}

impl Scenario {
    /// Reads and checks a file's text; JSON where it begins with a brace, else TOML. `file` is its name, for errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let mut scenario = if text.trim_start().starts_with('{') { from_json(file, text)? } else { from_toml(file, text)? };
        scenario.check().map_err(|(at, what)| ScenarioError { place: format!("{file}: {at}"), what })?;
        if scenario.steps.is_empty() && !scenario.topologies.is_empty() {
            scenario.steps = vec![Step::Submit { topology: None }, Step::Round];
        }
        Ok(scenario)
    }

    /// Every name exists when it is used. `Err` says where and what.
    fn check(&self) -> Result<(), (String, String)> {
        let mut known = Names::default();
        for (i, group) in self.supervisors.iter().enumerate() {
            known.add(group, &format!("supervisors[{i}]"))?;
        }
        if !(0.0..=1e9).contains(&self.min_worker_cpu_percent) {
            return Err(("min_worker_cpu_percent".into(), "it is not a number from 0 to 1e9".into()));
        }
        let mut total = 0;
        for (i, t) in self.topologies.iter().enumerate() {
            if self.topologies[..i].iter().any(|o| o.id == t.id) {
                return Err((format!("topology `{}`", t.id), "it appears twice; ids are unique".into()));
            }
            t.check()?;
            total += t.n_executors();
        }
        if total > EXECUTORS_MAX {
            return Err(("topologies".into(), format!("{total} executors, at most {EXECUTORS_MAX} are simulated; leave topologies out")));
        }
        if self.steps.len() > STEPS_MAX {
            return Err(("steps".into(), format!("{} steps, at most {STEPS_MAX}; split the file", self.steps.len())));
        }
        let mut running = BTreeSet::new();
        for (i, step) in self.steps.iter().enumerate() {
            let at = format!("steps[{i}] ({})", step.word());
            self.check_step(step, &at, &mut known, &mut running)?;
        }
        if known.there.is_empty() && known.lost.is_empty() {
            return Err(("supervisors".into(), "there is no machine; add one with [[supervisors]] and slots = 4".into()));
        }
        Ok(())
    }

    fn check_step(&self, step: &Step, at: &str, known: &mut Names, running: &mut BTreeSet<String>) -> Result<(), (String, String)> {
        let refuse = |what: String| Err((at.to_owned(), what));
        let topology = |id: &str| {
            self.topologies.iter().find(|t| t.id == id).ok_or_else(|| {
                let near = hint(id, self.topologies.iter().map(|t| t.id.as_str()));
                (at.to_owned(), format!("there is no topology `{id}`{near}"))
            })
        };
        let runs = |id: &str, running: &BTreeSet<String>| {
            topology(id)?;
            if running.contains(id) {
                return Ok(());
            }
            Err((at.to_owned(), format!("topology `{id}` does not run here; submit it in a step before")))
        };
        match step {
            Step::Submit { topology: Some(id) } => {
                topology(id)?;
                if !running.insert(id.clone()) {
                    return refuse(format!("topology `{id}` runs already; kill it in a step before"));
                }
            }
            Step::Submit { topology: None } => running.extend(self.topologies.iter().map(|t| t.id.clone())),
            Step::Kill { topology: id } => {
                runs(id, running)?;
                running.remove(id);
            }
            Step::NodeLost { node } => match known.there.take(node) {
                Some(node) => {
                    known.lost.insert(node);
                }
                None if known.lost.contains(node) => return refuse(format!("node `{node}` is lost already")),
                None => {
                    let near = hint(node, known.there.iter().map(String::as_str));
                    return refuse(format!("there is no node `{node}`{near}"));
                }
            },
            Step::NodeBack { node } => match known.lost.take(node) {
                Some(node) => {
                    known.there.insert(node);
                }
                None => return refuse(format!("node `{node}` was not lost before; lose it with do = \"node-lost\"")),
            },
            Step::AddRack(group) => known.add(group, at)?,
            Step::Rebalance { topology: id, workers, executors } => {
                runs(id, running)?;
                if *workers == Some(0) {
                    return refuse("0 workers; ask for at least 1".into());
                }
                let t = topology(id)?;
                for (component, n) in executors {
                    let Some(c) = t.components.iter().find(|c| c.id == *component) else {
                        let near = hint(component, t.components.iter().map(|c| c.id.as_str()));
                        return refuse(format!("topology `{id}` has no component `{component}`{near}"));
                    };
                    let tasks = t.numbers(c).0;
                    if *n == 0 || *n > tasks {
                        return refuse(format!("{n} executors for component `{component}`, which has {tasks} tasks; ask for 1 to {tasks}"));
                    }
                }
            }
            Step::Drift { topology: id, from, to, stream, .. } => {
                runs(id, running)?;
                let reader = topology(id)?.components.iter().find(|c| c.id == *to);
                let reads = |c: &&Component| c.inputs.iter().any(|i| i.from == *from && i.stream == *stream);
                if reader.filter(reads).is_none() {
                    return refuse(format!(
                        "in topology `{id}`, `{to}` does not read stream `{stream}` of `{from}`; name one of its inputs"
                    ));
                }
            }
            Step::Round => {}
        }
        Ok(())
    }
}

/// Machines by name, as the steps go on.
#[derive(Default)]
struct Names {
    there: BTreeSet<String>,
    lost: BTreeSet<String>,
}

impl Names {
    fn add(&mut self, group: &Supervisors, at: &str) -> Result<(), (String, String)> {
        let refuse = |what: String| Err((at.to_owned(), what));
        let total = self.there.len() + self.lost.len() + group.count as usize;
        if total > NODES_MAX {
            return refuse(format!("{total} machines with these, at most {NODES_MAX}; lower count"));
        }
        if !(1..=SLOTS_MAX).contains(&group.slots) {
            return refuse(format!("slots = {}, and it is 1 to {SLOTS_MAX}", group.slots));
        }
        if group.cores > CORES_MAX {
            return refuse(format!("cores = {}, and it is at most {CORES_MAX}", group.cores));
        }
        amounts([("cpu_percent", group.cpu_percent), ("memory_mb", group.memory_mb)], &group.resources)
            .map_err(|what| (at.to_owned(), what))?;
        let taken: BTreeSet<String> = self.there.union(&self.lost).cloned().collect();
        for name in group.names(&taken) {
            if taken.contains(&name) {
                return refuse(format!("a machine `{name}` exists already; give it another name"));
            }
            self.there.insert(name);
        }
        Ok(())
    }
}

impl Step {
    /// As in the file.
    pub fn word(&self) -> &'static str {
        match self {
            Step::Submit { .. } => "submit",
            Step::Kill { .. } => "kill",
            Step::NodeLost { .. } => "node-lost",
            Step::NodeBack { .. } => "node-back",
            Step::AddRack(_) => "add-rack",
            Step::Rebalance { .. } => "rebalance",
            Step::Drift { .. } => "drift",
            Step::Round => "round",
        }
    }

    /// With what it is about.
    pub fn text(&self) -> String {
        let about = match self {
            Step::Submit { topology: None } => "all",
            Step::Submit { topology: Some(id) } | Step::Kill { topology: id } | Step::Rebalance { topology: id, .. } => id,
            Step::NodeLost { node } | Step::NodeBack { node } => node,
            Step::AddRack(group) => &group.rack,
            Step::Drift { topology, .. } => topology,
            Step::Round => "",
        };
        format!("{} {about}", self.word()).trim_end().to_owned()
    }
}

impl Topology {
    fn check(&self) -> Result<(), (String, String)> {
        let at = format!("topology `{}`", self.id);
        let refuse = |what: String| Err((at.clone(), what));
        if self.id.is_empty() {
            return refuse("its id is empty; give it one".into());
        }
        if self.workers == 0 {
            return refuse("0 workers; ask for at least 1".into());
        }
        if self.max_task_parallelism == Some(0) {
            return refuse("max_task_parallelism is 0; leave it out where there is no cap".into());
        }
        let mine = [
            ("max_heap_mb", Some(self.max_heap_mb)),
            ("default_cpu_percent", Some(self.default_cpu_percent)),
            ("default_onheap_mb", Some(self.default_onheap_mb)),
            ("default_offheap_mb", Some(self.default_offheap_mb)),
            ("acker_cpu_percent", self.acker_cpu_percent),
            ("acker_onheap_mb", self.acker_onheap_mb),
        ];
        amounts(mine.map(|(what, n)| (what, n.unwrap_or(0.0))), &BTreeMap::new()).map_err(|what| (at.clone(), what))?;
        if self.components.is_empty() {
            return refuse("it has no component; add one with [[topologies.components]]".into());
        }
        for (i, c) in self.components.iter().enumerate() {
            let refuse = |what: String| Err((format!("{at}, component `{}`", c.id), what));
            if c.id.is_empty() || c.id.starts_with("__") {
                return refuse("an id is not empty and does not begin with `__`; choose another".into());
            }
            if self.components[..i].iter().any(|o| o.id == c.id) {
                return refuse("it appears twice; ids are unique in a topology".into());
            }
            if c.executors == Some(0) || c.tasks == Some(0) {
                return refuse("0 executors or tasks; ask for at least 1".into());
            }
            if u64::from(c.tasks.unwrap_or(0).max(c.executors.unwrap_or(0))) > EXECUTORS_MAX {
                return refuse(format!("more than {EXECUTORS_MAX} executors or tasks; ask for fewer"));
            }
            let asks = [("cpu_percent", c.cpu_percent), ("onheap_mb", c.onheap_mb), ("offheap_mb", c.offheap_mb)];
            if let Err(what) = amounts(asks.map(|(what, n)| (what, n.unwrap_or(0.0))), &c.resources) {
                return refuse(what);
            }
            if c.kind == Kind::Spout && !c.inputs.is_empty() {
                return refuse("a spout reads nothing; make it kind = \"bolt\"".into());
            }
            for (j, input) in c.inputs.iter().enumerate() {
                if !self.components.iter().any(|o| o.id == input.from) {
                    let near = hint(&input.from, self.components.iter().map(|o| o.id.as_str()));
                    return refuse(format!("it reads from `{}`, which does not exist{near}", input.from));
                }
                if c.inputs[..j].iter().any(|o| o.from == input.from && o.stream == input.stream) {
                    return refuse(format!("it reads stream `{}` of `{}` twice; say it once", input.stream, input.from));
                }
            }
        }
        Ok(())
    }
}

/// Amounts that are finite, not negative and small enough for fixed point.
fn amounts<const N: usize>(named: [(&str, f64); N], others: &BTreeMap<String, f64>) -> Result<(), String> {
    let others = others.iter().map(|(kind, n)| (kind.as_str(), *n));
    match named.into_iter().chain(others).find(|(_, n)| !(0.0..=1e12).contains(n)) {
        Some((what, n)) => Err(format!("{what} = {n}, and it is a number from 0 to 1e12")),
        None => Ok(()),
    }
}

fn hint<'a>(wanted: &str, of: impl Iterator<Item = &'a str>) -> String {
    saetta_model::name::nearest(wanted, of).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

fn from_json(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
    serde_json::from_str(text).map_err(|e| {
        let whole = e.to_string();
        let what = whole.rsplit_once(" at line ").map_or(whole.as_str(), |(what, _)| what).to_owned();
        ScenarioError { place: format!("{file}:{}:{}", e.line(), e.column()), what }
    })
}

fn from_toml(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
    toml::from_str(text).map_err(|e| {
        let before = text.get(..e.span().map_or(0, |s| s.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
        ScenarioError { place: format!("{file}:{line}:{column}"), what: e.message().to_owned() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Scenario::parse("f", text).unwrap_err().to_string()
    }

    const HEAD: &str = "[[supervisors]]\nname = \"n\"\nslots = 2\n[[topologies]]\nid = \"wc\"\n";
    const BODY: &str = "[[topologies.components]]\nid = \"s\"\nkind = \"spout\"\n";

    #[test]
    fn a_file_is_refused_with_place_and_remedy() {
        for (text, says) in [
            ("[[supervisors]]\nslots = 2\nslot = 3\n".to_owned(), "f:3:1: unknown field `slot`"),
            ("{\"supervisors\": [{\"slots\": -1}]}".to_owned(), "f:1:29: invalid value"),
            ("[[supervisors]]\nslots = 0\n".to_owned(), "f: supervisors[0]: slots = 0, and it is 1 to 1000"),
            ("x = [".to_owned(), "f:1:"),
            (String::new(), "f: supervisors: there is no machine; add one"),
            (HEAD.to_owned() + "components = []\n", "topology `wc`: it has no component; add one"),
            (
                HEAD.to_owned() + BODY + "[[topologies.components]]\nid = \"b\"\nkind = \"bolt\"\ninputs = [{from = \"z\"}]\n",
                "component `b`: it reads from `z`, which does not exist",
            ),
            (
                HEAD.to_owned() + BODY + "[[steps]]\ndo = \"kill\"\ntopology = \"wc\"\n",
                "f: steps[0] (kill): topology `wc` does not run here; submit it",
            ),
            (HEAD.to_owned() + BODY + "[[steps]]\ndo = \"node-back\"\nnode = \"n\"\n", "node `n` was not lost before; lose it"),
            (HEAD.to_owned() + BODY + "[[steps]]\ndo = \"dance\"\n", "unknown variant `dance`, expected one of `submit`"),
            (
                HEAD.to_owned()
                    + BODY
                    + "[[steps]]\ndo = \"submit\"\n[[steps]]\ndo = \"rebalance\"\ntopology = \"wc\"\nexecutors = {s = 2}\n",
                "2 executors for component `s`, which has 1 tasks; ask for 1 to 1",
            ),
        ] {
            let said = refused(&text);
            assert!(said.contains(says), "{text}\nsays {said}\nnot   {says}");
        }
    }

    #[test]
    fn executors_not_stated_are_as_many_as_tasks_and_never_more() {
        let t = Topology { workers: 3, max_task_parallelism: Some(5), ..Topology::default() };
        let numbers = |executors, tasks| t.numbers(&Component { executors, tasks, ..Component::default() });
        assert_eq!(numbers(None, Some(4)), (4, 4));
        assert_eq!(numbers(Some(10), Some(1)), (1, 1));
        assert_eq!(numbers(Some(2), None), (2, 2));
        assert_eq!(numbers(Some(7), Some(9)), (5, 5), "capped");
        assert_eq!(t.n_ackers(), 3, "one for each worker");
    }

    #[test]
    fn machines_are_named_by_group_and_a_second_group_goes_on_counting() {
        let group = |count| Supervisors {
            name: None,
            count,
            rack: "r".into(),
            slots: 1,
            cpu_percent: 0.0,
            memory_mb: 0.0,
            resources: BTreeMap::new(),
            cores: 0,
            cores_per_l3: 0,
        };
        let first: BTreeSet<String> = group(2).names(&BTreeSet::new()).into_iter().collect();
        assert_eq!(group(1).names(&first), ["r-0002"]);
    }
}
