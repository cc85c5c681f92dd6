//! REST over real sockets, with the store in memory.

mod common;

use common::{Client, Plain, binary, name, options, sha256, start, submission, supervisor, until};
use saetta_model::beat::{ExecutorBeat, SupervisorBeat, WorkerBeat};
use saetta_model::cluster::Platform;
use saetta_nimbus::{Nimbus, NimbusHandle};
use saetta_store::{MemoryCluster, MemoryStore, Store};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct World {
    dir: tempfile::TempDir,
    cluster: Arc<MemoryCluster>,
    /// The supervisors' session.
    machines: MemoryStore,
    store: Arc<MemoryStore>,
    nimbus: NimbusHandle,
    client: Client,
}

async fn world(supervisors: &[&str]) -> World {
    let dir = tempfile::tempdir().unwrap();
    let cluster = MemoryCluster::new();
    let machines = MemoryStore::open(&cluster);
    for id in supervisors {
        machines.keep_supervisor(&supervisor(id, &[6700, 6701])).await.unwrap();
    }
    let store = Arc::new(MemoryStore::open(&cluster));
    let nimbus = start(options(dir.path()), store.clone()).await;
    let client = Client::of(&nimbus);
    World { dir, cluster, machines, store, nimbus, client }
}

fn files(dir: &Path, sub: &str) -> Vec<String> {
    let mut all: Vec<String> = std::fs::read_dir(dir.join(sub)).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    all
}

