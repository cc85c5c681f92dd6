//! The control road to loops of other workers: what waits for it, what it owes after a cut, and what a cut costs.
//!
//! Before: `../ack.rs` has acks and fails for a ledger elsewhere. After: the link has them, or fails in their place go over the next one.
//!
//! Acks are never sent twice: what was handed to a connection that ended may have arrived. So the roots it named are owed as fails, told before
//! anything else on the next connection; what had not been handed over is still good. Until then whoever holds the ledgers takes this worker
//! for lost. A later incarnation gets the same: some of it may be of its own trees, which came by way of a worker that saw it earlier, and its
//! ledger knows which.

use super::{Acks, Batch, Frame, Reason, Road, Step, kind, words};
use crate::ledger::Root;
use crate::limits::{CONTROL_STAGING_BYTES_MAX, OWED_BYTES_MAX};
use saetta_tuple::frame::{BLOCK_BYTES, HEADER_BYTES};

/// See the head of this file.
#[derive(Default)]
pub(super) struct RemoteOut {
    /// Not yet handed to a connection.
    pub(super) batch: Batch,
    /// Fails in place of what an earlier connection may not have delivered; at most `OWED_BYTES_MAX`.
    owed: Batch,
    /// Bit of the incarnation that was connected last.
    bit: u64,
    open: bool,
    /// It has said something on this connection: it knows who is at this end.
    heard: bool,
    /// Its connection ended without a goodbye, and it has not come back.
    cut: bool,
}

impl RemoteOut {
    /// True when so much waits that something must be done about it.
    #[inline]
    pub(super) fn add(&mut self, of: u16, root: Root, xor: u64, mask: u64) -> bool {
        self.batch.add(of, root, xor, mask);
        self.batch.frames.len() >= CONTROL_STAGING_BYTES_MAX
    }

    /// As [`Self::add`].
    pub(super) fn say(&mut self, of: u16, root: Root, reason: u8, text: &str) -> bool {
        self.batch.say(of, root, reason, text);
        self.batch.frames.len() >= CONTROL_STAGING_BYTES_MAX
    }

    /// True when something waits for a connection that is there.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        self.open && !self.batch.frames.is_empty()
    }

    /// Owes a fail for each root these control frames name. Returns how many found no room.
    fn owe(&mut self, frames: &[u8]) -> u64 {
        let (mut run, mut lost) = (frames, 0);
        while let Some(frame) = Frame::first(run) {
            run = &run[frame.bytes.len()..];
            let body = &frame.bytes[HEADER_BYTES..HEADER_BYTES + frame.header.len as usize];
            let to = match frame.header.stream {
                kind::ACKS | kind::INITS | kind::FAILS | kind::FAIL => kind::FAILS,
                // That it is complete may not have been heard: then it must not stay open.
                kind::COMPLETE | kind::FAILEDS | kind::FAILED => kind::FAILEDS,
                // A probe is sent again; without a reset a tree times out earlier.
                _ => continue,
            };
            if let kind::FAIL | kind::FAILED = frame.header.stream {
                let Some((root, [reason, ..])) = body.split_first_chunk::<8>() else { continue };
                lost += self.owe_root(to, u64::from_le_bytes(*root), u64::from(*reason));
                continue;
            }
            for block in body.as_chunks::<BLOCK_BYTES>().0.iter().skip(1) {
                lost += self.owe_root(to, words(block).0, Reason::LinkLost as u64);
            }
        }
        lost
    }

    /// Puts what is owed before what waits.
    fn pay(&mut self) {
        self.owed.close();
        self.batch.close();
        let mut frames = std::mem::take(&mut self.owed).frames;
        frames.append(&mut self.batch.frames);
        self.batch.frames = frames;
    }

    fn owe_root(&mut self, to: u16, root: u64, reason: u64) -> u64 {
        match Root::from_bits(root) {
            Some(root) if self.owed.frames.len() < OWED_BYTES_MAX => {
                self.owed.add(to, root, 0, reason);
                0
            }
            _ => 1,
        }
    }
}

