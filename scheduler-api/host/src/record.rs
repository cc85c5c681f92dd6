//! The flight recorder: a round as it was asked and answered, as a file that replays it.
//!
//! Before: `round` has decided. After: one file a round in a directory of bounded size; `Record` is also what tools read. A scheduler has no
//! clock and no randomness but what the round gives it, so the same snapshot and seed give the same answer, bit for bit; what a plugin
//! remembers between rounds is not recorded.
//!
//! ```text
//! "SAETTARR" | version u32 = 1 | head_len u32 | snap_len u64 | n_execs u32 | n_topologies u32 | answered u32 | 0 u32
//! head (JSON) | snapshot | where answered: slot_of_exec, outcome, core_of_exec (u32 each) | SHA-256 of all before it
//! ```
//! Little-endian.

use crate::SchedulerOptions;
use crate::compare::{Comparison, compare, judge};
use crate::process::{Answer, Failure, Helper, Question, Spawner, What};
use crate::validate::{Rules, View};
use saetta_sdk::abi::{self, Field};
use saetta_sdk::call::RoundArgs;
use saetta_sdk::snapshot::Snapshot;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Rounds kept.
pub const ROUNDS_KEPT: usize = 64;
/// Largest file that is read.
pub const FILE_BYTES_MAX: u64 = 1 << 30;
/// Least time a replay has: a scheduler that looks at the time left must not find less than it had.
pub const REPLAY_BUDGET_MIN: Duration = Duration::from_secs(60);

const MAGIC: &[u8; 8] = b"SAETTARR";
const VERSION: u32 = 1;
const FIXED_BYTES: usize = 40;
const DIGEST_BYTES: usize = 32;

/// What is said of a round beside its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Head {
    /// Version of the host.
    pub saetta: String,
    /// When, milliseconds since 1970.
    pub at_ms: u64,
    /// Number of the round in its leader's term.
    pub round_id: u64,
    /// The only randomness.
    pub seed: u64,
    /// `abi::REASON_*`.
    pub reason: u32,
    /// As the plugin was told; `abi::NONE` = no limit.
    pub max_moves: u32,
    /// `abi::ROUND_*`.
    pub flags: u32,
    /// Nanoseconds it had.
    pub budget_ns: u64,
    /// As operators call it.
    pub plugin: String,
    /// Of its file; empty = it was not loaded.
    pub sha256: String,
    /// Its id and version by its manifest.
    pub id: String,
    /// Its configuration.
    pub config: String,
    /// See `Rules`.
    pub resources: bool,
    /// See `Rules`.
    pub constraints: bool,
    /// See `Rules`.
    pub may_preempt: bool,
    /// Microseconds from the question to the answer.
    pub took_us: u64,
    /// Why there is no answer; empty = there is one.
    pub failure: String,
    /// Per topology, by its row: why its part was refused; empty = it was taken.
    pub verdicts: Vec<String>,
}

/// A round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What is said of it.
    pub head: Head,
    /// The cluster, as the plugin saw it.
    pub snapshot: Vec<u8>,
    /// What the plugin wrote.
    pub answer: Option<Answer>,
}

/// Why bytes are no record. One line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a recorded round: {0}")]
pub struct Malformed(pub String);

impl Record {
    /// What its plan was held to.
    pub fn rules(&self) -> Rules {
        Rules {
            constraints: self.head.constraints,
            resources: self.head.resources,
            max_moves: self.head.max_moves,
            may_preempt: self.head.may_preempt,
        }
    }

    /// The file's content.
    pub fn encode(&self) -> Vec<u8> {
        let head = serde_json::to_vec(&self.head).expect("a head is always JSON");
        let (n_execs, n_topologies) = self.answer.as_ref().map_or((0, 0), |a| (a.slot_of_exec.len(), a.outcome.len()));
        let words = 2 * n_execs + n_topologies;
        let mut out = Vec::with_capacity(FIXED_BYTES + head.len() + self.snapshot.len() + 4 * words + DIGEST_BYTES);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((head.len() as u32).to_le_bytes());
        out.extend((self.snapshot.len() as u64).to_le_bytes());
        out.extend((n_execs as u32).to_le_bytes());
        out.extend((n_topologies as u32).to_le_bytes());
        out.extend(u32::from(self.answer.is_some()).to_le_bytes());
        out.extend(0u32.to_le_bytes());
        out.extend(&head);
        out.extend(&self.snapshot);
        if let Some(answer) = &self.answer {
            let words = answer.slot_of_exec.iter().chain(&answer.outcome).chain(&answer.core_of_exec);
            out.extend(words.flat_map(|word| word.to_le_bytes()));
        }
        let digest = Sha256::digest(&out);
        out.extend(digest);
        out
    }

