//! Configuration from a file, the environment and `--set`, in rising precedence, each key with the place it came from.

use crate::args::Global;
use crate::exit::{Exit, Failure, Outcome};
use crate::files::text_of;
use saetta_model::config::{Config, ConfigError, KEYS, Owner, Scope, Source, find};
use std::path::Path;
use toml_edit::{Document, Item, TableLike, Value};

/// Longest configuration file; longer ones are refused before they are read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Deepest nesting of tables.
const DEPTH_MAX: usize = 16;
/// Keys of the client that may stand beside a topology's in `submit --set`.
const CLIENT_KEYS: [&str; 1] = ["nimbus.seeds"];

/// Who reads the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A daemon, or a command that only needs to find the cluster.
    Daemon,
    /// `submit`: may also set the topology's keys.
    Submit,
}

/// Checked settings.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Of daemons and of this client.
    pub(crate) daemon: Config,
    /// Of the topology to submit.
    pub(crate) topology: Config,
}

/// Reads all sources.
pub(crate) fn load(global: &Global, reader: Reader) -> Outcome<Settings> {
    let mut settings = Settings { daemon: Config::new(Owner::Daemon), topology: Config::new(Owner::Topology) };
    let mut all = Vec::new();
    if let Some(path) = &global.config {
        all.extend(read_file(path)?);
    }
    for (variable, value) in std::env::vars_os() {
        if !variable.as_encoded_bytes().starts_with(b"SAETTA__") {
            continue;
        }
        let (Ok(variable), Ok(value)) = (variable.clone().into_string(), value.into_string()) else {
            let place = format!("environment {}", variable.display());
            return Err(invalid(&ConfigError { place, what: "it is not UTF-8".into() }));
        };
        let rest = &variable["SAETTA__".len()..];
        let dotted = rest.replace("__", ".");
        let key =
            KEYS.iter().map(|k| k.name).find(|n| n.eq_ignore_ascii_case(&dotted)).map_or_else(|| dotted.to_lowercase(), str::to_owned);
        all.push((key, value, Source::Env(variable)));
    }
    for pair in &global.set {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(invalid(&ConfigError { place: "--set".into(), what: format!("{pair:?} is not KEY=VALUE") }));
        };
        all.push((key.trim().to_owned(), value.to_owned(), Source::Set));
    }
    for (key, value, source) in all {
        let of_topology = find(&key).is_some_and(|k| k.scope != Scope::Daemon);
        let target = match (reader, of_topology, &source) {
            // Meant for submits from the same shell.
            (Reader::Daemon, true, Source::Env(_)) => continue,
            // Refused by the daemon's configuration, with the reason.
            (Reader::Daemon, ..) => &mut settings.daemon,
            (Reader::Submit, true, _) => &mut settings.topology,
            // A daemon's key given for a topology is refused, unless the client itself reads it.
            (Reader::Submit, false, Source::Set) if !CLIENT_KEYS.contains(&key.as_str()) => &mut settings.topology,
            (Reader::Submit, false, _) => &mut settings.daemon,
        };
        target.set(&key, &value, source).map_err(|e| invalid(&e))?;
    }
    Ok(settings)
}

fn invalid(e: &ConfigError) -> Failure {
    Failure::new(Exit::Invalid, format!("{}: {}", e.place, e.what))
}

fn read_file(path: &Path) -> Outcome<Vec<(String, String, Source)>> {
    let text = text_of("configuration file", path, FILE_BYTES_MAX, "check the path given with --config")?;
    parse(&path.display().to_string(), &text).map_err(|e| invalid(&e))
}

/// Keys with their values and lines.
fn parse(name: &str, text: &str) -> Result<Vec<(String, String, Source)>, ConfigError> {
    let document = Document::parse(text).map_err(|e| ConfigError {
        place: format!("{name}:{}", line(text, e.span().map_or(0, |s| s.start))),
        what: e.message().to_owned(),
    })?;
    let mut found: Vec<(String, String, Source)> = Vec::new();
    walk(name, text, document.as_table(), "", 0, &mut found)?;
    // One key has several spellings (`a.b`, `[a] b`, `"a.b"`), so TOML does not see every duplicate.
    for (i, (key, _, source)) in found.iter().enumerate() {
        if let Some((_, _, first)) = found[..i].iter().find(|(k, ..)| k == key) {
            return Err(ConfigError { place: source.to_string(), what: format!("duplicate key `{key}`; it stands in {first} already") });
        }
    }
    Ok(found)
}

