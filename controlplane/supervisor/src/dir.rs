//! Everything a supervisor keeps on disk, and how it is written.
//!
//! Before: `agent` has something that must outlive this process. After: the next supervisor in this directory reads it.
//!
//! ```text
//! <supervisor.dir>/        0700
//!   lock                   held as long as the supervisor lives: two never share a directory
//!   id                     this node's id, made at first start
//!   slots/<port>.json      what was last started in the slot, with start numbers; written before and after each start
//!   topologies/<id>.json   record and assignment as last read, so that workers boot while the store is away
//!   keys/<id>              32 bytes, 0600, so that workers restart while nimbus is away
//!   blobs/<sha256>         binaries by content, 0500, shared by all slots
//!   run/<port>.sock        the local socket of the slot's worker, 0600
//!   workers/<id>/<port>-<placement>/   a worker's working directory
//!   logs/<id>/<port>.log   stdout and stderr of the slot's workers; .log.old holds what was moved aside
//! ```
//! State files are replaced whole: temporary file, fsync, rename, fsync of the directory. One that cannot be read is
//! reported, set aside as `.corrupt` and made anew.

use crate::error::SupervisorError;
use crate::slot::Job;
use saetta_model::{Assignment, Name, TopologyRecord};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tracing::warn;

/// Longest path a Unix socket can have: `sun_path` less its terminating zero.
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Logs of so many topologies are kept; beyond it the ones written longest ago go, never those of workers that are here.
pub(crate) const LOG_TOPOLOGIES_MAX: usize = 64;

/// What was last started in a slot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SlotRecord {
    /// `None` = the slot was left empty.
    pub job: Option<Job>,
    /// Start number of that worker.
    pub start: u64,
    /// Its process id; 0 = it was about to be started.
    pub pid: u32,
    /// When that process began, in clock ticks since boot (field 22 of /proc/PID/stat).
    pub ticks: u64,
    /// Which boot of the machine.
    pub boot: String,
    /// Highest start number by placement.
    pub starts: BTreeMap<u64, u64>,
}

/// A topology as last read from the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Known {
    /// Its record.
    pub record: TopologyRecord,
    /// Its assignment.
    pub assignment: Assignment,
}

/// The locked directory.
#[derive(Debug)]
pub(crate) struct Dir {
    root: PathBuf,
    /// Keeps the lock; the kernel gives it back when this process ends in any way.
    _lock: File,
}

/// What came of reading a state file.
#[derive(Debug)]
pub(crate) enum Read<T> {
    /// There is none.
    Missing,
    /// Here it is.
    Value(T),
    /// It was unreadable and has been set aside.
    Corrupt,
}

