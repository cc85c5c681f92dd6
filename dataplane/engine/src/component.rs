//! What the engine asks of user code, object-safe: one instance per task, called with runs of frames.
//!
//! The typed layer (`saetta::Bolt`, `saetta::Spout`) implements this; users never see it.

use crate::ack::TreeFail;
use crate::context::Cx;
use std::any::Any;
use std::fmt;

/// What a spout's `next` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It emitted, or will at once if asked again.
    Busy,
    /// Nothing to emit now.
    Idle,
    /// Nothing will come any more.
    Done,
}

/// Why an input failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fail {
    /// Worth another try.
    Retry(String),
    /// Another try would fail as well.
    Drop(String),
    /// The component cannot go on: `run` ends with this text and exit code 1, a worker stops.
    Fatal(String),
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Fail::Retry(text) | Fail::Drop(text) | Fail::Fatal(text)) = self;
        f.write_str(text)
    }
}

impl From<&str> for Fail {
    fn from(text: &str) -> Self {
        Fail::Drop(text.to_owned())
    }
}
impl From<String> for Fail {
    fn from(text: String) -> Self {
        Fail::Drop(text)
    }
}
impl std::error::Error for Fail {}

/// What came of asking a spout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Calls that were not idle.
    pub busy: u32,
    /// Nothing will come any more.
    pub done: bool,
}

/// One task of a component. What a kind of component is never asked has a body that says so by doing nothing.
#[expect(unused_variables, reason = "defaults that do nothing")]
pub trait Component: Any + Send {
    /// Before the first call of any other kind.
    fn open(&mut self, cx: &mut Cx<'_>) -> Result<(), Fail> {
        Ok(())
    }
    /// Spouts: emit something, up to `calls` times, through [`Cx::ask`]; never block.
    fn ask(&mut self, calls: u32, cx: &mut Cx<'_>) -> Asked {
        Asked { busy: 0, done: true }
    }
    /// Bolts: handle frames from the front of `window` for as long as [`Cx::next_frame`] gives one. `stream` is the first frame's.
    fn handle(&mut self, stream: u16, window: &[u8], cx: &mut Cx<'_>) {}
    /// Whether it is to be called in warm calls (`Cx::is_warming`): spouts asked, bolts given warm tuples.
    fn warms(&self) -> bool {
        false
    }
    /// Bolts with a tick: its time has come; may emit.
    fn tick(&mut self, cx: &mut Cx<'_>) -> Result<(), Fail> {
        Ok(())
    }
    /// Spouts: these trees are complete. Emits nothing.
    fn acked(&mut self, ids: &[u64]) {}
    /// Spouts: this tree failed. Emits nothing.
    fn failed(&mut self, id: u64, why: &TreeFail) {}
    /// Spouts: the topology is active, or is no longer.
    fn set_active(&mut self, active: bool) {}
    /// After the last input; may emit.
    fn finish(&mut self, cx: &mut Cx<'_>) -> Result<(), Fail> {
        Ok(())
    }
    /// The worker ends in order.
    fn close(&mut self) {}
}
