//! The control channel between nimbus and its helper: small messages of one size over a SOCK_SEQPACKET pair.
//!
//! Before: `process` (nimbus's end) or `helper`. Layout of a message, little-endian, no padding:
//! ```text
//! kind u32 | code i32 | round_id u64 | seed u64 | budget_ns u64 | snap_len u64 | n_execs u32 | n_topologies u32
//! reason u32 | max_moves u32 | text_len u32 | flags u32 | text [512]
//! ```
//! A ROUND carries two descriptors: the sealed snapshot, and the memory for the answer. Where HELLO has said [`REMEMBERS`], that memory has
//! `abi::STATE_BYTES_MAX` bytes more behind the answer for what the instance wants to find again. Both ends are of one build, so there is
//! no version here; the helper still treats nothing of it as a pointer, and nimbus treats all of it as hostile.

use saetta_sdk::abi::{self, Field};
use saetta_sdk::call::Reason;

/// Bytes of text in one message; more is cut.
pub(crate) const TEXT_BYTES_MAX: usize = 512;
/// Bytes of a message.
pub(crate) const MESSAGE_BYTES: usize = 64 + TEXT_BYTES_MAX;
/// Log lines a helper passes on per round; more are counted and dropped.
pub(crate) const LOG_LINES_MAX: u32 = 200;
/// Reasons a helper passes on per round; more are dropped.
pub(crate) const REASONS_MAX: u32 = 65_536;
/// Between the text of a reason and the parts of its score.
const PART: char = '\u{1f}';

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// Helper: the plugin is loaded and has an instance (code 0), runs without a filter (code 1, text), or failed (negative, text).
    Hello = 1,
    /// Nimbus: run a round.
    Round = 2,
    /// Helper: the round ended; code as `schedule` returned it, text of an error.
    Result = 3,
    /// Helper: a log line of the plugin; code is its level.
    Log = 4,
    /// Helper: a reason, asked for by `ROUND_EXPLAIN`; see [`Message::reason`].
    Reason = 5,
    /// Nimbus: judge the nodes; as ROUND, and the answer is the flags of `n_execs` nodes.
    Judge = 6,
    /// Nimbus, before HELLO, to a helper started with `--remember true`: what an instance saved, `snap_len` bytes in the one descriptor.
    Remember = 7,
}

/// Flag of a HELLO: the instance has `saetta.state/1`.
pub(crate) const REMEMBERS: u32 = 1;
/// Flag of a RESULT: behind the answer are `snap_len` bytes that the instance wants to find again.
pub(crate) const SAVED: u32 = 1;

/// One message. Fields that a kind does not use are 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) code: i32,
    pub(crate) round_id: u64,
    pub(crate) seed: u64,
    pub(crate) budget_ns: u64,
    pub(crate) snap_len: u64,
    pub(crate) n_execs: u32,
    pub(crate) n_topologies: u32,
    pub(crate) reason: u32,
    pub(crate) max_moves: u32,
    pub(crate) flags: u32,
    pub(crate) text: String,
}

impl Message {
    pub(crate) fn new(kind: Kind, code: i32, text: &str) -> Self {
        Message {
            kind,
            code,
            round_id: 0,
            seed: 0,
            budget_ns: 0,
            snap_len: 0,
            n_execs: 0,
            n_topologies: 0,
            reason: 0,
            max_moves: abi::NONE,
            flags: 0,
            text: text.to_owned(),
        }
    }

