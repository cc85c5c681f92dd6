//! What the tests over sockets share: a nimbus on a free port, machines in the store, a client, bounded waits.
#![allow(dead_code, reason = "each test file uses its part of it")]

use saetta_model::cluster::{Platform, SlotId, divide_cores};
use saetta_model::topology::{ComponentKind, ComponentSpec, Format, Grouping, InputSpec, Resources, StreamSpec};
use saetta_model::{Name, SupervisorInfo, TopologySpec};
use saetta_nimbus::round::PlacementEngine;
use saetta_nimbus::{Nimbus, NimbusHandle, NimbusOptions};
use saetta_sched_host::{Facts, How, Policy, RoundInput, RoundOutcome, SchedulerOptions, TopologyPlan};
use saetta_store::Store;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// No condition of these tests takes this long on a working nimbus, however busy the machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"));
}

/// Keeps what runs and puts the rest into the first free slots; the shipped scheduler has its own tests.
pub(crate) struct Plain;

impl PlacementEngine for Plain {
    fn round(&self, input: &RoundInput<'_>) -> RoundOutcome {
        let mut used: BTreeSet<SlotId> = input.topologies.iter().flat_map(|t| t.current.workers.iter().map(|w| w.slot.clone())).collect();
        let all: Vec<SlotId> =
            input.supervisors.values().flat_map(|s| s.slots.iter().map(|x| SlotId { node: s.id.clone(), port: x.port })).collect();
        let topologies = input.topologies.iter().map(|t| {
            let mut slots = t.current.slots();
            let mut mine: BTreeSet<SlotId> = slots.values().cloned().collect();
            for slot in &all {
                if mine.len() < t.workers_wanted as usize && used.insert(slot.clone()) {
                    mine.insert(slot.clone());
                }
            }
            let mine: Vec<SlotId> = mine.into_iter().collect();
            let missing: Vec<_> = t.layout.executors().map(|(_, e)| e).filter(|e| !slots.contains_key(e)).collect();
            let unplaced = if mine.is_empty() { missing.len() as u32 } else { 0 };
            for (i, e) in missing.into_iter().enumerate().filter(|_| !mine.is_empty()) {
                slots.insert(e, mine[i % mine.len()].clone());
            }
            (
                t.record.id.clone(),
                TopologyPlan {
                    slots,
                    cores: BTreeMap::new(),
                    how: How::Plugin("plain".into()),
                    unplaced,
                    any_workers: false,
                    notes: Vec::new(),
                },
            )
        });
        RoundOutcome { topologies: topologies.collect() }
    }
}

pub(crate) fn options(dir: &Path) -> NimbusOptions {
    NimbusOptions {
        bind: "127.0.0.1:0".into(),
        dir: dir.to_path_buf(),
        secret_file: None,
        slots_per_topology_max: Some(4),
        executors_per_topology_max: Some(50),
        monitor_every: Duration::from_millis(200),
        scheduler: SchedulerOptions {
            facts: Facts::default(),
            plugin: "none".into(),
            dir: dir.into(),
            helper: dir.into(),
            deadline: Duration::from_secs(1),
            memory_bytes: 0,
            policy: Policy::default(),
        },
        probe: None,
    }
}

pub(crate) async fn start(options: NimbusOptions, store: Arc<dyn Store>) -> NimbusHandle {
    let nimbus = Nimbus::start_with(options, store, Arc::new(Plain)).await.unwrap();
    let client = Client::of(&nimbus);
    until("it leads", async || client.get("/api/v1/topologies").await.0 == 200).await;
    nimbus
}

pub(crate) fn supervisor(id: &str, ports: &[u16]) -> SupervisorInfo {
    SupervisorInfo {
        id: name(id),
        host: "127.0.0.1".into(),
        rack: String::new(),
        slots: divide_cores(ports, &[0, 1]),
        resources: Resources::default(),
        platform: Platform { machine: std::env::consts::ARCH.into(), glibc: Some((2, 99)) },
        incarnation: 1,
        started_ms: 0,
        cores: Vec::new(),
    }
}

/// A small executable of this machine.
pub(crate) fn binary() -> Vec<u8> {
    std::fs::read("/bin/true").expect("every Linux has /bin/true")
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    hex::encode(sha2::Sha256::digest(bytes))
}

pub(crate) fn spec() -> TopologySpec {
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
    let mut count = component("count", ComponentKind::Bolt, 2);
    count.inputs.push(InputSpec { from: name("words"), stream: name("default"), grouping: Grouping::Shuffle });
    let mut words = component("words", ComponentKind::Spout, 1);
    words.outputs.push(StreamSpec { name: name("default"), schema: 1, fields: vec![] });
    let format = Format { archive: "rkyv 0.8".into(), endian: "little".into(), unaligned: true, pointer_bits: 32 };
    TopologySpec { saetta: "0.1.0".into(), format, components: vec![count, words] }
}

/// A request that is fine.
pub(crate) fn submission(name: &str, sha256: &str) -> Value {
    json!({ "name": name, "spec": spec(), "args": ["a", "b c"], "config": { "topology.workers": "2" }, "binary": sha256, "owner": "ada" })
}

/// Speaks to one nimbus.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) base: String,
    http: reqwest::Client,
}

impl Client {
    pub(crate) fn of(nimbus: &NimbusHandle) -> Self {
        Client { base: format!("http://{}", nimbus.addr()), http: reqwest::Client::new() }
    }

    pub(crate) async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> (u16, Value) {
        let mut request = self.http.request(method.parse().unwrap(), format!("{}{path}", self.base)).body(body);
        for (k, v) in headers {
            request = request.header(*k, *v);
        }
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.bytes().await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned())))
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.send("GET", path, &[], vec![]).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send("POST", path, &[], body.to_string().into_bytes()).await
    }

    pub(crate) async fn upload(&self, bytes: &[u8]) -> String {
        let sha256 = sha256(bytes);
        let (status, answer) = self.send("PUT", &format!("/api/v1/blobs/{sha256}"), &[], bytes.to_vec()).await;
        assert!(status == 200 || status == 201, "{status} {answer}");
        sha256
    }
}

/// The helper and the plugin are built by the ordinary build of the workspace; a test of this package alone has to ask for them.
pub(crate) fn shipped() -> SchedulerOptions {
    let options = SchedulerOptions::beside_exe().unwrap();
    let profile = options.helper.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let mut build = std::process::Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "-p", "saetta-sched-host", "-p", "saetta-even", "-p", "saetta-blacklist"]);
    if profile == "release" {
        build.arg("--release");
    }
    // <target>/<profile>/deps/<this test>
    let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_path_buf();
    let status = build.env("CARGO_TARGET_DIR", target).current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
    assert!(status.success(), "the scheduler's helper and the plugins `even` and `blacklist` do not build");
    SchedulerOptions::beside_exe().unwrap()
}
