//! One TCP socket under one io_uring, with a buffer each way: the flags, and the single receive, of our carrier, and nothing else.
//!
//! Before: `uring_tcp` writes into the outgoing buffer. After: bytes lie in the incoming one.
//!
//! Memory rule: the kernel may touch a buffer from `send` or `receive` until that operation is done; meanwhile nobody gets at it, and
//! dropping waits for the last completion.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd as _, OwnedFd};

use io_uring::{IoUring, opcode, types};
use rustix::net::{Shutdown, shutdown};

/// Entries of the queues: one operation each way, and none is ever without a place.
const ENTRIES: u32 = 8;
const MSG_NOSIGNAL: i32 = 0x4000;
const MSG_WAITALL: i32 = 0x100;
const SEND: u64 = 1;
const RECEIVE: u64 = 2;
/// Waits for the last completions when dropped.
const DROP_WAITS: u32 = 100;

/// What one look found.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Done {
    /// The bytes handed to `send` have gone.
    pub(crate) sent: bool,
    /// So many bytes have come; 0 at the peer's end.
    pub(crate) received: Option<usize>,
}

/// See the head of this file. Used on the thread that made it.
pub(crate) struct Socket {
    ring: IoUring,
    socket: OwnedFd,
    out: Box<[u8]>,
    into: Box<[u8]>,
    sending: Option<usize>,
    receiving: bool,
}

impl Socket {
    /// With buffers of so many bytes.
    pub(crate) fn new(socket: OwnedFd, out_bytes: usize, in_bytes: usize) -> Result<Self> {
        let ring = IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().build(ENTRIES)?;
        let buffer = |bytes| vec![0; bytes].into_boxed_slice();
        Ok(Socket { ring, socket, out: buffer(out_bytes), into: buffer(in_bytes), sending: None, receiving: false })
    }

    /// The outgoing buffer, while nothing is being sent.
    pub(crate) fn out(&mut self) -> &mut [u8] {
        assert!(self.sending.is_none(), "the kernel has the outgoing buffer");
        &mut self.out
    }

    /// The incoming buffer, while nothing is being received.
    pub(crate) fn came(&mut self) -> &mut [u8] {
        assert!(!self.receiving, "the kernel has the incoming buffer");
        &mut self.into
    }

    /// Sends the first `n` bytes of the outgoing buffer; goes with the next `submit`.
    pub(crate) fn send(&mut self, n: usize) -> Result<()> {
        assert!(self.sending.is_none() && n <= self.out.len(), "one send at a time, of what is there");
        let len = u32::try_from(n).map_err(Error::other)?;
        let send = opcode::Send::new(types::Fd(self.socket.as_raw_fd()), self.out.as_ptr(), len);
        self.sending = Some(n);
        self.push(&send.flags(MSG_NOSIGNAL | MSG_WAITALL).build().user_data(SEND))
    }

    /// Receives into the incoming buffer from `at` on; goes with the next `submit`.
    pub(crate) fn receive(&mut self, at: usize) -> Result<()> {
        assert!(!self.receiving && at < self.into.len(), "one receive at a time, with room");
        let room = &mut self.into[at..];
        let len = u32::try_from(room.len()).map_err(Error::other)?;
        let receive = opcode::Recv::new(types::Fd(self.socket.as_raw_fd()), room.as_mut_ptr(), len);
        self.receiving = true;
        self.push(&receive.build().user_data(RECEIVE))
    }

    fn push(&mut self, entry: &io_uring::squeue::Entry) -> Result<()> {
        // NEED: there is no safe way to hand memory to io_uring.
        // SAFETY: the entry names a range of `out` or `into`, whose heap memory never moves; `sending` or `receiving` is set until its completion
        // was seen, `out()` and `came()` refuse meanwhile, and `drop` waits for it or leaks the buffers.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| Error::from(ErrorKind::StorageFull))
    }

    /// Hands over what was pushed, and lets the kernel post what is done.
    pub(crate) fn submit(&mut self) -> Result<()> {
        self.ring.submit().map(drop)
    }

    /// One look. No system call unless the kernel flags work.
    #[inline]
    pub(crate) fn look(&mut self) -> Result<Done> {
        if self.ring.submission().taskrun() {
            self.submit()?;
        }
        let mut done = Done::default();
        while let Some(completion) = self.ring.completion().next() {
            let result = completion.result();
            if completion.user_data() == SEND {
                let wanted = self.sending.take();
                done.sent = true;
                if usize::try_from(result).ok() != wanted {
                    return Err(failed(result));
                }
            } else {
                self.receiving = false;
                done.received = Some(usize::try_from(result).map_err(|_| failed(result))?);
            }
        }
        Ok(done)
    }
}

/// Of a result that is none: the kernel's error, or a send that stopped half way, which a socket that is being shut down does.
fn failed(result: i32) -> Error {
    if result < 0 { Error::from_raw_os_error(-result) } else { ErrorKind::ConnectionReset.into() }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
        for _ in 0..DROP_WAITS {
            if self.sending.is_none() && !self.receiving {
                return;
            }
            let wait = types::Timespec::new().nsec(10_000_000);
            let _ = self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&wait));
            let _ = self.look();
        }
        // The kernel did not let go: leaking the memory is harmless, freeing it is not.
        std::mem::forget((std::mem::take(&mut self.out), std::mem::take(&mut self.into)));
    }
}
