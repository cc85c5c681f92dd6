//! Keeps worker logs within `worker.log.bytes.max`.
//!
//! A worker writes its log itself (O_APPEND, no pipe), so a supervisor that is away costs no log line and no back-pressure. Now and
//! then the supervisor looks: a log over the limit has its newest half copied to `<port>.log.old` and is cut to nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

/// How often logs are looked at. Between two looks a log may pass its limit by what is written in that time.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How far back the last line of a log is looked for.
const TAIL_BYTES: u64 = 4 << 10;
/// Longest last line passed on.
const LINE_CHARS_MAX: usize = 300;

/// Bounds every log below `logs`.
pub(crate) fn bound_all(logs: &Path, bytes_max: u64) {
    for topology in fs::read_dir(logs).into_iter().flatten().flatten() {
        for log in fs::read_dir(topology.path()).into_iter().flatten().flatten() {
            let path = log.path();
            if path.extension().is_some_and(|e| e == "log")
                && let Err(e) = bound(&path, bytes_max)
            {
                tracing::warn!("bounding {}: {e}", path.display());
            }
        }
    }
}

/// Bounds one log. Lines written between the last copy and the cut are lost; the copy goes on until it has caught up, so
/// that is the time of one system call.
pub(crate) fn bound(path: &Path, bytes_max: u64) -> io::Result<()> {
    let bytes = path.metadata()?.len();
    if bytes <= bytes_max {
        return Ok(());
    }
    let aside = path.with_extension("log.old");
    let part = path.with_extension("log.old.tmp");
    let log = OpenOptions::new().read(true).write(true).open(path)?;
    let mut from = BufReader::new(log.try_clone()?);
    from.seek(SeekFrom::Start(bytes - bytes_max / 2))?;
    // Begin with a whole line, unless one line is everything.
    let mut rest_of_line = Vec::new();
    from.by_ref().take(bytes_max / 2).read_until(b'\n', &mut rest_of_line)?;
    let mut to = File::create(&part)?;
    io::copy(&mut from, &mut to)?;
    to.flush()?;
    fs::rename(&part, &aside)?;
    io::copy(&mut from, &mut to)?;
    log.set_len(0)
}

/// The last line written to a log behind its first `from` bytes, cut to [`LINE_CHARS_MAX`]; `None` when nothing was.
pub(crate) fn last_line(path: &Path, from: u64) -> Option<String> {
    let mut log = File::open(path).ok()?;
    let bytes = log.metadata().ok()?.len();
    // Shorter than before: it was moved aside meanwhile, so all of it is new.
    let from = if bytes < from { 0 } else { from };
    log.seek(SeekFrom::Start(from.max(bytes.saturating_sub(TAIL_BYTES)))).ok()?;
    let mut tail = Vec::new();
    log.take(TAIL_BYTES).read_to_end(&mut tail).ok()?;
    let text = String::from_utf8_lossy(&tail);
    let line = text.lines().rev().map(str::trim).find(|l| !l.is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).take(LINE_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_over_its_limit_keeps_its_newest_half_and_goes_on_at_zero() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("6700.log");
        let mut log = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        for i in 0..1_000 {
            writeln!(log, "line {i:05}").unwrap();
        }
        bound(&path, 20_000).unwrap();
        assert_eq!(path.metadata().unwrap().len(), 11_000, "within its limit it is left alone");
        bound(&path, 5_000).unwrap();
        assert_eq!(path.metadata().unwrap().len(), 0);
        writeln!(log, "after").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "after\n", "the writer's descriptor stays good");
        let old = fs::read_to_string(tmp.path().join("6700.log.old")).unwrap();
        assert!(old.len() <= 2_500 && old.starts_with("line ") && old.ends_with("line 00999\n"), "{} bytes", old.len());
    }
    #[test]
    fn the_last_line_is_one_that_this_worker_wrote() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("6700.log");
        fs::write(&path, "of the first\n").unwrap();
        assert_eq!(last_line(&path, 13), None);
        fs::write(&path, "of the first\nof the\tsecond\x1b[1m\n\n").unwrap();
        assert_eq!(last_line(&path, 13).unwrap(), "of thesecond[1m");
        fs::write(&path, "new\n").unwrap();
        assert_eq!(last_line(&path, 13).unwrap(), "new", "the log was moved aside in between");
    }
}
