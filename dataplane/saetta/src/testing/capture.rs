//! A bolt that keeps what it is sent, for a test to look at.

use super::owned::Owned;
use crate::topology::{Stream, Topology};
use saetta_engine::{Component, ComponentFactory, Cx as RawCx};
use saetta_model::topology::Grouping;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A stream and an archive that came on it.
type Came = (u16, Box<[u8]>);

/// What came, in its order. Holds it until it is taken.
#[derive(Clone, Default)]
pub(crate) struct Captured(Arc<Mutex<Vec<Came>>>);

impl Captured {
    fn all(&self) -> MutexGuard<'_, Vec<Came>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything captured from these streams so far.
    pub(crate) fn tuples<S: Owned>(&self, is: impl Fn(u16) -> bool) -> Vec<S::Tuple> {
        self.all().iter().filter(|(stream, _)| is(*stream)).map(|(_, archive)| S::owned(archive)).collect()
    }

    /// As [`Captured::tuples`], and forgets it.
    pub(crate) fn take<S: Owned>(&self, is: impl Fn(u16) -> bool) -> Vec<S::Tuple> {
        self.all().extract_if(.., |(stream, _)| is(*stream)).map(|(_, archive)| S::owned(&archive)).collect()
    }

    /// Makes the bolt's tasks: all write to this one place.
    pub(crate) fn factory(&self) -> ComponentFactory {
        let captured = self.clone();
        Arc::new(move || Box::new(captured.clone()))
    }
}

impl Component for Captured {
    fn handle(&mut self, stream: u16, window: &[u8], cx: &mut RawCx<'_>) {
        while let Some(frame) = cx.next_frame(stream, window) {
            self.all().push((stream, frame.archive().into()));
        }
    }
}

/// A bolt that keeps every tuple of one stream, in the order it came. See [`FeederSpout`](super::FeederSpout) for an example.
pub struct CaptureBolt<S> {
    captured: Captured,
    of: PhantomData<fn(S)>,
}

impl<S> Clone for CaptureBolt<S> {
    fn clone(&self) -> Self {
        CaptureBolt { captured: self.captured.clone(), of: PhantomData }
    }
}

impl<S: Owned> Default for CaptureBolt<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Owned> CaptureBolt<S> {
    /// Empty. Clones are one place.
    pub fn new() -> Self {
        CaptureBolt { captured: Captured::default(), of: PhantomData }
    }

    /// Adds it to a topology, with one task that reads `from`. May be added for several streams of the type, under different ids.
    pub fn bolt(&self, t: &mut Topology, id: &str, from: &Stream<S>) {
        t.raw_bolt(id, from, Grouping::Global, self.captured.factory());
    }

    /// What came so far.
    pub fn tuples(&self) -> Vec<S::Tuple> {
        self.captured.tuples::<S>(|_| true)
    }

    /// What came since the last call.
    pub fn drain(&self) -> Vec<S::Tuple> {
        self.captured.take::<S>(|_| true)
    }

    /// How many are here.
    pub fn len(&self) -> usize {
        self.captured.all().len()
    }

    /// True when nothing is here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
