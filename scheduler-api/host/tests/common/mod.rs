//! A small world for the host's tests: supervisors, topologies and assignments in the model's words.
#![allow(dead_code, reason = "each test file uses a part of it")]

use saetta_model::assignment::{Assignment, ExecutorPlace, Placement};
use saetta_model::cluster::{Platform, SlotId, SlotInfo, SupervisorInfo, Supervisors};
use saetta_model::config::{Config, Owner, Source};
use saetta_model::name::Name;
use saetta_model::parallelism::{ExecutorId, Layout};
use saetta_model::record::{TopologyRecord, TopologyState};
use saetta_model::topology::{ComponentKind, ComponentSpec, Format, Grouping, InputSpec, Resources, StreamSpec, TopologySpec};
use saetta_sched_host::{Facts, Policy, Reason, RoundInput, RoundTopology, SchedulerOptions, TopologyPlan};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Supervisors by (id, ports).
pub(crate) fn supervisors(nodes: &[(&str, &[u16])]) -> Supervisors {
    let info = |id: &str, ports: &[u16]| SupervisorInfo {
        id: name(id),
        host: format!("host-{id}"),
        rack: String::new(),
        slots: ports.iter().map(|port| SlotInfo { port: *port, cores: vec![0], share: 1 }).collect(),
        resources: Resources::default(),
        platform: Platform { machine: "x86_64".into(), glibc: None },
        incarnation: 1,
        started_ms: 0,
        cores: Vec::new(),
    };
    nodes.iter().map(|(id, ports)| (name(id), info(id, ports))).collect()
}

static NOWHERE: BTreeMap<ExecutorId, SlotId> = BTreeMap::new();

/// A topology as submitted, with its layout and what runs of it.
pub(crate) struct World {
    pub(crate) supervisors: Supervisors,
    pub(crate) topologies: Vec<(TopologyRecord, Layout, Assignment)>,
}

impl World {
    pub(crate) fn new(nodes: &[(&str, &[u16])]) -> Self {
        World { supervisors: supervisors(nodes), topologies: Vec::new() }
    }

    /// Adds a topology: one spout with the first hint, a chain of bolts behind it. (name, hint, tasks) per component.
    pub(crate) fn topology(&mut self, id: &str, workers: u32, components: &[(&str, u32, Option<u32>)]) -> &mut Self {
        let mut specs: Vec<ComponentSpec> = components
            .iter()
            .enumerate()
            .map(|(i, (component, hint, tasks))| ComponentSpec {
                id: name(component),
                kind: if i == 0 { ComponentKind::Spout } else { ComponentKind::Bolt },
                executors: *hint,
                tasks: *tasks,
                resources: Resources::default(),
                outputs: vec![StreamSpec { name: name("default"), schema: 1, fields: vec![] }],
                inputs: (i > 0)
                    .then(|| InputSpec { from: name(components[i - 1].0), stream: name("default"), grouping: Grouping::Shuffle })
                    .into_iter()
                    .collect(),
                config: BTreeMap::new(),
                tracked: false,
            })
            .collect();
        specs.sort_by(|a, b| a.id.cmp(&b.id));
        let spec = TopologySpec {
            saetta: "0.1.0".into(),
            format: Format { archive: "rkyv 0.8".into(), endian: "little".into(), unaligned: true, pointer_bits: 32 },
            components: specs,
        };
        let mut config = Config::new(Owner::Topology);
        config.set("topology.workers", &workers.to_string(), Source::Set).unwrap();
        let layout = Layout::new(&spec, &config).unwrap();
        let record = TopologyRecord {
            id: name(id),
            name: name(id),
            digest: spec.digest(),
            spec,
            binary: "00".into(),
            args: vec![],
            config: BTreeMap::new(),
            owner: "me".into(),
            priority: 0,
            submitted_ms: self.topologies.len() as u64,
            state: TopologyState::Active,
            request: String::new(),
            finished: false,
        };
        self.topologies.push((record, layout, Assignment::default()));
        self
    }

