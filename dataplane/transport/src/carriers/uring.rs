//! What a carrier asks of io_uring: one ring per core loop, which receives into one doubly mapped buffer per link.
//!
//! Before: `mod.rs` has something to read or to write. After: a completion names the link. With DEFER_TASKRUN and TASKRUN_FLAG the kernel says
//! in shared memory when there is something to collect, so a loop may spin without a call.
//!
//! Memory rule: bytes the kernel may touch (a link's inflow, its segment in flight) belong to a `Slot`, are never reallocated, and live until
//! the last completion that names them: `Held` says which are out, is set and cleared here alone, and `Carrier` frees no slot while any is.
//! Closing = cancel, wait for the completions, then close.

use super::slot::Held;
use crate::carrier::{LINKS_MAX, LinkId};
use crate::refused::CarrierRefused;
use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// Entries of the submission queue; a fuller turn submits more than once.
const SUBMISSIONS: u32 = 256;
/// Entries of the completion queue.
const COMPLETIONS: u32 = 8192;
/// Operations in flight at most: receive, send, watch and cancel per connection, and the wake-up.
const IN_FLIGHT_MAX: usize = 4 * 2 * LINKS_MAX + 1;
const _: () = assert!(COMPLETIONS as usize >= 2 * IN_FLIGHT_MAX, "completions never overflow");
/// Set-ups tried while memory is short, and the pause between them.
const SETUP_TRIES: u32 = 5;
const SETUP_PAUSE: Duration = Duration::from_millis(50);
/// Smallest submission queue accepted when memory stays short.
const SUBMISSIONS_MIN: u32 = 32;
/// Pushes tried against a full submission queue before that counts as a bug.
const PUSH_TRIES: u32 = 10_000;

const MSG_NOSIGNAL: i32 = 0x4000;
const MSG_WAITALL: i32 = 0x100;
const POLLIN: u32 = 0x1;
const POLLRDHUP: u32 = 0x2000;

const OP_RECV: u64 = 1 << 32;
const OP_SEND: u64 = 2 << 32;
const OP_CANCEL: u64 = 3 << 32;
const OP_WAKE: u64 = 4 << 32;
const OP_WATCH: u64 = 5 << 32;
const OP_MASK: u64 = 0xff << 32;

/// What a completion says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    Received,
    Sent,
    /// The other end of a watched socket is closed.
    HungUp,
    Cancelled,
}

/// A completion that concerns a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Completion {
    pub(super) link: LinkId,
    pub(super) done: Done,
    /// Bytes, or a negative error number.
    pub(super) result: i32,
}

/// See the head of this file. Made, used and dropped on one thread.
pub(super) struct Uring {
    ring: IoUring,
    armed: Option<RawFd>,
    /// Calls of `io_uring_enter`.
    pub(super) calls: u64,
    /// io_uring with SINGLE_ISSUER serves one thread; a raw pointer makes that the type system's business.
    one_thread: PhantomData<*const ()>,
}

impl Uring {
    /// Sets the ring up and proves that it receives. Errors: one line that says what the system refuses. May take 250 ms when memory is
    /// short.
    pub(super) fn open() -> Result<Self, CarrierRefused> {
        let mut uring = Uring { ring: set_up()?, armed: None, calls: 0, one_thread: PhantomData };
        uring.prove().map_err(|e| CarrierRefused::new("io_uring recv", &e))?;
        Ok(uring)
    }

