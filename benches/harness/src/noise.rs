//! What others take from the machine while we measure, and what little can be done against it.
//!
//! Before: `suite` starts a run, then a sample. After: a sample with more than [`NOISE_MAX`] is taken again.

use std::fs;
use std::time::{Duration, Instant};

/// Share of the machine that others (and the host, as steal) may take during a sample.
pub const NOISE_MAX: f64 = 0.06;
/// The kernel counts CPU time in ticks of this length; shorter samples cannot be judged.
const TICK: Duration = Duration::from_millis(10);

/// CPU use of the machine and of this process at one moment.
#[derive(Debug, Clone, Copy)]
pub struct CpuReading {
    at: Instant,
    /// Busy and stolen time of all cores.
    machine: Duration,
    /// User and system time of this process and of its waited-for children.
    ours: Duration,
    cores: u32,
}

impl CpuReading {
    /// Reads both. `None` where `/proc/stat` cannot be read. About 50 us.
    #[must_use]
    pub fn now() -> Option<Self> {
        let (machine, cores) = parse_proc_stat(&fs::read_to_string("/proc/stat").ok()?)?;
        let ours = cpu_of("/proc/self/stat", 11..15)?;
        Some(Self { at: Instant::now(), machine, ours, cores })
    }

    /// Share (0..=1) of the machine that others took since `earlier`. `None` when the span is too short for the kernel's ticks.
    #[must_use]
    pub fn others_since(&self, earlier: &Self) -> Option<f64> {
        self.others_beside_since(earlier, Duration::ZERO)
    }

    /// The same where `beside` of CPU time was used by processes that are ours and still run.
    #[must_use]
    pub fn others_beside_since(&self, earlier: &Self, beside: Duration) -> Option<f64> {
        let span = self.at.duration_since(earlier.at);
        if span < TICK * 10 {
            return None;
        }
        let machine = self.machine.saturating_sub(earlier.machine);
        let others = machine.saturating_sub(self.ours.saturating_sub(earlier.ours)).saturating_sub(beside);
        Some(others.as_secs_f64() / (span.as_secs_f64() * f64::from(self.cores)))
    }
}

/// User and system time of children that were waited for so far, in ticks of 10 ms. `None` where `/proc` cannot be read.
#[must_use]
pub fn cpu_of_children() -> Option<Duration> {
    cpu_of("/proc/self/stat", 13..15)
}

/// user, nice, system, irq, softirq and steal of the first line, and the number of `cpuN` lines.
fn parse_proc_stat(text: &str) -> Option<(Duration, u32)> {
    let fields: Vec<u64> = text.lines().next()?.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = fields[..] else { return None };
    let cores = text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count();
    Some((ticks(user + nice + system + irq + softirq + steal), u32::try_from(cores).ok()?.max(1)))
}

/// Of utime, stime, cutime and cstime of a `/proc/PID/stat`, from field 11 on behind its name, those in `which`.
fn cpu_of(path: &str, which: std::ops::Range<usize>) -> Option<Duration> {
    let text = fs::read_to_string(path).ok()?;
    // The name in parentheses may hold blanks; what follows it does not.
    let after_name = &text[text.rfind(')')? + 1..];
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let sum = fields.get(which)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    Some(ticks(sum))
}

fn ticks(n: u64) -> Duration {
    TICK * u32::try_from(n).unwrap_or(u32::MAX)
}

/// Takes this process out of the shell's scheduling group and asks for the highest priority: a session of its own is an autogroup of
/// its own, and there the nice value counts. Does what it may and says what it did; never fails, since figures are valid without it.
pub fn quieten() -> String {
    let session = rustix::process::setsid().is_ok();
    if session {
        // Ctrl-C goes to the old session; end with whoever started us.
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
    }
    let group = session && fs::write("/proc/self/autogroup", "-20").is_ok();
    let nice = rustix::process::setpriority_process(None, -20).is_ok();
    match (session, group, nice) {
        (true, true, true) => "own session, autogroup -20, nice -20".to_owned(),
        (true, false, true) => "own session, nice -20 (no autogroup here)".to_owned(),
        (false, _, true) => "nice -20 in the shell's session".to_owned(),
        (_, _, false) => "ordinary priority (raising it was refused)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_and_stolen_time_count_and_idle_does_not() {
        let text = "cpu  10 5 20 9000 300 1 4 60 0 0\ncpu0 5 2 10 4500 1 0 2 30 0 0\ncpu1 5 3 10 4500 2 1 2 30 0 0\nintr 1\n";
        assert_eq!(parse_proc_stat(text), Some((Duration::from_millis(1000), 2)));
        assert_eq!(parse_proc_stat("nonsense"), None);
    }

    #[test]
    fn our_own_work_is_not_noise() {
        let reading = |ms: u64, machine_ms: u64, ours_ms: u64| CpuReading {
            at: epoch() + Duration::from_millis(ms),
            machine: Duration::from_millis(machine_ms),
            ours: Duration::from_millis(ours_ms),
            cores: 2,
        };
        let start = reading(0, 0, 0);
        assert_eq!(reading(1000, 2000, 2000).others_since(&start), Some(0.0));
        assert_eq!(reading(1000, 2000, 1000).others_since(&start), Some(0.5));
        assert_eq!(reading(1000, 2000, 200).others_beside_since(&start, Duration::from_millis(800)), Some(0.5));
        assert_eq!(reading(20, 40, 40).others_since(&start), None, "two ticks say nothing");
    }

    fn epoch() -> Instant {
        static EPOCH: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *EPOCH.get_or_init(Instant::now)
    }

    #[test]
    fn the_kernel_s_own_files_are_read() {
        assert!(CpuReading::now().is_some());
    }
}