    /// Runs `f` with the round this world asks for.
    pub(crate) fn round<T>(&self, round_id: u64, f: impl FnOnce(&RoundInput<'_>) -> T) -> T {
        let topologies: Vec<RoundTopology<'_>> = self
            .topologies
            .iter()
            .map(|(record, layout, current)| RoundTopology {
                record,
                layout,
                workers_wanted: layout.workers_wanted,
                current,
                former: &NOWHERE,
                rates: &[],
            })
            .collect();
        let supervisors = &self.supervisors;
        f(&RoundInput { reason: Reason::Periodic, supervisors, topologies: &topologies, seed: 1, round_id, leader_term: 1 })
    }

    /// Makes a plan the current assignment of topology `i`.
    pub(crate) fn apply(&mut self, i: usize, plan: &TopologyPlan) {
        self.topologies[i].2 = assignment(&plan.slots);
    }
}

/// An assignment with these places.
pub(crate) fn assignment(slots: &BTreeMap<ExecutorId, SlotId>) -> Assignment {
    let mut workers: BTreeMap<SlotId, Vec<ExecutorPlace>> = BTreeMap::new();
    for (id, slot) in slots {
        workers.entry(slot.clone()).or_default().push(ExecutorPlace { id: *id, core: 0, started_ms: 5, planned: false });
    }
    Assignment {
        version: 1,
        binary: "00".into(),
        hosts: BTreeMap::new(),
        workers: workers
            .into_iter()
            .enumerate()
            .map(|(i, (slot, executors))| Placement { slot, id: 1, index: i as u32, cores: vec![0], share: 1, executors })
            .collect(),
    }
}

/// The worked example of the semantics: blue, green, yellow on two supervisors with one slot each.
pub(crate) fn worked_example() -> World {
    let mut world = World::new(&[("s1", &[6700]), ("s2", &[6700])]);
    world.topology("example", 2, &[("blue", 2, None), ("green", 2, Some(4)), ("yellow", 6, None)]);
    world
}

/// Executors of each used slot as text, slots ascending.
pub(crate) fn by_slot(plan: &TopologyPlan) -> Vec<(String, String)> {
    let mut slots: BTreeMap<&SlotId, String> = BTreeMap::new();
    for (executor, slot) in &plan.slots {
        slots.entry(slot).or_default().push_str(&executor.to_string());
    }
    slots.into_iter().map(|(slot, text)| (format!("{}:{}", slot.node, slot.port), text)).collect()
}

/// Options with the helper of this build and plugins from `dir`.
pub(crate) fn options(plugin: &str, dir: &Path) -> SchedulerOptions {
    SchedulerOptions {
        plugin: plugin.into(),
        dir: dir.to_path_buf(),
        helper: PathBuf::from(env!("CARGO_BIN_EXE_saetta-sched-host")),
        deadline: Duration::from_secs(20),
        memory_bytes: 512 << 20,
        facts: Facts::default(),
        policy: Policy::default(),
    }
}

/// The directory in which the build left `libsaetta_even.so`: the crate is a dependency of the host, so it is always there.
pub(crate) fn shipped_dir() -> PathBuf {
    let dir = SchedulerOptions::beside_exe().unwrap().dir;
    assert!(dir.join("libsaetta_even.so").is_file(), "no libsaetta_even.so in {}: cargo builds it with this test", dir.display());
    dir
}

/// A C plugin whose `schedule` has this body. `the_host` and `the_config` are what entry and create got; `globals` may define `GET_EXTENSION`.
pub(crate) fn c_plugin(dir: &Path, name: &str, globals: &str, body: &str) {
    c_plugin_with(dir, name, "", globals, body);
}

/// The same with more in its manifest: `,"key":value`, quotes as in JSON.
pub(crate) fn c_plugin_with(dir: &Path, name: &str, manifest: &str, globals: &str, body: &str) {
    let manifest = manifest.replace('"', "\\\"");
    let source = format!(
        r#"
#include "saetta_sched.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
SAETTA_MANIFEST("{{\"id\":\"{name}\",\"version\":\"1\",\"abi\":{{\"major\":1,\"minor\":0,\"min_host_minor\":0}}{manifest}}}");
#include <stdio.h>
static const saetta_host *the_host;
static char the_config[256];
{globals}
#ifndef GET_EXTENSION
#define GET_EXTENSION 0
#endif
static int32_t say(saetta_err *err, int32_t code, const char *text) {{
    uint64_t n = strlen(text);
    if (n > err->cap) n = err->cap;
    memcpy(err->buf, text, n);
    err->len = n;
    return code;
}}
static int32_t create(const saetta_create *args, void **instance, saetta_err *err) {{
    (void)args; (void)err; (void)say;
    snprintf(the_config, sizeof the_config, "%.*s", (int)args->config_len, args->config);
    *instance = (void *)1; return SAETTA_OK;
}}
static void destroy(void *instance) {{ (void)instance; }}
static int32_t schedule(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err) {{
    (void)instance; (void)round; (void)plan; (void)err;
    {body}
}}
int32_t saetta_scheduler_v1(const saetta_host *host, saetta_plugin *plugin) {{
    the_host = host; (void)the_host;
    if (plugin->struct_size < sizeof(saetta_plugin)) return SAETTA_E_UNSUPPORTED;
    plugin->abi_major = SAETTA_ABI_MAJOR;
    plugin->abi_minor = SAETTA_ABI_MINOR;
    plugin->create = create; plugin->destroy = destroy; plugin->schedule = schedule;
    plugin->get_extension = GET_EXTENSION;
    return SAETTA_OK;
}}
"#
    );
    let file = dir.join(format!("{name}.c"));
    std::fs::write(&file, source).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-shared", "-fPIC", "-I"]).arg(include).arg(&file).arg("-o").arg(dir.join(format!("libsaetta_{name}.so")));
    let out = cc.output().expect("cc, which Rust links with");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// The scheduler of the C template under this name.
pub(crate) fn c_template(dir: &Path, name: &str) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden", "-I"]).arg(here.join("../include"));
    cc.arg(here.join("../templates/c/scheduler.c")).arg("-o").arg(dir.join(format!("libsaetta_{name}.so")));
    let out = cc.output().expect("cc, which Rust links with");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// Polls until it is so, at most 20 s.
pub(crate) fn wait_for<T>(what: &str, mut f: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(value) = f() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited 20 s for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
