//! Lanes to loops of other workers: who they are; what is staged for them is in `io.rs`, the link in `saetta-transport`.
//!
//! A remote loop without a link keeps its emitters' frames in their outboxes (its credit is closed). What was staged when a link ends is
//! discarded and counted; frames are never sent again. The one exception is END: it carries nothing, says the same each time, and the
//! task at the other end may be a new one, so it is sent again whenever an executor's credit opens.

use saetta_transport::LinkId;
use std::collections::BTreeMap;

/// One loop of another worker.
pub(crate) struct Remote {
    /// Placement id of its worker.
    pub(crate) placement: u64,
    /// Loop there.
    pub(crate) on_loop: u32,
    /// Start number of the worker it was linked with last.
    pub(crate) start: Option<u64>,
    /// The link, while there is one.
    pub(crate) link: Option<LinkId>,
    /// The goodbye is said on this link: nothing more is staged.
    pub(crate) leaving: bool,
    /// Limits the peer granted for executors (first task id) that the routes do not place there yet: it knows a newer assignment.
    pub(crate) early: BTreeMap<u32, u64>,
}

impl Remote {
    pub(crate) fn new(placement: u64, on_loop: u32) -> Self {
        Remote { placement, on_loop, start: None, link: None, leaving: false, early: BTreeMap::new() }
    }
}
