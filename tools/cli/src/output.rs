//! What the commands print: data on stdout in the form asked for, everything else on stderr.

use crate::args::{Color, Format, Global};
use comfy_table::{Attribute, Cell, ContentArrangement, Table, presets};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};

/// Where output goes and how it looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) format: Format,
    quiet: bool,
    color: bool,
}

/// One column of a table: heading, whether only `-o wide` shows it, and its text for one item.
pub(crate) struct Column {
    pub(crate) head: &'static str,
    pub(crate) wide: bool,
    pub(crate) text: fn(&Value) -> String,
}

impl Output {
    pub(crate) fn new(global: &Global) -> Self {
        let color = match global.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        };
        let format = if global.json { Format::Json } else { global.output };
        Output { format, quiet: global.quiet, color }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// A remark for people.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            say(text);
        }
    }

    /// One document, for `-o json`.
    pub(crate) fn document(value: &Value) {
        data(&serde_json::to_string_pretty(value).expect("a value is always JSON"));
    }

    /// A list, in any form.
    pub(crate) fn list(&self, kind: &str, items: &[Value], columns: &[Column]) {
        match self.format {
            Format::Json => Self::document(&json!({"api_version": "v1", "kind": kind, "items": items})),
            Format::Ndjson => items.iter().for_each(|item| data(&item.to_string())),
            Format::Name => items.iter().for_each(|item| data(&text(item, "name"))),
            Format::Table | Format::Wide => data(&self.table(items, columns)),
        }
    }

    /// Rows as a table for people.
    pub(crate) fn table(&self, items: &[Value], columns: &[Column]) -> String {
        let columns: Vec<&Column> = columns.iter().filter(|c| !c.wide || self.format == Format::Wide).collect();
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let head = |c: &&Column| if self.color { Cell::new(c.head).add_attribute(Attribute::Bold) } else { Cell::new(c.head) };
        table.set_header(columns.iter().map(head));
        for item in items {
            table.add_row(columns.iter().map(|c| (c.text)(item)));
        }
        if self.color {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        table.lines().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }
}

/// Data, to stdout. A reader that closed the pipe has seen enough: the command ends without a word.
pub(crate) fn data(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(e) = writeln!(out, "{text}").and_then(|()| out.flush()) {
        if e.kind() == std::io::ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        say(&format!("error: writing to stdout: {e}"));
        std::process::exit(1);
    }
}

/// Anything else, to stderr; where that is closed there is nobody to tell.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A member of a JSON object as text; empty where it is absent.
pub(crate) fn text(item: &Value, key: &str) -> String {
    match item.get(key) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(s)) => s.clone(),
        Some(Value::Array(a)) => a.len().to_string(),
        Some(other) => other.to_string(),
    }
}

/// A member that is a list of objects.
pub(crate) fn items<'a>(item: &'a Value, key: &str) -> &'a [Value] {
    item.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_without_a_terminal_is_plain_text_with_no_trailing_blanks() {
        let output = Output { format: Format::Table, quiet: false, color: false };
        let columns = [
            Column { head: "NAME", wide: false, text: |i| text(i, "name") },
            Column { head: "ID", wide: true, text: |i| text(i, "id") },
            Column { head: "N", wide: false, text: |i| text(i, "n") },
        ];
        let table = output.table(&[json!({"name": "wc", "n": 2}), json!({"name": "longer"})], &columns);
        assert_eq!(table, " NAME    N\n wc      2\n longer");
    }
}
