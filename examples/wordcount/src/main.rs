//! Storm's oldest example: count the words of a text.
//!
//! read (spout) -> Line -> split (bolt) -> Word, by the word -> count (bolt)
#![forbid(unsafe_code)]

mod count;
mod read;
mod split;

use count::{Count, Counts};
use read::{Input, Read};
use saetta::prelude::*;
use split::Split;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A piece of the input: a line, or the part of a very long one up to a white space.
#[tuple]
pub struct Line {
    /// Ends with its white space.
    pub text: String,
}

/// One word.
#[tuple]
pub struct Word {
    /// Never empty, no white space.
    pub word: String,
}

#[derive(clap::Args)]
struct Args {
    /// Text to count, UTF-8; `-` is standard input. Default: the LICENSE of this project
    file: Option<PathBuf>,
    /// Print all counts as one JSON object
    #[arg(long)]
    json: bool,
    /// Each count task writes its words to a file here at the end
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Read the text again and again, for ever
    #[arg(long)]
    repeat: bool,
    /// Lines a second; default: as fast as there is room
    #[arg(long, value_name = "LINES_PER_SEC", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Count tasks
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    counters: u32,
    /// Split tasks
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    splitters: u32,
}

fn topology(t: &mut Topology, args: Args) -> Result<()> {
    let input = Input::new(args.file.as_deref(), args.repeat)?;
    let counts: Counts = Arc::new(Mutex::new(Vec::new()));
    let (out, results) = (args.out.clone(), counts.clone());

    // A line is ten words: reading costs little beside splitting.
    let rate = args.rate;
    let lines = t.spout("read", move || Read::new(input.clone(), rate)).cpu_pct(30.0).stream::<Line>();
    let words = t.bolt("split", Split::default).input(&lines, Shuffle).executors(args.splitters).cpu_pct(100.0).stream::<Word>();
    let _ = t
        .bolt("count", move || Count::new(out.clone(), results.clone()))
        .input(&words, by!(Word.word))
        .executors(args.counters)
        .cpu_pct(100.0);

    t.at_end(move |summary| count::report(&counts, summary, args.json));
    Ok(())
}

saetta::main!(topology);