    pub(crate) fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut out = [0; MESSAGE_BYTES];
        let mut text_len = self.text.len().min(TEXT_BYTES_MAX);
        while !self.text.is_char_boundary(text_len) {
            text_len -= 1;
        }
        (self.kind as u32).put(&mut out);
        self.code.put(&mut out[4..]);
        self.round_id.put(&mut out[8..]);
        self.seed.put(&mut out[16..]);
        self.budget_ns.put(&mut out[24..]);
        self.snap_len.put(&mut out[32..]);
        self.n_execs.put(&mut out[40..]);
        self.n_topologies.put(&mut out[44..]);
        self.reason.put(&mut out[48..]);
        self.max_moves.put(&mut out[52..]);
        (text_len as u32).put(&mut out[56..]);
        self.flags.put(&mut out[60..]);
        out[64..64 + text_len].copy_from_slice(&self.text.as_bytes()[..text_len]);
        out
    }

    /// `None` for bytes that are no message. Control characters in the text become spaces.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Message> {
        if bytes.len() != MESSAGE_BYTES {
            return None;
        }
        let kind = match u32::get(bytes) {
            1 => Kind::Hello,
            2 => Kind::Round,
            3 => Kind::Result,
            4 => Kind::Log,
            5 => Kind::Reason,
            6 => Kind::Judge,
            7 => Kind::Remember,
            _ => return None,
        };
        let text = bytes[64..].get(..u32::get(&bytes[56..]) as usize)?;
        Some(Message {
            kind,
            code: i32::get(&bytes[4..]),
            round_id: u64::get(&bytes[8..]),
            seed: u64::get(&bytes[16..]),
            budget_ns: u64::get(&bytes[24..]),
            snap_len: u64::get(&bytes[32..]),
            n_execs: u32::get(&bytes[40..]),
            n_topologies: u32::get(&bytes[44..]),
            reason: u32::get(&bytes[48..]),
            max_moves: u32::get(&bytes[52..]),
            flags: u32::get(&bytes[60..]),
            text: String::from_utf8_lossy(text)
                .chars()
                .map(|c| if c.is_control() && !(c == PART && kind == Kind::Reason) { ' ' } else { c })
                .collect(),
        })
    }

    /// A reason on its way; the parts of its score stand behind the text, and what does not fit is cut.
    pub(crate) fn of_reason(reason: &Reason) -> Self {
        let clean = |text: &str| text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
        let mut text = clean(&reason.text);
        for (name, value) in &reason.parts {
            let part = format!("{PART}{value} {}", clean(name));
            if text.len() + part.len() <= TEXT_BYTES_MAX {
                text.push_str(&part);
            }
        }
        Message {
            n_execs: reason.exec,
            n_topologies: reason.slot,
            reason: reason.arg,
            seed: reason.score as u64,
            ..Message::new(Kind::Reason, reason.code as i32, &text)
        }
    }

    /// The way back. Row numbers are not checked.
    pub(crate) fn to_reason(&self) -> Reason {
        let mut pieces = self.text.split(PART);
        let text = pieces.next().unwrap_or_default().to_owned();
        let part = |piece: &str| {
            let (value, name) = piece.split_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Reason {
            exec: self.n_execs,
            slot: self.n_topologies,
            code: self.code as u32,
            arg: self.reason,
            score: self.seed as i64,
            parts: pieces.filter_map(part).collect(),
            text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_survives_the_channel_with_its_parts() {
        let parts = vec![("cpu".to_owned(), -5), ("same rack".to_owned(), 7)];
        let reason = Reason { exec: 3, slot: abi::NONE, code: abi::WHY_NO_CPU, arg: 9, score: -1, parts, text: "too small".into() };
        let passed = |reason: &Reason| Message::decode(&Message::of_reason(reason).encode()).unwrap().to_reason();
        assert_eq!(passed(&reason), reason);
        let long = Reason { parts: vec![("x".repeat(300), 1), ("y".repeat(300), 2)], ..reason };
        assert_eq!(passed(&long).parts.len(), 1, "what does not fit is left out whole");
    }

    #[test]
    fn a_message_survives_the_channel_and_hostile_bytes_do_not_become_one() {
        let message = Message { round_id: 7, n_execs: 3, max_moves: 0, ..Message::new(Kind::Round, -3, "why") };
        assert_eq!(Message::decode(&message.encode()), Some(message.clone()));
        let long = Message::new(Kind::Log, 1, &"é".repeat(TEXT_BYTES_MAX));
        assert_eq!(Message::decode(&long.encode()).map(|m| m.text), Some("é".repeat(TEXT_BYTES_MAX / 2)));
        assert_eq!(Message::decode(&message.encode()[1..]), None);
        let mut forged = message.encode();
        forged[56..60].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Message::decode(&forged), None);
        forged = message.encode();
        forged[0] = 99;
        assert_eq!(Message::decode(&forged), None);
    }
}