    /// Reads a file's content; hostile bytes are an error. The snapshot is checked too.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let bad = |what: &str| Malformed(what.to_owned());
        if bytes.len() < FIXED_BYTES + DIGEST_BYTES || &bytes[..8] != MAGIC {
            return Err(bad("it does not begin as one"));
        }
        if u32::get(&bytes[8..]) != VERSION {
            return Err(Malformed(format!("it has version {}, this program reads {VERSION}", u32::get(&bytes[8..]))));
        }
        let (body, digest) = bytes.split_at(bytes.len() - DIGEST_BYTES);
        if Sha256::digest(body).as_slice() != digest {
            return Err(bad("its content does not have the hash it states; it is damaged or cut"));
        }
        let (head_len, snap_len) = (u64::from(u32::get(&bytes[12..])), u64::get(&bytes[16..]));
        let (n_execs, n_topologies) = (u64::from(u32::get(&bytes[24..])), u64::from(u32::get(&bytes[28..])));
        let answered = u32::get(&bytes[32..]) != 0;
        let n_words = if answered { 2 * n_execs + n_topologies } else { 0 };
        let expected =
            (FIXED_BYTES as u64).checked_add(head_len).and_then(|n| n.checked_add(snap_len)).and_then(|n| n.checked_add(4 * n_words));
        if expected != Some(body.len() as u64) {
            return Err(bad("its parts do not add up to its length"));
        }
        let (head, rest) = body[FIXED_BYTES..].split_at(head_len as usize);
        let (snapshot, words) = rest.split_at(snap_len as usize);
        let head: Head = serde_json::from_slice(head).map_err(|e| Malformed(format!("its head: {e}")))?;
        let view = Snapshot::new(snapshot).map_err(|e| Malformed(e.to_string()))?;
        if answered && (view.executors().len() as u64, view.topologies().len() as u64) != (n_execs, n_topologies) {
            return Err(bad("its answer is not about its snapshot"));
        }
        let words: Vec<u32> = words.chunks_exact(4).map(u32::get).collect();
        let answer = answered.then(|| Answer::split(&words, n_execs as usize, n_topologies as usize));
        Ok(Record { head, snapshot: snapshot.to_vec(), answer })
    }

    /// Reads a file. Blocking.
    pub fn read(path: &Path) -> io::Result<Self> {
        let len = fs::metadata(path)?.len();
        if len > FILE_BYTES_MAX {
            return Err(io::Error::other(format!("{}: has {len} bytes, at most {FILE_BYTES_MAX} are read", path.display())));
        }
        Record::decode(&fs::read(path)?).map_err(|e| io::Error::other(format!("{}: {e}", path.display())))
    }

    /// Asks a plugin this round's question again, in a helper process of its own. Configuration is the record's, limits are `options`'.
    pub fn replay(&self, options: &SchedulerOptions, what: &What) -> Result<Answer, Failure> {
        let mut options = options.clone();
        options.policy.config.clone_from(&self.head.config);
        let view = Snapshot::new(&self.snapshot).expect("checked when it was read, or made by the host");
        let before: Vec<u32> = view.executors().iter().map(|e| e.slot).collect();
        let budget = Duration::from_nanos(self.head.budget_ns).max(REPLAY_BUDGET_MIN);
        let Head { reason, round_id, seed, max_moves, flags, .. } = self.head;
        let args = RoundArgs { reason, round_id, seed, max_moves, flags, budget_ns: budget.as_nanos() as u64 };
        let question = Question { bytes: &self.snapshot, before: &before, n_topologies: view.topologies().len(), args };
        let spawner = Spawner::start();
        Helper::start(&spawner, &options, what, None)?.round(&question, budget)
    }

    /// Where an answer to this round first differs from the recorded one; `None` = it is the same, bit for bit, or none is recorded.
    pub fn difference(&self, now: &Answer) -> Option<String> {
        let then = self.answer.as_ref()?;
        let snapshot = Snapshot::new(&self.snapshot).expect("checked when it was read, or made by the host");
        let view = View::new(&snapshot);
        let first = |a: &[u32], b: &[u32]| a.iter().zip(b).position(|(a, b)| a != b);
        let exec = |e: usize| {
            let row = &view.execs[e];
            let topology = snapshot.text(view.topologies[row.topology as usize].id);
            format!("executor {} of `{}` in {topology}", view.exec(e), view.component(row.component))
        };
        let place = |slot: u32| if slot == abi::NONE { "in no slot".to_owned() } else { format!("in {}", view.slot(slot)) };
        if let Some(e) = first(&then.slot_of_exec, &now.slot_of_exec) {
            return Some(format!("{} was {} and is {}", exec(e), place(then.slot_of_exec[e]), place(now.slot_of_exec[e])));
        }
        if let Some(t) = first(&then.outcome, &now.outcome) {
            let id = snapshot.text(view.topologies[t].id);
            return Some(format!("the outcome of {id} was {} and is {}", then.outcome[t], now.outcome[t]));
        }
        let core = |core: u32| if core == abi::NONE { "on no core of its own".to_owned() } else { format!("on core row {core}") };
        first(&then.core_of_exec, &now.core_of_exec)
            .map(|e| format!("{} was {} and is {}", exec(e), core(then.core_of_exec[e]), core(now.core_of_exec[e])))
    }

    /// The recorded plan and another one side by side, by the rules of the round. Where none is recorded, what ran stays.
    pub fn compare(&self, other: &Answer) -> Comparison {
        let snapshot = Snapshot::new(&self.snapshot).expect("checked when it was read, or made by the host");
        let rules = self.rules();
        let live = match &self.answer {
            Some(answer) => judge(&snapshot, answer, &rules).0,
            None => snapshot.executors().iter().map(|e| e.slot).collect(),
        };
        compare(&snapshot, &live, other, &rules)
    }

    /// Name of its file; names sort by time.
    pub fn file_name(&self) -> String {
        format!("{:013}-{:06}.round", self.head.at_ms, self.head.round_id)
    }
}

