//! The bolt that splits a line at white space, however many words it holds.

use crate::{ArchivedLine, Line, Word, WordRef};
use saetta::prelude::*;

#[derive(Default)]
pub(crate) struct Split;

impl Bolt for Split {}
impl Emits<Word> for Split {}

impl Handle<Line> for Split {
    fn on(&mut self, line: &ArchivedLine, cx: &mut Cx<'_, Self>) -> Outcome {
        let mut rest = line.text();
        // Words are emitted as they lie in the line for as long as there is room: nearly always to its end.
        while !cx.waits() {
            let Some(word) = next_word(&mut rest) else { return Ok(()) };
            cx.emit(&WordRef { word });
        }
        // A megabyte of them must be able to wait: the rest of the line is kept.
        let (text, mut at) = (rest.to_owned(), 0);
        cx.emit_while(move |cx| {
            let mut rest = &text[at..];
            let word = next_word(&mut rest);
            word.iter().for_each(|word| cx.emit(&WordRef { word }));
            at = text.len() - rest.len();
            word.is_some()
        });
        Ok(())
    }
}

/// Takes the first word off `rest`.
#[inline]
fn next_word<'t>(rest: &mut &'t str) -> Option<&'t str> {
    let text = rest.trim_start();
    // White space beyond ASCII is looked for where there is any such character.
    let ascii = text.bytes().position(|b| b.is_ascii_whitespace() || b == 0x0b || !b.is_ascii()).unwrap_or(text.len());
    let end = match text.as_bytes().get(ascii) {
        Some(b) if !b.is_ascii() => text.find(char::is_whitespace).unwrap_or(text.len()),
        _ => ascii,
    };
    let (word, after) = text.split_at(end);
    *rest = after;
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LineRef;
    use saetta::testing::TestBolt;
    use std::iter::from_fn;

    fn split(mut t: TestBolt<Split>, text: &str) -> Vec<String> {
        t.send(&LineRef { text });
        t.drain::<Word>().into_iter().map(|w| w.word).collect()
    }

    #[test]
    fn a_line_is_split_at_white_space_of_any_kind() {
        assert_eq!(split(TestBolt::new(Split), " the\tquick\u{2003}brown  fox\r\n"), ["the", "quick", "brown", "fox"]);
    }

    #[test]
    fn the_words_of_a_line_that_find_no_room_come_later_and_in_order() {
        let words: Vec<String> = (0..5_000).map(|n| n.to_string()).collect();
        let narrow = TestBolt::new(Split).config("executor.inbox.bytes", 4096);
        assert_eq!(split(narrow, &words.join(" ")), words);
    }

    #[test]
    fn words_are_those_of_split_whitespace() {
        for text in ["", " ", "a", "  a b\tc\u{b}d \n", "größe\u{a0}naïve\u{2003}x y", "\u{85}é", "one two three\r\n", "ends in é\u{3000}"]
        {
            let mut rest = text;
            let words: Vec<&str> = from_fn(|| next_word(&mut rest)).collect();
            assert_eq!(words, text.split_whitespace().collect::<Vec<_>>(), "{text:?}");
        }
    }
}
