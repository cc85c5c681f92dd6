//! Trees that fail because a worker is lost.
//!
//! Before: `../loss.rs` knows of it. After: each tree that had touched it has failed, once, and for a while so does what still comes with its bit.

use super::{Acks, Ledger, Reason, Road};

/// Incarnations that are declared lost, by bit. The ledgers hold the same bits.
pub(super) struct Gone {
    /// One message timeout: what may still come with the bit is of trees that were open then.
    timeout_ns: u64,
    bits: u64,
    /// Until when, by bit; means nothing for a bit that is not in `bits`.
    until_ns: [u64; 64],
}

impl Gone {
    pub(super) fn new(timeout_ns: u64) -> Self {
        Gone { timeout_ns, bits: 0, until_ns: [0; 64] }
    }

    pub(super) fn timeout_ns(&self) -> u64 {
        self.timeout_ns
    }

    /// Until when the incarnation of this bit is lost; 0 = it is not.
    pub(super) fn until_ns(&self, bit: u64) -> u64 {
        if self.bits & bit != 0 { self.until_ns[bit.trailing_zeros() as usize % 64] } else { 0 }
    }

    /// Why a ledger fails what comes with this mask.
    #[cold]
    pub(super) fn reason(&self, mask: u64) -> Reason {
        if mask & self.bits != 0 { Reason::WorkerLost } else { Reason::LinkLost }
    }
}

impl Acks {
    /// The incarnation that `bit` stands for is lost: every tree whose ledger is here and that touched it fails, and for one message timeout
    /// so does every tree of which something comes with that bit. Walks the ledgers.
    #[cold]
    pub(crate) fn lose(&mut self, bit: u64, now_ns: u64) {
        let until_ns = now_ns + self.gone.timeout_ns;
        self.gone.bits |= bit;
        self.gone.until_ns[bit.trailing_zeros() as usize % 64] = until_ns;
        self.lose_in_ledgers(bit, until_ns, Reason::WorkerLost, now_ns);
    }

    pub(super) fn lose_in_ledgers(&mut self, bits: u64, until_ns: u64, reason: Reason, now_ns: u64) {
        let mut roots = Vec::new();
        self.ledgers.iter_mut().for_each(|ledger| ledger.lose(bits, until_ns, |root| roots.push(root)));
        roots.into_iter().for_each(|root| self.tell_failed(root, reason, "", now_ns));
    }

    /// Whoever held the ledgers at `road` holds them no more: the trees of tasks here that they were of fail.
    #[cold]
    pub(crate) fn lose_ledgers(&mut self, road: Road, reason: Reason) {
        self.trackers.iter_mut().filter(|tracker| tracker.ledger == road).for_each(|tracker| tracker.fail_all(reason));
    }

    /// The owners at `road` are of a worker that is gone for good: the ledgers here are for those that follow.
    #[cold]
    pub(crate) fn lose_owners(&mut self, road: Road) {
        for (owner_at, ledger_of) in self.owner_at.iter().zip(&self.ledger_of) {
            if let (true, Road::Here(ledger)) = (*owner_at == road, ledger_of) {
                self.ledgers[*ledger as usize].begin_anew();
            }
        }
    }

    /// Where an owner and its ledger are from now on; `None` = on this loop.
    pub(crate) fn set_roads(&mut self, owner: u32, owner_at: Option<Road>, ledger_of: Option<Road>) {
        let n = owner as usize;
        if let Some(road) = owner_at {
            self.owner_at[n] = road;
        }
        let road = match (ledger_of, self.ledger_of[n]) {
            (Some(road), _) => road,
            (None, here @ Road::Here(_)) => here,
            (None, _) => {
                self.ledgers.push(Ledger::new(owner));
                Road::Here(self.ledgers.len() as u16 - 1)
            }
        };
        self.ledger_of[n] = road;
        if let Road::Here(tracker) = self.owner_at[n] {
            let heard = self.is_heard(road);
            let tracker = &mut self.trackers[tracker as usize];
            if tracker.ledger != road {
                tracker.set_ledger(road);
                tracker.ledger_is_heard(heard);
                tracker.fail_all(Reason::WorkerLost);
            }
        }
    }

    /// What was lost long enough ago is forgotten: its bit may be a new incarnation's.
    pub(crate) fn forget_lost(&mut self, now_ns: u64) {
        self.ledgers.iter_mut().for_each(|ledger| ledger.tick(now_ns));
        let Gone { bits, until_ns, .. } = &mut self.gone;
        if *bits != 0 {
            *bits &= (0..64).filter(|&bit| until_ns[bit] > now_ns).fold(0, |bits, bit| bits | 1 << bit);
        }
    }

    /// Trees that failed when a worker or a link they had been in was lost, and those that failed because something came of them with a bit of
    /// what was lost: both more than had to.
    pub(crate) fn failed_by_loss(&self) -> (u64, u64) {
        self.ledgers.iter().fold((0, 0), |(at_once, after), l| (at_once + l.failed_by_loss(), after + l.over_failed()))
    }
}
