//! The leader's decisions as scripts that people can read: `testdata/*.txt`.
//!
//! A script is a line of what the case shows (`#`), commands, `----`, and what the leader did, in order; an empty line ends it. Commands
//! of one block run one after the other, and after each the leader looks until it has nothing more to do. A plain stand-in places executors here
//! (what runs stays, the rest goes to the slots with fewest); the shipped scheduler has its own tests.
//! With `SAETTA_UPDATE=1` the outputs are written anew; the difference is what a review looks at.
//!
//! ```text
//! node ID slots=N [cores=A,B]   a supervisor comes; every slot has the cores, or core 0
//! gone ID                       its ephemeral node is gone
//! submit NAME spout=N bolt=N [workers=N]
//! kill NAME wait=SECS
//! tick SECS                     time passes
//! beat NODE TOPOLOGY=WORD..     a beat of a supervisor: running, drained, ended, or none for no worker
//! probe NODE alive|dead|TOPOLOGY   answer to the probe that is out: all, none, or the workers of one topology
//! leader                        a new leader takes over
//! garble TOPOLOGY               its stored assignment cannot be read any more
//! mend TOPOLOGY                 it can be read again
//! away                          the leader's store was away and is back
//! plan steal|vanish|dies-NODE   the next plan is bad: a foreign slot, or a node that has gone since
//! ```

use saetta_model::beat::{SupervisorBeat, WorkerBeat};
use saetta_model::cluster::{Platform, SlotId, SlotInfo};
use saetta_model::parallelism::ExecutorId;
use saetta_model::topology::{ComponentKind, ComponentSpec, Format, Grouping, InputSpec, Resources, StreamSpec};
use saetta_model::{Assignment, Name, SupervisorInfo, TopologyRecord, TopologySpec, TopologyState};
use saetta_nimbus::core::{Action, Cluster, Core, Event, Now, Round, Settings};
use saetta_sched_host::{How, Reason, TopologyPlan};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Wall clock at the beginning of a script, milliseconds.
const BEGIN_MS: u64 = 1_700_000_000_000;
/// More steps than any command needs; beyond it the leader is going in circles.
const STEPS_MAX: usize = 20;

#[test]
fn scripts() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut files: Vec<_> =
        fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "txt")).collect();
    files.sort();
    assert!(!files.is_empty(), "no scripts in {}", dir.display());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let played = play(&text);
        if std::env::var_os("SAETTA_UPDATE").is_some() {
            fs::write(&file, played).unwrap();
        } else {
            assert_eq!(played, text, "\n{}: run with SAETTA_UPDATE=1 and review the difference", file.display());
        }
    }
}

/// Plays every block of a file and returns the file as it should be. `# ==` begins a new world.
fn play(text: &str) -> String {
    let mut world = World::new();
    let mut file = String::new();
    for block in text.trim_end().split("\n\n") {
        let mut head = Vec::new();
        for line in block.lines().take_while(|l| *l != "----") {
            head.push(line);
            if line.starts_with("# ==") {
                world = World::new();
            }
        }
        writeln!(file, "{}", head.join("\n")).unwrap();
        let commands: Vec<&str> = head.into_iter().filter(|l| !l.starts_with('#')).collect();
        if !commands.is_empty() {
            commands.iter().for_each(|c| world.run(c));
            let said = world.said();
            writeln!(file, "----\n{}", if said.is_empty() { "(nothing)\n" } else { &said }.trim_end()).unwrap();
        }
        file.push('\n');
    }
    file.truncate(file.trim_end().len());
    file.push('\n');
    file
}

struct World {
    cluster: Cluster,
    core: Core,
    mono_ms: u64,
    ids: u64,
    plan: Option<String>,
    /// Workers a probe that is out asks, by node.
    asked: BTreeMap<Name, Vec<(Name, u64)>>,
    /// Assignments that cannot be read now.
    hidden: BTreeMap<Name, Assignment>,
    said: String,
}

impl World {
    fn new() -> Self {
        World {
            cluster: Cluster::default(),
            core: Core::new(SETTINGS),
            mono_ms: 0,
            ids: 0,
            plan: None,
            asked: BTreeMap::new(),
            hidden: BTreeMap::new(),
            said: String::new(),
        }
    }

    fn said(&mut self) -> String {
        std::mem::take(&mut self.said)
    }

    fn say(&mut self, line: String) {
        writeln!(self.said, "{line}").unwrap();
    }

