//! A core loop's links with the loops of other workers: frames and credit that come and go, and what a link's end costs.
//!
//! Before: `core_loop.rs` takes its turn, or was given a connection. After: `saetta-transport` has the frames, or `receive.rs` those that came.

use crate::core_loop::CoreLoop;
use crate::loss::{lose_frames, worker_bit};
use crate::program::Check;
use crate::receive::Receiver;
use crate::stats::LinkEnded;
use saetta_transport::{CarrierRefused, Inbound, LinkEnd, LinkId, Peer, UringCarrier};
use saetta_tuple::frame::{CONTROL, END, Frame, check_run};
use std::os::fd::OwnedFd;

/// The links of one loop. Made, used and dropped on the loop's own thread; stepped loops and lonely workers have none.
pub struct Links(pub(crate) Option<UringCarrier>);

impl Links {
    /// No links: nothing of the topology runs in another worker.
    pub fn none() -> Self {
        Links(None)
    }
    /// A carrier for the calling thread. The error is the one line that says why the kernel refuses io_uring.
    pub fn open() -> Result<Self, CarrierRefused> {
        UringCarrier::new().map(|c| Links(Some(c)))
    }
}

impl CoreLoop {
    pub(crate) fn receive_links(&mut self, links: &mut Links, now_ns: u64) -> usize {
        let Some(carrier) = &mut links.0 else { return 0 };
        let mut events = LinkEvents { owner: self, bad: None };
        let mut work = carrier.poll(now_ns, &mut events);
        if let Some((link, why)) = events.bad.take() {
            // Bytes that pass the link's checks but are no frames or archives: the peer is broken.
            carrier.close(link);
            self.io.shared.report(&saetta_model::name::Name::system("__system"), format!("closed a link: {why}"));
            work += 1;
        }
        work
    }

    pub(crate) fn flush_links(&mut self, links: &mut Links, now_ns: u64) -> usize {
        let Some(carrier) = &mut links.0 else { return 0 };
        for number in 0..self.io.remotes.len() {
            let Some(link) = self.io.remotes[number].link else { continue };
            self.io.acks.flush_remote(number, |frame| carrier.stage(link, frame));
            let place = self.io.remote_place(number);
            let staged = &mut self.io.staging[place].frames;
            let mut at = 0;
            while let Some(frame) = Frame::first(&staged[at..]) {
                if !carrier.stage(link, frame.bytes) {
                    break;
                }
                at += frame.bytes.len();
            }
            staged.drain(..at);
            self.io.sent_bytes += at as u64;
            if self.stopping && staged.is_empty() && !self.io.remotes[number].leaving {
                self.io.remotes[number].leaving = true;
                carrier.say_goodbye(link);
            }
        }
        carrier.flush(now_ns)
    }

    /// Grants over links what is owed below half a window: at the housekeeping deadline, so that a frame larger than what is left of a
    /// window is never stuck.
    pub(crate) fn settle_link_credit(&mut self, links: &mut Links) {
        if !self.credit_owed {
            return;
        }
        let n_lanes = self.lanes_in.len();
        let Some(carrier) = &mut links.0 else { return };
        for place in 0..self.executors.len() {
            let first_task = self.executors[place].id.first;
            for (number, remote) in self.io.remotes.iter().enumerate() {
                let Some(link) = remote.link else { continue };
                if let Some(limit) = self.credit_in[place][n_lanes + 1 + number].due(true) {
                    carrier.grant(link, first_task, limit);
                }
            }
        }
        self.credit_owed = false;
    }

    pub(crate) fn add_link(&mut self, links: &mut Links, socket: OwnedFd, peer: Peer) {
        if self.stopping {
            // The peer sees the connection end and finds nobody when it dials again.
            return;
        }
        let system = saetta_model::name::Name::system("__system");
        let Some(carrier) = &mut links.0 else {
            self.io.shared.report(&system, "a link for a loop without a carrier".into());
            return;
        };
        let Some(number) = self.io.remotes.iter().position(|r| r.placement == peer.placement && r.on_loop == peer.remote_loop) else {
            self.io.shared.report(
                &system,
                format!("a link from placement {:x} loop {}, which this worker exchanges nothing with", peer.placement, peer.remote_loop),
            );
            return;
        };
        if let Some(old) = self.io.remotes[number].link {
            self.io.set_link(number, None);
            // The peer connected again before this side saw the old link end.
            carrier.close(old);
            self.remote_of_link[old.place()] = None;
            self.lose_link(number);
        }
        let now_ns = self.io.now_ns();
        let Some(carrier) = &mut links.0 else { return };
        match carrier.add(socket, peer, now_ns) {
            Ok(link) => {
                if self.remote_of_link.len() <= link.place() {
                    self.remote_of_link.resize(link.place() + 1, None);
                }
                self.remote_of_link[link.place()] = Some(number as u16);
                self.io.set_link(number, Some((link, worker_bit(peer.index, peer.start))));
                self.io.remotes[number].leaving = false;
                self.io.remotes[number].start = Some(peer.start);
                let lane = self.lanes_in.len() + 1 + number;
                for place in 0..self.executors.len() {
                    let held = self.io.inboxes[place].lanes[lane].bytes() as u64;
                    let limit = self.credit_in[place][lane].restart(held);
                    carrier.grant(link, self.executors[place].id.first, limit);
                }
            }
            Err(e) => self.io.shared.link_ended(LinkEnded {
                placement: peer.placement,
                local_loop: self.index as u32,
                remote_loop: peer.remote_loop,
                lost: Some(format!("it could not be taken: {e}")),
            }),
        }
    }

