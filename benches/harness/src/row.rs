//! One figure with its floor and its verdict; the table of a suite and its JSON file.
//!
//! Before: `suite` has the samples of every case. After: a person reads the table, a program `target/bench/SUITE.json`.
//! Pure, except for [`write_json`].

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::host::HostClass;

/// A floor may be this much worse than the one on record for its class; beyond, the run is void.
pub const FLOOR_WORSE_MAX: f64 = 0.20;
/// Fewer samples than this make no verdict.
pub const SAMPLES_MIN: usize = 5;

/// Which way a figure is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Latency, cost: a ratio to the floor of at most the target passes.
    Lower,
    /// Rate: a ratio to the floor of at least the target passes.
    Higher,
}

/// One line of a suite's result. `null` in JSON where there is nothing to say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was measured, unique in its suite.
    pub name: String,
    /// Median of `samples`.
    pub value: f64,
    /// Unit of `value`, `floor` and `samples`.
    pub unit: String,
    /// Median of the floor measured in the same run.
    pub floor: Option<f64>,
    /// `value / floor`.
    pub ratio: Option<f64>,
    /// The ratio to reach, or without a floor the value to reach.
    pub target: Option<f64>,
    /// The verdict. Given only for a target, in class CCX, with a floor near the one on record and at least [`SAMPLES_MIN`] samples.
    pub ok: Option<bool>,
    /// Host class of all samples: `CCX`, `xCCX`, `SMT`, `mixed`, or `any` where it does not matter.
    pub class: String,
    /// The figure of each repetition, in the order taken.
    pub samples: Vec<f64>,
}

/// Why a row has no verdict though it has a target.
#[derive(Debug, Clone, PartialEq)]
pub enum NoVerdict {
    /// `--smoke` judges nothing.
    Smoke,
    /// Not class CCX.
    Class(HostClass),
    /// Too few samples.
    Samples(usize),
    /// The run is void: its floor is over 20 % worse than the one on record for this class.
    Void {
        /// Measured now.
        floor: f64,
        /// On record for this class.
        on_record: f64,
    },
}

impl std::fmt::Display for NoVerdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoVerdict::Smoke => write!(f, "smoke"),
            NoVerdict::Class(class) => write!(f, "class {class}, judged in CCX only: run again"),
            NoVerdict::Samples(n) => write!(f, "{n} samples of {SAMPLES_MIN}: run again"),
            NoVerdict::Void { floor, on_record } => write!(f, "void: floor {floor:.1} against {on_record:.1} on record: run again"),
        }
    }
}

/// What a row is made of, besides its samples.
#[derive(Debug, Clone)]
pub(crate) struct Judgement {
    pub(crate) better: Better,
    pub(crate) target: Option<f64>,
    pub(crate) floor_on_record: Option<f64>,
    pub(crate) class: HostClass,
    pub(crate) smoke: bool,
}

impl Row {
    /// Puts a row together. The second value says why there is no verdict, where a target asked for one.
    pub(crate) fn judged(
        name: &str,
        unit: &str,
        samples: Vec<f64>,
        floor_samples: Option<&[f64]>,
        rules: &Judgement,
    ) -> (Self, Option<NoVerdict>) {
        let value = median(&samples);
        let floor = floor_samples.map(median);
        let ratio = floor.filter(|&floor| floor > 0.0).map(|floor| value / floor);
        let fewest = floor_samples.map_or(samples.len(), |floor| floor.len().min(samples.len()));
        let no_verdict = if rules.smoke {
            Some(NoVerdict::Smoke)
        } else if !matches!(rules.class, HostClass::Ccx | HostClass::Any) {
            Some(NoVerdict::Class(rules.class))
        } else if fewest < SAMPLES_MIN {
            Some(NoVerdict::Samples(fewest))
        } else {
            match (floor, rules.floor_on_record) {
                (Some(floor), Some(on_record)) if is_void(floor, on_record, rules.better) => Some(NoVerdict::Void { floor, on_record }),
                _ => None,
            }
        };
        let ok = match (rules.target, &no_verdict) {
            (Some(target), None) => {
                let reached = ratio.unwrap_or(value);
                Some(match rules.better {
                    Better::Lower => reached <= target,
                    Better::Higher => reached >= target,
                })
            }
            _ => None,
        };
        let row = Self {
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
            floor,
            ratio,
            target: rules.target,
            ok,
            class: rules.class.to_string(),
            samples,
        };
        (row, no_verdict)
    }
}

