//! The text that is counted, and counts of it made without Saetta.

use crate::binaries::workspace;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Words in alice29.txt, split by white space; `wc -w` says so too.
const ALICE_WORDS: u64 = 26_457;

/// The text to count: the shared sample where it is, else this project's LICENSE.
pub fn sample() -> PathBuf {
    let shared = workspace().join("../shared/data/streams/alice29.txt");
    let path = if shared.is_file() {
        shared
    } else {
        println!("{} is not here; counting LICENSE instead", shared.display());
        workspace().join("LICENSE")
    };
    path.canonicalize().expect("LICENSE is part of the repository")
}

/// Word to count, by the plainest means.
pub fn independent_counts(path: &Path) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for word in std::fs::read_to_string(path).expect("the sample is UTF-8").split_whitespace() {
        *counts.entry(word.to_owned()).or_default() += 1;
    }
    if path.ends_with("alice29.txt") {
        assert_eq!(counts.values().sum::<u64>(), ALICE_WORDS, "the sample is the known one");
    }
    counts
}

/// What the count tasks wrote into `--out`: the sum, and how many words each task counted by file name.
/// Panics on a word in two files: a word belongs to one task.
pub fn counted_in(dir: &Path) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    let (mut all, mut by_file) = (BTreeMap::new(), BTreeMap::new());
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(name.ends_with(".tsv"), "{name} is half written");
        let mut words = 0;
        for line in std::fs::read_to_string(entry.path()).expect("readable").lines() {
            let (word, n) = line.split_once('\t').expect("word, tab, count");
            let n: u64 = n.parse().expect("a count");
            words += n;
            assert!(all.insert(word.to_owned(), n).is_none(), "{word:?} was counted by two tasks");
        }
        by_file.insert(name, words);
    }
    (all, by_file)
}