impl Acks {
    pub(super) fn remote(&mut self, remote: u16) -> &mut RemoteOut {
        let n = remote as usize;
        if self.remotes.len() <= n {
            self.remotes.resize_with(n + 1, RemoteOut::default);
        }
        &mut self.remotes[n]
    }

    /// So much waits for it that emitters must stop; or, while there is no connection, that it is better to owe fails, which take less.
    #[cold]
    pub(super) fn remote_full(&mut self, remote: u16) {
        let out = self.remote(remote);
        if out.open {
            self.congested = true;
            return;
        }
        out.batch.close();
        let frames = std::mem::take(&mut out.batch).frames;
        self.lost += self.remote(remote).owe(&frames);
    }

    /// Hands over what is staged for a loop of another worker; `to` says how many bytes of whole frames were taken.
    pub(crate) fn flush_remote(&mut self, remote: usize, to: impl FnOnce(&[u8]) -> usize) {
        let Some(RemoteOut { batch, .. }) = self.remotes.get_mut(remote).filter(|out| out.waits()) else { return };
        batch.close();
        let taken = to(&batch.frames);
        batch.frames.drain(..taken);
    }

    /// A loop of another worker is connected, of the incarnation whose bit this is. What is owed goes first.
    #[cold]
    pub(crate) fn open_remote(&mut self, remote: usize, bit: u64) {
        let out = self.remote(remote as u16);
        let back = std::mem::take(&mut out.cut).then_some(out.bit);
        (out.open, out.bit) = (true, bit);
        out.pay();
        self.staged = true;
        if let Some(bit) = back
            && !self.remotes.iter().any(|out| out.cut && out.bit == bit)
        {
            let until_ns = self.gone.until_ns(bit);
            self.ledgers.iter_mut().for_each(|ledger| ledger.regain(bit, until_ns));
        }
    }

    /// A loop of another worker has said something on its connection: ledgers there are ready for the trees of spouts here.
    #[inline]
    pub(crate) fn hear_remote(&mut self, remote: usize) {
        let out = self.remote(remote as u16);
        if out.open && !std::mem::replace(&mut out.heard, true) {
            self.trackers.iter_mut().filter(|t| t.ledger == Road::Remote(remote as u16)).for_each(|t| t.ledger_is_heard(true));
        }
    }

    /// False for a road to another worker that is not heard of.
    pub(super) fn is_heard(&self, road: Road) -> bool {
        match road {
            Road::Remote(remote) => self.remotes.get(remote as usize).is_some_and(|out| out.heard),
            _ => true,
        }
    }

    /// Control frames that a connection had and its other end may not have. Whole frames; before or after its end is seen, or the next one is
    /// there.
    #[cold]
    pub(crate) fn unconfirmed(&mut self, remote: usize, frames: &[u8]) {
        let out = self.remote(remote as u16);
        let lost = out.owe(frames);
        if out.open {
            out.pay();
        }
        self.lost += lost;
        self.staged = true;
    }

    /// The connection to a loop of another worker is over. Without a goodbye, that worker counts as lost for the ledgers here until it is
    /// connected again, one message timeout at most: what it said of its trees may be gone.
    #[cold]
    pub(crate) fn close_remote(&mut self, remote: usize, goodbye: bool, now_ns: u64) {
        let out = self.remote(remote as u16);
        if !std::mem::take(&mut out.open) {
            return;
        }
        (out.cut, out.heard) = (!goodbye, false);
        let bit = out.bit;
        // Looked at anew by the next flush.
        (self.congested, self.staged) = (false, true);
        if !goodbye {
            self.lose_in_ledgers(bit, now_ns + self.gone.timeout_ns(), Reason::LinkLost, now_ns);
        }
        self.lose_ledgers(Road::Remote(remote as u16), Reason::LinkLost);
        self.trackers.iter_mut().filter(|t| t.ledger == Road::Remote(remote as u16)).for_each(|t| t.ledger_is_heard(false));
    }

