//! The plugin of a cluster is exchanged while it runs: tried first, remembered, and found by the next leader.

mod common;

use common::{Client, binary, name, options, shipped, submission, supervisor, until};
use saetta_model::SupervisorInfo;
use saetta_nimbus::{Nimbus, NimbusHandle, NimbusOptions};
use saetta_sched_host::{Policy, SchedulerOptions};
use saetta_store::{MemoryCluster, MemoryStore, Store};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// A plugin that leaves everything as it is, or the even one under another name.
fn plugins(dir: &Path, shipped: &SchedulerOptions) {
    std::fs::create_dir_all(dir).unwrap();
    std::fs::copy(shipped.plugin_path(), dir.join("libsaetta_even.so")).unwrap();
    // Other bytes, the same code: what follows the sections of an ELF file is nobody's.
    let mut other = std::fs::read(shipped.plugin_path()).unwrap();
    other.extend(b"another build");
    std::fs::write(dir.join("libsaetta_other.so"), other).unwrap();
    std::fs::write(dir.join("libsaetta_text.so"), "no library").unwrap();
}

async fn nimbus(
    dir: &Path,
    secret: &Path,
    plugins: &Path,
    shipped: &SchedulerOptions,
    cluster: &Arc<MemoryCluster>,
) -> (NimbusHandle, Client) {
    let scheduler = SchedulerOptions { dir: plugins.to_path_buf(), ..shipped.clone() };
    let options = NimbusOptions { scheduler, secret_file: Some(secret.to_path_buf()), ..options(dir) };
    let nimbus = Nimbus::start(options, Arc::new(MemoryStore::open(cluster))).await.unwrap();
    let client = Client::of(&nimbus);
    (nimbus, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn another_plugin_is_tried_used_and_taken_over_by_the_next_leader() {
    let shipped = tokio::task::spawn_blocking(shipped).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (of_a, of_b, secret) = (dir.path().join("a-plugins"), dir.path().join("b-plugins"), dir.path().join("secret"));
    plugins(&of_a, &shipped);
    std::fs::create_dir_all(&of_b).unwrap();
    std::fs::copy(shipped.plugin_path(), of_b.join("libsaetta_even.so")).unwrap();
    let cluster = MemoryCluster::new();
    let machines = MemoryStore::open(&cluster);
    machines.keep_supervisor(&supervisor("n1", &[6700, 6701])).await.unwrap();

    let (a, client) = nimbus(&dir.path().join("a"), &secret, &of_a, &shipped, &cluster).await;
    until("it leads", async || client.get("/api/v1/topologies").await.0 == 200).await;
    let (status, early) = client.get("/api/v1/topologies/wc/executors/1/why").await;
    assert_eq!(status, 404, "{early}");
    let sha = client.upload(&binary()).await;
    assert_eq!(client.post("/api/v1/topologies", &submission("wc", &sha)).await.0, 201);
    until("it is placed", async || client.get("/api/v1/topologies/wc").await.1["executors_unplaced"] == 0).await;
    assert_eq!(client.get("/api/v1/scheduler").await.1["plugin"], "even");

    // What cannot be used changes nothing and says why.
    for (bad, why) in [("text", "ELF"), ("nowhere", "libsaetta_nowhere.so"), ("/etc/passwd", "scheduler.plugin.dir")] {
        let (status, answer) = client.post("/api/v1/scheduler/use", &json!({ "plugin": bad })).await;
        assert!(status == 422 && answer["error"].as_str().unwrap().contains(why), "{status} {answer}");
    }
    assert_eq!(machines.scheduler().await.unwrap(), None);

    let (status, answer) = client.post("/api/v1/scheduler/use", &json!({ "plugin": "libsaetta_other.so" })).await;
    assert_eq!((status, &answer["kind"], &answer["plugin"]), (200, &json!("SchedulerSwitch"), &json!("other")), "{answer}");
    assert_eq!(answer["trial"]["other"]["moves"], 0, "{answer}");
    until("the next round is its own", async || {
        let (_, full) = client.get("/api/v1/topologies/wc").await;
        full["scheduled"]["plugin"] == "other"
    })
    .await;
    let chosen = machines.scheduler().await.unwrap().unwrap();
    assert_eq!((chosen.plugin.as_str(), json!(chosen.sha256)), ("other", answer["sha256"].clone()));
    let (status, why) = client.get("/api/v1/topologies/wc/executors/1/why").await;
    let reason = &why["reasons"][0];
    assert_eq!((status, &why["node"], &why["core_why"]), (200, &json!("n1"), &json!("beside spout `words`, which it serves")), "{why}");
    assert!([0, 1].contains(&why["core"].as_u64().unwrap()) && [6700, 6701].contains(&why["port"].as_u64().unwrap()), "{why}");
    assert_eq!((&reason["word"], &reason["node"], &reason["port"]), (&json!("kept"), &why["node"], &why["port"]), "{why}");
    assert_eq!((&why["component"], &why["scheduled"]["plugin"]), (&json!("__acker"), &json!("other")), "{why}");
    let (_, rounds) = client.get("/api/v1/scheduler/rounds").await;
    let newest = rounds["items"].as_array().unwrap().last().unwrap()["file"].as_str().unwrap().to_owned();
    assert_eq!(client.get(&format!("/api/v1/scheduler/rounds/{newest}")).await.0, 200);
    assert_eq!(client.get("/api/v1/scheduler/rounds/..%2Fid").await.0, 404);
    assert_eq!(client.post("/api/v1/scheduler/reset", &json!({})).await.0, 200);

    // A nimbus that waits has the file before it leads, though its own directory has no such plugin.
    let (b, second) = nimbus(&dir.path().join("b"), &secret, &of_b, &shipped, &cluster).await;
    let copy = dir.path().join("b/plugins").join(format!("{}.so", chosen.sha256));
    until("it has fetched the plugin", async || copy.is_file()).await;
    a.stop().await;
    drop(client);
    until("it leads", async || second.get("/api/v1/topologies").await.0 == 200).await;
    until("it goes on with the same plugin", async || {
        let (_, full) = second.get("/api/v1/topologies/wc").await;
        full["scheduled"]["plugin"] == "other"
    })
    .await;
    b.stop().await;
}

/// Storm's window dies with its leader; here the next one goes on with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_blacklisted_node_stays_so_under_the_next_leader() {
    let shipped = tokio::task::spawn_blocking(shipped).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let config = r#"{"period_secs": 1, "tolerance_secs": 60, "tolerance_count": 2, "resume_secs": 600}"#;
    let policy = Policy { node_health: Some("blacklist".into()), node_health_config: config.into(), ..Policy::default() };
    let shipped = SchedulerOptions { policy, ..shipped };
    let cluster = MemoryCluster::new();
    let machines = MemoryStore::open(&cluster);
    // A host is listed whole.
    let second = SupervisorInfo { host: "127.0.0.2".into(), ..supervisor("n2", &[6700, 6701]) };
    machines.keep_supervisor(&supervisor("n1", &[6700, 6701, 6702, 6703])).await.unwrap();
    machines.keep_supervisor(&second).await.unwrap();
    let secret = dir.path().join("secret");

    let (a, client) = nimbus(&dir.path().join("a"), &secret, &shipped.dir, &shipped, &cluster).await;
    until("it leads", async || client.get("/api/v1/topologies").await.0 == 200).await;
    let sha = client.upload(&binary()).await;
    assert_eq!(client.post("/api/v1/topologies", &submission("wc", &sha)).await.0, 201);
    until("it is placed", async || client.get("/api/v1/topologies/wc").await.1["executors_unplaced"] == 0).await;

    machines.withdraw_supervisor(&name("n2")).await.unwrap();
    until("its absence is remembered, and too long", async || {
        let memory = machines.scheduler_memory().await.unwrap();
        let window = memory.get("blacklist").and_then(|saved| serde_json::from_slice::<serde_json::Value>(&hex::decode(saved).ok()?).ok());
        window.is_some_and(|w| w["blacklisted"].get("n2").is_some())
    })
    .await;
    machines.keep_supervisor(&second).await.unwrap();
    a.stop().await;

    let (b, client) = nimbus(&dir.path().join("b"), &secret, &shipped.dir, &shipped, &cluster).await;
    until("it leads", async || client.get("/api/v1/topologies").await.0 == 200).await;
    let sha = client.upload(&binary()).await;
    assert_eq!(client.post("/api/v1/topologies", &submission("new", &sha)).await.0, 201);
    until("it is placed", async || client.get("/api/v1/topologies/new").await.1["executors_unplaced"] == 0).await;
    let (_, full) = client.get("/api/v1/topologies/new").await;
    let nodes: Vec<&str> = full["workers"].as_array().unwrap().iter().map(|w| w["node"].as_str().unwrap()).collect();
    assert_eq!(nodes, ["n1", "n1"], "two free slots of n2 would be nearer to even: {full}");
    let (_, why) = client.get("/api/v1/topologies/new/executors/1/why").await;
    assert!(why["summary"].as_str().unwrap().contains("1 blacklisted"), "{why}");
    b.stop().await;
}
