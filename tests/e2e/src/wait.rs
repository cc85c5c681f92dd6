//! Waiting for conditions, and for being alone on the machine.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Pause between two looks at a condition.
const POLL: Duration = Duration::from_millis(50);

static MACHINE: Mutex<()> = Mutex::new(());

/// One cluster at a time: workers pin themselves to cores, and two clusters would take each other's.
pub fn alone() -> MutexGuard<'static, ()> {
    // A test that failed leaves nothing behind that the next one must not see.
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks until there is an answer; panics with `what` and the last reason after `limit`.
pub fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + limit;
    loop {
        match look() {
            Ok(answer) => return answer,
            Err(why) => assert!(Instant::now() < end, "{what}: not within {} s: {why}", limit.as_secs()),
        }
        std::thread::sleep(POLL);
    }
}
