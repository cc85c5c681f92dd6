//! Looks into a plugin's file before any of its code runs: `dlopen` runs constructors, so what can be refused is refused here.
//!
//! Before: the helper has a path. After: a [`Manifest`], and the file may be loaded. Every failure is one sentence that names
//! the file and the remedy, not a `dlerror` text.

use object::elf::{EM_AARCH64, EM_X86_64, ET_DYN};
use object::read::elf::{ElfFile64, FileHeader};
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol};
use saetta_sdk::abi::{self, Field};
use serde::Deserialize;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Largest plugin file that is read, in bytes; a larger one is refused.
pub const FILE_BYTES_MAX: u64 = 256 << 20;

/// Extensions this host has for plugins.
pub const EXTENSIONS: &[&str] = &[abi::EXT_EXPLAIN, abi::EXT_STATS];

/// Claim of a scheduler that keeps to what nodes have and chooses the number of workers itself: the validator then holds it to that.
pub const CLAIM_RESOURCES: &str = "saetta.resources/1";

/// Claim of a scheduler that keeps what topologies ask for of their workers and nodes; [`CLAIM_RESOURCES`] says that too.
pub const CLAIM_CONSTRAINTS: &str = "saetta.constraints/1";

/// Flag of a plugin that starts threads: it may, also during rounds.
pub const FLAG_THREADS: &str = "threads";

/// What a plugin says of itself in its ELF note.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Manifest {
    /// Unique name.
    pub id: String,
    /// Version of the plugin.
    pub version: String,
    /// What it speaks.
    pub abi: AbiVersion,
    /// Extensions of the host it cannot do without.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Those it makes use of where they are.
    #[serde(default)]
    pub wants: Vec<String>,
    /// Rule books it says it keeps, as `storm.even/1`; the validator then checks them.
    #[serde(default)]
    pub claims: Vec<String>,
    /// What it needs to be allowed, as [`FLAG_THREADS`].
    #[serde(default)]
    pub flags: Vec<String>,
    /// Empty upstream; a vendor with private changes to the ABI sets it.
    #[serde(default)]
    pub fork_tag: String,
}

impl Manifest {
    /// It says that it keeps this rule book.
    pub fn has_claim(&self, claim: &str) -> bool {
        self.claims.iter().any(|c| c == claim)
    }
}

/// ABI version of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AbiVersion {
    /// Must equal ours.
    pub major: u32,
    /// Informative.
    pub minor: u32,
    /// At most ours.
    pub min_host_minor: u32,
}

/// Why a file is not loaded. One line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Checks that it is no link, owner's rights, ELF header, exported symbol and manifest.
pub fn inspect(path: &Path) -> Result<Manifest, Refused> {
    inspect_bytes(&read(path)?).map_err(|what| Refused(format!("{}: {what}", path.display())))
}

/// The content of a file that is no link and that nobody else could have written.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Refused> {
    let refuse = |what: String| Err(Refused(format!("{}: {what}", path.display())));
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let mut file = match std::fs::OpenOptions::new().read(true).custom_flags(no_follow).open(path) {
        Ok(file) => file,
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return refuse("is a symbolic link, so what runs could be exchanged from elsewhere; put the plugin itself there".to_owned());
        }
        Err(e) => return refuse(format!("{e}; build the plugin, or set scheduler.plugin.dir")),
    };
    let meta = match file.metadata() {
        Ok(meta) if meta.is_file() => meta,
        Ok(_) => return refuse("is not a regular file".to_owned()),
        Err(e) => return refuse(e.to_string()),
    };
    // Many systems give each user a group of their own and build with umask 002: that group is nobody else.
    let own = meta.uid() == rustix::process::geteuid().as_raw() && meta.gid() == rustix::process::getegid().as_raw();
    if meta.mode() & 0o002 != 0 || meta.mode() & 0o020 != 0 && !own {
        return refuse(format!(
            "is writable for others (mode {:o}, owner {}, group {}), so somebody else could replace what runs; chmod go-w it",
            meta.mode() & 0o7777,
            meta.uid(),
            meta.gid()
        ));
    }
    if meta.len() > FILE_BYTES_MAX {
        return refuse(format!("has {} bytes, at most {FILE_BYTES_MAX} are read", meta.len()));
    }
    let mut bytes = Vec::with_capacity(meta.len() as usize);
    if let Err(e) = file.read_to_end(&mut bytes) {
        return refuse(e.to_string());
    }
    Ok(bytes)
}

