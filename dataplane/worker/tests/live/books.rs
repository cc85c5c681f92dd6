//! What became of every tree, from the books of all processes, dead ones included.
//!
//! Before: the spouts are off and everything has drained. After: the promises that hold whatever failed were checked.

use super::FAIL_TIME_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

// As in `examples/ledger.rs`.
const EMITTED: u64 = 1;
const ACKED: u64 = 2;
const FAILED: u64 = 16;
const BROKEN: u64 = 1 << 63;
/// Places of `saetta_engine::Reason`.
const REASONS: [&str; 8] = ["bolt", "timeout", "worker lost", "link lost", "dropped", "shutdown", "cycle", "discarded"];
/// A worker's log line may be written so much later than its loop acted.
const LOG_LAG_MS: u64 = 500;

/// A tree: process and task of its spout, and its number.
pub(crate) type Tree = (u32, u32, u64);

#[derive(Default)]
pub(crate) struct Audit {
    pub(crate) emitted: u64,
    pub(crate) acked: u64,
    /// By reason.
    pub(crate) failed: BTreeMap<&'static str, u64>,
    /// When each failed, in milliseconds since 1970.
    failed_ms: Vec<(u64, &'static str)>,
    /// Seen by a sink.
    pub(crate) seen: u64,
}

/// What a task of a process wrote: component, task, process, pairs.
type Book = (String, u32, u32, Vec<(u64, u64)>);

/// All books. A torn last pair (its writer was killed) is left out.
fn all(dir: &Path) -> Vec<Book> {
    let word = |b: &[u8]| u64::from_le_bytes(b.try_into().unwrap());
    let mut books = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let [component, task, life] = path.file_name().unwrap().to_str().unwrap().split('-').collect::<Vec<_>>()[..] else { continue };
        let bytes = std::fs::read(&path).unwrap();
        let pairs = bytes.chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..]))).collect();
        books.push((component.to_owned(), task.parse().unwrap(), life.parse().unwrap(), pairs));
    }
    books
}

/// Of an event of a spout.
fn number(event: u64) -> u64 {
    event & ((1 << 56) - 1)
}

/// Trees that have not ended, and when (milliseconds since 1970) each began; those of killed processes left out.
pub(crate) fn open_trees(dir: &Path, killed: &[u32]) -> BTreeMap<Tree, u64> {
    let mut open = BTreeMap::new();
    for (component, task, life, pairs) in all(dir) {
        if component == "numbers" && !killed.contains(&life) {
            for (event, ns) in pairs {
                let tree = (life, task, number(event));
                if event >> 56 == EMITTED {
                    open.insert(tree, ns / 1_000_000)
                } else {
                    open.remove(&tree)
                };
            }
        }
    }
    open
}

/// Which tasks saw each of these trees.
pub(crate) fn stories(dir: &Path, trees: &BTreeMap<Tree, u64>) -> String {
    let mut text = String::new();
    for (tree, began_ms) in trees {
        text += &format!("\n{tree:?} begun at {began_ms}, seen by:");
        for (component, task, _, pairs) in all(dir) {
            let seen = |(from, n): &(u64, u64)| component != "numbers" && ((from >> 32) as u32, *from as u32, *n) == *tree;
            if pairs.iter().any(seen) {
                text += &format!(" {component}[{task}]");
            }
        }
    }
    text
}

/// Reads all books and checks: each tree ends once, save those whose spout's process is one of `killed`; none by its timeout; what was acked
/// was seen by a relay and a sink; nothing was seen twice by either, or damaged.
pub(crate) fn audit(dir: &Path, killed: &[u32]) -> Audit {
    let mut audit = Audit::default();
    let mut acked: Vec<Tree> = Vec::new();
    let mut seen: BTreeMap<String, BTreeSet<Tree>> = ["relay", "sink"].map(|bolt| (bolt.to_owned(), BTreeSet::new())).into();
    for (component, task, life, pairs) in all(dir) {
        let file = format!("{component}[{task}] of process {life}");
        if component == "numbers" {
            let mut open = BTreeSet::new();
            for (event, ns) in pairs {
                let n = number(event);
                if event >> 56 == EMITTED {
                    assert!(open.insert(n), "{file}: {n} was emitted twice");
                    audit.emitted += 1;
                    continue;
                }
                assert!(open.remove(&n), "{file}: {n} ended twice, or before it began");
                if event >> 56 == ACKED {
                    acked.push((life, task, n));
                } else {
                    let reason = REASONS[((event >> 56) - FAILED) as usize];
                    *audit.failed.entry(reason).or_default() += 1;
                    audit.failed_ms.push((ns / 1_000_000, reason));
                }
            }
            assert!(open.is_empty() || killed.contains(&life), "{file}: {} trees never ended, the first {:?}", open.len(), open.first());
        } else {
            let seen = seen.entry(component).or_default();
            for (from, n) in pairs {
                assert_eq!(n & BROKEN, 0, "{file}: {} came damaged", n & !BROKEN);
                assert!(
                    seen.insert(((from >> 32) as u32, from as u32, n)),
                    "{file} saw {n} of task {}, and that one was seen before",
                    from as u32
                );
            }
        }
    }
    for (component, seen) in &seen {
        let unseen: Vec<_> = acked.iter().filter(|tree| !seen.contains(tree)).collect();
        assert!(unseen.is_empty(), "{} trees were acked that no {component} saw, the first {:?}", unseen.len(), unseen[0]);
    }
    assert_eq!(audit.failed.get("timeout"), None, "a tree was left to its timeout");
    (audit.acked, audit.seen) = (acked.len() as u64, seen["sink"].len() as u64);
    audit
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} trees, {} acked, {} seen, failed {:?}", self.emitted, self.acked, self.seen, self.failed)
    }
}

impl Audit {
    pub(crate) fn n_failed(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Trees failed for a loss only, and soon after one of the times (milliseconds since 1970) at which a worker knew of one; `late` is what
    /// the machine took from the workers.
    pub(crate) fn fails_follow(&self, known_ms: &[u64], late: Duration) {
        let bound = (FAIL_TIME_MAX + late).as_millis() as u64;
        for (at, reason) in &self.failed_ms {
            assert!(["link lost", "worker lost"].contains(reason), "a tree failed as {reason}: {:?}", self.failed);
            let soon = known_ms.iter().any(|known| (known.saturating_sub(LOG_LAG_MS)..=known + bound).contains(at));
            assert!(soon, "a tree failed at {at} as {reason}; losses were known at {known_ms:?}; {:?}", self.failed);
        }
    }
}
