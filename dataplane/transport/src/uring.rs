//! The io_uring carrier: one ring per core loop, which receives into one doubly mapped buffer per link and handles frames in place.
//!
//! Before: `UringCarrier::flush` sends what `link.rs` formed from staged frames. After: `UringCarrier::poll` of the peer hands the
//! frames to its loop as slices of the receive ring.
//! One turn of a loop is `poll`, work, `flush`: at most two system calls, none when nothing is due. With DEFER_TASKRUN and
//! TASKRUN_FLAG the kernel says in shared memory when there is something to collect, so a loop may spin without a call.
//!
//! Memory rule: bytes the kernel may touch (a receive ring, the segment in flight) belong to a `Slot`, are never reallocated, and are
//! freed only after the last completion that names them. Closing = cancel, wait for the completions, then close.

use crate::carrier::{Counters, Ending, Inbound, LINKS_MAX, LinkEnd, LinkId, PIECE_POOL_BYTES, Peer};
use crate::link::{KEEPALIVE_NS, Link, Lost, PiecePool, Received};
use crate::wire;
use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use saetta_ring::Mirror;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// Entries of the submission queue; a fuller turn submits more than once.
const SUBMISSIONS: u32 = 256;
/// Entries of the completion queue.
const COMPLETIONS: u32 = 2048;
/// Operations in flight at most: receive, send and cancel per link, and the wake-up.
const IN_FLIGHT_MAX: usize = 3 * LINKS_MAX + 1;
const _: () = assert!(COMPLETIONS as usize >= 2 * IN_FLIGHT_MAX, "completions never overflow");
/// Set-ups tried while memory is short, and the pause between them.
const SETUP_TRIES: u32 = 5;
const SETUP_PAUSE: Duration = Duration::from_millis(50);
/// Smallest submission queue accepted when memory stays short.
const SUBMISSIONS_MIN: u32 = 32;
/// How often links are looked at for silence and reports.
const SWEEP_NS: u64 = 10_000_000;
/// A gap between two polls beyond this is this side's own doing (stuck or stopped) and not counted as the peer's silence.
const OWN_GAP_NS: u64 = 2 * KEEPALIVE_NS;
/// Longest wait for cancelled operations when the carrier is dropped.
const DROP_WAIT: Duration = Duration::from_secs(2);
/// Longest single wait, whatever the caller asks.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Pushes tried against a full submission queue before that counts as a bug.
const PUSH_TRIES: u32 = 10_000;

const MSG_NOSIGNAL: i32 = 0x4000;
const MSG_WAITALL: i32 = 0x100;
const POLLIN: u32 = 0x1;

const OP_RECV: u64 = 1 << 32;
const OP_SEND: u64 = 2 << 32;
const OP_CANCEL: u64 = 3 << 32;
const OP_WAKE: u64 = 4 << 32;
const OP_MASK: u64 = 0xff << 32;

/// io_uring cannot be had. Its text is one line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarrierRefused {
    call: &'static str,
    errno: Errno,
    hints: String,
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
        write!(
            f,
            "transport: io_uring unavailable ({}: {name}; {}) and this version has no other carrier between workers; allow \
             io_uring, or run the topology with topology.workers=1",
            self.call, self.hints
        )
    }
}

impl std::error::Error for CarrierRefused {}

impl CarrierRefused {
    fn new(call: &'static str, error: &io::Error) -> Self {
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
        CarrierRefused { call, errno, hints: hints.join(", ") }
    }
}

/// One link with everything the kernel may touch on its behalf.
struct Slot {
    id: LinkId,
    link: Link,
    peer: Peer,
    /// Received bytes from `tail` on; the kernel writes behind `head` while `receiving`.
    ring: Mirror,
    tail: u64,
    head: u64,
    receiving: bool,
    sending: bool,
    cancelling: bool,
    /// A send failed. Nothing more is sent; what the peer left for us is read to its end, which then ends the link.
    send_failed: Option<Lost>,
    /// Listed in `UringCarrier::ready`.
    listed: bool,
    /// The front segment waits for the pool; nothing is read meanwhile.
    waiting: bool,
    /// Over: waits for its last completion. `ended` has been or is about to be told.
    closing: bool,
    /// Closed last, after the buffers above are no longer in flight (fields drop in order; see `UringCarrier::reap`).
    socket: OwnedFd,
}

