//! Checks of how a plugin reads the snapshot: newer hosts, older hosts, odd clusters.

use super::clusters;
use super::rules::valid;
use super::{Fine, Verdict};
use crate::helper::check::{Bench, ask, ask_in_place, fine, plain, plan_for};
use saetta_sdk::abi::{self, Row};
use saetta_sdk::call::{Instance, RoundArgs};
use saetta_sdk::snapshot::Snapshot;
use saetta_sdk::testing::{Cluster, Component, Node, Topology};
use std::time::Duration;

/// A round on the large cluster takes at most so long.
const LARGE_MAX: Duration = Duration::from_secs(2);
/// What a round on the largest cluster may take, as `scheduler.deadline.secs`.
const LARGEST_MAX: Duration = Duration::from_secs(5);

pub(super) fn not_written(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    for (name, cluster) in clusters::all() {
        let before = cluster.pack();
        // Memory that can be written to, so that what was written can be told.
        let snapshot = before.clone();
        // What it answers is another check's.
        let _ = ask_in_place(&mut instance, plain(), std::hint::black_box(&snapshot));
        let n = before.iter().zip(std::hint::black_box(&snapshot)).filter(|(a, b)| a != b).count();
        if n > 0 {
            return Err(format!("{name}: it changed {n} bytes of the snapshot; under nimbus that is a crash"));
        }
    }
    Ok(Fine::Success)
}

pub(super) fn stride(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    fine(|| {
        for (name, cluster) in clusters::all() {
            let plain_rows = plan_for(&mut instance, name, &cluster)?;
            for noise in [8, 24] {
                let longer = ask(&mut instance, plain(), &cluster.clone().row_noise(noise).pack());
                let same = longer.as_ref().is_ok_and(|l| *l == plain_rows);
                if !same {
                    return Err(format!("{name}: with rows {noise} bytes longer the plan is another; find rows by the table's stride"));
                }
            }
        }
        Ok(())
    })
}

/// The directory of a packed snapshot, changed.
fn with_directory(bytes: &[u8], change: impl Fn(Vec<abi::DirEntry>) -> Vec<abi::DirEntry>) -> Vec<u8> {
    let header = abi::Header::read(&bytes[..abi::Header::SIZE]);
    let (at, n) = (header.dir_off as usize, header.n_tables as usize);
    let entries = change(bytes[at..at + n * abi::DirEntry::SIZE].chunks_exact(abi::DirEntry::SIZE).map(abi::DirEntry::read).collect());
    // The new directory goes to the end: nothing else moves.
    let mut out = bytes.to_vec();
    let dir_off = out.len().next_multiple_of(abi::TABLE_ALIGN);
    out.resize(dir_off + entries.len() * abi::DirEntry::SIZE, 0);
    for (i, entry) in entries.iter().enumerate() {
        entry.write(&mut out[dir_off + i * abi::DirEntry::SIZE..]);
    }
    abi::Header { total_len: out.len() as u64, n_tables: entries.len() as u32, dir_off: dir_off as u64, ..header }.write(&mut out);
    out
}

fn same_with(instance: &mut Instance, what: &str, change: fn(Vec<abi::DirEntry>) -> Vec<abi::DirEntry>) -> Verdict {
    for (name, cluster) in clusters::all() {
        let bytes = cluster.pack();
        let known = plan_for(instance, name, &cluster)?;
        let other = ask(instance, plain(), &with_directory(&bytes, change)).map_err(|e| format!("{name}: with {what} it answers {e}"))?;
        if known != other {
            return Err(format!("{name}: with {what} the plan is another"));
        }
    }
    Ok(Fine::Success)
}

pub(super) fn unknown_tables(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    same_with(&mut instance, "tables nobody knows", |mut entries| {
        let first = entries[0];
        // Between the known ones where there is a number left, and behind them.
        let free = (1..26).find(|id| entries.iter().all(|e| e.table_id != *id)).into_iter();
        let unknown = free.filter(|id| [22, 23, 24, 25].contains(id)).chain([4_000_000, 4_000_001]);
        entries.extend(unknown.map(|table_id| abi::DirEntry { table_id, ..first }));
        entries.sort_by_key(|e| e.table_id);
        entries
    })
}

pub(super) fn missing_tables(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    for (name, cluster) in clusters::all() {
        let thin = with_directory(&cluster.pack(), |mut entries| {
            entries.retain(|e| {
                ![abi::TABLE_EDGES, abi::TABLE_CORES, abi::TABLE_SLOT_CORES, abi::TABLE_META, abi::TABLE_USERS].contains(&e.table_id)
            });
            entries
        });
        // A code is an answer; a crash is not.
        if let Ok(answer) = ask(&mut instance, plain(), &thin)
            && Snapshot::new(&thin).is_ok()
        {
            valid(&bench.manifest, &thin, &answer, abi::NONE).map_err(|e| format!("{name} without optional tables: {e}"))?;
        }
    }
    Ok(Fine::Success)
}

