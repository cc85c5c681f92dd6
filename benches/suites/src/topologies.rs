//! Runs a topology of a suite in this process and holds its counters against what went in.
//!
//! Before: a case has wired a topology. After: it reads its own stamps, knowing that nothing was lost.

use saetta::{RunOptions, Summary, Topology};
use saetta_harness::Result;
use saetta_model::config::{Config, Source as From};

use crate::parts::{Identity, Null, Numbers, Small, Source, Tally, Took, Tracked, Wide};
use saetta::prelude::Shuffle;

/// Bytes that fill a tuple up to 64 beside a `u64`.
pub(crate) const FILL_BYTES: usize = 56;
/// Text of a small tuple: longer than what an archive holds inline.
pub(crate) const TEXT: &str = "twenty bytes of text";
/// Trees a tracked spout has open at most: enough that nobody waits for acks, few enough that the ledger stays in the second-level cache.
pub(crate) const PENDING: u32 = 1024;

const _: () = assert!(TEXT.len() == 20);

/// Runs to the end with loops that spin, on `cores` and no others. `pinned` says on which core each component is to be; each must
/// have handled (or been asked for) exactly `tuples` of them, with none failed.
///
/// # Errors
/// What the topology answers, and any count or core that is not as it should be.
pub(crate) fn run(topology: Topology, cores: &[usize], pinned: &[(&str, usize)], tuples: u64) -> Result<Summary> {
    let summary = run_waiting(topology, "spin", cores, RunOptions::default())?;
    for (id, core) in pinned {
        check(&summary, id, tuples, Some(*core))?;
    }
    Ok(summary)
}

/// Runs to the end on `cores` and no others; `wait` is how loops wait for work.
///
/// # Errors
/// What the topology answers; anything lost or that went wrong on the way.
pub(crate) fn run_waiting(mut topology: Topology, wait: &str, cores: &[usize], options: RunOptions) -> Result<Summary> {
    topology.config("worker.wait", wait);
    let program = topology.build()?;
    let config = Config::topology(&program.config, From::Code)?;
    let cores = cores.iter().map(|core| u32::try_from(*core)).collect::<std::result::Result<_, _>>()?;
    let summary = saetta::run(&program, &config, &RunOptions { quiet: true, cores, ..options })?;
    // A host that takes a core away for a second looks like user code that holds up its loop: noise, which the sample shows anyway.
    let errors: Vec<&String> = summary.errors.iter().filter(|error| !error.contains("stands still")).collect();
    if summary.discarded != 0 || !errors.is_empty() {
        return Err(format!("{} frames discarded, errors: {errors:?}", summary.discarded).into());
    }
    Ok(summary)
}

/// Fails unless component `id` handled `tuples`, failed none, and was on `core`, if one is named.
///
/// # Errors
/// What was not so.
pub(crate) fn check(summary: &Summary, id: &str, tuples: u64, core: Option<usize>) -> Result<()> {
    let component = summary.components.get(id).ok_or_else(|| format!("no component {id:?} in the summary"))?;
    if component.executed != tuples || component.failed != 0 {
        return Err(format!("{id}: {} executed and {} failed, of {tuples}", component.executed, component.failed).into());
    }
    match core {
        Some(core) if component.cores.iter().map(|core| *core as usize).ne([core]) => {
            Err(format!("{id}: ran on cores {:?}, not on {core}", component.cores).into())
        }
        _ => Ok(()),
    }
}

/// The core as the wiring takes it.
pub(crate) fn core(core: usize) -> u32 {
    u32::try_from(core).expect("the kernel's core numbers are small")
}

/// A shape of topology. All of them hold a spout `numbers` and a last bolt `null`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    /// [`Wide`], spout to null.
    Wide,
    /// [`Small`], spout to null.
    Small,
    /// [`Small`], spout to identity on the other core, to null beside it: the two serialisations on two cores.
    Identity,
    /// As `Small`, each tuple tracked.
    AckedSmall,
    /// As `Identity`, each tuple tracked.
    AckedIdentity,
}

/// Runs a shape to its end. Million tuples a second, of those that are measured.
///
/// # Errors
/// As [`run`]; and a tracked shape's spout that was not told of every tree.
pub(crate) fn rate(shape: Shape, (near, far): (usize, usize), numbers: &Numbers) -> Result<f64> {
    let (took, tally) = (Took::default(), Tally::default());
    let mut t = Topology::new();
    let (source, sink) = (core(near), core(far));
    let small = |t: &mut Topology| t.spout("numbers", Source::<Small>::of(numbers)).core(source).stream::<Small>();
    let tracked = |t: &mut Topology| {
        let spout = t.spout("numbers", Tracked::of(numbers, &tally)).core(source);
        spout.config("topology.max.spout.pending", PENDING).stream::<Small>()
    };
    let to_null = |t: &mut Topology, stream| _ = t.bolt("null", Null::of(numbers, &took)).core(sink).input(&stream, Shuffle);
    let identity = |t: &mut Topology, stream| t.bolt("identity", || Identity).core(sink).input(&stream, Shuffle).stream::<Small>();
    match shape {
        Shape::Wide => {
            let wide = t.spout("numbers", Source::<Wide>::of(numbers)).core(source).stream::<Wide>();
            let _ = t.bolt("null", Null::of(numbers, &took)).core(sink).input(&wide, Shuffle);
        }
        Shape::Small => {
            let stream = small(&mut t);
            to_null(&mut t, stream);
        }
        Shape::AckedSmall => {
            let stream = tracked(&mut t);
            to_null(&mut t, stream);
        }
        Shape::Identity => {
            let stream = small(&mut t);
            let same = identity(&mut t, stream);
            to_null(&mut t, same);
        }
        Shape::AckedIdentity => {
            let stream = tracked(&mut t);
            let same = identity(&mut t, stream);
            to_null(&mut t, same);
        }
    }
    let mut pinned = vec![("numbers", near), ("null", far)];
    if matches!(shape, Shape::Identity | Shape::AckedIdentity) {
        pinned.push(("identity", far));
    }
    let cores = if near == far { vec![near] } else { vec![near, far] };
    run(t, &cores, &pinned, numbers.end)?;
    if matches!(shape, Shape::AckedSmall | Shape::AckedIdentity) {
        tally.lock().map_err(|_| "the spout panicked")?.check(numbers.end)?;
    }
    let took = took.lock().map_err(|_| "the bolt panicked")?.take().ok_or("the last tuple was never stamped")?;
    Ok((numbers.to - numbers.from) as f64 / took.as_secs_f64() / 1e6)
}
