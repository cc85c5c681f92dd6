//! `nimbus.dir`: binaries, topology keys, the cluster secret. Everything private, everything written whole or not at all.
//!
//! ```text
//! <dir>/lock              held while a nimbus runs here
//! <dir>/id                stable id of this nimbus
//! <dir>/cluster.secret    0600; what supervisors prove to know (unless cluster.secret.file says elsewhere)
//! <dir>/blobs/<sha256>    0500; a binary, verified
//! <dir>/keys/<topology>   0600; 32 random bytes
//! <dir>/plugins/<sha256>.so  0500; copies of scheduler plugins, kept by the scheduler's host
//! <dir>/rounds/           the last scheduling rounds, kept by it too
//! <dir>/tmp/              files on their way; emptied at start
//! ```

use crate::blob_io::BlobIo;
use crate::elf;
use crate::options::NimbusError;
use axum::body::{Body, Bytes};
use futures::StreamExt;
use rustix::fs::{FlockOperation, flock, statvfs};
use saetta_model::Name;
use sha2::{Digest, Sha256};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tracing::warn;

/// Largest binary in bytes.
pub const BLOB_BYTES_MAX: u64 = 1 << 30;
/// A binary that no topology uses stays this long after its last upload: a submission may be on its way.
pub const BLOB_IDLE_MAX: Duration = Duration::from_secs(60);
/// Longest silence of a client in the middle of an upload.
const UPLOAD_SILENCE_MAX: Duration = Duration::from_secs(30);
/// Disk that an upload must leave free.
const DISK_RESERVE_BYTES: u64 = 16 << 20;
/// Bytes hashed at a time when a stored binary is checked.
const HASH_BUFFER_BYTES: usize = 256 << 10;
/// Longest accepted secret file in bytes.
const SECRET_BYTES_MAX: u64 = 4096;

/// The directory, locked.
#[derive(Debug)]
pub(crate) struct Home {
    dir: PathBuf,
    secret: String,
    id: Name,
    io: BlobIo,
    /// Held for the lock on it.
    _lock: File,
}

/// Why an upload was not kept.
#[derive(Debug)]
pub(crate) enum UploadError {
    /// More than `BLOB_BYTES_MAX`.
    TooLarge,
    /// Not the bytes that were announced.
    WrongHash { got: String },
    /// Not a binary.
    Elf(elf::ElfError),
    /// The client went away or was silent.
    Broken(String),
    /// No room.
    Full(String),
    /// The environment.
    Io(String),
}

fn file_error(path: &Path, why: impl Into<String>) -> NimbusError {
    NimbusError::File { path: path.display().to_string(), why: why.into() }
}

fn io_error(doing: String) -> impl FnOnce(io::Error) -> NimbusError {
    move |error| NimbusError::Io { doing, error }
}

