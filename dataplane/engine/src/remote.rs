//! Lanes to loops of other workers: staging here, the link in `saetta-transport`.
//!
//! A remote loop without a link keeps its emitters' frames in their outboxes (its credit is closed). What was staged when a link ends is
//! discarded and counted; frames are never sent again.

use saetta_transport::LinkId;

/// One loop of another worker.
pub(crate) struct Remote {
    /// Placement id of its worker.
    pub(crate) placement: u64,
    /// Loop there.
    pub(crate) on_loop: u32,
    /// Whole frames not yet given to the carrier.
    pub(crate) staging: Vec<u8>,
    /// The link, while there is one.
    pub(crate) link: Option<LinkId>,
}

impl Remote {
    pub(crate) fn new(placement: u64, on_loop: u32) -> Self {
        Remote { placement, on_loop, staging: Vec::new(), link: None }
    }
}
