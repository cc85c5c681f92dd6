//! How the cores of this machine lie to each other: caches, NUMA nodes, threads of one core, isolation. Read from `/sys` once at start.
//!
//! Before: `machine` knows which cores this process may run on. After: `SupervisorInfo::cores`. What the kernel does not say counts
//! as near: one cache, node 0, no sibling, not isolated.

use saetta_model::cluster::CoreInfo;
use std::collections::BTreeSet;
use std::path::Path;

/// Most numbers taken from one list of the kernel.
const CORES_MAX: usize = 1 << 16;

/// Facts about these cores, in their order.
pub(crate) fn describe(cores: &[u32]) -> Vec<CoreInfo> {
    describe_in(Path::new("/sys/devices/system"), cores)
}

fn describe_in(system: &Path, cores: &[u32]) -> Vec<CoreInfo> {
    let isolated: BTreeSet<u32> = list(&system.join("cpu/isolated")).unwrap_or_default().into_iter().collect();
    let nodes: Vec<(u32, BTreeSet<u32>)> = list(&system.join("node/online"))
        .unwrap_or_default()
        .into_iter()
        .filter_map(|node| Some((node, list(&system.join(format!("node/node{node}/cpulist")))?.into_iter().collect())))
        .collect();
    let describe = |&id: &u32| {
        let cpu = system.join(format!("cpu/cpu{id}"));
        let threads = list(&cpu.join("topology/thread_siblings_list")).unwrap_or_default();
        CoreInfo {
            id,
            // A cache is called by the first core that has it.
            l3: list(&cpu.join("cache/index3/shared_cpu_list")).and_then(|c| c.into_iter().min()).unwrap_or(0),
            numa: nodes.iter().find(|(_, of)| of.contains(&id)).map_or(0, |(node, _)| *node),
            sibling: threads.into_iter().find(|t| *t != id),
            isolated: isolated.contains(&id),
        }
    };
    cores.iter().map(describe).collect()
}

/// A file with a list as `0-3,8`. `None` = it is not there or says something else.
fn list(path: &Path) -> Option<Vec<u32>> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut all = Vec::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?);
        if first > last || (last - first) as usize + all.len() >= CORES_MAX {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_nodes_threads_and_isolation_are_read_and_what_is_missing_counts_as_near() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("cpu/isolated", "5\n");
        write("node/online", "0-1\n");
        write("node/node0/cpulist", "0-3\n");
        write("node/node1/cpulist", "4-5,7\n");
        write("cpu/cpu5/topology/thread_siblings_list", "4-5\n");
        write("cpu/cpu5/cache/index3/shared_cpu_list", "4-5,7\n");
        let far = CoreInfo { id: 5, l3: 4, numa: 1, sibling: Some(4), isolated: true };
        let plain = CoreInfo { id: 9, l3: 0, numa: 0, sibling: None, isolated: false };
        assert_eq!(describe_in(dir.path(), &[5, 9]), [far, plain]);
        write("cpu/isolated", "0-4294967295\n");
        assert!(!describe_in(dir.path(), &[5])[0].isolated, "a list without bound is no list");
    }

    #[test]
    fn this_machine_says_something_about_every_core() {
        let cores = crate::machine::allowed_cores();
        let told = describe(&cores);
        assert_eq!(told.iter().map(|c| c.id).collect::<Vec<_>>(), cores);
        assert!(told.iter().all(|c| c.sibling != Some(c.id)));
    }
}
