//! Pinning, and the proof of it. `core_affinity` only to set: its enumeration hides isolated cores.

use rustix::thread::{CpuSet, sched_getaffinity};

/// Highest core id looked for.
const CORES_MAX: usize = 1024;

/// Cores the calling thread may run on, ascending.
pub fn allowed_cores() -> Vec<u32> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CORES_MAX).filter(|c| set.is_set(*c)).map(|c| c as u32).collect()
}

/// Pins the calling thread to one core and reads the result back. The error names the core and what the kernel allows.
pub fn pin(core: u32) -> Result<(), String> {
    core_affinity::set_for_current(core_affinity::CoreId { id: core as usize });
    let allowed = allowed_cores();
    if allowed == [core] {
        return Ok(());
    }
    Err(format!("cannot pin a core loop to core {core}: the kernel allows {allowed:?}; choose from the cores this process may run on"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_pin_is_read_back_and_a_missing_core_is_an_error() {
        std::thread::spawn(|| {
            let first = super::allowed_cores()[0];
            super::pin(first).unwrap();
            assert!(super::pin(1023).unwrap_err().contains("1023"));
        })
        .join()
        .unwrap();
    }
}
