//! Two network namespaces joined by a virtual wire with the MTU of Ethernet: between them TCP gives bytes in pieces, which over loopback it does not.
//!
//! Before: a suite starts a worker at each end. After: dropping it takes both namespaces and the wire away. Needs `ip` and the right to use it.

use std::process::Command;

use saetta_harness::Result;

/// Addresses of the two ends, for nobody but the two.
const ADDRESSES: [&str; 2] = ["10.84.0.1", "10.84.0.2"];
const MTU: &str = "1500";

/// See the head of this file.
pub(crate) struct Veth {
    namespaces: [String; 2],
}

/// One end: who is started in it, and at which address it listens.
#[derive(Debug, Clone)]
pub(crate) struct End {
    pub(crate) namespace: String,
    pub(crate) address: &'static str,
}

/// What the names of our namespaces begin with, before the process id of who made them.
const OURS: &str = "saetta-bench-";

impl Veth {
    /// Errors: `ip` is not there, or may not.
    pub(crate) fn new() -> Result<Self> {
        take_away_forgotten();
        let veth = Veth { namespaces: ["a", "b"].map(|end| format!("{OURS}{}-{end}", std::process::id())) };
        for namespace in &veth.namespaces {
            ip(&["netns", "add", namespace])?;
        }
        let [a, b] = &veth.namespaces;
        ip(&["link", "add", "v", "netns", a, "mtu", MTU, "type", "veth", "peer", "name", "v", "netns", b, "mtu", MTU])?;
        for (namespace, address) in veth.namespaces.iter().zip(ADDRESSES) {
            ip(&["-n", namespace, "addr", "add", &format!("{address}/24"), "dev", "v"])?;
            for device in ["v", "lo"] {
                ip(&["-n", namespace, "link", "set", device, "up"])?;
            }
        }
        Ok(veth)
    }

    /// The first end or the second.
    pub(crate) fn end(&self, at: usize) -> End {
        End { namespace: self.namespaces[at].clone(), address: ADDRESSES[at] }
    }
}

/// Of runs that were killed.
fn take_away_forgotten() {
    let there = Command::new("ip").args(["netns", "list"]).output().map(|output| output.stdout).unwrap_or_default();
    for line in String::from_utf8_lossy(&there).lines() {
        let name = line.split(' ').next().unwrap_or_default();
        let maker = name.strip_prefix(OURS).and_then(|rest| rest.split('-').next());
        if maker.is_some_and(|pid| !std::path::Path::new("/proc").join(pid).exists()) {
            let _ = ip(&["netns", "del", name]);
        }
    }
}

fn ip(words: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(words).output().map_err(|e| format!("starting ip: {e}; install iproute2"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim()).into())
}

impl Drop for Veth {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            // One that was never made is none to take away.
            let _ = ip(&["netns", "del", namespace]);
        }
    }
}
