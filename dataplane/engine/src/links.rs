//! A core loop's links with the loops of other workers: frames and credit that come and go, and what a link's end costs.
//!
//! Before: `core_loop.rs` takes its turn, or was given a connection. After: `saetta-transport` has the frames, or `receive.rs` those that came.
//! A link is two connections, its roads: tuples on one, acks, failures, probes and credit on the other, so that those never wait for tuples. It is
//! open while both are there; when one is lost, the other is closed, and both are dialled again.

use crate::core_loop::CoreLoop;
use crate::limits::REMOTE_STAGING_BYTES_KEPT;
use crate::loss::{lose_frames, worker_bit};
use crate::program::Check;
use crate::receive::Receiver;
use crate::remote::{Connected, Remote};
use crate::stats::{HowEnded, LinkEnded};
use saetta_model::name::Name;
use saetta_transport::{Carrier, CarrierRefused, Choice, Connection, Ending, Inbound, LinkEnd, LinkId, Peer, Road};
use saetta_tuple::frame::{CONTROL, END, Frame, MARKER, check_run};

/// The links of one loop. Made, used and dropped on the loop's own thread; stepped loops and lonely workers have none.
pub struct Links(pub(crate) Option<Carrier>);

impl Links {
    /// No links: nothing of the topology runs in another worker.
    pub fn none() -> Self {
        Links(None)
    }

    /// A carrier for the calling thread. The error is the one line that says why it cannot be had.
    pub fn open(choice: Choice) -> Result<Self, CarrierRefused> {
        Carrier::open(choice).map(|c| Links(Some(c)))
    }

    /// What carries them, and why it is not io_uring where that was wanted.
    pub fn carrier(&self) -> Option<&Carrier> {
        self.0.as_ref()
    }
}

/// What a connection of the carrier is to the loop; kept until its end was told.
#[derive(Clone, Copy)]
pub(crate) struct Behind {
    link: LinkId,
    /// Of a remote loop, or of a link that loops share.
    number: u16,
    is_trunk: bool,
    road: Road,
    /// Its end is told to whoever dials: the peer is still wanted.
    told: bool,
}

impl CoreLoop {
    pub(crate) fn receive_links(&mut self, links: &mut Links, now_ns: u64) -> usize {
        let Some(carrier) = &mut links.0 else { return 0 };
        let mut events = LinkEvents { owner: self, bad: None, close: Vec::new() };
        let mut work = carrier.poll(now_ns, &mut events);
        let LinkEvents { bad, close, .. } = events;
        if let Some((link, why)) = bad {
            // Bytes that pass the link's checks but are no frames or archives: the peer is broken.
            carrier.close(link);
            self.io.shared.report(&Name::system("__system"), format!("closed a link: {why}"));
            work += 1;
        }
        for (number, is_trunk) in close {
            if is_trunk { self.close_trunk(links, number, true) } else { self.close_remote(links, number, true) }
        }
        work
    }

    pub(crate) fn flush_links(&mut self, links: &mut Links, now_ns: u64) -> usize {
        let Some(carrier) = &mut links.0 else { return 0 };
        self.flush_trunks(carrier);
        for number in 0..self.io.remotes.len() {
            if self.io.remotes[number].through.is_some() {
                continue;
            }
            let (data, control) = (self.io.remotes[number].link(Road::Data), self.io.remotes[number].link(Road::Control));
            if let Some(control) = control {
                self.io.acks.flush_remote(number, |frames| carrier.stage(control, frames));
            }
            let place = self.io.remote_place(number);
            let staged = &mut self.io.staging[place].frames;
            if let Some(data) = data.filter(|_| !staged.is_empty()) {
                let taken = carrier.hand_over(data, staged);
                self.io.sent_bytes += taken as u64;
                if staged.is_empty() && staged.capacity() > REMOTE_STAGING_BYTES_KEPT && taken <= REMOTE_STAGING_BYTES_KEPT {
                    // A large frame made it grow, and the link takes over no more than it has room for.
                    *staged = Vec::with_capacity(REMOTE_STAGING_BYTES_KEPT);
                }
            }
            if self.stopping && staged.is_empty() && !self.io.remotes[number].leaving {
                self.io.remotes[number].leaving = true;
                data.into_iter().chain(control).for_each(|link| carrier.say_goodbye(link));
            }
        }
        carrier.flush(now_ns, self.io.more)
    }

