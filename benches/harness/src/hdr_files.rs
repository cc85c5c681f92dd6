//! Histograms as files that HdrHistogram's own tools read: `.hgrm`, the table their plotter draws, and `.hlog`, a V2 interval log.
//!
//! Before: `suite` has the latencies of every sample of a case. After: `target/bench/SUITE.CASE.hgrm` and `.hlog` lie beside `SUITE.json`.
//! One line of the log per sample, tagged with the host class it was taken in; values are nanoseconds in both.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::hdr::Latency;

/// Lines of a `.hgrm` per halving of the distance to 100 %: what the public plotter uses too.
const TICKS_PER_HALF_DISTANCE: u32 = 5;

/// Latencies of one sample, and when they were taken.
#[derive(Debug, Clone)]
pub struct Interval {
    /// When the sample began.
    pub start: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// What it is tagged with: no blanks, commas or line feeds.
    pub tag: String,
    /// Its latencies.
    pub latency: Latency,
}

/// The percentile table of a histogram in nanoseconds, as HdrHistogram's `outputPercentileDistribution` prints it.
#[must_use]
pub fn hgrm(histogram: &Histogram<u64>) -> String {
    let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
    let mut counted = 0;
    for step in histogram.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        counted += step.count_since_last_iteration();
        let (value, quantile) = (step.value_iterated_to() as f64, step.quantile_iterated_to());
        let _ = write!(text, "{value:12.3} {quantile:2.12} {counted:10}");
        // The last line is at 100 %, and has no odds.
        let _ = if quantile < 1.0 { writeln!(text, " {:14.2}", 1.0 / (1.0 - quantile)) } else { writeln!(text) };
    }
    let _ = writeln!(text, "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]", histogram.mean(), histogram.stdev());
    let _ = writeln!(text, "#[Max     = {:12.3}, Total count    = {:12}]", histogram.max() as f64, histogram.len());
    let _ = writeln!(text, "#[Buckets = {:12}, SubBuckets     = {:12}]", histogram.buckets(), sub_buckets(histogram.sigfig()));
    text
}

/// The power of two that holds twice ten to the digits.
fn sub_buckets(digits: u8) -> u32 {
    (2 * 10u32.pow(u32::from(digits))).next_power_of_two()
}

/// The interval log: a line per interval, times relative to the first one's start.
///
/// # Errors
/// A tag that may not stand in a log.
pub fn hlog(comment: &str, intervals: &[Interval]) -> io::Result<Vec<u8>> {
    let begin = intervals.iter().map(|interval| interval.start).min().unwrap_or(SystemTime::UNIX_EPOCH);
    let (mut out, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(comment)
        .add_comment("[Histogram log format version 1.3]")
        .with_start_time(begin)
        .with_base_time(begin)
        .with_max_value_divisor(1.0)
        .begin_log_with(&mut out, &mut serializer)?;
    log.write_comment("[nanoseconds]")?;
    for interval in intervals {
        let tag = Tag::new(&interval.tag).ok_or_else(|| io::Error::other(format!("{:?} cannot be a tag", interval.tag)))?;
        let since = interval.start.duration_since(begin).unwrap_or_default();
        log.write_histogram(interval.latency.histogram(), since, interval.took, Some(tag)).map_err(|e| io::Error::other(e.to_string()))?;
    }
    Ok(out)
}

/// Writes both files of a case and returns the first one's path. `intervals` is every sample, of which those tagged `of` make the table.
///
/// # Errors
/// When the folder or a file cannot be written.
pub fn write(dir: &Path, suite: &str, case: &str, of: &str, intervals: &[Interval]) -> io::Result<PathBuf> {
    std::fs::create_dir_all(dir)?;
    let mut all = Latency::new();
    intervals.iter().filter(|interval| interval.tag == of).for_each(|interval| all.add(&interval.latency));
    let stem = format!("{suite}.{}", file_part(case));
    let path = dir.join(format!("{stem}.hgrm"));
    std::fs::write(&path, hgrm(all.histogram()))?;
    std::fs::write(dir.join(format!("{stem}.hlog")), hlog(&format!("{suite}: {case}"), intervals)?)?;
    Ok(path)
}

/// A case's name as part of a file's: letters and digits, dashes between them.
fn file_part(case: &str) -> String {
    let words: Vec<String> =
        case.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    words.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_ends_at_the_largest_value_and_counts_everything() {
        let mut latency = Latency::new();
        (1..=1000).for_each(|ns| latency.record_ns(ns));
        let text = hgrm(latency.histogram());
        let rows: Vec<Vec<&str>> =
            text.lines().skip(2).filter(|line| !line.starts_with('#')).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["1.000", "0.000000000000", "1", "1.00"]);
        assert_eq!(rows.last().expect("rows"), &["1000.000", "1.000000000000", "1000"]);
        let half = rows.iter().find(|row| row[1].starts_with("0.5000")).expect("the median has a line");
        assert_eq!(half, &["500.000", "0.500000000000", "500", "2.00"]);
        assert!(text.contains("#[Max     =     1000.000, Total count    =         1000]\n"), "{text}");
        assert!(text.ends_with("SubBuckets     =         2048]\n"), "{text}");
    }

    #[test]
    fn a_case_s_name_is_a_file_s_name() {
        assert_eq!(file_part("emit -> ack, 1,000/s"), "emit-ack-1-000-s");
    }
}