fn walk(
    name: &str,
    text: &str,
    table: &dyn TableLike,
    prefix: &str,
    depth: usize,
    found: &mut Vec<(String, String, Source)>,
) -> Result<(), ConfigError> {
    for (key, item) in table.iter() {
        let at = table.key(key).and_then(toml_edit::Key::span).or_else(|| item.span()).map_or(0, |s| s.start);
        let line = line(text, at);
        let full = if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
        let refuse = |what: String| ConfigError { place: format!("{name}:{line}"), what };
        if let Some(inner) = item.as_table_like() {
            if depth == DEPTH_MAX {
                return Err(refuse(format!("`{full}` is nested deeper than {DEPTH_MAX} tables")));
            }
            walk(name, text, inner, &full, depth + 1, found)?;
            continue;
        }
        let value = match item {
            Item::Value(value) => scalar(value),
            _ => None,
        };
        let value = value.ok_or_else(|| refuse(format!("`{full}` is neither a number, a text nor a list of those")))?;
        found.push((full, value, Source::File(name.to_owned(), line)));
    }
    Ok(())
}

/// The text form of a value; lists are written with commas, as `--set` takes them.
fn scalar(value: &Value) -> Option<String> {
    Some(match value {
        Value::String(s) => s.value().clone(),
        Value::Integer(i) => i.value().to_string(),
        Value::Float(f) => f.value().to_string(),
        Value::Boolean(b) => b.value().to_string(),
        Value::Array(a) => a.iter().map(|v| if v.is_array() { None } else { scalar(v) }).collect::<Option<Vec<_>>>()?.join(","),
        Value::Datetime(_) | Value::InlineTable(_) => return None,
    })
}

fn line(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1
}

/// What `saetta help config` prints.
pub(crate) fn describe_keys() -> String {
    let mut out = String::from("Configuration keys of Saetta. Precedence: built-in < --config FILE < SAETTA__A__B=.. < --set a.b=..\n");
    for (title, scopes) in [
        ("Daemons (nimbus, supervisor, dev) and this client", &[Scope::Daemon][..]),
        ("Topologies (submit --set); those marked * also per component", &[Scope::Topology, Scope::Component][..]),
    ] {
        out += &format!("\n{title}:\n");
        for key in KEYS.iter().filter(|k| scopes.contains(&k.scope)) {
            let mark = if key.scope == Scope::Component { "*" } else { "" };
            let default = if key.default.is_empty() { String::new() } else { format!(" = {}", key.default) };
            out += &format!("\n  {}{mark}{default}\n      {}\n", key.name, key.doc);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<(String, String, usize)> {
        let line_of = |s: Source| if let Source::File(_, line) = s { line } else { 0 };
        parse("f.toml", text).unwrap().into_iter().map(|(k, v, s)| (k, v, line_of(s))).collect()
    }

    #[test]
    fn dotted_keys_tables_and_quoted_keys_are_the_same_key_and_keep_their_line() {
        for text in ["# one\nnimbus.dir = 'x'\n", "\n[nimbus]\ndir = 'x'\n", "# one\n\"nimbus.dir\" = 'x'\n"] {
            let k = keys(text);
            assert_eq!((k[0].0.as_str(), k[0].1.as_str()), ("nimbus.dir", "x"), "{text}");
        }
        assert_eq!(keys("\n[nimbus]\n\ndir = 'x'\n")[0].2, 4);
        assert_eq!(keys("supervisor.slots.ports = [6700, 6701]\n")[0].1, "6700,6701");
    }

    #[test]
    fn what_toml_refuses_is_said_with_its_line() {
        let e = parse("f.toml", "a = 1\nb = \n").unwrap_err().to_string();
        assert!(e.starts_with("f.toml:2: "), "{e}");
        let e = parse("f.toml", "a = 1\na = 2\n").unwrap_err().to_string();
        assert!(e.starts_with("f.toml:2: ") && e.contains("duplicate"), "{e}");
        let e = parse("f.toml", "\"nimbus.dir\" = 'x'\n[nimbus]\ndir = 'y'\n").unwrap_err().to_string();
        assert!(e.starts_with("f.toml:3: ") && e.contains("duplicate") && e.contains("f.toml:1"), "{e}");
        let e = parse("f.toml", "x = 1979-05-27\n").unwrap_err().to_string();
        assert!(e.starts_with("f.toml:1: `x`"), "{e}");
    }
}