/// A file of the recorder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its name.
    pub file: String,
    /// Number of the round in its leader's term.
    pub round: u64,
    /// When, milliseconds since 1970.
    pub at_ms: u64,
    /// Size.
    pub bytes: u64,
}

/// The directory of the last rounds.
#[derive(Debug, Clone)]
pub struct Recorder {
    dir: PathBuf,
    bytes_max: u64,
}

impl Recorder {
    /// Files of `dir` take at most `bytes_max` together, and are at most [`ROUNDS_KEPT`].
    pub fn new(dir: PathBuf, bytes_max: u64) -> Self {
        Recorder { dir, bytes_max }
    }

    /// Writes a round and forgets the oldest. One that alone is larger than the bound is not kept. Blocking.
    pub fn keep(&self, record: &Record) -> io::Result<()> {
        let bytes = record.encode();
        if bytes.len() as u64 > self.bytes_max {
            return Err(io::Error::other(format!("the round has {} bytes and scheduler.rounds.bytes is {}", bytes.len(), self.bytes_max)));
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let (part, name) = (self.dir.join("part"), self.dir.join(record.file_name()));
        // Not synced: after a crash of the machine the hash says whether it is whole.
        let mut file = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&part)?;
        file.write_all(&bytes)?;
        fs::rename(&part, name)?;
        let (mut n, mut sum) = (0, 0);
        for entry in self.list()?.into_iter().rev() {
            (n, sum) = (n + 1, sum + entry.bytes);
            if n > ROUNDS_KEPT || sum > self.bytes_max {
                fs::remove_file(self.dir.join(entry.file))?;
            }
        }
        Ok(())
    }

