//! Text whose words are distributed as in a language (Zipf), the same for the same seed, with its exact counts.
//!
//! Before: a size and a seed. After: someone counts it, and the answer is known. 100 MB are 17.5 million words of 50,000, in lines of ten.

use std::collections::BTreeMap;

/// Different words.
const WORDS: u32 = 50_000;
/// Words of a line.
const LINE_WORDS: u64 = 10;
/// The first numbers that have four and five digits in bijective base 26.
const FIRST_OF_FOUR: u32 = 26 + 26 * 26 + 26 * 26 * 26 + 1;
const FIRST_OF_FIVE: u32 = FIRST_OF_FOUR + 26 * 26 * 26 * 26;

const _: () = assert!(WORDS <= 26 * 26 * 26 * 26, "no word of four letters has a fifth");

/// A text with what is in it.
#[derive(Debug, Clone)]
pub struct Text {
    /// Words between single spaces, a line feed after each tenth.
    pub bytes: Vec<u8>,
    /// How often each word stands there.
    pub counts: BTreeMap<String, u64>,
}

impl Text {
    /// All words.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}

/// A text of a little over `bytes` bytes. About 60 ns a word.
#[must_use]
pub fn text(bytes: usize, seed: u64) -> Text {
    let words: Vec<String> = (0..WORDS).map(word).collect();
    // Rank r has weight 1 / r: `sums[r]` is the weight of all ranks up to r.
    let sums: Vec<f64> = (1..=WORDS)
        .scan(0.0, |sum, rank| {
            *sum += 1.0 / f64::from(rank);
            Some(*sum)
        })
        .collect();
    let all = sums.last().copied().unwrap_or(1.0);
    let mut seen = vec![0u64; words.len()];
    let mut out = Vec::with_capacity(bytes + 64);
    let mut random = SplitMix(seed);
    let mut n = 0u64;
    while out.len() < bytes {
        let at = random.unit() * all;
        let rank = sums.partition_point(|sum| *sum <= at).min(words.len() - 1);
        seen[rank] += 1;
        out.extend_from_slice(words[rank].as_bytes());
        n += 1;
        out.push(if n.is_multiple_of(LINE_WORDS) { b'\n' } else { b' ' });
    }
    let counts = words.into_iter().zip(seen).filter(|(_, n)| *n > 0).collect();
    Text { bytes: out, counts }
}

/// The word of a rank, all different: bijective base 26, every fourth of four letters and the others of five.
fn word(rank: u32) -> String {
    let mut letters = Vec::new();
    let mut rest = rank + if rank.is_multiple_of(4) { FIRST_OF_FOUR } else { FIRST_OF_FIVE };
    while rest > 0 {
        rest -= 1;
        letters.push(char::from(b'a' + (rest % 26) as u8));
        rest /= 26;
    }
    letters.iter().rev().collect()
}

/// A small generator of numbers that look random.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// In 0..1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_are_those_of_the_text_and_a_seed_repeats_it() {
        let made = text(100_000, 1);
        let mut counts = BTreeMap::new();
        for word in std::str::from_utf8(&made.bytes).expect("letters").split_whitespace() {
            *counts.entry(word.to_owned()).or_insert(0) += 1;
        }
        assert_eq!(counts, made.counts);
        assert_eq!(made.bytes, text(100_000, 1).bytes);
        assert_ne!(made.bytes, text(100_000, 2).bytes);
    }

    #[test]
    fn words_are_different_and_the_first_is_the_most_frequent() {
        let words: std::collections::BTreeSet<String> = (0..WORDS).map(word).collect();
        assert_eq!(words.len(), WORDS as usize);
        assert_eq!([word(0), word(1), word(4)].map(|word| word.len()), [4, 5, 4]);
        let made = text(1_000_000, 3);
        let most = made.counts.iter().max_by_key(|(_, n)| **n).expect("not empty");
        assert_eq!(*most.0, word(0));
        // 1 / (ln 50,000 + 0.577) of all.
        assert!((0.08..0.095).contains(&(*most.1 as f64 / made.total() as f64)), "{most:?}");
    }
}