    fn now(&self) -> Now {
        Now { mono_ms: self.mono_ms, wall_ms: BEGIN_MS + self.mono_ms }
    }

    fn run(&mut self, command: &str) {
        let words: Vec<&str> = command.split_whitespace().collect();
        let options: BTreeMap<&str, &str> = words.iter().filter_map(|w| w.split_once('=')).collect();
        let number = |key: &str, default: u32| options.get(key).map_or(default, |v| v.parse().unwrap());
        let event = match words[0] {
            "node" => {
                let cores: Vec<u32> = options.get("cores").map_or(vec![0], |c| c.split(',').map(|n| n.parse().unwrap()).collect());
                let slot = |i| SlotInfo { port: 6700 + i, cores: cores.clone(), share: 1 };
                let info = SupervisorInfo {
                    id: name(words[1]),
                    host: format!("{}.test", words[1]),
                    rack: String::new(),
                    slots: (0..number("slots", 2) as u16).map(slot).collect(),
                    resources: Resources::default(),
                    platform: Platform { machine: "x86_64".into(), glibc: None },
                    incarnation: 1,
                    started_ms: 0,
                    cores: Vec::new(),
                };
                self.cluster.supervisors.insert(info.id.clone(), info);
                Event::Look
            }
            "gone" => {
                self.cluster.supervisors.remove(words[1]).unwrap();
                Event::Look
            }
            "submit" => {
                let record = record(words[1], number("spout", 1), number("bolt", 1), number("workers", 1));
                self.cluster.topologies.insert(record.id.clone(), record);
                Event::Round(Reason::Submit)
            }
            "kill" => {
                let now = self.now();
                let record = self.cluster.topologies.get_mut(words[1]).unwrap();
                record.state = record.state.kill(now.wall_ms, u64::from(number("wait", 30)) * 1000);
                Event::Round(Reason::Kill)
            }
            "tick" => return self.tick(words[1].parse().unwrap()),
            "beat" => {
                self.beat(&name(words[1]), &options);
                Event::Look
            }
            "probe" => {
                let node = name(words[1]);
                let asked = self.asked.remove(&node).unwrap_or_else(|| panic!("{command}: no probe is out"));
                let alive = asked.into_iter().filter(|(t, _)| words[2] == "alive" || words[2] == t.as_str()).map(|(_, id)| id).collect();
                Event::Probed { node, alive }
            }
            "leader" => {
                self.core = Core::new(SETTINGS);
                self.asked.clear();
                Event::Look
            }
            "garble" => {
                let (id, hidden) = self.cluster.assignments.remove_entry(words[1]).unwrap();
                self.cluster.unreadable.insert(id.clone());
                self.hidden.insert(id, hidden);
                Event::Look
            }
            "mend" => {
                let (id, hidden) = self.hidden.remove_entry(words[1]).unwrap();
                self.cluster.unreadable.remove(&id);
                self.cluster.assignments.insert(id, hidden);
                Event::Look
            }
            "away" => Event::Reconnected,
            "plan" => {
                self.plan = Some(words[1].into());
                return;
            }
            other => panic!("unknown command {other}"),
        };
        self.step(event);
    }

    /// Lets time pass, waking the leader exactly when it asked to be woken.
    fn tick(&mut self, secs: u64) {
        let end_ms = self.mono_ms + secs * 1000;
        loop {
            let wake_ms = self.core.wake_ms(&self.cluster, self.now()).max(self.mono_ms + 1);
            if wake_ms > end_ms {
                break;
            }
            self.mono_ms = wake_ms;
            self.step(Event::Look);
        }
        self.mono_ms = end_ms;
        self.step(Event::Look);
    }

    fn step(&mut self, event: Event) {
        let mut events = vec![event];
        for _ in 0..STEPS_MAX {
            let now = self.now();
            let event = if events.is_empty() { Event::Look } else { events.remove(0) };
            let looked = event == Event::Look;
            let ids = &mut self.ids;
            let actions = self.core.step(&self.cluster, event, now, &mut || {
                *ids += 1;
                *ids
            });
            if actions.is_empty() && looked && events.is_empty() {
                return;
            }
            for action in actions {
                events.extend(self.act(action));
            }
        }
        panic!("the leader goes in circles; so far:\n{}", self.said);
    }

