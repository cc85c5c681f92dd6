//! Lanes to loops of other workers: who they are; what is staged for them is in `io.rs`, the link in `saetta-transport`.
//!
//! A remote loop without a link keeps its emitters' frames in their outboxes (its credit is closed). What was staged when a link ends is
//! discarded and counted; frames are never sent again. The one exception is END: it carries nothing, says the same each time, and the
//! task at the other end may be a new one, so it is sent again whenever an executor's credit opens.

use saetta_transport::{Carrier, LinkId, Road};
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
    /// Reached by the link that this worker's loops share, of this number: see `relay.rs`. It has no roads of its own then.
    pub(crate) through: Option<u32>,
    /// Newest limits for executors here, by first task, on their way there.
    pub(crate) grants: Vec<(u32, u64)>,
    /// The goodbye is said on this link: nothing more is staged.
    pub(crate) leaving: bool,
    /// Limits the peer granted for executors (first task id) that the routes do not place there yet: it knows a newer assignment.
    pub(crate) early: BTreeMap<u32, u64>,
}

impl Remote {
    pub(crate) fn new(placement: u64, on_loop: u32) -> Self {
        Remote {
            placement,
            on_loop,
            start: None,
            roads: [None; 2],
            through: None,
            grants: Vec::new(),
            leaving: false,
            early: BTreeMap::new(),
        }
    }

    /// The connection of a road, while there is one.
    #[inline]
    pub(crate) fn link(&self, road: Road) -> Option<LinkId> {
        self.roads[road as usize].map(|c| c.link)
    }

    /// True while nothing is connected.
    pub(crate) fn is_apart(&self) -> bool {
        self.through.is_none() && self.has_no_roads()
    }

    /// True while it has no connection of its own.
    pub(crate) fn has_no_roads(&self) -> bool {
        self.roads.iter().all(Option::is_none)
    }

    /// Grants credit for an executor here.
    pub(crate) fn grant(&mut self, carrier: &mut Option<Carrier>, executor: u32, limit: u64) {
        if self.through.is_some() {
            match self.grants.iter_mut().find(|(of, _)| *of == executor) {
                Some(grant) => grant.1 = limit,
                None => self.grants.push((executor, limit)),
            }
        } else if let (Some(link), Some(carrier)) = (self.link(Road::Control), carrier) {
            carrier.grant(link, executor, limit);
        }
    }

    /// True while frames and credit may go.
    pub(crate) fn is_open(&self) -> bool {
        self.through.is_some() || self.roads.iter().all(Option::is_some)
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
