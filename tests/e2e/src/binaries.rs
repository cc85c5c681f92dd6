//! Where the programs under test are.

use std::path::{Path, PathBuf};

/// A program or plugin of the release build: from `SAETTA_BIN_DIR`, else from `release` of the target directory of this build.
/// Panics with the command that builds it where it is missing.
pub fn binary(name: &str) -> PathBuf {
    let dir = std::env::var_os("SAETTA_BIN_DIR").map_or_else(release, PathBuf::from);
    let path = dir.join(name);
    assert!(
        path.is_file(),
        "{} is missing; run `cargo build --release --workspace`, or name its directory in SAETTA_BIN_DIR",
        path.display()
    );
    path.canonicalize().expect("it is there")
}

fn release() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    target.join("release")
}

/// The root of the workspace.
pub(crate) fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
