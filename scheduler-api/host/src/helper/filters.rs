//! The two system call filters. Refused calls answer EPERM, so that an author reads an error instead of losing the process.
//!
//! First, before `dlopen` (which opens and maps files and runs constructors): a list of what nobody may do. Second, once the
//! instance exists: a list of what a scheduler may do at all. Found by running the shipped plugins and the templates in Rust, C and C++
//! under it, with panics, exceptions and threads; `tests/under_the_filters.rs` does that again.

use crate::inspect::{FLAG_THREADS, Manifest};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Cmp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
    apply_filter,
};
use std::collections::BTreeMap;

/// Never: other processes, other programs, sockets, mounts, kernel keys and programs, rings that make calls for one.
const DENIED: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_userfaultfd,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_truncate,
];

/// The older forms of the same on x86-64.
#[cfg(target_arch = "x86_64")]
const DENIED_OLD: &[i64] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_mknod,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_OLD: &[i64] = &[];

/// Memory, time, the channel, and dying properly.
const ALLOWED: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_ppoll,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// What starting a thread takes beside `clone`, for plugins with the flag `threads` in their manifest.
const ALLOWED_FOR_THREADS: &[i64] = &[libc::SYS_clone3, libc::SYS_set_robust_list, libc::SYS_rseq];

#[cfg(target_arch = "x86_64")]
const ALLOWED_OLD: &[i64] = &[libc::SYS_poll];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_OLD: &[i64] = &[];

/// The first filter. `Err` says why there is none.
pub(super) fn before_load() -> Result<(), String> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = DENIED.iter().chain(DENIED_OLD).map(|call| (*call, Vec::new())).collect();
    // A process of its own would outlive the helper.
    rules.insert(libc::SYS_clone, clone_where(0)?);
    install(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32))?;
    // Its flags lie in memory, where no filter can look. Who is told that it does not exist takes `clone`.
    install([(libc::SYS_clone3, Vec::new())].into(), SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))
}

/// `clone` where the flag that makes a thread of it has this value.
fn clone_where(thread_flag: u64) -> Result<Vec<SeccompRule>, String> {
    let flag = SeccompCondition::new(0, Len::Qword, Cmp::MaskedEq(libc::CLONE_THREAD as u64), thread_flag);
    flag.and_then(|c| SeccompRule::new(vec![c])).map(|rule| vec![rule]).map_err(said)
}

fn said(e: seccompiler::BackendError) -> String {
    format!("building the system call filter: {e}")
}

/// The second filter. `Err` says why there is none.
pub(super) fn after_create(manifest: Option<&Manifest>) -> Result<(), String> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().chain(ALLOWED_OLD).map(|call| (*call, Vec::new())).collect();
    let not_executable =
        || SeccompRule::new(vec![SeccompCondition::new(2, Len::Dword, Cmp::MaskedEq(libc::PROT_EXEC as u64), 0)?]).map(|rule| vec![rule]);
    rules.insert(libc::SYS_mmap, not_executable().map_err(said)?);
    rules.insert(libc::SYS_mprotect, not_executable().map_err(said)?);
    // abort() signals its own process, and nobody else's.
    let own_pid = u64::from(std::process::id());
    let to_itself = SeccompCondition::new(0, Len::Dword, Cmp::Eq, own_pid).and_then(|c| SeccompRule::new(vec![c])).map_err(said)?;
    rules.insert(libc::SYS_tgkill, vec![to_itself]);
    if manifest.is_some_and(|m| m.flags.iter().any(|f| f == FLAG_THREADS)) {
        rules.insert(libc::SYS_clone, clone_where(libc::CLONE_THREAD as u64)?);
        rules.extend(ALLOWED_FOR_THREADS.iter().map(|call| (*call, Vec::new())));
    }
    install(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

fn install(rules: BTreeMap<i64, Vec<SeccompRule>>, otherwise: SeccompAction, listed: SeccompAction) -> Result<(), String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|e| format!("no system call filter: {e}"))?;
    let filter = SeccompFilter::new(rules, otherwise, listed, arch).map_err(|e| format!("building the system call filter: {e}"))?;
    let program = BpfProgram::try_from(filter).map_err(|e| format!("building the system call filter: {e}"))?;
    apply_filter(&program).map_err(|e| format!("the kernel refused the system call filter: {e}"))
}
