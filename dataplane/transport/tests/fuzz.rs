//! The short run of the fuzz harnesses: every script of the corpus, then a fixed number of mutations from a fixed seed, the same each time.
//!
//! Before: `fuzz/corpus`, grown and minimised by the nightly run (`fuzz/README.md`). After: `fuzz/src`. For longer: `cargo xtask fuzz`.

#[path = "../fuzz/src/lib.rs"]
#[allow(unreachable_pub, dead_code, reason = "a library in its own workspace")]
mod fuzz;

use fuzz::drive::{Mutator, corpus, execute};
use std::path::Path;

fn short_run(name: &str, mutations: u32) {
    let target = fuzz::TARGETS.iter().find(|target| target.name == name).expect("a harness");
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let scripts = corpus(&dir, target).expect("the corpus is in the tree");
    let reached = scripts.iter().fold(0, |reached, script| reached | execute(target, script).0);
    // Without this a change of the script's meaning would leave a corpus that shows nothing.
    let missed: Vec<_> = target.marks.iter().enumerate().filter(|(bit, _)| reached >> bit & 1 == 0).map(|(_, mark)| mark).collect();
    assert!(missed.is_empty(), "no script of the corpus reaches {missed:?}; let `cargo xtask fuzz --guided {name}` grow it again");
    let mut mutator = Mutator::new(scripts, 0x5AE7);
    for _ in 0..mutations {
        execute(target, mutator.next());
    }
}

#[test]
fn handshakes_of_the_corpus_and_their_surroundings_are_free_of_findings() {
    short_run("handshake", 20_000);
}

#[test]
fn streams_of_the_corpus_and_their_surroundings_are_free_of_findings() {
    short_run("frames", 10_000);
}