/// Checks the content: ELF header, exported symbol and manifest.
pub fn inspect_bytes(bytes: &[u8]) -> Result<Manifest, String> {
    let elf = ElfFile64::<LittleEndian>::parse(bytes).map_err(|e| format!("is not a 64-bit little-endian ELF file ({e})"))?;
    let header = elf.elf_header();
    let (machine, kind) = (header.e_machine(LittleEndian), header.e_type(LittleEndian));
    let ours = if cfg!(target_arch = "aarch64") { EM_AARCH64 } else { EM_X86_64 };
    if machine != ours {
        return Err(format!("is for ELF machine {machine}, this host is {ours}; build it for this machine"));
    }
    if kind != ET_DYN {
        return Err("is not a shared library; build it as a cdylib or with cc -shared".to_owned());
    }
    let exported: Vec<&str> = elf
        .dynamic_symbols()
        .filter(|s| s.is_definition() && s.is_global())
        .filter_map(|s| s.name().ok())
        .filter(|name| name.starts_with("saetta_scheduler_v"))
        .collect();
    if !exported.contains(&abi::ENTRY_SYMBOL) {
        return Err(match exported.first() {
            Some(other) => format!("exports {other}, this host speaks {}; build it against this version's header", abi::ENTRY_SYMBOL),
            None => format!("does not export {}, so it is no scheduler plugin", abi::ENTRY_SYMBOL),
        });
    }
    let note = elf
        .section_by_name(abi::NOTE_SECTION)
        .and_then(|s| s.data().ok())
        .ok_or_else(|| format!("has no section {}, which holds a plugin's manifest", abi::NOTE_SECTION))?;
    let manifest = manifest_of(note).ok_or_else(|| format!("has a malformed note in {}", abi::NOTE_SECTION))?;
    let manifest: Manifest = serde_json::from_slice(manifest).map_err(|e| format!("has a manifest that is not understood ({e})"))?;
    if manifest.abi.major != u32::from(abi::ABI_MAJOR) || manifest.abi.min_host_minor > u32::from(abi::ABI_MINOR) {
        return Err(format!(
            "needs scheduler ABI {}.{}, this host has {}.{}",
            manifest.abi.major,
            manifest.abi.min_host_minor,
            abi::ABI_MAJOR,
            abi::ABI_MINOR
        ));
    }
    if let Some(need) = manifest.needs.iter().find(|need| !EXTENSIONS.contains(&need.as_str())) {
        return Err(format!("needs extension {need}, which this host does not have"));
    }
    if !manifest.fork_tag.is_empty() {
        return Err(format!("is built for the fork {:?} of this host", manifest.fork_tag));
    }
    Ok(manifest)
}

/// The descriptor of our note: name size, descriptor size, type, name, descriptor.
fn manifest_of(note: &[u8]) -> Option<&[u8]> {
    let (name_len, desc_len) = (u32::get(note.get(..4)?) as usize, u32::get(note.get(4..8)?) as usize);
    let kind = u32::get(note.get(8..12)?);
    let name = note.get(12..12usize.checked_add(name_len)?)?;
    if kind != abi::NOTE_TYPE || name != abi::NOTE_OWNER {
        return None;
    }
    let start = 12 + name_len.next_multiple_of(4);
    note.get(start..start.checked_add(desc_len)?)
}
