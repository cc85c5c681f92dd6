//! Why io_uring cannot be had, in one line that says what to do.
//!
//! Before: `carriers/uring.rs` was refused. After: the worker logs it once and goes on with epoll, or ends where the configuration says so.

use rustix::io::Errno;
use std::fmt;
use std::io;

/// io_uring cannot be had. Its text is one line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarrierRefused {
    call: &'static str,
    errno: Errno,
    hints: String,
    /// No other carrier may take its place.
    fatal: bool,
}

impl fmt::Display for CarrierRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.errno {
            Errno::PERM => "EPERM".to_owned(),
            Errno::NOSYS => "ENOSYS".to_owned(),
            Errno::NOMEM => "ENOMEM".to_owned(),
            Errno::ACCESS => "EACCES".to_owned(),
            Errno::INVAL => "EINVAL".to_owned(),
            other => other.to_string(),
        };
        write!(f, "transport: io_uring unavailable ({}: {name}; {})", self.call, self.hints)?;
        f.write_str(if self.fatal {
            " and transport.carrier=io_uring allows no other; allow io_uring, or set transport.carrier=auto"
        } else {
            " - using epoll, which costs more system calls a tuple; set transport.carrier=epoll to silence this, =io_uring to make it fatal"
        })
    }
}

impl std::error::Error for CarrierRefused {}

impl CarrierRefused {
    pub(crate) fn new(call: &'static str, error: &io::Error) -> Self {
        let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
        let mut hints = Vec::new();
        // Only in an error's text: what on this machine usually explains the refusal.
        if let Ok(text) = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
            && text.trim() != "0"
        {
            hints.push(format!("kernel.io_uring_disabled={}", text.trim()));
        }
        if let Ok(status) = std::fs::read_to_string("/proc/thread-self/status")
            && status.lines().any(|l| l.starts_with("Seccomp:") && !l.ends_with('0'))
        {
            hints.push("a seccomp filter is active".to_owned());
        }
        if errno == Errno::NOMEM {
            hints.push("the memlock limit or the memory limit is too small".to_owned());
        }
        if hints.is_empty() {
            hints.push("the kernel gives no further reason".to_owned());
        }
        CarrierRefused { call, errno, hints: hints.join(", "), fatal: false }
    }

    pub(crate) fn fatal(self) -> Self {
        CarrierRefused { fatal: true, ..self }
    }
}
