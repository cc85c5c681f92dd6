//! Storm's oldest example: count the words of a text.
//!
//! read (spout) -> Line -> split (bolt) -> Word, by the word -> count (bolt)
//!
//! With `--keyed` there are two of each, a reader and its splitter on either core with one half of the text, and any word may be counted on either.
#![forbid(unsafe_code)]

mod count;
mod read;
mod split;

use count::{Count, Counts};
use read::{Acked, Fates, Input, Read};
use saetta::Stream;
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
    /// Track every line to its last word; exit 1 unless all of them were acked
    #[arg(long)]
    acked: bool,
    /// Two readers, each of one half of the file with a splitter of its own, and two counters at least
    #[arg(long)]
    keyed: bool,
}

/// Readers of `--keyed`.
const READERS: u64 = 2;
/// Lines of a tracked reader on their way: enough that it never waits for an ack while there is room.
const LINES_PENDING_MAX: u32 = 1024;

fn topology(t: &mut Topology, args: Args) -> Result<()> {
    let input = Input::new(args.file.as_deref(), args.repeat)?;
    let counts: Counts = Arc::new(Mutex::new(Vec::new()));
    let (out, results) = (args.out.clone(), counts.clone());

    let fates: Arc<Mutex<Fates>> = Arc::default();
    let readers = if args.keyed { READERS } else { 1 };
    let mut words: Vec<Stream<Word>> = Vec::new();
    for i in 0..readers {
        let name = |name: &str| if args.keyed { format!("{name}-{i}") } else { name.to_owned() };
        let (input, rate) = (input.part(i, readers)?, args.rate);
        let read = move || Read::new(input.clone(), rate);
        // A line is ten words: reading costs little beside splitting.
        let lines = if args.acked {
            let fates = fates.clone();
            let spout = t.spout(&name("read"), move || Acked::new(read(), fates.clone())).cpu_load(30.0);
            spout.config("topology.max.spout.pending", LINES_PENDING_MAX).stream::<Line>()
        } else {
            t.spout(&name("read"), read).cpu_load(30.0).stream::<Line>()
        };
        let split = t.bolt(&name("split"), Split::default).input(&lines, Shuffle);
        words.push(split.executors(args.splitters).cpu_load(100.0).stream::<Word>());
    }
    let counters = if args.keyed { args.counters.max(READERS as u32) } else { args.counters };
    let count = t.bolt("count", move || Count::new(out.clone(), results.clone())).executors(counters).cpu_load(100.0);
    let _ = words.iter().fold(count, |count, words| count.input(words, by!(Word.word)));

    let fates = args.acked.then_some(fates);
    t.at_end(move |summary| count::report(&counts, fates.as_deref(), summary, args.json));
    Ok(())
}

saetta::main!(topology);