/// Middle of the values; the mean of the two middle ones for an even number; 0 for none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mid = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[mid],
        _ => f64::midpoint(sorted[mid - 1], sorted[mid]),
    }
}

/// Whether a floor measured now is too far behind the one on record for its class to say anything about us.
#[must_use]
pub fn is_void(floor: f64, on_record: f64, better: Better) -> bool {
    match better {
        Better::Lower => floor > on_record * (1.0 + FLOOR_WORSE_MAX),
        Better::Higher => floor < on_record * (1.0 - FLOOR_WORSE_MAX),
    }
}

/// The table a person reads: one line per row, the spread in brackets, why a verdict is missing at the end.
#[must_use]
pub fn table(rows: &[(Row, Option<NoVerdict>)]) -> String {
    let lines = lines(rows);
    let widths: Vec<usize> = (0..8).map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}

/// The same as a table of Markdown.
#[must_use]
pub fn markdown(rows: &[(Row, Option<NoVerdict>)]) -> String {
    let mut lines = lines(rows).into_iter().map(|line| format!("| {} |\n", line.join(" | ")));
    let head = lines.next().unwrap_or_default();
    format!("{head}|---|---|---|---|---|---|---|---|\n{}", lines.collect::<String>())
}

/// Head and rows, cell by cell.
fn lines(rows: &[(Row, Option<NoVerdict>)]) -> Vec<[String; 8]> {
    let head = ["figure", "value [min..max]", "unit", "floor", "ratio", "target", "ok", "class"].map(str::to_owned);
    let mut lines = vec![head];
    for (row, no_verdict) in rows {
        let (min, max) = row.samples.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), &v| (min.min(v), max.max(v)));
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), digits);
        let ok = match (row.ok, row.target, no_verdict) {
            (Some(true), ..) => "ok".to_owned(),
            (Some(false), ..) => "MISSED".to_owned(),
            (None, Some(_), Some(why)) => format!("null ({why})"),
            _ => "-".to_owned(),
        };
        let spread =
            if row.samples.is_empty() { "none".to_owned() } else { format!("{} [{}..{}]", digits(row.value), digits(min), digits(max)) };
        lines.push([
            row.name.clone(),
            spread,
            row.unit.clone(),
            number(row.floor),
            row.ratio.map_or_else(|| "-".to_owned(), |r| format!("{r:.3}")),
            number(row.target),
            ok,
            row.class.clone(),
        ]);
    }
    lines
}

