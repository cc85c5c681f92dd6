//! x
use anyhow::Result;
pub(crate) fn start() -> Result<()> {
    Ok(())
}
pub(crate) fn stop() -> Result<()> {
    Ok(())
}
