//! Links that the loops of a worker share: what goes to the loop that holds one, what it passes on, and what its end costs.
//!
//! Before: a loop has frames, acks or credit for a loop of another worker that it has no link of its own with, or a shared link has brought
//! some. After: they lie in the outgoing part of the link, or with the loop they are for. Not here: which links are shared (the assignment says).
//!
//! ```text
//!  loop 2 --- lane ---> owner ====== shared link ====== owner --- lane ---> loop 5
//! ```
//! Everything between two loops travels in *envelopes*: a control frame that names both and holds whole frames, credit, or the news that the link
//! opened or ended. It takes the lanes that the loops of a worker have anyway, so that frames of one emitter for one task stay in order. Credit is
//! between the two loops at the ends, as on a link of their own: whoever takes an envelope of tuples from a lane or from the link always finds
//! room for it, since what lies at the owners on the way is within the windows of where it goes.

use crate::core_loop::CoreLoop;
use crate::io::Io;
use crate::lane::{unhandle, whole_frames};
use crate::limits::{RELAY_CONTROL_BYTES_MAX, RELAY_RUN_BYTES_MAX};
use crate::links::{Links, check_frames};
use crate::loss::{lose_frames, worker_bit};
use crate::receive::{Receiver, discard};
use crate::remote::Remote;
use crate::stats::LoopStats;
use saetta_transport::{Carrier, Peer, Road};
use saetta_tuple::frame::{BLOCK_BYTES, CONTROL, Frame, HEADER_BYTES, Header};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Kind of a control frame that is an envelope; the others are in `ack.rs`.
pub(crate) const ENVELOPE: u16 = 64;
/// Header of an envelope and the block behind it.
const HEAD_BYTES: usize = HEADER_BYTES + BLOCK_BYTES;

/// All loops of this worker and all of another one use one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The other worker.
    pub placement: u64,
    /// Our loop that holds it.
    pub local_loop: u32,
    /// Theirs.
    pub remote_loop: u32,
}

/// What an envelope holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// Tuples and ends.
    Tuples,
    /// Control frames.
    Control,
    /// Limits: (executor u32, 0 u32, limit u64) each.
    Credit,
    /// From the owner to its own worker: the link is there. Start number and index of the worker at its other end.
    Opened,
    /// As `Opened`: it is over; 1 = after goodbyes.
    Ended,
}

/// An envelope that was read.
struct Envelope<'a> {
    holds: Holds,
    /// From a loop to the owner, or away from it.
    out: bool,
    /// The other worker.
    placement: u64,
    /// Which link to it: a number that the owner gives each.
    generation: u32,
    source: u32,
    target: u32,
    body: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Reads a whole envelope, or the head of one that was sent in pieces, behind a header that was checked or written here. `None` = it is none.
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let header = Header::decode(bytes).filter(|h| h.stream == ENVELOPE && h.flags == CONTROL && h.len as usize >= BLOCK_BYTES)?;
        let block = u128::from_le_bytes(*bytes.get(HEADER_BYTES..)?.first_chunk()?);
        let holds = match (block >> 64) as u8 {
            0 => Holds::Tuples,
            1 => Holds::Control,
            2 => Holds::Credit,
            3 => Holds::Opened,
            4 => Holds::Ended,
            _ => return None,
        };
        Some(Envelope {
            holds,
            out: (block >> 72) as u8 == 1,
            placement: block as u64,
            generation: (block >> 96) as u32,
            source: header.source,
            target: header.target,
            body: bytes.get(HEAD_BYTES..).unwrap_or_default(),
        })
    }

    fn write(&self, to: &mut Vec<u8>) {
        let header = Header {
            len: (BLOCK_BYTES + self.body.len()) as u32,
            stream: ENVELOPE,
            flags: CONTROL,
            target: self.target,
            source: self.source,
        };
        let kind = self.holds as u128 | u128::from(self.out) << 8 | u128::from(self.generation) << 32;
        to.extend_from_slice(&header.encode());
        to.extend_from_slice(&(u128::from(self.placement) | kind << 64).to_le_bytes());
        to.extend_from_slice(self.body);
        debug_assert!(self.body.len().is_multiple_of(8), "whole frames, or blocks");
    }
}

