//! A driver for where no nightly is: executions of mutated scripts from the corpus, the same for the same seed, without looking at coverage.
//!
//! Before: `tests/fuzz.rs` in bounds of seconds, `examples/fuzz.rs` for longer. After: a harness.
//!
//! Scripts already give every byte a meaning, so plain mutations of plain bytes are enough; what guides them is the corpus, which libFuzzer has
//! grown by coverage and which is kept minimal. Finding new roads is the nightly run's work, this one shows that the known ones and their
//! surroundings stay free of findings.

use super::{Reached, Target};
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

/// Longest script that mutations make.
const SCRIPT_BYTES_MAX: usize = 512;

/// Scripts of one harness, by name.
pub fn corpus(dir: &Path, target: &Target) -> io::Result<Vec<Vec<u8>>> {
    let mut paths = fs::read_dir(dir.join(target.name))?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    paths.iter().map(fs::read).collect()
}

/// One execution; a finding is shown with the script that makes it, in hexadecimal digits, before its panic goes on.
pub fn execute(target: &Target, script: &[u8]) -> Reached {
    catch_unwind(AssertUnwindSafe(|| (target.run)(script))).unwrap_or_else(|panic| {
        let digits: String = script.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("{}: this script is a finding: {digits}", target.name);
        resume_unwind(panic)
    })
}

/// Makes scripts of scripts.
pub struct Mutator {
    corpus: Vec<Vec<u8>>,
    state: u64,
    script: Vec<u8>,
}

impl Mutator {
    /// `corpus` is not empty.
    pub fn new(corpus: Vec<Vec<u8>>, seed: u64) -> Self {
        assert!(!corpus.is_empty(), "mutations need something to begin with");
        Mutator { corpus, state: seed, script: Vec::new() }
    }

    /// The next script.
    pub fn next(&mut self) -> &[u8] {
        let first = self.below(self.corpus.len());
        self.script.clone_from(&self.corpus[first]);
        for _ in 0..1 + self.below(6) {
            self.mutate();
        }
        self.script.truncate(SCRIPT_BYTES_MAX);
        &self.script
    }

    fn mutate(&mut self) {
        let len = self.script.len();
        let at = self.below(len + 1);
        let value = self.random();
        match self.below(8) {
            0 if at < len => self.script[at] ^= 1 << (value & 7),
            1 if at < len => self.script[at] = value as u8,
            2 if at < len => self.script[at] = self.script[at].wrapping_add(if value & 1 == 0 { 1 } else { 255 }),
            3 => self.script.insert(at, value as u8),
            4 => {
                let end = (at + 1 + self.below(8)).min(len);
                self.script.drain(at.min(end)..end);
            }
            5 => {
                let number = value.to_le_bytes();
                let n = 1 << self.below(4);
                self.script.splice(at..at, number[..n].iter().copied());
            }
            6 => {
                // A part of it again, elsewhere.
                let end = (at + 1 + self.below(16)).min(len);
                let part = self.script[at.min(end)..end].to_vec();
                let to = self.below(len + 1);
                self.script.splice(to..to, part);
            }
            _ => {
                // Its beginning, and the end of another.
                let other = self.below(self.corpus.len());
                let from = self.below(self.corpus[other].len() + 1);
                self.script.truncate(at);
                self.script.extend_from_slice(&self.corpus[other][from..]);
            }
        }
    }

    fn below(&mut self, n: usize) -> usize {
        (self.random() % n as u64) as usize
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
