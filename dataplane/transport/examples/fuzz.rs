//! `cargo xtask fuzz TARGET [--executions N]`: scripts of the corpus, then mutations of them, by any toolchain, as fast as it compiles.
//!
//! Before: `cargo xtask fuzz`, which builds this optimised and with assertions. After: `fuzz/src/drive.rs`. Ends at the first finding, having
//! shown its script; given as `xDIGITS` in the place of a number, that is executed alone.

#[path = "../fuzz/src/lib.rs"]
#[allow(unreachable_pub, dead_code, reason = "a library in its own workspace")]
mod fuzz;

use fuzz::drive::{Mutator, corpus, execute};
use std::path::Path;
use std::time::Instant;

const USAGE: &str = "fuzz handshake|frames EXECUTIONS [SEED], or fuzz handshake|frames xSCRIPT";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let target = fuzz::TARGETS.iter().find(|target| args.first().is_some_and(|name| name == target.name)).expect(USAGE);
    let what = args.get(1).expect(USAGE);
    if let Some(digits) = what.strip_prefix('x') {
        let script: Vec<u8> = (0..digits.len() / 2).map(|n| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).expect(USAGE)).collect();
        println!("{}: no finding; marks {:x}", target.name, execute(target, &script).0);
        return;
    }
    let executions: u64 = what.parse().expect(USAGE);
    let seed = args.get(2).map_or(1, |seed| seed.parse().expect(USAGE));
    let start = Instant::now();
    let scripts = corpus(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus"), target).expect("the corpus is in the tree");
    let mut reached = scripts.iter().fold(0, |reached, script| reached | execute(target, script).0);
    let n_scripts = scripts.len();
    let mut mutator = Mutator::new(scripts, seed);
    for _ in 0..executions {
        reached |= execute(target, mutator.next()).0;
    }
    println!(
        "{}: {n_scripts} scripts and {executions} mutations of them (seed {seed}) in {:.1} s, no finding; {} of {} marks",
        target.name,
        start.elapsed().as_secs_f64(),
        reached.count_ones(),
        target.marks.len()
    );
}
