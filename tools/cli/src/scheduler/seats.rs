//! Which scheduler `--plugin` means: a file, a name in the plugin folder, or one that is linked in.
//!
//! Before: a word of the command line. After: a [`Seat`] that has answered that it is there.

use crate::args::Global;
use crate::exit::{Exit, Failure, Outcome};
use crate::settings::{Reader, load};
use saetta_model::name::nearest;
use saetta_nimbus::NimbusOptions;
use saetta_sched_host::SchedulerOptions;
use saetta_sched_host::ask::Desk;
use saetta_sched_host::process::What;
use saetta_sched_sim::scenario::Scenario;
use saetta_sched_sim::seat::Seat;
use std::path::{Path, PathBuf};

/// What stands before the name of a scheduler that is linked in.
const BUILTIN: &str = "builtin:";

/// Options of every command that runs schedulers.
#[derive(Debug, clap::Args)]
pub(crate) struct Plugins {
    /// A plugin's file, or its name in scheduler.plugin.dir; `builtin:even` is even without a process of its own. May be repeated
    #[arg(short, long, value_name = "NAME|FILE")]
    pub(crate) plugin: Vec<String>,
}

impl Plugins {
    /// As asked for, or the scheduler of the configuration, each in a helper or all in this process. Every one has been loaded once.
    /// `scenario` may configure them.
    pub(crate) fn seats(&self, global: &Global, in_process: bool, scenario: Option<&Scenario>) -> Outcome<Vec<(String, Seat)>> {
        let options = options(global)?;
        let asked = if self.plugin.is_empty() { vec![options.plugin.clone()] } else { self.plugin.clone() };
        asked.into_iter().map(|word| seat(&word, &options, in_process, scenario).map(|seat| (word, seat))).collect()
    }
}

/// What the configuration says of schedulers.
pub(super) fn options(global: &Global) -> Outcome<SchedulerOptions> {
    let settings = load(global, Reader::Daemon)?;
    let options = NimbusOptions::from_config(&settings.daemon, None);
    Ok(options.map_err(|e| Failure::new(Exit::Invalid, "reading the configuration of schedulers").why(e))?.scheduler)
}

fn seat(word: &str, options: &SchedulerOptions, in_process: bool, scenario: Option<&Scenario>) -> Outcome<Seat> {
    if let Some(name) = word.strip_prefix(BUILTIN) {
        if name != saetta_even::BUILTIN.id {
            let failure = Failure::new(Exit::NotFound, format!("there is no linked-in scheduler `{name}`"));
            return Err(failure.hint(format!("`--plugin {BUILTIN}even`, or `--plugin {name}` for a plugin's file")));
        }
        return Seat::linked(saetta_even::BUILTIN).map_err(|e| Failure::new(Exit::Failed, format!("plugin {word}")).why(e));
    }
    let (name, path) = find(word, &options.dir)?;
    let mut options = options.clone();
    match scenario.and_then(|s| s.plugins.get(&name)) {
        Some(config) => options.policy.config = serde_json::Value::Object(config.clone()).to_string(),
        // The daemon's configuration is that of its plugin, and of no other.
        None if name != options.plugin => options.policy.config = "{}".to_owned(),
        None => {}
    }
    let config = options.policy.config.clone();
    let seat = if in_process {
        Seat::in_process(&path, &config)
    } else {
        let mut seat = Seat::Apart(Box::new(Desk::new(options, What::Plugin { name, path: path.clone() })));
        seat.load().map(|()| seat)
    };
    seat.map_err(|why| {
        let hint = "`saetta scheduler inspect FILE` tells what the file says of itself";
        let failure = Failure::new(Exit::Invalid, format!("plugin {word} ({}) does not run", path.display())).why(why);
        if config == "{}" { failure.hint(hint) } else { failure.hint(format!("its configuration is {config}; {hint}")) }
    })
}

/// Name and file of a plugin.
pub(super) fn find(word: &str, dir: &Path) -> Outcome<(String, PathBuf)> {
    let is_file = word.contains('/') || word.ends_with(".so");
    let path = if is_file { PathBuf::from(word) } else { dir.join(format!("libsaetta_{}.so", word.replace('-', "_"))) };
    if path.is_file() {
        return Ok((name_of(&path), path));
    }
    let failure = Failure::new(Exit::NotFound, format!("there is no plugin `{word}`")).why(format!("{} is no file", path.display()));
    if is_file {
        return Err(failure.hint("check the path; a plugin is a shared library, lib*.so"));
    }
    let there = installed(dir);
    Err(match nearest(word, there.iter().map(String::as_str)) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None if there.is_empty() => failure.hint("say where plugins are with --set scheduler.plugin.dir=DIR, or give a file"),
        None => failure.hint(format!("there are: {}", there.join(", "))),
    })
}

/// The name of a plugin by a word of the command line.
pub(super) fn named(word: &str) -> String {
    if word.contains('/') || word.ends_with(".so") { name_of(Path::new(word)) } else { word.replace('_', "-") }
}

/// `libsaetta_round_robin.so` is `round-robin`.
fn name_of(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let stem = stem.strip_prefix("libsaetta_").or(stem.strip_prefix("lib")).unwrap_or(&stem);
    stem.replace('_', "-")
}

/// Plugins in a folder, by name. Other libraries of ours may lie there too in a build tree.
fn installed(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let is_plugin = |path: &PathBuf| {
        path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("libsaetta_") && n.to_string_lossy().ends_with(".so"))
            && saetta_sched_host::inspect::inspect(path).is_ok()
    };
    let mut names: Vec<String> = entries.flatten().map(|e| e.path()).filter(is_plugin).map(|p| name_of(&p)).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_named_as_its_file_without_what_files_have_in_common() {
        let name = |file: &str| name_of(Path::new(file));
        assert_eq!(["libsaetta_round_robin.so", "/x/libmine.so", "mine.so"].map(name), ["round-robin", "mine", "mine"]);
    }
}
