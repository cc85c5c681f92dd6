//! The layout never changes silently: a golden file in words, and a checker that lets it grow and nothing else.
//!
//! `SAETTA_BLESS=1` writes the golden file when what changed is an addition; `SAETTA_BLESS=break` writes whatever it is, and is for
//! the time before a version is released.

use saetta_abi as abi;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

fn dump() -> String {
    let mut out = String::new();
    for s in abi::STRUCTS {
        writeln!(out, "struct {} {}", s.c_name, s.size).unwrap();
        for f in s.fields {
            writeln!(out, "  {} {} {}", f.offset, f.size, f.name).unwrap();
        }
    }
    for c in abi::CONSTANTS {
        writeln!(out, "const {} {}", c.name, c.value).unwrap();
    }
    for id in abi::EXTENSIONS {
        writeln!(out, "extension {id}").unwrap();
    }
    out
}

/// What of an older layout a newer one no longer has. Empty = it only grew. A reserved field may get a name.
fn broken(old: &str, new: &str) -> Vec<String> {
    let facts = |text: &str| -> BTreeMap<String, String> {
        let mut of = String::new();
        let fact = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            match (line.starts_with("  "), words.as_slice()) {
                (true, [offset, size, name]) => (format!("{of} byte {offset}"), format!("{size} {name}")),
                (false, ["struct", name, size]) => {
                    of = format!("struct {name}");
                    (of.clone(), (*size).to_owned())
                }
                (false, [kind, name, rest @ ..]) => (format!("{kind} {name}"), rest.concat()),
                _ => panic!("not a line of a layout: {line:?}"),
            }
        };
        text.lines().map(fact).collect()
    };
    let new = facts(new);
    let kept = |fact: &str, was: &str, is: &str| {
        let grew = fact.starts_with("struct ") && !fact.contains(" byte ") && is.parse::<u64>().ok() >= was.parse::<u64>().ok();
        let named = was.strip_suffix(" reserved").is_some_and(|size| is.split_whitespace().next() == Some(size));
        was == is || grew || named
    };
    facts(old)
        .into_iter()
        .filter_map(|(fact, was)| match new.get(&fact) {
            None => Some(format!("{fact} ({was}) is gone")),
            Some(is) if !kept(&fact, &was, is) => Some(format!("{fact} was {was:?} and is {is:?}")),
            Some(_) => None,
        })
        .collect()
}

#[test]
fn the_layout_is_the_one_on_file() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("v1.layout.txt");
    let on_file = std::fs::read_to_string(&file).unwrap_or_default();
    let now = dump();
    let bless = std::env::var("SAETTA_BLESS").unwrap_or_default();
    if bless != "break" {
        assert_eq!(broken(&on_file, &now), Vec::<String>::new(), "an older plugin would break");
    }
    if !bless.is_empty() {
        std::fs::write(&file, &now).unwrap();
        return;
    }
    assert_eq!(on_file, now, "the ABI grew; if that is wanted, review it and run with SAETTA_BLESS=1");
}

#[test]
fn a_layout_may_grow_and_nothing_else() {
    let old = "struct s 8\n  0 4 a\n  4 4 reserved\nconst A 1\nextension x/1\n";
    for grown in [
        "struct s 16\n  0 4 a\n  4 4 reserved\n  8 8 b\nconst A 1\nextension x/1\n",
        "struct s 8\n  0 4 a\n  4 4 b\nconst A 1\nconst B 1\nextension x/1\nextension y/1\nstruct t 8\n  0 8 c\n",
    ] {
        assert_eq!(broken(old, grown), Vec::<String>::new());
    }
    for (now, what) in [
        ("struct s 8\n  0 4 a\n  4 4 reserved\nconst A 2\nextension x/1\n", "const A was \"1\" and is \"2\""),
        ("struct s 8\n  0 4 a\n  4 4 reserved\nconst A 1\n", "extension x/1 () is gone"),
        ("struct s 8\n  0 4 z\n  4 4 reserved\nconst A 1\nextension x/1\n", "struct s byte 0 was \"4 a\" and is \"4 z\""),
        ("struct s 8\n  0 8 a\nconst A 1\nextension x/1\n", "struct s byte 0 was \"4 a\" and is \"8 a\""),
        ("const A 1\nextension x/1\n", "struct s (8) is gone"),
    ] {
        assert!(broken(old, now).contains(&what.to_owned()), "{:?}", broken(old, now));
    }
}

#[test]
fn every_extension_is_in_the_registry_and_none_is_taken_out_of_it() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("EXTENSIONS.md");
    let text = std::fs::read_to_string(file).unwrap();
    let registered: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("| `")?.split_once('`')).map(|(id, _)| id).collect();
    for id in abi::EXTENSIONS {
        assert!(registered.contains(id), "{id} is not in EXTENSIONS.md");
        assert!(id.rsplit_once('/').is_some_and(|(_, version)| version.parse::<u32>().is_ok()), "{id} has no version");
    }
    // The golden file keeps those of released versions (`broken` above), so this holds for them as well.
    let mut once = registered.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), registered.len(), "an id stands twice");
}
