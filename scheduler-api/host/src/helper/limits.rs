//! What the helper takes from itself before any foreign code runs.

use rustix::process::{Pid, Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setrlimit, setsid};

/// Descriptors a helper may have open: standard ones, the channel's two per round, and what `dlopen` needs for a moment.
const FILES_MAX: u64 = 32;

/// Own session, dies with its parent, limited memory, no core file, no growing file, first to go when memory runs out.
/// Fails when the parent is already gone or a limit cannot be set.
pub(super) fn apply(parent_pid: i32, memory_bytes: u64) -> Result<(), String> {
    let said = |what: &'static str| move |e: rustix::io::Errno| format!("{what}: {e}");
    // Being a session leader already is as good.
    let _ = setsid();
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(said("asking to end with the parent"))?;
    // The parent may have ended before that took effect.
    if getppid() != Pid::from_raw(parent_pid) {
        return Err("its parent is gone".to_owned());
    }
    // Before the file limit, which this write would meet. Not allowed in some containers: then it is only less likely to be chosen.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let limits = [
        (Resource::As, memory_bytes, "limiting its memory"),
        (Resource::Core, 0, "forbidding core files"),
        (Resource::Nofile, FILES_MAX, "limiting its files"),
        (Resource::Fsize, 0, "forbidding files to grow"),
    ];
    for (resource, max, what) in limits {
        setrlimit(resource, Rlimit { current: Some(max), maximum: Some(max) }).map_err(said(what))?;
    }
    Ok(())
}