fn error_of(answer: &Value) -> &str {
    assert_eq!((&answer["kind"], &answer["api_version"]), (&json!("Error"), &json!("v1")), "{answer}");
    let text = answer["error"].as_str().unwrap();
    assert!(!text.contains('\n'), "one line: {text}");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topology_lives_from_upload_to_removal() {
    let w = world(&["n1", "n2"]).await;
    let sha = sha256(&binary());
    let (status, answer) = w.client.send("PUT", &format!("/api/v1/blobs/{sha}"), &[], binary()).await;
    assert_eq!((status, &answer["new"]), (201, &json!(true)));
    let (status, answer) = w.client.send("PUT", &format!("/api/v1/blobs/{sha}"), &[], binary()).await;
    assert_eq!((status, &answer["new"]), (200, &json!(false)));

    let (status, answer) = w.client.post("/api/v1/topologies", &submission("wc", &sha)).await;
    assert_eq!(
        (status, &answer["kind"], &answer["name"], &answer["notes"]),
        (201, &json!("Topology"), &json!("wc"), &json!([])),
        "{answer}"
    );
    let id = answer["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("wc-"), "{id}");
    assert_eq!(files(w.dir.path(), "keys"), std::slice::from_ref(&id));
    assert_eq!(files(w.dir.path(), "tmp"), Vec::<String>::new());

    until("it is placed", async || w.client.get("/api/v1/topologies/wc").await.1["assignment_version"] == 1).await;
    let placed = w.machines.assignment(&name(&id)).await.unwrap().value;
    assert_eq!(placed.workers.len(), 2);
    assert_eq!(placed.binary, sha);

    // What the supervisors say shows up: the core as the worker read it back, counters, the state.
    let p = &placed.workers[0];
    let executors: Vec<ExecutorBeat> = p
        .executors
        .iter()
        .map(|e| ExecutorBeat {
            id: e.id,
            core: 7,
            executed: 11,
            emitted: 22,
            transferred: 33,
            failed: 1,
            busy_per_mille: 250,
            ended: false,
        })
        .collect();
    let worker = WorkerBeat {
        topology: id.clone(),
        port: p.slot.port,
        placement: p.id,
        start: 3,
        pid: 4711,
        state: "running".into(),
        note: String::new(),
        version: 1,
        executors,
        ended: false,
        drained: false,
        carrier: String::new(),
        edges: Vec::new(),
    };
    w.machines.put_beat(&p.slot.node, &SupervisorBeat { at_ms: 1, workers: vec![worker] }).await.unwrap();
    let (status, full) = w.client.get(&format!("/api/v1/topologies/{id}")).await;
    assert_eq!(status, 200);
    assert_eq!((&full["scheduled"], &full["state"]), (&json!({"by": "plugin", "plugin": "plain"}), &json!("active")));
    let worker = &full["workers"][0];
    assert_eq!((&worker["pid"], &worker["start"], &worker["state"]), (&json!(4711), &json!(3), &json!("running")));
    assert_eq!(worker["placement"], json!(format!("{:016x}", p.id)));
    let executors = full["executors"].as_array().unwrap();
    // Two ackers, two counts, one spout, ascending by task, each with its slot.
    let components: Vec<&str> = executors.iter().map(|e| e["component"].as_str().unwrap()).collect();
    assert_eq!(components, ["__acker", "__acker", "count", "count", "words"]);
    let first = p.executors[0].id.first;
    let shown = executors.iter().find(|e| e["first_task"] == first).unwrap();
    assert_eq!((&shown["core"], &shown["executed"], &shown["emitted"]), (&json!(7), &json!(11), &json!(22)));
    assert_eq!(shown["busy_per_mille"], json!(250));
    assert_eq!((&shown["node"], &shown["port"]), (&json!(p.slot.node), &json!(p.slot.port)));
    assert!(executors.iter().all(|e| e["core_why"].as_str().is_some_and(|why| !why.is_empty())), "{executors:?}");
    let (_, list) = w.client.get("/api/v1/topologies").await;
    assert_eq!(
        (&list["kind"], list["items"].as_array().unwrap().len(), &list["items"][0]["workers_running"]),
        (&json!("TopologyList"), 1, &json!(1))
    );
    assert_eq!(list["items"][0]["executors_unplaced"], json!(0));

    // All workers say that their tasks have ended: finished, and still there.
    let say = async |at_ms: u64, ended: bool| {
        for node in ["n1", "n2"] {
            let worker = |p: &saetta_model::Placement| WorkerBeat {
                topology: id.clone(),
                port: p.slot.port,
                placement: p.id,
                start: 3,
                pid: 4711,
                state: "running".into(),
                note: String::new(),
                version: 1,
                executors: vec![],
                ended,
                drained: false,
                carrier: String::new(),
                edges: Vec::new(),
            };
            let workers = placed.on(&name(node)).map(worker).collect();
            w.machines.put_beat(&name(node), &SupervisorBeat { at_ms, workers }).await.unwrap();
        }
    };
    say(2, true).await;
    until("it is finished", async || w.client.get("/api/v1/topologies/wc").await.1["finished"] == true).await;

    // Killed while its workers are at work: they have until the deadline.
    say(3, false).await;
    until("they are at work", async || w.client.get("/api/v1/topologies/wc").await.1["workers"][0]["ended"] == false).await;
    let (status, killed) = w.client.post("/api/v1/topologies/wc/kill", &json!({ "wait_secs": 300 })).await;
    assert_eq!((status, &killed["state"]), (202, &json!("killed")));
    let (status, answer) = w.client.post("/api/v1/topologies", &submission("wc", &sha)).await;
    assert!(status == 409 && error_of(&answer).contains("being killed"), "{status} {answer}");
    assert!(w.machines.assignment(&name(&id)).await.is_ok(), "its workers keep their assignment while it waits");
    let (status, _) = w.client.post(&format!("/api/v1/topologies/{id}/kill"), &json!({ "wait_secs": 0 })).await;
    assert_eq!(status, 202);
    until("its assignment is gone", async || w.machines.assignment(&name(&id)).await.is_err()).await;
    assert_eq!(w.client.get("/api/v1/topologies/wc").await.0, 200, "the record stays while workers are there");
    for node in ["n1", "n2"] {
        w.machines.put_beat(&name(node), &SupervisorBeat { at_ms: 4, workers: vec![] }).await.unwrap();
    }
    until("it is removed", async || w.client.get("/api/v1/topologies/wc").await.0 == 404).await;
    until("nothing of it is left in the store", async || {
        !w.cluster.dump().iter().any(|(path, _)| path.contains(&id) || path.contains(&sha))
    })
    .await;
    until("its key is gone", async || files(w.dir.path(), "keys").is_empty()).await;
    assert_eq!(files(w.dir.path(), "blobs"), [sha], "the binary stays for a while: the next submission may be on its way");
    w.nimbus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_refused_with_one_line_and_leaves_nothing() {
    let w = world(&["n1"]).await;
    let sha = w.client.upload(&binary()).await;
    let before = w.cluster.dump();
    let edit = |change: &dyn Fn(&mut Value)| {
        let mut request = submission("wc", &sha);
        change(&mut request);
        request.to_string().into_bytes()
    };
    let long = "x".repeat(107);
    let missing = "0".repeat(64);
    let cases: Vec<(&str, Vec<u8>, u16, &str)> = vec![
        ("no JSON", b"{\"name\": ".to_vec(), 400, "line 1 column"),
        ("not UTF-8", b"{\"name\": \"\xff\"}".to_vec(), 400, "line 1 column"),
        ("empty", vec![], 400, "EOF"),
        ("an array", b"[]".to_vec(), 422, "expected"),
        ("no name", edit(&|r| drop(r.as_object_mut().unwrap().remove("name"))), 422, "missing field `name`"),
        ("an unknown field", edit(&|r| r["nmae"] = json!("x")), 422, "unknown field `nmae`"),
        ("a wrong type", edit(&|r| r["priority"] = json!("high")), 422, "invalid type"),
        ("an empty name", edit(&|r| r["name"] = json!("")), 422, "it is empty"),
        ("a path as name", edit(&|r| r["name"] = json!("a/../b")), 422, "not a valid name"),
        ("markup as name", edit(&|r| r["name"] = json!("<img src=x onerror=y>")), 422, "not a valid name"),
        ("a system name", edit(&|r| r["name"] = json!("__acker")), 422, "reserved"),
        ("a line break in a name", edit(&|r| r["name"] = json!("a\nb")), 422, "not a valid name"),
        ("a long name", edit(&|r| r["name"] = json!(long)), 422, "too long for a topology"),
        ("a component's name", edit(&|r| r["spec"]["components"][0]["id"] = json!("a b")), 422, "not a valid name"),
        ("an unknown key", edit(&|r| r["config"] = json!({ "topology.worker": "2" })), 422, "did you mean `topology.workers`?"),
        ("a daemon's key", edit(&|r| r["config"] = json!({ "nimbus.dir": "/x" })), 422, "belongs to a daemon"),
        ("an unknown key of a component", edit(&|r| r["spec"]["components"][0]["config"] = json!({ "x": "1" })), 422, "component `count`"),
        ("too many workers", edit(&|r| r["config"]["topology.workers"] = json!("5")), 422, "nimbus.slots.perTopology allows 4"),
        (
            "too many executors",
            edit(&|r| r["spec"]["components"][0]["executors"] = json!(60)),
            422,
            "nimbus.executors.perTopology allows 50",
        ),
        (
            "fewer tasks than executors",
            edit(&|r| r["spec"]["components"][0]["tasks"] = json!(1)),
            422,
            "asks for 2 executors but has 1 tasks",
        ),
        ("no executor", edit(&|r| r["spec"]["components"][0]["executors"] = json!(0)), 422, "ask for at least 1"),
        ("a negative number", edit(&|r| r["spec"]["components"][0]["executors"] = json!(-1)), 422, "invalid value"),
        ("no component", edit(&|r| r["spec"]["components"] = json!([])), 422, "no spout"),
        ("an unknown input", edit(&|r| r["spec"]["components"][0]["inputs"][0]["from"] = json!("word")), 422, "did you mean `words`?"),
        ("a core nobody has", edit(&|r| r["config"]["executor.core"] = json!("9")), 422, "core of no slot"),
        ("no digest", edit(&|r| r["binary"] = json!("latest")), 422, "not a SHA-256"),
        ("a binary that is not here", edit(&|r| r["binary"] = json!(missing)), 422, "upload it first"),
        ("a NUL in an argument", edit(&|r| r["args"] = json!(["a\u{0}b"])), 422, "NUL"),
        ("a long owner", edit(&|r| r["owner"] = json!("o".repeat(200))), 422, "owner is not usable"),
        ("3 MiB", edit(&|r| r["args"] = json!(["x".repeat(3 << 20)])), 413, "larger than"),
        ("more than a record holds", edit(&|r| r["args"] = json!(["x".repeat(1_100_000)])), 422, "takes at most 1000000"),
    ];
    for (what, body, status, text) in cases {
        let (got, answer) = w.client.send("POST", "/api/v1/topologies", &[], body).await;
        assert_eq!(got, status, "{what}: {answer}");
        assert!(error_of(&answer).contains(text), "{what}: {answer}");
    }
    // Bodies without a stated length are bounded as well.
    let endless = reqwest::Body::wrap_stream(futures::stream::iter((0..300).map(|_| Ok::<_, std::io::Error>(vec![b' '; 10_000]))));
    // Such a client may be cut off before it has read the answer; it must not get through.
    match reqwest::Client::new().post(format!("{}/api/v1/topologies", w.client.base)).body(endless).send().await {
        Ok(response) => assert_eq!(response.status().as_u16(), 413),
        Err(e) => assert!(e.is_request(), "{e}"),
    }

    assert_eq!(w.cluster.dump(), before, "nothing was written");
    assert_eq!((files(w.dir.path(), "keys").len(), files(w.dir.path(), "tmp").len()), (0, 0));
    assert_eq!(files(w.dir.path(), "blobs"), [sha]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_is_kept_whole_and_checked_or_not_at_all() {
    let w = world(&[]).await;
    let put = async |path: &str, headers: &[(&str, &str)], body: Vec<u8>| w.client.send("PUT", path, headers, body).await;
    let at = |bytes: &[u8]| format!("/api/v1/blobs/{}", sha256(bytes));

    let (status, answer) = put(&at(b"something else"), &[], binary()).await;
    assert!(status == 422 && error_of(&answer).contains("nothing was kept"), "{status} {answer}");
    let (status, answer) = put("/api/v1/blobs/latest", &[], binary()).await;
    assert!(status == 422 && error_of(&answer).contains("64 lower-case hex digits"), "{status} {answer}");
    let (status, answer) = put(&format!("/api/v1/blobs/..%2f..%2f{}", "a".repeat(58)), &[], binary()).await;
    assert!(status == 422 && error_of(&answer).contains("64 lower-case hex digits"), "{status} {answer}");
    let mut torn = binary();
    torn.truncate(100);
    for (bytes, why) in [
        (&b"#!/bin/sh\nexit 0\n"[..], "is a script"),
        (b"", "is empty"),
        (b"PK\x03\x04 an archive", "is not an ELF executable"),
        (&torn, "broken ELF header"),
    ] {
        let (status, answer) = put(&at(bytes), &[], bytes.to_vec()).await;
        assert!(status == 422 && error_of(&answer).contains(why), "{why}: {status} {answer}");
    }

    // Too large by its own word: refused before a byte is read.
    let mut raw = tokio::net::TcpStream::connect(w.nimbus.addr()).await.unwrap();
    let head = format!("PUT {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", at(b"x"), saetta_nimbus::BLOB_BYTES_MAX + 1);
    raw.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 12];
    raw.read_exact(&mut answer).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 413");

    // A client that breaks off in the middle.
    let mut raw = tokio::net::TcpStream::connect(w.nimbus.addr()).await.unwrap();
    let head = format!("PUT {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n", at(b"x"));
    raw.write_all(head.as_bytes()).await.unwrap();
    raw.write_all(&[0; 5000]).await.unwrap();
    until("the upload began", async || !files(w.dir.path(), "tmp").is_empty()).await;
    drop(raw);
    until("what came is gone", async || files(w.dir.path(), "tmp").is_empty()).await;
    assert_eq!(files(w.dir.path(), "blobs"), Vec::<String>::new());

    // Two clients with the same binary at once.
    let path = at(&binary());
    assert_eq!(w.client.get(&path).await.0, 404);
    let (a, b) = tokio::join!(put(&path, &[], binary()), put(&path, &[], binary()));
    assert!([200, 201].contains(&a.0) && [200, 201].contains(&b.0), "{a:?} {b:?}");
    assert_eq!(w.client.get(&path).await.1["bytes"], json!(binary().len()));
    let kept = w.dir.path().join("blobs").join(sha256(&binary()));
    assert_eq!(std::fs::read(&kept).unwrap(), binary());
    use std::os::unix::fs::MetadataExt;
    assert_eq!(std::fs::metadata(&kept).unwrap().mode() & 0o777, 0o500);
    assert_eq!(files(w.dir.path(), "tmp"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_binary_that_changed_on_disk_is_mended_by_uploading_it_again() {
    let w = world(&["n1"]).await;
    let sha = w.client.upload(&binary()).await;
    let path = w.dir.path().join("blobs").join(&sha);
    let mut damaged = binary();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, &damaged).unwrap();
    assert_eq!(w.client.get(&format!("/api/v1/blobs/{sha}")).await.0, 404, "what is damaged is not there");
    std::fs::write(&path, &damaged).unwrap();
    let (status, answer) = w.client.send("PUT", &format!("/api/v1/blobs/{sha}"), &[], binary()).await;
    assert_eq!((status, &answer["new"]), (201, &json!(true)), "{answer}");
    assert_eq!(std::fs::read(&path).unwrap(), binary());
    w.nimbus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binary_that_a_node_cannot_run_is_refused_with_the_node() {
    let w = world(&["n1"]).await;
    let sha = w.client.upload(&binary()).await;
    let before: Vec<String> = w.cluster.dump().into_iter().map(|(path, _)| path).collect();
    let foreign = |machine: &str, glibc| Platform { machine: machine.into(), glibc };
    for (platform, why) in [
        (foreign("riscv64", Some((2, 99))), "the node is riscv64"),
        (foreign(std::env::consts::ARCH, Some((2, 0))), "and the node has 2.0"),
        (foreign(std::env::consts::ARCH, None), "the node has none"),
    ] {
        let mut info = supervisor("n1", &[6700, 6701]);
        info.platform = platform;
        w.machines.keep_supervisor(&info).await.unwrap();
        let (status, answer) = w.client.post("/api/v1/topologies", &submission("wc", &sha)).await;
        assert!(status == 422 && error_of(&answer).contains("node n1") && error_of(&answer).contains(why), "{status} {answer}");
    }
    let after: Vec<String> = w.cluster.dump().into_iter().map(|(path, _)| path).collect();
    assert_eq!(after, before);
    assert!(files(w.dir.path(), "keys").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_with_one_name_exactly_one_wins() {
    let w = world(&["n1"]).await;
    let sha = w.client.upload(&binary()).await;
    let tries = (0..12).map(|i| {
        let (client, sha) = (w.client.clone(), sha.clone());
        tokio::spawn(async move {
            let mut request = submission("wc", &sha);
            request["request"] = json!(format!("r{i}"));
            client.post("/api/v1/topologies", &request).await
        })
    });
    let answers: Vec<(u16, Value)> = futures::future::join_all(tries).await.into_iter().map(Result::unwrap).collect();
    let won: Vec<&Value> = answers.iter().filter(|(s, _)| *s == 201).map(|(_, a)| a).collect();
    assert_eq!(won.len(), 1, "{answers:?}");
    for (status, answer) in answers.iter().filter(|(s, _)| *s != 201) {
        assert!(*status == 409 && error_of(answer).contains("topology wc exists"), "{status} {answer}");
    }
    assert_eq!(w.store.topologies().await.unwrap().items.len(), 1);
    assert_eq!(files(w.dir.path(), "keys"), [won[0]["id"].as_str().unwrap()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_again_is_the_same_topology() {
    let w = world(&["n1"]).await;
    let sha = w.client.upload(&binary()).await;
    let mut request = submission("wc", &sha);
    request["request"] = json!("r1");
    let tries = (0..8).map(|_| {
        let (client, request) = (w.client.clone(), request.clone());
        tokio::spawn(async move { client.post("/api/v1/topologies", &request).await })
    });
    let answers: Vec<(u16, Value)> = futures::future::join_all(tries).await.into_iter().map(Result::unwrap).collect();
    let ids: BTreeSet<&str> = answers.iter().map(|(_, a)| a["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|(s, _)| *s == 201).count(), 1);
    // The id is not a way around the name.
    request["name"] = json!("other");
    let (status, answer) = w.client.post("/api/v1/topologies", &request).await;
    assert!(status == 409 && error_of(&answer).contains("was used for topology wc"), "{status} {answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_not_there_get_what_is_near() {
    let w = world(&["n1"]).await;
    let (status, answer) = w.client.get("/api/v1/topologies/wordcount").await;
    assert!(status == 404 && error_of(&answer).contains("no topology is here"), "{status} {answer}");
    let sha = w.client.upload(&binary()).await;
    assert_eq!(w.client.post("/api/v1/topologies", &submission("wordcount", &sha)).await.0, 201);
    for (method, path) in [("GET", "/api/v1/topologies/wordcuont"), ("POST", "/api/v1/topologies/wordcuont/kill")] {
        let (status, answer) = w.client.send(method, path, &[], vec![]).await;
        assert!(status == 404 && error_of(&answer).contains("did you mean `wordcount`?"), "{status} {answer}");
    }
    for path in ["/api/v1/topologies/..%2fwordcount", "/api/v1/topologies/%00", "/api/v1/topologies/%0a", "/api/v2/topologies", "/"] {
        let (status, answer) = w.client.get(path).await;
        assert_eq!(status, 404, "{path}: {answer}");
        error_of(&answer);
    }
    for (method, path) in [("DELETE", "/api/v1/topologies"), ("GET", "/api/v1/topologies/wordcount/kill"), ("POST", "/livez")] {
        let (status, answer) = w.client.send(method, path, &[], vec![]).await;
        assert_eq!(status, 405, "{method} {path}: {answer}");
        error_of(&answer);
    }
    for bad in [json!({ "wait_secs": -5 }), json!({ "wait_secs": 1e12 }), json!({ "wait_secs": "abc" }), json!({ "wait": 1 }), json!([])] {
        let (status, answer) = w.client.post("/api/v1/topologies/wordcount/kill", &bad).await;
        assert_eq!(status, 422, "{bad}: {answer}");
        error_of(&answer);
    }
    assert_eq!(w.client.get("/api/v1/topologies/wordcount").await.1["state"], json!("active"));
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_pages_cannot_change_anything() {
    let w = world(&["n1"]).await;
    let sha = w.client.upload(&binary()).await;
    let request = submission("wc", &sha).to_string().into_bytes();
    for host in ["example.org", "example.org:6627", "10.0.0.1:6627"] {
        let (status, answer) = w.client.send("GET", "/api/v1/topologies", &[("host", host)], vec![]).await;
        assert_eq!(status, 421, "{host}: {answer}");
        error_of(&answer);
    }
    for origin in ["http://example.org", "null", "http://localhost", "https://127.0.0.1"] {
        for (method, path) in [("POST", "/api/v1/topologies"), ("PUT", "/api/v1/blobs/x"), ("POST", "/api/v1/topologies/wc/kill")] {
            let (status, answer) = w.client.send(method, path, &[("origin", origin)], request.clone()).await;
            assert_eq!(status, 403, "{origin} {method} {path}: {answer}");
            error_of(&answer);
        }
    }
    let own = format!("http://{}", w.nimbus.addr());
    assert_eq!(w.client.send("POST", "/api/v1/topologies", &[("origin", &own)], request).await.0, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_addresses_and_headers_are_refused_in_the_same_form_as_all_else() {
    let w = world(&["n1"]).await;
    for path in ["/api/v1/topologies/%ff%fe", "/api/v1/blobs/%ff", "/internal/v1/blobs/%ff", "/internal/v1/topologies/%ff/key"] {
        let (status, answer) = w.client.get(path).await;
        assert_eq!(status, 400, "{path}: {answer}");
        error_of(&answer);
    }
    let (status, answer) = w.client.send("GET", "/livez", &[("x-long", &"x".repeat(20_000))], vec![]).await;
    assert_eq!(status, 431, "{answer}");
    error_of(&answer);
    let (status, answer) = w.client.send("GET", "/livez", &[("host", "127.0.0.1"), ("host", "example.org")], vec![]).await;
    assert_eq!(status, 400, "{answer}");
    error_of(&answer);
}

#[tokio::test(flavor = "multi_thread")]
async fn binaries_and_keys_are_only_for_who_knows_the_secret() {
    let w = world(&["n1"]).await;
    let sha = w.client.upload(&binary()).await;
    let (_, answer) = w.client.post("/api/v1/topologies", &submission("wc", &sha)).await;
    let key_path = format!("/internal/v1/topologies/{}/key", answer["id"].as_str().unwrap());
    let blob_path = format!("/internal/v1/blobs/{sha}");
    let secret = std::fs::read_to_string(w.dir.path().join("cluster.secret")).unwrap();
    let right = format!("Bearer {}", secret.trim());
    let wrong = format!("Bearer {}", "0".repeat(64));
    let cut = right[..right.len() - 1].to_owned();
    for path in [&key_path, &blob_path] {
        for headers in [&[][..], &[("authorization", wrong.as_str())], &[("authorization", "Bearer ")], &[("authorization", cut.as_str())]]
        {
            let (status, answer) = w.client.send("GET", path, headers, vec![]).await;
            assert_eq!(status, 401, "{path}: {answer}");
            error_of(&answer);
        }
    }
    let headers = [("authorization", right.as_str())];
    let (status, key) = w.client.send("GET", &key_path, &headers, vec![]).await;
    let key = hex::decode(key.as_str().unwrap()).unwrap();
    assert_eq!((status, key.len()), (200, 32));
    assert_eq!(key, std::fs::read(w.dir.path().join("keys").join(answer["id"].as_str().unwrap())).unwrap());
    let blob = reqwest::Client::new().get(format!("{}{blob_path}", w.client.base)).header("authorization", &right).send().await.unwrap();
    assert_eq!(blob.content_length(), Some(binary().len() as u64));
    assert_eq!(blob.bytes().await.unwrap(), binary());
    for path in ["/internal/v1/topologies/wc-1-1/key".to_owned(), format!("/internal/v1/blobs/{}", "0".repeat(64))] {
        assert_eq!(w.client.send("GET", &path, &headers, vec![]).await.0, 404, "{path}");
    }
    assert_eq!(w.client.send("GET", "/internal/v1/topologies/..%2f..%2fcluster.secret/key", &headers, vec![]).await.0, 422);
    // The secret is nowhere in what clients may read.
    for path in ["/version", "/livez", "/readyz", "/api/v1/topologies", "/api/v1/topologies/wc"] {
        let (status, answer) = w.client.get(path).await;
        assert_eq!(status, 200, "{path}");
        assert!(!answer.to_string().contains(secret.trim()), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_and_the_other_says_who() {
    let w = world(&["n1"]).await;
    let second_dir = tempfile::tempdir().unwrap();
    let second_store = Arc::new(MemoryStore::open(&w.cluster));
    let second = Nimbus::start_with(options(second_dir.path()), second_store, Arc::new(Plain)).await.unwrap();
    let other = Client::of(&second);
    let leader = w.nimbus.addr().to_string();
    let sha = sha256(&binary());
    for (method, path) in [
        ("GET", "/api/v1/topologies".to_owned()),
        ("GET", "/api/v1/topologies/wc".to_owned()),
        ("POST", "/api/v1/topologies".to_owned()),
        ("POST", "/api/v1/topologies/wc/kill".to_owned()),
        ("PUT", format!("/api/v1/blobs/{sha}")),
    ] {
        // A large body is no reason not to hear the answer.
        let body = if method == "GET" { vec![] } else { vec![b' '; 8 << 20] };
        let (status, answer) = other.send(method, &path, &[], body).await;
        assert_eq!(status, 503, "{method} {path}: {answer}");
        assert!(error_of(&answer).contains(&leader), "{answer}");
    }
    assert_eq!(other.get("/livez").await.0, 200);
    assert_eq!(other.get("/readyz").await.1["leader"], json!(leader));
    assert_eq!(w.store.nimbuses().await.unwrap().items.len(), 2);

    let sha = w.client.upload(&binary()).await;
    assert_eq!(w.client.post("/api/v1/topologies", &submission("wc", &sha)).await.0, 201);
    until("it is placed", async || w.client.get("/api/v1/topologies/wc").await.1["assignment_version"] == 1).await;
    let before = w.machines.assignments().await.unwrap();
    w.nimbus.stop().await;
    until("the second one leads", async || other.get("/api/v1/topologies").await.0 == 200).await;
    until("it has had its first round", async || other.get("/api/v1/topologies/wc").await.1["scheduled"]["by"] == "plugin").await;
    assert_eq!(w.machines.assignments().await.unwrap(), before, "taking over moves nothing");
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_store_is_away_it_says_so_and_goes_on_afterwards() {
    let w = world(&["n1"]).await;
    let sha = w.client.upload(&binary()).await;
    assert_eq!(w.client.post("/api/v1/topologies", &submission("wc", &sha)).await.0, 201);
    until("it is placed", async || w.client.get("/api/v1/topologies/wc").await.1["assignment_version"] == 1).await;
    let before = w.machines.assignments().await.unwrap();
    w.store.set_away(true);
    for (method, path) in [("GET", "/api/v1/topologies"), ("POST", "/api/v1/topologies/wc/kill"), ("GET", "/readyz")] {
        let (status, answer) = w.client.send(method, path, &[], vec![]).await;
        assert_eq!(status, 503, "{path}: {answer}");
        error_of(&answer);
    }
    let (status, answer) = w.client.post("/api/v1/topologies", &submission("ex", &sha)).await;
    assert_eq!(status, 503, "{answer}");
    assert_eq!(w.client.get("/livez").await.0, 200);
    w.store.expire_session();
    w.store.set_away(false);
    until("it leads again", async || w.client.get("/api/v1/topologies").await.0 == 200).await;
    assert_eq!(w.machines.assignments().await.unwrap(), before);
    assert_eq!(w.machines.topologies().await.unwrap().items.len(), 1);
    assert_eq!(files(w.dir.path(), "keys").len(), 1, "the refused submission left no key");
    assert_eq!(w.client.post("/api/v1/topologies", &submission("ex", &sha)).await.0, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_in_the_store_is_shown_and_stops_nothing_else() {
    let w = world(&["n1"]).await;
    let sha = w.client.upload(&binary()).await;
    w.cluster.plant("/saetta/topologies/torn-1-1", b"\x01{");
    assert_eq!(w.client.post("/api/v1/topologies", &submission("wc", &sha)).await.0, 201);
    until("it is placed", async || w.client.get("/api/v1/topologies/wc").await.1["assignment_version"] == 1).await;
    let (_, list) = w.client.get("/api/v1/topologies").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["unreadable"][0]["path"], json!("/saetta/topologies/torn-1-1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_machines_a_submission_waits_and_says_why() {
    let w = world(&[]).await;
    let sha = w.client.upload(&binary()).await;
    let (status, answer) = w.client.post("/api/v1/topologies", &submission("wc", &sha)).await;
    assert_eq!(status, 201);
    assert!(answer["notes"][0].as_str().unwrap().contains("no supervisor is here yet"), "{answer}");
    until("status says what is missing", async || {
        let (_, full) = w.client.get("/api/v1/topologies/wc").await;
        full["notes"].to_string().contains("5 of 5 executors have no slot")
    })
    .await;
    w.machines.keep_supervisor(&supervisor("n1", &[6700])).await.unwrap();
    until("it starts when one comes", async || w.client.get("/api/v1/topologies/wc").await.1["executors_unplaced"] == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_cannot_work_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let store = || Arc::new(MemoryStore::new());
    let mut wide = options(dir.path());
    wide.bind = "0.0.0.0:0".into();
    let e = Nimbus::start_with(wide, store(), Arc::new(Plain)).await.unwrap_err().to_string();
    assert!(e.contains("only loopback is allowed"), "{e}");
    let first = start(options(dir.path()), store()).await;
    let e = Nimbus::start_with(options(dir.path()), store(), Arc::new(Plain)).await.unwrap_err().to_string();
    assert!(e.contains("another nimbus uses this directory"), "{e}");
    let elsewhere = tempfile::tempdir().unwrap();
    let mut same_port = options(elsewhere.path());
    same_port.bind = first.addr().to_string();
    let e = Nimbus::start_with(same_port, store(), Arc::new(Plain)).await.unwrap_err().to_string();
    assert!(e.contains("cannot listen there"), "{e}");
}
