//! A worker's log: one line per change of state on stdout or stderr, which are the log file. A full disk loses lines and nothing else.

use saetta_model::Name;
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// A state changed.
pub(crate) fn info(topology: &Name, text: &str) {
    // `println!` would end the worker on a full disk.
    let _ = writeln!(std::io::stdout(), "{} worker {topology}: {}", now(), one_line(text));
}

/// An operator should look.
pub(crate) fn error(topology: &Name, text: &str) {
    let _ = writeln!(std::io::stderr(), "{} worker {topology}: {}", now(), one_line(text));
}

/// A text on one line, without control characters: what may go to a terminal.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// Wall time for people, in UTC.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    utc(since.as_secs(), since.subsec_millis())
}

/// Seconds since 1970 as `2026-11-30T12:00:00.000Z`.
fn utc(secs: u64, millis: u32) -> String {
    // Days to a date of the Gregorian calendar, years counted from March so that a leap day comes last (Hinnant's civil_from_days).
    let (days, second) = (secs / 86_400, secs % 86_400);
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_reads_as_utc() {
        assert_eq!(utc(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(951_782_399, 7), "2000-02-28T23:59:59.007Z");
        assert_eq!(utc(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(utc(1_796_040_000, 999), "2026-11-30T12:00:00.999Z");
        assert_eq!(utc(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn a_text_of_several_lines_is_one_line() {
        assert_eq!(one_line("a\nb\x1b[2Jc\té"), "a\\nb\\u{1b}[2Jc\\té");
    }
}
