//! What this machine is: its cores, its memory, what binaries it can run.
//!
//! Before: nothing; facts are read from the kernel and from the libc this process runs on. After: `SupervisorInfo`.

use object::elf::FileHeader64;
use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, StringTable};
use saetta_model::cluster::Platform;
use saetta_model::topology::{Resources, offer_milli};
use std::collections::BTreeMap;

/// Thousandths of a percent in one core.
const CPU_MILLI_PCT_PER_CORE: i64 = 100_000;

/// Cores this process may run on, ascending. Never empty: the process runs.
pub fn allowed_cores() -> Vec<u32> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|c| set.is_set(*c)).map(|c| c as u32).collect(),
        // More cores than the set holds: the online list is the best there is.
        Err(_) => (0..std::thread::available_parallelism().map_or(1, |n| n.get() as u32)).collect(),
    }
}

/// What the machine offers to executors: what is configured, else these cores and all of its memory.
pub(crate) fn resources(cores: &[u32], offered: &Offered) -> Resources {
    let memory = || std::fs::read_to_string("/proc/meminfo").ok().and_then(|t| mem_total_bytes(&t)).unwrap_or(0);
    Resources {
        cpu_milli_pct: offered.cpu_pct.map_or(cores.len() as i64 * CPU_MILLI_PCT_PER_CORE, offer_milli),
        memory_bytes: offered.memory_mb.map_or_else(memory, |mb| (mb * f64::from(1 << 20)) as i64),
        generic_milli: offered.others.iter().map(|(kind, n)| (kind.clone(), offer_milli(*n))).collect(),
        ..Resources::default()
    }
}

/// What the configuration says this supervisor offers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offered {
    /// `supervisor.cpu.capacity`, percent of a core; `None` = 100 for each core of its slots.
    pub cpu_pct: Option<f64>,
    /// `supervisor.memory.capacity.mb`; `None` = the machine's memory.
    pub memory_mb: Option<f64>,
    /// `supervisor.resources`, units by kind.
    pub others: BTreeMap<String, f64>,
}

/// What binaries run here.
pub fn platform() -> Platform {
    let machine = rustix::system::uname().machine().to_string_lossy().into_owned();
    Platform { machine, glibc: glibc() }
}

fn mem_total_bytes(meminfo: &str) -> Option<i64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()? * 1024)
}

/// Highest version that the C library of this process defines; `None` where there is no glibc.
///
/// Read from the library's own version table, not asked of a function: a binary runs when the versions it names are in
/// that table, so the table is the fact it is compared with, and reading it needs no unsafe call.
fn glibc() -> Option<(u32, u32)> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().filter_map(|l| l.split_once('/').map(|(_, p)| format!("/{p}"))).find(|p| is_libc(p))?;
    highest_glibc(&std::fs::read(path).ok()?)
}

fn is_libc(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name == "libc.so.6" || (name.starts_with("libc-2.") && name.ends_with(".so"))
}

fn highest_glibc(elf: &[u8]) -> Option<(u32, u32)> {
    let header = FileHeader64::<Endianness>::parse(elf).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, elf).ok()?;
    let (mut defined, strings_at) = sections.iter().find_map(|s| {
        let defined = s.gnu_verdef(endian, elf).ok()??;
        Some(defined)
    })?;
    let strings: StringTable<'_, _> = sections.strings(endian, elf, strings_at).ok()?;
    let mut highest = None;
    while let Some((_, mut names)) = defined.next().ok()? {
        let Some(name) = names.next().ok()? else { continue };
        let version = name.name(endian, strings).ok().and_then(|n| glibc_version(std::str::from_utf8(n).ok()?));
        highest = highest.max(version);
    }
    highest
}

/// `GLIBC_2.36` as (2, 36); a patch level does not matter to binaries.
fn glibc_version(name: &str) -> Option<(u32, u32)> {
    let mut parts = name.strip_prefix("GLIBC_")?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_cores_memory_and_a_name() {
        let cores = allowed_cores();
        assert!(!cores.is_empty() && cores.windows(2).all(|w| w[0] < w[1]));
        let found = resources(&cores, &Offered::default());
        assert!(found.memory_bytes > 64 << 20, "{found:?}");
        assert_eq!(found.cpu_milli_pct, cores.len() as i64 * 100_000);
        let stated = Offered { cpu_pct: Some(12.3), memory_mb: Some(1.5), others: BTreeMap::from([("gpu".into(), 0.0019)]) };
        let stated = resources(&cores, &stated);
        assert_eq!(
            (stated.cpu_milli_pct, stated.memory_bytes, stated.generic_milli["gpu"]),
            (12_300, 3 << 19, 1),
            "offers are rounded down"
        );
        assert!(!platform().machine.is_empty());
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn the_version_table_of_the_own_libc_is_found() {
        let (major, minor) = platform().glibc.expect("this test runs on glibc");
        assert!(major == 2 && minor >= 17, "{major}.{minor}");
    }

    #[test]
    fn version_names_are_read_as_numbers_not_as_text() {
        assert!(glibc_version("GLIBC_2.4") < glibc_version("GLIBC_2.36"));
        assert_eq!(glibc_version("GLIBC_2.2.5"), Some((2, 2)));
        assert_eq!(glibc_version("GLIBC_PRIVATE"), None);
        assert_eq!(mem_total_bytes("MemTotal:       16 kB\n"), Some(16_384));
    }
}
