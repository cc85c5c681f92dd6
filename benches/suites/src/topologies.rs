//! Runs a topology of a suite in this process and holds its counters against what went in.
//!
//! Before: a case has wired a topology. After: it reads its own stamps, knowing that nothing was lost.

use saetta::{RunOptions, Summary, Topology};
use saetta_harness::Result;
use saetta_model::config::{Config, Source};

/// Bytes that fill a tuple up to 64 beside a `u64`.
pub(crate) const FILL_BYTES: usize = 56;
/// Text of a small tuple: longer than what an archive holds inline.
pub(crate) const TEXT: &str = "twenty bytes of text";

const _: () = assert!(TEXT.len() == 20);

/// Runs to the end with loops that spin, on `cores` and no others. `pinned` says on which core each component is to be; each must
/// have handled (or been asked for) exactly `tuples` of them, with none failed.
///
/// # Errors
/// What the topology answers, and any count or core that is not as it should be.
pub(crate) fn run(mut topology: Topology, cores: &[usize], pinned: &[(&str, usize)], tuples: u64) -> Result<Summary> {
    topology.config("worker.wait", "spin");
    let program = topology.build()?;
    let config = Config::topology(&program.config, Source::Code)?;
    let cores = cores.iter().map(|core| u32::try_from(*core)).collect::<std::result::Result<_, _>>()?;
    let summary = saetta::run(&program, &config, &RunOptions { quiet: true, cores, ..RunOptions::default() })?;
    for (id, core) in pinned {
        let component = summary.components.get(*id).ok_or_else(|| format!("no component {id:?} in the summary"))?;
        if component.executed != tuples || component.failed != 0 {
            return Err(format!("{id}: {} executed and {} failed, of {tuples}", component.executed, component.failed).into());
        }
        if component.cores.iter().map(|core| *core as usize).ne([*core]) {
            return Err(format!("{id}: ran on cores {:?}, not on {core}", component.cores).into());
        }
    }
    if summary.discarded != 0 || !summary.errors.is_empty() {
        return Err(format!("{} frames discarded, errors: {:?}", summary.discarded, summary.errors).into());
    }
    Ok(summary)
}

/// The core as the wiring takes it.
pub(crate) fn core(core: usize) -> u32 {
    u32::try_from(core).expect("the kernel's core numbers are small")
}