/// A shared link that this loop holds.
pub(crate) struct Trunk {
    /// The loop at its other end, and the connections.
    pub(crate) remote: Remote,
    generation: u32,
    /// Envelopes for it, by road: those of tuples within the windows of where they go.
    out: [Vec<u8>; 2],
}

/// A shared link that is there, as every loop of the worker knows it.
#[derive(Clone, Copy)]
struct Opened {
    generation: u32,
    start: u64,
    index: u32,
}

/// What a loop knows of shared links. Nothing is shared in most topologies: then this is empty and costs a look a turn.
pub(crate) struct Relay {
    own: usize,
    /// Something was shared once.
    used: bool,
    shares: Vec<Share>,
    open: BTreeMap<u64, Opened>,
    pub(crate) trunks: Vec<Trunk>,
    /// Envelopes of tuples that wait for room in a lane.
    waiting: Vec<Vec<u8>>,
    /// Links opened.
    opened: u32,
    /// Bytes copied for other loops.
    bytes: u64,
}

impl Relay {
    /// Of loop `own`.
    pub(crate) fn new(own: usize, n_lanes: usize) -> Self {
        let waiting = (0..n_lanes).map(|_| Vec::new()).collect();
        Relay { own, used: false, shares: Vec::new(), open: BTreeMap::new(), trunks: Vec::new(), waiting, opened: 0, bytes: 0 }
    }

    fn share(&self, placement: u64) -> Option<Share> {
        self.shares.iter().find(|s| s.placement == placement).copied()
    }

    /// Lanes are to all loops but this one, in their order.
    fn lane(&self, to: u32) -> Option<usize> {
        let to = to as usize;
        (to != self.own).then(|| to - usize::from(to > self.own)).filter(|lane| *lane < self.waiting.len())
    }

    fn trunk(&mut self, placement: u64) -> Option<&mut Trunk> {
        self.trunks.iter_mut().find(|t| t.remote.placement == placement)
    }

    /// Bytes that wait here.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting.iter().chain(self.trunks.iter().flat_map(|t| &t.out)).map(Vec::len).sum()
    }

    /// True while no shared link is connected, and nothing is on its way to one.
    pub(crate) fn is_apart(&self) -> bool {
        self.trunks.iter().all(|t| t.remote.is_apart()) && self.waiting.iter().all(Vec::is_empty)
    }
}

impl Io {
    /// Puts an envelope of tuples on its way to another loop of this worker, or behind what waits for that.
    fn pass_tuples(&mut self, lane: usize, envelope: &Envelope<'_>) {
        let at = (self.first_lane + lane) as u16;
        if self.relay.waiting[lane].is_empty() && self.has_room(at) {
            let staged = &mut self.staging[at as usize].frames;
            let start = staged.len();
            envelope.write(staged);
            self.written(at, start);
        } else {
            envelope.write(&mut self.relay.waiting[lane]);
        }
    }

    /// What waited for room in a lane.
    fn pass_waiting(&mut self) {
        for lane in 0..self.relay.waiting.len() {
            let at = (self.first_lane + lane) as u16;
            let waiting = std::mem::take(&mut self.relay.waiting[lane]);
            let mut run = &waiting[..];
            while !run.is_empty() && self.has_room(at) {
                let n = whole_frames(run, 1);
                let staged = &mut self.staging[at as usize].frames;
                let start = staged.len();
                staged.extend_from_slice(&run[..n]);
                self.written(at, start);
                run = &run[n..];
            }
            let rest = run.len();
            let mut waiting = waiting;
            waiting.drain(..waiting.len() - rest);
            self.relay.waiting[lane] = waiting;
        }
    }

    /// Tuples for a shared link of this loop. Those of a link that has ended meanwhile are lost. Returns how many.
    fn send_tuples(&mut self, envelope: &Envelope<'_>) -> u64 {
        let is_open = self.relay.open.get(&envelope.placement).is_some_and(|o| o.generation == envelope.generation);
        if let Some(trunk) = self.relay.trunk(envelope.placement).filter(|_| is_open) {
            envelope.write(&mut trunk.out[Road::Data as usize]);
            return 0;
        }
        lose_frames(&mut self.acks, envelope.body, self.turn_ns)
    }
}