impl Home {
    /// Opens or makes the directory, takes its lock, makes what is missing. Blocking.
    pub(crate) fn open(dir: &Path, secret_file: Option<&Path>) -> Result<Self, NimbusError> {
        for sub in [dir.to_path_buf(), dir.join("blobs"), dir.join("keys"), dir.join("tmp")] {
            DirBuilder::new().recursive(true).mode(0o700).create(&sub).map_err(io_error(format!("making {}", sub.display())))?;
        }
        let lock_path = dir.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock_path);
        let lock = lock.map_err(io_error(format!("opening {}", lock_path.display())))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| file_error(&lock_path, "another nimbus uses this directory; stop it or set nimbus.dir to another one"))?;
        for left in fs::read_dir(dir.join("tmp")).map_err(io_error("reading tmp".into()))?.flatten() {
            fs::remove_file(left.path()).map_err(io_error(format!("removing {}", left.path().display())))?;
        }
        let tmp = dir.join("tmp");
        let secret_path = secret_file.map_or_else(|| dir.join("cluster.secret"), Path::to_path_buf);
        // A file elsewhere may be on another file system.
        let secret = private_text(&secret_path, secret_file.map_or(&tmp, directory_of), || hex::encode(random::<32>()))?;
        if secret.len() < 16 {
            return Err(file_error(&secret_path, "the secret has fewer than 16 characters; remove the file to have one made"));
        }
        let id_path = dir.join("id");
        let id = private_text(&id_path, &tmp, || format!("nimbus-{}", hex::encode(random::<6>())))?;
        let id = Name::new(&id).map_err(|e| file_error(&id_path, e.to_string()))?;
        Ok(Home { dir: dir.to_path_buf(), secret, id, io: BlobIo::start(), _lock: lock })
    }

    pub(crate) fn id(&self) -> &Name {
        &self.id
    }

    pub(crate) fn io(&self) -> &BlobIo {
        &self.io
    }

    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    /// Where a binary is or would be; the caller has checked the digest's form.
    pub(crate) fn blob_path(&self, sha256: &str) -> PathBuf {
        debug_assert!(saetta_store::paths::is_sha256(sha256));
        self.dir.join("blobs").join(sha256)
    }

    pub(crate) fn blob_bytes(&self, sha256: &str) -> Option<u64> {
        fs::metadata(self.blob_path(sha256)).ok().filter(fs::Metadata::is_file).map(|m| m.len())
    }

    /// True where a binary is here whole. One that no longer has its hash is removed, so that the next upload of it is taken.
    /// Blocking: reads all of it.
    pub(crate) fn holds(&self, sha256: &str) -> bool {
        let path = self.blob_path(sha256);
        let hashed = File::open(&path).and_then(|mut file| {
            let mut hash = Sha256::new();
            let mut buffer = vec![0; HASH_BUFFER_BYTES];
            loop {
                match file.read(&mut buffer)? {
                    0 => return Ok(hex::encode(hash.finalize())),
                    n => hash.update(&buffer[..n]),
                }
            }
        });
        match hashed {
            Ok(got) if got == sha256 => true,
            Ok(got) => {
                warn!("binary {sha256} on disk has the hash {got}; it is removed, an upload of it is taken again");
                let _ = fs::remove_file(&path);
                false
            }
            Err(e) => {
                if e.kind() != io::ErrorKind::NotFound {
                    warn!("binary {sha256} cannot be read: {e}; an upload of it replaces it");
                }
                false
            }
        }
    }

    /// Says that a submission with this binary is on its way.
    pub(crate) fn touch_blob(&self, sha256: &str) -> io::Result<()> {
        File::open(self.blob_path(sha256))?.set_modified(SystemTime::now())
    }

    /// Receives a binary: streamed to a temporary file, its hash and ELF header checked, then on disk under its name for good.
    pub(crate) async fn receive(&self, sha256: &str, body: Body, announced: Option<u64>) -> Result<(), UploadError> {
        if announced.is_some_and(|n| n > BLOB_BYTES_MAX) {
            return Err(UploadError::TooLarge);
        }
        if let (Some(needs), Ok(disk)) = (announced, statvfs(&self.dir)) {
            let has = disk.f_bavail * disk.f_frsize;
            if needs + DISK_RESERVE_BYTES > has {
                return Err(UploadError::Full(format!("needs {needs} bytes and {DISK_RESERVE_BYTES} in reserve, has {has}")));
            }
        }
        let temporary = Temporary(self.dir.join("tmp").join(hex::encode(random::<8>())));
        let io = |e: io::Error| if is_full(&e) { UploadError::Full(e.to_string()) } else { UploadError::Io(e.to_string()) };
        let file = OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(&temporary.0).map_err(io)?;
        let mut writer = self.io.write(file.try_clone().map_err(io)?).await;
        let mut hash = Sha256::new();
        let mut len = 0u64;
        let mut chunks = body.into_data_stream();
        loop {
            let chunk: Bytes = match tokio::time::timeout(UPLOAD_SILENCE_MAX, chunks.next()).await {
                Err(_) => return Err(UploadError::Broken(format!("nothing came for {} s", UPLOAD_SILENCE_MAX.as_secs()))),
                Ok(None) => break,
                Ok(Some(Err(e))) => return Err(UploadError::Broken(e.to_string())),
                Ok(Some(Ok(chunk))) => chunk,
            };
            len += chunk.len() as u64;
            if len > BLOB_BYTES_MAX {
                return Err(UploadError::TooLarge);
            }
            hash.update(&chunk);
            if writer.push(chunk).await.is_err() {
                // The file failed; `finish` says how.
                break;
            }
        }
        writer.finish().await.map_err(io)?;
        let got = hex::encode(hash.finalize());
        if got != sha256 {
            return Err(UploadError::WrongHash { got });
        }
        let (target, blobs) = (self.blob_path(sha256), self.dir.join("blobs"));
        let kept = tokio::task::spawn_blocking(move || {
            let mut file = file;
            elf::read(&mut file).map_err(UploadError::Elf)?;
            file.set_permissions(Permissions::from_mode(0o500)).map_err(io)?;
            file.sync_all().map_err(io)?;
            fs::rename(&temporary.0, &target).map_err(io)?;
            sync_dir(&blobs).map_err(io)
        });
        kept.await.map_err(|e| UploadError::Io(e.to_string()))?
    }

    /// Copies of scheduler plugins.
    pub(crate) fn plugins(&self) -> PathBuf {
        self.dir.join("plugins")
    }

    /// Facts of a stored binary. Blocking.
    pub(crate) fn elf(&self, sha256: &str) -> Result<elf::Facts, elf::ElfError> {
        let mut file = File::open(self.blob_path(sha256)).map_err(|e| elf::ElfError(format!("cannot be opened: {e}")))?;
        elf::read(&mut file)
    }

    /// Makes the key of a topology. Blocking; on disk when it returns.
    pub(crate) fn make_key(&self, topology: &Name) -> io::Result<()> {
        let path = self.key_path(topology);
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path)?;
        file.write_all(&random::<32>())?;
        file.sync_all()?;
        sync_dir(&self.dir.join("keys"))
    }

    /// The key of a topology. Blocking.
    pub(crate) fn key(&self, topology: &Name) -> io::Result<[u8; 32]> {
        let bytes = fs::read(self.key_path(topology))?;
        bytes.try_into().map_err(|b: Vec<u8>| io::Error::new(io::ErrorKind::InvalidData, format!("the key has {} bytes, not 32", b.len())))
    }

    /// Removes a key; one that is not there is fine.
    pub(crate) fn remove_key(&self, topology: &Name) -> io::Result<()> {
        gone(fs::remove_file(self.key_path(topology)))
    }

    /// Removes what no topology uses: keys at once, binaries once nobody uploaded them for `BLOB_IDLE_MAX`. Blocking.
    pub(crate) fn sweep(&self, used_blob: impl Fn(&str) -> bool, used_key: impl Fn(&str) -> bool) -> io::Result<()> {
        for entry in fs::read_dir(self.dir.join("keys"))?.flatten() {
            if !entry.file_name().to_str().is_some_and(&used_key) {
                gone(fs::remove_file(entry.path()))?;
            }
        }
        for entry in fs::read_dir(self.dir.join("blobs"))?.flatten() {
            let idle = entry.metadata().and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
            if !entry.file_name().to_str().is_some_and(&used_blob) && idle.is_some_and(|idle| idle >= BLOB_IDLE_MAX) {
                gone(fs::remove_file(entry.path()))?;
            }
        }
        Ok(())
    }

    fn key_path(&self, topology: &Name) -> PathBuf {
        self.dir.join("keys").join(topology.as_str())
    }
}

