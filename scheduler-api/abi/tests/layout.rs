//! The layout never changes silently: a golden file in words, and the C header compared by a C compiler.

use saetta_abi as abi;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

fn dump() -> String {
    let mut out = String::new();
    for s in abi::STRUCTS {
        writeln!(out, "struct {} {}", s.c_name, s.size).unwrap();
        for f in s.fields {
            writeln!(out, "  {} {} {}", f.offset, f.size, f.name).unwrap();
        }
    }
    for (name, value) in abi::CONSTANTS {
        writeln!(out, "const {name} {value}").unwrap();
    }
    out
}

#[test]
fn the_layout_is_the_one_on_file() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("v1.layout.txt");
    let on_file = std::fs::read_to_string(&file).unwrap_or_default();
    let now = dump();
    if std::env::var_os("SAETTA_BLESS").is_some() {
        std::fs::write(&file, &now).unwrap();
        return;
    }
    assert_eq!(on_file, now, "the ABI changed; if that is wanted, review it and run with SAETTA_BLESS=1");
}

#[test]
fn the_c_header_says_the_same_to_a_c_compiler() {
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("no cc here: the C header is not compared");
        return;
    }
    let mut c = String::from("#include <stddef.h>\n#include \"saetta_sched.h\"\n");
    for s in abi::STRUCTS {
        writeln!(c, "_Static_assert(sizeof({}) == {}, \"size of {0}\");", s.c_name, s.size).unwrap();
        for f in s.fields {
            writeln!(c, "_Static_assert(offsetof({}, {}) == {}, \"offset\");", s.c_name, f.name, f.offset).unwrap();
            writeln!(c, "_Static_assert(sizeof((({} *)0)->{}) == {}, \"size\");", s.c_name, f.name, f.size).unwrap();
        }
    }
    let own = [
        ("ABI_MAJOR", i64::from(abi::ABI_MAJOR)),
        ("ABI_MINOR", i64::from(abi::ABI_MINOR)),
        ("NONE", i64::from(abi::NONE)),
        ("SNAPSHOT_MAGIC", i64::from(abi::SNAPSHOT_MAGIC)),
        ("TABLE_META", i64::from(abi::TABLE_META)),
        ("TABLE_STRINGS", i64::from(abi::TABLE_STRINGS)),
        ("TABLE_RACKS", i64::from(abi::TABLE_RACKS)),
        ("TABLE_HOSTS", i64::from(abi::TABLE_HOSTS)),
        ("TABLE_NODES", i64::from(abi::TABLE_NODES)),
        ("TABLE_SLOTS", i64::from(abi::TABLE_SLOTS)),
        ("TABLE_TOPOLOGIES", i64::from(abi::TABLE_TOPOLOGIES)),
        ("TABLE_COMPONENTS", i64::from(abi::TABLE_COMPONENTS)),
        ("TABLE_EDGES", i64::from(abi::TABLE_EDGES)),
        ("TABLE_EXECUTORS", i64::from(abi::TABLE_EXECUTORS)),
    ];
    for (name, value) in own.iter().chain(abi::CONSTANTS) {
        writeln!(c, "_Static_assert(SAETTA_{name} == {value}, \"constant {name}\");").unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("layout.c");
    std::fs::write(&file, c).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let out = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I"])
        .arg(include)
        .arg(&file)
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