    /// What is there, oldest first. A directory that is not there has nothing.
    pub fn list(&self) -> io::Result<Vec<Entry>> {
        let files = match fs::read_dir(&self.dir) {
            Ok(files) => files,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let entry = |file: fs::DirEntry| {
            let name = file.file_name().into_string().ok()?;
            let (at_ms, round) = name.strip_suffix(".round")?.split_once('-')?;
            let (at_ms, round) = (at_ms.parse().ok()?, round.parse().ok()?);
            Some(Entry { round, at_ms, bytes: file.metadata().ok()?.len(), file: name })
        };
        let mut entries: Vec<Entry> = files.flatten().filter_map(entry).collect();
        entries.sort_by(|a, b| a.file.cmp(&b.file));
        Ok(entries)
    }

    /// Path of a file by the name it has in the list; `None` = there is none of that name.
    pub fn path(&self, file: &str) -> Option<PathBuf> {
        self.list().ok()?.into_iter().find(|e| e.file == file).map(|e| self.dir.join(e.file))
    }
}

/// The arguments of a round as its head has them.
pub(crate) fn head_of(args: RoundArgs, rules: &Rules) -> Head {
    let RoundArgs { reason, round_id, seed, max_moves, flags, budget_ns } = args;
    Head {
        saetta: env!("CARGO_PKG_VERSION").to_owned(),
        round_id,
        seed,
        reason,
        max_moves,
        flags,
        budget_ns,
        resources: rules.resources,
        constraints: rules.constraints,
        may_preempt: rules.may_preempt,
        ..Head::default()
    }
}

const _: () = assert!(abi::NONE == u32::MAX, "a default of 0 moves is never mistaken for no limit");

#[cfg(test)]
mod tests {
    use super::*;
    use saetta_sdk::testing::{Cluster, Component, Node, Topology};

    fn record(at_ms: u64) -> Record {
        let cluster = Cluster::new().node(Node::new("a").slots(2)).topology(Topology::new("t").with(Component::spout("s", 2)));
        let answer = Answer { slot_of_exec: vec![0, 1], outcome: vec![1], core_of_exec: vec![abi::NONE; 2] };
        let head = Head { at_ms, round_id: 7, seed: 3, plugin: "p".into(), verdicts: vec![String::new()], ..Head::default() };
        Record { head, snapshot: cluster.pack(), answer: Some(answer) }
    }

    #[test]
    fn a_round_survives_its_file_and_damage_is_noticed() {
        let (with, without) = (record(1), Record { answer: None, ..record(2) });
        for record in [&with, &without] {
            assert_eq!(&Record::decode(&record.encode()).unwrap(), record);
        }
        let bytes = with.encode();
        for cut in [0, 7, 39, 60, bytes.len() - 1] {
            assert!(Record::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        for at in [0, 8, 13, 17, 25, 50, bytes.len() / 2, bytes.len() - 40, bytes.len() - 1] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Record::decode(&damaged).is_err(), "damaged at {at}");
        }
    }

    #[test]
    fn lengths_that_lie_are_refused_also_with_the_right_hash() {
        let bytes = record(1).encode();
        for at in [12usize, 16, 20, 24, 28] {
            let mut forged = bytes[..bytes.len() - DIGEST_BYTES].to_vec();
            forged[at..at + 4].fill(0xff);
            let digest = Sha256::digest(&forged);
            forged.extend(digest);
            assert!(Record::decode(&forged).is_err(), "forged at {at}");
        }
    }

    #[test]
    fn only_the_last_rounds_are_kept_by_number_and_by_size() {
        let dir = tempfile::tempdir().unwrap();
        let size = record(1).encode().len() as u64;
        let recorder = Recorder::new(dir.path().join("rounds"), 1 << 30);
        assert_eq!(recorder.list().unwrap(), []);
        for at_ms in 0..ROUNDS_KEPT as u64 + 3 {
            recorder.keep(&record(at_ms)).unwrap();
        }
        let kept: Vec<u64> = recorder.list().unwrap().iter().map(|e| e.at_ms).collect();
        assert_eq!(kept, (3..ROUNDS_KEPT as u64 + 3).collect::<Vec<_>>());
        let small = Recorder::new(dir.path().join("rounds"), 3 * size);
        small.keep(&record(1000)).unwrap();
        let kept = small.list().unwrap();
        assert!(kept.iter().map(|e| e.bytes).sum::<u64>() <= 3 * size && kept.last().unwrap().at_ms == 1000, "{kept:?}");
        assert!(Recorder::new(dir.path().join("rounds"), size - 1).keep(&record(2000)).is_err(), "larger than the bound");
        assert_eq!(Record::read(&small.path(&kept.last().unwrap().file).unwrap()).unwrap(), record(1000));
        assert_eq!(small.path("../secret"), None);
    }
}
