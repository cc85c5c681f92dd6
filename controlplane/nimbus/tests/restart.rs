//! Restarts over a real ZooKeeper: of nimbus, and of ZooKeeper itself. Nothing is forgotten and nothing moves.

mod common;

use common::{Client, binary, name, options, start, submission, supervisor, until};
use saetta_store::testing::ZooKeeper;
use saetta_store::{Store, ZkOptions, ZkStore};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

fn open(zookeeper: &ZooKeeper) -> Arc<ZkStore> {
    let options = ZkOptions { servers: zookeeper.servers(), root: "/saetta".into(), session_timeout: Duration::from_secs(2) };
    Arc::new(ZkStore::open(options).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_forgets_nothing_and_moves_nothing() {
    let zk_dir = tempfile::tempdir().unwrap();
    let mut zookeeper = ZooKeeper::start(zk_dir.path(), 1).unwrap_or_else(|why| panic!("{why}"));
    let dir = tempfile::tempdir().unwrap();
    let machines = open(&zookeeper);
    for id in ["n1", "n2"] {
        machines.keep_supervisor(&supervisor(id, &[6700, 6701])).await.unwrap();
    }

    let first = start(options(dir.path()), open(&zookeeper)).await;
    let client = Client::of(&first);
    let sha = client.upload(&binary()).await;
    let (status, answer) = client.post("/api/v1/topologies", &submission("wc", &sha)).await;
    assert_eq!(status, 201, "{answer}");
    let id = name(answer["id"].as_str().unwrap());
    until("it is placed", async || client.get("/api/v1/topologies/wc").await.1["assignment_version"] == 1).await;
    let before = machines.assignment(&id).await.unwrap();
    let key = std::fs::read(dir.path().join("keys").join(id.as_str())).unwrap();
    assert_eq!(client.post("/api/v1/topologies", &submission("ex", &sha)).await.0, 201);
    until("the other is placed", async || client.get("/api/v1/topologies/ex").await.1["assignment_version"] == 1).await;
    let (_, killed) = client.post("/api/v1/topologies/ex/kill", &json!({ "wait_secs": 3600 })).await;
    let identity = first.id().clone();
    first.stop().await;

    let second = start(options(dir.path()), open(&zookeeper)).await;
    let client = Client::of(&second);
    assert_eq!(*second.id(), identity);
    until("it has had its first round", async || client.get("/api/v1/topologies/wc").await.1["scheduled"]["by"] == "plugin").await;
    assert_eq!(machines.assignment(&id).await.unwrap(), before, "same version, same placements, same start times");
    assert_eq!(std::fs::read(dir.path().join("keys").join(id.as_str())).unwrap(), key);
    let (_, list) = client.get("/api/v1/topologies").await;
    let states: Vec<_> = list["items"].as_array().unwrap().iter().map(|t| (&t["name"], &t["state"], &t["deadline_ms"])).collect();
    assert_eq!(states, [(&json!("ex"), &json!("killed"), &killed["deadline_ms"]), (&json!("wc"), &json!("active"), &json!(null))]);

    // ZooKeeper goes for longer than a session lives, and comes back.
    let mut connection = machines.connection();
    zookeeper.stop();
    connection.wait_for(|c| !c.up).await.unwrap();
    until("it says that it does not lead", async || client.get("/api/v1/topologies").await.0 == 503).await;
    until("sessions have been given up", async || machines.connection().borrow().since.elapsed() > Duration::from_secs(4)).await;
    zookeeper.restart().unwrap();
    until("it leads again", async || client.get("/api/v1/topologies").await.0 == 200).await;
    until("the supervisors are back", async || machines.supervisors().await.is_ok_and(|l| l.items.len() == 2)).await;
    assert_eq!(machines.assignment(&id).await.unwrap(), before, "an absence of ZooKeeper moves nothing");

    let (status, answer) = client.post("/api/v1/topologies/wc/kill", &json!({ "wait_secs": 0 })).await;
    assert_eq!(status, 202, "{answer}");
    until("it is removed", async || client.get("/api/v1/topologies/wc").await.0 == 404).await;
    assert!(machines.assignment(&id).await.unwrap_err().is_not_found());
    second.stop().await;
}