    /// The place is to be another's. What waits for it looks for a new road: [`Self::send_orphans`].
    #[cold]
    pub(crate) fn leave_remote(&mut self, remote: usize) {
        let RemoteOut { mut batch, mut owed, .. } = std::mem::take(self.remote(remote as u16));
        owed.close();
        batch.close();
        self.orphans.append(&mut owed.frames);
        self.orphans.append(&mut batch.frames);
    }

    /// Roads have changed: what waits for a connection that is not there goes where it is to go now. That may be the same place.
    #[cold]
    pub(crate) fn send_orphans(&mut self, now_ns: u64) {
        for remote in 0..self.remotes.len() {
            if !self.remotes[remote].open {
                let RemoteOut { bit, cut, .. } = self.remotes[remote];
                self.leave_remote(remote);
                (self.remotes[remote].bit, self.remotes[remote].cut) = (bit, cut);
            }
        }
        let orphans = std::mem::take(&mut self.orphans);
        let mut run = &orphans[..];
        while let Some(frame) = Frame::first(run) {
            run = &run[frame.bytes.len()..];
            self.send_orphan(&frame, now_ns);
        }
    }

    fn send_orphan(&mut self, frame: &Frame<'_>, now_ns: u64) {
        let of = frame.header.stream;
        if of == kind::MOVE {
            // Said again where it still means something.
            return;
        }
        let (kind::ACKS | kind::INITS | kind::COMPLETE) = of else {
            // These find their way by their root, wherever they are.
            return self.apply(frame, now_ns);
        };
        let blocks = frame.bytes[HEADER_BYTES..HEADER_BYTES + frame.header.len as usize].as_chunks::<BLOCK_BYTES>().0;
        let Some((mask, blocks)) = blocks.split_first() else { return };
        for block in blocks {
            let (root, xor) = words(block);
            match (of, Root::from_bits(root)) {
                (kind::ACKS, Some(root)) => self.ack(root, xor, words(mask).0, now_ns),
                (kind::COMPLETE, Some(root)) => self.step(Step::Complete, root, 0, now_ns),
                // An init's tree failed when its ledger was found to be elsewhere.
                _ => self.lost += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ack::Tracker;
    use crate::ledger::{Edges, Ledger, Slots};

    const TIMEOUT_NS: u64 = 1_000_000_000;
    /// Of a worker, and of its start before.
    const BIT: u64 = 1 << 3;
    const BIT_BEFORE: u64 = 1 << 35;

    /// A loop that holds task 1, which opens trees, and its ledger; the bolts' loop is its remote 0.
    fn spouts() -> Acks {
        let here = Road::Here(0);
        let trackers = vec![Tracker::new(Slots::new(1, 1024, 1_000 * TIMEOUT_NS, 1), 1024, here)];
        let (ledger_of, owner_at) = (vec![Road::None, here], vec![Road::None, here]);
        Acks::new(trackers, vec![Ledger::new(1)], ledger_of, owner_at, vec![], vec![], Edges::new(1), true, TIMEOUT_NS)
    }

    /// A loop of bolts; the spouts' loop is its remote 0.
    fn bolts() -> Acks {
        let there = Road::Remote(0);
        Acks::new(vec![], vec![], vec![Road::None, there], vec![Road::None, there], vec![], vec![], Edges::new(2), true, TIMEOUT_NS)
    }

    /// Begins trees of one frame each, with that edge, which went to the bolts.
    fn begin(spouts: &mut Acks, ids: std::ops::Range<u64>, edge: u64, now_ns: u64) -> Vec<Root> {
        let open = |id| {
            let root = spouts.open(0, id, now_ns).expect("room");
            spouts.init(0, root, edge, BIT, now_ns);
            root
        };
        ids.map(open).collect()
    }

    /// What waits for the spouts' loop, handed over.
    fn hand_over(bolts: &mut Acks) -> Vec<u8> {
        let mut frames = Vec::new();
        bolts.flush_remote(0, |all| {
            frames.extend_from_slice(all);
            all.len()
        });
        frames
    }

    /// Message ids that the spout is told since this was asked last: acked, and failed for this reason.
    fn told(spouts: &mut Acks, reason: Reason) -> (Vec<u64>, Vec<u64>) {
        let tracker = &mut spouts.trackers[0];
        let failed = tracker.failed.drain(..).inspect(|(id, why)| assert_eq!(why.reason, reason, "{id}")).map(|(id, _)| id);
        (tracker.acked.drain(..).collect(), failed.collect())
    }

    #[test]
    fn while_its_connection_is_cut_a_worker_counts_as_lost_and_then_no_longer() {
        let mut spouts = spouts();
        spouts.open_remote(0, BIT);
        let before = begin(&mut spouts, 0..3, 7, 0);
        spouts.ack(before[0], 7, 0, 0);
        spouts.close_remote(0, false, 0);
        assert_eq!(told(&mut spouts, Reason::LinkLost), (vec![0], vec![1, 2]));
        begin(&mut spouts, 3..5, 7, 1);
        assert_eq!(told(&mut spouts, Reason::LinkLost), (vec![], vec![3, 4]), "what comes with its bit meanwhile");
        spouts.open_remote(0, BIT);
        let after = begin(&mut spouts, 5..7, 7, 2);
        after.iter().for_each(|root| spouts.ack(*root, 7, 0, 2));
        assert_eq!(told(&mut spouts, Reason::LinkLost), (vec![5, 6], vec![]));
        assert_eq!(spouts.failed_by_loss(), (2, 2));
    }

    #[test]
    fn a_worker_that_stays_away_counts_as_lost_for_one_timeout_and_one_that_says_goodbye_does_not() {
        let mut spouts = spouts();
        spouts.open_remote(0, BIT);
        spouts.close_remote(0, false, 0);
        spouts.forget_lost(TIMEOUT_NS - 1);
        begin(&mut spouts, 0..1, 7, 0);
        assert_eq!(told(&mut spouts, Reason::LinkLost).1, [0]);
        spouts.forget_lost(TIMEOUT_NS);
        begin(&mut spouts, 1..2, 7, 0);
        assert_eq!(told(&mut spouts, Reason::LinkLost), (vec![], vec![]));
        spouts.open_remote(0, BIT);
        spouts.close_remote(0, true, 0);
        assert_eq!((told(&mut spouts, Reason::LinkLost).1, spouts.pending()), (vec![], 1));
    }

    #[test]
    fn a_connection_of_one_loop_does_not_make_good_that_of_another_nor_the_loss_of_the_worker() {
        let mut spouts = spouts();
        (0..2).for_each(|loop_there| spouts.open_remote(loop_there, BIT));
        (0..2).for_each(|loop_there| spouts.close_remote(loop_there, false, 0));
        spouts.open_remote(0, BIT);
        begin(&mut spouts, 0..1, 7, 0);
        assert_eq!(told(&mut spouts, Reason::LinkLost).1, [0], "the other one is still cut");
        spouts.lose(BIT, 5);
        spouts.open_remote(1, BIT);
        begin(&mut spouts, 1..2, 7, 5);
        assert_eq!(told(&mut spouts, Reason::WorkerLost).1, [1], "a later start with the same bit");
        spouts.forget_lost(5 + TIMEOUT_NS);
        begin(&mut spouts, 2..3, 7, 5);
        assert_eq!(spouts.pending(), 1);
    }

    #[test]
    fn acks_that_may_not_have_arrived_are_owed_as_fails_and_what_was_not_sent_is_sent() {
        let (mut spouts, mut bolts) = (spouts(), bolts());
        bolts.open_remote(0, 1);
        let roots = begin(&mut spouts, 0..6, 7, 0);
        // 0 arrives; 1 and 2, in part, and a failure of 3 do not; 4 had not been handed over; 5 comes later.
        bolts.ack(roots[0], 7, 0, 0);
        spouts.take(&hand_over(&mut bolts), 0);
        bolts.ack(roots[1], 7, 0, 0);
        bolts.ack(roots[2], 5, BIT, 0);
        bolts.fail(roots[3], Reason::Bolt, "no", 0);
        let lost = hand_over(&mut bolts);
        bolts.ack(roots[4], 7, 0, 0);
        bolts.unconfirmed(0, &lost);
        bolts.close_remote(0, false, 0);
        bolts.ack(roots[5], 7, 0, 0);
        assert_eq!((hand_over(&mut bolts).len(), bolts.waiting_bytes()), (0, 0), "nothing waits for nobody");
        bolts.open_remote(0, 1);
        let again = hand_over(&mut bolts);
        let first = Frame::first(&again).unwrap().header;
        assert_eq!(first.stream, kind::FAILS, "before anything else");
        spouts.take(&again, 0);
        let failed: Vec<(u64, Reason)> = spouts.trackers[0].failed.drain(..).map(|(id, why)| (id, why.reason)).collect();
        assert_eq!(failed, [(1, Reason::LinkLost), (2, Reason::LinkLost), (3, Reason::Bolt)]);
        assert_eq!(told(&mut spouts, Reason::LinkLost).0, [0, 4, 5]);
        assert_eq!((bolts.lost, hand_over(&mut bolts).len()), (0, 0), "and once");
    }

    #[test]
    fn a_later_incarnation_is_told_what_waited_and_takes_nothing_of_the_earlier_one_for_its_own() {
        for seed in 0..20 {
            let (mut before, mut after, mut bolts) = (spouts(), spouts(), bolts());
            after.trackers[0].slots = Slots::new(1, 1024, 1_000 * TIMEOUT_NS, 100 + seed);
            bolts.open_remote(0, BIT_BEFORE);
            let old = begin(&mut before, 0..2, 7, 0);
            bolts.ack(old[0], 7, 0, 0);
            let lost = hand_over(&mut bolts);
            bolts.unconfirmed(0, &lost);
            bolts.close_remote(0, false, 0);
            bolts.ack(old[1], 7, 0, 0);
            // Trees of the new one come by another worker, before the two are connected.
            let new = begin(&mut after, 0..2, 7, 0);
            new.iter().for_each(|root| bolts.ack(*root, 7, 0, 0));
            bolts.open_remote(0, BIT);
            after.take(&hand_over(&mut bolts), 0);
            assert_eq!(told(&mut after, Reason::LinkLost), (vec![0, 1], vec![]), "seed {seed}: same slots, other trees");
        }
    }

    #[test]
    fn what_waits_for_a_place_that_is_another_s_now_takes_the_new_road() {
        let (mut spouts, mut bolts) = (spouts(), bolts());
        let roots = begin(&mut spouts, 0..4, 7, 0);
        bolts.open_remote(0, BIT_BEFORE);
        bolts.ack(roots[0], 7, 0, 0);
        let lost = hand_over(&mut bolts);
        bolts.unconfirmed(0, &lost);
        bolts.close_remote(0, false, 0);
        bolts.ack(roots[1], 7, 0, 0);
        bolts.fail(roots[2], Reason::Bolt, "no", 0);
        // Its place is given away, or not.
        bolts.leave_remote(0);
        bolts.ack(roots[3], 7, 0, 0);
        bolts.set_roads(1, Some(Road::Remote(1)), Some(Road::Remote(1)));
        bolts.send_orphans(0);
        bolts.open_remote(1, BIT);
        let mut frames = Vec::new();
        bolts.flush_remote(1, |all| {
            frames.extend_from_slice(all);
            all.len()
        });
        spouts.take(&frames, 0);
        let failed: Vec<u64> = spouts.trackers[0].failed.drain(..).map(|(id, _)| id).collect();
        assert_eq!((failed, told(&mut spouts, Reason::Bolt).0, bolts.lost), (vec![0, 2], vec![1, 3], 0));
    }

    #[test]
    fn an_owner_whose_ledger_is_elsewhere_fails_its_trees_when_that_is_cut_off_and_hears_what_it_may_have_missed() {
        // The owner's loop sends its inits to the other one, which has the ledger.
        let (mut owner, mut acker) = (spouts(), spouts());
        owner.trackers[0].is_spout = true;
        owner.trackers[0].set_ledger(Road::Remote(0));
        assert!(owner.trackers[0].full(), "it is not asked before the ledger is heard of");
        owner.ledger_of[1] = Road::Remote(0);
        acker.trackers.clear();
        acker.owner_at[1] = Road::Remote(0);
        let connect = |owner: &mut Acks, acker: &mut Acks| {
            owner.open_remote(0, 1);
            acker.open_remote(0, 2);
            owner.hear_remote(0);
        };
        connect(&mut owner, &mut acker);
        let roots = begin(&mut owner, 0..3, 7, 0);
        acker.take(&hand_over(&mut owner), 0);
        acker.ack(roots[0], 7, 0, 0);
        owner.take(&hand_over(&mut acker), 0);
        assert_eq!(told(&mut owner, Reason::LinkLost), (vec![0], vec![]));
        // That 1 is complete does not arrive, and the owner has not seen the end yet when it begins 3, which never leaves.
        acker.ack(roots[1], 7, 0, 0);
        let lost = hand_over(&mut acker);
        acker.unconfirmed(0, &lost);
        acker.close_remote(0, false, 0);
        begin(&mut owner, 3..4, 7, 0);
        let lost = hand_over(&mut owner);
        owner.unconfirmed(0, &lost);
        owner.close_remote(0, false, 0);
        assert_eq!(told(&mut owner, Reason::LinkLost), (vec![], vec![1, 2, 3]));
        connect(&mut owner, &mut acker);
        let after = begin(&mut owner, 4..5, 7, 0);
        acker.take(&hand_over(&mut owner), 0);
        acker.ack(after[0], 7, 0, 0);
        owner.take(&hand_over(&mut acker), 0);
        assert_eq!(told(&mut owner, Reason::LinkLost), (vec![4], vec![]), "what was told already is told once");
    }

    #[test]
    fn what_waits_for_a_connection_is_bounded_whether_it_is_there_or_not() {
        let mut bolts = bolts();
        let root = |n: u64| Root::from_bits(1 << 44 | n << 24).unwrap();
        // Never connected: fails take the place of acks, at most so many.
        for n in 0..(4 * OWED_BYTES_MAX / BLOCK_BYTES) as u64 {
            bolts.ack(root(n), 7, 0, 0);
        }
        let out = &bolts.remotes[0];
        assert!(out.batch.frames.len() <= CONTROL_STAGING_BYTES_MAX && out.owed.frames.len() <= OWED_BYTES_MAX + BLOCK_BYTES);
        assert!(bolts.lost > 0 && !bolts.congested());
        // Connected, and the peer takes nothing: emitters stop.
        bolts.open_remote(0, 1);
        bolts.ack(root(1), 7, 0, 0);
        assert!(bolts.congested());
        hand_over(&mut bolts);
        // Many acks wait for company for some time.
        [0, TIMEOUT_NS].into_iter().for_each(|now_ns| {
            bolts.flush(now_ns);
        });
        assert!(!bolts.congested());
        (0..CONTROL_STAGING_BYTES_MAX as u64).for_each(|n| bolts.ack(root(n), 7, 0, 0));
        assert!(bolts.congested());
        bolts.close_remote(0, false, 0);
        assert!(!bolts.congested(), "nobody waits for a peer that is not there");
    }
}
