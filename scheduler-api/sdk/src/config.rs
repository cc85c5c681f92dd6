//! The configuration of an instance: JSON text in, checked values out; a key that nothing reads is refused.
//!
//! Before: [`CreateCx::config`](crate::CreateCx::config). After: the scheduler has its values, and what [`Configured`](crate::Configured)
//! tells - schema and values in force - was written down on the way. Only in `create`, never in a round.
//!
//! ```
//! use saetta_sdk::config::Config;
//! let mut config = Config::parse(r#"{"weight": 3}"#)?;
//! let weight = config.number("weight", 1, 0..=10, "how much it counts")?;
//! let told = config.finish()?;
//! assert_eq!((weight, told.effective.as_str()), (3, r#"{"weight":3}"#));
//! # Ok::<(), saetta_sdk::PluginError>(())
//! ```

use crate::PluginError;
use saetta_abi as abi;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// A configuration being read. Each key is read once.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// What was given and not read yet.
    given: Map<String, Value>,
    schema: Map<String, Value>,
    effective: Map<String, Value>,
}

/// What was read, for [`Configured`](crate::Configured).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// JSON schema of all that was read.
    pub schema: String,
    /// The values in force, defaults filled in.
    pub effective: String,
}

fn refuse(text: String) -> PluginError {
    PluginError { code: abi::E_CONFIG, text }
}

impl Config {
    /// Takes JSON text; it must be an object. Empty text is an empty one.
    pub fn parse(text: &str) -> Result<Self, PluginError> {
        let text = if text.trim().is_empty() { "{}" } else { text };
        match serde_json::from_str(text) {
            Ok(Value::Object(given)) => Ok(Config { given, ..Config::default() }),
            Ok(_) => Err(refuse("the configuration is no object; write {\"key\": value}".into())),
            Err(e) => Err(refuse(format!("the configuration is no JSON: {e}"))),
        }
    }

    /// True or false.
    pub fn flag(&mut self, key: &str, default: bool, what: &str) -> Result<bool, PluginError> {
        let value = match self.given.remove(key) {
            None => default,
            Some(Value::Bool(value)) => value,
            Some(other) => return Err(refuse(format!("{key} is {other}; it must be true or false"))),
        };
        self.told(key, json!({ "type": "boolean", "default": default, "description": what }), json!(value));
        Ok(value)
    }

    /// A whole number in a range.
    pub fn number(&mut self, key: &str, default: u64, range: RangeInclusive<u64>, what: &str) -> Result<u64, PluginError> {
        let value = match self.given.remove(key) {
            None => default,
            Some(value) => whole(key, &value, &range)?,
        };
        let schema =
            json!({ "type": "integer", "minimum": range.start(), "maximum": range.end(), "default": default, "description": what });
        self.told(key, schema, json!(value));
        Ok(value)
    }

    /// A whole number in a range for each of some names, which the configuration chooses; none by default.
    pub fn numbers(&mut self, key: &str, range: RangeInclusive<u64>, what: &str) -> Result<BTreeMap<String, u64>, PluginError> {
        let values = match self.given.remove(key) {
            None => BTreeMap::new(),
            Some(Value::Object(named)) => {
                let one = |(name, value): (&String, &Value)| Ok((name.clone(), whole(&format!("{key}.{name}"), value, &range)?));
                named.iter().map(one).collect::<Result<_, PluginError>>()?
            }
            Some(other) => return Err(refuse(format!("{key} is {other}; it must be an object, name to number"))),
        };
        let one = json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() });
        self.told(key, json!({ "type": "object", "additionalProperties": one, "default": {}, "description": what }), json!(values));
        Ok(values)
    }

    /// All was read: refuses keys that nobody asked for.
    pub fn finish(self) -> Result<Told, PluginError> {
        if let Some(key) = self.given.keys().next() {
            let known: Vec<&str> = self.schema.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "it takes none".to_owned() } else { format!("it takes {}", known.join(", ")) };
            return Err(refuse(format!("the configuration has a key {key:?}; {known}")));
        }
        let schema = json!({ "type": "object", "properties": self.schema, "additionalProperties": false });
        Ok(Told { schema: schema.to_string(), effective: Value::Object(self.effective).to_string() })
    }

    fn told(&mut self, key: &str, schema: Value, value: Value) {
        let before = self.schema.insert(key.to_owned(), schema);
        assert!(before.is_none(), "key {key} is read twice");
        self.effective.insert(key.to_owned(), value);
    }
}

fn whole(key: &str, value: &Value, range: &RangeInclusive<u64>) -> Result<u64, PluginError> {
    let fits = value.as_u64().filter(|n| range.contains(n));
    fits.ok_or_else(|| refuse(format!("{key} is {value}; it must be a whole number, {} to {}", range.start(), range.end())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(bool, u64, BTreeMap<String, u64>, Told), PluginError> {
        let mut c = Config::parse(text)?;
        Ok((c.flag("on", false, "a")?, c.number("n", 5, 1..=9, "b")?, c.numbers("of", 0..=3, "c")?, c.finish()?))
    }

    #[test]
    fn defaults_fill_in_and_are_told() {
        let (on, n, of, told) = read("").unwrap();
        assert_eq!((on, n, of.len()), (false, 5, 0));
        assert_eq!(told.effective, r#"{"n":5,"of":{},"on":false}"#);
        assert!(told.schema.contains(r#""maximum":9"#), "{}", told.schema);
        let (on, n, of, told) = read(r#"{"on": true, "n": 9, "of": {"x": 3}}"#).unwrap();
        assert_eq!((on, n, of["x"]), (true, 9, 3));
        assert_eq!(told.effective, r#"{"n":9,"of":{"x":3},"on":true}"#);
    }

    #[test]
    fn what_is_wrong_is_named_with_the_remedy() {
        for (text, part) in [
            ("[]", "no object"),
            ("{", "no JSON"),
            (r#"{"on": 1}"#, "on is 1; it must be true or false"),
            (r#"{"n": 10}"#, "n is 10; it must be a whole number, 1 to 9"),
            (r#"{"n": -1}"#, "1 to 9"),
            (r#"{"n": 1.5}"#, "1 to 9"),
            (r#"{"of": 1}"#, "it must be an object"),
            (r#"{"of": {"x": 4}}"#, "of.x is 4"),
            (r#"{"m": 1}"#, "a key \"m\"; it takes n, of, on"),
        ] {
            let e = read(text).expect_err(text);
            assert_eq!(e.code, abi::E_CONFIG);
            assert!(e.text.contains(part), "{text}: {}", e.text);
        }
    }
}