/// Three significant digits, no exponent.
fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Writes `DIR/SUITE.json`, an array of rows, and returns its path. Replaces the file whole: a reader never sees half of one.
///
/// # Errors
/// When the folder or the file cannot be written.
pub fn write_json(dir: &Path, suite: &str, rows: &[Row]) -> io::Result<PathBuf> {
    std::fs::create_dir_all(dir)?;
    let path = dir.join(format!("{suite}.json"));
    let part = dir.join(format!(".{suite}.json.{}", std::process::id()));
    let mut text = serde_json::to_string_pretty(rows)?;
    text.push('\n');
    std::fs::write(&part, text)?;
    std::fs::rename(&part, &path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(better: Better, target: f64) -> Judgement {
        Judgement { better, target: Some(target), floor_on_record: Some(125.0), class: HostClass::Ccx, smoke: false }
    }

    const FLOOR: [f64; 5] = [120.0, 125.0, 130.0, 124.0, 126.0];

    #[test]
    fn a_rate_passes_at_its_target_and_misses_below() {
        let (row, why) = Row::judged("pipeline", "M tuples/s", vec![62.5; 5], Some(&FLOOR), &rules(Better::Higher, 0.5));
        assert_eq!((row.ratio, row.ok, why), (Some(0.5), Some(true), None));
        let (row, _) = Row::judged("pipeline", "M tuples/s", vec![62.0; 5], Some(&FLOOR), &rules(Better::Higher, 0.5));
        assert_eq!(row.ok, Some(false));
    }

    #[test]
    fn a_latency_passes_at_its_target_and_misses_above() {
        let floor = [80.0; 5];
        let rules = Judgement { floor_on_record: Some(80.0), ..rules(Better::Lower, 2.2) };
        assert_eq!(Row::judged("hop", "ns", vec![176.0; 5], Some(&floor), &rules).0.ok, Some(true));
        assert_eq!(Row::judged("hop", "ns", vec![177.0; 5], Some(&floor), &rules).0.ok, Some(false));
    }

    #[test]
    fn a_floor_over_a_fifth_worse_voids_the_run_in_its_own_direction() {
        assert!(!is_void(100.0, 125.0, Better::Higher));
        assert!(is_void(99.0, 125.0, Better::Higher));
        assert!(!is_void(192.0, 160.0, Better::Lower));
        assert!(is_void(193.0, 160.0, Better::Lower));
        let (row, why) = Row::judged("pipeline", "M tuples/s", vec![62.5; 5], Some(&[90.0; 5]), &rules(Better::Higher, 0.5));
        assert_eq!((row.ok, why), (None, Some(NoVerdict::Void { floor: 90.0, on_record: 125.0 })));
    }

    #[test]
    fn no_verdict_outside_ccx_nor_on_four_samples_nor_in_smoke() {
        let ask = |rules: &Judgement, n: usize| Row::judged("x", "ns", vec![100.0; n], Some(&FLOOR[..n]), rules);
        let high = rules(Better::Higher, 0.5);
        assert_eq!(ask(&Judgement { class: HostClass::CrossCcx, ..high.clone() }, 5).1, Some(NoVerdict::Class(HostClass::CrossCcx)));
        assert_eq!(ask(&high, 4).1, Some(NoVerdict::Samples(4)));
        assert_eq!(ask(&Judgement { smoke: true, ..high }, 5), {
            let (row, _) = ask(&rules(Better::Higher, 0.5), 5);
            (Row { ok: None, ..row }, Some(NoVerdict::Smoke))
        });
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn the_json_holds_the_nine_fields_and_null_for_what_is_unknown() {
        let (row, _) = Row::judged("x", "ns", vec![1.0], None, &Judgement { target: None, ..rules(Better::Lower, 1.0) });
        let dir = std::env::temp_dir().join(format!("saetta-row-{}", std::process::id()));
        let path = write_json(&dir, "unit", std::slice::from_ref(&row)).expect("temporary folder");
        let text = std::fs::read_to_string(&path).expect("written");
        std::fs::remove_dir_all(&dir).expect("removed");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let mut keys: Vec<&str> = value[0].as_object().expect("object").keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["class", "floor", "name", "ok", "ratio", "samples", "target", "unit", "value"]);
        assert!(value[0]["floor"].is_null() && value[0]["ok"].is_null());
        assert_eq!(serde_json::from_str::<Vec<Row>>(&text).expect("rows"), [row]);
    }

    #[test]
    fn the_table_says_why_a_verdict_is_missing() {
        let rows = [Row::judged("pipeline", "M tuples/s", vec![62.5; 5], Some(&[90.0; 5]), &rules(Better::Higher, 0.5))];
        let text = table(&rows);
        assert!(text.contains("null (void: floor 90.0 against 125.0 on record: run again)"), "{text}");
    }

    #[test]
    fn a_row_is_a_line_of_markdown_below_the_head() {
        let rows = [Row::judged("pipeline", "M tuples/s", vec![62.5; 5], Some(&FLOOR), &rules(Better::Higher, 0.5))];
        let text = markdown(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "| figure | value [min..max] | unit | floor | ratio | target | ok | class |");
        assert_eq!(lines[2], "| pipeline | 62.5 [62.5..62.5] | M tuples/s | 125 | 0.500 | 0.5000 | ok | CCX |");
    }
}
