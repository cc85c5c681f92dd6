//! What the engine asks of user code, object-safe: one instance per task, called with runs of frames.
//!
//! The typed layer (`saetta::Bolt`, `saetta::Spout`) implements this; users never see it.

use crate::emit::Cx;
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

/// One task of a component.
pub trait Component: Send {
    /// Before the first call of any other kind.
    fn open(&mut self, cx: &mut Cx<'_>) -> Result<(), Fail>;
    /// Spouts: emit something, never block.
    fn next(&mut self, cx: &mut Cx<'_>) -> Result<Progress, Fail>;
    /// Bolts: handle frames from the front of `window` for as long as [`Cx::next_frame`] gives one. `stream` is the first frame's.
    fn handle(&mut self, stream: u16, window: &[u8], cx: &mut Cx<'_>);
    /// After the last input; may emit.
    fn finish(&mut self, cx: &mut Cx<'_>) -> Result<(), Fail>;
}
