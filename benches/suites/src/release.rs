//! The programs that a suite starts beside itself: built for release, as users run them.
//!
//! Before: a suite that starts `saetta`. After: `saetta_e2e::binary` finds it.

use std::process::Command;

use saetta_harness::Result;

/// Builds them: the whole workspace, since a part of it would be built again with other features.
pub(crate) fn build() -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(&cargo).args(["build", "--quiet", "--release", "--workspace"]).status()?;
    if status.success() { Ok(()) } else { Err("`cargo build --release --workspace` failed; start the suite in the workspace".into()) }
}
