//! What can keep a supervisor from starting. Everything later is handled, reported and tried again.

use std::path::PathBuf;

/// Why a supervisor cannot start.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// A setting that cannot be; the caller must change it.
    #[error("{0}")]
    Options(String),
    /// The directory belongs to a supervisor that is running.
    #[error("{} is in use by another supervisor; give this one a supervisor.dir of its own", .0.display())]
    Locked(PathBuf),
    /// The environment refused.
    #[error("{doing} {}: {source}", .path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
}

impl SupervisorError {
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| SupervisorError::Io { doing, path, source }
    }
}