    /// One byte through a pair of sockets: a filter may allow the set-up and refuse what follows.
    fn prove(&mut self) -> io::Result<()> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        rustix::io::write(&theirs, &[0x5A])?;
        let mut byte = Box::new([0u8; 1]);
        let recv = opcode::Recv::new(types::Fd(ours.as_raw_fd()), byte.as_mut_ptr(), 1).build();
        self.push(&recv);
        let entered = self.ring.submit_and_wait(1);
        match (entered, self.ring.completion().next().map(|c| c.result())) {
            (Ok(_), Some(1)) if *byte == [0x5A] => Ok(()),
            (Ok(_), Some(error)) if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            (Err(error), done) => {
                if done.is_none() {
                    // Whether the kernel holds the byte is not known; one leaked byte is harmless.
                    Box::leak(byte);
                }
                Err(error)
            }
            (Ok(_), _) => {
                Box::leak(byte);
                Err(io::ErrorKind::InvalidData.into())
            }
        }
    }

    /// True when a call is due: something waits to be submitted, or the kernel has something to hand over.
    #[inline]
    pub(super) fn needs_enter(&mut self) -> bool {
        let submission = self.ring.submission();
        !submission.is_empty() || submission.taskrun() || submission.cq_overflow()
    }

    /// True when something waits to be submitted.
    #[inline]
    pub(super) fn has_submissions(&mut self) -> bool {
        !self.ring.submission().is_empty()
    }

    /// Submits what waits and lets the kernel post what is done.
    pub(super) fn enter(&mut self) {
        self.calls += 1;
        tolerate(self.ring.submit());
    }

    /// Adds what is done to `into`, wake-ups left out.
    #[inline]
    pub(super) fn collect(&mut self, into: &mut Vec<Completion>) {
        for c in self.ring.completion() {
            let done = match c.user_data() & OP_MASK {
                OP_WAKE => {
                    if self.armed == Some(c.user_data() as u32 as RawFd) {
                        self.armed = None;
                    }
                    continue;
                }
                OP_RECV => Done::Received,
                OP_SEND => Done::Sent,
                OP_WATCH => Done::HungUp,
                OP_CANCEL => Done::Cancelled,
                other => unreachable!("completions carry an operation of ours, not {other:x}"),
            };
            into.push(Completion { link: LinkId::from_bits(c.user_data() as u32), done, result: c.result() });
        }
    }

    /// Notes that an operation of a slot is over: the kernel holds what it named no more.
    pub(super) fn settle(held: &mut Held, done: Done) {
        match done {
            Done::Received => held.receiving = false,
            Done::Sent => held.sending = false,
            Done::HungUp => held.watching = false,
            // Any answer will do: the operations named may have ended by themselves (ENOENT, EALREADY).
            Done::Cancelled => held.cancelling = false,
        }
    }

    /// Receives into `room`: that of a slot's inflow, or of its TLS session.
    pub(super) fn receive(&mut self, link: LinkId, fd: BorrowedFd<'_>, room: &mut [u8], held: &mut Held) {
        debug_assert!(!held.receiving);
        assert!(!room.is_empty(), "a whole segment is at most half the ring, so an unfinished one leaves room");
        held.receiving = true;
        // NEED: io_uring takes raw pointers. SAFETY (of `push`, for this entry): nothing borrows `room` once this call is over: `Inflow::window`
        // lends only what came before, and a session gives out one room at a time and keeps it in place. It stays there until the slot is
        // dropped, which happens only when `receiving` is false again, cleared by this operation's completion alone.
        let recv = opcode::Recv::new(types::Fd(fd.as_raw_fd()), room.as_mut_ptr(), room.len() as u32).build();
        self.push(&recv.user_data(OP_RECV | u64::from(link.bits())));
    }

    /// Sends the segment in flight of a link, `Link::flight`, or what its TLS session has sealed, `Tls::outgoing`.
    pub(super) fn send(&mut self, link: LinkId, fd: BorrowedFd<'_>, flight: [&[u8]; 2], held: &mut Held) {
        let [head, rest] = flight;
        debug_assert!(!held.sending && !rest.is_empty());
        held.sending = true;
        let (fd, flags) = (types::Fd(fd.as_raw_fd()), MSG_NOSIGNAL | MSG_WAITALL);
        // SAFETY (of `push`, for this entry): both are memory of a boxed slice or a vector that its owner neither replaces nor writes, as far as it
        // is unwritten, and that lives until the slot is dropped, which happens only when `sending` is false again, cleared by this operation's
        // completion alone. The description of the two lies in `held`, in a box of its own that is written only here, so at no time while
        // `sending` is true, and lives as long as the slot.
        let send = if head.is_empty() {
            opcode::Send::new(fd, rest.as_ptr(), rest.len() as u32).flags(flags).build()
        } else {
            let parts = held.parts.describe([head, rest]);
            opcode::SendMsg::new(fd, parts).flags(flags as u32).build()
        };
        self.push(&send.user_data(OP_SEND | u64::from(link.bits())));
    }

    /// Tells by a completion when the other end of a socket that carries no bytes is closed.
    pub(super) fn watch(&mut self, link: LinkId, fd: BorrowedFd<'_>, held: &mut Held) {
        held.watching = true;
        let poll = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), POLLIN | POLLRDHUP).build();
        self.push(&poll.user_data(OP_WATCH | u64::from(link.bits())));
    }

    /// Cancels every operation on a descriptor; each still completes.
    pub(super) fn cancel(&mut self, link: LinkId, fd: BorrowedFd<'_>, held: &mut Held) {
        held.cancelling = true;
        let cancel = opcode::AsyncCancel2::new(types::CancelBuilder::fd(types::Fd(fd.as_raw_fd())).all()).build();
        self.push(&cancel.user_data(OP_CANCEL | u64::from(link.bits())));
    }

    /// Waits for a completion, for `wake` to become readable, or for `timeout`.
    pub(super) fn wait(&mut self, wake: Option<BorrowedFd<'_>>, timeout: Duration) {
        if let Some(wake) = wake.filter(|w| self.armed != Some(w.as_raw_fd())) {
            let poll = opcode::PollAdd::new(types::Fd(wake.as_raw_fd()), POLLIN).build();
            self.push(&poll.user_data(OP_WAKE | wake.as_raw_fd() as u64));
            self.armed = Some(wake.as_raw_fd());
        }
        let spec = types::Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos());
        self.calls += 1;
        tolerate(self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&spec)));
    }

    fn push(&mut self, entry: &io_uring::squeue::Entry) {
        for _ in 0..PUSH_TRIES {
            // SAFETY: memory named by an entry is valid and unaliased until its completion: argued at `receive` and `send`, the only entries
            // that name memory, and at `prove`, which waits for its own or leaks it.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            self.enter();
        }
        panic!("io_uring takes no submission: {SUBMISSIONS} wait and the kernel accepts none");
    }
}