/// See the head of this file. Made, used and dropped on one thread: the core loop's.
///
/// ```compile_fail
/// fn moves_to_another_thread<T: Send>() {}
/// moves_to_another_thread::<saetta_transport::UringCarrier>();
/// ```
pub struct UringCarrier {
    ring: IoUring,
    slots: Vec<Option<Box<Slot>>>,
    /// Generation of the next link in each place.
    generations: Vec<u16>,
    /// Links with something to form or to continue, each once.
    ready: Vec<LinkId>,
    /// Links that ended and whose end is not told yet.
    endings: Vec<(LinkId, LinkEnd)>,
    completions: Vec<(u64, i32)>,
    send_pool: PiecePool,
    receive_pool: PiecePool,
    /// Links in `Slot::waiting`.
    waiting: u32,
    armed: Option<RawFd>,
    now_ns: u64,
    sweep_ns: u64,
    counters: Counters,
    /// io_uring with SINGLE_ISSUER serves one thread; a raw pointer makes that the type system's business.
    one_thread: PhantomData<*const ()>,
}

impl UringCarrier {
    /// Sets the ring up and proves that it works. Errors: one line that says what the system refuses. May take 250 ms when memory is
    /// short.
    pub fn new() -> Result<Self, CarrierRefused> {
        let mut carrier = UringCarrier {
            ring: set_up()?,
            slots: Vec::new(),
            generations: Vec::new(),
            ready: Vec::with_capacity(LINKS_MAX),
            endings: Vec::new(),
            completions: Vec::with_capacity(COMPLETIONS as usize),
            send_pool: PiecePool::new(PIECE_POOL_BYTES),
            receive_pool: PiecePool::new(PIECE_POOL_BYTES),
            waiting: 0,
            armed: None,
            now_ns: 0,
            sweep_ns: 0,
            counters: Counters::default(),
            one_thread: PhantomData,
        };
        carrier.push(&opcode::Nop::new().build().user_data(0));
        carrier.ring.submit_and_wait(1).map_err(|e| CarrierRefused::new("io_uring_enter", &e))?;
        let nop = carrier.ring.completion().next();
        match nop {
            Some(nop) if nop.result() >= 0 => Ok(carrier),
            Some(nop) => Err(CarrierRefused::new("io_uring nop", &io::Error::from_raw_os_error(-nop.result()))),
            None => Err(CarrierRefused::new("io_uring nop", &io::Error::from(io::ErrorKind::TimedOut))),
        }
    }

