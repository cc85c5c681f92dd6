//! Lanes to loops of other workers: who they are; what is staged for them is in `io.rs`, the link in `saetta-transport`.
//!
//! A remote loop without a link keeps its emitters' frames in their outboxes (its credit is closed). What was staged when a link ends is
//! discarded and counted; frames are never sent again. The one exception is END: it carries nothing, says the same each time, and the
//! task at the other end may be a new one, so it is sent again whenever an executor's credit opens.

use saetta_transport::{LinkId, Road};
use std::collections::BTreeMap;

/// One connection of a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connected {
    pub(crate) link: LinkId,
    /// Start number of the worker at its other end.
    pub(crate) start: u64,
}

/// One loop of another worker.
pub(crate) struct Remote {
    /// Placement id of its worker.
    pub(crate) placement: u64,
    /// Loop there.
    pub(crate) on_loop: u32,
    /// Start number of the worker it was linked with last.
    pub(crate) start: Option<u64>,
    /// Data and control, while they are there.
    roads: [Option<Connected>; 2],
    /// The goodbye is said on this link: nothing more is staged.
    pub(crate) leaving: bool,
    /// Limits the peer granted for executors (first task id) that the routes do not place there yet: it knows a newer assignment.
    pub(crate) early: BTreeMap<u32, u64>,
}

impl Remote {
    pub(crate) fn new(placement: u64, on_loop: u32) -> Self {
        Remote { placement, on_loop, start: None, roads: [None; 2], leaving: false, early: BTreeMap::new() }
    }

    /// The connection of a road, while there is one.
    #[inline]
    pub(crate) fn link(&self, road: Road) -> Option<LinkId> {
        self.roads[road as usize].map(|c| c.link)
    }

    /// True while nothing is connected.
    pub(crate) fn is_apart(&self) -> bool {
        self.roads.iter().all(Option::is_none)
    }

    /// True while both roads are there.
    pub(crate) fn is_open(&self) -> bool {
        self.roads.iter().all(Option::is_some)
    }

    /// True when a connection of this road with this incarnation completes what there is, and takes nothing's place.
    pub(crate) fn goes_with(&self, road: Road, start: u64) -> bool {
        self.roads[road as usize].is_none() && self.roads.iter().flatten().all(|c| c.start == start)
    }

    pub(crate) fn connect(&mut self, road: Road, connected: Connected) {
        self.roads[road as usize] = Some(connected);
        self.start = Some(connected.start);
        self.leaving = false;
    }

    pub(crate) fn disconnect(&mut self, road: Road) {
        self.roads[road as usize] = None;
    }
}