impl Receiver<'_> {
    /// An envelope from another loop of this worker.
    #[cold]
    pub(crate) fn take_envelope(&mut self, frame: &Frame<'_>) {
        let whole = unhandle(frame);
        let Some(envelope) = Envelope::read(whole.as_deref().unwrap_or(frame.bytes)) else { return };
        if envelope.out {
            self.io.relay.bytes += envelope.body.len() as u64;
            *self.discarded += self.io.send_tuples(&envelope);
        } else {
            self.deliver(&envelope);
        }
    }

    /// Tuples that came by a shared link for this loop.
    fn deliver(&mut self, envelope: &Envelope<'_>) {
        let from = |r: &Remote| r.placement == envelope.placement && r.on_loop == envelope.source;
        let Some(number) = self.io.remotes.iter().position(from) else {
            // They are of a link that has ended, to a worker that is gone.
            let mut run = envelope.body;
            while let Some(frame) = Frame::first(run) {
                *self.discarded += 1;
                discard(self.io, &frame);
                run = &run[frame.bytes.len()..];
            }
            return;
        };
        let lane = self.io.lanes.len() + 1 + number;
        if self.io.remotes[number].through.is_some_and(|now| now != envelope.generation) {
            // The windows of the link that is there now do not know of these.
            let mut run = envelope.body;
            while let Some(frame) = Frame::first(run) {
                if let Some(credit) =
                    self.local_of_task.get(frame.header.target as usize).and_then(|place| self.credit_in.get_mut(*place as usize))
                {
                    credit[lane].hold(frame.bytes.len());
                }
                run = &run[frame.bytes.len()..];
            }
        }
        self.take(envelope.body, lane);
    }
}

impl CoreLoop {
    /// Which links are shared from now on. Links that are held otherwise are closed.
    pub(crate) fn share(&mut self, links: &mut Links, shares: &[Share]) {
        let before = std::mem::replace(&mut self.io.relay.shares, shares.to_vec());
        self.io.relay.used |= !shares.is_empty();
        for share in before.iter().filter(|s| !shares.contains(s)) {
            if let Some(trunk) = self.io.relay.trunks.iter().position(|t| t.remote.placement == share.placement) {
                self.close_trunk(links, trunk, false);
            }
            self.hear_ended(share.placement, None, false);
        }
        for number in 0..self.io.remotes.len() {
            let remote = &self.io.remotes[number];
            if !remote.is_apart() && remote.through.is_none() && self.io.relay.share(remote.placement).is_some() {
                self.close_remote(links, number, false);
            }
        }
    }

    /// The shared link with this peer that is this loop's to hold; `Err` = they share one, and it is another.
    pub(crate) fn trunk_of(&mut self, peer: &Peer) -> Result<Option<usize>, ()> {
        let Some(share) = self.io.relay.share(peer.placement) else { return Ok(None) };
        if share.local_loop as usize != self.index || share.remote_loop != peer.remote_loop {
            return Err(());
        }
        let known = self.io.relay.trunks.iter().position(|t| t.remote.placement == peer.placement);
        if let Some(known) = known.filter(|known| self.io.relay.trunks[*known].remote.on_loop == peer.remote_loop) {
            return Ok(Some(known));
        }
        let place = known.or_else(|| {
            let trunks = self.io.relay.trunks.iter().enumerate();
            let gone = |(n, t): &(usize, &Trunk)| self.io.relay.share(t.remote.placement).is_none() && !self.has_behind(*n);
            trunks.into_iter().find(gone).map(|(n, _)| n)
        });
        let trunk = Trunk { remote: Remote::new(peer.placement, peer.remote_loop), generation: 0, out: [Vec::new(), Vec::new()] };
        Ok(Some(match place {
            Some(place) => {
                self.io.relay.trunks[place] = trunk;
                place
            }
            None => {
                self.io.relay.trunks.push(trunk);
                self.io.relay.trunks.len() - 1
            }
        }))
    }

