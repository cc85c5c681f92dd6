//! What can only be had from the kernel by hand: a child's session and key descriptor, and a pidfd in the reactor.
//!
//! Before: `launch` has a command, `process` a pidfd. After: a worker with its key where it looks for it; an end that is waited for.
//! The one room of this crate with unsafe code: `Command` offers no safe way to make a session or to place a descriptor, and
//! tokio none to watch one that is not a socket.

use rustix::fs::OFlags;
use rustix::io::{FdFlags, dup2, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal, setsid};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use tokio::io::unix::AsyncFd;

/// Descriptor a worker finds its topology key on.
pub(crate) const KEY_FD: i32 = 3;

/// A copy of `key` that is number [`KEY_FD`] if that was free; if not, the number is taken, and stays out of reach of what `Command`
/// opens for itself.
pub(crate) fn reserve(key: &impl AsFd) -> std::io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(key, KEY_FD)?)
}

/// Gives the child of `command` a session of its own and `key` (from [`reserve`]) as descriptor [`KEY_FD`]. With `ends_with_parent`, the kernel kills
/// it when the *thread* that spawns it ends, so that thread must live as long as the worker may.
///
/// A session of its own keeps a terminal's ctrl-C and hang-up away from the worker.
pub(crate) fn prepare(command: &mut Command, key: OwnedFd, ends_with_parent: bool) {
    let parent = getpid();
    let leaks = leaking_descriptors();
    let in_child = move || -> std::io::Result<()> {
        setsid()?;
        if key.as_raw_fd() == KEY_FD {
            fcntl_setfd(&key, FdFlags::empty())?;
        } else {
            // NEED: `dup2` onto a chosen number; safe code can only ask for the lowest free one.
            // SAFETY: this is the child, after fork and before exec, with one thread. `reserve` saw number 3 taken in the
            // parent, so what is open as 3 here is the child's copy of some close-on-exec descriptor of the parent, which
            // nothing uses between here and exec; it is not the pipe on which `Command` reports a failed exec, since
            // that took a free number. ManuallyDrop: the number stays open into the worker, nobody closes it here.
            let mut three = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(KEY_FD) });
            dup2(&key, &mut three)?;
        }
        for number in &leaks {
            // NEED: descriptors that the supervisor itself was started with would live on in its workers.
            // SAFETY: this is the child with its one thread; the number was open in the parent when it forked. Were it
            // closed by another thread just before, the call answers EBADF and changes nothing.
            let _ = fcntl_setfd(unsafe { BorrowedFd::borrow_raw(*number) }, FdFlags::CLOEXEC);
        }
        if ends_with_parent {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() != Some(parent) {
                // The supervisor ended between fork and prctl.
                return Err(rustix::io::Errno::SRCH.into());
            }
        }
        Ok(())
    };
    // NEED: the steps above must happen in the child.
    // SAFETY: `in_child` makes only system calls (setsid, fcntl, dup2, prctl, getppid), all async-signal-safe; it takes no
    // lock and does not allocate: its errors are bare error numbers.
    unsafe { command.pre_exec(in_child) };
}

/// Descriptors beyond the key that would pass to a child: the supervisor's own are all close-on-exec, but whoever started it
/// may have left it some.
fn leaking_descriptors() -> Vec<RawFd> {
    let numbers = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|e| e.file_name().to_str()?.parse::<RawFd>().ok());
    numbers.filter(|n| *n > KEY_FD && !closes_on_exec(*n)).collect()
}

fn closes_on_exec(number: RawFd) -> bool {
    // One that is gone again was the listing's own.
    let Ok(info) = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")) else { return true };
    let flags = info.lines().find_map(|l| i32::from_str_radix(l.strip_prefix("flags:")?.trim(), 8).ok());
    flags.is_some_and(|f| f & OFlags::CLOEXEC.bits() as i32 != 0)
}

/// Waits until `pidfd` is readable: its process has ended. Errors mean that it cannot be watched.
pub(crate) async fn wait_readable(pidfd: OwnedFd) -> std::io::Result<()> {
    // NEED: the safe constructor is deprecated for descriptors of any kind.
    // SAFETY: an `OwnedFd` is open, is always the same number, and is owned by the `AsyncFd` until that is dropped.
    let fd = unsafe { AsyncFd::register(pidfd) }?;
    fd.readable().await?.retain_ready();
    Ok(())
}
