//! Storm's first example: words, and two bolts that append "!!!", one after the other.
//!
//! word (spout) -> Word -> exclaim1 -> Word -> exclaim2, which reads both the spout and the first bolt
#![forbid(unsafe_code)]

use saetta::prelude::*;
use std::io::Write;

/// The words that are shouted, in turn.
const WORDS: [&str; 5] = ["nathan", "mike", "jackson", "golda", "bertels"];

/// One word, with what was appended so far.
#[tuple]
#[derive(Debug, PartialEq)]
pub struct Word {
    /// The text.
    pub word: String,
}

#[derive(clap::Args)]
struct Args {
    /// Words to emit; 0 = without end
    #[arg(long, default_value_t = 10)]
    words: u64,
}

struct Words {
    emitted: u64,
    /// 0 = without end.
    wanted: u64,
}

impl Emits<Word> for Words {}
impl Spout for Words {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        if self.wanted != 0 && self.emitted == self.wanted {
            return Ok(Done);
        }
        cx.emit(&WordRef { word: WORDS[(self.emitted % WORDS.len() as u64) as usize] });
        self.emitted += 1;
        Ok(Busy)
    }
}

/// Appends three exclamation marks. The last one prints; nobody reads its stream.
struct Exclaim {
    print: bool,
    text: String,
}

impl Exclaim {
    fn new(print: bool) -> Self {
        Exclaim { print, text: String::new() }
    }
}

impl Bolt for Exclaim {}
impl Emits<Word> for Exclaim {}
impl Handle<Word> for Exclaim {
    fn on(&mut self, tuple: &ArchivedWord, cx: &mut Cx<'_, Self>) -> Outcome {
        self.text.clear();
        self.text.push_str(tuple.word());
        self.text.push_str("!!!");
        if self.print {
            writeln!(std::io::stdout(), "{}", self.text).map_err(|e| Fail::Fatal(format!("cannot print: {e}")))?;
        }
        cx.emit(&WordRef { word: &self.text });
        Ok(())
    }
}

fn topology(t: &mut Topology, args: Args) -> Result<()> {
    let wanted = args.words;
    let words = t.spout("word", move || Words { emitted: 0, wanted }).stream::<Word>();
    let once = t.bolt("exclaim1", || Exclaim::new(false)).input(&words, Shuffle).stream::<Word>();
    let _ = t.bolt("exclaim2", || Exclaim::new(true)).input(&words, Shuffle).input(&once, Shuffle);
    Ok(())
}

saetta::main!(topology);

#[cfg(test)]
mod tests {
    use super::*;
    use saetta::testing::{TestBolt, TestTopology};

    fn word(text: &str) -> Word {
        Word { word: text.into() }
    }

    #[test]
    fn a_word_is_shouted() {
        let mut t = TestBolt::new(Exclaim::new(false));
        t.send(&word("nathan"));
        assert_eq!(t.drain::<Word>(), [word("nathan!!!")]);
    }

    #[test]
    fn words_are_shouted_once_by_the_first_bolt_and_by_the_second_what_either_says() {
        let run = TestTopology::new(|t| topology(t, Args { words: 0 })).mock("word", [word("mike")]).run_to_end();
        assert_eq!(run.output::<Word>("exclaim1"), [word("mike!!!")]);
        assert_eq!(run.summary("exclaim2").executed, 2);
    }
}
