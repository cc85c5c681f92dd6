//! The spout: a text in pieces of about a line, at a rate if one was asked.

use crate::{Line, LineRef};
use saetta::prelude::*;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

/// A line longer than this is cut at white space.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Bytes taken from the file at a time.
const BUFFER_BYTES: usize = 256 << 10;
/// The text counted when none is named: the licence of this project, as it was when this was built.
const DEFAULT: &str = include_str!("../../../LICENSE");

/// What to read.
#[derive(Clone)]
pub(crate) struct Input {
    path: Option<PathBuf>,
    repeat: bool,
}

impl Input {
    /// Nothing is opened here: `describe` does no I/O. A path is made absolute, since a worker runs in a directory of its own.
    pub(crate) fn new(path: Option<&Path>, repeat: bool) -> Result<Self> {
        let path = match path {
            Some(path) if path != Path::new("-") => Some(std::path::absolute(path)?),
            other => other.map(Path::to_path_buf),
        };
        if repeat && path.as_deref() == Some(Path::new("-")) {
            return Err("--repeat needs a file: standard input cannot be read twice".into());
        }
        Ok(Input { path, repeat })
    }

    fn open(&self) -> std::result::Result<Box<dyn BufRead + Send>, String> {
        match self.path.as_deref() {
            None => Ok(Box::new(DEFAULT.as_bytes())),
            Some(path) if path == Path::new("-") => Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, std::io::stdin()))),
            Some(path) => {
                let refuse = |why: String| format!("cannot read {}: {why}", path.display());
                let file = File::open(path).map_err(|e| refuse(e.to_string()))?;
                let about = file.metadata().map_err(|e| refuse(e.to_string()))?;
                if about.is_dir() {
                    return Err(refuse("it is a directory; name a file".into()));
                }
                Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, file)))
            }
        }
    }
}

pub(crate) struct Read {
    input: Input,
    source: Option<Box<dyn BufRead + Send>>,
    /// The piece being put together.
    piece: Vec<u8>,
    /// Bytes of the input before `piece`.
    offset: u64,
    /// True once something of this pass was emitted: an empty file is not repeated for ever.
    any: bool,
    interval_ns: Option<u64>,
    next_ns: u64,
}

impl Read {
    pub(crate) fn new(input: Input, rate: Option<u32>) -> Self {
        let interval_ns = rate.map(|rate| 1_000_000_000 / u64::from(rate));
        Read { input, source: None, piece: Vec::new(), offset: 0, any: false, interval_ns, next_ns: 0 }
    }

    fn fatal(&self, why: String) -> Fail {
        Fail::Fatal(why)
    }

    fn name(&self) -> String {
        self.input.path.as_deref().map_or("the built-in text".into(), |p| p.display().to_string())
    }

    /// Reads one piece into `self.piece`: a line with its end, or a long line up to its last white space before the limit. False = end.
    fn read_piece(&mut self) -> std::result::Result<bool, Fail> {
        let name = self.name();
        let source = self.source.as_mut().expect("opened");
        let room = LINE_BYTES_MAX + 1 - self.piece.len();
        let n = source.by_ref().take(room as u64).read_until(b'\n', &mut self.piece);
        n.map_err(|e| Fail::Fatal(format!("cannot read {name}: {e}")))?;
        Ok(!self.piece.is_empty())
    }

    /// Where to cut `piece`, which holds one byte more than a line may: the white space behind a word of the greatest length.
    fn cut(&self) -> std::result::Result<usize, Fail> {
        // ASCII white space only is looked for: it is never part of a longer character.
        match self.piece.iter().rposition(u8::is_ascii_whitespace) {
            Some(at) => Ok(at + 1),
            None => Err(self.fatal(format!("{}: a word of more than 1 MiB at byte offset {}; this is no text", self.name(), self.offset))),
        }
    }
}

impl Emits<Line> for Read {}

impl Spout for Read {
    fn open(&mut self, _: &mut Cx<'_, Self>) -> Outcome {
        self.source = Some(self.input.open().map_err(|why| self.fatal(why))?);
        Ok(())
    }

    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        if let Some(interval) = self.interval_ns {
            let now = cx.now_ns();
            if now < self.next_ns {
                return Ok(Idle);
            }
            // After a stall it goes on at its rate and does not catch up in a burst.
            self.next_ns = (self.next_ns + interval).max(now.saturating_sub(interval));
        }
        if self.source.is_none() {
            return Ok(Done);
        }
        if !self.read_piece()? {
            if self.input.repeat && self.any {
                self.source = Some(self.input.open().map_err(|why| self.fatal(why))?);
                self.offset = 0;
                return Ok(Busy);
            }
            return Ok(Done);
        }
        let end = if self.piece.len() > LINE_BYTES_MAX { self.cut()? } else { self.piece.len() };
        let text = std::str::from_utf8(&self.piece[..end]).map_err(|e| {
            self.fatal(format!("{}: not UTF-8 at byte offset {}; convert it first", self.name(), self.offset + e.valid_up_to() as u64))
        })?;
        cx.emit(&LineRef { text });
        self.any = true;
        self.offset += end as u64;
        self.piece.drain(..end);
        Ok(Busy)
    }
}