/// Names two parts of a segment to the kernel, which reads it while the send is out.
pub(super) struct Parts {
    message: libc::msghdr,
    parts: [libc::iovec; 2],
}

impl Parts {
    /// Of nothing yet.
    pub(super) fn none() -> Box<Self> {
        let part = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: a `msghdr` of zeros is one with no name, no parts, no control data and no flags.
        Box::new(Parts { message: unsafe { std::mem::zeroed() }, parts: [part; 2] })
    }

    fn describe(&mut self, parts: [&[u8]; 2]) -> *const libc::msghdr {
        self.parts = parts.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
        self.message.msg_iov = self.parts.as_mut_ptr();
        self.message.msg_iovlen = self.parts.len();
        &raw const self.message
    }
}

/// Errors of `io_uring_enter` that only mean "later"; any other means the ring is broken, which is a bug of this file.
fn tolerate(result: io::Result<usize>) {
    if let Err(e) = result {
        let errno = Errno::from_io_error(&e);
        let later = [Errno::TIME, Errno::INTR, Errno::AGAIN, Errno::BUSY, Errno::NOMEM];
        assert!(errno.is_some_and(|e| later.contains(&e)), "io_uring_enter: {e}");
    }
}

/// The best ring this kernel gives: first with all flags, then with what older kernels know; with fewer entries when memory is short.
fn set_up() -> Result<IoUring, CarrierRefused> {
    let mut entries = SUBMISSIONS;
    let mut tries = 0;
    let mut level = 0;
    loop {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(COMPLETIONS).setup_clamp();
        match level {
            0 => builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag(),
            1 => builder.setup_coop_taskrun().setup_taskrun_flag(),
            _ => &mut builder,
        };
        let error = match builder.build(entries) {
            Ok(ring) if ring.params().is_feature_ext_arg() && ring.params().is_feature_nodrop() => return Ok(ring),
            Ok(_) => return Err(CarrierRefused::new("io_uring features", &io::Error::from(Errno::NOSYS))),
            Err(error) => error,
        };
        match Errno::from_io_error(&error) {
            Some(Errno::INVAL) if level < 2 => level += 1,
            Some(Errno::NOMEM) if tries < SETUP_TRIES => {
                tries += 1;
                std::thread::sleep(SETUP_PAUSE);
            }
            Some(Errno::NOMEM) if entries > SUBMISSIONS_MIN => entries /= 2,
            _ => return Err(CarrierRefused::new("io_uring_setup", &error)),
        }
    }
}