    fn act(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Round(round) => {
                if round.reason != Reason::Periodic {
                    self.say(format!("round: {:?}", round.reason));
                }
                let dies = self.plan.as_deref().and_then(|plan| plan.strip_prefix("dies-")).map(name);
                let plans = self.place(&round);
                if let Some(node) = dies {
                    self.cluster.supervisors.remove(&node);
                }
                return Some(Event::Planned { id: round.id, plans });
            }
            Action::Assign { topology, assignment } => {
                let before = self.cluster.assignments.get(&topology).cloned().unwrap_or_default();
                self.say(format!("assign {topology} v{}:", assignment.version));
                for m in before.diff(&assignment) {
                    let slot = |s: &Option<SlotId>| s.as_ref().map_or("-".into(), |s| format!("{}:{}", s.node, s.port));
                    self.say(format!("  {} {} -> {}", m.executor, slot(&m.from), slot(&m.to)));
                }
                for w in &assignment.workers {
                    let fresh = before.at(&w.slot).is_none_or(|b| b.id != w.id);
                    let cores: Vec<String> = w.executors.iter().map(|e| format!("{}@{}", e.id, e.core)).collect();
                    let mark = if fresh { "new" } else { "kept" };
                    self.say(format!("  worker {}:{} {mark} id={} index={} {}", w.slot.node, w.slot.port, w.id, w.index, cores.join(" ")));
                }
                self.cluster.assignments.insert(topology, *assignment);
            }
            Action::Unassign { topology } => {
                self.say(format!("unassign {topology}"));
                self.cluster.assignments.remove(&topology);
                self.cluster.unreadable.remove(&topology);
            }
            Action::Remove { topology, may_run_on } => {
                let nodes: Vec<&str> = may_run_on.iter().map(Name::as_str).collect();
                let left = if nodes.is_empty() { String::new() } else { format!(", may still run on {}", nodes.join(" ")) };
                self.say(format!("remove {topology}{left}"));
                self.cluster.topologies.remove(&topology);
            }
            Action::Finish { topology } => {
                self.say(format!("finish {topology}"));
                self.cluster.topologies.get_mut(&topology).unwrap().finished = true;
            }
            Action::Probe { node, workers } => {
                let asked: Vec<String> = workers.iter().map(|w| format!("{}@{}:{}", w.topology, w.host, w.port)).collect();
                self.say(format!("probe {node}: {}", asked.join(" ")));
                self.asked.insert(node, workers.into_iter().map(|w| (w.topology, w.placement)).collect());
            }
        }
        None
    }

    fn beat(&mut self, node: &Name, words: &BTreeMap<&str, &str>) {
        let at_ms = self.cluster.beats.get(node).map_or(0, |b| b.at_ms) + 1;
        let mut workers = Vec::new();
        for (topology, word) in words.iter().filter(|(_, word)| **word != "none") {
            let placed = self.cluster.assignments.get(*topology).into_iter().flat_map(|a| a.on(node)).map(|p| (p.slot.port, p.id));
            // A worker whose assignment is gone already is still named.
            let placed: Vec<(u16, u64)> = placed.collect();
            let placed = if placed.is_empty() { vec![(6700, 0)] } else { placed };
            workers.extend(placed.into_iter().map(|(port, placement)| WorkerBeat {
                topology: (*topology).into(),
                port,
                placement,
                start: 1,
                pid: 100,
                state: "running".into(),
                note: String::new(),
                version: 1,
                executors: vec![],
                ended: *word == "ended",
                drained: *word == "drained",
                carrier: String::new(),
                edges: Vec::new(),
            }));
        }
        self.cluster.beats.insert(node.clone(), SupervisorBeat { at_ms, workers });
    }

    /// The stand-in scheduler.
    fn place(&mut self, round: &Round) -> Vec<(Name, TopologyPlan)> {
        let all: BTreeSet<SlotId> =
            round.supervisors.values().flat_map(|s| s.slots.iter().map(|x| SlotId { node: s.id.clone(), port: x.port })).collect();
        let mut used: BTreeSet<SlotId> = round.topologies.iter().flat_map(|t| t.current.workers.iter().map(|w| w.slot.clone())).collect();
        let bad = self.plan.take();
        let mut plans = Vec::new();
        for wanted in &round.topologies {
            let mut slots = wanted.current.slots();
            let mut load: BTreeMap<SlotId, usize> = wanted.current.workers.iter().map(|w| (w.slot.clone(), w.executors.len())).collect();
            for port in [6700, 6701, 6702, 6703] {
                for slot in all.iter().filter(|s| s.port == port) {
                    if load.len() < wanted.layout.workers_wanted as usize && used.insert(slot.clone()) {
                        load.insert(slot.clone(), 0);
                    }
                }
            }
            let mut unplaced = 0;
            let executors: Vec<ExecutorId> = wanted.layout.executors().map(|(_, e)| e).collect();
            for e in executors {
                if slots.contains_key(&e) {
                    continue;
                }
                match load.iter_mut().min_by_key(|(_, n)| **n) {
                    Some((slot, n)) => {
                        *n += 1;
                        slots.insert(e, slot.clone());
                    }
                    None => unplaced += 1,
                }
            }
            match bad.as_deref() {
                Some("steal") if !self.cluster.assignments.contains_key(&wanted.record.id) => {
                    let foreign =
                        self.cluster.assignments.iter().find(|(id, _)| **id != wanted.record.id).unwrap().1.workers[0].slot.clone();
                    slots.values_mut().for_each(|s| *s = foreign.clone());
                }
                Some("vanish") if !self.cluster.assignments.contains_key(&wanted.record.id) => {
                    slots.values_mut().for_each(|s| s.node = name("nowhere"))
                }
                _ => {}
            }
            plans.push((
                wanted.record.id.clone(),
                TopologyPlan {
                    slots,
                    cores: BTreeMap::new(),
                    how: How::Plugin("stand-in".into()),
                    unplaced,
                    any_workers: false,
                    notes: Vec::new(),
                },
            ));
        }
        plans
    }
}

