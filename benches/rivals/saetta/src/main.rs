//! Saetta's adapter: the workloads as its users write them, through the public interface, metrics on.
//!
//! Before: the harness. After: a spout on one core, bolts on the other, loops that spin. Words are not here: the harness runs `examples/wordcount` as
//! it is shipped.
#![forbid(unsafe_code)]

use rivals_adapter::{Counter, PENDING, Shape, Stamps, TEXT, Workload, arrived};
use saetta::prelude::*;
use saetta::{Config, ConfigSource, RunOptions};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A small tuple.
#[tuple]
pub struct Small {
    /// [`TEXT`].
    pub text: String,
}

/// When it was sent, or was due.
#[tuple]
pub struct Stamp {
    /// CLOCK_MONOTONIC, ns.
    pub ns: u64,
}

/// The same text for ever.
struct Const;

impl Emits<Small> for Const {}

impl Spout for Const {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        cx.emit(&SmallRef { text: TEXT });
        Ok(Busy)
    }
}

/// The same, each the root of a tree.
struct Tracked {
    next: u64,
}

impl Emits<Small> for Tracked {}

impl Spout for Tracked {
    const TRACKED: bool = true;

    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        cx.emit_tracked(self.next, &SmallRef { text: TEXT });
        self.next += 1;
        Ok(Busy)
    }
}

/// A stamp when one is due.
struct Clock {
    stamps: Stamps,
}

impl Emits<Stamp> for Clock {}

impl Spout for Clock {
    fn next(&mut self, cx: &mut Cx<'_, Self>) -> std::result::Result<Progress, Fail> {
        let Some(ns) = self.stamps.due() else { return Ok(Idle) };
        cx.emit(&Stamp { ns });
        Ok(Busy)
    }
}

/// Emits a new tuple like the one it got.
struct Identity;

impl Bolt for Identity {}
impl Emits<Small> for Identity {}
impl Emits<Stamp> for Identity {}

impl Handle<Small> for Identity {
    fn on(&mut self, tuple: &ArchivedSmall, cx: &mut Cx<'_, Self>) -> Outcome {
        cx.emit(&SmallRef { text: tuple.text() });
        Ok(())
    }
}

impl Handle<Stamp> for Identity {
    fn on(&mut self, tuple: &ArchivedStamp, cx: &mut Cx<'_, Self>) -> Outcome {
        cx.emit(&Stamp { ns: tuple.ns() });
        Ok(())
    }
}

/// Reads and counts.
struct Null {
    counter: Option<&'static Counter>,
}

impl Bolt for Null {}

impl Handle<Small> for Null {
    #[inline]
    fn on(&mut self, tuple: &ArchivedSmall, _: &mut Cx<'_, Self>) -> Outcome {
        std::hint::black_box(tuple.text());
        // Made on another thread than it runs on.
        self.counter.get_or_insert_with(Counter::mine).add(1);
        Ok(())
    }
}

impl Handle<Stamp> for Null {
    fn on(&mut self, tuple: &ArchivedStamp, _: &mut Cx<'_, Self>) -> Outcome {
        arrived(tuple.ns());
        Ok(())
    }
}

fn run(workload: &Workload) -> rivals_adapter::Result<()> {
    let cores = [u32::try_from(workload.cores[0])?, u32::try_from(workload.cores[1])?];
    let [near, far] = cores;
    let mut t = Topology::new();
    let null = || Null { counter: None };
    match workload.shape {
        Shape::Null | Shape::Identity => {
            let mut small = if workload.acked {
                let spout = t.spout("source", || Tracked { next: 0 }).core(near);
                spout.config("topology.max.spout.pending", PENDING).stream::<Small>()
            } else {
                t.spout("source", || Const).core(near).stream::<Small>()
            };
            if workload.shape == Shape::Identity {
                small = t.bolt("identity", || Identity).core(far).input(&small, Shuffle).stream::<Small>();
            }
            let _ = t.bolt("null", null).core(far).input(&small, Shuffle);
        }
        Shape::Hop | Shape::Chain => {
            let of = workload.clone();
            let mut stamps = t.spout("source", move || Clock { stamps: Stamps::of(&of) }).core(near).stream::<Stamp>();
            if workload.shape == Shape::Chain {
                stamps = t.bolt("identity", || Identity).core(far).input(&stamps, Shuffle).stream::<Stamp>();
            }
            let _ = t.bolt("null", null).core(far).input(&stamps, Shuffle);
        }
        Shape::Words => return Err("words are counted by examples/wordcount".into()),
    }
    t.config("worker.wait", "spin");
    let program = t.build()?;
    let config = Config::topology(&program.config, ConfigSource::Code)?;
    saetta::run(&program, &config, &RunOptions { quiet: true, cores: cores.to_vec(), ..RunOptions::default() })?;
    Ok(())
}

fn main() -> std::process::ExitCode {
    rivals_adapter::main(run)
}
