//! The bolt that splits a line at white space, however many words it holds.

use crate::{ArchivedLine, Line, Word, WordRef};
use saetta::prelude::*;

#[derive(Default)]
pub(crate) struct Split;

impl Bolt for Split {}
impl Emits<Word> for Split {}

impl Handle<Line> for Split {
    fn on(&mut self, line: &ArchivedLine, cx: &mut Cx<'_, Self>) -> Outcome {
        let text = line.text();
        let mut at = 0;
        // Words are emitted as they lie in the line for as long as there is room: nearly always to its end.
        while !cx.waits() {
            let Some(word) = next_word(text, &mut at) else { return Ok(()) };
            cx.emit(&WordRef { word });
        }
        // A megabyte of them must be able to wait: the rest of the line is kept.
        let (text, mut at) = (text[at..].to_owned(), 0);
        cx.emit_while(move |cx| {
            let word = next_word(&text, &mut at);
            word.iter().for_each(|word| cx.emit(&WordRef { word }));
            word.is_some()
        });
        Ok(())
    }
}

/// What a byte is in a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Word,
    Space,
    /// Part of a longer character, which may be white space.
    Long,
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Word; 256];
    let mut b = 0;
    while b < 256 {
        if b >= 0x80 {
            classes[b] = Class::Long;
        } else if matches!(b as u8, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r') {
            classes[b] = Class::Space;
        }
        b += 1;
    }
    classes
};

/// How many of eight bytes, from the lowest, stand before the first that may end a word: one below `!`, or of a longer character.
#[inline]
fn plain_letters(eight: u64) -> usize {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let below = eight.wrapping_sub(EACH * u64::from(b'!')) & !eight;
    ((below | eight) & (EACH * 0x80)).trailing_zeros() as usize / 8
}

/// The first word of `text` from `at` on, and `at` behind it.
#[inline]
fn next_word<'t>(text: &'t str, at: &mut usize) -> Option<&'t str> {
    let bytes = text.as_bytes();
    let mut start = *at;
    while start < bytes.len() && CLASSES[bytes[start] as usize] == Class::Space {
        start += 1;
    }
    let mut end = start;
    // Eight at a time: a word's end is then no branch that is guessed wrong.
    while let Some(eight) = bytes[end..].first_chunk() {
        let plain = plain_letters(u64::from_le_bytes(*eight));
        end += plain;
        if plain < 8 {
            break;
        }
    }
    while end < bytes.len() && CLASSES[bytes[end] as usize] == Class::Word {
        end += 1;
    }
    if end < bytes.len() && bytes[end] >= 0x80 {
        return next_word_of_any_language(text, start, at);
    }
    *at = end;
    (end > start).then(|| &text[start..end])
}

#[cold]
fn next_word_of_any_language<'t>(text: &'t str, start: usize, at: &mut usize) -> Option<&'t str> {
    let word = text[start..].split_whitespace().next();
    // A word is a slice of the text, so its place there is a difference of addresses.
    *at = word.map_or(text.len(), |word| word.as_ptr() as usize - text.as_ptr() as usize + word.len());
    word
}

#[cfg(test)]
mod tests {
    use super::next_word;
    use std::iter::from_fn;

    #[test]
    fn words_are_those_of_split_whitespace() {
        for text in [
            "",
            " ",
            "a",
            "  a b\tc\u{b}d \n",
            "größe\u{a0}naïve\u{2003}x y",
            "\u{85}é",
            "one two three\r\n",
            "ends in é\u{3000}",
            "a\u{2003}",
            "eightlet eightlett \u{1}control\u{1f}s seven77 longer than sixteen letters: counterrevolutionaries",
            "fünfzehnlettersö ends",
        ] {
            let mut at = 0;
            let words: Vec<&str> = from_fn(|| next_word(text, &mut at)).collect();
            assert_eq!(words, text.split_whitespace().collect::<Vec<_>>(), "{text:?}");
        }
    }
}