    /// The link to a remote loop is gone: its credit is void, what was staged is discarded and counted, and its trees fail.
    pub(crate) fn lose_link(&mut self, number: usize) {
        self.io.remotes[number].early.clear();
        let place = self.io.remote_place(number);
        let staged = std::mem::take(&mut self.io.staging[place].frames);
        self.discarded += lose_frames(&mut self.io.acks, &staged, self.io.turn_ns);
        self.io.acks.lose_remote(number);
        for dest in &self.io.dests {
            if dest.at as usize == place {
                self.io.credits[dest.credit as usize].void();
            }
        }
    }

    /// The first grant on a link for an executor elsewhere.
    #[cold]
    pub(crate) fn open_credit(&mut self, ordinal: usize, limit: u64) {
        self.io.credits[ordinal].raise(limit);
        let id = self.layout_executors[ordinal];
        for executor in &mut self.executors {
            executor.out.send_ends_again(&mut self.io, |task| id.tasks().contains(&task));
        }
    }

    /// The remote loop behind a link, unless a newer link has taken its place.
    #[inline]
    pub(crate) fn behind(&self, link: LinkId) -> Option<u16> {
        let number = self.remote_of_link.get(link.place()).copied().flatten()?;
        (self.io.remotes[number as usize].link == Some(link)).then_some(number)
    }
}

/// Takes what the carrier hands over.
struct LinkEvents<'a> {
    owner: &'a mut CoreLoop,
    bad: Option<(LinkId, &'static str)>,
}

impl Inbound for LinkEvents<'_> {
    fn frames(&mut self, link: LinkId, frames: &[u8]) {
        let Some(number) = self.owner.behind(link) else { return };
        if self.bad.is_some_and(|(bad, _)| bad == link) {
            return;
        }
        if let Err(why) = check_archives(frames, &self.owner.checks) {
            self.bad = Some((link, why));
            return;
        }
        let lane = self.owner.lanes_in.len() + 1 + number as usize;
        self.owner.received_bytes += frames.len() as u64;
        let CoreLoop { executors, io, credit_in, local_of_task, discarded, .. } = &mut *self.owner;
        Receiver { executors, io, credit_in, local_of_task, discarded }.take(frames, lane);
    }

    fn credit(&mut self, link: LinkId, executor: u32, limit: u64) {
        let Some(number) = self.owner.behind(link) else { return };
        let Some(dest) = self.owner.io.dests.get(executor as usize).copied() else { return };
        if dest.at as usize != self.owner.io.remote_place(number as usize) {
            self.owner.io.remotes[number as usize].early.insert(executor, limit);
        } else if self.owner.io.credits[dest.credit as usize].is_open() {
            self.owner.io.credits[dest.credit as usize].raise(limit);
        } else {
            self.owner.open_credit(dest.credit as usize, limit);
        }
    }

    fn ended(&mut self, link: LinkId, end: LinkEnd) {
        let Some(number) = self.owner.behind(link) else { return };
        self.owner.remote_of_link[link.place()] = None;
        self.owner.io.set_link(number as usize, None);
        self.owner.lose_link(number as usize);
        let remote = &self.owner.io.remotes[number as usize];
        let lost = match end.how {
            saetta_transport::Ending::Goodbye => None,
            saetta_transport::Ending::Lost { reason } => {
                Some(format!("{reason}; {} frame bytes unsent, {} unconfirmed", end.unsent_bytes, end.unconfirmed_bytes))
            }
        };
        self.owner.io.shared.link_ended(LinkEnded {
            placement: remote.placement,
            local_loop: self.owner.index as u32,
            remote_loop: remote.on_loop,
            lost,
        });
    }
}

/// Bytes from another process are checked once, here: headers, then each archive against its stream.
fn check_archives(frames: &[u8], checks: &[Check]) -> Result<(), &'static str> {
    check_run(frames)?;
    let mut run = frames;
    while let Some(frame) = Frame::first(run) {
        if frame.header.flags & (END | CONTROL) == 0 {
            let check = checks.get(frame.header.stream as usize).ok_or("a frame of an unknown stream")?;
            if !check(frame.archive()) {
                return Err("a frame whose archive is not valid for its stream");
            }
        }
        run = &run[frame.bytes.len()..];
    }
    Ok(())
}
