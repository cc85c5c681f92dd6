//! Inputs whose end comes later: acked, failed or completed from any thread, or dropped, which fails them.
//!
//! Before: a bolt calls `cx.defer()` and keeps the anchor. After: its signal came by the executor's mailbox, and the input's trees are told.
//! The mailbox has a place for the end of every input that may be deferred, so ack, fail and drop cannot fail.

use crate::component::{Component, Fail};
use crate::context::Cx;
use crate::limits::DEFERRED_MAX;
use crate::marks::Marks;
use crossbeam_queue::ArrayQueue;
use saetta_ring::Sleeper;
use std::fmt;
use std::sync::Arc;

/// What is done with the value of a completion, on the executor's loop.
pub type OnComplete = Box<dyn FnOnce(&mut dyn Component, &mut Cx<'_>) -> Result<(), Fail> + Send>;

/// What became of a deferred input.
pub(crate) enum End {
    Ack,
    Fail(Fail),
    /// The anchor was dropped.
    Dropped,
    /// Work done elsewhere comes back.
    Complete(OnComplete),
    /// Not an end: its timeout begins anew.
    ResetTimeout,
}

/// A signal from an anchor.
pub(crate) struct Signal {
    pub(crate) place: u32,
    pub(crate) turn: u32,
    pub(crate) end: End,
}

/// Where the anchors of one executor send to.
pub(crate) struct Mailbox {
    ends: ArrayQueue<Signal>,
    /// Timeouts to begin anew; beyond its bound they are left out.
    resets: ArrayQueue<Signal>,
    sleeper: Arc<Sleeper>,
}

impl Mailbox {
    fn send(&self, signal: Signal) {
        let queue = if matches!(signal.end, End::ResetTimeout) { &self.resets } else { &self.ends };
        let _ = queue.push(signal);
        self.sleeper.notify();
    }
}

/// A deferred input. Whoever holds it may end it, from any thread.
pub struct RawAnchor {
    mailbox: Arc<Mailbox>,
    place: u32,
    turn: u32,
    ended: bool,
}

impl fmt::Debug for RawAnchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Anchor").field("place", &self.place).finish_non_exhaustive()
    }
}

impl RawAnchor {
    fn end(&mut self, end: End) {
        self.ended = true;
        self.mailbox.send(Signal { place: self.place, turn: self.turn, end });
    }
    /// The input is handled.
    pub fn ack(mut self) {
        self.end(End::Ack);
    }
    /// The input failed.
    pub fn fail(mut self, why: Fail) {
        self.end(End::Fail(why));
    }
    /// Runs `then` on the executor's loop, where it may emit; its result acks or fails the input.
    pub fn complete(mut self, then: OnComplete) {
        self.end(End::Complete(then));
    }
    /// The timeout of the input's trees begins anew. Left out when a thousand of the like wait already.
    pub fn reset_timeout(&self) {
        self.mailbox.send(Signal { place: self.place, turn: self.turn, end: End::ResetTimeout });
    }
    /// Its place with the executor.
    pub(crate) fn place(&self) -> u32 {
        self.place
    }
}

impl Drop for RawAnchor {
    fn drop(&mut self) {
        if !self.ended {
            self.end(End::Dropped);
        }
    }
}

/// What the deferred inputs of one executor may take: places, and a signal for the end of each and as many to reset timeouts.
pub(crate) const DEFERRED_BYTES_MAX: u64 = (DEFERRED_MAX * (size_of::<Place>() + 2 * (size_of::<Signal>() + size_of::<usize>()))) as u64;

struct Place {
    /// Which use of the place this is: an anchor of an earlier one means nothing.
    turn: u32,
    used: bool,
    /// Its task began anew. Used until its anchor ends all the same: the mailbox has room for one end per place.
    given_up: bool,
    index: usize,
    marks: Marks,
}

/// The deferred inputs of one executor.
#[derive(Default)]
pub(crate) struct Deferred {
    mailbox: Option<Arc<Mailbox>>,
    places: Vec<Place>,
    free: Vec<u32>,
}

