//! Two hosts and a switch between them, on one machine: network namespaces joined by veth and a bridge.
//!
//! Before: the caller is root, `ip` and `nft` are there. After: every namespace is gone, in a panic too; those of a run that was killed go with
//! the next. Nothing outside the namespaces is touched.

use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// All namespaces of this lab: `saetta-PID-NUMBER-HOST`.
const PREFIX: &str = "saetta-";
/// Of hosts `a` and `b`.
pub(crate) const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const HOSTS: [&str; 2] = ["a", "b"];

pub(crate) struct Lab {
    /// Of `a`, `b` and the switch.
    names: [String; 3],
}

fn run(words: &str) -> Result<String, String> {
    let words: Vec<&str> = words.split_whitespace().collect();
    let out = Command::new(words[0]).args(&words[1..]).output().map_err(|e| format!("{}: {e}", words[0]))?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        false => Err(format!("{}: {}", words.join(" "), String::from_utf8_lossy(&out.stderr).trim())),
    }
}

fn must(words: &str) {
    run(words).unwrap_or_else(|why| panic!("{why}"));
}

/// Why there can be no lab here, in one line.
pub(crate) fn missing() -> Option<&'static str> {
    static MISSING: LazyLock<Option<String>> = LazyLock::new(|| try_out().err());
    MISSING.as_deref()
}

fn try_out() -> Result<(), String> {
    run("ip -V").map_err(|e| format!("{e}; install iproute2"))?;
    run("nft --version").map_err(|e| format!("{e}; install nftables"))?;
    sweep();
    let name = format!("{PREFIX}{}-probe", std::process::id());
    run(&format!("ip netns add {name}")).map_err(|e| format!("{e}; run as root"))?;
    let rules = run(&format!("ip netns exec {name} nft add table inet lab"));
    must(&format!("ip netns del {name}"));
    rules.map(drop)
}

/// Removes what a run that was killed left behind.
fn sweep() {
    for line in run("ip netns list").unwrap_or_default().lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let Some(pid) = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()) else { continue };
        if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
            // Another run may be faster.
            let _ = run(&format!("ip netns del {name}"));
        }
    }
}

impl Lab {
    pub(crate) fn new() -> Lab {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let lab = Lab { names: ["a", "b", "sw"].map(|host| format!("{PREFIX}{}-{number}-{host}", std::process::id())) };
        lab.names.iter().for_each(|name| must(&format!("ip netns add {name}")));
        let switch = &lab.names[2];
        must(&format!("ip -n {switch} link add br0 type bridge"));
        must(&format!("ip -n {switch} link set br0 up"));
        for (n, host) in HOSTS.iter().enumerate() {
            let name = &lab.names[n];
            // One packet is one frame of the wire: what is dropped is 1500 bytes, not what the kernel would have cut up later.
            must(&format!("ip -n {name} link add eth0 mtu 1500 gso_max_segs 1 type veth peer name port-{host} netns {switch}"));
            must(&format!("ip -n {switch} link set dev port-{host} master br0 up"));
            must(&format!("ip -n {name} addr add {}/24 dev eth0", ADDRESSES[n]));
            must(&format!("ip -n {name} link set eth0 up"));
            must(&format!("ip -n {name} link set lo up"));
            must(&format!("ip netns exec {name} nft add table inet lab"));
            must(&format!("ip netns exec {name} nft add chain inet lab in {{ type filter hook input priority 0 ; }}"));
        }
        lab
    }

    /// What a program on this host (0 or 1) is started with. It becomes the program: same process.
    pub(crate) fn on(&self, host: usize) -> Vec<String> {
        ["ip", "netns", "exec", &self.names[host]].map(str::to_owned).to_vec()
    }

    /// From now on, what comes in at this host from the other one is treated so: `drop`, ..
    pub(crate) fn rule(&self, host: usize, what: &str) {
        must(&format!("ip netns exec {} nft add rule inet lab in ip saddr {} {what}", self.names[host], ADDRESSES[1 - host]));
    }

    /// So many of a hundred packets are lost, each way.
    pub(crate) fn lose(&self, percent: u32) {
        (0..2).for_each(|host| self.rule(host, &format!("numgen random mod 100 < {percent} drop")));
    }

    /// Every connection of this host with the other one is destroyed; the other side is sent a reset.
    pub(crate) fn reset(&self, host: usize) {
        must(&format!("ip netns exec {} ss --kill --tcp state established dst {}", self.names[host], ADDRESSES[1 - host]));
    }

    /// The switch's port of this host.
    pub(crate) fn port(&self, host: usize, up: bool) {
        must(&format!("ip -n {} link set dev port-{} {}", self.names[2], HOSTS[host], if up { "up" } else { "down" }));
    }

    /// No rules any more.
    pub(crate) fn heal(&self) {
        self.names[..2].iter().for_each(|name| must(&format!("ip netns exec {name} nft flush chain inet lab in")));
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in &self.names {
            if let Err(why) = run(&format!("ip netns del {name}")) {
                eprintln!("{why}");
            }
        }
    }
}