/// A file that goes away unless it was renamed.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn gone(removal: io::Result<()>) -> io::Result<()> {
    match removal {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// True where `nimbus.dir` has no room.
pub(crate) fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    bytes
}

/// Writes a new private file so that it is there whole or not at all, and on disk when this returns. One that is there is never replaced,
/// also not by two at the same moment. `temporary` is a directory of the same file system.
fn write_new(path: &Path, temporary: &Path, text: &str) -> io::Result<()> {
    let written = Temporary(temporary.join(format!("new-{}", hex::encode(random::<8>()))));
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&written.0)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    // A link and not a rename, which would replace; not every file system has one that does not. The first name goes on the way out.
    fs::hard_link(&written.0, path)?;
    sync_dir(directory_of(path))
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Reads a private one-line file, made with mode 0600 where there is none. One that others can read is refused.
fn private_text(path: &Path, temporary: &Path, make: impl FnOnce() -> String) -> Result<String, NimbusError> {
    if path.symlink_metadata().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        match write_new(path, temporary, &(make() + "\n")) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(io_error(format!("making {}", path.display()))(e)),
            _ => {}
        }
    }
    let mut file = File::open(path).map_err(io_error(format!("opening {}", path.display())))?;
    let mode = file.metadata().map_err(io_error(format!("looking at {}", path.display())))?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(file_error(
            path,
            format!("others may read it (mode {mode:04o}, want 0600); run `chmod 600` on it and change the secret if others did"),
        ));
    }
    let mut text = String::new();
    (&mut file).take(SECRET_BYTES_MAX).read_to_string(&mut text).map_err(io_error(format!("reading {}", path.display())))?;
    let text = text.trim().to_owned();
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(file_error(path, "it does not hold one line of text; remove it to have a new one made"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_made_private_kept_and_not_shared() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("nimbus");
        let first = Home::open(&dir, None).unwrap();
        let mode = |name: &str| fs::metadata(dir.join(name)).unwrap().mode() & 0o777;
        assert_eq!((mode("cluster.secret"), mode("keys")), (0o600, 0o700));
        let (id, secret) = (first.id().clone(), first.secret().to_owned());
        assert_eq!(secret.len(), 64);
        let second = Home::open(&dir, None).unwrap_err().to_string();
        assert!(second.contains("another nimbus uses this directory"), "{second}");
        drop(first);
        let again = Home::open(&dir, None).unwrap();
        assert_eq!((again.id(), again.secret()), (&id, secret.as_str()));
    }

    #[test]
    fn a_private_file_is_there_whole_or_not_at_all_and_never_replaced() {
        let tmp = tempfile::tempdir().unwrap();
        let (path, parts) = (tmp.path().join("id"), tmp.path().join("parts"));
        assert!(private_text(&path, &parts, || "one".into()).is_err(), "no directory to write it in");
        assert!(!path.exists(), "what could not be written is not there");
        fs::create_dir(&parts).unwrap();
        assert_eq!(private_text(&path, &parts, || "one".into()).unwrap(), "one");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(write_new(&path, &parts, "two").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(private_text(&path, &parts, || unreachable!("it is there")).unwrap(), "one");
        assert_eq!(fs::read_dir(&parts).unwrap().count(), 0, "nothing is left over");
        let elsewhere = tmp.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let home = Home::open(&tmp.path().join("n"), Some(&elsewhere.join("s"))).unwrap();
        assert_eq!(fs::read_to_string(elsewhere.join("s")).unwrap().trim(), home.secret());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused() {
        let tmp = tempfile::tempdir().unwrap();
        let secret = tmp.path().join("s");
        fs::write(&secret, "0123456789abcdef\n").unwrap();
        for bad in [0o644, 0o640, 0o604] {
            fs::set_permissions(&secret, Permissions::from_mode(bad)).unwrap();
            let e = Home::open(&tmp.path().join("n"), Some(&secret)).unwrap_err().to_string();
            assert!(e.contains("want 0600"), "{e}");
        }
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(Home::open(&tmp.path().join("n"), Some(&secret)).unwrap().secret(), "0123456789abcdef");
        fs::write(&secret, "short\n").unwrap();
        assert!(Home::open(&tmp.path().join("n"), Some(&secret)).unwrap_err().to_string().contains("fewer than 16"));
    }

    #[test]
    fn keys_are_private_and_differ() {
        let tmp = tempfile::tempdir().unwrap();
        let home = Home::open(tmp.path(), None).unwrap();
        let (a, b) = (Name::new("wc-1-1").unwrap(), Name::new("wc-1-2").unwrap());
        home.make_key(&a).unwrap();
        home.make_key(&b).unwrap();
        assert_ne!(home.key(&a).unwrap(), home.key(&b).unwrap());
        assert_eq!(fs::metadata(home.key_path(&a)).unwrap().mode() & 0o777, 0o600);
        assert!(home.make_key(&a).is_err(), "a key is never replaced");
        home.sweep(|_| true, |key| key == "wc-1-1").unwrap();
        assert!(home.key(&a).is_ok() && home.key(&b).is_err());
    }
}
