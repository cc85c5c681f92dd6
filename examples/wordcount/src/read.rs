//! The spout: a text, or one part of it, in pieces of about a line, at a rate if one was asked. [`Acked`] is the same with each piece tracked.

use crate::{Line, LineRef};
use saetta::prelude::*;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read as _, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

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
    /// The how manieth part of how many.
    part: (u64, u64),
}

/// An opened input, and where our part lies in it.
struct Source {
    from: Box<dyn BufRead + Send>,
    /// Where its first line begins.
    begin: u64,
    /// A line that begins here or later is another part's.
    end: u64,
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
        Ok(Input { path, repeat, part: (0, 1) })
    }

    /// Part `i` of `n`, cut at line ends: together they are the whole.
    pub(crate) fn part(&self, i: u64, n: u64) -> Result<Self> {
        if n > 1 && self.path.as_deref() == Some(Path::new("-")) {
            return Err("--keyed needs a file: standard input has no second half that could be read at the same time".into());
        }
        Ok(Input { part: (i, n), ..self.clone() })
    }

    fn open(&self) -> std::result::Result<Source, String> {
        match self.path.as_deref() {
            None => self.cut(Cursor::new(DEFAULT.as_bytes()), DEFAULT.len() as u64).map_err(|e| e.to_string()),
            Some(path) if path == Path::new("-") => {
                Ok(Source { from: Box::new(BufReader::with_capacity(BUFFER_BYTES, std::io::stdin())), begin: 0, end: u64::MAX })
            }
            Some(path) => {
                let refuse = |why: String| format!("cannot read {}: {why}", path.display());
                let file = File::open(path).map_err(|e| refuse(e.to_string()))?;
                let about = file.metadata().map_err(|e| refuse(e.to_string()))?;
                if about.is_dir() {
                    return Err(refuse("it is a directory; name a file".into()));
                }
                self.cut(BufReader::with_capacity(BUFFER_BYTES, file), about.len()).map_err(|e| refuse(e.to_string()))
            }
        }
    }

    /// Goes to where our part begins: behind the line that the part before ends with.
    fn cut(&self, mut from: impl BufRead + Seek + Send + 'static, len: u64) -> std::io::Result<Source> {
        let (i, n) = self.part;
        let place = |i: u64| (u128::from(len) * u128::from(i) / u128::from(n)) as u64;
        let (mut begin, end) = (place(i), if i + 1 == n { u64::MAX } else { place(i + 1) });
        if begin > 0 {
            // From the byte before: a line that begins just here is ours.
            from.seek(SeekFrom::Start(begin - 1))?;
            begin = begin - 1 + from.skip_until(b'\n')? as u64;
        }
        Ok(Source { from: Box::new(from), begin, end })
    }
}

pub(crate) struct Read {
    input: Input,
    source: Option<Source>,
    /// The piece being put together.
    piece: Vec<u8>,
    /// Bytes of the input before `piece`.
    offset: u64,
    /// False within a long line that was cut.
    begins_line: bool,
    /// True once something of this pass was emitted: an empty file is not repeated for ever.
    any: bool,
    interval_ns: Option<u64>,
    next_ns: u64,
}

impl Read {
    pub(crate) fn new(input: Input, rate: Option<u32>) -> Self {
        let interval_ns = rate.map(|rate| 1_000_000_000 / u64::from(rate));
        Read { input, source: None, piece: Vec::new(), offset: 0, begins_line: true, any: false, interval_ns, next_ns: 0 }
    }

    fn fatal(&self, why: String) -> Fail {
        Fail::Fatal(why)
    }

    fn name(&self) -> String {
        self.input.path.as_deref().map_or("the built-in text".into(), |p| p.display().to_string())
    }

    /// Reads one piece into `self.piece`: a line with its end, or a long line up to its last white space before the limit. False = end.
    fn read_piece(&mut self) -> std::result::Result<bool, Fail> {
        let source = self.source.as_mut().expect("opened");
        if self.begins_line && self.offset >= source.end {
            return Ok(false);
        }
        let room = LINE_BYTES_MAX + 1 - self.piece.len();
        let n = source.from.by_ref().take(room as u64).read_until(b'\n', &mut self.piece);
        n.map_err(|e| self.fatal(format!("cannot read {}: {e}", self.name())))?;
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

    fn open_input(&mut self) -> Outcome {
        let source = self.input.open().map_err(|why| self.fatal(why))?;
        (self.offset, self.begins_line) = (source.begin, true);
        self.source = Some(source);
        Ok(())
    }

    /// Hands over the next piece, if it is time for one, with the place in the input where it begins.
    #[inline]
    fn step(&mut self, now_ns: u64, emit: impl FnOnce(u64, &LineRef<'_>)) -> std::result::Result<Progress, Fail> {
        if let Some(interval) = self.interval_ns {
            if now_ns < self.next_ns {
                return Ok(Idle);
            }
            // After a stall it goes on at its rate and does not catch up in a burst.
            self.next_ns = (self.next_ns + interval).max(now_ns.saturating_sub(interval));
        }
        if self.source.is_none() {
            return Ok(Done);
        }
        if !self.read_piece()? {
            if self.input.repeat && self.any {
                self.open_input()?;
                return Ok(Busy);
            }
            return Ok(Done);
        }
        let end = if self.piece.len() > LINE_BYTES_MAX { self.cut()? } else { self.piece.len() };
        let text = std::str::from_utf8(&self.piece[..end]).map_err(|e| {
            self.fatal(format!("{}: not UTF-8 at byte offset {}; convert it first", self.name(), self.offset + e.valid_up_to() as u64))
        })?;
        emit(self.offset, &LineRef { text });
        self.any = true;
        self.begins_line = text.ends_with('\n');
        self.offset += end as u64;
        self.piece.drain(..end);
        Ok(Busy)
    }
}

impl Emits<Line> for Read {}

impl Spout for Read {
    fn open(&mut self, _: &mut Cx<'_, Self>) -> Outcome {
        self.open_input()
    }

    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        self.step(cx.now_ns(), |_, line| cx.emit(line))
    }
}

/// What became of the lines of this process's tracked readers.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    pub(crate) acked: u64,
    pub(crate) failed: u64,
    /// Of the first that failed.
    pub(crate) why: String,
}

/// A reader that follows each line to its last word. One that fails is not read again: some of its words may be counted already.
pub(crate) struct Acked {
    read: Read,
    acked: u64,
    fates: Arc<Mutex<Fates>>,
}

impl Acked {
    pub(crate) fn new(read: Read, fates: Arc<Mutex<Fates>>) -> Self {
        Acked { read, acked: 0, fates }
    }
}

impl Emits<Line> for Acked {}

impl Spout for Acked {
    const TRACKED: bool = true;

    fn open(&mut self, _: &mut Cx<'_, Self>) -> Outcome {
        self.read.open_input()
    }

    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        self.read.step(cx.now_ns(), |offset, line| cx.emit_tracked(offset, line))
    }

    fn ack(&mut self, _: u64) {
        self.acked += 1;
    }

    fn fail(&mut self, offset: u64, why: &TreeFail) {
        let Ok(mut fates) = self.fates.lock() else { return };
        if fates.failed == 0 {
            fates.why = format!("the line at byte offset {offset}: {:?}, {}", why.reason, why.text);
        }
        fates.failed += 1;
    }

    fn finish(&mut self, _: &mut Cx<'_, Self>) -> Outcome {
        self.fates.lock().map_err(|_| "another reader panicked")?.acked += self.acked;
        Ok(())
    }
}
