//! timely's adapter: two workers, one on each core, as its own examples run them.
//!
//! Before: the harness. After: worker 0 feeds records of 20 bytes, all exchanged to worker 1; for words both feed one half of the lines and records
//! go to the worker that their hash names. timely has no acks and no bound on what is under way: the nearest to both is the frontier, so a
//! source goes on when the probe says that old epochs are complete. "acked" bounds what is not yet known to be complete to what a tracked
//! spout may have pending.
#![forbid(unsafe_code)]

use std::hash::{Hash, Hasher};

use rivals_adapter::{Counter, PENDING, Result, Shape, Stamps, TEXT, Workload, arrived, pin};
use rustc_hash::{FxHashMap, FxHasher};
use timely::WorkerConfig;
use timely::communication::Config as Threads;
use timely::dataflow::channels::pact::{Exchange, Pipeline};
use timely::dataflow::operators::generic::Operator;
use timely::dataflow::operators::vec::Map;
use timely::dataflow::operators::{Input, Probe};
use timely::dataflow::{InputHandle, ProbeHandle};
use timely::worker::Worker;

/// A small tuple: no pointer, nothing to allocate.
type Small = [u8; TEXT.len()];

/// Records of an epoch, and epochs that may be incomplete: of a stream, of one whose records' fates are tracked, and of lines.
const STREAM: (u64, u64) = (1024, 64);
const TRACKED: (u64, u64) = (64, PENDING / 64);
const LINES: (u64, u64) = (1000, 8);

/// Runs a workload without end.
///
/// # Errors
/// What timely answers; a workload it cannot run.
pub fn run(workload: &Workload) -> Result<()> {
    let of = workload.clone();
    let workers = timely::execute(timely::Config { communication: Threads::Process(2), worker: WorkerConfig::default() }, move |worker| {
        pin(of.cores[worker.index()]).expect("one of the cores this process is held to");
        match of.shape {
            Shape::Null | Shape::Identity => stream(worker, &of),
            Shape::Hop | Shape::Chain => stamps(worker, &of),
            Shape::Words => words(worker, &of),
        }
    })?;
    workers.join().into_iter().try_for_each(|ended| ended.map_err(Into::into))
}

fn stream(worker: &mut Worker, workload: &Workload) {
    let mut input = InputHandle::new();
    let probe = ProbeHandle::new();
    let passes_on = workload.shape == Shape::Identity;
    worker.dataflow::<u64, _, _>(|scope| {
        let small = scope.input_from(&mut input).unary(Exchange::new(|_: &Small| 1), "receive", |_, _| {
            move |input, output| {
                input.for_each(|time, data| output.session(&time).give_container(data));
            }
        });
        let small = if passes_on { small.map(|text: Small| text) } else { small };
        small
            .unary::<timely::container::CapacityContainerBuilder<Vec<()>>, _, _, _>(Pipeline, "null", |_, _| {
                move |input, _| {
                    input.for_each(|_, data: &mut Vec<Small>| {
                        data.iter().for_each(|text| _ = std::hint::black_box(text));
                        Counter::mine().add(data.len() as u64);
                    });
                }
            })
            .probe_with(&probe);
    });
    let text: Small = TEXT.as_bytes().try_into().expect("its own length");
    let (records, epochs) = if workload.acked { TRACKED } else { STREAM };
    if worker.index() != 0 {
        drop(input);
        while worker.step() {}
        return;
    }
    for epoch in 1.. {
        (0..records).for_each(|_| input.send(std::hint::black_box(text)));
        input.advance_to(epoch);
        worker.step();
        while probe.less_than(&epoch.saturating_sub(epochs)) {
            worker.step();
        }
    }
}

fn stamps(worker: &mut Worker, workload: &Workload) {
    let mut input = InputHandle::new();
    let passes_on = workload.shape == Shape::Chain;
    worker.dataflow::<u64, _, _>(|scope| {
        let stamps = scope.input_from(&mut input).unary(Exchange::new(|_: &u64| 1), "receive", |_, _| {
            move |input, output| {
                input.for_each(|time, data| output.session(&time).give_container(data));
            }
        });
        let stamps = if passes_on { stamps.map(|stamp: u64| stamp) } else { stamps };
        stamps.unary::<timely::container::CapacityContainerBuilder<Vec<()>>, _, _, _>(Pipeline, "null", |_, _| {
            move |input, _| {
                input.for_each(|_, data: &mut Vec<u64>| data.drain(..).for_each(arrived));
            }
        });
    });
    if worker.index() != 0 {
        drop(input);
        while worker.step() {}
        return;
    }
    let (mut stamps, mut epoch) = (Stamps::of(workload), 0);
    loop {
        while let Some(stamp) = stamps.due() {
            input.send(stamp);
            // An exchange holds back what is not a full batch until the epoch ends.
            epoch += 1;
            input.advance_to(epoch);
        }
        worker.step();
    }
}

fn words(worker: &mut Worker, workload: &Workload) {
    let mut input = InputHandle::new();
    let probe = ProbeHandle::new();
    let by_word = |word: &String| {
        let mut hasher = FxHasher::default();
        word.hash(&mut hasher);
        hasher.finish()
    };
    worker.dataflow::<u64, _, _>(|scope| {
        scope
            .input_from(&mut input)
            .flat_map(|line: String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .unary::<timely::container::CapacityContainerBuilder<Vec<()>>, _, _, _>(Exchange::new(by_word), "count", |_, _| {
                let mut counts: FxHashMap<String, u64> = FxHashMap::default();
                move |input, _| {
                    input.for_each(|_, data: &mut Vec<String>| {
                        Counter::mine().add(data.len() as u64);
                        for word in data.drain(..) {
                            match counts.get_mut(&word) {
                                Some(n) => *n += 1,
                                None => _ = counts.insert(word, 1),
                            }
                        }
                    });
                }
            })
            .probe_with(&probe);
    });
    let lines = workload.lines(worker.index(), worker.peers()).expect("the text the harness wrote");
    let (records, epochs) = LINES;
    let mut next = lines.iter().cycle();
    for epoch in 1.. {
        next.by_ref().take(records as usize).for_each(|line| input.send(line.clone()));
        input.advance_to(epoch);
        worker.step();
        while probe.less_than(&epoch.saturating_sub(epochs)) {
            worker.step();
        }
    }
}
