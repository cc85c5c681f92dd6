//! What a submitted binary is, read from its ELF header, and whether the machines of the cluster can run it.
//!
//! Before: `home.rs` has received a file, or `submit.rs` is about to accept it. Only headers, the dynamic section and the list of
//! needed versions are read, so the size of the file does not matter.

use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, ReadCache};
use saetta_model::cluster::{Platform, Supervisors};
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// Facts about a binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// `x86_64`, `aarch64`, or the number of an unknown one.
    pub machine: String,
    /// Program that loads it; `None` = statically linked.
    pub interpreter: Option<String>,
    /// Highest glibc version it asks for.
    pub glibc: Option<(u32, u32)>,
}

/// Why a file is no binary that a worker could be started from. One line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the binary {0}")]
pub struct ElfError(pub String);

fn refuse<T>(why: impl Into<String>) -> Result<T, ElfError> {
    Err(ElfError(why.into()))
}

/// Reads the facts. Blocking, a few reads of the file.
pub(crate) fn read(file: &mut File) -> Result<Facts, ElfError> {
    let mut magic = [0; 6];
    let mut len = 0;
    let io = |e: std::io::Error| ElfError(format!("cannot be read: {e}"));
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    while len < magic.len() {
        match file.read(&mut magic[len..]).map_err(io)? {
            0 => break,
            n => len += n,
        }
    }
    if len == 0 {
        return refuse("is empty");
    }
    if magic[..len].starts_with(b"#!") {
        return refuse("is a script; submit the compiled topology (an ELF executable)");
    }
    if len < magic.len() || !magic.starts_with(b"\x7fELF") {
        return refuse("is not an ELF executable; submit what `cargo build --release` made");
    }
    if magic[4] != 2 {
        return refuse("is a 32-bit ELF file; build for a 64-bit target");
    }
    let cache = ReadCache::new(file);
    facts(&cache)
}

fn facts<'a, R: object::ReadRef<'a>>(data: R) -> Result<Facts, ElfError> {
    let broken = |e: object::read::Error| ElfError(format!("has a broken ELF header: {e}"));
    let header = elf::FileHeader64::<Endianness>::parse(data).map_err(broken)?;
    let endian = header.endian().map_err(broken)?;
    let machine = match header.e_machine(endian) {
        elf::EM_X86_64 => "x86_64".to_owned(),
        elf::EM_AARCH64 => "aarch64".to_owned(),
        other => format!("machine {other:?}"),
    };
    let kind = header.e_type(endian);
    if kind != elf::ET_EXEC && kind != elf::ET_DYN {
        return refuse("is an ELF file but no executable (an object file or a core dump)");
    }
    let mut interpreter = None;
    let mut is_pie = false;
    for segment in header.program_headers(endian, data).map_err(broken)? {
        if let Some(path) = segment.interpreter(endian, data).map_err(broken)? {
            interpreter = Some(String::from_utf8_lossy(path).into_owned());
        }
        for entry in segment.dynamic(endian, data).map_err(broken)?.unwrap_or_default() {
            is_pie |= entry.d_tag(endian) == elf::DT_FLAGS_1 && elf::DynamicFlags1(entry.d_val(endian)).0 & elf::DF_1_PIE.0 != 0;
        }
    }
    if kind == elf::ET_DYN && interpreter.is_none() && !is_pie {
        return refuse("is a shared library, not an executable; submit the topology's binary");
    }
    let sections = header.sections(endian, data).map_err(broken)?;
    let mut glibc = None;
    if let Some((mut needs, link)) = sections.gnu_verneed(endian, data).map_err(broken)? {
        let strings = sections.strings(endian, data, link).map_err(broken)?;
        while let Some((_, mut versions)) = needs.next().map_err(broken)? {
            while let Some(version) = versions.next().map_err(broken)? {
                let name = version.name(endian, strings).map_err(broken)?;
                glibc = glibc.max(std::str::from_utf8(name).ok().and_then(glibc_version));
            }
        }
    }
    Ok(Facts { machine, interpreter, glibc })
}