    /// Takes a socket whose handshake is done. Errors: [`LINKS_MAX`] links are held, no memory, a ring size the handshake never gives.
    pub fn add(&mut self, socket: OwnedFd, peer: Peer, now_ns: u64) -> io::Result<LinkId> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        let (local, remote) = (peer.local_ring_bytes as usize, peer.remote_ring_bytes as usize);
        if !wire::ring_bytes_valid(local) || !wire::ring_bytes_valid(remote) {
            return Err(invalid(format!("receive rings of {local} and {remote} bytes: powers of two from 16 KiB to 4 MiB are allowed")));
        }
        // io_uring arms its own poll only for a blocking descriptor; a non-blocking one would answer EAGAIN.
        let flags = rustix::fs::fcntl_getfl(&socket)?;
        rustix::fs::fcntl_setfl(&socket, flags - rustix::fs::OFlags::NONBLOCK)?;
        let place = match self.slots.iter().position(Option::is_none) {
            Some(place) => place,
            None if self.slots.len() == LINKS_MAX => {
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, format!("this core loop holds its {LINKS_MAX} links already")));
            }
            None => {
                self.slots.push(None);
                self.generations.push(0);
                self.slots.len() - 1
            }
        };
        let ring = Mirror::new(local)?;
        let id = LinkId::new(place, self.generations[place]);
        self.generations[place] = self.generations[place].wrapping_add(1);
        self.now_ns = self.now_ns.max(now_ns);
        self.slots[place] = Some(Box::new(Slot {
            id,
            link: Link::new(local, remote, self.now_ns),
            peer,
            ring,
            tail: 0,
            head: 0,
            receiving: false,
            sending: false,
            cancelling: false,
            send_failed: None,
            listed: false,
            waiting: false,
            closing: false,
            socket,
        }));
        self.counters.links_added += 1;
        self.start_receive(place);
        Ok(id)
    }

    /// Who is at the other end; `None` after the link's end.
    pub fn peer(&self, link: LinkId) -> Option<&Peer> {
        self.live(link).map(|s| &s.peer)
    }

    /// Links that have not ended, in order of place.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, &Peer)> {
        self.slots.iter().flatten().filter(|s| !s.closing).map(|s| (s.id, &s.peer))
    }

    /// Frame bytes that may still be staged on a link; 0 after its end or a goodbye. See [`Link::room`].
    #[inline]
    pub fn room(&self, link: LinkId) -> usize {
        self.live(link).map_or(0, |s| s.link.room())
    }

    /// Takes one whole frame or nothing. A frame with nothing else staged may be of any size up to the limit. False = ask again after
    /// a later `poll`. One copy.
    #[inline]
    pub fn stage(&mut self, link: LinkId, frame: &[u8]) -> bool {
        let Some(slot) = live_mut(&mut self.slots, link) else { return false };
        let large = frame.len() > slot.link.room();
        if !slot.link.stage(frame, &mut self.send_pool) {
            return false;
        }
        self.counters.large_out += u64::from(large);
        list(&mut self.ready, slot);
        true
    }

    /// Grants the peer credit for one of our executors, in cumulative bytes. The newest wins; it goes with the next segment, also
    /// without data. Nothing on an ended link.
    pub fn grant(&mut self, link: LinkId, executor: u32, limit: u64) {
        if let Some(slot) = live_mut(&mut self.slots, link) {
            slot.link.grant(executor, limit);
            list(&mut self.ready, slot);
        }
    }

    /// Forms one segment per link that has something staged and none in flight, and submits all in one call. Returns the frame bytes
    /// handed over. No system call when there is nothing to do.
    pub fn flush(&mut self, now_ns: u64) -> usize {
        self.now_ns = self.now_ns.max(now_ns);
        let before = self.counters.frame_bytes_out;
        let mut ready = std::mem::take(&mut self.ready);
        for id in ready.drain(..) {
            if let Some(slot) = live_mut(&mut self.slots, id) {
                slot.listed = false;
                self.start_send(id.place());
            }
        }
        // Nothing was listed meanwhile: `start_send` lists nobody.
        self.ready = ready;
        if !self.ring.submission().is_empty() {
            self.enter();
        }
        (self.counters.frame_bytes_out - before) as usize
    }

    /// Collects completions, hands over frames, credits and ends. Returns the number of completions. No system call unless the kernel
    /// flags work or operations wait to be submitted. Proofs of life and received counts that fall due go with the next `flush`, so call
    /// both in each turn, also when nothing was staged.
    pub fn poll(&mut self, now_ns: u64, inbound: &mut dyn Inbound) -> usize {
        let gap_ns = now_ns.saturating_sub(self.now_ns);
        self.now_ns = self.now_ns.max(now_ns);
        if gap_ns > OWN_GAP_NS {
            for slot in self.slots.iter_mut().flatten() {
                slot.link.pardon(gap_ns);
            }
        }
        let submission = self.ring.submission();
        let enter = !submission.is_empty() || submission.taskrun() || submission.cq_overflow();
        drop(submission);
        if enter {
            self.enter();
        }
        let mut completions = std::mem::take(&mut self.completions);
        completions.extend(self.ring.completion().map(|c| (c.user_data(), c.result())));
        let mut n = 0;
        for (user_data, result) in completions.drain(..) {
            n += usize::from(self.complete(user_data, result, inbound));
        }
        self.completions = completions;
        if self.waiting > 0 {
            self.retry_waiting(inbound);
        }
        if self.now_ns >= self.sweep_ns {
            self.sweep();
        }
        for (id, end) in std::mem::take(&mut self.endings) {
            n += 1;
            inbound.ended(id, end);
        }
        n
    }

    /// Waits for a completion, for `wake` to become readable, or for `timeout` (at most until a link's own deadline). Sends what is
    /// staged first. Call `poll` afterwards, whatever it was; give the same `wake` each time.
    pub fn wait(&mut self, wake: BorrowedFd<'_>, timeout: Duration) {
        if !self.endings.is_empty() {
            return;
        }
        self.flush(self.now_ns);
        if self.armed != Some(wake.as_raw_fd()) {
            let poll = opcode::PollAdd::new(types::Fd(wake.as_raw_fd()), POLLIN).build().user_data(OP_WAKE | wake.as_raw_fd() as u64);
            self.push(&poll);
            self.armed = Some(wake.as_raw_fd());
        }
        let live = self.slots.iter().flatten().filter(|s| !s.closing);
        let deadline_ns = live.map(|s| s.link.deadline_ns().min(self.now_ns + KEEPALIVE_NS)).min().unwrap_or(u64::MAX);
        let own = Duration::from_nanos(deadline_ns.saturating_sub(self.now_ns));
        let timeout = timeout.min(own).min(WAIT_MAX);
        let spec = types::Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos());
        self.counters.enters += 1;
        let result = self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&spec));
        tolerate(result);
        self.sweep_ns = 0;
    }

    /// Nothing staged, nothing in flight, no end untold.
    pub fn idle(&self) -> bool {
        self.endings.is_empty() && self.slots.iter().flatten().all(|s| !s.closing && !s.link.has_work() && !s.link.in_flight())
    }

    /// Everything staged on this link was written and the peer counts it; true after the link's end.
    pub fn drained(&self, link: LinkId) -> bool {
        self.live(link).is_none_or(|s| s.link.drained())
    }

    /// Frame bytes ever staged on a link and those the peer counts as received; `None` after its end.
    pub fn positions(&self, link: LinkId) -> Option<(u64, u64)> {
        self.live(link).map(|s| (s.link.staged_bytes(), s.link.confirmed_bytes()))
    }

    /// Stages no more; what is staged goes, then the goodbye. `Inbound::ended` follows when the peer has answered.
    pub fn say_goodbye(&mut self, link: LinkId) {
        if let Some(slot) = live_mut(&mut self.slots, link) {
            slot.link.say_goodbye();
            list(&mut self.ready, slot);
        }
    }

    /// Ends a link at once; the peer sees it as lost. `Inbound::ended` follows with the next `poll`.
    pub fn close(&mut self, link: LinkId) {
        if self.live(link).is_some() {
            self.end(link.place(), Some(Lost::ClosedHere));
        }
    }

    /// What was done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    // ---- links

    fn live(&self, id: LinkId) -> Option<&Slot> {
        self.slots.get(id.place())?.as_deref().filter(|s| s.id == id && !s.closing)
    }

    /// Handles one completion. False = it was bookkeeping.
    fn complete(&mut self, user_data: u64, result: i32, inbound: &mut dyn Inbound) -> bool {
        let op = user_data & OP_MASK;
        if op == OP_WAKE {
            if self.armed == Some(user_data as u32 as RawFd) {
                self.armed = None;
            }
            return false;
        }
        let id = LinkId::from_bits(user_data as u32);
        let place = id.place();
        let Some(slot) = self.slots.get_mut(place).and_then(|s| s.as_mut()).filter(|s| s.id == id) else {
            unreachable!("a slot outlives its last completion, and {id:?} has one");
        };
        match op {
            OP_RECV => slot.receiving = false,
            OP_SEND => slot.sending = false,
            // Any answer will do: the operations named may have ended by themselves (ENOENT, EALREADY).
            OP_CANCEL => slot.cancelling = false,
            _ => unreachable!("completions carry an operation of ours"),
        }
        if slot.closing {
            self.reap(place);
            return false;
        }
        match op {
            OP_RECV => self.received(place, result, inbound),
            OP_SEND => self.sent(place, result),
            _ => {}
        }
        true
    }

    fn received(&mut self, place: usize, result: i32, inbound: &mut dyn Inbound) {
        self.counters.recvs += 1;
        let now_ns = self.now_ns;
        let slot = self.slots[place].as_mut().expect("just completed");
        match result {
            0 if slot.link.end_of_stream() => self.end(place, None),
            0 => {
                let lost = slot.send_failed.take().unwrap_or(Lost::EndOfStream);
                self.end(place, Some(lost));
            }
            n if n > 0 => {
                slot.head += n as u64;
                slot.link.heard(now_ns);
                self.take_segments(place, inbound);
            }
            n if again(n) => {
                self.counters.retries += 1;
                self.start_receive(place);
            }
            _ if slot.link.end_of_stream() => self.end(place, None),
            n => self.end(place, Some(io_lost("receive", n))),
        }
    }

    /// Handles whole segments at the front of a receive ring, then receives on.
    fn take_segments(&mut self, place: usize, inbound: &mut dyn Inbound) {
        let now_ns = self.now_ns;
        let slot = self.slots[place].as_deref_mut().expect("live");
        let lost = loop {
            let bytes = slot.ring.slice(slot.tail, (slot.head - slot.tail) as usize);
            match slot.link.receive(bytes, now_ns, &mut self.receive_pool) {
                Received::More => break None,
                Received::Segment { bytes, credits, frames } => {
                    self.counters.segments_in += 1;
                    for (executor, limit) in wire::credits(credits) {
                        inbound.credit(slot.id, executor, limit);
                    }
                    if !frames.is_empty() {
                        self.counters.frame_bytes_in += frames.len() as u64;
                        self.counters.large_in += u64::from(frames.len() > bytes);
                        inbound.frames(slot.id, frames);
                    }
                    slot.tail += bytes as u64;
                }
                Received::Wait => {
                    if !slot.waiting {
                        slot.waiting = true;
                        self.waiting += 1;
                        self.counters.pool_waits += 1;
                    }
                    return;
                }
                Received::Lost(lost) => break Some(lost),
            }
        };
        if lost.is_some() {
            self.end(place, lost);
            return;
        }
        if slot.link.has_work() || slot.link.timer_due(now_ns) {
            list(&mut self.ready, slot);
        }
        if slot.link.finished() {
            self.end(place, None);
        } else {
            self.start_receive(place);
        }
    }

    fn sent(&mut self, place: usize, result: i32) {
        self.counters.sends += 1;
        let slot = self.slots[place].as_deref_mut().expect("just completed");
        match result {
            n if n > 0 => {
                slot.link.written(n as usize);
                self.counters.sends_short += u64::from(slot.link.in_flight());
            }
            n if again(n) => self.counters.retries += 1,
            // The peer may be gone in good order: its goodbye can still lie in the socket, and reading comes to it.
            n => {
                slot.send_failed = Some(io_lost("send", n));
                return;
            }
        }
        if slot.link.in_flight() || slot.link.has_work() || slot.link.timer_due(self.now_ns) {
            list(&mut self.ready, slot);
        }
        if slot.link.finished() {
            self.end(place, None);
        }
    }

    /// Asks again for links whose next frame in pieces found no room in the pool.
    fn retry_waiting(&mut self, inbound: &mut dyn Inbound) {
        for place in 0..self.slots.len() {
            let now_ns = self.now_ns;
            if let Some(slot) = self.slots[place].as_mut().filter(|s| s.waiting && !s.closing) {
                slot.waiting = false;
                self.waiting -= 1;
                slot.link.heard(now_ns);
                self.take_segments(place, inbound);
            }
        }
    }

    fn sweep(&mut self) {
        self.sweep_ns = self.now_ns + SWEEP_NS;
        for place in 0..self.slots.len() {
            let Some(slot) = self.slots[place].as_mut().filter(|s| !s.closing) else { continue };
            if let Some(lost) = slot.link.overdue(self.now_ns) {
                self.end(place, Some(lost));
            } else if slot.link.timer_due(self.now_ns) {
                list(&mut self.ready, slot);
            }
        }
    }

    /// Ends a live link: `None` = in order. Tells it with the current or next `poll`, and frees its memory when the kernel is done.
    fn end(&mut self, place: usize, lost: Option<Lost>) {
        let slot = self.slots[place].as_deref_mut().expect("live");
        assert!(!slot.closing, "a link ends once");
        slot.closing = true;
        if slot.waiting {
            slot.waiting = false;
            self.waiting -= 1;
        }
        let (unsent_bytes, unconfirmed_bytes) = slot.link.close(&mut self.send_pool, &mut self.receive_pool);
        match &lost {
            None => self.counters.links_goodbye += 1,
            Some(_) => self.counters.links_lost += 1,
        }
        match &lost {
            Some(Lost::Crc { .. }) => self.counters.crc_errors += 1,
            None | Some(Lost::Silent { .. } | Lost::EndOfStream | Lost::Io { .. } | Lost::ClosedHere) => {}
            Some(_) => self.counters.protocol_errors += 1,
        }
        let how = lost.map_or(Ending::Goodbye, |lost| Ending::Lost { reason: lost.to_string() });
        let id = slot.id;
        self.endings.push((id, LinkEnd { how, unsent_bytes, unconfirmed_bytes }));
        if slot.receiving || slot.sending {
            slot.cancelling = true;
            let fd = types::Fd(slot.socket.as_raw_fd());
            let cancel = opcode::AsyncCancel2::new(types::CancelBuilder::fd(fd).all()).build();
            self.push(&cancel.user_data(OP_CANCEL | u64::from(id.bits())));
        }
        self.reap(place);
    }

    /// Frees an ended link once the kernel holds none of its memory.
    fn reap(&mut self, place: usize) {
        if self.slots[place].as_ref().is_some_and(|s| s.closing && !s.receiving && !s.sending && !s.cancelling) {
            self.slots[place] = None;
        }
    }

    // ---- the ring

    fn start_receive(&mut self, place: usize) {
        let slot = self.slots[place].as_deref_mut().expect("live");
        debug_assert!(!slot.receiving && !slot.closing);
        let used = (slot.head - slot.tail) as usize;
        let free = slot.ring.capacity() - used;
        assert!(free > 0, "a whole segment is at most half the ring, so an unfinished one leaves room");
        slot.receiving = true;
        // NEED: io_uring takes raw pointers. SAFETY (of `push`, for this entry): `free` bytes from `head` on are mapped, and nothing
        // borrows them: `take_segments` lends bytes from `tail` to `head` only. They stay mapped until the slot is dropped, which
        // `reap` does only when `receiving` is false again, set by this operation's completion alone.
        let recv = opcode::Recv::new(types::Fd(slot.socket.as_raw_fd()), slot.ring.at(slot.head), free as u32).build();
        let user_data = OP_RECV | u64::from(slot.id.bits());
        self.push(&recv.user_data(user_data));
    }

    /// Sends the rest of the segment in flight, or forms and sends the next.
    fn start_send(&mut self, place: usize) {
        let now_ns = self.now_ns;
        let slot = self.slots[place].as_deref_mut().expect("live");
        if slot.sending || slot.send_failed.is_some() {
            return;
        }
        if !slot.link.in_flight() {
            let before = slot.link.sent_bytes();
            if !slot.link.form(now_ns, &mut self.send_pool) {
                return;
            }
            self.counters.segments_out += 1;
            self.counters.frame_bytes_out += slot.link.sent_bytes() - before;
        }
        slot.sending = true;
        let flight = slot.link.flight();
        // SAFETY (of `push`, for this entry): `Link::flight` is memory of a boxed slice that `Link` neither writes nor replaces while
        // bytes of it are unwritten, and that lives until the slot is dropped, which `reap` does only when `sending` is false again,
        // set by this operation's completion alone.
        let send = opcode::Send::new(types::Fd(slot.socket.as_raw_fd()), flight.as_ptr(), flight.len() as u32)
            .flags(MSG_NOSIGNAL | MSG_WAITALL)
            .build();
        let user_data = OP_SEND | u64::from(slot.id.bits());
        self.push(&send.user_data(user_data));
    }

    fn push(&mut self, entry: &io_uring::squeue::Entry) {
        for _ in 0..PUSH_TRIES {
            // SAFETY: memory named by an entry is valid and unaliased until its completion: argued at `start_receive` and `start_send`,
            // the only two entries that name memory.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            self.enter();
        }
        panic!("io_uring takes no submission: {SUBMISSIONS} wait and the kernel accepts none");
    }

    /// Submits what waits and lets the kernel post what is done.
    fn enter(&mut self) {
        self.counters.enters += 1;
        tolerate(self.ring.submit());
    }
}