    /// Grants over links what is owed below half a window: at the housekeeping deadline, so that a frame larger than what is left of a
    /// window is never stuck.
    pub(crate) fn settle_link_credit(&mut self, links: &mut Links) {
        if !self.credit_owed || links.0.is_none() {
            return;
        }
        let n_lanes = self.lanes_in.len();
        for place in 0..self.executors.len() {
            let first_task = self.executors[place].id.first;
            for (number, remote) in self.io.remotes.iter_mut().enumerate().filter(|(_, r)| r.is_open()) {
                if let Some(limit) = self.credit_in[place][n_lanes + 1 + number].due(true) {
                    remote.grant(&mut links.0, first_task, limit);
                }
            }
        }
        self.credit_owed = false;
    }

    pub(crate) fn add_link(&mut self, links: &mut Links, connection: Connection, peer: Peer) {
        if self.stopping {
            // The peer sees the connection end and finds nobody when it dials again.
            return;
        }
        if links.0.is_none() {
            self.io.shared.report(&Name::system("__system"), "a link for a loop without a carrier".into());
            return;
        }
        let Ok(trunk) = self.trunk_of(&peer) else {
            let (ours, theirs) = (peer.local_loop, peer.remote_loop);
            let text = format!(
                "a link from placement {:x}, loop {ours} - loop {theirs}: with that worker this one shares another",
                peer.placement
            );
            self.io.shared.report(&Name::system("__system"), text);
            return;
        };
        // Whoever was let in may know an assignment that this loop does not know yet.
        let (number, is_trunk) = trunk.map_or_else(|| (self.remote_number(peer.placement, peer.remote_loop), false), |trunk| (trunk, true));
        if !self.end_of(number, is_trunk).goes_with(peer.road, peer.start) {
            // The peer connected again before this side saw the old link end.
            let (placement, road) = (peer.placement, peer.road);
            let text = format!("placement {placement:x} connected again ({road:?}): what the link before still carried is lost");
            self.io.shared.report(&Name::system("__system"), text);
            if is_trunk { self.close_trunk(links, number, true) } else { self.close_remote(links, number, true) }
        }
        let now_ns = self.io.now_ns();
        let Some(carrier) = &mut links.0 else { return };
        match carrier.add(connection, peer, now_ns) {
            Ok(link) => {
                if self.behind.len() <= link.place() {
                    self.behind.resize(link.place() + 1, None);
                }
                self.behind[link.place()] = Some(Behind { link, number: number as u16, is_trunk, road: peer.road, told: true });
                let end = self.end_of(number, is_trunk);
                end.connect(peer.road, Connected { link, start: peer.start });
                match (end.is_open(), is_trunk) {
                    (true, true) => self.open_trunk(number, &peer),
                    (true, false) => self.open_remote(&mut links.0, number, worker_bit(peer.index, peer.start)),
                    (false, _) => {}
                }
                if !is_trunk {
                    self.lane_linked(number);
                }
            }
            Err(e) => self.io.shared.link_ended(LinkEnded {
                placement: peer.placement,
                local_loop: self.index as u32,
                remote_loop: peer.remote_loop,
                road: peer.road,
                how: HowEnded::Lost(format!("it could not be taken: {e}")),
            }),
        }
    }

    /// Both roads are there: frames may go, and the peer gets its first credit.
    pub(crate) fn open_remote(&mut self, carrier: &mut Option<Carrier>, number: usize, bit: u64) {
        self.io.open_place(number, bit);
        self.io.acks.open_remote(number, bit);
        let lane = self.lanes_in.len() + 1 + number;
        for place in 0..self.executors.len() {
            if self.shift.moves.is_leaving(self.executors[place].id.first) {
                continue;
            }
            let held = self.io.inboxes[place].lanes[lane].bytes() as u64;
            let limit = self.credit_in[place][lane].restart(held);
            self.io.remotes[number].grant(carrier, self.executors[place].id.first, limit);
        }
        self.lane_linked(number);
    }

