//! All links of one core loop, whatever carries their bytes: io_uring, epoll, shared memory, or a test's wires.
//!
//! Before: `saetta-engine` stages frames and takes its turn: `poll`, work, `flush`. After: `link.rs` forms and reads segments, and the loop of the
//! peer gets the frames as slices of its receive memory.
//!
//! ```text
//!  stage/grant -> Link -> flush, outflow.rs -> [uring.rs | epoll.rs | memory | sim.rs] -> poll, intake.rs -> Link -> Inbound
//! ```
//! At most two system calls a turn under io_uring, none when nothing is due; none at all through shared memory unless the peer sleeps
//! (under epoll one a turn, which also tells of a peer that is gone).

mod ends;
mod epoll;
mod intake;
mod outflow;
mod slot;
#[expect(unsafe_code, reason = "hands memory to the kernel: io_uring takes raw pointers, and what they name must outlive the operation")]
mod uring;

use crate::carrier::{Counters, Inbound, LinkEnd, LinkId, PIECE_POOL_BYTES, Peer, SLOTS_MAX};
use crate::connection::Connection;
use crate::link::{KEEPALIVE_NS, Link, Lost, Medium, PiecePool};
use crate::refused::CarrierRefused;
use crate::wire;
use epoll::{Edge, Epoll};
use rustix::io::Errno;
use slot::{Inflow, Memory, Pipe, Slot};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use uring::{Completion, Done, Uring};

/// A gap between two polls beyond this is this side's own doing (stuck or stopped) and not counted as the peer's silence.
const OWN_GAP_NS: u64 = 2 * KEEPALIVE_NS;
/// Longest single wait, whatever the caller asks.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Frame bytes that wait for more while the loop has more to send: a system call carries many tuples then.
const HOLD_BYTES: usize = 112 << 10;
/// Longest time they wait.
const HOLD_NS: u64 = 40_000;

/// What sockets are carried by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// io_uring where the kernel gives it, else epoll.
    Auto,
    /// io_uring or nothing.
    Uring,
    /// epoll.
    Epoll,
}

impl std::str::FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Choice::Auto),
            "io_uring" => Ok(Choice::Uring),
            "epoll" => Ok(Choice::Epoll),
            _ => Err(format!("{text:?} is no carrier; use auto, io_uring or epoll")),
        }
    }
}

/// Moves the bytes of sockets.
enum Sockets {
    Uring(Box<Uring>),
    Epoll(Epoll),
}

/// See the head of this file. Made, used and dropped on one thread: the core loop's.
///
/// ```compile_fail
/// fn moves_to_another_thread<T: Send>() {}
/// moves_to_another_thread::<saetta_transport::Carrier>();
/// ```
pub struct Carrier {
    sockets: Sockets,
    /// Why it is not io_uring, where that was wanted.
    refusal: Option<CarrierRefused>,
    slots: Vec<Option<Box<Slot>>>,
    /// Generation of the next link in each place.
    generations: Vec<u16>,
    /// Links with something to form or to continue, each once.
    ready: Vec<LinkId>,
    /// Links that ended and whose end is not told yet.
    ended: Vec<(LinkId, LinkEnd)>,
    /// Places of links that are looked at in every poll: nothing says when they have something.
    looked_at: Vec<usize>,
    /// io_uring: links whose next receive is due.
    to_receive: Vec<LinkId>,
    /// epoll: places that have more to read.
    readable: Vec<usize>,
    completions: Vec<Completion>,
    edges: Vec<Edge>,
    send_pool: PiecePool,
    receive_pool: PiecePool,
    /// Links in `Slot::waiting`.
    waiting: u32,
    now_ns: u64,
    sweep_ns: u64,
    /// When the oldest held segment was staged; 0 = none is held.
    held_since_ns: u64,
    counters: Counters,
}

impl Carrier {
    /// Errors: io_uring was asked for by name and is refused; epoll has no descriptor. May take 250 ms when memory is short.
    pub fn open(choice: Choice) -> Result<Self, CarrierRefused> {
        let uring = if choice == Choice::Epoll { None } else { Some(Uring::open()) };
        let (sockets, refusal) = match uring {
            Some(Ok(uring)) => (Sockets::Uring(Box::new(uring)), None),
            Some(Err(refused)) if choice == Choice::Uring => return Err(refused.fatal()),
            refused => {
                let epoll = Epoll::open().map_err(|e| CarrierRefused::new("epoll_create1", &e))?;
                (Sockets::Epoll(epoll), refused.and_then(Result::err))
            }
        };
        Ok(Carrier {
            sockets,
            refusal,
            slots: Vec::new(),
            generations: Vec::new(),
            ready: Vec::with_capacity(SLOTS_MAX),
            ended: Vec::new(),
            looked_at: Vec::new(),
            to_receive: Vec::new(),
            readable: Vec::new(),
            completions: Vec::new(),
            edges: Vec::new(),
            send_pool: PiecePool::new(PIECE_POOL_BYTES),
            receive_pool: PiecePool::new(PIECE_POOL_BYTES),
            waiting: 0,
            now_ns: 0,
            sweep_ns: 0,
            held_since_ns: 0,
            counters: Counters::default(),
        })
    }

