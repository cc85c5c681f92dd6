//! A real ZooKeeper of one, three or five nodes on this machine, on loopback, under target/zookeeper.
//!
//! Before: `cargo xtask zookeeper`, and `cluster`. After: one java per node, which outlives us; `stop` ends it by its pid.
//! Ticks are short (500 ms), so that a lost session is noticed in the seconds a developer waits.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::needs;
use crate::process::{Daemon, port_is_open, target, wait_for};

/// Client port of the first node, ZooKeeper's own default.
pub(crate) const CLIENT_PORT: u16 = 2181;
/// Client port + this: the port nodes follow their leader on. Twice this: the port they elect on.
const QUORUM_PORT_STEP: u16 = 10_000;
/// Highest client port whose election port is still a port.
const CLIENT_PORT_MAX: u16 = u16::MAX - 2 * QUORUM_PORT_STEP - 5;
/// A cold JVM serves in 0.3 s alone and 1.1 s as three; much more on a loaded machine.
const SERVE_WITHIN: Duration = Duration::from_secs(60);
const STOP_WITHIN: Duration = Duration::from_secs(15);
const HEAP: &str = "-Xmx256m";
const NODES_MAX: u16 = 5;

fn dir() -> PathBuf {
    target().join("zookeeper")
}

fn node_dir(base: &Path, node: u16) -> PathBuf {
    base.join(node.to_string())
}

fn daemon(base: &Path, node: u16) -> Daemon {
    let dir = node_dir(base, node);
    Daemon { mark: dir.join("zoo.cfg").display().to_string(), name: "zookeeper".to_owned(), dir }
}

/// The configuration of one node of `nodes`, counted from 1.
fn config(base: &Path, node: u16, nodes: u16, port: u16) -> String {
    let data = node_dir(base, node).join("data");
    let mut text = format!(
        "tickTime=500\ninitLimit=20\nsyncLimit=10\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n\
         maxClientCnxns=0\nminSessionTimeout=1000\n4lw.commands.whitelist=srvr\n",
        data.display(),
        port + node - 1
    );
    if nodes > 1 {
        for peer in 1..=nodes {
            let quorum = port + peer - 1 + QUORUM_PORT_STEP;
            text += &format!("server.{peer}=127.0.0.1:{quorum}:{}\n", quorum + QUORUM_PORT_STEP);
        }
    }
    text
}

/// What the node says it is (`standalone`, `leader`, `follower`), once it serves.
fn mode(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    stream.write_all(b"srvr").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    mode_in(&text)
}

fn mode_in(srvr: &str) -> Option<String> {
    srvr.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
}

/// Starts the nodes below `base` that do not run yet, waits until all serve, and returns what to put into `zookeeper.servers`.
pub(crate) fn start(base: &Path, nodes: u16, port: u16) -> Result<String> {
    if nodes.is_multiple_of(2) {
        bail!("{nodes} nodes: an even number survives no more losses than one less; take 1, 3 or 5");
    }
    if port > CLIENT_PORT_MAX {
        bail!("port {port}: the nodes also use {QUORUM_PORT_STEP} and twice that above it; take at most {CLIENT_PORT_MAX}");
    }
    needs::install_for_zookeeper()?;
    for node in 1..=nodes {
        let daemon = daemon(base, node);
        if daemon.running().is_some() {
            continue;
        }
        let client_port = port + node - 1;
        if port_is_open(client_port) {
            bail!("node {node}: port {client_port} is taken by another process; choose another with --port");
        }
        let data = daemon.dir.join("data");
        fs::create_dir_all(&data).with_context(|| format!("making {}", data.display()))?;
        fs::write(data.join("myid"), format!("{node}\n"))?;
        fs::write(daemon.dir.join("zoo.cfg"), config(base, node, nodes, port))?;
        let mut java = Command::new("java");
        java.args([HEAP, "-cp", needs::ZOOKEEPER_JAR, "org.apache.zookeeper.server.quorum.QuorumPeerMain", &daemon.mark]);
        // It outlives us: nobody waits for it here, `stop` finds it by its pid file.
        drop(daemon.start(&mut java)?);
    }
    let mut servers = Vec::new();
    for node in 1..=nodes {
        let (daemon, client_port) = (daemon(base, node), port + node - 1);
        let Some(mode) = wait_for(SERVE_WITHIN, || mode(client_port)) else {
            bail!(
                "node {node}: not serving on port {client_port} after {SERVE_WITHIN:?}; the end of {}:\n{}",
                daemon.log().display(),
                daemon.log_tail()
            );
        };
        println!("zookeeper {node}/{nodes}: 127.0.0.1:{client_port} {mode}, pid {}", daemon.running().unwrap_or(0));
        servers.push(format!("127.0.0.1:{client_port}"));
    }
    Ok(servers.join(","))
}

/// Stops every node below `base`. Their data stays.
pub(crate) fn stop(base: &Path) -> Result<u16> {
    let mut stopped = 0;
    for node in 1..=NODES_MAX {
        stopped += u16::from(daemon(base, node).stop(STOP_WITHIN)?);
    }
    Ok(stopped)
}

/// `cargo xtask zookeeper start`.
pub(crate) fn start_here(nodes: u16, port: u16) -> Result<()> {
    let servers = start(&dir(), nodes, port)?;
    println!("zookeeper.servers = \"{servers}\"");
    Ok(())
}

/// `cargo xtask zookeeper stop`.
pub(crate) fn stop_here() -> Result<()> {
    let stopped = stop(&dir())?;
    println!("stopped {stopped}; data stays in {}", dir().display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_stands_alone_and_three_know_each_other() {
        let one = config(Path::new("/z"), 1, 1, 2181);
        assert!(one.contains("dataDir=/z/1/data\nclientPort=2181\nclientPortAddress=127.0.0.1\n"), "{one}");
        assert!(!one.contains("server."), "{one}");
        let two = config(Path::new("/z"), 2, 3, 2181);
        assert!(two.contains("clientPort=2182\n"), "{two}");
        assert!(two.ends_with("server.1=127.0.0.1:12181:22181\nserver.2=127.0.0.1:12182:22182\nserver.3=127.0.0.1:12183:22183\n"), "{two}");
    }

    #[test]
    fn an_even_number_of_nodes_is_refused_before_anything_starts() {
        let error = start(Path::new("/nowhere"), 2, 2181).expect_err("even").to_string();
        assert!(error.contains("take 1, 3 or 5"), "{error}");
    }

    #[test]
    fn a_node_serves_when_it_names_its_mode() {
        assert_eq!(mode_in("Zookeeper version: 3.8.0\nMode: follower\nNode count: 5\n"), Some("follower".to_owned()));
        assert_eq!(mode_in("This ZooKeeper instance is not currently serving requests\n"), None);
    }
}
