//! How long each core loop's thread has been ready to run without its core, as the kernel counts it.

use std::path::PathBuf;
use std::time::Duration;

/// Files to read, by loop; `None` where the kernel shows none.
pub(crate) struct Delays(Vec<Option<PathBuf>>);

impl Delays {
    /// Finds the threads by their names. Call once they run.
    pub(crate) fn of_loops(n_loops: usize) -> Self {
        let mut files = vec![None; n_loops];
        for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            let on_loop = name.trim().strip_prefix("loop-").and_then(|n| n.parse::<usize>().ok());
            if let Some(file) = on_loop.and_then(|n| files.get_mut(n)) {
                *file = Some(task.path().join("schedstat"));
            }
        }
        Delays(files)
    }

    /// Of one loop since it began. Zero where the kernel does not tell. One small read of `/proc`.
    pub(crate) fn of(&self, on_loop: usize) -> Duration {
        // "time on the core, time ready without it, slices", in nanoseconds.
        let text = self.0[on_loop].as_ref().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        Duration::from_nanos(text.split(' ').nth(1).and_then(|ns| ns.parse().ok()).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_thread_is_found_by_its_name() {
        let (end, wait) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("loop-1".into()).spawn(move || wait.recv()).unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        // A thread gives itself its name.
        while Delays::of_loops(2).0[1].is_none() {
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
        let delays = Delays::of_loops(2);
        assert!(delays.0[0].is_none() && delays.of(0) == Duration::ZERO);
        let text = std::fs::read_to_string(delays.0[1].as_ref().unwrap()).unwrap();
        assert_eq!(text.trim().split(' ').count(), 3, "{text}");
        drop(end);
        let _ = thread.join();
    }
}
