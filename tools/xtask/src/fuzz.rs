//! `cargo xtask fuzz TARGET`: long runs over what a peer's bytes reach, with the harnesses of `dataplane/transport/fuzz`.
//!
//! Before: a person (CI runs their short form as `dataplane/transport/tests/fuzz.rs`). After: the example `fuzz` by the toolchain at hand, or
//! libFuzzer by a nightly one; scripts that it adds and findings go to target/fuzz.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::{cargo, must, root, target};

/// Optimised, and with everything checked that a test checks.
const PROFILE: [&str; 8] = [
    "--config",
    "profile.release.lto=false",
    "--config",
    "profile.release.codegen-units=4",
    "--config",
    "profile.release.debug-assertions=true",
    "--config",
    "profile.release.overflow-checks=true",
];
/// Of `dataplane/transport/fuzz`, relative to the workspace root.
const FUZZ: &str = "dataplane/transport/fuzz";

/// Mutated scripts of the corpus, `executions` of them.
pub(crate) fn run(harness: &str, executions: u64, seed: u64) -> Result<()> {
    let mut command = cargo(&["run", "--quiet", "--release", "--package", "saetta-transport", "--example", "fuzz"]);
    command.args(PROFILE).env("CARGO_TARGET_DIR", target().join("fuzz"));
    must(command.args(["--", harness]).args([executions.to_string(), seed.to_string()]))
}

/// The same by libFuzzer, which keeps scripts that reach something new.
pub(crate) fn run_guided(harness: &str, executions: u64, seed: u64) -> Result<()> {
    let grown = target().join("fuzz").join(harness);
    fs::create_dir_all(&grown).with_context(|| format!("making {}", grown.display()))?;
    // By the name that lets `+nightly` choose; the cargo that started us is of one toolchain.
    let mut command = Command::new("cargo");
    command.args(["+nightly", "run", "--release", "--bin", harness, "--"]);
    command.args([format!("-runs={executions}"), format!("-seed={seed}"), "-max_len=512".into(), "-dict=link.dict".into()]);
    command.arg(format!("-artifact_prefix={}/{harness}-", target().join("fuzz").display()));
    command.arg(grown).arg(format!("corpus/{harness}"));
    command.current_dir(root().join(FUZZ)).env("CARGO_TARGET_DIR", target().join("fuzz"));
    for name in ["CARGO", "CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
        command.env_remove(name);
    }
    must(&mut command)
}