/// `GLIBC_2.34` and `GLIBC_2.2.5` as (major, minor).
fn glibc_version(name: &str) -> Option<(u32, u32)> {
    let mut parts = name.strip_prefix("GLIBC_")?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

impl Facts {
    /// Checks against every live supervisor: a scheduler may choose any of them.
    pub fn runs_on_all(&self, supervisors: &Supervisors) -> Result<(), ElfError> {
        for supervisor in supervisors.values() {
            if let Err(why) = self.runs_on(&supervisor.platform) {
                return refuse(format!("cannot run on node {} ({}): {why}", supervisor.id, supervisor.host));
            }
        }
        Ok(())
    }

    fn runs_on(&self, platform: &Platform) -> Result<(), String> {
        if self.machine != platform.machine {
            return Err(format!("it is built for {}, the node is {}; build for that target", self.machine, platform.machine));
        }
        match (&self.interpreter, self.glibc, platform.glibc) {
            (Some(i), _, _) if i.contains("ld-musl") && platform.glibc.is_some() => {
                Err(format!("it wants the musl loader {i} and the node has glibc; link it statically or build for gnu"))
            }
            (Some(i), Some(_), None) => Err(format!("it wants glibc (loader {i}) and the node has none; build for musl")),
            (_, Some(needs), Some(has)) if needs > has => Err(format!(
                "it needs glibc {}.{} and the node has {}.{}; build on an older system or for musl",
                needs.0, needs.1, has.0, has.1
            )),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.machine)?;
        match self.glibc {
            Some((major, minor)) => write!(f, ", glibc {major}.{minor}"),
            None if self.interpreter.is_none() => f.write_str(", static"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read_bytes(bytes: &[u8]) -> Result<Facts, ElfError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        read(&mut file)
    }

    fn platform(machine: &str, glibc: Option<(u32, u32)>) -> Platform {
        Platform { machine: machine.into(), glibc }
    }

    #[test]
    fn this_test_is_a_binary_of_this_machine() {
        let facts = read(&mut File::open(std::env::current_exe().unwrap()).unwrap()).unwrap();
        assert_eq!(facts.machine, std::env::consts::ARCH);
        assert!(facts.interpreter.is_some());
        assert!(facts.glibc.unwrap() >= (2, 2), "{facts}");
        assert!(facts.runs_on(&platform(std::env::consts::ARCH, Some((2, 99)))).is_ok());
    }

    #[test]
    fn what_is_no_executable_is_refused_by_what_it_is() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let with = |at: usize, byte: u8| {
            let mut head = own[..4096.min(own.len())].to_vec();
            head[at] = byte;
            head
        };
        let cases: [(&[u8], &str); 7] = [
            (b"", "is empty"),
            (b"#!/bin/sh\n", "is a script"),
            (b"MZ\x90\0\0\0\0", "is not an ELF"),
            (b"\x7fELF", "is not an ELF"),
            (&with(4, 1), "is a 32-bit"),
            (&with(16, 1), "no executable"),
            (b"\x7fELF\x02\x01\x01\0\0\0", "broken ELF header"),
        ];
        for (bytes, why) in cases {
            let e = read_bytes(bytes).unwrap_err().to_string();
            assert!(e.contains(why), "{e} should say {why}");
        }
    }

    #[test]
    fn a_node_that_cannot_run_it_is_named_with_both_versions() {
        let facts = Facts { machine: "x86_64".into(), interpreter: Some("/lib64/ld-linux-x86-64.so.2".into()), glibc: Some((2, 36)) };
        assert!(facts.runs_on(&platform("x86_64", Some((2, 36)))).is_ok());
        let older = facts.runs_on(&platform("x86_64", Some((2, 31)))).unwrap_err();
        assert!(older.contains("needs glibc 2.36") && older.contains("has 2.31"), "{older}");
        assert!(facts.runs_on(&platform("aarch64", Some((2, 36)))).unwrap_err().contains("built for x86_64"));
        assert!(facts.runs_on(&platform("x86_64", None)).unwrap_err().contains("has none"));
        let fixed = Facts { machine: "x86_64".into(), interpreter: None, glibc: None };
        assert!(fixed.runs_on(&platform("x86_64", None)).is_ok());
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(glibc_version("GLIBC_2.2.5"), Some((2, 2)));
        assert!(glibc_version("GLIBC_2.34") > glibc_version("GLIBC_2.4"));
        assert_eq!(glibc_version("GLIBC_PRIVATE"), None);
        assert_eq!(glibc_version("GCC_3.0"), None);
    }
}
