//! `saetta scheduler replay`: a recorded round asked again, of the plugin that answered it or of another one.
//!
//! Before: nimbus recorded a round, and the file is here (`saetta scheduler rounds FILE` fetches it). After: the same plan bit for bit, or where
//! it first differs; of another plugin, both plans in figures. Snapshot, configuration, seed and arguments are the record's, limits are ours.

use super::seats::{find, options};
use crate::args::{Format, Global};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{Column, Output, data, text};
use saetta_sched_host::library;
use saetta_sched_host::process::What;
use saetta_sched_host::record::Record;
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A recorded round: a file of nimbus.dir/rounds, or fetched with `saetta scheduler rounds FILE`
    file: PathBuf,
    /// Asks this plugin instead of the one that answered, and compares the two plans
    #[arg(short, long, value_name = "NAME|FILE")]
    plugin: Option<String>,
}

pub(super) fn run(args: &Args, global: &Global, out: Output) -> Outcome {
    let record = Record::read(&args.file).map_err(|e| {
        let failure = Failure::new(Exit::Invalid, "reading the recorded round").why(e);
        failure.hint("`saetta scheduler rounds` lists what nimbus has; `saetta scheduler rounds FILE` fetches one again")
    })?;
    let options = options(global)?;
    let head = &record.head;
    let word = args.plugin.as_deref().unwrap_or(&head.plugin);
    let (name, path) = find(word, &options.dir)?;
    let taken = library::take(&path, None).map_err(|e| Failure::new(Exit::Invalid, format!("plugin {word} is not loaded")).why(e))?;
    let is_same_file = taken.sha256 == head.sha256;
    let answer = record.replay(&options, &What::Plugin { name, path });
    let told = Told { of: &record, plugin: word, file: &args.file.display().to_string(), is_same_file, out };
    // Another plugin's plan is compared; of the one that answered, its own is asked for.
    match (args.plugin.is_some() && !is_same_file, answer) {
        (true, Ok(answer)) => {
            told.comparison(&serde_json::to_value(record.compare(&answer)).expect("figures are always JSON"));
            Ok(())
        }
        (true, Err(e)) => Err(Failure::new(Exit::Failed, format!("plugin {word} has no plan for round {}", head.round_id)).why(e)),
        (false, Ok(answer)) if record.answer.is_some() => told.verdict(record.difference(&answer)),
        (false, Ok(_)) => told.verdict(Some(format!("it had no plan ({}) and has one", head.failure))),
        (false, Err(e)) if record.answer.is_none() => {
            told.out.note(&format!("then: {}; now: {e}", head.failure));
            told.verdict(None)
        }
        (false, Err(e)) => told.verdict(Some(format!("it had a plan and has none: {e}"))),
    }
}

/// What stands around every answer.
struct Told<'a> {
    of: &'a Record,
    plugin: &'a str,
    file: &'a str,
    is_same_file: bool,
    out: Output,
}

impl Told<'_> {
    fn document(&self, key: &str, value: Value) -> Value {
        let head = &self.of.head;
        let mut whole = json!({
            "api_version": "v1", "kind": "SchedulerReplay", "file": self.file, "round": head.round_id, "seed": head.seed,
            "recorded": {"plugin": head.plugin, "id": head.id, "sha256": head.sha256},
            "plugin": self.plugin, "same_file": self.is_same_file,
        });
        whole[key] = value;
        whole
    }

    /// JSON where it was asked for, else words.
    fn show(&self, whole: &Value, words: &str) {
        match self.out.format {
            Format::Json => Output::document(whole),
            Format::Ndjson => data(&whole.to_string()),
            _ => data(words),
        }
    }

    /// Whether the round came out as it did.
    fn verdict(&self, difference: Option<String>) -> Outcome {
        let round = format!("round {} by {} ({})", self.of.head.round_id, self.plugin, self.of.head.id);
        let mut whole = self.document("same", difference.is_none().into());
        let Some(difference) = difference else {
            self.show(&whole, &format!("{round}: the same, bit for bit"));
            return Ok(());
        };
        whole["difference"] = difference.as_str().into();
        self.show(&whole, &format!("{round}: another plan"));
        let failure = Failure::new(Exit::Failed, "the round does not come out as it was recorded").why(difference);
        Err(failure.hint(match self.is_same_file {
            true => {
                "what the plugin remembers between rounds is not recorded; else it uses something beside snapshot, configuration and seed"
            }
            false => "the file here is not the one that answered; --plugin FILE names that one",
        }))
    }

    fn comparison(&self, comparison: &Value) {
        let row = |plan: &str, key: &str| {
            let mut row = comparison[key].clone();
            row["plan"] = plan.into();
            row
        };
        let columns = [
            Column { head: "PLAN", wide: false, text: |r| text(r, "plan") },
            Column { head: "PLACED", wide: false, text: |r| text(r, "placed") },
            Column { head: "WITHOUT A SLOT", wide: false, text: |r| text(r, "unscheduled") },
            Column { head: "MOVES", wide: false, text: |r| text(r, "moves") },
            Column { head: "IMBALANCE", wide: false, text: |r| text(r, "imbalance") },
            Column { head: "REMOTE OF 1000", wide: false, text: |r| text(r, "remote_per_mille") },
        ];
        let rows = [row(&format!("{} (recorded)", self.of.head.plugin), "live"), row(self.plugin, "other")];
        let table = self.out.table(&rows, &columns);
        self.show(
            &self.document("comparison", comparison.clone()),
            &format!("{}\n{} executors elsewhere", table.trim_end(), text(comparison, "differing")),
        );
        for refused in comparison["other"]["refused"].as_array().into_iter().flatten() {
            self.out.note(&format!("{}: refused: {}", self.plugin, refused.as_str().unwrap_or_default()));
        }
    }
}