    /// Both roads of a shared link are there: every loop is told.
    pub(crate) fn open_trunk(&mut self, trunk: usize, peer: &Peer) {
        let relay = &mut self.io.relay;
        relay.opened += 1;
        // No other loop of this worker gives the same.
        let generation = relay.opened << 8 | self.index as u32;
        relay.trunks[trunk].generation = generation;
        let body = [peer.start.to_le_bytes(), u64::from(peer.index).to_le_bytes()].concat();
        self.tell_all(peer.placement, generation, Holds::Opened, &body);
        self.hear_opened(peer.placement, Opened { generation, start: peer.start, index: peer.index });
    }

    /// Closes what there is of a shared link.
    pub(crate) fn close_trunk(&mut self, links: &mut Links, trunk: usize, wanted: bool) {
        for road in [Road::Data, Road::Control] {
            if let (Some(link), Some(carrier)) = (self.io.relay.trunks[trunk].remote.link(road), &mut links.0) {
                carrier.close(link);
                self.io.relay.trunks[trunk].remote.disconnect(road);
                self.tell_end(link, wanted);
            }
        }
        self.shut_trunk(trunk, false);
    }

    /// Nothing goes over a shared link any more: what waited for it is lost, and every loop is told.
    pub(crate) fn shut_trunk(&mut self, trunk: usize, goodbye: bool) {
        let Trunk { remote, generation, out } = &mut self.io.relay.trunks[trunk];
        let (placement, generation) = (remote.placement, std::mem::take(generation));
        let out = std::mem::take(out);
        for (road, out) in [Road::Data, Road::Control].into_iter().zip(&out) {
            self.lose_envelopes(placement, road, out);
        }
        // Also where only the road of control was there: it may have brought credit.
        self.tell_all(placement, generation, Holds::Ended, &u64::from(goodbye).to_le_bytes());
        self.hear_ended(placement, Some(generation), goodbye);
    }

    /// Envelopes that a shared link had, or was to have, and that its other end may not have.
    pub(crate) fn lose_envelopes(&mut self, placement: u64, road: Road, envelopes: &[u8]) {
        let mut run = envelopes;
        while let Some(header) = Header::decode(run) {
            let (whole, rest) = run.split_at(header.frame_bytes().min(run.len()));
            run = rest;
            let Some(envelope) = Envelope::read(whole) else { continue };
            match (road, envelope.holds) {
                (Road::Data, Holds::Tuples) => self.discarded += lose_frames(&mut self.io.acks, envelope.body, self.io.turn_ns),
                (Road::Control, Holds::Control) => {
                    let number = self.remote_number(placement, envelope.target);
                    self.io.acks.unconfirmed(number, envelope.body);
                }
                _ => {}
            }
        }
    }

    fn tell_all(&mut self, placement: u64, generation: u32, holds: Holds, body: &[u8]) {
        let source = self.index as u32;
        for lane in 0..self.io.acks.lanes.len() {
            let envelope = Envelope { holds, out: false, placement, generation, source, target: 0, body };
            self.io.acks.pass_on(lane, |to| envelope.write(to));
        }
    }

    fn hear_opened(&mut self, placement: u64, opened: Opened) {
        self.io.relay.open.insert(placement, opened);
        for number in 0..self.io.remotes.len() {
            if self.io.remotes[number].placement == placement {
                self.join_trunk(number);
            }
        }
    }

    /// `generation`: only if it is still that link that is there.
    fn hear_ended(&mut self, placement: u64, generation: Option<u32>, goodbye: bool) {
        match self.io.relay.open.get(&placement) {
            Some(open) if generation.is_some_and(|ended| ended != open.generation) => return,
            Some(_) => drop(self.io.relay.open.remove(&placement)),
            None if generation.is_none() => return,
            None => {}
        }
        for number in 0..self.io.remotes.len() {
            let remote = &mut self.io.remotes[number];
            if remote.placement == placement {
                remote.through = None;
                if remote.is_apart() {
                    self.shut_remote(number, goodbye);
                }
            }
        }
    }

