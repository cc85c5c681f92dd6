//! The only way to schedule: the shipped plugin in its helper process, from a submission to an assignment.

mod common;

use common::{Client, binary, name, options, shipped, submission, supervisor, until};
use saetta_nimbus::Nimbus;
use saetta_store::{MemoryCluster, MemoryStore, Store};
use serde_json::json;
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_is_placed_by_the_shipped_plugin() {
    let scheduler = tokio::task::spawn_blocking(shipped).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let cluster = MemoryCluster::new();
    let machines = MemoryStore::open(&cluster);
    for id in ["n1", "n2"] {
        machines.keep_supervisor(&supervisor(id, &[6700, 6701])).await.unwrap();
    }
    let options = saetta_nimbus::NimbusOptions { scheduler, ..options(dir.path()) };
    let nimbus = Nimbus::start(options, Arc::new(MemoryStore::open(&cluster))).await.unwrap();
    let client = Client::of(&nimbus);
    until("it leads", async || client.get("/api/v1/topologies").await.0 == 200).await;
    let sha = client.upload(&binary()).await;
    let (status, answer) = client.post("/api/v1/topologies", &submission("wc", &sha)).await;
    assert_eq!(status, 201, "{answer}");
    until("it is placed", async || client.get("/api/v1/topologies/wc").await.1["executors_unplaced"] == 0).await;
    let (_, full) = client.get("/api/v1/topologies/wc").await;
    assert_eq!(full["scheduled"], json!({ "by": "plugin", "plugin": "even" }), "{full}");
    let assignment = machines.assignment(&name(full["id"].as_str().unwrap())).await.unwrap().value;
    let mut nodes: Vec<&str> = assignment.workers.iter().map(|w| w.slot.node.as_str()).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["n1", "n2"], "two workers, one on each node");
    let mut loads: Vec<usize> = assignment.workers.iter().map(|w| w.executors.len()).collect();
    loads.sort_unstable();
    assert_eq!(loads, [2, 3]);
    // Later rounds, with and without a reason, change nothing.
    machines.keep_supervisor(&supervisor("n3", &[6700])).await.unwrap();
    let sha_again = client.upload(&binary()).await;
    let mut second = submission("ex", &sha_again);
    second["config"] = json!({ "topology.workers": "1" });
    assert_eq!(client.post("/api/v1/topologies", &second).await.0, 201);
    until("the second is placed", async || client.get("/api/v1/topologies/ex").await.1["executors_unplaced"] == 0).await;
    assert_eq!(machines.assignment(&name(full["id"].as_str().unwrap())).await.unwrap().value, assignment);
    nimbus.stop().await;
}
