//! The bolt that counts, and what is shown at the end.

use crate::read::Fates;
use crate::{ArchivedWord, Word};
use rustc_hash::FxHashMap;
use saetta::prelude::*;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// What the count tasks of this process found, one entry a task.
pub(crate) type Counts = Arc<Mutex<Vec<FxHashMap<String, u64>>>>;

/// How many words the table shows.
const TOP: usize = 10;

pub(crate) struct Count {
    counts: FxHashMap<String, u64>,
    out: Option<PathBuf>,
    results: Counts,
}

impl Count {
    pub(crate) fn new(out: Option<PathBuf>, results: Counts) -> Self {
        Count { counts: FxHashMap::default(), out, results }
    }

    /// `DIR/count-TASK.tsv`, whole or not at all.
    fn write(&self, task: u32) -> std::io::Result<()> {
        let Some(dir) = &self.out else { return Ok(()) };
        std::fs::create_dir_all(dir)?;
        let (part, whole) = (dir.join(format!("count-{task}.part")), dir.join(format!("count-{task}.tsv")));
        let mut file = BufWriter::new(std::fs::File::create(&part)?);
        for (word, n) in &self.counts {
            writeln!(file, "{word}\t{n}")?;
        }
        file.into_inner()?.sync_all()?;
        std::fs::rename(part, whole)
    }
}

impl Bolt for Count {
    fn finish(&mut self, cx: &mut Cx<'_, Self>) -> Outcome {
        self.write(cx.task())
            .map_err(|e| Fail::Fatal(format!("cannot write counts to {}: {e}", self.out.as_deref().unwrap_or("".as_ref()).display())))?;
        self.results.lock().map_err(|_| "another count task panicked")?.push(std::mem::take(&mut self.counts));
        Ok(())
    }
}

impl Handle<Word> for Count {
    fn on(&mut self, tuple: &ArchivedWord, _: &mut Cx<'_, Self>) -> Outcome {
        // The key is allocated once per different word.
        match self.counts.get_mut(tuple.word()) {
            Some(n) => *n += 1,
            None => drop(self.counts.insert(tuple.word().to_owned(), 1)),
        }
        Ok(())
    }
}

/// Ten most frequent words, total, rate and percentiles; or everything as JSON.
pub(crate) fn report(counts: &Counts, fates: Option<&Mutex<Fates>>, summary: &Summary, json: bool) -> Result<()> {
    let tasks = counts.lock().map_err(|_| "a count task panicked")?;
    let all: BTreeMap<&str, u64> = tasks.iter().flatten().map(|(word, n)| (word.as_str(), *n)).collect();
    let total: u64 = all.values().sum();
    let fates = fates.map(|fates| fates.lock().map_err(|_| "a reader panicked")).transpose()?;
    let mut stdout = std::io::stdout().lock();
    let written = if json {
        let mut object = serde_json::json!({ "counts": all, "total": total, "rate_per_sec": summary.rate_per_sec, "elapsed_sec": summary.elapsed_sec, "latency": summary.latency, "components": summary.components, "errors": summary.errors });
        if let Some(fates) = &fates {
            object["lines_acked"] = fates.acked.into();
        }
        writeln!(stdout, "{object}")
    } else {
        let mut top: Vec<(&str, u64)> = all.iter().map(|(word, n)| (*word, *n)).collect();
        top.sort_by_key(|(word, n)| (std::cmp::Reverse(*n), *word));
        let mut lines = top.iter().take(TOP).map(|(word, n)| format!("{n:>12}  {word}\n")).collect::<String>();
        lines.push_str(&format!("{total:>12}  total, {} different words\n", all.len()));
        if let Some(fates) = &fates {
            lines.push_str(&format!("{:>12}  lines acked\n", fates.acked));
        }
        lines.push_str(&format!("\n{summary}\n"));
        stdout.write_all(lines.as_bytes())
    };
    match written {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => return Err(e.into()),
        _ => {}
    }
    // Counts that miss something must not look like counts.
    if let Some(fates) = fates.filter(|fates| fates.failed > 0) {
        return Err(format!("{} lines failed, so words may be missing from these counts; first {}", fates.failed, fates.why).into());
    }
    match summary.components.values().map(|c| c.failed).sum::<u64>() {
        0 => Ok(()),
        failed => Err(format!("{failed} inputs failed, so words are missing from these counts; why stands above").into()),
    }
}