    /// What carries sockets here: "io_uring" or "epoll".
    pub fn kind(&self) -> &'static str {
        match self.sockets {
            Sockets::Uring(_) => "io_uring",
            Sockets::Epoll(_) => "epoll",
        }
    }

    /// Why io_uring does not, where it was wanted.
    pub fn refusal(&self) -> Option<&CarrierRefused> {
        self.refusal.as_ref()
    }

    /// Takes a connection whose handshake is done. Errors: [`SLOTS_MAX`] links are held, no memory, a ring size the handshake never gives.
    pub fn add(&mut self, connection: Connection, peer: Peer, now_ns: u64) -> io::Result<LinkId> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        let (local, remote) = (peer.local_ring_bytes as usize, peer.remote_ring_bytes as usize);
        if !wire::ring_bytes_valid(local) || !wire::ring_bytes_valid(remote) {
            return Err(invalid(format!("receive rings of {local} and {remote} bytes: powers of two from 16 KiB to 4 MiB are allowed")));
        }
        let place = match self.slots.iter().position(Option::is_none) {
            Some(place) => place,
            None if self.slots.len() == SLOTS_MAX => {
                return Err(io::Error::new(
                    io::ErrorKind::QuotaExceeded,
                    format!("this core loop holds its {SLOTS_MAX} connections already"),
                ));
            }
            None => {
                self.slots.push(None);
                self.generations.push(0);
                self.slots.len() - 1
            }
        };
        let id = LinkId::new(place, self.generations[place]);
        self.now_ns = self.now_ns.max(now_ns);
        let link = |medium| Link::new(local, remote, medium, self.now_ns);
        let mut slot = match connection {
            Connection::Socket(socket) => Slot::new(id, link(Medium::Wire), peer, Pipe::Stream(Inflow::new(local)?), Some(socket)),
            Connection::Secured { socket, tls } => {
                Slot { tls: Some(tls), ..Slot::new(id, link(Medium::Wire), peer, Pipe::Stream(Inflow::new(local)?), Some(socket)) }
            }
            Connection::Memory(memory) => {
                let (memory, socket) = Memory::new(*memory);
                Slot::new(id, link(Medium::Memory), peer, Pipe::Memory(memory), Some(socket))
            }
            Connection::Simulated(end) => Slot::new(id, link(Medium::Wire), peer, Pipe::Simulated(end, Inflow::new(local)?), None),
        };
        match (&mut slot.pipe, &mut self.sockets, &slot.socket) {
            (Pipe::Stream(inflow), Sockets::Uring(uring), Some(socket)) => {
                // io_uring arms its own poll only for a blocking descriptor; a non-blocking one would answer EAGAIN.
                let flags = rustix::fs::fcntl_getfl(socket)?;
                rustix::fs::fcntl_setfl(socket, flags - rustix::fs::OFlags::NONBLOCK)?;
                match slot.tls {
                    None => uring.receive(id, socket.as_fd(), inflow.free_mut(), &mut slot.held),
                    // What it holds already is read first.
                    Some(_) => self.readable.push(place),
                }
            }
            (Pipe::Stream(_), Sockets::Epoll(epoll), Some(socket)) => {
                epoll.add(id, socket.as_fd())?;
                slot.readable = true;
                self.readable.push(place);
            }
            (Pipe::Memory(_), Sockets::Uring(uring), Some(socket)) => {
                uring.watch(id, socket.as_fd(), &mut slot.held);
                self.looked_at.push(place);
            }
            (Pipe::Memory(_), Sockets::Epoll(epoll), Some(socket)) => {
                epoll.add(id, socket.as_fd())?;
                self.looked_at.push(place);
            }
            (Pipe::Simulated(..), ..) => self.looked_at.push(place),
            (Pipe::Stream(_) | Pipe::Memory(_), _, None) => unreachable!("both have their socket"),
        }
        self.generations[place] = self.generations[place].wrapping_add(1);
        self.slots[place] = Some(Box::new(slot));
        self.counters.links_added += 1;
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

    /// Takes whole frames from the front of `frames` and says how many bytes. With nothing else staged a frame may be of any size up to the
    /// limit. What was not taken is asked again after a later `poll`. One copy.
    #[inline]
    pub fn stage(&mut self, link: LinkId, frames: &[u8]) -> usize {
        let Some(slot) = live_mut(&mut self.slots, link) else { return 0 };
        let before = slot.link.large_staged();
        let n = slot.link.stage(frames, &mut self.send_pool);
        self.counters.large_out += u64::from(slot.link.large_staged() && !before);
        if n > 0 {
            list(&mut self.ready, slot);
        }
        n
    }

    /// As [`Carrier::stage`], of frames that are emitted into memory of their own: much of it goes with them, without a copy, and other memory is
    /// left in its place. What is left in `frames` was not taken.
    #[inline]
    pub fn hand_over(&mut self, link: LinkId, frames: &mut Vec<u8>) -> usize {
        let Some(slot) = live_mut(&mut self.slots, link) else { return 0 };
        let before = slot.link.large_staged();
        let n = slot.link.hand_over(frames, &mut self.send_pool);
        self.counters.large_out += u64::from(slot.link.large_staged() && !before);
        if n > 0 {
            list(&mut self.ready, slot);
        }
        n
    }

    /// Grants the peer credit for one of our executors, in cumulative bytes. The newest wins; it goes with the next segment, also
    /// without data. Nothing on an ended link.
    pub fn grant(&mut self, link: LinkId, executor: u32, limit: u64) {
        if let Some(slot) = live_mut(&mut self.slots, link) {
            slot.link.grant(executor, limit);
            list(&mut self.ready, slot);
        }
    }

    /// Forms segments of what is staged and hands them over, those of all links under io_uring in one call. Returns the frame bytes handed
    /// over. No system call when there is nothing to do. `more` = the loop has more to send at once: small segments wait for it, not long.
    pub fn flush(&mut self, now_ns: u64, more: bool) -> usize {
        self.now_ns = self.now_ns.max(now_ns);
        if self.ready.is_empty() {
            return self.submit(0);
        }
        let before = self.counters.frame_bytes_out;
        let hold = more && (self.held_since_ns == 0 || self.now_ns < self.held_since_ns + HOLD_NS);
        let mut ready = std::mem::take(&mut self.ready);
        let mut kept = 0;
        for at in 0..ready.len() {
            let id = ready[at];
            let Some(slot) = live_mut(&mut self.slots, id) else { continue };
            let again = if hold && (1..HOLD_BYTES).contains(&slot.link.filled_bytes()) { true } else { self.write_out(id.place()) };
            if again {
                ready[kept] = id;
                kept += 1;
            } else if let Some(slot) = live_mut(&mut self.slots, id) {
                slot.listed = false;
            }
        }
        ready.truncate(kept);
        // Nothing was listed meanwhile: `write` lists nobody.
        self.ready = ready;
        self.held_since_ns = match (hold && kept > 0, self.held_since_ns) {
            (false, _) => 0,
            (true, 0) => self.now_ns,
            (true, since) => since,
        };
        self.submit((self.counters.frame_bytes_out - before) as usize)
    }

    /// Receives go in behind sends: one that finds nothing costs the kernel as much as half a send, and the peer waits for the send.
    fn submit(&mut self, work: usize) -> usize {
        while let Some(id) = self.to_receive.pop() {
            self.receive(id);
        }
        if let Sockets::Uring(uring) = &mut self.sockets
            && uring.has_submissions()
        {
            uring.enter();
        }
        work
    }

    /// Takes in what came: hands over frames, credits and ends. Returns how much it was; 0 = nothing. No system call under io_uring unless the
    /// kernel flags work or operations wait to be submitted; one under epoll. Proofs of life and received counts that fall due go with the next
    /// `flush`, so call both in each turn, also when nothing was staged.
    pub fn poll(&mut self, now_ns: u64, inbound: &mut dyn Inbound) -> usize {
        let gap_ns = now_ns.saturating_sub(self.now_ns);
        self.now_ns = self.now_ns.max(now_ns);
        if gap_ns > OWN_GAP_NS {
            for slot in self.slots.iter_mut().flatten() {
                slot.link.pardon(gap_ns);
            }
        }
        let mut n = match self.sockets {
            Sockets::Uring(_) => self.poll_uring(inbound),
            Sockets::Epoll(_) => self.poll_epoll(inbound),
        };
        let mut at = 0;
        while let Some(&place) = self.looked_at.get(at) {
            n += self.look(place, inbound);
            // A link that ended is taken off the list.
            at += usize::from(self.looked_at.get(at) == Some(&place));
        }
        if self.waiting > 0 {
            self.retry_waiting(inbound);
        }
        if self.now_ns >= self.sweep_ns {
            self.sweep();
        }
        if !self.ended.is_empty() {
            n += self.tell_ends(inbound);
        }
        n
    }

    /// Waits for anything to come, for `wake` to become readable, or for `timeout` (at most until a link's own deadline). Sends what is
    /// staged first. Call `poll` afterwards, whatever it was; give the same `wake` each time.
    pub fn wait(&mut self, wake: BorrowedFd<'_>, timeout: Duration) {
        if !self.ended.is_empty() || !self.readable.is_empty() {
            return;
        }
        self.flush(self.now_ns, false);
        let live = self.slots.iter().flatten().filter(|s| !s.closing);
        let deadline_ns = live.map(|s| s.link.deadline_ns().min(self.now_ns + KEEPALIVE_NS)).min().unwrap_or(u64::MAX);
        let own = Duration::from_nanos(deadline_ns.saturating_sub(self.now_ns));
        let timeout = timeout.min(own).min(WAIT_MAX);
        if self.may_sleep() {
            match &mut self.sockets {
                Sockets::Uring(uring) => uring.wait(Some(wake), timeout),
                Sockets::Epoll(epoll) => epoll.wait(wake, timeout, &mut self.edges),
            }
        }
        for place in &self.looked_at {
            if let Some(Slot { pipe: Pipe::Memory(memory), .. }) = self.slots[*place].as_deref() {
                memory.pair.sleep.awake();
            }
        }
        self.sweep_ns = 0;
    }

    /// Tells the peers behind shared memory that this side sleeps; false = one of them has written meanwhile.
    fn may_sleep(&mut self) -> bool {
        for place in &self.looked_at {
            if let Some(Slot { pipe: Pipe::Memory(memory), link, waiting: false, .. }) = self.slots[*place].as_deref_mut()
                && !memory.may_sleep(link.in_flight())
            {
                return false;
            }
        }
        true
    }

    /// Nothing staged, nothing in flight, no end untold.
    pub fn idle(&self) -> bool {
        self.ended.is_empty() && self.slots.iter().flatten().all(|s| !s.closing && !s.link.has_work() && !s.link.in_flight())
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
    pub fn counters(&self) -> Counters {
        let calls = match &self.sockets {
            Sockets::Uring(uring) => uring.calls,
            Sockets::Epoll(epoll) => epoll.calls,
        };
        Counters { calls: self.counters.calls + calls, ..self.counters }
    }

    // ---- links

    fn live(&self, id: LinkId) -> Option<&Slot> {
        self.slots.get(id.place())?.as_deref().filter(|s| s.id == id && !s.closing)
    }

    fn complete(&mut self, c: Completion, inbound: &mut dyn Inbound) {
        let place = c.link.place();
        let Some(slot) = self.slots.get_mut(place).and_then(|s| s.as_mut()).filter(|s| s.id == c.link) else {
            unreachable!("a slot outlives its last completion, and {:?} has one", c.link);
        };
        Uring::settle(&mut slot.held, c.done);
        if slot.closing {
            self.reap(place);
            return;
        }
        match c.done {
            Done::Received => {
                self.counters.recvs += 1;
                match c.result {
                    n if n >= 0 => self.received(place, Ok(Some(n as usize)), inbound),
                    n if again(n) => {
                        self.counters.retries += 1;
                        self.read_on(place);
                    }
                    n => self.received(place, Err(io::Error::from_raw_os_error(-n)), inbound),
                }
            }
            Done::Sent => {
                self.counters.sends += 1;
                match c.result {
                    n if n > 0 => self.written(place, Ok(n as usize)),
                    n if again(n) => {
                        self.counters.retries += 1;
                        self.written(place, Ok(0));
                    }
                    n => self.written(place, Err(io::Error::from_raw_os_error(-n))),
                }
            }
            Done::HungUp => self.slots[place].as_mut().expect("live").hung_up = true,
            Done::Cancelled => {}
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

fn io_lost(what: &'static str, error: &io::Error) -> Lost {
    Lost::Io { what, error: error.to_string() }
}