impl Drop for UringCarrier {
    /// Cancels everything and waits for it, since the kernel may write to a receive ring until its completion.
    fn drop(&mut self) {
        for place in 0..self.slots.len() {
            if self.slots[place].as_ref().is_some_and(|s| !s.closing) {
                self.end(place, Some(Lost::ClosedHere));
            }
        }
        let start = std::time::Instant::now();
        while self.slots.iter().any(Option::is_some) && start.elapsed() < DROP_WAIT {
            let spec = types::Timespec::new().nsec(10_000_000);
            tolerate(self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&spec)));
            let completions: Vec<_> = self.ring.completion().map(|c| (c.user_data(), c.result())).collect();
            for (user_data, _) in completions.into_iter().filter(|c| c.0 & OP_MASK != OP_WAKE) {
                let place = LinkId::from_bits(user_data as u32).place();
                let slot = self.slots[place].as_mut().expect("a slot outlives its last completion");
                match user_data & OP_MASK {
                    OP_RECV => slot.receiving = false,
                    OP_SEND => slot.sending = false,
                    _ => slot.cancelling = false,
                }
                self.reap(place);
            }
        }
        // The kernel did not let go in time: leaking the memory is harmless, freeing it is not.
        for slot in self.slots.drain(..).flatten() {
            std::mem::forget(slot);
        }
    }
}

fn live_mut(slots: &mut [Option<Box<Slot>>], id: LinkId) -> Option<&mut Slot> {
    slots.get_mut(id.place())?.as_deref_mut().filter(|s| s.id == id && !s.closing)
}

fn list(ready: &mut Vec<LinkId>, slot: &mut Slot) {
    if !slot.listed {
        slot.listed = true;
        ready.push(slot.id);
    }
}

/// Errors after which the same operation is tried again: nothing was moved.
fn again(result: i32) -> bool {
    [Errno::AGAIN, Errno::INTR, Errno::NOBUFS, Errno::NOMEM].iter().any(|e| e.raw_os_error() == -result)
}

fn io_lost(what: &'static str, result: i32) -> Lost {
    Lost::Io { what, error: io::Error::from_raw_os_error(-result).to_string() }
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
