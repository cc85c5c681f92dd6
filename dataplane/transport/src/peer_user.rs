//! Which user is at the other end of a Unix socket.
//!
//! Before: `memory.rs` has a socket that was connected or accepted. After: it talks to our own user only.

use std::os::fd::{AsFd, AsRawFd as _};

/// True = the process that connected (or listens) at the other end of `socket` is our own user's.
pub(crate) fn is_own(socket: impl AsFd) -> bool {
    let mut user = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let (into, size) = (&raw mut user, &raw mut bytes);
    // NEED: rustix's type has no room for process id 0, which is what the kernel says of a process in another PID namespace.
    // SAFETY: getsockopt writes at most `bytes` bytes to `into`, and their count to `size`; both live, and any bytes are a `ucred`.
    let asked = unsafe { libc::getsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, into.cast(), size) };
    asked == 0 && bytes as usize == size_of::<libc::ucred>() && user.uid == rustix::process::geteuid().as_raw()
}
