//! Plugins' files: which one a name or a path means, what it says of itself, and a copy that cannot change under a running helper.
//!
//! Before: a name from the configuration or an operator. After: [`Taken`], inspected before any of its code runs, and loaded from the
//! copy named by its content, so that whoever builds a new one over the old neither changes nor kills what runs.

use crate::helper::load;
use crate::inspect::{Manifest, Refused, inspect, inspect_bytes, read};
use saetta_sdk::call::Builtin;
use sha2::{Digest, Sha256};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Copies kept; the oldest go first.
const COPIES_MAX: usize = 16;
/// Longest name of a plugin in bytes.
const NAME_BYTES_MAX: usize = 128;

/// A plugin's file that may be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// What is loaded: the copy, or the file itself where copies are not kept.
    pub path: PathBuf,
    /// Of its content, 64 hex digits.
    pub sha256: String,
    /// What it says of itself.
    pub manifest: Manifest,
}

/// Inspects a file and loads it into this process, for good; what it says of itself goes along. For measurements: what breaks in it breaks who
/// called.
pub fn open(path: &Path) -> Result<(Builtin, Manifest), Refused> {
    let manifest = inspect(path)?;
    let plugin = load::open(path).map_err(|e| Refused(format!("{}: {e}", path.display())))?;
    Ok((plugin, manifest))
}

/// Where the copy of a content lies.
pub fn copy_path(copies: &Path, sha256: &str) -> PathBuf {
    copies.join(format!("{sha256}.so"))
}

/// Inspects a file and copies it to `copies`. The copy is made once for each content.
pub fn take(path: &Path, copies: Option<&Path>) -> Result<Taken, Refused> {
    let bytes = read(path)?;
    let manifest = inspect_bytes(&bytes).map_err(|what| Refused(format!("{}: {what}", path.display())))?;
    let sha256 = hex(&Sha256::digest(&bytes));
    let Some(copies) = copies else { return Ok(Taken { path: path.to_path_buf(), sha256, manifest }) };
    let copy = copy_path(copies, &sha256);
    // A copy that is there may have been damaged; it is worth reading, since what runs comes from it.
    let whole = fs::read(&copy).is_ok_and(|there| there == bytes);
    if !whole {
        keep(copies, &copy, &bytes).map_err(|e| Refused(format!("copying {} to {}: {e}", path.display(), copy.display())))?;
    }
    Ok(Taken { path: copy, sha256, manifest })
}

/// Keeps a plugin that came from elsewhere, if it is the one that was meant and may be loaded.
pub fn put(copies: &Path, sha256: &str, bytes: &[u8]) -> Result<PathBuf, Refused> {
    let got = hex(&Sha256::digest(bytes));
    if got != sha256 {
        return Err(Refused(format!("plugin {sha256} came with the hash {got}")));
    }
    inspect_bytes(bytes).map_err(|what| Refused(format!("plugin {sha256}: {what}")))?;
    let copy = copy_path(copies, sha256);
    keep(copies, &copy, bytes).map_err(|e| Refused(format!("writing {}: {e}", copy.display())))?;
    Ok(copy)
}

/// Writes a file whole or not at all, and forgets the oldest beyond [`COPIES_MAX`].
fn keep(copies: &Path, copy: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(copies)?;
    let part = copy.with_extension("part");
    let _ = fs::remove_file(&part);
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o500).open(&part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&part, copy)?;
    let mut there: Vec<_> = fs::read_dir(copies)?.flatten().filter_map(|e| Some((e.metadata().ok()?.modified().ok()?, e.path()))).collect();
    there.sort();
    let excess = there.len().saturating_sub(COPIES_MAX);
    for (_, old) in there.into_iter().take(excess).filter(|(_, old)| old != copy) {
        // It may still be mapped: a file without a name lives on until then.
        fs::remove_file(old)?;
    }
    Ok(())
}

/// The plugin a NAME or a FILE means: its name and its file, which lies in `dir` itself. Whether it is there is seen when it is taken.
pub fn find(dir: &Path, text: &str) -> Result<(String, PathBuf), Refused> {
    let refuse = |what: String| Err(Refused(what));
    let is_file = text.contains('/') || text.ends_with(".so");
    let (name, path) = if is_file {
        let path = if text.contains('/') { PathBuf::from(text) } else { dir.join(text) };
        let inside = path.parent().and_then(|p| p.canonicalize().ok()).zip(dir.canonicalize().ok()).is_some_and(|(a, b)| a == b);
        if !inside {
            let dir = dir.display();
            return refuse(format!("{text}: only files of scheduler.plugin.dir ({dir}) are taken; put the plugin there"));
        }
        let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
        (stem.strip_prefix("libsaetta_").unwrap_or(stem).replace('_', "-"), path.clone())
    } else {
        (text.to_owned(), dir.join(crate::options::plugin_file(text)))
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(fits) || name.starts_with('.') {
        let shown: String = text.chars().take(80).collect();
        return refuse(format!("{shown:?} names no plugin; give NAME for libsaetta_NAME.so, or a file of scheduler.plugin.dir"));
    }
    Ok((name, path))
}

/// Lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_a_file_of_the_directory_mean_the_same_and_others_are_refused() {
        let dir = Path::new("/tmp");
        let file = PathBuf::from("/tmp/libsaetta_very_fancy.so");
        for text in ["very-fancy", "libsaetta_very_fancy.so", "/tmp/libsaetta_very_fancy.so", "/tmp/../tmp/libsaetta_very_fancy.so"] {
            let (name, path) = find(dir, text).unwrap();
            assert_eq!((name.as_str(), path.file_name()), ("very-fancy", file.file_name()), "{text}");
        }
        for text in ["", "..", ".", "a b", "/etc/libsaetta_fancy.so", "/tmp/../etc/x.so", "./x.so", "a\n", &"x".repeat(200)] {
            assert!(find(dir, text).is_err(), "{text:?}");
        }
    }
}