    /// What has the roads of a link: a loop elsewhere, or a link that loops share.
    fn end_of(&mut self, number: usize, is_trunk: bool) -> &mut Remote {
        if is_trunk { &mut self.io.relay.trunks[number].remote } else { &mut self.io.remotes[number] }
    }

    /// Closes what there is of the link to a remote loop: its credit is void, what was staged is lost and counted, and its trees fail. What was sent
    /// and not counted by the peer follows with the ends of its connections.
    /// `wanted` = the peer is to be dialled again.
    pub(crate) fn close_remote(&mut self, links: &mut Links, number: usize, wanted: bool) {
        for road in [Road::Data, Road::Control] {
            if let (Some(link), Some(carrier)) = (self.io.remotes[number].link(road), &mut links.0) {
                carrier.close(link);
                self.io.remotes[number].disconnect(road);
                self.tell_end(link, wanted);
            }
        }
        self.io.remotes[number].through = None;
        self.shut_remote(number, false);
    }

    /// Whether the end of a connection that was closed here is told to whoever dials.
    pub(crate) fn tell_end(&mut self, link: LinkId, wanted: bool) {
        if let Some(behind) = &mut self.behind[link.place()] {
            behind.told = wanted;
        }
    }

    /// No frame goes to a remote loop any more.
    pub(crate) fn shut_remote(&mut self, number: usize, goodbye: bool) {
        self.io.close_place(number);
        self.lane_unlinked(number, goodbye);
        self.io.remotes[number].early.clear();
        self.io.remotes[number].grants.clear();
        let place = self.io.remote_place(number);
        let staged = std::mem::take(&mut self.io.staging[place].frames);
        self.discarded += lose_frames(&mut self.io.acks, &staged, self.io.turn_ns);
        self.io.acks.close_remote(number, goodbye, self.io.turn_ns);
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

    /// A limit that another loop granted.
    pub(crate) fn hear_credit(&mut self, number: usize, executor: u32, limit: u64) {
        self.io.acks.hear_remote(number);
        let Some(dest) = self.io.dests.get(executor as usize).copied() else { return };
        if dest.at as usize != self.io.remote_place(number) {
            self.io.remotes[number].early.insert(executor, limit);
        } else if self.io.credits[dest.credit as usize].is_open() {
            self.io.credits[dest.credit as usize].raise(limit);
        } else {
            self.open_credit(dest.credit as usize, limit);
        }
    }

    /// Takes frames that another worker sent.
    pub(crate) fn receiver(&mut self) -> Receiver<'_> {
        let CoreLoop { executors, io, credit_in, local_of_task, discarded, .. } = self;
        Receiver { executors, io, credit_in, local_of_task, discarded, far: true }
    }

    /// True until the ends of all connections of a shared link were told.
    pub(crate) fn has_behind(&self, trunk: usize) -> bool {
        self.behind.iter().flatten().any(|behind| behind.is_trunk && behind.number as usize == trunk)
    }

    /// What is behind a connection, unless it was given up.
    #[inline]
    fn behind(&mut self, link: LinkId) -> Option<Behind> {
        let behind = self.behind.get(link.place()).copied().flatten()?;
        let current = self.end_of(behind.number as usize, behind.is_trunk).link(behind.road) == Some(link);
        current.then_some(behind)
    }
}

/// Takes what the carrier hands over.
struct LinkEvents<'a> {
    owner: &'a mut CoreLoop,
    bad: Option<(LinkId, &'static str)>,
    /// Remote loops of which one road was lost, and links that loops share.
    close: Vec<(usize, bool)>,
}

