//! What a plugin's file says of itself without being run: manifest, exports, needed libraries, how new a C library it wants.
//!
//! Before: `saetta scheduler inspect FILE`, or the validator's first checks. After: [`Facts`]. Unlike `inspect`, which stops at the
//! first thing that is wrong, this tells as much as can be told.

use crate::inspect::{FILE_BYTES_MAX, Manifest, Refused, inspect};
use object::elf::{DT_NEEDED, DT_TEXTREL, PF_X, PT_GNU_STACK};
use object::read::elf::{Dyn, ElfFile64, ProgramHeader};
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol};
use std::io::Read;
use std::path::Path;

/// Facts of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Bytes of the file.
    pub bytes: u64,
    /// What it says of itself; `Err` = why this host would not load it.
    pub manifest: Result<Manifest, Refused>,
    /// Symbols others can bind to, sorted.
    pub exports: Vec<String>,
    /// Libraries it needs, as it names them.
    pub needed: Vec<String>,
    /// Newest version of the C library it asks for, as (2, 34); `None` = it asks for none.
    pub glibc: Option<(u32, u32)>,
    /// Its code would have to be written to when it is loaded.
    pub text_relocations: bool,
    /// It wants a stack that can be executed.
    pub executable_stack: bool,
}

/// Reads a file. Fails only where it is no ELF file at all or cannot be read.
pub fn facts(path: &Path) -> Result<Facts, Refused> {
    let refuse = |what: String| Refused(format!("{}: {what}", path.display()));
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|e| refuse(e.to_string()))?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| refuse(e.to_string()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(refuse(format!("has more than {FILE_BYTES_MAX} bytes, which is the most that is read")));
    }
    let no_elf = |e: object::read::Error| refuse(format!("is not a 64-bit little-endian ELF file ({e})"));
    let elf = ElfFile64::<LittleEndian>::parse(&*bytes).map_err(no_elf)?;
    let mut exports: Vec<String> =
        elf.dynamic_symbols().filter(|s| s.is_definition() && !s.is_local()).filter_map(|s| Some(s.name().ok()?.to_owned())).collect();
    exports.sort();
    exports.dedup();
    // Names of needed versions stand there and nowhere else.
    let strings = elf.section_by_name(".dynstr").and_then(|s| s.data().ok()).unwrap_or_default();
    let glibc = strings.split(|b| *b == 0).filter_map(glibc_version).max();
    let (mut needed, mut text_relocations) = (Vec::new(), false);
    if let Ok(Some((entries, strings_at))) = elf.elf_section_table().dynamic(LittleEndian, &*bytes) {
        let names = elf.elf_section_table().strings(LittleEndian, &*bytes, strings_at).unwrap_or_default();
        for entry in entries {
            let tag = entry.d_tag(LittleEndian);
            text_relocations |= tag == DT_TEXTREL;
            if tag == DT_NEEDED
                && let Some(name) = entry.val32(LittleEndian).and_then(|at| names.get(at).ok())
            {
                needed.push(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    let stack = elf.elf_program_headers().iter().find(|h| h.p_type(LittleEndian) == PT_GNU_STACK);
    let executable_stack = stack.is_some_and(|h| h.p_flags(LittleEndian).0 & PF_X.0 != 0);
    Ok(Facts { bytes: bytes.len() as u64, manifest: inspect(path), exports, needed, glibc, text_relocations, executable_stack })
}

/// `GLIBC_2.34` and `GLIBC_2.2.5` by their first two numbers.
fn glibc_version(name: &[u8]) -> Option<(u32, u32)> {
    let mut numbers = std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