impl Dir {
    /// Makes the directory where it is missing and takes its lock.
    pub(crate) fn open(path: &Path, ports: &[u16]) -> Result<Self, SupervisorError> {
        make_dir(path)?;
        let root = path.canonicalize().map_err(SupervisorError::io("resolving", path))?;
        let lock_path = root.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_path)
            .map_err(SupervisorError::io("opening", &lock_path))?;
        match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(SupervisorError::Locked(root)),
            Err(e) => return Err(SupervisorError::Io { doing: "locking", path: lock_path, source: e.into() }),
        }
        for sub in ["slots", "topologies", "keys", "blobs", "run", "workers", "logs"] {
            make_dir(&root.join(sub))?;
        }
        let dir = Dir { root, _lock: lock };
        if let Some(longest) = ports.iter().map(|p| dir.socket(*p)).max_by_key(|p| p.as_os_str().len())
            && longest.as_os_str().len() > SOCKET_PATH_BYTES_MAX
        {
            return Err(SupervisorError::Options(format!(
                "supervisor.dir is too long: the socket {} has {} bytes and a Unix socket's path may have {SOCKET_PATH_BYTES_MAX}; use a shorter directory",
                longest.display(),
                longest.as_os_str().len()
            )));
        }
        dir.sweep_half_written();
        Ok(dir)
    }

    /// The id this node goes by: as configured, else as made at first start.
    pub(crate) fn id(&self, configured: Option<&Name>) -> Result<Name, SupervisorError> {
        if let Some(id) = configured {
            return Ok(id.clone());
        }
        let path = self.root.join("id");
        if let Read::Value(id) = read_json::<Name>(&path) {
            return Ok(id);
        }
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host: String = host.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(40).collect();
        let host = host.trim_start_matches('-');
        let id = format!("{}-{:08x}", if host.is_empty() { "node" } else { host }, random_u64() as u32);
        let id = Name::new(&id).expect("made of letters, digits and dashes");
        write_json(&path, &id).map_err(SupervisorError::io("writing", &path))?;
        Ok(id)
    }

    /// Where the socket of a slot is.
    pub(crate) fn socket(&self, port: u16) -> PathBuf {
        self.root.join("run").join(format!("{port}.sock"))
    }

    /// Where all sockets are.
    pub(crate) fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Where a binary is.
    pub(crate) fn blob(&self, sha256: &str) -> PathBuf {
        self.root.join("blobs").join(sha256)
    }

    /// Where a download of it grows.
    pub(crate) fn blob_part(&self, sha256: &str) -> PathBuf {
        self.root.join("blobs").join(format!("{sha256}.part"))
    }

    /// Where all binaries are.
    pub(crate) fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    /// Where a topology's key is.
    pub(crate) fn key(&self, topology: &Name) -> PathBuf {
        self.root.join("keys").join(topology.as_str())
    }

    /// Working directory of a worker. Named by placement, so that removing one never meets its successor.
    pub(crate) fn worker(&self, port: u16, job: &Job) -> PathBuf {
        self.root.join("workers").join(job.topology.as_str()).join(format!("{port}-{:016x}", job.placement))
    }

    /// Log of a slot's workers.
    pub(crate) fn log(&self, port: u16, topology: &Name) -> PathBuf {
        self.root.join("logs").join(topology.as_str()).join(format!("{port}.log"))
    }

    /// Where all logs are.
    pub(crate) fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// What was last started in a slot.
    pub(crate) fn read_slot(&self, port: u16) -> Read<SlotRecord> {
        read_json(&self.root.join("slots").join(format!("{port}.json")))
    }

    /// Notes down what is about to be, or has been, started in a slot. On disk when it returns.
    pub(crate) fn write_slot(&self, port: u16, record: &SlotRecord) -> io::Result<()> {
        write_json(&self.root.join("slots").join(format!("{port}.json")), record)
    }

    /// A topology as last read from the store.
    pub(crate) fn read_known(&self, topology: &Name) -> Option<Known> {
        match read_json::<Known>(&self.root.join("topologies").join(format!("{topology}.json"))) {
            Read::Value(known) if known.record.id == *topology => Some(known),
            _ => None,
        }
    }

    /// Keeps it.
    pub(crate) fn write_known(&self, known: &Known) -> io::Result<()> {
        write_json(&self.root.join("topologies").join(format!("{}.json", known.record.id)), known)
    }

    /// The key of a topology, if it is here and whole.
    pub(crate) fn read_key(&self, topology: &Name) -> Option<[u8; 32]> {
        fs::read(self.key(topology)).ok()?.try_into().ok()
    }

    /// Keeps it, readable by this user only.
    pub(crate) fn write_key(&self, topology: &Name, key: &[u8; 32]) -> io::Result<()> {
        replace(&self.key(topology), key, 0o600)
    }

    /// Makes a worker's directory and opens its log for appending.
    pub(crate) fn prepare_worker(&self, port: u16, job: &Job) -> io::Result<(PathBuf, File)> {
        let cwd = self.worker(port, job);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&cwd)?;
        let log = self.log(port, &job.topology);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(log.parent().expect("inside logs"))?;
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(log)?;
        Ok((cwd, file))
    }

    /// Removes a worker's directory, and its topology's when it is the last.
    pub(crate) fn remove_worker(&self, port: u16, job: &Job) {
        let path = self.worker(port, job);
        match fs::remove_dir_all(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => warn!("removing {}: {e}; it is tried again at the next start", path.display()),
        }
        // Fails while another slot's directory is in it, which is right.
        let _ = fs::remove_dir(path.parent().expect("inside workers"));
    }

    /// Removes what belongs to no topology and no binary of these. Cost: one listing per folder.
    pub(crate) fn collect_garbage(&self, topologies: &BTreeSet<Name>, binaries: &BTreeSet<String>) {
        for (folder, suffix) in [("topologies", ".json"), ("keys", "")] {
            for (name, path) in entries(&self.root.join(folder)) {
                let Some(id) = name.strip_suffix(suffix) else { continue };
                if !topologies.iter().any(|t| t.as_str() == id) {
                    let _ = fs::remove_file(path);
                }
            }
        }
        for (name, path) in entries(&self.blobs()) {
            if !binaries.contains(name.trim_end_matches(".part")) {
                let _ = fs::remove_file(path);
            }
        }
        let mut logs: Vec<(std::time::SystemTime, PathBuf)> = entries(&self.logs())
            .filter(|(name, _)| !topologies.iter().any(|t| t.as_str() == name))
            .map(|(_, path)| (newest_change(&path), path))
            .collect();
        logs.sort();
        for (_, path) in logs.iter().take(logs.len().saturating_sub(LOG_TOPOLOGIES_MAX)) {
            let _ = fs::remove_dir_all(path);
        }
    }

    /// Removes worker directories that belong to none of these; what a supervisor left that died while it made or removed them.
    pub(crate) fn sweep_workers(&self, keep: &BTreeSet<PathBuf>) {
        for (_, topology) in entries(&self.root.join("workers")) {
            for (_, worker) in entries(&topology) {
                if !keep.contains(&worker) {
                    let _ = fs::remove_dir_all(&worker);
                }
            }
            let _ = fs::remove_dir(&topology);
        }
    }

    /// Downloads and state files that a dying supervisor left half-written.
    fn sweep_half_written(&self) {
        for folder in ["blobs", "slots", "topologies", "keys"] {
            for (name, path) in entries(&self.root.join(folder)) {
                if name.ends_with(".part") || name.ends_with(".tmp") {
                    let _ = fs::remove_file(path);
                }
            }
        }
    }
}

