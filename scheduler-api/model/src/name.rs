//! Names that cross a boundary: topologies, components, streams, supervisors.
//!
//! Rule (semantics): `^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`, no `..`; a name that begins with `__` is Saetta's own.
//! A name is used in znode paths, file names and URLs, so it is checked once, here, and never escaped again.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// A checked name. Only [`Name::new`], [`Name::system`] and deserialisation (which checks) make one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid name: {why}; use 1 to 128 of A-Z a-z 0-9 _ . - beginning with a letter or digit, without `..`")]
pub struct NameError {
    /// The refused text, cut to 160 characters.
    pub text: String,
    /// Which part of the rule it breaks.
    pub why: &'static str,
}

impl Name {
    /// Checks a name given by a user. Names beginning with `__` are refused: they are ours.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let refuse = |why| Err(NameError { text: text.chars().take(160).collect(), why });
        let Some(first) = text.bytes().next() else { return refuse("it is empty") };
        if text.len() > NAME_BYTES_MAX {
            return refuse("it is longer than 128 bytes");
        }
        if text.starts_with("__") {
            return refuse("names beginning with `__` are reserved");
        }
        if !first.is_ascii_alphanumeric() {
            return refuse("it does not begin with a letter or digit");
        }
        if text.bytes().any(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))) {
            return refuse("it holds a character outside the allowed set");
        }
        if text.contains("..") {
            return refuse("it holds `..`");
        }
        Ok(Name(text.to_owned()))
    }

    /// A name of ours: `__acker`, `__system`, `__tick`. Panics when the text is none, which is a bug of the caller.
    pub fn system(text: &'static str) -> Self {
        assert!(text.starts_with("__") && Name::new(&text[2..]).is_ok(), "{text:?} is not a system name");
        Name(text.to_owned())
    }

    /// True for names of ours.
    pub fn is_system(&self) -> bool {
        self.0.starts_with("__")
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        match text.strip_prefix("__") {
            Some(rest) if Name::new(rest).is_ok() => Ok(Name(text)),
            _ => Name::new(&text),
        }
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// The nearest of `known` to a mistyped `text`, if one is near enough to be meant.
pub fn nearest<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|k| (strsim::damerau_levenshtein(text, k), k))
        .min()
        .filter(|(distance, k)| *distance <= (k.len().max(text.len()) / 3).max(2))
        .map(|(_, k)| k)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_is_the_rule_of_the_page() {
        for good in ["a", "wc", "Word.count-2_x", "0", &"x".repeat(128)] {
            assert!(Name::new(good).is_ok(), "{good}");
        }
        for bad in ["", "_a", "-a", ".a", "a..b", "a/b", "a\\b", "a:b", "a b", "a\0", "é", "__acker", &"x".repeat(129), "<img>"] {
            assert!(Name::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_from_outside_are_checked_but_may_carry_system_names() {
        assert!(serde_json::from_str::<Name>("\"a/../b\"").is_err());
        assert!(serde_json::from_str::<Name>("\"__\"").is_err());
        assert_eq!(serde_json::from_str::<Name>("\"__acker\"").unwrap(), Name::system("__acker"));
    }

    #[test]
    fn nearest_finds_a_typo_and_not_a_stranger() {
        assert_eq!(nearest("topology.worker", ["topology.workers", "zookeeper.root"]), Some("topology.workers"));
        assert_eq!(nearest("banana", ["topology.workers"]), None);
    }
}