pub(super) fn unknown_incompat_bit(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    match ask(&mut instance, plain(), &clusters::refused()) {
        Err(e) if e.code == abi::E_UNSUPPORTED => Ok(Fine::Success),
        Err(e) => Ok(Fine::Warning(format!("it answers {}, not E_UNSUPPORTED", saetta_sdk::code_name(e.code)))),
        Ok(_) => {
            Err("it reads a snapshot of features it does not know; answer E_UNSUPPORTED when features_incompat has a bit you do not know"
                .to_owned())
        }
    }
}

pub(super) fn odd_clusters(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    let spout = || Topology::new("a").with(Component::spout("s", 1).cpu(1).memory_mb(1, 0));
    let one_slot = || Cluster::new().nodes(1, |n| n.slots(1).cpu(400).memory_mb(4096));
    let odd = [
        ("nothing at all", Cluster::new()),
        ("no topologies", Cluster::new().nodes(2, |n| n.slots(2))),
        ("no nodes", Cluster::new().topology(spout())),
        ("no slots", Cluster::new().nodes(2, |n| n.slots(0)).topology(spout())),
        ("no executors", one_slot().topology(Topology::new("a"))),
        ("one slot", one_slot().topology(spout())),
        ("all blacklisted", Cluster::new().nodes(2, |n| n.slots(2).flags(abi::NODE_BLACKLISTED)).topology(spout())),
        (
            "names beyond ASCII",
            Cluster::new()
                .node(Node::new("nœud-β").rack("機架").slots(1).cpu(400).memory_mb(4096))
                .topology(Topology::new("Straße").with(Component::spout("источник", 2))),
        ),
    ];
    fine(|| {
        for (name, cluster) in odd {
            let answer = plan_for(&mut instance, name, &cluster)?;
            let bytes = cluster.pack();
            valid(&bench.manifest, &bytes, &answer, abi::NONE).map_err(|e| format!("{name}: {e}"))?;
        }
        Ok(())
    })
}

pub(super) fn large_cluster(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    let bytes = clusters::large().pack();
    let started = std::time::Instant::now();
    ask(&mut instance, plain(), &bytes).map_err(|e| format!("it answered {e}"))?;
    let took = started.elapsed();
    if took > LARGE_MAX {
        return Ok(Fine::Warning(format!("it took {} ms", took.as_millis())));
    }
    Ok(Fine::Success)
}

pub(super) fn unknown_values(bench: &mut Bench) -> Verdict {
    /// No kind, grouping or reason has this number.
    const UNKNOWN: u32 = 1_000_000;
    /// No flag is this bit.
    const UNKNOWN_BIT: u32 = 1 << 31;
    let mut instance = bench.start()?;
    fine(|| {
        for (name, cluster) in clusters::all() {
            let mut bytes = cluster.pack();
            clusters::with_rows::<abi::EdgeRow>(&mut bytes, |e| e.grouping = UNKNOWN);
            clusters::with_rows::<abi::ComponentRow>(&mut bytes, |c| c.kind = UNKNOWN);
            clusters::with_rows::<abi::TopologyRow>(&mut bytes, |t| t.flags |= UNKNOWN_BIT);
            clusters::with_rows::<abi::NodeRow>(&mut bytes, |n| n.flags |= UNKNOWN_BIT);
            clusters::with_rows::<abi::SlotRow>(&mut bytes, |s| s.flags |= UNKNOWN_BIT);
            let args = RoundArgs { reason: UNKNOWN, flags: UNKNOWN_BIT, ..plain() };
            let answer = ask(&mut instance, args, &bytes)
                .map_err(|e| format!("{name}: kinds, groupings and flags of a newer host make it answer {e}"))?;
            valid(&bench.manifest, &bytes, &answer, abi::NONE)
                .map_err(|e| format!("{name}, with kinds, groupings and flags of a newer host: {e}"))?;
        }
        Ok(())
    })
}

pub(super) fn largest_cluster(bench: &mut Bench) -> Verdict {
    let mut instance = bench.start()?;
    let bytes = clusters::sized(2_000, 100, 20, 667).pack();
    let started = std::time::Instant::now();
    let args = RoundArgs { budget_ns: LARGEST_MAX.as_nanos() as u64, ..plain() };
    let answer = ask(&mut instance, args, &bytes);
    let took = started.elapsed();
    match answer {
        Err(e) if e.code == abi::E_CANCELLED => Ok(Fine::Warning("it finds no plan in 5 s".to_owned())),
        Err(e) => Err(format!("it answered {e}")),
        Ok(_) if took > LARGEST_MAX => Ok(Fine::Warning(format!("it took {} ms", took.as_millis()))),
        Ok(answer) => valid(&bench.manifest, &bytes, &answer, abi::NONE).map(|()| Fine::Success),
    }
}