    /// A shared link to this worker is known no more: see `loss.rs`.
    pub(crate) fn forget_trunk(&mut self, links: &mut Links, placement: u64, start: u64) {
        if let Some(trunk) = self.io.relay.trunks.iter().position(|t| t.remote.placement == placement)
            && self.io.relay.trunks[trunk].remote.start.is_some_and(|last| last <= start)
        {
            self.close_trunk(links, trunk, true);
        }
        self.io.relay.open.retain(|of, open| *of != placement || open.start > start);
    }

    /// A loop elsewhere is reached by the shared link to its worker, if that is there.
    pub(crate) fn join_trunk(&mut self, number: usize) {
        let remote = &self.io.remotes[number];
        let Some(opened) = self.io.relay.open.get(&remote.placement).copied() else { return };
        if remote.through == Some(opened.generation) {
            return;
        }
        if remote.start.is_some_and(|before| before < opened.start) {
            // The news of it may be behind that of the link.
            self.lose_incarnation(&mut Links::none(), number);
        }
        let remote = &mut self.io.remotes[number];
        (remote.start, remote.through, remote.leaving) = (Some(opened.start), Some(opened.generation), false);
        self.open_remote(&mut None, number, worker_bit(opened.index, opened.start));
    }

    /// What came over a shared link. The error says what is wrong with it: the peer is broken.
    pub(crate) fn take_shared(&mut self, trunk: usize, road: Road, frames: &[u8]) -> Result<(), &'static str> {
        let Trunk { remote, generation, .. } = &self.io.relay.trunks[trunk];
        let (placement, generation) = (remote.placement, *generation);
        let mut run = frames;
        while let Some(header) = Header::decode(run) {
            let whole = run.get(..header.frame_bytes()).ok_or("an envelope that is cut")?;
            run = &run[whole.len()..];
            let read = Envelope::read(whole).ok_or("on a shared link, what is no envelope")?;
            let envelope = Envelope { out: false, placement, generation, ..read };
            match (road, envelope.holds) {
                (Road::Data, Holds::Tuples) | (Road::Control, Holds::Control) => check_frames(envelope.body, road, &self.checks)?,
                (Road::Control, Holds::Credit) => {}
                _ => return Err("an envelope on the wrong road"),
            }
            if envelope.source as usize >= crate::limits::LOOPS_MAX {
                return Err("an envelope of a loop that cannot be");
            }
            if envelope.target as usize == self.index {
                match road {
                    Road::Data => self.receiver().deliver(&envelope),
                    Road::Control => self.hear_envelope(&envelope),
                }
                continue;
            }
            let lane = self.io.relay.lane(envelope.target).ok_or("an envelope for a loop that is not there")?;
            self.io.relay.bytes += envelope.body.len() as u64;
            match road {
                Road::Data => self.io.pass_tuples(lane, &envelope),
                // A loop that has been in user code for long: its acks time out, credit and news wait for it.
                Road::Control if envelope.holds == Holds::Control && self.io.acks.passed_bytes(lane) > RELAY_CONTROL_BYTES_MAX => {
                    self.io.acks.lost += 1;
                }
                Road::Control => self.io.acks.pass_on(lane, |to| envelope.write(to)),
            }
        }
        Ok(())
    }

    /// Envelopes that came by the control lanes.
    #[cold]
    pub(crate) fn take_envelopes(&mut self) {
        let all = std::mem::take(&mut self.io.acks.envelopes);
        let mut run = &all[..];
        while let Some(frame) = Frame::first(run) {
            run = &run[frame.bytes.len()..];
            let Some(envelope) = Envelope::read(frame.bytes) else { continue };
            if envelope.out {
                self.io.relay.bytes += envelope.body.len() as u64;
                self.send_control(&envelope);
            } else {
                self.hear_envelope(&envelope);
            }
        }
    }

    /// Acks or credit for a shared link of this loop. If it has ended meanwhile, acks are owed as fails.
    fn send_control(&mut self, envelope: &Envelope<'_>) {
        let is_open = self.io.relay.open.get(&envelope.placement).is_some_and(|o| o.generation == envelope.generation);
        if let Some(trunk) = self.io.relay.trunk(envelope.placement).filter(|_| is_open) {
            envelope.write(&mut trunk.out[Road::Control as usize]);
        } else if envelope.holds == Holds::Control {
            let number = self.remote_number(envelope.placement, envelope.target);
            self.io.acks.unconfirmed(number, envelope.body);
        }
    }

    /// What is for this loop, tuples aside.
    fn hear_envelope(&mut self, envelope: &Envelope<'_>) {
        let word = |block: &[u8; BLOCK_BYTES]| (u128::from_le_bytes(*block) as u64, (u128::from_le_bytes(*block) >> 64) as u64);
        let blocks = envelope.body.as_chunks::<BLOCK_BYTES>().0;
        match envelope.holds {
            Holds::Tuples => {}
            Holds::Control => {
                let number = self.remote_number(envelope.placement, envelope.source);
                self.io.acks.from = self.lane_of_remote(number);
                let mut run = envelope.body;
                while let Some(frame) = Frame::first(run) {
                    self.io.acks.apply(&frame, self.io.turn_ns);
                    run = &run[frame.bytes.len()..];
                }
            }
            Holds::Credit => {
                let number = self.remote_number(envelope.placement, envelope.source);
                for (executor, limit) in blocks.iter().map(word) {
                    self.hear_credit(number, executor as u32, limit);
                }
            }
            Holds::Opened => {
                if let Some((start, index)) = blocks.first().map(word) {
                    self.hear_opened(envelope.placement, Opened { generation: envelope.generation, start, index: index as u32 });
                }
            }
            Holds::Ended => self.hear_ended(envelope.placement, Some(envelope.generation), envelope.body.first() == Some(&1)),
        }
    }

    /// Hands what this loop has for loops behind shared links to the loops that hold those. Returns bytes moved.
    pub(crate) fn flush_shared(&mut self) -> usize {
        if !self.io.relay.used {
            return 0;
        }
        let mut moved = 0;
        for number in 0..self.io.remotes.len() {
            if let Some(generation) = self.io.remotes[number].through {
                moved += self.flush_through(number, generation);
            }
        }
        self.io.pass_waiting();
        self.io.flush_lanes();
        moved + self.io.acks.flush_passed()
    }

    fn flush_through(&mut self, number: usize, generation: u32) -> usize {
        let (placement, target) = (self.io.remotes[number].placement, self.io.remotes[number].on_loop);
        let Some(owner) = self.io.relay.share(placement).map(|s| s.local_loop) else { return 0 };
        let lane = self.io.relay.lane(owner);
        let source = self.index as u32;
        let base = Envelope { holds: Holds::Tuples, out: true, placement, generation, source, target, body: &[] };
        let mut moved = 0;

        let grants = std::mem::take(&mut self.io.remotes[number].grants);
        if !grants.is_empty() {
            let body: Vec<u8> =
                grants.iter().flat_map(|(executor, limit)| (u128::from(*executor) | u128::from(*limit) << 64).to_le_bytes()).collect();
            for part in body.chunks(RELAY_RUN_BYTES_MAX) {
                moved += part.len();
                self.hand_control(lane, &Envelope { holds: Holds::Credit, body: part, ..base });
            }
        }
        let full =
            self.io.shared.loops.get(owner as usize).is_some_and(|l: &std::sync::Arc<LoopStats>| l.relay_full.load(Ordering::Relaxed));
        if !full {
            let mut acks = Vec::new();
            self.io.acks.flush_remote(number, |frames| {
                acks.extend_from_slice(frames);
                frames.len()
            });
            let mut run = &acks[..];
            while !run.is_empty() {
                let (part, rest) = run.split_at(whole_frames(run, RELAY_RUN_BYTES_MAX));
                (run, moved) = (rest, moved + part.len());
                self.hand_control(lane, &Envelope { holds: Holds::Control, body: part, ..base });
            }
        }

        let place = self.io.remote_place(number);
        let mut staged = std::mem::take(&mut self.io.staging[place].frames);
        let mut run = &staged[..];
        while !run.is_empty() {
            let (part, rest) = run.split_at(whole_frames(run, RELAY_RUN_BYTES_MAX));
            (run, moved) = (rest, moved + part.len());
            match lane {
                Some(lane) => self.io.pass_tuples(lane, &Envelope { body: part, ..base }),
                None => self.discarded += self.io.send_tuples(&Envelope { body: part, ..base }),
            }
        }
        staged.clear();
        self.io.staging[place].frames = staged;
        moved
    }

    fn hand_control(&mut self, lane: Option<usize>, envelope: &Envelope<'_>) {
        match lane {
            Some(lane) => self.io.acks.pass_on(lane, |to| envelope.write(to)),
            None => self.send_control(envelope),
        }
    }

    /// Stages what waits for the shared links of this loop. At a stop, they say goodbye.
    pub(crate) fn flush_trunks(&mut self, carrier: &mut Carrier) {
        if self.io.relay.trunks.is_empty() {
            return;
        }
        let mut control_bytes = 0;
        for Trunk { remote, out, .. } in &mut self.io.relay.trunks {
            for road in [Road::Control, Road::Data] {
                let (Some(link), out) = (remote.link(road).filter(|_| remote.is_open()), &mut out[road as usize]) else { continue };
                if !out.is_empty() {
                    let taken = carrier.hand_over(link, out);
                    self.io.sent_bytes += if road == Road::Data { taken as u64 } else { 0 };
                }
            }
            control_bytes += out[Road::Control as usize].len();
            if self.stopping && out.iter().all(Vec::is_empty) && !remote.leaving {
                remote.leaving = true;
                [Road::Data, Road::Control].into_iter().filter_map(|road| remote.link(road)).for_each(|link| carrier.say_goodbye(link));
            }
        }
        // Relaxed: those who read it look again the next turn.
        self.stats.relay_full.store(control_bytes > RELAY_CONTROL_BYTES_MAX, Ordering::Relaxed);
    }

    /// Tells others what shared links cost, and how much waits for them.
    pub(crate) fn keep_relay(&mut self, links: &Links) -> usize {
        self.stats.relayed_bytes.store(self.io.relay.bytes, Ordering::Relaxed);
        let roads = self.io.relay.trunks.iter().flat_map(|t| [t.remote.link(Road::Data), t.remote.link(Road::Control)]).flatten();
        let undrained = links.0.as_ref().map_or(0, |carrier| roads.filter(|link| !carrier.drained(*link)).count());
        undrained + self.io.relay.waiting_bytes() + self.io.remotes.iter().map(|r| r.grants.len()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope<'a>(holds: Holds, body: &'a [u8]) -> Envelope<'a> {
        Envelope { holds, out: true, placement: 0xA1B2_C3D4_E5F6_0718, generation: 0x0102_0304, source: 3, target: 61, body }
    }

    #[test]
    fn an_envelope_reads_back_and_what_is_none_does_not() {
        for holds in [Holds::Tuples, Holds::Control, Holds::Credit, Holds::Opened, Holds::Ended] {
            let (body, mut bytes) = ([7; 40], Vec::new());
            envelope(holds, &body).write(&mut bytes);
            assert_eq!(Frame::first(&bytes).unwrap().bytes.len(), bytes.len(), "one whole frame");
            let read = Envelope::read(&bytes).unwrap();
            assert_eq!((read.holds, read.out, read.placement, read.generation), (holds, true, 0xA1B2_C3D4_E5F6_0718, 0x0102_0304));
            assert_eq!((read.source, read.target, read.body), (3, 61, &body[..]));
            // A peer may send anything: cut, another kind of frame, of a kind that holds nothing known.
            (0..HEAD_BYTES).for_each(|n| assert!(Envelope::read(&bytes[..n]).is_none(), "{n}"));
            for (at, with) in [(4, 9), (6, 0), (6, CONTROL as u8 | 2), (HEADER_BYTES + 8, 5), (0, 8)] {
                let mut other = bytes.clone();
                other[at] = with;
                assert!(Envelope::read(&other).is_none(), "{at} {with}");
            }
        }
    }
}
