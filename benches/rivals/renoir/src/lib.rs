//! renoir's adapter: a thread for each stage, as its local deployment runs them.
//!
//! Before: the harness. After: a source of records of 20 bytes and a sink, in blocks of their own; for words two sources with one half of the lines
//! each, grouped by word on two threads. renoir tells a source nothing of what became of a record, so nothing is "acked".
#![forbid(unsafe_code)]

use renoir::prelude::*;
use rivals_adapter::{Counter, Result, Shape, Stamps, TEXT, Workload, arrived};

/// As renoir's own examples take it where the rate counts.
const BATCH: usize = 1024;

/// Runs a workload without end.
///
/// # Errors
/// What renoir answers; a workload it cannot run.
pub fn run(workload: &Workload) -> Result<()> {
    if workload.acked {
        return Err("renoir tells a source nothing of what became of a record".into());
    }
    let env = StreamContext::new(RuntimeConfig::local(2)?);
    match workload.shape {
        Shape::Null | Shape::Identity => {
            let text: [u8; TEXT.len()] = TEXT.as_bytes().try_into()?;
            let source = env.stream_iter(std::iter::repeat_with(move || std::hint::black_box(text))).batch_mode(BatchMode::fixed(BATCH));
            let count = |text| {
                std::hint::black_box(text);
                Counter::mine().add(1);
            };
            let hop = source.replication(Replication::One).shuffle();
            if workload.shape == Shape::Identity { hop.map(|text| text).shuffle().for_each(count) } else { hop.for_each(count) }
        }
        Shape::Hop | Shape::Chain => {
            let mut stamps = Stamps::of(workload);
            let source = env.stream_iter(std::iter::repeat_with(move || stamps.wait())).batch_mode(BatchMode::single());
            let hop = source.replication(Replication::One).shuffle();
            if workload.shape == Shape::Chain { hop.map(|stamp| stamp).shuffle().for_each(arrived) } else { hop.for_each(arrived) }
        }
        Shape::Words => {
            let of = workload.clone();
            env.stream_par_iter(move |i, n| {
                let lines = of.lines(i as usize, n as usize).expect("the text the harness wrote");
                let words = lines.len();
                (0..words).cycle().map(move |i| lines[i].clone())
            })
            .batch_mode(BatchMode::fixed(BATCH))
            .flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .group_by(|word: &String| word.clone())
            .fold(0u64, |n, _| {
                *n += 1;
                Counter::mine().add(1);
            })
            .for_each(|count| drop(std::hint::black_box(count)));
        }
    }
    env.execute_blocking();
    Ok(())
}