/// Session timeout 6 s + tick 2 s + 1 s; safety-net rounds every 10 s.
const SETTINGS: Settings = Settings { monitor_every_ms: 10_000, absent_max_ms: 9_000, probes: true };

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// In scripts a topology's id is its name.
fn record(text: &str, spouts: u32, bolts: u32, workers: u32) -> TopologyRecord {
    let component = |id: &str, kind, executors| ComponentSpec {
        id: name(id),
        kind,
        executors,
        tasks: None,
        resources: Resources::default(),
        outputs: vec![],
        inputs: vec![],
        config: BTreeMap::new(),
        tracked: false,
    };
    let mut bolt = component("bolt", ComponentKind::Bolt, bolts);
    bolt.inputs.push(InputSpec { from: name("spout"), stream: name("default"), grouping: Grouping::Shuffle });
    let mut spout = component("spout", ComponentKind::Spout, spouts);
    spout.outputs.push(StreamSpec { name: name("default"), schema: 1, fields: vec![] });
    let format = Format { archive: "rkyv 0.8".into(), endian: "little".into(), unaligned: true, pointer_bits: 32 };
    let spec = TopologySpec { saetta: "0.1.0".into(), format, components: vec![bolt, spout] };
    let config = [("topology.workers", workers.to_string()), ("topology.acker.executors", "0".to_owned())];
    TopologyRecord {
        id: name(text),
        name: name(text),
        digest: spec.digest(),
        spec,
        binary: "ab".repeat(32),
        args: vec![],
        config: config.map(|(k, v)| (k.to_owned(), v)).into(),
        owner: String::new(),
        priority: 0,
        submitted_ms: BEGIN_MS,
        state: TopologyState::Active,
        request: String::new(),
        finished: false,
    }
}

#[test]
fn without_a_probe_absence_alone_is_loss() {
    let mut world = World::new();
    world.core = Core::new(Settings { probes: false, ..SETTINGS });
    for command in ["node n1", "submit wc bolt=1", "node n2", "gone n1", "tick 8"] {
        world.run(command);
    }
    assert!(!world.said().contains("n2"), "not before the grace is over");
    world.run("tick 1");
    let said = world.said();
    assert!(said.contains("n1:6700 -> n2:6700") && !said.contains("probe"), "{said}");
}

#[test]
fn nothing_is_decided_for_a_topology_whose_assignment_cannot_be_read() {
    let mut world = World::new();
    for command in ["node n1", "submit wc bolt=1"] {
        world.run(command);
    }
    let hidden: Assignment = world.cluster.assignments.remove(&name("wc")).unwrap();
    world.cluster.unreadable.insert(name("wc"));
    world.said();
    world.run("tick 30");
    assert_eq!(world.said(), "", "its slot is not dealt again and it is not assigned anew");
    world.cluster.unreadable.clear();
    world.cluster.assignments.insert(name("wc"), hidden.clone());
    world.run("tick 30");
    assert_eq!(world.cluster.assignments[&name("wc")], hidden);
}