impl Inbound for LinkEvents<'_> {
    fn frames(&mut self, link: LinkId, frames: &[u8]) {
        let Some(Behind { number, is_trunk, road, .. }) = self.owner.behind(link) else { return };
        if self.bad.is_some_and(|(bad, _)| bad == link) {
            return;
        }
        if is_trunk {
            self.bad = self.owner.take_shared(number as usize, road, frames).err().map(|why| (link, why)).or(self.bad);
            self.owner.received_bytes += if road == Road::Data { frames.len() as u64 } else { 0 };
            return;
        }
        if let Err(why) = check_frames(frames, road, &self.owner.checks) {
            self.bad = Some((link, why));
            return;
        }
        let lane = self.owner.lanes_in.len() + 1 + number as usize;
        self.owner.received_bytes += frames.len() as u64;
        self.owner.receiver().take(frames, lane);
    }

    fn credit(&mut self, link: LinkId, executor: u32, limit: u64) {
        // On a shared link credit goes in envelopes, which name whose it is.
        let Some(Behind { number, is_trunk: false, .. }) = self.owner.behind(link) else { return };
        self.owner.hear_credit(number as usize, executor, limit);
    }

    fn lost(&mut self, link: LinkId, frames: &[u8]) {
        let Some(behind) = self.owner.behind.get(link.place()).copied().flatten().filter(|b| b.link == link) else { return };
        let now_ns = self.owner.io.turn_ns;
        if behind.is_trunk {
            let placement = self.owner.io.relay.trunks[behind.number as usize].remote.placement;
            return self.owner.lose_envelopes(placement, behind.road, frames);
        }
        match behind.road {
            Road::Data => self.owner.discarded += lose_frames(&mut self.owner.io.acks, frames, now_ns),
            Road::Control => self.owner.io.acks.unconfirmed(behind.number as usize, frames),
        }
    }

    fn ended(&mut self, link: LinkId, end: LinkEnd) {
        let Some(behind) = self.owner.behind.get_mut(link.place()).and_then(|b| b.take_if(|b| b.link == link)) else { return };
        let (number, is_trunk, road) = (behind.number as usize, behind.is_trunk, behind.road);
        let current = self.owner.end_of(number, is_trunk).link(road);
        let how = match end.how {
            Ending::Goodbye => HowEnded::Goodbye,
            Ending::Lost { reason } if current == Some(link) => {
                HowEnded::Lost(format!("{reason}; {} frame bytes unsent, {} unconfirmed", end.unsent_bytes, end.unconfirmed_bytes))
            }
            // This side closed it, and has said why.
            Ending::Lost { .. } => HowEnded::Closed,
        };
        if current == Some(link) {
            self.owner.end_of(number, is_trunk).disconnect(road);
            let goodbye = matches!(how, HowEnded::Goodbye);
            if is_trunk {
                self.owner.shut_trunk(number, goodbye)
            } else {
                self.owner.shut_remote(number, goodbye)
            }
            if matches!(how, HowEnded::Lost(_)) {
                self.close.push((number, is_trunk));
            }
        } else if current.is_some() || !behind.told {
            // A newer one has taken its place, or nobody wants one.
            return;
        }
        let remote = self.owner.end_of(number, is_trunk);
        let (placement, remote_loop, local_loop) = (remote.placement, remote.on_loop, self.owner.index as u32);
        self.owner.io.shared.link_ended(LinkEnded { placement, local_loop, remote_loop, road, how });
    }
}

/// Bytes from another process are checked once, here: headers, then each archive against its stream.
pub(crate) fn check_frames(frames: &[u8], road: Road, checks: &[Check]) -> Result<(), &'static str> {
    check_run(frames)?;
    let mut run = frames;
    while let Some(frame) = Frame::first(run) {
        let flags = frame.header.flags;
        match road {
            Road::Data if flags & MARKER == CONTROL => return Err("an ack on the road of tuples"),
            Road::Control if flags & CONTROL == 0 => return Err("a tuple on the road of acks"),
            Road::Data if flags & END == 0 => {
                let check = checks.get(frame.header.stream as usize).ok_or("a frame of an unknown stream")?;
                if !check(frame.archive()) {
                    return Err("a frame whose archive is not valid for its stream");
                }
            }
            _ => {}
        }
        run = &run[frame.bytes.len()..];
    }
    Ok(())
}