/// A random number from the kernel.
pub(crate) fn random_u64() -> u64 {
    getrandom::u64().expect("the kernel gives random numbers")
}

/// Puts `bytes` in place of whatever is at `path`: all of it or nothing, also over a power cut.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut tmp = path.as_os_str().to_owned();
    tmp.push(".tmp");
    let tmp = PathBuf::from(tmp);
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(&tmp)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&tmp, path)?;
    sync_dir(path.parent().expect("a file is in a directory"))
}

/// Makes a rename in `dir` last.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    replace(path, &serde_json::to_vec_pretty(value).expect("state is always JSON"), 0o600)
}

fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Read<T> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Read::Missing,
        Err(e) => {
            warn!("reading {}: {e}; it is made anew", path.display());
            return Read::Corrupt;
        }
    };
    match serde_json::from_slice(&bytes) {
        Ok(value) => Read::Value(value),
        Err(e) => {
            warn!("{} is corrupt ({e}); it is set aside as .corrupt and made anew", path.display());
            let mut aside = path.as_os_str().to_owned();
            aside.push(".corrupt");
            let _ = fs::rename(path, aside);
            Read::Corrupt
        }
    }
}

fn make_dir(path: &Path) -> Result<(), SupervisorError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(SupervisorError::io("making directory", path))
}

fn entries(dir: &Path) -> impl Iterator<Item = (String, PathBuf)> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|e| (e.file_name().to_string_lossy().into_owned(), e.path()))
}

fn newest_change(dir: &Path) -> std::time::SystemTime {
    entries(dir).filter_map(|(_, path)| path.metadata().ok()?.modified().ok()).max().unwrap_or(std::time::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_serves_one_supervisor_at_a_time() {
        let tmp = tempfile::tempdir().unwrap();
        let first = Dir::open(tmp.path(), &[6700]).unwrap();
        let refused = Dir::open(tmp.path(), &[6700]).unwrap_err();
        assert!(matches!(refused, SupervisorError::Locked(_)), "{refused}");
        drop(first);
        Dir::open(tmp.path(), &[6700]).unwrap();
    }

    #[test]
    fn the_id_is_made_once_and_a_configured_one_wins() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = Dir::open(tmp.path(), &[6700]).unwrap();
        let made = dir.id(None).unwrap();
        assert_eq!(dir.id(None).unwrap(), made);
        let mine = Name::new("left").unwrap();
        assert_eq!(dir.id(Some(&mine)).unwrap(), mine);
        assert_eq!(dir.id(None).unwrap(), made);
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_with_both_numbers() {
        let tmp = tempfile::tempdir().unwrap();
        let e = Dir::open(&tmp.path().join("x".repeat(120)), &[6700]).unwrap_err().to_string();
        assert!(e.contains("107") && e.contains("shorter directory"), "{e}");
    }

    #[test]
    fn a_corrupt_state_file_is_set_aside_and_reported_as_such() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = Dir::open(tmp.path(), &[6700]).unwrap();
        assert!(matches!(dir.read_slot(6700), Read::Missing));
        let record = SlotRecord { start: 7, ..SlotRecord::default() };
        dir.write_slot(6700, &record).unwrap();
        assert!(matches!(dir.read_slot(6700), Read::Value(r) if r == record));
        fs::write(tmp.path().join("slots/6700.json"), b"{\"job\":nul").unwrap();
        assert!(matches!(dir.read_slot(6700), Read::Corrupt));
        assert!(tmp.path().join("slots/6700.json.corrupt").exists());
        assert!(matches!(dir.read_slot(6700), Read::Missing));
    }

    #[test]
    fn garbage_is_what_nothing_refers_to() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = Dir::open(tmp.path(), &[6700]).unwrap();
        let (kept, gone) = (Name::new("kept").unwrap(), Name::new("gone").unwrap());
        for name in [&kept, &gone] {
            dir.write_key(name, &[7; 32]).unwrap();
            fs::write(dir.blob(name.as_str()), b"x").unwrap();
            fs::create_dir(dir.logs().join(name.as_str())).unwrap();
        }
        dir.collect_garbage(&BTreeSet::from([kept.clone()]), &BTreeSet::from(["kept".to_owned()]));
        assert!(dir.read_key(&kept).is_some() && dir.read_key(&gone).is_none());
        assert!(dir.blob("kept").exists() && !dir.blob("gone").exists());
        assert!(dir.logs().join("gone").exists(), "logs outlive their topology");
    }
}
