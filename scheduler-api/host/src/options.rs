//! Where a scheduler comes from and what it may use.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// File name of the helper process.
pub const HELPER_NAME: &str = "saetta-sched-host";

/// Which plugin, where it lies, and the limits it runs under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// `scheduler.plugin`: NAME stands for `libsaetta_NAME.so` in `dir`.
    pub plugin: String,
    /// `scheduler.plugin.dir`.
    pub dir: PathBuf,
    /// The helper's executable.
    pub helper: PathBuf,
    /// `scheduler.deadline.secs`: time for one round (and for loading); then the helper is killed.
    pub deadline: Duration,
    /// `scheduler.memory.mb` in bytes: address space of the helper.
    pub memory_bytes: u64,
}

impl SchedulerOptions {
    /// `even` with the helper and the plugin found beside the running executable, the configuration's built-in limits.
    ///
    /// "Beside" is the executable's directory. In a build tree it is also the directory above (for a test, which runs from
    /// `deps/`) and `deps/` below (where cargo leaves the library of a package that was built as a dependency). What is not found
    /// is named in the executable's directory; the first round then says that it is missing. Fails when the
    /// system does not say where the executable is.
    pub fn beside_exe() -> io::Result<Self> {
        let exe = std::env::current_exe()?;
        let own = exe.parent().unwrap_or(Path::new("/")).to_path_buf();
        let find = |file: &str| {
            let above = own.parent().filter(|_| own.ends_with("deps")).map(Path::to_path_buf);
            [Some(own.clone()), above, Some(own.join("deps"))].into_iter().flatten().find(|dir| dir.join(file).is_file())
        };
        Ok(SchedulerOptions {
            plugin: "even".to_owned(),
            dir: find(&plugin_file("even")).unwrap_or_else(|| own.clone()),
            helper: find(HELPER_NAME).unwrap_or_else(|| own.clone()).join(HELPER_NAME),
            deadline: Duration::from_secs(5),
            memory_bytes: 512 << 20,
        })
    }

    /// The plugin's file.
    pub fn plugin_path(&self) -> PathBuf {
        self.dir.join(plugin_file(&self.plugin))
    }
}

fn plugin_file(name: &str) -> String {
    format!("libsaetta_{name}.so")
}
