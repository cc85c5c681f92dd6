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
pub(crate) type Counts = Arc<Mutex<Vec<Table>>>;

/// How often each word came. A short word is its own key, in a register; a longer one is allocated, once per different word.
#[derive(Default)]
pub(crate) struct Table {
    short: FxHashMap<(u64, u64), u64>,
    long: FxHashMap<Box<str>, u64>,
}

impl Table {
    #[inline]
    fn add(&mut self, word: &str) {
        match packed(word.as_bytes()) {
            Some(key) => *self.short.entry(key).or_default() += 1,
            None => self.add_long(word),
        }
    }

    fn add_long(&mut self, word: &str) {
        match self.long.get_mut(word) {
            Some(n) => *n += 1,
            None => drop(self.long.insert(word.into(), 1)),
        }
    }

    fn iter(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        let short = self.short.iter().map(|(key, n)| (unpacked(*key), *n));
        short.chain(self.long.iter().map(|(word, n)| (String::from(&**word), *n)))
    }
}

/// A word of at most 15 bytes, and its length in the highest byte.
#[inline]
fn packed(word: &[u8]) -> Option<(u64, u64)> {
    /// Its first and last `N` bytes, which overlap unless it has `2 * N`.
    #[inline]
    fn ends<const N: usize>(word: &[u8]) -> Option<([u8; N], [u8; N])> {
        Some((*word.first_chunk()?, *word.last_chunk()?))
    }
    let n = word.len();
    let letters = match n {
        8..16 => {
            let (first, last) = ends(word)?;
            u128::from(u64::from_le_bytes(first)) | u128::from(u64::from_le_bytes(last)) << (8 * (n - 8))
        }
        4..8 => {
            let (first, last) = ends(word)?;
            u128::from(u64::from(u32::from_le_bytes(first)) | u64::from(u32::from_le_bytes(last)) << (8 * (n - 4)))
        }
        1..4 => u128::from(word[0]) | u128::from(word[n / 2]) << (8 * (n / 2)) | u128::from(word[n - 1]) << (8 * (n - 1)),
        _ => return None,
    };
    Some((letters as u64, (letters >> 64) as u64 | (n as u64) << 56))
}

fn unpacked((low, high): (u64, u64)) -> String {
    let bytes = (u128::from(high) << 64 | u128::from(low)).to_le_bytes();
    String::from_utf8_lossy(&bytes[..usize::from(bytes[15])]).into_owned()
}

/// How many words the table shows.
const TOP: usize = 10;

pub(crate) struct Count {
    counts: Table,
    out: Option<PathBuf>,
    results: Counts,
}

impl Count {
    pub(crate) fn new(out: Option<PathBuf>, results: Counts) -> Self {
        Count { counts: Table::default(), out, results }
    }

    /// `DIR/count-TASK.tsv`, whole or not at all.
    fn write(&self, task: u32) -> std::io::Result<()> {
        let Some(dir) = &self.out else { return Ok(()) };
        std::fs::create_dir_all(dir)?;
        let (part, whole) = (dir.join(format!("count-{task}.part")), dir.join(format!("count-{task}.tsv")));
        let mut file = BufWriter::new(std::fs::File::create(&part)?);
        for (word, n) in self.counts.iter() {
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
        self.counts.add(tuple.word());
        Ok(())
    }
}

/// Ten most frequent words, total, rate and percentiles; or everything as JSON.
pub(crate) fn report(counts: &Counts, fates: Option<&Mutex<Fates>>, summary: &Summary, json: bool) -> Result<()> {
    let tasks = counts.lock().map_err(|_| "a count task panicked")?;
    let all: BTreeMap<String, u64> = tasks.iter().flat_map(Table::iter).collect();
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
        let mut top: Vec<(&str, u64)> = all.iter().map(|(word, n)| (word.as_str(), *n)).collect();
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

#[cfg(test)]
mod tests {
    use super::Table;
    use std::collections::BTreeMap;

    #[test]
    fn words_of_any_length_are_counted_apart() {
        let letters = "abcdefghijklmnopqrstuvwxyzäöü";
        let words =
            letters.char_indices().skip(1).map(|(end, _)| &letters[..end]).chain(["b", "ab\0", "ab\0\0", "ä", "abcdefg\0", letters]);
        let (mut table, mut counts) = (Table::default(), BTreeMap::new());
        for word in words.flat_map(|word| std::iter::repeat_n(word, word.len())) {
            table.add(word);
            *counts.entry(word.to_owned()).or_default() += 1;
        }
        assert_eq!(table.iter().collect::<BTreeMap<_, _>>(), counts);
    }
}
