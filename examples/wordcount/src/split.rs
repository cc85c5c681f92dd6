//! The bolt that splits a line at white space, however many words it holds.

use crate::{ArchivedLine, Line, Word};
use saetta::prelude::*;

#[derive(Default)]
pub(crate) struct Split;

impl Bolt for Split {}
impl Emits<Word> for Split {}

impl Handle<Line> for Split {
    fn on(&mut self, line: &ArchivedLine, cx: &mut Cx<'_, Self>) -> Outcome {
        cx.emit_from(Words { text: line.text().to_owned(), at: 0 });
        Ok(())
    }
}

/// The words of a text it owns: a megabyte of them must be able to wait for room downstream.
struct Words {
    text: String,
    at: usize,
}

impl Iterator for Words {
    type Item = Word;

    fn next(&mut self) -> Option<Word> {
        let rest = &self.text[self.at..];
        let word = rest.split_whitespace().next()?;
        // `split_whitespace` gives a slice of `rest`, so its place in it is a difference of addresses.
        self.at += word.as_ptr() as usize - rest.as_ptr() as usize + word.len();
        Some(Word { word: word.to_owned() })
    }
}
