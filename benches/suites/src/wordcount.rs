//! `wordcount`: `examples/wordcount` as shipped, on a generated text in a file, start and end of the process's own run included; beside the same
//! count by hand on two threads, from memory. One reader and one counter, or (`keyed`) both on both cores; each with and without acking.
//!
//! Before: the text is generated once and lies in the page cache. After: all counts of every run were compared with the text's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use saetta_floors as floors;
use saetta_floors::on_record;
use saetta_harness::suite::{Figures, SuiteRun};
use saetta_harness::zipf::{self, Text};
use saetta_harness::{Better, Result, RowSpec};

/// Any: the same text in every run.
pub(crate) const SEED: u64 = 11;

/// Builds the example beside this program, and says where it is.
pub(crate) fn built() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(&cargo).args(["build", "--quiet", "--release", "--package", "wordcount", "--bin", "wordcount"]).status()?;
    if !status.success() {
        return Err("`cargo build --release --package wordcount` failed; start the suite in the workspace".into());
    }
    let exe = std::env::current_exe()?;
    let target = exe.parent().and_then(Path::parent).ok_or("this program lies in no target folder")?;
    let path = target.join("release/wordcount");
    if path.is_file() { Ok(path) } else { Err(format!("{}: not there after the build", path.display()).into()) }
}

/// The shapes of the example: what it is called, its options, the target beside the count by hand.
const RUNS: [(&str, &[&str], f64); 4] = [
    ("pipe, un-acked", &[], 0.55),
    ("pipe, acked", &["--acked"], 0.42),
    ("keyed, un-acked", &["--keyed"], 0.50),
    ("keyed, acked", &["--keyed", "--acked"], 0.40),
];

/// One run over `file`; million words a second by its own clock, first spout call to last bolt.
pub(crate) fn run_once(binary: &Path, options: &[&str], file: &Path, text: &Text) -> Result<f64> {
    let output = Command::new(binary).args(["run", "--quiet", "--json"]).args(options).arg(file).output()?;
    if !output.status.success() {
        return Err(format!("wordcount: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    }
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let counts = answer["counts"].as_object().ok_or("no counts in the answer")?;
    let wrong = text.counts.iter().find(|(word, n)| counts.get(*word).and_then(serde_json::Value::as_u64) != Some(**n));
    if let Some((word, n)) = wrong {
        return Err(format!("{word:?} stands {n} times in the text, and was counted {:?}", counts.get(word)).into());
    }
    if counts.len() != text.counts.len() {
        return Err(format!("{} different words counted of {}", counts.len(), text.counts.len()).into());
    }
    let secs = answer["elapsed_sec"].as_f64().ok_or("no elapsed_sec in the answer")?;
    Ok(text.total() as f64 / secs / 1e6)
}

pub(crate) fn declare(run: &mut SuiteRun<'_>) -> Result<()> {
    let binary = built()?;
    let text = Arc::new(zipf::text(usize::try_from(run.options().size(100_000_000, 1_000_000))?, SEED));
    let dir = Arc::new(tempfile::tempdir()?);
    std::fs::write(dir.path().join("zipf.txt"), &text.bytes)?;

    let by_hand = |(millions, counts): (f64, floors::Counts), text: &Text| match counts == text.counts {
        true => Ok(Figures::from([("millions", millions)])),
        false => Err("the counts by hand are not those of the text".into()),
    };
    let of = text.clone();
    run.case("pipe by hand", move |o| by_hand(floors::word_count_pipe(o.cores, &of.bytes)?, &of));
    let of = text.clone();
    run.case("keyed by hand", move |o| by_hand(floors::word_count_keyed(o.cores, &of.bytes)?, &of));
    for (case, options, target) in RUNS {
        // Shared with the case: the file goes when the last of them does.
        let (binary, text, dir) = (binary.clone(), text.clone(), dir.clone());
        run.case(case, move |_| Ok(Figures::from([("millions", run_once(&binary, options, &dir.path().join("zipf.txt"), &text)?)])));
        let row = RowSpec::new(&format!("wordcount, {case}"), "M words/s", Better::Higher, case, "millions").target(target);
        run.row(if case.starts_with("pipe") {
            row.over("pipe by hand", "millions", 1.0).on_record(on_record::word_count_pipe_millions)
        } else {
            row.over("keyed by hand", "millions", 1.0).on_record(on_record::word_count_keyed_millions)
        });
    }
    Ok(())
}