impl Deferred {
    /// True when no further input may be deferred: the executor takes none.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty() && self.places.len() >= DEFERRED_MAX
    }

    /// Inputs deferred now.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Reserves a place for an input of the task at `index`.
    pub(crate) fn reserve(&mut self, index: usize, sleeper: &Arc<Sleeper>) -> Option<RawAnchor> {
        let mailbox = self
            .mailbox
            .get_or_insert_with(|| {
                Arc::new(Mailbox { ends: ArrayQueue::new(DEFERRED_MAX), resets: ArrayQueue::new(DEFERRED_MAX), sleeper: sleeper.clone() })
            })
            .clone();
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.places.len() < DEFERRED_MAX => {
                self.places.push(Place { turn: 0, used: false, given_up: false, index: 0, marks: Marks::NONE });
                self.places.len() as u32 - 1
            }
            None => return None,
        };
        let p = &mut self.places[place as usize];
        p.turn = p.turn.wrapping_add(1);
        p.used = true;
        p.given_up = false;
        p.index = index;
        p.marks = Marks::NONE;
        Some(RawAnchor { mailbox, place, turn: p.turn, ended: false })
    }

    /// The call that deferred an input is over: these are its marks.
    pub(crate) fn fill(&mut self, place: u32, marks: Marks) {
        self.places[place as usize].marks = marks;
    }

    /// The marks of an anchor's input, while it is deferred.
    pub(crate) fn marks(&mut self, anchor: &RawAnchor) -> Option<&mut Marks> {
        self.mailbox.as_ref().filter(|own| Arc::ptr_eq(own, &anchor.mailbox))?;
        let place = self.places.get_mut(anchor.place as usize)?;
        (place.used && !place.given_up && place.turn == anchor.turn).then_some(&mut place.marks)
    }

    /// Frames of any of them went to these workers.
    pub(crate) fn add_mask(&mut self, bits: u64) {
        self.places.iter_mut().filter(|place| place.used).for_each(|place| place.marks.add_mask(bits));
    }

    /// The next signal, with the task and the marks it is about. An end frees the place.
    pub(crate) fn next(&mut self) -> Option<(usize, Marks, End)> {
        let mailbox = self.mailbox.as_ref()?;
        loop {
            let signal = mailbox.resets.pop().or_else(|| mailbox.ends.pop())?;
            let Some(p) = self.places.get_mut(signal.place as usize).filter(|p| p.used && p.turn == signal.turn) else { continue };
            let given_up = p.given_up;
            let found = (p.index, p.marks, signal.end);
            if !matches!(found.2, End::ResetTimeout) {
                p.used = false;
                self.free.push(signal.place);
            }
            if !given_up {
                return Some(found);
            }
        }
    }

    /// True when a signal waits.
    #[inline]
    pub(crate) fn has_signal(&self) -> bool {
        self.mailbox.as_ref().is_some_and(|m| !m.ends.is_empty() || !m.resets.is_empty())
    }

    /// A task began anew: what it deferred is nobody's any more. Gives the marks.
    pub(crate) fn give_up(&mut self, index: usize) -> Vec<Marks> {
        let of_task = self.places.iter_mut().filter(|p| p.used && !p.given_up && p.index == index);
        of_task
            .map(|p| {
                p.given_up = true;
                p.marks
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_of_a_task_that_began_anew_never_take_the_room_of_others() {
        let sleeper = Arc::new(Sleeper::new().expect("an event descriptor"));
        let mut deferred = Deferred::default();
        let old: Vec<_> = (0..DEFERRED_MAX).map(|_| deferred.reserve(0, &sleeper).expect("room")).collect();
        assert_eq!(deferred.give_up(0).len(), DEFERRED_MAX);
        assert!(deferred.is_full() && deferred.reserve(0, &sleeper).is_none(), "their ends may still come");
        old.into_iter().for_each(RawAnchor::ack);
        assert!(deferred.next().is_none(), "they mean nothing any more");
        let new: Vec<_> = (0..DEFERRED_MAX).map(|_| deferred.reserve(0, &sleeper).expect("room")).collect();
        new.into_iter().for_each(RawAnchor::ack);
        assert_eq!(std::iter::from_fn(|| deferred.next()).count(), DEFERRED_MAX);
        assert_eq!(deferred.len(), 0);
    }

    #[test]
    fn an_anchor_of_another_executor_is_none_of_this_one() {
        let sleeper = Arc::new(Sleeper::new().expect("an event descriptor"));
        let [mut mine, mut others] = [Deferred::default(), Deferred::default()];
        let (own, other) = (mine.reserve(0, &sleeper).expect("room"), others.reserve(0, &sleeper).expect("room"));
        assert!(mine.marks(&own).is_some() && mine.marks(&other).is_none());
    }
}
